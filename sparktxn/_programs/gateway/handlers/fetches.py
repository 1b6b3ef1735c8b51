"""Fetch and ListOffsets: records and offsets, as a client's isolation level shows them."""

from __future__ import annotations

from typing import Any, Final

from sparktxn import ReadView
from sparktxn._foundation.process.clock import Deadline
from sparktxn._programs.gateway.broker import Broker
from sparktxn._programs.gateway.partitionreads import Fetched
from sparktxn._programs.gateway.topiclookup import AskedTopic, unknown_id
from sparktxn._programs.gateway.wire.wirecodes import code_of
from sparktxn._programs.gateway.wire.wiremessages import Answer, Request
from sparktxn.admin import ListOffsetsResultInfo, OffsetSpec, TopicPartition
from sparktxn.admin.records import list_offsets as list_offsets_of
from sparktxn.errors import ErrorCode, KafkaException
from sparktxn.store.reading import Isolation

_READ_COMMITTED: Final = 1
_NO_SESSION: Final = 0
_FETCH_SESSION_ID_NOT_FOUND: Final = 70
_UNKNOWN_LEADER_EPOCH: Final = 75
_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL = -1, -2, -3, -4
_IDS_FROM: Final = 13
"""From this version of Fetch on topics are named by their ids."""
_ZSTD_VERSION: Final = 10
"""Clients that ask in an older version of Fetch may not read zstd (KIP-110)."""
_BYTES_MAX: Final = 50 * 1024 * 1024
_NEVER_MS: Final = 2**63 - 1
_NO_OFFSET: Final = ListOffsetsResultInfo(-1, -1)


def _isolation(request: Request) -> Isolation:
    level = getattr(request.body, "isolation_level", 0)
    return "read_committed" if level == _READ_COMMITTED else "read_uncommitted"


async def fetch(broker: Broker, request: Request) -> Answer:
    """Return records from the offsets that are asked for; wait for them if there are fewer than asked for."""
    body = request.body
    if getattr(body, "session_id", _NO_SESSION) != _NO_SESSION:
        return {"error_code": _FETCH_SESSION_ID_NOT_FOUND, "session_id": _NO_SESSION, "responses": []}
    patience = Deadline(broker.log.clock, max(0, _milliseconds(body.max_wait)) / 1000)
    while True:
        entry, responses, size_bytes, has_error = await broker.calls.run(_read, broker, request)
        broker.log_end.note(entry)
        remaining_s = patience.remaining_s() or 0.0
        if size_bytes >= body.min_bytes or has_error or remaining_s <= 0 or broker.log_end.has_ended:
            return {"error_code": 0, "session_id": _NO_SESSION, "responses": responses}
        await broker.log_end.wait_beyond(entry, remaining_s)


def _milliseconds(value: Any) -> float:
    return float(value.total_seconds() * 1000) if hasattr(value, "total_seconds") else float(value)


def _read(broker: Broker, request: Request) -> tuple[int, list[dict[str, Any]], int, bool]:
    isolation = _isolation(request)
    left_bytes = min(getattr(request.body, "max_bytes", _BYTES_MAX), _BYTES_MAX)
    takes_zstd = request.version >= _ZSTD_VERSION
    size_bytes, has_error, responses = 0, False, []
    topics = _named(broker, request)
    view = broker.reads.view({topic.name for topic in topics if topic.error is None})
    for topic in topics:
        partitions = []
        for asked in topic.partitions:
            part_bytes = min(left_bytes, asked.partition_max_bytes) if left_bytes > 0 or not size_bytes else 0
            limits = {"whole_record": not size_bytes, "takes_zstd": takes_zstd}
            found = _partition(broker, view, topic, asked, isolation, part_bytes, **limits)
            size_bytes += len(found["records"] or b"")
            left_bytes -= len(found["records"] or b"")
            has_error = has_error or bool(found["error_code"])
            partitions.append(found)
        responses.append({"topic": topic.name, "topic_id": topic.uuid, "partitions": partitions})
    return view.entry, responses, size_bytes, has_error


def _named(broker: Broker, request: Request) -> list[AskedTopic]:
    asked = request.body.topics
    if request.version < _IDS_FROM:
        return [AskedTopic(topic.topic, topic.partitions) for topic in asked]
    broker.topics.by_uuid(topic.topic_id for topic in asked)  # reads on for those that are not known
    return [broker.topics.asked(topic.topic_id, topic.partitions) for topic in asked]


def _partition(
    broker: Broker,
    view: ReadView,
    topic: AskedTopic,
    asked: Any,
    isolation: Isolation,
    bytes_max: int,
    *,
    whole_record: bool,
    takes_zstd: bool,
) -> dict[str, Any]:
    answer = {"partition_index": asked.partition, "preferred_read_replica": -1, "aborted_transactions": None}
    code = _epoch_code(asked) or _id_code(view, topic, asked.partition)
    found = Fetched(b"", -1, -1, -1)
    if not code:
        try:
            where = (topic.name, asked.partition, asked.fetch_offset)
            found = broker.reads.fetch(
                view, *where, isolation, bytes_max, whole_record=whole_record, takes_zstd=takes_zstd
            )
        except KafkaException as error:
            code = code_of(error)
    return {
        **answer,
        "error_code": code,
        "high_watermark": found.log_end_offset,
        "last_stable_offset": found.last_stable_offset,
        "log_start_offset": found.log_start_offset,
        "records": found.records,
    }


def _id_code(view: ReadView, topic: AskedTopic, partition: int) -> int:
    """Return the code for a topic that does not exist by its id, or was deleted and made again since that was found."""
    if topic.error is not None:
        return code_of(topic.error)
    found = view.partitions.get((topic.name, partition))
    if topic.topic_id is not None and found is not None and found.topic.topic_id != topic.topic_id:
        return code_of(unknown_id(topic.uuid))
    return 0


def _epoch_code(asked: Any) -> int:
    """Return the code for the leader's epoch that a client knows: it is always 0."""
    epoch = getattr(asked, "current_leader_epoch", -1)
    return _UNKNOWN_LEADER_EPOCH if epoch > 0 else 0


async def list_offsets(broker: Broker, request: Request) -> Answer:
    """Return offsets at the beginning, at the end, by time, and of the newest record."""
    return {"topics": await broker.calls.run(_listed, broker, request)}


def _listed(broker: Broker, request: Request) -> list[dict[str, Any]]:
    asked = [(topic.name, part) for topic in request.body.topics for part in topic.partitions]
    wanted = [(TopicPartition(name, part.partition_index), _spec(part.timestamp)) for name, part in asked]
    found = list_offsets_of(broker.log, broker.store.uri, wanted, _isolation(request))
    answers = (_offset(part, one) for (_, part), one in zip(asked, found, strict=True))
    return [
        {"name": topic.name, "partitions": [next(answers) for _ in topic.partitions]} for topic in request.body.topics
    ]


def _spec(timestamp_ms: int) -> OffsetSpec:
    """Return what a time asks for. A negative one that means nothing here is a time that no record has."""
    if timestamp_ms == _LATEST:
        return OffsetSpec.latest()
    if timestamp_ms in (_EARLIEST, _EARLIEST_LOCAL):
        return OffsetSpec.earliest()
    if timestamp_ms == _MAX_TIMESTAMP:
        return OffsetSpec.max_timestamp()
    return OffsetSpec.for_timestamp(timestamp_ms if timestamp_ms >= 0 else _NEVER_MS)


def _offset(asked: Any, found: ListOffsetsResultInfo | KafkaException) -> dict[str, Any]:
    code = code_of(found) if isinstance(found, KafkaException) else _epoch_code(asked)
    offset = _NO_OFFSET if isinstance(found, KafkaException) or code else found
    return {
        "partition_index": asked.partition_index,
        "leader_epoch": 0,
        "old_style_offsets": [],
        "error_code": code,
        "offset": offset.offset,
        "timestamp": offset.timestamp,
    }


async def offset_for_leader_epoch(broker: Broker, request: Request) -> Answer:
    """Return where the leader's only epoch ends: at each partition's end."""
    return {"topics": await broker.calls.run(_epoch_ends, broker, request)}


def _epoch_ends(broker: Broker, request: Request) -> list[dict[str, Any]]:
    view = broker.reads.view({topic.topic for topic in request.body.topics})
    answers = []
    for topic in request.body.topics:
        partitions = []
        for asked in topic.partitions:
            found = view.partitions.get((topic.topic, asked.partition))
            partitions.append(
                {
                    "error_code": 0 if found is not None else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                    "partition": asked.partition,
                    "leader_epoch": 0 if found is not None and asked.leader_epoch >= 0 else -1,
                    "end_offset": -1 if found is None or asked.leader_epoch < 0 else found.log_end_offset,
                }
            )
        answers.append({"topic": topic.topic, "partitions": partitions})
    return answers
