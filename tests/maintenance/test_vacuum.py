"""The vacuum: what it deletes, what it keeps, and what it refuses to believe."""

from __future__ import annotations

import logging

import pytest
from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import decode_head, encode_head
from sparktxn._engine.format.commands import (
    Append,
    CreateTopic,
    DeleteRecords,
    DeleteTopic,
    InitProducerId,
    JoinGroup,
    Vacuum,
)
from sparktxn._engine.log.follow.confirm import read_horizon
from sparktxn._engine.log.views.entryhistory import first_entry
from sparktxn.errors import CommandRefused, ConfigurationError, DamagedObject, ErrorCode, OutcomeUnknown, ViewExpired
from sparktxn.maintenance import VacuumReport
from sparktxn.testing.faultystore import Fault, Operation
from tests.maintenance.vacuumworld import DAY_S, LEFT, RIGHT, TOPIC, Process, World
from tests.seeds import examples
from tests.simulation.truth import digest_of


@pytest.fixture
def world() -> World:
    return World()


def segment_name(world: World, file: str, where: tuple[int, int] = LEFT) -> str:
    return names.segment(TOPIC, *where, file)


def test_entries_checkpoints_and_parts_below_the_horizon_go(world: World) -> None:
    world.grow(checkpoints=4)
    heads, before = world.heads(), world.names("_log/")
    report = world.process().vacuum()
    assert report.horizon == heads[-2]
    assert world.heads() == heads[-2:]
    assert world.entries()[0] == heads[-2]
    assert (report.entries, report.checkpoints) == (heads[-2] - 1, 2)
    assert report.checkpoint_parts > 0
    assert report.size_bytes > 0
    assert len(world.names("_log/")) < len(before)
    world.check()
    world.grow(checkpoints=2)
    heads = world.heads()
    assert world.process().vacuum().horizon == heads[-2]
    assert world.objects.list_names(names.HORIZONS) == [names.horizon(heads[-2])]
    world.check()


def test_nothing_goes_that_is_younger_than_the_retention(world: World) -> None:
    world.grow()
    world.clock.sleep(DAY_S)
    world.grow()
    heads = world.heads()
    kept = world.process().vacuum(vacuum_retention_ms=2 * DAY_S * 1000)
    assert (kept.horizon, kept.entries) == (1, 0)
    report = world.process().vacuum(vacuum_retention_ms=DAY_S * 500)
    assert report.horizon == heads[2]
    world.check()


def test_the_default_keeps_a_week(world: World) -> None:
    from sparktxn.maintenance import vacuum

    world.grow()
    world.clock.sleep(6 * DAY_S)
    assert vacuum(world.writer.store).horizon == 1
    world.clock.sleep(2 * DAY_S)
    assert vacuum(world.writer.store).horizon == world.heads()[0] > 1
    world.check()


def test_a_setting_that_is_wrong_is_told(world: World) -> None:
    from sparktxn.maintenance import vacuum

    with pytest.raises(ConfigurationError, match=r"vacuum\.retention\.ms"):
        vacuum(world.writer.store, {"vacuum.retention.m": 1})


def test_one_checkpoint_alone_is_not_enough(world: World) -> None:
    world.grow(checkpoints=1)
    assert world.process().vacuum().horizon == 1
    world.check()


def test_a_dry_run_tells_what_would_go_and_touches_nothing(world: World) -> None:
    world.grow(checkpoints=4)
    before = world.names("")
    told = world.process().vacuum(dry_run=True)
    assert world.names("") == before
    assert told.dry_run
    done = world.process().vacuum()
    gone = set(before) - set(world.names(""))
    assert set(told.names) == gone
    assert replace(told, dry_run=False, names=()) == done


def test_a_second_vacuum_finds_nothing_and_writes_nothing(world: World) -> None:
    world.grow(checkpoints=4)
    world.process().vacuum()
    before = world.names("")
    again = world.process().vacuum()
    assert (again.entries, again.checkpoints, again.segments) == (0, 0, 0)
    assert world.names("") == before


# Segments.


def test_a_segment_that_no_entry_names_goes_once_it_is_below_the_floor(world: World) -> None:
    world.grow(checkpoints=2)
    orphan = world.upload(world.producer.append(LEFT, 99, born=1))
    young = world.upload(world.producer.append(LEFT, 98, born=world.writer.log.entry))
    kept = world.process().vacuum(vacuum_segment_age_ms=DAY_S * 1000)
    assert (kept.segments, kept.segment_floor) == (0, 0)
    report = world.process().vacuum()
    assert (report.segments, report.segment_floor) == (1, world.heads()[-1])
    assert segment_name(world, orphan.segment) not in world.segments()
    assert segment_name(world, young.segment) in world.segments()
    world.check()


def test_the_floor_waits_for_the_longest_transaction(world: World) -> None:
    world.writer.submit(InitProducerId("slow", "slow", 600_000))
    world.grow()
    world.clock.sleep(500)
    assert world.process().vacuum().segment_floor == 0
    world.clock.sleep(1_000)
    assert world.process().vacuum().segment_floor == world.heads()[-1]


@pytest.mark.holes(9)
def test_hole_9_a_writer_slower_than_the_floor_is_told_and_can_upload_again(world: World) -> None:
    world.grow(checkpoints=1)
    slow = world.process()
    commands = world.fused(slow)
    for number in range(9):
        world.writer.submit(InitProducerId(f"filler-{number}"))
    world.writer.log.checkpoint()
    world.clock.sleep(200)
    report = world.process().vacuum()
    assert report.segments == 2
    with pytest.raises(CommandRefused, match="upload its records again") as refused:
        slow.submit(*commands)
    assert refused.value.error.code() == ErrorCode.KAFKA_STORAGE_ERROR
    world.check()
    world.transaction -= 1
    slow.log.refresh()
    slow.submit(*world.fused(slow))
    world.check()


@pytest.mark.holes(10)
def test_hole_10_what_is_kept_is_marked_after_the_floor_was_won(world: World) -> None:
    """While the vacuum's entry is under way, another writer names a segment that is born below the coming floor."""
    world.grow(checkpoints=2)
    slow = world.process()
    commands = world.fused(slow)
    world.writer.submit(CreateTopic("other", "other", 1))
    world.writer.log.checkpoint()
    world.clock.sleep(200)
    cleaner = world.process()
    won: list[Operation] = []

    def fate(operation):
        if operation.verb == "put_if_absent" and names.parse_entry(operation.name) and not won:
            won.append(operation)
            slow.submit(*commands)
        return Fault.NONE

    cleaner.fate = fate
    report = cleaner.vacuum()
    assert won
    assert isinstance(commands[0], Append)
    born = names.parse_segment_born(commands[0].segment)
    assert born is not None
    assert report.segment_floor > born
    assert report.segments == 0
    world.check()


@pytest.mark.holes(10)
def test_hole_10_an_unknown_outcome_deletes_nothing(world: World) -> None:
    world.grow(checkpoints=3)
    before = world.names("")
    cleaner = world.process()

    def fate(operation):
        late = operation.verb == "put_if_absent" and names.parse_entry(operation.name) is not None
        return Fault.LATE if late else Fault.NONE

    cleaner.fate = fate
    with pytest.raises(OutcomeUnknown):
        cleaner.vacuum(timeout_s=5)
    assert [name for name in before if name not in world.names("")] == []
    assert read_horizon(world.objects) == 1
    for put in cleaner.late:
        put()
    world.check()
    assert world.process().vacuum().entries > 0
    world.check()


def test_records_below_the_log_start_go_once_the_horizon_has_passed_their_deletion(world: World) -> None:
    """Until then a view before the deletion still reads them."""
    world.grow(checkpoints=3)
    end = world.writer.view().partitions[TOPIC, 0].log_end_offset
    before = world.segments()
    world.writer.submit(DeleteRecords("delete", *LEFT, end - 3))
    deleted_at = world.writer.log.entry
    world.writer.log.checkpoint()
    assert world.process().vacuum().segments == 0
    world.check()
    world.grow(checkpoints=2)
    report = world.process().vacuum()
    assert report.horizon > deleted_at
    gone = before - world.segments()
    assert report.segments == len(gone) == 8
    assert {name.split("/")[2] for name in gone} == {"kafka_partition=0"}
    world.check()


def test_sealed_runs_that_nothing_names_any_more_go(world: World) -> None:
    """Runs that were merged, and runs that lie below the log start, with their sidecars."""
    world.grow(checkpoints=20, transactions=2)
    manifests = [name for name in world.names(names.TOPICS) if name.endswith("/manifest")]
    world.writer.submit(DeleteRecords("delete", *RIGHT, -1))
    world.grow(checkpoints=2)
    report = world.process().vacuum()
    left = [name for name in world.names(names.TOPICS) if name.endswith("/manifest")]
    assert report.sealed_files > 0
    assert len(left) < len(manifests) // 2
    folders = {name.rsplit("/", 1)[0] for name in left}
    assert {name.rsplit("/", 1)[0] for name in world.names(names.TOPICS) if name.endswith(".snapshot")} == folders
    world.check()


def test_the_remains_of_a_deleted_topic_go(world: World) -> None:
    told = world.writer.submit(CreateTopic("other", "other-1", 1))[0]
    producer = world.writer.submit(InitProducerId("idempotent"))[0]
    append = replace(world.producer, transactional_id=None, producer_id=producer.producer_id).append(
        (told.topic_id, 0), 0, born=1
    )
    world.writer.submit(world.upload(append, "other-1"))
    world.grow(checkpoints=1)
    world.writer.submit(DeleteTopic("gone", "other-1", told.topic_id))
    world.writer.submit(CreateTopic("again", "other-1", 1))
    world.process().vacuum()
    assert world.names("topics/other-1-2/")
    world.grow(checkpoints=2)
    world.process().vacuum()
    assert world.names("topics/other-1-2/") == []
    world.check()


def test_the_signs_of_life_of_consumers_that_are_no_members_go(world: World) -> None:
    world.writer.submit(JoinGroup("join", "g", "living", (TOPIC,), 45_000, 300_000, ("uniform",)))
    living, gone = names.member_sign("g", "living"), names.member_sign("g", "gone")
    foreign = "_groups/notes.txt"
    for name in (living, gone, foreign):
        world.objects.put(name, b"+")
    world.grow()
    young = names.member_sign("g", "young")
    world.objects.put(young, b"+")
    dry = world.process().vacuum(dry_run=True, vacuum_temporary_age_ms=100_000)
    assert [name for name in dry.names if name.startswith(names.GROUPS)] == [gone]
    world.process().vacuum(vacuum_temporary_age_ms=100_000)
    assert world.names(names.GROUPS) == sorted([living, young, foreign])
    world.check()


def test_aborted_records_stay_for_those_who_read_uncommitted(world: World) -> None:
    early = world.fused(committed=False)
    world.writer.submit(*early[:1])
    world.writer.submit(*early[1:])
    world.grow(checkpoints=3)
    assert world.process().vacuum().segments == 0
    world.check()


# Checkpoints.


def damage(world: World, head: int, what: str) -> None:
    """The checkpoint of the entry, or something that it names, is not what it should be."""
    name = next(
        name for name in world.names(names.CHECKPOINTS) if names.parse_checkpoint_head(name) and f"{head:020d}" in name
    )
    parsed = names.parse_checkpoint_head(name)
    assert parsed is not None
    found = decode_head(world.objects.get(name) or b"", name, head)
    if what == "head":
        world.objects.put(name, b"{damaged")
    elif what == "missing part":
        world.objects.delete([next(ref.name for ref in found.parts.values() if f"/{head:020d}-" in ref.name)])
    elif what == "part":
        world.objects.put(next(ref.name for ref in found.parts.values() if f"/{head:020d}-" in ref.name), b"[]")
    elif what == "entry":
        world.objects.put(name, encode_head(replace(found, entry_checksum="12345678")))
    else:
        manifests = [name for name in world.names(names.TOPICS) if name.endswith("/manifest")]
        world.objects.delete([next(name for name in manifests if f"-{head:020d}-" in name)])


@pytest.mark.holes(12)
@pytest.mark.parametrize("what", ["head", "missing part", "part", "entry", "manifest"])
def test_hole_12_a_checkpoint_that_is_not_whole_is_no_horizon(
    world: World, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does it count as one of the two newest: the horizon stays behind two that were verified."""
    caplog.set_level(logging.CRITICAL, "sparktxn")
    world.grow(checkpoints=4)
    heads = world.heads()
    damage(world, heads[-2], what)
    if what in ("head", "missing part", "manifest"):
        # What it named is not known, and a process may stand on it: nothing is deleted while it counts.
        before = world.names("")
        with pytest.raises(DamagedObject, match=str(heads[-2])):
            world.process().vacuum()
        assert set(before) <= set(world.names(""))
        # Of "manifest" the newest one names it too, so that only one is left which can be verified.
        assert read_horizon(world.objects) == (1 if what == "manifest" else heads[-3])
        return
    report = world.process().vacuum()
    assert report.horizon == heads[-3]
    assert world.entries()[0] == heads[-3]
    world.writer.log.refresh()
    assert digest_of(world.process().log) == digest_of(world.writer.log)


def test_a_damaged_checkpoint_stops_vacuums_until_the_horizon_has_passed_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "sparktxn")
    world.grow(checkpoints=3)
    damage(world, world.heads()[-1], "missing part")
    with pytest.raises(DamagedObject):
        world.process().vacuum()
    world.grow(checkpoints=2)
    report = world.process().vacuum()
    assert report.horizon == world.heads()[0] == world.heads()[-2]
    assert report.entries > 0
    world.check()


@pytest.mark.holes(12)
def test_hole_12_a_checkpoint_with_another_state_is_no_horizon(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """It is whole and its checksums are right: only a replay shows that it does not hold what the log says."""
    world.grow(checkpoints=4)
    heads = [name for name in world.names(names.CHECKPOINTS) if names.parse_checkpoint_head(name)]
    entries = world.heads()
    older, newer = (
        decode_head(world.objects.get(name) or b"", name, entry)
        for name, entry in zip(heads[1:3], entries[1:3], strict=True)
    )
    world.objects.put(heads[2], encode_head(replace(newer, digest=older.digest, parts=older.parts)))
    assert world.process().vacuum().horizon == entries[1]
    assert "is not what a replay gives" in caplog.text


@pytest.mark.holes(11)
def test_two_processes_that_seal_differently_lose_nothing(world: World) -> None:
    """Each keeps its own runs; the vacuum keeps those that checkpoints from the horizon on name."""
    other = world.process()
    for number in range(6):
        world.commit(3)
        (world.writer, other)[number % 2].log.checkpoint()
        world.clock.sleep(1)
    world.process().vacuum()
    world.check()
    for process in (world.writer, other):
        process.log.refresh()
        assert digest_of(process.log) == digest_of(world.process().log)
        world.commit(3)
        process.log.checkpoint()
        world.check()
    world.process().vacuum()
    world.check()


@pytest.mark.holes(13)
def test_hole_13_a_checkpoint_published_behind_a_vacuum_is_used_by_nobody(world: World) -> None:
    """Its writer stood on a checkpoint below the horizon, and was slow: what it names of that one is gone."""
    slow = world.process()
    world.commit(4)
    slow.log.refresh()
    slow.log.checkpoint()
    world.commit(4)
    world.clock.sleep(1)
    world.writer.log.checkpoint()
    world.grow(checkpoints=2)
    world.commit()
    slow.log.refresh()
    ran: list[VacuumReport] = []

    def fate(operation):
        if operation.verb == "put_if_absent" and names.parse_checkpoint_head(operation.name) and not ran:
            ran.append(world.process().vacuum())
        return Fault.NONE

    slow.fate = fate
    assert slow.log.checkpoint() is None
    assert ran[0].sealed_files > 0
    slow.fate = lambda operation: Fault.NONE
    published = world.heads()[-1]
    assert published == world.entries()[-2] > ran[0].horizon
    world.check()
    world.objects.delete([names.LAST_CHECKPOINT])
    world.check()
    # The writer itself opens again, and what it writes next is sound.
    assert slow.log.checkpoint() is not None
    world.grow(checkpoints=2)
    world.check()
    world.process().vacuum()
    world.check()


def test_a_hint_to_a_checkpoint_behind_the_vacuum_is_not_followed(world: World) -> None:
    hint = None
    world.grow(checkpoints=2)
    hint = world.objects.get(names.LAST_CHECKPOINT)
    world.grow(checkpoints=3)
    world.process().vacuum()
    world.objects.put(names.LAST_CHECKPOINT, hint or b"")
    world.check()


# Processes that live on alongside a vacuum.


@pytest.fixture
def idle(world: World) -> Process:
    """Opened from a checkpoint that the vacuum then deletes, with no part of it loaded."""
    world.commit(3)
    world.grow(checkpoints=1)
    return world.process()


def passed(world: World) -> None:
    world.grow(checkpoints=20, transactions=2)
    world.process().vacuum()


@pytest.mark.parametrize(
    "call",
    [
        lambda process: process.view(),
        lambda process: process.submit(InitProducerId("a", "other")),
        lambda process: process.log.refresh(),
        lambda process: process.log.checkpoint(),
    ],
    ids=["view", "submit", "refresh", "checkpoint"],
)
def test_a_process_whose_checkpoint_was_vacuumed_goes_on(world: World, idle: Process, call) -> None:
    passed(world)
    call(idle)
    idle.log.refresh()
    assert digest_of(idle.log) == digest_of(world.process().log)
    world.check()


def test_a_process_that_has_followed_loads_a_part_that_was_vacuumed(world: World, idle: Process) -> None:
    """It is up to date; only what it has not touched yet is gone from under it."""
    world.grow(checkpoints=20, transactions=2)
    idle.log.refresh()
    world.process().vacuum()
    assert [topic.name for topic in idle.log.topics()] == [TOPIC]
    assert idle.log.transaction("job") is not None
    idle.submit(InitProducerId("a", "other"))
    assert digest_of(idle.log) == digest_of(world.process().log)


@pytest.mark.holes(32)
def test_hole_32_a_view_of_runs_that_were_vacuumed_has_expired_and_the_next_one_is_whole(
    world: World, idle: Process
) -> None:
    from sparktxn._rows.scan.plan import segments_between

    world.grow(checkpoints=20, transactions=2)
    idle.log.refresh()
    view = idle.view().partitions[TOPIC, 0]
    world.process().vacuum()
    with pytest.raises(ViewExpired, match="open a newer view"):
        segments_between(world.objects, view, 0, view.log_end_offset)
    newer = idle.view().partitions[TOPIC, 0]
    assert newer.entry == view.entry + 1
    assert len(segments_between(world.objects, newer, 0, newer.log_end_offset)) == world.transaction


# Vacuums alongside vacuums.


@pytest.mark.parametrize("at", ["list", "get", "put_if_absent", "delete"])
def test_a_vacuum_in_the_middle_of_a_vacuum(world: World, at: str) -> None:
    """Another one runs, from its beginning to its end, before an operation of it, and the log has grown."""
    world.grow(checkpoints=4)
    operations = [operation for operation in self_operations(world.copy()) if operation.verb == at]
    assert operations
    for chosen in operations[:: max(1, len(operations) // examples(5, 12))]:
        other = world.copy()
        cleaner = other.process()
        ran: list[bool] = []

        def fate(operation, ran=ran, other=other, chosen=chosen):
            if operation.number == chosen.number and not ran:
                ran.append(True)
                other.grow(checkpoints=2)
                other.process().vacuum()
            return Fault.NONE

        cleaner.fate = fate
        cleaner.vacuum()
        assert ran
        other.check()
        assert other.process().vacuum().entries >= 0
        other.check()


def self_operations(world: World) -> list:
    cleaner = world.process()
    opened = len(cleaner.objects.operations)
    cleaner.vacuum()
    return cleaner.objects.operations[opened:]


def test_a_vacuum_that_less_was_proposed_by_gives_way(world: World) -> None:
    """The other's entry is in the log before ours: ours would lower the horizon, and is refused."""
    world.grow(checkpoints=4)
    cleaner = world.process()
    ran: list[object] = []

    def fate(operation):
        if operation.verb == "put_if_absent" and names.parse_entry(operation.name) and not ran:
            ran.append(True)
            world.grow(checkpoints=1)
            world.process().submit(Vacuum(world.heads()[-2], world.heads()[-1]))
        return Fault.NONE

    cleaner.fate = fate
    report = cleaner.vacuum()
    assert report.horizon == world.heads()[0]
    assert not report.overtaken
    world.check()


def test_a_store_with_no_checkpoint_at_its_horizon_says_so(world: World) -> None:
    world.grow(checkpoints=3)
    world.process().vacuum()
    heads = [name for name in world.names(names.CHECKPOINTS) if names.parse_checkpoint_head(name)]
    world.objects.delete(heads[:1])
    with pytest.raises(DamagedObject, match="no checkpoint of that entry"):
        world.process().vacuum()


def test_a_damaged_head_at_the_horizon_is_called_damaged_and_no_view_expired(world: World) -> None:
    world.grow(checkpoints=20, transactions=2)
    world.process().vacuum()
    oldest, newest = world.heads()
    assert read_horizon(world.objects) == oldest
    heads = [name for name in world.names(names.CHECKPOINTS) if names.parse_checkpoint_head(name)]
    truncate(world, heads[0])
    with pytest.raises(DamagedObject, match="checkpoint"):
        world.process().view(oldest)
    with pytest.raises(ViewExpired):
        world.process().view(oldest - 2)
    assert world.process().view(newest).entry == newest
    with pytest.raises(DamagedObject, match="checkpoint"):
        first_entry(world.objects)
    truncate(world, heads[1])
    with pytest.raises(DamagedObject, match="checkpoint"):
        world.process().view()


def truncate(world: World, name: str) -> None:
    data = world.objects.get(name)
    assert data is not None
    world.objects.delete([name])
    world.objects.put_if_absent(name, data[:-9])


def test_a_vacuum_asks_for_no_entry_that_the_log_does_not_have_but_the_next_one(world: World) -> None:
    world.grow()
    process = world.process()
    process.vacuum(dry_run=True)
    asked = {names.parse_entry(each.name) or 0 for each in process.objects.operations if each.verb == "get"}
    assert max(asked) == world.writer.log.entry + 1
