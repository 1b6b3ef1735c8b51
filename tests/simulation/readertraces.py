"""Traces of holes in intents, commit order, time and sinks; see traces.py."""

from __future__ import annotations

from contextlib import suppress

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import CancelIntent, Command, CreateTopic, DeleteTopic, SettleIntent
from sparktxn._engine.format.entry import encode_intent
from sparktxn._engine.state.intents import INTENT_WINDOW
from sparktxn._foundation.values.structs import TransactionStatus
from sparktxn._rows.scan.commitorder import checked_commits
from sparktxn._rows.scan.microbatchcut import CommitCut, commit_cut
from sparktxn.errors import CommandRefused
from sparktxn.maintenance import Sweeper
from sparktxn.store import Store
from tests.producercommands import ProducerCommands
from tests.simulation.scripted import LEFT, RIGHT, SETTINGS, ScriptedWorld, entry_name, plain_offset
from tests.simulation.traces import TRACES, fused, trace_of

__all__ = ["TRACES"]

TOKEN = "ab" * 10

Place = tuple[str, int]


# --- intents --------------------------------------------------------------------------------------------------------


@trace_of(15)
def an_intent_that_two_have_in_hand(stage: ScriptedWorld) -> None:
    """The owner wins with its own list; a winner that had read the intent before must not apply it again."""
    theirs = plain_offset("theirs")
    base = stage.calm.entry
    taken_up: list[Command] = [SettleIntent(f"{TOKEN}-0", base, command_count=1), theirs]
    winner = stage.submits(*taken_up)
    winner.until("put_if_absent", entry_name(base + 1))
    stage.submit(*taken_up)
    with pytest.raises(CommandRefused):
        winner.finish()
    assert stage.times(theirs) == 1, "an intent was applied twice"


@trace_of(15)
def an_intent_that_is_taken_up_after_the_memory_has_ended(stage: ScriptedWorld) -> None:
    """Listed before it was applied, taken up W entries later: its base says that the outcome is unknown by now."""
    theirs = plain_offset("theirs")
    taken_up: list[Command] = [SettleIntent(f"{TOKEN}-0", stage.calm.entry, command_count=1), theirs]
    stage.submit(*taken_up)
    stage.go_on(INTENT_WINDOW + 1)
    with suppress(CommandRefused):
        stage.submit(*taken_up)
    assert stage.times(theirs) == 1, "an intent was applied twice"


@trace_of(16)
def a_refusal_of_an_intent_is_final(stage: ScriptedWorld) -> None:
    """The refusal is in an entry: a writer that takes the intent up later, where the state would allow it, may not."""
    theirs = plain_offset("theirs")
    base = stage.calm.entry
    stage.submit(SettleIntent(f"{TOKEN}-0", base, refused_code=3, reason="unknown topic"))
    with pytest.raises(CommandRefused, match="is settled"):
        stage.submit(SettleIntent(f"{TOKEN}-0", base, command_count=1), theirs)
    assert stage.times(theirs) == 0


@trace_of(17)
def a_cancel_obeys_the_same_window(stage: ScriptedWorld) -> None:
    """W entries after the list was applied no state knows: "cancelled" would be a lie."""
    theirs = plain_offset("theirs")
    base = stage.calm.entry
    stage.submit(SettleIntent(f"{TOKEN}-0", base, command_count=1), theirs)
    with pytest.raises(CommandRefused, match="is settled"):
        stage.submit(CancelIntent(f"{TOKEN}-0", base))
    stage.go_on(INTENT_WINDOW + 1)
    with pytest.raises(CommandRefused, match="has expired"):
        stage.submit(CancelIntent(f"{TOKEN}-0", base))


@trace_of(34)
def a_lone_hot_winner_takes_up_what_waits(stage: ScriptedWorld) -> None:
    """A process that has left an intent and sleeps is served by one that wins entry after entry."""
    theirs = plain_offset("theirs")
    base = stage.calm.entry
    stage.shared.put(names.intent(base, TOKEN), encode_intent(TOKEN, base, [[theirs]]))
    for _ in range(3):
        stage.clock.now_s += 1
        stage.go_on()
    assert stage.times(theirs) == 1, "who waits starves beside a lone winner"
    stage.check_agreement()


# --- micro-batches in commit order ----------------------------------------------------------------------------------


def _cut(
    stage: ScriptedWorld, after_entry: int = 0, floors: dict[Place, int] | None = None, rows_max: int | None = None
) -> CommitCut:
    view = stage.calm.view(None)
    bounds = {key: ((floors or {}).get(key, 0), None) for key in view.partitions}
    return commit_cut(stage.shared, view, checked_commits(view, after_entry, None, bounds), rows_max=rows_max)


def _open(stage: ScriptedWorld, name: str, where: tuple[int, int]) -> ProducerCommands:
    producer = stage.initialise(name)
    stage.submit(producer.append(where, 0, transaction=1))
    return producer


@trace_of(21)
def a_micro_batch_below_the_users_start(stage: ScriptedWorld) -> None:
    """The start lies inside a transaction, and an open one before it: the micro-batch is clamped to the start."""
    _open(stage, "open", LEFT)
    stage.submit(*fused(stage.initialise("job")))
    whole, cut = _cut(stage), _cut(stage, floors={("right", 0): 1})
    assert cut.unread["right", 0] >= 1, "the next micro-batch may begin below the start"
    assert cut.unread["left", 0] == 0
    assert cut.rows == whole.rows - 1, "a record below the start is read"


@trace_of(22)
def a_limit_smaller_than_a_transaction(stage: ScriptedWorld) -> None:
    """It is taken whole, not never."""
    stage.submit(*fused(stage.initialise("job")))
    stage.submit(*fused(stage.initialise("next")))
    found = [_cut(stage, rows_max=1)]
    while (cut := _cut(stage, found[-1].entry, rows_max=1)).rows:
        found.append(cut)
    assert [(cut.rows, cut.transactions) for cut in found] == [(2, 1), (2, 1)]


@trace_of(23)
def a_chain_of_transactions_without_end(stage: ScriptedWorld) -> None:
    """Each is open before the one before it ends, over both partitions: none of them waits for the next."""
    a, b = stage.initialise("a"), stage.initialise("b")
    stage.submit(a.append(LEFT, 0, transaction=1))
    stage.submit(b.append(LEFT, 0, transaction=1), b.append(RIGHT, 0, transaction=1))
    stage.submit(a.append(RIGHT, 0, transaction=1), a.end(1))
    view = stage.calm.view(None)
    assert [view.partitions[name, 0].last_stable_offset for name in ("left", "right")] == [1, 0]
    first = _cut(stage)
    assert (first.rows, first.transactions) == (2, 1), "a transaction that is committed waits for one that is open"
    assert first.unread == {("left", 0): 1, ("right", 0): 0}
    stage.submit(b.end(1))
    second = _cut(stage, first.entry)
    assert (second.rows, second.transactions) == (2, 1)
    assert second.unread == {("left", 0): 4, ("right", 0): 4}


# --- time -----------------------------------------------------------------------------------------------------------


@trace_of(25)
def a_time_later_than_the_newest_entry(stage: ScriptedWorld) -> None:
    """The answer names its entry and its time: the caller sees that it was still open."""
    asked_ms = stage.clock.wall_ms() + 60_000
    first = stage.calm.view(None, timestamp_ms=asked_ms)
    assert first.timestamp_ms < asked_ms, "an answer that is still open does not say so"
    stage.clock.now_s += 30
    stage.go_on()
    assert stage.calm.view(None, timestamp_ms=asked_ms).entry == first.entry + 1
    stage.clock.now_s += 60
    stage.go_on()
    final = stage.calm.view(None, timestamp_ms=asked_ms)
    stage.go_on()
    assert stage.calm.view(None, timestamp_ms=asked_ms) == final


@trace_of(26)
def one_wrong_clock_and_time_outs(stage: ScriptedWorld) -> None:
    """An entry stamped an hour ahead: by entries' time nothing would ever time out again, or everything at once."""
    stage.clock.now_s += 3_600
    stage.go_on()
    stage.clock.now_s -= 3_600
    opened = _open(stage, "open", LEFT)
    with Store.open(stage.uri) as store:
        sweeper = Sweeper(store)
        assert not sweeper.sweep().timed_out
        stage.clock.now_s += 59
        assert not sweeper.sweep().timed_out, "it was aborted before its time"
        stage.clock.now_s += 2
        timed_out = sweeper.sweep().timed_out
    assert [found.transactional_id for found in timed_out] == ["open"], "its time-out has stopped"
    known = stage.calm.transaction("open")
    assert known is not None
    assert known.status is TransactionStatus.COMPLETE_ABORT
    with pytest.raises(CommandRefused, match="timed out"):
        stage.submit(opened.end(1))


# --- micro-batches --------------------------------------------------------------------------------------------------


def _driver(stage: ScriptedWorld) -> tuple[ProducerCommands, int]:
    """A run as a driver begins it, and the number of its next transaction."""
    producer = stage.initialise("sink")
    known = stage.calm.transaction("sink")
    assert known is not None
    return producer, known.transaction + 1


def _batch(stage: ScriptedWorld, batch_id: int, **members: str) -> list[Command]:
    producer, number = _driver(stage)
    return [producer.batch(number, batch_id, **members), producer.end(number)]


@trace_of(27)
def a_run_that_registers_again(stage: ScriptedWorld) -> None:
    """A, B, A: a superseded run does not come back."""
    stage.submit(*_batch(stage, 0, run_id="A"))
    stage.submit(*_batch(stage, 1, run_id="B"))
    with pytest.raises(CommandRefused):
        stage.submit(*_batch(stage, 2, run_id="A"))


@trace_of(28)
def a_batch_that_is_there_with_other_rows(stage: ScriptedWorld) -> None:
    """The same batch id of another run, with another content: an error, no silent loss of rows."""
    stage.submit(*_batch(stage, 0, run_id="A", fingerprint="rows 0 to 1"))
    with pytest.raises(CommandRefused):
        stage.submit(*_batch(stage, 0, run_id="B", fingerprint="rows 0 to 2"))


@trace_of(29)
def batch_ids_that_begin_again_under_another_query(stage: ScriptedWorld) -> None:
    """A new query's batch 0 is not a repetition of the old query's, which is fenced."""
    stage.submit(*_batch(stage, 0, writer_id="old"))
    stage.submit(*_batch(stage, 1, writer_id="old"))
    new = _batch(stage, 0, writer_id="new")
    stage.submit(*new)
    assert stage.times(new[0]) == 1, "a new query's batch was taken for an old one"
    with pytest.raises(CommandRefused):
        stage.submit(*_batch(stage, 2, writer_id="old"))


# --- producers and topics -------------------------------------------------------------------------------------------


@trace_of(30)
def a_batch_of_an_aborted_transaction_again(stage: ScriptedWorld) -> None:
    """Its sequence is remembered, and its records are not there: no success with the old offsets."""
    producer = stage.initialise("job")
    stage.submit(producer.append(LEFT, 0, transaction=1))
    stage.submit(producer.end(1, committed=False))
    again = producer.append(LEFT, 0, transaction=2)
    with pytest.raises(CommandRefused):
        stage.submit(again, producer.end(2))
    assert stage.calm.view(None).partitions["left", 0].log_end_offset == 2


@trace_of(36)
def an_append_for_a_topic_that_was_made_again(stage: ScriptedWorld) -> None:
    """It names the topic's id, and the new one has another."""
    append = stage.initialise("job").append(LEFT, 0, transaction=1)
    writer = stage.submits(append)
    writer.until("put_if_absent", entry_name(stage.calm.entry + 1))
    stage.submit(DeleteTopic("delete", "left", 1))
    stage.submit(CreateTopic("again", "left", 1))
    with pytest.raises(CommandRefused):
        writer.finish()
    assert stage.calm.view(["left"]).partitions["left", 0].log_end_offset == 0
    assert stage.log(SETTINGS).entry == stage.calm.entry
