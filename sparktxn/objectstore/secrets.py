"""Texts of clients and servers without the secrets of a store's settings, in whichever form they hold them."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote, urlsplit

__all__ = ["SECRET_CHARACTERS_MIN", "SecretMask"]

SECRET_CHARACTERS_MIN: Final = 4
"""Shorter values are not secrets: they are in too many words."""

_ANYWHERE: Final = 16
"""From so many characters on a secret is hidden inside a longer word, too: no other text has it by chance."""

_NAME: Final = re.compile(r"key|secret|token|password|credential|sas|connection_string", re.IGNORECASE)
_PART: Final = re.compile(r"(?:AccountKey|SharedAccessSignature|sig)=([^;&]+)", re.IGNORECASE)
_ENCODED: Final = 6
"""Base64 of fewer bytes is too short to be known again."""

# A name such as latest-events or test.example is one word; a full stop at its end is none of it. What an escape
# before a word ends with is not part of the word.
_BEFORE: Final = r"(?:(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrt])|(?<![\w-])(?<!\w\.))"
_AFTER: Final = r"(?![\w-])(?!\.\w)"
_HIDDEN: Final = "***"


class SecretMask:
    """Hides the secrets of ``storage.*`` settings; `shown` are names that a text has to keep, such as a bucket's."""

    def __init__(self, storage: Mapping[str, Any], shown: Iterable[str] = ()) -> None:
        self._secrets = {
            one for found in _secrets(storage) for one in _forms(found) if len(one) >= SECRET_CHARACTERS_MIN
        }
        self._kept = {name for name in (*shown, *_endpoints(storage)) if name}

    def hidden(self, text: str) -> str:
        """Return `text` with ``***`` in place of each secret."""
        if not self._secrets:
            return text
        return self._pattern.sub(lambda found: found[0] if found.lastgroup else _HIDDEN, text)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """What finds secrets, and names in groups; made for the first error, as a long key takes a while."""
        rows = [(len(one), 1, _pattern(one)) for one in self._secrets]
        rows += [
            (len(one), 2, f"(?P<kept{number}>{_BEFORE}{re.escape(one)}{_AFTER})")
            for number, one in enumerate(self._kept)
        ]
        # At one place the longer one is meant, and of two that are equal the name.
        ordered = [pattern for _, _, pattern in sorted(rows, reverse=True)]
        ordered += [pattern for one in self._secrets for pattern in _base64_patterns(one)]
        return re.compile("|".join(ordered))


def _secrets(storage: Mapping[str, Any], *, inside_secret: bool = False) -> Iterator[str]:
    """Yield the values that must not be shown."""
    for name, value in storage.items():
        secret = inside_secret or _NAME.search(str(name)) is not None
        if isinstance(value, str) and value:
            if secret:
                yield value
                yield from _PART.findall(value)
            if "://" in value:
                user, separator, _ = value.partition("://")[2].partition("/")[0].rpartition("@")
                yield from (unquote(one) for one in user.split(":") if separator)
        elif isinstance(value, Mapping):
            yield from _secrets(value, inside_secret=secret)
        elif secret and isinstance(value, list | tuple):
            yield from _secrets({str(at): one for at, one in enumerate(value)}, inside_secret=True)


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret, and its long lines: a text may hold one of them alone."""
    yield secret
    yield secret.strip()
    yield from (line.strip() for line in secret.splitlines() if len(line.strip()) >= _ANYWHERE)


def _endpoints(storage: Mapping[str, Any]) -> Iterator[str]:
    """Yield the addresses of servers in the settings, which are not secrets, without users and passwords."""
    for name, value in storage.items():
        if isinstance(value, Mapping):
            yield from _endpoints(value)
        elif isinstance(value, str) and _NAME.search(str(name)) is None and "://" in value:
            yield value if "@" not in value else ""
            try:
                parts = urlsplit(value)
                yield parts.netloc.rpartition("@")[2]
                yield parts.hostname or ""
            except ValueError:
                continue


def _pattern(secret: str) -> str:
    """Return what finds a secret as it is, and with characters as escapes of URLs, of Python, JSON and XML."""
    found = "".join(map(_character, secret))
    if len(secret) >= _ANYWHERE:
        return found
    before, after = (
        one if secret[at].isalnum() or secret[at] in "_-" else "" for at, one in ((0, _BEFORE), (-1, _AFTER))
    )
    return f"{before}{found}{after}"


def _character(one: str) -> str:
    data = one.encode("utf-8", "surrogatepass")
    spellings = {one, html.escape(one), repr(one)[1:-1], one.encode("unicode_escape").decode()}
    if one in '"\\/':
        spellings.add(f"\\{one}")
    if one == " ":
        spellings.add("+")
    escapes = "".join(f"%(?:25)*(?i:{byte:02x})" for byte in data)
    unicode_escape = "" if len(one.encode("utf-16-be", "surrogatepass")) != 2 else rf"|\\u(?i:{ord(one):04x})"
    return f"(?:{'|'.join(sorted(map(re.escape, spellings), key=len, reverse=True))}|{escapes}{unicode_escape})"


def _base64_patterns(secret: str) -> Iterator[str]:
    """Yield what finds words of base64 that hold a secret, wherever it begins in their bytes."""
    data = secret.encode("utf-8", "surrogatepass")
    if len(data) < _ENCODED:
        return
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        # What shares its bits with the bytes around it is left out.
        core = encoded[-(-before * 8 // 6) : len(encoded) - (1 if (before + len(data)) % 3 else 0)]
        for spelling in {core, core.replace("+", "-").replace("/", "_")}:
            yield rf"[\w+/-]*{re.escape(spelling)}[\w+/=-]*"
