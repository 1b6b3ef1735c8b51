"""Typed topics gain nullable columns: by a store, an administrator, and by two of them at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sparktxn import CommandRefused, ConfigurationError, KafkaException, Store
from sparktxn._foundation.values.fieldtypes import Columns
from sparktxn._foundation.values.structs import TopicState
from sparktxn._rows.stage import newcolumns
from sparktxn.admin import AdminClient
from sparktxn.errors import ErrorCode
from sparktxn.store import read_task

ID = pa.field("id", pa.int64(), nullable=False)
ADDED = pa.schema([("tags", pa.map_(pa.string(), pa.int64())), ("local", pa.timestamp("us"))])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store"), create=True) as opened:
        opened.create_topic("t", schema=pa.schema([ID]))
        yield opened


def write(store: Store, rows: pa.Table, **plan: str) -> None:
    stager = store.stage_plan(["t"], **plan).open(seed=0, default_topic="t")  # type: ignore[arg-type]
    stager.write(rows)
    store.commit(stager.finish())


def read(store: Store, *columns: str) -> list[dict[str, object]]:
    view = store.view(["t"])
    tasks = store.plan(view, store.ranges(view), columns=columns or None)
    return [row for task in tasks for batch in read_task(task, store.options) for row in batch.to_pylist()]


def test_records_from_before_a_new_column_read_as_null(store: Store) -> None:
    write(store, pa.table({"id": [1]}))
    assert store.add_columns("t", ADDED).schema == (
        ("id", "int64", False),
        ("tags", "map<string, int64>", True),
        ("local", "timestamp[us]", True),
    )
    write(store, pa.table({"id": [2], "tags": pa.array([[("a", 1)]], ADDED.field("tags").type)}))
    write(store, pa.table({"id": [3]}))
    found = [(row["id"], row["tags"], row["local"]) for row in read(store, "id", "tags", "local")]
    assert found == [(1, None, None), (2, [("a", 1)], None), (3, None, None)]


def test_adding_the_same_columns_again_writes_nothing(store: Store) -> None:
    store.add_columns("t", ADDED)
    entry = store.view().entry
    assert store.add_columns("t", ADDED.append(ID)).schema == store.topics()[0].schema
    assert store.view().entry == entry


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ([("id", "string", True)], "column 'id' of topic 't' has type int64: it cannot become string"),
        ([("n", "int64", False)], "column 'n' is new to topic 't' and not nullable"),
        ([("n", "int65", True)], "type 'int65' is unknown"),
        ([("_n", "int64", True)], "reserved"),
    ],
)
def test_columns_that_a_topic_cannot_gain_are_refused(
    store: Store, columns: list[tuple[object, ...]], reason: str
) -> None:
    entry = store.view().entry
    with pytest.raises(ConfigurationError, match=reason):
        store.add_columns("t", columns)
    assert store.view().entry == entry


def test_a_column_that_differs_only_in_case_is_refused_also_by_a_validation(store: Store) -> None:
    entry = store.view().entry
    with pytest.raises(ConfigurationError, match="column name 'ID' is not unique"):
        store.add_columns("t", [("n", "int64", True), ("ID", "int64", True)])
    with AdminClient({"bootstrap.servers": store.uri}) as admin:
        refused = admin.add_columns({"t": pa.schema([("ID", pa.int64())])}, validate_only=True)["t"]
        with pytest.raises(KafkaException, match="column name 'ID' is not unique"):
            refused.result()
    assert store.view().entry == entry


def test_kafkas_record_takes_no_columns(store: Store) -> None:
    store.create_topic("record")
    with pytest.raises(ConfigurationError, match="'record' has Kafka's record"):
        store.add_columns("record", ADDED)
    with pytest.raises(CommandRefused, match="topic 'recrod' does not exist; did you mean 'record'"):
        store.add_columns("recrod", ADDED)


def test_a_column_that_another_writer_adds_first_is_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    find = newcolumns.columns_to_add
    overtaken: list[bool] = []

    def find_then_lose(topic: TopicState, columns: Columns) -> Columns:
        missing = find(topic, columns)
        if not overtaken:
            overtaken.append(True)
            store.add_columns("t", [("tags", "map<string, int64>", True)])
        return missing

    monkeypatch.setattr(newcolumns, "columns_to_add", find_then_lose)
    added = store.add_columns("t", ADDED).schema
    assert added is not None
    assert [name for name, _, _ in added] == ["id", "tags", "local"]


def test_an_administrator_adds_columns(store: Store) -> None:
    with AdminClient({"bootstrap.servers": store.uri}) as admin:
        only_checked = admin.add_columns({"t": ADDED}, validate_only=True)
        only_checked["t"].result()
        assert len(store.topics()[0].schema or ()) == 1
        added = admin.add_columns({"t": ADDED, "missing": ADDED})
        added["t"].result()
        assert len(store.topics()[0].schema or ()) == 3
        with pytest.raises(KafkaException) as refused:
            added["missing"].result()
        assert refused.value.args[0].code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(KafkaException, match="it cannot become double") as refused:
            admin.add_columns({"t": pa.schema([("local", pa.float64())])})["t"].result()
        assert refused.value.args[0].code() == ErrorCode.INVALID_CONFIG


def test_a_partition_key_divides_rows_where_the_topic_names_none(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "keyed"), create=True) as store:
        store.create_topic("t", 4, schema=pa.schema([("k", pa.string()), ("n", pa.int64())]))
        for first in range(0, 40, 20):
            rows = pa.table({"k": [str(n % 5) for n in range(first, first + 20)], "n": range(first, first + 20)})
            write(store, rows, partition_key="k")
        places: dict[object, set[object]] = {}
        for row in read(store, "k", "_partition"):
            places.setdefault(row["k"], set()).add(row["_partition"])
        assert all(len(partitions) == 1 for partitions in places.values()), places
        assert len({*map(str, places.values())}) > 1


def test_a_partition_key_that_contradicts_the_topic_is_refused(store: Store) -> None:
    with pytest.raises(ConfigurationError, match=r"'partition.key' of topic 't' is 'idd'.*did you mean 'id'"):
        store.stage_plan(["t"], partition_key="idd")
    columns = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    store.create_topic("keyed", schema=columns, settings={"partition.key": "a"})
    assert store.stage_plan(["keyed"], partition_key="a").topics["keyed"].partition_key == "a"
    with pytest.raises(ConfigurationError, match=r"setting 'partition.key' of topic 'keyed' is 'a'"):
        store.stage_plan(["keyed"], partition_key="b")
    store.create_topic("record")
    with pytest.raises(ConfigurationError, match="Kafka's record"):
        store.stage_plan(["record"], partition_key="key")
