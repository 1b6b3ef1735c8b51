"""One step with one version of the package, in a process of its own: VERSION FOLDER STEP STORE NUMBER; prints JSON.

It uses what each released version has. An empty VERSION is that of the checkout.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[2])

import pyarrow as pa

import sparktxn
from sparktxn import Consumer, PreparedTransaction, Producer, Store, TopicPartition, read_arrow
from sparktxn.errors import DamagedObject, FormatVersionError
from sparktxn.halfmessage.engine import HalfEngine
from sparktxn.halfmessage.records import MessageRecord
from sparktxn.maintenance import publish_tables, rewrite, verify

VERSION, FOLDER, STEP, STORE, NUMBER = sys.argv[1:]
SETTINGS = "sparktxn._kafka.settings" if find_spec("sparktxn._kafka") else "sparktxn.kafka.settings"
HalfMessageSettings: Any = import_module(f"{SETTINGS}.halfmessage").HalfMessageSettings
CALM = {"store.fsync": False, "checkpoint.fold.bytes.per.minute": 0, "checkpoint.entries": 8}
CLIENT = {"bootstrap.servers": STORE, **CALM}
TABLE = {"table.formats": "delta,iceberg"}
TYPED = pa.schema([("id", pa.int64()), ("name", pa.string()), ("place", pa.struct([("x", pa.float64())]))])
PREPARED, KEPT = "prepared", Path(STORE).with_name("prepared")


def opened() -> Store:
    return Store.open(STORE, options=CALM)


def create() -> None:
    with Store.open(STORE, create=True, options=CALM) as store:
        store.create_topic("orders", 2, settings=TABLE)
        store.create_topic("typed", 1, schema=TYPED, settings=TABLE)
        store.create_topic("halves", 1)


def write() -> None:
    """Commit to both topics with a group's offsets, fence the writer before, merge, and publish."""
    number = int(NUMBER)
    with Producer({**CLIENT, "transactional.id": "shop"}) as producer:
        producer.init_transactions(30)
        for is_committed in (False, True):
            producer.begin_transaction()
            for partition in range(2):
                producer.produce("orders", f"{number} {is_committed}", key=b"k", partition=partition)
            producer.produce_arrow("typed", pa.Table.from_pylist([{"id": number}, {"name": "n"}], schema=TYPED))
            with Consumer({**CLIENT, "group.id": "group"}) as consumer:
                offsets = [TopicPartition("orders", 0, number + 1)]
                producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
            producer.flush(30)
            if is_committed:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
    with opened() as store:
        publish(store)
        rewrite(store, {"rewrite.min.segments": 2})
        store.log.checkpoint()


def publish(store: Store) -> None:
    """Publish; version 0.1.0 cannot read manifests with sizes of columns, and leaves the metadata to a newer one."""
    try:
        publish_tables(store, location="s3://bucket/store")
    except DamagedObject:
        if VERSION != "0.1.0":
            raise


def read() -> dict[str, Any]:
    with opened() as store, Consumer({**CLIENT, "group.id": "group"}) as consumer:
        columns = {"orders": ["partition", "offset", "value", "entry"], "typed": ["_offset", *TYPED.names, "_entry"]}
        rows = [
            [topic, row]
            for topic in columns
            for row in read_arrow(store, topic, columns=columns[topic]).read_all().to_pylist()
        ]
        rows += [
            ["halves", row] for row in read_arrow(store, "halves", columns=["offset", "value"]).read_all().to_pylist()
        ]
        (committed,) = consumer.committed([TopicPartition("orders", 0)], 30)
        return {
            "rows": [[topic, {name: str(value) for name, value in row.items()}] for topic, row in rows],
            "versions": [table.version for table in store.log.tables()],
            "problems": [str(problem) for problem in verify(store).problems],
            "committed": committed.offset,
            "entry": store.log.refresh(),
        }


def leave() -> None:
    """Prepare a transaction, and a half message; a database would keep the identity."""
    producer = Producer({**CLIENT, "transactional.id": PREPARED})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", "prepared", partition=0)
    KEPT.write_text(str(producer.prepare_transaction(30)))
    producer.close()
    engine = HalfEngine(HalfMessageSettings.parse(CLIENT))
    staged = engine.stage([MessageRecord("halves", b"half", "half", 1_700_000_000_000)])
    engine.prepare("shop", "half", staged, 2_592_000_000)
    engine.close()


def end() -> None:
    with Producer({**CLIENT, "transactional.id": PREPARED}) as producer:
        producer.init_transactions(30, keep_prepared=True)
        producer.complete_transaction(PreparedTransaction.parse(KEPT.read_text()), 30)
    engine = HalfEngine(HalfMessageSettings.parse(CLIENT))
    with engine.within(30):
        engine.end("shop", "half", committed=True)
    engine.close()


def refused() -> str:
    try:
        with opened() as store:
            store.view()
    except FormatVersionError as error:
        return str(error)
    return "nothing is refused"


def main() -> None:
    assert Path(str(sparktxn.__file__)).is_relative_to(Path(FOLDER))
    assert not VERSION or importlib.metadata.version("sparktxn") == VERSION
    print(json.dumps(globals()[STEP]()))


if __name__ == "__main__":
    main()
