"""Half transactions (PROTOCOL.md, "Half transactions"): the first settlement decides, and nothing shows before it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sparktxn._engine.format.commands import (
    AlterStore,
    AlterTopic,
    CheckHalf,
    Command,
    CommandResult,
    CreateTopic,
    DeleteHalf,
    DeleteTopic,
    DiscardHalf,
    EndHalf,
    PrepareHalf,
    ResumeHalf,
    Vacuum,
)
from sparktxn._engine.format.names import inline_segment, is_inline, merged_segment_file, segment_file
from sparktxn._engine.format.segment import checksum
from sparktxn._engine.state.halfmessages import HALF_OUTCOMES_KEPT, due_slot, outcomes_key, settled_half
from sparktxn._engine.state.limits import HALF_WAIT_MS_MAX, LOG_END_OFFSET_MAX, TIMESTAMP_MS_MAX
from sparktxn._engine.state.requests import REQUEST_WINDOW
from sparktxn._engine.state.transactions.partitions import last_stable_offset
from sparktxn._foundation.values.structs import (
    HalfDue,
    HalfOutcome,
    HalfSegment,
    HalfState,
    PartitionState,
    SettledHalf,
)
from sparktxn.errors import CommandRefused, ErrorCode
from tests.purelog import PureLog

GROUP, ID = "shop", "t1"
TOKEN = "0" * 19 + "a"


def segment(number: int = 10, partition: int = 0, *, count: int = 2, born: int = 0, **changes: Any) -> HalfSegment:
    values: dict[str, Any] = {
        "size_bytes": 100,
        "checksum": "00000000",
        "timestamp_min_ms": 1,
        "timestamp_max_ms": 2,
    } | changes
    return HalfSegment("topic", 1, partition, segment_file(born, f"{number:020x}", "arrow"), count, **values)


def prepare(*segments: HalfSegment, name: str = ID, immunity_ms: int = 6_000) -> PrepareHalf:
    return PrepareHalf(GROUP, name, segments or (segment(),), immunity_ms)


def test_messages_are_added_to_what_is_pending(log: PureLog) -> None:
    log.submit(prepare(segment(10)))
    log.timestamp_ms = 50_000
    log.submit(prepare(segment(10), segment(11), immunity_ms=7_000))
    assert (half(log).prepared_entry, half(log).immunity_ms, half(log).checks) == (2, 7_000, 0)
    assert dues(log) == [HalfDue(GROUP, due_slot(57_000), ID, 57_000, 7_000, 3)]
    assert log.submit(prepare(segment(10)))[0].duplicate
    assert log.refusal(prepare(segment(11), segment(10))) == ErrorCode.INVALID_REQUEST
    log.submit(COMMIT)
    assert log.partition().log_end_offset == 4
    assert log.submit(prepare(segment(10), segment(11)))[0].duplicate
    assert log.refusal(prepare(segment(10), segment(11), segment(12))) == ErrorCode.INVALID_TXN_STATE


REJECTS = "reject.transaction.message"


def rejecting(of_topic: str | None, of_store: str | None) -> list[Command]:
    return [AlterTopic("of topic", "topic", 1, {REJECTS: of_topic}), AlterStore("of store", {REJECTS: of_store})]


@pytest.mark.parametrize(
    ("of_topic", "of_store", "whose"),
    [("true", None, "topic 'topic'"), ("true", "false", "topic 'topic'"), (None, "true", "the store")],
)
def test_half_messages_are_rejected_by_the_topic_or_else_by_the_store(
    log: PureLog, of_topic: str | None, of_store: str | None, whose: str
) -> None:
    log.submit(*rejecting(of_topic, of_store))
    with pytest.raises(
        CommandRefused, match=f"message to topic 'topic' is forbidden: setting '{REJECTS}' of {whose}"
    ) as e:
        log.submit(prepare())
    assert e.value.error.code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert ("half", GROUP, ID) not in log.records


@pytest.mark.parametrize(("of_topic", "of_store"), [(None, None), (None, "false"), ("false", "true"), ("false", None)])
def test_a_topic_s_own_setting_stands_above_the_store_s(
    log: PureLog, of_topic: str | None, of_store: str | None
) -> None:
    log.submit(*rejecting(of_topic, of_store))
    assert log.submit(prepare()) == [CommandResult()]


def test_a_message_that_its_own_list_commits_is_an_ordinary_one(log: PureLog) -> None:
    log.submit(*rejecting("true", "true"))
    log.submit(prepare(), COMMIT)
    assert log.partition().log_end_offset == 2


def test_each_message_that_a_list_leaves_pending_is_asked_for(log: PureLog) -> None:
    log.submit(*rejecting("true", None))
    assert log.refusal(prepare(), COMMIT, prepare(segment(11), name="t2")) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert log.partition().log_end_offset == 0


def test_what_was_taken_before_is_repeated_checked_and_settled(log: PureLog) -> None:
    log.submit(prepare(segment(10)))
    log.submit(*rejecting("true", "true"))
    assert log.submit(prepare(segment(10)))[0].duplicate
    assert log.refusal(prepare(segment(10), segment(11))) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    log.submit(CheckHalf(GROUP, ID, 0, "checker", 5))
    assert log.submit(COMMIT)[0].committed
    assert log.partition().log_end_offset == 2


def test_each_topic_of_a_half_transaction_is_asked(log: PureLog) -> None:
    log.submit(CreateTopic("other", "other", 1, {REJECTS: "true"}))
    other = replace(segment(11), topic="other", topic_id=2)
    assert log.refusal(prepare(segment(10), other)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_what_is_discarded_takes_no_more_messages(log: PureLog) -> None:
    log.submit(prepare(segment(10)))
    log.submit(DiscardHalf(GROUP, ID, 0))
    assert log.refusal(prepare(segment(10), segment(11))) == ErrorCode.INVALID_TXN_STATE
    assert log.submit(prepare(segment(10)))[0].duplicate


def half(log: PureLog, name: str = ID) -> HalfState:
    record: HalfState = log.records["half", GROUP, name]
    return record


def dues(log: PureLog) -> list[HalfDue]:
    return [record for key, record in log.records.items() if key[0] == "half_due"]


COMMIT, ROLL_BACK = EndHalf(GROUP, ID, committed=True), EndHalf(GROUP, ID, committed=False)


def test_a_half_transaction_is_invisible_and_holds_nothing_up(log: PureLog) -> None:
    log.submit(prepare())
    assert log.partition() == PartitionState(1, 0)
    assert log.segments().segments == ()
    assert half(log).prepared_entry == log.entry == 2
    assert half(log).prepared_timestamp_ms == 1_000
    assert dues(log) == [HalfDue(GROUP, due_slot(7_000), ID, 7_000, 6_000, 2)]


def test_a_commit_places_each_segment_at_its_partitions_end_and_counts_in_its_own_entry(log: PureLog) -> None:
    producer = log.initialise("id")
    log.submit(prepare(segment(10), segment(11, 1, count=3), segment(12)))
    log.submit(producer.append((1, 0), 0, 4, transaction=1, born=log.entry))
    log.timestamp_ms = 5_000
    assert log.submit(COMMIT)[0].committed
    assert log.partition().log_end_offset == 8
    assert last_stable_offset(log.partition()) == 0
    placed = log.segments().segments[1:]
    assert [one.base_offset for one in placed] == [4, 6]
    assert [one.name for one in placed] == [segment(10).segment, segment(12).segment]
    assert placed[0].committed_entry == placed[0].entry == log.entry
    of_none = (placed[0].producer_id, placed[0].producer_epoch, placed[0].base_sequence, placed[0].transaction)
    assert of_none == (-1, -1, -1, -1)
    assert (placed[0].timestamp_min_ms, placed[0].timestamp_max_ms) == (1, 2)
    assert (placed[0].size_bytes, placed[0].checksum, placed[0].record_count) == (100, "00000000", 2)
    assert log.segments(1, 1).segments[0].record_count == 3
    assert log.partition(1, 1).log_end_offset == 3
    assert not dues(log)
    assert ("half", GROUP, ID) not in log.records


def test_a_segment_without_timestamps_gets_the_time_of_the_commit(log: PureLog) -> None:
    log.submit(prepare(segment(timestamp_min_ms=-1, timestamp_max_ms=-1)))
    log.timestamp_ms = 9_000
    log.submit(COMMIT)
    placed = log.segments().segments[0]
    assert (placed.timestamp_min_ms, placed.timestamp_max_ms) == (9_000, 9_000)


def test_a_rolled_back_half_leaves_nothing(log: PureLog) -> None:
    log.submit(prepare())
    assert not log.submit(ROLL_BACK)[0].committed
    assert log.partition() == PartitionState(1, 0)
    assert not dues(log)
    assert ("half", GROUP, ID) not in log.records


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("by_check", [True, False])
def test_the_first_settlement_wins_whoever_makes_it(log: PureLog, committed: bool, by_check: bool) -> None:
    log.submit(prepare())
    log.submit(EndHalf(GROUP, ID, committed, by_check))
    end = log.partition().log_end_offset
    for source in (True, False):
        again = log.submit(EndHalf(GROUP, ID, committed, source))[0]
        assert (again.duplicate, again.committed) == (True, committed)
        with pytest.raises(CommandRefused, match="committed" if committed else "rolled back") as refused:
            log.submit(EndHalf(GROUP, ID, not committed, source))
        assert refused.value.error.code() == ErrorCode.INVALID_TXN_STATE
        assert f"(by: {'check' if by_check else 'client'}): that is its outcome" in str(refused.value)
        assert "in entry 3 " in str(refused.value)
    assert log.partition().log_end_offset == end
    settled = settled_half(log.records.get, GROUP, ID)
    assert settled is not None
    assert (settled.outcome, settled.entry) == (HalfOutcome.COMMITTED if committed else HalfOutcome.ROLLED_BACK, 3)
    assert settled.source == ("check" if by_check else "client")


def test_a_repeated_preparation_changes_nothing_before_and_after_the_end(log: PureLog) -> None:
    log.submit(prepare())
    assert log.submit(prepare())[0].duplicate
    assert log.refusal(prepare(segment(11))) == ErrorCode.INVALID_REQUEST
    log.submit(COMMIT)
    assert log.submit(prepare())[0].duplicate
    assert log.refusal(prepare(segment(11))) == ErrorCode.INVALID_TXN_STATE
    assert log.partition().log_end_offset == 2
    # Another group's half of the same id is another one.
    log.submit(PrepareHalf("other", ID, (segment(12),), 0))
    assert log.refusal(EndHalf("third", ID, True)) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert log.submit(COMMIT)[0].duplicate


RECORDS = b"\xff\xff\xff\xffrecords"


def carried(number: int = 20, **changes: Any) -> HalfSegment:
    """A segment whose records the command is to carry."""
    values = {"size_bytes": len(RECORDS), "checksum": checksum(RECORDS)} | changes
    return replace(segment(), segment=inline_segment(f"{number:020x}"), **values)


def carry(*segments: HalfSegment, data: bytes = RECORDS, immunity_ms: int = 0) -> PrepareHalf:
    """Prepare `segments`, with records of those that have none elsewhere."""
    inline = {each.segment: data for each in segments if is_inline(each.segment)}
    return PrepareHalf(GROUP, ID, segments, immunity_ms, inline)


def test_records_that_a_prepare_carries_are_found_by_the_name_of_their_segment(log: PureLog) -> None:
    """The entry that places them is another than the one that carries them, and each names its own."""
    first, second = carried(20), carried(21)
    log.submit(carry(first))
    log.submit(carry(first, second))
    names = [f"{entry:020d}-{each.segment}" for entry, each in ((2, first), (3, second))]
    assert [each.segment for each in half(log).segments] == names
    # A repetition, with the records or without those that are known.
    assert log.submit(carry(first))[0].duplicate
    assert log.submit(carry(first, second))[0].duplicate
    log.submit(replace(carry(first, second, carried(22)), data={carried(22).segment: RECORDS}))
    log.submit(COMMIT)
    placed = log.segments().segments
    assert [each.name for each in placed][:2] == names
    assert {(each.entry, each.committed_entry) for each in placed} == {(5, 5)}
    assert log.submit(carry(first, second, carried(22)))[0].duplicate


@pytest.mark.parametrize(
    "command",
    [
        carry(carried(size_bytes=1)),
        carry(carried(checksum="00000000")),
        carry(carried(), data=b""),
        replace(carry(carried()), data={}),
        replace(carry(carried()), data={"other": RECORDS, carried().segment: RECORDS}),
        replace(carry(), segments=(segment(),), data={segment().segment: RECORDS}),
        carry(replace(carried(), segment=f"{1:020d}-{carried().segment}")),
        carry(carried(size_bytes=65_537, checksum=checksum(bytes(65_537))), data=bytes(65_537)),
    ],
)
def test_records_that_are_not_what_the_prepare_says_are_refused(log: PureLog, command: PrepareHalf) -> None:
    assert log.refusal(command) == ErrorCode.INVALID_RECORD
    assert not dues(log)


def test_a_prepare_carries_64_kib_of_a_segment_at_most(log: PureLog) -> None:
    data = bytes(65_536)
    log.submit(carry(carried(size_bytes=len(data), checksum=checksum(data)), data=data))
    assert half(log).segments[0].size_bytes == 65_536


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (PrepareHalf("", ID, (segment(),), 0), ErrorCode.INVALID_REQUEST),
        (PrepareHalf(GROUP, "", (segment(),), 0), ErrorCode.INVALID_REQUEST),
        (PrepareHalf(GROUP, ID, (), 0), ErrorCode.INVALID_REQUEST),
        (prepare(immunity_ms=-1), ErrorCode.INVALID_REQUEST),
        (prepare(immunity_ms=HALF_WAIT_MS_MAX + 1), ErrorCode.INVALID_REQUEST),
        (prepare(segment(), segment(11, 2)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (prepare(replace(segment(), topic="other")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (prepare(replace(segment(), topic_id=2)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (prepare(segment(count=0)), ErrorCode.INVALID_RECORD),
        (prepare(segment(checksum="x")), ErrorCode.INVALID_RECORD),
        (prepare(segment(timestamp_min_ms=3)), ErrorCode.INVALID_RECORD),
        (prepare(replace(segment(), segment=merged_segment_file(0, "0" * 20))), ErrorCode.INVALID_RECORD),
        (prepare(segment(born=2)), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_what_cannot_be_prepared(log: PureLog, command: Command, code: ErrorCode) -> None:
    assert log.refusal(command) == code
    assert not dues(log)


@pytest.mark.parametrize("immunity_ms", [0, HALF_WAIT_MS_MAX])
def test_the_shortest_and_the_longest_wait(log: PureLog, immunity_ms: int) -> None:
    log.submit(prepare(immunity_ms=immunity_ms))
    assert half(log).due_ms == 1_000 + immunity_ms
    assert half(log).immunity_ms == immunity_ms


def test_a_due_time_is_one_that_a_checkpoint_can_hold(log: PureLog) -> None:
    log.timestamp_ms = 2**63 - 1
    log.submit(prepare())
    assert half(log).due_ms == TIMESTAMP_MS_MAX


def test_a_segment_that_vacuum_may_have_deleted_is_refused(log: PureLog) -> None:
    log.submit(Vacuum(1, 1))
    assert log.refusal(prepare()) == ErrorCode.KAFKA_STORAGE_ERROR
    log.submit(prepare(segment(born=1)))


def test_of_two_claims_of_one_check_the_first_wins(log: PureLog) -> None:
    log.submit(prepare())
    log.timestamp_ms = 70_000
    log.submit(CheckHalf(GROUP, ID, 0, "a", 30_000))
    assert log.refusal(CheckHalf(GROUP, ID, 0, "b", 30_000)) == ErrorCode.INVALID_TXN_STATE
    assert log.submit(CheckHalf(GROUP, ID, 0, "a", 30_000))[0].duplicate
    with pytest.raises(CommandRefused, match="has been checked 1 time, not 2: another checker has claimed this one"):
        log.submit(CheckHalf(GROUP, ID, 2, "a", 30_000))
    assert log.refusal(CheckHalf(GROUP, ID, 1, "", 30_000)) == ErrorCode.INVALID_TXN_STATE
    assert log.refusal(CheckHalf(GROUP, ID, 1, "c", -1)) == ErrorCode.INVALID_REQUEST
    assert (half(log).checks, half(log).checker, half(log).due_ms) == (1, "a", 100_000)
    assert dues(log) == [HalfDue(GROUP, due_slot(100_000), ID, 100_000, 30_000, 3)]
    log.submit(CheckHalf(GROUP, ID, 1, "b", 30_000))
    assert half(log).checks == 2


@pytest.mark.parametrize(
    "command",
    [
        *(CheckHalf(GROUP, ID, 0, "a", 1), COMMIT, ROLL_BACK, DiscardHalf(GROUP, ID, 0)),
        *(ResumeHalf(GROUP, ID, 1), DeleteHalf(GROUP, ID)),
    ],
    ids=lambda command: type(command).__name__,
)
def test_what_was_never_prepared_is_not_known(log: PureLog, command: Command) -> None:
    assert log.refusal(command) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize("end", [COMMIT, ROLL_BACK])
@pytest.mark.parametrize(
    "command",
    [CheckHalf(GROUP, ID, 0, "a", 1), DiscardHalf(GROUP, ID, 0), ResumeHalf(GROUP, ID, 1), DeleteHalf(GROUP, ID)],
    ids=lambda command: type(command).__name__,
)
def test_what_is_settled_is_neither_checked_nor_discarded(log: PureLog, end: EndHalf, command: Command) -> None:
    log.submit(prepare())
    log.submit(end)
    assert log.refusal(command) == ErrorCode.INVALID_TXN_STATE


def test_a_discarded_half_takes_no_effect_until_it_is_resumed(log: PureLog) -> None:
    log.submit(prepare())
    log.submit(CheckHalf(GROUP, ID, 0, "a", 5))
    with pytest.raises(CommandRefused, match="has been checked 1 time, not 0: read it again"):
        log.submit(DiscardHalf(GROUP, ID, 0))
    assert log.refusal(DeleteHalf(GROUP, ID)) == ErrorCode.INVALID_TXN_STATE
    assert log.submit(ResumeHalf(GROUP, ID, 5))[0].duplicate
    log.submit(DiscardHalf(GROUP, ID, 1))
    assert half(log).discarded_entry == log.entry
    assert log.submit(DiscardHalf(GROUP, ID, 1))[0].duplicate
    assert not dues(log)
    for refused in (COMMIT, ROLL_BACK, CheckHalf(GROUP, ID, 1, "b", 5)):
        assert log.refusal(refused) == ErrorCode.INVALID_TXN_STATE
    assert log.partition().log_end_offset == 0
    assert log.refusal(ResumeHalf(GROUP, ID, -1)) == ErrorCode.INVALID_REQUEST
    log.submit(ResumeHalf(GROUP, ID, 7))
    assert (half(log).checks, half(log).checker, half(log).discarded_entry) == (0, "", 0)
    assert dues(log) == [HalfDue(GROUP, 0, ID, 1_007, 7, 5)]
    log.submit(COMMIT)
    assert log.partition().log_end_offset == 2


def test_a_deleted_half_never_takes_effect(log: PureLog) -> None:
    log.submit(prepare())
    log.submit(DiscardHalf(GROUP, ID, 0))
    log.submit(DeleteHalf(GROUP, ID))
    assert ("half", GROUP, ID) not in log.records
    assert log.submit(DeleteHalf(GROUP, ID))[0].duplicate
    settled = settled_half(log.records.get, GROUP, ID)
    assert settled is not None
    assert (settled.outcome, settled.source) == (HalfOutcome.DELETED, "administrator")
    for command in (COMMIT, ROLL_BACK, ResumeHalf(GROUP, ID, 1)):
        with pytest.raises(CommandRefused, match="deleted"):
            log.submit(command)


def test_of_a_deleted_topic_it_can_be_rolled_back_only(log: PureLog) -> None:
    log.create_topic("other")
    log.submit(prepare(segment(), HalfSegment("other", 2, 0, segment(11).segment, 1, 1, "00000000", 1, 1)))
    log.submit(DeleteTopic("r", "topic", 1))
    assert log.refusal(COMMIT) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert log.partition(2).log_end_offset == 0
    log.submit(ROLL_BACK)


def test_a_commit_does_not_pass_the_last_offset(log: PureLog) -> None:
    log.submit(prepare())
    log.records["partition", 1, 0] = PartitionState(1, 0, 0, LOG_END_OFFSET_MAX - 1)
    assert log.refusal(COMMIT) == ErrorCode.OFFSET_OUT_OF_RANGE
    log.records["partition", 1, 0] = PartitionState(1, 0, 0, LOG_END_OFFSET_MAX - 2)
    log.submit(COMMIT)


def test_every_text_has_a_bucket() -> None:
    """Also one that no entry can hold: it is looked up before it is refused."""
    assert outcomes_key("\ud800") == ("half_outcomes", 296)


def test_a_refusal_of_a_missing_partition_names_it_and_the_way_out(log: PureLog) -> None:
    with pytest.raises(CommandRefused) as refused:
        log.submit(prepare(segment(11, 2)))
    assert refused.value.error.str() == (
        "partition 2 of topic 'topic' (id 1) does not exist, or no longer: half transaction 't1' of producer group "
        "'shop' cannot be committed; roll it back"
    )


def in_one_bucket(count: int) -> list[str]:
    found = [name for name in map(str, range(count * 2_000)) if outcomes_key(name)[1] == 7]
    assert len(found) >= count
    return found[:count]


def test_outcomes_are_kept_for_the_window_and_the_last_ones_beyond_it(log: PureLog) -> None:
    many = in_one_bucket(2 * HALF_OUTCOMES_KEPT + 2)
    late = many.pop()
    for number, name in enumerate(many):
        log.submit(prepare(segment(100 + number), name=name), EndHalf(GROUP, name, committed=True))
    bucket = outcomes_key(late)
    assert [settled.transaction_id for settled in log.records[bucket].settled] == many
    # Moves the log on, past the window of all but the last one.
    blank = log.entries[0]
    log.entries += [blank] * (REQUEST_WINDOW - 2)
    log.submit(prepare(segment(999), name=late), EndHalf(GROUP, late, committed=True))
    kept = [settled.transaction_id for settled in log.records[bucket].settled]
    assert kept == [*many, late][-HALF_OUTCOMES_KEPT:]
    assert log.refusal(EndHalf(GROUP, many[0], committed=True)) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert log.submit(EndHalf(GROUP, many[-1], committed=True))[0].duplicate


def test_the_window_ends_at_its_very_entry(log: PureLog) -> None:
    many = in_one_bucket(HALF_OUTCOMES_KEPT + 3)
    late = many.pop()
    for number, name in enumerate(many):
        log.submit(prepare(segment(100 + number), name=name), EndHalf(GROUP, name, committed=True))
    first: SettledHalf = log.records[outcomes_key(late)].settled[0]
    log.entries += [log.entries[0]] * (first.entry + REQUEST_WINDOW - log.entry - 1)
    log.submit(prepare(segment(999), name=late), EndHalf(GROUP, late, committed=True))
    assert log.entry == first.entry + REQUEST_WINDOW
    kept = [settled.transaction_id for settled in log.records[outcomes_key(late)].settled]
    assert kept == [*many[1:], late]


@pytest.mark.parametrize(("max_ms", "placed_ms"), [(-1, 1_000), (0, 0), (1, 1)])
def test_records_without_times_get_that_of_the_commit(log: PureLog, max_ms: int, placed_ms: int) -> None:
    log.submit(prepare(segment(timestamp_min_ms=min(max_ms, 0), timestamp_max_ms=max_ms)))
    log.submit(COMMIT)
    assert log.segments().segments[0].timestamp_max_ms == placed_ms


@pytest.mark.parametrize(
    "command",
    [
        prepare(immunity_ms=-1),
        CheckHalf(GROUP, ID, 0, "checker", -1),
        CheckHalf(GROUP, ID, 5, "checker", 30_000),
        ResumeHalf(GROUP, ID, -1),
        DiscardHalf(GROUP, ID, 5),
        DeleteHalf(GROUP, ID),
        EndHalf(GROUP, "unknown", committed=True),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_refusal_names_the_half_transaction(log: PureLog, command: Any) -> None:
    if not isinstance(command, PrepareHalf):
        log.submit(prepare())
    named = f"half transaction '{command.transaction_id}' of producer group 'shop'"
    with pytest.raises(CommandRefused, match=named):
        log.submit(command)


def test_a_refusal_of_what_was_discarded_names_it(log: PureLog) -> None:
    log.submit(prepare())
    log.submit(CheckHalf(GROUP, ID, 0, "checker", 30_000))
    log.submit(DiscardHalf(GROUP, ID, 1))
    reason = "half transaction 't1' of producer group 'shop' was discarded after 1 check: an administrator"
    for command in (COMMIT, ROLL_BACK, CheckHalf(GROUP, ID, 1, "checker", 30_000)):
        with pytest.raises(CommandRefused, match=reason):
            log.submit(command)


def test_a_commit_that_cannot_be_placed_names_its_half_transaction(log: PureLog) -> None:
    log.submit(prepare())
    log.submit(DeleteTopic("r", "topic", 1))
    with pytest.raises(CommandRefused, match="half transaction 't1' of producer group 'shop' cannot be committed"):
        log.submit(COMMIT)
