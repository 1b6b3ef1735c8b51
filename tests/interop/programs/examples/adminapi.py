"""An administrator's calls, one after another: topics, settings, groups, offsets, records, the cluster."""

import sys
import time

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

BROKER = {"bootstrap.servers": sys.argv[1]}
admin = AdminClient(BROKER)


def outcome(title, futures, show=lambda result: result):
    for name, future in futures.items():
        try:
            print(title, str(name), show(future.result(20)))
        except KafkaException as error:
            print(title, str(name), "failed:", error.args[0].name())
    time.sleep(0.5)  # a broker's metadata follow


outcome("create", admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=1) for name in ("a", "b")]))
outcome("create", admin.create_topics([NewTopic("a", num_partitions=2, replication_factor=1)]))
outcome("create partitions", admin.create_partitions([NewPartitions("b", 4)], validate_only=False))
metadata = admin.list_topics(timeout=20)
for name in ("a", "b"):
    found = metadata.topics[name]
    print("list", found, sorted(found.partitions), len(found.partitions[0].replicas), found.error)

resource = ConfigResource("topic", "a")
change = ConfigEntry("retention.ms", "1234", incremental_operation=AlterConfigOpType.SET)
changed = ConfigResource(ResourceType.TOPIC, "a", incremental_configs=[change])
outcome("alter", admin.incremental_alter_configs([changed]))


def described(entries):
    return [entries[name].value for name in ("retention.ms", "cleanup.policy")]


outcome("describe configs", admin.describe_configs([resource]), described)
resource.set_config("max.message.bytes", "5000")
outcome("alter all", admin.alter_configs([resource]))
outcome(
    "describe configs",
    admin.describe_configs([ConfigResource("topic", "a")]),
    lambda entries: entries["max.message.bytes"].value,
)

with Producer(BROKER) as producer:
    for number in range(6):
        producer.produce("a", f"value {number}", partition=0)
with Consumer({**BROKER, "group.id": "group-a", "auto.offset.reset": "earliest"}) as consumer:
    consumer.subscribe(["a"])
    while consumer.poll(1.0) is None:
        pass
    found = admin.describe_consumer_groups(["group-a"], include_authorized_operations=True, request_timeout=20)
    for name, future in found.items():
        group = future.result()
        print("group", name, group.state.name, group.is_simple_consumer_group, group.partition_assignor)
        print([operation.name for operation in group.authorized_operations])
        for member in group.members:
            print(
                member.group_instance_id,
                sorted((place.topic, place.partition) for place in member.assignment.topic_partitions),
            )
    consumer.commit(offsets=[TopicPartition("a", 0, 2)], asynchronous=False)
    outcome("delete group", admin.delete_consumer_groups(["group-a"]))

listed = admin.list_consumer_groups(request_timeout=20, states={ConsumerGroupState.EMPTY}).result()
print(
    "groups",
    [(group.group_id, group.state.name) for group in listed.valid if group.group_id == "group-a"],
    listed.errors,
)


def places(result):
    return [(place.topic, place.partition, place.offset, place.error) for place in result.topic_partitions]


asked = ConsumerGroupTopicPartitions("group-a", [TopicPartition("a", 0), TopicPartition("a", 1)])
outcome("offsets of", admin.list_consumer_group_offsets([asked]), places)
new = ConsumerGroupTopicPartitions("group-a", [TopicPartition("a", 0, 5)])
outcome("alter offsets of", admin.alter_consumer_group_offsets([new]), places)
outcome(
    "offsets of",
    admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("group-a", [TopicPartition("a", 0)])]),
    places,
)

outcome(
    "describe topic",
    admin.describe_topics(TopicCollection(["a", "none"]), include_authorized_operations=True, request_timeout=20),
    lambda topic: (
        topic.is_internal,
        [(one.id, len(one.isr)) for one in topic.partitions],
        [one.name for one in topic.authorized_operations],
    ),
)
cluster = admin.describe_cluster(request_timeout=20, include_authorized_operations=True).result()
print("cluster", len(cluster.nodes), [operation.name for operation in cluster.authorized_operations])
for spec in (OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.for_timestamp(0)):
    asked = {TopicPartition("a", 0): spec}
    outcome(
        "offset",
        admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=20),
        lambda one: one.offset,
    )
outcome("delete records", admin.delete_records([TopicPartition("a", 0, 3)]), lambda one: one.low_watermark)
outcome("offset", admin.list_offsets({TopicPartition("a", 0): OffsetSpec.earliest()}), lambda one: one.offset)
outcome("delete group", admin.delete_consumer_groups(["group-a", "none"], request_timeout=20))
outcome("delete", admin.delete_topics(["a", "b", "none"], operation_timeout=30))
