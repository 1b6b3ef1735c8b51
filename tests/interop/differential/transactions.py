"""Cases of transactional producers."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import TopicPartition

from tests.interop.differential.kit import WAIT_S, Kit, case, messages, outcome, plain, until, values


def watermarks(kit: Kit, topic: str, **settings: Any) -> Any:
    return plain(kit.consumer(**settings).get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S))


@case
def calls_before_init_transactions(kit: Kit) -> Any:
    producer, topic = kit.producer(transactional_id=kit.name), kit.topic()
    return [
        outcome(producer.begin_transaction),
        outcome(lambda: producer.produce(topic, "v")),
        outcome(lambda: producer.commit_transaction(WAIT_S)),
        outcome(lambda: producer.abort_transaction(WAIT_S)),
    ]


@case
def calls_without_a_transaction(kit: Kit) -> Any:
    producer, topic = kit.transactional(), kit.topic()
    metadata = kit.consumer().consumer_group_metadata()
    return [
        outcome(lambda: producer.produce(topic, "v")),
        outcome(lambda: producer.commit_transaction(WAIT_S)),
        outcome(lambda: producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], metadata, WAIT_S)),
    ]


@case
def an_abort_without_a_transaction(kit: Kit) -> Any:
    producer = kit.transactional()
    return outcome(lambda: producer.abort_transaction(WAIT_S))


@case
def two_begins(kit: Kit) -> Any:
    producer = kit.transactional()
    return [outcome(producer.begin_transaction), outcome(producer.begin_transaction)]


@case
def two_inits(kit: Kit) -> Any:
    producer = kit.transactional()
    return outcome(lambda: producer.init_transactions(WAIT_S))


@case
def empty_transactions(kit: Kit) -> Any:
    producer = kit.transactional()
    found = []
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        found.append(outcome(lambda end=end: end(WAIT_S)))
    return found


@case
def what_commits_is_read_with_gaps_for_markers(kit: Kit) -> Any:
    topic = kit.topic()
    producer = kit.commit(topic, "a", "b")
    producer.begin_transaction()
    producer.produce(topic, "c", partition=0)
    producer.commit_transaction(WAIT_S)
    return [values(kit.assigned(topic), 3), watermarks(kit, topic)]


@case
def what_aborts_is_left_out(kit: Kit) -> Any:
    topic = kit.topic()
    producer = kit.commit(topic, "a")
    producer.begin_transaction()
    producer.produce(topic, "b", partition=0)
    producer.flush(WAIT_S)
    producer.abort_transaction(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, "c", partition=0)
    producer.commit_transaction(WAIT_S)
    committed = values(kit.assigned(topic), 2)
    all_of_them = values(kit.assigned(topic, isolation_level="read_uncommitted"), 3)
    return [committed, all_of_them]


@case
def the_end_of_a_partition_after_an_aborted_range(kit: Kit) -> Any:
    topic = kit.topic()
    producer = kit.transactional()
    producer.begin_transaction()
    producer.produce(topic, "b", partition=0)
    producer.flush(WAIT_S)
    producer.abort_transaction(WAIT_S)
    consumer = kit.assigned(topic, enable_partition_eof=True)
    (end,) = messages(consumer, 1)
    return [plain(end.error()), end.offset(), plain(consumer.position([TopicPartition(topic, 0)]))]


@case
def an_open_transaction_stops_readers_of_committed_records(kit: Kit) -> Any:
    topic = kit.topic()
    kit.fill(topic, 1)
    producer = kit.transactional()
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush(WAIT_S)
    kit.fill(topic, 1)
    open_ = [values(kit.assigned(topic), 2, 2), values(kit.assigned(topic, isolation_level="read_uncommitted"), 3)]
    marks = [watermarks(kit, topic), watermarks(kit, topic, isolation_level="read_uncommitted")]
    producer.commit_transaction(WAIT_S)
    return [open_, marks, values(kit.assigned(topic), 3)]


@case
def reports_of_a_transaction(kit: Kit) -> Any:
    topic, producer, reports = kit.topic(), kit.transactional(), []
    producer.begin_transaction()
    producer.produce(
        topic, "v", partition=0, on_delivery=lambda error, one: reports.append([plain(error), one.offset()])
    )
    producer.commit_transaction(WAIT_S)
    return reports


@case
def reports_of_what_an_abort_throws_away(kit: Kit) -> Any:
    topic, producer, reports = kit.topic(), kit.transactional(linger_ms=5000), []
    producer.begin_transaction()
    producer.produce(topic, "v", on_delivery=lambda error, one: reports.append([plain(error), one.offset()]))
    producer.abort_transaction(WAIT_S)
    producer.poll(0)
    return reports


@case
def what_a_purge_leaves_of_a_transaction(kit: Kit) -> Any:
    topic, producer = kit.topic(), kit.transactional(linger_ms=5000)
    producer.begin_transaction()
    producer.produce(topic, "v")
    producer.purge()
    commit = outcome(lambda: producer.commit_transaction(WAIT_S))
    abort = outcome(lambda: producer.abort_transaction(WAIT_S))
    return [commit, abort, outcome(producer.begin_transaction)]


@case
def a_record_for_an_unknown_partition_in_a_transaction(kit: Kit) -> Any:
    topic, producer = kit.topic(), kit.transactional()
    producer.begin_transaction()
    produced = outcome(lambda: producer.produce(topic, "v", partition=9))
    commit = outcome(lambda: producer.commit_transaction(WAIT_S))
    if commit is not None:
        producer.abort_transaction(WAIT_S)
    return [produced, commit]


def fenced(kit: Kit, topic: str) -> Any:
    """A producer in a transaction whose place another one has taken."""
    old = kit.transactional("same")
    old.begin_transaction()
    old.produce(topic, "old", partition=0)
    old.flush(WAIT_S)
    kit.transactional("same")
    return old


@case
def a_fenced_producer_commits(kit: Kit) -> Any:
    old = fenced(kit, kit.topic())
    return [outcome(lambda: old.commit_transaction(WAIT_S)), outcome(lambda: old.abort_transaction(WAIT_S))]


@case
def a_fenced_producer_aborts(kit: Kit) -> Any:
    old = fenced(kit, kit.topic())
    return outcome(lambda: old.abort_transaction(WAIT_S))


@case
def a_fenced_producer_begins(kit: Kit) -> Any:
    old = fenced(kit, kit.topic())
    outcome(lambda: old.commit_transaction(WAIT_S))
    return outcome(old.begin_transaction)


@case
def a_fenced_producer_sends(kit: Kit) -> Any:
    topic, errors, reports = kit.topic(), [], []
    old = kit.transactional("same", error_cb=errors.append)
    old.begin_transaction()
    kit.transactional("same")
    old.produce(topic, "v", partition=0, on_delivery=lambda error, _: reports.append(plain(error)))
    flushed = outcome(lambda: old.flush(WAIT_S))
    until(lambda: old.poll(0.1) or errors or reports, 5)
    commit = outcome(lambda: old.commit_transaction(WAIT_S))
    return [flushed == 0, reports, commit]


@case
def a_fenced_producer_produces_and_flushes(kit: Kit) -> Any:
    topic = kit.topic()
    old = fenced(kit, topic)
    outcome(lambda: old.commit_transaction(WAIT_S))
    return [outcome(lambda: old.produce(topic, "v")), outcome(lambda: old.flush(WAIT_S))]


@case
def a_fenced_producer_commits_nothing(kit: Kit) -> Any:
    old = kit.transactional("same")
    old.begin_transaction()
    kit.transactional("same")
    return outcome(lambda: old.commit_transaction(WAIT_S))


@case
def a_fence_aborts_what_was_open(kit: Kit) -> Any:
    topic = kit.topic()
    fenced(kit, topic)
    kit.fill(topic, 1)
    return values(kit.assigned(topic), 1)


@case
def limits_of_the_time_of_a_transaction(kit: Kit) -> Any:
    found = []
    for milliseconds in (900_000, 900_001):
        producer = kit.producer(transactional_id=f"{kit.name}-{milliseconds}", transaction_timeout_ms=milliseconds)
        found.append(outcome(lambda producer=producer: producer.init_transactions(WAIT_S)))
    return found


@case
def a_transaction_that_takes_too_long(kit: Kit) -> Any:
    topic = kit.topic()
    producer = kit.transactional(transaction_timeout_ms=1500)
    producer.begin_transaction()
    producer.produce(topic, "late", partition=0)
    producer.flush(WAIT_S)
    kit.fill(topic, 1)
    read = values(kit.assigned(topic), 1)
    time.sleep(0.5)
    return [read, outcome(lambda: producer.commit_transaction(WAIT_S)), outcome(producer.begin_transaction)]


@case
def offsets_of_an_aborted_transaction(kit: Kit) -> Any:
    topic, producer, consumer = kit.topic(), kit.transactional(), kit.consumer()
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 3)], consumer.consumer_group_metadata(), WAIT_S)
    producer.abort_transaction(WAIT_S)
    return committed(consumer, topic)


def committed(consumer: Any, topic: str) -> Any:
    return plain(consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S))


@case
def offsets_are_visible_right_after_the_commit(kit: Kit) -> Any:
    topic, producer, consumer = kit.topic(), kit.transactional(), kit.consumer()
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        [TopicPartition(topic, 0, 7, metadata="m")], consumer.consumer_group_metadata(), WAIT_S
    )
    producer.commit_transaction(WAIT_S)
    until(lambda: committed(consumer, topic)[0][1] == 7, 5)
    return committed(consumer, topic)


@case
def wrong_arguments_of_send_offsets(kit: Kit) -> Any:
    producer, metadata = kit.transactional(), kit.consumer().consumer_group_metadata()
    producer.begin_transaction()
    send: Any = producer.send_offsets_to_transaction
    return [
        outcome(lambda: send({}, metadata, WAIT_S)),
        outcome(lambda: send([TopicPartition("t", 0, 1)], "group", WAIT_S)),
        outcome(lambda: send([TopicPartition("t", 0, 1)], None, WAIT_S)),
        outcome(lambda: send(["t"], metadata, WAIT_S)),
        outcome(lambda: send([], metadata, WAIT_S)),
        outcome(lambda: send([TopicPartition("t", 0)], metadata, WAIT_S)),
    ]


@case
def an_open_transaction_holds_offsets(kit: Kit) -> Any:
    topic, producer, consumer = kit.topic(), kit.transactional(), kit.consumer()
    producer.begin_transaction()
    producer.produce(topic, "v", partition=0)
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 3)], consumer.consumer_group_metadata(), WAIT_S)
    producer.flush(WAIT_S)
    pending = outcome(lambda: consumer.committed([TopicPartition(topic, 0)], timeout=1))
    producer.abort_transaction(WAIT_S)
    return [pending, committed(consumer, topic)]


@case
def a_commit_without_time(kit: Kit) -> Any:
    topic, producer = kit.topic(), kit.transactional()
    producer.begin_transaction()
    producer.produce(topic, "v", partition=0)
    return outcome(lambda: producer.commit_transaction(0))


@case
def a_commit_goes_on_after_an_abort(kit: Kit) -> Any:
    topic, producer = kit.topic(), kit.transactional()
    for value, end in (("a", producer.abort_transaction), ("b", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        end(WAIT_S)
    return [value for _, value in values(kit.assigned(topic), 1)]


@case
def one_transaction_in_many_partitions(kit: Kit) -> Any:
    topic, other, producer = kit.topic(3), kit.topic(), kit.transactional()
    producer.begin_transaction()
    for partition in range(3):
        producer.produce(topic, f"p{partition}", partition=partition)
    producer.produce(other, "other", partition=0)
    producer.commit_transaction(WAIT_S)
    return [[values(kit.assigned(topic, partition), 1) for partition in range(3)], values(kit.assigned(other), 1)]


@case
def the_position_after_a_transaction(kit: Kit) -> Any:
    topic = kit.topic()
    kit.commit(topic, "a", "b")
    consumer = kit.assigned(topic, enable_partition_eof=True)
    messages(consumer, 3)
    return plain(consumer.position([TopicPartition(topic, 0)]))


@case
def a_transaction_of_a_closed_producer(kit: Kit) -> Any:
    topic = kit.topic()
    with kit.transactional() as producer:
        producer.begin_transaction()
        producer.produce(topic, "v", partition=0)
        producer.flush(WAIT_S)
    kit.transactional()  # ends what was left open
    kit.fill(topic, 1)
    return values(kit.assigned(topic), 1)


@case
def a_fenced_producer_sends_offsets(kit: Kit) -> Any:
    topic = kit.topic()
    old, consumer = fenced(kit, topic), kit.consumer()
    metadata = consumer.consumer_group_metadata()
    offsets = [TopicPartition(topic, 0, 1)]
    sent = outcome(lambda: old.send_offsets_to_transaction(offsets, metadata, WAIT_S))
    return [sent, outcome(lambda: old.commit_transaction(WAIT_S))]


@case
def records_of_an_open_transaction_without_a_flush(kit: Kit) -> Any:
    topic, producer = kit.topic(), kit.transactional(linger_ms=0)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    found = values(kit.assigned(topic, isolation_level="read_uncommitted"), 1, 3)
    producer.abort_transaction(WAIT_S)
    return found


@case
def a_fence_meets_callbacks(kit: Kit) -> Any:
    """What the callbacks of a producer get when another producer has taken its place."""
    topic, errors, reports = kit.topic(), [], []
    old = kit.transactional("same", error_cb=lambda error: errors.append(plain(error)))
    old.begin_transaction()
    kit.transactional("same")
    old.produce(topic, "v", partition=0, on_delivery=lambda error, _: reports.append(plain(error)))
    flushed = outcome(lambda: old.flush(WAIT_S))
    until(lambda: outcome(lambda: old.poll(0.1)) and errors, 2)
    return [flushed, reports, errors]
