"""How settings are described and parsed: Kafka-style dotted names, checked once at the edge.

A group of settings is a frozen dataclass whose fields are made by `setting`. The class is the table from which the
parser, the documentation and the values come.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sparktxn import arguments
from sparktxn.errors import ConfigurationError, did_you_mean

__all__ = [
    "Parser",
    "Setting",
    "boolean",
    "choice",
    "function",
    "identifier",
    "integer",
    "number",
    "parse_settings",
    "setting",
    "settings_of",
    "text",
    "values_by_field",
]

Parser = Callable[[str, Any], Any]

_SETTING: Final = "setting"


class Setting(NamedTuple):
    """One setting: its dotted name, its default, how a value is checked, and what it means in one sentence.

    `aliases` are other names for it, `convert` makes a parsed value into the one that the program uses.
    """

    name: str
    default: Any
    parse: Parser
    meaning: str
    aliases: tuple[str, ...] = ()
    convert: Callable[[Any], Any] | None = None

    def converted(self, value: Any) -> Any:
        """Return the value that the program uses for the parsed `value`."""
        return value if self.convert is None else self.convert(value)


def setting(
    name: str,
    default: Any,
    parse: Parser,
    meaning: str,
    *,
    aliases: tuple[str, ...] = (),
    convert: Callable[[Any], Any] | None = None,
) -> Any:
    """Return a dataclass field that holds the setting's value; see `Setting` for the arguments."""
    known = Setting(name, default, parse, meaning, aliases, convert)
    return dataclasses.field(default=known.converted(default), metadata={_SETTING: known})


def settings_of(group: type[Any]) -> tuple[Setting, ...]:
    """Return the settings of a group, in the order of its fields."""
    return tuple(field.metadata[_SETTING] for field in dataclasses.fields(group) if _SETTING in field.metadata)


def values_by_field(group: type[Any], parsed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that make a `group` from values by dotted name, as `parse_settings` gives them."""
    known = {field.name: field.metadata[_SETTING] for field in dataclasses.fields(group) if _SETTING in field.metadata}
    return {field: setting.converted(parsed[setting.name]) for field, setting in known.items()}


def _refuse(name: str, value: object, expected: str) -> ConfigurationError:
    return ConfigurationError(f"setting {name!r} is {arguments.shown(value)}: expected {expected}")


def integer(minimum: int, maximum: int) -> Parser:
    """A parser of whole numbers from `minimum` to `maximum`, also written as text."""
    expected = f"a whole number from {minimum} to {maximum}"

    def parse(name: str, value: Any) -> int:
        try:
            parsed = int(value) if isinstance(value, str) else arguments.integer(name, value)
        except (TypeError, ValueError):
            raise _refuse(name, value, expected) from None
        if not minimum <= parsed <= maximum:
            raise _refuse(name, value, expected)
        return parsed

    parse.__doc__ = expected
    return parse


def number(minimum: float, maximum: float) -> Parser:
    """A parser of numbers from `minimum` to `maximum`, also written as text."""
    expected = f"a number from {minimum:g} to {maximum:g}"

    def parse(name: str, value: Any) -> float:
        try:
            parsed = float(value)
        except (TypeError, ValueError, OverflowError):
            raise _refuse(name, value, expected) from None
        if isinstance(value, bool) or not minimum <= parsed <= maximum:
            raise _refuse(name, value, expected)
        return parsed

    parse.__doc__ = expected
    return parse


def boolean(name: str, value: Any) -> bool:
    """true or false"""
    if not isinstance(value, str):
        try:
            return arguments.boolean(name, value)
        except TypeError:
            raise _refuse(name, value, "true or false") from None
    lowered = str.lower(value)
    if lowered not in ("true", "false"):
        raise _refuse(name, value, "true or false")
    return lowered == "true"


def choice(*allowed: str) -> Parser:
    """A parser of one of a few words, whatever their case."""
    expected = "one of " + ", ".join(allowed)

    def parse(name: str, value: Any) -> str:
        word = str.lower(value) if isinstance(value, str) else ""
        if word not in allowed:
            raise _refuse(name, value, f"{expected}{did_you_mean(word, allowed)}")
        return word

    parse.__doc__ = expected
    return parse


def text(name: str, value: Any) -> str:
    """text"""
    if not isinstance(value, str):
        raise _refuse(name, value, "text")
    try:
        return arguments.text(name, value)
    except ConfigurationError:
        raise _refuse(name, value, "text that UTF-8 can hold, without halves of surrogate pairs") from None


def identifier(name: str, value: Any) -> str:
    """a name of at most 32767 bytes, as Kafka's protocol can carry"""
    try:
        return arguments.identifier(name, value, may_be_empty=True)
    except (TypeError, ConfigurationError) as error:
        raise ConfigurationError(f"setting {error}") from None


def function(name: str, value: Any) -> Any:
    """a function"""
    if value is not None and not callable(value):
        raise _refuse(name, value, "a function")
    return value


def parse_settings(known: Sequence[Setting], given: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Every known setting's value, by name: as given, or its default.

    Raises:
        ConfigurationError: a name in `given` is unknown (the error names the nearest known one) or a value is wrong.
    """
    by_name = {setting.name: setting for setting in known}
    for name in given:
        if name not in by_name:
            raise ConfigurationError(f"unknown {what} setting {arguments.shown(name)}{did_you_mean(name, by_name)}")
    return {
        setting.name: setting.parse(setting.name, given[setting.name]) if setting.name in given else setting.default
        for setting in known
    }
