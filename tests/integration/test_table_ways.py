"""Random topics that are tables, read by a condition on each column in every way of the engines that are here.

`make interop` has the ways of other engines. A difference names its seed: `random_table(folder, seed)` makes the topic.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.randomtables import random_table
from tests.seeds import seed_of
from tests.tableways import DEV_WAYS, differences


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.nightly), 1])
def test_each_way_finds_what_the_topic_has(tmp_path: Path, seed: int) -> None:
    found, count = differences(random_table(tmp_path, seed_of(f"table ways {seed}", seed)), DEV_WAYS)
    assert found == []
    assert count > 100
