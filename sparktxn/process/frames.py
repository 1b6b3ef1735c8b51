"""Errors that are kept as values: what a frame has in its variables stays as long as an error that came through it."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["without_frames"]

Error = TypeVar("Error", bound=BaseException)


def without_frames(error: Error) -> Error:
    """Return an error without the frames that it and its causes came through, for a caller that keeps it.

    Mostly the error is in one of these frames, too. Both would then stay until the interpreter looks for cycles, with
    all that a request had: a gateway's records among it.
    """
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error
