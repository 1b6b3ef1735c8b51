"""One run: gateways that are killed or ended, and started again, below producers and members that come and go."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from tests.crash.gateway_workload import Gateways
from tests.liveness.clients import PARTITIONS

__all__ = ["Blow", "Kind", "Plan", "Run", "Said"]

ROOT: Final = Path(__file__).parents[2]
GROUP: Final = "readers"
_SAMPLED_EVERY_S: Final = 5.0
_END_S: Final = 60.0
_LOOK_S: Final = 0.1


class Kind(NamedTuple):
    """A producer: its library, and whether it has transactions."""

    library: str
    is_transactional: bool

    @property
    def name(self) -> str:
        """What its values begin with."""
        return f"{self.library}-{'transactional' if self.is_transactional else 'idempotent'}"


@dataclass(frozen=True)
class Plan:
    """What a run is made of, and what its gateways suffer.

    `limit_s` is how long any producer may be without a commit, and any partition unread, whatever happens.
    `ends_max` is how many batches a producer may not commit, for each blow on average; None: any number.
    `every_s` is the time from one blow to the next, at least; a gateway is down for `down_s`, and a member lives for
    about `member_s`.
    """

    producers: Sequence[Kind]
    members: Sequence[str]
    blows: int
    every_s: float
    limit_s: float
    down_s: float = 2.0
    ends_max: int | None = None
    member_s: float = 40.0
    seed: int = 1
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)


class Said(NamedTuple):
    """A line that a client has printed, by seconds since the run began."""

    at_s: float
    client: str
    words: str


class Blow(NamedTuple):
    """What a gateway has met, and when it was started again, by seconds since the run began."""

    gateway: int
    is_kill: bool
    at_s: float
    again_s: float


class _Client:
    """A client's process. Its lines come by a thread."""

    def __init__(self, run: Run, words: Sequence[str], name: str) -> None:
        self.name = name
        self.began_s = run.now_s()
        command = [run.plan.python, "-m", "tests.liveness.program", *words]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **run.plan.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=run.errors,
            text=True,
        )
        self._listening = threading.Thread(target=self._listen, args=(run,), daemon=True)
        self._listening.start()

    def _listen(self, run: Run) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            run.note(Said(run.now_s(), self.name, line.rstrip("\n")))

    def end(self, number: int) -> None:
        """Send a signal, and wait until the process has ended and its lines have come."""
        self.process.send_signal(number)
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._listening.join(_END_S)


class Run:
    """The state of a run, and what was said in it. `go` does it all."""

    def __init__(self, plan: Plan, uri: str, folder: Path) -> None:
        self.plan = plan
        self.said: list[Said] = []
        self.blows: list[Blow] = []
        self.made = 0
        """How many members there were."""
        self.settled_s = self.drained_s = 0.0
        """From when on clients went on, and until when."""
        self.memory: list[tuple[float, int, int]] = []
        """Seconds since the run began, the gateway's number, and its resident memory in MiB."""
        self.errors: TextIO = (folder / "clients.log").open("w")
        self._log = (folder / "said.log").open("w")
        self._random = random.Random(plan.seed)
        self._lock = threading.Lock()
        self._began_s = time.monotonic()
        self._ending = threading.Event()
        self._gateways = Gateways(uri, {}, 2)
        self._newest: dict[str, float] = {}
        self._members: list[_Client] = []

    def now_s(self) -> float:
        """Return the seconds since the run began."""
        return time.monotonic() - self._began_s

    def note(self, said: Said) -> None:
        """Keep a line, and when its producer has committed, or its partition was read, last."""
        verb, *words = said.words.split(" ", 2)
        with self._lock:
            self.said.append(said)
            if verb == "committed":
                self._newest[said.client] = said.at_s
            elif verb == "read":
                self._newest[f"partition {words[0]}"] = said.at_s
            self._log.write(f"{said.at_s:9.3f} {said.client} {said.words[:160]}\n")

    @property
    def expected(self) -> list[str]:
        """The producers that commit, and the partitions that are read."""
        return [*(kind.name for kind in self.plan.producers), *(f"partition {number}" for number in range(PARTITIONS))]

    def go(self) -> None:
        """Do it all: at the end every client was ended, and every value that was read is noted."""
        watching = [threading.Thread(target=self._watch_memory), threading.Thread(target=self._renew_members)]
        producers: list[_Client] = []
        try:
            servers = ",".join(self._gateways.addresses)
            for kind in self.plan.producers:
                words = ["producer", kind.library, servers, kind.name, kind.name if kind.is_transactional else ""]
                producers.append(_Client(self, words, kind.name))
            self._members = [self._member(library) for library in self.plan.members]
            self._await_progress(0.0, within_s=_END_S)
            self.settled_s = self.now_s()
            for thread in watching:
                thread.start()
            for number in range(self.plan.blows):
                self._strike(number)
            time.sleep(self.plan.every_s)
            self.drained_s = self.now_s()
        finally:
            self._ending.set()
            for thread in watching:
                if thread.ident is not None:
                    thread.join(_END_S)
            for client in producers:
                client.end(signal.SIGTERM)

    def close(self) -> None:
        """End the members and the gateways."""
        for client in self._members:
            client.end(signal.SIGTERM)
        self._gateways.close()
        self._log.close()
        self.errors.close()

    def _member(self, library: str) -> _Client:
        self.made += 1
        name = f"member-{self.made}"
        return _Client(self, ["member", library, ",".join(self._gateways.addresses), GROUP], name)

    def _strike(self, number: int) -> None:
        """Kill or end one gateway, start it again, and wait until everything has gone on."""
        time.sleep(self.plan.every_s)
        chosen = number % 2 if number < 2 else self._random.randrange(2)
        is_kill = number % 2 == 0
        at_s = self.now_s()
        self._gateways.end(chosen, signal.SIGKILL if is_kill else signal.SIGTERM)
        time.sleep(self.plan.down_s)
        self._gateways.start(chosen)
        again_s = self.now_s()
        self.blows.append(Blow(chosen, is_kill, at_s, again_s))
        self._await_progress(again_s, within_s=4 * self.plan.limit_s)

    def _await_progress(self, since_s: float, within_s: float) -> None:
        """Return once every producer has committed and every partition was read after a moment.

        Not for longer than `within_s`: what has stood still is found by what was said.
        """
        end_s = self.now_s() + within_s
        while self.now_s() < end_s:
            with self._lock:
                if all(self._newest.get(name, -1.0) > since_s for name in self.expected):
                    return
            time.sleep(_LOOK_S)

    def _renew_members(self) -> None:
        """End one member after the other, by its close() and by SIGKILL in turn, and start another one in its place.

        Never two by SIGKILL at once: a partition that comes to the second one would wait for two sessions.
        """
        turn = 0
        while not self._ending.wait(self.plan.member_s / len(self.plan.members)):
            place = turn % len(self._members)
            number = (signal.SIGTERM, signal.SIGKILL)[turn % 2]
            self.note(Said(self.now_s(), self._members[place].name, f"gets {signal.Signals(number).name}"))
            self._members[place].end(number)
            self._ending.wait(1.0)
            self._members[place] = self._member(self.plan.members[place])
            turn += 1

    def _watch_memory(self) -> None:
        while not self._ending.wait(_SAMPLED_EVERY_S):
            for number in range(2):
                size_mib = _resident_mib(self._gateways.pid(number))
                if size_mib:
                    self.memory.append((self.now_s(), number, size_mib))


def _resident_mib(pid: int | None) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmRSS")), 0)
