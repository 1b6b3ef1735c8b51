"""`txnlog groups`: what is shown, deleted and moved."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sparktxn import Consumer
from tests.cli.shop import open_transaction, store
from tests.cli.terminal import ok, txnlog


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a group that is two records behind."""
    path = tmp_path_factory.mktemp("group") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TXNLOG_STORE", str(path))
        make_group()
    return path


@pytest.fixture(autouse=True)
def group(template: Path, folder: Path) -> None:
    shutil.copytree(template, folder / "store")


def make_group() -> None:
    ok("topics", "create", "orders", "-p", "2")
    ok("produce", "-t", "orders", "-p", "0", stdin=b"0\n1\n2\n3\n")
    ok("produce", "-t", "orders", "-p", "1", stdin=b"0\n")
    ok("consume", "-t", "orders", "-G", "accounts", "-e")
    ok("produce", "-t", "orders", "-p", "0", stdin=b"4\n5\n")


def offsets() -> list[tuple[int, int | None, int, int | None]]:
    (row,) = ok("groups", "describe", "accounts", "--json").json
    return [(one["partition"], one["offset"], one["end_offset"], one["lag"]) for one in row["partitions"]]


def test_groups_are_listed_and_described() -> None:
    assert ok("groups", "list").lines == ["group id  state  type", "accounts  Empty  Classic"]
    assert ok("groups", "list", "--json").json == [{"group_id": "accounts", "state": "Empty", "type": "Classic"}]
    assert ok("groups", "list", "--state", "stable").err.startswith("no groups: ")
    (row,) = ok("groups", "describe", "accounts", "--json").json
    assert (row["group_id"], row["state"], row["lag"], row["members"]) == ("accounts", "Empty", 2, [])
    assert offsets() == [(0, 4, 6, 2), (1, 1, 1, 0)]
    assert "orders          0       4           6    2          -" in ok("groups", "describe", "accounts").lines


def test_the_lag_ends_at_the_last_stable_offset() -> None:
    producer = open_transaction("open")
    assert offsets()[0] == (0, 4, 6, 2)
    (row,) = ok("groups", "describe", "accounts", "--uncommitted", "--json").json
    assert [(one["end_offset"], one["lag"]) for one in row["partitions"]] == [(7, 3), (1, 0)]
    producer.abort_transaction()
    producer.close()


def test_a_group_with_members_shows_them_and_stays() -> None:
    with Consumer({"bootstrap.servers": store(), "group.id": "accounts", "client.id": "[red]"}) as consumer:
        consumer.subscribe(["orders"])
        assert consumer.poll(10) is not None
        (row,) = ok("groups", "describe", "accounts", "--json").json
        (member,) = row["members"]
        assert (row["state"], member["client_id"]) == ("Stable", "[red]")
        assert member["assignment"] == ["orders-0", "orders-1"]
        assert "[red]" in ok("groups", "describe", "accounts").text
        for words in (("delete", "accounts"), ("reset", "accounts", "--all-topics", "--to-earliest")):
            for apply in ([], ["--apply"]):
                done = txnlog("groups", *words, *apply)
                assert (done.code, done.text) == (1, "")
                assert "has 1 member: stop its consumers first" in done.err


def test_a_group_is_deleted_when_it_is_meant() -> None:
    assert ok("groups", "delete", "accounts", "--json").json == [{"group_id": "accounts", "deleted": False}]
    assert len(offsets()) == 2
    assert "add --apply" in ok("groups", "delete", "accounts").err
    assert ok("groups", "delete", "accounts", "--apply", "--json").json == [{"group_id": "accounts", "deleted": True}]
    assert ok("groups", "list", "--json").json == []
    for verb in ("describe", "delete"):
        done = txnlog("groups", verb, "accounts")
        assert done.code == 1
        assert "txnlog groups list shows the groups" in done.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--all-topics", "--to-earliest"), [(0, 0), (1, 0)]),
        (("--topic", "orders", "--to-latest"), [(0, 6), (1, 1)]),
        (("--topic", "orders:0", "--to-offset", "3"), [(0, 3), (1, 1)]),
        (("--topic", "orders:0,1", "--to-offset", "99"), [(0, 6), (1, 1)]),
        (("--all-topics", "--shift-by", "-2"), [(0, 2), (1, 0)]),
        (("--all-topics", "--shift-by", "1"), [(0, 5), (1, 1)]),
        (("--all-topics", "--to-time", "0"), [(0, 0), (1, 0)]),
        (("--all-topics", "--to-time", "2200-01-01"), [(0, 6), (1, 1)]),
    ],
)
def test_offsets_move_when_it_is_meant(words: tuple[str, ...], expected: list[tuple[int, int]]) -> None:
    before = offsets()
    planned = ok("groups", "reset", "accounts", *words, "--json").json
    assert offsets() == before
    assert not any(row["applied"] for row in planned)
    assert "add --apply" in ok("groups", "reset", "accounts", *words).err
    applied = ok("groups", "reset", "accounts", *words, "--apply", "--json").json
    assert applied == [{**row, "applied": True} for row in planned]
    assert [(partition, offset) for partition, offset, _, _ in offsets()] == expected


def test_a_group_that_does_not_exist_may_be_given_offsets() -> None:
    ok("groups", "reset", "new", "--topic", "orders", "--to-latest", "--apply")
    (row,) = ok("groups", "describe", "new", "--json").json
    assert [one["offset"] for one in row["partitions"]] == [6, 1]


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("accounts", "--all-topics"), 2, "expected one of --to-earliest"),
        (("accounts", "--all-topics", "--to-earliest", "--to-offset", "0"), 2, "expected one of --to-earliest"),
        (("accounts", "--to-earliest"), 2, "expected --topic or --all-topics"),
        (("accounts", "--to-earliest", "--topic", "orders", "--all-topics"), 2, "expected --topic or --all-topics"),
        (("accounts", "--to-earliest", "--topic", "orders:2"), 2, "partitions 0 to 1, not 2"),
        (("accounts", "--to-earliest", "--topic", "orders:x"), 2, "expected TOPIC or TOPIC:0,1"),
        (("accounts", "--to-earliest", "--topic", "absent"), 1, "txnlog topics list"),
        (("accounts", "--to-time", "noon", "--all-topics"), 2, "--to-time is 'noon'"),
        (("new", "--all-topics", "--to-earliest"), 1, "group 'new' has no offsets"),
        (("new", "--topic", "orders", "--shift-by", "1"), 2, "no offset for orders-0 that could be shifted"),
    ],
)
def test_what_is_wrong_moves_nothing(words: tuple[str, ...], code: int, expected: str) -> None:
    before = offsets()
    done = txnlog("groups", "reset", *words, "--apply")
    assert (done.code, done.text) == (code, "")
    assert expected in done.err
    assert offsets() == before
    assert txnlog("groups", "list", "--state", "odd").code == 2
