"""What stands between `poll` and the log: looks at it, follows the subscription, and hands records out.

All of it runs on the caller's thread. An idle consumer looks at growing intervals, up to `fetch.wait.max.ms`; while
there is more to read, it looks that often for news of partitions that have run dry.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from sparktxn.clock import Deadline
from sparktxn.config.consumer import ConsumerSettings
from sparktxn.consumer.assignment import Assignment, PartitionKey, Progress, logical_position
from sparktxn.consumer.fetcher import Chunk, Fetcher
from sparktxn.consumer.messages import internal_messages_of, messages_of
from sparktxn.consumer.offsets import GroupOffsets
from sparktxn.consumer.subscription import Subscription
from sparktxn.errors import (
    CommandRefused,
    ErrorCode,
    KafkaError,
    KafkaException,
    OutcomeUnknown,
    StoreUnavailable,
    ViewExpired,
)
from sparktxn.log.log import Log
from sparktxn.log.views import PartitionView, ReadView
from sparktxn.message import OFFSET_INVALID, OFFSET_STORED, Message
from sparktxn.state.internal import INTERNAL_TOPIC_IDS, INTERNAL_TOPICS

__all__ = ["Reading"]

_LOGGER: Final = logging.getLogger("sparktxn")

_IDLE_S_MIN: Final = 0.002
_CHUNK_ROWS_MAX: Final = 5_000
_LOOK_TIMEOUT_S: Final = 30.0


class Reading:
    """The reading side of one consumer. `ready` holds the messages that `poll` hands out next, all of one partition."""

    def __init__(
        self,
        log: Log,
        uri: str,
        settings: ConsumerSettings,
        assignment: Assignment,
        offsets: GroupOffsets,
        rebalance: Callable[[set[PartitionKey]], None],
    ) -> None:
        self._log = log
        self._settings = settings
        self._assignment = assignment
        self._offsets = offsets
        self._rebalance = rebalance
        self._now_s = log.clock.monotonic_s
        self._fetcher = Fetcher(log.objects, uri, settings, assignment, self._now_s)
        self._fetcher.on_advance(self._pass_over)
        self._chunk: Chunk | None = None
        self._told: set[str | PartitionKey] = set()
        self._look_forced = True
        self._look_at_s = self._looked_at_s = 0.0
        self._idle_s = _IDLE_S_MIN
        self._found = False
        self._view_expired = False
        self.ready: deque[Message] = deque()
        self.events: deque[Message] = deque()
        self.subscription: Subscription | None = None

    # What is handed out

    def settle(self) -> None:
        """Brings the position of the partition under way up to the last message that was handed out."""
        chunk = self._chunk
        if chunk is None:
            return
        handed_out = chunk.batch.num_rows - len(self.ready)
        if handed_out:
            self._move(chunk.progress, chunk.offset(handed_out - 1) + 1)
        if not self.ready:
            self._chunk = None

    def give_back(self) -> None:
        """Settles, and takes back the messages that were not handed out."""
        self.settle()
        if self._chunk is not None:
            self._chunk.source.give_back(len(self.ready))
            self.ready.clear()
            self._chunk = None

    def handed_out(self, chunk: Chunk) -> None:
        """Moves past a chunk that the user gets as it is."""
        self._move(chunk.progress, chunk.offset(chunk.batch.num_rows - 1) + 1)

    def _move(self, progress: Progress, offset: int) -> None:
        progress.position = offset
        if self._settings.enable_auto_offset_store:
            progress.store(offset)

    def _pass_over(self, progress: Progress, offset: int) -> None:
        """Moves past offsets that hold nothing to hand out."""
        if progress.topic_id in INTERNAL_TOPIC_IDS:
            # Committing it would be an entry, which an internal topic's end moves past: the next thing to commit.
            progress.position = offset
        else:
            self._move(progress, offset)

    def fill(self) -> bool:
        """Makes messages ready, or queues events; False if there is nothing now.

        Raises:
            DamagedObject: an object of one partition is damaged; its position stays, the others go on.
            KafkaException: ``_NOT_IMPLEMENTED``: a topic with declared columns has no messages.
        """
        chunk = self.next_chunk(_CHUNK_ROWS_MAX, self._settings.partition_fetch_bytes_max)
        if chunk is None:
            return bool(self.events)
        topic, partition = chunk.progress.key
        if chunk.typed and not chunk.internal:
            chunk.source.give_back(chunk.batch.num_rows)
            reason = f"topic {topic!r} declares columns, so its records are no messages: read it with consume_arrow()"
            raise KafkaException(KafkaError(ErrorCode.LOCAL_NOT_IMPLEMENTED, reason))
        self._chunk = chunk
        if chunk.internal:
            self.ready.extend(internal_messages_of(chunk.batch, topic))
        else:
            self.ready.extend(messages_of(chunk.batch, topic, partition))
        return True

    def next_chunk(self, rows_max: int, bytes_max: int | None) -> Chunk | None:
        """The next rows, after a look at the log if one is due; None if there is nothing now, or an event instead."""
        self.settle()
        if self.subscription is None and not len(self._assignment):
            return None
        try:
            if self._look_due():
                self._look()
            while not self._look_forced and not self.events:
                chunk = self.chunk_in_view(rows_max, bytes_max)
                if chunk is not None:
                    return chunk
                self._tell_ends()
                if not self._found:
                    return None
                self._look()
        except (StoreUnavailable, OutcomeUnknown) as error:
            self._tell_unavailable(error)
        return None

    def chunk_in_view(self, rows_max: int, bytes_max: int | None) -> Chunk | None:
        """The next rows of the pinned view, without a look at the log."""
        try:
            chunk = self._fetcher.next_chunk(rows_max, bytes_max)
        except ViewExpired:
            # The vacuum has passed the view; a newer one names what is there now, unless something else is wrong.
            if self._view_expired:
                raise
            self._view_expired = True
            self.look_again()
            self._fetcher.forget()
            return None
        if chunk is not None:
            self._view_expired = False
            self._found, self._idle_s = True, _IDLE_S_MIN
        return chunk

    def wait(self, deadline: Deadline) -> bool:
        """Waits for the next look; False if the deadline comes first."""
        now_s = self._now_s()
        wait_s = max(_IDLE_S_MIN, self._look_at_s - now_s)
        if self.subscription is None and not len(self._assignment):
            wait_s = self._settings.fetch_wait_ms_max / 1000
        remaining_s = deadline.remaining_s()
        if remaining_s is not None and remaining_s < wait_s:
            self._log.clock.sleep(remaining_s)
            return False
        self._log.clock.sleep(wait_s)
        return True

    # Looks at the log

    def look_again(self) -> None:
        """What is read has changed: the next call looks at the log first."""
        self._look_forced = True
        self._look_at_s = 0.0

    def discard(self, key: PartitionKey) -> None:
        """Drops what is under way for a partition; call `give_back` first."""
        self._fetcher.discard(key)

    def forget(self) -> None:
        """Drops all that is under way; call `give_back` first."""
        self._fetcher.forget()
        self._told.clear()
        self.look_again()

    def watermarks_in_view(self, key: PartitionKey) -> tuple[int, int]:
        """(low, high) in the pinned view, or OFFSET_INVALID twice."""
        view = self._fetcher.partition_view(key)
        if view is None:
            return OFFSET_INVALID, OFFSET_INVALID
        return view.log_start_offset, self._fetcher.end_offset(view)

    def _look_due(self) -> bool:
        now_s = self._now_s()
        if now_s < self._look_at_s:
            return False
        if self._look_forced:
            return True
        if self._found:
            return now_s >= self._looked_at_s + self._settings.fetch_wait_ms_max / 1000
        return True

    def _look(self) -> None:
        """Pins a newer view, follows the subscription in it, and finds every partition's place."""
        self._looked_at_s = self._now_s()
        self._look_at_s = self._looked_at_s + self._idle_s
        self._idle_s = min(2 * self._idle_s, max(_IDLE_S_MIN, self._settings.fetch_wait_ms_max / 1000))
        self._found = False
        view = self._newest_view()
        self._log.look_for_timeouts()
        self._look_forced = False
        if self.subscription is not None:
            # Calls back into user code, which may assign or seek: that asks for another look.
            topics = self.subscription.matching(view.topics)
            self._rebalance({key for key in view.partitions if key[0] in topics})
        self._fetcher.pin(view)
        for progress in self._assignment:
            if progress.key in view.partitions:
                self._place(progress, view.partitions[progress.key], view)
            elif progress.key[0] in view.topics:
                count = view.topics[progress.key[0]].partition_count
                reason = f"topic {progress.key[0]!r} has partitions 0 to {count - 1}, not {progress.key[1]}"
                self._tell_once(progress.key, ErrorCode.LOCAL_UNKNOWN_PARTITION, reason)
        # What a callback has assigned outside this view takes another look.
        unplaced = any(progress.key not in view.partitions for progress in self._assignment)
        self._look_forced = self._look_forced and unplaced

    def _newest_view(self) -> ReadView:
        deadline = self._log.deadline(_LOOK_TIMEOUT_S)
        wanted = self._assignment.topics()
        if self.subscription is not None:
            wanted |= self.subscription.names
            if self.subscription.has_patterns:
                self._log.refresh(deadline)
                known = [topic.name for topic in self._log.topics()]
                if not self._settings.exclude_internal_topics:
                    known += INTERNAL_TOPICS
                wanted |= self.subscription.matching(known)
        while True:
            try:
                view = self._log.view(sorted(wanted), deadline)
            except CommandRefused as refused:
                if refused.error.code() != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                for topic in sorted(wanted):
                    if self._log.topic(topic) is None:
                        wanted.discard(topic)
                        self._tell_unknown_topic(topic)
            else:
                self._told -= wanted
                return view

    def _place(self, progress: Progress, view: PartitionView, whole: ReadView) -> None:
        """Makes the position an offset that the partition has."""
        if progress.topic_id != view.topic.topic_id:
            if progress.topic_id >= 0:
                # Deleted and created again: the offsets are another topic's.
                progress.seek(OFFSET_STORED)
                progress.store(OFFSET_INVALID)
                self._fetcher.discard(progress.key)
            progress.topic_id = view.topic.topic_id
        if progress.halted:
            return
        position = progress.position
        if position < 0:
            logical = logical_position(position, view, self._fetcher.end_offset(view))
            if logical is None:
                if not self._offsets.is_stable(view.topic.topic_id, view.partition):
                    return
                position = self._offsets.committed_offset(view.topic.topic_id, view.partition)
                if position > view.log_end_offset and self._log.entry > whole.entry:
                    # Committed by somebody who has seen more than this view: the next look shows it.
                    return
            else:
                position = logical
        if not view.log_start_offset <= position <= view.log_end_offset:
            self._fetcher.discard(progress.key)
            self._reset(progress, position, view)
        else:
            progress.position = position

    def _reset(self, progress: Progress, position: int, view: PartitionView) -> None:
        """Applies auto.offset.reset."""
        topic, partition = progress.key
        what = "has no committed offset" if position < 0 else f"has no offset {position}"
        if self._settings.auto_offset_reset == "error":
            progress.halted = True
            reason = (
                f"partition {partition} of topic {topic!r} {what} (it has {view.log_start_offset} to "
                f"{view.log_end_offset}) and auto.offset.reset is error: seek() to where to go on"
            )
            error = KafkaError(ErrorCode.LOCAL_AUTO_OFFSET_RESET, reason)
            self.events.append(Message(topic, partition, position, None, None, None, 0, 0, error))
            return
        earliest = self._settings.auto_offset_reset == "earliest"
        progress.position = view.log_start_offset if earliest else self._fetcher.end_offset(view)
        if position >= 0:
            _LOGGER.warning(
                "partition %d of topic %s %s (it has %d to %d): going on at %d, as auto.offset.reset says",
                partition, topic, what, view.log_start_offset, view.log_end_offset, progress.position,
            )  # fmt: skip

    # What is told

    def _tell_ends(self) -> None:
        if not self._settings.enable_partition_eof:
            return
        now_s = self._now_s()
        for progress in self._assignment.in_turn():
            view = self._fetcher.partition_view(progress.key)
            if view is None or not progress.readable(now_s) or progress.eof_told_at == progress.position:
                continue
            if progress.position >= self._fetcher.end_offset(view):
                progress.eof_told_at = progress.position
                reason = f"reached the end of the partition at offset {progress.position}"
                error = KafkaError(ErrorCode.LOCAL_PARTITION_EOF, reason)
                self.events.append(Message(*progress.key, progress.position, None, None, None, 0, 0, error))

    def _tell_unknown_topic(self, topic: str) -> None:
        reason = (
            f"topic {topic!r} does not exist: "
            f"AdminClient.create_topics([NewTopic({topic!r}, num_partitions)]) creates it"
        )
        self._tell_once(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)

    def _tell_once(self, what: str | PartitionKey, code: ErrorCode, reason: str) -> None:
        if what not in self._told:
            self._told.add(what)
            topic, partition = (what, None) if isinstance(what, str) else what
            self.events.append(Message(topic, partition, None, None, None, None, 0, 0, KafkaError(code, reason)))

    def _tell_unavailable(self, error: StoreUnavailable | OutcomeUnknown) -> None:
        """As librdkafka does: poll() goes on trying, and whoever wants to know has set error_cb."""
        self._look_at_s = max(self._look_at_s, self._now_s() + self._idle_s)
        _LOGGER.warning("the store did not answer, trying again: %s", error)
        if self._settings.error_cb is not None:
            self._settings.error_cb(error.error)
