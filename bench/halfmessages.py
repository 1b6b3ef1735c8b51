"""Half messages that are committed at once, against Kafka transactions of one message, in turns on stores alike."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from bench.figures import Figure, median
from bench.records import temporary_folder, values
from sparktxn import Producer, Store
from sparktxn.halfmessage import LocalTransactionState, Message, MessageExt, TransactionListener, TransactionMQProducer

__all__ = ["measure"]

_ROUNDS: Final = 5
_COUNT: Final = 300
_PRODUCERS: Final = 8
_PARTITIONS: Final = 8
_BODY: Final = values(1)[0]


class _AtOnce(TransactionListener):
    """Commits each message."""

    def execute_local_transaction(self, message: MessageExt, arg: object) -> LocalTransactionState:
        """Does nothing, and commits."""
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        """Is not asked: all are settled."""
        return LocalTransactionState.COMMIT_MESSAGE


def measure() -> list[Figure]:
    """The rate of one producer against Kafka's, and that of eight in one process against one."""
    logging.getLogger("sparktxn").setLevel(logging.CRITICAL)
    ratios, gains, half_rates, kafka_rates = [], [], [], []
    for number in range(_ROUNDS):
        with temporary_folder() as folder:
            uri = f"{folder}/{number}"
            with Store.open(uri, create=True) as store:
                store.create_topic("t", _PARTITIONS)
            kafka, one, eight = _kafka_rate(uri), _half_rate(uri, 1), _half_rate(uri, _PRODUCERS)
        kafka_rates.append(kafka)
        half_rates.append(one)
        ratios.append(one / kafka)
        gains.append(eight / one)
    note = f"{median(half_rates):.0f} and {median(kafka_rates):.0f}/s; least {min(ratios):.2f}, most {max(ratios):.2f}"
    spread = f"least {min(gains):.2f}, most {max(gains):.2f}"
    return [
        Figure("half message, committed at once / Kafka transaction", median(ratios), "times", 0.45, False, note),
        Figure(f"{_PRODUCERS} half-message producers / one", median(gains), "times", 3.0, False, spread),
    ]


def _rate(sends: Sequence[Callable[[], object]], count: int) -> float:
    """Messages per second of all `sends` together, each on a thread of its own."""

    def run(send: Callable[[], object]) -> None:
        for _ in range(count):
            send()

    threads = [threading.Thread(target=run, args=(send,)) for send in sends]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(sends) * count / (time.perf_counter() - started)


def _kafka_rate(uri: str) -> float:
    with Producer({"bootstrap.servers": uri, "transactional.id": "bench"}) as producer:
        producer.init_transactions()

        def send() -> None:
            producer.begin_transaction()
            producer.produce("t", _BODY)
            producer.commit_transaction()

        return _rate([send], _COUNT)


def _half_rate(uri: str, producers: int) -> float:
    made = []
    for number in range(producers):
        producer = TransactionMQProducer(f"bench-{number}", uri)
        producer.set_transaction_listener(_AtOnce())
        producer.start()
        made.append(producer)

    def send_with(producer: TransactionMQProducer) -> Callable[[], object]:
        return lambda: producer.send_message_in_transaction(Message("t", _BODY))

    try:
        return _rate([send_with(producer) for producer in made], _COUNT // producers)
    finally:
        for producer in made:
            producer.shutdown()
