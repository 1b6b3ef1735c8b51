"""Writes the golden stores of a version: `python tests/compatibility/make_golden.py VERSION`.

`VERSION` has every kind of command that an entry can hold, `VERSION-vacuumed` what a vacuum leaves, and
`VERSION-packed` the same with heads as a store of many topics has them. A store that an earlier version wrote is never
written again: later versions show that they can read it.
"""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[2]))

from sparktxn import Consumer, TopicPartition
from sparktxn._engine.format import checkpoint
from sparktxn._engine.format.commands import AddOffsetsToTxn, AddPartitionsToTxn, LeaveGroup
from sparktxn._foundation.values.structs import TableState
from sparktxn._kafka.settings.halfmessage import HalfMessageSettings
from sparktxn.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from sparktxn.halfmessage.engine import HalfEngine
from sparktxn.halfmessage.records import MessageRecord
from sparktxn.maintenance import compact, publish_tables, vacuum
from sparktxn.store import Store
from tests.compatibility.consume_all import consume_all
from tests.compatibility.workload import COMPACTED, TYPED, Workload
from tests.deltareader import DeltaVersions

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
ISOLATIONS = ("read_committed", "read_uncommitted")
# Its appends are more bytes than an entry takes, so that the store has an append object.
LONG_TRANSACTIONAL_ID = "x" * 32_700
LARGE_APPENDS = 8
GROUP = "billing"
MEMBERS = "members"
EMPTY = "empty"
"""A group whose last member has left."""
KEPT = "kept"
"""A topic whose inline records stay in an entry that a vacuum keeps."""
HALVES = ("committed", "pending")
ROUNDS = 8
TABLE = {"table.formats": "delta,iceberg"}
TABLES = ("orders", "typed", "prices")
CALM = {"checkpoint.fold.bytes.per.minute": 0}
"""Nothing is folded or published in the background: what is found is what was written."""
EVERYTHING = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.temporary.age.ms": 0}


def contents(uri: str) -> dict[str, Any]:
    """All that a reader can ask of the store, as JSON: records and offsets in both isolation levels, and the rest."""
    found: dict[str, Any] = {}
    with Store.open(uri, options=CALM) as store:
        view = store.view()
        for name, topic in view.topics.items():
            partitions = range(topic.partition_count)
            ends = [view.partitions[name, number] for number in partitions]
            offsets = [[end.log_start_offset, end.last_stable_offset, end.log_end_offset] for end in ends]
            records = {isolation: _records(uri, name, len(partitions), isolation) for isolation in ISOLATIONS}
            committed = [store.log.committed_offset(GROUP, topic.topic_id, number) for number in partitions]
            found[name] = {
                "topic_id": topic.topic_id,
                "settings": topic.settings,
                "offsets": offsets,
                "records": records,
                "committed": [at.offset if at is not None else None for at in committed],
            }
        found["entry"] = view.entry
        engine = half_engine(uri)
        halves = {half.transaction_id: engine.messages_of(half) for half in store.log.halves()}
        found["halves"] = {name: [each.body.decode() for each in messages] for name, messages in halves.items()}
        engine.close()
        found["members"] = {
            member.member_id: [list(held) for held in msgspec.to_builtins(member.assigned)]
            for member in store.log.group_members(MEMBERS)
        }
        # Stores of earlier versions have none.
        if empty := store.log.empty_groups():
            found["empty_groups"] = {group.group_id: group.entry for group in empty}
        if tables := store.log.tables():
            found["tables"] = {table.name: _versions(store, table) for table in tables}
    return found


def _versions(store: Store, table: TableState) -> dict[str, Any]:
    """What other engines find in a table: of each version its entry, and the places of its rows."""
    folder = f"topics/{table.name}-{table.topic_id}/"
    versions = DeltaVersions(store.log.objects, folder)
    shown = {
        str(number): [versions.entry(number), _places(store, folder, versions, number)]
        for number in versions.readable()
    }
    return {"version": table.version, "location": table.location, "versions": shown}


def _places(store: Store, folder: str, versions: DeltaVersions, number: int) -> list[list[int]]:
    places = []
    for name in versions.files(number):
        data = store.log.objects.get(folder + name)
        assert data is not None
        rows = pq.read_table(pa.BufferReader(data), use_threads=False)
        column = "offset" if "offset" in rows.schema.names else "_offset"
        partition = int(name.partition("kafka_partition=")[2].partition("/")[0])
        places += [[partition, offset] for offset in rows[column].to_pylist()]
    return sorted(places)


def half_engine(uri: str) -> HalfEngine:
    return HalfEngine(HalfMessageSettings.parse({"bootstrap.servers": uri, **CALM}))


def _records(uri: str, topic: str, partition_count: int, isolation: str) -> list[str]:
    settings = {"bootstrap.servers": uri, "group.id": "all", "isolation.level": isolation, "enable.auto.commit": False}
    with Consumer(settings | CALM) as consumer:
        consumer.assign([TopicPartition(topic, number, -2) for number in range(partition_count)])
        tables = consume_all(consumer, lambda timeout: consumer.consume_arrow(timeout=timeout))
        return sorted(json.dumps(row, default=str) for table in tables for row in table.to_pylist())


def _write_what_a_vacuum_passes(workload: Workload) -> None:
    """Inline records of which a vacuum keeps the entry: of two partitions, and of a topic that gains a column."""
    kept = workload.producer("kept")
    with kept.transaction():
        for number in range(4):
            kept.produce(KEPT, f"kept {number}", partition=number % 2, timestamp=1_700_000_000_000)
    with Store.open(workload.uri, options=workload.options) as store:
        store.create_topic("grown", schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
        with kept.transaction():
            kept.produce_arrow("grown", pa.table({"id": [1, 2]}))
        store.add_columns("grown", pa.schema([("name", pa.string())]))
        # The horizon is the older of two checkpoints.
        store.log.checkpoint()
        workload.producer("between")
        store.log.checkpoint()
        assert vacuum(store, EVERYTHING).entries > 0


def _prepare_halves(workload: Workload) -> None:
    """Half messages that their entries carry: one is committed after a vacuum has passed its entry, one is pending."""
    engine = half_engine(workload.uri)
    for name in HALVES:
        staged = engine.stage([MessageRecord("halves", name.encode(), name, 1_700_000_000_000)])
        engine.prepare("shop", name, staged, 2_592_000_000)
    engine.close()


def _commit_a_half(workload: Workload) -> None:
    engine = half_engine(workload.uri)
    with engine.within(10):
        engine.end("shop", HALVES[0], committed=True)
    engine.close()


def _write_mixed(workload: Workload) -> None:
    """Transactions with inline records and a file: one is committed, one aborted."""
    mixed = workload.producer("mixed")
    for large, committed in ((1, True), (0, False)):
        mixed.begin_transaction()
        for partition in range(2):
            size = 20_000 if partition == large else 5
            mixed.produce("mixed", "x" * size, partition=partition, timestamp=1_700_000_000_001)
        mixed.produce_arrow("grown", pa.table({"id": [3], "name": ["three"]}))
        # Published, so that what is aborted is in the log.
        mixed.flush(10)
        if committed:
            mixed.commit_transaction(10)
        else:
            mixed.abort_transaction(10)


def _publish(workload: Workload) -> None:
    """Tables of several versions: of records, of declared columns, of a compacted topic, and of one that is deleted."""
    workload.settle(workload.admin.create_topics([NewTopic("gone", 1, config=TABLE)]))
    for topic in TABLES:
        setting = ConfigEntry("table.formats", "delta,iceberg", incremental_operation=AlterConfigOpType.SET)
        topic_of = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[setting])
        workload.settle(workload.admin.incremental_alter_configs([topic_of]))
    producer = workload.producer("published")
    for number in range(3):
        with producer.transaction():
            for topic in ("orders", "prices", *(["gone"] if number == 0 else [])):
                workload.produce(producer, 3, topic)
            workload.produce_typed(producer, 2)
        with Store.open(workload.uri, options=workload.options) as store:
            store.add_columns("typed", pa.schema([(f"column {number}", pa.struct([("a", pa.int32())]))]))
            assert publish_tables(store, location="s3://bucket/golden").tables
        if number == 0:
            workload.settle(workload.admin.delete_topics(["gone"]))


def write_all(folder: Path) -> None:
    """Writes a store with every kind of command that an entry can hold, and next to it what a reader finds there."""
    settings = {"store.fsync": False, "checkpoint.entries": 16, "checkpoint.seal.segments": 4, **CALM}
    workload = Workload(str(folder), settings)
    workload.write(ROUNDS)
    _publish(workload)
    rows = ConfigEntry("segment.rows", "1", incremental_operation=AlterConfigOpType.SET)
    typed = ConfigResource(ConfigResource.Type.TOPIC, "typed", incremental_configs=[rows])
    workload.settle(workload.admin.incremental_alter_configs([typed]))
    large = workload.producer(LONG_TRANSACTIONAL_ID)
    with large.transaction():
        workload.produce_typed(large, LARGE_APPENDS)
    with Consumer({**workload.settings, "group.id": "left"}) as consumer:
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    workload.settle(workload.admin.delete_consumer_groups(["left"]))
    with Store.open(workload.uri, options=settings) as store, store.log.within(10):
        # What Kafka's own protocol has, and no client of this package sends.
        for name, begins, command in (
            ("open", 0, partial(AddPartitionsToTxn, partitions=((2, 0),))),
            ("published", 1, partial(AddOffsetsToTxn, group_id=GROUP)),
        ):
            known = store.log.transaction(name)
            assert known is not None
            store.log.submit([command(name, known.producer_id, known.producer_epoch, known.transaction + begins)])
    _keep(workload, folder)


def _write_keyed(workload: Workload, *, compacted: bool = False) -> None:
    """A keyed topic: upserts and deletes of all writers, alone and with other records, and a column that it gains.

    It is compacted twice, so that deletes are gone, and has a base and a tail then.
    """
    key = [pa.field("id", pa.int64(), nullable=False), pa.field("region", pa.string(), nullable=False)]
    settings = {"primary.key": "region,id", "append.inline.bytes": "200"}
    if compacted:
        settings |= {"min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"}
    with Store.open(workload.uri, options=workload.options) as store:
        store.create_topic("keyed", 2, settings=settings, schema=pa.schema([*key, ("name", pa.string())]))
        producer = workload.producer("keyed")
        for number in range(8):
            rows = pa.table({"id": range(8), "region": ["EU", "ÜS"] * 4, "name": [f"{number}"] * 8})
            with producer.transaction():
                producer.produce_arrow("keyed", rows.slice(number, 8 - number))
                if number % 2:
                    producer.produce("orders", "beside", timestamp=1_700_000_000_000)
                    producer.flush(10)
            producer.begin_transaction()
            producer.produce_arrow("keyed", rows.select(["id", "region"]), delete=True)
            producer.abort_transaction(10)
        store.add_columns("keyed", pa.schema([("more", pa.date32())]))
        for number in range(2 if compacted else 0):
            with producer.transaction():
                more = pa.table({"more": pa.array([number] * 8, pa.date32())}).column(0)
                producer.produce_arrow("keyed", rows.append_column("more", more).slice(4 + number))
                producer.produce_arrow("keyed", rows.select(["id", "region"]).slice(3, 1), delete=True)
            compact(store, {"compact.topics": "keyed"})
        stager = store.stage_plan(["keyed"]).open(seed=0, default_topic="keyed", inline=True)
        stager.write(rows.select(["id", "region"]).slice(0, 3), delete=True)
        store.commit(stager.finish())


def write_keyed(folder: Path) -> None:
    """Writes a small store as `write_vacuumed` does, with a keyed topic."""
    write_vacuumed(folder, keyed=True)


def write_compacted(folder: Path) -> None:
    """Writes a small store as `write_keyed` does, whose keyed topic is compacted."""
    write_vacuumed(folder, keyed=True, compacted=True)


def write_vacuumed(folder: Path, *, keyed: bool = False, compacted: bool = False) -> None:
    """Writes a small store that a vacuum has shortened, and next to it what a reader must find there."""
    settings = {"store.fsync": False, "checkpoint.seal.segments": 4, **CALM}
    workload = Workload(str(folder), settings)
    typed = {"segment.format": "arrow", "segment.rows": "1", "message.timestamp.type": "LogAppendTime"}
    topics = [
        NewTopic("orders", 1, config={"append.inline.bytes": "30"}),
        NewTopic("typed", 1, schema=TYPED, config=typed),
        NewTopic("prices", 1, config=COMPACTED),
        NewTopic(KEPT, 2),
        NewTopic("mixed", 2),
        NewTopic("halves", 1),
    ]
    workload.settle(workload.admin.create_topics(topics))
    if keyed:
        _write_keyed(workload, compacted=compacted)
    _prepare_halves(workload)
    _write_what_a_vacuum_passes(workload)
    other, plain = workload.producer("shop-2"), workload.producer()
    one = workload.fence("shop-1")
    for producer in (one, other):
        producer.begin_transaction()
    for producer in (one, plain, other):
        workload.produce(producer, 2)
        producer.flush(10)
    other.abort_transaction(10)
    one.commit_transaction(10)
    large = workload.producer(LONG_TRANSACTIONAL_ID)
    with large.transaction():
        workload.produce_typed(large, LARGE_APPENDS)
    with Store.open(workload.uri, options=settings) as store:
        workload.join(store, EMPTY, "gone", ("orders",))
        with store.log.within(10):
            store.log.submit([LeaveGroup("leave", EMPTY, "gone")])
        workload.join(store, MEMBERS, "member 1", ("orders", "typed"))
        store.log.checkpoint()
        workload.join(store, MEMBERS, "member 2", ("orders",))
    with Consumer({**workload.settings, "group.id": GROUP}) as consumer:
        metadata = consumer.consumer_group_metadata()
    with other.transaction():
        workload.produce(other, 1)
        other.send_offsets_to_transaction([TopicPartition("orders", 0, 3)], metadata)
    workload.batch("query", "run", 1)
    workload.rewrite()
    workload.prices(other)
    workload.change_settings()
    workload.delete_records(1)
    _write_mixed(workload)
    _commit_a_half(workload)
    one.begin_transaction()
    workload.produce(one, 3)
    one.flush(10)
    _keep(workload, folder)


def write_packed(folder: Path) -> None:
    """Writes what `write_vacuumed` does, with heads that are packed."""
    with patch.object(checkpoint, "PACKED_PARTS_MIN", 1):
        write_vacuumed(folder)


def _keep(workload: Workload, folder: Path) -> None:
    """Note what a reader finds, and keep what is on the disk now: closing would abort what is to be found open."""
    found = contents(str(folder))
    (folder.parent / f"{folder.name}.expected.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    shutil.copytree(folder, folder.with_name(folder.name + ".copy"), ignore=shutil.ignore_patterns(".*"))
    workload.close()
    shutil.rmtree(folder)
    folder.with_name(folder.name + ".copy").rename(folder)


def main(version: str) -> None:
    keyed = ((f"{version}-keyed", write_keyed), (f"{version}-compacted", write_compacted))
    vacuumed = (f"{version}-vacuumed", write_vacuumed)
    stores = ((version, write_all), vacuumed, *keyed, (f"{version}-packed", write_packed))
    for name, write in stores:
        target = GOLDEN / name
        if target.exists():
            raise SystemExit(f"{target.relative_to(ROOT)} exists, and shows what its version wrote: give another name")
        write(target)
        files = [path for path in target.rglob("*") if path.is_file()]
        print(f"{target.relative_to(ROOT)}: {len(files)} files, {sum(path.stat().st_size for path in files)} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
