"""Half messages that are committed at once, against Kafka transactions of one message, in turns on stores alike.

And what opening, looking for what is due, and a check cost in a store with many that are pending.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from bench.figures import Figure, median
from bench.records import temporary_folder, values
from sparktxn import Producer, Store
from sparktxn.clock import RandomIds
from sparktxn.format.commands import PrepareHalf
from sparktxn.format.names import segment_file
from sparktxn.halfmessage import LocalTransactionState, Message, MessageExt, TransactionListener, TransactionMQProducer
from sparktxn.halfmessage.checks import Checks
from sparktxn.halfmessage.engine import HalfEngine
from sparktxn.kafka.settings.halfmessage import HalfMessageSettings
from sparktxn.structs import HalfSegment

__all__ = ["measure"]

_ROUNDS: Final = 5
_COUNT: Final = 300
_PRODUCERS: Final = 8
_PARTITIONS: Final = 8
_BODY: Final = values(1)[0]
_PENDING: Final = (1_000, 100_000)
_IN_A_LIST: Final = 500
_SPREAD_MS: Final = 1_800_000
_DUE: Final = 10


class _AtOnce(TransactionListener):
    """Commits each message."""

    def execute_local_transaction(self, message: MessageExt, arg: object) -> LocalTransactionState:
        """Does nothing, and commits."""
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        """Is not asked: all are settled."""
        return LocalTransactionState.COMMIT_MESSAGE


class _Never(_AtOnce):
    """Leaves each message to a check."""

    def execute_local_transaction(self, message: MessageExt, arg: object) -> LocalTransactionState:
        """Does nothing, and does not know."""
        return LocalTransactionState.UNKNOWN


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
    few, many = (_pending_ms(count) for count in _PENDING)
    pending = [
        Figure(
            f"{what}, {_PENDING[1]:,} pending half messages", many[what], "ms", None, True, f"{few[what]:.1f} of 1,000"
        )
        for what in many
    ]
    return [
        *pending,
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


def _pending_ms(count: int) -> dict[str, float]:
    """Milliseconds in a store with so many pending half messages, of which ten are due."""
    with temporary_folder() as folder:
        uri = f"{folder}/pending"
        _prepare(uri, count)
        settings = HalfMessageSettings.parse({"bootstrap.servers": uri, "transaction.check.interval.ms": 1_000})
        found: dict[str, float] = {}
        started = time.perf_counter()
        engine = HalfEngine(settings)
        found["opening"] = _ms_since(started)
        checks = Checks(engine, lambda: ("bench",), lambda half, messages: True)
        try:
            for what in ("first look for what is due", "later look"):
                started = time.perf_counter()
                engine.log.refresh()
                due = engine.log.half_dues("bench", engine.log.clock.wall_ms())
                found[what] = _ms_since(started)
                assert len(due) >= _DUE
            started = time.perf_counter()
            claimed = checks.round()
            found["checking and settling one"] = _ms_since(started) / claimed
            assert claimed == _DUE
        finally:
            checks.close()
            engine.close()
    return found


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1_000


def _prepare(uri: str, count: int) -> None:
    """Leave half messages pending that are due within the half hour that begins in an hour, and ten that are due."""
    with Store.open(uri, create=True) as store:
        store.create_topic("t", _PARTITIONS)
        topic = store.log.topic("t")
        assert topic is not None
        ids = RandomIds()
        for first in range(0, count, _IN_A_LIST):
            store.log.submit(
                [
                    PrepareHalf(
                        "bench", ids.token(), (_segment(topic.topic_id, number, ids),), _immunity_ms(number, count)
                    )
                    for number in range(first, first + _IN_A_LIST)
                ],
            )
        store.log.checkpoint()
    settings = {"bootstrap.servers": uri, "transaction.timeout.ms": 0, "transaction.check.poll.ms": 3_600_000}
    with TransactionMQProducer("bench", settings) as producer:
        producer.set_transaction_listener(_Never())
        for _ in range(_DUE):
            producer.send_message_in_transaction(Message("t", _BODY))


def _immunity_ms(number: int, count: int) -> int:
    return 2 * _SPREAD_MS + number * _SPREAD_MS // count


def _segment(topic_id: int, number: int, ids: RandomIds) -> HalfSegment:
    """Return what names a segment that is never read."""
    return HalfSegment(
        "t", topic_id, number % _PARTITIONS, segment_file(0, ids.token(), "arrow"), 1, 100, "00000000", 1, 1
    )
