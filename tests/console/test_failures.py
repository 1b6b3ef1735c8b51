"""A damaged store, one that does not answer, and one that is gone: a clear message each time, in the time allowed."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest

from sparktxn import Producer
from sparktxn.format import names
from sparktxn.objectstore.memory import MemoryStore
from sparktxn.process.background import ThreadBackground
from sparktxn.process.clock import SystemClock
from sparktxn.store import Store
from sparktxn.testing.silentstore import SilentStore
from tests.console.asking import Console
from tests.console.test_pages import check
from tests.lending import lend_log, take_log_back
from tests.world import World, open_log

TARGETS = ("/", "/topics", "/topics/t", "/topics/t/records", "/transactions", "/groups", "/log", "/files")


@pytest.fixture
def damaged() -> Iterator[Store]:
    """A store whose second entry is not what was written."""
    world = World({"t": 1})
    world.produce("one")
    world.produce("two")
    name = names.entry(2)
    data = world.store.log.objects.get(name)
    assert data is not None
    assert b"init_" in data
    world.store.log.objects.put(name, data.replace(b"init_", b"inix_"))
    yield world.store
    world.close()


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
    name = f"silent-{uuid.uuid4().hex}"
    uri = "memory://" + name
    objects = SilentStore(MemoryStore(name, SystemClock()))
    background = ThreadBackground("console", 2)
    log = open_log(objects, background=background)
    lend_log(uri, log)
    store = Store.open(uri)
    store.create_topic("t")
    with Producer({"bootstrap.servers": uri}) as producer:
        producer.produce("t", "one")
    yield objects, store
    store.close()
    take_log_back(uri)
    background.close(0)


def test_a_store_that_does_not_answer_gives_a_page_in_time(silent: tuple[SilentStore, Store]) -> None:
    objects, store = silent
    console = Console(store, timeout_s=0.2)
    with objects.silence():
        for target in TARGETS:
            began_s = time.monotonic()
            answer = console.get(target, accept="text/html")
            assert time.monotonic() - began_s < 3
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
        assert time.monotonic() - began_s < 3
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
        assert time.monotonic() - began_s < 9
        assert [answer.code for answer in answers] == [503, 503, 503]
        check(answers[0].text)
    for preview in previews:
        page = console.get(f"/changed/{preview['plan']}", accept="text/html")
        assert page.code == 503
        check(page.text)
        assert console.apply(preview).code == 503
