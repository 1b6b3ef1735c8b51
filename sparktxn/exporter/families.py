"""The names of the exporter's figures, with what each says. Kafka's exporters have the names in ``kafka_``, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from sparktxn.metrics.process import Family

__all__ = ["FAMILIES", "Figures"]

Figures = dict[str, list[tuple[tuple[str, ...], float]]]
"""The samples of each name: the values of its labels, and the figure."""

_TOPIC: Final = ("topic",)
_PARTITION: Final = ("topic", "partition")
_GROUP: Final = ("consumergroup",)
_GROUP_TOPIC: Final = ("consumergroup", "topic")
_GROUP_PARTITION: Final = ("consumergroup", "topic", "partition")


def _family(meaning: str, labels: Sequence[str] = (), kind: Literal["gauge", "counter"] = "gauge") -> Family:
    return Family(meaning, tuple(labels), kind)


FAMILIES: Final[dict[str, Family]] = {
    "kafka_topic_partitions": _family("Number of partitions of a topic", _TOPIC),
    "kafka_topic_partition_oldest_offset": _family("Log start offset of a partition", _PARTITION),
    "kafka_topic_partition_current_offset": _family("Log end offset of a partition", _PARTITION),
    "txnlog_topic_partition_last_stable_offset": _family(
        "Offset up to which read_committed reads a partition", _PARTITION
    ),
    "kafka_consumergroup_members": _family("Number of members of a consumer group", _GROUP),
    "kafka_consumergroup_current_offset": _family("Committed offset of a consumer group", _GROUP_PARTITION),
    "kafka_consumergroup_current_offset_sum": _family("Committed offsets of a group in a topic, added", _GROUP_TOPIC),
    "kafka_consumergroup_lag": _family(
        "Offsets from what a group has committed to the last stable offset", _GROUP_PARTITION
    ),
    "kafka_consumergroup_lag_sum": _family("Lag of a group in a topic, added", _GROUP_TOPIC),
    "txnlog_group_partitions_left_out": _family("Partitions of groups beyond 20,000, of which only the sums are shown"),
    "txnlog_topic_size_bytes": _family("Bytes of the segments of a topic", _TOPIC),
    "txnlog_topic_small_files": _family("About how many small segments a rewrite could merge", _TOPIC),
    "txnlog_open_transactions": _family("Number of transactions that are open"),
    "txnlog_prepared_transactions": _family("Number of open transactions that wait for their coordinator"),
    "txnlog_open_transaction_age_seconds_max": _family("Age of the oldest open transaction; 0 if none is open"),
    "txnlog_open_transaction_age_seconds": _family(
        "Age of an open transaction, of the 100 oldest", ("transactional_id",)
    ),
    "txnlog_transactional_ids": _family("Number of transactional ids that the store remembers"),
    "txnlog_transactions_total": _family(
        "Transactions that ended since the exporter was started", ("outcome",), "counter"
    ),
    "txnlog_entries_total": _family("Entries that the log has had: the number of the newest one", (), "counter"),
    "txnlog_entries_uncounted_total": _family(
        "Entries that were deleted before the exporter had counted their transactions", (), "counter"
    ),
    "txnlog_entries_to_count": _family("Entries of which the transactions are counted by later scrapes"),
    "txnlog_horizon_entry": _family("Entries below this one may be deleted"),
    "txnlog_last_entry_age_seconds": _family("Time since the newest entry, by its timestamp"),
    "txnlog_last_vacuum_age_seconds": _family("Time since a vacuum last moved the horizon, or noted what it has left"),
    "txnlog_up": _family("1 if the store could be read for this scrape, else 0 with no other figure of it"),
    "txnlog_scrape_duration_seconds": _family("How long reading the store took for this scrape"),
}
"""All names, in the order of the page."""
