"""Every example of every verb's help runs as it is printed, on a store that has what the examples name."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from sparktxn.cli.app import APP
from sparktxn.cli.verb import EXAMPLES
from tests.cli.terminal import ok, txnlog

ALL = [example for examples in EXAMPLES.values() for example in examples]


@pytest.fixture
def shop() -> None:
    """A store as the examples name it."""
    ok("topics", "create", "orders", "-p", "3")
    ok("topics", "create", "trips", "--column", "id int64 not null", "--column", "fare double")


def commands(app: object) -> int:
    groups = [group.typer_instance for group in app.registered_groups]  # type: ignore[attr-defined]
    return len(app.registered_commands) + sum(commands(group) for group in groups)  # type: ignore[attr-defined]


def test_every_verb_has_examples() -> None:
    assert len(EXAMPLES) == commands(APP)
    assert all(EXAMPLES.values())


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("example", ALL)
def test_an_example_runs(example: str) -> None:
    data = b""
    for part in example.split(" | "):
        if part.startswith("txnlog "):
            done = txnlog(*shlex.split(part)[1:], stdin=data)
            assert done.code == 0, done.err
            data = done.out
        else:
            data = subprocess.run(part, shell=True, input=data, capture_output=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("verb", sorted({" ".join(shlex.split(example)[:3]) for example in ALL}))
def test_the_help_shows_its_examples(verb: str) -> None:
    words = [word for word in verb.split()[1:] if word.isalpha()]
    shown = " ".join(ok(*words, "--help").text.split())
    own = [example for example in ALL if example.startswith(f"{verb} ") or example == verb]
    assert own
    assert [example for example in own if " ".join(example.split()) not in shown] == []
