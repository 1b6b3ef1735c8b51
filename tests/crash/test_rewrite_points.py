"""Every store operation of a rewrite is once the last one before death, and once ambiguous.

Readers find the same records in every view. What the dead rewrite has left is invisible, another process finishes the
work, and a vacuum deletes what is no longer named.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pyarrow as pa
import pytest
from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Append, Command
from sparktxn._engine.format.segment import RECORD_SCHEMA, checksum, encode_inline, encode_segment
from sparktxn._engine.log.follow.confirm import read_horizon
from sparktxn._rows.scan.plan import plan_ranges
from sparktxn._rows.scan.reader import read
from sparktxn.errors import OutcomeUnknown, StoreUnavailable
from sparktxn.maintenance import RewriteReport, rewrite, verify
from sparktxn.testing.faultystore import Died, Fault, Operation
from tests.crash.test_vacuum_points import FAULTS, WORLDS
from tests.maintenance.vacuumworld import Process, World, carrying
from tests.seeds import share

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quiet")]

ALL = {"rewrite.min.segments": 2, "rewrite.target.bytes": 4_096}
Rows = list[tuple[str, int, int, bytes]]


class RealWorld(World):
    """A world whose segments hold a record each, so that they can be rewritten."""

    def upload(self, append: Append, topic: str = "topic") -> Append:
        value = f"{append.partition} {append.transaction} {append.base_sequence}".encode()
        row = {"key": None, "value": value, "headers": None, "timestamp": 1}
        table = pa.Table.from_pylist([row], schema=RECORD_SCHEMA)
        if self.is_inline(append):
            return replace(carrying(append, encode_inline(table, compression="zstd")), timestamp_max_ms=1)
        data = encode_segment(table, segment_format="arrow", compression="zstd")
        name = names.segment(topic, append.topic_id, append.partition, append.segment)
        self.objects.put_if_absent(name, data)
        return replace(append, size_bytes=len(data), checksum=checksum(data), timestamp_max_ms=1)

    def copy(self) -> RealWorld:
        return RealWorld(of=self)

    def transaction_of(self, *, committed: bool) -> list[Command]:
        """A transaction that is published before it ends."""
        *appends, end = self.fused(committed=committed)
        self.writer.submit(*appends)
        return [end]


@pytest.fixture(scope="module", params=WORLDS)
def small(request: pytest.FixtureRequest) -> RealWorld:
    """Sealed runs and single segments of a few transactions, one of them aborted."""
    world = RealWorld(inline=request.param)
    world.grow(checkpoints=2, transactions=2)
    world.writer.submit(*world.transaction_of(committed=False))
    world.commit(2)
    return world


def at(number: int, fault: Fault) -> Callable[[Operation], Fault]:
    return lambda operation: fault if operation.number == number else Fault.NONE


def rows(process: Process, entry: int | None = None) -> Rows:
    """(topic, partition, offset, value) of the committed records at an entry."""
    view = process.view(entry)
    ranges = {key: (end.log_start_offset, end.last_stable_offset) for key, end in view.partitions.items()}
    found = []
    for task in plan_ranges(process.log.objects, process.log.objects.uri, view, ranges):
        for batch in read(process.log.objects, task):
            own = [f"{'_' if task.schema else ''}{name}" for name in ("partition", "offset")]
            found += [(task.topic, *map(row.get, own), row["value"]) for row in batch.to_pylist()]
    return found


def kept_up_to(world: World, entry: int) -> list[int]:
    """The entries up to one that a vacuum has kept."""
    return [number for number in world.entries() if number <= min(entry, read_horizon(world.objects) - 1)]


def rewritten(process: Process, timeout_s: float | None = None) -> RewriteReport:
    return rewrite(process.store, ALL, timeout_s=timeout_s)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_every_operation_of_a_rewrite_may_be_the_last(small: RealWorld, fault: Fault) -> None:
    whole = small.copy()
    entry, expected = whole.process().log.entry, rows(whole.process())
    process = whole.process()
    opened = len(process.objects.operations)
    report = rewritten(process)
    assert (report.ranges, report.new_files, report.aborted_records) == (2, 2, 2)
    operations = process.objects.operations[opened:]
    assert len(operations) > 10
    whole.grow(checkpoints=3, transactions=1)
    whole.process().vacuum()
    kept = len(whole.segments())
    assert kept_up_to(whole, entry) == []
    for operation in share(operations, FAULTS.index(fault)):
        world = small.copy()
        process, reader = world.process(), world.process()
        process.fate = at(operation.number, fault)
        with contextlib.suppress(Died, StoreUnavailable, OutcomeUnknown):
            rewritten(process, timeout_s=0.001)
        for put in process.late:
            put()
        assert rows(reader) == expected
        assert rows(world.process()) == expected
        rewritten(world.process())
        assert rows(reader) == rows(world.process()) == rows(reader, entry) == expected
        world.grow(checkpoints=3, transactions=1)
        world.process().vacuum()
        assert verify(world.process().store).problems == ()
        assert [row for row in rows(world.process()) if row in expected] == expected
        assert len(world.segments()) == kept, "what a dead rewrite has left is not deleted"
        assert kept_up_to(world, entry) == [], "an entry whose records were replaced is not deleted"


def test_a_vacuum_deletes_what_a_rewrite_has_replaced_once_no_view_needs_it(small: RealWorld) -> None:
    world = small.copy()
    expected, before = rows(world.process()), world.segments()
    rewritten(world.process())
    world.process().vacuum()
    assert before <= world.segments(), "a view from before the rewrite needs them"
    world.grow(checkpoints=3, transactions=1)
    world.process().vacuum()
    assert not before & world.segments()
    assert [row for row in rows(world.process()) if row in expected] == expected
