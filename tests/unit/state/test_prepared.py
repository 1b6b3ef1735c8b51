"""Prepared transactions: what each identity may do, and which answers repeat (K128 to K132)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktxn._engine.format.commands import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    Command,
    CommandResult,
    EndTxn,
    InitProducerId,
    PrepareTxn,
)
from sparktxn._engine.state.transactions.partitions import last_stable_offset
from sparktxn._engine.state.transactions.producerfencing import PRODUCER_EPOCH_MAX
from sparktxn._foundation.values.structs import PreparedOutcome, ProducerIdAndEpoch, TransactionStatus
from sparktxn.errors import ErrorCode
from tests.producercommands import ProducerCommands
from tests.purelog import PureLog

HERE, THERE = (1, 0), (1, 1)


def prepared(log: PureLog, *, epoch: int | None = None) -> ProducerCommands:
    """A producer whose transaction 1, with one record and one offset of group g, is prepared."""
    producer = log.initialise("id")
    if epoch is not None:
        record = replace(log.transaction("id"), producer_epoch=epoch)
        log.records[record.key] = record
        producer = replace(producer, producer_epoch=epoch)
    log.submit(producer.append(HERE, 0, transaction=1), producer.offset(1, "g", THERE, 5), producer.prepare(1))
    return producer


def kept(log: PureLog) -> tuple[ProducerCommands, CommandResult]:
    """The producer of an init that keeps what is prepared."""
    (result,) = log.submit(InitProducerId(f"keep at {log.entry}", "id", keep_prepared=True))
    return ProducerCommands.of("id", result), result


def committed_offset(log: PureLog) -> int | None:
    record = log.records.get(("offset", "g", *THERE))
    return record.offset if record is not None else None


@pytest.mark.kafka("K129")
def test_a_prepared_transaction_stays_open_under_its_identity(log: PureLog) -> None:
    prepared(log)
    record = log.transaction("id")
    assert (record.status, record.prepared) == (TransactionStatus.ONGOING, ProducerIdAndEpoch(0, 0))
    assert last_stable_offset(log.partition()) == 0
    assert committed_offset(log) is None


@pytest.mark.kafka("K129")
def test_only_an_ongoing_transaction_is_prepared_and_only_by_its_number(log: PureLog) -> None:
    producer = log.initialise("id")
    assert log.refusal(producer.prepare(1)) == log.refusal(producer.prepare(0)) == ErrorCode.INVALID_TXN_STATE
    log.submit(producer.append(HERE, 0, transaction=1))
    assert log.refusal(producer.prepare(2)) == ErrorCode.INVALID_TXN_STATE
    log.submit(producer.end(1))
    assert log.refusal(producer.prepare(1)) == ErrorCode.INVALID_TXN_STATE


def test_preparing_is_an_update_of_the_transaction(log: PureLog) -> None:
    producer = log.initialise("id")
    log.submit(producer.append(HERE, 0, transaction=1))
    log.timestamp_ms += 500
    log.submit(producer.prepare(1))
    assert log.transaction("id").last_update_timestamp_ms == log.timestamp_ms


def test_only_the_current_producer_prepares(log: PureLog) -> None:
    producer = log.initialise("id")
    log.submit(producer.append(HERE, 0, transaction=1))
    assert log.refusal(replace(producer, producer_epoch=7).prepare(1)) == ErrorCode.PRODUCER_FENCED
    assert log.refusal(PrepareTxn("", 0, 0, 1)) == ErrorCode.INVALID_REQUEST
    assert log.refusal(PrepareTxn("other", 0, 0, 1)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_the_whole_list_that_prepared_is_a_repetition(log: PureLog) -> None:
    producer = log.initialise("id")
    list_: list[Command] = [
        AddPartitionsToTxn("id", 0, 0, 1, (HERE,)),
        AddOffsetsToTxn("id", 0, 0, 1, "g"),
        producer.append(HERE, 0, transaction=1),
        producer.offset(1, "g", THERE, 5),
        producer.batch(1, 7),
        producer.prepare(1),
    ]
    log.submit(*list_)
    before = dict(log.records)
    results = log.submit(*list_)
    assert [result.duplicate for result in results] == [True] * 6
    assert (results[-1].prepared_producer_id, results[-1].prepared_producer_epoch) == (0, 0)
    assert log.records == before


@pytest.mark.kafka("K129", "K132")
@pytest.mark.parametrize("after_init", [False, True])
def test_a_prepared_transaction_takes_nothing_more(log: PureLog, after_init: bool) -> None:
    producer = prepared(log)
    if after_init:
        producer, _ = kept(log)
    names = ("id", producer.producer_id, producer.producer_epoch, 1)
    for command in (
        producer.append(HERE, 1, transaction=1),
        producer.append(THERE, 0, transaction=1),
        producer.append(THERE, 0, transaction=2),
        AddPartitionsToTxn(*names, (THERE,)),
        AddOffsetsToTxn(*names, "another"),
        producer.offset(1, "g", THERE, 6),
        producer.offset(1, "g", HERE, 5),
        producer.batch(1, 7),
    ):
        assert log.refusal(command) == ErrorCode.INVALID_TXN_STATE, command


def test_a_second_batch_after_preparing_is_refused(log: PureLog) -> None:
    producer = log.initialise("id")
    log.submit(producer.batch(1, 7), producer.prepare(1))
    assert log.refusal(producer.batch(1, 8)) == ErrorCode.INVALID_TXN_STATE
    assert log.refusal(producer.batch(1, 7, fingerprint="other")) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.kafka("K36", "K37", "K130")
@pytest.mark.parametrize("committed", [True, False])
def test_its_end_takes_the_next_epoch_and_may_be_repeated(log: PureLog, committed: bool) -> None:
    producer = prepared(log)
    end = producer.end(1, committed=committed)
    (result,) = log.submit(end)
    assert (result.producer_id, result.producer_epoch, result.committed) == (0, 1, committed)
    assert log.submit(end) == [replace(result, duplicate=True)]
    assert log.refusal(producer.end(1, committed=not committed)) == ErrorCode.PRODUCER_FENCED
    record = log.transaction("id")
    assert (record.prepared, record.last_prepared) == (None, PreparedOutcome(0, 0, 1, committed))
    assert committed_offset(log) == (5 if committed else None)
    assert log.partition().open_transactions == ()
    assert len(log.segments().aborted) == (0 if committed else 1)


def test_no_two_prepared_transactions_have_one_identity(log: PureLog) -> None:
    producer = prepared(log)
    (ended,) = log.submit(producer.end(1))
    producer = ProducerCommands.of("id", ended)
    log.submit(producer.append(HERE, 0, transaction=2), producer.prepare(2))
    assert log.transaction("id").prepared == ProducerIdAndEpoch(0, 1)


def test_a_late_repetition_of_its_end_settles_nothing_else(log: PureLog) -> None:
    producer = prepared(log)
    end = producer.end(1, committed=False)
    (ended,) = log.submit(end)
    following = ProducerCommands.of("id", ended)
    log.submit(following.append(HERE, 0, transaction=2))
    assert log.refusal(end) == ErrorCode.PRODUCER_FENCED
    log.submit(following.end(2))
    assert log.refusal(end) == ErrorCode.PRODUCER_FENCED


def test_after_a_newer_init_its_end_cannot_be_repeated(log: PureLog) -> None:
    producer = prepared(log)
    log.submit(producer.end(1))
    log.initialise("id")
    assert log.refusal(producer.end(1)) == ErrorCode.PRODUCER_FENCED


@pytest.mark.kafka("K132")
def test_an_init_that_keeps_it_fences_the_old_instance_and_tells_what_is_open(log: PureLog) -> None:
    old = prepared(log)
    new, result = kept(log)
    assert (new.producer_id, new.producer_epoch, result.transaction) == (0, 1, 1)
    assert (result.prepared_producer_id, result.prepared_producer_epoch) == (0, 0)
    assert log.refusal(old.end(1)) == log.refusal(old.prepare(1)) == ErrorCode.PRODUCER_FENCED
    assert log.refusal(old.append(HERE, 0, transaction=1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    record = log.transaction("id")
    assert (record.status, record.prepared) == (TransactionStatus.ONGOING, ProducerIdAndEpoch(0, 0))
    assert log.refusal(new.prepare(1)) == ErrorCode.INVALID_TXN_STATE
    (ended,) = log.submit(new.end(1))
    assert (ended.producer_epoch, committed_offset(log), log.partition().log_end_offset) == (2, 5, 2)
    assert log.records["producer", *HERE, 0].producer_epoch == 1
    following = ProducerCommands.of("id", ended)
    log.submit(following.append(HERE, 0, transaction=2), following.end(2))


def test_a_lost_answer_of_an_init_that_keeps_it_is_given_again(log: PureLog) -> None:
    prepared(log)
    first = log.submit(InitProducerId("same", "id", keep_prepared=True))[0]
    again = log.submit(InitProducerId("same", "id", keep_prepared=True))[0]
    assert again == replace(first, duplicate=True)
    assert (again.prepared_producer_id, again.prepared_producer_epoch, again.producer_epoch) == (0, 0, 1)


def test_with_nothing_prepared_an_init_that_keeps_is_any_other(log: PureLog) -> None:
    _, result = kept(log)
    assert (result.producer_epoch, result.transaction, result.prepared_producer_id) == (0, 0, -1)
    producer = ProducerCommands.of("id", result)
    log.submit(producer.append(HERE, 0, transaction=1))
    _, result = kept(log)
    assert (result.producer_epoch, result.transaction, result.prepared_producer_id) == (2, 1, -1)
    assert log.transaction("id").status is TransactionStatus.EMPTY
    assert len(log.segments().aborted) == 1


def test_an_init_that_does_not_keep_it_aborts_it(log: PureLog) -> None:
    prepared(log)
    producer = log.initialise("id")
    assert producer.producer_epoch == 2
    assert log.transaction("id").last_prepared == PreparedOutcome(0, 0, 1, committed=False)
    assert (committed_offset(log), log.partition().open_transactions) == (None, ())
    assert log.segments().aborted[0].producer_id == 0
    log.submit(producer.append(HERE, 0, transaction=2), producer.end(2))


@pytest.mark.kafka("K132")
def test_keeping_needs_an_id_and_takes_no_identity(log: PureLog) -> None:
    log.initialise("id")
    for command in (
        InitProducerId("a", None, keep_prepared=True),
        InitProducerId("b", "id", producer_id=0, producer_epoch=0, keep_prepared=True),
    ):
        assert log.refusal(command) == ErrorCode.INVALID_REQUEST


@pytest.mark.kafka("K132")
@pytest.mark.parametrize("committed", [True, False])
def test_a_rotated_producer_id_ends_what_the_one_before_prepared(log: PureLog, committed: bool) -> None:
    last = PRODUCER_EPOCH_MAX - 1
    prepared(log, epoch=last)
    new, result = kept(log)
    assert (new.producer_id, new.producer_epoch) == (1, 0)
    assert (result.prepared_producer_id, result.prepared_producer_epoch) == (0, last)
    again, _ = kept(log)
    assert (again.producer_id, again.producer_epoch) == (1, 1)
    (ended,) = log.submit(again.end(1, committed=committed))
    assert (ended.producer_id, ended.producer_epoch) == (1, 2)
    assert log.partition().open_transactions == ()
    assert not [key for key in log.records if key[0] == "pending_offsets"]
    assert committed_offset(log) == (5 if committed else None)
    aborted = log.segments().aborted
    assert [range_.producer_id for range_ in aborted] == ([] if committed else [0])
    known = log.records["producer", *HERE, 0]
    assert (known.producer_epoch, known.current_transaction_first_offset) == (PRODUCER_EPOCH_MAX, -1)
    following = ProducerCommands.of("id", ended)
    log.submit(following.append(HERE, 0, transaction=2), following.end(2))


@pytest.mark.kafka("K40")
def test_at_the_last_epoch_its_own_end_rotates_and_may_be_repeated(log: PureLog) -> None:
    producer = prepared(log, epoch=PRODUCER_EPOCH_MAX - 1)
    (ended,) = log.submit(producer.end(1))
    assert (ended.producer_id, ended.producer_epoch) == (1, 0)
    assert log.submit(producer.end(1)) == [replace(ended, duplicate=True)]


def test_an_empty_one_is_begun_by_registering_no_partition(log: PureLog) -> None:
    producer = log.initialise("id")
    begin = AddPartitionsToTxn("id", 0, 0, 1, ())
    log.submit(begin, producer.prepare(1))
    assert all(result.duplicate for result in log.submit(begin, producer.prepare(1)))
    new, result = kept(log)
    assert result.transaction == 1
    log.submit(new.end(1))
    assert log.transaction("id").last_prepared == PreparedOutcome(0, 0, 1, committed=True)
    assert log.partition().log_end_offset == 0


@pytest.mark.kafka("K128")
def test_it_never_times_out(log: PureLog) -> None:
    producer = prepared(log)
    assert log.refusal(producer.end(1, committed=False, timed_out_after_ms=1)) == ErrorCode.INVALID_TXN_STATE


def test_an_administrator_may_abort_it(log: PureLog) -> None:
    producer = prepared(log)
    log.submit(EndTxn("id", 0, 0, 1, committed=False, fence_reason="an administrator has aborted it"))
    assert log.transaction("id").last_prepared == PreparedOutcome(0, 0, 1, committed=False)
    assert log.transaction("id").producer_epoch == 1
    assert log.refusal(producer.end(1)) == ErrorCode.PRODUCER_FENCED


def test_its_last_batch_of_a_writer_counts_from_its_commit_on(log: PureLog) -> None:
    producer = log.initialise("id")
    log.submit(producer.batch(1, 7), producer.prepare(1))
    new, _ = kept(log)
    assert log.transaction("id").sink is None
    log.submit(new.end(1))
    sink = log.transaction("id").sink
    assert sink is not None
    assert [batch.batch_id for batch in sink.batches] == [7]
