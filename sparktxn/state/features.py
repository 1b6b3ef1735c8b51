"""Features: what a process must know before it reads or writes the store (PROTOCOL.md, "Features")."""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from sparktxn.errors import ErrorCode
from sparktxn.format.commands import CommandResult, RequireFeatures
from sparktxn.state.delta import Context, Delta, Refusal

__all__ = ["require_features"]

_FEATURE: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


def require_features(delta: Delta, command: RequireFeatures, context: Context) -> CommandResult | Refusal:
    """Add to the features that the store requires; none is ever taken away."""
    for feature in (*command.reader_features, *command.writer_features):
        if not _FEATURE.fullmatch(feature):
            return Refusal(
                ErrorCode.INVALID_REQUEST,
                f"feature {feature!r} is not valid: expected a letter and up to 63 more of a-z, 0-9 and '_'",
            )
    store = delta.store()
    readers = tuple(sorted({*store.reader_features, *command.reader_features}))
    writers = tuple(sorted({*store.writer_features, *command.writer_features}))
    if (readers, writers) == (store.reader_features, store.writer_features):
        return CommandResult(duplicate=True)
    delta.put(replace(store, reader_features=readers, writer_features=writers))
    return CommandResult.EMPTY
