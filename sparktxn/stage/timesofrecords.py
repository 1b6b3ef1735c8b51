"""Whose times records get, as the log says when a list with them is sent: they may have been staged long before."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from sparktxn.stage.stagedsegment import StagedSegment
from sparktxn.state.recordtimes import Condition, has_times_of_entries, times_changed
from sparktxn.values.structs import PartitionState, TopicState

if TYPE_CHECKING:
    from sparktxn.log.log import Log

__all__ = ["TIME_OF_ENTRY", "TimesUsed", "times_used"]

TIME_OF_ENTRY: Final = (-1, -1)
"""In place of the range of timestamps: the records get the time of the entry that names them."""


class TimesUsed(NamedTuple):
    """By topic id, whether records get the time of their entry; and what must hold where that is not fixed yet."""

    by_entry: dict[int, bool]
    condition: Condition | None


def times_used(log: Log, staged: Sequence[StagedSegment], fixed: dict[int, bool]) -> TimesUsed:
    """Return whose times the records of segments get, as last known here: nothing is waited for.

    Args:
        log: says which settings topics have, and whether they have records.
        staged: the segments.
        fixed: what is known for topics with records; others that have some are added.
    """
    by_entry = dict(fixed)
    may_change: dict[str, tuple[int, bool]] = {}
    for segment in staged:
        topic_id = segment.topic_id
        if topic_id in fixed:
            continue
        topic = log.at_hand(("topic", segment.topic))
        if not isinstance(topic, TopicState) or topic.topic_id != topic_id:  # not read yet, or deleted
            by_entry[topic_id], may_change[segment.topic] = False, (topic_id, False)
            continue
        by_entry[topic_id] = has_times_of_entries(topic.settings)
        partition = log.at_hand(("partition", topic_id, segment.partition))
        if isinstance(partition, PartitionState) and partition.log_end_offset > 0:
            fixed[topic_id] = by_entry[topic_id]
            may_change.pop(segment.topic, None)
        else:
            may_change[segment.topic] = (topic_id, by_entry[topic_id])
    return TimesUsed(by_entry, partial(times_changed, by_entry=may_change) if may_change else None)
