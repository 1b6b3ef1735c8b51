"""Planning a copy of some topics: the state of one view without the others, and the objects that it names.

The copy begins with a checkpoint of that state, so no entry of the source is a part of its log. Small segments are an
exception in name only: the entries that carry their records are copied with these records alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from sparktxn.clock import Deadline
from sparktxn.errors import ConfigurationError, DamagedObject
from sparktxn.format import names
from sparktxn.format.checkpoint import encode_part, part_of
from sparktxn.format.entry import LogEntry, decode_entry
from sparktxn.log.keep.runs import current_segments
from sparktxn.log.log import Log
from sparktxn.log.look.snapshot import Snapshot
from sparktxn.maintenance.copyobjects import (
    CRC32C,
    INDEX,
    INLINE,
    SNAPSHOT,
    ObjectToCopy,
    entry_of_topics,
    inline_proof,
)
from sparktxn.maintenance.topicstate import parts_of_topics, records_of_topics
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.state.internal import INTERNAL_TOPICS
from sparktxn.structs import (
    ManifestRef,
    PartitionSegments,
    PartitionState,
    SegmentRef,
    StateKey,
    StateRecord,
    StoreState,
    TopicState,
)

__all__ = ["FIRST_ENTRY", "TopicCopyPlan", "named_objects", "plan_topic_copy", "view_topics"]

FIRST_ENTRY: Final = 2
"""The least entry that such a copy begins with: a log that begins with entry 1 is replayed from there."""

_UNKNOWN_SIZE: Final = -1


class TopicCopyPlan(Struct):
    """What a copy of some topics has at its first entry, `entry`.

    `topics` are the topics, `parts` the bytes of its checkpoint's parts. `body` is the object of that entry, whose
    checksum, token and time the checkpoint names.
    """

    entry: int
    body: bytes
    decoded: LogEntry
    topics: tuple[TopicState, ...]
    store: StoreState
    located: list[tuple[PartitionSegments, PartitionState]]
    parts: dict[str, bytes]


def view_topics(
    log: Log, topics: Sequence[str], entry: int | None, deadline: Deadline
) -> tuple[tuple[TopicState, ...], Snapshot]:
    """Return the topics of that name at `entry`, None for the newest, and the state with them; both are confirmed.

    Raises:
        ConfigurationError: a topic is internal.
        CommandRefused: a topic does not exist at that entry, or the log has no such entry.
        ViewExpired: a vacuum has passed the entry.
    """
    for name in topics:
        if name in INTERNAL_TOPICS:
            raise ConfigurationError(
                f"topic {name!r} is internal: it shows what the log says, and is in no copy; leave it out"
            )
    view = log.view(topics, deadline, entry=entry)
    found = tuple(view.topics.values())
    prefixes = parts_of_topics(topic.topic_id for topic in found)
    return found, log.snapshot(prefixes, deadline, entry=view.entry)


def plan_topic_copy(objects: ObjectStore, snapshot: Snapshot, topics: tuple[TopicState, ...]) -> TopicCopyPlan:
    """Return what a copy of `topics` has, of what `view_topics` has returned. A vacuum may have passed it.

    Raises:
        DamagedObject: the view's entry is missing or damaged.
    """
    name = names.entry(snapshot.entry)
    data = objects.get(name)
    if data is None:
        raise DamagedObject(name, "it is the entry of the view, and does not exist")
    entry = max(snapshot.entry, FIRST_ENTRY)
    source = replace(decode_entry(data, name, snapshot.entry), entry=entry)
    if entry != snapshot.entry:
        source = replace(source, commands=())
    body = entry_of_topics(source, [topic.topic_id for topic in topics])
    records = list(records_of_topics(snapshot.records, topics, entry, source.timestamp_ms))
    by_part: dict[str, dict[StateKey, StateRecord]] = {}
    for record in records:
        by_part.setdefault(part_of(record.key), {})[record.key] = record
    partitions = {record.key[1:]: record for record in records if isinstance(record, PartitionState)}
    (store,) = (record for record in records if isinstance(record, StoreState))
    return TopicCopyPlan(
        entry,
        body,
        decode_entry(body, names.entry(entry), entry),
        topics,
        store,
        [(record, partitions[record.key[1:]]) for record in records if isinstance(record, PartitionSegments)],
        {part: encode_part(some.values()) for part, some in sorted(by_part.items())},
    )


class _Named(Struct):
    """Objects that a state names, and what entries carry: checksums by entry and segment."""

    objects: list[ObjectToCopy] = field(default_factory=list)
    carried: dict[int, dict[str, str]] = field(default_factory=dict)


def named_objects(objects: ObjectStore, plan: TopicCopyPlan) -> list[ObjectToCopy]:
    """Return the objects of the source that the copy's checkpoint names; it reads manifests.

    Raises:
        DamagedObject: a manifest is missing or damaged.
    """
    found = _Named()
    by_id = {topic.topic_id: topic.name for topic in plan.topics}
    for located, partition in plan.located:
        folder = names.partition_folder(by_id[located.topic_id], located.topic_id, located.partition)
        for run in located.sealed:
            found.objects += _sidecars(folder, run, plan.entry)
        found.objects += [_manifest(folder, each.run, plan.entry) for each in located.rewritten]
        files: dict[str, ObjectToCopy] = {}
        for segment in current_segments(objects, folder, located):
            if segment.end_offset > partition.log_start_offset:
                _add_segment(found, files, folder, segment)
        found.objects += files.values()
    topic_ids = tuple(sorted(by_id))
    for entry, carried in sorted(found.carried.items()):
        if entry != plan.entry:
            name, proof = names.entry(entry), inline_proof(carried)
            found.objects.append(ObjectToCopy(name, _UNKNOWN_SIZE, INLINE, proof, entry, topic_ids))
    return found.objects


def _add_segment(found: _Named, files: dict[str, ObjectToCopy], folder: str, segment: SegmentRef) -> None:
    """Add the file of a segment, which may hold others too, or the entry that carries it."""
    name = segment.name
    if names.is_inline(name):
        found.carried.setdefault(names.carrier(name, segment.entry), {})[name] = segment.checksum
    else:
        files[name] = ObjectToCopy(folder + name, segment.size_bytes, CRC32C, segment.checksum, segment.entry)


def _manifest(folder: str, run: ManifestRef, entry: int) -> ObjectToCopy:
    return ObjectToCopy(names.manifest(folder, run.folder), _UNKNOWN_SIZE, CRC32C, run.checksum, entry)


def _sidecars(folder: str, run: ManifestRef, entry: int) -> Iterator[ObjectToCopy]:
    yield _manifest(folder, run, entry)
    if run.aborted_count:
        name = names.transaction_index(folder, run.folder, run.base_offset)
        yield ObjectToCopy(name, _UNKNOWN_SIZE, INDEX, str(run.aborted_count), entry)
    yield ObjectToCopy(names.snapshot(folder, run.folder, run.end_offset), _UNKNOWN_SIZE, SNAPSHOT, "", entry)
