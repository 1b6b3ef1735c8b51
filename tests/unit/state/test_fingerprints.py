"""Which fingerprints are of one micro-batch."""

from __future__ import annotations

import pytest

from sparktxn._engine.state.transactions.sinks import fingerprint, is_same_content


def test_a_kind_and_its_digest_follow_the_sizes() -> None:
    assert fingerprint("sizes") == "sizes"
    assert fingerprint("sizes", "kind", "content") == "sizes:kind:content"


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("s", "s", True),
        ("s", "t", False),
        ("s:k:c", "s:k:c", True),
        ("s:k:c", "s:k:d", False),
        ("s:k:c", "t:k:c", False),
        ("s", "s:k:c", True),
        ("s", "t:k:c", False),
        ("s:k:c", "s:l:d", True),
        ("s:k:c:c", "s:k:c:d", False),
        ("s:k:a:x", "s:k:b:y", False),
    ],
)
def test_contents_are_compared_if_their_digests_are_of_one_kind_and_sizes_otherwise(
    one: str, other: str, is_same: bool
) -> None:
    assert is_same_content(one, other) is is_same
    assert is_same_content(other, one) is is_same
