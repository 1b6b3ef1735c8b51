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

from sparktxn import ConfigurationError, Store
from sparktxn.errors import CommandRefused, OutcomeUnknown, StoreUnavailable
from sparktxn.stage.stager import SegmentStager
from sparktxn.transfer import export_topic, filereading, import_files
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


@pytest.mark.parametrize("topic", ["orders", "typed"])
@pytest.mark.parametrize("file_format", ["parquet", "arrow", "csv", "json"])
def test_what_was_exported_comes_back(shop: Store, target: Store, tmp_path: Path, file_format: Any, topic: str) -> None:
    export_topic(shop, topic, tmp_path / "out", file_format=file_format, rows_per_file=4)
    files = sorted((tmp_path / "out").rglob("*.*"))
    report = import_files(target, topic, files)
    assert sum(one.records or 0 for one in report.files) == 11
    assert len({one.entry for one in report.files}) == len(files) > 1
    assert without_places(shown(target, topic)) == without_places(shown(shop, topic))


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
    monkeypatch.setattr(filereading, "_LINES", 10)
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
        ("a.csv", b"value,timestamp\nv,yesterday\n", "column 'timestamp' is no timestamp"),
        ("a.csv", b"value,partition\nv,x\n", "column 'partition' is no int32"),
        ("a.csv", b"value,partition\nv,7\n", "7"),
        ("a.csv", b"value\n\xff\n", "cannot be read as csv"),
        ("a.json", b"1\n", "row 1: expected a JSON object"),
        ("a.json", b'{"value": "v"}\n{\n', "row 2: it is not JSON"),
        ("a.json", b'{"value": 5}\n', "column 'value' is no binary"),
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
