"""Lengths in a frame, checked before the frame is decoded.

kio makes room for as many elements as an array says that it has: 12 bytes that say 2³² would end the process. So each
request is first walked by its schema. What is taken here is read by kio to the same end.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from kio.static.constants import EntityType

__all__ = ["ELEMENTS_MAX", "MalformedRequest", "checked_end"]

ELEMENTS_MAX: Final = 50_000
"""How many elements the arrays of a request may have together: each takes far more memory than its bytes."""
_LENGTH_MAX: Final = 2**31 - 1
_FIXED_BYTES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "uuid": 16,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
}

_Step = Callable[["_Frame", int], int]
"""Returns where the next member begins; it may be behind the frame's end, which the end of the walk finds."""


class MalformedRequest(Exception):
    """A frame is not a request of Kafka's protocol: its connection cannot go on."""


class _Frame:
    __slots__ = ("data", "left")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.left = ELEMENTS_MAX

    def varint(self, at: int) -> tuple[int, int]:
        value = shift = 0
        for byte in self.data[at : at + 5]:
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        else:
            raise MalformedRequest("a length is cut off, or has no end")
        if value > _LENGTH_MAX:
            raise MalformedRequest(f"a length is {value}")
        return value, at

    def number(self, at: int, size: int) -> tuple[int, int]:
        end = at + size
        value = int.from_bytes(self.data[at:end], signed=True)
        if value < -1 or end > len(self.data):
            raise MalformedRequest(f"a length is {value}, or cut off")
        return value, end


def checked_end(frame: bytes, start: int, entity: type) -> int:
    """Return where the members of `entity` end that begin at `start`.

    Raises:
        MalformedRequest: they are cut off, a length is wrong, or there are more than `ELEMENTS_MAX` elements.
    """
    end = _steps(entity)(_Frame(frame), start)
    if end > len(frame):
        raise MalformedRequest(f"a frame of {len(frame)} bytes is cut off before its end at {end}")
    return end


@cache
def _steps(entity: Any) -> _Step:
    hints = typing.get_type_hints(entity)
    steps: list[_Step] = []
    tagged: dict[int, _Step] = {}
    fixed = 0
    # The header's only text has its old form in all versions.
    flexible = entity.__flexible__ and entity.__type__ is not EntityType.header
    for field in dataclasses.fields(entity):
        kind = field.metadata.get("kafka_type", "")
        step, size = _member(kind, hints[field.name], flexible)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = step or _skip(size)
        elif step is None:
            fixed += size
        else:
            if fixed:
                steps.append(_skip(fixed))
            fixed = 0
            steps.append(step)
    if fixed:
        steps.append(_skip(fixed))
    if entity.__flexible__:
        steps.append(_tags(tagged))
    return _all(steps)


def _member(kind: str, hint: Any, flexible: bool) -> tuple[_Step | None, int]:
    """Return the step of a member, or None and its size where that is fixed."""
    options = [hint, *(option for option in typing.get_args(hint) if option is not type(None))]
    array = next((option for option in options if typing.get_origin(option) is tuple), None)
    if array is not None:
        step, size = _member(kind, typing.get_args(array)[0], flexible)
        return _array(step, size, flexible, may_be_null=type(None) in typing.get_args(hint)), 0
    entity: Any = next((option for option in options if dataclasses.is_dataclass(option)), None)
    if entity is not None:
        inner = _steps(entity)
        return (_nullable(inner) if type(None) in typing.get_args(hint) else inner), 0
    if kind in _FIXED_BYTES:
        return None, _FIXED_BYTES[kind]
    return (_compact if flexible else _sized(2 if kind == "string" else 4)), 0


def _skip(size: int) -> _Step:
    return lambda _, at: at + size


def _all(steps: list[_Step]) -> _Step:
    if len(steps) == 1:
        return steps[0]

    def walk(frame: _Frame, at: int) -> int:
        for step in steps:
            at = step(frame, at)
        return at

    return walk


def _compact(frame: _Frame, at: int) -> int:
    length, at = frame.varint(at)
    return at + max(0, length - 1)


def _sized(bytes_: int) -> _Step:
    def walk(frame: _Frame, at: int) -> int:
        length, at = frame.number(at, bytes_)
        return at + max(0, length)

    return walk


def _nullable(inner: _Step) -> _Step:
    def walk(frame: _Frame, at: int) -> int:
        is_there, at = frame.number(at, 1)
        return at if is_there < 0 else inner(frame, at)

    return walk


def _array(step: _Step | None, size: int, flexible: bool, *, may_be_null: bool) -> _Step:
    def walk(frame: _Frame, at: int) -> int:
        if flexible:
            count, at = frame.varint(at)
            count -= 1
        else:
            count, at = frame.number(at, 4)
        if count <= 0:
            if count < 0 and not may_be_null:
                raise MalformedRequest("an array is null")
            return at
        frame.left -= count
        if frame.left < 0 or count > len(frame.data) - at:
            raise MalformedRequest(f"an array says that it has {count} elements")
        if step is None:
            return at + count * size
        for _ in range(count):
            at = step(frame, at)
        return at

    return walk


def _tags(tagged: Mapping[int, _Step]) -> _Step:
    def walk(frame: _Frame, at: int) -> int:
        if frame.data[at : at + 1] == b"\0":
            return at + 1
        count, at = frame.varint(at)
        frame.left -= count
        if frame.left < 0:
            raise MalformedRequest(f"a structure says that it has {count} tagged members")
        for _ in range(count):
            tag, at = frame.varint(at)
            size, at = frame.varint(at)
            end = at + size
            if tag in tagged and tagged[tag](frame, at) != end:
                raise MalformedRequest(f"the tagged member {tag} has not {size} bytes")
            at = end
        return at

    return walk
