"""The rewrite's command: which ranges it replaces, and what it refuses, by the state alone."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from sparktxn._engine.format.commands import (
    CreateTopic,
    DeleteRecords,
    DeleteTopic,
    RequireFeatures,
    Rewrite,
    Vacuum,
)
from sparktxn._engine.format.decodeguard import KEYED_TOPICS
from sparktxn._engine.format.names import sealed_folder, segment_file
from sparktxn._engine.state.keyed import as_keyed
from sparktxn._foundation.values.structs import (
    CommittedTransaction,
    CompactedPrefix,
    Compaction,
    CompactionPass,
    ManifestRef,
    RewrittenRange,
)
from sparktxn.errors import CommandRefused, ErrorCode
from tests.each import each
from tests.producercommands import ProducerCommands
from tests.purelog import PureLog

HERE = (1, 0)
TOKEN = "0" * 20


def command(base: int, end: int, planned_entry: int, *, written: int | None = None, **changes: Any) -> Rewrite:
    """A rewrite of a range, planned and written at an entry, with a request id of its own."""
    run = ManifestRef(
        folder=sealed_folder(base, planned_entry if written is None else written, TOKEN),
        base_offset=base,
        end_offset=end,
        segment_count=1,
        level=0,
        entry_min=1,
        entry_max=1,
        timestamp_min_ms=1,
        timestamp_max_ms=1,
        size_bytes=1,
        checksum="00000000",
        committed_entry_max=1,
    )
    segments = (segment_file(planned_entry, TOKEN, "parquet"),)
    made = Rewrite(f"rewrite {base} {end} {planned_entry} {changes}", *HERE, base, end, planned_entry, segments, run)
    return replace(made, **changes)


def filled(records: int = 10, *, is_keyed: bool = False) -> tuple[PureLog, ProducerCommands]:
    """A partition with a segment of one record to an entry."""
    log = PureLog()
    if is_keyed:
        settings, columns = as_keyed({"primary.key": "id"}, (("id", "int64", False),))
        log.submit(RequireFeatures((KEYED_TOPICS,)))
        log.submit(CreateTopic("keyed", "keyed", 1, settings, columns))
    else:
        log.create_topic()
    producer = log.initialise(None)
    for sequence in range(records):
        log.submit(producer.append(HERE, sequence))
    return log, producer


def ranges(log: PureLog) -> list[tuple[int, int, int]]:
    return [(each.base_offset, each.end_offset, each.entry) for each in log.segments().rewritten]


def test_a_range_is_replaced_and_all_else_stays() -> None:
    log, _ = filled()
    before, partition = log.segments(), log.partition()
    wanted = command(2, 6, log.entry)
    (result,) = log.submit(wanted)
    assert not result.duplicate
    assert result.base_offset == 2
    assert log.segments() == replace(before, rewritten=(RewrittenRange(2, 6, log.entry, wanted.run),))
    assert log.partition() == partition


def test_it_takes_effect_once() -> None:
    log, _ = filled()
    wanted = command(2, 6, log.entry)
    log.submit(wanted)
    assert log.submit(wanted)[0].duplicate
    assert len(ranges(log)) == 1


@each(
    [
        (0, 4, [(0, 4, 13), (4, 8, 12)]),
        (5, 9, [(3, 5, 12), (5, 9, 13)]),
        (4, 6, [(3, 4, 12), (4, 6, 13), (6, 8, 12)]),
        (3, 8, [(3, 8, 13)]),
        (2, 9, [(2, 9, 13)]),
        (0, 3, [(0, 3, 13), (3, 8, 12)]),
        (8, 10, [(3, 8, 12), (8, 10, 13)]),
    ]
)
def test_a_later_range_takes_what_they_have_in_common(base: int, end: int, left: list[tuple[int, int, int]]) -> None:
    log, _ = filled()
    log.submit(first := command(3, 8, log.entry))
    assert log.entry == 13
    shifted = [(low, high, entry + 1) for low, high, entry in left]
    log.submit(second := command(base, end, log.entry))
    assert ranges(log) == shifted
    runs = {each.run for each in log.segments().rewritten}
    assert runs == ({first.run, second.run} if len(left) > 1 else {second.run})


def test_two_ranges_side_by_side_both_stay_in_order() -> None:
    log, _ = filled()
    log.submit(command(6, 8, log.entry))
    log.submit(command(0, 3, log.entry))
    log.submit(command(3, 6, log.entry))
    assert [each[:2] for each in ranges(log)] == [(0, 3), (3, 6), (6, 8)]


def test_of_two_that_were_planned_at_once_the_second_is_refused() -> None:
    log, _ = filled()
    planned = log.entry
    log.submit(command(2, 6, planned))
    assert log.refusal(command(5, 8, planned)) == ErrorCode.RANGE_REWRITTEN
    assert log.refusal(command(0, 3, planned)) == ErrorCode.RANGE_REWRITTEN
    log.submit(command(6, 8, planned))
    log.submit(command(0, 2, planned))
    log.submit(command(5, 7, log.entry))


def test_appends_and_commits_do_not_conflict() -> None:
    log, producer = filled()
    wanted = command(0, 10, log.entry)
    log.submit(producer.append(HERE, 10))
    owner = log.initialise("orders")
    log.submit(owner.append(HERE, 0, transaction=1))
    log.submit(wanted)
    assert ranges(log) == [(0, 10, log.entry)]


def with_open() -> tuple[PureLog, ProducerCommands, ProducerCommands]:
    """Ten records, one of a transaction that is open at offset 10, and two after it."""
    log, producer = filled()
    owner = log.initialise("orders")
    log.submit(owner.append(HERE, 0, transaction=1))
    for sequence in (10, 11):
        log.submit(producer.append(HERE, sequence))
    return log, producer, owner


@each([(5, 11), (10, 11), (10, 13), (0, 13)])
def test_the_first_record_of_an_open_transaction_is_not_replaced(base: int, end: int) -> None:
    log, _, owner = with_open()
    with pytest.raises(CommandRefused, match="the transaction of 'orders' from offset 10 on is open") as refused:
        log.submit(command(base, end, log.entry))
    assert refused.value.error.code() == ErrorCode.OFFSET_OUT_OF_RANGE
    log.submit(owner.end(1, committed=True))
    log.submit(command(base, end, log.entry))
    assert ranges(log) == [(base, end, log.entry)]


@each([(5, 10), (0, 10), (11, 13), (11, 12)])
def test_what_is_decided_is_replaced_on_both_sides_of_an_open_transaction(base: int, end: int) -> None:
    """A version of a table has them, too: it does not wait for the transaction."""
    log, _, _ = with_open()
    log.submit(command(base, end, log.entry))
    assert ranges(log) == [(base, end, log.entry)]


def test_a_prepared_transaction_is_open() -> None:
    log, _, owner = with_open()
    log.submit(owner.prepare(1))
    assert log.refusal(command(8, 13, log.entry)) == ErrorCode.OFFSET_OUT_OF_RANGE
    log.submit(command(11, 13, log.entry))


def test_nothing_above_the_log_end_is_replaced() -> None:
    log, _, owner = with_open()
    assert log.refusal(command(11, 14, log.entry)) == ErrorCode.OFFSET_OUT_OF_RANGE
    log.submit(owner.end(1, committed=False))
    log.submit(command(11, 14, log.entry))
    assert log.refusal(command(12, 15, log.entry)) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_nothing_above_the_last_stable_offset_is_compacted() -> None:
    log, _, _ = with_open()
    for compaction in (Compaction(11, 0, 0), Compaction(13, 0, 0)):
        assert log.refusal(command(5, 10, log.entry, compaction=compaction)) == ErrorCode.OFFSET_OUT_OF_RANGE
    above = command(11, 13, log.entry, compaction=Compaction(13, 0, 0))
    assert log.refusal(above) == ErrorCode.OFFSET_OUT_OF_RANGE
    log.submit(compacting(0, 10, log.entry, 10))


@pytest.mark.holes(37)
def test_hole_37_a_log_start_that_moves_into_the_range_is_no_conflict() -> None:
    log, _ = filled()
    wanted = command(2, 6, log.entry)
    log.submit(DeleteRecords("trim", *HERE, 5))
    log.submit(wanted)
    assert ranges(log) == [(2, 6, log.entry)]
    log.submit(DeleteRecords("more", *HERE, 6))
    assert ranges(log) == []


@pytest.mark.holes(37)
def test_hole_37_a_range_that_is_gone_is_refused() -> None:
    log, _ = filled()
    wanted = command(2, 6, log.entry)
    log.submit(DeleteRecords("trim", *HERE, 6))
    assert log.refusal(wanted) == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.holes(36)
def test_hole_36_a_rewrite_for_a_topic_that_was_made_again_is_refused() -> None:
    log, _ = filled()
    wanted = command(2, 6, log.entry)
    log.submit(DeleteTopic("delete", "topic", 1))
    assert log.refusal(wanted) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    log.submit(CreateTopic("again", "topic", 1))
    producer = log.initialise(None)
    for sequence in range(10):
        log.submit(producer.append((2, 0), sequence))
    assert log.refusal(wanted) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    log.submit(replace(wanted, topic_id=2))


@pytest.mark.holes(9)
def test_hole_9_files_that_a_vacuum_may_have_deleted_are_refused() -> None:
    log, _ = filled()
    planned = log.entry
    wanted, other = command(2, 6, planned), command(6, 8, planned, written=planned)
    log.submit(Vacuum(1, planned))
    log.submit(wanted)
    log.submit(Vacuum(1, planned + 1))
    assert log.refusal(other) == ErrorCode.KAFKA_STORAGE_ERROR
    log.submit(command(6, 8, log.entry))
    last = command(8, 10, log.entry)
    log.submit(Vacuum(log.entry - 1, planned + 1))
    log.submit(last)
    gone = command(8, 10, log.entry, written=log.entry - 4)
    assert log.refusal(gone) == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.refusal(command(8, 10, log.entry, written=log.entry + 1)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.refusal(command(8, 10, log.entry, segments=("x.parquet",))) == ErrorCode.KAFKA_STORAGE_ERROR


def with_run(base: int, end: int, entry: int, **changes: Any) -> Rewrite:
    made = command(base, end, entry)
    return replace(made, run=replace(made.run, **changes))


@each(
    [
        {"base_offset": 1},
        {"end_offset": 7},
        {"base_offset": 6},
        {"level": 1},
        {"aborted_count": 1},
        {"committed_late": (CommittedTransaction(0, 0, 1, 1),)},
    ]
)
def test_a_run_that_contradicts_the_range_is_refused(changes: dict[str, Any]) -> None:
    log, _ = filled()
    assert log.refusal(with_run(2, 6, log.entry, **changes)) == ErrorCode.INVALID_REQUEST
    log.submit(with_run(2, 6, log.entry, base_offset=3, end_offset=5))


def test_a_plan_of_an_entry_that_does_not_exist_is_refused() -> None:
    log, _ = filled()
    for planned in (-1, log.entry + 1):
        assert log.refusal(replace(command(2, 6, log.entry), planned_entry=planned)) == ErrorCode.INVALID_REQUEST
    assert log.refusal(command(2, 6, log.entry, base_offset=-1)) == ErrorCode.INVALID_REQUEST
    log.submit(replace(command(2, 6, log.entry), planned_entry=0))


@pytest.mark.holes(14)
def test_hole_14_what_a_checkpoint_has_sealed_makes_no_difference() -> None:
    """One replica has sealed the segments, the other holds them one by one: both answer alike."""
    whole, _ = filled()
    whole.submit(command(2, 6, whole.entry))
    sealed, _ = filled()
    sealed.submit(command(2, 6, sealed.entry))
    located = sealed.segments()
    run = replace(command(0, 10, 1).run, segment_count=10)
    sealed.records[located.key] = replace(located, sealed=(run,), segments=())
    planned = whole.entry
    for wanted in (command(5, 8, planned - 1), command(5, 8, planned), command(9, 12, planned)):
        answers: list[object] = []
        for log in (whole, sealed):
            try:
                answers.append(log.submit(wanted)[0].base_offset)
            except Exception as refused:
                answers.append(str(refused))
        assert answers[0] == answers[1]
    assert whole.segments().rewritten == sealed.segments().rewritten


@each([(5, 10), (10, 11), (5, 13), (11, 13)])
def test_what_a_checkpoint_has_sealed_of_an_open_transaction_makes_no_difference(base: int, end: int) -> None:
    answers: list[object] = []
    for is_sealed in (False, True):
        log, _, _ = with_open()
        located = log.segments()
        if is_sealed:
            run = replace(command(0, 13, 1).run, segment_count=13)
            log.records[located.key] = replace(located, sealed=(run,), segments=())
        try:
            answers.append(log.submit(command(base, end, log.entry))[0].base_offset)
        except CommandRefused as refused:
            answers.append(str(refused))
    assert answers[0] == answers[1]


def compacting(base: int, end: int, planned: int, to: int, entry: int = 0, tombstones: int = 0) -> Rewrite:
    return command(base, end, planned, compaction=Compaction(to, entry, tombstones))


def compacted(log: PureLog) -> tuple[int, int, list[int]]:
    known = log.segments().compacted
    assert known is not None
    return known.end_offset, known.committed_entry, [one.end_offset for one in known.passes]


def test_a_compaction_notes_up_to_where_and_when() -> None:
    log, producer = filled()
    log.submit(compacting(2, 6, log.entry, 6, entry=4))
    known = log.segments().compacted
    assert known == CompactedPrefix(6, 4, (CompactionPass(6, log.timestamp_ms),))
    log.submit(command(2, 6, log.entry))
    log.submit(producer.append(HERE, 10))
    assert log.segments().compacted == known, "neither a rewrite nor an append changes anything of it"


def test_the_commands_of_one_list_note_one_pass() -> None:
    log, _ = filled()
    log.submit(compacting(2, 4, log.entry, 6), compacting(4, 6, log.entry, 6))
    assert compacted(log) == (6, 0, [6])


def test_later_compactions_add_passes_and_end_those_whose_tombstones_are_gone() -> None:
    log, _ = filled()
    log.submit(compacting(0, 3, log.entry, 3, entry=9))
    log.submit(compacting(0, 5, log.entry, 5, entry=2))
    assert compacted(log) == (5, 9, [3, 5])
    log.submit(compacting(0, 7, log.entry, 7, tombstones=3))
    assert compacted(log) == (7, 9, [5, 7])
    log.submit(compacting(0, 7, log.entry, 7, tombstones=6))
    assert compacted(log) == (7, 9, [7])
    log.submit(compacting(0, 4, log.entry, 4))
    assert compacted(log) == (7, 9, [7]), "what is compacted stays so"


def test_a_hundred_passes_are_remembered() -> None:
    log, _ = filled(110)
    for end in range(1, 103):
        log.submit(compacting(0, end, log.entry, end))
    known = log.segments().compacted
    assert known is not None
    assert [one.end_offset for one in known.passes] == list(range(3, 103))


@each(
    [
        (Compaction(5, 0, 0), ErrorCode.INVALID_REQUEST),
        (Compaction(6, 0, 7), ErrorCode.INVALID_REQUEST),
        (Compaction(6, 13, 0), ErrorCode.INVALID_REQUEST),
        (Compaction(11, 0, 0), ErrorCode.OFFSET_OUT_OF_RANGE),
    ]
)
def test_a_compaction_that_contradicts_itself_is_refused(compaction: Compaction, code: ErrorCode) -> None:
    log, _ = filled()
    assert log.entry == 12
    assert log.refusal(command(2, 6, log.entry, compaction=compaction)) == code
    assert log.segments().compacted is None
    log.submit(command(2, 6, log.entry, compaction=Compaction(6, log.entry, 6)))
    log.submit(command(6, 8, log.entry, compaction=Compaction(10, 0, 10)))


def test_the_first_record_alone_may_be_compacted() -> None:
    log, _ = filled()
    log.submit(compacting(0, 1, log.entry, 1))
    assert compacted(log) == (1, 0, [1])


def test_files_of_the_horizons_own_entry_are_taken() -> None:
    log, _ = filled()
    log.submit(Vacuum(6, 1))
    log.submit(command(2, 6, log.entry, written=6))
    assert log.refusal(command(6, 8, log.entry, written=5)) == ErrorCode.KAFKA_STORAGE_ERROR


@each(
    [
        ({"topic_id": 9}, "partition 0 of topic id 9 does not exist, or no longer"),
        (
            {"end_offset": 11},
            "offsets 2 to 11 of partition 0 of topic id 1 cannot be rewritten: it has records from 0 to 10",
        ),
        ({"planned_entry": 13}, "the plan of entry 13: expected 0 to 12"),
        ({"written": 13}, "has expired (written at entry 13, expected 1 to 12): rewrite its records again"),
    ]
)
def test_a_refusal_names_the_partition_and_what_was_expected(changes: dict[str, Any], reason: str) -> None:
    log, _ = filled()
    assert log.entry == 12
    changes = {"written": 12, **changes}
    written = changes.pop("written")
    with pytest.raises(CommandRefused, match=re.escape(reason)):
        log.submit(replace(command(2, 6, 12, written=written), **changes))


def test_of_a_keyed_partition_it_is_noted_which_deletes_are_gone_and_since_when() -> None:
    log, _ = filled(110, is_keyed=True)
    log.submit(compacting(0, 3, log.entry, 3))
    assert _gone(log) == (0, 0)
    log.submit(compacting(0, 5, log.entry, 5, tombstones=3))
    since = log.entry
    assert (_gone(log), compacted(log)) == ((3, since), (5, 0, [3, 5]))
    log.submit(compacting(0, 7, log.entry, 7, tombstones=3), compacting(7, 8, log.entry, 8, tombstones=3))
    log.submit(compacting(0, 7, log.entry, 7))
    assert _gone(log) == (3, since), "an earlier end brings no delete back"
    log.submit(compacting(0, 9, log.entry, 9, tombstones=8))
    assert (_gone(log), compacted(log)) == ((8, log.entry), (9, 0, [8, 9]))
    log.submit(command(0, 9, log.entry))
    for end in range(10, 111):
        log.submit(compacting(0, end, log.entry, end))
    assert _gone(log)[0] == 8, "passes that are forgotten change nothing of it"


def _gone(log: PureLog) -> tuple[int, int]:
    known = log.segments().compacted
    assert known is not None
    return known.deletes_gone
