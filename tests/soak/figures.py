"""What a process uses, measured from inside."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from itertools import pairwise
from typing import Any, NamedTuple


class Figures(NamedTuple):
    """What a process uses after it has dealt with `entries` of the log."""

    entries: int
    cpu_s: float
    resident_bytes: int
    threads: int
    descriptors: int

    @classmethod
    def now(cls, entries: int) -> Figures:
        """Measures, after what is garbage has been freed and given back to the system."""
        gc.collect()
        _trim()
        with open("/proc/self/statm") as statm:
            resident_bytes = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return cls(
            entries, time.process_time(), resident_bytes, threading.active_count(), len(os.listdir("/proc/self/fd"))
        )


class Fifth(NamedTuple):
    """A fifth of a run: what each entry cost in it, and what the process used at its end."""

    cpu_us_per_entry: float
    resident_bytes: int
    threads: int
    descriptors: int


def fifths(measured: list[Figures]) -> list[Fifth]:
    """The fifths of a run that was measured at its beginning and at the end of each fifth."""
    return [
        Fifth(
            (after.cpu_s - before.cpu_s) * 1e6 / max(1, after.entries - before.entries),
            after.resident_bytes,
            after.threads,
            after.descriptors,
        )
        for before, after in pairwise(measured)
    ]


def table(name: str, run: list[Fifth]) -> str:
    """The fifths as lines of text."""
    lines = [f"{name:8} {'CPU us/entry':>12} {'MB resident':>12} {'threads':>8} {'descriptors':>12}"]
    lines += [
        f"fifth {number}  {fifth.cpu_us_per_entry:12.1f} {fifth.resident_bytes / 1e6:12.1f} "
        f"{fifth.threads:8} {fifth.descriptors:12}"
        for number, fifth in enumerate(run, 1)
    ]
    return "\n".join(lines)


def _trim() -> None:
    """Has the C library give freed memory back, so that what is left is in use."""
    trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
