"""Traces of holes in inline records, as functions of a stage; see traces.py."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._rows.scan.plan import plan_ranges
from sparktxn._rows.scan.reader import read
from sparktxn.errors import DamagedObject, ViewExpired
from sparktxn.maintenance import VacuumReport, rewrite, vacuum
from sparktxn.producer import Producer
from sparktxn.store import Store
from sparktxn.testing.faultystore import Fault, FaultyStore
from tests.simulation.director import Act
from tests.simulation.scripted import NO_RETENTION, SETTINGS, ScriptedWorld, entry_name

__all__ = ["TRACES", "Trace"]

Trace = Callable[[ScriptedWorld], None]
TRACES: list[Trace] = []
_ALL = {"rewrite.min.segments": 2}


def _trace(trace: Trace) -> Trace:
    TRACES.append(trace)
    return trace


class _Writer:
    """A producer that puts each record into an entry of its own; `entries` are those."""

    def __init__(self, stage: ScriptedWorld) -> None:
        self._stage = stage
        uri, self._log = stage.connect(SETTINGS)
        self._producer = Producer({"bootstrap.servers": uri, "transactional.id": f"writer {uri}"})
        self._producer.init_transactions()
        self.entries: list[int] = []
        stage.calm.refresh()

    def write(self, *values: bytes) -> None:
        for value in values:
            with self._producer.transaction():
                self._producer.produce("left", value)
            self.entries.append(self._log.entry)
            assert b'"data":' in self._stage.shared.history[entry_name(self._log.entry)]
        self._stage.calm.refresh()


def _written(stage: ScriptedWorld, *values: bytes) -> list[int]:
    """Write a record an entry, inline; return the entries."""
    writer = _Writer(stage)
    writer.write(*values)
    return writer.entries


def _late(stage: ScriptedWorld) -> tuple[Act[None], int]:
    """A process that is about to put an entry with an inline record, and the entry's number."""

    def program(act: Act[None]) -> None:
        uri, _ = act.connect(SETTINGS)
        with Producer(
            {"bootstrap.servers": uri, "transactional.id": "late", "transaction.timeout.ms": 900_000}
        ) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.produce("left", b"late")
            producer.commit_transaction(1e9)

    act = stage.act("late", program)
    # Its init takes the next slot.
    slot = stage.calm.entry + 2
    act.until("put_if_absent", entry_name(slot))
    stage.calm.refresh()
    return act, slot


def _read(objects: ObjectStore, view: ReadView, end_offset: int | None = None) -> list[bytes]:
    """Return the values of a view, or of what is below an offset, by what is found in the store.

    Raises:
        ViewExpired: the vacuum has passed the view.
        AssertionError: some of it is not there, and the view has not expired.
    """
    seen = view.partitions["left", 0]
    ranges = {("left", 0): (seen.log_start_offset, seen.log_end_offset if end_offset is None else end_offset)}
    tasks = plan_ranges(objects, objects.uri, view, ranges)
    try:
        return [row["value"] for task in tasks for batch in read(objects, task) for row in batch.to_pylist()]
    except DamagedObject as damaged:
        raise AssertionError(f"the view at entry {view.entry} has lost records: {damaged}") from damaged


def _handle(stage: ScriptedWorld) -> ObjectStore:
    """A way to the objects on which no process has seen an entry."""
    return FaultyStore(stage.shared, lambda operation: Fault.NONE)


def _view(log: Log) -> ReadView:
    return log.view(["left"])


def _read_anew(stage: ScriptedWorld) -> list[bytes]:
    """What a process reads that opens the store now, and has seen no entry before."""
    return _read(_handle(stage), _view(stage.log(SETTINGS)))


def _rewrite(stage: ScriptedWorld) -> None:
    uri, _ = stage.connect(SETTINGS)
    with Store.open(uri) as store:
        assert rewrite(store, _ALL).ranges == 1
    stage.calm.refresh()


def _exists(stage: ScriptedWorld, *entries: int) -> list[bool]:
    return [entry_name(entry) in stage.shared.objects for entry in entries]


def _vacuuming(act: Act[VacuumReport]) -> VacuumReport:
    uri, _ = act.connect(SETTINGS)
    with Store.open(uri) as store:
        return vacuum(store, NO_RETENTION)


@_trace
def a_checkpoint_that_names_an_entry_below_the_horizon(stage: ScriptedWorld) -> None:
    """The entries between are deleted, and those with records stay; once a file has replaced them they go too."""
    first, second = _written(stage, b"first", b"second")
    stage.go_on()
    plain = stage.calm.entry
    for _ in range(2):
        stage.go_past()
        assert _read_anew(stage) == [b"first", b"second"]
        assert _exists(stage, first, second, plain) == [True, True, False]
    _rewrite(stage)
    stage.go_past()
    assert _exists(stage, first, second) == [False, False]
    assert _read_anew(stage) == [b"first", b"second"]
    stage.check_agreement()


@_trace
def a_deleted_name_that_a_slow_writer_creates_again(stage: ScriptedWorld) -> None:
    """A reader of an old view gets the error of old views, and no record of the entry that is there now."""
    writer = _Writer(stage)
    late, slot = _late(stage)
    writer.write(b"first", b"second")
    assert writer.entries[0] == slot
    stage.checkpoint()
    view = _view(stage.log(SETTINGS))
    _rewrite(stage)
    stage.go_past()
    assert _exists(stage, slot) == [False]
    late.do()
    assert _exists(stage, slot) == [True], "the deleted entry was created again"
    _check_expired(stage, view)
    late.finish()
    assert _read_anew(stage) == [b"first", b"second", b"late"]
    _check_expired(stage, view)
    stage.check_agreement()


def _check_expired(stage: ScriptedWorld, view: ReadView) -> None:
    try:
        found = _read(_handle(stage), view, 1)
    except ViewExpired:
        return
    raise AssertionError(f"an expired view was read: {found}")


@_trace
def a_slow_writer_at_an_entry_that_was_kept(stage: ScriptedWorld) -> None:
    """It loses to the kept entry, learns by the horizon that it says nothing, and its records come once."""
    writer = _Writer(stage)
    late, slot = _late(stage)
    writer.write(b"kept")
    assert writer.entries == [slot]
    stage.go_past()
    late.finish()
    assert _read_anew(stage) == [b"kept", b"late"]
    stage.check_agreement()


@_trace
def two_vacuums(stage: ScriptedWorld) -> None:
    """The slower one deletes what it has found, after a rewrite and a vacuum that has gone further."""
    entries = _written(stage, b"first", b"second")
    for _ in range(3):
        stage.checkpoint()
    slow = stage.act("slow", _vacuuming)
    slow.until("delete", entry_name(1))
    more = _written(stage, b"third")
    stage.go_past()
    assert _read_anew(stage) == [b"first", b"second", b"third"]
    slow.do()
    assert _read_anew(stage) == [b"first", b"second", b"third"]
    _rewrite(stage)
    stage.go_past()
    slow.finish()
    assert _exists(stage, *entries, *more) == [False, False, False]
    assert _read_anew(stage) == [b"first", b"second", b"third"]
    stage.check_agreement()


@_trace
def a_vacuum_that_is_overtaken_before_it_marks(stage: ScriptedWorld) -> None:
    """Between its marker and its marks the records are written, and kept by another vacuum."""
    for _ in range(3):
        stage.checkpoint()
    slow = stage.act("slow", _vacuuming)
    slow.until("put_if_absent", "_log/_horizon/")
    slow.do()
    _written(stage, b"first", b"second")
    stage.go_past()
    with suppress(ViewExpired):
        slow.finish()
    assert _read_anew(stage) == [b"first", b"second"]
    stage.check_agreement()


def _reading(act: Act[list[bytes]]) -> list[bytes]:
    log = act.open_log(SETTINGS)
    return _read(log.objects, _view(log))


@_trace
def a_rewrite_while_a_reader_at_an_old_view_reads(stage: ScriptedWorld) -> None:
    """The view is before the rewrite, and no vacuum has passed it: the entries stay for it."""
    first, second = _written(stage, b"first", b"second")
    stage.checkpoint()
    reader = stage.act("reader", _reading)
    reader.until("get", entry_name(first))
    _rewrite(stage)
    stage.checkpoint()
    stage.vacuum()
    assert _exists(stage, first - 1, first, second) == [False, True, True], "the horizon is not at the view"
    assert reader.finish() == [b"first", b"second"]
    assert _read_anew(stage) == [b"first", b"second"]


@_trace
def a_rewrite_and_a_vacuum_while_a_reader_at_an_old_view_reads(stage: ScriptedWorld) -> None:
    """The vacuum has passed the view: it has expired, and the store is not damaged."""
    first, second = _written(stage, b"first", b"second")
    stage.checkpoint()
    reader = stage.act("reader", _reading)
    reader.until("get", entry_name(first))
    _rewrite(stage)
    stage.go_past()
    assert _exists(stage, first, second) == [False, False]
    with pytest.raises(ViewExpired):
        reader.finish()
    assert _read_anew(stage) == [b"first", b"second"]
