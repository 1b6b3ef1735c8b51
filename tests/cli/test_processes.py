"""Real processes: closed pipes, Ctrl-C, and kill -9."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import pytest

from sparktxn._programs.cli.standardstreams import Text
from tests.cli.terminal import ok

COMMAND = [sys.executable, "-m", "sparktxn"]
WAIT_S = 60.0


def start(*words: str) -> subprocess.Popen[bytes]:
    """The command as a terminal starts it: tests in the background of a shell ignore Ctrl-C, and so would it."""
    pipe = subprocess.PIPE
    ignored = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return subprocess.Popen([*COMMAND, *words], stdin=pipe, stdout=pipe, stderr=pipe)
    finally:
        signal.signal(signal.SIGINT, ignored)


def stream(found: IO[bytes] | None) -> IO[bytes]:
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def orders(folder: Path) -> None:
    ok("topics", "create", "orders")


def test_a_closed_pipe_ends_it_silently() -> None:
    ok("produce", "-t", "orders", stdin=b"".join(b"%d\n" % number for number in range(50_000)))
    process = start("consume", "-t", "orders")
    assert stream(process.stdout).readline() == b"0\n"
    stream(process.stdout).close()
    assert process.wait(WAIT_S) == 0
    assert stream(process.stderr).read() == b""


class Interrupted(io.FileIO):
    """A file in whose first write a Ctrl-C comes, once the bytes are there."""

    def write(self, data: Any) -> int:
        is_first = not self.tell()
        count = super().write(data)
        if is_first:
            raise KeyboardInterrupt
        return count


def test_what_was_written_when_ctrl_c_came_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "out"
    stream = io.TextIOWrapper(io.BufferedWriter(Interrupted(path, "w")))
    text = Text(stream, buffered=True)
    text.buffer.write(b"1\n")
    with pytest.raises(KeyboardInterrupt):
        text.buffer.flush()
    text.flush()
    assert path.read_bytes() == b"1\n"


def test_ctrl_c_ends_following_silently() -> None:
    process = start("consume", "-t", "orders", "-G", "g")
    for number in (b"1\n", b"2\n"):
        ok("produce", "-t", "orders", stdin=number)
        assert stream(process.stdout).readline() == number
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_S) == 130
    assert (stream(process.stdout).read(), stream(process.stderr).read()) == (b"", b"")
    # The second one may not have been noted as printed yet: then it is printed again.
    assert ok("consume", "-t", "orders", "-G", "g", "-e").out in (b"", b"2\n"), "what was printed is committed"


def test_following_prints_records_as_they_come() -> None:
    process = start("consume", "-t", "orders", "-c", "2")
    for number in (b"1\n", b"2\n"):
        ok("produce", "-t", "orders", stdin=number)
        assert stream(process.stdout).readline() == number
    assert process.wait(WAIT_S) == 0


def test_a_killed_transaction_is_never_seen() -> None:
    words = ("produce", "-t", "orders", "--transactional-id", "shop")
    process = start(*words)
    stream(process.stdin).write(b"half of it\n" * 1000)
    stream(process.stdin).flush()
    ended = time.monotonic() + WAIT_S
    while b"Empty" not in ok("consume", "-t", "__transaction_state", "-e").out:
        assert time.monotonic() < ended
        time.sleep(0.05)
    process.kill()
    process.wait(WAIT_S)
    assert ok("consume", "-t", "orders", "-e").out == b""
    ok(*words, stdin=b"all of it\n")
    assert ok("consume", "-t", "orders", "-e").out == b"all of it\n"
