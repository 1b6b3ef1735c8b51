"""`AdminClient`: confluent-kafka's administration of a store. Its futures are done when the call returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial

import pyarrow as pa
from msgspec import Struct

from sparktxn._engine.log.log import Log
from sparktxn._engine.state.limits import TRANSACTION_TIMEOUT_MS_MAX
from sparktxn._foundation.process.clock import in_time
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.structs import ProducerIdAndEpoch
from sparktxn._kafka.admin import (
    ConfigEntry,
    ConfigResource,
    DeletedRecords,
    DescribeClusterResult,
    ListOffsetsResultInfo,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicCollection,
    TopicDescription,
    asked_of,
    node_of,
)
from sparktxn._kafka.clustermetadata import ClusterMetadata, GroupMetadata, cluster_metadata
from sparktxn._kafka.groups import (
    ConsumerGroupDescription,
    ConsumerGroupLag,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    ListConsumerGroupsResult,
)
from sparktxn._kafka.message import IsolationLevel, TopicPartition
from sparktxn._kafka.unsupported import CLUSTER_OPERATIONS, UnsupportedCalls
from sparktxn._rows.scan.plan import Isolation
from sparktxn.admin import configs, groups, records, transactions
from sparktxn.admin import topics as topiccalls
from sparktxn.admin.answers import REQUEST_TIMEOUT_S, AnsweringClient, answered, clock_of, list_of, names_of
from sparktxn.admin.groups import Overdue
from sparktxn.admin.halfmessages import HalfMessageCalls
from sparktxn.admin.topics import existing_topic, refusal
from sparktxn.admin.transactions import (
    AbortTransactionSpec,
    HangingTransaction,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from sparktxn.errors import ErrorCode
from sparktxn.store.memberexpiry import expire_overdue, members_name
from sparktxn.store.memberwatch import seen_members

# The calls of `AdminClient` for consumer groups.
#
# Each call that meets members first takes out those that are overdue, as a broker does it by itself. A process that
# may not write leaves them out of what it returns.


class GroupCalls(AnsweringClient):
    """What an administrator asks of consumer groups, and does to them."""

    @answered
    def list_consumer_groups(
        self,
        *,
        states: Iterable[ConsumerGroupState] | None = None,
        types: Iterable[ConsumerGroupType] | None = None,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> Future[ListConsumerGroupsResult]:
        """Return the groups that have members or committed offsets, or those of them in one of `states` and of `types`.

        An empty list of states or of types, as confluent-kafka's, leaves no group out.
        """
        wanted_states = None if states is None else arguments.items("states", states, ConsumerGroupState)
        wanted_types = None if types is None else arguments.items("types", types, ConsumerGroupType)

        def found() -> ListConsumerGroupsResult:
            listed = [
                group
                for group in groups.list_groups(*self._without_overdue())
                if (not wanted_states or group.state in wanted_states)
                and (not wanted_types or group.type in wanted_types)
            ]
            return ListConsumerGroupsResult(listed, [])

        return self._answer(found)

    @in_time("timeout", clock_of)
    def list_groups(self, group: str | None = None, timeout: float | None = -1.0) -> list[GroupMetadata]:
        """Return all groups, or `group` alone, as confluent-kafka's oldest call of this kind does."""
        group = arguments.text_or_none("group", group)
        log, overdue = self._without_overdue(None if group is None else [group])
        return groups.group_metadata(log, self._uri, group, overdue)

    @answered
    def describe_consumer_groups(
        self,
        group_ids: Sequence[str],
        *,
        include_authorized_operations: bool = False,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> dict[str, Future[ConsumerGroupDescription]]:
        """Describe `group_ids` with their members; {group id: Future}. A group that does not exist is DEAD."""
        return self._each(
            names_of("group_ids", group_ids),
            lambda group_id: self._described(group_id, include_authorized_operations),
        )

    def _described(self, group_id: str, operations: bool) -> ConsumerGroupDescription:
        log, overdue = self._without_overdue([group_id])
        return groups.describe_group(log, self._uri, group_id, operations=operations, overdue=overdue)

    @answered
    def describe_consumer_group_lag(
        self,
        group_ids: Sequence[str],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> dict[str, Future[list[ConsumerGroupLag]]]:
        """Return how far `group_ids` are behind the end that `isolation_level` sees; {group id: Future}.

        The end is the last stable offset, or with ``READ_UNCOMMITTED`` the log end. Partitions are those that have a
        committed offset or a member.
        """
        arguments.integer("isolation_level", isolation_level, 0, 1)
        committed = isolation_level == IsolationLevel.READ_COMMITTED
        return self._each(
            names_of("group_ids", group_ids),
            lambda group_id: groups.group_lag(*self._without_overdue([group_id]), group_id, committed=committed),
        )

    @answered
    def remove_members_from_consumer_group(
        self,
        group_id: str,
        group_instance_ids: Iterable[str] | None = None,
        *,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> Future[list[str]]:
        """Remove the members of `group_id` with `group_instance_ids` (None: all members); return their member ids.

        Consumers that still run are fenced, and may join again. The future may raise ``UNKNOWN_MEMBER_ID``: there is no
        member with an instance id; no member is removed then.
        """
        group_id = arguments.identifier("group_id", group_id)
        named = None
        if group_instance_ids is not None:
            named = arguments.identifiers("group_instance_ids", group_instance_ids)
        return self._answer(lambda: groups.remove_members(self._without_overdue([group_id])[0], group_id, named))

    @answered
    def list_consumer_group_offsets(
        self,
        list_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions],
        *,
        require_stable: bool = False,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Return committed offsets of the groups in `list_consumer_group_offsets_request`; {group id: Future}.

        With `require_stable` an offset that an open transaction holds is an error.
        """
        name, asked = "list_consumer_group_offsets_request", list_consumer_group_offsets_request
        return self._each(
            list_of(name, asked, ConsumerGroupTopicPartitions),
            lambda asked: groups.group_offsets(self._refreshed(), asked, require_stable=require_stable),
            lambda asked: asked.group_id,
        )

    @answered
    def alter_consumer_group_offsets(
        self,
        alter_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions],
        *,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Set offsets as `alter_consumer_group_offsets_request` says, each group's all or none; {group id: Future}.

        The futures may raise ``UNKNOWN_MEMBER_ID``: the group has members.
        """
        name, wanted = "alter_consumer_group_offsets_request", alter_consumer_group_offsets_request
        return self._for_each_group(name, wanted, groups.alter_group_offsets)

    @answered
    def delete_consumer_group_offsets(
        self,
        delete_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions],
        *,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Forget the offsets that `delete_consumer_group_offsets_request` names; {group id: Future}.

        Those inside open transactions, too.

        The futures may raise ``GROUP_ID_NOT_FOUND``; ``GROUP_SUBSCRIBED_TO_TOPIC`` or ``NON_EMPTY_GROUP``: the group
        has members.
        """
        name, wanted = "delete_consumer_group_offsets_request", delete_consumer_group_offsets_request
        return self._for_each_group(name, wanted, groups.delete_group_offsets)

    @answered
    def delete_consumer_groups(
        self, group_ids: Sequence[str], *, request_timeout: float | None = REQUEST_TIMEOUT_S
    ) -> dict[str, Future[None]]:
        """Forget `group_ids` with all their offsets, those inside open transactions too; {group id: Future}.

        The futures may raise ``GROUP_ID_NOT_FOUND``; ``NON_EMPTY_GROUP``: the group has members.
        """
        return self._each(
            names_of("group_ids", group_ids),
            lambda group_id: groups.delete_group(self._without_overdue([group_id])[0], group_id),
        )

    def _for_each_group(
        self,
        name: str,
        wanted: Sequence[ConsumerGroupTopicPartitions],
        change: Callable[[Log, ConsumerGroupTopicPartitions], ConsumerGroupTopicPartitions],
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Change offsets of groups, of which the argument `name` is a list; {group id: Future}."""
        return self._each(
            list_of(name, wanted, ConsumerGroupTopicPartitions),
            lambda each: change(self._without_overdue([each.group_id])[0], each),
            lambda each: each.group_id,
        )

    def _without_overdue(self, group_ids: Sequence[str] | None = None) -> tuple[Log, Overdue]:
        """Return the log at its newest entry, after the overdue members of some groups, or of all, were taken out.

        Those that could not be taken out are returned, too.
        """
        log = self._refreshed()
        if group_ids is None:
            named = [group.group_id for group in log.groups()]
        else:
            named = [name for group_id in group_ids for name in (group_id, members_name(group_id))]
        if expire_overdue(log, named):
            return log, frozenset()
        seen = [member for members in seen_members(log, group_ids).values() for member in members]
        return log, frozenset((one.group_id, one.state.member_id) for one in seen if one.is_overdue)


# Producers of a partition, as its log knows them (KIP-664).


class ProducerState(Struct, frozen=True):
    """A producer in a partition. `coordinator_epoch` is the entry that last ended a transaction of it, -1 for none.

    `current_transaction_start_offset` is None while it has no open transaction there.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int | None


class PartitionProducerState(Struct, frozen=True):
    """The producers of a partition that have not expired, by producer id."""

    active_producers: list[ProducerState]


def describe_producers(log: Log, partition: TopicPartition) -> PartitionProducerState:
    """Return a partition's producers as last known (K124).

    Raises:
        KafkaException: ``UNKNOWN_TOPIC_OR_PARTITION``.
    """
    topic = existing_topic(log, partition.topic)
    if not 0 <= partition.partition < topic.partition_count:
        reason = f"topic {topic.name!r} has partitions 0 to {topic.partition_count - 1}, not {partition.partition}"
        raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
    found = log.producers(topic.topic_id, partition.partition)
    return PartitionProducerState(
        [
            ProducerState(
                known.producer_id,
                known.producer_epoch,
                known.last_sequence,
                known.timestamp_ms,
                known.coordinator_epoch,
                None if known.current_transaction_first_offset < 0 else known.current_transaction_first_offset,
            )
            for known in found
        ]
    )


class AdminClient(GroupCalls, HalfMessageCalls, UnsupportedCalls):
    """Administers the store at ``bootstrap.servers``, which the first `create_topics` makes if it is missing.

    Any other call on a missing store answers StoreNotFound. `request_timeout` and `timeout` bound a call, in seconds.
    `operation_timeout` is accepted for confluent-kafka's sake: an operation is complete when it is answered.
    `validate_only` checks a change, and makes none. `include_authorized_operations` adds all operations to an answer.

    Args:
        config: settings under librdkafka's dotted names; as keywords, ``_`` means ``.``.
    """

    # Topics

    @answered
    def create_topics(
        self,
        new_topics: Sequence[NewTopic],
        *,
        operation_timeout: float = 0.0,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
        validate_only: bool = False,
    ) -> dict[str, Future[None]]:
        """Create `new_topics`, and the store if it is missing; {name: Future}.

        The futures raise KafkaException: ``TOPIC_ALREADY_EXISTS``, ``INVALID_TOPIC``, ``INVALID_PARTITIONS``,
        ``INVALID_CONFIG``.
        """

        def create(new: NewTopic) -> None:
            # Before the store is made: a wrong topic must not leave an empty one behind.
            topiccalls.checked(new, "")
            log = self._log(create=not validate_only)
            topiccalls.create_topic(log, new, validate_only=validate_only)

        return self._each(list_of("new_topics", new_topics, NewTopic), create, lambda new: new.topic)

    @answered
    def delete_topics(
        self,
        topics: Sequence[str],
        *,
        operation_timeout: float = 0.0,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> dict[str, Future[None]]:
        """Delete `topics` with all their records; {name: Future}."""
        return self._each(names_of("topics", topics), lambda name: topiccalls.delete_topic(self._log(), name))

    @answered
    def create_partitions(
        self,
        new_partitions: Sequence[NewPartitions],
        *,
        operation_timeout: float = 0.0,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
        validate_only: bool = False,
    ) -> dict[str, Future[None]]:
        """Add empty partitions as `new_partitions` say; {name: Future}.

        The futures may raise ``INVALID_PARTITIONS``.
        """
        return self._each(
            list_of("new_partitions", new_partitions, NewPartitions),
            lambda new: topiccalls.create_partitions(self._log(), new, validate_only=validate_only),
            lambda new: new.topic,
        )

    @answered
    def add_columns(
        self,
        new_columns: Mapping[str, pa.Schema],
        *,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
        validate_only: bool = False,
    ) -> dict[str, Future[None]]:
        """Add nullable columns to typed topics; {topic: Future}. `new_columns` has them by topic.

        Earlier records have null there. A column that a topic has with the same type is left as it is. The futures may
        raise ``INVALID_CONFIG``.
        """
        given = arguments.mapping("new_columns", new_columns)

        def add(item: tuple[str, pa.Schema]) -> None:
            name = arguments.identifier("a topic of new_columns", item[0])
            schema = arguments.instance(f"new_columns[{name!r}]", item[1], pa.Schema)
            topiccalls.add_columns(self._log(), name, schema, validate_only=validate_only)

        return self._each(given.items(), add, lambda item: item[0])

    @in_time("timeout", clock_of)
    def list_topics(self, topic: str | None = None, timeout: float | None = -1.0) -> ClusterMetadata:
        """Return all topics, or `topic` alone.

        Raises:
            StoreNotFound: there is no store.
        """
        topic = arguments.text_or_none("topic", topic)
        return cluster_metadata(self._uri, self._refreshed().listed_topics(topic), topic)

    @answered
    def describe_topics(
        self,
        topics: TopicCollection | Sequence[str],
        *,
        include_authorized_operations: bool = False,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> dict[str, Future[TopicDescription]]:
        """Describe `topics`; {name: Future}. There are no access control lists: all operations are authorized."""
        names = topics.topic_names if isinstance(topics, TopicCollection) else topics
        return self._each(
            names_of("topics", names),
            lambda name: topiccalls.describe_topic(
                self._refreshed(), self._uri, name, operations=include_authorized_operations
            ),
        )

    @answered
    def describe_configs(
        self, resources: Sequence[ConfigResource], *, request_timeout: float | None = REQUEST_TIMEOUT_S
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        """Return all settings of `resources`: topics, or the store; {resource: Future of {name: ConfigEntry}}.

        The store is ``ConfigResource("BROKER", "0")``: what it sets is the default of topics that do not set it.
        """
        return self._each(
            list_of("resources", resources, ConfigResource),
            lambda resource: configs.describe_configs(self._refreshed(), resource),
        )

    @answered
    def incremental_alter_configs(
        self,
        resources: Sequence[ConfigResource],
        *,
        validate_only: bool = False,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> dict[ConfigResource, Future[None]]:
        """Change settings of `resources`, as their `incremental_configs` say; {resource: Future}.

        APPEND and SUBTRACT are for lists, such as ``cleanup.policy``: a word that is there already, or is not, is left.
        """
        return self._alter(resources, partial(configs.alter_configs, validate_only=validate_only))

    @answered
    def alter_configs(
        self,
        resources: Sequence[ConfigResource],
        *,
        validate_only: bool = False,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> dict[ConfigResource, Future[None]]:
        """Give `resources` the settings of `set_config`, and all others their defaults; {resource: Future}.

        Prefer `incremental_alter_configs`, which leaves other settings as they are.
        """
        return self._alter(resources, partial(configs.replace_configs, validate_only=validate_only))

    def _alter(
        self, resources: Sequence[ConfigResource], change: Callable[[Log, ConfigResource], None]
    ) -> dict[ConfigResource, Future[None]]:
        given = list_of("resources", resources, ConfigResource)

        def alter(resource: ConfigResource) -> None:
            configs.check_given_once(resource, given)
            change(self._log(), resource)

        return self._each(given, alter)

    # Records

    @answered
    def list_offsets(
        self,
        topic_partition_offsets: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        """Return for each partition the offset that its OffsetSpec in `topic_partition_offsets` asks for.

        {partition: Future}; the keys keep what was asked for. With READ_COMMITTED as `isolation_level` the latest
        offset is the last stable one.
        """
        offsets = _offset_specs(topic_partition_offsets)
        arguments.integer("isolation_level", isolation_level, 0, 1)
        committed = isolation_level == IsolationLevel.READ_COMMITTED
        isolation: Isolation = "read_committed" if committed else "read_uncommitted"

        return self._together(
            [asked_of(*item) for item in offsets.items()],
            lambda: records.list_offsets(self._log(), self._uri, list(offsets.items()), isolation),
        )

    @answered
    def delete_records(
        self,
        topic_partition_offsets: Sequence[TopicPartition],
        *,
        operation_timeout: float = 0.0,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> dict[TopicPartition, Future[DeletedRecords]]:
        """Delete the records before the offsets of `topic_partition_offsets` (OFFSET_END: all); {partition: Future}."""
        return self._each(
            list_of("topic_partition_offsets", topic_partition_offsets, TopicPartition),
            lambda partition: records.delete_records(self._log(), partition),
        )

    # Transactions (KIP-664)

    @answered
    def list_transactions(
        self,
        *,
        states: Iterable[TransactionState | str] | None = None,
        producer_ids: Iterable[int] | None = None,
        duration_filter_ms: int = -1,
        transactional_id_pattern: str | None = None,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> Future[list[TransactionListing]]:
        """Return the transactional ids that pass every filter that is given, by name.

        `states` and `producer_ids` are those that pass. `duration_filter_ms` lets those pass whose last transaction
        began longer ago. `transactional_id_pattern` is a regular expression of RE2 for the whole id. A state that does
        not exist is reported by a warning.
        """
        named = None if states is None else arguments.items("states", states, str)
        ids = None if producer_ids is None else _producer_ids(producer_ids)
        duration_filter_ms = arguments.integer("duration_filter_ms", duration_filter_ms)
        transactional_id_pattern = arguments.text_or_none("transactional_id_pattern", transactional_id_pattern)
        return self._answer(
            lambda: transactions.list_transactions(
                self._refreshed(), named, ids, duration_filter_ms, transactional_id_pattern
            )
        )

    @answered
    def describe_transactions(
        self, transactional_ids: Sequence[str], *, request_timeout: float | None = REQUEST_TIMEOUT_S
    ) -> dict[str, Future[TransactionDescription]]:
        """Describe `transactional_ids`; {id: Future}. The futures may raise ``TRANSACTIONAL_ID_NOT_FOUND``."""
        return self._each(
            names_of("transactional_ids", transactional_ids),
            lambda name: transactions.describe_transaction(self._refreshed(), name),
        )

    @answered
    def describe_producers(
        self, topic_partitions: Sequence[TopicPartition], *, request_timeout: float | None = REQUEST_TIMEOUT_S
    ) -> dict[TopicPartition, Future[PartitionProducerState]]:
        """Return the producers of `topic_partitions`; {partition: Future}."""
        return self._each(
            list_of("topic_partitions", topic_partitions, TopicPartition),
            lambda partition: describe_producers(self._refreshed(), partition),
        )

    @answered
    def abort_transaction(
        self, spec: AbortTransactionSpec, *, request_timeout: float | None = REQUEST_TIMEOUT_S
    ) -> Future[None]:
        """Abort the open transaction that `spec` names, in all its partitions, and fence its producer.

        The future may raise ``INVALID_TXN_STATE`` (it is not open there), ``INVALID_PRODUCER_EPOCH``,
        ``TRANSACTION_COORDINATOR_FENCED``.
        """
        arguments.instance("spec", spec, AbortTransactionSpec)
        return self._answer(lambda: transactions.abort_transaction(self._log(), spec))

    @answered
    def fence_producers(
        self, transactional_ids: Sequence[str], *, request_timeout: float | None = REQUEST_TIMEOUT_S
    ) -> dict[str, Future[ProducerIdAndEpoch]]:
        """Fence the producers of `transactional_ids`, and abort what they left open or prepared.

        {id: Future of the identity that this has taken}.
        """
        return self._each(
            names_of("transactional_ids", transactional_ids),
            lambda name: transactions.fence_producer(self._refreshed(), name),
        )

    @answered
    def find_hanging_transactions(
        self,
        *,
        topic: str | None = None,
        partition: int | None = None,
        max_transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS_MAX,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> Future[list[HangingTransaction]]:
        """Return unprepared transactions that hold up a partition longer than `max_transaction_timeout_ms`.

        None as `topic` is all topics, and None as `partition` all its partitions.

        Raises:
            ValueError: a partition is given without its topic.
        """
        topic = arguments.text_or_none("topic", topic)
        partition = arguments.integer_or_none("partition", partition, 0, arguments.INT32_MAX)
        max_transaction_timeout_ms = arguments.integer("max_transaction_timeout_ms", max_transaction_timeout_ms)
        if partition is not None and topic is None:
            raise ValueError(f"partition {partition} of which topic? give topic=, too")

        def find() -> list[HangingTransaction]:
            log = self._refreshed()
            where = log.topics() if topic is None else [topiccalls.existing_topic(log, topic)]
            return transactions.find_hanging_transactions(log, where, partition, max_transaction_timeout_ms)

        return self._answer(find)

    @answered
    def describe_cluster(
        self, *, include_authorized_operations: bool = False, request_timeout: float | None = REQUEST_TIMEOUT_S
    ) -> Future[DescribeClusterResult]:
        """Return the store as a cluster of one node."""

        def describe() -> DescribeClusterResult:
            node = node_of(self._uri)
            operations = list(CLUSTER_OPERATIONS) if include_authorized_operations else None
            return DescribeClusterResult(self._log().store_id, node, [node], operations)

        return self._answer(describe)


def _producer_ids(given: object) -> list[int]:
    return [
        arguments.integer(f"producer_ids[{place}]", item)
        for place, item in enumerate(arguments.items("producer_ids", given, object))
    ]


def _offset_specs(given: object) -> dict[TopicPartition, OffsetSpec]:
    name = "topic_partition_offsets"
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} is {arguments.described(given)}: expected a dict of OffsetSpec by TopicPartition")
    return {
        arguments.instance(f"a key of {name}", key, TopicPartition): arguments.instance(
            f"{name}[{key}]", spec, OffsetSpec
        )
        for key, spec in given.items()
    }
