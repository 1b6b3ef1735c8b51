"""Options of calls in Python: a dict or keywords, whose values may be numbers and truth values."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from sparktxn import ConfigurationError
from sparktxn.store.options import arguments


def option_texts(options: object, named: Mapping[str, Any], **said: Any) -> dict[str, str]:
    """Return options as Spark hands them over: whole numbers and truth values as text, numpy's too.

    `said` are options that are arguments of a call; those that are None are left out.

    Raises:
        TypeError: a value is of another type, or `options` is not a dict. It may be a secret, and is not shown.
        ConfigurationError: an option is given twice with different values, where Spark ignores the case of names. Or it
            is text that UTF-8 cannot hold.
    """
    texts = {name: arguments.text(f"option {name!r}", value) for name, value in said.items() if value is not None}
    taken = {name.lower(): value for name, value in texts.items()}
    for given in (arguments.mapping("options", {} if options is None else options), named):
        for name, value in given.items():
            text = _option_text(f"option {name!r}", _names_in_one(name, value))
            if taken.setdefault(name.lower(), text) != text:
                raise ConfigurationError(f"option {name!r} is given twice, with different values: give one of them")
            texts[name] = text
    return texts


def _names_in_one(name: str, value: object) -> object:
    """Return the columns of `lastBy` as the option takes them: calls may give them as a list."""
    if name.lower() != "lastby" or not isinstance(value, list | tuple):
        return value
    names = arguments.identifiers(f"option {name!r}", value)
    if with_comma := [each for each in names if "," in each]:
        raise ConfigurationError(f"option {name!r} names column {with_comma[0]!r}: expected no comma in it; rename it")
    return ",".join(names)


def read_options(uri: str, topics: object, options: object, named: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of a read as Spark hands them over, `topics` among them.

    Raises:
        TypeError: one of them has a wrong type.
        ConfigurationError: an option is given twice with different values.
    """
    chosen = topics
    if topics is not None and not isinstance(topics, str):
        chosen = ",".join(arguments.identifiers("topics", topics))
    return option_texts(options, named, path=uri, subscribe=arguments.text_or_none("topics", chosen))


def _option_text(name: str, value: object) -> str:
    if isinstance(value, str):
        return arguments.text(name, value, secret=True)
    if hasattr(value, "__index__") and not isinstance(value, bool):
        return str(operator.index(value))
    try:
        return str(arguments.boolean(name, value)).lower()
    except TypeError:
        raise TypeError(f"{name} is of type {type(value).__name__}: expected a str, a whole number or a bool") from None
