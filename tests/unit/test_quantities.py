"""Sizes, durations and times as the command and the console write them."""

from __future__ import annotations

import pytest

from sparktxn._foundation.values.quantities import duration_text, size_text, time_text
from sparktxn._programs.console import pagetext


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (0, "0 B"),
        (1_023, "1023 B"),
        (1_024, "1.0 KiB"),
        (1_500_000, "1.4 MiB"),
        (1_048_575, "1.0 MiB"),
        (2**40 - 1, "1.0 TiB"),
        (5 * 2**30, "5.0 GiB"),
        (2**54, "16384.0 TiB"),
    ],
)
def test_a_size_has_the_unit_that_suits_it(size_bytes: int, expected: str) -> None:
    assert size_text(size_bytes) == expected
    assert pagetext.size(size_bytes).replace("\xa0", " ") == expected


@pytest.mark.parametrize(
    ("duration_ms", "expected"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_250, "1 s 250 ms"),
        (3_723_000, "1 h 2 min"),
        (86_460_000, "1 d 1 min"),
        (-90_000, "-1 min 30 s"),
    ],
)
def test_a_duration_has_two_units(duration_ms: int, expected: str) -> None:
    assert duration_text(duration_ms) == expected
    assert pagetext.duration(duration_ms).replace("\xa0", " ") == expected


def test_the_console_has_a_sign_for_what_is_not_known() -> None:
    assert (pagetext.size(None), pagetext.duration(None)) == ("–", "–")


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_500, "1970-01-01T00:00:01.500Z"),
        (1_760_000_000_999, "2025-10-09T08:53:20.999Z"),
        (2**62, f"{2**62} ms"),
    ],
)
def test_a_time_is_said_to_the_millisecond_in_utc(timestamp_ms: int, expected: str) -> None:
    assert time_text(timestamp_ms) == expected
    assert pagetext.time(timestamp_ms) == expected.replace("T", " ").removesuffix("Z")
