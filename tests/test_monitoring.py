"""What documents, alerts and the dashboard name are figures that the exporter, a process or Spark's listener has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from sparktxn import metrics
from sparktxn.metrics.families import STORE_FAMILIES, STREAM_FAMILIES
from tests.interop.alertfaults import FAULTS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "monitoring.md").read_text()
DASHBOARD = ROOT / "conf" / "grafana" / "txnlog.json"
ALERTS = ROOT / "conf" / "prometheus" / "alerts.yml"

FAMILIES = {**STORE_FAMILIES, **metrics.FAMILIES, **STREAM_FAMILIES}
OF_HISTOGRAMS = {
    name + end
    for name, family in metrics.FAMILIES.items()
    if family.kind == "histogram"
    for end in ("_bucket", "_count", "_sum")
}
KNOWN = FAMILIES.keys() | OF_HISTOGRAMS


def queries_of(dashboard: Path) -> list[str]:
    """The queries of all panels."""
    panels = json.loads(dashboard.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\b(?:kafka|txnlog)_\w+", text))


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def test_the_page_lists_each_figure_of_the_exporter_of_a_process_and_of_a_query() -> None:
    rows = re.findall(r"^\| `((?:kafka|txnlog)_\w+)` \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    listed = {name: (labels, meaning) for name, labels, meaning in rows}
    own = {name: (", ".join(family.labels) or "-", family.meaning) for name, family in FAMILIES.items()}
    assert {name: listed.get(name) for name in own} == own


def test_every_query_of_the_dashboard_names_figures_that_exist() -> None:
    queries = queries_of(DASHBOARD)
    assert len(queries) > 20
    assert all(names_in(query) for query in queries)
    assert set().union(*map(names_in, queries)) <= KNOWN
    dashboard = json.loads(DASHBOARD.read_text())
    variables = [variable["query"]["query"] for variable in dashboard["templating"]["list"][1:]]
    assert set().union(*map(names_in, variables)) <= KNOWN
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)


def test_every_alert_names_figures_that_exist_and_is_on_the_page() -> None:
    assert len(rules()) > 10
    for rule in rules():
        assert names_in(rule["expr"])
        assert names_in(rule["expr"]) <= KNOWN, rule["alert"]
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}
    listed = re.findall(r"^\| `(Txnlog\w+)` \|", PAGE, re.MULTILINE)
    assert listed == [rule["alert"] for rule in rules()]


def test_each_alert_has_faults_that_the_night_tries() -> None:
    """`tests/interop/test_prometheus.py` has promtool evaluate them, alone and next to series that are well."""
    assert {name.partition(",")[0] for name in FAULTS} == {rule["alert"] for rule in rules()}
    for fault in FAULTS.values():
        assert names_in(" ".join((*fault.series, *fault.beside))) <= KNOWN


def test_labels_that_queries_select_exist() -> None:
    labels = {name: {*family.labels, "job", "instance", "le"} for name, family in FAMILIES.items()}
    for query in [*queries_of(DASHBOARD), *(rule["expr"] for rule in rules())]:
        for name, selected in re.findall(r"\b((?:kafka|txnlog)_\w+)\{([^}]*)\}", query):
            known = labels.get(name.removesuffix("_bucket"), labels.get(name, set()))
            assert set(re.findall(r"(\w+)(?:=|!)", selected)) <= known, query
