"""The state as one process holds it: records in parts, each loaded when it is first touched; and entries that wait.

`StateParts` is the one owner of the mutable mapping: deltas are folded in here and nowhere else. Entries that it defers
are applied when a part that they touch is read (`log/follow/stateparts.py`), so what is read is always up to date. It
also owns the checkpoint that the state stands on. A state holds names of objects: of parts, and of sealed runs. Each
name comes from that checkpoint, or from one that `base` counts. Names and checkpoint change together, in `rebase`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sparktxn._engine.format.checkpoint import SEGMENTS_PREFIX, CheckpointHead, PartRef, part_of
from sparktxn._engine.format.commands import Command, EndTxn
from sparktxn._engine.format.entry import LogEntry
from sparktxn._engine.state.delta import Context, Delta, ReadState
from sparktxn._engine.state.machine import apply_entry
from sparktxn._engine.state.rules import is_confined, parts_touched_by, transaction_of
from sparktxn._engine.state.touchedparts import STEADY_TABLES, is_unsteady, touched_by_end
from sparktxn._engine.state.transactions.partitions import Ended
from sparktxn._foundation.values.structs import (
    PartitionSegments,
    PartitionState,
    StateKey,
    StateRecord,
    TransactionState,
)

# Entries that a replica has read and not applied yet.
#
# An entry waits until a part that it touches is read. Then all that touch a part in common with it, or with each
# other, are applied in their order. Nothing else reads or changes these parts before. The other entries have no part
# in common with them, so the order does not matter. This gives the same records as applying every entry when it is
# followed.
#
# Entries that touch a part which is being read are not worth deferring: they are applied at once for a while.

DEFERRED_ENTRIES_MAX: Final = 4_096
DEFERRED_BYTES_MAX: Final = 4 << 20
"""What is deferred at most, so that a replica that is never read from keeps to so much memory."""

_READ_CREDIT: Final = 256
"""Entries that touch a part and are applied at once after a read of it had to apply deferred ones."""

_SETS_MAX: Final = 1_024
_NOTHING: Final[frozenset[str]] = frozenset()


class Deferred(Struct, frozen=True, gc=False):
    """An entry that is not applied yet; applying it reads and changes nothing but `parts`, and steady records."""

    entry: int
    timestamp_ms: int
    commands: Sequence[Command]
    parts: frozenset[str]
    size_bytes: int


class DeferredEntries:
    """The deferred entries of a replica, oldest first. `by_part` has those that touch each part."""

    def __init__(self, read_applied: Callable[[StateKey], Any]) -> None:
        """`read_applied` reads a record as the entries that were applied have left it."""
        self._read_applied = read_applied
        self.by_part: dict[str, list[Deferred]] = {}
        self._queue: dict[int, Deferred] = {}
        self._size_bytes = 0
        # For each part with transactional ids that entries name: what the end of their transactions would touch then.
        self._open: dict[str, dict[str, frozenset[str]]] = {}
        self._credits: dict[str, int] = {}
        self._sets: dict[frozenset[str], frozenset[str]] = {}

    def is_full(self) -> bool:
        """Return True if no more should be deferred."""
        return len(self._queue) >= DEFERRED_ENTRIES_MAX or self._size_bytes >= DEFERRED_BYTES_MAX

    def add(self, entry: LogEntry, size_bytes: int) -> bool:
        """Defer the next entry; False if it is to be applied now.

        Raises:
            StoreUnavailable, DamagedObject: a transaction that it ends could not be read; nothing has changed.
        """
        touched: list[tuple[str, ...]] = []
        for command in entry.commands:
            if not is_confined(command):
                return False
            parts_named = parts_touched_by(command, entry.entry)
            if self._credits and self._is_read(parts_named):
                return False
            touched.append(parts_named)
        found = self._with_ends(entry.commands, touched)
        if found is None:
            return False
        parts, opened = found
        if not parts:
            return False
        deferred = Deferred(entry.entry, entry.timestamp_ms, entry.commands, parts, size_bytes)
        self._queue[entry.entry] = deferred
        for part in parts:
            self.by_part.setdefault(part, []).append(deferred)
        for transactional_id, held in opened.items():
            self._open.setdefault(part_of(_transaction(transactional_id)), {})[transactional_id] = held
        self._size_bytes += size_bytes
        return True

    def note_read(self, part: str) -> None:
        """Note that a read of `part` had to wait for its deferred entries."""
        self._credits[part] = _READ_CREDIT

    def _is_read(self, parts: Sequence[str]) -> bool:
        """Return True if one of the parts is being read."""
        for part in parts:
            left = self._credits.get(part)
            if left is not None:
                if left > 1:
                    self._credits[part] = left - 1
                else:
                    del self._credits[part]
                return True
        return False

    def _with_ends(
        self, commands: Sequence[Command], touched: Sequence[tuple[str, ...]]
    ) -> tuple[frozenset[str], dict[str, frozenset[str]]] | None:
        """Return all parts that the commands touch, and what is open after them; None if they are not confined."""
        parts: set[str] = set()
        opened: dict[str, frozenset[str]] = {}
        for command, named in zip(commands, touched, strict=True):
            parts.update(named)
            transactional_id = transaction_of(command)
            if transactional_id is None:
                continue
            held = opened.get(transactional_id)
            if held is None:
                held = self._held(transactional_id)
                if held is None:
                    return None
            if type(command) is EndTxn:
                parts.update(held)
                opened[transactional_id] = _NOTHING
            else:
                opened[transactional_id] = held.union(named)
        # Most entries touch what others touch: one set for all of them costs less memory, and garbage collection.
        if len(self._sets) >= _SETS_MAX:
            self._sets.clear()
        all_parts = frozenset(parts)
        return self._sets.setdefault(all_parts, all_parts), opened

    def _held(self, transactional_id: str) -> frozenset[str] | None:
        """Return the parts that ending the id's transaction would touch now; None if that is not known."""
        key = _transaction(transactional_id)
        known = self._open.get(part_of(key), {}).get(transactional_id)
        if known is not None:
            return known
        # No deferred entry names the id, so what is applied is its newest record.
        transaction: TransactionState | None = self._read_applied(key)
        if transaction is None:
            return _NOTHING
        if transaction.prepared is not None:
            # Its end may take a new producer id from the store's record.
            return None
        return touched_by_end(transaction)

    def oldest(self) -> Deferred | None:
        """Return the oldest entry, None if there is none."""
        return next(iter(self._queue.values()), None)

    def open_parts(self) -> list[str]:
        """Return the parts with ids whose transactions may be left open, holding a partition or an offset."""
        return [part for part, held in self._open.items() if any(held.values())]

    def group_of(self, parts: Iterable[str]) -> tuple[list[Deferred], set[str]]:
        """Return the entries that touch one of `parts`, or a part that another of them touches, and all their parts.

        They are in their order. No other entry touches one of these parts.
        """
        found: dict[int, Deferred] = {}
        left = list(parts)
        seen = set(left)
        while left:
            for deferred in self.by_part.get(left.pop(), ()):
                if deferred.entry not in found:
                    found[deferred.entry] = deferred
                    left += deferred.parts - seen
                    seen |= deferred.parts
        return [found[entry] for entry in sorted(found)], seen

    def remove(self, entries: Iterable[Deferred]) -> set[str]:
        """Forget entries, each of which was applied or is not to be; return the parts that they touch."""
        touched: set[str] = set()
        for deferred in entries:
            del self._queue[deferred.entry]
            self._size_bytes -= deferred.size_bytes
            touched |= deferred.parts
        for part in touched:
            left = [deferred for deferred in self.by_part.pop(part) if deferred.entry in self._queue]
            if left:
                self.by_part[part] = left
            opened = self._open.pop(part, None)
            if left and opened:
                named = {transaction_of(command) for deferred in left for command in deferred.commands}
                self._open[part] = {id_: held for id_, held in opened.items() if id_ in named}
        return touched

    def pass_over(self, entry: int) -> set[str]:
        """Forget the entries up to `entry`, which a checkpoint holds; return the parts that they touch."""
        return self.remove([deferred for deferred in self._queue.values() if deferred.entry <= entry])


def _transaction(transactional_id: str) -> StateKey:
    return ("transaction", transactional_id)


# Where a partition's records are, as an older checkpoint has sealed them and newer entries have added to them.


def in_places_of(
    sealed: PartitionSegments, current: PartitionSegments, entry: int, log_start_offset: int
) -> PartitionSegments:
    """Return `current` with the sealed runs of `sealed`, the same partition's places after an older entry `entry`.

    What `current` has sealed was sealed before that entry. What has been dropped since lies below `log_start_offset`.
    """
    sealed_end = sealed.sealed[-1].end_offset if sealed.sealed else 0
    return replace(
        current,
        sealed=tuple(run for run in sealed.sealed if run.end_offset > log_start_offset),
        segments=(
            *(segment for segment in sealed.segments if segment.end_offset > log_start_offset),
            *(segment for segment in current.segments if segment.entry > entry),
        ),
        aborted=_ended_from(max(sealed_end, log_start_offset), (*sealed.aborted, *current.aborted)),
        committed=_ended_from(max(sealed_end, log_start_offset), (*sealed.committed, *current.committed)),
    )


def _ended_from(offset: int, ended: Iterable[Ended]) -> tuple[Ended, ...]:
    """Return the transactions whose control records are at `offset` or after it, each once, in their order."""
    by_offset = {transaction.last_offset: transaction for transaction in ended}
    return tuple(by_offset[last_offset] for last_offset in sorted(by_offset) if last_offset >= offset)


Records = dict[StateKey, StateRecord]


class LoadedPart(NamedTuple):
    """The records of a part.

    `is_rebuilt` is True if the object that the checkpoint names is damaged or gone, so that they were made from another
    checkpoint, or the entries. `base` is then that checkpoint's own entry; None if they name nothing of a checkpoint.
    """

    records: Sequence[StateRecord]
    is_rebuilt: bool = False
    base: int | None = None


LoadPart = Callable[[str], LoadedPart]
LoadParts = Callable[[list[str]], None]


class StateParts:
    """Records by part. `changed` says at which entry a part last differed from the object that `head` names for it.

    `head` is the checkpoint that the state stands on; None if it was made from entries alone.
    """

    def __init__(self, head: CheckpointHead | None, load: LoadPart, load_many: LoadParts) -> None:
        """`load` reads a part of `head`; `load_many` provides those of several parts that it can, side by side."""
        self.head = head
        self._rebuilt: dict[str, int | None] = {}
        self.changed: dict[str, int] = {}
        self._load = load
        self._load_many = load_many
        self._parts: dict[str, Records] = {}
        self._deferred = DeferredEntries(self.get_applied)
        self._behind = self._deferred.by_part
        self.basis = object()
        """Another object whenever names have been replaced: changes computed before name what they named then."""

    @property
    def refs(self) -> Mapping[str, PartRef]:
        """The objects of the parts that have not changed since `head`."""
        return self.head.parts if self.head is not None else {}

    @property
    def base(self) -> int | None:
        """The entry of the oldest checkpoint that a name in this state was taken from; None if none was."""
        if self.head is None:
            return None
        return min([self.head.entry, *(base for base in self._rebuilt.values() if base is not None)])

    def get(self, key: StateKey) -> Any:
        """Return the record of `key`, or None; its part is loaded at the first touch.

        Raises:
            DamagedObject: the part cannot be read, or the state refuses a command of a deferred entry.
        """
        part = part_of(key)
        if part in self._behind:
            self._read_behind(part)
        records = self._parts.get(part)
        if records is None:
            records = self._loaded(part)
        return records.get(key)

    def at_hand(self, part: str) -> Records | None:
        """Return the records of a part if they are loaded, and no deferred entry touches them; else None.

        A caller without the follower's lock may take one record from it. That record is of this state, or of the one
        before it while another thread applies an entry.
        """
        return None if part in self._behind else self._parts.get(part)

    def part(self, part: str) -> Records:
        """Return all records of a part, by key, loaded at the first touch. The caller changes nothing in it."""
        if part in self._behind:
            self._read_behind(part)
        return self.part_applied(part)

    def get_following(self, key: StateKey) -> Any:
        """Return what `get` does, for a caller that follows the log: it is not going to read the part again."""
        part = part_of(key)
        if part in self._behind:
            self._catch_up([part])
        records = self._parts.get(part)
        return (self._loaded(part) if records is None else records).get(key)

    def get_applied(self, key: StateKey) -> Any:
        """Return the record of `key` as the entries that were applied have left it; deferred ones stay so."""
        return self.part_applied(part_of(key)).get(key)

    def part_applied(self, part: str) -> Records:
        """Return the records of a part as the entries that were applied have left it; deferred ones stay so."""
        records = self._parts.get(part)
        return self._loaded(part) if records is None else records

    def _loaded(self, part: str) -> Records:
        records: Records = {}
        if part in self.refs:
            loaded = self._load(part)
            records = {record.key: record for record in loaded.records}
            if loaded.is_rebuilt and self.head is not None:
                # The next checkpoint writes it again, and does not name the damaged object.
                self._rebuilt[part] = loaded.base
                self.changed[part] = self.head.entry
        self._parts[part] = records
        return records

    def _read_behind(self, part: str) -> None:
        self._catch_up([part])
        self._deferred.note_read(part)

    def is_behind(self, part: str) -> bool:
        """Return True if a deferred entry touches the part."""
        return part in self._behind

    def has_deferred(self) -> bool:
        """Return True if an entry is deferred."""
        return bool(self._behind)

    def defer(self, entry: LogEntry, size_bytes: int) -> bool:
        """Defer the next entry until a part that it touches is read; False if it is to be applied now.

        Raises:
            StoreUnavailable, DamagedObject: a part could not be loaded, or an older entry cannot be applied.
        """
        if self._deferred.is_full():
            self.catch_up()
        return self._deferred.add(entry, size_bytes)

    def catch_up(self) -> None:
        """Apply all deferred entries.

        Raises:
            StoreUnavailable, DamagedObject: a part could not be loaded, or the state refuses a command.
        """
        while self._behind and (oldest := self._deferred.oldest()) is not None:
            self._catch_up(oldest.parts)

    def catch_up_open(self) -> None:
        """Apply the deferred entries of transactions that they may leave open."""
        for part in self._deferred.open_parts():
            self._catch_up([part])

    def _catch_up(self, parts: Iterable[str]) -> None:
        """Apply the entries that `parts` wait for; those before one that cannot be applied stay applied."""
        waiting, touched = self._deferred.group_of(parts)
        missing = self.unloaded(sorted(touched))
        if len(missing) > 1:
            self._load_many(missing)
        count = 0
        try:
            for deferred in waiting:
                self._apply(deferred)
                count += 1
        finally:
            self._deferred.remove(waiting[:count])

    def _apply(self, deferred: Deferred) -> None:
        delta = Delta(self._reader_of(deferred.parts))
        context = Context(deferred.entry, deferred.timestamp_ms)
        apply_entry(delta, deferred.commands, context)
        places = [(part_of(key), key, record) for key, record in delta.changes.items()]
        for part, key, _ in places:
            assert part in deferred.parts, f"entry {deferred.entry} changes {key}, and its commands do not say so"
        self._put(places, deferred.entry)

    def _reader_of(self, parts: frozenset[str]) -> ReadState:
        """Return how a deferred entry reads the state: as the entries before it leave the parts that it touches."""

        def read(key: StateKey) -> Any:
            part = part_of(key)
            assert part in parts or key[0] in STEADY_TABLES, f"{key} is read by a command that does not say so"
            records = self._parts.get(part)
            return (self._loaded(part) if records is None else records).get(key)

        return read

    def names(self, prefix: str) -> list[str]:
        """Return the parts whose name starts with `prefix`, whether loaded or only named by the checkpoint."""
        return sorted({name for name in (*self.refs, *self._parts, *self._behind) if name.startswith(prefix)})

    def loaded(self, prefix: str) -> list[str]:
        """Return the parts whose name starts with `prefix` and that have been touched."""
        return [name for name in self._parts if name.startswith(prefix)]

    def unloaded(self, parts: Iterable[str]) -> list[str]:
        """Return those of `parts` that a checkpoint names and that are not loaded."""
        return [part for part in parts if part not in self._parts and part in self.refs]

    def has_unloaded(self) -> bool:
        """Return True if a checkpoint names a part that is not loaded."""
        return any(part not in self._parts for part in self.refs)

    def provide(self, part: str, records: Iterable[StateRecord]) -> None:
        """Take the records of a part that a checkpoint names, unless it has been loaded."""
        self._parts.setdefault(part, {record.key: record for record in records})

    def fold(self, changes: Mapping[StateKey, StateRecord | None], entry: int) -> None:
        """Fold the changes of entry `entry` in: all of them, or none.

        Raises:
            StoreUnavailable, DamagedObject: a part could not be loaded; nothing is folded in.
        """
        places = [(part_of(key), key, record) for key, record in changes.items()]
        for part, key, record in places if self._behind else ():
            behind = part in self._behind or is_unsteady(key, record)
            assert not behind, f"entry {entry} changes {key}, which deferred entries read: `load_for` comes first"
        self._put(places, entry)

    def _put(self, places: list[tuple[str, StateKey, StateRecord | None]], entry: int) -> None:
        # Loaded first: an entry that is half folded in when a part cannot be read would be applied twice afterwards.
        for part, _, _ in places:
            if part not in self._parts:
                self._loaded(part)
        for part, key, record in places:
            if record is None:
                self._parts[part].pop(key, None)
            else:
                self._parts[part][key] = record
            self.changed[part] = entry

    def load_for(self, changes: Mapping[StateKey, StateRecord | None]) -> None:
        """Bring what `fold` needs up to date: an entry that could not be folded in is not to be written.

        Raises:
            StoreUnavailable, DamagedObject: a part could not be loaded, or a deferred entry cannot be applied.
        """
        for part in map(part_of, changes):
            if part in self._behind:
                self._catch_up([part])
            if part not in self._parts:
                self._loaded(part)
        if self._behind and any(is_unsteady(key, record) for key, record in changes.items()):
            # Each deferred entry may read it as it was.
            self.catch_up()

    def named_otherwise(self, head: CheckpointHead) -> list[str]:
        """Return the loaded parts with places of records for which `head` names other objects than this state does."""
        return [
            part
            for part in self._parts
            if part.startswith(SEGMENTS_PREFIX) and self.refs.get(part) != head.parts.get(part)
        ]

    def lacking(self, head: CheckpointHead, records: Mapping[str, Sequence[StateRecord]]) -> list[str]:
        """Return the parts of which `rebase` needs the records in `head` in addition to those in `records`."""
        return [
            part
            for part in self.named_otherwise(head)
            if part not in records and self.changed.get(part, 0) > head.entry
        ]

    def rebase(self, head: CheckpointHead, records: Mapping[str, Sequence[StateRecord]]) -> None:
        """Take all names from `head`, a checkpoint of this state or of an older one, newer than the present one.

        `records` are parts as `head` has them. Parts that have changed since are moved to the places that `head` names;
        the others are replaced, or loaded again when they are next touched. Deferred entries that `head` holds are
        never applied here: the parts that they touch are as `head` has them.
        """
        lacking = self.lacking(head, records)
        assert not lacking, f"names in {lacking} would stay, and belong to another checkpoint"
        moved: dict[str, Records | None] = {}
        for part in self.named_otherwise(head):
            if self.changed.get(part, 0) > head.entry:
                moved[part] = self._moved(part, records[part], head.entry)
            else:
                moved[part] = {record.key: record for record in records[part]} if part in records else None
        for part in sorted(self._deferred.pass_over(head.entry)):
            if part not in moved:
                self._parts.pop(part, None)
        for part, placed in moved.items():
            if placed is None:
                del self._parts[part]
            else:
                self._parts[part] = placed
        self._rebuilt = {
            part: base
            for part, base in self._rebuilt.items()
            if part not in moved and self.refs.get(part) == head.parts.get(part)
        }
        self.changed = {part: entry for part, entry in self.changed.items() if entry > head.entry}
        self.changed.update((part, head.entry) for part in self._rebuilt if part not in self.changed)
        # Those that go by time would otherwise stay here, empty, for as long as the process lives.
        self._parts = {
            part: records
            for part, records in self._parts.items()
            if records or part in head.parts or part in self.changed
        }
        self.head = head
        self.basis = object()

    def _moved(self, part: str, records: Iterable[StateRecord], entry: int) -> Records:
        older = {record.key: record for record in records}
        moved: Records = {}
        for key, record in self._parts[part].items():
            before = older.get(key)
            if isinstance(record, PartitionSegments) and isinstance(before, PartitionSegments):
                # No deferred entry moves a log's start.
                partition: PartitionState = self.get_applied(("partition", *key[1:]))
                record = in_places_of(before, record, entry, partition.log_start_offset)
            else:
                assert not getattr(record, "sealed", ()), f"{key} has runs, and the checkpoint does not know it"
            moved[key] = record
        return moved
