"""Half messages that are committed at once, against a bare loop of durable puts and against Kafka transactions.

Each round has all of them in turn, on stores alike. One producer sends, from one thread and from eight. The end of a
half message is sent one way, as is the default. Then: what opening, looking for what is due, and a check cost in a
store with many that are pending.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from bench.figures import Figure, median, rate
from bench.records import temporary_folder, values
from sparktxn import Producer, Store
from sparktxn._engine.format import names
from sparktxn._engine.format.commands import PrepareHalf
from sparktxn._engine.format.names import segment_file
from sparktxn._engine.objectstore import open_store
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.clock import RandomIds, SystemClock
from sparktxn._foundation.values.structs import HalfSegment
from sparktxn._kafka.settings.halfmessage import HalfMessageSettings
from sparktxn.halfmessage import LocalTransactionState, Message, MessageExt, TransactionListener, TransactionMQProducer
from sparktxn.halfmessage.checks import Checks
from sparktxn.halfmessage.engine import HalfEngine

__all__ = ["measure"]

_ROUNDS: Final = 5
_COUNT: Final = 300
_THREADS: Final = 8
_ENTRY_BYTES: Final = 1_000
"""About the size of the entry of one half message, with its message."""
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
    """The rates of one producer with one thread and with eight, against the other two."""
    logging.getLogger("sparktxn").setLevel(logging.CRITICAL)
    rounds = []
    for number in range(_ROUNDS):
        with temporary_folder() as folder:
            uri = f"{folder}/{number}"
            with Store.open(uri, create=True) as store:
                store.create_topic("t", _PARTITIONS)
            kafka, bare = _kafka_rate(uri), _bare_rate(f"{folder}/bare")
            one, eight = _half_rate(uri, 1), _half_rate(uri, _THREADS)
            # The machine's moods hit both: the loop's rate is that before and that after.
            bare = (bare + _bare_rate(f"{folder}/again")) / 2
        rounds.append((one / bare, eight / bare, one / kafka, one, eight, bare, kafka))
    ones, eights, kafkas, *rates = (list(column) for column in zip(*rounds, strict=True))
    one_rate, eight_rate, bare_rate, kafka_rate = (f"{median(found):.0f}/s" for found in rates)
    few, many = (_pending_ms(count) for count in _PENDING)
    pending = [
        Figure(
            f"{what}, {_PENDING[1]:,} pending half messages", many[what], "ms", None, True, f"{few[what]:.1f} of 1,000"
        )
        for what in many
    ]
    return [
        *pending,
        Figure("half messages, 1 thread / durable puts", *_against(ones, 0.6, f"{one_rate}, puts {bare_rate}")),
        Figure(
            f"half messages, {_THREADS} threads / durable puts",
            *_against(eights, 1.4, f"{eight_rate}, puts {bare_rate}"),
        ),
        Figure("half messages, 1 thread / Kafka transactions", *_against(kafkas, 0.45, f"Kafka's {kafka_rate}")),
    ]


def _against(ratios: list[float], target: float, rates: str) -> tuple[float, str, float, bool, str]:
    """What a figure says after its name."""
    return median(ratios), "times", target, False, f"{rates}; least {min(ratios):.2f}, most {max(ratios):.2f}"


def _rate(sends: Sequence[Callable[[], object]], times: int) -> float:
    """Messages per second of all `sends` together, each on a thread of its own."""

    def run(send: Callable[[], object]) -> None:
        for _ in range(times):
            send()

    threads = [threading.Thread(target=run, args=(send,)) for send in sends]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(sends) * times / (time.perf_counter() - started)


def _kafka_rate(uri: str) -> float:
    with Producer({"bootstrap.servers": uri, "transactional.id": "bench"}) as producer:
        producer.init_transactions()

        def send() -> None:
            producer.begin_transaction()
            producer.produce("t", _BODY)
            producer.commit_transaction()

        return _rate([send], _COUNT)


def _bare_rate(folder: str) -> float:
    """Puts per second of a loop that makes one durable file after the other, and does nothing else."""
    objects = open_store(folder, settings=StoreSettings(fsync=True), storage={}, clock=SystemClock())
    data, numbers = bytes(_ENTRY_BYTES), count(1)

    def put() -> None:
        objects.put_if_absent(names.entry(next(numbers)), data)

    put()
    return rate(put, _COUNT)


def _half_rate(uri: str, threads: int) -> float:
    with TransactionMQProducer(f"bench-{threads}", uri) as producer:
        producer.set_transaction_listener(_AtOnce())

        def send() -> None:
            producer.send_message_in_transaction(Message("t", _BODY))

        send()
        return _rate([send] * threads, _COUNT * min(threads, 2) // threads)


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
