"""Half messages: listing and counting them, and what an administrator decides about those that were discarded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from sparktxn._engine.format.commands import Command, DeleteHalf, DiscardHalf, ResumeHalf
from sparktxn._engine.log.log import Log
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.structs import HalfState
from sparktxn.admin.answers import REQUEST_TIMEOUT_S, AnsweringClient, answered


class HalfMessageState(StrEnum):
    """Whether a half message waits for its outcome, or is kept after its last check."""

    PENDING = "Pending"
    DISCARDED = "Discarded"


class HalfMessageId(Struct, frozen=True):
    """A half message, or the messages of one half transaction, by producer group and transaction id."""

    group_id: str
    transaction_id: str

    def __post_init__(self) -> None:
        for name in ("group_id", "transaction_id"):
            force_setattr(self, name, arguments.identifier(name, getattr(self, name)))


class HalfMessageListing(Struct, frozen=True):
    """A half message that is not settled. `messages` counts its messages by topic."""

    id: HalfMessageId
    state: HalfMessageState
    checks: int
    prepared_timestamp_ms: int
    prepared_entry: int
    messages: dict[str, int]


class HalfMessageCounts(Struct, frozen=True):
    """How many messages of a topic are in half messages that are not settled."""

    pending: int = 0
    discarded: int = 0


class HalfMessageCalls(AnsweringClient):
    """What an administrator asks of half messages, and decides about them."""

    @answered
    def list_half_messages(
        self,
        *,
        group_ids: Iterable[str] | None = None,
        states: Iterable[HalfMessageState | str] | None = None,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> Future[list[HalfMessageListing]]:
        """Return unsettled half messages of `group_ids` and in `states` (None: all), the oldest first.

        Raises:
            ConfigurationError: a state is unknown.
        """
        groups = None if group_ids is None else set(arguments.identifiers("group_ids", group_ids))
        wanted = set(HalfMessageState) if states is None else _states(states)

        def find() -> list[HalfMessageListing]:
            halves = self._refreshed().halves()
            found = [_listing(half) for half in halves if groups is None or half.group_id in groups]
            kept = [listing for listing in found if listing.state in wanted]
            return sorted(kept, key=lambda listing: (listing.prepared_entry, listing.id.transaction_id))

        return self._answer(find)

    @answered
    def count_half_messages(
        self, *, request_timeout: float | None = REQUEST_TIMEOUT_S
    ) -> Future[dict[str, HalfMessageCounts]]:
        """Return how many messages wait, or are discarded, by topic; topics without any are left out."""
        return self._answer(lambda: _counts(self._refreshed().halves()))

    @answered
    def discard_half_messages(
        self, half_messages: Sequence[HalfMessageId], *, request_timeout: float | None = REQUEST_TIMEOUT_S
    ) -> dict[HalfMessageId, Future[None]]:
        """Discard `half_messages`: they are kept, and no checker is asked for them; {id: Future}.

        The futures may raise ``TRANSACTIONAL_ID_NOT_FOUND``, and ``INVALID_TXN_STATE``: it is settled, or was checked
        just now.
        """
        return self._decide(half_messages, _discard)

    @answered
    def resume_half_messages(
        self,
        half_messages: Sequence[HalfMessageId],
        *,
        wait_ms: int = 0,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> dict[HalfMessageId, Future[None]]:
        """Make discarded `half_messages` pending again, with no checks; the first is due after `wait_ms`; {id: Future}.

        The futures may raise ``TRANSACTIONAL_ID_NOT_FOUND``, and ``INVALID_TXN_STATE``: it is settled.
        """
        wait_ms = arguments.integer("wait_ms", wait_ms, 0)
        return self._decide(half_messages, lambda log, id_: ResumeHalf(id_.group_id, id_.transaction_id, wait_ms))

    @answered
    def delete_half_messages(
        self, half_messages: Sequence[HalfMessageId], *, request_timeout: float | None = REQUEST_TIMEOUT_S
    ) -> dict[HalfMessageId, Future[None]]:
        """Forget discarded `half_messages`: no reader ever sees them; {id: Future}.

        The futures may raise ``TRANSACTIONAL_ID_NOT_FOUND``, and ``INVALID_TXN_STATE``: it is settled, or pending.
        """
        return self._decide(half_messages, lambda log, id_: DeleteHalf(id_.group_id, id_.transaction_id))

    def _decide(
        self, half_messages: Any, command: Callable[[Log, HalfMessageId], Command]
    ) -> dict[HalfMessageId, Future[None]]:
        named = arguments.items("half_messages", half_messages, HalfMessageId)

        def decide(id_: HalfMessageId) -> None:
            log = self._refreshed()
            log.submit([command(log, id_)])

        return self._each(named, decide)


def _discard(log: Log, id_: HalfMessageId) -> Command:
    half = log.half(id_.group_id, id_.transaction_id)
    return DiscardHalf(id_.group_id, id_.transaction_id, 0 if half is None else half.checks)


def _states(given: object) -> set[HalfMessageState]:
    named = arguments.items("states", given, str)
    return {HalfMessageState(arguments.choice("states", str(state), [*HalfMessageState])) for state in named}


def _state_of(half: HalfState) -> HalfMessageState:
    return HalfMessageState.DISCARDED if half.discarded_entry else HalfMessageState.PENDING


def _messages_of(half: HalfState) -> dict[str, int]:
    messages: dict[str, int] = {}
    for segment in half.segments:
        messages[segment.topic] = messages.get(segment.topic, 0) + segment.record_count
    return messages


def _listing(half: HalfState) -> HalfMessageListing:
    return HalfMessageListing(
        HalfMessageId(half.group_id, half.transaction_id),
        _state_of(half),
        half.checks,
        half.prepared_timestamp_ms,
        half.prepared_entry,
        _messages_of(half),
    )


def _counts(halves: Iterable[HalfState]) -> dict[str, HalfMessageCounts]:
    counted: dict[str, dict[HalfMessageState, int]] = {}
    for half in halves:
        for topic, count in _messages_of(half).items():
            of_topic = counted.setdefault(topic, dict.fromkeys(HalfMessageState, 0))
            of_topic[_state_of(half)] += count
    return {
        topic: HalfMessageCounts(found[HalfMessageState.PENDING], found[HalfMessageState.DISCARDED])
        for topic, found in sorted(counted.items())
    }
