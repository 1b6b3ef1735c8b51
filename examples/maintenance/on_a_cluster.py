"""Merges a store's small files over a Spark cluster, while a service writes, and verifies the store.

    python examples/maintenance/on_a_cluster.py /tmp/maintained

It writes 400 small transactions and starts a standalone master with two workers on this machine. Then it submits the
job ``pyspark_txnlog.rewriting`` twice: the first run prints what it would merge, the second merges. On a cluster of
your own these two commands are enough::

    spark-submit --master spark://host:7077 .../pyspark_txnlog/rewriting.py s3://bucket/store --apply
    txnlog verify --store s3://bucket/store
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from pyspark_txnlog import rewriting
from sparktxn import Producer, Store
from sparktxn.maintenance import verify

TRANSACTIONS = 400
TOPIC = "orders"
HOST = "127.0.0.1"
SPARK = Path(pyspark.__file__).parent
PACKAGES = [Path(rewriting.__file__).parents[1], Path(sys.modules["sparktxn"].__file__ or "").parents[1]]


def environment() -> dict[str, str]:
    """What Spark's processes need: this Python, with these packages, and no network but loopback."""
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    paths = os.pathsep.join(dict.fromkeys(map(str, PACKAGES)))
    spark = {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "256m"}
    return {**os.environ, **python, **spark, "PYTHONPATH": paths}


def write(uri: str, count: int, stop: threading.Event | None = None) -> int:
    """Commit `count` transactions of ten records over three partitions, or as many as there is time for."""
    written = 0
    with Producer({"bootstrap.servers": uri, "transactional.id": "shop"}) as producer:
        producer.init_transactions()
        while written < count and not (stop is not None and stop.is_set()):
            with producer.transaction():
                for number in range(10):
                    producer.produce(TOPIC, key=f"{number}", value=f"order {written}-{number}")
            written += 1
            if stop is not None:
                stop.wait(0.05)
    return written


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A master and two workers with one core each; yields the master's address, and ends them."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        port = found.getsockname()[1]
    url = f"spark://{HOST}:{port}"
    log = folder / "cluster.log"
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", HOST, "--port", str(port), "--webui-port", "0"]]
    for number in range(2):
        place = ["--host", HOST, "--cores", "1", "--memory", "1g", "--webui-port", "0", "-d", f"{folder}/work-{number}"]
        commands.append([f"{deploy}.worker.Worker", *place, url])
    processes = []
    try:
        with log.open("wb") as out:
            for command in commands:
                start = [str(SPARK / "bin" / "spark-class"), *command]
                processes.append(subprocess.Popen(start, stdout=out, stderr=out, env=environment()))
        until_s = time.monotonic() + 120
        while log.read_text(errors="replace").count("Registering worker") < 2:
            if time.monotonic() > until_s or any(process.poll() is not None for process in processes):
                raise SystemExit(f"the cluster did not start: see {log}")
            time.sleep(0.2)
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


def submit(master: str, folder: Path, *arguments: str) -> str:
    """Run the job by spark-submit; return what it prints."""
    conf = {"spark.executor.memory": "512m", "spark.driver.memory": "600m", "spark.ui.enabled": "false"}
    conf |= {"spark.driver.host": HOST, "spark.driver.bindAddress": HOST}
    flags = [f"--conf={name}={value}" for name, value in conf.items()]
    command = [str(SPARK / "bin" / "spark-submit"), "--master", master, *flags, rewriting.__file__, *arguments]
    with (folder / "jobs.log").open("ab") as log:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, env=environment(), text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the job failed: see {folder / 'jobs.log'}")
    return done.stdout.strip()


def files(uri: str) -> tuple[int, int]:
    """How many files a reader of the topic fetches now, and how many records they hold."""
    with Store.open(uri) as store:
        found = store.files(store.view([TOPIC]))
    return len(found), sum(file.record_count for file in found)


def main(folder: Path) -> int:
    """Show it in a folder; return 0 if no record is missing and nothing is damaged."""
    folder.mkdir(parents=True, exist_ok=True)
    uri = str(folder / "store")
    with Store.open(uri, create=True) as store:
        if TOPIC not in [topic.name for topic in store.topics()]:
            store.create_topic(TOPIC, 3)
    write(uri, TRANSACTIONS)
    found, before = files(uri)
    print(f"before the job: {found} files with {before:,} records")
    stop = threading.Event()
    counts: list[int] = []
    writer = threading.Thread(target=lambda: counts.append(write(uri, sys.maxsize, stop)))
    with cluster(folder) as master:
        print("a master and two workers run; the job's plan:")
        print("   ", submit(master, folder, uri))
        writer.start()
        try:
            print("the job, while a service writes:")
            print("   ", submit(master, folder, uri, "--apply"))
        finally:
            stop.set()
            writer.join()
    now, records = files(uri)
    print(f"after the job: {now} files with {records:,} records; {counts[0]:,} transactions were written meanwhile")
    with Store.open(uri) as store:
        report = verify(store)
    missing = before + 10 * counts[0] - records
    print(f"verified {report.segments:,} segments: {len(report.problems)} problems, {missing} records are missing")
    return 1 if report.problems or missing else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/maintained")))
