"""A store whose every object is remembered, so that what a vacuum has left can be held against what was there."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Append, Command, CommandResult, CreateTopic, InitProducerId
from sparktxn._engine.format.segment import checksum
from sparktxn._engine.log.follow.confirm import read_horizon
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._engine.objectstore.contract import PutOutcome
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn.errors import OutcomeUnknown, StoreUnavailable, ViewExpired
from sparktxn.maintenance import VacuumReport, vacuum
from sparktxn.store import Store
from sparktxn.testing.clocks import ManualClock
from sparktxn.testing.faultystore import Fault, FaultyStore, Operation
from tests.producercommands import ProducerCommands
from tests.simulation.history import observe
from tests.simulation.inlineappends import check_kept
from tests.simulation.truth import digest_of, replay
from tests.world import next_number, open_log

LEFT, RIGHT = (1, 0), (1, 1)
TOPIC = "topic"
DAY_S = 86_400
EVERYTHING = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.temporary.age.ms": 0}


class RememberingStore(MemoryStore):
    """Remembers the first bytes ever created under each name."""

    def __init__(self, name: str, clock: ManualClock) -> None:
        super().__init__(name, clock)
        self.history: dict[str, bytes] = {}

    def copy_of(self, other: RememberingStore) -> None:
        """Takes over all objects, with their times, and what was remembered."""
        for folder, objects in other._shelf.folders.items():
            self._shelf.folders[folder] = dict(objects)
        self.history.update(other.history)

    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        outcome = super().put_if_absent(name, data, timeout_s=timeout_s)
        if outcome is PutOutcome.CREATED:
            self.history.setdefault(name, data)
        return outcome


class Process:
    """One process: its store, its way to the objects, and what becomes of its operations."""

    def __init__(self, world: World, seed: int, **settings: Any) -> None:
        self.fate: Callable[[Operation], Fault] = lambda operation: Fault.NONE
        self.late: list[Callable[[], object]] = []
        self.objects = FaultyStore(world.objects, lambda operation: self.fate(operation), later=self.late.append)
        self.log = open_log(self.objects, world.clock, seed, **settings)
        self.store = Store(world.objects.uri, {}, self.log)

    def submit(self, *commands: Command) -> list[CommandResult]:
        return self.log.submit(commands)

    def view(self, entry: int | None = None) -> ReadView:
        return self.log.view(None, entry=entry)

    def vacuum(
        self, *, dry_run: bool = False, now: bool = False, timeout_s: float | None = None, **settings: int
    ) -> VacuumReport:
        chosen = EVERYTHING | {name.replace("_", "."): value for name, value in settings.items()}
        return vacuum(self.store, chosen, dry_run=dry_run, now=now, timeout_s=timeout_s)


class World:
    """A store with one topic of two partitions, written to by one producer, with checkpoints when asked for.

    With `inline` the entries carry every second segment of a partition, one of each transaction.
    """

    def __init__(self, *, of: World | None = None, inline: bool = False) -> None:
        self.inline: bool = of.inline if of else inline
        self.number = next_number()
        self.clock: ManualClock = ManualClock(*([of.clock.now_s] if of else []))
        self.objects: RememberingStore = RememberingStore(f"vacuum-{self.number}", self.clock)
        self._seeds = count(1_000_000 * self.number)
        self._settings = {
            "checkpoint_entries": 100_000,
            "checkpoint_seal_segments": 2,
            "timeout_check_interval_ms": 10**15,
        }
        if of is not None:
            self.objects.copy_of(of.objects)
            self.producer: ProducerCommands = of.producer
            self.transaction: int = of.transaction
            self.writer = self.process()
            return
        self.writer = self.process()
        self.writer.submit(*self.created())
        told = self.writer.submit(InitProducerId("init", "job"))[0]
        self.producer = ProducerCommands.of("job", told)
        self.transaction = 0

    def created(self) -> list[Command]:
        """What makes the topic."""
        return [CreateTopic("topic", TOPIC, 2)]

    def copy(self) -> World:
        """A world of its own with the same objects; no other process is in it."""
        return World(of=self)

    def process(self, **settings: Any) -> Process:
        """A new process; `settings` are those of its handle."""
        return Process(self, next(self._seeds), **{**self._settings, **settings})

    def upload(self, append: Append, topic: str = TOPIC) -> Append:
        """Puts an object where the command's segment is to be, or has the command carry it."""
        if self.is_inline(append):
            return carrying(append, b"s" * append.size_bytes)
        name = names.segment(topic, append.topic_id, append.partition, append.segment)
        self.objects.put_if_absent(name, b"s" * append.size_bytes)
        return append

    def is_inline(self, append: Append) -> bool:
        return self.inline and (append.partition + append.base_sequence) % 2 == 0

    def fused(self, process: Process | None = None, *, committed: bool = True) -> list[Command]:
        """A transaction with a segment in each partition, uploaded; it may be sent again."""
        process = process or self.writer
        self.transaction += 1
        born = process.log.entry
        appends = [
            self.upload(self.producer.append(where, self.transaction - 1, transaction=self.transaction, born=born))
            for where in (LEFT, RIGHT)
        ]
        return [*appends, self.producer.end(self.transaction, committed=committed)]

    def commit(self, times: int = 1, *, process: Process | None = None) -> None:
        for _ in range(times):
            (process or self.writer).submit(*self.fused(process))

    def grow(self, checkpoints: int = 3, transactions: int = 3) -> None:
        """Transactions, and a checkpoint after every few of them; longer passes than any transaction may take."""
        for _ in range(checkpoints):
            for _ in range(transactions):
                self.commit()
                self.clock.sleep(1)
            assert self.writer.log.checkpoint() is not None
            self.clock.sleep(200)

    def names(self, prefix: str) -> list[str]:
        return [info.name for info in self.objects.list(prefix)]

    def entries(self) -> list[int]:
        return sorted(
            number for name in self.objects.list_names(names.ENTRIES) if (number := names.parse_entry(name)) is not None
        )

    def heads(self) -> list[int]:
        return [head[0] for name in self.names(names.CHECKPOINTS) if (head := names.parse_checkpoint_head(name))]

    def segments(self) -> set[str]:
        return {
            name for name in self.names(names.TOPICS) if names.parse_segment_born(name.rsplit("/", 1)[1]) is not None
        }

    def check(self) -> None:
        """Every view from the horizon on shows what the log says, and all that it names exists; older ones expire."""
        truths = replay(self.objects)
        horizon = read_horizon(self.objects)
        process = self.process()
        assert digest_of(process.log) == truths[-1].digest
        for truth in truths[max(horizon, 1) :]:
            view = process.view(truth.entry)
            assert set(view.partitions) == set(truth.partitions)
            seen = observe(self.objects, view.partitions)
            for key, expected in truth.partitions.items():
                start = expected.log_start_offset
                found = [placed for placed in seen[key].segments if placed in expected.segments]
                assert tuple(found) == expected.segments
                assert all(offset < start for _, offset in set(seen[key].segments) - set(expected.segments))
                assert seen[key].log_end_offset == expected.log_end_offset
                assert [range_ for range_ in seen[key].aborted if range_.last_offset >= start] == list(expected.aborted)
                for name, _ in expected.segments:
                    if names.is_inline(name):
                        continue
                    segment = names.segment(key[0], expected.topic_id, key[1], name)
                    assert self.objects.get(segment) is not None, f"{segment} is named at entry {truth.entry}"
        check_kept(self.objects, truths, max(horizon, 1))
        for entry in range(1, min(horizon, len(truths))):
            try:
                process.view(entry)
            except ViewExpired:
                continue
            assert entry >= horizon - 1, f"a view at entry {entry} below the horizon {horizon} was given"


def carrying(append: Append, data: bytes) -> Append:
    """The same append with its segment in it."""
    segment = names.inline_segment(names.segment_token(append.segment))
    return replace(append, segment=segment, data=data, size_bytes=len(data), checksum=checksum(data))


def until_done(work: Callable[[], object]) -> object:
    """Calls again while the store fails; it must end once it is well."""
    for _ in range(10):
        try:
            return work()
        except (OutcomeUnknown, StoreUnavailable):
            continue
    raise AssertionError("it does not end though the store is well again")
