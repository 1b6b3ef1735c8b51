"""Runs command lines of `txnlog` in this process, with a standard input and outputs of their own."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest.mock import patch

from sparktxn._programs.cli.app import run
from sparktxn._programs.cli.standardstreams import Text, ended


class Done(NamedTuple):
    """What a command line has printed, and its exit code."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.text.splitlines()]

    @property
    def json(self) -> list[Any]:
        return [json.loads(line) for line in self.text.splitlines()]


def txnlog(*words: str, stdin: bytes = b"") -> Done:
    """Run a command line, whatever its outcome."""
    out, err = io.BytesIO(), io.BytesIO()
    texts = [io.TextIOWrapper(stream, encoding="utf-8", write_through=True) for stream in (out, err)]
    with (
        redirect_stdout(texts[0]),
        redirect_stderr(texts[1]),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")),
    ):
        code = run(words)
    return Done(code, out.getvalue(), err.getvalue().decode())


class _Broken(io.RawIOBase):
    """What nothing can be written to."""

    def __init__(self, error: OSError) -> None:
        self._error = error

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1

    def write(self, data: Any) -> int:
        raise self._error


def unread(*words: str, error: OSError) -> Done:
    """Run a command line whose standard output fails with `error`, as the command's entry point would."""
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    lost = io.TextIOWrapper(io.BufferedWriter(_Broken(error)), encoding="utf-8")
    with redirect_stdout(Text(lost, buffered=True)), redirect_stderr(err):
        code = ended(run(words))
    return Done(code, b"", err.buffer.getvalue().decode())


def ok(*words: str, stdin: bytes = b"") -> Done:
    """Run a command line that succeeds."""
    done = txnlog(*words, stdin=stdin)
    assert done.code == 0, f"txnlog {' '.join(words)}: {done.err}"
    return done
