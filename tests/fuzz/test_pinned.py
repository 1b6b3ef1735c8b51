"""Inputs that once made a decoder fail in another way than it should: each stays refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.decoders import DECODERS

PINNED = sorted(path for path in (Path(__file__).parent / "pinned").rglob("*") if path.is_file())


@pytest.mark.parametrize("path", PINNED, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_pinned_input_is_refused(path: Path) -> None:
    decoder = DECODERS[path.parent.name]
    if not decoder.errors:
        assert decoder.decode(path.read_bytes()) is None
        return
    with pytest.raises(decoder.errors):
        decoder.decode(path.read_bytes())
