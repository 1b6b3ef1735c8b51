"""What a read of a view returns, for every reader (docs/guarantees.md, "Which reader returns what").

By default that is what is committed at the view's entry, wherever open transactions lie between it. In offset order it
ends at each partition's last stable offset, as Kafka's `read_committed` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypedDict, get_args

from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.state.keyed import is_keyed
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.structs import TopicState
from sparktxn._rows.scan.commitorder import Bounds, CommitRange, checked_bounds, plan_commits
from sparktxn._rows.scan.plan import ISOLATIONS, Isolation, Order, ReadTask, end_of, plan_ranges
from sparktxn.errors import ConfigurationError

Rows = Literal["latest", "all"]
"""Which rows of a keyed topic a read returns: its latest rows, or every upsert and delete."""

ROWS: Final = get_args(Rows)


class Asked(TypedDict):
    """What a caller asks of the tasks of a read, as `Store.plan_view` says."""

    columns: Sequence[str] | None
    rows_per_task: int | None
    by_segment: bool


def checked_asked(columns: object, rows_per_task: object, by_segment: object) -> Asked:
    """Return what a caller asks of the tasks of a read.

    Raises:
        TypeError: one of them has a wrong type.
        ConfigurationError: `rows_per_task` is below 1.
    """
    return Asked(
        columns=None if columns is None else arguments.identifiers("columns", columns),
        rows_per_task=arguments.integer_or_none("rows_per_task", rows_per_task, 1),
        by_segment=arguments.boolean("by_segment", by_segment),
    )


def checked_order(order: object, isolation: object) -> Order:
    """Return the order of a read, for what its caller passes as `order` (None: not given) and `isolation`.

    Raises:
        TypeError: one of them is not text.
        ConfigurationError: one of them is unknown, or they exclude each other.
    """
    level = arguments.choice("isolation", isolation, ISOLATIONS)
    if order is None:
        return "offset" if level == "read_uncommitted" else "commit"
    if arguments.choice("order", order, get_args(Order)) == "offset":
        return "offset"
    if level == "read_uncommitted":
        raise ConfigurationError(
            "order is 'commit' and isolation 'read_uncommitted': records that are not committed have no place in "
            "commit order; leave the order out, or make it 'offset'"
        )
    return "commit"


def checked_rows(topics: Iterable[TopicState], rows: object) -> bool:
    """Return whether a table of `topics` has their latest rows, for what its caller passes as `rows` (None: not given).

    Raises:
        TypeError: it is not text.
        ConfigurationError: it is unknown, or it is latest and a topic has no key, or topics with and without are read.
    """
    if rows is not None and arguments.choice("rows", rows, ROWS) == "all":
        return False
    keyed: list[str] = []
    others: list[str] = []
    for topic in topics:
        (keyed if is_keyed(topic) else others).append(topic.name)
    if others and rows is not None:
        raise ConfigurationError(f"rows is 'latest', and topic {others[0]!r} has no key (primary.key): leave rows out")
    if keyed and others:
        raise ConfigurationError(
            f"topic {keyed[0]!r} has a key (primary.key), and topic {others[0]!r} has none: read them one by one, or "
            "all rows of both with rows='all'"
        )
    return bool(keyed)


def check_all_rows(topics: Iterable[TopicState], rows: object) -> None:
    """Refuse a read of keyed topics that gives all their rows, unless its caller asks for these by `rows`.

    Raises:
        TypeError: it is not text.
        ConfigurationError: it is unknown or latest, or a topic is keyed and it is not given.
    """
    if rows is not None and arguments.choice("rows", rows, ROWS) == "all":
        return
    for topic in topics:
        if rows is not None or is_keyed(topic):
            raise ConfigurationError(
                f"topic {topic.name!r} has a key (primary.key), and this read gives all its rows, superseded ones and "
                "deletes too: read_arrow() and its kin give the latest rows; in Python rows='all' asks for all"
                if is_keyed(topic)
                else f"rows is {rows!r}, and this read gives all rows of topic {topic.name!r}: leave rows out"
            )


def lacks_deletes(view: PartitionView, offset: int, seen_entry: int = 0) -> bool:
    """Return whether a reader of a keyed partition may lack deletes that a compaction has removed.

    That is so if it has read rows before that compaction and not yet the deletes, so that a table of what it reads
    would keep rows that were deleted. A reader that begins at the log start lacks nothing.

    Args:
        view: the partition.
        offset: the offset that the reader reads next; what is below it was read.
        seen_entry: an entry up to which what was read is what the log then had; 0: it is not known.
    """
    gone, since = (0, 0) if view.compacted is None else view.compacted.deletes_gone
    return view.log_start_offset < offset < gone and seen_entry < since


def plan_view(
    objects: ObjectStore,
    view: ReadView,
    bounds: Bounds | None = None,
    *,
    order: Order,
    isolation: Isolation,
    columns: Sequence[str] | None = None,
    rows_per_task: int | None = None,
    by_segment: bool,
) -> list[ReadTask]:
    """Return the tasks that read `view`, partition by partition in the order of `bounds`, in offset order.

    Records outside `bounds` (None: all partitions of the view), or below a log start, are left out. A task has at most
    about `rows_per_task` rows (None: no limit). Unless `by_segment`, it names merged files, and not their segments,
    where `columns` let it.

    Raises:
        TypeError: an argument has a wrong type.
        ConfigurationError: a topic has no such column, or `bounds` names a partition that is not in the view.
        DamagedObject: a manifest or an index is missing or altered.
        ViewExpired: it is missing because the vacuum has passed the view.
    """
    checked = checked_bounds(view, bounds)
    if order == "commit":
        commits = CommitRange(0, view.entry, checked)
        return plan_commits(objects, view, commits, columns=columns, rows_per_task=rows_per_task, by_segment=by_segment)
    ranges = {key: _range(view.partitions[key], isolation, *bound) for key, bound in checked.items()}
    return plan_ranges(
        objects,
        objects.uri,
        view,
        ranges,
        isolation=isolation,
        columns=columns,
        rows_per_task=rows_per_task,
        by_segment=by_segment,
    )


def _range(view: PartitionView, isolation: Isolation, start: int, end: int | None) -> tuple[int, int]:
    start, last = max(start, view.log_start_offset), end_of(view, isolation)
    return start, last if end is None else min(end, last)
