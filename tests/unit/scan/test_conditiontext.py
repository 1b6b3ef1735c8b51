"""Conditions as text: each means what SQL says, or is an error; never another condition."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from sparktxn._rows.scan.conditions import matching, parse_conditions, typed_conditions
from sparktxn.errors import ConfigurationError
from tests.each import each
from tests.seeds import examples, seed_of

NOW_MS = 1_714_564_800_000  # 2024-05-01T12:00:00Z
ROWS: list[dict[str, Any]] = [
    {"key": b"a", "name": "north", "id": 1, "fare": 1.5, "price": Decimal("1.10"), "day": date(2024, 1, 1), "ok": True},
    {
        "key": b"b",
        "name": "n'th",
        "id": 2,
        "fare": -0.0,
        "price": Decimal("2.00"),
        "day": date(2024, 2, 1),
        "ok": False,
    },
    {"key": b"5", "name": "and", "id": 5, "fare": float("nan"), "price": Decimal("-3.25"), "day": None, "ok": None},
    {"key": None, "name": None, "id": None, "fare": None, "price": None, "day": date(1969, 12, 31), "ok": True},
]
TIMES = [datetime(2024, 5, 1, hour, 0, 0, hour, UTC) for hour in (9, 10, 11)]
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("name", pa.string()),
        ("id", pa.int64()),
        ("fare", pa.float64()),
        ("price", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("ok", pa.bool_()),
        ("at", pa.timestamp("us", "UTC")),
        ("single", pa.float32()),
    ]
)
TABLE = pa.Table.from_pylist(
    [
        row | {"at": moment, "single": single}
        for row, moment, single in zip(ROWS, [*TIMES, None], [0.1, math.inf, None, math.nan], strict=True)
    ],
    schema=SCHEMA,
)


def found(text: str) -> list[int]:
    """The numbers of the rows that meet a text's conditions."""
    conditions = typed_conditions(parse_conditions(text), SCHEMA, NOW_MS)
    numbered = TABLE.append_column("number", pa.array(range(TABLE.num_rows)))
    return matching(numbered, conditions).column("number").to_pylist()


@each(
    [
        ("key = a", [0]),
        ("key == 'a'", [0]),
        ('key="a"', [0]),
        ("`key` = a", [0]),
        ('"key" <> a', [1, 2]),
        ("key != a", [1, 2]),
        ("KEY = a", None),
        ("key =< a", None),
        ("key => b", None),
        ("key = 5", None),
        ("key = '5'", [2]),
        ("key > 10", None),
        ("key = name", None),
        ("key = 'a", None),
        ('key = "a', None),
        ("key = ''", []),
        ("key = a;", None),
        ("key = “a”", None),
        ("key = a*", None),
        ("key = $1", None),
        ("key = :a", None),
        ("key = true", None),
        ("key = 'true'", []),
        ('key = "name"', None),
        ('key = "5"', [2]),
        ("name = north/a.b:c@d-e", []),
        ("name = é", []),
        ("key =", None),
        ("key", None),
        ("= a", None),
        ("", None),
        ("  ", None),
        ("key = null", None),
        ("key in ('a', 'b')", [0, 1]),
        ("key in (a,b)", [0, 1]),
        ("key in ('a' 'b')", None),
        ("key in ('a', 'b'", None),
        ("key in ()", None),
        ("key in a", None),
        ("key in ('a', null)", None),
        ("key not in ('a')", [1, 2]),
        ("not key = a", None),
        ("key = a or key = b", None),
        ("key = a and id = 1", [0]),
        ("key = a AND id = 2", []),
        ("key = a id = 1", None),
        ("key = a b", None),
        ("(key = a)", None),
        ("key ~ a", None),
        ("key ! a", None),
        ("name = 'n''th'", [1]),
        ("name = 'and'", [2]),
        ("name = and", None),
        ("name like 'n%'", [0, 1]),
        ("name like 'north'", [0]),
        ("name like '%th'", None),
        ("name like 'n_rth'", None),
        ("name like n%", None),
        ("name not like 'n%'", None),
        ("name starts with n", [0, 1]),
        ("name is null", [3]),
        ("name IS  NOT NULL", [0, 1, 2]),
        ("name is north", None),
        ("name = 1.0", None),
        ("id = 1", [0]),
        ("id = '1'", [0]),
        ("id = 1.0", [0]),
        ("id = 1e0", [0]),
        ("id > 1.5", None),
        ("id = x", None),
        ("id = 1e999", None),
        ("id >= 99999999999999999999", None),
        ("id between 1 and 2", [0, 1]),
        ("id between 1 and 2 and fare > 0", [0]),
        ("id not between 1 and 2", None),
        ("id = true", None),
        ("fare = 0", [1]),
        ("fare > 1", [0, 2]),
        ("fare = nan", [2]),
        ("fare <> 0", [0, 2]),
        ("fare = 15e-1", [0]),
        ("fare = 1_000", None),
        ("fare = \N{ARABIC-INDIC DIGIT ONE}", None),
        ("fare < 1e400", None),
        ("fare > -1e309", None),
        ("fare = 1e-400", None),
        ("fare < inf", [0, 1]),
        ("fare = 9007199254740993", None),
        ("single > 1e39", None),
        ("single < 3e38", [0]),
        ("single = 16777217", None),
        ("single = 1e-60", None),
        ("single = 0.1", [0]),
        ("price = 1.1", [0]),
        ("price = 1.10", [0]),
        ("price = 1.101", None),
        ("price < 0", [2]),
        ("day = 2024-01-01", [0]),
        ("day >= '2024-01-01'", [0, 1]),
        ("day = 2024-13-01", None),
        ("day = 2024-01-01T00:00:00", None),
        ("day > 1", None),
        ("ok = true", [0, 3]),
        ("ok = FALSE", [1]),
        ("ok <> true", [1]),
        ("ok = 1", None),
        ("ok > false", None),
        ("at > 2024-05-01T10:00:00Z", [1, 2]),
        ("at = '2024-05-01T12:00:00.000010+02:00'", [1]),
        ("at >= '2024-05-01 12:00:00 Europe/Berlin'", [1, 2]),
        ("at > 2024-05-01T10:00:00", None),
        ("at > 2024-05-01", None),
        ("at > 2024-05-01T10:00:00.0000101Z", None),
        ("at > 2h", [1, 2]),
        ("at > '-2 hours'", [1, 2]),
        ("at >= 1714557600000", [1, 2]),
        ("at > never", None),
        ("at > '0001-01-01T00:00:00+02:00'", None),
        ("at < 9223372036854775807", None),
        ("nothing = 1", None),
        ("1 = id", None),
    ]
)
def test_a_text_means_what_sql_says_or_is_an_error(text: str, rows: list[int] | None) -> None:
    if rows is not None:
        assert found(text) == rows, text
        return
    with pytest.raises(ConfigurationError):
        print(text, found(text))


@each(["id > 1.5", "id = 9223372036854775808", "price >= 0.001", "ok = yes", "at = '0001-01-01T00:00:00+02:00'"])
def test_an_error_names_the_value_as_it_was_written(text: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(text.split()[-1].strip("'"))):
        found(text)


VALUES = {
    "name": ["'north'", "'n''th'", "''", "'and'", "'z'"],
    "id": ["1", "2", "5", "-7", "0"],
    "fare": ["1.5", "0", "-1", "'nan'", "2e0"],
    "price": ["1.1", "2", "-3.25", "0.05"],
    "day": ["'2024-01-01'", "'1969-12-31'", "'2030-01-01'"],
    "ok": ["true", "false"],
    "at": ["'2024-05-01T10:00:00.000010Z'", "'2024-05-01T13:00:00+02:00'", "'1970-01-01T00:00:00Z'"],
}
OPERATORS = ("=", "==", "<>", "!=", "<", "<=", ">", ">=", "in", "not in", "between", "is null", "is not null", "like")


def random_text(random: Random) -> str:
    name = random.choice([*VALUES])
    operator = random.choice(OPERATORS)
    one, other = (random.choice(VALUES[name]) for _ in range(2))
    column = random.choice([name, f'"{name}"']) if name != "at" else '"at"'  # a keyword of DuckDB's
    if operator in ("in", "not in"):
        return f"{column} {operator} ({one}, {other})"
    if operator == "between":
        return f"{column} between {one} and {other}"
    if operator == "like":
        return f"name like '{random.choice(['n', 'north', '', 'a'])}{random.choice(['%', ''])}'"
    return f"{column} {operator}" + ("" if operator.startswith("is ") else f" {one}")


def test_accepted_texts_mean_what_duckdb_takes_them_for() -> None:
    random = Random(seed_of("conditions of text"))
    accepted = 0
    numbered = TABLE.append_column("number", pa.array(range(TABLE.num_rows)))
    with duckdb.connect() as connection:
        connection.register("rows", numbered)
        for _ in range(examples(200, 5_000)):
            text = " and ".join(random_text(random) for _ in range(random.randint(1, 3)))
            try:
                rows = found(text)
            except ConfigurationError:
                continue
            accepted += 1
            sql = f"SELECT number FROM rows WHERE {text} ORDER BY number"
            assert [number for (number,) in connection.execute(sql).fetchall()] == rows, text
    assert accepted > examples(100, 2_000)
