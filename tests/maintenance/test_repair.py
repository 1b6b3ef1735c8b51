"""Repairing: what follows from the log is written anew, byte for byte; all else is left, and said."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import CheckpointHint, encode_hint
from sparktxn.maintenance import repair, vacuum, verify
from sparktxn.store import Store
from tests.maintenance.test_verify import EVERYTHING, GOLDEN, OPTIONS, segments_of, shop, trade

__all__ = ["shop"]

# The package's name `repair` is the function.
repairing: Any = sys.modules["sparktxn.maintenance.checking.repair"]

KINDS = {
    "manifest": "**/_sealed/*/manifest",
    "index of aborted transactions": "**/*.txnindex",
    "snapshot of producers": "**/*.snapshot",
    "part of a checkpoint": "_log/_checkpoints/*/*.json",
    "hint": "_log/_last_checkpoint.json",
}
DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "another byte": lambda path: path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1])),
}


def content(store: Store) -> dict[str, bytes]:
    root = Path(store.uri)
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def segments_parts(store: Store) -> set[str]:
    """The parts that say where segments are: how they are sealed is their writer's choice."""
    return {name for name, data in content(store).items() if "_checkpoints/" in name and b'"segments"' in data[:40]}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("kind", KINDS)
def test_what_follows_from_the_log_is_written_as_it_was(shop: Store, kind: str, damage: str) -> None:
    # A process that has made a checkpoint may leave the hint at an older checkpoint: the repair takes the newest.
    (newest,) = sorted((Path(shop.uri) / "_log/_checkpoints").glob("*.json"))[-1:]
    entry, _, checkpoint = newest.stem.partition("-")
    (Path(shop.uri) / names.LAST_CHECKPOINT).write_bytes(encode_hint(CheckpointHint(int(entry), checkpoint)))
    before = content(shop)
    left_out = segments_parts(shop)
    found = [path for path in Path(shop.uri).glob(KINDS[kind]) if str(path.relative_to(shop.uri)) not in left_out]
    assert found
    for path in found:
        DAMAGE[damage](path)
    damaged = content(shop)
    foreseen = repair(shop)
    assert foreseen.dry_run
    assert content(shop) == damaged
    report = repair(shop, dry_run=False)
    assert {one.object_name for one in report.repaired} == {str(path.relative_to(shop.uri)) for path in found}
    assert {one.kind for one in report.repaired} == {kind}
    assert set(report.repaired) == set(foreseen.repaired)
    assert report.left == ()
    assert content(shop) == before
    assert verify(shop).problems == ()
    assert repair(shop, dry_run=False).repaired == ()


def test_a_whole_store_is_left_alone(shop: Store) -> None:
    before = content(shop)
    report = repair(shop, dry_run=False)
    assert (report.repaired, report.left) == ((), ())
    assert content(shop) == before


def test_an_index_that_is_whole_and_wrong(shop: Store) -> None:
    path = sorted(Path(shop.uri).rglob("*.txnindex"))[0]
    right = path.read_bytes()
    path.write_bytes(right[:2] + (10**6).to_bytes(8, "big") + right[10:])
    report = repair(shop, dry_run=False)
    assert [one.object_name for one in report.repaired] == [str(path.relative_to(shop.uri))]
    assert path.read_bytes() == right


def test_entries_and_segments_are_left_and_said(shop: Store) -> None:
    (segment, *_) = segments_of(shop)
    segment.unlink()
    before = content(shop)
    report = repair(shop, dry_run=False)
    assert report.repaired == ()
    assert [(one.object_name, one.fix) for one in report.left] == [
        (str(segment.relative_to(shop.uri)), "restore the object from a copy of the store")
    ]
    assert content(shop) == before


def test_of_a_log_that_cannot_be_followed_nothing_is_made(shop: Store) -> None:
    entry = Path(shop.uri) / names.entry(5)
    entry.write_bytes(entry.read_bytes()[:-4])
    for path in Path(shop.uri).glob(KINDS["manifest"]):
        path.unlink()
    report = repair(shop, dry_run=False)
    assert report.repaired == ()
    assert names.entry(5) in {one.object_name for one in report.left}
    assert not list(Path(shop.uri).glob(KINDS["manifest"]))


def test_what_a_newer_version_has_written_is_left(shop: Store) -> None:
    path = sorted(Path(shop.uri).rglob("*.snapshot"))[0]
    path.write_bytes(b"\x00\x09" + path.read_bytes()[2:])
    report = repair(shop, dry_run=False)
    assert report.repaired == ()
    assert [one.fix for one in report.left] == ["upgrade sparktxn: a newer version has written it"]


def test_what_the_horizon_has_passed_is_left(shop: Store) -> None:
    """Runs of entries that are gone: their manifests follow from nothing, later ones from the log."""
    for _ in range(3):
        trade(shop.uri, 4)
        shop.log.refresh()
        shop.log.checkpoint()
        vacuum(shop, EVERYTHING)
    trade(shop.uri, 4)
    shop.log.refresh()
    shop.log.checkpoint()
    horizon = verify(shop).horizon
    assert horizon > 1
    before = content(shop)
    manifests = sorted(Path(shop.uri).glob(KINDS["manifest"]))
    for path in manifests:
        path.unlink()
    with Store.open(shop.uri, options=OPTIONS) as fresh:
        report = repair(fresh, dry_run=False)
    assert {one.object_name for one in report.repaired} <= {str(path.relative_to(shop.uri)) for path in manifests}
    assert all(content(shop)[one.object_name] == before[one.object_name] for one in report.repaired)
    assert [path for path in manifests if not path.exists()]
    assert report.left


def test_a_damaged_part_is_not_taken_for_another_one(shop: Store, tmp_path: Path) -> None:
    """Bytes without the digest in the head are never written: here the head names what no replay gives."""
    shutil.copytree(GOLDEN, tmp_path / "golden")
    with Store.open(str(tmp_path / "golden")) as store:
        for pattern in (KINDS["manifest"], KINDS["index of aborted transactions"]):
            for path in Path(store.uri).glob(pattern):
                path.write_bytes(b"damaged")
        before = content(store)
        report = repair(store, dry_run=False)
        after = content(store)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {one.object_name for one in report.repaired}
    original = {str(path.relative_to(GOLDEN)): path.read_bytes() for path in GOLDEN.rglob("*") if path.is_file()}
    assert all(after[name] == original[name] for name in changed)


@pytest.mark.parametrize(
    ("kind", "encoder"), [("manifest", "encode_manifest"), ("part of a checkpoint", "encode_part")]
)
def test_bytes_without_the_checksum_that_names_them_are_never_written(
    shop: Store, monkeypatch: pytest.MonkeyPatch, kind: str, encoder: str
) -> None:
    """As another version of Parquet's writer would make them."""
    real = getattr(repairing, encoder)
    monkeypatch.setattr(repairing, encoder, lambda values: real(values) + b" ")
    for path in Path(shop.uri).glob(KINDS[kind]):
        path.write_bytes(b"damaged")
    before = content(shop)
    report = repair(shop, dry_run=False)
    assert report.repaired == ()
    assert report.left
    assert content(shop) == before
