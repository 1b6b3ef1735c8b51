"""Arrow's values that are made without pandas are those that pyarrow makes itself."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparktxn.format.schema import RECORD_SCHEMA, stored_schema
from sparktxn.values.arrowvalues import empty_table, integers, scalar_of
from tests.everytype import EVERY_TYPE

VALUES = [
    *((value, pa.int32()) for value in (0, -1, 2**31 - 1, -(2**31))),
    *((value, pa.int64()) for value in (2**63 - 1, -(2**63), None)),
    (2, pa.int16()),
    (1_700_000_000_123, pa.timestamp("ms", tz="UTC")),
    *((value, pa.string()) for value in ("", "topic", "é\0", None)),
]


@pytest.mark.parametrize(("value", "kind"), VALUES)
def test_a_scalar_is_pyarrows(value: int | str | None, kind: pa.DataType) -> None:
    made = scalar_of(value, kind)
    made.validate(full=True)
    assert made.equals(pa.scalar(value, kind))
    assert pa.repeat(made, 3).equals(pa.repeat(pa.scalar(value, kind), 3))


@pytest.mark.parametrize("values", [[], [1], [2**63 - 1, -(2**63), 0]])
def test_an_array_is_pyarrows(values: list[int]) -> None:
    made = integers(iter(values))
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.int64()))


@pytest.mark.parametrize("schema", [RECORD_SCHEMA, stored_schema(EVERY_TYPE), pa.schema([])], ids=len)
def test_an_empty_table_is_pyarrows(schema: pa.Schema) -> None:
    made = empty_table(schema)
    made.validate(full=True)
    assert made.equals(schema.empty_table())
    assert made.schema.equals(schema)
