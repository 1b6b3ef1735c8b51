"""Writing checkpoints: beside the writers, never in their way (PROTOCOL.md, "Checkpoints").

Capturing takes a moment under the log's lock and copies references only; sealing, encoding and uploading happen in the
background. The head is written last: a process that dies on the way leaves garbage that nobody names.
"""

from __future__ import annotations

import logging
import threading

from msgspec import Struct

from sparktxn.background import Background
from sparktxn.clock import Clock, Deadline, Ids
from sparktxn.config.store import StoreSettings
from sparktxn.errors import StoreError
from sparktxn.format import names
from sparktxn.format.checkpoint import (
    SEGMENTS_PREFIX,
    CheckpointHead,
    CheckpointHint,
    PartRef,
    digest,
    encode_head,
    encode_hint,
    encode_part,
    producer_parts,
    state_digest,
)
from sparktxn.format.entry import FORMAT_VERSION
from sparktxn.log.checkpoints import hinted_head
from sparktxn.log.follower import Follower
from sparktxn.log.horizon import is_usable, read_horizon
from sparktxn.log.sealing import seal
from sparktxn.log.tail import Tail
from sparktxn.log.writing import put_new
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.structs import (
    PartitionSegments,
    PartitionState,
    ProducerState,
    StateKey,
    StateRecord,
    StoreState,
    TopicState,
)

__all__ = ["Checkpointer"]

logger = logging.getLogger("sparktxn")


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
    ) -> None:
        self._objects = objects
        self._follower = follower
        self._background = background
        self._clock = clock
        self._ids = ids
        self._settings = settings
        self._busy = threading.Lock()

    def after_win(self) -> None:
        """Starts a checkpoint if one is due and none is being made; the caller has won an entry and been told so."""
        tail = self._follower.tail
        entries = tail.entry - tail.checkpoint_entry
        every = self._settings.checkpoint_entries
        # Of many writers, the one that wins the very entry makes the checkpoint; the others look for it a little later.
        due = (
            entries == every
            or entries >= every + every // 2
            or tail.bytes_since_checkpoint >= self._settings.checkpoint_bytes
        )
        if due and self._busy.acquire(blocking=False):
            try:
                self._background.submit(self._run)
            except RuntimeError:
                # The handle is being closed: the next process to win an entry finds that a checkpoint is due.
                self._busy.release()

    def _run(self) -> None:
        try:
            self.checkpoint(only_if_due=True)
        except StoreError as error:
            # The next win tries again; entries are not deleted before a checkpoint holds what they say.
            logger.warning("no checkpoint was written: %s", error)
        finally:
            self._busy.release()

    def checkpoint(self, *, only_if_due: bool = False) -> CheckpointHead | None:
        """Writes a checkpoint of the newest confirmed state; None if another process has just done so.

        Raises:
            StoreError: the store did not answer, or a part that is needed is damaged.
        """
        with self._follower.locked(Deadline(self._clock, None), "checkpoint"):
            if only_if_due and self._adopt():
                return None
            captured = self._capture()
        head, located = self._write(captured)
        # A vacuum that came between does not know the head: what it names of older checkpoints may be gone.
        horizon = read_horizon(self._objects)
        if horizon > head.entry or not is_usable(self._objects, head, horizon):
            return None
        self._objects.put(names.LAST_CHECKPOINT, encode_hint(CheckpointHint(head.entry, head.checkpoint)))
        with self._follower.locked(Deadline(self._clock, None), "checkpoint"):
            if self._follower.tail is captured.tail:
                self._fold(captured.tail, head, located)
        return head

    def _adopt(self) -> bool:
        """True if another process's checkpoint is new enough: it then serves this one too."""
        tail = self._follower.tail
        head = hinted_head(self._objects)
        if head is None or head.entry > tail.confirmed_entry or head.entry <= tail.checkpoint_entry:
            return False
        if not is_usable(self._objects, head, read_horizon(self._objects)):
            return False
        tail.rebase(head)
        tail.parts.forget_unchanged(SEGMENTS_PREFIX)
        tail.bytes_since_checkpoint = 0
        return tail.entry - head.entry < self._settings.checkpoint_entries

    def _capture(self) -> _Captured:
        tail = self._follower.tail
        if tail.confirmed_entry != tail.entry or self._follower.is_passed():
            self._follower.refresh()
            tail = self._follower.tail
        tail.check_writable()
        parts = tail.parts
        many = self._settings.checkpoint_seal_segments
        to_seal = [
            self._with_partition(tail, record)
            for part in list(parts.changed)
            if part.startswith(SEGMENTS_PREFIX)
            for record in parts.part(part).values()
            if isinstance(record, PartitionSegments) and len(record.segments) >= many
        ]
        return _Captured(
            tail,
            tail.entry,
            tail.base_entry or tail.entry,
            tail.token,
            tail.checksum,
            tail.timestamp_ms,
            dict(parts.refs),
            {part: tuple(parts.part(part).values()) for part in parts.changed},
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

    def _write(self, captured: _Captured) -> tuple[CheckpointHead, dict[StateKey, PartitionSegments]]:
        located: dict[StateKey, PartitionSegments] = {}
        for segments, partition, producers, topic in captured.to_seal:
            folder = names.partition_folder(topic, segments.topic_id, segments.partition)
            located[segments.key] = seal(
                self._objects, self._ids, folder, partition, segments, producers, captured.entry
            )
        checkpoint = self._ids.token()
        refs = dict(captured.refs)
        for index, (part, records) in enumerate(sorted(captured.changed.items())):
            data = encode_part([located.get(record.key, record) for record in records])
            name = names.checkpoint_part(captured.entry, checkpoint, index)
            put_new(self._objects, name, data)
            refs[part] = PartRef(name, len(data), digest(data))
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
        put_new(self._objects, names.checkpoint_head(head.entry, checkpoint), encode_head(head))
        return head, located

    def _fold(self, tail: Tail, head: CheckpointHead, sealed: dict[StateKey, PartitionSegments]) -> None:
        """Lets the live state stand on the new checkpoint: what it has sealed is no longer held one by one."""
        if head.entry <= tail.checkpoint_entry:
            return
        resealed: dict[StateKey, StateRecord | None] = {}
        for key, run in sealed.items():
            current: PartitionSegments | None = tail.parts.get(key)
            if current is not None:
                resealed[key] = _newer_than(current, run)
        tail.parts.replace(resealed)
        tail.stand_on(head)
        tail.bytes_since_checkpoint = 0


def _newer_than(current: PartitionSegments, sealed: PartitionSegments) -> PartitionSegments:
    """The sealed places, with what the log has added or dropped since."""
    end_offset = sealed.sealed[-1].end_offset
    bases = [run.base_offset for run in current.sealed] + [segment.base_offset for segment in current.segments]
    first_offset = min(bases, default=end_offset)
    return PartitionSegments(
        current.topic_id,
        current.partition,
        tuple(run for run in sealed.sealed if run.end_offset > first_offset),
        tuple(segment for segment in current.segments if segment.base_offset >= end_offset),
        tuple(aborted for aborted in current.aborted if aborted.last_offset >= end_offset),
    )
