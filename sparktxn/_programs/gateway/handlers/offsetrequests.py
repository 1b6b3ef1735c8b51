"""The offsets of groups: OffsetCommit and OffsetFetch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from sparktxn._engine.format.commands import Command, OffsetCommit, OffsetToCommit
from sparktxn._engine.state.limits import METADATA_BYTES_MAX
from sparktxn._foundation.values.structs import CommittedOffset, TopicState
from sparktxn._programs.gateway.broker import Broker
from sparktxn._programs.gateway.groups.grouprosters import check_group_id
from sparktxn._programs.gateway.topiclookup import UNKNOWN_TOPIC_ID
from sparktxn._programs.gateway.wire.wirecodes import coordinator_code_of
from sparktxn._programs.gateway.wire.wiremessages import Answer, Request
from sparktxn.errors import ErrorCode, KafkaException
from sparktxn.store.groupoffsets import answered_offset, any_offset_to_commit
from sparktxn.store.memberexpiry import expire_overdue

_FRESH_S: Final = 0.05
_TOPIC_IDS_FROM_VERSION: Final = 10
_INVALID_GROUP_ID: Final = 24
_MEMBER_EPOCHS_FROM_VERSION: Final = 9
_MANY_GROUPS_FROM_VERSION: Final = 8
_GROUP_CODE_FROM_VERSION: Final = 2

Name = str | UUID | None
"""What a request calls a topic: its name, or from version 10 on its id, which is None where a client sends zeros."""


async def offset_commit(broker: Broker, request: Request) -> Answer:
    """Commit a group's offsets."""
    codes = await broker.calls.run(_committed, broker, request)
    return {
        "topics": [
            {
                **_members(_name(topic)),
                "partitions": [
                    {"partition_index": part.partition_index, "error_code": codes[_name(topic), part.partition_index]}
                    for part in topic.partitions
                ],
            }
            for topic in request.body.topics
        ]
    }


def _name(topic: Any) -> Name:
    name: Name = topic.topic_id if hasattr(topic, "topic_id") else topic.name
    return name


def _members(name: Name) -> Answer:
    return {"name": name} if isinstance(name, str) else {"topic_id": name}


def _found(broker: Broker, version: int, names: Iterable[Name]) -> dict[Name, TopicState]:
    """Return the topics that exist of those that a request names.

    Raises:
        StoreError: the log cannot be read.
    """
    topics: dict[Name, TopicState | None]
    if version >= _TOPIC_IDS_FROM_VERSION:
        found = broker.topics.by_uuid(name for name in names if not isinstance(name, str))
        topics = {name: found.get(name) for name in names if isinstance(name, UUID)}
    else:
        topics = {name: broker.log.topic(name) for name in names if isinstance(name, str)}
    return {name: topic for name, topic in topics.items() if topic is not None}


def _committed(broker: Broker, request: Request) -> dict[tuple[Name, int], int]:
    body = request.body
    generation = getattr(body, "generation_id_or_member_epoch", -1)
    asked = [(_name(topic), part) for topic in body.topics for part in topic.partitions]
    codes: dict[tuple[Name, int], int] = {}
    offsets = []
    try:
        broker.log.refresh(max_age_s=_FRESH_S)
        broker.topics.read_on_for((name, part.partition_index) for name, part in asked if isinstance(name, str))
        topics = _found(broker, request.version, [name for name, _ in asked])
        for name, part in asked:
            code, offset = _to_commit(name, topics.get(name), part)
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


def _to_commit(name: Name, topic: TopicState | None, part: Any) -> tuple[int, OffsetToCommit | None]:
    """Return the code of a partition's offset, and the offset if that is none."""
    if topic is None and not isinstance(name, str):
        return UNKNOWN_TOPIC_ID, None
    if topic is None or not 0 <= part.partition_index < topic.partition_count:
        return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None
    metadata = part.committed_metadata or ""
    if len(metadata.encode()) > METADATA_BYTES_MAX:
        return int(ErrorCode.OFFSET_METADATA_TOO_LARGE), None
    epoch = getattr(part, "committed_leader_epoch", -1)
    return 0, any_offset_to_commit(topic.topic_id, part.partition_index, part.committed_offset, metadata, epoch)


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
    body, has_groups = request.body, request.version >= _MANY_GROUPS_FROM_VERSION
    groups = body.groups if has_groups else [body]
    stable = getattr(body, "require_stable", False)
    try:
        broker.log.refresh(max_age_s=0)
        asked = {_name(topic) for each in groups for topic in each.topics or ()}
        topics = _found(broker, request.version, asked)
    except KafkaException as error:
        code = coordinator_code_of(error)
        if has_groups:
            return {"groups": [{"group_id": each.group_id, "topics": [], "error_code": code} for each in groups]}
        return {"topics": [], "error_code": code}
    if has_groups:
        by_id = request.version >= _TOPIC_IDS_FROM_VERSION
        return {"groups": [_group(broker, each, topics, stable, by_id=by_id) for each in groups]}
    is_all = body.topics is None and request.version >= _GROUP_CODE_FROM_VERSION
    places = _all_places(broker, body.group_id, stable) if is_all else _asked_places(body.topics or (), topics)
    return {"topics": _offsets(broker, body.group_id, places, stable), "error_code": 0}


class _Places(NamedTuple):
    """Partitions of a topic that a request names so; None if there is no such topic."""

    name: Name
    topic: TopicState | None
    numbers: Iterable[int]


def _group(
    broker: Broker, asked: Any, topics: Mapping[Name, TopicState], stable: bool, *, by_id: bool
) -> dict[str, Any]:
    code = _member_code(broker, asked)
    answer = {"group_id": asked.group_id, "error_code": code}
    if code:
        return {**answer, "topics": []}
    if asked.topics is not None:
        places = _asked_places(asked.topics, topics)
    else:
        places = _all_places(broker, asked.group_id, stable)
        if by_id:
            places = [one._replace(name=broker.topics.uuid_of(one.topic.topic_id)) for one in places if one.topic]
    return {**answer, "topics": _offsets(broker, asked.group_id, places, stable)}


def _member_code(broker: Broker, asked: Any) -> int:
    """Return the code for the member that asks, in its epoch; 0 if it is one, or asks as none."""
    member_id, epoch = getattr(asked, "member_id", None), getattr(asked, "member_epoch", -1)
    if not member_id and epoch < 0:
        return 0
    state = broker.log.member(asked.group_id, member_id or "")
    if state is None:
        return int(ErrorCode.UNKNOWN_MEMBER_ID)
    return 0 if epoch <= state.member_epoch else int(ErrorCode.STALE_MEMBER_EPOCH)


def _asked_places(asked: Iterable[Any], topics: Mapping[Name, TopicState]) -> list[_Places]:
    return [_Places(_name(topic), topics.get(_name(topic)), topic.partition_indexes) for topic in asked]


def _all_places(broker: Broker, group_id: str, stable: bool) -> list[_Places]:
    """Return the partitions for which the group has committed, in order, with the names of their topics."""
    names = broker.log.topic_names()
    found: dict[str, list[int]] = {}
    places = {(offset.topic_id, offset.partition) for offset in broker.log.group_offsets(group_id)}
    if stable:
        places |= {(offset.topic_id, offset.partition) for offset in broker.log.group_pending_offsets(group_id)}
    for topic_id, number in sorted(places):
        if topic_id in names:
            found.setdefault(names[topic_id], []).append(number)
    return [_Places(name, broker.log.topic(name), numbers) for name, numbers in found.items()]


def _offsets(broker: Broker, group_id: str, places: Iterable[_Places], stable: bool) -> list[dict[str, Any]]:
    return [
        {
            **_members(one.name),
            "partitions": [_partition(broker, group_id, one, number, stable) for number in one.numbers],
        }
        for one in places
    ]


def _partition(broker: Broker, group_id: str, place: _Places, number: int, stable: bool) -> dict[str, Any]:
    topic = place.topic
    found: CommittedOffset | None = None
    code = 0
    if topic is None:
        code = 0 if isinstance(place.name, str) else UNKNOWN_TOPIC_ID
    elif stable and broker.log.pending_offsets(group_id, topic.topic_id, number):
        code = int(ErrorCode.UNSTABLE_OFFSET_COMMIT)
    else:
        found = broker.log.committed_offset(group_id, topic.topic_id, number)
    answered = None if found is None else answered_offset(found)
    return {
        "partition_index": number,
        "committed_offset": -1 if answered is None else answered.offset,
        "committed_leader_epoch": -1 if answered is None else answered.leader_epoch,
        "metadata": "" if found is None else found.metadata or "",
        "error_code": code,
    }
