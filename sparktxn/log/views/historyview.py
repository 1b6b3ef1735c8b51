"""Views of the internal topics: their history up to an entry, in one partition each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from sparktxn.log.views.readview import PartitionView, ReadView
from sparktxn.state.internal import entry_of, first_offset
from sparktxn.values.structs import TopicState

__all__ = ["HistoryView", "with_history"]


class HistoryView(PartitionView, frozen=True, gc=False):
    """An internal topic at an entry. It has no segments: its rows are computed from the entries that offsets name."""

    def rows_at_most(self, start: int, end: int) -> int:
        """Return how many entries a range has."""
        return entry_of(end) - entry_of(start)

    def end_within(self, start: int, end: int, rows_max: int, all_rows: int) -> int:
        """Return where the beginning of a range ends that has `rows_max` entries, which are whole."""
        return min(end, first_offset(entry_of(start) + rows_max))

    def computed_ranges(self, start: int, end: int, entries_max: int | None) -> Iterator[tuple[int, int]]:
        """Yield the range in parts of at most `entries_max` whole entries (None: no limit)."""
        end = min(end, self.log_end_offset)
        while start < end:
            part_end = end if entries_max is None else self.end_within(start, end, entries_max, 0)
            yield start, part_end
            start = part_end

    def shared_rows(self, start: int, end: int) -> int:
        """Return 0: the range has a limit of its own."""
        return 0

    def unread_from(self, entry: int) -> int:
        """Return where the rows of the entries after `entry` begin."""
        return max(first_offset(entry + 1), self.log_start_offset)

    def entries_after(self, entry: int, start: int) -> range:
        """Return the entries after `entry` that have rows from offset `start` on."""
        return range(max(entry + 1, entry_of(max(start, self.log_start_offset))), self.entry + 1)


def with_history(view: ReadView, topics: Iterable[TopicState], first_entry: int) -> ReadView:
    """Return `view` with internal topics, whose history begins with `first_entry` and ends with the view's entry."""
    named, partitions = dict(view.topics), dict(view.partitions)
    end = first_offset(view.entry + 1)
    start = min(first_offset(first_entry), end)
    for topic in topics:
        named[topic.name] = topic
        partitions[topic.name, 0] = HistoryView(topic, 0, view.entry, start, end, end, (), (), ())
    return replace(view, topics=named, partitions=partitions)
