"""Consumer groups of queries: where a read starts that continues for a group, and what a query commits for one.

A query's progress has for every partition the offset below which all has been read: that is the group's offset. In
commit order records above it may have been read too, where transactions overlap. So the entry goes with the offset, as
its metadata, and a query that starts from these offsets repeats nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from sparktxn import ConfigurationError, ConsumerGroupTopicPartitions, TopicPartition
from sparktxn.store import read_object

if TYPE_CHECKING:
    from sparktxn import ReadView, Store
    from sparktxn.store.options import TopicPartitionKey

_METADATA: Final = re.compile(r"txnlog:entry=([1-9][0-9]{0,18})")

_OFFSETS_VERSION: Final = "v1"
_NO_OFFSET: Final = "-"


class GroupStart(Struct, frozen=True, kw_only=True):
    """What the options say of a start at a group's offsets; `reset` is for a partition that has none in the log."""

    group_id: str
    reset: Literal["earliest", "latest", "none"]


class CommittedStart(Struct, frozen=True):
    """Where a read for a group starts: above these offsets, with what entries after `after_entry` have committed."""

    offsets: dict[TopicPartitionKey, int]
    after_entry: int


def committed_start(
    store: Store,
    view: ReadView,
    partitions: Sequence[TopicPartitionKey],
    start: GroupStart,
    latest: Mapping[TopicPartitionKey, int],
) -> CommittedStart:
    """Return the group's committed offsets for `partitions`; `latest` is where each one ends.

    A partition without a committed offset starts as `start.reset` says, one whose offset is past the view's end at that
    end. The entry is 0 unless a query in commit order has committed all of the offsets with one micro-batch.

    Raises:
        ConfigurationError: a partition has no offset, and `reset` is none.
    """
    committed = {
        (found.topic, found.partition): found
        for found in store.committed_offsets(start.group_id).topic_partitions or ()
    }
    offsets, entries, missing = {}, set(), []
    for key in partitions:
        found, partition = committed.get(key), view.partitions[key]
        if found is not None:
            # The group may have gone on since the view was pinned.
            offsets[key] = min(found.offset, partition.log_end_offset)
            entries.add(_entry_in(found.metadata))
            continue
        missing.append(key)
        entries.add(0)
        offsets[key] = latest[key] if start.reset == "latest" else partition.log_start_offset
    if missing and start.reset == "none":
        named = ", ".join(f"{topic}-{number}" for topic, number in missing[:10])
        raise ConfigurationError(
            f"group {start.group_id!r} has committed no offset for {named}{' and others' if missing[10:] else ''}: set "
            "the option autoOffsetReset to earliest or latest, or commit offsets first"
        )
    return CommittedStart(offsets, min(entries.pop(), view.entry) if len(entries) == 1 else 0)


def offsets_of_progress(progresses: Iterable[Mapping[str, Any]], group_id: str) -> ConsumerGroupTopicPartitions:
    """Return what the progresses of a query's sources say of a group's offsets.

    Where two sources read one partition, the lesser offset counts: what lies below has been read by both.
    """
    offsets: dict[TopicPartitionKey, list[int]] = {}
    entries: dict[TopicPartitionKey, set[int]] = {}
    for progress in progresses:
        entry = progress["entry"] if progress.get("order") == "commit" else 0
        for topic, by_partition in progress["topics"].items():
            for number, offset in by_partition.items():
                key = (topic, int(number))
                offsets.setdefault(key, []).append(int(offset))
                entries.setdefault(key, set()).add(entry_behind(progress, key, entry))
    partitions = [
        TopicPartition(*key, min(read_to), _metadata_of(entries[key])) for key, read_to in sorted(offsets.items())
    ]
    return ConsumerGroupTopicPartitions(group_id, partitions)


def entry_behind(progress: Mapping[str, Any], partition: TopicPartitionKey, entry: int) -> int:
    """Return the entry up to which a progress has read a partition that is behind the others; `entry` if it is not."""
    behind = progress.get("behind")
    topic, number = partition
    return int(behind["entry"]) if behind is not None and number in behind["topics"].get(topic, ()) else entry


def _metadata_of(entries: set[int]) -> str | None:
    entry = max(entries) if len(entries) == 1 else 0
    return f"txnlog:entry={entry}" if entry else None


def offsets_of_batch(
    store: Store, checkpoint: str, batch_id: int, group_id: str, options: Mapping[str, str]
) -> ConsumerGroupTopicPartitions:
    """Return a group's offsets at the end of a micro-batch, from the file that Spark writes before it runs the batch.

    Args:
        store: the sink's; only sources that read it count.
        checkpoint: the query's checkpoint folder.
        batch_id: the micro-batch.
        group_id: the group.
        options: the store's settings; those of the object store are for a checkpoint there, too.

    Raises:
        ConfigurationError: the checkpoint has no such micro-batch, or no source of the query reads the store.
    """
    name = f"offsets/{batch_id}"
    try:
        text = read_object(checkpoint, name, options).decode()
    except ConfigurationError as error:
        raise ConfigurationError(
            f"option 'commitGroup' needs the query's progress, and it cannot be read: {error}. Set checkpointLocation, "
            "as an option of the sink, to the folder of the query's checkpoint, with its scheme"
        ) from None
    progresses = [progress for progress in _progresses(text, f"{checkpoint}/{name}") if _is_of(progress, store)]
    if not progresses:
        raise ConfigurationError(
            f"option 'commitGroup' is {group_id!r}, but no source of the query reads the store {store.uri!r} as "
            "format txnlog: a transaction commits offsets of its own store only"
        )
    return offsets_of_progress(progresses, group_id)


def _progresses(text: str, where: str) -> list[Any]:
    """Return the JSON of each source's progress: Spark writes a version, a line about the micro-batch, then these."""
    version, _, *lines = text.splitlines() or [""]
    if version != _OFFSETS_VERSION:
        raise ConfigurationError(
            f"option 'commitGroup' cannot read {where!r}: its version is {version!r}, expected {_OFFSETS_VERSION!r}. "
            "Set spark.sql.streaming.queryEvolution.enableSourceEvolution to false, and start with a new checkpoint"
        )
    return [json.loads(line) for line in lines if line != _NO_OFFSET]


def _is_of(progress: Any, store: Store) -> bool:
    return isinstance(progress, dict) and "topicIds" in progress and progress.get("storeId") == store.store_id


def _entry_in(metadata: str | None) -> int:
    """Return the entry in the metadata of an offset; 0 for offsets that no query in commit order has committed."""
    match = _METADATA.fullmatch(metadata or "")
    return 0 if match is None else int(match[1])
