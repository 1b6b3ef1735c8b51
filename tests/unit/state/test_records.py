"""Every member of the records that transactions leave, as PROTOCOL.md has them in "What each does"."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sparktxn._engine.format.commands import AddOffsetsToTxn, AddPartitionsToTxn, CommandResult, InitProducerId
from sparktxn._engine.state.delta import Context
from sparktxn._engine.state.internal import RecordingDelta
from sparktxn._engine.state.machine import apply
from sparktxn._engine.state.transactions.producerfencing import PRODUCER_EPOCH_MAX
from sparktxn._foundation.values.structs import TransactionState, TransactionStatus
from sparktxn.errors import CommandRefused, ErrorCode
from tests.producercommands import ProducerCommands
from tests.purelog import PureLog

HERE, THERE = (1, 0), (1, 1)
S = TransactionStatus


@pytest.fixture
def producer(log: PureLog) -> ProducerCommands:
    return log.initialise("id")


def changed(log: PureLog, **changes: Any) -> None:
    record = replace(log.transaction("id"), **changes)
    log.records[record.key] = record


class TestTransactionRecord:
    """The record of a transactional id, whole."""

    def test_the_first_init(self, log: PureLog) -> None:
        log.timestamp_ms = 7
        log.submit(InitProducerId("first", "id", 5_000, 3, 4, fence_reason="nobody is fenced"))
        assert log.transaction("id") == TransactionState(
            transactional_id="id",
            producer_id=0,
            producer_epoch=0,
            last_producer_epoch=-1,
            previous_producer_id=-1,
            timeout_ms=5_000,
            status=S.EMPTY,
            transaction=0,
            committed=False,
            last_update_timestamp_ms=7,
            request_id="first",
        )

    def test_a_transaction_from_its_begin_to_the_next_init(self, log: PureLog, producer: ProducerCommands) -> None:
        before = log.transaction("id")
        log.timestamp_ms = 20
        log.submit(producer.append(HERE, 0, transaction=1), producer.offset(1, "g", THERE, 5))
        begun = replace(
            before,
            status=S.ONGOING,
            transaction=1,
            partitions=(HERE,),
            offsets=(("g", *THERE),),
            start_timestamp_ms=20,
            last_update_timestamp_ms=20,
            start_entry=log.entry,
        )
        assert log.transaction("id") == begun
        log.timestamp_ms = 30
        log.submit(producer.end(1))
        ended = replace(
            begun, status=S.COMPLETE_COMMIT, committed=True, partitions=(), offsets=(), last_update_timestamp_ms=30
        )
        assert log.transaction("id") == ended
        log.timestamp_ms = 40
        log.submit(AddOffsetsToTxn("id", 0, 0, 2, "g"))
        begun = replace(
            ended,
            status=S.ONGOING,
            transaction=2,
            committed=False,
            start_timestamp_ms=40,
            last_update_timestamp_ms=40,
            start_entry=log.entry,
        )
        assert log.transaction("id") == begun
        log.timestamp_ms = 50
        log.submit(InitProducerId("next", "id", 9_000, fence_reason="why"))
        assert log.transaction("id") == replace(
            begun,
            producer_epoch=2,
            timeout_ms=9_000,
            status=S.EMPTY,
            start_timestamp_ms=-1,
            last_update_timestamp_ms=50,
            request_id="next",
            fence_reason="why",
        )

    @pytest.mark.parametrize("fence", [{"fence_reason": "somebody has"}, {"timed_out_after_ms": 8}])
    def test_an_abort_for_the_producer(self, log: PureLog, producer: ProducerCommands, fence: dict[str, Any]) -> None:
        """No identity is the one before: the epoch has grown without a caller that named it."""
        log.submit(InitProducerId("again", "id", producer_id=0, producer_epoch=0))
        producer = replace(producer, producer_epoch=1)
        log.submit(producer.append(HERE, 0, transaction=1))
        begun = log.transaction("id")
        assert begun.last_producer_epoch == 0
        log.timestamp_ms = 30
        (result,) = log.submit(replace(producer.end(1, committed=False), **fence))
        assert (result.duplicate, result.committed) == (False, False)
        assert log.transaction("id") == replace(
            begun,
            producer_epoch=2,
            last_producer_epoch=-1,
            status=S.COMPLETE_ABORT,
            partitions=(),
            last_update_timestamp_ms=30,
            fence_reason=fence.get("fence_reason", "transaction timed out after 8 ms"),
        )
        assert log.refusal(InitProducerId("late", "id", producer_id=0, producer_epoch=0)) == ErrorCode.PRODUCER_FENCED

    def test_an_init_that_keeps_what_is_prepared(self, log: PureLog, producer: ProducerCommands) -> None:
        log.submit(InitProducerId("again", "id", producer_id=0, producer_epoch=0, fence_reason="before"))
        producer = replace(producer, producer_epoch=1)
        log.submit(producer.append(HERE, 0, transaction=1), producer.prepare(1))
        before = log.transaction("id")
        log.timestamp_ms = 30
        log.submit(InitProducerId("keep", "id", 7_000, keep_prepared=True))
        kept = replace(
            before,
            producer_epoch=2,
            last_producer_epoch=-1,
            timeout_ms=7_000,
            last_update_timestamp_ms=30,
            request_id="keep",
            fence_reason="",
        )
        assert log.transaction("id") == kept
        log.submit(InitProducerId("another", "id", 7_000, keep_prepared=True, fence_reason="why"))
        assert log.transaction("id") == replace(kept, producer_epoch=3, request_id="another", fence_reason="why")

    def test_a_rotation(self, log: PureLog, producer: ProducerCommands) -> None:
        changed(log, producer_epoch=PRODUCER_EPOCH_MAX - 1)
        before = log.transaction("id")
        log.submit(InitProducerId("next", "id", producer_id=0, producer_epoch=PRODUCER_EPOCH_MAX - 1))
        assert log.transaction("id") == replace(
            before,
            producer_id=1,
            producer_epoch=0,
            last_producer_epoch=PRODUCER_EPOCH_MAX - 1,
            previous_producer_id=0,
            request_id="next",
        )


@pytest.mark.kafka("K12", "K13")
@pytest.mark.parametrize("epoch", range(4))
@pytest.mark.parametrize("named", [-1, 0, 1, 2, 3])
def test_who_is_fenced_by_an_init_without_an_identity_is_no_retry(log: PureLog, epoch: int, named: int) -> None:
    """Two producers would go on under one identity. An epoch without a producer id names none."""
    log.initialise("id")
    changed(log, producer_epoch=epoch, last_producer_epoch=0)
    log.submit(InitProducerId("newer", "id", producer_epoch=named))
    assert (log.transaction("id").producer_epoch, log.transaction("id").last_producer_epoch) == (epoch + 1, -1)
    for old in range(epoch + 1):
        again = InitProducerId("again", "id", producer_id=0, producer_epoch=old)
        assert log.refusal(again) == ErrorCode.PRODUCER_FENCED


@pytest.mark.kafka("K12")
@pytest.mark.parametrize("last_epoch", [0, 5])
def test_the_last_epoch_is_the_one_that_was_named(log: PureLog, last_epoch: int) -> None:
    log.initialise("id")
    changed(log, producer_epoch=last_epoch)
    for _ in range(2):
        again = log.initialise("id", producer_id=0, producer_epoch=last_epoch)
        assert (again.producer_id, again.producer_epoch) == (0, last_epoch + 1)
    assert log.transaction("id").last_producer_epoch == last_epoch
    for other in (last_epoch - 1, last_epoch + 2):
        named = InitProducerId(f"{other}", "id", producer_id=0, producer_epoch=other)
        assert log.refusal(named) == ErrorCode.PRODUCER_FENCED
    assert (
        log.refusal(InitProducerId("id", "id", producer_id=1, producer_epoch=last_epoch)) == ErrorCode.PRODUCER_FENCED
    )


@pytest.mark.kafka("K12", "K15")
def test_after_a_rotation_the_new_producer_id_is_the_one_before_the_next_epoch(log: PureLog) -> None:
    log.initialise("id")
    changed(log, producer_epoch=PRODUCER_EPOCH_MAX - 1)
    rotated = log.initialise("id")
    assert (rotated.producer_id, rotated.producer_epoch) == (1, 0)
    for _ in range(2):
        again = log.initialise("id", producer_id=1, producer_epoch=0)
        assert (again.producer_id, again.producer_epoch) == (1, 1)
    assert log.refusal(InitProducerId("old", "id", producer_id=0, producer_epoch=0)) == ErrorCode.PRODUCER_FENCED


@pytest.mark.kafka("K07", "K127")
@pytest.mark.parametrize("given", ["", "an administrator has fenced it"])
def test_the_abort_of_an_init_says_why_it_has_fenced(log: PureLog, producer: ProducerCommands, given: str) -> None:
    """It is what the history of the transactional id shows, under the epoch that no producer gets."""
    log.submit(producer.append(HERE, 0, transaction=1))
    recorded = RecordingDelta(log.records.get)
    apply(recorded, InitProducerId("next", "id", fence_reason=given), Context(log.entry + 1, 9))
    rows = [change.record for change in recorded.history("transaction")]
    told = [(row.status, row.producer_epoch, row.fence_reason) for row in rows if isinstance(row, TransactionState)]
    assert told == [
        (S.PREPARE_ABORT, 1, given or "a newer producer has initialised it"),
        (S.COMPLETE_ABORT, 1, given or "a newer producer has initialised it"),
        (S.EMPTY, 2, given),
    ]


def test_a_micro_batch_of_an_aborted_transaction_counts_with_no_later_one(
    log: PureLog, producer: ProducerCommands
) -> None:
    log.submit(producer.batch(1, 7))
    log.submit(producer.end(1, committed=False))
    assert log.transaction("id").pending_sink is None
    log.submit(producer.append(HERE, 0, transaction=2), producer.end(2))
    assert log.transaction("id").sink is None
    log.submit(producer.batch(3, 7), producer.end(3))
    noted = log.transaction("id").sink
    assert log.transaction("id").pending_sink is None
    log.submit(producer.batch(4, 8), producer.end(4, committed=False))
    assert log.transaction("id").sink == noted


@pytest.mark.kafka("K20")
def test_registering_is_for_partitions_that_exist_and_the_current_producer(
    log: PureLog, producer: ProducerCommands
) -> None:
    for where in ((1, 2), (2, 0)):
        command = AddPartitionsToTxn("id", 0, 0, 1, (HERE, where))
        assert log.refusal(command) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for epoch in (1, 7):
        assert log.refusal(AddOffsetsToTxn("id", 0, epoch, 1, "g")) == ErrorCode.PRODUCER_FENCED


@pytest.mark.kafka("K33", "K34")
@pytest.mark.parametrize("committed", [True, False])
def test_a_repeated_end_and_its_opposite_are_told_how_it_ended(
    log: PureLog, producer: ProducerCommands, committed: bool
) -> None:
    (first,) = log.submit(AddOffsetsToTxn("id", 0, 0, 1, "g"), producer.end(1, committed=committed))[1:]
    assert (first.committed, first.duplicate) == (committed, False)
    (again,) = log.submit(producer.end(1, committed=committed))
    assert again == replace(first, duplicate=True)
    ended = "committed" if committed else "aborted"
    with pytest.raises(CommandRefused, match=f"transaction 1 of 'id' has been {ended}"):
        log.submit(producer.end(1, committed=not committed))
    with pytest.raises(CommandRefused, match="transaction 2 of 'id' cannot be ended: the last one is 1"):
        log.submit(producer.end(2))


@pytest.mark.kafka("K25", "K26", "K38")
@pytest.mark.parametrize("last", ["committed", "aborted", "initialised"])
@pytest.mark.parametrize("number", [0, 1, 2, 3, 4])
def test_only_the_last_transaction_is_repeated_and_only_if_it_has_committed(
    log: PureLog, producer: ProducerCommands, last: str, number: int
) -> None:
    """An answer "done before" for offsets of another transaction, or of an aborted one, would lose them."""
    log.submit(producer.offset(1, "g", HERE, 1), producer.end(1))
    log.submit(producer.offset(2, "g", HERE, 2), producer.end(2, committed=last != "aborted"))
    if last == "initialised":
        producer = log.initialise("id")
    commands = (
        producer.offset(number, "g", HERE, 2),
        AddOffsetsToTxn("id", producer.producer_id, producer.producer_epoch, number, "g"),
    )
    for command in commands:
        if number == 3:
            with_the_begin = log.submit(command, producer.end(3, committed=False))
            assert [result.duplicate for result in with_the_begin] == [False, False]
            return
        if (number, last) == (2, "committed"):
            assert log.submit(command)[0].duplicate
        else:
            assert log.refusal(command) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("committed", [True, False])
def test_an_init_is_answered_with_the_last_transaction_and_how_it_ended(
    log: PureLog, producer: ProducerCommands, committed: bool
) -> None:
    log.submit(producer.append(HERE, 0, transaction=1), producer.end(1, committed=committed))
    command = InitProducerId("next", "id")
    (first,) = log.submit(command)
    assert first == CommandResult(producer_id=0, producer_epoch=1, transaction=1, committed=committed)
    assert log.submit(command) == [replace(first, duplicate=True)]
