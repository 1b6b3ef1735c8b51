"""What the pinned scenarios share: a store with two topics, writers to direct, and a vacuum that goes past anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pyarrow as pa

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import (
    Command,
    CommandResult,
    CreateTopic,
    InitProducerId,
    OffsetCommit,
    OffsetToCommit,
)
from sparktxn._engine.log.follow.confirm import read_horizon
from sparktxn._engine.log.log import Log
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.background import InlineBackground
from sparktxn._foundation.process.clock import Clock
from sparktxn._rows.scan.plan import ReadTask
from sparktxn._rows.scan.reader import read
from sparktxn.errors import CommandRefused, OutcomeLost
from sparktxn.maintenance import VacuumReport, vacuum
from sparktxn.store import Store
from sparktxn.testing.clocks import SeededIds
from sparktxn.testing.faultystore import Fault, FaultyStore, Operation, Script
from tests.lending import lend_log
from tests.producercommands import ProducerCommands
from tests.simulation.director import Act, Director
from tests.simulation.truth import Truth, digest_of, replay

__all__ = ["LEFT", "RIGHT", "SETTINGS", "ScriptedWorld", "Visitor"]

SETTINGS = StoreSettings(checkpoint_entries=1_000, checkpoint_seal_segments=2, request_timeout_ms=1_000)
LEFT, RIGHT = (1, 0), (2, 0)
NO_RETENTION = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0}
_numbers = count()
_seeds = count(1_000_000)


class Visitor:
    """A process with a log of its own, whose store fails as `weather` says; without weather nothing does."""

    def __init__(self, stage: ScriptedWorld, clock: Clock) -> None:
        self.weather: Script | None = None
        self._stage = stage
        objects = FaultyStore(stage.shared, self._fate, later=stage.late.append)
        self.log = Log.open(
            objects,
            settings=SETTINGS,
            clock=clock,
            ids=SeededIds(next(_seeds)),
            background=InlineBackground(),
            check_clock=True,
        )
        self.uri = f"{stage.shared.uri}-visitor-{next(_seeds)}"
        lend_log(self.uri, self.log)
        stage.lent.append(self.uri)

    def _fate(self, operation: Operation) -> Fault:
        return self.weather(operation) if self.weather is not None else Fault.NONE

    def write_something(self) -> None:
        """What another client of this process does."""
        name = f"visitor {next(_seeds)}"
        self.log.submit([InitProducerId(name, name, 60_000)])


class ScriptedWorld(Director):
    """A store on which two topics exist. `calm` is a process that nothing disturbs."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = SETTINGS
        self.uri, self.calm = self.connect(SETTINGS)
        for topic in ("left", "right"):
            self.submit(CreateTopic(topic, topic, 1))

    # Calm steps

    def visitor(self, clock: Clock | None = None) -> Visitor:
        """A process of its own, which compares its clock with the store's, as users' processes do."""
        return Visitor(self, clock or self.clock)

    def truths_timestamp_ms(self) -> int:
        """The log's newest timestamp, as a process sees it that opens the store now."""
        log = self.log(SETTINGS)
        return log.view(None).timestamp_ms

    def rows_of(self, task: ReadTask) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        return read(self.shared, task)

    def submit(self, *commands: Command) -> list[CommandResult]:
        """What the calm process writes, at once."""
        return self.calm.submit(list(commands))

    def initialise(self, name: str) -> ProducerCommands:
        """A producer of that transactional id."""
        command = InitProducerId(f"init {name} {next(_numbers)}", name, 60_000)
        return ProducerCommands.of(name, self.submit(command)[0])

    def go_on(self, entries: int = 1) -> None:
        """Some entries that have nothing to do with anything."""
        for _ in range(entries):
            number = next(_numbers)
            self.submit(InitProducerId(f"filler {number}", "filler", 60_000))

    def checkpoint(self) -> None:
        """An entry, and a checkpoint of all there is."""
        self.go_on()
        self.calm.checkpoint()
        self.clock.now_s += 200

    def vacuum(self) -> VacuumReport:
        """The real vacuum, with no retention."""
        with Store.open(self.uri) as store:
            return vacuum(store, NO_RETENTION)

    def go_past(self) -> int:
        """Goes on, and vacuums all entries there were; the new horizon."""
        self.calm.refresh()
        before = self.calm.entry
        for _ in range(4):
            self.checkpoint()
        self.vacuum()
        horizon = read_horizon(self.shared)
        assert horizon > before, "the vacuum has not gone past what was there"
        return horizon

    # Programs

    def submits(self, *commands: Command, timeout_s: float = 1e9) -> Act[list[CommandResult]]:
        """A process that opens the log and submits a list."""
        return self.act(f"writer {next(_numbers)}", submitting(*commands, timeout_s=timeout_s))

    # Checks

    def truths(self) -> list[Truth]:
        """The log as it truly was."""
        return replay(self.shared)

    def times(self, command: Command) -> int:
        """How often the true log holds a command."""
        return sum(truth.commands.count(command) for truth in self.truths())

    def check_agreement(self, *logs: Log) -> None:
        """A process that opens the store now, the calm process, and `logs` hold the true state and continue."""
        self.go_on()
        truths = self.truths()
        for log in (self.calm, self.log(SETTINGS), *logs):
            log.refresh()
            assert log.entry == len(truths) - 1, f"a process stands at entry {log.entry}, the log at {len(truths) - 1}"
            assert digest_of(log) == truths[-1].digest, "a process holds another state"

    def check_done_once(self, act: Act[list[CommandResult]], command: Command) -> None:
        """What was acknowledged is there once, and what was refused is not there."""
        try:
            act.finish()
        except CommandRefused:
            assert self.times(command) == 0, "it was refused and is in the log"
        except OutcomeLost:
            assert self.times(command) <= 1, f"nobody knows, and it is in the log {self.times(command)} times"
        else:
            assert self.times(command) == 1, f"it was acknowledged and is in the log {self.times(command)} times"


def submitting(*commands: Command, timeout_s: float = 1e9) -> Callable[[Act[list[CommandResult]]], list[CommandResult]]:
    """Opens the log, and submits."""

    def program(act: Act[list[CommandResult]]) -> list[CommandResult]:
        log = act.open_log(SETTINGS)
        with log.within(timeout_s):
            return log.submit(list(commands))

    return program


def plain_offset(name: str) -> OffsetCommit:
    """A command with an identity of its own."""
    return OffsetCommit(name, name, (OffsetToCommit(*LEFT, 1),))


def entry_name(number: int) -> str:
    """An entry's object."""
    return names.entry(number)
