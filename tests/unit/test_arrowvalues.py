"""Arrow's values that are made without pandas are those that pyarrow makes itself."""

from __future__ import annotations

import subprocess
import sys
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparktxn._engine.format.schema import RECORD_SCHEMA, stored_schema
from sparktxn._foundation.values.arrowvalues import (
    byte_strings,
    empty_table,
    integers,
    lists_of_pairs,
    repeated,
    scalar_of,
)
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


@given(data=st.lists(st.none() | st.binary(max_size=5), max_size=200))
@example(data=[])
@example(data=[None] * 9)
@example(data=[b""] * 128)
@example(data=[None, b"x"] * 64)
@example(data=[None, b"x"] * 65)
def test_byte_strings_are_pyarrows(data: list[bytes | None]) -> None:
    made = byte_strings(data)
    made.validate(full=True)
    assert made.equals(pa.array(data, pa.binary()))


PAIRS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=9)


@given(data=st.lists(st.none() | PAIRS, max_size=40))
@example(data=[])
@example(data=[None, [], [("", None)], [("é", b""), ("k", b"v")]])
def test_lists_of_headers_are_pyarrows(data: list[list[tuple[str, bytes | None]] | None]) -> None:
    kind = RECORD_SCHEMA.field("headers").type
    made = lists_of_pairs(data, kind)
    made.validate(full=True)
    assert made.equals(pa.array(data, kind))


FIRST_COMMIT = """
import sys
from sparktxn import Consumer, Producer, Store
uri = sys.argv[1]
Store.open(uri, create=True).create_topic("t")
producer = Producer({"bootstrap.servers": uri, "transactional.id": "first"})
producer.init_transactions()
producer.begin_transaction()
producer.produce("t", b"v", headers={"h": b"x"})
producer.produce("t", None, b"k")
producer.commit_transaction()
consumer = Consumer({"bootstrap.servers": uri, "group.id": "g", "auto.offset.reset": "earliest"})
consumer.subscribe(["t"])
assert consumer.poll(30).headers() == [("h", b"x")]
consumer.commit(asynchronous=False)
consumer.close()
producer.close()
print("pandas" in sys.modules)
"""

MANY_COMMITS = """
import sys
from sparktxn import Producer, Store
uri = sys.argv[1]
store = Store.open(uri, create=True)
store.create_topic("t")
producer = Producer({"bootstrap.servers": uri, "transactional.id": "many"})
producer.init_transactions()
for records in [1_000] + [1] * 80:
    producer.begin_transaction()
    for _ in range(records):
        producer.produce("t", b"v", b"k", headers={"h": b"x"})
    producer.commit_transaction()
store.log.checkpoint()
assert store.view(["t"]).partitions["t", 0].sealed, "no run is sealed"
producer.close()
print("pandas" in sys.modules)
"""


MANY_SEGMENTS = """
import sys
from sparktxn import Consumer, Producer, Store
from sparktxn.store import read_task
uri = sys.argv[1]
Store.open(uri, create=True).create_topic("t")
producer = Producer({"bootstrap.servers": uri, "transactional.id": "many"})
producer.init_transactions()
for _ in range(20):
    producer.begin_transaction()
    producer.produce("t", b"v")
    producer.commit_transaction()
consumer = Consumer({"bootstrap.servers": uri, "group.id": "g", "auto.offset.reset": "earliest"})
consumer.subscribe(["t"])
assert len(consumer.consume(20, 30)) == 20
with Store.open(uri) as store:
    view = store.view(["t"])
    (task,) = store.plan(view, store.ranges(view), columns=["offset", "transactional_id", "value"])
    assert sum(batch.num_rows for batch in read_task(task, None)) == 20
consumer.close()
producer.close()
print("pandas" in sys.modules)
"""


@pytest.mark.parametrize("program", [FIRST_COMMIT, MANY_COMMITS, MANY_SEGMENTS], ids=["first", "many", "segments"])
def test_a_process_that_produces_and_consumes_imports_no_pandas(program: str, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"


@given(st.lists(st.tuples(st.none() | st.text(), st.integers(1, 4)), max_size=8))
def test_repeated_values_are_a_run_end_encoded_arrays(runs: list[tuple[str | None, int]]) -> None:
    values = pa.array([value for value, _ in runs], pa.string())
    made = repeated(values, integers(accumulate(count for _, count in runs)))
    made.validate(full=True)
    assert made.equals(pa.array([value for value, count in runs for _ in range(count)], pa.string()))


@pytest.mark.parametrize("schema", [RECORD_SCHEMA, stored_schema(EVERY_TYPE), pa.schema([])], ids=len)
def test_an_empty_table_is_pyarrows(schema: pa.Schema) -> None:
    made = empty_table(schema)
    made.validate(full=True)
    assert made.equals(schema.empty_table())
    assert made.schema.equals(schema)
