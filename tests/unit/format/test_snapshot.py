from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktxn._engine.format.snapshot import ProducerSnapshotEntry, decode_snapshot, encode_snapshot, snapshot_entry
from sparktxn._foundation.values.structs import BatchMetadata, ProducerState
from sparktxn.errors import DamagedObject, FormatVersionError
from tests.each import each

GOLDEN = [
    ProducerSnapshotEntry(1, 2, 3, 4, 5, 6, 7, 8),
    ProducerSnapshotEntry(9, 0, -1, -1, 0, -1, -1, -1),
]
GOLDEN_BODY = bytes.fromhex(
    "00000002"
    "0000000000000001" "0002" "00000003" "0000000000000004" "00000005" "0000000000000006" "00000007" "0000000000000008"
    "0000000000000009" "0000" "ffffffff" "ffffffffffffffff" "00000000" "ffffffffffffffff" "ffffffff" "ffffffffffffffff"
)  # fmt: skip


def crc32c(data: bytes) -> int:
    """CRC-32C bit by bit, by the book: the product uses a library."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


GOLDEN_BYTES = bytes.fromhex("0001") + crc32c(GOLDEN_BODY).to_bytes(4, "big") + GOLDEN_BODY


@pytest.mark.kafka("K87")
def test_the_bytes_are_kafkas() -> None:
    assert encode_snapshot(GOLDEN) == GOLDEN_BYTES
    assert decode_snapshot(GOLDEN_BYTES, "s") == tuple(GOLDEN)


def test_no_producers() -> None:
    assert decode_snapshot(encode_snapshot([]), "s") == ()
    assert len(encode_snapshot([])) == 10


int16, int32, int64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))


@given(
    st.lists(
        st.builds(ProducerSnapshotEntry, int64, int16, int32, int64, int32, int64, int32, int64),
        unique_by=lambda entry: entry.producer_id,
    )
)
def test_entries_come_back_as_they_were(entries: list[ProducerSnapshotEntry]) -> None:
    assert decode_snapshot(encode_snapshot(entries), "s") == tuple(entries)


def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit a snapshot"):
        encode_snapshot([replace(GOLDEN[0], producer_epoch=2**15)])


@pytest.mark.kafka("K89")
def test_every_truncation_is_damage() -> None:
    for length in range(len(GOLDEN_BYTES)):
        with pytest.raises(DamagedObject):
            decode_snapshot(GOLDEN_BYTES[:length], "s")


@pytest.mark.kafka("K89")
@each(range(2, len(GOLDEN_BYTES)))
def test_every_flipped_bit_is_damage(place: int) -> None:
    data = bytearray(GOLDEN_BYTES)
    data[place] ^= 1 << place % 8
    with pytest.raises(DamagedObject, match="checksum"):
        decode_snapshot(bytes(data), "s")


@pytest.mark.kafka("K89")
def test_other_versions() -> None:
    with pytest.raises(FormatVersionError):
        decode_snapshot(b"\0\2" + GOLDEN_BYTES[2:], "s")
    with pytest.raises(DamagedObject, match="version is 0"):
        decode_snapshot(b"\0\0" + GOLDEN_BYTES[2:], "s")


def test_a_producer_twice_is_damage() -> None:
    with pytest.raises(DamagedObject, match="twice"):
        decode_snapshot(encode_snapshot([GOLDEN[0], GOLDEN[0]]), "s")


@pytest.mark.parametrize("count", [-1, 1, 3])
def test_another_count_is_damage(count: int) -> None:
    body = count.to_bytes(4, "big", signed=True) + GOLDEN_BODY[4:]
    with pytest.raises(DamagedObject, match=f"expected {count} of 46 bytes"):
        decode_snapshot(b"\0\1" + crc32c(body).to_bytes(4, "big") + body, "s")


PRODUCER = ProducerState(
    topic_id=1,
    partition=0,
    producer_id=7,
    producer_epoch=3,
    batches=(BatchMetadata(0, 4, 100, 1, -1), BatchMetadata(5, 9, 200, 2, -1)),
    timestamp_ms=2,
    coordinator_epoch=11,
    current_transaction_first_offset=100,
)


@pytest.mark.kafka("K87")
def test_only_the_last_batch_is_kept() -> None:
    assert snapshot_entry(PRODUCER) == ProducerSnapshotEntry(7, 3, 9, 204, 4, 2, 11, 100)


def test_a_producer_without_batches() -> None:
    assert snapshot_entry(replace(PRODUCER, batches=())) == ProducerSnapshotEntry(7, 3, -1, -1, 0, 2, 11, 100)


def test_sequences_that_wrap_inside_a_batch() -> None:
    wrapped = replace(PRODUCER, batches=(BatchMetadata(2**31 - 2, 1, 50, 1, -1),))
    assert snapshot_entry(wrapped) == ProducerSnapshotEntry(7, 3, 1, 53, 3, 2, 11, 100)


def test_a_coordinator_epoch_above_32_bits_stays_at_the_largest() -> None:
    entry = snapshot_entry(replace(PRODUCER, coordinator_epoch=2**40))
    assert entry.coordinator_epoch == 2**31 - 1
    encode_snapshot([entry])
