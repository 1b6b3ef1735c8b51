"""Each file that the newest entry does not need has a reason, and the last entry that needs it is the right one."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktxn.format import names
from sparktxn.maintenance import rewrite, vacuum
from sparktxn.maintenance.vacuuming.unneededfiles import FileKeepers, file_keepers
from sparktxn.scan.plan import object_of, segments_between
from sparktxn.store import Store
from tests.livedhistory import lived
from tests.world import World

NOW = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.temporary.age.ms": 0}


def files_at(store: Store, entry: int) -> set[str]:
    """The objects with records that the view at an entry has."""
    return {
        object_of(view, segment)
        for view in store.view(None, entry=entry).partitions.values()
        for segment in segments_between(store.log.objects, view, view.log_start_offset, view.log_end_offset)
    }


def check(store: Store, found: FileKeepers) -> None:
    """Every file has one reason; the reasons are those that a vacuum goes by."""
    listed = [info for info in store.log.objects.list("topics/") if info.name.endswith(".parquet")]
    kept = sum(one.files for one in found.keepers)
    assert found.current_files + kept >= len([info for info in listed if "_delta_log" not in info.name])
    needed = files_at(store, found.entry)
    for one in found.keepers:
        assert one.files
        for name in one.examples:
            assert name not in needed
            assert store.log.objects.get(name) is not None
        if one.last_entry is not None and one.last_entry >= found.horizon:
            assert set(one.examples) <= files_at(store, one.last_entry)
            assert not set(one.examples) & files_at(store, one.last_entry + 1)
    garbage = {name for one in found.keepers if one.reason == "nothing" for name in one.examples}
    state = store.log.store_state()
    if (state.horizon, state.segment_floor) == (found.horizon, found.segment_floor):
        would = set(vacuum(store, {"vacuum.segment.age.ms": 2**50, "vacuum.retention.ms": 2**50}, dry_run=True).names)
        assert garbage <= would


def test_files_that_a_rewrite_has_replaced_are_kept_for_older_views() -> None:
    world = World({"t": 1}, store_append_inline_bytes=0, checkpoint_fold_bytes_per_minute=0)
    for number in range(4):
        producer = world.producer()
        producer.produce("t", b"%d" % number)
        producer.flush()
    world.store.log.checkpoint()
    before = world.entry()
    rewrite(world.store, {"rewrite.min.segments": 2})
    found = file_keepers(world.store.log)
    check(world.store, found)
    (older,) = found.keepers
    assert (older.reason, older.topic, older.last_entry, older.files) == ("older views", "t", before, 4)
    world.close()


def test_what_nothing_names_is_young_until_the_floor_has_passed_it() -> None:
    world = World({"t": 1})
    world.produce("one")
    topic_id = world.store.view(["t"]).topics["t"].topic_id
    left = names.segment("t", topic_id, 0, names.segment_file(world.entry(), "0" * 20, "parquet"))
    world.store.log.objects.put_if_absent(left, b"x")
    found = file_keepers(world.store.log)
    assert [(one.reason, one.examples) for one in found.keepers] == [("young", (left,))]
    vacuum_until_passed(world)
    world.store.log.objects.put_if_absent(left, b"x")
    found = file_keepers(world.store.log)
    assert ("nothing", (left,)) in [(one.reason, one.examples) for one in found.keepers]
    check(world.store, found)
    world.close()


def vacuum_until_passed(world: World) -> None:
    """Raise the floor over all that was written so far."""
    before = world.entry()
    while world.store.log.store_state().segment_floor <= before:
        world.produce("more")
        world.store.log.checkpoint()
        vacuum(world.store, NOW)


@pytest.mark.parametrize("seed", range(3))
def test_a_store_that_has_lived(tmp_path: Path, seed: int) -> None:
    with lived(tmp_path / "store", seed) as history:
        check(history.store, file_keepers(history.store.log))
        history.finish()
        rewrite(history.store)
        history.vacuum()
        found = file_keepers(history.store.log)
        check(history.store, found)
        assert {one.reason for one in found.keepers} <= {"older views", "views that a table needs", "a table", "young"}
