"""The sweep: time-outs by the sweeper's or the store's clock, expiry, and what becomes of its victims."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import (
    AlterStore,
    Command,
    CommandResult,
    CreateTopic,
    DeleteTopic,
    InitProducerId,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetToCommit,
    PrepareTxn,
    TxnOffsetCommit,
    UpdateMember,
)
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.values.structs import TransactionStatus
from sparktxn.errors import ConfigurationError, StoreUnavailable
from sparktxn.maintenance import Sweeper, SweepReport, sweep
from sparktxn.maintenance.sweeping import sweep as ages
from sparktxn.store import Store
from sparktxn.testing.clocks import ManualClock
from sparktxn.testing.faultystore import Died, Fault, FaultyStore, Operation
from tests.producercommands import ProducerCommands
from tests.world import ClockedWorld

LEFT, RIGHT = (1, 0), (1, 1)
DAY_S = 86_400


class World(ClockedWorld):
    """A store with a topic of two partitions. Its clock is the store's; each process has its own."""

    def __init__(self, skew_s: int = 0) -> None:
        # Writers do not look for time-outs here: what is aborted, the sweep has aborted.
        super().__init__(timeout_check_interval_ms=10**15)
        self._requests = count()
        self.store = self.handle(clock=ManualClock(self.clock.now_s + skew_s) if skew_s else None)
        self.submit(CreateTopic("topic", "topic", 2))

    def handle(self, objects: ObjectStore | None = None, clock: ManualClock | None = None, **settings: int) -> Store:
        """A new process's handle of the store."""
        return Store(f"memory://{self.name}", {}, self.process(objects, clock, **settings))

    def submit(self, *commands: Command) -> list[CommandResult]:
        return self.store.log.submit(commands)

    def initialise(self, name: str | None, timeout_ms: int = 60_000) -> ProducerCommands:
        command = InitProducerId(f"init-{next(self._requests)}", name, timeout_ms)
        return ProducerCommands.of(name, self.submit(command)[0])

    def published(self, name: str, timeout_ms: int = 60_000) -> ProducerCommands:
        producer = self.initialise(name, timeout_ms)
        self.submit(producer.append(LEFT, 0, transaction=1))
        return producer

    def status(self, name: str) -> TransactionStatus | None:
        self.store.log.refresh()
        found = self.store.log.transaction(name)
        return found.status if found is not None else None

    def producer_ids(self, where: tuple[int, int] = LEFT) -> list[int]:
        self.store.log.refresh()
        return [producer.producer_id for producer in self.store.log.producers(*where)]


def vacuumed(world: World) -> None:
    """Delete all entries but the newest one, as a vacuum does."""
    log = world.store.log
    log.checkpoint()
    world.objects.put_if_absent(names.horizon(log.entry), b"horizon")
    world.objects.delete([names.entry(number) for number in range(1, log.entry)])


@pytest.fixture
def world() -> World:
    return World()


# --- time-outs


@pytest.mark.kafka("K44")
def test_one_sweep_aborts_by_the_stores_clock_what_has_timed_out_and_nothing_else(world: World) -> None:
    world.published("old", 60_000)
    world.published("patient", 900_000)
    world.clock.sleep(100)
    world.published("young", 60_000)
    world.clock.sleep(50)
    report = sweep(world.handle())
    told = [(found.transactional_id, found.transaction, found.timed_out_after_ms) for found in report.timed_out]
    assert told == [("old", 1, 150_000)]
    assert [world.status(name) for name in ("old", "patient", "young")] == [
        TransactionStatus.COMPLETE_ABORT,
        TransactionStatus.ONGOING,
        TransactionStatus.ONGOING,
    ]


def test_a_dry_run_reports_what_is_due_and_writes_nothing(world: World) -> None:
    world.published("late", timeout_ms=1_000)
    world.initialise("idle")
    world.clock.sleep(8 * DAY_S)
    world.store.log.refresh()
    before = world.store.log.entry
    planned = sweep(world.store, dry_run=True)
    assert (planned.dry_run, world.store.log.refresh()) == (True, before)
    assert [found.transactional_id for found in planned.timed_out] == ["late"]
    assert planned.expired_transactional_ids == ("idle",)
    assert world.status("late") is TransactionStatus.ONGOING
    done = sweep(world.store)
    assert (done.dry_run, done.timed_out, done.expired_transactional_ids) == (
        False,
        planned.timed_out,
        planned.expired_transactional_ids,
    )


@pytest.mark.kafka("K44")
def test_exactly_at_its_time_out_a_transaction_is_not_aborted(world: World) -> None:
    world.published("id", 60_000)
    world.clock.sleep(60)
    assert sweep(world.handle()).timed_out == ()
    world.clock.sleep(0.001)
    assert len(sweep(world.handle()).timed_out) == 1


@pytest.mark.kafka("K44")
def test_a_store_that_rounds_its_times_makes_no_transaction_older(world: World) -> None:
    """Begun at 0.999 s and looked at 1.5 s later: by times in whole seconds these are two."""
    world.published("id", 1_500)
    world.clock.sleep(2)
    assert sweep(world.handle()).timed_out == ()
    world.clock.sleep(1)
    assert len(sweep(world.handle()).timed_out) == 1


@pytest.mark.holes(26)
@pytest.mark.parametrize("skew_s", [-7 * DAY_S, -3_600, 3_600, 7 * DAY_S])
def test_the_clocks_of_writers_and_sweepers_have_no_say(world: World, skew_s: int) -> None:
    world.store = world.handle(clock=ManualClock(world.clock.now_s - skew_s))
    world.published("id")
    sweeping = world.handle(clock=ManualClock(world.clock.now_s + skew_s))
    assert sweep(sweeping).timed_out == ()
    world.clock.sleep(61)
    assert [found.timed_out_after_ms for found in sweep(sweeping).timed_out] == [61_000]


@pytest.mark.kafka("K44")
def test_a_sweeper_counts_from_when_it_first_saw_the_transaction(world: World) -> None:
    world.published("id")
    world.clock.sleep(1_000)
    sweeper = Sweeper(world.handle())
    assert sweeper.sweep().timed_out == ()
    world.clock.sleep(60)
    assert sweeper.sweep().timed_out == ()
    world.clock.sleep(1)
    assert [found.timed_out_after_ms for found in sweeper.sweep().timed_out] == [61_000]
    assert sweeper.sweep().timed_out == ()


def test_a_sweeper_forgets_what_has_ended(world: World) -> None:
    producer = world.published("id")
    sweeper = Sweeper(world.handle())
    sweeper.sweep()
    world.clock.sleep(59)
    world.submit(producer.end(1))
    world.submit(producer.append(LEFT, 1, transaction=2))
    for _ in range(2):
        assert sweeper.sweep().timed_out == ()
        world.clock.sleep(59)
    assert world.status("id") is TransactionStatus.ONGOING


@pytest.mark.kafka("K128")
def test_a_prepared_transaction_is_left_alone(world: World) -> None:
    producer = world.published("id")
    world.submit(PrepareTxn("id", producer.producer_id, producer.producer_epoch, 1))
    world.clock.sleep(30 * DAY_S)
    assert sweep(world.handle()) == SweepReport()
    assert world.status("id") is TransactionStatus.ONGOING


def test_a_transaction_whose_first_entry_was_vacuumed_is_measured_from_the_horizon(world: World) -> None:
    world.published("id")
    world.clock.sleep(61)
    world.initialise("other")
    vacuumed(world)
    assert sweep(world.handle()).timed_out == ()
    world.clock.sleep(61)
    assert [found.timed_out_after_ms for found in sweep(world.handle()).timed_out] == [61_000]


def test_nothing_is_left_of_looking_at_the_stores_clock(world: World) -> None:
    world.objects.put(names.clock("0" * 20), b"now")
    world.clock.sleep(3_601)
    sweep(world.store)
    assert world.objects.list_names(names.CLOCKS) == []


@pytest.mark.kafka("K45")
def test_a_refusal_stops_no_other_proposal_and_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = world.published("a")
    world.published("b")
    world.published("c")
    world.clock.sleep(61)
    late = world.handle()
    seen = late.log.transactions()
    world.submit(producer.end(1))
    sweep_by = world.handle()
    monkeypatch.setattr(sweep_by.log, "transactions", lambda: seen)
    report = sweep(sweep_by)
    assert sorted(found.transactional_id for found in report.timed_out) == ["b", "c"]
    assert [lost.about for lost in report.lost] == ["transaction 1 of 'a'"]
    assert world.status("a") is TransactionStatus.COMPLETE_COMMIT


def test_two_sweeps_at_once_do_each_thing_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.published("a")
    world.initialise("idle")
    world.clock.sleep(8 * DAY_S)
    first, second = world.handle(), world.handle()
    seen = second.log.transactions()
    monkeypatch.setattr(second.log, "transactions", lambda: seen)
    done = sweep(first)
    late = sweep(second)
    assert (len(done.timed_out), done.expired_transactional_ids) == (1, ("idle",))
    assert (late.timed_out, late.expired_transactional_ids) == ((), ())
    assert sorted(lost.about for lost in late.lost) == ["transaction 1 of 'a'", "transactional id 'idle'"]


# --- expiry


@pytest.mark.kafka("K46")
@pytest.mark.parametrize("committed", [None, True, False])
def test_an_idle_transactional_id_expires_after_seven_days(world: World, committed: bool | None) -> None:
    producer = world.initialise("id")
    if committed is not None:
        world.submit(producer.append(LEFT, 0, transaction=1), producer.end(1, committed=committed))
    world.clock.sleep(7 * DAY_S - 0.001)
    assert sweep(world.handle()).expired_transactional_ids == ()
    world.clock.sleep(0.001)
    assert sweep(world.handle()).expired_transactional_ids == ("id",)
    assert world.status("id") is None


@pytest.mark.kafka("K46")
def test_an_ongoing_one_does_not_expire(world: World) -> None:
    producer = world.published("id", 900_000)
    world.submit(PrepareTxn("id", producer.producer_id, producer.producer_epoch, 1))
    world.clock.sleep(30 * DAY_S)
    assert sweep(world.handle()).expired_transactional_ids == ()


def test_a_sink_expires_only_if_a_setting_says_so(world: World) -> None:
    producer = world.initialise("query")
    world.submit(producer.batch(1, 0), producer.append(LEFT, 0, transaction=1), producer.end(1))
    world.clock.sleep(365 * DAY_S)
    assert sweep(world.handle()).expired_transactional_ids == ()
    setting = {"sink.expiration.ms": 400 * DAY_S * 1000}
    assert sweep(world.handle(), setting).expired_transactional_ids == ()
    world.clock.sleep(35 * DAY_S)
    assert sweep(world.handle(), setting).expired_transactional_ids == ("query",)


def test_how_a_prepared_transaction_ended_is_kept_for_its_coordinator(world: World) -> None:
    producer = world.published("bank")
    world.submit(PrepareTxn("bank", producer.producer_id, producer.producer_epoch, 1))
    world.submit(producer.end(1, committed=False))
    world.clock.sleep(365 * DAY_S)
    assert sweep(world.handle()).expired_transactional_ids == ()
    assert sweep(world.handle(), {"sink.expiration.ms": DAY_S}).expired_transactional_ids == ("bank",)


def test_settings_are_checked(world: World) -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean 'sink\.expiration\.ms'"):
        sweep(world.store, {"sinks.expiration.ms": 1})
    with pytest.raises(ConfigurationError, match="or never"):
        Sweeper(world.store, {"sink.expiration.ms": "always"})
    Sweeper(world.store, {"sink.expiration.ms": "never", "producer.id.expiration.ms": "5"})


@pytest.mark.kafka("K69")
def test_an_idle_producer_expires_after_a_day_and_an_open_transaction_never(world: World) -> None:
    plain, open_ = world.initialise(None), world.published("open", 900_000)
    world.submit(PrepareTxn("open", open_.producer_id, open_.producer_epoch, 1))
    world.submit(plain.append(LEFT, 0))
    world.clock.sleep(DAY_S - 1)
    assert sweep(world.handle()).expired_producers == 0
    world.clock.sleep(1)
    assert sweep(world.handle()).expired_producers == 1
    assert world.producer_ids() == [open_.producer_id]


@pytest.mark.kafka("K69")
def test_a_producer_of_old_records_is_not_idle(world: World) -> None:
    """The records' times are of 1970; what counts is when they were written."""
    producer = world.initialise(None)
    world.clock.sleep(2 * DAY_S)
    world.submit(producer.append(LEFT, 0))
    world.clock.sleep(3_600)
    assert sweep(world.handle()).expired_producers == 0
    world.clock.sleep(DAY_S)
    assert sweep(world.handle()).expired_producers == 1


def test_a_producer_in_a_sealed_run_counts_from_the_runs_last_entry(world: World) -> None:
    world.store = world.handle(checkpoint_seal_segments=2)
    producer = world.initialise(None)
    world.submit(producer.append(LEFT, 0))
    world.clock.sleep(2 * DAY_S)
    world.submit(producer.append(LEFT, 1))
    world.store.log.checkpoint()
    world.clock.sleep(3_600)
    assert sweep(world.handle()).expired_producers == 0
    world.clock.sleep(DAY_S)
    assert sweep(world.handle()).expired_producers == 1


@pytest.mark.kafka("K46", "K69")
@pytest.mark.parametrize("skew_s", [-30 * DAY_S, 3_650 * DAY_S])
def test_what_a_writer_with_a_wrong_clock_has_just_used_does_not_expire(skew_s: int) -> None:
    """A time of one machine is never compared with one of another: how old an entry is, the store says."""
    world = World(skew_s)
    producer = world.initialise("live")
    world.submit(producer.append(LEFT, 0, transaction=1), producer.end(1))
    world.clock.sleep(60)
    for writer_s in (0, skew_s):
        sweeping = world.handle(clock=ManualClock(world.clock.now_s + writer_s))
        report = sweep(sweeping)
        assert (report.expired_transactional_ids, report.expired_producers) == ((), 0)
    world.clock.sleep(8 * DAY_S)
    report = sweep(world.handle())
    assert (report.expired_transactional_ids, report.expired_producers) == (("live",), 1)


@pytest.mark.parametrize("between", [1, 7, 40])
def test_what_is_idle_is_found_among_any_number_of_entries(world: World, between: int) -> None:
    for number in range(between):
        world.initialise(f"old-{number}")
        world.clock.sleep(3_600)
    world.clock.sleep(7 * DAY_S - 1_800 - 3_600 * (between // 2))
    assert len(sweep(world.handle()).expired_transactional_ids) == between - between // 2
    for number in range(3):
        world.initialise(f"new-{number}")
    world.clock.sleep(3_600 * between)
    assert len(sweep(world.handle()).expired_transactional_ids) == between // 2


def test_what_was_used_in_entries_that_a_vacuum_has_deleted_expires_by_its_timestamp(world: World) -> None:
    """The store does not show it any more: where entries are kept for a shorter time than the expiration."""
    world.initialise("old")
    world.clock.sleep(2 * DAY_S)
    world.initialise("new")
    vacuumed(world)
    for slept_s, expired in ((0, ()), (5 * DAY_S - 1, ()), (602, ("old",)), (2 * DAY_S - 601, ("new",))):
        world.clock.sleep(slept_s)
        assert sweep(world.handle()).expired_transactional_ids == expired, slept_s


def test_nothing_expires_by_entries_that_a_vacuum_deletes_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were taken for old, whatever the vacuum keeps: an id that was used a minute ago was forgotten."""
    world.initialise("used")
    world.clock.sleep(60)
    world.initialise("later")
    vacuumed(world)
    # The sweep has read the horizon before.
    monkeypatch.setattr(ages, "read_horizon", lambda _: 1)
    report = sweep(world.handle())
    assert report.expired_transactional_ids == ()
    assert report.expired_producers == 0


def test_what_deleted_topics_left_behind_goes_at_once(world: World) -> None:
    producer = world.initialise(None)
    world.submit(CreateTopic("second", "other", 1))
    world.submit(producer.append(LEFT, 0), producer.append((2, 0), 0))
    world.submit(OffsetCommit("o", "group", (OffsetToCommit(*LEFT, 1), OffsetToCommit(2, 0, 1))))
    world.submit(DeleteTopic("d", "other", 2))
    report = sweep(world.handle())
    assert (report.expired_producers, report.expired_offsets) == (1, 1)
    assert world.producer_ids() == [producer.producer_id]
    assert world.producer_ids((2, 0)) == []
    assert [offset.topic_id for offset in world.store.log.committed_offsets()] == [1]


class TestOffsetsOfGroupsWithoutMembers:
    """KIP-211: they count from their commit, or from when the last member has gone."""

    def commit(self, world: World, name: str, *places: tuple[int, int]) -> None:
        world.submit(OffsetCommit(name, "group", tuple(OffsetToCommit(*where, 1) for where in places)))

    def join(self, world: World, name: str) -> None:
        command = JoinGroup(f"join {name}", "group", name, ("topic",), 1_800_000, 1_800_000, ("uniform",))
        world.submit(command)

    def left(self, world: World) -> list[int]:
        """A sweep of another process; the partitions for which offsets are left."""
        sweep(world.handle())
        world.store.log.refresh()
        return sorted(offset.partition for offset in world.store.log.group_offsets("group"))

    def test_each_by_its_own_commit_where_the_group_never_had_members(self, world: World) -> None:
        self.commit(world, "first", LEFT)
        world.clock.sleep(3 * DAY_S)
        self.commit(world, "second", RIGHT)
        world.clock.sleep(4 * DAY_S - 1)
        assert self.left(world) == [0, 1]
        world.clock.sleep(1)
        report = sweep(world.handle(), dry_run=True)
        assert (report.expired_offsets, self.left(world)) == (1, [1])
        world.clock.sleep(3 * DAY_S)
        assert self.left(world) == []

    def test_all_from_when_the_last_member_has_gone(self, world: World) -> None:
        self.commit(world, "first", LEFT)
        self.join(world, "member")
        world.clock.sleep(30 * DAY_S)
        world.submit(LeaveGroup("leave", "group", "member"))
        world.clock.sleep(3 * DAY_S)
        self.commit(world, "since", RIGHT)
        world.clock.sleep(4 * DAY_S - 1)
        assert self.left(world) == [0, 1]
        world.clock.sleep(1)
        assert self.left(world) == [1]
        assert world.store.log.empty_groups() != []
        world.clock.sleep(3 * DAY_S)
        assert self.left(world) == []
        sweep(world.handle())
        world.store.log.refresh()
        assert world.store.log.empty_groups() == []

    def test_never_while_a_member_lives(self, world: World) -> None:
        self.commit(world, "first", LEFT)
        self.join(world, "member")
        for step in range(5):
            world.clock.sleep(5 * DAY_S)
            world.submit(UpdateMember(f"sign {step}", "group", "member", 0, ("topic",)))
            assert self.left(world) == [0]

    def test_members_that_died_are_gone_from_the_sweep_that_took_them_out(self, world: World) -> None:
        self.commit(world, "first", LEFT)
        self.join(world, "member")
        world.clock.sleep(30 * DAY_S)
        assert self.left(world) == [0]
        world.clock.sleep(7 * DAY_S - 1)
        assert self.left(world) == [0]
        world.clock.sleep(1)
        assert self.left(world) == []

    def test_a_setting_of_the_store_says_how_long(self, world: World) -> None:
        self.commit(world, "first", LEFT)
        world.submit(AlterStore("longer", {"offsets.retention.minutes": str(10 * 24 * 60)}))
        world.clock.sleep(10 * DAY_S - 1)
        assert self.left(world) == [0]
        world.submit(AlterStore("shorter", {"offsets.retention.minutes": "1"}))
        world.clock.sleep(1)
        assert self.left(world) == []

    def test_what_a_writer_with_a_wrong_clock_has_committed_does_not_expire(self) -> None:
        world = World(skew_s=-30 * DAY_S)
        self.commit(world, "first", LEFT)
        world.clock.sleep(7 * DAY_S - 1)
        assert self.left(world) == [0]
        world.clock.sleep(1)
        assert self.left(world) == []

    def test_where_an_import_goes_on_is_kept_as_long_as_its_sink(self, world: World) -> None:
        producer = world.initialise("group")
        world.submit(producer.batch(1, 0), producer.offset(1, "group", LEFT, 7), producer.end(1))
        world.clock.sleep(365 * DAY_S)
        assert self.left(world) == [0]
        assert sweep(world.handle(), {"sink.expiration.ms": DAY_S}).expired_transactional_ids == ("group",)
        assert self.left(world) == []

    def test_an_offset_in_an_open_transaction_keeps_the_one_before(self, world: World) -> None:
        self.commit(world, "first", LEFT)
        producer = world.initialise("open", 900_000)
        offsets = (OffsetToCommit(*LEFT, 2),)
        world.submit(TxnOffsetCommit("open", producer.producer_id, 0, 1, "group", offsets))
        world.submit(PrepareTxn("open", producer.producer_id, 0, 1))
        world.clock.sleep(8 * DAY_S)
        assert self.left(world) == [0]
        world.submit(producer.end(1))
        world.clock.sleep(7 * DAY_S - 1)
        assert self.left(world) == [0]
        world.clock.sleep(1)
        assert self.left(world) == []


@pytest.mark.kafka("K47")
def test_many_ids_expire_in_entries_of_bounded_size(world: World) -> None:
    many = 1_300
    world.submit(*(InitProducerId(f"many-{number}", f"many-{number}") for number in range(many)))
    world.clock.sleep(8 * DAY_S)
    before = world.store.log.entry
    assert len(sweep(world.store).expired_transactional_ids) == many
    assert world.store.log.entry - before == 3
    sizes = [info.size_bytes for info in world.objects.list("_log/0")]
    assert max(sizes[-3:]) < 256 * 1024
    assert world.store.log.transactions() == []


# --- faults


@pytest.mark.kafka("K45", "K47")
@pytest.mark.crash
@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.NONE], ids=lambda fault: fault.value)
def test_every_operation_of_a_sweep_may_be_the_last(fault: Fault) -> None:
    def prepared() -> World:
        world = World()
        world.published("hung")
        world.initialise("idle")
        world.submit(world.initialise(None).append(RIGHT, 0))
        world.clock.sleep(8 * DAY_S)
        return world

    world = prepared()
    faulty = FaultyStore(world.objects)
    sweep(world.handle(faulty))
    operations = len(faulty.operations)
    assert operations > 8
    for number in range(1, operations + 1):
        world = prepared()
        late: list[Callable[[], object]] = []

        def fate(operation: Operation, number: int = number) -> Fault:
            return fault if operation.number == number else Fault.NONE

        with suppress(Died, StoreUnavailable):
            sweep(world.handle(FaultyStore(world.objects, fate, later=late.append)), timeout_s=30)
        for put in late:
            put()
        sweep(world.handle())
        assert world.status("hung") in (TransactionStatus.COMPLETE_ABORT, None), number
        assert world.status("idle") is None
        hung = world.store.log.transaction("hung")
        assert hung is None or hung.producer_epoch == 1, number
        view = world.store.view(["topic"])
        assert all(seen.last_stable_offset == seen.log_end_offset for seen in view.partitions.values())
