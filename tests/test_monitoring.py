"""What documents, alerts and dashboards name are figures that the exporter, a process or Spark's listener has."""

from __future__ import annotations

import re
from pathlib import Path

from sparktxn import metrics
from sparktxn.exporter.families import FAMILIES

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "monitoring.md").read_text()


def test_the_page_lists_each_figure_of_the_exporter_and_of_a_process() -> None:
    rows = re.findall(r"^\| `((?:kafka|txnlog)_\w+)` \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    listed = {name: (labels, meaning) for name, labels, meaning in rows}
    families = {**FAMILIES, **metrics.FAMILIES}
    own = {name: (", ".join(family.labels) or "-", family.meaning) for name, family in families.items()}
    assert {name: listed.get(name) for name in own} == own
