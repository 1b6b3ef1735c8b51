"""Cases of AdminClient."""

from __future__ import annotations

from typing import Any

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from tests.interop.differential.kit import WAIT_S, Kit, case, messages, outcome, plain, result, until, values

TOPIC = ConfigResource.Type.TOPIC
# The settings of topics that Kafka 4 has, but for those whose value would matter to the case.
SETTINGS = {
    "cleanup.policy": "delete",
    "compression.type": "zstd",
    "delete.retention.ms": "1000",
    "file.delete.delay.ms": "1000",
    "flush.messages": "1",
    "flush.ms": "1000",
    "index.interval.bytes": "4096",
    "max.compaction.lag.ms": "100000",
    "max.message.bytes": "100000",
    "message.timestamp.after.max.ms": "1000",
    "message.timestamp.before.max.ms": "1000",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.3",
    "min.compaction.lag.ms": "10",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "retention.bytes": "100000",
    "retention.ms": "100000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "1048576",
    "segment.jitter.ms": "0",
    "segment.ms": "100000",
    "unclean.leader.election.enable": "false",
    "leader.replication.throttled.replicas": "",
    "follower.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "remote.storage.enable": "false",
}


def created(kit: Kit, *topics: NewTopic, **options: Any) -> Any:
    return [
        outcome(lambda future=future: future.result(WAIT_S))
        for future in kit.admin.create_topics(list(topics), **options).values()
    ]


@case
def a_topic_is_created_once(kit: Kit) -> Any:
    topic = NewTopic(kit.name, 2, 1)
    return [created(kit, topic), created(kit, topic)]


@case
def one_topic_twice_in_a_call(kit: Kit) -> Any:
    return created(kit, NewTopic(kit.name, 1, 1), NewTopic(kit.name, 1, 1))


@case
def topics_that_cannot_be_created(kit: Kit) -> Any:
    wrong = [
        NewTopic("a b", 1, 1),
        NewTopic("..", 1, 1),
        NewTopic("x" * 250, 1, 1),
        NewTopic(f"{kit.name}-0", 0, 1),
        NewTopic(f"{kit.name}-c", 1, 1, config={"no.such": "1"}),
        NewTopic(f"{kit.name}-v", 1, 1, config={"retention.ms": "soon"}),
        NewTopic(f"{kit.name}-p", 1, 1, config={"cleanup.policy": "shred"}),
    ]
    return [created(kit, topic) for topic in wrong]


@case
def every_setting_of_topics_is_accepted(kit: Kit) -> Any:
    return [
        [name, created(kit, NewTopic(f"{kit.name}-{number}", 1, 1, config={name: value}))]
        for number, (name, value) in enumerate(SETTINGS.items())
    ]


@case
def a_topic_that_is_only_checked(kit: Kit) -> Any:
    found = created(kit, NewTopic(kit.name, 1, 1), validate_only=True)
    return [found, kit.name in kit.admin.list_topics(timeout=WAIT_S).topics]


@case
def topics_that_are_deleted(kit: Kit) -> Any:
    topic = kit.topic()
    deleted = outcome(lambda: result(kit.admin.delete_topics([topic])))
    return [deleted, outcome(lambda: result(kit.admin.delete_topics([topic])))]


@case
def partitions_are_added(kit: Kit) -> Any:
    topic = kit.topic(2)
    more = [
        outcome(lambda count=count: result(kit.admin.create_partitions([NewPartitions(topic, count)])))
        for count in (4, 4, 3)
    ]
    unknown = outcome(lambda: result(kit.admin.create_partitions([NewPartitions("no-such-topic", 3)])))
    return [more, unknown]


@case
def settings_of_a_topic_are_described(kit: Kit) -> Any:
    topic = kit.topic(retention_ms="1234")
    found = result(kit.admin.describe_configs([ConfigResource(TOPIC, topic)]))
    one, two = found["retention.ms"], found["cleanup.policy"]
    return [
        [one.name, one.value, one.is_default, one.is_read_only, one.is_sensitive],
        [two.name, two.value, two.is_default],
        one.source,
    ]


@case
def settings_of_an_unknown_topic_are_described(kit: Kit) -> Any:
    kit.topic()
    return outcome(lambda: result(kit.admin.describe_configs([ConfigResource(TOPIC, "no-such-topic")])))


def retention(kit: Kit, topic: str) -> Any:
    now = result(kit.admin.describe_configs([ConfigResource(TOPIC, topic)]))["retention.ms"]
    return now.is_default or now.value


@case
def settings_of_a_topic_are_altered(kit: Kit) -> Any:
    topic = kit.topic(retention_ms="1234")
    found = []
    for operation, name, value in (
        (AlterConfigOpType.SET, "retention.ms", "77"),
        (AlterConfigOpType.DELETE, "retention.ms", None),
        (AlterConfigOpType.SET, "retention.ms", "soon"),
        (AlterConfigOpType.SET, "no.such", "1"),
    ):
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(TOPIC, topic, incremental_configs=[entry])
        ended = outcome(lambda resource=resource: result(kit.admin.incremental_alter_configs([resource])))
        expected = value if operation is AlterConfigOpType.SET and ended is None else True
        until(lambda expected=expected: retention(kit, topic) == expected, 10)  # a broker's metadata follow
        found.append([ended, retention(kit, topic)])
    return found


def policy_of(kit: Kit, topic: str) -> set[str]:
    now = result(kit.admin.describe_configs([ConfigResource(TOPIC, topic)]))["cleanup.policy"]
    return set(now.value.split(","))


@case
def settings_that_are_lists_are_altered(kit: Kit) -> Any:
    topic = kit.topic()
    found = []
    for operation, name, words, policy in (
        (AlterConfigOpType.APPEND, "cleanup.policy", "compact", {"compact", "delete"}),
        (AlterConfigOpType.APPEND, "cleanup.policy", "compact", {"compact", "delete"}),
        (AlterConfigOpType.SUBTRACT, "cleanup.policy", "delete,burn", {"compact"}),
        (AlterConfigOpType.APPEND, "cleanup.policy", "burn", {"compact"}),
        (AlterConfigOpType.APPEND, "retention.ms", "5", {"compact"}),
    ):
        entry = ConfigEntry(name, words, incremental_operation=operation)
        resource = ConfigResource(TOPIC, topic, incremental_configs=[entry])
        ended = outcome(lambda resource=resource: result(kit.admin.incremental_alter_configs([resource])))
        found.append([ended, until(lambda policy=policy: policy_of(kit, topic) == policy, 10)])
    return found


@case
def settings_of_a_topic_are_replaced(kit: Kit) -> Any:
    topic = kit.topic(retention_ms="1234", max_message_bytes="5000")
    ended = outcome(lambda: result(kit.admin.alter_configs([ConfigResource(TOPIC, topic, {"retention.ms": "77"})])))
    until(lambda: retention(kit, topic) == "77", 10)
    now = result(kit.admin.describe_configs([ConfigResource(TOPIC, topic)]))
    return [ended, now["retention.ms"].value, now["max.message.bytes"].is_default]


@case
def settings_of_a_broker(kit: Kit) -> Any:
    node = next(iter(kit.admin.list_topics(timeout=WAIT_S).brokers))
    found = outcome(lambda: result(kit.admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node))])))
    return type(found).__name__


@case
def topics_are_described(kit: Kit) -> Any:
    topic = kit.topic(2)
    found = result(kit.admin.describe_topics(TopicCollection([topic])))
    return [
        found.name == topic,
        found.is_internal,
        [[one.id, len(one.replicas), len(one.isr), one.leader is not None] for one in found.partitions],
        found.authorized_operations,
    ]


@case
def topic_ids(kit: Kit) -> Any:
    found = result(kit.admin.describe_topics(TopicCollection([kit.topic()])))
    return type(found.topic_id).__name__


@case
def unknown_topics_are_described(kit: Kit) -> Any:
    kit.topic()
    return outcome(lambda: result(kit.admin.describe_topics(TopicCollection(["no-such-topic"]))))


@case
def operations_that_are_authorized(kit: Kit) -> Any:
    topic = kit.topic()
    found = [
        kit.admin.describe_cluster(include_authorized_operations=True).result(WAIT_S),
        result(kit.admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True)),
        result(kit.admin.describe_consumer_groups([kit.group], include_authorized_operations=True)),
    ]
    return [sorted(operation.name for operation in one.authorized_operations) for one in found]


@case
def the_cluster_is_described(kit: Kit) -> Any:
    found = kit.admin.describe_cluster().result(WAIT_S)
    return [
        type(found.cluster_id).__name__,
        len(found.nodes),
        found.controller.id in [node.id for node in found.nodes],
        found.authorized_operations,
    ]


def ends(kit: Kit, topic: str, spec: Any, partition: int = 0, **options: Any) -> Any:
    future = kit.admin.list_offsets({TopicPartition(topic, partition): spec}, **options)
    found = result(future)
    return [found.offset, type(found.leader_epoch).__name__ if found.leader_epoch is None else "int"]


@case
def offsets_are_listed(kit: Kit) -> Any:
    topic = kit.topic()
    producer = kit.producer()
    for timestamp in (1000, 3000, 2000):
        producer.produce(topic, "v", timestamp=timestamp)
    producer.flush(WAIT_S)
    specs = [OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp(), OffsetSpec.for_timestamp(2000)]
    return [outcome(lambda spec=spec: ends(kit, topic, spec)[0]) for spec in specs]


@case
def offsets_are_listed_for_a_time_after_all(kit: Kit) -> Any:
    topic = kit.topic()
    kit.fill(topic, 1, timestamp=1000)
    return outcome(lambda: ends(kit, topic, OffsetSpec.for_timestamp(5000))[0])


@case
def offsets_are_listed_under_an_open_transaction(kit: Kit) -> Any:
    topic = kit.topic()
    producer = kit.transactional()
    producer.begin_transaction()
    producer.produce(topic, "v", partition=0)
    producer.flush(WAIT_S)
    levels = [IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED]
    found = [ends(kit, topic, OffsetSpec.latest(), isolation_level=level)[0] for level in levels]
    producer.abort_transaction(WAIT_S)
    return found


@case
def offsets_of_unknown_partitions_are_listed(kit: Kit) -> Any:
    topic = kit.topic()
    return [
        outcome(lambda: ends(kit, topic, OffsetSpec.latest(), 9)),
        outcome(lambda: ends(kit, "no-such-topic", OffsetSpec.latest())),
    ]


@case
def records_are_deleted(kit: Kit) -> Any:
    topic = kit.topic()
    kit.fill(topic, 5)
    low = result(kit.admin.delete_records([TopicPartition(topic, 0, 3)])).low_watermark
    beyond = outcome(lambda: result(kit.admin.delete_records([TopicPartition(topic, 0, 9)])))
    rest = values(kit.assigned(topic), 2)
    everything = result(kit.admin.delete_records([TopicPartition(topic, 0, -1)])).low_watermark
    return [low, beyond, rest, everything]


@case
def records_of_an_unknown_partition_are_deleted(kit: Kit) -> Any:
    topic = kit.topic()
    return outcome(lambda: result(kit.admin.delete_records([TopicPartition(topic, 9, 1)])))


def committed(kit: Kit, topic: str, offset: int) -> None:
    kit.consumer().commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)


@case
def offsets_of_a_group_are_listed(kit: Kit) -> Any:
    topic = kit.topic(2)
    committed(kit, topic, 3)
    asked = [
        ConsumerGroupTopicPartitions(kit.group),
        ConsumerGroupTopicPartitions(kit.group, [TopicPartition(topic, 0), TopicPartition(topic, 1)]),
        ConsumerGroupTopicPartitions("no-such-group"),
    ]
    return [plain(result(kit.admin.list_consumer_group_offsets([one])).topic_partitions) for one in asked]


@case
def offsets_of_a_group_in_an_unknown_topic_are_listed(kit: Kit) -> Any:
    committed(kit, kit.topic(), 3)
    asked = ConsumerGroupTopicPartitions(kit.group, [TopicPartition("no-such-topic", 0)])
    return outcome(lambda: plain(result(kit.admin.list_consumer_group_offsets([asked])).topic_partitions))


@case
def offsets_of_a_group_are_altered(kit: Kit) -> Any:
    topic = kit.topic()
    committed(kit, topic, 3)
    new = ConsumerGroupTopicPartitions(kit.group, [TopicPartition(topic, 0, 1)])
    altered = plain(result(kit.admin.alter_consumer_group_offsets([new])).topic_partitions)
    return [altered, plain(kit.consumer().committed([TopicPartition(topic, 0)], timeout=WAIT_S))]


@case
def offsets_of_an_unknown_topic_are_altered(kit: Kit) -> Any:
    kit.topic()
    new = ConsumerGroupTopicPartitions(kit.group, [TopicPartition("no-such-topic", 0, 1)])
    return outcome(lambda: plain(result(kit.admin.alter_consumer_group_offsets([new])).topic_partitions))


def live(kit: Kit) -> Any:
    topic = kit.topic()
    kit.fill(topic, 1)
    consumer = kit.consumer(client_id="the-client")
    consumer.subscribe([topic])
    messages(consumer, 1)
    return topic, consumer


@case
def offsets_of_a_live_group_are_altered(kit: Kit) -> Any:
    topic, _ = live(kit)
    new = ConsumerGroupTopicPartitions(kit.group, [TopicPartition(topic, 0, 0)])
    return outcome(lambda: plain(result(kit.admin.alter_consumer_group_offsets([new])).topic_partitions))


@case
def a_live_group_is_described(kit: Kit) -> Any:
    topic, _ = live(kit)
    found = result(kit.admin.describe_consumer_groups([kit.group]))
    (member,) = found.members
    return [
        found.group_id == kit.group,
        found.state.name,
        found.is_simple_consumer_group,
        found.type.name,
        found.partition_assignor,
        member.client_id,
        member.group_instance_id,
        [[one.topic == topic, one.partition] for one in member.assignment.topic_partitions],
        found.coordinator is not None,
    ]


@case
def a_group_without_members_is_described(kit: Kit) -> Any:
    committed(kit, kit.topic(), 1)
    found = result(kit.admin.describe_consumer_groups([kit.group]))
    return [found.state.name, found.members, found.partition_assignor]


@case
def a_group_that_its_members_have_left_is_listed(kit: Kit) -> Any:
    topic, consumer = live(kit)
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()
    found = [one for one in kit.admin.list_consumer_groups().result(WAIT_S).valid if one.group_id == kit.group]
    return [[one.state.name, one.is_simple_consumer_group] for one in found]


@case
def an_unknown_group_is_described(kit: Kit) -> Any:
    kit.topic()
    found = result(kit.admin.describe_consumer_groups(["no-such-group"]))
    return [found.state.name, found.members]


@case
def groups_are_listed(kit: Kit) -> Any:
    live(kit)
    found = [one for one in kit.admin.list_consumer_groups().result(WAIT_S).valid if one.group_id == kit.group]
    return [[one.state.name, one.is_simple_consumer_group, one.type.name] for one in found]


@case
def groups_are_listed_by_state(kit: Kit) -> Any:
    committed(kit, kit.topic(), 1)
    found = []
    for state in (ConsumerGroupState.EMPTY, ConsumerGroupState.STABLE):
        listed = kit.admin.list_consumer_groups(states={state}).result(WAIT_S)
        found.append([kit.group in [one.group_id for one in listed.valid], listed.errors])
    return found


@case
def groups_are_listed_the_old_way(kit: Kit) -> Any:
    live(kit)
    (found,) = kit.admin.list_groups(kit.group, timeout=WAIT_S)
    return [found.id == kit.group, found.state, found.protocol_type, len(found.members), found.error]


@case
def groups_are_deleted(kit: Kit) -> Any:
    committed(kit, kit.topic(), 1)
    found = [outcome(lambda: result(kit.admin.delete_consumer_groups([kit.group]))) for _ in range(2)]
    return [found, outcome(lambda: result(kit.admin.delete_consumer_groups(["no-such-group"])))]


@case
def a_live_group_is_deleted(kit: Kit) -> Any:
    live(kit)
    return outcome(lambda: result(kit.admin.delete_consumer_groups([kit.group])))


@case
def empty_lists(kit: Kit) -> Any:
    admin: Any = kit.admin
    return [
        outcome(lambda: admin.create_topics([])),
        outcome(lambda: admin.delete_topics([])),
        outcome(lambda: admin.create_partitions([])),
        outcome(lambda: admin.describe_configs([])),
        outcome(lambda: admin.delete_consumer_groups([])),
        outcome(lambda: admin.list_consumer_group_offsets([])),
        outcome(lambda: admin.describe_consumer_groups([])),
    ]


@case
def wrong_arguments_of_an_administrator(kit: Kit) -> Any:
    admin: Any = kit.admin
    return [
        outcome(lambda: admin.create_topics("topic")),
        outcome(lambda: admin.create_topics(["topic"])),
        outcome(lambda: admin.create_topics(None)),
        outcome(lambda: admin.delete_topics("topic")),
        outcome(lambda: admin.delete_topics([5])),
        outcome(lambda: admin.create_partitions(["topic"])),
        outcome(lambda: admin.describe_configs(["topic"])),
        outcome(lambda: admin.describe_topics(["topic"])),
        outcome(lambda: admin.delete_consumer_groups("group")),
        outcome(lambda: admin.list_offsets([])),
        outcome(lambda: admin.delete_records(["t"])),
    ]


@case
def an_administrator_without_settings(kit: Kit) -> Any:
    make: Any = AdminClient
    return [outcome(lambda: make()), outcome(lambda: make("localhost")), outcome(lambda: make({"no.such": 1}))]


@case
def lists_of_access_control(kit: Kit) -> Any:
    def describe() -> Any:
        anything = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        return kit.admin.describe_acls(anything).result(WAIT_S)

    return outcome(describe)


@case
def passwords_of_users(kit: Kit) -> Any:
    return outcome(lambda: kit.admin.describe_user_scram_credentials().result(WAIT_S))


@case
def errors_of_futures(kit: Kit) -> Any:
    """An error comes by the future, and the call itself returns."""
    futures = kit.admin.delete_topics(["no-such-topic"])
    error = next(iter(futures.values())).exception(WAIT_S)
    return [type(error).__name__ if not isinstance(error, KafkaException) else "KafkaException", len(futures)]
