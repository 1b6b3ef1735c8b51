"""Offset commits of one consumer: at once, alongside the caller, and on their own at intervals.

Those alongside the caller are made by one worker, in the order in which they were asked for. User callbacks run in
`collect`, on the thread that calls it, whichever way a commit went.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from sparktxn._engine.format.commands import Command
from sparktxn._engine.log.write.queue import Ticket
from sparktxn._foundation.process.background import Background
from sparktxn._foundation.process.clock import Clock, time_left_s
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values import arguments
from sparktxn._kafka.message import Message, TopicPartition, topic_partitions
from sparktxn._kafka.settings.consumer import ConsumerSettings
from sparktxn.consumer.assignment import Assignment
from sparktxn.consumer.offsets import GroupOffsets, Speech
from sparktxn.consumer.threadturns import ConsumerTurns
from sparktxn.errors import ErrorCode, KafkaError, KafkaException, OutcomeUnknown, StoreUnavailable


class _Commit:
    """One offset commit alongside the caller; the worker sets `ticket`, `error` and, last, `ended`.

    `with_it` is a command of the group that takes effect with the offsets, or alone if they are refused.
    """

    __slots__ = ("ended", "error", "offsets", "speech", "ticket", "with_it")

    def __init__(
        self,
        offsets: list[TopicPartition],
        speech: Speech,
        with_it: Command | None = None,
    ) -> None:
        self.offsets = offsets
        self.speech = speech
        self.with_it = with_it
        self.ticket: Ticket | None = None
        self.error: Exception | None = None
        self.ended = threading.Event()

    def end(self, error: Exception | None = None) -> None:
        """Note how it went."""
        self.error = error
        self.ended.set()


class Commits:
    """Commits stored offsets, and calls the user's `on_commit`."""

    def __init__(
        self,
        offsets: GroupOffsets,
        assignment: Assignment,
        settings: ConsumerSettings,
        clock: Clock,
        background: Background,
        turns: ConsumerTurns,
    ) -> None:
        self._turns = turns
        self._offsets = offsets
        self._assignment = assignment
        self._settings = settings
        self._clock = clock
        self._background = background
        self._turn = threading.Lock()
        self._given_up = False
        self._asked: deque[_Commit] = deque()
        self._under_way: deque[_Commit] = deque()
        self._unreported: deque[tuple[KafkaError | None, list[TopicPartition]]] = deque()
        self.due_at_s = float("inf")
        self.held = False
        """True while a transaction's block is open: what it has read is committed with it, or not at all."""
        self._schedule()

    def _schedule(self) -> None:
        if self._settings.enable_auto_commit:
            self.due_at_s = self._clock.monotonic_s() + self._settings.auto_commit_interval_ms / 1000

    def stored(self) -> list[TopicPartition]:
        """Return the stored offsets that differ from what this consumer has committed last."""
        return [found for progress in self._assignment if (found := progress.uncommitted()) is not None]

    def commit(self, offsets: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Commit `offsets` (logical ones are left out), after those that were asked for before, and wait for it.

        Raises:
            KafkaException: ``_NO_OFFSET``: there is none to commit; else as `GroupOffsets.commit`.
        """
        with self._offsets.limited() as limit:
            if not self.wait():
                raise OutcomeUnknown(f"an earlier offset commit has not ended in {limit.seconds:g} s: call again")
            valid = _valid(offsets)
            if not valid:
                reason = "no offset is stored that could be committed"
                raise KafkaException(KafkaError(ErrorCode.LOCAL_NO_OFFSET, reason))
            self._offsets.commit(valid)
        self._note(valid)
        return valid

    def begin_commit(self, offsets: Sequence[TopicPartition]) -> None:
        """Begin to commit `offsets`; `collect` reports the outcome."""
        valid = _valid(offsets)
        if not valid:
            self._unreported.append((KafkaError(ErrorCode.LOCAL_NO_OFFSET, "no offset is stored"), []))
            return
        self._begin(_Commit(valid, self._offsets.speech(valid)))

    def hand_over(self, offsets: Sequence[TopicPartition], with_it: Command) -> None:
        """Begin to send a command of the group, with the offsets that belong to it in one list."""
        self._begin(_Commit(list(offsets), self._offsets.speech(offsets), with_it))

    def _begin(self, commit: _Commit) -> None:
        self._asked.append(commit)
        self._under_way.append(commit)
        self._background.submit(self._work)

    def automatic(self, offsets: list[TopicPartition]) -> list[TopicPartition]:
        """Return those of `offsets` that are to be committed on their own: all, or none."""
        return offsets if self._settings.enable_auto_commit and not self.held else []

    def commit_on_its_own(self) -> None:
        """Commit automatically, alongside the caller: a failure is reported and logged, and tried again by the next
        one.

        It is left out while an earlier one is under way.
        """
        self._schedule()
        stored = self.stored()
        if self._settings.enable_auto_commit and stored and not self._under_way and not self.held:
            self.begin_commit(stored)

    def wait(self) -> bool:
        """Wait for all commits that are under way; False if the deadline came first."""
        while self._under_way:
            if not self._under_way[0].ended.wait(time_left_s()):
                return False
            self._settle(self._under_way.popleft())
        return True

    def commit_at_last(self) -> None:
        """Commit automatically before partitions go: behind the commits that are under way."""
        stored = self.stored()
        if self._settings.enable_auto_commit and stored and not self.held:
            self.begin_commit(stored)

    @property
    def is_under_way(self) -> bool:
        """True while one has not ended."""
        return any(not commit.ended.is_set() for commit in self._under_way)

    def under_way(self) -> list[threading.Event]:
        """Return the ends of the commits that are under way."""
        return [commit.ended for commit in list(self._under_way)]

    def wait_unsettled(self) -> None:
        """Wait, on any thread, for the commits that were asked for before; `collect` reports them.

        Raises:
            OutcomeUnknown: the deadline came first.
        """
        for ended in self.under_way():
            if not ended.wait(time_left_s()):
                raise OutcomeUnknown("an earlier offset commit has not ended in time: call again")

    def close(self) -> None:
        """Wait for what is under way, and take back what the deadline leaves unsent."""
        if self.wait():
            return
        self._given_up = True
        self._background.close(0)
        while self._under_way:
            commit = self._under_way.popleft()
            if commit.ticket is not None:
                commit.ticket.let_go()
            partitions = ", ".join(map(str, commit.offsets))
            log_event("offset_commit_given_up", group_id=self._settings.group_id, partitions=partitions)

    def collect(self) -> None:
        """Call the user's `on_commit` for all commits that have ended."""
        while self._under_way and self._under_way[0].ended.is_set():
            self._settle(self._under_way.popleft())
        while self._unreported:
            error, offsets = self._unreported.popleft()
            if self._settings.on_commit is not None:
                with self._turns.calls_back():
                    self._settings.on_commit(error, offsets)

    def _work(self) -> None:
        """Make, on the one worker, all commits that have been asked for: they share an entry if they can."""
        begun: list[_Commit] = []
        with self._offsets.limited(), self._turn:
            while self._asked:
                begun.append(self._asked.popleft())
            for commit in begun:
                try:
                    if not self._given_up:
                        commit.ticket = self._offsets.send(commit.offsets, commit.speech, commit.with_it)
                except Exception as error:  # noqa: BLE001 - the caller's thread tells it
                    self._end(commit, error)
            for commit in begun:
                if commit.ticket is None:
                    continue
                try:
                    # Either close() has seen the ticket, or this sees that no caller waits for it any more.
                    if self._given_up:
                        commit.ticket.let_go()
                    # What is not reported as committed must not be committed by another client's later call.
                    commit.ticket.wait_once()
                except Exception as error:  # noqa: BLE001 - the caller's thread tells it
                    self._end(commit, error)
                else:
                    commit.speech.note_good()
                    commit.end()

    def _end(self, commit: _Commit, error: Exception) -> None:
        """Note how a commit has failed; offsets that are refused do not hold up what was to take effect with them."""
        if (
            commit.with_it is not None
            and commit.offsets
            and not isinstance(error, OutcomeUnknown | StoreUnavailable)
            and not self._given_up
        ):
            with suppress(KafkaException):
                self._offsets.send_alone(commit.with_it).wait_once()
        commit.end(error)

    def _settle(self, commit: _Commit) -> None:
        error = commit.error
        if error is None:
            if commit.offsets:
                self._committed(commit.offsets)
            return
        if not isinstance(error, KafkaException):
            raise error
        if not commit.offsets:
            # Whether a release or a leave has landed, the group's state shows.
            log_event("group_command_failed", group_id=self._settings.group_id, error=error)
            return
        self._unreported.append((error.error, commit.offsets))
        if self._settings.on_commit is None:
            log_event("offset_commit_failed", group_id=self._settings.group_id, error=error)

    def _committed(self, offsets: list[TopicPartition]) -> None:
        self._note(offsets)
        self._unreported.append((None, offsets))

    def _note(self, offsets: list[TopicPartition]) -> None:
        for partition in offsets:
            progress = self._assignment.get((partition.topic, partition.partition))
            if progress is not None:
                progress.committed = partition.offset


def _valid(offsets: Sequence[TopicPartition]) -> list[TopicPartition]:
    return [partition for partition in offsets if partition.offset >= 0]


def checked_choice(message: object, offsets: object) -> tuple[Message | None, list[TopicPartition] | None]:
    """Return what commit() or store_offsets() is given.

    Raises:
        TypeError: `message` is not a Message, or `offsets` not a list of TopicPartition.
        ValueError: both are given.
    """
    if message is not None and offsets is not None:
        raise ValueError("expected a message or offsets, not both")
    return (
        None if message is None else arguments.instance("message", message, Message),
        None if offsets is None else topic_partitions("offsets", offsets),
    )


def offsets_of(message: Message | None, offsets: Sequence[TopicPartition] | None) -> list[TopicPartition]:
    """Return what to commit for a message (the offset after it) or as given."""
    if message is None:
        return list(offsets or ())
    error, topic, partition, offset = message.error(), message.topic(), message.partition(), message.offset()
    if error is not None:
        reason = f"the message is not a record but an error: {error.str()}"
        raise KafkaException(KafkaError(ErrorCode.LOCAL_INVALID_ARG, reason))
    if topic is None or partition is None or offset is None:
        raise ValueError("the message has no offset: it was not consumed")
    return [TopicPartition(topic, partition, arguments.integer("offset", offset) + 1)]
