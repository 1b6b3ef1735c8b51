"""The log as it truly was: what checkers compare with the answers that processes got.

The truth is the first bytes ever created under each entry's name, applied one by one from the empty store. No
checkpoint, no cache and no deletion has a part in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Protocol, cast

from msgspec import Struct

from sparktxn._engine.format.checkpoint import SEGMENTS_PREFIX, digest, encode_part
from sparktxn._engine.format.commands import Command
from sparktxn._engine.format.entry import LogEntry
from sparktxn._engine.log.follow.tail import Tail
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.state.transactions.partitions import last_stable_offset
from sparktxn._foundation.values.structs import (
    AbortedTransaction,
    CommittedOffset,
    PartitionSegments,
    PartitionState,
    SegmentRef,
    StateKey,
    StateRecord,
    TopicState,
)
from tests.simulation.history import Observation

__all__ = [
    "ABORTED",
    "COMMITTED",
    "OPEN",
    "RecordedObjects",
    "Truth",
    "digest_of",
    "entry_and_digest",
    "records_of",
    "replay",
    "tail_digest",
    "true_tail",
    "truth_after",
]

COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
OPEN: Final = "open"


class RecordedObjects(ObjectStore, Protocol):
    """Objects that remember the first bytes ever created under each name."""

    history: dict[str, bytes]


class Truth(Struct):
    """The state after one entry. `fates` says of each segment whether its transaction committed, aborted or is open.

    `digest` is empty where it was not asked for; `commands` are the entry's own.
    """

    entry: int
    digest: str
    partitions: dict[tuple[str, int], Observation]
    fates: dict[str, str]
    offsets: dict[tuple[str, int, int], CommittedOffset]
    commands: tuple[Command, ...] = ()


def replay(objects: RecordedObjects, digests_at: Collection[int] | None = None) -> list[Truth]:
    """The truth after each entry, from 0, with the digests of the states after `digests_at` (None: all)."""
    tail = _Replay(cast("ObjectStore", _FirstBytes(objects)), None)
    truths = [Truth(0, tail_digest(tail), {}, {}, {})]
    while True:
        tail.advance(at_most=tail.entry + 1)
        if tail.entry == truths[-1].entry:
            return truths
        truth = _after(tail, truths[-1])
        if digests_at is None or tail.entry in digests_at:
            truth.digest = tail_digest(tail)
        truths.append(truth)


def true_tail(objects: RecordedObjects) -> Tail:
    """Return a replica before the first entry that follows the true log, whatever is deleted."""
    return Tail(cast("ObjectStore", _FirstBytes(objects)), None)


def truth_after(tail: Tail) -> Truth:
    """The truth as a replica has it that was replayed from the empty store."""
    keys: list[StateKey] = [record.key for record in records_of(tail, "")]
    return _updated(tail, keys, Truth(tail.entry, tail_digest(tail), {}, {}, {}))


class _Replay(Tail):
    """A replica that remembers which records the newest entry has changed."""

    defers = False

    changes: Mapping[StateKey, StateRecord | None]
    commands: tuple[Command, ...]

    def take(self, entry: LogEntry, changes: Mapping[StateKey, StateRecord | None], size_bytes: int) -> None:
        super().take(entry, changes, size_bytes)
        self.changes = changes
        self.commands = tuple(self._commands(entry)) if entry.commands else ()


class _FirstBytes:
    def __init__(self, objects: RecordedObjects) -> None:
        self._history = objects.history

    def get(self, name: str) -> bytes | None:
        return self._history.get(name)

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        return [self._history.get(name) for name in names]


def _after(tail: _Replay, before: Truth) -> Truth:
    truth = Truth(tail.entry, "", dict(before.partitions), dict(before.fates), dict(before.offsets), tail.commands)
    return _updated(tail, tail.changes, truth)


def _updated(tail: Tail, keys: Collection[StateKey], truth: Truth) -> Truth:
    """`truth` with the records of `keys` as the replica has them."""
    names = {record.topic_id: record.name for record in records_of(tail, "topics/") if isinstance(record, TopicState)}
    if any(key[0] == "topic" for key in keys):
        truth.partitions = {key: seen for key, seen in truth.partitions.items() if key[0] in names.values()}
    for table, *identity in keys:
        if table in ("partition", "segments"):
            topic_id, number = cast("list[int]", identity)
            _look_at_partition(tail, names.get(topic_id), topic_id, number, truth)
        elif table == "offset":
            group, topic_id, number = cast("tuple[str, int, int]", tuple(identity))
            record = tail.parts.get(("offset", group, topic_id, number))
            if record is None:
                truth.offsets.pop((group, topic_id, number), None)
            else:
                truth.offsets[group, topic_id, number] = record
    return truth


def _look_at_partition(tail: Tail, topic: str | None, topic_id: int, number: int, truth: Truth) -> None:
    state: PartitionState | None = tail.parts.get(("partition", topic_id, number))
    located: PartitionSegments | None = tail.parts.get(("segments", topic_id, number))
    if topic is None or state is None or located is None:
        return
    # A replay from nothing has sealed nothing: every segment and every aborted range is in the record itself.
    truth.partitions[topic, number] = Observation(
        state.log_start_offset,
        last_stable_offset(state),
        state.log_end_offset,
        tuple((segment.name, segment.base_offset) for segment in located.segments),
        located.aborted,
        topic_id,
    )
    open_from = {open_.producer_id: open_.first_offset for open_ in state.open_transactions}
    for segment in located.segments:
        truth.fates[segment.name] = _fate(segment, open_from, located.aborted)


def _fate(segment: SegmentRef, open_from: dict[int, int], aborted: tuple[AbortedTransaction, ...]) -> str:
    if segment.base_offset >= open_from.get(segment.producer_id, segment.base_offset + 1):
        return OPEN
    for range_ in aborted:
        if (
            range_.producer_id == segment.producer_id
            and range_.first_offset <= segment.base_offset < range_.last_offset
        ):
            return ABORTED
    return COMMITTED


def records_of(tail: Tail, prefix: str) -> Iterator[StateRecord]:
    """All records in the parts whose names start with `prefix`."""
    for part in tail.parts.names(prefix):
        yield from tail.parts.part(part).values()


def digest_of(log: Log) -> str:
    """Return the digest of the state that a process holds; see `entry_and_digest`."""
    return entry_and_digest(log)[1]


def entry_and_digest(log: Log) -> tuple[int, str]:
    """Return the entry at which a process stands, and the digest of the state that it holds there.

    Parts are read as the process itself reads them: what a vacuum has passed meanwhile is opened again.

    Raises:
        OutcomeUnknown: another thread of the process kept the log busy for the request time-out.
        StoreUnavailable, DamagedObject: a part cannot be read.
    """
    return log._read("digest", lambda tail: (tail.entry, tail_digest(tail)))


def tail_digest(tail: Tail) -> str:
    """Return a digest of a replica's records, but for where they are. Every part is read, and none is encoded alone.

    A part that has become empty, and one that never was, say the same.
    """
    records: list[StateRecord] = []
    for part in tail.parts.names(""):
        found = tail.parts.part(part).values()
        if not part.startswith(SEGMENTS_PREFIX):
            records += found
    return digest(encode_part(records))
