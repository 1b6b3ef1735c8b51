"""What of the suites of Kafka's clients does not pass at a gateway, and why: each must fail, or be skipped, so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["DIFFERING", "FRANZ_GO", "KAFKA_PYTHON", "LIBRDKAFKA", "LIBRDKAFKA_PASSES", "WITH_STORED_TRANSACTIONS"]

_PLAIN: Final = "records are stored as columns, and fetched without the producer's compression"
_NO_OFFSET: Final = "a record's offset is not known before its transaction is committed: its delivery says -1"
_IN_MEMORY: Final = (
    "records of an open transaction are in the gateway's memory: no reader gets them, and no offset is theirs"
)
_READ_AT_ONCE: Final = "other records are read at once, and so its commit comes before its time-out"
_NO_REPLICAS: Final = "there are no replicas, and no logs of brokers: the request is not served"
_SCRAM: Final = "skipped: it wants a second address, with SCRAM"

FRANZ_GO: Final[Mapping[str, str]] = {
    "TestTxnEtl": _NO_OFFSET,
    "TestPooling": _PLAIN,
    "TestConsumeMaxDecompressBatchBytes": _PLAIN,
    "TestConsumeRegex": "it looks for __consumer_offsets, and a store has no such topic",
    "Test848RegexBrokerResolves": "as the one before: all else of it passes",
    "TestSCRAMAuth": _SCRAM,
    "TestSCRAMAuthBadCredentials": _SCRAM,
    "TestIssueProduceBrokerTooOldFailsRecords": "skipped: for brokers that do not take Produce of version 2",
}
"""Of v1.22.3, by test. In `TestTxnEtl` all else passes: its three kinds of groups read each record once."""

KAFKA_PYTHON: Final[Mapping[str, str]] = {
    "test_kafka_version_infer": "it is asked for Kafka 4.0, and Produce is served in a version of Kafka 4.1",
    "test_kafka_consumer_unsupported_encoding": _PLAIN,
    "test_create_describe_delete_acls": "there are no ACLs",
    "test_describe_configs_broker_resource_returns_configs": "a gateway does not list its settings",
    "test_elect_leaders": _NO_REPLICAS,
    "test_alter_replica_log_dirs": _NO_REPLICAS,
    "test_describe_metadata_quorum": _NO_REPLICAS,
    "test_alter_partition_reassignments": _NO_REPLICAS,
    "test_list_partition_reassignments": _NO_REPLICAS,
}
"""Of 3.0.12, by test; 43 pass, and 4 are skipped."""

LIBRDKAFKA: Final[Mapping[str, str]] = {
    "0061": _IN_MEMORY,
    "0081": "there are no ACLs",
    "0103": _IN_MEMORY,
    "0118": "the first member of a group begins at once: a broker waits three seconds for more",
    "0132": "the store's own assignors divide partitions: in the order of member ids, but not as librdkafka's do",
    "0137": _IN_MEMORY,
}
"""Of Debian's 2.8.0, by number."""

LIBRDKAFKA_PASSES: Final = (
    *(
        "0002",
        "0003",
        "0005",
        "0007",
        "0008",
        "0011",
        "0012",
        "0013",
        "0014",
        "0015",
        "0017",
        "0018",
        "0019",
        "0020",
        "0021",
    ),
    *("0022", "0026", "0029", "0030", "0031", "0033", "0034", "0036", "0039", "0040", "0041", "0042", "0044", "0048"),
    *("0049", "0050", "0051", "0054", "0056", "0057", "0063", "0064", "0067", "0069", "0070", "0073", "0074", "0075"),
    *("0082", "0083", "0084", "0085", "0089", "0090", "0092", "0099", "0102", "0112", "0114"),
    *("0116", "0120", "0122", "0129", "0130"),
)
"""Numbers of tests that need a broker and pass.

Some call Kafka's scripts (0052, 0109, 0115, 0119), or want a scenario of their own (0028, 0098, 0107, 0110). Others
have bounds on time that a loaded machine exceeds (0001, 0086, 0113). The test 0045 needs eight minutes, most of
them at librdkafka's own broker. Half of the runs of 0093 fail. Its second member waits for the
first one, which is busy, only if the partition is to be its own. The order of the random member ids decides.
"""

DIFFERING: Final[Mapping[str, str]] = {
    "what_aborts_is_left_out": _IN_MEMORY,
    "the_end_of_a_partition_after_an_aborted_range": _IN_MEMORY,
    "reports_of_a_transaction": _NO_OFFSET,
    "a_fence_aborts_what_was_open": _IN_MEMORY,
    "an_open_transaction_stops_readers_of_committed_records": _IN_MEMORY,
    "a_transaction_of_a_closed_producer": _IN_MEMORY,
    "records_of_an_open_transaction_without_a_flush": _IN_MEMORY,
    "a_transaction_that_takes_too_long": _READ_AT_ONCE,
    "offsets_are_listed_under_an_open_transaction": _IN_MEMORY,
    "operations_that_are_authorized": "there are no ACLs, and no operations are named",
    "passwords_of_users": "users are in the gateway's file, which administrators cannot read",
    "a_group_that_its_members_have_left_is_listed": "the log keeps its offsets only, and not whether it had members",
}
"""Of the program of cases with confluent-kafka; topics are not created by their names."""

WITH_STORED_TRANSACTIONS: Final = frozenset(
    name
    for listed in (FRANZ_GO, LIBRDKAFKA, DIFFERING)
    for name, reason in listed.items()
    if reason in (_IN_MEMORY, _NO_OFFSET, _READ_AT_ONCE)
)
"""What does pass at a gateway with `--store-transactions`."""
