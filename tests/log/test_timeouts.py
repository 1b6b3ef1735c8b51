"""Time-outs that writers and waiting readers propose, by their own monotonic clock (K44, K45; hole 26)."""

from __future__ import annotations

import pytest

from sparktxn._engine.format.commands import InitProducerId, PrepareTxn
from sparktxn._foundation.process.background import ThreadBackground
from sparktxn._foundation.values.structs import TransactionStatus
from sparktxn.errors import CommandRefused, ErrorCode
from sparktxn.testing.clocks import StrictBackground
from sparktxn.testing.faultystore import Fault
from tests.log.conftest import LEFT, RIGHT, Client, Shared
from tests.producercommands import ProducerCommands
from tests.world import open_log

TIMEOUT_S = 60


def victim(client: Client) -> ProducerCommands:
    """A producer that has published in the left partition and is heard of no more."""
    producer = client.initialise("victim", "victim")
    client.submit(producer.append(LEFT, 0, transaction=1))
    return producer


def status(client: Client) -> TransactionStatus:
    client.log.refresh()
    transaction = client.log.transaction("victim")
    assert transaction is not None
    return transaction.status


def held(client: Client) -> bool:
    view = client.log.view(["topic"]).partitions["topic", 0]
    return view.last_stable_offset < view.log_end_offset


class Writer:
    """Another process, which appends to the partition now and then."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.producer = ProducerCommands.of(None, client.submit(InitProducerId(client.log.ids.token()))[0])
        self.sequence = 0

    def write(self, where: tuple[int, int] = LEFT) -> None:
        self.client.submit(self.producer.append(where, self.sequence))
        self.sequence += 1


@pytest.mark.kafka("K44")
def test_a_writer_that_finds_the_last_stable_offset_held_aborts_after_the_time_out(shared: Shared) -> None:
    first = shared.client()
    old = victim(first)
    writer = Writer(shared.client())
    shared.clock.sleep(11)
    writer.write()
    shared.clock.sleep(TIMEOUT_S - 1)
    writer.write()
    assert held(writer.client)
    shared.clock.sleep(11)
    writer.write()
    assert not held(writer.client)
    assert status(first) is TransactionStatus.COMPLETE_ABORT
    with pytest.raises(CommandRefused, match=r"transaction timed out after 70000 ms") as refused:
        first.submit(old.end(1))
    assert refused.value.error.code() == ErrorCode.PRODUCER_FENCED
    with pytest.raises(CommandRefused, match=r"transaction timed out after 70000 ms") as refused:
        first.submit(old.append(LEFT, 1, transaction=1))
    assert refused.value.error.code() == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.kafka("K44")
def test_a_reader_that_waits_aborts_too(shared: Shared) -> None:
    victim(shared.client())
    reader = shared.client()
    for _ in range(9):
        shared.clock.sleep(10)
        reader.log.view(["topic"])
    assert not held(reader)


@pytest.mark.parametrize("asked", ["entry", "time"])
def test_a_view_of_the_past_proposes_nothing_for_it_waits_for_no_record(shared: Shared, asked: str) -> None:
    victim(shared.client())
    reader = shared.client()
    last = reader.log.refresh()
    for _ in range(9):
        shared.clock.sleep(10)
        if asked == "entry":
            reader.log.view(["topic"], entry=last - 1)
        else:
            reader.log.view(["topic"], timestamp_ms=shared.clock.wall_ms() - 1)
    assert reader.log.refresh() == last
    assert status(reader) is TransactionStatus.ONGOING


@pytest.mark.holes(26)
def test_no_difference_of_timestamps_counts_only_what_was_seen_to_pass(shared: Shared) -> None:
    """The store's time jumps on by days before this process sees the transaction for the first time."""
    victim(shared.client())
    shared.clock.sleep(7 * 86_400)
    writer = Writer(shared.client())
    shared.clock.sleep(11)
    writer.write()
    assert held(writer.client)


@pytest.mark.kafka("K44")
def test_a_transaction_that_goes_on_in_time_is_left_alone_and_its_next_one_starts_anew(shared: Shared) -> None:
    first = shared.client()
    producer = victim(first)
    writer = Writer(shared.client())
    for number in range(1, 7):
        shared.clock.sleep(50)
        writer.write()
        first.submit(producer.end(number))
        first.submit(producer.append(LEFT, number, transaction=number + 1))
    assert status(first) is TransactionStatus.ONGOING


@pytest.mark.kafka("K128")
def test_a_prepared_transaction_never_times_out(shared: Shared) -> None:
    first = shared.client()
    producer = victim(first)
    first.submit(PrepareTxn("victim", producer.producer_id, producer.producer_epoch, 1))
    writer = Writer(shared.client())
    for _ in range(5):
        shared.clock.sleep(1_000)
        writer.write()
    assert held(writer.client)
    with pytest.raises(CommandRefused, match="prepared"):
        writer.client.submit(producer.end(1, committed=False, timed_out_after_ms=1_000_000))


@pytest.mark.kafka("K45")
def test_two_that_propose_at_once_abort_once(shared: Shared) -> None:
    victim(shared.client())
    writers = [Writer(shared.client()) for _ in range(3)]
    for _ in range(8):
        shared.clock.sleep(11)
        for writer in writers:
            writer.write(RIGHT)
    transaction = writers[0].client.log.transaction("victim")
    assert transaction is not None
    assert (transaction.status, transaction.producer_epoch) == (TransactionStatus.COMPLETE_ABORT, 1)


@pytest.mark.kafka("K45")
def test_a_proposal_for_a_newer_epoch_changes_nothing(shared: Shared) -> None:
    first = shared.client()
    old = victim(first)
    first.initialise("victim", "again")
    with pytest.raises(CommandRefused) as refused:
        first.submit(old.end(1, committed=False, timed_out_after_ms=60_001))
    assert refused.value.error.code() == ErrorCode.PRODUCER_FENCED
    transaction = first.log.transaction("victim")
    assert transaction is not None
    assert transaction.producer_epoch == 2


def test_a_reader_that_may_not_write_reads_on(shared: Shared) -> None:
    victim(shared.client())
    reader = shared.client()
    reader.fate = lambda operation: Fault.REFUSED if operation.verb == "put_if_absent" else Fault.NONE
    for _ in range(20):
        shared.clock.sleep(10)
        assert held(reader)


def test_nothing_is_looked_at_before_the_interval(shared: Shared) -> None:
    writer = Writer(shared.client())
    looked = []
    writer.client.log._timeouts._run = lambda: looked.append(1)  # type: ignore[method-assign]
    for _ in range(9):
        shared.clock.sleep(1)
        writer.write()
    assert not looked
    shared.clock.sleep(1)
    writer.write()
    assert looked == [1]


def test_a_log_that_is_closed_looks_no_more(shared: Shared) -> None:
    background = ThreadBackground("test", 1)
    log = open_log(shared.objects, shared.clock, 99, background=background)
    background.close()
    shared.clock.sleep(100)
    log.view(["topic"])
    log._timeouts._background = StrictBackground()
    shared.clock.sleep(100)
    log.view(["topic"])
    log.close()


def dead_member(client: Client) -> None:
    """A producer that has sent a group's offset in a transaction and is heard of no more."""
    producer = client.initialise("victim", "victim")
    client.submit(producer.offset(1, "group", LEFT, 5))


@pytest.mark.kafka("K44", "K105")
@pytest.mark.parametrize("checkpointed", [False, True])
def test_who_waits_for_pending_offsets_aborts_after_the_time_out(shared: Shared, checkpointed: bool) -> None:
    """No partition is held up: the offsets are all that the transaction has published."""
    first = shared.client()
    dead_member(first)
    if checkpointed:
        assert first.log.checkpoint() is not None
    waiting = shared.client()
    waits = 0
    while waiting.log.pending_offsets("group", *LEFT):
        waits += 1
        assert waits < 20
        shared.clock.sleep(10)
        waiting.log.refresh()
    assert waits >= TIMEOUT_S / 10
    assert status(first) is TransactionStatus.COMPLETE_ABORT
    assert waiting.log.committed_offset("group", *LEFT) is None


@pytest.mark.kafka("K128")
def test_offsets_of_a_prepared_transaction_wait_for_its_coordinator(shared: Shared) -> None:
    first = shared.client()
    dead_member(first)
    first.submit(first.producer.prepare(1))
    waiting = shared.client()
    for _ in range(20):
        shared.clock.sleep(1_000)
        waiting.log.refresh()
        assert waiting.log.pending_offsets("group", *LEFT)
