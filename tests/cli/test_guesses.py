"""What users type who have not read the help: it works, or the error names the verb."""

from __future__ import annotations

import pytest

import sparktxn
from sparktxn._programs.cli.app import VERBS, load
from sparktxn._programs.cli.verb import OF_COMMAND, OF_GROUP
from tests.cli.terminal import ok, txnlog


@pytest.mark.parametrize("words", [("version",), ("--version",), ("-V",), ("-b", "x", "version"), ("version", "-J")])
def test_the_version_is_printed(words: tuple[str, ...]) -> None:
    assert ok(*words).text == f"txnlog {sparktxn.__version__}\n"


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (("help",), ("--help",)),
        (("help", "topics"), ("topics", "--help")),
        (("topics", "help"), ("topics", "--help")),
        (("help", "topics", "create"), ("topics", "create", "--help")),
        (("topics", "help", "create"), ("topics", "create", "--help")),
        (("help", "consume"), ("consume", "--help")),
    ],
)
def test_help_is_the_help(words: tuple[str, ...], same: tuple[str, ...]) -> None:
    assert ok(*words).text.split() == ok(*same).text.split()


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("topic", "list"), "txnlog topics"),
        (("ls",), "txnlog topics list"),
        (("Topics", "list"), "txnlog topics"),
        (("cat", "-t", "x"), "txnlog consume"),
        (("fsck",), "txnlog verify"),
        (("groups", "show", "g"), "txnlog groups describe"),
        (("topics", "rm", "x"), "txnlog topics delete"),
        (("tables", "ls"), "txnlog tables list"),
        (("consumer-groups",), "txnlog groups list"),
        (("verison",), "txnlog version"),
    ],
)
def test_an_unknown_verb_names_the_one_that_is_meant(words: tuple[str, ...], meant: str) -> None:
    done = txnlog(*words)
    assert (done.code, done.out) == (2, b"")
    assert f"Did you mean '{meant}'?" in done.err


def test_a_word_that_means_no_verb_leads_to_the_help() -> None:
    assert txnlog("frobnicate").err == "txnlog: there is no verb 'frobnicate'. txnlog --help lists all verbs\n"


def test_every_guess_leads_to_a_verb_that_exists() -> None:
    for word, meant in OF_COMMAND.items():
        verb, _, rest = meant.partition(" ")
        assert word not in VERBS
        assert verb in VERBS
        assert not rest or rest in load(verb).commands
    groups = [load(name) for name in VERBS]
    names = {name for group in groups for name in getattr(group, "commands", ())}
    assert set(OF_GROUP.values()) <= names
