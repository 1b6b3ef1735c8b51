"""Debian's Prometheus takes the alerts, scrapes the exporter and a process, and answers every panel's query."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import make_server

import pytest
from prometheus_client import CollectorRegistry, make_wsgi_app

from sparktxn import Consumer, Producer, Store, TopicPartition, metrics
from tests.interop.alertfaults import promtool_tests
from tests.interop.conftest import environment
from tests.interop.debian import CannotFetchError, program
from tests.interop.peers import ROOT, run
from tests.test_monitoring import DASHBOARD, queries_of

pytestmark = pytest.mark.interop

ALERTS = ROOT / "conf" / "prometheus" / "alerts.yml"
HERE = Path(__file__).parent
WAIT_S = 90.0
VARIABLES = {"$instance": ".*", "$topic": ".*", "$group": ".*"}


def debian(name: str) -> str:
    try:
        return program("prometheus", name)
    except CannotFetchError as error:
        pytest.skip(f"the package cannot be had here: {error}")


def test_each_alert_fires_for_its_fault_alone_and_beside_what_is_well_and_not_without_it(tmp_path: Path) -> None:
    tests = tmp_path / "alerts_test.yml"
    tests.write_text(promtool_tests(str(ALERTS)))
    for arguments in (["check", "rules", str(ALERTS)], ["test", "rules", str(tests)]):
        done = subprocess.run([debian("promtool"), *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_grafana_s_own_package_reads_the_whole_dashboard() -> None:
    python = environment("dashboard-test")
    assert json.loads(run(python, [str(HERE / "programs" / "dashboard.py"), str(DASHBOARD)])) == []


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    """The address of one that scrapes the exporter of a store on disk, and this process, every second."""
    uri = str(tmp_path / "store")
    work(uri)
    command = [sys.executable, "-m", "sparktxn", "exporter", "-b", uri, "--port", "0", "--json"]
    exporter = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    assert exporter.stdout is not None
    scraped = urllib.parse.urlsplit(json.loads(exporter.stdout.readline())["address"]).netloc
    registry = CollectorRegistry()
    metrics.register(registry)
    own = make_server("127.0.0.1", 0, make_wsgi_app(registry))
    serving = threading.Thread(target=own.serve_forever, daemon=True)
    serving.start()
    port = free_port()
    (tmp_path / "prometheus.yml").write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{json.dumps(str(ALERTS))}]\n"
        f"scrape_configs:\n- {{job_name: txnlog, static_configs: [{{targets: ['{scraped}']}}]}}\n"
        f"- {{job_name: processes, static_configs: [{{targets: ['127.0.0.1:{own.server_port}']}}]}}\n"
    )
    server = subprocess.Popen(
        [
            debian("prometheus"),
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        for process in (server, exporter):
            process.kill()
            process.communicate()
        own.shutdown()
        own.server_close()


def work(uri: str) -> None:
    """Make a store with transactions, and a group that lags."""
    with Store.open(uri, create=True) as store:
        store.create_topic("t", 2)
    with Producer({"bootstrap.servers": uri, "transactional.id": "x"}) as producer:
        producer.init_transactions()
        for commits in (True, True, False):
            producer.begin_transaction()
            producer.produce("t", b"v", partition=0)
            (producer.commit_transaction if commits else producer.abort_transaction)()
    with Consumer({"bootstrap.servers": uri, "group.id": "g"}) as consumer:
        consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)


def asked(address: str, query: str) -> list[Any]:
    url = f"{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
        found = json.loads(answer.read())
    assert found["status"] == "success", found
    result: list[Any] = found["data"]["result"]
    return result


def test_prometheus_scrapes_both_and_answers_every_panel(prometheus: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            # Rates need two samples.
            if asked(prometheus, "count_over_time(up[1m]) > 3 and up == 1") and len(asked(prometheus, "up == 1")) == 2:
                break
        except OSError:
            assert time.monotonic() < deadline
        assert time.monotonic() < deadline
        time.sleep(0.5)
    empty = []
    for query in queries_of(DASHBOARD):
        for variable, pattern in VARIABLES.items():
            query = query.replace(variable, pattern)
        if not asked(prometheus, query):
            empty.append(query)
    # No query of Spark runs, no transaction is open, no member is overdue, and no vacuum has worked.
    expected = (
        "txnlog_stream_",
        "txnlog_open_transaction_age_seconds{",
        "txnlog_prepared_transaction_age_seconds{",
        "txnlog_group_overdue_members",
        "txnlog_last_vacuum_age_seconds",
    )
    assert [query for query in empty if not any(name in query for name in expected)] == []
    assert asked(prometheus, 'ALERTS{alertname="TxnlogStoreUnreadable"}') == []
