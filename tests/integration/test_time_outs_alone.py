"""Each time-out takes effect in a store in which one process is left: any of those that PROTOCOL.md lists for it.

What has died was a process of its own, which never runs again. The time is the world's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final

import pytest

from sparktxn._engine.format.commands import (
    Command,
    CommandResult,
    CreateTopic,
    DeleteTopic,
    InitProducerId,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetToCommit,
    TxnOffsetCommit,
)
from sparktxn._engine.format.names import entry
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.values.structs import TransactionStatus
from sparktxn._kafka.message import ConsumerGroupMetadata, TopicPartition
from sparktxn.admin import AdminClient, ConsumerGroupTopicPartitions
from sparktxn.admin.groups import OffsetReset, apply_reset, planned_reset
from sparktxn.consumer import Consumer
from sparktxn.errors import ConfigurationError, KafkaException
from sparktxn.maintenance import Sweeper, maintain, sweep, vacuum
from sparktxn.producer import Producer
from sparktxn.store import Store
from sparktxn.tables import read_arrow
from tests.producercommands import ProducerCommands
from tests.world import ClockedWorld, next_number

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "PROTOCOL.md"
LEFT: Final = (1, 0)
SESSION_MS, REBALANCE_MS = 45_000, 60_000
DAY_S: Final = 86_400
LONG_S: Final = 100
AT: Final = TopicPartition("t", 0, 0)


class World(ClockedWorld):
    """A store with topic `t` of two partitions; what is called in `dead` is done by a process that ends with it."""

    def __init__(self) -> None:
        super().__init__()
        self.dead = self.process()
        self.submit(CreateTopic("topic", "t", 2))
        self.handles: list[Any] = []

    def submit(self, *commands: Command) -> list[CommandResult]:
        return self.dead.submit(commands)

    def initialise(self, name: str | None) -> ProducerCommands:
        result = self.submit(InitProducerId(self.dead.ids.token(), name, 60_000))[0]
        return ProducerCommands.of(name, result)

    def uri(self) -> str:
        """The address of the store for a new process."""
        return self.lend(f"alone-{next_number()}", self.process())

    def store(self) -> Store:
        return Store(f"memory://{self.name}", {}, self.process())

    def admin(self) -> AdminClient:
        return self.kept(AdminClient({"bootstrap.servers": self.uri()}))

    def consumer(self, *topics: str, **settings: Any) -> Consumer:
        given = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = self.kept(Consumer({"bootstrap.servers": self.uri(), **given, **settings}))
        if topics:
            consumer.subscribe(list(topics))
        return consumer

    def kept(self, handle: Any) -> Any:
        self.handles.append(handle)
        return handle

    def state(self) -> Log:
        """What a process sees that only follows the log."""
        log = self.process()
        log.refresh()
        return log

    def members(self) -> list[str]:
        return [member.member_id for member in self.state().group_members("g")]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    for handle in world.handles:
        handle.close()
    world.close()


# --- what dies, and how its time-out shows


def join(world: World, member_id: str, session_ms: int = SESSION_MS, **more: Any) -> None:
    given = (("t",), session_ms, REBALANCE_MS, ("uniform", "range"))
    world.submit(JoinGroup(world.dead.ids.token(), "g", member_id, *given, **more))


def transaction(world: World) -> Callable[[], bool]:
    producer = world.initialise("dead")
    world.submit(
        producer.append(LEFT, 0, transaction=1),
        TxnOffsetCommit("dead", producer.producer_id, producer.producer_epoch, 1, "other", (OffsetToCommit(*LEFT, 1),)),
    )

    def is_over() -> bool:
        found = world.state().transaction("dead")
        return found is None or found.status is not TransactionStatus.ONGOING

    return is_over


def member(world: World, **more: Any) -> Callable[[], bool]:
    join(world, "dead", **more)
    return lambda: "dead" not in world.members()


def classic_member(world: World) -> Callable[[], bool]:
    return member(world, classic=True)


def static_member(world: World) -> Callable[[], bool]:
    return member(world, instance_id="i")


def static_member_away(world: World) -> Callable[[], bool]:
    is_over = static_member(world)
    world.submit(LeaveGroup(world.dead.ids.token(), "g", "dead", keeps_place=True))
    return is_over


def members_in_a_rebalance(world: World) -> Callable[[], bool]:
    """Both die while the first owes a partition to the second."""
    join(world, "dead")
    join(world, "dead too")
    return lambda: not {"dead", "dead too"} & set(world.members())


def member_that_owes(world: World) -> Callable[[], bool]:
    """It is within its session, and gives nothing back."""
    join(world, "dead", 1_800_000)
    join(world, "waits", 1_800_000)
    return lambda: "dead" not in world.members()


def idle_transactional_id(world: World) -> Callable[[], bool]:
    world.initialise("dead")
    return lambda: world.state().transaction("dead") is None


def idle_producer(world: World) -> Callable[[], bool]:
    world.submit(world.initialise(None).append(LEFT, 0))
    return lambda: not world.state().producers(*LEFT)


def offsets_left_behind(world: World) -> Callable[[], bool]:
    world.submit(CreateTopic("gone", "gone", 1))
    world.submit(OffsetCommit("offsets", "left", (OffsetToCommit(2, 0, 1),)))
    world.submit(DeleteTopic("delete", "gone", 2))
    return lambda: not world.state().group_offsets("left")


def idle_offset(world: World) -> Callable[[], bool]:
    """The offset of a group whose last member has left."""
    join(world, "dead", 1_800_000)
    world.submit(LeaveGroup(world.dead.ids.token(), "g", "dead"))
    world.submit(OffsetCommit("idle", "g", (OffsetToCommit(*LEFT, 1),)))
    return lambda: not world.state().group_offsets("g")


DYING: Final = MappingProxyType(
    {
        "a transaction": (transaction,),
        "the session of a member": (
            member,
            classic_member,
            static_member,
            static_member_away,
            members_in_a_rebalance,
        ),
        "a member's return of partitions": (member_that_owes,),
        "an idle transactional id": (idle_transactional_id,),
        "an idle producer in a partition": (idle_producer,),
        "offsets for a deleted topic": (offsets_left_behind,),
        "an offset of a group without members": (idle_offset,),
    }
)


# --- who is left


Act = Callable[[World], None]


def pass_time(world: World, look: Callable[[], object], step_s: float = 5.0) -> None:
    """Call `look` at intervals, for longer than any time-out of transactions and members."""
    for _ in range(int(LONG_S / step_s)):
        world.clock.sleep(step_s)
        look()


def a_sweep(world: World) -> None:
    world.clock.sleep(LONG_S)
    sweep(world.store())


def an_idle_sweep(world: World) -> None:
    world.clock.sleep(8 * DAY_S)
    sweep(world.store())


def idle_maintenance(world: World) -> None:
    world.clock.sleep(8 * DAY_S)
    assert maintain(world.store()).failed == ()


def a_sweeper(world: World) -> None:
    sweeper = Sweeper(world.store())
    pass_time(world, sweeper.sweep, 20)


def all_maintenance(world: World) -> None:
    world.clock.sleep(LONG_S)
    assert maintain(world.store()).failed == ()


def a_writer(world: World) -> None:
    with Producer({"bootstrap.servers": world.uri()}) as producer:

        def write() -> None:
            producer.produce("t", b"x", partition=0)
            producer.flush()

        pass_time(world, write)


def a_reader(world: World) -> None:
    consumer = world.consumer(**{"group.id": "another"})
    consumer.assign([AT])
    pass_time(world, lambda: consumer.poll(0))


def a_reader_of_views(world: World) -> None:
    store = world.store()
    pass_time(world, lambda: read_arrow(store, "t", order="offset").read_all())


def a_stream_of_spark(world: World) -> None:
    readers = pytest.importorskip("tests.spark.readers")
    reader = readers.stream_reader(SimpleNamespace(uri=world.uri()), order="offset", startingOffsets="earliest")
    start = reader.initialOffset()
    pass_time(world, lambda: reader.latestOffset(start, reader.getDefaultReadLimit()))


def a_consumer_of_pending_offsets(world: World) -> None:
    consumer = world.consumer(**{"group.id": "other"})

    def look() -> None:
        with suppress(KafkaException):  # the offset is not stable yet
            consumer.committed([AT], timeout=1)

    pass_time(world, look)


def the_next_producer(world: World) -> None:
    world.kept(Producer({"bootstrap.servers": world.uri(), "transactional.id": "dead"})).init_transactions()


def another_member(world: World) -> None:
    consumer = world.consumer("t", **{"partition.assignment.strategy": "cooperative-sticky"})
    pass_time(world, lambda: consumer.poll(0))


def a_consumer_that_joins(world: World) -> None:
    world.clock.sleep(LONG_S)
    consumer = world.consumer("t", **{"partition.assignment.strategy": "cooperative-sticky"})
    for _ in range(20):
        consumer.poll(0)


def administrators(call: Callable[[AdminClient], Any]) -> Act:
    def act(world: World) -> None:
        world.clock.sleep(LONG_S)
        answer = call(world.admin())
        for future in answer.values() if isinstance(answer, dict) else [answer]:
            if hasattr(future, "exception"):
                future.exception()

    return act


WANTED: Final = [ConsumerGroupTopicPartitions("g", [AT])]
ADMINISTRATORS: Final = tuple(
    administrators(call)
    for call in (
        lambda admin: admin.list_consumer_groups(),
        lambda admin: admin.list_groups(),
        lambda admin: admin.list_groups("g"),
        lambda admin: admin.describe_consumer_groups(["g"]),
        lambda admin: admin.describe_consumer_group_lag(["g"]),
        lambda admin: admin.remove_members_from_consumer_group("g", ["no such instance"]),
        lambda admin: admin.alter_consumer_group_offsets(WANTED),
        lambda admin: admin.delete_consumer_group_offsets(WANTED),
        lambda admin: admin.delete_consumer_groups(["g"]),
    )
)


def offsets_of_an_engine(world: World) -> None:
    world.clock.sleep(LONG_S)
    world.store().commit_offsets(WANTED[0])


def offsets_of_a_batch(world: World) -> None:
    world.clock.sleep(LONG_S)
    world.store().commit((), transactional_id="spark", offsets=WANTED[0])


def offsets_of_a_consumer(world: World) -> None:
    world.clock.sleep(LONG_S)
    consumer = world.consumer()
    consumer.assign([AT])
    consumer.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)


def offsets_of_a_consumer_beside_it(world: World) -> None:
    world.clock.sleep(LONG_S)
    errors: list[Any] = []
    consumer = world.consumer(on_commit=lambda error, _: errors.append(error))
    consumer.assign([AT])
    consumer.commit(offsets=[TopicPartition("t", 0, 0)])
    consumer.poll(0)
    assert errors == [None]


def offsets_of_a_producer(world: World) -> None:
    world.clock.sleep(LONG_S)
    producer = world.kept(Producer({"bootstrap.servers": world.uri(), "transactional.id": "copies"}))
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition("t", 0, 0)], ConsumerGroupMetadata("g"))
    producer.commit_transaction()


SWEEPS: Final = (a_sweep, a_sweeper, all_maintenance)
WITHOUT_A_MEMBER: Final = (
    offsets_of_an_engine,
    offsets_of_a_batch,
    offsets_of_a_consumer,
    offsets_of_a_consumer_beside_it,
    offsets_of_a_producer,
)

PROPOSERS: Final[Mapping[str, Mapping[str, tuple[Act, ...]]]] = MappingProxyType(
    {
        "a transaction": {
            "a writer to one of its partitions": (a_writer,),
            "a reader that waits for their records": (a_reader, a_reader_of_views, a_stream_of_spark),
            "a consumer that waits for an offset in it": (a_consumer_of_pending_offsets,),
            "the next producer of its transactional id, at once": (the_next_producer,),
            "a sweep": SWEEPS,
        },
        "the session of a member": {
            "another member": (another_member,),
            "a consumer that joins": (a_consumer_that_joins,),
            "an administrator's call that meets members": ADMINISTRATORS,
            "a commit without a member": WITHOUT_A_MEMBER,
            "a sweep": SWEEPS,
        },
        "a member's return of partitions": {
            "another member": (another_member,),
            "a consumer that joins": (a_consumer_that_joins,),
            "an administrator's call that meets members": ADMINISTRATORS[:4],
            "a sweep": SWEEPS,
        },
        "an idle transactional id": {"a sweep": (an_idle_sweep,)},
        "an idle producer in a partition": {"a sweep": (an_idle_sweep,)},
        "offsets for a deleted topic": {"a sweep": (a_sweep,)},
        "an offset of a group without members": {"a sweep": (an_idle_sweep, idle_maintenance)},
    }
)

CASES: Final = [
    pytest.param(dies, acts, id=f"{dies.__name__} | {proposer} {number}")
    for time_out, proposers in PROPOSERS.items()
    for proposer, several in proposers.items()
    for number, acts in enumerate(several)
    for dies in DYING[time_out]
]


@pytest.mark.kafka("K44", "G11", "G12", "G13")
@pytest.mark.parametrize(("dies", "acts"), CASES)
def test_whoever_is_left_ends_it(world: World, dies: Callable[[World], Callable[[], bool]], acts: Act) -> None:
    is_over = dies(world)
    assert not is_over()
    acts(world)
    assert is_over()


class ReadOnly:
    """A store that takes nothing from this process."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)

    def put_if_absent(self, name: str, data: bytes, **more: Any) -> Any:
        raise ConfigurationError("no permission to write to the store")

    put = delete = put_if_absent


def test_an_administrator_who_may_not_write_sees_the_members_of_the_log(world: World) -> None:
    is_over = member(world)
    world.clock.sleep(LONG_S)
    uri = world.lend("read-only", world.process(ReadOnly(world.objects)))  # type: ignore[arg-type]
    admin = world.kept(AdminClient({"bootstrap.servers": uri}))
    described = admin.describe_consumer_groups(["g"])["g"].result()
    assert (described.state.name, len(described.members)) == ("STABLE", 1)
    assert [listed.state.name for listed in admin.list_consumer_groups().result().valid] == ["STABLE"]
    assert admin.delete_consumer_groups(["g"])["g"].exception() is not None
    assert not is_over()


@pytest.mark.parametrize("dies", DYING["the session of a member"])
def test_a_group_whose_last_members_died_is_empty_and_may_be_changed(
    world: World, dies: Callable[[World], Callable[[], bool]]
) -> None:
    dies(world)
    world.submit(OffsetCommit("other", "h", (OffsetToCommit(*LEFT, 3),)))
    admin = world.admin()
    world.clock.sleep(SESSION_MS / 1000)
    assert admin.describe_consumer_groups(["g"])["g"].result().members
    assert isinstance(admin.alter_consumer_group_offsets(WANTED)["g"].exception(), KafkaException)
    world.clock.sleep(2)
    admin.alter_consumer_group_offsets(WANTED)["g"].result()
    described = admin.describe_consumer_groups(["g"])["g"].result()
    assert (described.state.name, described.members) == ("EMPTY", [])
    admin.delete_consumer_groups(["g"])["g"].result()
    assert admin.describe_consumer_groups(["g"])["g"].result().state.name == "DEAD"
    assert [listed.group_id for listed in admin.list_consumer_groups().result().valid] == ["h"]


def joins(world: World, **settings: Any) -> bool:
    """Return whether a new consumer gets partitions at once."""
    consumer = world.consumer("t", **settings)
    for _ in range(20):
        with suppress(KafkaException):
            consumer.poll(0)
    return bool(consumer.assignment())


@pytest.mark.kafka("G16")
def test_a_consumer_takes_the_place_of_a_static_member_that_died(world: World) -> None:
    static_member(world)
    settings = {"group.protocol": "consumer", "group.instance.id": "i"}
    world.clock.sleep(SESSION_MS / 1000)
    assert not joins(world, **settings)
    world.clock.sleep(2)
    assert joins(world, **settings)


@pytest.mark.kafka("G17")
def test_a_consumer_joins_a_group_that_is_full_of_dead_members(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparktxn._engine.state.limits.GROUP_MEMBERS_MAX", 1)
    member(world)
    assert not joins(world)
    world.clock.sleep(LONG_S)
    assert joins(world)


def test_a_member_that_shows_signs_stays_whoever_looks(world: World) -> None:
    consumer = world.consumer("t", **{"session.timeout.ms": 6_000})
    for second in range(60):
        consumer.poll(0)
        world.clock.sleep(1)
        if second % 5 == 0:
            assert world.admin().describe_consumer_groups(["g"])["g"].result().members
            sweep(world.store())
    assert len(world.members()) == 1


def test_a_member_whose_entries_are_vacuumed_is_as_old_as_the_first_one_that_is_left(world: World) -> None:
    is_over = member(world)
    world.clock.sleep(LONG_S)
    for name in ("later", "latest"):
        world.submit(CreateTopic(name, name, 1))
        world.dead.checkpoint()
    vacuum(world.store(), {"vacuum.retention.ms": 0})
    assert world.dead.objects.get(entry(2)) is None
    sweep(world.store())
    assert not is_over()
    world.clock.sleep(SESSION_MS / 1000 + 2)
    sweep(world.store())
    assert is_over()


def test_a_dry_run_reports_who_is_overdue_and_takes_no_one_out(world: World) -> None:
    is_over = member(world)
    world.clock.sleep(LONG_S)
    (found,) = sweep(world.store(), dry_run=True).expired_members
    assert (found.group_id, found.member_id, found.reason, found.after_ms) == ("g", "dead", "session", LONG_S * 1000)
    assert not is_over()
    assert sweep(world.store()).expired_members == (found,)
    assert is_over()
    assert sweep(world.store()).expired_members == ()


def test_a_plan_to_reset_offsets_takes_no_one_out_and_a_reset_does(world: World) -> None:
    is_over = member(world)
    store, log = world.store(), world.process()
    reset = OffsetReset("g", ("t",), "latest")
    with pytest.raises(KafkaException, match="has 1 member"):
        planned_reset(log, reset, store.view)
    world.clock.sleep(LONG_S)
    moves = planned_reset(log, reset, store.view)
    assert not is_over()
    apply_reset(log, "g", moves)
    assert is_over()
    log.refresh()
    assert [one.offset for one in log.group_offsets("g")] == [move.new_offset for move in moves]


def test_the_page_lists_who_proposes_each_time_out() -> None:
    section = PAGE.read_text().partition("### Who proposes what")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| .+? \| (.+?) \|$", section, re.MULTILINE)[1:]
    listed: dict[str, set[str]] = {}
    for time_out, who in rows:
        listed.setdefault(time_out, set()).update(who.split("; "))
    # tests/integration/test_half_messages.py
    assert listed.pop("a check of a half transaction") == {"a producer of its group that has a checker"}
    assert listed == {time_out: set(proposers) for time_out, proposers in PROPOSERS.items()}
