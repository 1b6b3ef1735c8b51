"""The lease: no member that has shown a sign within its session is proposed, and a silent one is, in time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from sparktxn.consumer import heartbeats as module
from sparktxn.consumer.heartbeats import Lease, Reference, watcher_place
from sparktxn.store.memberexpiry import OverdueMember, Sign, Watched
from tests.each import each

SESSION_S = 45.0


def watched(name: str = "m", last_entry: int = 1, revoking_since: int = 0, rebalance_ms: int = 300_000) -> Watched:
    return Watched(name, 3, int(SESSION_S * 1000), rebalance_ms, last_entry, revoking_since)


def listed(lease: Lease, at_s: float, member: Watched, sign: Sign | None = None, rank: int = 0) -> list[OverdueMember]:
    """What a listing of a tenth of a second shows that is answered at `at_s`."""
    signs = {} if sign is None else {member.member_id: sign}
    return lease.observe([member], signs, at_s - 0.1, at_s, rank)


class TestOwnClock:
    def test_a_member_is_silent_a_session_after_its_sign_was_first_seen(self) -> None:
        lease = Lease()
        for at_s in (100, 115, 130, 145):
            assert listed(lease, at_s, watched(), Sign(7, 1)) == []
        (late,) = listed(lease, 145.2, watched(), Sign(7, 1))
        assert (late.reason, late.after_ms) == ("session", pytest.approx(45_100, abs=1))

    @each(["time", "size", "entry", "first object"])
    def test_any_change_is_a_sign(self, change: str) -> None:
        lease = Lease()
        before = None if change == "first object" else Sign(7, 1)
        after = {"time": Sign(8, 1), "size": Sign(7, 2), "first object": Sign(7, 1)}.get(change, before)
        for at_s in (100, 115, 130):
            assert listed(lease, at_s, watched(), before) == []
        member = watched(last_entry=2 if change == "entry" else 1)
        for at_s in (144, 160, 175, 189):
            assert listed(lease, at_s, member, after) == []
        assert len(listed(lease, 189.2, member, after)) == 1

    def test_another_epoch_of_the_group_is_no_sign(self) -> None:
        lease = Lease()
        for at_s in (100, 115, 130, 145):
            listed(lease, at_s, watched(), Sign(7, 1))
        assert len(listed(lease, 146, watched()._replace(member_epoch=9), Sign(7, 1))) == 1

    def test_an_observer_that_was_paused_starts_again(self) -> None:
        lease = Lease()
        listed(lease, 100, watched(), Sign(7, 1))
        assert listed(lease, 146, watched(), Sign(7, 1)) == []
        assert listed(lease, 165, watched(), Sign(7, 1)) == []
        assert listed(lease, 185, watched(), Sign(7, 1)) == []
        assert len(listed(lease, 192, watched(), Sign(7, 1))) == 1

    def test_further_watchers_wait_longer(self) -> None:
        first, third = Lease(), Lease()
        for at_s in (100, 115, 130, 144.9):
            assert listed(first, at_s, watched()) == listed(third, at_s, watched(), rank=2) == []
        assert len(listed(first, 146, watched())) == 1
        assert listed(third, 146, watched(), rank=2) == []
        assert third.next_s([watched()], 2) == pytest.approx(100 + SESSION_S * 1.06)
        assert len(listed(third, 148, watched(), rank=2)) == 1

    def test_a_member_that_has_gone_is_forgotten(self) -> None:
        lease = Lease()
        listed(lease, 100, watched())
        lease.observe([], {}, 115, 115)
        assert lease.next_s([watched()]) == float("inf")
        listed(lease, 130, watched())
        assert listed(lease, 146, watched()) == []


class TestWhenASignWasWritten:
    """A listing shows a change some time after it was made: the session counts from the change, if that is known."""

    def noted(self, first: Watched, second: Watched, *signs: Sign, **known: Any) -> float:
        """When the session of a member begins that has changed between listings at 100 and 110."""
        lease = Lease()
        lease.observe([first], {"m": signs[0]} if signs else {}, 99.9, 100)
        lease.observe([second], {"m": signs[-1]} if signs else {}, 109.9, 110, **known)
        return lease.next_s([second]) - SESSION_S

    @each([(103, 103), (None, 110), (99, 99.9), (111, 110)])
    def test_an_entry_counts_from_when_it_was_read(self, read_s: float | None, expected_s: float) -> None:
        found = self.noted(watched(), watched(last_entry=2), read_by_s={2: read_s}.get)
        assert found == pytest.approx(expected_s)

    @each(
        [
            (50_003_001, 50_000_001, 104.05),  # three seconds after the observer's own, of which one may be none
            (50_003_000, 50_000_000, 105),
            (50_003_000, 50_000_001, 104.049),
            (49_000_001, 50_000_001, 99.9),  # a clock that was set back: not before the listing without it
            (59_000_001, 50_000_001, 110),  # one that was set forward
        ]
    )
    def test_an_object_counts_from_its_distance_to_the_observers(
        self, modified_ms: int, own_ms: int, expected_s: float
    ) -> None:
        signs = (Sign(7, 1), Sign(modified_ms, 2))
        found = self.noted(watched(), watched(), *signs, reference=Reference(own_ms, 101))
        assert found == pytest.approx(expected_s)
        assert self.noted(watched(), watched(), *signs) == 110

    def test_the_later_of_both_counts(self) -> None:
        signs = (Sign(7, 1), Sign(50_003_001, 2))
        reference = Reference(50_000_001, 101)
        for read_s, expected_s in ((103, 104.05), (108, 108)):
            known: dict[str, Any] = {"reference": reference, "read_by_s": {2: read_s}.get}
            assert self.noted(watched(), watched(last_entry=2), *signs, **known) == pytest.approx(expected_s)

    def test_a_first_listing_says_nothing_of_when(self) -> None:
        lease = Lease()
        known: dict[str, Any] = {"reference": Reference(50_000_000, 10), "read_by_s": {1: 10.0}.get}
        lease.observe([watched()], {"m": Sign(50_000_001, 1)}, 99.9, 100, **known)
        assert lease.next_s([watched()]) == 100 + SESSION_S

    def test_a_member_is_silent_at_its_very_session_and_never_for_less(self) -> None:
        lease = Lease()
        for at_s in (100.1, 115, 130):
            listed(lease, at_s, watched())
        due_s = lease.next_s([watched()])
        (late,) = lease.observe([watched()], {}, due_s, due_s)
        assert late.after_ms >= SESSION_S * 1000

    @each(range(30))
    def test_a_member_that_shows_signs_is_not_silent_however_wrong_the_stores_clock_is(self, seed: int) -> None:
        random_ = random.Random(seed)
        lease = Lease()
        signs = list(random_times(random_, 2_000, 5, SESSION_S / 3))
        now_s = 0.0
        while now_s < 1_900:
            seen = [at_s for at_s in signs if at_s <= now_s]
            sign = Sign(random_.randrange(10**6), len(seen) % 16)
            reference = Reference(random_.randrange(10**6), now_s - random_.uniform(0, 20))
            assert lease.observe([watched()], {"m": sign}, now_s, now_s + 0.1, 0, reference) == []
            now_s += random_.uniform(1, SESSION_S / 3)


class TestOwedPartitions:
    def test_a_member_that_owes_for_too_long_is_proposed_though_it_lives(self) -> None:
        lease = Lease()
        found = []
        for second in range(100, 180, 10):
            found += listed(lease, second, watched(revoking_since=5, rebalance_ms=60_000), Sign(second, 1))
        (late,) = found
        assert (late.reason, late.after_ms) == ("rebalance", pytest.approx(69_900, abs=1))

    def test_what_it_owes_since_another_entry_is_counted_anew(self) -> None:
        lease = Lease()
        for second in range(100, 160, 10):
            listed(lease, second, watched(revoking_since=5, rebalance_ms=60_000), Sign(second, 1))
        for second in range(160, 220, 10):
            assert listed(lease, second, watched(revoking_since=6, rebalance_ms=60_000), Sign(second, 1)) == []


class TestWatchers:
    def test_three_members_watch_and_the_epoch_chooses_them(self) -> None:
        members = [f"m{number}" for number in range(20)]
        chosen = set()
        for epoch in range(40):
            places = {member: watcher_place(member, members, epoch) for member in members}
            assert sorted(place for place in places.values() if place is not None) == [0, 1, 2]
            chosen |= {member for member, place in places.items() if place is not None}
        assert chosen == set(members)

    def test_all_of_a_small_group_watch(self) -> None:
        assert sorted(watcher_place(member, ["a", "b"], 1) or 0 for member in "ab") == [0, 1]
        assert watcher_place("stranger", ["a", "b"], 1) is None


def a_heartbeat_that_is_seen_late() -> list[OverdueMember]:
    """A sign is written just before a listing that shows it: the session counts from there, not from the one before."""
    lease = Lease()
    listed(lease, 100, watched(), Sign(7, 1))
    listed(lease, 120, watched(), Sign(8, 1))
    for at_s in (140, 160):
        listed(lease, at_s, watched(), Sign(8, 1))
    return listed(lease, 119 + SESSION_S, watched(), Sign(8, 1))


def an_observer_that_pauses() -> list[OverdueMember]:
    """It has missed signs: the object that the member has written sixteen times since looks as it did before."""
    lease = Lease()
    listed(lease, 100, watched(), Sign(0, 1))
    listed(lease, 120, watched(), Sign(0, 1))
    return listed(lease, 120 + SESSION_S, watched(), Sign(0, 1))


def without_the_moment_of_the_listing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "_shown_s", lambda *given: float("-inf"))


def without_beginning_again(patch: pytest.MonkeyPatch) -> None:
    observe = Lease.observe

    def observe_without_gap(self: Lease, members: Any, signs: Any, began_s: float, *given: Any) -> list[OverdueMember]:
        self._listed_s = began_s
        return observe(self, members, signs, began_s, *given)

    patch.setattr(Lease, "observe", observe_without_gap)


@pytest.mark.parametrize(
    ("trace", "without"),
    [
        (a_heartbeat_that_is_seen_late, without_the_moment_of_the_listing),
        (an_observer_that_pauses, without_beginning_again),
    ],
)
def test_a_build_without_the_rule_breaks_its_trace(
    monkeypatch: pytest.MonkeyPatch,
    trace: Callable[[], list[OverdueMember]],
    without: Callable[[pytest.MonkeyPatch], None],
) -> None:
    assert trace() == [], "a member was proposed that has lived"
    without(monkeypatch)
    assert trace() != []


def random_times(random_: random.Random, until_s: float, least_s: float, most_s: float) -> Iterator[float]:
    at_s = random_.uniform(0, most_s)
    while at_s < until_s:
        yield at_s
        at_s += random_.uniform(least_s, most_s)


@each(product(range(150), ["by listings", "by fine times", "by whole seconds"]))
def test_a_member_that_shows_signs_is_never_proposed_and_a_silent_one_is_in_time(seed: int, dated: str) -> None:
    """Signs by objects and by entries, listings that take time, observers that pause: a seed is a schedule."""
    random_ = random.Random(seed)
    interval_s = random_.choice([1.0, 5.0, 15.0])
    dies_s = random_.uniform(100, 400)
    rank = random_.randrange(3)
    # The times between two signs stay below the session, but by less than a listing takes.
    signs = sorted([0.0, *random_times(random_, dies_s, 0.5, SESSION_S - 0.001)])
    by_entry = {at_s: random_.random() < 0.5 for at_s in signs}
    grain_ms = 1_000 if dated == "by whole seconds" else 1

    def store_ms(at_s: float) -> int:
        return int((at_s + 1_234.567) * 1000) // grain_ms * grain_ms

    lease = Lease()
    now_s, proposed_s = 0.0, None
    paused_until_s = random_.uniform(0, 300) if random_.random() < 0.5 else 0.0
    while now_s < dies_s + 10 * SESSION_S:
        began_s = now_s
        # The listing shows what was there at some moment while it was under way.
        shown_s = began_s + random_.uniform(0, 0.5)
        ended_s = shown_s + random_.uniform(0, 0.5)
        seen = [at_s for at_s in signs if at_s <= shown_s]
        entries = [at_s for at_s in seen if by_entry[at_s]]
        objects = [at_s for at_s in seen if not by_entry[at_s]]
        member = watched(last_entry=1 + len(entries))
        sign = {"m": Sign(store_ms(objects[-1]), len(objects) % 16)} if objects else {}
        written_s = began_s - random_.uniform(0, 10)
        own = Reference(store_ms(written_s - random_.uniform(0, 0.2)), written_s)
        read_s = entries[-1] + random_.uniform(0, 0.5) if entries else 0.0
        known = (None, lambda entry: None) if dated == "by listings" else (own, lambda entry, at_s=read_s: at_s)
        if lease.observe([member], sign, began_s, ended_s, rank, *known):
            proposed_s = began_s
            break
        pause_s = 60.0 if ended_s < paused_until_s and random_.random() < 0.2 else 0.0
        due_s = min(ended_s + interval_s, max(lease.next_s([member], rank), ended_s + interval_s / 10))
        now_s = due_s + pause_s + 0.001
    assert proposed_s is not None, f"seed {seed}: a silent member was never proposed"
    last_s = max(at_s for at_s in signs if at_s <= dies_s)
    silent_s = proposed_s - last_s
    assert silent_s >= SESSION_S, f"seed {seed}: proposed {silent_s:.2f} s after a sign"
    if last_s > paused_until_s + 70:
        # One interval until the last sign is seen, a session, three per cent of it for each place, and the listing.
        # Or, where it is known when a sign was written, at most a second more, and a tenth of the interval.
        most_s = SESSION_S * 1.1 + interval_s
        if dated != "by listings":
            most_s = SESSION_S * (1 + rank * 0.03) + 1.5 + interval_s / 10
        assert silent_s <= most_s + 1.1, f"seed {seed}: proposed only after {silent_s:.2f} s"


SHORT_S = 6.0


def noticed_s(seed: int, rank: int, grain_ms: int, session_s: float = SHORT_S) -> float:
    """Return how long after its last sign a member that has died is proposed, by one of three watchers.

    It shows a sign each third of its session. Times that the store gives are whole `grain_ms`.
    """
    heartbeat_s = session_s / 3
    schedule = random.Random(f"signs/{seed}")
    zero_s, dies_s = schedule.uniform(0, 10), schedule.uniform(5 * session_s, 20 / 3 * session_s)
    signs = list(random_times(schedule, dies_s, heartbeat_s, heartbeat_s + 0.05))
    random_ = random.Random(f"watcher/{seed}/{rank}")

    def store_ms(at_s: float) -> int:
        return int((at_s + zero_s) * 1000) // grain_ms * grain_ms

    lease, reference = Lease(), Reference(0, 0.0)
    began_s, writes_s = random_.uniform(0, heartbeat_s), 0.0
    while True:
        assert began_s < dies_s + 5 * session_s, f"seed {seed}: a dead member was never proposed"
        if began_s >= writes_s:
            writes_s, written_s = began_s + heartbeat_s, began_s + random_.uniform(0.02, 0.1)
            reference = Reference(store_ms(random_.uniform(began_s, written_s)), written_s)
            began_s = written_s
        shown_s = began_s + random_.uniform(0.01, 0.05)
        ended_s = shown_s + random_.uniform(0.01, 0.05)
        seen = [at_s for at_s in signs if at_s <= shown_s]
        sign = {"m": Sign(store_ms(seen[-1]), len(seen) % 16)} if seen else {}
        member = Watched("m", 1, int(session_s * 1000), 60_000, 1)
        if lease.observe([member], sign, began_s, ended_s, rank, reference):
            assert began_s - signs[-1] >= session_s, f"seed {seed}: proposed early"
            return ended_s - signs[-1]
        due_s = max(lease.next_s([member], rank), ended_s + heartbeat_s / 10)
        began_s = min(began_s + heartbeat_s, due_s)
        began_s = max(began_s, ended_s)


@pytest.mark.parametrize(("grain_ms", "bound_s"), [(1, 6.6), (1_000, 8.0)], ids=["fine times", "whole seconds"])
def test_when_a_member_with_a_short_session_is_noticed(grain_ms: int, bound_s: float) -> None:
    """As docs/performance.md says it: a tenth of the session later, or 2 s where the store has whole seconds."""
    found = [min(noticed_s(seed, rank, grain_ms) for rank in range(3)) for seed in range(300)]
    assert max(found) <= bound_s
    # A store with whole seconds misses the goal of a tenth, as the page says.
    assert (max(found) > SHORT_S * 1.1) == (grain_ms == 1_000)


@pytest.mark.parametrize("session_s", [25.0, 45.0])
def test_a_member_with_a_longer_session_is_noticed_within_a_tenth_of_it(session_s: float) -> None:
    """Where the store has whole seconds, too: 45 s are the default."""
    found = [min(noticed_s(seed, rank, 1_000, session_s) for rank in range(3)) for seed in range(300)]
    assert max(found) <= session_s * 1.1
