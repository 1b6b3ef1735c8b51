"""Options of calls in Python: a dict or keywords, whose values may be numbers and truth values."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from sparktxn.values import arguments

__all__ = ["option_texts", "read_options"]


def option_texts(options: object, named: Mapping[str, Any]) -> dict[str, str]:
    """Return options as Spark hands them over: whole numbers and truth values as text, numpy's too.

    Raises:
        TypeError: a value is of another type, or `options` is no dict. It may be a secret, and is not shown.
    """
    given = {**arguments.mapping("options", {} if options is None else options), **named}
    return {name: _option_text(f"option {name!r}", value) for name, value in given.items()}


def read_options(uri: str, topics: object, options: object, named: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of a read as Spark hands them over, `topics` among them.

    Raises:
        TypeError: one of them has a wrong type.
    """
    given = {"path": uri, **option_texts(options, named)}
    if topics is not None:
        chosen = topics if isinstance(topics, str) else ",".join(arguments.identifiers("topics", topics))
        given["subscribe"] = arguments.text("topics", chosen)
    return given


def _option_text(name: str, value: object) -> str:
    if isinstance(value, str):
        return arguments.text(name, value, secret=True)
    if hasattr(value, "__index__") and not isinstance(value, bool):
        return str(operator.index(value))
    try:
        return str(arguments.boolean(name, value)).lower()
    except TypeError:
        raise TypeError(f"{name} is of type {type(value).__name__}: expected a str, a whole number or a bool") from None
