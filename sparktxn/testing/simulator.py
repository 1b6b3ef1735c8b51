"""Many processes over one store, one at a time, from one seed.

Each process is a greenlet, and only the one that holds the turn runs: every store operation and every sleep is a
scheduling point, where the seed says who goes on, how time passes and what fails. Nothing else decides anything, so one
seed is one history, and the same seed gives the same trace.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Final

from greenlet import getcurrent, greenlet
from msgspec import Struct

from sparktxn.background import Background
from sparktxn.config.store import StoreSettings
from sparktxn.errors import StoreUnavailable
from sparktxn.log.log import Log
from sparktxn.registry import lend_log, take_log_back
from sparktxn.testing.background import StrictBackground
from sparktxn.testing.faultystore import Died, Fault, FaultyStore, Operation
from sparktxn.testing.sharedobjects import SharedObjects

__all__ = ["FaultRates", "Process", "Simulator"]

_START_S: Final = 1_700_000_000.0
_OPERATION_S_MAX: Final = 0.02
_FAULT_S_MAX: Final = 3.0
_PAUSES_S: Final = (0.5, 5.0, 60.0, 3_600.0)
_LATE_S: Final = (0.01, 0.5, 10.0, 600.0)
_BURST_S_MAX: Final = 2.0
_SKEW_S_MAX: Final = 3_600.0


class Stopped(BaseException):
    """The simulation is over for this process."""


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
        self._simulator = process.simulator
        self._skew_s = skew_s

    def wall_ms(self) -> int:
        return int((self._simulator.now_s + self._skew_s) * 1000)

    def monotonic_s(self) -> float:
        return self._simulator.now_s

    def sleep(self, seconds: float) -> None:
        self._process.sleep(seconds)


class _Ids:
    def __init__(self, random: Random) -> None:
        self._random = random

    def token(self) -> str:
        return f"{self._random.getrandbits(128) >> 48:020x}"


class Process:
    """One simulated process: what its program sees of the world."""

    def __init__(self, simulator: Simulator, name: str, program: Callable[[Process], None]) -> None:
        self.simulator = simulator
        self.name = name
        self.random = Random(f"{simulator.seed} {name}")
        self.skewed = self.random.random() < simulator.rates.clock_skew
        self.clock = _Clock(self, self.random.uniform(-_SKEW_S_MAX, _SKEW_S_MAX) if self.skewed else 0.0)
        self.ids = _Ids(self.random)
        self.background: Background = StrictBackground()
        self.wake_s = 0.0
        self._program = program
        self._uri: str | None = None
        self.fiber = greenlet(self._run)

    def sleep(self, seconds: float) -> None:
        """Gives the turn away for at least `seconds`."""
        self.wake_s = self.simulator.now_s + seconds
        self.simulator.give_turn(self)

    def open_log(self, settings: StoreSettings) -> Log:
        """A handle as a process that has just started opens it; a store that does not answer is asked again."""
        while True:
            objects = FaultyStore(self.simulator.shared, self._fate, later=self.simulator.later, pause=self._pause)
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

    def connect(self, settings: StoreSettings) -> tuple[str, Log]:
        """An address at which the clients of this process find a log of their own, until the process dies or ends."""
        log = self.open_log(settings)
        self._disconnect()
        self._uri = f"{self.simulator.shared.uri}-{self.name}-{self.ids.token()}"
        lend_log(self._uri, log)
        return self._uri, log

    def _disconnect(self) -> None:
        if self._uri is not None:
            take_log_back(self._uri)
            self._uri = None

    def operation(self, what: str) -> None:
        """A scheduling point for something that a program does to the shared objects by itself."""
        if self._fate(Operation(0, what, "")) in (Fault.DIE_BEFORE, Fault.DIE_AFTER):
            raise Died

    def _fate(self, operation: Operation) -> Fault:
        simulator = self.simulator
        simulator.give_turn(self)
        if simulator.pauses():
            self._pause()
        fault = simulator.draw_fault(operation.verb)
        simulator.done.append((simulator.now_s, self.name, operation, fault))
        return fault

    def _pause(self) -> None:
        self.sleep(self.simulator.random.choice(_PAUSES_S))

    def _run(self) -> None:
        simulator = self.simulator
        try:
            while not simulator.stopping:
                try:
                    self._program(self)
                    break
                except Died:
                    self._disconnect()
                    simulator.done.append((simulator.now_s, self.name, None, Fault.NONE))
                    self.sleep(self.random.uniform(0.01, 5.0))
        except Stopped:
            pass
        except BaseException as error:  # noqa: BLE001 - whoever runs the simulation raises it
            simulator.fail(error)
        finally:
            self._disconnect()
            simulator.leave(self)


class Simulator:
    """Runs processes to their end. After `calm_after` steps nothing fails any more, so that all come to an end.

    `injected` counts the faults by kind. `done` is what has happened: (when, who, operation or None for a restart,
    fault).
    """

    def __init__(
        self, seed: int, *, rates: FaultRates | None = None, calm_after: int = 400, steps_max: int = 20_000
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self._draw = self.random.random
        self.rates = rates if rates is not None else FaultRates.drawn(self.random)
        self.shared = SharedObjects(lambda: int(self.now_s * 1000))
        # Half of the histories are on a store like S3, where writers do not look before they put, and leave intents.
        self.shared.probe_is_cheap = Random(f"{seed} probe").random() < 0.5
        self.now_s = _START_S
        self.stopping = False
        self.steps = 0
        self.injected: Counter[str] = Counter()
        self.done: list[tuple[float, str, Operation | None, Fault]] = []
        self._calm_after = calm_after
        self._steps_max = steps_max
        self._processes: list[Process] = []
        self._live: list[Process] = []
        self._late: list[tuple[float, int, Callable[[], object]]] = []
        self._late_number = count()
        self._burst_until_s = 0.0
        self._error: BaseException | None = None
        self._thresholds = self._summed()

    def _summed(self) -> list[tuple[float, Fault]]:
        summed, thresholds = 0.0, []
        for fault, rate in self.rates.faults.items():
            summed += rate
            thresholds.append((summed, fault))
        return thresholds

    def add(self, name: str, program: Callable[[Process], None]) -> None:
        """Adds a process; its program runs again from its start whenever it dies."""
        self._processes.append(Process(self, name, program))

    def run(self) -> None:
        """Runs until every program has returned.

        Raises:
            BaseException: what a program raised, other than dying.
        """
        self.injected["clock skew"] += sum(process.skewed for process in self._processes)
        self._live = list(self._processes)
        for process in self._processes:
            process.fiber.parent = getcurrent()
        while self._live and not self.stopping:
            self._next().fiber.switch()
        for process in list(self._live):
            if process.fiber:
                process.fiber.throw(Stopped)
        self._live.clear()
        self._land(float("inf"))
        if self._error is not None:
            raise self._error

    @property
    def trace(self) -> str:
        """A digest of all that has happened, in order, and of the objects at the end."""
        digest = hashlib.sha256("".join(self.lines).encode())
        for name, data in sorted(self.shared.objects.items()):
            digest.update(name.encode() + b"\0" + data)
        return digest.hexdigest()

    @property
    def lines(self) -> list[str]:
        """What has happened, to be read."""
        return [
            f"{when_s - _START_S:.6f} {who} restarts\n"
            if what is None
            else f"{when_s - _START_S:.6f} {who} {what.verb} {what.name} {fault.value}\n"
            for when_s, who, what, fault in self.done
        ]

    def later(self, put: Callable[[], object]) -> None:
        """Lets a late put arrive some time from now."""
        due_s = self.now_s + self.random.choice(_LATE_S)
        heapq.heappush(self._late, (due_s, next(self._late_number), put))

    def pauses(self) -> bool:
        """Draws whether the process stops here for a while."""
        if self.steps >= self._calm_after or not self.rates.pause or self._draw() >= self.rates.pause:
            return False
        self.injected["pause"] += 1
        return True

    def draw_fault(self, verb: str) -> Fault:
        """Draws what becomes of the next operation, and lets the time pass that it takes."""
        self.now_s += self._draw() * _OPERATION_S_MAX
        if self._late:
            self._land(self.now_s)
        if self.steps >= self._calm_after:
            return Fault.NONE
        fault = self._drawn()
        if fault is Fault.NONE or not fault.means_something_for(verb):
            return Fault.NONE
        self.injected[fault.value] += 1
        if fault in (Fault.REFUSED, Fault.RESPONSE_LOST, Fault.LATE):
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
            chosen.fiber.switch()
            # Meanwhile another process may have failed.
            self._check_running()

    def _check_running(self) -> None:
        if self.stopping:
            raise Stopped

    def fail(self, error: BaseException) -> None:
        """Ends the simulation; the first error is what `run` raises."""
        self._error = self._error or error
        self.stopping = True

    def leave(self, process: Process) -> None:
        """Takes a process that has ended out."""
        self._live.remove(process)

    def _drawn(self) -> Fault:
        random = self._draw
        if self.now_s < self._burst_until_s:
            return Fault.UNAVAILABLE
        if self.rates.burst and random() < self.rates.burst:
            self.injected["burst"] += 1
            self._burst_until_s = self.now_s + random() * _BURST_S_MAX
        drawn = random()
        if self._thresholds and drawn < self._thresholds[-1][0]:
            return next(fault for threshold, fault in self._thresholds if drawn < threshold)
        return Fault.NONE

    def _land(self, until_s: float) -> None:
        while self._late and self._late[0][0] <= until_s:
            heapq.heappop(self._late)[2]()

    def _next(self) -> Process:
        now_s = self.now_s
        awake = [process for process in self._live if process.wake_s <= now_s]
        if awake:
            return awake[int(self._draw() * len(awake))] if len(awake) > 1 else awake[0]
        first = min(self._live, key=lambda process: process.wake_s)
        self.now_s = first.wake_s
        self._land(self.now_s)
        return first
