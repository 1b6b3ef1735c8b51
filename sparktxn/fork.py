"""Handles and forks: a handle made before a fork must not be used in the child."""

from __future__ import annotations

import os

__all__ = ["ForkGuard"]

_generation = 0


def _after_fork_in_child() -> None:
    global _generation
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class ForkGuard:
    """Remembers the process that made a handle."""

    __slots__ = ("_born",)

    def __init__(self) -> None:
        self._born = _generation

    def forked(self) -> bool:
        """True in a child of the process that made the handle."""
        return self._born != _generation

    def check(self, what: str) -> None:
        """Raises RuntimeError in a child process: `what` has threads and connections that did not survive the fork."""
        if self._born != _generation:
            raise RuntimeError(f"this {what} was made before a fork: make a new one in the child process")
