"""A micro-batch's fingerprint is of its rows: the same however they are cut and ordered, another one for other rows."""

from __future__ import annotations

import hashlib
import math
import random
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktxn._engine.format.schema import check_schema
from sparktxn._rows.stage.batchcommits import fingerprint_of
from sparktxn._rows.stage.stagedsegment import StagedSegment, StageTopic
from sparktxn._rows.stage.stager import SegmentStager
from sparktxn.testing.clocks import ManualClock
from tests.seeds import examples
from tests.unit.stage.stores import CountingIds, ScriptedStore, stage_topic

NAN = math.nan
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1)

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_BYTES = st.binary(max_size=20) | st.sampled_from([bytes(count) for count in (1, 7, 8, 9, 16, 300)])
_FLOAT = st.sampled_from([NAN, 0.0, 1.0, math.inf, -math.inf]) | st.floats(width=32, allow_nan=False).map(
    lambda number: number + 0.0
)
_WHEN = st.integers(-(2**50), 2**50).map(lambda number: _EPOCH + number * _MICROSECOND)
_DECIMAL = st.integers(-(10**38) + 1, 10**38 - 1).map(lambda number: Decimal(f"{number}e-3"))
_POINT = st.fixed_dictionaries({"x": st.none() | st.integers(-3, 3), "y": st.none() | st.integers(-3, 3)})

TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), st.integers(-2, 2) | st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float32(), _FLOAT),
    "double": (pa.float64(), _FLOAT),
    "text": (pa.string(), _TEXT),
    "bytes": (pa.binary(), _BYTES),
    "day": (
        pa.date32(),
        st.integers(-700_000, 2_000_000).map(lambda days: date(1970, 1, 1) + timedelta(days % 90_000)),
    ),
    "instant": (pa.timestamp("us", tz="UTC"), _WHEN.map(lambda when: when.replace(tzinfo=UTC))),
    "local": (pa.timestamp("us"), _WHEN),
    "price": (pa.decimal128(38, 3), _DECIMAL),
    "list": (pa.list_(pa.string()), st.lists(st.none() | _TEXT, max_size=4)),
    "point": (pa.struct([("x", pa.int64()), ("y", pa.int64())]), _POINT),
    "map": (pa.map_(pa.string(), pa.int64()), st.dictionaries(_TEXT, st.none() | st.integers(-3, 3), max_size=3)),
    "deep": (pa.list_(pa.list_(pa.int64())), st.lists(st.lists(st.integers(0, 1), max_size=3), max_size=3)),
}

SCHEMA = pa.schema([pa.field(name, data_type) for name, (data_type, _) in TYPES.items()])
TYPED = replace(stage_topic(partition_count=3), schema=check_schema(SCHEMA))

Rows = list[dict[str, Any]]

row = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in TYPES.items()})
rows_of_all_types = st.lists(row, min_size=1, max_size=5)


def table_of(rows: Rows, schema: pa.Schema = SCHEMA) -> pa.Table:
    arrays = []
    for field in schema:
        found = [row.get(field.name) for row in rows]
        if pa.types.is_map(field.type):
            found = [None if value is None else list(value.items()) for value in found]
        arrays.append(pa.array(found, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def staged(
    tables: Sequence[pa.Table], topic: StageTopic = TYPED, *, now_s: float = 1_000.0, seed: int = 0, **options: Any
) -> list[StagedSegment]:
    stager = SegmentStager(
        ScriptedStore(),
        CountingIds(),
        3,
        {topic.name: topic},
        seed=seed,
        clock=ManualClock(now_s),
        default_topic=topic.name,
        **options,
    )
    for table in tables:
        stager.write(table)
    return stager.finish()


def fingerprint(rows: Rows | pa.Table, topic: StageTopic = TYPED, **options: Any) -> str:
    table = rows if isinstance(rows, pa.Table) else table_of(rows)
    return fingerprint_of(staged([table], topic, **options))


def with_garbage(table: pa.Table) -> pa.Table:
    """The same rows as slices of longer arrays whose values of text are encoded, and whose null slots hold values."""
    arrays = []
    for column in table.columns:
        array = pa.concat_arrays(column.chunks)
        longer = pa.concat_arrays([array, array, array])
        if pa.types.is_string(array.type):
            longer = longer.dictionary_encode()
        elif array.null_count and not pa.types.is_nested(array.type) and (values := array.drop_null()):
            full = longer.fill_null(values[0])
            validity = longer.buffers()[0]
            longer = pa.Array.from_buffers(array.type, len(full), [validity, *full.buffers()[1:]])
        arrays.append(longer.slice(len(array), len(array)))
    return pa.table(dict(zip(table.column_names, arrays, strict=True)))


@settings(max_examples=examples(20, 1_000))
@given(rows_of_all_types, st.randoms(use_true_random=False), st.lists(st.integers(0, 8), max_size=3), st.integers(1, 3))
def test_rows_cut_and_ordered_in_any_way_have_one_fingerprint(
    rows: Rows, chance: random.Random, cuts: list[int], tasks: int
) -> None:
    usual = fingerprint(rows)
    other = list(rows)
    chance.shuffle(other)
    table = with_garbage(table_of(other))
    assert table.cast(SCHEMA).to_pylist().__repr__() == table_of(other).to_pylist().__repr__()
    parts = [table.slice(start, end - start) for start, end in pairwise([0, *sorted(cuts), len(other)]) if end > start]
    found = []
    for task in range(tasks):
        found += staged(parts[task::tasks], seed=chance.randrange(9), now_s=task + 7.0)
    chance.shuffle(found)
    assert fingerprint_of(found) == usual


def is_equal(one: Any, other: Any) -> bool:
    return one == other or (one != one and other != other)


@settings(max_examples=examples(25, 3_000))
@given(rows_of_all_types, st.data())
def test_another_value_in_one_row_makes_another_fingerprint(rows: Rows, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(rows) - 1))
    name = data.draw(st.sampled_from(sorted(TYPES)))
    before = rows[place][name]
    changed = data.draw((st.none() | TYPES[name][1]).filter(lambda value: not is_equal(value, before)))
    other = [*rows[:place], {**rows[place], name: changed}, *rows[place + 1 :]]
    assert fingerprint(other) != fingerprint(rows)


def _kafka(**columns: list[Any]) -> pa.Table:
    types = {
        "timestamp": pa.timestamp("ms", tz="UTC"),
        "partition": pa.int32(),
        "key": pa.binary(),
        "value": pa.binary(),
    }
    return pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})


KAFKA = stage_topic(partition_count=3)

DIFFERENT: dict[str, tuple[pa.Table, pa.Table]] = {
    "other values of one size": (_kafka(value=[b"order-0001"]), _kafka(value=[b"order-7777"])),
    "two equal rows in place of two others": (_kafka(value=[b"a", b"a"]), _kafka(value=[b"b", b"b"])),
    "a value that another row has": (_kafka(value=[b"a", b"a", b"b"]), _kafka(value=[b"a", b"b", b"b"])),
    "values exchanged between rows": (
        _kafka(key=[b"1", b"2"], value=[b"a", b"b"]),
        _kafka(key=[b"1", b"2"], value=[b"b", b"a"]),
    ),
    "values exchanged between columns": (_kafka(key=[b"1"], value=[b"2"]), _kafka(key=[b"2"], value=[b"1"])),
    "bytes moved to the next row": (_kafka(value=[b"ab", b"c"]), _kafka(value=[b"a", b"bc"])),
    "bytes moved to another column": (_kafka(key=[b"ab"], value=[b"c"]), _kafka(key=[b"a"], value=[b"bc"])),
    "null for an empty value": (_kafka(value=[None, b"a"]), _kafka(value=[b"", b"a"])),
    "zeros at the end": (_kafka(value=[b"a", b"a\0"]), _kafka(value=[b"a\0", b"a\0"])),
    "another timestamp": (_kafka(value=[b"a"], timestamp=[1]), _kafka(value=[b"a"], timestamp=[2])),
    "a given timestamp": (_kafka(value=[b"a"], timestamp=[None]), _kafka(value=[b"a"], timestamp=[1_000_000])),
    "another given partition": (_kafka(value=[b"a"], partition=[0]), _kafka(value=[b"a"], partition=[1])),
    "a given partition": (_kafka(value=[b"a"]), _kafka(value=[b"a"], partition=[0])),
    "partitions exchanged": (
        _kafka(value=[b"a", b"b"], partition=[0, 1]),
        _kafka(value=[b"a", b"b"], partition=[1, 0]),
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_rows_that_are_told_apart(name: str) -> None:
    one, other = DIFFERENT[name]
    assert fingerprint(one, KAFKA) != fingerprint(other, KAFKA)


def test_equal_rows_of_another_topic_are_told_apart() -> None:
    other = replace(KAFKA, name="u", topic_id=8)
    both = {topic.name: topic for topic in (KAFKA, other)}

    def found(names: list[str]) -> str:
        stager = SegmentStager(ScriptedStore(), CountingIds(), 3, both, seed=0, clock=ManualClock(1))
        stager.write(pa.table({"topic": names, "value": [b"a", b"b"]}))
        return fingerprint_of(stager.finish())

    assert found([KAFKA.name, "u"]) != found(["u", KAFKA.name])


def test_a_repetition_may_differ_in_what_staging_adds() -> None:
    table = _kafka(value=[b"a", b"b", b"c"], timestamp=[None, 5, None], partition=[None, None, 2])
    assert fingerprint(table, KAFKA, now_s=1.0, seed=0) == fingerprint(table, KAFKA, now_s=99.0, seed=1)


def test_a_timestamp_that_the_log_does_not_keep_is_no_content() -> None:
    topic = stage_topic(message_timestamp_type="LogAppendTime")
    one, other = _kafka(value=[b"a"], timestamp=[1]), _kafka(value=[b"a"], timestamp=[2])
    assert fingerprint(one, topic) == fingerprint(other, topic)


@pytest.mark.parametrize("make", [pa.float32, pa.float64])
def test_one_zero_and_one_nan(make: Callable[[], pa.DataType]) -> None:
    topic = replace(KAFKA, schema=check_schema(pa.schema([("x", make())])))
    bits = {pa.float32(): (pa.int32(), 0x7FC00001), pa.float64(): (pa.int64(), 0x7FF8000000000001)}[make()]
    other_nan = pa.array([bits[1]], bits[0]).view(make())
    one = pa.table({"x": pa.array([0.0, NAN], make())})
    other = pa.table({"x": pa.concat_arrays([pa.array([-0.0], make()), other_nan])})
    assert fingerprint(one, topic) == fingerprint(other, topic)


def test_a_column_that_the_topic_has_got_since_is_no_content() -> None:
    older = replace(KAFKA, schema=check_schema(pa.schema([("n", pa.int64())])))
    newer = replace(KAFKA, schema=check_schema(pa.schema([("n", pa.int64()), ("m", pa.string())])))
    table = pa.table({"n": [1, 2]})
    assert fingerprint(table, older) == fingerprint(table, newer)


def test_a_typed_column_named_partition_is_content() -> None:
    topic = replace(KAFKA, schema=check_schema(pa.schema([("partition", pa.int64())])))
    assert fingerprint(pa.table({"partition": [1]}), topic) != fingerprint(pa.table({"partition": [2]}), topic)


_MASK = 2**64 - 1


def mixed(word: int) -> int:
    """SplitMix64's output for a state."""
    word = (word + 0x9E3779B97F4A7C15) & _MASK
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) & _MASK
    return word ^ word >> 31


def folded(words: Sequence[int]) -> int:
    scrambled = []
    for word in words:
        word = ((word ^ word >> 32) * 0xBF58476D1CE4E5B9) & _MASK
        scrambled.append(((word ^ word >> 32) * 0x94D049BB133111EB) & _MASK)
    weighed = sum(place * word for place, word in enumerate(scrambled))
    return (mixed(sum(scrambled) & _MASK) + weighed) & _MASK


def name_word(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def row_word(values: dict[str, tuple[Any, pa.DataType]]) -> int:
    found = [mixed(word(*value) + name_word(name) & _MASK) for name, value in values.items() if value[0] is not None]
    return sum(found) & _MASK


def word(value: Any, data_type: pa.DataType) -> int:
    """What PROTOCOL.md says of a value, value by value."""
    match value:
        case None:
            return 0x5851F42D4C957F2D
        case str():
            return word(value.encode(), data_type)
        case bytes():
            parts = [int.from_bytes(value[at : at + 8], "little") for at in range(0, len(value), 8)]
            return folded(parts) + len(value) & _MASK
        case float():
            usual = NAN if value != value else value + 0.0
            return int.from_bytes(struct.pack("<d", usual), "little")
        case Decimal():
            unscaled = int(Decimal(f"{value}e{data_type.scale}"))
            return folded([unscaled & _MASK, unscaled >> 64 & _MASK])
        case dict() if pa.types.is_struct(data_type):
            fields = [(str(place), field) for place, field in enumerate(data_type)]
            return row_word({place: (value[field.name], field.type) for place, field in fields})
        case dict():
            pair = pa.struct([("key", data_type.key_type), ("value", data_type.item_type)])
            return word([{"key": key, "value": item} for key, item in value.items()], pa.list_(pair))
        case list():
            return folded([word(item, data_type.value_type) for item in value])
        case _:
            return (
                pa.scalar(value, data_type).cast(pa.int64()).as_py() & _MASK
                if not isinstance(value, date | datetime)
                else pa.scalar(value, data_type).value & _MASK
            )


def digest(rows: Rows, topic: str, schema: pa.Schema) -> str:
    words = [row_word({field.name: (row[field.name], field.type) for field in schema}) for row in rows]
    words = [found + name_word(topic) & _MASK for found in words]
    return "".join(f"{sum(mixed(found ^ key) for found in words) & _MASK:016x}" for key in (0, 0x5851F42D4C957F2D))


@settings(max_examples=examples(10, 1_000))
@given(rows_of_all_types)
def test_the_digest_is_what_the_protocol_says(rows: Rows) -> None:
    assert fingerprint(rows).split(":")[1:] == ["rows1", digest(rows, TYPED.name, SCHEMA)]


def test_digests_recorded_by_earlier_processes_stay() -> None:
    """The arithmetic is part of the format: another result needs another kind."""
    rows = {
        "bool": True,
        "int8": -1,
        "int32": 7,
        "int64": 2**40,
        "float": 1.5,
        "double": NAN,
        "text": "grüße",
        "bytes": b"\0" * 9,
        "day": date(2024, 2, 29),
        "instant": datetime(2024, 1, 1, tzinfo=UTC),
        "local": datetime(1969, 1, 1),
        "price": Decimal("-1.250"),
        "list": ["a", None, ""],
        "point": {"x": None, "y": 2},
        "map": {"k": 1},
        "deep": [[], [0, 1]],
    }
    assert fingerprint([rows, {}, {}]).partition(":")[2] == "rows1:806f1035c23dfae4f0e58835f534c87e"
    assert (
        fingerprint(_kafka(key=[b"k", None], value=[b"v" * 20, b""]), KAFKA).partition(":")[2]
        == "rows1:34c05a239ef894ee3ef250d92073f9e4"
    )


def test_values_of_any_length_are_hashed_in_blocks() -> None:
    """More words than are mixed at a time, in one value and in many; lists too."""
    values = [b"%d" % number * length for length in (0, 1, 40, 100_000) for number in range(10)]
    table = pa.table({"bytes": values, "list": [[str(number)] * (number * 40) for number in range(len(values))]})
    one_by_one = [segment for place in range(len(values)) for segment in staged([table.slice(place, 1)])]
    assert fingerprint_of(one_by_one) == fingerprint(table)


def test_segments_without_their_digest_are_compared_by_size() -> None:
    one, other = [staged([_kafka(value=[value])], KAFKA) for value in (b"order-0001", b"order-7777")]
    sizes = fingerprint_of(staged([_kafka(value=[b"order-0001"])], KAFKA, digests=False))
    assert ":" not in sizes
    assert {fingerprint_of(found).partition(":")[0] for found in (one, other)} == {sizes}
    assert fingerprint_of([one[0], replace(one[0], digest=None)]).count(":") == 0
