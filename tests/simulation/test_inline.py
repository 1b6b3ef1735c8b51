"""Inline records under vacuums, rewrites and slow writers: the shortest traces, and builds without a rule."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sparktxn._engine.format.commands import Append
from sparktxn._engine.format.entry import decode_entry
from sparktxn._engine.log.follow import inlinerecords
from sparktxn._rows.scan import segmentbytes
from sparktxn.maintenance.vacuuming import garbage
from tests.simulation import inlinetraces
from tests.simulation.inlinetraces import TRACES, Trace
from tests.simulation.scripted import ScriptedWorld

pytestmark = pytest.mark.simulation

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.__name__)
def test_the_trace(stage: ScriptedWorld, trace: Trace) -> None:
    trace(stage)


def without_kept_entries(patch: Patch) -> None:
    """A vacuum deletes each entry below the horizon."""

    def find_garbage(objects: Any, checkpoints: Any, marks: Any, *rest: Any) -> Any:
        marks.entries.clear()
        return garbage.find_garbage(objects, checkpoints, marks, *rest)

    patch.setattr(sys.modules["sparktxn.maintenance.vacuuming.vacuum"], "find_garbage", find_garbage)


def without_checked_records(patch: Patch) -> None:
    """The records of an entry's append are taken for those that the state names."""

    def carried(objects: Any, entry: int, data: bytes, segments: Sequence[str]) -> Any:
        decoded = decode_entry(data, "entry", entry)
        first = next(command.data for command in decoded.commands if isinstance(command, Append))
        return dict.fromkeys(segments, first)

    patch.setattr(inlinerecords, "_carried", carried)
    patch.setattr(segmentbytes, "check_bytes", lambda *_, **__: None)
    patch.setattr(sys.modules["sparktxn._rows.scan.reader"], "check_bytes", lambda *_, **__: None)
    patch.setattr(sys.modules["sparktxn._rows.scan.storedrecords"], "check_bytes", lambda *_, **__: None)


def without_the_horizon(patch: Patch) -> None:
    """An entry that is missing, or another one, is damage, whatever a vacuum has passed."""
    patch.setattr(sys.modules["sparktxn._rows.scan.plan"], "judge", lambda objects, premise: None)


BUILDS: list[tuple[Callable[[Patch], None], Trace]] = [
    (without_kept_entries, inlinetraces.a_checkpoint_that_names_an_entry_below_the_horizon),
    (without_kept_entries, inlinetraces.a_slow_writer_at_an_entry_that_was_kept),
    (without_kept_entries, inlinetraces.two_vacuums),
    (without_kept_entries, inlinetraces.a_rewrite_while_a_reader_at_an_old_view_reads),
    (without_checked_records, inlinetraces.a_deleted_name_that_a_slow_writer_creates_again),
    (without_the_horizon, inlinetraces.a_deleted_name_that_a_slow_writer_creates_again),
    (without_the_horizon, inlinetraces.a_rewrite_and_a_vacuum_while_a_reader_at_an_old_view_reads),
]


@pytest.mark.parametrize(
    ("without", "trace"), [pytest.param(*build, id=f"{build[0].__name__}-{build[1].__name__}") for build in BUILDS]
)
def test_a_build_without_the_rule_breaks_its_trace(
    stage: ScriptedWorld, monkeypatch: Patch, without: Callable[[Patch], None], trace: Trace
) -> None:
    without(monkeypatch)
    with pytest.raises(AssertionError):
        trace(stage)
