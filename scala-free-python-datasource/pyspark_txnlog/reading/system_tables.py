"""System tables as batch reads: transactions, producers, groups, entries and segments of a store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from msgspec import Struct
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_txnlog.connecting.errorlines import with_one_line_errors
from pyspark_txnlog.connecting.storehandles import open_store
from pyspark_txnlog.options.bounds import AsOf, AsOfPoint, as_of_options
from pyspark_txnlog.options.catalog import kept_options
from pyspark_txnlog.options.options import EntryRange, GivenOptions, entry_range, parse_given
from pyspark_txnlog.options.spark_columns import arrow_of, conform, known_names, spark_schema
from pyspark_txnlog.reading.views import PinnedView, pin_view
from sparktxn import ConfigurationError
from sparktxn.store import SYSTEM_TABLES, TableSelection, read_table_task

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparktxn.store import TableTask

_OF_ALL: Final = frozenset({"path", "table", "asOfEntry", "asOfTimestamp", "asOfTransaction"})
_OF_ONE: Final = {
    "segments": frozenset({"subscribe", "topic"}),
    "entries": frozenset({"startingEntry", "endingEntry", "limit"}),
}


class TableOptions(Struct, frozen=True, kw_only=True):
    """The parsed options of a read of a system table."""

    path: str
    store: dict[str, str]
    table: str
    topics: tuple[str, ...] | None
    entries: EntryRange
    limit: int | None
    as_of: AsOf
    table_options: dict[str, str] | None

    def __repr__(self) -> str:
        return f"TableOptions({self.path!r}, {self.table!r})"

    @classmethod
    def parse(cls, given: Mapping[str, str] | GivenOptions, use: str) -> TableOptions:
        """Return the options of `given` for `use`, a batch or not yet known.

        Raises:
            ConfigurationError: an option is wrong, or has no meaning for the table.
        """
        parsed = parse_given(given, use)
        values = parsed.values
        table = values["table"]
        allowed = _OF_ALL | _OF_ONE.get(table, frozenset())
        for name in values:
            if name not in allowed:
                raise ConfigurationError(
                    f"option {name!r} does not go with the system table {table!r}: it takes "
                    f"{', '.join(sorted(allowed - {'path', 'table'}))}"
                )
        topic = values.get("topic")
        return cls(
            path=values["path"],
            store=parsed.store,
            table=table,
            topics=values.get("subscribe", None if topic is None else (topic,)),
            entries=entry_range(values),
            limit=values.get("limit"),
            as_of=as_of_options(values),
            table_options=kept_options(parsed.texts) if parsed.creates_table else None,
        )


def table_schema(options: TableOptions) -> tuple[StructType, PinnedView]:
    """Return the columns of the table that `options` name, and what pins the entry at which it is read."""
    store = open_store(options.path, options.store)
    point = options.as_of.resolved(store)
    view = store.view([], entry=point.entry, timestamp_ms=point.timestamp_ms)
    return spark_schema(SYSTEM_TABLES[options.table], options.table_options), pin_view(view)


class _TablePartition(InputPartition):
    """One task's part of a system table."""

    def __init__(self, task: TableTask) -> None:
        self.task = task


@with_one_line_errors
class SystemTableReader(DataSourceReader):
    """Plans on the driver at the pinned entry; `read` needs the object store alone."""

    def __init__(self, options: TableOptions, schema: StructType, pinned: PinnedView | None) -> None:
        self._options = options
        self._target = arrow_of(schema)
        self._columns = known_names(schema, SYSTEM_TABLES[options.table], f"the system table {options.table!r}")
        self._pinned = pinned

    def partitions(self) -> Sequence[InputPartition]:
        """Return one part per task.

        Raises:
            ConfigurationError: an entry that an option names is not in the log.
        """
        options, pinned = self._options, self._pinned
        store = open_store(options.path, options.store)
        point = options.as_of.resolved(store) if pinned is None else AsOfPoint(entry=pinned.entry)
        selection = TableSelection(
            topics=options.topics,
            entry=point.entry,
            timestamp_ms=point.timestamp_ms,
            first_entry=options.entries.first,
            last_entry=options.entries.last,
            limit=options.limit,
        )
        tasks = store.plan_table(options.table, selection)
        return [_TablePartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part; Spark makes a part of its own where there is none."""
        if isinstance(partition, _TablePartition):
            for batch in read_table_task(partition.task, self._options.store):
                yield conform(batch.select(list(self._columns)), self._target)
