"""A Spark session that finds the data source: the right Python is set or checked, and Spark's settings suit it."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark_txnlog.sparkinternals import context_of, in_worker, is_stopped, running_python
from sparktxn import ConfigurationError
from sparktxn.store.options import arguments, integer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


RECOMMENDED: Final = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""Settings that the data source gains from: rows travel over a socket of the machine, to a worker that stays, and the
conditions of `where()` reach the reader."""

_WORKER: Final = "PYSPARK_PYTHON"
_DRIVER: Final = "PYSPARK_DRIVER_PYTHON"
_SETTINGS: Final = {"spark.pyspark.python": _WORKER, "spark.pyspark.driver.python": _DRIVER}

_PROGRAM: Final = "import sys, pyspark_txnlog, sparktxn; print(*sys.version_info[:2], sparktxn.__version__, sep='.')"
_CHECK_TIMEOUT_S: Final = 60

_AT_LEAST_ONE: Final = integer(1, arguments.INT32_MAX)
_PARALLELISM: Final = ("spark.sql.leafNodeDefaultParallelism", "spark.default.parallelism")
"""What says, in this order, how many tasks Spark makes of rows that have no partitions of their own."""

_SESSIONS: Final = ("pyspark.sql.session.SparkSession", "pyspark.sql.connect.session.SparkSession")


def session(
    conf: Mapping[str, str] | None = None, *, master: str | None = None, app_name: str | None = None
) -> SparkSession:
    """Return a Spark session, after checking that its Python workers can run the data source ``txnlog``.

    Spark starts them with the Python of the environment variable ``PYSPARK_PYTHON``, or the first ``python3`` on the
    PATH. Where neither that variable nor `conf` names one, it is set to this process's Python. Another Python that
    is named is run once: it must have the packages, and this process's version of Python.

    Args:
        conf: Spark's settings. They come before RECOMMENDED, and not before those of a running session.
        master: where Spark runs, such as ``local[2]`` or ``spark://host:7077``. By default Spark's own settings say it.
        app_name: the application's name.

    Raises:
        TypeError: an argument has a wrong type.
        ConfigurationError: the Python does not exist, has no `pyspark_txnlog`, or is of another version. Or a session
            that is running uses another Python.
    """
    given = {
        arguments.text("a name of conf", name): arguments.text(f"conf[{name!r}]", value)
        for name, value in arguments.mapping("conf", conf).items()
    }
    master = arguments.text_or_none("master", master)
    app_name = arguments.text_or_none("app_name", app_name)
    _choose_python(given)
    from pyspark.sql import SparkSession

    running = running_python()
    if running is not None and running != os.environ[_WORKER]:
        raise ConfigurationError(
            f"a Spark session is running whose workers use {running!r}, not {os.environ[_WORKER]!r}: stop "
            "it first, and let session() build it"
        )
    builder = SparkSession.builder
    if master is not None:
        builder = builder.master(master)
    if app_name is not None:
        builder = builder.appName(app_name)
    recommended = {} if running is not None else RECOMMENDED
    for name, value in {**recommended, **given}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _choose_python(given: Mapping[str, str]) -> None:
    """Set the variables that Spark reads, and check the Pythons that they name."""
    for setting, variable in _SETTINGS.items():
        named = given.get(setting, os.environ.get(variable))
        if named is None:
            os.environ[variable] = sys.executable
            continue
        where = f"setting {setting}" if setting in given else f"environment variable {variable}"
        # A path that is relative lies in an archive, which only executors unpack.
        if named != sys.executable and (os.sep not in named or os.path.isabs(named)):
            _check(named, where)
        os.environ[variable] = named


def _check(python: str, where: str) -> None:
    """Raise unless a Python can run the data source.

    Raises:
        ConfigurationError: says what it lacks, and how to set another.
    """
    fix = f"set it to {sys.executable!r}, or install sparktxn for it"
    if shutil.which(python) is None:
        raise ConfigurationError(f"{where} is {python!r}, which is not a program: {fix}")
    try:
        done = subprocess.run(
            [python, "-c", _PROGRAM], capture_output=True, text=True, timeout=_CHECK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"{where} is {python!r}, which cannot be run ({error}): {fix}") from None
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"it ended with code {done.returncode}"]
        raise ConfigurationError(f"{where} is {python!r}, which cannot import pyspark_txnlog ({last[0]}): {fix}")
    version = ".".join(done.stdout.split(".")[:2])
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if version != own:
        raise ConfigurationError(f"{where} is {python!r}, which is Python {version}; this is Python {own}: {fix}")


def check_session(spark: object) -> None:
    """Pass if `spark` is a session that runs, of Spark Connect or not.

    Raises:
        TypeError: it is something else.
        RuntimeError: it is stopped.
    """
    kinds = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(spark).__mro__}
    if kinds.isdisjoint(_SESSIONS):
        raise TypeError(f"spark is {arguments.described(spark)}: expected a SparkSession")
    if is_stopped(spark):
        raise RuntimeError("this Spark session is stopped: build another one")


def parallelism_of(spark: SparkSession) -> int:
    """Return how many tasks `spark` runs at a time by its settings or, if they do not say, by its executors' cores.

    A client of Spark Connect sees the settings alone; then it is 1.

    Raises:
        ConfigurationError: a setting is not a whole number, or below 1.
    """
    for setting in _PARALLELISM:
        value = spark.conf.get(setting, None)
        if value is not None:
            parallelism: int = _AT_LEAST_ONE(f"setting {setting}", value)
            return parallelism
    context = context_of(spark)
    return 1 if context is None else int(context.defaultParallelism)


# Spark's Python workers between two steps: each collects all garbage, and its next step waits for that.

_is_asked = False


def pass_over_modules() -> None:
    """Have the garbage collector pass over what the process has by now, once in each of Spark's worker processes.

    To go through the modules alone takes tens of milliseconds, and a small micro-batch has four workers. A program's
    own process is left as it is.
    """
    global _is_asked
    if not _is_asked:
        _is_asked = True
        if in_worker():
            gc.freeze()
