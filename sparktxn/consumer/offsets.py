"""A group's offsets: reading what is committed, and committing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Final

from sparktxn.clock import Deadline
from sparktxn.errors import ErrorCode, KafkaError, KafkaException
from sparktxn.format.commands import OffsetCommit, OffsetToCommit
from sparktxn.log.log import Log
from sparktxn.message import OFFSET_INVALID, TopicPartition

__all__ = ["GroupOffsets", "unknown_partition"]

_UNSTABLE_RETRY_S: Final = 0.05
_UNSTABLE_RETRY_S_MAX: Final = 0.5
_COMMIT_TIMEOUT_S: Final = 60.0
"""librdkafka's socket.timeout.ms: how long an offset commit may take."""


class GroupOffsets:
    """The offsets of one consumer group in one store."""

    def __init__(self, log: Log, group_id: str) -> None:
        self._log = log
        self._group_id = group_id

    def is_stable(self, topic_id: int, partition: int) -> bool:
        """False while an open transaction holds an offset for the partition (KIP-447, require_stable)."""
        return not self._log.pending_offsets(self._group_id, topic_id, partition)

    def committed_offset(self, topic_id: int, partition: int) -> int:
        """The committed offset as last known, or OFFSET_INVALID."""
        found = self._log.committed_offset(self._group_id, topic_id, partition)
        return OFFSET_INVALID if found is None else found.offset

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
            self._log.refresh(self._log.deadline(_COMMIT_TIMEOUT_S))
            found = [self._committed_as_known(partition) for partition in wanted]
            unstable = [partition for partition, stable in found if not stable]
            if not unstable:
                return [partition for partition, _ in found]
            if deadline.passed():
                reason = f"an open transaction holds group {self._group_id!r}'s offset for {unstable[0]}: call again"
                raise KafkaException(KafkaError(ErrorCode.UNSTABLE_OFFSET_COMMIT, reason, retriable=True))
            remaining_s = deadline.remaining_s()
            self._log.clock.sleep(wait_s if remaining_s is None else min(wait_s, remaining_s))
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

    def commit(self, offsets: Sequence[TopicPartition]) -> None:
        """Commits offsets, all or none; they are durable, and visible to every new reader, when this returns.

        Raises:
            KafkaException: ``UNKNOWN_TOPIC_OR_PARTITION``, ``OFFSET_METADATA_TOO_LARGE``: nothing was committed.
            OutcomeUnknown, StoreUnavailable: retriable.
        """
        command = self._command(offsets)
        self._log.submit([command], self._deadline())

    def commit_beside(self, offsets: Sequence[TopicPartition]) -> Future[None]:
        """Begins to commit offsets beside the caller; the future tells how it went."""
        command = self._command(offsets)
        # Queued here, so that offset commits keep the order in which they were asked for.
        ticket = self._log.send([command])

        def wait() -> None:
            ticket.wait(self._deadline())

        return self._log.background.submit(wait)

    def _deadline(self) -> Deadline:
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
            self._log.refresh(self._deadline())
            topic = self._log.topic(partition.topic)
        if topic is None or not 0 <= partition.partition < topic.partition_count:
            raise KafkaException(unknown_partition(partition))
        leader_epoch = -1 if partition.leader_epoch is None else partition.leader_epoch
        return OffsetToCommit(topic.topic_id, partition.partition, partition.offset, partition.metadata, leader_epoch)


def unknown_partition(partition: TopicPartition) -> KafkaError:
    """The error for a partition that the store does not have."""
    reason = f"topic {partition.topic!r} does not exist or has no partition {partition.partition}"
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
