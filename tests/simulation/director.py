"""Scripted schedules: a test says which process goes on to which store operation, and what becomes of it there.

For traces that a random schedule would meet once in a million. Each actor is a greenlet that stops before every store
operation; between two of them it runs on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Generic, TypeVar

from greenlet import getcurrent, greenlet

from sparktxn._engine.log.log import Log
from sparktxn._foundation.config.store import StoreSettings
from sparktxn.testing.clocks import ManualClock, SeededIds, StrictBackground
from sparktxn.testing.faultystore import Died, Fault, FaultyStore, Operation
from tests.lending import lend_log, take_log_back
from tests.simulation.fibers import no_collections
from tests.simulation.sharedobjects import SharedObjects

__all__ = ["Act", "Director"]

Result = TypeVar("Result")
_numbers = count(1)


class Act(Generic[Result]):
    """A program under direction: it has not begun until it is moved."""

    def __init__(self, director: Director, name: str, program: Callable[[Act[Result]], Result]) -> None:
        self.name = name
        self.director = director
        self.clock = director.clock
        self.ids = SeededIds(next(_numbers))
        self.operations: list[Operation] = []
        self.error: BaseException | None = None
        self._program = program
        self._pending: Operation | None = None
        self._fault = Fault.NONE
        self._result: list[Result] = []
        self._fiber = greenlet(self._run)

    # What the program uses

    def open_log(self, settings: StoreSettings) -> Log:
        """A log of this actor's own; each operation of it waits for the director."""
        return Log.open(
            self.objects(),
            settings=settings,
            clock=self.clock,
            ids=self.ids,
            background=StrictBackground(),
            create=True,
        )

    def objects(self) -> FaultyStore:
        """This actor's way to the shared objects."""
        return FaultyStore(self.director.shared, self._fate, later=self.director.late.append, pause=self._give_back)

    def connect(self, settings: StoreSettings) -> tuple[str, Log]:
        """An address at which clients find this actor's log."""
        log = self.open_log(settings)
        uri = f"{self.director.shared.uri}-{self.name}"
        lend_log(uri, log)
        self.director.lent.append(uri)
        return uri, log

    # What the director uses

    def until(self, verb: str, name: str = "", times: int = 1) -> Operation:
        """Goes on until it is about to do this operation, the `times`-th from here; it has not been done yet.

        Raises:
            AssertionError: the program ended before.
        """
        for _ in range(times):
            self._move()
            while not self._is_before(verb, name):
                assert not self.is_over(), f"{self.name} ended before {verb} of {name}: {self.error or self._result}"
                self._move()
        assert self._pending is not None  # narrows the type: `_is_before` has looked at it
        return self._pending

    def meet(self, fault: Fault) -> None:
        """What becomes of the operation that it is about to do; the next move ends it."""
        self._fault = fault

    def do(self, fault: Fault = Fault.SLOW) -> None:
        """Does the operation that it is about to do, and stops before it hears of it; or as the fault says."""
        self._fault = fault
        self._move()

    def finish(self) -> Result:
        """Goes on to the end of the program; its result.

        Raises:
            BaseException: what the program raised, other than dying.
        """
        while not self.is_over():
            self._move()
        if self.error is not None:
            raise self.error
        return self._result[0]

    def die(self) -> None:
        """Ends the program where it stands, as a kill does; nothing if it has not begun."""
        while self._fiber and not self.is_over():
            self._fault = Fault.DIE_BEFORE
            self._move()

    def is_over(self) -> bool:
        """True once the program has ended."""
        return bool(self._fiber.dead)

    def _is_before(self, verb: str, name: str) -> bool:
        return self._pending is not None and self._pending.verb == verb and name in self._pending.name

    def _move(self) -> None:
        self._pending = None
        self._fiber.parent = getcurrent()
        with no_collections():
            self._fiber.switch()

    def _fate(self, operation: Operation) -> Fault:
        self.operations.append(operation)
        self._pending = operation
        self._give_back()
        fault, self._fault = self._fault, Fault.NONE
        return fault

    def _give_back(self) -> None:
        self._fiber.parent.switch()

    def _run(self) -> None:
        try:
            self._result.append(self._program(self))
        except Died:
            pass
        except Exception as error:
            self.error = error


class Director:
    """The shared objects, one clock, and the puts that were held back."""

    def __init__(self) -> None:
        self.shared = SharedObjects(lambda: self.clock.wall_ms())
        self.clock = ManualClock()
        self.late: list[Callable[[], object]] = []
        self.lent: list[str] = []
        self._acts: list[Act[Any]] = []

    def act(self, name: str, program: Callable[[Act[Result]], Result]) -> Act[Result]:
        """A new actor."""
        act = Act(self, name, program)
        self._acts.append(act)
        return act

    def land(self) -> None:
        """Lets all puts arrive that were held back."""
        late, self.late = self.late, []
        for put in late:
            put()

    def log(self, settings: StoreSettings) -> Log:
        """A log that meets no fault and waits for no process."""
        return Log.open(
            self.shared,
            settings=settings,
            clock=self.clock,
            ids=SeededIds(next(_numbers)),
            background=StrictBackground(),
            create=True,
        )

    def connect(self, settings: StoreSettings) -> tuple[str, Log]:
        """An address at which clients find such a log."""
        log = self.log(settings)
        uri = f"{self.shared.uri}-{next(_numbers)}"
        lend_log(uri, log)
        self.lent.append(uri)
        return uri, log

    def close(self) -> None:
        """Ends the actors, whose clients would wait for the interpreter's end, and takes back what was lent."""
        for act in self._acts:
            act.die()
        for uri in self.lent:
            take_log_back(uri)
