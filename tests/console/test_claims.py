"""What pages claim is true for the store that they show: after each job, for each kind of group and of transaction."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from sparktxn import TopicPartition
from sparktxn._engine.format.commands import JoinGroup
from sparktxn._foundation.config.topic import TOPIC_SETTINGS
from sparktxn.maintenance import maintain, rewrite
from sparktxn.store.memberexpiry import members_name, submit_join
from tests.console.asking import Console
from tests.world import World


@pytest.fixture
def world() -> Iterator[World]:
    with closing(World({"t": 2, "u": 1})) as found:
        yield found


def commit(world: World, count: int) -> None:
    for number in range(count):
        world.produce(f"{number}", partition=number % 2)


def test_small_files_are_files_that_a_rewrite_merges(world: World) -> None:
    console = Console(world.store)
    assert console.data("/")["small_files"] == []
    commit(world, 20)
    assert console.data("/")["small_files"] == ["t"]
    assert console.data("/topics/t")["small_files"] == 20
    assert rewrite(world.store, {}).ranges
    assert console.data("/")["small_files"] == []
    assert "No topic has small files" in console.page("/")
    assert [row["small_files"] for row in console.data("/files")["topics"]] == [0, 0]
    assert not rewrite(world.store, {}).ranges
    assert console.data("/topics/t")["segments"] == 20
    commit(world, 8)
    assert console.data("/topics/t")["small_files"] == 10  # the two that the rewrite has made, too
    maintain(world.store)
    assert console.data("/topics/t")["small_files"] == 0
    assert '<span class="tag"' not in console.page("/topics") + console.page("/topics/t") + console.page("/files")


def test_segments_without_a_file_are_said_to_be_in_entries(world: World) -> None:
    commit(world, 6)
    console = Console(world.store)
    found = console.data("/topics/t/files")
    assert (found["in_entries"], sum(row["files"] for row in found["sizes"])) == (6, 0)
    assert found["histogram"]["columns"][0]["name"] == "in entries"
    page = console.page("/topics/t/files")
    assert "6 segments have no file of their own" in page
    assert "No file" not in page
    rewrite(world.store, {"rewrite.min.segments": 2})
    while (found := console.data("/topics/t/files"))["manifests_left"]:
        pass
    assert (found["in_entries"], sum(row["files"] for row in found["sizes"])) == (0, 2)


def test_a_prepared_transaction_has_no_time_out(world: World) -> None:
    producer = world.transactional("bank")
    producer.begin_transaction()
    producer.produce("t", "paid")
    producer.prepare_transaction()
    console = Console(world.store)
    (row,) = console.data("/transactions")["open"]
    assert (row["outcome"], row["timeout_ms"], row["overdue"]) == ("prepared", None, False)
    assert console.data("/")["open_transactions"][0]["timeout_ms"] is None
    assert console.data("/transactions/ids")["ids"][0]["timeout_ms"] is None
    assert console.data("/transaction?id=bank")["state"]["timeout_ms"] is None
    for page in ("/", "/transactions", "/transactions/ids", "/transaction?id=bank"):
        assert re.search(r">none</span>", console.page(page)), page
        assert "1\xa0min" not in console.page(page)


def test_only_a_producer_that_was_there_is_fenced(world: World) -> None:
    for transactional_id in ("a", "b", "a"):
        world.transactional(transactional_id)
    console = Console(world.store)
    newest = world.entry()
    expected = {newest - 2: False, newest - 1: False, newest: True}
    said = {row["entry"]: row["sentences"][0] for row in console.data("/log")["entries"]}
    for entry, fences in expected.items():
        assert ("fences the one before it" in said[entry]) == fences
        (command,) = console.data(f"/log/{entry}")["commands"]
        assert ("fences the one before it" in command["sentence"]) == fences


def test_groups_have_their_own_names_alone(world: World) -> None:
    log = world.store.log
    join = JoinGroup(
        request_id=log.ids.token(),
        group_id=members_name("streams"),
        member_id="m-1",
        topics=(),
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        assignors=("uniform",),
        classic=True,
    )
    submit_join(log, join)
    console = Console(world.store)
    (row,) = console.data("/groups")["groups"]
    assert (row["group_id"], row["members"]) == ("streams", 1)
    found = console.data("/group?id=streams")
    assert [one["member_id"] for one in found["members"]] == ["m-1"]
    assert "joins group 'streams'" in found["events"][-1]["sentence"]
    assert found["members"][0]["is_overdue"] is False
    for page in ("/", "/groups", "/group?id=streams", "/log", "/topics/t"):
        assert "__members_of" not in console.page(page), page
    assert console.data(f"/group?id={members_name('streams')}")["group_id"] == "streams"


def test_the_page_of_a_topic_lists_all_settings_itself(world: World) -> None:
    world.store.create_topic("v", settings={"retention.ms": "1000"})
    console = Console(world.store)
    assert console.data("/topics/v")["settings"] == {"retention.ms": "1000"}
    page = console.page("/topics/t")
    assert "All settings have their defaults." in page
    assert "txnlog settings" not in page
    assert all(f"<code>{one.name}</code>" in page for one in TOPIC_SETTINGS)


def test_a_topic_lists_its_groups_with_their_lag(world: World) -> None:
    commit(world, 4)
    offsets = [TopicPartition("t", 0, 1), TopicPartition("t", 1, 0)]
    world.consumer(group_id="readers").commit(offsets=offsets, asynchronous=False)
    console = Console(world.store)
    (row,) = console.data("/topics/t")["groups"]
    assert (row["group_id"], row["lag"]) == ("readers", console.data("/group?id=readers")["lag"])
    assert console.data("/topics/u")["groups"] == []
    assert "Lag in this topic" in console.page("/topics/t")


TABLES = {
    "/topics": ("topics", "sort"),
    "/topics/six": ("partitions", "sort"),
    "/groups": ("groups", "sort"),
    "/group?id=readers": ("partitions", "sort"),
    "/transactions": ("transactions", "sort"),
    "/transactions?count=100": ("open", "open"),
    "/files": ("topics", "sort"),
}


@pytest.mark.parametrize("target", TABLES)
def test_each_head_of_a_table_sorts_it(console: Console, target: str) -> None:
    rows_name, parameter = TABLES[target]
    links = re.findall(rf'<th scope="col"[^>]*><a href="([^"]*[?;&]{parameter}=-?(\w+))">', console.page(target))
    assert len({column for _, column in links}) == len(links) >= 4
    for link, column in links:
        for _ in range(2):  # a head that is chosen again turns the order
            address = link.replace("&amp;", "&")
            page = console.page(address)
            chosen = re.findall(r'aria-sort="(\w+)"><a href="([^"]*)"', page)
            own = [
                (order, next_link) for order, next_link in chosen if re.search(rf"{parameter}=-?{column}$", next_link)
            ]
            assert len(own) == 1
            values = [row[column] for row in console.data(address)[rows_name] if row[column] is not None]
            assert values == sorted(values, reverse=own[0][0] == "descending")
            link = own[0][1]


def test_pages_of_a_sorted_table_have_each_row_once() -> None:
    with closing(World({f"t{number:03}": 1 for number in range(205)})) as world:
        for number in (3, 77, 150):
            world.produce("x" * number, topic=f"t{number:03}")
        console = Console(world.store)
        found: list[str] = []
        target: Any = "/topics?sort=-size_bytes"
        while target:
            page = console.data(target)
            found += [row["topic"] for row in page["topics"]]
            target = page["next_skip"] and f"/topics?sort=-size_bytes&skip={page['next_skip']}"
        assert found[:3] == ["t150", "t077", "t003"]
        assert sorted(found) == sorted(world.store.view().topics)


def test_an_entry_leads_to_the_ones_next_to_it(world: World) -> None:
    commit(world, 3)
    console, newest = Console(world.store), world.entry()
    for entry in range(1, newest + 1):
        links = re.findall(r'<a rel="(\w+)" href="/log/(\d+)">', console.page(f"/log/{entry}"))
        expected = {"prev": entry - 1, "next": entry + 1}
        assert {rel: int(to) for rel, to in links} == {rel: to for rel, to in expected.items() if 1 <= to <= newest}


def test_one_thing_has_one_colour(console: Console) -> None:
    colours: dict[str, set[str]] = {}
    for span in ("hour", "day", "week", "all"):
        for plot in console.data(f"/?span={span}")["plots"]:
            of_plot = [curve["colour"] for curve in plot["curves"]]
            assert len(set(of_plot)) == len(of_plot)
            for curve in plot["curves"]:
                colours.setdefault(curve["name"], set()).add(curve["colour"])
    assert {name for name, found in colours.items() if len(found) > 1} == set()
    assert (colours["commits"], colours["aborts"]) == ({"committed"}, {"aborted"})
    assert all(colour.startswith("topic-") for colour in colours["six"] | colours["trips"])


def test_figures_of_a_legend_say_what_they_are(console: Console) -> None:
    legend = re.findall(r"<li><i class=.*?</li>", console.page("/"))
    assert legend
    for line in legend:
        assert re.search(r": at most <b>[^<]*(records|B|iB|ends)/s</b>", line), line


def test_a_time_without_a_partition_leaves_out_older_records(world: World) -> None:
    with world.producer() as producer:
        for number in range(6):
            producer.produce("t", b"v", partition=number % 2, timestamp=1_000_000 + 1_000 * number)
    console = Console(world.store)
    assert len(console.data("/topics/t/records?time=1003000")["records"]) == 3
    assert console.get("/topics/t/records?offset=1", accept="application/json").code == 400
    assert console.get("/topics/t/records?partition=0&until=1", accept="application/json").code == 400
    assert console.data("/topics/u/records?offset=0")["partition"] == 0
