"""A group that copies in transactions is restarted member by member, by close and by kill: each record is copied once.

Each member is a process of its own, on one store, by a clock that the test moves. One that is killed is never called
again; some die with an open transaction that was published.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from sparktxn.admin import AdminClient, NewTopic
from sparktxn.consumer import Consumer
from sparktxn.errors import KafkaException
from sparktxn.producer import Producer
from sparktxn.store import Store, read_task
from tests.world import ClockedWorld

SESSION_MS = 6_000
STEP_S = 0.25
CHANGES = re.compile(rb'"(join_group|leave_group|expire_member|release_partitions|settle_intent)"')


class Member:
    """A process with a consumer of the group, and a producer that copies what it reads in transactions."""

    def __init__(self, world: Group, name: str, **settings: Any) -> None:
        self.name, self._world = name, world
        log = world.process()
        self.uri = world.lend(f"{name}-{world.started}", log)
        world.started += 1
        timing = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": SESSION_MS // 3}
        reading = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        protocol = {"partition.assignment.strategy": "cooperative-sticky"}
        self.consumer = Consumer({"bootstrap.servers": self.uri, **reading, **protocol, **timing, **settings})
        self.producer = Producer({"bootstrap.servers": self.uri, "transactional.id": name, "linger.ms": 0})
        self.producer.init_transactions()
        self.lost = 0
        self.consumer.subscribe(["in"], on_lost=self._note_lost)

    def _note_lost(self, _: Consumer, partitions: list[Any]) -> None:
        self.lost += 1

    def copy(self, *, dies: bool = False) -> None:
        """Copy what there is, in one transaction; or publish it and its offsets, and do no more."""
        found = self.consumer.consume(50, 0)
        if not found:
            return
        self.producer.begin_transaction()
        for message in found:
            assert message.error() is None, message.error()
            self.producer.produce("out", message.value(), partition=message.partition() or 0)
        positions = self.consumer.position(self.consumer.assignment())
        self.producer.send_offsets_to_transaction(positions, self.consumer.consumer_group_metadata())
        if dies:
            self.producer.flush()
            return
        try:
            self.producer.commit_transaction()
        except KafkaException as error:
            self._world.refused.append(f"{self.name}: {error.args[0].str()}")
            raise


class Group(ClockedWorld):
    """The members of one group, and two topics with as many partitions."""

    def __init__(self, members: int, partitions: int, *, static: bool) -> None:
        super().__init__(checkpoint_entries=200)
        self.started = self.produced = 0
        self.refused: list[str] = []
        self.partitions, self._static = partitions, static
        self.admin_log = self.process()
        self.uri = self.lend("admin", self.admin_log)
        with AdminClient({"bootstrap.servers": self.uri}) as admin:
            for topic in ("in", "out"):
                admin.create_topics([NewTopic(topic, partitions)])[topic].result()
        self.members = [self.start(f"m{number:03}") for number in range(members)]
        self.dead: list[Member] = []
        """Kept, as a client that is dropped leaves its group."""
        self.settle()

    def start(self, name: str) -> Member:
        settings = {"group.instance.id": name} if self._static else {}
        return Member(self, name, **settings)

    def entry(self) -> int:
        return self.admin_log.refresh()

    def run(self) -> None:
        """Let each member that lives poll and copy, and time pass."""
        for member in self.members:
            member.copy()
        self.clock.sleep(STEP_S)

    def settle(self) -> None:
        """Go on until the members are those that live, and each has what it is to have."""
        for _ in range(int(SESSION_MS / 1000 * 20 / STEP_S)):
            self.run()
            self.entry()
            states = self.admin_log.group_members("g")
            shares = [len(member.consumer.assignment()) for member in self.members]
            has_all = all(not state.revoking and len(state.assigned) == len(state.target) for state in states)
            if has_all and len(states) == len(self.members) and sum(shares) == self.partitions:
                return
        raise AssertionError("the group does not come to rest")

    def produce(self, count: int) -> None:
        with Producer({"bootstrap.servers": self.uri}) as producer:
            for _ in range(count):
                producer.produce("in", str(self.produced), partition=self.produced % self.partitions)
                self.produced += 1

    def restart(self, *, kills: bool, in_transaction: bool) -> int:
        """End the first member and start it anew; return how many entries that costs.

        An entry that commits copies would have been written anyway, also if it gives partitions back.
        """
        before = self.entry()
        self.produce(self.partitions)
        member = self.members.pop(0)
        if not kills:
            member.consumer.close()
            member.producer.close()
        else:
            if in_transaction:
                member.copy(dies=True)
            self.dead.append(member)
            if not self._static:
                self.settle()
        self.members.append(self.start(member.name))
        self.settle()
        changed = [self.objects.get(f"_log/{number:020}.json") or b"" for number in range(before + 1, self.entry() + 1)]
        return sum(CHANGES.search(body) is not None and b'"end_txn"' not in body for body in changed)

    def copied(self) -> dict[int, list[int]]:
        """What was copied, by partition."""
        with Store.open(self.uri) as store:
            view = store.view(["out"])
            found: dict[int, list[int]] = {}
            for task in store.plan(view, store.ranges(view)):
                values = (value for batch in read_task(task, {}) for value in batch.column("value").to_pylist())
                found.setdefault(task.partition, []).extend(int(value) for value in values)
        return found

    def check(self) -> None:
        """Fail if a record is lost, copied twice or out of order, or if a member that lives was refused."""
        while sum(map(len, (copied := self.copied()).values())) < self.produced:
            self.run()
        assert copied == {
            number: list(range(number, self.produced, self.partitions)) for number in range(self.partitions)
        }
        assert self.refused == []
        assert [member.name for member in self.members if member.lost] == []

    def close(self) -> None:
        for member in [*self.members, *self.dead]:
            member.consumer.close()
            member.producer.close()
        super().close()


def roll(members: int, partitions: int, *, static: bool, restarts: int | None = None) -> None:
    """Restart each member once, or some: every other one by a kill, and every other one of these in a transaction."""
    group = Group(members, partitions, static=static)
    try:
        entries = [
            group.restart(kills=number % 2 == 1, in_transaction=number % 4 == 3)
            for number in range(restarts or members)
        ]
        group.check()
    finally:
        group.close()
    print(f"{members} members, {partitions} partitions, {group.produced} records; entries of restarts: {entries}")
    # A member joins, and each of those that have more than their share gives some back.
    assert max(entries) <= (2 if static else members + 1)


STATIC = pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])


@STATIC
@pytest.mark.kafka("K106", "G27")
def test_a_rolling_restart_loses_and_repeats_nothing(static: bool) -> None:
    roll(8, 40, static=static)


@STATIC
@pytest.mark.nightly
def test_a_rolling_restart_of_a_hundred_members(static: bool) -> None:
    # Each of them applies each entry of all of them, in this one process: all restarts took over 40 minutes.
    roll(100, 200, static=static, restarts=20)


def test_a_pipeline_without_offsets_in_its_transactions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Producer, "send_offsets_to_transaction", lambda *given: None)
    with pytest.raises(AssertionError):
        roll(4, 8, static=False)
