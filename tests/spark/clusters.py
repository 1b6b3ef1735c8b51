"""Clusters of Spark on loopback: a standalone master with two workers, and jobs that are submitted to them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

__all__ = ["JOB", "PATHS", "ROOT", "Cluster", "JobResult", "bare_paths", "finished", "submit", "zip_of_packages"]

ROOT = Path(__file__).parents[2]
PATHS = f"{ROOT}{os.pathsep}{ROOT / 'scala-free-python-datasource'}"
SPARK_HOME = str(Path(pyspark.__file__).parent)
JOB = ROOT / "tests" / "spark" / "cluster_job.py"

# Speculation starts no second attempt on a host that runs the first: each worker has a loopback address of its own.
HOSTS = ("127.0.0.1", "127.0.0.2")

QUIET = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "600m",
}


class Cluster:
    """A master and two workers with one core each, as processes of their own; `python_path` is what executors get."""

    def __init__(self, folder: Path, python: str = sys.executable, python_path: str = PATHS) -> None:
        self._folder = folder
        self._environment = _environment(python, python_path)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port = _free_port()

    @property
    def url(self) -> str:
        """What a job gives as its master."""
        return f"spark://{HOSTS[0]}:{self._port}"

    def __enter__(self) -> Self:
        master = ["org.apache.spark.deploy.master.Master", "--host", HOSTS[0], "--port", str(self._port)]
        self._start("master", [*master, "--webui-port", "0"])
        for number, host in enumerate(HOSTS):
            worker = ["org.apache.spark.deploy.worker.Worker", "--host", host, "--cores", "1", "--memory", "1g"]
            work = str(self._folder / f"work-{number}")
            self._start(f"worker-{number}", [*worker, "--webui-port", "0", "-d", work, self.url])
        deadline_s = time.monotonic() + 180
        log = self._folder / "master.log"
        while log.read_text(errors="replace").count("Registering worker") < len(HOSTS):
            if time.monotonic() > deadline_s or any(process.poll() is not None for process in self._processes):
                text = "\n".join(path.read_text(errors="replace")[-2000:] for path in self._folder.glob("*.log"))
                self.stop()
                raise RuntimeError(f"the cluster is not ready:\n{text}")
            time.sleep(0.2)
        return self

    def _start(self, name: str, arguments: Sequence[str]) -> None:
        command = [os.path.join(SPARK_HOME, "bin", "spark-class"), *arguments]
        with (self._folder / f"{name}.log").open("wb") as log:
            environment = {**self._environment, "SPARK_DAEMON_MEMORY": "256m"}
            self._processes.append(
                subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
            )

    def stop(self) -> None:
        """End the processes: workers first, and what they started with them."""
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class JobResult:
    """How a submitted job ended, and what it printed."""

    def __init__(self, code: int, stdout: str, stderr: str) -> None:
        self.code = code
        self.stdout = stdout
        self.stderr = stderr

    def counts(self) -> dict[str, int]:
        """The rows of both topics, as the job has read them in the end."""
        assert self.code == 0, self.stdout + self.stderr[-6000:]
        lines = (line.split() for line in self.stdout.splitlines())
        return {words[0]: int(words[1]) for words in lines if words and words[0] in ("even", "odd")}


def submit(
    master: str,
    arguments: Sequence[str],
    *,
    conf: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
    python_path: str = PATHS,
    job: Path = JOB,
    timeout_s: float = 400,
) -> JobResult:
    """Run a job with `spark-submit` to its end."""
    settings = [f"--conf={name}={value}" for name, value in {**QUIET, **(conf or {})}.items()]
    command = [os.path.join(SPARK_HOME, "bin", "spark-submit"), "--master", master, *settings, *flags, str(job)]
    given = {**_environment(python, python_path), **(environment or {})}
    return finished([*command, *arguments], given, timeout_s)


def finished(command: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> JobResult:
    """Run a command to its end; one that takes longer is killed, with all that it has started."""
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        stdout, stderr = process.communicate()
        stderr += f"\nkilled after {timeout_s} s"
    return JobResult(process.returncode, stdout, stderr)


def zip_of_packages(folder: Path) -> str:
    """Make what `--py-files` ships: both packages as they are in the source tree."""
    import zipfile

    target = folder / "packages.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for root in (ROOT, ROOT / "scala-free-python-datasource"):
            for package in ("sparktxn", "pyspark_txnlog"):
                for path in sorted((root / package).rglob("*.py")):
                    archive.write(path, path.relative_to(root))
    return str(target)


def bare_paths(folder: Path) -> str:
    """Make a folder with links to all packages that this Python has, but for sparktxn: for PYTHONPATH."""
    import msgspec

    installed = Path(msgspec.__file__).parents[1]
    folder.mkdir(parents=True)
    for path in installed.iterdir():
        if "sparktxn" not in path.name and path.suffix != ".pth":
            (folder / path.name).symlink_to(path)
    return str(folder)


def _environment(python: str, python_path: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    return {
        **kept,
        "SPARK_HOME": SPARK_HOME,
        "PYTHONPATH": python_path,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((HOSTS[0], 0))
        return int(found.getsockname()[1])
