"""Options of functions for users: keywords, or a dict, with numbers and truth values as Spark's `options()` takes."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from sparktxn import arguments

__all__ = ["option_texts"]


def option_texts(options: object, named: Mapping[str, Any]) -> dict[str, str]:
    """Return options as Spark hands them over: numbers and truth values as text.

    Raises:
        TypeError: a value is of another type, or `options` is no dict.
    """
    given = {**arguments.mapping("options", {} if options is None else options), **named}
    texts = {}
    for name, value in given.items():
        if isinstance(value, bool):
            texts[name] = str(value).lower()
        elif isinstance(value, Integral):
            texts[name] = str(int(value))
        else:
            texts[name] = arguments.text(f"option {name!r}", value, secret=True)
    return texts
