"""The timeline of a store equals what its history says, whatever producers did."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparktxn import IllegalStateException, KafkaException, Producer
from sparktxn._programs.console.history.entryfacts import Chronicle, EntryFacts
from sparktxn._programs.console.history.timeline import lanes_of
from sparktxn._programs.console.pages.transactions import open_rows
from sparktxn._programs.console.pagesource import Source
from sparktxn.admin import AdminClient
from sparktxn.store import read_task
from tests.console.asking import Console
from tests.world import World

IDS = ("a", "b", "c")
STEPS = st.lists(
    st.tuples(st.sampled_from(IDS), st.sampled_from(["commit", "abort", "flush", "new", "fence", "prepare"])),
    min_size=1,
    max_size=14,
)


def act(world: World, steps: list[tuple[str, str]]) -> None:
    """Run producers; one that was fenced is forgotten, and the next step begins with a new one."""
    producers: dict[str, Producer] = {}
    admin = AdminClient({"bootstrap.servers": world.uri})
    for name, step in steps:
        if step == "fence":
            admin.fence_producers([name])[name].result()
            producers.pop(name, None)
            continue
        if step == "new" or name not in producers:
            producers[name] = world.transactional(name)
        producer = producers[name]
        with suppress(IllegalStateException, KafkaException):  # One is open that was flushed.
            producer.begin_transaction()
        producer.produce("t", name)
        if step == "commit":
            producer.commit_transaction()
        else:
            producer.flush()
        if step == "abort":
            producer.abort_transaction()
        elif step == "prepare":
            producer.prepare_transaction()
            del producers[name]
    admin.close()


def history(world: World) -> list[dict[str, Any]]:
    """The rows of Kafka's internal topic, which `history()` and consumers read."""
    view = world.store.view(["__transaction_state"])
    tasks = world.store.plan_view(view)
    return [row for task in tasks for batch in read_task(task) for row in batch.to_pylist()]


def expected(rows: list[dict[str, Any]]) -> dict[tuple[str, int, int], tuple[str, int | None]]:
    """How each transaction ended, and in which entry."""
    found: dict[tuple[str, int, int], tuple[str, int | None]] = {}
    for row in rows:
        key = (row["transactional_id"], row["producer_id"], row["transaction"])
        if row["state"] == "Ongoing":
            found[key] = ("prepared" if row["prepared"] else "open", None)
        elif row["state"] in ("PrepareCommit", "PrepareAbort"):
            found[key] = ("committed" if row["state"] == "PrepareCommit" else "aborted", row["entry"])
    return found


def drawn(facts: list[EntryFacts]) -> dict[tuple[str, int, int], tuple[str, int | None]]:
    return {bar.name: (bar.outcome, bar.ended_entry) for lane in lanes_of(facts) for bar in lane.bars}


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_the_timeline_is_what_the_history_says(steps: list[tuple[str, str]]) -> None:
    world = World({"t": 1})
    try:
        act(world, steps)
        rows, last = history(world), world.entry()
        chronicle = Chronicle(world.store.log.objects)
        assert drawn(list(chronicle.up_to(last))) == expected(rows)
        # The state agrees.
        ongoing = sorted(key[0] for key, (outcome, _) in expected(rows).items() if outcome in ("open", "prepared"))
        source = Source(world.store)
        opened = open_rows(source, source.transactions())
        assert sorted(row["transactional_id"] for row in opened) == ongoing
        assert len({row["transactional_id"] for row in rows}) == len(
            Console(world.store).data("/transactions/ids")["ids"]
        )
    finally:
        world.close()


def test_a_window_of_older_entries_is_replayed(busy: World) -> None:
    kept = Chronicle(busy.store.log.objects, entries_max=3)
    last = busy.entry()
    assert [facts.entry for facts in kept.up_to(last)] == [last - 2, last - 1, last]
    whole = Chronicle(busy.store.log.objects).up_to(last)
    assert list(kept.window(6, 4)) == list(whole)[2:6]
    assert list(kept.window(last, 2)) == list(whole)[-2:]


def test_what_is_kept_is_bounded_by_its_size(busy: World) -> None:
    last = busy.entry()
    few = Chronicle(busy.store.log.objects, weight_max=30).up_to(last)
    assert 1 <= len(few) < last
    assert sum(facts.weight for facts in few) <= 30
    assert few[-1].entry == last


def test_reasons_are_those_that_the_producers_get(busy: World) -> None:
    world = World({"t": 1})
    act(world, [("a", "flush"), ("a", "new"), ("b", "flush"), ("b", "fence")])
    bars = [bar for lane in lanes_of(Chronicle(world.store.log.objects).up_to(world.entry())) for bar in lane.bars]
    assert [(bar.transactional_id, bar.outcome, bar.reason) for bar in sorted(bars, key=lambda bar: bar.name)] == [
        ("a", "aborted", "a newer producer has initialised it"),
        ("a", "open", ""),
        ("b", "aborted", "an administrator has fenced it"),
    ]
    world.close()
