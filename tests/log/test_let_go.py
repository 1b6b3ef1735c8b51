"""A list that its owner has let go of is known to have happened, known not to have happened, or is not put again."""

from __future__ import annotations

import gc
from random import Random
from typing import Any

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import InitProducerId, OffsetCommit, OffsetToCommit
from sparktxn._engine.format.entry import decode_entry
from sparktxn.errors import CommandRefused, KafkaException, OutcomeUnknown, StoreUnavailable
from sparktxn.testing.faultystore import Died, Fault, Operation

LEFT = (1, 0)


def offset_commit(request_id: str, offset: int = 1, group: str = "group") -> OffsetCommit:
    return OffsetCommit(request_id, group, (OffsetToCommit(*LEFT, offset),))


def is_entry_put(operation: Operation) -> bool:
    return operation.verb == "put_if_absent" and names.parse_entry(operation.name) is not None


def hang(client: Any, fault: Fault) -> None:
    """Entries are put, and it stays unknown whether they have landed."""
    client.fate = lambda operation: fault if is_entry_put(operation) else Fault.NONE


def recover(client: Any) -> None:
    client.fate = lambda operation: Fault.NONE


def requests_in(shared: Any) -> list[str]:
    """The request ids in the log, in order."""
    return [
        command.request_id
        for number in shared.names_of_entries()
        for command in decode_entry(shared.objects.get(names.entry(number)), "", number).commands
        if hasattr(command, "request_id")
    ]


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LATE])
def test_a_list_whose_caller_has_stopped_waiting_is_not_put_by_a_later_call(shared, client, fault: Fault) -> None:
    hang(client, fault)
    with pytest.raises(OutcomeUnknown, match="it may have taken effect; this process does not try again"):
        client.submit(InitProducerId("late", "job"), timeout_s=0.5)
    owner = shared.client()
    owner.initialise("job", "owner")
    recover(client)
    client.submit(offset_commit("other"))
    assert requests_in(shared) == ["topic", "owner", "other"]
    for put in client.late:
        put()
    assert client.log.transaction("job").producer_epoch == 0
    assert shared.client().log.entry == 3


def test_the_others_in_its_entry_go_into_another_one_in_its_place(shared, client) -> None:
    hang(client, Fault.LATE)
    given_up = client.log.send([offset_commit("given up")])
    held = client.log.send([offset_commit("held", 2, "held")])
    with pytest.raises(OutcomeUnknown), client.log.within(0.5):
        held.wait()
    assert not given_up.let_go()
    recover(client)
    client.submit(offset_commit("new", 3, "new"))
    assert requests_in(shared) == ["topic", "held", "new"]
    with client.log.within(0):
        assert held.wait()
    assert given_up.error is not None
    for put in client.late:
        put()
    assert shared.client().log.group_ids() == ["held", "new"]


def test_a_body_that_lands_late_before_the_one_in_its_place_has_happened(shared, client) -> None:
    hang(client, Fault.LATE)
    given_up = client.log.send([offset_commit("given up")])
    held = client.log.send([offset_commit("held", 2, "held")])
    with pytest.raises(OutcomeUnknown), client.log.within(0.5):
        held.wait()
    given_up.let_go()

    def lands_before_the_next_put(operation: Operation) -> Fault:
        if is_entry_put(operation):
            client.fate = lambda later: Fault.NONE
            client.late[0]()
        return Fault.NONE

    client.fate = lands_before_the_next_put
    client.submit(offset_commit("new", 3, "new"))
    assert requests_in(shared) == ["topic", "given up", "held", "new"]
    assert given_up.results is not None
    with client.log.within(0):
        assert held.wait()
    assert shared.client().log.group_ids() == ["group", "held", "new"]


def test_three_bodies_for_one_slot(shared, client) -> None:
    """Each is given up in turn; the first of them lands after the third was put and was not answered."""
    hang(client, Fault.LATE)
    for number in range(3):
        with pytest.raises(OutcomeUnknown):
            client.submit(offset_commit(f"{number}", group=f"group-{number}"), timeout_s=0.5)
    client.late[0]()
    recover(client)
    client.submit(offset_commit("last"))
    assert requests_in(shared) == ["topic", "0", "last"]
    for put in client.late:
        put()
    assert shared.client().log.entry == 3


def test_a_body_of_which_all_is_given_up_is_not_put_again(shared, client) -> None:
    hang(client, Fault.LATE)
    with pytest.raises(OutcomeUnknown):
        client.submit(offset_commit("given up"), timeout_s=0.5)
    recover(client)
    with pytest.raises(CommandRefused):
        client.submit(offset_commit("refused", -1))
    assert requests_in(shared) == ["topic"]
    assert shared.client().submit(offset_commit("another process"))
    client.submit(offset_commit("own"))
    assert requests_in(shared) == ["topic", "another process", "own"]


def test_a_list_that_has_lost_its_slot_and_was_given_up_is_known_not_to_have_happened(shared, client) -> None:
    rival = shared.client()

    def rival_wins(operation: Operation) -> Fault:
        if is_entry_put(operation):
            rival.submit(offset_commit(f"rival {operation.number}", group="rival"))
            shared.clock.sleep(1.0)
        return Fault.NONE

    client.fate = rival_wins
    with pytest.raises(StoreUnavailable, match="nothing was written, and nothing will be"):
        client.submit(InitProducerId("late", "job"), timeout_s=3)
    recover(client)
    client.submit(offset_commit("other"))
    assert "late" not in requests_in(shared)


def test_a_list_in_an_intent_that_was_given_up_is_cancelled_by_the_next_writer(shared, client) -> None:
    rival = shared.client()

    def rival_wins(operation: Operation) -> Fault:
        if is_entry_put(operation):
            rival.log._committer._intents._listed_s = shared.clock.monotonic_s()
            rival.log._committer._intents._listing_s = 1_000.0
            rival.submit(offset_commit(f"rival {operation.number}", group="rival"))
            shared.clock.sleep(1.0)
        return Fault.NONE

    client.fate = rival_wins
    with pytest.raises(OutcomeUnknown):
        client.submit(offset_commit("late"), timeout_s=3)
    assert shared.objects.list_names(names.INTENTS)
    recover(client)
    client.submit(offset_commit("other", group="other"))
    rival.submit(offset_commit("again", group="rival"))
    shared.client().submit(offset_commit("new process", group="rival"))
    assert "late" not in requests_in(shared)


def test_a_put_that_cannot_have_landed_leaves_nothing_unknown(shared, client) -> None:
    hang(client, Fault.UNAVAILABLE)
    with pytest.raises(StoreUnavailable, match="nothing was written, and nothing will be"):
        client.submit(offset_commit("no space"), timeout_s=0.5)
    recover(client)
    client.submit(offset_commit("other"))
    assert requests_in(shared) == ["topic", "other"]


def test_a_list_that_its_owner_has_forgotten_is_never_written(shared, client) -> None:
    client.log.send([offset_commit("forgotten")])
    gc.collect()
    client.submit(offset_commit("other"))
    assert requests_in(shared) == ["topic", "other"]


def test_an_interrupted_call_is_not_finished_by_another(shared, client) -> None:
    for verb in ("get", "put_if_absent", "list_names"):
        client.fail_next(verb, Fault.DIE_BEFORE)
        with pytest.raises(Died):
            client.submit(offset_commit(f"interrupted at {verb}"))
        client.objects._dead = False
    recover(client)
    client.submit(offset_commit("other"))
    interrupted = [found for found in requests_in(shared) if found.startswith("interrupted")]
    assert interrupted in ([], ["interrupted at list_names"])


def test_who_is_refused_for_another_clients_entry_is_told_that_nothing_of_its_own_was_written(shared, client) -> None:
    hang(client, Fault.LATE)
    first = client.log.send([offset_commit("first")])
    with pytest.raises(OutcomeUnknown), client.log.within(0.5):
        first.wait()
    with pytest.raises(StoreUnavailable, match="nothing was written, and nothing will be"):
        client.submit(offset_commit("second"), timeout_s=0.5)
    recover(client)
    with client.log.within(1):
        assert first.wait()
    assert requests_in(shared) == ["topic", "first"]


class _Call:
    """One list, and the answer to its owner: None while it holds the ticket."""

    def __init__(self, key: tuple[int, str], ticket: Any) -> None:
        self.key = key
        self.request_id = key[1]
        self.ticket = ticket
        self.happened: bool | None = None
        self.is_unknown = False
        self.puts_at_the_end = -1


@pytest.mark.parametrize("seed", range(150))
def test_whatever_fails_and_whoever_gives_up(shared, seed: int) -> None:
    """Two processes, random faults and late puts; lists are waited for, given up, cancelled or forgotten at random."""
    random = Random(seed)
    processes = [shared.client(), shared.client()]
    puts: dict[tuple[int, str], int] = {}
    calls: list[_Call] = []
    faults = [Fault.NONE, Fault.NONE, Fault.REFUSED, Fault.LATE, Fault.RESPONSE_LOST, Fault.UNAVAILABLE]
    for process in processes:
        process.objects.probe_is_cheap = random.random() < 0.5
        process.fate = lambda operation: random.choice(faults) if random.random() < 0.5 else Fault.NONE
        _count_puts(process, puts)
    for number in range(40):
        process = random.choice(processes)
        if process.late and random.random() < 0.3:
            process.late.pop(random.randrange(len(process.late)))()
        request_id = f"call-{number}-"
        try:
            call = _Call((id(process), request_id), process.log.send([offset_commit(request_id, number)]))
        except StoreUnavailable:
            continue
        calls.append(call)
        _work(random.choice(calls[-4:]), process, random, puts)
    for process in processes:
        recover(process)
        process.submit(offset_commit(f"end {id(process)}"))
    _settle(calls, processes, puts, shared)


def _count_puts(process: Any, puts: dict[tuple[int, str], int]) -> None:
    """Notes how often the process has put a body with each request."""
    put = process.objects.put_if_absent

    def counting(name: str, data: bytes, *, timeout_s: float | None = None) -> Any:
        if names.parse_entry(name) is not None:
            for text in data.decode().split('"'):
                if text.startswith("call-"):
                    puts[id(process), text] = puts.get((id(process), text), 0) + 1
        return put(name, data, timeout_s=timeout_s)

    process.objects.put_if_absent = counting


def _work(call: _Call, process: Any, random: Random, puts: dict[tuple[int, str], int]) -> None:
    if call.puts_at_the_end >= 0:
        return
    try:
        match random.choice(["wait", "wait once", "let go", "cancel"]):
            case "wait":
                with process.log.within(random.choice([0.02, 0.1])):
                    call.ticket.wait()
                call.happened = True
            case "wait once":
                with process.log.within(random.choice([0.02, 0.1])):
                    call.ticket.wait_once()
                call.happened = True
            case "let go":
                call.happened = False if call.ticket.let_go() else None
            case "cancel":
                with process.log.within(0.1):
                    call.happened = not call.ticket.cancel()
    except OutcomeUnknown:
        call.is_unknown = True
    except StoreUnavailable as error:
        if "nothing will be" in str(error):
            call.happened = False
    except KafkaException:
        call.happened = False
    if call.happened is not None or call.ticket._list.let_go:
        call.puts_at_the_end = puts.get(call.key, 0)


def _settle(calls: list[_Call], processes: list[Any], puts: dict[tuple[int, str], int], shared: Any) -> None:
    for process in processes:
        for put in process.late:
            put()
    stored = requests_in(shared)
    for call in calls:
        assert stored.count(call.request_id) <= 1
        if call.happened is not None:
            assert (call.request_id in stored) == call.happened, f"{call.request_id}: told {call.happened}"
        if call.ticket._list.let_go and call.puts_at_the_end >= 0 and not call.ticket.results:
            assert puts.get(call.key, 0) == call.puts_at_the_end, f"{call.request_id} was put after it was let go"
    assert shared.client().log.entry == len(shared.names_of_entries())
