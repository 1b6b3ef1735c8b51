"""Frames to requests, and answers to frames, by Kafka's own schemas (kio).

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

from sparktxn.gateway.wire.wirebounds import MalformedRequest, checked_end

__all__ = [
    "BARE_TOKEN",
    "Answer",
    "MalformedRequest",
    "Request",
    "bare_token",
    "decode_request",
    "encode_response",
    "request_name",
]

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
