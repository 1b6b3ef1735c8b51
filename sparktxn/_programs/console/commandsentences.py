"""Commands of the log as sentences that a reader without the protocol at hand understands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import groupby
from typing import Any, Final

from sparktxn._engine.format import commands as c
from sparktxn._foundation.values.quantities import counted
from sparktxn._programs.console.pagetext import duration, number, size
from sparktxn.store.memberexpiry import group_of_members, is_members_name
from sparktxn.store.options import TopicIdPartition

Names = Mapping[int, str]
"""The names of topics by their ids."""

_SOME: Final = 4


def sentence(command: c.Command, names: Names, replaced: Collection[str] = ()) -> str:
    """Return what a command says, in one sentence without its full stop.

    `replaced` are the transactional ids that had a producer before the command: a new one has fenced it.
    """
    if isinstance(command, c.InitProducerId):
        return _initialise(command, is_replaced=command.transactional_id in replaced)
    return _SENTENCES[type(command)](command, names)


def sentences(commands: Iterable[c.Command], names: Names, replaced: Collection[str] = ()) -> list[str]:
    """Return what commands say, in their order: appends of one transaction that follow each other are one sentence."""
    found = []
    for _, group in groupby(commands, _same_append):
        together = list(group)
        found += [_appends(together, names)] if len(together) > 1 else [sentence(together[0], names, replaced)]
    return found


def _same_append(command: c.Command) -> object:
    """Return what is equal for appends of one transaction, or of none, and for no other two commands."""
    if not isinstance(command, c.Append):
        return id(command)
    return command.transactional_id, command.transaction if command.transactional_id is not None else None


def _appends(commands: list[Any], names: Names) -> str:
    counts = [f"{number(one.record_count)} to {_place(names, one.topic_id, one.partition)}" for one in commands]
    records, bytes_ = (sum(getattr(one, name) for one in commands) for name in ("record_count", "size_bytes"))
    what = f"{_many(records, 'record')} ({size(bytes_)}) are appended: {_listed(counts)}"
    return what + (f", in {_of(commands[0])}" if commands[0].transactional_id is not None else "")


def _topic(names: Names, topic_id: int) -> str:
    return names.get(topic_id, f"deleted topic {topic_id}")


def _place(names: Names, topic_id: int, partition: int) -> str:
    return f"{_topic(names, topic_id)}-{partition}"


def _places(names: Names, places: Iterable[TopicIdPartition]) -> str:
    return _listed([_place(names, *place) for place in places])


def _listed(found: list[str]) -> str:
    shown = ", ".join(found[:_SOME])
    return f"{shown} and {number(len(found) - _SOME)} more" if len(found) > _SOME else shown or "nothing"


def _of(command: Any) -> str:
    return f"transaction {command.transaction} of {command.transactional_id!r}"


def _many(count: int, thing: str) -> str:
    return counted(count, thing, number(count))


def _are(count: int, thing: str) -> str:
    return f"{_many(count, thing)} {'is' if count == 1 else 'are'}"


def _settings(settings: Mapping[str, str | None]) -> str:
    return _listed(
        [f"{name}={value}" if value is not None else f"{name} as by default" for name, value in settings.items()]
    )


def _append(command: c.Append, names: Names) -> str:
    where = _place(names, command.topic_id, command.partition)
    verb = "is" if command.record_count == 1 else "are"
    what = f"{_many(command.record_count, 'record')} ({size(command.size_bytes)}) {verb} appended to {where}"
    return what + (f", in {_of(command)}" if command.transactional_id is not None else "")


def _offsets(command: c.TxnOffsetCommit | c.OffsetCommit, names: Names) -> str:
    if not command.offsets and not command.member_id:
        kind = " that divide its work themselves" if is_members_name(command.group_id) else ""
        return f"{_group(command)} must have no members{kind} for what follows"
    found = [f"{_place(names, one.topic_id, one.partition)} to {number(one.offset)}" for one in command.offsets]
    return f"group {command.group_id!r} commits offsets: {_listed(found)}"


def _end(command: c.EndTxn, names: Names) -> str:
    if command.timed_out_after_ms:
        return f"{_of(command)} is aborted: it timed out after {duration(command.timed_out_after_ms)}"
    if command.fence_reason:
        return f"{_of(command)} is aborted and its producer fenced: {command.fence_reason}"
    return f"{_of(command)} is {'committed' if command.committed else 'aborted'}"


def _initialise(command: c.InitProducerId, *, is_replaced: bool) -> str:
    if command.transactional_id is None:
        return "a producer without a transactional id gets a producer id"
    said = f"a producer initialises {command.transactional_id!r}"
    if not is_replaced:
        return said
    reason = f": {command.fence_reason}" if command.fence_reason else ""
    kept = ", and keeps what was prepared" if command.keep_prepared else ""
    return f"{said}, and fences the one before it{kept}{reason}"


def _group(command: Any) -> str:
    """Return the group that a command is about; the log has some members under another name."""
    return f"group {group_of_members(command.group_id)!r}"


def _half(command: Any) -> str:
    return f"half transaction {command.transaction_id!r} of producer group {command.group_id!r}"


_SENTENCES: Final[dict[type, Callable[[Any, Names], str]]] = {
    c.CreateTopic: lambda e, n: (
        f"topic {e.name!r} is created with {_many(e.partition_count, 'partition')}"
        + (", typed" if e.schema is not None else "")
    ),
    c.AlterTopic: lambda e, n: (
        f"topic {e.name!r} is altered: "
        + _listed([part for part in (_settings(e.settings) if e.settings else "", _columns(e.new_columns)) if part])
    ),
    c.AlterStore: lambda e, n: f"defaults of the store are set: {_settings(e.settings)}",
    c.CreatePartitions: lambda e, n: f"topic {e.name!r} gets {_many(e.partition_count, 'partition')}",
    c.DeleteTopic: lambda e, n: f"topic {e.name!r} is deleted with all its records",
    c.InitProducerId: lambda e, n: _initialise(e, is_replaced=False),
    c.AddPartitionsToTxn: lambda e, n: f"{_of(e)} takes in {_places(n, e.partitions)}",
    c.AddOffsetsToTxn: lambda e, n: f"{_of(e)} takes in offsets of group {e.group_id!r}",
    c.Append: _append,
    c.Appends: lambda e, n: f"{_are(e.count, 'append')} listed in {e.object}",
    c.TxnOffsetCommit: lambda e, n: f"{_offsets(e, n)}, once {_of(e)} commits",
    c.OffsetCommit: _offsets,
    c.EndTxn: _end,
    c.ExpectEndOffset: lambda e, n: (
        f"{_of(e)} expects that {_place(n, e.topic_id, e.partition)} ends at offset " + number(e.log_end_offset)
    ),
    c.PrepareTxn: lambda e, n: f"{_of(e)} is prepared: it only waits for its end",
    c.ExpireTransactionalId: lambda e, n: f"idle transactional id {e.transactional_id!r} is forgotten",
    c.ExpireProducers: lambda e, n: (
        f"{_are(len(e.producers), 'idle producer')} forgotten in {_place(n, e.topic_id, e.partition)}"
    ),
    c.ExpireOffsets: lambda e, n: f"offsets of group {e.group_id!r} expire: {number(len(e.partitions) + len(e.idle))}",
    c.SinkBatchCommit: lambda e, n: f"{_of(e)} is micro-batch {e.batch_id} of {e.writer_id!r}",
    c.DeleteRecords: lambda e, n: (
        f"records of {_place(n, e.topic_id, e.partition)} before offset {number(e.before_offset)} are deleted"
    ),
    c.DeleteGroup: lambda e, n: f"{_group(e)} forgets {_many(len(e.offsets) + len(e.pending), 'offset')}",
    c.JoinGroup: lambda e, n: f"member {e.member_id!r} joins {_group(e)} for {_listed(list(e.topics))}",
    c.UpdateMember: lambda e, n: f"member {e.member_id!r} of {_group(e)} now subscribes to " + _listed(list(e.topics)),
    c.ReleasePartitions: lambda e, n: f"member {e.member_id!r} of {_group(e)} gives back " + _places(n, e.partitions),
    c.LeaveGroup: lambda e, n: (
        f"member {e.member_id!r} leaves {_group(e)}" + (", and keeps its place" if e.keeps_place else "")
    ),
    c.ExpireMember: lambda e, n: (
        f"member {e.member_id!r} of {_group(e)} is taken out: its {e.reason} time-out "
        f"has passed after {duration(e.after_ms)}"
    ),
    c.Rewrite: lambda e, n: (
        ("a compaction" if e.compaction is not None else "a rewrite")
        + f" replaces the files of {_place(n, e.topic_id, e.partition)} from offset {number(e.base_offset)} to "
        f"{number(e.end_offset)} by {number(len(e.segments))}"
    ),
    c.PublishTables: lambda e, n: (
        f"tables of {_listed([_topic(n, one.topic_id) for one in e.tables])} show what "
        f"entries up to {number(e.entry)} have committed"
    ),
    c.Vacuum: lambda e, n: (
        f"the vacuum raises the horizon to entry {number(e.horizon)}: what only older views need may be deleted"
    ),
    c.RequireFeatures: lambda e, n: f"the store requires {_listed([*e.reader_features, *e.writer_features])}",
    c.SettleIntent: lambda e, n: (
        f"intent {e.intent_id} is refused: {e.reason}"
        if e.refused_code
        else f"intent {e.intent_id} takes effect: its commands are the next {number(e.command_count)}"
    ),
    c.CancelIntent: lambda e, n: f"intent {e.intent_id} is cancelled by its owner",
    c.PrepareHalf: lambda e, n: (
        f"{_half(e)} is stored: {_many(sum(one.record_count for one in e.segments), 'message')} in wait of its end"
    ),
    c.CheckHalf: lambda e, n: f"{_half(e)} is checked, after {_many(e.checks, 'check')}",
    c.EndHalf: lambda e, n: (
        f"{_half(e)} is {'committed' if e.committed else 'rolled back'}" + (" by a check" if e.by_check else "")
    ),
    c.DiscardHalf: lambda e, n: f"{_half(e)} is discarded after {_many(e.checks, 'check')}",
    c.ResumeHalf: lambda e, n: f"{_half(e)} waits again",
    c.DeleteHalf: lambda e, n: f"{_half(e)} is forgotten",
}


def _columns(columns: Iterable[tuple[str, str, bool]]) -> str:
    return _listed([f"column {name} {kind}" for name, kind, _ in columns]) if columns else ""
