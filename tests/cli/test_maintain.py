"""`txnlog maintain` and `verify`: what they find, what they do, and how they end."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sparktxn import Producer
from sparktxn.errors import StoreUnavailable
from sparktxn.maintenance import maintain
from sparktxn.store import Store
from tests.cli.shop import store
from tests.cli.terminal import ok, txnlog

CONF = Path(__file__).parent.parent.parent / "conf" / "maintenance"


@pytest.fixture(autouse=True)
def orders() -> None:
    """Twelve small transactions, of which the first three are a day old and no longer kept."""
    ok("topics", "create", "orders", "--set", "retention.ms=3600000", "--set", "append.inline.bytes=0")
    now_ms = int(time.time() * 1000)
    with Producer({"bootstrap.servers": store(), "linger.ms": 0}) as producer:
        for number in range(12):
            producer.produce("orders", str(number), timestamp=now_ms - (86_400_000 if number < 3 else 0))
            producer.flush()


def read() -> list[str]:
    return ok("consume", "-t", "orders", "-e").lines


def test_without_apply_it_prints_what_each_job_would_do() -> None:
    before = read()
    (planned,) = ok("maintain", "--json").json
    assert planned["dry_run"]
    assert [found["new_log_start_offset"] for found in planned["retention"]["shortened"]] == [3]
    assert planned["rewrite"]["segment_files"] == 12
    done = ok("maintain")
    assert done.err == "nothing was changed: add --apply to do it\n"
    assert "retention  shortened" in done.text
    assert read() == before
    assert ok("log", "--json", "-n", "1").json == ok("log", "--json", "-n", "1").json


def test_with_apply_it_does_it_and_the_next_call_finds_nothing() -> None:
    (done,) = ok("maintain", "--apply", "--json").json
    assert done["failed"] == []
    assert (done["rewrite"]["segment_files"], done["rewrite"]["new_files"]) == (9, 1)
    assert read() == [str(number) for number in range(3, 12)]
    assert (
        ok("maintain", "--apply").err
        == "sweep, retention, compact, rewrite, tables and vacuum have found nothing to do\n"
    )
    assert ok("verify").code == 0


def test_a_job_that_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("the store did not answer")

    # The package's name `maintain` is the function.
    monkeypatch.setattr(sys.modules["sparktxn.maintenance.maintain"], "apply_retention", failing)
    done = txnlog("maintain", "--apply")
    assert done.code == 1
    assert done.err == "retention has failed: the store did not answer\n"
    with Store.open(store()) as opened:
        report = maintain(opened, dry_run=True)
    assert [(failed.job, failed.error) for failed in report.failed] == [("retention", "the store did not answer")]
    assert report.retention is None
    assert report.vacuum is not None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("--set", "vacuum.retention=1"), "vacuum.retention.ms"),
        (("--set", "rewrite.target.bytes=few"), "rewrite.target.bytes"),
        (("--apply", "--every", "soon"), "--every is 'soon': expected a whole number with its unit, such as 500ms"),
        (("--every", "1h"), "--every without --apply"),
    ],
)
def test_a_wrong_option_runs_no_job(wrong: tuple[str, ...], message: str) -> None:
    done = txnlog("maintain", *wrong)
    assert (done.code, done.text) == (2, "")
    assert message in done.err
    assert len(read()) == 12


def test_with_every_it_goes_on_until_it_is_ended() -> None:
    command = [sys.executable, "-m", "sparktxn", "maintain", "--apply", "--every", "100ms", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        rounds = [process.stdout.readline() for _ in range(3)]
        process.terminate()
    assert all('"failed":[]' in line for line in rounds)
    assert ok("verify").code == 0


def test_with_every_each_round_is_printed_before_the_pause() -> None:
    """A program that reads along has it at once, and a kill takes nothing of it away."""
    command = [sys.executable, "-m", "sparktxn", "maintain", "--apply", "--every", "1h", "--json"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=buffered) as process:
        assert process.stdout is not None
        killing = threading.Timer(60, process.kill)
        killing.start()
        line = process.stdout.readline()
        killing.cancel()
        process.kill()
    assert '"failed":[]' in line


def test_verify_names_what_is_damaged_and_ends_with_1(folder: Path) -> None:
    segment = next((folder / "store" / "topics").rglob("*.parquet"))
    data = segment.read_bytes()
    segment.write_bytes(bytes([*data[:9], data[9] ^ 1, *data[10:]]))
    done = txnlog("verify", "--json")
    assert done.code == 1
    (problem,) = done.json[0]["problems"]
    assert problem["object"].endswith(segment.name)
    assert problem["fix"] == "restore the object from a copy of the store"
    assert segment.name in txnlog("verify").text
    assert txnlog("verify", "--no-records").code == 0
    segment.write_bytes(data[:-1])
    assert "bytes, expected" in txnlog("verify", "--no-records").text


# --- conf/maintenance


def run(command: str, folder: Path) -> None:
    """Run a command as it stands in an example, on this test's store."""
    words = shlex.split(command.replace("s3://bucket/shop", store()).replace("/opt/sparktxn/bin/txnlog", "txnlog"))
    assert words.pop(0) == "txnlog"
    environment = {**os.environ, "TXNLOG_STORE": store()}
    done = subprocess.run(
        [sys.executable, "-m", "sparktxn", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_the_crontab_runs(folder: Path) -> None:
    lines = [line for line in (CONF / "crontab").read_text().splitlines() if line and line[0] not in "#T"]
    assert lines
    for line in lines:
        fields = re.fullmatch(r"(?:\S+\s+){5}(.*)", line)
        assert fields is not None, line
        run(fields[1].partition(" >>")[0], folder)


def test_the_systemd_units_run(folder: Path) -> None:
    service, timer = (configparser.ConfigParser(interpolation=None, strict=False) for _ in range(2))
    for parser in (service, timer):
        parser.optionxform = str  # type: ignore[assignment,method-assign]
    service.read(CONF / "txnlog-maintain.service")
    timer.read(CONF / "txnlog-maintain.timer")
    assert service["Service"]["Type"] == "oneshot"
    assert timer["Timer"]["OnCalendar"] == "hourly"
    run(service["Service"]["ExecStart"], folder)


def test_the_cron_job_of_kubernetes_runs(folder: Path) -> None:
    text = (CONF / "cronjob.yaml").read_text()
    assert "concurrencyPolicy: Forbid" in text
    found = re.search(r"args: \[(.*)\]", text)
    assert found is not None
    run("txnlog " + found[1].replace('"', "").replace(",", ""), folder)


def test_the_dag_of_airflow_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is loaded with a stand-in for Airflow, which says what would be run."""
    import types

    commands: list[str] = []
    airflow, sdk = types.ModuleType("airflow"), types.ModuleType("airflow.sdk")
    operators = types.ModuleType("airflow.providers.standard.operators.bash")

    class Dag:
        def __init__(self, name: str, **settings: Any) -> None:
            assert settings["catchup"] is False
            assert settings["max_active_runs"] == 1

        def __enter__(self) -> Dag:
            return self

        def __exit__(self, *_: object) -> None: ...

    sdk.DAG = Dag  # type: ignore[attr-defined]
    operators.BashOperator = lambda task_id, bash_command, **_: commands.append(bash_command)  # type: ignore[attr-defined]
    for name, module in (
        ("airflow", airflow),
        ("airflow.sdk", sdk),
        ("airflow.providers", types.ModuleType("airflow.providers")),
        ("airflow.providers.standard", types.ModuleType("airflow.providers.standard")),
        ("airflow.providers.standard.operators", types.ModuleType("airflow.providers.standard.operators")),
        ("airflow.providers.standard.operators.bash", operators),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    exec(compile((CONF / "airflow_dag.py").read_text(), "airflow_dag.py", "exec"), {})
    assert commands
    for command in commands:
        run(command, folder)
