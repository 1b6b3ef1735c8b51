"""Jobs of maintenance on executors: `run_on`, each verb of `txnlog` with it, and `spark-submit`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

pytest.importorskip("pyspark")

from pyspark_txnlog import maintenance, run_on
from sparktxn import ConfigurationError, KafkaException, Producer, Store, StoreUnavailable, ViewExpired
from sparktxn._engine.format import names
from sparktxn._programs.cli.app import run as run_command
from sparktxn.maintenance import compact, maintain, rewrite, verify
from tests.spark.clusters import Cluster, JobResult, submit
from tests.spark.readers import batch_reader, commit, numbers_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparktxn.maintenance.taskrunning import RunTasks

pytestmark = pytest.mark.spark

ORDERS = list(range(24))
PRICES = list(range(20, 30))
ALL_PRICES = list(range(30))


@pytest.fixture(autouse=True)
def topics(store: Store) -> None:
    """Transactions of two records over two partitions, and a topic that has ten keys."""
    store.create_topic("t", 2)
    for number in range(0, 24, 2):
        commit(store, range(number, number + 2))
    store.create_topic("prices", 2, settings={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    with Producer({"bootstrap.servers": store.uri, "linger.ms": 0}) as producer:
        for number in range(30):
            producer.produce("prices", str(number), str(number % 10), partition=number % 2)
            producer.flush()


def rows_of(store: Store) -> tuple[list[int], list[int]]:
    return sorted(numbers_of(batch_reader(store))), sorted(numbers_of(batch_reader(store, subscribe="prices")))


class Connected:
    """The session as a client of Spark Connect has it: without a context."""

    def __init__(self, spark: SparkSession) -> None:
        self.createDataFrame = spark.createDataFrame


@pytest.fixture(params=["with a context", "as with Connect"])
def executors(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[RunTasks[Any, Any]]:
    if request.param == "with a context":
        yield run_on(spark)
        return
    with patch("pyspark_txnlog.maintenance.check_session"):
        yield run_on(Connected(spark))  # type: ignore[arg-type]


def test_each_task_is_a_task_of_spark_and_results_keep_the_order(executors: RunTasks[Any, Any]) -> None:
    def work(task: str) -> tuple[int, int, str]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return os.getpid(), context.partitionId(), task

    found: Any = executors(work, ["a", "b", "c", "d", "e"])
    assert [task for _, _, task in found] == ["a", "b", "c", "d", "e"]
    assert len({partition for _, partition, _ in found}) == 5, "one of Spark's tasks does several of a job"
    assert os.getpid() not in {pid for pid, _, _ in found}
    assert executors(work, []) == []


def test_only_a_session_has_executors() -> None:
    with pytest.raises(TypeError, match="expected a SparkSession"):
        run_on("local[2]")  # type: ignore[arg-type]


def test_errors_that_a_job_handles_keep_their_types(executors: RunTasks[Any, Any]) -> None:
    def expired(task: int) -> None:
        raise ViewExpired(f"the view of task {task} has expired")

    def silent(task: int) -> None:
        raise StoreUnavailable("the store does not answer")

    with pytest.raises(ViewExpired, match="the view of task 7 has expired"):
        executors(expired, [7])
    # Spark repeats it as often as its setting says, and reports it then.
    with pytest.raises(Exception, match="the store does not answer") as raised:
        executors(silent, [1])
    assert not isinstance(raised.value, StoreUnavailable)


def test_every_job_that_moves_data_runs_on_executors(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    given: list[str] = []
    executors = run_on(spark)

    def run(work: Any, tasks: Any) -> Any:
        given.append(work.func.__module__ if hasattr(work, "func") else work.__module__)
        return executors(work, tasks)

    assert maintain(store, run=run).failed == ()
    assert given == ["sparktxn.maintenance.rewriting.compactfiles", "sparktxn.maintenance.rewriting.rewritefiles"]
    for words in (
        ["verify", "--json"],
        ["copy", str(tmp_path / "copy"), "--apply", "--json"],
    ):
        assert run_command([*words, "-b", store.uri], run) == 0
    tasks_of = ["sparktxn.maintenance.checking.verify", "sparktxn.maintenance.copying.storecopy"]
    assert given[2:][:1] + given[-1:] == tasks_of
    assert rows_of(store) == (ORDERS, PRICES)
    with Store.open(str(tmp_path / "copy")) as copied:
        assert rows_of(copied) == (ORDERS, PRICES)
        assert verify(copied, run=executors).problems == ()


def test_verbs_print_what_they_would_do_and_do_it(
    spark: SparkSession, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_on(spark)
    for verb, members in (("compact", ("partitions", "removed_records")), ("rewrite", ("ranges", "new_files"))):
        words = [verb, "--json", "-b", store.uri]
        assert run_command(words, run) == 0
        planned = json.loads(capsys.readouterr().out)
        assert (planned["dry_run"], planned[members[0]]) == (True, 2)
        assert run_command([*words, "--apply"], run) == 0
        done = json.loads(capsys.readouterr().out)
        assert (done["dry_run"], done[members[0]], done["lost"]) == (False, 2, [])
        assert done[members[1]] > 0
    assert rows_of(store) == (ORDERS, PRICES)


def test_missing_results_are_refused(store: Store) -> None:
    for job in (rewrite, compact, verify):
        with pytest.raises(ConfigurationError, match="what run returns are 0 results: expected"):
            job(store, run=lambda work, tasks: [])


def reported(spark: SparkSession, store: Store, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """Run a verb as the job does with its session; return what it prints."""
    assert run_command([*words, "--apply", "--json", "-b", store.uri], run_on(spark)) == 0
    return json.loads(capsys.readouterr().out)


def make_old_records(store: Store) -> None:
    store.create_topic("short", 1, settings={"retention.bytes": "1"})
    for number in range(3):
        commit(store, range(number, number + 1), "short")


def check_retention(store: Store, report: Any) -> None:
    (shortened,) = report["shortened"]
    assert (shortened["topic"], shortened["reason"]) == ("short", "retention.bytes")
    assert shortened["log_start_offset"] < shortened["new_log_start_offset"]
    store.log.refresh()
    assert store.view(["short"]).partitions["short", 0].log_start_offset == shortened["new_log_start_offset"]


@pytest.fixture
def stuck(store: Store) -> Iterator[Producer]:
    """A producer whose transaction began an hour ago by the store's clock, and has published."""
    settings = {"bootstrap.servers": store.uri, "transactional.id": "stuck", "transaction.publish": "flush"}
    with Producer(settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("t", b"never", partition=0)
        producer.flush()
        store.log.refresh()
        (opened,) = (found for found in store.log.transactions() if found.transactional_id == "stuck")
        an_hour_ago_s = time.time() - 3600
        os.utime(Path(store.uri) / names.entry(opened.start_entry), (an_hour_ago_s, an_hour_ago_s))
        yield producer


def check_sweep(producer: Producer, report: Any) -> None:
    (ended,) = report["timed_out"]
    assert ended["transactional_id"] == "stuck"
    with pytest.raises(KafkaException):
        producer.commit_transaction()


AT_ONCE = [
    word for name in ("retention.ms", "segment.age.ms", "temporary.age.ms") for word in ("--set", f"vacuum.{name}=0")
]


def make_garbage(store: Store) -> None:
    for number in range(24, 30, 2):
        commit(store, range(number, number + 2))
        assert store.log.checkpoint() is not None


def check_vacuum(store: Store, report: Any) -> None:
    assert (report["overtaken"], report["dry_run"]) == (False, False)
    assert report["horizon"] > 1
    assert store.log.objects.get(names.entry(1)) is None


def test_retention_with_a_session_removes_old_records(
    spark: SparkSession, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    make_old_records(store)
    check_retention(store, reported(spark, store, capsys, "retention", "short"))
    assert rows_of(store) == (ORDERS, ALL_PRICES)


def test_a_sweep_with_a_session_aborts_what_has_timed_out(
    spark: SparkSession, store: Store, stuck: Producer, capsys: pytest.CaptureFixture[str]
) -> None:
    check_sweep(stuck, reported(spark, store, capsys, "sweep"))
    assert rows_of(store) == (ORDERS, ALL_PRICES)


def test_a_vacuum_with_a_session_deletes_what_is_not_needed(
    spark: SparkSession, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    make_garbage(store)
    check_vacuum(store, reported(spark, store, capsys, "vacuum", *AT_ONCE))
    assert rows_of(store) == (list(range(30)), ALL_PRICES)


def submitted(master: str, store: Store, *words: str, **given: Any) -> JobResult:
    """Run a verb by `spark-submit`, with the store from the environment as in a crontab."""
    job = Path(maintenance.__file__)
    return submit(master, words, job=job, environment={"TXNLOG_STORE": store.uri}, **given)


@pytest.mark.nightly
def test_spark_submit_runs_every_job(store: Store, stuck: Producer) -> None:
    """In one run: each start of Spark takes longer than all the jobs."""
    make_old_records(store)
    make_garbage(store)
    done = submitted("local[2]", store, "maintain", "--apply", "--json", *AT_ONCE)
    assert done.code == 0, done.stdout + done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report["failed"] == []
    check_sweep(stuck, report["sweep"])
    check_retention(store, report["retention"])
    assert (report["compact"]["partitions"], report["rewrite"]["ranges"]) == (2, 2)
    check_vacuum(store, report["vacuum"])
    assert rows_of(store) == (list(range(30)), PRICES)


def test_wrong_usage_ends_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    """The session that the job would use is the one of these tests, which must live on."""
    with (
        patch("pyspark.sql.SparkSession.builder") as builder,
        patch("pyspark_txnlog.maintenance.check_session"),
        patch("sys.argv", ["maintenance.py", "rewrite", "--aply"]),
    ):
        assert maintenance.main() == 2
        builder.appName.assert_called_with("txnlog rewrite")
        builder.appName.return_value.getOrCreate.return_value.stop.assert_called_once()
    assert "--aply" in capsys.readouterr().err


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with Cluster(folder) as started:
        yield started


@pytest.mark.nightly
def test_every_job_on_a_master_with_two_workers(cluster: Cluster, store: Store, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    for words in (
        ("compact", "--apply", "--json"),
        ("rewrite", "t", "--apply", "--json"),
        ("maintain", "--apply", "--json"),
        ("verify", "--json"),
        ("copy", copy, "--apply", "--json"),
    ):
        done = submitted(cluster.url, store, *words)
        assert done.code == 0, done.stdout + done.stderr[-3000:]
        report = json.loads(done.stdout)
        if words[0] in ("compact", "rewrite"):
            assert report["new_files"] == 2
        if words[0] == "verify":
            assert report["problems"] == []
    assert rows_of(store) == (ORDERS, PRICES)
    with Store.open(copy) as copied:
        assert rows_of(copied) == (ORDERS, PRICES)
