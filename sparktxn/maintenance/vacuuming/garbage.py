"""Finding and deleting what a vacuum may delete, once it is marked what to keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Final

from msgspec import Struct, field

from sparktxn._engine.format import names
from sparktxn._engine.objectstore.contract import FolderStore, ObjectInfo, ObjectStore
from sparktxn._engine.state.requests import REQUEST_WINDOW
from sparktxn._foundation.values.structs import MemberState
from sparktxn.maintenance.reachable import Marks, is_young

_BATCH: Final = 1_000
_Parse = Callable[[str], int | None]


class Garbage(Struct):
    """Names to delete, by kind; `temporary_files` are not objects. `folders` are those that may be empty afterwards.

    `kept` objects of partitions stay, in the partitions' `kept_folders`. No view that stays names the `young` segments
    of them, which were uploaded lately. `intents` stay, too. Of what its own age alone keeps, the oldest was written at
    `oldest_young_ms`.
    """

    table_metadata: list[str] = field(default_factory=list)
    entries: list[str] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)
    checkpoint_parts: list[str] = field(default_factory=list)
    segments: list[str] = field(default_factory=list)
    sealed_files: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    temporary_files: list[str] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)
    size_bytes: int = 0
    kept: int = 0
    kept_folders: set[str] = field(default_factory=set)
    young: int = 0
    young_bytes: int = 0
    intents: int = 0
    oldest_young_ms: float = inf

    def note_young(self, modified_ms: int) -> None:
        """Note when something was written that may be garbage once it is old enough."""
        self.oldest_young_ms = min(self.oldest_young_ms, modified_ms)

    def names(self) -> Iterator[str]:
        """Yield all of them, in the order in which they go."""
        # Before the files that it names.
        yield from self.table_metadata
        yield from self.entries
        yield from self.checkpoints
        yield from self.checkpoint_parts
        yield from self.sealed_files
        yield from self.segments
        yield from self.other
        yield from self.temporary_files


def find_garbage(
    objects: ObjectStore,
    checkpoints: Sequence[ObjectInfo],
    marks: Marks,
    placed: Iterable[ObjectInfo],
    horizon: int,
    floor: int,
    newest_entry: int,
    temporary_before_ms: int,
    aged_before_ms: int,
    is_left: Callable[[ObjectInfo], bool],
) -> Garbage:
    """Return what is unmarked, and named below the horizon or born below the floor.

    `checkpoints` is the listing that was marked from, `placed` are objects below ``topics/`` to judge. Objects whose
    names are none of ours are left alone, unless `is_left` says that another engine has left them in a table. What is
    listed, and is not garbage, is taken out of `marks.needed`. Of objects that nothing names those count as young that
    were written at `aged_before_ms` or later.
    """
    garbage = Garbage()
    if horizon > 1:
        entries = _below(objects.list_names(names.ENTRIES), names.parse_entry, horizon)
        garbage.entries = [name for name in entries if names.parse_entry(name) not in marks.entries]
    for info in checkpoints:
        head = names.parse_checkpoint_head(info.name)
        part = names.parse_checkpoint_part(info.name)
        if head is not None and head[0] < horizon:
            garbage.checkpoints.append(info.name)
            garbage.size_bytes += info.size_bytes
        elif part is not None and part < horizon and info.name not in marks.parts:
            garbage.checkpoint_parts.append(info.name)
            garbage.folders.add(_folder(info.name))
            garbage.size_bytes += info.size_bytes
        else:
            marks.needed.pop(info.name, None)
    for info in placed:
        if is_left(info):
            garbage.other.append(info.name)
            garbage.size_bytes += info.size_bytes
        elif not _is_garbage(garbage, info, marks, horizon, floor):
            marks.needed.pop(info.name, None)
            if info.modified_ms >= aged_before_ms and not marks.holds_object(info.name):
                garbage.note_young(info.modified_ms)
    appends = _below(objects.list_names(names.APPENDS), names.parse_appends, horizon)
    garbage.other += [name for name in appends if name not in marks.appends]
    intents = objects.list_names(names.INTENTS)
    past = _below(intents, _intent_base, newest_entry - REQUEST_WINDOW)
    garbage.other += past
    garbage.intents = sum(_intent_base(name) is not None for name in intents) - len(past)
    garbage.other += _below(objects.list_names(names.HORIZONS), names.parse_horizon, horizon)
    if isinstance(objects, FolderStore):
        for name, modified_ms in sorted(objects.temporary_files().items()):
            if modified_ms < temporary_before_ms:
                garbage.temporary_files.append(name)
            else:
                garbage.note_young(modified_ms)
    return garbage


def add_silent_signs(
    garbage: Garbage, objects: ObjectStore, members: Callable[[], Iterable[MemberState]], before_ms: int
) -> None:
    """Note the signs of life, written before `before_ms`, of none of the state's members, which `members` returns.

    A younger one may be of a member that has joined since. It decides nothing either way: its owner writes it again.
    """
    listed = [info for info in objects.list(names.GROUPS) if names.is_member_sign(info.name)]
    if not listed:
        return
    known = {names.member_sign(member.group_id, member.member_id) for member in members()}
    for info in listed:
        if info.name not in known and info.modified_ms < before_ms:
            garbage.other.append(info.name)
            garbage.size_bytes += info.size_bytes
        elif info.name not in known:
            garbage.note_young(info.modified_ms)


def _below(listed: Iterable[str], parse: _Parse, limit: int) -> list[str]:
    return sorted(name for name in listed if (number := parse(name)) is not None and number < limit)


def _intent_base(name: str) -> int | None:
    """Return the entry that an intent was written at: one that is a window behind is refused by every process."""
    parsed = names.parse_intent(name)
    return parsed[0] if parsed is not None else None


def _is_garbage(garbage: Garbage, info: ObjectInfo, marks: Marks, horizon: int, floor: int) -> bool:
    """Judge one object below ``topics/``, whether its topic exists or not, and note it if it is garbage."""
    parsed = names.parse_partition_object(info.name)
    if parsed is None:
        return False
    topic_id, partition, rest = parsed
    where = (topic_id, partition)
    is_held = marks.holds(where, rest)
    if is_held or is_young(rest, horizon, floor):
        if not is_held and names.parse_segment_born(rest) is not None:
            garbage.young += 1
            garbage.young_bytes += info.size_bytes
        garbage.kept += 1
        garbage.kept_folders.add(info.name[: -len(rest)])
        return False
    if names.parse_sealed_folder(rest) is not None:
        garbage.sealed_files.append(info.name)
        garbage.folders.add(_folder(info.name))
    else:
        garbage.segments.append(info.name)
    garbage.size_bytes += info.size_bytes
    return True


def _folder(name: str) -> str:
    return name[: name.rfind("/") + 1]


def delete_garbage(objects: ObjectStore, garbage: Garbage) -> None:
    """Delete it; after a crash or an error in between, what is left is found again.

    Raises:
        StoreUnavailable: the store did not answer.
    """
    temporary = set(garbage.temporary_files)
    listed = [name for name in garbage.names() if name not in temporary]
    for first in range(0, len(listed), _BATCH):
        objects.delete(listed[first : first + _BATCH])
    if isinstance(objects, FolderStore):
        objects.remove_folders(sorted(garbage.folders))
        objects.remove_temporary(garbage.temporary_files)
