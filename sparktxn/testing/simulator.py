"""Many processes over one store, one at a time, from one seed.

Each process is a thread, and only the one that holds the turn runs: every store operation and every sleep is a
scheduling point, where the seed says who goes on, how time passes and what fails. Nothing else decides anything, so one
seed is one history, and the same seed gives the same trace.
"""

from __future__ import annotations

import hashlib
import heapq
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from random import Random
from typing import Final

from msgspec import Struct

from sparktxn.background import Background
from sparktxn.config.store import StoreSettings
from sparktxn.errors import StoreUnavailable
from sparktxn.format.names import parse_entry
from sparktxn.log.log import Log
from sparktxn.objectstore.contract import ObjectInfo, PutOutcome
from sparktxn.testing.background import StrictBackground
from sparktxn.testing.faultystore import Died, Fault, FaultyStore, Operation

__all__ = ["FaultRates", "Process", "SharedObjects", "Simulator"]

_START_S: Final = 1_700_000_000.0
_OPERATION_S_MAX: Final = 0.02
_FAULT_S_MAX: Final = 3.0
_PAUSES_S: Final = (0.5, 5.0, 60.0, 3_600.0)
_BURST_S_MAX: Final = 2.0
_SKEW_S_MAX: Final = 3_600.0


class Stopped(BaseException):
    """The simulation is over for this process."""


class SharedObjects:
    """The objects of all processes, in memory. `history` keeps the first bytes ever created under a name.

    The first is the true one: a slot can only be created again after its deletion, when nobody may believe it.
    """

    probe_is_cheap = True

    def __init__(self) -> None:
        self.uri = "memory://simulation"
        self.objects: dict[str, bytes] = {}
        self.history: dict[str, bytes] = {}
        self._folders: dict[str, dict[str, None]] = {}

    def get(self, name: str) -> bytes | None:
        """The object's bytes, or None."""
        return self.objects.get(name)

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        """`get` of each name."""
        return [self.objects.get(name) for name in names]

    def get_range(self, name: str, start: int, end: int) -> bytes | None:
        """Bytes `start` to `end`, or None."""
        data = self.objects.get(name)
        return None if data is None else data[start:end]

    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        """Creates the object if the name is free."""
        if name in self.objects:
            return PutOutcome.EXISTS
        self.history.setdefault(name, data)
        self.put(name, data)
        return PutOutcome.CREATED

    def put(self, name: str, data: bytes) -> None:
        """Writes the object."""
        self.objects[name] = data
        self._folders.setdefault(name[: name.rfind("/") + 1], {})[name] = None

    def list(self, prefix: str) -> list[ObjectInfo]:
        """All objects whose name starts with `prefix`, by name."""
        return sorted(ObjectInfo(name, len(data), 0) for name, data in self.objects.items() if name.startswith(prefix))

    def list_names(self, folder: str) -> Sequence[str]:
        """Names of the objects directly in `folder`."""
        return [*self._folders.get(folder, ())]

    def delete(self, names: Iterable[str]) -> None:
        """Deletes the objects."""
        for name in names:
            self.objects.pop(name, None)
            self._folders.get(name[: name.rfind("/") + 1], {}).pop(name, None)

    def make_durable(self, name: str) -> None:
        """Nothing: this memory never loses power."""

    def contention_lock(self, while_waiting: Callable[[], None] | None = None) -> AbstractContextManager[None]:
        """Nothing: one process runs at a time."""
        return nullcontext()

    def close(self) -> None:
        """Nothing is held."""

    def true_entries(self) -> int:
        """How many entries the log has had."""
        return sum(1 for name in self.history if parse_entry(name) is not None)


class FaultRates(Struct, frozen=True):
    """How often an operation meets each fault; `clock_skew` is how often a process's clock is wrong."""

    faults: dict[Fault, float]
    pause: float = 0.0
    burst: float = 0.0
    clock_skew: float = 0.0

    @classmethod
    def drawn(cls, random: Random) -> FaultRates:
        """A mix of its own for each seed: some kinds never, others often, so that no fault hides another."""
        kinds: list[Fault] = [fault for fault in Fault if fault is not Fault.NONE]
        rates = {fault: random.choice((0.0, 0.0, 0.01, 0.04)) for fault in kinds}
        return cls(rates, random.choice((0.0, 0.005, 0.03)), random.choice((0.0, 0.01)), random.choice((0.0, 0.5)))


class _Clock:
    """A process's clock: the simulation's time, off by a skew."""

    def __init__(self, process: Process, skew_s: float) -> None:
        self._process = process
        self._skew_s = skew_s

    def wall_ms(self) -> int:
        return int((self._process.simulator.now_s + self._skew_s) * 1000)

    def monotonic_s(self) -> float:
        return self._process.simulator.now_s

    def sleep(self, seconds: float) -> None:
        self._process.sleep(seconds)


class _Ids:
    def __init__(self, random: Random) -> None:
        self._random = random

    def token(self) -> str:
        return f"{self._random.getrandbits(128):032x}"


class Process:
    """One simulated process: what its program sees of the world."""

    def __init__(self, simulator: Simulator, name: str, program: Callable[[Process], None]) -> None:
        self.simulator = simulator
        self.name = name
        self.random = Random(f"{simulator.seed} {name}")
        skewed = self.random.random() < simulator.rates.clock_skew
        self.clock = _Clock(self, self.random.uniform(-_SKEW_S_MAX, _SKEW_S_MAX) if skewed else 0.0)
        self.ids = _Ids(self.random)
        self.background: Background = StrictBackground()
        self.turn = threading.Semaphore(0)
        self.wake_s = 0.0
        self._program = program
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def sleep(self, seconds: float) -> None:
        """Gives the turn away for at least `seconds`."""
        self.wake_s = self.simulator.now_s + seconds
        self.simulator.give_turn(self)

    def open_log(self, settings: StoreSettings) -> Log:
        """A handle as a process that has just started opens it; a store that does not answer is asked again."""
        while True:
            objects = FaultyStore(self.simulator.shared, self._fate, later=self.simulator.later)
            try:
                return Log.open(
                    objects,
                    settings=settings,
                    clock=self.clock,
                    ids=self.ids,
                    background=self.background,
                    create=True,
                )
            except StoreUnavailable:
                self.sleep(0.1)

    def operation(self, what: str) -> None:
        """A scheduling point for something that a program does to the shared objects by itself."""
        if self._fate(Operation(0, what, "")) in (Fault.DIE_BEFORE, Fault.DIE_AFTER):
            raise Died

    def _fate(self, operation: Operation) -> Fault:
        simulator = self.simulator
        simulator.give_turn(self)
        if simulator.pauses():
            self.sleep(simulator.random.choice(_PAUSES_S))
        fault = simulator.draw_fault()
        simulator.note(f"{self.name} {operation.verb} {operation.name} {fault.value}")
        return fault

    def _run(self) -> None:
        self.turn.acquire()
        simulator = self.simulator
        try:
            while not simulator.stopping:
                try:
                    self._program(self)
                    break
                except Died:
                    simulator.note(f"{self.name} restarts")
                    self.sleep(self.random.uniform(0.01, 5.0))
        except Stopped:
            pass
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            simulator.fail(error)
        finally:
            simulator.leave(self)


class Simulator:
    """Runs processes to their end. After `calm_after` steps nothing fails any more, so that all come to an end.

    Set `lines` to a list to keep the trace's lines, for reading.
    """

    def __init__(
        self, seed: int, *, rates: FaultRates | None = None, calm_after: int = 600, steps_max: int = 20_000
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.rates = rates if rates is not None else FaultRates.drawn(self.random)
        self.shared = SharedObjects()
        self.now_s = _START_S
        self.stopping = False
        self.steps = 0
        self._calm_after = calm_after
        self._steps_max = steps_max
        self._processes: list[Process] = []
        self._live: list[Process] = []
        self._late: list[tuple[float, int, Callable[[], object]]] = []
        self._late_number = count()
        self._burst_until_s = 0.0
        self._ended = threading.Semaphore(0)
        self._error: BaseException | None = None
        self._trace = hashlib.sha256()
        self.lines: list[str] | None = None

    def add(self, name: str, program: Callable[[Process], None]) -> None:
        """Adds a process; its program runs again from its start whenever it dies."""
        self._processes.append(Process(self, name, program))

    def run(self) -> None:
        """Runs until every program has returned.

        Raises:
            BaseException: what a program raised, other than dying.
        """
        self._live = list(self._processes)
        for process in self._live:
            process.thread.start()
        if self._live:
            self._next().turn.release()
            self._ended.acquire()
        for process in self._processes:
            process.thread.join()
        self._land(float("inf"))
        if self._error is not None:
            raise self._error

    @property
    def trace(self) -> str:
        """A digest of all that has happened, in order, and of the objects at the end."""
        digest = self._trace.copy()
        for name, data in sorted(self.shared.objects.items()):
            digest.update(name.encode() + b"\0" + data)
        return digest.hexdigest()

    def note(self, what: str) -> None:
        """Adds a line to the trace."""
        line = f"{self.now_s - _START_S:.6f} {what}\n"
        self._trace.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    def later(self, put: Callable[[], object]) -> None:
        """Lets a late put arrive some time from now."""
        due_s = self.now_s + self.random.choice((0.01, 0.5, 10.0, 600.0))
        heapq.heappush(self._late, (due_s, next(self._late_number), put))

    def pauses(self) -> bool:
        """Draws whether the process stops here for a while."""
        return self._stormy() and self.random.random() < self.rates.pause

    def draw_fault(self) -> Fault:
        """Draws what becomes of the next operation, and lets the time pass that it takes."""
        self.now_s += self.random.random() * _OPERATION_S_MAX
        self._land(self.now_s)
        if not self._stormy():
            return Fault.NONE
        fault = self._drawn()
        if fault not in (Fault.NONE, Fault.TWICE):
            self.now_s += self.random.random() * _FAULT_S_MAX
        return fault

    def give_turn(self, process: Process) -> None:
        """Lets the seed choose who goes on; returns when it is this process's turn again."""
        self.steps += 1
        if self.steps > self._steps_max and not self.stopping:
            self.fail(AssertionError(f"no end after {self._steps_max} steps"))
        if self.stopping:
            raise Stopped
        chosen = self._next()
        if chosen is not process:
            chosen.turn.release()
            process.turn.acquire()
            if self.stopping:
                raise Stopped

    def fail(self, error: BaseException) -> None:
        """Ends the simulation; the first error is what `run` raises."""
        self._error = self._error or error
        self.stopping = True

    def leave(self, process: Process) -> None:
        """Takes a process that has ended out, and gives its turn to another."""
        self._live.remove(process)
        if not self._live:
            self._ended.release()
        elif self.stopping:
            self._live[0].turn.release()
        else:
            self._next().turn.release()

    def _stormy(self) -> bool:
        return self.steps < self._calm_after

    def _drawn(self) -> Fault:
        if self.now_s < self._burst_until_s:
            return Fault.REFUSED
        if self.random.random() < self.rates.burst:
            self._burst_until_s = self.now_s + self.random.random() * _BURST_S_MAX
        drawn = self.random.random()
        for fault, rate in self.rates.faults.items():
            drawn -= rate
            if drawn < 0:
                return fault
        return Fault.NONE

    def _land(self, until_s: float) -> None:
        while self._late and self._late[0][0] <= until_s:
            heapq.heappop(self._late)[2]()

    def _next(self) -> Process:
        awake = [process for process in self._live if process.wake_s <= self.now_s]
        if awake:
            return self.random.choice(awake)
        first = min(self._live, key=lambda process: process.wake_s)
        self.now_s = first.wake_s
        self._land(self.now_s)
        return first
