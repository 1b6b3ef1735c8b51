"""Each command says which parts of the state it touches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

import msgspec
import pytest
from msgspec.structs import replace

from sparktxn._engine.format import commands as c
from sparktxn._engine.format.checkpoint import part_of
from sparktxn._engine.format.commands import Append, Command, EndTxn
from sparktxn._engine.format.names import inline_segment
from sparktxn._engine.state import touchedparts
from sparktxn._engine.state.halfmessages import outcomes_key
from sparktxn._engine.state.requests import request_key
from sparktxn._engine.state.rules import RULES, Scope, files_named_by, is_confined, parts_touched_by, transaction_of
from sparktxn._foundation.values.structs import (
    HalfSegment,
    ManifestRef,
    PartitionState,
    StateKey,
    StoreState,
    TransactionState,
    TransactionStatus,
)
from tests.purelog import PureLog


def test_every_command_says_what_it_touches() -> None:
    assert set(RULES) == set(get_args(Command))
    for command, rule in RULES.items():
        fields = {field.name for field in msgspec.structs.fields(command)}
        is_confined = rule.scope is not Scope.OPEN
        assert not is_confined or ("transactional_id" in fields) == (rule.scope is Scope.TRANSACTION)
        # A file that no command is seen to name would be deleted by a vacuum.
        assert (rule.files is not touchedparts.no_files) == bool(fields & {"segment", "segments"})


def test_ending_a_transaction_touches_the_partitions_and_groups_of_its_record() -> None:
    log = PureLog()
    log.create_topic(partition_count=2)
    producer = log.initialise("id")
    log.submit(producer.append((1, 1), 0, transaction=1), producer.offset(1, "group", (1, 0), 5))
    before = dict(log.records)
    log.submit(producer.end(1))
    changed = {part_of(key) for key in {*before, *log.records} if before.get(key) != log.records.get(key)}
    named = touchedparts.touched_by_end(before["transaction", "id"])
    own = parts_touched_by(EndTxn("id", producer.producer_id, 0, 1, committed=True), 5)
    assert changed <= named | set(own)
    assert part_of(("partition", 1, 0)) in named
    assert part_of(("offset", "group", 1, 0)) in named


def test_an_append_outside_of_transactions_touches_none() -> None:
    append = Append(1, 0, "segment", 1, 1, "00000000", 7, 0, 0, 1, 1)
    assert transaction_of(append) is None
    assert not [part for part in parts_touched_by(append, 5) if part.startswith("transactions/")]


def test_only_the_store_and_the_end_of_a_partition_are_not_steady() -> None:
    assert touchedparts.is_unsteady(("store",), StoreState())
    assert touchedparts.is_unsteady(("partition", 1, 0), None)
    assert not touchedparts.is_unsteady(("partition", 1, 0), PartitionState(1, 0))
    assert not touchedparts.is_unsteady(("offset", "group", 1, 0), None)


def parts(*keys: StateKey) -> set[str]:
    return {part_of(key) for key in keys}


def in_partition(topic_id: int, partition: int, producer_id: int) -> list[StateKey]:
    where = (topic_id, partition)
    return [("partition", *where), ("segments", *where), ("producer", *where, producer_id)]


TRANSACTION: StateKey = ("transaction", "id")
GROUP: StateKey = ("offset", "group", 0, 0)
REQUEST = request_key("r")
STORE: StateKey = ("store",)
HALF: StateKey = ("half", "group", "half")
OUTCOMES = outcomes_key("half")
TOPIC: StateKey = ("topic", "my.topic")
OTHER_TOPIC: StateKey = ("topic", "other")
RUN = ManifestRef("run", 0, 9, 1, 0, 1, 1, 1, 1, 1, "00000000")
NAMED: list[tuple[Command, list[StateKey]]] = [
    (c.CreateTopic("r", "my.topic", 1), [STORE, REQUEST, TOPIC]),
    (c.AlterTopic("r", "my.topic", 1), [STORE, REQUEST, TOPIC]),
    (c.AlterStore("r", {}), [STORE, REQUEST]),
    (c.CreatePartitions("r", "my.topic", 1, 3), [STORE, REQUEST, TOPIC]),
    (c.DeleteTopic("r", "my.topic", 1), [STORE, REQUEST, TOPIC]),
    (c.DeleteRecords("r", 70, 130, 5), [REQUEST, ("partition", 70, 130), ("segments", 70, 130)]),
    (c.InitProducerId("r"), [STORE, REQUEST]),
    (c.InitProducerId("r", "id"), [STORE, REQUEST, TRANSACTION]),
    (c.AddPartitionsToTxn("id", 5, 0, 1, ()), [TRANSACTION]),
    (
        c.AddPartitionsToTxn("id", 5, 0, 1, ((70, 130), (71, 0))),
        [TRANSACTION, *in_partition(70, 130, 5), *in_partition(71, 0, 5)],
    ),
    (c.AddOffsetsToTxn("id", 5, 0, 1, "group"), [TRANSACTION]),
    (c.Append(70, 130, "s", 1, 1, "00000000", 5, 0, 0, 1, 1), in_partition(70, 130, 5)),
    (
        c.Append(70, 130, "s", 1, 1, "00000000", 5, 0, 0, 1, 1, "id", 1),
        [TRANSACTION, *in_partition(70, 130, 5)],
    ),
    (c.Appends("object", "00000000", 0, 1), []),
    (c.TxnOffsetCommit("id", 5, 0, 1, "group", ()), [TRANSACTION, GROUP]),
    (c.OffsetCommit("r", "group", ()), [REQUEST, GROUP]),
    (c.DeleteGroup("r", "group", ()), [REQUEST, GROUP]),
    (EndTxn("id", 5, 0, 1, True), [TRANSACTION]),
    (c.ExpectEndOffset("id", 5, 0, 1, 70, 130, 9), [TRANSACTION, ("partition", 70, 130)]),
    (c.PrepareTxn("id", 5, 0, 1), [TRANSACTION]),
    (c.SinkBatchCommit("id", 5, 0, 1, "w", "run", 1, "f"), [TRANSACTION]),
    (c.ExpireTransactionalId("id", 5, 0, 1), [TRANSACTION]),
    (
        c.ExpireProducers(70, 130, ((5, 0, 0, 0), (6, 0, 0, 0))),
        [("partition", 70, 130), ("producer", 70, 130, 5), ("producer", 70, 130, 6)],
    ),
    (c.ExpireOffsets("group", ((70, 130), (71, 0))), [GROUP, ("partition", 70, 130), ("partition", 71, 0)]),
    (c.JoinGroup("r", "group", "m", ("my.topic", "other"), 1, 1, ("uniform",)), [REQUEST, GROUP, TOPIC, OTHER_TOPIC]),
    (c.UpdateMember("r", "group", "m", 5, ("my.topic",)), [REQUEST, GROUP, TOPIC]),
    (c.ReleasePartitions("r", "group", "m", 5, 4, ((70, 130),)), [REQUEST, GROUP]),
    (c.LeaveGroup("r", "group", "m"), [REQUEST, GROUP]),
    (c.ExpireMember("group", "m", 5, 5, "session", 1), [GROUP]),
    (
        c.Rewrite("r", 70, 130, 0, 9, 5, ("s",), RUN),
        [STORE, REQUEST, ("partition", 70, 130), ("segments", 70, 130)],
    ),
    (
        c.PublishTables("r", 4, 4, (c.TableToPublish("my.topic", 70, 0, "/", 0),)),
        [STORE, REQUEST, TOPIC, ("table", 70)],
    ),
    (c.Vacuum(1, 1), [STORE]),
    (
        c.PrepareHalf("group", "half", (HalfSegment("my.topic", 70, 130, "s", 1, 1, "00000000", 1, 1),), 5),
        [STORE, HALF, OUTCOMES, TOPIC, ("partition", 70, 130)],
    ),
    (c.CheckHalf("group", "half", 0, "checker", 5), [HALF, OUTCOMES]),
    (c.EndHalf("group", "half", True), [HALF, OUTCOMES]),
    (c.DiscardHalf("group", "half", 0), [HALF, OUTCOMES]),
    (c.ResumeHalf("group", "half", 5), [HALF, OUTCOMES]),
    (c.DeleteHalf("group", "half"), [HALF, OUTCOMES]),
    (c.RequireFeatures(), [STORE]),
]


@pytest.mark.parametrize(("command", "keys"), NAMED, ids=lambda given: type(given).__name__)
def test_a_command_touches_the_parts_of_the_records_that_it_names(command: Command, keys: list[StateKey]) -> None:
    """Of each table another number, so that no two of them are in one part."""
    assert set(parts_touched_by(command, 5)) == parts(*keys)


def test_every_command_is_among_those() -> None:
    others = {c.SettleIntent, c.CancelIntent}
    assert {type(command) for command, _ in NAMED} == set(get_args(Command)) - others


@pytest.mark.parametrize("kind", [c.SettleIntent, c.CancelIntent])
@pytest.mark.parametrize(
    ("base", "entry", "slots"),
    [
        (0, 1, [1]),
        (62, 65, [63, 64]),
        (63, 65, [64]),
        (63, 127, [64]),
        (63, 128, [64, 128]),
        (128, 127, [127]),
        (500, 127, [127]),
        (64, 1_063, [*range(65, 1_000), *range(64)]),
        (1_063, 1_070, [64]),
        (5, 1_100, range(1_000)),
    ],
)
def test_an_intent_touches_what_the_entries_after_its_base_have_settled(
    kind: type[c.SettleIntent | c.CancelIntent], base: int, entry: int, slots: Iterable[int]
) -> None:
    """That of its own entry too; for a base that is not there yet, which is refused, that alone."""
    assert set(parts_touched_by(kind("i", base), entry)) == parts(*[("intents", slot) for slot in slots])


def test_the_end_of_a_transaction_touches_each_partition_and_group_that_it_has_registered() -> None:
    record = TransactionState(
        "id", 5, 0, -1, -1, 1, TransactionStatus.ONGOING, 1, False, ((70, 130), (71, 0)), (("group", 1, 0), ("h", 2, 1))
    )
    expected = [*in_partition(70, 130, 5), *in_partition(71, 0, 5), GROUP, ("offset", "h", 0, 0)]
    assert touchedparts.touched_by_end(record) == parts(*expected)
    assert touchedparts.touched_by_end(replace(record, partitions=(), offsets=())) == frozenset()


@pytest.mark.parametrize("command", [command for command, _ in NAMED], ids=lambda given: type(given).__name__)
def test_a_confined_command_is_in_the_transaction_of_its_transactional_id(command: Command) -> None:
    named = getattr(command, "transactional_id", None) if is_confined(command) else None
    assert transaction_of(command) == named


def test_a_vacuum_keeps_the_files_that_commands_name() -> None:
    """Records that a command carries are in no file."""
    append = Append(70, 130, "s", 1, 9, "0000000a", 5, 0, 0, 1, 1)
    inline = inline_segment("0" * 20)
    halves = (
        HalfSegment("my.topic", 70, 130, "h", 1, 8, "0000000b", 1, 1),
        HalfSegment("my.topic", 70, 131, inline, 1, 7, "0000000c", 1, 1),
    )
    named = files_named_by(
        [
            append,
            replace(append, segment=inline, data=b"records"),
            c.CreateTopic("r", "my.topic", 1),
            c.PrepareHalf("group", "half", halves, 5, {inline: b"records"}),
            c.Rewrite("r", 70, 132, 0, 9, 5, ("s", "t"), RUN),
        ]
    )
    assert list(named) == [
        ((70, 130), "s", 9, "0000000a"),
        ((70, 130), "h", 8, "0000000b"),
        ((70, 132), "s", -1, ""),
        ((70, 132), "t", -1, ""),
    ]
