"""All that the connector takes from inside Spark: its objects in the JVM, and names that its documents do not promise.

They are those of Spark 4.3, the version that the tests run with. Another version may have moved them: then reads and
writes that Spark does by itself fail with an error, and ``format("txnlog")`` works on.

* Of pyspark: `_sc`, `_jsc`, `_jvm`, `_jdf`, `_jc`, `_jsparkSession`, the context that is active, the classes of
  `pyspark.sql.classic`, an `RDD` around one of the JVM, and `_load_from_socket`.
* Of the JVM: `QueryExecution`, `ExpressionUtils`, `Dataset.ofRows`, expressions of Catalyst, `toArrowBatchRdd`,
  `createDataset`, `internalCreateDataFrame`, `LogicalRDD`, `PythonRDD`, the operators of a plan, and `MapPartitionsRDD`
  with the function that it has.
* Of Hadoop: `FileSystem.getFileSystemClass`.
* Names: local properties of a micro-batch, and modules of the processes that plan reads and writes.
* Words: those by which a query that is stopped knows the error of its `foreachBatch` as an interruption.

* Of files: the folder of the streaming file sink, the setting that has readers pass over it, and the column of a row's
  number.
* Of tables: the key for the declared type of a column.

`native/native_scan.py` writes such folders: it knows the form of the lists in them.

A session of Spark Connect has none of it, as its driver is another process. There `context_of` and `holdable_rows` are
None and `is_classic` is False; nothing else may be called. Spark's client without a JVM lacks py4j and the classic
classes, so functions import them when they are called.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
RUN_ID: Final = "spark.jobGroup.id"
"""Local properties of a micro-batch's tasks, and of the thread that calls a `foreachBatch`."""

DECLARED_TYPE: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""The key for the declared type of a column. Spark removes it where it brings rows into the form of the table that they
are written to, and nowhere else."""
FILE_SINK_FOLDER: Final = "_spark_metadata"
"""Where the streaming file sink lists the files that it has committed."""
FILE_SINK_IGNORED: Final = "spark.sql.streaming.fileStreamSink.ignoreMetadata"
"""With it readers list folders, whatever such a list says."""
ROW_NUMBER: Final = "_tmp_metadata_row_index"
"""The Parquet reader fills a column of this name with the place of a row in its file, if a query needs it."""

PLANNING_WORKER: Final = "pyspark.sql.worker.write_into_data_source"
COMMITTING_WORKER: Final = "pyspark.sql.worker.python_streaming_sink_runner"
_DAEMON: Final = "pyspark.daemon"
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


def in_worker() -> bool:
    """Return True in a process that Spark's daemon has forked, for tasks, to plan or to commit."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == _DAEMON


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


def is_complete(spark: SparkSession, query_id: str) -> bool:
    """Return whether the streaming query of this id runs, and is in output mode complete; False with Spark Connect."""
    if context_of(spark) is None:
        return False
    for query in spark._jsparkSession.sharedState().activeStreamingQueries().values():
        if query.id().toString() == query_id:
            return bool(str(query.outputMode().toString()) == "Complete")
    return False


class HoldableRows:
    """A frame whose rows Spark can hold, with what its analyzer makes of it; see `holdable_rows`."""

    def __init__(self, frame: DataFrame) -> None:
        self.frame = frame
        self._execution: Any = frame._jdf.queryExecution()
        self._plan = self._execution.analyzed()
        self.is_computed = _is_computed(self._plan)

    def is_observed(self) -> bool:
        """Return whether an action of Spark's own must report metrics of these rows."""
        return not self.is_computed and not self._execution.observedMetrics().isEmpty()

    def planned_bytes(self) -> int:
        """Return what Spark's plan says of their size: an enormous number where a source does not know."""
        plan = self._plan if self.is_computed else self._execution.optimizedPlan()
        return int(plan.stats().sizeInBytes())

    def rdd(self) -> Any:
        """Return the rows that `is_computed` speaks of."""
        return self._plan.rdd()


def holdable_rows(frame: DataFrame) -> HoldableRows | None:
    """Return `frame` with its plan, asked for once; None where its rows cannot be held.

    That is so with Spark Connect, whose driver is another process. A frame with observed metrics must be the action
    that reports them.
    """
    if not is_classic(frame):
        return None
    rows = HoldableRows(frame)
    return None if rows.is_observed() else rows


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
    """The rows of a frame as messages of Arrow batches, which Spark's executors hold once they are computed."""

    def __init__(self, session: SparkSession, held: Any, schema: StructType) -> None:
        self.session = session
        self.schema = schema
        self.held = held

    def messages(self) -> RDD[bytes]:
        """Return the messages."""
        from pyspark import RDD
        from pyspark.serializers import NoOpSerializer

        return RDD(self.held.toJavaRDD(), self.session.sparkContext, NoOpSerializer())

    def close(self) -> None:
        """Let the rows go."""
        self.held.unpersist(False)


class ArrowQuery:
    """A query for the rows of frames, one after another, as messages of at most `rows_max` rows.

    Spark plans it anew where the columns have changed, and for frames that are more than the rows of `foreachBatch`.
    """

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self._rows: _Steps | None = None
        self._first: _Steps | None = None
        self._calls: _Calls | None = None

    def hold(self, rows: HoldableRows, columns: Sequence[str]) -> ArrowRows:
        """Have Spark hold what `columns`, expressions of SQL, are in `rows`. Nothing is computed yet."""
        frame = rows.frame
        session, context = frame.sparkSession, frame.sparkSession.sparkContext
        if self._calls is None or self._calls.context is not context:
            self._calls = _Calls.of(session)
        level = self._calls.level
        if rows.is_computed:
            key = (context, frame.schema, *columns)
            if self._rows is None or self._rows.key != key:
                self._rows = _rows_steps(frame, columns, self._rows_max, key)
            messages = self._rows.over(rows.rdd())
            if messages is not None:
                return ArrowRows(session, messages.persist(level), self._rows.schema)
        selected = frame.selectExpr(*columns)
        return ArrowRows(session, _messages(selected, self._rows_max).persist(level), selected.schema)

    def first(self, rows: ArrowRows, bytes_max: int) -> list[pa.Buffer] | None:
        """Compute all rows, and return their messages: at most one of each partition, within its share of `bytes_max`.

        None if a partition has more than that. It is also None, and nothing is computed, where the operators of the
        query are not Spark's own.
        """
        from pyspark.serializers import NoOpSerializer
        from pyspark.util import _load_from_socket

        session, calls = rows.session, self._calls
        assert calls is not None, "rows are held by hold() of the same query"
        share = bytes_max // max(1, rows.held.getNumPartitions())
        key = (session.sparkContext, share)
        if self._first is None or self._first.key != key:
            self._first = _first_steps(session, share, self._rows_max, key)
        firsts = self._first.over(rows.held)
        if firsts is None:
            return None
        found: list[Any] = []
        with _load_from_socket(calls.collect(firsts), NoOpSerializer()) as batches:
            for batch in batches:
                found += pa.ipc.read_record_batch(pa.py_buffer(batch), _FIRST).column(0)
        return [message.as_buffer() for message in found] if all(message.is_valid for message in found) else None


class _Calls(NamedTuple):
    """What every micro-batch asks of the JVM of `context` in the same words, found once."""

    context: SparkContext
    level: Any
    collect: Any

    @classmethod
    def of(cls, session: SparkSession) -> _Calls:
        """Find them."""
        from pyspark import StorageLevel

        context = session.sparkContext
        level = context._getJavaStorageLevel(StorageLevel.MEMORY_AND_DISK_DESER)
        return cls(context, level, _jvm(session).PythonRDD.collectAndServe)


class _Steps:
    """What Spark runs over the partitions of `rdd` for `frame`, whose leaf it is: as good over those of other RDDs.

    To run it again takes no plan, and no program that Spark generates. `key` says for what it was made.
    """

    def __init__(self, frame: DataFrame, rdd: Any, rows_max: int, key: object) -> None:
        self.key = key
        self.schema = frame.schema
        # Spark forgets the metrics of a plan that is gone, and tasks report them.
        self._plan = cast(Any, frame)._jdf.queryExecution().executedPlan()
        self._step = _jvm(frame.sparkSession).org.apache.spark.rdd.MapPartitionsRDD
        self._functions = _functions(_messages(frame, rows_max), rdd) if _is_plain(self._plan) else None

    def over(self, rdd: Any) -> Any:
        """Return the messages of the rows of `rdd`.

        None where the operators are others: of an extension of Spark, or such that plan while they run.
        """
        if self._functions is None:
            return None
        for function, keeps_sizes, kind, taken in self._functions:
            rdd = self._step(rdd, function, False, False, False, keeps_sizes, kind, taken)
        return rdd


_PLAIN: Final = frozenset(
    f"org.apache.spark.sql.execution.{name}"
    for name in (
        "ExternalRDDScanExec",
        "InputAdapter",
        "ProjectExec",
        "RDDScanExec",
        "SerializeFromObjectExec",
        "WholeStageCodegenExec",
    )
)
"""Operators of Spark each of which does one thing to every partition, whatever the partitions are."""


def _is_plain(plan: Any) -> bool:
    while _class_of(plan) in _PLAIN:
        if plan.children().isEmpty():
            return True
        plan = plan.children().head()
    return False


def _functions(messages: Any, rdd: Any) -> list[tuple[Any, bool, Any, Any]] | None:
    """Return, from `rdd` to `messages`, what each RDD on the way does to a partition, and the three facts it has of it.

    These are whether it keeps sizes, and the kinds of what it gives and takes.

    None where one is of another kind: some settings of Spark make such.
    """
    found = []
    while messages.id() != rdd.id():
        if _class_of(messages) != "org.apache.spark.rdd.MapPartitionsRDD":
            return None
        function = messages.getClass().getDeclaredField("f")
        function.setAccessible(True)
        kind, previous = messages.elementClassTag(), messages.prev()
        found.append((function.get(messages), messages.preservesPartitionSizes(), kind, previous.elementClassTag()))
        messages = previous
    return found[::-1]


def _messages(frame: DataFrame, rows_max: int) -> Any:
    """Return the RDD of the rows of `frame` as messages, whatever the session's settings say of those."""
    # Of a batch's schema the time zone and the kind of texts; and names that are there twice are an error.
    return cast(Any, frame)._jdf.toArrowBatchRdd(rows_max, "UTC", True, False)


def _is_computed(plan: Any) -> bool:
    """Return whether `plan` is only rows that another plan computes, as `foreachBatch` gives them."""
    return _class_of(plan) == "org.apache.spark.sql.execution.LogicalRDD"


def _class_of(made: Any) -> str:
    return str(made.getClass().getName())


def _rows_steps(frame: DataFrame, columns: Sequence[str], rows_max: int, key: object) -> _Steps:
    """Return the steps of `ArrowQuery.hold`, made over no rows: they keep none of `frame`, nor their shuffles."""
    from pyspark.sql import DataFrame

    session = frame.sparkSession
    none = _empty(session)
    made = session._jsparkSession.internalCreateDataFrame(none, frame._jdf.schema(), False)
    return _Steps(DataFrame(made, session).selectExpr(*columns), none, rows_max, key)


def _first_steps(session: SparkSession, share: int, rows_max: int, key: object) -> _Steps:
    """Return the steps of `ArrowQuery.first`, made over no messages."""
    from pyspark.sql import DataFrame

    none = _empty(session)
    of_bytes = _jvm(session).org.apache.spark.sql.Encoders.BINARY()
    messages = DataFrame(session._jsparkSession.createDataset(none, of_bytes), session)
    is_first = f"monotonically_increasing_id() & {_PLACE_IN_PARTITION}L = 0"
    chosen = messages.selectExpr(f"if({is_first} and octet_length(value) <= {share}, value, null) message")
    return _Steps(chosen, none, rows_max, key)


def _empty(session: SparkSession) -> Any:
    return session.sparkContext._jsc.emptyRDD().rdd()


_FIRST: Final = pa.schema([("message", pa.binary())])

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
