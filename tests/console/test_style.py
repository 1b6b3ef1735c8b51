"""Text of the console has the contrast that WCAG asks for, in light and in dark."""

from __future__ import annotations

import re
from importlib import resources

import pytest

CSS = resources.files("sparktxn._programs.console").joinpath("static", "console.css").read_text()
LIGHT, DARK = (
    dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", part))
    for part in CSS.split("@media (prefers-color-scheme: dark)")
)
PAIRS = [
    *((ink, back) for ink in ("ink", "dim", "link") for back in ("page", "panel", "head")),
    *((word, f"{word}-back") for word in ("good", "bad", "open", "prepared")),
    ("ink", "bad-back"),
    ("ink", "good-back"),
    ("panel", "link"),
    ("panel", "bad"),
]
ENOUGH = 4.5


def luminance(colour: str) -> float:
    parts = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read(scheme: dict[str, str]) -> None:
    for ink, back in PAIRS:
        darker, lighter = sorted(luminance(scheme[name]) for name in (ink, back))
        assert (lighter + 0.05) / (darker + 0.05) >= ENOUGH, (ink, back)


def test_both_schemes_have_the_same_colours() -> None:
    assert LIGHT.keys() == DARK.keys()


def test_the_sheet_asks_no_other_host() -> None:
    assert "url(" not in CSS
    assert "@import" not in CSS
