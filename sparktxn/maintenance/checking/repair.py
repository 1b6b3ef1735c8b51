"""Writing derived objects anew from the log: parts of checkpoints, manifests, sidecars of runs, metadata of tables.

Only what follows from the log is written. What the log, or a checkpoint's head, names by a checksum is written only if
the bytes have it. Entries, segments and what only a job has known are left: they come from a copy of the store.

It may run alongside every other process. A vacuum that comes between makes some of the written objects garbage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final

from msgspec import Struct

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import (
    CheckpointHead,
    CheckpointHint,
    PartRef,
    decode_hint,
    digest,
    encode_hint,
    encode_part,
    producer_parts,
)
from sparktxn._engine.format.manifest import encode_manifest
from sparktxn._engine.format.segment import checksum
from sparktxn._engine.format.snapshot import decode_snapshot, encode_snapshot, snapshot_entry
from sparktxn._engine.format.txnindex import encode_transaction_index
from sparktxn._engine.log.follow.checkpointheads import open_head, read_part
from sparktxn._engine.log.follow.confirm import read_horizon, usable_head, usable_heads
from sparktxn._engine.log.keep.replay import Replay
from sparktxn._engine.log.keep.sealedruns import aborted_of, segments_of
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.objectstore.puts import put_until_stored
from sparktxn._engine.state.transactions.partitions import CommittedRanges
from sparktxn._foundation.process.clock import in_time, time_left_s
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.structs import (
    AbortedTransaction,
    ManifestRef,
    PartitionSegments,
    ProducerState,
    SegmentRef,
    TopicState,
)
from sparktxn.errors import DamagedObject, FormatVersionError, StoreUnavailable
from sparktxn.maintenance.checking.segmentcheck import Problem
from sparktxn.maintenance.checking.tablecheck import damaged_tables, write_tables_anew
from sparktxn.maintenance.checking.verify import verify
from sparktxn.maintenance.reachable import heads_in
from sparktxn.store import Store

_WINDOW: Final = 64
_ROUNDS: Final = 3
_PART: Final = "part of a checkpoint"
_MANIFEST: Final = "manifest"
_INDEX: Final = "index of aborted transactions"
_SNAPSHOT: Final = "snapshot of producers"
_HINT: Final = "hint"
_TABLE: Final = "metadata of a table"


class RepairedObject(Struct, frozen=True):
    """A derived object that is written anew, or with `dry_run` would be; `kind` says what it is."""

    object_name: str
    kind: str
    problem: str
    size_bytes: int


class RepairReport(Struct, frozen=True, kw_only=True):
    """What is repaired, and what is left: `left` cannot be made from the log, and says what to do instead."""

    dry_run: bool
    repaired: tuple[RepairedObject, ...]
    left: tuple[Problem, ...]


class _Wanted(Struct, frozen=True):
    """A damaged object: what makes its bytes from a replay that stands at `entry`; None if they do not follow."""

    name: str
    kind: str
    problem: str
    is_missing: bool
    entry: int
    make: Callable[[Replay], bytes | None]


@in_time("timeout_s", lambda store: store.log.clock)
def repair(store: Store, *, dry_run: bool = True, timeout_s: float | None = None) -> RepairReport:
    """Write damaged and missing derived objects of a store anew, from its log.

    A process that dies leaves each object as it was, or whole. The next call goes on.

    Args:
        store: an open store.
        dry_run: only return what would be written.
        timeout_s: how long all of it may take.

    Raises:
        StoreUnavailable: the store did not answer, or vacuums passed this call each time: call again.
    """
    arguments.instance("store", store, Store)
    dry_run = arguments.boolean("dry_run", dry_run)
    repaired: dict[str, RepairedObject] = {}
    found = _problems(store)
    # A part that can be read again names runs that may be damaged, too.
    for _ in range(1 if dry_run else _ROUNDS):
        made = _Repair(store, found).made()
        if all(wanted.name in repaired for wanted, _ in made):
            break
        for wanted, data in made:
            if not dry_run:
                _write(store, wanted, data)
            repaired[wanted.name] = RepairedObject(wanted.name, wanted.kind, wanted.problem, len(data))
        if made and not dry_run:
            found = _problems(store)
    found = _tables_repaired(store, found, repaired, dry_run=dry_run)
    left = tuple(problem for name, problem in found.items() if name not in repaired)
    return RepairReport(dry_run=dry_run, repaired=tuple(repaired.values()), left=left)


def _tables_repaired(
    store: Store, found: dict[str, Problem], repaired: dict[str, RepairedObject], *, dry_run: bool
) -> dict[str, Problem]:
    """Write damaged metadata of tables anew, and note it in `repaired`; return the problems that are found then."""
    damaged = damaged_tables(problem for name, problem in found.items() if name not in repaired)
    if not damaged:
        return found
    left = found
    if not dry_run:
        objects = store.log.objects
        horizon = read_horizon(objects)
        heads = [head for head in _usable_heads(objects, horizon) if head.entry == horizon]
        if horizon > 1 and not heads:
            return found
        with suppress(DamagedObject):  # the problems that are left say it
            write_tables_anew(store.log, heads[0] if horizon > 1 else None, damaged)
        left = _problems(store)
    for problem in chain(*damaged.values()):
        name = problem.object_name
        if dry_run or name not in left:
            size_bytes = 0 if dry_run else len(store.log.objects.get(name) or b"")
            repaired[name] = RepairedObject(name, _TABLE, problem.problem, size_bytes)
    return left


def _usable_heads(objects: ObjectStore, horizon: int) -> list[CheckpointHead]:
    """Return the checkpoints from the horizon on whose heads are whole."""
    opened = []
    for head in heads_in(objects.list(names.CHECKPOINTS)):
        if head.entry < horizon:
            continue
        try:
            found = open_head(objects, head.entry, head.checkpoint)
        except (DamagedObject, FormatVersionError):
            continue
        opened += [] if found is None else [found]
    return usable_heads(objects, opened)


def _problems(store: Store) -> dict[str, Problem]:
    report = verify(store, read_records=False, timeout_s=time_left_s())
    return {problem.object_name: problem for problem in report.problems}


def _write(store: Store, wanted: _Wanted, data: bytes) -> None:
    """Put an object that follows from the log, over a damaged one.

    Raises:
        StoreUnavailable: it was not stored: the next call does it.
    """
    objects = store.log.objects
    if wanted.is_missing:
        put_until_stored(objects, wanted.name, data, store.log.clock)
    if objects.get(wanted.name) != data:
        objects.put(wanted.name, data)
    objects.make_durable(wanted.name)
    if objects.get(wanted.name) != data:
        raise StoreUnavailable(f"object {wanted.name!r} was written and holds other bytes: call again")


class _UnsealedReplay(Replay):
    """A replay that has segments one by one where no checkpoint has sealed them: it makes parts byte by byte."""

    seals = False


class _Repair:
    """Read all checkpoints once, and make what is damaged by one replay."""

    def __init__(self, store: Store, problems: Mapping[str, Problem]) -> None:
        self._objects: ObjectStore = store.log.objects
        self._problems = problems
        self._wanted: dict[str, _Wanted] = {}
        self._seen: set[str] = set()
        self._topics: dict[int, str] = {}
        self._horizon = read_horizon(self._objects)

    def made(self) -> list[tuple[_Wanted, bytes]]:
        """Return the objects that are damaged and follow from the log, each with its bytes."""
        heads = _usable_heads(self._objects, self._horizon)
        if (hint := self._hint()) is not None:
            self._want(hint)
        base = next((head for head in heads if head.entry == self._horizon), None)
        if base is None and self._horizon > 1:
            return []
        try:
            replay = _UnsealedReplay(self._objects, base)
            self._topics.update(replay.topics)
            for head in heads:
                self._check_head(head)
            return list(self._replayed(replay))
        except (DamagedObject, FormatVersionError):
            # Nothing follows from a log that cannot be followed; verify says where.
            return []

    def _want(self, wanted: _Wanted) -> None:
        self._wanted.setdefault(wanted.name, wanted)

    def _first(self, name: str) -> bool:
        """Return True the first time that an object is asked for."""
        is_first = name not in self._seen
        self._seen.add(name)
        return is_first

    # what is damaged

    def _hint(self) -> _Wanted | None:
        """Return the hint if it leads to no whole head, though there is one."""
        data = self._objects.get(names.LAST_CHECKPOINT)
        named = None if data is None else decode_hint(data)
        newest = usable_head(self._objects)
        if newest is None:
            return None
        if named is not None:
            try:
                if open_head(self._objects, named.entry, named.checkpoint) is not None:
                    return None
            except (DamagedObject, FormatVersionError):
                pass
        problem = "it does not exist" if data is None else "it leads to no whole checkpoint"
        made = encode_hint(CheckpointHint(newest.entry, newest.checkpoint))
        return _Wanted(names.LAST_CHECKPOINT, _HINT, problem, data is None, 0, lambda _: made)

    def _check_head(self, head: CheckpointHead) -> None:
        """Find what is damaged of the parts of a head, and of the runs that they name."""
        located: list[PartitionSegments] = []
        for part, ref in sorted(head.parts.items()):
            if not self._first(ref.name):
                continue
            try:
                records = read_part(self._objects, ref)
            except DamagedObject as damaged:
                self._want(
                    _Wanted(
                        ref.name,
                        _PART,
                        damaged.reason,
                        self._objects.get(ref.name) is None,
                        head.entry,
                        _part_maker(part, ref),
                    )
                )
                continue
            located += [record for record in records if isinstance(record, PartitionSegments)]
            self._topics.update((record.topic_id, record.name) for record in records if isinstance(record, TopicState))
        for each in located:
            self._check_runs(each)

    def _check_runs(self, located: PartitionSegments) -> None:
        topic = self._topics.get(located.topic_id)
        previous_end = 0
        for run in located.sealed:
            entry = names.parse_sealed_entry(run.folder)
            if topic is not None and entry is not None and self._first(run.folder):
                folder = names.partition_folder(topic, located.topic_id, located.partition)
                self._check_run(_Run(self._objects, folder, located, run, previous_end), entry)
            previous_end = run.end_offset

    def _check_run(self, run: _Run, entry: int) -> None:
        self._check(names.manifest(run.folder, run.ref.folder), _MANIFEST, entry, run.manifest, run.read_manifest)
        if run.ref.aborted_count:
            name = names.transaction_index(run.folder, run.ref.folder, run.ref.base_offset)
            self._check(name, _INDEX, entry, run.index, run.read_index)
        name = names.snapshot(run.folder, run.ref.folder, run.ref.end_offset)
        self._check(name, _SNAPSHOT, entry, run.snapshot, lambda objects: _read_snapshot(objects, name))

    def _check(
        self,
        name: str,
        kind: str,
        entry: int,
        make: Callable[[Replay], bytes | None],
        read: Callable[[ObjectStore], object],
    ) -> None:
        try:
            read(self._objects)
            if (problem := self._problems.get(name)) is not None:
                # Whole by itself, and not what the log says.
                raise DamagedObject(name, problem.problem)
        except DamagedObject as damaged:
            self._want(_Wanted(name, kind, damaged.reason, self._objects.get(name) is None, entry, make))
        except FormatVersionError:
            # A newer version has written it: it is not damaged.
            return

    # what follows from the log

    def _replayed(self, replay: Replay) -> Iterator[tuple[_Wanted, bytes]]:
        for wanted in sorted(self._wanted.values(), key=lambda wanted: wanted.entry):
            if wanted.entry > replay.entry:
                replay.advance_to(wanted.entry, _WINDOW)
            if wanted.entry and wanted.entry < replay.entry:
                # Made before the horizon: the entries that it follows from may be gone.
                continue
            try:
                data = wanted.make(replay)
            except (DamagedObject, ValueError):
                continue
            if data is not None:
                yield wanted, data


def _part_maker(part: str, ref: PartRef) -> Callable[[Replay], bytes | None]:
    def make(replay: Replay) -> bytes | None:
        data = encode_part(replay.parts.part(part).values())
        return data if (len(data), digest(data)) == (ref.size_bytes, ref.digest) else None

    return make


class _Run:
    """A sealed run of a partition; `previous_end` is the end of the run before it."""

    def __init__(
        self, objects: ObjectStore, folder: str, located: PartitionSegments, ref: ManifestRef, previous_end: int
    ) -> None:
        self._objects = objects
        self.folder = folder
        self.ref = ref
        self._located = located
        self._previous_end = previous_end

    def read_manifest(self, objects: ObjectStore) -> object:
        """Read the manifest, as readers do."""
        return segments_of(objects, self.folder, [self.ref])

    def read_index(self, objects: ObjectStore) -> object:
        """Read the index of aborted transactions, as readers do."""
        return aborted_of(objects, self.folder, [self.ref])

    def manifest(self, replay: Replay) -> bytes | None:
        """Return the manifest's bytes; None if they do not have the checksum in the checkpoint."""
        own = self._own(replay)
        segments: list[SegmentRef] = [*own.segments]
        committed = [*own.committed, *self.ref.committed_late]
        for run in own.sealed:
            committed += run.committed_late
            if run.folder != self.ref.folder and self._meets(run):
                segments += replay.manifest(self.folder, run)
        start, end = self.ref.base_offset, self.ref.end_offset
        inside = sorted({one.base_offset: one for one in segments if start <= one.base_offset < end}.items())
        data = encode_manifest(CommittedRanges(committed).noted([segment for _, segment in inside]))
        return data if len(inside) == self.ref.segment_count and checksum(data) == self.ref.checksum else None

    def index(self, replay: Replay) -> bytes | None:
        """Return the index's bytes; None if it is not of as many transactions as the checkpoint says."""
        own = self._own(replay)
        aborted: list[AbortedTransaction] = [*own.aborted]
        for run in own.sealed:
            if run.folder != self.ref.folder and self._meets(run):
                aborted += aborted_of(self._objects, self.folder, [run])[0]
        inside = [one for one in aborted if self._previous_end <= one.last_offset < self.ref.end_offset]
        if len(inside) != self.ref.aborted_count:
            return None
        return encode_transaction_index(sorted(inside, key=lambda one: one.last_offset))

    def snapshot(self, replay: Replay) -> bytes | None:
        """Return the snapshot's bytes: the producers of the partition as the replay has them."""
        own = self._located
        producers = [
            record
            for part in producer_parts(own.topic_id, own.partition)
            for record in replay.parts.part(part).values()
            if isinstance(record, ProducerState) and record.partition == own.partition
        ]
        producers.sort(key=lambda producer: producer.producer_id)
        return encode_snapshot([snapshot_entry(producer) for producer in producers])

    def _own(self, replay: Replay) -> PartitionSegments:
        found: Any = replay.parts.get(self._located.key)
        if found is None:
            raise DamagedObject(self.ref.folder, "a replay knows no segments of its partition")
        own: PartitionSegments = found
        return own

    def _meets(self, run: ManifestRef) -> bool:
        return run.base_offset < self.ref.end_offset and run.end_offset > self._previous_end


def _read_snapshot(objects: ObjectStore, name: str) -> Sequence[object]:
    data = objects.get(name)
    if data is None:
        raise DamagedObject(name, "a sealed run has one and it does not exist")
    return decode_snapshot(data, name)
