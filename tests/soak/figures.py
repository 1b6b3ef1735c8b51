"""What a process uses, measured from inside."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import time
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pyarrow as pa

_LOOKS: Final = 5
_LOOK_S: Final = 0.2


class Figures(NamedTuple):
    """What a process uses after it has dealt with `entries` of the log."""

    entries: int
    cpu_s: float
    resident_bytes: int
    objects: int
    threads: int
    descriptors: int

    @classmethod
    def now(cls, entries: int) -> Figures:
        """Measures, after what is garbage has been freed and given back to the system.

        A checkpoint that is under way, or a client that is just being given back, is not growth. Of several readings
        within a second the least figures count.
        """
        cpu_s = time.process_time()
        looks = [_look() for _ in range(_LOOKS)]
        return cls(entries, cpu_s, *(min(figures) for figures in zip(*looks, strict=True)))


class Fifth(NamedTuple):
    """A fifth of a run: what each entry cost in it, and what the process used at its end."""

    cpu_us_per_entry: float
    resident_bytes: int
    objects: int
    threads: int
    descriptors: int


def fifths(measured: list[Figures]) -> list[Fifth]:
    """The fifths of a run that was measured at its beginning and at the end of each fifth."""
    return [
        Fifth(
            (after.cpu_s - before.cpu_s) * 1e6 / max(1, after.entries - before.entries),
            after.resident_bytes,
            after.objects,
            after.threads,
            after.descriptors,
        )
        for before, after in pairwise(measured)
    ]


def table(name: str, run: list[Fifth]) -> str:
    """The fifths as lines of text."""
    lines = [f"{name:8} {'CPU us/entry':>12} {'MB resident':>12} {'objects':>9} {'threads':>8} {'descriptors':>12}"]
    lines += [
        f"fifth {number}  {fifth.cpu_us_per_entry:12.1f} {fifth.resident_bytes / 1e6:12.1f} "
        f"{fifth.objects:9} {fifth.threads:8} {fifth.descriptors:12}"
        for number, fifth in enumerate(run, 1)
    ]
    return "\n".join(lines)


def _look() -> tuple[int, int, int, int]:
    """(resident bytes, memory blocks of Python's objects, threads, descriptors) at this moment.

    Threads are all but the numbered ones of a log's pools, which are made as they are needed, up to a bound.
    """
    time.sleep(_LOOK_S)
    gc.collect()
    objects = sys.getallocatedblocks()
    pa.default_memory_pool().release_unused()
    trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    with open("/proc/self/statm") as statm:
        resident_bytes = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    threads = sum(not thread.name[-1].isdigit() for thread in threading.enumerate())
    return resident_bytes, objects, threads, len(os.listdir("/proc/self/fd"))
