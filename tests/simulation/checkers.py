"""Checkers of histories of commands, one per guarantee: each raises AssertionError.

Each takes what was recorded, and the log as it truly was (`truth.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import CheckpointHead
from sparktxn._engine.format.commands import Append
from sparktxn._engine.log.follow import confirm
from sparktxn._engine.log.follow.checkpointheads import read_head
from sparktxn._engine.log.follow.confirm import read_horizon
from sparktxn._engine.log.follow.tail import Tail
from sparktxn._engine.log.views.readview import capture_view
from sparktxn._engine.state.transactions.producerfencing import next_sequence
from sparktxn._foundation.values.structs import TopicState
from tests.simulation.history import Attempt, History, Observation, Outcome, observe
from tests.simulation.inlineappends import check_carried
from tests.simulation.truth import (
    ABORTED,
    COMMITTED,
    OPEN,
    RecordedObjects,
    Truth,
    digest_of,
    records_of,
    replay,
    tail_digest,
    truth_after,
)

__all__ = [
    "ABORTED",
    "COMMITTED",
    "OPEN",
    "Truth",
    "check_aborted_reads",
    "check_atomicity",
    "check_checkpoints",
    "check_exactly_once",
    "check_group_offsets",
    "check_history",
    "check_honesty",
    "check_log",
    "check_lost_writes",
    "check_order",
    "check_same_end",
    "check_sequences",
    "check_views",
    "digest_of",
    "replay",
    "some_heads",
    "tail_digest",
    "truth_after",
    "usable_heads",
]


def _fates(attempt: Attempt, truth: Truth) -> list[str | None]:
    return [truth.fates.get(segment) for _, _, segment in attempt.segments]


def check_history(objects: RecordedObjects, history: History) -> None:
    """All of them."""
    truths = replay(objects, {entry for _, entry, _ in history.ends} | {head.entry for head in some_heads(objects)})
    check_lost_writes(history, truths)
    check_exactly_once(history, truths)
    check_honesty(history, truths)
    check_aborted_reads(history, truths)
    check_atomicity(history, truths)
    check_order(truths)
    check_carried(truths)
    check_sequences(truths)
    check_group_offsets(history, truths)
    check_views(history, truths)
    check_checkpoints(objects, truths)
    check_same_end(history, truths)


def check_log(objects: RecordedObjects) -> None:
    """Those that ask the log alone."""
    truths = replay(objects, {head.entry for head in some_heads(objects)})
    check_order(truths)
    check_checkpoints(objects, truths)


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
            now = after.partitions.get(key)
            if now is None or now.topic_id != seen.topic_id:
                continue  # the topic was deleted
            where = f"partition {key} at entry {after.entry}"
            kept = [placed for placed in seen.segments if placed in now.segments]
            gone = seen.segments[: len(seen.segments) - len(kept)]
            assert (*gone, *now.segments)[: len(seen.segments)] == seen.segments, f"{where}: segments have moved"
            assert not gone or now.log_start_offset > gone[-1][1], f"{where}: segments are gone"
            assert now.log_start_offset >= seen.log_start_offset, f"{where}: the start fell"
            assert now.log_end_offset >= seen.log_end_offset, f"{where}: the end fell"
            assert now.last_stable_offset >= seen.last_stable_offset, f"{where}: the last stable offset fell"
            assert now.last_stable_offset <= now.log_end_offset, f"{where}: stable past the end"
            assert [base for _, base in now.segments] == sorted({base for _, base in now.segments}), f"{where}: order"
        for segment, fate in before.fates.items():
            assert fate == OPEN or after.fates[segment] == fate, f"{segment} at entry {after.entry}: no longer {fate}"


def check_sequences(truths: list[Truth]) -> None:
    """In a partition a producer's batches follow one another, from 0 with each newer epoch, with no gap or repetition.

    As in Kafka, the first batch of a producer that the partition does not know may have any sequence.
    """
    known: dict[tuple[int, int, int], tuple[int, int]] = {}
    for truth in truths:
        for command in truth.commands:
            if not isinstance(command, Append):
                continue
            key = (command.topic_id, command.partition, command.producer_id)
            epoch, expected = known.get(key, (command.producer_epoch, command.base_sequence))
            expected = expected if epoch == command.producer_epoch else 0
            assert command.base_sequence == expected, (
                f"entry {truth.entry}: sequence {command.base_sequence} of producer {command.producer_id} in partition "
                f"{command.partition} of topic {command.topic_id}, not {expected}"
            )
            known[key] = (command.producer_epoch, next_sequence(expected, command.record_count))


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
    """Every process' view at an entry is the one true view at that entry."""
    for who, entry, seen in history.views:
        assert entry < len(truths), f"{who} saw entry {entry}, which never was"
        assert seen == truths[entry].partitions, f"{who} saw something else at entry {entry}"


def usable_heads(objects: RecordedObjects) -> list[CheckpointHead]:
    """Return the checkpoints that a process may use, oldest first."""
    horizon = read_horizon(objects)
    named = sorted(found for name in objects.history if (found := names.parse_checkpoint_head(name)) is not None)
    read = [read_head(objects, entry, token) for entry, token in named if entry >= horizon]
    return confirm.usable_heads(objects, [head for head in read if head is not None])


def some_heads(objects: RecordedObjects) -> list[CheckpointHead]:
    """Return the oldest, the newest and the middle one of the checkpoints that a process may use."""
    heads = usable_heads(objects)
    return list({head.checkpoint: head for head in (*heads[:1], *heads[len(heads) // 2 :][:1], *heads[-1:])}.values())


def check_checkpoints(
    objects: RecordedObjects, truths: list[Truth], heads: Sequence[CheckpointHead] | None = None
) -> None:
    """Checkpoints hold the true state after their entries, and show its records."""
    for head in some_heads(objects) if heads is None else heads:
        tail = Tail(objects, head)
        # A part that has become empty is named by the head, and one that never was is not.
        name = names.checkpoint_head(head.entry, head.checkpoint)
        assert tail_digest(tail) == truths[head.entry].digest, f"{name} holds another state"
        topics = [record for record in records_of(tail, "topics/") if isinstance(record, TopicState)]
        view = capture_view(tail.parts.get, topics, tail.entry, tail.timestamp_ms)
        found = {key: _from_log_start(seen) for key, seen in observe(objects, view.partitions).items()}
        true = {key: _from_log_start(seen) for key, seen in truths[head.entry].partitions.items()}
        assert found == true, f"checkpoint after entry {head.entry} shows other records"


def _from_log_start(seen: Observation) -> Observation:
    """Without what lies below the log's start: a sealed run is dropped as a whole, and holds it a little longer."""
    return replace(
        seen,
        segments=tuple(placed for placed in seen.segments if placed[1] >= seen.log_start_offset),
        aborted=tuple(range_ for range_ in seen.aborted if range_.first_offset >= seen.log_start_offset),
    )


def check_same_end(history: History, truths: list[Truth]) -> None:
    """Every process's own state is the true one."""
    for who, entry, found in history.ends:
        assert found == truths[entry].digest, f"{who} holds another state after entry {entry}"
