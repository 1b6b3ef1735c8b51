"""Stores that a newer sparktxn has written on: this version says so, and takes nothing for damage."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparktxn import Consumer, Producer, Store, TopicPartition
from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import PartRef, digest, state_digest
from sparktxn._engine.format.entry import decode_intent, seal_document
from sparktxn._engine.format.manifest import decode_manifest, encode_manifest
from sparktxn._foundation.values.structs import SegmentRef
from sparktxn.errors import DamagedObject, FormatVersionError, KafkaError, KafkaException
from sparktxn.maintenance import vacuum

OPTIONS = {"store.fsync": False}
Json = dict[str, Any]


class Newer:
    """A store, and a newer version that writes on it by hand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        with Store.open(str(root), create=True, options=OPTIONS) as store:
            store.create_topic("orders", 1)
        self.produce("before")

    def produce(self, value: str) -> None:
        with Producer({"bootstrap.servers": str(self.root), "delivery.timeout.ms": 20_000, **OPTIONS}) as producer:
            producer.produce("orders", value, on_delivery=_raise)
            producer.flush(30)

    def consume(self) -> list[bytes]:
        """What is read up to the end of the partition, however long that takes."""
        found: list[bytes] = []
        own = {"group.id": "g", "enable.auto.commit": False, "enable.partition.eof": True}
        with Consumer({"bootstrap.servers": str(self.root), **own, **OPTIONS}) as consumer:
            consumer.assign([TopicPartition("orders", 0, 0)])
            while True:
                message = consumer.poll(60)
                assert message is not None
                error = message.error()
                if error is None:
                    found.append(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                else:
                    raise KafkaException(error)

    def entry(self, *commands: Json) -> str:
        """Puts the next entry, and returns its name."""
        path = max((self.root / "_log").glob("*.json"), key=lambda file: file.name if file.name[0] == "0" else "")
        last = json.loads(path.read_bytes())
        entry = last | {"entry": last["entry"] + 1, "token": "newer", "previous": last["checksum"]}
        name = names.entry(entry["entry"])
        self.seal(name, entry | {"commands": list(commands)})
        return name

    def seal(self, name: str, document: Json) -> None:
        document.pop("checksum", None)
        (self.root / name).write_bytes(seal_document(json.dumps(document, separators=(",", ":")).encode())[0])

    def checkpoint(self) -> Path:
        """The only head."""
        with Store.open(str(self.root), options=OPTIONS) as store:
            store.log.checkpoint()
        (head,) = (self.root / "_log" / "_checkpoints").glob("*.json")
        return head

    def open(self) -> None:
        Store.open(str(self.root), options=OPTIONS).close()


def _raise(error: Any, message: Any) -> None:
    if error is not None:
        raise AssertionError(error)


@pytest.fixture
def newer(tmp_path: Path) -> Newer:
    return Newer(tmp_path / "store")


@pytest.mark.parametrize(
    ("command", "unknown"),
    [
        ({"type": "half_prepare", "group": "g"}, "'half_prepare'"),
        ({"type": "vacuum", "horizon": 1, "segment_floor": 1, "gently": True}, "'gently'"),
        (
            {"type": "offset_commit", "request": "r", "group": "g", "offsets": [[1, 0, 1, None, -1, -1, "instance"]]},
            "a tuple of 7 members",
        ),
    ],
    ids=["type", "member", "tuple"],
)
def test_an_unknown_command_or_member_is_newer(newer: Newer, command: Json, unknown: str) -> None:
    with Store.open(str(newer.root), options=OPTIONS) as following:
        name = newer.entry(command)
        with pytest.raises(FormatVersionError, match=f"{name}.*{unknown}.*newer sparktxn: upgrade"):
            following.view()
    with pytest.raises(FormatVersionError, match=f"{name}.*{unknown}.*newer sparktxn: upgrade"):
        newer.open()


@pytest.mark.parametrize(
    "command", [{"type": "vacuum", "horizon": "1", "segment_floor": 1}, {"horizon": 1}, {"type": "vacuum"}, 5, {}]
)
def test_a_known_command_that_is_wrong_is_damage(newer: Newer, command: Any) -> None:
    newer.entry(command)
    with pytest.raises(DamagedObject, match="is not an entry"):
        newer.open()


def test_a_changed_byte_is_damage_and_no_version(newer: Newer) -> None:
    name = newer.entry({"type": "half_prepare"})
    for before, after in ((b'"half_prepare"', b'"half_prepars"'), (b'"format":1', b'"format":2')):
        path = newer.root / name
        data = path.read_bytes()
        path.write_bytes(data.replace(before, after))
        with pytest.raises(DamagedObject, match="checksum"):
            newer.open()
        path.write_bytes(data)


def test_a_reader_feature_stops_who_does_not_know_it(newer: Newer) -> None:
    with Store.open(str(newer.root), options=OPTIONS) as following:
        newer.entry({"type": "require_features", "reader_features": ["half_messages"]})
        newer.entry({"type": "half_prepare"})
        with pytest.raises(FormatVersionError, match=r"features to read .*'half_messages'.*upgrade"):
            following.view()
    with pytest.raises(FormatVersionError, match=r"features to read .*'half_messages'.*upgrade"):
        newer.open()


def test_a_writer_feature_lets_others_read_and_not_write(newer: Newer) -> None:
    with (
        Store.open(str(newer.root), options=OPTIONS) as store,
        Producer({"bootstrap.servers": str(newer.root), "transactional.id": "t", **OPTIONS}) as producer,
    ):
        producer.init_transactions(10)
        newer.entry({"type": "require_features", "writer_features": ["groups"]})
        before = sorted(path for path in newer.root.rglob("*.json"))
        assert newer.consume() == [b"before"]
        assert store.view().partitions["orders", 0].log_end_offset == 1
        for write in (
            lambda: store.create_topic("more", 1),
            lambda: store.log.checkpoint(),
            lambda: vacuum(store),
            lambda: _commit(producer),
            lambda: Store.open(str(newer.root), options=OPTIONS).create_topic("more", 1),
        ):
            with pytest.raises(KafkaException, match=r"features to write .*'groups'.*upgrade"):
                write()
        assert sorted(path for path in newer.root.rglob("*.json")) == before
        assert newer.consume() == [b"before"]


def _commit(producer: Producer) -> None:
    producer.begin_transaction()
    producer.produce("orders", "after")
    producer.commit_transaction(10)


@pytest.mark.parametrize("kind", ["reader", "writer"])
def test_a_head_names_the_features_of_entries_that_are_gone(newer: Newer, kind: str) -> None:
    head = newer.checkpoint()
    document = json.loads(head.read_bytes())
    store = next(ref for part, ref in document["parts"].items() if part == "store")
    (record,) = json.loads((newer.root / store[0]).read_bytes())
    record[f"{kind}_features"] = ["rewrite"]
    data = json.dumps([record], separators=(",", ":")).encode()
    (newer.root / store[0]).write_bytes(data)
    store[1:] = [len(data), digest(data)]
    document[f"{kind}_features"] = ["rewrite"]
    document["digest"] = _digest(document)
    newer.seal(head.relative_to(newer.root).as_posix(), document)
    # A vacuum keeps an entry that carries records.
    for entry in (newer.root / "_log").glob("0*.json"):
        if b'"data":' not in entry.read_bytes():
            entry.unlink()
    (newer.root / "_log" / "_horizon").mkdir()
    (newer.root / names.horizon(document["entry"] + 1)).write_bytes(
        json.dumps({"checkpoints": [document["checkpoint"]]}).encode()
    )
    if kind == "reader":
        with pytest.raises(FormatVersionError, match=r"features to read .*'rewrite'"):
            newer.open()
        return
    assert newer.consume() == [b"before"]
    with pytest.raises(FormatVersionError, match=r"features to write .*'rewrite'"):
        Store.open(str(newer.root), options=OPTIONS).create_topic("more", 1)


def _digest(document: Json) -> str:
    return state_digest({part: PartRef(*ref) for part, ref in document["parts"].items()})


@pytest.mark.parametrize("added", ["member", "record", "tuple"])
def test_a_newer_part_is_not_skipped(newer: Newer, added: str) -> None:
    head = newer.checkpoint()
    document = json.loads(head.read_bytes())
    part = next(part for part in document["parts"] if part.startswith("segments/" if added == "tuple" else "topics/"))
    ref = document["parts"][part]
    records = json.loads((newer.root / ref[0]).read_bytes())
    if added == "member":
        records[0]["moons"] = 2
    elif added == "record":
        records.append({"type": "moon", "name": "luna"})
    else:
        records[0]["segments"][0].append("rewritten")
    data = json.dumps(records, separators=(",", ":")).encode()
    (newer.root / ref[0]).write_bytes(data)
    ref[1:] = [len(data), digest(data)]
    document["digest"] = _digest(document)
    newer.seal(head.relative_to(newer.root).as_posix(), document)
    with pytest.raises(KafkaException, match="upgrade"):
        newer.consume()


def test_a_newer_head_is_not_skipped(newer: Newer) -> None:
    head = newer.checkpoint()
    newer.seal(head.relative_to(newer.root).as_posix(), json.loads(head.read_bytes()) | {"format": 2})
    with pytest.raises(FormatVersionError, match="format version 2"):
        newer.open()


def test_members_around_commands_are_ignored(newer: Newer) -> None:
    name = newer.entry({"type": "vacuum", "horizon": 1, "segment_floor": 1})
    newer.seal(name, json.loads((newer.root / name).read_bytes()) | {"host": "newer"})
    document = json.loads((newer.root / names.STORE).read_bytes())
    newer.seal(names.STORE, document | {"owner": "newer"})
    head = newer.checkpoint()
    newer.seal(head.relative_to(newer.root).as_posix(), json.loads(head.read_bytes()) | {"host": "newer"})
    assert newer.consume() == [b"before"]


def test_a_newer_manifest_and_a_newer_intent_are_told() -> None:
    segment = SegmentRef(f"{1:020d}-{'a' * 20}.arrow", 0, 1, 1, "0" * 8, 1, 0, 0, 0, -1, 0, 0)
    table = pq.read_table(pa.BufferReader(encode_manifest([segment])))
    sink = io.BytesIO()
    pq.write_table(table.append_column("moons", pa.array([2])), sink)
    with pytest.raises(FormatVersionError, match="moons"):
        decode_manifest(sink.getvalue(), "m")
    body = {"format": 1, "intent": "a", "base_entry": 1, "lists": [[{"type": "half_prepare"}]]}
    with pytest.raises(FormatVersionError, match="half_prepare"):
        decode_intent(seal_document(json.dumps(body).encode())[0], "i", 1, "a")


def test_the_error_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(FormatVersionError("_log/1", "has moons")))
    assert (str(error), error.object_name) == (str(FormatVersionError("_log/1", "has moons")), "_log/1")
