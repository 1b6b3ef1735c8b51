"""`txnlog export`: conditions as text, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.shop import create_people, open_transaction
from tests.cli.terminal import ok, txnlog


@pytest.fixture(autouse=True)
def trips() -> None:
    ok("topics", "create", "trips", "--column", "id int64 not null", "--column", "name string")
    ok("produce", "-t", "trips", stdin=b"".join(b'{"id": %d, "name": "n%d"}\n' % (n, n) for n in range(6)))
    ok("topics", "create", "orders")
    ok("produce", "-t", "orders", "-K", ":", stdin=b"a:1\nb:2\nc:3\n")


def rows(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for path in sorted(folder.rglob("*.json")) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("topic", "where", "count"),
    [
        ("trips", "id >= 4", 2),
        ("trips", "id<1", 1),
        ("trips", "id in (1, 2, 9)", 2),
        ("trips", "name = n3", 1),
        ("trips", "name <> 'n3' and id between 2 and 4", 2),
        ("trips", "name like 'n%'", 6),
        ("trips", "id not in (1, 2)", 4),
        ("trips", "name starts with n", 6),
        ("trips", "name is null", 0),
        ("orders", "key = b", 1),
        ("orders", "timestamp >= 1h", 3),
        ("orders", "offset > 1", 1),
    ],
)
def test_conditions(folder: Path, topic: str, where: str, count: int) -> None:
    (row,) = ok("export", "-t", topic, "out", "--format", "json", "--where", where, "--json").json
    assert row["records"] == count == len(rows(folder / "out"))


def test_parts_of_a_topic_at_an_older_entry(folder: Path) -> None:
    ok("export", "-t", "orders", "out", "--format", "json", "--from-offset", "1", "--to-offset", "2", "-p", "0")
    assert [row["key"] for row in rows(folder / "out")] == ["b"]
    (row,) = ok("export", "-t", "orders", "older", "--entry", "4", "--json").json
    assert (row["entry"], row["records"], row["files"]) == (4, 0, 0)
    (row,) = ok("export", "-t", "orders", "older-by-time", "--time", "0s", "--json").json
    assert row["records"] == 3


def test_records_behind_an_open_transaction() -> None:
    with open_transaction("slow"):
        ok("produce", "-t", "orders", "-K", ":", stdin=b"d:4\n")
        found = [
            ok("export", "-t", "orders", f"out-{order}", "--order", order, "--json").json
            for order in ("commit", "offset")
        ]
    assert [row["records"] for (row,) in found] == [4, 3]


def test_what_is_wrong_is_named() -> None:
    for words, reason in {
        ("--where", "id"): "'id' is malformed",
        ("--where", "id = x"): "'x': expected int64",
        ("--where", "id =< 4"): "'<=' is one",
        ("--where", "id = 4 or id = 5"): "'or' is not supported",
        ("--where", "name = 'n3"): "a quote is not closed",
        ("--where", "name = 3"): "'3' in quotes",
        ("--where", "nothing = 1"): "nothing",
        ("--where", "_timestamp > never"): "--where",
        ("--entry", "1", "--time", "0s"): "exclude each other",
        ("--time", "never"): "--time",
        ("--format", "xml"): "file_format",
        ("-p", "4"): "no partition 4",
    }.items():
        done = txnlog("export", "-t", "trips", "out", *words)
        assert (done.code, reason in done.err) == (2, True), done.err
    assert txnlog("export", "-t", "missing", "out").code == 1
    ok("export", "-t", "trips", "out")
    assert txnlog("export", "-t", "trips", "out").code == 2


def test_a_keyed_topic_gives_its_latest_rows_or_all(folder: Path) -> None:
    create_people()
    ok(
        "produce",
        "-t",
        "people",
        stdin=b'{"id": 1, "city": "Bonn"}\n{"id": 1, "city": "Kiel"}\n{"id": 2, "city": "Ulm"}\n',
    )
    ok("produce", "-t", "people", "--delete", stdin=b'{"id": 2}\n')
    done = ok("export", "-t", "people", "now", "--format", "json", "--column", "id", "--column", "city")
    assert "records     1\n" in done.out.decode()
    assert done.err.startswith("these are the latest rows of the keys: --rows all")
    (file,) = (folder / "now").rglob("*.json")
    assert file.read_text() == '{"id":1,"city":"Kiel"}\n'
    whole = ok("export", "-t", "people", "all", "--rows", "all", "--json")
    assert (whole.json[0]["records"], whole.err) == (4, "")
    refused = txnlog("export", "-t", "people", "part", "--from-offset", "1")
    assert (refused.code, "--rows all" in refused.err) == (2, True)
    refused = txnlog("export", "-t", "orders", "part", "--rows", "latest")
    assert (refused.code, "has no key" in refused.err) == (2, True)
