"""The state as one process holds it: records in parts, each part loaded when it is first touched.

`StateParts` is the one owner of the mutable mapping: deltas are folded in here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sparktxn.format.checkpoint import PartRef, part_of
from sparktxn.structs import StateKey, StateRecord

__all__ = ["LoadPart", "StateParts"]

Records = dict[StateKey, StateRecord]
LoadPart = Callable[[str, PartRef], list[StateRecord]]


class StateParts:
    """Records by part. `changed` says at which entry a part last differed from the one that `refs` names."""

    def __init__(self, refs: Mapping[str, PartRef], load: LoadPart) -> None:
        self.refs: dict[str, PartRef] = dict(refs)
        self.changed: dict[str, int] = {}
        self._load = load
        self._parts: dict[str, Records] = {}

    def get(self, key: StateKey) -> Any:
        """The record of `key`, or None; loads its part if this is the first touch.

        Raises:
            DamagedObject: the part cannot be read.
        """
        part = part_of(key)
        records = self._parts.get(part)
        if records is None:
            records = self.part(part)
        return records.get(key)

    def part(self, part: str) -> Records:
        """All records of a part, by key; loads it if this is the first touch. The caller changes nothing in it."""
        records = self._parts.get(part)
        if records is None:
            ref = self.refs.get(part)
            records = {record.key: record for record in self._load(part, ref)} if ref is not None else {}
            self._parts[part] = records
        return records

    def names(self, prefix: str) -> list[str]:
        """The parts whose name starts with `prefix`, whether loaded or only named by the checkpoint."""
        return sorted({name for name in (*self.refs, *self._parts) if name.startswith(prefix)})

    def loaded(self, prefix: str) -> list[str]:
        """The parts whose name starts with `prefix` and that have been touched."""
        return [name for name in self._parts if name.startswith(prefix)]

    def unloaded(self, parts: list[str]) -> list[str]:
        """Those of `parts` that a checkpoint names and that are not loaded."""
        return [part for part in parts if part not in self._parts and part in self.refs]

    def provide(self, part: str, records: Iterable[StateRecord]) -> None:
        """Takes the records of a part that a checkpoint names, unless it has been loaded."""
        self._parts.setdefault(part, {record.key: record for record in records})

    def fold(self, changes: Mapping[StateKey, StateRecord | None], entry: int) -> None:
        """Folds the changes of entry `entry` in: all of them, or none.

        Raises:
            StoreUnavailable, DamagedObject: a part could not be loaded; nothing is folded in.
        """
        # Loaded first: an entry that is half folded in when a part cannot be read would be applied twice afterwards.
        places = [(part_of(key), key, record) for key, record in changes.items()]
        self._load_all(part for part, _, _ in places)
        for part, key, record in places:
            if record is None:
                self._parts[part].pop(key, None)
            else:
                self._parts[part][key] = record
            self.changed[part] = entry

    def load_for(self, changes: Mapping[StateKey, StateRecord | None]) -> None:
        """Loads the parts that `fold` needs: an entry that could not be folded in is not to be written.

        Raises:
            StoreUnavailable, DamagedObject: a part could not be loaded.
        """
        self._load_all(map(part_of, changes))

    def _load_all(self, parts: Iterable[str]) -> None:
        for part in parts:
            if part not in self._parts:
                self.part(part)

    def replace(self, records: Mapping[StateKey, StateRecord | None]) -> None:
        """Sets records to equal ones: what they say is the same, so their parts do not count as changed."""
        for key, record in records.items():
            if record is not None:
                self.part(part_of(key))[key] = record

    def forget_unchanged(self, prefix: str) -> None:
        """Forgets loaded parts that have not changed: they are loaded again, as the newest checkpoint has them."""
        for part in [part for part in self._parts if part.startswith(prefix) and part not in self.changed]:
            del self._parts[part]

    def rebase(self, refs: Mapping[str, PartRef], entry: int) -> None:
        """Takes the parts of a checkpoint after `entry` for those that have not changed since."""
        for part, ref in refs.items():
            if self.changed.get(part, 0) <= entry:
                self.refs[part] = ref
                self.changed.pop(part, None)
        for part in [part for part in self.refs if part not in refs and self.changed.get(part, 0) <= entry]:
            del self.refs[part]
            self.changed.pop(part, None)
