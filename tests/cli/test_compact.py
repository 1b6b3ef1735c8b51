"""`txnlog compact`, as text and as JSON."""

from __future__ import annotations

from pathlib import Path

from tests.cli.terminal import ok, txnlog


def fill(topic: str = "prices", count: int = 6) -> None:
    ok("topics", "create", topic, "--set", "cleanup.policy=compact")
    for number in range(count):
        ok("produce", "-t", topic, "-K", ":", stdin=f"key {number % 2}:record {number}\n".encode())


def test_without_apply_it_says_what_would_be_compacted() -> None:
    fill()
    (row,) = ok("compact", "--json").json
    assert (row["dry_run"], row["partitions"], row["segment_files"], row["new_files"]) == (True, 1, 6, 0)
    assert ok("compact").err == "nothing was compacted: add --apply to compact these partitions\n"
    assert ok("compact", "--json").json == [row]


def test_with_apply_it_compacts() -> None:
    fill()
    fill("other")
    (row,) = ok("compact", "prices", "--apply", "--json").json
    assert (row["partitions"], row["removed_records"], row["left_records"], row["lost"]) == (1, 4, 2, [])
    assert ok("consume", "-t", "prices", "-e").lines == ["record 4", "record 5"]
    assert ok("consume", "-t", "prices", "-o", "-1", "-e").lines == ["record 5"]
    assert ok("consume", "-t", "prices", "-o", "-9", "-e").lines == ["record 4", "record 5"]
    assert len(ok("consume", "-t", "other", "-e").lines) == 6, "the other topic is as it was"
    (row,) = ok("compact", "prices", "--apply", "--json").json
    assert row["partitions"] == 0, "nothing is new"


def test_a_file_of_which_every_row_is_left_is_whole() -> None:
    fill()
    ok("compact", "--apply")
    (row,) = ok("files", "prices", "--json").json
    assert (row["base_offset"], row["record_count"], row["is_whole"]) == (4, 2, True)


def test_dump_shows_what_is_left(folder: Path) -> None:
    fill()
    ok("produce", "-t", "prices", "-K", ":", stdin=b"key 3:a\nkey 4:b\nkey 3:c\n")
    ok("compact", "--apply")
    (manifest,) = (path for path in (folder / "store").rglob("_sealed/*/manifest"))
    (row,) = ok("dump", str(manifest), "--json").json
    assert [(one["base_offset"], one["record_count"], one.get("row_count")) for one in row["rows"]][-1] == (6, 3, 2)
    (file,) = ok("files", "prices", "--json").json
    (row,) = ok("dump", file["path"].removeprefix("file://"), "--json").json
    assert [record["offset"] for record in row["records"]] == [4, 5, 7, 8]


def test_maintain_compacts() -> None:
    fill()
    (row,) = ok("maintain", "--apply", "--json").json
    assert row["compact"]["removed_records"] == 4


def test_a_wrong_setting_or_topic_is_named() -> None:
    ok("topics", "create", "orders")
    done = txnlog("compact", "--set", "compact.target.bytes=5")
    assert done.code == 2
    assert "compact.target.bytes" in done.err
    done = txnlog("compact", "missing")
    assert done.code == 1
    assert "'missing'" in done.err
    done = txnlog("compact", "orders")
    assert done.code != 0
    assert "cleanup.policy" in done.err
