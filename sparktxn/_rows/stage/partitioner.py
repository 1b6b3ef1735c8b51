"""How a key chooses its partition: librdkafka's partitioners by their names, with equal results."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from sparktxn.errors import ConfigurationError, did_you_mean

Pick = Callable[[int], int]
"""Given a partition count, a partition for a record that has no key."""

Partitioner = Callable[[bytes | None, int, Pick], int]
"""(key, partition count, pick) to a partition."""

_UNDECIDED: Final = -1
"""In the place of a partition: the caller's `pick` chooses it."""

_UINT32: Final = 0xFFFFFFFF
_INT32_MAX: Final = 0x7FFFFFFF
_SIGN: Final = 0x80000000

_MURMUR2_SEED: Final = 0x9747B28C
_MURMUR2_FACTOR: Final = 0x5BD1E995
_FNV1A_SEED: Final = 0x811C9DC5
_FNV1A_FACTOR: Final = 0x01000193


def murmur2(key: bytes) -> int:
    """Return Kafka's murmur2 of `key`, as Java's signed int (org.apache.kafka.common.utils.Utils.murmur2).

    >>> murmur2(b"foobar")
    -790332482
    """
    length = len(key)
    tail_length = length & 3
    hash_ = _MURMUR2_SEED ^ length
    for (word,) in struct.iter_unpack("<I", key[: length - tail_length]):
        word = word * _MURMUR2_FACTOR & _UINT32
        word = (word ^ word >> 24) * _MURMUR2_FACTOR & _UINT32
        hash_ = (hash_ * _MURMUR2_FACTOR & _UINT32) ^ word
    if tail_length:
        tail = int.from_bytes(key[length - tail_length :], "little")
        hash_ = (hash_ ^ tail) * _MURMUR2_FACTOR & _UINT32
    hash_ = (hash_ ^ hash_ >> 13) * _MURMUR2_FACTOR & _UINT32
    hash_ ^= hash_ >> 15
    return hash_ - (1 << 32) if hash_ & _SIGN else hash_


def fnv1a(key: bytes) -> int:
    """Return the 32-bit FNV-1a of `key` as Sarama uses it: the absolute value of the signed number.

    >>> hex(fnv1a(b"kafka"))
    '0xd33c4e1'
    """
    hash_ = _FNV1A_SEED
    for byte in key:
        hash_ = (hash_ ^ byte) * _FNV1A_FACTOR & _UINT32
    return (1 << 32) - hash_ if hash_ & _SIGN else hash_


def _consistent(key: bytes | None, partition_count: int, pick: Pick) -> int:
    return zlib.crc32(key or b"") % partition_count


def _consistent_random(key: bytes | None, partition_count: int, pick: Pick) -> int:
    # An empty key is not a key to this one, as in librdkafka; to those below it is a key.
    return zlib.crc32(key) % partition_count if key else pick(partition_count)


def _random(key: bytes | None, partition_count: int, pick: Pick) -> int:
    return pick(partition_count)


def _murmur2(key: bytes | None, partition_count: int, pick: Pick) -> int:
    return (murmur2(key or b"") & _INT32_MAX) % partition_count


def _murmur2_random(key: bytes | None, partition_count: int, pick: Pick) -> int:
    return pick(partition_count) if key is None else _murmur2(key, partition_count, pick)


def _fnv1a(key: bytes | None, partition_count: int, pick: Pick) -> int:
    return fnv1a(key or b"") % partition_count


def _fnv1a_random(key: bytes | None, partition_count: int, pick: Pick) -> int:
    return pick(partition_count) if key is None else _fnv1a(key, partition_count, pick)


PARTITIONERS: Final[dict[str, Partitioner]] = {
    "consistent_random": _consistent_random,
    "consistent": _consistent,
    "random": _random,
    "murmur2": _murmur2,
    "murmur2_random": _murmur2_random,
    "fnv1a": _fnv1a,
    "fnv1a_random": _fnv1a_random,
}
"""The partitioners by librdkafka's names; the first is the default."""


def partitioner(name: str) -> Partitioner:
    """Return the partitioner called `name`.

    Raises:
        ConfigurationError: there is none.
    """
    try:
        return PARTITIONERS[name]
    except KeyError:
        expected = ", ".join(PARTITIONERS)
        raise ConfigurationError(
            f"setting 'partitioner' is {name!r}: expected one of {expected}{did_you_mean(name, PARTITIONERS)}"
        ) from None


def partitions_of_keys(name: str, keys: pa.Array, partition_count: int, pick: Pick) -> pa.Array:
    """Return the partition of each key of a binary column, as int32; `pick` is called in the order of the rows.

    Raises:
        ConfigurationError: there is no partitioner called `name`.
    """
    choose = partitioner(name)
    # Each key once, however many rows have it: hashing is most of what dividing rows costs.
    encoded = keys.dictionary_encode()
    by_key = [choose(key, partition_count, _undecided) for key in encoded.dictionary.to_pylist()]
    without_key = choose(None, partition_count, _undecided)
    chosen = pa.array(by_key, pa.int32()).take(encoded.indices).fill_null(without_key)
    if _UNDECIDED in by_key or (without_key == _UNDECIDED and encoded.null_count):
        rows = chosen.to_pylist()
        chosen = pa.array([pick(partition_count) if row == _UNDECIDED else row for row in rows], pa.int32())
    return chosen


def _undecided(partition_count: int) -> int:
    return _UNDECIDED
