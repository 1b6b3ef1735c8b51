"""The ways in which engines read a topic's table by a condition: each returns the places of the rows that it finds.

An engine is imported by the ways that need it, so that any environment has those of its packages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from importlib import import_module
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn._engine.format.names import PARTITION_COLUMN
from sparktxn._engine.format.schema import parse_type
from tests.randomtables import Condition, Place, RandomTable

__all__ = ["DEV_WAYS", "DUCKDB_WAYS", "FRAME_WAYS", "Way", "differences", "spark_way"]

Way = Callable[[RandomTable, Condition], "frozenset[Place] | None"]
"""None where the engine has no such condition."""

_OWN_ERRORS: Final = {
    # In a file that lacks the column, as one from before the column does.
    "daft": ("Cannot perform comparison on types: Null, ", "Attempting to downcast Null to "),
    # It takes a text for each binary value of a condition.
    "chdb deltaLakeLocal": ("Invalid comparison operation: BinaryView ",),
}
"""What engines say of sound conditions on tables that delta-rs and pyiceberg have written, too."""

PLACE: Final = [PARTITION_COLUMN, "_offset"]
_PLACES_SQL: Final = f"{PARTITION_COLUMN}, _offset"


def differences(table: RandomTable, ways: Mapping[str, Way]) -> tuple[list[str], int]:
    """What each way finds otherwise than `read_arrow`, and how many answers were compared."""
    found, count = [], 0
    for condition in table.conditions:
        for name, way in ways.items():
            try:
                places: Any = way(table, condition)
            except Exception as error:
                places = None if _is_its_own(name, str(error)) else f"{type(error).__name__}: {str(error)[:300]}"
            if places is None:
                continue
            count += 1
            if isinstance(places, str) or not condition.is_met(places):
                said = places if isinstance(places, str) else f"{len(places)} rows"
                wanted = f"{len(condition.places)} rows"
                found.append(f"seed {table.seed}: {name}: {condition}: {said}, expected {wanted}")
    return found, count


def _is_its_own(way: str, error: str) -> bool:
    return any(said in error for engine, texts in _OWN_ERRORS.items() if way.startswith(engine) for said in texts)


def _places(rows: Any) -> frozenset[Place]:
    table = pa.table(rows).select(PLACE)
    return frozenset(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _names(condition: Condition) -> tuple[str, ...]:
    return (PARTITION_COLUMN,) if condition.names == ("_partition",) else condition.names


def _type(condition: Condition) -> pa.DataType:
    """The type of the column; of the topic's own ones, too."""
    if condition.type == "timestamp[ms, tz=UTC]":
        return pa.timestamp("us", "UTC")
    if condition.type == "date32[day]":
        return pa.date32()
    return parse_type(condition.type)


def _expression(condition: Condition) -> pc.Expression:
    field = pc.field(*_names(condition)) if len(condition.names) > 1 else pc.field(_names(condition)[0])
    if condition.operator == "is null":
        return field.is_null()
    value = pa.scalar(condition.value, _type(condition))
    return {"=": field == value, ">=": field >= value, "<": field < value}[condition.operator]


# SQL


def _duckdb_literal(value: Any, data_type: pa.DataType) -> str:
    if pa.types.is_binary(data_type):
        return f"from_hex('{value.hex()}')"
    if pa.types.is_timestamp(data_type):
        return f"CAST('{value.isoformat()}' AS {'TIMESTAMPTZ' if data_type.tz else 'TIMESTAMP'})"
    return _literal(value, data_type, "REAL")


def _datafusion_literal(value: Any, data_type: pa.DataType) -> str:
    if pa.types.is_binary(data_type):
        return f"X'{value.hex()}'"
    if pa.types.is_timestamp(data_type):
        zone = 'Some("UTC")' if data_type.tz else "None"
        return f"arrow_cast('{value.isoformat()}', 'Timestamp(Microsecond, {zone})')"
    return _literal(value, data_type, "REAL")


def _spark_literal(value: Any, data_type: pa.DataType) -> str:
    if pa.types.is_binary(data_type):
        return f"X'{value.hex()}'"
    if pa.types.is_timestamp(data_type):
        return f"CAST('{value.isoformat(' ')}' AS {'TIMESTAMP' if data_type.tz else 'TIMESTAMP_NTZ'})"
    if pa.types.is_string(data_type):
        return "'" + value.replace("'", "\\'") + "'"
    return _literal(value, data_type, "FLOAT")


def _clickhouse_literal(value: Any, data_type: pa.DataType) -> str | None:
    if pa.types.is_binary(data_type):
        return f"unhex('{value.hex()}')"
    if pa.types.is_date(data_type):
        return f"toDate32('{value.isoformat()}')" if value.year == 2020 else None
    if pa.types.is_timestamp(data_type):
        if value.year < 1900:
            return None
        naive = value.replace(tzinfo=None)
        return f"toDateTime64('{naive.isoformat(' ', 'microseconds')}', 6, 'UTC')"
    if pa.types.is_decimal(data_type):
        return f"toDecimal128('{value:f}', {data_type.scale})"
    if pa.types.is_floating(data_type):
        return f"toFloat{data_type.bit_width}('{value!r}')"
    return _literal(value, data_type, "")


def _literal(value: Any, data_type: pa.DataType, single: str) -> str:
    """What dialects of SQL have in common."""
    if pa.types.is_boolean(data_type):
        return "TRUE" if value else "FALSE"
    if pa.types.is_floating(data_type):
        return f"CAST('{value!r}' AS {single if data_type.bit_width == 32 else 'DOUBLE'})"
    if pa.types.is_decimal(data_type):
        return f"CAST('{value:f}' AS DECIMAL({data_type.precision}, {data_type.scale}))"
    if pa.types.is_date(data_type):
        return f"CAST('{value.isoformat()}' AS DATE)"
    if pa.types.is_string(data_type):
        return "'" + value.replace("'", "''") + "'"
    # The least 64-bit integer is not a literal: a minus is applied to what is too large.
    return str(value) if value > -(2**63) else f"({value + 1} - 1)"


def _where(condition: Condition, column: str, literal: Callable[[Any, pa.DataType], str | None]) -> str | None:
    if condition.operator == "is null":
        return f"{column} IS NULL"
    text = literal(condition.value, _type(condition))
    return None if text is None else f"{column} {condition.operator} {text}"


def _dotted(condition: Condition, quote: str = '"') -> str:
    return ".".join(f"{quote}{name}{quote}" for name in _names(condition))


def _datafusion_condition(condition: Condition) -> str | None:
    first, *rest = _names(condition)
    return _where(condition, f'"{first}"' + "".join(f"['{name}']" for name in rest), _datafusion_literal)


def spark_way(spark: Any, format_name: str, table: RandomTable, condition: Condition) -> frozenset[Place] | None:
    """Read by a session of Spark, whose jars know the format."""
    where = _where(condition, _dotted(condition, "`"), _spark_literal)
    rows = spark.read.format(format_name).load(table.location).where(where).select(*PLACE)
    return frozenset((row[0], row[1]) for row in rows.collect())


def _duckdb_condition(condition: Condition) -> str | None:
    return _where(condition, _dotted(condition), _duckdb_literal)


# delta-rs


def _delta(table: RandomTable) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(table.location)


def _filters(condition: Condition) -> list[tuple[str, str, Any]] | None:
    if len(condition.names) > 1 or condition.operator == "is null":
        return None
    value = condition.value
    if pa.types.is_float32(_type(condition)):
        value = pa.scalar(value, pa.float32())
    return [(_names(condition)[0], condition.operator, value)]


def delta_rs_pandas(table: RandomTable, condition: Condition) -> frozenset[Place] | None:
    filters = _filters(condition)
    if filters is None:
        return None
    frame = _delta(table).to_pandas(columns=PLACE, filters=filters)
    return frozenset((int(part), int(offset)) for part, offset in frame.itertuples(index=False))


def delta_rs_table(table: RandomTable, condition: Condition) -> frozenset[Place] | None:
    filters = _filters(condition)
    return None if filters is None else _places(_delta(table).to_pyarrow_table(columns=PLACE, filters=filters))


def delta_rs_dataset(table: RandomTable, condition: Condition) -> frozenset[Place] | None:
    return _places(_delta(table).to_pyarrow_dataset().to_table(columns=PLACE, filter=_expression(condition)))


def delta_rs_query(table: RandomTable, condition: Condition) -> frozenset[Place] | None:
    from deltalake import QueryBuilder

    query = QueryBuilder().register("rides", _delta(table))
    where = _datafusion_condition(condition)
    return _places(query.execute(f"SELECT {_PLACES_SQL} FROM rides WHERE {where}").read_all())


# Polars


def _polars(scan: Callable[[RandomTable], Any], table: RandomTable, condition: Condition) -> frozenset[Place] | None:
    import polars as pl

    first, *rest = _names(condition)
    column = pl.col(first)
    for name in rest:
        column = column.struct.field(name)
    if condition.operator == "is null":
        meets = column.is_null()
    else:
        value = pl.lit(pl.Series(pa.array([condition.value], _type(condition))).item(), _polars_type(_type(condition)))
        meets = {"=": column == value, ">=": column >= value, "<": column < value}[condition.operator]
    return frozenset(scan(table).filter(meets).select(PLACE).collect().rows())


def _polars_type(data_type: pa.DataType) -> Any:
    import polars as pl

    return pl.from_arrow(pa.array([None], data_type)).dtype  # type: ignore[union-attr]


def _scan_delta(table: RandomTable, **options: Any) -> Any:
    import polars as pl

    return pl.scan_delta(table.location, **options)


def _scan_iceberg(table: RandomTable, **options: Any) -> Any:
    import polars as pl

    os.environ.setdefault("POLARS_ICEBERG_PLANNER", "pyiceberg")  # it warns that another package plans faster
    return pl.scan_iceberg(table.metadata, **options)


# DuckDB


def duckdb_over_delta_rs(table: RandomTable, condition: Condition) -> frozenset[Place] | None:
    import duckdb

    rides = _delta(table).to_pyarrow_dataset()
    return _by_duckdb(duckdb.connect(), "rides", condition, rides=rides)


def _by_duckdb(connection: Any, source: str, condition: Condition, **registered: Any) -> frozenset[Place] | None:
    connection.execute("SET timezone = 'UTC'")
    for name, data in registered.items():
        connection.register(name, data)
    query = f"SELECT {_PLACES_SQL} FROM {source} WHERE {_duckdb_condition(condition)}"
    return frozenset(connection.execute(query).fetchall())


def opened_duckdb(table: RandomTable, condition: Condition) -> frozenset[Place] | None:
    import duckdb

    from sparktxn import open_table

    connection = duckdb.connect()
    connection.execute("SET timezone = 'UTC'")
    rides = open_table(table.address, "rides").duckdb(connection)
    return frozenset(rides.filter(_duckdb_condition(condition)).project(_PLACES_SQL).fetchall())


def opened_arrow(table: RandomTable, condition: Condition) -> frozenset[Place] | None:
    from sparktxn import open_table

    return _places(open_table(table.address, "rides").arrow().to_table(columns=PLACE, filter=_expression(condition)))


def _opened_polars(table: RandomTable) -> Any:
    from sparktxn import open_table

    return open_table(table.address, "rides").polars()


# pyiceberg


def pyiceberg_scan(table: RandomTable, condition: Condition) -> frozenset[Place] | None:
    from pyiceberg import expressions
    from pyiceberg.table import StaticTable

    name = ".".join(_names(condition))
    if condition.operator == "is null":
        if condition.type == "nested":
            return None
        is_null: Any = expressions.IsNull
        meets: Any = is_null(name)
    else:
        value = condition.value
        if isinstance(value, datetime):
            value = value.isoformat(timespec="microseconds")
        kinds = {"=": expressions.EqualTo, ">=": expressions.GreaterThanOrEqual, "<": expressions.LessThan}
        meets = kinds[condition.operator](name, value)
    scan = StaticTable.from_metadata(table.metadata).scan(row_filter=meets, selected_fields=tuple(PLACE))
    return _places(scan.to_arrow())


DEV_WAYS: Final[dict[str, Way]] = {
    "delta-rs to_pandas": delta_rs_pandas,
    "delta-rs to_pyarrow_table": delta_rs_table,
    "delta-rs to_pyarrow_dataset": delta_rs_dataset,
    "delta-rs QueryBuilder": delta_rs_query,
    "polars scan_delta": partial(_polars, _scan_delta),
    "polars scan_delta by pyarrow": partial(_polars, partial(_scan_delta, use_pyarrow=True)),
    "polars scan_iceberg, native": partial(_polars, partial(_scan_iceberg, reader_override="native")),
    "polars scan_iceberg by pyiceberg": partial(_polars, partial(_scan_iceberg, reader_override="pyiceberg")),
    "duckdb over delta-rs": duckdb_over_delta_rs,
    "open_table().duckdb": opened_duckdb,
    "open_table().arrow": opened_arrow,
    "open_table().polars": partial(_polars, _opened_polars),
    "pyiceberg scan": pyiceberg_scan,
}
"""The ways of the packages that this project's environment has."""


# DuckDB's own readers, and engines of other environments


def _duckdb_reader(source: str, table: RandomTable, condition: Condition) -> frozenset[Place] | None:
    from tests.interop.programs.table_readers import connect

    return _by_duckdb(connect(), source.format(location=table.location, metadata=table.metadata), condition)


DUCKDB_WAYS: Final[dict[str, Way]] = {
    "duckdb delta_scan": partial(_duckdb_reader, "delta_scan('{location}')"),
    "duckdb iceberg_scan": partial(_duckdb_reader, "iceberg_scan('{metadata}')"),
}


def datafusion_table(table: RandomTable, condition: Condition) -> frozenset[Place] | None:
    context = import_module("datafusion").SessionContext()
    context.register_dataset("rides", _delta(table).to_pyarrow_dataset())
    rows = context.sql(f"SELECT {_PLACES_SQL} FROM rides WHERE {_datafusion_condition(condition)}")
    return _places(rows.to_arrow_table())


def datafusion_provider(table: RandomTable, condition: Condition) -> frozenset[Place] | None:
    context = import_module("datafusion").SessionContext()
    context.register_table("rides", _delta(table))
    rows = context.sql(f"SELECT {_PLACES_SQL} FROM rides WHERE {_datafusion_condition(condition)}")
    return _places(rows.to_arrow_table())


def _daft(read: Callable[[RandomTable], Any], table: RandomTable, condition: Condition) -> frozenset[Place] | None:
    daft = import_module("daft")
    if condition.value == 0 and isinstance(condition.value, float):
        return None  # Daft takes -0.0 for less than 0.0
    first, *rest = _names(condition)
    column = daft.col(first)
    for name in rest:
        column = column.get(name)
    if condition.operator == "is null":
        meets = column.is_null()
    else:
        value = daft.lit(condition.value).cast(daft.DataType.from_arrow_type(_type(condition)))
        meets = {"=": column == value, ">=": column >= value, "<": column < value}[condition.operator]
    return _places(read(table).where(meets).select(*PLACE).to_arrow())


def _daft_delta(table: RandomTable) -> Any:
    return import_module("daft").read_deltalake(table.location)


def _daft_iceberg(table: RandomTable) -> Any:
    from pyiceberg.table import StaticTable

    return import_module("daft").read_iceberg(StaticTable.from_metadata(table.metadata))


def _chdb(source: str, table: RandomTable, condition: Condition) -> frozenset[Place] | None:
    os.chdir("/")  # it reads files below its folder alone
    chdb = import_module("chdb")
    if condition.type == "nested":
        return None  # ClickHouse takes a null list or map for an empty one
    where = _where(condition, _dotted(condition, "`"), _clickhouse_literal)
    if where is None:
        return None
    place = table.location.removeprefix("file://")
    rides = source.format(place=place)
    if len(condition.names) > 1:
        rides = f"(SELECT * FROM {rides})"  # it finds no field of a struct in a table with partitions
    query = f"SELECT {_PLACES_SQL} FROM {rides} WHERE {where}"
    return _places(pa.ipc.open_file(chdb.query(query, "Arrow").bytes()).read_all())


FRAME_WAYS: Final[dict[str, Way]] = {
    "datafusion over delta-rs' dataset": datafusion_table,
    "datafusion over delta-rs": datafusion_provider,
    "daft read_deltalake": partial(_daft, _daft_delta),
    "daft read_iceberg": partial(_daft, _daft_iceberg),
    "chdb deltaLakeLocal": partial(_chdb, "deltaLakeLocal('{place}')"),
    "chdb icebergLocal": partial(_chdb, "icebergLocal('{place}')"),
}
