"""Writing checkpoints: alongside the writers, never in their way (PROTOCOL.md, "Checkpoints").

Capturing takes a moment under the log's lock and copies references only; sealing, encoding and uploading happen in the
background. The head is written last: a process that dies on the way leaves garbage that no head names.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import (
    PACKED_PART_BYTES,
    SEGMENTS_PREFIX,
    CheckpointHead,
    CheckpointHint,
    PartRef,
    checked_head,
    digest,
    encode_head,
    encode_hint,
    encode_part,
    producer_parts,
    state_digest,
)
from sparktxn._engine.format.entry import FORMAT_VERSION
from sparktxn._engine.log.follow.checkpointheads import hinted_head, read_parts
from sparktxn._engine.log.follow.confirm import Passed, Premise, attempt, confirm, judge, names_of, usable_head
from sparktxn._engine.log.follow.follower import Follower
from sparktxn._engine.log.follow.tail import Tail
from sparktxn._engine.log.keep.sealing import seal
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.objectstore.puts import put_each_until_stored, put_until_stored, replace_hint
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.background import Background
from sparktxn._foundation.process.clock import Clock, Ids
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values.structs import (
    PartitionSegments,
    PartitionState,
    ProducerState,
    StateKey,
    StateRecord,
    StoreState,
    TopicState,
)
from sparktxn.errors import DamagedObject, StoreError

_PUT_TOGETHER: Final = 64
"""So many parts are encoded and put at a time: memory stays bounded."""

_HEAD_BYTES_FREE: Final = 65_536
_HEADS_PER_ENTRIES: Final = 2.5
"""A head takes at most this many times the bytes of the entries that it spares: opening reads the others."""


class _Captured(Struct):
    """What a checkpoint is made from: the parts that changed since the last one, and names of all the others."""

    tail: Tail
    entry: int
    base: int
    token: str
    entry_checksum: str
    timestamp_ms: int
    refs: dict[str, PartRef]
    changed: dict[str, tuple[StateRecord, ...]]
    to_seal: list[tuple[PartitionSegments, PartitionState, tuple[ProducerState, ...], str]]
    store: StoreState


class Checkpointer:
    """Decides when a checkpoint is due, and makes it."""

    def __init__(
        self,
        objects: ObjectStore,
        follower: Follower,
        background: Background,
        clock: Clock,
        ids: Ids,
        settings: StoreSettings,
        after_write: Callable[[], None],
    ) -> None:
        self._objects = objects
        self._follower = follower
        self._background = background
        self._clock = clock
        self._ids = ids
        self._settings = settings
        self._after_write = after_write
        self._busy = threading.Lock()
        self._checked_at = 0

    def after_win(self) -> None:
        """Start a checkpoint if one is due and none is being made; the caller has won an entry and has its answer."""
        tail = self._follower.tail
        # Of many writers, the one that wins the very entry makes the checkpoint; the others look for it a little later.
        since = tail.entry - tail.checkpoint_entry
        is_turn = since > 0 and since % self._settings.checkpoint_entries == 0
        if (is_turn and self._pays(tail)) or self._is_overdue(tail, since):
            self._start(self._make)

    def after_refresh(self) -> None:
        """Find another process's checkpoint if much was read since the last one.

        A process that only reads makes none. What it holds one by one is then sealed in the other's runs.
        """
        tail = self._follower.tail
        is_overdue = self._is_overdue(tail, tail.entry - tail.checkpoint_entry)
        if is_overdue and tail.entry - self._checked_at >= self._settings.checkpoint_entries // 2:
            self._checked_at = tail.entry
            self._start(self._adopt_newest)

    def _is_overdue(self, tail: Tail, since: int) -> bool:
        """Return True if a checkpoint is due, and more, after `since` entries without one."""
        every = self._settings.checkpoint_entries
        is_long = since >= every + every // 2 or tail.bytes_since_checkpoint >= self._settings.checkpoint_bytes
        return is_long and self._pays(tail, 1.5)

    def _pays(self, tail: Tail, times: float = 1.0) -> bool:
        """Return True if the entries since the last checkpoint are worth a head, which names every part of the state.

        So the heads of a store with many topics take at most a few times as many bytes as its entries.
        """
        head = tail.parts.head
        head_bytes = 0 if head is None else len(head.parts) * PACKED_PART_BYTES - _HEAD_BYTES_FREE
        return tail.bytes_since_checkpoint >= times * head_bytes / _HEADS_PER_ENTRIES

    def _start(self, work: Callable[[], object]) -> None:
        """Run `work` in the background, unless a checkpoint is being made or adopted."""
        if not self._busy.acquire(blocking=False):
            return
        try:
            self._background.submit(lambda: self._run(work))
        except RuntimeError:
            # The handle is being closed: the next process to win an entry finds that a checkpoint is due.
            self._busy.release()

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except StoreError as error:
            # The next win tries again; entries are not deleted before a checkpoint holds what they say.
            log_event("checkpoint_not_written", error=error)
        finally:
            self._busy.release()

    def _adopt_newest(self) -> None:
        """Adopt another process's newest checkpoint: that of the hint, or of a listing if the hint is old."""
        self._adopt(hinted_head(self._objects))
        tail = self._follower.tail
        if self._is_overdue(tail, tail.entry - tail.checkpoint_entry):
            self._adopt(usable_head(self._objects, at_most=tail.confirmed_entry))

    def _make(self) -> None:
        """Adopt another process's checkpoint if that is new enough, else write one."""
        try:
            adopted = self._adopt(hinted_head(self._objects))
        except DamagedObject as damaged:
            log_event("checkpoint_not_adopted", error=damaged)
            adopted = False
        if (not adopted or self._is_due()) and self.checkpoint() is not None:
            self._after_write()

    def _is_due(self) -> bool:
        tail = self._follower.tail
        return tail.entry - tail.checkpoint_entry >= self._settings.checkpoint_entries and self._pays(tail)

    def checkpoint(self) -> CheckpointHead | None:
        """Write a checkpoint of the newest confirmed state; None if a vacuum has passed it meanwhile.

        Raises:
            StoreError: the store did not answer, or a part that is needed is damaged.
        """
        self._check_head()
        with self._follower.locked("checkpoint"):
            captured = self._follower.insist(self._capture)
        # The runs that it merges are not damage if a vacuum has passed what names them.
        written = attempt(self._objects, lambda: Premise(base=captured.base), lambda: self._write(captured))
        if isinstance(written, Passed):
            return None
        head, records = written
        # A vacuum that came between does not know the head: what it names of older checkpoints may be gone.
        if judge(self._objects, names_of(head).with_slot(head.entry)) is not None:
            return None
        replace_hint(self._objects, names.LAST_CHECKPOINT, encode_hint(CheckpointHint(head.entry, head.checkpoint)))
        with self._follower.locked("checkpoint"):
            tail = captured.tail
            is_newer = self._follower.tail is tail and head.entry > tail.checkpoint_entry
            if is_newer and not tail.parts.lacking(head, records):
                tail.rebase(head, records)
        return head

    def _check_head(self) -> None:
        """Check all that the present checkpoint names, once: a log is opened without, and the next one names it again.

        If it is damaged, the log is opened from another one, as it would have been.
        """
        tail = self._follower.tail
        head = tail.parts.head
        if head is None:
            return
        try:
            checked = checked_head(head)
        except DamagedObject as damaged:
            log_event("checkpoint_skipped", error=damaged)
            with self._follower.locked("checkpoint"):
                if self._follower.tail is tail:
                    self._follower.reopen()
            return
        if checked is not head:
            with self._follower.locked("checkpoint"):
                if tail.parts.head is head:
                    tail.parts.head = checked

    def _adopt(self, head: CheckpointHead | None) -> bool:
        """Adopt another process's checkpoint if it is newer than the present one, and confirmed; True if so.

        The store is not read while the lock is held.

        Raises:
            StoreError: the store did not answer, or a part of that checkpoint is damaged.
        """
        self._check_head()
        tail = self._follower.tail
        if head is None or not tail.checkpoint_entry < head.entry <= tail.confirmed_entry:
            return False
        records: dict[str, Sequence[StateRecord]] = {}
        confirmed = False
        while True:
            with self._follower.locked("checkpoint"):
                if self._follower.tail is not tail or head.entry <= tail.checkpoint_entry:
                    return False
                missing = [part for part in tail.parts.named_otherwise(head) if part not in records]
                if confirmed and not missing:
                    tail.rebase(head, records)
                    return True
            found = self._records(head, missing)
            if isinstance(found, Passed):
                return False
            records.update(found)
            confirmed = True

    def _records(self, head: CheckpointHead, parts: Sequence[str]) -> dict[str, Sequence[StateRecord]] | Passed:
        """Return the records of `parts` in a checkpoint, confirmed; a part that it does not name has none."""
        named = [part for part in parts if part in head.parts]
        refs = [head.parts[part] for part in named]
        found = confirm(self._objects, lambda: names_of(head), lambda: read_parts(self._objects, refs))
        if isinstance(found, Passed):
            return found
        return dict.fromkeys(parts, ()) | dict(zip(named, found, strict=True))

    def _capture(self) -> _Captured:
        tail = self._follower.tail
        if tail.confirmed_entry != tail.entry or self._follower.is_behind():
            self._follower.refresh()
            tail = self._follower.tail
        tail.check_writable()
        parts = tail.parts
        parts.catch_up()
        many = self._settings.checkpoint_seal_segments
        to_seal = [
            self._with_partition(tail, record)
            for part in list(parts.changed)
            if part.startswith(SEGMENTS_PREFIX)
            for record in parts.part(part).values()
            if isinstance(record, PartitionSegments) and len(record.segments) >= many
        ]
        changed = {part: tuple(parts.part(part).values()) for part in list(parts.changed)}
        return _Captured(
            tail,
            tail.entry,
            parts.base if parts.base is not None else tail.entry,
            tail.token,
            tail.checksum,
            tail.timestamp_ms,
            dict(parts.refs),
            changed,
            to_seal,
            tail.store(),
        )

    def _with_partition(
        self, tail: Tail, located: PartitionSegments
    ) -> tuple[PartitionSegments, PartitionState, tuple[ProducerState, ...], str]:
        topic_id, number = located.topic_id, located.partition
        partition: PartitionState = tail.parts.get(("partition", topic_id, number))
        producers = []
        for part in producer_parts(topic_id, number):
            producers += [
                record
                for record in tail.parts.part(part).values()
                if isinstance(record, ProducerState) and record.partition == number
            ]
        producers.sort(key=lambda producer: producer.producer_id)
        return located, partition, tuple(producers), self._topic_name(tail, topic_id)

    def _topic_name(self, tail: Tail, topic_id: int) -> str:
        for part in tail.parts.names("topics/"):
            for record in tail.parts.part(part).values():
                if isinstance(record, TopicState) and record.topic_id == topic_id:
                    return record.name
        raise AssertionError(f"topic id {topic_id} has partitions and no topic")

    def _write(self, captured: _Captured) -> tuple[CheckpointHead, dict[str, Sequence[StateRecord]]]:
        """Write parts, runs and head; return the head, and the changed parts as it has them."""
        located: dict[StateKey, PartitionSegments] = {}

        def put(name: str, data: bytes) -> None:
            put_until_stored(self._objects, name, data, self._clock)

        for segments, partition, producers, topic in captured.to_seal:
            folder = names.partition_folder(topic, segments.topic_id, segments.partition)
            located[segments.key] = seal(
                self._objects,
                put,
                self._ids.token,
                folder,
                partition,
                segments,
                producers,
                captured.entry,
                self._settings.checkpoint_merge_runs,
            )
        checkpoint = self._ids.token()
        refs = dict(captured.refs)
        written: dict[str, Sequence[StateRecord]] = {}
        waiting: list[tuple[str, bytes]] = []
        for index, (part, records) in enumerate(sorted(captured.changed.items())):
            written[part] = [located.get(record.key, record) for record in records]
            if not records:
                # A part that the head does not name is empty: parts that go by time must not be named permanently.
                refs.pop(part, None)
                continue
            data = encode_part(written[part])
            name = names.checkpoint_part(captured.entry, checkpoint, index)
            waiting.append((name, data))
            if len(waiting) == _PUT_TOGETHER:
                put_each_until_stored(self._objects, waiting, self._clock)
                waiting = []
            refs[part] = PartRef(name, len(data), digest(data))
        put_each_until_stored(self._objects, waiting, self._clock)
        head = CheckpointHead(
            format=FORMAT_VERSION,
            checkpoint=checkpoint,
            entry=captured.entry,
            token=captured.token,
            entry_checksum=captured.entry_checksum,
            timestamp_ms=captured.timestamp_ms,
            digest=state_digest(refs),
            parts=refs,
            base=captured.base,
            reader_features=captured.store.reader_features,
            writer_features=captured.store.writer_features,
        )
        name = names.checkpoint_head(head.entry, checkpoint)
        put(name, encode_head(head))
        return head, written
