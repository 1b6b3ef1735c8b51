"""Names and values of anything: no script of a record ever runs, and a reader sees the text that it is."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

import pyarrow as pa
import pytest

from tests.console.asking import Console
from tests.console.stores import HOSTILE
from tests.console.test_pages import Outline, check
from tests.world import World

ID = quote(HOSTILE, safe="")
PAGES = (
    "/",
    "/topics",
    "/topics/t",
    "/topics/typed",
    "/topics/typed/records",
    "/topics/typed/records/0/0",
    "/topics/t/records",
    "/topics/t/records?as=json",
    "/topics/t/records?as=hex",
    f"/topics/t/records?text={ID}",
    f"/topics/t/records?key={ID}&header={ID}",
    *(f"/topics/t/records/0/{offset}?as={form}" for offset in range(4) for form in ("json", "text", "hex")),
    "/topics/t/files",
    "/transactions",
    f"/transactions?id={ID}",
    "/transactions/ids",
    f"/transactions/ids?prefix={ID}",
    f"/transaction?id={ID}",
    "/groups",
    f"/groups?q={ID}",
    f"/group?id={ID}",
    "/log",
    *(f"/log/{entry}" for entry in range(1, 6)),
    "/maintenance?run=1",
)
ERRORS = (
    "//evil.example/",
    f"/topics/{ID}",
    f"/topics/t/records?as={ID}",
    f"/group?id={ID}x",
    f"/transaction?id={ID}x",
    f"/{ID}",
)


@pytest.fixture
def shown(hostile: World) -> Console:
    return Console(hostile.store)


@pytest.mark.parametrize("page", PAGES, ids=map(str, range(len(PAGES))))
def test_nothing_of_a_record_or_of_a_name_becomes_html(shown: Console, page: str) -> None:
    html = shown.page(page)
    check(html)
    assert "<script" not in html.lower()
    assert "\x00" not in html
    # A field is a context of its own for the direction of text.
    outside = re.sub(r' value="[^"]*"', "", html)
    assert not {"\u202e", "\x1b"} & set(outside)
    shown.data(page)


@pytest.mark.parametrize("page", ERRORS, ids=map(str, range(len(ERRORS))))
def test_nothing_of_an_address_becomes_html(shown: Console, page: str) -> None:
    answer = shown.get(page, accept="text/html")
    assert answer.code in (400, 404)
    check(answer.text)
    assert "<script" not in answer.text.lower()
    assert not {"\x00", "\u202e", "\x1b"} & set(answer.text)


def test_a_long_value_is_cut_and_can_be_downloaded(shown: Console) -> None:
    assert len(shown.page("/topics/t/records")) < 40_000
    page = shown.data("/topics/t/records/0/2")["record"]["value"]
    assert (page["length"] > 999_000, len(page["text"]) <= 65_536, page["is_cut"]) == (True, True, True)
    answer = shown.get("/topics/t/records/0/2/value")
    assert len(answer.data) == page["length"]
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment; ")


def test_bytes_that_are_no_text_are_shown_as_hex(shown: Console) -> None:
    value = shown.data("/topics/t/records/0/1")["record"]["value"]
    assert value["hex"].startswith("ff fe 00")
    assert "ff fe 00" in shown.page("/topics/t/records")


def test_json_has_the_text_as_it_is(shown: Console) -> None:
    (row,) = [row for row in shown.data("/topics/t/records")["records"] if row["offset"] == 0]
    assert row["value"]["text"] == row["key"]["text"] == row["headers"][0]["key"] == row["transactional_id"] == HOSTILE


def test_what_turns_the_direction_of_text_is_named(shown: Console) -> None:
    assert "⟨U+202E⟩gnp.exe⟨U+0000⟩" in shown.page("/topics/t/records")


def test_a_csv_of_hostile_values_has_the_records(shown: Console) -> None:
    for kind in ("csv", "jsonl", "parquet"):
        assert shown.get(f"/topics/t/download?format={kind}").code == 200


def test_hidden_values_are_nowhere(shown: Console) -> None:
    """Names of topics, ids and members are shown: they say where, and not what."""
    world = World({"t": 1})
    world.store.create_topic("typed", schema=pa.schema([("column", pa.string()), ("other", pa.list_(pa.binary()))]))
    with world.producer() as producer:
        producer.produce("t", "SECRET value", key="SECRET key", headers=[("SECRET name", b"SECRET")])
        producer.produce_arrow("typed", pa.table({"column": ["SECRET"], "other": pa.array([[b"SECRET"]])}))
    hidden = Console(world.store, hide_values=True)
    pages = ["/topics/t/records", "/topics/typed/records", "/topics/t/records/0/0?as=hex", "/topics/typed/records/0/0"]
    pages += [f"/log/{entry}" for entry in range(1, world.entry() + 1)]
    base64 = Console(world.store).data(pages[-1])["raw"]
    for page in pages:
        for text in (hidden.page(page), json.dumps(hidden.data(page))):
            assert "SECRET" not in text
            assert b"SECRET".hex(" ") not in text
            assert "U0VDUkVU" not in text
    assert "U0VDUkVU" in base64
    for path in ("/topics/t/records/0/0/value", "/topics/t/download"):
        answer = hidden.get(path)
        assert answer.code == 403
        assert "--hide-values" in answer.text
    raw = hidden.get(f"/log/{world.entry()}/raw").json
    assert {command["data"] for command in raw["commands"] if "data" in command} == {"hidden"}
    world.close()


def test_a_filter_finds_nothing_out_while_values_are_hidden(hostile: World) -> None:
    hidden = Console(hostile.store, hide_values=True)
    found = [len(hidden.data(f"/topics/t/records?text={text}")["records"]) for text in ("gnp.exe", "not-there")]
    assert found == [4, 4]
    assert not [one for one in Outline(hidden.page("/topics/t/records")).all("input") if one["name"] == "text"]
