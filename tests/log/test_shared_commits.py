"""`Store.commit` without a transactional id: exact among others, and nothing grows with the number of commits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from sparktxn import CommandRefused, ConfigurationError, SegmentExpired, SinkCommit, Store
from sparktxn._engine.format.commands import (
    AddPartitionsToTxn,
    Command,
    DeleteTopic,
    ExpireProducers,
    ExpireTransactionalId,
    InitProducerId,
    Vacuum,
)
from sparktxn._engine.format.names import segment_file
from sparktxn._foundation.process.clock import RandomIds
from sparktxn._rows.stage.batchcommits import SHARED_ID, PendingCommit
from sparktxn._rows.stage.stagedsegment import StagedSegment
from sparktxn.errors import ErrorCode
from sparktxn.store.registry import objects_of
from sparktxn.testing.faultystore import Fault, FaultyStore
from tests.log.storecommits import staged, values_of
from tests.world import open_log

PARTITIONS = 4


def make_store() -> Store:
    made = Store.open(f"memory://{RandomIds().token()}", create=True)
    made.create_topic("t", PARTITIONS)
    return made


def store_with_checkpoints_in_time() -> Store:
    """A store whose checkpoints are written when they are due: a busy machine changes nothing of its log."""
    uri = f"memory://{RandomIds().token()}"
    made = Store(uri, {}, open_log(objects_of(uri, {})))
    made.create_topic("t", PARTITIONS)
    return made


@pytest.fixture
def store() -> Iterator[Store]:
    with make_store() as made:
        yield made


def other_process(store: Store) -> Store:
    """Another process's handle: it follows a log of its own."""
    return Store(store.uri, {}, open_log(objects_of(store.uri, {}), create=False))


def left_in_the_state(store: Store) -> tuple[list[str], set[int]]:
    """The transactional ids, and the producer ids that partitions know."""
    store.log.refresh()
    ids = sorted(known.transactional_id for known in store.log.transactions())
    return ids, {known.producer_id for known in store.log.all_producers()}


def segments_without_rows(store: Store, ids: RandomIds, topic_id: int) -> list[StagedSegment]:
    names = [segment_file(store.log.entry, ids.token(), "parquet") for _ in range(PARTITIONS)]
    return [
        StagedSegment("t", topic_id, partition, name, 10, 800, "0" * 8, 1, 2, 9) for partition, name in enumerate(names)
    ]


def log_bytes(store: Store) -> int:
    objects = objects_of(store.uri, {})
    return sum(len(objects.get(listed.name) or b"") for listed in objects.list("_log/"))


def operations_to_open(store: Store) -> int:
    counted = FaultyStore(objects_of(store.uri, {}), lambda operation: Fault.NONE)
    open_log(counted, create=False).refresh()
    return len(counted.operations)


def test_many_commits_leave_no_more_than_as_many_micro_batches() -> None:
    """Each had an id of its own once, and producers in each partition: the log grew with the square of their number."""
    ids = RandomIds()
    batches, stream = store_with_checkpoints_in_time(), store_with_checkpoints_in_time()
    topic_id = stream.stage_plan(["t"]).topics["t"].topic_id
    for number in range(200):
        writer = Store(batches.uri, {}, batches.log)
        writer.commit(segments_without_rows(writer, ids, topic_id))
        sink = SinkCommit("query", "run", number)
        stream.commit(segments_without_rows(stream, ids, topic_id), transactional_id="query", sink=sink)
    assert left_in_the_state(batches) == ([SHARED_ID], {0})
    assert batches.log.entry == stream.log.entry, "one entry each"
    assert log_bytes(batches) <= 1.2 * log_bytes(stream)
    assert operations_to_open(batches) <= operations_to_open(stream) + 5


def test_writers_at_once_lose_nothing_and_store_nothing_twice(store: Store) -> None:
    def commit(writer: Store, number: int) -> None:
        for count in range(10):
            writer.commit(staged(writer, b"%d-%d" % (number, count)))

    writers = [other_process(store) for _ in range(4)]
    threads = [threading.Thread(target=commit, args=(writer, number)) for number, writer in enumerate(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values_of(store) == sorted(b"%d-%d" % (number, count) for number in range(4) for count in range(10))
    assert left_in_the_state(store)[0] == [SHARED_ID]


def outrun(monkeypatch: pytest.MonkeyPatch, rival: Store, times: int) -> None:
    """Lets the rival commit between the reading of the state and the next `times` lists that are made from it."""
    send = PendingCommit.send
    left = list(range(times))

    def overtaken(self: PendingCommit, *arguments: Any, **named: Any) -> None:
        if left and self._log is not rival.log:
            rival.commit(staged(rival, b"rival-%d" % left.pop()))
        send(self, *arguments, **named)

    monkeypatch.setattr(PendingCommit, "send", overtaken)


@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_a_commit_that_others_outrun_is_made_again_and_leaves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """After the third time it takes an id of its own, which it forgets, with its producers."""
    rival = other_process(store)
    store.commit(staged(store, b"a"))
    outrun(monkeypatch, rival, times)
    result = store.commit(staged(store, b"b", b"c", b"d", b"e"))
    assert not result.replayed
    rivals = [b"rival-%d" % number for number in range(times)]
    assert values_of(store) == sorted([b"a", b"b", b"c", b"d", b"e", *rivals])
    for handle in (store, rival, other_process(store)):
        assert left_in_the_state(handle) == ([SHARED_ID], {0})


def test_an_id_that_was_fenced_or_forgotten_is_used_again(store: Store) -> None:
    store.commit(staged(store, b"a"))
    rival = other_process(store)
    rival.log.submit([InitProducerId("fence", SHARED_ID)])
    store.commit(staged(store, b"b"))
    known = store.log.transaction(SHARED_ID)
    assert known is not None
    assert (known.producer_epoch, known.transaction) == (1, 2)
    commands: list[Command] = [
        ExpireTransactionalId(SHARED_ID, known.producer_id, known.producer_epoch, known.transaction)
    ]
    for one in store.log.all_producers():
        seen = (one.producer_id, one.producer_epoch, one.last_sequence, one.coordinator_epoch)
        commands.append(ExpireProducers(one.topic_id, one.partition, (seen,)))
    rival.log.submit(commands)
    store.commit(staged(store, b"c"))
    assert values_of(store) == [b"a", b"b", b"c"]


def test_an_id_in_which_a_transaction_is_open_keeps_no_caller(store: Store) -> None:
    store.commit(staged(store, b"a"))
    known = store.log.transaction(SHARED_ID)
    assert known is not None
    identity = (SHARED_ID, known.producer_id, known.producer_epoch, known.transaction + 1)
    store.log.submit([AddPartitionsToTxn(*identity, ((1, 0),))])
    store.commit(staged(store, b"b"))
    assert values_of(store) == [b"a", b"b"]
    assert left_in_the_state(store) == ([SHARED_ID], {0})


def test_what_the_state_refuses_for_another_reason_is_reported_at_once(store: Store) -> None:
    store.commit(staged(store, b"a"))
    expired = staged(store, b"b")
    entry = store.log.entry
    store.log.submit([Vacuum(1, entry + 1)])
    with pytest.raises(SegmentExpired):
        store.commit(expired)
    rows = staged(store, b"c")
    store.log.submit([DeleteTopic("delete", "t", rows[0].topic_id)])
    with pytest.raises(CommandRefused) as refused:
        store.commit(rows)
    assert refused.value.error.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert left_in_the_state(store)[0] == [SHARED_ID]


def test_nothing_to_commit_writes_nothing(store: Store) -> None:
    entry = store.log.entry
    assert store.commit([]).entry == entry
    assert store.log.entry == entry


def test_a_sink_needs_an_id_that_remembers_its_batches(store: Store) -> None:
    with pytest.raises(ConfigurationError, match="a sink is given without transactional_id"):
        store.commit([], sink=SinkCommit("query", "run", 0))
