"""Random histories of a maintained store: every view reads its model's rows, merged files by their own offsets."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sparktxn import ReadTask, Store, read_task
from tests.mergedhistory import COLUMNS, OPTIONS, MergedHistory, Row, columns_of
from tests.mergedrows import check_merged_rows
from tests.seeds import seed_of
from tests.world import World


def rows_of(store: Store, tasks: list[ReadTask], columns: list[str]) -> list[Row]:
    batches = [batch for task in tasks for batch in read_task(task, store.options)]
    return sorted(tuple(row[name] for name in columns) for batch in batches for row in batch.to_pylist())


def check(history: MergedHistory, topic: str, entry: int, entry_before: int) -> int:
    """Compare Python's rows of a view with the model, and with merged files; return how many rows these have."""
    store = history.store
    columns = columns_of(topic, history.seen[entry])
    view = store.view([topic], entry=entry)
    committed = store.plan_commits(view, 0, columns=columns)
    assert rows_of(store, committed, columns) == history.expected(topic, entry)
    stable = store.plan(view, store.ranges(view), columns=columns)
    assert rows_of(store, stable, columns) == history.expected(topic, entry, is_stable=True)
    uncommitted = store.plan(view, store.ranges(view, isolation="read_uncommitted"), isolation="read_uncommitted")
    since = store.plan_commits(view, entry_before)
    for tasks in (store.plan_commits(view, 0), store.plan(view, store.ranges(view)), uncommitted, since):
        check_merged_rows(store, tasks)
    segments = [segment for task in committed for segment in task.segments]
    return sum(segment.row_count for segment in segments if segment.has_offset_column)


def run(seed: int, steps: int) -> tuple[MergedHistory, int]:
    """Run a history and check every view that its steps left; return it, and the rows that merged files had."""
    world = World({}, **OPTIONS)
    history = MergedHistory(world.store, seed)
    try:
        for _ in range(steps):
            history.step()
        history.finish()
        entries = sorted(history.seen)
        merged = sum(
            check(history, topic, entry, before) for before, entry in pairwise([0, *entries]) for topic in COLUMNS
        )
        return history, merged
    finally:
        history.close()
        world.close()


def test_every_view_of_a_history_has_its_models_rows() -> None:
    # What the history is for happens with this seed; nights have histories of their own, below.
    history, merged = run(1, 40)
    assert history.retained
    assert history.compacted
    assert history.committed_halves
    assert history.committed_prepared
    assert merged
    assert len(history.seen[max(history.seen)].columns) > 1


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(20))
def test_every_view_of_long_histories(number: int) -> None:
    run(seed_of(f"merged views {number}", number), 150)
