"""One view for all that a request names, whichever of its topics exist."""

from __future__ import annotations

from collections.abc import Iterable

from sparktxn.errors import CommandRefused, ErrorCode
from sparktxn.log.log import Log
from sparktxn.log.views.readview import ReadView

__all__ = ["view_of_existing"]


def view_of_existing(log: Log, topics: Iterable[str]) -> ReadView:
    """Return the newest view of those of `topics` that exist; the others are left out.

    Raises:
        StoreError: the log cannot be read.
    """
    named = sorted(set(topics))
    while True:
        try:
            return log.view(named)
        except CommandRefused as refused:
            # One does not exist, or was deleted meanwhile: the view has made this known.
            existing = [name for name in named if log.topic(name) is not None]
            if refused.error.code() != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or existing == named:
                raise
            named = existing
