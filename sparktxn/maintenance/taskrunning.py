"""Letting the caller of a job run its tasks in other processes, some at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final, TypeVar

from sparktxn.errors import ConfigurationError
from sparktxn.process.clock import is_time_up
from sparktxn.values import arguments
from sparktxn.values.fieldtypes import Result
from sparktxn.values.quantities import counted

__all__ = ["TASKS_PER_RUN", "RunTasks", "all_results", "in_other_processes", "waves"]

TASKS_PER_RUN: Final = 256
"""So many tasks are handed out at a time: what they have made is put into effect before the next ones begin."""

SEGMENTS_PER_RUN: Final = 200_000
"""Tasks that are handed out together name about so many segments at most: that bounds the caller's memory."""

Task = TypeVar("Task")

RunTasks = Callable[[Callable[[Task], Result], Sequence[Task]], Iterable[Result]]
"""Runs a function for each of some tasks, anywhere, and returns what it returns, in the order of the tasks."""

_place = attrgetter("topic_id", "partition", "base_offset")


def in_other_processes(
    run: RunTasks[Any, Result],
    work: Callable[[Any], Result],
    tasks: Iterable[Any],
    kind: type[Result],
) -> Iterator[list[Result | None]]:
    """Let `run` do tasks, some at a time, and yield their results together.

    Tasks that are not begun by the caller's deadline are not done: None is yielded for each.
    What is done is kept if a later task fails: the caller puts these results into effect before it asks for the next.

    Args:
        run: what the caller of the job gave: it does `work` for each of some tasks, and returns the results.
        work: does one task; it is picklable.
        tasks: what is to be done, in the order of partitions and offsets.
        kind: the type of a result, which says which topic id, partition and base offset it is for.

    Raises:
        TypeError, ConfigurationError: `run` has returned something else than one result for each task.
    """
    for some in waves(tasks, lambda task: len(task.read.segments)):
        if is_time_up():
            yield [None for _ in some]
        else:
            yield [*sorted(all_results(run(work, some), kind, len(some)), key=_place)]


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
