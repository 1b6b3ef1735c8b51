"""The read view of a read: of the topics that its options name, or of those that match their pattern."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pyspark_txnlog.options.groups import CommittedStart
from sparktxn import CommandRefused, ErrorCode
from sparktxn.process.clock import SystemClock
from sparktxn.store import INTERNAL_TOPICS

if TYPE_CHECKING:
    from pyspark_txnlog.options.options import ReadOptions
    from sparktxn import ReadView, Store

__all__ = ["PinnedView", "names_topic", "open_view", "open_view_of_existing", "pin_view"]


class PinnedView(Struct, frozen=True):
    """What a DataFrame reads, however often it is planned: the view's entry, and the time that `now` means.

    `committed` is where it starts, if that is at the offsets of a group.
    """

    entry: int
    now_ms: int
    committed: CommittedStart | None = None


def pin_view(view: ReadView) -> PinnedView:
    """Return what makes later views of the same read equal to `view`."""
    return PinnedView(view.entry, SystemClock().wall_ms())


def open_view(
    store: Store,
    options: ReadOptions,
    *,
    entry: int | None = None,
    timestamp_ms: int | None = None,
    at_least_entry: int | None = None,
) -> ReadView:
    """Return a view of the topics that `options` name; `subscribePattern` matches whole names of the view's topics.

    Internal topics match no pattern, as in Kafka.

    Raises:
        CommandRefused: a named topic does not exist, or the entry is not in the log.
        ViewExpired: a vacuum has passed the entry.
    """
    names = None if options.pattern is not None else options.topics
    view = store.view(names, entry=entry, timestamp_ms=timestamp_ms, at_least_entry=at_least_entry)
    if options.pattern is None:
        return view
    topics = {name: topic for name, topic in view.topics.items() if names_topic(options, name)}
    partitions = {key: partition for key, partition in view.partitions.items() if key[0] in topics}
    return replace(view, topics=topics, partitions=partitions)


def names_topic(options: ReadOptions, topic: str) -> bool:
    """Return whether `options` name a topic, which may exist or not."""
    if options.pattern is None:
        return topic in options.topics
    return not _is_internal(topic) and re.fullmatch(options.pattern, topic) is not None


def open_view_of_existing(store: Store, options: ReadOptions, **at: int) -> ReadView:
    """Return the view that `open_view` returns, without the named topics that do not exist in it.

    Raises:
        CommandRefused: the entry is not in the log.
        ViewExpired: a vacuum has passed the entry.
    """
    try:
        return open_view(store, options, **at)
    except CommandRefused as refused:
        if refused.error.code() != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    listed = store.view(None, **at).topics
    known = tuple(topic for topic in options.topics if topic in listed or _is_internal(topic))
    return open_view(store, replace(options, topics=known), **at)


def _is_internal(topic: str) -> bool:
    return topic in INTERNAL_TOPICS
