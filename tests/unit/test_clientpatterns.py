"""Patterns of clients: those of RE2, for whole texts; any text is a pattern or is refused by name, at once."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktxn.admin.transactions import matching_texts


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("orders.*", ["orders", "orders-1"]),
        ("order", []),
        ("order|orders", ["orders"]),
        ("^orders$", ["orders"]),
        ("orders|", ["orders", ""]),
        ("a.b", ["a\nb"]),
        ("(?i)ORDERS", ["orders"]),
        ("[^-]+-1", ["orders-1"]),
        ("straße", ["straße"]),
        ("", [""]),
    ],
)
def test_a_pattern_matches_whole_texts(pattern: str, expected: list[str]) -> None:
    assert matching_texts(pattern, ["orders", "orders-1", "a\nb", "straße", ""]) == expected


@pytest.mark.parametrize(
    "pattern",
    ["(", "a)|(b", "[", "*", "(?=a)", "(?!a)", r"(a)\1", "a{1001}", "((a{100}){100}){100}", "(?P<n", "\\", "a" * 1_001,
     "\ud800"],
)  # fmt: skip
def test_what_is_no_pattern_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(
        ValueError, match=r"is not a regular expression of RE2: .|has 1001 characters: expected at most"
    ):
        matching_texts(pattern, [])


@pytest.mark.parametrize("pattern", ["(a+)+", "(a*)*b", "(a|aa)+b", "(.*)*x", "((a{10}){10}){10}b"])
def test_a_pattern_on_which_backtracking_would_not_end_is_matched(pattern: str) -> None:
    assert matching_texts(pattern, ["a" * 100_000 + "-"]) == []


@given(st.text(max_size=40), st.lists(st.text(max_size=10), max_size=3))
def test_any_text_is_a_pattern_or_is_refused(pattern: str, texts: list[str]) -> None:
    try:
        found = matching_texts(pattern, [text for text in texts if text.isprintable()])
    except ValueError:
        return
    assert set(found) <= set(texts)


@given(st.text("ab.*+?|()", max_size=8), st.lists(st.text("ab", max_size=4), max_size=4))
def test_simple_patterns_mean_what_they_mean_in_python(pattern: str, texts: list[str]) -> None:
    try:
        expected = [text for text in texts if re.fullmatch(pattern, text)]
        found = matching_texts(pattern, texts)
    except (ValueError, re.error):
        return  # RE2 repeats no repetition, and Python refuses others
    assert found == expected
