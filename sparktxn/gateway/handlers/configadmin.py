"""Settings of topics and of the store, under Kafka's names, and of the gateway itself, which a start sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from sparktxn.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, ResourceType
from sparktxn.config.settings import Setting
from sparktxn.config.topic import LIST_SETTINGS, STORE_WIDE_SETTINGS, TOPIC_SETTINGS
from sparktxn.errors import ErrorCode
from sparktxn.gateway.broker import Broker
from sparktxn.gateway.gatewaysettings import REQUEST_BYTES_MAX, TRANSACTION_TIMEOUT_MS_MAX
from sparktxn.gateway.handlers.outcomes import Outcome, given_twice, of_error, of_future, refused
from sparktxn.gateway.wire.wiremessages import Answer, Request

__all__ = [
    "alter_configs",
    "describe_configs",
    "incremental_alter_configs",
    "list_config_resources",
    "topic_configs",
]

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
    return {"results": [await broker.calls.run(_described, broker, each, body) for each in body.resources]}


def _described(broker: Broker, asked: Any, body: Any) -> dict[str, Any]:
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
    return _of_call(broker.admin.describe_configs, [resource])


def _of_call(call: Callable[..., Mapping[Any, Future[Any]]], resources: list[ConfigResource], **more: Any) -> Outcome:
    try:
        (future,) = call(resources, **more).values()
    except (TypeError, ValueError) as error:
        return of_error(error)
    return of_future(future)


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
    try:
        changes = [
            ConfigEntry(each.name, each.value, incremental_operation=AlterConfigOpType(each.config_operation))
            for each in configs
        ]
        wanted = ConfigResource(resource.restype, resource.name, incremental_configs=changes)
    except (TypeError, ValueError) as error:
        return of_error(error)
    return _of_call(broker.admin.incremental_alter_configs, [wanted], validate_only=validate_only)


def _replacing(broker: Broker, resource: ConfigResource, configs: Sequence[Any], validate_only: bool) -> Outcome:
    given = {each.name: each.value for each in configs}
    if len(given) < len(configs):
        return refused(ErrorCode.INVALID_REQUEST, "a setting is given twice")
    try:
        wanted = ConfigResource(resource.restype, resource.name, set_config=given)
    except (TypeError, ValueError) as error:
        return of_error(error)
    return _of_call(broker.admin.alter_configs, [wanted], validate_only=validate_only)


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
