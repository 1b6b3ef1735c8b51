"""Text to values of a topic's types: exactly the value that is written, or an error that says what was expected."""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any, Final

import pyarrow as pa

TextReader = Callable[[str], Any]
"""Takes a text, and returns the value that Arrow takes for it; raises ValueError with what was expected."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"-?[0-9]+")
_NO_NUMBER = re.compile(r"(?i:nan|[+-]?inf(?:inity)?)")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[Tt ](?P<hour>[0-9]{2}):[0-9]{2}"
    r"(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,100}))?)?(?P<zone>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_EPOCH: Final = datetime.fromisoformat("1970-01-01")
_DAY_ONE: Final = date(1970, 1, 1)
YEARS_US: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""The first and the last microsecond of the years 1 to 9999."""
_US: Final = timedelta(microseconds=1)
_DIGITS: Final = {"ms": 3, "us": 6}
_SAFE_WHOLE: Final = 2**53
_WHOLE_DIGITS_MAX: Final = 400
_DOUBLE_DIGITS_MAX: Final = 767
"""No double has more significant digits."""
_SURE_MIN: Final = 1e-37
_SURE_MAX: Final = 1e37
"""Between them floats of both widths keep their digits."""
_FLOATS: Final = Context(prec=2_000)
_DECIMALS: Final = Context(prec=76, Emax=999_999, Emin=-999_999, traps=[Inexact, InvalidOperation])
_SHOWN_MAX: Final = 80


class WrongLine(ValueError):
    """Line `line`, or the record that begins there, is not a row of the topic, because of `reason`."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


def shown(value: object) -> str:
    """Return a value for an error, shortened."""
    text = str(value) if isinstance(value, str) and type(value) is not str else repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}… ({len(text)} characters)"


def text_reader(kind: pa.DataType) -> TextReader:
    """Return what reads a text as a value of a type that is not nested. Binary values are base64."""
    types = pa.types
    if types.is_integer(kind):
        return lambda text: whole_of(text, kind)
    if types.is_float32(kind):
        return lambda text: _float_of(text, _single, 6, kind)
    if types.is_floating(kind):
        return lambda text: _float_of(text, float, 15, kind)
    if types.is_decimal(kind):
        return lambda text: _decimal_of(text, kind)
    if types.is_boolean(kind):
        return _bool_of
    if types.is_date(kind):
        return _date_of
    if types.is_timestamp(kind):
        return lambda text: _time_of(text, kind)
    return bytes_of if types.is_binary(kind) else str


def whole_of(text: str, kind: pa.DataType) -> int:
    """Return a whole number within a type's range.

    ``12.0`` and ``1e3`` are whole numbers too. From 2**53 on they are refused: whatever wrote them as a fraction may
    have rounded them.

    Raises:
        ValueError: it is not such a number.
    """
    # A longer text is in no range, and Python refuses to read some thousand digits.
    is_long = len(text.lstrip("-0")) >= _WHOLE_DIGITS_MAX
    number = None if is_long else int(text) if _WHOLE.fullmatch(text) else _of_fraction(text)
    limit = 1 << (kind.bit_width - 1)
    if number is None or not -limit <= number < limit:
        raise ValueError(f"{shown(text)} is not of type {kind}: expected a whole number from {-limit} to {limit - 1}")
    return number


def _of_fraction(text: str) -> int | None:
    if not _NUMBER.fullmatch(text) or abs(float(text)) >= _SAFE_WHOLE:
        return None
    number = Decimal(text)
    return int(number) if number == number.to_integral_value() else None


def _float_of(text: str, nearest: Callable[[str], float], sure_digits: int, kind: pa.DataType) -> float:
    """Return the nearest number, if rounding it to the digits of the text gives the text again."""
    if not _NUMBER.fullmatch(text):
        if _NO_NUMBER.fullmatch(text):
            return float(text)
        raise ValueError(f"{shown(text)} is not of type {kind}: expected a number, NaN, Infinity or -Infinity")
    number = nearest(text)
    digits = len(re.split("[eE]", text)[0].lstrip("+-0.").replace(".", ""))
    if not digits or (digits <= sure_digits and _SURE_MIN < abs(number) < _SURE_MAX):
        return number
    if digits > _DOUBLE_DIGITS_MAX or not _is_kept(text, number):
        raise ValueError(
            f"{shown(text)} would become {number!r} as {kind}: expected a number that the type holds with these "
            "digits; round it, or give the topic a decimal"
        )
    return number


def _is_kept(text: str, number: float) -> bool:
    """Return whether a number differs from a text by half of the text's last digit at most.

    A whole number differs by nothing then. So does a fraction that has as many digits as a program shows of a number.
    """
    if not number or not math.isfinite(number):
        return False
    written = Decimal(text)
    _, digits, exponent = written.as_tuple()
    while digits[-1:] == (0,) and (exponent < 0 or "e" in text.lower()):  # type: ignore[operator]
        digits, exponent = digits[:-1], exponent + 1  # type: ignore[operator]
    difference = _FLOATS.subtract(written, Decimal(number))
    return abs(difference) * 2 <= Decimal((0, (1,), int(exponent)))


def _single(text: str) -> float:
    """Return the nearest float of 32 bits."""
    number = float(text)
    try:
        (single,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        return math.copysign(math.inf, number)
    return float(single)


def _decimal_of(text: str, kind: pa.DataType) -> Decimal:
    expected = f"expected a number of {kind.precision} digits, {kind.scale} of them behind the point"
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{shown(text)} is not of type {kind}: {expected}")
    try:
        number = _DECIMALS.quantize(Decimal(text), Decimal(1).scaleb(-kind.scale))
    except (DecimalException, ArithmeticError):
        raise ValueError(f"{shown(text)} does not fit into {kind}: {expected}") from None
    if len(number.as_tuple().digits) > kind.precision:
        raise ValueError(f"{shown(text)} does not fit into {kind}: {expected}")
    return number


def _bool_of(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{shown(text)} is not a bool: expected true or false")
    return text.lower() == "true"


def _date_of(text: str) -> int:
    found = _DATE.fullmatch(text)
    try:
        return (date(*map(int, found.groups())) - _DAY_ONE).days  # type: ignore[union-attr]
    except (ValueError, AttributeError):
        raise ValueError(f"{shown(text)} is not a date: expected one such as 2026-05-01") from None


def _time_of(text: str, kind: pa.DataType) -> int:
    """Return an ISO 8601 time in the type's unit since 1970; milliseconds may be a whole number."""
    digits_max = _DIGITS[kind.unit]
    example = "2026-05-01T12:00:00" if kind.tz is None else "2026-05-01T12:00:00Z"
    if kind.unit == "ms" and _WHOLE.fullmatch(text):
        return whole_of(text, pa.int64())
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{shown(text)} is not a timestamp: expected one such as {example}")
    if (found["zone"] is None) is not (kind.tz is None):
        has, fix = ("a", "without a zone") if kind.tz is None else ("no", "with its zone")
        raise ValueError(f"{shown(text)} has {has} zone, and the type is {kind}: write it {fix}, as {example}")
    fraction = (found["fraction"] or "").rstrip("0")
    if len(fraction) > digits_max:
        raise ValueError(
            f"{shown(text)} has {len(fraction)} digits of a second, and {kind} keeps {digits_max}: leave out the others"
        )
    try:
        moment = datetime.fromisoformat(text[: 19 if found["second"] else 16 if found["hour"] else 10])
    except ValueError as error:
        raise ValueError(f"{shown(text)} is not a timestamp ({error}): expected one such as {example}") from None
    since_us = (moment - _EPOCH) // _US + int(fraction.ljust(6, "0")) - _zone_us(found["zone"])
    if not YEARS_US[0] <= since_us <= YEARS_US[1]:
        raise ValueError(f"{shown(text)} is outside the years 1 to 9999 in UTC")
    return since_us if kind.unit == "us" else since_us // 1_000


def _zone_us(zone: str | None) -> int:
    if zone is None or zone in "Zz":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
    if hours > 23 or minutes > 59:
        raise ValueError(f"zone {zone!r} is none: expected one from -23:59 to +23:59")
    return (hours * 60 + minutes) * 60_000_000 * (-1 if zone[0] == "-" else 1)


def bytes_of(text: str) -> bytes:
    """Return the bytes that base64 holds.

    Raises:
        ValueError: it is not base64, with the padding of RFC 4648.
    """
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        found = None
    if found is None or base64.b64encode(found).decode() != text:
        raise ValueError(f"{shown(text)} is not base64: expected bytes of RFC 4648, such as aGk= for hi")
    return found
