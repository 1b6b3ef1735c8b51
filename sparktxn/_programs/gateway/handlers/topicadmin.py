"""Administrators' requests for topics and settings: creating, deleting, growing, describing, and deleting records."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from sparktxn import TopicState
from sparktxn._engine.state.limits import TRANSACTION_TIMEOUT_MS_MAX
from sparktxn._foundation.config.settings import Setting
from sparktxn._foundation.config.topic import LIST_SETTINGS, STORE_WIDE_SETTINGS, TOPIC_SETTINGS
from sparktxn._programs.gateway.broker import Broker
from sparktxn._programs.gateway.gatewaysettings import REQUEST_BYTES_MAX
from sparktxn._programs.gateway.handlers.adminanswers import DONE, Outcome, given_twice, of_error, outcome_of, refused
from sparktxn._programs.gateway.topiclookup import UNKNOWN_TOPIC_ID
from sparktxn._programs.gateway.wire.wiremessages import Answer, Request
from sparktxn.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicPartition,
)
from sparktxn.errors import ErrorCode

# Settings of topics and of the store, under Kafka's names, and of the gateway itself, which a start sets.

_TOPIC, _BROKER = 2, 4
_STORE: Final = ConfigResource(ResourceType.BROKER, "0")
_SETTINGS: Final[dict[str, Setting]] = {each.name: each for each in (*TOPIC_SETTINGS, *STORE_WIDE_SETTINGS)}
_BOOLEAN, _STRING, _LONG, _DOUBLE, _LIST = 1, 2, 5, 6, 7
_DEFAULTS: Final[Mapping[str, str]] = {"compression.type": "producer"}
"""Defaults of topics as a client sees them. The store compresses its files, and what a client fetches it does not.

A tool that sets again all that was described, as users of `AlterConfigs` have to, must change nothing.
"""


def topic_configs(broker: Broker, name: str) -> list[dict[str, Any]]:
    """Return all settings of a topic as an answer has them; empty if they cannot be read."""
    outcome = _read(broker, ConfigResource(ResourceType.TOPIC, name))
    return [] if outcome.code else [_shown(entry, is_read_only=False) for entry in outcome.result.values()]


async def describe_configs(broker: Broker, request: Request) -> Answer:
    """Return settings with where they come from: of topics, of the store as nodes, and of this gateway."""
    body = request.body
    return {"results": [await broker.calls.run(_described_configs, broker, each, body) for each in body.resources]}


def _described_configs(broker: Broker, asked: Any, body: Any) -> dict[str, Any]:
    outcome = _resource(broker, asked)
    configs: list[dict[str, Any]] = []
    if not outcome.code:
        resource = outcome.result
        outcome = _read(broker, resource)
        if not outcome.code:
            configs = [_shown(entry, is_read_only=False) for entry in outcome.result.values()]
            if resource == _STORE and asked.resource_name:
                configs += _own(broker)
    keys = asked.configuration_keys
    documented = getattr(body, "include_documentation", False)
    return {
        **outcome.said,
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
        "configs": [
            _in_words(each, synonyms=body.include_synonyms, documented=documented)
            for each in configs
            if keys is None or each["name"] in keys
        ],
    }


def _resource(broker: Broker, asked: Any) -> Outcome:
    """Return what has the settings that a request names: a topic, or the store, which all nodes serve."""
    if asked.resource_type == _TOPIC:
        try:
            return Outcome(0, None, ConfigResource(ResourceType.TOPIC, asked.resource_name))
        except (TypeError, ValueError) as error:
            return of_error(error)
    if asked.resource_type != _BROKER:
        reason = f"resources of type {asked.resource_type} have no settings here: expected topics (2) or brokers (4)"
        return refused(ErrorCode.INVALID_REQUEST, reason)
    if asked.resource_name not in ("", *map(str, range(len(broker.placement.nodes)))):
        reason = (
            f"there is no node {asked.resource_name!r}: expected 0 to {len(broker.placement.nodes) - 1}, or nothing"
        )
        return refused(ErrorCode.INVALID_REQUEST, reason)
    return Outcome(0, None, _STORE)


def _read(broker: Broker, resource: ConfigResource) -> Outcome:
    return outcome_of(lambda: broker.admin.describe_configs([resource]))


def _own(broker: Broker) -> list[dict[str, Any]]:
    """Return what a start of this gateway has set, under the names of a broker's settings."""
    settings = broker.settings
    values: dict[str, bool | int] = {
        "auto.create.topics.enable": settings.creates_topics,
        "num.partitions": settings.partition_count,
        "default.replication.factor": 1,
        "min.insync.replicas": 1,
        "delete.topic.enable": True,
        "socket.request.max.bytes": REQUEST_BYTES_MAX,
        "queued.max.request.bytes": settings.requests_bytes_max,
        "max.connections": settings.connections_max,
        "transaction.max.timeout.ms": TRANSACTION_TIMEOUT_MS_MAX,
    }
    return [
        _shown(
            ConfigEntry(name, str(value).lower(), ConfigSource.STATIC_BROKER_CONFIG),
            is_read_only=True,
            kind=_BOOLEAN if isinstance(value, bool) else _LONG,
        )
        for name, value in values.items()
    ]


def _shown(entry: ConfigEntry, *, is_read_only: bool, kind: int | None = None) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": _DEFAULTS.get(entry.name, entry.value) if entry.is_default else entry.value,
        "read_only": is_read_only,
        "config_source": int(entry.source),
        "is_sensitive": False,
        "config_type": _kind_of(entry.name) if kind is None else kind,
    }


def _kind_of(name: str) -> int:
    if name in LIST_SETTINGS:
        return _LIST
    setting = _SETTINGS.get(name)
    for type_, kind in ((bool, _BOOLEAN), (int, _LONG), (float, _DOUBLE)):
        if setting is not None and isinstance(setting.default, type_):
            return kind
    return _STRING


def _in_words(shown: dict[str, Any], *, synonyms: bool, documented: bool) -> dict[str, Any]:
    setting = _SETTINGS.get(shown["name"])
    source = {"name": shown["name"], "value": shown["value"], "source": shown["config_source"]}
    meaning = setting.meaning if setting is not None and documented else None
    return {**shown, "synonyms": [source] if synonyms else [], "documentation": meaning}


async def incremental_alter_configs(broker: Broker, request: Request) -> Answer:
    """Set, remove, append to and subtract from settings, of each resource all or none; others stay as they are."""
    return await broker.calls.run(_altered, broker, request.body, _incremental)


async def alter_configs(broker: Broker, request: Request) -> Answer:
    """Give resources the settings of a request, and all others their defaults."""
    return await broker.calls.run(_altered, broker, request.body, _replacing)


def _altered(broker: Broker, body: Any, change: Callable[[Broker, ConfigResource, Any, bool], Outcome]) -> Answer:
    keys = [(each.resource_type, each.resource_name) for each in body.resources]
    twice = given_twice("resource", keys, lambda key: key[1])
    responses = []
    for key, each in zip(keys, body.resources, strict=True):
        outcome = twice.get(key) or _resource(broker, each)
        if not outcome.code:
            outcome = change(broker, outcome.result, each.configs, body.validate_only)
        answer = {"resource_type": each.resource_type, "resource_name": each.resource_name}
        responses.append({**outcome.said, **answer})
    return {"responses": responses}


def _incremental(broker: Broker, resource: ConfigResource, configs: Sequence[Any], validate_only: bool) -> Outcome:
    def alter() -> Mapping[Any, Future[Any]]:
        changes = [
            ConfigEntry(each.name, each.value, incremental_operation=AlterConfigOpType(each.config_operation))
            for each in configs
        ]
        wanted = ConfigResource(resource.restype, resource.name, incremental_configs=changes)
        return broker.admin.incremental_alter_configs([wanted], validate_only=validate_only)

    return outcome_of(alter)


def _replacing(broker: Broker, resource: ConfigResource, configs: Sequence[Any], validate_only: bool) -> Outcome:
    given = {each.name: each.value for each in configs}
    if len(given) < len(configs):
        return refused(ErrorCode.INVALID_REQUEST, "a setting is given twice")
    return outcome_of(
        lambda: broker.admin.alter_configs(
            [ConfigResource(resource.restype, resource.name, set_config=given)], validate_only=validate_only
        )
    )


async def list_config_resources(broker: Broker, request: Request) -> Answer:
    """Return what has settings: topics, and the nodes. Version 0 asks for clients' metrics alone: there are none."""
    if request.version == 0:
        return {"error_code": 0, "config_resources": []}
    wanted = set(request.body.resource_types) or {_TOPIC, _BROKER}
    found: list[dict[str, Any]] = []
    if _TOPIC in wanted:
        topics = await broker.calls.run(broker.store.topics)
        found += [{"resource_name": topic.name, "resource_type": _TOPIC} for topic in topics]
    if _BROKER in wanted:
        found += [{"resource_name": str(node), "resource_type": _BROKER} for node in range(len(broker.placement.nodes))]
    return {"error_code": 0, "config_resources": found}


_INVALID_REPLICA_ASSIGNMENT: Final = 39
_NO_ID: Final = uuid.UUID(int=0)
_NO_OPERATIONS: Final = -(2**31)
_PARTITIONS_SHOWN_MAX: Final = 2_000


async def create_topics(broker: Broker, request: Request) -> Answer:
    """Create topics. A replica is not kept: factors are accepted, and answered as 1."""
    body = request.body
    twice = given_twice("topic", (topic.name for topic in body.topics))
    topics = []
    for name, topic in {topic.name: topic for topic in body.topics}.items():
        outcome = twice.get(name)
        if outcome is None:
            outcome = await broker.calls.run(_create, broker, topic, body.validate_only)
        topics.append({"name": name, "topic_id": _NO_ID, "configs": None, **outcome.said, **(outcome.result or {})})
    return {"topics": topics}


def _create(broker: Broker, asked: Any, validate_only: bool) -> Outcome:
    count = broker.settings.partition_count if asked.num_partitions == -1 else asked.num_partitions
    if asked.replication_factor != -1 and asked.replication_factor < 1:
        return refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor is {asked.replication_factor}: expected -1, or 1 or more",
        )
    if asked.assignments:
        if asked.num_partitions != -1 or asked.replication_factor != -1:
            return refused(ErrorCode.INVALID_REQUEST, "replicas are assigned: expected -1 as both counts")
        count = len(asked.assignments)
        if {each.partition_index for each in asked.assignments} != set(range(count)):
            return refused(_INVALID_REPLICA_ASSIGNMENT, "replicas are assigned to other partitions than 0, 1, …")
        if wrong := _unknown_node(broker, asked.assignments, [each.partition_index for each in asked.assignments]):
            return wrong
    new = NewTopic(asked.name, count, config={each.name: each.value for each in asked.configs})
    outcome = outcome_of(lambda: broker.admin.create_topics([new], validate_only=validate_only))
    if outcome.code:
        return outcome
    described: dict[str, Any] = {"num_partitions": count, "replication_factor": 1}
    if not validate_only and (topic := broker.log.topic(asked.name)) is not None:
        described |= {"topic_id": broker.topics.uuid_of(topic.topic_id), "configs": topic_configs(broker, asked.name)}
    return Outcome(0, None, described)


def _unknown_node(broker: Broker, assignments: Sequence[Any], partitions: Iterable[int]) -> Outcome | None:
    """Return the refusal of an assignment that names a broker that is not a gateway of the store, or none at all."""
    count = len(broker.placement.nodes)
    has = "broker 0" if count == 1 else f"brokers 0 to {count - 1}"
    for each, partition in zip(assignments, partitions, strict=False):
        about = f"the replica assignment of partition {partition} names"
        if not each.broker_ids:
            return refused(_INVALID_REPLICA_ASSIGNMENT, f"{about} no broker: expected {has}")
        for node in each.broker_ids:
            if not 0 <= node < count:
                reason = f"{about} broker {node}, which does not exist: expected {has}"
                return refused(_INVALID_REPLICA_ASSIGNMENT, reason)
    return None


async def delete_topics(broker: Broker, request: Request) -> Answer:
    """Delete topics with all their records, by name or by id."""
    if request.version >= 6:
        asked = [(each.name, each.topic_id or _NO_ID) for each in request.body.topics]
    else:
        asked = [(name, _NO_ID) for name in request.body.topic_names]
    return {"responses": await broker.calls.run(_deleted, broker, asked)}


def _deleted(broker: Broker, asked: Sequence[tuple[str | None, uuid.UUID]]) -> list[dict[str, Any]]:
    broker.log.refresh(max_age_s=0.01)
    by_uuid = broker.topics.by_uuid(topic_id for given, topic_id in asked if given is None)
    names = {
        (given, topic_id): by_uuid[topic_id].name if given is None and topic_id in by_uuid else given
        for given, topic_id in asked
    }
    twice = given_twice("topic", (names[each] for each in asked))
    answers = []
    for (given, topic_id), name in names.items():
        if given is not None and topic_id != _NO_ID:
            outcome = refused(ErrorCode.INVALID_REQUEST, f"topic {given!r} has an id, too: expected one of them")
        elif name is None:
            outcome = refused(UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
        else:
            outcome = twice.get(name) or _delete(broker, name)
        answers.append({"name": name if topic_id == _NO_ID else None, "topic_id": topic_id, **outcome.said})
    return answers


def _delete(broker: Broker, name: str) -> Outcome:
    return outcome_of(lambda: broker.admin.delete_topics([name]))


async def create_partitions(broker: Broker, request: Request) -> Answer:
    """Add empty partitions to topics."""
    body = request.body
    twice = given_twice("topic", (topic.name for topic in body.topics))
    results = []
    for name, topic in {topic.name: topic for topic in body.topics}.items():
        outcome = twice.get(name)
        if outcome is None:
            outcome = await broker.calls.run(_grow, broker, topic, body.validate_only)
        results.append({"name": name, **outcome.said})
    return {"results": results}


def _grow(broker: Broker, asked: Any, validate_only: bool) -> Outcome:
    if asked.assignments:
        broker.log.refresh()
        known = broker.log.topic(asked.name)
        if known is not None and asked.count - known.partition_count != len(asked.assignments):
            return refused(
                _INVALID_REPLICA_ASSIGNMENT,
                f"replicas are assigned to {len(asked.assignments)} partitions: {asked.name!r} has "
                f"{known.partition_count}, and is to have {asked.count}",
            )
        first = 0 if known is None else known.partition_count
        if wrong := _unknown_node(broker, asked.assignments, itertools.count(first)):
            return wrong
    return outcome_of(
        lambda: broker.admin.create_partitions([NewPartitions(asked.name, asked.count)], validate_only=validate_only)
    )


async def delete_records(broker: Broker, request: Request) -> Answer:
    """Delete records before offsets; -1 is each partition's end."""
    topics = []
    for topic in request.body.topics:
        partitions = []
        for each in topic.partitions:
            outcome = await broker.calls.run(_cut, broker, topic.name, each.partition_index, each.offset)
            low_watermark = -1 if outcome.code else outcome.result.low_watermark
            answer = {"partition_index": each.partition_index, "low_watermark": low_watermark}
            partitions.append({**answer, "error_code": outcome.code})
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


def _cut(broker: Broker, name: str, partition: int, offset: int) -> Outcome:
    return outcome_of(lambda: broker.admin.delete_records([TopicPartition(name, partition, offset)]))


async def describe_topic_partitions(broker: Broker, request: Request) -> Answer:
    """Return topics with their partitions, from a cursor on, up to as many partitions as are asked for."""
    node = broker.placement.node_of(request.client_host, request.client_id)
    return await broker.calls.run(_described, broker, request.body, node)


def _described(broker: Broker, body: Any, node: int) -> Answer:
    broker.log.refresh(max_age_s=0.01)
    broker.topics.read_on_for((topic.name, 0) for topic in body.topics)
    names = sorted({topic.name for topic in body.topics} or {topic.name for topic in broker.log.topics()})
    first = 0
    if body.cursor is not None:
        names = [name for name in names if name >= body.cursor.topic_name]
        if names[:1] == [body.cursor.topic_name]:
            first = max(0, body.cursor.partition_index)
    left = max(1, min(body.response_partition_limit, _PARTITIONS_SHOWN_MAX))
    topics: list[dict[str, Any]] = []
    for name in names:
        if left <= 0:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": first}}
        known = broker.log.topic(name)
        if known is None:
            topics.append(_unknown(name))
            continue
        shown = range(first, min(known.partition_count, first + left))
        topics.append(_with_partitions(broker, known, shown, node))
        left -= len(shown)
        if shown and shown[-1] + 1 < known.partition_count:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": shown[-1] + 1}}
        first = 0
    return {"topics": topics, "next_cursor": None}


def _unknown(name: str) -> dict[str, Any]:
    code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return {"error_code": code, "name": name, "topic_id": _NO_ID, "partitions": []}


def _with_partitions(broker: Broker, topic: TopicState, shown: range, node: int) -> dict[str, Any]:
    nodes = (node,)
    partition = {
        "error_code": DONE.code,
        "leader_id": node,
        "leader_epoch": 0,
        "replica_nodes": nodes,
        "isr_nodes": nodes,
        "eligible_leader_replicas": (),  # a null ends Java's client, though its schema allows it
        "last_known_elr": (),
        "offline_replicas": (),
    }
    return {
        "error_code": DONE.code,
        "name": topic.name,
        "topic_id": broker.topics.uuid_of(topic.topic_id),
        "is_internal": topic.is_internal,
        "partitions": [{**partition, "partition_index": number} for number in shown],
        "topic_authorized_operations": _NO_OPERATIONS,
    }
