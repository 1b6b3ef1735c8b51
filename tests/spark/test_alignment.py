"""The source in offset order where transactions overlap in a chain: it warns, reports, fails or reads on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_txnlog.stream_reader import Progress, TxnLogStreamReader
from sparktxn import ErrorCode, KafkaException, Producer, Store
from sparktxn.testing.clocks import ManualClock
from tests.spark.readers import batch_reader, numbers_between, numbers_of, stream_reader

ALL = ReadAllAvailable()


@pytest.fixture
def stalled(store: Store) -> Iterator[Producer]:
    """A store whose first transaction is committed while the second one, which lies between its records, is open."""
    store.create_topic("t", 1)
    producers = [Producer({"bootstrap.servers": store.uri, "transactional.id": f"id-{number}"}) for number in range(2)]
    for number, producer in enumerate(producers):
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("t", str(number))
        producer.flush()
    producers[0].produce("t", "2")
    producers[0].commit_transaction()
    yield producers[1]
    for producer in producers:
        producer.close()


def stands_still(reader: TxnLogStreamReader, start: Progress, clock: ManualClock) -> None:
    for _ in range(3):
        assert reader.latestOffset(start, ALL) == start
        clock.sleep(2)


def test_a_batch_that_stands_still_warns(store: Store, stalled: Producer) -> None:
    reader = batch_reader(store, order="offset")
    with pytest.warns(UserWarning, match="the read stands still at entry .* order=commit has no such wait"):
        assert numbers_of(reader) == []
    assert numbers_of(batch_reader(store, alignment="lso")) == [0]


def test_a_stream_that_stands_still_warns_once_and_reports_for_how_long(store: Store, stalled: Producer) -> None:
    clock = ManualClock()
    reader = stream_reader(store, clock, order="offset", startingOffsets="earliest")
    start = reader.initialOffset()
    with pytest.warns(UserWarning, match="the read stands still") as warned:
        stands_still(reader, start, clock)
    assert len(warned) == 1
    assert (reader.reportLatestOffset() or {})["stalledMs"] == 6_000
    stalled.commit_transaction()
    assert numbers_between(reader, start, reader.latestOffset(start, ALL)) == [0, 1, 2]
    assert "stalledMs" not in (reader.reportLatestOffset() or {})


@pytest.mark.filterwarnings("ignore:the read stands still")
def test_a_stall_makes_a_micro_batch_without_rows_each_ten_seconds(store: Store, stalled: Producer) -> None:
    """Spark updates a query's progress with a micro-batch only."""
    clock = ManualClock()
    reader = stream_reader(store, clock, order="offset", startingOffsets="earliest")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    for lasted_ms in (10_000, 20_000):
        clock.sleep(9.9)
        assert reader.latestOffset(start, ALL) == start
        clock.sleep(0.1)
        end = reader.latestOffset(start, ALL)
        assert end["stalledMs"] == lasted_ms
        assert numbers_between(reader, start, end) == []
        assert reader.latestOffset(end, ALL) == end
        start = end
    stalled.commit_transaction()
    end = reader.latestOffset(start, ALL)
    assert "stalledMs" not in end
    assert numbers_between(reader, start, end) == [0, 1, 2]


@pytest.mark.filterwarnings("ignore:the read stands still")
def test_a_stall_does_not_keep_a_query_running_that_reads_what_is_available(store: Store, stalled: Producer) -> None:
    clock = ManualClock()
    reader = stream_reader(store, clock, order="offset", startingOffsets="earliest")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    for _ in range(2):
        assert reader.latestOffset(start, ALL) == start
        clock.sleep(60)


@pytest.mark.filterwarnings("ignore:the read stands still")
def test_after_the_timeout_it_fails(store: Store, stalled: Producer) -> None:
    clock = ManualClock()
    options = {"order": "offset", "startingOffsets": "earliest", "alignment.timeout.ms": "5000"}
    reader = stream_reader(store, clock, **options)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    clock.sleep(4.9)
    assert reader.latestOffset(start, ALL) == start
    clock.sleep(0.1)
    with pytest.raises(KafkaException, match="has stood still for 5000 ms") as raised:
        reader.latestOffset(start, ALL)
    assert raised.value.error.code() == ErrorCode.LOCAL_TIMED_OUT


@pytest.mark.filterwarnings("ignore:the read stands still")
def test_after_the_timeout_it_reads_on(store: Store, stalled: Producer) -> None:
    clock = ManualClock()
    options = {"startingOffsets": "earliest", "alignment": "transaction"}
    reader = stream_reader(
        store, clock, **options, **{"alignment.timeout.ms": "5000", "alignment.timeout.action": "lso"}
    )
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    clock.sleep(5)
    end = reader.latestOffset(start, ALL)
    assert numbers_between(reader, start, end) == [0]
    stalled.commit_transaction()
    assert numbers_between(reader, end, reader.latestOffset(end, ALL)) == [1, 2]
