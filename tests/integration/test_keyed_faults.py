"""What systems with keys and deletes have got wrong, as far as a keyed topic has it, each with its test.

* `passes`: a pass over some files brings a deleted row back, or an old row before a newer one, also after a restart.
* `passes`: a file that covers the same rows as another brings superseded rows back.
* `one_list`: rows of two batches of one list supersede rows of the same earlier file.
* `row_groups`: positions are counted after a filter or a skipped row group.
* `changes_twice`: a key changes twice in one window, at the first load and later.
* `null_keys`: a null in a key, or no key at all, makes a row for each run.
* `asyncio`: clients that have no calls for columns write or read such a topic.

The others are of merges, feeds of changes, vectors and erasure, which do not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparktxn import ConfigurationError, KafkaException, Producer, Store, read_arrow
from sparktxn.admin.topics import delete_topic
from sparktxn.aio import AIOConsumer, AIOProducer
from sparktxn.maintenance import compact, rewrite, vacuum

CALM = {"store.fsync": False, "checkpoint.fold.bytes.per.minute": 0}
VACUUMED = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.temporary.age.ms": 0}
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("size", pa.int64())])
SETTINGS = {"primary.key": "id", "append.inline.bytes": "0"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store"), create=True, options=CALM) as found:
        found.create_topic("keyed", 1, settings=SETTINGS, schema=SCHEMA)
        yield found


def rows(*ids: int, name: str = "n") -> pa.Table:
    """An upsert of each id, whose size is its place."""
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [name] * len(ids), "size": [*range(len(ids))]})


def produced(store: Store, *tables: pa.Table) -> None:
    """One transaction with these upserts, and deletes where a table has the key alone."""
    with Producer({"bootstrap.servers": store.uri, "transactional.id": "shop"} | CALM) as producer:
        producer.init_transactions(30)
        with producer.transaction():
            for table in tables:
                producer.produce_arrow("keyed", table, delete=table.num_columns == 1)


def latest(store: Store, **asked: Any) -> dict[int, str]:
    """The names of the latest rows, by id."""
    table = read_arrow(store, "keyed", columns=["id", "name"], **asked).read_all()
    found = {row["id"]: row["name"] for row in table.to_pylist()}
    assert len(found) == table.num_rows
    return found


def keys(*ids: int) -> pa.Table:
    """A delete of each id."""
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.mark.parametrize(
    "job", [lambda store: rewrite(store, {"rewrite.min.segments": 2}).ranges, lambda store: compact(store).partitions]
)
@pytest.mark.parametrize("taken", [2, 3, 4, 6])
def test_passes_over_some_files_bring_nothing_back(store: Store, taken: int, job: Callable[[Store], int]) -> None:
    """The first files are merged while later ones are not written yet, and all of them later, with a vacuum."""
    delete_topic(store.log, "keyed")
    eager = {"min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"}
    store.create_topic("keyed", 1, settings=SETTINGS | eager, schema=SCHEMA)
    history = [(rows(1, 2, name="a"),), (rows(2, 3, name="b"),), (keys(1),), (rows(4, name="c"),), (keys(2, 4),)]
    history += [(rows(4, name="d"),), (keys(3),), (rows(2, name="e"),)]
    shown: dict[int, dict[int, str]] = {}
    known: dict[int, str] = {}
    for number, (table,) in enumerate(history, 1):
        produced(store, table)
        for row in table.to_pylist():
            known.pop(row["id"], None)
            if "name" in row:
                known[row["id"]] = row["name"]
        shown[store.view().entry] = dict(known)
        if number == taken:
            assert job(store) == 1
    for entry, found in shown.items():
        assert latest(store, as_of=entry) == found
    assert job(store) == 1
    store.log.checkpoint()
    vacuum(store, VACUUMED)
    with Store.open(store.uri, options=CALM) as restarted:
        assert latest(restarted) == known == {2: "e", 4: "d"}
        assert latest(restarted, where=[("id", "in", [1, 2, 3])]) == {2: "e"}


def test_one_list_supersedes_rows_of_one_file_by_each_of_its_batches(store: Store) -> None:
    """Two segments of one commit, and the same in one transaction: what they supersede adds up."""
    store.create_topic("small", 1, settings=SETTINGS | {"segment.rows": "2"}, schema=SCHEMA)
    produced(store, rows(*range(10), name="old"))
    produced(store, rows(1, 2, name="new"), keys(3), rows(4, name="new"), keys(1))
    assert latest(store) == {0: "old", 2: "new", 4: "new"} | dict.fromkeys(range(5, 10), "old")
    for tables in ([rows(*range(10), name="old")], [rows(1, 2, name="new"), rows(3, 4, name="new"), keys(5, 1)]):
        stager = store.stage_plan(["small"]).open(seed=0, default_topic="small")
        for table in tables:
            stager.write(table, delete=table.num_columns == 1)
        store.commit(stager.finish())
    found = read_arrow(store, "small").read_all().to_pylist()
    assert {row["id"]: row["name"] for row in found} == dict.fromkeys([2, 3, 4], "new") | dict.fromkeys(
        [0, 6, 7, 8, 9], "old"
    )


def test_row_groups_that_are_left_out_move_no_position(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of many row groups, of which conditions on other columns and on the key leave most out."""
    monkeypatch.setattr("sparktxn._engine.format.segment._ROW_GROUP_ROWS", 50)
    produced(store, rows(*range(1_000), name="old"))
    produced(store, rows(*range(300, 420), name="new"), keys(*range(700, 730)))
    largest = max(Path(store.uri).rglob("*.parquet"), key=lambda path: path.stat().st_size)
    assert pq.ParquetFile(largest).num_row_groups > 10
    expected = {number: "new" if 300 <= number < 420 else "old" for number in range(1_000) if not 700 <= number < 730}
    assert latest(store) == expected
    for first in range(0, 1_000, 90):
        found = {number: name for number, name in expected.items() if first <= number < first + 90}
        assert latest(store, where=[("id", "between", (first, first + 89))]) == found
        # The size of a row is its place among those of its batch.
        sizes = {number: number - 300 if name == "new" else number for number, name in expected.items()}
        of_size = {number: expected[number] for number, size in sizes.items() if first <= size < first + 90}
        assert latest(store, where=[("size", "between", (first, first + 89))]) == of_size
        both = [("size", ">=", first), ("id", "in", [first, 305, 705, 999])]
        some = {one: expected[one] for one in (first, 305, 705, 999) if one in expected and sizes[one] >= first}
        assert latest(store, where=both) == some


def test_a_key_that_changes_twice_in_a_window_is_there_once(store: Store) -> None:
    """At the first load as later, in one batch and in several: the producer's later row wins."""
    for window in ("first", "later"):
        table = pa.concat_tables([rows(1, 2, name=f"{window} early"), rows(1, name=window), rows(2, name=window)])
        produced(store, table, keys(2), rows(3, name="gone"), keys(3), keys(4), rows(4, name=window))
        assert latest(store) == {1: window, 4: window}


NO_KEYS = [
    pa.table({"id": pa.array([1, None], pa.int64()), "name": ["a", "b"], "size": [1, 2]}),
    pa.table({"id": pa.array([None], pa.int64())}),
    pa.table({"name": ["a"], "size": [1]}),
    pa.table({"id": pa.array([None], pa.int64()), "_deleted": [True]}),
]


def _staged(store: Store, table: pa.Table, *, delete: bool) -> None:
    store.stage_plan(["keyed"]).open(seed=0, default_topic="keyed").write(table, delete=delete)


def _sent(store: Store, table: pa.Table, *, delete: bool) -> None:
    with Producer({"bootstrap.servers": store.uri} | CALM) as producer:
        producer.produce_arrow("keyed", table, delete=delete)


@pytest.mark.parametrize("table", NO_KEYS)
@pytest.mark.parametrize("write", [_staged, _sent])
def test_null_keys_and_missing_ones_are_refused_by_name(
    store: Store, table: pa.Table, write: Callable[..., None]
) -> None:
    entry = store.view().entry
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="'id'"):
            write(store, table, delete=table.num_columns == 1)
    assert (store.view().entry, latest(store, rows="all")) == (entry, {})


def test_asyncio_says_which_calls_a_keyed_topic_takes(store: Store) -> None:
    """Clients of asyncio have no calls for columns: nothing is written or shown, and work goes on."""
    store.create_topic("plain")

    async def main() -> None:
        settings = {"bootstrap.servers": store.uri, "transactional.id": "t"} | CALM
        async with AIOProducer(settings) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            with pytest.raises(ConfigurationError, match=r"'keyed'.*produce_arrow"):
                await producer.produce("keyed", b"x", b"1")
            await producer.produce("plain", b"x")
            await producer.commit_transaction()
        produced(store, rows(1), keys(1))
        own = {"group.id": "g", "auto.offset.reset": "earliest"}
        async with AIOConsumer({"bootstrap.servers": store.uri} | own | CALM) as consumer:
            await consumer.subscribe(["keyed"])
            with pytest.raises(KafkaException, match=r"'keyed'.*consume_arrow"):
                await consumer.poll(30.0)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert read_arrow(store, "plain").read_all().num_rows == 1
    assert (latest(store), len(read_arrow(store, "keyed", rows="all").read_all())) == ({}, 2)
