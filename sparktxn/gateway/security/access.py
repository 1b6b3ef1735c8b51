"""What a start of a gateway says of its clients: by which files they are known, and whether none is needed."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from sparktxn.errors import ConfigurationError
from sparktxn.gateway.security.exchanges import MECHANISMS, PLAIN
from sparktxn.gateway.security.users import Users, read_users
from sparktxn.process.clock import Ids
from sparktxn.process.listening import is_loopback

__all__ = ["OPEN", "Access", "AccessOptions", "access_of"]


class AccessOptions(Struct, frozen=True, kw_only=True):
    """The files that say which clients are served.

    Args:
        sasl_users: users with their verifiers; None asks for none.
        tls_certificate: the gateway's certificate with its chain, as PEM; None means no TLS.
        tls_key: its key, as PEM; None is in the certificate's file.
        tls_client_ca: what has signed the certificates that clients have to show; None asks for none.
        allows_plaintext: whether other machines may be served without TLS and users.
    """

    sasl_users: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    allows_plaintext: bool = False


class Access(NamedTuple):
    """Which clients are served: users by one of `mechanisms`, or all; over TLS, or not."""

    users: Users | None = None
    mechanisms: tuple[str, ...] = ()
    tls: ssl.SSLContext | None = None


OPEN = Access()


def access_of(host: str, options: AccessOptions, ids: Ids) -> Access:
    """Return what the options say for a gateway that listens at `host`.

    Without TLS, passwords as PLAIN sends them are taken from this machine alone, unless plain text is allowed.

    Raises:
        ConfigurationError: other machines may reach it without TLS and users; a file is missing, or not what it is
            to be.
    """
    tls = _tls_context(options)
    users = None if options.sasl_users is None else read_users(options.sasl_users, ids)
    is_private = tls is not None or options.allows_plaintext or is_loopback(host)
    if users is None and not is_private:
        raise ConfigurationError(
            f"--listen is {host!r}, which other machines may reach: give --tls-certificate or --sasl-users, listen at "
            f"127.0.0.1, or allow it with --allow-plaintext"
        )
    mechanisms = [each for each in MECHANISMS if each != PLAIN or is_private]
    return Access(users, tuple(mechanisms) if users is not None else (), tls)


def _tls_context(options: AccessOptions) -> ssl.SSLContext | None:
    certificate, key, client_ca = options.tls_certificate, options.tls_key, options.tls_client_ca
    if certificate is None:
        if key is not None or client_ca is not None:
            option = "--tls-key" if key is not None else "--tls-client-ca"
            raise ConfigurationError(f"{option} is given without --tls-certificate, the gateway's own certificate")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _check_is_file("--tls-certificate", certificate)
    if key is not None:
        _check_is_file("--tls-key", key)
    try:
        context.load_cert_chain(certificate, key, _no_password)
    except (ssl.SSLError, ValueError) as error:
        named = str(certificate) if key is None else f"{certificate}' with --tls-key '{key}"
        reason = "expected a certificate and its key as PEM, the key without a password"
        raise ConfigurationError(f"--tls-certificate '{named}': {reason}") from error
    if client_ca is not None:
        _check_is_file("--tls-client-ca", client_ca)
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as error:
            raise ConfigurationError(f"--tls-client-ca {str(client_ca)!r}: expected certificates as PEM") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _no_password() -> str:
    raise ValueError("the key has a password")


def _check_is_file(option: str, path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise ConfigurationError(f"{option} {str(path)!r} cannot be read: {error.strerror}") from error
