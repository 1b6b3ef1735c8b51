"""`txnlog copy`, as text and as JSON; and the restore drill of docs/operations.md."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sparktxn.maintenance.copying import storecopy
from sparktxn.testing.faultystore import Died
from tests.cli.terminal import ok, txnlog


@pytest.fixture(autouse=True)
def orders() -> None:
    ok("topics", "create", "orders")
    ok("produce", "-t", "orders", "--transactional-id", "shop-1", stdin=b"1\n2\n")
    ok("consume", "-t", "orders", "-G", "accounts", "-c", "2")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_without_apply_it_says_how_much_would_be_copied(folder: Path) -> None:
    (row,) = ok("copy", "backup", "--json").json
    assert (row["dry_run"], row["is_complete"], row["existing"]) == (True, False, 0)
    assert row["objects"] > 3
    assert ok("copy", "backup").err == "nothing was copied: add --apply to copy these objects\n"
    assert not (folder / "backup" / "_txnlog.json").exists()
    (done,) = ok("copy", "backup", "--apply", "--json").json
    assert (done["objects"], done["size_bytes"], done["is_complete"]) == (row["objects"], row["size_bytes"], True)


def test_a_copy_is_a_store_with_all_that_the_source_has(folder: Path) -> None:
    (row,) = ok("copy", "store", "backup", "--apply", "--json").json
    assert row["target"] == str(folder / "backup")
    for arguments in (["consume", "-t", "orders", "-e", "-f", "%p %o %s %T\n"], ["transactions", "list"], ["log"]):
        assert ok(*arguments, "-b", "backup").text == ok(*arguments).text
    assert ok("verify", "-b", "backup", "--json").json[0]["problems"] == []
    (group,) = ok("groups", "list", "-b", "backup", "--json").json
    assert group["group_id"] == "accounts"


def test_it_is_brought_forward_by_the_same_command() -> None:
    ok("copy", "backup", "--apply")
    ok("produce", "-t", "orders", stdin=b"3\n")
    (row,) = ok("copy", "backup", "--json").json
    assert row["objects"] == 2, "two entries: init_producer_id and append"
    ok("copy", "backup", "--apply")
    assert ok("consume", "-t", "orders", "-e", "-b", "backup").lines == ["1", "2", "3"]
    assert ok("copy", "backup", "--apply", "--json").json[0]["objects"] == 0


def test_a_half_copied_root_says_what_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(storecopy.CopyTarget, "hint", die)
        with pytest.raises(Died):
            txnlog("copy", "backup", "--apply")
    for verb in (["verify"], ["topics", "list"], ["topics", "create", "other"]):
        done = txnlog(*verb, "-b", "backup")
        assert done.code == 1
        assert "is an unfinished copy of the store with the id" in done.err
        assert "finish it with txnlog copy --apply" in done.err
        assert "create it with its first topic" not in done.err
    ok("copy", "backup", "--apply")
    assert ok("consume", "-t", "orders", "-e", "-b", "backup").lines == ["1", "2"]


def test_a_wrong_target_is_named_and_left_as_it_is(folder: Path) -> None:
    ok("copy", "backup", "--apply")
    ok("produce", "-t", "orders", "-b", "backup", stdin=b"3\n")
    ok("topics", "create", "mine", "-b", "other")
    (folder / "rest").mkdir()
    shutil.copytree(folder / "store" / "_log", folder / "rest" / "_log")
    for target, reason in {
        "store": "is the store",
        "store/backup": "one is inside the other",
        ".": "one is inside the other",
        "backup": "was written to",
        "other": "is a store of its own",
        "rest": "no document of one",
    }.items():
        before = files(folder)
        done = txnlog("copy", target, "--apply")
        assert (done.code, reason in done.err) == (2, True), done.err
        assert files(folder) == before
    done = txnlog("copy", "a", "b", "c")
    assert (done.code, "3 addresses" in done.err) == (2, True)
    assert txnlog("copy", "backup", "--target-option", "storage.key=1").code == 2


def test_a_restore_drill(folder: Path) -> None:
    """The store is lost; the copy is copied on, and producers and consumers continue with the new root."""
    ok("copy", "backup", "--apply")
    shutil.rmtree(folder / "store")
    ok("verify", "-b", "backup")
    ok("copy", "backup", "restored", "--apply")
    assert ok("produce", "-t", "orders", "--transactional-id", "shop-1", "-b", "restored", stdin=b"3\n").code == 0
    assert ok("consume", "-t", "orders", "-G", "accounts", "-c", "1", "-b", "restored").lines == ["3"]
    assert ok("consume", "-t", "orders", "-e", "-b", "backup").lines == ["1", "2"]
