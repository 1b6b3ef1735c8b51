"""Groups under faults: the scenario meets what it is for, the traces hold, and builds without a rule break them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from sparktxn._engine.format.commands import ExpireMember, JoinGroup, LeaveGroup, ReleasePartitions
from sparktxn._engine.log.log import Log
from sparktxn._engine.state.groups import groups, reconciliation
from sparktxn._engine.state.groups.reconciliation import Roster
from sparktxn._engine.state.rules import RULES
from tests.handlers import handle
from tests.simulation import grouptraces as traces
from tests.simulation.groupcheckers import steps_of
from tests.simulation.scenarios import record_groups
from tests.simulation.scripted import ScriptedWorld
from tests.simulation.simulate import run_seeds

pytestmark = pytest.mark.simulation

Patch = pytest.MonkeyPatch
Builder = Callable[[Patch], None]


def test_the_scenario_meets_what_it_is_for() -> None:
    met: Counter[str] = Counter()
    expected = {"accepted", "refused", "expired: session", "expired: rebalance", "left, and keeps its place"}
    expected |= {"took a place", "gave back", "consumed", "aborted", "transactional, refused"}
    for seed in range(12):
        simulator, history = record_groups(seed)
        for commit in history.commits.values():
            met["accepted"] += commit.accepted is True
            met["refused"] += commit.accepted is False
        met["transactional, refused"] += len(history.refused)
        for transaction in history.transactions.values():
            met["consumed"] += transaction.committed is True
            met["aborted"] += transaction.committed is False
        for step in steps_of(simulator.shared):
            command = step.command
            if isinstance(command, ExpireMember):
                met[f"expired: {command.reason}"] += 1
            elif isinstance(command, LeaveGroup):
                met["left, and keeps its place"] += command.keeps_place and command.member_id in step.after
            elif isinstance(command, JoinGroup):
                met["took a place"] += len(step.after) == len(step.before) and command.member_id not in step.before
            elif isinstance(command, ReleasePartitions):
                met["gave back"] += step.before != step.after
        if all(met[what] > 2 for what in expected):
            return
    raise AssertionError(f"too few of {expected}: {met}")


@pytest.mark.parametrize("trace", traces.TRACES, ids=lambda trace: trace.__name__)
def test_a_trace_holds(stage: ScriptedWorld, trace: traces.Trace) -> None:
    trace(stage)


def without_the_last_sign(patch: Patch) -> None:
    """A member expires whatever it has done since."""
    handler = RULES[ExpireMember].handler

    def expire(delta: Any, command: ExpireMember, context: Any) -> Any:
        member = delta.get(("member", command.group_id, command.member_id))
        if member is not None:
            command = replace(command, last_entry=member.last_entry, member_epoch=member.member_epoch)
        return handler(delta, command, context)

    handle(patch, ExpireMember, expire)


def without_fencing(patch: Patch) -> None:
    """A commit is taken from any consumer."""
    patch.setattr(groups, "check_member", lambda delta, command, fenced_code: None)
    patch.setattr(groups, "note_sign_of_life", lambda delta, command, context: None)


def without_assignment_epochs(patch: Patch) -> None:
    """A commit is taken from the member that holds the partition, whatever it knows."""
    check = groups.check_member

    def any_epoch(delta: Any, command: Any, fenced_code: Any) -> Any:
        member = delta.get(("member", command.group_id, command.member_id))
        epoch = command.generation_id if member is None else member.member_epoch
        return check(delta, replace(command, generation_id=epoch), fenced_code)

    patch.setattr(groups, "check_member", any_epoch)


def without_one_member_of_an_instance_id(patch: Patch) -> None:
    patch.setattr(Roster, "holder_of", lambda self, instance_id: None)


def without_waiting_for_what_is_held(patch: Patch) -> None:
    """A partition belongs to its next owner at once."""
    patch.setattr(reconciliation._Kept, "holds", lambda self, member, held: False)


def without_entries_of_releases(patch: Patch) -> None:
    """A release counts whatever the member owes since it was asked."""
    handler = RULES[ReleasePartitions].handler

    def release(delta: Any, command: ReleasePartitions, context: Any) -> Any:
        member = delta.get(("member", command.group_id, command.member_id))
        if member is not None:
            command = replace(command, changed_entry=member.changed_entry)
        return handler(delta, command, context)

    handle(patch, ReleasePartitions, release)


def without_waiting_for_open_transactions(patch: Patch) -> None:
    """A new owner begins at the committed offset, whatever a transaction of the owner before has for it."""
    patch.setattr(Log, "pending_offsets", lambda self, group_id, topic_id, partition: ())


BUILDS: list[tuple[Builder, traces.Trace]] = [
    (without_the_last_sign, traces.a_member_that_lived_after_all),
    (without_the_last_sign, traces.two_observers_and_a_member_that_comes_back),
    (without_fencing, traces.an_expiry_and_the_commit_that_came_too_late),
    (without_one_member_of_an_instance_id, traces.a_static_member_twice),
    (without_waiting_for_what_is_held, traces.a_hand_over_from_an_owner_that_has_died),
    (without_assignment_epochs, traces.a_group_that_has_crashed_as_a_whole),
    (without_entries_of_releases, traces.a_release_of_an_earlier_life),
    (without_entries_of_releases, traces.a_release_that_comes_after_its_partition_was_given_again),
]


@pytest.mark.parametrize(
    ("without", "trace"), [pytest.param(*build, id=f"{build[0].__name__}-{build[1].__name__}") for build in BUILDS]
)
def test_a_build_without_the_rule_breaks_its_trace(
    monkeypatch: Patch, stage: ScriptedWorld, without: Builder, trace: traces.Trace
) -> None:
    without(monkeypatch)
    with pytest.raises(AssertionError):
        trace(stage)


def test_every_trace_breaks_without_a_rule() -> None:
    assert {trace for _, trace in BUILDS} == set(traces.TRACES)


@pytest.mark.parametrize(
    ("without", "seeds", "broken"),
    [
        (without_fencing, range(6), "was accepted"),
        (without_waiting_for_what_is_held, range(6), "and has not given it back"),
        (without_waiting_for_open_transactions, (16, 42, 74), "is committed where the group stands at"),
    ],
)
def test_a_build_without_a_rule_fails_histories(
    monkeypatch: Patch, without: Builder, seeds: Sequence[int], broken: str
) -> None:
    without(monkeypatch)
    failures = [error for _, _, error in run_seeds("groups", seeds).failures]
    assert failures
    assert any(broken in error for error in failures), failures
