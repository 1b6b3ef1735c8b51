"""The source in commit order, as Spark calls it: chains, hung transactions, limits, bounds, and lost records."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from sparktxn import ConfigurationError, Producer, RetentionPassed, Store, TopicPartition, ViewExpired
from sparktxn.admin import AdminClient
from sparktxn.maintenance import compact, vacuum
from tests.spark.readers import Query, batch_reader, commit, numbers_between, numbers_of, stream_reader

ALL = ReadAllAvailable()


@pytest.fixture(autouse=True)
def topic(store: Store) -> None:
    store.create_topic("t", 3)


@pytest.fixture
def producers(store: Store) -> Any:
    made = [Producer({"bootstrap.servers": store.uri, "transactional.id": f"id-{number}"}) for number in range(3)]
    for producer in made:
        producer.init_transactions()
    yield made
    for producer in made:
        producer.close()


def begin(producer: Producer, *numbers: int, partition: int = 0) -> None:
    """Begin a transaction, and publish its first records."""
    producer.begin_transaction()
    add(producer, *numbers, partition=partition)


def add(producer: Producer, *numbers: int, partition: int = 0) -> None:
    for number in numbers:
        producer.produce("t", str(number), partition=partition)
    producer.flush()


def chain(producers: list[Producer], count: int) -> None:
    """Commit `count` transactions of two records, each begun before the one before it ends; the last stays open."""
    begin(producers[0], 0)
    for number in range(1, count + 1):
        begin(producers[number % 2], 2 * number)
        add(producers[(number - 1) % 2], 2 * number - 1)
        producers[(number - 1) % 2].commit_transaction()


def test_a_chain_of_overlapping_transactions_is_read_at_once(store: Store, producers: list[Producer]) -> None:
    chain(producers, 40)
    expected = list(range(80))
    assert numbers_of(batch_reader(store)) == expected
    assert numbers_of(batch_reader(store, order="commit")) == expected
    assert Query(stream_reader(store, startingOffsets="earliest")).run() == expected
    # The last stable offset is the first one of the transaction that is open, which lies before the last record.
    assert numbers_of(batch_reader(store, order="offset")) == expected[:-1]


def test_a_hung_transaction_holds_back_nothing(store: Store, producers: list[Producer]) -> None:
    begin(producers[0], 100)
    query = Query(stream_reader(store))
    commit(store, range(3), partition=0)
    assert query.run() == [0, 1, 2]
    begin(producers[1], 101)
    producers[1].abort_transaction()
    assert query.run() == []
    add(producers[0], 102)
    producers[0].commit_transaction()
    assert query.run() == [100, 102]
    assert query.run() == []


def test_a_limit_takes_one_transaction_of_a_chain(store: Store, producers: list[Producer]) -> None:
    chain(producers, 10)
    query = Query(stream_reader(store, startingOffsets="earliest", maxOffsetsPerTrigger="1"))
    assert [query.run() for _ in range(11)] == [*([2 * number, 2 * number + 1] for number in range(10)), []]


def test_limits_of_bytes_and_a_least_number_hold(store: Store) -> None:
    for number in range(4):
        commit(store, range(10 * number, 10 * number + 5), partition=0)
    query = Query(stream_reader(store, startingOffsets="earliest", maxBytesPerTrigger="1"))
    assert [len(query.run()) for _ in range(5)] == [5, 5, 5, 5, 0]
    waiting = Query(stream_reader(store, startingOffsets="earliest", minOffsetsPerTrigger="21"))
    assert len(waiting.run()) == 20, "the first micro-batch waits for nothing"
    commit(store, range(100, 120), partition=0)
    assert waiting.run() == []
    commit(store, range(120, 121), partition=0)
    assert len(waiting.run()) == 21


def test_latest_begins_with_what_is_committed_from_now_on(store: Store, producers: list[Producer]) -> None:
    begin(producers[0], 1)
    commit(store, range(5), partition=0)
    query = Query(stream_reader(store))
    add(producers[0], 2)
    producers[0].commit_transaction()
    assert query.run() == [1, 2]


def test_offsets_and_times_are_bounds_of_each_partition(store: Store) -> None:
    commit(store, range(10), partition=0, timestamp_ms=1_000)
    commit(store, range(10, 20), partition=0, timestamp_ms=2_000)
    end = store.view(["t"]).partitions["t", 0].log_end_offset
    others = {str(number): -1 for number in range(1, store.view(["t"]).topics["t"].partition_count)}
    starting = json.dumps({"t": {"0": 5, **others}})
    ending = json.dumps({"t": {"0": 14, **others}})
    assert numbers_of(batch_reader(store, startingOffsets=starting.replace("-1", "-2"), endingOffsets=ending)) == [
        *range(5, 10),
        *range(10, 13),
    ]
    query = Query(stream_reader(store, startingOffsets=starting))
    assert query.run() == list(range(5, 20))
    assert query.offset["topics"]["t"]["0"] == end
    timed = stream_reader(store, startingTimestamp="2000", startingOffsetsByTimestampStrategy="latest")
    assert Query(timed).run() == list(range(10, 20))


def test_a_query_goes_on_in_another_process_and_runs_a_micro_batch_again(
    store: Store, producers: list[Producer]
) -> None:
    chain(producers, 6)
    query = Query(stream_reader(store, startingOffsets="earliest", maxOffsetsPerTrigger="4"))
    first = query.offset
    rows = query.run()
    chain_end = query.offset
    store.log.checkpoint()
    again = stream_reader(store)
    assert numbers_between(again, first, chain_end) == rows == [0, 1, 2, 3]
    assert Query(again, chain_end).run() == list(range(4, 12))


def test_topics_that_are_new_are_read_from_their_first_record(store: Store) -> None:
    store.create_topic("u", 1)
    commit(store, range(3), topic="u")
    commit(store, range(10, 13))
    query = Query(stream_reader(store, startingOffsets="earliest"))
    assert query.run() == [10, 11, 12]
    commit(store, range(13, 14))
    more = Query(stream_reader(store, subscribe="t,u"), query.offset)
    assert more.run() == [0, 1, 2, 13]
    assert more.run() == []
    commit(store, range(3, 4), topic="u")
    assert more.run() == [3]


@pytest.mark.parametrize("limit", [{"maxOffsetsPerTrigger": "2"}, {"maxBytesPerTrigger": "1"}], ids=["rows", "bytes"])
def test_topics_that_are_new_catch_up_within_the_limits(store: Store, limit: dict[str, str]) -> None:
    for name in ("u", "v"):
        store.create_topic(name, 2)
    for first in (0, 2, 4):
        commit(store, range(first, first + 2), topic="u", partition=first % 4 // 2)
    commit(store, range(20, 22), topic="v")
    commit(store, range(10, 12))
    commit(store, range(12, 14))
    query = Query(stream_reader(store, startingOffsets="earliest", **limit))
    assert [query.run(), query.run()] == [[10, 11], [12, 13]]
    commit(store, range(14, 16))
    more = Query(stream_reader(store, subscribe="t,u", **limit), query.offset)
    assert more.run() == [0, 1]
    assert (more.reader.reportLatestOffset() or {})["backlogRows"] == 6
    offsets = [more.offset]
    # In the middle of it comes another topic, which has to wait, and the driver is killed after each micro-batch.
    for expected in ([2, 3], [4, 5], [20, 21], [14, 15], []):
        more = Query(stream_reader(store, subscribe="t,u,v", **limit), offsets[-1])
        assert more.run() == expected
        again = stream_reader(store, subscribe="t,u,v", **limit)
        assert numbers_between(again, offsets[-1], more.offset) == expected
        offsets.append(more.offset)
    assert [offset.get("behind", {}).get("topics") for offset in offsets] == [{"u": [0, 1]}] * 2 + [None] * 4
    # Without a limit all is read at once.
    everything = Query(stream_reader(store, subscribe="t,u,v"), offsets[0])
    assert everything.run(ReadAllAvailable()) == [2, 3, 4, 5, 14, 15, 20, 21]
    assert everything.is_idle()


def test_new_topics_that_are_compacted_further_than_the_query_are_read_whole(store: Store, producers: Any) -> None:
    """A transaction of two new topics: what has replaced a record of it comes with the other, in one micro-batch."""
    store.create_topic("c", 1, settings={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    store.create_topic("d", 1)
    producers[0].begin_transaction()
    producers[0].produce("c", "1", "k")
    producers[0].produce("d", "2")
    producers[0].commit_transaction()
    commit(store, range(10, 11))
    query = Query(stream_reader(store, startingOffsets="earliest"))
    assert query.run() == [10]
    with Producer({"bootstrap.servers": store.uri}) as plain:
        plain.produce("c", "3", "k")
    commit(store, range(11, 12))
    assert compact(store).partitions == 1
    more = Query(stream_reader(store, subscribe="t,c,d", maxOffsetsPerTrigger="1"), query.offset)
    assert more.run() == [2, 3]
    assert (more.run(), more.run()) == ([11], [])


def delete_before(store: Store, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": store.uri})
    for future in admin.delete_records([TopicPartition("t", 0, offset)]).values():
        future.result()
    admin.close()


def test_removed_records_that_were_not_read_are_an_error_or_a_warning(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(stream_reader(store, startingOffsets="earliest"))
    tolerant = Query(stream_reader(store, startingOffsets="earliest", failOnDataLoss="false"))
    commit(store, range(5), partition=0)
    assert query.run() == tolerant.run() == list(range(5))
    delete_before(store, 5)
    commit(store, range(5, 10), partition=0)
    assert query.run() == list(range(5, 10)), "what was removed had been read"
    commit(store, range(10, 15), partition=0)
    delete_before(store, 14)
    with pytest.raises(RetentionPassed, match="failOnDataLoss"):
        query.run()
    assert tolerant.run() == [12, 13, 14]


def test_removed_records_that_were_aborted_are_no_loss(store: Store, producers: list[Producer]) -> None:
    begin(producers[0], 1)
    query = Query(stream_reader(store))
    commit(store, range(5), partition=0)
    assert query.run() == list(range(5))
    producers[0].abort_transaction()
    assert query.run() == []
    delete_before(store, 6)
    assert query.run() == []
    commit(store, range(5, 6), partition=0)
    assert query.run() == [5]


def test_progress_of_the_other_order_is_refused(store: Store) -> None:
    commits, offsets = stream_reader(store), stream_reader(store, order="offset")
    with pytest.raises(ConfigurationError, match="in offset order: set the option order to offset"):
        commits.latestOffset(offsets.initialOffset(), ALL)
    with pytest.raises(ConfigurationError, match="in commit order: set the option order to commit"):
        offsets.latestOffset(commits.initialOffset(), ALL)


def test_offset_order_ends_at_the_last_stable_offset_and_may_split_transactions(
    store: Store, producers: list[Producer]
) -> None:
    begin(producers[0], 0, 1)
    begin(producers[1], 2)
    add(producers[0], 3)
    producers[0].commit_transaction()
    query = Query(stream_reader(store, order="offset", startingOffsets="earliest", maxOffsetsPerTrigger="1"))
    assert [query.run() for _ in range(3)] == [[0], [1], []]
    producers[1].commit_transaction()
    assert [query.run(ALL), query.run(ALL)] == [[2, 3], []]


def test_a_micro_batch_of_the_other_order_is_not_repeated(store: Store) -> None:
    """Spark asks for it before it asks where the next one ends."""
    commit(store, range(3), partition=0)
    readers = {order: stream_reader(store, order=order, startingOffsets="earliest") for order in ("commit", "offset")}
    starts = {order: reader.initialOffset() for order, reader in readers.items()}
    ends = {order: reader.latestOffset(starts[order], ALL) for order, reader in readers.items()}
    for order, other in (("commit", "offset"), ("offset", "commit")):
        with pytest.raises(ConfigurationError, match=f"in {other} order: set the option order to {other}"):
            readers[order].partitions(starts[other], ends[other])


@pytest.mark.parametrize("order", ["commit", "offset"])
def test_a_checkpoint_of_the_offset_order_that_kept_transactions_whole_is_refused(store: Store, order: str) -> None:
    """It says no order. Its offsets are where whole transactions end: a new query goes on there, in both orders."""
    commit(store, range(3), partition=0)
    reader = stream_reader(store, order=order)
    kept = {name: value for name, value in reader.initialOffset().items() if name != "order"}
    expected = "says no order: .* ended at whole transactions.* new checkpoint: order=commit .* as startingOffsets"
    with pytest.raises(ConfigurationError, match=expected):
        reader.latestOffset(kept, ALL)
    with pytest.raises(ConfigurationError, match=expected):
        reader.partitions(kept, kept)
    commit(store, range(3, 6), partition=0)
    more = stream_reader(store, order=order, startingOffsets=json.dumps(kept["topics"]))
    assert Query(more).run() == [3, 4, 5]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"order": "commit", "isolationLevel": "read_uncommitted"}, "'isolationLevel' as 'read_uncommitted'"),
        ({"order": "commits"}, "'order'"),
    ],
)
def test_orders_that_cannot_be_are_refused(store: Store, options: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        batch_reader(store, **options)


def test_uncommitted_reads_go_by_offsets(store: Store, producers: list[Producer]) -> None:
    begin(producers[0], 1)
    assert numbers_of(batch_reader(store, isolationLevel="read_uncommitted")) == [1]


def test_time_travel_shows_what_was_committed_by_then(store: Store, producers: list[Producer]) -> None:
    begin(producers[0], 1)
    commit(store, range(10, 12), partition=0)
    before = store.view(["t"]).entry
    producers[0].commit_transaction()
    assert numbers_of(batch_reader(store, asOfEntry=str(before))) == [10, 11]
    assert numbers_of(batch_reader(store)) == [1, 10, 11]


class TestEntries:
    def test_a_batch_reads_what_changed_between_two_entries(self, store: Store, producers: list[Producer]) -> None:
        begin(producers[0], 100)
        entries = []
        for number in range(3):
            commit(store, range(number, number + 1), partition=0)
            entries.append(store.view(["t"]).entry)
        producers[0].commit_transaction()
        last = store.view(["t"]).entry
        for first, end, expected in (
            (1, entries[0], [0]),
            (entries[0], entries[1], [0, 1]),
            (entries[0] + 1, last, [1, 2, 100]),
            (last + 1, last + 1, None),
        ):
            reader = batch_reader(store, startingEntry=str(first), endingEntry=str(end))
            if expected is None:
                with pytest.raises(ConfigurationError, match=f"'endingEntry' is {end}: the read ends at entry {last}"):
                    reader.partitions()
            else:
                assert numbers_of(reader) == expected
        assert numbers_of(batch_reader(store, startingEntry=str(last))) == [100]
        assert numbers_of(batch_reader(store, endingEntry=str(entries[1]))) == [0, 1]

    def test_changes_are_read_whose_views_a_vacuum_has_passed(self, store: Store) -> None:
        commit(store, range(3))
        entry = store.view(["t"]).entry
        for number in range(3, 9):
            commit(store, range(number, number + 1))
            store.log.checkpoint()
        vacuum(store, {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0})
        with pytest.raises(ViewExpired):
            store.view(["t"], entry=entry)
        assert numbers_of(batch_reader(store, endingEntry=str(entry))) == [0, 1, 2]

    def test_a_stream_starts_at_an_entry(self, store: Store) -> None:
        commit(store, range(3))
        entry = store.view(["t"]).entry
        commit(store, range(3, 5))
        assert Query(stream_reader(store, startingEntry=str(entry))).run() == [0, 1, 2, 3, 4]
        assert Query(stream_reader(store, startingEntry=str(entry + 1))).run() == [3, 4]

    def test_a_start_after_the_next_entry_is_refused(self, store: Store) -> None:
        """A start at the next entry is not: a job that goes on where its last run ended found nothing new."""
        commit(store, range(3))
        entry = store.view(["t"]).entry
        first = str(entry + 1)
        assert numbers_of(batch_reader(store, startingEntry=first)) == []
        assert Query(stream_reader(store, startingEntry=first)).run() == []
        late, expected = str(entry + 2), f"'startingEntry' is {entry + 2}: expected at most {first}"
        with pytest.raises(ConfigurationError, match=expected):
            batch_reader(store, startingEntry=late).partitions()
        with pytest.raises(ConfigurationError, match=expected):
            stream_reader(store, startingEntry=late).initialOffset()

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            ({"startingEntry": "5", "endingEntry": "4"}, "'startingEntry' is 5, after 'endingEntry', which is 4"),
            ({"startingEntry": "0"}, "'startingEntry'"),
            ({"startingEntry": "5", "startingOffsets": "earliest"}, "'startingEntry' and 'startingOffsets' exclude"),
            ({"endingEntry": "5", "endingTimestamp": "1"}, "'endingEntry' and 'endingTimestamp' exclude"),
            ({"startingEntry": "5", "order": "offset"}, "'startingEntry' needs 'order' as 'commit'"),
            (
                {"startingEntry": "5", "isolationLevel": "read_uncommitted"},
                "'startingEntry' does not go with 'isolationLevel' as 'read_uncommitted'",
            ),
        ],
    )
    def test_what_cannot_be_is_refused(self, store: Store, options: dict[str, str], named: str) -> None:
        with pytest.raises(ConfigurationError, match=named):
            batch_reader(store, **options)


def test_internal_topics_are_read_entry_by_entry(store: Store) -> None:
    commit(store, range(2))
    reader = stream_reader(store, subscribe="__transaction_state", startingOffsets="earliest", columns="entry")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert end["entry"] == store.view(["t"]).entry
    assert reader.latestOffset(end, ALL) == end
