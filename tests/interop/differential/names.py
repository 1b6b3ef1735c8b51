"""Cases of values, errors and names: no broker is asked."""

from __future__ import annotations

import pickle
from typing import Any

import confluent_kafka
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import ConfigEntry, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

from tests.interop.differential.kit import Kit, case, outcome, plain


@case
def codes_are_listed_by_dir(kit: Kit) -> Any:
    names = dir(KafkaError)
    return [name in names for name in ("_FENCED", "UNKNOWN_TOPIC_OR_PART", "FENCED_MEMBER_EPOCH", "UNKNOWN_TOPIC_ID")]


@case
def names_of_all_codes(kit: Kit) -> Any:
    codes = {name: getattr(KafkaError, name) for name in dir(KafkaError) if name[:1] == "_" or name.isupper()}
    return {name: code for name, code in codes.items() if isinstance(code, int)}


@case
def texts_of_all_codes(kit: Kit) -> Any:
    codes = [getattr(KafkaError, name) for name in dir(KafkaError)]
    return {str(code): [KafkaError(code).name(), KafkaError(code).str()] for code in codes if isinstance(code, int)}


@case
def an_error_and_its_flags(kit: Kit) -> Any:
    error = KafkaError(3, "why", fatal=True, retriable=True, txn_requires_abort=True)
    return [
        error.code(),
        error.name(),
        error.str(),
        error.fatal(),
        error.retriable(),
        error.txn_requires_abort(),
        str(error),
    ]


@case
def an_error_as_text(kit: Kit) -> Any:
    return [
        str(KafkaError(3)),
        repr(KafkaError(3)),
        str(KafkaError(-147, "fenced", fatal=True)),
        str(KafkaException(KafkaError(3))),
    ]


@case
def errors_are_compared(kit: Kit) -> Any:
    error = KafkaError(3)
    return [
        error == 3,
        error == KafkaError(3),
        error == KafkaError(4),
        error != 3,
        bool(error),
        hash(error) == hash(KafkaError(3)),
    ]


@case
def errors_are_raised_and_caught(kit: Kit) -> Any:
    try:
        raise KafkaException(KafkaError(3))
    except KafkaException as error:
        return [
            type(error.args[0]).__name__,
            len(error.args),
            issubclass(KafkaException, Exception),
            outcome(lambda: KafkaError("3")),
        ]


@case
def errors_of_codes_are_raised_and_caught(kit: Kit) -> Any:
    try:
        raise KafkaError(3)
    except KafkaError as error:
        return error.code()


@case
def errors_are_pickled(kit: Kit) -> Any:
    return [outcome(lambda: pickle.loads(pickle.dumps(KafkaError(3))).code())]


@case
def a_topic_partition_by_default(kit: Kit) -> Any:
    one = TopicPartition("t")
    return plain([one.topic, one.partition, one.offset, one.metadata, one.leader_epoch, one.error])


@case
def a_topic_partition_as_text(kit: Kit) -> Any:
    ones = [
        TopicPartition("t"),
        TopicPartition("t", 1, 5),
        TopicPartition("t", 1, -2),
        TopicPartition("t", 1, -1, "m", 3),
    ]
    return [[str(one), repr(one)] for one in ones]


@case
def topic_partitions_are_compared(kit: Kit) -> Any:
    one, same, later, other = (
        TopicPartition("t", 1),
        TopicPartition("t", 1, 9),
        TopicPartition("t", 2),
        TopicPartition("u", 0),
    )
    return [
        one == same,
        one < later,
        later < other,
        one >= same,
        one <= same,
        one > later,
        one != later,
        hash(one) == hash(same),
        len({one, same}),
    ]


@case
def a_topic_partition_and_a_number(kit: Kit) -> Any:
    return outcome(lambda: TopicPartition("t", 1) < 3)


@case
def wrong_topic_partitions(kit: Kit) -> Any:
    make: Any = TopicPartition
    return [
        outcome(lambda: make()),
        outcome(lambda: make(5)),
        outcome(lambda: make("t", "0")),
        outcome(lambda: make(None)),
        outcome(lambda: make("t", 0, "x")),
    ]


@case
def a_topic_partition_is_changed(kit: Kit) -> Any:
    one: Any = TopicPartition("t", 1)
    one.offset = 7

    def rename() -> None:
        one.topic = "u"

    return [one.offset, outcome(rename)]


@case
def a_topic_partition_is_pickled(kit: Kit) -> Any:
    return outcome(lambda: pickle.loads(pickle.dumps(TopicPartition("t", 1))).partition)


@case
def a_message_is_made(kit: Kit) -> Any:
    one = Message(
        topic="t", partition=1, offset=2, key=b"k", value=b"v", headers=[("h", b"1")], error=None, timestamp=(1, 5)
    )
    one.set_value("new")
    one.set_key("key")
    one.set_headers([("x", b"2")])
    return plain(
        [
            one.topic(),
            one.partition(),
            one.offset(),
            one.key(),
            one.value(),
            one.headers(),
            one.error(),
            one.timestamp(),
            len(one),
        ]
    )


@case
def a_message_by_default(kit: Kit) -> Any:
    one = Message()
    parts = (
        one.topic,
        one.partition,
        one.offset,
        one.key,
        one.value,
        one.headers,
        one.error,
        one.latency,
        one.leader_epoch,
    )
    return [outcome(part) for part in parts]


@case
def a_message_with_an_error(kit: Kit) -> Any:
    one = Message(topic="t", error=KafkaError(3))
    return [plain(one.error()), one.topic()]


@case
def constants(kit: Kit) -> Any:
    names = [
        name for name in dir(confluent_kafka) if name.isupper() and isinstance(getattr(confluent_kafka, name), int)
    ]
    return {name: int(getattr(confluent_kafka, name)) for name in names}


@case
def enumerations(kit: Kit) -> Any:
    kinds: tuple[Any, ...] = (ConsumerGroupState, ConsumerGroupType, IsolationLevel, ResourceType)
    return [[[one.name, one.value] for one in kind] for kind in kinds]


@case
def new_topics(kit: Kit) -> Any:
    one = NewTopic("t")
    return [
        [one.topic, one.num_partitions, one.replication_factor, one.config or {}],
        NewTopic("t", 1) == NewTopic("t", 1),
        NewTopic("t", 1) < NewTopic("u", 1),
        outcome(lambda: NewTopic()),
        outcome(lambda: NewTopic("t", "1")),
        str(one),
    ]


@case
def new_partitions(kit: Kit) -> Any:
    one = NewPartitions("t", 4)
    return [one.topic, one.new_total_count, str(one), outcome(lambda: NewPartitions("t"))]


@case
def resources(kit: Kit) -> Any:
    one = ConfigResource(ResourceType.TOPIC, "t")
    return [
        one == ConfigResource("topic", "t"),
        hash(one) == hash(ConfigResource("topic", "t")),
        one.name,
        one.restype.name,
        outcome(lambda: ConfigResource("nothing", "t")),
        outcome(lambda: ConfigResource(ResourceType.TOPIC, None)),
        str(one),
    ]


@case
def entries_of_settings(kit: Kit) -> Any:
    one = ConfigEntry("name", "value")
    return [
        one.name,
        one.value,
        one.is_default,
        one.is_read_only,
        one.is_sensitive,
        one.is_synonym,
        one.synonyms,
        str(one),
    ]


@case
def specifications_of_offsets(kit: Kit) -> Any:
    ones = [OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp(), OffsetSpec.for_timestamp(5)]
    return [
        OffsetSpec.earliest() == ones[0],
        outcome(lambda: OffsetSpec.for_timestamp("x") is not None),
    ]


@case
def collections_of_topics(kit: Kit) -> Any:
    make: Any = TopicCollection
    wrong: list[Any] = [5, "t", [], [5], [""], None]
    return [make(["t"]).topic_names, [outcome(lambda given=given: type(make(given)).__name__) for given in wrong]]


@case
def partitions_of_a_group(kit: Kit) -> Any:
    make: Any = ConsumerGroupTopicPartitions
    one = make("g", [TopicPartition("t", 0)])
    return [
        one.group_id,
        plain(one.topic_partitions),
        make("g").topic_partitions,
        outcome(lambda: make()),
        one == make("g", [TopicPartition("t", 0)]),
    ]


@case
def ids_of_topics(kit: Kit) -> Any:
    one = Uuid(1, 2)
    return [one.get_most_significant_bits(), one.get_least_significant_bits(), str(one), one == Uuid(1, 2)]


@case
def versions(kit: Kit) -> Any:
    version, library = confluent_kafka.version(), confluent_kafka.libversion()
    return [type(version).__name__, [type(part).__name__ for part in library]]
