"""Kafka's requests over a socket, by Kafka's schemas: what a client library would hide can be sent and seen."""

from __future__ import annotations

import dataclasses
import datetime
import io
import socket
import ssl
import typing
from collections.abc import Mapping
from typing import Any, Literal, Self

from kio.index import load_payload_module
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

WAIT_S = 60.0
KEYS = {name: key for key, name in api_key_map.items()}


class Refused(Exception):
    """The server has closed the connection instead of answering."""


class Wire:
    """One connection. `ask` sends a request and returns its answer."""

    def __init__(self, address: str, tls: ssl.SSLContext | None = None, server_name: str = "localhost") -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), WAIT_S)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=server_name)
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, name: str, version: int, **members: Any) -> Any:
        self.send(name, version, **members)
        return self.answer(name, version)

    def send(self, name: str, version: int, **members: Any) -> None:
        key = KEYS[name]
        request = _entity(key, version, EntityType.request)
        header = request.__header_schema__
        self._asked += 1
        buffer = io.BytesIO()
        given: dict[str, Any] = {"request_api_key": key, "request_api_version": version, "correlation_id": self._asked}
        names = {field.name for field in dataclasses.fields(header)}
        given |= {"client_id": "wire"} if "client_id" in names else {}
        entity_writer(header)(buffer, header(**given))
        entity_writer(request)(buffer, built(request, members))
        self.send_frame(buffer.getvalue())

    def send_frame(self, frame: bytes) -> None:
        self.socket.sendall(len(frame).to_bytes(4) + frame)

    def frame(self) -> bytes:
        return self._read(int.from_bytes(self._read(4)))

    def answer(self, name: str, version: int) -> Any:
        response = _entity(KEYS[name], version, EntityType.response)
        frame = self.frame()
        header, start = entity_reader(response.__header_schema__)(frame, 0)
        assert header.correlation_id == self._asked
        found, size = entity_reader(response)(frame, start)
        assert start + size == len(frame), "the answer has more bytes than its schema says"
        return found

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionError as error:
                raise Refused from error
            if not part:
                raise Refused
            data += part
        return data

    def is_closed(self) -> bool:
        try:
            return not self.socket.recv(1)
        except ConnectionError:
            return True


def _entity(key: int, version: int, kind: Literal[EntityType.request, EntityType.response]) -> Any:
    found = vars(load_payload_module(key, version, kind)).values()
    return next(value for value in found if isinstance(value, type) and getattr(value, "__type__", None) is kind)


def built(entity: type, members: Mapping[str, Any]) -> Any:
    """An entity of nested dictionaries and lists; durations are in milliseconds."""
    hints = typing.get_type_hints(entity)
    given: dict[str, Any] = {}
    for name, value in members.items():
        inner = _inner(hints[name])
        if isinstance(value, list):
            given[name] = tuple(built(inner, one) if isinstance(one, Mapping) else one for one in value)
        elif isinstance(value, Mapping):
            given[name] = built(inner, value)
        elif inner is not None and issubclass(inner, datetime.timedelta):
            given[name] = datetime.timedelta(milliseconds=value)
        else:
            given[name] = value
    return entity(**given)


def _inner(hint: Any) -> Any:
    waiting = [hint]
    while waiting:
        found = waiting.pop()
        if isinstance(found, type) and (dataclasses.is_dataclass(found) or issubclass(found, datetime.timedelta)):
            return found
        waiting.extend(typing.get_args(found))
    return None
