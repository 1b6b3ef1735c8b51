"""A digest of a set of rows: whatever their order and their division, equal rows have equal digests (PROTOCOL.md).

Each row becomes 64 bits, by arithmetic modulo 2^64 over whole columns. The digest is their number and two sums. Two
equal rows count twice, as a sum does not cancel them. Digests that earlier processes recorded are compared with new
ones. So no library's own hash is used: the arithmetic below is part of the format.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparktxn._engine.format.schema import stored_schema
from sparktxn._rows.stage.columnconversion import PARTITION, plain_array
from sparktxn._rows.stage.recordsizes import pairs_of
from sparktxn._rows.stage.stagedsegment import RowsDigest, StageTopic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

KIND: Final = "rows1"
"""Names the arithmetic: a change of it needs another name."""

_GAMMA: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_NULL: Final = np.uint64(0x5851F42D4C957F2D)
_NAN: Final = pa.scalar(float("nan"), pa.float64())

_HALF: Final = np.uint64(32)

_BLOCK_WORDS: Final = 32_768
"""Words that are mixed at a time: they stay in a core's cache."""

_PLACES: Final = np.arange(_BLOCK_WORDS, dtype=np.uint64)

_PADDING: Final = pa.array([bytes(count) for count in range(8)], pa.binary())
_NOTHING: Final = pa.scalar(b"", pa.binary())


def rows_digest(topic: str, columns: Mapping[str, pa.Array], count: int) -> RowsDigest:
    """Return the digest of `count` rows for a topic; their order, encoding and null slots' bytes do not count.

    A value is bound to its topic, its column's name and its row. Null differs from every value, and a column that is
    missing is null: a topic may have got it since. All NaN are one value, and so are 0.0 and -0.0.
    """
    return digest_of_words(KIND, _rows(columns, count) + name_word(topic))


def digest_of_words(kind: str, words: Words) -> RowsDigest:
    """Return the digest of rows of which each is one word already."""
    return RowsDigest(kind, len(words), int(_mixed(words).sum()), int(_mixed(words ^ _NULL).sum()))


def digest_of_records(topic: StageTopic, rows: pa.Table, records: pa.Table, partitions: pa.Array | None) -> RowsDigest:
    """Return the digest of what the user gave in `rows`: staging has made the topic's `records` of them.

    Not of what staging adds: the timestamp of a row that has none, and the partition of a row that says none. Where the
    log stores no timestamp of a row, they are not part of it either.
    """
    columns = dict(zip(records.column_names, (column.chunk(0) for column in records.columns), strict=True))
    name = records.column_names[-1]
    if name not in rows.column_names or topic.has_times_of_entries:
        del columns[name]
    elif rows.column(name).null_count:
        columns[name] = pc.if_else(rows.column(name).is_valid().combine_chunks(), columns[name], None)
    if partitions is not None:
        columns[PARTITION] = partitions
    return rows_digest(topic.name, columns, len(rows))


def key_words(topic: StageTopic, rows: pa.RecordBatch | pa.Table) -> Words:
    """Return one word for each row of a keyed topic, of its key alone: equal keys have equal words.

    `rows` are as the topic stores them, or as a writer gives them after a stager has taken them.
    """
    if not rows.num_rows:
        return np.zeros(0, np.uint64)
    schema = stored_schema(topic.schema)
    columns: dict[str, pa.Array] = {}
    for name in topic.primary_key:
        column = rows.column(name)
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        columns[name] = plain_array(whole).cast(schema.field(name).type)
    return _rows(columns, rows.num_rows)


def _mixed(words: Words) -> Words:
    """Return SplitMix64's output for each word as its state: every bit depends on all bits, and no two are equal."""
    mixed = words + _GAMMA
    mixed ^= mixed >> np.uint64(30)
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _rows(columns: Mapping[str, pa.Array], count: int) -> Words:
    """Return one word for each row: the sum of its values that are not null, each mixed with its column's name."""
    rows = np.zeros(count, np.uint64)
    for name, array in columns.items():
        if array.null_count < count:
            rows += _without_nulls(array, _mixed(_values(array) + name_word(name)), np.uint64(0))
    return rows


def _without_nulls(array: pa.Array, words: Words, null: np.uint64) -> Words:
    if not array.null_count:
        return words
    return np.where(_numbers(array.is_null().cast(pa.uint8()), np.uint8), null, words)


def name_word(name: str) -> np.uint64:
    """Return the word that binds a row to the topic of this name, or a value to its column."""
    return np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))


def _items(array: pa.Array) -> Words:
    """Return one word for each item of lists."""
    return _without_nulls(array, _values(array), _NULL)


def _values(array: pa.Array) -> Words:
    """Return one word for each value; those of nulls mean nothing."""
    data_type, types = array.type, pa.types
    if types.is_binary(data_type) or types.is_string(data_type):
        return _of_bytes(array.cast(pa.binary()))
    if types.is_floating(data_type):
        return _of_floats(array.cast(pa.float64()))
    if types.is_decimal128(data_type):
        return _folded(_numbers(array, np.uint64, width=2), np.full(len(array), 2))
    if types.is_struct(data_type):
        return _rows({str(place): field for place, field in enumerate(array.flatten())}, len(array))
    if types.is_map(data_type):
        return _values(pairs_of(array))
    if types.is_list(data_type):
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        return _folded(_items(array.flatten()), _numbers(lengths, np.int32).astype(np.int64))
    if types.is_boolean(data_type):
        array = array.cast(pa.uint8())
    elif types.is_date32(data_type):
        array = array.view(pa.int32())
    elif types.is_timestamp(data_type):
        array = array.view(pa.int64())
    return _numbers(array.cast(pa.int64()), np.uint64)


def _of_floats(array: pa.Array) -> Words:
    """Return the bits of doubles, after -0.0 and each NaN has become the usual one."""
    usual = pc.if_else(pc.is_nan(array), _NAN, pc.add(array, 0.0))
    return _numbers(usual, np.uint64)


def _of_bytes(array: pa.Array) -> Words:
    """Return one word for each value of bytes: its words of 8 bytes, the last one with zeros, and its length."""
    lengths = pc.fill_null(pc.binary_length(array), 0)
    rest = pc.bit_wise_and(pc.negate(lengths), pa.scalar(7, pa.int32()))
    padded = pc.binary_join_element_wise(array, _PADDING.take(rest), _NOTHING)
    sizes = _numbers(lengths, np.int32).astype(np.int64)
    words = np.frombuffer(padded.buffers()[2] or b"", np.uint64, int(((sizes + 7) >> 3).sum()))
    return _folded(words, (sizes + 7) >> 3) + sizes.astype(np.uint64)


def _folded(words: Words, counts: NDArray[np.int64]) -> Words:
    """Return the words of each value, of which it has so many, as one: their sum, and their sum times their places."""
    ends = np.cumsum(counts)
    starts = ends - counts
    sums, weighed = np.empty((2, len(counts)), np.uint64)
    first = 0
    while first < len(counts):
        begin = starts[first]
        last = max(first + 1, int(np.searchsorted(ends, begin + _BLOCK_WORDS, "right")))
        block = _scrambled(words[begin : ends[last - 1]])
        places = _PLACES if len(block) <= _BLOCK_WORDS else np.arange(len(block), dtype=np.uint64)
        value_starts, value_ends = starts[first:last] - begin, ends[first:last] - begin
        sums[first:last] = _between(block, value_starts, value_ends)
        block *= places[: len(block)]
        weighed[first:last] = _between(block, value_starts, value_ends)
        # Places are counted from the first word of each value.
        weighed[first:last] -= sums[first:last] * value_starts.astype(np.uint64)
        first = last
    return _mixed(sums) + weighed


def _scrambled(words: Words) -> Words:
    """Return each word as one whose high bits depend on all of its bits; no two words become the same."""
    scratch = words >> _HALF
    found = words ^ scratch
    found *= _FIRST
    np.right_shift(found, _HALF, out=scratch)
    found ^= scratch
    found *= _SECOND
    return found


def _between(words: Words, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Words:
    """Return the sum of the words from each start to its end."""
    sums = np.zeros(len(words) + 1, np.uint64)
    np.cumsum(words, out=sums[1:])
    found: Words = sums[ends] - sums[starts]
    return found


def _numbers(array: pa.Array, data_type: type[np.generic], width: int = 1) -> NDArray[Any]:
    """Return the values of an array of fixed width, `width` numbers each, without a copy."""
    start = array.offset * width
    return np.frombuffer(array.buffers()[1], data_type, (array.offset + len(array)) * width)[start:]
