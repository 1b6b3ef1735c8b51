"""The committed records of topics as Arrow data, and as tables of pandas, Polars and DuckDB in memory.

Each function reads one view of the store: only committed records, the same for all topics, and never changing while it
is read. A glob over a store's Parquet files is not such a view: it has aborted records, and those of later
transactions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from sparktxn._engine.format.schema import DELETED_COLUMN
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._foundation.values import arguments
from sparktxn._rows.scan.columns import known_columns, one_layout, output_schema
from sparktxn._rows.scan.conditions import Condition, Literal, checked_condition, conditions_of, matching
from sparktxn._rows.scan.content import Rows, checked_order, checked_rows
from sparktxn._rows.scan.plan import Isolation, Order, ReadTask
from sparktxn.errors import ConfigurationError
from sparktxn.store import LatestTask, Store, read_task
from sparktxn.tables.tableaccess import AsOf, imported, moment_of, opened, pandas_frame

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

Where: TypeAlias = "pc.Expression | Sequence[tuple[Any, ...]] | None"
_NO_LISTS: Final = str | bytes | bytearray | memoryview | Mapping
"""What can be iterated, and is not a list of values: bytes would be taken for numbers."""
_EXPECTED: Final = "expected tuples such as ('amount', '>=', 10) and ('key', 'is not null'), or a pyarrow Expression"


def read_arrow(
    uri: str | os.PathLike[str] | Store,
    topics: str | Iterable[str],
    *,
    columns: Sequence[str] | None = None,
    where: Where = None,
    as_of: AsOf = None,
    rows: Rows | None = None,
    order: Order | None = None,
    isolation: Isolation = "read_committed",
    options: Mapping[str, Any] | None = None,
    batch_rows: int | None = None,
) -> pa.RecordBatchReader:
    """Return a reader of the topics' records, partition by partition in offset order; a topic without any gives none.

    Nothing is fetched before the first batch is asked for, and only some segments at a time are held in memory. A
    vacuum may delete what a reader asks for late: it then raises ViewExpired.

    Args:
        uri: the store's address, or an open store.
        topics: a topic's name, or several that begin with the same columns. What some of them have gained since is
            null in the others.
        columns: names of columns, in the order that is wanted; None: all but those of the record's transaction. A
            column that a topic has gained after the view is null there.
        where: tuples of a column, an operator (docs/tables.md) and a value; a record meets all of them.
            Files without such a record are not decoded. Or a pyarrow Expression over the columns.
        as_of: read the store as it was at this entry (an int), or at this time (a datetime with its zone). A str names
            a transaction, as `Store.transaction_entry` takes it. None: now.
        rows: of keyed topics, ``latest`` are the newest rows of their keys without deletes, and ``all`` are all rows,
            with a column ``_deleted``. None: the latest, of topics without a key all.
        order: ``commit`` reads all that is committed at the view's entry. ``offset`` reads up to the last stable
            offset of each partition, as Kafka does: an open transaction holds back what follows it. None: commit, and
            offset for read_uncommitted.
        isolation: ``read_uncommitted`` gives records of open and aborted transactions, too.
        options: as for `Store.open`; for a `uri` that is an address only.
        batch_rows: the most rows of a batch; None: as the segments hold them.

    Raises:
        ConfigurationError: an argument is wrong, or the topics have different columns.
        StoreNotFound: there is no store.
        CommandRefused: a topic does not exist, or the entry is not in the log.
        ViewExpired: a vacuum has passed the entry.
    """
    given = opened(uri, options)
    names = [topics] if isinstance(topics, str) else list(dict.fromkeys(arguments.identifiers("topics", topics)))
    if not names:
        raise ConfigurationError("topics is empty: name at least one topic")
    order = checked_order(order, isolation)
    batch_rows = arguments.integer_or_none("batch_rows", batch_rows, 1)
    with given as store:
        view = store.view(names, **moment_of(store, as_of))
        is_latest = checked_rows(view.topics.values(), rows)
        selection = _selection(store, view, columns, where, is_latest=is_latest)
        tasks: Sequence[ReadTask | LatestTask]
        if is_latest:
            tasks = store.plan_latest(view, columns=selection.read, conditions=selection.conditions)
            selection = selection._replace(conditions=())
        else:
            whole = store.plan_view(view, order=order, isolation=isolation, columns=selection.read, rows="all")
            tasks = [replace(task, conditions=selection.conditions) for task in whole]
        store_options = store.options
    place = {name: number for number, name in enumerate(names)}
    ordered = sorted(tasks, key=lambda task: (place[task.topic], task.partition))
    found = (rows for task in ordered for rows in read_task(task, store_options, batch_rows=batch_rows))
    batches = (batch for rows in found for batch in selection.of(rows))
    return pa.RecordBatchReader.from_batches(selection.schema, batches)


def to_pandas(
    uri: str | os.PathLike[str] | Store,
    topics: str | Iterable[str],
    *,
    columns: Sequence[str] | None = None,
    where: Where = None,
    as_of: AsOf = None,
    rows: Rows | None = None,
    order: Order | None = None,
    isolation: Isolation = "read_committed",
    options: Mapping[str, Any] | None = None,
    batch_rows: int | None = None,
) -> pd.DataFrame:
    """Return the topics' records as a pandas DataFrame; the arguments and errors are those of `read_arrow`.

    A column of whole numbers that has nulls has floats, as in pandas. If one of them is none of a float's, such columns
    have Python's numbers and None.

    Raises:
        ImportError: pandas is not installed.
    """
    imported("pandas")
    reader = read_arrow(
        uri,
        topics,
        columns=columns,
        where=where,
        as_of=as_of,
        rows=rows,
        order=order,
        isolation=isolation,
        options=options,
        batch_rows=batch_rows,
    )
    return pandas_frame(reader.read_all())


def to_polars(
    uri: str | os.PathLike[str] | Store,
    topics: str | Iterable[str],
    *,
    columns: Sequence[str] | None = None,
    where: Where = None,
    as_of: AsOf = None,
    rows: Rows | None = None,
    order: Order | None = None,
    isolation: Isolation = "read_committed",
    options: Mapping[str, Any] | None = None,
    batch_rows: int | None = None,
) -> pl.DataFrame:
    """Return the topics' records as a Polars DataFrame; the arguments and errors are those of `read_arrow`.

    Raises:
        ImportError: polars is not installed.
    """
    polars = imported("polars")
    reader = read_arrow(
        uri,
        topics,
        columns=columns,
        where=where,
        as_of=as_of,
        rows=rows,
        order=order,
        isolation=isolation,
        options=options,
        batch_rows=batch_rows,
    )
    frame: pl.DataFrame = polars.from_arrow(reader.read_all())
    return frame


def to_duckdb(
    uri: str | os.PathLike[str] | Store,
    topics: str | Iterable[str],
    *,
    connection: duckdb.DuckDBPyConnection | None = None,
    columns: Sequence[str] | None = None,
    where: Where = None,
    as_of: AsOf = None,
    rows: Rows | None = None,
    order: Order | None = None,
    isolation: Isolation = "read_committed",
    options: Mapping[str, Any] | None = None,
    batch_rows: int | None = None,
) -> duckdb.DuckDBPyRelation:
    """Return the topics' records as a relation of DuckDB, which can be queried any number of times.

    The records are held in memory. For more than that, let DuckDB read `read_arrow`'s reader once, or the paths of
    `Store.files`.

    Args:
        uri: as in `read_arrow`.
        topics: as in `read_arrow`.
        connection: the database that the relation belongs to; None: DuckDB's default one.
        columns: as in `read_arrow`, and so are the other arguments.

    Raises:
        ImportError: duckdb is not installed.
    """
    database = imported("duckdb")
    if connection is not None:
        database = arguments.instance("connection", connection, database.DuckDBPyConnection)
    reader = read_arrow(
        uri,
        topics,
        columns=columns,
        where=where,
        as_of=as_of,
        rows=rows,
        order=order,
        isolation=isolation,
        options=options,
        batch_rows=batch_rows,
    )
    relation: duckdb.DuckDBPyRelation = database.from_arrow(reader.read_all())
    return relation


class _Selection(NamedTuple):
    """Which columns and rows of each batch are returned."""

    schema: pa.Schema
    read: tuple[str, ...]
    conditions: tuple[Condition, ...]
    expression: pc.Expression | None

    def of(self, rows: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        """Return what is wanted of `rows`, as batches with the columns of `schema`."""
        found = matching(rows, self.conditions)
        if self.expression is None:
            return [found.select(self.schema.names)] if found.num_rows else []
        table = pa.Table.from_batches([found]).filter(self.expression)
        batches: Sequence[pa.RecordBatch] = table.select(self.schema.names).to_batches()
        return batches


def _selection(
    store: Store, view: ReadView, columns: Sequence[str] | None, where: Where, *, is_latest: bool
) -> _Selection:
    own = output_schema(one_layout(view.topics.values())).names
    if is_latest:
        own = [name for name in own if name != DELETED_COLUMN]
    names = own if columns is None else arguments.identifiers("columns", columns)
    if isinstance(where, pc.Expression):
        # It does not say which columns it is about.
        layout = one_layout(store.with_columns(view).topics.values())
        schema = output_schema(layout, names)
        read = tuple(dict.fromkeys([*output_schema(layout).names, *schema.names]))
        _check_expression(where, output_schema(layout, read))
        return _Selection(schema, read, (), where)
    tuples = _tuples(where)
    asked = [given[0] for given in tuples if isinstance(given, tuple | list) and given and isinstance(given[0], str)]
    layout = one_layout(store.with_columns(view, [*names, *asked]).topics.values())
    schema, known = output_schema(layout, names), known_columns(layout)
    conditions = tuple(condition for given in tuples for condition in _conditions(given, known))
    read = tuple(dict.fromkeys([*schema.names, *(condition.column for condition in conditions)]))
    return _Selection(schema, read, conditions, None)


def _check_expression(where: pc.Expression, schema: pa.Schema) -> None:
    try:
        schema.empty_table().filter(where)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(
            f"where cannot be evaluated ({reason}): the columns are {', '.join(schema.names)}"
        ) from None


def _tuples(where: object) -> list[Any]:
    if where is None:
        return []
    if not isinstance(where, Sequence) or isinstance(where, str | bytes):
        raise TypeError(f"where is {arguments.described(where)}: {_EXPECTED}")
    given = list(where)
    if given and isinstance(given[0], str):
        raise ConfigurationError("where is one condition, expected a list of them: write [(column, operator, value)]")
    return given


def _conditions(given: Any, known: pa.Schema) -> Iterator[Condition]:
    """Yield the conditions of a tuple such as ``("amount", ">=", 10)``."""
    if (
        not isinstance(given, tuple | list)
        or not 2 <= len(given) <= 3
        or not all(isinstance(x, str) for x in given[:2])
    ):
        raise ConfigurationError(f"where has {arguments.shown(given)}: {_EXPECTED}")
    column, operator, *rest = given
    value = rest[0] if rest else None
    takes_list = operator.lower().split() in (["in"], ["not", "in"], ["between"])
    if takes_list and not isinstance(value, _NO_LISTS) and isinstance(value, Iterable):
        # A set has no order, so it does not say which is the least.
        value = None if isinstance(value, Set) and operator.lower() == "between" else tuple(value)
    try:
        for condition in conditions_of(column, operator, value):
            yield checked_condition(_of_python(condition, known), known)
    except ConfigurationError as error:
        raise ConfigurationError(f"where: {error}") from None


def _of_python(condition: Condition, known: pa.Schema) -> Condition:
    """Return a condition with the text of a pattern as the column has it; other values are Python's already."""
    if not isinstance(condition.value, Literal) or condition.column not in known.names:
        return condition
    is_binary = pa.types.is_binary(known.field(condition.column).type)
    text = condition.value.text
    return replace(condition, value=text.encode() if is_binary else text)
