"""Copying a store while others write: docs/operations.md says in which order."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sparktxn.errors import DamagedObject
from tests.compatibility.independent_reader import Damaged, StoreReader
from tests.compatibility.make_golden import contents
from tests.compatibility.workload import Workload

SETTINGS = {"store.fsync": False, "checkpoint.entries": 8, "checkpoint.seal.segments": 4}
LOG_FIRST, TOPICS_FIRST = ("_log", "topics"), ("topics", "_log")


def copied(workload: Workload, copy: Path, order: tuple[str, str], in_between: Callable[[], None]) -> StoreReader:
    """A reader of a copy whose two halves were made with work going on in between."""
    source = Path(workload.uri)
    shutil.copytree(source / order[0], copy / order[0])
    shutil.copy(source / "_txnlog.json", copy)
    in_between()
    shutil.copytree(source / order[1], copy / order[1])
    return StoreReader(copy)


@pytest.mark.parametrize("order", [LOG_FIRST, TOPICS_FIRST], ids=" then ".join)
def test_only_the_log_may_be_older(tmp_path: Path, order: tuple[str, str]) -> None:
    workload = Workload(str(tmp_path / "store"), SETTINGS)
    workload.create_topics()
    producer = workload.producer("shop-1")

    def write() -> None:
        for _ in range(12):
            workload.round(producer, publish=True, commit=True)

    write()
    before = contents(workload.uri)
    reader = copied(workload, tmp_path / "copy", order, write)
    workload.close()
    if order == LOG_FIRST:
        assert contents(str(reader.root)) == before
        for state in (reader.state_from_first(), reader.state_from_checkpoint()):
            assert len(reader.records(state, "orders", "read_committed")) == len(
                before["orders"]["records"]["read_committed"]
            )
        return
    with pytest.raises(DamagedObject, match="topics/"):
        contents(str(reader.root))
    with pytest.raises(Damaged, match="topics/"):
        reader.records(reader.state_from_first(), "orders", "read_committed")
