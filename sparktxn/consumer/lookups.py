"""What a consumer answers about partitions and topics: it reads the log, and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sparktxn.consumer.offsets import unknown_partition
from sparktxn.consumer.polling import Reading
from sparktxn.errors import ErrorCode, KafkaError, KafkaException
from sparktxn.kafka.clustermetadata import ClusterMetadata, cluster_metadata
from sparktxn.kafka.credentials import WithoutCredentials
from sparktxn.kafka.message import OFFSET_BEGINNING, OFFSET_END, TopicPartition, topic_partitions
from sparktxn.kafka.settings.consumer import ConsumerSettings
from sparktxn.log.log import Log
from sparktxn.log.views.readview import PartitionView, ReadView
from sparktxn.process.clock import Clock, in_time
from sparktxn.scan.offsets import offset_for_time
from sparktxn.scan.plan import end_of
from sparktxn.store import Store
from sparktxn.store.existingview import view_of_existing
from sparktxn.values import arguments

__all__ = ["ConsumerLookups", "clock_of"]

_TIMEOUT_S: Final = 60.0


def clock_of(consumer: ConsumerLookups) -> Clock:
    """Return the clock of the consumer's store."""
    return consumer._log.clock


class ConsumerLookups(WithoutCredentials):
    """The calls of a consumer that ask for offsets, times and topics."""

    _settings: ConsumerSettings
    _log: Log
    _store: Store
    _reading: Reading

    @in_time("timeout", clock_of)
    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = -1.0, cached: bool = False
    ) -> tuple[int, int]:
        """Return (log start offset, end) of `partition`: under read_committed the end is the last stable offset.

        `cached` answers from the view that is being read, without a poll of the log.

        Raises:
            KafkaException: ``_UNKNOWN_PARTITION``.
        """
        self._check()
        arguments.instance("partition", partition, TopicPartition)
        if arguments.boolean("cached", cached):
            return self._reading.watermarks_in_view((partition.topic, partition.partition))
        view = self._view_of(partition)
        return view.log_start_offset, end_of(view, self._settings.isolation)

    @in_time("timeout", clock_of)
    def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout: float | None = -1.0
    ) -> list[TopicPartition]:
        """Return for each of `partitions`, whose offset is a time in milliseconds, the first offset that is not older.

        OFFSET_END where there is none; the end for OFFSET_END, and the start for OFFSET_BEGINNING.

        Raises:
            KafkaException: ``_UNKNOWN_PARTITION``.
        """
        self._check()
        given = topic_partitions("partitions", partitions)
        with self._log.within(_TIMEOUT_S):
            whole = view_of_existing(self._log, (partition.topic for partition in given))
        found = []
        for partition in given:
            answer = TopicPartition(partition.topic, partition.partition, partition.offset)
            if partition.offset >= 0:
                view = _of_view(whole, partition)
                offset = offset_for_time(self._log.objects, view, partition.offset, self._settings.isolation)
                answer.offset = OFFSET_END if offset is None else offset
            elif partition.offset in (OFFSET_BEGINNING, OFFSET_END):
                view = _of_view(whole, partition)
                begins = partition.offset == OFFSET_BEGINNING
                answer.offset = view.log_start_offset if begins else end_of(view, self._settings.isolation)
            found.append(answer)
        return found

    def _view_of(self, partition: TopicPartition) -> PartitionView:
        with self._log.within(_TIMEOUT_S):
            return _of_view(view_of_existing(self._log, [partition.topic]), partition)

    @in_time("timeout", clock_of)
    def list_topics(self, topic: str | None = None, timeout: float | None = -1.0) -> ClusterMetadata:
        """Return all topics, or `topic` alone."""
        self._check()
        topic = arguments.text_or_none("topic", topic)
        self._log.refresh()
        return cluster_metadata(self._settings.uri, self._log.listed_topics(topic), topic)

    @in_time("timeout", clock_of)
    def cluster_id(self, timeout: float | None = -1.0) -> str:
        """Return the id that the store was created with; `timeout` is in seconds."""
        self._check()
        return self._log.store_id


def _of_view(view: ReadView, partition: TopicPartition) -> PartitionView:
    found = view.partitions.get((partition.topic, partition.partition))
    if found is None:
        reason = unknown_partition(partition).str()
        raise KafkaException(KafkaError(ErrorCode.LOCAL_UNKNOWN_PARTITION, reason))
    return found
