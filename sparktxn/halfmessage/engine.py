"""Half transactions of one client: preparing, settling, the ends that wait, and reading messages back for a check."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Command, EndHalf, PrepareHalf
from sparktxn._engine.format.schema import RECORD_SCHEMA
from sparktxn._engine.format.segment import checksum, decode_segment
from sparktxn._engine.log.log import CLOSE_TIMEOUT_S
from sparktxn._engine.state.settings import Condition, half_rejection
from sparktxn._foundation.config.topic import is_compacted, topic_setting
from sparktxn._foundation.process.background import start_thread
from sparktxn._foundation.process.clock import Deadline, time_left_s
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.process.handles import ForkGuard
from sparktxn._foundation.values.fieldtypes import TopicPartitionKey
from sparktxn._foundation.values.structs import HalfSegment, HalfState, TopicState
from sparktxn._kafka.settings.halfmessage import HalfMessageSettings
from sparktxn._rows.scan.segmentbytes import fetch_each
from sparktxn._rows.stage.partitioner import partitioner
from sparktxn._rows.stage.stagedsegment import INLINE_LIST_BYTES_MAX, StagedSegment, StageTopic, may_be_carried
from sparktxn._rows.stage.transactionwriter import TIME_OF_ENTRY, times_used
from sparktxn._rows.stage.uploading import (
    RECORD_BYTES_MAX,
    inline_segment,
    upload_segment,
)
from sparktxn.errors import (
    CommandRefused,
    DamagedObject,
    ErrorCode,
    KafkaError,
    KafkaException,
    did_you_mean,
)
from sparktxn.halfmessage.records import MessageRecord, record_table, records_of
from sparktxn.store.registry import acquire_log, release_dropped, release_log

if TYPE_CHECKING:
    from sparktxn._engine.log.log import Log
    from sparktxn._engine.log.write.queue import Ticket


# Ends of half transactions that are sent one way, as RocketMQ sends them: the sender does not wait.
#
# An end is queued, and is in the next entry that this process writes, such as that of the sender's next half message.
# If there is none within a few milliseconds, a thread writes one. An end that is not stored is not an error of its
# sender: a check settles the half transaction.

LINGER_S: Final = 0.005
"""How long an end waits for another entry of this process to carry it."""


class _End(NamedTuple):
    """An end on its way. Its sender's deadline says how long this process tries to store it."""

    command: EndHalf
    ticket: Ticket
    deadline: Deadline


class Ends:
    """The ends that one client has sent and that are not known to be stored.

    It refers to nothing of the client, so that its thread keeps no client alive.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._sent: dict[str, _End] = {}
        self._carriers: set[object] = set()
        self._filled = threading.Event()
        self._closed = threading.Event()
        self._life = Deadline(log.clock, None)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread that writes what no other entry carries.

        Raises:
            KafkaException: ``_CRIT_SYS_RESOURCE``: the machine gives no thread.
        """
        self._thread = start_thread("sparktxn-ends", self._serve, finish=self._finish, give_up=self._give_up)

    def send(self, command: EndHalf) -> None:
        """Queue an end, and return before it is stored.

        A warning in the log reports an end that is refused, or not known to be stored in this call's time. What was not
        put by then never is, and what was put is not put again.
        """
        self._sent[command.transaction_id] = _End(
            command, self._log.send([command]), Deadline(self._log.clock, time_left_s())
        )
        if not self._filled.is_set():
            self._filled.set()

    @contextmanager
    def carrier(self) -> Iterator[None]:
        """Note that the body writes an entry, which carries the ends that were sent before: none goes alone meanwhile.

        So an end does not go alone where a busy machine takes long to make the entry that would have carried it.
        """
        own = object()
        self._carriers.add(own)
        try:
            yield
        finally:
            self._carriers.discard(own)

    def settle(self) -> None:
        """Wait until what was sent before this call is stored, refused or given up."""
        self._settle(lambda end: True)

    def settle_if_alone(self) -> None:
        """Do so unless an entry is about to carry the ends; then leave those that are not done."""
        if not self._carriers or self._closed.is_set():
            self.settle()
        else:
            self._settle(lambda end: end.ticket.is_done() or end.deadline.passed())

    def _settle(self, is_meant: Callable[[_End], bool]) -> None:
        with self._life.governs():
            for end in filter(is_meant, list(self._sent.values())):
                self._wait(end)

    def close(self) -> None:
        """Wait until all ends are stored, up to the caller's deadline or half a minute; report and give up the rest."""
        self._finish()
        if self._thread is not None:
            self._thread.join(time_left_s(CLOSE_TIMEOUT_S))
        self._give_up()

    def _serve(self) -> None:
        while True:
            self._filled.wait()
            self._closed.wait(LINGER_S)
            self._filled.clear()
            self.settle_if_alone()
            if self._sent:
                self._filled.set()
            elif self._closed.is_set():
                return

    def _finish(self) -> None:
        """Have the thread end once it has stored what was sent."""
        self._closed.set()
        self._filled.set()

    def _give_up(self) -> None:
        """Send no further request, and put none of the ends any more."""
        self._life.end()
        for end in list(self._sent.values()):
            end.ticket.let_go()
            is_stored = end.ticket.results is not None
            self._report(end, None if is_stored else end.ticket.error or "the time for it has passed")

    def _wait(self, end: _End) -> None:
        problem: Exception | None = None
        try:
            with end.deadline.governs():
                end.ticket.wait_once()
        except Exception as error:  # noqa: BLE001 - of any kind: it is reported, and the other ends go on
            problem = error
        self._report(end, problem)

    def _report(self, end: _End, problem: object) -> None:
        """Forget an end, and report why it is not known to be stored; only the first report of an end counts."""
        if self._sent.pop(end.command.transaction_id, None) is None or problem is None:
            return
        half = f"half message {end.command.transaction_id!r} of group {end.command.group_id!r}"
        if isinstance(problem, CommandRefused):
            log_event("half_end_refused", half=half, reason=problem)
        else:
            log_event("half_end_unknown", half=half, reason=problem)


_NORMAL: Final = "normal"


class StagedMessages(Struct, frozen=True):
    """Messages, each with its partition, and the segments that hold them: uploaded, or in `records` by their names.

    `condition` must hold for the state that the entry with them follows.
    """

    partitions: tuple[int, ...]
    segments: tuple[HalfSegment, ...]
    records: dict[str, bytes] = {}
    condition: Condition | None = None


class _Together(Struct):
    """Messages for one partition, and the bytes of their records."""

    records: list[MessageRecord]
    size_bytes: int = 0

    def timestamps_ms(self) -> tuple[int, int]:
        """Return when the first and the last of them was made."""
        times_ms = [record.born_ms for record in self.records]
        return min(times_ms), max(times_ms)


class HalfEngine:
    """What a transactional client does with a store. Any number of threads use it at a time."""

    def __init__(self, settings: HalfMessageSettings) -> None:
        """Open the store.

        Raises:
            StoreNotFound, StoreUnavailable, ConfigurationError: see `acquire_log`.
        """
        self.settings = settings
        self.log: Log = acquire_log(settings.uri, settings.store_options, create=False)
        self._fork = ForkGuard()
        self._choose = partitioner(settings.partitioner)
        self._lock = threading.Lock()
        self._next_partition = int(self.log.ids.token()[:8], 32)
        self._stage_topics: dict[str, tuple[TopicState, StageTopic]] = {}
        self.ends = Ends(self.log)

    def within(self, timeout_s: float = -1) -> AbstractContextManager[object]:
        """Return a context whose waits and requests keep the time-out of one call; below 0 the setting's."""
        return self.log.within(self.settings.send_timeout_s if timeout_s < 0 else timeout_s)

    def check_process(self) -> None:
        """Raise RuntimeError in a forked child."""
        self._fork.check("transactional producer")

    def close(self) -> None:
        """Wait for the ends that were sent, up to the call's deadline or half a minute, and give the log back."""
        if not self._fork.forked():
            self.ends.close()
            release_log(self.log)

    def give_back(self) -> None:
        """Do the same for a client that was dropped without being closed."""
        if not self._fork.forked():
            self.ends.close()
        release_dropped(self.log, self._fork)

    # --- messages to segments --------------------------------------------------------------------------------------

    def _topic(self, name: str, *, half: bool) -> TopicState:
        topic = self.log.changeable_topic(name)
        if topic is None:
            known = [other.name for other in self.log.topics()]
            raise _refusal(
                ErrorCode.LOCAL_UNKNOWN_TOPIC,
                f"topic {name!r} does not exist in {self.log.objects.uri}{did_you_mean(name, known)}: create it with "
                "AdminClient.create_topics([NewTopic(...)])",
            )
        if topic.schema is not None:
            raise _refusal(ErrorCode.INVALID_TOPIC, f"topic {name!r} has declared columns: it takes no messages")
        if half and (refusal := half_rejection(topic, self.log.store_state())):
            # The entry decides. A refusal that stands is known before anything is uploaded.
            raise _refusal(refusal.code, refusal.reason)
        if half and topic_setting(topic.settings, "message.type") == _NORMAL:
            raise _refusal(
                ErrorCode.INVALID_TOPIC,
                f"topic {name!r} has message.type=normal, which refuses half messages: set it to transaction or mixed",
            )
        return topic

    def stage(self, records: Sequence[MessageRecord], *, half: bool = True) -> StagedMessages:
        """Make messages into segments, one for each partition; upload those that the entry does not carry.

        Raises:
            KafkaException: _UNKNOWN_TOPIC; INVALID_TOPIC: it is internal, has declared columns, or takes no half
                messages; TOPIC_AUTHORIZATION_FAILED: it, or the store, rejects half messages; INVALID_RECORD;
                MSG_SIZE_TOO_LARGE.
            StoreUnavailable: the object store does not answer; nothing names what was uploaded.
        """
        by_place: dict[TopicPartitionKey, _Together] = {}
        partitions = []
        topics, sizes = self.log.decide(partial(self._checked, records, half=half))
        for record, size_bytes in zip(records, sizes, strict=True):
            partition = self._choose(record.key, topics[record.topic].partition_count, self._pick)
            partitions.append(partition)
            together = by_place.setdefault((record.topic, partition), _Together([]))
            together.records.append(record)
            together.size_bytes += size_bytes
        segments = []
        left_bytes = INLINE_LIST_BYTES_MAX
        for (name, partition), found in by_place.items():
            stage = self._stage_topic(topics[name])
            staged = self._inline(stage, partition, found, left_bytes) or self._upload(stage, partition, found)
            left_bytes -= len(staged.data)
            segments.append(staged)
        carried = {staged.segment: staged.data for staged in segments if staged.data}
        by_entry, condition = times_used(self.log, segments, {})
        halves = [_half_segment(staged, by_entry=by_entry[staged.topic_id]) for staged in segments]
        return StagedMessages(tuple(partitions), tuple(halves), carried, condition)

    def _checked(self, records: Sequence[MessageRecord], *, half: bool) -> tuple[dict[str, TopicState], list[int]]:
        """Return the records' topics as last known, by name, and the sizes of the records, which they take."""
        topics = {name: self._topic(name, half=half) for name in dict.fromkeys(record.topic for record in records)}
        return topics, [self._checked_size(record, topics[record.topic]) for record in records]

    def _stage_topic(self, topic: TopicState) -> StageTopic:
        known = self._stage_topics.get(topic.name)
        if known is None or known[0] is not topic:
            known = self._stage_topics[topic.name] = (topic, StageTopic.of(topic))
        return known[1]

    def _inline(self, topic: StageTopic, partition: int, together: _Together, bytes_max: int) -> StagedSegment | None:
        """Return a segment whose records the entry is to carry; None if they are too large for it."""
        log = self.log
        if not may_be_carried(together.size_bytes, topic.inline_bytes, log.settings.inline_bytes):
            return None
        table, times_ms = record_table(together.records), together.timestamps_ms()
        return inline_segment(log.ids, topic, partition, table, bytes_max, timestamps_ms=times_ms)

    def _upload(self, topic: StageTopic, partition: int, together: _Together) -> StagedSegment:
        log = self.log
        return upload_segment(
            log.objects,
            log.ids,
            log.born(),
            topic,
            partition,
            record_table(together.records),
            timestamps_ms=together.timestamps_ms(),
            clock=log.clock,
            count_payload=False,
        )

    def _pick(self, partition_count: int) -> int:
        with self._lock:
            self._next_partition += 1
            return self._next_partition % partition_count

    def _checked_size(self, record: MessageRecord, topic: TopicState) -> int:
        """Return how many bytes the record has.

        Raises:
            KafkaException: INVALID_RECORD: the topic is compacted, and it has no key; MSG_SIZE_TOO_LARGE.
        """
        if record.key is None and is_compacted(topic.settings):
            raise _refusal(
                ErrorCode.INVALID_RECORD,
                f"a message for topic {topic.name!r} has no key, and the topic's cleanup.policy compacts it by key: "
                "give each message a key; nothing was written",
            )
        size = record.size_bytes()
        allowed = min(RECORD_BYTES_MAX, topic_setting(topic.settings, "max.message.bytes"))
        if len(record.body) > self.settings.message_bytes_max or size > allowed:
            raise _refusal(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a message of {size} bytes for topic {topic.name!r} is too large: max.message.size allows bodies of "
                f"{self.settings.message_bytes_max} bytes, the topic's max.message.bytes records of {allowed}",
            )
        return size

    # --- half transactions -----------------------------------------------------------------------------------------

    def prepare(
        self,
        group_id: str,
        transaction_id: str,
        staged: StagedMessages,
        immunity_ms: int,
        *,
        after: Sequence[HalfSegment] = (),
    ) -> None:
        """Store a half transaction, or add segments to one that has those in `after`; once more changes nothing.

        Raises:
            CommandRefused: a topic is gone, or it was settled or discarded.
            OutcomeUnknown: it may be stored: call again, or leave it to the checks.
            StoreUnavailable: it is not stored.
        """
        segments = (*after, *staged.segments)
        command = PrepareHalf(group_id, transaction_id, segments, immunity_ms, staged.records)
        self.log.submit([command], staged.condition)

    def send_at_once(self, group_id: str, transaction_id: str, staged: StagedMessages) -> None:
        """Store messages outside of any transaction: prepared and committed by one entry.

        Raises:
            CommandRefused, OutcomeUnknown, StoreUnavailable: as `prepare`.
        """
        commands: list[Command] = [
            PrepareHalf(group_id, transaction_id, staged.segments, 0, staged.records),
            EndHalf(group_id, transaction_id, True),
        ]
        self.log.submit(commands, staged.condition)

    def send_end(self, group_id: str, transaction_id: str, *, committed: bool) -> None:
        """Settle a half transaction one way: this returns before that is stored, see `Ends.send`."""
        self.ends.send(EndHalf(group_id, transaction_id, committed))

    def end(self, group_id: str, transaction_id: str, *, committed: bool) -> None:
        """Settle a half transaction; the same settlement again changes nothing.

        Raises:
            CommandRefused: it was settled otherwise, discarded or forgotten; or a topic of it was deleted.
            OutcomeUnknown, StoreUnavailable: it may be pending still: call again, or leave it to the checks.
        """
        self.log.submit([EndHalf(group_id, transaction_id, committed)])

    def messages_of(self, half: HalfState) -> list[MessageRecord]:
        """Read the messages of a half transaction, in the order of its segments.

        Raises:
            DamagedObject: a segment is missing or altered.
            StoreUnavailable: the object store does not answer.
        """
        found: list[MessageRecord] = []
        for segment in half.segments:
            names.check_topic_name(segment.topic)
            folder = names.partition_folder(segment.topic, segment.topic_id, segment.partition)
            name = names.segment_object(folder, segment.segment, half.prepared_entry)
            carrier = names.carrier(segment.segment, half.prepared_entry)
            (data,) = fetch_each(self.log.objects, [(name, segment.segment, carrier)])
            if isinstance(data, DamagedObject):
                raise data
            if data is None or checksum(data) != segment.checksum:
                what = "it is missing" if data is None else "its checksum is not that in the log"
                raise DamagedObject(name, f"{what}, and half transaction {half.transaction_id!r} names it")
            rows = decode_segment(data, name, schema=RECORD_SCHEMA, record_count=segment.record_count, verified=True)
            found += records_of(segment.topic, rows)
        return found


def _half_segment(staged: StagedSegment, *, by_entry: bool) -> HalfSegment:
    times_ms = TIME_OF_ENTRY if by_entry else (staged.timestamp_min_ms, staged.timestamp_max_ms)
    return HalfSegment(
        staged.topic,
        staged.topic_id,
        staged.partition,
        staged.segment,
        staged.record_count,
        staged.size_bytes,
        staged.checksum,
        *times_ms,
    )


def _refusal(code: int, reason: str) -> KafkaException:
    return KafkaException(KafkaError(code, reason))
