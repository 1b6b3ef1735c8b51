"""Hostile frames for a gateway: requests of each served key and version, whole, changed, cut off, and with bombs.

`python -m tests.fuzz.frames --frames 1000000` decodes that many, and sends a part of them to a gateway, over sockets.
The gateway must answer or leave each connection, serve on, and take no more memory than `MEMORY_MB`.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import io
import socket
import struct
import subprocess
import sys
import tempfile
import time
import types
import typing
import uuid
import zlib
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import google_crc32c
import pyarrow as pa
from aiokafka.record._crecords import DefaultRecordBatchBuilder
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from sparktxn._programs.gateway.connection import SERVED, highest_version
from sparktxn._programs.gateway.wire import wiremessages
from sparktxn._programs.gateway.wire.recordbatches import decode_batch
from sparktxn._programs.gateway.wire.wiremessages import MalformedRequest, decode_request
from sparktxn.errors import KafkaException
from sparktxn.store import Store

__all__ = ["TOPICS", "Hostile", "Served", "hostile_batch", "meet_batch", "meet_frame", "send", "valid_frame"]

TOPICS: Final = ("fuzz-a", "fuzz-b")
MEMORY_MB: Final = 1_500
"""What the gateway may have resident, with at most 256 MiB of requests in memory."""
FRAME_S: Final = 10.0
"""How long a frame may take to be decoded."""
ANSWER_S: Final = 60.0
_TEXTS: Final = (*TOPICS, "", "missing", "x" * 300, "a\0b", "\U0001f600", "../x", "g", "t-1", "m-1", "consumer")
_NUMBERS: Final = (-1, -2, 0, 1, 2, 3, 5, 100, 1 << 15, 1 << 20, -(1 << 15), (1 << 31) - 1, -(1 << 31), (1 << 63) - 1)
_LENGTHS: Final = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\0\xff\xff")
_BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")


def valid_frame(random: Random, key: int | None = None) -> bytes:
    """Return a request of a served version, without its size; its members are plausible, or far from that."""
    key = random.choice(sorted(SERVED)) if key is None else key
    served = SERVED[key]
    version = random.randint(max(served.lowest, _oldest(key)), served.highest)
    request = wiremessages._payload("request", key, version)
    header = request.__header_schema__
    buffer = io.BytesIO()
    named = {"request_api_key": key, "request_api_version": version, "correlation_id": 7, "client_id": "fuzz"}
    wanted = {field.name: named[field.name] for field in dataclasses.fields(header)}
    entity_writer(header)(buffer, header(**wanted))
    entity_writer(request)(buffer, _made(request, random, 0))
    return buffer.getvalue()


@cache
def _oldest(key: int) -> int:
    """Return the oldest version that Kafka's schemas still have."""
    for version in range(highest_version(key) + 1):
        with suppress(Exception):
            wiremessages._payload("request", key, version)
            return version
    raise AssertionError(f"request {key} is served in no version that there is")


@cache
def _hints(entity: type) -> dict[str, Any]:
    return typing.get_type_hints(entity)


def _made(entity: type, random: Random, depth: int) -> Any:
    hints = _hints(entity)
    members = dataclasses.fields(entity)
    return entity(**{member.name: _value(member, hints[member.name], random, depth) for member in members})


def _value(field: dataclasses.Field[Any], hint: Any, random: Random, depth: int) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        options = typing.get_args(hint)
        if type(None) in options and random.random() < 0.15:
            return None
        hint = next(option for option in options if option is not type(None))
    if typing.get_origin(hint) is tuple:
        return tuple(_value(field, typing.get_args(hint)[0], random, depth + 1) for _ in range(_count(random, depth)))
    kind = typing.get_origin(hint) or hint
    if dataclasses.is_dataclass(kind):
        return _made(typing.cast("type", kind), random, depth)
    if "records" in field.name:
        return hostile_batch(random)
    return _scalar(kind, field.metadata.get("kafka_type", ""), random)


def _count(random: Random, depth: int) -> int:
    return random.choice((0, 1, 1, 1, 2, 3)) if depth else random.choice((0, 1, 1, 1, 2, 5, 200))


def _scalar(kind: type, kafka_type: str, random: Random) -> Any:
    if issubclass(kind, bool):
        return random.random() < 0.5
    if issubclass(kind, str):
        return random.choice(_TEXTS)
    if issubclass(kind, bytes):
        return random.choice((b"", b"\0", random.randbytes(30)))
    if issubclass(kind, uuid.UUID):
        return uuid.UUID(int=random.choice((0, 1, random.getrandbits(128))))
    if issubclass(kind, ErrorCode):
        return random.choice(list(ErrorCode))
    if issubclass(kind, datetime.timedelta):
        return datetime.timedelta(milliseconds=random.choice((-1, 0, 1, 20)))
    if issubclass(kind, datetime.datetime):
        return datetime.datetime.fromtimestamp(random.choice((0, 1, 2_000_000_000)), datetime.UTC)
    if issubclass(kind, float):
        return random.choice((0.0, -1.0, 1e308))
    assert issubclass(kind, int), kind
    bits = int(kafka_type.lstrip("uint") or 32)
    lowest, highest = (0, (1 << bits) - 1) if kafka_type.startswith("u") else (-(1 << bits - 1), (1 << bits - 1) - 1)
    return min(max(random.choice(_NUMBERS), lowest), highest)


def _batch(random: Random) -> bytes:
    identity = random.choice(((-1, -1, -1), (-1, -1, -1), (0, 0, 0), (1, 0, 5), (1 << 40, 9, (1 << 31) - 1)))
    builder = DefaultRecordBatchBuilder(2, random.choice((0, 0, 1)), int(random.random() < 0.2), *identity, 1 << 20)
    for place in range(random.choice((1, 1, 3, 50))):
        value = random.choice((None, b"", b"v", random.randbytes(40)))
        builder.append(place, random.choice((-1, 0, 1_700_000_000_000)), random.choice((None, b"k")), value, [])
    return bytes(builder.build())


def signed(batch: bytes) -> bytes:
    """Return a batch with the length and the checksum that it should have."""
    made = bytearray(batch)
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">I", made, 17, google_crc32c.value(bytes(made[21:])))
    return bytes(made)


def bomb(codec: int, size_bytes: int, count: int) -> bytes:
    """Return a batch that says it has `count` records, and whose few bytes expand to `size_bytes` of zeros."""
    zeros = bytes(size_bytes)
    if codec == 1:
        payload = zlib.compress(zeros, 9, 31)
    elif codec == 2:
        payload = bytes(pa.Codec("snappy").compress(zeros, asbytes=True))
    else:
        payload = bytes(pa.compress(zeros, {3: "lz4", 4: "zstd"}[codec], asbytes=True))
    header = _BATCH_HEADER.pack(0, 0, 0, 2, 0, codec, count - 1, 0, 0, -1, -1, -1, count)
    return signed(header + payload)


_BOMB_BYTES: Final = 80 * 1024 * 1024


@cache
def _bombs() -> tuple[bytes, ...]:
    large = [bomb(codec, _BOMB_BYTES, count) for codec in (1, 2, 4) for count in (1, (1 << 31) - 1)]
    return (*large, *(bomb(codec, 1 << 16, count) for codec in (1, 2, 3, 4) for count in (1, 1 << 15, (1 << 31) - 1)))


def hostile_batch(random: Random) -> bytes:
    """Return a record batch: a valid one, one that is changed and signed again, garbage, or a bomb."""
    chance = random.random()
    if chance < 0.001:
        return random.choice(_bombs())
    made = _batch(random)
    if chance < 0.4:
        return made
    if chance < 0.5:
        return _changed(made, random)
    if chance < 0.55:
        return random.randbytes(random.randrange(200))
    changed = bytearray(made)
    for _ in range(random.choice((1, 1, 3))):
        place = random.choice((16, 22, 26, 43, 51, 53, 57, 60, 61, 62, 63, random.randrange(len(changed))))
        if place < len(changed):
            changed[place] = random.choice((0, 1, 127, 128, 255, random.randrange(256)))
    cut = len(changed) if random.random() < 0.8 else random.randrange(61, len(changed) + 1)
    return signed(bytes(changed[:cut]))


def _changed(data: bytes, random: Random) -> bytes:
    """Return `data` with bytes changed, cut off, doubled, or a length in it that is huge."""
    made = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 6))):
        place = random.randrange(len(made) + 1)
        chance = random.random()
        if chance < 0.35 and place < len(made):
            made[place] = random.choice((0, 1, 127, 128, 255, random.randrange(256)))
        elif chance < 0.5:
            del made[place:]
        elif chance < 0.6:
            made[place:place] = made[: random.randrange(64)]
        elif chance < 0.7:
            made[place : place + random.randrange(8)] = b""
        elif chance < 0.85:
            made[place : place + 4] = random.choice(_LENGTHS)
        else:
            made[place : place + 5] = random.choice((b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\xff" * 9))
    return bytes(made)


class Hostile:
    """Makes frames without their sizes, of the same pool of valid ones: making one takes longer than changing it."""

    def __init__(self, seed: int, valid: int) -> None:
        self.random = Random(seed)
        keys = sorted(SERVED)
        self._valid = [valid_frame(self.random, keys[turn % len(keys)]) for turn in range(valid)]
        # Records are half of what can be wrong.
        self._valid += [valid_frame(self.random, 0) for _ in range(valid // 2)]

    def frame(self) -> bytes:
        """Return one of them, one that is changed, or garbage."""
        random = self.random
        chance = random.random()
        if chance < 0.05:
            return random.randbytes(random.randrange(1, 200))
        if chance < 0.08:
            return struct.pack(">hhi", random.randint(-2, 100), random.randint(-2, 20), 7) + random.randbytes(40)
        frame = random.choice(self._valid)
        return frame if chance < 0.4 else _changed(frame, random)

    def batch(self) -> bytes:
        """Return a record batch."""
        return hostile_batch(self.random)


def meet_frame(frame: bytes) -> bool:
    """Decode a frame, which is a request or malformed, soon; return whether it is one."""
    began = time.perf_counter()
    try:
        decode_request(frame, highest_version)
    except MalformedRequest:
        return False
    finally:
        assert time.perf_counter() - began < FRAME_S
    return True


def meet_batch(batch: bytes) -> bool:
    """Decode a batch, which has records or is refused, soon; return whether it has."""
    began = time.perf_counter()
    try:
        found = decode_batch(batch, 7)
    except KafkaException:
        return False
    finally:
        assert time.perf_counter() - began < FRAME_S
    found.records.validate(full=True)
    return True


class Served:
    """A gateway in a process of its own, in front of a store in `folder`."""

    def __init__(self, folder: Path) -> None:
        with Store.open(str(folder / "store"), create=True) as store:
            for topic in TOPICS:
                store.create_topic(topic, 2)
        self._errors = (folder / "gateway.log").open("w+b")
        txnlog = str(Path(sys.executable).with_name("txnlog"))
        command = [txnlog, "gateway", "-b", str(folder / "store"), "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._errors)
        assert self.process.stdout is not None
        words: list[bytes] = []
        while b"address" not in words:
            words = self.process.stdout.readline().split()
            assert words, self.errors()
        host, _, port = words[-1].decode().rpartition(":")
        self.endpoint = (host, int(port))

    def errors(self) -> str:
        """Return what it has written to its standard error."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def resident_mb(self) -> int:
        """Return the most that it has had resident."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) // 1024

    def check(self) -> None:
        """Have it serve on, with no error that nothing has met, and in no more memory than it may have."""
        assert send(self.endpoint, [valid_frame(Random(1), 18)]) == (1, 0)
        assert self.process.poll() is None, self.errors()
        assert "has failed at" not in self.errors(), self.errors()[-5000:]
        assert self.resident_mb() < MEMORY_MB

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(60)


def _connected(endpoint: tuple[str, int]) -> socket.socket:
    made = socket.create_connection(endpoint, timeout=ANSWER_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def _read(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise ConnectionError("the gateway has left")
        found += part
    return found


def send(endpoint: tuple[str, int], frames: Iterable[bytes]) -> tuple[int, int]:
    """Send frames one by one, on a new connection after each that the gateway leaves; return (answered, left).

    A frame that has no answer, as a client wants none, is followed by a request that has one.
    """
    asked = struct.pack(">hhih", 18, 0, 9, 0)
    answered = left = 0
    connection = _connected(endpoint)
    for frame in frames:
        try:
            connection.sendall(struct.pack(">i", len(frame)) + frame + struct.pack(">i", len(asked)) + asked)
            while True:
                (size,) = struct.unpack(">i", _read(connection, 4))
                if int.from_bytes(_read(connection, size)[:4]) == 9:
                    break
            answered += 1
        except ConnectionError:
            left += 1
            connection.close()
            connection = _connected(endpoint)
    connection.close()
    return answered, left


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.frames", description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--sent", type=int, default=100_000, help="how many of them go to a gateway")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    hostile = Hostile(given.seed, 5_000)
    decoded = given.frames - given.sent
    taken = sum(meet_batch(hostile.batch()) for _ in range(decoded // 3))
    taken += sum(meet_frame(hostile.frame()) for _ in range(decoded - decoded // 3))
    print(f"seed {given.seed}: {decoded} frames and batches decoded, {taken} of them valid", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        served = Served(Path(folder))
        try:
            answered, left = send(served.endpoint, (hostile.frame() for _ in range(given.sent)))
            print(f"{answered} frames answered, {left} connections left, {served.resident_mb()} MB at most")
            served.check()
        finally:
            served.close()


if __name__ == "__main__":
    main()
