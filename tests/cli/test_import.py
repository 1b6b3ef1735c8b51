"""`txnlog import`, of files and of a Kafka topic."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import sparktxn
from sparktxn import Producer, Store
from tests.cli.shop import create_people
from tests.cli.terminal import ok, txnlog
from tests.servers import S3Server


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


def test_files_that_delete(folder: Path) -> None:
    create_people()
    (folder / "people.csv").write_text("id,city\n1,Bonn\n2,Ulm\n1,Kiel\n")
    (folder / "gone.csv").write_text("id\n2\n3\n")
    ok("import", "-t", "people", "people.csv", "--apply")
    ok("import", "-t", "people", "gone.csv", "--delete", "--apply")
    rows = ok("consume", "-t", "people", "-e", "--json").json
    assert [tuple(row["value"].values()) for row in rows] == [
        (1, "Bonn", False),
        (2, "Ulm", False),
        (1, "Kiel", False),
        (2, None, True),
        (3, None, True),
    ]
    done = txnlog("import", "-t", "people", "--kafka", "host:9092/people", "--delete")
    assert (done.code, "--delete belongs to files" in done.err) == (2, True)
    done = txnlog("import", "-t", "orders", "gone.csv", "--delete")
    assert (done.code, "'orders' has no key" in done.err) == (2, True)


def test_an_export_comes_back(folder: Path) -> None:
    ok("produce", "-t", "orders", "-K", ":", stdin=b"a:1\nb:2\nc:3\n")
    before = lines()
    ok("export", "-t", "orders", "files", "--format", "json")
    ok("topics", "create", "orders", "-p", "2", "-b", "other")
    ok("import", "-t", "orders", "-b", "other", "files", "--apply")
    assert lines("-b", "other") == before
    files = [str(path) for path in (folder / "files").rglob("*.json")]
    assert all(row["existing"] for row in ok("import", "-t", "orders", "-b", "other", *files, "--json").json)


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


def test_a_topic_of_another_store(folder: Path) -> None:
    ok("topics", "create", "orders", "-p", "2", "-b", "other")
    ok("produce", "-t", "orders", "-K", ":", "-H", "h=1", "-b", "other", stdin=b"a:1\nb:2\n")
    words = ("import", "--from-store", "other", "orders")
    (row,) = ok(*words, "--json").json
    assert (row["dry_run"], row["records"], row["entry"]) == (True, 2, None)
    assert ok(*words).err == "nothing was imported: add --apply to import these records\n"
    assert lines() == []
    (row,) = ok(*words, "--apply", "--json").json
    assert (row["records"], row["source"], row["source_topic"]) == (2, str(folder / "other"), "orders")
    first = row["to_entry"]
    assert lines() == lines("-b", "other")
    ok("produce", "-t", "orders", "-K", ":", "-b", "other", stdin=b"c:3\n")
    assert ok(*words, "--entry", str(first), "--apply", "--json").json[0]["records"] == 0
    assert ok(*words, "--apply", "--json").json[0]["records"] == 1
    assert lines() == lines("-b", "other")
    ok("topics", "create", "archive", "-p", "2")
    assert ok(*words, "-t", "archive", "--entry", str(first), "--apply", "--json").json[0]["records"] == 2


def test_the_settings_of_the_other_store_have_a_place_of_their_own(folder: Path) -> None:
    ok("topics", "create", "orders", "-p", "2", "-b", "other")
    (folder / "other.conf").write_text("storage.unknown=hush\n")
    (folder / "config" / "txnlog").mkdir(parents=True)
    (folder / "config" / "txnlog" / "profiles.toml").write_text('[archive]\n"storage.unknown" = "hush"\n')
    for words in (
        ("--from-option", "storage.unknown=hush"),
        ("--from-config", "other.conf"),
        ("--from-profile", "archive"),
        ("--option", "storage.unknown=hush"),
    ):
        done = txnlog("import", "--from-store", "other", "orders", *words)
        assert (done.code, "unknown" in done.err, "hush" in done.err) == (2, True, False), done.err


def test_what_is_wrong_with_another_store_is_named() -> None:
    ok("topics", "create", "orders", "-p", "2", "-b", "other")
    ok("topics", "create", "orders", "-b", "one")
    for words, code, reason in (
        (["orders"], 2, "--topic is missing"),
        (["-t", "orders", "a.csv", "--entry", "3"], 2, "belong to --from-store"),
        (["-t", "orders", "a.csv", "--from-profile", "x"], 2, "belong to --from-store"),
        (["--from-store", "other"], 2, "takes the name of one topic"),
        (["--from-store", "other", "orders", "trips"], 2, "takes the name of one topic"),
        (["--from-store", "other", "orders", "--by-key"], 2, "no option of files or of Kafka"),
        (["--from-store", "other", "orders", "--kafka", "h:9092/t"], 2, "no option of files or of Kafka"),
        (["--from-store", "other", "order"], 1, "did you mean 'orders'"),
        (["--from-store", "other", "orders", "--entry", "99"], 1, "99"),
        (["--from-store", "other", "orders", "-t", "new"], 2, "txnlog topics create new --partitions 2"),
        (["--from-store", "one", "orders"], 2, "expected the same number; import into another topic"),
        (["--from-store", "store", "orders"], 2, "both the source and the target"),
        (["--from-store", "none", "orders"], 1, "--from-store: there is no store at"),
        (["--from-store", "s3://user:hush@bucket/x", "orders"], 2, "without user, password"),
    ):
        done = txnlog("import", *words)
        assert (done.code, reason in done.err, "hush" in done.err) == (code, True, False), (words, done.err)
        assert lines() == []


@pytest.mark.moto
def test_a_topic_of_a_store_on_s3(folder: Path, moto_server: S3Server) -> None:
    """Both spellings are of one store, a store on S3 lends its settings, and no output has the credentials."""
    bucket, options = "imported-from", moto_server.options
    moto_server.create_bucket(bucket)
    (folder / "s3.conf").write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    address = f"s3://{bucket}/shop"
    with Store.open(address, options=options, create=True) as shop:
        shop.create_topic("orders", 2)
        with Producer({"bootstrap.servers": address, **options}) as producer:
            producer.produce("orders", "1", "a", partition=1)
        shown = [
            ok("import", "--from-store", address, "orders", "--from-config", "s3.conf", "--apply", "--json"),
            ok("import", "--from-store", f"s3a://{bucket}/shop", "orders", "--from-config", "s3.conf", "--json"),
        ]
        assert [done.json[0]["records"] for done in shown] == [1, 0]
        assert [line.split(" ")[:2] for line in lines()] == [["1", "a=1"]]
        there = ("import", "-b", address, "--config", "s3.conf", "--from-store", f"s3://{bucket}/shop", "orders")
        shop.create_topic("copy", 2)
        shown.append(ok(*there, "-t", "copy", "--apply", "--json"))
        assert shown[-1].json[0]["records"] == 1
        shown.append(txnlog(*there, "-t", "none"))
        assert "create none --partitions 2" in shown[-1].err
    secrets = [str(options[name]) for name in ("storage.key", "storage.secret")]
    assert not [done for done in shown for secret in secrets if secret in done.text + done.err]


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
