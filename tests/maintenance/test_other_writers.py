"""Writers of delta-rs leave a store that has lived as it is. Those of other engines are in `tests/interop`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError

from tests.livedhistory import Version, check_whole, lived, place_of
from tests.mergedhistory import TYPED


def rows_of(table: DeltaTable) -> pa.Table:
    return pa.table(QueryBuilder().register("topic", table).execute("select * from topic").read_all())


WRITES: dict[str, Callable[[DeltaTable], Any]] = {
    "append": lambda table: write_deltalake(table, rows_of(table), mode="append"),
    "overwrite": lambda table: write_deltalake(table, rows_of(table), mode="overwrite"),
    "compact": lambda table: table.optimize.compact(),
    "vacuum": lambda table: table.vacuum(0, dry_run=False, enforce_retention_duration=False),
    "full vacuum": lambda table: table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True),
    "delete": lambda table: table.delete(),
    "restore": lambda table: table.restore(0),
}


def outcome(write: Callable[[DeltaTable], Any], location: str) -> str:
    try:
        return f"done: {write(DeltaTable(location))}"
    except DeltaError as error:
        return str(error)


def test_delta_rs_changes_nothing_of_a_store_that_has_lived(tmp_path: Path) -> None:
    with lived(tmp_path / "store", 2) as history:
        before = history.objects()
        location = history.location(TYPED)
        found = {name: outcome(write, location) for name, write in WRITES.items()}
        assert {name: said for name, said in found.items() if "txnlogTopic" not in said} == {}
        assert history.objects().items() >= before.items()

        def read(version: Version) -> list[dict[str, Any]]:
            rows: list[dict[str, Any]] = rows_of(
                DeltaTable(history.location(version.topic), version=version.number)
            ).to_pylist()
            return sorted(rows, key=place_of)

        check_whole(history, read)
