"""The shortest trace of each hole, as a function of a stage: it raises AssertionError if a guarantee breaks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import suppress

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Append, Command, CommandResult, EndTxn, TxnOffsetCommit
from sparktxn._engine.log.follow.confirm import write_horizon
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.readview import ReadView
from sparktxn.errors import CommandRefused, DamagedObject, OutcomeLost, OutcomeUnknown, ViewExpired
from sparktxn.maintenance import vacuum
from sparktxn.store import Store
from sparktxn.testing.faultystore import Fault
from tests.producercommands import ProducerCommands
from tests.simulation.checkers import check_checkpoints
from tests.simulation.director import Act
from tests.simulation.scripted import LEFT, NO_RETENTION, RIGHT, SETTINGS, ScriptedWorld, entry_name, plain_offset
from tests.simulation.truth import ABORTED, digest_of

Trace = Callable[[ScriptedWorld], None]
TRACES: dict[int, list[Trace]] = {}


def trace_of(*holes: int) -> Callable[[Trace], Trace]:
    def add(trace: Trace) -> Trace:
        for hole in holes:
            TRACES.setdefault(hole, []).append(trace)
        return trace

    return add


def fused(
    producer: ProducerCommands, transaction: int = 1, sequence: int = 0
) -> list[Append | EndTxn | TxnOffsetCommit]:
    return [
        producer.append(LEFT, sequence, transaction=transaction),
        producer.append(RIGHT, sequence, transaction=transaction),
        producer.end(transaction),
    ]


# --- the write loop and the horizon ---------------------------------------------------------------------------------


@trace_of(1)
def young_by_time_and_old_by_content(stage: ScriptedWorld) -> None:
    """A5: opened on an old state, paused; the slot is vacuumed; the probe finds it absent just now, and wins it."""
    command = plain_offset("late")
    writer = stage.submits(command)
    writer.until("get", entry_name(stage.calm.entry + 1), times=2)
    stage.go_past()
    stage.check_done_once(writer, command)
    stage.check_agreement()


@trace_of(2)
def paused_between_the_look_and_the_put(stage: ScriptedWorld) -> None:
    """A2: confirmed and fresh, then paused before the put; the put is answered "created"."""
    command = plain_offset("late")
    writer = stage.submits(command)
    slot = stage.calm.entry + 1
    writer.until("put_if_absent", entry_name(slot))
    stage.go_past()
    writer.do()
    assert entry_name(slot) in stage.shared.objects, "the deleted slot was put again"
    stage.check_done_once(writer, command)
    stage.check_agreement()


@trace_of(3)
def won_then_vacuumed_before_the_confirm(stage: ScriptedWorld) -> None:
    """A3: genuinely won; below the horizon by the time of the confirm. It must not be done again."""
    commands = fused(stage.initialise("job"))
    writer = stage.submits(*commands)
    writer.until("put_if_absent", entry_name(stage.calm.entry + 1))
    writer.do()
    stage.go_past()
    stage.check_done_once(writer, commands[0])
    stage.check_agreement()


@trace_of(3)
def what_nobody_can_tell_any_more_is_unknown(stage: ScriptedWorld) -> None:
    """A3, and a newer producer has fenced the writer: it can know neither "done" nor "refused"."""
    commands = fused(stage.initialise("job"))
    writer = stage.submits(*commands)
    writer.until("put_if_absent", entry_name(stage.calm.entry + 1))
    writer.do()
    stage.initialise("job")
    stage.go_past()
    with pytest.raises(OutcomeLost):
        writer.finish()
    assert stage.times(commands[0]) == 1


@trace_of(4)
def a_loss_on_a_slot_that_was_created_again(stage: ScriptedWorld) -> None:
    """E1: W2's win of slot 1 is not heard of; it is vacuumed, and W1's late put creates it again with W1's entry."""
    first, second = plain_offset("first"), plain_offset("second")
    slot = stage.calm.entry + 1
    one, two = stage.submits(first), stage.submits(second)
    one.until("put_if_absent", entry_name(slot))
    one.do(Fault.LATE)
    two.until("put_if_absent", entry_name(slot))
    two.do(Fault.RESPONSE_LOST)
    stage.check_done_once(one, first)
    stage.go_past()
    stage.land()
    assert entry_name(slot) in stage.shared.objects, "the late put has created the slot again"
    stage.check_done_once(two, second)
    stage.check_agreement()


@trace_of(5)
def done_before_by_an_entry_of_its_own_that_is_not_in_the_log(stage: ScriptedWorld) -> None:
    """H1: after "below" it opens again; "already done" must not come from its own entry, put into a deleted slot."""
    command = plain_offset("late")
    writer = stage.submits(command)
    slot = stage.calm.entry + 1
    writer.until("put_if_absent", entry_name(slot))
    stage.go_past()
    writer.do()
    hint = stage.shared.history[names.checkpoint_head(*_oldest_head(stage))]
    stage.shared.put(names.checkpoint_head(*_oldest_head(stage)), hint)
    stage.check_done_once(writer, command)
    stage.check_agreement()


def _oldest_head(stage: ScriptedWorld) -> tuple[int, str]:
    return min(found for name in stage.shared.history if (found := names.parse_checkpoint_head(name)))


def _viewing(act: Act[ReadView]) -> ReadView:
    log = act.open_log(SETTINGS)
    with log.within(1e9):
        return log.view(None)


@trace_of(6)
def a_paused_reader_and_a_slot_that_was_created_again(stage: ScriptedWorld) -> None:
    """C1c: the reader finds the re-created entry after its old state, and would pin a view that never was."""
    command = fused(stage.initialise("job"))
    slot = stage.calm.entry + 1
    reader = stage.act("reader", _viewing)
    reader.until("get", entry_name(slot), times=2)
    writer = stage.submits(*command)
    writer.until("put_if_absent", entry_name(slot))
    stage.go_past()
    writer.do()
    view = reader.finish()
    truths = stage.truths()
    assert view.entry < len(truths), f"the reader pinned entry {view.entry}, which never was"
    assert view.entry >= stage.calm.entry, f"the reader pinned entry {view.entry}, the log is at {stage.calm.entry}"
    assert {key: seen.log_end_offset for key, seen in view.partitions.items()} == {
        key: seen.log_end_offset for key, seen in truths[view.entry].partitions.items()
    }
    stage.check_done_once(writer, command[0])


@trace_of(6)
def a_paused_reader_that_finds_no_news(stage: ScriptedWorld) -> None:
    """C1: 404 without end would be a view that never changes."""
    reader = stage.act("reader", _viewing)
    reader.until("get", entry_name(stage.calm.entry + 1), times=2)
    stage.go_past()
    assert reader.finish().entry == stage.calm.entry


@trace_of(7)
def an_older_horizon_written_last(stage: ScriptedWorld) -> None:
    """B1: a paused vacuum writes its marker after a greater one; the slots in between stay deleted."""
    command = plain_offset("late")
    writer = stage.submits(command)
    writer.until("put_if_absent", entry_name(stage.calm.entry + 1))
    older = stage.calm.entry + 1
    stage.go_past()
    write_horizon(stage.shared, stage.clock, older, [])
    stage.check_done_once(writer, command)
    stage.check_agreement()


@trace_of(8)
def a_predecessor_that_a_duplicate_put_has_created_again(stage: ScriptedWorld) -> None:
    """G1: entry N is there, with the right token, and was deleted all the same: it confirms nothing."""
    first, second = plain_offset("first"), plain_offset("second")
    one = stage.submits(first)
    slot = stage.calm.entry + 1
    one.until("put_if_absent", entry_name(slot))
    one.meet(Fault.COPY_LATER)
    stage.check_done_once(one, first)
    two = stage.submits(second)
    two.until("put_if_absent", entry_name(slot + 1))
    stage.go_past()
    stage.land()
    assert entry_name(slot) in stage.shared.objects, "the duplicate has created the slot again"
    stage.check_done_once(two, second)
    stage.check_agreement()


@trace_of(18)
def a_conflict_that_was_applied(stage: ScriptedWorld) -> None:
    """D1: 409, for a retry below us whose first try had been applied: only the body says who has won."""
    mine = plain_offset("mine")
    writer = stage.submits(mine)
    writer.until("put_if_absent", entry_name(stage.calm.entry + 1))
    writer.meet(Fault.CONFLICT_APPLIED)
    stage.check_done_once(writer, mine)
    stage.check_agreement()


@trace_of(18)
def a_slot_that_somebody_else_has(stage: ScriptedWorld) -> None:
    """The same answer, and the body is another's."""
    mine, theirs = plain_offset("mine"), plain_offset("theirs")
    writer = stage.submits(mine)
    writer.until("put_if_absent", entry_name(stage.calm.entry + 1))
    stage.submit(theirs)
    stage.check_done_once(writer, mine)
    assert stage.times(theirs) == 1
    stage.check_agreement()


def _at_its_deadline(stage: ScriptedWorld, *, lands: bool) -> None:
    mine = plain_offset("mine")

    def program(act: Act[list[CommandResult]]) -> list[CommandResult]:
        log = act.open_log(SETTINGS)
        ticket = log.send([mine])
        try:
            with log.within(0.0):
                ticket.wait()
        except OutcomeUnknown:
            pass
        else:
            raise AssertionError("an unresolved slot was answered")
        with log.within(1e9):
            return ticket.wait()

    writer = stage.act("writer", program)
    slot = entry_name(stage.calm.entry + 1)
    writer.until("put_if_absent", slot)
    writer.do(Fault.LATE)
    if lands:
        writer.until("put_if_absent", slot)
        stage.land()
    stage.check_done_once(writer, mine)
    stage.land()
    assert stage.times(mine) == 1
    stage.check_agreement()


@trace_of(18)
def a_put_that_lands_after_the_deadline(stage: ScriptedWorld) -> None:
    """The deadline passes with the slot unresolved: unknown, never "failed", and never the next slot."""
    _at_its_deadline(stage, lands=True)


@trace_of(18)
def a_put_that_lands_after_its_repetition(stage: ScriptedWorld) -> None:
    """The same bytes under the same number, put again; the late one loses."""
    _at_its_deadline(stage, lands=False)


@trace_of(19)
def more_that_waits_does_not_change_a_body_that_was_sent(stage: ScriptedWorld) -> None:
    """While the slot is unresolved a second list arrives: the slot's bytes stay, the list goes into another entry."""
    first, second = plain_offset("first"), plain_offset("second")

    def program(act: Act[list[CommandResult]]) -> list[CommandResult]:
        log = act.open_log(SETTINGS)
        ticket = log.send([first])
        try:
            with log.within(0.0):
                ticket.wait()
        except OutcomeUnknown:
            with log.within(1e9):
                return log.submit([second]) + ticket.wait()
        raise AssertionError("an unresolved slot was answered")

    writer = stage.act("writer", program)
    slot = entry_name(stage.calm.entry + 1)
    writer.until("put_if_absent", slot)
    writer.do(Fault.LATE)
    writer.until("put_if_absent", slot)
    stage.land()
    writer.finish()
    in_entries = [truth.commands for truth in stage.truths() if first in truth.commands or second in truth.commands]
    assert in_entries == [(first,), (second,)]
    stage.check_agreement()


@trace_of(20)
def a_delayed_commit_and_the_next_transaction(stage: ScriptedWorld) -> None:
    """M2: the commit of transaction 1 is asked for again while transaction 2 is open: it must not settle that one."""
    producer = stage.initialise("job")
    stage.submit(*fused(producer))
    delayed = stage.submits(producer.end(1))
    delayed.until("get", entry_name(stage.calm.entry + 1))
    opened = producer.append(LEFT, 1, transaction=2)
    stage.submit(opened)
    with suppress(CommandRefused):
        delayed.finish()
    assert stage.truths()[-1].fates[opened.segment] == "open", "a delayed commit has settled the next transaction"
    stage.submit(producer.end(2, committed=False))
    assert stage.truths()[-1].fates[opened.segment] == ABORTED


@trace_of(20)
def a_producer_that_wakes_after_it_was_fenced(stage: ScriptedWorld) -> None:
    """M2: its offsets and its commit were on their way; a newer instance has initialised: none of it counts."""
    producer = stage.initialise("job")
    commands: list[Command] = [producer.offset(1, "group", LEFT, 7), producer.end(1)]
    zombie = stage.submits(*commands)
    zombie.until("put_if_absent", entry_name(stage.calm.entry + 1))
    stage.initialise("job")
    with suppress(CommandRefused):
        zombie.finish()
    assert stage.times(commands[1]) == 0, "a fenced producer has committed"
    stage.check_agreement()


@trace_of(31)
def an_entry_that_cannot_be_read(stage: ScriptedWorld) -> None:
    """Neither mine nor a valid entry: an error and a stop, not a loss."""
    mine = plain_offset("mine")
    writer = stage.submits(mine)
    slot = entry_name(stage.calm.entry + 1)
    writer.until("put_if_absent", slot)
    stage.shared.put_if_absent(slot, b'{"format": 1, "nonsense": true}')
    with pytest.raises(DamagedObject):
        writer.finish()
    assert entry_name(stage.calm.entry + 2) not in stage.shared.objects


@trace_of(33)
def a_win_that_was_read_back_is_made_durable_before_it_is_told(stage: ScriptedWorld) -> None:
    """The first attempt may have died before it reached the disk's folder."""
    mine = plain_offset("mine")
    writer = stage.submits(mine)
    slot = entry_name(stage.calm.entry + 1)
    writer.until("put_if_absent", slot)
    writer.meet(Fault.RESPONSE_LOST)
    writer.finish()
    verbs = [operation.verb for operation in writer.operations if operation.name == slot]
    assert verbs[-3:] == ["put_if_absent", "get", "make_durable"], verbs


# --- deleting -------------------------------------------------------------------------------------------------------


def _missing_segments(stage: ScriptedWorld) -> list[str]:
    """Segments that the log names and that are not there, of those that were ever uploaded."""
    log = stage.log(SETTINGS)
    view = log.view(None)
    missing = []
    for (topic, number), partition in view.partitions.items():
        for segment in partition.segments:
            name = names.segment(topic, partition.topic.topic_id, number, segment.name)
            if name in stage.shared.history and name not in stage.shared.objects:
                missing.append(name)
    return missing


def _upload(stage: ScriptedWorld, append: Append, topic: str) -> None:
    stage.shared.put_if_absent(names.segment(topic, append.topic_id, append.partition, append.segment), b"records")


@trace_of(9)
def a_slow_writer_and_the_segment_floor(stage: ScriptedWorld) -> None:
    """M3: uploaded, then paused past every check; the vacuum deletes what no entry names; the put must not name it."""
    producer = stage.initialise("job")
    append = producer.append(LEFT, 0, transaction=1, born=stage.calm.entry)
    _upload(stage, append, "left")
    writer = stage.submits(append, producer.end(1))
    writer.until("put_if_absent", entry_name(stage.calm.entry + 1))
    stage.go_past()
    assert names.segment("left", *LEFT, append.segment) not in stage.shared.objects, "the vacuum left the segment"
    with suppress(CommandRefused, OutcomeLost):
        writer.finish()
    assert not _missing_segments(stage), "the log names segments that were deleted"
    stage.check_agreement()


@trace_of(10)
def a_vacuum_that_loses_its_slot_to_whom_it_has_not_seen(stage: ScriptedWorld) -> None:
    """M3: it must mark from a state that holds its own floor, not from the one that it planned with."""
    producer = stage.initialise("job")
    for _ in range(4):
        stage.checkpoint()
    append = producer.append(LEFT, 0, transaction=1, born=stage.calm.entry)
    _upload(stage, append, "left")
    stage.clock.now_s += 1_000
    cleaner = stage.act("vacuum", _vacuuming)
    cleaner.until("put_if_absent", entry_name(stage.calm.entry + 1))
    stage.submit(append, producer.end(1))
    cleaner.finish()
    assert not _missing_segments(stage), "the log names segments that were deleted"
    stage.check_agreement()


def _vacuuming(act: Act[object]) -> object:
    uri, _ = act.connect(SETTINGS)
    with Store.open(uri) as store:
        return vacuum(store, NO_RETENTION)


@trace_of(10)
def a_vacuum_whose_outcome_is_unknown(stage: ScriptedWorld) -> None:
    """It deletes nothing before it knows that its entry was won: the answer is lost, and the process stops there."""
    for _ in range(4):
        stage.checkpoint()
    before = set(stage.shared.objects)
    cleaner = stage.act("vacuum", _vacuuming)
    cleaner.until("put_if_absent", entry_name(stage.calm.entry + 1))
    cleaner.do(Fault.DIE_AFTER)
    assert before <= set(stage.shared.objects), "it has deleted before it knew"
    stage.check_agreement()


@trace_of(33)
def a_marker_is_durable_before_the_first_delete(stage: ScriptedWorld) -> None:
    """What is deleted stays deleted after a power cut; the marker that says so must too."""
    for _ in range(4):
        stage.checkpoint()
    cleaner = stage.act("vacuum", _vacuuming)
    cleaner.until("put_if_absent", names.HORIZONS)
    cleaner.meet(Fault.RESPONSE_LOST)
    cleaner.finish()
    markers = [
        index
        for index, operation in enumerate(cleaner.operations)
        if operation.verb == "make_durable" and operation.name.startswith(names.HORIZONS)
    ]
    deletes = [
        index
        for index, operation in enumerate(cleaner.operations)
        if operation.verb == "delete" and not operation.name.startswith("_log/_clock/")
    ]
    assert markers, "the marker was never made durable"
    assert markers[0] < deletes[0], "deleted before the marker was durable"


def _checkpointing(act: Act[Log]) -> Log:
    log = act.open_log(SETTINGS)
    log.checkpoint()
    return log


@trace_of(11)
def two_checkpointers_seal_other_ranges_from_one_offset(stage: ScriptedWorld) -> None:
    """M4: A seals (1, 2) and pauses; B seals (1, 2, 3). Each checkpoint must show all, once."""
    producer = stage.initialise("job")
    for number in (1, 2):
        stage.submit(*fused(producer, number, number - 1))
    slow = stage.act("A", _checkpointing)
    slow.until("put_if_absent", "topics/")
    stage.submit(*fused(producer, 3, 2))
    stage.act("B", _checkpointing).finish()
    slow.finish()
    check_checkpoints(stage.shared, stage.truths())
    stage.check_agreement()


@trace_of(12)
def a_checkpoint_that_cannot_be_read_is_no_horizon(stage: ScriptedWorld) -> None:
    """M4: the vacuum relies on nothing that it has not read: else the entries are gone, and so is the state."""
    stage.submit(plain_offset("kept"))
    stage.checkpoint()
    # The part is named again by the later checkpoints, for it does not change any more.
    for name, data in list(stage.shared.objects.items()):
        if name.startswith(names.CHECKPOINTS) and b'"kept"' in data and b'"offset"' in data:
            stage.shared.put(name, b"[]")
    stage.checkpoint()
    stage.checkpoint()
    with suppress(DamagedObject):
        stage.vacuum()
    try:
        found = stage.log(SETTINGS).committed_offset("kept", *LEFT)
    except DamagedObject as lost:
        raise AssertionError(f"the store is lost: {lost}") from lost
    assert found is not None, "the store has lost what was acknowledged"


@trace_of(13)
def a_checkpoint_that_is_published_behind_a_vacuum(stage: ScriptedWorld) -> None:
    """M4: its older parts were just deleted; no process relies on it, and the store works on."""
    slow = stage.act("slow", _checkpointing)
    slow.until("put_if_absent", names.CHECKPOINTS)
    stage.go_past()
    slow.finish()
    stage.check_agreement()
    stage.go_past()
    stage.check_agreement()


@trace_of(14)
def sealing_changes_nothing_that_validation_asks(stage: ScriptedWorld) -> None:
    """M7: processes that have sealed, opened from a checkpoint, or only followed answer alike."""
    follower = stage.log(SETTINGS)
    producer = stage.initialise("job")
    for number in (1, 2, 3):
        stage.submit(*fused(producer, number, number - 1))
        stage.checkpoint()
    repeated = producer.append(LEFT, 2, transaction=3)
    opened = stage.log(SETTINGS)
    follower.refresh()
    told = [log.submit([repeated]) for log in (stage.calm, follower, opened)]
    assert told[0] == told[1] == told[2]
    assert digest_of(follower) == digest_of(opened) == digest_of(stage.calm)
    stage.check_agreement(follower, opened)


@trace_of(32)
def a_view_whose_segments_are_gone_has_expired(stage: ScriptedWorld) -> None:
    """A reader distinguishes "the vacuum has passed this view" from "the store is damaged" by the horizon."""
    entry = stage.calm.entry
    stage.go_past()
    with pytest.raises(ViewExpired):
        stage.calm.view(None, entry=entry)


@trace_of(35)
def the_winner_that_owed_a_checkpoint_dies(stage: ScriptedWorld) -> None:
    """Any winner more than K behind makes it, a little later."""
    every = dataclasses.replace(SETTINGS, checkpoint_entries=4)

    def program(act: Act[int]) -> int:
        log = act.open_log(every)
        for number in range(8):
            log.submit([plain_offset(f"{act.name} {number}")])
        return log.entry

    dying = stage.act("dying", program)
    dying.until("put_if_absent", names.CHECKPOINTS)
    dying.do(Fault.DIE_BEFORE)
    assert dying.is_over()
    stage.act("other", program).finish()
    assert any(names.parse_checkpoint_head(name) for name in stage.shared.objects), "nobody has made a checkpoint"
