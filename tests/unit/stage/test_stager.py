from __future__ import annotations

import pickle
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn._engine.objectstore.contract import PutOutcome
from sparktxn._foundation.process.background import ThreadBackground
from sparktxn._rows.stage import stager as stager_module
from sparktxn._rows.stage.partitioner import partitioner
from sparktxn._rows.stage.stager import STAGING_THREADS, SegmentStager, StagedSegment, StageTopic
from sparktxn.errors import CommandRefused, ConfigurationError, ErrorCode, StoreUnavailable
from sparktxn.testing.clocks import ManualClock
from tests.each import each
from tests.unit.stage.stores import CountingIds, ScriptedStore, stage_topic, stored

NOW_MS = 1_000_000


def open_stager(objects: ScriptedStore, *topics: StageTopic, seed: int = 0, **options: Any) -> SegmentStager:
    by_name = {topic.name: topic for topic in topics}
    return SegmentStager(objects, CountingIds(), 3, by_name, seed=seed, clock=ManualClock(NOW_MS / 1000), **options)


def stage(
    columns: Mapping[str, Any] | pa.Table, *topics: StageTopic, cuts: Sequence[int] = (), **options: Any
) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """The staged records by (topic, partition), of `columns` written in the pieces that `cuts` makes."""
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    objects = ScriptedStore()
    stager = open_stager(objects, *topics, **options)
    edges = [0, *sorted(cuts), table.num_rows]
    for start, end in pairwise(edges):
        stager.write(table.slice(start, end - start))
    by_name = {topic.name: topic for topic in topics}
    found: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for staged in stager.finish():
        found[staged.topic, staged.partition] += stored(objects, by_name[staged.topic], staged).to_pylist()
    return dict(found)


def values(found: dict[tuple[str, int], list[dict[str, Any]]]) -> dict[tuple[str, int], list[bytes]]:
    return {where: [record["value"] for record in records] for where, records in found.items()}


keyed_rows = st.lists(
    st.tuples(st.none() | st.binary(max_size=3), st.sampled_from(["a", "b"]), st.none() | st.integers(0, 2)),
    max_size=40,
)


@settings(max_examples=60)
@given(rows=keyed_rows, seed=st.integers(0, 100), cuts=st.lists(st.integers(0, 40), max_size=4),
       name=st.sampled_from(["consistent_random", "murmur2_random", "random", "fnv1a"]))  # fmt: skip
def test_each_row_goes_where_a_plain_loop_sends_it(
    rows: list[tuple[bytes | None, str, int | None]], seed: int, cuts: list[int], name: str
) -> None:
    """In order, however the rows are cut into batches: a micro-batch that runs again stages the same."""
    expected: dict[tuple[str, int], list[bytes]] = defaultdict(list)
    drawn: dict[str, int] = defaultdict(lambda: seed)

    def pick_for(topic: str) -> Any:
        def pick(partition_count: int) -> int:
            drawn[topic] += 1
            return (drawn[topic] - 1) % partition_count

        return pick

    for index, (key, topic, partition) in enumerate(rows):
        if partition is None:
            partition = partitioner(name)(key, {"a": 3, "b": 5}[topic], pick_for(topic))
        expected[topic, partition].append(b"%d" % index)
    table = pa.table(
        {
            "key": pa.array([key for key, _, _ in rows], pa.binary()),
            "value": pa.array([b"%d" % index for index in range(len(rows))], pa.binary()),
            "topic": pa.array([topic for _, topic, _ in rows], pa.string()),
            "partition": pa.array([partition for _, _, partition in rows], pa.int64()),
        }
    )
    within = [min(cut, len(rows)) for cut in cuts]
    topics = [stage_topic("a", 3), stage_topic("b", 5)]
    assert values(stage(table, *topics, cuts=within, seed=seed, partitioner=name)) == expected


def test_all_of_a_record_is_kept() -> None:
    table = pa.table(
        {
            "key": pa.array(["k", None], pa.large_string()),
            "value": pa.array([None, "v"]),
            "headers": pa.array(
                [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
            "timestamp": pa.array([1_234_567, None], pa.timestamp("us", "Europe/Paris")),
            "offset": [5, 6],
            "timestampType": [0, 0],
        }
    )
    first, second = stage(table, stage_topic(), default_topic="t")["t", 0]
    assert (first["key"], first["value"]) == (b"k", None)
    assert first["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert first["timestamp"].timestamp() == 1.234
    assert (second["key"], second["value"], second["headers"]) == (None, b"v", None)
    assert second["timestamp"].timestamp() * 1000 == NOW_MS


@each(
    [
        pa.array([1_500], pa.int64()),
        pa.array([1_500], pa.timestamp("ms")),
        pa.array([1_500_999], pa.timestamp("us")),
        pa.array([1_500_999_999], pa.timestamp("ns", "America/New_York")),
    ]
)
def test_timestamps_of_any_unit_are_utc_milliseconds(timestamps: pa.Array) -> None:
    (record,) = stage({"value": ["v"], "timestamp": timestamps}, stage_topic(), default_topic="t")["t", 0]
    assert record["timestamp"].timestamp() == 1.5


@pytest.mark.parametrize(
    "headers_type",
    [
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        pa.list_(pa.struct([("value", pa.binary()), ("key", pa.string())])),
        pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
    ],
)
def test_headers_of_other_layouts_in_slices(headers_type: pa.DataType) -> None:
    headers = [[{"key": "x", "value": b"0"}], None, [], [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]]
    table = pa.table({"value": ["0", "1", "2", "3"], "headers": pa.array(headers, headers_type)})
    records = stage(table.slice(1), stage_topic(), default_topic="t")["t", 0]
    assert [record["headers"] for record in records] == headers[1:]


@pytest.mark.parametrize("count", [0, 1, 3, 100_000])
def test_rows_without_columns_are_refused_and_never_counted(count: int) -> None:
    table = pa.table({"x": range(count)}).select([])
    columns = (("v", "int64", True),)
    for rows in (table, pa.record_batch({"x": range(count)}).select([]), pa.RecordBatchReader.from_stream(table)):
        stager = open_stager(ScriptedStore(), stage_topic(schema=columns), default_topic="t")
        if count:
            with pytest.raises(ConfigurationError, match=f"no columns in {count} row"):
                stager.write(rows)
        else:
            stager.write(rows)
            assert stager.finish() == []


def test_a_given_topic_wins_over_the_column() -> None:
    table = pa.table({"value": ["v"], "topic": ["a"]})
    assert list(stage(table, stage_topic("a"), stage_topic("b"), default_topic="b")) == [("b", 0)]


HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
HEADERS_WITHOUT_KEY = pa.array([[{"key": None, "value": b"1"}]], HEADERS_TYPE)


INVALID = ErrorCode.LOCAL_INVALID_ARG
NO_PARTITION = ErrorCode.LOCAL_UNKNOWN_PARTITION


@pytest.mark.parametrize(
    ("columns", "reason", "code"),
    [
        ({"key": ["k"], "topic": ["a"]}, "column 'value' is missing: found key, topic", INVALID),
        ({"value": ["v"], "tpoic": ["a"]}, "no topic is given: add a column 'topic'", INVALID),
        ({"value": ["v"], "topic": ["a"], "heders": [1]}, "'heders'.*did you mean 'headers'", INVALID),
        ({"value": [1], "topic": ["a"]}, "'value' has type int64: expected binary or string", INVALID),
        ({"value": ["v"], "key": [1.5], "topic": ["a"]}, "'key' has type double", INVALID),
        ({"value": ["v", "w"], "topic": ["a", None]}, "'topic' is null in row 1", INVALID),
        ({"value": ["v"], "topic": [3]}, "'topic' has type int64", INVALID),
        (
            {"value": ["v"], "topic": ["aa"]},
            "topic 'aa' is unknown.*did you mean 'a'",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        ({"value": ["v"], "topic": ["typed"]}, "'typed' has declared columns", INVALID),
        ({"value": ["v"], "topic": ["a"], "partition": [2]}, "'partition' has 2: .* 0 to 1", NO_PARTITION),
        ({"value": ["v"], "topic": ["a"], "partition": [-1]}, "'partition' has -1: .* 0 to 1", NO_PARTITION),
        ({"value": ["v"], "topic": ["a"], "partition": ["0"]}, "'partition' has type string", INVALID),
        ({"value": ["v"], "topic": ["a"], "timestamp": ["now"]}, "'timestamp' has type string", INVALID),
        ({"value": ["v"], "topic": ["a"], "headers": [{"h": "1"}]}, "'headers' has type struct", INVALID),
        ({"value": ["v"], "topic": ["a"], "headers": [["h"]]}, "'headers' has type list", INVALID),
        ({"value": ["v"], "topic": ["a"], "headers": HEADERS_WITHOUT_KEY}, "header without a key", INVALID),
    ],
)
def test_wrong_columns_are_named(columns: dict[str, Any], reason: str, code: int) -> None:
    objects = ScriptedStore()
    stager = open_stager(objects, stage_topic("a", 2), stage_topic("typed", schema=(("x", "int64", True),)))
    with pytest.raises(ConfigurationError, match=reason) as caught:
        stager.write(pa.table(columns))
    assert caught.value.error.code() == code
    assert not objects.puts


def test_a_column_twice_is_named() -> None:
    table = pa.Table.from_arrays([pa.array(["v"]), pa.array(["w"])], names=["value", "value"])
    with pytest.raises(ConfigurationError, match="'value' is there 2 times"):
        stage(table, stage_topic(), default_topic="t")


def test_an_empty_batch_is_checked_and_stages_nothing() -> None:
    assert stage({"value": pa.array([], pa.string())}, stage_topic(), default_topic="t") == {}
    with pytest.raises(ConfigurationError, match="'valeu'"):
        stage({"valeu": pa.array([], pa.string())}, stage_topic(), default_topic="t")


SCHEMA = (("id", "int64", False), ("name", "string", True), ("at", "timestamp[us, tz=UTC]", True))


def test_a_typed_topic_keeps_its_columns() -> None:
    table = pa.table(
        {
            "name": pa.array(["x", None]).dictionary_encode(),
            "id": [1, 2],
            "at": pa.array([5, None], pa.timestamp("ms", "Europe/Paris")),
            "_timestamp": pa.array([7, None], pa.timestamp("us", "UTC")),
        }
    )
    first, second = stage(table, stage_topic(schema=SCHEMA), default_topic="t")["t", 0]
    assert list(first) == ["id", "name", "at", "_timestamp"]
    assert (first["id"], first["name"], first["at"].timestamp(), first["_timestamp"].timestamp()) == (1, "x", 0.005, 0)
    assert (second["name"], second["at"], second["_timestamp"].timestamp() * 1000) == (None, None, NOW_MS)


def test_a_nullable_column_may_be_absent() -> None:
    """The topic has gained it since the writer was made."""
    (record,) = stage({"id": [1]}, stage_topic(schema=SCHEMA), default_topic="t")["t", 0]
    assert (record["name"], record["at"]) == (None, None)


MAP_TYPE = pa.map_(pa.string(), pa.int64())
MAPS = (("prices", "map<string, int64 not null>", True), ("local", "timestamp[us]", True))


def test_maps_and_local_times_are_stored_as_declared() -> None:
    prices = pa.array([None, [("a", 1), ("b", 2)], [], [("c", 3)]], pa.map_(pa.large_string(), pa.int32()))
    table = pa.table({"prices": prices, "local": pa.array([1, 2, 3, 4], pa.timestamp("s"))}).slice(1)
    records = stage(table, stage_topic(schema=MAPS), default_topic="t")["t", 0]
    assert [record["prices"] for record in records] == [[("a", 1), ("b", 2)], [], [("c", 3)]]
    assert [record["local"].second for record in records] == [2, 3, 4]


NESTED = (("place", "struct<x: double, names: list<string not null> not null>", True),)
NESTED_TYPE = pa.struct([("x", pa.float64()), ("names", pa.list_(pa.string()))])


@each([
        (SCHEMA, {"name": ["x"]}, "column 'id' of topic 't' is missing and may not be null: found name"),
        (SCHEMA, {"id": [1], "nmae": ["x"]}, "'nmae' is not declared by topic 't'.*did you mean 'name'"),
        (SCHEMA, {"id": [1, None]}, "'id' of topic 't' may not be null"),
        (SCHEMA, {"id": ["1"]}, "'id' of topic 't' has type string: expected int64; cast it"),
        (SCHEMA, {"id": pa.array([1], pa.uint64())}, "'id' of topic 't' has type uint64: expected int64; cast it"),
        (SCHEMA, {"id": [1], "at": pa.array([1], pa.timestamp("us"))}, "expected timestamp.us, tz=UTC."),
        (MAPS, {"local": pa.array([1], pa.timestamp("us", "UTC"))}, "us, tz=UTC.: expected timestamp.us.; cast it"),
        (MAPS, {"prices": pa.array([[("a", None)]], MAP_TYPE)}, r"'prices\[\]' of topic 't' may not be null"),
        (MAPS, {"prices": pa.array([[(1, 1)]], pa.map_(pa.int64(), pa.int64()))}, "'prices' of topic 't' has type map"),
        (MAPS, {"prices": [[1]]}, "'prices' of topic 't' has type list<item: int64>: expected map<string, int64>"),
        (SCHEMA, {"id": [1], "at": pa.array([1_001], pa.timestamp("ns", "UTC"))}, "'at' cannot be stored"),
        (SCHEMA, {"id": [1], "_timestamp": ["x"]}, "'_timestamp' has type string"),
        (NESTED, {"place": pa.array([{"x": 1, "names": ["a", None]}], NESTED_TYPE)}, "place|non-nullable"),
        (NESTED, {"place": pa.array([{"x": 1, "names": None}], NESTED_TYPE)}, "place|non-nullable"),
        (NESTED, {"place": [{"x": 1, "nmaes": ["a"]}]}, "'place' of topic 't' has type struct"),
    ])  # fmt: skip
def test_wrong_typed_columns_are_named(schema: Any, columns: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        stage(columns, stage_topic(schema=schema), default_topic="t")


@each(
    [
        (pa.array([b"a", None, b"b", b"a"]), "binary", [b"a", None, b"b", b"a"]),
        (pa.array(["a", None, "b", "a"]), "string", [b"a", None, b"b", b"a"]),
        (pa.array([10, None, -3, 10], pa.int16()), "int16", [b"10", None, b"-3", b"10"]),
        (pa.array([True, None, False, True]), "bool", [b"true", None, b"false", b"true"]),
        (pa.array([0, None, 1, 0], pa.date32()), "date32", [b"1970-01-01", None, b"1970-01-02", b"1970-01-01"]),
    ]
)
def test_a_typed_topic_is_partitioned_by_its_key_column(
    column: pa.Array, data_type: str, texts: list[bytes | None]
) -> None:
    drawn = iter(range(4, 20))
    expected = defaultdict(list)
    for row, text in enumerate(texts):
        expected["t", partitioner("consistent_random")(text, 6, lambda n: next(drawn) % n)].append(row)
    topic = stage_topic("t", 6, schema=(("k", data_type, True), ("row", "int64", True)), partition_key="k")
    found = stage({"k": column, "row": range(4)}, topic, default_topic="t", seed=4)
    assert {where: [record["row"] for record in records] for where, records in found.items()} == expected


def test_a_typed_topic_without_a_key_goes_round_robin() -> None:
    topic = stage_topic("t", 3, schema=(("row", "int64", True),))
    found = stage({"row": range(5)}, topic, default_topic="t", seed=2)
    assert {where[1]: [record["row"] for record in records] for where, records in found.items()} == {
        2: [0, 3], 0: [1, 4], 1: [2]
    }  # fmt: skip


@each(
    [
        ({"default_topic": "flihgts"}, "topic 'flihgts' is unknown; did you mean 'flights'"),
        ({"partitioner": "murmur"}, "did you mean 'murmur2'"),
        ({"default_topic": "wrong"}, "'partition.key' of topic 'wrong' is 'nmae'.*did you mean 'name'"),
        ({"default_topic": "nested"}, "'partition.key' of topic 'nested' is 'names'.*not nested"),
    ]
)
def test_wrong_options_are_named_at_once(options: dict[str, Any], reason: str) -> None:
    topics = [
        stage_topic("flights"),
        stage_topic("wrong", schema=SCHEMA, partition_key="nmae"),
        stage_topic("nested", schema=(("names", "list<string>", True),), partition_key="names"),
    ]
    with pytest.raises(ConfigurationError, match=reason):
        open_stager(ScriptedStore(), *topics, **options)


@pytest.mark.parametrize("wide", ["value", "key", "headers"])
def test_a_record_that_is_too_large_is_refused(wide: str) -> None:
    columns = {"value": pa.array([b"12", b"3"]), "key": pa.array([b"1", b"2"]), "headers": pa.nulls(2)}
    if wide == "headers":
        columns[wide] = pa.array([None, [{"key": "h" * 50, "value": b"x" * 48}]], HEADERS_TYPE)
    else:
        columns[wide] = pa.array([b"", b"x" * 98])
    largest = 98 + {"value": 1, "key": 1, "headers": 2}[wide]
    fits = stage_topic(max_message_bytes=str(largest))
    assert len(stage(columns, fits, default_topic="t")["t", 0]) == 2
    with pytest.raises(CommandRefused, match=f"has {largest} bytes: its setting max.message.bytes allows") as caught:
        stage(columns, stage_topic(max_message_bytes=str(largest - 1)), default_topic="t")
    assert caught.value.error == ErrorCode.MESSAGE_TOO_LARGE


def sizes(staged: list[StagedSegment], partition: int = 0) -> list[int]:
    return [segment.record_count for segment in staged if segment.partition == partition]


@each([1, 3, 10, 25])
def test_segments_are_rolled_at_their_row_limit(piece: int) -> None:
    objects, topic = ScriptedStore(), stage_topic(segment_rows="10")
    stager = open_stager(objects, topic, default_topic="t")
    table = pa.table({"value": [b"%d" % row for row in range(25)]})
    for start in range(0, 25, piece):
        stager.write(table.slice(start, piece).to_batches()[0])
    assert len(objects.puts) == 2, "full segments leave before the end"
    staged = stager.finish()
    assert sizes(staged) == [10, 10, 5]
    rows = [record["value"] for segment in staged for record in stored(objects, topic, segment).to_pylist()]
    assert rows == table["value"].to_pylist()


@pytest.mark.parametrize("piece", [1, 7, 100])
def test_segments_are_rolled_at_their_byte_limit(piece: int) -> None:
    objects, topic = ScriptedStore(), stage_topic(segment_bytes="10240", compression_type="none")
    stager = open_stager(objects, topic, default_topic="t")
    table = pa.table({"value": [b"%04d" % row * 250 for row in range(100)]})
    for start in range(0, 100, piece):
        stager.write(table.slice(start, piece))
    staged = stager.finish()
    assert sum(sizes(staged)) == 100
    assert all(8 <= count <= 11 for count in sizes(staged)[:-1])


def test_memory_is_bounded_by_rolling_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stager_module, "_BUFFERED_BYTES_MAX", 50_000)
    objects, topic = ScriptedStore(), stage_topic("t", 3)
    stager = open_stager(objects, topic, default_topic="t")
    for row in range(100):  # partition 2 gets most
        stager.write(pa.table({"value": [b"x" * 1_000], "partition": [row % 3 if row % 10 == 0 else 2]}))
    assert {name.rsplit("/", 1)[0] for name, _ in objects.puts} == {"topics/t-7/kafka_partition=2"}
    assert len(objects.puts) == 2
    staged = stager.finish()
    assert sum(segment.record_count for segment in staged) == 100


def test_a_small_part_does_not_hold_its_whole_batch() -> None:
    stager = open_stager(ScriptedStore(), stage_topic("t", 2, segment_rows="1000"), default_topic="t")
    before = pa.total_allocated_bytes()
    for _ in range(20):
        stager.write(pa.table({"value": [b"x" * 1_000] * 1_001, "partition": [0] + [1] * 1_000}))
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_a_failed_upload_can_never_be_missed() -> None:
    objects = ScriptedStore(["dropped"] * 1_000)
    stager = open_stager(objects, stage_topic(segment_rows="1"), default_topic="t")
    with pytest.raises(StoreUnavailable):
        stager.write(pa.table({"value": ["a"]}))
    objects.script = []
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            stager.finish()


class HeldStore(ScriptedStore):
    """Ends no put of a name before its turn: `ends` says how many may end."""

    def __init__(self, script: list[str] | None = None) -> None:
        super().__init__(script)
        self.begun = 0
        self.ends = threading.Semaphore(0)

    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        self.begun += 1
        assert self.ends.acquire(timeout=30)
        return super().put_if_absent(name, data, timeout_s=timeout_s)


def open_parallel(objects: ScriptedStore, topic: StageTopic) -> SegmentStager:
    background = ThreadBackground("sparktxn-test-stage", STAGING_THREADS)
    return open_stager(objects, topic, default_topic="t", background=background)


def one_row(row: int) -> pa.Table:
    return pa.table({"value": [b"%d" % row]})


def write_rows(stager: SegmentStager, count: int) -> None:
    for row in range(count):
        stager.write(one_row(row))


def test_rows_are_taken_while_segments_are_uploaded() -> None:
    objects, topic = HeldStore(), stage_topic(segment_rows="1")
    stager = open_parallel(objects, topic)
    write_rows(stager, 2 * STAGING_THREADS)
    assert not objects.puts, "no upload has ended"
    objects.ends.release(100)
    rows = [record["value"] for segment in stager.finish() for record in stored(objects, topic, segment).to_pylist()]
    assert rows == [b"%d" % row for row in range(2 * STAGING_THREADS)]


def test_a_writer_waits_for_slow_uploads_before_it_takes_more_rows() -> None:
    """So that memory stays bounded, however long a store takes."""
    objects, topic = HeldStore(), stage_topic(segment_rows="1")
    stager = open_parallel(objects, topic)
    written: list[int] = []

    def write() -> None:
        for row in range(20):
            stager.write(one_row(row))
            written.append(row)

    writer = threading.Thread(target=write)
    writer.start()
    until(lambda: len(written) == 2 * STAGING_THREADS and objects.begun == STAGING_THREADS)
    writer.join(0.5)
    assert len(written) == 2 * STAGING_THREADS
    assert objects.begun == STAGING_THREADS
    objects.ends.release(100)
    writer.join()
    rows = [record["value"] for segment in stager.finish() for record in stored(objects, topic, segment).to_pylist()]
    assert rows == [b"%d" % row for row in range(20)]


def test_segments_keep_the_order_of_rows_whichever_upload_ends_first() -> None:
    class SlowFirstStore(ScriptedStore):
        def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
            if name.endswith(f"{1:020x}.parquet"):
                assert others_ended.wait(30)
            outcome = super().put_if_absent(name, data, timeout_s=timeout_s)
            if len(self.puts) == 2:
                others_ended.set()
            return outcome

    others_ended = threading.Event()
    objects, topic = SlowFirstStore(), stage_topic(segment_rows="1")
    stager = open_parallel(objects, topic)
    write_rows(stager, 3)
    staged = stager.finish()
    rows = [record["value"] for segment in staged for record in stored(objects, topic, segment).to_pylist()]
    assert rows == [b"0", b"1", b"2"]


def test_an_upload_that_fails_alongside_can_never_be_missed() -> None:
    objects = ScriptedStore(["dropped"] * 1_000)
    stager = open_parallel(objects, stage_topic(segment_rows="1"))
    with pytest.raises(StoreUnavailable):
        write_rows(stager, 20)
    objects.script = []
    for again in (lambda: stager.write(one_row(0)), stager.finish, stager.finish):
        with pytest.raises(StoreUnavailable):
            again()


def test_a_finished_stager_leaves_no_thread() -> None:
    stager = open_parallel(ScriptedStore(), stage_topic(segment_rows="1"))
    write_rows(stager, 5)
    stager.finish()
    until(lambda: not _stage_threads())


def until(condition: Callable[[], bool]) -> None:
    gives_up_at_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < gives_up_at_s
        time.sleep(0.01)


def _stage_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("sparktxn-test-stage")]


def test_finishing_twice_is_harmless_and_writing_after_it_is_not() -> None:
    stager = open_stager(ScriptedStore(), stage_topic(), default_topic="t")
    stager.write(pa.table({"value": ["a"]}))
    assert stager.finish() == stager.finish()
    with pytest.raises(RuntimeError, match="has finished"):
        stager.write(pa.table({"value": ["a"]}))


def test_what_crosses_processes_is_picklable() -> None:
    stager = open_stager(ScriptedStore(), stage_topic(), default_topic="t")
    stager.write(pa.table({"value": ["a"]}))
    staged = stager.finish()
    assert pickle.loads(pickle.dumps((staged, stage_topic()))) == (staged, stage_topic())
