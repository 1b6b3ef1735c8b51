"""Nulls that no reader sees: a struct is null, and so is its field, although the field is declared not null.

Arrow leaves open what lies below a null struct, and programs differ in what they write there. Spark writes nulls,
and so does `pyarrow.nulls`. pyarrow's Parquet writer refuses them.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["without_hidden_nulls"]


def without_hidden_nulls(table: pa.Table) -> pa.Table:
    """Return the same rows; where a struct is null, its fields that are not null have some value."""
    for index, field in enumerate(table.schema):
        if _may_hide(field.type):
            column = table.column(index)
            chunks = [_shown(chunk, None) for chunk in column.chunks]
            table = table.set_column(index, field, pa.chunked_array(chunks, field.type))
    return table


def _may_hide(data_type: pa.DataType) -> bool:
    if pa.types.is_struct(data_type):
        return any(not field.nullable or _may_hide(field.type) for field in data_type)
    if pa.types.is_map(data_type):
        return _may_hide(data_type.key_type) or _may_hide(data_type.item_type)
    return pa.types.is_list(data_type) and _may_hide(data_type.value_type)


def _shown(array: pa.Array, hidden: pa.Array | None) -> pa.Array:
    """Return an array without nulls where it is `hidden` (booleans, None: nowhere) by those of what it lies in."""
    if not _may_hide(array.type):
        return array
    if not pa.types.is_struct(array.type):
        # A list's items lie in as many rows as they need, and none of them below a null.
        return _of_parts(array, [_shown(array.values, None)])
    below = array.is_null() if hidden is None else pc.or_(hidden, array.is_null())
    parts = [array.field(index) for index in range(array.type.num_fields)]
    shown = [
        _shown(part if field.nullable else _required(part, below), below)
        for part, field in zip(parts, array.type, strict=True)
    ]
    return pa.StructArray.from_arrays(shown, fields=list(array.type), mask=array.is_null())


def _required(part: pa.Array, hidden: pa.Array) -> pa.Array:
    """Return a field's values, none of them null; as they are if one is that is not hidden: a writer refuses it."""
    if not part.null_count or not pc.all(pc.or_(hidden, part.is_valid())).as_py():
        return part
    if pa.types.is_struct(part.type):
        return pa.StructArray.from_arrays(
            [part.field(index) for index in range(part.type.num_fields)], fields=list(part.type)
        )
    parts = [part.values] if pa.types.is_list(part.type) or pa.types.is_map(part.type) else []
    return _of_parts(part, parts, has_nulls=False)


def _of_parts(array: pa.Array, parts: list[pa.Array], *, has_nulls: bool = True) -> pa.Array:
    """Return an array with its own buffers and these values of a list or a map; without nulls if it has none."""
    validity, *buffers = array.buffers()[: 2 if parts else None]
    nulls = array.null_count if has_nulls else 0
    own = [validity if has_nulls else None, *buffers]
    return pa.Array.from_buffers(array.type, len(array), own, nulls, array.offset, parts or None)
