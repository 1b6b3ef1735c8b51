"""SASL's mechanisms as a server speaks them: PLAIN (RFC 4616) and SCRAM (RFC 5802), without channel binding.

Kafka's clients do not prepare names and passwords (SASLprep): their bytes in UTF-8 are what counts.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final, NamedTuple, Protocol

from sparktxn.gateway.security.users import HASHES, Users
from sparktxn.process.clock import Ids

__all__ = ["MECHANISMS", "PLAIN", "AuthenticationFailed", "Exchange", "Step", "new_exchange"]

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
