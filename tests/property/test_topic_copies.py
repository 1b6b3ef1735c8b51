"""A copy of one topic reads as the topic in its source: random histories of two topics, copied at random entries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktxn import Producer, Store, TopicPartition
from sparktxn.format import names
from sparktxn.format.entry import decode_entry
from sparktxn.kafka.groups import ConsumerGroupTopicPartitions
from sparktxn.kafka.message import ConsumerGroupMetadata
from sparktxn.log.follow.horizon import read_horizon
from sparktxn.log.look.views import ReadView
from sparktxn.maintenance import copy_topics, vacuum, verify
from sparktxn.structs import (
    CommittedOffset,
    PartitionState,
    PendingOffsets,
    ProducerState,
    StateRecord,
    TopicState,
    TransactionState,
)
from tests.property.test_commit_order import ACTIONS, PARTITIONS, PRODUCERS, Row, Step, inline_bytes_
from tests.property.test_rewrites import COLUMNS, Rewriting, commit_rows, offset_rows
from tests.seeds import examples
from tests.world import next_number

OTHER = "left.out"
SECRET = b"of the other topic"
GROUP = "readers"
VACUUM = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0}
PREFIXES = ["partitions/", "producers/", "transactions/", "groups/", "topics/"]


class Copying(Rewriting):
    """A history in which transactions write to another topic too, and that copies the one at the entries it has had."""

    def __init__(self, inline_bytes: int) -> None:
        super().__init__(inline_bytes)
        self.store.create_topic(OTHER, PARTITIONS)
        self.copies = 0

    def step(self, action: str, number: int, partition: int) -> None:
        if action == "other" and number in self.open:
            # Sent with the next records of the topic, or at the end: one entry may carry both.
            self.producers[number].produce(OTHER, SECRET, partition=partition)
        elif action == "other":
            self.plain.produce(OTHER, SECRET, partition=partition)
            self.plain.flush()
        elif action == "offset":
            for topic in ("t", OTHER):
                offsets = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(topic, partition, number)])
                self.store.commit_offsets(offsets)
        elif action == "offset in transaction" and number in self.open:
            read = [TopicPartition(topic, partition, number) for topic in ("t", OTHER)]
            self.producers[number].send_offsets_to_transaction(read, ConsumerGroupMetadata(f"{GROUP}-{number}"))
        elif action == "copy":
            entries = [entry for entry in self.seen if entry >= read_horizon(self.store.log.objects)]
            self.copy(sorted(entries)[-1 - number % len(entries)] if entries and partition else None, 1 + number)
        elif action not in ("other", "offset in transaction"):
            super().step(action, number, partition)

    def copy(self, entry: int | None, threads: int) -> str:
        target = f"memory://topic-copy-{next_number()}"
        foreseen = copy_topics(self.store, target, ["t"], entry=entry, dry_run=True)
        report = copy_topics(self.store, target, ["t"], entry=entry, threads=threads)
        assert (foreseen.is_complete, report.is_complete) == (False, True)
        # This process folds segments in the background, which adds entries.
        assert foreseen.entry <= report.entry <= self.entry
        assert entry in (None, report.entry)
        with self.opened(target) as copy:
            self._check(copy, report.entry)
        self.copies += 1
        return target

    def _check(self, copy: Store, entry: int) -> None:
        assert verify(copy).problems == ()
        theirs, ours = copy.view(), self.store.view(["t"], entry=entry)
        assert (theirs.entry, [*theirs.topics]) == (entry, ["t"])
        assert theirs.topics == ours.topics
        assert _ends(theirs) == _ends(ours)
        for isolation in ("read_committed", "read_uncommitted"):
            expected = offset_rows(self.store, ours, isolation, COLUMNS)
            assert offset_rows(copy, theirs, isolation, COLUMNS) == expected
        if entry in self.seen:
            assert offset_rows(copy, theirs, "read_committed", COLUMNS) == self.seen[entry]
        assert commit_rows(copy, theirs) == commit_rows(self.store, ours)
        assert copy.ranges(theirs) == self.store.ranges(ours)
        assert state_of(copy, None) == state_of(self.store, entry)
        self._check_nothing_else(copy)

    def _check_nothing_else(self, copy: Store) -> None:
        (topic,) = copy.view().topics.values()
        for info in copy.log.objects.list(""):
            data = copy.log.objects.get(info.name)
            assert data is not None
            assert OTHER not in info.name
            assert SECRET not in data
            assert OTHER.encode() not in data
            if (number := names.parse_entry(info.name)) is not None:
                commands = decode_entry(data, info.name, number).commands
                assert {getattr(command, "topic_id", topic.topic_id) for command in commands} == {topic.topic_id}

    @contextmanager
    def opened(self, target: str) -> Iterator[Store]:
        with Store.open(target, options=self.world.options) as copy:
            yield copy


def _ends(view: ReadView) -> dict[tuple[str, int], tuple[int, int, int]]:
    return {
        key: (end.log_start_offset, end.last_stable_offset, end.log_end_offset) for key, end in view.partitions.items()
    }


def state_of(store: Store, entry: int | None) -> dict[tuple[Any, ...], StateRecord]:
    """What the state says of topic `t`, by the model: everything that names its id, and who may go on writing to it."""
    records = store.log.snapshot(PREFIXES, store.log.deadline(10), entry=entry).records
    (topic_id,) = [each.topic_id for each in records if isinstance(each, TopicState) and each.name == "t"]
    found: dict[tuple[Any, ...], StateRecord] = {}
    wrote = {each.producer_id for each in records if isinstance(each, ProducerState) and each.topic_id == topic_id}
    for each in records:
        if isinstance(each, PartitionState | ProducerState | CommittedOffset | PendingOffsets):
            if each.topic_id == topic_id:
                found[each.key] = each
        elif isinstance(each, TransactionState) and each.producer_id in wrote:
            found[each.key] = _alone(each, topic_id)
    return found


def _alone(transaction: TransactionState, topic_id: int) -> TransactionState:
    return replace(
        transaction,
        partitions=tuple(each for each in transaction.partitions if each[0] == topic_id),
        offsets=tuple(each for each in transaction.offsets if each[1] == topic_id),
    )


steps = st.lists(
    st.tuples(
        st.sampled_from(
            [*ACTIONS, "rewrite", "fold", "other", "other", "offset", "offset in transaction", "copy", "copy"]
        ),
        st.integers(0, PRODUCERS - 1),
        st.integers(0, PARTITIONS - 1),
    ),
    min_size=8,
    max_size=45,
)


@settings(max_examples=examples(20, 100))
@given(steps, inline_bytes_)
def test_a_copy_of_a_topic_reads_as_the_topic_and_goes_on_by_itself(taken: list[Step], inline_bytes: int) -> None:
    history = Copying(inline_bytes)
    try:
        for step in taken:
            history.step(*step)
        target = history.copy(None, 2)
        rows = _rows(history.store)
        with history.opened(target) as copy:
            for number in range(PRODUCERS):
                _go_on(history, target, number)
            mine = [row for row in _rows(copy) if row["value"] != b"in the copy"]
            # The transactions that were open are aborted: their producers have begun again.
            expected = _ended(history, rows)
            assert [(row["partition"], row["offset"]) for row in mine] == expected
            for _ in range(2):
                copy.log.checkpoint()
                vacuum(copy, VACUUM)
            assert [(row["partition"], row["offset"]) for row in _rows(copy) if row in mine] == expected
            assert verify(copy).problems == ()
        assert _rows(history.store) == rows
    finally:
        history.world.close()


def _rows(store: Store) -> list[dict[str, Any]]:
    return offset_rows(store, store.view(["t"]), "read_committed", COLUMNS)


def _ended(history: Copying, rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """The committed records, those too that an open transaction held back."""
    kept: list[Row] = history.kept(0, history.entry)
    found = sorted((row.partition, row.offset) for row in kept)
    assert {(row["partition"], row["offset"]) for row in rows} <= set(found)
    return found


def _go_on(history: Copying, target: str, number: int) -> None:
    given_: dict[str, Any] = {"bootstrap.servers": target, **history.world.options}
    with Producer({**given_, "transactional.id": f"id-{number}"}) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("t", b"in the copy", partition=0)
