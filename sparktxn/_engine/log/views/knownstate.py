"""What the state says, as this process last knew it: one reader of records by key, and one of all records in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from sparktxn._engine.format.checkpoint import (
    HALVES_PREFIX,
    PUBLISHED_PREFIX,
    TABLES_PREFIX,
    half_due_prefix,
    part_of,
    producer_parts,
)
from sparktxn._engine.log.follow.follower import Follower
from sparktxn._engine.log.follow.tail import Tail
from sparktxn._engine.state.halfmessages import due_slot
from sparktxn._engine.state.internal import partition_at, refuse_change, topic_named, topic_names
from sparktxn._foundation.values.fieldtypes import Result
from sparktxn._foundation.values.structs import (
    CommittedOffset,
    EmptyGroup,
    GroupState,
    HalfDue,
    HalfState,
    MemberState,
    PartitionSegments,
    PartitionState,
    PendingOffset,
    PendingOffsets,
    ProducerState,
    PublishedPartition,
    StateKey,
    StateRecord,
    StoreState,
    TableState,
    TopicState,
    TransactionState,
)
from sparktxn.errors import CommandRefused, ErrorCode, did_you_mean

Record = TypeVar("Record")


class KnownState:
    """The newest state that this process has read, confirmed or not, for a caller that holds the follower's lock.

    Every method reads parts of the state that were not needed before from the object store. If a vacuum has passed
    them, it opens the log again and answers from the newest state.

    Args:
        follower: owns the state.
        watch: has the transactions watched that hold back what was asked for.

    Raises:
        StoreUnavailable, DamagedObject: a part of the state cannot be read.
    """

    def __init__(self, follower: Follower, watch: Callable[[], None]) -> None:
        self._follower = follower
        self._watch = watch

    @property
    def entry(self) -> int:
        """The newest entry that this process has applied."""
        return self._follower.tail.entry

    def get(self, key: StateKey) -> StateRecord | None:
        """Return a record by its key, for functions of the state."""
        found: StateRecord | None = self._read(str(key[0]), lambda tail: tail.parts.get(key))
        return found

    def at_hand(self, key: StateKey) -> StateRecord | None:
        """Return a record as last known if it is in memory: without the lock, and without a request.

        None also where it is not there, or entries that may have changed it are not applied yet.
        """
        records = self._follower.tail.parts.at_hand(part_of(key))
        return None if records is None else records.get(key)

    def store_state(self) -> StoreState:
        """Return what belongs to the whole store."""
        return self._at_hand(StoreState, ("store",)) or StoreState()

    def topics(self) -> list[TopicState]:
        """Return all topics by name, without the internal ones."""
        return self._read("topics", topics_of)

    def topic(self, name: str) -> TopicState | None:
        """Return a topic, also an internal one."""
        return topic_named(lambda key: self._at_hand(TopicState, key), name)

    def changeable_topic(self, name: str) -> TopicState | None:
        """Return a topic that takes records and changes.

        Raises:
            KafkaException: ``INVALID_TOPIC``: the topic is internal.
        """
        refuse_change(name)
        return self.topic(name)

    def listed_topics(self, asked: str | None) -> list[TopicState]:
        """Return the topics that a listing shows: all by name, or the one asked for, if it exists."""
        if asked is None:
            return self.topics()
        topic = self.topic(asked)
        return [] if topic is None else [topic]

    def topic_names(self) -> dict[int, str]:
        """Return the names of all topics by their ids, internal ones too."""
        return topic_names(self.topics())

    def transaction(self, transactional_id: str) -> TransactionState | None:
        """Return the transaction of a transactional id."""
        return self._record(TransactionState, ("transaction", transactional_id))

    def transactions(self) -> list[TransactionState]:
        """Return the transactions of all transactional ids, in any order."""
        return self._records_with_prefix(TransactionState, "transactions/")

    def producer(self, topic_id: int, partition: int, producer_id: int) -> ProducerState | None:
        """Return a producer in a partition."""
        return self._record(ProducerState, ("producer", topic_id, partition, producer_id))

    def producers(self, topic_id: int, partition: int) -> list[ProducerState]:
        """Return all producers of a partition, by producer id."""
        found = self._records_in(ProducerState, producer_parts(topic_id, partition))
        return sorted(
            (producer for producer in found if producer.partition == partition),
            key=lambda producer: producer.producer_id,
        )

    def all_producers(self) -> list[ProducerState]:
        """Return the producers of all partitions, those of deleted topics too, in any order."""
        return self._records_with_prefix(ProducerState, "producers/")

    def partition(self, topic_id: int, partition: int) -> tuple[PartitionState, PartitionSegments] | None:
        """Return a partition, and where its records are; None if it does not exist."""
        keys: tuple[StateKey, StateKey] = ("partition", topic_id, partition), ("segments", topic_id, partition)
        state, located = self._read("partition", lambda tail: [tail.parts.get(key) for key in keys])
        return None if state is None else (state, located)

    def partition_state(self, topic_id: int, partition: int) -> PartitionState | None:
        """Return where a partition begins and ends, an internal topic's too; None if it does not exist."""
        return partition_at(lambda key: self._record(PartitionState, key), self.entry, topic_id, partition)

    def committed_offset(self, group_id: str, topic_id: int, partition: int) -> CommittedOffset | None:
        """Return a group's committed offset."""
        return self._record(CommittedOffset, ("offset", group_id, topic_id, partition))

    def committed_offsets(self) -> list[CommittedOffset]:
        """Return the committed offsets of all groups, those of deleted topics too, in any order."""
        return self._records_with_prefix(CommittedOffset, "groups/")

    def group_offsets(self, group_id: str) -> list[CommittedOffset]:
        """Return all committed offsets of a group."""
        found = self._records_in(CommittedOffset, [_group_part(group_id)])
        return [record for record in found if record.group_id == group_id]

    def group_ids(self) -> list[str]:
        """Return all groups that have committed an offset, or have members. Reads the records of every group."""
        committed = {offset.group_id for offset in self.committed_offsets()}
        pending = {offset.group_id for offset in self._records_with_prefix(PendingOffsets, "groups/")}
        return sorted(committed | pending | {group.group_id for group in self.groups()})

    def group(self, group_id: str) -> GroupState | None:
        """Return a group that has members; None if it has none."""
        return self._record(GroupState, ("group", group_id))

    def groups(self) -> list[GroupState]:
        """Return all groups that have members, by group id."""
        return sorted(self._records_with_prefix(GroupState, "groups/"), key=lambda group: group.group_id)

    def empty_groups(self) -> list[EmptyGroup]:
        """Return since when groups have no members, for those that had some, by group id."""
        return sorted(self._records_with_prefix(EmptyGroup, "groups/"), key=lambda group: group.group_id)

    def member(self, group_id: str, member_id: str) -> MemberState | None:
        """Return a member of a group."""
        return self._record(MemberState, ("member", group_id, member_id))

    def members(self) -> list[MemberState]:
        """Return the members of all groups."""
        return self._records_with_prefix(MemberState, "groups/")

    def group_members(self, group_id: str) -> list[MemberState]:
        """Return the members of a group, by member id."""
        found = self._records_in(MemberState, [_group_part(group_id)])
        return sorted((member for member in found if member.group_id == group_id), key=lambda member: member.member_id)

    def pending_offsets(self, group_id: str, topic_id: int, partition: int) -> tuple[PendingOffset, ...]:
        """Return the offsets of a partition that wait for the end of their transactions.

        Their transactions are watched, and aborted once their time-outs have passed: a caller that waits only calls
        again.
        """
        found = self._record(PendingOffsets, ("pending_offsets", group_id, topic_id, partition))
        if found is None:
            return ()
        self._watch()
        return found.offsets

    def group_pending_offsets(self, group_id: str) -> list[PendingOffsets]:
        """Return all offsets of a group that wait for the end of their transactions, watched as `pending_offsets`."""
        found = self._records_in(PendingOffsets, [_group_part(group_id)])
        pending = [record for record in found if record.group_id == group_id]
        if pending:
            self._watch()
        return pending

    def half(self, group_id: str, transaction_id: str) -> HalfState | None:
        """Return a half transaction that is not settled."""
        return self._record(HalfState, ("half", group_id, transaction_id))

    def halves(self) -> list[HalfState]:
        """Return all half transactions that are not settled, in any order."""
        return self._records_with_prefix(HalfState, HALVES_PREFIX)

    def half_dues(self, group_id: str, until_ms: int) -> list[HalfDue]:
        """Return when checks of a group's half transactions are due, by due time.

        These are all that are due until `until_ms`, or until the end of the slot after it. What is due later is not
        read.
        """
        prefix, last = half_due_prefix(group_id), due_slot(until_ms) + 1

        def read(tail: Tail) -> list[HalfDue]:
            parts = [part for part in tail.parts.names(prefix) if int(part.removeprefix(prefix)) <= last]
            return _records_of(tail, parts, HalfDue)

        found = [due for due in self._read("checks of half transactions", read) if due.group_id == group_id]
        return sorted(found, key=lambda due: (due.due_ms, due.transaction_id))

    def tables(self) -> list[TableState]:
        """Return the newest versions of all tables, those of deleted topics too, by topic id."""
        return sorted(self._records_with_prefix(TableState, TABLES_PREFIX), key=lambda table: table.topic_id)

    def published(self, topic_id: int) -> list[PublishedPartition]:
        """Return the partitions of a topic's table, by their numbers; one that no version has changed is left out."""
        found = self._records_with_prefix(PublishedPartition, f"{PUBLISHED_PREFIX}{topic_id}/")
        return sorted(found, key=lambda published: published.partition)

    def _record(self, kind: type[Record], key: StateKey) -> Record | None:
        found = self._read(str(key[0]), lambda tail: tail.parts.get(key))
        assert found is None or isinstance(found, kind)
        return found

    def _at_hand(self, kind: type[Record], key: StateKey) -> Record | None:
        """Return a record of a topic or of the store: without the lock, if it is there.

        Each message that is sent asks for them, while another thread writes an entry and keeps the lock. No deferred
        entry changes them.
        """
        records = self._follower.tail.parts.at_hand(part_of(key))
        if records is None:
            return self._record(kind, key)
        found = records.get(key)
        assert found is None or isinstance(found, kind)
        return found

    def _records_with_prefix(self, kind: type[Record], prefix: str) -> list[Record]:
        """Return all records of a kind in the parts whose name starts with `prefix`."""
        return self._read(prefix, lambda tail: _records_of(tail, tail.parts.names(prefix), kind))

    def _records_in(self, kind: type[Record], parts: Sequence[str]) -> list[Record]:
        """Return all records of a kind in `parts`."""
        return self._read("state", lambda tail: _records_of(tail, parts, kind))

    def _read(self, what: str, read: Callable[[Tail], Result]) -> Result:
        return self._follower.insist(lambda: read(self._follower.tail))


class Known(KnownState):
    """The same for callers without the lock: each answer is of the state at its time. `refresh` makes it newer.

    Args:
        follower: owns the state.
        read_time: limits how long one answer may take.
        watch: has the transactions watched that hold back what was asked for.

    Raises:
        OutcomeUnknown: another call kept the log busy until the deadline.
        StoreUnavailable, DamagedObject: a part of the state cannot be read.
    """

    def __init__(
        self, follower: Follower, read_time: Callable[[], AbstractContextManager[object]], watch: Callable[[], None]
    ) -> None:
        super().__init__(follower, watch)
        self._read_time = read_time
        self._state = KnownState(follower, watch)

    @contextmanager
    def last_known(self) -> Iterator[KnownState]:
        """Have the state, as last known, asked for several records under one lock; they are of the same entry."""
        with self._read_time(), self._follower.locked("state"):
            yield self._state

    def _read(self, what: str, read: Callable[[Tail], Result]) -> Result:
        with self._read_time(), self._follower.locked(what):
            return super()._read(what, read)


def topics_of(tail: Tail) -> list[TopicState]:
    """Return all topics of a state, by name."""
    return sorted(_records_of(tail, tail.parts.names("topics/"), TopicState), key=lambda topic: topic.name)


def unknown_topic(uri: str, name: str, topics: Iterable[TopicState]) -> CommandRefused:
    """Return the refusal of a topic that the store at `uri` does not have; `topics` are those that it has."""
    return CommandRefused(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"topic {name!r} does not exist in {uri!r}{did_you_mean(name, [topic.name for topic in topics])}; "
        "AdminClient.create_topics([NewTopic(…)]) creates one",
    )


def _group_part(group_id: str) -> str:
    """Return the part that holds all offsets of a group, and of the groups that share its bucket."""
    return part_of(("offset", group_id, 0, 0))


def _records_of(tail: Tail, parts: Sequence[str], kind: type[Record]) -> list[Record]:
    """Return all records of a kind in `parts`, which are fetched in parallel."""
    tail.load(list(parts))
    return [record for part in parts for record in tail.parts.part(part).values() if isinstance(record, kind)]
