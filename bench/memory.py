"""Peak memory of a process that writes or reads ten million rows, path by path."""

from __future__ import annotations

import subprocess
import sys

from bench.figures import Figure
from bench.reading import fill
from bench.records import temporary_folder, topic_store

__all__ = ["measure"]

_MEGABYTES_MAX = 600
_ROWS = 10_000_000

# Not getrusage: its peak is inherited from the process that started this one.
_AFTER = """
print(next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""

_PATHS = {
    "produce(), one transaction": """
import sys
from sparktxn import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": "memory"})
producer.init_transactions()
producer.begin_transaction()
from bench.records import values
payload = values(1000)
for number in range(int(sys.argv[2])):
    try:
        producer.produce("t", payload[number % 1000], b"%d" % number)
    except BufferError:
        while True:
            producer.poll(0.1)
            try:
                producer.produce("t", payload[number % 1000], b"%d" % number)
                break
            except BufferError:
                pass
producer.commit_transaction()
""",
    "produce_arrow()": """
import sys
from sparktxn import Producer
from bench.records import batch
producer = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": "memory"})
producer.init_transactions()
producer.begin_transaction()
table = batch(100_000)
for _ in range(int(sys.argv[2]) // 100_000):
    producer.produce_arrow("t", table)
producer.commit_transaction()
""",
    "stage() and commit()": """
import sys
from sparktxn import Store
from bench.records import batch
store = Store.open(sys.argv[1])
stager = store.stage_plan(["t"]).open(seed=0, default_topic="t")
table = batch(100_000)
for _ in range(int(sys.argv[2]) // 100_000):
    stager.write(table)
store.commit(stager.finish(), transactional_id="memory")
""",
    "consume_arrow()": """
import sys
from bench.reading import arrow_rate
arrow_rate(sys.argv[1], int(sys.argv[2]))
""",
    "poll()": """
import sys
from bench.reading import poll_rate
poll_rate(sys.argv[1], int(sys.argv[2]))
""",
    "read_task()": """
import sys
from sparktxn import Store, read_task
store = Store.open(sys.argv[1])
view = store.view(["t"])
for task in store.plan(view, store.ranges(view)):
    for batch in read_task(task):
        pass
""",
}


def _megabytes(script: str, folder: str) -> float:
    command = [sys.executable, "-c", script + _AFTER, folder, str(_ROWS)]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(run.stderr)
    return float(run.stdout.split()[-1])


def measure() -> list[Figure]:
    """The figures of memory."""
    figures = []
    with temporary_folder() as filled:
        fill(filled, _ROWS)
        for name, script in _PATHS.items():
            with temporary_folder() as empty:
                writes = name not in ("consume_arrow()", "poll()", "read_task()")
                if writes:
                    topic_store(empty, 1).close()
                megabytes = _megabytes(script, empty if writes else filled)
            figures.append(Figure(f"10 M rows, {name}", megabytes, "MB peak", _MEGABYTES_MAX, True))
    return figures
