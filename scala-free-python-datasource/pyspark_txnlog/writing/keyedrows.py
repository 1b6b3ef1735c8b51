"""Writes to keyed topics: which of a batch's columns are stored, and that each key is in the batch once.

Rows of a frame have no order, so of two rows of a key none is the last one, unless the option `lastBy` says it. Writes
that Spark plans for the sink may have the rows of a key in several tasks. Their messages have a hash of each key, and
the driver compares these. All other writes put the rows of a key into one task, or take them to the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pyspark_txnlog.connecting.sessions import parallelism_of
from pyspark_txnlog.options.spark_columns import is_scalar, quoted
from pyspark_txnlog.sparkinternals import HoldableRows, is_classic
from pyspark_txnlog.writing.lastrows import LastRows
from sparktxn import ConfigurationError
from sparktxn.errors import did_you_mean
from sparktxn.store import output_schema

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from pyspark_txnlog.options.options import WriteOptions
    from sparktxn import StagedSegment, StagePlan, TopicState
    from sparktxn.store.staging import StageTopic

    Words = NDArray[np.uint64]

_UNIQUE: Final = ("unique",)
"""The option `lastBy` where no key is in a batch twice."""

WORDS_MAX: Final = 4_194_304
"""How many keys of a batch are compared by their hashes, of 32 MiB: the driver reads those of larger batches back."""

_TASK_WORDS_MIN: Final = 4_096

_TASK_BYTES: Final = 64 * 1024 * 1024
"""About how much of a frame one task stages, if the size is known: each task makes a file in each partition."""

_UNKNOWN_BYTES: Final = 2**50
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"


def last_columns(options: WriteOptions) -> tuple[str, ...]:
    """Return the columns that say which row of a key is the last one; none if each key is to be there once."""
    return () if options.last_by is None or options.last_by == _UNIQUE else options.last_by


def check_topic(options: WriteOptions, name: str, topic: TopicState | None) -> None:
    """Pass if a write may go to the topic, by what the options say of keys; None is one that does not exist.

    Raises:
        ConfigurationError: it has no key, and the write needs one; or a stream does not say what a key twice means.
    """
    if topic is None or not _key_of(topic):
        if options.needs_key or (options.last_by is not None and not options.has_outputs):
            asks = "upsert()" if options.needs_key else "option 'lastBy'"
            create = "create it before, with Store.create_topic() and the setting primary.key"
            fix = "write with write(), and without 'lastBy'" if topic is not None else create
            state = "has no key (primary.key)" if topic is not None else "does not exist"
            raise ConfigurationError(f"{asks} is for topics with a key, and topic {name!r} {state}: {fix}")
    elif options.use == "writeStream" and options.last_by is None:
        raise ConfigurationError(
            f"topic {name!r} has a key (primary.key), and a micro-batch may have rows of one key, in no order: set the "
            "option lastBy to the columns that say which row of a key is the last, as lastBy='changed_at', or to "
            "'unique' if each micro-batch has a key at most once"
        )


def _key_of(topic: TopicState) -> tuple[str, ...]:
    from sparktxn.store.reading import key_columns  # the driver's alone: a task that stages imports no reader

    return key_columns(topic.settings)


def stored_part(schema: StructType, topic: TopicState, options: WriteOptions) -> StructType:
    """Return the columns of rows that are stored: without those that only say which row of a key is the last one.

    Raises:
        ConfigurationError: the rows have no such column, or it is one that cannot say it.
    """
    columns = last_columns(options) if _key_of(topic) else ()
    for name in columns:
        if name not in schema.names:
            raise ConfigurationError(
                f"option 'lastBy' names column {name!r}, and the rows have {', '.join(schema.names)}"
                f"{did_you_mean(name, schema.names)}"
            )
        if not is_scalar(schema[name].dataType):
            found = schema[name].dataType.simpleString()
            raise ConfigurationError(
                f"option 'lastBy' names column {name!r} of type {found}: expected a type with an order, such as a "
                "number, text or a time"
            )
    if columns and {*columns} <= {*_key_of(topic)}:
        raise ConfigurationError(
            f"option 'lastBy' names {', '.join(columns)}, which all rows of a key have in common: expected a column "
            "outside of the key that says which row is the last, such as the time of a change"
        )
    stored = {name for name, _, _ in topic.schema or ()} | {*output_schema(topic.schema).names}
    return StructType([field for field in schema if field.name not in columns or field.name in stored])


def keyed_topic(plan: StagePlan, topic: str | None) -> StageTopic | None:
    """Return the topic of a write if it has a key."""
    found = None if topic is None else plan.topics.get(topic)
    return found if found is not None and found.primary_key else None


def refuse_complete(plan: StagePlan, topic: str | None) -> None:
    """Refuse a micro-batch of a query in mode complete if its topic has a key.

    Raises:
        ConfigurationError: it has one.
    """
    if keyed_topic(plan, topic) is not None:
        raise ConfigurationError(
            f"topic {topic!r} has a key (primary.key), and the query is in output mode 'complete', which gives all "
            "rows again in each micro-batch, and says nothing of rows that are gone: use write_stream(df, uri, "
            f"{topic!r}, lastBy='unique').outputMode('update'), which writes the rows that have changed"
        )


class KeyedRows:
    """Rows of a task on their way into a stager: of each key the last one, or all of them with a note of their keys.

    A note that would have more than `notes_max` keys is given up.
    """

    def __init__(
        self, batches: Iterable[pa.RecordBatch], topic: StageTopic, last_by: Sequence[str], notes_max: int
    ) -> None:
        self._batches = LastRows(topic, last_by).of(batches) if last_by else batches
        self._topic = topic
        self._notes_max = notes_max
        self._words: list[Words] = [np.zeros(0, np.uint64)]
        self._count = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield each batch, and note its keys once the stager has taken it: it refuses those that are wrong."""
        from sparktxn.store.digests import key_words  # it imports pandas, which writers of other topics do not need

        for batch in self._batches:
            yield batch
            self._count += batch.num_rows
            if self._count <= self._notes_max:
                self._words.append(key_words(self._topic, batch))
            else:
                self._words = []

    def words(self) -> Words | None:
        """Return a hash of each key; None if there are too many."""
        return np.concatenate(self._words) if self._count <= self._notes_max else None


def task_words_max(task: int) -> int:
    """Return of how many keys the message of a task has hashes: its number is known there, and not how many there are.

    Tasks that share a batch evenly have all of what is compared. The messages of 1,000 tasks have 300 MiB at most.
    """
    return max(_TASK_WORDS_MIN, WORDS_MAX // (task + 1))


def check_task(plan: StagePlan, topic: StageTopic, rows: KeyedRows, staged: Sequence[StagedSegment]) -> None:
    """Pass if a task that has all rows of its keys has each key once.

    Raises:
        ConfigurationError: a key is there twice.
    """
    found = _repeated(lambda: plan, staged, rows.words())
    if found is not None:
        raise _twice(found, topic)


def check_batch(
    options: WriteOptions,
    plan: Callable[[], StagePlan],
    staged: Sequence[StagedSegment],
    words: Sequence[bytes | None],
) -> None:
    """Pass if each key is once in what tasks have staged to a keyed topic; `words` are those of their messages.

    Raises:
        ConfigurationError: a key is there twice.
    """
    noted = [np.frombuffer(each, np.uint64) for each in words if each is not None]
    is_known = len(noted) == len(words) and sum(map(len, noted)) <= WORDS_MAX
    found = _repeated(plan, staged, np.concatenate(noted) if is_known else None)
    if found is None:
        return
    topic = plan().topics[staged[0].topic]
    if not last_columns(options):
        raise _twice(found, topic)
    raise ConfigurationError(
        f"key {found!r} of topic {topic.name!r} is in several tasks of this batch, where the option 'lastBy' does not "
        "compare its rows: write with pyspark_txnlog.upsert() or write_stream(), which put a key into one task, or put "
        f"it there by df.repartition({_names(topic.primary_key)}), in SQL by DISTRIBUTE BY "
        f"{', '.join(topic.primary_key)}; nothing was written"
    )


def _repeated(plan: Callable[[], StagePlan], staged: Sequence[StagedSegment], words: Words | None) -> str | None:
    from sparktxn.store.repeatedkeys import repeated_key, repeated_words  # as in KeyedRows

    suspects = None if words is None else repeated_words(words)
    if suspects is not None and not len(suspects):
        return None
    # Two keys may have one hash: the keys themselves are compared.
    return repeated_key(plan(), staged, suspects)


def _twice(key: str, topic: StageTopic) -> ConfigurationError:
    return ConfigurationError(
        f"key {key!r} of topic {topic.name!r} is in this batch more than once, and rows of a frame have no order: set "
        "the option lastBy to the columns that say which row of a key is the last, as lastBy='changed_at', or leave "
        f"all but one out, as df.dropDuplicates([{_names(topic.primary_key)}]) does; nothing was written"
    )


def _names(key: Sequence[str]) -> str:
    return ", ".join(map(repr, key))


def by_key(frame: DataFrame, topic: StageTopic) -> DataFrame:
    """Return the rows with those of each key in one task; few tasks where the rows are few."""
    columns = [F.col(quoted(name)) for name in topic.primary_key]
    count = _task_count(frame)
    return frame.repartition(*columns) if count is None else frame.repartition(count, *columns)


def divided_by_key(batches: Iterable[pa.RecordBatch], topic: StageTopic, count: int) -> Iterator[tuple[int, bytes]]:
    """Yield the rows as messages of Arrow, each with the number of the task, of `count`, that has all of its keys."""
    from sparktxn.store.digests import key_words  # as in KeyedRows

    for batch in batches:
        which = key_words(topic, batch) % np.uint64(count)
        for task in np.unique(which).tolist():
            yield task, batch.filter(pa.array(which == task)).serialize().to_pybytes()


def _task_count(frame: DataFrame) -> int | None:
    """Return in how many tasks rows are staged; None leaves it to Spark, where it alone knows the cores."""
    if not is_classic(frame):
        return None
    planned = HoldableRows(frame).planned_bytes()
    if planned >= _UNKNOWN_BYTES:
        return parallelism_of(frame.sparkSession)
    most = int(frame.sparkSession.conf.get(_SHUFFLE_PARTITIONS) or 1)
    return min(most, max(1, -(-planned // _TASK_BYTES)))
