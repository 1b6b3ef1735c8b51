"""The states of what a consumer reads: of the view that is pinned, of a call's messages, and of the group's share."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

__all__ = ["TRANSITIONS", "Gathering", "ReadingStates", "Share", "ViewEvent", "ViewState"]


class ViewState(Enum):
    """Where the pinned view is."""

    STALE = "stale"
    """What is read has changed since it was pinned, or none is: a poll of the log comes first."""
    EXPIRED = "expired"
    """A vacuum has passed it: a poll of the log comes first."""
    RENEWED = "renewed"
    """It took the place of one that had expired, and nothing was read in it yet."""
    UNREAD = "unread"
    """Nothing was read in it since the last poll began."""
    READ = "read"
    """Rows were read in it since the last poll began: the next poll may wait until it has no more."""

    @property
    def needs_poll(self) -> bool:
        """Whether nothing is read before the log was polled."""
        return self in (ViewState.STALE, ViewState.EXPIRED)


class ViewEvent(Enum):
    """What changes it."""

    CHANGED = "changed"
    """What is read has changed: the subscription, the assignment or a position."""
    PASSED = "passed"
    """Its segments are gone. For one that was renewed after that, something else is wrong."""
    ROWS = "rows"
    """Rows were read in it."""
    BEGUN = "begun"
    """A poll of the log has begun."""
    PINNED = "pinned"
    """A poll of the log has brought a newer one."""


_S, _E = ViewState, ViewEvent

TRANSITIONS: Final[Mapping[tuple[ViewState, ViewEvent], ViewState]] = MappingProxyType(
    {
        (_S.STALE, _E.CHANGED): _S.STALE,
        (_S.STALE, _E.PASSED): _S.EXPIRED,
        (_S.STALE, _E.ROWS): _S.STALE,
        (_S.STALE, _E.BEGUN): _S.STALE,
        (_S.STALE, _E.PINNED): _S.UNREAD,
        (_S.EXPIRED, _E.CHANGED): _S.EXPIRED,
        (_S.EXPIRED, _E.ROWS): _S.STALE,
        (_S.EXPIRED, _E.BEGUN): _S.EXPIRED,
        (_S.EXPIRED, _E.PINNED): _S.RENEWED,
        (_S.RENEWED, _E.CHANGED): _S.EXPIRED,
        (_S.RENEWED, _E.ROWS): _S.READ,
        (_S.RENEWED, _E.BEGUN): _S.RENEWED,
        (_S.RENEWED, _E.PINNED): _S.RENEWED,
        (_S.UNREAD, _E.CHANGED): _S.STALE,
        (_S.UNREAD, _E.PASSED): _S.EXPIRED,
        (_S.UNREAD, _E.ROWS): _S.READ,
        (_S.UNREAD, _E.BEGUN): _S.UNREAD,
        (_S.UNREAD, _E.PINNED): _S.UNREAD,
        (_S.READ, _E.CHANGED): _S.STALE,
        (_S.READ, _E.PASSED): _S.EXPIRED,
        (_S.READ, _E.ROWS): _S.READ,
        (_S.READ, _E.BEGUN): _S.UNREAD,
        (_S.READ, _E.PINNED): _S.READ,
    }
)
"""Every other pair is a defect, of the store or of this client."""


class Gathering(Enum):
    """Whether a call has taken messages that it has not returned: the assignment must not change meanwhile."""

    NONE = "none"
    TAKEN = "taken"
    INTERRUPTED = "interrupted"
    """It has, and the assignment is to change once they have been returned."""


class Share(Enum):
    """How what is read compares with what the group's state gives this consumer."""

    WHOLE = "whole"
    OWED = "owed"
    """Other members owe it partitions: it polls the log more often."""
    BEHIND = "behind"
    """The state gives more than was taken over: it polls more often, and the next poll may change the assignment."""


class ReadingStates:
    """The three states of one consumer's reading. They are changed by the methods of this class alone."""

    def __init__(self) -> None:
        self.view = ViewState.STALE
        self.gathering = Gathering.NONE
        self.share = Share.WHOLE

    def move_view(self, event: ViewEvent) -> None:
        """Bring the pinned view to the state that the table says."""
        self.view = TRANSITIONS[self.view, event]

    @property
    def may_expire(self) -> bool:
        """Whether a vacuum may have passed the view, so that missing segments are not damage."""
        return (self.view, ViewEvent.PASSED) in TRANSITIONS

    def gather(self) -> None:
        """Keep the assignment as it is while a call has messages that it has not returned."""
        if self.gathering is Gathering.NONE:
            self.gathering = Gathering.TAKEN

    def interrupt(self) -> None:
        """Have the call return its messages, as the assignment is to change."""
        assert self.gathering is not Gathering.NONE, "no call keeps the assignment as it is"
        self.gathering = Gathering.INTERRUPTED

    def end_gathering(self) -> None:
        """Let the assignment change: the call returns its messages."""
        self.gathering = Gathering.NONE

    def take_over_share(self, *, is_whole: bool) -> None:
        """Note that all is read that the group's state gives; other members owe the rest unless it `is_whole`."""
        self.share = Share.WHOLE if is_whole else Share.OWED

    def leave_share(self) -> None:
        """Note that the group's state gives more than was taken over."""
        self.share = Share.BEHIND
