"""Every message of the package has a name and named fields, which its text uses, and the page lists it."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from pyspark_txnlog.options import sparkevents
from sparktxn._foundation.process import events
from sparktxn._foundation.process.events import log_event
from tests.test_architecture import ROOT, trees

PAGE = (ROOT / "docs" / "monitoring.md").read_text()
OWNER = "sparktxn/_foundation/process/events.py"
TABLES = {"pyspark_txnlog": sparkevents.EVENTS, "sparktxn": events.EVENTS}
"""The messages of each package."""
EVENTS = {name: event for table in TABLES.values() for name, event in table.items()}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


def calls() -> Iterator[tuple[str, ast.Call]]:
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield module, node


def fields_of(text: str) -> set[str]:
    return set(re.findall(r"%\((\w+)\)[srdg]", text))


def notes() -> list[tuple[str, str, set[str]]]:
    """The place, the name and the fields of each message that is logged."""
    found = []
    for module, call in calls():
        if isinstance(call.func, ast.Name) and call.func.id == "log_event":
            (name,) = call.args
            assert isinstance(name, ast.Constant), f"{module} {call.lineno}: the name is not text"
            fields = {keyword.arg for keyword in call.keywords if keyword.arg is not None} - {"exc_info"}
            found.append((f"{module}:{call.lineno}", str(name.value), fields))
    return found


def test_one_module_logs() -> None:
    """The others call `log_event`: no message is without a name."""
    logging_calls = [
        f"{module}:{call.lineno}"
        for module, call in calls()
        if module != OWNER
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in LEVELS
        and isinstance(call.func.value, ast.Name)
        and re.search("log", call.func.value.id, re.IGNORECASE)
    ]
    assert logging_calls == []


def test_every_message_is_in_the_table_and_has_the_fields_of_its_text() -> None:
    assert [where for where, name, fields in notes() if not fields_of(EVENTS[name].text) <= fields] == []
    for package, table in TABLES.items():
        assert {name for where, name, _ in notes() if f"{package}/" in where} == table.keys(), package


def test_no_text_has_a_field_without_a_name() -> None:
    assert [name for name, event in EVENTS.items() if re.search(r"%(?!\()", event.text)] == []


def test_pages_name_messages_that_exist_with_their_levels() -> None:
    """The table of messages is in the code alone; pages name those that are worth an alert."""
    pages = "\n".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    found = re.findall(r"((?:`\w+`(?:, )?)+) \(`(DEBUG|INFO|WARNING|ERROR)`\)", pages)
    named = [(name, level) for names, level in found for name in re.findall(r"`(\w+)`", names)]
    assert ("checkpoint_skipped", "ERROR") in named
    assert [one for one in named if one[1] != logging.getLevelName(EVENTS[one[0]].level)] == []
    assert "from sparktxn import EVENTS" in PAGE
    assert "pyspark_txnlog.options.sparkevents.EVENTS" in PAGE


def test_a_record_has_the_text_the_name_and_the_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "sparktxn"):
        log_event("transaction_timed_out", transaction=7, transactional_id="a 100%", open_ms=60_000)
        log_event("list_not_written", exc_info=ValueError("bad"))
    timed_out, not_written = caplog.records
    assert timed_out.getMessage() == "transaction 7 of 'a 100%' timed out after 60000 ms: aborted"
    assert timed_out.__dict__["event"] == "transaction_timed_out"
    fields: Any = timed_out.args
    assert json.loads(json.dumps(fields)) == {"transaction": 7, "transactional_id": "a 100%", "open_ms": 60_000}
    assert (timed_out.levelno, timed_out.name, timed_out.funcName) == (
        logging.INFO,
        "sparktxn",
        "test_a_record_has_the_text_the_name_and_the_fields",
    )
    assert (not_written.getMessage(), not_written.args) == ("a list of commands cannot be written", ())
    assert not_written.exc_info is not None


def test_what_the_level_leaves_out_is_not_formatted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "sparktxn"):
        log_event("transaction_timed_out", transaction=7, transactional_id="a", open_ms=1)
    assert caplog.records == []
