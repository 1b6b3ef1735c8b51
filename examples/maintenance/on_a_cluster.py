"""Merges a store's small files over a Spark cluster, while a service writes, verifies the store, and copies it.

    python examples/maintenance/on_a_cluster.py /tmp/maintained

It writes 400 small transactions and starts a standalone master with two workers on this machine. Then it submits
``pyspark_txnlog/maintenance.py``, which takes the arguments of the command `txnlog`. The first run prints what a
rewrite would merge, and the second merges. The others verify and copy the store. On a cluster of your own these
commands are enough::

    export TXNLOG_STORE=s3://bucket/store
    spark-submit --master spark://host:7077 .../pyspark_txnlog/maintenance.py rewrite --apply
    spark-submit --master spark://host:7077 .../pyspark_txnlog/maintenance.py verify
    spark-submit --master spark://host:7077 .../pyspark_txnlog/maintenance.py copy s3://backup/store --apply
"""

from __future__ import annotations

import json
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

from pyspark_txnlog import maintenance
from sparktxn import Producer, Store

TRANSACTIONS = 400
TOPIC = "orders"
HOST = "127.0.0.1"
SPARK = Path(pyspark.__file__).parent
PACKAGES = [Path(maintenance.__file__).parents[1], Path(sys.modules["sparktxn"].__file__ or "").parents[1]]


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
    """Run a verb of `txnlog` by spark-submit; return what it prints, as JSON."""
    conf = {"spark.executor.memory": "512m", "spark.driver.memory": "600m", "spark.ui.enabled": "false"}
    conf |= {"spark.driver.host": HOST, "spark.driver.bindAddress": HOST}
    flags = [f"--conf={name}={value}" for name, value in conf.items()]
    command = [
        str(SPARK / "bin" / "spark-submit"),
        "--master",
        master,
        *flags,
        maintenance.__file__,
        *arguments,
        "--json",
    ]
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
        print("   ", submit(master, folder, "rewrite", "-b", uri))
        writer.start()
        try:
            print("the job, while a service writes:")
            print("   ", submit(master, folder, "rewrite", "-b", uri, "--apply"))
        finally:
            stop.set()
            writer.join()
        report = json.loads(submit(master, folder, "verify", "-b", uri))
        copied = json.loads(submit(master, folder, "copy", "-b", uri, str(folder / "copy"), "--apply"))
    now, records = files(uri)
    print(f"after the job: {now} files with {records:,} records; {counts[0]:,} transactions were written meanwhile")
    missing = before + 10 * counts[0] - records
    problems = len(report["problems"])
    in_copy = files(copied["target"])[1]
    print(f"copied {copied['objects'] + copied['existing']:,} objects; they have {in_copy:,} records")
    print(f"verified {report['segments']:,} segments: {problems} problems, {missing} records are missing")
    return 1 if problems or missing or in_copy != records else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/maintained")))
