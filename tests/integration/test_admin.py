"""The admin client on a real log in memory."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparktxn._engine.format.commands import OffsetToCommit, TxnOffsetCommit
from sparktxn._foundation.config.topic import IGNORED_TOPIC_SETTINGS
from sparktxn._kafka.message import OFFSET_END, OFFSET_INVALID, IsolationLevel, TopicPartition
from sparktxn.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicCollection,
)
from sparktxn.errors import ConfigurationError, ErrorCode, KafkaError, KafkaException, StoreNotFound
from sparktxn.producer import Producer
from sparktxn.store import Store


@pytest.fixture
def uri() -> str:
    return f"memory://admin-{uuid.uuid4().hex}"


@pytest.fixture
def admin(uri: str) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": uri}) as admin:
        yield admin


def only(answers: dict[Any, Future[Any]]) -> Any:
    (future,) = answers.values()
    return future.result(timeout=0)


def refused(answers: dict[Any, Future[Any]]) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        only(answers)
    return caught.value.error


def produce(uri: str, *timestamps: int, topic: str = "t") -> None:
    """One segment for each timestamp."""
    for timestamp in timestamps:
        with Producer({"bootstrap.servers": uri}) as producer:
            producer.produce(topic, b"v", partition=0, timestamp=timestamp)


class TestTopics:
    def test_the_first_topic_makes_the_store(self, uri: str, admin: AdminClient) -> None:
        with pytest.raises(StoreNotFound):
            admin.list_topics()
        assert only(admin.create_topics([NewTopic("t", num_partitions=3)])) is None
        metadata = admin.list_topics(timeout=5)
        assert {name: len(topic.partitions) for name, topic in metadata.topics.items()} == {"t": 3}
        assert metadata.topics["t"].error is None
        (broker,) = metadata.brokers.values()
        assert broker.host == uri

    @pytest.mark.parametrize(
        ("new", "code", "word"),
        [
            (NewTopic("a/b", 1), ErrorCode.INVALID_TOPIC, "a/b"),
            (NewTopic("..", 1), ErrorCode.INVALID_TOPIC, ".."),
            (NewTopic("t", 0), ErrorCode.INVALID_PARTITIONS, "0"),
            (NewTopic("t", 10_001), ErrorCode.INVALID_PARTITIONS, "10000"),
            (NewTopic("t", 1, config={"retention.mss": "1"}), ErrorCode.INVALID_CONFIG, "retention.ms"),
            (NewTopic("t", 1, config={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG, "soon"),
            (NewTopic("t", 1, schema=pa.schema([("_x", pa.int64())])), ErrorCode.INVALID_CONFIG, "_x"),
            (NewTopic("t", 1, config={"partition.key": "id"}), ErrorCode.INVALID_CONFIG, "partition.key"),
        ],
    )
    def test_a_wrong_topic_is_refused_before_anything_is_written(
        self, admin: AdminClient, new: NewTopic, code: ErrorCode, word: str
    ) -> None:
        error = refused(admin.create_topics([new]))
        assert error.code() == code
        assert word in error.str()
        with pytest.raises(StoreNotFound):
            admin.list_topics()

    def test_one_wrong_topic_does_not_hold_the_others(self, admin: AdminClient) -> None:
        answers = admin.create_topics([NewTopic("good", 1), NewTopic("b d", 1)])
        assert answers["good"].result() is None
        assert answers["b d"].exception() is not None
        assert list(admin.list_topics().topics) == ["good"]

    def test_a_topic_is_created_once(self, admin: AdminClient) -> None:
        only(admin.create_topics([NewTopic("t", 1)]))
        for validate_only in (False, True):
            error = refused(admin.create_topics([NewTopic("t", 1)], validate_only=validate_only))
            assert error.code() == ErrorCode.TOPIC_ALREADY_EXISTS

    def test_validating_changes_nothing(self, admin: AdminClient) -> None:
        only(admin.create_topics([NewTopic("t", 1)]))
        only(admin.create_topics([NewTopic("u", 1)], validate_only=True))
        only(admin.create_partitions([NewPartitions("t", 2)], validate_only=True))
        metadata = admin.list_topics()
        assert {name: len(topic.partitions) for name, topic in metadata.topics.items()} == {"t": 1}

    def test_a_typed_topic_is_described_with_its_columns(self, admin: AdminClient) -> None:
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
        only(admin.create_topics([NewTopic("t", 2, config={"partition.key": "id"}, schema=schema)]))
        description = only(admin.describe_topics(TopicCollection(["t"])))
        assert description.schema == (("id", "int64", False), ("name", "string", True))
        assert [partition.id for partition in description.partitions] == [0, 1]

    def test_partitions_only_grow(self, admin: AdminClient) -> None:
        only(admin.create_topics([NewTopic("t", 2)]))
        assert only(admin.create_partitions([NewPartitions("t", 4)])) is None
        assert len(only(admin.describe_topics(["t"])).partitions) == 4
        for count in (4, 3, 10_001):
            assert refused(admin.create_partitions([NewPartitions("t", count)])).code() == ErrorCode.INVALID_PARTITIONS

    def test_a_deleted_topic_is_gone(self, admin: AdminClient) -> None:
        only(admin.create_topics([NewTopic("t", 1)]))
        assert only(admin.delete_topics(["t"])) is None
        assert admin.list_topics().topics == {}

    def test_unknown_topics_are_told_with_the_nearest_name(self, admin: AdminClient) -> None:
        only(admin.create_topics([NewTopic("flights", 1)]))
        calls: list[dict[Any, Future[Any]]] = [
            admin.delete_topics(["flight"]),
            admin.create_partitions([NewPartitions("flight", 2)]),
            admin.describe_topics(["flight"]),
            admin.describe_configs([ConfigResource("topic", "flight")]),
        ]
        for answers in calls:
            error = refused(answers)
            assert error.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert "'flights'" in error.str()
        assert admin.list_topics("flight").topics["flight"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize("bad", ["t", [1]])
    def test_not_a_list_of_topics(self, admin: AdminClient, bad: Any) -> None:
        with pytest.raises(TypeError, match="NewTopic"):
            admin.create_topics(bad)


STORE = ConfigResource("BROKER", "0")
REJECT = "reject.transaction.message"


def on_store(name: str, value: str | None, how: AlterConfigOpType = AlterConfigOpType.SET) -> ConfigResource:
    return ConfigResource("BROKER", "0", incremental_configs=[ConfigEntry(name, value, incremental_operation=how)])


class TestSettingsOfTheStore:
    @pytest.fixture(autouse=True)
    def _topic(self, admin: AdminClient) -> None:
        only(admin.create_topics([NewTopic("t", 1)]))

    def shown(self, admin: AdminClient, resource: ConfigResource) -> tuple[str | None, ConfigSource, bool]:
        entry = only(admin.describe_configs([resource]))[REJECT]
        return entry.value, entry.source, entry.is_default

    def test_topics_that_do_not_set_them_follow(self, admin: AdminClient) -> None:
        topic = ConfigResource("TOPIC", "t")
        assert self.shown(admin, STORE) == self.shown(admin, topic) == ("false", ConfigSource.DEFAULT_CONFIG, True)
        only(admin.incremental_alter_configs([on_store(REJECT, "TRUE")]))
        inherited = ("true", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, False)
        assert self.shown(admin, STORE) == self.shown(admin, ConfigResource("BROKER", "")) == inherited
        assert self.shown(admin, topic) == inherited
        topic.set_config(REJECT, "false")
        only(admin.alter_configs([topic]))
        assert self.shown(admin, topic) == ("false", ConfigSource.DYNAMIC_TOPIC_CONFIG, False)
        only(admin.incremental_alter_configs([on_store(REJECT, None, AlterConfigOpType.DELETE)]))
        assert self.shown(admin, STORE) == ("false", ConfigSource.DEFAULT_CONFIG, True)

    def test_they_are_replaced_as_a_whole(self, admin: AdminClient) -> None:
        only(admin.alter_configs([ConfigResource("BROKER", "0", set_config={REJECT: "true"})]))
        assert self.shown(admin, STORE)[0] == "true"
        only(admin.alter_configs([ConfigResource("BROKER", "0", set_config={})], validate_only=True))
        assert self.shown(admin, STORE)[0] == "true"
        only(admin.alter_configs([ConfigResource("BROKER", "0", set_config={})]))
        assert self.shown(admin, STORE)[0] == "false"

    @pytest.mark.parametrize(
        ("resource", "code", "words"),
        [
            (
                on_store("retention.ms", "5"),
                ErrorCode.INVALID_CONFIG,
                f"unknown store-wide setting 'retention.ms': expected {REJECT} or offsets.retention.minutes; set it "
                "for each topic",
            ),
            (on_store(f"{REJECT}s", "true"), ErrorCode.INVALID_CONFIG, f"; did you mean {REJECT!r}?"),
            (on_store(REJECT, "maybe"), ErrorCode.INVALID_CONFIG, "expected true or false"),
            (on_store("x", None, AlterConfigOpType.DELETE), ErrorCode.INVALID_CONFIG, "unknown store-wide setting 'x'"),
            (on_store(REJECT, "a", AlterConfigOpType.APPEND), ErrorCode.INVALID_CONFIG, "is not a list: expected"),
            (ConfigResource("BROKER", "0"), ErrorCode.INVALID_REQUEST, "no setting is given"),
            (ConfigResource("BROKER", "1"), ErrorCode.INVALID_REQUEST, "BROKER with the name '0' for the store"),
            (ConfigResource("GROUP", "0"), ErrorCode.INVALID_REQUEST, "expected ConfigResource.Type.TOPIC"),
        ],
    )
    def test_wrong_ones_are_refused_and_nothing_changes(
        self, admin: AdminClient, resource: ConfigResource, code: ErrorCode, words: str
    ) -> None:
        error = refused(admin.incremental_alter_configs([resource]))
        assert error.code() == code
        assert words in error.str()
        assert self.shown(admin, STORE)[2]

    def test_a_value_with_a_unit_is_kept_and_shown_as_the_number_that_kafka_has(self, admin: AdminClient) -> None:
        given = {"retention.ms": "7d", "segment.bytes": "64 MiB", "segment.ms": "1h", "index.interval.bytes": "4k"}
        admin.create_topics([NewTopic("units", 1, config=given)])["units"].result()
        entry = ConfigEntry("table.history.ms", "2 weeks", incremental_operation=AlterConfigOpType.SET)
        topic = ConfigResource("TOPIC", "units", incremental_configs=[entry])
        admin.incremental_alter_configs([topic])[topic].result()
        shown = admin.describe_configs([topic])[topic].result()
        expected = ["604800000", "67108864", "3600000", "4096", "1209600000"]
        assert [shown[name].value for name in (*given, "table.history.ms")] == expected
        wrong = ConfigEntry("retention.ms", "7 sheep", incremental_operation=AlterConfigOpType.SET)
        error = refused(
            admin.incremental_alter_configs([ConfigResource("TOPIC", "units", incremental_configs=[wrong])])
        )
        assert error.str() == (
            "setting 'retention.ms' is '7 sheep': expected a whole number of milliseconds from -1 to "
            "9007199254740992, or one with a unit, such as 500ms, 30s, 15m, 1h or 7d"
        )

    def test_a_resource_or_a_setting_that_is_given_twice_is_refused(self, admin: AdminClient) -> None:
        twice = on_store(REJECT, "true")
        for answers in (
            admin.incremental_alter_configs([twice, on_store(REJECT, "false")]),
            admin.alter_configs([ConfigResource("BROKER", "0", {REJECT: "true"}), STORE]),
        ):
            error = refused(answers)
            assert (error.code(), "is given twice" in error.str()) == (ErrorCode.INVALID_REQUEST, True)
        twice.add_incremental_config(ConfigEntry(REJECT, None, incremental_operation=AlterConfigOpType.DELETE))
        error = refused(admin.incremental_alter_configs([twice]))
        assert error.code() == ErrorCode.INVALID_REQUEST
        assert f"setting {REJECT!r} is given twice" in error.str()
        assert self.shown(admin, STORE)[2]


class TestSettings:
    @pytest.fixture(autouse=True)
    def _topic(self, admin: AdminClient) -> None:
        only(admin.create_topics([NewTopic("t", 1, config={"retention.ms": 1_000})]))

    def resource(self, *changes: tuple[str, str | None, AlterConfigOpType]) -> ConfigResource:
        entries = [ConfigEntry(name, value, incremental_operation=how) for name, value, how in changes]
        return ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=entries)

    def test_all_are_described_with_where_they_come_from(self, admin: AdminClient) -> None:
        described = only(admin.describe_configs([self.resource()]))
        given, default = described["retention.ms"], described["segment.format"]
        assert (given.value, given.source, given.is_default) == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG, False)
        assert (default.value, default.source, default.is_default) == ("parquet", ConfigSource.DEFAULT_CONFIG, True)

    def test_they_are_set_and_removed(self, admin: AdminClient) -> None:
        changes = self.resource(
            ("segment.format", "arrow", AlterConfigOpType.SET), ("retention.ms", None, AlterConfigOpType.DELETE)
        )
        only(admin.incremental_alter_configs([changes]))
        described = only(admin.describe_configs([self.resource()]))
        assert described["segment.format"].value == "arrow"
        assert described["retention.ms"].is_default

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            (("segment.format", "orc", AlterConfigOpType.SET), ErrorCode.INVALID_CONFIG),
            (("segment.formatt", "arrow", AlterConfigOpType.SET), ErrorCode.INVALID_CONFIG),
            (("segment.formatt", None, AlterConfigOpType.DELETE), ErrorCode.INVALID_CONFIG),
            (("cleanup.policy", "burn", AlterConfigOpType.APPEND), ErrorCode.INVALID_CONFIG),
            (("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT), ErrorCode.INVALID_CONFIG),
            (("cleanup.policy", None, AlterConfigOpType.APPEND), ErrorCode.INVALID_REQUEST),
            *(
                (("table.formats", value, operation), ErrorCode.INVALID_CONFIG)
                for value in (1.5, True, b"delta", np.int64(1))
                for operation in (AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT)
            ),
            (("segment.bytes", "5000", AlterConfigOpType.APPEND), ErrorCode.INVALID_CONFIG),
            (("segment.format", "parquet", AlterConfigOpType.SUBTRACT), ErrorCode.INVALID_CONFIG),
        ],
    )
    def test_wrong_changes_are_refused_whole(
        self, admin: AdminClient, change: tuple[str, Any, AlterConfigOpType], code: ErrorCode
    ) -> None:
        good = ("retention.ms", "5", AlterConfigOpType.SET)
        assert refused(admin.incremental_alter_configs([self.resource(good, change)])).code() == code
        assert only(admin.describe_configs([self.resource()]))["retention.ms"].value == "1000"

    @pytest.mark.parametrize(
        ("name", "before", "operation", "words", "after"),
        [
            ("cleanup.policy", None, AlterConfigOpType.APPEND, "compact", "compact,delete"),
            ("cleanup.policy", "compact", AlterConfigOpType.APPEND, " Compact ,delete", "compact,delete"),
            ("cleanup.policy", "compact,delete", AlterConfigOpType.SUBTRACT, "delete,burn", "compact"),
            ("cleanup.policy", "compact", AlterConfigOpType.APPEND, "compact", "compact"),
            ("table.formats", None, AlterConfigOpType.APPEND, "iceberg", "iceberg"),
            ("table.formats", "delta,iceberg", AlterConfigOpType.SUBTRACT, "iceberg,delta", ""),
            ("leader.replication.throttled.replicas", "0:1", AlterConfigOpType.APPEND, "1:1,0:1", "0:1,1:1"),
        ],
    )
    def test_words_are_appended_to_lists_and_subtracted(
        self, admin: AdminClient, name: str, before: str | None, operation: AlterConfigOpType, words: str, after: str
    ) -> None:
        if before is not None:
            only(admin.incremental_alter_configs([self.resource((name, before, AlterConfigOpType.SET))]))
        only(admin.incremental_alter_configs([self.resource((name, words, operation))], validate_only=True))
        shown = only(admin.describe_configs([self.resource()])).get(name)
        assert shown is None or shown.is_default == (before is None)
        only(admin.incremental_alter_configs([self.resource((name, words, operation))]))
        assert only(admin.describe_configs([self.resource()]))[name].value == after

    def test_what_means_nothing_without_brokers_is_kept_and_shown(self, admin: AdminClient) -> None:
        """Each setting of Kafka's topics can be given, so that scripts which create topics run as they are."""
        given = dict.fromkeys(IGNORED_TOPIC_SETTINGS, "1") | {"preallocate": True, "segment.ms": 5}
        only(admin.create_topics([NewTopic("ported", 1, config=given)]))
        described = only(admin.describe_configs([ConfigResource("topic", "ported")]))
        shown = {name: described[name].value for name in given}
        assert shown == {name: str(value) for name, value in given.items()} | {"preallocate": "true"}
        removed = ConfigEntry("segment.ms", None, incremental_operation=AlterConfigOpType.DELETE)
        only(admin.incremental_alter_configs([ConfigResource("topic", "ported", incremental_configs=[removed])]))
        assert "segment.ms" not in only(admin.describe_configs([ConfigResource("topic", "ported")]))

    def test_a_segment_size_above_the_greatest_is_the_greatest(self, admin: AdminClient) -> None:
        only(admin.create_topics([NewTopic("large", 1, config={"segment.bytes": str(2**30)})]))
        described = only(admin.describe_configs([ConfigResource("topic", "large")]))
        assert described["segment.bytes"].value == str(2**28)

    def test_groups_have_no_settings(self, admin: AdminClient) -> None:
        assert refused(admin.describe_configs([ConfigResource("group", "0")])).code() == ErrorCode.INVALID_REQUEST


class TestOffsets:
    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            (OffsetSpec.earliest(), (0, -1)),
            (OffsetSpec.latest(), (4, -1)),
            (OffsetSpec.for_timestamp(1_500), (1, 3_000)),
            (OffsetSpec.for_timestamp(3_001), (-1, -1)),
            (OffsetSpec.max_timestamp(), (1, 3_000)),
        ],
    )
    def test_offsets_by_specification(
        self, uri: str, admin: AdminClient, spec: OffsetSpec, expected: tuple[int, int]
    ) -> None:
        only(admin.create_topics([NewTopic("t", 1)]))
        produce(uri, 1_000, 3_000, 2_000, 3_000)
        found = only(admin.list_offsets({TopicPartition("t", 0): spec}))
        assert (found.offset, found.timestamp) == expected

    def test_an_empty_partition_has_no_newest_record(self, admin: AdminClient) -> None:
        only(admin.create_topics([NewTopic("t", 1)]))
        assert only(admin.list_offsets({TopicPartition("t", 0): OffsetSpec.max_timestamp()})).offset == -1

    @pytest.mark.kafka("K83")
    def test_the_isolation_level_decides_the_end(self, uri: str, admin: AdminClient) -> None:
        only(admin.create_topics([NewTopic("t", 1)]))
        with Producer({"bootstrap.servers": uri, "transactional.id": "w"}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.produce("t", b"open")
            producer.flush()
            asked = {TopicPartition("t", 0): OffsetSpec.latest()}
            committed = only(admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED))
            assert (committed.offset, only(admin.list_offsets(asked)).offset) == (0, 1)
            producer.abort_transaction()
            newest = {TopicPartition("t", 0): OffsetSpec.max_timestamp()}
            committed = only(admin.list_offsets(newest, isolation_level=IsolationLevel.READ_COMMITTED))
            assert committed.offset == -1, "an aborted record is none"

    def test_records_are_deleted_from_the_start(self, uri: str, admin: AdminClient) -> None:
        only(admin.create_topics([NewTopic("t", 1)]))
        produce(uri, 1, 2, 3)
        assert only(admin.delete_records([TopicPartition("t", 0, 2)])).low_watermark == 2
        assert only(admin.list_offsets({TopicPartition("t", 0): OffsetSpec.earliest()})).offset == 2
        assert refused(admin.delete_records([TopicPartition("t", 0, 4)])).code() == ErrorCode.OFFSET_OUT_OF_RANGE
        assert only(admin.delete_records([TopicPartition("t", 0, OFFSET_END)])).low_watermark == 3

    @pytest.mark.parametrize("partition", [TopicPartition("t", 1, 0), TopicPartition("no", 0, 0)])
    def test_unknown_partitions(self, admin: AdminClient, partition: TopicPartition) -> None:
        only(admin.create_topics([NewTopic("t", 1)]))
        for answers in (admin.list_offsets({partition: OffsetSpec.latest()}), admin.delete_records([partition])):
            assert refused(answers).code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TestGroups:
    @pytest.fixture(autouse=True)
    def _topic(self, admin: AdminClient) -> None:
        only(admin.create_topics([NewTopic("t", 3)]))

    def set_offset(self, admin: AdminClient, offset: int) -> None:
        wanted = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 1, offset, "note", 7)])
        only(admin.alter_consumer_group_offsets([wanted]))

    def test_offsets_are_set_and_listed(self, admin: AdminClient) -> None:
        self.set_offset(admin, 5)
        (found,) = only(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")])).topic_partitions
        assert (found, found.offset, found.metadata, found.leader_epoch) == (TopicPartition("t", 1), 5, "note", 7)
        asked = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0), TopicPartition("t", 9)])
        none, unknown = only(admin.list_consumer_group_offsets([asked])).topic_partitions
        assert (none.offset, none.error) == (OFFSET_INVALID, None)
        assert unknown.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_group_is_listed_and_described(self, admin: AdminClient) -> None:
        assert admin.list_consumer_groups().result().valid == []
        assert only(admin.describe_consumer_groups(["g"])).state is ConsumerGroupState.DEAD
        self.set_offset(admin, 5)
        assert [group.group_id for group in admin.list_consumer_groups().result().valid] == ["g"]
        described = only(admin.describe_consumer_groups(["g"]))
        assert (described.group_id, described.state) == ("g", ConsumerGroupState.EMPTY)

    @pytest.mark.kafka("K105")
    def test_stable_offsets_can_be_required(self, uri: str, admin: AdminClient) -> None:
        self.set_offset(admin, 5)
        with Producer({"bootstrap.servers": uri, "transactional.id": "w"}) as producer, Store.open(uri) as store:
            producer.init_transactions()
            topic = store.log.topic("t")
            assert topic is not None
            offsets = (OffsetToCommit(topic.topic_id, 1, 9),)
            pending = TxnOffsetCommit("w", producer.producer_id, producer.producer_epoch, 1, "g", offsets)
            store.log.submit([pending])
            asked = [ConsumerGroupTopicPartitions("g", [TopicPartition("t", 1)])]
            (loose,) = only(admin.list_consumer_group_offsets(asked)).topic_partitions
            (strict,) = only(admin.list_consumer_group_offsets(asked, require_stable=True)).topic_partitions
        assert loose.offset == 5
        assert strict.error is not None
        assert strict.error.code() == ErrorCode.UNSTABLE_OFFSET_COMMIT

    def test_wrong_offsets_are_refused(self, admin: AdminClient) -> None:
        wanted = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 1, -5)])
        assert refused(admin.alter_consumer_group_offsets([wanted])).code() == ErrorCode.OFFSET_OUT_OF_RANGE
        empty = ConsumerGroupTopicPartitions("g", [])
        assert refused(admin.alter_consumer_group_offsets([empty])).code() == ErrorCode.INVALID_REQUEST


class TestTheClient:
    def test_the_cluster_is_the_store(self, uri: str, admin: AdminClient) -> None:
        only(admin.create_topics([NewTopic("t", 1)]))
        cluster = admin.describe_cluster().result()
        with Store.open(uri) as store:
            assert cluster.cluster_id == store.log.store_id
        assert [node.host for node in cluster.nodes] == [uri]

    def test_all_operations_are_authorized_where_they_are_asked_for(self, admin: AdminClient) -> None:
        """The numbers are those of a Kafka broker without access control lists."""
        only(admin.create_topics([NewTopic("t", 1)]))
        for included in (True, False):
            answers = (
                admin.describe_cluster(include_authorized_operations=included).result(),
                only(admin.describe_topics(["t"], include_authorized_operations=included)),
                only(admin.describe_consumer_groups(["g"], include_authorized_operations=included)),
            )
            cluster, topic, group = (answer.authorized_operations for answer in answers)
            assert cluster == ([5, 7, 8, 9, 10, 11, 12] if included else None)
            assert topic == ([3, 4, 5, 6, 7, 8, 10, 11] if included else None)
            assert group == ([3, 6, 8, 10, 11] if included else None)

    def test_a_missing_store_is_told_by_every_call(self, admin: AdminClient) -> None:
        answers: list[Future[Any]] = [
            *admin.delete_topics(["t"]).values(),
            *admin.create_topics([NewTopic("t", 1)], validate_only=True).values(),
            *admin.list_offsets({TopicPartition("t", 0): OffsetSpec.latest()}).values(),
            admin.list_consumer_groups(),
            admin.describe_cluster(),
        ]
        for future in answers:
            assert isinstance(future.exception(), StoreNotFound)

    def test_a_closed_client_says_so(self, admin: AdminClient) -> None:
        admin.close()
        admin.close()
        with pytest.raises(RuntimeError, match="closed"):
            admin.create_topics([NewTopic("t", 1)])

    def test_settings_are_checked(self) -> None:
        with pytest.raises(ConfigurationError, match=r"bootstrap\.servers"):
            AdminClient({})
        with pytest.raises(ConfigurationError, match=r'"bootstrap.server".*bootstrap.servers'):
            AdminClient({"bootstrap.server": "memory://x"})
        AdminClient(bootstrap_servers="memory://x", client_id="c").close()
