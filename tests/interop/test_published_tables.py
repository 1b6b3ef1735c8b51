"""DuckDB and pyiceberg read the tables of stores that have lived, and write nothing to them (`make interop`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparktxn import Producer, Store
from sparktxn.maintenance import publish_tables, verify
from tests.interop.engines import Engine, EngineError, not_refused
from tests.livedhistory import LivedHistory, Version, check_whole, lived, wrong_versions
from tests.mergedhistory import TYPED

pytestmark = pytest.mark.interop

NO_FILE_SYSTEM = "Unrecognized filesystem type in URI: txnlog"


@pytest.fixture(scope="module", params=["all versions", "versions that are left"])
def history(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivedHistory]:
    """A store with all of its versions, and one whose vacuum has deleted the older ones."""
    with lived(tmp_path_factory.mktemp("lived") / "store", 1) as found:
        if request.param == "versions that are left":
            found.forget()
        found.vacuum()
        assert len(found.versions) > 5
        yield found


def metadata(history: LivedHistory, topic: str, number: int) -> str:
    return f"{history.location(topic)}/metadata/v{number + 1}.metadata.json"


def by_delta_scan(engines: Engine, history: LivedHistory, version: Version) -> Any:
    return engines.ask("delta_scan", location=history.location(version.topic), version=version.number)


def by_own_metadata(what: str) -> Callable[[Engine, LivedHistory, Version], Any]:
    def read(engines: Engine, history: LivedHistory, version: Version) -> Any:
        path = metadata(history, version.topic, version.number)
        return engines.ask(what, metadata=path, where="", snapshot=None)

    return read


def by_snapshot(what: str) -> Callable[[Engine, LivedHistory, Version], Any]:
    def read(engines: Engine, history: LivedHistory, version: Version) -> Any:
        path = metadata(history, version.topic, history.newest(version.topic).number)
        return engines.ask(what, metadata=path, where="", snapshot=version.number + 1)

    return read


READERS = {
    "delta_scan": by_delta_scan,
    "iceberg_scan": by_own_metadata("duckdb"),
    "iceberg_scan by snapshot": by_snapshot("duckdb"),
    "pyiceberg": by_own_metadata("pyiceberg"),
    "pyiceberg by snapshot": by_snapshot("pyiceberg"),
}


@pytest.mark.parametrize("name", READERS)
def test_every_version_has_the_rows_of_its_entry(engines, history, name):
    versions = [shown_by_pyiceberg(each) for each in history.versions] if "pyiceberg" in name else history.versions
    assert wrong_versions(versions, lambda version: READERS[name](engines, history, version)) == []


def shown_by_pyiceberg(version: Version) -> Version:
    """pyiceberg 0.12 takes a null list of structs for an empty one (`list()` of its ArrowProjectionVisitor)."""
    rows = [row | {"headers": row["headers"] or []} if "headers" in row else row for row in version.rows]
    return version._replace(rows=rows)


def test_the_newest_version_is_found_without_its_number(engines, history):
    for topic in history.topics:
        newest = engines.ask("delta_scan", location=history.location(topic), version=None)
        assert newest == history.newest(topic).rows


def test_versions_that_a_vacuum_has_deleted_are_refused(engines, history):
    first = min(version.number for version in history.versions if version.topic == TYPED)
    if first == 0:
        pytest.skip("this store has them all")
    request = {"location": history.location(TYPED), "version": first - 1}
    with pytest.raises(EngineError):
        engines.ask("delta_scan", **request)


def test_duckdb_reads_a_table_on_s3_by_the_settings_of_its_store(engines, moto_server):
    """Its Delta and Iceberg readers have the secret of the topic's folder, too."""
    moto_server.create_bucket("duckdb")
    address, options = "s3://duckdb/shop", moto_server.options
    with Store.open(address, options=options, create=True) as store:
        store.create_topic("rides", 2, settings={"table.formats": "delta,iceberg"})
        with Producer({"bootstrap.servers": address, **options}) as producer:
            for number in range(5):
                producer.produce("rides", f"{number}", headers=[("h", b"x")])
        publish_tables(store)
        rows = engines.ask("open_table", store=address, topic="rides", options=options)
    assert sorted(row["value"] for row in rows) == [b"%d" % number for number in range(5)]


ACTIONS = (
    "append",
    "overwrite",
    "delete",
    "delete some",
    "delete all",
    "add column",
    "set a property",
    "expire snapshots",
)


def test_pyiceberg_writes_nothing_to_a_table_that_a_catalog_has(engines, tmp_path):
    with lived(tmp_path / "store", 2) as history:
        path = metadata(history, TYPED, history.newest(TYPED).number)
        before = history.objects()
        requests = {action: {"what": "write", "action": action, "metadata": path} for action in ACTIONS}
        assert not_refused(engines, requests, NO_FILE_SYSTEM) == {}
        engines.ask("write", action="drop", metadata=path)
        assert history.objects() == before
        check_whole(history, lambda version: READERS["iceberg_scan"](engines, history, version))


def test_duckdb_inserts_nothing_into_a_delta_table(engines, tmp_path):
    with lived(tmp_path / "store", 2) as history:
        before = history.objects()
        with pytest.raises(EngineError, match="DeltaInsert"):
            engines.ask("insert into delta", location=history.location(TYPED))
        assert history.objects().items() >= before.items()
        check_whole(history, lambda version: by_delta_scan(engines, history, version))


def test_a_purge_by_pyiceberg_deletes_the_topics_records(engines, tmp_path):
    """docs/tables.md warns of it: no property of the table prevents it."""
    with lived(tmp_path / "store", 2) as history:
        path = metadata(history, TYPED, history.newest(TYPED).number)
        engines.ask("write", action="purge", metadata=path)
        assert any("offsets.parquet" in each.object_name for each in verify(history.store).problems)
