"""A read-process-write service: payments in, receipts and alerts out, each payment exactly once.

    python examples/consume_transform_produce.py --store /tmp/payments --create 10000
    python examples/consume_transform_produce.py --store /tmp/payments --exit-when-idle 2

The first line makes a store with ten thousand payments; the second starts an instance of the service. It reads them,
writes a receipt for each and an alert for each large one, and commits its offsets, all in one transaction per batch.
Start it several times: the instances share the partitions. Kill them as hard and as often as you like (kill -9): the
others take over after `--session` seconds. In the end there is one receipt for each payment, in the payments' order.
`--check` counts them.

The shape is that of confluent-kafka's transactional examples. After init_transactions it repeats consume,
begin_transaction, produce, send_offsets_to_transaction and commit_transaction. There are three answers to an error,
checked in this order: fatal, to be aborted, to be tried again.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from sparktxn import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, Store

PAYMENTS, RECEIPTS, ALERTS = "payments", "receipts", "alerts"
PARTITIONS = 4
FEE_PERCENT = 2
LARGE_CENTS = 90_000
ACCOUNTS = 97


def transform(payment: Message) -> list[tuple[str, dict[str, Any]]]:
    """What a payment becomes: (topic, value) of each record to write. A pure function: a repetition writes the same."""
    value = json.loads(payment.value() or b"{}")
    fee = value["cents"] * FEE_PERCENT // 100
    source = f"{payment.partition()}:{payment.offset()}"
    records = [(RECEIPTS, {"payment": value["payment"], "cents": value["cents"] - fee, "fee": fee, "source": source})]
    if value["cents"] >= LARGE_CENTS:
        records.append((ALERTS, {"payment": value["payment"], "cents": value["cents"], "source": source}))
    return records


class Service:
    """One instance, a member of the group. Its name is its transactional id, and must be its own.

    An instance that was given a name is a static member. Started again after a crash, it has its partitions back at
    once; a second instance of that name fences the first.
    """

    def __init__(
        self, store: str, name: str | None, group: str, *, batch: int, session_s: float, publish_early: bool
    ) -> None:
        static = {"group.instance.id": name} if name else {}
        self._name = name = name or f"receipts-{uuid.uuid4().hex[:8]}"
        self._batch = batch
        self._publish_early = publish_early
        self._stopping = False
        self._producer = Producer({"bootstrap.servers": store, "transactional.id": name})
        self._consumer = Consumer(
            {
                "bootstrap.servers": store,
                "group.id": group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": int(session_s * 1000),
                **static,
                # The offsets belong to the transactions: nothing else may commit them.
                "enable.auto.commit": False,
            }
        )

    def stop(self, *_: int | FrameType | None) -> None:
        """Ends `run` after the batch under way: for signals."""
        self._stopping = True

    def run(self, exit_when_idle_s: float | None) -> int:
        """Works until it is stopped, or all is done and nothing came for so long; 1 if another instance took over."""
        with self._producer, self._consumer:
            # First this, then the first reading of committed offsets: it ends what an instance that died has left open.
            retried(self._producer.init_transactions)
            self._consumer.subscribe([PAYMENTS])
            print(f"{self._name}: ready", flush=True)
            while not self._stopping:
                payments = self._consumer.consume(
                    self._batch, timeout=0.2 if exit_when_idle_s is None else exit_when_idle_s
                )
                if not payments and exit_when_idle_s is not None and self._is_at_the_end():
                    print(f"{self._name}: nothing to do for {exit_when_idle_s} s", flush=True)
                    break
                if payments and not self._one_batch(payments):
                    return 1
        return 0

    def _is_at_the_end(self) -> bool:
        """Return whether the instance has partitions, and has read each of them to its end."""
        positions = self._consumer.position(self._consumer.assignment())
        ends = [self._consumer.get_watermark_offsets(partition) for partition in positions]
        return bool(ends) and all(
            place.offset >= high for place, (_, high) in zip(positions, ends, strict=True) if high
        )

    def _one_batch(self, payments: Sequence[Message]) -> bool:
        """One transaction; False if another instance has taken over."""
        try:
            written = self._write(payments)
        except KafkaException as raised:
            error = raised.args[0]
            if error.fatal():
                print(f"{self._name}: stops: {error.str()}", flush=True)
                return False
            if not error.txn_requires_abort():
                raise
            print(f"{self._name}: aborts and reads again: {error.str()}", flush=True)
            retried(self._producer.abort_transaction)
            self._rewind()
            return True
        counts = ", ".join(f"{count} {topic}" for topic, count in written.items())
        print(f"{self._name}: {len(payments)} payments became {counts}", flush=True)
        return True

    def _write(self, payments: Sequence[Message]) -> Counter[str]:
        written: Counter[str] = Counter()
        self._producer.begin_transaction()
        for payment in payments:
            error = payment.error()
            if error is not None:
                raise KafkaException(error)
            for topic, value in transform(payment):
                self._producer.produce(topic, json.dumps(value), key=payment.key(), partition=payment.partition() or 0)
                written[topic] += 1
        if self._publish_early:
            self._producer.flush()
        # The position is the offset after the last payment that was handed out, of every partition.
        positions = self._consumer.position(self._consumer.assignment())
        metadata = self._consumer.consumer_group_metadata()
        retried(lambda: self._producer.send_offsets_to_transaction(positions, metadata))
        retried(self._producer.commit_transaction)
        return written

    def _rewind(self) -> None:
        """Goes back to what is committed: what was read since then was not processed."""
        for partition in self._consumer.committed(self._consumer.assignment()):
            if partition.offset < 0:
                partition.offset = OFFSET_BEGINNING
            self._consumer.seek(partition)


def retried(call: Callable[[], object]) -> None:
    """Calls until it succeeds; an error that asks for another try means: the same call again."""
    while True:
        try:
            call()
        except KafkaException as raised:
            if not raised.args[0].retriable():
                raise
            print(f"tries again: {raised.args[0].str()}", flush=True)
        else:
            return


def create(uri: str, count: int) -> None:
    """Makes the topics, and adds `count` payments."""
    with Store.open(uri, create=True) as store:
        known = {topic.name for topic in store.topics()}
        for topic in (PAYMENTS, RECEIPTS, ALERTS):
            if topic not in known:
                store.create_topic(topic, PARTITIONS)
    with Producer({"bootstrap.servers": uri}) as producer:
        for number in range(count):
            value = {"payment": number, "cents": (number * 7_919) % 100_000}
            account = number % ACCOUNTS
            producer.produce(PAYMENTS, json.dumps(value), key=str(account), partition=account % PARTITIONS)
    print(f"{count} payments are in {uri}")


def everything(uri: str, topic: str) -> list[Message]:
    """All committed records of a topic, each partition's in order."""
    settings = {
        "bootstrap.servers": uri,
        "group.id": "check",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        # A message without a record says that a partition is read to its end.
        "enable.partition.eof": True,
    }
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        found: list[Message] = []
        ended: set[int | None] = set()
        while len(ended) < PARTITIONS:
            for message in consumer.consume(10_000, timeout=1):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    raise KafkaException(error)
    return found


def check(uri: str) -> int:
    """Compares what was written with what the payments call for; 0 if all is there, exactly once and in order."""
    expected: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for payment in everything(uri, PAYMENTS):
        for topic, value in transform(payment):
            expected.setdefault((topic, payment.partition() or 0), []).append(value)
    wrong = 0
    for topic in (RECEIPTS, ALERTS):
        found: dict[int, list[dict[str, Any]]] = {number: [] for number in range(PARTITIONS)}
        for message in everything(uri, topic):
            found[message.partition() or 0].append(json.loads(message.value() or b"{}"))
        for number, values in found.items():
            called_for = expected.get((topic, number), [])
            right = values == called_for
            wrong += not right
            verdict = "exactly once, in order" if right else f"WRONG, {len(called_for)} are called for"
            print(f"{topic} partition {number}: {len(values)} records, {verdict}")
    return 1 if wrong else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True, metavar="URI", help="the store: a folder, s3://bucket/prefix, ...")
    parser.add_argument("--create", type=int, metavar="N", help="make the topics and N payments, and end")
    parser.add_argument("--check", action="store_true", help="compare receipts and alerts with the payments, and end")
    parser.add_argument(
        "--name", help="the instance's name, the same whenever it is started again (default: a new one)"
    )
    parser.add_argument("--group", default="receipts-service", help="consumer group (default: %(default)s)")
    parser.add_argument(
        "--session",
        type=float,
        default=45,
        metavar="S",
        help="how long a dead instance keeps its partitions (default: 45)",
    )
    parser.add_argument("--batch", type=int, default=500, metavar="N", help="payments per transaction (default: 500)")
    parser.add_argument(
        "--publish-early", action="store_true", help="publish each batch before it is committed, as Kafka does"
    )
    parser.add_argument(
        "--exit-when-idle", type=float, metavar="S", help="end when all is done, and nothing came for S seconds"
    )
    arguments = parser.parse_args()
    if arguments.create is not None:
        create(arguments.store, arguments.create)
        return 0
    if arguments.check:
        return check(arguments.store)
    service = Service(
        arguments.store,
        arguments.name,
        arguments.group,
        batch=arguments.batch,
        session_s=arguments.session,
        publish_early=arguments.publish_early,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, service.stop)
    return service.run(arguments.exit_when_idle)


if __name__ == "__main__":
    sys.exit(main())
