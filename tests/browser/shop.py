"""The store of the pictures: an hour of a small shop, the same objects each time that it is made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any, Final
from unittest import mock

import pyarrow as pa

from sparktxn import Consumer, Producer
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn.admin import AdminClient
from sparktxn.consumer import member
from sparktxn.maintenance import publish_tables, sweep
from sparktxn.store import Store
from sparktxn.testing.clocks import ManualClock
from tests.lending import close_lent, lend_log, take_log_back
from tests.world import next_number, open_log

__all__ = ["shop"]

_BEGINS: Final = datetime(2026, 5, 4, 16, 2, tzinfo=UTC)
_MINUTES: Final = 57
_URI: Final = "s3://shop/log"
_PARCELS: Final = pa.schema(
    [
        pa.field("parcel", pa.int64(), nullable=False),
        pa.field("order", pa.string()),
        pa.field("carrier", pa.string()),
        pa.field("sent", pa.timestamp("us", "UTC")),
    ]
)
_GOODS: Final = ("apples", "bread", "cheese", "coffee", "lemons", "olives", "rice", "tea")
_CARRIERS: Final = ("northline", "parcelpost", "cityrider")


class _Memory(MemoryStore):
    """Objects in memory that name themselves as a store of a shop would."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(f"shop-{next_number()}", clock)
        self.uri = _URI


class _Shop:
    """The programs of the shop, and the time."""

    def __init__(self, uri: str, clock: ManualClock) -> None:
        self.uri = uri
        self.clock = clock
        self.random = Random(7)
        self.orders = 4_000

    def producer(self, transactional_id: str | None = None, **settings: Any) -> Producer:
        given = {"bootstrap.servers": self.uri, **settings}
        if transactional_id is None:
            return Producer(given)
        producer = Producer({**given, "transactional.id": transactional_id})
        producer.init_transactions()
        return producer

    def order(self, producer: Producer) -> None:
        """Add an order, and what is paid for it, to the producer's open transaction."""
        self.orders += 1
        name = f"o-{self.orders}"
        count, price = self.random.randint(1, 6), self.random.randint(90, 2_400) / 100
        order = {"order": name, "item": self.random.choice(_GOODS), "count": count, "price": price, "currency": "EUR"}
        paid = {"order": name, "amount": round(count * price, 2), "card": f"**** {self.random.randint(1000, 9999)}"}
        trace = [("trace", f"{self.random.getrandbits(32):08x}".encode())]
        now_ms = self.clock.wall_ms()
        producer.produce("orders", json.dumps(order).encode(), key=name.encode(), headers=trace, timestamp=now_ms)
        producer.produce("payments", json.dumps(paid).encode(), key=name.encode(), headers=trace, timestamp=now_ms)

    def sell(self, producer: Producer, orders: int, *, commit: bool = True) -> None:
        """Sell in one transaction, the first order of which is in the log before its end."""
        producer.begin_transaction()
        self.order(producer)
        producer.flush()
        for _ in range(orders - 1):
            self.clock.sleep(self.random.uniform(0.2, 5))
            self.order(producer)
        if commit:
            producer.commit_transaction()
        else:
            producer.flush()
            producer.abort_transaction()

    def parcels(self, count: int) -> None:
        now_us = self.clock.wall_ms() * 1_000
        first = self.orders * 10
        rows = {
            "parcel": range(first, first + count),
            "order": [f"o-{self.orders - number}" for number in range(count)],
            "carrier": [self.random.choice(_CARRIERS) for _ in range(count)],
            "sent": [now_us - number * 7_000_000 for number in range(count)],
        }
        with self.producer() as producer:
            producer.produce_arrow("parcels", pa.table(rows, schema=_PARCELS))


@contextmanager
def shop() -> Iterator[Store]:
    """Make the store, and leave it open at the end of its hour."""
    clock = ManualClock(_BEGINS.timestamp())
    objects = _Memory(clock)
    log = open_log(objects, clock, 7)
    lend_log(_URI, log)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(member, "_HOST", "counter"))
        stack.callback(close_lent, log)
        stack.callback(take_log_back, _URI)
        store = stack.enter_context(Store.open(_URI))
        _hour(store, _Shop(_URI, clock), stack)
        yield store


def _hour(store: Store, one: _Shop, stack: ExitStack) -> None:
    """Run the shop for an hour."""
    for name, partitions in (("orders", 6), ("payments", 6), ("clicks", 12)):
        store.create_topic(name, partitions)
    store.create_topic("parcels", 3, schema=_PARCELS, settings={"table.formats": "delta,iceberg"})
    store.create_topic("audit", 1, settings={"retention.ms": str(90 * 86_400_000)})
    tills = [one.producer(f"till-{number}") for number in (1, 2, 3)]
    invoices = one.producer("invoices")
    clicks = one.producer()
    readers = {name: _consumer(one, name, stack) for name in ("billing", "warehouse", "dashboard")}
    admin = stack.enter_context(AdminClient({"bootstrap.servers": _URI}))
    for minute in range(_MINUTES):
        one.clock.now_s = _BEGINS.timestamp() + 60 * minute
        busy = 2 + round(6 * (minute / _MINUTES) ** 2) + (9 if 30 <= minute < 36 else 0)
        for number, till in enumerate(tills):
            if (minute + number) % 3 == 0:
                one.sell(till, busy, commit=(minute, number) not in ((15, 0), (41, 1)))
        for _ in range(busy * 6):
            page = one.random.choice(_GOODS)
            clicks.produce("clicks", f"/{page}?from=start".encode(), key=page.encode(), timestamp=one.clock.wall_ms())
        clicks.flush()
        if minute % 5 == 4:
            _invoice(one, invoices, readers["billing"])
        if minute % 4 == 1:
            _read(readers["warehouse"])
        if minute in (10, 29):
            _read(readers["dashboard"])
        if minute % 12 == 6:
            one.parcels(24)
        if minute == 26:
            admin.fence_producers(["till-2"])["till-2"].result()
            tills[1] = one.producer("till-2")
        if minute == 38:
            lost = one.producer("refunds", **{"transaction.timeout.ms": 60_000})
            lost.begin_transaction()
            one.order(lost)
            lost.flush()
        if minute == 44:
            sweep(store)
    publish_tables(store)
    bank = one.producer("bank-transfer")
    bank.begin_transaction()
    one.order(bank)
    bank.prepare_transaction()
    tills[0].begin_transaction()
    one.order(tills[0])
    tills[0].flush()
    one.clock.sleep(12)


def _consumer(one: _Shop, group: str, stack: ExitStack) -> Consumer:
    given = {"group.id": group, "client.id": f"{group}-1", "enable.auto.commit": False}
    patience = {"session.timeout.ms": 1_800_000, "max.poll.interval.ms": 1_800_000}
    consumer = Consumer({"bootstrap.servers": _URI, "auto.offset.reset": "earliest", **given, **patience})
    stack.callback(consumer.close)
    consumer.subscribe(["orders", "payments"] if group == "dashboard" else ["orders"])
    return consumer


def _read(consumer: Consumer) -> int:
    """Read what is committed, and commit the offsets."""
    read = len(consumer.consume(5_000, 2))
    if read:
        consumer.commit(asynchronous=False)
    return read


def _invoice(one: _Shop, producer: Producer, consumer: Consumer) -> None:
    """Consume, transform, produce: what is read, what is written and the offsets are one transaction."""
    found = consumer.consume(5_000, 2)
    if not found:
        return
    producer.begin_transaction()
    for message in found:
        assert message.error() is None, message.error()
    line = json.dumps({"invoices": len(found), "at": one.clock.wall_ms()})
    producer.produce("audit", line.encode(), key=b"invoices", timestamp=one.clock.wall_ms())
    producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata())
    producer.commit_transaction()
