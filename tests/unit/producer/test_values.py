from __future__ import annotations

from typing import Any

import pytest

from sparktxn.errors import ConfigurationError
from sparktxn.producer.recordvalues import record_bytes, record_headers, record_timestamp
from tests.each import each


def test_text_is_utf8() -> None:
    assert record_bytes("key", "ä") == b"\xc3\xa4"
    assert record_bytes("key", bytearray(b"x")) == b"x"


@each([1, 1.5, [b"x"], {"a": 1}])
def test_another_type_is_named(wrong: Any) -> None:
    with pytest.raises(TypeError, match="value is"):
        record_bytes("value", wrong)


@pytest.mark.parametrize(
    ("given", "expected", "size"),
    [
        ([("a", b"1"), ("a", "2"), ("b", None)], [("a", b"1"), ("a", b"2"), ("b", None)], 5),
        ({"a": "1"}, [("a", b"1")], 2),
        ([], None, 0),
        ({}, None, 0),
    ],
)
def test_headers_keep_order_and_repetition(given: Any, expected: Any, size: int) -> None:
    assert record_headers(given) == (expected, size)


@each(["a=1", [("a",)], [("a", 1)], [(b"a", b"1")], 5])
def test_wrong_headers_are_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="header"):
        record_headers(wrong)


@pytest.mark.parametrize(
    ("given", "expected"), [(-1, ValueError), (1.5, TypeError), ("now", TypeError), (True, TypeError)]
)
def test_a_timestamp_before_1970_or_of_another_type_is_refused(given: object, expected: type[Exception]) -> None:
    with pytest.raises(expected, match="timestamp"):
        record_timestamp(given)


def test_a_headers_name_that_is_no_text_is_the_callers_error() -> None:
    with pytest.raises(ConfigurationError):
        record_headers([("half \ud800", b"x")])
    assert record_headers([("é", b"x")]) == ([("é", b"x")], 3)
