"""Doing the tasks of a copy: in other processes, by threads here, or one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Any, Final

from sparktxn.config.store import StoreOptions
from sparktxn.errors import ConfigurationError
from sparktxn.log.log import CLOSE_TIMEOUT_S
from sparktxn.maintenance.copyobjects import CopiedObjects, CopyTask, copy_objects, run_copy_task
from sparktxn.maintenance.taskrunning import TASKS_PER_RUN, RunTasks
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.process.background import ThreadBackground
from sparktxn.process.clock import in_callers_time
from sparktxn.store import Store
from sparktxn.values import arguments

__all__ = ["Run", "Work"]

Run = RunTasks[CopyTask, CopiedObjects]

_TASKS_AHEAD: Final = 2
_OBJECTS_PER_RUN_TASK: Final = 1_000
_OBJECTS_PER_TASK: Final = 8


class Work:
    """Does tasks: in other processes, by threads here, or one after the other."""

    def __init__(self, store: Store, target_options: StoreOptions, threads: int, run: Run | None) -> None:
        self._clock = store.log.clock
        self._source_options = store.options
        self._target_options = target_options
        self._threads = threads
        self._run = run

    @property
    def objects_max(self) -> int:
        """How many objects a task may have: a thread's is done soon."""
        return _OBJECTS_PER_TASK if self._run is None else _OBJECTS_PER_RUN_TASK

    def done(self, source: ObjectStore, target: ObjectStore, tasks: Iterable[CopyTask]) -> Iterator[CopiedObjects]:
        """Do tasks, some at a time, and yield their results in any order."""
        if self._run is not None:
            left = iter(tasks)
            work = partial(_task, self._source_options, self._target_options)
            while some := list(islice(left, TASKS_PER_RUN)):
                yield from _all_of(some, arguments.items("what run returns", self._run(work, some), CopiedObjects))
        elif self._threads == 1:
            yield from (copy_objects(source, target, self._clock, task) for task in tasks)
        else:
            yield from self._by_threads(source, target, tasks)

    def _by_threads(
        self, source: ObjectStore, target: ObjectStore, tasks: Iterable[CopyTask]
    ) -> Iterator[CopiedObjects]:
        background = ThreadBackground("sparktxn-copy", self._threads)
        waiting: deque[Future[CopiedObjects]] = deque()

        @in_callers_time
        def work(task: CopyTask) -> CopiedObjects:
            return copy_objects(source, target, self._clock, task)

        try:
            for task in tasks:
                waiting.append(background.submit(partial(work, task)))
                if len(waiting) >= _TASKS_AHEAD * self._threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
            background.close(CLOSE_TIMEOUT_S)


def _all_of(tasks: Sequence[CopyTask], results: Sequence[CopiedObjects]) -> Sequence[CopiedObjects]:
    """Return the results; a copy that lacks objects of a task whose result is missing must not count as complete."""
    wanted = sum(len(task.objects) + len(task.existing) for task in tasks)
    done = sum(result.objects + result.existing for result in results)
    if done != wanted and all(result.damaged is None for result in results):
        raise ConfigurationError(
            f"what run returns are results for {done} objects: expected {wanted}, one result for each of {len(tasks)} "
            "tasks; call again, which goes on"
        )
    return results


def _task(source_options: Mapping[str, Any], target_options: Mapping[str, Any], task: CopyTask) -> CopiedObjects:
    return run_copy_task(task, source_options, target_options)
