"""Spark's Kafka connector with a local broker, and Delta Lake: the same rows, in an environment of their own.

Neither is there yet for the newest Spark, so they run on an earlier one. Where packages or jars cannot be had, their
figures are left out with a message.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any, Final

from bench.broker import broker
from bench.figures import Figure, median
from bench.spark_cases import PARTITIONS

__all__ = ["DELTA", "PEERS_JARS", "PEERS_ROOT", "compare", "peers_python", "run_peers"]

_SPARK: Final = "4.2.0"
_DELTA: Final = "4.4.0"
DELTA: Final = f"io.delta:delta-spark_2.13:{_DELTA}"
"""Delta Lake's package, as Spark's settings name it."""

_PACKAGES: Final = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{_SPARK},{DELTA}"
PEERS_ROOT: Final = Path(__file__).parents[1]
_ENVIRONMENT: Final = PEERS_ROOT / ".venv-peers"
PEERS_JARS: Final = _ENVIRONMENT / "jars"

_COMPARED: Final = (
    ("all columns, scan()", "kafka all columns", 0.15),
    ("all columns, format", "kafka all columns", 0.35),
    ("format", "kafka write", 0.5),
    ("write()", "kafka write", 0.5),
    ("format", "delta write", 1.0),
    ("write()", "delta write", 1.0),
    ("noop, scan()", "delta noop", 1.0),
    ("sum, scan()", "delta sum", 1.0),
    ("count, scan()", "delta count", 1.0),
)
"""(ours, the peer's, how many times the peer's time ours may take)."""


def peers_python() -> str:
    """Return the Python of the peers' environment, which is made once.

    Raises:
        OSError: the packages cannot be had.
    """
    python = _ENVIRONMENT / "bin" / "python"
    if not python.exists():
        venv.create(_ENVIRONMENT, with_pip=True)
    wanted = [f"pyspark=={_SPARK}", f"delta-spark=={_DELTA}", "pyarrow", "pandas"]
    installed = subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], capture_output=True, text=True)
    if installed.returncode:
        raise OSError(f"the peers' packages cannot be installed: {installed.stderr[-1_000:]}")
    return str(python)


def run_peers(folder: str, rows: int, rounds: int, batches: int) -> dict[str, Any] | None:
    """Return what the peers' driver has measured; None, with a message, if they cannot be had.

    With no `rows` it measures micro-batches alone, and none with no `batches`.
    """
    try:
        python = peers_python()
        with broker(Path(folder, "broker"), python, PEERS_JARS, PARTITIONS) as address:
            return _measured(python, folder, address, rows, rounds, batches)
    except OSError as error:
        print(f"no figures against Kafka and Delta Lake: {error}", file=sys.stderr)
        return None


def _measured(python: str, folder: str, address: str, rows: int, rounds: int, batches: int) -> dict[str, Any]:
    work = Path(folder, "peers")
    work.mkdir()
    command = [python, "-m", "bench.peers_driver", str(work), str(PEERS_JARS), _PACKAGES, address]
    driver = subprocess.run(
        [*command, str(rows), str(rounds), str(batches)], cwd=PEERS_ROOT, capture_output=True, text=True
    )
    if driver.returncode:
        raise OSError(f"the peers' driver has failed: {driver.stderr[-2_000:]}")
    found: dict[str, Any] = json.loads(driver.stdout.splitlines()[-1])
    return found


def compare(ours: dict[str, Any], peers: dict[str, Any], rows: int) -> list[Figure]:
    """The figures of both, from what their drivers have measured."""
    figures = []
    for name, peer, target in _COMPARED:
        mine, theirs = (median(found["wall"]) for found in (ours[name], peers[peer]))
        cpu = median(ours[name]["cpu"]) / median(peers[peer]["cpu"])
        note = f"of {mine:.2f} s and {theirs:.2f} s; CPU {cpu:.2f}, without the broker's"
        figures.append(Figure(f"Spark, {rows:,} rows: {name} / {peer}", mine / theirs, "times", target, True, note))
    return figures
