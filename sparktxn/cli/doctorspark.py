"""What `txnlog doctor` checks of a machine's Spark: versions, Java, the Python of workers, and executors on request.

Nothing of Spark is imported: other processes say what they find, as Spark's own would.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, Final

from sparktxn.cli.doctorstore import FAILED, OK, WARNING, Check
from sparktxn.errors import extra_to_install

__all__ = ["examine_executors", "examine_spark"]

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
