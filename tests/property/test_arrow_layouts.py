"""Every layout and width of Arrow's that means a declared type: its values come back, or it is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from sparktxn import ConfigurationError, Producer, Store, read_arrow
from sparktxn._engine.format.schema import parse_type
from sparktxn._rows.stage.columnconversion import plain_array, plain_type
from sparktxn.transfer import import_files
from tests.everytype import EVERY_TYPE, FULL_ROW
from tests.seeds import examples, seed_of
from tests.world import next_number

OTHER_VALUES: dict[str, Any] = {
    "bool": [False], "int8": [0, 127], "int16": [0], "int32": [0, 7], "int64": [0, -(2**63)], "float": [-0.0],
    "double": [0.1],
    "string": ["", "b", "ü☃"], "binary": [b"", b"\x00"], "list<int64 not null>": [[], [2**62]],
    "list<int8>": [[], [None]], "map<string, double>": [[], [("ü", -0.5)]],
}  # fmt: skip


def column(name: str, kind: str, random: Random) -> pa.Array:
    """Some rows of a type: repeated, so that runs and dictionaries matter."""
    known = [FULL_ROW[name], *OTHER_VALUES.get(kind, []), None]
    values = [one for _ in range(random.randint(0, 4)) for one in [random.choice(known)] * random.randint(1, 3)]
    return pa.array(values, parse_type(kind))


def relaid(array: pa.Array, random: Random, depth: int = 0) -> pa.Array:
    """Return the same values in another layout, chosen at random at every depth."""
    kind, types = array.type, pa.types
    mask = array.is_null() if array.null_count else None
    if types.is_list(kind):
        items = relaid(array.flatten(), random, depth + 1)
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        ends = pc.cumulative_sum(lengths.cast(pa.int64()))
        starts = pc.subtract(ends, lengths.cast(pa.int64()))
        if random.random() < 0.4:
            small = random.random() < 0.5
            width = pa.int32() if small else pa.int64()
            views = pa.ListViewArray if small else pa.LargeListViewArray
            array = views.from_arrays(starts.cast(width), lengths.cast(width), items, mask=mask)
        else:
            offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
            array = pa.LargeListArray.from_arrays(offsets, items, mask=mask)
    elif types.is_struct(kind):
        parts = [relaid(part, random, depth + 1) for part in array.flatten()]
        array = pa.StructArray.from_arrays(parts, names=[field.name for field in kind], mask=mask)
    elif types.is_map(kind):
        first = array.offsets[0].as_py()
        parts = [part.slice(first, array.offsets[-1].as_py() - first) for part in (array.keys, array.items)]
        offsets = pc.subtract(array.offsets, pa.scalar(first, pa.int32()))
        array = pa.MapArray.from_arrays(offsets, parts[0], relaid(parts[1], random, depth + 1), mask=mask)
    elif types.is_string(kind):
        array = array.cast(random.choice([pa.string(), pa.large_string(), pa.string_view()]))
    elif types.is_binary(kind):
        array = array.cast(random.choice([pa.binary(), pa.large_binary(), pa.binary_view()]))
    if types.is_nested(array.type):
        return array
    wrapping = random.choice(["none", "dictionary", "runs", "runs of a dictionary"])
    if "dictionary" in wrapping:
        index = random.choice([pa.int8(), pa.uint8(), pa.int16(), pa.uint32(), pa.int64()])
        places = pa.array(
            [None if not one.is_valid and random.random() < 0.5 else at for at, one in enumerate(array)], index
        )
        array = pa.DictionaryArray.from_arrays(places, array)
    if "runs" in wrapping:
        ends = pa.array(range(1, len(array) + 1), random.choice([pa.int16(), pa.int32(), pa.int64()]))
        array = pa.RunEndEncodedArray.from_arrays(ends, array)
    return array


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(f"memory://layouts-{next_number()}", create=True) as opened:
        yield opened


def written(store: Store, schema: pa.Schema, write: Callable[[str], object]) -> list[Any]:
    topic = f"t{next_number()}"
    store.create_topic(topic, 1, schema=schema)
    write(topic)
    return read_arrow(store, topic, columns=schema.names).read_all().column(0).to_pylist()


def produce(store: Store, topic: str, rows: Any) -> None:
    with Producer({"bootstrap.servers": store.uri}) as producer:
        producer.produce_arrow(topic, rows)


@pytest.mark.parametrize("seed", range(examples(20, 400)))
def test_every_layout_gives_its_values(store: Store, tmp_path: Path, seed: int) -> None:
    random = Random(seed_of(f"layouts {seed}", seed))
    for name, kind, _ in EVERY_TYPE:
        expected = column(name, kind, random)
        chunks = [relaid(part, random) for part in (expected[:2], expected[2:])]
        given = chunks[0] if random.random() < 0.5 else chunks[1]
        rows = expected[:2] if given is chunks[0] else expected[2:]
        start = random.randint(0, len(rows))
        plain = plain_array(given[start:])
        plain.validate(full=True)
        assert plain.type.equals(plain_type(given.type))
        assert plain.to_pylist() == rows[start:].to_pylist(), (kind, given.type)
        schema, table = pa.schema([(name, parse_type(kind))]), pa.table({name: given})
        assert written(store, schema, partial(produce, store, rows=table)) == rows.to_pylist(), given.type
        file = tmp_path / f"{name}.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        got = written(store, schema, partial(import_files, store, files=[file]))
        assert got == rows.to_pylist(), given.type
        file = file.with_suffix(".parquet")
        try:
            pq.write_table(table, file)
        except (pa.ArrowException, TypeError):
            continue  # Arrow has no way to write run ends and views of lists to Parquet
        got = written(store, schema, partial(import_files, store, files=[file]))
        assert got == rows.to_pylist(), given.type


TEXTS = ["a", None, "b", "a"]
FRAMES = {
    "categorical": lambda: pl.Series("v", TEXTS, pl.Categorical),
    "enum": lambda: pl.Series("v", TEXTS, pl.Enum(["a", "b"])),
    "string": lambda: pl.Series("v", TEXTS),
    "list of categorical": lambda: pl.Series("v", [["a", None], None, [], ["b"]], pl.List(pl.Categorical)),
    "struct of enum": lambda: pl.Series("v", [{"e": "a"}, None, {"e": None}], pl.Struct({"e": pl.Enum(["a"])})),
    "array": lambda: pl.Series("v", [[1, 2], None, [3, 4]], pl.Array(pl.Int64, 2)),
    "decimal": lambda: pl.Series("v", ["1.50", None], pl.String).cast(pl.Decimal(10, 2)),
    "null": lambda: pl.Series("v", [None, None], pl.Null),
}
DECLARED = {"list of categorical": "list<string>", "struct of enum": "struct<e: string>", "array": "list<int64>",
            "decimal": "decimal128(38, 2)"}  # fmt: skip


@pytest.mark.parametrize("what", FRAMES)
def test_frames_of_polars_and_their_files(store: Store, tmp_path: Path, what: str) -> None:
    frame = FRAMES[what]().to_frame()
    expected = frame["v"].to_list()
    schema = pa.schema([("v", parse_type(DECLARED.get(what, "string")))])
    assert written(store, schema, lambda topic: produce(store, topic, frame)) == expected
    assert (
        written(store, schema, lambda topic: produce(store, topic, pl.concat([frame, frame], rechunk=False)))
        == expected * 2
    )
    ways = ((".arrow", frame.write_ipc), (".arrows", frame.write_ipc_stream), (".parquet", frame.write_parquet))
    for end, write in ways:
        file = tmp_path / f"frame{end}"
        write(file)
        assert written(store, schema, partial(import_files, store, files=[file])) == expected


def test_categories_of_pandas_and_enums_of_duckdb(store: Store) -> None:
    schema = pa.schema([("v", pa.string())])
    frame = pl.Series("v", TEXTS).to_frame().to_pandas().astype({"v": "category"})
    assert written(store, schema, lambda topic: produce(store, topic, frame)) == TEXTS
    rows = duckdb.sql("select unnest(['a', null, 'b', 'a']::enum('a', 'b')[]) v")
    assert written(store, schema, lambda topic: produce(store, topic, rows)) == TEXTS


def test_records_of_kafka_take_every_layout_of_text_and_bytes(store: Store) -> None:
    store.create_topic("records", 2)
    keys = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.uint8()), pa.array(["a", "b"], pa.string_view()))
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([b"x", None], pa.binary_view()))
    places = pa.RunEndEncodedArray.from_arrays(pa.array([3], pa.int32()), pa.array([1], pa.int32()))
    produce(store, "records", pa.table({"key": keys, "value": runs, "partition": places}))
    found = read_arrow(store, "records", columns=["key", "value", "partition"]).read_all().to_pylist()
    assert [(row["key"], row["value"], row["partition"]) for row in found] == [
        (b"a", b"x", 1),
        (None, b"x", 1),
        (b"b", None, 1),
    ]


REFUSED = [
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"\0" * 16], pa.binary(16))),
    pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8())),
    pa.array([1], pa.uint64()),
    pa.array([1], pa.duration("s")),
    pa.array([1], pa.time32("s")),
    pa.array([1.5], pa.float64()),
    pa.array([1], pa.date64()),
    pa.array(["1"]).dictionary_encode(),
    pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array([1], pa.uint64())),
]


@pytest.mark.parametrize("given", REFUSED, ids=lambda given: str(given.type)[:40])
def test_what_means_another_type_is_refused_by_name(store: Store, given: pa.Array) -> None:
    store.create_topic("numbers", 1, schema=pa.schema([("v", pa.int64())]))
    with pytest.raises(ConfigurationError, match=r"column 'v' of topic 'numbers' has type .*: expected int64; cast it"):
        produce(store, "numbers", pa.table({"v": given}))


@pytest.mark.parametrize(
    "width", [pa.decimal32(5, 2), pa.decimal64(5, 2), pa.decimal128(5, 2), pa.decimal256(5, 2)], ids=str
)
def test_decimals_of_every_width_are_those_of_the_topic(store: Store, width: pa.DataType) -> None:
    values = [Decimal("-999.99"), None, Decimal("0.01")]
    schema = pa.schema([("v", pa.decimal128(20, 3))])
    table = pa.table({"v": pa.array(values, width)})
    assert written(store, schema, lambda topic: produce(store, topic, table)) == values
