"""Letting the caller of a job run its tasks in other processes, some at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import Result
from sparktxn._foundation.values.quantities import counted
from sparktxn.errors import ConfigurationError

TASKS_PER_RUN: Final = 256
"""So many tasks are handed out at a time: what they have made is put into effect before the next ones begin."""

SEGMENTS_PER_RUN: Final = 200_000
"""Tasks that are handed out together name about so many segments at most: that bounds the caller's memory."""

Task = TypeVar("Task")

RunTasks = Callable[[Callable[[Task], Result], Sequence[Task]], Iterable[Result]]
"""Runs a function for each of some tasks, anywhere, and returns what it returns, in the order of the tasks."""


def waves(tasks: Iterable[Task], segments: Callable[[Task], int]) -> Iterator[list[Task]]:
    """Yield tasks in their order, as many together as are handed out at a time, each for itself where it is large."""
    wave: list[Task] = []
    named = 0
    for task in tasks:
        count = segments(task)
        if wave and (len(wave) >= TASKS_PER_RUN or named + count > SEGMENTS_PER_RUN):
            yield wave
            wave, named = [], 0
        wave.append(task)
        named += count
    if wave:
        yield wave


def all_results(returned: object, kind: type[Result], tasks: int) -> list[Result]:
    """Return what a caller's `run` has returned, once it is known to be one result for each task.

    Raises:
        TypeError: it is not a list, or an item is not a `kind`.
        ConfigurationError: there are more or fewer.
    """
    found = arguments.items("what run returns", returned, kind)
    if len(found) != tasks:
        raise ConfigurationError(
            f"what run returns are {counted(len(found), 'result')}: expected {tasks}, one for each task "
            "that it was given"
        )
    return found
