"""What the processes of Spark's workers import: each one that starts pays for all of it, before its first row."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from sparktxn import Store

pytestmark = pytest.mark.spark

PROCESSES = {
    "plans a write": """
from pyspark.sql.types import BinaryType, StructType
from pyspark_txnlog import DefaultSource
schema = StructType().add("key", BinaryType()).add("value", BinaryType())
written = DefaultSource({"path": given("uri"), "topic": "t"}).streamWriter(schema, False)
assert written._plan.topics["t"].name == "t"
""",
    "stages": """
import pyspark_txnlog.writing.foreach, pyspark_txnlog.writing.stream_writer
stager = given("plan").open(seed=0, inline=True, default_topic="t")
stager.write(given("rows"))
assert sum(segment.record_count for segment in stager.finish()) == 1
""",
    "commits": """
from pyspark_txnlog import sparkinternals
sys.modules[sparkinternals.COMMITTING_WORKER] = sys
from pyspark_txnlog import DefaultSource
from pyspark_txnlog.writing.stream_writer import StagedMicroBatch
writer = DefaultSource({"path": given("uri"), "topic": "t"}).streamWriter(None, False)
writer.commit([StagedMicroBatch(given("staged"), "q", "r", 0)], 0)
""",
    "reads": """
import pyspark_txnlog.reading.batch_reader
from sparktxn import read_task
assert sum(rows.num_rows for rows in read_task(given("task"))) == 1
""",
}

LOG = ("sparktxn._engine.log.write", "sparktxn._engine.state.rules", "sparktxn.store.store")

NEEDLESS = {
    "plans a write": ("pandas",),
    "stages": ("sparktxn._engine.log", "sparktxn._rows.scan.reader", "sparktxn._rows.scan.plan", *LOG),
    "commits": ("pandas",),
    "reads": ("pandas", "sparktxn._rows.stage.stager", *LOG),
}
"""A task that writes has pandas: Spark's own function at its end makes an Arrow array."""


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_of_spark_imports_what_it_needs(store: Store, tmp_path: Path, process: str) -> None:
    store.create_topic("t", 1)
    plan, [rows] = store.stage_plan(["t"]), pa.table({"value": [b"v"]}).to_batches()
    staged = []
    for _ in range(2):
        stager = plan.open(seed=0, default_topic="t")
        stager.write(rows)
        staged.append(tuple(stager.finish()))
    store.commit(staged[0])
    [task] = store.plan_view(store.view(["t"]))
    given = {"uri": store.uri, "plan": plan, "rows": rows, "staged": staged[1], "task": task}
    for name, value in given.items():
        (tmp_path / name).write_bytes(pickle.dumps(value))
    needless = NEEDLESS[process]
    program = f"""
import pickle, sys
from pathlib import Path
def given(name):
    return pickle.loads(Path(sys.argv[1], name).read_bytes())
{PROCESSES[process]}
print([name for name in sys.modules if name in {needless} or name.startswith({tuple(f"{name}." for name in needless)})])
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
