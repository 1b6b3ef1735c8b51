"""Ending transactions: Kafka's matrix (K19, K20, K30 to K35); a late command settles only its own (hole 20)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktxn._engine.format.commands import AddOffsetsToTxn, AddPartitionsToTxn, DeleteTopic, InitProducerId
from sparktxn._engine.state.transactions.partitions import last_stable_offset
from sparktxn._foundation.values.structs import TransactionStatus
from sparktxn.errors import CommandRefused, ErrorCode
from tests.producercommands import ProducerCommands
from tests.purelog import PureLog

HERE, THERE = (1, 0), (1, 1)


@pytest.fixture
def producer(log: PureLog) -> ProducerCommands:
    return log.initialise("id")


@pytest.mark.kafka("K19", "K30")
@pytest.mark.parametrize("stranger", [ProducerCommands("nobody", 0, 0), ProducerCommands("id", 9, 0)])
def test_k19_k30_who_is_not_known_is_refused(log: PureLog, producer, stranger: ProducerCommands) -> None:
    assert log.refusal(stranger.end(1)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert log.refusal(stranger.append(HERE, 0, transaction=1)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.kafka("K20", "K31")
@pytest.mark.parametrize("epoch", [0, 2])
def test_k20_k31_another_epoch_is_fenced(log: PureLog, producer, epoch: int) -> None:
    log.initialise("id")
    log.submit(log_producer(log).append(HERE, 0, transaction=1))
    other = replace(producer, producer_epoch=epoch)
    assert log.refusal(other.end(1)) == ErrorCode.PRODUCER_FENCED
    partitions = AddPartitionsToTxn("id", 0, epoch, 1, (HERE,))
    assert log.refusal(partitions) == ErrorCode.PRODUCER_FENCED


def log_producer(log: PureLog) -> ProducerCommands:
    record = log.transaction("id")
    return ProducerCommands("id", record.producer_id, record.producer_epoch)


@pytest.mark.kafka("K22", "K23")
def test_k22_add_partitions_begins_and_k23_known_ones_are_no_change(log: PureLog, producer) -> None:
    log.submit(AddPartitionsToTxn("id", 0, 0, 1, (HERE,)))
    assert log.transaction("id").status is TransactionStatus.ONGOING
    assert log.transaction("id").start_timestamp_ms == 1_000
    log.timestamp_ms = 2_000
    log.submit(AddPartitionsToTxn("id", 0, 0, 1, (THERE, HERE)))
    assert log.transaction("id").partitions == (HERE, THERE)
    assert log.transaction("id").start_timestamp_ms == 1_000
    entry = log.entry
    assert log.submit(AddPartitionsToTxn("id", 0, 0, 1, (THERE,)))[0].duplicate
    assert log.entry == entry


@pytest.mark.kafka("K22", "K23")
def test_add_offsets_begins_once(log: PureLog, producer) -> None:
    assert not log.submit(AddOffsetsToTxn("id", 0, 0, 1, "group"))[0].duplicate
    assert log.submit(AddOffsetsToTxn("id", 0, 0, 1, "group"))[0].duplicate


@pytest.mark.kafka("K32")
@pytest.mark.parametrize("committed", [True, False])
def test_k32_one_entry_ends_the_transaction_in_every_partition(log: PureLog, producer, committed: bool) -> None:
    log.submit(producer.append(HERE, 0, 3, transaction=1), producer.append(THERE, 0, 2, transaction=1))
    log.submit(producer.end(1, committed=committed))
    status = TransactionStatus.COMPLETE_COMMIT if committed else TransactionStatus.COMPLETE_ABORT
    assert log.transaction("id").status is status
    assert [log.partition(*where).log_end_offset for where in (HERE, THERE)] == [4, 3]
    assert [last_stable_offset(log.partition(*where)) for where in (HERE, THERE)] == [4, 3]
    assert [len(log.segments(*where).aborted) for where in (HERE, THERE)] == [0 if committed else 1] * 2


@pytest.mark.kafka("K33", "K35", "K37")
@pytest.mark.parametrize("committed", [True, False])
def test_k33_the_same_end_again_succeeds_and_writes_nothing(log: PureLog, producer, committed: bool) -> None:
    log.submit(producer.append(HERE, 0, transaction=1), producer.end(1, committed=committed))
    entry = log.entry
    assert log.submit(producer.end(1, committed=committed))[0].duplicate
    assert log.entry == entry


@pytest.mark.kafka("K34")
@pytest.mark.parametrize("committed", [True, False])
def test_k34_the_opposite_end_is_refused(log: PureLog, producer, committed: bool) -> None:
    log.submit(producer.append(HERE, 0, transaction=1), producer.end(1, committed=committed))
    assert log.refusal(producer.end(1, committed=not committed)) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.kafka("K34", "K38")
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("transaction", [0, 1])
def test_k34_an_empty_state_has_nothing_to_end(log: PureLog, producer, transaction: int, committed: bool) -> None:
    assert log.refusal(producer.end(transaction, committed=committed)) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.kafka("K36", "K37", "K38")
def test_hole_20_a_delayed_commit_cannot_settle_the_next_transaction(log: PureLog, producer) -> None:
    log.submit(producer.append(HERE, 0, transaction=1), producer.end(1, committed=False))
    log.submit(producer.append(HERE, 1, transaction=2))
    assert log.refusal(producer.end(1)) == ErrorCode.INVALID_TXN_STATE
    assert log.transaction("id").status is TransactionStatus.ONGOING


@pytest.mark.kafka("K25", "K26")
def test_a_transaction_number_cannot_be_skipped(log: PureLog, producer) -> None:
    assert log.refusal(producer.append(HERE, 0, transaction=2)) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.kafka("K22", "K32")
def test_a_transaction_starts_and_ends_with_its_own_entries(log: PureLog, producer) -> None:
    for number in (1, 2):
        log.timestamp_ms = 1_000 * number
        log.submit(producer.append(HERE, number - 1, transaction=number), producer.offset(number, "group", HERE, 1))
        opened = log.transaction("id")
        assert (opened.transaction, opened.start_timestamp_ms, opened.start_entry) == (
            number, 1_000 * number, log.entry,
        )  # fmt: skip
        assert (opened.partitions, opened.offsets) == ((HERE,), (("group", *HERE),))
        assert opened.last_update_timestamp_ms == 1_000 * number
        log.timestamp_ms += 500
        log.submit(producer.end(number, committed=number == 1))
        ended = log.transaction("id")
        assert (ended.partitions, ended.offsets, ended.committed) == ((), (), number == 1)
        assert ended.last_update_timestamp_ms == 1_000 * number + 500


@pytest.mark.kafka("K55")
def test_k55_a_deleted_topic_does_not_stop_the_end(log: PureLog, producer) -> None:
    log.create_topic("other")
    log.submit(producer.append(HERE, 0, transaction=1), producer.append((2, 0), 0, transaction=1))
    log.submit(DeleteTopic("d", "other", 2))
    log.submit(producer.end(1))
    assert log.transaction("id").status is TransactionStatus.COMPLETE_COMMIT
    assert last_stable_offset(log.partition()) == 2


@pytest.mark.kafka("K68")
def test_a_list_that_is_not_to_be_written_changes_nothing(log: PureLog, producer) -> None:
    """A follower of the log never sees a duplicate: the process that validated it must not have changed by it
    either."""
    log.submit(producer.append(HERE, 0, transaction=1), producer.end(1))
    before = dict(log.records)
    assert log.refusal(producer.append(HERE, 0, transaction=2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.records == before


@pytest.mark.kafka("K44", "K127")
def test_whoever_aborts_for_the_producer_fences_it_and_says_why(log: PureLog, producer) -> None:
    log.submit(producer.append(HERE, 0, transaction=1))
    log.submit(replace(producer.end(1, committed=False), fence_reason="an administrator has aborted it"))
    record = log.transaction("id")
    assert (record.status, record.producer_epoch) == (TransactionStatus.COMPLETE_ABORT, 1)
    for command in (producer.end(1), producer.append(HERE, 1, transaction=2), InitProducerId("i", "id", 1, 0, 0)):
        with pytest.raises(CommandRefused, match="is fenced: an administrator has aborted it"):
            log.submit(command)
    assert log_producer(log).producer_epoch == 1
    log.initialise("id")
    with pytest.raises(CommandRefused, match="is fenced: a newer producer has initialised it"):
        log.submit(producer.end(1))


@pytest.mark.kafka("K127")
@pytest.mark.parametrize("is_open", [False, True])
def test_an_init_says_why_it_fences(log: PureLog, producer, is_open: bool) -> None:
    if is_open:
        log.submit(producer.append(HERE, 0, transaction=1))
    log.submit(InitProducerId("i", "id", fence_reason="an administrator has fenced it"))
    with pytest.raises(CommandRefused, match="is fenced: an administrator has fenced it"):
        log.submit(producer.append(HERE, 1, transaction=1))


@pytest.mark.parametrize("changes", [{"timed_out_after_ms": 1}, {"fence_reason": "somebody has"}])
def test_a_commit_fences_nobody(log: PureLog, producer, changes: dict[str, object]) -> None:
    log.submit(producer.append(HERE, 0, transaction=1))
    assert log.refusal(replace(producer.end(1), **changes)) == ErrorCode.INVALID_REQUEST
    assert log.transaction("id").status is TransactionStatus.ONGOING
