"""The names of all figures, of stores, of processes and of Spark's queries, with what each says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple


class Family(NamedTuple):
    """What the figures of one name mean, and the names of their labels."""

    meaning: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter", "histogram"] = "counter"


FAMILIES: Final[dict[str, Family]] = {
    "txnlog_client_call_seconds": Family("How long calls took, also those that failed", ("call",), "histogram"),
    "txnlog_client_call_failures_total": Family("Calls that raised an error", ("call",)),
    "txnlog_client_entries_won_total": Family("Entries of the log that this process has written"),
    "txnlog_client_entries_lost_total": Family("Entries that another writer wrote into the slot of this process"),
    "txnlog_client_write_retries_total": Family("Writes of the log that began again after a failure of the store"),
    "txnlog_client_requests_total": Family("Requests to object stores, a listing as one", ("request",)),
    "txnlog_client_request_bytes_total": Family("Bytes of objects that were read and written", ("request",)),
    "txnlog_client_request_retries_total": Family("Requests to remote stores that were sent again"),
    "txnlog_client_write_failures_total": Family("Writes of objects that the store has not taken", ("kind",)),
}
"""The figures of a process, in their order."""


_TOPIC: Final = ("topic",)
_PARTITION: Final = ("topic", "partition")
_TRANSACTIONAL_ID: Final = ("transactional_id",)
_GROUP: Final = ("consumergroup",)
_GROUP_TOPIC: Final = ("consumergroup", "topic")
_GROUP_PARTITION: Final = ("consumergroup", "topic", "partition")


def _family(meaning: str, labels: Sequence[str] = (), kind: Literal["gauge", "counter"] = "gauge") -> Family:
    return Family(meaning, tuple(labels), kind)


STORE_FAMILIES: Final[dict[str, Family]] = {
    "kafka_topic_partitions": _family("Number of partitions of a topic", _TOPIC),
    "kafka_topic_partition_oldest_offset": _family("Log start offset of a partition", _PARTITION),
    "kafka_topic_partition_current_offset": _family("Log end offset of a partition", _PARTITION),
    "txnlog_topic_partition_last_stable_offset": _family(
        "Offset up to which read_committed reads a partition", _PARTITION
    ),
    "kafka_consumergroup_members": _family("Number of members of a consumer group that are not overdue", _GROUP),
    "txnlog_group_overdue_members": _family(
        "Members of a group whose sessions have passed, and that no process has expired yet", _GROUP
    ),
    "txnlog_group_overdue_member_age_seconds": _family(
        "Time since an overdue member of a group was last seen, of the one that was seen last", _GROUP
    ),
    "kafka_consumergroup_current_offset": _family("Committed offset of a consumer group", _GROUP_PARTITION),
    "kafka_consumergroup_current_offset_sum": _family("Committed offsets of a group in a topic, added", _GROUP_TOPIC),
    "kafka_consumergroup_lag": _family(
        "Offsets from what a group has committed to the last stable offset", _GROUP_PARTITION
    ),
    "kafka_consumergroup_lag_sum": _family("Lag of a group in a topic, added", _GROUP_TOPIC),
    "txnlog_group_partitions_left_out": _family("Partitions of groups beyond 20,000, of which only the sums are shown"),
    "txnlog_topic_size_bytes": _family("Bytes of the segments of a topic", _TOPIC),
    "txnlog_topic_small_files": _family(
        "About how many small files, and entries that carry records, a rewrite could merge", _TOPIC
    ),
    "txnlog_open_transactions": _family("Number of transactions that are open"),
    "txnlog_prepared_transactions": _family("Number of open transactions that wait for their coordinator"),
    "txnlog_open_transaction_age_seconds_max": _family("Age of the oldest open transaction that is not prepared, or 0"),
    "txnlog_open_transaction_age_seconds": _family(
        "Age of an open transaction that is not prepared, of the 100 oldest", _TRANSACTIONAL_ID
    ),
    "txnlog_prepared_transaction_age_seconds_max": _family(
        "Time since the transaction was prepared that waits longest for its coordinator, or 0"
    ),
    "txnlog_prepared_transaction_age_seconds": _family(
        "Time since a transaction was prepared that waits for its coordinator, of the 100 oldest", _TRANSACTIONAL_ID
    ),
    "txnlog_transactional_ids": _family("Number of transactional ids that the store remembers"),
    "txnlog_transactions_total": _family(
        "Transactions that ended since the exporter was started", ("outcome",), "counter"
    ),
    "txnlog_transactional_id_transactions_total": _family(
        "Transactions that ended since an id was known to have aborted one, of the 100 ids that have aborted most",
        (*_TRANSACTIONAL_ID, "outcome"),
        "counter",
    ),
    "txnlog_entries_total": _family("Entries that the log has had: the number of the newest one", (), "counter"),
    "txnlog_entries_uncounted_total": _family(
        "Entries that were deleted before the exporter had counted their transactions", (), "counter"
    ),
    "txnlog_entries_to_count": _family("Entries of which the transactions are counted by later scrapes"),
    "txnlog_horizon_entry": _family("Entries below this one may be deleted"),
    "txnlog_last_entry_age_seconds": _family("Time since the newest entry, by its timestamp"),
    "txnlog_last_vacuum_age_seconds": _family("Time since a vacuum last moved the horizon, or noted what it has left"),
    "txnlog_never_vacuumed_age_seconds": _family("Time since the first entry of a store that no vacuum has worked on"),
    "txnlog_up": _family("1 if the store could be read for this scrape, else 0 with no other figure of it"),
    "txnlog_store_writable": _family(
        "0 if the store's disk is full or read-only, or writes of this process fail, else 1"
    ),
    "txnlog_scrape_duration_seconds": _family("How long reading the store took for this scrape"),
}
"""The figures of a store, in the order of the exporter's page. Some have the names of Kafka's exporters."""

STREAM_PREFIX: Final = "txnlog_stream_"
_QUERY: Final = ("query_id", "query")

STREAM_FAMILIES: Final[dict[str, Family]] = {
    f"{STREAM_PREFIX}running": _family("1 while the query runs, 0 after it has ended", _QUERY),
    f"{STREAM_PREFIX}failed": _family("1 if it has ended with an error", _QUERY),
    f"{STREAM_PREFIX}batch_id": _family("The last micro-batch", _QUERY),
    f"{STREAM_PREFIX}batch_rows": _family("Rows that it has read", _QUERY),
    f"{STREAM_PREFIX}batch_entries": _family("Entries of the log that it has passed", _QUERY),
    f"{STREAM_PREFIX}batch_transactions": _family("Transactions that it has read, in commit order", _QUERY),
    f"{STREAM_PREFIX}batch_duration_seconds": _family("How long it took", _QUERY),
    f"{STREAM_PREFIX}processed_rows_per_second": _family("How fast that was", _QUERY),
    f"{STREAM_PREFIX}entry": _family("The entry of the log up to which the query has read", _QUERY),
    f"{STREAM_PREFIX}backlog_rows": _family("Rows that can be read and that it has not", _QUERY),
    f"{STREAM_PREFIX}backlog_transactions": _family("Transactions of the backlog, in commit order", _QUERY),
    f"{STREAM_PREFIX}backlog_seconds": _family("How old the oldest record of the backlog is, by its timestamp", _QUERY),
}
"""The gauges of a query of Spark, in their order."""
