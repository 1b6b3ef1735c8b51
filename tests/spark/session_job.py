"""A driver as a user starts it, which makes several checks in one session and notes how each has ended.

It registers nothing. It talks: it logs at level INFO, explains its plan and prints its errors. Its arguments are the
address of a store on S3, one without a bucket, the options of both, and a folder, where it writes `results.json`.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import pyspark_txnlog
from pyspark_txnlog.options.options import READ, WRITE, ReadOptions, WriteOptions
from sparktxn import Store

uri, wrong_uri, options_json, folder = sys.argv[1:]
options = json.loads(options_json)
logging.basicConfig(level=logging.INFO)
conf = {"spark.ui.enabled": "false", "spark.sql.warehouse.dir": f"{folder}/warehouse"}
spark = pyspark_txnlog.session(conf, app_name="session")
numbers = spark.range(1000).selectExpr("cast(id as string) key", "cast(id as string) value")


def read(topic: str, store: str, **given: Any) -> DataFrame:
    return spark.read.format("txnlog").options(**given).option("subscribe", topic).load(store)


def write(store: str, **given: Any) -> None:
    numbers.write.format("txnlog").mode("append").options(**given).option("topic", "in").save(store)


def stream(from_uri: str, to_uri: str, checkpoint: str, sink: dict[str, Any], **given: Any) -> None:
    rows = spark.readStream.format("txnlog").options(**given).option("subscribe", "in")
    frame = rows.option("startingOffsets", "earliest").load(from_uri).select("key", "value")
    writer = frame.writeStream.format("txnlog").options(**given, **sink).option("topic", "out")
    query = writer.option("checkpointLocation", f"{folder}/{checkpoint}").trigger(availableNow=True).start(to_uri)
    query.awaitTermination()
    print("progress", query.lastProgress)


def copies_on_disk() -> None:
    """Copy a topic; what is written to is created."""
    store = f"{folder}/store"
    write(store, createTopic="true")
    stream(store, store, "disk-checkpoint", {"createTopic": "true"})
    assert (read("in", store).count(), read("out", store).count()) == (1000, 1000)


def copies_on_s3() -> None:
    with Store.open(uri, options=options, create=True) as store:
        store.create_topic("in", 3)
        store.create_topic("out", 2)
        print(store, store.stage_plan(["in"]))
    write(uri, **options)
    read("in", uri, **options).explain("extended")
    stream(uri, uri, "checkpoint", {}, **options)
    assert sorted(int(row.value) for row in read("out", uri, **options).collect()) == list(range(1000))


def shows_options() -> None:
    print(ReadOptions.parse({**options, "path": uri, "subscribe": "in"}, READ))
    print(WriteOptions.parse({**options, "path": uri, "topic": "in"}, WRITE))


def fails_to_write() -> None:
    _fails(lambda: write(wrong_uri, **options), "no-such-bucket")


def fails_to_read() -> None:
    _fails(lambda: read("in", wrong_uri, **options).count(), "no-such-bucket")


def fails_to_stream() -> None:
    _fails(lambda: stream(uri, wrong_uri, "wrong-checkpoint", {}, **options), "no-such-bucket")


def refuses_a_setting() -> None:
    given = {**options, "storage.secrets": options["storage.secret"]}
    _fails(lambda: write(uri, **given), "storage.secrets")


def refuses_a_setting_that_is_no_json() -> None:
    given = {**options, "storage.client_kwargs": f"{{{options['storage.secret']}"}
    _fails(lambda: write(uri, **given), "storage.client_kwargs")


def refuses_a_stopped_session() -> None:
    spark.stop()
    for call in (
        lambda: pyspark_txnlog.register(spark),
        lambda: pyspark_txnlog.scan(spark, uri, "numbers"),
        lambda: pyspark_txnlog.history(spark, uri),
        lambda: pyspark_txnlog.register_views(spark, uri),
    ):
        with pytest.raises(RuntimeError, match="this Spark session is stopped: build another one"):
            call()


def _fails(act: Callable[[], object], cause: str) -> None:
    with pytest.raises(PySparkException, match=cause) as raised:
        act()
    print("failed:", raised.value)


CHECKS = (
    copies_on_disk,
    copies_on_s3,
    shows_options,
    fails_to_write,
    fails_to_read,
    fails_to_stream,
    refuses_a_setting,
    refuses_a_setting_that_is_no_json,
    refuses_a_stopped_session,
)


def outcome(check: Callable[[], None]) -> str:
    """Return "" if the check passes, and else where it has failed."""
    try:
        check()
    except Exception:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    context = spark.sparkContext
    results = {"conf": dict(context.getConf().getAll()), "python": context.pythonExec}
    results["checks"] = {check.__name__: outcome(check) for check in CHECKS}
    (Path(folder) / "results.json").write_text(json.dumps(results))
