"""Users from a file that holds no password: a line has what SCRAM checks one by (RFC 5802), as PostgreSQL writes it.

``NAME SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY``, and the same with SHA-512; salt and keys are base64.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from sparktxn._foundation.process.clock import Ids
from sparktxn.errors import ConfigurationError

HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash of each mechanism, by the names that Kafka's clients know."""

_ITERATIONS: Final = 16_384
"""How often a password is hashed: the most that Kafka's own users have, as each connecting client does the same."""
_ITERATIONS_MIN: Final = 4_096
_ITERATIONS_MAX: Final = 1_000_000
_SALT_BYTES: Final = 16
_FILE_BYTES_MAX: Final = 16 * 1024 * 1024
_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f]{1,255}")
_LINE: Final = re.compile(
    r"(?P<name>\S+)\s+(?P<mechanism>[A-Z0-9-]+)\$(?P<iterations>\d{1,9}):(?P<salt>[^\s:$]+)"
    r"\$(?P<stored>[^\s:$]+):(?P<server>[^\s:$]+)"
)
_EXPECTED: Final = "expected NAME SCRAM-SHA-256$ITERATIONS:SALT$KEY:KEY, as --sasl-line prints it"


class Verifier(Struct, frozen=True):
    """What a password is checked by. It is not a password, but who has it can guess at one: it is never shown."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return "Verifier(…)"


def _verifier(hash_: str, password: bytes, salt: bytes, iterations: int) -> Verifier:
    salted = hashlib.pbkdf2_hmac(hash_, password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", hash_)
    stored_key = hashlib.new(hash_, client_key).digest()
    return Verifier(iterations, salt, stored_key, hmac.digest(salted, b"Server Key", hash_))


class Users:
    """The users of a file. What is asked of a user that is not there takes as long, and looks the same."""

    def __init__(self, verifiers: Mapping[tuple[str, str], Verifier], ids: Ids) -> None:
        self._verifiers = dict(verifiers)
        self._secret = ids.token().encode()

    def __repr__(self) -> str:
        return f"Users({len({name for name, _ in self._verifiers})} users)"

    def __len__(self) -> int:
        return len({name for name, _ in self._verifiers})

    def verifier(self, name: str, mechanism: str) -> Verifier:
        """Return what SCRAM checks a user by; for an unknown user, a value that no password fits."""
        found = self._verifiers.get((name, mechanism))
        if found is not None:
            return found
        made = [hmac.digest(self._secret, part + name.encode(), HASHES[mechanism]) for part in (b"s", b"k", b"v")]
        return Verifier(_ITERATIONS, made[0][:_SALT_BYTES], made[1], made[2])

    def has_password(self, name: str, password: str) -> bool:
        """Return whether a user has a password. It hashes: some 10 ms of a processor."""
        mechanism = next((each for each in HASHES if (name, each) in self._verifiers), next(iter(HASHES)))
        known = self.verifier(name, mechanism)
        made = _verifier(HASHES[mechanism], password.encode(), known.salt, known.iterations)
        return hmac.compare_digest(made.stored_key, known.stored_key)


def user_lines(name: str, password: str, ids: Ids) -> list[str]:
    """Return a user's lines for the file, one of each mechanism.

    Raises:
        ConfigurationError: the name has spaces or control characters, or the password is empty.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"user {name!r}: expected a name of 1 to 255 characters without spaces")
    if not password:
        raise ConfigurationError(f"the password of user {name!r} is empty")
    lines = []
    for mechanism, hash_ in HASHES.items():
        made = _verifier(hash_, password.encode(), ids.token().encode()[:_SALT_BYTES], _ITERATIONS)
        salt, stored, server = map(_base64, (made.salt, made.stored_key, made.server_key))
        lines.append(f"{name} {mechanism}${made.iterations}:{salt}${stored}:{server}")
    return lines


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def read_users(path: Path, ids: Ids) -> Users:
    """Return the users of a file. Lines that are empty, or begin with ``#``, are left out.

    Raises:
        ConfigurationError: it cannot be read, has no user, or a line is none; or its group may write it, or others may
            read it. The error never has what a line contains.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"--sasl-users {str(path)!r} cannot be read: {error.strerror}") from error
    if mode & (stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP):
        raise ConfigurationError(
            f"--sasl-users {str(path)!r} has permissions {stat.S_IMODE(mode):04o}: expected 0600, or 0640"
        )
    if len(data) > _FILE_BYTES_MAX:
        raise ConfigurationError(f"--sasl-users {str(path)!r} has more than {_FILE_BYTES_MAX} bytes")
    found: dict[tuple[str, str], Verifier] = {}
    for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parsed = _parsed(line.strip())
        if parsed is None:
            raise ConfigurationError(f"--sasl-users {str(path)!r}, line {number}: {_EXPECTED}")
        if parsed[0] in found:
            raise ConfigurationError(f"--sasl-users {str(path)!r}, line {number}: the user has such a line before")
        found[parsed[0]] = parsed[1]
    if not found:
        raise ConfigurationError(f"--sasl-users {str(path)!r} has no user: {_EXPECTED}")
    return Users(found, ids)


def _parsed(line: str) -> tuple[tuple[str, str], Verifier] | None:
    match = _LINE.fullmatch(line)
    if match is None or match["mechanism"] not in HASHES or not _NAME.fullmatch(match["name"]):
        return None
    try:
        salt, stored, server = (base64.b64decode(match[part], validate=True) for part in ("salt", "stored", "server"))
    except (binascii.Error, ValueError):
        return None
    size_bytes = hashlib.new(HASHES[match["mechanism"]]).digest_size
    iterations = int(match["iterations"])
    if len(stored) != size_bytes or len(server) != size_bytes or not salt:
        return None
    if not _ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
        return None
    return (match["name"], match["mechanism"]), Verifier(iterations, salt, stored, server)
