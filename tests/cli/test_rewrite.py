"""`txnlog rewrite`, as text and as JSON."""

from __future__ import annotations

from tests.cli.terminal import ok, txnlog


def fill(topic: str = "orders", count: int = 6) -> None:
    ok("topics", "create", topic)
    for number in range(count):
        ok("produce", "-t", topic, stdin=f"record {number}\n".encode())


def test_without_apply_it_says_what_would_be_merged() -> None:
    fill()
    (row,) = ok("rewrite", "--json").json
    assert (row["dry_run"], row["ranges"], row["segment_files"], row["new_files"]) == (True, 1, 6, 0)
    assert ok("rewrite").err == "nothing was merged: add --apply to merge these files\n"
    assert ok("rewrite", "--json").json == [row]


def test_with_apply_it_merges() -> None:
    fill()
    fill("other")
    before = ok("consume", "-t", "orders", "-e").text
    (row,) = ok("rewrite", "orders", "--apply", "--json").json
    assert (row["ranges"], row["segment_files"], row["new_files"], row["lost"]) == (1, 6, 1, [])
    assert ok("consume", "-t", "orders", "-e").text == before
    assert ok("rewrite", "--json").json[0]["segment_files"] == 6, "the other topic is as it was"
    lines = ok("rewrite", "other", "--apply").lines
    assert any(line.split() == ["new", "files", "1"] for line in lines)


def test_settings_select() -> None:
    fill(count=3)
    (row,) = ok("rewrite", "orders", "--set", "rewrite.min.segments=2", "--json").json
    assert row["segment_files"] == 3
    (row,) = ok("rewrite", "--set", "rewrite.min.segments=2", "--set", "rewrite.min.age.ms=3600000", "--json").json
    assert row["segment_files"] == 0


def test_a_wrong_setting_or_topic_is_named() -> None:
    fill(count=1)
    done = txnlog("rewrite", "--set", "rewrite.target.bytes=5")
    assert done.code == 2
    assert "rewrite.target.bytes" in done.err
    done = txnlog("rewrite", "missing")
    assert done.code == 1
    assert "'missing'" in done.err


def test_a_merged_file_is_whole_for_other_engines() -> None:
    fill()
    ok("rewrite", "orders", "--apply")
    (row,) = ok("files", "orders", "--json").json
    assert (row["base_offset"], row["record_count"], row["is_whole"]) == (0, 6, True)
    assert row["offset_column"] == "offset"
    assert len(ok("files", "orders", "--paths").lines) == 1
