"""What processes have offered to the log, and when: in an entry or an intent, whatever became of it.

A mark is what one command alone carries, and its client has chosen: an offset's metadata, or the time-out of an
`init_producer_id`. What names a record is its segment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Append, Command, InitProducerId, OffsetCommit, TxnOffsetCommit
from sparktxn._engine.format.entry import decode_entry, decode_intent
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._engine.objectstore.contract import ObjectStore
from tests.simulation.clienthistory import ClientHistory
from tests.simulation.history import observe
from tests.simulation.simulator import Offer
from tests.simulation.truth import RecordedObjects

__all__ = ["init_mark", "marks_of", "note_offers"]


def init_mark(timeout_ms: int) -> str:
    """The mark of an `init_producer_id`: its client has chosen a time-out of its own."""
    return f"init {timeout_ms};"


def note_offers(
    history: ClientHistory,
    objects: ObjectStore,
    log: RecordedObjects,
    offered: Iterable[Offer],
    drawn: Mapping[str, int],
    view: ReadView,
) -> None:
    """Notes the marks that the log holds, and when each process has offered each mark and each stored value last.

    An entry is offered when it is composed; put again as it was it is not a new offer: its first put may still arrive.
    """
    for name, data in log.history.items():
        number = names.parse_entry(name)
        if number is not None:
            for mark in marks_of(decode_entry(data, name, number).commands):
                history.marks.setdefault(mark, number)
    last: dict[str, dict[str, int]] = {}
    seen: set[bytes] = set()
    for offer in offered:
        if offer.data not in seen:
            seen.add(offer.data)
            token, lists = _lists(offer.name, offer.data)
            for commands in lists:
                for mark in marks_of(commands):
                    last.setdefault(mark, {})[offer.process] = drawn.get(token, offer.moment)
    history.offered = last | _values(history, objects, view, last)


def _lists(name: str, data: bytes) -> tuple[str, Sequence[Sequence[Command]]]:
    """The token of an entry or an intent, which is drawn when it is composed, and the lists of commands in it."""
    number, named = names.parse_entry(name), names.parse_intent(name)
    if number is not None:
        entry = decode_entry(data, name, number)
        return entry.token, [entry.commands]
    if named is not None:
        return named[1], decode_intent(data, name, *named).lists
    return "", []


def marks_of(commands: Sequence[Command]) -> Iterator[str]:
    """The marks of commands, and the segments that they name."""
    for command in commands:
        if isinstance(command, OffsetCommit | TxnOffsetCommit):
            yield from (offset.metadata for offset in command.offsets if offset.metadata)
        elif isinstance(command, InitProducerId):
            yield init_mark(command.timeout_ms)
        elif isinstance(command, Append):
            yield command.segment


def _values(
    history: ClientHistory, objects: ObjectStore, view: ReadView, last: dict[str, dict[str, int]]
) -> dict[str, dict[str, int]]:
    """When the segment of each value was offered last."""
    found = {}
    placed = {key: observed.segments for key, observed in observe(objects, view.partitions).items()}
    bases = {key: [base for _, base in segments] for key, segments in placed.items()}
    for record in history.final_view(committed=False).records:
        key = record.place[::2]
        segment = placed[key][bisect_right(bases[key], record.offset) - 1][0]
        if segment in last:
            found[record.value] = last[segment]
    return found
