"""Checkers of what a group's members did: each compares the answers with the log as it truly was.

A member's *tenure* is its time with a partition without a break. A commit is rightful if the tenure in which its member
has read the partition still lasts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Command, EndTxn, ExpireMember, OffsetCommit, TxnOffsetCommit
from sparktxn._engine.format.entry import decode_entry
from sparktxn._engine.state.delta import Context, Delta
from sparktxn._engine.state.machine import apply_entry
from sparktxn._foundation.values.structs import MemberState, StateKey
from tests.groupcommands import Place, check_group, holdings, places
from tests.simulation.groupprograms import GROUP, GroupCommit, GroupHistory, TransactionKey
from tests.simulation.truth import RecordedObjects

__all__ = ["GroupStep", "check_groups", "steps_of"]

Tenures = Mapping[Place, tuple[str, int]]
Members = Mapping[str, MemberState]


class GroupStep(Struct, frozen=True):
    """A command of the true log: the group's members and the tenures before and after it, and the state after it.

    A tenure is (member id, number of the command that began it).
    """

    entry: int
    command: Command
    before: Members
    after: Members
    tenures_before: Tenures
    tenures: Tenures
    records: Mapping[StateKey, Any]


def steps_of(objects: RecordedObjects) -> Iterator[GroupStep]:
    """The commands of the true log, one by one, from the empty store; `records` is changed with each."""
    records: dict[StateKey, Any] = {}
    tenures: dict[Place, tuple[str, int]] = {}
    number = step = 0
    while (data := objects.history.get(names.entry(number + 1))) is not None:
        number += 1
        entry = decode_entry(data, names.entry(number), number)
        for command in entry.commands:
            step += 1
            before, known = _members(records), dict(tenures)
            delta = Delta(records.get)
            apply_entry(delta, [command], Context(number, entry.timestamp_ms))
            for key, record in delta.changes.items():
                if record is None:
                    records.pop(key, None)
                else:
                    records[key] = record
            after = _members(records)
            if after != before:
                held = {place: id_ for id_, member in after.items() for place in holdings(member)}
                tenures = {
                    place: known[place] if known.get(place, ("", 0))[0] == id_ else (id_, step)
                    for place, id_ in held.items()
                }
            yield GroupStep(number, command, before, after, known, tenures, records)


def _members(records: Mapping[StateKey, Any]) -> Members:
    group = records.get(("group", GROUP))
    return {} if group is None else {id_: records["member", GROUP, id_] for id_ in group.members}


def check_groups(objects: RecordedObjects, history: GroupHistory) -> None:
    """All of them.

    Raises:
        AssertionError: a guarantee does not hold.
    """
    at: list[Tenures] = [{}]
    owners: dict[tuple[Place, int], str] = {}
    accepted, begun = set(), set()
    offsets: dict[tuple[str | int, ...], int] = {}
    ended: dict[TransactionKey, bool] = {}
    last: Members = {}
    for step in steps_of(objects):
        while len(at) <= step.entry:
            at.append(at[-1])
        command = step.command
        if isinstance(command, OffsetCommit) and command.request_id in history.commits:
            check_accepted(history.commits[command.request_id], step.tenures_before, at)
            accepted.add(command.request_id)
        elif isinstance(command, TxnOffsetCommit):
            key = (command.transactional_id, command.producer_epoch, command.transaction)
            check_accepted(history.transactions[key], step.tenures_before, at)
            begun.add(key)
        elif isinstance(command, EndTxn):
            check_consumed(history, command, offsets, ended)
        offsets = {key[2:]: record.offset for key, record in step.records.items() if key[:2] == ("offset", GROUP)}
        if step.after != step.before:
            check_group(step.records, GROUP)
            check_moves(step)
            check_handovers(step)
        check_expiry(step)
        at[step.entry] = step.tenures
        check_owners(step, owners)
        last = step.after
    for request_id, commit in history.commits.items():
        if commit.accepted is not None:
            is_in_the_log = request_id in accepted
            assert commit.accepted == is_in_the_log, f"{commit} was answered so, and in the log: {is_in_the_log}"
        if commit.accepted is False:
            check_refused(commit, at)
    for refused in history.refused:
        check_refused(refused, at)
    for key, transaction in history.transactions.items():
        if transaction.accepted is not None:
            assert transaction.accepted == (key in begun), f"{transaction} was answered so, in the log: {key in begun}"
        if transaction.committed is not None and transaction.accepted:
            assert transaction.committed == ended.get(key), f"{transaction} was answered so: {ended.get(key)}"
    check_rest(history, last, at[-1])


def check_consumed(
    history: GroupHistory,
    command: EndTxn,
    offsets: Mapping[tuple[str | int, ...], int],
    ended: dict[TransactionKey, bool],
) -> None:
    """What a transaction commits begins where the one before has ended: nothing is lost, and nothing comes twice."""
    epochs = [epoch for name, epoch, number in history.transactions if (name, number) == _named(command)]
    epoch = max((epoch for epoch in epochs if epoch <= command.producer_epoch), default=-1)
    key = (command.transactional_id, epoch, command.transaction)
    if key not in history.transactions or key in ended:
        return
    ended[key] = command.committed
    transaction = history.transactions[key]
    if command.committed:
        found = offsets.get(transaction.place, 0)
        assert found == transaction.begins, f"{transaction} is committed where the group stands at {found}"


def _named(command: EndTxn) -> tuple[str, int]:
    return (command.transactional_id, command.transaction)


def check_accepted(commit: GroupCommit, tenures: Tenures, at: list[Tenures]) -> None:
    """A commit is accepted from the member that still holds the partition as it knew."""
    then, now = at[commit.known_entry].get(commit.place), tenures.get(commit.place)
    assert now is not None, f"{commit} was accepted, and no member holds the partition"
    assert now[0] == commit.member_id, f"{commit} was accepted, and {now[0]} holds the partition"
    assert then == now, f"{commit} was accepted for a tenure that had ended: {then}, {now}"


def check_refused(commit: GroupCommit, at: list[Tenures]) -> None:
    """A commit is not refused as long as its member's tenure lasts."""
    then = at[commit.known_entry].get(commit.place)
    now = at[min(commit.answered_entry, len(at) - 1)].get(commit.place)
    assert then is None or then != now, f"{commit} was refused, and its member holds the partition"


def check_owners(step: GroupStep, owners: dict[tuple[Place, int], str]) -> None:
    """Of a partition and an assignment epoch there is one owner, in all the group's lives."""
    for id_, member in step.after.items():
        if member is step.before.get(id_):
            continue
        for place, since in holdings(member).items():
            if since < step.entry:  # else the entry is not over
                owner = owners.setdefault((place, since), id_)
                assert owner == id_, f"{place} belongs to {owner} and to {id_} since epoch {since}"


def check_handovers(step: GroupStep) -> None:
    """A member loses a partition when it gives it back, or is not a member any more."""
    for place, tenure in step.tenures_before.items():
        owner = step.after.get(tenure[0])
        if step.tenures.get(place) == tenure or owner is None:
            continue
        is_new = holdings(step.before[tenure[0]])[place] == step.entry
        own = getattr(step.command, "member_id", "") == tenure[0]
        assert own or owner.left or is_new, (
            f"{step.command} takes {place} from {tenure[0]}, which reads it and has not given it back"
        )


def check_expiry(step: GroupStep) -> None:
    """A member that is taken out is the one that the proposer has seen."""
    command = step.command
    if isinstance(command, ExpireMember) and command.member_id not in step.after:
        member = step.before[command.member_id]
        sign = member.last_entry if command.reason == "session" else member.changed_entry
        assert sign == command.last_entry, f"{command} takes out a member that had given a sign of life in entry {sign}"


def check_moves(step: GroupStep) -> None:
    """With equal subscriptions no partition changes its target without need."""
    after, before = step.after, dict(step.before)
    subscriptions = {member.topics for member in after.values()}
    if len(subscriptions) != 1 or all(member.assignors[0] != "uniform" for member in after.values()):
        return
    for id_, member in after.items():
        # A static member takes the place of the one before.
        gone = [old for old in step.before.values() if old.instance_id and old.instance_id == member.instance_id]
        if id_ not in before and gone:
            before[id_] = gone[0]
    existing = {place for member in after.values() for place in member.target}
    targets = {id_: existing & set(before[id_].target) if id_ in before else set() for id_ in after}
    stayed = sum(len(targets[id_] & set(member.target)) for id_, member in after.items())
    low, longer = divmod(len(existing), len(after))
    quotas = [low + (rank < longer) for rank in range(len(after))]
    most = sum(map(min, sorted(map(len, targets.values()), reverse=True), quotas))
    assert stayed == most, f"{step.command} of entry {step.entry} keeps {stayed} targets, and could keep {most}"


def check_rest(history: GroupHistory, last: Members, tenures: Tenures) -> None:
    """When all is quiet, the live members have all partitions."""
    assert sorted(last) == sorted(history.live.values())
    wanted: Iterable[Place] = sorted(place for member in last.values() for place in member.target)
    assert sorted(tenures) == list(wanted)
    for member in last.values():
        assert places(member.assigned) == member.target
