"""The publication's command: what a version of a table has, and which publications the state refuses."""

from __future__ import annotations

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
    PublishTables,
    RequireFeatures,
    Rewrite,
    TableToPublish,
)
from sparktxn._foundation.values.structs import KeptVersion, PublishedPartition, PublishedPlaces, TableState
from sparktxn.errors import CommandRefused, ErrorCode
from tests.each import each
from tests.producercommands import ProducerCommands
from tests.purelog import PureLog
from tests.unit.state.test_rewrites import command

HERE = (1, 0)
ADDRESS = "file:///store/topics/topic-1"
TABLE = TableToPublish("topic", 1, 0, ADDRESS, 0, 0, (0,))


class Published:
    """A topic that is a table, with ten records of which the first six are in a merged file."""

    def __init__(self) -> None:
        self.log = PureLog()
        self.log.submit(CreateTopic("create", "topic", 1, {"table.formats": "delta"}))
        self.producer: ProducerCommands = self.log.initialise(None)
        for sequence in range(10):
            self.log.submit(self.producer.append(HERE, sequence))
        self.log.submit(RequireFeatures(("tables",)))
        self.merged = self.rewrite(0, 6)

    def rewrite(self, base: int, end: int, **changes: Any) -> Rewrite:
        wanted = command(base, end, self.log.entry, **changes)
        self.log.submit(wanted)
        return wanted

    def command(self, request: str = "publish", entry: int | None = None, **changes: Any) -> PublishTables:
        entry = self.log.entry if entry is None else entry
        return PublishTables(request, entry, self.log.entry, (replace(TABLE, **changes),))

    def table(self) -> TableState:
        found = self.log.records[("table", 1)]
        assert isinstance(found, TableState)
        return found

    def partition(self, number: int = 0) -> PublishedPartition:
        found = self.log.records[("published", 1, number)]
        assert isinstance(found, PublishedPartition)
        return found


@pytest.fixture
def published() -> Published:
    return Published()


def test_a_version_has_the_places_of_its_moment(published: Published) -> None:
    shown = published.log.entry
    published.log.submit(published.command())
    ranges = published.log.segments().rewritten
    table = published.table()
    assert (table.version, table.entry, table.entry_before, table.published_entry) == (0, shown, 0, shown + 1)
    assert (table.location, table.formats, table.is_new_schema, table.columns) == (ADDRESS, ("delta",), True, None)
    assert table.kept == (KeptVersion(0, shown + 1, published.log.timestamp_ms),)
    assert published.partition() == PublishedPartition(1, 0, 0, PublishedPlaces(0, ranges), PublishedPlaces())


def test_what_happens_later_is_for_the_next_version(published: Published) -> None:
    published.log.submit(published.command())
    before = published.partition().current
    published.rewrite(6, 10)
    published.log.submit(DeleteRecords("delete", 1, 0, 2))
    assert published.partition().current == before
    published.log.submit(published.command("next", version=1, log_starts=(2,)))
    after = PublishedPlaces(2, published.log.segments().rewritten)
    assert len(after.ranges) == 2
    assert published.partition() == PublishedPartition(1, 0, 1, after, before)
    assert not published.table().is_new_schema
    assert published.table().entry_before == before.ranges[0].entry


def test_a_partition_that_a_version_does_not_change_stays_as_it_was(published: Published) -> None:
    published.log.submit(published.command())
    known = published.partition()
    published.log.submit(CreatePartitions("more", "topic", 1, 2))
    published.log.submit(published.command("next", version=1, log_starts=(0, 0)))
    assert published.partition() == known
    assert published.table().partition_count == 2
    assert ("published", 1, 1) not in published.log.records


def test_it_takes_effect_once(published: Published) -> None:
    wanted = published.command()
    published.log.submit(wanted)
    assert published.log.submit(wanted) == [CommandResult(duplicate=True)]


def refused(log: PureLog, command: Command) -> tuple[int, str]:
    """The code and the words with which the state refuses a publication."""
    with pytest.raises(CommandRefused) as raised:
        log.submit(command)
    error = raised.value.error
    return error.code(), error.str()


CHANGED = ErrorCode.TABLE_CHANGED
REFUSED: list[tuple[dict[str, Any], ErrorCode, str]] = [
    ({"name": "other"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 'other' does not exist, nor its table"),
    ({"topic_id": 2}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 'topic' does not exist, nor its table"),
    ({"location": ""}, ErrorCode.INVALID_REQUEST, "a location of 0 bytes: expected 1 to 4096"),
    ({"location": "x" * 4_097}, ErrorCode.INVALID_REQUEST, "a location of 4097 bytes: expected 1 to 4096"),
    ({"version": 1}, CHANGED, "the table of topic 'topic' has 0 as its next version, not 1: publish again"),
    ({"first_version": 1}, CHANGED, "can be read from one of the versions (0,) on, not from 1"),
    ({"column_count": 1}, CHANGED, "has 0 declared columns, not 1"),
    ({"log_starts": ()}, CHANGED, "has 1 partition, not 0"),
    ({"log_starts": (0, 0)}, CHANGED, "has 1 partition, not 2"),
    ({"log_starts": (1,)}, CHANGED, "begins at offset 0 of partition 0, not 1"),
]


@each(REFUSED)
def test_what_a_publisher_has_not_seen_is_refused(changes: dict[str, Any], code: ErrorCode, words: str) -> None:
    published = Published()
    found, reason = refused(published.log, published.command(**changes))
    assert found == code
    assert words in reason


@pytest.mark.parametrize("location", ["x", "x" * 4_096])
def test_a_location_has_one_byte_or_four_thousand(published: Published, location: str) -> None:
    published.log.submit(published.command(location=location))
    assert published.table().location == location


def test_entries_are_in_their_order(published: Published) -> None:
    last = published.log.entry
    for entry, planned in [(-1, last), (last, last - 1), (last, last + 1), (last + 1, last + 1)]:
        code, reason = refused(published.log, PublishTables("wrong", entry, planned, (TABLE,)))
        assert code == ErrorCode.INVALID_REQUEST
        assert f"entries {entry} and {planned}: expected 0 to {last}, in this order" in reason


def test_the_first_version_may_show_the_empty_log(published: Published) -> None:
    log = PureLog()
    log.submit(CreateTopic("create", "topic", 1, {"table.formats": "delta,iceberg"}))
    log.submit(RequireFeatures(("tables",)))
    log.submit(PublishTables("publish", 0, log.entry, (TABLE,)))
    shown = log.records["table", 1]
    assert (shown.entry, shown.formats) == (0, ("delta", "iceberg"))


@pytest.mark.parametrize("tables", [(), (TABLE, TABLE)])
def test_each_table_is_named_once(published: Published, tables: tuple[TableToPublish, ...]) -> None:
    wrong = PublishTables("wrong", published.log.entry, published.log.entry, tables)
    assert published.log.refusal(wrong) == ErrorCode.INVALID_REQUEST


def test_the_store_requires_the_feature() -> None:
    log = PureLog()
    log.submit(CreateTopic("create", "topic", 1, {"table.formats": "delta"}))
    assert log.refusal(PublishTables("publish", log.entry, log.entry, (TABLE,))) == ErrorCode.INVALID_REQUEST


def test_a_version_shows_no_younger_record_and_no_file_that_was_not_checked(published: Published) -> None:
    """The run says which entry has committed its last segment."""
    late = command(6, 10, published.log.entry)
    published.log.submit(replace(late, run=replace(late.run, committed_entry_max=published.log.entry)))
    seen = published.log.entry
    newest = seen - 1
    code, reason = refused(published.log, published.command(entry=newest - 1))
    assert code == ErrorCode.TABLE_CHANGED
    assert f"has records of entry {newest} in files of partition 0" in reason
    published.log.submit(published.command("newest", entry=newest))
    published.rewrite(6, 10)
    rewritten = published.log.entry
    unseen = PublishTables("unseen", rewritten - 1, rewritten - 1, (replace(TABLE, version=1),))
    code, reason = refused(published.log, unseen)
    assert code == ErrorCode.TABLE_CHANGED
    assert f"has other files in partition 0 since entry {rewritten}" in reason
    published.log.submit(published.command("seen", entry=newest, version=1))


def test_a_version_shows_no_older_entry_than_the_one_before(published: Published) -> None:
    published.log.submit(published.command())
    shown = published.table().entry
    code, reason = refused(published.log, published.command("back", entry=shown - 1, version=1))
    assert code == ErrorCode.TABLE_CHANGED
    assert f"shows entry {shown} already, which is above {shown - 1}" in reason
    published.log.submit(published.command("again", entry=published.table().entry, version=1))


def test_versions_below_the_first_are_not_kept_and_of_many_every_second_one_stays(published: Published) -> None:
    published.log.submit(published.command())
    assert published.table().needs_entry is None
    published.rewrite(6, 10)
    for version in range(1, 130):
        published.log.submit(published.command(f"next {version}", version=version))
        assert len(published.table().kept) <= 128
    kept = [each.version for each in published.table().kept]
    assert kept == [*range(0, 128, 2), 128, 129]
    assert published.table().needs_entry == published.table().kept[0].published_entry
    wrong = published.command("wrong", version=130, first_version=3)
    assert published.log.refusal(wrong) == ErrorCode.TABLE_CHANGED
    published.log.submit(published.command("later", version=130, first_version=128))
    assert [each.version for each in published.table().kept] == [128, 129, 130]
    published.log.submit(published.command("last", version=131, first_version=131))
    assert [each.version for each in published.table().kept] == [131]
    assert published.table().needs_entry is None


def test_the_log_is_kept_for_versions_with_other_files_alone(published: Published) -> None:
    """A version that changes nothing kept it for the one before, so that each publication led to another one."""
    published.log.submit(published.command())
    first = published.table().kept
    published.log.submit(published.command("same", version=1))
    assert (published.table().changed_version, published.table().needs_entry) == (0, None)
    published.rewrite(6, 10)
    published.log.submit(published.command("other", version=2))
    assert (published.table().changed_version, published.table().needs_entry) == (2, first[0].published_entry)
    published.log.submit(published.command("same again", version=3, first_version=2))
    assert (published.table().changed_version, published.table().needs_entry) == (2, None)


def test_a_deleted_topic_ends_with_an_empty_version(published: Published) -> None:
    published.log.submit(published.command())
    known = published.partition()
    published.log.submit(DeleteTopic("delete", "topic", 1))
    assert published.partition() == known
    code, reason = refused(published.log, published.command("full", version=1))
    assert code == ErrorCode.TABLE_CHANGED
    assert "is that of a deleted topic, and ends with an empty version" in reason
    published.log.submit(published.command("empty", version=1, log_starts=()))
    assert published.partition() == PublishedPartition(1, 0, 1, PublishedPlaces(), known.current)
    assert published.table().is_deleted
    published.log.submit(published.command("past", version=2, first_version=2, log_starts=()))
    assert published.table().kept[0].version == 2


def test_a_version_has_the_columns_of_its_topic_and_the_last_one_those_before_it() -> None:
    columns = (("amount", "int64", True),)
    log = PureLog()
    log.submit(CreateTopic("create", "topic", 1, {"table.formats": "delta,iceberg"}, schema=columns))
    log.submit(RequireFeatures(("tables",)))
    log.submit(PublishTables("publish", log.entry, log.entry, (replace(TABLE, column_count=1),)))
    first = log.records["table", 1]
    assert (first.columns, first.is_new_schema, first.formats) == (columns, True, ("delta", "iceberg"))
    log.submit(DeleteTopic("delete", "topic", 1))
    log.submit(PublishTables("empty", log.entry, log.entry, (replace(TABLE, version=1, log_starts=()),)))
    last = log.records["table", 1]
    assert (last.columns, last.is_new_schema, last.formats) == (columns, False, ("delta", "iceberg"))
    assert (last.changed_version, last.is_deleted) == (0, True)


def test_a_topic_of_the_same_name_has_a_table_of_its_own(published: Published) -> None:
    published.log.submit(published.command())
    published.log.submit(DeleteTopic("delete", "topic", 1))
    published.log.submit(CreateTopic("again", "topic", 1, {"table.formats": "delta"}))
    new = replace(TABLE, topic_id=2, location="file:///store/topics/topic-2")
    old = replace(TABLE, version=1, log_starts=())
    both = PublishTables("both", published.log.entry, published.log.entry, (new, old))
    published.log.submit(both)
    assert published.log.records["table", 2].version == 0
    assert published.table().is_deleted


def test_a_topic_is_a_table_by_its_setting_alone(published: Published) -> None:
    published.log.submit(AlterTopic("off", "topic", 1, {"table.formats": None}))
    assert published.log.refusal(published.command()) == ErrorCode.INVALID_CONFIG
    store_wide = AlterStore("store", {"table.formats": "delta"})
    assert published.log.refusal(store_wide) == ErrorCode.INVALID_CONFIG
    code, reason = refused(published.log, AlterTopic("unknown", "topic", 1, {"table.formats": "hudi"}))
    assert code == ErrorCode.INVALID_CONFIG
    assert "is 'hudi': expected delta or iceberg, or both with a comma between them" in reason


def test_a_table_has_the_times_of_its_producers(published: Published) -> None:
    times = {"message.timestamp.type": "LogAppendTime"}
    wanted = CreateTopic("new", "new", 1, {"table.formats": "delta", **times})
    for name, asked in (("topic", AlterTopic("times", "topic", 1, {**times})), ("new", wanted)):
        code, reason = refused(published.log, asked)
        assert code == ErrorCode.INVALID_CONFIG
        assert f"topic '{name}' has message.timestamp.type LogAppendTime and cannot be a table" in reason
    published.log.submit(AlterStore("store", {**times}))
    code, reason = refused(published.log, published.command())
    assert code == ErrorCode.INVALID_CONFIG
    assert "topic 'topic' has message.timestamp.type LogAppendTime and cannot be a table" in reason
    published.log.submit(AlterTopic("own", "topic", 1, {"message.timestamp.type": "CreateTime"}))
    published.log.submit(published.command())
