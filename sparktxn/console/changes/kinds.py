"""The kinds of changes, by the names that addresses have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparktxn.console.changes.change import Change
from sparktxn.console.changes.groups import ResetOffsets
from sparktxn.console.changes.jobs import RunJob
from sparktxn.console.changes.topics import TopicAlteration, TopicCreation
from sparktxn.console.changes.transactions import Abort, Fence

__all__ = ["KINDS"]

KINDS: Final[Mapping[str, type[Change]]] = {
    change.kind: change for change in (TopicCreation, TopicAlteration, ResetOffsets, Abort, Fence, RunJob)
}
