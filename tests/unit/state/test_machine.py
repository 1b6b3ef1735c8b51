"""Deltas, and lists of commands: all or nothing, and what has taken effect before is not written again."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Command, CreateTopic, InitProducerId, Vacuum
from sparktxn._engine.format.names import segment_file
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.machine import Applied, apply, apply_entry, apply_list
from sparktxn._foundation.values.structs import PartitionState, StateKey, StateRecord, StoreState
from sparktxn.errors import DamagedObject, ErrorCode
from tests.purelog import PureLog

HERE = (1, 0)


def test_a_delta_reads_what_it_has_changed_before_what_is_below() -> None:
    below: dict[Any, Any] = {("partition", 1, 0): PartitionState(1, 0), ("partition", 1, 1): PartitionState(1, 1)}
    delta = Delta(below.get)
    delta.put(PartitionState(1, 0, 0, 5))
    delta.remove(("partition", 1, 1))
    assert [delta.get(("partition", 1, number)) for number in range(3)] == [PartitionState(1, 0, 0, 5), None, None]
    assert delta.changes == {("partition", 1, 0): PartitionState(1, 0, 0, 5), ("partition", 1, 1): None}
    delta.put(PartitionState(1, 1))
    assert delta.get(("partition", 1, 1)) == below["partition", 1, 1]
    assert len(below) == 2


def test_a_delta_goes_back_to_a_mark() -> None:
    below: dict[Any, Any] = {("partition", 1, number): PartitionState(1, number) for number in range(2)}
    delta = Delta(below.get)
    delta.put(PartitionState(1, 0, 0, 5))
    mark, kept = len(delta.replaced), dict(delta.changes)
    delta.put(PartitionState(1, 0, 0, 7))
    delta.put(PartitionState(1, 0, 0, 8))
    delta.remove(("partition", 1, 1))
    assert delta.since(mark) == {("partition", 1, 0): PartitionState(1, 0, 0, 8), ("partition", 1, 1): None}
    delta.undo(mark)
    assert delta.changes == kept
    assert delta.get(("partition", 1, 1)) == below["partition", 1, 1]
    delta.undo(0)
    assert not delta.changes


def test_lists_of_one_delta_see_what_those_before_have_changed(log: PureLog) -> None:
    """One that is refused, or fails, leaves nothing of itself: the lists after it are applied as without it."""
    delta, context = Delta(log.records.get), Context(log.entry + 1, 5)
    assert isinstance(apply_list(delta, [InitProducerId("a", "id")], context), Applied)
    kept = dict(delta.changes)
    assert isinstance(apply_list(delta, [InitProducerId("b", "id"), Vacuum(50, 0)], context), Refusal)
    assert delta.changes == kept
    with pytest.raises(KeyError):
        apply_list(delta, [InitProducerId("b", "id"), cast("Command", object())], context)
    assert delta.changes == kept
    again = apply_list(delta, [InitProducerId("b", "id")], context)
    assert isinstance(again, Applied)
    assert again.results[0].producer_epoch == 1


def test_the_stores_record_is_there_from_the_start() -> None:
    records: dict[StateKey, StateRecord] = {}
    assert Delta(records.get).store() == StoreState()
    known = StoreState(next_producer_id=4)
    records[known.key] = known
    assert Delta(records.get).store() == known


def test_an_entry_that_the_state_refuses_is_damaged(log: PureLog) -> None:
    with pytest.raises(DamagedObject, match="a command of it: topic 'topic' ") as damaged:
        apply_entry(Delta(log.records.get), [InitProducerId("i"), CreateTopic("c", "topic", 1)], Context(17, 5))
    assert names.entry(17) in str(damaged.value)


def test_an_entry_is_applied_with_its_number_and_time(log: PureLog) -> None:
    delta = Delta(log.records.get)
    apply_entry(delta, [InitProducerId("i", "id"), CreateTopic("c", "other", 1)], Context(17, 5))
    assert delta.get(("topic", "other")).created_entry == 17
    assert delta.get(("transaction", "id")).last_update_timestamp_ms == 5
    one = Delta(log.records.get)
    apply(one, CreateTopic("c", "other", 1), Context(17, 5))
    assert one.get(("topic", "other")).created_entry == 17


def test_a_list_answers_in_order_and_leaves_out_what_was_done_before(log: PureLog) -> None:
    done = InitProducerId("done")
    log.submit(done)
    list_: list[Command] = [done, CreateTopic("c", "other", 1), InitProducerId("new"), done]
    listed = Delta(log.records.get)
    applied = apply_list(listed, list_, Context(log.entry + 1, 5))
    assert isinstance(applied, Applied)
    assert [(result.duplicate, result.topic_id, result.producer_id) for result in applied.results] == [
        (True, -1, 0), (False, 2, -1), (False, -1, 1), (True, -1, 0),
    ]  # fmt: skip
    assert applied.to_write == list_[1:3]
    delta = Delta(log.records.get)
    apply_entry(delta, list_[1:3], Context(log.entry + 1, 5))
    assert listed.changes == delta.changes


def test_a_refusal_in_a_list_is_that_of_its_command(log: PureLog) -> None:
    list_: list[Command] = [InitProducerId("new"), Vacuum(50, 0)]
    delta = Delta(log.records.get)
    refused = apply_list(delta, list_, Context(log.entry + 1, 5))
    assert isinstance(refused, Refusal)
    assert not delta.changes
    assert refused.code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.kafka("K57")
@pytest.mark.parametrize("others_first", [False, True])
def test_batches_that_are_not_remembered_are_repeated_only_with_one_that_is(log: PureLog, others_first: bool) -> None:
    """What is found under another command of the list, its end or a request, does not vouch for segments."""
    producer = log.initialise("id")
    stored = [producer.append(HERE, sequence, transaction=1) for sequence in range(7)]
    log.submit(*stored, producer.end(1))
    assert [result.base_offset for result in log.submit(stored[0], stored[6])] == [-1, 6]
    assert [result.base_offset for result in log.submit(stored[6], stored[0])] == [6, -1]
    others: list[Command] = [InitProducerId("init id at 1", "id"), producer.end(1)]
    another = producer.append(HERE, 0, transaction=1, segment=segment_file(0, "0" * 20, "arrow"))
    new = log.initialise(None).append(HERE, 0)
    for append in (stored[0], another):
        lists: list[list[Command]] = [[append], [append, new], [append, *others]]
        for list_ in lists:
            ordered = list_[::-1] if others_first else list_
            assert log.refusal(*ordered) == ErrorCode.INVALID_TXN_STATE
