"""Cases of Consumer: reading, positions, committed offsets."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    Consumer,
    TopicPartition,
)

from tests.interop.differential.kit import WAIT_S, Kit, case, messages, outcome, plain, until, values


def at(topic: str, offset: int | None = None, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition) if offset is None else TopicPartition(topic, partition, offset)


def filled(kit: Kit, count: int = 5) -> str:
    topic = kit.topic()
    kit.fill(topic, count)
    return topic


@case
def a_message_has_all_its_parts(kit: Kit) -> Any:
    topic = kit.topic()
    kit.fill(topic, 1, key="k", headers=[("h", b"1")], timestamp=1_700_000_000_000)
    (one,) = messages(kit.assigned(topic), 1)
    parts: Any = [
        one.partition(),
        one.offset(),
        one.key(),
        one.value(),
        one.headers(),
        one.timestamp(),
        one.error(),
        len(one),
    ]
    return plain(parts)


@case
def a_message_without_headers(kit: Kit) -> Any:
    (one,) = messages(kit.assigned(filled(kit, 1)), 1)
    return plain([one.headers(), one.key(), one.latency()])


@case
def the_leader_epoch_of_a_message(kit: Kit) -> Any:
    (one,) = messages(kit.assigned(filled(kit, 1)), 1)
    return type(one.leader_epoch()).__name__


@case
def poll_returns_none_when_its_time_is_over(kit: Kit) -> Any:
    consumer = kit.assigned(kit.topic())
    begun = time.monotonic()
    found = consumer.poll(0.5)
    return [found, 0.4 < time.monotonic() - begun < 5]


@case
def the_message_at_the_end_of_a_partition(kit: Kit) -> Any:
    (end,) = messages(kit.assigned(filled(kit, 2), offset=2, enable_partition_eof=True), 1)
    return [plain(end.error()), end.offset(), end.partition(), plain(end.key()), end.headers()]


@case
def the_value_of_the_message_at_the_end_of_a_partition(kit: Kit) -> Any:
    (end,) = messages(kit.assigned(filled(kit, 2), offset=2, enable_partition_eof=True), 1)
    return type(end.value()).__name__


@case
def the_timestamp_of_the_message_at_the_end_of_a_partition(kit: Kit) -> Any:
    (end,) = messages(kit.assigned(filled(kit, 2), offset=2, enable_partition_eof=True), 1)
    return plain(end.timestamp())


@case
def positions_before_and_after(kit: Kit) -> Any:
    topic = filled(kit)
    consumer = kit.assigned(topic)
    messages(consumer, 3)
    return plain(consumer.position([at(topic)]))


@case
def the_position_before_the_first_poll(kit: Kit) -> Any:
    topic = filled(kit)
    return plain(kit.assigned(topic).position([at(topic)]))


@case
def the_position_of_what_is_not_assigned(kit: Kit) -> Any:
    topic = filled(kit)
    return outcome(lambda: kit.consumer().position([at(topic)]))


@case
def the_assignment_with_offsets(kit: Kit) -> Any:
    return plain(kit.assigned(kit.topic(), offset=3).assignment())


@case
def the_assignment_without_offsets(kit: Kit) -> Any:
    topic, consumer = kit.topic(), kit.consumer()
    consumer.assign([at(topic)])
    return plain(consumer.assignment())


@case
def where_reading_starts(kit: Kit) -> Any:
    topic = filled(kit)
    found = [values(kit.assigned(topic, offset=offset), 1) for offset in (2, OFFSET_BEGINNING)]
    late = kit.assigned(topic, offset=OFFSET_END, enable_partition_eof=True)
    return [found, values(late, 1)]


@case
def where_reading_starts_without_a_committed_offset(kit: Kit) -> Any:
    topic = filled(kit)
    found = []
    for reset in ("earliest", "latest", "error", "smallest", "largest", "beginning", "end"):
        consumer = kit.consumer(auto_offset_reset=reset, group_id=f"{kit.group}-{reset}", enable_partition_eof=True)
        consumer.assign([at(topic)])
        found.append([reset, values(consumer, 1)])
    return found


@case
def an_offset_out_of_range(kit: Kit) -> Any:
    topic = filled(kit)
    found = []
    for reset in ("earliest", "latest", "error"):
        consumer = kit.assigned(topic, offset=99, auto_offset_reset=reset, enable_partition_eof=True)
        found.append([reset, values(consumer, 1)])
    return found


@case
def where_reading_starts_with_a_committed_offset(kit: Kit) -> Any:
    topic = filled(kit)
    consumer = kit.consumer()
    consumer.commit(offsets=[at(topic, 3)], asynchronous=False)
    found = []
    for offset in (None, OFFSET_STORED, OFFSET_INVALID):
        again = kit.consumer()
        again.assign([at(topic, offset)])
        found.append(values(again, 1))
    return found


@case
def committed_offsets(kit: Kit) -> Any:
    topic = filled(kit)
    consumer = kit.assigned(topic)
    before = plain(consumer.committed([at(topic)], timeout=WAIT_S))
    (first, second) = messages(consumer, 2)
    by_message = plain(consumer.commit(message=first, asynchronous=False))
    by_position = plain(consumer.commit(asynchronous=False))
    by_offset = plain(consumer.commit(offsets=[TopicPartition(topic, 0, 4, metadata="m")], asynchronous=False))
    after = plain(consumer.committed([at(topic)], timeout=WAIT_S))
    return [before, second.offset(), by_message, by_position, by_offset, after]


@case
def a_commit_of_nothing(kit: Kit) -> Any:
    return outcome(lambda: kit.assigned(kit.topic()).commit(asynchronous=False))


@case
def a_commit_with_both_a_message_and_offsets(kit: Kit) -> Any:
    topic = filled(kit)
    consumer = kit.assigned(topic)
    (one,) = messages(consumer, 1)
    commit: Any = consumer.commit
    return outcome(lambda: commit(message=one, offsets=[at(topic, 1)], asynchronous=False))


@case
def a_commit_of_a_message_with_an_error(kit: Kit) -> Any:
    topic = filled(kit, 1)
    consumer = kit.assigned(topic, offset=1, enable_partition_eof=True)
    (end,) = messages(consumer, 1)
    return outcome(lambda: consumer.commit(message=end, asynchronous=False))


@case
def asynchronous_commits_call_back(kit: Kit) -> Any:
    topic, seen = filled(kit, 2), []
    consumer = kit.consumer(on_commit=lambda error, parts: seen.append([plain(error), plain(parts)]))
    consumer.assign([at(topic, 0)])
    messages(consumer, 2)
    returned = plain(consumer.commit())
    until(lambda: consumer.poll(0.1) is None and seen, 10)
    return [returned, seen]


@case
def committed_right_after_an_asynchronous_commit(kit: Kit) -> Any:
    topic = filled(kit)
    consumer = kit.consumer()
    consumer.assign([at(topic, 0)])
    # With it the coordinator is known: librdkafka keeps no order between requests that wait for one.
    seen = [plain(consumer.committed([at(topic)], timeout=WAIT_S))]
    for offset in (1, 2, 3):
        consumer.commit(offsets=[at(topic, offset)])
        seen.append(plain(consumer.committed([at(topic)], timeout=WAIT_S)))
    return seen


@case
def synchronous_commits_do_not_call_back(kit: Kit) -> Any:
    topic, seen = filled(kit), []
    consumer = kit.consumer(on_commit=lambda error, parts: seen.append(1))
    consumer.assign([at(topic, 0)])
    messages(consumer, 2)
    consumer.commit(asynchronous=False)
    until(lambda: consumer.poll(0.1) and seen, 1)
    return seen


@case
def automatic_commits_at_close(kit: Kit) -> Any:
    topic = filled(kit)
    consumer = kit.consumer(enable_auto_commit=True)
    consumer.subscribe([topic])
    messages(consumer, 5)
    consumer.close()
    return plain(kit.consumer().committed([at(topic)], timeout=WAIT_S))


def seen_by_another(kit: Kit, topic: str, between: Callable[[], object]) -> Any:
    """Whether another consumer sees offset 5 committed within 10 s, and what it sees at last."""
    other = kit.consumer()
    found: list[Any] = []

    def seen() -> bool:
        between()
        found[:] = plain(other.committed([at(topic)], timeout=WAIT_S))
        return bool(found[0][1] == 5)

    return [until(seen, 10), found]


@case
def automatic_commits_after_their_interval(kit: Kit) -> Any:
    topic = filled(kit)
    consumer = kit.consumer(enable_auto_commit=True, auto_commit_interval_ms=500)
    consumer.assign([at(topic, 0)])
    messages(consumer, 5)
    return seen_by_another(kit, topic, lambda: consumer.poll(0.1))


@case
def automatic_commits_go_on_without_a_poll(kit: Kit) -> Any:
    topic = filled(kit)
    consumer = kit.consumer(enable_auto_commit=True, auto_commit_interval_ms=500)
    consumer.assign([at(topic, 0)])
    messages(consumer, 5)
    return seen_by_another(kit, topic, lambda: None)


@case
def stored_offsets(kit: Kit) -> Any:
    topic = filled(kit)
    consumer = kit.assigned(topic, enable_auto_offset_store=False)
    (first, _) = messages(consumer, 2)
    before = outcome(lambda: consumer.commit(asynchronous=False))
    consumer.store_offsets(message=first)
    by_message = plain(consumer.commit(asynchronous=False))
    consumer.store_offsets(offsets=[at(topic, 4)])
    return [before, by_message, plain(consumer.commit(asynchronous=False))]


@case
def stored_offsets_where_they_are_stored_by_themselves(kit: Kit) -> Any:
    topic = filled(kit)
    consumer = kit.assigned(topic)
    messages(consumer, 1)
    return outcome(lambda: consumer.store_offsets(offsets=[at(topic, 1)]))


@case
def stored_offsets_below_the_committed_one(kit: Kit) -> Any:
    topic = filled(kit)
    consumer = kit.assigned(topic, enable_auto_offset_store=False)
    messages(consumer, 4)
    consumer.store_offsets(offsets=[at(topic, 4)])
    consumer.commit(asynchronous=False)
    consumer.store_offsets(offsets=[at(topic, 2)])
    return outcome(lambda: consumer.commit(asynchronous=False))


@case
def stored_offsets_of_what_is_not_assigned(kit: Kit) -> Any:
    topic = filled(kit)
    consumer = kit.consumer(enable_auto_offset_store=False)
    return outcome(lambda: consumer.store_offsets(offsets=[at(topic, 1)]))


@case
def seeking(kit: Kit) -> Any:
    topic = filled(kit)
    consumer = kit.assigned(topic, enable_partition_eof=True)
    messages(consumer, 2)
    found = []
    for offset in (4, 0, OFFSET_BEGINNING, OFFSET_END):
        consumer.seek(at(topic, offset))
        found.append(values(consumer, 1))
    return found


@case
def seeking_what_is_not_assigned(kit: Kit) -> Any:
    topic = filled(kit)
    return outcome(lambda: kit.consumer().seek(at(topic, 1)))


@case
def pausing(kit: Kit) -> Any:
    topic = filled(kit)
    consumer = kit.assigned(topic)
    first = values(consumer, 1)
    consumer.pause([at(topic)])
    paused = values(consumer, 1, 1)
    consumer.resume([at(topic)])
    return [first, paused, values(consumer, 4)]


@case
def pausing_what_is_not_assigned(kit: Kit) -> Any:
    topic, consumer = kit.topic(), kit.consumer()
    return [outcome(lambda: consumer.pause([at(topic)])), outcome(lambda: consumer.resume([at(topic)]))]


@case
def adding_and_removing_partitions(kit: Kit) -> Any:
    topic, consumer = kit.topic(3), kit.consumer()
    consumer.incremental_assign([at(topic, 0, 0), at(topic, 0, 1)])
    first = plain(consumer.assignment())
    consumer.incremental_unassign([at(topic, 0, 0)])
    second = plain(consumer.assignment())
    consumer.unassign()
    return [first, second, plain(consumer.assignment())]


@case
def removing_what_is_not_assigned(kit: Kit) -> Any:
    topic, consumer = kit.topic(), kit.consumer()
    return outcome(lambda: consumer.incremental_unassign([at(topic)]))


@case
def adding_what_is_assigned(kit: Kit) -> Any:
    topic = kit.topic()
    consumer = kit.assigned(topic)
    return outcome(lambda: consumer.incremental_assign([at(topic)]))


@case
def consuming_many(kit: Kit) -> Any:
    topic = filled(kit, 50)
    consumer = kit.assigned(topic)
    found: list[Any] = []
    until(lambda: found.extend(consumer.consume(20, timeout=1)) or len(found) >= 50)
    return [len(found), consumer.consume(5, timeout=0.2), [one.offset() for one in found] == list(range(50))]


@case
def counts_of_consume(kit: Kit) -> Any:
    consumer: Any = kit.assigned(kit.topic())
    wrong: list[Any] = [0, -1, 1_000_001, "1", None, 1.5]
    return [[given, outcome(lambda given=given: consumer.consume(given, timeout=0.1))] for given in wrong]


@case
def watermarks(kit: Kit) -> Any:
    topic = filled(kit)
    consumer = kit.consumer()
    return [
        plain(consumer.get_watermark_offsets(at(topic), timeout=WAIT_S)),
        plain(consumer.get_watermark_offsets(at(kit.topic()), timeout=WAIT_S)),
    ]


@case
def watermarks_that_are_cached(kit: Kit) -> Any:
    topic = filled(kit)
    consumer = kit.assigned(topic)
    before = outcome(lambda: consumer.get_watermark_offsets(at(topic), cached=True))
    messages(consumer, 5)
    return [before, outcome(lambda: consumer.get_watermark_offsets(at(topic), cached=True))]


@case
def watermarks_of_an_unknown_partition(kit: Kit) -> Any:
    topic, consumer = kit.topic(), kit.consumer()
    return outcome(lambda: consumer.get_watermark_offsets(at(topic, None, 9), timeout=WAIT_S))


@case
def offsets_by_time(kit: Kit) -> Any:
    topic, producer = kit.topic(), kit.producer()
    for timestamp in (1000, 2000, 3000):
        producer.produce(topic, "v", timestamp=timestamp)
    producer.flush(WAIT_S)
    consumer = kit.consumer()
    times = (0, 1000, 1001, 3000, 3001)
    return [plain(consumer.offsets_for_times([at(topic, time)], timeout=WAIT_S)) for time in times]


@case
def offsets_by_times_below_zero(kit: Kit) -> Any:
    topic, consumer = filled(kit), kit.consumer()
    return [
        outcome(lambda time=time: consumer.offsets_for_times([at(topic, time)], timeout=WAIT_S)) for time in (-1, -2)
    ]


@case
def offsets_by_time_of_an_unknown_partition(kit: Kit) -> Any:
    topic, consumer = kit.topic(), kit.consumer()
    return outcome(lambda: consumer.offsets_for_times([at(topic, 5, 9)], timeout=WAIT_S))


@case
def committed_offsets_of_an_unknown_topic(kit: Kit) -> Any:
    kit.topic()
    return outcome(lambda: kit.consumer().committed([at("no-such-topic")], timeout=WAIT_S))


@case
def a_consumer_that_is_closed(kit: Kit) -> Any:
    topic = kit.topic()
    consumer = kit.assigned(topic)
    closed = outcome(consumer.close)
    calls: list[Any] = [
        lambda: consumer.poll(0),
        lambda: consumer.consume(1, 0),
        lambda: consumer.commit(asynchronous=False),
        lambda: consumer.subscribe([topic]),
        consumer.assignment,
        lambda: consumer.committed([at(topic)]),
        lambda: consumer.list_topics(timeout=1),
        lambda: consumer.seek(at(topic, 0)),
        consumer.unsubscribe,
        consumer.memberid,
        consumer.close,
    ]
    return [closed, [outcome(call) for call in calls]]


@case
def a_consumer_without_a_group(kit: Kit) -> Any:
    make: Any = Consumer
    return [outcome(lambda: make(kit.settings)), outcome(lambda: make()), outcome(lambda: make("localhost"))]


@case
def settings_of_a_consumer_that_are_wrong(kit: Kit) -> Any:
    wrong: list[dict[str, Any]] = [
        {"auto.offset.reset": "sometime"},
        {"isolation.level": "read_everything"},
        {"enable.auto.commit": "perhaps"},
        {"auto.commit.interval.ms": -1},
        {"session.timeout.ms": 0},
        {"partition.assignment.strategy": "by-hand"},
        {"acks.of.nobody": 1},
        {"on_commit": 5},
        {"group.id": 5, "fetch.min.bytes": 0},
    ]
    return [[plain(given), outcome(lambda given=given: kit.consumer(**given))] for given in wrong]


@case
def settings_of_share_groups(kit: Kit) -> Any:
    settings: list[dict[str, Any]] = [{"max.poll.records": 5}, {"share.acknowledgement.mode": "implicit"}]
    return [outcome(lambda given=given: kit.consumer(**given)) for given in settings]


@case
def settings_of_a_consumer_that_contradict(kit: Kit) -> Any:
    wrong: list[dict[str, Any]] = [
        {"group.protocol": "foo"},
        {"max.poll.interval.ms": 1000, "session.timeout.ms": 6000},
    ]
    return [outcome(lambda given=given: kit.consumer(**given)) for given in wrong]


@case
def wrong_arguments_of_assign(kit: Kit) -> Any:
    assign: Any = kit.consumer().assign
    wrong: list[Any] = ["topic", ["topic"], None, [None]]
    return [outcome(lambda given=given: assign(given)) for given in wrong]


@case
def no_partitions_are_assigned(kit: Kit) -> Any:
    consumer = kit.assigned(kit.topic())
    ended = outcome(lambda: consumer.assign([]))
    return [ended, plain(consumer.assignment())]


@case
def a_topic_that_does_not_exist_is_read(kit: Kit) -> Any:
    kit.topic()
    consumer = kit.consumer()
    consumer.subscribe(["no-such-topic"])
    found = [consumer.poll(0.1) for _ in range(3)]
    return [None if one is None else plain(one.error()) for one in found][-1]


@case
def list_topics_of_a_consumer(kit: Kit) -> Any:
    topic = kit.topic(2)
    found = kit.consumer().list_topics(topic, timeout=WAIT_S).topics
    return {name.removeprefix(kit.name): sorted(one.partitions) for name, one in found.items()}


@case
def a_consumer_in_a_loop(kit: Kit) -> Any:
    consumer: Any = kit.assigned(filled(kit, 1))
    return outcome(lambda: next(iter(consumer)).offset())


@case
def two_partitions_are_read_in_order(kit: Kit) -> Any:
    topic = kit.topic(2)
    kit.fill(topic, 3, 0)
    kit.fill(topic, 3, 1)
    consumer = kit.consumer()
    consumer.assign([at(topic, 0, 0), at(topic, 0, 1)])
    found = messages(consumer, 6)
    return [[one.offset() for one in found if one.partition() == partition] for partition in (0, 1)]
