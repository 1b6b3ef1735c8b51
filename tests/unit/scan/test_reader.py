from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from sparktxn._engine.format import decodeguard, names
from sparktxn._engine.format.segment import checksum, encode_segment
from sparktxn._foundation.values.structs import AbortedTransaction
from sparktxn._rows.scan.plan import ReadTask, plan_ranges
from sparktxn._rows.scan.reader import output_schema, read
from sparktxn.errors import ConfigurationError, DamagedObject, ViewExpired
from tests.each import each
from tests.unit.scan.log_builder import CountingStore, PartitionLog, memory_store, read_view

TYPED = (("id", "int64", False),)
LOG_APPEND = {"message.timestamp.type": "LogAppendTime"}


def plan(log: PartitionLog, start: int = 0, end: int = 10**9, **options: Any) -> list[ReadTask]:
    return plan_ranges(log.objects, log.objects.uri, read_view(log.view()), {("orders", 0): (start, end)}, **options)


def read_all(log: PartitionLog, start: int = 0, end: int = 10**9, **options: Any) -> pa.Table:
    columns = options.get("columns")
    batches = [batch for task in plan(log, start, end, **options) for batch in read(log.objects, task)]
    return pa.Table.from_batches(batches, schema=output_schema(log.topic.schema, columns))


def offsets_of(log: PartitionLog, start: int = 0, end: int = 10**9, **options: Any) -> list[int]:
    return list(read_all(log, start, end, **options)["offset"].to_pylist())


# The producer of each record of the articles' example, a fetch of offsets 100 to 115.
PRODUCERS = {101: 10, 102: 10, 103: 11, 104: 12, 106: 11, 107: 12, 108: 12, 110: 11, 111: 12, 112: 11, 115: 10}


@pytest.mark.kafka("K86")
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(
    ("aborted", "filtered"),
    [
        ([], set()),
        ([(10, 101, 115)], {101, 102, 115}),
        ([(11, 110, 112)], {110, 112}),
        (
            [(12, 104, 111), (11, 103, 106), (10, 101, 115)],
            {101, 102, 103, 104, 106, 107, 108, 111, 115},
        ),
    ],
    ids=["none", "one producer", "a range only", "three producers"],
)
def test_the_worked_example_of_read_committed_filtering(
    aborted: list[tuple[int, int, int]], filtered: set[int], sealed: bool
) -> None:
    log = PartitionLog(memory_store())
    log.append(100, 13)
    for offset in range(100, 116):
        log.append(1, PRODUCERS.get(offset, 13), transaction=1 if offset in PRODUCERS else -1)
    log.aborted = [AbortedTransaction(*one, one[2] + 1) for one in sorted(aborted, key=lambda one: one[2])]
    if sealed:
        log.seal()
    valid = [offset for offset in range(100, 116) if offset not in filtered]
    assert offsets_of(log, 100, 116) == valid
    values = read_all(log, 100, 116)["value"].to_pylist()
    assert values == [b"v%d" % offset for offset in valid]
    assert offsets_of(log, 100, 116, isolation="read_uncommitted") == list(range(100, 116))


@pytest.mark.parametrize("segment_format", ["parquet", "arrow"])
def test_every_column_of_kafkas_record(segment_format: str) -> None:
    log = PartitionLog(memory_store(), segment_format=segment_format)
    log.append(3)
    log.control()
    log.append(2)
    table = read_all(log, 1, 5)
    assert table.schema == output_schema(None)
    assert table.schema.names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    rows = table.set_column(5, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()
    assert rows == [
        {
            "key": b"k%d" % offset,
            "value": b"v%d" % offset,
            "topic": "orders",
            "partition": 0,
            "offset": offset,
            "timestamp": 1000 + offset,
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"%d" % offset}],
        }
        for offset in (1, 2, 4)
    ]


def test_every_column_of_a_typed_topic() -> None:
    log = PartitionLog(memory_store(), schema=TYPED)
    log.append(2)
    table = read_all(log)
    assert table.schema == output_schema(TYPED)
    assert table.schema.names == ["id", "_topic", "_partition", "_offset", "_timestamp"]
    assert table.drop_columns("_timestamp").to_pylist() == [
        {"id": offset, "_topic": "orders", "_partition": 0, "_offset": offset} for offset in (0, 1)
    ]
    assert table["_timestamp"].cast(pa.int64()).to_pylist() == [1000, 1001]


@pytest.mark.parametrize(("schema", "column"), [(None, "timestamp"), (TYPED, "_timestamp")])
def test_log_append_time_is_the_entrys(schema: Any, column: str) -> None:
    log = PartitionLog(memory_store(), schema=schema, settings=LOG_APPEND)
    log.append(2, timestamp_max_ms=5000)
    log.append(1, timestamp_max_ms=6000)
    table = read_all(log)
    assert table[column].cast(pa.int64()).to_pylist() == [5000, 5000, 6000]
    if schema is None:
        assert table["timestampType"].to_pylist() == [1, 1, 1]


@each([["offset", "value"], ["value", "offset"], ["timestamp"], ["partition"]])
def test_only_the_columns_asked_for_in_that_order(columns: list[str]) -> None:
    log = PartitionLog(memory_store())
    log.append(4)
    assert read_all(log, columns=columns).equals(read_all(log).select(columns))


@pytest.mark.parametrize("columns", [(), ("offset",), ("partition", "topic", "timestampType")])
def test_what_segments_do_not_store_needs_no_fetch(columns: tuple[str, ...]) -> None:
    objects = CountingStore()
    log = PartitionLog(objects)
    log.append(4, 5)
    log.append(4, 6)
    log.aborted = [AbortedTransaction(5, 1, 2, 3)]
    (task,) = plan(log, 0, 7, columns=columns)
    assert sum(batch.num_rows for batch in read(objects, task)) == 5
    assert objects.asked == []


def test_a_segment_of_an_aborted_transaction_is_not_fetched() -> None:
    objects = CountingStore()
    log = PartitionLog(objects)
    log.append(2, 5)
    dropped = log.append(2, 6, transaction=1)
    log.abort(6, 2)
    log.append(2, 5)
    assert offsets_of(log, columns=["value", "offset"]) == [0, 1, 5, 6]
    assert log.name(dropped) not in objects.asked
    # Also where another process made the task.
    (task,) = plan(log, columns=["value", "offset"], isolation="read_uncommitted")
    batches = read(objects, replace(task, aborted=tuple(log.aborted)))
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == [0, 1, 5, 6]


@pytest.mark.kafka("K86")
@pytest.mark.parametrize(
    ("aborted", "kept"),
    [
        ([(0, 3)], [4, 5, 6, 7, 8, 9]),
        ([(6, 20)], [0, 1, 2, 3, 4, 5]),
        ([(2, 3), (5, 5), (8, 9)], [0, 1, 4, 6, 7]),
        ([(0, 9)], []),
        ([(0, 4), (5, 9)], []),
        ([(10, 20)], list(range(10))),
    ],
)
@pytest.mark.parametrize("batch_rows", [None, 1, 3])
def test_a_part_of_a_segment_can_be_aborted(
    aborted: list[tuple[int, int]], kept: list[int], batch_rows: int | None
) -> None:
    log = PartitionLog(memory_store())
    log.append(10, 5)
    log.aborted = [AbortedTransaction(5, first, last, last + 1) for first, last in aborted]
    log.aborted += [AbortedTransaction(6, 0, 30, 31)]
    batches = [batch for task in plan(log) for batch in read(log.objects, task, batch_rows=batch_rows)]
    found = [(row["offset"], row["value"]) for batch in batches for row in batch.to_pylist()]
    assert found == [(offset, b"v%d" % offset) for offset in kept]
    assert all(batch.num_rows <= (batch_rows or 10) for batch in batches)


@pytest.mark.parametrize("rows_per_task", [None, 1, 7])
@pytest.mark.parametrize(("start", "end"), [(0, 50), (3, 4), (9, 12), (17, 44), (10, 11)])
def test_ranges_are_cut_at_their_offsets(start: int, end: int, rows_per_task: int | None) -> None:
    log = PartitionLog(memory_store())
    controls = []
    for rows in (5, 5, 3, 9, 20):
        log.append(rows)
        controls.append(log.control())
    expected = [offset for offset in range(start, min(end, log.end)) if offset not in controls]
    assert offsets_of(log, start, end, rows_per_task=rows_per_task) == expected


def test_many_segments_come_in_order() -> None:
    log = PartitionLog(memory_store())
    for _ in range(150):
        log.append(2)
    assert read_all(log)["value"].to_pylist() == [b"v%d" % offset for offset in range(300)]


def test_the_first_batch_costs_one_segment() -> None:
    objects = CountingStore()
    log = PartitionLog(objects)
    for _ in range(20):
        log.append(2)
    batches = read(objects, plan(log)[0])
    assert objects.asked == []
    next(batches)
    assert objects.asked == [log.name(log.segments[0])]


def flip_a_bit(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 4]) + data[-8:]


@each(
    [
        (flip_a_bit, "checksum"),
        (lambda data: data[:-1], "bytes, expected"),
        (lambda data: data + b"\0", "bytes, expected"),
        (lambda data: b"\0" * len(data), "checksum"),
        (None, "missing"),
    ]
)
def test_a_damaged_segment_is_named_and_the_rows_before_it_are_read(
    damage: Callable[[bytes], bytes] | None, reason: str
) -> None:
    log = PartitionLog(memory_store())
    log.append(3)
    bad = log.name(log.append(3))
    log.append(3)
    data = log.objects.get(bad)
    assert data is not None
    log.objects.delete([bad])
    if damage is not None:
        log.objects.put(bad, damage(data))
    batches = read(log.objects, plan(log)[0])
    assert next(batches).num_rows == 3
    with pytest.raises(DamagedObject, match=reason) as caught:
        next(batches)
    assert caught.value.object_name == bad
    assert offsets_of(log, 6) == [6, 7, 8]


def test_a_segment_with_another_number_of_rows_is_damaged() -> None:
    log = PartitionLog(memory_store())
    segment = log.append(3)
    other = encode_segment(log._table(2, [1, 2]), segment_format="parquet", compression="zstd")
    log.objects.put(log.name(segment), other)
    log.segments[0] = replace(segment, size_bytes=len(other), checksum=checksum(other))
    with pytest.raises(DamagedObject, match="2 records"):
        read_all(log)


def test_checksums_are_skipped_only_when_asked() -> None:
    log = PartitionLog(memory_store())
    log.segments[0:] = [replace(log.append(3), checksum="00000000")]
    (task,) = plan(log)
    with pytest.raises(DamagedObject, match="expected 00000000"):
        next(read(log.objects, task))
    assert next(read(log.objects, task, check_checksums=False)).num_rows == 3


@pytest.mark.parametrize("check_checksums", [True, False])
def test_files_that_expand_are_guarded_against_where_no_checksum_is_compared(
    check_checksums: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = PartitionLog(memory_store())
    log.append(3)
    (task,) = plan(log)
    monkeypatch.setattr(decodeguard, "DECODED_BYTES_MAX", 1)
    if check_checksums:
        assert next(read(log.objects, task)).num_rows == 3
    else:
        with pytest.raises(DamagedObject, match="decodes to over"):
            next(read(log.objects, task, check_checksums=False))


def test_a_segment_that_the_vacuum_took_is_an_expired_view() -> None:
    log = PartitionLog(memory_store())
    log.objects.delete([log.name(log.append(3))])
    log.objects.put(names.horizon(log.entry + 1), b"horizon")
    with pytest.raises(ViewExpired, match="open a newer view"):
        read_all(log)


@each(
    [
        (None, ["valeu"], "did you mean 'value'"),
        (None, ["_offset"], "did you mean 'offset'"),
        (TYPED, ["timestampType"], "the topic has id, _topic"),
        (None, ["key", "key"], "twice"),
    ]
)
def test_wrong_columns_are_errors(schema: Any, columns: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        output_schema(schema, columns)


def test_a_column_that_the_topic_gained_later_reads_as_null() -> None:
    log = PartitionLog(memory_store(), schema=TYPED)
    log.append(2)
    log.topic = replace(log.topic, schema=(*TYPED, ("note", "string", True)))
    assert read_all(log, columns=["note", "id"]).to_pylist() == [{"note": None, "id": 0}, {"note": None, "id": 1}]
