"""A row in SQLite and records in the log, committed together: the database is the coordinator of both.

The log's transaction is prepared first; then one transaction of the database stores the business rows and what the log
has prepared. Its commit decides: whatever dies afterwards, `complete_transaction` with the stored value commits the
log's transaction; if the database has not committed, the stored value is an older one, and the same call aborts it.

Run it with ``python examples/prepared_sqlite.py FOLDER``, kill it with any signal, and run it again: table and topics
then hold the same orders.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from sparktxn import PreparedTransaction, Producer, Store

TRANSACTIONAL_ID = "shop"
SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, item TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS coordinator (transactional_id TEXT PRIMARY KEY, prepared TEXT NOT NULL);
"""


def recover(producer: Producer, database: sqlite3.Connection) -> None:
    """Ends what an earlier process has left prepared, as the database has decided; may be repeated at will."""
    producer.init_transactions(keep_prepared=True)
    row = database.execute(
        "SELECT prepared FROM coordinator WHERE transactional_id = ?", (TRANSACTIONAL_ID,)
    ).fetchone()
    if row is not None:
        producer.complete_transaction(PreparedTransaction.parse(row[0]))
    elif producer.transaction_state == "PREPARED_TRANSACTION":
        producer.abort_transaction()  # the database has never committed anything


def place_order(producer: Producer, database: sqlite3.Connection, number: int, reached: Callable[[str], None]) -> None:
    """One order: a row, and a record in each of two topics. All of them, or none."""
    item = f"item {number}"
    producer.begin_transaction()
    producer.produce("orders", item, key=str(number))
    producer.produce("payments", f"payment for {item}", key=str(number))
    reached("produced")
    prepared = producer.prepare_transaction()
    reached("prepared")
    with database:  # one transaction: it commits at the end of the block
        database.execute("INSERT INTO orders VALUES (?, ?)", (number, item))
        database.execute("INSERT OR REPLACE INTO coordinator VALUES (?, ?)", (TRANSACTIONAL_ID, str(prepared)))
        reached("rows written")
    reached("database committed")
    producer.complete_transaction(prepared)
    reached("completed")


def run(store: str, database_file: str, count: int, reached: Callable[[str], None] = lambda step: None) -> None:
    """Places the orders up to `count` that are not there yet; tells `reached` each step, for tests to kill it there."""
    with Store.open(store, create=True) as log:
        known = {topic.name for topic in log.topics()}
        for topic in {"orders", "payments"} - known:
            log.create_topic(topic, 2)
    database = sqlite3.connect(database_file)
    database.execute("PRAGMA synchronous = FULL")
    database.executescript(SCHEMA)
    with Producer({"bootstrap.servers": store, "transactional.id": TRANSACTIONAL_ID}) as producer:
        reached("started")
        recover(producer, database)
        reached("recovered")
        (placed,) = database.execute("SELECT COUNT(*) FROM orders").fetchone()
        for number in range(placed, count):
            place_order(producer, database, number, reached)
    database.close()


def main() -> None:
    """Places ten orders more than there are, in the folder that is given or a new one."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="txnlog-"))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "shop.db"
    with sqlite3.connect(file) as database:
        database.executescript(SCHEMA)
        (placed,) = database.execute("SELECT COUNT(*) FROM orders").fetchone()
    run(str(folder / "store"), str(file), placed + 10, lambda step: print(f"  {step}"))
    print(f"{placed + 10} orders in {file} and in the topics of {folder / 'store'}")


if __name__ == "__main__":
    main()
