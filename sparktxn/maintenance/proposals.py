"""Proposing many commands, each as a list of its own: one that comes too late stops no other.

The state at that moment decides in which entry each is. What has no known outcome is left to the job's next run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from msgspec import Struct

from sparktxn._engine.format.commands import Command, CommandResult
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.write.queue import Ticket
from sparktxn._foundation.process.clock import is_time_up
from sparktxn.errors import CommandRefused, OutcomeUnknown, StoreUnavailable

# What is queued at once: not more than one entry takes, so that others' commits wait for at most one entry (K47).
_NAMED_PER_ROUND: Final = 500

Proposed = TypeVar("Proposed", bound=Command)


class LostRace(Struct, frozen=True):
    """A proposal that came too late: what it was about had changed since."""

    about: str
    reason: str


class Proposals:
    """What one run of a job proposes until its deadline; for one thread.

    `lost` are those that the state has refused. `unresolved` had no known outcome at the deadline, or were not made.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self.lost: list[LostRace] = []
        self.unresolved = 0

    def accepted(
        self, commands: Iterable[Proposed], about: Callable[[Proposed], str]
    ) -> list[tuple[Proposed, CommandResult]]:
        """Propose `commands`; return those that the state has accepted, with their results.

        Args:
            commands: each is proposed alone.
            about: says what a command is about, for `lost`.
        """
        accepted = []
        for batch in _batches(commands):
            if is_time_up():
                self.unresolved += len(batch)
                continue
            tickets = [(command, self._log.send([command])) for command in batch]
            try:
                for command, ticket in tickets:
                    result = self._result(ticket, partial(about, command))
                    if result is not None:
                        accepted.append((command, result))
            finally:
                for _, ticket in tickets:
                    ticket.let_go()
        return accepted

    def _result(self, ticket: Ticket, about: Callable[[], str]) -> CommandResult | None:
        try:
            return ticket.wait_once()[0]
        except CommandRefused as refused:
            self.lost.append(LostRace(about(), refused.error.str()))
        except (OutcomeUnknown, StoreUnavailable):
            self.unresolved += 1
        return None


def named(command: Command) -> int:
    """Return how many things a command is about."""
    return max(1, *(len(getattr(command, members, ())) for members in ("producers", "partitions", "idle")))


def _batches(commands: Iterable[Proposed]) -> Iterator[Sequence[Proposed]]:
    batch: list[Proposed] = []
    size = 0
    for command in commands:
        if batch and size + named(command) > _NAMED_PER_ROUND:
            yield batch
            batch, size = [], 0
        batch.append(command)
        size += named(command)
    if batch:
        yield batch
