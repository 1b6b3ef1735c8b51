"""The producer's topics are looked at by its sender while another thread produces to new ones."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from sparktxn._foundation.process.clock import Deadline, SystemClock
from sparktxn._foundation.values.structs import TopicState
from sparktxn._kafka.settings.producer import ProducerSettings
from sparktxn.producer.topics import PartitionChoice, Topics


def topic(topic_id: int, name: str) -> TopicState:
    return TopicState(topic_id=topic_id, name=name, partition_count=1, settings={}, schema=None, created_entry=1)


class ALogThatIsAsked:
    """Says what it knows of a topic, after another thread has done something."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicState] = {}
        self.meanwhile: Any = lambda: None

    def within(self, timeout_s: float) -> AbstractContextManager[Deadline]:
        return Deadline(SystemClock(), timeout_s).governs()

    def topic(self, name: str) -> TopicState | None:
        self.meanwhile()
        return self.topics.get(name)

    changeable_topic = topic

    def decide(self, by_what_is_known: Any, forget: object = None) -> Any:
        return by_what_is_known()


def test_a_topic_that_another_thread_finds_meanwhile_stays_known() -> None:
    log: Any = ALogThatIsAsked()
    log.topics = {name: topic(number, name) for number, name in enumerate(("first", "second"), 1)}
    settings = ProducerSettings.parse({"bootstrap.servers": "memory://topics"})
    topics = Topics(settings, PartitionChoice(settings.partitioner))
    first = topics.find(log, "first")

    def produce() -> None:
        log.meanwhile = lambda: None
        topics.find(log, "second")

    log.meanwhile = produce
    topics.forget_changed(log)
    assert topics.find(log, "first") is first
    assert set(topics.of_records()) == {"first", "second"}


def test_a_topic_that_was_made_again_is_looked_up_again() -> None:
    log: Any = ALogThatIsAsked()
    log.topics = {"first": topic(1, "first")}
    settings = ProducerSettings.parse({"bootstrap.servers": "memory://topics"})
    topics = Topics(settings, PartitionChoice(settings.partitioner))
    first = topics.find(log, "first")
    log.topics = {"first": topic(2, "first")}
    topics.forget_changed(log)
    assert topics.find(log, "first") is not first
