"""Importing a topic through a consumer: each record once, whatever dies, with partitions, headers and times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from sparktxn import ConfigurationError, Consumer, KafkaError, Producer, Store
from sparktxn.errors import BatchRefused, ErrorCode, KafkaException, OutcomeUnknown, RetentionPassed, StoreUnavailable
from sparktxn.transfer import import_topic
from tests.transfer.test_exporting import TYPED, shop, shown
from tests.world import next_number

__all__ = ["shop"]


class Fake(NamedTuple):
    """A message as confluent-kafka's."""

    number: int
    at: int
    held: bytes | None = b"v"
    failed: KafkaError | None = None
    kind: int = 1

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return self.failed

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return self.held

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return self.kind, 1_000 + self.at


class FakeConsumer:
    """Gives messages in the order given, from the assigned offsets on."""

    def __init__(self, messages: list[Fake], ends: dict[int, tuple[int, int]]) -> None:
        self.messages = messages
        self.ends = ends
        self.assigned: dict[int, int] = {}

    def list_topics(self, topic: str, timeout: float) -> Any:
        class Topic:
            error = None
            partitions = dict.fromkeys(self.ends)

        class Metadata:
            topics = {"source": Topic} if self.ends else {}

        return Metadata

    def get_watermark_offsets(self, partition: Any, timeout: float) -> Any:
        return self.ends[partition[1]]

    def assign(self, partitions: Any) -> None:
        self.assigned = {number: offset for _, number, offset in partitions}
        self.left = [one for one in self.messages if one.failed or one.at >= self.assigned[one.number]]

    def consume(self, num_messages: int, timeout: float) -> Any:
        given, self.left = self.left[:num_messages], self.left[num_messages:]
        return given


def place(topic: str, partition: int, offset: int) -> tuple[str, int, int]:
    return topic, partition, offset


FAKE: dict[str, Any] = {"topic_partition": place, "idle_timeout_s": 0.0}


@pytest.fixture
def target() -> Iterator[Store]:
    with Store.open(f"memory://imported-{next_number()}", create=True) as store:
        store.create_topic("orders", 3)
        store.create_topic("typed", 1, schema=TYPED)
        yield store


@pytest.fixture
def consumer(shop: Store) -> Iterator[Consumer]:
    settings = {"bootstrap.servers": shop.uri, "group.id": "unused", "enable.partition.eof": True}
    with Consumer(settings | {"enable.auto.commit": False}) as consumer:
        yield consumer


def kept(store: Store) -> list[tuple[Any, ...]]:
    names = ("partition", "key", "value", "headers", "timestamp")
    return [tuple(row[name] for name in names) for row in shown(store, "orders")]


def values(store: Store) -> list[bytes]:
    return [row["value"] for row in shown(store, "orders")]


def test_a_topic_of_another_store(shop: Store, target: Store, consumer: Consumer) -> None:
    foreseen = import_topic(target, "orders", consumer, "orders", dry_run=True)
    assert foreseen.records == 0
    assert foreseen.offsets_left > 11
    report = import_topic(target, "orders", consumer, "orders", batch_records=3, idle_timeout_s=1)
    assert (report.records, report.transactions) == (11, 4)
    assert kept(target) == kept(shop)
    again = import_topic(target, "orders", consumer, "orders", idle_timeout_s=1)
    assert (again.records, again.ends) == (0, report.ends)
    with Producer({"bootstrap.servers": shop.uri}) as producer:
        producer.produce("orders", b"later", partition=2)
    import_topic(target, "orders", consumer, "orders", idle_timeout_s=1)
    assert kept(target) == kept(shop)


@pytest.mark.parametrize("error", [StoreUnavailable("down"), OutcomeUnknown("no answer"), KeyboardInterrupt()])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("which", [1, 3])
def test_a_crash_at_a_commit(
    target: Store, monkeypatch: pytest.MonkeyPatch, which: int, error: BaseException, *, after: bool
) -> None:
    messages = [Fake(number % 3, number // 3, b"%d" % number) for number in range(21)]
    consumer = FakeConsumer(messages, dict.fromkeys(range(3), (0, 7)))
    original, calls = Store.commit, list[int]()

    def commit(self: Store, *args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == which:
            if after:
                original(self, *args, **kwargs)
            raise error
        return original(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit", commit)
        with pytest.raises(type(error)):
            import_topic(target, "orders", consumer, "source", batch_records=4, **FAKE)
    assert len(values(target)) == 4 * (which - 1 + after)
    with Store.open(target.uri, options={"checkpoint.entries": 5}) as other:
        report = import_topic(other, "orders", consumer, "source", batch_records=4, **FAKE)
    assert report.offsets_left == 0
    assert sorted(values(target), key=int) == [b"%d" % number for number in range(21)]


@pytest.mark.parametrize("when", ["before it begins", "after its first batch"])
def test_of_two_imports_at_once_one_is_refused(target: Store, when: str) -> None:
    messages = [Fake(0, number, b"%d" % number) for number in range(12)]
    ends = {0: (0, 12)}

    class Interrupted(FakeConsumer):
        calls = 0

        def consume(self, num_messages: int, timeout: float) -> Any:
            self.calls += 1
            if self.calls == (1 if when == "before it begins" else 2):
                with Store.open(target.uri, options={"checkpoint.entries": 7}) as other:
                    assert import_topic(other, "orders", FakeConsumer(messages, ends), "source", **FAKE).records > 0
            return super().consume(num_messages, timeout)

    with pytest.raises(KafkaException) as refused:
        import_topic(target, "orders", Interrupted(messages, ends), "source", batch_records=4, **FAKE)
    assert isinstance(refused.value, BatchRefused) or refused.value.error.code() in (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.LOCAL_FENCED,
    )
    assert values(target) == [b"%d" % number for number in range(12)]


def test_records_behind_the_end_are_left_to_the_next_import(target: Store) -> None:
    messages = [Fake(0, 0, b"a"), Fake(0, 3, b"b"), Fake(0, 6, b"c"), Fake(0, 8, b"d")]
    report = import_topic(target, "orders", FakeConsumer(messages, {0: (0, 5)}), "source", **FAKE)
    assert (report.records, report.positions, report.offsets_left) == (2, {0: 5}, 0)
    report = import_topic(target, "orders", FakeConsumer(messages, {0: (0, 9)}), "source", **FAKE)
    assert report.records == 2
    assert values(target) == [b"a", b"b", b"c", b"d"]


def test_ends_of_partitions_and_errors(target: Store) -> None:
    eof = KafkaError(ErrorCode.LOCAL_PARTITION_EOF, "end")
    messages = [Fake(0, 0, None, kind=0), Fake(0, 4, failed=eof)]
    report = import_topic(target, "orders", FakeConsumer(messages, {0: (0, 9)}), "source", **FAKE)
    assert (report.records, report.positions, report.offsets_left) == (1, {0: 4}, 5)
    (row,) = shown(target, "orders")
    assert row["value"] is None
    assert row["timestamp"].year > 2000
    failed = [Fake(0, 5), Fake(0, 6, failed=KafkaError(ErrorCode.LOCAL_TRANSPORT, "no broker"))]
    with pytest.raises(StoreUnavailable, match="no broker"):
        import_topic(target, "orders", FakeConsumer(failed, {0: (0, 9)}), "source", **FAKE)
    assert len(shown(target, "orders")) == 1


def test_two_sources_do_not_meet(target: Store) -> None:
    consumer = FakeConsumer([Fake(0, 0), Fake(0, 1)], {0: (0, 2)})
    for name in ("one", "other", "one"):
        import_topic(target, "orders", consumer, "source", name=name, **FAKE)
    assert len(values(target)) == 4


def test_a_source_that_does_not_fit_is_refused(target: Store) -> None:
    import_topic(target, "orders", FakeConsumer([Fake(0, 4)], {0: (0, 5)}), "source", **FAKE)
    for consumer, reason in (
        (FakeConsumer([], {}), "has no topic 'source'"),
        (FakeConsumer([], dict.fromkeys(range(4), (0, 0))), "4 partitions, and 'orders' has 3"),
        (FakeConsumer([], {0: (0, 4)}), "ends at offset 4, and was imported up to 5"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            import_topic(target, "orders", consumer, "source", **FAKE)
    with pytest.raises(ConfigurationError, match="columns of its own"):
        import_topic(target, "typed", FakeConsumer([], {0: (0, 1)}), "source", **FAKE)
    lost = FakeConsumer([Fake(0, 8)], {0: (7, 9)})
    with pytest.raises(RetentionPassed, match="begins at offset 7, and was imported up to 5"):
        import_topic(target, "orders", lost, "source", **FAKE)
    assert import_topic(target, "orders", lost, "source", accept_loss=True, **FAKE).records == 1
