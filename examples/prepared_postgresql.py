"""A row in PostgreSQL and records in the log, committed together by two-phase commit on both sides.

Both sides are prepared, the log first; the database's prepared transaction is named after what the log has prepared.
From the moment that the database is prepared both will commit, whatever dies: the log is completed first, the database
second. A process that starts again asks the database which transactions are prepared. One that is there was meant to
commit: the log is completed with its name, then it is committed. If none is there, the log's is aborted.

One process works at a time: it holds a lock of its session. A process that has lost its session can prepare nothing.

Run it with ``python examples/prepared_postgresql.py FOLDER CONNECTION``; CONNECTION is like ``postgresql://localhost/shop``.
The server's setting ``max_prepared_transactions`` must be above 0. Kill it with any signal and run it again: table and
topic then hold the same orders.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import psycopg

from sparktxn import KafkaError, KafkaException, PreparedTransaction, Producer, Store

TRANSACTIONAL_ID = "shop"
NAME_PREFIX = f"sparktxn {TRANSACTIONAL_ID} "
INVALID_TXN_STATE = 48


def prepared_names(database: psycopg.Connection) -> list[str]:
    """The prepared transactions of this database that belong to the transactional id."""
    found = database.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()").fetchall()
    return [name for (name,) in found if name.startswith(NAME_PREFIX)]


def end_prepared(database: psycopg.Connection, name: str, *, commit: bool) -> None:
    """COMMIT PREPARED or ROLLBACK PREPARED."""
    verb = "COMMIT PREPARED" if commit else "ROLLBACK PREPARED"
    database.execute(f"{verb} {psycopg.sql.Literal(name).as_string(database)}")


def recover(producer: Producer, database: psycopg.Connection, reached: Callable[[str], None]) -> None:
    """Ends what an earlier process has left prepared on either side; may be repeated at will."""
    producer.init_transactions(keep_prepared=True)
    reached("initialised")
    for name in prepared_names(database):
        try:
            producer.complete_transaction(PreparedTransaction.parse(name.removeprefix(NAME_PREFIX)))
        except KafkaException as exception:
            error: KafkaError = exception.args[0]
            if error.code() != INVALID_TXN_STATE:
                raise
            end_prepared(database, name, commit=False)  # an administrator has aborted the log's side
        else:
            reached("log completed in recovery")
            end_prepared(database, name, commit=True)
    if producer.transaction_state == "PREPARED_TRANSACTION":
        producer.abort_transaction()  # the database was never prepared


def place_order(producer: Producer, database: psycopg.Connection, number: int, reached: Callable[[str], None]) -> None:
    """One order: a row, and a record. Both, or none."""
    item = f"item {number}"
    producer.begin_transaction()
    producer.produce("orders", item, key=str(number))
    reached("produced")
    prepared = producer.prepare_transaction()
    reached("log prepared")
    name = f"{NAME_PREFIX}{prepared}"
    database.execute("BEGIN")
    database.execute("INSERT INTO orders VALUES (%s, %s)", (number, item))
    reached("rows written")
    database.execute(f"PREPARE TRANSACTION {psycopg.sql.Literal(name).as_string(database)}")
    reached("database prepared")
    producer.complete_transaction(prepared)
    reached("log completed")
    end_prepared(database, name, commit=True)
    reached("database completed")


def run(store: str, connection: str, count: int, reached: Callable[[str], None] = lambda step: None) -> None:
    """Places the orders up to `count` that are not there yet; calls `reached` at each step, for tests to kill it."""
    with Store.open(store, create=True) as log:
        if not log.topics():
            log.create_topic("orders", 2)
    settings = {"bootstrap.servers": store, "transactional.id": TRANSACTIONAL_ID}
    with psycopg.connect(connection, autocommit=True) as database, Producer(settings) as producer:
        database.execute("SELECT pg_advisory_lock(hashtext(%s))", (NAME_PREFIX,))
        reached("locked")
        database.execute("CREATE TABLE IF NOT EXISTS orders (number BIGINT PRIMARY KEY, item TEXT NOT NULL)")
        recover(producer, database, reached)
        reached("recovered")
        placed = database.execute("SELECT COUNT(*) FROM orders").fetchone()
        for number in range(placed[0] if placed else 0, count):
            place_order(producer, database, number, reached)


def main() -> None:
    """Places orders up to the number given, in the store of a folder and the database of a connection string."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the store")
    parser.add_argument("connection", help="such as postgresql://localhost/shop")
    parser.add_argument("--orders", type=int, default=10, metavar="N", help="how many there are to be (default: 10)")
    given = parser.parse_args()
    store = str(given.folder / "store")
    run(store, given.connection, given.orders, lambda step: print(f"  {step}", flush=True))
    print(f"{given.orders} orders in the database and in the topic of {store}")


if __name__ == "__main__":
    main()
