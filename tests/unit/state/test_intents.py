"""Settling intents, and what is remembered of them and of requests: exactly a window, and quickly found."""

from __future__ import annotations

import time
from typing import Any

import pytest

from sparktxn._engine.format.checkpoint import part_of
from sparktxn._engine.format.commands import CancelIntent, InitProducerId, SettleIntent
from sparktxn._engine.state.delta import Context, Delta
from sparktxn._engine.state.intents import INTENT_WINDOW, intent_key, settlement
from sparktxn._engine.state.machine import Applied, apply, apply_list
from sparktxn._engine.state.requests import REQUEST_BUCKETS, REQUEST_WINDOW
from sparktxn.errors import ErrorCode
from tests.purelog import PureLog


def skip(log: PureLog, entry: int) -> None:
    """Lets the log stand after `entry`, with nothing in the entries between."""
    log.entries += [(Context(number, 0), []) for number in range(log.entry + 1, entry + 1)]


def test_a_settled_id_is_settled_once(log: PureLog) -> None:
    base = log.entry
    log.submit(SettleIntent("a-0", base, 1), SettleIntent("a-1", base, refused_code=48, reason="out of turn"))
    for command in (SettleIntent("a-0", base), SettleIntent("a-1", base), CancelIntent("a-0", base)):
        assert log.refusal(command) == ErrorCode.INVALID_REQUEST
    found = settlement(log.records.get, "a-1", base, log.entry)
    assert found is not None
    assert (found.refused_code, found.reason) == (48, "out of turn")
    assert settlement(log.records.get, "a-2", base, log.entry) is None


def test_an_id_is_settled_once_in_one_entry(log: PureLog) -> None:
    assert log.refusal(SettleIntent("a-0", log.entry), SettleIntent("a-0", log.entry)) == ErrorCode.INVALID_REQUEST


def test_a_cancelled_id_is_settled(log: PureLog) -> None:
    base = log.entry
    log.submit(CancelIntent("a-0", base))
    assert log.refusal(SettleIntent("a-0", base)) == ErrorCode.INVALID_REQUEST
    found = settlement(log.records.get, "a-0", base, log.entry)
    assert found is not None
    assert found.refused_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("count", [-1, 1])
def test_an_intent_has_commands_only_where_it_is_applied(log: PureLog, count: int) -> None:
    refused = 48 if count > 0 else 0
    assert log.refusal(SettleIntent("a-0", log.entry, count, refused)) == ErrorCode.INVALID_REQUEST
    log.submit(SettleIntent("a-0", log.entry, max(count, 0)))


def test_an_intent_may_be_as_old_as_the_store() -> None:
    log = PureLog()
    log.submit(CancelIntent("a-0", 0))
    found = settlement(log.records.get, "a-0", 0, log.entry)
    assert found is not None
    assert "cancelled" in found.reason


@pytest.mark.holes(15, 17)
@pytest.mark.parametrize("command", [SettleIntent, CancelIntent])
def test_the_base_is_accepted_for_exactly_as_long_as_what_followed_it_is_remembered(log: PureLog, command) -> None:
    base = log.entry
    log.submit(SettleIntent("a-0", base))
    skip(log, base + INTENT_WINDOW - 1)
    # The first entry after the base has settled it: the last entry that may be asked still knows.
    assert log.refusal(command("a-0", base)) == ErrorCode.INVALID_REQUEST
    assert settlement(log.records.get, "a-0", base, log.entry + 1) is not None
    log.submit(command("b-0", base))
    assert log.refusal(command("c-0", base)) == ErrorCode.INVALID_REQUEST
    assert log.entry == base + INTENT_WINDOW


@pytest.mark.parametrize("ahead", [1, 2, 1_000_000])
def test_a_base_that_is_not_there_yet_is_refused(log: PureLog, ahead: int) -> None:
    assert log.refusal(SettleIntent("a-0", log.entry + ahead)) == ErrorCode.INVALID_REQUEST
    assert log.refusal(SettleIntent("a-0", -1)) == ErrorCode.INVALID_REQUEST


def test_a_record_holds_one_entry_and_makes_room_for_a_later_one(log: PureLog) -> None:
    base = log.entry
    log.submit(SettleIntent("a-0", base))
    skip(log, base + INTENT_WINDOW)
    log.submit(SettleIntent("b-0", log.entry))
    window = log.records[intent_key(log.entry)]
    assert [settled.intent_id for settled in window.settled] == ["b-0"]
    assert len([key for key in log.records if key[0] == "intents"]) == 1
    assert part_of(window.key) == f"intents/{window.slot // 64}"


def test_a_request_is_remembered_for_exactly_the_window(log: PureLog) -> None:
    first = log.submit(InitProducerId("request"))[0]
    applied = log.entry
    skip(log, applied + REQUEST_WINDOW - 2)
    assert log.submit(InitProducerId("request"))[0].producer_id == first.producer_id
    skip(log, applied + REQUEST_WINDOW - 1)
    assert log.submit(InitProducerId("request"))[0].producer_id == first.producer_id + 1


def test_requests_that_the_window_is_past_do_not_stay(log: PureLog) -> None:
    for number in range(300):
        log.submit(InitProducerId(f"early {number}"))
    skip(log, log.entry + REQUEST_WINDOW)
    for number in range(REQUEST_BUCKETS):
        log.submit(InitProducerId(f"late {number}"))
    kept = [result for key, window in log.records.items() if key[0] == "requests" for result in window.requests]
    assert all(result.request_id.startswith("late") for result in kept)
    assert len(kept) == REQUEST_BUCKETS


def test_one_request_among_very_many_is_found_quickly() -> None:
    """100,000 of them at 400 to an entry, as a fleet that starts sends them."""
    records: dict[Any, Any] = {}
    started_s = time.process_time()
    for entry in range(1, 251):
        delta = Delta(records.get)
        for number in range(400):
            apply(delta, InitProducerId(f"{entry} {number}"), Context(entry, 0))
        records |= delta.changes
    assert time.process_time() - started_s < 20
    list_ = [InitProducerId("1 0"), InitProducerId("250 399")]
    applied = apply_list(Delta(records.get), list_, Context(251, 0))
    assert isinstance(applied, Applied)
    assert [result.producer_id for result in applied.results] == [0, 99_999]
