"""What `txnlog doctor --spark MASTER` learns from a Spark session: run as ``python -m pyspark_txnlog.doctor_session``.

It reads the master, the store's address and its settings from standard input as JSON. It prints its findings as JSON:
lists of a check's name, its result, what was found, and the fix.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import sparktxn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Finding = tuple[str, str, str, str | None]

_INSTALL = "install sparktxn for the Python of the executors, or ship it: docs/spark.md says how (Clusters)"


def _seen_by_executor(store: str, options: dict[str, Any], _: int) -> tuple[str, str, str | None, str | None]:
    """Return an executor's host, its Python, its version of the package, and why it cannot read the store."""
    import platform
    import socket

    host, python = socket.gethostname(), platform.python_version()
    try:
        import pyspark_txnlog  # noqa: F401 - it may be missing there
        import sparktxn
    except ImportError as error:
        return host, python, None, str(error)
    try:
        with sparktxn.Store.open(store, options=options) as opened:
            opened.view([])
    except sparktxn.KafkaException as error:
        return host, python, sparktxn.__version__, error.args[0].str()
    return host, python, sparktxn.__version__, None


def examine(spark: SparkSession, store: str, options: dict[str, Any], *, has_store: bool) -> list[Finding]:
    """Return what is found of the session, of the data source and of each executor's host.

    Args:
        spark: the session.
        store: the address of a store.
        options: the store's settings.
        has_store: whether there is a store at the address, as this process sees it.
    """
    from functools import partial

    context = spark.sparkContext
    found: list[Finding] = [_source(spark)]
    count = 2 * context.defaultParallelism
    seen = context.parallelize(range(count), count).map(partial(_seen_by_executor, store, options)).collect()
    for host, python, version, problem in sorted(set(seen), key=str):
        name, where = f"executors on {host}", f"Python {python}"
        if version is None:
            found.append((name, "failed", f"{where} cannot import the package: {problem}", _INSTALL))
        elif version != sparktxn.__version__:
            what = f"{where} has sparktxn {version}, and the driver {sparktxn.__version__}"
            found.append((name, "warning", what, "install the same version everywhere"))
        elif problem is not None and has_store:
            fix = "give executors the address, credentials and network of the driver; a folder must be shared by all"
            found.append((name, "failed", f"they cannot read the store: {problem}", fix))
        else:
            reads = " and reads the store" if has_store else ""
            found.append((name, "ok", f"{where} has sparktxn {version}{reads}", None))
    return found


def _source(spark: SparkSession) -> Finding:
    from pyspark.errors import PySparkException

    try:
        spark.read.format("txnlog").load()
    except PySparkException as error:
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            fix = f"export PYSPARK_PYTHON={sys.executable}, or call pyspark_txnlog.register(spark)"
            return "data source", "failed", 'Spark does not find format("txnlog")', fix
    return "data source", "ok", f'Spark {spark.version} finds format("txnlog")', None


def main() -> int:
    """Print the findings; return 0."""
    from pyspark_txnlog.connecting.sessions import session

    given = json.load(sys.stdin)
    try:
        with sparktxn.Store.open(given["store"], options=given["options"]):
            has_store = True
    except sparktxn.KafkaException:
        has_store = False
    spark = session(master=given["master"], app_name="txnlog doctor")
    spark.sparkContext.setLogLevel("OFF")
    try:
        found = examine(spark, given["store"], given["options"], has_store=has_store)
    finally:
        spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
