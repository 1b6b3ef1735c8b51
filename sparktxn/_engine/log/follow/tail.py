"""One replica of the state, and its way along the log.

A tail starts from a checkpoint, or from nothing, and follows entry after entry. It checks each one at once, and applies
it at the latest when a part of the state that it touches is read. What it has read since it was last confirmed is a
guess until the horizon says otherwise (`log/follow/confirm.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from sparktxn._engine.format import names
from sparktxn._engine.format.appends import decode_appends, expand
from sparktxn._engine.format.checkpoint import CheckpointHead, part_of
from sparktxn._engine.format.commands import Appends, Command, SettleIntent
from sparktxn._engine.format.decodeguard import WRITER_FEATURES, check_features
from sparktxn._engine.format.entry import NO_CHECKSUM, LogEntry, decode_entry
from sparktxn._engine.log.follow.checkpointheads import read_part, read_parts
from sparktxn._engine.log.follow.confirm import Premise, head_past, usable_head
from sparktxn._engine.log.follow.inlinerecords import note_inline
from sparktxn._engine.log.follow.stateparts import LoadedPart, StateParts
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.machine import Applied, apply_entry, apply_list
from sparktxn._engine.state.rules import is_confined, parts_touched_by, transaction_of
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values.structs import StateKey, StateRecord, StoreState
from sparktxn.errors import DamagedObject, FormatVersionError

_WINDOW_MAX: Final = 65
"""As many as an opening needs by default: the entries that a checkpoint may be behind by, and the free one."""


class Tail:
    """The state after entry `entry`; `confirmed_entry` is the newest entry that no deletion can have falsified.

    `settled` is how the entries that were followed since it was opened have settled the lists in `watched`, by id.
    """

    defers: ClassVar[bool] = True
    """False for a replica that computes something from what each entry changes: it applies each one at once.

    Records are not read by its views, so it holds none.
    """

    def __init__(
        self, objects: ObjectStore, head: CheckpointHead | None, excluded: frozenset[str] = frozenset()
    ) -> None:
        self._objects = objects
        self._excluded = excluded if head is None else excluded | {head.checkpoint}
        self.parts = StateParts(head, self._load_part, self.load)
        self.entry = head.entry if head is not None else 0
        self.token = head.token if head is not None else ""
        self.checksum = head.entry_checksum if head is not None else NO_CHECKSUM
        self.timestamp_ms = head.timestamp_ms if head is not None else 0
        self.confirmed_entry = self.entry
        self.opened_entry = self.entry
        self.bytes_since_checkpoint = 0
        self.watched: Mapping[str, Sequence[Command]] = {}
        self.settled: dict[str, Applied | Refusal] = {}

    def advance(self, *, at_most: int | None = None, window: int = 1) -> None:
        """Apply the entries that follow, up to `at_most` or the end of the log.

        `window` is how many entries are asked for at once, growing while there are more, within a limit. A reader far
        behind, on a store where every request is slow, then pays few round trips.

        Raises:
            DamagedObject: an entry is damaged, or does not follow the one before it.
            FormatVersionError: an entry is of a newer format.
        """
        window = min(window, _WINDOW_MAX)
        while at_most is None or self.entry < at_most:
            first = self.entry + 1
            end = first + window if at_most is None else min(first + window, at_most + 1)
            entries: Sequence[LogEntry] = ()
            if window == 1:
                fetched = [self._objects.get(names.entry(first))]
            else:
                fetched = self._objects.get_many([names.entry(number) for number in range(first, end)])
                entries = _decoded(fetched, first)
                self._preload(entries)
            for index, data in enumerate(fetched):
                if data is None:
                    return
                number = first + index
                entry = entries[index] if index < len(entries) else decode_entry(data, names.entry(number), number)
                self.apply(entry, len(data))
            window = min(2 * window, _WINDOW_MAX)

    def advance_to(self, entry: int, window: int) -> None:
        """Apply the entries up to `entry`, which the log has had.

        Raises:
            DamagedObject: an entry is missing or damaged, or does not follow the one before it.
            FormatVersionError: an entry is of a newer format.
        """
        self.advance(at_most=entry, window=window)
        if self.entry < entry:
            raise DamagedObject(names.entry(self.entry + 1), f"it is missing, and the log has had entry {entry}")

    def _preload(self, entries: Sequence[LogEntry]) -> None:
        """Load, in parallel, the parts that following `entries` reads."""
        if not self.parts.has_unloaded():
            return
        parts: set[str] = set()
        for entry in entries:
            if self.defers and all(map(is_confined, entry.commands)):
                # It is deferred: only the records of its transactions are read.
                ids = {transaction_of(command) for command in entry.commands} - {None}
                parts.update(part_of(("transaction", str(id_))) for id_ in ids)
            else:
                parts.update(*(parts_touched_by(command, entry.entry) for command in entry.commands))
        self.load(sorted(parts))

    def load(self, parts: list[str]) -> None:
        """Load those of `parts` that are not, side by side; a damaged one is left to the caller that touches it."""
        missing = self.parts.unloaded(parts)
        if not missing:
            return
        try:
            read = read_parts(self._objects, [self.parts.refs[part] for part in missing])
        except DamagedObject:
            return
        for part, records in zip(missing, read, strict=True):
            self.parts.provide(part, records)

    def apply(self, entry: LogEntry, size_bytes: int) -> None:
        """Follow the next entry: defer it, or apply it.

        Raises:
            DamagedObject: it names another entry before it, or is applied and holds a command that the state refuses.
                A deferred entry with such a command raises it when a part that it touches is read.
        """
        if entry.previous != self.checksum:
            raise DamagedObject(
                names.entry(entry.entry),
                f"it follows an entry with checksum {entry.previous}, and entry {self.entry} has {self.checksum}",
            )
        if self.defers and not self._settles_own(entry.commands) and self.parts.defer(entry, size_bytes):
            self._advance_past(entry, size_bytes)
            return
        context = Context(entry.entry, entry.timestamp_ms)
        delta = self._delta()
        commands = self._commands(entry)
        if not self._settles_own(commands):
            apply_entry(delta, commands, context)
        else:
            for command in commands:
                if isinstance(command, SettleIntent) and command.intent_id in self.watched:
                    self._note(command, delta, context)
                apply_entry(delta, (command,), context)
        if self.parts.has_deferred():
            self.parts.load_for(delta.changes)
        self.take(entry, delta.changes, size_bytes)

    def _settles_own(self, commands: Sequence[Command]) -> bool:
        """Return True if one of `commands` settles a list of this process."""
        return bool(self.watched) and any(
            isinstance(command, SettleIntent) and command.intent_id in self.watched for command in commands
        )

    def store(self) -> StoreState:
        """Return what belongs to the whole store."""
        return self.parts.get(("store",)) or StoreState()

    def check_writable(self) -> None:
        """Check that this version may write the store, as this state knows it.

        Raises:
            FormatVersionError: the store requires a feature that this version cannot write.
        """
        store = self.store()
        if store.writer_features or store.reader_features:
            required = (*store.reader_features, *store.writer_features)
            check_features(required, WRITER_FEATURES, names.STORE, "write")

    def _note(self, command: SettleIntent, delta: Delta, context: Context) -> None:
        """Note what becomes of a list of this process, before the commands that the entry has of it are applied."""
        if command.refused_code:
            self.settled[command.intent_id] = Refusal(command.refused_code, command.reason)
            return
        mark = len(delta.replaced)
        self.settled[command.intent_id] = apply_list(delta, self.watched[command.intent_id], context)
        delta.undo(mark)  # the entry has these commands itself, after this one

    def _delta(self) -> Delta:
        """Return what an entry's commands write into."""
        return Delta(self.parts.get_following)

    def _commands(self, entry: LogEntry) -> Sequence[Command]:
        """Return the entry's commands, those in an object of their own among them."""
        return commands_of(self._objects, entry)

    def take(self, entry: LogEntry, changes: Mapping[StateKey, StateRecord | None], size_bytes: int) -> None:
        """Fold in the changes of the next entry, which were computed from this very state."""
        self.parts.fold(changes, entry.entry)
        self._advance_past(entry, size_bytes)

    def _advance_past(self, entry: LogEntry, size_bytes: int) -> None:
        if self.defers:
            note_inline(self._objects, entry)
        self.entry = entry.entry
        self.token = entry.token
        self.checksum = entry.checksum
        self.timestamp_ms = entry.timestamp_ms
        self.bytes_since_checkpoint += size_bytes

    @property
    def checkpoint_entry(self) -> int:
        """The entry of the checkpoint that this state stands on; 0 if it stands on none."""
        head = self.parts.head
        return head.entry if head is not None else 0

    @property
    def slots(self) -> Premise:
        """The slots that were read, or are put, since the last confirmed state."""
        return Premise(self.confirmed_entry + 1)

    @property
    def premise(self) -> Premise:
        """What this state relies on: those slots, and the names that it has of checkpoints' objects."""
        return Premise(self.confirmed_entry + 1, self.parts.base, "")

    def rebase(self, head: CheckpointHead, records: Mapping[str, Sequence[StateRecord]]) -> None:
        """Take all names of objects from `head`, a newer checkpoint of this log; see `StateParts.rebase`."""
        self.parts.rebase(head, records)
        self._excluded |= {head.checkpoint}
        self.bytes_since_checkpoint = 0

    def _load_part(self, part: str) -> LoadedPart:
        """Return a part of the checkpoint; of a lost or damaged one what another, or one and the entries, gives."""
        try:
            return LoadedPart(read_part(self._objects, self.parts.refs[part]))
        except DamagedObject as damaged:
            newer = head_past(
                self._objects, self.checkpoint_entry, at_most=self.confirmed_entry, excluded=self._excluded
            )
            if newer is not None and self.parts.is_behind(part):
                # The newer checkpoint may hold deferred entries, which would be applied twice. The horizon says that a
                # vacuum has passed this state, so its owner opens another.
                raise
            kept = self._part_of(newer, part)
            if kept is not None:
                return kept
            head = self.parts.head
            assert head is not None, "a part is loaded that no checkpoint names"
            log_event("checkpoint_damaged", entry=head.entry, error=damaged)
            older = usable_head(self._objects, at_most=head.entry, excluded=self._excluded)
            replay = Tail(self._objects, older, self._excluded)
            replay.advance(at_most=head.entry, window=_WINDOW_MAX)
            if (replay.entry, replay.checksum) != (head.entry, head.entry_checksum):
                raise damaged from None
            records = list(replay.parts.part(part).values())
            return LoadedPart(records, is_rebuilt=True, base=replay.parts.base)

    def _part_of(self, newer: CheckpointHead | None, part: str) -> LoadedPart | None:
        """Return the part as a newer checkpoint has it; no entry in between has changed it."""
        if newer is None or part not in newer.parts:
            return None
        try:
            return LoadedPart(read_part(self._objects, newer.parts[part]), is_rebuilt=True, base=newer.entry)
        except DamagedObject:
            return None


def _decoded(fetched: Sequence[bytes | None], first: int) -> list[LogEntry]:
    """Return the entries from number `first` on, up to a missing one or one that cannot be read.

    Reading that one again raises its error, after the entries before it are applied.
    """
    entries: list[LogEntry] = []
    for number, data in enumerate(fetched, first):
        if data is None:
            break
        try:
            entries.append(decode_entry(data, names.entry(number), number))
        except (DamagedObject, FormatVersionError):
            break
    return entries


def commands_of(objects: ObjectStore, entry: LogEntry) -> Sequence[Command]:
    """Return an entry's commands, those in an object of their own among them.

    Raises:
        DamagedObject: the object is missing or altered.
    """
    appends = {(command.object, command.checksum) for command in entry.commands if isinstance(command, Appends)}
    if not appends:
        return entry.commands
    name = names.entry(entry.entry)
    if len(appends) > 1:
        raise DamagedObject(name, "it names more than one append object")
    appends_name, checksum = appends.pop()
    data = objects.get(names.checked_name(appends_name, name))
    if data is None:
        raise DamagedObject(appends_name, f"entry {entry.entry} names it and it does not exist")
    return expand(entry.commands, decode_appends(data, appends_name, checksum), name)
