"""Every store operation of a compaction is once the last one before death, and once ambiguous.

Readers find all records or what a compaction leaves, and nothing else. What the dead compaction has left is invisible,
another process finishes the work, and a vacuum deletes what is no longer named.
"""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest
from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import AlterTopic, Append, Command, CreateTopic, RequireFeatures
from sparktxn._engine.format.decodeguard import KEYED_TOPICS
from sparktxn._engine.format.schema import check_schema, stored_schema
from sparktxn._engine.format.segment import RECORD_SCHEMA, checksum, encode_segment
from sparktxn._engine.state.keyed import as_keyed
from sparktxn._foundation.values.structs import NO_TRANSACTION
from sparktxn.errors import OutcomeUnknown, StoreUnavailable
from sparktxn.maintenance import CompactReport, compact, verify
from sparktxn.testing.faultystore import Died, Fault
from tests.crash.test_rewrite_points import RealWorld, Rows, at, rows
from tests.crash.test_vacuum_points import FAULTS
from tests.maintenance.vacuumworld import TOPIC, Process
from tests.seeds import share

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quiet")]

POLICY: dict[str, str | None] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
}
KEYS = 3


class CompactedWorld(RealWorld):
    """A world whose records have few keys: a record's key follows from its transaction. Some are tombstones."""

    def upload(self, append: Append, topic: str = "topic") -> Append:
        number = append.transaction
        value = None if number % 4 == 0 else f"{append.partition} {number}".encode()
        row = {"key": b"%d" % (number % KEYS), "value": value, "headers": None, "timestamp": 1}
        data = encode_segment(
            pa.Table.from_pylist([row], schema=RECORD_SCHEMA), segment_format="arrow", compression="zstd"
        )
        self.objects.put_if_absent(names.segment(topic, append.topic_id, append.partition, append.segment), data)
        return replace(append, size_bytes=len(data), checksum=checksum(data), timestamp_max_ms=1)

    def copy(self) -> CompactedWorld:
        return type(self)(of=self)


class KeyedWorld(CompactedWorld):
    """The same of a keyed topic, whose rows are appended outside of their transactions, and never aborted.

    They are in the partition of their key as far as compaction needs it: all rows of a key are in one.
    """

    SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.binary())])

    def created(self) -> list[Command]:
        settings, columns = as_keyed({"primary.key": "id"}, check_schema(self.SCHEMA))
        return [RequireFeatures((KEYED_TOPICS,)), CreateTopic("topic", TOPIC, 2, settings, columns)]

    def upload(self, append: Append, topic: str = "topic") -> Append:
        number = self.transaction
        deleted = number % 4 == 0 or None
        row = {"id": number % KEYS, "value": None if deleted else b"%d" % number, "_deleted": deleted, "_timestamp": 1}
        _, columns = as_keyed({"primary.key": "id"}, check_schema(self.SCHEMA))
        data = encode_segment(
            pa.Table.from_pylist([row], schema=stored_schema(columns)), segment_format="parquet", compression="zstd"
        )
        named = replace(append, segment=append.segment.removesuffix("arrow") + "parquet", transaction=NO_TRANSACTION)
        self.objects.put_if_absent(names.segment(topic, append.topic_id, append.partition, named.segment), data)
        return replace(named, size_bytes=len(data), checksum=checksum(data), timestamp_max_ms=1)

    def fused(self, process: Process | None = None, *, committed: bool = True) -> list[Command]:
        *appends, end = super().fused(process, committed=committed)
        return [self.producer.begin(self.transaction), *appends, end]

    def transaction_of(self, *, committed: bool) -> list[Command]:
        return self.fused() if committed else []


@pytest.fixture(scope="module", params=[CompactedWorld, KeyedWorld])
def small(request: pytest.FixtureRequest) -> CompactedWorld:
    """Sealed runs and single segments of a few transactions, one of them aborted; half of them are compacted."""
    world: CompactedWorld = request.param()
    world.writer.submit(AlterTopic("compacted", "topic", 1, POLICY))
    world.grow(checkpoints=1, transactions=3)
    assert compacted(world.process()).partitions == 2
    world.grow(checkpoints=1, transactions=2)
    world.writer.submit(*world.transaction_of(committed=False))
    world.commit(2)
    return world


def compacted(process: Process, timeout_s: float | None = None) -> CompactReport:
    return compact(process.store, {"compact.target.bytes": 1_024}, timeout_s=timeout_s)


def mixed(found: Rows, before: Rows, left: Rows) -> bool:
    """Whether each partition has all records, or what is left of them."""
    return all(
        [row for row in found if row[1] == number]
        in ([row for row in before if row[1] == number], [row for row in left if row[1] == number])
        for number in (0, 1)
    )


@pytest.mark.kafka("K96", "K97", "K98")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_every_operation_of_a_compaction_may_be_the_last(small: CompactedWorld, fault: Fault) -> None:
    whole = small.copy()
    entry, before = whole.process().log.entry, rows(whole.process())
    process = whole.process()
    opened = len(process.objects.operations)
    report = compacted(process)
    left = rows(whole.process())
    aborted = 0 if isinstance(small, KeyedWorld) else 2
    assert (report.partitions, report.aborted_records, len(before) > len(left) > 0) == (2, aborted, True)
    operations = process.objects.operations[opened:]
    assert len(operations) > 10
    whole.grow(checkpoints=3, transactions=1)
    whole.process().vacuum()
    kept = len(whole.segments())
    for operation in share(operations, FAULTS.index(fault)):
        world = small.copy()
        process, reader = world.process(), world.process()
        process.fate = at(operation.number, fault)
        with contextlib.suppress(Died, StoreUnavailable, OutcomeUnknown):
            compacted(process, timeout_s=0.001)
        for put in process.late:
            put()
        assert mixed(rows(reader), before, left)
        assert mixed(rows(world.process()), before, left)
        compacted(world.process())
        assert rows(reader) == rows(world.process()) == left
        assert rows(reader, entry) == before, "a view from before reads all of them"
        world.grow(checkpoints=3, transactions=1)
        world.process().vacuum()
        assert verify(world.process().store).problems == ()
        assert [row for row in rows(world.process()) if row in left] == left
        assert len(world.segments()) == kept, "what a dead compaction has left is not deleted"


def test_a_vacuum_deletes_what_a_compaction_has_replaced_once_no_view_needs_it(small: CompactedWorld) -> None:
    world = small.copy()
    before = world.segments()
    compacted(world.process())
    world.process().vacuum()
    assert before <= world.segments(), "a view from before the compaction needs them"
    world.grow(checkpoints=3, transactions=1)
    world.process().vacuum()
    assert not before & world.segments()
    assert verify(world.process().store).problems == ()
