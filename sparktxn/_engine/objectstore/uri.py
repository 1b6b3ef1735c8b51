"""A store's address.

Addresses carry no secrets: credentials are ``storage.*`` settings, so an address may be printed, logged and pickled.
"""

from __future__ import annotations

import importlib
import os
import re
import unicodedata
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from sparktxn._foundation.values import arguments
from sparktxn.errors import ConfigurationError, did_you_mean, extra_to_install

FILE: Final = "file"
MEMORY: Final = "memory"
EXTRAS: Final = {"s3": "s3", "gs": "gcs", "abfs": "azure"}
"""Schemes of remote stores, and the extra of this package that installs what reaches them."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(.*)", re.DOTALL)
_LOCATION = re.compile(r"[^/\\?#@%\s]+(?:/[^/\\?#@%\s]+)*")
_SCHEME_ALIASES: Final = {"s3a": "s3", "gcs": "gs", "az": "abfs", "abfss": "abfs"}
_BYTE_ORDER_MARK: Final = "\ufeff"
_QUOTES = re.compile("[\"`\u201c\u201d\u201e\u00ab\u00bb]|(?:^|/)['\u2018\u2019]|['\u2018\u2019](?:/|$)")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[^}/]*\}?|\([^)/]*\)?)", re.ASCII)
_WINDOWS_VARIABLE = re.compile(r"%[A-Za-z_][\w()]*%", re.ASCII)
_START = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_NO_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_BROKER = re.compile(r"(?:[A-Za-z_]+://)?(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d{1,5}")


def broker_addresses(text: str) -> list[str]:
    """Return the brokers in a list such as ``kafka-1:9092,kafka-2:9092``; empty if `text` is anything else."""
    addresses = [part.strip() for part in text.split(",")]
    return addresses if all(_BROKER.fullmatch(address) for address in addresses) else []


class StoreUri(NamedTuple):
    """A parsed address: `location` is an absolute path, a memory store's name, or ``bucket/prefix``."""

    scheme: str
    location: str

    def __str__(self) -> str:
        """Return the one spelling of the address, which parses to it again: the same for all that mean the same."""
        if self.scheme != FILE:
            return f"{self.scheme}://{self.location}"
        return self.location if _mistake(self.location) is None else f"file://{quote(self.location)}"


def path_of(uri: str) -> str:
    """Return an address as engines take it, which may know no escapes: a store on a disk by its path."""
    return parse_uri(uri).location if uri.startswith("file://") else uri


def parse_uri(uri: str | os.PathLike[str]) -> StoreUri:
    """Take an address apart: a path, ``file://``, ``memory://name`` or ``scheme://bucket/prefix``.

    What a shell, a file of settings or another system would have made something else of is refused: quotes, variables,
    drives. A folder that is really called so is given as ``file://``, with escapes for these characters.

    Raises:
        ConfigurationError: the address is empty or holds what an address must not (user, password, query, ``..``).
    """
    text = os.fspath(uri)
    if not text.strip() or "\0" in text:
        raise ConfigurationError(
            f"store URI {text!r} is empty or holds a null character: expected a path or scheme://bucket/prefix"
        )
    if broker_addresses(text):
        raise ConfigurationError(
            f"store URI {text!r} is the address of a broker: there are none here; write the address of a store, "
            "such as /data/log or s3://bucket/prefix (python -m sparktxn.compat runs programs with brokers' addresses)"
        )
    if mistake := _mistake(text):
        # There may be a password in what only looks like a path.
        shown = "the store URI" if set("@?") & set(text) or "://" in text else f"store URI {text!r}"
        raise ConfigurationError(
            f"{shown} {mistake}: expected a path such as /data/log, or scheme://bucket/prefix, written as it is; a "
            "folder that is really called so is given as file:///… with escapes such as %24 for $"
        )
    match = _SCHEME.fullmatch(text)
    if match is None:
        return StoreUri(FILE, os.path.abspath(arguments.path("store URI", text)))
    scheme = _SCHEME_ALIASES.get(match[1].lower(), match[1].lower())
    return StoreUri(scheme, _file_path(text, match[2]) if scheme == FILE else _bucket_path(scheme, match[2]))


def _mistake(text: str) -> str | None:
    """Return what in an address belongs to a shell, a file of settings or another system; None if nothing does."""
    if text != text.strip() or text.startswith(_BYTE_ORDER_MARK):
        return "begins or ends with white space"
    if any(unicodedata.category(one) in ("Cc", "Zl", "Zp") for one in text):
        return "holds a control character, such as the end of a line"
    if _QUOTES.search(text):
        return "holds a quote"
    has_scheme = _SCHEME.fullmatch(text) is not None
    # In an address with a scheme these are escapes.
    if variable := _VARIABLE.search(text) or (None if has_scheme else _WINDOWS_VARIABLE.search(text)):
        return f"holds {variable[0]!r}, a variable of a shell, which is not replaced here"
    is_windows = os.name == "nt"
    if "\\" in text and not is_windows:
        return "holds a backslash, as paths of Windows do"
    start = _START.match(text)
    if start is None or has_scheme or (is_windows and len(start[1]) == 1):
        return None
    if len(start[1]) == 1:
        return f"begins with {start[0]!r}, a drive of Windows"
    return f"begins with {start[0]!r}, which is a scheme only as {start[0]}//…, and a folder only as ./{start[0]}…"


def check_scheme(scheme: str) -> None:
    """Check that the stores of `scheme` are known.

    Raises:
        ConfigurationError: it is unknown, or has no atomic create that we know of.
    """
    if scheme in (FILE, MEMORY, *EXTRAS):
        return
    known = sorted({FILE, MEMORY, "s3a", "gcs", "az", *EXTRAS})
    if scheme in _fsspec_schemes():
        raise ConfigurationError(
            f"store URI scheme {scheme!r}: fsspec knows it, but it is not known to create an object only if it is "
            f"absent, and commits rest on that: expected one of {', '.join(known)}, or a path"
        )
    extras = ", ".join(f"for {scheme}:// {extra_to_install(extra)}" for scheme, extra in EXTRAS.items())
    raise ConfigurationError(
        f"store URI scheme {scheme!r} is unknown: expected one of {', '.join(known)}, or a path"
        f"{did_you_mean(scheme, known)}. Extras: {extras}"
    )


def _fsspec_schemes() -> list[str]:
    """Return the schemes that fsspec knows; none where it is not installed."""
    try:
        schemes: list[str] = importlib.import_module("fsspec").available_protocols()
    except ModuleNotFoundError:
        return []
    return schemes


def _file_path(text: str, rest: str) -> str:
    """Return the path in ``file:/x``, ``file:///x`` or ``file://localhost/x``; `rest` is what follows ``file:/``."""
    path = "/" + rest
    if rest.startswith("/"):
        host, _, below = rest[1:].partition("/")
        if host.startswith("~"):
            raise ConfigurationError(f"store URI {text!r} names no host: write {host}/{below} without file://")
        if host not in ("", "localhost"):
            raise ConfigurationError(f"store URI {text!r} names the host {host!r}: expected file:///path")
        path = "/" + below
    try:
        plain = unquote(path, errors="strict") if not _NO_ESCAPE.search(path) else "\0"
    except UnicodeDecodeError:
        plain = "\0"
    if "\0" in plain:
        raise ConfigurationError(
            f"store URI {text!r} holds a '%' that is not an escape: expected %25 for a '%' itself, or the "
            "plain path without file://"
        )
    return os.path.abspath(plain)


def _bucket_path(scheme: str, rest: str) -> str:
    location = rest[1:].rstrip("/") if rest.startswith("/") else ""
    is_plain = _LOCATION.fullmatch(location) and location.isprintable()
    if not is_plain or any(part in (".", "..") for part in location.split("/")):
        # The address is not repeated: what is wrong with it may be a password in it.
        raise ConfigurationError(
            f"a {scheme} store URI is not valid: expected {scheme}://name or {scheme}://name/prefix, without user, "
            "password, query, '%', '..' or spaces; credentials and endpoints are storage.* settings, such as "
            "storage.key, storage.secret, storage.endpoint_url or storage.account_name"
        )
    return location
