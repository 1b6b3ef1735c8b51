"""Dividing a group's partitions, and applying the entry that does; and a rebalance of consumers on a local disk."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.figures import Figure, median
from bench.records import temporary_folder
from sparktxn import Consumer, Store
from sparktxn._engine.format.commands import JoinGroup
from sparktxn._engine.state.delta import Context, Delta
from sparktxn._engine.state.groups.assignors import Subscriber, Topics, uniform_targets
from sparktxn._engine.state.machine import Applied, apply_list
from sparktxn._foundation.values.structs import (
    GroupState,
    HeldPartition,
    MemberState,
    StateKey,
    StateRecord,
    TopicState,
)

__all__ = ["measure"]

_TRIES = 5
_SIZES = ((100, 1_000), (1_000, 10_000))
_TARGETS_MS = {("divide", 1_000): 100.0, ("apply", 100): 10.0}
"""By what is measured and the number of members."""
_REBALANCE_S = 2.0
_PASS_S = 0.02
_ENTRIES_MAX = 3


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
    return figures + _rebalances()


class _Consumers:
    """Consumers of one group in this process, which one thread polls in turn, with fsync."""

    def __init__(self, uri: str, members: int, partitions: int) -> None:
        self._uri, self._partitions = uri, partitions
        self.store = Store.open(uri, create=True)
        self.store.create_topic("t", partitions)
        self._consumers = [self._consumer() for _ in range(members)]
        self._settle()

    def _consumer(self) -> Consumer:
        settings = {"group.id": "g", "partition.assignment.strategy": "cooperative-sticky"}
        consumer = Consumer({"bootstrap.servers": self._uri, **settings})
        consumer.subscribe(["t"])
        return consumer

    def entry(self) -> int:
        return self.store.log.refresh()

    def _settle(self) -> None:
        """Poll all until the group's state gives each its share, and none owes a partition."""
        while True:
            for consumer in self._consumers:
                consumer.poll(0)
            self.entry()
            members = self.store.log.group_members("g")
            is_shared = all(len(member.assigned) == len(member.target) and not member.revoking for member in members)
            if is_shared and len(members) == len(self._consumers):
                return
            time.sleep(_PASS_S)

    def restart_one(self) -> tuple[float, float, int]:
        """A member leaves, and another joins: the seconds of both rebalances, and the entries of both together."""
        before = self.entry()
        left_s = self._seconds(lambda: self._consumers.pop(0).close())
        joined_s = self._seconds(lambda: self._consumers.append(self._consumer()))
        return left_s, joined_s, self.entry() - before

    def _seconds(self, change: Callable[[], None]) -> float:
        started = time.perf_counter()
        change()
        self._settle()
        return time.perf_counter() - started

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()
        self.store.close()


def _rebalances() -> list[Figure]:
    members, partitions = _SIZES[0]
    with temporary_folder() as folder:
        consumers = _Consumers(f"{folder}/store", members, partitions)
        try:
            found = [consumers.restart_one() for _ in range(_TRIES)]
        finally:
            consumers.close()
    left_s, joined_s, entries = (list(column) for column in zip(*found, strict=True))
    size = f"{members} members, {partitions:,} partitions"
    rebalances = (("a member leaves", left_s), ("one joins", joined_s))
    figures = [
        Figure(f"rebalance, {what}, {size}", median(times), "s", _REBALANCE_S, True, _range(times, ".2f"))
        for what, times in rebalances
    ]
    of_both = _range(entries, "")
    return [*figures, Figure(f"entries of a restart, {size}", median(entries), "entries", _ENTRIES_MAX, True, of_both)]


def _range(values: list[float], shown: str) -> str:
    return f"{min(values):{shown}} to {max(values):{shown}}"


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
        assert isinstance(apply_list(Delta(records.get), [join], Context(2, 1)), Applied)

    return _median_ms(apply)
