"""Servers that verbs run, whose packages are extras."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from sparktxn.errors import ConfigurationError

__all__ = ["server_of"]


def server_of(module: str, what: str, extra: str) -> Callable[..., None]:
    """Return `serve` of a module. It is imported here: only its verb needs it, and it takes longer than most verbs.

    Raises:
        ConfigurationError: a package is not installed that `what` needs, and that `extra` brings.
    """
    try:
        found: Callable[..., None] = importlib.import_module(module).serve
    except ModuleNotFoundError as missing:
        package = str(missing.name).partition(".")[0]
        raise ConfigurationError(f"{what} needs the package {package!r}: pip install 'sparktxn[{extra}]'") from missing
    return found
