"""What is remembered of a request, and for how long (PROTOCOL.md, `request_id`)."""

from __future__ import annotations

import zlib

from msgspec.structs import replace

from sparktxn._engine.format.commands import CommandResult
from sparktxn._engine.state.delta import Context, Delta
from sparktxn._engine.state.requests import REQUEST_BUCKETS, REQUEST_WINDOW, remember, remembered, request_key
from sparktxn._foundation.values.structs import RequestResult, RequestWindow, StateKey, StateRecord
from tests.purelog import PureLog

ANSWER = CommandResult(
    topic_id=3,
    producer_id=4,
    producer_epoch=5,
    transaction=6,
    committed=True,
    prepared_producer_id=7,
    prepared_producer_epoch=8,
)


def bucket(request_id: str) -> int:
    return zlib.crc32(request_id.encode()) % 1_024


def delta(*windows: RequestWindow) -> Delta:
    records: dict[StateKey, StateRecord] = {window.key: window for window in windows}
    return Delta(records.get)


def noted(*entries: int) -> tuple[RequestResult, ...]:
    return tuple(RequestResult(f"of {entry}", entry) for entry in entries)


def test_the_bucket_is_the_checksum_of_the_id() -> None:
    assert (REQUEST_BUCKETS, REQUEST_WINDOW) == (1_024, 1_000)
    for request_id in ("", "a", "create topic", "Größe"):
        assert request_key(request_id) == ("requests", bucket(request_id))


def test_an_answer_is_noted_and_given_again_whole() -> None:
    found = delta()
    assert remembered(found, Context(2_000, 1), "a") is None
    assert remember(found, Context(2_000, 1), "a", ANSWER) is ANSWER
    assert found.changes == {
        request_key("a"): RequestWindow(bucket("a"), (RequestResult("a", 2_000, 3, 4, 5, 6, True, 7, 8),))
    }
    assert remembered(found, Context(2_999, 1), "a") == replace(ANSWER, duplicate=True)
    assert remembered(found, Context(3_000, 1), "a") is None
    assert remembered(found, Context(2_999, 1), "b") is None


def test_an_id_is_found_among_those_of_its_bucket_and_its_last_answer_counts() -> None:
    requests = (RequestResult("a", 1_500, 1), RequestResult("other", 1_600, 2), RequestResult("a", 1_700, 3))
    found = remembered(delta(RequestWindow(bucket("a"), requests)), Context(1_800, 1), "a")
    assert found == CommandResult(duplicate=True, topic_id=3)


def test_its_own_bucket_forgets_what_the_window_is_past_and_keeps_the_order() -> None:
    found = delta(RequestWindow(bucket("a"), noted(999, 1_000, 1_001, 1_500)))
    remember(found, Context(2_000, 1), "a", CommandResult.EMPTY)
    assert found.changes[request_key("a")] == RequestWindow(
        bucket("a"), (*noted(1_001, 1_500), RequestResult("a", 2_000))
    )


def test_the_bucket_of_the_entry_forgets_too() -> None:
    number = 2_000 % 1_024
    assert number != bucket("a")
    key = ("requests", number)
    for entries, kept in (
        ((500, 1_000, 1_001), (1_001,)),
        ((1_000, 1_001), (1_001,)),
        ((1_001, 1_002), None),
        ((500, 1_000), ()),
    ):
        found = delta(RequestWindow(number, noted(*entries)))
        remember(found, Context(2_000, 1), "a", CommandResult.EMPTY)
        if kept is None:
            assert key not in found.changes
        else:
            assert found.changes[key] == (RequestWindow(number, noted(*kept)) if kept else None)


def test_a_bucket_that_forgets_all_and_is_the_requests_own_starts_again() -> None:
    number = next(number for number in range(2_000) if bucket(f"{number}") == 2_000 % 1_024)
    found = delta(RequestWindow(2_000 % 1_024, noted(500)))
    remember(found, Context(2_000, 1), f"{number}", CommandResult.EMPTY)
    assert found.changes == {
        ("requests", 2_000 % 1_024): RequestWindow(2_000 % 1_024, (RequestResult(f"{number}", 2_000),))
    }


def test_what_an_init_was_answered_is_noted(log: PureLog) -> None:
    log.initialise("id")
    kept = log.records[request_key("init id at 1")].requests
    assert kept == (RequestResult("init id at 1", 2, -1, 0, 0, 0),)
