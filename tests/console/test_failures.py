"""A damaged store, one that does not answer, and one that is gone: a clear message each time, in the time allowed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sparktxn._engine.format import names
from sparktxn.store import Store
from sparktxn.testing.silentstore import SilentStore
from tests.console.asking import Console
from tests.console.stores import damaged_store, silent_store
from tests.console.test_pages import check

IN_TIME_S = 30
"""A page that waits for its store has a time-out far below, and one that waits without it never ends."""
TARGETS = ("/", "/topics", "/topics/t", "/topics/t/records", "/transactions", "/groups", "/log", "/files")


@pytest.fixture
def damaged() -> Iterator[Store]:
    with damaged_store() as store:
        yield store


def test_a_damaged_entry_is_named_where_it_is_read(damaged: Store) -> None:
    console = Console(damaged)
    for target in ("/", "/log", "/log/2", "/transactions"):
        html, data = console.get(target, accept="text/html"), console.get(target, accept="application/json")
        assert (html.code, data.code) == (500, 500)
        check(html.text)
        assert "The store is damaged" in html.text
        assert names.entry(2) in data.json["error"]["message"]


def test_pages_that_do_not_need_it_are_shown(damaged: Store) -> None:
    console = Console(damaged)
    assert console.data("/topics")["topics"][0]["topic"] == "t"
    assert console.data("/log/3")["entry"] == 3


@pytest.fixture
def silent() -> Iterator[tuple[SilentStore, Store]]:
    with silent_store() as found:
        yield found


def test_a_store_that_does_not_answer_gives_a_page_in_time(silent: tuple[SilentStore, Store]) -> None:
    objects, store = silent
    console = Console(store, timeout_s=0.2)
    with objects.silence():
        for target in TARGETS:
            began_s = time.monotonic()
            answer = console.get(target, accept="text/html")
            assert time.monotonic() - began_s < IN_TIME_S
            assert answer.code == 503, target
            assert "The store does not answer" in answer.text
            check(answer.text)
    for target in TARGETS:
        check(console.page(target))


def test_a_scrape_of_a_store_that_does_not_answer_says_so_in_time(silent: tuple[SilentStore, Store]) -> None:
    objects, store = silent
    console = Console(store, timeout_s=0.2)
    with objects.silence():
        began_s = time.monotonic()
        answer = console.get("/metrics")
        assert time.monotonic() - began_s < IN_TIME_S
    assert (answer.code, "txnlog_up 0.0" in answer.text, "kafka_" in answer.text) == (200, True, False)
    assert "txnlog_up 1.0" in console.get("/metrics").text


def test_a_change_of_a_store_that_does_not_answer_gives_a_page_in_time(silent: tuple[SilentStore, Store]) -> None:
    objects, store = silent
    console = Console(store, timeout_s=0.3, allow_changes=True)
    previews = [console.preview("/change/create-topic", topic="new"), console.preview("/change/job", job="sweep")]
    token = console.form_token()
    with objects.silence():
        began_s = time.monotonic()
        answers = [
            console.submit("/change/create-topic", form_token=token, topic="other"),
            *map(console.apply, previews),
        ]
        assert time.monotonic() - began_s < IN_TIME_S
        assert [answer.code for answer in answers] == [503, 503, 503]
        check(answers[0].text)
    for preview in previews:
        page = console.get(f"/changed/{preview['plan']}", accept="text/html")
        assert page.code == 503
        check(page.text)
        assert console.apply(preview).code == 503
