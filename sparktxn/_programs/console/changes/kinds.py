"""The changes that the console makes of topics, groups and transactions, by the names that addresses have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Self

import msgspec

from sparktxn import ReadView
from sparktxn._programs.console.changes.change import Change, Field, Planned, Row
from sparktxn._programs.console.changes.jobs import RunJob
from sparktxn._programs.console.pagesource import Source
from sparktxn._programs.console.pagetext import query, segment_path, visible
from sparktxn._programs.console.requestparameters import RequestParameters, WrongRequest
from sparktxn.admin import ConfigResource, NewTopic
from sparktxn.admin.configs import Column, TopicChange, alter_topic, describe_configs, parse_column
from sparktxn.admin.groups import OffsetMove, OffsetReset, ResetTarget, apply_reset, planned_reset
from sparktxn.admin.topics import changeable_topic, create_topic
from sparktxn.admin.transactions import (
    TransactionDescription,
    abort_ongoing,
    describe_transaction,
    fence_producer,
    ongoing_transaction,
)
from sparktxn.store import PARTITION_COUNT_MAX
from sparktxn.store.options import TopicPartitionKey
from sparktxn.store.reading import end_of

# Resetting the offsets of a group.

_TARGETS: Final[Mapping[ResetTarget, str]] = {
    "earliest": "the log start",
    "latest": "the last stable offset",
    "offset": "the offset below",
    "shift": "as many offsets further, or back, as below",
    "time": "the first record that is not older than the time below",
}
_WITH_VALUE: Final = ("offset", "shift", "time")
_INT64_MAX: Final = 2**63 - 1


class ResetOffsets(Change, frozen=True):
    """Other committed offsets of a group without members."""

    kind: ClassVar = "reset-offsets"
    heading: ClassVar = "Reset offsets of group {}"
    verb: ClassVar = "Set these offsets"
    subject: ClassVar = ("group",)

    reset: OffsetReset

    @classmethod
    def fields(cls, source: Source, asked: RequestParameters) -> list[Field]:
        """Return the fields of its form."""
        text = asked.entered
        return [
            Field(name="to", label="To", kind="choice", value=text("to"), choices=(*_TARGETS.items(),)),
            Field(name="offset", label="An offset", kind="number", value=text("offset"), help="Such as 120."),
            Field(
                name="shift",
                label="So many offsets further, or back",
                kind="number",
                value=text("shift"),
                help="Such as 10, or -10 for back.",
            ),
            Field(
                name="time", label="A time", value=text("time"), help="Such as 2026-05-01T12:00:00Z, or 2h ago as 2h."
            ),
            Field(
                name="topics",
                label="Topics",
                kind="lines",
                value=text("topics"),
                help="One topic a line, or TOPIC:0,2 for some partitions. None: all that the group has offsets for.",
            ),
        ]

    @classmethod
    def asked(cls, source: Source, asked: RequestParameters) -> Self:
        """Return the reset that a form asks for."""
        target = asked.choice("to", _TARGETS, "earliest")
        for name in _WITH_VALUE:
            if (name == target) != asked.has(name):
                expected = f"{name} with it" if name == target else f"no {name} with it"
                raise WrongRequest(f"to is {target!r}: expected {expected}")
        value: int | None = 0
        if target == "time":
            value = asked.time_ms("time", source.now_ms())
        elif target in _WITH_VALUE:
            value = asked.number(target, least=0 if target == "offset" else -_INT64_MAX)
        return cls(OffsetReset(asked.text("group"), tuple(asked.lines("topics")), target, value or 0))

    def planned(self, source: Source) -> Planned:
        """Return the offsets as they are and as they would be."""
        moves = planned_reset(source.log, self.reset, lambda _: source.view())
        return Planned(
            rows=self._rows(moves, is_applied=False),
            notes=("These very offsets are set, also if more records are committed until then.",),
            basis=(moves, _topic_ids(source.view(), moves)),
        )

    def still_holds(self, source: Source, planned: Planned) -> bool:
        """Return whether the group has the same offsets, no members, and the new ones are still inside."""
        moves, topic_ids = planned.basis
        now = planned_reset(source.log, self.reset, lambda _: source.view())
        view = source.view()
        return (
            [(one.topic, one.partition, one.offset) for one in now]
            == [(one.topic, one.partition, one.offset) for one in moves]
            and _topic_ids(view, now) == topic_ids
            and all(_is_inside(view, (one.topic, one.partition), one.new_offset) for one in moves)
        )

    def apply(self, source: Source, planned: Planned) -> Sequence[Row]:
        """Set the offsets of the plan."""
        moves, _ = planned.basis
        apply_reset(source.log, self.reset.group_id, moves)
        return self._rows(moves, is_applied=True)

    def address(self) -> str:
        """Return the group's page."""
        return query("/group", id=self.reset.group_id)

    def _rows(self, moves: Sequence[OffsetMove], *, is_applied: bool) -> Sequence[Row]:
        group_id = self.reset.group_id
        return [{"group_id": group_id, **msgspec.to_builtins(move), "applied": is_applied} for move in moves]


def _topic_ids(view: ReadView, moves: Sequence[OffsetMove]) -> Mapping[str, int]:
    return {move.topic: view.topics[move.topic].topic_id for move in moves if move.topic in view.topics}


def _is_inside(view: ReadView, place: TopicPartitionKey, offset: int) -> bool:
    partition = view.partitions.get(place)
    return partition is not None and partition.log_start_offset <= offset <= end_of(partition, "read_committed")


# Creating a topic, and altering one.

_COLUMNS_HELP = "One column a line: NAME TYPE, or NAME TYPE not null, such as: id int64 not null"


def _columns(asked: RequestParameters) -> tuple[Column, ...]:
    return tuple(parse_column("columns:", line) for line in asked.lines("columns"))


class TopicCreation(Change, frozen=True):
    """A new topic."""

    kind: ClassVar = "create-topic"
    heading: ClassVar = "Create a topic"
    verb: ClassVar = "Create the topic"

    topic: str
    partitions: int
    settings: Mapping[str, str]
    columns: tuple[Column, ...]

    @classmethod
    def fields(cls, source: Source, asked: RequestParameters) -> list[Field]:
        """Return the fields of its form."""
        text = asked.entered
        return [
            Field(name="topic", label="Name", value=text("topic"), required=True),
            Field(name="partitions", label="Partitions", kind="number", value=text("partitions") or "1", required=True),
            Field(
                name="settings",
                label="Settings",
                kind="lines",
                value=text("settings"),
                help="One setting a line: name=value. Others have their defaults.",
            ),
            Field(
                name="columns",
                label="Columns",
                kind="lines",
                value=text("columns"),
                help=f"{_COLUMNS_HELP}. Without any: Kafka's key, value and headers.",
            ),
        ]

    @classmethod
    def asked(cls, source: Source, asked: RequestParameters) -> Self:
        """Return the topic that a form asks for."""
        if not asked.has("topic"):
            raise WrongRequest("the topic has no name: expected one")
        partitions = asked.count("partitions", 1, most=PARTITION_COUNT_MAX)
        return cls(asked.text("topic"), partitions, asked.settings("settings"), _columns(asked))

    def planned(self, source: Source) -> Planned:
        """Return the topic that would be made."""
        create_topic(source.log, self._new(), validate_only=True)
        return Planned(rows=[self._row(is_created=False)])

    def apply(self, source: Source, planned: Planned) -> Sequence[Row]:
        """Create it."""
        create_topic(source.log, self._new(), validate_only=False)
        return [self._row(is_created=True)]

    def address(self) -> str:
        """Return the topic's page."""
        return f"/topics/{segment_path(self.topic)}"

    def _new(self) -> NewTopic:
        return NewTopic(self.topic, self.partitions, config=dict(self.settings), schema=list(self.columns) or None)

    def _row(self, *, is_created: bool) -> Row:
        columns = [f"{name} {type_}{'' if null else ' not null'}" for name, type_, null in self.columns]
        return {
            "topic": self.topic,
            "partition_count": self.partitions,
            "settings": [f"{name}={value}" for name, value in self.settings.items()],
            "columns": columns,
            "created": is_created,
        }


class TopicAlteration(Change, frozen=True):
    """Other settings of a topic, more partitions, more columns."""

    kind: ClassVar = "alter-topic"
    heading: ClassVar = "Alter topic {}"
    verb: ClassVar = "Alter the topic"
    subject: ClassVar = ("topic",)

    change: TopicChange

    @classmethod
    def fields(cls, source: Source, asked: RequestParameters) -> list[Field]:
        """Return the fields of its form, which say how the topic is now."""
        source.log.refresh()
        topic = changeable_topic(source.log, asked.text("topic"))
        own = ", ".join(f"{name}={value}" for name, value in sorted(topic.settings.items())) or "none"
        text = asked.entered
        found = [
            Field(
                name="partitions",
                label="Partitions",
                kind="number",
                value=text("partitions"),
                help=f"It has {topic.partition_count}: the number only grows.",
            ),
            Field(
                name="settings",
                label="Settings to set",
                kind="lines",
                value=text("settings"),
                help=f"One setting a line: name=value. It has set: {visible(own, 400)}.",
            ),
            Field(
                name="unset",
                label="Settings to unset",
                kind="lines",
                value=text("unset"),
                help="One name a line: these return to the store's values.",
            ),
        ]
        if topic.schema is not None:
            help_ = f"{_COLUMNS_HELP.partition(':')[0]}: NAME TYPE. Earlier records have null there."
            found.append(Field(name="columns", label="New columns", kind="lines", value=text("columns"), help=help_))
        return found

    @classmethod
    def asked(cls, source: Source, asked: RequestParameters) -> Self:
        """Return the changes that a form asks for."""
        change = TopicChange(
            topic=asked.text("topic"),
            settings=asked.settings("settings"),
            unset=tuple(asked.lines("unset")),
            columns=_columns(asked),
            partition_count=asked.number("partitions", least=1, most=PARTITION_COUNT_MAX),
        )
        if not (change.settings or change.unset or change.columns or change.partition_count):
            raise WrongRequest("nothing to alter is given: expected settings, partitions or columns")
        return cls(change)

    def planned(self, source: Source) -> Planned:
        """Return each part that would be altered, as it is and as it would be."""
        change = self.change
        alter_topic(source.log, change, validate_only=True)
        topic = changeable_topic(source.log, change.topic)
        now = describe_configs(source.log, ConfigResource(ConfigResource.Type.TOPIC, change.topic))
        rows: list[Row] = [
            {"part": f"setting {name}", "now": now[name].value if name in now else None, "then": value}
            for name, value in {**change.settings, **dict.fromkeys(change.unset, "not set: as the store")}.items()
        ]
        rows += [{"part": f"column {name}", "now": None, "then": type_} for name, type_, _ in change.columns]
        if change.partition_count is not None:
            rows.append({"part": "partitions", "now": topic.partition_count, "then": change.partition_count})
        basis = (topic.topic_id, topic.partition_count, dict(topic.settings), topic.schema)
        return Planned(rows=rows, basis=basis)

    def apply(self, source: Source, planned: Planned) -> Sequence[Row]:
        """Alter it."""
        alter_topic(source.log, self.change)
        return [{**row, "altered": True} for row in planned.rows]

    def address(self) -> str:
        """Return the topic's page."""
        return query(f"/topics/{segment_path(self.change.topic)}")


# Aborting a transaction, and fencing the producers of a transactional id.

_PREPARED = "It is prepared: its coordinator may have decided that it commits."


class _OfTransactionalId(Change, frozen=True):
    """A change of one transactional id; nothing is to be entered."""

    subject: ClassVar = ("id",)

    transactional_id: str

    @classmethod
    def fields(cls, source: Source, asked: RequestParameters) -> list[Field]:
        """Return no fields; check that the id exists."""
        source.log.refresh()
        describe_transaction(source.log, asked.text("id"))
        return []

    @classmethod
    def asked(cls, source: Source, asked: RequestParameters) -> Self:
        """Return the change of the id that the address names."""
        return cls(asked.text("id"))

    def address(self) -> str:
        """Return the page of the id's transaction."""
        return query("/transaction", id=self.transactional_id)


class Abort(_OfTransactionalId, frozen=True):
    """The end of an open transaction without its records."""

    kind: ClassVar = "abort"
    heading: ClassVar = "Abort the open transaction of {}"
    verb: ClassVar = "Abort the transaction"

    def planned(self, source: Source) -> Planned:
        """Return the transaction that would be aborted."""
        source.log.refresh()
        record = ongoing_transaction(source.log, self.transactional_id)
        described = describe_transaction(source.log, self.transactional_id)
        notes = ["It is aborted in all its partitions and groups, and its producer is fenced."]
        return Planned(
            rows=[_row(self.transactional_id, described) | {"aborted": False}],
            notes=(*notes, _PREPARED) if described.prepared else tuple(notes),
            basis=record,
        )

    def still_holds(self, source: Source, planned: Planned) -> bool:
        """Return whether the same transaction is open; what it has appended since is no matter."""
        record, now = planned.basis, self.planned(source).basis
        return bool(
            (record.producer_id, record.producer_epoch, record.transaction, record.prepared)
            == (now.producer_id, now.producer_epoch, now.transaction, now.prepared)
        )

    def apply(self, source: Source, planned: Planned) -> Sequence[Row]:
        """Abort the transaction of the plan."""
        abort_ongoing(source.log, planned.basis)
        return [{**row, "aborted": True} for row in planned.rows]


class Fence(_OfTransactionalId, frozen=True):
    """A new epoch of a transactional id, so that its producer can commit nothing more."""

    kind: ClassVar = "fence"
    heading: ClassVar = "Fence the producer of {}"
    verb: ClassVar = "Fence the producer"

    def planned(self, source: Source) -> Planned:
        """Return the producer that would be fenced, and what it has open."""
        source.log.refresh()
        described = describe_transaction(source.log, self.transactional_id)
        notes = ["Its producer can commit nothing more until it initialises anew. What it has open is aborted."]
        return Planned(
            rows=[_row(self.transactional_id, described) | {"fenced": False}],
            notes=(*notes, _PREPARED) if described.prepared else tuple(notes),
            basis=(
                described.producer_id,
                described.producer_epoch,
                described.transaction,
                described.state,
                described.prepared,
            ),
        )

    def apply(self, source: Source, planned: Planned) -> Sequence[Row]:
        """Fence the producer."""
        identity = fence_producer(source.log, self.transactional_id)
        return [
            {
                "transactional_id": self.transactional_id,
                "producer_id": identity.producer_id,
                "producer_epoch": identity.producer_epoch,
                "fenced": True,
            }
        ]


def _row(transactional_id: str, described: TransactionDescription) -> dict[str, object]:
    return {
        "transactional_id": transactional_id,
        "state": str(described.state),
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "transaction": described.transaction,
        "prepared": described.prepared is not None,
        "partitions": [f"{where.topic}-{where.partition}" for where in described.topic_partitions],
    }


KINDS: Final[Mapping[str, type[Change]]] = {
    change.kind: change for change in (TopicCreation, TopicAlteration, ResetOffsets, Abort, Fence, RunJob)
}
