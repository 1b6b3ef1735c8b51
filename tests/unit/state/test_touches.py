"""Each command says which parts of the state it touches."""

from __future__ import annotations

from typing import get_args

import msgspec

from sparktxn.format.checkpoint import part_of
from sparktxn.format.commands import Append, Appends, Command, EndTxn
from sparktxn.state import machine, touches
from sparktxn.structs import PartitionState, StoreState
from tests.purelog import PureLog


def test_every_command_says_what_it_touches() -> None:
    commands = set(get_args(Command))
    assert set(touches._TOUCHES) == commands
    assert set(machine._HANDLERS) == commands - {Appends}
    assert commands >= touches.CONFINED >= touches._IN_A_TRANSACTION
    for command in touches.CONFINED:
        fields = {field.name for field in msgspec.structs.fields(command)}
        assert ("transactional_id" in fields) == (command in touches._IN_A_TRANSACTION)


def test_ending_a_transaction_touches_the_partitions_and_groups_of_its_record() -> None:
    log = PureLog()
    log.create_topic(partition_count=2)
    producer = log.initialise("id")
    log.submit(producer.append((1, 1), 0, transaction=1), producer.offset(1, "group", (1, 0), 5))
    before = dict(log.records)
    log.submit(producer.end(1))
    changed = {part_of(key) for key in {*before, *log.records} if before.get(key) != log.records.get(key)}
    named = touches.touched_by_end(before["transaction", "id"])
    own = touches.touches(EndTxn("id", producer.producer_id, 0, 1, committed=True), 5)
    assert changed <= named | set(own)
    assert part_of(("partition", 1, 0)) in named
    assert part_of(("offset", "group", 1, 0)) in named


def test_an_append_outside_of_transactions_touches_none() -> None:
    append = Append(1, 0, "segment", 1, 1, "00000000", 7, 0, 0, 1, 1)
    assert touches.transaction_of(append) is None
    assert not [part for part in touches.touches(append, 5) if part.startswith("transactions/")]


def test_only_the_store_and_the_end_of_a_partition_are_not_steady() -> None:
    assert touches.is_unsteady(("store",), StoreState())
    assert touches.is_unsteady(("partition", 1, 0), None)
    assert not touches.is_unsteady(("partition", 1, 0), PartitionState(1, 0))
    assert not touches.is_unsteady(("offset", "group", 1, 0), None)
