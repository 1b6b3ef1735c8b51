"""Reads of latest rows, against a plain scan of the rows that a compaction has left: time, processor and memory.

Each read is a process of its own, which reports its time, and its memory beyond that of the result.
``BENCH_KEYED_ROWS`` says how many rows the base has: 10 million unless it is set.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bench.figures import Figure, median
from bench.records import temporary_folder
from sparktxn.maintenance import compact
from sparktxn.producer import Producer
from sparktxn.store import Store

__all__ = ["measure"]

_ROWS: Final = int(os.environ.get("BENCH_KEYED_ROWS", "10000000"))
_ROUNDS: Final = 3
_OPTIONS: Final = {"store.fsync": "false", "checkpoint.fold.bytes.per.minute": "0"}
_TAILS: Final = (_ROWS // 10_000, _ROWS // 100, _ROWS // 10)
_TARGETS: Final = (2.0, 2.0, 2.8)
_FILE_ROWS: Final = max(1, _ROWS // 10)
_KEYS: Final = ("int64", "text")
_READERS: Final = ("read_arrow", "to_polars")
_MIB: Final = 1 << 20
_BEYOND_MIB_MAX: Final = 1_024


def _rows(key: str, ids: Any, round_: int) -> pa.Table:
    """Narrow rows, whose key has 16 bytes if it is text."""
    count = len(ids)
    names = pa.array(ids)
    if key == "text":
        digits = np.zeros((count, 16), np.uint8)
        left = ids.copy()
        for place in range(15, -1, -1):
            digits[:, place] = 48 + left % 10
            left //= 10
        ends = np.arange(0, 16 * (count + 1), 16, dtype=np.int32)
        names = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(digits.tobytes())])
    amounts = (ids * 7 + round_) % 100_003
    return pa.table(
        {"id": names, "amount": pa.array(amounts), "share": pa.array(amounts / 7), "round": [round_] * count}
    )


def _store(folder: str, key: str, tail: int, *, is_compacted: bool = True, again: int = 0) -> str:
    """Make a store with all keys once, compacted; then some keys again, as the tail.

    Without a compaction `again` rows of the base have keys that came before.
    """
    kind = pa.int64() if key == "int64" else pa.string()
    columns = [
        pa.field("id", kind, nullable=False),
        ("amount", pa.int64()),
        ("share", pa.float64()),
        ("round", pa.int64()),
    ]
    random = np.random.default_rng(1)
    ids = random.permutation(_ROWS - again)
    ids = np.concatenate([ids, random.choice(ids, again)]) if again else ids
    with Store.open(folder, create=True, options=_OPTIONS) as store:
        store.create_topic("keyed", 1, schema=pa.schema(columns), settings={"primary.key": "id"})
        with Producer({"bootstrap.servers": folder} | _OPTIONS) as producer:
            for first in range(0, _ROWS, _FILE_ROWS):
                producer.produce_arrow("keyed", _rows(key, ids[first : first + _FILE_ROWS], 0))
                producer.flush()
            if is_compacted:
                compact(store, {"compact.target.bytes": 40 * _MIB, "compact.dedupe.buffer.bytes": 1 << 30})
            if tail:
                producer.produce_arrow("keyed", _rows(key, random.choice(ids, tail, replace=False), 1))
                producer.flush()
    return folder


def _read(uri: str, reader: str, asked: dict[str, Any]) -> dict[str, float]:
    """Read in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.keyed", uri, reader, json.dumps(asked)],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _reading(uri: str, reader: str, asked: dict[str, Any]) -> dict[str, float]:
    """Read here, and return seconds, processor seconds, rows, and MiB beyond those of the result."""
    from sparktxn import read_arrow
    from sparktxn.tables import to_polars

    def work() -> Any:
        if reader == "to_polars":
            return to_polars(uri, "keyed", options=_OPTIONS, **asked)
        return read_arrow(uri, "keyed", options=_OPTIONS, **asked).read_all()

    work_of_nothing = {"where": [("amount", "<", -1)], "columns": ["amount"], "rows": "all"}
    (to_polars if reader == "to_polars" else read_arrow)(uri, "keyed", options=_OPTIONS, **work_of_nothing)
    before = _peak_mib()
    wall, cpu = time.perf_counter(), time.process_time()
    table = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    size = (table.estimated_size() if reader == "to_polars" else table.nbytes) / _MIB
    return {"wall_s": wall, "cpu_s": cpu, "rows": len(table), "beyond_mib": _peak_mib() - before - size}


def _peak_mib() -> float:
    """Not getrusage's, which is inherited from the process that started this one."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


def _compared(name: str, uri: str, base: str, target: float) -> Iterator[Figure]:
    """Compare reads of latest rows with those of all rows of a base, in turn."""
    for reader in _READERS:
        pairs = [(_read(base, reader, {"rows": "all"}), _read(uri, reader, {})) for _ in range(_ROUNDS)]
        ratio, cpu = (median([found[of] / plain[of] for plain, found in pairs]) for of in ("wall_s", "cpu_s"))
        about = f"{reader}, {name}"
        yield Figure(f"{about}: time", ratio, "of a plain scan", target, at_most=True)
        yield Figure(f"{about}: processor", cpu, "of a plain scan")
        yield Figure(f"{about}: seconds", median([found["wall_s"] for _, found in pairs]), "s")
        beyond = max(found["beyond_mib"] for _, found in pairs)
        yield Figure(f"{about}: beyond its result", beyond, "MiB", _BEYOND_MIB_MAX, at_most=True)


def measure() -> Iterator[Figure]:
    """Measure all reads for both kinds of keys."""
    for key in _KEYS:
        with temporary_folder() as folder:
            base = _store(f"{folder}/base", key, 0)
            for tail, target in zip(_TAILS, _TARGETS, strict=True):
                uri = _store(f"{folder}/tail-{tail}", key, tail)
                yield from _compared(f"{key}, tail of {tail}", uri, base, target)
            one = [["id", "=", 7 if key == "int64" else f"{7:016}"]]
            found = [_read(uri, "read_arrow", {"where": one}) for _ in range(_ROUNDS)]
            yield Figure(f"read_arrow, {key}, one key: seconds", median([each["wall_s"] for each in found]), "s")
            for again, target in ((_ROWS // 100, 3.5), (_ROWS * 9 // 10, 8.0)):
                uri = _store(f"{folder}/again-{again}", key, 0, is_compacted=False, again=again)
                yield from _compared(f"{key}, no base, {again} superseded", uri, uri, target)


if __name__ == "__main__":
    print(json.dumps(_reading(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))))
