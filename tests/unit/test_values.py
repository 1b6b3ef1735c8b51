"""How users write numbers of settings: plain ASCII, and nothing more that Python's float() takes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from sparktxn._foundation.config.values import number
from sparktxn.errors import ConfigurationError

PARSE = number(0, 1_000)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("1", 1), (" 0.5 ", 0.5), (".5", 0.5), ("5.", 5), ("1e2", 100), ("+1E+2", 100), (7, 7), (Decimal("0.5"), 0.5)],
)
def test_numbers(given: Any, expected: float) -> None:
    assert PARSE("setting", given) == expected


@pytest.mark.parametrize(
    "given",
    ["1_0", "\u0661", "\uff11", "1,5", "0x1", "nan", "inf", "1e400", "", ".", "1 0", True, b"1", None, [1], -1, 1001],
)
def test_what_is_no_number_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"setting is .*: expected a number from 0 to 1000"):
        PARSE("setting", given)
