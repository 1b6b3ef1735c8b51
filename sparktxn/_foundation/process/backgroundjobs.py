"""Jobs of higher layers that a process does in the background, once a log of its own has grown by so much.

The package registers them as it is imported, and this module needs nothing: a small process imports none of the jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_registered: Final[dict[str, Callable[[Any], None]]] = {}
"""By the name of the function: a package that is imported anew takes its own place."""


def register_background_jobs(start: Callable[[Any], None]) -> None:
    """Have `start` called with each log of this process, once it has written a checkpoint that was due."""
    _registered[start.__qualname__] = start


def start_background_jobs(log: Any) -> None:
    """Start what is registered, for one log."""
    for start in _registered.values():
        start(log)
