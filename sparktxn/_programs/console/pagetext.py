"""Values as a page shows them: times, sizes, and the text of records, which may hold anything.

Templates escape all text for HTML. What is done here is for the eye: characters that a reader cannot see, or that turn
the direction of what follows, become visible.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from sparktxn._foundation.values.quantities import duration_text, size_text, time_text

CELL_CHARACTERS: Final = 160
_HIDDEN_KINDS: Final = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_KEPT: Final = "\n\t"
_ITEMS_MAX: Final = 20
_LEFT_OUT: Final = ("dry_run", "names", "names_left_out")
_EXACT_BELOW: Final = 10
_DAY_MS: Final = 86_400_000
_SECONDS_MATTER_MS: Final = 1_200_000
_SCALAR: Final = 11
"""What a number counts where a value is cut."""


def visible(text: str, most: int | None = None) -> str:
    r"""Return text with characters that have no shape, or that turn its direction, as ``⟨U+202E⟩``.

    `most` is how many characters are shown. Ends of lines and tabulators stay.

    >>> visible("a\x00b\u202ec", 10), visible("abcdef", 3)
    ('a⟨U+0000⟩b⟨U+202E⟩c', 'abc…')
    """
    cut = most is not None and len(text) > most
    part = text[:most] if cut else text
    if not part.isprintable():
        part = "".join(map(_character, part))
    return f"{part}…" if cut else part


def _character(one: str) -> str:
    if one in _KEPT or unicodedata.category(one) not in _HIDDEN_KINDS:
        return one
    return f"⟨U+{ord(one):04X}⟩"


def field(text: str) -> str:
    """Return text for a field of a form, from which it comes back as it is; HTML cannot hold the character 0."""
    return text.replace("\x00", "\ufffd")


def cell(value: Any) -> str:
    """Return any value for a cell of a table, on one line and cut."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, bytes):
        return visible(bytes_text(value), CELL_CHARACTERS)
    if isinstance(value, dict | list | tuple):
        value = msgspec.json.encode(value, enc_hook=str).decode()
    return visible(str(value), CELL_CHARACTERS)


def row_lines(row: Mapping[str, Any], *, empty: bool = True) -> Iterator[tuple[str, list[str]]]:
    """Yield the members of a row as they are read, each with its items: those of lists on lines of their own.

    Without `empty` those that are nothing are left out. So are always what a page shows elsewhere: names of objects.
    """
    for name, value in row.items():
        if name in _LEFT_OUT or not (value or empty):
            continue
        items = value if isinstance(value, list | tuple) else [value]
        is_size = name.endswith("size_bytes")
        shown_items = [size(item) if is_size else _item(item) for item in items[:_ITEMS_MAX]]
        if len(items) > _ITEMS_MAX:
            shown_items.append(f"and {number(len(items) - _ITEMS_MAX)} more")
        yield name.replace("_", " "), shown_items or ["–"]


def _item(item: Any) -> str:
    if not isinstance(item, dict):
        return cell(item)
    shown = {name: duration(value) if name.endswith("after_ms") else cell(value) for name, value in item.items()}
    return ", ".join(f"{name.removesuffix('_ms').replace('_', ' ')} {value}" for name, value in shown.items())


def number(value: float | None) -> str:
    """Return a number with a thin space at each thousand, and of a small one two digits.

    >>> number(1234567), number(0.0517)
    ('1\u202f234\u202f567', '0.052')
    """
    if value is None:
        return "–"
    if isinstance(value, float) and 0 < value < 1:
        return f"{value:.2g}" if value >= 0.001 else "<\u202f0.001"
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.1f}".replace(",", "\u202f")
    return f"{int(value):,}".replace(",", "\u202f")


def size(count: float | None) -> str:
    """Return a number of bytes in its greatest unit, on one line.

    >>> size(999), size(1_500_000)
    ('999\xa0B', '1.4\xa0MiB')
    """
    return "–" if count is None else size_text(count).replace(" ", "\xa0")


def duration(milliseconds: float | None) -> str:
    """Return a duration in its two greatest units, on one line.

    >>> duration(250), duration(90_000), duration(90_000_000)
    ('250\xa0ms', '1\xa0min\xa030\xa0s', '1\xa0d\xa01\xa0h')
    """
    return "–" if milliseconds is None else duration_text(int(milliseconds)).replace(" ", "\xa0")


def age(milliseconds: float | None) -> str:
    """Return an age as exactly as a reader needs it: in its greatest unit, and the next one while that counts.

    >>> age(250), age(12_345), age(90_000), age(754_000), age(90_000_000)
    ('under 1\xa0s', '12\xa0s', '1\xa0min\xa030\xa0s', '12\xa0min', '1\xa0d\xa01\xa0h')
    """
    if milliseconds is None:
        return "–"
    if milliseconds < 1_000:
        return "under 1\xa0s"
    parts = duration(milliseconds - milliseconds % 1_000).split("\xa0")
    return "\xa0".join(parts[:2] if int(parts[0]) >= _EXACT_BELOW else parts)


def time(timestamp_ms: int | None) -> str:
    """Return a time in UTC to the millisecond."""
    if timestamp_ms is None or timestamp_ms < 0:
        return "–"
    return time_text(timestamp_ms).replace("T", " ").removesuffix("Z")


def clock_text(timestamp_ms: int, span_ms: int) -> str:
    """Return as much of a time in UTC as a label of a span of time needs.

    >>> clock_text(0, 60_000), clock_text(0, 3_600_000), clock_text(0, 90_000_000)
    ('00:00:00', '00:00', '01-01 00:00')
    """
    begin = 5 if span_ms > _DAY_MS else 11
    return time(timestamp_ms)[begin : 19 if span_ms < _SECONDS_MATTER_MS else 16]


def query(path: str, **asked: object) -> str:
    """Return an address of this console; parameters that are None are left out."""
    given = {name: value for name, value in asked.items() if value is not None}
    return f"{path}?{urlencode(given, errors='surrogatepass')}" if given else path


def segment_path(text: str) -> str:
    """Return a name as a part of an address's path."""
    return quote(text, safe="")


def bytes_text(data: bytes, form: str = "auto") -> str:
    """Return bytes as text, as ``json`` or as ``hex``; ``auto`` takes text where they are UTF-8."""
    if form == "hex":
        return data.hex(" ")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data.hex(" ") if form == "auto" else data.decode("utf-8", "replace")
    if form == "json":
        try:
            return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            return text
    return text


def record_bytes(data: bytes | None, most: int) -> dict[str, Any]:
    """Return bytes as JSON has them: text or base64 of at most `most` bytes, and their length."""
    if data is None:
        return {"length": None, "text": None}
    part = data[:most]
    try:
        text = part.decode() if len(part) == len(data) else _cut_text(part)
    except UnicodeDecodeError:
        return {"length": len(data), "base64": msgspec.to_builtins(part), "hex": part.hex(" ")}
    return {"length": len(data), "text": text}


def shortened(value: Any, most: int) -> Any:
    """Return a value of a column, of which about `most` characters, bytes and items are left, and … for what is not.

    >>> shortened("abcdef", 3), shortened([1, 2, 3, 4], 24), shortened({"a": "xyz"}, 3)
    ('abc…', [1, 2, '…'], {'a': 'x…'})
    """
    return _Shortening(most).of(value)


class _Shortening:
    """How much of a value is left to show."""

    def __init__(self, most: int) -> None:
        self._left = most

    def of(self, value: Any) -> Any:
        """Return what is left of a value, or of a part of it."""
        if isinstance(value, str | bytes):
            part, self._left = value[: self._left], max(0, self._left - len(value) - 1)
            return part if len(part) == len(value) or isinstance(part, bytes) else f"{part}…"
        self._left = max(0, self._left - 1)
        if isinstance(value, dict):
            return dict(self._some(value.items(), ("…", "…")))
        if isinstance(value, list | tuple):
            return list(self._some(value, "…"))
        self._left = max(0, self._left - _SCALAR)
        return value

    def _some(self, items: Iterable[Any], mark: Any) -> Iterator[Any]:
        for item in items:
            if not self._left:
                yield mark
                return
            yield self.of(item)


def _cut_text(part: bytes) -> str:
    """Return UTF-8 that was cut anywhere, without what is left of its last character."""
    for left in range(4):
        try:
            return part[: len(part) - left].decode()
        except UnicodeDecodeError as error:
            if error.start < len(part) - 4:
                raise
    return part.decode()
