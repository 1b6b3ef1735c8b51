"""The process's standard streams, which may be closed, full, or of an encoding that lacks a character.

A verb that has changed a store must not end, or be reported as failed, because what it prints reaches no reader. So no
write to these streams raises: what cannot be written is dropped, and the failure is reported when the command ends.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from typing import Any, BinaryIO, Final, TextIO, cast

from sparktxn.errors import ConfigurationError

_DESCRIPTORS: Final = 3
_FAILED: Final = 1


class _Raw(io.RawIOBase):
    """Writes to a descriptor until it fails, or is interrupted in a write, and then nothing more."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._is_interrupted = False
        self.failure: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return cast(int, self._stream.fileno())

    def isatty(self) -> bool:
        return bool(self._stream.isatty())

    def write(self, data: Any) -> int:
        if self.failure is None and not self._is_interrupted:
            try:
                while (count := self._stream.write(data)) is None:
                    # The program that started this one has made the pipe one that does not wait.
                    select.select([], [self.fileno()], [])
                return cast(int, count)
            except OSError as error:
                self.failure = error
            except BaseException:
                # Ctrl-C may have come after the write: the buffer would write the same bytes again when it is flushed.
                self._is_interrupted = True
                raise
        return memoryview(data).nbytes


class Text(io.TextIOWrapper):
    """A standard stream of this process, as text. Characters that its encoding lacks are written as escapes."""

    def __init__(self, stream: TextIO | None, *, buffered: bool) -> None:
        if stream is None:
            # The process was started without it. A file of the store that gets its number would be written into.
            found: Any = io.FileIO(os.devnull, "w")
        else:
            stream.flush()
            found = getattr(stream.buffer, "raw", stream.buffer)
        self.raw = _Raw(found)
        super().__init__(
            cast(BinaryIO, io.BufferedWriter(self.raw)),
            encoding=getattr(stream, "encoding", None) or "utf-8",
            errors="backslashreplace",
            line_buffering=not buffered or self.raw.isatty(),
            write_through=True,
        )


def make_usable() -> None:
    """Take the place of the standard streams in this process, once; those of a program around it are left alone."""
    for descriptor in range(_DESCRIPTORS):
        try:
            os.fstat(descriptor)
        except OSError:
            # The next file that is opened gets the lowest number that is free: this one.
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is sys.__stdout__:
        sys.stdout = Text(sys.stdout, buffered=True)
    if sys.stderr is sys.__stderr__:
        sys.stderr = Text(sys.stderr, buffered=False)


def has_reader() -> bool:
    """Return False once a write to standard output has failed: the program that read it has ended, or it is full."""
    return not isinstance(sys.stdout, Text) or sys.stdout.raw.failure is None


def write_bytes(data: bytes) -> None:
    """Write bytes to standard output, after the text before them."""
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(data.decode("utf-8", "backslashreplace"))
    else:
        buffer.write(data)


def standard_input() -> TextIO:
    """Return standard input.

    Raises:
        ConfigurationError: the process was started without it.
    """
    if sys.stdin is None:
        raise ConfigurationError("standard input is closed: give files, or what the command reads by < or by |")
    return sys.stdin


def ended(code: int) -> int:
    """Return a command's exit code, which is 1 if it succeeded and its results could not be written; say why.

    A pipe whose reader has ended, as head does, is not a failure.
    """
    if not isinstance(sys.stdout, Text):
        return code
    sys.stdout.flush()
    failure = sys.stdout.raw.failure
    if failure is None or failure.errno in (errno.EPIPE, errno.ESHUTDOWN):
        return code
    sys.stderr.write(
        f"txnlog: cannot write to standard output: {failure.strerror or failure}: the output is not complete, but what "
        "the command did in the store is done\n"
    )
    return code or _FAILED
