"""The figures of plots equal what the store's history says, however old it is, and whatever vacuums have left of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sparktxn import ConsumerGroupTopicPartitions, Producer, TopicPartition, read_arrow
from sparktxn._foundation.values.fieldtypes import TopicIdPartition
from sparktxn._programs.console.history.entryfacts import Chronicle, EntryFacts, Moved
from sparktxn._programs.console.history.entryfigures import BUCKETS_MAX, SPANS, KnownPast, Past, Tally
from sparktxn._programs.console.plots import Buckets, lag_plot, rates
from sparktxn.maintenance import rewrite, vacuum
from sparktxn.store import Store, read_table_task
from sparktxn.testing.clocks import ManualClock
from tests.console.asking import Console
from tests.world import ClockedWorld

TOPICS = ("a", "b")
PARTITIONS = 2
NOW = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.temporary.age.ms": 0}
WAITS_S = (0, 1, 20, 700, 40_000, 500_000)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["commit", "abort", "offsets", "fold", "vacuum", "look", "read"]),
        st.sampled_from(TOPICS),
        st.integers(0, PARTITIONS - 1),
        st.sampled_from(WAITS_S),
    ),
    min_size=4,
    max_size=24,
)


class Entry(NamedTuple):
    """What the table `entries` says of one."""

    timestamp_ms: int
    records: dict[str, int]
    ends: tuple[bool, ...]


class Lived:
    """A store on a clock that stands still but between steps, and what its public tables have said of each entry."""

    def __init__(self) -> None:
        self.world = ClockedWorld(seed=7, checkpoint_entries=5, timeout_check_interval_ms=10**15)
        self.log = self.world.process()
        self.uri = self.world.lend("lived", self.log)
        self.store = Store(self.uri, {}, self.log)
        for topic in TOPICS:
            self.store.create_topic(topic, PARTITIONS)
        self.producer = Producer({"bootstrap.servers": self.uri, "transactional.id": "job"})
        self.producer.init_transactions()
        self.entries: dict[int, Entry] = {}
        self.lags: list[tuple[int, int]] = []

    def step(self, what: str, topic: str, partition: int, wait_s: int) -> None:
        self.clock.now_s += wait_s
        if what in ("commit", "abort"):
            self.producer.begin_transaction()
            for _ in range(1 + wait_s % 3):
                self.producer.produce(topic, b"x" * 10, partition=partition, timestamp=self.clock.wall_ms())
            self.producer.flush()
            if what == "commit":
                self.producer.commit_transaction()
            else:
                self.producer.abort_transaction()
        elif what == "offsets":
            end = self.store.view([topic]).partitions[topic, partition].log_end_offset
            offsets = [TopicPartition(topic, partition, end)]
            self.store.commit_offsets(ConsumerGroupTopicPartitions("g", offsets))
        elif what == "fold":
            rewrite(self.store, {"rewrite.min.segments": 2})
        elif what == "vacuum":
            self.note()
            self.log.checkpoint()
            self.clock.now_s += 1
            vacuum(self.store, NOW)
        self.note()

    @property
    def clock(self) -> ManualClock:
        return self.world.clock

    def rows(self, table: str) -> Iterator[dict[str, Any]]:
        for task in self.store.plan_table(table):
            for batch in read_table_task(task):
                yield from batch.to_pylist()

    def texts(self, topic: str) -> list[bytes]:
        return read_arrow(self.store, topic).read_all()["value"].to_pylist()

    def note(self) -> None:
        for row in self.rows("entries"):
            self.entries[row["entry"]] = Entry(
                round(row["timestamp"].timestamp() * 1000),
                {one["topic"]: one["record_count"] for one in row["records"]},
                tuple(one["committed"] for one in row["transactions"]),
            )
        ends, offsets = self.places()
        self.lags.append((self.clock.wall_ms(), sum(max(0, ends[place] - at) for place, at in offsets.items())))

    def places(self) -> tuple[dict[TopicIdPartition, int], dict[TopicIdPartition, int]]:
        """Where partitions end, and what the group has committed."""
        view = self.store.view(None)
        ends = {(one.topic.topic_id, one.partition): one.log_end_offset for one in view.partitions.values()}
        ids = {topic.name: topic.topic_id for topic in view.topics.values()}
        found = self.store.committed_offsets("g").topic_partitions or []
        return ends, {(ids[one.topic], one.partition): one.offset for one in found}

    def known(self, past: Past) -> KnownPast:
        return past.up_to(self.log.refresh())


@contextmanager
def lived() -> Iterator[Lived]:
    found = Lived()
    try:
        yield found
    finally:
        found.producer.close()
        found.world.close()


def read_all(lived: Lived, past: Past) -> KnownPast:
    """What is known once loads of pages have read all."""
    for _ in range(1_000):
        known = lived.known(past)
        assert not known.problem
        if known.is_complete:
            return known
        past.read_on(0.001)
    raise AssertionError("it is never read")


def counts(buckets: Buckets, series: dict[str, list[float]]) -> dict[str, list[int]]:
    """What rates count, in each bucket; rows of nothing are left out."""
    found = {}
    for name, values in series.items():
        width_s = (buckets.end_ms - buckets.start_ms) / len(values) / 1000
        found[name] = [round(value * width_s) for value in values]
    return {name: values for name, values in found.items() if any(values)}


def expected(entries: list[Entry], buckets: Buckets, count: int) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """What the entries say of the same buckets: records by topic, and ends of transactions."""
    width_ms = (buckets.end_ms - buckets.start_ms) // count
    records: dict[str, list[int]] = {}
    ends: dict[str, list[int]] = {}
    for entry in entries:
        place = (entry.timestamp_ms - buckets.start_ms) // width_ms
        if 0 <= place < count:
            for topic, found in entry.records.items():
                records.setdefault(topic, [0] * count)[place] += found
            for committed in entry.ends:
                ends.setdefault("commits" if committed else "aborts", [0] * count)[place] += 1
    return records, ends


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
# A vacuum takes a part of what lies between counted entries.
@example(
    [("commit", "a", 0, 20)] * 3
    + [("look", "a", 0, 0)]
    + [("commit", "b", 1, 700)] * 9
    + [("look", "a", 0, 1)]
    + [("commit", "a", 1, 1), ("vacuum", "a", 0, 1), ("commit", "b", 0, 1), ("vacuum", "a", 0, 1)]
)
def test_plots_are_what_the_history_says(steps: list[tuple[str, str, int, int]]) -> None:
    with lived() as store:
        past = Past(store.log, Chronicle(store.log.objects, entries_max=3), stretch=4)
        for what, topic, partition, wait_s in steps:
            store.step(what, topic, partition, wait_s)
            if what == "look":
                store.known(past)
            elif what == "read":
                past.read_on(0.001)
        now_ms = store.clock.wall_ms()
        for one in (past, Past(store.log, Chronicle(store.log.objects, entries_max=3), stretch=4)):
            known = read_all(store, one)
            check_rates(store, known, now_ms)
            check_lag(store, known, now_ms)


def check_rates(store: Lived, known: KnownPast, now_ms: int) -> None:
    assert known.first_entry is not None
    counted = [entry for number, entry in store.entries.items() if number >= known.first_entry]
    assert known.entries == len(counted)
    for span, length_ms in SPANS.items():
        start_ms = counted[0].timestamp_ms if length_ms is None else now_ms - length_ms
        buckets = rates([known.tallies[0].by_span[span]], start_ms, now_ms)
        number = len(buckets.endings["commits"])
        records, ends = expected(counted, buckets, number)
        assert counts(buckets, buckets.records) == records
        assert counts(buckets, buckets.endings) == ends
    # What the entries do not say, the manifests do: all records that are in the store, and no other.
    older: Counter[str] = Counter()
    size_bytes: Counter[str] = Counter()
    for row in store.rows("segments"):
        if row["entry"] < known.first_entry:
            older[row["topic"]] += row["record_count"]
            size_bytes[row["topic"]] += row["size_bytes"]
    if not known.older:
        assert known.first_entry == 1
        return
    tally = known.tallies[1].by_span["all"]
    assert sum((Counter(one.records) for one in tally.buckets.values()), Counter()) == older
    assert sum((Counter(one.size_bytes) for one in tally.buckets.values()), Counter()).keys() == size_bytes.keys()


def check_lag(store: Lived, known: KnownPast, now_ms: int) -> None:
    ends, offsets = store.places()
    assert known.first_timestamp_ms is not None
    for span, length_ms in SPANS.items():
        from_ms = known.first_timestamp_ms
        start_ms = from_ms if length_ms is None else max(from_ms, now_ms - length_ms)
        plot = lag_plot(known.tallies[0].by_span[span], "g", start_ms, now_ms, offsets, ends)
        values = plot.curves[0].values
        width_ms = (plot.end_ms - plot.start_ms) // len(values)
        for number, value in enumerate(values):
            until_ms = plot.start_ms + (number + 1) * width_ms
            before = [lag for at_ms, lag in store.lags if at_ms < until_ms]
            if until_ms > from_ms:
                assert value == (before[-1] if before else 0), (span, number)


def test_memory_is_bounded_whatever_the_entries_name() -> None:
    tally = Tally(None, cells_max=2_000)
    for entry in range(3_000):
        at_ms = 1_700_000_000_000 + entry * 977
        ends = {(1, entry * 7 % 150 + part): Moved(entry, entry + 1) for part in range(10)}
        facts = EntryFacts(entry, at_ms, (), {f"topic-{entry % 40}": 3}, {f"topic-{entry % 40}": 30}, (), ends, {})
        tally.add_facts(facts)
        assert len(tally.buckets) <= BUCKETS_MAX
        assert sum(one.cells for one in tally.buckets.values()) < 2_000 + 2_000 // 4 + facts.weight
    assert sum(sum(one.records.values()) for one in tally.buckets.values()) == 3 * 3_000


def test_a_page_reads_on_and_says_how_far_it_has_got() -> None:
    with lived() as store:
        for number in range(20):
            store.step("commit", TOPICS[number % 2], 0, 700)
        console = Console(store.store)
        source = console.source
        source.past = Past(store.log, Chronicle(store.log.objects, entries_max=3), stretch=8)
        first, then = console.data("/"), console.data("/?span=day")
        assert (first["history"]["is_complete"], then["history"]["is_complete"]) == (False, True)
        assert (first["history"]["entries"], then["history"]["entries"]) == (3, store.log.entry)
        assert then["history"]["first_entry"] == 1
        assert f"{then['history']['entries']} entries are counted" in console.page("/?span=all")
        (a, b), ends = then["plots"][0]["curves"], then["plots"][2]
        width_s = (ends["end_ms"] - ends["start_ms"]) / len(a["values"]) / 1000
        assert [round(sum(curve["values"]) * width_s) for curve in (a, b)] == [20, 20]


def test_a_store_that_was_vacuumed_has_a_history_of_records() -> None:
    with lived() as store:
        for number in range(12):
            store.step("commit", TOPICS[number % 2], number % PARTITIONS, 700)
        for what in ("fold", "vacuum", "commit", "vacuum"):
            store.step(what, "a", 0, 700)
        console = Console(store.store)
        console.data("/")
        found = console.data("/?span=all")
        width_s = (found["plots"][0]["end_ms"] - found["plots"][0]["start_ms"]) / 1000
        sums = {
            curve["name"]: round(sum(curve["values"]) / len(curve["values"]) * width_s)
            for curve in found["plots"][0]["curves"]
        }
        assert found["history"]["first_entry"] > 1
        assert sums == {topic: len(list(store.texts(topic))) for topic in TOPICS}
        assert "before it by the times of records" in console.page("/")
