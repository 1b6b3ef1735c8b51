"""A group's offsets through `Store`: with a transaction of segments, alone, and read back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sparktxn import (
    ConfigurationError,
    ConsumerGroupTopicPartitions,
    KafkaException,
    SinkCommit,
    StagedSegment,
    Store,
    TopicPartition,
)
from sparktxn.store import read_object
from tests.servers import S3Server


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store"), create=True) as opened:
        opened.create_topic("in", 2)
        opened.create_topic("out")
        yield opened


def offsets(*pairs: tuple[int, int], group_id: str = "g", topic: str = "in") -> ConsumerGroupTopicPartitions:
    return ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic, *pair, f"at {pair[1]}") for pair in pairs])


def found(store: Store, group_id: str = "g") -> list[tuple[str, int, int, str | None]]:
    partitions = store.committed_offsets(group_id).topic_partitions or []
    return [(each.topic, each.partition, each.offset, each.metadata) for each in partitions]


def staged(store: Store, count: int) -> list[StagedSegment]:
    stager = store.stage_plan(["out"]).open(seed=0, default_topic="out")
    stager.write(pa.table({"value": [str(number) for number in range(count)]}))
    return stager.finish()


def test_offsets_are_in_force_with_the_records_of_their_transaction(store: Store) -> None:
    result = store.commit(staged(store, 3), transactional_id="id", offsets=offsets((1, 7), (0, 5)))
    assert found(store) == [("in", 0, 5, "at 5"), ("in", 1, 7, "at 7")]
    assert store.view(entry=result.entry - 1).partitions["out", 0].log_end_offset == 0
    assert store.view(entry=result.entry).partitions["out", 0].last_stable_offset == 4


def test_a_batch_that_is_repeated_moves_no_offset_back(store: Store) -> None:
    first = staged(store, 3)
    store.commit(first, transactional_id="id", sink=SinkCommit("w", "r", 0), offsets=offsets((0, 5)))
    store.commit_offsets(offsets((0, 9)))
    again = store.commit(first, transactional_id="id", sink=SinkCommit("w", "r", 0), offsets=offsets((0, 5)))
    assert again.replayed
    assert found(store) == [("in", 0, 9, "at 9")]


def test_offsets_alone_are_a_transaction_too(store: Store) -> None:
    store.commit([], transactional_id="id", offsets=offsets((0, 5)))
    store.commit([], transactional_id="id", offsets=offsets((0, 6)))
    assert found(store) == [("in", 0, 6, "at 6")]
    entry = store.view().entry
    store.commit([], transactional_id="id", offsets=offsets((0, 6)))
    assert store.view().entry == entry + 1, "a new transaction: only a lost answer makes it the same"


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (offsets((2, 5)), "topic 'in' does not exist or has no partition 2"),
        (offsets((0, 5), topic="gone"), "topic 'gone' does not exist"),
        (offsets((0, -5)), "offset -5 for partition 0 .* is below 0"),
    ],
)
def test_offsets_that_are_refused_write_nothing(store: Store, given: ConsumerGroupTopicPartitions, match: str) -> None:
    entry = store.view().entry
    with pytest.raises(KafkaException, match=match):
        store.commit_offsets(given)
    segments = staged(store, 3)
    with pytest.raises(KafkaException, match=match):
        store.commit(segments, transactional_id="id", offsets=given)
    assert store.view().partitions["out", 0].log_end_offset == 0
    assert store.view().entry <= entry + 1, "the transactional id at most"
    assert found(store) == []


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (ConsumerGroupTopicPartitions("g"), "offsets name no partition for group 'g'"),
        (ConsumerGroupTopicPartitions("", [TopicPartition("in", 0, 5)]), "the group id of offsets is"),
        (offsets((0, 5), (0, 6)), "offsets name a partition twice for group 'g'"),
    ],
)
def test_offsets_without_a_group_or_a_partition_are_wrong(
    store: Store, given: ConsumerGroupTopicPartitions, match: str
) -> None:
    with pytest.raises(ConfigurationError, match=match):
        store.commit_offsets(given)


def test_a_topic_that_another_process_has_made_is_found(store: Store) -> None:
    with Store.open(store.uri, options={"store.request.timeout.ms": 20_000}) as other:
        other.create_topic("new")
    store.commit_offsets(offsets((0, 5), topic="new"))
    assert found(store) == [("new", 0, 5, "at 5")]


def test_an_object_of_any_folder_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1")
    for uri in (str(tmp_path), f"file://{tmp_path}", f"file:{tmp_path}"):
        assert read_object(uri, "offsets/0", {"storage.key": "of the store"}) == b"v1"
    for name in ("offsets/1", "offsets", "nothing/0"):
        with pytest.raises(ConfigurationError, match=f"has no object of the name '{name}'"):
            read_object(str(tmp_path), name)
    with pytest.raises(ConfigurationError, match="not a name inside"):
        read_object(str(tmp_path), "../x")


@pytest.mark.moto
def test_an_object_of_s3_can_be_read(moto_server: S3Server) -> None:
    bucket = "checkpoints"
    moto_server.create_bucket(bucket)
    assert moto_server.request("PUT", f"/{bucket}/checkpoint/offsets/0", b"v1")[0] == 200
    assert read_object(f"s3a://{bucket}/checkpoint", "offsets/0", moto_server.options) == b"v1"
    with pytest.raises(ConfigurationError, match="has no object of the name 'offsets/1'"):
        read_object(f"s3a://{bucket}/checkpoint", "offsets/1", moto_server.options)
