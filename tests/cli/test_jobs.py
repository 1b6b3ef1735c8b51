"""`txnlog sweep`, `vacuum` and `retention`: what they would do, and what they do."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sparktxn import Producer, Store
from tests.cli.shop import store
from tests.cli.terminal import ok, txnlog

NOW = ("--set", "vacuum.retention.ms=0", "--set", "vacuum.segment.age.ms=0", "--set", "vacuum.temporary.age.ms=0")


def files(folder: Path) -> set[str]:
    return {str(path) for path in (folder / "store").rglob("*") if path.is_file()}


def age(folder: Path, hours: int) -> None:
    """Make all files look old to the store's clock, which is the file system's."""
    then = time.time() - hours * 3600
    for name in files(folder):
        os.utime(name, (then, then))


@pytest.fixture(autouse=True)
def orders() -> None:
    ok("topics", "create", "orders", "--set", "append.inline.bytes=0")


def test_a_vacuum_deletes_when_it_is_meant(folder: Path) -> None:
    with Producer({"bootstrap.servers": store(), "checkpoint.entries": 2, "linger.ms": 0}) as producer:
        for number in range(12):
            producer.produce("orders", str(number))
            producer.flush()
    age(folder, 24)
    before = files(folder)
    (planned,) = ok("vacuum", *NOW, "--names", "--json").json
    assert planned["dry_run"]
    assert planned["entries"] > 0
    assert planned["names"]
    assert files(folder) == before
    done = ok("vacuum", *NOW, "--names")
    assert planned["names"][0] in done.lines
    assert done.err == "nothing was deleted: add --apply to delete these objects\n"
    (applied,) = ok("vacuum", *NOW, "--apply", "--json").json
    assert (applied["dry_run"], applied["entries"], "names" in applied) == (False, planned["entries"], False)
    assert len(files(folder)) < len(before)
    assert len(ok("consume", "-t", "orders", "-e").lines) == 12


def test_a_sweep_aborts_when_it_is_meant(folder: Path) -> None:
    settings = {"bootstrap.servers": store(), "transactional.id": "late", "transaction.timeout.ms": 1000}
    with Producer(settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("orders", "never seen")
        producer.flush()
        age(folder, 1)
        (planned,) = ok("sweep", "--json").json
        assert ([one["transactional_id"] for one in planned["timed_out"]], planned["dry_run"]) == (["late"], True)
        assert ok("transactions", "list", "--json").json[0]["state"] == "Ongoing"
        assert ok("sweep").err == "nothing was changed: add --apply to do it\n"
        lines = ok("sweep", "--apply").lines
        assert "dry run                    no" in lines
        assert ok("transactions", "list", "--json").json[0]["state"] == "CompleteAbort"


def test_retention_removes_when_it_is_meant() -> None:
    ok("topics", "alter", "orders", "--set", "retention.bytes=0")
    ok("produce", "-t", "orders", stdin=b"1\n2\n")
    (planned,) = ok("retention", "--json").json
    assert [(one["topic"], one["new_log_start_offset"]) for one in planned["shortened"]] == [("orders", 2)]
    assert ok("consume", "-t", "orders", "-e").lines == ["1", "2"]
    assert "add --apply" in ok("retention", "orders").err
    ok("retention", "orders", "--apply")
    assert ok("consume", "-t", "orders", "-e").out == b""


def test_verify_finds_nothing_in_a_whole_store_and_names_what_is_damaged(folder: Path) -> None:
    ok("produce", "-t", "orders", stdin=b"1\n2\n")
    (row,) = ok("verify", "--json").json
    assert (row["segments"], row["records"], row["problems"]) == (1, 2, [])
    assert "problems            -" in ok("verify", "orders").lines
    (segment,) = (folder / "store").rglob("*.parquet")
    segment.write_bytes(segment.read_bytes()[:-1] + b"\0")
    done = txnlog("verify", "--json")
    assert (done.code, done.err) == (1, "")
    (problem,) = done.json[0]["problems"]
    assert problem["object"].endswith(segment.name)
    assert "restore" in problem["fix"]
    assert ok("verify", "--no-records", "--json").json[0]["problems"] == []
    assert segment.name in txnlog("verify").text


def test_a_repair_writes_what_follows_from_the_log(folder: Path) -> None:
    (row,) = ok("verify", "--repair", "--json").json
    assert (row["dry_run"], row["repaired"], row["left"]) == (True, [], [])
    with Store.open(store()) as opened:
        opened.log.checkpoint()
    (part,) = sorted((folder / "store/_log/_checkpoints").glob("*/0.json"))[-1:]
    data = part.read_bytes()
    part.unlink()
    assert txnlog("verify").code == 1
    done = txnlog("verify", "--repair", "--json")
    assert (done.code, done.json[0]["repaired"][0]["kind"]) == (1, "part of a checkpoint")
    assert "nothing was written: add --apply" in txnlog("verify", "--repair").err
    assert not part.exists()
    (row,) = ok("verify", "--repair", "--apply", "--json").json
    assert (row["repaired"][0]["object"], row["left"]) == (str(part.relative_to(folder / "store")), [])
    assert part.read_bytes() == data
    assert ok("verify", "--json").json[0]["problems"] == []
    (entry,) = sorted((folder / "store/_log").glob("0*.json"))[:1]
    entry.write_bytes(entry.read_bytes()[:-3])
    done = txnlog("verify", "--repair", "--apply", "--json")
    assert (done.code, done.json[0]["repaired"]) == (1, [])
    assert "restore the entry" in done.json[0]["left"][0]["fix"]


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("verify", "absent"), 1, "txnlog topics list shows"),
        (("verify", "--apply"), 2, "--apply belongs to --repair"),
        (("verify", "orders", "--repair"), 2, "leave out topics and --no-records"),
        (("vacuum", "--set", "vacuum.retention=1"), 2, "vacuum.retention.ms"),
        (("vacuum", "--set", "vacuum.retention.ms=soon"), 2, "expected a whole number"),
        (("sweep", "--set", "sweep"), 2, "--set takes name=value"),
        (("retention", "absent"), 1, "txnlog topics list shows"),
        (("vacuum", "--store", "absent", "--apply"), 1, "there is no store"),
    ],
)
def test_what_is_wrong_is_an_error(words: tuple[str, ...], code: int, expected: str) -> None:
    done = txnlog(*words)
    assert (done.code, done.text) == (code, "")
    assert expected in done.err


def test_a_vacuum_says_what_keeps_what_and_with_now_deletes_it_at_once() -> None:
    ok("topics", "create", "short")
    ok("topics", "delete", "short", "--apply")
    at_once = ("vacuum", "--set", "vacuum.retention.ms=0")
    (planned,) = ok(*at_once, "--json").json
    assert [limit["reason"] for limit in planned["limits"]] == ["checkpoints"]
    shown = "\n".join(ok(*at_once).lines)
    assert "kept (checkpoints): entries from 1 on" in shown
    assert "limits" not in shown
    (done,) = ok(*at_once, "--now", "--apply", "--json").json
    assert (done["entries"] > 0, done["limits"]) == (True, [])
    week = "\n".join(ok("vacuum", "--now", "--apply").lines)
    assert "kept" not in week, "nothing has changed since"
    ok("topics", "create", "other")
    assert "kept (retention): " in "\n".join(ok("vacuum", "--now", "--apply").lines)
    assert "; until 20" in "\n".join(ok("vacuum").lines)
