"""`txnlog bench`: figures of commits, uploads and reads, from a store that is gone afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktxn.cli.verbs import bench
from sparktxn.errors import StoreUnavailable
from sparktxn.objectstore.memory import MemoryStore
from sparktxn.store.registry import objects_of
from tests.cli.terminal import ok, txnlog

SHORT = ("bench", "--duration", "200ms", "--size", "8MB")


def test_it_prints_figures_and_leaves_nothing(folder: Path) -> None:
    ok("topics", "create", "orders")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    one, eight, upload, read = ok(*SHORT, "--json").json
    assert (one["measured"], eight["measured"]) == ("commits, 1 writer", "commits, 8 writers")
    for commits in (one, eight):
        assert commits["per_second"] > 0
        assert 0 < commits["p50_ms"] <= commits["p99_ms"]
    # Records that the commits have written are read, too.
    assert 8_000_000 <= upload["size_bytes"] * 1.1 < read["size_bytes"] * 1.2
    assert min(upload["mb_per_second"], read["mb_per_second"]) > 0
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert [path.name for path in folder.iterdir() if "bench" in path.name] == []


def test_what_fails_leaves_nothing_either(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StoreUnavailable("the store does not answer")

    monkeypatch.setattr(bench, "_read", fail)
    done = txnlog(*SHORT)
    assert done.code == 1
    assert "the store does not answer" in done.err
    assert list(folder.iterdir()) == []


def test_its_store_is_beside_yours() -> None:
    for store, expected in (
        ("/data/shop/", "/data/shop-bench-"),
        ("s3://bucket/shop", "s3://bucket/shop-bench-"),
        ("s3a://bucket", "s3://bucket/bench-"),
        ("memory://shop", "memory://shop-bench-"),
    ):
        own = bench._own_address(store)
        assert own.startswith(expected)
        assert own != bench._own_address(store)


def test_objects_of_a_bucket_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_own_address", lambda store: "memory://measured")
    ok(*SHORT, "-b", "memory://shop")
    objects = objects_of("memory://measured", {})
    assert isinstance(objects, MemoryStore)
    assert objects.list("") == []
