"""Offset commits of one consumer: at once, beside the caller, and on their own at intervals.

User callbacks run in `collect`, on the thread that calls it, whichever way a commit went.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final

from sparktxn.clock import Clock
from sparktxn.config.consumer import ConsumerSettings
from sparktxn.consumer.assignment import Assignment
from sparktxn.consumer.offsets import GroupOffsets
from sparktxn.errors import ErrorCode, KafkaError, KafkaException
from sparktxn.message import TopicPartition

__all__ = ["Commits"]

_LOGGER: Final = logging.getLogger("sparktxn")


class Commits:
    """Commits stored offsets, and tells the user's `on_commit`."""

    def __init__(self, offsets: GroupOffsets, assignment: Assignment, settings: ConsumerSettings, clock: Clock) -> None:
        self._offsets = offsets
        self._assignment = assignment
        self._settings = settings
        self._clock = clock
        self._under_way: deque[tuple[Future[None], list[TopicPartition]]] = deque()
        self._untold: deque[tuple[KafkaError | None, list[TopicPartition]]] = deque()
        self.due_at_s = float("inf")
        self._schedule()

    def _schedule(self) -> None:
        if self._settings.enable_auto_commit:
            self.due_at_s = self._clock.monotonic_s() + self._settings.auto_commit_interval_ms / 1000

    def stored(self) -> list[TopicPartition]:
        """The stored offsets that differ from what this consumer has committed last."""
        return [found for progress in self._assignment if (found := progress.uncommitted()) is not None]

    def commit(self, offsets: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Commits `offsets` (logical ones are left out) and waits for it.

        Raises:
            KafkaException: ``_NO_OFFSET``: there is none to commit; else as `GroupOffsets.commit`.
        """
        valid = _valid(offsets)
        if not valid:
            raise KafkaException(KafkaError(ErrorCode.LOCAL_NO_OFFSET, "no offset is stored that could be committed"))
        try:
            self._offsets.commit(valid)
        except KafkaException as error:
            self._untold.append((error.error, valid))
            raise
        self._committed(valid)
        return valid

    def commit_beside(self, offsets: Sequence[TopicPartition]) -> None:
        """Begins to commit `offsets`; `collect` tells how it went."""
        valid = _valid(offsets)
        if not valid:
            self._untold.append((KafkaError(ErrorCode.LOCAL_NO_OFFSET, "no offset is stored"), []))
            return
        self._under_way.append((self._offsets.commit_beside(valid), valid))

    def commit_on_its_own(self) -> None:
        """The automatic commit: what fails is told and logged, and comes again at the next interval."""
        self._schedule()
        stored = self.stored()
        if self._settings.enable_auto_commit and stored:
            try:
                self.commit(stored)
            except KafkaException as error:
                _LOGGER.warning("automatic offset commit of group %s failed: %s", self._settings.group_id, error)

    def wait(self) -> None:
        """Waits for all commits that are under way."""
        while self._under_way:
            future, offsets = self._under_way.popleft()
            self._settle(future, offsets)

    def collect(self) -> None:
        """Tells the user's `on_commit` of all commits that have ended."""
        while self._under_way and self._under_way[0][0].done():
            self._settle(*self._under_way.popleft())
        while self._untold:
            error, offsets = self._untold.popleft()
            if self._settings.on_commit is not None:
                self._settings.on_commit(error, offsets)

    def _settle(self, future: Future[None], offsets: list[TopicPartition]) -> None:
        try:
            future.result()
        except KafkaException as error:
            self._untold.append((error.error, offsets))
            if self._settings.on_commit is None:
                _LOGGER.warning("offset commit of group %s failed: %s", self._settings.group_id, error)
        else:
            self._committed(offsets)

    def _committed(self, offsets: list[TopicPartition]) -> None:
        for partition in offsets:
            progress = self._assignment.get((partition.topic, partition.partition))
            if progress is not None:
                progress.committed = partition.offset
        self._untold.append((None, offsets))


def _valid(offsets: Sequence[TopicPartition]) -> list[TopicPartition]:
    return [partition for partition in offsets if partition.offset >= 0]
