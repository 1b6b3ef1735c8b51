"""Fsync on a local disk, and the folders in which one has failed.

After a failed fsync the kernel marks as clean what it could not write. The next fsync of that folder succeeds and says
nothing about the loss. A failure is therefore remembered for the life of the process, for all stores of the process.
"""

from __future__ import annotations

import errno
import os
import threading
from typing import Final

from sparktxn.errors import StoreUnavailable

__all__ = ["DISK", "Disk"]

_READ: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)


class Disk:
    """The only place that makes names durable, and the owner of what is known about failures. Safe for threads."""

    def __init__(self) -> None:
        self._failures: dict[str, str] = {}
        self._running: dict[threading.Event, str] = {}
        if hasattr(os, "register_at_fork"):
            # The threads that would end these do not exist in the child.
            os.register_at_fork(after_in_child=self._running.clear)

    def fsync(self, path: str, folder: str) -> None:
        """Wait until `path`, which is `folder` or a file in it, is on the disk.

        Raises:
            OSError: it may not be on the disk, or an earlier fsync of `folder`, or of a folder above it, has failed.
        """
        ended = threading.Event()
        others = [other for other, where in list(self._running.items()) if where == folder]
        self._running[ended] = folder
        try:
            descriptor = os.open(path, _READ)
            try:
                os.fsync(descriptor)
            except OSError as error:
                self._failures[os.path.realpath(folder)] = error.strerror or str(error)
                raise
            finally:
                os.close(descriptor)
        finally:
            self._running.pop(ended, None)
            ended.set()
        # The kernel reports a failure once: perhaps to another thread, which has not recorded it yet.
        for other in others:
            other.wait()
        if self.failure(folder) is not None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def failure(self, folder: str) -> tuple[str, str] | None:
        """Return the folder whose fsync has failed, `folder` or one above it, and the error; None if there is none."""
        if not self._failures:
            return None
        path = os.path.realpath(folder)
        while path not in self._failures:
            above = os.path.dirname(path)
            if above == path:
                return None
            path = above
        return path, self._failures[path]

    def check(self, folder: str) -> None:
        """Check that no fsync of `folder`, or of a folder above it, has failed in this process.

        Raises:
            StoreUnavailable: one has failed.
        """
        if (failure := self.failure(folder)) is not None:
            raise StoreUnavailable(
                f"an fsync in {failure[0]!r} has failed ({failure[1]}): what was written there may not survive a power "
                "cut, and another fsync cannot detect that. Check the disk, then start this process again",
                transient=False,
            )


DISK: Final = Disk()
"""The disk of this process: one for all stores, because a store that is opened again meets the same kernel."""
