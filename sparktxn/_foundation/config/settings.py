"""How settings are described: Kafka-style dotted names, checked once by the parsers of `values`; and files of them.

A group of settings is a frozen dataclass whose fields are made by `setting`. The class is the table from which the
parser, the documentation and the values come.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Self

from sparktxn._foundation.config.values import Parser
from sparktxn._foundation.values import arguments
from sparktxn.errors import ConfigurationError, nearest_name

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

    def parsed(self, value: Any, alias: str | None = None) -> Any:
        """Return the checked value of what a user has given, under an alias perhaps.

        Raises:
            ConfigurationError: it is not what the setting takes.
        """
        return self.parse(f"setting {alias or self.name!r}", value)

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


class Settings:
    """A group of settings that are given by their names alone; `of` names it in errors."""

    of: ClassVar[str]

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Return the settings of `given`, which holds only names of the group's.

        Raises:
            ConfigurationError: a name or a value is wrong.
        """
        return cls(**values_by_field(cls, parse_settings(settings_of(cls), given, cls.of)))


def settings_of(group: type[Any]) -> tuple[Setting, ...]:
    """Return the settings of a group, in the order of its fields."""
    return tuple(field.metadata[_SETTING] for field in dataclasses.fields(group) if _SETTING in field.metadata)


def values_by_field(group: type[Any], parsed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that make a `group` from values by dotted name, as `parse_settings` gives them."""
    known = {field.name: field.metadata[_SETTING] for field in dataclasses.fields(group) if _SETTING in field.metadata}
    return {field: setting.converted(parsed[setting.name]) for field, setting in known.items()}


def parse_settings(known: Sequence[Setting], given: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return every known setting's value, by name: as given, or its default.

    Raises:
        ConfigurationError: a name in `given` is unknown (the error names the nearest known one) or a value is wrong.
    """
    by_name = {setting.name: setting for setting in known}
    for name in given:
        if name not in by_name:
            raise ConfigurationError(f"unknown {what} setting {arguments.shown(name)}{nearest_name(name, by_name)}")
    return {
        setting.name: setting.parsed(given[setting.name]) if setting.name in given else setting.default
        for setting in known
    }


# Files of settings, ``name=value`` on each line, as in the project's folder ``conf/``.


def read_properties(file: str | os.PathLike[str]) -> dict[str, str]:
    """Return the settings of a file, for clients and `Store.open`; a later line replaces an earlier one.

    Empty lines, and those that begin with ``#`` or ``!``, are comments. White space around names and values is not
    part of them. There are no escapes, and no lines that continue.

    Raises:
        TypeError: `file` is not a path.
        ConfigurationError: it cannot be read, or a line has no name and ``=``. What the file holds is not repeated in
            the error: there may be secrets in it.
    """
    path = Path(arguments.path("file", file))
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise ConfigurationError(f"cannot read file {arguments.shown(str(path))}: {reason}") from None
    settings = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if line and not line.startswith(("#", "!")):
            name, separator, value = line.partition("=")
            if not separator or not name.strip():
                raise ConfigurationError(f"file {arguments.shown(str(path))}, line {number}: expected name=value")
            settings[name.strip()] = value.strip()
    return settings
