"""Which parts of the state a command touches, as far as the command says so itself: a column of `state/rules.py`.

A reader of the log loads the parts that an entry touches in one step. It leaves an entry unapplied until a part that
it touches is read (`log/follow/stateparts.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from sparktxn._engine.format import commands
from sparktxn._engine.format.checkpoint import part_of
from sparktxn._engine.format.names import is_inline
from sparktxn._engine.state.halfmessages import outcomes_key
from sparktxn._engine.state.intents import INTENT_WINDOW, intent_key
from sparktxn._engine.state.requests import request_key
from sparktxn._foundation.values.fieldtypes import TopicIdPartition
from sparktxn._foundation.values.structs import StateRecord, TransactionState

Parts = tuple[str, ...]
"""Names of the parts of a checkpoint."""

NamedSegment = tuple[TopicIdPartition, str, int, str]
"""A file of a partition that a command names: its name, size and checksum; -1 and "" if the command lacks them."""

STEADY_TABLES: Final = frozenset({"store", "partition"})
"""Tables of which a confined command reads records outside its parts: the store's, and whether a partition exists."""

_STORE: Final = part_of(("store",))


def touched_by_end(transaction: TransactionState) -> frozenset[str]:
    """Return the parts that ending a transaction reads or changes, apart from that of its own record."""
    parts = {part for where in transaction.partitions for part in _in_partition(*where, transaction.producer_id)}
    return frozenset(parts.union(_group(group_id) for group_id, _, _ in transaction.offsets))


def is_unsteady(key: tuple[str | int, ...], record: StateRecord | None) -> bool:
    """Return True if putting `record` changes what confined commands read outside their parts."""
    return key[0] == "store" or (record is None and key[0] == "partition")


@lru_cache(maxsize=65_536)
def _in_partition(topic_id: int, partition: int, producer_id: int) -> Parts:
    return (
        part_of(("partition", topic_id, partition)),
        part_of(("segments", topic_id, partition)),
        part_of(("producer", topic_id, partition, producer_id)),
    )


def _group(group_id: str) -> str:
    return part_of(("offset", group_id, 0, 0))


def _request(request_id: str) -> str:
    return part_of(request_key(request_id))


def topic(command: Any, entry: int) -> Parts:
    """Return the store, the request, and the topic of the name."""
    return (_STORE, _request(command.request_id), part_of(("topic", command.name)))


def alter_store(command: commands.AlterStore, entry: int) -> Parts:
    """Return the store and the request."""
    return (_STORE, _request(command.request_id))


def delete_records(command: commands.DeleteRecords, entry: int) -> Parts:
    """Return the request, the partition and its segments."""
    return (_request(command.request_id), *_in_partition(command.topic_id, command.partition, 0)[:2])


def rewrite(command: commands.Rewrite, entry: int) -> Parts:
    """Return the store, the request, the partition and its segments."""
    return (_STORE, _request(command.request_id), *_in_partition(command.topic_id, command.partition, 0)[:2])


def init_producer_id(command: commands.InitProducerId, entry: int) -> Parts:
    """Return the store, the request, and the transaction if there is a transactional id."""
    named = transaction(command, entry) if command.transactional_id else ()
    return (_STORE, _request(command.request_id), *named)


def transaction(command: Any, entry: int) -> Parts:
    """Return the transaction of the transactional id."""
    return (part_of(("transaction", command.transactional_id)),)


def add_partitions_to_txn(command: commands.AddPartitionsToTxn, entry: int) -> Parts:
    """Return the transaction and what its producer has in each partition."""
    # Segments and producers are touched by the transaction's end.
    parts = [part for where in command.partitions for part in _in_partition(*where, command.producer_id)]
    return (*transaction(command, entry), *parts)


def append(command: commands.Append, entry: int) -> Parts:
    """Return what the producer has in the partition, and its transaction if it has one."""
    parts = _in_partition(command.topic_id, command.partition, command.producer_id)
    return parts if command.transactional_id is None else (*parts, part_of(("transaction", command.transactional_id)))


def expect_end_offset(command: commands.ExpectEndOffset, entry: int) -> Parts:
    """Return the transaction and the partition."""
    return (*transaction(command, entry), part_of(("partition", command.topic_id, command.partition)))


def txn_offset_commit(command: commands.TxnOffsetCommit, entry: int) -> Parts:
    """Return the transaction and the group."""
    return (*transaction(command, entry), _group(command.group_id))


def group_request(command: Any, entry: int) -> Parts:
    """Return the request and the group."""
    return (_request(command.request_id), _group(command.group_id))


def subscribing(command: commands.JoinGroup | commands.UpdateMember, entry: int) -> Parts:
    """Return the request, the group and the topics that its member subscribes to."""
    topics = {part_of(("topic", name)) for name in command.topics}
    return (*group_request(command, entry), *sorted(topics))


def expire_member(command: commands.ExpireMember, entry: int) -> Parts:
    """Return the group."""
    return (_group(command.group_id),)


def expire_producers(command: commands.ExpireProducers, entry: int) -> Parts:
    """Return the partition and the producers."""
    where = (command.topic_id, command.partition)
    producers = {part_of(("producer", *where, producer_id)) for producer_id, *_ in command.producers}
    return (part_of(("partition", *where)), *sorted(producers))


def expire_offsets(command: commands.ExpireOffsets, entry: int) -> Parts:
    """Return the group and the partitions whose offsets go."""
    # Whether the partitions of idle offsets exist is not read.
    partitions = {part_of(("partition", *where)) for where in command.partitions}
    return (_group(command.group_id), *sorted(partitions))


def intent(command: commands.SettleIntent | commands.CancelIntent, entry: int) -> Parts:
    """Return the intents of the entries that the command may still settle."""
    first = max(command.base_entry, entry - INTENT_WINDOW) + 1
    return tuple({part_of(intent_key(number)) for number in range(min(first, entry), entry + 1)})


def publish_tables(command: commands.PublishTables, entry: int) -> Parts:
    """Return the store, the request, and each topic with its table."""
    topics = {part_of(("topic", wanted.name)) for wanted in command.tables}
    tables = {part_of(("table", wanted.topic_id)) for wanted in command.tables}
    # Which partitions they have, the topics say.
    return (_STORE, _request(command.request_id), *sorted(topics | tables))


def store(command: commands.Vacuum | commands.RequireFeatures, entry: int) -> Parts:
    """Return the store."""
    return (_STORE,)


def half(command: Any, entry: int) -> Parts:
    """Return the half message and the outcomes of its transaction."""
    # When its checks are due goes by entries' times, and where it is committed by its record.
    half = part_of(("half", command.group_id, command.transaction_id))
    return (half, part_of(outcomes_key(command.transaction_id)))


def prepare_half(command: commands.PrepareHalf, entry: int) -> Parts:
    """Return the store, the half message, and where its segments would go."""
    read = {part_of(("partition", segment.topic_id, segment.partition)) for segment in command.segments}
    read |= {part_of(("topic", segment.topic)) for segment in command.segments}
    return (_STORE, *half(command, entry), *sorted(read))


def file_of_append(command: commands.Append) -> Iterator[NamedSegment]:
    """Yield the appended file; none if its records are inline."""
    if not command.data:
        yield (command.topic_id, command.partition), command.segment, command.size_bytes, command.checksum


def files_of_half(command: commands.PrepareHalf) -> Iterator[NamedSegment]:
    """Yield the files of the half message that are not inline."""
    for segment in command.segments:
        if not is_inline(segment.segment):
            yield (segment.topic_id, segment.partition), segment.segment, segment.size_bytes, segment.checksum


def files_of_rewrite(command: commands.Rewrite) -> Iterator[NamedSegment]:
    """Yield the new files; manifests have their sizes and checksums."""
    return (((command.topic_id, command.partition), name, -1, "") for name in command.segments)


def no_files(command: object) -> Iterator[NamedSegment]:
    """Yield no file."""
    return iter(())


def nothing(command: commands.Appends, entry: int) -> Parts:
    """Return no part."""
    # It contains commands of an object, which name what they touch.
    return ()
