"""Every page of the console, on a busy store and on an empty one: as HTML, and as JSON that says the same."""

from __future__ import annotations

import datetime
import io
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from sparktxn._engine.format.segment import stored_schema
from sparktxn._programs.console import keyedreads
from sparktxn._programs.console.filesizes import FILE_SIZES
from sparktxn._programs.console.guard import TOKEN_CHARACTERS_MIN
from sparktxn._programs.console.history.entryfacts import ENTRIES_KEPT
from sparktxn._programs.console.history.entryfigures import BUCKETS_MAX
from sparktxn._programs.console.pagesource import Source
from sparktxn._programs.console.recordreads import SCANNED_MAX
from sparktxn._programs.console.routes import application
from sparktxn._rows.scan.plan import object_of, segments_between
from sparktxn.maintenance import rewrite, sweep, vacuum
from sparktxn.store import Store
from tests.console.asking import Console
from tests.everytype import EVERY_TYPE, FULL_ROW
from tests.log.test_large_entries import APPENDS, commit_large
from tests.world import World

PAGES = (
    "/",
    "/?span=hour",
    "/?span=day",
    "/?span=week",
    "/?span=all",
    "/topics",
    "/topics?q=x",
    "/topics/six",
    "/topics/six?entry=3",
    "/topics/six?at=3",
    "/topics/trips",
    "/topics/six/records",
    "/topics/six/records?follow=1",
    "/topics/six/records?partition=0",
    "/topics/six/records?partition=0&offset=0&as=hex",
    "/topics/six/records?time=1",
    "/topics/six/records?partition=1&time=1",
    "/topics/six/records?key=key-1",
    "/topics/six/records?header=trace%3D2",
    "/topics/six/records?text=nothing-has-this",
    "/topics/six/records?entry=5",
    "/topics/trips/records",
    "/topics/trips/files",
    "/topics/six/files?partition=2",
    "/transactions",
    "/transactions?id=job-1",
    "/transactions?to=5&count=2",
    "/transactions/ids",
    "/transactions/ids?prefix=job",
    "/transaction?id=job-1",
    "/transaction?id=left-open",
    "/groups",
    "/group?id=readers",
    "/group?id=readers&span=week",
    "/group?id=readers&span=all",
    "/log",
    "/log?to=4",
    "/log/1",
    "/log/5",
    "/files",
    "/files?run=1",
    "/maintenance",
    "/maintenance?run=1",
)
NEEDS_CONTENT = re.compile(r"/(topics|log|group|transaction)[/?].*")
VOID = {"meta", "link", "input", "br", "img", "path", "circle", "rect", "line", "polyline", "polygon"}


class Outline(HTMLParser):
    """What a screen reader goes by, and whether tags are closed in their order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag, f"</{tag}>"

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for found, attributes in self.found if found == tag]


def check(html: str) -> None:
    """Landmarks, one heading, labels, heads of tables, ids that are there once; no script, style or other host."""
    outline = Outline(html)
    assert not outline.open
    assert [len(outline.all(tag)) for tag in ("main", "h1", "header", "footer")] == [1, 1, 1, 1]
    assert outline.all("html")[0]["lang"] == "en"
    ids = [attributes["id"] for _, attributes in outline.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    landmarks = [attributes["aria-label"] for attributes in outline.all("nav")]
    assert len(landmarks) == len(set(landmarks))
    for attributes in outline.all("div"):
        if "scroll" in (attributes.get("class") or "").split():
            assert (attributes["tabindex"], attributes["role"]) == ("0", "group")
            assert attributes.get("aria-label") or attributes.get("aria-labelledby")
    labelled = {attributes["for"] for attributes in outline.all("label")}
    for tag in ("input", "select"):
        for attributes in outline.all(tag):
            assert attributes.get("type") == "hidden" or attributes["id"] in labelled
    for attributes in outline.all("th"):
        assert attributes.get("scope") in ("col", "row")
    for attributes in outline.all("svg"):
        assert "aria-hidden" in attributes or attributes["aria-label"]
    for tag, attributes in outline.found:
        assert tag not in ("script", "style", "iframe", "object", "img")
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        for name in ("href", "src", "action"):
            address = attributes.get(name)
            # An empty one is that of the page itself.
            assert not address or address.startswith(("/", "#")), address
            assert address is None or not address.startswith("//")
        named = attributes.get("aria-labelledby")
        assert named is None or named in ids


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_html_that_all_can_read_and_json(console: Console, page: str) -> None:
    check(console.page(page))
    assert isinstance(console.data(page), dict)


@pytest.mark.parametrize("page", [page for page in PAGES if not NEEDS_CONTENT.fullmatch(page)])
def test_a_store_without_anything_has_its_pages_too(empty: Store, page: str) -> None:
    console = Console(empty)
    check(console.page(page))
    console.data(page)


def test_each_page_of_the_application_is_asked_for(busy: World) -> None:
    patterns = [
        re.compile(re.sub(r"\{[^}]*\}", "[^/]+", getattr(route, "path", "")))
        for route in application(Source(busy.store), None).routes
    ]
    others = ("/topics/six/records/0/0", *FILES, "/static/console.css", "/metrics", "/healthz", *REFUSED)
    asked = [page.partition("?")[0] for page in (*PAGES, *others)]
    assert [one.pattern for one in patterns if not any(map(one.fullmatch, asked))] == []


def test_files_by_size_are_those_that_the_view_names() -> None:
    world = World({"t": 2}, store_append_inline_bytes=0)
    for number in range(12):
        with world.producer() as producer:
            producer.produce("t", b"%d" % number * 40 * number**3, partition=number % 2)
        if number == 7:
            rewrite(world.store, {"rewrite.min.segments": 2})
            world.store.log.checkpoint()
    console = Console(world.store)
    while (found := console.data("/topics/t/files"))["manifests_left"]:
        pass
    sizes = {
        object_of(view, one): one.size_bytes
        for view in world.store.view(["t"]).partitions.values()
        for one in segments_between(world.store.log.objects, view, 0, view.log_end_offset)
    }
    expected = [0] * (len(FILE_SIZES) + 1)
    for size_bytes in sizes.values():
        expected[sum(size_bytes >= bound for bound in FILE_SIZES)] += 1
    assert [row["files"] for row in found["sizes"]] == expected
    assert sum(1 for count in expected if count) > 1
    (drawn,) = console.data("/files")["histograms"]
    assert [column["count"] for column in drawn["columns"]] == [0, *expected]  # no entry carries a segment
    assert f"{expected[0]} &lt; 1.0\xa0KiB" in console.page("/topics/t/files")
    world.close()


def test_the_page_of_files_says_what_a_vacuum_would_delete_and_what_stays() -> None:
    world = World({"t": 1}, store_append_inline_bytes=0)
    for number in range(4):
        with world.producer() as producer:
            producer.produce("t", b"%d" % number)
    rewrite(world.store, {"rewrite.min.segments": 2})
    found = Console(world.store).data("/files?run=1")["vacuum"]
    assert (found["files"], found["size_bytes"]) == (0, 0)
    assert any("--now" in text for text in found["stays"])
    world.store.log.checkpoint()
    world.store.log.checkpoint()
    would = vacuum(world.store, dry_run=True)
    found = Console(world.store).data("/files?run=1")["vacuum"]
    assert found["stays"] == [limit.text for limit in would.limits] != []
    assert found["size_bytes"] == would.size_bytes
    assert found["stays"][0] in unescape(Console(world.store).page("/files?run=1"))
    world.close()


REFUSED = ("/change/job", "/changed/1")  # tests/console/test_changes.py
FILES = ("/topics/six/records/0/0/value", "/topics/six/download", "/log/1/raw")


def test_the_overview_says_what_the_store_has(console: Console, busy: World) -> None:
    found = console.data("/")
    assert found["entry"] == busy.entry()
    assert (found["topics"], found["partitions"], found["open_count"]) == (3, 9, 1)
    assert found["open_transactions"][0]["transactional_id"] == "left-open"
    assert found["history"]["first_entry"] == 1
    commits, aborts = found["plots"][2]["curves"]
    width_s = (found["plots"][2]["end_ms"] - found["plots"][2]["start_ms"]) / len(commits["values"]) / 1000
    assert [round(sum(curve["values"]) * width_s) for curve in (commits, aborts)] == [5, 1]


def test_a_topic_is_shown_as_it_was_at_an_entry(console: Console, busy: World) -> None:
    now, then = console.data("/topics/six"), console.data("/topics/six?entry=4")
    view = busy.store.view(["six"], entry=4)
    assert [row["log_end_offset"] for row in then["partitions"]] == [
        view.partitions["six", number].log_end_offset for number in range(6)
    ]
    assert (then["entry"], then["is_now"], now["is_now"]) == (4, False, True)
    assert sum(row["offsets"] for row in then["partitions"]) < sum(row["offsets"] for row in now["partitions"])
    assert "back to now" in console.page("/topics/six?entry=4")


def test_the_number_of_the_slider_counts_before_its_place(console: Console) -> None:
    assert console.data("/topics/six?at=3&entry=5")["entry"] == 5
    assert console.data("/topics/six?at=3&entry=")["entry"] == 3


def test_the_document_says_what_is_kept_and_how_far_a_filter_reads() -> None:
    text = " ".join((Path(__file__).parents[2] / "docs" / "console.md").read_text().split())
    assert f"the newest {ENTRIES_KEPT:,} entries" in text
    assert f"at most {BUCKETS_MAX} stretches of time" in text
    assert f"at most {SCANNED_MAX:,} records" in text
    assert f"at least {TOKEN_CHARACTERS_MIN} characters" in text


def rows_of(console: Console, target: str) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in console.data(target)["records"]]


def test_pages_of_records_lead_to_all_that_is_committed(console: Console, busy: World) -> None:
    expected = sorted((row["partition"], row["offset"]) for row in busy.rows("six"))
    found, target = [], "/topics/six/records?count=3"
    while True:
        page = console.data(target)
        found += [(row["partition"], row["offset"]) for row in page["records"]]
        if page["next"] is None:
            break
        target = f"/topics/six/records?count=3&to={page['next']}"
    assert sorted(found) == expected
    by_partition = []
    for partition in range(6):
        place: int | None = 0
        while place is not None:
            page = console.data(f"/topics/six/records?count=2&partition={partition}&offset={place}")
            assert len(page["records"]) <= 2
            by_partition += [(row["partition"], row["offset"]) for row in page["records"]]
            place = page["next"]
    assert by_partition == expected


def test_a_record_says_its_transaction_and_the_entry_that_made_it_visible(console: Console) -> None:
    record = next(row for row in console.data("/topics/six/records")["records"] if row["transactional_id"] == "job-2")
    entry = console.data(f"/log/{record['entry']}")
    assert any("is committed" in command["sentence"] for command in entry["commands"])
    page = console.data(f"/topics/six/records/{record['partition']}/{record['offset']}")
    assert page["record"]["value"]["text"] == record["value"]["text"]
    assert page["record"]["headers"][0]["key"] == "trace"


@pytest.mark.parametrize(
    ("asked", "count"), [("key=key-2", 4), ("header=trace", 20), ("header=trace%3D3", 4), ("text=plain", 1)]
)
def test_records_are_found_by_what_they_hold(console: Console, asked: str, count: int) -> None:
    assert len(rows_of(console, f"/topics/six/records?{asked}")) == count


def test_typed_records_have_their_columns(console: Console) -> None:
    first, second = console.data("/topics/trips/records")["records"]
    assert first["columns"]["id"] == 1_000_001
    assert first["columns"]["at"] == "2026-05-04 16:00:00.000001Z"
    assert (second["columns"]["name"], second["columns"]["raw"]["text"]) == (None, "x")


def keyed_world() -> World:
    """A store with a topic of two partitions, whose key has two columns."""
    world = World({})
    columns = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("day", pa.date32(), nullable=False),
            ("name", pa.string()),
        ]
    )
    world.store.create_topic("keyed", 2, schema=columns, settings={"primary.key": "id,day"})
    return world


DAY = datetime.date(2026, 5, 1)


def put(world: World, *ids: int, name: str | None = None, transactional_id: str = "writer") -> None:
    """Upsert rows in a transaction, or delete them."""
    producer = world.transactional(transactional_id)
    with producer.transaction():
        keys = {"id": list(ids), "day": [DAY] * len(ids)}
        if name is None:
            producer.produce_arrow("keyed", pa.table(keys), delete=True)
        else:
            producer.produce_arrow("keyed", pa.table({**keys, "name": [name] * len(ids)}))


def names_of(rows: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return [(int(row["columns"]["id"]), row["columns"]["name"]) for row in rows]


def test_records_of_a_keyed_topic_are_its_latest_rows_or_all() -> None:
    with closing(keyed_world()) as world:
        put(world, 1, 2, 3, name="a")
        put(world, 2, name="b")
        before = world.store.view().entry
        put(world, 1)
        put(world, 4, name="c")
        console = Console(world.store)
        found = console.data("/topics/keyed/records")
        assert names_of(found["records"]) == [(4, "c"), (2, "b"), (3, "a")]
        assert found["keyed"]["kind"] == "latest"
        page = console.page("/topics/keyed/records")
        assert "Latest rows" in page
        assert "_deleted" not in page
        then = console.data(f"/topics/keyed/records?entry={before}")["records"]
        assert sorted(names_of(then)) == [(1, "a"), (2, "b"), (3, "a")]
        parts = [console.data(f"/topics/keyed/records?partition={number}")["records"] for number in (0, 1)]
        assert sorted(names_of(parts[0] + parts[1])) == [(2, "b"), (3, "a"), (4, "c")]
        first = console.data("/topics/keyed/records?count=2")
        rest = console.data(f"/topics/keyed/records?count=2&skip={first['keyed']['skipped']}")
        assert names_of(first["records"] + rest["records"]) == [(4, "c"), (2, "b"), (3, "a")]
        assert rest["keyed"]["skipped"] is None
        whole = console.data("/topics/keyed/records?rows=all")
        assert (len(whole["records"]), whole["keyed"]) == (6, None)
        assert sum(row["is_delete"] for row in whole["records"]) == 1
        page = console.page("/topics/keyed/records?rows=all")
        assert page.count("<td>delete</td>") == 1
        assert len(console.data("/topics/keyed/records?partition=0&offset=0")["records"]) == sum(
            row["partition"] == 0 for row in whole["records"]
        )
        lines = console.get("/topics/keyed/download?format=jsonl").text
        assert lines.count('"_deleted":true') == 1
        for wrong in ("rows=latest&partition=0&offset=0", "rows=newest", "rows=latest&text=a", "key=7"):
            assert console.get(f"/topics/keyed/records?{wrong}").code == 400, wrong


def test_the_history_of_a_key_has_all_its_rows_newest_first() -> None:
    with closing(keyed_world()) as world:
        put(world, 1, 2, 3, name="a")
        put(world, 1, name="b", transactional_id="other")
        put(world, 1, transactional_id="eraser")
        put(world, 2, name="c")
        put(world, 1, name="d")
        console = Console(world.store)
        target = '/topics/keyed/records?key=[1,"2026-05-01"]'
        found = console.data(target)
        assert [(row["columns"]["name"], row["is_delete"]) for row in found["records"]] == [
            ("d", False),
            (None, True),
            ("b", False),
            ("a", False),
        ]
        assert [row["transactional_id"] for row in found["records"]] == ["writer", "eraser", "other", "writer"]
        assert [row["offset"] for row in found["records"]] == sorted(
            (row["offset"] for row in found["records"]), reverse=True
        )
        page = console.page(target)
        assert (page.count("<td>upsert</td>"), page.count("<td>delete</td>")) == (3, 1)
        some = console.data(f"{target}&count=3")
        older = console.data(f"{target}&count=3&before={some['keyed']['before']}")
        assert [row["columns"]["name"] for row in some["records"] + older["records"]] == ["d", None, "b", "a"]
        assert console.data('/topics/keyed/records?key=[9,"2026-05-01"]')["records"] == []
        for wrong in ("[1]", "1", "[1,2]", '["1","2026-05-01"]', '[1,"2026-02-30"]'):
            answer = console.get(f"/topics/keyed/records?key={wrong}")
            assert answer.code == 400, wrong
            assert "JSON array of id, day" in answer.text, wrong
        hidden = Console(world.store, hide_values=True)
        assert hidden.data(target)["keyed"]["kind"] == "latest"
        assert "2026-05-01" not in str(hidden.data(target)["records"])


def test_pages_of_a_keyed_topic_look_at_so_many_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they have left out is never shown as a latest row that it is not, and older rows are found by their keys."""
    monkeypatch.setattr(keyedreads, "LATEST_OFFSETS", 20)
    monkeypatch.setattr(keyedreads, "HISTORY_OFFSETS", 25)
    with closing(keyed_world()) as world:
        put(world, *range(100), name="old")
        for number in range(10):
            put(world, *range(40, 50), name=str(number))
        console = Console(world.store)
        found = console.data("/topics/keyed/records?count=500")
        rows = names_of(found["records"])
        assert found["keyed"]["offsets"] == 10
        assert found["scanned"] <= 20
        assert {name for _, name in rows} <= {"8", "9"}
        assert len({number for number, _ in rows}) == len(rows)
        target = '/topics/keyed/records?key=[40,"2026-05-01"]'
        names, before, asked = [], None, 0
        while asked < 20:
            page = console.data(target + (f"&before={before}" if before is not None else ""))
            assert page["scanned"] <= 25
            names += [row["columns"]["name"] for row in page["records"]]
            before, asked = page["keyed"]["before"], asked + 1
            if before is None:
                break
        assert names == [*map(str, range(9, -1, -1)), "old"]
        assert asked > 1


def test_a_keyed_topic_of_many_partitions_reads_few_of_them() -> None:
    with closing(World({})) as world:
        columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
        world.store.create_topic("wide", 2_000, schema=columns, settings={"primary.key": "id"})
        with world.producer() as producer:
            producer.produce_arrow("wide", pa.table({"id": list(range(400)), "name": ["a"] * 400}))
        with world.producer() as producer:
            producer.produce_arrow("wide", pa.table({"id": [7], "name": ["b"]}))
        console = Console(world.store)
        found = console.data("/topics/wide/records")
        assert len(found["keyed"]["partitions"]) == 32
        assert found["scanned"] < 100
        assert names_of(found["records"])[0] == (7, "b")
        assert [row["columns"]["name"] for row in console.data("/topics/wide/records?key=7")["records"]] == ["b", "a"]


def test_cells_show_values_exactly(console: Console) -> None:
    first = console.data("/topics/trips/records")["records"][0]
    for page in ("/topics/trips/records", f"/topics/trips/records/{first['partition']}/{first['offset']}"):
        html = console.page(page)
        assert "1000001" in html
        assert "2026-05-04 16:00:00.000001Z" in html


def test_a_reason_has_the_time_in_words() -> None:
    """As the sentences have it."""
    world = World({"t": 1})
    producer = world.transactional("late", transaction_timeout_ms=1_000)
    producer.begin_transaction()
    producer.produce("t", "one")
    producer.flush()
    while (reason := Console(world.store).data("/transaction?id=late")["reason"]) is None:
        time.sleep(0.2)
        sweep(world.store)
    assert re.fullmatch(r"it timed out after (\d+\xa0s)?\xa0?(\d+\xa0ms)?", reason), reason
    world.close()


def test_values_of_every_type_are_shown() -> None:
    world = World({})
    schema = stored_schema(EVERY_TYPE)
    columns = pa.schema([field for field in schema if not field.name.startswith("_")])
    world.store.create_topic("every", schema=columns)
    with world.producer() as producer:
        producer.produce_arrow("every", pa.Table.from_pylist([FULL_ROW, {"long": 1}], schema=columns))
    console = Console(world.store)
    check(console.page("/topics/every/records"))
    full, nulls = console.data("/topics/every/records")["records"]
    assert set(full["columns"]) == set(FULL_ROW)
    assert {name for name, value in nulls["columns"].items() if value is not None} == {"long"}
    check(console.page("/topics/every/records/0/0"))
    for kind in ("csv", "jsonl", "parquet"):
        assert console.get(f"/topics/every/download?format={kind}").code == 200
    world.close()


def test_no_page_writes_anything(busy: World) -> None:
    objects = busy.store.log.objects
    before = {info.name: objects.get(info.name) for info in objects.list("")}
    console = Console(busy.store)
    for page in PAGES:
        console.page(page)
    assert {info.name: objects.get(info.name) for info in objects.list("")} == before


def test_a_transaction_of_very_many_appends_says_all_of_them() -> None:
    world = World({})
    commit_large(world.store.log)
    found = Console(world.store).data("/transaction?id=job")
    assert (found["outcome"], found["records"]) == ("committed", APPENDS)
    assert (found["topics"][0]["partitions"], found["steps_left_out"]) == ([0, 1], APPENDS + 1 - len(found["steps"]))
    world.close()


def test_pages_are_asked_for_at_once_while_a_producer_commits() -> None:
    world = World({"t": 3})
    console = Console(world.store)
    producer = world.transactional("busy")

    def ask(number: int) -> list[int]:
        return [console.get(page).code for page in ("/", "/topics/t/records", "/transactions", "/groups", "/log")]

    with ThreadPoolExecutor(4) as callers:
        asked = [callers.submit(ask, number) for number in range(12)]
        for number in range(30):
            producer.begin_transaction()
            producer.produce("t", b"%d" % number)
            producer.commit_transaction()
        assert {code for one in asked for code in one.result()} == {200}
    assert len(console.data("/transactions?count=500")["transactions"]) == 30
    assert len(console.data("/topics/t/records?count=100")["records"]) == 30
    # A number is read as that of a setting: spaces around it do not count.
    assert len(console.data("/topics/t/records?count=%20100%20")["records"]) == 30
    world.close()


def test_a_time_is_written_as_for_the_command(console: Console) -> None:
    assert len(rows_of(console, "/topics/six/records?partition=0&time=2020-01-01&count=500")) == len(
        rows_of(console, "/topics/six/records?partition=0&offset=0&count=500")
    )
    assert rows_of(console, "/topics/six/records?partition=0&time=2100-01-01T00:00:00Z") == []
    assert console.get("/topics/six/records?time=yesterday", accept="text/html").code == 400


def test_a_transaction_says_everything_that_it_did(console: Console, busy: World) -> None:
    found = console.data("/transaction?id=job-1&producer=1&number=1")
    assert (found["outcome"], found["records"]) == ("committed", 4)
    assert [one["topic"] for one in found["topics"]] == ["six"]
    assert "is committed" in found["steps"][-1]["sentence"]
    open_one = console.data("/transaction?id=left-open")
    assert (open_one["outcome"], open_one["ended_timestamp_ms"]) == ("open", None)
    aborted = [row for row in console.data("/transactions")["transactions"] if row["outcome"] == "aborted"]
    assert [row["transactional_id"] for row in aborted] == ["job-1"]


def test_a_group_says_its_lag_its_members_and_what_has_changed_them(console: Console) -> None:
    (row,) = console.data("/groups")["groups"]
    found = console.data("/group?id=readers")
    assert (row["lag"], len(found["members"])) == (found["lag"], 1)
    assert "joins group 'readers'" in found["events"][-1]["sentence"]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_download_has_all_committed_records(console: Console, busy: World, kind: str) -> None:
    for topic in ("six", "trips"):
        answer = console.get(f"/topics/{topic}/download?format={kind}")
        assert answer.headers["content-disposition"] == f'attachment; filename="{topic}.{kind}"'
        if kind == "jsonl":
            rows: Any = [json.loads(line) for line in answer.data.splitlines()]
            assert len(rows) == len(busy.rows(topic))
        else:
            read = pyarrow.csv.read_csv if kind == "csv" else pyarrow.parquet.read_table
            assert read(io.BytesIO(answer.data)).num_rows == len(busy.rows(topic))


def test_a_download_has_what_is_asked_for(console: Console) -> None:
    answer = console.get("/topics/six/download?format=jsonl&key=key-2")
    assert [json.loads(line)["key"] for line in answer.data.splitlines()] == ["key-2"] * 4


def test_the_raw_entry_is_what_is_stored(console: Console, busy: World) -> None:
    stored = busy.store.log.objects.get("_log/00000000000000000005.json")
    assert stored is not None
    assert console.get("/log/5/raw").json["commands"] == json.loads(stored)["commands"]


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        ("/nothing", 404, "there is no such page"),
        ("/topics/missing", 404, "there is no topic 'missing'"),
        ("/topics/six?entry=999", 400, "there is no entry 999"),
        ("/topics/six/records?partition=6", 400, "expected a whole number from 0 to 5"),
        ("/topics/six/records?count=0", 400, "expected a whole number from 1"),
        ("/topics/six/records?as=xml", 400, "expected one of auto, text, json, hex"),
        ("/topics/six/records/0/99", 404, "no committed record at offset 99"),
        ("/topics/six/records/9/0", 404, "has partitions 0 to 5, not 9"),
        ("/topics/six/download?format=xls", 400, "expected one of csv, jsonl, parquet"),
        ("/topics/six/records?to=-1", 400, "expected a whole number from 0"),
        ("/topics/six/records?text=" + "x" * 5000, 400, "expected at most 4096"),
        ("/transaction?id=missing", 404, "'missing' is not known"),
        ("/group?id=missing", 404, "neither members nor offsets"),
        ("/log/0", 404, "there is no entry 0"),
        ("/log/999", 404, "there is no entry 999"),
    ],
)
def test_a_wrong_request_says_what_was_expected(console: Console, target: str, code: int, words: str) -> None:
    html, data = console.get(target, accept="text/html"), console.get(target, accept="application/json")
    assert (html.code, data.code) == (code, code)
    check(html.text)
    assert words in data.json["error"]["message"]
