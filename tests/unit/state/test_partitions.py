"""What an append and an end leave in a partition, whole, and the bounds of what an append may say (PROTOCOL.md)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sparktxn._engine.format.commands import AddPartitionsToTxn
from sparktxn._engine.format.names import segment_file, segment_token
from sparktxn._foundation.values.structs import (
    AbortedTransaction,
    BatchMetadata,
    CommittedTransaction,
    OpenTransaction,
    PartitionSegments,
    PartitionState,
    ProducerState,
    SegmentRef,
)
from sparktxn.errors import CommandRefused, ErrorCode
from tests.producercommands import ProducerCommands
from tests.purelog import PureLog

HERE, THERE = (1, 0), (1, 1)
TIMESTAMP_MS_MAX = 9_223_372_036_854_775


@pytest.fixture
def producer(log: PureLog) -> ProducerCommands:
    """An idempotent one, with producer id 0."""
    return log.initialise(None)


@pytest.mark.parametrize(
    ("changes", "valid"),
    [
        ({"record_count": 0}, False),
        ({"record_count": 1}, True),
        ({"record_count": 2**28}, True),
        ({"record_count": 2**28 + 1}, False),
        ({"size_bytes": 0}, False),
        ({"size_bytes": 1}, True),
        ({"size_bytes": 2**31}, True),
        ({"size_bytes": 2**31 + 1}, False),
        ({"base_sequence": -1}, False),
        ({"base_sequence": 2_147_483_647}, True),
        ({"base_sequence": 2_147_483_648}, False),
        ({"producer_id": -1}, False),
        ({"producer_id": 0}, True),
        ({"producer_epoch": -1}, False),
        ({"producer_epoch": 32_767}, True),
        ({"producer_epoch": 32_768}, False),
        ({"timestamp_min_ms": 2}, True),
        ({"timestamp_min_ms": 3}, False),
        ({"timestamp_max_ms": TIMESTAMP_MS_MAX}, True),
        ({"timestamp_max_ms": TIMESTAMP_MS_MAX + 1}, False),
        ({"checksum": "0123456"}, False),
        ({"checksum": "01234567"}, True),
        ({"checksum": "89abcdef"}, True),
        ({"checksum": "89ABCDEF"}, False),
        ({"checksum": "012345678"}, False),
        ({"checksum": "0123456g"}, False),
    ],
    ids=str,
)
def test_what_a_segment_may_say_of_itself(
    log: PureLog, producer: ProducerCommands, changes: dict[str, Any], valid: bool
) -> None:
    command = replace(producer.append(HERE, 0), **changes)
    before = dict(log.records)
    if valid:
        assert log.submit(command)[0].base_offset == 0
    else:
        assert log.refusal(command) == ErrorCode.INVALID_RECORD
        assert log.records == before


def test_a_refusal_says_where_and_what_was_expected(log: PureLog, producer: ProducerCommands) -> None:
    with pytest.raises(CommandRefused, match="partition 7 of topic id 1 does not exist"):
        log.submit(producer.append((1, 7), 0))
    log.records["store",] = replace(log.records["store",], segment_floor=1)
    assert log.entry == 2
    for born in (0, 3):
        with pytest.raises(CommandRefused, match=rf"born {born}, expected 1 to 2\)"):
            log.submit(producer.append(HERE, 0, born=born))


@pytest.mark.kafka("K57")
def test_a_batch_that_is_repeated_after_the_end_has_the_first_ones_place_and_time(log: PureLog) -> None:
    first = log.initialise("first")
    command = replace(first.append(HERE, 0, transaction=1), timestamp_min_ms=-1, timestamp_max_ms=-1)
    log.timestamp_ms = 700
    (stored,) = log.submit(command)
    log.timestamp_ms = 800
    assert log.submit(command) == [replace(stored, duplicate=True)]
    log.submit(first.end(1))
    assert log.submit(command) == [replace(stored, duplicate=True)]


@pytest.mark.parametrize("name", ["", "segment", segment_file(0, "0" * 20, "arrow").upper(), "0-1.arrow"])
def test_what_is_not_a_segments_name_is_refused(log: PureLog, producer: ProducerCommands, name: str) -> None:
    assert log.refusal(replace(producer.append(HERE, 0), segment=name)) == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(
    ("given", "kept", "told"),
    [((3, 7), (3, 7), -1), ((-5, 0), (-5, 0), -1), ((-1, -1), (900, 900), 900), ((-9, -2), (900, 900), 900)],
)
def test_an_append_outside_transactions(
    log: PureLog, producer: ProducerCommands, given: tuple[int, int], kept: tuple[int, int], told: int
) -> None:
    """A greatest timestamp below 0 leaves the time to the log."""
    other = log.initialise("other")
    log.submit(other.append(HERE, 0, 4, transaction=1))
    before, segments = log.partition(), log.segments()
    log.timestamp_ms = 900
    command = replace(
        producer.append(HERE, 17, 3), timestamp_min_ms=given[0], timestamp_max_ms=given[1], checksum="89abcdef"
    )
    (result,) = log.submit(command)
    assert (result.duplicate, result.base_offset, result.timestamp_ms) == (False, 4, told)
    assert log.partition() == PartitionState(1, 0, 0, 7, before.open_transactions)
    assert log.records["producer", *HERE, 0] == ProducerState(
        1, 0, 0, 0, (BatchMetadata(17, 19, 4, kept[1], -1, token=segment_token(command.segment)),), kept[1], -1, -1
    )
    named = SegmentRef(command.segment, 4, 3, 100, "89abcdef", log.entry, 0, 0, 17, -1, *kept, log.entry)
    assert log.segments() == replace(segments, segments=(*segments.segments, named))


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_in_a_partition_from_its_first_append_to_its_end(
    log: PureLog, producer: ProducerCommands, committed: bool
) -> None:
    first, second = log.initialise("first"), log.initialise("second")
    log.submit(producer.append(HERE, 0, 4))
    log.submit(second.append(HERE, 0, transaction=1))
    sent = [first.append(HERE, 0, 2, transaction=1), first.append(HERE, 2, transaction=1)]
    named = []
    for command, base_offset in zip(sent, (5, 7), strict=True):
        log.submit(command)
        named.append(
            SegmentRef(
                command.segment, base_offset, command.record_count, 100, "00000000", log.entry, 1, 0,
                command.base_sequence, 1, 1, 2, 0,
            )
        )  # fmt: skip
    opened = (OpenTransaction(2, 4, "second"), OpenTransaction(1, 5, "first"))
    assert log.partition() == PartitionState(1, 0, 0, 8, opened)
    batches = tuple(
        BatchMetadata(*sequences, offset, 2, 1, token=segment_token(command.segment))
        for command, sequences, offset in zip(sent, ((0, 1), (2, 2)), (5, 7), strict=True)
    )
    assert log.records["producer", *HERE, 1] == ProducerState(1, 0, 1, 0, batches, 2, -1, 5)
    segments = log.segments()
    assert segments.segments[2:] == tuple(named)
    log.timestamp_ms = 700
    log.submit(first.end(1, committed=committed))
    assert log.partition() == PartitionState(1, 0, 0, 9, opened[:1])
    ended = tuple(replace(batch, aborted=not committed) for batch in batches)
    assert log.records["producer", *HERE, 1] == ProducerState(1, 0, 1, 0, ended, 700, log.entry, -1)
    kept = PartitionSegments(1, 0, (), segments.segments)
    if committed:
        assert log.segments() == replace(kept, committed=(CommittedTransaction(1, 5, 8, log.entry),))
    else:
        assert log.segments() == replace(kept, aborted=(AbortedTransaction(1, 5, 8, 4),))
    log.submit(second.end(1, committed=committed))
    assert log.segments().aborted == (
        () if committed else (AbortedTransaction(1, 5, 8, 4), AbortedTransaction(2, 4, 9, 10))
    )
    assert len(log.segments().committed) == (2 if committed else 0)
    before = log.segments()
    log.submit(producer.append(HERE, 4), first.append(HERE, 3, transaction=2))
    assert log.segments() == replace(before, segments=log.segments().segments)


def test_a_transaction_whose_first_record_has_offset_0_is_open_from_there(log: PureLog) -> None:
    first = log.initialise("first")
    log.submit(first.append(HERE, 0, transaction=1))
    assert log.partition().open_transactions == (OpenTransaction(0, 0, "first"),)
    log.submit(first.append(HERE, 1, transaction=1))
    assert log.partition().open_transactions == (OpenTransaction(0, 0, "first"),)
    log.submit(first.end(1))
    assert log.segments().committed == (CommittedTransaction(0, 0, 2, log.entry),)
    log.submit(first.append(HERE, 2, transaction=2))
    assert log.partition().open_transactions == (OpenTransaction(0, 3, "first"),)


def test_an_append_registers_its_partition_once(log: PureLog) -> None:
    first = log.initialise("first")
    log.submit(AddPartitionsToTxn("first", 0, 0, 1, (THERE, HERE)))
    log.submit(first.append(HERE, 0, transaction=1))
    assert log.transaction("first").partitions == (THERE, HERE)
    log.submit(first.append(HERE, 1, transaction=1), first.append(THERE, 0, transaction=1))
    assert log.transaction("first").partitions == (THERE, HERE)
    assert log.transaction("first").start_entry == log.entry - 2
