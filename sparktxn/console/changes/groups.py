"""Resetting the offsets of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Self

import msgspec

from sparktxn.admin.offsetreset import OffsetMove, OffsetReset, ResetTarget, apply_reset, planned_reset
from sparktxn.console.changes.change import Change, Field, Planned, Row
from sparktxn.console.requestparameters import RequestParameters, WrongRequest
from sparktxn.console.shown import query, visible
from sparktxn.console.shownstore import Source
from sparktxn.log.views.readview import ReadView
from sparktxn.scan.plan import end_of
from sparktxn.values.fieldtypes import TopicPartitionKey

__all__ = ["ResetOffsets"]

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
    verb: ClassVar = "Set these offsets"
    subject: ClassVar = ("group",)

    reset: OffsetReset

    @classmethod
    def title(cls, asked: RequestParameters) -> str:
        """Return the heading."""
        return f"Reset offsets of group {visible(asked.text('group'), 80)}"

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
