"""What a newer sparktxn has written: distinguished from damage by its name (PROTOCOL.md, "Features").

A document whose checksum holds, and which this version cannot decode, is searched for the first type or member that
this version does not know. If there is one, a newer version has written it; if there is none, its writer was wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from sparktxn.errors import DamagedObject, FormatVersionError, StoreError

__all__ = ["READER_FEATURES", "TABLES", "WRITER_FEATURES", "check_features", "undecodable"]

TABLES: Final = "tables"
"""The feature of a store that publishes topics as tables: its state has records of them, and a vacuum keeps more."""

READER_FEATURES: Final[frozenset[str]] = frozenset({TABLES})
"""The features that this version can read."""

WRITER_FEATURES: Final[frozenset[str]] = frozenset({TABLES})
"""The features that this version can write."""

_SHOWN_MAX: Final = 100


def check_features(required: Iterable[str], known: frozenset[str], name: str, use: str) -> None:
    """Check that this version knows all features that a store requires for `use`, "read" or "write".

    Raises:
        FormatVersionError: it does not; `name` is the object that requires them.
    """
    if unknown := sorted(set(required) - known):
        features = ", ".join(repr(feature[:_SHOWN_MAX]) for feature in unknown)
        raise FormatVersionError(name, f"requires features to {use} the store that this version lacks: {features}")


def undecodable(data: bytes, name: str, expected: Any, noun: str, error: Exception) -> StoreError:
    """Return the error for a document whose checksum holds and which is no `expected`, in words `noun`.

    It is a FormatVersionError if the document has a type or member that this version does not know. Otherwise it is a
    DamagedObject with what the decoder has said.
    """
    try:
        document = msgspec.json.decode(data)
        unknown = _unknown(document, _described(expected))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        unknown = None
    if unknown is not None:
        return FormatVersionError(name, f"has {unknown}, which this version does not know")
    return DamagedObject(name, f"it is not {noun} ({error})")


@cache
def _described(expected: Any) -> inspect.Type:
    """Return the description of a type, which takes far longer to make than to use."""
    return inspect.type_info(expected)


def _unknown(value: Any, expected: inspect.Type) -> str | None:
    """Return the first thing in `value` that a newer version must have added to `expected`; None if there is none."""
    if isinstance(expected, inspect.Metadata):
        return _unknown(value, expected.type)
    if isinstance(expected, inspect.UnionType):
        return _unknown_in_union(value, expected)
    if isinstance(expected, inspect.StructType):
        return _unknown_in_struct(value, expected)
    if isinstance(expected, inspect.TupleType) and isinstance(value, list):
        if len(value) > len(expected.item_types):
            return f"a tuple of {len(value)} members"
        return _first(zip(value, expected.item_types, strict=False))
    if isinstance(expected, inspect.VarTupleType | inspect.ListType) and isinstance(value, list):
        return _first((item, expected.item_type) for item in value)
    if isinstance(expected, inspect.DictType) and isinstance(value, dict):
        return _first((item, expected.value_type) for item in value.values())
    return None


def _unknown_in_union(value: Any, expected: inspect.UnionType) -> str | None:
    structs = [one for one in expected.types if isinstance(one, inspect.StructType)]
    if isinstance(value, dict) and structs and structs[0].tag is not None:
        tag = value.get("type")
        found = [one for one in structs if one.tag == tag]
        if not found:
            return f"the type {str(tag)[:_SHOWN_MAX]!r}" if isinstance(tag, str) else None
        return _unknown_in_struct(value, found[0])
    return _first((value, one) for one in expected.types)


def _unknown_in_struct(value: Any, expected: inspect.StructType) -> str | None:
    if expected.array_like:
        if not isinstance(value, list):
            return None
        if len(value) > len(expected.fields):
            return f"a tuple of {len(value)} members"
        return _first((item, field.type) for item, field in zip(value, expected.fields, strict=False))
    if not isinstance(value, dict):
        return None
    fields = {field.encode_name: field.type for field in expected.fields}
    if expected.forbid_unknown_fields:
        for member in value:
            if member not in fields and member != expected.tag_field:
                of = f" of {expected.tag!r}" if expected.tag is not None else ""
                return f"the member {member[:_SHOWN_MAX]!r}{of}"
    return _first((value[member], type_) for member, type_ in fields.items() if member in value)


def _first(parts: Iterable[tuple[Any, inspect.Type]]) -> str | None:
    return next((found for part, expected in parts if (found := _unknown(part, expected)) is not None), None)
