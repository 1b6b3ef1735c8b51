"""Stores with many segments, made without committing them: a checkpoint and a horizon say what commits would have."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import (
    SEGMENTS_PREFIX,
    PartRef,
    digest,
    encode_head,
    encode_part,
    part_of,
    state_digest,
)
from sparktxn._engine.format.commands import InitProducerId
from sparktxn._engine.format.manifest import encode_manifest
from sparktxn._engine.format.segment import checksum
from sparktxn._engine.log.follow.checkpointheads import read_part
from sparktxn._engine.log.follow.confirm import usable_head, write_horizon
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.process.clock import RandomIds, SystemClock
from sparktxn._foundation.values.structs import (
    ManifestRef,
    PartitionSegments,
    PartitionState,
    RewrittenRange,
    SegmentRef,
    StateRecord,
    StoreState,
    TransactionState,
    TransactionStatus,
)
from sparktxn.store import Store

__all__ = ["RECORDS", "fill_with_segments"]

RECORDS = 10
_SIZE_BYTES = 2_000
_RUN = 10_000
_TIME_MS = 1_700_000_000_000


def fill_with_segments(
    store: Store,
    topic: str,
    segments: int,
    *,
    files: bool = False,
    is_merged: bool = False,
    records: int = RECORDS,
    transactional_ids: int = 0,
) -> None:
    """Have each partition of an empty topic hold `segments` committed segments, in sealed runs; close `store` after it.

    If they are `is_merged`, a rewrite has made them, each a file of its own. A segment has so many `records`. So many
    `transactional_ids` have ended their last transaction, but for a few.

    The last checkpoint's state becomes the horizon's, so that no replay asks for the entries. With `files` each segment
    has a file of one byte: enough to list and to delete, not to read.
    """
    objects, ids = store.log.objects, RandomIds()
    view = store.view([topic])
    # A horizon of 1 is none: the replay would begin with the first entry.
    store.log.submit([InitProducerId(ids.token())])
    store.log.checkpoint()
    head = usable_head(objects)
    assert head is not None
    folders = {
        (partition.topic.topic_id, partition.partition): names.partition_folder(
            topic, partition.topic.topic_id, partition.partition
        )
        for partition in view.partitions.values()
    }
    token = ids.token()
    parts = dict(head.parts)
    for index, (part, ref) in enumerate(sorted(head.parts.items())):
        if not part.startswith((SEGMENTS_PREFIX, "partitions/", "store")):
            continue
        changed = [
            _filled(objects, ids, folders, record, segments, head.entry, is_merged=is_merged, records=records)
            for record in read_part(objects, ref)
        ]
        data = encode_part(changed)
        name = names.checkpoint_part(head.entry, token, index)
        objects.put_if_absent(name, data)
        parts[part] = PartRef(name, len(data), digest(data))
    for index, (part, states) in enumerate(_transactions(transactional_ids, head.entry).items(), len(head.parts)):
        data, name = encode_part(states), names.checkpoint_part(head.entry, token, index)
        objects.put_if_absent(name, data)
        parts[part] = PartRef(name, len(data), digest(data))
    filled = replace(head, checkpoint=token, parts=parts, digest=state_digest(parts), base=head.entry)
    objects.put_if_absent(names.checkpoint_head(head.entry, token), encode_head(filled))
    objects.delete([names.checkpoint_head(head.entry, head.checkpoint), names.LAST_CHECKPOINT])
    write_horizon(objects, SystemClock(), head.entry, [token])
    if files:
        for folder in folders.values():
            for segment in _segments(head.entry, segments, records):
                objects.put_if_absent(folder + segment.name, b"s")


def _filled(
    objects: ObjectStore,
    ids: RandomIds,
    folders: dict[tuple[int, int], str],
    record: StateRecord,
    segments: int,
    entry: int,
    *,
    is_merged: bool,
    records: int,
) -> StateRecord:
    """Return a record as it is once the segments are there, after writing the manifests that it names."""
    if isinstance(record, StoreState):
        return replace(record, horizon=entry)
    if isinstance(record, PartitionState) and (record.topic_id, record.partition) in folders:
        return replace(record, log_end_offset=segments * records)
    if not isinstance(record, PartitionSegments) or (record.topic_id, record.partition) not in folders:
        return record
    folder = folders[record.topic_id, record.partition]
    found = list(_segments(entry, segments, records, "offsets.parquet" if is_merged else "parquet"))
    runs = [_run(objects, ids, folder, found[first : first + _RUN], entry) for first in range(0, segments, _RUN)]
    if not is_merged:
        return replace(record, sealed=tuple(runs))
    ranges = [RewrittenRange(run.base_offset, run.end_offset, entry, run) for run in runs]
    return replace(record, rewritten=tuple(ranges))


def _segments(entry: int, count: int, records: int, suffix: str = "parquet") -> Iterator[SegmentRef]:
    for number in range(count):
        yield SegmentRef(
            name=names.segment_file(entry - 1, f"{number:020d}", suffix),
            base_offset=number * records,
            record_count=records,
            size_bytes=_SIZE_BYTES,
            checksum=f"{number:08x}",
            entry=entry,
            producer_id=1,
            producer_epoch=0,
            base_sequence=number * records,
            transaction=number + 1,
            timestamp_min_ms=_TIME_MS + number,
            timestamp_max_ms=_TIME_MS + number,
            committed_entry=entry,
        )


def _transactions(count: int, entry: int) -> dict[str, list[StateRecord]]:
    """Return the states of transactional ids, by the parts that hold them; one in a thousand is open."""
    found: dict[str, list[StateRecord]] = {}
    for number in range(count):
        is_open = number % 1_000 == 0
        state = TransactionState(
            transactional_id=f"job-{number:07d}",
            producer_id=number,
            producer_epoch=0,
            last_producer_epoch=-1,
            previous_producer_id=-1,
            timeout_ms=3_600_000,
            status=TransactionStatus.ONGOING if is_open else TransactionStatus.COMPLETE_COMMIT,
            transaction=10,
            committed=not is_open,
            start_timestamp_ms=_TIME_MS,
            last_update_timestamp_ms=_TIME_MS,
            start_entry=entry,
        )
        found.setdefault(part_of(state.key), []).append(state)
    return found


def _run(objects: ObjectStore, ids: RandomIds, folder: str, segments: list[SegmentRef], entry: int) -> ManifestRef:
    data = encode_manifest(segments)
    run = names.sealed_folder(segments[0].base_offset, entry, ids.token())
    objects.put_if_absent(names.manifest(folder, run), data)
    return ManifestRef(
        folder=run,
        base_offset=segments[0].base_offset,
        end_offset=segments[-1].end_offset,
        segment_count=len(segments),
        level=1,
        entry_min=entry,
        entry_max=entry,
        timestamp_min_ms=segments[0].timestamp_min_ms,
        timestamp_max_ms=segments[-1].timestamp_max_ms,
        size_bytes=_SIZE_BYTES * len(segments),
        checksum=checksum(data),
        committed_entry_max=entry,
    )
