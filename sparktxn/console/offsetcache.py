"""The committed offsets of all groups, kept up to date by the entries since: no request reads them all again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from sparktxn.console.history.chronicle import Chronicle
from sparktxn.console.history.entryfacts import EntryFacts
from sparktxn.console.history.keptup import KeptUp
from sparktxn.log.log import Log
from sparktxn.log.views.known import KnownState
from sparktxn.store.joining import group_of_members
from sparktxn.values.fieldtypes import TopicIdPartition
from sparktxn.values.structs import CommittedOffset

__all__ = ["OffsetCache"]

_READ_AGAIN: Final = frozenset(
    (
        "delete_group",
        "delete_topic",
        "expire_member",
        "expire_offsets",
        "join_group",
        "leave_group",
        "txn_offset_commit",
    )
)
"""After these a group may be new without a committed offset, or gone."""


class OffsetCache(KeptUp):
    """The groups of a log and their committed offsets by (topic id, partition)."""

    def __init__(self, log: Log, chronicle: Chronicle) -> None:
        super().__init__(log, chronicle)
        self._ids: list[str] = []
        self._offsets: dict[str, dict[TopicIdPartition, int]] = {}

    def ids(self) -> list[str]:
        """Return the ids of all groups, in their order."""
        with self.up_to_date():
            return self._ids

    def of(self, group_id: str) -> Mapping[TopicIdPartition, int]:
        """Return the offsets of a group, as they were when `ids` was last called; those of deleted topics too."""
        return self._offsets.get(group_id, {})

    def _ask(self, state: KnownState) -> Callable[[], None]:
        return partial(self._keep, state.committed_offsets(), state.group_ids())

    def _keep(self, committed: Iterable[CommittedOffset], ids: list[str]) -> None:
        found: dict[str, dict[TopicIdPartition, int]] = {}
        for one in committed:
            found.setdefault(one.group_id, {})[one.topic_id, one.partition] = one.offset
        # The log has the members of some groups under other names.
        self._ids, self._offsets = sorted({group_of_members(name) for name in ids}), found

    def _apply(self, facts: Sequence[EntryFacts]) -> bool:
        if any(not _READ_AGAIN.isdisjoint(one.operations) for one in facts):
            return False
        for one in facts:
            for (group_id, topic_id, partition), moved in one.offsets.items():
                if moved.after is not None:
                    self._offsets.setdefault(group_id, {})[topic_id, partition] = moved.after
        if len(self._offsets) > len(self._ids):
            self._ids = sorted({*self._ids, *self._offsets})
        return True
