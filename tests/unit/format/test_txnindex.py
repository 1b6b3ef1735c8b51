from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktxn._engine.format.txnindex import decode_transaction_index, encode_transaction_index
from sparktxn._foundation.values.structs import AbortedTransaction
from sparktxn.errors import DamagedObject, FormatVersionError
from tests.each import each

# Kafka's TransactionIndexTest and testTransactionIndexUpdated have these two.
GOLDEN = [AbortedTransaction(1, 0, 29, 8), AbortedTransaction(2, 8, 74, 36)]
GOLDEN_BYTES = bytes.fromhex(
    "0000"
    "0000000000000001" "0000000000000000" "000000000000001d" "0000000000000008"
    "0000"
    "0000000000000002" "0000000000000008" "000000000000004a" "0000000000000024"
)  # fmt: skip


@pytest.mark.kafka("K75")
def test_the_bytes_are_kafkas() -> None:
    assert encode_transaction_index(GOLDEN) == GOLDEN_BYTES
    assert decode_transaction_index(GOLDEN_BYTES, "i") == tuple(GOLDEN)


@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 100), st.integers(1, 100)), min_size=1))
def test_entries_come_back_as_they_were(rows: list[tuple[int, int, int]]) -> None:
    transactions, last = [], 0
    for producer_id, length, gap in rows:
        last += gap + length
        transactions.append(AbortedTransaction(producer_id, last - length, last, last + 1 - length))
    data = encode_transaction_index(transactions)
    assert len(data) == 34 * len(rows)
    assert decode_transaction_index(data, "i") == tuple(transactions)


@pytest.mark.kafka("K76", "K81")
@each(
    [
        (replace(GOLDEN[1], last_offset=29), "not above the one before it, 29"),
        (replace(GOLDEN[1], last_offset=28), "not above the one before it, 29"),
        (replace(GOLDEN[1], first_offset=75), "below its first"),
        (replace(GOLDEN[1], first_offset=-1), "start at 0"),
        (replace(GOLDEN[1], producer_id=-1), "start at 0"),
        (replace(GOLDEN[1], last_stable_offset=76), "last stable offset"),
        (replace(GOLDEN[1], last_stable_offset=-1), "last stable offset"),
    ]
)
def test_what_cannot_be_is_neither_written_nor_believed(second: AbortedTransaction, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        encode_transaction_index([GOLDEN[0], second])
    numbers = (second.producer_id, second.first_offset, second.last_offset, second.last_stable_offset)
    data = GOLDEN_BYTES[:36] + b"".join(number.to_bytes(8, "big", signed=True) for number in numbers)
    with pytest.raises(DamagedObject, match=f"entry 1 .*{reason}") as caught:
        decode_transaction_index(data, "f/0.txnindex")
    assert caught.value.object_name == "f/0.txnindex"


@pytest.mark.kafka("K81")
@each([0, 1, 33, 35, 67])
def test_a_part_of_an_entry_is_damage(length: int) -> None:
    with pytest.raises(DamagedObject, match=f"has {length} bytes"):
        decode_transaction_index(GOLDEN_BYTES[:length], "i")


def test_other_versions() -> None:
    with pytest.raises(FormatVersionError):
        decode_transaction_index(b"\0\1" + GOLDEN_BYTES[2:], "i")
    with pytest.raises(DamagedObject, match="version is below 0"):
        decode_transaction_index(b"\xff\xff" + GOLDEN_BYTES[2:], "i")
