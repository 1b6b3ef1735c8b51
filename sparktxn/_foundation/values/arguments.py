"""The checks of public arguments: each returns the plain value, or raises before anything is written.

A value of the wrong type is a TypeError. A value of the right type that is out of range, or that cannot be stored, is a
ConfigurationError. This is both a ValueError and a KafkaException with ``_INVALID_ARG``. Both name the argument, what
was given and what was expected. Keys, values and other bytes are never shown.
"""

from __future__ import annotations

import math
import operator
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any, ClassVar, Final, TypeVar

from sparktxn.errors import ConfigurationError

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

TIMESTAMP_MS_MAX: Final = INT64_MAX // 1000
"""The last millisecond that microseconds of 64 bits can express, which is what Spark's timestamps are."""

TEXT_BYTES_MAX: Final = 32_767
"""The longest identifier, in bytes of UTF-8: Kafka's protocol has 16 bits for its length."""

_SHOWN_MAX: Final = 80
_SETTING_SHOWN_MAX: Final = 200
_SHOWN_BITS_MAX: Final = 256

_Kind = TypeVar("_Kind")


def described(value: object) -> str:
    """Return what an error shows of `value`: its type, and the value if it is short and no record's content.

    >>> described(5.0), described(b"secret"), described(10**400), described("\\ud800")
    ('5.0 (float)', 'bytes of length 6', 'a number of 1329 bits (int)', "'\\\\ud800' (str)")
    """
    kind = type(value).__name__
    if value is None:
        return "None"
    if isinstance(value, int) and int.bit_length(value) > _SHOWN_BITS_MAX:
        return f"a number of {int.bit_length(value)} bits ({kind})"
    if isinstance(value, bytes | bytearray | memoryview | list | tuple | set | frozenset | Mapping):
        return f"{kind} of length {len(value)}"
    if isinstance(value, str):
        value = str.__str__(value)[: _SHOWN_MAX + 1]
    try:
        shown = repr(value)
    except Exception:  # noqa: BLE001 - the caller's own class: its type says enough
        return f"a {kind}"
    return f"{shown} ({kind})" if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}… ({kind})"


def shown(value: object) -> str:
    """Return what an error about a setting or an option shows of `value`: as `described`, without its type.

    >>> shown(5), shown("5"), shown([5])
    ('5', "'5'", 'list of length 1')
    """
    is_short = isinstance(value, str) and len(value) <= _SETTING_SHOWN_MAX
    return repr(value) if is_short else described(value).removesuffix(f" ({type(value).__name__})")


def _wrong_type(name: str, value: object, expected: str) -> TypeError:
    return TypeError(f"{name} is {described(value)}: expected {expected}")


def _wrong_value(name: str, value: object, expected: str) -> ConfigurationError:
    return ConfigurationError(f"{name} is {described(value)}: expected {expected}")


def integer(name: str, value: object, minimum: int = INT64_MIN, maximum: int = INT64_MAX) -> int:
    """Return a whole number as a plain int; numpy's integers are whole numbers, True, 5.0 and "5" are not.

    Raises:
        TypeError: `value` is not a whole number.
        ConfigurationError: it is not in the range from `minimum` to `maximum`.
    """
    expected = f"a whole number from {minimum} to {maximum}"
    if isinstance(value, bool):
        raise _wrong_type(name, value, expected)
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise _wrong_type(name, value, expected) from None
    if not minimum <= number <= maximum:
        raise _wrong_value(name, number, expected)
    return number


def integers(given: object, ranges: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Return members of `given` as plain ints, by name: those that `ranges` has, each in its range, as `integer` does.

    Raises:
        TypeError, ConfigurationError: as `integer`.
    """
    found = {}
    for name, (minimum, maximum) in ranges.items():
        value = getattr(given, name)
        is_plain = type(value) is int and minimum <= value <= maximum
        found[name] = value if is_plain else integer(name, value, minimum, maximum)
    return found


def integer_or_none(name: str, value: object, minimum: int = INT64_MIN, maximum: int = INT64_MAX) -> int | None:
    """Return a whole number as `integer` does, or None."""
    return None if value is None else integer(name, value, minimum, maximum)


def text(name: str, value: object, *, secret: bool = False) -> str:
    """Return text as a plain str that UTF-8 can hold.

    Raises:
        TypeError: `value` is not a str.
        ConfigurationError: it has halves of surrogate pairs.
    """
    if not isinstance(value, str):
        if secret:
            raise TypeError(f"{name} is of type {type(value).__name__}: expected a str")
        raise _wrong_type(name, value, "a str")
    plain = str.__str__(value)
    try:
        plain.encode()
    except UnicodeEncodeError as error:
        where = f"position {error.start}" if secret else f"position {error.start} of {described(plain)}"
        raise ConfigurationError(
            f"{name} has half of a surrogate pair at {where}: expected text that UTF-8 can hold"
        ) from None
    return plain


def path(name: str, value: object) -> str:
    """Return a path, or an address, as a plain str; ``~`` and ``~user`` at its start are folders of users.

    Every path that a user gives passes through here: shells expand ``~`` in some places only, and settings, profiles
    and services never.

    Raises:
        TypeError: `value` is neither a str nor a path.
        ConfigurationError: it has halves of surrogate pairs, or NUL, which no file system takes, or names a user
            without a folder.
    """
    if not isinstance(value, str | os.PathLike):
        raise _wrong_type(name, value, "a str or a path")
    plain = text(name, os.fspath(value))
    if "\0" in plain:
        raise ConfigurationError(
            f"{name} has NUL at position {plain.index(chr(0))} of {described(plain)}: no path has it"
        )
    if not plain.startswith("~"):
        return plain
    expanded = os.path.expanduser(plain)
    if not os.path.isabs(expanded):
        user = plain.partition("/")[0]
        raise ConfigurationError(
            f"{name} is {described(plain)}, and {user} is the folder of no user: expected ~ for your own, or a whole "
            f"path; a folder that is called so is ./{shown(plain)[1:-1]}"
        )
    return expanded


def text_or_none(name: str, value: object) -> str | None:
    """Return text as `text` does, or None."""
    return None if value is None else text(name, value)


def identifier(name: str, value: object, *, may_be_empty: bool = False) -> str:
    """Return the name of a topic, a group, a transactional id or a writer as a plain str.

    Raises:
        TypeError: `value` is not a str.
        ConfigurationError: it is empty, longer than Kafka's protocol can carry, or not UTF-8.
    """
    plain = value if type(value) is str and value.isascii() else text(name, value)
    if not plain and not may_be_empty:
        raise ConfigurationError(f"{name} is empty: expected a name")
    size = len(plain.encode())
    if size > TEXT_BYTES_MAX:
        raise ConfigurationError(f"{name} has {size} bytes: expected at most {TEXT_BYTES_MAX}")
    return plain


def bytes_like(name: str, value: object) -> bytes:
    """Return bytes; a str becomes its UTF-8.

    Raises:
        TypeError: `value` is neither bytes, bytearray, memoryview nor str.
        ConfigurationError: it is text that UTF-8 cannot hold.
    """
    if isinstance(value, str):
        try:
            return str.encode(value)
        except UnicodeEncodeError as error:
            # A record's content is not shown.
            reason = f"{name} has half of a surrogate pair at position {error.start}: expected text that UTF-8 can hold"
            raise ConfigurationError(reason) from None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"{name} is {type(value).__name__}: expected str or bytes")


def boolean(name: str, value: object) -> bool:
    """Return a bool; 0, 1 and numpy's booleans are taken, any other value is refused ("false" would be true).

    Raises:
        TypeError: `value` is none of these.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and value in (0, 1):
        return int(value) == 1
    if type(value).__name__ in ("bool", "bool_") and type(value).__module__ == "numpy":
        return bool(value)
    raise _wrong_type(name, value, "True or False")


def timeout_s(name: str, value: object) -> float | None:
    """Return a time-out in seconds, None for no limit: None, a number below 0, or one that no clock reaches.

    Raises:
        TypeError: `value` is not a number.
        ConfigurationError: it is NaN.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _wrong_type(name, value, "seconds as a number, or None for no limit")
    try:
        seconds = float(value)
    except OverflowError:
        return None
    if math.isnan(seconds):
        raise _wrong_value(name, value, "seconds as a number, or None for no limit")
    return None if seconds < 0 or seconds >= threading.TIMEOUT_MAX else seconds


def function(name: str, value: object) -> Callable[..., Any] | None:
    """Return a function, or None.

    Raises:
        TypeError: `value` cannot be called.
    """
    if value is None or callable(value):
        return value
    raise _wrong_type(name, value, "a function")


def instance(
    name: str, value: object, kind: type[_Kind] | tuple[type[_Kind], ...], expected: str | None = None
) -> _Kind:
    """Return `value`, which is a `kind`.

    Raises:
        TypeError: it is not; `expected` says in words what is, where the class's name does not.
    """
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        raise _wrong_type(name, value, expected or " or ".join(f"a {one.__name__}" for one in kinds))
    return value


def choice(name: str, value: object, allowed: Iterable[str]) -> str:
    """Return one of a few words.

    Raises:
        TypeError: `value` is not a str.
        ConfigurationError: it is not among `allowed`.
    """
    word = text(name, value)
    if word not in allowed:
        raise _wrong_value(name, word, "one of " + ", ".join(allowed))
    return word


def items(name: str, value: object, kind: type[_Kind]) -> list[_Kind]:
    """Return the items of a list, tuple, set or other iterable, each of which is a `kind`.

    Text, bytes and mappings are refused: their items are hardly what the caller means.

    Raises:
        TypeError: `value` is not such an iterable, or an item is not a `kind`.
    """
    expected = f"a list of {kind.__name__}"
    if isinstance(value, str | bytes | bytearray | memoryview | Mapping):
        raise _wrong_type(name, value, expected)
    try:
        iterator = iter(value)  # type: ignore[call-overload]
    except TypeError:
        raise _wrong_type(name, value, expected) from None
    found = list(iterator)
    for place, item in enumerate(found):
        if not isinstance(item, kind):
            raise _wrong_type(f"{name}[{place}]", item, f"a {kind.__name__}")
    return found


def identifiers(name: str, value: object) -> list[str]:
    """Return the items of a list of names, each as `identifier` does; empty ones are left to the caller to refuse."""
    return [
        identifier(f"{name}[{place}]", item, may_be_empty=True) for place, item in enumerate(items(name, value, str))
    ]


def mapping(name: str, value: object) -> dict[str, Any]:
    """Return a mapping whose keys are text as a dict; None is an empty one.

    Raises:
        TypeError: `value` is not a mapping, or a key is not a str.
        ConfigurationError: a key is not UTF-8.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong_type(name, value, "a dict")
    return {text(f"a name in {name}", key): given for key, given in value.items()}


class Checked:
    """A base of values that callers make and change: an attribute is checked whenever it is set.

    So no wrong value can wait in it until it is used. A subclass names the checks of its attributes in `_checks`.
    """

    __slots__ = ()
    _checks: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        check = self._checks.get(name)
        object.__setattr__(self, name, value if check is None else check(value))
