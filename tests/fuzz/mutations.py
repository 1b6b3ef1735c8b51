"""Inputs made of valid ones: bits and bytes changed, cut and joined, and JSON changed as a tree and sealed again."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

import google_crc32c

from tests.fuzz.decoders import Decoder, sealed

__all__ = ["mutated"]

_NUMBERS: Final = (
    *(0, 1, -1, -2, 2**15, 2**31 - 1, 2**31, -(2**31), 2**53, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**40),
    *(1.5, -0.0, 1e308, 32_767, 10_000, 10_001, 1_000_000_000),
)
_TEXTS: Final = (
    *("", ".", "..", "../../etc/passwd", "/etc/passwd", "a/b", "a\\b", "C:\\x", "a\0b", "%2e%2e", "a\nb", "A-b.c_d"),
    *("․․/x", "ａ", "x" * 5_000, "9" * 5_000, "٣", "00", "-1", "1_0"),
    *("\u0000", "\U0001f600", "latest", "committed", "0" * 20, "f" * 20, "00000000", "e3069283", "create_topic"),
    *("00000000000000000001-" + "a" * 20 + ".parquet", "99999999999999999999-" + "a" * 20 + ".arrow"),
)
_OTHERS: Final[tuple[Any, ...]] = (None, True, False, [], {}, [[]], {"": None})


def mutated(decoder: Decoder, data: bytes, random: Random) -> bytes:
    """An input near `data`: half of those of a document are well-formed, with a right checksum."""
    if decoder.shape in ("sealed", "json") and random.random() < 0.7:
        try:
            return _document(decoder, data, random)
        except (ValueError, RecursionError):  # no longer a document
            return _bytes(data, random)
    data = _bytes(data, random)
    if decoder.shape == "sealed" and len(data) > 23 and random.random() < 0.5:
        return sealed(data[:-23] + b"}")
    if decoder.shape == "snapshot" and len(data) > 6:
        return data[:2] + google_crc32c.value(data[6:]).to_bytes(4, "big") + data[6:]
    return data


def _document(decoder: Decoder, data: bytes, random: Random) -> bytes:
    document = json.loads(data)
    if decoder.shape == "sealed":
        if not isinstance(document, dict):
            raise ValueError("not a document")
        document.pop("checksum", None)
    for _ in range(random.choice((1, 1, 2, 4))):
        document = _changed(document, random)
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=random.random() < 0.3)
    if random.random() < 0.02:
        text = text.replace(":", ":" + random.choice(("[" * 200, "[" * 100_000, '{"a":' * 50_000, "9" * 5_000)), 1)
    body = text.encode("utf-8", "surrogatepass")
    return sealed(body) if decoder.shape == "sealed" and body[-1:] == b"}" else body


def _changed(value: Any, random: Random) -> Any:
    """`value` with one place in it changed."""
    if isinstance(value, dict) and value and random.random() < 0.95:
        key = random.choice(list(value))
        chance = random.random()
        if chance < 0.08:
            return {name: found for name, found in value.items() if name != key}
        if chance < 0.12:
            return {**value, random.choice(_TEXTS): random.choice(_OTHERS)}
        return {**value, key: _changed(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.95:
        index = random.randrange(len(value))
        chance = random.random()
        if chance < 0.08:
            return value[:index] + value[index + 1 :]
        if chance < 0.16:
            return [*value[: index + 1], *value[index:]]
        if chance < 0.2:
            return [*value[index:], *value[:index]]
        return [*value[:index], _changed(value[index], random), *value[index + 1 :]]
    return _another(value, random)


def _another(value: Any, random: Random) -> Any:
    chance = random.random()
    if chance < 0.1:
        return random.choice((*_OTHERS, random.choice(_TEXTS), random.choice(_NUMBERS)))
    if isinstance(value, int) and not isinstance(value, bool):
        return value + random.choice((-1, 1)) if chance < 0.4 else random.choice(_NUMBERS)
    if isinstance(value, str):
        return value + random.choice(_TEXTS) if chance < 0.3 else random.choice(_TEXTS)
    return random.choice((*_OTHERS, random.choice(_TEXTS), random.choice(_NUMBERS)))


def _bytes(data: bytes, random: Random) -> bytes:
    """`data` with a few of its bytes changed, cut out, doubled or put in."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 3, 8))):
        at = random.randrange(len(changed) + 1)
        match random.randrange(6):
            case 0 if at < len(changed):
                changed[at] ^= 1 << random.randrange(8)
            case 1 if at < len(changed):
                changed[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
            case 2:
                del changed[at : at + random.choice((1, 2, 8, 100))]
            case 3:
                changed[at:at] = random.randbytes(random.choice((1, 2, 4, 8)))
            case 4:
                width = random.choice((2, 4, 8))
                number = random.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63)) % 2 ** (8 * width)
                changed[at : at + width] = number.to_bytes(width, random.choice(("big", "little")))
            case 5:
                length = random.choice((1, 8, 64))
                changed[at:at] = changed[at : at + length]
    return bytes(changed[: random.randrange(len(changed) + 1)]) if random.random() < 0.05 else bytes(changed)
