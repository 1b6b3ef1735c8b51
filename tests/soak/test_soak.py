"""Nothing grows with age: a process commits, opens and drops clients, and another one reads; both stay as they are.

Each fifth of the run is measured. The first one fills caches and pools; the last is compared with the second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparktxn.store import Store
from tests.soak.figures import Fifth, Figures, fifths, table

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="reads /proc")

_CPU_FACTOR = 1.5
_OBJECTS_FACTOR = 1.25
"""Records of recent entries are kept, up to 16 MiB, which are not reached here: two objects for each entry."""
_FOLDING_OBJECTS = 25 * 8_192
"""What the segments take that a fold has read and not yet put into effect."""
_MEMORY_FACTOR = 1.25
"""What allocators keep for later goes up and down by a tenth."""
_OPTIONS = {"store.fsync": False}


def _soak(uri: str, commits: int, clients: int) -> tuple[list[Fifth], list[Fifth]]:
    """The fifths of the writer and of the reader."""
    with Store.open(uri, options=_OPTIONS, create=True) as store:
        store.create_topic("soak", 1)
        store.create_topic("dropped", 1)
    # Each in a process of its own: what other tests have left in this one says nothing of them.
    with _started("reader.py", uri, commits) as reader, _started("writer.py", uri, commits, clients) as writer:
        try:
            written, read = _figures(writer), _figures(reader)
        finally:
            writer.kill()
            reader.kill()
    return fifths(written), fifths(read)


def _started(script: str, *arguments: object) -> subprocess.Popen[str]:
    path = Path(__file__).parent / script
    return subprocess.Popen([sys.executable, path, *map(str, arguments)], stdout=subprocess.PIPE, text=True)


def _figures(process: subprocess.Popen[str]) -> list[Figures]:
    printed, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    return [Figures(*json.loads(line)) for line in printed.splitlines()]


@pytest.mark.nightly
def test_nothing_grows_with_age(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written, read = _soak(str(tmp_path), 50_000, 2_000)
    with capsys.disabled():
        print(f"\n{table('writer', written)}\n{table('reader', read)}")
    for name, run in (("writer", written), ("reader", read)):
        assert len(run) == 5, name
        assert all(fifth.cpu_us_per_entry > 0 and fifth.resident_bytes > 10_000_000 for fifth in run), name
        early, late = run[1], run[4]
        assert late.threads <= early.threads, name
        assert late.descriptors <= early.descriptors, name
        assert late.objects <= early.objects * _OBJECTS_FACTOR + _FOLDING_OBJECTS, name
        assert late.resident_bytes <= early.resident_bytes * _MEMORY_FACTOR, name
        assert late.cpu_us_per_entry <= early.cpu_us_per_entry * _CPU_FACTOR, name
