"""Traces of holes in rewriting; see traces.py."""

from __future__ import annotations

import pytest

from sparktxn._engine.format.commands import AlterTopic, CreateTopic, DeleteRecords, DeleteTopic, Rewrite
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._rows.scan.commitorder import checked_commits, plan_commits
from sparktxn._rows.scan.microbatchcut import commit_cut
from sparktxn._rows.scan.plan import ReadTask, plan_ranges
from sparktxn.errors import CommandRefused, ErrorCode
from sparktxn.maintenance import RewriteReport, compact, rewrite
from sparktxn.producer import Producer
from sparktxn.store import Store
from tests.simulation.director import Act
from tests.simulation.readertraces import TRACES
from tests.simulation.scripted import LEFT, SETTINGS, ScriptedWorld, entry_name
from tests.simulation.traces import trace_of

__all__ = ["TRACES"]

RECORDS = 6
ALL = {"rewrite.min.segments": 2}


def _write(stage: ScriptedWorld) -> None:
    """Small segments of several entries."""
    uri, _ = stage.connect(SETTINGS)
    with Producer({"bootstrap.servers": uri}) as producer:
        for number in range(RECORDS):
            producer.produce("left", b"%d" % number)
            producer.flush()
    stage.calm.refresh()


def _values(stage: ScriptedWorld) -> list[bytes]:
    view = stage.calm.view(["left"])
    end = view.partitions["left", 0]
    ranges = {("left", 0): (end.log_start_offset, end.log_end_offset)}
    tasks = plan_ranges(stage.shared, stage.shared.uri, view, ranges)
    return [row["value"] for task in tasks for batch in stage.rows_of(task) for row in batch.to_pylist()]


def _rewriter(stage: ScriptedWorld) -> Act[RewriteReport]:
    """A rewrite that is about to put its entry: all its files are there."""

    def program(act: Act[RewriteReport]) -> RewriteReport:
        uri, _ = act.connect(SETTINGS)
        with Store.open(uri) as store:
            return rewrite(store, ALL)

    act = stage.act("rewriter", program)
    act.until("put_if_absent", entry_name(stage.calm.entry + 1))
    return act


def _rewritten(stage: ScriptedWorld) -> list[Rewrite]:
    return [command for truth in stage.truths() for command in truth.commands if isinstance(command, Rewrite)]


@trace_of(14)
def two_rewrites_of_one_range(stage: ScriptedWorld) -> None:
    """The second is refused by the process that has followed the log, and by one that has opened a checkpoint."""
    _write(stage)
    before = _values(stage)
    late = _rewriter(stage)
    uri, log = stage.connect(SETTINGS)
    with Store.open(uri) as store:
        assert rewrite(store, ALL).ranges == 1
    log.checkpoint()
    (first,) = _rewritten(stage)
    stale = Rewrite("stale", *LEFT, 0, RECORDS, first.planned_entry, first.segments, first.run)
    for other in (stage.calm, stage.log(SETTINGS)):
        with pytest.raises(CommandRefused) as refused:
            other.submit([stale])
        assert refused.value.error.code() == ErrorCode.RANGE_REWRITTEN
    report = late.finish()
    assert (report.ranges, report.lost) == (0, ()), "it has not planned again, or it has found something to do"
    assert len(_rewritten(stage)) == 1
    assert _values(stage) == before
    stage.check_agreement(log)


@trace_of(36)
def a_rewrite_for_a_topic_that_was_made_again(stage: ScriptedWorld) -> None:
    """It names the topic's id, and the new one has another."""
    _write(stage)
    late = _rewriter(stage)
    stage.submit(DeleteTopic("delete", "left", 1))
    stage.submit(CreateTopic("again", "left", 1))
    assert late.finish().ranges == 0
    assert _rewritten(stage) == []
    assert _values(stage) == []
    stage.check_agreement()


@trace_of(37)
def deletions_beside_a_long_rewrite(stage: ScriptedWorld) -> None:
    """The log start moves into its range while it works: it takes effect, and does not begin again and again."""
    _write(stage)
    late = _rewriter(stage)
    for before_offset in (1, 2, 3):
        stage.submit(DeleteRecords(f"trim {before_offset}", *LEFT, before_offset))
    report = late.finish()
    assert (report.ranges, report.lost) == (1, ())
    assert _values(stage) == [b"%d" % number for number in range(3, RECORDS)]
    stage.checkpoint()
    stage.check_agreement()
    assert _values(stage) == [b"%d" % number for number in range(3, RECORDS)]


# --- compaction by key ------------------------------------------------------------------------------------------------

KEEPS: dict[str, str | None] = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


def _transfers(stage: ScriptedWorld, amounts: list[int]) -> None:
    """Transactions that each write two accounts, one on the left and one on the right, which have 100 together."""
    stage.submit(AlterTopic("compacted", "left", LEFT[0], KEEPS))
    uri, _ = stage.connect(SETTINGS)
    with Producer({"bootstrap.servers": uri, "transactional.id": "transfers"}) as producer:
        producer.init_transactions()
        for amount in amounts:
            with producer.transaction():
                producer.produce("left", b"%d" % amount, b"account")
                producer.produce("right", b"%d" % (100 - amount), b"account")
    stage.calm.refresh()


def _balances(stage: ScriptedWorld, tasks: list[ReadTask], known: dict[str, int]) -> int:
    """What a reader knows after some tasks: the last value of each account."""
    for task in tasks:
        for batch in stage.rows_of(task):
            for row in batch.to_pylist():
                known[task.topic] = int(row["value"])
    return sum(known.values())


def _compacted_left(stage: ScriptedWorld) -> ReadView:
    with Store.open(stage.uri) as store:
        report = compact(store)
        assert (report.partitions, report.removed_records, report.left_records) == (1, 2, 1)
    return stage.calm.view(["left", "right"])


@trace_of(24)
def entries_inside_a_compacted_range(stage: ScriptedWorld) -> None:
    """Left has the last transaction's record alone: a micro-batch has none of them, or all."""
    _transfers(stage, [60, 50, 30])
    view = _compacted_left(stage)
    known: dict[str, int] = {}
    entry = 0
    while entry < view.entry:
        cut = commit_cut(stage.shared, view, checked_commits(view, entry, None, None), rows_max=1)
        tasks = plan_commits(stage.shared, view, checked_commits(view, entry, cut.entry, None))
        assert not tasks or _balances(stage, tasks, known) == 100, "a micro-batch has half of a transaction"
        entry = cut.entry
    assert known == {"left": 30, "right": 70}
