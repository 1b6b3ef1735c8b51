"""Arrow's other layouts of the same values, brought to the plain one: dictionaries, run ends, views, lists as views.

Polars writes text as views and its Categorical and Enum as dictionaries of views, for which Arrow has few functions:
it decodes no dictionary of views, and concatenates none. So this is done by the parts of an array, at every depth.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["nullable_type", "plain_array", "plain_type", "with_members"]


def plain_type(found: pa.DataType) -> pa.DataType:
    """Return the type of the same values without dictionaries, run ends and views."""
    types = pa.types
    if types.is_dictionary(found) or types.is_run_end_encoded(found):
        return plain_type(found.value_type)
    if types.is_string_view(found):
        return pa.string()
    if types.is_binary_view(found):
        return pa.binary()
    if _is_any_list(found):
        item = found.value_field.with_type(plain_type(found.value_type))
        if item.type.equals(found.value_type) and not (types.is_list_view(found) or types.is_large_list_view(found)):
            return found
        return pa.list_(item)
    if types.is_map(found):
        key, item = plain_type(found.key_type), plain_type(found.item_type)
        same = key.equals(found.key_type) and item.equals(found.item_type)
        return found if same else pa.map_(key, found.item_field.with_type(item), found.keys_sorted)
    if types.is_struct(found):
        return pa.struct([field.with_type(plain_type(field.type)) for field in found])
    return found


def plain_array(array: pa.Array) -> pa.Array:
    """Return the same values in their plain layout; an array that has it is returned as it is.

    Raises:
        pyarrow.ArrowException: Arrow has no such values.
    """
    found, wanted = array.type, plain_type(array.type)
    types = pa.types
    if found.equals(wanted):
        return array
    if types.is_dictionary(found):
        return plain_array(array.dictionary).take(array.indices)
    if types.is_run_end_encoded(found):
        runs = pa.array(range(len(array.values)), pa.int32())
        which = pa.RunEndEncodedArray.from_arrays(array.run_ends, runs).slice(array.offset, len(array))
        return plain_array(array.values).take(pc.run_end_decode(which))
    if _is_any_list(found):
        return _list(array, wanted)
    if types.is_map(found):
        keys, items, offsets = _parts_of_map(array)
        return pa.MapArray.from_arrays(offsets, plain_array(keys), plain_array(items), type=wanted, mask=_nulls(array))
    if types.is_struct(found):
        parts = [plain_array(part) for part in array.flatten()]
        return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=_nulls(array))
    return array.cast(wanted)


def nullable_type(found: pa.DataType) -> pa.DataType:
    """Return a plain type whose members, at every depth, may be null."""
    types = pa.types
    if types.is_list(found):
        return pa.list_(found.value_field.with_type(nullable_type(found.value_type)).with_nullable(True))
    if types.is_map(found):
        return pa.map_(found.key_type, found.item_field.with_type(nullable_type(found.item_type)).with_nullable(True))
    if types.is_struct(found):
        return pa.struct([field.with_type(nullable_type(field.type)).with_nullable(True) for field in found])
    return found


def with_members(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return an array of type `nullable_type(wanted)` as one of `wanted`.

    Arrow's cast counts members of structs that are null themselves, and refuses those that must not be null.
    """
    types = pa.types
    if array.type.equals(wanted):
        return array
    if types.is_list(wanted):
        items = with_members(array.flatten(), wanted.value_type)
        return pa.ListArray.from_arrays(_offsets(array), items, type=wanted, mask=_nulls(array))
    if types.is_map(wanted):
        keys, items, offsets = _parts_of_map(array)
        items = with_members(items, wanted.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=wanted, mask=_nulls(array))
    parts = [with_members(part, field.type) for part, field in zip(array.flatten(), wanted, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=_nulls(array))


def _parts_of_map(array: pa.MapArray) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the keys and values of maps, and where each map begins among them.

    Not by a cast to lists of structs: Arrow takes the field of a slice from its beginning, if it has run ends.
    """
    first, count = array.offsets[0].as_py(), array.offsets[-1].as_py() - array.offsets[0].as_py()
    offsets = pc.subtract(array.offsets, pa.scalar(first, pa.int32()))
    return array.keys.slice(first, count), array.items.slice(first, count), offsets


def _list(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    return pa.ListArray.from_arrays(_offsets(array), plain_array(array.flatten()), type=wanted, mask=_nulls(array))


def _offsets(array: pa.Array) -> pa.Array:
    """Return where each list begins among the items of all of them; null ones have none."""
    lengths = pc.if_else(array.is_valid(), pc.list_value_length(array), 0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _is_any_list(found: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(found)
        or types.is_large_list(found)
        or types.is_fixed_size_list(found)
        or types.is_list_view(found)
        or types.is_large_list_view(found)
    )
