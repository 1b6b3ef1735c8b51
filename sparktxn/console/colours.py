"""Which colour means what: one thing has one colour on all pages. `static/console.css` has their values.

Transactions are `committed`, `aborted`, `open` or `prepared`: in tables, on the timeline and in plots. Topics have
`topic-0` to `topic-4` by their ids. The sum of topics without a curve is `other`. `figure` is the colour of what is
alone in its plot, such as a lag or sizes of files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

__all__ = ["FIGURE", "OTHER", "OUTCOMES", "topic_colours"]

FIGURE: Final = "figure"
OTHER: Final = "other"
OUTCOMES: Final = {"commits": "committed", "aborts": "aborted"}
_TOPICS: Final = 5


def topic_colours(names: Collection[str], ids: Mapping[str, int]) -> dict[str, str]:
    """Return the colours of some topics: that of its id, or the next one that none of the others has.

    >>> topic_colours(["a", "b", "c"], {"a": 1, "b": 6, "c": 2})
    {'a': 'topic-0', 'b': 'topic-2', 'c': 'topic-1'}
    """
    found: dict[str, int] = {}
    known = sorted((name for name in names if name in ids), key=lambda name: ids[name])
    for name in [*known, *sorted(name for name in names if name not in ids)]:
        wanted = (ids[name] - 1) % _TOPICS if name in ids else 0
        free = [
            number % _TOPICS for number in range(wanted, wanted + _TOPICS) if number % _TOPICS not in found.values()
        ]
        found[name] = free[0] if free else wanted
    return {name: f"topic-{found[name]}" for name in names}
