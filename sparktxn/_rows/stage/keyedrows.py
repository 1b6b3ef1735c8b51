"""Rows of keyed topics: upserts and deletes as they are stored, and the partition that their key chooses."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn._engine.format.schema import DELETED_COLUMN, TIMESTAMP_COLUMN
from sparktxn._rows.stage.stagedsegment import StageTopic
from sparktxn.errors import CommandRefused, ConfigurationError, ErrorCode

WHOLE_ROW: Final = (
    "an upsert is a whole row, and null would take the place of what the key has there; give the column, or null in "
    "it, or set the topic's setting upsert.missing to null"
)
"""Why an upsert that lacks a declared column is refused, and what helps."""

_REFUSED: Final = "nothing of this call was written"


def as_deletes(topic: StageTopic, rows: pa.Table) -> pa.Table:
    """Return rows of which each deletes its key.

    Raises:
        ConfigurationError: the topic has no key, or the rows say themselves which of them are deletes.
    """
    if not topic.primary_key:
        raise ConfigurationError(f"delete is True, and topic {topic.name!r} has no key: it takes no deletes")
    if DELETED_COLUMN in rows.column_names:
        raise ConfigurationError(
            f"delete is True, and the rows have a column {DELETED_COLUMN!r}: leave one of them out"
        )
    return rows.append_column(DELETED_COLUMN, pa.repeat(True, rows.num_rows))


def keyed_rows(topic: StageTopic, rows: pa.Table, given: Collection[str]) -> pa.Table:
    """Return rows in a keyed topic's stored schema as they are stored: of a delete only the key.

    Args:
        topic: the topic.
        rows: the rows, each column one array, with null in the columns that were not given.
        given: the names of the columns that the writer has given.

    Raises:
        ConfigurationError: an upsert lacks a declared column, or has null where it may not.
    """
    deleted = pc.fill_null(rows.column(DELETED_COLUMN).chunk(0), False) if rows.num_rows else pa.array([], pa.bool_())
    deletes = pc.sum(deleted).as_py() or 0
    if deletes < rows.num_rows or DELETED_COLUMN not in given:
        _check_upserts(topic, rows, given, deleted)
    if not deletes:
        return _with_deleted(rows, pa.nulls(rows.num_rows, pa.bool_()))
    kept = pc.if_else(deleted, pa.scalar(None, pa.int64()), pa.arange(0, rows.num_rows))
    for place, name in enumerate(rows.column_names):
        if name not in topic.primary_key and name not in (DELETED_COLUMN, TIMESTAMP_COLUMN):
            column = rows.column(place).chunk(0)
            if column.null_count < len(column):
                rows = rows.set_column(place, rows.schema.field(place), column.take(kept))
    return _with_deleted(rows, pc.if_else(deleted, True, pa.scalar(None, pa.bool_())))


def _with_deleted(rows: pa.Table, deleted: pa.Array) -> pa.Table:
    place = rows.schema.get_field_index(DELETED_COLUMN)
    return rows.set_column(place, rows.schema.field(place), deleted)


def _check_upserts(topic: StageTopic, rows: pa.Table, given: Collection[str], deleted: pa.Array) -> None:
    missing = [name for name in topic.whole_columns if name not in given]
    if missing:
        raise ConfigurationError(
            f"column {missing[0]!r} of topic {topic.name!r} is missing: {WHOLE_ROW}; "
            f"found {', '.join(given) or 'no columns'}"
        )
    for name in topic.required_columns:
        if name not in given or pc.any(pc.and_not(rows.column(name).is_null(), _chunked(deleted))).as_py():
            raise ConfigurationError(
                f"column {name!r} of topic {topic.name!r} may not be null in an upsert, and it is in at least one row"
            )


def _chunked(array: pa.Array) -> pa.ChunkedArray:
    return pa.chunked_array([array], array.type)


def key_partitions(topic: StageTopic, rows: pa.Table, wanted: int | None = None) -> pa.Array:
    """Return the partition of each row in a keyed topic's stored schema, as int32.

    Args:
        topic: the topic.
        rows: the rows, each column one array, without nulls in the key.
        wanted: the partition that the writer has named for all rows; None: it has named none.

    Raises:
        CommandRefused: INVALID_RECORD: a key has no text form or is too long, or belongs to another partition.
    """
    if not rows.num_rows:
        return pa.array([], pa.int32())
    # numpy takes a tenth of a second to import: only writers of keyed topics pay for it.
    from sparktxn._engine.format import keytext

    columns = [rows.column(name).chunk(0) for name in topic.primary_key]
    for name, column in zip(topic.primary_key, columns, strict=True):
        if keytext.unwritable(column) is not None:
            raise _refused(f"column {name!r} of the key of topic {topic.name!r} has a year outside of 1 to 9999")
    texts = keytext.key_texts(columns)
    longest = pc.max(pc.binary_length(texts)).as_py()
    if longest > keytext.KEY_BYTES_MAX:
        raise _refused(
            f"a key of topic {topic.name!r} has {longest} bytes as text: expected at most {keytext.KEY_BYTES_MAX}"
        )
    chosen = keytext.partitions_of_texts(texts, topic.partition_count)
    if wanted is not None:
        wrong = pc.not_equal(chosen, wanted)
        if pc.any(wrong).as_py():
            place = pc.index(wrong, True).as_py()
            raise _refused(
                f"row {place} for topic {topic.name!r} is given for partition {wanted}, and its key belongs to "
                f"partition {chosen[place].as_py()}, which the key alone chooses: leave the partition out"
            )
    return chosen


def _refused(reason: str) -> CommandRefused:
    return CommandRefused(ErrorCode.INVALID_RECORD, f"{reason}; {_REFUSED}")
