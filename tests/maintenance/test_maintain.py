"""All jobs in one call: what is left of a store in which nothing happens any more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sparktxn import Producer, Store
from sparktxn._engine.format import names
from sparktxn._engine.format.commands import InitProducerId
from sparktxn.maintenance import VacuumReport, maintain, vacuum
from tests.calls import cost_of
from tests.maintenance.vacuumworld import DAY_S, LEFT, TOPIC, World

AT_ONCE = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0}
TRANSACTIONS = 70


def written(folder: Path, transactions: int) -> Store:
    """A store whose newest records no checkpoint knows in the files that maintenance puts them into."""
    options = {"store.fsync": "false", "checkpoint.fold.bytes.per.minute": "0"}
    store = Store.open(folder, options=options, create=True)
    store.create_topic("t", 1)
    with Producer({"bootstrap.servers": str(folder), "transactional.id": "writer", **options}) as producer:
        producer.init_transactions()
        for number in range(transactions):
            with producer.transaction():
                producer.produce("t", b"%d" % number)
    return store


def entries(folder: Path) -> int:
    return len(list(folder.glob("_log/0*.json")))


def carriers(store: Store) -> set[int]:
    """The entries that carry records which the newest view names, aborted ones too."""
    partitions = store.view([topic.name for topic in store.topics()]).partitions.values()
    return {each.entry for partition in partitions for each in partition.segments if names.is_inline(each.name)}


def test_replaced_records_are_gone_though_nobody_writes(tmp_path: Path) -> None:
    with written(tmp_path, TRANSACTIONS) as store:
        # The first refresh begins a checkpoint in the background. Unless it ends before the first vacuum, that one has
        # a single checkpoint, and moves no horizon.
        for _ in range(3):
            assert maintain(store, AT_ONCE).failed == ()
        assert entries(tmp_path) <= 4
        view = store.view(["t"])
        (task,) = store.plan(view, store.ranges(view))
        assert len({segment.name for segment in task.segments}) == 1
        assert sum(segment.row_count for segment in task.segments) == TRANSACTIONS


def test_a_checkpoint_just_before_the_rewrite_keeps_nothing_for_long(tmp_path: Path) -> None:
    """It names what the rewrite has replaced, and only two entries are above it: the rewrite's and the vacuum's."""
    with written(tmp_path, TRANSACTIONS) as store:
        store.log.refresh()
        assert store.log.checkpoint() == store.log.entry
        for _ in range(2):
            assert maintain(store, AT_ONCE).failed == ()
        assert entries(tmp_path) <= 4


@pytest.mark.parametrize("seed", range(12))
def test_wherever_checkpoints_are_a_store_without_writers_becomes_small(seed: int, tmp_path: Path) -> None:
    """Transactions that commit or abort, topics of all policies, and a checkpoint before any of them.

    A vacuum goes as far as the older of two checkpoints, so there is one before the last entry.
    """
    random_ = random.Random(seed)
    with written(tmp_path, 1) as store:
        store.create_topic("compacted", 1, settings={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
        store.create_topic("short", 1, settings={"retention.bytes": "1"})
        options = {"store.fsync": "false", "checkpoint.fold.bytes.per.minute": "0"}
        for number in range(random_.randint(1, 25)):
            if random_.random() < 0.3:
                store.log.refresh()
                store.log.checkpoint()
            name = f"writer-{random_.randrange(3)}"
            with Producer({"bootstrap.servers": str(tmp_path), "transactional.id": name, **options}) as producer:
                producer.init_transactions()
                producer.begin_transaction()
                producer.produce(random_.choice(["t", "compacted", "short"]), b"%d" % number, b"%d" % (number % 4))
                producer.flush()
                end = random_.choice([producer.commit_transaction, producer.abort_transaction])
                end()
        store.log.refresh()
        store.log.checkpoint()
        store.create_topic("last", 1)
        for _ in range(4):
            assert maintain(store, AT_ONCE).failed == ()
        entry = store.log.entry
        assert entries(tmp_path) - len(carriers(store)) <= 4, f"seed {seed}"
        assert maintain(store, AT_ONCE).failed == ()
        assert store.log.entry == entry, f"seed {seed}"


def test_a_store_in_which_nothing_happens_is_left_alone(tmp_path: Path) -> None:
    with written(tmp_path, TRANSACTIONS) as store:
        for _ in range(3):
            maintain(store, AT_ONCE)
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
        entry = store.log.entry
        for _ in range(3):
            assert maintain(store, AT_ONCE).failed == ()
        assert store.log.entry == entry
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    with written(tmp_path, 3) as store:
        before = sorted(tmp_path.rglob("*"))
        maintain(store, AT_ONCE, dry_run=True)
        assert sorted(tmp_path.rglob("*")) == before


CALLS = {"the same process": 6_500, "a new process": 7_400}


@pytest.mark.parametrize("who", CALLS)
def test_maintenance_with_nothing_to_do_costs_few_calls(who: str, tmp_path: Path) -> None:
    """A process that goes on runs no vacuum, and a new one does not replay the log for its own."""
    options = {"store.fsync": "false", "checkpoint.fold.bytes.per.minute": "0"}
    with written(tmp_path, 220) as store:
        for _ in range(2):
            maintain(store)
        cost = cost_of(lambda: maintain(store))
    if who == "a new process":
        with Store.open(tmp_path, options=options) as store:
            store.log.refresh()
            cost = cost_of(lambda: maintain(store))
    has_vacuumed = any("_Round.run" in function for function in cost.by_function)
    assert has_vacuumed == (who == "a new process")
    assert cost.calls <= CALLS[who], "\n".join(
        f"{times:5} {function}" for function, times in cost.by_function.most_common()
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_vacuum_that_is_left_out_would_have_deleted_nothing(seed: int) -> None:
    """Whatever others commit, upload, leave behind and checkpoint meanwhile, and however much time passes."""
    random_ = random.Random(seed)
    world = World(inline=seed % 2 == 0)
    world.grow(2, 2)
    process, settings = world.process(), {"vacuum.retention.ms": 3 * DAY_S * 1_000, "rewrite.min.segments": 1_000_000}
    left_out = 0
    for number in range(25):
        for _ in range(random_.choice([0, 0, 0, 1, 2])):
            happens = random_.randrange(6)
            world.writer.log.refresh()
            if happens == 0:
                world.commit()
            elif happens == 1:
                world.writer.log.checkpoint()
            elif happens == 2:
                file = names.segment_file(world.writer.log.entry, f"{number:020d}", "parquet")
                world.objects.put_if_absent(names.segment(TOPIC, *LEFT, file), b"s")
            elif happens == 3:
                world.objects.put_if_absent(names.member_sign("group", f"member {number}"), b"s")
            else:
                world.clock.sleep(random_.choice([1, 3_600, DAY_S // 2, DAY_S, 2 * DAY_S]))
        begun = len(process.objects.operations)
        assert maintain(process.store, settings).failed == ()
        if all(each.name != names.INTENTS for each in process.objects.operations[begun:]):
            left_out += 1
            copy = world.copy().process()
            would = vacuum(copy.store, {"vacuum.retention.ms": 3 * DAY_S * 1_000}, dry_run=True)
            assert would.names == (), f"seed {seed}, step {number}"
            state = process.log.store_state()
            assert (would.horizon, would.segment_floor) == (state.horizon, state.segment_floor)
    assert left_out >= 2


class Maintainer:
    """A process that maintains a store now and then, whose views are kept for three days."""

    def __init__(self, world: World, settings: dict[str, int] | None = None) -> None:
        self.world = world
        self.process = world.process()
        self.settings = {
            "vacuum.retention.ms": 3 * DAY_S * 1_000,
            "rewrite.min.segments": 1_000_000,
            **(settings or {}),
        }

    def vacuumed_after(self, seconds: float) -> VacuumReport | None:
        """What a vacuum has done then; None if none has run."""
        self.world.clock.sleep(seconds)
        begun = len(self.process.objects.operations)
        report = maintain(self.process.store, self.settings)
        assert report.failed == ()
        has_run = any(each.name == names.INTENTS for each in self.process.objects.operations[begun:])
        return report.vacuum if has_run else None

    def rest(self) -> None:
        """Maintain until neither a view, nor a checkpoint that moves the floor, is still to come of age."""
        for _ in range(4):
            self.vacuumed_after(4 * DAY_S)
        assert self.vacuumed_after(4 * DAY_S) is not None
        assert self.vacuumed_after(60) is None


def test_a_process_vacuums_as_soon_as_a_view_comes_of_age() -> None:
    world = World()
    world.grow(3, 2)
    maintainer = Maintainer(world)
    done = maintainer.vacuumed_after(5 * DAY_S // 2)
    assert done is not None
    assert done.entries == 0
    assert maintainer.vacuumed_after(60) is None
    done = maintainer.vacuumed_after(DAY_S // 2)
    assert done is not None
    assert done.entries > 0
    assert maintainer.vacuumed_after(60) is None


def test_a_process_vacuums_as_soon_as_an_object_comes_of_age_that_was_too_young() -> None:
    world = World()
    world.grow(3, 2)
    maintainer = Maintainer(world)
    maintainer.rest()
    world.clock.sleep(DAY_S // 2)
    world.objects.put_if_absent(names.member_sign("group", "member"), b"s")
    done = maintainer.vacuumed_after(DAY_S * 3 // 4)
    assert done is not None
    assert done.other == 0
    assert maintainer.vacuumed_after(60) is None
    done = maintainer.vacuumed_after(DAY_S // 4)
    assert done is not None
    assert done.other == 1


def test_a_process_vacuums_as_soon_as_an_object_comes_of_age_that_it_has_not_seen() -> None:
    world = World()
    world.grow(3, 2)
    maintainer = Maintainer(world)
    maintainer.rest()
    world.objects.put_if_absent(names.member_sign("group", "member"), b"s")
    done = maintainer.vacuumed_after(DAY_S + 1)
    assert done is not None
    assert done.other == 1


def test_a_process_vacuums_as_soon_as_a_checkpoint_lets_go_of_files_that_no_entry_names() -> None:
    world = World()
    # A file may be of a transaction of the longest time-out, so that twice as much must have passed.
    world.writer.submit(InitProducerId("init slow", "slow", 900_000))
    lost = names.segment(TOPIC, *LEFT, names.segment_file(world.writer.log.entry, "0" * 20, "parquet"))
    world.objects.put_if_absent(lost, b"s")
    world.grow(1, 2)
    maintainer = Maintainer(world, {"vacuum.segment.age.ms": 600_000})
    done = maintainer.vacuumed_after(1_090)
    assert done is not None
    assert done.segments == 0
    assert maintainer.vacuumed_after(60) is None
    done = maintainer.vacuumed_after(480)
    assert done is not None
    assert done.segments == 1
    assert world.objects.get(lost) is None
