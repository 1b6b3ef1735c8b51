"""A gateway shows that a member lives when it hears it: one that dies is silent from then on, for all observers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktxn._engine.format.commands import CreateTopic
from sparktxn._programs.gateway.groups.classicgroups import ClassicGroups
from sparktxn._programs.gateway.groups.grouprosters import GroupRosters, Joining
from sparktxn._programs.gateway.groups.members import Members
from sparktxn._programs.gateway.wire.consumerprotocol import MemberSubscription
from sparktxn.consumer.heartbeats import pulse_of
from tests.world import ClockedWorld

GROUP, SLEEP_S = "g", 0.1
WANTED = MemberSubscription("range", ("range",), ("t",), frozenset())


class Place:
    """A gateway, without its sockets, on the world's clock."""

    def __init__(self, world: ClockedWorld) -> None:
        self.log = world.process()
        self.members = Members(self.log)
        self.groups = ClassicGroups(self.log, self.members, GroupRosters(self.log, self.members))
        self.pulse = pulse_of(self.log)

    def join(self, name: str, session_ms: int) -> int:
        self.members.expect(GROUP, name)
        asked = Joining(GROUP, name, "", "c", session_ms, 300_000, needs_id=True)
        generation = self.groups.join(asked, WANTED).generation
        self.groups.sync(GROUP, name, "", generation, "range")
        return generation

    def tick(self, clock_s: float) -> None:
        if self.pulse.due_at_s <= clock_s:
            self.pulse.beat()


def spacing_s(session_s: float) -> float:
    interval_s = min(15.0, session_s / 3)
    return max(interval_s / 2, min(interval_s, 1.0))


@given(st.sampled_from([2.0, 6.0, 10.0, 45.0]), st.lists(st.floats(0.1, 2.0), min_size=5, max_size=30))
def test_the_newest_sign_is_not_much_later_than_what_was_heard(session_s: float, gaps_s: list[float]) -> None:
    """A dead member keeps its partitions until its last sign is old. Some stores take one sign a second."""
    world = ClockedWorld()
    place = Place(world)
    place.log.submit([CreateTopic("topic", "t", 4)])
    generation = place.join("m", round(1000 * session_s))
    shown_s: list[float] = []
    put = world.objects.put

    def noting(name: str, data: bytes) -> None:
        if name.startswith("_groups/"):
            shown_s.append(world.clock.monotonic_s())
        put(name, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.objects, "put", noting)
        heard_s = world.clock.monotonic_s()
        for gap_s in [min(gap_s, session_s / 2) for gap_s in gaps_s] + [session_s]:
            due_s = world.clock.monotonic_s() + gap_s
            while world.clock.monotonic_s() < due_s:
                world.clock.sleep(SLEEP_S)
                place.tick(world.clock.monotonic_s())
            if gap_s < session_s:
                heard_s = world.clock.monotonic_s()
                place.groups.heartbeat(GROUP, "m", "", generation)
    assert shown_s
    assert heard_s - spacing_s(session_s) <= shown_s[-1] <= heard_s + spacing_s(session_s) + 2 * SLEEP_S
    apart_s = [later - sooner for sooner, later in itertools.pairwise(shown_s)]
    assert min(apart_s, default=1.0) >= min(1.0, session_s / 3) - 2 * SLEEP_S
    world.close()


@pytest.mark.parametrize("session_s", [6.0, 10.0])
def test_a_member_that_dies_is_out_a_session_after_it_was_heard(session_s: float) -> None:
    """Whenever it dies; another member of the same gateway, and one of another gateway, are heard meanwhile."""
    late_s = []
    for step in range(8):
        world = ClockedWorld()
        places = [Place(world), Place(world)]
        places[0].log.submit([CreateTopic("topic", "t", 4)])
        names = {"dies": 0, "stays": 0, "elsewhere": 1}
        for name, number in names.items():
            places[number].join(name, round(1000 * session_s))
        dies_s = world.clock.monotonic_s() + 5 + step * 0.4
        next_s = {name: world.clock.monotonic_s() + 0.2 * number for number, name in enumerate(names)}
        heard_s = 0.0
        while places[0].log.member(GROUP, "dies") is not None:
            world.clock.sleep(SLEEP_S)
            now_s = world.clock.monotonic_s()
            for place in places:
                place.tick(now_s)
            for name in [name for name, due_s in next_s.items() if due_s <= now_s]:
                if name == "dies" and now_s > dies_s:
                    del next_s[name]
                    continue
                next_s[name] = now_s + 1.5
                places[names[name]].members.heard(GROUP, name)
                if name == "dies":
                    heard_s = now_s
            places[0].log.refresh()
            assert now_s < dies_s + 3 * session_s
        late_s.append(world.clock.monotonic_s() - heard_s - session_s)
        world.close()
    assert max(late_s) < 0.8, late_s
