"""A row in SQLite and records in the log, committed together: the database is the coordinator of both.

The log's transaction is prepared first; then one transaction of the database stores the business rows and what the log
has prepared. Its commit decides: whatever dies afterwards, `complete_transaction` with the stored value commits the
log's transaction. If the database has not committed, the stored value is an older one, and the same call aborts it.

Each process first becomes the owner on both sides. It does so in the log by init_transactions(), then in the database,
where only the owner stores an order. So an older process that was paused, and wakes, can commit on neither side.

Run it with ``python examples/prepared_sqlite.py FOLDER``, kill it with any signal, and run it again: table and topics
then hold the same orders.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

from sparktxn import PreparedTransaction, Producer, Store

TRANSACTIONAL_ID = "shop"
SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, item TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS coordinator (transactional_id TEXT PRIMARY KEY, owner TEXT NOT NULL, prepared TEXT);
"""


class NotTheOwner(Exception):
    """A newer process has taken over."""


def recover(producer: Producer, database: sqlite3.Connection) -> str:
    """Takes over, and ends what an earlier process has left prepared, as the database has decided; the owner's name."""
    producer.init_transactions(keep_prepared=True)
    owner = f"{producer.producer_id}:{producer.producer_epoch}"
    with database:
        database.execute(
            "INSERT INTO coordinator VALUES (?, ?, NULL) ON CONFLICT DO UPDATE SET owner = excluded.owner",
            (TRANSACTIONAL_ID, owner),
        )
    # From here on no other process commits to the database: what it says now is the decision.
    (stored,) = database.execute(
        "SELECT prepared FROM coordinator WHERE transactional_id = ?", (TRANSACTIONAL_ID,)
    ).fetchone()
    if stored is not None:
        producer.complete_transaction(PreparedTransaction.parse(stored))
    elif producer.transaction_state == "PREPARED_TRANSACTION":
        producer.abort_transaction()  # the database has never committed anything
    return owner


def place_order(
    producer: Producer, database: sqlite3.Connection, owner: str, number: int, reached: Callable[[str], None]
) -> None:
    """One order: a row, and a record in each of two topics. All of them, or none."""
    item = f"item {number}"
    producer.begin_transaction()
    producer.produce("orders", item, key=str(number))
    producer.produce("payments", f"payment for {item}", key=str(number))
    reached("produced")
    prepared = producer.prepare_transaction()
    reached("prepared")
    with database:  # one transaction: it commits at the end of the block, and an exception rolls it back
        updated = database.execute(
            "UPDATE coordinator SET prepared = ? WHERE transactional_id = ? AND owner = ?",
            (str(prepared), TRANSACTIONAL_ID, owner),
        )
        if updated.rowcount != 1:
            raise NotTheOwner(owner)
        database.execute("INSERT INTO orders VALUES (?, ?)", (number, item))
        reached("rows written")
    reached("database committed")
    producer.complete_transaction(prepared)
    reached("completed")


def run(store: str, database_file: str, count: int, reached: Callable[[str], None] = lambda step: None) -> None:
    """Places the orders up to `count` that are not there yet; calls `reached` at each step, for tests to kill it."""
    with Store.open(store, create=True) as log:
        known = {topic.name for topic in log.topics()}
        for topic in {"orders", "payments"} - known:
            log.create_topic(topic, 2)
    database = sqlite3.connect(database_file)
    database.execute("PRAGMA synchronous = FULL")
    database.executescript(SCHEMA)
    with Producer({"bootstrap.servers": store, "transactional.id": TRANSACTIONAL_ID}) as producer:
        reached("started")
        owner = recover(producer, database)
        reached("recovered")
        (placed,) = database.execute("SELECT COUNT(*) FROM orders").fetchone()
        for number in range(placed, count):
            place_order(producer, database, owner, number, reached)
    database.close()


def main() -> None:
    """Places orders in the folder that is given, or in a new one, ten more than there are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="of the store and the database (default: a new one)")
    parser.add_argument("--orders", type=int, default=10, metavar="N", help="how many to place (default: 10)")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="txnlog-"))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "shop.db"
    with sqlite3.connect(file) as database:
        database.executescript(SCHEMA)
        (placed,) = database.execute("SELECT COUNT(*) FROM orders").fetchone()
    count = placed + given.orders
    run(str(folder / "store"), str(file), count, lambda step: print(f"  {step}", flush=True))
    print(f"{count} orders in {file} and in the topics of {folder / 'store'}")


if __name__ == "__main__":
    main()
