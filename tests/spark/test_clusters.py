"""Clusters: a standalone master with two workers, `local-cluster`, spark-submit, and Spark Connect."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from sparktxn import Store
from tests.spark.clusters import JOB, PATHS, ROOT, Cluster, bare_paths, finished, submit, zip_of_packages
from tests.spark.drivers import committed_batches, numbers

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
}
EVEN, ODD = list(range(0, 400, 2)), list(range(1, 400, 2))


class Work:
    """A store with the job's topics, and the folders that it needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.notes = folder / "notes"
        self.notes.mkdir()
        self.checkpoint = folder / "checkpoint"
        with Store.open(str(self.store), create=True) as store:
            for topic in ("in", "even", "odd"):
                store.create_topic(topic, 2)

    @property
    def arguments(self) -> list[str]:
        return [str(self.store), str(self.checkpoint), str(self.notes)]

    def attempts(self) -> set[int]:
        return {int(note.name.rsplit("-", 1)[1]) for note in self.notes.iterdir()}

    def check(self) -> None:
        """By JSON and Parquet alone: every row once."""
        assert numbers(self.store, "in") == list(range(400))
        assert numbers(self.store, "even") == EVEN
        assert numbers(self.store, "odd") == ODD
        assert list(committed_batches(self.store).values()) == [0]


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.mark.parametrize("reuse", ["true", "false"])
def test_two_workers_with_speculation_write_each_row_once(cluster: Cluster, work: Work, reuse: str) -> None:
    conf = {**SPECULATION, "spark.python.worker.reuse": reuse}
    flags = ["--properties-file", str(ROOT / "conf" / "cluster" / "spark-defaults.conf")]
    done = submit(cluster.url, work.arguments, conf=conf, flags=flags, environment={"SLOW_TASKS": "1"})
    assert done.counts() == {"even": 200, "odd": 200}
    assert 1 in work.attempts(), "no task was speculated: the test shows nothing"
    work.check()


def test_a_local_cluster_with_speculation_writes_each_row_once(work: Work) -> None:
    done = submit("local-cluster[2,1,1024]", work.arguments, conf=SPECULATION, environment={"SLOW_TASKS": "1"})
    assert done.counts() == {"even": 200, "odd": 200}
    work.check()


def test_py_files_with_register_need_nothing_installed(tmp_path: Path, work: Work) -> None:
    paths = bare_paths(tmp_path / "packages")
    python = getattr(sys, "_base_executable", sys.executable)
    with Cluster(_made(tmp_path / "cluster"), python, paths) as cluster:
        packages = zip_of_packages(tmp_path)
        flags = ["--py-files", packages]
        conf = {"spark.executorEnv.PYTHONPATH": paths}
        given: dict[str, Any] = {"python": python, "python_path": paths, "conf": conf, "flags": flags}
        # Spark gives what it ships to tasks, not to the driver's own processes for streams.
        driver_path = f"{paths}{os.pathsep}{packages}"
        done = submit(cluster.url, work.arguments, environment={"REGISTER": "1", "PYTHONPATH": driver_path}, **given)
        assert done.counts() == {"even": 200, "odd": 200}
        assert "packages.zip" in done.stdout
        work.check()


def test_dependencies_as_an_archive_of_venv_pack(cluster: Cluster, tmp_path: Path, work: Work) -> None:
    environment, archive = tmp_path / "environment", tmp_path / "environment.tar.gz"
    python = environment / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", str(environment)],
        [str(python), "-m", "pip", "install", "--quiet", "setuptools", "venv-pack", str(ROOT)],
    ):
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            pytest.skip(f"packages cannot be had here: {made.stderr[-500:]}")
    pack = [str(environment / "bin" / "venv-pack"), "--quiet", "-p", str(environment), "-o", str(archive)]
    subprocess.run(pack, check=True)
    # The driver has the environment itself; executors have the archive alone, in their working folders.
    done = submit(
        cluster.url,
        work.arguments,
        flags=["--archives", f"{archive}#environment"],
        environment={"PYSPARK_PYTHON": "./environment/bin/python", "PYSPARK_DRIVER_PYTHON": str(python)},
        conf={"spark.executorEnv.PYTHONPATH": ""},
        python_path="",
    )
    assert done.counts() == {"even": 200, "odd": 200}
    work.check()


@pytest.mark.parametrize("register", ["", "1"], ids=["discovered", "registered"])
def test_spark_connect_runs_batches_and_streams(work: Work, register: str) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": PATHS,
        "PYSPARK_PYTHON": sys.executable,
        "CONNECT_TO": "local[2]",
        "REGISTER": register,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = finished([sys.executable, str(JOB), *work.arguments], environment, 400)
    assert done.counts() == {"even": 200, "odd": 200}
    work.check()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_the_example_of_maintenance_merges_while_a_service_writes(tmp_path: Path) -> None:
    """Twice in one folder, as a user may paste it.

    The service folds small segments too. How many ranges that leaves to the job depends on how fast both are.
    """
    for _ in range(2):
        command = [sys.executable, str(ROOT / "examples" / "maintenance" / "on_a_cluster.py"), str(tmp_path)]
        done = finished(command, {**os.environ, "PYTHONPATH": PATHS}, 600)
        assert done.code == 0, done.stdout + done.stderr
        planned, applied = map(json.loads, re.findall(r"^ +({.*})$", done.stdout, re.MULTILINE))
        assert (planned["dry_run"], planned["ranges"], applied["dry_run"]) == (True, 3, False)
        before, after = map(int, re.findall(r"(?:before|after) the job: (\d+) files", done.stdout))
        assert after < before // 2
        assert done.stdout.endswith(" 0 problems, 0 records are missing\n")
