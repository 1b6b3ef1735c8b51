"""Keys of rows, in the order of their offsets → the offsets that newer rows of their keys supersede, in bounded memory.

Rows are sorted by a hash of their key, and by their place. So rows of a key follow each other, and each is compared
with the next one by the key itself: no collision makes two keys one. It needs a quarter of the time and of the memory
that grouping by keys takes. If the keys take too much memory, half of them by the hash is put off to another reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparktxn._engine.format.keytext import words_at
from sparktxn._engine.format.schema import DELETED_COLUMN, TYPED_OFFSET_COLUMN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Offsets = NDArray[np.int64]
    Hashes = NDArray[np.uint64]

_SHARES_MAX: Final = 1 << 16
_COMPARED_ROWS: Final = 1_000_000
_JOINED_ROWS_MIN: Final = 1_000_000
_JOINED_ROWS_MAX: Final = 4_000_000


def no_offsets() -> Offsets:
    """Return no offsets."""
    return np.zeros(0, np.int64)


def ordered(parts: Sequence[Offsets]) -> Offsets:
    """Return offsets of several parts in their order."""
    return np.sort(np.concatenate([no_offsets(), *parts]))


def hidden_offsets(
    read: Callable[[], Iterable[pa.RecordBatch]], key: Sequence[str], memory_bytes: int, shares: int = 1
) -> tuple[Offsets, Offsets]:
    """Return the superseded offsets of rows, and those of deletes that are not superseded, in their order.

    Args:
        read: returns the rows in the order of their offsets: the columns of the key, those of offsets, and perhaps
            those that say "deleted". It is called once for each `memory_bytes` that they take.
        key: the columns of the key.
        memory_bytes: how much memory keys and offsets may take, about; comparing them takes as much again.
        shares: in how many parts the keys are compared, if that is known.
    """
    superseded: list[Offsets] = []
    deletes: list[Offsets] = []
    waiting = [_Share(shares, remainder) for remainder in range(shares)]
    while waiting:
        share = waiting.pop()
        rows = KeyRows(key)
        for batch in read():
            rows.add(batch, share)
            while rows.size_bytes > memory_bytes and share.of < _SHARES_MAX:
                share, other = share.halves()
                waiting.append(other)
                rows.keep(share)
        for parts, found in zip((superseded, deletes), rows.hidden(), strict=True):
            parts.append(found)
    return ordered(superseded), ordered(deletes)


def superseded_by(tail: KeyRows, base: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of a base whose key a tail has too: some of the base at a time, in any order.

    Args:
        tail: rows, at least one.
        base: the columns of the key and others, none of them nested.
    """
    keys = tail.keys()
    at_once = min(max(4 * keys.num_rows, _JOINED_ROWS_MIN), _JOINED_ROWS_MAX)
    waiting: list[pa.RecordBatch] = []
    count = 0
    for rows in base:
        waiting.append(rows)
        count += rows.num_rows
        if count >= at_once:
            yield pa.Table.from_batches(waiting).join(keys, keys.column_names, join_type="left semi")
            waiting, count = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting).join(keys, keys.column_names, join_type="left semi")


class _Share:
    """The keys whose hash leaves `remainder` when it is divided by `of`."""

    def __init__(self, of: int, remainder: int) -> None:
        self.of = of
        self._remainder = remainder

    def halves(self) -> tuple[_Share, _Share]:
        """Return two shares that have its keys."""
        return _Share(2 * self.of, self._remainder), _Share(2 * self.of, self._remainder + self.of)

    def has(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Return which of the keys with these hashes are in this share."""
        found: NDArray[np.bool_] = hashes % np.uint64(self.of) == self._remainder
        return found


class KeyRows:
    """Keys and offsets of rows, in the order of their offsets."""

    def __init__(self, key: Sequence[str]) -> None:
        self._key = list(key)
        self._rows: list[tuple[pa.RecordBatch, Hashes]] = []
        self.size_bytes = 0
        self.count = 0

    def add(self, rows: pa.RecordBatch, share: _Share | None = None) -> None:
        """Add rows, those of `share` if it is given."""
        hashes = hashes_of([rows.column(name) for name in self._key])
        if share is not None and share.of > 1:
            rows, hashes = _of_share(share, rows, hashes)
        self._rows.append((rows, hashes))
        self.size_bytes += rows.nbytes + hashes.nbytes
        self.count += rows.num_rows

    def keep(self, share: _Share) -> None:
        """Forget the rows whose keys are not in `share`."""
        known, self._rows = self._rows, []
        self.size_bytes = self.count = 0
        while known:
            rows, hashes = _of_share(share, *known.pop(0))
            self._rows.append((rows, hashes))
            self.size_bytes += rows.nbytes + hashes.nbytes
            self.count += rows.num_rows

    def keys(self) -> pa.Table:
        """Return the columns of the key."""
        return pa.Table.from_batches([rows.select(self._key) for rows, _ in self._rows])

    def hidden(self) -> tuple[Offsets, Offsets]:
        """Return the superseded offsets, and those of deletes that are not superseded; the rows are forgotten."""
        if not self.count:
            return no_offsets(), no_offsets()
        known, self._rows = self._rows, []
        hashes = np.concatenate([hashes for _, hashes in known])
        rows = pa.Table.from_batches([rows for rows, _ in known])
        del known
        offsets = rows.column(TYPED_OFFSET_COLUMN).to_numpy()
        deleted = None
        if DELETED_COLUMN in rows.column_names and pc.any(rows.column(DELETED_COLUMN)).as_py():
            deleted = pc.fill_null(rows.column(DELETED_COLUMN), False).to_numpy()
        keys = rows.select(self._key)
        del rows
        superseded = _superseded(keys, hashes)
        return offsets[superseded], no_offsets() if deleted is None else offsets[~superseded & deleted]


def _of_share(share: _Share, rows: pa.RecordBatch, hashes: Hashes) -> tuple[pa.RecordBatch, Hashes]:
    own = share.has(hashes)
    return rows.filter(pa.array(own)), hashes[own]


def _superseded(keys: pa.Table, hashes: Hashes) -> NDArray[np.bool_]:
    """Return which rows have a later one of their key; `hashes` are used up."""
    count = len(hashes)
    superseded = np.zeros(count, np.bool_)
    # The low bits of a hash become the place of its row, so that one sort of numbers sorts both.
    bits = np.uint64(max(1, (count - 1).bit_length()))
    mask = (np.uint64(1) << bits) - np.uint64(1)
    hashes &= ~mask
    hashes |= np.arange(count, dtype=np.uint64)
    hashes.sort()
    ordered_rows = (hashes & mask).astype(np.int64)
    hashes >>= bits
    pairs = np.flatnonzero(hashes[1:] == hashes[:-1])
    if not len(pairs):
        return superseded
    columns = [keys.column(place).combine_chunks() for place in range(keys.num_columns)]
    alike: list[Any] = []
    for first in range(0, len(pairs), _COMPARED_ROWS):
        some = pairs[first : first + _COMPARED_ROWS]
        equal = _equal_pairs(columns, ordered_rows, some)
        superseded[ordered_rows[some[equal]]] = True
        alike.append(hashes[some[~equal]])
    others = np.unique(np.concatenate(alike))
    if len(others):
        # Some keys have one hash: rows of one of them need not follow each other.
        own = np.sort(ordered_rows[np.isin(hashes, others)])
        superseded[own] = _superseded_by_groups([column.take(pa.array(own)) for column in columns])
    return superseded


def _equal_pairs(columns: Sequence[pa.Array], rows: Offsets, pairs: Offsets) -> NDArray[np.bool_]:
    """Return of each place in `pairs` whether the row there and the row at the next place have one key."""
    # Both places of each pair in their order, and once where pairs follow each other: numpy's sets hash them instead.
    both = np.stack([pairs, pairs + 1], axis=1).ravel()
    is_first = np.concatenate([[True], both[1:] != both[:-1]])
    places = both[is_first]
    taken = pa.array(rows[places])
    equal = np.ones(len(places) - 1, np.bool_)
    for column in columns:
        values = column.take(taken)
        equal &= pc.equal(values.slice(0, len(places) - 1), values.slice(1)).to_numpy(zero_copy_only=False)
    found: NDArray[np.bool_] = equal[np.cumsum(is_first)[::2] - 1]
    return found


def _superseded_by_groups(columns: Sequence[pa.Array]) -> NDArray[np.bool_]:
    names = [str(number) for number in range(len(columns))]
    rows = pa.table([*columns, pa.arange(0, len(columns[0]))], names=[*names, "place"])
    newest = rows.group_by(names).aggregate([("place", "max")]).column("place_max").to_numpy()
    superseded = np.ones(len(columns[0]), np.bool_)
    superseded[newest] = False
    return superseded


# The hash of a key: 64 bits, of its values as Arrow holds them. Nothing stored depends on it.

_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_OTHER_FACTOR: Final = np.uint64(0xD6E8FEB86659FD93)
_HALF: Final = np.uint64(32)


def hashes_of(columns: Sequence[pa.Array]) -> Hashes:
    """Return a hash of each row's key: equal keys have equal ones."""
    found = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        for words, rows in _words(column):
            if rows is None:
                found ^= words
                _mix(found)
            else:
                some = found[rows] ^ words
                _mix(some)
                found[rows] = some
    return found


def _mix(hashes: Hashes) -> None:
    hashes *= _FACTOR
    hashes ^= hashes >> _HALF
    hashes *= _OTHER_FACTOR
    hashes ^= hashes >> _HALF


def _words(column: pa.Array) -> Iterator[tuple[Hashes, Offsets | None]]:
    """Yield the values as words of 64 bits, one after the other: of all rows (None), or of those that have so many."""
    types = pa.types
    if types.is_string(column.type) or types.is_binary(column.type):
        yield from _words_of_bytes(column)
    elif types.is_decimal(column.type):
        words = np.frombuffer(column.buffers()[1], np.uint64).reshape(-1, 2)
        words = words[column.offset : column.offset + len(column)]
        yield from ((words[:, 0], None), (words[:, 1], None))
    else:
        if types.is_timestamp(column.type):
            column = column.view(pa.int64())
        elif types.is_date32(column.type):
            column = column.view(pa.int32())
        yield column.cast(pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64), None


def _words_of_bytes(column: pa.Array) -> Iterator[tuple[Hashes, Offsets | None]]:
    at_each, starts, lengths = words_at(column, "<u8")
    yield lengths.view(np.uint64), None
    shortest, longest = (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)
    for place in range(0, longest, 8):
        if place + 8 <= shortest:
            yield at_each[starts + place], None
            continue
        rows = np.flatnonzero(lengths > place)
        words = at_each[starts[rows] + place]
        missing = np.maximum(8 * (place + 8 - lengths[rows]), 0).astype(np.uint64)
        yield words & (~np.uint64(0) >> missing), rows
