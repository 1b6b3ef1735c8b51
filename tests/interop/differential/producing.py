"""Cases of Producer, outside transactions."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Producer, TopicPartition

from tests.interop.differential.kit import WAIT_S, Kit, case, messages, outcome, plain


def reports_of(kit: Kit, *produced: dict[str, Any], **settings: Any) -> list[Any]:
    """Return (error, partition, offset) of the reports of records, in order."""
    reports: list[Any] = []
    producer = kit.producer(**settings)
    for record in produced:
        producer.produce(callback=lambda error, message: reports.append((error, message)), **record)
    producer.flush(WAIT_S)
    return reports


def sent(kit: Kit, call: Any, partitions: int = 1) -> Any:
    """Return how `call(producer, topic)` ends, and the codes of the reports that follow."""
    reports: list[Any] = []
    producer = kit.producer()
    topic = kit.topic(partitions)
    ended = outcome(lambda: call(producer, topic, lambda error, _: reports.append(plain(error))))
    left = producer.flush(WAIT_S)
    return [ended, reports, left]


@case
def reports_have_the_record_and_its_offset(kit: Kit) -> Any:
    topic = kit.topic()
    found = reports_of(kit, *({"topic": topic, "value": f"v{n}", "key": f"k{n}", "partition": 0} for n in range(4)))
    return [
        [error, one.topic() == topic, one.partition(), one.offset(), plain(one.key()), plain(one.value()), one.error()]
        for error, one in found
    ]


@case
def reports_have_headers(kit: Kit) -> Any:
    ((_, message),) = reports_of(kit, {"topic": kit.topic(), "value": "v", "headers": [("h", b"1")]})
    return plain(message.headers())


@case
def reports_have_a_timestamp_and_a_latency(kit: Kit) -> Any:
    before = int(time.time() * 1000) - 1000
    ((_, message),) = reports_of(kit, {"topic": kit.topic(), "value": "v"})
    kind, when = message.timestamp()
    return [kind, before <= when <= before + 60_000, type(message.latency()).__name__, message.latency() >= 0]


@case
def a_callback_that_raises_reaches_flush(kit: Kit) -> Any:
    topic, seen = kit.topic(), []

    def fail(error: Any, message: Any) -> None:
        seen.append(message.offset())
        raise ArithmeticError

    producer = kit.producer()
    for number in range(3):
        producer.produce(topic, f"v{number}", callback=fail)
    first = outcome(lambda: producer.flush(WAIT_S))
    return [first, list(seen)]


@case
def a_value_that_is_a_bytearray(kit: Kit) -> Any:
    return sent(kit, lambda producer, topic, on: producer.produce(topic, bytearray(b"v"), on_delivery=on))


@case
def a_value_that_is_a_memoryview(kit: Kit) -> Any:
    return sent(kit, lambda producer, topic, on: producer.produce(topic, memoryview(b"v"), on_delivery=on))


@case
def values_and_keys_of_wrong_types(kit: Kit) -> Any:
    producer, topic = kit.producer(), kit.topic()
    wrong: list[dict[str, Any]] = [{"value": 5}, {"value": {}}, {"key": 5}, {"value": 1.5}, {"partition": "0"}]
    return [outcome(lambda given=given: producer.produce(topic, **given)) for given in wrong]


@case
def produce_without_a_topic(kit: Kit) -> Any:
    producer: Any = kit.producer()
    return [
        outcome(lambda: producer.produce()),
        outcome(lambda: producer.produce(None)),
        outcome(lambda: producer.produce(5)),
    ]


@case
def headers_that_are_a_tuple(kit: Kit) -> Any:
    return sent(kit, lambda producer, topic, on: producer.produce(topic, "v", headers=(("a", b"1"),), on_delivery=on))


@case
def headers_with_a_number_as_name(kit: Kit) -> Any:
    return sent(kit, lambda producer, topic, on: producer.produce(topic, "v", headers=[(3, b"1")], on_delivery=on))


@case
def headers_with_a_number_as_value(kit: Kit) -> Any:
    return sent(kit, lambda producer, topic, on: producer.produce(topic, "v", headers=[("a", 3)], on_delivery=on))


@case
def headers_come_back(kit: Kit) -> Any:
    topic = kit.topic()
    given: list[Any] = [[("a", b"1"), ("a", "2"), ("b", None)], {"x": b"1", "y": None}, [], None]
    producer = kit.producer()
    for headers in given:
        producer.produce(topic, "v", headers=headers)
    producer.flush(WAIT_S)
    return [plain(one.headers()) for one in messages(kit.assigned(topic), len(given))]


@case
def partition_below_minus_one(kit: Kit) -> Any:
    return sent(kit, lambda producer, topic, on: producer.produce(topic, "v", partition=-2, on_delivery=on))


@case
def partition_that_does_not_exist(kit: Kit) -> Any:
    producer, topic = kit.producer(), kit.topic()
    producer.list_topics(topic, timeout=WAIT_S)
    reports: list[Any] = []
    producer.produce(topic, "v", partition=0)
    producer.flush(WAIT_S)
    ended = outcome(
        lambda: producer.produce(topic, "v", partition=99, on_delivery=lambda error, _: reports.append(plain(error)))
    )
    producer.flush(WAIT_S)
    return [ended, reports]


@case
def topic_that_does_not_exist(kit: Kit) -> Any:
    reports: list[Any] = []
    producer = kit.producer(topic_metadata_propagation_max_ms=500, message_timeout_ms=3000)
    ended = outcome(
        lambda: producer.produce("no-such-topic", "v", on_delivery=lambda error, _: reports.append(plain(error)))
    )
    producer.flush(WAIT_S)
    return [ended, reports]


@case
def topic_with_a_name_that_cannot_be(kit: Kit) -> Any:
    """A broker reports it; with a store the call itself raises."""
    kit.topic()
    reports: list[Any] = []
    producer = kit.producer(topic_metadata_propagation_max_ms=500, message_timeout_ms=3000)
    ended = outcome(lambda: producer.produce("a b", "v", on_delivery=lambda error, _: reports.append(plain(error))))
    producer.flush(WAIT_S)
    return [ended, reports]


@case
def a_record_without_a_key_in_a_compacted_topic(kit: Kit) -> Any:
    topic, producer, reports = kit.topic(cleanup_policy="compact"), kit.producer(), []
    ended = outcome(lambda: producer.produce(topic, "v", on_delivery=lambda error, _: reports.append(plain(error))))
    return [ended, producer.flush(WAIT_S), reports]


@case
def a_record_that_is_too_large(kit: Kit) -> Any:
    producer, topic = kit.producer(message_max_bytes=2000), kit.topic()
    return [outcome(lambda: producer.produce(topic, b"x" * 3000)), producer.flush(WAIT_S)]


@case
def a_record_above_the_topics_limit(kit: Kit) -> Any:
    topic, producer, reports = kit.topic(max_message_bytes="2000"), kit.producer(), []
    value = bytes(range(256)) * 20
    ended = outcome(lambda: producer.produce(topic, value, on_delivery=lambda error, _: reports.append(plain(error))))
    return [ended, producer.flush(WAIT_S), reports]


@case
def a_full_queue(kit: Kit) -> Any:
    producer, topic = kit.producer(queue_buffering_max_messages=2, linger_ms=5000), kit.topic()
    found = [outcome(lambda: producer.produce(topic, "v")) for _ in range(4)]
    waiting = len(producer)
    return [found, waiting, producer.flush(WAIT_S), len(producer)]


@case
def purge_reports_what_waited(kit: Kit) -> Any:
    producer, topic, reports = kit.producer(linger_ms=5000), kit.topic(), []
    for _ in range(3):
        producer.produce(topic, "v", on_delivery=lambda error, _: reports.append(plain(error)))
    producer.purge()
    producer.poll(1)
    return [reports, len(producer)]


@case
def flush_and_poll_count(kit: Kit) -> Any:
    producer, topic = kit.producer(), kit.topic()
    producer.produce(topic, "v", on_delivery=lambda error, _: None)
    left = producer.flush(WAIT_S)
    return [left, producer.poll(0), len(producer), bool(producer)]


@case
def a_timestamp_that_is_given(kit: Kit) -> Any:
    topic, producer = kit.topic(), kit.producer()
    for timestamp in (1, 1_700_000_000_123):
        producer.produce(topic, "v", timestamp=timestamp)
    producer.flush(WAIT_S)
    return [plain(one.timestamp()) for one in messages(kit.assigned(topic), 2)]


@case
def a_topic_with_the_time_of_the_append(kit: Kit) -> Any:
    topic = kit.topic(message_timestamp_type="LogAppendTime")
    kit.fill(topic, 1, timestamp=1000)
    ((kind, when),) = [one.timestamp() for one in messages(kit.assigned(topic), 1)]
    return [kind, when > 1_700_000_000_000]


@case
def keys_and_values_that_are_empty_or_none(kit: Kit) -> Any:
    topic, producer = kit.topic(), kit.producer()
    for key, value in ((None, None), ("", ""), (b"", None), (None, b""), ("k", None)):
        producer.produce(topic, value, key)
    producer.flush(WAIT_S)
    return [[plain(one.key()), plain(one.value()), len(one)] for one in messages(kit.assigned(topic), 5)]


@case
def truth_of_a_tombstone(kit: Kit) -> Any:
    topic = kit.topic()
    kit.producer().produce(topic, None, "k")
    producer = kit.producer()
    producer.produce(topic, None, "k")
    producer.flush(WAIT_S)
    return [bool(one) for one in messages(kit.assigned(topic), 1)]


@case
def settings_that_are_wrong(kit: Kit) -> Any:
    wrong: list[dict[str, Any]] = [
        {"no.such.setting": 1},
        {"acks": "many"},
        {"linger.ms": -1},
        {"linger.ms": "soon"},
        {"compression.type": "zip"},
        {"partitioner": "alphabetical"},
        {"message.max.bytes": 1},
        {"enable.idempotence": True, "acks": 1},
        {"transactional.id": "t", "enable.idempotence": False},
        {"enable.idempotence": True, "max.in.flight.requests.per.connection": 6},
        {"enable.idempotence": "perhaps"},
    ]
    return [[given, outcome(lambda given=given: Producer({**kit.settings, **given}))] for given in wrong]


@case
def settings_that_are_none(kit: Kit) -> Any:
    return [
        outcome(lambda name=name: Producer({**kit.settings, name: None}))
        for name in ("client.id", "linger.ms", "acks", "on_delivery", "error_cb", "compression.type")
    ]


@case
def settings_that_are_only_for_brokers(kit: Kit) -> Any:
    names = {"socket.timeout.ms": 1000, "retries": 3, "broker.address.family": "v4", "batch.size": 1000, "acks": "all"}
    return [
        outcome(lambda name=name, value=value: Producer({**kit.settings, name: value})) for name, value in names.items()
    ]


@case
def settings_that_are_checked_for_debugging(kit: Kit) -> Any:
    wrong: list[dict[str, Any]] = [{"debug": "nothing-such"}, {"statistics.interval.ms": -1}]
    return [outcome(lambda given=given: Producer({**kit.settings, **given})) for given in wrong]


@case
def a_producer_without_settings(kit: Kit) -> Any:
    make: Any = Producer
    return [
        outcome(lambda: make()),
        outcome(lambda: make("localhost")),
        outcome(lambda: make(None)),
        outcome(lambda: make([])),
    ]


@case
def produce_batch_counts(kit: Kit) -> Any:
    producer, topic, reports = kit.producer(), kit.topic(), []
    producer.list_topics(topic, timeout=WAIT_S)
    batch = [{"value": b"1", "key": b"k"}, {"value": b"2"}, {"value": None}]
    count = outcome(
        lambda: producer.produce_batch(topic, batch, on_delivery=lambda error, _: reports.append(plain(error)))
    )
    return [count, producer.flush(WAIT_S), reports]


@case
def produce_batch_with_an_unknown_name(kit: Kit) -> Any:
    producer, topic = kit.producer(), kit.topic()
    return [outcome(lambda: producer.produce_batch(topic, [{"value": b"1", "colour": "red"}])), producer.flush(WAIT_S)]


@case
def produce_batch_of_a_tuple(kit: Kit) -> Any:
    producer, topic = kit.producer(), kit.topic()
    return [outcome(lambda: producer.produce_batch(topic, ({"value": b"1"},))), producer.flush(WAIT_S)]


@case
def produce_batch_to_a_partition_that_does_not_exist(kit: Kit) -> Any:
    producer, topic = kit.producer(), kit.topic()
    producer.list_topics(topic, timeout=WAIT_S)
    batch: list[Any] = [{"value": b"1"}, {"value": b"2", "partition": 99}, {"value": b"3"}]
    count = outcome(lambda: producer.produce_batch(topic, batch))
    return [count, producer.flush(WAIT_S), ["_error" in one for one in batch]]


@case
def produce_batch_of_what_is_no_dict(kit: Kit) -> Any:
    producer, topic = kit.producer(), kit.topic()
    wrong: list[Any] = [["text"], "text", None, [None]]
    return [outcome(lambda given=given: producer.produce_batch(topic, given)) for given in wrong]


@case
def produce_batch_of_nothing(kit: Kit) -> Any:
    producer, topic = kit.producer(), kit.topic()
    return outcome(lambda: producer.produce_batch(topic, []))


@case
def a_producer_that_is_closed(kit: Kit) -> Any:
    producer, topic = kit.producer(), kit.topic()
    closed = outcome(producer.close)
    return [
        closed,
        outcome(lambda: producer.produce(topic, "v")),
        outcome(lambda: producer.flush(1)),
        outcome(lambda: producer.poll(0)),
        outcome(lambda: producer.list_topics(timeout=1)),
        outcome(producer.close),
    ]


@case
def a_producer_as_a_context(kit: Kit) -> Any:
    topic = kit.topic()
    with kit.producer(linger_ms=5000) as producer:
        producer.produce(topic, "v")
    return [len(messages(kit.assigned(topic), 1))]


def _partitions(kit: Kit, partitioner: str) -> Any:
    topic = kit.topic(7)
    producer = kit.producer(partitioner=partitioner)
    found: dict[str, int] = {}

    def note(error: Any, message: Any) -> None:
        assert error is None, error
        found[message.key().decode()] = message.partition()

    for number in range(60):
        producer.produce(topic, "v", f"key-{number}", on_delivery=note)
    producer.flush(WAIT_S)
    return sorted(found.items())


@case
def partitions_by_consistent(kit: Kit) -> Any:
    return _partitions(kit, "consistent")


@case
def partitions_by_consistent_random(kit: Kit) -> Any:
    return _partitions(kit, "consistent_random")


@case
def partitions_by_murmur2(kit: Kit) -> Any:
    return _partitions(kit, "murmur2")


@case
def partitions_by_murmur2_random(kit: Kit) -> Any:
    return _partitions(kit, "murmur2_random")


@case
def partitions_by_fnv1a(kit: Kit) -> Any:
    return _partitions(kit, "fnv1a")


@case
def partitions_by_fnv1a_random(kit: Kit) -> Any:
    return _partitions(kit, "fnv1a_random")


@case
def records_without_a_key_use_all_partitions(kit: Kit) -> Any:
    topic = kit.topic(3)
    found = reports_of(kit, *({"topic": topic, "value": f"v{n}"} for n in range(300)), sticky_partitioning_linger_ms=0)
    return sorted({message.partition() for _, message in found})


@case
def compressions(kit: Kit) -> Any:
    topic = kit.topic()
    for kind in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert reports_of(kit, {"topic": topic, "value": kind}, compression_type=kind)[0][0] is None
    return [plain(one.value()) for one in messages(kit.assigned(topic), 5)]


@case
def a_callback_of_the_settings_and_one_of_the_call(kit: Kit) -> Any:
    seen: list[str] = []
    producer, topic = kit.producer(on_delivery=lambda error, _: seen.append("settings")), kit.topic()
    producer.produce(topic, "v")
    producer.produce(topic, "v", on_delivery=lambda error, _: seen.append("call"))
    producer.produce(topic, "v", callback=lambda error, _: seen.append("callback"))
    producer.flush(WAIT_S)
    return seen


@case
def callbacks_that_cannot_be_called(kit: Kit) -> Any:
    producer, topic = kit.producer(), kit.topic()
    wrong: Any = 5
    return [
        outcome(lambda: producer.produce(topic, "v", on_delivery=wrong)),
        outcome(lambda: kit.producer(on_delivery=wrong)),
    ]


@case
def list_topics_of_a_producer(kit: Kit) -> Any:
    topic = kit.topic(3)
    metadata = kit.producer().list_topics(topic, timeout=WAIT_S)
    (found,) = metadata.topics.values()
    parts = found.partitions
    return [
        str(found) == topic,
        found.error,
        sorted(parts),
        [[type(part.replicas).__name__, len(part.replicas), len(part.isrs), part.error] for part in parts.values()],
        len(metadata.brokers),
        metadata.controller_id in metadata.brokers,
        type(metadata.cluster_id).__name__,
    ]


@case
def list_topics_of_an_unknown_topic(kit: Kit) -> Any:
    kit.topic()
    metadata = kit.producer().list_topics("no-such-topic", timeout=WAIT_S)
    return {name: [plain(topic.error), len(topic.partitions)] for name, topic in metadata.topics.items()}


@case
def watermarks_after_records(kit: Kit) -> Any:
    topic = kit.topic()
    kit.fill(topic, 5)
    return plain(kit.consumer().get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S))


@case
def calls_for_transactions_without_an_id(kit: Kit) -> Any:
    producer = kit.producer()
    return [
        outcome(lambda: producer.init_transactions(WAIT_S)),
        outcome(producer.begin_transaction),
        outcome(lambda: producer.commit_transaction(WAIT_S)),
        outcome(lambda: producer.abort_transaction(WAIT_S)),
    ]


@case
def calls_without_time(kit: Kit) -> Any:
    topic = kit.topic()
    producer, consumer = kit.producer(), kit.consumer()
    return [
        outcome(lambda: producer.list_topics(topic, timeout=0) is not None),
        outcome(lambda: consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=0)),
    ]


@case
def credentials_that_are_set_later(kit: Kit) -> Any:
    clients = (kit.producer(), kit.consumer(), kit.admin)
    return [outcome(lambda client=client: client.set_sasl_credentials("user", "password")) for client in clients]


@case
def lengths_and_clusters(kit: Kit) -> Any:
    kit.topic()
    return [len(kit.admin), len(kit.producer()), type(kit.admin.list_topics(timeout=WAIT_S).cluster_id).__name__]
