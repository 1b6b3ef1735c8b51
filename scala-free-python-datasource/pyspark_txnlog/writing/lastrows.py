"""Of the rows of each key in a task, the last one: rows of a frame have no order, and columns say which one that is.

What is too much for the memory waits on this process's disk, in files by the hash of the key.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparktxn import ConfigurationError
from sparktxn.store import output_schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sparktxn.store.staging import StageTopic

    Flags = NDArray[np.bool_]

ROW_HASH: Final = "__row_hash"
"""The column of hashes that rows may have on their way; no topic has a column of this name."""

_DELETED: Final = "_deleted"

_BYTES_AT_ONCE: Final = 64 * 1024 * 1024
_FILE_BITS: Final = 6
_LEVELS_MAX: Final = 64 // _FILE_BITS
"""How often files are divided again: by then all rows of a file have one key."""


class LastRows:
    """Of the rows of each key the last one, by the columns `last_by`, without those of them that no topic stores.

    A row that was read anew from a topic has columns that the log assigns; they do not count either.
    """

    def __init__(self, topic: StageTopic, last_by: Sequence[str]) -> None:
        self._topic = topic
        self._last_by = last_by
        self._stored = [*(name for name, _, _ in topic.schema or ()), output_schema(topic.schema).names[-1]]

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the last row of each key.

        Raises:
            ConfigurationError: a key, or one of the columns, is null; or two rows of a key differ, and are equal in all
                of the columns.
        """
        yield from self._resolved(map(self._checked, batches), 0)

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        topic = self._topic.name
        for name in self._topic.primary_key:
            if batch.column(name).null_count:
                raise ConfigurationError(
                    f"column {name!r} of topic {topic!r} may not be null, and it is in at least one row"
                )
        for name in self._last_by:
            if batch.column(name).null_count:
                raise ConfigurationError(
                    f"column {name!r} of the option 'lastBy' is null in at least one row for topic {topic!r}: such a "
                    "row is neither before nor after another one; give it a value, or leave the row out"
                )
        return batch

    def _resolved(self, batches: Iterable[pa.RecordBatch], level: int) -> Iterator[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        size_bytes, rest = 0, iter(batches)
        for batch in rest:
            held.append(batch)
            size_bytes += batch.nbytes
            if size_bytes > _BYTES_AT_ONCE and level < _LEVELS_MAX:
                yield from self._by_files(chain(held, rest), level)
                return
        if held:
            yield from self._last(pa.Table.from_batches(held))

    def _by_files(self, batches: Iterator[pa.RecordBatch], level: int) -> Iterator[pa.RecordBatch]:
        from sparktxn.store.digests import key_words  # it imports pandas, which writers of other topics do not need

        count = 1 << _FILE_BITS
        shift = np.uint64(64 - _FILE_BITS * (level + 1))
        with ExitStack() as stack:
            files: list[Any] = [None] * count
            writers: list[Any] = [None] * count
            for rows in _pieces(batches):
                which = (key_words(self._topic, rows) >> shift) & np.uint64(count - 1)
                order = np.argsort(which, kind="stable")
                ends = np.searchsorted(which[order], np.arange(count), side="right").tolist()
                ordered = rows.take(pa.array(order))
                for place, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
                    if start == end:
                        continue
                    if files[place] is None:
                        files[place] = stack.enter_context(tempfile.TemporaryFile(dir=_folder()))
                        writers[place] = pa.ipc.new_stream(files[place], rows.schema)
                    writers[place].write_table(ordered.slice(start, end - start))
            for file, writer in zip(files, writers, strict=True):
                if file is None:
                    continue
                writer.close()
                file.seek(0)
                with pa.ipc.open_stream(file) as stored:
                    yield from self._resolved(stored, level + 1)
                file.close()

    def _last(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        key = list(self._topic.primary_key)
        # By the row's hash as well: of rows that are equal as they are stored, a repetition chooses the same one.
        by = [*key, *(name for name in (*self._last_by, ROW_HASH) if name in rows.column_names and name not in key)]
        rows = rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in by])).combine_chunks()
        if not rows.num_rows:
            return
        [batch] = rows.to_batches(max_chunksize=rows.num_rows)
        same_key = _all(_equal(*_neighbours(batch.column(name))) for name in key)
        self._check_ties(batch, same_key)
        is_last = np.append(~same_key, True)
        last = batch if is_last.all() else batch.filter(pa.array(is_last))
        dropped = [name for name in self._last_by if name not in self._stored]
        yield last.drop_columns(dropped) if dropped else last

    def _check_ties(self, batch: pa.RecordBatch, same_key: Flags) -> None:
        tied = same_key & _all(_equal(*_neighbours(batch.column(name))) for name in self._last_by)
        places = np.flatnonzero(tied)
        if not len(places):
            return
        before, after = batch.take(pa.array(places)), batch.take(pa.array(places + 1))
        compared = [name for name in batch.schema.names if name in self._stored and name != _DELETED]
        same = _all(_equal(before.column(name), after.column(name)) for name in compared)
        if _DELETED in batch.schema.names:
            # Of a delete only the key is stored.
            deleted = [_numbers(pc.fill_null(rows.column(_DELETED), False)) for rows in (before, after)]
            same = (deleted[0] & deleted[1]) | (same & (deleted[0] == deleted[1]))
        if same.all():
            return
        place = int(places[np.flatnonzero(~same)[0]])
        from sparktxn.store.reading import key_texts  # a task that stages imports no reader

        [text] = key_texts([batch.column(name).slice(place, 1) for name in self._topic.primary_key]).to_pylist()
        names = ", ".join(self._last_by)
        raise ConfigurationError(
            f"two rows of key {text.decode(errors='backslashreplace')!r} for topic {self._topic.name!r} differ, and "
            f"are equal in {names}: expected that the columns of the option 'lastBy' say which row is the last; name "
            "one more column there, or leave one of the rows out"
        )


def _folder() -> str | None:
    """Return where Spark's processes keep what is too much for their memory; None for the system's folder."""
    named = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return named if named and os.path.isdir(named) else None


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        held.append(batch)
        size_bytes += batch.nbytes
        if size_bytes > _BYTES_AT_ONCE:
            yield pa.Table.from_batches(held)
            held, size_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _neighbours(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    return column.slice(0, len(column) - 1), column.slice(1)


def _all(flags: Iterable[Flags]) -> Flags:
    found: Flags = np.logical_and.reduce(list(flags))
    return found


def _equal(left: pa.Array, right: pa.Array) -> Flags:
    """Return whether values are equal, place by place; nulls are, and NaN are."""
    if pa.types.is_nested(left.type):
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.array([repr(one) == repr(other) for one, other in pairs], np.bool_)
    if pa.types.is_null(left.type):
        return np.ones(len(left), np.bool_)
    same = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    both = pc.and_(left.is_null(), right.is_null())
    return _numbers(pc.if_else(both, True, pc.fill_null(same, False)))


def _numbers(flags: pa.Array) -> Flags:
    found: Flags = flags.to_numpy(zero_copy_only=False)
    return found
