"""DuckDB reads exported catalogs by its extension for DuckLake, and writes and deletes nothing (`make interop`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparktxn import Producer, Store, open_table
from sparktxn.format.schema import stored_schema
from sparktxn.maintenance import export_ducklake, publish_tables
from sparktxn.values.fieldtypes import Columns
from tests.everytype import EVERY_TYPE, FULL_ROW
from tests.interop.conftest import environment
from tests.interop.peers import run

pytestmark = pytest.mark.interop

PROGRAM = Path(__file__).parent / "programs" / "ducklake_reader.py"


@pytest.fixture(scope="module")
def python() -> Path:
    return environment("ducklake-test")


@pytest.fixture
def address(tmp_path: Path) -> str:
    """A store with the topic ``typed`` of two partitions, and ``k.x`` of Kafka's record. Its folder has an odd name."""
    address = str(tmp_path / "long=7" / "a [b]*%20 'c")
    with Store.open(address, create=True) as store:
        store.create_topic("typed", 2, schema=EVERY_TYPE, settings={"table.formats": "delta"})
        store.create_topic("k.x", 1, settings={"table.formats": "iceberg"})
    write(address, EVERY_TYPE, {**FULL_ROW, "long": 1}, {**FULL_ROW, "long": 2})
    return address


def write(address: str, columns: Columns, *rows: dict[str, Any]) -> None:
    """Commit one transaction: rows in the partitions of ``typed``, and as many records in ``k.x``."""
    schema = pa.schema(list(stored_schema(columns))[:-1])
    with Producer({"bootstrap.servers": address, "transactional.id": "job"}) as producer:
        producer.init_transactions()
        with producer.transaction():
            for number, row in enumerate(rows):
                producer.produce_arrow("typed", pa.Table.from_pylist([row], schema), partition=number % 2)
                producer.produce("k.x", f"{number}", "key", headers=[("h", b"1")])


def answers(python: Path, catalog: Path, *statements: str) -> list[Any]:
    """Let one process of the other environment run statements."""
    paths = [catalog.parent / f"answer-{number}" for number in range(len(statements))]
    lines = [
        json.dumps({"statement": statement, "answer": str(path)})
        for statement, path in zip(statements, paths, strict=True)
    ]
    (catalog.parent / "requests").write_text("\n".join(lines))
    run(python, [str(PROGRAM), str(catalog), str(catalog.parent / "requests")])
    return [_answer(path) for path in paths]


def _answer(path: Path) -> Any:
    data = path.read_bytes()
    return pa.ipc.open_file(data).read_all().to_pylist() if data.startswith(b"ARROW1") else json.loads(data)


def rows(address: str, topic: str) -> list[dict[str, Any]]:
    offset = "offset" if topic == "k.x" else "_offset"
    found = open_table(address, topic).arrow().to_table().to_pylist()
    return sorted(found, key=lambda row: (row["kafka_partition"], row[offset]))


def test_duckdb_reads_all_tables_in_one_snapshot(python: Path, address: str, tmp_path: Path) -> None:
    columns: Columns = (*EVERY_TYPE, ("later", "list<string>", True))
    catalog = tmp_path / "shop.ducklake"
    with Store.open(address) as store:
        publish_tables(store)
        store.add_columns("typed", columns[-1:])
        write(address, columns, {**FULL_ROW, "long": 3, "later": ["x", None]})
        publish_tables(store)
        entry = export_ducklake(store, catalog).entry
    typed, records, ids, bounds, skipped, snapshots = answers(
        python,
        catalog,
        "from shop.typed order by kafka_partition, _offset",
        'from shop."k.x" order by kafka_partition, "offset"',
        "select rowid >> 48 = kafka_partition and rowid & ((1::bigint << 48) - 1) = _offset as same from shop.typed",
        "select count(*) as n, min(_offset) as low, max(_timestamp) as high from shop.typed",
        "select long from shop.typed where kafka_partition = 1 and _offset >= 0 and _timestamp > '2020-01-01'",
        f"select snapshot_id, (select count(*) from shop.typed at (version => {entry})) as n "
        "from ducklake_snapshots('shop')",
    )
    assert typed == rows(address, "typed")
    assert [row["long"] for row in typed] == [1, 3, 2]
    assert records == rows(address, "k.x")
    assert [row["same"] for row in ids] == [True] * 3
    assert bounds == [{"n": 3, "low": 0, "high": max(row["_timestamp"] for row in typed)}]
    assert skipped == [{"long": 2}]
    assert snapshots == [{"snapshot_id": entry, "n": 3}]


def test_duckdb_reads_empty_tables(python: Path, tmp_path: Path) -> None:
    with Store.open(tmp_path / "store", create=True) as store:
        store.create_topic("empty", 1, settings={"table.formats": "delta"})
        publish_tables(store)
        export_ducklake(store, tmp_path / "shop.ducklake")
    assert answers(python, tmp_path / "shop.ducklake", "select * from shop.empty") == [[]]


def test_duckdb_can_neither_write_nor_delete(python: Path, address: str, tmp_path: Path) -> None:
    catalog = tmp_path / "shop.ducklake"
    with Store.open(address) as store:
        publish_tables(store)
        export_ducklake(store, catalog)
    before = catalog.read_bytes(), sorted(path for path in Path(address).rglob("*") if path.is_file())
    writes: tuple[str, ...] = (
        "insert into shop.typed from shop.typed",
        "delete from shop.typed",
        "drop table shop.typed",
        "create table shop.other (a int)",
        "alter table shop.typed add column b int",
    )
    writes += ("call ducklake_merge_adjacent_files('shop')",)
    jobs = (
        "call ducklake_expire_snapshots('shop', older_than => now())",
        "call ducklake_cleanup_old_files('shop', cleanup_all => true)",
        "call ducklake_delete_orphaned_files('shop', cleanup_all => true)",
    )
    *found, left = answers(python, catalog, *writes, *jobs, "select count(*) as n from shop.typed")
    for statement, answer in zip(writes, found, strict=False):
        assert "an export of a store: only its topics can be written" in answer, statement
    cleaned = [row["path"] for answer in found[len(writes) :] for row in answer]
    assert all(path.startswith(f"{catalog}.files/") for path in cleaned), "what DuckDB itself has begun to write"
    assert left == [{"n": 2}]
    assert (catalog.read_bytes(), sorted(path for path in Path(address).rglob("*") if path.is_file())) == before
