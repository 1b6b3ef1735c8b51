"""What a comparison by hand of confluent-kafka on a broker with these clients has shown, and what is now its evidence.

Each key is one difference, or one behaviour without a difference, in the words of confluent-kafka. Evidence begins with
its kind. "case" names a case of the differential program: the same on both sides, or named in listed.py. "row" is the
start of a row of docs/porting.md: the difference stays, for the reason there. "test" names a test below tests/.

Differences that a case shows are in listed.py too; test_compared.py checks that all of this exists.
"""

from __future__ import annotations

from typing import Final

COMPARED: Final[dict[str, tuple[str, ...]]] = {
    # What can hurt a porter.
    "all settings of topics are accepted": (
        "case every_setting_of_topics_is_accepted",
        "test integration/test_admin.py::test_a_segment_size_above_the_greatest_is_the_greatest",
    ),
    "retention is applied": (
        "row a topic's `retention.ms` is 7 days by default",
        "test maintenance/test_retention.py::test_what_stays_is_what_the_settings_keep",
    ),
    "a compacted topic is compacted, and refuses records without a key": (
        "row `cleanup.policy=compact` keeps each key's last record",
        "row a record without a key for a compacted topic",
        "case a_record_without_a_key_in_a_compacted_topic",
        "test maintenance/test_compact.py::test_the_newest_record_of_each_key_stays_at_its_offset",
    ),
    "all names are at the top level": (
        "test unit/test_confluents_names.py::test_the_name_exists_and_is_what_it_is_there",
        "test interop/test_compat.py::test_the_table_of_names_is_the_real_packages",
        "case constants",
    ),
    "a fence that flush() meets is fatal": (
        "row a fence that `flush()` meets is fatal",
        "case a_fence_meets_callbacks",
        "case a_fenced_producer_sends",
        "test integration/test_producer_errors.py::test_a_fence_that_a_flush_meets_is_fatal_at_once",
    ),
    "a purge in a transaction stops its commit": ("case what_a_purge_leaves_of_a_transaction",),
    "a record for a partition that does not exist makes the transaction abortable": (
        "row `produce()` to a partition that does not exist is reported",
        "case a_record_for_an_unknown_partition_in_a_transaction",
        "case partition_that_does_not_exist",
    ),
    "a live group cannot be deleted": ("case a_live_group_is_deleted", "case groups_are_deleted"),
    "groups are listed by state, and one that is unknown is dead": (
        "case groups_are_listed_by_state",
        "case an_unknown_group_is_described",
    ),
    "on_commit is for asynchronous and automatic commits": (
        "case synchronous_commits_do_not_call_back",
        "case asynchronous_commits_call_back",
    ),
    "automatic commits go on without poll()": (
        "row automatic commits go on while the program does not call `poll()`",
        "case automatic_commits_go_on_without_a_poll",
        "case automatic_commits_after_their_interval",
    ),
    "a Message is made with keywords, and changed": (
        "case a_message_is_made",
        "case a_message_by_default",
        "case a_message_with_an_error",
        "test unit/test_confluents_names.py::test_a_message_is_made_with_keywords_and_changed",
    ),
    "stored offsets below the committed one are not committed": (
        "row `store_offsets()` below the committed offset is not committed",
        "case stored_offsets_below_the_committed_one",
    ),
    "a tombstone is false": ("row `bool(message)` is False for a tombstone", "case truth_of_a_tombstone"),
    "codes of a partition that does not exist": (
        "row `list_offsets()` and `delete_records()` of a partition that does not exist",
        "case watermarks_of_an_unknown_partition",
        "case offsets_by_time_of_an_unknown_partition",
        "case offsets_of_unknown_partitions_are_listed",
        "case records_of_an_unknown_partition_are_deleted",
    ),
    "committed offsets of an unknown topic have no error": (
        "row `committed()`, `list_consumer_group_offsets()` have no error for a missing topic",
        "case committed_offsets_of_an_unknown_topic",
        "case offsets_of_a_group_in_an_unknown_topic_are_listed",
    ),
    "None is a setting's default": ("row most settings refuse `None`", "case settings_that_are_none"),
    "commit_transaction(0) times out, and is called again": (
        "row `commit_transaction(0)` raises `_TIMED_OUT`",
        "case a_commit_without_time",
    ),
    "two members share the partitions, and have ids": (
        "case two_members_share_by_range",
        "case two_members_share_by_roundrobin",
        "case two_members_share_cooperatively",
        "case two_members_share_under_the_new_protocol",
        "case the_member_id",
    ),
    "readers may see the old last stable offset right after a commit": (
        "row `commit_transaction` returns when the commit is decided",
        "case offsets_are_visible_right_after_the_commit",
    ),
    "a transaction that takes too long is ended": (
        "row a transaction that timed out is `_FENCED`, without a reason",
        "row a producer that dies holds up readers until its time-out",
        "case a_transaction_that_takes_too_long",
    ),
    "records of an open transaction are seen before a flush": (
        "row records are sent in the background at once",
        "case records_of_an_open_transaction_without_a_flush",
    ),
    "a fenced send_offsets_to_transaction() fails": (
        "row a fenced producer's `send_offsets_to_transaction` fails",
        "case a_fenced_producer_sends_offsets",
    ),
    "committed() while offsets are pending": (
        "row `committed()` waits while an open transaction holds an offset",
        "case an_open_transaction_holds_offsets",
    ),
    "writing creates topics": (
        "row topics may be created by writing to them",
        "row a topic that is not known may be known soon",
        "case topic_that_does_not_exist",
    ),
    "an invalid name of a topic is reported": (
        "row `produce()` to an invalid name of a topic",
        "case topic_with_a_name_that_cannot_be",
    ),
    "clients are made without a broker": (
        "row a client that finds no broker goes on trying",
        "test integration/test_admin.py::test_a_missing_store_is_told_by_every_call",
    ),
    "serializing and asyncio clients": (
        "test interop/test_compat.py::test_serializing_clients_run_with_the_mock_of_the_schema_registry",
        "test interop/test_compat.py::test_the_asyncio_clients_run",
    ),
    "share consumers": ("test unit/test_confluents_names.py::test_a_share_consumer_is_refused_when_it_is_made",),
    # What is rare.
    "texts of codes, and of errors that are fatal": ("case texts_of_all_codes", "case an_error_as_text"),
    "names of the newer codes": (
        "case names_of_all_codes",
        "test unit/test_error_codes.py::test_no_number_is_left_out",
    ),
    "the report of a failed record has no offset": ("case reports_of_what_an_abort_throws_away",),
    "produce() and flush() after a fatal error": (
        "row `produce()` after a fatal error raises `_FATAL`",
        "case a_fenced_producer_produces_and_flushes",
    ),
    "flush() calls all callbacks, then raises": (
        "row `flush()` calls all callbacks",
        "case a_callback_that_raises_reaches_flush",
    ),
    "reports have no headers": ("row delivery reports have no headers", "case reports_have_headers"),
    "values are text or bytes": (
        "row values are `str` or `bytes`",
        "case a_value_that_is_a_bytearray",
        "case a_value_that_is_a_memoryview",
    ),
    "headers are not a tuple": ("row headers are a list or a dictionary", "case headers_that_are_a_tuple"),
    "a header's name may be a number": (
        "row values are `str` or `bytes`; a name of a header may be a number",
        "case headers_with_a_number_as_name",
    ),
    "a partition below -1": ("row `produce(partition=-2)`", "case partition_below_minus_one"),
    "produce_batch(): unknown names, tuples and items that are not dictionaries": (
        "row `produce_batch()` ignores names",
        "case produce_batch_with_an_unknown_name",
        "case produce_batch_of_a_tuple",
        "case produce_batch_of_what_is_no_dict",
    ),
    "produce_batch() queues what is for a partition that does not exist": (
        "row `produce_batch()` counts a message",
        "case produce_batch_to_a_partition_that_does_not_exist",
    ),
    "close() of a producer returns True": ("case a_producer_that_is_closed",),
    "assignment() and position() before there is an offset": (
        "row `assignment()` without offsets has offset -1000",
        "case the_assignment_without_offsets",
        "case the_position_before_the_first_poll",
    ),
    "an offset out of range": ("case an_offset_out_of_range",),
    "the message at the end of a partition": (
        "row the message at a partition's end has a text as its value",
        "case the_value_of_the_message_at_the_end_of_a_partition",
        "case the_timestamp_of_the_message_at_the_end_of_a_partition",
    ),
    "calls with what is not assigned": (
        "case seeking_what_is_not_assigned",
        "case removing_what_is_not_assigned",
        "case pausing_what_is_not_assigned",
        "case stored_offsets_of_what_is_not_assigned",
    ),
    "an empty subscription, and one that is not a list": (
        "row `subscribe([])` raises `_INVALID_ARG`",
        "case an_empty_subscription",
        "case wrong_subscriptions",
    ),
    "a subscription that is made again starts at the committed offset": (
        "case a_subscription_that_is_made_again_without_a_commit",
    ),
    "an unknown or deleted topic gives nothing for a while": (
        "row `poll()` is silent for a while",
        "case a_topic_that_does_not_exist_is_read",
        "case a_deleted_topic_leaves_the_assignment",
    ),
    "TopicPartition: order, text, change, pickle": (
        "row `TopicPartition` and metadata cannot be changed or pickled",
        "row comparing a `TopicPartition` with a number",
        "case topic_partitions_are_compared",
        "case a_topic_partition_and_a_number",
        "case a_topic_partition_as_text",
        "case a_topic_partition_is_changed",
        "case a_topic_partition_is_pickled",
    ),
    "leader epochs are numbers": (
        "row a message and a committed offset have a leader epoch",
        "case the_leader_epoch_of_a_message",
    ),
    "one name twice in create_topics()": (
        "row `create_topics()` with one name twice refuses both",
        "case one_topic_twice_in_a_call",
    ),
    "NewTopic is equal by its values": ("case new_topics",),
    "metadata as text, and lists of replicas": ("case list_topics_of_a_producer",),
    "ids of topics are Uuids": ("row `TopicDescription.topic_id` is a `Uuid`", "case topic_ids", "case ids_of_topics"),
    "describe_topics() has include_authorized_operations": ("case operations_that_are_authorized",),
    "settings of brokers, and settings that are lists": (
        "row brokers have settings",
        "case settings_of_a_broker",
        "case settings_that_are_lists_are_altered",
    ),
    "alter_configs(), list_groups(), set_config() and constants": (
        "case settings_of_a_topic_are_replaced",
        "case groups_are_listed_the_old_way",
        "test unit/test_confluents_names.py::test_the_method_exists_with_its_keywords",
    ),
    "settings that contradict each other, and those for debugging": (
        "row `debug` is checked",
        "row `max.poll.interval.ms` below `session.timeout.ms` is refused",
        "case settings_that_are_checked_for_debugging",
        "case settings_of_a_consumer_that_contradict",
    ),
    "offsets_for_times() below zero": ("case offsets_by_times_below_zero",),
    "a dropped producer loses its records": (
        "row a producer that is dropped without `flush()` loses its records",
        "test integration/test_dropped_handles.py::test_records_of_a_dropped_producer_are_stored",
    ),
    "a call without time fails": ("row `list_topics(timeout=0)`", "case calls_without_time"),
    "confluent-kafka's own defects": (
        "row a `Consumer` with an empty `group.id` ends the process",
        "row `Consumer.close()` hangs if `on_revoke` raises",
        "row a fence that `flush()` meets is fatal",
    ),
    # What confluent-kafka's own unit tests show.
    "KafkaError is raised and caught": (
        "case errors_of_codes_are_raised_and_caught",
        "test unit/test_confluents_names.py::test_a_kafka_error_is_raised_and_caught",
    ),
    "send_offsets_to_transaction() refuses a dictionary": ("case wrong_arguments_of_send_offsets",),
    "error_cb may raise": (
        "test integration/test_fixed_differences.py::test_an_error_that_error_cb_raises_comes_out_of_the_call",
    ),
    "stats_cb is called": (
        "test integration/test_statistics.py::test_a_producer_says_what_waits_and_what_is_stored",
        "row `throttle_cb`, `oauth_cb`, `log_cb`",
    ),
    "version(), libversion(), Uuid, cluster_id(), set_sasl_credentials(), len()": (
        "row comparing a `TopicPartition` with a number raises `NotImplementedError`",
        "case versions",
        "case ids_of_topics",
        "case credentials_that_are_set_later",
        "case lengths_and_clusters",
        "test unit/test_confluents_names.py::test_versions_are_those_of_the_names",
    ),
    "a resource of an unknown kind is a ValueError": ("case resources",),
    "dir() of KafkaError lists its codes": ("case codes_are_listed_by_dir",),
    "all of librdkafka's settings are accepted": (
        "case settings_of_share_groups",
        "case settings_that_are_only_for_brokers",
    ),
    # What was the same from the start.
    "partitioners": (
        "case partitions_by_consistent",
        "case partitions_by_consistent_random",
        "case partitions_by_murmur2",
        "case partitions_by_murmur2_random",
        "case partitions_by_fnv1a",
        "case partitions_by_fnv1a_random",
    ),
    "watermarks, and offsets after aborted records": (
        "case watermarks",
        "case the_end_of_a_partition_after_an_aborted_range",
        "case what_commits_is_read_with_gaps_for_markers",
        "case what_aborts_is_left_out",
    ),
    "calls in a wrong state": ("case calls_before_init_transactions", "case calls_without_a_transaction"),
    "limits of the time of a transaction": ("case limits_of_the_time_of_a_transaction",),
    "a fenced commit, abort and empty commit": (
        "case a_fenced_producer_commits",
        "case a_fenced_producer_aborts",
        "case a_fenced_producer_commits_nothing",
    ),
    "large records and full queues": ("case a_record_that_is_too_large", "case a_full_queue"),
    "administration": (
        "case offsets_by_time",
        "case records_are_deleted",
        "case partitions_are_added",
        "case topics_that_cannot_be_created",
    ),
    "consuming": (
        "case where_reading_starts_with_a_committed_offset",
        "case pausing",
        "case seeking",
        "case a_consumer_that_is_closed",
    ),
}
