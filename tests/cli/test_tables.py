"""`txnlog tables`: what is listed, what would be published, and what is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shop import open_transaction, store
from tests.cli.terminal import ok, txnlog


@pytest.fixture(autouse=True)
def trips() -> None:
    """A table with two records, and a topic that is none."""
    ok("topics", "create", "orders")
    ok("topics", "create", "trips", "--column", "id int64", "--set", "table.formats=delta")
    ok("produce", "-t", "trips", stdin=b'{"id": 1}\n{"id": 2}\n')


def commits(folder: Path) -> list[str]:
    return sorted(path.stem.lstrip("0") or "0" for path in (folder / "store").rglob("_delta_log/*.json"))


def test_a_topic_that_was_never_published_is_listed_without_a_version() -> None:
    (row,) = ok("tables", "list", "--json").json
    assert row.pop("waiting_ms") >= 0
    assert row == {
        "topic": "trips",
        "formats": ["delta"],
        "version": None,
        "entry": None,
        "published_timestamp_ms": None,
        "waiting_records": 2,
        "deleted": False,
        "location": None,
    }
    assert ok("tables", "list").lines[1].split()[:6] == ["trips", "delta", "-", "-", "-", "2"]


def test_without_apply_it_prints_what_would_be_published(folder: Path) -> None:
    before = ok("log", "--json", "-n", "1").json
    (row,) = ok("tables", "publish", "--json").json
    assert row["dry_run"]
    assert [(table["topic"], table["version"], table["added_records"]) for table in row["tables"]] == [("trips", 0, 2)]
    assert ok("tables", "publish").err == "nothing was published: add --apply to publish these versions\n"
    assert ok("log", "--json", "-n", "1").json == before
    assert commits(folder) == []


def test_with_apply_it_publishes_and_the_list_says_what_came_later(folder: Path) -> None:
    (row,) = ok("tables", "publish", "trips", "--location", "s3a://bucket/shop", "--apply", "--json").json
    (table,) = row["tables"]
    assert (table["version"], table["added_files"], table["added_records"]) == (0, 1, 2)
    assert commits(folder) == ["0"]
    ok("produce", "-t", "trips", stdin=b'{"id": 3}\n')
    with open_transaction("open", "orders"):
        (found,) = ok("tables", "list", "trips", "--json").json
    assert (found["version"], found["entry"], found["waiting_records"]) == (0, row["entry"], 1)
    assert found["location"] == "s3a://bucket/shop/topics/trips-2"
    lines = ok("tables", "publish", "--apply").lines
    assert lines[-1].split()[:2] == ["trips", "1"]
    (row,) = ok("tables", "publish", "--apply", "--json").json
    assert (row["tables"], row["unchanged"]) == ([], ["trips"])
    assert commits(folder) == ["0", "1"]


def test_the_location_is_that_of_the_store_where_none_is_given() -> None:
    ok("tables", "publish", "--apply")
    (found,) = ok("tables", "list", "--json").json
    assert found["location"] == f"file://{store()}/topics/trips-2"


def test_a_topic_that_is_no_table_is_refused() -> None:
    for verb in (("list",), ("publish",), ("publish", "--apply")):
        done = txnlog("tables", *verb, "orders")
        assert done.code == 2
        assert "topic 'orders' is not a table: set its table.formats" in done.err
        done = txnlog("tables", *verb, "missing")
        assert done.code == 1
        assert "missing" in done.err


def test_without_tables_the_list_says_how_to_make_one() -> None:
    ok("topics", "delete", "trips", "--apply")
    done = ok("tables", "list")
    assert (done.text, done.err) == (
        "",
        "no topic is a table: txnlog topics alter NAME --set table.formats=delta makes it one\n",
    )


def test_maintain_publishes_and_prints_it(folder: Path) -> None:
    done = ok("maintain")
    assert "tables  tables" in done.text
    assert commits(folder) == []
    (row,) = ok("maintain", "--apply", "--json").json
    assert [table["topic"] for table in row["tables"]["tables"]] == ["trips"]
    assert commits(folder) == ["0"]
    assert ok("maintain", "--apply").err == (
        "sweep, retention, compact, rewrite, tables and vacuum have found nothing to do\n"
    )
