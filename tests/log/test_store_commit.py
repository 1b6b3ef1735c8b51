"""`Store.commit`: threads of one handle take turns, and an identity that was taken over is not used."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from sparktxn import ProducerFenced, Store, read_task
from sparktxn.clock import RandomIds
from sparktxn.stage.staged import StagedSegment

THREADS = 8
COMMITS = 10


@pytest.fixture
def store() -> Store:
    store = Store.open(f"memory://{RandomIds().token()}", create=True)
    store.create_topic("t", 2)
    return store


def staged(store: Store, *values: bytes) -> list[StagedSegment]:
    stager = store.stage_plan(["t"]).open(seed=0, default_topic="t")
    stager.write(pa.record_batch({"value": pa.array(values, pa.binary())}))
    return stager.finish()


def values_of(store: Store) -> list[bytes]:
    view = store.view(["t"])
    return sorted(
        value.as_py()
        for task in store.plan(view, store.ranges(view))
        for batch in read_task(task)
        for value in batch.column("value")
    )


def test_threads_that_commit_under_one_id_lose_nothing(store: Store) -> None:
    def commit(thread: int) -> None:
        for number in range(COMMITS):
            store.commit(staged(store, b"%d-%d" % (thread, number)), transactional_id="job")

    threads = [threading.Thread(target=commit, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values_of(store) == sorted(b"%d-%d" % (t, n) for t in range(THREADS) for n in range(COMMITS))


def test_a_handle_whose_id_was_taken_over_is_fenced_and_writes_nothing(store: Store) -> None:
    older, newer = Store.open(store.uri), Store.open(store.uri)
    older.commit(staged(store, b"a"), transactional_id="job")
    newer.commit(staged(store, b"b"), transactional_id="job")
    with pytest.raises(ProducerFenced, match="is fenced: a newer producer has initialised it"):
        older.commit(staged(store, b"c"), transactional_id="job")
    newer.commit(staged(store, b"d"), transactional_id="job")
    assert values_of(store) == [b"a", b"b", b"d"]
