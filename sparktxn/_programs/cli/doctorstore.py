"""What `txnlog doctor` proves, on an object store and of Spark: each check removes again what it has written.

The objects have the names of those that writers make to see the store's time, which the vacuum knows and deletes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import metadata
from typing import Any, Final, NamedTuple

from sparktxn._engine.format import names
from sparktxn._engine.log.write.storeclock import rounding_ms
from sparktxn._engine.objectstore.contract import FolderStore, ObjectStore, PutOutcome
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.clock import Clock, Ids
from sparktxn._foundation.values.quantities import counted, duration_text
from sparktxn.errors import StoreError, extra_to_install
from sparktxn.store.options import ThreadBackground

OK: Final = "ok"
FAILED: Final = "failed"
WARNING: Final = "warning"

_RACERS: Final = 8
_ROUNDS: Final = 5
_TIMED: Final = 10
_SLOW_MS: Final = 1_000
_SKEW_WARNING_MS: Final = 5_000
_REPLACES_AFTER_S: Final = 1.1
"""Google Cloud Storage takes one write a second over one object."""
_UNSAFE: Final = (
    "do not keep data here: use a store that honours If-None-Match: * on PUT, such as AWS S3, or Google Cloud Storage "
    "or Azure Blob Storage"
)
_UNSTABLE: Final = "do not keep data here: use a store whose reads and listings show what was written before"

COMMITS: Final = {"put": 3_600, "list": 4_800, "get": 0}
"""Requests of an hour in which one producer commits a small transaction each second."""
WAITING: Final = {"put": 0, "list": 37_000, "get": 36_000}
"""Requests of an hour in which a consumer of a group waits for records in another process, at most."""
_PRICES: Final = {
    "s3": ("list prices of S3 Standard", {"put": 5.0, "list": 5.0, "get": 0.4}),
    "gs": ("list prices of Google Cloud Storage Standard", {"put": 5.0, "list": 5.0, "get": 0.4}),
    "abfs": ("the sample prices in Azure's documentation, of the hot tier", {"put": 5.5, "list": 5.5, "get": 0.44}),
}
"""Prices in USD of a million requests (2026): in the cheapest regions, or a sample where list prices differ much."""


class Check(NamedTuple):
    """One thing that was looked into: the result is ok, warning or failed, and `fix` says what to change."""

    check: str
    result: str
    found: str
    fix: str | None = None


class _Examination:
    def __init__(self, objects: ObjectStore, clock: Clock, ids: Ids) -> None:
        self._objects = objects
        self._clock = clock
        self._ids = ids
        self._made: list[str] = []

    def _name(self) -> str:
        name = names.clock(self._ids.token())
        self._made.append(name)
        return name

    def checks(self) -> Iterator[Check]:
        """Yield the results; a store that cannot be written to gets no further ones."""
        name, data = self._name(), b"first"
        try:
            outcome = self._objects.put_if_absent(name, data)
        except StoreError as error:
            yield Check(
                "write", FAILED, str(error), "give the credentials the right to put objects, or fix the address"
            )
            return
        if outcome is PutOutcome.UNKNOWN and self._objects.get(name) is None:
            yield Check("write", FAILED, "the store did not take a conditional put; its answer is in the log", _UNSAFE)
            return
        yield Check("write", OK, f"put-if-absent answered {outcome.value}")
        for check in (
            partial(self._read, name, data),
            partial(self._listed, name, data),
            partial(self._conditional, name, data),
            self._race,
            self._replaced,
            self._skew,
            self._latency,
            self._after,
            self._deleted,
        ):
            yield self._answered(check)

    def _answered(self, check: Callable[[], Check]) -> Check:
        try:
            return check()
        except StoreError as error:
            what = check.func if isinstance(check, partial) else check
            return Check(what.__name__.strip("_"), FAILED, str(error), "fix what the message names, and run it again")

    def _read(self, name: str, data: bytes) -> Check:
        found, part = self._objects.get(name), self._objects.get_range(name, 1, 3)
        if found != data or part != data[1:3]:
            return Check("read", FAILED, "an object that was just written reads otherwise", _UNSTABLE)
        if self._objects.get(names.clock(self._ids.token())) is not None:
            return Check("read", FAILED, "an object that was never written can be read", _UNSTABLE)
        return Check("read", OK, "what is written is read at once")

    def _listed(self, name: str, data: bytes) -> Check:
        listed = {info.name: info.size_bytes for info in self._objects.list(names.CLOCKS)}
        if listed.get(name) != len(data) or name not in self._objects.list_names(names.CLOCKS):
            return Check("list", FAILED, "an object that was just written is not listed", _UNSTABLE)
        return Check("list", OK, "what is written is listed at once")

    def _after(self) -> Check:
        """List from a name on, as each commit does: among all that the other checks have made."""
        made = sorted(self._made)
        after, later = made[len(made) // 2], made[len(made) // 2 + 1 :]
        deep = [info.name for info in self._objects.list(names.CLOCKS, after)]
        if deep[: len(later)] != later or sorted(self._objects.list_names(names.CLOCKS, after)) != deep:
            return Check("list after a name", FAILED, "a listing from a name on lacks names, or has others", _UNSTABLE)
        return Check("list after a name", OK, "a listing from a name on has all that follow")

    def _conditional(self, name: str, data: bytes) -> Check:
        outcome = self._objects.put_if_absent(name, b"second")
        if self._objects.get(name) != data:
            return Check("conditional put", FAILED, "a second put has replaced the first", _UNSAFE)
        if outcome is PutOutcome.CREATED:
            return Check("conditional put", FAILED, "a second put is answered as if it had created the object", _UNSAFE)
        return Check("conditional put", OK, "a name is taken once")

    def _race(self) -> Check:
        """Let several threads put one name at once, some times over."""
        workers = ThreadBackground("txnlog-doctor", _RACERS)
        try:
            for _ in range(_ROUNDS):
                name, together = self._name(), threading.Barrier(_RACERS)
                values = [f"racer {number}".encode() for number in range(_RACERS)]
                racers = [workers.submit(partial(self._put, together, name, value)) for value in values]
                outcomes = [racer.result() for racer in racers]
                winners = [value for value, one in zip(values, outcomes, strict=True) if one is PutOutcome.CREATED]
                found = self._objects.get(name)
                if len(winners) > 1 or found not in (winners or values):
                    what = f"{len(winners)} of {_RACERS} writers have created one name"
                    return Check("racing puts", FAILED, what, _UNSAFE)
        finally:
            workers.close(1.0)
        return Check("racing puts", OK, f"{_ROUNDS} rounds of {_RACERS} writers had one winner each")

    def _put(self, together: threading.Barrier, name: str, value: bytes) -> PutOutcome:
        together.wait(60)
        return self._objects.put_if_absent(name, value)

    def _replaced(self) -> Check:
        name = self._name()
        self._objects.put(name, b"old")
        if _scheme(self._objects) in _PRICES:
            self._clock.sleep(_REPLACES_AFTER_S)
        self._objects.put(name, b"new")
        if self._objects.get(name) != b"new":
            return Check("replace", WARNING, "an object that was replaced reads as before", "it costs time, no data")
        return Check("replace", OK, "hints can be replaced")

    def _skew(self) -> Check:
        name = self._name()
        before_ms = self._clock.wall_ms()
        self._objects.put_if_absent(name, b"time")
        after_ms = self._clock.wall_ms()
        store_ms = next((one.modified_ms for one in self._objects.list(name) if one.name == name), 0)
        if store_ms <= 0:
            return Check("clock", WARNING, "the store gives its objects no times", "maintenance keeps everything")
        skew_ms = max(0, before_ms - store_ms - rounding_ms(store_ms), store_ms - after_ms)
        found = f"this machine's clock is {duration_text(skew_ms)} from the store's"
        if skew_ms > StoreSettings().clock_skew_ms_max:
            return Check("clock", FAILED, found, "set the wrong clock right: writers refuse to write")
        if skew_ms > _SKEW_WARNING_MS:
            return Check("clock", WARNING, found, "set the wrong clock right, such as by NTP")
        return Check("clock", OK, found)

    def _latency(self) -> Check:
        taken: dict[str, list[float]] = {"put": [], "get": [], "list": []}
        for _ in range(_TIMED):
            name = self._name()
            for verb, call in (
                ("put", partial(self._objects.put_if_absent, name, b"timed")),
                ("get", partial(self._objects.get, name)),
                ("list", partial(self._objects.list_names, names.CLOCKS)),
            ):
                began_s = self._clock.monotonic_s()
                call()
                taken[verb].append((self._clock.monotonic_s() - began_s) * 1000)
        middle = {verb: sorted(times)[len(times) // 2] for verb, times in taken.items()}
        found = ", ".join(f"{verb} {middle[verb]:.1f} ms (at most {max(taken[verb]):.1f})" for verb in taken)
        if middle["put"] > _SLOW_MS:
            return Check("latency", WARNING, found, "each commit costs a put: run writers near the store")
        return Check("latency", OK, found)

    def _deleted(self) -> Check:
        """Delete everything that was made, which maintenance needs the right to."""
        made, self._made = self._made, []
        self._objects.delete(made)
        left = [name for name in made if self._objects.get(name) is not None]
        if left:
            return Check(
                "delete", WARNING, f"still read after it was deleted: {counted(len(left), 'object')}", _UNSTABLE
            )
        if isinstance(self._objects, FolderStore):
            self._objects.remove_folders([names.CLOCKS, names.ENTRIES])
        return Check("delete", OK, "what is deleted is gone")

    def give_back(self) -> None:
        """Delete what a check that failed has left."""
        if self._made:
            self._objects.delete(self._made)


def _scheme(objects: ObjectStore) -> str:
    return objects.uri.partition("://")[0]


def _requests(scheme: str) -> Check:
    """Say what requests of an hour cost; nothing is asked of the store."""
    whose, prices = _PRICES[scheme]

    def priced(requests: Mapping[str, int]) -> str:
        counts = " and ".join(counted(count, verb, f"{count:,}") for verb, count in requests.items() if count)
        dollars = sum(count * prices[verb] for verb, count in requests.items()) / 1_000_000
        return f"{counts} ({dollars:.2f} USD)"

    found = f"an hour of a commit each second takes {priced(COMMITS)}, and each waiting consumer {priced(WAITING)}"
    return Check("requests", OK, f"{found}, at {whose}")


def examine(objects: ObjectStore, clock: Clock, ids: Ids) -> Iterator[Check]:
    """Yield what is found of an object store. It need not hold a store yet, and a store in it is left as it is."""
    examination = _Examination(objects, clock, ids)
    yield from examination.checks()
    if _scheme(objects) in _PRICES:
        yield _requests(_scheme(objects))
    try:
        examination.give_back()
    except StoreError as error:
        fix = "give the credentials of maintenance the right to delete objects"
        yield Check("delete", WARNING, str(error), fix)


# What `txnlog doctor` checks of a machine's Spark: versions, Java, the Python of workers, and executors on request.
#
# Nothing of Spark is imported: other processes say what they find, as Spark's own would.

SPARK_MIN: Final = (4, 3)
JAVA_MIN: Final = 17

_TIMEOUT_S: Final = 60
_SESSION_TIMEOUT_S: Final = 300
_WORKER: Final = "PYSPARK_PYTHON"
_PROGRAM: Final = (
    "import json, sys, sparktxn, pyspark_txnlog; "
    "print(json.dumps(['.'.join(map(str, sys.version_info[:2])), sparktxn.__version__]))"
)
_INSTALL: Final = extra_to_install("spark")


def examine_spark(environment: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """Yield what is found of Spark on this machine; nothing where PySpark is not installed."""
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return
    yield _spark(version)
    yield _java(environment)
    yield _python(environment)


def _spark(version: str) -> Check:
    found = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if found < SPARK_MIN:
        expected = ".".join(map(str, SPARK_MIN))
        return Check("spark", FAILED, f"PySpark {version}: expected {expected} or newer", _INSTALL)
    return Check("spark", OK, f"PySpark {version}")


def _java(environment: Mapping[str, str]) -> Check:
    home = environment.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    where = f"JAVA_HOME is {home}: " if home else ""
    fix = f"install Java {JAVA_MIN} or newer, on Debian: apt-get install default-jre-headless"
    if home:
        fix += "; then unset JAVA_HOME, or set it to that one"
    done = _run([java, "-version"], environment)
    version = re.search(r'version "(\d+)', done.stderr + done.stdout) if done is not None else None
    if version is None:
        return Check("java", FAILED, f"{where}no Java can be run, which Spark needs", fix)
    if int(version[1]) < JAVA_MIN:
        return Check("java", FAILED, f"{where}Java {version[1]}: expected {JAVA_MIN} or newer", fix)
    return Check("java", OK, f"{where}Java {version[1]}")


def _python(environment: Mapping[str, str]) -> Check:
    """Run the Python that Spark starts its workers with, and looks for data sources with."""
    python, own = environment.get(_WORKER), f"{sys.version_info.major}.{sys.version_info.minor}"
    name = python or "python3"
    first = shutil.which(name, path=environment.get("PATH"))
    where = f"{_WORKER} is {python}" if python else f"{_WORKER} is not set, so that workers use {first}"
    fix = f"export {_WORKER}={sys.executable}"
    wrong = FAILED
    if not python:
        # pyspark_txnlog.session() chooses this Python then: only sessions that are built otherwise fail.
        wrong, fix = WARNING, f"build sessions with pyspark_txnlog.session(), which sets it, or {fix}"
    if python and os.sep in python and not os.path.isabs(python):
        return Check("python", OK, f"{where}: a path in an archive, which only executors unpack")
    done = _run([name, "-c", _PROGRAM], environment)
    if done is None:
        return Check("python", wrong, f"{where}, which cannot be run", fix)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"])[-1]
        return Check("python", wrong, f"{where}, which cannot import pyspark_txnlog ({last})", fix)
    version, package = json.loads(done.stdout)
    if version != own:
        return Check("python", wrong, f"{where}, which is Python {version}: this one is {own}", fix)
    if package != metadata.version("sparktxn"):
        installed = metadata.version("sparktxn")
        return Check("python", WARNING, f"{where}, which has sparktxn {package}: this one has {installed}", fix)
    return Check("python", OK, f"{where}: Python {version} with sparktxn {package}")


def _run(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str] | None:
    """Run a program to its end; None if it cannot be run."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, env=dict(environment)
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def examine_executors(
    master: str, store: str, options: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> Iterator[Check]:
    """Start Spark at `master`, and yield what its executors say of their Python, the package and the store.

    The settings of the store go through a pipe: another user sees the arguments of a process.
    """
    command = [sys.executable, "-m", "pyspark_txnlog.doctor_session"]
    given = json.dumps({"master": master, "store": store, "options": dict(options)})
    fix = "run a query of your own there first: what Spark says is wrong has to be put right before"
    try:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            timeout=_SESSION_TIMEOUT_S,
            check=False,
            env=dict(environment),
        )
    except subprocess.TimeoutExpired:
        yield Check("executors", FAILED, f"Spark at {master} ran no task within {_SESSION_TIMEOUT_S} s", fix)
        return
    if done.returncode:
        yield Check("executors", FAILED, f"Spark at {master} ran no task: {_reason(done)}", fix)
        return
    yield from (Check(*found) for found in json.loads(done.stdout.splitlines()[-1]))


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """Return the line that says why Spark did not start: the first of the JVM's errors, else the last of Python's."""
    lines = [line.strip() for line in done.stderr.splitlines()]
    wrong = [line for line in lines if "Exception" in line]
    errors = [line for line in lines if "Error" in line]
    return (wrong[:1] or errors[-1:] or lines[-1:] or [f"it ended with code {done.returncode}"])[0]
