"""Kafka's coordinator where writes fail, answers get lost, and several processes act at once."""

from __future__ import annotations

import threading

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import InitProducerId
from sparktxn._foundation.values.structs import TransactionStatus
from sparktxn.errors import CommandRefused, ErrorCode, OutcomeUnknown, StoreUnavailable
from sparktxn.testing.faultystore import Fault, Operation
from tests.producercommands import ProducerCommands

LEFT, RIGHT = (1, 0), (1, 1)
DENIED = [Fault.REFUSED, Fault.RESPONSE_LOST, Fault.TWICE]


def just_before_its_put(client, act) -> None:
    """Lets `act` happen between the client's reading of the log and its put, once."""

    def fate(operation):
        if operation.verb == "put_if_absent":
            client.fate = lambda later: Fault.NONE
            act()
        return Fault.NONE

    client.fate = fate


def open_transaction(client, name: str = "job") -> ProducerCommands:
    producer = client.initialise(name, f"first init of {name}")
    client.submit(producer.append(LEFT, 0, transaction=1))
    return producer


def epoch_of(shared, name: str = "job") -> int:
    found = shared.client().log.transaction(name)
    assert found is not None
    return found.producer_epoch


@pytest.mark.kafka("K08", "K16", "K52")
def test_an_init_that_expects_an_epoch_is_fenced_by_those_that_come_between(shared) -> None:
    slow, other = shared.client(), shared.client()
    producer = open_transaction(slow)

    def two_bumps() -> None:
        other.submit(InitProducerId("second", "job"))
        other.submit(InitProducerId("third", "job"))

    just_before_its_put(slow, two_bumps)
    with pytest.raises(CommandRefused) as refused:
        slow.submit(InitProducerId("slow", "job", 60_000, producer.producer_id, producer.producer_epoch))
    assert refused.value.error.code() == ErrorCode.PRODUCER_FENCED
    assert epoch_of(shared) == 3, "fence, init, init"


@pytest.mark.kafka("K16", "K52")
def test_an_init_that_expects_nothing_comes_last(shared) -> None:
    slow, other = shared.client(), shared.client()
    open_transaction(slow)
    just_before_its_put(slow, lambda: other.submit(InitProducerId("second", "job")))
    assert slow.submit(InitProducerId("slow", "job"))[0].producer_epoch == 3
    assert epoch_of(shared) == 3


@pytest.mark.kafka("K09", "K45")
@pytest.mark.parametrize("command", ["init", "time-out"])
@pytest.mark.parametrize("fault", DENIED, ids=lambda fault: fault.value)
@pytest.mark.parametrize("failures", [1, 3])
def test_a_fence_whose_write_fails_bumps_once(shared, command: str, fault: Fault, failures: int) -> None:
    client = shared.client()
    producer = open_transaction(client)
    fence = (
        InitProducerId("fence", "job") if command == "init" else producer.end(1, committed=False, timed_out_after_ms=9)
    )
    failed: list[Operation] = []

    def fate(operation):
        if operation.verb == "put_if_absent" and len(failed) < failures:
            failed.append(operation)
            return fault
        return Fault.NONE

    client.fate = fate
    ticket = client.log.send([fence])
    for _ in range(failures + 1):
        try:
            with client.log.within(0.001):
                ticket.wait()
        except (OutcomeUnknown, StoreUnavailable):
            assert not ticket.is_done()
    assert ticket.is_done()
    assert failed
    assert epoch_of(shared) == (2 if command == "init" else 1)


@pytest.mark.kafka("K17")
def test_producer_ids_are_unique_whoever_asks_at_once(shared) -> None:
    clients = [shared.client() for _ in range(4)]
    told: list[int] = []

    def ask(number: int) -> None:
        client = clients[number % len(clients)]
        for round_ in range(5):
            result = client.submit(InitProducerId(f"{number}-{round_}", f"job-{number}-{round_}"), timeout_s=None)[0]
            told.append(result.producer_id)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == list(range(40))


@pytest.mark.kafka("K17")
def test_a_producer_id_that_was_lost_with_its_slot_is_not_given_twice(shared) -> None:
    slow, other = shared.client(), shared.client()
    just_before_its_put(slow, lambda: other.submit(InitProducerId("theirs", "their job")))
    assert slow.submit(InitProducerId("mine", "my job"))[0].producer_id == 1
    theirs = shared.client().log.transaction("their job")
    assert theirs is not None
    assert theirs.producer_id == 0


@pytest.mark.kafka("K17", "K51")
def test_an_init_that_cannot_be_written_says_so_and_allocates_nothing(shared) -> None:
    client = shared.client()
    client.fate = lambda operation: Fault.REFUSED if operation.verb == "get" else Fault.NONE
    with pytest.raises(StoreUnavailable):
        client.submit(InitProducerId("a", "job"), timeout_s=0.001)
    client.fate = lambda operation: Fault.NONE
    assert client.submit(InitProducerId("b", "job"))[0].producer_id == 0


@pytest.mark.kafka("K52", "K67")
def test_a_coordinator_that_was_paused_before_its_put_ends_nothing(shared) -> None:
    """Its end was checked against a state with the transaction open; it loses the slot, and is checked again."""
    paused, other = shared.client(), shared.client()
    producer = open_transaction(paused)
    just_before_its_put(paused, lambda: other.submit(InitProducerId("newer", "job")))
    with pytest.raises(CommandRefused) as refused:
        paused.submit(producer.append(RIGHT, 0, transaction=1), producer.end(1))
    assert refused.value.error.code() == ErrorCode.INVALID_PRODUCER_EPOCH
    view = shared.client().log.view(["topic"])
    assert [len(partition.aborted) for partition in view.partitions.values()] == [1, 0]
    assert all(partition.last_stable_offset == partition.log_end_offset for partition in view.partitions.values())


@pytest.mark.kafka("K50", "K88")
@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("committed", [True, False])
def test_a_new_process_finds_open_transactions_and_may_end_them(shared, checkpointed: bool, committed: bool) -> None:
    first = shared.client()
    producer = open_transaction(first)
    first.submit(producer.offset(1, "group", LEFT, 5))
    if checkpointed:
        first.log.checkpoint()
    second = shared.client()
    found = second.log.transaction("job")
    assert found is not None
    assert (found.status, found.partitions) == (TransactionStatus.ONGOING, (LEFT,))
    second.submit(producer.end(1, committed=committed))
    assert first.submit(producer.end(1, committed=committed))[0].duplicate
    offset = shared.client().log.committed_offset("group", *LEFT)
    assert (offset.offset if offset else None) == (5 if committed else None)


@pytest.mark.kafka("K57", "K87")
def test_five_batches_are_recognised_after_a_reload(shared) -> None:
    """Kafka's snapshot keeps one."""
    first = shared.client()
    first.producer = ProducerCommands.of(None, first.submit(InitProducerId("init", None))[0])
    batches = [first.producer.append(LEFT, sequence) for sequence in range(8)]
    for batch in batches:
        first.submit(batch)
    first.log.checkpoint()
    second = shared.client()
    entry = second.log.entry
    told = [second.submit(batch)[0] for batch in batches[3:]]
    assert [(result.duplicate, result.base_offset) for result in told] == [(True, offset) for offset in range(3, 8)]
    assert second.log.entry == entry
    with pytest.raises(CommandRefused) as refused:
        second.submit(batches[2])
    assert refused.value.error.code() == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.kafka("K90", "K94")
def test_what_has_nothing_new_is_not_sealed_again(shared, client) -> None:
    def sidecars() -> set[str]:
        return {info.name for info in shared.objects.list("topics/") if info.name.endswith((".snapshot", ".txnindex"))}

    client.initialise("job", "init")
    for number in (1, 2, 3):
        client.submit(*client.fused(number, number - 1))
    client.log.checkpoint()
    sealed = sidecars()
    assert len(sealed) == 2
    client.log.checkpoint()
    client.submit(InitProducerId("other", "other"))
    client.log.checkpoint()
    assert sidecars() == sealed


@pytest.mark.kafka("K72", "K91")
def test_a_view_before_the_end_shows_the_transaction_open_again(shared, client) -> None:
    producer = open_transaction(client)
    opened = client.log.entry
    client.submit(producer.append(RIGHT, 0, transaction=1))
    client.submit(producer.end(1, committed=False))
    later = client.log.view(["topic"]).partitions["topic", 0]
    before = client.log.view(["topic"], entry=opened).partitions["topic", 0]
    assert (later.last_stable_offset, later.log_end_offset, len(later.aborted)) == (2, 2, 1)
    assert (before.last_stable_offset, before.log_end_offset, len(before.aborted)) == (0, 1, 0)


@pytest.mark.kafka("K76", "K78", "K80")
def test_an_index_is_sealed_with_the_run_that_holds_the_end(shared, client) -> None:
    """The run before it has the records; a crash before the checkpoint's head leaves an index that no head names."""
    producer = client.initialise("job", "init")
    plain = ProducerCommands.of(None, client.submit(InitProducerId("plain", None))[0])
    client.submit(producer.append(LEFT, 0, transaction=1))
    client.submit(plain.append(LEFT, 0))
    client.log.checkpoint()
    client.fate = lambda operation: Fault.REFUSED if operation.name.startswith(names.CHECKPOINTS) else Fault.NONE
    client.submit(plain.append(LEFT, 1))
    client.submit(plain.append(LEFT, 2))
    client.submit(producer.end(1, committed=False))
    with pytest.raises(StoreUnavailable):
        client.log.checkpoint()
    client.fate = lambda operation: Fault.NONE
    view = client.log.view(["topic"]).partitions["topic", 0]
    assert (view.last_stable_offset, len(view.aborted)) == (5, 1)
    client.log.checkpoint()
    for log in (client.log, shared.client().log):
        sealed = log.view(["topic"]).partitions["topic", 0]
        assert [(run.base_offset, run.aborted_count) for run in sealed.sealed] == [(0, 0), (2, 1)]
        assert (sealed.last_stable_offset, sealed.aborted) == (5, ())
