"""A checkpoint folder that was restored from an older copy: the query ends, and no row is left out in silence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from pyspark_txnlog import read_stream, write_stream
from sparktxn import Store
from tests.spark.readers import commit
from tests.spark.sessions import values

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("way", ["sink", pytest.param("write_stream", marks=pytest.mark.nightly), "update"])
def test_a_restored_checkpoint_ends_the_query(spark: SparkSession, store: Store, tmp_path: Path, way: str) -> None:
    store.create_topic("in")
    store.create_topic("out")
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "copy"

    def run(folder: Path, starting: dict[str, str], **options: str) -> None:
        rows = read_stream(spark, store.uri, "in", starting).select("value")
        if way == "sink":
            query = rows.writeStream.format("txnlog").options(path=store.uri, topic="out", **options)
        elif way == "write_stream":
            query = write_stream(rows, store.uri, "out", options)
        else:
            counted = rows.groupBy("value").count().select("value")
            query = write_stream(counted, store.uri, "out", options).outputMode("update")
        query.option("checkpointLocation", str(folder)).trigger(availableNow=True).start().awaitTermination(60)

    earliest = {"startingOffsets": "earliest"}
    commit(store, range(3), "in")
    run(checkpoint, earliest)
    shutil.copytree(checkpoint, copy)
    commit(store, range(3, 5), "in")
    run(checkpoint, earliest)
    entry = store.view().entry
    shutil.rmtree(checkpoint)
    shutil.copytree(copy, checkpoint)
    commit(store, range(5, 10), "in")
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=r"2 rows in entry \d+, and has 7 rows now.*new checkpoint"):
            run(checkpoint, earliest)
    assert stored(spark, store) == list(range(5))
    run(tmp_path / "new", {"startingEntry": str(entry)})
    assert stored(spark, store) == list(range(10)), "the error says how the rows are written"
    with pytest.warns(UserWarning, match="are missing from the log") if way != "sink" else _nothing():
        run(checkpoint, earliest, onReplayMismatch="skip")
    assert stored(spark, store) == list(range(10))


class _nothing:
    """The sink warns in a process of Spark's."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def stored(spark: SparkSession, store: Store) -> list[int]:
    frame: DataFrame = spark.read.format("txnlog").option("subscribe", "out").load(store.uri)
    return values(frame)
