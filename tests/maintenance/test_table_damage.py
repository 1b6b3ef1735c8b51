"""Each object of the metadata of tables is damaged in each way: verifying finds it, and its advice repairs it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sparktxn import Producer, Store
from sparktxn.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from sparktxn.errors import StoreUnavailable
from sparktxn.maintenance import repair, rewrite, vacuum, verify
from sparktxn.maintenance.publishing import publish as publishing
from sparktxn.maintenance.publishing.publish import publish_tables
from tests.deltareader import DeltaVersions
from tests.icebergreader import IcebergVersions
from tests.maintenance.longlife import DAMAGES, deleted, names_in
from tests.seeds import seed_of

HINTS = ("_last_checkpoint", "version-hint.text")
FOLDER = "topics/orders-1/"
VERSIONS = 6

Damage = Callable[[bytes, Random], bytes | None]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with a table of several versions, of which the first ones are promised no more."""
    folder = tmp_path_factory.mktemp("published")
    options = {"store.fsync": False}
    with Store.open(folder / "store", create=True, options=options) as store:
        store.create_topic("orders", 2, settings={"table.formats": "delta,iceberg"})
        with Producer({"bootstrap.servers": store.uri, "transactional.id": "shop", **options}) as producer:
            producer.init_transactions()
            for version in range(VERSIONS):
                with producer.transaction():
                    for number in range(4):
                        producer.produce("orders", b"%d" % number, partition=number % 2)
                if version == 4:
                    rewrite(store, {"rewrite.min.segments": 2})
                if version == 2:
                    keep_history(store, 0)
                publish_tables(store)
                if version == 2:
                    vacuum(store, {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0})
                    keep_history(store, 86_400_000)
        yield store


def keep_history(store: Store, history_ms: int) -> None:
    entry = ConfigEntry("table.history.ms", str(history_ms), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[entry])
    with AdminClient({"bootstrap.servers": store.uri}) as admin:
        admin.incremental_alter_configs([resource])[resource].result()


def metadata_of(store: Store) -> list[str]:
    found = [name for name in names_in(store.log.objects) if re.search("/(_delta_log|metadata)/", name)]
    return [name for name in found if not name.endswith(HINTS)]


def files_of(store: Store, newest: int, first: int) -> list[Any]:
    """What readers find in all versions that are promised; the error of one that cannot be read."""
    try:
        delta = DeltaVersions(store.log.objects, FOLDER)
        iceberg = IcebergVersions(store.log.objects, FOLDER)
        return [(delta.files(version), iceberg.files(version, newest)) for version in range(first, newest + 1)]
    except Exception as error:
        return [repr(error)]


def promised(store: Store) -> tuple[int, int]:
    with store.log.known() as state:
        (table,) = state.tables()
    return table.version, table.kept[0].version


def test_each_damage_of_metadata_is_found_and_named(published: Store) -> None:
    objects, random = published.log.objects, Random(seed_of("table damages"))
    newest, first = promised(published)
    assert 0 < first < newest
    assert verify(published).problems == ()
    expected = files_of(published, newest, first)
    of_newest = {f"{FOLDER}_delta_log/{newest:020}.json", f"{FOLDER}metadata/v{newest + 1}.metadata.json"}
    named = unseen = 0
    for name in metadata_of(published):
        for damage in DAMAGES:
            data = objects.get(name)
            assert data is not None
            damaged = damage(data, random)
            if damaged is None:
                objects.delete([name])
            else:
                objects.put(name, damaged)
            told = verify(published).problems
            read = files_of(published, newest, first)
            objects.put(name, data)
            if told:
                assert any(FOLDER in problem.object_name for problem in told)
                named += 1
                continue
            unseen += 1
            # Without the object that completes the newest version it is one that the next publisher finishes.
            assert (damage is deleted and name in of_newest) or read == expected, (name, damaged)
    assert named > unseen
    assert verify(published).problems == ()


@pytest.mark.parametrize("folder", ["_delta_log/", "metadata/"])
def test_metadata_that_is_lost_is_written_again(published: Store, folder: str) -> None:
    objects = published.log.objects
    newest, first = promised(published)
    lost = [name for name in names_in(objects) if name.startswith(FOLDER + folder)]
    named = [name for name in lost if name.endswith((".checkpoint.parquet", f"snap-{first + 1}.avro"))][:1]
    kept = {name: objects.get(name) for name in lost}
    before = files_of(published, newest, first)
    try:
        objects.delete(named)
        (problem,) = verify(published).problems
        assert problem.object_name == named[0]
        assert problem.is_missing
        assert problem.fix.startswith("txnlog verify --repair --apply writes the versions of this format anew")
        foreseen = repair(published)
        assert [each.object_name for each in foreseen.repaired] == named
        assert verify(published).problems == (problem,)
        assert [each.object_name for each in repair(published, dry_run=False).repaired] == named
        assert verify(published).problems == ()
        assert files_of(published, newest, first) == before
        # Without repair, the next publication writes the newest version, which readers ask for.
        objects.delete([name for name in names_in(objects) if name.startswith(FOLDER + folder)])
        assert publish_tables(published).tables == ()
        assert {each.object_name for each in verify(published).problems}
        assert repair(published, dry_run=False).left == ()
        assert verify(published).problems == ()
        versions = [*range(first, newest + 1)]
        if folder == "_delta_log/":
            assert DeltaVersions(objects, FOLDER).readable() == versions
        else:
            assert IcebergVersions(objects, FOLDER).readable(newest) == versions
        assert files_of(published, newest, first) == before
    finally:
        objects.delete([name for name in names_in(objects) if name.startswith(FOLDER + folder)])
        for name, data in kept.items():
            assert data is not None
            objects.put(name, data)


def test_a_version_that_lets_go_of_older_ones_may_have_no_metadata_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its publisher died. Verifying asked for a checkpoint that comes with the missing metadata."""
    options = {"store.fsync": False}
    with (
        Store.open(tmp_path / "store", create=True, options=options) as store,
        Producer({"bootstrap.servers": store.uri, "transactional.id": "shop", **options}) as producer,
    ):
        store.create_topic("orders", 1, settings={"table.formats": "delta,iceberg"})
        producer.init_transactions()

        def publish() -> None:
            with producer.transaction():
                producer.produce("orders", b"value")
            publish_tables(store)

        for _ in range(3):
            publish()
        keep_history(store, 0)

        def die(*_: Any) -> None:
            raise StoreUnavailable("the publisher has died")

        with monkeypatch.context() as patched:
            patched.setattr(publishing, "write_metadata", die)
            with pytest.raises(StoreUnavailable):
                publish()
        assert promised(store) == (3, 2)
        assert verify(store).problems == ()
        publish_tables(store)
        assert verify(store).problems == ()


def test_a_file_that_only_an_older_version_names_is_missed(published: Store) -> None:
    objects = published.log.objects
    newest, first = promised(published)
    delta = DeltaVersions(objects, FOLDER)
    only = sorted(delta.files(first).keys() - delta.files(newest).keys())
    assert only, "the rewrite has replaced files"
    name = FOLDER + only[0]
    data = objects.get(name)
    assert data is not None
    objects.delete([name])
    told = [problem for problem in verify(published).problems if problem.object_name == name]
    objects.put(name, data)
    assert any(f"version {first} of a table names it" in problem.problem for problem in told)
