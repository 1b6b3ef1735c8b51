"""Intents: lists that a process leaves to the winner, on a store that fails on request.

The holes are those of an earlier draft, by their numbers; each test is the shortest trace that showed one.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import (
    CancelIntent,
    Command,
    CommandResult,
    CreateTopic,
    InitProducerId,
    OffsetCommit,
    OffsetToCommit,
    SettleIntent,
)
from sparktxn._engine.format.entry import decode_entry, encode_intent, list_id
from sparktxn.errors import CommandRefused, DamagedObject, ErrorCode, OutcomeUnknown
from sparktxn.testing.faultystore import Died, Fault, Operation

LEFT, RIGHT = (1, 0), (1, 1)
requests = count()


def offset_commit(topic_id: int = 1, group: str = "group") -> OffsetCommit:
    return OffsetCommit(f"request {next(requests)}", group, (OffsetToCommit(topic_id, 0, 1),))


def is_intent(operation: Operation) -> bool:
    return operation.verb == "put" and operation.name.startswith(names.INTENTS)


def is_entry_put(operation: Operation) -> bool:
    return operation.verb == "put_if_absent" and names.parse_entry(operation.name) is not None


def commands_of(shared) -> list[Command]:
    return [
        command
        for number in shared.names_of_entries()
        for command in decode_entry(shared.objects.get(names.entry(number)), "", number).commands
    ]


def settlements(shared) -> list[Any]:
    """Return the commands that settle intents: SettleIntent and CancelIntent."""
    return [command for command in commands_of(shared) if isinstance(command, SettleIntent | CancelIntent)]


def intents_left(shared) -> list[str]:
    return shared.objects.list_names(names.INTENTS)


def commit_something(client) -> None:
    """An entry of this process, which looks for intents before."""
    client.log.clock.now_s += 1
    client.submit(offset_commit(group="other"))


def lose_then(other, client, fate, winning: Command | None = None) -> None:
    """Lets another process take the slot that the client is about to put; then `fate` decides."""

    def let_win(operation: Operation) -> Fault:
        if is_entry_put(operation):
            client.fate = fate
            other.submit(winning or offset_commit(group="winner"))
        return Fault.NONE

    client.fate = let_win


def die_after_leaving(operation: Operation) -> Fault:
    return Fault.DIE_AFTER if is_intent(operation) else Fault.NONE


def leave_and_die(shared, *commands: Command, other=None) -> None:
    """A process leaves the list in an intent, and is gone."""
    owner = shared.client()
    lose_then(other or shared.client(), owner, die_after_leaving)
    with pytest.raises(Died):
        owner.submit(*commands)


def leave_and_hang(shared, owner, *commands: Command, winning: Command | None = None):
    """A process leaves the list in an intent; then its store does not answer until the deadline."""

    def fate(operation: Operation) -> Fault:
        if is_intent(operation):
            owner.fate = lambda later: Fault.REFUSED
        return Fault.NONE

    lose_then(shared.client(), owner, fate, winning)
    ticket = owner.log.send(commands)
    with pytest.raises(OutcomeUnknown), owner.log.within(0.5):
        ticket.wait()
    owner.fate = lambda operation: Fault.NONE
    return ticket


def test_a_winner_takes_up_what_a_dead_process_has_left_and_deletes_it(shared, client) -> None:
    leave_and_die(shared, offset_commit())
    assert len(intents_left(shared)) == 1
    commit_something(client)
    assert [(settled.command_count, settled.refused_code) for settled in settlements(shared)] == [(1, 0)]
    assert client.log.committed_offset("group", *LEFT).offset == 1
    assert intents_left(shared) == []


def test_the_owner_learns_its_results_from_the_entry_of_another(shared, client) -> None:
    owner = shared.client()
    producer = owner.initialise("job", "init")
    ticket = leave_and_hang(shared, owner, producer.append(LEFT, 0, 3, transaction=1), producer.end(1))
    commit_something(client)
    entries = shared.names_of_entries()
    with owner.log.within(1):
        assert ticket.wait()[0] == CommandResult(base_offset=0, timestamp_ms=ticket.results[0].timestamp_ms)
    assert shared.names_of_entries() == entries


def test_the_results_are_those_of_before_a_fence(shared, client) -> None:
    """Validated against the state of now, the list would be refused, though it has taken effect."""
    owner = shared.client()
    producer = owner.initialise("job", "init")
    ticket = leave_and_hang(shared, owner, producer.append(LEFT, 0, 3, transaction=1), producer.end(1))
    commit_something(client)
    client.submit(InitProducerId("fence", "job"))
    with owner.log.within(1):
        assert ticket.wait()[0].base_offset == 0


def test_an_entry_may_settle_many_lists_of_many_owners(shared, client) -> None:
    first = shared.client()
    lists = [[offset_commit(group=f"group {number}")] for number in range(3)]
    tickets = [first.log.send(list_) for list_ in lists]
    lose_then(client, first, lambda operation: Fault.NONE)
    leave_and_die(shared, offset_commit(group="dead"))
    for ticket in tickets:
        ticket.wait()
    commit_something(client)
    assert {client.log.committed_offset(f"group {number}", *LEFT).offset for number in range(3)} == {1}
    assert client.log.committed_offset("dead", *LEFT).offset == 1


@pytest.mark.holes(15)
def test_hole_15_a_list_that_its_owner_has_put_itself_is_not_taken_up_again(shared, client) -> None:
    owner = shared.client()
    lose_then(client, owner, lambda operation: Fault.REFUSED if operation.verb == "delete" else Fault.NONE)
    owner.submit(offset_commit())
    assert len(intents_left(shared)) == 1
    commit_something(client)
    assert len(settlements(shared)) == 1
    assert intents_left(shared) == []


@pytest.mark.holes(15)
def test_hole_15_a_list_that_was_read_before_and_is_taken_up_after_the_memory_has_ended(
    shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparktxn._engine.state.intents.INTENT_WINDOW", 3)
    slow, other = shared.client(), shared.client()
    leave_and_die(shared, offset_commit(), other=other)
    # The slow one has read the intent; before its put, others settle it, and so many entries follow that all forget it.
    slow.fate = lambda operation: _meanwhile(slow, other, operation)
    slow.log.clock.now_s += 1
    slow.submit(offset_commit(group="slow"), timeout_s=None)
    ids = [settled.intent_id for settled in settlements(shared)]
    assert len(ids) == len(set(ids)) == 1


def _meanwhile(slow, other, operation: Operation) -> Fault:
    if is_entry_put(operation):
        slow.fate = lambda later: Fault.NONE
        for _ in range(6):
            commit_something(other)
    return Fault.NONE


@pytest.mark.holes(15)
def test_hole_15_an_entry_that_settles_an_id_again_is_no_entry(shared, client) -> None:
    settle = SettleIntent("id-0", client.log.entry, 0)
    client.submit(settle)
    with pytest.raises(CommandRefused, match="is settled"):
        client.submit(settle)
    with pytest.raises(CommandRefused, match="is settled"):
        client.submit(CancelIntent("id-0", settle.base_entry))


@pytest.mark.holes(16)
def test_hole_16_the_owners_own_refusal_is_an_entry(shared, client) -> None:
    """Otherwise it reports "failed", the topic is created, and a winner applies the list."""
    owner = shared.client()
    lose_then(client, owner, lambda operation: Fault.REFUSED if operation.verb == "delete" else Fault.NONE)
    ticket = owner.log.send([offset_commit(topic_id=2)])
    other_ticket = owner.log.send([offset_commit(group="besides")])
    with owner.log.within(1):
        other_ticket.wait()
    with pytest.raises(CommandRefused) as error, owner.log.within(1):
        ticket.wait()
    assert error.value.error.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    client.submit(CreateTopic("two", "two", 1))
    commit_something(client)
    assert client.log.committed_offset("group", 2, 0) is None
    assert [settled.refused_code for settled in settlements(shared)].count(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) == 1


@pytest.mark.holes(16)
def test_hole_16_a_winners_refusal_is_an_entry_and_the_owner_is_told(shared, client) -> None:
    owner = shared.client()
    producer = owner.initialise("job", "init")
    commands = [producer.append(LEFT, 0, transaction=1), producer.end(1)]
    ticket = leave_and_hang(shared, owner, *commands, winning=InitProducerId("fence", "job"))
    commit_something(client)
    with pytest.raises(CommandRefused) as error, owner.log.within(1):
        ticket.wait()
    assert error.value.error.code() == ErrorCode.INVALID_PRODUCER_EPOCH
    assert settlements(shared)[0].reason


@pytest.mark.holes(17)
def test_hole_17_a_cancel_is_an_entry_and_nobody_applies_the_list_afterwards(shared, client) -> None:
    owner = shared.client()
    ticket = leave_and_hang(shared, owner, offset_commit())
    assert not ticket.withdraw()
    owner.fate = lambda operation: Fault.REFUSED if operation.verb == "delete" else Fault.NONE
    with owner.log.within(1):
        assert ticket.cancel()
    assert isinstance(settlements(shared)[0], CancelIntent)
    commit_something(client)
    assert client.log.committed_offset("group", *LEFT) is None
    assert len(settlements(shared)) == 1


@pytest.mark.holes(17)
def test_hole_17_a_cancel_after_the_list_was_applied_says_so(shared, client) -> None:
    owner = shared.client()
    ticket = leave_and_hang(shared, owner, offset_commit())
    commit_something(client)
    with owner.log.within(1):
        assert not ticket.cancel()
    with owner.log.within(1):
        assert ticket.wait() == [CommandResult.EMPTY]


@pytest.mark.holes(17)
@pytest.mark.parametrize("window", [3, 1_000])
def test_hole_17_a_cancel_after_the_memory_has_ended_does_not_say_that_the_list_was_not_applied(
    shared, client, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr("sparktxn._engine.state.intents.INTENT_WINDOW", window)
    owner = shared.client()
    ticket = leave_and_hang(shared, owner, offset_commit())
    for _ in range(6):
        commit_something(client)
    with owner.log.within(1):
        assert not ticket.cancel()
    assert ticket.results == [CommandResult.EMPTY]


@pytest.mark.holes(17)
def test_an_expired_intent_of_an_owner_that_has_read_every_entry_is_put_anew(
    shared, client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparktxn._engine.state.intents.INTENT_WINDOW", 3)
    owner = shared.client()
    ticket = leave_and_hang(shared, owner, offset_commit())
    shared.objects.delete(intents_left(shared))
    for _ in range(6):
        commit_something(client)
    with owner.log.within(1):
        assert ticket.wait() == [CommandResult.EMPTY]
    assert settlements(shared) == []


def test_an_expired_intent_is_deleted_and_never_applied(shared, client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparktxn._engine.state.intents.INTENT_WINDOW", 3)
    leave_and_die(shared, offset_commit())
    client.log._committer._intents._listed_s = client.log.clock.monotonic_s()  # this one has looked just now
    client.log._committer._intents._listing_s = 1_000.0
    for _ in range(6):
        client.submit(offset_commit(group="other"))
    commit_something(shared.client())
    assert settlements(shared) == []
    assert intents_left(shared) == []


@pytest.mark.holes(34)
def test_hole_34_a_lone_winner_that_never_loses_takes_up_what_waits(shared, client) -> None:
    for _ in range(3):
        client.submit(offset_commit(group="hot"))
    leave_and_die(shared, offset_commit())
    for _ in range(3):
        client.log.clock.now_s += 1
        client.submit(offset_commit(group="hot"))
    assert client.log.committed_offset("group", *LEFT).offset == 1


@pytest.mark.holes(34)
def test_a_lone_writer_lists_no_intents_before_most_entries(shared, client) -> None:
    client.submit(offset_commit())
    intents = client.log._committer._intents
    intents._listing_s = 0.02  # what a listing takes there
    before = len(client.objects.operations)
    for _ in range(100):
        client.log.clock.now_s += 0.1
        client.submit(offset_commit())
    listings = [one for one in client.objects.operations[before:] if one.name == names.INTENTS]
    assert 1 <= len(listings) <= 100


@pytest.mark.holes(18)
def test_hole_18_an_intent_whose_put_was_not_answered_is_settled_all_the_same(shared, client) -> None:
    """The object may appear late: until an entry settles its list, "failed" would be a guess."""
    owner = shared.client()

    def fate(operation: Operation) -> Fault:
        return Fault.LATE if is_intent(operation) else Fault.NONE

    lose_then(client, owner, fate)
    owner.submit(offset_commit())
    for put in owner.late:
        put()
    assert len(intents_left(shared)) == 1
    commit_something(client)
    assert len(settlements(shared)) == 1
    assert intents_left(shared) == []


@pytest.mark.holes(19)
def test_hole_19_an_intent_is_not_added_to_a_body_that_was_sent(shared, client) -> None:
    client.fate = lambda operation: Fault.LATE if is_entry_put(operation) else Fault.NONE
    ticket = client.log.send([offset_commit(group="own")])
    with pytest.raises(OutcomeUnknown), client.log.within(0.001):
        ticket.wait()
    client.fate = lambda operation: Fault.NONE
    name = names.intent(client.log.entry, "0" * 20)
    shared.objects.put(name, encode_intent("0" * 20, client.log.entry, [[offset_commit()]]))
    with client.log.within(1):
        assert ticket.wait()
    for put in client.late:
        put()
    assert settlements(shared) == []
    commit_something(client)
    assert len(settlements(shared)) == 1


@pytest.mark.holes(20)
def test_hole_20_a_list_in_an_intent_cannot_be_withdrawn_without_an_entry(shared, client) -> None:
    owner = shared.client()
    ticket = leave_and_hang(shared, owner, offset_commit())
    assert not ticket.withdraw()
    commit_something(client)
    assert client.log.committed_offset("group", *LEFT).offset == 1


def test_an_init_never_travels(shared, client) -> None:
    """An init that a dead owner has left would fence the instance that took its place."""
    owner = shared.client()
    lose_then(client, owner, lambda operation: Fault.NONE)
    owner.submit(InitProducerId("init", "job"))
    assert not any(is_intent(operation) for operation in owner.objects.operations)
    name = names.intent(1, "1" * 20)
    shared.objects.put(name, encode_intent("1" * 20, 1, [[InitProducerId("late", "job")]]))
    commit_something(client)
    assert client.log.transaction("job").producer_epoch == 0
    assert settlements(shared) == []


@pytest.mark.parametrize("data", [b"", b"{}", b'{"format":1}', b"nothing"])
def test_an_intent_that_cannot_be_read_hinders_nobody(shared, client, data: bytes) -> None:
    shared.objects.put(names.intent(1, "1" * 20), data or b" ")
    leave_and_die(shared, offset_commit())
    commit_something(client)
    assert client.log.committed_offset("group", *LEFT).offset == 1


def test_an_intent_in_a_large_entry_is_settled_with_the_appends_that_went_elsewhere(shared, client) -> None:
    owner = shared.client()
    producer = owner.initialise("job", "init")
    appends = [producer.append(LEFT if number % 2 else RIGHT, number // 2, transaction=1) for number in range(400)]
    ticket = leave_and_hang(shared, owner, *appends, producer.end(1))
    more = client.initialise("big", "big")
    client.log.clock.now_s += 1
    client.submit(*[more.append(LEFT, number) for number in range(1_400)])
    assert any(name.endswith(".parquet") for name in shared.objects.list_names(names.APPENDS))
    with owner.log.within(1):
        results = ticket.wait()
    assert len(results) == 401
    assert results[-2].base_offset == max(result.base_offset for result in results[1:-1:2])
    assert shared.client().log.entry == client.log.entry


def test_two_lists_of_one_process_are_never_in_two_intents(shared, client) -> None:
    """Their objects could be taken up in the wrong order."""
    owner = shared.client()
    producer = owner.initialise("job", "init")
    first = leave_and_hang(shared, owner, producer.append(LEFT, 0))
    lose_then(client, owner, lambda operation: Fault.NONE)
    second = owner.log.send([producer.append(LEFT, 1)])
    with owner.log.within(1):
        second.wait()
    with owner.log.within(1):
        assert first.wait()[0].base_offset == 0
    assert len([one for one in owner.objects.operations if is_intent(one)]) == 1


def test_the_oldest_intents_are_settled_first(shared, client) -> None:
    for _ in range(3):
        commit_something(client)
    for token, base_entry in (("0" * 20, 4), ("1" * 20, 3), ("2" * 20, 1)):
        shared.objects.put(names.intent(base_entry, token), encode_intent(token, base_entry, [[offset_commit()]]))
    commit_something(client)
    assert [one.intent_id for one in settlements(shared)] == [list_id(digit * 20, 0) for digit in "210"]


def test_an_owner_that_has_lost_sight_of_the_log_asks_the_state(shared, client) -> None:
    """Its entries were vacuumed; the checkpoint's state remembers how the id was settled."""
    owner = shared.client()
    ticket = leave_and_hang(shared, owner, offset_commit())
    commit_something(client)
    client.log.checkpoint()
    commit_something(client)
    shared.vacuum(client.log.entry)
    with owner.log.within(1):
        assert ticket.wait() == [CommandResult(duplicate=True)]


def test_an_owner_that_cannot_know_says_so(shared, client, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = shared.client()
    producer = owner.initialise("job", "init")
    ticket = leave_and_hang(shared, owner, producer.append(LEFT, 0, transaction=1), producer.end(1))
    commit_something(client)
    client.submit(InitProducerId("fence", "job"))
    client.log.checkpoint()
    commit_something(client)
    shared.vacuum(client.log.entry)
    with pytest.raises(OutcomeUnknown, match="was applied"), owner.log.within(1):
        ticket.wait()


def _crash_points() -> list[tuple[str, int, Fault]]:
    return [
        (who, number, fault)
        for who in ("owner", "winner")
        for number in range(1, 14)
        for fault in (Fault.DIE_BEFORE, Fault.DIE_AFTER, Fault.RESPONSE_LOST, Fault.LATE)
    ]


@pytest.mark.parametrize(
    ("who", "number", "fault"), _crash_points(), ids=lambda value: getattr(value, "value", str(value))
)
@pytest.mark.holes(15, 16)
def test_whoever_dies_wherever_a_list_takes_effect_at_most_once(shared, who: str, number: int, fault: Fault) -> None:
    owner, winner = shared.client(), shared.client()
    producer = owner.initialise("job", "init")
    commands = [producer.append(LEFT, 0, transaction=1), producer.end(1)]
    clients = {"owner": owner, "winner": winner}
    seen = 0

    def fate(operation: Operation) -> Fault:
        nonlocal seen
        seen += 1
        return fault if seen == number else Fault.NONE

    acknowledged = False
    lose_then(winner, owner, fate if who == "owner" else lambda operation: Fault.NONE)
    ticket = owner.log.send(commands)
    try:
        with owner.log.within(0.05):
            ticket.wait()
        acknowledged = True
    except (Died, OutcomeUnknown):
        pass
    if who == "winner":
        winner.fate = fate
    for _ in range(2):
        try:
            commit_something(winner)
        except Died:
            break
    for put in clients[who].late:
        put()
    last = shared.client()
    commit_something(last)
    appends = [command for command in commands_of(shared) if command == commands[0]]
    assert len(appends) <= 1
    if acknowledged:
        assert len(appends) == 1
    if not isinstance(ticket.error, CommandRefused) and not owner.objects._dead:
        owner.fate = lambda operation: Fault.NONE
        assert ticket.wait()[0].base_offset == 0
    ids = [settled.intent_id for settled in settlements(shared)]
    assert len(ids) == len(set(ids))
    try:
        with last.log.within(1):
            last.log.refresh()
    except DamagedObject as damaged:
        pytest.fail(str(damaged))
