"""Published tables of a store on S3: each engine reads them by the store's own settings, which no text shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import msgspec
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import StaticTable

from sparktxn import ConfigurationError, Producer, Store, Table, open_table, read_arrow
from sparktxn._foundation.config.store import StoreOptions
from sparktxn.maintenance import list_tables, maintain, publish_tables, vacuum, verify
from tests.cli.terminal import ok
from tests.integration.test_catalog import served
from tests.interop.programs.s3options import delta_options, iceberg_properties
from tests.servers import S3Server

pytestmark = pytest.mark.moto

RIDES = pa.schema([("id", pa.int64()), ("zone", pa.string())])
BOTH = {"table.formats": "delta,iceberg"}
WAIT_S = 60.0
buckets = count()


class Shop(NamedTuple):
    """A store on S3."""

    server: S3Server
    address: str

    @property
    def options(self) -> dict[str, Any]:
        return self.server.options

    def write(self, *ids: int, commit: bool = True, **settings: Any) -> None:
        """A transaction with a ride for each id."""
        given = {"bootstrap.servers": self.address, "transactional.id": "meter", **self.options, **settings}
        with Producer(given) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for number in ids:
                ride = pa.table({"id": [number], "zone": [f"z{number}"]})
                producer.produce_arrow("rides", ride, partition=number % 2)
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()

    def opened(self, **wanted: Any) -> Table:
        return open_table(self.address, "rides", options=self.options, **wanted)

    def location(self) -> str:
        with Store.open(self.address, options=self.options) as store:
            (table,) = list_tables(store)
        assert table.location is not None
        return table.location


@pytest.fixture
def shop(moto_server: S3Server) -> Iterator[Shop]:
    """A store with the table ``rides``."""
    bucket = f"tables-{next(buckets)}"
    moto_server.create_bucket(bucket)
    shop = Shop(moto_server, f"s3://{bucket}/shop")
    with Store.open(shop.address, options=shop.options, create=True) as store:
        store.create_topic("rides", 2, schema=RIDES, settings=BOTH)
        yield shop


def by_delta_rs(shop: Shop, version: int) -> Any:
    table = DeltaTable(shop.location(), version=version, storage_options=delta_options(shop.options))
    return QueryBuilder().register("rides", table).execute("SELECT * FROM rides").read_all()


def by_polars(shop: Shop, version: int) -> Any:
    options = delta_options(shop.options)
    return polars.scan_delta(shop.location(), version=version, storage_options=options).collect().to_arrow()


def by_pyiceberg(shop: Shop, version: int) -> Any:
    metadata = f"{shop.location()}/metadata/v{version + 1}.metadata.json"
    return StaticTable.from_metadata(metadata, iceberg_properties(shop.options)).scan().to_arrow()


READERS: dict[str, Callable[[Shop, int], Any]] = {
    "delta-rs": by_delta_rs,
    "polars": by_polars,
    "pyiceberg": by_pyiceberg,
    "opened by arrow": lambda shop, version: shop.opened(version=version).arrow().to_table(),
    "opened by pandas": lambda shop, version: pa.Table.from_pandas(shop.opened(version=version).pandas()),
    "opened by polars": lambda shop, version: shop.opened(version=version).polars().collect().to_arrow(),
}


def rows(table: Any) -> list[tuple[int, str, int, int]]:
    names = ("kafka_partition", "_offset", "id", "zone")
    return sorted(tuple(row[name] for name in names) for row in pa.table(table).to_pylist())


def logged(shop: Shop, entry: int) -> list[tuple[int, str, int, int]]:
    found = read_arrow(shop.address, "rides", as_of=entry, options=shop.options).read_all()
    return rows(
        found.rename_columns(["kafka_partition" if name == "_partition" else name for name in found.schema.names])
    )


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_each_engine_reads_each_version(scheme: str, shop: Shop) -> None:
    location = shop.address.replace("s3:", f"{scheme}:")
    entries = []
    for ids in ((1, 2, 3), (4,)):
        shop.write(*ids)
        shop.write(9, commit=False)
        with Store.open(shop.address, options=shop.options) as store:
            entries.append(publish_tables(store, location=location).entry)
    assert shop.location().startswith(f"{location}/topics/rides-")
    expected = [logged(shop, entry) for entry in entries]
    assert [len(each) for each in expected] == [3, 4]
    for name, reader in READERS.items():
        assert [rows(reader(shop, version)) for version in (0, 1)] == expected, name
    with Store.open(shop.address, options=shop.options) as store:
        vacuum(store)
        assert not verify(store).problems


def test_the_command_publishes_lists_and_serves(shop: Shop, tmp_path: Path) -> None:
    shop.write(1, 2)
    conf = tmp_path / "s3.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in shop.options.items()))
    given = ("-b", shop.address, "--config", str(conf), "--json")
    shown = [ok("tables", "publish", "--apply", *given), ok("tables", "list", *given)]
    assert shown[1].json[0]["location"] == f"{shop.address}/topics/rides-1"
    assert not [done for done in shown if shop.server.secret in done.text + done.err]
    with Store.open(shop.address, options=shop.options) as store, served(store) as client:
        catalog = RestCatalog("shop", uri=client.address, **iceberg_properties(shop.options))
        assert rows(catalog.load_table("topics.rides").scan().to_arrow()) == logged(shop, shop.opened().entry)
        assert shop.server.secret.encode() not in client.get("/v1/namespaces/topics/tables/rides").data


def test_maintenance_publishes(shop: Shop) -> None:
    shop.write(1, 2)
    with Store.open(shop.address, options=shop.options) as store:
        maintain(store)
    assert rows(shop.opened().polars().collect().to_arrow()) == logged(shop, shop.opened().entry)


def is_published(shop: Shop) -> bool:
    try:
        by_delta_rs(shop, 0)
    except TableNotFoundError:
        return False
    return True


def test_a_process_that_folds_publishes(shop: Shop) -> None:
    end_s = time.monotonic() + WAIT_S
    number = 0
    # The log names a version before its metadata is written: a publisher that ends between leaves that to the next one.
    folding: dict[str, Any] = {"checkpoint.entries": 4}
    with Store.open(shop.address, options=shop.options | folding) as store:
        while not (store.log.tables() and is_published(shop)) and time.monotonic() < end_s:
            number += 1
            shop.write(number, **folding)
    assert rows(by_delta_rs(shop, 0)) == logged(shop, shop.opened(version=0).entry)


def test_no_text_shows_a_credential(shop: Shop) -> None:
    shop.write(1)
    with Store.open(shop.address, options=shop.options) as store:
        publish_tables(store)
    table = shop.opened()
    shown = [repr(table), str(table)]
    # Without the extension for S3, which `make interop` has.
    config: dict[str, Any] = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    with duckdb.connect(config=config) as connection, pytest.raises(duckdb.Error, match="httpfs") as caught:
        table.duckdb(connection)
    shown.append(str(caught.value))
    assert not [text for text in shown if shop.server.secret in text]


def test_the_environment_has_the_credentials_where_no_setting_has(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write(1)
    with Store.open(shop.address, options=shop.options) as store:
        publish_tables(store)
    profiles = tmp_path / "credentials"
    keys = f"aws_access_key_id = {shop.server.access_key}\naws_secret_access_key = {shop.server.secret_key}\n"
    profiles.write_text(f"[meter]\n{keys}")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
    endpoint = {"storage.endpoint_url": shop.server.endpoint_url}
    by_profile = open_table(shop.address, "rides", options=endpoint | {"storage.profile": "meter"})
    assert by_profile.polars().collect()["id"].to_list() == [1]
    assert by_profile.arrow().to_table()["id"].to_pylist() == [1]
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match=r"no credentials for S3 can be had: .*meter"):
        by_profile.polars()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", shop.server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", shop.server.secret_key)
    by_variables = msgspec.structs.replace(by_profile, options=StoreOptions(endpoint))
    assert by_variables.polars().collect()["id"].to_list() == [1]
    assert by_variables.pandas()["id"].to_list() == [1]


def test_what_the_caller_gives_polars_takes_the_place_of_the_settings(shop: Shop) -> None:
    shop.write(1)
    with Store.open(shop.address, options=shop.options) as store:
        publish_tables(store)
    elsewhere = {**delta_options(shop.options), "aws_endpoint_url": "http://127.0.0.1:9", "max_retries": 0}
    with pytest.raises(OSError, match=r"127\.0\.0\.1:9"):
        shop.opened().polars(storage_options=elsewhere).collect()
