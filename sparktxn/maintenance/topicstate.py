"""What a copy of some topics has of a store's state: records to records, without I/O (PROTOCOL.md, "Copies")."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace

from sparktxn.structs import (
    CommittedOffset,
    EmptyGroup,
    GroupState,
    PartitionSegments,
    PartitionState,
    PendingOffsets,
    ProducerState,
    StateRecord,
    StoreState,
    TopicName,
    TopicState,
    TransactionState,
)

__all__ = ["parts_of_topics", "records_of_topics"]


def parts_of_topics(topic_ids: Iterable[int]) -> list[str]:
    """Return what the names of the parts start with whose records `records_of_topics` takes."""
    parts = ["store", "topics/", "transactions/", "groups/"]
    for topic_id in topic_ids:
        parts += [f"partitions/{topic_id}/", f"segments/{topic_id}/", f"producers/{topic_id}/"]
    return parts


def records_of_topics(
    records: Iterable[StateRecord], topics: Collection[TopicState], horizon: int, timestamp_ms: int
) -> Iterator[StateRecord]:
    """Yield the records that a copy of `topics` has, in a store whose horizon is `horizon`, written at `timestamp_ms`.

    Topics, partitions, places of records, producers and committed offsets are as they were. A transactional id is in
    it if one of its producers is known in a partition. So it is if its ongoing transaction has a partition or an offset
    of these topics. Open transactions stay open. Members of groups, half transactions, requests and intents are left
    out: they belong to processes of the source. A group with offsets has no members since the horizon, if it has some.
    """
    read = tuple(records)
    ids, names = {topic.topic_id for topic in topics}, {topic.name for topic in topics}
    producers = {each.producer_id for each in read if isinstance(each, ProducerState) and each.topic_id in ids}
    groups = {
        each.group_id for each in read if isinstance(each, CommittedOffset | PendingOffsets) and each.topic_id in ids
    }
    for record in read:
        if isinstance(record, StoreState):
            yield replace(record, horizon=horizon)
        elif isinstance(record, TopicState | TopicName):
            if record.name in names:
                yield record
        elif isinstance(record, PartitionState | PartitionSegments | ProducerState | CommittedOffset | PendingOffsets):
            if record.topic_id in ids:
                yield record
        elif isinstance(record, EmptyGroup):
            if record.group_id in groups:
                yield record
        elif isinstance(record, GroupState):
            if record.group_id in groups:
                yield EmptyGroup(record.group_id, horizon, timestamp_ms)
        elif isinstance(record, TransactionState):
            partitions = tuple(each for each in record.partitions if each[0] in ids)
            offsets = tuple(each for each in record.offsets if each[1] in ids)
            if partitions or offsets or producers & {record.producer_id, record.previous_producer_id}:
                yield replace(record, partitions=partitions, offsets=offsets)
