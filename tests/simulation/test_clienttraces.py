"""The traces of clients that do not wait hold, and each fails in a build without the rule that closes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparktxn._engine.format import checkpoint, entry
from sparktxn._engine.format.commands import CommandResult
from sparktxn._engine.format.entry import encode_list
from sparktxn._engine.log.follow import follower, tail
from sparktxn._engine.log.write import committer, queue, storeclock, transactiontimeouts
from sparktxn._engine.log.write.queue import CheckedList, Ticket
from sparktxn._engine.state import machine
from sparktxn._engine.state.delta import Refusal
from sparktxn._engine.state.groups import groups
from sparktxn._engine.state.transactions import partitions, sinks
from sparktxn._engine.state.transactions.producerfencing import next_sequence
from sparktxn._foundation.values.structs import PendingOffsets
from sparktxn._rows.stage.batchcommits import BatchCommits
from sparktxn.consumer import client as consumer_client
from sparktxn.errors import DamagedObject, ErrorCode
from sparktxn.producer import transactionerrors
from sparktxn.producer.currenttransaction import CurrentTransaction
from sparktxn.producer.transactionerrors import FAILURES, Failure, TransactionOperation
from tests.simulation import clienttraces as traces
from tests.simulation.scenarios import simulate
from tests.simulation.scripted import ScriptedWorld

pytestmark = pytest.mark.simulation

Patch = pytest.MonkeyPatch


def without_checked_lists(patch: Patch) -> None:
    """What can be encoded is queued, whether a reader takes it or not."""
    patch.setattr(committer, "checked_list", lambda commands: CheckedList(tuple(commands), encode_list(commands)))


def without_compared_batches(patch: Patch) -> None:
    """A handle forgets what is unknown, and a batch with the number and sequences of a stored one is a repetition."""

    kept = []
    submit = BatchCommits._submit

    def forget(self: Any, writer: Any, staged: Any, printed: Any, state: Any, contents: Any) -> None:
        transactions = writer.transactions
        for segment in staged:  # what follows is taken from the log, as of the last refresh
            where = (segment.topic_id, segment.partition)
            known = self.log.producer(*where, state.producer_id)
            is_own = known is not None and known.producer_epoch == state.producer_epoch
            transactions._sequences[where] = next_sequence(known.last_sequence, 1) if is_own else 0
        transactions.withdraw = lambda: False
        try:
            submit(self, writer, staged, printed, state, contents)
        finally:
            kept.append(transactions._under_way)
            transactions._under_way = None

    def not_repeated(stored: Any, command: Any) -> Refusal | None:
        another = stored.transaction != command.transaction
        return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "another transaction") if another else None

    patch.setattr(BatchCommits, "_submit", forget)
    patch.setattr(partitions, "_not_repeated", not_repeated)
    patch.setattr(machine, "_is_repetition", lambda list_, results: True)
    patch.setattr(sinks, "_after_the_end", lambda transaction, command: CommandResult(duplicate=True))


def without_a_checked_end(patch: Patch) -> None:
    """The first entry that is absent is the log's end."""
    patch.setattr(follower, "check_end", lambda objects, tail: None)


def without_a_word_for_newer(patch: Patch) -> None:
    """What cannot be decoded is damaged."""
    patch.setattr(
        entry, "undecodable", lambda data, name, expected, noun, error: DamagedObject(name, f"it is not {noun}")
    )


def without_reader_features(patch: Patch) -> None:
    """A process reads what it was made for, whatever the store requires."""
    for module in (entry, checkpoint):
        patch.setattr(module, "check_features", lambda required, known, name, use: None)


def without_writer_features(patch: Patch) -> None:
    """A process that can read the store writes it."""
    patch.setattr(tail, "check_features", lambda required, known, name, use: None)


def without_fatal_fences(patch: Patch) -> None:
    """A fence that a flush meets asks for an abort, as in Kafka's Java client."""
    fenced = {
        code: Failure.ABORT
        for code, failure in FAILURES[TransactionOperation.PUBLISH].items()
        if failure is Failure.FENCED
    }
    patch.setattr(
        transactionerrors,
        "FAILURES",
        {**FAILURES, TransactionOperation.PUBLISH: {**FAILURES[TransactionOperation.PUBLISH], **fenced}},
    )


def without_compared_clocks(patch: Patch) -> None:
    patch.setattr(storeclock.ClockCheck, "check", lambda self: None)


def without_counted_losses(patch: Patch) -> None:
    """A transaction commits what is left of it."""
    patch.setattr(CurrentTransaction, "_check_whole", lambda self: None)


def without_letting_go(patch: Patch) -> None:
    """What a caller has stopped waiting for stays in the queue, and is put by the next call of any client."""
    patch.setattr(Ticket, "let_go", lambda self: False)
    patch.delattr(Ticket, "__del__")


def without_owners_of_offsets(patch: Patch) -> None:
    """A group's offsets are committed although another consumer has moved them meanwhile."""
    patch.setattr(groups, "_check_owner", lambda delta, command, producer_id: None)


def without_fenced_members(patch: Patch) -> None:
    """A consumer commits for partitions that the group has given to another one."""
    note = groups.note_sign_of_life
    patch.setattr(groups, "check_member", lambda delta, command, code: None)
    patch.setattr(
        groups,
        "note_sign_of_life",
        lambda delta, command, context: (
            note(delta, command, context) if delta.get(("member", command.group_id, command.member_id)) else None
        ),
    )


def without_time_outs_for_groups(patch: Patch) -> None:
    """Only a transaction that holds up a partition's readers is looked at."""
    held_by = transactiontimeouts._held_by
    patch.setattr(
        transactiontimeouts, "_held_by", lambda record: () if isinstance(record, PendingOffsets) else held_by(record)
    )


def without_a_way_back(patch: Patch) -> None:
    """A consumer stays where the failed block has left it."""
    patch.setattr(consumer_client, "rewind", lambda assignment, reading, began: None)


def without_counted_bytes(patch: Patch) -> None:
    """All lists that wait go into the next entry."""
    patch.setattr(queue, "LISTS_BYTES_MAX", 2**40)


Build = Callable[[Patch], None]
BUILDS: list[tuple[Build, traces.ClientTrace]] = [
    (without_checked_lists, traces.a_list_that_no_entry_can_hold),
    (without_compared_batches, traces.other_rows_after_an_unknown_commit),
    (without_letting_go, traces.an_offset_commit_that_was_reported_as_failed),
    (without_letting_go, traces.an_init_that_was_given_up),
    (without_letting_go, traces.a_commit_that_was_given_up),
    (without_owners_of_offsets, traces.two_instances_of_one_service),
    (without_time_outs_for_groups, traces.the_offsets_of_a_dead_producer),
    (without_a_way_back, traces.a_block_that_fails),
    (without_a_checked_end, traces.an_entry_that_is_lost),
    (without_a_word_for_newer, traces.an_entry_of_a_newer_version),
    (without_reader_features, traces.a_feature_that_readers_must_know),
    (without_writer_features, traces.a_feature_that_writers_must_know),
    (without_compared_clocks, traces.a_clock_that_is_far_off),
    (without_fatal_fences, traces.a_fence_that_a_flush_meets),
    (without_counted_losses, traces.records_that_were_purged),
    (without_counted_bytes, traces.many_large_lists),
]
FOUND: list[tuple[Build, str, int]] = [
    (without_checked_lists, "abandoned", 0),
    (without_compared_batches, "abandoned", 106),
    (without_letting_go, "abandoned", 0),
    (without_fenced_members, "shared", 0),
    (without_time_outs_for_groups, "shared", 11),
]
"""A build, the scenario that finds it, and the seed from which that is looked for."""
_SEEDS = 150


@pytest.mark.parametrize("trace", dict.fromkeys(trace for _, trace in BUILDS), ids=lambda trace: trace.__name__)
def test_the_trace_holds(stage: ScriptedWorld, trace: traces.ClientTrace) -> None:
    trace(stage)


@pytest.mark.parametrize(
    ("without", "trace"), [pytest.param(*build, id=f"{build[0].__name__}-{build[1].__name__}") for build in BUILDS]
)
def test_a_build_without_the_rule_breaks_its_trace(
    monkeypatch: Patch, stage: ScriptedWorld, without: Build, trace: traces.ClientTrace
) -> None:
    without(monkeypatch)
    with pytest.raises((AssertionError, DamagedObject)):
        trace(stage)


@pytest.mark.parametrize(
    ("without", "scenario", "seed"), [pytest.param(*found, id=f"{found[0].__name__}-{found[1]}") for found in FOUND]
)
def test_the_simulator_finds_a_build_without_the_rule(
    monkeypatch: Patch, without: Build, scenario: str, seed: int
) -> None:
    without(monkeypatch)
    for tried in range(seed, seed + _SEEDS):
        try:
            simulate(tried, scenario, traced=False)
        except Exception:
            return
    raise AssertionError(f"{_SEEDS} histories of {scenario} have not found it")
