"""Every store operation of a publication is once the last one before death, and once ambiguous.

Engines find whole versions only, each with the rows of the entry that it names. Another process finishes the work.
"""

from __future__ import annotations

import contextlib

import pytest

from sparktxn._engine.format.commands import AlterTopic, CreateTopic, DeleteTopic
from sparktxn.errors import DamagedObject, OutcomeUnknown, StoreUnavailable
from sparktxn.maintenance import rewrite, verify
from sparktxn.maintenance.publishing.publish import PublishReport, publish_tables
from sparktxn.testing.faultystore import Died, Fault
from tests.crash.test_rewrite_points import RealWorld, at, rows
from tests.crash.test_vacuum_points import FAULTS, WORLDS
from tests.deltareader import DeltaVersions
from tests.icebergreader import IcebergVersions
from tests.maintenance.vacuumworld import DAY_S, Process
from tests.seeds import share

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quiet")]

FOLDER = "topics/topic-1/"


class PublishedWorld(RealWorld):
    """A world whose topic is a table."""

    def copy(self) -> PublishedWorld:
        return PublishedWorld(of=self)

    def versions(self) -> DeltaVersions:
        return DeltaVersions(self.objects, FOLDER)


@pytest.fixture(scope="module", params=WORLDS)
def small(request: pytest.FixtureRequest) -> PublishedWorld:
    """A version, and transactions after it, one of them aborted; some of their records are merged."""
    world = PublishedWorld(inline=request.param)
    world.writer.submit(AlterTopic("table", "topic", 1, {"table.formats": "delta,iceberg"}))
    world.grow(checkpoints=1, transactions=2)
    published(world.process())
    world.grow(checkpoints=1, transactions=2)
    world.writer.submit(*world.transaction_of(committed=False))
    world.commit(2)
    return world


def published(process: Process, timeout_s: float | None = None) -> PublishReport:
    return publish_tables(process.store, timeout_s=timeout_s)


def check(world: PublishedWorld) -> int:
    """Fail if a version has other rows than its entry; return the newest version."""
    versions = world.versions()
    for version in versions.readable():
        assert versions.rows(version) == rows(world.process(), versions.entry(version)), version
    iceberg = IcebergVersions(world.objects, FOLDER)
    newest = max(version for version in versions.readable() if iceberg.exists(version))
    for version in iceberg.readable(newest):
        assert iceberg.files(version, newest) == versions.files(version)
    return versions.readable()[-1]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_every_operation_of_a_publication_may_be_the_last(small: PublishedWorld, fault: Fault) -> None:
    assert check(small) == 0
    whole = small.copy()
    process = whole.process()
    opened = len(process.objects.operations)
    (table,) = published(process).tables
    assert (table.version, table.added_files, table.removed_files) == (1, 2, 0)
    operations = process.objects.operations[opened:]
    assert len(operations) > 10
    for operation in share(operations, FAULTS.index(fault)):
        world = small.copy()
        process = world.process()
        process.fate = at(operation.number, fault)
        with contextlib.suppress(Died, StoreUnavailable, OutcomeUnknown):
            published(process, timeout_s=0.001)
        for put in process.late:
            put()
        check(world)
        published(world.process())
        assert check(world) >= 1
        versions = world.versions()
        assert versions.rows(versions.readable()[-1]) == rows(world.process())
        world.process().vacuum()
        assert check(world) >= 1
        assert verify(world.process().store).problems == ()


def test_each_process_writes_the_same_metadata(small: PublishedWorld) -> None:
    world = small.copy()
    published(world.process())
    (name,) = [name for name in world.names(FOLDER + "_delta_log/") if name.endswith("1.json")]
    written = world.objects.get(name)
    world.objects.delete([name])
    assert published(world.process()).tables == (), "what is missing is finished, and nothing is published"
    assert world.objects.get(name) == written


def test_metadata_that_is_not_the_version_s_is_damage(small: PublishedWorld) -> None:
    world = small.copy()
    process = world.process()
    world.objects.put_if_absent(f"{FOLDER}_delta_log/{1:020}.json", b"{}")
    with pytest.raises(DamagedObject, match="it is not version 1 of the table"):
        published(process)


def test_a_vacuum_keeps_what_versions_can_read_and_takes_their_metadata_first(small: PublishedWorld) -> None:
    world = small.copy()
    published(world.process())
    rewrite(world.process().store, {"rewrite.min.segments": 2})
    (moved,) = published(world.process()).tables
    assert (moved.version, moved.added_files, moved.removed_files, moved.added_records) == (2, 2, 4, 0)
    world.grow(checkpoints=3, transactions=1)
    world.process().vacuum()
    assert world.versions().readable() == [0, 1, 2]
    check(world)
    world.clock.sleep(8 * DAY_S)
    (idle,) = published(world.process()).tables
    assert idle.version == 3
    assert verify(world.process().store).problems == ()
    world.grow(checkpoints=3, transactions=1)
    before = world.segments()
    report = world.process().vacuum()
    assert report.table_metadata == 8, "commits, and the metadata, lists and manifests of Iceberg"
    assert world.versions().readable() == [2, 3]
    check(world)
    assert len(before - world.segments()) == report.segments > 0
    assert verify(world.process().store).problems == ()


def test_a_vacuum_goes_no_further_while_a_version_has_no_metadata(small: PublishedWorld) -> None:
    world = small.copy()
    published(world.process())
    world.objects.delete([f"{FOLDER}_delta_log/{1:020}.json"])
    world.clock.sleep(30 * DAY_S)
    world.grow(checkpoints=3, transactions=1)
    assert world.process().vacuum().horizon == 1
    published(world.process())
    check(world)


def test_the_table_of_a_deleted_topic_ends_empty_and_leaves_its_files_to_the_vacuum(small: PublishedWorld) -> None:
    world = small.copy()
    world.writer.submit(DeleteTopic("delete", "topic", 1))
    (last,) = published(world.process()).tables
    assert (last.version, last.removed_files) == (1, 2)
    assert world.versions().rows(1) == []
    assert world.versions().rows(0)
    for _ in range(2):
        world.clock.sleep(8 * DAY_S)
        published(world.process())
        for name in ("one", "two", "three"):
            world.writer.submit(CreateTopic(f"{name} {world.clock.now_s}", f"{name}-{world.clock.now_s:.0f}", 1))
            assert world.writer.log.checkpoint() is not None
            world.clock.sleep(200)
    world.process().vacuum()
    assert world.segments() == set()
    newest = world.versions().readable()[-1]
    assert world.versions().rows(newest) == []
    assert verify(world.process().store).problems == ()
