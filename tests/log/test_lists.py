"""A list that cannot be written, or not be read again, is refused to its caller, and stops no other client."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, cast

import msgspec
import numpy
import pytest
from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import part_of
from sparktxn._engine.format.commands import Appends, Command, CreateTopic, InitProducerId, OffsetCommit, OffsetToCommit
from sparktxn._engine.format.entry import decode_entry, decode_list, encode_intent, encode_list
from sparktxn._engine.log.follow.checkpointheads import newest_head
from sparktxn._engine.log.write import composing, queue
from sparktxn._engine.log.write.queue import LIST_BYTES_MAX, LISTS_BYTES_MAX, checked_list
from sparktxn._engine.objectstore.contract import OBJECT_SIZE_MAX
from sparktxn._engine.state.rules import RULES
from sparktxn.errors import CommandRefused, DamagedObject, ErrorCode, KafkaException
from tests.producercommands import ProducerCommands

LEFT = (1, 0)
# A text, a checksum, and the name of a run's folder.
TEXTS = ("text", "0" * 8, names.sealed_folder(0, 1, "0" * 20))
HOSTILE = [
    5.0,
    5.5,
    math.inf,
    math.nan,
    True,
    Decimal(5),
    2**63,
    -(2**63) - 1,
    2**64,
    numpy.int64(5),
    numpy.float64(5),
    numpy.array([5]),
    None,
    b"text",
    bytearray(b"text"),
    "\ud800",
    "text\udfff",
    [],
    {"text": 1},
    object(),
]


def offset_commit(request_id: str, offset: Any = 1, *, metadata: Any = None, group: Any = "group") -> OffsetCommit:
    return OffsetCommit(request_id, group, (OffsetToCommit(*LEFT, offset, metadata),))


@pytest.mark.parametrize(
    "command",
    [
        offset_commit("bad", 5.0),
        offset_commit("bad", True),
        offset_commit("bad", 2**63),
        offset_commit("bad", numpy.int64(5)),
        offset_commit("bad", Decimal(5)),
        offset_commit("bad", math.inf),
        offset_commit("bad", metadata="\ud800"),
        offset_commit("bad", group=b"group"),
        InitProducerId("bad", transactional_id=5),  # type: ignore[arg-type]
        InitProducerId("bad", transactional_id=b"five"),  # type: ignore[arg-type]
    ],
)
def test_a_list_that_no_reader_would_take_is_refused_at_once_and_queued_never(shared, client, command: Command) -> None:
    waiting = client.log.send([offset_commit("good", 7)])
    kind = type(command).__name__
    with pytest.raises(CommandRefused, match=rf"command 2 of 2 \({kind}\) holds a value that the log") as refused:
        client.log.send([offset_commit("first"), command])
    assert refused.value.error.code() == ErrorCode.LOCAL_INVALID_ARG
    with client.log.within(1):
        waiting.wait()
    assert shared.client().log.committed_offset("group", *LEFT).offset == 7


def test_segments_of_objects_may_take_more_than_the_rest_of_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends go into an object as columns; those that carry their records stay in the entry, and count as the rest."""
    monkeypatch.setattr(queue, "LIST_BYTES_MAX", 1_000)
    monkeypatch.setattr(queue, "APPENDS_BYTES_MAX", 10_000)
    producer = ProducerCommands("id", 1, 0)
    appends = [producer.append(LEFT, sequence, transaction=1) for sequence in range(20)]
    assert 1_000 < len(encode_list(appends)) < 10_000
    assert checked_list(appends).commands == tuple(appends)
    inline = [producer.append(LEFT, sequence, transaction=1, data=b"records") for sequence in range(20)]
    assert len(encode_list(inline)) < 10_000
    refused_lists: list[list[Command]] = [
        [*inline],
        [*appends, offset_commit("one", metadata="m" * 1_000)],
        [*appends, *appends, *appends],
    ]
    for too_large in refused_lists:
        with pytest.raises(CommandRefused, match="too large for one log entry") as refused:
            checked_list(too_large)
        assert refused.value.error.code() == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("limit", ["LIST_BYTES_MAX", "APPENDS_BYTES_MAX"])
def test_a_list_may_have_as_many_bytes_as_the_limit_says(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    producer = ProducerCommands("id", 1, 0)
    appends = [producer.append(LEFT, sequence, transaction=1) for sequence in range(20)]
    rest = offset_commit("one", metadata="m" * 1_000)
    appends_bytes = len(encode_list(appends))
    most = {"LIST_BYTES_MAX": len(encode_list([*appends, rest])) - appends_bytes, "APPENDS_BYTES_MAX": appends_bytes}
    for name, size in most.items():
        monkeypatch.setattr(queue, name, size)
    assert checked_list([*appends, rest]).commands == (*appends, rest)
    monkeypatch.setattr(queue, limit, most[limit] - 1)
    with pytest.raises(CommandRefused, match="too large for one log entry"):
        checked_list([*appends, rest])


def test_a_value_that_a_reader_would_take_for_another_is_named() -> None:
    with pytest.raises(CommandRefused, match="cannot hold: a reader would find another value"):
        checked_list([offset_commit("bad", group=b"group")])


def test_a_list_that_fails_only_as_a_whole_is_refused_to_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(commands: Any) -> bytes:
        if len(commands) == 2:
            raise ZeroDivisionError("a defect")
        return encode_list(commands)

    monkeypatch.setattr(queue, "encode_list", fail)
    with pytest.raises(CommandRefused, match="the commands cannot be written: a defect") as refused:
        checked_list([offset_commit("one"), offset_commit("two")])
    assert refused.value.error.code() == ErrorCode.LOCAL_INVALID_ARG


def commands_of_every_type() -> Iterator[Command]:
    for kind in msgspec.inspect.multi_type_info([kind for kind in RULES if kind is not Appends]):
        assert isinstance(kind, msgspec.inspect.StructType)
        command: Command = msgspec.convert(example(kind), cast(Any, kind.cls))
        yield command


def example(kind: Any) -> Any:
    """A value of the type, without anything optional."""
    match kind:
        case msgspec.inspect.StructType():
            values = [example(field.type) for field in kind.fields]
            if kind.array_like:
                return values
            return {field.encode_name: value for field, value in zip(kind.fields, values, strict=True)} | (
                {"type": kind.tag} if kind.tag else {}
            )
        case msgspec.inspect.IntType():
            return 1
        case msgspec.inspect.StrType():
            return next(text for text in TEXTS if kind.pattern is None or re.search(kind.pattern, text))
        case msgspec.inspect.BoolType():
            return True
        case msgspec.inspect.BytesType():
            return b"bytes"
        case msgspec.inspect.DictType():
            return {"text": "text"}
        case msgspec.inspect.TupleType():
            return [example(item) for item in kind.item_types]
        case msgspec.inspect.VarTupleType():
            return [example(kind.item_type)]
        case msgspec.inspect.UnionType():
            return example(next(one for one in kind.types if not isinstance(one, msgspec.inspect.NoneType)))
    raise AssertionError(f"an example of {kind} is missing")


def with_hostile(value: Any, hostile: Any) -> Iterator[Any]:
    """`value` with `hostile` in the place of each value in it."""
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            for changed in with_hostile(getattr(value, field), hostile):
                yield replace(value, **{field: changed})
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            for changed in with_hostile(item, hostile):
                yield (*value[:index], changed, *value[index + 1 :])
    elif isinstance(value, dict):
        yield from ({"text": changed} for changed in with_hostile(value["text"], hostile))
    yield hostile


@pytest.mark.parametrize("command", list(commands_of_every_type()), ids=lambda command: type(command).__name__)
def test_whatever_is_queued_is_what_a_reader_decodes(command: Command) -> None:
    """Each value in each command, in turn, is each of the hostile ones: refused, or read back as it is."""
    assert checked_list([command]).commands == (command,)
    refused = 0
    for hostile in HOSTILE:
        for changed in with_hostile(command, hostile):
            try:
                commands, encoded = checked_list([changed])
            except CommandRefused:
                refused += 1
                continue
            assert commands == decode_list(encoded)
            assert encode_list(commands) == encoded
    assert refused > len(HOSTILE) // 2


@pytest.mark.parametrize("failing", ["apply_list", "encode_entry"])
def test_what_fails_with_one_list_is_told_to_its_owner_and_the_others_go_on(
    shared, client, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """A defect, of the state machine or of an encoder, that one list brings to light."""
    original = getattr(composing, failing)

    def fail(*arguments: Any) -> Any:
        if "poison" in repr(arguments):
            raise ZeroDivisionError("a defect")
        return original(*arguments)

    monkeypatch.setattr(composing, failing, fail)
    poison = client.log.send([offset_commit("a", metadata="poison", group="poison")])
    others = [client.log.send([offset_commit(f"b{number}", number, group=f"group-{number}")]) for number in range(3)]
    for ticket in others:
        try:
            with client.log.within(1):
                ticket.wait()
        except KafkaException:
            pytest.fail("another client's list must not fail")
    with pytest.raises(KafkaException, match="a defect of sparktxn: ZeroDivisionError"), client.log.within(1):
        poison.wait()
    assert sorted(shared.client().log.group_ids()) == ["group-0", "group-1", "group-2"]


def test_a_defect_that_no_list_has_brought_about_is_told_once_to_each_and_then_over(
    client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tickets = [client.log.send([offset_commit(f"{number}")]) for number in range(3)]
    with monkeypatch.context() as patched:
        patched.setattr(composing, "LogEntry", None)
        for ticket in tickets:
            with pytest.raises(KafkaException, match="TypeError"), client.log.within(1):
                ticket.wait()
    client.submit(offset_commit("well", 3))
    assert client.log.committed_offset("group", *LEFT).offset == 3


@pytest.mark.parametrize("failing", ["apply_list", "_settle"])
def test_an_intent_that_cannot_be_applied_is_left_to_its_owner(
    shared, client, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """What was applied of it by then is in no entry, and must be in no state."""
    poison = encode_intent("1" * 20, 1, [[offset_commit("a", group="poison")]])
    shared.objects.put(names.intent(1, "1" * 20), poison)
    original, met = getattr(composing, failing), []

    def fail(*arguments: Any) -> Any:
        if "poison" in repr(arguments):
            met.append(arguments)
            raise ZeroDivisionError("a defect")
        return original(*arguments)

    monkeypatch.setattr(composing, failing, fail)
    client.submit(offset_commit("b"))
    client.submit(offset_commit("c"))
    assert len(met) == 1
    assert client.log.group_ids() == ["group"]


def test_a_part_of_the_state_that_is_damaged_stops_only_those_who_need_it(shared, client) -> None:
    for number in range(30):
        client.submit(offset_commit(f"{number}", number, group=f"group-{number}"))
    client.log.checkpoint()
    shared.vacuum(20)
    groups = {number: part_object(shared, f"group-{number}") for number in range(30)}
    damaged = next(number for number in groups if list(groups.values()).count(groups[number]) == 1)
    fresh = shared.client()
    shared.objects.delete([groups[damaged]])
    stopped = fresh.log.send([offset_commit("x", group=f"group-{damaged}")])
    well = next(number for number in groups if groups[number] != groups[damaged])
    fresh.submit(offset_commit("y", 77, group=f"group-{well}"))
    with pytest.raises(DamagedObject), fresh.log.within(1):
        stopped.wait()
    assert shared.client().log.committed_offset(f"group-{well}", *LEFT).offset == 77


def part_object(shared, group: str) -> str:
    """The object that holds a group's part of the newest checkpoint."""
    head = newest_head(shared.objects)
    assert head is not None
    return str(head.parts[part_of(("offset", group, *LEFT))].name)


def test_many_large_refused_listsgo_into_entries_that_the_store_takes(shared, client) -> None:
    metadata = "m" * 4_096
    client.submit(CreateTopic("wide", "wide", 100))
    topic_id = client.log.topic("wide").topic_id
    offsets = tuple(OffsetToCommit(topic_id, partition, 1, metadata) for partition in range(100))
    count = OBJECT_SIZE_MAX // (100 * 4_096) + 2
    tickets = [client.log.send([OffsetCommit(f"r{number}", "group", offsets)]) for number in range(count)]
    tickets[-1].wait()
    assert all(ticket.is_done() for ticket in tickets)
    sizes = [len(shared.objects.get(names.entry(number))) for number in shared.names_of_entries()]
    assert max(sizes) < 2 * LISTS_BYTES_MAX


def test_a_list_that_is_too_large_for_any_entry_is_refused_before_it_is_queued(shared, client) -> None:
    offsets = tuple(OffsetToCommit(*LEFT, 1, "m" * 4_096) for _ in range(LIST_BYTES_MAX // 4_096 + 1))
    with pytest.raises(CommandRefused, match="too large for one log entry") as refused:
        client.log.send([OffsetCommit("large", "group", offsets)])
    assert refused.value.error.code() == ErrorCode.MESSAGE_TOO_LARGE
    client.submit(offset_commit("small"))
    assert shared.names_of_entries() == [1, 2]


def test_the_largest_list_is_written_and_read(shared, client) -> None:
    offsets = tuple(OffsetToCommit(*LEFT, number, "m" * 4_096) for number in range(LIST_BYTES_MAX // 4_150))
    client.submit(OffsetCommit("large", "group", offsets))
    name = names.entry(2)
    (command,) = decode_entry(shared.objects.get(name), name, 2).commands
    assert isinstance(command, OffsetCommit)
    assert command.offsets == offsets
    assert shared.client().log.committed_offset("group", *LEFT).offset == len(offsets) - 1
