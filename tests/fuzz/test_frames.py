"""Whatever a client sends, the gateway decodes it or leaves the client, and serves the others on."""

from __future__ import annotations

import asyncio
import logging
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from sparktxn._programs.gateway.connection import SERVED, highest_version
from sparktxn._programs.gateway.wire import wiremessages
from sparktxn._programs.gateway.wire.recordbatches import BATCH_BYTES_MAX, decode_batch
from sparktxn._programs.gateway.wire.wiremessages import ELEMENTS_MAX, MalformedRequest, checked_end, decode_request
from sparktxn.errors import ErrorCode, KafkaException
from sparktxn.store import Store
from tests.fuzz.frames import TOPICS, Hostile, bomb, meet_batch, meet_frame, send, valid_frame
from tests.gateway.gateways import gateway
from tests.seeds import examples, seed_of

METADATA_V4 = bytes.fromhex("0003 0004 00000001 0000")
METADATA_V12 = bytes.fromhex("0003 000c 00000001 0000 00")


def body_ends(frame: bytes) -> tuple[int, int]:
    """Return where the walk ends that checks lengths, and where the decoder does."""
    key, version = int.from_bytes(frame[:2]), int.from_bytes(frame[2:4])
    request = wiremessages._payload("request", key, version)
    read_header, read_body = wiremessages._readers(request)
    _, header_bytes = read_header(frame, 0)
    _, body_bytes = read_body(frame, header_bytes)
    return checked_end(frame, checked_end(frame, 0, request.__header_schema__), request), header_bytes + body_bytes


@pytest.mark.parametrize("key", sorted(SERVED))
def test_each_valid_request_is_decoded(key):
    random = Random(seed_of(f"test_frames valid {key}"))
    for _ in range(40):
        assert meet_frame(valid_frame(random, key))


def test_lengths_are_checked_as_the_decoder_reads_them():
    """What the two read differently would hide a length from the check."""
    hostile = Hostile(seed_of("test_frames lengths"), 500)
    checked = 0
    for _ in range(examples(2_000, 100_000)):
        frame = hostile.frame()
        try:
            request = decode_request(frame, highest_version)
        except MalformedRequest:
            continue
        if request.body is not None:
            ours, theirs = body_ends(frame)
            assert ours == theirs, frame.hex()
            checked += 1
    assert checked > 200


def test_an_array_that_says_it_is_huge_takes_no_memory():
    """The decoder would make room for 2³² elements at once: no memory is left, and the process is ended."""
    tracemalloc.start()
    try:
        for frame in (
            METADATA_V4 + bytes.fromhex("7fffffff") + bytes(20),
            METADATA_V12 + bytes.fromhex("ffffffff0f") + bytes(20),
            METADATA_V12 + bytes.fromhex("ffffffff07") + bytes(20),
            METADATA_V12 + bytes.fromhex("ffffffffffff0f") + bytes(20),
            METADATA_V4 + bytes.fromhex("fffffffe") + bytes(20),
            bytes.fromhex("0012 0003 00000001 0000 ffffffff07") + bytes(20),
        ):
            with pytest.raises(MalformedRequest):
                decode_request(frame, highest_version)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_more_elements_than_are_allowed_are_refused_before_they_are_made():
    def asking(count: int) -> bytes:
        return METADATA_V4 + count.to_bytes(4) + bytes(2) * count + b"\0"

    assert len(decode_request(asking(ELEMENTS_MAX), highest_version).body.topics) == ELEMENTS_MAX
    with pytest.raises(MalformedRequest, match="elements"):
        decode_request(asking(ELEMENTS_MAX + 1), highest_version)


def test_an_array_is_null_only_where_it_may_be():
    assert decode_request(METADATA_V4 + bytes.fromhex("ffffffff 00"), highest_version).body.topics is None
    with pytest.raises(MalformedRequest, match="null"):
        decode_request(bytes.fromhex("0000 0003 00000001 0000 ffff 0001 00000000 ffffffff"), highest_version)


def test_a_tagged_member_has_the_size_that_it_says():
    fetch = bytes.fromhex("0001 000c 00000001 0000 00") + bytes(25) + bytes.fromhex("01 01 01")
    whole = fetch + bytes.fromhex("01 00 03 03 61 62")
    assert decode_request(whole, highest_version).body.cluster_id == "ab"
    for wrong in ("01 00 02 03 61 62", "01 00 04 03 61 62 00", "02 00 03 03 61 62"):
        with pytest.raises(MalformedRequest):
            decode_request(fetch + bytes.fromhex(wrong), highest_version)


def test_a_version_that_kafka_has_dropped_is_not_served():
    assert decode_request(bytes.fromhex("0000 0001 00000001 0000") + bytes(8), highest_version).body is None


def test_hostile_frames_and_batches_are_decoded_or_refused():
    hostile = Hostile(seed_of("test_frames decoded"), 300)
    frames = sum(meet_frame(hostile.frame()) for _ in range(examples(4_000, 100_000)))
    batches = sum(meet_batch(hostile.batch()) for _ in range(examples(2_000, 50_000)))
    assert min(frames, batches) > 100


@pytest.mark.parametrize("codec", [1, 2, 4])
def test_a_batch_that_expands_to_too_much_is_refused(codec):
    with pytest.raises(KafkaException) as raised:
        decode_batch(bomb(codec, BATCH_BYTES_MAX + 1, 1), 7)
    assert raised.value.args[0].code() == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_that_says_it_has_more_records_than_it_has_is_refused(codec):
    with pytest.raises(KafkaException):
        decode_batch(bomb(codec, 1 << 16, (1 << 31) - 1), 7)


def serve_hostile(folder: Path, frames: int, seed: int) -> None:
    """Send frames to a gateway; it must serve a client that behaves afterwards."""

    async def run() -> None:
        async with gateway(folder / "store", workers=4) as served:
            hostile = Hostile(seed, 200)
            answered, left = await asyncio.to_thread(send, served.endpoint, (hostile.frame() for _ in range(frames)))
            assert min(answered, left) > 0
            assert await asyncio.to_thread(send, served.endpoint, [valid_frame(Random(1), 18)]) == (1, 0)

    with Store.open(str(folder / "store"), create=True) as store:
        for topic in TOPICS:
            store.create_topic(topic, 2)
    asyncio.run(run())


class Failures(logging.Handler):
    """Keeps what is logged of requests that have failed, as text: an error holds the gateway that has raised it."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "event", "") == "gateway_request_failed":
            self.texts.append(self.format(record))


@pytest.fixture
def failures() -> Iterator[list[str]]:
    handler = Failures()
    logging.getLogger("sparktxn").addHandler(handler)
    yield handler.texts
    logging.getLogger("sparktxn").removeHandler(handler)


def test_a_gateway_outlives_hostile_frames(tmp_path, failures):
    serve_hostile(tmp_path, examples(250, 2_000), seed_of("test_frames served"))
    assert not failures, failures[0]
