"""The console's /metrics: the exporter's own figures, behind the console's guard."""

from __future__ import annotations

import re

import pytest

from sparktxn.metrics.families import STORE_FAMILIES
from sparktxn.store.storemetrics import StoreMetrics
from tests.console.asking import Console
from tests.world import World

TOKEN = "a-token-of-enough-characters"
# What time alone changes.
GROWING = re.compile(r"^(txnlog_\w*(?:_age_seconds|_duration_seconds)\w*(?:\{.*\})?) .*$", re.MULTILINE)


def steady(page: bytes) -> str:
    return GROWING.sub(r"\1 SOME", page.decode())


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0", "application/json"])
def test_the_figures_are_those_of_the_exporter(console: Console, busy: World, accept: str) -> None:
    body, content_type = StoreMetrics(busy.store).page(accept)
    answer = console.get("/metrics", accept=accept)
    assert (answer.code, answer.headers["content-type"]) == (200, content_type)
    assert answer.headers["cache-control"] == "no-store"
    assert steady(answer.data) == steady(body)
    assert "kafka_consumergroup_lag{" in answer.text
    if accept == "text/plain":
        typed = re.findall(r"^# TYPE (\S+)", answer.text, re.MULTILINE)
        # No vacuum has worked in the store, no member is overdue, and no transaction is prepared or was aborted since.
        assert set(STORE_FAMILIES) - set(typed) == {
            "txnlog_last_vacuum_age_seconds",
            "txnlog_group_overdue_member_age_seconds",
            "txnlog_prepared_transaction_age_seconds",
            "txnlog_transactional_id_transactions_total",
        }


def test_prometheus_shows_the_token_as_a_bearer(busy: World) -> None:
    console = Console(busy.store, token=TOKEN)
    refused = console.get("/metrics")
    assert (refused.code, "kafka_" in refused.text) == (401, False)
    shown = console.get("/metrics", authorization=f"Bearer {TOKEN}")
    assert (shown.code, "kafka_topic_partitions" in shown.text) == (200, True)
    assert console.get("/metrics", host="evil.example").code == 421


def test_a_scrape_writes_nothing_and_cannot_be_posted(console: Console, busy: World) -> None:
    entry = busy.entry()
    assert console.get("/metrics").code == 200
    assert console.submit("/metrics").code == 405
    assert busy.entry() == entry


def test_hidden_values_are_no_labels(busy: World) -> None:
    assert "key-1" not in Console(busy.store, hide_values=True).get("/metrics").text
