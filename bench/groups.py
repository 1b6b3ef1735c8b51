"""Dividing a group's partitions, and applying the entry that does: milliseconds, and how many partitions move."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.figures import Figure, median
from sparktxn.format.commands import JoinGroup
from sparktxn.state.assignors import Subscriber, Topics, uniform_targets
from sparktxn.state.delta import Context
from sparktxn.state.machine import Applied, apply_list
from sparktxn.structs import GroupState, HeldPartition, MemberState, StateKey, StateRecord, TopicState

__all__ = ["measure"]

_TRIES = 5
_SIZES = ((100, 1_000), (1_000, 10_000))
_TARGETS_MS = {("divide", 1_000): 100.0, ("apply", 100): 10.0}
"""By what is measured and the number of members."""


def _median_ms(work: Callable[[], object]) -> float:
    times = []
    for _ in range(_TRIES):
        started = time.perf_counter()
        work()
        times.append((time.perf_counter() - started) * 1_000)
    return median(times)


def measure() -> list[Figure]:
    """For each size: a member joins a group in which each member has what it is to have."""
    figures = []
    for members, partitions in _SIZES:
        topics: Topics = {"t": (1, partitions)}
        targets = uniform_targets([Subscriber(("t",))] * members, topics)
        subscribers = [*(Subscriber(("t",), target, frozenset(target)) for target in targets), Subscriber(("t",))]
        after = uniform_targets(subscribers, topics)
        moved = sum(len(set(one) - set(other)) for one, other in zip(targets, after, strict=False))
        size = f"{members:,} members, {partitions:,} partitions"
        divide_ms = _median_ms(lambda: uniform_targets(subscribers, topics))  # noqa: B023 - called at once
        figures.append(
            Figure(f"divide among {size}", divide_ms, "ms", _TARGETS_MS.get(("divide", members)), at_most=True)
        )
        apply_ms = _join_ms(targets, partitions)
        figures.append(
            Figure(f"apply a join, {size}", apply_ms, "ms", _TARGETS_MS.get(("apply", members)), at_most=True)
        )
        least = partitions // (members + 1)
        figures.append(Figure(f"partitions that move, {size}", moved, "partitions", least, at_most=True))
    return figures


def _join_ms(targets: list[tuple[tuple[int, int], ...]], partitions: int) -> float:
    """The time of applying a join to the state in which the members hold their targets."""
    members = [
        MemberState(
            group_id="g",
            member_id=f"m{number:05}",
            instance_id="",
            client_id="",
            host="",
            topics=("t",),
            session_timeout_ms=45_000,
            rebalance_timeout_ms=300_000,
            assignors=("uniform",),
            classic=False,
            member_epoch=1,
            target=target,
            assigned=tuple(HeldPartition(*place, 1) for place in target),
        )
        for number, target in enumerate(targets)
    ]
    topic = TopicState("t", 1, partitions, {}, None, 1)
    group = GroupState("g", 1, "uniform", tuple(member.member_id for member in members))
    records: dict[StateKey, StateRecord] = {record.key: record for record in (*members, topic, group)}
    join = JoinGroup("r", "g", "new", ("t",), 45_000, 300_000, ("uniform",))

    def apply() -> None:
        assert isinstance(apply_list(records.get, [join], Context(2, 1)), Applied)

    return _median_ms(apply)
