"""What a gateway knows of its clients from its start: their files, and the exchanges that prove who they are."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ssl
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from sparktxn._foundation.process.clock import Ids
from sparktxn._foundation.process.listening import is_loopback
from sparktxn._programs.gateway.security.users import HASHES, Users, read_users
from sparktxn.errors import ConfigurationError

# SASL's mechanisms as a server speaks them: PLAIN (RFC 4616) and SCRAM (RFC 5802), without channel binding.
#
# Kafka's clients do not prepare names and passwords (SASLprep): their bytes in UTF-8 are what counts.

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (*HASHES, PLAIN)
_NONCE_CHARACTERS_MAX: Final = 1_024


class AuthenticationFailed(Exception):
    """A client is not who it says, or has not said it in the way of its mechanism. The text has nothing of it."""


class Step(NamedTuple):
    """What the server says, and the user that is proved by now; None while more is to come."""

    answer: bytes
    user: str | None = None


class Exchange(Protocol):
    """One client's authentication."""

    def step(self, message: bytes) -> Step:
        """Take what a client says, and answer it.

        Raises:
            AuthenticationFailed: it ends here.
        """


def new_exchange(mechanism: str, users: Users, ids: Ids) -> Exchange:
    """Return the beginning of an authentication by one of `MECHANISMS`."""
    return _Plain(users) if mechanism == PLAIN else _Scram(users, mechanism, ids.token() + ids.token())


class _Plain:
    def __init__(self, users: Users) -> None:
        self._users = users

    def step(self, message: bytes) -> Step:
        try:
            for_user, name, password = message.decode().split("\0")
        except ValueError:
            raise AuthenticationFailed("the message of PLAIN has not three parts of text") from None
        if not self._users.has_password(name, password) or for_user not in ("", name):
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        return Step(b"", name)


class _Scram:
    def __init__(self, users: Users, mechanism: str, nonce: str) -> None:
        self._users = users
        self._mechanism = mechanism
        self._nonce = nonce
        self._name = ""
        self._header = b""
        self._said = b""
        """What both have said until the proof, which signs it; nothing before the first message."""

    def step(self, message: bytes) -> Step:
        return self._last(message) if self._said else self._first(message)

    def _first(self, message: bytes) -> Step:
        binding, for_user, bare = _parts(message, 3)
        attributes = _attributes(bare)
        if binding not in (b"n", b"y") or [*attributes][:2] != ["n", "r"]:
            raise self._malformed()
        self._name = _name(attributes["n"], self._mechanism)
        client_nonce = attributes["r"]
        if not 0 < len(client_nonce) <= _NONCE_CHARACTERS_MAX or for_user not in (
            b"",
            b"a=" + attributes["n"].encode(),
        ):
            raise self._malformed()
        if attributes.get("tokenauth", "false").lower() == "true":
            raise AuthenticationFailed("delegation tokens are not served")
        self._header = message[: len(message) - len(bare)]
        self._nonce = client_nonce + self._nonce
        known = self._users.verifier(self._name, self._mechanism)
        answer = f"r={self._nonce},s={base64.b64encode(known.salt).decode()},i={known.iterations}".encode()
        self._said = bare + b"," + answer
        return Step(answer)

    def _last(self, message: bytes) -> Step:
        without_proof, found, proof_text = message.rpartition(b",p=")
        attributes = _attributes(without_proof)
        try:
            proof = base64.b64decode(proof_text, validate=True)
            header = base64.b64decode(attributes.get("c", ""), validate=True)
        except (binascii.Error, ValueError):
            raise self._malformed() from None
        # As a broker since CVE-2024-56128: librdkafka before 2.6.1 puts its own nonce once more before the server's.
        has_nonce = attributes.get("r", "").endswith(self._nonce)
        if not found or header != self._header or not has_nonce:
            raise self._malformed()
        hash_ = HASHES[self._mechanism]
        known = self._users.verifier(self._name, self._mechanism)
        said = self._said + b"," + without_proof
        signature = hmac.digest(known.stored_key, said, hash_)
        if len(proof) != len(signature):
            raise self._malformed()
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(hash_, client_key).digest(), known.stored_key):
            raise AuthenticationFailed(
                f"Authentication failed during authentication due to invalid credentials with SASL mechanism "
                f"{self._mechanism}"
            )
        server_signature = hmac.digest(known.server_key, said, hash_)
        return Step(b"v=" + base64.b64encode(server_signature), self._name)

    def _malformed(self) -> AuthenticationFailed:
        return AuthenticationFailed(f"a message is none of {self._mechanism}")


def _parts(message: bytes, count: int) -> list[bytes]:
    parts = message.split(b",", count - 1)
    return parts if len(parts) == count else [b""] * count


def _attributes(message: bytes) -> dict[str, str]:
    """Return the attributes of a message by their letters, in order; empty if it has other parts."""
    try:
        pairs = [part.partition("=") for part in message.decode().split(",")]
    except ValueError:
        return {}
    if any(not equals for _, equals, _ in pairs):
        return {}
    return {name: value for name, _, value in pairs}


def _name(text: str, mechanism: str) -> str:
    name = text.replace("=2C", ",").replace("=3D", "=")
    if not name or "=" in text.replace("=2C", "").replace("=3D", ""):
        raise AuthenticationFailed(f"a message is none of {mechanism}")
    return name


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
