"""Exporting: files of a folder hold what a read view shows, and appear whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pytest

from sparktxn import ConfigurationError, Producer, Store, read_task
from sparktxn._rows.scan.conditions import Condition
from sparktxn.errors import CommandRefused
from sparktxn.transfer import export_topic, exportfolder
from tests.world import next_number

TYPED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("tags", pa.list_(pa.string())),
    ]
)


@pytest.fixture
def shop() -> Iterator[Store]:
    uri = f"memory://exported-{next_number()}"
    with Store.open(uri, create=True) as store:
        store.create_topic("orders", 3)
        store.create_topic("typed", 1, schema=TYPED)
        with Producer({"bootstrap.servers": uri, "transactional.id": "shop"}) as producer:
            producer.init_transactions()
            for number in range(12):
                producer.begin_transaction()
                headers = [("trace", b"%d" % number), ("none", None)] if number % 3 == 0 else None
                value = None if number == 7 else f"value {number}"
                producer.produce(
                    "orders",
                    value,
                    key=f"key {number}",
                    partition=number % 2,
                    headers=headers,
                    timestamp=1_000 + number,
                )
                rows = [{"id": number, "name": f"n{number}", "price": None, "tags": ["a", None]}]
                producer.produce_arrow("typed", pa.Table.from_pylist(rows, schema=TYPED))
                producer.flush()
                if number == 5:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
            producer.begin_transaction()
            producer.produce("orders", "open", partition=0)
            producer.flush()
            yield store
            producer.abort_transaction()


def shown(store: Store, topic: str, entry: int | None = None) -> list[dict[str, Any]]:
    view = store.view([topic], entry=entry)
    tasks = store.plan(view, store.ranges(view))
    return [row for task in tasks for batch in read_task(task, store.options) for row in batch.to_pylist()]


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("topic", ["orders", "typed"])
@pytest.mark.parametrize("file_format", ["parquet", "arrow"])
def test_files_of_arrows_formats_hold_the_committed_records(
    shop: Store, tmp_path: Path, file_format: Any, topic: str
) -> None:
    report = export_topic(shop, topic, tmp_path / "out", file_format=file_format)
    expected = shown(shop, topic)
    assert report.records == len(expected) == 11
    found = pyarrow.dataset.dataset(
        tmp_path / "out",
        format=file_format,
        partitioning=pyarrow.dataset.partitioning(pa.schema([("partition", pa.int32())]), flavor="hive"),
        exclude_invalid_files=True,
    ).to_table()
    mine = "partition" if topic == "orders" else "_partition"
    rows = [row | {mine: row["partition"]} for row in found.to_pylist()]
    order = ("partition", "offset") if topic == "orders" else ("_partition", "_offset")
    rows = sorted(
        ({name: row[name] for name in expected[0]} for row in rows), key=lambda row: tuple(row[name] for name in order)
    )
    assert rows == expected


def test_text_formats_hold_them_as_text(shop: Store, tmp_path: Path) -> None:
    expected = shown(shop, "orders")
    export_topic(shop, "orders", tmp_path / "lines", file_format="json")
    lines = [
        json.loads(line) | {"partition": int(path.parent.name.removeprefix("partition="))}
        for path in sorted((tmp_path / "lines").rglob("*.json"))
        for line in path.read_text().splitlines()
    ]
    assert [(row["partition"], row["offset"], row["key"], row["value"]) for row in lines] == [
        (row["partition"], row["offset"], row["key"].decode(), row["value"] and row["value"].decode())
        for row in expected
    ]
    assert lines[0]["headers"] == [{"key": "trace", "value": "0"}, {"key": "none", "value": None}]
    assert lines[0]["timestamp"] == "1970-01-01T00:00:01Z"
    export_topic(shop, "orders", tmp_path / "csv", file_format="csv")
    rows = [row for path in sorted((tmp_path / "csv").rglob("*.csv")) for row in pa.csv.read_csv(path).to_pylist()]
    assert [row["offset"] for row in rows] == [row["offset"] for row in expected]
    assert json.loads(rows[0]["headers"]) == lines[0]["headers"]


def test_bytes_that_are_no_text_are_base64_in_json_and_refused_by_csv(shop: Store, tmp_path: Path) -> None:
    with Producer({"bootstrap.servers": shop.uri}) as producer:
        producer.produce("orders", b"\xff", b"k", partition=2, headers=[("h", b"\xfe")])
    with pytest.raises(ConfigurationError, match="column 'value' has bytes that are not UTF-8"):
        export_topic(shop, "orders", tmp_path / "out", file_format="csv")
    assert files(tmp_path) == []
    export_topic(shop, "orders", tmp_path / "out", file_format="json")
    lines = [json.loads(line) for path in (tmp_path / "out").rglob("*.json") for line in path.read_text().splitlines()]
    (found,) = (line for line in lines if "value_base64" in line)
    assert (found["key"], found["value_base64"]) == ("k", "/w==")
    assert found["headers"] == [{"key": "h", "value_base64": "/g=="}]


@pytest.mark.parametrize("file_format", ["csv", "json"])
@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.list_(pa.timestamp("us", tz="UTC"))])
def test_a_year_that_text_cannot_hold_is_refused(shop: Store, tmp_path: Path, file_format: Any, kind: Any) -> None:
    shop.create_topic("far", 1, schema=pa.schema([("v", kind)]))
    number = pa.array([2_932_897 if kind == pa.date32() else 253_402_300_800_000_000])
    leaf = kind.value_type if pa.types.is_list(kind) else kind
    far = (number.cast(pa.int32()) if kind == pa.date32() else number).cast(leaf)
    values = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), far).cast(kind) if pa.types.is_list(kind) else far
    with Producer({"bootstrap.servers": shop.uri}) as producer:
        producer.produce_arrow("far", pa.table({"v": values}))
    with pytest.raises(ConfigurationError, match="outside the years 1 to 9999"):
        export_topic(shop, "far", tmp_path / "out", file_format=file_format)
    assert export_topic(shop, "far", tmp_path / "out").records == 1


def test_an_older_view_columns_ranges_and_conditions(shop: Store, tmp_path: Path) -> None:
    newest = shop.view(["orders"])
    older = next(entry for entry in range(newest.entry) if entry > 4 and len(shown(shop, "orders", entry)) == 4)
    assert export_topic(shop, "orders", tmp_path / "a", entry=older).records == 4
    assert export_topic(
        shop, "orders", tmp_path / "b", offsets={1: (2, 7)}, columns=["value", "offset"]
    ).records == len([row for row in shown(shop, "orders") if row["partition"] == 1 and 2 <= row["offset"] < 7])
    assert files(tmp_path / "b") == ["_SUCCESS", "partition=1/part-00000.parquet"]
    assert pa.parquet.read_schema(tmp_path / "b" / "partition=1" / "part-00000.parquet").names == ["value", "offset"]
    report = export_topic(shop, "typed", tmp_path / "c", where=[Condition("id", ">=", 9)], columns=["name"])
    assert report.records == 3
    assert export_topic(shop, "orders", tmp_path / "d", offsets={2: (0, None)}).files == 0
    assert files(tmp_path / "d") == ["_SUCCESS"]


def test_files_have_so_many_rows_at_most(shop: Store, tmp_path: Path) -> None:
    progress: list[int] = []
    report = export_topic(shop, "orders", tmp_path / "out", rows_per_file=2, on_progress=progress.append)
    tables = [pa.parquet.read_table(path) for path in (tmp_path / "out").rglob("*.parquet")]
    assert (report.files, report.records) == (len(tables), 11)
    assert max(table.num_rows for table in tables) == 2
    assert progress[-1] == 11
    assert report.size_bytes == sum(path.stat().st_size for path in (tmp_path / "out").rglob("*.parquet"))


def test_a_folder_appears_whole_or_not_at_all(shop: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = exportfolder._fsync, list[Path]()

    def fail(path: Path) -> None:
        calls.append(path)
        assert not (tmp_path / "out").exists()
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(exportfolder, "_fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            export_topic(shop, "orders", tmp_path / "out")
    assert calls
    assert list(tmp_path.iterdir()) == []
    assert original is exportfolder._fsync
    (tmp_path / "out").mkdir()
    export_topic(shop, "orders", tmp_path / "out")
    assert "_SUCCESS" in files(tmp_path / "out")


def test_a_link_to_an_empty_folder_is_filled(shop: Store, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    export_topic(shop, "typed", tmp_path / "link")
    assert files(tmp_path / "real") == ["_SUCCESS", "partition=0/part-00000.parquet"]
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    with pytest.raises(ConfigurationError, match="exists"):
        export_topic(shop, "typed", tmp_path / "broken")


@pytest.mark.parametrize("fails", [False, True])
def test_a_folder_that_nothing_can_replace_is_filled_from_within(
    shop: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """A mount: a rename to it is refused, as is a folder next to it for a user who may only write to the mount."""
    mount, original, done = tmp_path / "mount", Path.rename, list[str]()
    mount.mkdir()

    def rename(path: Path, target: Path) -> Path:
        if Path(target) == mount:
            raise OSError(16, "Device or resource busy")
        assert Path(target).parent == mount
        done.append(path.name)
        if fails:
            raise OSError(28, "No space left on device")
        return original(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    if fails:
        with pytest.raises(OSError, match="No space"):
            export_topic(shop, "orders", mount)
        assert files(tmp_path) == []
        return
    export_topic(shop, "orders", mount)
    assert len([name for name in files(mount) if name.endswith(".parquet")]) == 2
    assert done[-1] == "_SUCCESS"
    assert [path.name for path in tmp_path.iterdir()] == ["mount"]
    assert not [path for path in mount.iterdir() if path.name.startswith(".")]


def test_what_is_wrong_is_named_and_nothing_is_written(shop: Store, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"folder": tmp_path / "full"}, "exists: expected one that does not"),
        ({"folder": tmp_path / "full" / "file"}, "exists"),
        ({"file_format": "xml"}, "file_format"),
        ({"columns": ["nothing"]}, "column 'nothing' is unknown"),
        ({"columns": ["partition"]}, "the partition"),
        ({"offsets": {3: (0, None)}}, "no partition 3"),
        ({"where": [Condition("nothing", "=", 1)]}, "nothing"),
    ]
    for given, reason in wrong:
        with pytest.raises(ConfigurationError, match=reason):
            export_topic(shop, "orders", **{"folder": tmp_path / "out", **given})
    with pytest.raises(CommandRefused, match="'missing'"):
        export_topic(shop, "missing", tmp_path / "out")
    assert files(tmp_path) == ["full/file"]
