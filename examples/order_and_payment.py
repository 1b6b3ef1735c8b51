"""An order in SQLite and the message that asks for its payment: both, or none, by RocketMQ's transactional messages.

The message is stored as half first: no consumer sees it. Then the local transaction writes the order, and its outcome
settles the message. If this process dies in between, any process of the producer group is asked for the outcome.

The database decides, once for each transaction id. An order writes the decision in the transaction that stores it. A
check that finds no decision writes one itself. So an order whose process was only slow fails, and cannot commit later.

Run it with ``python examples/order_and_payment.py FOLDER``, kill it with any signal, and run it again. The table
``orders`` and the topic ``payments`` then hold the same orders.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from sparktxn import Store
from sparktxn.admin import AdminClient
from sparktxn.halfmessage import (
    LocalTransactionState,
    Message,
    MessageExt,
    TransactionListener,
    TransactionMQProducer,
)

GROUP = "shop"
COMMITTED = LocalTransactionState.COMMIT_MESSAGE
SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, item TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS decisions (transaction_id TEXT PRIMARY KEY, placed INTEGER NOT NULL);
"""
# Short, so that a run after a kill need not wait; RocketMQ's defaults are 6 and 30 seconds.
SETTINGS = {
    "transaction.timeout.ms": 500,
    "transaction.check.interval.ms": 1_000,
    "transaction.check.poll.ms": 100,
}


def connect(database_file: str) -> sqlite3.Connection:
    """Opens the database: one connection for each use, as checks come on a thread of their own."""
    database = sqlite3.connect(database_file, timeout=30)
    database.execute("PRAGMA synchronous = FULL")
    return database


class Shop(TransactionListener):
    """Places orders, and says which were placed; calls `reached` at each step, for tests to kill it."""

    def __init__(self, database_file: str, reached: Callable[[str], None]) -> None:
        self._file = database_file
        self._reached = reached

    def execute_local_transaction(self, message: Message, arg: int) -> LocalTransactionState:
        """Write the order and the decision, in one transaction of the database."""
        assert isinstance(message, MessageExt)
        self._reached("half message stored")
        with closing(connect(self._file)) as database, database:
            database.execute("INSERT INTO decisions VALUES (?, 1)", (message.transaction_id,))
            database.execute("INSERT INTO orders VALUES (?, ?)", (arg, f"item {arg}"))
            self._reached("order written")
        self._reached("order committed")
        return COMMITTED

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        """Return what the database has decided, now at the latest."""
        with closing(connect(self._file)) as database, database:
            database.execute("INSERT OR IGNORE INTO decisions VALUES (?, 0)", (message.transaction_id,))
            query = "SELECT placed FROM decisions WHERE transaction_id = ?"
            (placed,) = database.execute(query, (message.transaction_id,)).fetchone()
        self._reached("checked")
        return COMMITTED if placed else LocalTransactionState.ROLLBACK_MESSAGE


def wait_until_settled(store: str) -> None:
    """Waits until the half messages of dead processes are settled: the producer's thread asks for them."""
    with AdminClient({"bootstrap.servers": store}) as admin:
        while admin.count_half_messages().result():
            time.sleep(0.1)


def run(store: str, database_file: str, count: int, reached: Callable[[str], None] = lambda step: None) -> None:
    """Settles what an earlier process has left, and places the orders up to `count` that are not there yet."""
    with Store.open(store, create=True) as log:
        if "payments" not in {topic.name for topic in log.topics()}:
            log.create_topic("payments", 2)
    with closing(connect(database_file)) as database:
        database.executescript(SCHEMA)
    producer = TransactionMQProducer(GROUP, {"bootstrap.servers": store, **SETTINGS})
    producer.set_transaction_listener(Shop(database_file, reached))
    with producer:
        reached("started")
        wait_until_settled(store)
        with closing(connect(database_file)) as database:
            (placed,) = database.execute("SELECT COUNT(*) FROM orders").fetchone()
        for number in range(placed, count):
            message = Message("payments", f"payment for item {number}", keys=str(number), tags="payment")
            # Not committed if a check came first: then that message is rolled back, and the order not placed.
            while producer.send_message_in_transaction(message, number).local_transaction_state is not COMMITTED:
                pass
            reached("settled")


def main() -> None:
    """Places orders in the folder that is given, or in a new one, ten more than there are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="of the store and the database (default: a new one)")
    parser.add_argument("--orders", type=int, default=10, metavar="N", help="how many to place (default: 10)")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="txnlog-"))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "shop.db"
    with closing(connect(str(file))) as database:
        database.executescript(SCHEMA)
        (placed,) = database.execute("SELECT COUNT(*) FROM orders").fetchone()
    count = placed + given.orders
    run(str(folder / "store"), str(file), count, lambda step: print(f"  {step}", flush=True))
    print(f"{count} orders in {file} and in the topic of {folder / 'store'}")


if __name__ == "__main__":
    main()
