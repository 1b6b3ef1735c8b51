"""The product reads, checks and continues what a writer has written that knows docs/PROTOCOL.md alone."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sparktxn import Consumer, KafkaException, Producer, Store, TopicPartition, read_arrow
from sparktxn.errors import DamagedObject
from sparktxn.maintenance import rewrite, sweep, vacuum, verify
from tests.compatibility import independent_writer
from tests.compatibility.independent_reader import StoreReader
from tests.compatibility.independent_replay import Replay
from tests.compatibility.independent_writer import Identity, Refused, StoreWriter

PARQUET, ARROW = {"segment.format": "parquet"}, {"segment.format": "arrow"}


def record(value: str, key: str | None = None) -> dict[str, Any]:
    return {"key": None if key is None else key.encode(), "value": value.encode(), "headers": None}


def values(root: Path, topic: str, isolation: str = "read_committed") -> list[str]:
    table = read_arrow(str(root), topic, isolation=isolation).read_all()  # type: ignore[arg-type]
    return [value.decode() for value in table.column("value").to_pylist()]


INLINE = [
    pytest.param((0, ""), id="files"),
    pytest.param((1_000, "zstd"), id="inline"),
    pytest.param((1_000, "plain"), id="inline, not compressed"),
    pytest.param((1, "zstd"), id="single records inline"),
]


@pytest.fixture(params=INLINE)
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> StoreWriter:
    """A writer of a new store with topics ``p`` (Parquet) and ``a`` (Arrow), of two partitions each."""
    inline_rows, inline = request.param
    writer = StoreWriter(tmp_path, inline_rows=inline_rows, inline=inline)
    writer.create_topic("p", 2, PARQUET)
    writer.create_topic("a", 2, ARROW)
    return writer


def test_the_writer_uses_pyarrow_and_the_standard_library_only() -> None:
    tree = ast.parse(Path(independent_writer.__file__ or "").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    others = {name for name in imported if name.split(".")[0] not in {*sys.stdlib_module_names, "pyarrow"}}
    assert {name.rpartition(".")[0] for name in others} == {"tests.compatibility"}
    assert all(name.rpartition(".")[2].startswith("independent_") for name in others)


def test_committed_records_are_read_and_aborted_ones_are_not(writer: StoreWriter) -> None:
    producer = writer.init_producer_id("writer")
    writer.write(producer, {("p", 0): [record("a", "k"), record("b")], ("a", 1): [record("c")]})
    writer.write(producer, {("p", 0): [record("lost")], ("a", 1): [record("lost")]}, commit=False)
    writer.write(producer, {("p", 0): [record("d")]})
    writer.write(writer.init_producer_id(), {("a", 1): [record("plain")]})
    assert values(writer.root, "p") == ["a", "b", "d"]
    assert values(writer.root, "a") == ["c", "plain"]
    assert values(writer.root, "p", "read_uncommitted") == ["a", "b", "lost", "d"]
    settings = {"bootstrap.servers": str(writer.root), "group.id": "g", "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition("p", 0)])
        found = [(message.offset(), message.key(), message.value()) for message in consumer.consume(3, 10)]
    assert found == [(0, b"k", b"a"), (1, None, b"b"), (5, None, b"d")]


def test_records_are_where_the_writer_says(writer: StoreWriter) -> None:
    """The other tests read what they mean to read."""
    producer = writer.init_producer_id("writer")
    writer.write(producer, {("p", 0): [record("a"), record("b")], ("p", 1): [record("c")]})
    commands = json.loads(max((writer.root / "_log").glob("0*.json")).read_bytes())["commands"]
    inline = [command["records"] for command in commands if command.get("data")]
    assert inline == [rows for rows in (2, 1) if rows <= writer.inline_rows]
    assert len(list(writer.root.glob("topics/p-1/*/*.parquet"))) == 2 - len(inline)


@pytest.mark.parametrize("altered", ["data", "size", "checksum", "name", "none"])
def test_inline_records_that_are_not_what_the_append_says_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, altered: str
) -> None:
    """By both state machines: the product calls an entry that carries them damaged."""
    writer = StoreWriter(tmp_path, inline_rows=9)
    writer.create_topic("p")
    append = writer.stage(1, writer.state()[0].existing("topic", "p"), 0, [record("a"), record("b")])
    append |= {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0, "transactional_id": None, "transaction": -1}
    writer.init_producer_id()
    wrong = {
        "data": {"data": append["data"][:-8] + "AAAAAAA="},
        "size": {"size_bytes": append["size_bytes"] + 1},
        "checksum": {"checksum": "00000000"},
        "name": {"segment": f"{1:020d}-{append['segment'][:20]}.parquet"},
        "none": {},
    }[altered]
    if altered == "none":
        writer.commit(lambda _: [append])
        assert values(tmp_path, "p") == ["a", "b"]
        return
    with pytest.raises(Refused):
        writer.commit(lambda _: [append | wrong])
    with monkeypatch.context() as patch:
        patch.setattr(Replay, "append", lambda self, command: None)
        writer.commit(lambda _: [append | wrong])
    with pytest.raises(DamagedObject, match=r"_log/0*3\.json"):
        values(tmp_path, "p")


def test_a_typed_topic_and_offsets_in_the_transaction(writer: StoreWriter) -> None:
    writer.create_topic("t", schema=[("id", "int64", False), ("zone", "string", True)])
    producer = writer.init_producer_id("writer")
    rows: list[dict[str, Any]] = [{"id": 1, "zone": "n"}, {"id": 2, "zone": None}]
    writer.write(producer, {("t", 0): rows}, offsets=("readers", {("p", 0): 7, ("p", 1): 9}))
    assert read_arrow(str(writer.root), "t", columns=["id", "zone"]).read_all().to_pylist() == rows
    with Store.open(str(writer.root)) as store:
        committed = store.committed_offsets("readers").topic_partitions
    assert {(each.topic, each.partition): each.offset for each in committed or ()} == {("p", 0): 7, ("p", 1): 9}


def test_verify_and_the_other_jobs_accept_the_store(writer: StoreWriter) -> None:
    producer = writer.init_producer_id("writer")
    for number in range(40):
        writer.write(producer, {("p", 0): [record(f"{number}")]}, commit=number % 4 != 3)
    expected = [f"{number}" for number in range(40) if number % 4 != 3]
    with Store.open(str(writer.root)) as store:
        assert verify(store).problems == ()
        sweep(store)
        assert rewrite(store).ranges
        vacuum(store, {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0})
        assert verify(store).problems == ()
    assert values(writer.root, "p") == expected


def test_the_writer_and_the_product_take_turns_on_one_store(writer: StoreWriter) -> None:
    """Also across checkpoints of the product, from which the writer then continues."""
    identity = writer.init_producer_id("writer")
    settings = {"bootstrap.servers": str(writer.root), "transactional.id": "product", "checkpoint.entries": "4"}
    expected = []
    with Producer(settings) as producer:
        producer.init_transactions()
        for number in range(12):
            writer.write(identity, {("p", 0): [record(f"writer {number}")], ("a", 0): [record(f"{number}")]})
            producer.begin_transaction()
            producer.produce("p", f"product {number}", partition=0)
            producer.commit_transaction()
            expected += [f"writer {number}", f"product {number}"]
    with Store.open(str(writer.root)) as store:
        store.log.checkpoint()
        assert verify(store).problems == ()
    writer.write(identity, {("p", 0): [record("after the checkpoint")]})
    assert StoreReader(writer.root).heads()
    assert values(writer.root, "p") == [*expected, "after the checkpoint"]


def test_a_lost_slot_is_tried_again_and_takes_effect_once(writer: StoreWriter) -> None:
    identity = writer.init_producer_id("writer")
    won: list[str] = []

    def overtake() -> None:
        if len(won) < 2:
            won.append("x")
            with Producer({"bootstrap.servers": str(writer.root)}) as producer:
                producer.produce("p", "first", partition=0)

    racing = StoreWriter(writer.root, overtake, inline_rows=writer.inline_rows, inline=writer.inline)
    racing.write(identity, {("p", 0): [record("second")]})
    assert values(writer.root, "p") == ["first", "first", "second"]


@pytest.mark.parametrize("newer", ["product", "writer"])
def test_the_older_of_two_producers_is_fenced_whoever_made_the_newer(writer: StoreWriter, newer: str) -> None:
    if newer == "product":
        old = writer.init_producer_id("shared")
        with Producer({"bootstrap.servers": str(writer.root), "transactional.id": "shared"}) as producer:
            producer.init_transactions()
        with pytest.raises(Refused, match="which belongs to"):
            writer.write(old, {("p", 0): [record("x")]})
    else:
        with Producer({"bootstrap.servers": str(writer.root), "transactional.id": "shared"}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.produce("p", "x", partition=0)
            writer.init_producer_id("shared")
            with pytest.raises(KafkaException) as caught:
                producer.commit_transaction()
        assert caught.value.args[0].fatal()
    assert values(writer.root, "p") == []


def test_what_the_state_refuses_is_not_put(writer: StoreWriter) -> None:
    entries = len(list((writer.root / "_log").glob("*.json")))
    with pytest.raises(Refused, match="exists"):
        writer.create_topic("p")
    with pytest.raises(Refused):
        writer.write(Identity("stranger", 5, 0), {("p", 0): [record("x")]})
    assert len(list((writer.root / "_log").glob("*.json"))) == entries
