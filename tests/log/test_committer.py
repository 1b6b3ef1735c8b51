"""The write loop on a store that fails on request."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import CreateTopic, InitProducerId, OffsetCommit, OffsetToCommit
from sparktxn._engine.format.entry import decode_entry
from sparktxn.errors import CommandRefused, DamagedObject, ErrorCode, OutcomeUnknown, StoreUnavailable
from sparktxn.testing.faultystore import Died, Fault, Operation
from tests.simulation.checkers import digest_of

LEFT, RIGHT = (1, 0), (1, 1)


def offset_commit(request_id: str, offset: int) -> OffsetCommit:
    return OffsetCommit(request_id, "group", (OffsetToCommit(*LEFT, offset),))


def entry_tokens(shared) -> list[str]:
    return [
        decode_entry(shared.objects.get(names.entry(number)), "", number).token for number in shared.names_of_entries()
    ]


@pytest.mark.kafka("K09", "K54")
@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.RESPONSE_LOST, Fault.TWICE, Fault.LATE])
def test_a_failed_put_is_resolved_by_reading_the_slot(shared, client, fault: Fault) -> None:
    client.fail_next("put_if_absent", fault)
    assert client.submit(InitProducerId("a", "job"))[0].producer_epoch == 0
    for put in client.late:
        put()
    assert shared.names_of_entries() == [1, 2]
    assert len(set(entry_tokens(shared))) == 2


@pytest.mark.kafka("K51")
def test_hole_18_at_the_deadline_an_unanswered_put_is_unknown_and_the_same_call_resolves_it(shared, client) -> None:
    client.fate = lambda operation: Fault.LATE if operation.verb == "put_if_absent" else Fault.NONE
    ticket = client.log.send([InitProducerId("a", "job")])
    with pytest.raises(OutcomeUnknown, match="entry 2"), client.log.within(0.5):
        ticket.wait()
    assert not ticket.withdraw()
    client.fate = lambda operation: Fault.NONE
    client.late[0]()
    with client.log.within(1):
        assert ticket.wait()[0].producer_epoch == 0
    assert shared.names_of_entries() == [1, 2]


def test_hole_19_a_body_that_was_sent_stays_as_it_is_though_more_is_waiting(shared, client) -> None:
    client.fate = lambda operation: Fault.LATE if operation.verb == "put_if_absent" else Fault.NONE
    first = client.log.send([InitProducerId("a", "first")])
    with pytest.raises(OutcomeUnknown), client.log.within(0.001):
        first.wait()
    client.fate = lambda operation: Fault.NONE
    second = client.log.send([InitProducerId("b", "second")])
    with client.log.within(1):
        assert second.wait()[0].producer_id == 1
    assert first.is_done()
    for put in client.late:
        put()
    assert shared.names_of_entries() == [1, 2, 3]


def test_what_gathers_while_waiting_goes_into_one_entry(shared, client) -> None:
    tickets = [client.log.send([InitProducerId(f"request-{number}", f"job-{number}")]) for number in range(5)]
    with client.log.within(1):
        assert tickets[-1].wait()[0].producer_id == 4
    assert [ticket.is_done() for ticket in tickets] == [True] * 5
    assert shared.names_of_entries() == [1, 2]


def test_a_refused_list_does_not_keep_the_others_from_the_entry(shared, client) -> None:
    refused = client.log.send([CreateTopic("again", "topic", 1)])
    accepted = client.log.send([InitProducerId("a", "job")])
    with client.log.within(1):
        accepted.wait()
    with pytest.raises(CommandRefused) as error, client.log.within(1):
        refused.wait()
    assert error.value.error.code() == ErrorCode.TOPIC_ALREADY_EXISTS
    assert shared.names_of_entries() == [1, 2]


@pytest.mark.kafka("K16", "K52", "K67")
def test_whoever_loses_the_slot_is_validated_again_behind_the_winner(shared) -> None:
    first, second = shared.client(), shared.client()
    second.fate = lambda operation: _let_win(first, second, operation, "job")
    assert second.submit(InitProducerId("b", "job"))[0].producer_epoch == 1
    assert shared.names_of_entries() == [1, 2, 3]


def _let_win(first, second, operation: Operation, transactional_id: str) -> Fault:
    """Just before the put, another process takes the slot."""
    if operation.verb == "put_if_absent":
        second.fate = lambda later: Fault.NONE
        first.submit(InitProducerId("a", transactional_id))
    return Fault.NONE


def test_lists_that_lost_keep_their_order(shared) -> None:
    """A refused list was before the accepted one: after the loss it is so again, and is refused again."""
    first, second = shared.client(), shared.client()
    second.initialise("job", "init")
    early = second.log.send([second.producer.end(1)])
    late = second.log.send([second.producer.append(LEFT, 0, transaction=1)])
    second.fate = lambda operation: _let_win(first, second, operation, "other")
    with second.log.within(1):
        late.wait()
    with pytest.raises(CommandRefused), second.log.within(1):
        early.wait()


@pytest.mark.kafka("K18")
def test_a_refusal_is_raised_only_after_a_look_at_the_newest_entries(shared) -> None:
    stale, other = shared.client(), shared.client()
    stale.objects.probe_is_cheap = False
    with pytest.raises(CommandRefused):
        stale.submit(offset_commit("a", -1))
    other.submit(CreateTopic("b", "new", 1))
    assert stale.submit(OffsetCommit("c", "group", (OffsetToCommit(2, 0, 1),)))


@pytest.mark.kafka("K51")
def test_a_list_that_was_never_sent_can_be_withdrawn_and_is_never_written(shared, client) -> None:
    client.fate = lambda operation: Fault.REFUSED if operation.verb == "get" else Fault.NONE
    ticket = client.log.send([InitProducerId("a", "job")])
    with pytest.raises(StoreUnavailable), client.log.within(0.001):
        ticket.wait()
    assert ticket.withdraw()
    client.fate = lambda operation: Fault.NONE
    client.submit(InitProducerId("b", "other"))
    assert client.log.transaction("job") is None


@pytest.mark.kafka("K51")
@pytest.mark.parametrize("verb", ["list_names", "make_durable"])
def test_once_sent_a_store_that_does_not_answer_leaves_the_outcome_unknown(client, verb: str) -> None:
    """Not merely "unavailable", which says that nothing was written."""

    def fate(operation: Operation) -> Fault:
        if operation.verb == "put_if_absent":
            return Fault.RESPONSE_LOST
        return Fault.REFUSED if operation.verb == verb else Fault.NONE

    client.fate = fate
    ticket = client.log.send([InitProducerId("a", "job")])
    with pytest.raises(OutcomeUnknown), client.log.within(0.001):
        ticket.wait()
    client.fate = lambda operation: Fault.NONE
    with client.log.within(0.001):
        assert ticket.wait()[0].producer_epoch == 0


def test_a_writer_that_loses_every_entry_stops_at_its_deadline(shared, client) -> None:
    rival = shared.client()
    rounds = iter(range(1_000))

    def fate(operation: Operation) -> Fault:
        if operation.verb == "put_if_absent":
            rival.submit(InitProducerId(f"rival-{next(rounds)}", "rival"))
            shared.clock.sleep(1.0)
        return Fault.NONE

    client.fate = fate
    ticket = client.log.send([InitProducerId("a", "job")])
    told = r"is in no entry|unknown at the deadline|nothing was sent"
    with pytest.raises((OutcomeUnknown, StoreUnavailable), match=told), client.log.within(5):
        ticket.wait()
    assert next(rounds) < 10
    client.fate = lambda operation: Fault.NONE
    assert ticket.wait()[0].producer_epoch == 0


def test_an_interrupted_call_leaves_nothing_that_a_later_call_would_write(client) -> None:
    client.fail_next("get", Fault.DIE_BEFORE)
    with pytest.raises(Died):
        client.submit(InitProducerId("a", "job"))
    assert not client.log._committer._queue


@pytest.mark.kafka("K53")
@pytest.mark.parametrize("data", [b"{", b'{"format":1,"entry":2}', b"not json at all"])
def test_hole_31_an_entry_that_cannot_be_read_stops_the_writer(shared, client, data: bytes) -> None:
    client.objects.probe_is_cheap = False
    shared.objects.put_if_absent(names.entry(2), data)
    with pytest.raises(DamagedObject, match=r"00002\.json"):
        client.submit(InitProducerId("a", "job"))


def test_an_entry_whose_part_cannot_be_loaded_is_not_half_applied(shared) -> None:
    """The group's part is needed only when the entry is folded in, after parts that are loaded; and it fails once."""
    writer = shared.client()
    writer.initialise("job", "init")
    writer.submit(offset_commit("before", 1))
    writer.log.checkpoint()
    follower = shared.client()
    writer.submit(InitProducerId("with", "other"), offset_commit("after", 2))
    seen: set[str] = set()

    def each_part_fails_once(operation: Operation) -> Fault:
        if operation.verb != "get" or "_checkpoints/" not in operation.name or operation.name in seen:
            return Fault.NONE
        seen.add(operation.name)
        return Fault.REFUSED

    follower.fate = each_part_fails_once
    entry = 0
    while entry != writer.log.entry:
        try:
            entry = follower.log.refresh()
        except StoreUnavailable:
            continue
    follower.fate = lambda operation: Fault.NONE
    assert len(seen) > 2
    committed = follower.log.committed_offset("group", *LEFT)
    assert committed is not None
    assert committed.offset == 2
    assert digest_of(follower.log) == digest_of(writer.log)


def test_callers_queue_lists_while_the_writer_gives_others_back(client) -> None:
    """Queueing takes no lock: a writer that reads the queue must not stumble over a list that is new in it."""
    committer, is_over, interval_s = client.log._committer, threading.Event(), sys.getswitchinterval()

    def queue() -> None:
        while not is_over.is_set():
            client.log.send([InitProducerId("a", "job")]).withdraw()

    caller = threading.Thread(target=queue)
    sys.setswitchinterval(1e-6)
    caller.start()
    try:
        ends = time.monotonic() + 2
        while time.monotonic() < ends:
            committer._queue.give_back([])
    finally:
        is_over.set()
        caller.join()
        sys.setswitchinterval(interval_s)
    assert not committer._queue
