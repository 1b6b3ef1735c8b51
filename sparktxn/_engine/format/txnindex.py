"""The index of aborted transactions of a sealed run, byte for byte Kafka's ``.txnindex`` (PROTOCOL.md, "Sidecars").

Entries of 34 bytes, big-endian, and nothing else. They hold int16 version (0), int64 producer id, first offset, last
offset (that of the control record) and last stable offset. They are in the order of their last offsets, which are
unique: a control record ends one transaction.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from sparktxn._foundation.values.structs import AbortedTransaction
from sparktxn.errors import DamagedObject, FormatVersionError

_VERSION: Final = 0
_ENTRY: Final = struct.Struct(">hqqqq")
_OFFSET_MAX: Final = 2**63 - 1


def encode_transaction_index(transactions: Iterable[AbortedTransaction]) -> bytes:
    """Return the index's bytes.

    Raises:
        ValueError: the last offsets do not increase, or an entry's numbers contradict each other.
    """
    encoded = []
    previous = -1
    for transaction in transactions:
        if problem := _problem(transaction, previous):
            raise ValueError(f"aborted transaction {transaction} cannot be indexed: {problem}")
        previous = transaction.last_offset
        encoded.append(
            _ENTRY.pack(
                _VERSION,
                transaction.producer_id,
                transaction.first_offset,
                transaction.last_offset,
                transaction.last_stable_offset,
            )
        )
    return b"".join(encoded)


def decode_transaction_index(data: bytes, name: str) -> tuple[AbortedTransaction, ...]:
    """Return the aborted transactions in the index, in the order of their last offsets.

    Raises:
        DamagedObject: the bytes are not whole entries whose last offsets increase.
        FormatVersionError: an entry has a version above 0.
    """
    if not data or len(data) % _ENTRY.size:
        raise DamagedObject(name, f"it has {len(data)} bytes: expected a multiple of {_ENTRY.size}, above 0")
    transactions: list[AbortedTransaction] = []
    previous = -1
    for version, *numbers in _ENTRY.iter_unpack(data):
        if version > _VERSION:
            raise FormatVersionError(name, f"has version {version}, and this version reads up to {_VERSION}")
        transaction = AbortedTransaction(*numbers)
        problem = "its version is below 0" if version < 0 else _problem(transaction, previous)
        if problem:
            raise DamagedObject(name, f"entry {len(transactions)} is {transaction}: {problem}")
        previous = transaction.last_offset
        transactions.append(transaction)
    return tuple(transactions)


def _problem(transaction: AbortedTransaction, previous_last_offset: int) -> str | None:
    if transaction.producer_id < 0 or transaction.first_offset < 0:
        return "producer id and offsets start at 0"
    if transaction.last_offset < transaction.first_offset:
        return "its last offset is below its first"
    if transaction.last_offset <= previous_last_offset:
        return f"its last offset is not above the one before it, {previous_last_offset}"
    if not 0 <= transaction.last_stable_offset <= min(transaction.last_offset + 1, _OFFSET_MAX):
        return "its last stable offset is not from 0 to the offset after its last"
    return None
