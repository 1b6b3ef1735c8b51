"""The committed offsets of all groups, kept up to date by the entries since: no request reads them all again."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from sparktxn.console.chronicle import Chronicle
from sparktxn.console.oneatatime import held
from sparktxn.log.log import Log
from sparktxn.values.fieldtypes import TopicIdPartition

__all__ = ["GroupOffsets"]

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


class GroupOffsets:
    """The groups of a log and their committed offsets by (topic id, partition).

    Its methods raise what `Known` and `Chronicle` raise.
    """

    def __init__(self, log: Log, chronicle: Chronicle) -> None:
        self._log = log
        self._chronicle = chronicle
        self._lock = threading.Lock()
        self._entry = 0
        self._ids: list[str] = []
        self._offsets: dict[str, dict[TopicIdPartition, int]] = {}

    def ids(self) -> list[str]:
        """Return the ids of all groups, in their order."""
        with held(self._lock):
            self._follow()
            return self._ids

    def of(self, group_id: str) -> Mapping[TopicIdPartition, int]:
        """Return the offsets of a group, as they were when `ids` was last called; those of deleted topics too."""
        return self._offsets.get(group_id, {})

    def _follow(self) -> None:
        newest = self._log.refresh()
        if newest == self._entry:
            return
        facts = [one for one in self._chronicle.up_to(newest) if one.entry > self._entry] if self._entry else []
        is_gapless = bool(facts) and facts[0].entry == self._entry + 1
        if not is_gapless or any(not _READ_AGAIN.isdisjoint(one.operations) for one in facts):
            self._read_all()
            return
        for one in facts:
            for (group_id, *place), offset in one.offsets.items():
                self._offsets.setdefault(group_id, {})[place[0], place[1]] = offset
        if len(self._offsets) > len(self._ids):
            self._ids = sorted({*self._ids, *self._offsets})
        self._entry = newest

    def _read_all(self) -> None:
        with self._log.known() as state:
            entry, committed, ids = state.entry, state.committed_offsets(), state.group_ids()
        found: dict[str, dict[TopicIdPartition, int]] = {}
        for one in committed:
            found.setdefault(one.group_id, {})[one.topic_id, one.partition] = one.offset
        self._ids, self._offsets, self._entry = ids, found, entry
