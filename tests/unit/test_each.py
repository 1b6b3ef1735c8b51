"""Cases that share a test all run, and all that fail are named."""

from __future__ import annotations

import pytest

from tests.each import each


def test_every_case_runs_and_the_wrong_ones_are_named() -> None:
    seen = []

    @each([(1, 2), (2, 2), (3, 4)])
    def test(left: int, right: int) -> None:
        seen.append(left)
        if left != right:
            raise ValueError("differs")

    with pytest.raises(AssertionError) as raised:
        test()
    assert seen == [1, 2, 3]
    assert str(raised.value).splitlines() == [
        "2 of 3 cases fail", "left=1, right=2: ValueError: differs", "left=3, right=4: ValueError: differs",
    ]  # fmt: skip


def test_no_case_is_a_failure() -> None:
    @each([])
    def test(value: object) -> None:
        assert value

    with pytest.raises(AssertionError, match="there is no case"):
        test()
