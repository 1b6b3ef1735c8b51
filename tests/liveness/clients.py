"""Producers and consumers of three libraries behind one shape each, so that one program drives them all.

Each library is imported by the client that needs it. Java's runs in a virtual machine of its own, by py4j.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

PARTITIONS: Final = 6
TOPIC: Final = "records"
JARS_VARIABLE: Final = "SPARKTXN_LIVENESS_JARS"
"""Where the jars of Kafka's own client are, with ``:`` between them."""
_CALL_S: Final = 20.0
_METADATA_MS: Final = 5_000
SESSION_MS: Final = 6_000
_TRANSACTION_MS: Final = 60_000


class Producer(Protocol):
    """One producer; without a `transactional_id` it is only idempotent. Calls raise what the library raises."""

    def begin(self) -> None: ...
    def send(self, partition: int, value: str) -> None: ...
    def commit(self) -> None:
        """Return once all that was sent is acknowledged, and its transaction is committed."""

    def abort(self) -> None: ...
    def close(self) -> None: ...


class LibrdkafkaProducer:
    """confluent-kafka's."""

    def __init__(self, servers: str, transactional_id: str, client_id: str) -> None:
        import confluent_kafka  # type: ignore[import-not-found,unused-ignore]

        settings = {
            "bootstrap.servers": servers,
            "client.id": client_id,
            "enable.idempotence": True,
            "linger.ms": 5,
            "metadata.max.age.ms": _METADATA_MS,
            "topic.metadata.refresh.interval.ms": _METADATA_MS,
            "log_level": 0,
        }
        if transactional_id:
            settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": _TRANSACTION_MS}
        self._is_transactional = bool(transactional_id)
        self._retriable: Callable[[BaseException], bool] = lambda error: error.args[0].retriable()
        self._kafka_error = confluent_kafka.KafkaException
        self._producer = confluent_kafka.Producer(settings)
        self._failed: list[Any] = []
        if transactional_id:
            self._producer.init_transactions(_CALL_S)

    def begin(self) -> None:
        self._failed.clear()
        if self._is_transactional:
            self._producer.begin_transaction()

    def send(self, partition: int, value: str) -> None:
        self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._reported)

    def _reported(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def commit(self) -> None:
        if not self._is_transactional:
            left = self._producer.flush(_CALL_S)
            if left or self._failed:
                raise TimeoutError(f"{left} without a report, {self._failed[:1]}")
            return
        for again in (True, True, False):
            try:
                self._producer.commit_transaction(_CALL_S)
                return
            except self._kafka_error as error:
                if not (again and self._retriable(error)):
                    raise

    def abort(self) -> None:
        self._producer.abort_transaction(_CALL_S)

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(1)


class AiokafkaProducer:
    """aiokafka's, in a loop that runs while a call does."""

    def __init__(self, servers: str, transactional_id: str, client_id: str) -> None:
        from aiokafka import AIOKafkaProducer

        self._runner = asyncio.Runner()
        self._is_transactional = bool(transactional_id)
        self._sent: list[Any] = []

        async def started() -> Any:
            producer = AIOKafkaProducer(
                bootstrap_servers=servers.split(","),
                client_id=client_id,
                enable_idempotence=True,
                transactional_id=transactional_id or None,
                transaction_timeout_ms=_TRANSACTION_MS,
                request_timeout_ms=5_000,
                metadata_max_age_ms=_METADATA_MS,
            )
            async with asyncio.timeout(_CALL_S):
                await producer.start()
            return producer

        self._producer = self._runner.run(started())

    def _run(self, work: Callable[[], Any]) -> Any:
        async def in_time() -> Any:
            async with asyncio.timeout(_CALL_S):
                return await work()

        return self._runner.run(in_time())

    def begin(self) -> None:
        self._sent.clear()
        if self._is_transactional:
            self._run(self._producer.begin_transaction)

    def send(self, partition: int, value: str) -> None:
        self._sent.append(self._run(lambda: self._producer.send(TOPIC, value.encode(), partition=partition)))

    def commit(self) -> None:
        async def taken() -> None:
            for outcome in self._sent:
                await outcome
            if self._is_transactional:
                await self._producer.commit_transaction()

        self._run(taken)

    def abort(self) -> None:
        self._run(self._producer.abort_transaction)

    def close(self) -> None:
        self._run(self._producer.stop)
        self._runner.close()


class JavaProducer:
    """Kafka's own."""

    def __init__(self, servers: str, transactional_id: str, client_id: str) -> None:
        self._jvm = _virtual_machine()
        settings = self._jvm.java.util.Properties()
        string = "org.apache.kafka.common.serialization.StringSerializer"
        given = {
            "bootstrap.servers": servers,
            "client.id": client_id,
            "enable.idempotence": "true",
            "metadata.max.age.ms": str(_METADATA_MS),
            "max.block.ms": str(round(1000 * _CALL_S)),
            "linger.ms": "5",
            "key.serializer": string,
            "value.serializer": string,
        }
        if transactional_id:
            given |= {"transactional.id": transactional_id, "transaction.timeout.ms": str(_TRANSACTION_MS)}
        for name, value in given.items():
            settings.setProperty(name, value)
        self._is_transactional = bool(transactional_id)
        self._sent: list[Any] = []
        self._producer = self._jvm.org.apache.kafka.clients.producer.KafkaProducer(settings)
        if transactional_id:
            self._producer.initTransactions()

    def begin(self) -> None:
        self._sent.clear()
        if self._is_transactional:
            self._producer.beginTransaction()

    def send(self, partition: int, value: str) -> None:
        record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord(TOPIC, partition, None, value)
        self._sent.append(self._producer.send(record))

    def commit(self) -> None:
        self._producer.flush()
        for outcome in self._sent:
            outcome.get()
        if self._is_transactional:
            self._producer.commitTransaction()

    def abort(self) -> None:
        self._producer.abortTransaction()

    def close(self) -> None:
        self._producer.close(self._jvm.java.time.Duration.ZERO)


_java: list[Any] = []


def _virtual_machine() -> Any:
    if not _java:
        from py4j.java_gateway import JavaGateway

        options = ["-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        jars = os.environ[JARS_VARIABLE]
        _java.append(JavaGateway.launch_gateway(classpath=jars, javaopts=options, die_on_exit=True))
    return _java[0].jvm


PRODUCERS: Final[dict[str, Callable[[str, str, str], Producer]]] = {
    "librdkafka": LibrdkafkaProducer,
    "aiokafka": AiokafkaProducer,
    "java": JavaProducer,
}


class Read(NamedTuple):
    """Values of one partition, in the order of their offsets."""

    partition: int
    values: Sequence[str]


class Member(Protocol):
    """A consumer of a group that reads what is committed. `told` is called with what happens to it, in words.

    It has its library's client id, as most programs do: so one gateway has all members of a library.
    """

    def poll(self) -> list[Read]: ...
    def close(self) -> None: ...


Told = Callable[[str], None]


class LibrdkafkaMember:
    """confluent-kafka's; what it has read is committed by the library, once it was returned."""

    def __init__(self, servers: str, group: str, told: Told) -> None:
        from confluent_kafka import Consumer  # type: ignore[import-not-found,unused-ignore]

        self._told = told
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 1_500,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "auto.commit.interval.ms": 500,
                "metadata.max.age.ms": _METADATA_MS,
                "topic.metadata.refresh.interval.ms": _METADATA_MS,
                "fetch.wait.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.subscribe(
            [TOPIC],
            on_assign=lambda _, given: told("assigned " + _numbers(given)),
            on_revoke=lambda _, taken: told("revoked " + _numbers(taken)),
        )

    def poll(self) -> list[Read]:
        found: dict[int, list[str]] = {}
        for message in self._consumer.consume(500, 0.1):
            if message.error() is not None:
                self._told(f"error {message.error()}")
            else:
                found.setdefault(message.partition(), []).append(message.value().decode())
        return [Read(*each) for each in found.items()]

    def close(self) -> None:
        self._consumer.close()


def _numbers(partitions: Sequence[Any]) -> str:
    return ",".join(str(each.partition) for each in partitions)


class AiokafkaMember:
    """aiokafka's, which joins, beats and commits while a call runs."""

    def __init__(self, servers: str, group: str, told: Told) -> None:
        from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

        class Listener(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned: Any) -> None:
                told("assigned " + _numbers(sorted(assigned)))

            def on_partitions_revoked(self, revoked: Any) -> None:
                told("revoked " + _numbers(sorted(revoked)))

        self._runner = asyncio.Runner()

        async def started() -> Any:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=servers.split(","),
                group_id=group,
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=1_500,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                auto_commit_interval_ms=500,
                request_timeout_ms=5_000,
                metadata_max_age_ms=_METADATA_MS,
            )
            consumer.subscribe([TOPIC], listener=Listener())
            async with asyncio.timeout(_CALL_S):
                await consumer.start()
            return consumer

        self._consumer = self._runner.run(started())

    def poll(self) -> list[Read]:
        found = self._runner.run(self._consumer.getmany(timeout_ms=100, max_records=500))
        return [Read(place.partition, [each.value.decode() for each in records]) for place, records in found.items()]

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


MEMBERS: Final[dict[str, Callable[[str, str, Told], Member]]] = {
    "librdkafka": LibrdkafkaMember,
    "aiokafka": AiokafkaMember,
}
