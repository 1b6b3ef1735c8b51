"""Consumer groups under random schedules: members that join, follow late, commit late, leave, expire and come back.

After every entry the records fit each other, and equal those of a replay that knows PROTOCOL.md alone. A commit is
accepted if, and only if, its member has held the partition since the state that it knew without a break.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec import Struct, field

from sparktxn._engine.format.commands import Command, CreatePartitions, CreateTopic, DeleteTopic
from sparktxn._foundation.values.structs import TopicState
from sparktxn.errors import CommandRefused, ErrorCode
from tests.compatibility.independent_reader import LONG, MEMBERS
from tests.compatibility.independent_replay import Replay, key_of
from tests.groupcommands import GroupLog, Place, check_group, holdings, places
from tests.seeds import examples

TOPICS = ("a", "b", "c")
INSTANCES = ("", "", "", "", "one", "two")
_encode = msgspec.json.Encoder().encode

Tenure = tuple[str, int]
"""A member's time with a partition: the member id, and the entry that gave it the partition."""


class Knowledge(Struct, frozen=True):
    """What a client has read of the state: its epoch, and its time with each partition."""

    epoch: int
    tenures: dict[Place, Tenure]


class Client(Struct):
    """A process with a member id. It reads what it knows to be its own."""

    member_id: str
    topics: tuple[str, ...]
    instance_id: str
    classic: bool
    known: Knowledge
    reading: set[Place] = field(default_factory=set)


class Schedule:
    """A group, its clients, and commits that are under way."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.log = GroupLog()
        self.replay = Replay()
        self.clients: dict[str, Client] = {}
        self.tenures: dict[Place, Tenure] = {}
        self.late: list[tuple[str, str, Knowledge, Place]] = []
        self.joined = 0
        self.seen: dict[str, int] = {}
        for name in TOPICS[: rng.randint(1, 3)]:
            self.submit(CreateTopic(f"create {name}", name, rng.randint(1, 5)))

    def note(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1

    def submit(self, *commands: Command) -> int | None:
        """The code of the refusal, or None; checks the records that the entry leaves."""
        entry = self.log.entry
        try:
            self.log.submit(*commands)
        except CommandRefused as refused:
            return refused.error.code()
        if self.log.entry > entry:
            self.applied()
        return None

    def applied(self) -> None:
        check_group(self.log.records, self.log.group_id)
        (context, commands) = self.log.entries[-1]
        self.replay.apply(context.entry, context.timestamp_ms, [long_form(command) for command in commands])
        expected = [json.loads(_encode(record)) for record in self.log.records.values()]
        assert self.replay.records == {key_of(record): record for record in expected}
        held = {place: id_ for id_, member in self.log.members().items() for place in holdings(member)}
        for place, id_ in held.items():
            if self.tenures.get(place, ("", 0))[0] != id_:
                self.tenures[place] = (id_, self.log.entry)
        self.tenures = {place: tenure for place, tenure in self.tenures.items() if place in held}

    def follow(self, client: Client) -> None:
        """The client reads the state, gives back what it is asked for, and reads what it has then."""
        member = self.log.members().get(client.member_id)
        if member is None:
            client.reading = set()
            return
        client.reading &= set(places(member.assigned))
        if member.revoking:
            commits: list[Command] = []
            if self.rng.random() < 0.5:
                owed = places(member.revoking)
                commits = [self.log.committing(client.member_id, member.member_epoch, *owed)]
            assert self.submit(*commits, self.log.releasing(client.member_id)) is None
            member = self.log.member(client.member_id)
        own = {place: tenure for place, tenure in self.tenures.items() if tenure[0] == client.member_id}
        client.known = Knowledge(member.member_epoch, own)
        client.reading = set(places(member.assigned))

    def commit(self, member_id: str, instance_id: str, known: Knowledge, place: Place) -> None:
        # What a member has still to give back of a topic that was deleted, it holds, and commits no offset of.
        exists = any(isinstance(one, TopicState) and one.topic_id == place[0] for one in self.log.records.values())
        rightful = exists and self.tenures.get(place) == known.tenures[place]
        code = self.submit(self.log.committing(member_id, known.epoch, place, instance_id=instance_id))
        assert (code is None) == rightful, f"{member_id} commits {place} of {known}: {code}, {self.tenures}"
        self.note("accepted" if code is None else "refused")
        if code is not None:
            expected = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION}
            expected |= {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert code in expected

    def some_topics(self) -> tuple[str, ...]:
        return self.rng.choice([("a",), ("a",), ("a", "b"), ("b", "c"), ("a", "b", "c"), ("missing",)])

    def step(self) -> None:
        rng, log = self.rng, self.log
        action = rng.random()
        if action < 0.12 or not self.clients:
            self.join_new()
            return
        client = self.clients[rng.choice(sorted(self.clients))]
        member = log.members().get(client.member_id)
        if action < 0.18:
            self.submit(log.leaving(client.member_id, keeps_place=rng.random() < 0.5))
            del self.clients[client.member_id]
        elif action < 0.24 and member is not None:
            reason = rng.choice(["session", "rebalance"])
            other = {} if rng.random() < 0.7 else {"last_entry": log.entry - 1}
            if self.submit(log.expiring(client.member_id, reason, **other)) is None:
                self.note("expired" if client.member_id not in log.members() else "lived")
        elif action < 0.30:
            self.change_topics()
        elif action < 0.34 and member is not None:
            client.topics = self.some_topics()
            self.submit(log.updating(client.member_id, *client.topics, epoch=client.known.epoch))
        elif action < 0.38:
            self.submit(self.joining(client))
            client.reading = set()
        elif action < 0.62:
            self.follow(client)
        elif action < 0.72 and self.late:
            self.commit(*self.late.pop(rng.randrange(len(self.late))))
        elif client.reading and action < 0.84:
            place = rng.choice(sorted(client.reading))
            self.late.append((client.member_id, client.instance_id, client.known, place))
        elif client.reading:
            self.commit(client.member_id, client.instance_id, client.known, rng.choice(sorted(client.reading)))

    def joining(self, client: Client) -> Command:
        assignors = self.rng.choice([("uniform",), ("uniform", "range"), ("range", "uniform"), ("range",)])
        return self.log.joining(
            client.member_id,
            *client.topics,
            instance_id=client.instance_id,
            classic=client.classic,
            assignors=assignors if self.rng.random() < 0.2 else ("uniform",),
        )

    def join_new(self) -> None:
        self.joined += 1
        client = Client(
            f"m{self.joined}",
            self.some_topics(),
            self.rng.choice(INSTANCES),
            self.rng.random() < 0.5,
            Knowledge(0, {}),
        )
        code = self.submit(self.joining(client))
        if code is None:
            self.clients[client.member_id] = client
        self.note("joined" if code is None else "not joined")

    def change_topics(self) -> None:
        name = self.rng.choice(TOPICS)
        topic = self.log.records.get(("topic", name))
        number = self.log.entry
        if topic is None:
            self.submit(CreateTopic(f"create {number}", name, self.rng.randint(1, 4)))
        elif self.rng.random() < 0.3:
            self.submit(DeleteTopic(f"delete {number}", name, topic.topic_id))
        else:
            self.submit(CreatePartitions(f"grow {number}", name, topic.topic_id, topic.partition_count + 2))

    def come_to_rest(self) -> None:
        """All clients follow, and those that are gone expire: then every partition is read, once."""
        for id_, member in self.log.members().items():
            if id_ not in self.clients or member.left:
                self.submit(self.log.expiring(id_))
        for client in self.clients.values():
            if client.member_id not in self.log.members():
                client.instance_id = ""
                assert self.submit(self.joining(client)) is None
        for _ in range(3):
            for client in self.clients.values():
                self.follow(client)
        members = self.log.members()
        assert set(members) == set(self.clients)
        for id_, member in members.items():
            assert not member.revoking
            assert places(member.assigned) == member.target
            assert self.clients[id_].reading == set(member.target)


def long_form(command: Command) -> dict[str, Any]:
    """A command as an independent reader has it."""
    written = {LONG.get(name, name): value for name, value in json.loads(_encode(command)).items()}
    return MEMBERS[written["type"]][1] | written


def run(seed: int, steps: int = 150) -> dict[str, int]:
    print(f"seed {seed}")
    schedule = Schedule(Random(seed))
    for _ in range(steps):
        schedule.step()
    schedule.come_to_rest()
    return schedule.seen


@pytest.mark.kafka("K106")
@pytest.mark.parametrize("first", range(0, examples(30, 300), 10))
def test_ownership_holds_under_any_schedule(first: int) -> None:
    total: dict[str, int] = {}
    for seed in range(first, first + 10):
        for what, number in run(seed).items():
            total[what] = total.get(what, 0) + number
    for what in ("accepted", "refused", "expired", "lived", "joined", "not joined"):
        assert total[what], total
