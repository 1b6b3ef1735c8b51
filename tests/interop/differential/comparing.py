"""Comparing two verdicts of one case."""

from __future__ import annotations

from typing import Any

FAILED = "the case itself failed"
ENDLESS = "the case does not end"


def same(there: Any, here: Any) -> bool:
    """Whether a program that handles the one verdict handles the other.

    An error of several classes here, such as `ValueError|KafkaException`, is as good as one of them there.
    """
    if isinstance(there, list) and isinstance(here, list):
        return len(there) == len(here) and all(map(same, there, here))
    if isinstance(there, dict) and isinstance(here, dict):
        return there.keys() == here.keys() and all(same(value, here[name]) for name, value in there.items())
    if isinstance(there, str) and isinstance(here, str):
        return there == here or there in here.split("|")
    return type(there) is type(here) and bool(there == here)


def broken(verdict: Any) -> bool:
    """Whether a case has shown nothing."""
    return verdict == ENDLESS or (isinstance(verdict, list) and verdict[:1] == [FAILED])
