"""For each rule that closes a hole, a build without it: its trace must then break a guarantee.

A trace that no mutant fails would show nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import EndTxn
from sparktxn._engine.format.entry import encode_entry
from sparktxn._engine.log.follow import confirm, follower
from sparktxn._engine.log.keep.replay import Replay
from sparktxn._engine.log.write.slotrace import Slot
from sparktxn._engine.objectstore.contract import PutOutcome
from sparktxn._engine.state import coordinator
from sparktxn._engine.state import intents as state_intents
from sparktxn._engine.state.groups import groups
from sparktxn._engine.state.rules import RULES
from sparktxn._engine.state.transactions import partitions, transactions
from sparktxn._rows.scan import microbatchcut
from tests.handlers import handle
from tests.simulation import readertraces, rewritetraces, traces
from tests.simulation.scripted import ScriptedWorld

pytestmark = pytest.mark.simulation

Patch = pytest.MonkeyPatch


def without_token_read_back(patch: Patch) -> None:
    """ "It exists" is taken for "it is mine"."""

    def put(self: Any, flight: Any) -> Any:
        self._objects.put_if_absent(names.entry(flight.entry.entry), flight.data)
        return flight

    patch.setattr(Slot, "_put_until_resolved", put)


def without_confirming(patch: Patch) -> None:
    patch.setattr(follower, "judge", lambda objects, premise: None)
    patch.setattr(follower, "confirm", confirm.attempt)


def without_the_greatest_horizon(patch: Patch) -> None:
    """The marker that was written last counts."""

    def newest(objects: Any) -> int:
        found = [
            number for name in objects.list_names(names.HORIZONS) if (number := names.parse_horizon(name)) is not None
        ]
        return found[-1] if found else 1

    patch.setattr(confirm, "read_horizon", newest)


def without_staying_at_an_unresolved_slot(patch: Patch) -> None:
    """A put whose answer was lost, and that a poll does not find, is given up: the next slot is tried."""

    def put(self: Any, flight: Any) -> Any:
        while True:
            name = names.entry(flight.entry.entry)
            if self._objects.put_if_absent(name, flight.data) is PutOutcome.CREATED:
                return flight
            if self._objects.get(name) is None:
                entry = replace(flight.entry, entry=flight.entry.entry + 1)
                flight.data, checksum = encode_entry(entry)
                flight.entry = replace(entry, checksum=checksum)

    patch.setattr(Slot, "_put_until_resolved", put)


def without_epochs(patch: Patch) -> None:
    def known(delta: Any, command: Any, fenced_code: Any = None) -> Any:
        return delta.get(("transaction", command.transactional_id))

    for module in (transactions, coordinator, groups):
        if hasattr(module, "check_identity"):
            patch.setattr(module, "check_identity", known)


def without_transaction_numbers(patch: Patch) -> None:
    """An end settles whatever is open."""
    end = RULES[EndTxn].handler

    def any_number(delta: Any, command: Any, context: Any) -> Any:
        known = delta.get(("transaction", command.transactional_id))
        return end(delta, replace(command, transaction=known.transaction), context)

    handle(patch, EndTxn, any_number)


def without_a_segment_floor(patch: Patch) -> None:
    patch.setattr(partitions, "check_born", lambda delta, segment, context: None)


def without_unique_names(patch: Patch) -> None:
    """A sealed run's folder is named by its first offset."""
    token = "0" * 20
    patch.setattr(names, "sealed_folder", lambda first, entry, _: f"{first:020d}-{0:020d}-{token}")


def without_verified_checkpoints(patch: Patch) -> None:
    """What a checkpoint holds is looked at, and believed."""
    problem = Replay.problem
    patch.setattr(Replay, "problem", lambda self, head: problem(self, head) and None)


def without_intent_bases(patch: Patch) -> None:
    """An intent may be settled however long ago it was written."""
    patch.setattr(state_intents, "is_expired", lambda base_entry, entry: False)


def without_whole_compactions(patch: Patch) -> None:
    """A micro-batch may end inside of what a compaction covers."""
    patch.setattr(microbatchcut, "compacted_entry", lambda view, start: 0)


BUILDS: list[tuple[Callable[[Patch], None], traces.Trace]] = [
    (without_token_read_back, traces.a_slot_that_somebody_else_has),
    (without_confirming, traces.young_by_time_and_old_by_content),
    (without_confirming, traces.paused_between_the_look_and_the_put),
    (without_confirming, traces.a_paused_reader_and_a_slot_that_was_created_again),
    (without_confirming, traces.a_paused_reader_that_finds_no_news),
    (without_confirming, traces.a_predecessor_that_a_duplicate_put_has_created_again),
    (without_the_greatest_horizon, traces.an_older_horizon_written_last),
    (without_staying_at_an_unresolved_slot, traces.a_put_that_lands_after_the_deadline),
    (without_epochs, traces.a_producer_that_wakes_after_it_was_fenced),
    (without_transaction_numbers, traces.a_delayed_commit_and_the_next_transaction),
    (without_a_segment_floor, traces.a_slow_writer_and_the_segment_floor),
    (without_unique_names, traces.two_checkpointers_seal_other_ranges_from_one_offset),
    (without_intent_bases, readertraces.an_intent_that_is_taken_up_after_the_memory_has_ended),
    (without_verified_checkpoints, traces.a_checkpoint_that_cannot_be_read_is_no_horizon),
    (without_whole_compactions, rewritetraces.entries_inside_a_compacted_range),
]


@pytest.mark.parametrize(
    ("without", "trace"), [pytest.param(*build, id=f"{build[0].__name__}-{build[1].__name__}") for build in BUILDS]
)
def test_a_build_without_the_rule_breaks_its_trace(
    monkeypatch: pytest.MonkeyPatch, without: Callable[[Patch], None], trace: traces.Trace
) -> None:
    stage = ScriptedWorld()
    without(monkeypatch)
    with pytest.raises(AssertionError):
        trace(stage)
    stage.close()
