"""The worked example under SIGKILL: whenever it dies, each payment has one receipt in the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from examples.consume_transform_produce import PARTITIONS, PAYMENTS, RECEIPTS, check, create
from sparktxn import Store

pytestmark = pytest.mark.crash

NAME = "one"
ROOT = Path(__file__).parents[2]
SCRIPT = "examples/consume_transform_produce.py"

POINTS = (
    ("put_if_absent", "topics/receipts", "after", False),
    ("put_if_absent", "_log/0", "before", False),
    ("put_if_absent", "_log/0", "after", False),
    ("put_if_absent", "_log/0", "after", True),
    ("put_if_absent", "topics/receipts", "before", True),
    ("get", "_log/0", "before", True),
    ("get", "topics/payments", "after", False),
)
"""Where to die: an operation of the store, and whether the service publishes before it commits."""


class Services:
    """One instance after the other, on one store, until one comes to the end."""

    def __init__(self, python: list[str], store: Path, batch: int) -> None:
        self._python = python
        # By its name it has its partitions back at once, whenever it died.
        self._arguments = [
            SCRIPT,
            "--store",
            str(store),
            "--batch",
            str(batch),
            "--name",
            NAME,
            "--exit-when-idle",
            "2",
        ]
        self.kills = 0

    def die_at(self, verb: str, prefix: str, count: int, when: str, *, early: bool) -> None:
        armed = [*self._python, "-m", "tests.crash.die_at_operation", verb, prefix, str(count), when, *self._arguments]
        ended = subprocess.run(
            [*armed, *(["--publish-early"] if early else [])], cwd=ROOT, capture_output=True, timeout=120
        )
        assert ended.returncode in (0, -9), ended.stdout.decode() + ended.stderr.decode()
        self.kills += ended.returncode == -9

    def die_after(self, seconds: float, *, early: bool) -> None:
        """Kills an instance so long after it was ready, unless it has come to the end."""
        command = [sys.executable, *self._arguments, *(["--publish-early"] if early else [])]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert "ready" in process.stdout.readline()
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                self.kills += 1

    def finish(self) -> str:
        ended = subprocess.run([*self._python, *self._arguments], cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout


@pytest.mark.kafka("K104", "K105", "K108", "K138")
def test_output_is_input_exactly_once_after_kills_at_named_operations(
    python: list[str], tmp_path: Path, seed: int
) -> None:
    chance = Random(seed)
    with Store.open(str(tmp_path), create=True) as store:
        # Alerts go into entries, the others into files of their own.
        for topic in (PAYMENTS, RECEIPTS):
            store.create_topic(topic, PARTITIONS, settings={"append.inline.bytes": "0"})
    create(str(tmp_path), 1_500)
    services = Services(python, tmp_path, batch=100)
    for verb, prefix, when, early in chance.sample(POINTS, 5):
        # The first put of an entry is the initialisation's, which is a point as good as any.
        services.die_at(verb, prefix, chance.randint(1, 4 if verb == "put_if_absent" else 2), when, early=early)
    services.die_after(chance.uniform(0, 0.15), early=True)
    services.finish()
    assert services.kills >= 5
    assert check(str(tmp_path)) == 0


@pytest.mark.kafka("K138")
@pytest.mark.nightly
def test_output_is_input_exactly_once_after_thirty_kills(python: list[str], tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    create(str(tmp_path), 20_000)
    services = Services(python, tmp_path, batch=50)
    while services.kills < 15:
        services.die_after(chance.uniform(0, 0.6), early=chance.random() < 0.5)
    while services.kills < 30:
        verb, prefix, when, early = chance.choice(POINTS)
        services.die_at(verb, prefix, chance.randint(1, 12), when, early=early)
    services.finish()
    assert check(str(tmp_path)) == 0


@pytest.mark.kafka("K134")
def test_a_second_instance_takes_over_and_the_first_one_stops(python: list[str], tmp_path: Path) -> None:
    create(str(tmp_path), 2_000)
    command = [sys.executable, SCRIPT, "--store", str(tmp_path), "--batch", "50", "--name", NAME]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert "ready" in first.stdout.readline()
        Services(python, tmp_path, batch=50).finish()
        create(str(tmp_path), 10)
        assert first.wait(60) == 1
        assert "stops" in first.stdout.read()
    Services(python, tmp_path, batch=50).finish()
    assert check(str(tmp_path)) == 0
