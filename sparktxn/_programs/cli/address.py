"""Which store a command is for, and its settings: from the command line, the environment, files and profiles.

The address is that of ``--store``; else of ``--profile``; else of the environment's TXNLOG_STORE; else of
TXNLOG_PROFILE, or of the profile ``default``. Settings of the profile come first, then those of ``--config`` files,
then those of ``--option``: a later one replaces an earlier one.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparktxn._foundation.config.settings import read_properties
from sparktxn._foundation.config.store import StoreOptions
from sparktxn._foundation.values import arguments
from sparktxn._programs.cli.failures import WrongUsage
from sparktxn.errors import ConfigurationError, did_you_mean

STORE_VARIABLE: Final = "TXNLOG_STORE"
PROFILE_VARIABLE: Final = "TXNLOG_PROFILE"
_DEFAULT: Final = "default"
_ADDRESSES: Final = ("bootstrap.servers", "store.uri", "metadata.broker.list")


class Address(NamedTuple):
    """A store's address and the settings that were given; printing them shows no value."""

    store: str
    settings: StoreOptions


def find_address(
    store: str | None,
    options: Sequence[str],
    files: Sequence[Path],
    profile: str | None,
    environment: Mapping[str, str] = os.environ,
) -> Address:
    """Return the store's address and the settings, by the order that this module states.

    Raises:
        WrongUsage: no address is given, an option or a file is malformed, or there is no such profile.
    """
    if store is not None and not store.strip():
        raise WrongUsage(
            f"--store is {store!r}: expected an address; leave it out for that of the environment or profile"
        )
    settings = StoreOptions()
    from_environment = environment.get(STORE_VARIABLE)
    named = profile or (None if store or from_environment else environment.get(PROFILE_VARIABLE))
    address = None
    if named or not (store or from_environment):
        found = _profile(environment, named)
        address = found.pop("store", None)
        settings |= found
    for file in files:
        try:
            settings |= read_properties(file)
        except ConfigurationError as error:
            raise WrongUsage(f"--config: {error}") from None
    settings |= dict(split_option("--option", option) for option in options)
    given = [settings.pop(name) for name in _ADDRESSES if name in settings]
    address = store or (address if profile else None) or from_environment or address or (given[-1] if given else None)
    if not address:
        raise WrongUsage(
            f"no store is given: add --store ADDRESS, set {STORE_VARIABLE}, "
            f"or write a profile into {profiles_file(environment)}"
        )
    return Address(str(address), settings)


def is_same_kind(one: str, other: str) -> bool:
    """Return whether two addresses are of one kind of object store, whose settings may serve both."""
    return _scheme(one) == _scheme(other)


def _scheme(address: str) -> str:
    scheme, separator, _ = address.partition("://")
    return scheme.lower().replace("s3a", "s3") if separator else "file"


def split_option(option: str, text: str) -> tuple[str, str]:
    """Return the name and the value of ``name=value``.

    Raises:
        WrongUsage: there is no ``=``, or no name. The text is not repeated: it may be a secret.
    """
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise WrongUsage(f"{option} takes name=value: one that is given has no name before a '='")
    return name.strip(), value


def settings_of(given: Sequence[str] | None) -> dict[str, str]:
    """Return the settings that were given with ``--set``, by their names.

    Raises:
        WrongUsage: one has no name, or no value.
    """
    return dict(split_option("--set", text) for text in given or ())


def profiles_file(environment: Mapping[str, str]) -> Path:
    """Return where profiles are: ``txnlog/profiles.toml`` in the user's folder of settings."""
    folder = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(arguments.path("XDG_CONFIG_HOME", folder)) / "txnlog" / "profiles.toml"


def profiles(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the user's profiles by their names.

    Raises:
        WrongUsage: the file cannot be read, or is not TOML.
    """
    file = profiles_file(environment)
    try:
        return tomllib.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        # Its text is not repeated: there may be secrets in it.
        raise WrongUsage(f"cannot read the profiles in {file}: {_reason(error)}") from None


def _profile(environment: Mapping[str, str], name: str | None) -> dict[str, Any]:
    """Return a profile's table; an empty one if none is named and there is no profile ``default``."""
    file, tables = profiles_file(environment), profiles(environment)
    if name is None and _DEFAULT not in tables:
        return {}
    name = name or _DEFAULT
    if name not in tables:
        raise WrongUsage(f"there is no profile {name!r} in {file}{did_you_mean(name, tables)}")
    table = tables[name]
    if not isinstance(table, dict) or any(isinstance(value, dict | list) for value in table.values()):
        expected = 'a table of names and values; a name with a dot needs quotes, as "storage.key"'
        raise WrongUsage(f"profile {name!r} in {file} is malformed: expected {expected}")
    return dict(table)


def _reason(error: Exception) -> str:
    return error.strerror or "it cannot be opened" if isinstance(error, OSError) else f"it is not TOML ({error})"
