"""Assignors: how a group's partitions are divided among its members, after Kafka's `uniform` and `range` (KIP-848).

They are pure functions of their arguments. Members come in one order in every process, and partitions are compared as
pairs of integers, so that every process computes the same targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from sparktxn._foundation.values.fieldtypes import TopicIdPartition

Topics = Mapping[str, tuple[int, int]]
"""The existing topics by name: topic id and partition count."""

Targets = list[tuple[TopicIdPartition, ...]]


class Subscriber(NamedTuple):
    """A member as an assignor sees it: the topics that it subscribes to, its target before, and what it holds."""

    topics: tuple[str, ...]
    target: tuple[TopicIdPartition, ...] = ()
    held: frozenset[TopicIdPartition] = frozenset()


Assignor = Callable[[Sequence[Subscriber], Topics], Targets]


def uniform_targets(members: Sequence[Subscriber], topics: Topics) -> Targets:
    """Return the members' new targets: balanced first, then with as few moves as possible.

    With equal subscriptions no two members differ by more than one partition. With unequal ones no single move would
    make the targets more even.
    """
    subscriptions = {member.topics for member in members}
    names = {frozenset(name for name in subscribed if name in topics) for subscribed in subscriptions}
    if len(names) == 1:
        return _balanced(members, _places(topics, *names))
    return _spread(members, topics)


def range_targets(members: Sequence[Subscriber], topics: Topics) -> Targets:
    """Return the members' new targets: of each topic a run of partitions, longer by one for the first members.

    Topics with equal partition counts and subscribers are co-partitioned: one member gets the same numbers of each.
    """
    found: list[list[TopicIdPartition]] = [[] for _ in members]
    for name, subscribed in _subscribers(members, topics).items():
        topic_id, partition_count = topics[name]
        length, longer = divmod(partition_count, len(subscribed))
        first = 0
        for rank, index in enumerate(subscribed):
            end = first + length + (rank < longer)
            found[index] += [(topic_id, partition) for partition in range(first, end)]
            first = end
    return _sorted_targets(found)


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform_targets, "range": range_targets}
"""By the names that members give; the first one is the default."""


def _sorted_targets(found: Iterable[Iterable[TopicIdPartition]]) -> Targets:
    return [tuple(sorted(places)) for places in found]


def _places(topics: Topics, names: Iterable[str]) -> list[TopicIdPartition]:
    """Return all partitions of the named topics, sorted."""
    chosen = sorted(topics[name] for name in names)
    return [(topic_id, partition) for topic_id, count in chosen for partition in range(count)]


def _subscribers(members: Sequence[Subscriber], topics: Topics) -> dict[str, list[int]]:
    """Return the indexes of each existing topic's subscribers; topics without one are left out."""
    found: dict[str, list[int]] = {}
    for index, member in enumerate(members):
        for name in member.topics:
            if name in topics:
                found.setdefault(name, []).append(index)
    return found


def _balanced(members: Sequence[Subscriber], places: Sequence[TopicIdPartition]) -> Targets:
    """Divide `places` among members that all subscribe to them."""
    wanted = set(places)
    found = [[place for place in member.target if place in wanted] for member in members]
    low, longer = divmod(len(places), len(members))
    quotas = [low] * len(members)
    # The members that have most keep one more: that way fewest partitions move.
    for index in sorted(range(len(members)), key=lambda index: -len(found[index]))[:longer]:
        quotas[index] += 1
    for index, member in enumerate(members):
        _keep(found[index], quotas[index], member.held)
    free = wanted.difference(*found)
    for index, member in enumerate(members):
        # A member that has not given a partition back yet need not do it.
        returned = sorted(member.held & free)[: quotas[index] - len(found[index])] if free else []
        found[index] += returned
        free.difference_update(returned)
    _deal(found, quotas, sorted(free))
    return _sorted_targets(found)


def _keep(places: list[TopicIdPartition], count: int, held: frozenset[TopicIdPartition]) -> None:
    """Shorten `places` to `count`; partitions that the member does not hold yet leave first."""
    if len(places) > count:
        places.sort(key=lambda place: (place not in held, place))
        del places[count:]


def _deal(found: Sequence[list[TopicIdPartition]], quotas: Sequence[int], free: Iterable[TopicIdPartition]) -> None:
    """Give one partition after the other to the members that have room, in turns."""
    rest = iter(free)
    having_room = [index for index in range(len(found)) if len(found[index]) < quotas[index]]
    while having_room:
        for index in having_room:
            found[index] += [next(rest)]
        having_room = [index for index in having_room if len(found[index]) < quotas[index]]


def _spread(members: Sequence[Subscriber], topics: Topics) -> Targets:
    """Divide the partitions of all topics among members with unequal subscriptions."""
    subscribers = _subscribers(members, topics)
    # Topics with few subscribers leave the least choice, so they come first.
    names = sorted(subscribers, key=lambda name: (len(subscribers[name]), topics[name]))
    owned: dict[str, dict[int, list[TopicIdPartition]]] = {
        name: {index: [] for index in subscribers[name]} for name in names
    }
    sizes = [0] * len(members)
    owners = {place: index for index, member in enumerate(members) for place in member.target}
    holders = {place: index for index, member in enumerate(members) for place in member.held}
    homeless: list[tuple[str, TopicIdPartition]] = []
    for name in names:
        for place in _places(topics, (name,)):
            index = owners.get(place, -1)
            if index in owned[name]:
                owned[name][index] += [place]
                sizes[index] += 1
            else:
                homeless += [(name, place)]
    for name, place in homeless:
        least = min(owned[name], key=lambda index: (sizes[index], index))
        holder = holders.get(place, -1)
        if holder in owned[name] and sizes[holder] <= sizes[least]:
            least = holder
        owned[name][least] += [place]
        sizes[least] += 1
    moved = True
    while moved:
        moved = False
        for name in names:
            moved = _even(owned[name], sizes, members) or moved
    return _sorted_targets(
        [place for name in members[index].topics if name in owned for place in owned[name][index]]
        for index in range(len(members))
    )


def _even(owned: dict[int, list[TopicIdPartition]], sizes: list[int], members: Sequence[Subscriber]) -> bool:
    """Move partitions of one topic while that makes the targets more even; return True if one was moved."""
    moved = False
    while True:
        # A topic has a partition, and each of them an owner.
        most = max((index for index in owned if owned[index]), key=lambda index: (sizes[index], index))
        least = min(owned, key=lambda index: (sizes[index], index))
        if sizes[most] <= sizes[least] + 1:
            return moved
        places = owned[most]
        held = members[most].held
        places.sort(key=lambda place: (place not in held, place))
        owned[least] += [places.pop()]
        sizes[most] -= 1
        sizes[least] += 1
        moved = True
