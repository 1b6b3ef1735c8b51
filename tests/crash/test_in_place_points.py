"""Every store operation of an import in place is once the last one before death, and once ambiguous.

No reader sees a part of the files of an entry. Another process that imports them again leaves each record once, and a
vacuum deletes what the dead one has left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparktxn.errors import OutcomeUnknown, SegmentExpired, StoreUnavailable
from sparktxn.maintenance import verify
from sparktxn.scan.reader import read
from sparktxn.store import Store
from sparktxn.testing.faultystore import Died, Fault
from sparktxn.transfer import import_in_place
from tests.crash.test_rewrite_points import at
from tests.crash.test_vacuum_points import FAULTS
from tests.maintenance.vacuumworld import Process, World
from tests.seeds import share

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quiet")]

TYPED = pa.schema([pa.field("id", pa.int64(), nullable=False)])
FILES = 3
PER_ENTRY = 2
ROWS = 5
STEPS = 8


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("files")
    found = [folder / f"{number}.parquet" for number in range(FILES)]
    for number, path in enumerate(found):
        pq.write_table(pa.table({"id": range(ROWS * number, ROWS * (number + 1))}, schema=TYPED), path)
    return found


@pytest.fixture(scope="module")
def prepared() -> World:
    world = World()
    world.process().store.create_topic("typed", 1, schema=TYPED)
    return world


def ids(process: Process, entry: int | None = None) -> list[int]:
    view = process.view(entry)
    if "typed" not in view.topics:
        return []
    tasks = process.store.plan(view, {("typed", 0): process.store.ranges(view)["typed", 0]})
    return [value for task in tasks for batch in read(process.log.objects, task) for value in batch["id"].to_pylist()]


def imported(store: Store, files: list[Path]) -> None:
    import_in_place(store, "typed", files, files_per_entry=PER_ENTRY)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_every_operation_of_an_import_may_be_the_last(prepared: World, files: list[Path], fault: Fault) -> None:
    whole = World(of=prepared).process()
    begun = len(whole.objects.operations)
    imported(whole.store, files)
    operations = len(whole.objects.operations) - begun
    assert operations > STEPS
    assert ids(whole) == list(range(ROWS * FILES))
    steps = {tuple(range(0)), tuple(range(ROWS * PER_ENTRY)), tuple(range(ROWS * FILES))}
    left_behind = 0
    for number in share(range(1, operations + 1), FAULTS.index(fault)):
        world = World(of=prepared)
        process = world.process()
        process.fate = at(len(process.objects.operations) + number, fault)
        with contextlib.suppress(Died, StoreUnavailable, OutcomeUnknown, SegmentExpired):
            imported(process.store, files)
        again = world.process()
        found = {tuple(ids(again, entry)) for entry in range(1, again.view().entry + 1)}
        assert found <= steps, number
        late: list[Callable[[], object]] = [*process.late]
        for put in late[: len(late) // 2]:
            put()
        imported(again.store, files)
        for put in late[len(late) // 2 :]:
            put()
        last = world.process()
        assert ids(last) == list(range(ROWS * FILES)), number
        report = verify(last.store)
        assert report.problems == (), number
        left_behind += report.unreferenced
        last.log.checkpoint()
        last.vacuum()
        assert ids(world.process()) == list(range(ROWS * FILES)), number
    if fault is Fault.DIE_BEFORE:
        assert left_behind > 0
