from __future__ import annotations

import pytest

from sparktxn.producer import PreparedTransaction
from tests.each import each


@pytest.mark.kafka("K129")
@pytest.mark.parametrize(("prepared", "text"), [((0, 0), "0:0"), ((7, 32_766), "7:32766"), ((2**62, 1), f"{2**62}:1")])
def test_its_text_is_read_back(prepared: tuple[int, int], text: str) -> None:
    assert str(PreparedTransaction(*prepared)) == text
    assert PreparedTransaction.parse(text) == PreparedTransaction(*prepared)


@each(["", "7", ":", "7:", ":0", "7:0:0", "-1:0", "7:-1", "07:0", "7:00", " 7:0", "7:0\n", "٧:0"])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a prepared transaction"):
        PreparedTransaction.parse(text)
