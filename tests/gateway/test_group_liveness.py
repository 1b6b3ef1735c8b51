"""Members of all protocols at two gateways, which lose answers: after the last change each partition gets one reader.

The members do what clients do. One of the newer protocol says what it owns when that has changed. It says everything
after an answer that it has not got, or that names no coordinator. It never acknowledges what it has not learnt.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Protocol

import pytest

from sparktxn._engine.format.commands import JoinGroup, LeaveGroup, ReleasePartitions
from sparktxn._engine.log.log import Log
from sparktxn._foundation.values.fieldtypes import TopicIdPartition
from sparktxn._programs.gateway.groups.classicgroups import ClassicGroups
from sparktxn._programs.gateway.groups.consumergroups import ConsumerGroups, MemberHeartbeat
from sparktxn._programs.gateway.groups.grouprosters import GroupRosters, Joining, places_of
from sparktxn._programs.gateway.groups.members import Members
from sparktxn._programs.gateway.wire.consumerprotocol import MemberSubscription
from sparktxn.errors import CommandRefused, ErrorCode
from sparktxn.store import Store
from tests.seeds import examples, seed_of

GROUP, TOPIC, PARTITIONS = "g", "t", 4
TIMEOUT_MS = 300_000
ROUNDS = 2
"""So many heartbeats of each member it may take; what a client sends at once is not counted."""


class Place:
    """A gateway, without its sockets."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.members = Members(log)
        roster = GroupRosters(log, self.members)
        self.roster = roster
        self.classic = ClassicGroups(log, self.members, roster)
        self.newer = ConsumerGroups(log, self.members, roster, TIMEOUT_MS)


class Reader(Protocol):
    """A member; it `reads` partitions, and `beat` returns whether it has something more to send at once."""

    reads: frozenset[TopicIdPartition]

    def beat(self, place: Place, *, is_lost: bool) -> bool: ...

    def leave(self, place: Place) -> None: ...


class Newer:
    """A member of Kafka's newer protocol."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._epoch = 0
        self._says_all, self._says_owned = True, False
        self.reads: frozenset[TopicIdPartition] = frozenset()

    def beat(self, place: Place, *, is_lost: bool) -> bool:
        joins = self._epoch == 0
        owned = self.reads if (self._says_all or self._says_owned) and not joins else None
        given = MemberHeartbeat(
            GROUP, self._name, self._epoch, "", "c", (TOPIC,) if self._says_all else None, None, None, TIMEOUT_MS, owned
        )
        try:
            answer = place.newer.heartbeat(given)
        except CommandRefused as refused:
            if refused.error.code() in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                self._epoch, self.reads = 0, frozenset()
            elif refused.error.code() != ErrorCode.NOT_COORDINATOR:
                raise
            self._says_all = True
            return not is_lost
        if is_lost:
            self._says_all = True
            return False
        self._says_all = self._says_owned = False
        self._epoch = answer.epoch
        if answer.partitions is not None and answer.partitions != self.reads:
            self.reads, self._says_owned = answer.partitions, True
        return self._says_owned

    def leave(self, place: Place) -> None:
        self.reads = frozenset()
        if self._epoch:
            place.newer.heartbeat(MemberHeartbeat(GROUP, self._name, -1, "", "c", None, None, None, -1, None))


class Classic:
    """A member of the classic protocol; a cooperative one goes on reading while it joins."""

    def __init__(self, name: str, *, is_cooperative: bool) -> None:
        self._name = name
        self._is_cooperative = is_cooperative
        self._generation = -1
        self.reads: frozenset[TopicIdPartition] = frozenset()

    def beat(self, place: Place, *, is_lost: bool) -> bool:
        try:
            if self._generation >= 0:
                place.classic.heartbeat(GROUP, self._name, "", self._generation)
                return False
            self._join(place, is_lost=is_lost)
        except CommandRefused as refused:
            if refused.error.code() != ErrorCode.REBALANCE_IN_PROGRESS:
                self.reads = frozenset()
            self._generation = -1
            return not is_lost
        return False

    def _join(self, place: Place, *, is_lost: bool) -> None:
        if not self._is_cooperative:
            self.reads = frozenset()
        names = place.log.topic_names()
        owned = frozenset((names[topic_id], number) for topic_id, number in self.reads)
        wanted = MemberSubscription(
            "cooperative-sticky" if self._is_cooperative else "range", ("uniform",), (TOPIC,), owned
        )
        place.members.expect(GROUP, self._name)
        place.log.refresh()
        joined = place.classic.join(Joining(GROUP, self._name, "", "c", TIMEOUT_MS, TIMEOUT_MS, needs_id=True), wanted)
        if is_lost:
            return
        found = place.classic.sync(GROUP, self._name, "", joined.generation, wanted.protocol)
        topic = place.log.topic(TOPIC)
        assert topic is not None
        new = frozenset((topic.topic_id, number) for _, number in found)
        self._generation = joined.generation
        gives_back = self.reads - new
        self.reads = new
        if gives_back:
            # A cooperative member joins once more after it has given something back.
            self._generation = -1
            self._join(place, is_lost=False)

    def leave(self, place: Place) -> None:
        self.reads = frozenset()
        place.log.refresh()
        if place.log.member(GROUP, self._name) is not None:
            place.roster.leave(GROUP, self._name, "")


class Native:
    """A consumer of the store itself, which reads the log and gives back at once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._has_joined = False
        self.reads: frozenset[TopicIdPartition] = frozenset()

    def beat(self, place: Place, *, is_lost: bool) -> bool:
        log = place.log
        if not self._has_joined:
            log.submit([JoinGroup(log.ids.token(), GROUP, self._name, (TOPIC,), TIMEOUT_MS, TIMEOUT_MS, ("uniform",))])
            self._has_joined = True
        log.refresh()
        state = log.member(GROUP, self._name)
        assert state is not None
        if state.revoking:
            self.reads = frozenset(places_of(state.assigned))
            named = (GROUP, self._name, state.member_epoch, state.changed_entry)
            log.submit([ReleasePartitions(log.ids.token(), *named, tuple(places_of(state.revoking)))])
            state = log.member(GROUP, self._name)
            assert state is not None
        self.reads = frozenset(places_of(state.assigned))
        return False

    def leave(self, place: Place) -> None:
        self.reads = frozenset()
        if self._has_joined:
            place.log.submit([LeaveGroup(place.log.ids.token(), GROUP, self._name)])


def new_reader(random: Random, name: str) -> Reader:
    kind = random.choice(("newer", "newer", "cooperative", "eager", "native"))
    if kind == "newer":
        return Newer(name)
    return Native(name) if kind == "native" else Classic(name, is_cooperative=kind == "cooperative")


def heartbeat(reader: Reader, random: Random, places: list[Place], *, loses: float = 0.0) -> None:
    """Have a member send its next heartbeat at either gateway, and at once what it has to send after it."""
    for _ in range(6):
        place = random.choice(places)
        place.log.refresh()  # heartbeats are seconds apart, and a state may be 0.1 s old
        if not reader.beat(place, is_lost=random.random() < loses):
            break


@pytest.mark.parametrize("turn", range(4))
def test_after_the_last_change_each_partition_has_one_reader(tmp_path: Path, turn: int) -> None:
    (tmp_path / "same").symlink_to(tmp_path / "store", target_is_directory=True)
    options = {"store.fsync": "false"}
    with (
        Store.open(str(tmp_path / "store"), create=True, options=options) as store,
        Store.open(str(tmp_path / "same"), create=True, options=options) as other,
    ):
        for example in range(examples(10, 200)):
            random = Random(seed_of(f"groups {turn} {example}", 1_000 * turn + example))
            _check_history(random, [Place(store.log), Place(other.log)], store, f"{turn}-{example}")


def _check_history(random: Random, places: list[Place], store: Store, name: str) -> None:
    readers: list[Reader] = []
    if store.log.topic(TOPIC) is None:
        store.create_topic(TOPIC, PARTITIONS)
    steps = random.randint(3, 30)
    for step in range(steps):
        # The last changes come between two heartbeats of the others.
        action = random.random() * (0.5 if step > steps - 4 else 1.0)
        if not readers or (action < 0.25 and len(readers) < 5):
            readers.append(new_reader(random, f"m{name}-{step}"))
            heartbeat(readers[-1], random, places)
        elif action < 0.45 and len(readers) > 1:
            readers.pop(random.randrange(len(readers))).leave(random.choice(places))
        else:
            heartbeat(random.choice(readers), random, places, loses=0.1)
    for _ in range(ROUNDS):
        for reader in random.sample(readers, len(readers)):
            heartbeat(reader, random, places)
    held = sorted(place for reader in readers for place in reader.reads)
    topic = store.log.topic(TOPIC)
    assert topic is not None
    try:
        assert held == [(topic.topic_id, number) for number in range(PARTITIONS)]
    finally:
        for reader in readers:
            reader.leave(places[0])


def test_a_restart_of_one_member_between_two_heartbeats_of_another(tmp_path: Path) -> None:
    """The log gives the leaver's partitions to the member, and takes them back before it has learnt of them."""
    with Store.open(str(tmp_path / "store"), create=True, options={"store.fsync": "false"}) as store:
        store.create_topic(TOPIC, PARTITIONS)
        place = Place(store.log)
        newer, first, second = Newer("newer"), Native("first"), Native("second")
        for reader in (newer, first, newer, newer, first, newer):
            reader.beat(place, is_lost=False)
        assert len(newer.reads) == len(first.reads) == PARTITIONS // 2
        first.leave(place)
        second.beat(place, is_lost=False)
        for _ in range(ROUNDS):
            newer.beat(place, is_lost=False)
            second.beat(place, is_lost=False)
        assert len(newer.reads) == len(second.reads) == PARTITIONS // 2
