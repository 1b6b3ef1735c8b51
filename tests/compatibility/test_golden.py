"""Stores that earlier versions wrote, kept as they were: this version reads them, and writes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest

from sparktxn import PreparedTransaction, Producer, Store, read_arrow
from sparktxn._engine.format.commands import Command
from sparktxn.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from sparktxn.maintenance import publish_tables, verify
from sparktxn.store import merged_files
from tests.compatibility.independent_reader import StoreReader
from tests.compatibility.make_golden import CALM, EMPTY, GOLDEN, ISOLATIONS, MEMBERS, contents
from tests.deltareader import DeltaVersions
from tests.mergedrows import check_merged_rows

VERSIONS = ("0.1.0",)
"""Those that were released, in their order."""
COMMANDS = {
    "0.1.0": frozenset(
        {
            "add_offsets_to_txn",
            "add_partitions_to_txn",
            "alter_store",
            "alter_topic",
            "append",
            "appends",
            "cancel_intent",
            "check_half",
            "create_partitions",
            "create_topic",
            "delete_group",
            "delete_half",
            "delete_records",
            "delete_topic",
            "discard_half",
            "end_half",
            "end_txn",
            "expect_end_offset",
            "expire_member",
            "expire_offsets",
            "expire_producers",
            "expire_transactional_id",
            "init_producer_id",
            "join_group",
            "leave_group",
            "offset_commit",
            "prepare_half",
            "prepare_txn",
            "publish_tables",
            "release_partitions",
            "require_features",
            "resume_half",
            "rewrite",
            "settle_intent",
            "sink_batch_commit",
            "txn_offset_commit",
            "update_member",
            "vacuum",
        }
    )
}
STORES = sorted(path for path in GOLDEN.iterdir() if path.is_dir())


@pytest.fixture(params=STORES, ids=lambda path: path.name)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """A copy of a golden store, which the test may write to, and what is to be found there."""
    copy = tmp_path / request.param.name
    shutil.copytree(request.param, copy)
    return copy, request.param.with_name(f"{request.param.name}.expected.json")


def test_there_is_a_golden_store() -> None:
    assert STORES


def test_what_it_holds_is_what_it_held(golden: tuple[Path, Path]) -> None:
    store, expected = golden
    assert json.loads(json.dumps(contents(str(store)))) == json.loads(expected.read_text())


def test_it_has_every_kind_of_object(golden: tuple[Path, Path]) -> None:
    names = [path.relative_to(golden[0]).as_posix() for path in golden[0].rglob("*") if path.is_file()]
    for kind in ("_log/_appends/", "_log/_checkpoints/", "/manifest", ".txnindex", ".snapshot", ".arrow"):
        assert any(kind in name for name in names), kind


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_has_kept_every_kind_of_command(version: str) -> None:
    """Of those that it knew: a later version may have more."""
    reader = StoreReader(GOLDEN / version)
    kinds = {command["type"] for _, commands in reader.entries(0, "00000000") for command in commands}
    kinds |= {"appends"} if reader.names("_log/_appends") else set()
    assert kinds == COMMANDS[version]


def test_the_newest_version_knows_no_other_command() -> None:
    """Otherwise a golden store is to be written for the version that comes: see make_golden.py."""
    assert {kind.__struct_config__.tag for kind in get_args(Command)} == COMMANDS[VERSIONS[-1]]


@pytest.mark.parametrize("version", VERSIONS)
def test_its_tables_are_whole_and_are_published_on(tmp_path: Path, version: str) -> None:
    copy = shutil.copytree(GOLDEN / version, tmp_path / version)
    with Store.open(str(copy), options=CALM) as store:
        assert not verify(store).problems
        before = {table.name: table for table in store.log.tables()}
        store.add_columns("typed", pa.schema([("later", pa.string())]))
        assert [table.topic for table in publish_tables(store).tables] == ["typed"]
        for table in store.log.tables():
            assert table.location == before[table.name].location
            versions = DeltaVersions(store.log.objects, f"topics/{table.name}-{table.topic_id}/")
            assert versions.exists(table.version)
        assert not verify(store).problems


@pytest.mark.parametrize("version", VERSIONS)
def test_its_prepared_transaction_is_committed(tmp_path: Path, version: str) -> None:
    copy = shutil.copytree(GOLDEN / version, tmp_path / version)
    with Store.open(str(copy), options=CALM) as store:
        known = store.log.transaction("prepared")
        assert known is not None
        assert known.prepared is not None
        before = store.view(["audit.log"]).partitions
    with Producer({"bootstrap.servers": str(copy), "transactional.id": "prepared", **CALM}) as producer:
        producer.init_transactions(10, keep_prepared=True)
        prepared = PreparedTransaction(known.prepared.producer_id, known.prepared.producer_epoch)
        producer.complete_transaction(prepared, 10)
    with Store.open(str(copy), options=CALM) as store:
        after = store.view(["audit.log"]).partitions
    assert any(after[place].last_stable_offset > seen.last_stable_offset for place, seen in before.items())


def test_one_has_a_group_without_members_in_its_checkpoint() -> None:
    reader = StoreReader(GOLDEN / "format-1-empty")
    assert ("empty_group", EMPTY) in reader.state_from_checkpoint().records
    assert reader.names("_log/_checkpoints")


@pytest.mark.parametrize(
    ("name", "merged"), [("format-1", {False}), ("format-1-inline", {False}), ("format-1-offsets", {True})]
)
def test_merged_files_are_read_with_and_without_a_column_of_offsets(
    tmp_path: Path, name: str, merged: set[bool]
) -> None:
    """What PROTOCOL.md says of earlier writers' files: other tests here compare the rows of these stores."""
    reader = StoreReader(GOLDEN / name)
    state = reader.state_from_checkpoint()
    found: dict[str, list[Any]] = {}
    for places in [record for record in state.records.values() if record["type"] == "segments"]:
        for segment in reader.unsealed(state, places)["segments"]:
            found.setdefault(segment[0], []).append(segment)
    shared = {file: segments for file, segments in found.items() if len(segments) > 1}
    assert {file.endswith(".offsets.parquet") for file in shared} == merged
    copy = shutil.copytree(GOLDEN / name, tmp_path / name)
    with Store.open(str(copy), options=CALM) as store:
        for topic in ("orders", "typed", "prices"):
            view = store.view([topic])
            tasks = store.plan(view, store.ranges(view))
            check_merged_rows(store, tasks)
            files, _ = merged_files(tasks)
            assert {file.task.segments[0].name for file in files} >= {
                file for file in shared if file.endswith(".offsets.parquet")
            } & {segment.name for task in tasks for segment in task.segments}


@pytest.mark.parametrize("name", ["format-1", "format-1-inline", "format-1-offsets"])
def test_topics_become_tables(tmp_path: Path, name: str) -> None:
    """Merged files of earlier versions have no offsets: these are written anew."""
    copy = shutil.copytree(GOLDEN / name, tmp_path / name)
    topics = ["orders", "prices"]
    with Store.open(str(copy), options=CALM) as store, AdminClient({"bootstrap.servers": str(copy)}) as admin:
        for topic in topics:
            entry = ConfigEntry("table.formats", "delta", incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
            admin.incremental_alter_configs([resource])[resource].result()
        report = publish_tables(store)
        assert [table.topic for table in report.tables] == topics
        for topic, state in store.view(topics).topics.items():
            versions = DeltaVersions(store.log.objects, f"topics/{topic}-{state.topic_id}/")
            read = read_arrow(store, topic, columns=["partition", "offset", "value"], as_of=report.entry).read_all()
            expected = [(topic, row["partition"], row["offset"], row["value"]) for row in read.to_pylist()]
            assert versions.rows(0, topic) == sorted(expected)
            assert all(file.endswith(".offsets.parquet") for file in versions.files(0))
        assert not verify(store, topics).problems


def test_one_has_inline_records_also_below_its_horizon() -> None:
    """In an entry that a vacuum has kept, in mixed transactions, in typed topics, and in an aborted transaction."""
    reader = StoreReader(GOLDEN / "format-1-inline")
    state, horizon = reader.state_from_checkpoint(), reader.horizon()
    assert len(reader.names("_log")) > 1 < horizon
    found: dict[str, list[tuple[str, int, bool]]] = {}
    for places in [record for record in state.records.values() if record["type"] == "segments"]:
        (topic,) = (r for r in state.records.values() if r["type"] == "topic" and r["topic_id"] == places["topic_id"])
        for segment in reader.unsealed(state, places)["segments"]:
            is_aborted = any(
                of == segment[6] and first <= segment[1] <= last for of, first, last, _ in places["aborted"]
            )
            found.setdefault(topic["name"], []).append((segment[0].rpartition(".")[2], segment[5], is_aborted))
    assert {kind for kind, entry, _ in found["kept"] if entry < horizon} == {"inline"}
    assert sorted(entry < horizon for kind, entry, _ in found["grown"] if kind == "inline") == [False, False, True]
    assert {(kind, is_aborted) for kind, _, is_aborted in found["mixed"]} == {
        (kind, is_aborted) for kind in ("inline", "parquet") for is_aborted in (False, True)
    }


def test_one_has_half_messages_in_entries_that_a_vacuum_has_passed() -> None:
    """One is committed: its segment's name says which entry carries it. One is pending."""
    reader = StoreReader(GOLDEN / "format-1-inline")
    state = reader.state_from_checkpoint()
    (pending,) = (r for r in state.records.values() if r["type"] == "half")
    (topic,) = (r for r in state.records.values() if r["type"] == "topic" and r["name"] == "halves")
    (places,) = (r for r in state.records.values() if r["type"] == "segments" and r["topic_id"] == topic["topic_id"])
    names = [segment[3] for segment in pending["segments"]]
    names += [segment[0] for segment in reader.unsealed(state, places)["segments"]]
    assert len(names) == 2
    assert all(name.endswith(".inline") and int(name.partition("-")[0]) < reader.horizon() for name in names)
    expected = json.loads((GOLDEN / "format-1-inline.expected.json").read_text())
    assert expected["halves"] == {"pending": ["pending"]}


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_an_independent_reader_finds_the_same_offsets(golden: tuple[Path, Path], isolation: str) -> None:
    store, expected = golden
    reader = StoreReader(store)
    described = json.loads(expected.read_text())
    del described["entry"]
    members, empty = described.pop("members"), described.pop("empty_groups", {})
    del described["halves"]
    described.pop("tables", None)
    states = [reader.state_from_checkpoint()]
    if reader.horizon() == 1:
        states.append(reader.state_from_first())
    for topic, told in described.items():
        for state in states:
            rows = [json.loads(row) for row in told["records"][isolation]]
            places = {
                (row.get("_partition", row.get("partition")), row.get("_offset", row.get("offset"))) for row in rows
            }
            assert set(reader.records(state, topic, isolation)) == places
    for state in states:
        found = {key[2]: record["assigned"] for key, record in state.records.items() if key[:2] == ("member", MEMBERS)}
        assert found == members
        since = {key[1]: record["entry"] for key, record in state.records.items() if key[0] == "empty_group"}
        assert since == empty


def test_it_is_written_on(golden: tuple[Path, Path]) -> None:
    store, expected = golden
    with Producer({"bootstrap.servers": str(store), "transactional.id": "shop-1", **CALM}) as producer:
        producer.init_transactions(10)
        with producer.transaction():
            producer.produce("orders", "after")
    before = json.loads(expected.read_text())
    after = contents(str(store))
    assert after["entry"] == before["entry"] + 2
    # Of one an open transaction holds back what is committed now.
    was, now = (set(found["orders"]["records"]["read_uncommitted"]) for found in (before, after))
    assert was < now
    assert [json.loads(row)["value"] for row in now - was] == ["b'after'"]
