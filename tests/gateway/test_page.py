"""docs/gateway.md lists what is served, counted and taken as options; conf/ starts gateways as it says."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from kio.index import load_payload_module
from kio.static.constants import EntityType

from sparktxn._foundation.process.clock import RandomIds
from sparktxn._programs.cli.app import load
from sparktxn._programs.gateway.connection import SERVED
from sparktxn._programs.gateway.handlers import notserved
from sparktxn._programs.gateway.requestfigures import FAMILIES
from sparktxn._programs.gateway.security.users import user_lines
from sparktxn.errors import extra_to_install
from tests.cli.terminal import txnlog
from tests.gateway.certificates import Authority
from tests.gateway.processes import new_store
from tests.gateway.wire import WAIT_S
from tests.interop.brokerjars import KAFKA
from tests.interop.gateway import franzgo, kafkapython
from tests.interop.gateway.clients import CLIENTS, MECHANISMS
from tests.interop.gateway.connectjars import DEBEZIUM
from tests.interop.gateway.javajars import SPARK

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gateway.md").read_text()
UNIT = ROOT / "conf" / "systemd" / "txnlog-gateway.service"


def name_of(key: int, version: int) -> str:
    found = vars(load_payload_module(key, version, EntityType.request)).values()
    kinds = (value for value in found if getattr(value, "__type__", None) is EntityType.request)
    return next(kind.__name__ for kind in kinds).removesuffix("Request")


def test_the_page_lists_what_is_served() -> None:
    """A request whose first versions are announced for old clients alone is listed with those that are served."""
    rows = {}
    for key, served in SERVED.items():
        lowest = 3 if name_of(key, served.highest) == "Produce" else served.lowest
        versions = str(lowest) if lowest == served.highest else f"{lowest} to {served.highest}"
        rows[name_of(key, served.highest)] = f"| `{name_of(key, served.highest)}` | {key} | {versions} |"
    expected = "\n".join(["| request | key | versions |", "|---|--:|--:|", *(rows[name] for name in sorted(rows))])
    assert expected in PAGE, expected


KAFKA_4_0 = """
0:12 1:17 2:10 3:13 8:9 9:9 10:6 11:9 12:4 13:5 14:5 15:6 16:5 17:1 18:4 19:7 20:6 21:2 22:5 23:4 24:5 25:4 26:5 27:1
28:5 29:3 30:3 31:3 32:4 33:2 35:4 36:2 37:3 42:2 44:1 47:0 60:2 61:0 65:0 66:1 68:1 69:1 74:0 75:0
"""


def test_no_request_is_served_in_older_versions_than_by_the_broker_that_others_are_of() -> None:
    """Some clients learn a broker's age by Produce alone, such as kafka-python with an `api_version` of its own."""
    highest = {int(key): int(version) for key, _, version in (each.partition(":") for each in KAFKA_4_0.split())}
    refused = {key for key, served in SERVED.items() if served.handler.__module__ == notserved.__name__}
    assert highest.keys() == SERVED.keys() - refused
    assert not {key: version for key, version in highest.items() if SERVED[key].highest < version}


def test_the_page_lists_the_clients_that_were_tried() -> None:
    """It names what `make interop` runs, in these versions, and nothing else."""
    header = ["| client | version | codecs | groups | transactions | admin |", "|---|---|---|---|:-:|:-:|"]
    groups = {"group": "classic", "newer_group": "newer"}
    rows = []
    for client in CLIENTS:
        known = ", ".join(word for part, word in groups.items() if part in client.parts)
        marks = ["x" if part in client.parts else "-" for part in ("transaction", "admin")]
        rows.append(f"| {' | '.join([client.name, client.version, ', '.join(client.codecs), known, *marks])} |")
    expected = "\n".join([*header, *rows])
    assert expected in PAGE, expected
    assert ", ".join(MECHANISMS) == "SCRAM-SHA-512, SCRAM-SHA-256, PLAIN"
    connector = next(jar.version for jar in SPARK if jar.artifact.startswith("spark-sql-kafka"))
    assert f"franz-go {franzgo.VERSION}, kafka-python {kafkapython.VERSION} and Debian's" in PAGE
    assert f"Kafka Connect {KAFKA} with Debezium for PostgreSQL {DEBEZIUM.version} runs" in PAGE
    assert f"copiers of Kafka {KAFKA}, and Spark's connector {connector}." in PAGE


def test_the_page_lists_the_figures() -> None:
    rows = [f"| `{name}` | {', '.join(family.labels) or '-'} | {family.meaning} |" for name, family in FAMILIES.items()]
    expected = "\n".join(["| name | labels | meaning |", "|---|---|---|", *rows])
    assert expected in PAGE, expected


def test_the_page_lists_the_options() -> None:
    parameters = [each for each in load("gateway").params if each.rich_help_panel != "Options of all verbs"]
    own = {name for each in parameters for name in (*each.opts, *each.secondary_opts)}
    table = PAGE.partition("| option | meaning |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(--[a-z-]+)", table)) == own - {"--help"}


def test_the_image_starts_a_gateway_with_what_it_needs() -> None:
    lines = (ROOT / "conf" / "Containerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    extras = re.search(r"/source\[([a-z0-9,]+)\]", text)
    assert extras is not None
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"gateway", "metrics"} <= set(extras[1].split(",")) <= known.keys()
    assert re.findall(r"^COPY (\S+)", text, re.MULTILINE) == ["."]
    assert (ROOT / ".ci" / "constraints.txt").exists()
    assert "USER 10001" in text
    entry = re.search(r"^ENTRYPOINT (\[.*\])$", text, re.MULTILINE)
    assert entry is not None
    words = re.findall(r'"([^"]*)"', entry[1])
    assert words[:2] == ["txnlog", "gateway"]
    assert set(re.findall(r"--[a-z-]+", PAGE)) >= {word for word in words if word.startswith("--")}


def test_the_unit_of_systemd_starts_a_gateway(tmp_path: Path) -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    certificate, key = Authority(tmp_path).certificate("gateway")
    (tmp_path / "certificate").write_bytes(certificate.read_bytes() + key.read_bytes())
    (tmp_path / "users").write_text("\n".join(user_lines("alice", "secret", RandomIds())))
    (tmp_path / "users").chmod(0o400)
    command = unit["Service"]["ExecStart"].replace("${CREDENTIALS_DIRECTORY}", str(tmp_path))
    words = command.replace("0.0.0.0:9092", "0.0.0.0:0").replace("127.0.0.1:9400", "127.0.0.1:0").split()
    assert words[0] == "/opt/sparktxn/bin/txnlog"
    environment = {**os.environ, "TXNLOG_STORE": new_store(tmp_path)}
    command_line = [sys.executable, "-m", "sparktxn", *words[1:]]
    process = subprocess.Popen(command_line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"address")
    process.terminate()
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, err
    assert int(unit["Service"]["TimeoutStopSec"]) > 10


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this machine")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    here = tmp_path / UNIT.name
    here.write_text(UNIT.read_text().replace("/opt/sparktxn/bin/txnlog", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(here)], capture_output=True, text=True, timeout=WAIT_S
    )
    own = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert own == []


@pytest.mark.parametrize(
    ("missing", "options", "message"),
    [
        (
            "kio",
            (),
            f"the gateway needs the package 'kio': {extra_to_install('gateway')}",
        ),
        (
            "aiokafka",
            (),
            f"the gateway needs the package 'aiokafka': {extra_to_install('gateway')}",
        ),
        (
            "prometheus_client",
            ("--http", "127.0.0.1:0"),
            f"--http needs the package 'prometheus_client': {extra_to_install('metrics')}",
        ),
    ],
)
def test_without_its_packages_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, options: tuple[str, ...], message: str
) -> None:
    for name in list(sys.modules):
        if name.startswith(("sparktxn._programs.gateway.", "sparktxn._programs.cli.verbs.gateway", f"{missing}.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    done = txnlog("gateway", "--store", new_store(tmp_path), "--listen", "127.0.0.1:0", *options)
    assert (done.code, done.out, done.err) == (2, b"", f"txnlog: {message}\n")
