"""A page takes as much memory as what it shows, whatever its records, their headers and the entries of the log hold.

Each kind of store has large things of one kind. A process of its own opens it. It asks for pages alone and eight at a
time, and says how much its peak has grown (Linux's VmHWM, which never falls).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

from sparktxn import Producer
from sparktxn.store import Store

ROOT: Final = Path(__file__).parents[2]
MIB: Final = 1 << 20
OPTIONS: Final = {"store.fsync": "false"}
ASKING: Final = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from sparktxn.store import Store
from tests.console.asking import Console

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024

def ask(targets, accept):
    found = [console.get(target, accept=accept) for target in targets]
    assert {answer.code for answer in found} == {200}
    return max(len(answer.data) for answer in found)

uri, targets = sys.argv[1], sys.argv[2:]
with Store.open(uri, options={"store.fsync": "false"}) as store, ThreadPoolExecutor(8) as callers:
    console = Console(store, timeout_s=None)
    ask(["/", "/log/1"], "text/html")
    before = peak()
    answer_bytes = [ask(targets, accept) for accept in ("text/html", "application/json")]
    alone = peak() - before
    list(callers.map(lambda _: ask(targets[:2], "text/html"), range(8)))
    print(json.dumps({"alone": alone, "together": peak() - before, "answer": max(answer_bytes)}))
"""
ALONE_BYTES: Final = 160 * MIB
TOGETHER_BYTES: Final = 288 * MIB
"""What files, segments that are decoded, and pages take. The records of each store take more, alone and together."""
RECORDS: Final = "/topics/big/records"
PAGES: Final = (
    *(RECORDS, f"{RECORDS}/0/3?as=hex", f"{RECORDS}?partition=0&offset=0&as=json", f"{RECORDS}?key=nowhere"),
    *("/", "/topics/big", "/topics/big/files", "/log", "/log/4", "/transactions"),
)


def values(uri: str) -> None:
    """Make 24 records of 8 MiB."""
    random = Random(1)
    produce(uri, ((b"k", random.randbytes(8 * MIB), []) for _ in range(24)))


def keys_that_repeat(uri: str) -> None:
    """Make 24 records, each with a key of 8 MiB, which takes few bytes in its file."""
    produce(uri, ((b"k" * 8 * MIB, b"v", []) for _ in range(24)))


def headers(uri: str) -> None:
    """Make 24 records, each with 25,000 headers, which take about 400 bytes each as objects of Python."""
    many = [(f"header-{number}", b"%d" % number * 20) for number in range(25_000)]
    produce(uri, ((b"k", b"v", many) for _ in range(24)))


def columns(uri: str) -> None:
    """Make 24 rows with long texts, and with lists of 100,000 numbers."""
    schema = pa.schema([("text", pa.string()), ("many", pa.list_(pa.int64()))])
    with Store.open(uri, create=True, options=OPTIONS) as store:
        store.create_topic("big", 1, schema=schema, settings={"max.message.bytes": str(32 * MIB)})
    with producer_of(uri) as producer:
        for _ in range(24):
            row = {"text": ["é" * 3 * MIB], "many": [list(range(100_000))]}
            producer.produce_arrow("big", pa.table(row, schema=schema))
            producer.flush()


def producer_of(uri: str, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": uri, "message.max.bytes": 32 * MIB, **OPTIONS, **settings})


def produce(uri: str, records: Iterable[tuple[bytes, bytes, list[tuple[str, bytes]]]]) -> None:
    with Store.open(uri, create=True, options=OPTIONS) as store:
        store.create_topic("big", 1, settings={"max.message.bytes": str(32 * MIB)})
    with producer_of(uri) as producer:
        for key, value, some in records:
            producer.produce("big", value, key, headers=some)
            producer.flush()


@pytest.mark.skipif(sys.platform != "linux", reason="VmHWM is Linux's")
@pytest.mark.parametrize("fill", [values, keys_that_repeat, headers, columns])
def test_pages_take_memory_by_what_they_show(fill: Callable[[str], None], tmp_path: Path) -> None:
    fill(str(tmp_path / "store"))
    found = grown(tmp_path / "store")
    assert found["answer"] < MIB, found
    assert found["alone"] < ALONE_BYTES, found
    assert found["together"] < TOGETHER_BYTES, found


def grown(store: Path) -> dict[str, int]:
    """How many bytes the peak of a process has grown by pages alone and together, and the size of the largest page."""
    done = subprocess.run(
        [sys.executable, "-c", ASKING, str(store), *PAGES], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    print(done.stdout)
    found: dict[str, int] = json.loads(done.stdout)
    return found
