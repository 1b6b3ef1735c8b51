"""What takes Kafka's coordinator several steps is one entry here: nothing is seen in between, or comes too late."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktxn._engine.format.commands import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    Command,
    DeleteRecords,
    EndTxn,
    InitProducerId,
)
from sparktxn._engine.state.transactions.producerfencing import PRODUCER_EPOCH_MAX
from sparktxn._foundation.values.structs import TransactionStatus
from sparktxn.errors import ErrorCode
from tests.producercommands import ProducerCommands
from tests.purelog import PureLog

HERE, THERE = (1, 0), (1, 1)
SEEN = {
    TransactionStatus.EMPTY,
    TransactionStatus.ONGOING,
    TransactionStatus.COMPLETE_COMMIT,
    TransactionStatus.COMPLETE_ABORT,
}


@pytest.fixture
def producer(log: PureLog) -> ProducerCommands:
    return log.initialise("id")


def epochs(log: PureLog) -> tuple[int, int]:
    record = log.transaction("id")
    return record.producer_id, record.producer_epoch


@pytest.mark.kafka("K06", "K21", "K35")
def test_no_entry_leaves_an_end_half_done(log: PureLog, producer) -> None:
    log.submit(producer.append(HERE, 0, transaction=1))
    steps = [
        (producer.append(THERE, 0, transaction=1), producer.offset(1, "group", HERE, 1)),
        (producer.end(1),),
        (producer.append(HERE, 1, transaction=2), producer.end(2, committed=False)),
        (producer.append(HERE, 2, transaction=3),),
        (producer.end(3, committed=False, timed_out_after_ms=1),),
        (InitProducerId("again", "id"),),
    ]
    for commands in steps:
        log.submit(*commands)
        assert log.transaction("id").status in SEEN
    assert [key for key in log.records if key[0] == "pending_offsets"] == []


@pytest.mark.kafka("K06", "K21", "K35")
@pytest.mark.parametrize("committed", [True, False])
def test_right_after_an_end_every_call_is_answered(log: PureLog, producer, committed: bool) -> None:
    """Where Kafka's client would get CONCURRENT_TRANSACTIONS until the markers are written."""
    log.submit(producer.append(HERE, 0, transaction=1), producer.end(1, committed=committed))
    assert log.submit(producer.end(1, committed=committed))[0].duplicate
    log.submit(AddPartitionsToTxn("id", 0, 0, 2, (HERE,)))
    assert log.transaction("id").status is TransactionStatus.ONGOING
    log.initialise("id")
    assert log.transaction("id").status is TransactionStatus.EMPTY


@pytest.mark.kafka("K16")
def test_of_two_inits_the_later_one_stays(log: PureLog) -> None:
    first, second = log.initialise("id"), log.initialise("id")
    assert (first.producer_epoch, second.producer_epoch) == (0, 1)
    assert log.refusal(first.append(HERE, 0, transaction=1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    log.submit(second.append(HERE, 0, transaction=1), second.end(1))


@pytest.mark.kafka("K24", "K42")
@pytest.mark.parametrize("transactional_id", ["", None])
def test_no_transactional_id_is_an_invalid_request(log: PureLog, transactional_id: str | None) -> None:
    commands: list[Command] = [
        AddPartitionsToTxn(transactional_id, 0, 0, 1, (HERE,)),  # type: ignore[arg-type]
        AddOffsetsToTxn(transactional_id, 0, 0, 1, "group"),  # type: ignore[arg-type]
        EndTxn(transactional_id, 0, 0, 1, True),  # type: ignore[arg-type]
    ]
    assert [log.refusal(command) for command in commands] == [ErrorCode.INVALID_REQUEST] * 3


@pytest.mark.kafka("K25", "K26", "K27")
@pytest.mark.parametrize("committed", [True, False])
def test_an_append_belongs_to_its_own_transaction_only(log: PureLog, producer, committed: bool) -> None:
    """It was on its way while its transaction ended, and another one of the same producer began in the partition."""
    log.submit(producer.append(HERE, 0, transaction=1))
    late = producer.append(HERE, 1, transaction=1)
    log.submit(producer.end(1, committed=committed))
    assert log.refusal(late) == ErrorCode.INVALID_TXN_STATE
    log.submit(producer.append(HERE, 1, transaction=2))
    assert log.refusal(late) == ErrorCode.INVALID_TXN_STATE
    assert log.refusal(producer.append(HERE, 2)) == ErrorCode.INVALID_TXN_STATE, "nor without a transaction"
    log.submit(producer.append(HERE, 2, transaction=2), producer.end(2))


@pytest.mark.kafka("K25")
def test_an_append_registers_its_partition(log: PureLog, producer) -> None:
    log.submit(producer.append(HERE, 0, transaction=1))
    log.submit(producer.append(THERE, 0, transaction=1))
    assert log.transaction("id").partitions == (HERE, THERE)


@pytest.mark.kafka("K29")
def test_a_list_may_hold_several_producers_each_checked_by_itself(log: PureLog, producer) -> None:
    other = log.initialise("other")
    log.submit(producer.append(HERE, 0, transaction=1), other.append(HERE, 0, transaction=1))
    assert [opened.producer_id for opened in log.partition().open_transactions] == [0, 1]
    fenced = replace(other, producer_epoch=7)
    before = dict(log.records)
    assert log.refusal(producer.end(1), fenced.end(1)) == ErrorCode.PRODUCER_FENCED
    assert log.records == before


@pytest.mark.kafka("K36", "K37", "K40")
@pytest.mark.parametrize("epoch", [0, PRODUCER_EPOCH_MAX - 1])
def test_ends_do_not_change_the_identity(log: PureLog, producer, epoch: int) -> None:
    """Also at the last epoch: only an init rotates the producer id."""
    record = replace(log.transaction("id"), producer_epoch=epoch)
    log.records[record.key] = record
    producer = replace(producer, producer_epoch=epoch)
    for number in range(1, 6):
        ended = producer.end(number, committed=number % 2 == 0)
        log.submit(producer.append(HERE, number - 1, transaction=number), ended)
        assert epochs(log) == (0, epoch)
        assert log.submit(ended)[0].duplicate
        for late in range(number):
            assert log.refusal(producer.end(late)) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.kafka("K38", "K39")
def test_what_has_not_begun_cannot_be_ended(log: PureLog, producer) -> None:
    newer = log.initialise("id")
    for committed in (True, False):
        assert log.refusal(newer.end(0, committed=committed)) == ErrorCode.INVALID_TXN_STATE
        assert log.refusal(newer.end(1, committed=committed)) == ErrorCode.INVALID_TXN_STATE
        assert log.refusal(producer.end(0, committed=committed)) == ErrorCode.PRODUCER_FENCED


@pytest.mark.kafka("K43")
@pytest.mark.parametrize("committed", [True, False])
def test_a_clock_that_goes_back_hinders_no_transition(log: PureLog, producer, committed: bool) -> None:
    steps = [
        (AddPartitionsToTxn("id", 0, 0, 1, (HERE,)),),
        (producer.append(HERE, 0, transaction=1), producer.offset(1, "group", HERE, 1)),
        (producer.end(1, committed=committed),),
        (InitProducerId("again", "id"),),
    ]
    for number, commands in enumerate(steps):
        log.timestamp_ms = 1_000 - 100 * number
        log.submit(*commands)
    assert log.transaction("id").last_update_timestamp_ms == 700
    assert epochs(log) == (0, 1)


@pytest.mark.kafka("K22", "K64")
@pytest.mark.parametrize("committed", [True, False])
def test_a_partition_without_records_gets_no_control_record(log: PureLog, producer, committed: bool) -> None:
    log.submit(AddPartitionsToTxn("id", 0, 0, 1, (HERE, THERE)), producer.append(HERE, 0, transaction=1))
    log.submit(producer.end(1, committed=committed))
    assert [log.partition(*where).log_end_offset for where in (HERE, THERE)] == [2, 0]
    assert log.segments(*THERE).aborted == ()
    assert ("producer", *THERE, 0) not in log.records


@pytest.mark.kafka("K64", "K66")
def test_a_fence_keeps_the_older_epoch_out_of_partitions_it_never_wrote_to(log: PureLog, producer) -> None:
    log.submit(producer.append(HERE, 0, transaction=1))
    newer = log.initialise("id")
    for where in (HERE, THERE):
        assert log.refusal(producer.append(where, 0, transaction=1)) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert log.refusal(producer.append(where, 0, transaction=2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.refusal(producer.end(1)) == ErrorCode.PRODUCER_FENCED
    log.submit(newer.append(THERE, 0, transaction=2), newer.end(2))


@pytest.mark.kafka("K66", "K67")
def test_the_coordinators_epoch_is_the_deciding_entry(log: PureLog, producer) -> None:
    seen = []
    for number in range(1, 4):
        log.submit(producer.append(HERE, number - 1, transaction=number), producer.end(number))
        seen.append(log.records["producer", *HERE, 0].coordinator_epoch)
    assert seen == [log.entry - 2, log.entry - 1, log.entry]


@pytest.mark.kafka("K68")
@pytest.mark.parametrize("sequence", [0, 5, 2])
def test_a_refused_append_leaves_everything_as_it_was(log: PureLog, producer, sequence: int) -> None:
    log.submit(producer.append(HERE, 0, 3, transaction=1))
    before = dict(log.records)
    assert log.refusal(producer.append(HERE, sequence, transaction=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.records == before


@pytest.mark.kafka("K93")
def test_deleting_all_records_forgets_no_producer(log: PureLog) -> None:
    plain = log.initialise(None)
    for sequence in range(5):
        log.submit(plain.append(HERE, sequence))
    log.submit(DeleteRecords("all", *HERE, -1))
    assert (log.partition().log_start_offset, log.segments().segments) == (5, ())
    assert [log.submit(plain.append(HERE, sequence))[0].base_offset for sequence in range(5)] == list(range(5))
    assert log.refusal(plain.append(HERE, 6)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.submit(plain.append(HERE, 5))[0].base_offset == 5


@pytest.mark.kafka("K57", "K60", "K61", "K62")
def test_five_batches_are_remembered_across_the_wrap_and_forgotten_by_a_new_epoch(log: PureLog) -> None:
    plain = log.initialise(None)
    first = 2**31 - 4
    batches = [(first + 2 * number) % 2**31 for number in range(7)]
    for sequence in batches:
        log.submit(plain.append(HERE, sequence, 2))
    told = [log.submit(plain.append(HERE, sequence, 2))[0] for sequence in batches[2:]]
    assert [(result.duplicate, result.base_offset) for result in told] == [(True, 4 + 2 * n) for n in range(5)]
    for sequence in batches[:2]:
        assert log.refusal(plain.append(HERE, sequence, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    newer = replace(plain, producer_epoch=1)
    log.submit(newer.append(HERE, 0, 2))
    for sequence in (*batches[:2], *batches[4:6]):
        assert log.refusal(newer.append(HERE, sequence, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.refusal(plain.append(HERE, batches[-1], 2)) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.kafka("K58")
@pytest.mark.parametrize(
    ("sequence", "count"), [(0, 2), (0, 4), (1, 2), (2, 1), (2, 3), (3, 2), (0, 6), (4, 1), (4, 3)]
)
def test_no_overlap_in_part_is_a_duplicate(log: PureLog, sequence: int, count: int) -> None:
    """Behind batches 0 to 2 and 3 to 5."""
    plain = log.initialise(None)
    log.submit(plain.append(HERE, 0, 3))
    log.submit(plain.append(HERE, 3, 3))
    assert log.refusal(plain.append(HERE, sequence, count)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.submit(plain.append(HERE, 0, 3))[0].duplicate


@pytest.mark.kafka("K57")
@pytest.mark.parametrize(("given_ms", "stored_ms"), [(-1, 5_000), (0, 0), (7, 7)], ids=["by the log", "0", "given"])
def test_a_duplicate_is_told_the_first_ones_time(log: PureLog, given_ms: int, stored_ms: int) -> None:
    plain = log.initialise(None)
    command = replace(plain.append(HERE, 0), timestamp_min_ms=given_ms, timestamp_max_ms=given_ms)
    log.timestamp_ms = 5_000
    first = log.submit(command)[0]
    assert first.timestamp_ms == (5_000 if given_ms < 0 else -1), "told where the log has chosen it"
    log.timestamp_ms = 9_000
    again = log.submit(command)[0]
    assert (again.duplicate, again.base_offset, again.timestamp_ms) == (True, first.base_offset, stored_ms)
    assert log.segments().segments[0].timestamp_max_ms == stored_ms
