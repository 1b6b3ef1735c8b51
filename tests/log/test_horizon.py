"""Entries are deleted and slots created again behind a client's back: no client may believe what it read or won
there."""

from __future__ import annotations

from itertools import count

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import CreateTopic, ExpireProducers, InitProducerId, OffsetCommit, OffsetToCommit
from sparktxn._rows.scan.offsets import committing_entry
from sparktxn.errors import CommandRefused, DamagedObject, ErrorCode, OutcomeUnknown, StoreUnavailable, ViewExpired
from sparktxn.testing.faultystore import Fault, Operation
from tests.producercommands import ProducerCommands
from tests.simulation.checkers import digest_of

LEFT, RIGHT = (1, 0), (1, 1)


def confirms_a_put(client, operation) -> bool:
    """True for the reading of the horizon that follows a put of the client's own."""
    return operation.name == names.HORIZONS and client.objects.operations[-2].verb == "put_if_absent"


def go_on(client, entries: int = 3) -> None:
    """Some more entries, and a checkpoint of them all."""
    for number in range(entries):
        client.submit(InitProducerId(f"{client.log.entry}-{number}", f"filler-{number}"))
    client.log.checkpoint()


def vacuum_behind(shared, client) -> int:
    """The checkpoint's own entry stays, and so does one behind it."""
    go_on(client)
    horizon = client.log.entry
    client.submit(InitProducerId(f"behind-{horizon}", "behind"))
    shared.vacuum(horizon)
    return horizon


@pytest.mark.kafka("K52", "K67")
def test_holes_1_and_2_a_slot_that_was_deleted_cannot_be_won(shared) -> None:
    """The stale client's put is answered "created": its list must take effect once, in the log that all processes
    read."""
    stale, other = shared.client(), shared.client()
    stale_entry = stale.log.entry
    horizon = vacuum_behind(shared, other)
    stale.objects.probe_is_cheap = False
    stale.log._committer._slot.probes = False
    told = stale.submit(InitProducerId("mine", "job"))[0]
    assert names.entry(stale_entry + 1) in shared.objects.list_names(names.ENTRIES), "the deleted slot was put again"
    assert stale.log.entry > horizon
    other.log.refresh()
    transaction = other.log.transaction("job")
    assert transaction is not None
    assert (transaction.producer_id, transaction.producer_epoch) == (told.producer_id, 0)
    assert digest_of(stale.log) == digest_of(other.log)


def test_hole_3_an_entry_that_was_won_and_vacuumed_is_found_in_the_state(shared) -> None:
    """The put has truly created it; before the writer confirms, it is vacuumed: the list must not be done twice."""
    writer, other = shared.client(), shared.client()
    writer.initialise("job", "init")
    paused: list[Operation] = []

    def fate(operation):
        if not paused and confirms_a_put(writer, operation):
            paused.append(operation)
            vacuum_behind(shared, other)
        return Fault.NONE

    writer.fate = fate
    told = writer.submit(*writer.fused(1, 0))
    assert paused
    assert [result.base_offset for result in told[:2]] == [0, 0]
    view = other.log.view(None)
    assert [partition.log_end_offset for partition in view.partitions.values()] == [2, 2]
    assert digest_of(writer.log) == digest_of(other.log)


def test_hole_3_what_the_state_cannot_tell_any_more_is_unknown(shared) -> None:
    """As before, and another producer has fenced the writer: "refused, nothing was written" would be a lie."""
    writer, other = shared.client(), shared.client()
    writer.initialise("job", "init")
    paused: list[Operation] = []

    def fate(operation):
        if not paused and confirms_a_put(writer, operation):
            paused.append(operation)
            other.submit(InitProducerId("fence", "job"))
            vacuum_behind(shared, other)
        return Fault.NONE

    writer.fate = fate
    with pytest.raises(OutcomeUnknown, match="fenced"):
        writer.submit(*writer.fused(1, 0))
    view = other.log.view(None)
    assert [partition.log_end_offset for partition in view.partitions.values()] == [2, 2]


@pytest.mark.kafka("K69")
@pytest.mark.parametrize("expired", [False, True])
def test_an_append_of_a_forgotten_producer_is_not_done_twice(shared, expired: bool) -> None:
    """A batch is stored; its writer, paused before it confirms, comes back after producer and entry are gone."""
    writer, other = shared.client(), shared.client()
    producer = ProducerCommands.of(None, writer.submit(InitProducerId("init"))[0])
    writer.submit(producer.append(LEFT, 0))
    paused: list[Operation] = []

    def fate(operation):
        if not paused and confirms_a_put(writer, operation):
            paused.append(operation)
            other.log.refresh()
            known = other.log.producer(*LEFT, producer.producer_id)
            assert known.last_sequence == 1
            if expired:
                seen = (producer.producer_id, known.producer_epoch, known.last_sequence, known.coordinator_epoch)
                other.submit(ExpireProducers(*LEFT, (seen,)))
            vacuum_behind(shared, other)
        return Fault.NONE

    writer.fate = fate
    if expired:
        with pytest.raises(OutcomeUnknown, match="no longer shows"):
            writer.submit(producer.append(LEFT, 1))
    else:
        assert writer.submit(producer.append(LEFT, 1))[0].duplicate
    assert paused
    view = other.log.view(None)
    assert view.partitions["topic", 0].log_end_offset == 2


def test_a_request_whose_id_is_not_remembered_is_refused_for_what_it_is(shared) -> None:
    stale, other = shared.client(), shared.client()
    other.submit(CreateTopic("theirs", "new", 1))
    vacuum_behind(shared, other)
    stale.log._committer._slot.probes = False
    with pytest.raises(CommandRefused) as refused:
        stale.submit(CreateTopic("mine", "new", 1))
    assert refused.value.error.code() == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("failing", range(1, 6))
def test_a_state_that_cannot_be_read_while_looking_for_a_list_does_not_lose_it(shared, failing: int) -> None:
    """The parts are loaded only now, and one fails: the caller's next call must still end."""
    parts = count(1)
    stale, other = shared.client(), shared.client()
    stale.initialise("job", "init")
    stale.log._committer._slot.probes = False
    other.log.refresh()
    vacuum_behind(shared, other)

    def fate(operation):
        if operation.verb == "get" and operation.name.startswith(names.CHECKPOINTS) and operation.name.count("/") == 3:
            return Fault.REFUSED if next(parts) == failing else Fault.NONE
        return Fault.NONE

    stale.fate = fate
    ticket = stale.log.send(stale.fused(1, 0))
    for _ in range(5):
        try:
            with stale.log.within(0.001):
                ticket.wait()
        except (OutcomeUnknown, StoreUnavailable):
            assert not ticket.is_done()
    assert ticket.is_done()
    assert next(parts) > failing
    view = other.log.view(None)
    assert [partition.log_end_offset for partition in view.partitions.values()] == [2, 2]


def test_no_other_slot_is_put_while_one_that_was_vacuumed_is_unresolved(shared) -> None:
    """A body has landed there, and its list was given up. The state is opened again while another body is composed."""
    writer, other = shared.client(), shared.client()
    writer.fate = lambda operation: Fault.LATE if operation.verb == "put_if_absent" else Fault.NONE
    given_up = writer.log.send([CreateTopic("given up", "given-up", 1)])
    with pytest.raises(OutcomeUnknown), writer.log.within(0.5):
        given_up.wait()
    assert not given_up.let_go()
    writer.late[0]()
    writer.fate = lambda operation: Fault.NONE
    other.submit(CreateTopic("new", "new", 1))
    topic = other.log.topic("new")
    assert topic is not None
    vacuum_behind(shared, other)
    # Refused by the state that this writer knows, and taken by the one that the vacuum has kept.
    writer.submit(OffsetCommit("offset", "group", (OffsetToCommit(topic.topic_id, 0, 0),)))
    assert given_up.results is not None, "it has taken effect: its owner must not hear that it never will"


def test_hole_4_a_loss_on_a_slot_that_was_created_again_is_not_believed(shared) -> None:
    first, late = shared.client(), shared.client()
    late.fate = lambda operation: Fault.LATE if operation.verb == "put_if_absent" else Fault.NONE
    with pytest.raises(OutcomeUnknown):
        late.submit(InitProducerId("late", "late"), timeout_s=0.001)
    first.fail_next("put_if_absent", Fault.RESPONSE_LOST)
    ticket = first.log.send([InitProducerId("first", "job")])

    def fate(operation):
        """Right after its own put, whose answer is lost: vacuum, and the late put lands in the same slot."""
        if operation.verb == "get" and first.objects.operations[-2].verb == "put_if_absent":
            first.fate = lambda later: Fault.NONE
            vacuum_behind(shared, shared.client())
            late.late[0]()
        return Fault.RESPONSE_LOST if operation.verb == "put_if_absent" else Fault.NONE

    first.fate = fate
    told = ticket.wait()[0]
    assert told.producer_epoch == 0
    fresh = shared.client().log.transaction("job")
    assert fresh is not None
    assert (fresh.producer_id, fresh.producer_epoch) == (told.producer_id, 0)


def test_hole_5_done_before_is_not_answered_from_an_entry_that_was_created_again(shared) -> None:
    """The writer reads its own re-created entry as if it were history; in the log it is not."""
    stale, other = shared.client(), shared.client()
    entry = stale.log.entry
    stale.fate = lambda operation: Fault.LATE if operation.verb == "put_if_absent" else Fault.NONE
    command = InitProducerId("mine", "job")
    with pytest.raises(OutcomeUnknown):
        stale.submit(command, timeout_s=0.001)
    stale.fate = lambda operation: Fault.NONE
    reader = shared.client()
    vacuum_behind(shared, other)
    stale.late[0]()
    assert names.entry(entry + 1) in shared.objects.list_names(names.ENTRIES)
    told = reader.submit(command)[0]
    other.log.refresh()
    transaction = other.log.transaction("job")
    assert transaction is not None
    assert transaction.producer_id == told.producer_id


@pytest.mark.parametrize("recreated", [False, True])
def test_hole_6_a_reader_that_was_paused_sees_the_true_log(shared, recreated: bool) -> None:
    """Its next slot is absent, or holds an entry that never was: in both cases the view is today's."""
    reader, stale, other = shared.client(), shared.client(), shared.client()
    stale.fate = lambda operation: Fault.LATE if operation.verb == "put_if_absent" else Fault.NONE
    with pytest.raises(OutcomeUnknown):
        stale.submit(CreateTopic("never", "never-was", 1), timeout_s=0.001)
    other.submit(CreateTopic("real", "real", 1))
    vacuum_behind(shared, other)
    if recreated:
        stale.late[0]()
    view = reader.log.view(None)
    assert sorted(view.topics) == ["real", "topic"]
    assert view.entry == other.log.entry


def test_a_forked_entry_before_a_true_one_is_no_damage(shared) -> None:
    """The reader meets an entry that does not follow the one before: the log is sound, what it read is void."""
    reader, stale, other = shared.client(), shared.client(), shared.client()
    slot = other.log.entry + 1
    stale.fate = lambda operation: Fault.LATE if operation.verb == "put_if_absent" else Fault.NONE
    with pytest.raises(OutcomeUnknown):
        stale.submit(CreateTopic("never", "never-was", 1), timeout_s=0.001)
    other.submit(CreateTopic("real", "real", 1))
    other.submit(InitProducerId("next", "next"))
    other.log.checkpoint()
    shared.vacuum(slot + 1)
    stale.late[0]()
    assert shared.names_of_entries() == [slot, slot + 1]
    assert sorted(reader.log.view(None).topics) == ["real", "topic"]
    assert stale.log.refresh() == slot + 1
    shared.objects.delete([names.LAST_CHECKPOINT])
    assert sorted(topic.name for topic in shared.client().log.topics()) == ["real", "topic"]


def test_a_forked_entry_in_an_intact_log_is_damage(shared) -> None:
    reader, other = shared.client(), shared.client()
    other.submit(InitProducerId("a", "a"))
    other.submit(InitProducerId("b", "b"))
    last = shared.objects.get(names.entry(3))
    shared.objects.delete([names.entry(2), names.entry(3)])
    shared.client().submit(InitProducerId("fork", "fork"))
    shared.objects.put(names.entry(3), last)
    with pytest.raises(DamagedObject, match="it follows an entry"):
        reader.log.refresh()


def test_hole_7_an_older_horizon_does_not_hide_a_newer_one(shared) -> None:
    reader, other = shared.client(), shared.client()
    horizon = vacuum_behind(shared, other)
    shared.objects.put_if_absent(names.horizon(2), b"horizon")
    other.submit(CreateTopic("real", "real", 1))
    assert horizon > 2
    assert "real" in reader.log.view(None).topics


def test_what_is_read_after_the_confirm_is_not_confirmed(shared) -> None:
    """The slot was resolved by following the log; nothing younger than the confirm may count as confirmed."""
    writer, other = shared.client(), shared.client()
    ticket = writer.log.send([InitProducerId("a", "job")])
    sent = []

    def no_answer(operation):
        if operation.verb == "put_if_absent":
            sent.append(operation)
            return Fault.RESPONSE_LOST
        return Fault.REFUSED if sent else Fault.NONE

    writer.fate = no_answer
    with pytest.raises(OutcomeUnknown), writer.log.within(0.001):
        ticket.wait()
    writer.fate = lambda operation: Fault.NONE
    assert writer.log.refresh() == 2

    def fate(operation):
        if operation.verb == "list_names":
            writer.fate = lambda later: _another_entry(operation)
        return Fault.NONE

    def _another_entry(operation) -> Fault:
        writer.fate = lambda later: Fault.NONE
        other.submit(InitProducerId("b", "other"))
        return Fault.NONE

    writer.fate = fate
    with writer.log.within(1):
        ticket.wait()
    tail = writer.log._follower.tail
    assert tail.confirmed_entry == 2


def test_hole_32_a_view_below_the_horizon_has_expired(shared, client) -> None:
    vacuum_behind(shared, client)
    with pytest.raises(ViewExpired, match="entry 1 "):
        client.log.view(None, entry=1)


@pytest.mark.parametrize("damaged", [None, b"{", b"null", b"[]", b"{}", b"{}\n{}"])
def test_a_view_at_the_horizon_whose_head_is_damaged_or_gone_has_not_expired(shared, client, damaged) -> None:
    """There is a newer checkpoint: it cannot say what was before it, and the entries below the horizon are gone."""
    horizon = vacuum_behind(shared, client)
    (name,) = shared.objects.list_names(names.CHECKPOINTS)
    client.submit(CreateTopic("later", "later", 1))
    client.log.checkpoint()
    shared.objects.delete([name])
    if damaged is not None:
        shared.objects.put(name, damaged)
    client.submit(CreateTopic("last", "last", 1))
    newest = shared.client()
    assert newest.log.view(None).entry == newest.log.entry
    told = name if damaged is not None else f"entries below {horizon} may be gone"
    for read in (
        lambda: newest.log.view(None, entry=horizon),
        lambda: newest.log.view(None, entry=newest.log.entry - 3),
        lambda: newest.log.view(["__transaction_state"]),
        lambda: committing_entry(newest.log, "none:0:1"),
    ):
        with pytest.raises(DamagedObject, match=told):
            read()
    with pytest.raises(ViewExpired, match=f"entry {horizon - 2} "):
        newest.log.view(None, entry=horizon - 2)


def test_a_store_whose_checkpoints_are_all_gone_or_damaged_says_so(shared, client) -> None:
    """Without the entries below the horizon there is no state: an error that names it, not an endless search."""
    horizon = vacuum_behind(shared, client)
    heads = list(shared.objects.list_names(names.CHECKPOINTS))
    for name in heads:
        shared.objects.put(name, b"{damaged")
    with pytest.raises(DamagedObject, match=heads[-1]):
        shared.client()
    shared.objects.delete(heads)
    with pytest.raises(DamagedObject, match=f"entries below {horizon} may be gone"):
        shared.client()
