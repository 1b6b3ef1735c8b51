"""Followers apply what is read of the state, and leave the rest."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import part_of
from sparktxn._engine.format.commands import CreateTopic, DeleteTopic, OffsetCommit, OffsetToCommit
from sparktxn._engine.format.entry import FORMAT_VERSION, LogEntry, encode_entry
from sparktxn._engine.log.follow.checkpointheads import newest_head
from sparktxn._engine.log.follow.tail import Tail
from sparktxn._engine.state.rules import RULES
from sparktxn.errors import DamagedObject
from tests.handlers import handle
from tests.simulation.checkers import digest_of, truth_after

LEFT = (1, 0)


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, int]]:
    """How often each command was applied, by its name and topic id."""
    calls: Counter[tuple[str, int]] = Counter()

    def counting(handler):
        def call(delta, command, context):
            calls[type(command).__name__, getattr(command, "topic_id", 0)] += 1
            return handler(delta, command, context)

        return call

    for kind, rule in RULES.items():
        handle(monkeypatch, kind, counting(rule.handler))
    return calls


def write(client, transactions: range, where: tuple[int, int]) -> None:
    for number in transactions:
        append = client.producer.append(where, number - transactions.start, transaction=number)
        client.submit(append, client.producer.end(number))


def refreshed(client):
    client.log.refresh()
    return client


def segments(client, topic: str) -> int:
    view = client.log.view([topic])
    return len(view.partitions[topic, 0].segments)


def test_a_reader_of_one_topic_does_not_apply_the_entries_of_another(shared, applied) -> None:
    writer, follower = shared.client(), shared.client()
    writer.submit(CreateTopic("other", "other", 1))
    writer.initialise("busy", "init busy")
    write(writer, range(1, 51), (2, 0))
    applied.clear()
    for _ in range(5):
        assert segments(follower, "topic") == 0
    assert applied["Append", 2] == applied["EndTxn", 0] == 0
    assert segments(follower, "other") == 50
    assert applied["Append", 2] == applied["EndTxn", 0] == 50
    assert digest_of(refreshed(follower).log) == digest_of(refreshed(writer).log)


def test_what_is_read_again_and_again_is_applied_at_once(shared) -> None:
    writer, follower = shared.client(), shared.client()
    writer.initialise("busy", "init busy")
    for number in range(1, 20):
        writer.submit(writer.producer.append(LEFT, number - 1, transaction=number), writer.producer.end(number))
        refreshed(follower)
        assert follower.log._follower.tail.parts.has_deferred() == (number == 1)
        assert segments(follower, "topic") == number


def test_a_writer_applies_all_entries_before_it_adds_one(shared, applied) -> None:
    writer, follower = shared.client(), shared.client()
    writer.submit(CreateTopic("other", "other", 1))
    writer.initialise("busy", "init busy")
    follower.initialise("own", "init own")
    write(writer, range(1, 11), (2, 0))
    refreshed(follower)
    assert follower.log._follower.tail.parts.has_deferred()
    applied.clear()
    write(follower, range(1, 2), LEFT)
    assert applied["Append", 2] == 10
    assert not follower.log._follower.tail.parts.has_deferred()


def test_a_writer_never_extends_a_log_that_holds_a_refused_entry(shared) -> None:
    """The entry touches nothing that the writer's list touches: a reader of the other topic goes on, a writer stops."""
    writer, follower = shared.client(), shared.client()
    writer.submit(CreateTopic("other", "other", 1))
    busy = writer.initialise("busy", "init busy")
    follower.initialise("own", "init own")
    refreshed(follower)
    tail = refreshed(writer).log._follower.tail
    unknown = busy.append((2, 7), 0, transaction=1)
    entry = LogEntry(
        format=FORMAT_VERSION,
        entry=tail.entry + 1,
        token="t" * 20,
        previous=tail.checksum,
        timestamp_ms=tail.timestamp_ms,
        commands=(unknown,),
    )
    shared.objects.put(names.entry(entry.entry), encode_entry(entry)[0])
    assert segments(refreshed(follower), "topic") == 0
    with pytest.raises(DamagedObject, match="the state before it refuses a command of it"):
        write(follower, range(1, 2), LEFT)
    assert shared.objects.get(names.entry(entry.entry + 1)) is None


def test_a_checkpoint_holds_what_was_deferred(shared) -> None:
    writer, follower = shared.client(), shared.client()
    writer.initialise("busy", "init busy")
    write(writer, range(1, 11), LEFT)
    refreshed(follower)
    assert follower.log._follower.tail.parts.has_deferred()
    follower.log.checkpoint()
    tail = Tail(shared.objects, None)
    tail.advance()
    truth = truth_after(tail)
    head = newest_head(shared.objects)
    assert head is not None
    assert head.entry == tail.entry
    assert digest_of(shared.client().log) == digest_of(follower.log) == truth.digest


def test_adopting_a_checkpoint_leaves_what_it_holds_unapplied(shared, applied) -> None:
    writer, follower = shared.client(), shared.client(checkpoint_entries=10)
    writer.initialise("busy", "init busy")
    write(writer, range(1, 31), LEFT)
    writer.log.checkpoint()
    writer.submit(writer.producer.append(LEFT, 30, transaction=31), writer.producer.end(31))
    applied.clear()
    refreshed(follower)
    tail = follower.log._follower.tail
    assert tail.checkpoint_entry == tail.entry - 1
    assert len(follower.log.view(["topic"]).partitions["topic", 0].segments) == 1
    assert applied["Append", 1] == 1
    assert digest_of(follower.log) == digest_of(refreshed(writer).log)


def test_a_topic_is_deleted_after_what_was_committed_for_it(shared) -> None:
    """A deferred offset commit has seen the partition, although a writer deletes it afterwards."""
    writer, follower = shared.client(), shared.client()
    requests = count()
    for _ in range(3):
        offsets = (OffsetToCommit(*LEFT, 5),)
        writer.submit(OffsetCommit(f"request {next(requests)}", "group", offsets))
    refreshed(follower)
    assert follower.log._follower.tail.parts.has_deferred()
    follower.submit(DeleteTopic("delete", "topic", 1))
    assert follower.log.committed_offset("group", *LEFT).offset == 5
    assert digest_of(follower.log) == digest_of(refreshed(writer).log)


def test_a_part_that_cannot_be_read_leaves_the_entries_deferred(shared) -> None:
    writer = shared.client()
    writer.initialise("busy", "init busy")
    write(writer, range(1, 3), LEFT)
    writer.log.checkpoint()
    head = newest_head(shared.objects)
    assert head is not None
    part = part_of(("producer", *LEFT, writer.producer.producer_id))
    kept = shared.objects.get(head.parts[part].name)
    for number in (3, 4):
        writer.submit(writer.producer.append(LEFT, number - 1, transaction=number), writer.producer.end(number))
    tail = Tail(shared.objects, head)
    tail.advance()
    shared.objects.delete([head.parts[part].name])
    entry = names.entry(1)
    first = shared.objects.get(entry)
    shared.objects.delete([entry])
    with pytest.raises(DamagedObject):
        tail.parts.get(("partition", *LEFT))
    assert tail.parts.has_deferred()
    shared.objects.put(entry, first)
    shared.objects.put(head.parts[part].name, kept)
    assert tail.parts.get(("partition", *LEFT)).log_end_offset == 8
    assert not tail.parts.has_deferred()


def test_a_deferred_entry_is_not_read_again(shared) -> None:
    writer = shared.client()
    writer.initialise("busy", "init busy")
    write(writer, range(1, 4), LEFT)
    tail = Tail(shared.objects, None)
    tail.advance()
    shared.objects.delete([names.entry(number) for number in range(1, tail.entry + 1)])
    assert len(tail.parts.get(("segments", *LEFT)).segments) == 3
