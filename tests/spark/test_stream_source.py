"""The streaming source as Spark calls it: patterns, limits, lost topics, and what it reports."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from pyspark_txnlog.source import DefaultSource
from sparktxn import CommandRefused, ConfigurationError, Producer, Store
from sparktxn.admin import AdminClient
from sparktxn.testing.clocks import ManualClock
from tests.spark.readers import VALUE, Query, batch_reader, commit, numbers_between, numbers_of, stream_reader

ALL = ReadAllAvailable()


def test_wrong_options_are_reported_when_the_reader_is_used() -> None:
    """Spark follows an error raised earlier with an UnboundLocalError of its own."""
    reader: Any = DefaultSource({"path": "/nowhere", "subscribe": "t", "endingoffsets": "latest"}).streamReader(VALUE)
    for call in (
        reader.initialOffset,
        reader.getDefaultReadLimit,
        reader.prepareForTriggerAvailableNow,
        lambda: reader.latestOffset({}, ALL),
        lambda: reader.partitions({}, {}),
        lambda: reader.read(None),
    ):
        with pytest.raises(ConfigurationError, match="'endingOffsets' belongs to read, not to readStream"):
            call()


def delete_topic(store: Store, name: str) -> None:
    AdminClient({"bootstrap.servers": store.uri}).delete_topics([name])[name].result()


class TestSubscribePattern:
    def test_a_pattern_matches_whole_names_and_no_internal_topic(self, store: Store) -> None:
        for name in ("orders", "orders-eu", "myorders"):
            store.create_topic(name)
            commit(store, range(len(name)), name)
        assert len(numbers_of(batch_reader(store, subscribePattern="orders.*"))) == 6 + 9
        assert len(numbers_of(batch_reader(store, subscribePattern="orders"))) == 6
        assert len(numbers_of(batch_reader(store, subscribePattern=".*"))) == 6 + 9 + 8

    def test_a_pattern_that_nothing_matches_yet_reads_nothing(self, store: Store) -> None:
        store.create_topic("other")
        assert numbers_of(batch_reader(store, subscribePattern="t[0-9]")) == []
        query = Query(stream_reader(store, subscribePattern="t[0-9]"))
        assert query.is_idle()
        store.create_topic("t1")
        commit(store, range(3), "t1")
        assert query.run() == [0, 1, 2], "a topic that appears later is read from its start"

    def test_a_batch_matches_the_topics_of_its_view(self, store: Store) -> None:
        store.create_topic("t1")
        commit(store, range(3), "t1")
        entry = store.view().entry
        store.create_topic("t2")
        commit(store, range(3, 5), "t2")
        assert numbers_of(batch_reader(store, subscribePattern="t.")) == [0, 1, 2, 3, 4]
        assert numbers_of(batch_reader(store, subscribePattern="t.", asOfEntry=str(entry))) == [0, 1, 2]

    def test_partitions_that_are_added_are_found(self, store: Store) -> None:
        store.create_topic("t1")
        query = Query(stream_reader(store, subscribePattern="t.", startingOffsets="earliest"))
        AdminClient({"bootstrap.servers": store.uri}).create_partitions([_three_partitions("t1")])["t1"].result()
        commit(store, range(4), "t1", partition=2)
        assert query.run() == [0, 1, 2, 3]

    def test_a_topic_that_is_gone_fails_the_query_unless_it_is_allowed(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        for name in ("t1", "t2"):
            store.create_topic(name)
        options = {"subscribePattern": "t.", "startingOffsets": "earliest"}
        strict = Query(stream_reader(store, **options))
        tolerant = Query(stream_reader(store, **options, failOnDataLoss="false"))
        commit(store, range(3), "t1")
        delete_topic(store, "t2")
        with pytest.raises(ConfigurationError, match=r"topic 't2' was deleted since .*failOnDataLoss to false"):
            strict.run()
        with caplog.at_level(logging.WARNING, "sparktxn"):
            assert tolerant.run() == [0, 1, 2]
            assert tolerant.is_idle()
        assert [message for message in caplog.messages if "t2" in message] == [
            "topic 't2' was deleted: the query continues with the records of existing topics"
        ]


def _three_partitions(topic: str) -> Any:
    from sparktxn.admin import NewPartitions

    return NewPartitions(topic, 3)


def started_again(store: Store, **options: str) -> Query:
    """Run the micro-batch of the numbers 0 and 1, repeat it in another reader, and return the query that goes on."""
    query = Query(stream_reader(store, **options))
    start = query.offset
    assert query.run() == [0, 1]
    again = stream_reader(store, **options)
    assert numbers_between(again, start, query.offset) == [0, 1]
    return Query(again, query.offset)


@pytest.mark.parametrize("order", ["commit", "offset"])
class TestStartedAgain:
    """A query that was stopped, or killed in a micro-batch, and continues with the same or with other topics."""

    def test_partitions_that_were_not_assigned_are_read_from_their_first_record(self, store: Store, order: str) -> None:
        store.create_topic("t", 2)
        commit(store, range(2), partition=0)
        commit(store, range(10, 12), partition=1)
        query = Query(stream_reader(store, assign='{"t":[0]}', startingOffsets="earliest", order=order))
        assert query.run() == [0, 1]
        more = Query(stream_reader(store, subscribe="t", order=order), query.offset)
        assert more.run() == [10, 11]
        commit(store, range(2, 4), partition=1)
        assert more.run() == [2, 3]

    @pytest.mark.parametrize("is_created_later", [False, True])
    def test_a_micro_batch_has_no_rows_of_a_topic_that_is_subscribed_since(
        self, store: Store, order: str, is_created_later: bool
    ) -> None:
        def create() -> None:
            store.create_topic("u")
            commit(store, range(50, 53), "u")

        store.create_topic("t")
        commit(store, range(3))
        if not is_created_later:
            create()
        query = Query(stream_reader(store, startingOffsets="earliest", order=order))
        start = query.offset
        query.run()
        if is_created_later:
            create()
        again = stream_reader(store, subscribe="t,u", order=order)
        assert numbers_between(again, start, query.offset) == [0, 1, 2]
        assert Query(again, query.offset).run() == [50, 51, 52]


def test_a_micro_batch_may_end_before_a_partition_was_added(store: Store) -> None:
    store.create_topic("t1")
    commit(store, range(2), "t1")
    commit(store, range(2, 4), "t1")
    AdminClient({"bootstrap.servers": store.uri}).create_partitions([_three_partitions("t1")])["t1"].result()
    commit(store, range(4, 6), "t1", partition=2)
    options = {"subscribe": "t1", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    more = started_again(store, **options)
    assert [more.run(), more.run()] == [[2, 3], [4, 5]]


@pytest.mark.parametrize("what", [{"subscribe": "t,u"}, {"subscribePattern": "."}, {"assign": '{"t":[0],"u":[0]}'}])
def test_a_micro_batch_may_end_before_a_topic_was_created(store: Store, what: dict[str, str]) -> None:
    store.create_topic("t")
    commit(store, range(2))
    commit(store, range(2, 4))
    store.create_topic("u")
    commit(store, range(50, 53), "u")
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "2", **what}
    more = started_again(store, **options)
    assert [more.run(), more.run()] == [[2, 3], [50, 51, 52]]


class TestCreatedAgain:
    @pytest.mark.parametrize("count", [3, 5])
    def test_the_query_continues_at_the_new_topics_start_if_it_is_allowed(
        self, store: Store, caplog: pytest.LogCaptureFixture, count: int
    ) -> None:
        store.create_topic("t")
        query = Query(stream_reader(store, startingOffsets="earliest", failOnDataLoss="false"))
        commit(store, range(3))
        assert query.run() == [0, 1, 2]
        commit(store, range(3, 6))
        delete_topic(store, "t")
        store.create_topic("t")
        commit(store, range(10, 10 + count))
        with caplog.at_level(logging.WARNING, "sparktxn"):
            assert query.run() == list(range(10, 10 + count)), "also where the new topic is as long as the old one was"
        assert [message for message in caplog.messages if "created again" in message] == [
            "topic 't' was deleted and created again: the query continues with the records of existing topics"
        ]
        assert query.is_idle()

    @pytest.mark.parametrize("order", ["commit", "offset"])
    @pytest.mark.parametrize("what", [{"subscribe": "t,u"}, {"assign": '{"t":[0],"u":[0]}'}], ids=["names", "assigned"])
    def test_a_query_goes_on_between_the_two_if_it_is_allowed(
        self, store: Store, caplog: pytest.LogCaptureFixture, order: str, what: dict[str, str]
    ) -> None:
        for name in ("t", "u"):
            store.create_topic(name)
        options = {"startingOffsets": "earliest", "order": order, **what}
        query = Query(stream_reader(store, failOnDataLoss="false", **options))
        strict = Query(stream_reader(store, **options))
        commit(store, range(3))
        assert query.run() == strict.run() == [0, 1, 2]
        delete_topic(store, "t")
        commit(store, range(5, 7), "u")
        with pytest.raises(CommandRefused, match="topic 't' does not exist"):
            strict.run()
        start = query.offset
        with caplog.at_level(logging.WARNING, "sparktxn"):
            assert query.run() == [5, 6]
        assert "topic 't' was deleted: the query continues" in caplog.text
        assert query.is_idle()
        store.create_topic("t")
        commit(store, range(10, 12))
        again = stream_reader(store, failOnDataLoss="false", **options)
        assert numbers_between(again, start, query.offset) == [5, 6]
        assert query.run() == [10, 11]

    def test_a_micro_batch_that_is_planned_again_reads_what_the_old_topic_had(self, store: Store) -> None:
        store.create_topic("t")
        query = Query(stream_reader(store, startingOffsets="earliest", failOnDataLoss="false"))
        commit(store, range(3))
        start = query.offset
        query.run()
        delete_topic(store, "t")
        store.create_topic("t")
        assert numbers_between(stream_reader(store, failOnDataLoss="false"), start, query.offset) == [0, 1, 2]

    def test_it_fails_the_query_otherwise(self, store: Store) -> None:
        store.create_topic("t")
        query = Query(stream_reader(store))
        delete_topic(store, "t")
        store.create_topic("t")
        with pytest.raises(ConfigurationError, match=r"'t' was deleted and created again .*failOnDataLoss to false"):
            query.run()


class TestReported:
    """What progress shows as the latest offset is what can be read now."""

    @pytest.mark.parametrize(("isolation", "latest"), [("read_committed", 4), ("read_uncommitted", 7)])
    def test_an_open_transaction_is_no_backlog_of_a_reader_of_committed_records(
        self, store: Store, isolation: str, latest: int
    ) -> None:
        store.create_topic("t")
        commit(store, range(3))
        query = Query(stream_reader(store, startingOffsets="earliest", isolationLevel=isolation))
        assert query.reader.reportLatestOffset() is None
        with Producer({"bootstrap.servers": store.uri, "transactional.id": "open"}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for number in range(3, 6):
                producer.produce("t", str(number).encode())
            producer.flush()
            query.run()
            reported = query.reader.reportLatestOffset()
            assert reported is not None
            assert reported["topics"] == {"t": {"0": latest}} == query.offset["topics"]

    def test_a_limited_query_reports_what_is_left_and_only_what_is_assigned(self, store: Store) -> None:
        store.create_topic("t", 2)
        for first in (0, 3):
            commit(store, range(first, first + 3), partition=1)
        query = Query(stream_reader(store, assign='{"t":[1]}', startingOffsets="earliest", maxOffsetsPerTrigger="3"))
        query.run()
        reported = query.reader.reportLatestOffset()
        assert reported is not None
        assert (query.offset["topics"], reported["topics"]) == ({"t": {"1": 4}}, {"t": {"1": 8}})


class TestLimits:
    @pytest.fixture
    def five(self, store: Store) -> Store:
        """Five transactions of 10 records, each in a segment of its own."""
        store.create_topic("t")
        for first in range(0, 50, 10):
            commit(store, range(first, first + 10))
        return store

    def test_what_spark_is_asked_to_hand_back(self, five: Store) -> None:
        def limit(**options: str) -> ReadLimit:
            return stream_reader(five, **options).getDefaultReadLimit()

        assert limit() == ReadAllAvailable()
        assert limit(minOffsetsPerTrigger="5") == ReadMinRows(5)
        assert limit(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="9") == ReadMaxRows(9)
        assert limit(maxBytesPerTrigger="100") == ReadMaxBytes(100)

    def test_bytes_limit_a_micro_batch_to_whole_transactions(self, five: Store) -> None:
        sizes = {path.stat().st_size for path in Path(five.uri).rglob("*.parquet")}
        for bytes_max, expected in (
            (1, [10, 10, 10, 10, 10]),
            (2 * max(sizes), [20, 20, 10]),
            (10 * max(sizes), [50]),
        ):
            query = Query(stream_reader(five, startingOffsets="earliest", maxBytesPerTrigger=str(bytes_max)))
            found = []
            while not query.is_idle():
                found.append(len(query.run()))
            assert found == expected

    def test_the_tighter_of_two_limits_counts(self, five: Store) -> None:
        size = max(path.stat().st_size for path in Path(five.uri).rglob("*.parquet"))
        for rows, size_bytes, expected in (("10", 100 * size, 10), ("40", 2 * size, 20)):
            limits = {"maxOffsetsPerTrigger": rows, "maxBytesPerTrigger": str(size_bytes)}
            assert len(Query(stream_reader(five, startingOffsets="earliest", **limits)).run()) == expected

    def test_once_and_available_now_are_not_held_back(self, five: Store) -> None:
        options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "1000", "maxBytesPerTrigger": "1"}
        query = Query(stream_reader(five, ManualClock(), **options))
        query.reader.latestOffset(query.offset, query.reader.getDefaultReadLimit())  # lets the first one through
        assert query.run() == []
        assert len(query.run(ALL)) == 50
        commit(five, range(3))
        assert query.is_idle()
        query.reader.prepareForTriggerAvailableNow()
        assert query.run() == [0, 1, 2]

    def test_a_micro_batch_waits_for_enough_records_but_not_too_long(self, five: Store) -> None:
        clock = ManualClock()
        query = Query(
            stream_reader(five, clock, minOffsetsPerTrigger="15", maxTriggerDelay="1m", startingOffsets="earliest")
        )
        assert len(query.run()) == 50, "the first one never waits"
        commit(five, range(5))
        assert query.is_idle()
        clock.now_s += 59
        assert query.is_idle()
        clock.now_s += 1
        assert query.run() == [0, 1, 2, 3, 4]
        commit(five, range(10))
        assert query.is_idle()
        commit(five, range(10))
        assert len(query.run()) == 20, "enough came before the delay was over"

    def test_a_reader_with_limits_travels_to_tasks(self, five: Store) -> None:
        reader = stream_reader(five, minOffsetsPerTrigger="5", startingOffsets="earliest")
        start = reader.initialOffset()
        parts = reader.partitions(start, reader.latestOffset(start, ALL))
        away, parts = pickle.loads(pickle.dumps((reader, parts)))
        assert sum(batch.num_rows for part in parts for batch in away.read(part)) == 50


class TestTasks:
    def test_a_long_partition_is_read_by_all_cores(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        store.create_topic("t", settings={"segment.rows": "1000"})
        commit(store, range(8_000))
        monkeypatch.setattr("pyspark_txnlog.reading.batch_reader._TASK_ROWS_MIN", 2_000)
        for cores, tasks in ((1, 1), (2, 2), (3, 4), (64, 4), (None, 1)):
            monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
            assert len(batch_reader(store).partitions()) == tasks
        monkeypatch.setattr("os.cpu_count", lambda: 2)
        assert len(batch_reader(store, minPartitions="1").partitions()) == 1
        assert len(batch_reader(store, minPartitions="8").partitions()) == 8
        assert len(batch_reader(store, maxRecordsPerPartition="1000").partitions()) == 8
        assert len(batch_reader(store, rowsPerTask="1000", minPartitions="2").partitions()) == 8
        assert numbers_of(batch_reader(store)) == list(range(8_000))

    def test_little_is_read_by_one_task(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        store.create_topic("t", settings={"segment.rows": "1000"})
        commit(store, range(8_000))
        monkeypatch.setattr("os.cpu_count", lambda: 64)
        assert len(batch_reader(store).partitions()) == 1
