"""Checkpoints: written from confirmed states, read back whole, damaged ones skipped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparktxn._engine.format import checkpoint, names
from sparktxn._engine.format.commands import CreateTopic, DeleteRecords, InitProducerId
from sparktxn._engine.format.entry import seal_document
from sparktxn._engine.log.follow.checkpointheads import newest_head
from sparktxn._engine.log.follow.tail import Tail
from sparktxn._engine.log.keep import checkpointer
from sparktxn._foundation.values.structs import PartitionSegments
from sparktxn.errors import DamagedObject, OutcomeUnknown
from sparktxn.testing.faultystore import Fault
from tests.simulation.checkers import digest_of, truth_after
from tests.simulation.history import observe

LEFT, RIGHT = (1, 0), (1, 1)


def heads(shared) -> list[int]:
    found = (names.parse_checkpoint_head(name) for name in shared.objects.list_names(names.CHECKPOINTS))
    return sorted(head[0] for head in found if head is not None)


def write(client, transactions: range) -> None:
    for number in transactions:
        commands = client.fused(number, number - 1)
        commands[-1] = client.producer.end(number, committed=number % 4 != 0)
        client.submit(*commands)


def check_against_replay(shared, log) -> None:
    tail = Tail(shared.objects, None)
    tail.advance()
    truth = truth_after(tail)
    log.refresh()
    assert digest_of(log) == truth.digest
    assert observe(shared.objects, log.view(None).partitions) == truth.partitions


@pytest.mark.kafka("K80", "K88", "K94")
@pytest.mark.parametrize("runs", [1, 5, 40])
def test_sealed_and_merged_runs_show_what_a_replay_of_all_entries_shows(shared, runs: int) -> None:
    writer = shared.client(checkpoint_entries=4)
    writer.initialise("job", "init")
    write(writer, range(1, 4 * runs))
    check_against_replay(shared, writer.log)
    fresh = shared.client()
    check_against_replay(shared, fresh.log)
    view = fresh.log.view(["topic"]).partitions["topic", 0]
    assert len(view.sealed) + len(view.segments) < 25


def test_hole_35_any_winner_makes_the_checkpoint_that_a_dead_one_owed(shared) -> None:
    dead, other = shared.client(checkpoint_entries=2), shared.client(checkpoint_entries=2)
    dead.fate = lambda operation: Fault.REFUSED if "_checkpoints/" in operation.name else Fault.NONE
    for number in range(3):
        dead.submit(InitProducerId(f"{number}", f"job-{number}"))
    assert heads(shared) == []
    other.submit(InitProducerId("other", "other"))
    assert heads(shared) == [other.log.entry]


def test_hole_11_two_processes_seal_the_same_segments_under_names_of_their_own(shared) -> None:
    first = shared.client()
    first.initialise("job", "init")
    write(first, range(1, 4))
    second = shared.client()
    first.log.checkpoint()
    second.log.checkpoint()
    write(first, range(4, 6))
    for client in (first, second):
        client.log.checkpoint()
        check_against_replay(shared, client.log)
    shared.objects.delete([names.LAST_CHECKPOINT])
    check_against_replay(shared, shared.client().log)


@pytest.mark.kafka("K53", "K88", "K89")
@pytest.mark.parametrize("damage", ["head", "part", "missing part"])
def test_a_damaged_checkpoint_is_skipped(shared, client, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    client.initialise("job", "init")
    write(client, range(1, 3))
    client.log.checkpoint()
    older = heads(shared)[0]
    write(client, range(3, 6))
    client.log.checkpoint()
    newest = f"{names.CHECKPOINTS}{client.log.entry:020d}-"
    for info in shared.objects.list(newest):
        if damage == "head" and info.name.endswith(".json") and info.name.count("/") == 2:
            shared.objects.put(info.name, b"{}")
        elif damage == "part" and info.name.count("/") == 3:
            shared.objects.put(info.name, b"[]")
        elif damage == "missing part" and info.name.count("/") == 3:
            shared.objects.delete([info.name])
    fresh = shared.client()
    check_against_replay(shared, fresh.log)
    assert "checkpoint" in caplog.text
    assert older < fresh.log.entry


def test_a_stale_hint_is_followed_by_the_log(shared, client) -> None:
    client.log.checkpoint()
    hint = shared.objects.get(names.LAST_CHECKPOINT)
    client.submit(CreateTopic("b", "new", 1))
    client.log.checkpoint()
    shared.objects.put(names.LAST_CHECKPOINT, hint)
    assert shared.client().log.topic("new") is not None


@pytest.mark.parametrize(
    "hint", [b"", b"{", b'{"entry":99,"checkpoint":"' + b"0" * 20 + b'"}', b'{"entry":-1,"checkpoint":"../x"}']
)
def test_a_hint_that_points_nowhere_is_ignored(shared, client, hint: bytes) -> None:
    client.log.checkpoint()
    shared.objects.put(names.LAST_CHECKPOINT, hint or b" ")
    assert shared.client().log.topic("topic") is not None


def test_a_log_start_that_moves_while_a_checkpoint_is_written_is_kept(shared, client) -> None:
    client.initialise("job", "init")
    write(client, range(1, 4))
    client.log.checkpoint()
    client.submit(DeleteRecords("d", *LEFT, 3))
    client.log.checkpoint()
    for log in (client.log, shared.client().log):
        view = log.view(["topic"]).partitions["topic", 0]
        assert (view.log_start_offset, view.log_end_offset) == (3, 6)


@pytest.mark.kafka("K81")
def test_a_damaged_manifest_is_not_merged_into_a_longer_run(shared) -> None:
    writer = shared.client(checkpoint_entries=1_000)
    writer.initialise("job", "init")
    for run in range(15):
        write(writer, range(2 * run + 1, 2 * run + 3))
        writer.log.checkpoint()
    manifests = [info.name for info in shared.objects.list("topics/") if info.name.endswith("/manifest")]
    first, second = sorted(manifests)[:2]
    data = shared.objects.get(second)
    assert data is not None
    shared.objects.put(first, data)
    write(writer, range(31, 33))
    with pytest.raises(DamagedObject, match="checksum"):
        writer.log.checkpoint()


# Processes that take over what others have sealed.


def places(client) -> PartitionSegments:
    """What the process holds of a partition, as it is."""
    return client.log._follower.tail.parts.get(("segments", *LEFT))


@pytest.mark.parametrize("refreshed_every", [1, 7, 100])
def test_a_process_that_only_reads_holds_no_more_as_the_log_grows(shared, refreshed_every: int) -> None:
    writer, reader = shared.client(checkpoint_entries=8), shared.client(checkpoint_entries=8)
    written = [operation for operation in reader.objects.operations if operation.verb.startswith("put")]
    writer.initialise("job", "init")
    for number in range(1, 301):
        write(writer, range(number, number + 1))
        if number % refreshed_every == 0:
            reader.log.refresh()
            assert len(places(reader).segments) <= 8 + 8 // 2 + 8 // 2 + refreshed_every
    check_against_replay(shared, reader.log)
    assert places(reader).sealed
    assert [operation for operation in reader.objects.operations if operation.verb.startswith("put")] == written


def test_a_reader_adopts_by_a_listing_where_the_hint_is_old(shared) -> None:
    writer, reader = shared.client(checkpoint_entries=8), shared.client(checkpoint_entries=8)
    writer.initialise("job", "init")
    write(writer, range(1, 11))
    hint = shared.objects.get(names.LAST_CHECKPOINT)
    write(writer, range(11, 31))
    shared.objects.put(names.LAST_CHECKPOINT, hint)
    reader.log.refresh()
    assert reader.log._follower.tail.checkpoint_entry == heads(shared)[-1]
    check_against_replay(shared, reader.log)


def test_a_reader_whose_records_are_deleted_adopts_what_is_left(shared) -> None:
    """Runs and ranges below the log start are not named again by an adopted checkpoint that is older."""
    writer, reader = shared.client(checkpoint_entries=1_000), shared.client(checkpoint_entries=8)
    writer.initialise("job", "init")
    write(writer, range(1, 20))
    writer.log.checkpoint()
    end = writer.log.view(["topic"]).partitions["topic", 0].log_end_offset
    writer.submit(DeleteRecords("d", *LEFT, end - 4))
    write(writer, range(20, 24))
    reader.log.refresh()
    assert reader.log._follower.tail.checkpoint_entry == heads(shared)[0]
    assert digest_of(reader.log) == digest_of(writer.log)
    located = places(reader)
    assert all(run.end_offset > end - 4 for run in located.sealed)
    assert all(aborted.last_offset >= end - 4 for aborted in located.aborted)


@pytest.mark.parametrize("adopted", [True, False], ids=["adopted", "its own"])
def test_an_entry_in_flight_does_not_bring_back_the_names_of_an_older_checkpoint(shared, adopted: bool) -> None:
    """Its changes were computed before the state took its names from a newer checkpoint."""
    client, other = shared.client(checkpoint_entries=1_000), shared.client(checkpoint_entries=1_000)
    client.initialise("job", "init")
    write(client, range(1, 4))
    client.fate = lambda operation: Fault.REFUSED if operation.verb == "put_if_absent" else Fault.NONE
    ticket = client.log.send(client.fused(4, 3))
    with pytest.raises(OutcomeUnknown), client.log.within(0.02):
        ticket.wait()
    client.fate = lambda operation: Fault.NONE
    if adopted:
        other.log.refresh()
        other.log.checkpoint()
        assert client.log._checkpointer._adopt(newest_head(shared.objects))
    else:
        client.log.checkpoint()
    assert ticket.wait()
    located = places(client)
    assert len(located.sealed) == 1
    assert [segment.entry for segment in located.segments] == [client.log.entry]
    check_against_replay(shared, client.log)


def test_names_of_a_part_that_was_rebuilt_are_those_of_the_older_checkpoint(shared) -> None:
    """The next checkpoint says so, and writes the part anew instead of naming the damaged object again."""
    client = shared.client()
    client.initialise("job", "init")
    write(client, range(1, 4))
    first = client.log.checkpoint()
    client.submit(InitProducerId("other", "other"))
    write(client, range(4, 5))
    second = client.log.checkpoint()
    head = newest_head(shared.objects)
    assert head is not None
    damaged = next(ref.name for part, ref in head.parts.items() if part.startswith("segments/"))
    shared.objects.put(damaged, b"[]")
    late = shared.client()
    assert late.log._follower.tail.parts.base == second
    check_against_replay(shared, late.log)
    assert late.log._follower.tail.parts.base == first
    late.submit(InitProducerId("third", "third"))
    late.log.checkpoint()
    newest = newest_head(shared.objects)
    assert newest is not None
    assert newest.base == first
    assert damaged not in {ref.name for ref in newest.parts.values()}
    check_against_replay(shared, shared.client().log)


def _climbing(document: dict[str, Any]) -> None:
    for ref in document["parts"].values():
        ref[0] = "../" + ref[0]


def _untyped(document: dict[str, Any]) -> None:
    for ref in document["parts"].values():
        ref[1] = "many"


def _other_digest(document: dict[str, Any]) -> None:
    document["digest"] = "0" * 64


@pytest.mark.parametrize("spoil", [_climbing, _untyped, _other_digest])
def test_what_a_log_was_opened_with_is_checked_before_a_checkpoint_takes_it_over(shared, spoil) -> None:
    """A log is opened before all that a head names is checked. What is wrong in it is read from elsewhere."""
    client = shared.client()
    client.initialise("job", "init")
    write(client, range(1, 4))
    first = client.log.checkpoint()
    client.submit(InitProducerId("other", "other"))
    write(client, range(4, 5))
    client.log.checkpoint()
    spoiled = newest_head(shared.objects)
    assert spoiled is not None
    name = names.checkpoint_head(spoiled.entry, spoiled.checkpoint)
    document = json.loads(shared.objects.get(name))
    del document["checksum"]
    spoil(document)
    shared.objects.put(name, seal_document(json.dumps(document, separators=(",", ":")).encode())[0])
    reader = shared.client()
    assert reader.log.checkpoint_entry == spoiled.entry
    check_against_replay(shared, reader.log)
    writer = shared.client()
    writer.submit(InitProducerId("third", "third"))
    writer.log.checkpoint()
    newest = newest_head(shared.objects)
    assert newest is not None
    assert (newest.entry, newest.base) == (writer.log.entry, first)
    assert newest.parts.keys() >= spoiled.parts.keys()
    check_against_replay(shared, writer.log)
    check_against_replay(shared, shared.client().log)
    # A process that looks for the next checkpoint lets go of the one that is wrong.
    reader.log._checkpointer._adopt(newest)
    assert reader.log.checkpoint_entry == newest.entry
    check_against_replay(shared, reader.log)


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.RESPONSE_LOST])
def test_a_hint_that_the_store_refuses_is_left_to_the_next_checkpoint(shared, client, fault: Fault) -> None:
    def puts_of_checkpoint() -> list[str]:
        """What a checkpoint writes after another one, and one entry more."""
        client.initialise("job", f"init-{len(client.objects.operations)}")
        begun = len(client.objects.operations)
        entry = client.log.checkpoint()
        found = newest_head(shared.objects)
        assert found is not None
        assert found.entry == entry
        return [operation.verb for operation in client.objects.operations[begun:] if "put" in operation.verb]

    client.initialise("job", "init")
    write(client, range(1, 4))
    client.log.checkpoint()
    as_ever = puts_of_checkpoint()
    assert as_ever.count("put") == 1
    client.fail_next("put", fault, part_of_name=names.LAST_CHECKPOINT)
    assert puts_of_checkpoint() == as_ever, "the hint is not put again"
    assert puts_of_checkpoint() == as_ever, "only what has changed since is written"
    check_against_replay(shared, shared.client().log)


def test_a_store_that_does_not_answer_is_asked_again_after_a_pause(shared, client) -> None:
    before_s = shared.clock.monotonic_s()
    client.fail_next("put_if_absent", Fault.LATE, part_of_name=names.CHECKPOINTS)
    assert client.log.checkpoint() == 1
    assert shared.clock.monotonic_s() > before_s


def test_an_opening_asks_for_few_entries_at_once_however_rare_checkpoints_are(shared, client) -> None:
    client.initialise("tx", "init")
    for number in range(150):
        client.submit(*client.fused(number + 1, number))
    shared.objects.probe_is_cheap = False  # as on S3, where each request is paid for
    opened = shared.client(checkpoint_entries=100_000)
    assert opened.log.entry == client.log.entry
    asked = {step.name for step in opened.objects.operations}
    assert names.entry(client.log.entry + 1) in asked
    assert names.entry(client.log.entry + 66) not in asked


def test_heads_take_no_more_bytes_than_a_few_times_those_of_the_entries(shared, monkeypatch) -> None:
    """A head names every part of the state: with many parts it is written more rarely than its entries are counted."""
    monkeypatch.setattr(checkpointer, "_HEAD_BYTES_FREE", 0)
    monkeypatch.setattr(checkpoint, "PACKED_PARTS_MIN", 1)
    writer = shared.client(checkpoint_entries=4)
    writer.submit(*(CreateTopic(f"create {number}", f"topic-{number}", 1) for number in range(100)))
    for number in range(200):
        writer.submit(InitProducerId(f"{number}", f"job-{number % 3}"))
    sizes = {info.name: info.size_bytes for info in shared.objects.list("_log/")}
    entries = sum(size for name, size in sizes.items() if names.parse_entry(name))
    written = [size for name, size in sizes.items() if names.parse_checkpoint_head(name)]
    assert len(written) >= 2
    assert sum(written[1:]) <= 2.5 * entries
    assert heads(shared)[-1] < writer.log.entry - 8, "no head is written each four entries"
