"""A vacuum that lists only what is new leaves what one that lists everything leaves, in random histories."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import CreateTopic, DeleteRecords, DeleteTopic, DiscardHalf, EndHalf, PrepareHalf
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._foundation.values.structs import HalfSegment
from sparktxn._rows.scan.plan import segments_between
from sparktxn.errors import CommandRefused
from sparktxn.maintenance import rewrite
from sparktxn.maintenance.vacuuming import incrementallisting
from sparktxn.testing.faultystore import Died, Fault
from tests.maintenance.vacuumworld import TOPIC, World
from tests.seeds import examples

ACTIONS = (
    *("commit", "commit", "commit inline", "abort", "orphan", "orphan run", "delete records", "delete topic"),
    *("delete segments", "delete segments"),
    *("rewrite", "rewrite", "prepare", "settle", "discard", "checkpoint", "checkpoint", "checkpoint", "sleep", "sleep"),
    *("vacuum", "vacuum", "vacuum", "vacuum that dies"),
)
STEPS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2), st.integers(0, 1)), min_size=10, max_size=60)


class Listing:
    """A store with topics of fake segments and of real ones, which are rewritten; two are deleted now and then."""

    def __init__(self) -> None:
        self.world = World()
        self.files = self.world.process(inline_bytes=0)
        self.inline = self.world.process()
        self.number = 0
        self.halves: list[str] = []
        self.bounded = 0
        for name in ("real", "short", "gone"):
            self.create(name)

    def create(self, name: str) -> None:
        self.number += 1
        self.files.submit(CreateTopic(f"create {self.number}", name, 2))

    def view(self) -> ReadView:
        return self.files.view()

    def token(self) -> str:
        self.number += 1
        return f"{self.number:020d}"

    def step(self, action: str, number: int, partition: int) -> None:
        for process in (self.files, self.inline, self.world.writer):
            process.log.refresh()
        getattr(self, action.replace(" ", "_"))(number, partition)

    def _commit(self, process: Any, number: int, partition: int) -> None:
        topic = ("real", "short")[number % 2]
        stager = process.store.stage_plan([topic]).open(seed=self.number)
        self.number += 1
        rows = {"value": [b"v" * 50] * 3, "topic": [topic] * 3, "partition": pa.array([partition] * 3, pa.int32())}
        stager.write(pa.table(rows))
        process.store.commit(stager.finish(), transactional_id=f"of {process is self.files}")

    def commit(self, number: int, partition: int) -> None:
        self._commit(self.files, number, partition)

    def commit_inline(self, number: int, partition: int) -> None:
        self._commit(self.inline, number, partition)

    def abort(self, number: int, partition: int) -> None:
        self.world.writer.submit(*self.world.fused(committed=number > 0))

    def orphan(self, number: int, partition: int) -> None:
        """Upload a segment that no entry names, as a writer that was killed has."""
        topic = self.view().topics[("real", "short", TOPIC)[number]]
        born = max(0, self.files.log.entry - 3 * number)
        if born >= self.files.log.store_state().segment_floor:
            file = names.segment_file(born, self.token(), "parquet")
            self.world.objects.put_if_absent(names.segment(topic.name, topic.topic_id, partition, file), b"s")

    def orphan_run(self, number: int, partition: int) -> None:
        """Write a run that no head names, as a process that was killed while it sealed has."""
        topic = self.view().topics[("real", "short", TOPIC)[number]]
        folder = names.partition_folder(topic.name, topic.topic_id, partition)
        run = names.sealed_folder(number, self.files.log.entry, self.token())
        self.world.objects.put_if_absent(names.manifest(folder, run), b"m")

    def delete_records(self, number: int, partition: int) -> None:
        name = ("real", "short", TOPIC)[number]
        found = self.view().partitions[name, partition]
        before = (found.log_start_offset + found.last_stable_offset) // 2
        self.files.submit(DeleteRecords(self.token(), found.topic.topic_id, partition, before))

    def delete_segments(self, number: int, partition: int) -> None:
        """Delete the records of the first segments, up to the end of one."""
        name = ("real", "short", TOPIC)[number]
        found = self.view().partitions[name, partition]
        ends = [segment.end_offset for segment in segments_between(self.world.objects, found, 0, found.log_end_offset)]
        ends = [end for end in ends if found.log_start_offset < end <= found.last_stable_offset]
        if ends:
            self.files.submit(DeleteRecords(self.token(), found.topic.topic_id, partition, ends[len(ends) // 3]))

    def delete_topic(self, number: int, partition: int) -> None:
        name = ("short", "gone")[partition]
        self.files.submit(DeleteTopic(self.token(), name, self.view().topics[name].topic_id))
        self.create(name)

    def rewrite(self, number: int, partition: int) -> None:
        given = {"rewrite.topics": "real,short", "rewrite.min.segments": 2, "rewrite.target.bytes": 1_024 << number}
        rewrite(self.files.store, given)

    def prepare(self, number: int, partition: int) -> None:
        name, file = f"half {self.token()}", names.segment_file(self.world.writer.log.entry, self.token(), "arrow")
        topic = self.view().topics[(TOPIC, "gone", "gone")[number]]
        self.world.objects.put_if_absent(names.segment(topic.name, topic.topic_id, 0, file), b"s" * 100)
        segment = HalfSegment(topic.name, topic.topic_id, 0, file, 1, 100, "00000000", 1, 2)
        self.world.writer.submit(PrepareHalf("shop", name, (segment,), 600_000))
        self.halves.append(name)

    def settle(self, number: int, partition: int) -> None:
        if self.halves:
            with suppress(CommandRefused):
                self.world.writer.submit(EndHalf("shop", self.halves.pop(0), number > 0))

    def discard(self, number: int, partition: int) -> None:
        if self.halves:
            with suppress(CommandRefused):
                self.world.writer.submit(DiscardHalf("shop", self.halves[-1], 0))

    def checkpoint(self, number: int, partition: int) -> None:
        self.world.writer.log.checkpoint()

    def sleep(self, number: int, partition: int) -> None:
        self.world.clock.sleep((1, 100, 400)[number])

    def vacuum_that_dies(self, number: int, partition: int) -> None:
        """Let a vacuum die at one of its operations: the next one finishes what it has begun."""
        copy = self.world.copy().process()
        opened = len(copy.objects.operations)
        copy.vacuum(vacuum_list_all_ms=10**12)
        process = self.world.process()
        last = opened + 1 + self.number * 7_919 % (len(copy.objects.operations) - opened)
        process.fate = lambda operation: Fault.DIE_AFTER if operation.number == last else Fault.NONE
        with suppress(Died):
            process.vacuum(vacuum_list_all_ms=10**12)

    def vacuum(self, number: int, partition: int) -> None:
        """Vacuum this store and a copy: there the vacuum lists everything."""
        ages: dict[str, Any] = {
            "vacuum_retention_ms": (0, 0, 300_000)[number],
            "vacuum_segment_age_ms": 200_000 * partition,
        }
        copy = self.world.copy()
        listed = copy.process().vacuum(vacuum_list_all_ms=0, **ages)
        process = self.world.process()
        found = process.vacuum(vacuum_list_all_ms=10**12, **ages)
        assert remaining(self.world) == remaining(copy)
        assert (found.horizon, found.segment_floor) == (listed.horizon, listed.segment_floor)
        assert found.segments >= listed.segments
        self.bounded += ("list", names.TOPICS) not in {(each.verb, each.name) for each in process.objects.operations}


def remaining(world: World) -> set[str]:
    return {name for name in world.names("") if name != names.LAST_VACUUM and not name.startswith(names.CLOCKS)}


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vacuum lists what is new, however few objects there are."""
    monkeypatch.setattr(incrementallisting, "_NAMES_PER_REQUEST", -1)


@settings(max_examples=examples(10, 100))
@given(STEPS)
def test_it_leaves_what_a_vacuum_leaves_that_lists_everything(steps: list[tuple[str, int, int]]) -> None:
    listing = Listing()
    for each in steps:
        listing.step(*each)
    listing.vacuum(0, 0)
    before = listing.bounded
    listing.vacuum(0, 0)
    assert listing.bounded == before + 1, "the second of two vacuums lists only what is new"
