"""Importing Parquet files as they are: they read as if their rows were written, and what does not fit is refused."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from sparktxn import ConfigurationError, Store, read_task
from sparktxn.errors import CommandRefused, OutcomeUnknown
from sparktxn.maintenance import rewrite, vacuum, verify
from sparktxn.objectstore.uri import OBJECT_SIZE_MAX
from sparktxn.scan.conditions import Condition, matching
from sparktxn.store import read_table_task
from sparktxn.transfer import fitting, import_files, import_in_place
from tests.servers import S3Server
from tests.transfer.test_exporting import shown
from tests.world import next_number

TYPED = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("tags", pa.list_(pa.string()))])
AT = pa.timestamp("ms", tz="UTC")
EVERYTHING = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.temporary.age.ms": 0}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store", create=True, options={"store.fsync": False}) as store:
        store.create_topic("typed", 2, schema=TYPED)
        store.create_topic("orders", 2)
        yield store


def rows(first: int, count: int) -> pa.Table:
    found = [{"id": n, "name": f"n{n}" if n % 3 else None, "tags": ["a", None]} for n in range(first, first + count)]
    return pa.Table.from_pylist(found, schema=TYPED)


def written(path: Path, table: pa.Table, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return path


def segments(store: Store) -> list[Path]:
    return sorted((Path(store.uri) / "topics").rglob("*.parquet"))


def ids(store: Store, topic: str = "typed") -> list[int]:
    return sorted(row["id"] for row in shown(store, topic))


def test_files_become_segments_byte_by_byte_and_all_at_once(store: Store, tmp_path: Path) -> None:
    files = [written(tmp_path / f"{n}.parquet", rows(10 * n, 10), row_group_size=4) for n in range(5)]
    before = store.view().entry
    report = import_in_place(store, "typed", files)
    assert [(one.records, one.taken, one.existing) for one in report.files] == [(10, "copied", False)] * 5
    assert len({one.entry for one in report.files}) == 1
    assert ids(store) == list(range(50))
    assert {path.read_bytes() for path in segments(store)} == {path.read_bytes() for path in files}
    assert verify(store).problems == ()
    # No reader sees some of the files.
    seen = {len(shown(store, "typed", entry)) for entry in range(before, store.view().entry + 1)}
    assert seen == {0, 50}


def test_records_without_a_timestamp_have_that_of_their_entry(store: Store, tmp_path: Path) -> None:
    report = import_in_place(store, "typed", [written(tmp_path / "a.parquet", rows(0, 3))])
    (entry,) = {one.entry for one in report.files}
    (time,) = {row["_timestamp"] for row in shown(store, "typed")}
    (segment,) = segments(store)
    assert segment.name.endswith(".undated.parquet")
    assert "_timestamp" not in pq.read_schema(segment).names
    by_entry = {
        row["entry"]: row
        for task in store.plan_table("entries")
        for batch in read_table_task(task)
        for row in batch.to_pylist()
    }
    assert by_entry[entry]["timestamp"].replace(microsecond=0) == time.replace(microsecond=0)


def test_timestamps_of_the_file_are_the_records(store: Store, tmp_path: Path) -> None:
    table = rows(0, 3).append_column(pa.field("_timestamp", AT, nullable=False), pa.array([5_000, 4_000, 9_000], AT))
    import_in_place(store, "typed", [written(tmp_path / "a.parquet", table)], partition=1)
    assert [row["_timestamp"].timestamp() for row in shown(store, "typed")] == [5, 4, 9]
    partition = store.view(["typed"]).partitions["typed", 1]
    assert store.offset_for_time(partition, 4_500) == 0
    assert store.offset_for_time(partition, 5_001) == 2
    assert store.offset_for_time(partition, 9_001) is None


def test_conditions_find_records_without_stored_timestamps(store: Store, tmp_path: Path) -> None:
    dated = rows(10, 2).append_column(pa.field("_timestamp", AT, nullable=False), pa.array([5, 6], AT))
    import_in_place(store, "typed", [written(tmp_path / "b.parquet", dated)], partition=0)
    import_in_place(store, "typed", [written(tmp_path / "a.parquet", rows(0, 3))], partition=0)
    now = shown(store, "typed")[-1]["_timestamp"]
    view = store.view(["typed"])
    for condition, expected in [
        (Condition("_timestamp", ">=", now), {0, 1, 2}),
        (Condition("_timestamp", "<", now), {10, 11}),
        (Condition("_timestamp", "is null"), set()),
        (Condition("id", "=", 1), {1}),
    ]:
        found = set()
        for task in store.plan(view, store.ranges(view)):
            for batch in read_task(replace(task, conditions=(condition,)), store.options):
                found |= set(matching(batch, [condition]).column("id").to_pylist())
        assert found == expected, condition


def test_kafkas_record(store: Store, tmp_path: Path) -> None:
    table = pa.table({"key": pa.array([b"k", None]), "value": pa.array([b"v", b"w"])})
    file = written(tmp_path / "partition=1" / "a.parquet", table)
    (one,) = import_in_place(store, "orders", [file]).files
    assert one.partition == 1
    assert [(row["partition"], row["key"], row["value"]) for row in shown(store, "orders")] == [
        (1, b"k", b"v"),
        (1, None, b"w"),
    ]


def test_a_file_takes_effect_once_whichever_way(store: Store, tmp_path: Path) -> None:
    one, other = written(tmp_path / "a.parquet", rows(0, 3)), written(tmp_path / "b.parquet", rows(3, 3))
    foreseen = import_in_place(store, "typed", [one], dry_run=True).files[0]
    assert (foreseen.records, foreseen.existing, foreseen.taken, foreseen.entry) == (3, False, None, None)
    assert segments(store) == []
    import_in_place(store, "typed", [one])
    (entry,) = {each.entry for each in import_in_place(store, "typed", [one]).files}
    again = import_in_place(store, "typed", [one, other])
    assert [(each.existing, each.records) for each in again.files] == [(True, None), (False, 3)]
    assert again.files[0].entry == entry
    assert all(each.existing for each in import_files(store, "typed", [one, other]).files)
    third = written(tmp_path / "c.parquet", rows(6, 3))
    import_files(store, "typed", [third])
    assert import_in_place(store, "typed", [third]).files[0].existing
    assert ids(store) == list(range(9))


def test_some_files_at_a_time_and_none_without_records(store: Store, tmp_path: Path) -> None:
    files = [written(tmp_path / f"{n}.parquet", rows(n, 1)) for n in range(5)]
    files.append(written(tmp_path / "none.parquet", rows(0, 0)))
    report = import_in_place(store, "typed", files, files_per_entry=2)
    assert len({one.entry for one in report.files[:5]}) == 3
    assert (report.files[5].records, report.files[5].entry) == (0, None)
    assert ids(store) == list(range(5))


def test_a_folder_is_its_parquet_files(store: Store, tmp_path: Path) -> None:
    for name in ("a.parquet", "below/b.parquet", "_delta_log/c.parquet", ".hidden/d.parquet", "_e.parquet"):
        written(tmp_path / "table" / name, rows(len(name), 1))
    (tmp_path / "table" / "readme.txt").write_text("no table")
    report = import_in_place(store, "typed", [tmp_path / "table"])
    assert sorted(Path(one.file).name for one in report.files) == ["a.parquet", "b.parquet"]


def test_linked_files_are_one_with_the_originals(store: Store, tmp_path: Path) -> None:
    file = written(tmp_path / "a.parquet", rows(0, 3))
    (one,) = import_in_place(store, "typed", [file], link=True).files
    (segment,) = segments(store)
    assert one.taken == "linked"
    assert segment.samefile(file)
    file.unlink()
    assert ids(store) == [0, 1, 2]
    assert verify(store).problems == ()


def test_a_link_to_another_disk_is_a_copy(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "a.parquet", rows(0, 3))

    def refuse(source: str, target: str, **more: Any) -> None:
        if source == str(file):
            raise OSError(18, "Invalid cross-device link")
        real(source, target, **more)

    real = os.link
    monkeypatch.setattr(os, "link", refuse)
    (one,) = import_in_place(store, "typed", [file], link=True).files
    assert one.taken == "copied"
    assert ids(store) == [0, 1, 2]


@pytest.mark.parametrize("link", [False, True])
def test_a_file_that_changes_meanwhile_is_not_imported(store: Store, tmp_path: Path, link: bool) -> None:
    one, other = written(tmp_path / "a.parquet", rows(0, 3)), written(tmp_path / "b.parquet", rows(3, 3))

    def change(file: str, records: int) -> None:
        if file == str(other):
            written(other, rows(7, 3))

    with pytest.raises(ConfigurationError, match="has changed since it was read: nothing of it was imported"):
        import_in_place(store, "typed", [one, other], link=link, on_progress=change)
    assert ids(store) == []


def test_jobs_work_on_imported_files(store: Store, tmp_path: Path) -> None:
    dated = rows(40, 10).append_column(pa.field("_timestamp", AT, nullable=False), pa.array(range(10), AT))
    files = [written(tmp_path / f"{n}.parquet", rows(10 * n, 10)) for n in range(4)]
    files.append(written(tmp_path / "dated.parquet", dated))
    import_in_place(store, "typed", files, partition=0, link=True)
    expected = shown(store, "typed")
    rewrite(store, dry_run=False, settings={"rewrite.min.age.ms": 0})
    assert shown(store, "typed") == expected
    assert not any(segment.name.endswith(".undated.parquet") for segment in _current(store))
    assert verify(store).problems == ()
    store.log.checkpoint()
    vacuum(store, dry_run=False, settings=EVERYTHING)
    assert shown(store, "typed") == expected
    assert verify(store).problems == ()
    assert all(path.exists() for path in files), "a linked file stays where the user has it"


def _current(store: Store) -> list[Any]:
    view = store.view(["typed"])
    return [segment for task in store.plan(view, store.ranges(view)) for segment in task.segments]


def test_of_two_processes_one_imports_each_file(tmp_path: Path) -> None:
    uri = f"memory://in-place-{next_number()}"
    files = [written(tmp_path / f"{n}.parquet", rows(10 * n, 10)) for n in range(6)]
    with Store.open(uri, create=True) as store:
        store.create_topic("typed", 2, schema=TYPED)
        failures: list[BaseException] = []

        def run() -> None:
            try:
                with Store.open(uri) as own:
                    import_in_place(own, "typed", files, files_per_entry=3)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ids(store) == list(range(60))
        assert all(isinstance(error, CommandRefused | OutcomeUnknown) for error in failures), failures


def of(**columns: Any) -> pa.Table:
    return pa.table(columns)


INT = pa.array([1, 2], pa.int64())
REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "type": (lambda path: pq.write_table(of(id=INT.cast(pa.int32())), path), "'id' has type int32, and .* has int64"),
    "inner type": (
        lambda path: pq.write_table(of(id=INT, tags=pa.array([[1], []])), path),
        "column 'tags' has type list<element: int64>, and topic 'typed' has list<element: string>",
    ),
    "missing": (lambda path: pq.write_table(of(name=pa.array(["a"])), path), "no column 'id', which .* int64 not null"),
    "other": (lambda path: pq.write_table(of(id=INT, nam=INT), path), "has column 'nam'.*did you mean 'name'.*add the"),
    "nulls": (lambda path: pq.write_table(of(id=pa.array([1, None])), path), "'id' (has nulls|is null in at least)"),
    "codec": (lambda path: pq.write_table(of(id=INT), path, compression="brotli"), "compressed with BROTLI, and a"),
    "encoding": (
        lambda path: pq.write_table(
            of(id=INT), path, use_dictionary=False, column_encoding={"id": "BYTE_STREAM_SPLIT"}
        ),
        "encoded as BYTE_STREAM_SPLIT, and a segment as one of PLAIN",
    ),
    "dictionary": (
        lambda path: pq.write_table(of(id=INT, name=pa.array(["a", "b"]).dictionary_encode()), path),
        "'name' has type dictionary",
    ),
    "unit of the timestamp": (
        lambda path: pq.write_table(of(id=INT, _timestamp=INT.cast(pa.timestamp("us", "UTC"))), path),
        r"'_timestamp' has type timestamp\[us, tz=UTC\], and topic 'typed' has timestamp\[ms, tz=UTC\]",
    ),
    "int96": (
        lambda path: pq.write_table(
            of(id=INT, at=INT.cast(pa.timestamp("ns"))), path, use_deprecated_int96_timestamps=True
        ),
        "has column 'at'",
    ),
    "before 1970": (
        lambda path: pq.write_table(of(id=INT, _timestamp=pa.array([-1, 5], AT)), path),
        "its timestamps go from -1 to 5 ms: expected 0",
    ),
    "csv": (lambda path: path.write_text("id\n1\n"), "is no Parquet file"),
    "half": (lambda path: path.write_bytes(b"PAR1 but no more"), "its footer cannot be read"),
    "absent": (lambda path: None, "does not exist: expected a Parquet file"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_does_not_fit_is_refused_before_anything_is_written(store: Store, tmp_path: Path, kind: str) -> None:
    make, message = REFUSED[kind]
    make(tmp_path / "bad.parquet")
    good = written(tmp_path / "good.parquet", rows(0, 3))
    entry = store.view().entry
    with pytest.raises(ConfigurationError, match=message) as raised:
        import_in_place(store, "typed", [good, tmp_path / "bad.parquet"], link=True)
    assert "bad.parquet" in str(raised.value)
    assert (segments(store), store.view().entry) == ([], entry)


def test_int96_is_refused_with_its_setting(tmp_path: Path, store: Store) -> None:
    store.create_topic("times", schema=pa.schema([("at", pa.timestamp("us"))]))
    table = of(at=INT.cast(pa.timestamp("ns")))
    file = written(tmp_path / "a.parquet", table, use_deprecated_int96_timestamps=True)
    with pytest.raises(ConfigurationError, match=r"'at' has (type timestamp\[ns\]|Parquet's old type INT96)"):
        import_in_place(store, "times", [file])


def test_a_large_file_and_a_bad_page(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "a.parquet", rows(0, 1_000), compression="zstd")
    monkeypatch.setattr(fitting, "OBJECT_SIZE_MAX", 1_000)
    with pytest.raises(ConfigurationError, match=r"bytes, and an object of a store at most 1000"):
        import_in_place(store, "typed", [file])
    monkeypatch.setattr(fitting, "OBJECT_SIZE_MAX", OBJECT_SIZE_MAX)
    data = bytearray(file.read_bytes())
    data[4:20] = b"\xff" * 16
    file.write_bytes(data)
    with pytest.raises(ConfigurationError, match="cannot be a segment as it is"):
        import_in_place(store, "typed", [file])


def test_columns_that_only_folders_hold_are_refused(store: Store, tmp_path: Path) -> None:
    file = written(tmp_path / "name=anna" / "a.parquet", rows(0, 3).select(["id", "tags"]))
    with pytest.raises(ConfigurationError, match="column 'name' is in the name of its folder and not in the file"):
        import_in_place(store, "typed", [file])


def test_partitions(store: Store, tmp_path: Path) -> None:
    table = pa.table({"value": pa.array([b"v"])})
    file = written(tmp_path / "a.parquet", table)
    with pytest.raises(ConfigurationError, match="has no partition: keys choose those of topic 'orders'"):
        import_in_place(store, "orders", [file])
    with pytest.raises(ConfigurationError, match="partition is 2, and topic 'orders' has 2: expected 0 to 1"):
        import_in_place(store, "orders", [file], partition=2)
    wrong = written(tmp_path / "partition=7" / "a.parquet", table)
    with pytest.raises(ConfigurationError, match=r"partition=7/a.parquet' says partition 7, and topic 'orders' has 2"):
        import_in_place(store, "orders", [wrong])
    with pytest.raises(ConfigurationError, match="have one name and one content"):
        import_in_place(store, "orders", [file, file], partition=0)
    with pytest.raises(ConfigurationError, match="is not on the server of the store"):
        import_in_place(store, "orders", ["s3://bucket/a.parquet"], partition=0)


def test_a_compacted_topic_takes_no_record_without_a_key_and_none_that_is_too_large(
    store: Store, tmp_path: Path
) -> None:
    store.create_topic("keys", settings={"cleanup.policy": "compact", "max.message.bytes": "100"})
    file = written(tmp_path / "a.parquet", pa.table({"key": pa.array([b"k", None]), "value": pa.array([b"v", b"w"])}))
    with pytest.raises(ConfigurationError, match="a record has no key"):
        import_in_place(store, "keys", [file])
    file = written(tmp_path / "b.parquet", pa.table({"key": pa.array([b"k"]), "value": pa.array([b"v" * 200])}))
    with pytest.raises(ConfigurationError, match=r"a record has 201 bytes, and its setting max\.message\.bytes allows"):
        import_in_place(store, "keys", [file])


@pytest.mark.parametrize(
    "server_name", ["moto_server", pytest.param("seaweed_server", marks=[pytest.mark.seaweedfs, pytest.mark.nightly])]
)
def test_objects_of_the_server_are_copied_by_it(
    server_name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server: S3Server = request.getfixturevalue(server_name)
    bucket = f"lake-{next_number()}"
    server.create_bucket(bucket)
    names = ["table/a b.parquet", "table/below/b.parquet", "table/_delta_log/c.parquet"]
    for number, name in enumerate(names):
        data = written(tmp_path / f"{number}.parquet", rows(10 * number, 10)).read_bytes()
        status, body = server.request("PUT", f"/{bucket}/{name.replace(' ', '%20')}", data)
        assert status == 200, body
    with Store.open(f"s3://{bucket}/store", create=True, options=server.options) as store:
        store.create_topic("typed", 2, schema=TYPED)
        report = import_in_place(store, "typed", [f"s3a://{bucket}/table/"])
        assert [one.taken for one in report.files] == ["copied by the store"] * 2
        assert ids(store) == list(range(20))
        again = import_in_place(store, "typed", [f"s3://{bucket}/{name}" for name in names[:2]])
        assert all(one.existing for one in again.files)
        local = written(tmp_path / "local.parquet", rows(50, 2))
        assert import_in_place(store, "typed", [local], link=True).files[0].taken == "copied"
        with pytest.raises(ConfigurationError, match="does not exist"):
            import_in_place(store, "typed", [f"s3://{bucket}/table/absent.parquet"])
        for name in names:
            server.request("DELETE", f"/{bucket}/{name.replace(' ', '%20')}")
        assert ids(store) == [*range(20), 50, 51]
        assert verify(store).problems == ()

        def change(file: str, records: int) -> None:
            server.request("PUT", f"/{bucket}/d.parquet", local.read_bytes())

        server.request("PUT", f"/{bucket}/d.parquet", (tmp_path / "1.parquet").read_bytes())
        with pytest.raises(ConfigurationError, match="has changed since it was read"):
            import_in_place(store, "typed", [f"s3://{bucket}/d.parquet"], on_progress=change)
