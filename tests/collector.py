"""Whether the garbage collector still ends cycles: a collection that never ends keeps all later ones from beginning."""

from __future__ import annotations

import gc
import weakref

__all__ = ["ends_cycles"]


class _Cycle:
    """Refers to itself, so that only a collection ends it."""

    def __init__(self) -> None:
        self.itself = self


def ends_cycles() -> bool:
    """Collect what is youngest; False while a collection of another thread, or around this call, is under way."""
    cycle = weakref.ref(_Cycle())
    gc.collect(0)
    return cycle() is None
