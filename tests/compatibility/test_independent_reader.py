"""A reader that knows docs/PROTOCOL.md and nothing of the product finds in a store what the product finds."""

from __future__ import annotations

import ast
import base64
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from sparktxn import Consumer, TopicPartition
from sparktxn.admin import NewTopic
from sparktxn.store import Store
from tests.compatibility import independent_groups, independent_reader, independent_replay, independent_tables
from tests.compatibility.consume_all import consume_all
from tests.compatibility.independent_reader import (
    Damaged,
    Replay,
    StoreReader,
    crc32c,
    last_stable_offset,
    padded,
)
from tests.compatibility.independent_writer import sealed
from tests.compatibility.workload import GROUP, TOPICS, Workload, written

SETTINGS = {"store.fsync": False, "checkpoint.entries": 16, "checkpoint.seal.segments": 4}
PROTOCOL = (Path(__file__).parent.parent.parent / "docs" / "PROTOCOL.md").read_text()
ROUNDS = 32
LARGE_APPENDS = 1_300
ISOLATIONS = ("read_committed", "read_uncommitted")


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workload]:
    with written(str(tmp_path_factory.mktemp("store")), SETTINGS, ROUNDS) as workload:
        yield workload


@pytest.fixture(scope="module")
def reader(workload: Workload) -> StoreReader:
    return StoreReader(Path(workload.uri))


@pytest.fixture(scope="module", params=["all entries", "newest checkpoint and tail"])
def state(request: pytest.FixtureRequest, reader: StoreReader) -> Replay:
    from_first: bool = request.param == "all entries"
    return reader.state_from_first() if from_first else reader.state_from_checkpoint()


Rows = Callable[[str, str], dict[Any, Any]]


@pytest.fixture(scope="module")
def rows_of(reader: StoreReader, state: Replay) -> Rows:
    """What the reader finds in a topic, by isolation: it reads each once."""
    return cache(lambda topic, isolation: reader.records(state, topic, isolation))


@pytest.fixture(scope="module")
def consumed_of(workload: Workload) -> Callable[[str, str], list[dict[str, Any]]]:
    """The same of the product's consumer."""
    return cache(lambda topic, isolation: consumed(workload, topic, isolation).to_pylist())


def consumed(workload: Workload, topic: str, isolation: str) -> pa.Table:
    """All that the product's consumer hands out of a topic."""
    settings = {**workload.settings, "group.id": "all", "isolation.level": isolation, "enable.auto.commit": False}
    with Consumer(settings, auto_offset_reset="earliest") as consumer:
        partitions = consumer.list_topics(topic).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, -2) for number in partitions])
        tables = list(consume_all(consumer, lambda timeout: consumer.consume_arrow(timeout=timeout)))
    return pa.concat_tables(tables)


@pytest.mark.parametrize(
    "module",
    [independent_groups, independent_reader, independent_replay, independent_tables],
    ids=lambda module: module.__name__,
)
def test_the_reader_uses_pyarrow_and_the_standard_library_only(module: ModuleType) -> None:
    tree = ast.parse(Path(str(module.__file__)).read_text())
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    foreign = {name.split(".")[0] for name in names if not name.startswith("tests.compatibility.independent_")}
    assert foreign - set(sys.stdlib_module_names) <= {"pyarrow"}
    assert "sparktxn" not in foreign


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_the_store_has_what_is_to_be_read(workload: Workload, reader: StoreReader) -> None:
    """What the other tests compare is not there by chance."""
    state = reader.state_from_checkpoint()
    head = reader.head(reader.heads()[0])
    located = [record for record in state.records.values() if record["type"] == "segments"]
    kinds = {c["type"] for _, commands in reader.entries(0, "00000000") for c in commands}
    assert state.entry > 150
    assert state.entry - 64 < head["entry"]
    assert any(run[-1] for places in located for run in places["sealed"])
    assert any(run[4] > 0 for places in located for run in places["sealed"])
    expected = {"create_topic", "alter_topic", "create_partitions", "delete_topic", "delete_records", "append"}
    expected |= {"init_producer_id", "txn_offset_commit", "offset_commit", "end_txn", "sink_batch_commit"}
    expected |= {"expect_end_offset", "join_group", "update_member", "release_partitions", "leave_group"}
    expected |= {"expire_member", "alter_store", "prepare_half"}
    assert expected <= kinds
    segments = [segment for places in located for segment in reader.unsealed(state, places)["segments"]]
    assert {segment[0].rsplit(".")[-1] for segment in segments} == {"parquet", "arrow", "inline"}
    assert any(segment[0].endswith(".offsets.parquet") for segment in segments)


@pytest.mark.kafka("K86")
@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("topic", TOPICS)
def test_every_record_and_offset(
    rows_of: Rows, consumed_of: Callable[[str, str], list[dict[str, Any]]], topic: str, isolation: str
) -> None:
    rows = rows_of(topic, isolation)
    found = {}
    for row in consumed_of(topic, isolation):
        place = row.get("_partition", row.get("partition")), row.get("_offset", row.get("offset"))
        columns = next(iter(rows.values())).keys()
        found[place] = {column: row[column] for column in columns}
    assert rows == found
    assert rows


class RecordsAlone(Replay):
    """The state as far as records need it: applies the commands alone that the document lists for that."""

    COMMANDS = frozenset(
        re.findall(r"`(\w+)`", PROTOCOL.split("For records alone", 1)[1].split("This repository", 1)[0])
    )

    def apply(self, entry: int, timestamp_ms: int, commands: list[dict[str, Any]]) -> None:
        super().apply(entry, timestamp_ms, [command for command in commands if command["type"] in self.COMMANDS])

    def need(self, condition: object, reason: str) -> None:
        """Refuse nothing: what a command is checked against may not be known."""


@pytest.fixture(scope="module")
def alone(reader: StoreReader) -> RecordsAlone:
    alone = RecordsAlone()
    for entry, commands in reader.entries(0, "00000000"):
        alone.apply(entry["entry"], entry["timestamp_ms"], commands)
    return alone


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("state", ["all entries"], indirect=True)
def test_the_commands_that_the_document_lists_are_enough_for_records(
    reader: StoreReader, rows_of: Rows, alone: RecordsAlone, topic: str, isolation: str
) -> None:
    assert reader.records(alone, topic, isolation) == rows_of(topic, isolation)


@pytest.mark.kafka("K86")
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_messages_one_by_one(workload: Workload, rows_of: Rows, isolation: str) -> None:
    settings = {**workload.settings, "group.id": "all", "isolation.level": isolation, "enable.auto.commit": False}
    found = {}
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition("orders", number, -2) for number in range(4)])
        for message in consume_all(consumer, consumer.poll):
            headers = message.headers()
            found[message.partition(), message.offset()] = {
                "key": message.key(),
                "value": message.value(),
                "headers": None if headers is None else [{"key": name, "value": data} for name, data in headers],
                "timestamp": pa.scalar(message.timestamp()[1], pa.timestamp("ms", "UTC")).as_py(),
            }
    assert rows_of("orders", isolation) == found


@pytest.mark.kafka("K83")
@pytest.mark.parametrize("topic", TOPICS)
def test_watermarks(workload: Workload, state: Replay, topic: str) -> None:
    described = state.get("topic", topic)
    for number in range(described["partition_count"]):
        partition = state.get("partition", described["topic_id"], number)
        ends = {"read_uncommitted": partition["log_end_offset"], "read_committed": last_stable_offset(partition)}
        for isolation, end in ends.items():
            settings = {**workload.settings, "group.id": "all", "isolation.level": isolation}
            with Consumer(settings) as consumer:
                found = consumer.get_watermark_offsets(TopicPartition(topic, number), 10)
            assert found == (partition["log_start_offset"], end)


def test_committed_offsets(workload: Workload, state: Replay) -> None:
    topic_id = state.get("topic", "orders")["topic_id"]
    with Consumer({**workload.settings, "group.id": GROUP}) as consumer:
        committed = consumer.committed([TopicPartition("orders", number) for number in range(3)], 10)
    found = [state.get("offset", GROUP, topic_id, number)["offset"] for number in range(3)]
    assert found == [partition.offset for partition in committed]


def test_transactional_ids_and_sinks(workload: Workload, state: Replay) -> None:
    with Store.open(workload.uri, options=workload.options) as store:
        with store.log.within(10):
            store.log.refresh()
        for transactional_id in ("shop-1", "shop-2", "sink", "open", "old"):
            found = msgspec.to_builtins(store.log.transaction(transactional_id))
            assert json.loads(json.dumps(found)) == state.get("transaction", transactional_id)
    assert state.get("transaction", "sink")["sink"][3]


@pytest.fixture(scope="module")
def history(reader: StoreReader) -> dict[int, Replay]:
    """The state after each entry: a replay replaces records and changes none, so states share them."""
    states, replay = {}, Replay()
    for entry, commands in reader.entries(0, "00000000"):
        replay.apply(entry["entry"], entry["timestamp_ms"], commands)
        states[replay.entry] = Replay(dict(replay.records))
    return states


@pytest.mark.kafka("K88")
def test_every_checkpoint_is_the_state_that_the_entries_give(reader: StoreReader, history: dict[int, Replay]) -> None:
    heads = [reader.head(name) for name in reader.heads()]
    assert len(heads) >= 3
    for head in heads:
        replayed = Replay(dict(history[head["entry"]].records))
        read = Replay(reader.parts(head))
        for state in (replayed, read):
            for key, record in state.records.items():
                if record["type"] == "segments":
                    state.records[key] = reader.unsealed(state, record)
        assert read.records == replayed.records


@pytest.mark.kafka("K87", "K94")
def test_snapshots_hold_the_producers_of_their_entry(reader: StoreReader, history: dict[int, Replay]) -> None:
    checked = 0
    state = reader.state_from_checkpoint()
    topics = {record["topic_id"]: record for record in state.records.values() if record["type"] == "topic"}
    for places in [record for record in state.records.values() if record["type"] == "segments"]:
        folder = reader.partition_folder(topics[places["topic_id"]], places["partition"])
        for run in places["sealed"]:
            sealed_at = history[int(run[0].split("-")[1])]
            producers = [
                record
                for record in sealed_at.records.values()
                if record["type"] == "producer"
                and (record["topic_id"], record["partition"]) == (places["topic_id"], places["partition"])
            ]
            found = {entry.producer_id: entry for entry in reader.snapshot(folder, run)}
            assert set(found) == {producer["producer_id"] for producer in producers}
            for producer in producers:
                entry = found[producer["producer_id"]]
                batches = producer["batches"]
                assert entry.producer_epoch == producer["producer_epoch"]
                assert entry.last_sequence == (batches[-1][1] if batches else -1)
                assert entry.coordinator_epoch == producer["coordinator_epoch"]
                assert entry.first_offset == producer["current_transaction_first_offset"]
            checked += 1
    assert checked


def test_a_large_entry_names_an_append_object(tmp_path: Path) -> None:
    workload = Workload(str(tmp_path), SETTINGS)
    workload.create_topics()
    workload.settle(workload.admin.create_topics([NewTopic("large", 4, config={"segment.rows": "1"})]))
    producer = workload.producer("bulk")
    with producer.transaction():
        for number in range(LARGE_APPENDS):
            producer.produce("large", b"%d" % number, partition=number % 4)
    reader = StoreReader(tmp_path)
    state = reader.state_from_first()
    assert len(reader.names("_log/_appends")) == 1
    rows = reader.records(state, "large", "read_committed")
    assert sorted(int(row["value"]) for row in rows.values()) == list(range(LARGE_APPENDS))
    table = consumed(workload, "large", "read_committed").to_pylist()
    assert {(row["partition"], row["offset"]): row["value"] for row in table} == {
        place: row["value"] for place, row in rows.items()
    }
    workload.close()


@pytest.mark.parametrize("object_", ["entry", "segment", "part", "head"])
def test_a_flipped_byte_is_named(tmp_path: Path, object_: str) -> None:
    reader = small_store(tmp_path, {"store.append.inline.bytes": 0})
    pattern = {
        "entry": f"_log/{padded(2)}.json",
        "segment": "topics/orders-1/*/*.parquet",
        "part": "_log/_checkpoints/*/0.json",
        "head": "_log/_checkpoints/*.json",
    }[object_]
    (path,) = tmp_path.glob(pattern)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    read = {
        "entry": reader.state_from_first,
        "segment": lambda: reader.records(reader.state_from_first(), "orders", "read_committed"),
        "part": reader.state_from_checkpoint,
        "head": reader.state_from_checkpoint,
    }[object_]
    with pytest.raises(Damaged, match=re.escape(str(path.relative_to(tmp_path)))):
        read()


def test_inline_records_that_are_others_are_named(tmp_path: Path) -> None:
    """Their entry is whole: only their checksum in the state says that they are not those which the log has named."""
    reader = small_store(tmp_path)
    (path,) = (path for path in (tmp_path / "_log").glob("*.json") if b'"data":' in path.read_bytes())
    entry = json.loads(path.read_bytes())
    del entry["checksum"]
    (append,) = (command for command in entry["commands"] if command["type"] == "append")
    data = bytearray(base64.b64decode(append["data"]))
    data[len(data) // 2] ^= 1
    append["data"] = base64.b64encode(data).decode()
    path.chmod(0o600)
    path.write_bytes(sealed(entry))
    state = reader.state_from_checkpoint()
    with pytest.raises(Damaged, match=rf"_log/{path.name}: its checksum is not the one that the log names"):
        reader.records(state, "orders", "read_committed")
    with pytest.raises(Damaged, match="inline records have another checksum"):
        reader.state_from_first()


def small_store(root: Path, more: dict[str, Any] | None = None) -> StoreReader:
    """A reader of a store with one transaction of one record, and a checkpoint."""
    workload = Workload(str(root), SETTINGS | (more or {}))
    workload.create_topics()
    producer = workload.producer("one")
    with producer.transaction():
        workload.produce(producer, 1)
    with Store.open(workload.uri, options=workload.options) as store:
        store.log.checkpoint()
    workload.close()
    return StoreReader(root)
