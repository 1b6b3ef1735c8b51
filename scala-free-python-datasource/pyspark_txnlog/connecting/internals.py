"""All that the connector takes from inside Spark: its objects in the JVM, and names that its documents do not promise.

They are those of Spark 4.3, the version that the tests run with. Another version may have moved them: then reads and
writes that Spark does by itself fail with an error, and ``format("txnlog")`` works on.

* Of pyspark: `_sc`, `_jsc`, `_jvm`, `_jdf`, `_jc`, `_jsparkSession`, the context that is active, the classes of
  `pyspark.sql.classic`, and an `RDD` around one of the JVM.
* Of the JVM: `QueryExecution`, `ExpressionUtils`, `Dataset.ofRows`, expressions of Catalyst, `toArrowBatchRdd`,
  `createDataset`, and the operators of a plan.
* Of Hadoop: `FileSystem.getFileSystemClass`.
* Names: local properties of a micro-batch, and modules of the processes that plan reads and writes.
* Words: those by which a query that is stopped knows the error of its `foreachBatch` as an interruption.

`native/file_index.py` writes the lists of files that Spark's streaming file sink has, and needs nothing from inside.

A session of Spark Connect has none of it, as its driver is another process. There `context_of` and `planned_bytes` are
None and `is_classic` is False; nothing else may be called. Spark's client without a JVM lacks py4j and the classic
classes, so functions import them when they are called.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "BATCH_ID",
    "COMMITTING_WORKER",
    "PLANNING_WORKER",
    "QUERY_ID",
    "RUN_ID",
    "ArrowRows",
    "FirstMessages",
    "arrays",
    "context_of",
    "has_file_system",
    "interrupted_in_one_line",
    "is_classic",
    "is_stopped",
    "item",
    "known_nullable",
    "only_commits",
    "optimized",
    "place_in_sorted",
    "planned_bytes",
    "running_python",
    "takes_filters",
]

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
RUN_ID: Final = "spark.jobGroup.id"
"""Local properties of a micro-batch's tasks, and of the thread that calls a `foreachBatch`."""

PLANNING_WORKER: Final = "pyspark.sql.worker.write_into_data_source"
COMMITTING_WORKER: Final = "pyspark.sql.worker.python_streaming_sink_runner"
_FILTERING_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


def context_of(spark: object) -> SparkContext | None:
    """Return the session's context; None with Spark Connect."""
    context: SparkContext | None = getattr(spark, "_sc", None)
    return context


def is_stopped(spark: object) -> bool:
    """Return whether a session is stopped, of Spark Connect or not."""
    context = context_of(spark)
    return bool(getattr(spark, "is_stopped", False) if context is None else context._jsc is None)


def running_python() -> str | None:
    """Return the Python that the workers of this process's running session use; None if none runs."""
    from pyspark import SparkContext

    running = SparkContext._active_spark_context
    return None if running is None else running.pythonExec


def only_commits() -> bool:
    """Return True in the process that only commits micro-batches: it needs no plan, and no request to make one."""
    return COMMITTING_WORKER in sys.modules and PLANNING_WORKER not in sys.modules


def takes_filters() -> bool:
    """Return True in the process that offers the conditions of a batch read to its reader."""
    return _FILTERING_WORKER in sys.modules


def has_file_system(spark: SparkSession, scheme: str) -> bool:
    """Return whether Spark's class path has a Hadoop file system for addresses that begin with `scheme`."""
    from py4j.protocol import Py4JJavaError

    try:
        _jvm(spark).org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, spark._jsc.hadoopConfiguration())
    except Py4JJavaError:  # for a scheme that Hadoop does not know, or a class that is not there
        return False
    return True


def is_classic(frame: DataFrame) -> bool:
    """Return whether the driver of `frame` is this process."""
    return context_of(frame.sparkSession) is not None


def planned_bytes(frame: DataFrame) -> int | None:
    """Return what Spark's plan says of the size of `frame`; None where its rows cannot be held.

    That is so with Spark Connect, whose driver is another process. A frame with observed metrics must be the action
    that reports them. Spark says an enormous number where a source does not know.
    """
    if not is_classic(frame):
        return None
    execution: Any = frame._jdf.queryExecution()
    if not execution.observedMetrics().isEmpty():
        return None
    return int(execution.optimizedPlan().stats().sizeInBytes())


def optimized(rows: DataFrame) -> tuple[DataFrame, StructType]:
    """Return `rows` by the plan that Spark's optimizer makes of them, and the columns of that plan's first leaf."""
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    session = rows.sparkSession
    plan = rows._jdf.queryExecution().optimizedPlan()
    leaf = StructType.fromJson(json.loads(plan.collectLeaves().head().schema().json()))
    made = _jvm(session).org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan)
    return DataFrame(made, session), leaf


def known_nullable(spark: SparkSession, column: Column) -> Column:
    """Return a column with the same values, by an expression that Spark's readers of files take no conditions on."""
    made = _jvm(spark).org.apache.spark.sql.catalyst.expressions.KnownNullable
    return _column(spark, made(_expression(spark, column)))


def arrays(spark: SparkSession, columns: Sequence[pa.Array]) -> list[Any]:
    """Return literals of Spark's, each an array with one of `columns`: they pass the border to the JVM as one row."""
    lists = {str(place): _in_a_list(column) for place, column in enumerate(columns)}
    row = spark.createDataFrame(pa.table(lists))
    [stored] = row._jdf.queryExecution().executedPlan().executeCollect()
    types = row._jdf.schema()
    literal = _jvm(spark).org.apache.spark.sql.catalyst.expressions.Literal
    return [literal(stored.getArray(place).copy(), types.apply(place).dataType()) for place in range(len(columns))]


def _in_a_list(items: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(items)], pa.int32()), items)


def item(spark: SparkSession, array: Any, place: Column) -> Column:
    """Return the item of one of `arrays`: null where it has no such place, whatever the session says."""
    made = _jvm(spark).org.apache.spark.sql.catalyst.expressions.GetArrayItem
    return _column(spark, made(array, _expression(spark, place), False))


def place_in_sorted(spark: SparkSession, array: Any, start: Column, end: Column, sought: Column) -> Column:
    """Return where Java's binary search finds `sought` in one of `arrays`, sorted whole numbers, from `start` to `end`.

    Of a number between two items it is -(the place of the second) - 1.
    """
    jvm = _jvm(spark)
    expressions, types = jvm.org.apache.spark.sql.catalyst.expressions, jvm.org.apache.spark.sql.types
    class_of = jvm.java.lang.Class.forName
    sorted_items = expressions.Literal(array.value().toLongArray(), types.ObjectType(class_of("[J")))
    given = [sorted_items, *(_expression(spark, column) for column in (start, end, sought))]
    sequence = jvm.PythonUtils.toSeq
    search = expressions.objects.StaticInvoke(
        class_of("java.util.Arrays"),
        types.DataTypes.IntegerType,
        "binarySearch",
        sequence(given),
        sequence([]),
        True,  # null for a null
        False,  # and only then
        True,  # deterministic
        jvm.scala.Option.empty(),
    )
    return _column(spark, search)


class ArrowRows:
    """The rows of a frame as messages of Arrow batches, which Spark's executors hold once they are computed.

    A message has at most `rows_max` rows, and those of a partition, but for the last, so many.
    """

    def __init__(self, frame: DataFrame, rows_max: int) -> None:
        from pyspark import StorageLevel

        self.session = frame.sparkSession
        rows: Any = frame._jdf
        level = self.session.sparkContext._getJavaStorageLevel(StorageLevel.MEMORY_AND_DISK)
        # Of a batch's schema the time zone and the kind of texts; and names that are there twice are an error.
        self.held: Any = rows.toArrowBatchRdd(rows_max, "UTC", True, False).persist(level)

    def messages(self) -> RDD[bytes]:
        """Return the messages."""
        return _rdd_of_bytes(self.session, self.held)

    def close(self) -> None:
        """Let the rows go."""
        self.held.unpersist(False)


class FirstMessages:
    """A query over the messages of a frame's rows. It is planned once, and runs over those of each micro-batch."""

    def __init__(self) -> None:
        self._planned_for: tuple[SparkContext, int] | None = None

    def of(self, rows: ArrowRows, bytes_max: int) -> list[pa.Buffer | None]:
        """Compute all rows; return the first message of each partition that has one, and None for each other message.

        None is there also for a first message that is larger than its partition's share of `bytes_max`.
        """
        share = bytes_max // max(1, rows.held.getNumPartitions())
        if self._planned_for != (rows.session.sparkContext, share):
            self._plan(rows, share)
            self._planned_for = (rows.session.sparkContext, share)
        leaf, *nodes = self._nodes
        jvm = _jvm(rows.session)
        plan = jvm.org.apache.spark.sql.execution.ExternalRDDScanExec(leaf.outputObjAttr(), rows.held)
        for node in nodes:
            plan = node.withNewChildren(jvm.PythonUtils.toSeq([plan]))
        found: list[pa.Buffer | None] = []
        for batch in _rdd_of_bytes(rows.session, self._frame.toArrowBatchRdd(plan)).collect():
            messages = pa.ipc.read_record_batch(pa.py_buffer(batch), self._schema).column(0)
            found += (message.as_buffer() for message in messages)
        return found

    def _plan(self, rows: ArrowRows, share: int) -> None:
        """Keep the query, the schema of its rows, and its operators from the one that reads the messages upwards."""
        from pyspark.sql import DataFrame
        from pyspark.sql.pandas.types import to_arrow_schema

        of_bytes = _jvm(rows.session).org.apache.spark.sql.Encoders.BINARY()
        messages = DataFrame(rows.session._jsparkSession.createDataset(rows.held, of_bytes), rows.session)
        is_first = f"monotonically_increasing_id() & {_PLACE_IN_PARTITION}L = 0"
        query = messages.selectExpr(f"if({is_first} and octet_length(value) <= {share}, value, null) message")
        is_large = str(rows.session.conf.get("spark.sql.execution.arrow.useLargeVarTypes")) == "true"
        self._schema = to_arrow_schema(query.schema, prefers_large_types=is_large)
        self._frame: Any = query._jdf
        self._nodes = [self._frame.queryExecution().executedPlan()]
        while not self._nodes[0].children().isEmpty():
            self._nodes.insert(0, self._nodes[0].children().head())


def _rdd_of_bytes(session: SparkSession, messages: Any) -> RDD[bytes]:
    from pyspark import RDD
    from pyspark.serializers import NoOpSerializer

    return RDD(messages.toJavaRDD(), session.sparkContext, NoOpSerializer())


_PLACE_IN_PARTITION: Final = 2**33 - 1
"""The bits of `monotonically_increasing_id()` that count the rows of a partition."""

_INTERRUPTIONS: Final = ("java.lang.InterruptedException", "java.nio.channels.ClosedByInterruptException")


class QueryInterrupted(Exception):
    """A call of Spark in a function for `foreachBatch` was interrupted: its query is being stopped."""


@contextmanager
def interrupted_in_one_line() -> Iterator[None]:
    """Raise QueryInterrupted where Spark interrupts a call, with the words that Spark's stopping query looks for.

    The error itself has them, too, and a trace of Java. On a text of that length, Spark's pattern overflows the stack
    of the query's thread, and the console shows that.
    """
    try:
        yield
    except Exception as error:
        raised: Any = getattr(error, "java_exception", None)
        kind = None if raised is None else raised.getClass().getName()
        if kind not in _INTERRUPTIONS:
            raise
        raise QueryInterrupted(f"py4j.protocol.Py4JJavaError: An error occurred while calling Spark: {kind}") from None


def _expression(spark: SparkSession, column: Column) -> Any:
    classic: Any = column
    return _jvm(spark).org.apache.spark.sql.classic.ExpressionUtils.expression(classic._jc)


def _column(spark: SparkSession, expression: Any) -> Column:
    from pyspark.sql.classic.column import Column as ClassicColumn

    return ClassicColumn(_jvm(spark).org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def _jvm(spark: SparkSession) -> Any:
    return cast(Any, spark._jvm)
