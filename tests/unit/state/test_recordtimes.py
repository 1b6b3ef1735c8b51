"""Whose times records have: what a proposer refuses, by the state that its entry follows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparktxn._engine.state.delta import Refusal
from sparktxn._engine.state.settings import changes_times, has_times_of_entries, is_fixed, times_changed
from sparktxn._foundation.values.structs import PartitionState, StateKey, StateRecord, TopicState
from sparktxn.errors import ErrorCode

TYPE = "message.timestamp.type"
OF_ENTRIES = {TYPE: "LogAppendTime"}
OF_PRODUCERS = {TYPE: "CreateTime"}


def state(
    settings: dict[str, str], *ends: int, name: str = "t", topic_id: int = 7
) -> Callable[[StateKey], StateRecord | None]:
    """A state with one topic, whose partitions end at `ends`."""
    records: list[StateRecord] = [TopicState(name, topic_id, max(1, len(ends)), settings, None, 1)]
    records += [PartitionState(topic_id, number, 0, end) for number, end in enumerate(ends)]
    return {record.key: record for record in records}.get


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, False), (OF_PRODUCERS, False), (OF_ENTRIES, True), ({"segment.format": "LogAppendTime"}, False)],
)
def test_a_topic_has_times_of_entries_if_it_says_so(settings: dict[str, str], expected: bool) -> None:
    assert has_times_of_entries(settings) is expected


@pytest.mark.parametrize(
    ("settings", "changes", "expected"),
    [
        ({}, OF_ENTRIES, True),
        (OF_PRODUCERS, OF_ENTRIES, True),
        (OF_ENTRIES, OF_PRODUCERS, True),
        (OF_ENTRIES, {TYPE: None}, True),
        ({}, OF_PRODUCERS, False),
        (OF_PRODUCERS, {TYPE: None}, False),
        (OF_ENTRIES, OF_ENTRIES, False),
        (OF_ENTRIES, {"segment.format": None}, False),
    ],
)
def test_a_change_changes_times_if_they_come_from_another_one(
    settings: dict[str, str], changes: dict[str, str | None], expected: bool
) -> None:
    assert changes_times(settings, changes) is expected


@pytest.mark.parametrize("ends", [(), (0,), (0, 0)])
def test_a_topic_that_never_had_records_may_change(ends: tuple[int, ...]) -> None:
    assert is_fixed(state(OF_ENTRIES, *ends), "t", 7, OF_PRODUCERS) is None


@pytest.mark.parametrize("ends", [(1,), (0, 1), (5, 0), (0, 0, 1)])
def test_one_that_has_had_records_keeps_whose_times_they_have(ends: tuple[int, ...]) -> None:
    assert is_fixed(state(OF_ENTRIES, *ends), "t", 7, OF_PRODUCERS) == Refusal(
        ErrorCode.INVALID_CONFIG,
        "setting 'message.timestamp.type' of topic 't' cannot become CreateTime: it has had records, whose times would "
        "change their meaning; keep LogAppendTime, or create another topic with CreateTime and copy them",
    )
    assert is_fixed(state({}, *ends), "t", 7, OF_ENTRIES) == Refusal(
        ErrorCode.INVALID_CONFIG,
        "setting 'message.timestamp.type' of topic 't' cannot become LogAppendTime: it has had records, whose times "
        "would change their meaning; keep CreateTime, or create another topic with LogAppendTime and copy them",
    )
    assert is_fixed(state(OF_ENTRIES, *ends), "t", 7, {"segment.format": "arrow"}) is None


def test_what_is_no_longer_the_topic_is_left_to_the_state() -> None:
    assert is_fixed(state(OF_ENTRIES, 1), "other", 7, OF_PRODUCERS) is None
    assert is_fixed(state(OF_ENTRIES, 1), "t", 8, OF_PRODUCERS) is None
    assert times_changed(state(OF_ENTRIES), {"other": (7, False)}) is None
    assert times_changed(state(OF_ENTRIES), {"t": (8, False)}) is None


def test_records_are_sent_again_if_their_topic_has_changed_meanwhile() -> None:
    assert times_changed(state(OF_ENTRIES), {}) is None
    assert times_changed(state(OF_ENTRIES), {"t": (7, True)}) is None
    assert times_changed(state(OF_PRODUCERS), {"t": (7, False)}) is None
    refused = Refusal(
        ErrorCode.INVALID_TIMESTAMP,
        "setting 'message.timestamp.type' of topic 't' was changed before its first records: send them again",
    )
    assert times_changed(state(OF_ENTRIES), {"t": (7, False)}) == refused
    assert times_changed(state({}), {"gone": (1, True), "t": (7, True)}) == refused
