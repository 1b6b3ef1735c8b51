"""Each difference that was ever seen has evidence that exists: a case, a row of docs/porting.md, or a test."""

from __future__ import annotations

import re

import pytest

from tests.interop.compared import COMPARED
from tests.interop.differential.listed import LISTED
from tests.interop.peers import ROOT
from tests.interop.test_differential import PORTING, case_names


def problem(evidence: str) -> str:
    """Return what is wrong with one piece of evidence, or ""."""
    kind, _, name = evidence.partition(" ")
    if kind == "case":
        return "" if name in case_names() else f"no case {name}"
    if kind == "row":
        return "" if f"\n| {name}" in PORTING.read_text() else f"no row of docs/porting.md begins with {name!r}"
    file, _, test = name.partition("::")
    path = ROOT / "tests" / file
    found = kind == "test" and path.exists() and re.search(rf"^\s*def {test}\(", path.read_text(), re.MULTILINE)
    return "" if found else f"no test {name}"


@pytest.mark.parametrize("difference", COMPARED)
def test_the_evidence_exists(difference: str) -> None:
    assert COMPARED[difference]
    assert [found for one in COMPARED[difference] if (found := problem(one))] == []


@pytest.mark.parametrize("evidence", ["case no_such_case", "row no such row", "test unit/no.py::test_a", "note x"])
def test_evidence_that_does_not_exist_is_a_problem(evidence: str) -> None:
    assert problem(evidence)


def test_a_difference_with_a_listed_case_has_a_row_or_a_heading_that_explains_it() -> None:
    """Cases below the page's title are explained by its text, those of other headings by rows."""
    rows = set(LISTED) - {"Porting from confluent-kafka", "Everywhere", "AdminClient"}
    listed = {name for heading in rows for name in LISTED[heading]}
    bare = [
        difference
        for difference, evidence in COMPARED.items()
        if any(one.removeprefix("case ") in listed for one in evidence)
        and not any(one.startswith("row ") for one in evidence)
    ]
    assert bare == []
