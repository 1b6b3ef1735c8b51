"""The core alone, and each extra alone: what can be imported there, what works, and what an error says of the rest."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.packaging.environments import ROOT, Environment, build_wheel, installed, linked

NEEDS: Final[dict[str, tuple[str, ...]]] = {
    "sparktxn._programs.cli": ("cli",),
    "sparktxn._programs.console": ("console",),
    "sparktxn._programs.gateway": ("gateway",),
    "sparktxn._programs.gateway.health": ("gateway", "metrics"),
    "sparktxn._programs.catalog": ("catalog",),
    "sparktxn._foundation.process.webserver": ("catalog", "console"),
    "sparktxn._rows.tableformats.iceberg": ("iceberg",),
    "sparktxn._rows.tableformats.icebergmanifests": ("iceberg",),
    "sparktxn.metrics.collector": ("metrics",),
    "sparktxn.store.storemetrics": ("metrics",),
    "sparktxn._programs.exporter": ("metrics",),
    "sparktxn.metrics.tracing": ("tracing",),
    "sparktxn._engine.objectstore.remote": ("s3", "gcs", "azure"),
    "sparktxn.testing.objectstore_tests": ("testing",),
    "pyspark_txnlog": ("spark",),
}
"""Modules, and packages with all that is in them, that import only with extras; of several, any one may do."""

OF_USERS: Final = (
    "spark", "s3", "gcs", "azure", "cli", "iceberg", "catalog", "console", "gateway", "metrics", "tracing", "testing",
    "pandas", "polars", "duckdb",
)  # fmt: skip
"""The extras that pages name."""

BRINGS: Final = {
    "s3": ("fsspec", "s3fs"),
    "gcs": ("gcsfs",),
    "azure": ("adlfs",),
    "pandas": ("pandas",),
    "polars": ("polars",),
    "duckdb": ("duckdb",),
}
"""Packages that the modules of an extra import late, when a call needs them."""

IMPORT_ALL: Final = """
import importlib, json, pkgutil, sys
failed = {}
for root in ("sparktxn", "pyspark_txnlog"):
    modules = [root]
    try:
        package = importlib.import_module(root)
        modules += [found.name for found in pkgutil.walk_packages(package.__path__, root + ".", onerror=lambda _: None)]
    except ImportError:
        pass
    for name in modules:
        if not name.endswith("__main__"):
            try:
                importlib.import_module(name)
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}"
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
print(json.dumps(failed))
"""

CORE: Final = """
import asyncio, sys
from pathlib import Path

for absent in ("fsspec", "pandas", "polars", "duckdb", "pyspark", "typer", "fastavro"):
    try:
        __import__(absent)
    except ImportError:
        continue
    raise SystemExit(f"{absent} can be imported: this test shows nothing")

import pyarrow as pa
import sparktxn
from sparktxn import Producer, Store, open_table, read_arrow
from sparktxn.aio import AIOProducer
from sparktxn.maintenance import copy_store, list_tables, maintain, publish_tables, vacuum, verify
from sparktxn.transfer import export_topic, import_files, import_from_store

for name in sparktxn.__all__:
    getattr(sparktxn, name)
with Store.open("shop", create=True) as store:
    store.create_topic("rides", 1, schema=pa.schema([("id", pa.int64())]), settings={"table.formats": "delta"})
    store.create_topic("copied", 1, schema=pa.schema([("id", pa.int64())]))
with Producer({"bootstrap.servers": "shop", "transactional.id": "meter"}) as producer:
    producer.init_transactions()
    with producer.transaction():
        producer.produce_arrow("rides", pa.table({"id": [1, 2, 3]}))

async def one_more():
    async with AIOProducer({"bootstrap.servers": "shop"}) as producer:
        await producer.flush()

asyncio.run(one_more())
with Store.open("shop") as store:
    publish_tables(store)
    assert list_tables(store, ["rides"])[0].version == 0
    assert export_topic(store, "rides", "files", file_format="parquet").records == 3
    import_files(store, "copied", sorted(map(str, Path("files").rglob("*.parquet"))))
    maintain(store)
    vacuum(store, dry_run=True)
    copy_store(store, "copy")
    assert verify(store).problems == ()
with Store.open("copy") as store, Store.open("shop") as source:
    import_from_store(store, "rides", source, "rides", dry_run=True)
assert read_arrow("shop", "rides", where=[("id", ">", 1)]).read_all()["id"].to_pylist() == [2, 3]
assert read_arrow("shop", "copied").read_all().num_rows == 3
assert open_table("shop", "rides").arrow().count_rows() == 3
assert "fsspec" not in sys.modules
"""

CALLS: Final = {
    "sparktxn.to_pandas('shop', 'rides')": "pandas",
    "sparktxn.to_polars('shop', 'rides')": "polars",
    "sparktxn.to_duckdb('shop', 'rides')": "duckdb",
    "sparktxn.open_table('shop', 'rides').pandas()": "pandas",
    "sparktxn.open_table('shop', 'rides').polars()": "polars",
    "sparktxn.open_table('shop', 'rides').duckdb()": "duckdb",
    "sparktxn.Store.open('s3://bucket/shop')": "s3",
    "sparktxn.Consumer({'bootstrap.servers': 's3a://bucket/shop', 'group.id': 'g'}).list_topics()": "s3",
    "sparktxn.Store.open('gs://bucket/shop')": "gcs",
    "sparktxn.Store.open('abfs://container/shop')": "azure",
    "__import__('sparktxn.metrics').metrics.register()": "metrics",
    "__import__('sparktxn.metrics').metrics.trace()": "tracing",
    "__import__('sparktxn.store.storemetrics')": "metrics",
    "__import__('sparktxn.testing.objectstore_tests')": "testing",
    "__import__('pyspark_txnlog')": "spark",
    "publish_tables(sparktxn.Store.open('iceberg'), ['rides'])": "iceberg",
}
"""Calls that the core cannot do, and the extra that their errors name."""

Make = Callable[[Sequence[str]], Environment]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return linked(tmp_path_factory.mktemp("core"), wheel, ["sparktxn"])


def brought(extra: str) -> set[str]:
    """The extra, and those that it includes."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    included = [name for needed in declared.get(extra, ()) for name in re.findall(r"^sparktxn\[(.*)\]$", needed)]
    return {extra}.union(*(brought(name) for names in included for name in names.split(",")))


def may_fail(module: str, extras: set[str]) -> bool:
    """Whether a module, or the package that it is in, needs other extras."""
    owners = [owner for owner in NEEDS if module == owner or module.startswith(f"{owner}.")]
    needed = NEEDS[max(owners, key=len)] if owners else ()
    if max(owners, key=len, default="") == "sparktxn._programs.gateway.health":
        return not extras.issuperset(needed)
    return bool(owners) and extras.isdisjoint(needed)


def check_imports(environment: Environment, extra: str) -> None:
    done = environment.run("-c", IMPORT_ALL, json.dumps(BRINGS.get(extra, ())))
    assert done.returncode == 0, done.stderr
    extras = brought(extra)
    assert {name: why for name, why in json.loads(done.stdout).items() if not may_fail(name, extras)} == {}


def test_with_the_core_every_module_imports_but_those_of_extras(core: Environment) -> None:
    check_imports(core, "")


@pytest.mark.parametrize("extra", ["cli", "s3"])
def test_with_one_extra_alone_all_that_it_promises_imports(extra: str, wheel: Path, tmp_path: Path) -> None:
    """A sample: at night pip installs each."""
    check_imports(linked(tmp_path / "environment", wheel, [f"sparktxn[{extra}]"]), extra)


@pytest.mark.nightly
@pytest.mark.parametrize("extra", OF_USERS)
def test_with_one_extra_that_pip_installs_all_that_it_promises_imports(extra: str, wheel: Path, tmp_path: Path) -> None:
    check_imports(installed(tmp_path / "environment", wheel, [f"sparktxn[{extra}]"]), extra)


def test_the_core_reads_writes_moves_and_publishes_on_a_local_disk(core: Environment) -> None:
    done = core.run("-c", CORE)
    assert done.returncode == 0, done.stderr


def test_a_call_that_needs_more_names_the_extra_that_brings_it(core: Environment) -> None:
    prepared = """
import sys, json, sparktxn, pyarrow as pa
for address, formats in (("shop", "delta"), ("iceberg", "iceberg")):
    with sparktxn.Store.open(f"calls/{address}", create=True) as store:
        store.create_topic("rides", 1, schema=pa.schema([("id", pa.int64())]), settings={"table.formats": formats})
    with sparktxn.Producer({"bootstrap.servers": f"calls/{address}"}) as producer:
        producer.produce_arrow("rides", pa.table({"id": [1]}))
import os
os.chdir("calls")
from sparktxn.maintenance import publish_tables
with sparktxn.Store.open("shop") as store:
    publish_tables(store)
said = {}
for call in json.loads(sys.argv[1]):
    try:
        eval(call)
        said[call] = "nothing"
    except Exception as error:
        said[call] = str(error)
print(json.dumps(said))
"""
    done = core.run("-c", prepared, json.dumps([*CALLS]))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert {call: re.findall(r"pip install '\.\[(\w+)\]'", text) for call, text in said.items()} == {
        call: [extra] for call, extra in CALLS.items()
    }, said


def test_an_unknown_scheme_is_unknown_to_the_core_too(core: Environment) -> None:
    done = core.run("-c", "import sparktxn; sparktxn.Store.open('foo://bucket/x')")
    assert "store URI scheme 'foo' is unknown" in done.stderr


def test_the_extras_that_users_are_told_of_exist() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*OF_USERS} <= {*declared}
    named = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert {name.strip("` ") for row in named for name in row.split(",")} == {*OF_USERS}
