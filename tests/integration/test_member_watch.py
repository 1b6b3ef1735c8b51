"""What watchers see of groups' members: dead ones count as dead, and living ones are never taken for dead.

Watchers are the exporter, the system table of groups, and administrators who may not write. None of them writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Command, JoinGroup, LeaveGroup, UpdateMember
from sparktxn._engine.log.log import Log
from sparktxn.admin import AdminClient, ConsumerGroupState, NewTopic
from sparktxn.store import Store, TableSelection, read_table_task
from sparktxn.store.memberexpiry import members_name
from sparktxn.store.memberwatch import SeenMember, seen_members
from sparktxn.store.storefigures import StoreFigures
from sparktxn.testing.clocks import ManualClock
from sparktxn.testing.faultystore import Fault, FaultyStore, Operation
from tests.seeds import examples
from tests.world import ClockedWorld

SESSION_S = 6.0
LATE_S = 4.0
"""By how much a watcher may find later than a session that a member is dead: its margins, and its own reads."""


class SkewedClock(ManualClock):
    """The clock of a machine whose wall clock is wrong, on the time of a world."""

    def __init__(self, clock: ManualClock, ahead_s: float) -> None:
        self._clock = clock
        self._ahead_s = ahead_s

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + int(self._ahead_s * 1000)

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s() - 1_000

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


class World(ClockedWorld):
    """Topic `t`, a process whose commands are those of all members, and a watcher that may not write."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        super().__init__()
        self.members = self.process()
        with AdminClient({"bootstrap.servers": self.lend("members", self.members)}) as admin:
            admin.create_topics([NewTopic("t", 2)])["t"].result()
        self.signs = 0
        reads_only = FaultyStore(self.objects, _reads_only)
        self.watcher = self.process(reads_only, SkewedClock(self.clock, ahead_s))
        self.uri = self.lend("watcher", self.watcher)
        self.clock.sleep(2)  # A watcher goes by a state of up to a second.

    def send(self, *commands: Command) -> None:
        self.members.submit(list(commands))

    def join(self, member_id: str, group_id: str = "g", *, classic: bool = False, instance_id: str = "") -> None:
        topics = () if group_id.startswith("__") else ("t",)
        self.send(
            JoinGroup(
                self.members.ids.token(),
                group_id,
                member_id,
                topics,
                int(SESSION_S * 1000),
                60_000,
                ("uniform",),
                classic,
                instance_id,
                "client",
                "host",
            )
        )

    def sign(self, member_id: str, group_id: str = "g") -> None:
        """Renews a member's object, as its pulse does."""
        self.signs += 1
        self.objects.put(names.member_sign(group_id, member_id), b"." * (1 + self.signs % 16))

    def speak(self, member_id: str, group_id: str = "g") -> None:
        """Has a member subscribe anew: an entry that names it."""
        member = self.members.member(group_id, member_id)
        assert member is not None
        topics = ("t",) if member.topics == ("other", "t") else ("other", "t")
        token = self.members.ids.token()
        self.send(UpdateMember(token, group_id, member_id, member.member_epoch, topics))

    def look(self, group_id: str = "g") -> dict[str, SeenMember]:
        return {one.state.member_id: one for one in seen_members(self.watcher, [group_id]).get(group_id, ())}

    def overdue(self, group_id: str = "g") -> set[str]:
        return {name for name, seen in self.look(group_id).items() if seen.is_overdue}


def _reads_only(operation: Operation) -> Fault:
    return Fault.UNAVAILABLE if operation.verb in ("put", "put_if_absent", "delete") else Fault.NONE


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def figures(log: Log) -> dict[str, dict[tuple[str, ...], float]]:
    with Store(log.objects.uri, {}, log) as store:
        return {name: dict(samples) for name, samples in StoreFigures(store).read().items()}


@pytest.mark.parametrize(
    ("group_id", "joined"),
    [
        ("g", {"classic": False}),
        ("g", {"classic": True}),
        ("g", {"classic": True, "instance_id": "i"}),
        ("g", {"classic": False, "instance_id": "i"}),
        (members_name("g"), {"classic": True}),
        (members_name("g"), {"classic": True, "instance_id": "i"}),
    ],
)
def test_a_member_of_each_kind_counts_as_dead_once_its_session_has_passed(
    world: World, group_id: str, joined: dict[str, Any]
) -> None:
    world.join("m", group_id, **joined)
    world.clock.sleep(2)
    world.sign("m", group_id)
    seen_ms = world.clock.wall_ms()
    entry = world.members.refresh()
    assert figures(world.watcher)["kafka_consumergroup_members"] == {("g",): 1}
    world.clock.sleep(SESSION_S - 0.5)
    found = figures(world.watcher)
    assert found["kafka_consumergroup_members"] == {("g",): 1}
    assert found["txnlog_group_overdue_members"] == {("g",): 0}
    assert "txnlog_group_overdue_member_age_seconds" not in found
    world.clock.sleep(LATE_S)
    found = figures(world.watcher)
    assert found["kafka_consumergroup_members"] == {("g",): 0}
    assert found["txnlog_group_overdue_members"] == {("g",): 1}
    assert found["txnlog_group_overdue_member_age_seconds"] == {("g",): SESSION_S + LATE_S - 0.5}
    (seen,) = world.look().values()
    assert (seen.is_overdue, seen.last_seen_ms, seen.group_id) == (True, seen_ms, "g")
    with AdminClient({"bootstrap.servers": world.uri}) as admin:
        described = admin.describe_consumer_groups(["g"])["g"].result()
        assert (described.state, described.members) == (ConsumerGroupState.DEAD, [])
        assert all(one.state is ConsumerGroupState.EMPTY for one in admin.list_consumer_groups().result().valid)
    assert world.members.refresh() == entry, "a watcher writes nothing"


def test_a_static_member_that_left_counts_until_its_session_has_passed(world: World) -> None:
    world.join("m", instance_id="i")
    world.send(LeaveGroup(world.members.ids.token(), "g", "m", keeps_place=True))
    left_ms = world.clock.wall_ms()
    assert world.overdue() == set()
    world.clock.sleep(SESSION_S + LATE_S)
    assert world.look()["m"].last_seen_ms == left_ms
    assert world.overdue() == {"m"}


def test_one_that_has_just_come_goes_by_what_others_write(world: World) -> None:
    """It has watched no member, and does not know the store's time. The sign of another member shows it."""
    world.join("dead")
    world.join("lives")
    world.clock.sleep(SESSION_S + LATE_S)
    assert world.overdue() == set(), "nothing shows that time has passed"
    world.sign("lives")
    assert world.overdue() == {"dead"}


def test_one_that_has_just_come_goes_by_its_own_clock_less_the_skew_that_is_allowed(world: World) -> None:
    world.join("dead")
    world.clock.sleep(SESSION_S + world.watcher.settings.clock_skew_ms_max / 1000 + LATE_S)
    assert world.overdue() == {"dead"}


def test_objects_from_the_future_kill_no_member_that_a_watcher_sees_alive(world: World) -> None:
    """A machine's clock was wrong and was set right: a dead member's object is an hour ahead of the store's time."""
    world.join("dead")
    world.join("lives")
    world.clock.sleep(3_600)
    world.sign("dead")
    world.clock.sleep(-3_600)
    world.overdue()
    for _ in range(10):
        world.clock.sleep(2)
        world.sign("lives")
        assert "lives" not in world.overdue()
    assert world.overdue() == {"dead"}


def test_the_system_table_says_which_members_are_overdue_now(world: World) -> None:
    world.join("m")
    entry, seen_ms = world.members.refresh(), world.clock.wall_ms()

    def rows(**at: Any) -> list[tuple[Any, ...]]:
        with Store(world.watcher.objects.uri, {}, world.watcher) as store:
            tasks = store.plan_table("groups", TableSelection(**at))
            found = [row for task in tasks for batch in read_table_task(task) for row in batch.to_pylist()]
        last = [row["member_last_seen"] and int(row["member_last_seen"].timestamp() * 1000) for row in found]
        return [(row["member_overdue"], at_ms) for row, at_ms in zip(found, last, strict=True)]

    rows()
    world.clock.sleep(SESSION_S + LATE_S)
    assert rows() == [(True, seen_ms)] * 2
    assert rows(entry=entry) == [(None, None)] * 2


def test_many_members_that_show_life_by_commits_cost_few_requests(world: World) -> None:
    for number in range(200):
        world.join(f"m{number:03}", f"g{number % 40}")
    world.clock.sleep(2 * SESSION_S)
    for number in range(200):
        world.speak(f"m{number:03}", f"g{number % 40}")
    seen_members(world.watcher)
    listed: list[str] = []
    list_objects = world.objects.list
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(world.objects, "list", lambda *asked: (listed.append(asked[0]), list_objects(*asked))[1])
        world.clock.sleep(2)
        found = seen_members(world.watcher)
    assert not any(one.is_overdue for members in found.values() for one in members)
    assert len(listed) <= 12


@settings(max_examples=examples(60, 1_500), deadline=None)
@given(
    ahead_s=st.sampled_from([0.0, -599.0, 599.0]),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["sign", "speak", "look", "look", "idle"]),
            st.sampled_from(["a", "b", "c"]),
            st.sampled_from([0.0, 0.5, 2.0, 5.0, 9.0, 40.0, 700.0]),
        ),
        max_size=25,
    ),
)
def test_no_history_takes_a_living_member_for_dead_nor_a_dead_one_for_alive_for_long(
    ahead_s: float, steps: list[tuple[str, str, float]]
) -> None:
    world = World(ahead_s)
    try:
        shown = {}
        for name in ("a", "b", "c"):
            world.join(name)
            shown[name] = world.clock.monotonic_s()
        looked: list[float] = []
        for kind, name, wait_s in steps:
            if kind == "sign":
                world.sign(name)
                shown[name] = world.clock.monotonic_s()
            elif kind == "speak":
                world.speak(name)
                shown[name] = world.clock.monotonic_s()
            elif kind == "look":
                now_s = world.clock.monotonic_s()
                overdue = world.overdue()
                alive = {one for one, shown_s in shown.items() if now_s - shown_s <= SESSION_S}
                assert not overdue & alive
                for one, shown_s in shown.items():
                    watched_s = max((now_s - at_s for at_s in looked if at_s >= shown_s), default=0.0)
                    assert one in overdue or watched_s <= SESSION_S + LATE_S
                if not looked or now_s - looked[-1] > 1:
                    looked.append(now_s)
            world.clock.sleep(wait_s)
    finally:
        world.close()
