"""Administrators' requests for topics, their settings and records, in Kafka's codes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparktxn import Producer
from sparktxn.admin import AdminClient
from tests.gateway.processes import Gateway
from tests.gateway.wire import Wire

TOPIC, BROKER, GROUP = 2, 4, 32


@pytest.fixture
def admin(served: Gateway) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": served.store}) as found:
        yield found


@pytest.fixture
def name() -> str:
    return f"t{uuid.uuid4().hex}"


def creatable(name: str, count: int = 3, factor: int = -1, **configs: str) -> dict[str, Any]:
    given = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {
        "name": name,
        "num_partitions": count,
        "replication_factor": factor,
        "assignments": [],
        "configs": given,
    }


def create(wire: Wire, *topics: dict[str, Any], version: int = 7, validate_only: bool = False) -> list[Any]:
    found = wire.ask("create_topics", version, topics=list(topics), validate_only=validate_only)
    return list(found.topics)


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_in_each_version(wire: Wire, admin: AdminClient, name: str, version: int) -> None:
    (answer,) = create(wire, creatable(name, cleanup_policy="compact"), version=version)
    assert answer.error_code is ErrorCode.none
    if version >= 5:
        assert (answer.num_partitions, answer.replication_factor) == (3, 1)
        assert {config.name: config.value for config in answer.configs}["cleanup.policy"] == "compact"
    if version >= 7:
        assert answer.topic_id is not None
    assert len(admin.list_topics(name).topics[name].partitions) == 3


@pytest.mark.parametrize("factor", [-1, 1, 3])
def test_any_replication_factor_is_taken(wire: Wire, name: str, factor: int) -> None:
    (answer,) = create(wire, creatable(name, -1, factor))
    assert (answer.error_code, answer.num_partitions) == (ErrorCode.none, 1)


def test_what_cannot_be_created_is_refused_by_itself(wire: Wire, admin: AdminClient, name: str) -> None:
    asked = {
        "bad/name": creatable("bad/name"),
        f"{name}-count": creatable(f"{name}-count", 0),
        f"{name}-factor": creatable(f"{name}-factor", 1, 0),
        f"{name}-config": creatable(f"{name}-config", 1, no_such_setting="1"),
        f"{name}-value": creatable(f"{name}-value", 1, retention_ms="soon"),
        f"{name}-kept": creatable(f"{name}-kept", 1, min_insync_replicas="2", flush_ms="9"),
        "orders": creatable("orders"),
    }
    codes = {answer.name: answer.error_code for answer in create(wire, *asked.values())}
    assert codes == {
        "bad/name": ErrorCode.invalid_topic_exception,
        f"{name}-count": ErrorCode.invalid_partitions,
        f"{name}-factor": ErrorCode.invalid_replication_factor,
        f"{name}-config": ErrorCode.invalid_config,
        f"{name}-value": ErrorCode.invalid_config,
        f"{name}-kept": ErrorCode.none,
        "orders": ErrorCode.topic_already_exists,
    }
    assert {topic for topic in admin.list_topics().topics if topic.startswith(name)} == {f"{name}-kept"}


def test_a_topic_that_is_given_twice_is_refused_once(wire: Wire, admin: AdminClient, name: str) -> None:
    (answer,) = create(wire, creatable(name), creatable(name, 5))
    assert answer.error_code is ErrorCode.invalid_request
    assert name not in admin.list_topics().topics
    create(wire, creatable(name, 1))
    more = {"name": name, "count": 2, "assignments": None}
    (answer,) = wire.ask("create_partitions", 3, topics=[more, more], timeout=1000, validate_only=False).results
    assert answer.error_code is ErrorCode.invalid_request
    given = {"name": name, "topic_id": None}
    (answer,) = wire.ask("delete_topics", 6, topics=[given, given], timeout=1000).responses
    assert answer.error_code is ErrorCode.invalid_request
    assert len(admin.list_topics().topics[name].partitions) == 1


def test_validation_creates_nothing(wire: Wire, admin: AdminClient, name: str) -> None:
    (answer,) = create(wire, creatable(name), validate_only=True)
    assert answer.error_code is ErrorCode.none
    assert name not in admin.list_topics().topics
    (answer,) = create(wire, creatable("orders"), validate_only=True)
    assert answer.error_code is ErrorCode.topic_already_exists


def test_assigned_replicas_give_the_number_of_partitions(wire: Wire, name: str) -> None:
    def assigned(*brokers: int, count: int = -1) -> dict[str, Any]:
        rows = [{"partition_index": number, "broker_ids": [broker]} for number, broker in enumerate(brokers)]
        return {**creatable(name, count), "assignments": rows}

    assert [answer.error_code for answer in create(wire, assigned(0, 7))] == [ErrorCode.invalid_replica_assignment]
    assert [answer.error_code for answer in create(wire, assigned(0, 0, count=2))] == [ErrorCode.invalid_request]
    (answer,) = create(wire, assigned(0, 0))
    assert (answer.error_code, answer.num_partitions) == (ErrorCode.none, 2)


@pytest.mark.parametrize("version", range(1, 7))
def test_a_topic_is_deleted_in_each_version(wire: Wire, admin: AdminClient, name: str, version: int) -> None:
    create(wire, creatable(name))
    if version < 6:
        answer = wire.ask("delete_topics", version, topic_names=[name, "missing"], timeout=1000)
    else:
        asked = [{"name": name, "topic_id": None}, {"name": "missing", "topic_id": None}]
        answer = wire.ask("delete_topics", version, topics=asked, timeout=1000)
    assert [(one.name, one.error_code) for one in answer.responses] == [
        (name, ErrorCode.none),
        ("missing", ErrorCode.unknown_topic_or_partition),
    ]
    assert name not in admin.list_topics().topics


def test_a_topic_is_deleted_by_its_id(wire: Wire, admin: AdminClient, name: str) -> None:
    (created,) = create(wire, creatable(name))
    asked = [{"name": None, "topic_id": created.topic_id}, {"name": None, "topic_id": uuid.uuid4()}]
    answer = wire.ask("delete_topics", 6, topics=asked, timeout=1000)
    assert [one.error_code for one in answer.responses] == [ErrorCode.none, ErrorCode.unknown_topic_id]
    assert name not in admin.list_topics().topics


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added(wire: Wire, admin: AdminClient, name: str, version: int) -> None:
    create(wire, creatable(name, 2))

    def grow(topic: str, count: int, validate_only: bool = False, **more: Any) -> ErrorCode:
        asked = [{"name": topic, "count": count, "assignments": None, **more}]
        answer = wire.ask("create_partitions", version, topics=asked, timeout=1000, validate_only=validate_only)
        (result,) = answer.results
        assert result.name == topic
        return ErrorCode(result.error_code)

    assert grow(name, 2) is ErrorCode.invalid_partitions
    assert grow("missing", 2) is ErrorCode.unknown_topic_or_partition
    assert grow(name, 3, assignments=[{"broker_ids": [9]}]) is ErrorCode.invalid_replica_assignment
    assert grow(name, 4, assignments=[{"broker_ids": [0]}]) is ErrorCode.invalid_replica_assignment
    assert grow(name, 5, validate_only=True) is ErrorCode.none
    assert len(admin.list_topics(name).topics[name].partitions) == 2
    assert grow(name, 5, assignments=[{"broker_ids": [0]}] * 3) is ErrorCode.none
    assert len(admin.list_topics(name).topics[name].partitions) == 5


def configs_of(wire: Wire, kind: int, name: str, version: int = 4, **more: Any) -> Any:
    asked = [{"resource_type": kind, "resource_name": name, "configuration_keys": None, **more}]
    (result,) = wire.ask("describe_configs", version, resources=asked, include_synonyms=True).results
    return result


@pytest.mark.parametrize("version", range(1, 5))
def test_settings_of_a_topic_have_sources_types_and_defaults(wire: Wire, name: str, version: int) -> None:
    create(wire, creatable(name, retention_ms="60000"))
    result = configs_of(wire, TOPIC, name, version)
    assert result.error_code is ErrorCode.none
    found = {config.name: config for config in result.configs}
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("60000", 1)
    assert (found["cleanup.policy"].value, found["cleanup.policy"].config_source) == ("delete", 5)
    assert not found["cleanup.policy"].read_only
    assert [one.value for one in found["retention.ms"].synonyms] == ["60000"]
    if version >= 3:
        assert (found["retention.ms"].config_type, found["cleanup.policy"].config_type) == (5, 7)


def test_some_settings_are_described_with_their_meaning(wire: Wire) -> None:
    asked = [{"resource_type": TOPIC, "resource_name": "orders", "configuration_keys": ["retention.ms", "missing"]}]
    (result,) = wire.ask("describe_configs", 4, resources=asked, include_documentation=True).results
    (config,) = result.configs
    assert config.name == "retention.ms"
    assert "oldest segments" in config.documentation


def test_a_node_shows_what_the_gateway_was_started_with(wire: Wire) -> None:
    found = {config.name: config for config in configs_of(wire, BROKER, "0").configs}
    assert (found["auto.create.topics.enable"].value, found["auto.create.topics.enable"].read_only) == ("true", True)
    assert found["transaction.max.timeout.ms"].value == "900000"
    assert not found["offsets.retention.minutes"].read_only
    assert {config.name for config in configs_of(wire, BROKER, "").configs} < set(found)


def test_what_has_no_settings_is_refused(wire: Wire) -> None:
    assert configs_of(wire, TOPIC, "missing").error_code is ErrorCode.unknown_topic_or_partition
    assert configs_of(wire, BROKER, "7").error_code is ErrorCode.invalid_request
    assert configs_of(wire, GROUP, "g").error_code is ErrorCode.invalid_request
    assert configs_of(wire, TOPIC, "").error_code is not ErrorCode.none


SET, DELETE, APPEND, SUBTRACT = range(4)


def alter(wire: Wire, kind: int, name: str, *changes: tuple[str, int, str | None], dry: bool = False) -> Any:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    asked = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    (answer,) = wire.ask("incremental_alter_configs", 1, resources=asked, validate_only=dry).responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return answer


def values_of(wire: Wire, kind: int, name: str) -> dict[str, str]:
    return {config.name: config.value for config in configs_of(wire, kind, name).configs}


def test_settings_are_set_and_removed(wire: Wire, name: str) -> None:
    create(wire, creatable(name, retention_ms="60000"))
    assert alter(wire, TOPIC, name, ("retention.ms", SET, "5"), dry=True).error_code is ErrorCode.none
    assert values_of(wire, TOPIC, name)["retention.ms"] == "60000"
    changes = (("retention.ms", DELETE, None), ("cleanup.policy", SET, "compact"))
    assert alter(wire, TOPIC, name, *changes).error_code is ErrorCode.none
    found = values_of(wire, TOPIC, name)
    assert (found["retention.ms"], found["cleanup.policy"]) == ("-1", "compact")


def replace_all(wire: Wire, name: str, **settings: str) -> Any:
    configs = [{"name": key.replace("_", "."), "value": value} for key, value in settings.items()]
    asked = [{"resource_type": TOPIC, "resource_name": name, "configs": configs}]
    (answer,) = wire.ask("alter_configs", 2, resources=asked, validate_only=False).responses
    return answer


def test_whose_times_records_have_is_fixed_once_there_are_some(wire: Wire, served: Gateway, name: str) -> None:
    create(wire, creatable(name, message_timestamp_type="LogAppendTime"))
    times = "message.timestamp.type"
    assert alter(wire, TOPIC, name, (times, SET, "CreateTime")).error_code is ErrorCode.none
    assert alter(wire, TOPIC, name, (times, SET, "LogAppendTime")).error_code is ErrorCode.none
    with Producer({"bootstrap.servers": served.store}) as producer:
        producer.produce(name, b"v")
    shown = values_of(wire, TOPIC, name)
    for answer in (
        alter(wire, TOPIC, name, (times, SET, "CreateTime"), ("retention.ms", SET, "5")),
        alter(wire, TOPIC, name, (times, DELETE, None)),
        alter(wire, TOPIC, name, (times, DELETE, None), dry=True),
        replace_all(wire, name, retention_ms="5"),
    ):
        assert answer.error_code is ErrorCode.invalid_config
        assert (
            f"setting {times!r} of topic {name!r} cannot become CreateTime: it has had records" in answer.error_message
        )
    assert values_of(wire, TOPIC, name) == shown
    assert (
        alter(wire, TOPIC, name, (times, SET, "LogAppendTime"), ("retention.ms", SET, "5")).error_code is ErrorCode.none
    )
    assert values_of(wire, TOPIC, name)["retention.ms"] == "5"


def test_words_of_lists_are_appended_and_subtracted(wire: Wire, name: str) -> None:
    create(wire, creatable(name))
    for operation, words, left in (
        (APPEND, "compact", "compact,delete"),
        (SUBTRACT, "delete,burn", "compact"),
        (APPEND, "compact", "compact"),
    ):
        changes = (("cleanup.policy", operation, words), ("table.formats", APPEND, "delta"))
        assert alter(wire, TOPIC, name, *changes).error_code is ErrorCode.none
        found = values_of(wire, TOPIC, name)
        assert (found["cleanup.policy"], found["table.formats"]) == (left, "delta")


def test_a_wrong_change_of_settings_changes_nothing(wire: Wire, name: str) -> None:
    create(wire, creatable(name))
    good = ("retention.ms", SET, "5")
    refused: dict[ErrorCode, list[tuple[str, int, str | None]]] = {
        ErrorCode.invalid_config: [
            ("no.such.setting", SET, "1"),
            ("cleanup.policy", SET, "burn"),
            ("cleanup.policy", APPEND, "burn"),
            ("segment.bytes", APPEND, "5000"),
        ],
        ErrorCode.invalid_request: [("cleanup.policy", APPEND, None), ("cleanup.policy", 9, "x"), good],
    }
    for code, changes in refused.items():
        for change in changes:
            answer = alter(wire, TOPIC, name, good, change)
            assert answer.error_code is code
            assert answer.error_message
    assert alter(wire, TOPIC, "missing", good).error_code is ErrorCode.unknown_topic_or_partition
    assert values_of(wire, TOPIC, name)["retention.ms"] == "-1"


def test_settings_of_the_store_are_those_of_its_nodes(wire: Wire) -> None:
    assert alter(wire, BROKER, "", ("offsets.retention.minutes", SET, "77")).error_code is ErrorCode.none
    assert values_of(wire, BROKER, "0")["offsets.retention.minutes"] == "77"
    assert alter(wire, BROKER, "0", ("num.partitions", SET, "3")).error_code is ErrorCode.invalid_config


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_all_settings(wire: Wire, name: str, version: int) -> None:
    create(wire, creatable(name, retention_ms="60000"))
    configs = [{"name": "cleanup.policy", "value": "compact"}]
    asked = [{"resource_type": TOPIC, "resource_name": name, "configs": configs}]
    (answer,) = wire.ask("alter_configs", version, resources=asked, validate_only=False).responses
    assert answer.error_code is ErrorCode.none
    found = values_of(wire, TOPIC, name)
    assert (found["retention.ms"], found["cleanup.policy"]) == ("-1", "compact")


def test_what_has_settings_is_listed(wire: Wire) -> None:
    found = wire.ask("list_config_resources", 1, resource_types=[]).config_resources
    assert {(TOPIC, "orders"), (BROKER, "0")} <= {(one.resource_type, one.resource_name) for one in found}
    assert wire.ask("list_config_resources", 0).config_resources == ()


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted(wire: Wire, served: Gateway, name: str, version: int) -> None:
    create(wire, creatable(name, 2))
    producer = Producer({"bootstrap.servers": served.store})
    for number in range(5):
        producer.produce(name, str(number), partition=0)
    producer.flush()

    def cut(partition: int, offset: int, topic: str = name) -> tuple[ErrorCode, int]:
        asked = [{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}]
        (answer,) = wire.ask("delete_records", version, topics=asked, timeout=1000).topics
        (found,) = answer.partitions
        return found.error_code, found.low_watermark

    assert cut(0, 2) == (ErrorCode.none, 2)
    assert cut(0, 9) == (ErrorCode.offset_out_of_range, -1)
    assert cut(0, -1) == (ErrorCode.none, 5)
    assert cut(1, -1) == (ErrorCode.none, 0)
    assert cut(7, 0) == (ErrorCode.unknown_topic_or_partition, -1)
    assert cut(0, 0, "missing") == (ErrorCode.unknown_topic_or_partition, -1)


@pytest.mark.parametrize("creates", [True, False])
def test_metadata_of_a_name_that_no_topic_can_have(wire: Wire, name: str, creates: bool) -> None:
    """A client ends such a record at once; an unknown topic it would wait for."""
    asked = [{"name": other} for other in ("a b", "..", "x" * 250, f"{name}-missing")]
    answer = wire.ask("metadata", 7, topics=asked, allow_auto_topic_creation=creates)
    codes = [topic.error_code for topic in answer.topics]
    last = ErrorCode.none if creates else ErrorCode.unknown_topic_or_partition
    assert codes == [*3 * [ErrorCode.invalid_topic_exception], last]


@pytest.mark.parametrize("internal", ["__consumer_offsets", "TRANS_CHECK_MAX_TIME_TOPIC"])
def test_topics_that_are_computed_are_internal_and_no_others(wire: Wire, name: str, internal: str) -> None:
    own = f"__{name}"
    create(wire, creatable(own))
    topics = [{"name": internal}, {"name": own}]
    described = wire.ask("metadata", 7, topics=topics, allow_auto_topic_creation=False)
    assert {topic.name: topic.is_internal for topic in described.topics} == {internal: True, own: False}
    paged = wire.ask("describe_topic_partitions", 0, topics=topics, response_partition_limit=9, cursor=None)
    assert {topic.name: topic.is_internal for topic in paged.topics} == {internal: True, own: False}


def test_partitions_are_described_by_pages(wire: Wire, name: str) -> None:
    create(wire, creatable(f"{name}-a", 3), creatable(f"{name}-b", 2))
    seen, cursor = [], None
    for _ in range(10):
        topics = [{"name": f"{name}-b"}, {"name": f"{name}-a"}, {"name": f"{name}-c"}]
        answer = wire.ask("describe_topic_partitions", 0, topics=topics, response_partition_limit=2, cursor=cursor)
        seen += [(topic.name, part.partition_index) for topic in answer.topics for part in topic.partitions]
        empty = {part.eligible_leader_replicas for topic in answer.topics for part in topic.partitions}
        assert empty <= {()}, "Java's client takes no null for it"
        missing = [topic.name for topic in answer.topics if topic.error_code is ErrorCode.unknown_topic_or_partition]
        if answer.next_cursor is None:
            break
        at = answer.next_cursor
        cursor = {"topic_name": at.topic_name, "partition_index": at.partition_index}
    assert missing == [f"{name}-c"]
    assert seen == [(f"{name}-a", 0), (f"{name}-a", 1), (f"{name}-a", 2), (f"{name}-b", 0), (f"{name}-b", 1)]


@pytest.mark.parametrize("version", range(1, 5))
def test_sizes_of_partitions_are_described(wire: Wire, served: Gateway, name: str, version: int) -> None:
    create(wire, creatable(name, 2))
    with Producer({"bootstrap.servers": served.store}) as producer:
        producer.produce(name, Random(1).randbytes(50_000), partition=0)
        producer.flush()

    def sizes(topics: list[dict[str, Any]] | None) -> dict[tuple[str, int], int]:
        (result,) = wire.ask("describe_log_dirs", version, topics=topics).results
        assert result.error_code is ErrorCode.none
        return {
            (one.name, part.partition_index): part.partition_size for one in result.topics for part in one.partitions
        }

    found = sizes(None)
    assert 50_000 < found[name, 0] < 60_000
    assert found[name, 1] == 0
    assert ("orders", 1) in found
    assert sizes([{"topic": name, "partitions": [0, 9]}]) == {(name, 0): found[name, 0]}


def test_there_are_no_access_control_lists(wire: Wire) -> None:
    anything = {"operation": 1, "permission_type": 1, "principal_filter": None, "host_filter": None}
    wanted = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, **anything}
    assert wire.ask("describe_acls", 3, **wanted).error_code is ErrorCode.security_disabled
    acl = {"resource_type": 2, "resource_name": "orders", "resource_pattern_type": 3, "principal": "User:a"}
    creation = {**acl, "host": "*", "operation": 3, "permission_type": 3}
    (result,) = wire.ask("create_acls", 3, creations=[creation]).results
    assert result.error_code is ErrorCode.security_disabled
    (result,) = wire.ask("delete_acls", 3, filters=[wanted]).filter_results
    assert result.error_code is ErrorCode.security_disabled
