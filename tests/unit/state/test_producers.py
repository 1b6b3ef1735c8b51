"""What a partition remembers of a producer, by PROTOCOL.md: `append`, Repetitions, and what `end_txn` does to it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktxn._engine.state.delta import Refusal
from sparktxn._engine.state.transactions.producerfencing import (
    SEQUENCE_MAX,
    check_append,
    is_past,
    next_sequence,
    with_batch,
    with_marker,
)
from sparktxn._foundation.values.structs import BatchMetadata, ProducerState
from sparktxn.errors import ErrorCode
from tests.each import each

BATCHES = tuple(BatchMetadata(n, n, 100 + n, 50 + n, 3, token=f"{n}") for n in range(5))
KNOWN = ProducerState(1, 2, 7, 4, BATCHES, 54, 9, 60)
NEXT = BatchMetadata(5, 6, 105, 77, 3, token="5")
IDENTITY = (1, 2, 7, 4)


def with_last(sequence: int) -> ProducerState:
    return replace(KNOWN, batches=(BatchMetadata(0, sequence, 0, 0, 3),))


@pytest.mark.kafka("K61")
def test_sequences_are_32_bits_without_the_sign() -> None:
    assert SEQUENCE_MAX == 2_147_483_647
    assert [next_sequence(SEQUENCE_MAX - 1, n) for n in range(4)] == [SEQUENCE_MAX - 1, SEQUENCE_MAX, 0, 1]


@pytest.mark.kafka("K57", "K61")
@each([0, 1, 10, 2**30, SEQUENCE_MAX - 1, SEQUENCE_MAX])
def test_a_sequence_is_past_at_the_last_one_and_in_the_half_of_all_numbers_behind_it(last: int) -> None:
    """The other half is what is to come: so an old batch differs from a new one across the wrap."""
    for behind, past in ((0, True), (1, True), (2**30 - 1, True), (2**30, False), (SEQUENCE_MAX, False)):
        sequence = (last - behind) % 2**31
        assert is_past(with_last(last), 4, sequence) is past, (last, behind)


def test_only_what_this_epoch_has_stored_is_past() -> None:
    assert is_past(KNOWN, 4, 3)
    assert not is_past(KNOWN, 3, 3)
    assert not is_past(KNOWN, 5, 3)
    assert not is_past(None, 4, 3)
    assert not is_past(replace(KNOWN, batches=()), 4, SEQUENCE_MAX)


@pytest.mark.kafka("K57")
def test_of_more_than_five_batches_the_oldest_is_forgotten() -> None:
    assert with_batch(KNOWN, IDENTITY, NEXT) == ProducerState(1, 2, 7, 4, (*BATCHES[1:], NEXT), 77, 9, 60)
    four = replace(KNOWN, batches=BATCHES[1:])
    assert with_batch(four, IDENTITY, NEXT) == ProducerState(1, 2, 7, 4, (*BATCHES[1:], NEXT), 77, 9, 60)


@pytest.mark.kafka("K60")
def test_a_new_epoch_forgets_the_batches_and_keeps_the_rest() -> None:
    assert with_batch(KNOWN, (1, 2, 7, 5), NEXT) == ProducerState(1, 2, 7, 5, (NEXT,), 77, 9, 60)


@pytest.mark.kafka("K62")
@pytest.mark.parametrize(("transaction", "first_offset"), [(-1, -1), (0, 105), (3, 105)])
def test_a_new_producer_has_no_control_record_and_its_first_records_open_a_transaction(
    transaction: int, first_offset: int
) -> None:
    batch = replace(NEXT, transaction=transaction)
    assert with_batch(None, IDENTITY, batch) == ProducerState(1, 2, 7, 4, (batch,), 77, -1, first_offset)
    ended = replace(KNOWN, current_transaction_first_offset=-1)
    assert with_batch(ended, IDENTITY, batch).current_transaction_first_offset == first_offset
    at_0 = replace(KNOWN, current_transaction_first_offset=0)
    assert with_batch(at_0, IDENTITY, batch).current_transaction_first_offset == 0


@pytest.mark.kafka("K64", "K66")
@pytest.mark.parametrize("committed", [True, False])
def test_a_control_record_ends_the_transaction_and_marks_the_batches_of_an_aborted_one(committed: bool) -> None:
    known = replace(KNOWN, batches=(replace(BATCHES[0], transaction=2), *BATCHES[1:]))
    marked = known.batches
    if not committed:
        marked = (known.batches[0], *(replace(batch, aborted=True) for batch in known.batches[1:]))
    assert with_marker(known, 4, 3, committed, 12, 99) == ProducerState(1, 2, 7, 4, marked, 99, 12, -1)
    assert with_marker(known, 5, 3, committed, 12, 99) == ProducerState(1, 2, 7, 5, (), 99, 12, -1)


@pytest.mark.kafka("K56", "K57", "K58", "K59", "K60")
def test_what_may_follow() -> None:
    def code(known: ProducerState, epoch: int, sequence: int, count: int = 1) -> object:
        told = check_append(known, epoch, sequence, count)
        return told.code if isinstance(told, Refusal) else told

    assert check_append(None, 0, 17, 1) is None
    assert code(KNOWN, 3, 5) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert [code(KNOWN, 4, sequence) for sequence in range(6)] == [*BATCHES, None]
    assert code(KNOWN, 4, 6) == code(KNOWN, 4, 4, 2) == code(KNOWN, 4, 3, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (code(KNOWN, 5, 0), code(KNOWN, 5, 5)) == (None, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    for bare in (replace(KNOWN, batches=()), replace(KNOWN, batches=(replace(BATCHES[0], aborted=True),))):
        assert code(bare, 5, 0) is None
    assert code(replace(KNOWN, batches=()), 4, 0) is None
    assert code(replace(KNOWN, batches=()), 4, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    aborted = replace(KNOWN, batches=(*BATCHES[:4], replace(BATCHES[4], aborted=True)))
    assert (code(aborted, 4, 4), code(aborted, 4, 5)) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None)
