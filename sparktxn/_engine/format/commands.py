"""The commands of log entries (PROTOCOL.md, "Commands"), named after Kafka's requests where it has one.

A command is a frozen value with a ``type``. Unknown members and missing ones are errors while decoding, so that a
command is either understood whole or not applied at all.
"""

from __future__ import annotations

from typing import ClassVar, Final

from msgspec import Struct

from sparktxn._foundation.values.fieldtypes import StoredTopicIdPartition
from sparktxn._foundation.values.structs import (
    Compaction,
    HalfSegment,
    Int64,
    ManifestRef,
    OffsetToCommit,
    TableToPublish,
)

__all__ = [
    "AddOffsetsToTxn",
    "AddPartitionsToTxn",
    "AlterStore",
    "AlterTopic",
    "Append",
    "Appends",
    "CancelIntent",
    "CheckHalf",
    "Command",
    "CommandResult",
    "CreatePartitions",
    "CreateTopic",
    "DeleteGroup",
    "DeleteHalf",
    "DeleteRecords",
    "DeleteTopic",
    "DiscardHalf",
    "EndHalf",
    "EndTxn",
    "ExpectEndOffset",
    "ExpireMember",
    "ExpireOffsets",
    "ExpireProducers",
    "ExpireTransactionalId",
    "InitProducerId",
    "JoinGroup",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetToCommit",
    "PrepareHalf",
    "PrepareTxn",
    "PublishTables",
    "ReleasePartitions",
    "RequireFeatures",
    "ResumeHalf",
    "Rewrite",
    "SettleIntent",
    "SinkBatchCommit",
    "TableToPublish",
    "TxnOffsetCommit",
    "UpdateMember",
    "Vacuum",
]


_SHORT: Final = {
    "base_sequence": "sequence",
    "checksum": "crc",
    "generation_id": "generation",
    "group_id": "group",
    "member_id": "member",
    "producer_epoch": "epoch",
    "producer_id": "producer",
    "record_count": "records",
    "request_id": "request",
    "size_bytes": "bytes",
    "timestamp_max_ms": "max_ms",
    "timestamp_min_ms": "min_ms",
    "topic_id": "topic",
    "transaction": "txn",
    "transactional_id": "txn_id",
}
"""The names that entries have for members which occur in most of them; every other member has its own."""


class _Base(
    Struct, frozen=True, gc=False, tag_field="type", forbid_unknown_fields=True, omit_defaults=True, rename=_SHORT
):
    """What all commands share. Those that `may_travel` may be put by another process, see `format/entry.py`."""

    may_travel: ClassVar[bool] = False


class _Travelling(_Base, frozen=True):
    """What a client sends over and over."""

    may_travel: ClassVar[bool] = True


class CreateTopic(_Base, frozen=True, tag="create_topic"):
    """Creates a topic; the state assigns its id."""

    request_id: str
    name: str
    partition_count: Int64
    settings: dict[str, str] = {}
    schema: tuple[tuple[str, str, bool], ...] | None = None


class AlterTopic(_Base, frozen=True, tag="alter_topic"):
    """Sets settings (None removes one) and adds nullable columns at the end of a typed topic's schema."""

    request_id: str
    name: str
    topic_id: Int64
    settings: dict[str, str | None] = {}
    new_columns: tuple[tuple[str, str, bool], ...] = ()


class AlterStore(_Base, frozen=True, tag="alter_store"):
    """Sets settings of the store (None removes one): defaults of all topics that do not set them."""

    request_id: str
    settings: dict[str, str | None]


class CreatePartitions(_Base, frozen=True, tag="create_partitions"):
    """Raises a topic's partition count to `partition_count`."""

    request_id: str
    name: str
    topic_id: Int64
    partition_count: Int64


class DeleteTopic(_Base, frozen=True, tag="delete_topic"):
    """Deletes a topic: its name may be used again, under another id."""

    request_id: str
    name: str
    topic_id: Int64


class InitProducerId(_Base, frozen=True, tag="init_producer_id"):
    """Allocates or bumps (producer id, epoch); aborts an ongoing transaction of the transactional id (K01 to K17).

    `producer_id` and `producer_epoch` are those that the caller has had, or -1 (KIP-360). With `keep_prepared` a
    prepared transaction stays open, for the new epoch to complete (KIP-939). `fence_reason` is the reason for the
    producer that this fences, if it is not that a newer one has initialised the id.
    """

    request_id: str
    transactional_id: str | None = None
    timeout_ms: Int64 = 60_000
    producer_id: Int64 = -1
    producer_epoch: Int64 = -1
    keep_prepared: bool = False
    fence_reason: str = ""


class AddPartitionsToTxn(_Travelling, frozen=True, tag="add_partitions_to_txn"):
    """Registers partitions as (topic id, partition) in a transaction before anything is appended to them."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int64
    transaction: Int64
    partitions: tuple[StoredTopicIdPartition, ...]


class AddOffsetsToTxn(_Travelling, frozen=True, tag="add_offsets_to_txn"):
    """Opens a transaction that will commit offsets of a group."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int64
    transaction: Int64
    group_id: str


class Append(_Travelling, frozen=True, tag="append"):
    """Names a segment at a partition's end. `transactional_id` is None and `transaction` -1 outside transactions.

    `data` is the segment itself where `segment` is not an object's name: inline records.
    """

    topic_id: Int64
    partition: Int64
    segment: str
    record_count: Int64
    size_bytes: Int64
    checksum: str
    producer_id: Int64
    producer_epoch: Int64
    base_sequence: Int64
    timestamp_min_ms: Int64
    timestamp_max_ms: Int64
    transactional_id: str | None = None
    transaction: Int64 = -1
    data: bytes = b""


class Appends(_Base, frozen=True, tag="appends"):
    """`count` append commands from row `start` of an object: an entry has them where they would make it too large."""

    object: str
    checksum: str
    start: Int64
    count: Int64


class TxnOffsetCommit(_Travelling, frozen=True, tag="txn_offset_commit"):
    """A group's offsets inside a transaction (KIP-447): they take effect when it commits.

    `owner` names the consumer that has read up to them, by a token of its own, where it is not a member of the group. A
    member names itself, and as `generation_id` the member epoch that it knows.
    """

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int64
    transaction: Int64
    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    generation_id: Int64 = -1
    member_id: str = ""
    owner: str = ""
    instance_id: str = ""


class OffsetCommit(_Travelling, frozen=True, tag="offset_commit"):
    """A group's offsets outside a transaction. `owner` is as in `TxnOffsetCommit`."""

    request_id: str
    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    generation_id: Int64 = -1
    member_id: str = ""
    owner: str = ""
    instance_id: str = ""


class EndTxn(_Travelling, frozen=True, tag="end_txn"):
    """Commits or aborts one transaction, named by its number: a late one can settle only its own.

    An abort by another process than its producer bumps the epoch too and records the reason for that producer.
    `timed_out_after_ms` is above 0 if a time-out has caused it, else `fence_reason` is not empty.
    """

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int64
    transaction: Int64
    committed: bool
    timed_out_after_ms: Int64 = 0
    fence_reason: str = ""


class ExpectEndOffset(_Travelling, frozen=True, tag="expect_end_offset"):
    """Passes if the partition ends at `log_end_offset`: else the whole list is refused."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int64
    transaction: Int64
    topic_id: Int64
    partition: Int64
    log_end_offset: Int64


class PrepareTxn(_Travelling, frozen=True, tag="prepare_txn"):
    """Prepares the ongoing transaction: it takes nothing more and never times out until it is completed (KIP-939)."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int64
    transaction: Int64


class ExpireTransactionalId(_Base, frozen=True, tag="expire_transactional_id"):
    """Forgets an idle transactional id, if it still is what the proposer saw (K46)."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int64
    transaction: Int64


class ExpireProducers(_Base, frozen=True, tag="expire_producers"):
    """Forgets idle producers of a partition (K69).

    Each is (producer id, epoch, last sequence, entry of its last control record) as the proposer saw it. One that has
    appended or ended a transaction since, or has one open, is kept.
    """

    topic_id: Int64
    partition: Int64
    producers: tuple[tuple[Int64, Int64, Int64, Int64], ...]


class ExpireOffsets(_Base, frozen=True, tag="expire_offsets"):
    """Forgets committed offsets of a group: in partitions that no longer exist, and idle ones if it has no members.

    `partitions` are (topic id, partition), `idle` (topic id, partition, entry that made it take effect). `empty_entry`
    is the entry since which the group has no members, or 0 if that is not known: all as the proposer saw them. Without
    partitions and idle offsets the command forgets `empty_entry` itself.
    """

    group_id: str
    partitions: tuple[StoredTopicIdPartition, ...] = ()
    idle: tuple[tuple[Int64, Int64, Int64], ...] = ()
    empty_entry: Int64 = 0


class SinkBatchCommit(_Travelling, frozen=True, tag="sink_batch_commit"):
    """Marks the transaction as the `batch_id`-th micro-batch of a writer, so that a replay takes effect once.

    `writer_id` is a streaming query's id or an application's (txnAppId); `run_id` is empty where there are no runs.
    """

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int64
    transaction: Int64
    writer_id: str
    run_id: str
    batch_id: Int64
    fingerprint: str


class DeleteRecords(_Base, frozen=True, tag="delete_records"):
    """Advances a partition's log start offset to `before_offset`."""

    request_id: str
    topic_id: Int64
    partition: Int64
    before_offset: Int64


class DeleteGroup(_Base, frozen=True, tag="delete_group"):
    """Forgets a group's committed offsets, and those that wait for the end of a transaction (K109).

    `offsets` are (topic id, partition, entry) and `pending` (topic id, partition, producer id, entry), as the proposer
    saw them. What has been committed since belongs to a new group.
    """

    request_id: str
    group_id: str
    offsets: tuple[tuple[Int64, Int64, Int64], ...]
    pending: tuple[tuple[Int64, Int64, Int64, Int64], ...] = ()


class JoinGroup(_Base, frozen=True, tag="join_group"):
    """Makes a consumer a member of a group, or takes a static member's place (KIP-848, KIP-1082, KIP-345).

    `member_id` is the consumer's own choice, `topics` are sorted names, and `assignors` are in order of preference.
    `classic` is True for a consumer of Kafka's older protocol. It takes the place of a member with its `instance_id`
    at once.
    """

    request_id: str
    group_id: str
    member_id: str
    topics: tuple[str, ...]
    session_timeout_ms: Int64
    rebalance_timeout_ms: Int64
    assignors: tuple[str, ...]
    classic: bool = False
    instance_id: str = ""
    client_id: str = ""
    host: str = ""


class UpdateMember(_Travelling, frozen=True, tag="update_member"):
    """Changes the topics that a member subscribes to."""

    request_id: str
    group_id: str
    member_id: str
    member_epoch: Int64
    topics: tuple[str, ...]


class ReleasePartitions(_Travelling, frozen=True, tag="release_partitions"):
    """Gives back partitions (topic id, partition) that the member was asked for: it reads them no more.

    `changed_entry` is that of the member's record that asks for them.
    """

    request_id: str
    group_id: str
    member_id: str
    member_epoch: Int64
    changed_entry: Int64
    partitions: tuple[StoredTopicIdPartition, ...]


class LeaveGroup(_Travelling, frozen=True, tag="leave_group"):
    """Takes a member out of its group. A static one with `keeps_place` only notes that it is away."""

    request_id: str
    group_id: str
    member_id: str
    keeps_place: bool = False


class ExpireMember(_Travelling, frozen=True, tag="expire_member"):
    """Takes a silent member out of its group, if it still is what the proposer saw.

    `reason` says which of the member's time-outs has passed, after `after_ms`. With ``session``, `last_entry` is the
    member's `last_entry`; with ``rebalance``, its `changed_entry`.
    """

    group_id: str
    member_id: str
    member_epoch: Int64
    last_entry: Int64
    reason: str
    after_ms: Int64


class Rewrite(_Base, frozen=True, tag="rewrite"):
    """Replaces the segments of a partition from `base_offset` to `end_offset` by those of `run`.

    `planned_entry` is the state that it was planned at, `segments` are the files that the run names and no entry has
    named before. The records keep their offsets. With `compaction` the run lacks records that have newer ones of the
    same key, or are tombstones; the rewrites of one list compact a partition together.
    """

    request_id: str
    topic_id: Int64
    partition: Int64
    base_offset: Int64
    end_offset: Int64
    planned_entry: Int64
    segments: tuple[str, ...]
    run: ManifestRef
    compaction: Compaction | None = None


class PublishTables(_Base, frozen=True, tag="publish_tables"):
    """Makes what entries up to `entry` have committed the next version of the tables of topics, of all or of none.

    The publisher has looked at the files that the topics had after `planned_entry`.
    """

    request_id: str
    entry: Int64
    planned_entry: Int64
    tables: tuple[TableToPublish, ...]


class Vacuum(_Base, frozen=True, tag="vacuum"):
    """Raises the horizon and the segment floor: entries and segments below them may be deleted afterwards."""

    horizon: Int64
    segment_floor: Int64


class RequireFeatures(_Base, frozen=True, tag="require_features"):
    """Names features that readers, and features that writers of the store must know from the next entry on.

    A writer must know all features of readers too. A feature that is required once stays required.
    """

    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()


class SettleIntent(_Base, frozen=True, tag="settle_intent"):
    """Settles an intent: the next `command_count` commands are its own, or it is refused and none follow.

    `base_entry` is the state that it was written at; a settled id is remembered for as long as a base is accepted.
    """

    intent_id: str
    base_entry: Int64
    command_count: Int64 = 0
    refused_code: Int64 = 0
    reason: str = ""


class CancelIntent(_Base, frozen=True, tag="cancel_intent"):
    """Settles an intent by its owner: no writer applies it any more."""

    intent_id: str
    base_entry: Int64


class PrepareHalf(_Travelling, frozen=True, tag="prepare_half"):
    """Stores a half transaction of a producer group: its segments are invisible, and without offsets, until it commits.

    The first check is due after `immunity_ms`. `data` are the inline records of segments, by their names.
    """

    group_id: str
    transaction_id: str
    segments: tuple[HalfSegment, ...]
    immunity_ms: Int64
    data: dict[str, bytes] = {}


class CheckHalf(_Travelling, frozen=True, tag="check_half"):
    """Claims one check of a pending half transaction: only if it has been checked `checks` times.

    `checker` is a token of the claim. The next check is due after `wait_ms`.
    """

    group_id: str
    transaction_id: str
    checks: Int64
    checker: str
    wait_ms: Int64


class EndHalf(_Travelling, frozen=True, tag="end_half"):
    """Commits a half transaction, or rolls it back. `by_check` if the answer to a check says so, else its producer."""

    group_id: str
    transaction_id: str
    committed: bool
    by_check: bool = False


class DiscardHalf(_Base, frozen=True, tag="discard_half"):
    """Discards a half transaction that has been checked `checks` times: it is kept, and checked no more."""

    group_id: str
    transaction_id: str
    checks: Int64


class ResumeHalf(_Base, frozen=True, tag="resume_half"):
    """Makes a discarded half transaction pending again, with no checks; the first is due after `wait_ms`."""

    group_id: str
    transaction_id: str
    wait_ms: Int64


class DeleteHalf(_Base, frozen=True, tag="delete_half"):
    """Forgets a discarded half transaction: it never takes effect."""

    group_id: str
    transaction_id: str


Command = (
    CreateTopic
    | AlterTopic
    | AlterStore
    | CreatePartitions
    | DeleteTopic
    | InitProducerId
    | AddPartitionsToTxn
    | AddOffsetsToTxn
    | Append
    | Appends
    | TxnOffsetCommit
    | OffsetCommit
    | EndTxn
    | ExpectEndOffset
    | PrepareTxn
    | ExpireTransactionalId
    | ExpireProducers
    | ExpireOffsets
    | SinkBatchCommit
    | DeleteRecords
    | DeleteGroup
    | JoinGroup
    | UpdateMember
    | ReleasePartitions
    | LeaveGroup
    | ExpireMember
    | Rewrite
    | PublishTables
    | Vacuum
    | RequireFeatures
    | SettleIntent
    | CancelIntent
    | PrepareHalf
    | CheckHalf
    | EndHalf
    | DiscardHalf
    | ResumeHalf
    | DeleteHalf
)


class CommandResult(Struct, frozen=True):
    """The answer to the caller of a command; `duplicate` if it had taken effect before and wrote nothing.

    The prepared producer id and epoch are those of the prepared transaction that is open, or -1.
    """

    EMPTY: ClassVar[CommandResult]

    duplicate: bool = False
    topic_id: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    transaction: int = -1
    committed: bool = False
    base_offset: int = -1
    timestamp_ms: int = -1
    prepared_producer_id: int = -1
    prepared_producer_epoch: int = -1


CommandResult.EMPTY = CommandResult()
