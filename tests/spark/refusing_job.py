"""A driver that writes to a store on a small disk, which is read-only, then full, then neither, and notes its errors.

Its arguments are a folder that a file system may be mounted at, and one for checkpoints, rows and results. It needs the
right to mount, and a namespace of its own for that.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark_txnlog
from sparktxn import Store

mounted, folder = map(Path, sys.argv[1:])


def run(*words: object) -> None:
    subprocess.run([*map(str, words)], check=True, capture_output=True)


run("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", mounted)
address = str(mounted / "store")
with Store.open(address, create=True) as store:
    store.create_topic("t", 1)
conf = {"spark.ui.enabled": "false", "spark.sql.warehouse.dir": str(folder / "warehouse")}
spark = pyspark_txnlog.session(conf, app_name="refusing")
spark.sparkContext.setLogLevel("OFF")
rows = spark.range(2000).selectExpr("sha2(cast(id as string), 512) value")
rows.write.parquet(str(folder / "rows"))


def batch() -> None:
    rows.write.format("txnlog").mode("append").option("topic", "t").save(address)


def stream() -> None:
    checkpoint = str(folder / f"checkpoint-{time.monotonic_ns()}")
    source = spark.readStream.schema(rows.schema).parquet(str(folder / "rows"))
    writer = source.writeStream.format("txnlog").option("topic", "t").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(address).awaitTermination()


def error_of(work: Callable[[], None]) -> str:
    try:
        work()
    except Exception as error:
        return str(error)
    return ""


found: dict[str, dict[str, Any]] = {}
run("mount", "-o", "remount,ro", mounted)
found["read-only"] = {work.__name__: error_of(work) for work in (batch, stream)}
run("mount", "-o", "remount,rw", mounted)
filler = mounted / "filler"
subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=1k"], check=False, capture_output=True)
found["full"] = {work.__name__: error_of(work) for work in (batch, stream)}
filler.unlink()
found["healthy"] = {work.__name__: error_of(work) for work in (batch, stream)}
with Store.open(address) as store:
    found["records"] = {"count": sum(one.record_count for one in store.files("t"))}
(folder / "results.json").write_text(json.dumps(found))
