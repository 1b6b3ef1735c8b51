"""The internal topics' offsets, and which topics are internal."""

from __future__ import annotations

from sparktxn.state.internal import CONSUMER_OFFSETS, TRANSACTION_STATE, entry_of, first_offset, is_internal
from sparktxn.values.structs import TopicState


def test_an_entrys_rows_begin_at_its_number_times_a_mebi() -> None:
    assert first_offset(3) == 3 * 2**20
    assert [entry_of(offset) for offset in (3 * 2**20 - 1, 3 * 2**20, 4 * 2**20 - 1)] == [2, 3, 3]


def test_two_topics_are_internal() -> None:
    assert is_internal(CONSUMER_OFFSETS)
    assert is_internal(TRANSACTION_STATE)
    assert not is_internal(TopicState("users", 2, 1, {}, None, 1))
