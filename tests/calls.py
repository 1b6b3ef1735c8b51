"""Count what one call of this package costs: calls of own functions, their modules, and how deep they go.

Figures of a processor differ by machine and load. These do not: they follow from the code and the version of Python.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

__all__ = ["Cost", "added", "cost_of", "least"]

_ROOT: Final = Path(__file__).parent.parent
_OWN: Final = tuple(
    f"{path}/" for path in (_ROOT / "sparktxn", _ROOT / "scala-free-python-datasource" / "pyspark_txnlog")
)
_COMPREHENSIONS: Final = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"})


class Cost(NamedTuple):
    """What one call has cost in its thread; `by_function` is the number of calls of each own function."""

    calls: int
    modules: int
    depth: int
    by_function: Counter[str]

    def __str__(self) -> str:
        """Return the three figures."""
        return f"{self.calls} calls, {self.modules} modules, {self.depth} deep"


def cost_of(work: Callable[[], object]) -> Cost:
    """Return what `work` costs in this thread.

    A comprehension is not a call: newer versions of Python have no frame for one. A generator counts each time that it
    goes on.
    """
    places: dict[CodeType, str | None] = {}
    found: Counter[str] = Counter()
    deepest = depth = 0

    def place_of(code: CodeType) -> str | None:
        if code not in places:
            is_own = code.co_filename.startswith(_OWN) and code.co_name not in _COMPREHENSIONS
            name = Path(code.co_filename)
            places[code] = f"{name.relative_to(_ROOT)}:{code.co_qualname}" if is_own else None
        return places[code]

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal deepest, depth
        if event not in ("call", "return") or (place := place_of(frame.f_code)) is None:
            return
        depth += 1 if event == "call" else -1
        if event == "call":
            found[place] += 1
            deepest = max(deepest, depth)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return Cost(found.total(), len({place.partition(":")[0] for place in found}), deepest, found)


def added(one: Cost, other: Cost) -> Cost:
    """Return what two calls cost together that one use makes, each in a process of its own."""
    found = one.by_function + other.by_function
    return Cost(found.total(), len({place.partition(":")[0] for place in found}), max(one.depth, other.depth), found)


def least(measured: Callable[[], Cost], times: int = 20) -> Cost:
    """Return the cheapest of several measurements: what is due after a while comes in some of them only."""
    return min((measured() for _ in range(times)), key=lambda cost: cost.calls)
