"""Rule K × every writer: when rows of a keyed topic are appended, and what a writer leaves that ends before its commit.

docs/tables-that-change.md has the table. Each of its rows is a writer here, or names the tests that hold it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest

from sparktxn import Producer, Store, read_arrow
from sparktxn.errors import KafkaException
from sparktxn.maintenance import vacuum
from sparktxn.transfer import import_files

ROOT = Path(__file__).parents[2]
CALM = {"store.fsync": False, "checkpoint.fold.bytes.per.minute": 0, "linger.ms": 0}
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
IDS = tuple(range(30))
ALL = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.temporary.age.ms": 0}


def rows(name: str) -> pa.Table:
    return pa.table({"id": IDS, "name": [name] * len(IDS)})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store"), create=True, options={"store.fsync": False}) as found:
        found.create_topic("keyed", 2, settings={"primary.key": "id"}, schema=SCHEMA)
        found.create_topic("plain")
        yield found


# Each writer yields once: its rows are written, and its transaction has not ended.


def in_a_transaction(store: Store, name: str) -> Iterator[None]:
    with Producer({"bootstrap.servers": store.uri, "transactional.id": "shop"} | CALM) as producer:
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("plain", name)
        producer.produce_arrow("keyed", rows(name))
        assert producer.flush(30) == 0
        yield
        producer.commit_transaction(30)


def staged(store: Store, name: str) -> Iterator[None]:
    stager = store.stage_plan(["keyed"]).open(seed=0, default_topic="keyed")
    stager.write(rows(name))
    segments = stager.finish()
    yield
    store.commit(segments)


def without_a_transaction(store: Store, name: str) -> Iterator[None]:
    with Producer({"bootstrap.servers": store.uri} | CALM) as producer:
        producer.produce_arrow("keyed", rows(name))
        assert producer.flush(30) == 0
        yield


def imported(store: Store, name: str) -> Iterator[None]:
    path = Path(store.uri).parent / f"{name}.csv"
    pa.csv.write_csv(rows(name), path)
    import_files(store, "keyed", [path])
    yield


AT_THE_END = {"`Producer`, in a transaction": in_a_transaction, "`Store.commit()`, and all writes of Spark": staged}
AT_ONCE = {"`Producer`, without a transaction": without_a_transaction, "`txnlog import`, `import_files()`": imported}
ELSEWHERE = {
    "a gateway's client, in a transaction": "tests/gateway/test_keyed_topics.py::"
    "test_rows_of_a_transaction_are_in_the_list_that_ends_it",
    "a gateway's client, without one": "tests/gateway/test_keyed_topics.py::"
    "test_a_batch_of_an_idempotent_producer_is_stored_once",
}
REFUSED = "`prepare_transaction()`"


def ends(store: Store) -> int:
    """The sum of the log ends, which are the last stable offsets."""
    partitions = store.view(["keyed"]).partitions.values()
    assert all(one.last_stable_offset == one.log_end_offset for one in partitions)
    return sum(one.log_end_offset for one in partitions)


def names(store: Store) -> set[str]:
    table = read_arrow(store, "keyed").read_all()
    assert sorted(table["id"].to_pylist()) in ([], list(IDS))
    return set(table["name"].to_pylist())


@pytest.mark.parametrize("writer", AT_THE_END)
def test_rows_are_appended_by_the_list_that_ends_the_transaction(store: Store, writer: str) -> None:
    write = AT_THE_END[writer]
    for number, name in enumerate(("first", "second"), 1):
        steps = write(store, name)
        next(steps)
        assert (ends(store), names(store)) == (len(IDS) * (number - 1), {"first"} if number == 2 else set())
        assert next(steps, None) is None
        assert (ends(store), names(store)) == (len(IDS) * number, {name})


@pytest.mark.parametrize("writer", AT_THE_END)
def test_what_a_writer_leaves_that_does_not_commit_is_named_by_nothing(store: Store, writer: str) -> None:
    write = AT_THE_END[writer]
    [*write(store, "before")]
    left = write(store, "lost")
    next(left)
    # The next one does not wait for it.
    [*write(store, "after")]
    assert (ends(store), names(store)) == (2 * len(IDS), {"after"})
    if writer == "`Producer`, in a transaction":
        with pytest.raises(KafkaException):
            next(left)
    files = len([*Path(store.uri).rglob("*.parquet")])
    store.log.checkpoint()
    vacuum(store, ALL)
    assert len([*Path(store.uri).rglob("*.parquet")]) <= files
    assert names(store) == {"after"}


@pytest.mark.parametrize("writer", AT_ONCE)
def test_rows_are_appended_list_by_list(store: Store, writer: str) -> None:
    for number, name in enumerate(("first", "second"), 1):
        steps = AT_ONCE[writer](store, name)
        next(steps)
        assert (ends(store), names(store)) == (len(IDS) * number, {name})
        assert next(steps, None) is None
        assert ends(store) == len(IDS) * number


def prepared(store: Store) -> None:
    with Producer({"bootstrap.servers": store.uri, "transactional.id": "shop"} | CALM) as producer:
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce_arrow("keyed", rows("lost"))
        try:
            producer.prepare_transaction(30)
        finally:
            producer.abort_transaction(30)


def test_what_would_leave_rows_open_is_refused(store: Store) -> None:
    with pytest.raises(KafkaException, match="keyed"):
        prepared(store)
    assert ends(store) == 0


def test_the_page_has_these_writers() -> None:
    page = (ROOT / "docs/tables-that-change.md").read_text().split("| writer |")[1].split("\n\n")[0]
    cells = [line.split(" | ")[0].removeprefix("| ") for line in page.splitlines()[2:]]
    assert cells == [*AT_THE_END, *AT_ONCE, *ELSEWHERE, REFUSED]
    for named in ELSEWHERE.values():
        path, _, test = named.partition("::")
        assert f"def {test}(" in (ROOT / path).read_text()
