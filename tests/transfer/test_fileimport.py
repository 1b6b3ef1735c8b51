"""Importing files: what an export wrote comes back, each file takes effect once, and what is wrong is named."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from sparktxn import ConfigurationError, Producer, Store
from sparktxn._rows.stage.stager import SegmentStager
from sparktxn.errors import CommandRefused, ErrorCode, KafkaError, OutcomeUnknown, ProducerFenced, StoreUnavailable
from sparktxn.transfer import csvrows, export_topic, fileimport, import_files
from tests.transfer.test_exporting import TYPED, shop, shown
from tests.world import next_number

__all__ = ["shop"]


@pytest.fixture
def target() -> Iterator[Store]:
    with Store.open(f"memory://imported-{next_number()}", create=True) as store:
        store.create_topic("orders", 3)
        store.create_topic("typed", 1, schema=TYPED)
        yield store


def without_places(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in ("offset", "_offset")} for row in rows]


@pytest.mark.parametrize("file_format", ["parquet", "arrow", "csv", "json"])
def test_bytes_are_told_within_a_file(
    target: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_format: str
) -> None:
    values = [b"%d" % number * 100 for number in range(40)]
    with Store.open(f"memory://told-{next_number()}", create=True) as source:
        source.create_topic("orders")
        with Producer({"bootstrap.servers": source.uri}) as producer:
            for value in values:
                producer.produce("orders", value)
        for folder in ("one", "two"):
            export_topic(source, "orders", tmp_path / folder, file_format=file_format)
    files = [file for folder in ("one", "two") for file in (tmp_path / folder).rglob("*.*") if file.name != "_SUCCESS"]
    monkeypatch.setattr(fileimport, "_LINES", 10)
    monkeypatch.setattr(csvrows, "_PIECE_BYTES", 500)
    monkeypatch.setattr(fileimport, "_ROWS", 10)
    told: list[int] = []
    import_files(target, "orders", files, on_bytes=told.append)
    sizes = [file.stat().st_size for file in files]
    assert told == sorted(told)
    assert told[-1] == sum(sizes)
    assert sizes[0] in told
    if file_format != "arrow":  # The file that is written here has one batch.
        assert len([read for read in told if read < sizes[0]]) >= 3
    told.clear()
    import_files(target, "orders", files, on_bytes=told.append)
    assert told == [sizes[0], sum(sizes)]


@pytest.mark.parametrize("topic", ["orders", "typed"])
@pytest.mark.parametrize("file_format", ["parquet", "arrow", "csv", "json"])
def test_what_was_exported_comes_back(shop: Store, target: Store, tmp_path: Path, file_format: Any, topic: str) -> None:
    export_topic(shop, topic, tmp_path / "out", file_format=file_format, rows_per_file=4)
    files = sorted((tmp_path / "out").rglob("*.*"))
    report = import_files(target, topic, files)
    assert sum(one.records or 0 for one in report.files) == 11
    assert len({one.entry for one in report.files}) == len(files) > 1
    assert without_places(shown(target, topic)) == without_places(shown(shop, topic))


def test_the_folder_of_an_export_stands_for_its_files_in_order(shop: Store, target: Store, tmp_path: Path) -> None:
    export_topic(shop, "orders", tmp_path / "out", rows_per_file=4)
    report = import_files(target, "orders", [tmp_path / "out"])
    files = sorted((tmp_path / "out").rglob("*.parquet"))
    assert [Path(one.file) for one in report.files] == files
    assert without_places(shown(target, "orders")) == without_places(shown(shop, "orders"))
    for number in (2, 10):
        (tmp_path / "many" / f"partition={number}").mkdir(parents=True)
        (tmp_path / "many" / f"partition={number}" / "a.csv").write_text("key\nk\n")
    (tmp_path / "many" / "_SUCCESS").touch()
    target.create_topic("many", 11)
    found = import_files(target, "many", [str(tmp_path / "many")], dry_run=True)
    assert [Path(one.file).parent.name for one in found.files] == ["partition=2", "partition=10"]


def test_an_export_of_more_partitions_is_refused_before_a_file_is_imported(
    shop: Store, target: Store, tmp_path: Path
) -> None:
    """The files of its first partitions were imported, and then it was refused; a dry run said nothing."""
    target.create_topic("one", 1)
    export_topic(shop, "orders", tmp_path / "out")
    for dry_run in (True, False):
        with pytest.raises(ConfigurationError, match=r"the export has partition \d: topic 'one' has partitions 0 to 0"):
            import_files(target, "one", [tmp_path / "out"], dry_run=dry_run)
    assert shown(target, "one") == []
    report = import_files(target, "one", [tmp_path / "out"], keep_partitions=False)
    assert sum(one.records or 0 for one in report.files) == 11
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "_SUCCESS").touch()
    assert import_files(target, "one", [tmp_path / "empty"]).files == ()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (None, "without a file _SUCCESS"),
        ("a.csv", "only folders such as partition=0"),
        ("zone=north/a.csv", "only folders such as partition=0"),
        ("_delta_log/0.json", "only folders such as partition=0"),
        ("partition=0/deeper/a.csv", "no known end"),
        ("partition=0/a.txt", "no known end"),
    ],
)
def test_a_folder_that_is_no_whole_export_is_refused(
    target: Store, tmp_path: Path, more: str | None, expected: str
) -> None:
    folder = tmp_path / "out"
    (folder / "partition=0").mkdir(parents=True)
    (folder / "partition=0" / "a.csv").write_text("key\nk\n")
    if more is not None:
        (folder / "_SUCCESS").touch()
        (folder / more).parent.mkdir(parents=True, exist_ok=True)
        (folder / more).write_text("")
    with pytest.raises(ConfigurationError, match=expected):
        import_files(target, "orders", [folder])
    assert shown(target, "orders") == []


def test_a_file_takes_effect_once(target: Store, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"value": "1"}\n\n{"value": "2", "key": "k"}\n')
    foreseen = import_files(target, "orders", [file], dry_run=True)
    assert (foreseen.files[0].existing, foreseen.files[0].records) == (False, None)
    assert shown(target, "orders") == []
    first = import_files(target, "orders", [file, str(file)])
    assert [(one.existing, one.records) for one in first.files] == [(False, 2), (True, None)]
    (tmp_path / "copy").mkdir()
    same = tmp_path / "copy" / "a.jsonl"
    same.write_text(file.read_text())
    again = import_files(target, "orders", [file, same])
    assert [one.existing for one in again.files] == [True, True]
    assert import_files(target, "orders", [file], dry_run=True).files[0].existing
    assert len(shown(target, "orders")) == 2
    file.write_text('{"value": "1"}\n\n{"value": "3", "key": "k"}\n')
    assert not import_files(target, "orders", [file]).files[0].existing
    assert len(shown(target, "orders")) == 4


def test_files_of_two_partitions_with_one_name_and_content_are_two(target: Store, tmp_path: Path) -> None:
    files = []
    for partition in (0, 2):
        folder = tmp_path / f"partition={partition}"
        folder.mkdir()
        files.append(folder / "part-00000.csv")
        files[-1].write_text("key,value\nk,v\n")
    import_files(target, "orders", files)
    import_files(target, "orders", files)
    assert [(row["partition"], row["value"]) for row in shown(target, "orders")] == [(0, b"v"), (2, b"v")]
    import_files(target, "orders", [files[0]], keep_partitions=False)
    assert len(shown(target, "orders")) == 2, "the file is the same one, wherever its records go"


def test_a_topic_that_was_created_again_takes_the_files_again(target: Store, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("value\nv\n")
    import_files(target, "orders", [tmp_path / "a.csv"])
    from sparktxn.admin import AdminClient

    with AdminClient({"bootstrap.servers": target.uri}) as admin:
        admin.delete_topics(["orders"])["orders"].result()
    target.create_topic("orders", 1)
    import_files(target, "orders", [tmp_path / "a.csv"])
    assert len(shown(target, "orders")) == 1


@pytest.mark.parametrize("error", [StoreUnavailable("down"), OutcomeUnknown("no answer"), KeyboardInterrupt()])
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_the_commit(
    target: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, *, after: bool
) -> None:
    (tmp_path / "a.csv").write_text("value\n" + "v\n" * 100)
    original = Store.commit

    def commit(self: Store, *args: Any, **kwargs: Any) -> Any:
        if after:
            original(self, *args, **kwargs)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit", commit)
        with pytest.raises(type(error)):
            import_files(target, "orders", [tmp_path / "a.csv"])
    with Store.open(target.uri, options={"checkpoint.entries": 5}) as other:
        assert import_files(other, "orders", [tmp_path / "a.csv"]).files[0].existing is after
    assert len(shown(target, "orders")) == 100


def test_an_import_that_is_fenced_waits_for_the_one_that_has_fenced_it(
    target: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text("value\n" + "v\n" * 100)
    original, refused = Store.commit, [False, False, False]

    def commit(self: Store, *args: Any, **kwargs: Any) -> Any:
        if self is target and not all(refused):
            refused[refused.index(False)] = True
            if all(refused):
                with Store.open(target.uri, options={"checkpoint.entries": 5}) as other:
                    assert not import_files(other, "orders", [tmp_path / "a.csv"]).files[0].existing
            raise ProducerFenced(KafkaError(ErrorCode.PRODUCER_FENCED, "by another import", fatal=True))
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Store, "commit", commit)
    assert import_files(target, "orders", [tmp_path / "a.csv"]).files[0].existing
    assert len(shown(target, "orders")) == 100


def test_an_import_that_is_fenced_by_one_that_never_commits_says_so(
    target: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text("value\nv\n")

    def commit(self: Store, *args: Any, **kwargs: Any) -> Any:
        raise ProducerFenced(KafkaError(ErrorCode.PRODUCER_FENCED, "by another import", fatal=True))

    monkeypatch.setattr(Store, "commit", commit)
    monkeypatch.setattr("sparktxn.transfer.fileimport._CHECK_S", 0.0)
    with pytest.raises(ProducerFenced):
        import_files(target, "orders", [tmp_path / "a.csv"])


def test_two_processes_that_import_one_file_at_once(
    target: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text("value\n" + "v\n" * 100)
    original, together = SegmentStager.finish, threading.Barrier(2)

    def finish(self: SegmentStager) -> Any:
        found = original(self)
        together.wait(60)
        return found

    monkeypatch.setattr(SegmentStager, "finish", finish)
    found: list[bool] = []

    def work(number: int) -> None:
        with Store.open(target.uri, options={"checkpoint.entries": 50 + number}) as store:
            found.append(import_files(store, "orders", [tmp_path / "a.csv"]).files[0].existing)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [False, True]
    assert len(shown(target, "orders")) == 100


def test_columns_by_other_names(target: Store, tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table({"id": ["a"], "body": ["b"], "note": [1]}), tmp_path / "a.parquet")
    with pytest.raises(ConfigurationError, match="'note'"):
        import_files(target, "orders", [tmp_path / "a.parquet"], columns={"key": "id", "value": "body"})
    assert shown(target, "orders") == []
    given: dict[str, Any] = {"columns": {"key": "id", "value": "body"}, "other_columns": "ignore"}
    import_files(target, "orders", [tmp_path / "a.parquet"], **given)
    (tmp_path / "b.json").write_text('{"id": "c", "body": "d", "note": [1, {}]}\n')
    import_files(target, "orders", [tmp_path / "b.json"], **given)
    assert sorted((row["key"], row["value"]) for row in shown(target, "orders")) == [(b"a", b"b"), (b"c", b"d")]


@pytest.mark.parametrize(("name", "data"), [("a.csv", "id,key\na,b\n"), ("a.json", '{"id": "a", "key": "b"}\n')])
def test_a_column_that_is_to_be_another_one_must_exist_and_replaces_it(
    target: Store, tmp_path: Path, name: str, data: str
) -> None:
    (tmp_path / name).write_text(data)
    given: dict[str, Any] = {"other_columns": "ignore"}
    with pytest.raises(ConfigurationError, match="has no column 'body', which is to be 'key'"):
        import_files(target, "orders", [tmp_path / name], columns={"value": "id", "key": "body"}, **given)
    with pytest.raises(ConfigurationError, match="key \\(of the file\\)"):
        import_files(target, "orders", [tmp_path / name], columns={"key": "id"})
    with pytest.raises(ConfigurationError, match="one column of the files twice"):
        import_files(target, "orders", [tmp_path / name], columns={"key": "id", "value": "id"})
    assert shown(target, "orders") == []
    import_files(target, "orders", [tmp_path / name], columns={"value": "id"}, **given)
    assert [(row["key"], row["value"]) for row in shown(target, "orders")] == [(b"b", b"a")]


def test_nulls_and_empty_texts_differ(target: Store, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('key,value,headers\n,"",\n"",,"[{""key"": ""h"", ""value"": null}]"\n')
    import_files(target, "orders", [tmp_path / "a.csv"])
    rows = sorted(shown(target, "orders"), key=lambda row: row["key"] is not None)
    assert [(row["key"], row["value"]) for row in rows] == [(None, b""), (b"", None)]
    assert rows[1]["headers"] == [{"key": "h", "value": None}]


def test_batches_are_bounded_and_progress_is_reported(
    target: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fileimport, "_LINES", 10)
    (tmp_path / "a.json").write_text("".join(f'{{"value": "{number}"}}\n' for number in range(95)))
    seen: list[int] = []
    import_files(target, "orders", [tmp_path / "a.json"], on_progress=lambda file, records: seen.append(records))
    assert seen == [*range(10, 91, 10), 95]
    assert len(shown(target, "orders")) == 95


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.txt", b"value\nv\n", "no known end"),
        ("a.parquet", b"value\nv\n", "cannot be read as parquet"),
        ("a.arrow", b"value\nv\n", "cannot be read as arrow"),
        ("a.csv", b"other\nv\n", "'other'"),
        ("a.csv", b"value,timestamp\nv,yesterday\n", "line 2: column 'timestamp': 'yesterday' is not a timestamp"),
        ("a.csv", b"value,partition\nv,x\n", "line 2: column 'partition': 'x' is not of type int32"),
        ("a.csv", b"value,partition\nv,1\nv,7\n", "row 2: column 'partition' has 7"),
        ("a.csv", b"key\nv\n", "a.csv': column 'value' is missing"),
        ("a.csv", b"key,value\nv,v\r", r"line 2: the file ends with \\r without \\n"),
        ("a.csv", b"value\n\xff\n", "line 2: column 'value' is not UTF-8"),
        ("a.json", b"1\n", "line 1: expected a JSON object"),
        ("a.json", b'{"value": "v"}\n{\n', "line 2: it is not JSON"),
        ("a.json", b'{"value": 5}\n', "line 1: column 'value': 5 is not of type binary"),
        ("a.json", b'{"value": "v", "headers": {"a": 1}}\n', "column 'headers'"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_committed(
    target: Store, tmp_path: Path, name: str, data: bytes, reason: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ConfigurationError, match=reason):
        import_files(target, "orders", [tmp_path / name])
    assert shown(target, "orders") == []


def test_a_file_that_changes_while_it_is_read(target: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.csv"
    file.write_text("value\nv\n")
    original = SegmentStager.finish

    def finish(self: SegmentStager) -> Any:
        file.write_text("value\nv\nw\n")
        return original(self)

    monkeypatch.setattr(SegmentStager, "finish", finish)
    with pytest.raises(ConfigurationError, match="has changed while it was read"):
        import_files(target, "orders", [file])
    assert shown(target, "orders") == []


def test_wrong_arguments(target: Store, tmp_path: Path) -> None:
    with pytest.raises(CommandRefused, match="'missing'"):
        import_files(target, "missing", [])
    with pytest.raises(TypeError, match="files is"):
        import_files(target, "orders", "a.csv")
    with pytest.raises(FileNotFoundError):
        import_files(target, "orders", [tmp_path / "none.csv"])
    with pytest.raises(ConfigurationError, match="other_columns"):
        import_files(target, "orders", [], other_columns="keep")
    assert json.loads("[]") == list(import_files(target, "orders", []).files)


LINES = [
    (
        "a.csv",
        'id,at\n1,\n2,"2024-01-01T00:00:00.1234567Z"\n',
        "line 3: column 'at': '2024-01-01T00:00:00.1234567Z' has 7",
    ),
    ("a.csv", 'id,name\n1,"a\nb"\nx,y\n', "line 4: column 'id': 'x' is not of type int64"),
    ("a.csv", "id,name\n1,a\n,b\n", "line 3: column 'id': it is null, and may not be"),
    ("a.csv", "id,price\n1,1.005\n", "line 2: column 'price': 1.005|line 2: column 'price': '1.005' does not fit"),
    ("a.csv", 'id,tags\n1,"[""x"", 5]"\n', "line 2: column 'tags': 5 is not of type string"),
    ("a.csv", "id,tags\n1," + "[" * 100_000 + "]" * 100_000 + "\n", "line 2: column 'tags': it is nested too deeply"),
    ("a.csv", "id,id\n1,2\n", "line 1: column 'id' is there 2 times"),
    ("a.csv", "id,nmae\n1,2\n", "column 'nmae' is none of the topic's.*did you mean 'name'"),
    ("a.json", '{"id": 1}\n\n{"id": 1.5}\n', "line 3: column 'id': 1.5 is not of type int64"),
    ("a.json", '{"id": 1, "id": 2}\n', "line 1: an object has 'id' twice"),
    ("a.json", '{"id": 1, "nmae": 2}\n', "line 1: there is no column 'nmae'.*did you mean 'name'"),
    ("a.json", '{"id": null}\n', "line 1: column 'id': 'id' is null, and may not be"),
    ("a.json", '{"name": "x"}\n', "line 1: column 'id' is missing"),
    ("a.json", '{"id": 1} {"id": 2}\n', "line 1: it is not JSON"),
    ("a.json", '[{"id": 1}]\n', "line 1: expected a JSON object"),
]


@pytest.mark.parametrize(("name", "data", "reason"), LINES)
def test_an_error_of_text_names_line_column_and_value(
    target: Store, tmp_path: Path, name: str, data: str, reason: str
) -> None:
    target.create_topic("times", 1, schema=TYPED.append(pa.field("at", pa.timestamp("us", tz="UTC"))))
    (tmp_path / name).write_text(data)
    with pytest.raises(ConfigurationError, match=reason) as caught:
        import_files(target, "times", [tmp_path / name])
    assert str(tmp_path / name) in str(caught.value)
    assert shown(target, "times") == []


def test_an_error_of_other_files_names_the_row(target: Store, tmp_path: Path) -> None:
    ids = [*range(999), None, *range(500)]
    pa.parquet.write_table(pa.table({"id": pa.array(ids, pa.int64())}), tmp_path / "a.parquet")
    with pytest.raises(ConfigurationError, match=r"a.parquet', row 1000: column 'id' of topic 'typed' may not be null"):
        import_files(target, "typed", [tmp_path / "a.parquet"])
    times = pa.array([1_000_000, 1_000_001], pa.timestamp("us", tz="UTC"))
    pa.parquet.write_table(pa.table({"value": ["a", "b"], "timestamp": times}), tmp_path / "b.parquet")
    with pytest.raises(ConfigurationError, match=r"row 2, column 'timestamp': 1000001 us since 1970"):
        import_files(target, "orders", [tmp_path / "b.parquet"])
    local = times.cast(pa.timestamp("us"))
    pa.parquet.write_table(pa.table({"value": ["a", "b"], "timestamp": local}), tmp_path / "c.parquet")
    with pytest.raises(ConfigurationError, match="a time without a zone"):
        import_files(target, "orders", [tmp_path / "c.parquet"])


def test_texts_that_other_readers_take_for_null_stay_text(target: Store, tmp_path: Path) -> None:
    texts = ["NA", "null", "NULL", "NaN", "N/A", "#N/A", "None", r"\N", "-", " ", "\u2028", "\ufeff", "a\r\nb"]
    (tmp_path / "a.csv").write_text("value\n" + "".join(f'"{text}"\n' for text in texts) + '""\n', newline="")
    (tmp_path / "b.csv").write_text("key,value\n,\n\n")
    import_files(target, "orders", [tmp_path / "a.csv", tmp_path / "b.csv"], keep_partitions=False)
    found = {row["value"] for row in shown(target, "orders")}
    assert found == {*(text.encode() for text in texts), b"", None}
    assert len(shown(target, "orders")) == len(texts) + 2


@pytest.mark.parametrize(("data", "line"), [("value\nx\n\n", 3), ("value\r\n\r\nx\r\n", 2), ('value\n"a\nb"\n\nx', 4)])
def test_an_empty_line_of_one_column_is_no_null_and_none_is_exported(
    target: Store, tmp_path: Path, data: str, line: int
) -> None:
    (tmp_path / "a.csv").write_text(data, newline="")
    with pytest.raises(ConfigurationError, match=rf"a.csv', line {line}: the line is empty"):
        import_files(target, "orders", [tmp_path / "a.csv"])
    assert shown(target, "orders") == []
    with Producer({"bootstrap.servers": target.uri}) as producer:
        producer.produce("orders", key=None, value=b"x")
    with pytest.raises(ConfigurationError, match="column 'key' has a null, which csv of one column cannot hold"):
        export_topic(target, "orders", tmp_path / "out", file_format="csv", columns=["key"])


def bad_text() -> pa.Array:
    """Return two texts of which the second is not UTF-8, as a reader that does not check them gives them."""
    offsets = pa.py_buffer(b"".join(number.to_bytes(4, "little") for number in (0, 1, 2)))
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"x\xff")])


@pytest.mark.parametrize("nested", [False, True])
def test_text_that_readers_would_refuse_is_refused(target: Store, tmp_path: Path, nested: bool) -> None:
    offsets = pa.array([0, 1, 2], pa.int32())
    values = pa.ListArray.from_arrays(offsets, bad_text()) if nested else bad_text()
    name = "tags" if nested else "name"
    table = pa.table({"id": pa.array([1, 2], pa.int64()), name: values})
    pa.parquet.write_table(table, tmp_path / "a.parquet", use_dictionary=False)
    with pytest.raises(ConfigurationError, match=rf"a.parquet', row 2: column '{name}' has a value .*UTF8"):
        import_files(target, "typed", [tmp_path / "a.parquet"])
    with pa.ipc.new_file(tmp_path / "b.arrow", table.schema) as file:
        file.write_table(table)
    with pytest.raises(ConfigurationError, match=rf"b.arrow': rows 1 to 2, column '{name}': .*UTF8"):
        import_files(target, "typed", [tmp_path / "b.arrow"])
    assert shown(target, "typed") == []


def test_rows_without_a_column_of_the_topic_are_refused(target: Store, tmp_path: Path) -> None:
    target.create_topic("loose", 1, schema=pa.schema([("id", pa.int64())]))
    pa.parquet.write_table(pa.table({"ID": [1, 2, 3]}), tmp_path / "a.parquet")
    empty = pa.record_batch({"x": [1, 2, 3]}).select([])
    with pa.ipc.new_file(tmp_path / "b.arrow", empty.schema) as file:
        file.write_batch(empty)
    (tmp_path / "c.csv").write_text("ID\n1\n")
    (tmp_path / "d.json").write_text('{}\n{"ID": 1}\n')
    for name in ("a.parquet", "b.arrow", "c.csv", "d.json"):
        with pytest.raises(ConfigurationError, match="no column is the topic's"):
            import_files(target, "loose", [tmp_path / name], other_columns="ignore")
    assert shown(target, "loose") == []
    (tmp_path / "e.json").write_text('{}\n{"ID": 1}\n{"id": 2}\n')
    import_files(target, "loose", [tmp_path / "e.json"], other_columns="ignore")
    assert [row["id"] for row in shown(target, "loose")] == [None, None, 2]


@pytest.mark.parametrize("zone", ["UTC", None])
def test_times_of_sparks_old_type_are_read_exactly_or_refused(target: Store, tmp_path: Path, zone: str | None) -> None:
    kind = pa.timestamp("us", tz=zone)
    target.create_topic(
        "old", 1, schema=pa.schema([("v", kind), ("l", pa.list_(kind)), ("s", pa.struct([("t", kind)]))])
    )
    moments = [-62_135_596_800_000_000, -1, 0, 1_700_000_000_000_001, 253_402_300_799_999_999, None]
    times = pa.array(moments, pa.int64()).cast(kind)
    lists = pa.array([[moment, None] for moment in moments], pa.list_(pa.int64())).cast(pa.list_(kind))
    given = pa.table({"v": times, "l": lists, "s": pa.StructArray.from_arrays([times], ["t"])})
    pa.parquet.write_table(given, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
    import_files(target, "old", [tmp_path / "a.parquet"])
    found = [(row["v"], row["l"], row["s"]) for row in shown(target, "old")]
    assert found == [tuple(row.values()) for row in given.to_pylist()]
    for name, number in (("v", 1), ("l", 1_700_000_000_000_000_001)):
        exact = pa.array([0, number], pa.int64()).cast(pa.timestamp("ns"))
        column = pa.array([[0], [number]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("ns")))
        table = pa.table({name: exact if name == "v" else column})
        pa.parquet.write_table(table, tmp_path / "b.parquet", use_deprecated_int96_timestamps=True)
        with pytest.raises(ConfigurationError, match=f"b.parquet', row 2, column '{name}': a time of .*INT96"):
            import_files(target, "old", [tmp_path / "b.parquet"])


def test_files_are_read_by_bytes_not_by_lines(target: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fileimport, "_PIECE_BYTES", 10_000)
    monkeypatch.setattr(fileimport, "_BATCH_BYTES", 100_000)
    values = [f"{number:08d}" * 250 for number in range(40)]
    (tmp_path / "a.json").write_text("".join(f'{{"value": "{value}"}}\n' for value in values))
    pa.parquet.write_table(pa.table({"value": values}), tmp_path / "b.parquet")
    for name in ("a.json", "b.parquet"):
        seen: list[int] = []

        def note(_: str, records: int, seen: list[int] = seen) -> None:
            seen.append(records)

        import_files(target, "orders", [tmp_path / name], on_progress=note)
        assert seen[0] < 10
        assert seen[-1] == 40
    monkeypatch.setattr(fileimport, "_LINE_BYTES_MAX", 1_000)
    with pytest.raises(ConfigurationError, match="line 1: it has 1000 bytes or more"):
        import_files(target, "typed", [tmp_path / "a.json"])


@pytest.mark.parametrize("file_format", ["parquet", "arrow", "csv", "json"])
def test_a_topics_own_columns_with_names_of_places_are_kept(
    shop: Store, target: Store, tmp_path: Path, file_format: str
) -> None:
    schema = pa.schema([("offset", pa.int64()), ("topic", pa.string()), ("timestampType", pa.int64())])
    table = pa.table({"offset": [7, None], "topic": ["politics", ""], "timestampType": [9, 8]}, schema=schema)
    for store in (shop, target):
        store.create_topic("own", 1, schema=schema)
    with Producer({"bootstrap.servers": shop.uri}) as producer:
        producer.produce_arrow("own", table)
    export_topic(shop, "own", tmp_path / "out", file_format=file_format)
    import_files(target, "own", sorted((tmp_path / "out").rglob("part-*")))
    assert [{name: row[name] for name in schema.names} for row in shown(target, "own")] == table.to_pylist()


BYTES = pa.schema([("id", pa.int64()), ("data", pa.binary())])


def of_bytes(shop: Store, tmp_path: Path, header: str, *, text: str = "xxxx", **named: Any) -> list[Any]:
    """Import one row of CSV, whose text is base64 and might be bytes as they are, too."""
    shop.create_topic("bytes", 1, schema=BYTES)
    (tmp_path / "a.csv").write_text(f"id,{header}\n7,{text}\n")
    import_files(shop, "bytes", [tmp_path / "a.csv"], **named)
    return [row["data"] for row in shown(shop, "bytes")]


@pytest.mark.parametrize(
    ("header", "named"),
    [("data_base64", {}), ("packed_base64", {"columns": {"data": "packed_base64"}})],
)
def test_the_name_of_a_csvs_column_says_that_its_bytes_are_base64(
    shop: Store, tmp_path: Path, header: str, named: Any
) -> None:
    assert of_bytes(shop, tmp_path, header, **named) == [b"\xc7\x1c\x71"]


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ("data", {}),
        ("data", {"other_columns": "ignore"}),
        ("packed", {"columns": {"data": "packed"}}),
        ("data", {"columns": {"data": "data"}}),
    ],
)
def test_bytes_of_a_csv_that_may_be_as_they_are_are_refused(
    shop: Store, tmp_path: Path, header: str, named: Any
) -> None:
    with pytest.raises(ConfigurationError, match=f"column '{header}' would be bytes .* 'data': expected 'data_base64'"):
        of_bytes(shop, tmp_path, header, **named)
    assert shown(shop, "bytes") == []


def test_a_topic_whose_columns_have_one_name_in_csv_has_none(shop: Store, tmp_path: Path) -> None:
    schema = pa.schema([("data", pa.binary()), ("data_base64", pa.string())])
    shop.create_topic("both", 1, schema=schema)
    with Producer({"bootstrap.servers": shop.uri}) as producer:
        producer.produce_arrow("both", pa.table({"data": [b"xxxx"], "data_base64": ["a"]}, schema=schema))
    (tmp_path / "a.csv").write_text("data_base64\nxxxx\n")
    for act in (
        lambda: export_topic(shop, "both", tmp_path / "out", file_format="csv"),
        lambda: import_files(shop, "both", [tmp_path / "a.csv"]),
    ):
        with pytest.raises(ConfigurationError, match="column 'data_base64' of csv is two columns"):
            act()
    export_topic(shop, "both", tmp_path / "out", file_format="csv", columns=["data"])
    assert next((tmp_path / "out").rglob("part-*")).read_text() == '"data_base64"\n"eHh4eA=="\n'
