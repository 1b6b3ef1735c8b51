"""Verifying checkpoints: does one hold what a replay of the log gives (PROTOCOL.md, "Deleting")?

A checkpoint that no process has read may be damaged, or name what does not exist. It is read whole and compared with
this process's own replay before the entries that it replaces are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import ClassVar, Final, TypeGuard, TypeVar

from msgspec import Struct

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import (
    HALVES_PREFIX,
    SEGMENTS_PREFIX,
    TABLES_PREFIX,
    CheckpointHead,
    digest,
    encode_part,
)
from sparktxn._engine.format.commands import Appends, Command, Rewrite
from sparktxn._engine.format.entry import LogEntry, decode_entry
from sparktxn._engine.log.follow.checkpointheads import read_parts
from sparktxn._engine.log.follow.tail import Tail
from sparktxn._engine.log.keep.sealedruns import ManifestCache, aborted_of, current_segments, segments_of
from sparktxn._engine.log.keep.sealing import seal
from sparktxn._engine.objectstore.contract import ObjectReader, ObjectStore
from sparktxn._engine.state.rules import files_named_by
from sparktxn._engine.state.transactions.partitions import CommittedRanges
from sparktxn._foundation.values.fieldtypes import TopicIdPartition
from sparktxn._foundation.values.structs import (
    AbortedTransaction,
    HalfState,
    ManifestRef,
    PartitionSegments,
    PartitionState,
    SegmentRef,
    StateKey,
    StateRecord,
    TableState,
    TopicState,
)
from sparktxn.errors import DamagedObject

# Runs that a replay seals for itself: their objects are in its memory, and no other process sees them.
#
# A replay of many entries would otherwise hold all segments since its start one by one, and copy them with each
# append. Sealed they take some 20 bytes each. Merging keeps the number of runs small, as in a checkpoint.

_RUNS_TO_MERGE: Final = 64


class OwnRuns:
    """Reads a store's objects, and those of the runs that it has sealed itself."""

    def __init__(self, objects: ObjectReader) -> None:
        self.uri = objects.uri
        self._objects = objects
        self._own: dict[TopicIdPartition, dict[str, bytes]] = {}
        self._count = 0

    def get(self, name: str) -> bytes | None:
        """Return the object's bytes, or None."""
        parsed = names.parse_partition_object(name)
        own = None if parsed is None else self._own.get(parsed[:2], {}).get(name)
        return self._objects.get(name) if own is None else own

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        """Return `get` of each name."""
        return [self.get(name) for name in names]

    def seal(self, folder: str, partition: PartitionState, located: PartitionSegments, entry: int) -> PartitionSegments:
        """Return the same records' places after `entry`, with all single segments in runs of this reader.

        `folder` is the partition's folder. Runs that are no longer named, because they were merged or lie below the log
        start, are forgotten.
        """
        own = self._own.setdefault((located.topic_id, located.partition), {})
        sealed = seal(
            self, own.__setitem__, self._token, folder, partition, located, (), entry, runs_to_merge=_RUNS_TO_MERGE
        )
        self.keep_named(sealed)
        return sealed

    def keep_named(self, located: PartitionSegments) -> None:
        """Forget the runs of a partition that its places do not name."""
        where = (located.topic_id, located.partition)
        named = {run.folder for run in located.sealed}
        left = {name: data for name, data in self._own.get(where, {}).items() if _run_of(name) in named}
        self._own[where] = left

    def _token(self) -> str:
        self._count += 1
        return f"{self._count:020d}"


def _run_of(name: str) -> str | None:
    parsed = names.parse_partition_object(name)
    return None if parsed is None else names.parse_sealed_folder(parsed[2])


Record = TypeVar("Record", bound=StateRecord)

_PARTS_PER_FETCH: Final = 64
_SEGMENTS_MAX: Final = 1_024
"""So many segments, or ended transactions, of a partition are single: each append copies them."""

_EMPTY: Final = digest(encode_part([]))


class NamedFile(Struct, frozen=True, gc=False):
    """A file of segments: the entry that names it, its size and its CRC-32C; both are not known of a rewrite's."""

    entry: int
    size_bytes: int = -1
    checksum: str = ""


class Replay(Tail):
    """A replica that applies every entry itself, and notes which objects they name.

    `segments` are files by partition as (topic id, partition) and by name; `runs` are those of rewrites, by folder,
    each with the entry that names it. `appends` are the checksums of append objects, and the entries that name them.
    `topics` are names by id, also of topics that have been deleted. `partitions` are those that entries have changed,
    deleted ones too.

    It seals what many entries have added, in its own memory, or takes the runs of a checkpoint that it has found whole.
    """

    defers = False
    seals: ClassVar[bool] = True
    """False for a replay whose places of records must be those that entries alone give."""

    def __init__(self, objects: ObjectStore, head: CheckpointHead | None) -> None:
        super().__init__(objects, head)
        self._runs = OwnRuns(objects)
        # Parts as a checkpoint has them that was found whole: the object, and where this replay's part stood then.
        self._equal: dict[str, tuple[str, int | None]] = {}
        self._digests: dict[str, tuple[int, str]] = {}
        # Its own: a manifest that another reader has read before may have been lost since.
        self._manifests = ManifestCache()
        self._readable: set[tuple[str, ManifestRef]] = set()
        self._read_parts: set[str] = set()
        self.segments: dict[TopicIdPartition, dict[str, NamedFile]] = {}
        self.runs: dict[TopicIdPartition, dict[str, tuple[ManifestRef, int]]] = {}
        self.appends: dict[str, tuple[str, int]] = {}
        self.partitions: set[TopicIdPartition] = set()
        # Tables and half messages of deleted topics keep files.
        self.topics: dict[int, str] = {
            segment.topic_id: segment.topic
            for half in self._records(HALVES_PREFIX, HalfState)
            for segment in half.segments
        }
        self.topics |= {table.topic_id: table.name for table in self._table_records()}
        self.topics |= {topic.topic_id: topic.name for topic in self._records("topics/", TopicState)}

    def _commands(self, entry: LogEntry) -> Sequence[Command]:
        commands = super()._commands(entry)
        if commands is not entry.commands:
            self.note_appends(entry)
        for where, name, size_bytes, checksum in files_named_by(commands):
            self.segments.setdefault(where, {})[name] = NamedFile(entry.entry, size_bytes, checksum)
        for command in commands:
            if isinstance(command, Rewrite):
                where = (command.topic_id, command.partition)
                self.runs.setdefault(where, {})[command.run.folder] = command.run, entry.entry
        return commands

    def note_appends(self, entry: LogEntry) -> None:
        """Note the objects with append commands that an entry names."""
        for command in entry.commands:
            if isinstance(command, Appends):
                self.appends[command.object] = command.checksum, entry.entry

    def files_of(self, number: int) -> list[tuple[TopicIdPartition, str]]:
        """Return the files that entry `number` names, by partition.

        Raises:
            DamagedObject: the entry, or an object that it names, is missing or damaged.
        """
        data = self._objects.get(names.entry(number))
        if data is None:
            raise DamagedObject(names.entry(number), "it is missing")
        entry = decode_entry(data, names.entry(number), number)
        return [(where, name) for where, name, _, _ in files_named_by(super()._commands(entry))]

    def take(self, entry: LogEntry, changes: Mapping[StateKey, StateRecord | None], size_bytes: int) -> None:
        """Fold an entry in, and note the names of topics."""
        super().take(entry, changes, size_bytes)
        for key, record in changes.items():
            table = key[0]
            if table == "partition":
                self.partitions.add(key[1:])  # type: ignore[arg-type]
            elif table == "segments" and self.seals and record is not None:
                if _is_long(record):
                    self._seal(record)
            elif isinstance(record, TopicState):
                self.topics[record.topic_id] = record.name

    def _seal(self, located: PartitionSegments) -> None:
        partition: PartitionState = self.parts.get(("partition", located.topic_id, located.partition))
        sealed = self._runs.seal(self._folder(located), partition, located, self.entry)
        self.parts.fold({sealed.key: sealed}, self.entry)

    def _folder(self, located: PartitionSegments) -> str:
        return names.partition_folder(self.topics[located.topic_id], located.topic_id, located.partition)

    def problem(self, head: CheckpointHead) -> str | None:
        """Return what is wrong with a checkpoint of the entry at which this replay stands; None if nothing is.

        Of a checkpoint that is whole the replay takes the places of records: the next one has most runs in common.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        if (head.entry, head.entry_checksum, head.token) != (self.entry, self.checksum, self.token):
            return f"it is of an entry with checksum {head.entry_checksum}, and the log's has {self.checksum}"
        for part in sorted({*self.parts.refs, *self.parts.changed, *head.parts}):
            ref = head.parts.get(part)
            if not part.startswith(SEGMENTS_PREFIX) and self._digest(part) != (ref.digest if ref else _EMPTY):
                return f"its part {part!r} is not what a replay gives"
        try:
            return self._unreadable(head)
        except DamagedObject as damaged:
            return str(damaged)

    def manifest(self, folder: str, run: ManifestRef) -> tuple[SegmentRef, ...]:
        """Return the segments of a sealed run, read once; `folder` is the partition's.

        Raises:
            DamagedObject: its manifest is missing, or not the one that the state names.
        """
        return segments_of(self._runs, folder, [run], cache=self._manifests)[0]

    def aborted(self, folder: str, run: ManifestRef) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions of a sealed run; `folder` is the partition's.

        Raises:
            DamagedObject: its index is missing, or holds another number of them.
        """
        return aborted_of(self._runs, folder, [run])[0]

    def current_segments(self, folder: str, located: PartitionSegments, before: float = inf) -> list[SegmentRef]:
        """Return the segments of a partition's places that no rewrite has replaced, and those that rewrites have made.

        With `before`, those that begin below that offset, and perhaps more: runs that begin later are not read.

        Raises:
            DamagedObject: a manifest is missing, or not the one that the state names.
        """
        return current_segments(self._runs, folder, located, before=before, cache=self._manifests)

    def _check_run(self, folder: str, run: ManifestRef) -> None:
        """Read a run's objects, once: a store may have more segments than are kept decoded.

        Raises:
            DamagedObject: one of them is missing, or not the one that the state names.
        """
        if (folder, run) not in self._readable:
            self.manifest(folder, run)
            self.aborted(folder, run)
            self._readable.add((folder, run))

    def _digest(self, part: str) -> str:
        changed_at = self.parts.changed.get(part)
        if changed_at is None:
            return self.parts.refs[part].digest if part in self.parts.refs else _EMPTY
        known = self._digests.get(part)
        if known is None or known[0] != changed_at:
            known = (changed_at, digest(encode_part(self.parts.part(part).values())))
            self._digests[part] = known
        return known[1]

    def _unreadable(self, head: CheckpointHead) -> str | None:
        """Read every part, and every sealed run that the checkpoint names, unless that was done for an earlier one."""
        lacks = [
            key for part in self.parts.names(SEGMENTS_PREFIX) if part not in head.parts for key in self.parts.part(part)
        ]
        if lacks:
            return _other_partitions(lacks)
        adopted: list[PartitionSegments] = []
        for part, records in self._unread(head):
            self._read_parts.add(head.parts[part].name)
            if part.startswith(SEGMENTS_PREFIX):
                found = {record.key: record for record in records if isinstance(record, PartitionSegments)}
                if others := found.keys() ^ self.parts.part(part).keys():
                    return _other_partitions(others)
                for record in found.values():
                    if problem := self._places_problem(record):
                        return problem
                adopted += found.values()
        self._adopt(adopted)
        for part, ref in head.parts.items():
            if part.startswith(SEGMENTS_PREFIX):
                self._equal[part] = ref.name, self.parts.changed.get(part)
        return None

    def _unread(self, head: CheckpointHead) -> Iterator[tuple[str, list[StateRecord]]]:
        """Yield the parts of a head whose objects were not read before, or are to be compared with this replay."""
        parts = [
            part
            for part, ref in sorted(head.parts.items())
            if ref.name not in self._read_parts
            or (part.startswith(SEGMENTS_PREFIX) and self._equal.get(part) != (ref.name, self.parts.changed.get(part)))
        ]
        for first in range(0, len(parts), _PARTS_PER_FETCH):
            some = parts[first : first + _PARTS_PER_FETCH]
            yield from zip(some, read_parts(self._objects, [head.parts[part] for part in some]), strict=True)

    def _places_problem(self, record: PartitionSegments) -> str | None:
        """Return how the places of a partition's records differ from this replay's; None if they do not."""
        own: PartitionSegments = self.parts.get(record.key)
        same = _same_runs(record, own)
        segments, aborted = self._places(record, same)
        own_segments, own_aborted = self._places(own, same)
        if (record.rewritten, record.compacted) != (own.rewritten, own.compacted) or segments != own_segments:
            return f"partition {record.partition} of topic id {record.topic_id} has other segments"
        return None if aborted == own_aborted else self._other_aborted(record, own, same)

    def _adopt(self, located: Iterable[PartitionSegments]) -> None:
        """Take places of records that were found to be the same as this replay's, and forget its own runs of them."""
        self.parts.fold({record.key: record for record in located}, self.entry)
        for record in located:
            self._runs.keep_named(record)

    def _places(self, located: PartitionSegments, same: int) -> tuple[list[SegmentRef], list[AbortedTransaction]]:
        """Return all segments, with the entries that committed them, and aborted ranges, from the log start on.

        Those of the first `same` runs are read, and left out. How they are sealed makes no difference. Segments that a
        rewrite has replaced are among them: no process asks the manifests of runs before it seals or merges them.
        """
        partition: PartitionState = self.parts.get(("partition", located.topic_id, located.partition))
        folder = self._folder(located)
        segments: list[SegmentRef] = []
        aborted: list[AbortedTransaction] = []
        committed = list(located.committed)
        for number, run in enumerate(located.sealed):
            self._check_run(folder, run)
            committed += run.committed_late
            if number >= same:
                segments += self.manifest(folder, run)
                aborted += self.aborted(folder, run)
        start = partition.log_start_offset
        for rewritten in located.rewritten:
            # Named by the log: a checkpoint that names the same has the same segments, if its manifest can be read.
            self._check_run(folder, rewritten.run)
        segments += located.segments
        aborted += located.aborted
        noted = CommittedRanges(committed).noted(segments)
        return (
            [segment for segment in noted if segment.end_offset > start],
            [transaction for transaction in aborted if transaction.last_offset >= start],
        )

    def _other_aborted(self, record: PartitionSegments, own: PartitionSegments, same: int) -> str:
        """Say that aborted transactions differ, and which indexes hold them: these have no checksum of their own."""
        folder = self._folder(record)
        runs = {run for located in (record, own) for run in located.sealed[same:]}
        indexes = sorted(
            names.transaction_index(folder, run.folder, run.base_offset) for run in runs if run.aborted_count
        )
        where = f"partition {record.partition} of topic id {record.topic_id}"
        return f"{where} has other aborted transactions; they are in {', '.join(indexes) or 'it'}"

    def _table_records(self) -> Iterator[TableState]:
        """Yield all tables."""
        return self._records(TABLES_PREFIX, TableState)

    def _records(self, prefix: str, kind: type[Record]) -> Iterator[Record]:
        """Yield the records of a kind, as the entries up to here have left them."""
        for part in self.parts.names(prefix):
            for record in self.parts.part(part).values():
                if isinstance(record, kind):
                    yield record


def _other_partitions(keys: Iterable[StateKey]) -> str:
    return f"it has other partitions than a replay gives: {[key[1:] for key in sorted(keys)[:5]]}"


def _is_long(record: StateRecord) -> TypeGuard[PartitionSegments]:
    """Return whether a record of a partition's places has many single segments, or ended transactions of these."""
    assert isinstance(record, PartitionSegments)
    longest = max(len(record.segments), len(record.committed), len(record.aborted))
    return longest >= _SEGMENTS_MAX and bool(record.segments)


def _same_runs(one: PartitionSegments, other: PartitionSegments) -> int:
    """Return how many of the first runs are the same in both, and say the same of the same segments.

    Those count as different in which a transaction began that was committed later: that says more of them.
    """
    same = 0
    for mine, theirs in zip(one.sealed, other.sealed, strict=False):
        if mine != theirs:
            break
        same += 1
    later = [each for located in (one, other) for each in located.committed]
    later += [each for located in (one, other) for run in located.sealed[same:] for each in run.committed_late]
    first = min((each.first_offset for each in later), default=inf)
    while same and one.sealed[same - 1].end_offset > first:
        same -= 1
    return same
