"""Many processes over one store, one at a time, from one seed.

Each process is a greenlet, and only the one that holds the turn runs. Every store operation and every sleep is a
scheduling point, where the seed says which one continues, how time passes and what fails. Nothing else decides
anything, so one seed is one history, and the same seed gives the same trace.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from math import inf
from random import Random
from typing import Final, NamedTuple

from greenlet import getcurrent
from msgspec import Struct

from sparktxn._engine.format import names
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore.contract import PutOutcome, check_time
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.background import Background
from sparktxn._foundation.process.clock import time_left_s
from sparktxn.errors import StoreUnavailable
from sparktxn.testing.clocks import StrictBackground
from sparktxn.testing.faultystore import Died, Fault, FaultyStore, Operation, Script
from tests.lending import lend_log, take_log_back
from tests.simulation.fibers import Fiber, FiberBackground, cooperative_threads, current_fiber, no_collections
from tests.simulation.sharedobjects import SharedObjects

__all__ = ["FaultRates", "Offer", "Process", "Simulator"]

_START_S: Final = 1_700_000_000.0
_OPERATION_S_MAX: Final = 0.02
_FAULT_S_MAX: Final = 3.0
_INLINE_BYTES: Final = (0, 60, 16_384)
"""No records are inline, single ones are, or all."""
_PAUSES_S: Final = (0.5, 5.0, 60.0, 3_600.0)
_LATE_S: Final = (0.01, 0.5, 10.0, 600.0)
_BURST_S_MAX: Final = 2.0
_SKEW_S_MAX: Final = 3_600.0
_REQUEST_S: Final = 2.0
"""How long a request waits for a store that says nothing."""
_SILENCES_S: Final = (3.0, 40.0, 200.0)
_UNANSWERED: Final = (Fault.REFUSED, Fault.REFUSED, Fault.RESPONSE_LOST, Fault.LATE)


class Stopped(BaseException):
    """The simulation is over for this process."""


class FaultRates(Struct, frozen=True):
    """How often an operation meets each fault; `clock_skew` is how often a process's clock is wrong.

    `pauses_s` are the lengths of pauses. With `reads_at_once` objects that are asked for together are one operation.
    """

    faults: dict[Fault, float]
    pause: float = 0.0
    burst: float = 0.0
    clock_skew: float = 0.0
    pauses_s: tuple[float, ...] = _PAUSES_S
    reads_at_once: bool = False

    @classmethod
    def drawn(cls, random: Random) -> FaultRates:
        """A mix of its own for each seed: some kinds never, others often, so that no fault hides another."""
        # Seeds keep their histories: a refusal without doubt is tried by tests/integration/test_refused_writes.py.
        kinds: list[Fault] = [fault for fault in Fault if fault not in (Fault.NONE, Fault.DENIED)]
        rates = {fault: random.choice((0.0, 0.0, 0.01, 0.04)) for fault in kinds}
        return cls(rates, random.choice((0.0, 0.005, 0.03)), random.choice((0.0, 0.01)), random.choice((0.0, 0.5)))


class _Clock:
    """A process's clock: the simulation's time, off by a skew."""

    def __init__(self, process: Process, skew_s: float) -> None:
        self._process = process
        self._simulator = process.simulator
        self.skew_s = skew_s

    def wall_ms(self) -> int:
        return int((self._simulator.now_s + self.skew_s) * 1000)

    def monotonic_s(self) -> float:
        return self._simulator.now_s

    def processor_s(self) -> float:
        return self._simulator.now_s

    def sleep(self, seconds: float) -> None:
        self._process.sleep(seconds)


class _Ids:
    def __init__(self, simulator: Simulator, random: Random) -> None:
        self._simulator = simulator
        self._random = random

    def token(self) -> str:
        token = self._token()
        self._simulator.drawn[token] = self._simulator.steps
        return token

    def _token(self) -> str:
        return f"{self._random.getrandbits(128) >> 48:020x}"


class Offer(NamedTuple):
    """A put of an object of the log: when, by which process, and what."""

    moment: int
    process: str
    name: str
    data: bytes


class _WatchedStore(FaultyStore):
    """A process's way to the objects; what it offers to the log, and to tables, is noted, whatever becomes of it."""

    def __init__(self, process: Process, script: Script, pause: Callable[[], None]) -> None:
        super().__init__(process.simulator.shared, script, later=process.simulator.later, pause=pause)
        self._process = process

    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        if name.startswith(names.ENTRIES):
            simulator = self._process.simulator
            simulator.offered.append(Offer(simulator.steps, self._process.name, name, data))
        elif "/_delta_log/" in name or "/metadata/" in name:
            self._process.simulator.described.setdefault(name, {}).setdefault(data, set()).add(self._process.name)
        return super().put_if_absent(name, data, timeout_s=timeout_s)

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        simulator = self._process.simulator
        if not names or not simulator.rates.reads_at_once:
            return super().get_many(names)
        # The fault of the first is that of all.
        return [self.get(names[0]), *(simulator.shared.get(name) for name in names[1:])]


class Process:
    """One simulated process: what its program sees of the world.

    Its program runs in its first thread. If it is `threaded`, work in the background, and what a client does in a
    thread of its own, runs in others. If not, it runs at once. When one thread dies, all die.
    """

    def __init__(
        self, simulator: Simulator, name: str, program: Callable[[Process], None], *, threaded: bool = False
    ) -> None:
        self.simulator = simulator
        self.name = name
        self.random = Random(f"{simulator.seed} {name}")
        self.skewed = self.random.random() < simulator.rates.clock_skew
        self.clock = _Clock(self, self.random.uniform(-_SKEW_S_MAX, _SKEW_S_MAX) if self.skewed else 0.0)
        self.ids = _Ids(simulator, self.random)
        self.background: Background = FiberBackground(self) if threaded else StrictBackground()
        self.generation = 0
        self.before: Callable[[Operation], None] | None = None
        """What its program lets happen before each operation of the store, such as a pause."""
        self._program = program
        self._uris: list[str] = []
        self.threads: list[Fiber] = [Fiber(self, self._run)]

    @property
    def scheduler(self) -> Simulator:
        """Return what decides which thread continues."""
        return self.simulator

    def sleep(self, seconds: float) -> None:
        """Gives the turn away for at least `seconds`."""
        fiber = current_fiber()
        assert fiber is not None, "only a process's own threads sleep"
        fiber.sleep_until(self.simulator.now_s + seconds)

    def spawn(self, work: Callable[[], object]) -> Fiber:
        """Starts a thread of this process; one that a dying thread starts dies with it."""
        fiber = Fiber(self, lambda: self._run_beside(fiber, work))
        parent = current_fiber()
        if parent is not None:
            fiber.generation = parent.generation
        self.threads.append(fiber)
        self.simulator.enter(fiber)
        return fiber

    def join(self, *fibers: Fiber) -> None:
        """Waits until these threads have ended."""
        for fiber in fibers:
            if not fiber.dead:
                fiber.ended.wait(float("inf"))

    def fail(self, error: BaseException) -> None:
        """Ends the simulation."""
        self.simulator.fail(error)

    def open_log(self, settings: StoreSettings, *, check_clock: bool = False) -> Log:
        """Open a handle as a process that has just started does; a store that does not answer is asked again."""
        while True:
            objects = _WatchedStore(self, self._fate, self._pause)
            try:
                return Log.open(
                    objects,
                    settings=settings,
                    clock=self.clock,
                    ids=self.ids,
                    background=self.background,
                    create=True,
                    check_clock=check_clock,
                )
            except StoreUnavailable:
                self.sleep(0.1)

    def connect(self, settings: StoreSettings) -> tuple[str, Log]:
        """An address at which the clients of this process find a log of their own, until the simulation ends."""
        log = self.open_log(settings)
        name = self.name.replace(" ", "-")
        uri = f"{self.simulator.shared.uri}-{name}-{self.ids.token()}"
        lend_log(uri, log)
        self._uris.append(uri)
        return uri, log

    def disconnect(self) -> None:
        """Takes the logs back. Not while a thread of the process is about to die: it would open a real store."""
        for uri in self._uris:
            take_log_back(uri)
        self._uris.clear()

    def operation(self, what: str) -> None:
        """A scheduling point for something that a program does to the shared objects by itself."""
        if self._fate(Operation(0, what, "")) in (Fault.DIE_BEFORE, Fault.DIE_AFTER):
            raise Died

    def _fate(self, operation: Operation) -> Fault:
        simulator = self.simulator
        fiber = current_fiber()
        assert fiber is not None, "an operation of a simulated process from outside"
        simulator.give_turn(fiber)
        if simulator.pauses():
            self._pause()
        if self.before is not None and not simulator.is_calm():
            self.before(operation)
        if fiber.interrupted_in:
            fiber.interrupted_in -= 1
            if not fiber.interrupted_in:
                simulator.injected["interrupt"] += 1
                raise KeyboardInterrupt
        check_time(operation.verb, operation.name)
        silent_s = simulator.silence_s() if simulator.silences else 0.0
        if silent_s:
            self.sleep(min(silent_s, time_left_s(_REQUEST_S) or 0.0))
        fault = simulator.draw_fault(operation.verb) if silent_s < _REQUEST_S else simulator.draw_silent(operation.verb)
        simulator.done.append((simulator.now_s, self.name, operation, fault))
        return fault

    def _pause(self) -> None:
        self.sleep(self.simulator.random.choice(self.simulator.rates.pauses_s))

    def _run(self) -> None:
        simulator = self.simulator
        fiber = self.threads[0]
        try:
            while not simulator.stopping:
                try:
                    self._program(self)
                    break
                except Died:
                    self._die(fiber)
                    fiber.generation = self.generation
                    simulator.done.append((simulator.now_s, self.name, None, Fault.NONE))
                    self.sleep(self.random.uniform(0.01, 5.0))
        except Stopped:
            pass
        except BaseException as error:
            simulator.fail(error)
        finally:
            self._die(fiber)
            self._leave(fiber)

    def _run_beside(self, fiber: Fiber, work: Callable[[], object]) -> None:
        try:
            work()
        except Died:
            self._die(fiber)
        except Stopped:
            pass
        except BaseException as error:
            self.simulator.fail(error)
        finally:
            self._leave(fiber)

    def _die(self, fiber: Fiber) -> None:
        """Lets all other threads die with `fiber`, as soon as it is their turn; those of an older life are dying."""
        if fiber.generation == self.generation:
            self.generation += 1
            for other in self.threads:
                other.wake_s = self.simulator.now_s

    def _leave(self, fiber: Fiber) -> None:
        self.threads.remove(fiber)
        self.simulator.leave(fiber)
        fiber.ended.wake()


class Simulator:
    """Runs processes to their end. After `calm_after` steps nothing fails any more, so that all come to an end.

    `injected` counts the faults by kind. `done` is what has happened: (when, who, operation or None for a restart,
    fault). `offered` is what was offered to the log, whatever became of it; `drawn` are all tokens, each with its
    moment. `described` are the metadata of tables: under each name what was put if absent, and by which processes.
    `silences` is how often the store falls silent: no operation is answered then, for seconds or minutes.
    `inline_bytes` is up to which size log entries carry records.
    """

    def __init__(
        self,
        seed: int,
        *,
        rates: FaultRates | None = None,
        calm_after: int = 400,
        steps_max: int = 20_000,
        inline_bytes: int | None = None,
    ) -> None:
        self.seed = seed
        drawn = Random(f"{seed} inline").choice(_INLINE_BYTES)
        self.inline_bytes = drawn if inline_bytes is None else inline_bytes
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
        self._hub = getcurrent()
        self._processes: list[Process] = []
        self.silences = 0.0
        self._silent_until_s = 0.0
        self.offered: list[Offer] = []
        self.drawn: dict[str, int] = {}
        self.described: dict[str, dict[bytes, set[str]]] = {}
        self._live: list[Fiber] = []
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

    def add(self, name: str, program: Callable[[Process], None], *, threaded: bool = False) -> None:
        """Adds a process; its program runs again from its start whenever it dies."""
        self._processes.append(Process(self, name, program, threaded=threaded))

    def run(self) -> None:
        """Runs until every program has returned.

        Raises:
            BaseException: what a program raised, other than dying.
        """
        self._hub = getcurrent()
        self.injected["clock skew"] += sum(process.skewed for process in self._processes)
        for process in self._processes:
            self.enter(process.threads[0])
        with no_collections(), cooperative_threads():
            while self._live and not self.stopping:
                with suppress(Stopped):
                    self._next().switch()
            for fiber in list(self._live):
                if fiber.has_begun():
                    fiber.throw(Stopped)
        self._live.clear()
        for process in self._processes:
            process.disconnect()
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

    def is_calm(self) -> bool:
        """Return True once nothing fails any more."""
        return self.steps >= self._calm_after

    def pauses(self) -> bool:
        """Draws whether the process stops here for a while."""
        if self.steps >= self._calm_after or not self.rates.pause or self._draw() >= self.rates.pause:
            return False
        self.injected["pause"] += 1
        return True

    def silence_s(self) -> float:
        """For how long the store answers nothing from here on; a silence may begin here."""
        if not self.silences or self.steps >= self._calm_after:
            return 0.0
        if self.now_s >= self._silent_until_s and self._draw() < self.silences:
            self.injected["silence"] += 1
            self._silent_until_s = self.now_s + self.random.choice(_SILENCES_S)
        return max(0.0, self._silent_until_s - self.now_s)

    def draw_silent(self, verb: str) -> Fault:
        """Draws what has become of an operation that got no answer within its time."""
        fault = self.random.choice(_UNANSWERED)
        return fault if fault.means_something_for(verb) else Fault.REFUSED

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

    def draw(self) -> float:
        """A number from 0 to 1."""
        return self._draw()

    def enter(self, fiber: Fiber) -> None:
        """Takes a thread in."""
        fiber.parent = self._hub
        self._live.append(fiber)

    def give_turn(self, fiber: Fiber) -> None:
        """Lets the seed choose who goes on; returns when it is this thread's turn again.

        Raises:
            Died: another thread of its process has died.
            Stopped: the simulation is over.
        """
        self.steps += 1
        if self.steps > self._steps_max and not self.stopping:
            self.fail(AssertionError(f"no end after {self._steps_max} steps"))
        if self.stopping:
            raise Stopped
        chosen = self._next()
        if chosen is not fiber:
            chosen.switch()
            # Meanwhile another process may have failed.
            self._check_running()
        if fiber.generation != fiber.owner.generation:
            raise Died

    def _check_running(self) -> None:
        if self.stopping:
            raise Stopped

    def fail(self, error: BaseException) -> None:
        """Ends the simulation; the first error is what `run` raises."""
        self._error = self._error or error
        self.stopping = True

    def leave(self, fiber: Fiber) -> None:
        """Takes a thread that has ended out."""
        self._live.remove(fiber)

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

    def _next(self) -> Fiber:
        now_s = self.now_s
        awake = [fiber for fiber in self._live if fiber.wake_s <= now_s]
        if awake:
            return awake[int(self._draw() * len(awake))] if len(awake) > 1 else awake[0]
        first = min(self._live, key=lambda fiber: fiber.wake_s)
        if first.wake_s == inf:
            self.fail(AssertionError("a deadlock: every thread waits for another one"))
            raise Stopped
        self.now_s = first.wake_s
        self._land(self.now_s)
        return first
