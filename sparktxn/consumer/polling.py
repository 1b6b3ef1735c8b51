"""What stands between `poll` and the log: states of reading, the subscription, and records handed out as messages.

The caller's thread decides, hands out and calls back. Workers, one of each at a time, do what waits for the object
store: a poll of the log, the reading of segments. The next call picks it up. So no call waits longer for a store that
does not answer than its own time-out.

An idle consumer polls the log at growing intervals, up to `fetch.wait.max.ms`. While there is more to read, it polls
that often for new records of partitions that have run dry.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from itertools import repeat
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._engine.state.internal import INTERNAL_TOPIC_IDS, INTERNAL_TOPICS
from sparktxn._foundation.process.background import Background
from sparktxn._foundation.process.clock import Deadline, is_time_up, time_left_s
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values.fieldtypes import TopicPartitionKey
from sparktxn._foundation.values.structs import MemberState
from sparktxn._kafka.message import (
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    ErrorMessage,
    Headers,
    Message,
    ReadMessage,
)
from sparktxn._kafka.settings.consumer import ConsumerSettings
from sparktxn._rows.scan.content import lacks_deletes
from sparktxn._rows.scan.internalrows import internal_messages
from sparktxn._rows.scan.plan import LOG_APPEND_TIME
from sparktxn.consumer.assignment import Assignment, Progress, Stored, Subscription, logical_position
from sparktxn.consumer.fetcher import Chunk, Fetcher
from sparktxn.consumer.heartbeats import Life
from sparktxn.consumer.member import Membership, Seen
from sparktxn.consumer.offsets import GroupOffsets, OffsetsSeen
from sparktxn.consumer.threadturns import ConsumerTurns
from sparktxn.errors import (
    CommandRefused,
    ErrorCode,
    KafkaError,
    KafkaException,
    OutcomeUnknown,
    StoreUnavailable,
    ViewExpired,
)

# Arrow batches → messages.


def messages_of(batch: pa.RecordBatch, topic: str, partition: int) -> list[Message] | None:
    """Return the batch's rows, all of one partition, as messages; None if the topic is typed, so that it has none.

    They are made column by column, which makes it fast.
    """
    if topic in INTERNAL_TOPICS:
        return internal_messages(batch, topic)
    if "_offset" in batch.schema.names:
        return None
    if not batch.num_rows:
        return []
    log_append = batch.column("timestampType")[0].as_py() == LOG_APPEND_TIME
    return list(
        map(
            ReadMessage,
            repeat(topic),
            repeat(partition),
            batch.column("offset").to_pylist(),
            batch.column("key").to_pylist(),
            batch.column("value").to_pylist(),
            _headers(batch.column("headers")),
            repeat(TIMESTAMP_LOG_APPEND_TIME if log_append else TIMESTAMP_CREATE_TIME),
            batch.column("timestamp").cast(pa.int64()).to_pylist(),
        )
    )


def _headers(column: pa.ListArray) -> list[Headers | None]:
    """Return each row's headers; None for a record without any."""
    if column.null_count == len(column):
        return [None] * len(column)
    # A slice's `values` are those of the whole column: only the slice's own part is converted.
    ends = column.offsets.to_pylist()
    first, last = ends[0], ends[-1]
    items = column.values.slice(first, last - first)
    pairs = list(zip(items.field("key").to_pylist(), items.field("value").to_pylist(), strict=True))
    # A null row's extent is empty by no rule of Arrow's, so its validity is asked too.
    valid = column.is_valid().to_pylist()
    return [
        pairs[start - first : end - first] or None if present else None
        for start, end, present in zip(ends[:-1], ends[1:], valid, strict=True)
    ]


# The states of what a consumer reads: of the view that is pinned, of a call's messages, and of the group's share.


class ViewState(Enum):
    """Where the pinned view is."""

    STALE = "stale"
    """What is read has changed since it was pinned, or none is: a poll of the log comes first."""
    EXPIRED = "expired"
    """A vacuum has passed it: a poll of the log comes first."""
    RENEWED = "renewed"
    """It took the place of one that had expired, and nothing was read in it yet."""
    UNREAD = "unread"
    """Nothing was read in it since the last poll began."""
    READ = "read"
    """Rows were read in it since the last poll began: the next poll may wait until it has no more."""

    @property
    def needs_poll(self) -> bool:
        """Whether nothing is read before the log was polled."""
        return self in (ViewState.STALE, ViewState.EXPIRED)


class ViewEvent(Enum):
    """What changes it."""

    CHANGED = "changed"
    """What is read has changed: the subscription, the assignment or a position."""
    PASSED = "passed"
    """Its segments are gone. For one that was renewed after that, something else is wrong."""
    ROWS = "rows"
    """Rows were read in it."""
    BEGUN = "begun"
    """A poll of the log has begun."""
    PINNED = "pinned"
    """A poll of the log has brought a newer one."""


_S, _E = ViewState, ViewEvent

TRANSITIONS: Final[Mapping[tuple[ViewState, ViewEvent], ViewState]] = MappingProxyType(
    {
        (_S.STALE, _E.CHANGED): _S.STALE,
        (_S.STALE, _E.PASSED): _S.EXPIRED,
        (_S.STALE, _E.ROWS): _S.STALE,
        (_S.STALE, _E.BEGUN): _S.STALE,
        (_S.STALE, _E.PINNED): _S.UNREAD,
        (_S.EXPIRED, _E.CHANGED): _S.EXPIRED,
        (_S.EXPIRED, _E.ROWS): _S.STALE,
        (_S.EXPIRED, _E.BEGUN): _S.EXPIRED,
        (_S.EXPIRED, _E.PINNED): _S.RENEWED,
        (_S.RENEWED, _E.CHANGED): _S.EXPIRED,
        (_S.RENEWED, _E.ROWS): _S.READ,
        (_S.RENEWED, _E.BEGUN): _S.RENEWED,
        (_S.RENEWED, _E.PINNED): _S.RENEWED,
        (_S.UNREAD, _E.CHANGED): _S.STALE,
        (_S.UNREAD, _E.PASSED): _S.EXPIRED,
        (_S.UNREAD, _E.ROWS): _S.READ,
        (_S.UNREAD, _E.BEGUN): _S.UNREAD,
        (_S.UNREAD, _E.PINNED): _S.UNREAD,
        (_S.READ, _E.CHANGED): _S.STALE,
        (_S.READ, _E.PASSED): _S.EXPIRED,
        (_S.READ, _E.ROWS): _S.READ,
        (_S.READ, _E.BEGUN): _S.UNREAD,
        (_S.READ, _E.PINNED): _S.READ,
    }
)
"""Every other pair is a defect, of the store or of this client."""


class Gathering(Enum):
    """Whether a call has taken messages that it has not returned: the assignment must not change meanwhile."""

    NONE = "none"
    TAKEN = "taken"
    INTERRUPTED = "interrupted"
    """It has, and the assignment is to change once they have been returned."""


class Share(Enum):
    """How what is read compares with what the group's state gives this consumer."""

    WHOLE = "whole"
    OWED = "owed"
    """Other members owe it partitions: it polls the log more often."""
    BEHIND = "behind"
    """The state gives more than was taken over: it polls more often, and the next poll may change the assignment."""


class ReadingStates:
    """The three states of one consumer's reading. They are changed by the methods of this class alone."""

    def __init__(self) -> None:
        self.view = ViewState.STALE
        self.gathering = Gathering.NONE
        self.share = Share.WHOLE

    def move_view(self, event: ViewEvent) -> None:
        """Bring the pinned view to the state that the table says."""
        self.view = TRANSITIONS[self.view, event]

    @property
    def may_expire(self) -> bool:
        """Whether a vacuum may have passed the view, so that missing segments are not damage."""
        return (self.view, ViewEvent.PASSED) in TRANSITIONS

    def gather(self) -> None:
        """Keep the assignment as it is while a call has messages that it has not returned."""
        if self.gathering is Gathering.NONE:
            self.gathering = Gathering.TAKEN

    def interrupt(self) -> None:
        """Have the call return its messages, as the assignment is to change."""
        assert self.gathering is not Gathering.NONE, "no call keeps the assignment as it is"
        self.gathering = Gathering.INTERRUPTED

    def end_gathering(self) -> None:
        """Let the assignment change: the call returns its messages."""
        self.gathering = Gathering.NONE

    def take_over_share(self, *, is_whole: bool) -> None:
        """Note that all is read that the group's state gives; other members owe the rest unless it `is_whole`."""
        self.share = Share.WHOLE if is_whole else Share.OWED

    def leave_share(self) -> None:
        """Note that the group's state gives more than was taken over."""
        self.share = Share.BEHIND


_IDLE_S_MIN: Final = 0.002
_CHUNK_ROWS_MAX: Final = 5_000
_POLL_TIMEOUT_S: Final = 30.0
_GATHER_S: Final = 0.1
"""How long consume_arrow() waits for more rows once it has some."""
_FOLLOW_S: Final = 0.5
"""How often a consumer that hands messages out polls the log for what its group's state says."""
_WAITING_S: Final = 0.1
"""How long it waits, at most, between two polls while other members owe it partitions."""
_WAIT_S_MAX: Final = 0.5
"""How long a call waits for a worker before it sees to its other duties, such as the automatic offset commit."""


class _Poll:
    """One poll of the log, as a worker makes it: what is wanted, and what it has found.

    `commits` are offset commits to wait for before the group's offsets are read; None if they are not wanted. `life` is
    the membership to see to. The worker sets `view`, `unknown`, `seen`, `group`, `error` and, last, `ended`.
    `is_wanted` ends when the caller reads something else.
    """

    __slots__ = (
        "commits",
        "ended",
        "error",
        "group",
        "is_wanted",
        "life",
        "seen",
        "subscription",
        "unknown",
        "view",
        "wanted",
    )

    def __init__(
        self,
        wanted: set[str],
        subscription: Subscription | None,
        commits: list[threading.Event] | None,
        life: Life | None,
    ) -> None:
        self.wanted = wanted
        self.subscription = subscription
        self.commits = commits
        self.life = life
        self.group: Seen | None = None
        self.view: ReadView | None = None
        self.seen: OffsetsSeen | None = None
        self.unknown: list[str] = []
        self.error: Exception | None = None
        self.is_wanted = True
        self.ended = False


class Reading:
    """The reading side of one consumer. `ready` holds the messages that `poll` hands out next, all of one partition."""

    def __init__(
        self,
        log: Log,
        uri: str,
        settings: ConsumerSettings,
        assignment: Assignment,
        offsets: GroupOffsets,
        membership: Membership,
        follow: Callable[[Seen, ReadView], None],
        background: Background,
        commits_under_way: Callable[[], list[threading.Event]],
        turns: ConsumerTurns,
    ) -> None:
        self._turns = turns
        self._log = log
        self._settings = settings
        self._assignment = assignment
        self._offsets = offsets
        self._membership = membership
        self._follow = follow
        self._now_s = log.clock.monotonic_s
        self._background = background
        self._commits_under_way = commits_under_way
        self._arrived = threading.Event()
        self._fetcher = Fetcher(log.objects, uri, settings, assignment, self._now_s, background, self._arrived.set)
        self._fetcher.on_advance(self._pass_over)
        self._chunk: Chunk | None = None
        self._reported: set[str | TopicPartitionKey] = set()
        self._poll: _Poll | None = None
        self.states = ReadingStates()
        self._poll_at_s = self._polled_at_s = 0.0
        self._idle_s = _IDLE_S_MIN
        self._followed: MemberState | None = None
        self.ready: deque[Message] = deque()
        self.events: deque[Message] = deque()
        self.subscription: Subscription | None = None

    # What is handed out

    def settle(self) -> None:
        """Bring the position of the partition under way up to the last message that was handed out."""
        chunk = self._chunk
        if chunk is None:
            return
        handed_out = chunk.batch.num_rows - len(self.ready)
        if handed_out:
            self._move(chunk.progress, chunk.offset(handed_out - 1) + 1)
        if not self.ready:
            self._chunk = None

    def give_back(self) -> None:
        """Settle, and take back the messages that were not handed out."""
        self.settle()
        if self._chunk is not None:
            self._chunk.source.give_back(len(self.ready))
            self.ready.clear()
            self._chunk = None

    def partition_under_way(self) -> TopicPartitionKey | None:
        """Return the partition whose messages are handed out next, if any are ready."""
        return self._chunk.progress.key if self._chunk is not None else None

    def handed_out(self, chunk: Chunk) -> None:
        """Move past a chunk that the user gets as it is."""
        chunk.progress.received += chunk.batch.num_rows
        self._move(chunk.progress, chunk.offset(chunk.batch.num_rows - 1) + 1)

    def _move(self, progress: Progress, offset: int) -> None:
        progress.position = offset
        if self._settings.enable_auto_offset_store:
            progress.stored = Stored(offset)

    def _pass_over(self, progress: Progress, offset: int) -> None:
        """Move past offsets that hold nothing to hand out."""
        if progress.topic_id in INTERNAL_TOPIC_IDS:
            # Committing it would be an entry, which an internal topic's end moves past: the next thing to commit.
            progress.position = offset
        else:
            self._move(progress, offset)

    def fill(self) -> bool:
        """Make messages ready, or queue events; False if there is nothing now.

        Raises:
            DamagedObject: an object of one partition is damaged; its position stays, the others go on.
            KafkaException: ``_NOT_IMPLEMENTED``: a topic with declared columns has no messages.
        """
        chunk = self.next_chunk(_CHUNK_ROWS_MAX, self._settings.partition_fetch_bytes_max)
        if chunk is None:
            return bool(self.events)
        topic, partition = chunk.progress.key
        messages = messages_of(chunk.batch, topic, partition)
        if messages is None:
            chunk.source.give_back(chunk.batch.num_rows)
            reason = f"topic {topic!r} declares columns, so its records are not messages: read it with consume_arrow()"
            raise KafkaException(KafkaError(ErrorCode.LOCAL_NOT_IMPLEMENTED, reason))
        self._chunk = chunk
        chunk.progress.received += len(messages)
        self.ready.extend(messages)
        return True

    def next_chunk(self, rows_max: int, bytes_max: int | None) -> Chunk | None:
        """Return the next rows; None if there are none now, while a worker looks for them, or for an event instead."""
        self.settle()
        self._arrived.clear()
        if self.subscription is None and not len(self._assignment):
            return None
        try:
            self._pick_up_poll()
            if self._poll is None and self._poll_due():
                self._begin_poll()
            while not self.states.view.needs_poll and not self.events:
                chunk = self.chunk_in_view(rows_max, bytes_max)
                if chunk is not None:
                    return chunk
                if self._fetcher.is_busy:
                    return None
                self._report_ends()
                if self.states.view is not ViewState.READ or self._poll is not None:
                    return None
                self._begin_poll()
        except (StoreUnavailable, OutcomeUnknown) as error:
            self._report_unavailable(error)
        return None

    def chunk_in_view(self, rows_max: int, bytes_max: int | None) -> Chunk | None:
        """Return the next rows of the pinned view, without a poll of the log."""
        try:
            chunk = self._fetcher.next_chunk(rows_max, bytes_max)
        except ViewExpired:
            # The vacuum has passed the view; a newer one names the existing segments, unless something else is wrong.
            if not self.states.may_expire:
                raise
            self.states.move_view(ViewEvent.PASSED)
            self.poll_again()
            self._fetcher.forget()
            return None
        if chunk is not None:
            self.states.move_view(ViewEvent.ROWS)
            self._idle_s = _IDLE_S_MIN
        return chunk

    def more_in_view(self, rows_max: int) -> Chunk | None:
        """Return the next rows of the pinned view, if a worker has them, or will find them in a moment."""
        gathering = Deadline(self._log.clock, _GATHER_S)
        while True:
            self._arrived.clear()
            chunk = self.chunk_in_view(rows_max, None)
            if chunk is not None or not self._fetcher.is_busy or gathering.passed() or is_time_up():
                return chunk
            self._arrived.wait(min(gathering.remaining_s() or 0.0, time_left_s() or _GATHER_S))

    def wait(self) -> bool:
        """Wait for what a worker finds, or for the next poll; False if the deadline comes first."""
        remaining_s = time_left_s()
        if self._poll is not None or self._fetcher.is_busy:
            is_short = remaining_s is not None and remaining_s < _WAIT_S_MAX
            return self._arrived.wait(remaining_s if is_short else _WAIT_S_MAX) or not is_short
        now_s = self._now_s()
        wait_s = max(_IDLE_S_MIN, self._poll_at_s - now_s)
        if self.subscription is None and not len(self._assignment):
            wait_s = self._settings.fetch_wait_ms_max / 1000
        if remaining_s is not None and remaining_s < wait_s:
            self._log.clock.sleep(remaining_s)
            return False
        self._log.clock.sleep(wait_s)
        return True

    # Polls of the log

    def poll_again(self) -> None:
        """Make the next call poll the log first, whatever a poll under way may find: what is read has changed."""
        self.states.move_view(ViewEvent.CHANGED)
        self._poll_at_s = 0.0
        if self._poll is not None:
            self._poll.is_wanted = False

    def poll_soon(self) -> None:
        """Poll the log again at the next call: the group's state is about to change."""
        self._poll_at_s = self._polled_at_s = 0.0

    @property
    def follow_at_s(self) -> float:
        """When `follow_group` has work to do."""
        return 0.0 if self._poll is not None else self._polled_at_s + _FOLLOW_S

    def follow_group(self) -> None:
        """Poll the log for what the group's state says, also while there are messages to hand out."""
        if self.subscription is None or self.states.gathering is not Gathering.NONE:
            return
        try:
            if self._poll is not None and self._poll.ended:
                self.give_back()
                self._pick_up_poll()
            if self._poll is None and self._now_s() >= self._polled_at_s + _FOLLOW_S:
                self._begin_poll()
        except (StoreUnavailable, OutcomeUnknown) as error:
            self._report_unavailable(error)

    def discard(self, key: TopicPartitionKey) -> None:
        """Drop what is under way for a partition; call `give_back` first."""
        self._fetcher.discard(key)

    def forget(self) -> None:
        """Drop all that is under way; call `give_back` first."""
        self._fetcher.forget()
        self._reported.clear()
        self.poll_again()

    def partition_view(self, key: TopicPartitionKey) -> PartitionView | None:
        """Return the partition in the pinned view."""
        return self._fetcher.partition_view(key)

    def watermarks_in_view(self, key: TopicPartitionKey) -> tuple[int, int]:
        """Return (low, high) in the pinned view, or OFFSET_INVALID twice."""
        view = self._fetcher.partition_view(key)
        if view is None:
            return OFFSET_INVALID, OFFSET_INVALID
        return view.log_start_offset, self._fetcher.end_offset(view)

    def _poll_due(self) -> bool:
        now_s = self._now_s()
        if now_s < self._poll_at_s:
            return False
        if self.states.view is ViewState.READ:
            return now_s >= self._polled_at_s + self._settings.fetch_wait_ms_max / 1000
        return True

    def _begin_poll(self) -> None:
        """Let a worker poll the log, and take over what it has found if that is done at once."""
        self._polled_at_s = self._now_s()
        self._poll_at_s = self._polled_at_s + self._idle_s
        idle_s_max = max(_IDLE_S_MIN, self._settings.fetch_wait_ms_max / 1000)
        is_whole = self.states.share is Share.WHOLE
        self._idle_s = min(2 * self._idle_s, idle_s_max if is_whole else min(idle_s_max, _WAITING_S))
        self.states.move_view(ViewEvent.BEGUN)
        life = self._membership.life if self.subscription is not None else None
        commits = self._commits_under_way() if self._needs_offsets(life) else None
        poll = _Poll(self._assignment.topics(), self.subscription, commits, life)
        self._poll = poll
        self._background.submit(lambda: self._work(poll))
        self._pick_up_poll()

    def _needs_offsets(self, life: Life | None) -> bool:
        """Return True if the next poll waits for commits under way, and then reads the group's offsets.

        Offsets say where a partition begins. The release of a partition, for which another member waits, is a commit.
        """
        if self.states.view.needs_poll or any(
            progress.begins or not progress.resolved for progress in self._assignment
        ):
            return True
        return life is not None and self._followed is not None and bool(self._followed.revoking)

    def _work(self, poll: _Poll) -> None:
        """Poll the log, on a worker, which touches nothing but `poll`."""
        try:
            with self._log.within(_POLL_TIMEOUT_S):
                if poll.commits is not None:
                    self._await(poll.commits)
                wanted, refusal = self._attend(poll)
                poll.view = self._newest_view(poll, wanted)
            if poll.life is not None:
                poll.group = self._membership.see(poll.life)
                if refusal is not None:
                    poll.group = poll.group._replace(refusal=refusal)
            if poll.commits is not None:
                # After the member's state: the offsets are not older than what gives it a partition.
                poll.seen = self._offsets.see()
        except Exception as error:  # noqa: BLE001 - the caller's thread raises it
            poll.error = error
        finally:
            poll.ended = True
            self._arrived.set()

    def _pick_up_poll(self) -> None:
        """Pin the view that a worker has found, follow the subscription in it, and find every partition's place."""
        poll = self._poll
        if poll is None or not poll.ended:
            return
        if self.states.gathering is not Gathering.NONE and self._would_change(poll):
            self.states.interrupt()
            return
        self._poll = None
        if poll.error is not None:
            raise poll.error
        if not poll.is_wanted or poll.view is None:
            return
        view = poll.view
        self._reported -= poll.wanted
        for topic in poll.unknown:
            self._report_unknown_topic(topic)
        self.states.move_view(ViewEvent.PINNED)
        if poll.group is not None:
            # Calls back into user code, which may assign or seek: that asks for another poll.
            self._followed = poll.group.member
            before = {progress.key: progress for progress in self._assignment}
            self._follow(poll.group, view)
            if before and any(before.get(progress.key) is not progress for progress in self._assignment):
                # Read again: what was committed since is the place of a partition that was given anew.
                poll.seen = None
        self._fetcher.pin(view)
        if all(progress.key in view.partitions for progress in self._assignment):
            # What a callback has changed is in this view: it takes no other poll.
            self.states.move_view(ViewEvent.PINNED)
        for progress in self._assignment:
            if progress.key in view.partitions:
                self._place(progress, view.partitions[progress.key], view, poll.seen)
            elif progress.key[0] in view.topics:
                count = view.topics[progress.key[0]].partition_count
                reason = f"topic {progress.key[0]!r} has partitions 0 to {count - 1}, not {progress.key[1]}"
                self._report_once(progress.key, ErrorCode.LOCAL_UNKNOWN_PARTITION, reason)

    def _await(self, commits: list[threading.Event]) -> None:
        """Wait for this consumer's own commits: where it goes on must not be older than they are."""
        for ended in commits:
            if not ended.wait(time_left_s()):
                raise OutcomeUnknown(f"an offset commit of this consumer has not ended in {_POLL_TIMEOUT_S:g} s")

    def _would_change(self, poll: _Poll) -> bool:
        """Return True if the user's callbacks may run when `poll` is picked up."""
        if poll.group is None or poll.error is not None:
            return False
        now, before = poll.group.member, self._followed
        if now is None or before is None or poll.group.refusal is not None or self.states.share is Share.BEHIND:
            return True
        return (now.assigned, now.revoking) != (before.assigned, before.revoking)

    def _attend(self, poll: _Poll) -> tuple[set[str], KafkaError | None]:
        """Note in the group what this consumer subscribes to, on a worker.

        Return the topics to view, and why the group refuses this consumer, if it does.
        """
        wanted, subscription = poll.wanted, poll.subscription
        if subscription is None or poll.life is None:
            return wanted, None
        subscribed = set(subscription.names)
        if subscription.has_patterns:
            self._log.refresh()
            known = {topic.topic_id: topic.name for topic in self._log.topics()}
            if not self._settings.exclude_internal_topics:
                known = self._log.topic_names()
            subscribed |= subscription.matching(known.values())
        refusal = self._membership.attend(poll.life, tuple(sorted(subscribed)))
        return wanted | subscribed, refusal

    def _newest_view(self, poll: _Poll, wanted: set[str]) -> ReadView:
        """Return the newest view of what `poll` wants, on a worker."""
        while True:
            try:
                return self._log.view(sorted(wanted))
            except CommandRefused as refused:
                if refused.error.code() != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                for topic in sorted(wanted):
                    if self._log.topic(topic) is None:
                        wanted.discard(topic)
                        poll.unknown.append(topic)

    def _place(self, progress: Progress, view: PartitionView, whole: ReadView, seen: OffsetsSeen | None) -> None:
        """Make the position an offset that the partition has."""
        if progress.topic_id != view.topic.topic_id:
            if progress.topic_id >= 0:
                # Deleted and created again: the offsets are another topic's.
                progress.seek(OFFSET_STORED)
                progress.stored = Stored()
                self._fetcher.discard(progress.key)
            progress.topic_id = view.topic.topic_id
        if progress.halted:
            return
        position = self._chosen_position(progress, view, whole, seen)
        if position is None:
            return
        if not view.log_start_offset <= position <= view.log_end_offset:
            self._fetcher.discard(progress.key)
            self._reset(progress, position, view)
            return
        progress.found(position)
        seen_entry = progress.seen_entry or max(progress.started_from, 0)
        progress.seen_entry = whole.entry
        if lacks_deletes(view, position, seen_entry):
            self._say_deletes_missed(progress)

    def _chosen_position(
        self, progress: Progress, view: PartitionView, whole: ReadView, seen: OffsetsSeen | None
    ) -> int | None:
        """Return the offset that the position means, below 0 if there is none, or None if it is not known yet."""
        position = progress.position
        where = (view.topic.topic_id, view.partition)
        logical = logical_position(position, view, self._fetcher.end_offset(view)) if position < 0 else position
        if not progress.begins and logical is not None:
            return logical
        if seen is None:
            # It is new in this view: the next poll asks for the group's offsets too.
            self.states.move_view(ViewEvent.CHANGED)
            return None
        committed = seen.committed_offset(*where)
        progress.found_committed = OFFSET_INVALID if committed is None else committed.offset
        if logical is not None:
            self._offsets.start_at(progress, logical, committed)
            return logical
        if not seen.is_stable(*where):
            return None
        if committed is not None and committed.offset > view.log_end_offset and self._log.entry > whole.entry:
            # Committed by a consumer that has seen more than this view: the next poll shows it.
            return None
        self._offsets.start_from(progress, committed)
        return OFFSET_INVALID if committed is None else committed.offset

    def _say_deletes_missed(self, progress: Progress) -> None:
        """Say that deletes are gone which the consumer has not seen: by an error if auto.offset.reset is error."""
        (topic, partition), position = progress.key, progress.position
        if self._settings.auto_offset_reset != "error":
            log_event("deletes_missed", reader="a consumer", topic=topic, partition=partition, position=position)
            return
        progress.halted = True
        reason = (
            f"a compaction has removed deletes from partition {partition} of topic {topic!r} that follow offset "
            f"{position}, and auto.offset.reset is error: make what is made of its rows anew from the beginning, or "
            f"seek() to {position} to go on"
        )
        error = KafkaError(ErrorCode.LOCAL_AUTO_OFFSET_RESET, reason)
        self.events.append(ErrorMessage(topic, partition, position, None, None, None, 0, 0, error))

    def _reset(self, progress: Progress, position: int, view: PartitionView) -> None:
        """Apply auto.offset.reset."""
        topic, partition = progress.key
        what = "has no committed offset" if position < 0 else f"has no offset {position}"
        if self._settings.auto_offset_reset == "error":
            progress.halted = True
            reason = (
                f"partition {partition} of topic {topic!r} {what} (it has {view.log_start_offset} to "
                f"{view.log_end_offset}) and auto.offset.reset is error: seek() to where to go on"
            )
            error = KafkaError(ErrorCode.LOCAL_AUTO_OFFSET_RESET, reason)
            where = position if position >= 0 else None
            self.events.append(ErrorMessage(topic, partition, where, None, None, None, 0, 0, error))
            return
        earliest = self._settings.auto_offset_reset == "earliest"
        progress.found(view.log_start_offset if earliest else self._fetcher.end_offset(view))
        if position >= 0:
            log_event(
                "position_reset",
                partition=partition,
                topic=topic,
                what=what,
                log_start_offset=view.log_start_offset,
                log_end_offset=view.log_end_offset,
                position=progress.position,
            )

    # What is reported

    def _report_ends(self) -> None:
        if not self._settings.enable_partition_eof:
            return
        now_s = self._now_s()
        for progress in self._assignment.in_turn():
            view = self._fetcher.partition_view(progress.key)
            if view is None or not progress.readable(now_s) or progress.eof_reported_at == progress.position:
                continue
            if progress.position >= self._fetcher.end_offset(view):
                progress.eof_reported_at = progress.position
                reason = f"reached the end of the partition at offset {progress.position}"
                error = KafkaError(ErrorCode.LOCAL_PARTITION_EOF, reason)
                self.events.append(ErrorMessage(*progress.key, progress.position, None, None, None, 0, -1, error))

    def _report_unknown_topic(self, topic: str) -> None:
        reason = (
            f"topic {topic!r} does not exist: "
            f"AdminClient.create_topics([NewTopic({topic!r}, num_partitions)]) creates it"
        )
        self._report_once(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)

    def _report_once(self, what: str | TopicPartitionKey, code: ErrorCode, reason: str) -> None:
        if what not in self._reported:
            self._reported.add(what)
            topic, partition = (what, None) if isinstance(what, str) else what
            self.events.append(ErrorMessage(topic, partition, None, None, None, None, 0, 0, KafkaError(code, reason)))

    def _report_unavailable(self, error: StoreUnavailable | OutcomeUnknown) -> None:
        """Report to error_cb alone, as librdkafka does: poll() tries again."""
        self._poll_at_s = max(self._poll_at_s, self._now_s() + self._idle_s)
        log_event("store_did_not_answer", error=error)
        if self._settings.error_cb is not None:
            with self._turns.calls_back():
                self._settings.error_cb(error.error)
