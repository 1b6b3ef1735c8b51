"""`txnlog import`, of files and of a Kafka topic."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import sparktxn
from tests.cli.terminal import ok, txnlog


@pytest.fixture(autouse=True)
def orders() -> None:
    ok("topics", "create", "orders", "-p", "2")


def lines(*more: str) -> list[str]:
    return sorted(ok("consume", "-t", "orders", "-e", "-f", "%p %k=%s %T %h\n", *more).lines)


def test_files(folder: Path) -> None:
    (folder / "a.csv").write_text("key,value,note\nk,v,x\n")
    done = txnlog("import", "-t", "orders", "a.csv", "--apply")
    assert (done.code, "'note'" in done.err) == (2, True)
    assert lines() == []
    words = ("import", "-t", "orders", "a.csv", "--ignore-other-columns", "--column", "key=note")
    (row,) = ok(*words, "--json").json
    assert (row["existing"], row["records"]) == (False, None)
    assert ok(*words).err == "nothing was imported: add --apply to import what does not exist\n"
    assert lines() == []
    assert ok(*words, "--apply", "--json").json[0]["records"] == 1
    assert ok(*words, "--apply", "--json").json[0]["existing"]
    assert len(lines()) == 1


def test_an_export_comes_back(folder: Path) -> None:
    ok("produce", "-t", "orders", "-K", ":", stdin=b"a:1\nb:2\nc:3\n")
    before = lines()
    ok("export", "-t", "orders", "files", "--format", "json")
    ok("topics", "create", "orders", "-p", "2", "-b", "other")
    files = [str(path) for path in (folder / "files").rglob("*.json")]
    ok("import", "-t", "orders", "-b", "other", *files, "--apply")
    assert lines("-b", "other") == before


def test_a_topic_through_confluents_consumer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This package has confluent-kafka's classes, and another store is the source."""
    monkeypatch.setitem(sys.modules, "confluent_kafka", sparktxn)
    ok("topics", "create", "source", "-p", "2", "-b", "kafka")
    ok("produce", "-t", "source", "-K", ":", "-H", "h=1", "-b", "kafka", stdin=b"a:1\nb:2\nc:3\n")
    (folder / "kafka.conf").write_text("client.id=import\n")
    words = ("import", "-t", "orders", "--kafka", f"{folder}/kafka/source", "--kafka-config", "kafka.conf")
    (row,) = ok(*words, "--json").json
    assert (row["dry_run"], row["records"], row["offsets_left"]) == (True, 0, 3)
    assert lines() == []
    (row,) = ok(*words, "--kafka-option", "fetch.wait.max.ms=5", "--apply", "--json").json
    assert (row["records"], row["offsets_left"], len(row["partitions"])) == (3, 0, 2)
    source = ok("consume", "-t", "source", "-e", "-f", "%p %k=%s %T %h\n", "-b", "kafka").lines
    assert lines() == sorted(source)
    assert ok(*words, "--apply", "--json").json[0]["records"] == 0
    assert "nothing was imported" in ok(*words).err


def test_what_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    for words, reason in {
        (): "give files, or a topic with --kafka",
        ("a.csv", "--kafka", "host:9092/t"): "give files, or a topic with --kafka",
        ("--kafka", "host:9092"): "expected HOST:PORT/TOPIC",
        ("--kafka", "host:9092/t"): "pip install confluent-kafka",
        ("a.txt",): "no known end",
        ("a.csv", "--column", "key"): "--column takes name=value",
    }.items():
        done = txnlog("import", "-t", "orders", *words)
        assert (done.code, reason in done.err) == (2, True), done.err
    assert txnlog("import", "-t", "orders", "none.csv").code == 1
