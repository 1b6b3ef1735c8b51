"""Random topics that are tables, conditions on each of their columns, and what `read_arrow` has that meets them.

All follows from a seed. Topics have columns of every type, some of them added later, aborted transactions, and deleted
records. Formats were off for a while.
"""

from __future__ import annotations

import decimal
import math
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sparktxn import Producer, Store, TopicPartition, read_arrow
from sparktxn._engine.format.schema import check_schema, parse_type
from sparktxn._engine.format.statistics import leaves
from sparktxn._kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from sparktxn.admin.client import AdminClient
from sparktxn.admin.records import delete_records
from sparktxn.maintenance import list_tables, publish_tables

__all__ = ["Condition", "Place", "RandomTable", "random_table"]

Place = tuple[int, int]
"""Partition and offset of a row."""

TOPIC: Final = "rides"
_TYPES: Final = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "float",
    "double",
    "decimal128(9, 2)",
    "decimal128(18, 0)",
    "decimal128(38, 10)",
    "string",
    "binary",
    "date32",
    "timestamp[us, tz=UTC]",
    "timestamp[us]",
    "list<int64>",
    "map<string, double>",
    "struct<x: int64, y: string, in: struct<z: double>>",
)
_WORDS: Final = (
    "",
    "a",
    "b",
    "a" * 16,
    "a" * 17,
    "a" * 32,
    "a" * 33 + "z",
    "é" * 40,
    "\U0010ffff" * 34,
    "it's",
    "x" * 5000,
)
_EPOCH: Final = datetime(2020, 1, 1)


class Condition(NamedTuple):
    """A condition on a column, or on a field of a struct, and the places of the rows that meet it.

    `operator` is ``=``, ``>=``, ``<`` or ``is null``. Engines of SQL take NaN for greater than all numbers: they find
    the `places`. Others take it for neither less nor greater, and find the `certain` ones.
    """

    names: tuple[str, ...]
    type: str
    operator: str
    value: Any
    places: frozenset[Place]
    certain: frozenset[Place]

    def is_met(self, found: frozenset[Place]) -> bool:
        return found in (self.places, self.certain)

    def __str__(self) -> str:
        return f"{'.'.join(self.names)} ({self.type}) {self.operator} {str(self.value)[:60]!r}"


class RandomTable(NamedTuple):
    """A topic's table: where engines find it, its schema, and conditions on its columns."""

    seed: int
    address: str
    location: str
    version: int
    schema: pa.Schema
    conditions: Sequence[Condition]

    @property
    def metadata(self) -> str:
        """The Iceberg metadata of the version."""
        return f"{self.location}/metadata/v{self.version + 1}.metadata.json"


def random_table(folder: Path, seed: int) -> RandomTable:
    """Make a store with a topic that has lived, published in both formats."""
    rng = random.Random(seed)
    address = str(folder / f"store-{seed}")
    columns = [(f"c{place}", data_type, True) for place, data_type in enumerate(rng.sample(_TYPES, rng.randint(3, 8)))]
    with Store.open(address, create=True) as store:
        store.create_topic(TOPIC, 2, schema=columns, settings={"table.formats": "delta,iceberg"})
        for _ in range(rng.randint(3, 6)):
            _step(rng, store, columns)
        _set_formats(address, "delta,iceberg")
        _write(rng, address, columns)
        publish_tables(store)
        (table,) = list_tables(store, [TOPIC])
        rows = read_arrow(store, TOPIC).read_all()
        assert table.location is not None
        assert table.version is not None
        return RandomTable(seed, address, table.location, table.version, rows.schema, list(_conditions(rng, rows)))


def _step(rng: random.Random, store: Store, columns: list[tuple[str, str, bool]]) -> None:
    address = store.log.objects.uri
    for _ in range(rng.randint(1, 3)):
        _write(rng, address, columns)
    action = rng.random()
    if action < 0.35:
        columns.append((f"c{len(columns)}", rng.choice(_TYPES), True))
        store.add_columns(TOPIC, columns[-1:])
    elif action < 0.5:
        _set_formats(address, rng.choice(["delta", "iceberg", ""]))
    elif action < 0.6:
        end = store.log.view([TOPIC]).partitions[TOPIC, 0].log_end_offset
        if end > 4:
            delete_records(store.log, TopicPartition(TOPIC, 0, rng.randrange(1, 4)))
    (topic,) = store.log.view([TOPIC]).topics.values()
    if rng.random() < 0.8 and topic.settings.get("table.formats"):
        publish_tables(store)


def _set_formats(address: str, formats: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    operation = AlterConfigOpType.SET if formats else AlterConfigOpType.DELETE
    entry = ConfigEntry("table.formats", formats or None, incremental_operation=operation)
    for future in admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])]
    ).values():
        future.result(30)


def _write(rng: random.Random, address: str, columns: Sequence[tuple[str, str, bool]]) -> None:
    schema = pa.schema([pa.field(name, parse_type(data_type)) for name, data_type, _ in check_schema(columns)])
    wild = rng.random() < 0.3
    with Producer({"bootstrap.servers": address, "transactional.id": "w"}) as producer:
        producer.init_transactions(30)
        for is_committed in (rng.random() < 0.7, True):
            producer.begin_transaction()
            for partition in range(2):
                present = [field for field in schema if rng.random() < 0.85] or [schema.field(0)]
                rows = [
                    {field.name: _value(rng, field.type, wild) for field in present} for _ in range(rng.randint(1, 6))
                ]
                producer.produce_arrow(TOPIC, pa.Table.from_pylist(rows, pa.schema(present)), partition=partition)
            if is_committed:
                producer.commit_transaction(30)
            else:
                producer.flush(30)
                producer.abort_transaction(30)


def _value(rng: random.Random, data_type: pa.DataType, wild: bool) -> Any:
    """A value of a type, or null; a wild one may have no bounds in Delta."""
    if rng.random() < 0.25:
        return None
    if pa.types.is_boolean(data_type):
        return rng.random() < 0.5
    if pa.types.is_integer(data_type):
        top = 2 ** (data_type.bit_width - 1)
        return rng.choice([rng.randint(-9, 9), top - 1, -top]) if rng.random() < 0.3 else rng.randint(-9, 9)
    if pa.types.is_floating(data_type):
        wilder = [math.nan, math.inf, -math.inf] if wild else []
        value = rng.choice([0.0, -0.0, 0.1, -2.5, 7.25, 1e30, *wilder])
        return pa.scalar(value, data_type).as_py()
    if pa.types.is_decimal(data_type):
        digits = rng.choice([rng.randint(-500, 500), 10**data_type.precision - 1])
        return Decimal(digits).scaleb(-data_type.scale, _context(data_type.precision))
    if pa.types.is_string(data_type):
        return rng.choice(_WORDS if wild else _WORDS[:-1])
    if pa.types.is_binary(data_type):
        return rng.choice([b"", b"\0\xff", b"a", b"b" * 40])
    if pa.types.is_date(data_type):
        return rng.choice([date(1, 1, 1), date(1969, 12, 31), date(2020, 2, 29), date(9999, 12, 31)])
    if pa.types.is_timestamp(data_type):
        moment = _EPOCH + timedelta(microseconds=rng.choice([0, 1, 999, 1000, 1_000_001, -(10**15)]))
        return moment.replace(tzinfo=UTC) if data_type.tz else moment
    if pa.types.is_list(data_type):
        return [_value(rng, data_type.value_type, wild) for _ in range(rng.randint(0, 2))]
    if pa.types.is_map(data_type):
        return [(f"k{place}", _value(rng, data_type.item_type, wild)) for place in range(rng.randint(0, 2))]
    return {field.name: _value(rng, field.type, wild) for field in data_type}


def _context(precision: int) -> decimal.Context:
    return decimal.Context(prec=precision)


def _conditions(rng: random.Random, rows: pa.Table) -> Iterator[Condition]:
    """Yield some conditions on each column but the topic's name."""
    found = rows.to_pylist()
    for leaf in leaves(rows.schema.remove(rows.schema.get_field_index("_topic"))):
        names = leaf.names or (leaf.path.split(".")[0],)
        column = [_at(row, names) for row in found]
        data_type = str(leaf.type) if leaf.names is not None else "nested"
        operators: tuple[str, ...] = ("=", ">=", "<", "is null")
        if leaf.names is None:
            operators = ("is null",)
        elif pa.types.is_boolean(leaf.type) or pa.types.is_binary(leaf.type):
            operators = ("=", "is null")
        known = [value for value in column if value is not None and value == value]
        for operator in operators:
            if operator == "is null":
                value = None
            elif not known:
                continue
            else:
                value = rng.choice(known)
            places = {_place(row) for row, each in zip(found, column, strict=True) if _meets(each, operator, value)}
            unsure = {
                _place(row)
                for row, each in zip(found, column, strict=True)
                if operator == ">=" and isinstance(each, float) and math.isnan(each)
            }
            yield Condition(names, data_type, operator, value, frozenset(places | unsure), frozenset(places))


def _at(row: Any, names: Sequence[str]) -> Any:
    for name in names:
        row = None if row is None else row[name]
    return row


def _place(row: dict[str, Any]) -> Place:
    return row["_partition"], row["_offset"]


def _meets(each: Any, operator: str, value: Any) -> bool:
    if operator == "is null":
        return each is None
    if each is None:
        return False
    if isinstance(each, str):
        each, value = each.encode(), value.encode()
    if operator == "=":
        return bool(each == value)
    return bool(each >= value) if operator == ">=" else bool(each < value)
