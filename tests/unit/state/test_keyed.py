"""Keyed topics in the state machine: their settings and columns, what never moves, and rule K."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from sparktxn._engine.format.commands import (
    AddPartitionsToTxn,
    AlterTopic,
    Command,
    CreatePartitions,
    CreateTopic,
    DeleteRecords,
    RequireFeatures,
)
from sparktxn._engine.state.keyed import as_keyed, declared_columns
from sparktxn._foundation.values.structs import PartitionState
from sparktxn.errors import CommandRefused, ConfigurationError, ErrorCode
from tests.purelog import PureLog

E = ErrorCode
KEYED = {"primary.key": "id", "cleanup.policy": "compact"}
COLUMNS = (("id", "int64", False), ("name", "string", True), ("_deleted", "bool", True))
DECLARED = (("id", "int64", False), ("name", "string", False), ("size", "double", True))
HERE, THERE, PLAIN = (1, 0), (1, 1), (2, 0)


@pytest.fixture
def log() -> PureLog:
    """A keyed topic with two partitions, and a plain one with one."""
    found = PureLog()
    found.submit(RequireFeatures(("keyed_topics",)))
    found.submit(CreateTopic("r1", "keyed", 2, KEYED, COLUMNS))
    found.create_topic("plain")
    return found


def test_its_partitions_are_keyed_and_those_of_others_say_nothing(log: PureLog) -> None:
    assert log.partition(1, 1) == PartitionState(1, 1, keyed=True)
    assert log.partition(2, 0).keyed is UNSET
    assert b"keyed" not in msgspec.json.encode(log.partition(2, 0))
    log.submit(log.initialise("id").append(HERE, 0, 3))
    assert log.partition() == PartitionState(1, 0, 0, 3, keyed=True)


def test_the_store_requires_the_feature_first() -> None:
    log = PureLog()
    assert log.refusal(CreateTopic("r", "keyed", 1, KEYED, COLUMNS)) == E.INVALID_REQUEST


@pytest.mark.parametrize(
    ("settings", "columns", "named"),
    [
        ({}, None, "declared columns"),
        ({"primary.key": "ID"}, COLUMNS, "'ID'"),
        ({"primary.key": "id,id"}, COLUMNS, "twice"),
        ({"primary.key": "_deleted"}, COLUMNS, "'_deleted'"),
        ({"primary.key": "name"}, COLUMNS, "may be null"),
        ({}, (("id", "double", False), *COLUMNS[1:]), "double"),
        ({}, (("id", "list<int64>", False), *COLUMNS[1:]), "list<int64>"),
        ({}, COLUMNS[:2], "_deleted"),
        ({}, (*COLUMNS[:2], ("_deleted", "bool", False)), "_deleted"),
        ({}, (COLUMNS[0], ("name", "string", False), COLUMNS[2]), "'name'"),
        ({"cleanup.policy": "compact,delete"}, COLUMNS, "'compact,delete'"),
        ({"cleanup.policy": "delete"}, COLUMNS, "'delete'"),
        ({"retention.ms": "7"}, COLUMNS, "'retention.ms'"),
        ({"retention.bytes": "7"}, COLUMNS, "'retention.bytes'"),
        ({"partition.key": "id"}, COLUMNS, "'partition.key'"),
    ],
)
def test_other_settings_and_columns_are_refused(
    log: PureLog, settings: dict[str, str], columns: Any, named: str
) -> None:
    with pytest.raises(CommandRefused) as raised:
        log.submit(CreateTopic("r2", "other", 1, KEYED | settings, columns))
    assert raised.value.error.code() == E.INVALID_CONFIG
    assert named in raised.value.error.str()
    log.submit(CreateTopic("r3", "other", 1, KEYED | {"retention.ms": "-1", "partition.key": ""}, COLUMNS))


def test_no_other_topic_has_the_reserved_column_or_is_compacted_with_columns(log: PureLog) -> None:
    for settings in ({}, {"primary.key": ""}):
        assert log.refusal(CreateTopic("r2", "other", 1, settings, COLUMNS)) == E.INVALID_CONFIG
    assert log.refusal(CreateTopic("r2", "other", 1, {"cleanup.policy": "compact"}, COLUMNS[:2])) == E.INVALID_CONFIG


@pytest.mark.parametrize("changed", [None, "name", "id,name", ""])
def test_the_key_never_changes(log: PureLog, changed: str | None) -> None:
    assert log.refusal(AlterTopic("r4", "keyed", 1, {"primary.key": changed})) == E.INVALID_CONFIG
    log.submit(AlterTopic("r5", "keyed", 1, {"primary.key": "id", "upsert.missing": "null"}))


def test_what_a_topic_never_becomes(log: PureLog) -> None:
    assert log.refusal(AlterTopic("r4", "plain", 2, {"primary.key": "key"})) == E.INVALID_CONFIG
    refused: list[dict[str, str | None]] = [
        {"cleanup.policy": None},
        {"retention.ms": "5"},
        {"upsert.not.null": "name"},
    ]
    for settings in refused:
        assert log.refusal(AlterTopic("r4", "keyed", 1, settings)) == E.INVALID_CONFIG
    assert log.refusal(CreatePartitions("r4", "keyed", 1, 3)) == E.INVALID_PARTITIONS
    log.submit(log.initialise("id").append(HERE, 0))
    for before in (-1, 0, 1):
        assert log.refusal(DeleteRecords("r4", 1, 0, before)) == E.POLICY_VIOLATION
    log.submit(AlterTopic("r6", "keyed", 1, {}, (("more", "int8", True),)))
    assert log.records["topic", "keyed"].schema == (*COLUMNS, ("more", "int8", True))
    assert log.refusal(AlterTopic("r7", "keyed", 1, {}, (("_deleted", "bool", True),))) == E.INVALID_CONFIG


def test_rows_of_a_transaction_are_appended_outside_of_it(log: PureLog) -> None:
    """In the list that ends it: offset order is commit order, and nothing is ever open."""
    first, second = log.initialise("a"), log.initialise("b")
    assert log.refusal(first.append(HERE, 0, transaction=1)) == E.INVALID_TXN_STATE
    log.submit(first.append(PLAIN, 0, transaction=1))
    assert log.refusal(first.append(HERE, 0, transaction=1)) == E.INVALID_TXN_STATE
    log.submit(second.append(HERE, 0), begins(second, 1), second.end(1))
    log.submit(first.append(HERE, 0), first.end(1))
    assert log.partition() == PartitionState(1, 0, 0, 2, keyed=True)
    assert [segment.committed_entry for segment in log.segments().segments] == [log.entry - 1, log.entry]
    # The plain partition has the end of the transaction, the keyed one nothing but the rows.
    assert log.partition(2).log_end_offset == 2
    assert not log.segments().committed


def begins(producer: Any, transaction: int) -> AddPartitionsToTxn:
    """The command that begins a transaction of keyed rows alone."""
    return AddPartitionsToTxn(
        producer.transactional_id, producer.producer_id, producer.producer_epoch, transaction, partitions=()
    )


def test_a_fenced_producer_appends_nothing(log: PureLog) -> None:
    old = log.initialise("id")
    log.initialise("id")
    before = dict(log.records)
    fenced = (int(E.PRODUCER_FENCED), int(E.INVALID_PRODUCER_EPOCH))
    assert log.refusal(begins(old, 1), old.append(HERE, 0), old.end(1)) in fenced
    assert log.refusal(old.append(HERE, 0), old.end(1)) in fenced
    assert log.records == before


@pytest.mark.parametrize("count", [1, 5, 6, 12])
@pytest.mark.parametrize("others", ["none", "plain rows", "an expectation", "offsets"])
def test_a_repeated_list_is_recognised_whole(log: PureLog, count: int, others: str) -> None:
    producer = log.initialise("id")
    by_name: dict[str, list[Command]] = {
        "none": [begins(producer, 1)],
        "plain rows": [producer.append(PLAIN, 0, transaction=1)],
        "an expectation": [producer.expect(1, HERE, 0)],
        "offsets": [producer.offset(1, "group", PLAIN, 0)],
    }
    list_ = [*by_name[others], *(producer.append(HERE, number) for number in range(count)), producer.end(1)]
    first = log.submit(*list_)
    entry, records = log.entry, dict(log.records)
    again = log.submit(*list_)
    assert all(result.duplicate for result in again)
    assert log.entry == entry
    assert log.records == records
    # Of the last five the offsets are known.
    assert [result.base_offset for result in again[-6:-1]] == [result.base_offset for result in first[-6:-1]]


def test_another_list_with_the_number_of_an_ended_transaction_is_refused(log: PureLog) -> None:
    """In a partition that the first list does not name, its rows would be taken for new ones of that list."""
    producer = log.initialise("shared")
    log.submit(begins(producer, 1), producer.append(HERE, 0), producer.end(1))
    before = dict(log.records)
    lists: list[list[Command]] = [
        [begins(producer, 1), producer.append(THERE, 0), producer.end(1)],
        [producer.expect(1, HERE, 0), producer.append(THERE, 0), producer.end(1)],
        [begins(producer, 1), producer.append(HERE, 1), producer.end(1)],
        [begins(producer, 1), producer.append(HERE, 0), producer.append(THERE, 0), producer.end(1)],
    ]
    for list_ in lists:
        assert log.refusal(*list_) == E.INVALID_TXN_STATE
        assert log.records == before
    other = producer.append(HERE, 0, segment=producer.append(THERE, 9).segment)
    assert log.refusal(begins(producer, 1), other, producer.end(1)) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.submit(begins(producer, 2), producer.append(THERE, 0), producer.end(2))


def test_sequences_outside_of_transactions_are_refused_as_ever(log: PureLog) -> None:
    producer = log.initialise(None)
    for number in range(8):
        log.submit(producer.append(HERE, number))
    assert log.submit(producer.append(HERE, 7))[0].duplicate
    for wrong in (0, 9):
        assert log.refusal(producer.append(HERE, wrong)) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    list_ = [producer.append(HERE, number) for number in range(8, 16)]
    log.submit(*list_)
    assert all(result.duplicate for result in log.submit(*list_))


# What a creator gives, and what the log keeps of it.


def test_the_log_keeps_what_an_upsert_must_have() -> None:
    settings, columns = as_keyed({"primary.key": "id"}, DECLARED)
    week = str(7 * 24 * 3_600_000)
    assert settings == {
        "primary.key": "id",
        "cleanup.policy": "compact",
        "delete.retention.ms": week,
        "max.compaction.lag.ms": week,
        "upsert.not.null": "name",
    }
    assert columns == (DECLARED[0], ("name", "string", True), DECLARED[2], ("_deleted", "bool", True))
    log = PureLog()
    log.submit(RequireFeatures(("keyed_topics",)))
    log.submit(CreateTopic("r", "keyed", 1, settings, columns))
    assert declared_columns(log.records["topic", "keyed"]) == DECLARED
    own = {"delete.retention.ms": "5", "max.compaction.lag.ms": "6"}
    assert as_keyed({"primary.key": "id"} | own, DECLARED)[0].items() >= own.items()


def test_topics_without_a_key_are_left_as_they_are() -> None:
    assert as_keyed({"segment.rows": "5"}, DECLARED) == ({"segment.rows": "5"}, DECLARED)
    assert as_keyed({}, None) == ({}, None)


@pytest.mark.parametrize(
    ("settings", "columns"),
    [
        ({"primary.key": "id"}, None),
        ({"primary.key": "ix"}, DECLARED),
        ({"primary.key": "size"}, DECLARED),
        ({"primary.key": "id", "cleanup.policy": "compact,delete"}, DECLARED),
        ({"primary.key": "id", "retention.ms": "10"}, DECLARED),
        ({"primary.key": "id"}, (*DECLARED, ("a,b", "int8", False))),
    ],
)
def test_creators_get_an_error_before_anything_is_written(settings: dict[str, str], columns: Any) -> None:
    with pytest.raises(ConfigurationError):
        as_keyed(settings, columns)
