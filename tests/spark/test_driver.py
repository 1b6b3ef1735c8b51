"""A driver that is started as conf/ says: its Python and settings, stores on disk and S3, and credentials kept secret.

`session_job.py` makes all checks in one session, because a start of Spark takes longer than they do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

pytest.importorskip("pyspark")

from pyspark_txnlog.connecting.sessions import RECOMMENDED
from tests.servers import S3Server
from tests.spark.clusters import PATHS, ROOT
from tests.spark.drivers import numbers
from tests.spark.objects import copy_objects
from tests.spark.sessions import warm_environment

JOB: Final = Path(__file__).with_name("session_job.py")
CONF: Final = ROOT / "conf"
FILES: Final = sorted(path.relative_to(CONF).as_posix() for path in CONF.glob("*/spark-defaults.conf"))
GIVEN: Final = ("local/spark-defaults.conf", "s3/spark-defaults.conf")
CHECKS: Final = (
    "copies_on_disk",
    "copies_on_s3",
    "shows_options",
    "fails_to_write",
    "fails_to_read",
    "fails_to_stream",
    "refuses_a_setting",
    "refuses_a_setting_that_is_no_json",
    "refuses_a_stopped_session",
)

# Spark hides what is less than a warning from programs in Python, unless their gateway's own level says otherwise.
LOGGING: Final = """
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = info
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n%ex
"""

BUCKET: Final = "spark-round-trip"
KEY: Final = "AKIDNOTTOBETOLD"
SECRET: Final = "correct-horse-battery-staple"


def settings_of(file: str) -> dict[str, str]:
    lines = (line.split("#", 1)[0].split(maxsplit=1) for line in (CONF / file).read_text().splitlines())
    return {words[0]: words[1].strip() for words in lines if len(words) == 2}


def test_there_is_a_file_of_defaults_for_each_place() -> None:
    assert FILES == ["cluster/spark-defaults.conf", "local/spark-defaults.conf", "s3/spark-defaults.conf"]


@pytest.mark.parametrize("file", FILES)
def test_each_line_of_a_file_of_defaults_says_what_it_is_for(file: str) -> None:
    lines = (CONF / file).read_text().splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if line and not line.startswith("#"):
            assert before.startswith("# "), f"{line} has no comment above it"
    assert settings_of(file).items() >= RECOMMENDED.items()


def test_the_files_of_defaults_do_not_contradict_each_other() -> None:
    settings = [settings_of(file) for file in GIVEN]
    together = {name: value for each in settings for name, value in each.items()}
    assert all(together.items() >= each.items() for each in settings)


class Ran(NamedTuple):
    """What the driver has printed, and what it has left."""

    folder: Path
    told: str
    results: dict[str, Any]


@pytest.fixture(scope="module")
def ran(moto_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The driver, run to its end with both files of defaults; the first Python on its PATH cannot run anything."""
    folder = tmp_path_factory.mktemp("driver")
    settings, wrong = folder / "conf", folder / "bin"
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text("\n".join((CONF / file).read_text() for file in GIVEN))
    (settings / "log4j2.properties").write_text(LOGGING)
    wrong.mkdir()
    (wrong / "python3").write_text("#!/bin/sh\nexit 1\n")
    (wrong / "python3").chmod(0o755)
    moto_server.create_bucket(BUCKET)
    options = {"storage.key": KEY, "storage.secret": SECRET, "storage.endpoint_url": moto_server.endpoint_url}
    addresses = [f"s3a://{BUCKET}/store", "s3a://no-such-bucket/store"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    path = f"{wrong}{os.pathsep}{kept['PATH']}"
    done = subprocess.run(
        [sys.executable, str(JOB), *addresses, json.dumps(options), str(folder)],
        cwd=folder,
        env={**kept, "PATH": path, **warm_environment(PATHS), "SPARK_CONF_DIR": str(settings)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return Ran(folder, done.stdout, json.loads((folder / "results.json").read_text()))


@pytest.mark.spark
@pytest.mark.moto
class TestDriver:
    @pytest.mark.parametrize("check", CHECKS)
    def test_a_check_of_the_driver_passes(self, ran: Ran, check: str) -> None:
        assert ran.results["checks"][check] == ""

    def test_all_its_checks_are_looked_at(self, ran: Ran) -> None:
        assert sorted(ran.results["checks"]) == sorted(CHECKS)

    def test_it_uses_this_python_whatever_is_first_on_the_path(self, ran: Ran) -> None:
        assert ran.results["python"] == sys.executable

    @pytest.mark.parametrize("file", GIVEN)
    def test_a_file_of_defaults_reaches_the_session(self, ran: Ran, file: str) -> None:
        assert ran.results["conf"].items() >= settings_of(file).items()

    def test_it_has_copied_each_row_on_s3_once(self, ran: Ran, moto_server: S3Server, tmp_path: Path) -> None:
        assert numbers(copy_objects(moto_server, BUCKET, "store", tmp_path), "out") == list(range(1000))

    def test_it_tells_much_and_no_credentials(self, ran: Ran) -> None:
        assert ran.told.count("failed: ") >= 5
        assert ran.told.count("INFO org.apache.spark.") >= 100
        assert "== Physical Plan ==" in ran.told
        kept = [path.read_text(errors="replace") for path in ran.folder.rglob("*") if path.is_file()]
        for secret in (KEY, SECRET):
            assert [line for text in (ran.told, *kept) for line in text.splitlines() if secret in line] == []
