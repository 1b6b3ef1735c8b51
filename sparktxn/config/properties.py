"""Files of settings, ``name=value`` on each line, as in the project's folder ``conf/``."""

from __future__ import annotations

import os
from pathlib import Path

from sparktxn.errors import ConfigurationError
from sparktxn.values import arguments

__all__ = ["read_properties"]


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
