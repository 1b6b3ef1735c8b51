"""A store's address.

Addresses carry no secrets: credentials are ``storage.*`` settings, so an address may be printed, logged and pickled.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from sparktxn.errors import ConfigurationError

__all__ = [
    "EXTRAS",
    "FILE",
    "MEMORY",
    "StoreUri",
    "broker_addresses",
    "parse_uri",
]

FILE: Final = "file"
MEMORY: Final = "memory"
EXTRAS: Final = {"s3": "s3", "gs": "gcs", "abfs": "azure"}
"""Schemes of remote stores, and the extra of this package that installs what reaches them."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(.*)", re.DOTALL)
_LOCATION = re.compile(r"[^/\\?#@%\s]+(?:/[^/\\?#@%\s]+)*")
_SCHEME_ALIASES: Final = {"s3a": "s3", "gcs": "gs", "az": "abfs", "abfss": "abfs"}
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
        """Return the one spelling of the address: the same for all that mean the same."""
        return self.location if self.scheme == FILE else f"{self.scheme}://{self.location}"


def parse_uri(uri: str | os.PathLike[str]) -> StoreUri:
    """Take an address apart: a path, ``file://``, ``memory://name`` or ``scheme://bucket/prefix``.

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
    match = _SCHEME.fullmatch(text)
    if match is None:
        return StoreUri(FILE, os.path.abspath(text))
    scheme = _SCHEME_ALIASES.get(match[1].lower(), match[1].lower())
    return StoreUri(scheme, _file_path(text, match[2]) if scheme == FILE else _bucket_path(scheme, match[2]))


def _file_path(text: str, rest: str) -> str:
    """Return the path in ``file:/x``, ``file:///x`` or ``file://localhost/x``; `rest` is what follows ``file:/``."""
    path = "/" + rest
    if rest.startswith("/"):
        host, _, below = rest[1:].partition("/")
        if host not in ("", "localhost"):
            raise ConfigurationError(f"store URI {text!r} names the host {host!r}: expected file:///path")
        path = "/" + below
    if "%" in path:
        raise ConfigurationError(f"store URI {text!r} holds a '%', which some read as an escape: give the plain path")
    return os.path.abspath(path)


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
