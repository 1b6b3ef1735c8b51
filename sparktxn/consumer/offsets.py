"""A group's offsets: reading what is committed, and committing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final, NamedTuple

from sparktxn.clock import Deadline
from sparktxn.errors import ErrorCode, KafkaError, KafkaException
from sparktxn.format.commands import OffsetCommit, OffsetToCommit
from sparktxn.log.log import Log
from sparktxn.log.tickets import Ticket
from sparktxn.message import OFFSET_INVALID, TopicPartition
from sparktxn.structs import CommittedOffset

__all__ = ["GroupOffsets", "OffsetsSeen", "unknown_partition"]

_UNSTABLE_RETRY_S: Final = 0.05
_UNSTABLE_RETRY_S_MAX: Final = 0.5
_COMMIT_TIMEOUT_S: Final = 60.0
"""librdkafka's socket.timeout.ms: how long an offset commit may take."""


class OffsetsSeen(NamedTuple):
    """A group's offsets as they were at one moment; `pending` is those that wait for the end of a transaction."""

    committed: Mapping[tuple[int, int], CommittedOffset]
    pending: Set[tuple[int, int]]

    def is_stable(self, topic_id: int, partition: int) -> bool:
        """False while an open transaction holds an offset for the partition (KIP-447, require_stable)."""
        return (topic_id, partition) not in self.pending

    def committed_offset(self, topic_id: int, partition: int) -> int:
        """The committed offset, or OFFSET_INVALID."""
        found = self.committed.get((topic_id, partition))
        return OFFSET_INVALID if found is None else found.offset


class GroupOffsets:
    """The offsets of one consumer group in one store."""

    def __init__(self, log: Log, group_id: str) -> None:
        self._log = log
        self._group_id = group_id

    def is_stable(self, topic_id: int, partition: int) -> bool:
        """False while an open transaction holds an offset for the partition (KIP-447, require_stable)."""
        return not self._log.pending_offsets(self._group_id, topic_id, partition)

    def see(self) -> OffsetsSeen:
        """Read all of the group's offsets, as last known.

        Raises:
            StoreUnavailable, OutcomeUnknown: the state could not be read.
        """
        committed = self._log.group_offsets(self._group_id)
        pending = self._log.group_pending_offsets(self._group_id)
        return OffsetsSeen(
            {(offset.topic_id, offset.partition): offset for offset in committed},
            {(offset.topic_id, offset.partition) for offset in pending},
        )

    def committed(self, partitions: Iterable[TopicPartition], timeout_s: float) -> list[TopicPartition]:
        """The committed offsets, once no open transaction holds one for any of the partitions.

        Raises:
            KafkaException: ``UNSTABLE_OFFSET_COMMIT`` (retriable): a transaction was still open at the time-out.
            StoreUnavailable, OutcomeUnknown: the log could not be read.
        """
        wanted = list(partitions)
        deadline = self._log.deadline(timeout_s)
        wait_s = _UNSTABLE_RETRY_S
        while True:
            self._log.refresh(self.deadline())
            found = [self._committed_as_known(partition) for partition in wanted]
            unstable = [partition for partition, stable in found if not stable]
            if not unstable:
                return [partition for partition, _ in found]
            remaining_s = deadline.remaining_s()
            self._log.clock.sleep(wait_s if remaining_s is None else min(wait_s, remaining_s))
            if deadline.passed():
                reason = f"an open transaction holds group {self._group_id!r}'s offset for {unstable[0]}: call again"
                raise KafkaException(KafkaError(ErrorCode.UNSTABLE_OFFSET_COMMIT, reason, retriable=True))
            wait_s = min(2 * wait_s, _UNSTABLE_RETRY_S_MAX)

    def _committed_as_known(self, partition: TopicPartition) -> tuple[TopicPartition, bool]:
        answer = TopicPartition(partition.topic, partition.partition)
        topic = self._log.topic(partition.topic)
        if topic is None or not 0 <= partition.partition < topic.partition_count:
            answer.error = unknown_partition(partition)
            return answer, True
        found = self._log.committed_offset(self._group_id, topic.topic_id, partition.partition)
        if found is not None:
            answer.offset, answer.metadata = found.offset, found.metadata
            answer.leader_epoch = found.leader_epoch if found.leader_epoch >= 0 else None
        return answer, self.is_stable(topic.topic_id, partition.partition)

    def commit(self, offsets: Sequence[TopicPartition], deadline: Deadline) -> None:
        """Commits offsets, all or none; they are durable, and visible to every new reader, when this returns.

        Raises:
            KafkaException: ``UNKNOWN_TOPIC_OR_PARTITION``, ``OFFSET_METADATA_TOO_LARGE``: nothing was committed.
            OutcomeUnknown, StoreUnavailable: retriable.
        """
        with deadline.governs():
            self._log.submit([self._command(offsets)], deadline)

    def send(self, offsets: Sequence[TopicPartition]) -> Ticket:
        """Queue an offset commit; it is written when its ticket, or another of this process, is waited for.

        Raises:
            KafkaException: as `commit`.
        """
        return self._log.send([self._command(offsets)])

    def deadline(self) -> Deadline:
        """The deadline of an offset commit that begins now."""
        return self._log.deadline(_COMMIT_TIMEOUT_S)

    def _command(self, offsets: Sequence[TopicPartition]) -> OffsetCommit:
        return OffsetCommit(
            request_id=self._log.ids.token(),
            group_id=self._group_id,
            offsets=tuple(self._to_commit(partition) for partition in offsets),
        )

    def _to_commit(self, partition: TopicPartition) -> OffsetToCommit:
        topic = self._log.topic(partition.topic)
        if topic is None:
            self._log.refresh(self.deadline())
            topic = self._log.topic(partition.topic)
        if topic is None or not 0 <= partition.partition < topic.partition_count:
            raise KafkaException(unknown_partition(partition))
        leader_epoch = -1 if partition.leader_epoch is None else partition.leader_epoch
        return OffsetToCommit(topic.topic_id, partition.partition, partition.offset, partition.metadata, leader_epoch)


def unknown_partition(partition: TopicPartition) -> KafkaError:
    """The error for a partition that the store does not have."""
    reason = f"topic {partition.topic!r} does not exist or has no partition {partition.partition}"
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
