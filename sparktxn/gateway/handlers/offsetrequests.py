"""The offsets of groups: OffsetCommit and OffsetFetch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import replace

from sparktxn.errors import ErrorCode, KafkaException
from sparktxn.format.commands import Command, OffsetCommit, OffsetToCommit
from sparktxn.gateway.broker import Broker
from sparktxn.gateway.roster import check_group_id
from sparktxn.gateway.wire.wirecodes import coordinator_code_of
from sparktxn.gateway.wire.wiremessages import Answer, Request
from sparktxn.state.limits import METADATA_BYTES_MAX
from sparktxn.store.memberexpiry import expire_overdue
from sparktxn.values.fieldtypes import TopicPartitionKey
from sparktxn.values.structs import CommittedOffset

__all__ = ["offset_commit", "offset_fetch"]

_FRESH_S: Final = 0.05
_INVALID_GROUP_ID: Final = 24
_MEMBER_EPOCHS_FROM_VERSION: Final = 9
_MANY_GROUPS_FROM_VERSION: Final = 8
_GROUP_CODE_FROM_VERSION: Final = 2


async def offset_commit(broker: Broker, request: Request) -> Answer:
    """Commit a group's offsets."""
    codes = await broker.calls.run(_committed, broker, request)
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": part.partition_index, "error_code": codes[topic.name, part.partition_index]}
                    for part in topic.partitions
                ],
            }
            for topic in request.body.topics
        ]
    }


def _committed(broker: Broker, request: Request) -> dict[TopicPartitionKey, int]:
    body = request.body
    generation = getattr(body, "generation_id_or_member_epoch", -1)
    asked = [(topic.name, part) for topic in body.topics for part in topic.partitions]
    codes: dict[TopicPartitionKey, int] = {}
    offsets = []
    try:
        broker.log.refresh(max_age_s=_FRESH_S)
        for name, part in asked:
            code, offset = _to_commit(broker, name, part)
            codes[name, part.partition_index] = code
            if offset is not None:
                offsets.append(offset)
        check_group_id(body.group_id)
        if not body.group_id and generation >= 0:
            return dict.fromkeys(codes, _INVALID_GROUP_ID)
        if generation >= 0 and not body.member_id:
            return {where: code or int(ErrorCode.UNKNOWN_MEMBER_ID) for where, code in codes.items()}
        if offsets:
            _commit(broker, body, generation, tuple(offsets))
    except KafkaException as error:
        failed = coordinator_code_of(error)
        if failed == ErrorCode.STALE_MEMBER_EPOCH and request.version < _MEMBER_EPOCHS_FROM_VERSION:
            failed = int(ErrorCode.ILLEGAL_GENERATION)
        return {(name, part.partition_index): codes.get((name, part.partition_index)) or failed for name, part in asked}
    return codes


def _to_commit(broker: Broker, name: str, part: Any) -> tuple[int, OffsetToCommit | None]:
    """Return the code of a partition's offset, and the offset if that is none."""
    topic = broker.log.topic(name)
    if topic is None or not 0 <= part.partition_index < topic.partition_count:
        return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None
    metadata = part.committed_metadata or ""
    if len(metadata.encode()) > METADATA_BYTES_MAX:
        return int(ErrorCode.OFFSET_METADATA_TOO_LARGE), None
    epoch = getattr(part, "committed_leader_epoch", -1)
    return 0, OffsetToCommit(topic.topic_id, part.partition_index, part.committed_offset, metadata, epoch)


def _commit(broker: Broker, body: Any, generation: int, offsets: tuple[OffsetToCommit, ...]) -> None:
    log = broker.log
    began_s = log.clock.monotonic_s()
    instance_id = getattr(body, "group_instance_id", None) or ""
    commands: list[Command] = []
    command = OffsetCommit(log.ids.token(), body.group_id, offsets)
    if broker.led_groups.has(body.group_id):
        # In one list: the offsets are committed if the log has the member.
        name, epoch = broker.led_groups.speaks(body.group_id, body.member_id, instance_id, generation)
        commands.append(OffsetCommit(log.ids.token(), name, (), epoch, body.member_id, instance_id=instance_id))
    else:
        name = body.group_id
        command = replace(command, generation_id=generation, member_id=body.member_id, instance_id=instance_id)
    member = broker.members.heard(name, body.member_id)
    if not body.member_id:
        expire_overdue(log, [body.group_id])
    log.submit([*commands, command])
    if member is not None:
        member.life.note_good(began_s)


async def offset_fetch(broker: Broker, request: Request) -> Answer:
    """Return the offsets that groups have committed."""
    return await broker.calls.run(_fetched, broker, request)


def _fetched(broker: Broker, request: Request) -> Answer:
    body = request.body
    stable = getattr(body, "require_stable", False)
    try:
        broker.log.refresh(max_age_s=0)
    except KafkaException as error:
        code = coordinator_code_of(error)
        if request.version >= _MANY_GROUPS_FROM_VERSION:
            return {"groups": [{"group_id": each.group_id, "topics": [], "error_code": code} for each in body.groups]}
        return {"topics": [], "error_code": code}
    if request.version >= _MANY_GROUPS_FROM_VERSION:
        return {"groups": [_group(broker, each, stable) for each in body.groups]}
    is_all = body.topics is None and request.version >= _GROUP_CODE_FROM_VERSION
    topics = None if is_all else [(topic.name, topic.partition_indexes) for topic in body.topics or ()]
    return {"topics": _topics(broker, body.group_id, topics, stable), "error_code": 0}


def _group(broker: Broker, asked: Any, stable: bool) -> dict[str, Any]:
    code = _member_code(broker, asked)
    answer = {"group_id": asked.group_id, "error_code": code}
    if code:
        return {**answer, "topics": []}
    topics = None if asked.topics is None else [(topic.name, topic.partition_indexes) for topic in asked.topics]
    return {**answer, "topics": _topics(broker, asked.group_id, topics, stable)}


def _member_code(broker: Broker, asked: Any) -> int:
    """Return the code for the member that asks, in its epoch; 0 if it is one, or asks as none."""
    member_id, epoch = getattr(asked, "member_id", None), getattr(asked, "member_epoch", -1)
    if not member_id and epoch < 0:
        return 0
    state = broker.log.member(asked.group_id, member_id or "")
    if state is None:
        return int(ErrorCode.UNKNOWN_MEMBER_ID)
    return 0 if epoch <= state.member_epoch else int(ErrorCode.STALE_MEMBER_EPOCH)


def _topics(
    broker: Broker, group_id: str, asked: Iterable[tuple[str, Iterable[int]]] | None, stable: bool
) -> list[dict[str, Any]]:
    """Return a group's offsets for the partitions that are asked for; None: for all that it has committed."""
    if asked is None:
        names = broker.log.topic_names()
        found: dict[str, list[int]] = {}
        places = {(offset.topic_id, offset.partition) for offset in broker.log.group_offsets(group_id)}
        if stable:
            places |= {(offset.topic_id, offset.partition) for offset in broker.log.group_pending_offsets(group_id)}
        for topic_id, number in sorted(places):
            if topic_id in names:
                found.setdefault(names[topic_id], []).append(number)
        asked = found.items()
    return [
        {"name": name, "partitions": [_partition(broker, group_id, name, number, stable) for number in numbers]}
        for name, numbers in asked
    ]


def _partition(broker: Broker, group_id: str, name: str, number: int, stable: bool) -> dict[str, Any]:
    topic = broker.log.topic(name)
    found: CommittedOffset | None = None
    code = 0
    if topic is not None:
        if stable and broker.log.pending_offsets(group_id, topic.topic_id, number):
            code = int(ErrorCode.UNSTABLE_OFFSET_COMMIT)
        else:
            found = broker.log.committed_offset(group_id, topic.topic_id, number)
    return {
        "partition_index": number,
        "committed_offset": -1 if found is None else found.offset,
        "committed_leader_epoch": -1 if found is None else found.leader_epoch,
        "metadata": "" if found is None else found.metadata or "",
        "error_code": code,
    }
