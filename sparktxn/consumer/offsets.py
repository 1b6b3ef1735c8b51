"""A group's offsets: reading what is committed, and committing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from sparktxn._engine.format.commands import Command, OffsetCommit, OffsetToCommit
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.write.queue import Ticket
from sparktxn._foundation.process.clock import Deadline, is_time_up, time_left_s
from sparktxn._foundation.values.fieldtypes import TopicIdPartition
from sparktxn._foundation.values.structs import CommittedOffset
from sparktxn._kafka.message import ConsumerGroupMetadata, TopicPartition
from sparktxn.consumer.assignment import NOT_STARTED, Assignment, Progress
from sparktxn.consumer.member import Speaker
from sparktxn.errors import ErrorCode, KafkaError, KafkaException
from sparktxn.store.groupoffsets import answered_offset
from sparktxn.store.memberexpiry import expire_overdue

_OWNER_DIGITS: Final = 16
_UNSTABLE_RETRY_S: Final = 0.05
_UNSTABLE_RETRY_S_MAX: Final = 0.5
_COMMIT_TIMEOUT_S: Final = 60.0
"""librdkafka's socket.timeout.ms: how long an offset commit may take."""

Starts = Mapping[TopicIdPartition, int]
"""By (topic id, partition): the entry of the committed offset that a consumer has started from, 0 without one."""


class Speech(NamedTuple):
    """As whom, from where, and since when a consumer asks for an offset commit."""

    speaker: Speaker
    starts: Starts
    began_s: float

    def note_good(self) -> None:
        """Take a commit that has landed as a sign of the member's life."""
        if self.speaker.life is not None:
            self.speaker.life.note_good(self.began_s)


class OffsetsSeen(NamedTuple):
    """A group's offsets as they were at one moment; `pending` is those that wait for the end of a transaction."""

    committed: Mapping[TopicIdPartition, CommittedOffset]
    pending: Set[TopicIdPartition]

    def is_stable(self, topic_id: int, partition: int) -> bool:
        """Return False while an open transaction holds an offset for the partition (KIP-447, require_stable)."""
        return (topic_id, partition) not in self.pending

    def committed_offset(self, topic_id: int, partition: int) -> CommittedOffset | None:
        """Return the committed offset, or None."""
        return self.committed.get((topic_id, partition))


class GroupOffsets:
    """The offsets of one consumer group in one store, as one consumer reads and commits them.

    A member's commit names the member and the epoch that it knows: the log refuses it if the member holds a partition
    no more. Where there is no membership, each commit carries `owner`, a token of this consumer, and where it has
    started from in each partition. So the log refuses it if another consumer of the group has moved the offset since
    (PROTOCOL.md, "Offsets").
    """

    def __init__(self, log: Log, group_id: str, assignment: Assignment, speaker: Callable[[], Speaker]) -> None:
        self._log = log
        self._group_id = group_id
        self._assignment = assignment
        self._speaker = speaker
        self._answered: dict[TopicIdPartition, CommittedOffset | None] = {}
        self.owner = log.ids.token()[:_OWNER_DIGITS]

    def start_from(self, progress: Progress, committed: CommittedOffset | None) -> None:
        """Note that the consumer begins to read a partition from the group's committed offset."""
        progress.begins = False
        progress.started_from = _effective_entry(committed)

    def start_at(self, progress: Progress, offset: int, committed: CommittedOffset | None) -> None:
        """Note that the consumer begins to read a partition from an offset that its user chose.

        If it is the one that was reported to the user as committed, the consumer starts from that commit. Another
        offset changes nothing for a consumer that has started before: its user reads something once more, or skips
        something.
        """
        where = (progress.topic_id, progress.key[1])
        answered = self._answered.get(where)
        if answered is not None and answered.offset == offset:
            self.start_from(progress, answered)
        elif progress.started_from == NOT_STARTED:
            self.start_from(progress, committed)
        progress.begins = False

    def metadata(self, group_instance_id: str | None) -> ConsumerGroupMetadata:
        """Return what a producer needs for committing this consumer's offsets in a transaction."""
        speaker = self._speaker()
        if speaker.life is not None:
            return ConsumerGroupMetadata(self._group_id, speaker.generation_id, speaker.member_id, group_instance_id)
        started_from = tuple(
            (*progress.key, progress.topic_id, progress.started_from)
            for progress in self._assignment
            if progress.started_from != NOT_STARTED
        )
        return ConsumerGroupMetadata(
            self._group_id, group_instance_id=group_instance_id, owner=self.owner, started_from=started_from
        )

    def is_stable(self, topic_id: int, partition: int) -> bool:
        """Return False while an open transaction holds an offset for the partition (KIP-447, require_stable)."""
        return not self._log.pending_offsets(self._group_id, topic_id, partition)

    def see(self) -> OffsetsSeen:
        """Read all of the group's offsets, as last known.

        Raises:
            StoreUnavailable, OutcomeUnknown: the state could not be read.
        """
        with self._log.last_known() as state:
            pending = state.group_pending_offsets(self._group_id)
            committed = state.group_offsets(self._group_id)
        return OffsetsSeen(
            {(offset.topic_id, offset.partition): offset for offset in committed},
            {(offset.topic_id, offset.partition) for offset in pending},
        )

    def committed_offset(self, topic_id: int, partition: int) -> CommittedOffset | None:
        """Return the committed offset as last known."""
        return self._log.committed_offset(self._group_id, topic_id, partition)

    def committed(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the committed offsets, once no open transaction holds one for any of the partitions.

        Raises:
            KafkaException: ``UNSTABLE_OFFSET_COMMIT`` (retriable): a transaction was still open at the time-out.
            StoreUnavailable, OutcomeUnknown: the log could not be read.
        """
        wanted = list(partitions)
        wait_s = _UNSTABLE_RETRY_S
        while True:
            with self.limited():
                self._log.refresh()
            found = [self._committed_as_known(partition) for partition in wanted]
            unstable = [partition for partition, stable in found if not stable]
            if not unstable:
                return [partition for partition, _ in found]
            remaining_s = time_left_s()
            self._log.clock.sleep(wait_s if remaining_s is None else min(wait_s, remaining_s))
            if is_time_up():
                reason = f"an open transaction holds group {self._group_id!r}'s offset for {unstable[0]}: call again"
                raise KafkaException(KafkaError(ErrorCode.UNSTABLE_OFFSET_COMMIT, reason, retriable=True))
            wait_s = min(2 * wait_s, _UNSTABLE_RETRY_S_MAX)

    def _committed_as_known(self, partition: TopicPartition) -> tuple[TopicPartition, bool]:
        answer = TopicPartition(partition.topic, partition.partition)
        topic = self._log.topic(partition.topic)
        if topic is None or not 0 <= partition.partition < topic.partition_count:
            answer.error = unknown_partition(partition)
            return answer, True
        found = self.committed_offset(topic.topic_id, partition.partition)
        self._answered[topic.topic_id, partition.partition] = found
        if found is not None:
            offset, leader_epoch = answered_offset(found)
            answer.offset, answer.metadata = offset, found.metadata
            answer.leader_epoch = leader_epoch if leader_epoch >= 0 else None
        return answer, self.is_stable(topic.topic_id, partition.partition)

    def commit(self, offsets: Sequence[TopicPartition]) -> None:
        """Commit offsets, all or none; they are durable, and visible to every new reader, when this returns.

        Raises:
            KafkaException: ``UNKNOWN_TOPIC_OR_PARTITION``, ``OFFSET_METADATA_TOO_LARGE``, ``ILLEGAL_GENERATION``
                (another consumer of the group has moved one of the offsets): nothing was committed.
            OutcomeUnknown, StoreUnavailable: retriable.
        """
        speech = self.speech(offsets)
        self._make_room(speech)
        self._log.submit([self._command(offsets, speech)])
        speech.note_good()

    def speech(self, offsets: Sequence[TopicPartition]) -> Speech:
        """Return as whom, and from where, this consumer speaks now: a commit that is made later takes it along."""
        speaker = self._speaker()
        starts = {}
        if speaker.life is None:
            found = [self._assignment.get((partition.topic, partition.partition)) for partition in offsets]
            starts = {(known.topic_id, known.key[1]): known.started_from for known in found if known is not None}
        return Speech(speaker, starts, self._log.clock.monotonic_s())

    def send(self, offsets: Sequence[TopicPartition], speech: Speech, with_it: Command | None = None) -> Ticket:
        """Queue an offset commit; it is written when its ticket, or another of this process, is waited for.

        `speech` is that of the moment in which the user asked for it. `with_it` takes effect together with it.

        Raises:
            KafkaException: as `commit`.
        """
        self._make_room(speech)
        commands: list[Command] = [self._command(offsets, speech)] if offsets else []
        return self._log.send([*commands, with_it] if with_it is not None else commands)

    def _make_room(self, speech: Speech) -> None:
        """Take out overdue members before a commit of a consumer that is none: a group with members refuses it."""
        if speech.speaker.life is None:
            expire_overdue(self._log, [self._group_id])

    def send_alone(self, command: Command) -> Ticket:
        """Queue a command of the group without offsets."""
        return self._log.send([command])

    def limited(self) -> AbstractContextManager[Deadline]:
        """Return a context that limits an offset commit that begins now."""
        return self._log.within(_COMMIT_TIMEOUT_S)

    def _command(self, offsets: Sequence[TopicPartition], speech: Speech) -> OffsetCommit:
        speaker = speech.speaker
        return OffsetCommit(
            request_id=self._log.ids.token(),
            group_id=self._group_id,
            offsets=tuple(self._to_commit(partition, speech.starts) for partition in offsets),
            generation_id=speaker.generation_id,
            member_id=speaker.member_id,
            owner="" if speaker.life is not None else self.owner,
            instance_id=speaker.instance_id,
        )

    def _to_commit(self, partition: TopicPartition, starts: Starts) -> OffsetToCommit:
        def existing() -> int:
            topic = self._log.topic(partition.topic)
            if topic is None or not 0 <= partition.partition < topic.partition_count:
                raise KafkaException(unknown_partition(partition))
            return topic.topic_id

        with self.limited():
            where = (self._log.decide(existing), partition.partition)
        leader_epoch = -1 if partition.leader_epoch is None else partition.leader_epoch
        return OffsetToCommit(
            *where, partition.offset, partition.metadata, leader_epoch, starts.get(where, NOT_STARTED)
        )


def _effective_entry(committed: CommittedOffset | None) -> int:
    return 0 if committed is None else committed.effective_entry


def unknown_partition(partition: TopicPartition) -> KafkaError:
    """Return the error for a partition that the store does not have."""
    reason = f"topic {partition.topic!r} does not exist or has no partition {partition.partition}"
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
