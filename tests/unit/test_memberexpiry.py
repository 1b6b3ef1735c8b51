"""Overdue members by the object store's clock: the newest sign counts, and few entries are asked for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn.store import memberexpiry as module
from sparktxn.store.memberexpiry import OverdueMember, Sign, Watched, overdue_by_store_clock
from tests.seeds import examples

NOW_MS = 1_000_000
SESSION_MS, REBALANCE_MS = 45_000, 300_000


def watched(name: str = "m", last_entry: int = 4, revoking_since: int = 0) -> Watched:
    return Watched(name, 3, SESSION_MS, REBALANCE_MS, last_entry, revoking_since)


def judged(member: Watched, sign_ms: int | None, **entries_ms: int) -> list[tuple[str, int]]:
    """What is found of one member. `e4` is when entry 4 was written."""
    signs = {} if sign_ms is None else {member.member_id: Sign(sign_ms, 1)}
    times = {int(name[1:]): at_ms for name, at_ms in entries_ms.items()}
    return [(late.reason, late.after_ms) for late in overdue_by_store_clock([member], signs, times.get, NOW_MS)]


def test_the_newer_of_object_and_entry_counts() -> None:
    old, young = NOW_MS - 46_001, NOW_MS - 46_000
    older = NOW_MS - 50_000
    assert judged(watched(), old, e4=older) == judged(watched(), older, e4=old) == [("session", 46_001)]
    assert judged(watched(), young, e4=old) == judged(watched(), old, e4=young) == []
    assert judged(watched(), None, e4=old) == [("session", 46_001)]


def test_a_member_that_lives_and_owes_partitions_for_too_long_is_overdue() -> None:
    member = watched(revoking_since=2)
    assert judged(member, NOW_MS, e4=NOW_MS, e2=NOW_MS - 301_001) == [("rebalance", 301_001)]
    assert judged(member, NOW_MS, e4=NOW_MS, e2=NOW_MS - 301_000) == []
    assert judged(member, None, e4=NOW_MS - 400_000, e2=NOW_MS - 500_000) == [("session", 400_000)]


def test_nothing_is_known_without_times() -> None:
    assert judged(watched(), 1) == judged(watched(), None) == judged(watched(), None, e4=0) == []
    assert overdue_by_store_clock([watched()], {}, lambda entry: 1, 0) == []


def test_the_store_gives_whole_seconds_so_that_a_second_more_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(watched(), NOW_MS - SESSION_MS - 1_000, e4=1) == []
    monkeypatch.setattr(module, "_MARGIN_MS", 0)
    assert judged(watched(), NOW_MS - SESSION_MS - 1_000, e4=1) != []


_member = st.tuples(
    st.integers(1, 60),
    st.integers(0, 60),
    st.sampled_from((5_000, 20_000)),
    st.none() | st.integers(NOW_MS - 60_000, NOW_MS),
)


@settings(max_examples=examples(60, 2_000))
@given(st.lists(_member, max_size=12), st.lists(st.integers(0, 60_000), min_size=61, max_size=61))
def test_what_is_found_is_what_every_entrys_time_says(
    members: list[tuple[int, int, int, int | None]], ages_ms: list[int]
) -> None:
    times = dict(enumerate(NOW_MS - age for age in sorted(ages_ms, reverse=True)))
    given_ = [
        Watched(f"m{number:02}", 1, timeout_ms, timeout_ms, entry, since)
        for number, (entry, since, timeout_ms, _) in enumerate(members)
    ]
    signs = {f"m{number:02}": Sign(sign, 1) for number, (*_, sign) in enumerate(members) if sign is not None}
    found = overdue_by_store_clock(given_, signs, times.get, NOW_MS)
    expected = []
    for member in given_:
        silent_ms = NOW_MS - max(times[member.last_entry], signs.get(member.member_id, Sign()).modified_ms)
        if silent_ms > member.session_timeout_ms + 1_000:
            expected.append((member.member_id, "session", silent_ms))
        elif member.revoking_since:
            owed_ms = NOW_MS - times[member.revoking_since]
            if owed_ms > member.rebalance_timeout_ms + 1_000:
                expected.append((member.member_id, "rebalance", owed_ms))
    assert [(late.member.member_id, late.reason) for late in found] == [one[:2] for one in expected]
    # What is proposed was measured: it may be less than the silence, and is more than the time-out.
    for late, (_, _, most_ms) in zip(found, expected, strict=True):
        assert late.member.session_timeout_ms < late.after_ms <= most_ms


def test_of_many_members_few_entries_are_asked_for() -> None:
    asked: list[int] = []

    def written_ms(entry: int) -> int:
        asked.append(entry)
        return NOW_MS - 100_000 + 100 * entry

    members = [watched(f"m{number}", last_entry=number) for number in range(1, 1_001)]
    found: list[OverdueMember] = overdue_by_store_clock(members, {}, written_ms, NOW_MS)
    assert len(found) == 539
    assert len(asked) <= 20
