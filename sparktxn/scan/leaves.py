"""Nested columns taken apart, down to the arrays that hold values."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["leaves"]


def leaves(column: pa.Array) -> list[pa.Array]:
    """Return the arrays of values that are not nested, in the order of their types; those of null rows are left out."""
    kind = column.type
    if pa.types.is_map(kind):
        # Keys and items of a slice are those of the whole.
        pair = pa.struct([pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)])
        return leaves(column.cast(pa.list_(pair)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return leaves(column.flatten())
    if pa.types.is_struct(kind):
        return [leaf for part in column.flatten() for leaf in leaves(part)]
    return [column]
