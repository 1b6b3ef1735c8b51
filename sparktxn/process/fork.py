"""Handles, forks and copies: a handle must not be used in a forked child, and cannot be copied or pickled."""

from __future__ import annotations

import os
from typing import NoReturn

__all__ = ["ForkGuard", "NoCopies", "made_before"]

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
        """Return True in a child of the process that made the handle."""
        return self._born != _generation

    def check(self, what: str) -> None:
        """Raise RuntimeError in a child process: `what` has threads and connections that did not survive the fork."""
        if self._born != _generation:
            raise RuntimeError(made_before(what))


def made_before(what: str) -> str:
    """Return why a handle of a forked process cannot be used in its child."""
    return f"this {what} was made before a fork: make a new one in the child process"


class NoCopies:
    """A handle that cannot be copied or pickled: a copy would give back what the first one still uses."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse `copy.copy`, `copy.deepcopy` and pickling, which all begin here.

        Raises:
            TypeError: always; it says what to do.
        """
        name = type(self).__name__
        raise TypeError(f"a {name} cannot be copied or pickled, it has threads and connections: make another {name}")
