"""Writes a golden store: `python tests/compatibility/make_golden.py [name]`, for each version that changes the format.

A store that an earlier version wrote is never written again: later versions show that they can read it.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from sparktxn import Consumer, TopicPartition
from sparktxn.admin import NewTopic
from sparktxn.format.commands import LeaveGroup
from sparktxn.halfmessage.engine import HalfEngine
from sparktxn.halfmessage.records import MessageRecord
from sparktxn.kafka.settings.halfmessage import HalfMessageSettings
from sparktxn.maintenance import vacuum
from sparktxn.store import Store

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
EVERYTHING = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.temporary.age.ms": 0}


def contents(uri: str) -> dict[str, Any]:
    """All that a reader can ask of the store, as JSON: records and offsets in both isolation levels, and the rest."""
    found: dict[str, Any] = {}
    with Store.open(uri) as store:
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
    return found


def half_engine(uri: str) -> HalfEngine:
    return HalfEngine(HalfMessageSettings.parse({"bootstrap.servers": uri}))


def _records(uri: str, topic: str, partition_count: int, isolation: str) -> list[str]:
    from tests.compatibility.consume_all import consume_all

    settings = {"bootstrap.servers": uri, "group.id": "all", "isolation.level": isolation, "enable.auto.commit": False}
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, number, -2) for number in range(partition_count)])
        tables = consume_all(consumer, lambda timeout: consumer.consume_arrow(timeout=timeout))
        return sorted(json.dumps(row, default=str) for table in tables for row in table.to_pylist())


def _write_what_a_vacuum_passes(workload: Any) -> None:
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


def _prepare_halves(workload: Any) -> None:
    """Half messages that their entries carry: one is committed after a vacuum has passed its entry, one is pending."""
    engine = half_engine(workload.uri)
    for name in HALVES:
        staged = engine.stage([MessageRecord("halves", name.encode(), name, 1_700_000_000_000)])
        engine.prepare("shop", name, staged, 2_592_000_000)
    engine.close()


def _commit_a_half(workload: Any) -> None:
    engine = half_engine(workload.uri)
    with engine.within(10):
        engine.end("shop", HALVES[0], committed=True)
    engine.close()


def _write_mixed(workload: Any) -> None:
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


def write(folder: Path) -> None:
    """Writes a small store with every kind of object, and next to it what a reader must find there."""
    from tests.compatibility.workload import COMPACTED, TYPED, Workload  # `tests` is found once the root is on the path

    settings = {"store.fsync": False, "checkpoint.seal.segments": 4}
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
    found = contents(str(folder))
    (folder.parent / f"{folder.name}.expected.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    # What is on the disk now stays: closing would abort the transaction that is to be found open.
    shutil.copytree(folder, folder.with_name(folder.name + ".copy"), ignore=shutil.ignore_patterns(".*"))
    workload.close()
    shutil.rmtree(folder)
    folder.with_name(folder.name + ".copy").rename(folder)


def main() -> None:
    sys.path.insert(0, str(ROOT))
    target = GOLDEN / (sys.argv[1] if len(sys.argv) > 1 else "format-1")
    if target.exists():
        raise SystemExit(f"{target.relative_to(ROOT)} exists, and shows what its version wrote: give another name")
    write(target)
    files = [path for path in target.rglob("*") if path.is_file()]
    print(f"{target.relative_to(ROOT)}: {len(files)} files, {sum(path.stat().st_size for path in files)} bytes")


if __name__ == "__main__":
    main()
