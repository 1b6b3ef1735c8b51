"""Frames to requests, and answers to frames, by Kafka's own schemas (kio), within bounds that follow from these.

An answer is a dictionary of the members of its newest version. Those that an older version lacks are left out.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, NamedTuple

from kio.index import UnknownEntity, load_payload_module
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

# Lengths in a frame, checked before the frame is decoded.
#
# kio makes room for as many elements as an array says that it has: 12 bytes that say 2³² would end the process. So
# each request is first walked by its schema. What is taken here is read by kio to the same end.

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
        step, size = _bounds_of_member(kind, hints[field.name], flexible)
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


def _bounds_of_member(kind: str, hint: Any, flexible: bool) -> tuple[_Step | None, int]:
    """Return the step of a member, or None and its size where that is fixed."""
    options = [hint, *(option for option in typing.get_args(hint) if option is not type(None))]
    array = next((option for option in options if typing.get_origin(option) is tuple), None)
    if array is not None:
        step, size = _bounds_of_member(kind, typing.get_args(array)[0], flexible)
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


Answer = Mapping[str, Any]
"""The members of a response by their names in Kafka's schemas, in snake case."""

_API_VERSIONS: Final = 18
_SASL_AUTHENTICATE: Final = 36
BARE_TOKEN: Final = -1
"""The version of a SaslAuthenticate that has neither a header nor members: a frame is the token itself."""


class Request(NamedTuple):
    """A request: `body` has the members of its version. `client_host` is where it came from."""

    key: int
    version: int
    correlation_id: int
    client_id: str
    body: Any
    client_host: str = ""


class _Token(NamedTuple):
    """The body of a SaslAuthenticate of `BARE_TOKEN`."""

    auth_bytes: bytes


def bare_token(frame: bytes) -> Request:
    """Return the request that a frame is after a SaslHandshake of version 0."""
    return Request(_SASL_AUTHENTICATE, BARE_TOKEN, 0, "", _Token(frame))


def request_name(key: int) -> str:
    """Return the name of a request in Kafka's schemas, in snake case."""
    return api_key_map.get(key, f"api_{key}")


def decode_request(frame: bytes, highest: Callable[[int], int]) -> Request:
    """Return the request in a frame. `highest` is the highest version of a key that is served, -1 if none is.

    The body is None where the version is not served: its header is of the oldest form that all clients write.

    Raises:
        MalformedRequest: it is none.
    """
    if len(frame) < 8:
        raise MalformedRequest(f"a frame of {len(frame)} bytes has no header")
    key, version = int.from_bytes(frame[:2], signed=True), int.from_bytes(frame[2:4], signed=True)
    correlation_id = int.from_bytes(frame[4:8], signed=True)
    if not 0 <= version <= highest(key):
        return Request(key, version, correlation_id, "", None)
    try:
        request = _payload("request", key, version)
    except UnknownEntity:  # Kafka 4 has dropped it
        return Request(key, version, correlation_id, "", None)
    checked_end(frame, checked_end(frame, 0, request.__header_schema__), request)
    header_reader, reader = _readers(request)
    try:
        header, size = header_reader(frame, 0)
        body, _ = reader(frame, size)
    except Exception as error:
        # What a client authenticates with must not come into a log.
        reason = "" if key == _SASL_AUTHENTICATE else f": {error!r}"
        raise MalformedRequest(f"a frame is not a {request_name(key)} request of version {version}{reason}") from error
    return Request(key, version, correlation_id, header.client_id or "", body)


def encode_response(key: int, version: int, correlation_id: int, answer: Answer) -> bytes:
    """Return the frame of a response, with its size.

    Raises:
        TypeError: a member is missing.
    """
    if version == BARE_TOKEN:
        token: bytes = answer["auth_bytes"]
        return len(token).to_bytes(4) + token
    response = _payload("response", key, version)
    flexible = response.__flexible__ and key != _API_VERSIONS
    buffer = io.BytesIO()
    buffer.write(bytes(4))
    buffer.write(correlation_id.to_bytes(4, signed=True))
    if flexible:
        buffer.write(b"\0")  # no tagged fields
    entity_writer(response)(buffer, _built(response, answer))
    with buffer.getbuffer() as frame:
        frame[:4] = (len(frame) - 4).to_bytes(4)
    # Unlike a copy of the frame, this is the buffer's own bytes.
    return buffer.getvalue()


@cache
def _payload(kind: typing.Literal["request", "response"], key: int, version: int) -> Any:
    entity_type: Any = EntityType.request if kind == "request" else EntityType.response
    module = load_payload_module(key, version, entity_type)
    return next(
        value
        for value in vars(module).values()
        if isinstance(value, type) and getattr(value, "__type__", None) is entity_type
    )


@cache
def _readers(request: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return entity_reader(request.__header_schema__), entity_reader(request)


class _Member(NamedTuple):
    """A member of an entity: `convert` makes its value of an answer's, `default` is in place of one that is missing."""

    name: str
    convert: Callable[[Any], Any]
    default: Any


_REQUIRED: Final = object()
_LEFT_OUT: Final = object()


@cache
def _members(entity: type) -> Sequence[_Member]:
    hints = typing.get_type_hints(entity)
    return [_member(field, hints[field.name]) for field in dataclasses.fields(entity)]


def _member(field: dataclasses.Field[Any], hint: Any) -> _Member:
    types, is_sequence, waiting = [], False, [hint]
    while waiting:
        found = waiting.pop()
        is_sequence = is_sequence or typing.get_origin(found) is tuple
        waiting.extend(typing.get_args(found))
        types.append(found)
    default: Any = _REQUIRED
    if field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING:
        default = _LEFT_OUT
    convert: Callable[[Any], Any] = _same
    for found in (found for found in types if isinstance(found, type)):
        if dataclasses.is_dataclass(found):
            convert = partial(_built, found)
        elif issubclass(found, ErrorCode):
            convert = found
        elif issubclass(found, datetime.timedelta):
            convert, default = _duration, datetime.timedelta()
        elif issubclass(found, datetime.datetime):
            convert = _time
    return _Member(field.name, partial(_each, convert) if is_sequence else convert, default)


def _same(value: Any) -> Any:
    return value


def _duration(milliseconds: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=milliseconds)


def _time(milliseconds: int) -> datetime.datetime | None:
    if milliseconds < 0:
        return None
    return datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(milliseconds=milliseconds)


def _each(convert: Callable[[Any], Any], values: Any) -> Any:
    return None if values is None else tuple(convert(value) for value in values)


def _built(entity: type, answer: Answer | None) -> Any:
    if answer is None:
        return None
    given = {}
    for name, convert, default in _members(entity):
        if name in answer:
            given[name] = convert(answer[name])
        elif default is _REQUIRED:
            raise TypeError(f"{entity.__name__} of version {entity.__version__} needs {name}")  # type: ignore[attr-defined]
        elif default is not _LEFT_OUT:
            given[name] = default
    return entity(**given)
