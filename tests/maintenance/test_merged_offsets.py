"""The column of offsets in files that a rewrite has made, and what is wrong with one that is not so."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparktxn import Producer, ReadTask, Store, TopicPartition, read_arrow, to_duckdb, to_polars
from sparktxn._engine.format import names
from sparktxn._engine.format.schema import with_offsets
from sparktxn._engine.format.segment import checksum, encode_segment, stored_schema
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.process.clock import SystemClock
from sparktxn._foundation.values.structs import SegmentRef
from sparktxn._rows.stage import segmentwriter
from sparktxn.admin import AdminClient
from sparktxn.maintenance import compact, rewrite, verify
from sparktxn.maintenance.checking.segmentcheck import SegmentsToCheck, check_segments, stored_segment
from sparktxn.store import read_task
from tests.world import World, next_number


@pytest.fixture
def world() -> Iterator[World]:
    made = World({"t": 1})
    yield made
    made.close()


def merged_file(world: World, topic: str) -> pq.ParquetFile:
    objects = world.store.log.objects
    (name,) = (info.name for info in objects.list(names.TOPICS) if names.has_offsets(info.name))
    assert f"/{topic}-" in name
    return pq.ParquetFile(pa.BufferReader(objects.get(name)))


def test_it_says_the_offset_of_each_row(world: World) -> None:
    world.produce("0", "1", "2")
    with world.transactional().transaction():
        pass
    with (producer := world.transactional("shop")).transaction():
        producer.produce("t", b"3")
    world.produce("5")
    expected = [row["offset"] for row in world.rows("t")]
    assert expected == [0, 1, 2, 3, 5]
    rewrite(world.store, {"rewrite.min.segments": 2})
    file = merged_file(world, "t")
    assert file.read(columns=["offset"]).column(0).to_pylist() == expected
    assert not file.schema_arrow.field("offset").nullable
    column = file.metadata.row_group(0).column(file.metadata.num_columns - 1)
    assert column.path_in_schema == "offset"
    assert "DELTA_BINARY_PACKED" in column.encodings
    assert (column.statistics.min, column.statistics.max) == (0, 5)
    assert column.has_column_index
    assert [row["offset"] for row in world.rows("t")] == expected
    assert verify(world.store).problems == ()


def test_a_typed_topic_may_have_a_column_of_that_name(world: World) -> None:
    world.store.create_topic("typed", 1, schema=pa.schema([("offset", pa.int64())]))
    for number in range(3):
        stager = world.store.stage_plan(["typed"]).open(seed=number, default_topic="typed")
        stager.write(pa.record_batch({"offset": [10 * number]}))
        world.store.commit(stager.finish())
    before = world.rows("typed")
    assert [(row["offset"], row["_offset"]) for row in before] == [(0, 0), (10, 2), (20, 4)]
    rewrite(world.store, {"rewrite.min.segments": 2})
    found = merged_file(world, "typed").read(columns=["offset", "_offset"]).to_pylist()
    assert found == [{"offset": row["offset"], "_offset": row["_offset"]} for row in before]
    assert world.rows("typed") == before


@pytest.mark.parametrize(
    ("offsets", "is_sound"), [([3, 4], True), ([4, 3], False), ([3, 5], False), ([2, 3], False), ([3, 3], False)]
)
def test_verifying_compares_it_with_the_log(offsets: Sequence[int], is_sound: bool) -> None:
    schema = with_offsets(stored_schema(None))
    record = {"value": b"x", "timestamp": 1}
    rows = pa.Table.from_pylist([record | {"offset": offset} for offset in offsets], schema)
    data = encode_segment(rows, segment_format="parquet", compression="zstd")
    objects = MemoryStore(f"offsets-{next_number()}", SystemClock())
    file = names.merged_segment_file(1, "0" * 20)
    name = names.segment("t", 1, 0, file)
    objects.put_if_absent(name, data)
    segment = SegmentRef(file, 3, 2, len(data), checksum(data), 2, -1, -1, -1, -1, 1, 1, 2)
    task = SegmentsToCheck(objects.uri, None, (stored_segment(name.removesuffix(file), segment),))
    problems = check_segments(objects, task).problems
    assert ["offsets do not grow" in each.problem for each in problems] == ([] if is_sound else [True])


def test_verifying_misses_it_where_the_name_has_it() -> None:
    rows = pa.Table.from_pylist([{"value": b"x", "timestamp": 1}], stored_schema(None))
    data = encode_segment(rows, segment_format="parquet", compression="zstd")
    objects = MemoryStore(f"offsets-{next_number()}", SystemClock())
    file = names.merged_segment_file(1, "0" * 20)
    name = names.segment("t", 1, 0, file)
    objects.put_if_absent(name, data)
    segment = SegmentRef(file, 3, 1, len(data), checksum(data), 2, -1, -1, -1, -1, 1, 1, 2)
    task = SegmentsToCheck(objects.uri, None, (stored_segment(name.removesuffix(file), segment),))
    (problem,) = check_segments(objects, task).problems
    assert "offset" in problem.problem


@pytest.fixture
def row_groups(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, list[str]]]:
    """Files that are merged from now on have row groups of four rows. Which are read then, with their columns."""
    monkeypatch.setattr(segmentwriter, "ROW_GROUP_ROWS", 4)
    read: list[tuple[int, list[str]]] = []
    read_row_group = pq.ParquetFile.read_row_group

    def counted(file: pq.ParquetFile, group: int, columns: list[str], **options: Any) -> pa.Table:
        read.append((group, columns))
        return read_row_group(file, group, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    return read


ROWS = (4, 1, 4, 4, 3)
"""Rows of the row groups: a block of 1 and one of 4 segments are one piece, and one of 11 segments is another."""
KEYS = [f"{group}{number}" for group, count in enumerate(ROWS) for number in range(count)]


@pytest.mark.parametrize("transactions", [False, True])
def test_conditions_skip_row_groups_of_a_merged_file(
    world: World, row_groups: list[tuple[int, list[str]]], transactions: bool
) -> None:
    """By their statistics, or by their columns of the conditions; the rows are those of the same read before."""
    producer = world.transactional() if transactions else world.producer()
    for key in KEYS:
        with producer.transaction() if transactions else nullcontext():
            producer.produce("t", b"v" + key.encode(), key.encode(), partition=0)
        producer.flush()
    asked = [("key", ">=", b"20"), ("key", "!=", b"30"), ("key", "<", b"31")]
    before = read_arrow(world.store, "t", where=asked).read_all()
    rewrite(world.store, {"rewrite.min.segments": 2})
    metadata = merged_file(world, "t").metadata
    assert tuple(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)) == ROWS
    row_groups.clear()
    assert read_arrow(world.store, "t", where=asked).read_all() == before
    assert before.column("value").to_pylist() == [b"v20", b"v21", b"v22", b"v23"]
    # Of row group 3 the statistics do not say that it has no such key: its keys do.
    assert [(group, len(columns) > 1) for group, columns in row_groups] == [(2, False), (3, False), (2, True)]


def test_bounds_skip_row_groups_of_a_merged_file_with_gaps(
    world: World, row_groups: list[tuple[int, list[str]]]
) -> None:
    """Only its column of offsets is read as a whole."""
    world.store.create_topic("compacted", 1, settings={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    for number in range(32):
        world.produce(f"{number}", topic="compacted", key=f"{number if number % 2 else 0}")
    compact(world.store, {})
    assert merged_file(world, "compacted").num_row_groups > 3
    view = world.store.view(["compacted"])
    whole = world.rows("compacted")
    for bounds in ((0, 32), (9, 20), (10, 12), (31, 32), (1, 2)):
        row_groups.clear()
        tasks = world.store.plan(view, {("compacted", 0): bounds})
        batches = [batch for task in tasks for batch in read_task(task, world.store.options)]
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert rows == [row for row in whole if bounds[0] <= row["offset"] < bounds[1]]
        assert rows
        groups = {group for group, columns in row_groups if columns != ["offset"]}
        places = [place for place, row in enumerate(whole) if bounds[0] <= row["offset"] < bounds[1]]
        assert groups == {place // 4 for place in places}


def test_other_engines_find_the_offsets_of_all_files(world: World) -> None:
    """A file says them, or the list of files says where they begin."""
    world.produce(*"abc")
    world.produce(*"def")
    rewrite(world.store, {"rewrite.min.segments": 2})
    stager = world.store.stage_plan(["t"]).open(seed=1, default_topic="t")
    stager.write(pa.record_batch({"value": pa.array([b"g", b"h"])}))
    world.store.commit(stager.finish())
    found, scanned = [], []
    for file in world.store.files("t"):
        assert file.is_whole
        data = pa.BufferReader(world.store.log.objects.get(file.path.removeprefix(f"{world.uri}/")))
        rows = pq.read_table(data)
        base = pa.array(range(file.base_offset, file.base_offset + rows.num_rows))
        found += (rows.column(file.offset_column) if file.offset_column else base).to_pylist()
        scanned.append(file.offset_column)
    assert scanned == ["offset", None]
    assert found == [row["offset"] for row in world.rows("t")] == list(range(8))


def in_transactions(world: World, topic: str = "t", count: int = 6) -> None:
    """Write records with a gap after each, and merge them."""
    for number in range(count):
        with (producer := world.transactional(f"shop-{number}")).transaction():
            producer.produce(topic, b"%d" % number, b"k%d" % number)
    rewrite(world.store, {"rewrite.min.segments": 2})


def segments_of(tasks: Sequence[ReadTask]) -> list[SegmentRef]:
    return [segment for task in tasks for segment in task.segments]


def test_a_plan_names_a_merged_file_once(world: World) -> None:
    in_transactions(world)
    view = world.store.view(["t"])
    named = segments_of(world.store.plan_view(view, by_segment=True))
    (part,) = segments_of(world.store.plan_view(view))
    assert len(named) == 6
    assert (part.name, part.base_offset, part.end_offset) == (named[0].name, 0, named[-1].end_offset)
    assert (part.row_count, part.has_gaps, part.producer_id, part.transaction) == (6, True, -1, -1)
    assert pickle.loads(pickle.dumps(part)) == part
    cut = world.store.plan(view, {("t", 0): (3, 8)})
    assert len(segments_of(cut)) == 1
    assert [*cut[0].kept_offsets(partial(read_task, options=world.store.options))] == [(4, 5), (6, 7)]


_FIRST_PLAN = """
import sys
from sparktxn import Store
from sparktxn._engine.log.keep import sealedruns as runs

runs.decode_manifest = None  # no segment is made
with Store.open(sys.argv[1]) as store:
    view = store.view(["t"])
    print(*(len(task.segments) for task in store.plan(view, store.ranges(view))), "pandas" in sys.modules)
"""


def test_the_first_plan_of_a_process_costs_little(tmp_path: Path) -> None:
    """It makes no value for each segment, and pyarrow no import of pandas, which takes 0.2 s of a processor."""
    uri = str(tmp_path / "store")
    with Store.open(uri, create=True, options={"store.fsync": "false"}) as store:
        store.create_topic("t", 1)
        with Producer({"bootstrap.servers": uri, "transactional.id": "shop"}) as producer:
            producer.init_transactions()
            for number in range(6):
                with producer.transaction():
                    producer.produce("t", b"%d" % number)
        rewrite(store, {"rewrite.min.segments": 2})
    program = [sys.executable, "-c", _FIRST_PLAN, uri]
    done = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.split() == ["1", "False"]


@pytest.mark.parametrize(
    ("columns", "settings", "count"),
    [
        (["value"], {}, 1),
        (["value", "offset", "topic"], {}, 1),
        ([], {}, 1),
        (["topic", "partition", "timestampType"], {}, 1),
        # The log has all of these, and no file is fetched.
        (["offset", "topic"], {}, 6),
        (["value", "entry"], {}, 6),
        (["value", "transactional_id"], {}, 6),
        (None, {"message.timestamp.type": "LogAppendTime"}, 6),
        (["key", "offset"], {"message.timestamp.type": "LogAppendTime"}, 1),
    ],
)
def test_it_names_segments_for_columns_that_only_the_log_says(
    world: World, columns: list[str] | None, settings: dict[str, str], count: int
) -> None:
    world.store.create_topic("other", 1, settings=settings)
    in_transactions(world, "other")
    view = world.store.view(["other"])
    assert len(segments_of(world.store.plan_view(view, columns=columns))) == count
    assert len(segments_of(world.store.plan_commits(view, 0, columns=columns))) == count
    assert len(segments_of(world.store.plan(view, world.store.ranges(view), columns=columns))) == count


def test_a_part_has_the_entries_that_were_asked_for(world: World) -> None:
    """A file of which some entries are read is two plans, each with what follows each other in it."""
    in_transactions(world)
    view = world.store.view(["t"])
    entries = [segment.committed_entry for segment in segments_of(world.store.plan_view(view, by_segment=True))]
    for after, to in ((entries[1], view.entry), (0, entries[3]), (entries[1], entries[3]), (entries[5], view.entry)):
        tasks = world.store.plan_commits(view, after, to_entry=to)
        rows = [row for task in tasks for batch in read_task(task, world.store.options) for row in batch.to_pylist()]
        assert [row["offset"] for row in rows] == [2 * place for place in range(6) if after < entries[place] <= to]
        assert len(segments_of(tasks)) == bool(rows)


def test_engines_find_the_offsets_of_merged_files_as_a_column(world: World) -> None:
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    in_transactions(world)
    expected = [(2 * number, b"%d" % number) for number in range(6)]
    columns = ["offset", "value"]
    assert to_polars(world.store, "t", columns=columns).rows() == expected
    with duckdb.connect() as connection:
        relation = to_duckdb(world.store, "t", connection=connection, columns=columns)
        assert relation.filter('"offset" >= 4').order('"offset"').fetchall() == expected[2:]
    (file,) = world.store.files("t")
    assert (file.is_whole, file.offset_column, file.record_count) == (True, "offset", 6)
    rows = merged_file(world, "t").read(columns=[file.offset_column, "value"])
    assert polars.from_arrow(rows).rows() == expected


def test_a_file_that_a_log_start_cuts_has_the_records_that_are_left(world: World) -> None:
    in_transactions(world)
    (deleted,) = AdminClient({"bootstrap.servers": world.uri}).delete_records([TopicPartition("t", 0, 5)]).values()
    deleted.result()
    (file,) = world.store.files("t")
    assert (file.is_whole, file.base_offset, file.record_count) == (False, 6, 3)
    assert [row["offset"] for row in world.rows("t")] == [6, 8, 10]


@pytest.mark.parametrize(
    "asked", [[("offset", ">=", 10), ("offset", "<", 13)], [("key", ">=", b"k5"), ("key", "<=", b"k6")]]
)
def test_bounds_and_conditions_skip_row_groups_of_a_merged_file(
    world: World, row_groups: list[tuple[int, list[str]]], asked: list[tuple[str, str, Any]]
) -> None:
    """A condition on offsets leaves them out where it becomes a bound, as those of a start and an end do."""
    in_transactions(world, count=10)
    assert merged_file(world, "t").num_row_groups > 2
    whole = world.rows("t")
    view = world.store.view(["t"])
    row_groups.clear()
    if asked[0][0] == "offset":
        tasks = world.store.plan_view(view, bounds={("t", 0): (10, 13)})
        found = [row for task in tasks for batch in read_task(task, world.store.options) for row in batch.to_pylist()]
    else:
        found = read_arrow(world.store, "t", where=asked).read_all().to_pylist()
    assert found == [row for row in whole if row["offset"] in (10, 12)]
    decoded = [group for group, columns in row_groups if "value" in columns]
    assert len(decoded) == 1
