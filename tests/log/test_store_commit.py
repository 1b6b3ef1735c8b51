"""`Store.commit`: threads of one handle take turns, and an identity that was taken over is not used."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from sparktxn import BatchRefused, ConfigurationError, ProducerFenced, SinkCommit, Store
from sparktxn._engine.format.commands import CreateTopic
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.write.queue import Ticket
from sparktxn._foundation.process.clock import RandomIds
from sparktxn._rows.stage.stagedsegment import StagedSegment
from sparktxn.errors import OutcomeLost, OutcomeUnknown, StoreUnavailable
from sparktxn.store.registry import objects_of
from sparktxn.testing.clocks import ManualClock
from sparktxn.testing.faultystore import Fault, FaultyStore, Operation
from tests.log.storecommits import staged, values_of
from tests.world import open_log

THREADS = 8
COMMITS = 10


@pytest.fixture
def store() -> Store:
    store = Store.open(f"memory://{RandomIds().token()}", create=True)
    store.create_topic("t", 2)
    return store


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


def committed_batches(store: Store, count: int, run_id: str = "run") -> None:
    for number in range(count):
        store.commit(staged(store, b"%d" % number), transactional_id="job", sink=SinkCommit("query", run_id, number))


def test_a_replayed_batch_with_other_rows_is_refused_unless_the_caller_skips_it(store: Store) -> None:
    committed_batches(store, 2)
    other, sink, entry = staged(store, b"other"), SinkCommit("query", "run", 1), store.log.entry
    with pytest.raises(BatchRefused, match=r"batch 1 of 'query' was committed before with other rows \(fingerprint "):
        store.commit(other, transactional_id="job", sink=sink)
    result = store.commit(other, transactional_id="job", sink=sink, on_replay_mismatch="skip")
    assert (result.entry, result.replayed) == (entry, True)
    assert result.mismatch is not None
    assert result.mismatch.is_last
    assert result.mismatch.committed not in (None, result.mismatch.fingerprint)
    assert store.log.entry == entry
    assert store.commit(staged(store, b"1"), transactional_id="job", sink=sink).mismatch is None


def test_a_batch_that_is_no_longer_remembered_can_be_skipped(store: Store) -> None:
    committed_batches(store, 25)
    sink, entry = SinkCommit("query", "run", 1), store.log.entry
    with pytest.raises(BatchRefused, match="no longer remembered"):
        store.commit(staged(store, b"1"), transactional_id="job", sink=sink)
    result = store.commit(staged(store, b"1"), transactional_id="job", sink=sink, on_replay_mismatch="skip")
    assert (result.entry, result.replayed) == (entry, True)
    assert result.mismatch is not None
    assert (result.mismatch.committed, result.mismatch.is_last) == (None, False)
    assert store.log.entry == entry


@pytest.mark.parametrize("writer", ["query", "old"])
def test_what_was_superseded_is_refused_although_the_caller_skips_other_rows(store: Store, writer: str) -> None:
    store.commit(staged(store, b"a"), transactional_id="job", sink=SinkCommit("old", "run-0", 0))
    store.commit(staged(store, b"b"), transactional_id="job", sink=SinkCommit("query", "run-1", 0))
    store.commit(staged(store, b"c"), transactional_id="job", sink=SinkCommit("query", "run-2", 1))
    sink = SinkCommit(writer, "run-1", 1)
    with pytest.raises(BatchRefused, match="was superseded"):
        store.commit(staged(store, b"d"), transactional_id="job", sink=sink, on_replay_mismatch="skip")
    assert values_of(store) == [b"a", b"b", b"c"]


def test_what_to_do_about_other_rows_is_checked(store: Store) -> None:
    with pytest.raises(ConfigurationError, match="on_replay_mismatch"):
        store.commit([], transactional_id="job", on_replay_mismatch="ignore")  # type: ignore[arg-type]


class Faulty:
    """A handle of a store, whose objects a test can let fail."""

    def __init__(self) -> None:
        self.uri = f"memory://{RandomIds().token()}"
        self.clock = ManualClock()
        with Store.open(self.uri, create=True) as store:
            store.create_topic("t", 2)
        self.objects = FaultyStore(objects_of(self.uri, {}), lambda operation: self.fate(operation), later=self.late)
        self.store = Store(self.uri, {}, self.log())

    def fate(self, operation: Operation) -> Fault:
        return Fault.NONE

    def late(self, put: Callable[[], object]) -> None:
        self.arrives = put

    def log(self) -> Log:
        return open_log(self.objects, self.clock, create=False)

    def hang(self, fault: Fault) -> None:
        """The next commit is not answered."""
        self.fate = lambda operation: (  # type: ignore[method-assign]
            fault if operation.verb == "put_if_absent" and "_log/0" in operation.name else Fault.NONE
        )

    def recover(self) -> None:
        self.fate = lambda operation: Fault.NONE  # type: ignore[method-assign]


LANDED = {Fault.RESPONSE_LOST: True, Fault.REFUSED: False, Fault.LATE: False}


@pytest.fixture
def faulty() -> Faulty:
    world = Faulty()
    world.store.commit(staged(world.store, b"first"), transactional_id="job")
    return world


def commit_without_an_answer(
    world: Faulty, fault: Fault, segments: list[StagedSegment], sink: SinkCommit | None, id_: str | None = "job"
) -> None:
    def unanswered(operation: Operation) -> Fault:
        if operation.verb == "put_if_absent" and "_log/0" in operation.name:
            return fault
        return (
            Fault.REFUSED if operation.verb == "get" and "_log/0" in operation.name and sent(operation) else Fault.NONE
        )

    def sent(operation: Operation) -> bool:
        return any(
            before.verb == "put_if_absent" and before.name == operation.name for before in world.objects.operations
        )

    world.fate = unanswered  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown):
        world.store.commit(segments, transactional_id=id_, sink=sink, timeout_s=0.5)
    world.recover()


@pytest.mark.parametrize("with_sink", [False, True])
@pytest.mark.parametrize("fault", LANDED)
def test_a_batch_after_one_whose_outcome_is_unknown_is_stored(faulty: Faulty, fault: Fault, with_sink: bool) -> None:
    """Both would be the same transaction with the same sequences: the second must not be taken for the first."""
    sinks = [SinkCommit("writer", "", number) if with_sink else None for number in (1, 2)]
    unknown = staged(faulty.store, b"a")
    commit_without_an_answer(faulty, fault, unknown, sinks[0])
    told = faulty.store.commit(staged(faulty.store, b"b"), transactional_id="job", sink=sinks[1])
    assert not told.replayed
    stored = values_of(faulty.store)
    assert stored.count(b"b") == 1
    assert stored.count(b"a") == 1 if LANDED[fault] else stored.count(b"a") <= 1


@pytest.mark.parametrize("with_sink", [False, True])
@pytest.mark.parametrize("fault", LANDED)
def test_the_same_call_tells_what_became_of_it(faulty: Faulty, fault: Fault, with_sink: bool) -> None:
    sink = SinkCommit("writer", "", 1) if with_sink else None
    segments = staged(faulty.store, b"a")
    commit_without_an_answer(faulty, fault, segments, sink)
    faulty.store.commit(segments, transactional_id="job", sink=sink)
    assert values_of(faulty.store) == [b"a", b"first"]
    faulty.store.commit(staged(faulty.store, b"b"), transactional_id="job")
    assert values_of(faulty.store) == [b"a", b"b", b"first"]


@pytest.mark.parametrize("fault", LANDED)
def test_a_commit_without_an_id_is_stored_once_after_a_lost_answer(faulty: Faulty, fault: Fault) -> None:
    faulty.store.commit(staged(faulty.store, b"second"))
    segments = staged(faulty.store, b"a")
    commit_without_an_answer(faulty, fault, segments, None, None)
    faulty.store.commit(segments)
    assert values_of(faulty.store) == [b"a", b"first", b"second"]
    faulty.store.commit(staged(faulty.store, b"b"))
    assert values_of(faulty.store) == [b"a", b"b", b"first", b"second"]


@pytest.mark.parametrize("fault", LANDED)
def test_a_commit_without_an_id_follows_one_whose_outcome_is_unknown(faulty: Faulty, fault: Fault) -> None:
    faulty.store.commit(staged(faulty.store, b"second"))
    commit_without_an_answer(faulty, fault, staged(faulty.store, b"a"), None, None)
    assert not faulty.store.commit(staged(faulty.store, b"b")).replayed
    stored = values_of(faulty.store)
    assert stored.count(b"b") == 1
    assert stored.count(b"a") == 1 if LANDED[fault] else stored.count(b"a") <= 1


@pytest.mark.parametrize("id_", ["job", None])
def test_a_commit_whose_outcome_is_lost_is_not_made_again(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch, id_: str | None
) -> None:
    """It may have been stored: the same call reports that again, and what is staged anew is written."""
    faulty.store.commit(staged(faulty.store, b"second"), transactional_id=id_)
    segments = staged(faulty.store, b"a")
    commit_without_an_answer(faulty, Fault.RESPONSE_LOST, segments, None, id_)
    with monkeypatch.context() as patch:
        patch.setattr(Ticket, "wait", lambda self: lose())
        with pytest.raises(OutcomeLost):
            faulty.store.commit(segments, transactional_id=id_)
    with pytest.raises(OutcomeLost):
        faulty.store.commit(segments, transactional_id=id_)
    faulty.store.commit(staged(faulty.store, b"b"), transactional_id=id_)
    assert values_of(faulty.store) == [b"a", b"b", b"first", b"second"]


@pytest.mark.parametrize("is_again", [False, True])
@pytest.mark.parametrize("id_", ["job", None])
def test_a_list_that_another_thread_is_about_to_send_is_not_reported_as_failed(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch, id_: str | None, is_again: bool
) -> None:
    """It cannot be withdrawn: the other thread has taken it from the queue, and puts it after this call has ended."""
    faulty.store.commit(staged(faulty.store, b"second"), transactional_id=id_)
    segments = staged(faulty.store, b"a")
    if is_again:
        commit_without_an_answer(faulty, Fault.LATE, segments, None, id_)
    with monkeypatch.context() as patch:
        patch.setattr(Ticket, "wait", lambda self: too_late())
        patch.setattr(Ticket, "withdraw", lambda self: False)
        with pytest.raises(OutcomeUnknown, match="another call of this process may send it"):
            faulty.store.commit(segments, transactional_id=id_)
    faulty.store.commit(segments, transactional_id=id_)
    assert values_of(faulty.store) == [b"a", b"first", b"second"]


def too_late() -> None:
    raise StoreUnavailable("the request was not sent by the deadline")


def lose() -> None:
    raise OutcomeLost("a vacuum has passed it")


def test_a_call_that_is_made_again_after_another_one_stores_its_segments_once(faulty: Faulty) -> None:
    segments = staged(faulty.store, b"a")
    commit_without_an_answer(faulty, Fault.RESPONSE_LOST, segments, None)
    faulty.store.commit(staged(faulty.store, b"b"), transactional_id="job")
    assert faulty.store.commit(segments, transactional_id="job").replayed
    assert values_of(faulty.store) == [b"a", b"b", b"first"]


def test_while_the_outcome_stays_unknown_nothing_else_begins(faulty: Faulty) -> None:
    commit_without_an_answer(faulty, Fault.LATE, staged(faulty.store, b"a"), None)
    faulty.hang(Fault.REFUSED)
    later = staged(faulty.store, b"b")
    with pytest.raises((StoreUnavailable, OutcomeUnknown)):
        faulty.store.commit(later, transactional_id="job", timeout_s=0.5)
    faulty.recover()
    faulty.arrives()
    faulty.store.commit(later, transactional_id="job")
    assert values_of(faulty.store) == [b"a", b"b", b"first"]


def test_a_commit_that_could_not_be_sent_is_known_not_to_have_happened(faulty: Faulty) -> None:
    segments = staged(faulty.store, b"a")

    def unreadable(operation: Operation) -> Fault:
        return Fault.REFUSED if operation.verb == "get" else Fault.NONE

    faulty.store.log._committer._slot.probes = True
    faulty.fate = unreadable  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        faulty.store.commit(segments, transactional_id="job", timeout_s=0.5)
    faulty.recover()
    faulty.store.log.submit([CreateTopic("other", "other", 1)])
    assert values_of(faulty.store) == [b"first"]
