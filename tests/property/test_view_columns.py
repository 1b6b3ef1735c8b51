"""Random histories of topics that gain columns: what each reader of each view returns, compared with a plain model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sparktxn import ConfigurationError, Store, read_arrow, read_task, to_duckdb, to_pandas, to_polars
from sparktxn._rows.scan.conditions import Condition
from sparktxn.transfer import export_topic
from tests.columnhistory import OPTIONS, TYPES, ColumnHistory, Row, Snapshot, expected
from tests.seeds import examples, seed_of
from tests.world import next_number

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(f"memory://columns-{next_number()}", options=OPTIONS, create=True) as opened:
        yield opened


def moments(store: Store, snapshot: Snapshot) -> list[Any]:
    """The ways to name the moment of a snapshot."""
    time_ms = store.view(entry=snapshot.entry).timestamp_ms
    named = [snapshot.entry] if snapshot.transaction is None else [snapshot.entry, snapshot.transaction]
    is_last = store.view(timestamp_ms=time_ms).entry == snapshot.entry
    return [*named, _EPOCH + timedelta(milliseconds=time_ms)] if is_last else named


def ways(store: Store, snapshot: Snapshot, folder: Path, random: Random) -> dict[str, Callable[..., list[Row]]]:
    """The readers, each with the topics and columns to read; conditions are (column, "is null" or "is not null")."""
    as_of = random.choice(moments(store, snapshot))

    def arrow(topics: Any, columns: Any, where: Any) -> list[Row]:
        return read_arrow(store, topics, columns=columns, where=where, as_of=as_of).read_all().to_pylist()

    def expression(topics: Any, columns: Any, where: Any) -> list[Row]:
        tests = [pc.field(name).is_null() if op == "is null" else pc.field(name).is_valid() for name, op in where]
        given = None if not tests else tests[0]
        return read_arrow(store, topics, columns=columns, where=given, as_of=as_of).read_all().to_pylist()

    def pandas(topics: Any, columns: Any, where: Any) -> list[Row]:
        frame = to_pandas(store, topics, columns=columns, where=where, as_of=as_of)
        return [{name: row.get(name) for name in frame.columns} for row in arrow(topics, columns, where)][: len(frame)]

    def polars(topics: Any, columns: Any, where: Any) -> list[Row]:
        return to_polars(store, topics, columns=columns, where=where, as_of=as_of).to_dicts()

    def duckdb(topics: Any, columns: Any, where: Any) -> list[Row]:
        rows = to_duckdb(store, topics, columns=columns, where=where, as_of=as_of)
        return rows.to_arrow_table().to_pylist()

    def plans(topics: Any, columns: Any, where: Any) -> list[Row]:
        view = store.view(topics, entry=snapshot.entry)
        whole = {key: (part.log_start_offset, part.log_end_offset) for key, part in view.partitions.items()}
        names = None if columns is None else list(dict.fromkeys([*columns, *(name for name, _ in where)]))
        if names is None and where:
            names = [*(name for name, _, _ in view.topics[topics[0]].schema or ()), *(name for name, _ in where)]
            names = list(dict.fromkeys(names))
        plan = random.choice(["view", "offset", "ranges", "commits"])
        if plan in ("view", "offset"):
            order = "commit" if plan == "view" else "offset"
            tasks = store.plan_view(view, order=order, columns=names)  # type: ignore[arg-type]
        elif plan == "ranges":
            tasks = store.plan(view, whole, columns=names)
        else:
            tasks = store.plan_commits(view, 0, columns=names, by_segment=random.random() < 0.5)
        rows = [row for task in tasks for batch in read_task(task, store.options) for row in batch.to_pylist()]
        kept = [row for row in rows if all((row[name] is None) == (op == "is null") for name, op in where)]
        own = columns or [name for name, _, _ in view.topics[topics[0]].schema or ()]
        return [{name: row[name] for name in own} for row in kept]

    def exported(topics: Any, columns: Any, where: Any) -> list[Row]:
        target = folder / f"export-{next_number()}"
        conditions = [Condition(name, op, None) for name, op in where]
        export_topic(store, topics[0], target, columns=columns, where=conditions, entry=snapshot.entry)
        files = sorted(target.rglob("*.parquet"))
        return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]

    several = {"arrow": arrow, "expression": expression, "polars": polars, "duckdb": duckdb, "pandas": pandas}
    return {**several, "plans": plans, "exported": exported}


@pytest.mark.parametrize("number", range(examples(4, 60)))
def test_every_reader_of_every_view_agrees_with_the_model(store: Store, tmp_path: Path, number: int) -> None:
    random = Random(seed := seed_of(f"view columns {number}", number))
    history = ColumnHistory(store, random)
    for _ in range(random.randint(8, 25)):
        history.step()
    for _ in range(25):
        snapshot = random.choice(history.snapshots)
        readers = ways(store, snapshot, tmp_path, random)
        name = random.choice(list(readers))
        several = name not in ("plans", "exported") and random.random() < 0.4
        topics = ["t", "u"] if several else [random.choice("tu")]
        columns = None if random.random() < 0.3 else random.sample(list(TYPES), random.randint(1, 3))
        where = [(random.choice("abc"), random.choice(["is null", "is not null"]))] if random.random() < 0.3 else []
        asked = [name for name, _ in where]
        case = (seed, name, snapshot.entry, topics, columns, where)
        known = expected(snapshot, history.newest, tuple(topics), (*(columns or ()), *asked))
        if known is None:
            with pytest.raises(ConfigurationError):
                readers[name](topics, columns, where)
            continue
        chosen = None if columns is None else tuple(columns)
        names, _ = expected(snapshot, history.newest, tuple(topics), chosen) or ((), [])
        _, rows = expected(snapshot, history.newest, tuple(topics), (*names, *asked)) or ((), [])
        kept = [row for row in rows if all((row[column] is None) == (op == "is null") for column, op in where)]
        found = [{column: row[column] for column in names} for row in readers[name](topics, columns, where)]
        assert found == [{column: row[column] for column in names} for row in kept], case


def test_a_view_shows_its_own_columns_and_takes_those_that_came_later(store: Store) -> None:
    history = ColumnHistory(store, Random(1), ("t",))
    history.write("t", ("a",))
    before = store.view(["t"])
    own = before.topics["t"].schema or ()
    history.add("t", column := next(name for name in TYPES if name not in [one for one, _, _ in own]))
    history.write("t", (column,))
    assert store.view(["t"], entry=before.entry).topics["t"].schema == own, "a view's own columns stay"
    assert read_arrow(store, "t", as_of=before.entry).schema.names[: len(own)] == [name for name, _, _ in own]
    assert column not in read_arrow(store, "t", as_of=before.entry).schema.names
    wider = store.with_columns(before, [column])
    assert (wider.topics["t"].schema or ())[-1][0] == column
    assert wider.partitions["t", 0].topic is wider.topics["t"]
    assert store.with_columns(before) == wider, "None means all"
    assert store.with_columns(before, ["a", "_offset"]) is before
    with pytest.raises(ConfigurationError, match="column 'nowhere' is unknown: the topic has a, "):
        read_arrow(store, "t", columns=["nowhere"], as_of=before.entry)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ([("x", pa.int64())], "begin"),
        ([("a", pa.string())], "type of the first"),
        ([("a", pa.int64()), ("b", pa.int64())], "type"),
        ([("a", pa.int64()), ("B", pa.string())], "case"),
        ([("a", pa.int64()), pa.field("c", pa.string(), nullable=False)], "nullable"),
        (None, "record"),
    ],
    ids=str,
)
def test_topics_of_other_layouts_are_refused(store: Store, other: Any, reason: str) -> None:
    store.create_topic("t", schema=pa.schema([("a", pa.int64()), ("b", pa.string())]))
    store.create_topic("other", schema=None if other is None else pa.schema(other))
    for topics in (["t", "other"], ["other", "t"]):
        with pytest.raises(ConfigurationError, match=f"topics {topics[0]!r} and {topics[1]!r} do not have the same"):
            read_arrow(store, topics)
