"""Files and topics of other stores into keyed topics, and out of them: upserts, deletes, and the latest rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from sparktxn import ConfigurationError, Producer, Store, read_arrow
from sparktxn._rows.stage.stager import SegmentStager
from sparktxn.errors import CommandRefused, StoreUnavailable
from sparktxn.maintenance import compact
from sparktxn.store.options import Condition
from sparktxn.transfer import export_topic, import_files, import_from_store
from tests.world import next_number

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("region", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        ("size", pa.int32()),
    ]
)
KEY = {"primary.key": "id,region"}
FORMATS = ["parquet", "arrow", "csv", "json"]


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(f"memory://keyed-files-{next_number()}", create=True) as made:
        made.create_topic("keyed", 3, settings=KEY, schema=SCHEMA)
        made.create_topic("typed", 1, schema=SCHEMA)
        yield made


def row(number: int, name: str | None = "a", size: int | None = None, **more: Any) -> dict[str, Any]:
    return {"id": number, "region": "EU", "name": name, "size": size, **more}


def write(path: Path, rows: list[dict[str, Any]], columns: list[str] | None = None) -> Path:
    """Write rows to a file of the format that its name says, with some of the columns."""
    names = columns or [*rows[0]]
    kinds = {field.name: field.type for field in SCHEMA} | {"_deleted": pa.bool_()}
    table = pa.table({name: pa.array([each.get(name) for each in rows], kinds[name]) for name in names})
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    elif path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    else:
        lines = ({name: each[name] for name in names if name in each} for each in rows)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def latest(store: Store, topic: str = "keyed") -> dict[int, str]:
    found = read_arrow(store, topic, columns=["id", "name"]).read_all().to_pylist()
    return {each["id"]: each["name"] for each in sorted(found, key=lambda each: each["id"])}


def all_rows(store: Store, topic: str = "keyed") -> list[tuple[Any, ...]]:
    names = ["_partition", "id", "region", "name", "size", "_deleted", "_timestamp"]
    found = read_arrow(store, topic, columns=names, rows="all").read_all().to_pylist()
    return [tuple(each.values()) for each in found]


@pytest.mark.parametrize("file_format", FORMATS)
def test_of_a_key_twice_in_a_file_the_later_row_counts(store: Store, tmp_path: Path, file_format: str) -> None:
    rows = [row(1, "first"), row(2, "b"), row(1, "second"), row(3, "c"), row(3, None, _deleted=True)]
    rows += [row(2, None, _deleted=True), row(2, "again", _deleted=False)]
    columns = [*SCHEMA.names, "_deleted"]
    path = write(tmp_path / f"rows.{file_format}", rows, columns)
    (done,) = import_files(store, "keyed", [path]).files
    assert (done.records, done.existing) == (7, False)
    assert latest(store) == {1: "second", 2: "again"}
    (again,) = import_files(store, "keyed", [path]).files
    assert again.existing
    assert len(all_rows(store)) == 7


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("columns", [["id", "region"], [*SCHEMA.names]])
def test_each_row_deletes_its_key(store: Store, tmp_path: Path, file_format: str, columns: list[str]) -> None:
    rows = [row(1), row(2), row(3)]
    import_files(store, "keyed", [write(tmp_path / "all.json", rows)])
    path = write(tmp_path / f"gone.{file_format}", rows[:2], columns)
    (done,) = import_files(store, "keyed", [path], delete=True).files
    assert (done.records, done.existing) == (2, False)
    assert latest(store) == {3: "a"}
    (again,) = import_files(store, "keyed", [path], delete=True).files
    assert again.existing
    assert {tuple(each[3:6]) for each in all_rows(store) if each[5]} == {(None, None, True)}


def test_a_file_that_was_imported_may_be_deleted_by_the_same_file(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", [row(1), row(2)])
    for delete, expected in ((False, {1: "a", 2: "a"}), (True, {}), (False, {}), (True, {})):
        import_files(store, "keyed", [path], delete=delete)
        assert latest(store) == expected


WRONG = [
    ("json", [row(1), {"id": 2, "region": "EU", "name": "b"}], False, r"line 2: column 'size' is missing: an upsert"),
    ("csv", [{"id": 2, "region": "EU", "name": "b"}], False, r"column 'size' of topic 'keyed' is missing"),
    ("parquet", [{"id": 2, "region": "EU", "size": 3}], False, r"column 'name' of topic 'keyed' is missing"),
    ("json", [row(1), row(2, None)], False, r"row 2: column 'name' .*may not be null in an upsert"),
    ("csv", [row(1), row(None)], False, r"'id'.* null"),  # type: ignore[arg-type]
    ("parquet", [row(1), row(None)], False, r"row 2: column 'id'"),  # type: ignore[arg-type]
    ("json", [row(1, _deleted=True)], True, r"_deleted"),
    ("csv", [{"id": 1}], True, r"column 'region' of topic 'keyed' is missing"),
    ("json", [{"id": 1}], True, r"line 1: column 'region' is missing"),
    ("json", [row(1) | {"region": "x" * 4_096}], False, r"row 1: a key of topic 'keyed' has 4102 bytes"),
]


@pytest.mark.parametrize(("file_format", "rows", "delete", "named"), WRONG)
def test_what_is_no_upsert_or_delete_is_named_and_nothing_of_the_file_is_written(
    store: Store, tmp_path: Path, file_format: str, rows: list[dict[str, Any]], delete: bool, named: str
) -> None:
    path = write(tmp_path / f"rows.{file_format}", rows)
    with pytest.raises((ConfigurationError, CommandRefused), match=rf"rows.{file_format}'.*{named}"):
        import_files(store, "keyed", [path], delete=delete)
    assert all_rows(store) == []


def test_a_topic_without_a_key_takes_no_deletes(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", [row(1)])
    for dry_run in (True, False):
        with pytest.raises(ConfigurationError, match="'typed' has no key"):
            import_files(store, "typed", [path], delete=True, dry_run=dry_run)


def test_missing_columns_may_be_null(store: Store, tmp_path: Path) -> None:
    store.create_topic("loose", 1, settings=KEY | {"upsert.missing": "null"}, schema=SCHEMA)
    lines = [row(1, size=5), {"id": 2, "region": "EU", "name": "b"}]
    import_files(store, "loose", [write(tmp_path / "rows.json", lines, SCHEMA.names)])
    import_files(store, "loose", [write(tmp_path / "rows.csv", lines, ["id", "region", "name"])])
    assert read_arrow(store, "loose", columns=["size"]).read_all()["size"].to_pylist() == [None, None]
    with pytest.raises(ConfigurationError, match="'name'"):
        import_files(store, "loose", [write(tmp_path / "less.csv", lines, ["id", "region"])])


def test_an_import_that_has_failed_goes_on_and_counts_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(tmp_path / "first.json", [row(number, "first") for number in range(5)])
    second = write(tmp_path / "second.json", [row(number, "second") for number in range(3)])
    finish, calls = SegmentStager.finish, iter((False, True))

    def broken(stager: SegmentStager) -> Any:
        if next(calls, False):
            raise StoreUnavailable("down")
        return finish(stager)

    with monkeypatch.context() as patched:
        patched.setattr(SegmentStager, "finish", broken)
        with pytest.raises(StoreUnavailable):
            import_files(store, "keyed", [first, second])
    assert [done.existing for done in import_files(store, "keyed", [first, second]).files] == [True, False]
    assert latest(store) == {0: "second", 1: "second", 2: "second", 3: "first", 4: "first"}
    assert len(all_rows(store)) == 8


def test_memory_is_bounded_however_often_a_key_comes(store: Store, tmp_path: Path) -> None:
    count = 400_000
    table = pa.table(
        {
            "id": pa.array([number % 10 for number in range(count)]),
            "region": pa.repeat("EU", count),
            "name": pa.array([str(number) for number in range(count)]),
            "size": pa.nulls(count, pa.int32()),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=10_000)
    del table
    before = pa.total_allocated_bytes()
    seen = 0

    def note(_: str, __: int) -> None:
        nonlocal seen
        seen = max(seen, pa.total_allocated_bytes() - before)

    import_files(store, "keyed", [tmp_path / "rows.parquet"], on_progress=note)
    assert seen < 200 * 1024 * 1024
    assert latest(store) == {number: str(count - 10 + number) for number in range(10)}


# Topics of other stores.


@pytest.fixture
def source() -> Iterator[Store]:
    with Store.open(f"memory://keyed-source-{next_number()}", create=True) as made:
        made.create_topic("keyed", 3, settings=KEY, schema=SCHEMA)
        yield made


def put(store: Store, *rows: dict[str, Any], delete: bool = False, topic: str = "keyed") -> None:
    with Producer({"bootstrap.servers": store.uri}) as producer:
        names = ["id", "region"] if delete else SCHEMA.names
        producer.produce_arrow(topic, pa.Table.from_pylist(rows, SCHEMA).select(names), delete=delete)


def test_a_keyed_topic_of_another_store_keeps_its_upserts_and_deletes(store: Store, source: Store) -> None:
    put(source, row(1), row(2), row(3, size=4))
    put(source, row(2), delete=True)
    assert import_from_store(store, "keyed", source, "keyed", dry_run=True).records == 4
    assert import_from_store(store, "keyed", source, "keyed").records == 4
    assert all_rows(store) == all_rows(source)
    put(source, row(1, "new"), row(2, "back"))
    put(source, row(3), delete=True)
    assert import_from_store(store, "keyed", source, "keyed").records == 3
    assert import_from_store(store, "keyed", source, "keyed").records == 0
    assert all_rows(store) == all_rows(source)
    assert latest(store) == latest(source) == {1: "new", 2: "back"}


@pytest.mark.parametrize("retention_ms", ["0", "86400000"])
def test_an_import_that_may_lack_deletes_does_not_go_on(store: Store, source: Store, retention_ms: str) -> None:
    """A compaction has removed a row and its delete, or may have, since the topic was imported."""
    eager = KEY | {"delete.retention.ms": retention_ms, "min.cleanable.dirty.ratio": "0"}
    source.create_topic("eager", 3, settings=eager, schema=SCHEMA)
    put(source, row(1), row(2), topic="eager")
    assert import_from_store(store, "keyed", source, "eager").records == 2
    put(source, row(1), delete=True, topic="eager")
    for number in range(3):
        put(source, row(2, str(number)), row(3, str(number)), topic="eager")
        compact(source, {"compact.topics": "eager"})
    if retention_ms == "0":
        with pytest.raises(ConfigurationError, match=r"delete\.retention\.ms \(0\).*import it into a new topic"):
            import_from_store(store, "keyed", source, "eager")
        assert latest(store) == {1: "a", 2: "a"}
        store.create_topic("new", 3, settings=KEY, schema=SCHEMA)
        import_from_store(store, "new", source, "eager")
        assert latest(store, "new") == latest(source, "eager")
    else:
        import_from_store(store, "keyed", source, "eager")
        assert latest(store) == latest(source, "eager") == {2: "2", 3: "2"}
    import_from_store(store, "new" if retention_ms == "0" else "keyed", source, "eager")


def test_an_import_that_has_had_the_deletes_goes_on_after_they_are_gone(store: Store, source: Store) -> None:
    eager = KEY | {"delete.retention.ms": "0", "min.cleanable.dirty.ratio": "0"}
    source.create_topic("eager", 3, settings=eager, schema=SCHEMA)
    put(source, *(row(number) for number in range(9)), topic="eager")
    put(source, *(row(number) for number in range(3)), delete=True, topic="eager")
    compact(source, {"compact.topics": "eager"})
    import_from_store(store, "keyed", source, "eager")
    put(source, *(row(number, "z") for number in range(3, 9)), topic="eager")
    compact(source, {"compact.topics": "eager"})
    gone = [view.compacted.deletes_gone for view in source.view(["eager"]).partitions.values() if view.compacted]
    assert max(gone) > (0, 0)
    import_from_store(store, "keyed", source, "eager")
    assert latest(store) == latest(source, "eager") == dict.fromkeys(range(3, 9), "z")


@pytest.mark.parametrize(
    ("partitions", "settings", "schema", "named"),
    [
        (
            3,
            {"primary.key": "id"},
            SCHEMA,
            r"has the key id \(primary\.key\).*the key id,region.*expected the same key",
        ),
        (3, {"primary.key": "region,id"}, SCHEMA, r"the key region,id"),
        (3, {}, SCHEMA, r"has no key"),
        (2, KEY, SCHEMA, r"the number of partitions .* is 2.*txnlog topics create NAME"),
        (3, KEY, SCHEMA.set(2, pa.field("name", pa.string())), r"expected the same columns"),
    ],
)
def test_topics_that_do_not_fit_are_refused_by_name(
    store: Store, source: Store, partitions: int, settings: dict[str, str], schema: pa.Schema, named: str
) -> None:
    put(source, row(1))
    store.create_topic("other", partitions, settings=settings, schema=schema)
    with pytest.raises(ConfigurationError, match=named) as raised:
        import_from_store(store, "other", source, "keyed")
    assert "upsert.not.null" not in str(raised.value)
    assert "_deleted" not in str(raised.value)
    assert store.view(["other"]).partitions["other", 0].log_end_offset == 0


def test_a_topic_without_a_key_is_not_imported_as_it_is_into_one_with_a_key(store: Store) -> None:
    with pytest.raises(ConfigurationError, match=r"'keyed'.*the key.*'typed'.*no key"):
        import_from_store(store, "keyed", store, "typed")


# Exports.


def exported(folder: Path, file_format: str) -> list[tuple[Any, ...]]:
    """The rows of an export's files, without their offsets and times."""
    rows = []
    for path in sorted(folder.rglob(f"*.{file_format}")):
        if file_format == "json":
            found = [json.loads(line) for line in path.read_text().splitlines()]
        elif file_format == "parquet":
            found = pyarrow.parquet.read_table(path, partitioning=None).to_pylist()
        elif file_format == "arrow":
            found = pa.ipc.open_file(path).read_all().to_pylist()
        else:
            found = pyarrow.csv.read_csv(path, convert_options=TEXT_IS_TEXT).to_pylist()
        rows += [tuple(each[name] for name in ("id", "region", "name", "_deleted") if name in each) for each in found]
    return rows


TEXT_IS_TEXT = pyarrow.csv.ConvertOptions(strings_can_be_null=True)


@pytest.mark.parametrize("file_format", FORMATS)
def test_an_export_has_the_latest_rows_or_all_and_comes_back(store: Store, tmp_path: Path, file_format: str) -> None:
    put(store, row(1), row(2), row(3, size=4), row(4))
    before = store.view().entry
    put(store, row(1, "new"))
    put(store, row(2), row(3), delete=True)
    put(store, row(3, "back"))
    report = export_topic(store, "keyed", tmp_path / "latest", file_format=file_format)
    expected = {(1, "EU", "new"), (3, "EU", "back"), (4, "EU", "a")}
    assert (report.records, set(exported(tmp_path / "latest", file_format))) == (3, expected)
    then = export_topic(store, "keyed", tmp_path / "then", file_format=file_format, entry=before)
    assert (then.records, set(exported(tmp_path / "then", file_format))) == (
        4,
        {(number, "EU", "a") for number in range(1, 5)},
    )
    whole = export_topic(store, "keyed", tmp_path / "all", file_format=file_format, rows="all")
    assert whole.records == 8
    assert [each[3] for each in exported(tmp_path / "all", file_format)].count(True) == 2
    for folder, name, count in (("latest", "one", 5), ("all", "two", 2)):
        store.create_topic(name, count, settings=KEY, schema=SCHEMA)
        import_files(store, name, [tmp_path / folder])
        assert latest(store, name) == {1: "new", 3: "back", 4: "a"}


def test_an_export_of_latest_rows_takes_conditions_columns_and_partitions(store: Store, tmp_path: Path) -> None:
    put(store, *(row(number, "a") for number in range(20)))
    put(store, *(row(number, "b") for number in range(10)))
    condition = Condition("name", "=", "a")
    report = export_topic(store, "keyed", tmp_path / "a", file_format="json", columns=["id"], where=[condition])
    assert report.records == 10
    found = [json.loads(line) for path in (tmp_path / "a").rglob("*.json") for line in path.read_text().splitlines()]
    assert sorted(each["id"] for each in found) == list(range(10, 20))
    assert {tuple(each) for each in found} == {("id",)}
    parts = [export_topic(store, "keyed", tmp_path / f"p{n}", offsets={n: (0, None)}).records for n in range(3)]
    assert sum(parts) == 20
    assert min(parts) > 0
    for offsets in ({0: (1, None)}, {0: (0, 5)}):
        with pytest.raises(ConfigurationError, match="rows='all'"):
            export_topic(store, "keyed", tmp_path / "none", offsets=offsets)
        assert export_topic(store, "keyed", tmp_path / f"{offsets[0]}", offsets=offsets, rows="all").records
    with pytest.raises(ConfigurationError, match="'typed' has no key"):
        export_topic(store, "typed", tmp_path / "none", rows="latest")
