"""A replay that seals for itself, and takes the runs of checkpoints, has what one that does neither has.

Several processes seal the same records in other runs, transactions end long after their segments were sealed, and log
starts move. Each checkpoint is found whole, and with one segment, range or committed entry changed it is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import SEGMENTS_PREFIX, CheckpointHead, PartRef, digest, encode_part
from sparktxn._engine.format.commands import DeleteRecords, InitProducerId
from sparktxn._engine.log.follow.checkpointheads import open_head, read_part
from sparktxn._engine.log.keep import replay as replaying
from sparktxn._engine.log.keep.replay import Replay
from sparktxn._foundation.values.structs import PartitionSegments, SegmentRef, StateRecord
from sparktxn.errors import CommandRefused
from tests.maintenance.vacuumworld import LEFT, RIGHT, World
from tests.producercommands import ProducerCommands
from tests.seeds import examples

ACTIONS = ("append", "append", "append", "commit", "abort", "delete records", "checkpoint", "checkpoint")
STEPS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2)), min_size=10, max_size=70)


class Unsealed(Replay):
    """What a replay has that holds each segment by itself."""

    seals = False


class Writing:
    """Three producers, each in its own process with its own way to seal, in the partitions of one topic."""

    def __init__(self) -> None:
        self.world = World()
        settings = [{"checkpoint_seal_segments": 1}, {"checkpoint_seal_segments": 2}, {"checkpoint_merge_runs": 2}]
        self.processes = [self.world.process(**one) for one in settings]
        self.producers = []
        self.begun = [0, 0, 0]
        self.transactions = [1, 1, 1]
        self.sequences = [0, 0, 0]
        for number in range(3):
            told = self.processes[number].submit(InitProducerId(f"init {number}", f"id {number}"))[0]
            self.producers.append(ProducerCommands.of(f"id {number}", told))

    def step(self, action: str, number: int) -> None:
        process, producer = self.processes[number], self.producers[number]
        process.log.refresh()
        if action == "append":
            for where in (LEFT, RIGHT):
                append = producer.append(
                    where, self.sequences[number], transaction=self.transactions[number], born=process.log.entry
                )
                process.submit(self.world.upload(append))
            self.sequences[number] += 1
            self.begun[number] += 1
        elif action in ("commit", "abort") and self.begun[number]:
            process.submit(producer.end(self.transactions[number], committed=action == "commit"))
            self.transactions[number] += 1
            self.begun[number] = 0
        elif action == "delete records":
            with suppress(CommandRefused):
                process.submit(DeleteRecords(process.log.ids.token(), *LEFT, self.sequences[number]))
        elif action == "checkpoint":
            process.log.checkpoint()
            self.world.clock.sleep(1)

    def heads(self) -> Iterator[CheckpointHead]:
        parsed = map(names.parse_checkpoint_head, self.world.names(names.CHECKPOINTS))
        for entry, token in sorted(found for found in parsed if found):
            head = open_head(self.world.objects, entry, token)
            assert head is not None
            yield head


def places(replay: Replay, key: tuple[str, int, int]) -> tuple[list[SegmentRef], list[object]]:
    """Segments and aborted transactions from the log start on."""
    segments, aborted = replay._places(replay.parts.get(key), 0)
    return segments, list(aborted)


def changed(record: PartitionSegments) -> PartitionSegments:
    """The same places, but that a committed transaction, the newest single segment, or the newest run is missing."""
    if record.committed:
        return replace(record, committed=record.committed[:-1])
    if record.segments:
        last = replace(record.segments[-1], checksum="0badc0de")
        return replace(record, segments=(*record.segments[:-1], last))
    return replace(record, sealed=record.sealed[:-1])


def with_changed(objects: object, head: CheckpointHead) -> CheckpointHead | None:
    """A head of the same checkpoint with one partition's places changed; None if it has no places."""
    for part, ref in head.parts.items():
        if part.startswith(SEGMENTS_PREFIX):
            records: list[StateRecord] = []
            for record in read_part(objects, ref):  # type: ignore[arg-type]
                is_filled = isinstance(record, PartitionSegments) and (record.segments or record.sealed)
                records.append(changed(record) if is_filled and isinstance(record, PartitionSegments) else record)
            data = encode_part(records)
            name = ref.name.removesuffix(".json") + "9999.json"
            objects.put(name, data)  # type: ignore[attr-defined]
            return replace(head, parts={**head.parts, part: PartRef(name, len(data), digest(data))})
    return None


LATE_COMMIT = [("append", 0), ("checkpoint", 0), ("commit", 0), ("checkpoint", 0)]


@pytest.mark.parametrize("limit", [1, 3])
@example(steps=LATE_COMMIT)
@settings(max_examples=examples(25, 300), deadline=None)
@given(steps=STEPS)
def test_each_checkpoint_is_what_a_replay_gives(limit: int, steps: list[tuple[str, int]]) -> None:
    writing = Writing()
    for action, number in steps:
        writing.step(action, number)
    objects = writing.world.objects
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replaying, "_SEGMENTS_MAX", limit)
        replay, plain = Replay(objects, None), Unsealed(objects, None)
        for head in writing.heads():
            replay.advance_to(head.entry, 64)
            plain.advance_to(head.entry, 64)
            other = with_changed(objects, head)
            if other is not None and any(places(plain, ("segments", *where))[0] for where in (LEFT, RIGHT)):
                problem = replay.problem(other)
                assert problem is None or "other segments" in problem
                start = plain.parts.get(("partition", *LEFT)).log_start_offset
                assert problem is not None or start, "a change above the log start is found"
            assert replay.problem(head) is None
            for where in (LEFT, RIGHT):
                assert places(replay, ("segments", *where)) == places(plain, ("segments", *where))
        last = writing.processes[0].log.refresh()
        replay.advance_to(last, 64)
        plain.advance_to(last, 64)
        for where in (LEFT, RIGHT):
            assert places(replay, ("segments", *where)) == places(plain, ("segments", *where))
