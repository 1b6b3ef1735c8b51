"""What long jobs show on a terminal: bytes, their rate and the time that is left; and nothing elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparktxn import Store
from sparktxn._programs.cli.failures import progress_text
from sparktxn._programs.cli.output import Meter, Output
from sparktxn.maintenance import copy_store, rewrite
from sparktxn.testing.clocks import ManualClock
from tests.cli.terminal import ok

INLINE_OFF = "append.inline.bytes=0"


@pytest.fixture(autouse=True)
def orders() -> None:
    ok("topics", "create", "orders", "--set", INLINE_OFF)
    for _ in range(3):
        ok("produce", "-t", "orders", stdin=b"record\n" * 100)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a terminal would show."""
    texts: list[str] = []

    @contextmanager
    def progress(self: Output, doing: str) -> Iterator[Callable[[str], None]]:
        texts.append(doing)
        yield texts.append

    monkeypatch.setattr(Output, "progress", progress)
    monkeypatch.setattr(Output, "is_watched", True)
    return texts


@pytest.mark.parametrize(
    "words",
    [
        ("verify",),
        ("copy", "other", "--apply"),
        ("rewrite", "--set", "rewrite.min.segments=2", "--set", "rewrite.min.age.ms=0", "--apply"),
        ("import", "-t", "orders", "a.csv", "b.csv", "--apply"),
    ],
    ids=" ".join,
)
def test_jobs_show_how_many_bytes_are_done(words: tuple[str, ...], folder: Path, shown: list[str]) -> None:
    for name in ("a", "b"):
        (folder / f"{name}.csv").write_text(f"key,value\nk,{name}\n")
    ok(*words)
    assert len(shown) > 1
    assert all(text.startswith(f"{words[0]}: ") and text.endswith(" …") for text in shown)
    done, of = shown[-1].removeprefix(f"{words[0]}: ").split(" of ", 1)
    assert float(done.split()[0]) >= 0
    assert float(of.split()[0]) > 0


@pytest.mark.parametrize(
    ("done", "total", "passed_s", "expected"),
    [
        (0, 4_000_000, 5.0, "0 B of 3.8 MiB"),
        (1_000, 4_000_000, 0.5, "1000 B of 3.8 MiB"),
        (1_000_000, 4_000_000, 2.0, "976.6 KiB of 3.8 MiB, 488.3 KiB/s, 6 s left"),
        (1_000, 400_000_000, 1.0, "1000 B of 381.5 MiB, 1000 B/s, 4 d 15 h left"),
        (4_000_000, 4_000_000, 2.0, "3.8 MiB of 3.8 MiB, 1.9 MiB/s, 0 s left"),
        (5_000_000, 4_000_000, 2.0, "4.8 MiB of 4.8 MiB, 2.4 MiB/s, 0 s left"),
    ],
)
def test_the_rate_and_the_time_left_follow_from_what_is_done(
    done: int, total: int, passed_s: float, expected: str
) -> None:
    assert progress_text(done, total, passed_s) == expected
    texts: list[str] = []
    clock = ManualClock()
    meter = Meter(texts.append, "copy", clock)
    meter.begin(total)
    clock.sleep(passed_s)
    meter.at(done, ", more")
    assert texts == [f"copy: {expected}, more …"]


def test_the_library_says_how_many_bytes_are_done(folder: Path) -> None:
    merged: list[int] = []
    copied: list[int] = []
    with Store.open(folder / "store") as store:
        settings = {"rewrite.min.segments": 2, "rewrite.min.age.ms": 0}
        foreseen = rewrite(store, settings, dry_run=True)
        rewrite(store, settings, on_bytes=merged.append)
        report = copy_store(store, str(folder / "copy"), on_bytes=copied.append)
    assert merged[-1] == foreseen.size_bytes > 0
    assert copied == sorted(copied)
    assert copied[-1] == report.size_bytes


def test_only_a_terminal_shows_it(folder: Path) -> None:
    command = [sys.executable, "-m", "sparktxn", "verify"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr == ""
    ours, its = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=its, env=environment) as process:
        os.close(its)
        seen = b""
        try:
            while data := os.read(ours, 1 << 16):
                seen += data
        except OSError:  # the end, on Linux
            pass
        os.close(ours)
        assert process.wait(120) == 0
    assert b"verify: " in seen
