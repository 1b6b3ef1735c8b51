"""The internal topics' offsets."""

from __future__ import annotations

from sparktxn.state.internal import entry_of, first_offset


def test_an_entrys_rows_begin_at_its_number_times_a_mebi() -> None:
    assert first_offset(3) == 3 * 2**20
    assert [entry_of(offset) for offset in (3 * 2**20 - 1, 3 * 2**20, 4 * 2**20 - 1)] == [2, 3, 3]
