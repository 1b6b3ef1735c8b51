"""What the reader of a page has before its first block, and what exists after its last: programs, by page.

A page says what it assumes in words: a store with orders, a session of Spark. Here it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class World(NamedTuple):
    """The programs around a page's blocks, and those between, by the number of the next block.

    `twice`: the page can be pasted a second time. `any_order`: the lines that a block prints come in any order.
    """

    before: str = ""
    after: str = ""
    between: Mapping[int, str] = {}
    spark: bool = False
    s3: bool = False
    twice: bool = False
    any_order: bool = False


_STORES: Final = '''
import uuid
from pathlib import Path
from sparktxn import Consumer, Producer, StoreNotFound, TopicPartition
from sparktxn.admin import AdminClient, NewTopic
from sparktxn.store import Store

def make(address, *topics, records=7):
    """A store with topics of two partitions, each with records in two transactions, unless it is there already."""
    with AdminClient({"bootstrap.servers": address}) as admin:
        try:
            if {*topics} <= admin.list_topics().topics.keys():
                return
        except StoreNotFound:
            pass
        for future in admin.create_topics([NewTopic(topic, 2) for topic in topics]).values():
            future.result()
    with Producer({"bootstrap.servers": address, "transactional.id": "made"}) as producer:
        producer.init_transactions()
        for start in (0, records):
            with producer.transaction():
                for topic in topics:
                    for number in range(start, start + records):
                        producer.produce(topic, f"value {number}", f"DE-{number}")

def folder(path):
    Path(path).mkdir(parents=True, exist_ok=True)
'''

_SPARK: Final = (
    _STORES
    + """
import pyspark_txnlog
uri = "/tmp/shop"
make(uri, "orders", "payments")
make("/data/shop", "orders")
folder("/var/lib/node_exporter")
spark = pyspark_txnlog.session(master="local[2]")
df = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
"""
)

_SPARK_AFTER: Final = """
for query in spark.streams.active:
    query.processAllAvailable()
    query.stop()
counted = spark.read.parquet("/data/counts").groupBy().sum("count").collect()
assert counted[0][0] == 14 + 3, counted  # those of the world, and those that the page writes
assert spark.sql("SELECT * FROM orders").count() == 14 + 1
assert count("/data/shop", "orders") == 14 + 3
assert rows.count() == 1, rows.collect()
spark.stop()
"""

WORLDS: Final[dict[str, World]] = {
    # First of those with Spark: its query of `scan_stream` needs the first session of their process.
    "docs/spark.md": World(_SPARK, _SPARK_AFTER, spark=True),
    # Two programs for the same store: the second one has no names of the first.
    "README.md": World(
        between={1: "for name in [name for name in globals() if not name.startswith('__')]: del globals()[name]"},
        after="""
assert orders.count() == 1
payments = spark.read.format("txnlog").option("subscribe", "payments").load("/tmp/shop")
assert sorted(bytes(row.value).decode() for row in payments.collect()) == ["2 APPLES", "3.20 EUR"]
spark.stop()
""",
        spark=True,
        any_order=True,
    ),
    "docs/tables.md": World(twice=True),
    "docs/asyncio.md": World(twice=True),
    "docs/schema-evolution.md": World(after="spark.stop()", spark=True),
    "docs/from-kafka-python.md": World(twice=True),
    "docs/monitoring.md": World(_STORES + 'make("/data/shop", "orders")'),
    "docs/from-delta.md": World(twice=True),
    "docs/tables-that-change.md": World(twice=True, spark=True, after="spark.stop()"),
    "docs/from-spark-kafka.md": World(spark=True),
    "docs/operations.md": World(
        _STORES
        + """
import inspect
make("s3://bucket/shop", "orders", "payments")
from shutil import rmtree
from sparktxn.maintenance import copy_store
from sparktxn.store.registry import objects_of
# The page has vacuumed what the copies of a first reading would be brought forward from: such a copy is made anew.
for copy in ("backup", "restored"):
    rmtree(copy, ignore_errors=True)
copied = objects_of("s3://backup/shop", {})
copied.delete([info.name for info in copied.list("")])
with Store.open("s3://bucket/shop") as made:
    copy_store(made, "backup")
# Of this transaction the page says how it is found and ended: here it hangs as soon as it is open.
hanging = Producer({"bootstrap.servers": "s3://bucket/shop", "transactional.id": "hanging"})
hanging.init_transactions()
hanging.begin_transaction()
hanging.produce("orders", "never committed", partition=0)
hanging.flush()
inspect.unwrap(AdminClient.find_hanging_transactions).__kwdefaults__["max_transaction_timeout_ms"] = 0
""",
        """
assert found.transactional_id == "hanging"
assert admin.find_hanging_transactions().result() == []
assert admin.list_topics().topics.keys() == {"orders", "payments", "prices"}
with Store.open("restored") as restored, Store.open("s3://backup/shop") as copied:
    assert restored.view(["orders"]).partitions.keys() == copied.view(["orders"]).partitions.keys()
""",
        s3=True,
    ),
    "docs/porting.md": World(
        _STORES
        + """
make("s3://bucket/shop", "orders", "account-7")
make("/data/log", "orders")
program = "from confluent_kafka import Consumer; print(sorted(Consumer(SETTINGS).list_topics().topics))"
for file, broker in (("program.py", "any:9092"), ("package/module.py", "kafka-2:9092")):
    folder(Path(file).parent)
    Path(file).write_text(program.replace("SETTINGS", repr({"bootstrap.servers": broker, "group.id": "g"})))
Path("package/__init__.py").touch()
import pyspark_txnlog
spark = pyspark_txnlog.session(master="local[1]")
""",
        """
assert _.isStreaming, _
spark.stop()
""",
        between={
            3: """
producer.init_transactions()
consumer = Consumer({"bootstrap.servers": "s3://bucket/shop", "group.id": "decider"})
consumer.assign([TopicPartition("account-7", 0, 0)])
while consumer.position([TopicPartition("account-7", 0)])[0].offset < 5:
    consumer.consume(100, timeout=0.5)
decision = "approved"
"""
        },
        spark=True,
        s3=True,
    ),
    "docs/transfer.md": World(
        _STORES
        + """
make("s3://bucket/shop", "orders")
make("s3://bucket/archive", "orders", records=0)
make("/data/shop", "orders", records=0)
""",
        """
with Store.open("/data/shop") as store:
    assert sum(part.log_end_offset for part in store.view(["orders"]).partitions.values()) >= 14
assert sorted(Path("/data/orders-files").rglob("*.parquet"))
""",
        s3=True,
    ),
    "docs/cli.md": World(),
    "docs/tutorial.md": World(),
}

_SHOP: Final = """
import os
os.environ["TXNLOG_STORE"] = "SHOP"
"""

PAGE_WORLDS: Final[dict[str, World]] = {
    "docs/cli.md": World(_SHOP.replace("SHOP", "shop")),
    "docs/console.md": World(_STORES + _SHOP.replace("SHOP", "/data/shop") + 'make("/data/shop", "orders")'),
    "docs/transfer.md": WORLDS["docs/transfer.md"]._replace(
        before=_SHOP.replace("SHOP", "store") + WORLDS["docs/transfer.md"].before
    ),
    "docs/upgrading.md": World(
        _STORES
        + _SHOP.replace("SHOP", "shop")
        + """
with AdminClient({"bootstrap.servers": "shop"}) as admin, Producer({"bootstrap.servers": "shop"}) as producer:
    created = admin.create_topics([NewTopic("orders", 1)])["orders"]
    if created.exception() is None:
        producer.produce("orders", "apples", "o-1")
        producer.produce("orders", "pears", "o-2")
"""
    ),
}
"""Worlds of all blocks of a page, where `WORLDS` has that of some of them, or none."""
