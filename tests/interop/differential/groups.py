"""Cases of subscriptions, rebalances and members."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import TopicPartition

from tests.interop.differential.kit import WAIT_S, Kit, case, messages, outcome, plain, until, values


@case
def a_subscription_is_assigned(kit: Kit) -> Any:
    topic, calls = kit.topic(2), []
    kit.fill(topic, 1)
    consumer = kit.consumer()
    consumer.subscribe(
        [topic],
        on_assign=lambda _, parts: calls.append(["assign", plain(sorted(parts))]),
        on_revoke=lambda _, parts: calls.append(["revoke", len(parts)]),
        on_lost=lambda _, parts: calls.append(["lost", len(parts)]),
    )
    found = values(consumer, 1)
    assignment = sorted(part.partition for part in consumer.assignment())
    consumer.close()
    return [found, assignment, calls]


@case
def a_subscription_is_given_up(kit: Kit) -> Any:
    topic, calls = kit.topic(), []
    kit.fill(topic, 1)
    consumer = kit.consumer()
    consumer.subscribe([topic], on_revoke=lambda _, parts: calls.append(["revoke", len(parts)]))
    messages(consumer, 1)
    consumer.unsubscribe()
    until(lambda: consumer.poll(0.1) or calls, 5)
    return [calls, consumer.assignment()]


@case
def subscriptions_by_pattern(kit: Kit) -> Any:
    topics = [kit.topic(), kit.topic()]
    for topic in topics:
        kit.fill(topic, 1)
    consumer = kit.consumer()
    consumer.subscribe([f"^{kit.name}-[12]$"])
    return sorted(one.topic() == topics[0] for one in messages(consumer, 2))


@case
def wrong_subscriptions(kit: Kit) -> Any:
    subscribe: Any = kit.consumer().subscribe
    wrong: list[Any] = ["topic", None, [5], [None]]
    return [
        [outcome(lambda given=given: subscribe(given)) for given in wrong],
        outcome(lambda: subscribe(["t"], on_assign=5)),
        outcome(lambda: subscribe(["t"], on_revoke="f")),
    ]


@case
def an_empty_subscription(kit: Kit) -> Any:
    consumer = kit.consumer()
    return outcome(lambda: consumer.subscribe([]))


@case
def an_assignment_in_the_callback(kit: Kit) -> Any:
    topic = kit.topic()
    kit.fill(topic, 5)
    consumer = kit.consumer()

    def start_at_three(member: Any, partitions: Any) -> None:
        for partition in partitions:
            partition.offset = 3
        member.assign(partitions)

    consumer.subscribe([topic], on_assign=start_at_three)
    return values(consumer, 2)


@case
def a_callback_of_a_rebalance_that_raises(kit: Kit) -> Any:
    topic = kit.topic()
    kit.fill(topic, 1)
    consumer = kit.consumer()

    def fail(member: Any, partitions: Any) -> None:
        raise ArithmeticError

    consumer.subscribe([topic], on_assign=fail)
    ended = None
    for _ in range(100):
        ended = outcome(lambda: consumer.poll(0.1))
        if ended is not None:
            break
    return ended


def _shares(kit: Kit, **settings: Any) -> Any:
    """Return how many partitions of four each of two members gets."""
    topic = kit.topic(4)
    kit.fill(topic, 1)
    first, second = kit.consumer(**settings), kit.consumer(**settings)
    first.subscribe([topic])
    messages(first, 1)
    second.subscribe([topic])

    def shared() -> bool:
        first.poll(0.1)
        second.poll(0.1)
        return [len(first.assignment()), len(second.assignment())] == [2, 2]

    even = until(shared, 30)
    held = [sorted(part.partition for part in one.assignment()) for one in (first, second)]
    return [even, sorted(held[0] + held[1])]


@case
def two_members_share_by_range(kit: Kit) -> Any:
    return _shares(kit, partition_assignment_strategy="range")


@case
def two_members_share_by_roundrobin(kit: Kit) -> Any:
    return _shares(kit, partition_assignment_strategy="roundrobin")


@case
def two_members_share_cooperatively(kit: Kit) -> Any:
    return _shares(kit, partition_assignment_strategy="cooperative-sticky")


@case
def two_members_share_under_the_new_protocol(kit: Kit) -> Any:
    return _shares(kit, group_protocol="consumer")


@case
def a_member_that_leaves_gives_its_partitions_to_the_other(kit: Kit) -> Any:
    topic = kit.topic(2)
    kit.fill(topic, 1)
    first, second = kit.consumer(), kit.consumer()
    for one in (first, second):
        one.subscribe([topic])

    def assigned(*counts: int) -> bool:
        first.poll(0.1)
        second.poll(0.1)
        return [len(first.assignment()), len(second.assignment())] == list(counts)

    shared = until(lambda: assigned(1, 1), 30)
    first.close()
    return [shared, until(lambda: second.poll(0.1) is not None or len(second.assignment()) == 2, 30)]


@case
def a_member_goes_on_at_the_committed_offset(kit: Kit) -> Any:
    topic = kit.topic()
    kit.fill(topic, 5)
    first = kit.consumer()
    first.subscribe([topic])
    read = messages(first, 2)
    first.commit(message=read[-1], asynchronous=False)
    first.close()
    second = kit.consumer()
    second.subscribe([topic])
    return values(second, 3)


@case
def the_member_id(kit: Kit) -> Any:
    topic = kit.topic()
    kit.fill(topic, 1)
    consumer = kit.consumer()
    before = type(consumer.memberid()).__name__
    consumer.subscribe([topic])
    messages(consumer, 1)
    return [before, len(consumer.memberid() or "") > 10]


@case
def the_metadata_of_a_group(kit: Kit) -> Any:
    consumer = kit.consumer()
    return type(consumer.consumer_group_metadata()).__name__


@case
def a_subscription_replaces_the_one_before(kit: Kit) -> Any:
    topics = [kit.topic(), kit.topic()]
    for topic in topics:
        kit.fill(topic, 1)
    consumer = kit.consumer()
    consumer.subscribe([topics[0]])
    messages(consumer, 1)
    consumer.subscribe([topics[1]])
    (second,) = messages(consumer, 1)
    until(lambda: consumer.poll(0.1) is None and {one.topic for one in consumer.assignment()} == {topics[1]}, 10)
    return [second.topic() == topics[1], [one.topic == topics[1] for one in consumer.assignment()]]


@case
def a_deleted_topic_leaves_the_assignment(kit: Kit) -> Any:
    topics = [kit.topic(), kit.topic()]
    for topic in topics:
        kit.fill(topic, 1)
    consumer = kit.consumer(topic_metadata_refresh_interval_ms=500)
    consumer.subscribe(topics)
    messages(consumer, 2)
    kit.admin.delete_topics([topics[0]])[topics[0]].result(WAIT_S)
    return until(lambda: (consumer.poll(0.1), len(consumer.assignment()) == 1)[1], 20)


@case
def a_member_that_was_away_is_told(kit: Kit) -> Any:
    topic = kit.topic()
    kit.fill(topic, 1)
    consumer = kit.consumer(max_poll_interval_ms=6000, session_timeout_ms=6000)
    consumer.subscribe([topic])
    messages(consumer, 1)
    time.sleep(8)
    return [plain(one.error()) for one in messages(consumer, 1, 5)]


@case
def a_member_that_was_away_commits(kit: Kit) -> Any:
    topic = kit.topic()
    kit.fill(topic, 1)
    consumer = kit.consumer(max_poll_interval_ms=6000, session_timeout_ms=6000)
    consumer.subscribe([topic])
    messages(consumer, 1)
    time.sleep(8)
    return outcome(lambda: consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False))


@case
def a_subscription_that_is_made_again_without_a_commit(kit: Kit) -> Any:
    topics = [kit.topic(), kit.topic()]
    kit.fill(topics[0], 2)
    consumer = kit.consumer()
    consumer.subscribe([topics[0]])
    first = values(consumer, 2)
    consumer.subscribe(topics)
    return [first, values(consumer, 2, 6)]
