"""Where reads start and end: offsets, timestamps and relative times, with the precedence and the errors of Kafka's."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark_txnlog.options.options import READ, ReadOptions
from pyspark_txnlog.reading.batch_reader import make_reader
from pyspark_txnlog.reading.views import PinnedView
from sparktxn import ConfigurationError, RetentionPassed, Store, TopicPartition
from sparktxn.admin import AdminClient
from tests.spark.readers import VALUE, batch_reader, commit, numbers_of, stream_reader

T0 = 1_700_000_000_000


def at(**partitions: int) -> str:
    """JSON of offsets or timestamps of topic ``t``: `p0` is partition 0."""
    return json.dumps({"t": {name[1:]: number for name, number in partitions.items()}})


@pytest.fixture
def timed(store: Store) -> Store:
    """Partition 0 has 0 to 9 at T0 and one millisecond later each, partition 1 has 100 to 104 a second later."""
    store.create_topic("t", 2)
    commit(store, range(10), partition=0, timestamp_ms=T0)
    commit(store, range(100, 105), partition=1, timestamp_ms=T0 + 1000)
    return store


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": at(p0=5, p1=-2), "endingOffsets": at(p0=3, p1=-1)}, "start offset 5 .*end offset 3 .*"),
        ({"startingOffsets": at(p0=5)}, "'startingOffsets' does not name t-1: expected all partitions"),
        ({"endingOffsets": at(p1=5)}, "'endingOffsets' does not name t-0: expected all partitions"),
        ({"startingOffsetsByTimestamp": at(p0=T0)}, "'startingOffsetsByTimestamp' does not name t-1"),
        ({"startingOffsets": at(p0=-2, p1=-2, p7=0)}, "names partition 7 of topic 't', which has partitions 0 to 1"),
        ({"assign": '{"t":[0]}', "startingOffsets": at(p0=5, p1=-2)}, "partition 1 of topic 't', which is not read"),
        ({"subscribePattern": "t", "startingOffsets": '{"u":{"0":1}}'}, "names topic 'u', which is not read"),
        ({"startingOffsets": at(p0=5, p1=900)}, "offset 900 for partition 1 .*the last that can be read is 6"),
        ({"startingTimestamp": str(T0 + 500)}, "partition 0 of topic 't' has no record at or after .*Strategy"),
        (
            {"startingOffsetsByTimestamp": at(p0=T0, p1=T0 + 5000)},
            f"partition 1 .*no record at or after timestamp {T0 + 5000}",
        ),
        (
            {"startingTimestamp": str(T0 + 5), "endingTimestamp": str(T0 + 2)},
            "start offset 5 \\(option 'startingTimestamp'\\) .*end offset 2 \\(option 'endingTimestamp'\\)",
        ),
    ],
)
def test_bounds_that_cannot_be_met_are_named(timed: Store, options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        batch_reader(timed, **options).partitions()


def test_many_partitions_that_are_not_named_are_cut_short(store: Store) -> None:
    store.create_topic("t", 40)
    with pytest.raises(ConfigurationError, match=r"does not name t-1, t-2, .*t-10 and 29 more: expected"):
        batch_reader(store, startingOffsets=at(p0=-2)).partitions()


ALL = [*range(10), *range(100, 105)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ALL),
        ({"startingOffsets": at(p0=7, p1=-2)}, [7, 8, 9, *range(100, 105)]),
        ({"startingTimestamp": str(T0 + 4)}, [*range(4, 10), *range(100, 105)]),
        ({"startingTimestamp": str(T0 + 4), "startingOffsets": at(p0=9, p1=9)}, [*range(4, 10), *range(100, 105)]),
        ({"startingTimestamp": str(T0 + 4), "startingOffsetsByTimestamp": at(p0=0, p1=0)}, ALL[4:]),
        ({"startingOffsetsByTimestamp": at(p0=T0 + 8, p1=T0), "startingOffsets": at(p0=0)}, ALL[8:]),
        ({"startingTimestamp": str(T0 + 500), "startingOffsetsByTimestampStrategy": "LATEST"}, ALL[10:]),
        ({"endingTimestamp": str(T0 + 4)}, [0, 1, 2, 3]),
        ({"endingTimestamp": str(T0 + 1002), "endingOffsets": at(p0=1, p1=1)}, [*range(10), 100, 101]),
        ({"endingOffsetsByTimestamp": at(p0=T0 + 2, p1=T0 + 99_999)}, [0, 1, *range(100, 105)]),
        ({"startingTimestamp": str(T0 + 2), "endingTimestamp": str(T0 + 3)}, [2]),
        ({"startingOffsets": at(p0=11, p1=6)}, []),
    ],
)
def test_a_batch_reads_between_its_bounds(timed: Store, options: dict[str, str], expected: list[int]) -> None:
    assert numbers_of(batch_reader(timed, **options)) == expected


@pytest.mark.parametrize("option", ["startingOffsets", "startingTimestamp"])
def test_a_relative_start_counts_from_when_the_dataframe_was_made(timed: Store, option: str) -> None:
    options = ReadOptions.parse({"path": timed.uri, "subscribe": "t", option.lower(): "-10 minutes"}, READ)
    pinned = PinnedView(timed.view().entry, T0 + 600_000 + 6)
    for _ in range(2):
        assert numbers_of(make_reader(options, VALUE, pinned)) == [*range(6, 10), *range(100, 105)]
    assert numbers_of(batch_reader(timed, **{option: "-10 minutes"})) == [], "these records are years old"


def test_a_relative_end_leaves_newer_records_out(timed: Store) -> None:
    options = ReadOptions.parse({"path": timed.uri, "subscribe": "t", "endingtimestamp": "-1h"}, READ)
    assert numbers_of(make_reader(options, VALUE, PinnedView(timed.view().entry, T0 + 3_600_003))) == [0, 1, 2]


def test_a_stream_starts_where_a_timestamp_says(timed: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def first(**options: str) -> Any:
        return stream_reader(timed, **options).initialOffset()["topics"]["t"]

    assert first(startingTimestamp=str(T0 + 4)) == {"0": 4, "1": 0}
    assert first(startingOffsetsByTimestamp=at(p0=T0 + 5, p1=T0 + 1003)) == {"0": 5, "1": 3}
    with pytest.raises(ConfigurationError, match="partition 0 of topic 't' has no record"):
        first(startingTimestamp=str(T0 + 500))
    assert first(startingTimestamp=str(T0 + 500), startingOffsetsByTimestampStrategy="latest") == {"0": 11, "1": 0}
    with pytest.raises(ConfigurationError, match="'startingOffsets' does not name t-1"):
        first(startingOffsets=at(p0=5))
    monkeypatch.setattr("sparktxn._foundation.process.clock.SystemClock.wall_ms", lambda _: T0 + 7_200_003)
    assert first(startingOffsets="-2 hours") == {"0": 3, "1": 0}


def test_removed_records_are_an_error_or_are_left_out(timed: Store) -> None:
    timestamps = {"startingTimestamp": str(T0)}
    AdminClient({"bootstrap.servers": timed.uri}).delete_records([TopicPartition("t", 0, 6)])[
        TopicPartition("t", 0)
    ].result()
    with pytest.raises(RetentionPassed, match="offset 2 of partition 0"):
        batch_reader(timed, startingOffsets=at(p0=2, p1=0)).partitions()
    some = {"startingOffsets": at(p0=2, p1=0), "endingOffsets": at(p0=4, p1=1), "failOnDataLoss": "false"}
    assert numbers_of(batch_reader(timed, **some)) == [100], "all that partition 0 had there is removed"
    assert numbers_of(batch_reader(timed, **timestamps)) == ALL[6:]
