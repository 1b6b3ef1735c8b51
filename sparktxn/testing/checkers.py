"""Checkers, one per guarantee: each takes what was recorded and the log as it truly was, and raises AssertionError.

The truth is the first bytes ever created under each entry's name, applied one by one from the empty store: no
checkpoint, no cache and no deletion has a part in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, Protocol

from msgspec import Struct

from sparktxn.format import names
from sparktxn.format.checkpoint import PartRef, digest, encode_part, state_digest
from sparktxn.log.checkpoints import read_head
from sparktxn.log.log import Log
from sparktxn.log.tail import Tail
from sparktxn.log.views import capture_view
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.structs import (
    AbortedTransaction,
    CommittedOffset,
    PartitionSegments,
    PartitionState,
    SegmentRef,
    TopicState,
)
from sparktxn.testing.history import Attempt, History, Observation, Outcome, observe

__all__ = [
    "Truth",
    "check_aborted_reads",
    "check_atomicity",
    "check_checkpoints",
    "check_exactly_once",
    "check_group_offsets",
    "check_history",
    "check_honesty",
    "check_lost_writes",
    "check_order",
    "check_same_end",
    "check_views",
    "digest_of",
    "replay",
    "tail_digest",
    "truth_after",
]

COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
OPEN: Final = "open"


class RecordedObjects(ObjectStore, Protocol):
    """Objects that remember the first bytes ever created under each name."""

    history: dict[str, bytes]


class Truth(Struct):
    """The state after one entry. `fates` says of each segment whether its transaction committed, aborted or is open."""

    entry: int
    digest: str
    partitions: dict[tuple[str, int], Observation]
    fates: dict[str, str]
    offsets: dict[tuple[str, int, int], CommittedOffset]


def replay(objects: RecordedObjects) -> list[Truth]:
    """The truth after each entry, from 0."""
    tail = Tail(_FirstBytes(objects), None)  # type: ignore[arg-type]  # a replay only gets
    truths = [truth_after(tail)]
    while True:
        tail.advance(at_most=tail.entry + 1)
        if tail.entry == truths[-1].entry:
            return truths
        truths.append(truth_after(tail))


class _FirstBytes:
    def __init__(self, objects: RecordedObjects) -> None:
        self._history = objects.history

    def get(self, name: str) -> bytes | None:
        return self._history.get(name)


def digest_of(log: Log) -> str:
    """The digest of the state that a process holds."""
    return tail_digest(log._follower.tail)


def tail_digest(tail: Tail) -> str:
    """The digest of a replica's state."""
    refs = {}
    for part in tail.parts.names(""):
        data = encode_part(tail.parts.part(part).values())
        refs[part] = PartRef("", len(data), digest(data))
    # A part that has become empty, and one that never was, say the same.
    empty = digest(encode_part([]))
    return state_digest({part: ref for part, ref in refs.items() if ref.digest != empty})


def _records(tail: Tail, prefix: str) -> Iterator[object]:
    for part in tail.parts.names(prefix):
        yield from tail.parts.part(part).values()


def truth_after(tail: Tail) -> Truth:
    """The truth as a replica has it that was replayed from the empty store."""
    topics = [record for record in _records(tail, "topics/") if isinstance(record, TopicState)]
    view = capture_view(tail.parts.get, sorted(topics, key=lambda topic: topic.name), tail.entry, tail.timestamp_ms)
    fates = {}
    for topic in topics:
        for number in range(topic.partition_count):
            state: PartitionState = tail.parts.get(("partition", topic.topic_id, number))
            located: PartitionSegments = tail.parts.get(("segments", topic.topic_id, number))
            open_from = {open_.producer_id: open_.first_offset for open_ in state.open_transactions}
            for segment in located.segments:
                fates[segment.name] = _fate(segment, open_from, located.aborted)
    offsets = {
        (record.group_id, record.topic_id, record.partition): record
        for record in _records(tail, "groups/")
        if isinstance(record, CommittedOffset)
    }
    # A replay from nothing has sealed nothing: no object is read here.
    partitions = observe(tail._objects, view.partitions)
    return Truth(tail.entry, tail_digest(tail), partitions, fates, offsets)


def _fate(segment: SegmentRef, open_from: dict[int, int], aborted: tuple[AbortedTransaction, ...]) -> str:
    if segment.base_offset >= open_from.get(segment.producer_id, segment.base_offset + 1):
        return OPEN
    for range_ in aborted:
        if (
            range_.producer_id == segment.producer_id
            and range_.first_offset <= segment.base_offset < range_.last_offset
        ):
            return ABORTED
    return COMMITTED


def _fates(attempt: Attempt, truth: Truth) -> list[str | None]:
    return [truth.fates.get(segment) for _, _, segment in attempt.segments]


def check_history(objects: RecordedObjects, history: History) -> None:
    """All of them."""
    truths = replay(objects)
    check_lost_writes(history, truths)
    check_exactly_once(history, truths)
    check_honesty(history, truths)
    check_aborted_reads(history, truths)
    check_atomicity(history, truths)
    check_order(truths)
    check_group_offsets(history, truths)
    check_views(history, truths)
    check_checkpoints(objects, truths)
    check_same_end(history, truths)


def check_lost_writes(history: History, truths: list[Truth]) -> None:
    """Whatever was acknowledged is committed at the end, whole."""
    last = truths[-1]
    for job, batch in history.acknowledged:
        whole = [
            attempt
            for attempt in history.attempts
            if (attempt.job, attempt.batch) == (job, batch) and set(_fates(attempt, last)) == {COMMITTED}
        ]
        assert whole, f"batch {batch} of {job} was acknowledged and is not in the log"
    for attempt in history.attempts:
        if attempt.outcome is Outcome.COMMITTED:
            assert set(_fates(attempt, last)) == {COMMITTED}, f"{attempt} was acknowledged and is not in the log"


def check_exactly_once(history: History, truths: list[Truth]) -> None:
    """No batch has taken effect twice, and no segment stands at two places."""
    committed = Counter(
        (attempt.job, attempt.batch) for attempt in history.attempts if COMMITTED in _fates(attempt, truths[-1])
    )
    assert all(count == 1 for count in committed.values()), f"batches in the log more than once: {committed}"
    placed = Counter(name for seen in truths[-1].partitions.values() for name, _ in seen.segments)
    assert all(count == 1 for count in placed.values()), f"segments in the log more than once: {placed}"


def check_honesty(history: History, truths: list[Truth]) -> None:
    """What was said to be refused or withdrawn was never written."""
    for attempt in history.attempts:
        if attempt.outcome is Outcome.REFUSED or (attempt.outcome is Outcome.WITHDRAWN and attempt.fused):
            assert set(_fates(attempt, truths[-1])) == {None}, f"{attempt} was said not to be written"


def check_aborted_reads(history: History, truths: list[Truth]) -> None:
    """Nothing of an attempt that was aborted counts as committed, at any entry."""
    for attempt in history.attempts:
        if attempt.outcome is Outcome.ABORTED:
            for truth in truths:
                assert COMMITTED not in _fates(attempt, truth), f"{attempt} was aborted; see entry {truth.entry}"


def check_atomicity(history: History, truths: list[Truth]) -> None:
    """At every entry an attempt is committed in all of its partitions, or in none."""
    for attempt in history.attempts:
        for truth in truths:
            fates = set(_fates(attempt, truth))
            assert COMMITTED not in fates or fates == {COMMITTED}, f"{attempt} is torn at entry {truth.entry}: {fates}"


def check_order(truths: list[Truth]) -> None:
    """Offsets are assigned once, in order; the last stable offset and the end never fall; what is decided stays so."""
    for before, after in pairwise(truths):
        for key, seen in before.partitions.items():
            now = after.partitions[key]
            where = f"partition {key} at entry {after.entry}"
            assert now.segments[: len(seen.segments)] == seen.segments, f"{where}: segments have moved"
            assert now.log_end_offset >= seen.log_end_offset, f"{where}: the end fell"
            assert now.last_stable_offset >= seen.last_stable_offset, f"{where}: the last stable offset fell"
            assert now.last_stable_offset <= now.log_end_offset, f"{where}: stable past the end"
            assert [base for _, base in now.segments] == sorted({base for _, base in now.segments}), f"{where}: order"
        for segment, fate in before.fates.items():
            assert fate == OPEN or after.fates[segment] == fate, f"{segment} at entry {after.entry}: no longer {fate}"


def check_group_offsets(history: History, truths: list[Truth]) -> None:
    """A job's offset is that of its newest batch that committed one: offsets and output travel together."""
    for truth in truths:
        expected: dict[str, int] = {}
        for attempt in history.attempts:
            if attempt.offset is not None and COMMITTED in _fates(attempt, truth):
                expected[attempt.job] = max(expected.get(attempt.job, 0), attempt.offset)
        found = {
            group: record.offset for (group, _, _), record in truth.offsets.items() if not group.startswith("plain")
        }
        assert found == expected, f"offsets at entry {truth.entry}"


def check_views(history: History, truths: list[Truth]) -> None:
    """Everybody's view at an entry is the one true view at that entry."""
    for who, entry, seen in history.views:
        assert entry < len(truths), f"{who} saw entry {entry}, which never was"
        assert seen == truths[entry].partitions, f"{who} saw something else at entry {entry}"


def check_checkpoints(objects: RecordedObjects, truths: list[Truth]) -> None:
    """Every checkpoint that was published holds the true state after its entry, and says so in its digest."""
    for name in objects.history:
        named = names.parse_checkpoint_head(name)
        if named is None:
            continue
        head = read_head(objects, *named)
        if head is None:
            continue
        tail = Tail(objects, head)
        truth = truths[head.entry]
        assert tail_digest(tail) == truth.digest, f"{name} holds another state"
        topics = [record for record in _records(tail, "topics/") if isinstance(record, TopicState)]
        view = capture_view(tail.parts.get, topics, tail.entry, tail.timestamp_ms)
        assert observe(objects, view.partitions) == truth.partitions, f"{name} shows other records"


def check_same_end(history: History, truths: list[Truth]) -> None:
    """Every process's own state is the true one."""
    for who, entry, found in history.ends:
        assert found == truths[entry].digest, f"{who} holds another state after entry {entry}"
