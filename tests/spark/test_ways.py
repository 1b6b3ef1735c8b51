"""The two ways of `foreach_batch`, through the driver and through tasks: both commit the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from pyspark_txnlog import foreach_batch, sparkinternals
from pyspark_txnlog.connecting import storehandles
from pyspark_txnlog.sparkinternals import HoldableRows, holdable_rows
from pyspark_txnlog.writing import foreach
from pyspark_txnlog.writing.foreach import HeldRows, rows_query
from sparktxn import BatchRefused, CommandRefused, Store, read_arrow
from tests.spark.sessions import values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

WAYS = ("driver", "tasks", "held")
"""Through the driver; through tasks at once; through tasks after all, as the rows prove too large for the driver."""

Take = Callable[[str], None]


@pytest.fixture
def take(monkeypatch: pytest.MonkeyPatch) -> Take:
    """Says which way the next micro-batches go, and makes another way fail."""

    def take(way: str) -> None:
        monkeypatch.undo()
        if way == "tasks":
            monkeypatch.setattr(foreach, "holdable_rows", lambda frame: None)
            monkeypatch.setattr(HeldRows, "within", _never)
            return
        monkeypatch.setattr(HoldableRows, "planned_bytes", lambda rows: 0)
        monkeypatch.setattr(foreach, "stage_frame", _never)
        if way == "held":
            monkeypatch.setattr(foreach, "DRIVER_BYTES_MAX", 0)
        else:
            monkeypatch.setattr(HeldRows, "staged_by", _never)

    return take


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("another way was taken")


@pytest.fixture(autouse=True)
def nothing_is_held(spark: SparkSession) -> Iterator[None]:
    yield
    context: Any = spark.sparkContext._jsc
    assert context.getPersistentRDDs().isEmpty()


def as_given(frame: DataFrame) -> DataFrame:
    """The rows of `frame` as `foreachBatch` gives those of a query: nothing else is left of its plan."""
    session: Any = frame.sparkSession
    plan: Any = frame._jdf
    rows = session._jsparkSession.internalCreateDataFrame(plan.queryExecution().toRdd(), plan.schema(), False)
    return DataFrame(rows, session)


def rows_of(spark: SparkSession, kind: str) -> DataFrame:
    """Rows of three partitions, with keys, nulls and columns that cannot be named without quotes."""
    frame = spark.range(0, 30, numPartitions=3).selectExpr(
        "concat('k', id % 5) key",
        "if(id % 7 = 0, null, concat('v', id)) `the.value`",
        "timestamp_seconds(id) at",
        "cast(id as decimal(9, 2)) `a ``quote`",
    )
    if kind == "nested":
        frame = frame.withColumn("nested", F.array(F.struct("key", "at")))
    return as_given(frame) if kind == "given" else frame


def staged(store: Store, topic: str) -> tuple[Any, ...]:
    """What the log knows of the last micro-batch, and its rows in each partition."""
    state = store.log.transaction("spark-q")
    assert state is not None
    assert state.sink is not None
    return state.sink, sorted(str(row) for row in read_arrow(store, topic).read_all().to_pylist())


@pytest.mark.parametrize("kind", ["planned", "nested", "given"])
@pytest.mark.parametrize(("first", "second"), [("driver", "tasks"), ("tasks", "driver"), ("held", "driver")])
def test_a_repetition_may_go_another_way(
    spark: SparkSession, store: Store, take: Take, kind: str, first: str, second: str
) -> None:
    rows = rows_of(spark, kind)
    options: Any = {"topic": "t", "createTopic": True, "createTopicPartitions": 2, "partitionKey": "key"}
    take(first)
    foreach_batch(store.uri, query_id="q", onReplayMismatch="fail", **options)(rows, 0)
    found, entry = staged(store, "t"), store.view().entry
    take(second)
    write = foreach_batch(store.uri, query_id="q", onReplayMismatch="fail", **options)
    write(rows, 0)
    assert store.view().entry == entry
    with pytest.raises(BatchRefused, match="with other rows"):
        write(rows.withColumn("the.value", F.lit("other")), 0)
    assert staged(store, "t") == found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_given", [False, True])
def test_each_way_commits_the_same(spark: SparkSession, store: Store, take: Take, way: str, is_given: bool) -> None:
    """The digest is pinned: it is that of the rows, in driver and tasks, and in however many parts."""
    take(way)
    store.create_topic("t", 4)
    rows = spark.range(0, 30, numPartitions=3).selectExpr("concat('k', id % 5) key", "string(id) value")
    foreach_batch(store.uri, topic="t", query_id="q")(as_given(rows) if is_given else rows, 0)
    state = store.log.transaction("spark-q")
    assert state is not None
    assert state.sink is not None
    assert state.sink.batches[-1].fingerprint == (
        "cf012ea2aa46186dfef04f67cb0f407c:spark2:e372257068b0bd9d5bb9670611f5f3a6"
    )


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize(("first", "second"), [("driver", "tasks"), ("tasks", "driver"), ("held", "driver")])
def test_an_attempt_that_ends_within_its_commit_is_repeated_another_way(
    spark: SparkSession,
    store: Store,
    numbers: Callable[..., DataFrame],
    take: Take,
    first: str,
    second: str,
    committed: bool,
) -> None:
    store.create_topic("t", 3)
    commit = storehandles.commit_batch

    def interrupted(*given: Any, **named: Any) -> None:
        if committed:
            commit(*given, **named)
        raise InterruptedError

    take(first)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(foreach, "commit_batch", interrupted)
        with pytest.raises(InterruptedError):
            foreach_batch(store.uri, topic="t", query_id="q")(numbers(0, 20), 0)
    take(second)
    write = foreach_batch(store.uri, topic="t", query_id="q", onReplayMismatch="fail")
    write(numbers(0, 20), 0)
    write(numbers(20, 25), 1)
    assert values(spark.read.format("txnlog").option("topic", "t").load(store.uri)) == list(range(25))


def test_micro_batches_with_the_same_columns_are_planned_once(
    spark: SparkSession, store: Store, take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    take("driver")
    planned: list[object] = []
    plan = sparkinternals._Steps.__init__

    def noted(steps: Any, frame: DataFrame, *given: Any) -> None:
        planned.append(frame.columns)
        plan(steps, frame, *given)

    generated: list[object] = []
    messages = sparkinternals._messages

    def noted_programs(frame: DataFrame, rows_max: int) -> Any:
        generated.append(frame.columns)
        return messages(frame, rows_max)

    monkeypatch.setattr(sparkinternals._Steps, "__init__", noted)
    monkeypatch.setattr(sparkinternals, "_messages", noted_programs)
    write = foreach_batch(store.uri, topic="t", query_id="q", createTopic=True, mergeSchema=True)
    columns, more = ["id number", "string(id) text"], ["date(null) day"]
    for batch_id, chosen in enumerate([columns, columns, columns + more, columns + more, columns[::-1]]):
        write(as_given(spark.range(batch_id, batch_id + 3, numPartitions=2).selectExpr(*chosen)), batch_id)
    hashed = "__row_hash"
    assert planned == [
        ["number", "text", hashed],
        ["message"],
        ["number", "text", "day", hashed],
        ["text", "number", hashed],
    ]
    assert generated == planned
    found = spark.read.format("txnlog").option("topic", "t").load(store.uri)
    assert sorted((row.number, row.text) for row in found.collect()) == sorted(
        (number, str(number)) for start in range(5) for number in range(start, start + 3)
    )


def test_the_calls_into_the_jvm_of_a_micro_batch(
    spark: SparkSession, store: Store, take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that lowers the figure lowers it here too; each call waits for the JVM, and may wait for a processor."""
    from py4j.java_gateway import GatewayClient

    take("driver")
    store.create_topic("t", 2)
    write = foreach_batch(store.uri, topic="t")
    calls: list[str] = []
    send = GatewayClient.send_command

    def noted(client: Any, command: str, *given: Any, **named: Any) -> Any:
        if threading.current_thread() is threading.main_thread():  # another one lets objects of the JVM go
            calls.append(command)
        return send(client, command, *given, **named)

    for name in (sparkinternals.QUERY_ID, sparkinternals.RUN_ID):
        spark.sparkContext.setLocalProperty(name, "q")
    try:
        for batch_id in range(3):
            rows = as_given(spark.range(10, numPartitions=2).selectExpr("string(id) value"))
            if batch_id == 2:
                monkeypatch.setattr(GatewayClient, "send_command", noted)
            write(rows, batch_id)
    finally:
        monkeypatch.undo()
        for name in (sparkinternals.QUERY_ID, sparkinternals.RUN_ID):
            spark.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]
    assert len(calls) == 25, "\n".join(calls)


def test_sparks_optimizer_works_once_for_the_frame_of_a_users_function(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For its size: that of a later one follows from the last micro-batch."""
    asked: list[int] = []
    planned = HoldableRows.planned_bytes
    monkeypatch.setattr(HoldableRows, "planned_bytes", lambda rows: asked.append(1) or planned(rows))
    store.create_topic("t", 1)
    write = foreach_batch(store.uri, lambda rows, _: {"t": rows.select("value")}, query_id="q")
    for batch_id in range(2):
        write(spark.range(3).selectExpr("string(id) value"), batch_id)
    assert len(asked) == 1


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_computed_once(spark: SparkSession, store: Store, take: Take, way: str) -> None:
    computed = spark.sparkContext.accumulator(0)

    counted = F.udf(lambda number: (computed.add(1), str(number))[1], "string")
    store.create_topic("t", 2)
    take(way)
    foreach_batch(store.uri, topic="t", query_id="q")(
        spark.range(0, 50, numPartitions=2).select(counted("id").alias("value")).repartition(2), 0
    )
    assert computed.value == 50
    assert values(spark.read.format("txnlog").option("topic", "t").load(store.uri)) == list(range(50))


def test_the_way_follows_from_the_last_micro_batch(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: list[str] = []

    def noted(owner: Any, name: str, way: str) -> None:
        act = getattr(owner, name)

        def note(*given: Any, **named: Any) -> Any:
            ways.append(way)
            return act(*given, **named)

        monkeypatch.setattr(owner, name, note)

    noted(HeldRows, "within", "held")
    noted(HeldRows, "staged_by", "too many")
    noted(foreach, "stage_frame", "tasks")
    monkeypatch.setattr(foreach, "DRIVER_BYTES_MAX", 50_000)
    store.create_topic("t", 1)
    write = foreach_batch(store.uri, topic="t", query_id="q")
    counts = [10, 1_000, 1_000, 500, 10, 10]
    for batch_id, count in enumerate(counts):
        rows = spark.range(count).selectExpr("lpad(id, 50, '0') value")
        write(rows, batch_id)
    assert ways == ["held", "held", "too many", "tasks", "tasks", "tasks", "held"]
    assert len(values(spark.read.format("txnlog").option("topic", "t").load(store.uri))) == sum(counts)


def test_a_plan_that_is_known_to_be_large_goes_through_tasks_at_once(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreach, "DRIVER_BYTES_MAX", 50_000)
    monkeypatch.setattr(HeldRows, "within", _never)
    store.create_topic("t", 1)
    foreach_batch(store.uri, topic="t", query_id="q")(spark.range(20_000).selectExpr("string(id) value"), 0)
    assert store.view().entry


def test_frames_with_observed_metrics_and_of_connect_go_through_tasks(
    spark: SparkSession, store: Store, numbers: Callable[..., DataFrame]
) -> None:
    """Only an action of Spark's own reports the metrics."""
    store.create_topic("t", 1)
    observed = Observation("rows")
    rows = numbers(0, 10).observe(observed, F.count("*").alias("count"))
    assert holdable_rows(rows) is None
    foreach_batch(store.uri, topic="t", query_id="q")(rows, 0)
    assert observed.get == {"count": 10}
    connected: Any = SimpleNamespace(sparkSession=object())
    assert holdable_rows(connected) is None


def test_rows_that_are_refused_are_let_go(spark: SparkSession, store: Store, numbers: Callable[..., DataFrame]) -> None:
    store.create_topic("t", 1, settings={"max.message.bytes": "100"})
    with pytest.raises(CommandRefused, match="MSG_SIZE_TOO_LARGE"):
        foreach_batch(store.uri, topic="t", query_id="q")(numbers(0, 1).selectExpr("lpad('', 200, 'x') value"), 0)


def test_a_join_and_a_broadcast_reach_the_driver(
    spark: SparkSession, store: Store, numbers: Callable[..., DataFrame], take: Take
) -> None:
    store.create_topic("t", 1)
    take("driver")
    other = spark.range(0, 20, 2).selectExpr("string(id) value")
    rows = numbers(0, 20).join(F.broadcast(other), "value").groupBy("value").count().orderBy(F.expr("int(value)"))
    foreach_batch(store.uri, topic="t", query_id="q")(rows.select("value"), 0)
    found = spark.read.format("txnlog").option("topic", "t").load(store.uri).orderBy("offset")
    assert [int(bytes(row.value)) for row in found.collect()] == list(range(0, 20, 2))
    foreach_batch(store.uri, topic="t", query_id="q")(numbers(0, 0), 1)


def test_a_partition_has_its_share_of_the_drivers_bytes(spark: SparkSession) -> None:
    """However wide a row is: messages of Arrow are measured, not rows."""
    sizes: list[int] = []
    for frame in (spark.range(40, numPartitions=2), spark.sql("select repeat('x', 100000) value from range(3)")):
        held = HeldRows(HoldableRows(frame), ["*", "array(null, 'é') n"], rows_query())
        try:
            whole = held.within(2**40)
            assert whole is not None
            sizes = held._held.messages().map(len).collect()
            for share, is_within in ((max(sizes), True), (max(sizes) - 1, False)):
                assert held.within(len(sizes) * share) == (whole if is_within else None)
        finally:
            held.close()
    assert max(sizes) > 200_000


@pytest.mark.parametrize(("count", "is_within"), [(10_000, True), (10_001, False)])
def test_a_partition_has_at_most_one_message_in_the_driver(spark: SparkSession, count: int, is_within: bool) -> None:
    held = HeldRows(HoldableRows(spark.range(count, numPartitions=1)), ["*"], rows_query())
    try:
        assert (held.within(2**40) is not None) == is_within
        assert sum(held.staged_by(lambda batches: (batch.num_rows for batch in batches))) == count
    finally:
        held.close()


@pytest.mark.parametrize(("batch_rows", "large"), [("1", "false"), ("10000", "false"), ("10000", "true")])
def test_settings_of_arrow_change_nothing(spark: SparkSession, batch_rows: str, large: str) -> None:
    settings = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": batch_rows,
        "spark.sql.execution.arrow.useLargeVarTypes": large,
        "spark.sql.session.timeZone": "Asia/Kolkata",
    }
    frame = spark.sql("select string(id) t, timestamp_seconds(id) at, binary('b') b from range(0, 4, 1, 2)")
    before = {name: spark.conf.get(name) for name in settings}
    held: HeldRows | None = None
    try:
        query = rows_query()
        query.hold(HoldableRows(as_given(frame)), ["*"]).close()  # planned before the settings are made
        for name, value in settings.items():
            spark.conf.set(name, value)
        held = HeldRows(HoldableRows(as_given(frame)), ["*"], query)
        batches = held.within(2**20)
    finally:
        for name, old in before.items():
            assert old is not None
            spark.conf.set(name, old)
        if held is not None:
            held.close()
    assert batches is not None
    rows = pa.Table.from_batches(batches)
    assert rows.schema.types == [pa.string(), pa.timestamp("us", tz="UTC"), pa.binary()]
    assert rows.column("t").to_pylist() == ["0", "1", "2", "3"]
    assert [at.timestamp() for at in rows.column("at").to_pylist()] == [0, 1, 2, 3]


@pytest.mark.parametrize("setting", ["spark.sql.adaptive.forceApply", "spark.sql.execution.usePartitionEvaluator"])
def test_rows_go_through_tasks_where_others_plan_sparks_operators(
    spark: SparkSession, store: Store, setting: str
) -> None:
    """Here Spark's own plans again while a query runs, or makes RDDs of another kind. Extensions do it themselves."""
    store.create_topic("t", 2)
    write = foreach_batch(store.uri, topic="t", query_id="q")
    spark.conf.set(setting, "true")
    try:
        for batch_id in range(2):
            rows = spark.range(batch_id * 10, batch_id * 10 + 10, numPartitions=2).selectExpr("string(id) value")
            write(as_given(rows), batch_id)
    finally:
        spark.conf.unset(setting)
    assert values(spark.read.format("txnlog").option("topic", "t").load(store.uri)) == list(range(20))


def test_the_rows_of_all_partitions_are_staged_as_one_batch(
    spark: SparkSession, numbers: Callable[..., DataFrame]
) -> None:
    """What a batch costs in the driver does not grow with the partitions of a micro-batch."""
    held = HeldRows(HoldableRows(numbers(0, 40).repartitionByRange(4, F.expr("int(value)"))), ["*"], rows_query())
    try:
        batches = held.within(2**20)
    finally:
        held.close()
    assert batches is not None
    [batch] = batches
    assert sorted(int(value) for value in batch.column(0).to_pylist()) == list(range(40))


def test_no_rows_are_within_no_bytes(numbers: Callable[..., DataFrame]) -> None:
    held = HeldRows(HoldableRows(numbers(0, 0)), ["*"], rows_query())
    assert held.within(0) == []
    held.close()


def test_sparks_pages_name_the_topics_of_a_job(
    spark: SparkSession, store: Store, numbers: Callable[..., DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    context, name = spark.sparkContext, "spark.job.description"
    seen = []

    def note(rows: HoldableRows) -> int:
        seen.append(context.getLocalProperty(name))
        return 0

    monkeypatch.setattr(HoldableRows, "planned_bytes", note)
    for topic in ("t", "u"):
        store.create_topic(topic, 1)
    foreach_batch(store.uri, topic="t", query_id="q")(numbers(0, 2), 0)
    context.setLocalProperty(name, "a query")
    try:
        foreach_batch(store.uri, lambda rows, _: {"t": rows, "u": rows}, query_id="q")(numbers(0, 2), 1)
        assert context.getLocalProperty(name) == "a query"
    finally:
        context.setLocalProperty(name, None)  # type: ignore[arg-type]
    assert seen == ["txnlog topics = t", *["a query<br/>txnlog topics = t, u"] * 2]
