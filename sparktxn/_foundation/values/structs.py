"""Frozen values that all layers share: the names of partitions, and the records of the state.

The records are what `state/` computes and what a checkpoint stores. Each has a `key`; the state is a mapping from
keys to records and nothing else. `docs/PROTOCOL.md` ("State") lists them with their fields.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from sparktxn._foundation.values.fieldtypes import (
    Checksum,
    Columns,
    Int64,
    Natural,
    NaturalOrNone,
    Positive,
    SealedFolder,
    SegmentFile,
    StateKey,
    StoredTopicIdPartition,
    TopicNameText,
)
from sparktxn._foundation.values.quantities import html_table
from sparktxn._foundation.values.segmentstructs import (
    CommittedTransaction,
    CompactedPrefix,
    CompactedSegment,
    Compaction,
    CompactionPass,
    FilePart,
    ManifestRef,
    RewrittenRange,
    RewrittenSegment,
    SegmentRef,
)

__all__ = [
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TRANSACTION",
    "AbortedTransaction",
    "BatchMetadata",
    "Checksum",
    "CommittedOffset",
    "CommittedTransaction",
    "CompactedPrefix",
    "CompactedSegment",
    "Compaction",
    "CompactionPass",
    "EmptyGroup",
    "FilePart",
    "GroupState",
    "HalfDue",
    "HalfOutcome",
    "HalfOutcomes",
    "HalfSegment",
    "HalfState",
    "HeldPartition",
    "Int64",
    "IntentWindow",
    "KeptVersion",
    "ManifestRef",
    "MemberState",
    "Natural",
    "NaturalOrNone",
    "OffsetToCommit",
    "OpenTransaction",
    "PartitionSegments",
    "PartitionState",
    "PendingOffset",
    "PendingOffsets",
    "Positive",
    "PreparedOutcome",
    "ProducerIdAndEpoch",
    "ProducerState",
    "PublishedPartition",
    "PublishedPlaces",
    "RequestResult",
    "RequestWindow",
    "RewrittenRange",
    "RewrittenSegment",
    "SealedFolder",
    "SegmentFile",
    "SegmentRef",
    "SettledHalf",
    "SettledIntent",
    "SinkBatch",
    "SinkState",
    "StateKey",
    "StateRecord",
    "StoreState",
    "SubscribedTopic",
    "TableState",
    "TableToPublish",
    "TopicName",
    "TopicNameText",
    "TopicState",
    "TransactionState",
    "TransactionStatus",
]


# The records of consumer groups: a group with members, its members, since when it has none, and who subscribes.


class GroupState(Struct, frozen=True, gc=False, tag="group", forbid_unknown_fields=True):
    """A consumer group that has members. `epoch` is the entry that last changed the targets of its members."""

    group_id: str
    epoch: Positive
    assignor: str
    members: tuple[str, ...]

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("group", self.group_id)


class EmptyGroup(Struct, frozen=True, gc=False, tag="empty_group", forbid_unknown_fields=True):
    """A consumer group whose last member has gone: in which entry, and that entry's timestamp (KIP-211)."""

    group_id: str
    entry: Positive
    timestamp_ms: Int64

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("empty_group", self.group_id)


class HeldPartition(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A partition that a member holds, with the group's epoch since which it does (KIP-1251)."""

    topic_id: Int64
    partition: Natural
    since_epoch: Positive


class MemberState(Struct, frozen=True, gc=False, tag="member", forbid_unknown_fields=True):
    """A member of a consumer group.

    It holds the partitions in `assigned` and those in `revoking`, which it is asked to give back. `target` is what it
    is to hold in the group's epoch; it has reached that once `member_epoch` is the group's. `left` is True for a static
    member that is away and keeps its place. `last_entry` is the last entry with a command that names the member,
    `changed_entry` the one since which `revoking` is what it is, 0 while it is empty.
    """

    group_id: str
    member_id: str
    instance_id: str
    client_id: str
    host: str
    topics: tuple[str, ...]
    session_timeout_ms: Positive
    rebalance_timeout_ms: Positive
    assignors: tuple[str, ...]
    classic: bool
    member_epoch: Natural
    left: bool = False
    target: tuple[StoredTopicIdPartition, ...] = ()
    assigned: tuple[HeldPartition, ...] = ()
    revoking: tuple[HeldPartition, ...] = ()
    last_entry: Natural = 0
    changed_entry: Natural = 0

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("member", self.group_id, self.member_id)


class SubscribedTopic(Struct, frozen=True, gc=False, tag="subscribers", forbid_unknown_fields=True):
    """The groups with a member that subscribes to a topic, which need not exist."""

    name: TopicNameText
    group_ids: tuple[str, ...]

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("subscribers", self.name)


class OffsetToCommit(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """One partition's offset in an offset commit: the next offset to read.

    `started_from` is the `effective_entry` of the committed offset that the owner has started from, 0 if there was
    none. It is -1 if the owner has not started from any: then nothing is compared.
    """

    topic_id: Int64
    partition: Int64
    offset: Int64
    metadata: str | None = None
    leader_epoch: Int64 = -1
    started_from: Int64 = -1


# Frozen values of published tables: which version a topic has, and where its records were then.


class KeptVersion(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A version of a table, the entry that has published it, and the time of that entry."""

    version: Natural
    published_entry: Positive
    timestamp_ms: Int64


class TableState(Struct, frozen=True, gc=False, tag="table", forbid_unknown_fields=True):
    """The newest version of a topic's table: what entries up to `entry` have committed, published by `published_entry`.

    `name` and `partition_count` are the topic's, `formats` those of its setting. `columns` are the declared ones that
    the version has; None for Kafka's record. `is_new_schema` is True if the version before has other ones, or there is
    none. `changed_version` is the newest version with other files or columns than the one before it.
    `entry_before` is the entry that the version before shows, or 0. `location` is the address of the topic's
    folder for other engines. `kept` has the oldest version that can be read, the newest one, and some between them:
    all from the oldest on can be read. `is_deleted` is True once the topic is gone, and the table is empty.
    """

    topic_id: Positive
    name: TopicNameText
    partition_count: Positive
    version: Natural
    entry: Natural
    entry_before: Natural
    published_entry: Positive
    timestamp_ms: Int64
    location: str
    columns: Columns | None
    is_new_schema: bool
    changed_version: Natural
    formats: tuple[str, ...]
    kept: tuple[KeptVersion, ...]
    is_deleted: bool = False

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("table", self.topic_id)

    @property
    def needs_entry(self) -> int | None:
        """The entry from which on the log must be kept, for versions with other files than the newest one has.

        None if there is none.
        """
        oldest = self.kept[0]
        return oldest.published_entry if oldest.version < self.changed_version else None


class PublishedPlaces(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """What a version of a table has of a partition: the files of `ranges` with records from the log start on."""

    log_start_offset: Natural = 0
    ranges: tuple[RewrittenRange, ...] = ()


class PublishedPartition(Struct, frozen=True, gc=False, tag="published", forbid_unknown_fields=True):
    """A partition of a published table. `version` is the newest one that has changed it, from `before` to `current`."""

    topic_id: Positive
    partition: Natural
    version: Natural
    current: PublishedPlaces
    before: PublishedPlaces = PublishedPlaces()

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("published", self.topic_id, self.partition)


class TableToPublish(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A topic, and what the publisher has seen of it: `version` is the next one of its table.

    `location` is the address of the topic's folder, as other engines reach it. `first_version` is the oldest one that
    can be read from then on. `column_count` is 0 for Kafka's record, `log_starts` has the log start of each partition.
    Of a deleted topic both are empty.
    """

    name: str
    topic_id: Int64
    version: Int64
    location: str
    first_version: Int64
    column_count: Int64 = 0
    log_starts: tuple[Int64, ...] = ()


NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TRANSACTION: Final = -1


class TransactionStatus(IntEnum):
    """Kafka's transaction states with their persisted ids (kafka TransactionState)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


class ProducerIdAndEpoch(Struct, frozen=True, forbid_unknown_fields=True):
    """A producer's identity."""

    producer_id: Int64
    producer_epoch: Int64


class AbortedTransaction(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A range to filter (kafka AbortedTxn): `last_offset` is that of the control record."""

    producer_id: Natural
    first_offset: Natural
    last_offset: Natural
    last_stable_offset: Natural


class OpenTransaction(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A producer whose transaction has published records in the partition and has not ended."""

    producer_id: Natural
    first_offset: Natural
    transactional_id: str = ""


class BatchMetadata(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """One of a producer's last five batches in a partition (kafka BatchMetadata), with its transaction.

    `token` is that of the segment's name: the sequences say that a batch may be a repetition, the token that it is one.
    """

    first_sequence: Natural
    last_sequence: Natural
    base_offset: Natural
    timestamp_ms: Int64
    transaction: NaturalOrNone
    aborted: bool = False
    token: str = ""


class StoreState(Struct, frozen=True, gc=False, tag="store", forbid_unknown_fields=True):
    """What belongs to the whole store.

    `settings` are defaults of all topics that do not set them. Where there are none the record does not name them, so
    that a checkpoint of a store without any stays what a replay gives.
    """

    next_producer_id: Natural = 0
    next_topic_id: Positive = 1
    horizon: Positive = 1
    segment_floor: Natural = 0
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()
    settings: dict[str, str] | UnsetType = UNSET

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("store",)

    @property
    def topic_defaults(self) -> dict[str, str]:
        """The settings, none too."""
        return self.settings or {}


class TopicState(Struct, frozen=True, gc=False, tag="topic", forbid_unknown_fields=True):
    """A topic. `schema` is the declared columns as (name, type, nullable), or None for Kafka's record."""

    name: TopicNameText
    topic_id: Int64
    partition_count: Positive
    settings: dict[str, str]
    schema: tuple[tuple[str, str, bool], ...] | None
    created_entry: Natural

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("topic", self.name)

    @property
    def is_internal(self) -> bool:
        """Whether the topic is computed from the log (`state/internal.py`): the ids of those alone are negative."""
        return self.topic_id < 0

    def _repr_html_(self) -> str:
        columns = None if self.schema is None else ", ".join(f"{name} {kind}" for name, kind, _ in self.schema)
        rows = [("partitions", self.partition_count), ("columns", columns or "Kafka's record"), *self.settings.items()]
        return html_table(f"topic {self.name}", ("", ""), rows)


class PartitionState(Struct, frozen=True, gc=False, tag="partition", forbid_unknown_fields=True):
    """What validation asks of a partition. It gives the last stable offset (`state/transactions/partitions.py`).

    `keyed` is True if its topic has a key; a record of another one does not name it.
    """

    topic_id: Positive
    partition: Natural
    log_start_offset: Natural = 0
    log_end_offset: Natural = 0
    open_transactions: tuple[OpenTransaction, ...] = ()
    keyed: bool | UnsetType = UNSET

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("partition", self.topic_id, self.partition)


class PartitionSegments(Struct, frozen=True, gc=False, tag="segments", forbid_unknown_fields=True):
    """Where a partition's records are: sealed runs, then single segments, and the ended transactions not yet sealed.

    Segments of both that begin within a range of `rewritten` are replaced by those of that range; these ranges have no
    offset in common. `compacted` says up to where the records are compacted by key. Which segments are sealed differs
    between processes: validation asks `rewritten` and `compacted`, and nothing else of this record.
    """

    topic_id: Positive
    partition: Natural
    sealed: tuple[ManifestRef, ...] = ()
    segments: tuple[SegmentRef, ...] = ()
    aborted: tuple[AbortedTransaction, ...] = ()
    committed: tuple[CommittedTransaction, ...] = ()
    rewritten: tuple[RewrittenRange, ...] = ()
    compacted: CompactedPrefix | None = None

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("segments", self.topic_id, self.partition)


class ProducerState(Struct, frozen=True, gc=False, tag="producer", forbid_unknown_fields=True):
    """A producer in a partition (kafka ProducerStateEntry)."""

    topic_id: Positive
    partition: Natural
    producer_id: Natural
    producer_epoch: NaturalOrNone
    batches: tuple[BatchMetadata, ...] = ()
    timestamp_ms: Int64 = -1
    coordinator_epoch: NaturalOrNone = -1
    current_transaction_first_offset: NaturalOrNone = -1

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("producer", self.topic_id, self.partition, self.producer_id)

    @property
    def last_sequence(self) -> int:
        """The last sequence stored, or -1."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class SinkBatch(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A committed micro-batch or application version, with the digest of its rows and bytes per partition."""

    batch_id: Int64
    fingerprint: str
    entry: Int64


class SinkState(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """What exactly-once sinks need (PROTOCOL.md, "Micro-batches"): one writer's runs and last batches."""

    writer_id: str
    run_id: str
    superseded_runs: tuple[str, ...] = ()
    past_writers: tuple[str, ...] = ()
    batches: tuple[SinkBatch, ...] = ()


class PreparedOutcome(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """How a prepared transaction has ended, by the identity that prepared it."""

    producer_id: Int64
    producer_epoch: Int64
    transaction: Int64
    committed: bool


class TransactionState(Struct, frozen=True, gc=False, tag="transaction", forbid_unknown_fields=True):
    """A transactional id (kafka TransactionMetadata), with the number of its current or last transaction.

    `start_entry` is the entry that began the current or last transaction. `prepared` is the identity that prepared the
    ongoing one, or None; `last_prepared` is how the last prepared one has ended. `pending_sink` is what `sink` becomes
    if the ongoing transaction commits.
    """

    transactional_id: str
    producer_id: Natural
    producer_epoch: NaturalOrNone
    last_producer_epoch: Int64
    previous_producer_id: Int64
    timeout_ms: Int64
    status: TransactionStatus
    transaction: NaturalOrNone
    committed: bool
    partitions: tuple[StoredTopicIdPartition, ...] = ()
    offsets: tuple[tuple[str, Int64, Int64], ...] = ()
    start_timestamp_ms: Int64 = -1
    last_update_timestamp_ms: Int64 = -1
    request_id: str = ""
    fence_reason: str = ""
    sink: SinkState | None = None
    pending_sink: SinkState | None = None
    start_entry: Int64 = -1
    prepared: ProducerIdAndEpoch | None = None
    last_prepared: PreparedOutcome | None = None

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("transaction", self.transactional_id)


class CommittedOffset(Struct, frozen=True, gc=False, tag="offset", forbid_unknown_fields=True):
    """A group's committed offset for a partition.

    `entry` is the entry that it was sent in, `effective_entry` the one that made it take effect. For an offset in a
    transaction that is the one that ends the transaction. `owner` is the consumer that sent it, empty if it is not
    known.
    """

    group_id: str
    topic_id: Int64
    partition: Natural
    offset: Natural
    metadata: str | None
    leader_epoch: Int64
    commit_timestamp_ms: Int64
    entry: Natural
    effective_entry: Natural = 0
    owner: str = ""

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("offset", self.group_id, self.topic_id, self.partition)


class PendingOffset(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """An offset inside an open transaction: it takes effect when that transaction commits (KIP-447)."""

    transactional_id: str
    producer_id: Natural
    offset: Natural
    metadata: str | None
    leader_epoch: Int64
    entry: Natural
    owner: str = ""


class PendingOffsets(Struct, frozen=True, gc=False, tag="pending_offsets", forbid_unknown_fields=True):
    """The offsets of a group for a partition that are in open transactions, one of each producer, by producer id."""

    group_id: str
    topic_id: Int64
    partition: Natural
    offsets: tuple[PendingOffset, ...]

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("pending_offsets", self.group_id, self.topic_id, self.partition)


class RequestResult(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A request id that an entry has applied, with the answer to its caller."""

    request_id: str
    entry: Int64
    topic_id: Int64 = -1
    producer_id: Int64 = -1
    producer_epoch: Int64 = -1
    transaction: Int64 = -1
    committed: bool = False
    prepared_producer_id: Int64 = -1
    prepared_producer_epoch: Int64 = -1


class RequestWindow(Struct, frozen=True, gc=False, tag="requests", forbid_unknown_fields=True):
    """The request ids of one bucket that the last entries have applied, oldest first: a repetition has no effect."""

    bucket: Int64
    requests: tuple[RequestResult, ...]

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("requests", self.bucket)


class SettledIntent(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """An intent that an entry has settled: applied (code 0), or refused or cancelled with a code and a reason."""

    intent_id: str
    refused_code: Int64 = 0
    reason: str = ""


class IntentWindow(Struct, frozen=True, gc=False, tag="intents", forbid_unknown_fields=True):
    """The intents that one of the last entries has settled: none of them takes effect again.

    `slot` is that entry's number modulo the window, so that a later entry takes the place of one that is past it.
    """

    slot: Int64
    entry: Int64
    settled: tuple[SettledIntent, ...]

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("intents", self.slot)


class HalfOutcome(IntEnum):
    """How a half transaction was settled."""

    COMMITTED = 1
    ROLLED_BACK = 2
    DELETED = 3


class HalfSegment(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A segment of a half transaction: it gets its place in the partition when the half is committed."""

    topic: str
    topic_id: Int64
    partition: Int64
    segment: str
    record_count: Int64
    size_bytes: Int64
    checksum: str
    timestamp_min_ms: Int64
    timestamp_max_ms: Int64


class HalfState(Struct, frozen=True, gc=False, tag="half", forbid_unknown_fields=True):
    """A half transaction that is not settled: pending, or discarded if `discarded_entry` is above 0.

    `checks` counts the checks that were claimed, `checker` is the token of the last claim. While it is pending,
    `due_ms` is when the next check is due.
    """

    group_id: str
    transaction_id: str
    segments: tuple[HalfSegment, ...]
    immunity_ms: Natural
    prepared_entry: Positive
    prepared_timestamp_ms: Int64
    due_ms: Int64
    checks: Natural = 0
    checker: str = ""
    discarded_entry: Natural = 0

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("half", self.group_id, self.transaction_id)


class HalfDue(Struct, frozen=True, gc=False, tag="half_due", forbid_unknown_fields=True):
    """When the next check of a pending half transaction is due: an index by due time.

    It is to wait for `wait_ms` from `entry` on.
    """

    group_id: str
    slot: Int64
    transaction_id: str
    due_ms: Int64
    wait_ms: Natural
    entry: Positive

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("half_due", self.group_id, self.slot, self.transaction_id)


class SettledHalf(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """How a half transaction was settled, from where, and by which entry. `token` is that of its last segment."""

    group_id: str
    transaction_id: str
    outcome: HalfOutcome
    source: str
    entry: Positive
    token: str


class HalfOutcomes(Struct, frozen=True, gc=False, tag="half_outcomes", forbid_unknown_fields=True):
    """The half transactions of one bucket that were settled last, oldest first."""

    bucket: Int64
    settled: tuple[SettledHalf, ...]

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("half_outcomes", self.bucket)


class TopicName(Struct, frozen=True, gc=False, tag="topic_name", forbid_unknown_fields=True):
    """Which topic holds a name in which '.' and '_' count as equal: Kafka refuses a second one."""

    collision_key: str
    name: TopicNameText

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("topic_name", self.collision_key)


StateRecord = (
    StoreState
    | TopicState
    | PartitionState
    | PartitionSegments
    | ProducerState
    | TransactionState
    | CommittedOffset
    | PendingOffsets
    | GroupState
    | EmptyGroup
    | MemberState
    | SubscribedTopic
    | RequestWindow
    | IntentWindow
    | TopicName
    | HalfState
    | HalfDue
    | HalfOutcomes
    | TableState
    | PublishedPartition
)
