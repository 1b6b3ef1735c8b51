"""Topics as the state machine keeps them: made, altered, widened, deleted, and their log starts moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from sparktxn._engine.format.commands import (
    AlterStore,
    AlterTopic,
    Command,
    CommandResult,
    CreatePartitions,
    CreateTopic,
    DeleteRecords,
    DeleteTopic,
)
from sparktxn._engine.state.limits import PARTITION_COUNT_MAX
from sparktxn._foundation.values.structs import (
    CommittedTransaction,
    ManifestRef,
    PartitionSegments,
    PartitionState,
    TopicState,
)
from sparktxn.errors import CommandRefused, ErrorCode
from tests.purelog import PureLog

HERE = (1, 0)
REJECTS: dict[str, Any] = {"reject.transaction.message": "True"}
COMPACTED: dict[str, Any] = {"cleanup.policy": "compact,delete"}
SCHEMA = (("id", "int64", False),)
E = ErrorCode


def topic(log: PureLog, name: str = "topic") -> TopicState:
    record: TopicState = log.records["topic", name]
    return record


def refused(log: PureLog, command: Command, code: ErrorCode, *words: str) -> None:
    before = dict(log.records)
    with pytest.raises(CommandRefused) as raised:
        log.submit(command)
    assert raised.value.error.code() == code
    for word in words:
        assert word in raised.value.error.str()
    assert log.records == before


def test_a_topic_is_made_with_its_partitions_and_the_next_id() -> None:
    log = PureLog()
    for number, (name, count) in enumerate((("one", 1), ("two.x", 3)), 1):
        settings = {"segment.format": "arrow"}
        command = CreateTopic(f"r{number}", name, count, settings, SCHEMA)
        assert log.submit(command) == [CommandResult(topic_id=number)]
        assert topic(log, name) == TopicState(name, number, count, settings, SCHEMA, number)
        for partition in range(count):
            assert log.records["partition", number, partition] == PartitionState(number, partition)
            assert log.records["segments", number, partition] == PartitionSegments(number, partition)
        assert ("partition", number, count) not in log.records
    assert log.records["topic_name", "two_x"].name == "two.x"


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (CreateTopic("r", "topic", 1), E.TOPIC_ALREADY_EXISTS, ("'topic'",)),
        (CreateTopic("r", "a b", 1), E.INVALID_TOPIC, ("'a b'",)),
        (CreateTopic("r", "dotted_name", 1), E.INVALID_TOPIC, ("'dotted_name'", "'dotted.name'")),
        (CreateTopic("r", "__consumer_offsets", 1), E.TOPIC_ALREADY_EXISTS, ("already exists",)),
        (CreateTopic("r", "__consumer.offsets", 1), E.INVALID_TOPIC, ("'__consumer_offsets'",)),
        (CreateTopic("r", "new", 0), E.INVALID_PARTITIONS, ("0 partitions", f"1 to {PARTITION_COUNT_MAX}")),
        (CreateTopic("r", "new", PARTITION_COUNT_MAX + 1), E.INVALID_PARTITIONS, (f"{PARTITION_COUNT_MAX + 1} part",)),
        (CreateTopic("r", "new", 1, {"segment.format": "orc"}), E.INVALID_CONFIG, ("'new'", "'orc'", "parquet or arr")),
        (CreateTopic("r", "new", 1, {"message.timestamp.type": "x"}), E.INVALID_CONFIG, ("CreateTime or LogAppendTi",)),
        (CreateTopic("r", "new", 1, {}, (("_offset", "int64", True),)), E.INVALID_CONFIG, ("'new'", "_offset")),
        (CreateTopic("r", "new", 1, COMPACTED, SCHEMA), E.INVALID_CONFIG, ("'new'", "cannot be comp", "to delete")),
        (AlterTopic("r", "typed", 3, COMPACTED), E.INVALID_CONFIG, ("'typed'", "cannot be compacted", "to delete")),
        (AlterTopic("r", "absent", 1), E.UNKNOWN_TOPIC_OR_PARTITION, ("'absent' does not exist",)),
        (AlterTopic("r", "topic", 7), E.UNKNOWN_TOPIC_OR_PARTITION, ("its id is 1, not 7",)),
        (AlterTopic("r", "topic", 1, {"segment.format": "orc"}), E.INVALID_CONFIG, ("'topic'", "'orc'")),
        (
            AlterTopic("r", "topic", 1, REJECTS | {"x": "1"}),
            E.INVALID_CONFIG,
            ("topic 'topic'", "'True'", "true or false"),
        ),
        (CreateTopic("r", "new", 1, REJECTS), E.INVALID_CONFIG, ("topic 'new'", "'True'", "true or false")),
        (AlterStore("r", REJECTS), E.INVALID_CONFIG, ("of the store is 'True'", "true or false")),
        (AlterTopic("r", "topic", 1, {}, (("a", "int64", True),)), E.INVALID_CONFIG, ("'topic'", "no columns")),
        (AlterTopic("r", "typed", 3, {}, (("a", "int64", False),)), E.INVALID_CONFIG, ("'a'", "'typed'", "nullable")),
        (AlterTopic("r", "typed", 3, {}, (("ID", "int64", True),)), E.INVALID_CONFIG, ("'typed'", "ID")),
        (CreatePartitions("r", "absent", 1, 4), E.UNKNOWN_TOPIC_OR_PARTITION, ("'absent'",)),
        (CreatePartitions("r", "topic", 1, 2), E.INVALID_PARTITIONS, ("'topic' has 2 partitions", "not 2")),
        (
            CreatePartitions("r", "topic", 1, PARTITION_COUNT_MAX + 1),
            E.INVALID_PARTITIONS,
            (f"{PARTITION_COUNT_MAX},",),
        ),
        (DeleteTopic("r", "topic", 2), E.UNKNOWN_TOPIC_OR_PARTITION, ("its id is 1, not 2",)),
        (DeleteRecords("r", 1, 2, 0), E.UNKNOWN_TOPIC_OR_PARTITION, ("partition 2 of topic id 1",)),
        (DeleteRecords("r", 1, 0, 1), E.OFFSET_OUT_OF_RANGE, ("offset 1", "0 to 0")),
        (DeleteRecords("r", 1, 0, -2), E.OFFSET_OUT_OF_RANGE, ("offset -2", "0 to 0")),
    ],
)
def test_what_is_refused_changes_nothing(log: PureLog, command: Command, code: ErrorCode, words: tuple[str]) -> None:
    log.submit(CreateTopic("dotted", "dotted.name", 1), CreateTopic("typed", "typed", 1, {}, SCHEMA))
    refused(log, command, code, *words)


@pytest.mark.parametrize("count", [1, PARTITION_COUNT_MAX])
def test_the_bounds_of_the_partition_count_are_allowed(count: int) -> None:
    log = PureLog()
    assert log.submit(CreateTopic("r", "topic", count)) == [CommandResult(topic_id=1)]


def test_altering_sets_removes_and_leaves_settings(log: PureLog) -> None:
    log.submit(CreateTopic("new", "new", 1, {"a": "1", "b": "2", "c": "3"}))
    command = AlterTopic("r", "new", 2, {"b": None, "c": "4", "segment.format": "parquet"})
    assert log.submit(command) == [CommandResult(topic_id=2)]
    assert topic(log, "new").settings == {"a": "1", "c": "4", "segment.format": "parquet"}
    assert topic(log, "new").schema is None


def test_altering_the_store_sets_removes_and_leaves_settings(log: PureLog) -> None:
    before = log.records["store",]
    assert log.submit(AlterStore("r", {"a": "1", "b": "2", "c": "3"})) == [CommandResult()]
    log.submit(AlterStore("s", {"b": None, "c": "4", "d": None}))
    assert log.records["store",] == replace(before, settings={"a": "1", "c": "4"})


def test_a_topic_without_columns_may_be_compacted(log: PureLog) -> None:
    log.submit(CreateTopic("keyed", "keyed", 1, COMPACTED), AlterTopic("r", "topic", 1, COMPACTED))
    assert topic(log, "keyed").settings == topic(log).settings == COMPACTED


def test_a_topic_with_columns_may_be_given_another_cleanup(log: PureLog) -> None:
    log.submit(CreateTopic("typed", "typed", 1, {"cleanup.policy": "delete"}, SCHEMA))
    log.submit(AlterTopic("r", "typed", 2, {"cleanup.policy": None}))
    assert topic(log, "typed").settings == {}


def test_columns_are_added_at_the_end(log: PureLog) -> None:
    log.submit(CreateTopic("typed", "typed", 1, {"a": "1"}, SCHEMA))
    added = (("x", "string", True), ("y", "int32", True))
    log.submit(AlterTopic("r", "typed", 2, {}, added))
    assert topic(log, "typed").schema == (*SCHEMA, *added)
    assert topic(log, "typed").settings == {"a": "1"}


def test_partitions_are_added_empty_at_the_end(log: PureLog) -> None:
    producer = log.initialise(None)
    log.submit(producer.append(HERE, 0))
    assert log.submit(CreatePartitions("r", "topic", 1, 4)) == [CommandResult(topic_id=1)]
    assert topic(log).partition_count == 4
    assert [log.partition(1, number).log_end_offset for number in range(4)] == [1, 0, 0, 0]
    assert ("segments", 1, 3) in log.records
    log.submit(CreatePartitions("s", "topic", 1, PARTITION_COUNT_MAX))


def test_a_deleted_topic_leaves_its_name_and_never_its_id(log: PureLog) -> None:
    log.submit(CreateTopic("other", "o.ther", 1))
    assert log.submit(DeleteTopic("r", "o.ther", 2)) == [CommandResult(topic_id=2)]
    gone = {("topic", "o.ther"), ("topic_name", "o_ther"), ("partition", 2, 0), ("segments", 2, 0)}
    assert gone.isdisjoint(log.records)
    assert {("topic", "topic"), ("partition", 1, 1), ("segments", 1, 1)} <= set(log.records)
    assert log.submit(CreateTopic("again", "o_ther", 1)) == [CommandResult(topic_id=3)]


def aborted_and_committed(log: PureLog) -> None:
    """Offsets 0 to 1 are aborted, 2 is the marker's or the next segment's, and the rest is committed."""
    producer = log.initialise("id")
    log.submit(producer.append(HERE, 0, 2, transaction=1))
    log.submit(producer.end(1, committed=False))
    producer = log.initialise("id")
    log.submit(producer.append(HERE, 0, 2, transaction=2), producer.end(2))


@pytest.mark.parametrize("before", [1, 4, 5, 6])
def test_deleting_records_keeps_the_committed_ranges_that_reach_so_far(log: PureLog, before: int) -> None:
    committed = tuple(CommittedTransaction(7, first, first + 1, 3) for first in (0, 2, 4))
    log.submit(log.initialise(None).append(HERE, 0, 9))
    log.records["segments", *HERE] = replace(log.segments(), committed=committed)
    log.submit(DeleteRecords("r", *HERE, before))
    assert log.segments().committed == tuple(one for one in committed if one.last_offset >= before)


@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_deleting_records_drops_what_lies_wholly_below(log: PureLog, before: int) -> None:
    aborted_and_committed(log)
    earlier, end = log.segments(), log.partition().log_end_offset
    assert earlier.aborted
    assert end > before
    assert log.submit(DeleteRecords("r", *HERE, before)) == [CommandResult(base_offset=before)]
    assert log.partition().log_start_offset == before
    located = log.segments()
    assert located.segments == tuple(one for one in earlier.segments if one.end_offset > before)
    assert located.aborted == tuple(one for one in earlier.aborted if one.last_offset >= before)


def test_runs_that_lie_wholly_below_are_dropped(log: PureLog) -> None:
    log.submit(log.initialise(None).append(HERE, 0, 9))
    runs = tuple(
        ManifestRef(f"{first:020d}-{1:020d}-{'a' * 20}", first, first + 3, 1, 0, 1, 1, 0, 0, 1, "0" * 8)
        for first in (0, 3, 6)
    )
    log.records["segments", *HERE] = replace(log.segments(), sealed=runs)
    log.submit(DeleteRecords("r", *HERE, 3))
    assert log.segments().sealed == runs[1:]
    log.submit(DeleteRecords("s", *HERE, 8))
    assert log.segments().sealed == runs[2:]


def test_a_repetition_after_the_topic_is_gone_says_no_offset(log: PureLog) -> None:
    log.submit(DeleteRecords("r", *HERE, 0))
    log.submit(DeleteTopic("gone", "topic", 1))
    assert log.submit(DeleteRecords("r", *HERE, 0)) == [CommandResult(duplicate=True)]


def test_the_log_start_never_goes_back(log: PureLog) -> None:
    aborted_and_committed(log)
    end = log.partition().log_end_offset
    assert log.submit(DeleteRecords("r", *HERE, 3)) == [CommandResult(base_offset=3)]
    located = log.segments()
    assert log.submit(DeleteRecords("s", *HERE, 1)) == [CommandResult(base_offset=3)]
    assert (log.partition().log_start_offset, log.segments()) == (3, located)
    assert log.submit(DeleteRecords("t", *HERE, -1)) == [CommandResult(base_offset=end)]
    assert log.segments().segments == ()


@pytest.mark.parametrize(
    "command",
    [
        lambda: CreateTopic("same", "new", 1),
        lambda: AlterTopic("same", "topic", 1, {"a": "1"}),
        lambda: AlterStore("same", {"a": "1"}),
        lambda: CreatePartitions("same", "topic", 1, 3),
        lambda: DeleteTopic("same", "topic", 1),
        lambda: DeleteRecords("same", *HERE, 0),
    ],
)
def test_a_repeated_request_has_its_first_answer(log: PureLog, command: Callable[[], Command]) -> None:
    (first,) = log.submit(command())
    (again,) = log.submit(command())
    assert not first.duplicate
    assert again.duplicate
    assert (again.topic_id, again.base_offset) == (first.topic_id, first.base_offset)
