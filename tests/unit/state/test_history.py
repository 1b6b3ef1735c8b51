"""What a delta remembers of the records that it passes."""

from __future__ import annotations

from msgspec.structs import replace

from sparktxn._engine.state.internal import RecordingDelta
from sparktxn._foundation.values.structs import (
    CommittedOffset,
    HalfOutcome,
    HalfOutcomes,
    HalfState,
    MemberState,
    SettledHalf,
    StateKey,
    TransactionState,
    TransactionStatus,
)

S = TransactionStatus
EMPTY = TransactionState("t", 1, 0, -1, -1, 60_000, S.EMPTY, 0, False)
ONGOING = replace(EMPTY, status=S.ONGOING, transaction=1)
OFFSET = CommittedOffset("g", 1, 0, 5, None, -1, 0, 1)


def delta(*before: TransactionState | CommittedOffset | MemberState | HalfState) -> RecordingDelta:
    known = {record.key: record for record in before}

    def read(key: StateKey) -> object:
        assert key[0] not in ("half_settled", "half_discarded"), "the state has no such table"
        return known.get(key)

    return RecordingDelta(read)


def transactions(recording: RecordingDelta) -> list[TransactionState | None]:
    return [change.record for change in recording.history("transaction")]  # type: ignore[misc]


def test_a_state_is_one_row_as_it_was_left() -> None:
    recording = delta(EMPTY)
    recording.put(ONGOING)
    left = replace(ONGOING, partitions=((1, 0), (1, 1)))
    recording.put(replace(ONGOING, partitions=((1, 0),)))
    recording.put(left)
    prepared = replace(left, status=S.PREPARE_COMMIT)
    complete = replace(prepared, status=S.COMPLETE_COMMIT, partitions=())
    recording.put(prepared)
    recording.put(complete)
    assert transactions(recording) == [left, prepared, complete]


def test_what_ends_as_it_was_gives_no_row() -> None:
    recording = delta(ONGOING, OFFSET)
    recording.put(replace(ONGOING, partitions=((1, 0),)))
    recording.put(ONGOING)
    recording.put(OFFSET)
    assert transactions(recording) == []
    assert recording.history("offset") == []


def test_an_identity_or_a_number_is_a_row_of_its_own() -> None:
    recording = delta(EMPTY)
    bumped = [replace(EMPTY, producer_epoch=1), replace(EMPTY, producer_epoch=2)]
    for record in bumped:
        recording.put(record)
    assert transactions(recording) == bumped


def test_a_removal_is_a_row_without_a_record() -> None:
    recording = delta(EMPTY, OFFSET)
    recording.remove(EMPTY.key)
    recording.put(EMPTY)
    recording.remove(EMPTY.key)
    recording.remove(OFFSET.key)
    recording.remove(("offset", "unknown", 1, 0))
    assert transactions(recording) == [None, EMPTY, None]
    assert [(change.key, change.record) for change in recording.history("offset")] == [(OFFSET.key, None)]


def test_rows_are_in_the_order_of_keys_and_leave_internal_topics_out() -> None:
    recording = delta()
    keys: list[StateKey] = []
    for group, topic_id, partition in (("h", 1, 0), ("g", 10, 0), ("g", 2, 1), ("g", 2, 0), ("g", -3, 0)):
        record = replace(OFFSET, group_id=group, topic_id=topic_id, partition=partition)
        keys.append(record.key)
        recording.put(record)
    assert [change.key for change in recording.history("offset")] == [keys[3], keys[2], keys[1], keys[0]]


def test_an_offset_names_the_transaction_that_committed_it() -> None:
    recording = delta(ONGOING)
    recording.put(replace(ONGOING, status=S.PREPARE_COMMIT))
    recording.put(OFFSET)
    recording.put(replace(ONGOING, status=S.COMPLETE_COMMIT))
    recording.put(replace(OFFSET, partition=1))
    endings = [change.ending and change.ending.transactional_id for change in recording.history("offset")]
    assert endings == ["t", None]


def test_an_offset_outside_transactions_names_none() -> None:
    recording = delta(ONGOING)
    recording.put(OFFSET)
    recording.put(replace(ONGOING, partitions=((1, 0),)))
    recording.put(replace(OFFSET, partition=1))
    recording.put(replace(ONGOING, status=S.PREPARE_ABORT))
    recording.put(replace(OFFSET, partition=2))
    endings = [change.ending for change in recording.history("offset")]
    assert endings == [None, None, None]


def test_what_is_recorded_is_changed_as_in_any_delta() -> None:
    recording = delta(EMPTY, OFFSET)
    recording.put(ONGOING)
    recording.remove(OFFSET.key)
    recording.remove(("partition", 1, 0))
    assert recording.changes == {ONGOING.key: ONGOING, OFFSET.key: None, ("partition", 1, 0): None}
    assert (recording.get(ONGOING.key), recording.get(OFFSET.key)) == (ONGOING, None)
    assert delta(EMPTY).get(EMPTY.key) == EMPTY


MEMBER = MemberState("g", "m", "", "", "", ("t",), 1, 1, ("uniform",), False, 5, last_entry=5)


def members(recording: RecordingDelta) -> list[object]:
    return [(change.key, change.record) for change in recording.history("member")]


def test_a_member_has_one_row_as_the_entry_leaves_it() -> None:
    recording = delta()
    other = replace(MEMBER, member_id="a")
    recording.put(replace(MEMBER, topics=()))
    recording.put(MEMBER)
    recording.put(other)
    assert members(recording) == [(other.key, other), (MEMBER.key, MEMBER)]


def test_a_members_sign_of_life_gives_no_row() -> None:
    recording = delta(MEMBER)
    recording.put(replace(MEMBER, left=True))
    recording.put(replace(MEMBER, last_entry=9))
    assert members(recording) == []
    recording.put(replace(MEMBER, last_entry=9, member_epoch=9))
    assert members(recording) == [(MEMBER.key, replace(MEMBER, last_entry=9, member_epoch=9))]


def test_a_member_that_is_gone_at_the_end_gives_a_tombstone_if_it_was_there() -> None:
    recording = delta(MEMBER)
    recording.remove(MEMBER.key)
    recording.put(MEMBER)
    recording.remove(MEMBER.key)
    assert members(recording) == [(MEMBER.key, None)]
    recording = delta()
    recording.put(MEMBER)
    recording.remove(MEMBER.key)
    assert members(recording) == []


HALF = HalfState("g", "h", (), 5, 1, 1_000, 1_005)
DISCARDED = replace(HALF, checks=1, discarded_entry=7)
DISCARD_KEY: StateKey = ("half_discarded", "g", "h")
SETTLED_KEY: StateKey = ("half_settled", "g", "h")


def halves(recording: RecordingDelta, table: str) -> list[tuple[StateKey, object]]:
    return [(change.key, change.record) for change in recording.history(table)]


def test_a_half_message_has_one_row_for_each_change() -> None:
    recording = delta()
    checked = replace(HALF, checks=1)
    for record in (HALF, checked, checked):
        recording.put(record)
    recording.remove(HALF.key)
    assert halves(recording, "half") == [(HALF.key, HALF), (HALF.key, checked), (HALF.key, None)]
    assert halves(recording, "half_discarded") == []
    assert halves(delta(HALF), "half") == []


def test_a_half_message_that_is_discarded_has_a_row_and_one_that_is_resumed_a_tombstone() -> None:
    recording = delta(HALF)
    recording.put(DISCARDED)
    assert halves(recording, "half_discarded") == [(DISCARD_KEY, DISCARDED)]
    recording = delta(DISCARDED)
    recording.put(HALF)
    assert halves(recording, "half_discarded") == [(DISCARD_KEY, None)]
    recording = delta(DISCARDED)
    recording.remove(HALF.key)
    assert halves(recording, "half_discarded") == [(DISCARD_KEY, None)]
    recording = delta(HALF)
    recording.remove(HALF.key)
    assert halves(recording, "half_discarded") == []
    assert halves(recording, "half") == [(HALF.key, None)]


def test_only_what_is_discarded_or_resumed_between_an_entrys_begin_and_its_end_is_shown() -> None:
    recording = delta(DISCARDED)
    recording.put(DISCARDED)
    assert halves(recording, "half_discarded") == []
    again = replace(DISCARDED, discarded_entry=9)
    recording.put(HALF)
    recording.put(again)
    assert halves(recording, "half_discarded") == [(DISCARD_KEY, None), (DISCARD_KEY, again)]


def test_each_half_message_that_is_settled_has_a_row() -> None:
    recording = delta()
    settled = [SettledHalf("g", name, HalfOutcome.COMMITTED, "producer", 3, "t") for name in ("a", "b", "h")]
    last = settled[-1]
    recording.put(HalfOutcomes(0, tuple(settled)))
    assert halves(recording, "half_settled") == [(SETTLED_KEY, last)]
    assert halves(recording, "half") == []


def test_a_record_is_shown_as_it_was_before_the_entry() -> None:
    recording = delta(EMPTY)
    recording.put(ONGOING)
    assert recording.before(EMPTY.key) is EMPTY
    assert recording.before(OFFSET.key) is None
