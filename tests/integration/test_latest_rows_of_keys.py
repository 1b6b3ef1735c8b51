"""Latest rows of a keyed topic: those of some keys, which need few files, and what frames in memory have of them."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from sparktxn import ConfigurationError, Producer, Store, read_arrow, to_pandas
from sparktxn._engine.format import segment
from sparktxn._rows.scan import segmentbytes
from sparktxn.store import LatestTask
from sparktxn.store.options import Condition
from sparktxn.tables import to_duckdb, to_polars

ROOM: Final = "sparktxn._rows.scan"
CALM = {"store.fsync": False, "checkpoint.fold.bytes.per.minute": 0}
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string()), ("size", pa.float64())])
SETTINGS = {"primary.key": "id"}
PARTITIONS = 4


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store"), create=True, options=CALM) as found:
        found.create_topic("keyed", PARTITIONS, settings=SETTINGS, schema=SCHEMA)
        yield found


@contextmanager
def producer_of(store: Store) -> Iterator[Producer]:
    """A producer of transactions."""
    with Producer({"bootstrap.servers": store.uri, "transactional.id": "shop"} | CALM) as found:
        found.init_transactions(30)
        yield found


def rows(*ids: int, name: str = "n") -> pa.Table:
    """An upsert of each id."""
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [name] * len(ids), "size": [1.5] * len(ids)})


def _produced(store: Store, table: pa.Table, **more: Any) -> None:
    with producer_of(store) as producer, producer.transaction():
        producer.produce_arrow("keyed", table, **more)


@pytest.mark.parametrize("segment_format", ["parquet", "arrow"])
@pytest.mark.parametrize("inline", [0, 16_384])
def test_a_condition_on_deletes_is_about_what_readers_show(store: Store, segment_format: str, inline: int) -> None:
    """An upsert is stored with null there, and shown with false."""
    more = {"segment.format": segment_format, "append.inline.bytes": inline}
    store.create_topic("other", 2, settings=SETTINGS | more, schema=SCHEMA)
    with producer_of(store) as producer:
        for delete in (False, True, False):
            with producer.transaction():
                producer.produce_arrow("other", rows(*range(9)))
                if delete:
                    producer.produce_arrow("other", pa.table({"id": [3, 4]}), delete=True)
    whole = read_arrow(store, "other", rows="all", columns=["_offset", "_deleted"]).read_all().to_pylist()
    assert {row["_deleted"] for row in whole} == {True, False}
    for operator, value, shown in (
        ("=", False, [False]), ("!=", True, [False]), ("in", [False], [False]),
        ("=", True, [True]), ("is not null", None, [True, False]), ("is null", None, []),
    ):  # fmt: skip
        where = [("_deleted", operator, value) if value is not None else ("_deleted", operator)]
        found = read_arrow(store, "other", rows="all", columns=["_offset", "_deleted"], where=where).read_all()
        assert found.to_pylist() == [row for row in whole if row["_deleted"] in shown], where
    assert read_arrow(store, "other", where=[("_deleted", "=", False)]).read_all().num_rows == 9


# One key of many.


@pytest.mark.parametrize("segment_format", ["parquet", "arrow"])
@pytest.mark.parametrize(
    ("where", "partitions", "names"),
    [
        ([("id", "=", 7)], 1, {7: "2"}),
        ([("id", "in", [7, 7, 0])], 2, {0: "2", 7: "2"}),
        ([("id", "in", [7, 11]), ("id", ">", 7)], 1, {}),
        ([("id", "=", 7), ("id", "=", 8)], 0, {}),
        ([("id", "=", 7), ("name", "=", "1")], 1, {}),
        ([("id", "=", 99)], 1, {}),
        ([("id", "<", 2)], PARTITIONS, {0: "2", 1: "2"}),
        ([("name", "=", "1")], PARTITIONS, {}),
    ],
)
def test_conditions_on_the_whole_key_read_their_partitions_alone(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    segment_format: str,
    where: list[Any],
    partitions: int,
    names: dict[int, str],
) -> None:
    settings = SETTINGS | {"segment.format": segment_format, "append.inline.bytes": 0}
    store.create_topic("large", PARTITIONS, settings=settings, schema=SCHEMA)
    with producer_of(store) as producer:
        for number in range(3):
            with producer.transaction():
                producer.produce_arrow("large", rows(*range(11), name=str(number)))
                producer.produce_arrow("large", pa.table({"id": [11]}), delete=True)
    read: set[int] = set()
    fetch = segmentbytes.fetch_segments

    def fetched(objects: Any, located: Any, entry: int) -> Any:
        read.update(int(each.object_name.split("/")[-2].split("=")[1]) for each in located)
        return fetch(objects, located, entry)

    monkeypatch.setattr(f"{ROOM}.storedrecords.fetch_segments", fetched)
    found = read_arrow(store, "large", columns=["id", "name"], where=where).read_all().to_pylist()
    assert {row["id"]: row["name"] for row in found} == names
    assert len(read) == partitions


def test_files_without_the_key_are_not_decoded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their statistics: what is decoded is the key of the files that may have it, and then their rows."""
    settings = SETTINGS | {"append.inline.bytes": 0}
    store.create_topic("large", 1, settings=settings, schema=SCHEMA)
    with producer_of(store) as producer:
        for first in (0, 100, 200, 0, 100, 200, 300):
            with producer.transaction():
                producer.produce_arrow("large", rows(*range(first, first + 100), name=str(first)))
        with producer.transaction():
            producer.produce_arrow("large", pa.table({"id": [205]}), delete=True)
    decoded: list[str] = []
    decode = segment.decode_row_groups

    def counted(data: bytes, name: str, **asked: Any) -> Any:
        for first, found in decode(data, name, **asked):
            decoded.append(name)
            yield first, found

    monkeypatch.setattr(f"{ROOM}.reader.decode_row_groups", counted)
    for key, count, files in ((105, 1, 2), (205, 0, 3), (399, 1, 1), (400, 0, 0)):
        decoded.clear()
        assert read_arrow(store, "large", where=[("id", "=", key)]).read_all().num_rows == count
        # The plan decodes the key, the read the condition's column, and then what it asks for.
        assert (len(set(decoded)), len(decoded)) == (files, 3 * files), key


# Readers in memory.


@pytest.mark.parametrize(
    "rows_of",
    [
        lambda store, asked: pa.Table.from_pandas(to_pandas(store, "keyed", **asked)).to_pylist(),
        lambda store, asked: to_polars(store, "keyed", **asked).to_dicts(),
        lambda store, asked: to_duckdb(store, "keyed", **asked).to_arrow_table().to_pylist(),
    ],
    ids=["pandas", "polars", "duckdb"],
)
def test_frames_have_latest_rows_all_rows_and_those_of_an_entry(
    store: Store, rows_of: Callable[[Store, dict[str, Any]], list[dict[str, Any]]]
) -> None:
    _produced(store, rows(1, 2, 3, name="a"))
    before = store.view().entry
    _produced(store, rows(2, name="b"))
    _produced(store, pa.table({"id": [3]}), delete=True)

    def read(*columns: str, **asked: Any) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in rows_of(store, {"columns": columns, **asked}))

    assert read("id", "name") == read("id", "name", rows="latest") == [(1, "a"), (2, "b")]
    assert read("id", "name", as_of=before) == [(1, "a"), (2, "a"), (3, "a")]
    assert read("id", "_deleted", rows="all", where=[("id", "=", 3)]) == [(3, False), (3, True)]
    assert read("id", "name", rows="all", as_of=before) == [(1, "a"), (2, "a"), (3, "a")]
    assert read("id", "name", where=[("id", "in", [2, 3])]) == [(2, "b")]
    assert read("id", where=[("id", "=", 3)], as_of=before) == [(3,)]
    for wrong, named in (({"rows": "newest"}, "rows"), ({"columns": ["id", "other"]}, "other")):
        with pytest.raises(ConfigurationError, match=named):
            rows_of(store, wrong)


# Tasks of latest rows: planned by a store, read by any process.

_READS: Final = """
import pickle, sys
from sparktxn.store import read_task

tasks = pickle.loads(sys.stdin.buffer.read())
sys.stdout.buffer.write(pickle.dumps([batch.to_pylist() for task in tasks for batch in read_task(task, batch_rows=2)]))
"""


def _read_elsewhere(tasks: list[LatestTask]) -> list[dict[str, Any]]:
    """The rows of tasks, read by a process that has opened no store."""
    given = pickle.dumps(tasks)
    found = subprocess.run([sys.executable, "-c", _READS], input=given, capture_output=True, check=True, timeout=60)
    batches = pickle.loads(found.stdout)
    assert all(0 < len(batch) <= 2 for batch in batches)
    return [row for batch in batches for row in batch]


def test_another_process_reads_the_tasks_of_latest_rows(store: Store) -> None:
    _produced(store, rows(*range(9), name="a"))
    before = store.view(["keyed"])
    _produced(store, rows(2, 4, 6, name="b"))
    _produced(store, pa.table({"id": [6, 7]}), delete=True)
    now = store.view(["keyed"])
    tasks = store.plan_latest(now)
    assert len(tasks) == PARTITIONS == len({task.partition for task in tasks})
    assert {task.topic for task in tasks} == {"keyed"}
    assert _read_elsewhere(tasks) == read_arrow(store, "keyed").read_all().to_pylist()
    assert _read_elsewhere(store.plan_latest(before, columns=("name", "_entry"))) == (
        read_arrow(store, "keyed", columns=["name", "_entry"], as_of=before.entry).read_all().to_pylist()
    )
    newest = [Condition("name", "=", "a"), Condition("id", ">=", 4)]
    found = _read_elsewhere(store.plan_latest(now, columns=["id"], conditions=newest))
    assert sorted(row["id"] for row in found) == [5, 8]
    one = store.plan_latest(now, conditions=[Condition("id", "=", 4)])
    assert [row["name"] for row in _read_elsewhere(one)] == ["b"]
    assert len(one) == 1
    own = (one[0].topic, one[0].partition)
    assert store.plan_latest(now, conditions=[Condition("id", "=", 4)], partitions=[own]) == one
    assert store.plan_latest(now, conditions=[Condition("id", "=", 4)], partitions=[]) == []
    counted = _read_elsewhere(store.plan_latest(now, columns=()))
    assert counted == [{}] * 7


def test_a_task_of_latest_rows_names_each_segment_once(store: Store) -> None:
    """It is what Spark sends with each of its tasks."""
    for number in range(30):
        _produced(store, rows(*range(40), name=f"n{number}"))
    view = store.view(["keyed"])
    whole = len(pickle.dumps(store.plan_view(view, rows="all")))
    assert len(pickle.dumps(store.plan_latest(view))) < whole * 1.2


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"columns": ["id", "other"]}, "'other'"),
        ({"conditions": [Condition("other", "=", 1)]}, "'other'"),
        ({"conditions": [Condition("id", "=", "x")]}, "id"),
        ({"partitions": [("keyed", PARTITIONS)]}, f"partition {PARTITIONS}"),
        ({"partitions": [("other", 0)]}, "'other'"),
    ],
)
def test_what_no_task_of_latest_rows_can_be_planned_for_is_refused_by_name(
    store: Store, asked: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigurationError, match=named):
        store.plan_latest(store.view(["keyed"]), **asked)


def test_only_keyed_topics_have_latest_rows(store: Store) -> None:
    store.create_topic("plain", 1)
    with pytest.raises(ConfigurationError, match=r"'plain' has no key.*plan_view"):
        store.plan_latest(store.view(["keyed", "plain"]))
    assert store.plan_latest(store.view(["keyed"])) == []
