"""When the members of groups were last seen, and which of them are overdue, for callers that only look.

Nothing is written: a watcher does not ask the store for its time, as `memberexpiry.py` does it. It knows a time that
has certainly passed. From the time of the newest object that it has seen, its own monotonic clock counts on. Its wall
clock counts, too, less the most that a writer's may be wrong. So a watcher may find late that a member is dead, and it
does not take a living one for dead. A member whose signs it has seen change is alive, whatever the clocks say.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from sparktxn._engine.format import names
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.values.structs import MemberState
from sparktxn._rows.scan.systemtables import Sightings
from sparktxn.store.memberexpiry import (
    SESSION,
    EntryTimes,
    Sign,
    group_of_members,
    members_name,
    overdue_by_store_clock,
    watched,
)

_FRESH_S: Final = 1.0
_FOLDERS_LISTED: Final = 8
"""Of more groups than that the signs of all are listed at once."""
_ENTRIES_ASKED: Final = 100
"""When so many entries were written is asked at once to say when members were last seen; later calls ask further."""
_NOTES_KEPT: Final = 1_000


class SeenMember(NamedTuple):
    """A member of a group, and when it was last seen.

    Args:
        group_id: its group, also that of a member whose leader divides the work (`store/memberexpiry.py`).
        state: what the log says of the member.
        is_overdue: whether its session has passed without a sign of life. The log has it until a process expires it.
        last_seen_ms: the store's time of its last sign of life; None if that is not known.
    """

    group_id: str
    state: MemberState
    is_overdue: bool
    last_seen_ms: int | None


def seen_members(
    log: Log, group_ids: Collection[str] | None = None, *, members: Iterable[MemberState] | None = None
) -> dict[str, list[SeenMember]]:
    """Return the members of groups (None: of all), by group id, with those that are overdue. Nothing is written.

    It costs a listing or two, and a few requests for members that no object shows alive. Groups without members are
    left out. Call it again later, from the same process: what it has seen before makes its answers exact. `members` are
    those of a state that the caller has just read; None: of the log, which is read if that was over a second ago.

    Raises:
        StoreUnavailable, DamagedObject: the state, or the signs of life, could not be read.
    """
    return _watches.setdefault(log, _MemberWatch()).seen(log, group_ids, members)


def sightings(log: Log) -> Sightings:
    """Return for each member whether it is overdue, and when it was last seen, as `seen_members`."""
    seen = [one for members in seen_members(log).values() for one in members]
    return {(one.state.group_id, one.state.member_id): (one.is_overdue, one.last_seen_ms) for one in seen}


class _Note(NamedTuple):
    """A member's sign, when it was read last, and a moment after which it has changed (monotonic clock)."""

    sign: tuple[Sign, int]
    read_s: float
    changed_after_s: float


class _MemberWatch:
    """What one process has seen of a log's members. Safe for several threads. It does not keep the log."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen_ms, self._seen_s = 0, 0.0
        self._notes: dict[str, _Note] = {}
        self._entries_ms: dict[int, int] = {}

    def seen(
        self, log: Log, group_ids: Collection[str] | None, known: Iterable[MemberState] | None
    ) -> dict[str, list[SeenMember]]:
        """Return the members, as `seen_members`."""
        began_s = log.clock.monotonic_s()
        if known is None:
            log.refresh(max_age_s=_FRESH_S)
            known = _members(log, group_ids)
        members = {names.member_sign(one.group_id, one.member_id): one for one in known}
        if not members:
            return {}
        signs = _listed_signs(log, {member.group_id for member in members.values()})
        with self._lock:
            written_ms = partial(self._written_ms, log.objects)
            newest_ms = written_ms(log.entry) or 0
            ended_s = log.clock.monotonic_s()
            passed_ms = self._passed_ms(log, [newest_ms, *(sign.modified_ms for sign in signs.values())], ended_s)
            # The state and the listing may be as old as the call.
            now_ms = passed_ms - round((ended_s - began_s + _FRESH_S) * 1000)
            living = self._note(members, signs, ended_s)
            judged = [watched(member)._replace(member_id=name) for name, member in members.items()]
            late = overdue_by_store_clock(
                [one for one in judged if one.member_id not in living], signs, written_ms, now_ms
            )
            overdue = {found.member.member_id for found in late if found.reason == SESSION}
            asked = overdue if group_ids is None else members.keys()
            seen_ms = self._last_seen_ms(members, signs, now_ms, asked, written_ms)
            self._forget(members)
        found: dict[str, list[SeenMember]] = {}
        for name, member in members.items():
            group_id = group_of_members(member.group_id)
            found.setdefault(group_id, []).append(SeenMember(group_id, member, name in overdue, seen_ms.get(name)))
        return found

    def _passed_ms(self, log: Log, times_ms: Iterable[int], now_s: float) -> int:
        """Return a time that the store's clock has passed; 0 if the store gives none."""
        newest_ms = max(times_ms)
        if not newest_ms:
            return 0
        known_ms = self._seen_ms + round((now_s - self._seen_s) * 1000) if self._seen_ms else 0
        if newest_ms > known_ms:
            self._seen_ms, self._seen_s = known_ms, _ = newest_ms, now_s
        return max(known_ms, log.clock.wall_ms() - log.settings.clock_skew_ms_max)

    def _note(self, members: Mapping[str, MemberState], signs: Mapping[str, Sign], now_s: float) -> set[str]:
        """Note the members' signs, and return the members whose signs have changed within their sessions."""
        living = set()
        for name, member in members.items():
            sign = (signs.get(name, Sign()), member.last_entry)
            before = self._notes.get(name)
            changed_after_s = float("-inf")
            if before is not None:
                changed_after_s = before.changed_after_s if before.sign == sign else before.read_s
            self._notes[name] = _Note(sign, now_s, changed_after_s)
            if (now_s - changed_after_s) * 1000 <= member.session_timeout_ms:
                living.add(name)
        return living

    def _written_ms(self, objects: ObjectStore, entry: int) -> int | None:
        """Return when the store took an entry; it is asked once."""
        if entry not in self._entries_ms:
            found_ms = EntryTimes(objects).written_ms(entry) if entry else None
            if not found_ms:
                return None
            self._entries_ms[entry] = found_ms
        return self._entries_ms[entry]

    def _last_seen_ms(
        self,
        members: Mapping[str, MemberState],
        signs: Mapping[str, Sign],
        now_ms: int,
        asked: Collection[str],
        written_ms: Callable[[int], int | None],
    ) -> dict[str, int]:
        """Return when members were last seen, as far as that is known or, for those in `asked`, may be asked for."""
        found = {}
        left = _ENTRIES_ASKED
        for name, member in members.items():
            sign_ms = signs.get(name, Sign()).modified_ms
            entry_ms = self._entries_ms.get(member.last_entry)
            if sign_ms and now_ms - sign_ms <= member.session_timeout_ms:
                found[name] = max(sign_ms, entry_ms or 0)
                continue
            if entry_ms is None and name in asked and left:
                left -= 1
                entry_ms = written_ms(member.last_entry)
            if entry_ms is not None:
                found[name] = max(sign_ms, entry_ms)
        return found

    def _forget(self, members: Mapping[str, MemberState]) -> None:
        """Forget what no member of the last call is known by, once it is much."""
        if len(self._notes) > _NOTES_KEPT + 2 * len(members):
            self._notes = {name: self._notes[name] for name in members}
        if len(self._entries_ms) > _NOTES_KEPT + 2 * len(members):
            named = {member.last_entry for member in members.values()}
            self._entries_ms = {entry: at_ms for entry, at_ms in self._entries_ms.items() if entry in named}


_watches: weakref.WeakKeyDictionary[Log, _MemberWatch] = weakref.WeakKeyDictionary()


def _members(log: Log, group_ids: Collection[str] | None) -> list[MemberState]:
    if group_ids is None:
        asked = [group.group_id for group in log.groups()]
    else:
        asked = [name for group_id in dict.fromkeys(group_ids) for name in (group_id, members_name(group_id))]
    return [member for name in asked for member in log.group_members(name)]


def _listed_signs(log: Log, group_ids: Collection[str]) -> dict[str, Sign]:
    """List the objects of groups' members, by their names."""
    is_many = len(group_ids) > _FOLDERS_LISTED
    folders = [names.GROUPS] if is_many else [names.group_folder(group_id) for group_id in group_ids]
    return {
        info.name: Sign(info.modified_ms, info.size_bytes) for folder in folders for info in log.objects.list(folder)
    }
