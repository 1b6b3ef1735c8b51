"""Eight members of one group as real processes, killed and paused past their sessions: nothing lost, nothing twice."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from sparktxn import Consumer, Producer, Store
from sparktxn.store import read_task
from tests.crash.chaos import stopped
from tests.crash.chaos_workload import FENCED, STARTS_AGAIN, Task
from tests.crash.group_workload import GROUP, PARTITIONS, SESSIONS
from tests.crash.journal_checker import notes_of
from tests.crash.worker_forker import WorkerForker
from tests.servers import ObjectServer, S3Server

pytestmark = pytest.mark.crash

_GIVES_UP_S = 300.0


class Plan(NamedTuple):
    """How often a member is killed, how often one is paused past its session, and how long it is until the next."""

    kills: int
    pauses: int
    gap_max_s: float
    timeout_ms: int = 1_000
    members: int = 8


class Members:
    """The members of one group, their store, and what is done to them."""

    def __init__(self, folder: Path, uri: str, options: dict[str, Any], seed: int, plan: Plan) -> None:
        self._folder, self._uri, self._options, self._seed, self._plan = folder, uri, options, seed, plan
        self._random = Random(f"members/{seed}")
        self._pids: dict[str, int] = {}
        self._incarnations: Counter[str] = Counter()
        self._produced = 0
        self._wakes: list[tuple[float, str, int]] = []
        self._killed: set[int] = set()
        self.ends: Counter[str] = Counter()
        folder.mkdir(parents=True, exist_ok=True)

    def run(self) -> str:
        """Strikes as planned, waits until all that was produced is copied, and ends the members in peace."""
        return self._run(self._strike_all)

    def roll(self, rounds: int) -> str:
        """Kill one member after the other, each once the one before is back, and end them all in peace."""
        return self._run(lambda: self._roll(rounds))

    def _strike_all(self) -> None:
        blows = ["kill"] * self._plan.kills + ["pause"] * self._plan.pauses
        self._random.shuffle(blows)
        for blow in blows:
            self._produce(100)
            self._live(self._random.uniform(0, self._plan.gap_max_s))
            self._strike(blow)
        while self._wakes:
            self._live(0.05)

    def _roll(self, rounds: int) -> None:
        self._wait_until_shared()
        for _ in range(rounds):
            for name in sorted(self._pids):
                self._produce(50)
                pid = self._pids[name]
                self._killed.add(pid)
                os.kill(pid, signal.SIGKILL)
                while self._pids[name] == pid:
                    self._live(0.02)
                self._produce(50)
                self._wait_until_shared()

    def _wait_until_shared(self) -> None:
        """Wait until the members are the processes that run, and each has what it is to have."""
        gives_up_s = time.monotonic() + _GIVES_UP_S
        while not self._is_shared():
            assert time.monotonic() < gives_up_s, self._complaint()
            self._live(0.1)

    def _is_shared(self) -> bool:
        with Store.open(self._uri, options=self._options) as store:
            store.log.refresh()
            members = store.log.group_members(GROUP)
        running = {f"{name}.{self._incarnations[name]}" for name in self._pids}
        return {member.client_id for member in members} == running and all(
            len(member.assigned) == len(member.target) and not member.revoking for member in members
        )

    def check_aborts(self) -> None:
        """A commit was refused only to a member that has lost its partitions."""
        for process, notes in notes_of(self._folder).items():
            aborts = [note for note in notes if note["what"] == "aborts"]
            lost = sum(note["what"] == "on_lost" for note in notes)
            assert len(aborts) <= lost, f"{process} has lost its partitions {lost} times, and was refused: {aborts}"

    def _run(self, strike: Callable[[], None]) -> str:
        began_s = time.monotonic()
        with Store.open(self._uri, options=self._options, create=True) as store:
            store.create_topic("in", PARTITIONS)
            store.create_topic("out", PARTITIONS)
            first_entry = store.log.refresh()
        with WorkerForker(remote="://" in self._uri) as self._forker:
            for number in range(self._plan.members):
                self._start(f"member-{number}")
            strike()
            gives_up_s = time.monotonic() + _GIVES_UP_S
            while len(self.copied()) < self._produced:
                assert time.monotonic() < gives_up_s, self._complaint()
                self._live(0.5)
            with Store.open(self._uri, options=self._options) as store:
                entries = store.log.refresh() - first_entry
            (self._folder / "stop-member").touch()
            while self._pids:
                assert time.monotonic() < gives_up_s + 60, self._complaint()
                self._live(0.05)
        seconds = time.monotonic() - began_s
        notes = Counter(note["what"] for found in notes_of(self._folder).values() for note in found)
        return (
            f"seed {self._seed}: {self._produced} records, {self.ends['killed']} kills, {self._plan.pauses} pauses in "
            f"{seconds:.1f} s, {entries} entries; ends: {dict(self.ends)}; notes: {dict(notes)}"
        )

    def _start(self, name: str) -> None:
        self._incarnations[name] += 1
        folder = str(self._folder)
        task = Task(
            "member",
            name,
            self._incarnations[name],
            self._uri,
            self._options,
            folder,
            self._seed,
            self._plan.timeout_ms,
        )
        self._pids[name] = self._forker.start(task)

    def _victim(self) -> str:
        """Pause a member that is not paused yet, and return its name."""
        while True:
            paused = {name for _, name, _ in self._wakes}
            name = self._random.choice([name for name in sorted(self._pids) if name not in paused])
            if stopped(self._pids[name]):
                return name
            self._live(0.02)  # it had come to its own end, and is started again

    def _strike(self, blow: str) -> None:
        name = self._victim()
        pid = self._pids[name]
        if blow == "kill":
            self._killed.add(pid)
            os.kill(pid, signal.SIGKILL)
        else:
            session_s = SESSIONS * self._plan.timeout_ms / 1000
            self._wakes.append((time.monotonic() + session_s * self._random.uniform(1.2, 2), name, pid))

    def _live(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while True:
            for due in [wake for wake in self._wakes if wake[0] <= time.monotonic()]:
                self._wakes.remove(due)
                os.kill(due[2], signal.SIGCONT)
            for pid, code in self._forker.ended().items():
                name = next(name for name, known in self._pids.items() if known == pid)
                expected = {0: "at peace", FENCED: "fenced", STARTS_AGAIN: "to start again", -signal.SIGKILL: "killed"}
                assert code in expected, f"{name} ended with {code}\n{self._complaint()}"
                assert code != -signal.SIGKILL or pid in self._killed
                self.ends[expected[code]] += 1
                if code == 0:
                    del self._pids[name]
                else:
                    self._start(name)
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(left_s, 0.02))

    def _produce(self, count: int) -> None:
        with Producer({"bootstrap.servers": self._uri, **self._options}) as producer:
            for _ in range(count):
                producer.produce("in", str(self._produced), partition=self._produced % PARTITIONS)
                self._produced += 1

    def copied(self) -> list[tuple[int, int, str]]:
        """(partition, offset, value) of each record of "in" that was copied, in the order of the copies."""
        found = []
        with Store.open(self._uri, options=self._options) as store:
            view = store.view(["out"])
            for task in store.plan(view, store.ranges(view), columns=["value"]):
                for batch in read_task(task, self._options):
                    for value in batch.column("value").to_pylist():
                        source = json.loads(value)
                        assert source["partition"] == task.partition
                        found.append((source["partition"], source["offset"], source["value"]))
        return found

    def check(self) -> None:
        """Compares the copies with what was produced: each once, and each partition's in order."""
        copied = self.copied()
        by_partition = {number: [found for found in copied if found[0] == number] for number in range(PARTITIONS)}
        for number, found in by_partition.items():
            expected = [str(value) for value in range(number, self._produced, PARTITIONS)]
            assert [value for _, _, value in found] == expected, f"partition {number}, seed {self._seed}"
        with Consumer({"bootstrap.servers": self._uri, **self._options, "group.id": GROUP}) as consumer:
            assert consumer.consumer_group_metadata().group_id == GROUP

    def _complaint(self) -> str:
        with Store.open(self._uri, options=self._options) as store:
            store.log.refresh()
            members = [
                (member.client_id, member.member_epoch, member.left, len(member.assigned), len(member.revoking))
                for member in store.log.group_members(GROUP)
            ]
        written = [(path.name, path.read_text()[-2000:]) for path in sorted(self._folder.glob("*.output"))]
        outputs = "\n".join(f"--- {name}\n{text}" for name, text in written if text)
        return f"seed {self._seed}: {len(self.copied())} of {self._produced} copied; members {members}\n{outputs}"


def strike(folder: Path, uri: str, options: dict[str, Any], seed: int, plan: Plan) -> Members:
    members = Members(folder / "journals", uri, options, seed, plan)
    print(members.run())
    members.check()
    assert members.ends["killed"] == plan.kills
    assert members.ends["at peace"] == plan.members
    return members


def roll(folder: Path, members: int, rounds: int) -> None:
    plan = Plan(kills=members * rounds, pauses=0, gap_max_s=0, members=members, timeout_ms=1_500)
    found = Members(folder / "journals", str(folder / "store"), {}, 0, plan)
    print(found.roll(rounds))
    found.check()
    found.check_aborts()
    assert found.ends["killed"] == plan.kills
    assert found.ends["at peace"] == members


@pytest.mark.kafka("K106", "K134")
def test_a_rolling_restart_by_kills(tmp_path: Path) -> None:
    """In a transactional pipeline: 0 lost, 0 repeated, and no commit of a member refused that has its partitions."""
    roll(tmp_path, members=4, rounds=1)


@pytest.mark.nightly
def test_a_rolling_restart_of_many_members_by_kills(tmp_path: Path) -> None:
    roll(tmp_path, members=16, rounds=2)


EIGHT_BLOWS = Plan(kills=6, pauses=2, gap_max_s=0.4)
FOUR_BLOWS = Plan(kills=3, pauses=1, gap_max_s=0.4, members=4)
HUNDRED_BLOWS = Plan(kills=80, pauses=20, gap_max_s=1.0)
"""Five runs of these make the 500 blows of `make nightly` on each store."""


def strike_on(tmp_path: Path, server: ObjectServer, seed: int, plan: Plan) -> None:
    """Strike members on a server, which they share: a round trip takes longer, and so do sessions."""
    bucket = f"members-{uuid4().hex[:12]}"
    server.create_bucket(bucket)
    strike(
        tmp_path,
        server.uri(bucket, "store"),
        dict(server.options),
        seed,
        plan._replace(timeout_ms=4_000, gap_max_s=0.3),
    )


@pytest.mark.kafka("K106", "K134", "K138")
def test_eight_members_under_eight_blows(tmp_path: Path, seed: int) -> None:
    strike(tmp_path, str(tmp_path / "store"), {}, seed, EIGHT_BLOWS)


@pytest.mark.kafka("K106", "K134", "K138")
@pytest.mark.nightly
@pytest.mark.parametrize("run", range(5))
def test_eight_members_under_many_blows(tmp_path: Path, seed: int, run: int) -> None:
    strike(tmp_path, str(tmp_path / "store"), {}, seed, HUNDRED_BLOWS)


@pytest.mark.kafka("K106", "K134", "K138")
@pytest.mark.nightly
@pytest.mark.moto
@pytest.mark.parametrize("run", range(2))
def test_eight_members_under_many_blows_on_moto(tmp_path: Path, moto_server: S3Server, seed: int, run: int) -> None:
    strike_on(tmp_path, moto_server, seed, HUNDRED_BLOWS)


@pytest.mark.kafka("K106", "K134", "K138")
@pytest.mark.nightly
@pytest.mark.seaweedfs
@pytest.mark.parametrize("run", range(2))
def test_eight_members_under_many_blows_on_seaweedfs(
    tmp_path: Path, seaweed_server: S3Server, seed: int, run: int
) -> None:
    strike_on(tmp_path, seaweed_server, seed, HUNDRED_BLOWS)


@pytest.mark.kafka("K106", "K134", "K138")
@pytest.mark.clouds
@pytest.mark.parametrize("emulator", ["fake_gcs_server", "azurite_server"])
def test_four_members_under_four_blows_on_an_emulator_of_a_cloud(
    tmp_path: Path, request: pytest.FixtureRequest, seed: int, emulator: str
) -> None:
    strike_on(tmp_path, request.getfixturevalue(emulator), seed, FOUR_BLOWS)


@pytest.mark.kafka("K106", "K134", "K138")
@pytest.mark.nightly
@pytest.mark.clouds
@pytest.mark.parametrize("emulator", ["fake_gcs_server", "azurite_server"])
def test_eight_members_under_blows_on_an_emulator_of_a_cloud(
    tmp_path: Path, request: pytest.FixtureRequest, seed: int, emulator: str
) -> None:
    strike_on(tmp_path, request.getfixturevalue(emulator), seed, Plan(kills=16, pauses=4, gap_max_s=1.0))
