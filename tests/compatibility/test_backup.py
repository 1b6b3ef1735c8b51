"""Copying a store while others write: docs/operations.md says in which order."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sparktxn.errors import DamagedObject, StoreUnavailable
from sparktxn.maintenance import copy_store
from sparktxn.maintenance.copying import storecopy
from sparktxn.store import Store
from tests.compatibility.independent_reader import Damaged, StoreReader
from tests.compatibility.make_golden import contents
from tests.compatibility.workload import Workload, written

SETTINGS = {"store.fsync": False, "checkpoint.entries": 8, "checkpoint.seal.segments": 4}
FILES = SETTINGS | {"store.append.inline.bytes": 0}
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
    # Inline records are in the log, and in a copy of it: what may be missing are files.
    workload = Workload(str(tmp_path / "store"), FILES)
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


def test_an_independent_reader_finds_in_a_copy_what_the_source_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise StoreUnavailable("killed")

    with written(str(tmp_path / "store"), SETTINGS, 4), Store.open(str(tmp_path / "store")) as store:
        with monkeypatch.context() as patch:
            patch.setattr(storecopy.CopyTarget, "hint", killed)
            with pytest.raises(StoreUnavailable, match="killed"):
                copy_store(store, str(tmp_path / "copy"))
        with pytest.raises(Damaged, match="the copy is not complete"):
            StoreReader(tmp_path / "copy")
        copy_store(store, str(tmp_path / "copy"))
        source, copy = StoreReader(tmp_path / "store"), StoreReader(tmp_path / "copy")
        assert copy.document["copied_from"] == source.document["store_id"] != copy.document["store_id"]
        assert copy.state_from_first().records == source.state_from_first().records
        assert copy.state_from_checkpoint().records == source.state_from_checkpoint().records
        for topic in ("orders", "typed"):
            found = copy.records(copy.state_from_checkpoint(), topic, "read_committed")
            assert found == source.records(source.state_from_first(), topic, "read_committed")
