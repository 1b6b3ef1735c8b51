"""The shortest trace of what may go wrong between members of a group, each driven against the real write loop."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from sparktxn._engine.format.commands import (
    Command,
    CommandResult,
    ExpireMember,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetToCommit,
    ReleasePartitions,
)
from sparktxn._foundation.values.structs import MemberState
from sparktxn.errors import CommandRefused, ErrorCode
from tests.groupcommands import Place, places
from tests.simulation.director import Act
from tests.simulation.scripted import LEFT, RIGHT, ScriptedWorld, entry_name

__all__ = ["TRACES"]

GROUP = "group"
TOPICS = ("left", "right")
Trace = Callable[[ScriptedWorld], None]
TRACES: list[Trace] = []
_requests = count()


def trace(function: Trace) -> Trace:
    TRACES.append(function)
    return function


def request() -> str:
    return f"of a member {next(_requests)}"


def join(stage: ScriptedWorld, member_id: str, *, instance_id: str = "", classic: bool = False) -> MemberState:
    stage.submit(JoinGroup(request(), GROUP, member_id, TOPICS, 1_000, 1_000, ("uniform",), classic, instance_id))
    return member_of(stage, member_id)


def members(stage: ScriptedWorld) -> dict[str, MemberState]:
    stage.calm.refresh()
    return {member.member_id: member for member in stage.calm.group_members(GROUP)}


def member_of(stage: ScriptedWorld, member_id: str) -> MemberState:
    found = members(stage).get(member_id)
    assert found is not None, f"{member_id} is not a member"
    return found


def commit(member: MemberState, place: Place, offset: int) -> OffsetCommit:
    """A commit with what `member` says, however old that is."""
    offsets = (OffsetToCommit(*place, offset),)
    return OffsetCommit(
        request(), GROUP, offsets, member.member_epoch, member.member_id, instance_id=member.instance_id
    )


def release(member: MemberState) -> ReleasePartitions:
    known = (member.member_epoch, member.changed_entry)
    return ReleasePartitions(request(), GROUP, member.member_id, *known, places(member.revoking))


def expire(member: MemberState, reason: str = "session") -> ExpireMember:
    seen = member.last_entry if reason == "session" else member.changed_entry
    return ExpireMember(GROUP, member.member_id, member.member_epoch, seen, reason, 1_000)


def on_its_way(stage: ScriptedWorld, *commands: Command) -> Act[list[CommandResult]]:
    """A process that has checked its commands against the state, and is paused before it puts them."""
    act = stage.submits(*commands)
    act.until("put_if_absent", entry_name(stage.calm.entry + 1))
    return act


def refused(act: Act[list[CommandResult]], *codes: ErrorCode) -> None:
    code = None
    try:
        act.finish()
    except CommandRefused as error:
        code = error.error.code()
    assert code in codes, f"expected a refusal with one of {codes}, found {code}"


def committed(stage: ScriptedWorld, place: Place) -> int | None:
    stage.calm.refresh()
    found = stage.calm.committed_offset(GROUP, *place)
    return None if found is None else found.offset


@trace
def a_member_that_lived_after_all(stage: ScriptedWorld) -> None:
    """An observer has seen it silent for its time-out; its sign of life wins the slot before the observer's entry."""
    member = join(stage, "m1")
    observer = on_its_way(stage, expire(member))
    stage.submit(commit(member, LEFT, 3))
    observer.finish()
    assert "m1" in members(stage), "a member was taken out that has lived"
    stage.submit(commit(member, LEFT, 4))
    stage.check_agreement()


@trace
def an_expiry_and_the_commit_that_came_too_late(stage: ScriptedWorld) -> None:
    """The member was paused before its put for longer than its session; another one has gone on meanwhile."""
    first = join(stage, "m1")
    late = on_its_way(stage, commit(first, LEFT, 3))
    stage.submit(expire(first))
    second = join(stage, "m2")
    stage.submit(commit(second, LEFT, 7))
    refused(late, ErrorCode.UNKNOWN_MEMBER_ID)
    assert committed(stage, LEFT) == 7
    stage.check_agreement()


@trace
def two_observers_and_a_member_that_comes_back(stage: ScriptedWorld) -> None:
    """Both propose what they have seen; between their entries the member has joined again."""
    member = join(stage, "m1")
    one, other = on_its_way(stage, expire(member)), on_its_way(stage, expire(member))
    one.finish()
    assert members(stage) == {}
    back = join(stage, "m1")
    other.finish()
    assert members(stage) == {"m1": back}, "a member was taken out for its earlier life"
    stage.check_agreement()


@trace
def a_static_member_twice(stage: ScriptedWorld) -> None:
    """The newcomer takes the place; the one before, paused with a commit on its way, is fenced."""
    first = join(stage, "m1", instance_id="i", classic=True)
    late = on_its_way(stage, commit(first, LEFT, 3))
    second = join(stage, "m2", instance_id="i", classic=True)
    assert list(members(stage)) == ["m2"], "an instance id has two members"
    assert places(second.assigned) == places(first.assigned), "partitions have moved"
    stage.submit(commit(second, LEFT, 7))
    refused(late, ErrorCode.FENCED_INSTANCE_ID)
    assert committed(stage, LEFT) == 7
    third = join(stage, "m1", instance_id="i", classic=True)
    with pytest.raises(CommandRefused):
        stage.submit(commit(first, LEFT, 4))
    stage.submit(commit(third, LEFT, 8))
    stage.check_agreement()


@trace
def a_hand_over_from_an_owner_that_has_died(stage: ScriptedWorld) -> None:
    """It is to give a partition back, and does not. Its last offsets and their release come too late, together."""
    first = join(stage, "m1")
    waiting = join(stage, "m2")
    assert places(waiting.assigned) == (), "a partition has two owners"
    owing = member_of(stage, "m1")
    (owed,) = places(owing.revoking)
    late = on_its_way(stage, commit(owing, owed, 9), release(owing))
    stage.submit(commit(first, owed, 5))
    stage.submit(expire(member_of(stage, "m1"), "rebalance"))
    assert places(member_of(stage, "m2").assigned) == (LEFT, RIGHT), "it is not given in the entry that frees it"
    refused(late, ErrorCode.UNKNOWN_MEMBER_ID)
    assert committed(stage, owed) == 5
    stage.check_agreement()


@trace
def a_group_that_has_crashed_as_a_whole(stage: ScriptedWorld) -> None:
    """A newcomer takes all out and goes on. One that wakes up and joins again commits nothing of its earlier life."""
    old = {member_id: join(stage, member_id) for member_id in ("m1", "m2")}
    stage.submit(release(member_of(stage, "m1")))
    old = {member_id: member_of(stage, member_id) for member_id in old}
    (kept,) = places(old["m1"].assigned)
    late = on_its_way(stage, commit(old["m1"], kept, 3))
    join(stage, "m3")
    for member_id in old:
        stage.submit(expire(member_of(stage, member_id)))
    newcomer = member_of(stage, "m3")
    assert places(newcomer.assigned) == (LEFT, RIGHT)
    stage.submit(commit(newcomer, kept, 7))
    join(stage, "m1")
    stage.submit(expire(member_of(stage, "m3")))
    assert places(member_of(stage, "m1").assigned) == (LEFT, RIGHT)
    refused(late, ErrorCode.STALE_MEMBER_EPOCH)
    assert committed(stage, kept) == 7, "a commit of an earlier life was accepted"
    stage.check_agreement()


@trace
def a_release_of_an_earlier_life(stage: ScriptedWorld) -> None:
    """It arrives when the member has joined again, reads the partition, and is to give it back once more."""
    join(stage, "m1")
    join(stage, "m2")
    late = on_its_way(stage, release(member_of(stage, "m1")))
    for member_id in ("m1", "m2"):
        stage.submit(expire(member_of(stage, member_id)))
    join(stage, "m1")
    join(stage, "m2")
    owing = member_of(stage, "m1")
    late.finish()
    assert member_of(stage, "m1").revoking == owing.revoking, "a partition was given away that its member reads"
    stage.check_agreement()


@trace
def a_release_that_comes_after_its_partition_was_given_again(stage: ScriptedWorld) -> None:
    """The one that waited for the partition has left meanwhile; its member reads on, and owes it to the next one."""
    join(stage, "m1")
    waiting = join(stage, "m2")
    late = on_its_way(stage, release(member_of(stage, "m1")))
    stage.submit(LeaveGroup(request(), GROUP, waiting.member_id))
    reading = member_of(stage, "m1")
    assert places(reading.assigned) == (LEFT, RIGHT)
    join(stage, "m3")
    late.finish()
    owed = places(member_of(stage, "m1").revoking)
    assert owed, "a partition was given away that its member reads"
    stage.submit(commit(reading, owed[0], 5))
    assert committed(stage, owed[0]) == 5
    stage.check_agreement()
