"""The read view of a read, of the topics that its options name or match; and columns that a query has not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pyspark_txnlog.options.catalog import options_in
from pyspark_txnlog.options.groups import CommittedStart
from pyspark_txnlog.options.spark_columns import DELETED
from pyspark_txnlog.options.sparkevents import log_event
from sparktxn import CommandRefused, ConfigurationError, ErrorCode, read_task
from sparktxn.store import INTERNAL_TOPICS
from sparktxn.store.options import SystemClock, one_layout
from sparktxn.store.reading import checked_rows, key_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_txnlog.options.options import ReadOptions
    from sparktxn import ReadTask, ReadView, Store, TopicState


class PinnedView(Struct, frozen=True):
    """What a DataFrame reads, however often it is planned: the view's entry, and the time that `now` means.

    `committed` is where it starts, if that is at the offsets of a group. `is_latest` says whether it has latest rows.
    """

    entry: int
    now_ms: int
    committed: CommittedStart | None = None
    is_latest: bool = False


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


# Which rows of topics with a key a read has: a batch their latest rows, unless it asks for all, as a stream has to.


def reads_latest(topics: Iterable[TopicState], options: ReadOptions) -> bool:
    """Return whether a batch that reads `topics` has their latest rows.

    Raises:
        ConfigurationError: it has, and an option gives it a start or an end; or not all of the topics have a key.
    """
    topics = list(topics)
    if not checked_rows(topics, options.rows):
        return False
    bounds = ((options.starting, "earliest"), (options.ending, "latest"))
    given = [bound.name for bound, whole in bounds if bound.offsets != whole]
    given += ["startingEntry"] * (options.entries.first is not None)
    given += ["endingEntry"] * (options.entries.last is not None)
    if given:
        raise ConfigurationError(
            f"option {given[0]!r} is given, and topic {topics[0].name!r} has a key (primary.key), of whose latest rows "
            "it would read a part: for the rows as they were, set asOfEntry, asOfTimestamp or asOfTransaction; for a "
            "part of all rows, upserts and deletes, set the option rows to all, as each stream has to"
        )
    return True


def check_all_rows(topics: Iterable[TopicState], options: ReadOptions) -> None:
    """Raise unless the options of a stream ask for all rows, where `topics` have a key.

    Raises:
        ConfigurationError: they do not. Spark asks a source for its columns before it says whether it makes a stream.
    """
    for topic in topics:
        if key_columns(topic.settings) and options.rows != "all":
            raise ConfigurationError(
                f"topic {topic.name!r} has a key (primary.key), and a stream reads all of its rows, superseded ones "
                'and deletes too, with the column _deleted. It has to ask for them: .option("rows", "all") of '
                'readStream, or rows="all" of read_stream() and scan_stream(). spark.read has the latest rows'
            )


# What a read does with columns that its topics have and it does not: a stream ends before it would drop a value.
#
# The columns of a stream are fixed when its DataFrame is made. A topic may gain some while the query runs. A micro-
# batch whose rows have values in them is refused before it is given out. A query that is started again, with a stream
# that was made anew, repeats it with the new columns.

_MADE_ANEW: Final = (
    "Make the stream anew, by readStream.load(), read_stream() or scan_stream(), and start the query again: it "
    "continues with this micro-batch and all columns, and earlier rows have null in the new ones"
)
_TABLE_MADE_ANEW: Final = (
    "A table of the catalog has the columns that its topic had when it was created. ALTER TABLE t ADD COLUMNS, or "
    "create it anew, and start the query again: it continues with this micro-batch and all columns"
)

_reported: set[tuple[str, tuple[str, ...]]] = set()


def columns_left_out(view: ReadView, schema: StructType) -> tuple[str, ...]:
    """Return the declared columns of the topics of `view` that `schema` does not have.

    Raises:
        ConfigurationError: the topics are not of one layout.
    """
    return tuple(name for name, _, _ in one_layout(view.topics.values()) or () if name not in schema.names)


def report_left_out(topics: Iterable[str], names: Sequence[str]) -> None:
    """Log that a read leaves out columns that its topics have gained: once in a process."""
    read = ", ".join(sorted(topics))
    if names and (read, tuple(names)) not in _reported:
        _reported.add((read, tuple(names)))
        log_event("spark_columns_left_out", topics=read, columns=", ".join(names))


class NewColumns:
    """Decides what becomes of the columns that a stream does not have; lives as long as the stream's reader.

    Args:
        options: those of the stream.
        schema: the columns of the stream.
        pinned: the view from which the schema was made; None for one that the user, or the catalog, has.
    """

    def __init__(self, options: ReadOptions, schema: StructType, pinned: PinnedView | None) -> None:
        self._options = options
        self._schema = schema
        self._made_at = 0 if pinned is None or options.columns is not None else pinned.entry
        self._is_of_table = bool(options_in(schema))
        chooses = options.columns is not None or (pinned is None and not self._is_of_table)
        self._fails = (options.on_new_columns or ("skip" if chooses else "fail")) == "fail"

    def check(
        self,
        view: ReadView,
        known_at: Callable[[], ReadView | None],
        tasks_of: Callable[[Sequence[str]], list[ReadTask]],
    ) -> None:
        """Check a micro-batch, which is read in `view`, before a row of it is given out.

        Args:
            view: the view of the micro-batch.
            known_at: returns the view in which the micro-batch before it was chosen, None if there is none.
            tasks_of: plans the micro-batch for some columns, each segment by itself.

        Raises:
            ConfigurationError: a row has a value in a column that the stream lacks, which `onNewColumns` does not let
                it leave out.
        """
        left_out = columns_left_out(view, self._schema)
        if not left_out:
            return
        if not self._fails:
            before = known_at()
            known = () if before is None else [name for name, _, _ in one_layout(before.topics.values()) or ()]
            if before is not None:
                report_left_out(view.topics, [name for name in left_out if name not in known])
            return
        # What the log had when the stream was made has no value in a column that came later. One of an older view is of
        # a topic that was deleted.
        after_entry = self._made_at if view.entry > self._made_at else 0
        if any(self._has_value(task, after_entry) for task in tasks_of(left_out)):
            names, topics = ", ".join(map(repr, left_out)), sorted(view.topics)
            of = f"topic {topics[0]!r} has" if len(topics) == 1 else f"topics {', '.join(map(repr, topics))} have"
            advice = _TABLE_MADE_ANEW if self._is_of_table else _MADE_ANEW
            raise ConfigurationError(
                f"{of} columns that this stream does not have: {names}. "
                f"Rows of the next micro-batch have values there, and none of it was given out. {advice}. To leave "
                "them out, set the option onNewColumns to skip, or name the columns to read, by the option columns or "
                "by schema()"
            )

    def _has_value(self, task: ReadTask, after_entry: int) -> bool:
        segments = tuple(segment for segment in task.segments if segment.entry > after_entry)
        if not segments:
            return False
        batches = read_task(replace(task, segments=segments), self._options.store)
        columns = (named for batch in batches for named in zip(batch.schema.names, batch.columns, strict=True))
        return any(_shows_a_value(*named) for named in columns)


def _shows_a_value(name: str, column: pa.Array) -> bool:
    # Of upserts that column has nothing: readers show false.
    return bool(column.true_count if name == DELETED else column.null_count < len(column))
