"""What a version of a table needs first: files that have all committed records of a view, and nothing younger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparktxn.config.maintenance import RewriteSettings
from sparktxn.log.views.readview import PartitionView, ReadView
from sparktxn.maintenance.rewriting.rewriteplan import RewriteTask, plan_tasks
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.scan.commitorder import committed_between
from sparktxn.scan.tablefiles import cut_files, new_ranges, without_offsets
from sparktxn.values.fieldtypes import TopicIdPartition, TopicPartitionKey
from sparktxn.values.structs import PublishedPlaces, SegmentRef

__all__ = ["places_of", "plan_unpublished"]

_NOWHERE = PublishedPlaces()


def places_of(view: PartitionView) -> PublishedPlaces:
    """Return where a table of the view would have the records of a partition."""
    return PublishedPlaces(view.log_start_offset, view.rewritten)


def plan_unpublished(
    objects: ObjectStore,
    view: ReadView,
    after: Mapping[int, int],
    published: Mapping[TopicIdPartition, PublishedPlaces],
    settings: RewriteSettings,
) -> Iterator[RewriteTask]:
    """Yield the tasks that write what a version of the view lacks: committed records in no merged file, and cut files.

    Args:
        objects: the store.
        view: the topics.
        after: the entries that the tables show by now, by topic id.
        published: the places of the versions until now, by topic id and partition.
        settings: how large files become.

    Raises:
        DamagedObject: a manifest or an index is missing or altered.
        ViewExpired: it is missing because the vacuum has passed the view.
    """
    starts: dict[TopicPartitionKey, int] = {}
    cut: dict[TopicPartitionKey, Mapping[str, int]] = {}
    for key, partition in view.partitions.items():
        topic, number, places = partition.topic, partition.partition, places_of(partition)
        new = new_ranges(places, published.get((topic.topic_id, number), _NOWHERE))
        cut[key] = cut_files(objects, topic, number, places, new)
        found = committed_between(objects, partition, after.get(topic.topic_id, 0), view.entry, with_rewritten=False)
        bases = [segment.base_offset for _, segment in found if segment.end_offset > partition.log_start_offset]
        bases += without_offsets(objects, topic, number, places, new)
        if bases or cut[key]:
            starts[key] = min([*bases, *cut[key].values()])

    def is_wanted(key: TopicPartitionKey, segment: SegmentRef) -> bool:
        return not segment.has_offset_column or segment.name in cut[key]

    yield from plan_tasks(objects, view, settings, starts, is_wanted)


def cut_since(objects: ObjectStore, view: PartitionView, known: PublishedPlaces) -> dict[str, int]:
    """Return the files of a partition that are cut, apart from what the table has; see `cut_files`."""
    places = places_of(view)
    return cut_files(objects, view.topic, view.partition, places, new_ranges(places, known))
