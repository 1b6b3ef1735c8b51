"""The internal topics: what is known of them without a store, and their offsets."""

from __future__ import annotations

import pytest

from sparktxn._engine.state.internal import (
    INTERNAL_TOPIC_IDS,
    INTERNAL_TOPICS,
    _topic,
    entry_of,
    first_offset,
    partition_at,
    refuse_change,
)
from sparktxn._engine.state.topics import check_new_name
from sparktxn._foundation.values.structs import PartitionState, StateKey, TopicState
from sparktxn.errors import ErrorCode, KafkaException


def test_an_entrys_rows_begin_at_its_number_times_a_mebi() -> None:
    assert first_offset(3) == 3 * 2**20
    assert [entry_of(offset) for offset in (3 * 2**20 - 1, 3 * 2**20, 4 * 2**20 - 1)] == [2, 3, 3]


def test_a_topic_has_its_keys_its_columns_and_the_entry() -> None:
    """They are made as their module is imported, which no mutant sees: so one is made here."""
    columns = (("key", "string", False), ("count", "int64", True), ("entry", "int64", False))
    assert _topic(-9, "made", {"key": "string"}, {"count": "int64"}) == TopicState("made", -9, 1, {}, columns, 0)


@pytest.mark.parametrize("topic_id", INTERNAL_TOPIC_IDS)
def test_its_one_partition_ends_where_the_next_entrys_rows_begin(topic_id: int) -> None:
    records: dict[StateKey, PartitionState] = {}
    assert partition_at(records.get, 6, topic_id, 0) == PartitionState(topic_id, 0, 0, 7 * 2**20)
    assert partition_at(records.get, 6, topic_id, 1) is None


def test_a_stored_partition_is_the_states() -> None:
    stored = PartitionState(5, 0, 2, 9)
    assert partition_at({stored.key: stored}.get, 6, 5, 0) is stored
    assert partition_at({stored.key: stored}.get, 6, 5, 1) is None


@pytest.mark.parametrize("name", INTERNAL_TOPICS)
def test_nobody_changes_one(name: str) -> None:
    for refused in (refuse_change, check_new_name):
        with pytest.raises(KafkaException, match=f"topic '{name}' is internal: it shows what the log says") as raised:
            refused(name)
        assert raised.value.args[0].code() == ErrorCode.INVALID_TOPIC


def test_any_other_name_is_free() -> None:
    refuse_change("topic")
    assert check_new_name("topic") == "topic"
