"""Topics with a key: the latest rows by each of Spark's readers, all rows where they are asked for, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from pyspark_txnlog import count, max_offset, read_stream, register_views, scan, scan_stream
from sparktxn import ConfigurationError, Producer, Store, read_arrow
from sparktxn.maintenance import compact
from tests.property.test_latest_rows import Program
from tests.seeds import examples, seed_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CALM: Final = {"store.fsync": False, "checkpoint.fold.bytes.per.minute": 0}
SCHEMA: Final = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("size", pa.float64()), ("a.b", pa.int32())]
)
FORMATS: Final = {
    "files": {"append.inline.bytes": "0"}, "inline": {},
    "arrow": {"append.inline.bytes": "0", "segment.format": "arrow"},
    "row groups": {"append.inline.bytes": "0", "segment.rows": "4"},
}  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store"), create=True, options=CALM) as opened:
        yield opened


def create(store: Store, topic: str = "keyed", **settings: str) -> None:
    store.create_topic(topic, 3, settings={"primary.key": "id"} | settings, schema=SCHEMA)


def upserts(*ids: int, name: str) -> pa.Table:
    """One of each id, the size of which is half of it."""
    sizes = pa.array([number / 2 for number in ids], pa.float64())
    other = pa.array([None] * len(ids), pa.int32())
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [name] * len(ids), "size": sizes, "a.b": other})


def change(store: Store, rows: pa.Table, *deleted: int, topic: str = "keyed") -> int:
    """Commit upserts and then deletes; return the entry."""
    with Producer({"bootstrap.servers": store.uri, "transactional.id": "shop"} | CALM) as producer:
        producer.init_transactions(30)
        with producer.transaction():
            producer.produce_arrow(topic, rows)
            if deleted:
                producer.produce_arrow(topic, pa.table({"id": pa.array(deleted, pa.int64())}), delete=True)
    return store.view().entry


def frame(spark: SparkSession, store: Store, topic: str = "keyed", **options: Any) -> DataFrame:
    return spark.read.format("txnlog").options(topic=topic, **options).load(store.uri)


def pairs(rows: DataFrame) -> list[tuple[Any, ...]]:
    """The ids and names of rows, sorted."""
    return sorted(tuple(row) for row in rows.select("id", "name").collect())


@pytest.mark.parametrize("settings", FORMATS.values(), ids=FORMATS.keys())
def test_a_batch_has_the_latest_rows_at_each_entry(spark: SparkSession, store: Store, settings: dict[str, str]) -> None:
    create(store, **settings)
    first = change(store, upserts(*range(30), name="a"))
    second = change(store, upserts(*range(0, 30, 4), name="b"), 1, 2, 29)
    expected = {
        first: dict.fromkeys(range(30), "a"),
        second: {number: "a" if number % 4 else "b" for number in range(30) if number not in (1, 2, 29)},
    }
    for entry, wanted in expected.items():
        for rows in (frame(spark, store, asOfEntry=entry), scan(spark, store.uri, "keyed", asOfEntry=entry)):
            assert rows.columns == SCHEMA.names
            assert pairs(rows) == sorted(wanted.items())
            assert rows.count() == len(wanted) == count(store.uri, "keyed", asOfEntry=entry)
            few = {number: name for number, name in wanted.items() if name == "a" and number > 20}
            # A row that has been superseded met it once.
            assert pairs(rows.where("name = 'a' and size > 10")) == sorted(few.items())
            assert pairs(rows.where("id in (4, 5)")) == [(4, wanted[4]), (5, wanted[5])]
    filtered = frame(spark, store, filters="name = 'a' and id >= 27", columns="name,id")
    assert filtered.columns == ["name", "id"]
    assert pairs(filtered) == [(27, "a")]
    kept = read_arrow(store, "keyed", columns=["_partition", "_offset"]).read_all().to_pylist()
    greatest: dict[int, int] = {}
    for row in kept:
        greatest[row["_partition"]] = max(greatest.get(row["_partition"], 0), row["_offset"])
    assert max_offset(store.uri, "keyed") == greatest


def test_assigned_partitions_transactions_and_columns_of_places(spark: SparkSession, store: Store) -> None:
    create(store)
    change(store, upserts(*range(12), name="a"))
    change(store, upserts(3, name="b"), 4)
    columns = "id,name,_partition,_offset,_entry"
    wanted = sorted(
        tuple(row.values()) for row in read_arrow(store, "keyed", columns=columns.split(",")).read_all().to_pylist()
    )
    assert sorted(tuple(row) for row in frame(spark, store, columns=columns).collect()) == wanted
    assert sorted(tuple(row) for row in scan(spark, store.uri, "keyed", columns=columns).collect()) == wanted
    own = [row for row in wanted if row[2] != 1]
    options = {"assign": '{"keyed":[0,2]}', "columns": columns, "order": "offset"}
    rows = spark.read.format("txnlog").options(**options).load(store.uri)
    assert sorted(tuple(row) for row in rows.collect()) == own
    assert sorted(tuple(row) for row in scan(spark, store.uri, options=options).collect()) == own
    assert "_transactional_id" in frame(spark, store, includeTxnMetadata=True).columns


@pytest.mark.parametrize("settings", FORMATS.values(), ids=FORMATS.keys())
def test_all_rows_have_the_column_that_says_deleted(
    spark: SparkSession, store: Store, settings: dict[str, str]
) -> None:
    create(store, **settings)
    change(store, upserts(1, 2, name="a"))
    entry = change(store, upserts(1, name="b"), 2)
    for rows in (frame(spark, store, rows="all"), scan(spark, store.uri, "keyed", rows="ALL")):
        assert rows.columns == [*SCHEMA.names, "_deleted"]
        found = sorted(tuple(row) for row in rows.select("id", "name", "_deleted").collect() if row.name)
        assert found == [(1, "a", False), (1, "b", False), (2, "a", False)]
        assert [tuple(row) for row in rows.where("_deleted").select("id", "name").collect()] == [(2, None)]
        assert rows.count() == 4 == count(store.uri, "keyed", rows="all")
    later = frame(spark, store, rows="all", startingEntry=entry)
    assert later.count() == 2


def test_no_rows_and_only_deletes(spark: SparkSession, store: Store) -> None:
    create(store)
    assert frame(spark, store).collect() == scan(spark, store.uri, "keyed").collect() == []
    change(store, upserts(1, name="a"), 1, 2)
    assert frame(spark, store).collect() == scan(spark, store.uri, "keyed").collect() == []
    assert count(store.uri, "keyed") == 0
    assert max_offset(store.uri, "keyed") == {}


@pytest.mark.parametrize(
    "bounds",
    [
        {"startingOffsets": '{"keyed":{"0":0,"1":0,"2":0}}'}, {"startingTimestamp": "1"}, {"startingEntry": "1"},
        {"startingOffsetsByTimestamp": '{"keyed":{"0":1,"1":1,"2":1}}'}, {"startingOffsets": "-1 hour"},
        {"endingOffsets": '{"keyed":{"0":1,"1":1,"2":1}}'}, {"endingTimestamp": "1"}, {"endingEntry": "1"},
    ],
    ids=lambda bounds: next(iter(bounds)),
)  # fmt: skip
def test_latest_rows_have_no_start_and_no_end_of_their_own(
    spark: SparkSession, store: Store, bounds: dict[str, str]
) -> None:
    create(store)
    [name] = bounds
    for read in (lambda: frame(spark, store, **bounds), lambda: scan(spark, store.uri, "keyed", bounds)):
        with pytest.raises(Exception, match=rf"'{name}'.*'keyed'.*primary\.key.*asOfEntry.*rows to all"):
            read()
    assert frame(spark, store, startingOffsets="earliest", endingOffsets="latest").collect() == []


def test_topics_with_and_without_a_key_are_not_one_table(spark: SparkSession, store: Store) -> None:
    create(store)
    create(store, "other")
    store.create_topic("plain", 1, schema=SCHEMA)
    change(store, upserts(1, 2, name="a"))
    change(store, upserts(2, name="b"), 5, topic="other")
    for read in (
        lambda **options: spark.read.format("txnlog").options(**options).load(store.uri),
        lambda subscribe, **options: scan(spark, store.uri, subscribe, **options),
    ):
        with pytest.raises(Exception, match=r"'keyed' has a key.*'plain' has none"):
            read(subscribe="keyed,plain")
        with pytest.raises(Exception, match=r"'plain' has no key"):
            read(subscribe="plain", rows="latest")
        assert pairs(read(subscribe="keyed,other")) == [(1, "a"), (2, "a"), (2, "b")]
        assert read(subscribe="plain", rows="all").collect() == []
    with pytest.raises(Exception, match=r"'rows'.*latest, all"):
        frame(spark, store, rows="newest")


# SQL: tables of the catalog, and views.


def test_tables_of_the_catalog_keep_which_rows_they_have(spark: SparkSession, store: Store) -> None:
    create(store)
    before = change(store, upserts(1, 2, name="a"))
    change(store, upserts(1, name="b"), 2)
    options = f"path '{store.uri}', topic 'keyed'"
    spark.sql(f"CREATE TABLE keyed_now USING txnlog OPTIONS ({options})")
    spark.sql(f"CREATE TABLE keyed_log USING txnlog OPTIONS ({options}, rows 'all')")
    try:
        assert [tuple(row) for row in spark.sql("SELECT id, name FROM keyed_now").collect()] == [(1, "b")]
        assert spark.table("keyed_now").columns == SCHEMA.names
        logged = spark.sql("SELECT id, name, _deleted FROM keyed_log ORDER BY id, _deleted, name").collect()
        assert [tuple(row) for row in logged] == [(1, "a", False), (1, "b", False), (2, "a", False), (2, None, True)]
        change(store, upserts(7, 8, name="c"))
        assert spark.table("keyed_now").count() == 3
        spark.sql("INSERT INTO keyed_log SELECT 7, null, null, null, true")
        assert pairs(spark.table("keyed_now")) == [(1, "b"), (8, "c")]
        past = spark.sql(f"SELECT id, name FROM keyed_now WITH (asOfEntry = {before}) ORDER BY id").collect()
        assert [tuple(row) for row in past] == [(1, "a"), (2, "a")]
    finally:
        spark.sql("DROP TABLE keyed_now")
        spark.sql("DROP TABLE keyed_log")


def test_registered_views_have_latest_rows(spark: SparkSession, store: Store) -> None:
    create(store)
    store.create_topic("plain", 1, schema=SCHEMA)
    change(store, upserts(1, 2, name="a"), 2)
    register_views(spark, store.uri, prefix="latest_")
    assert [tuple(row) for row in spark.sql("SELECT id, name FROM latest_keyed").collect()] == [(1, "a")]
    assert spark.table("latest_keyed").columns == [*SCHEMA.names, "_partition", "_offset", "_timestamp"]
    register_views(spark, store.uri, prefix="logged_", topics=["keyed"], rows="all")
    assert spark.table("logged_keyed").columns == [*SCHEMA.names, "_deleted", "_partition", "_offset", "_timestamp"]
    assert spark.table("logged_keyed").count() == 3


# Streams read all rows, and have to say so.


def test_a_stream_has_to_ask_for_all_rows(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    create(store)
    change(store, upserts(1, name="a"))
    asked = r"'keyed' has a key.*\.option\(\"rows\", \"all\"\)"
    for call in (
        lambda: read_stream(spark, store.uri, "keyed"),
        lambda: scan_stream(spark, store.uri, "keyed", lambda *_: None),
    ):
        with pytest.raises(ConfigurationError, match=asked):
            call()
    for order in ("commit", "offset"):
        stream = spark.readStream.format("txnlog").options(topic="keyed", order=order).load(store.uri)
        query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / order))
        with pytest.raises(Exception, match=asked):
            query.trigger(availableNow=True).start().awaitTermination(60)
    with pytest.raises(ConfigurationError, match="'rows' is latest, and a stream"):
        read_stream(spark, store.uri, "keyed", rows="latest")


@pytest.mark.parametrize(
    ("native", "order"),
    [
        (True, "commit"),
        (False, "offset"),
        pytest.param(True, "offset", marks=pytest.mark.nightly),
        pytest.param(False, "commit", marks=pytest.mark.nightly),
    ],
)
def test_a_stream_of_all_rows(spark: SparkSession, store: Store, tmp_path: Path, order: str, native: bool) -> None:
    """What a compaction has left of them, and what comes after it."""
    create(store, **{"append.inline.bytes": "0", "min.cleanable.dirty.ratio": "0"})
    change(store, upserts(*range(9), name="a"))
    change(store, upserts(*range(4), name="b"), 8)
    compact(store)
    seen: list[tuple[Any, ...]] = []
    options = {"rows": "all", "order": order, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 4}

    def note(rows: DataFrame, _: int) -> None:
        seen.extend(tuple(row) for row in rows.select("id", "name", "_deleted").collect())

    for _ in range(2):
        writer = (
            scan_stream(spark, store.uri, "keyed", note, options)
            if native
            else read_stream(spark, store.uri, "keyed", options).writeStream.foreachBatch(note)
        )
        query = writer.option("checkpointLocation", str(tmp_path / "query")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        whole = read_arrow(store, "keyed", rows="all", columns=["id", "name", "_deleted"]).read_all().to_pylist()
        assert sorted(seen, key=str) == sorted((tuple(row.values()) for row in whole), key=str)
        change(store, upserts(3, name="b"), 4)


def test_a_stream_of_a_table_of_latest_rows_shows_no_delete_as_a_row(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    """The table has no column that says which rows are deletes."""
    create(store)
    change(store, upserts(1, 2, name="a"))
    spark.sql(f"CREATE TABLE keyed_rows USING txnlog OPTIONS (path '{store.uri}', topic 'keyed')")
    try:
        options = {"rows": "all", "startingOffsets": "earliest"}
        stream = spark.readStream.options(**options).table("keyed_rows").writeStream.format("noop")
        query = stream.option("checkpointLocation", str(tmp_path / "query")).trigger(availableNow=True)
        assert query.start().awaitTermination(60)
        change(store, upserts(3, name="a"), 2)
        with pytest.raises(Exception, match=r"columns that this stream does not have: '_deleted'"):
            query.start().awaitTermination(60)
    finally:
        spark.sql("DROP TABLE keyed_rows")


# Random programs: at each entry each reader has what a dict replayed from the log has.


@pytest.mark.parametrize("number", range(examples(1, 40)))
def test_at_each_entry_sparks_readers_have_what_a_dict_has(spark: SparkSession, tmp_path: Path, number: int) -> None:
    random = Random(seed_of(f"latest rows in Spark {number}", number))
    program = Program(tmp_path / "store", random)
    program.run(40)
    known = sorted(entry for entry in program.shown if entry >= program.first_entry)
    for entry in sorted({*random.sample(known, min(3, len(known))), known[-1]}):
        columns, expected = program.shown[entry]
        name = register_views(spark, program.uri, prefix="p_", topics=["keyed"], asOfEntry=entry)[0]
        asked = {"columns": ",".join(columns), "asOfEntry": entry}
        readers: dict[str, Callable[[str], DataFrame]] = {
            "read": lambda sql, asked=asked: frame(spark, program.store, **asked).where(sql),  # type: ignore[misc]
            "scan": lambda sql, asked=asked: scan(spark, program.uri, "keyed", asked).where(sql),  # type: ignore[misc]
            "SQL": lambda sql, columns=columns, name=name: spark.sql(  # type: ignore[misc]
                f"SELECT {', '.join(columns)} FROM {name} WHERE {sql}"
            ),
        }
        size, number_of = columns.index("size"), columns.index("id")
        wanted = {
            "true": expected,
            "size > 40": {key: row for key, row in expected.items() if row[size] is not None and row[size] > 40},
            "id in (2, 3)": {key: row for key, row in expected.items() if row[number_of] in (2, 3)},
        }
        for kind, read in readers.items():
            for sql, rows in wanted.items():
                found = [tuple(row) for row in read(sql).collect()]
                assert sorted(found, key=str) == sorted(rows.values(), key=str), (kind, sql, entry)
        assert scan(spark, program.uri, "keyed", asked).count() == len(expected)
        assert count(program.uri, "keyed", asOfEntry=entry) == len(expected)
    program.close()
