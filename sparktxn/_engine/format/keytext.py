"""Keys of keyed topics: the text form of their values, and the partition that it is hashed to (PROTOCOL.md, "Keys").

All rows at once, on Arrow's buffers. Writers and readers import this late, since numpy takes a tenth of a second.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

KEY_BYTES_MAX: Final = 4_096
"""The most bytes of a key's text form."""

_CHUNK_ROWS: Final = 262_144
_SEED: Final = 0x9747B28C
_FACTOR: Final = np.uint32(0x5BD1E995)
_POSITIVE: Final = np.uint32(0x7FFFFFFF)
_TAIL_MASKS: Final = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)

_YEARS: Final = ("0001-01-01", "9999-12-31")
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"'} | {
    chr(code): {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}.get(code, f"\\u{code:04x}") for code in range(32)
}
_NEEDS_ESCAPE: Final = r'[\x00-\x1f"\\]'


def key_texts(columns: Sequence[pa.Array]) -> pa.BinaryArray:
    """Return the text form of each row's key, given the columns of the key in the key's order, without nulls.

    Args:
        columns: arrays of types that a key may have, with times from the year 1 to 9999 (`unwritable`).
    """
    if len(columns) == 1:
        return _text(columns[0]).cast(pa.binary())
    parts: list[Any] = [pa.scalar("[")]
    for place, column in enumerate(columns):
        parts += [pa.scalar("," if place else ""), _member(column)]
    joined = pc.binary_join_element_wise(*parts, pa.scalar("]"), pa.scalar(""))
    return joined.cast(pa.binary())


def unwritable(column: pa.Array) -> Any:
    """Return a value of a key's column that has no text form, a time outside of the years 1 to 9999; None if all have.

    >>> unwritable(pa.array([0], pa.date32())) is None
    True
    """
    if not (pa.types.is_date32(column.type) or pa.types.is_timestamp(column.type)) or not len(column):
        return None
    least, greatest = (_whole(day, column.type) for day in _YEARS)
    if not pa.types.is_date32(column.type):
        greatest += 86_400_000_000 - 1
    numbers = column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    found = pc.min_max(numbers)
    for number in (found["min"].as_py(), found["max"].as_py()):
        if number is not None and not least <= number <= greatest:
            return number
    return None


def _whole(day: str, data_type: pa.DataType) -> int:
    number = pa.scalar(day).cast(pa.date32())
    return int(number.cast(pa.int32()).as_py()) * (1 if pa.types.is_date32(data_type) else 86_400_000_000)


def _text(column: pa.Array) -> pa.Array:
    """Return the values of one column as text; bytes as they are."""
    types = pa.types
    if types.is_string(column.type) or types.is_binary(column.type):
        return column
    if types.is_timestamp(column.type):
        local = column.view(pa.timestamp("us"))
        text = pc.replace_substring(local.cast(pa.string()), " ", "T")
        return text if column.type.tz is None else pc.binary_join_element_wise(text, "Z", "")
    if types.is_decimal(column.type):
        return _decimals(column)
    return column.cast(pa.string())


def _decimals(column: pa.Array) -> pa.Array:
    """Return decimals with all digits of their scale: Arrow writes small ones with an exponent."""
    scale = column.type.scale
    text = column.view(pa.decimal128(column.type.precision, 0)).cast(pa.string())
    if not scale:
        return text
    sign = pc.if_else(pc.starts_with(text, "-"), "-", "")
    digits = pc.utf8_lpad(pc.utf8_ltrim(text, "-"), scale + 1, "0")
    whole, rest = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    return pc.binary_join_element_wise(pc.binary_join_element_wise(sign, whole, ""), rest, ".")


def _member(column: pa.Array) -> pa.Array:
    """Return the values of one column as members of a JSON array."""
    types = pa.types
    if types.is_integer(column.type) or types.is_boolean(column.type):
        return _text(column)
    if types.is_binary(column.type):
        text = _by_value(column, lambda value: base64.b64encode(value).decode())
    else:
        text = _text(column)
        if types.is_string(column.type) and pc.any(pc.match_substring_regex(text, _NEEDS_ESCAPE)).as_py():
            for character, escaped in _ESCAPES.items():
                text = pc.replace_substring(text, character, escaped)
    return pc.binary_join_element_wise(pa.scalar('"'), text, pa.scalar('"'), pa.scalar(""))


def _by_value(column: pa.Array, change: Callable[[Any], str]) -> pa.Array:
    encoded = column.dictionary_encode()
    return pa.array(map(change, encoded.dictionary.to_pylist()), pa.string()).take(encoded.indices)


def partitions_of_texts(texts: pa.BinaryArray, partition_count: int) -> pa.Array:
    """Return the partition of each key, by its text form, as int32: Kafka's (murmur2 & 0x7fffffff) % count."""
    if partition_count == 1:
        return pa.repeat(pa.scalar(0, pa.int32()), len(texts))
    found = (hashes(texts) & _POSITIVE) % np.uint32(partition_count)
    return pa.array(found.astype(np.int32))


def words_at(texts: pa.Array, kind: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the words that begin at each byte of all texts, of which one follows the other; starts; and lengths.

    Args:
        texts: an array of text or binary.
        kind: numpy's name of a type of numbers. Past the last text the bytes of a word are 0.
    """
    _, offsets_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(texts) + 1, texts.offset * 4) if len(texts) else np.zeros(1)
    first, end = int(offsets[0]), int(offsets[-1])
    # A word more, so that one may be read at each place.
    data = np.zeros(end - first + np.dtype(kind).itemsize, np.uint8)
    if end > first:
        data[: end - first] = np.frombuffer(data_buffer, np.uint8, end - first, first)
    words: npt.NDArray[Any] = np.ndarray((end - first + 1,), np.dtype(kind), data, strides=(1,))
    return words, offsets[:-1].astype(np.int64) - first, np.diff(offsets).astype(np.int64)


def hashes(texts: pa.BinaryArray) -> npt.NDArray[np.uint32]:
    """Return Kafka's murmur2 of each text (org.apache.kafka.common.utils.Utils.murmur2), as unsigned numbers."""
    words, starts, lengths = words_at(texts, "<u4")
    found = np.empty(len(starts), np.uint32)
    for begin in range(0, len(starts), _CHUNK_ROWS):
        some = slice(begin, begin + _CHUNK_ROWS)
        found[some] = _hashed(words, starts[some], lengths[some])
    return found


def _hashed(
    words: npt.NDArray[np.uint32], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]:
    """Return the hashes of texts: the n-th word of all of them at once, of those that have so many."""
    counts = lengths >> 2
    # The longest first, so that those with an n-th word are the first ones.
    order = np.argsort(-counts, kind="stable")
    starts, lengths, counts = starts[order], lengths[order], counts[order]
    hash_ = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    have = np.searchsorted(-counts, -np.arange(1, int(counts[0]) + 1), side="right")
    for place, count in enumerate(have.tolist()):
        word = words[starts[:count] + 4 * place] * _FACTOR
        word ^= word >> np.uint32(24)
        word *= _FACTOR
        some = hash_[:count]
        some *= _FACTOR
        some ^= word
    tails = lengths & 3
    tailed = tails > 0
    tail = words[starts[tailed] + 4 * counts[tailed]] & _TAIL_MASKS[tails[tailed]]
    hash_[tailed] = (hash_[tailed] ^ tail) * _FACTOR
    hash_ ^= hash_ >> np.uint32(13)
    hash_ *= _FACTOR
    hash_ ^= hash_ >> np.uint32(15)
    found = np.empty_like(hash_)
    found[order] = hash_
    return found
