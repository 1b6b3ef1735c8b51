"""Members of groups: which kinds may join, whose time-outs have passed by the object store's clock, and their expiry.

A process that only passes by, such as a sweep or an administrator, has not watched a member. It writes an object, lists
the members' signs of life, and compares the store's times of both (PROTOCOL.md, "Consumer groups"). The expiry that it
proposes names what it has seen of the member, and changes nothing if the member has shown a sign since.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import ExpireMember, JoinGroup, OffsetCommit
from sparktxn._engine.log.follow.confirm import read_horizon
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.write.storeclock import modified_ms, store_now_ms
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values.structs import MemberState
from sparktxn.errors import CommandRefused, ErrorCode, KafkaException

SESSION: Final = "session"
REBALANCE: Final = "rebalance"

_MARGIN_MS: Final = 1_000
"""The store's times may be whole seconds: their difference is up to a second too long."""
_FRESH_S: Final = 1.0
"""A member that has joined since is not overdue: it takes a session and a second."""
_READ_TIMEOUT_S: Final = 10.0
"""How long a caller waits for expiries, which no answer depends on."""


class Sign(NamedTuple):
    """A member's object in a listing; both are 0 without one."""

    modified_ms: int = 0
    size_bytes: int = 0


class Watched(NamedTuple):
    """What the state says of a member. `revoking_since` is the entry since which it owes partitions, or 0."""

    member_id: str
    member_epoch: int
    session_timeout_ms: int
    rebalance_timeout_ms: int
    last_entry: int
    revoking_since: int = 0

    def proof(self, reason: str) -> int:
        """Return the entry that shows, if it is still the member's, that the member has done nothing meanwhile."""
        return self.last_entry if reason == SESSION else self.revoking_since


class OverdueMember(NamedTuple):
    """A member to propose for expiry, and for how long it has been silent, or has owed partitions."""

    member: Watched
    reason: str
    after_ms: int

    @property
    def proof(self) -> int:
        """The entry that the proposal names."""
        return self.member.proof(self.reason)


def watched(member: MemberState) -> Watched:
    """Return what an observer watches of a member."""
    return Watched(
        member.member_id,
        member.member_epoch,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        member.last_entry,
        member.changed_entry if member.revoking else 0,
    )


# Which members are overdue


def overdue_by_store_clock(
    members: Iterable[Watched], signs: Mapping[str, Sign], written_ms: Callable[[int], int | None], now_ms: int
) -> list[OverdueMember]:
    """Return which members are silent, or owe partitions for too long, by the object store's clock alone.

    Args:
        members: those to judge, by the state as it was when the listing began or later.
        signs: the listing, by member id, begun after `now_ms` was measured.
        written_ms: when the store took an entry, or a later entry; None if that is not known.
        now_ms: the store's time; 0 if the store gives no times, and then no member is known to be overdue.
    """
    if now_ms <= 0:
        return []
    ages = _Ages(written_ms, now_ms)
    found = []
    candidates = sorted(members, key=lambda member: (member.last_entry, member.member_id))
    for member in _middle_first(candidates):
        sign_ms = signs.get(member.member_id, Sign()).modified_ms
        silent_ms = ages.above(member.last_entry, member.session_timeout_ms + _MARGIN_MS, now_ms - sign_ms)
        if silent_ms is not None:
            found.append(OverdueMember(member, SESSION, silent_ms))
        elif member.revoking_since:
            owed_ms = ages.above(member.revoking_since, member.rebalance_timeout_ms + _MARGIN_MS)
            if owed_ms is not None:
                found.append(OverdueMember(member, REBALANCE, owed_ms))
    return sorted(found, key=lambda late: late.member.member_id)


class _Ages:
    """How old entries are. An older entry is not younger, so that few have to be asked for."""

    def __init__(self, written_ms: Callable[[int], int | None], now_ms: int) -> None:
        self._written_ms = written_ms
        self._now_ms = now_ms
        self._known: dict[int, int | None] = {}

    def above(self, entry: int, limit_ms: int, most_ms: int | None = None) -> int | None:
        """Return by how much an entry is at least older than now, at most `most_ms`; None if not above `limit_ms`."""
        if most_ms is not None and most_ms <= limit_ms:
            return None
        age_ms = self._at_least(entry)
        if (age_ms is None or age_ms <= limit_ms) and not self._is_younger(entry, limit_ms):
            if entry not in self._known:
                at_ms = self._written_ms(entry)
                self._known[entry] = None if at_ms is None or at_ms <= 0 else self._now_ms - at_ms
            age_ms = self._at_least(entry)
        if age_ms is None or age_ms <= limit_ms:
            return None
        return age_ms if most_ms is None else min(age_ms, most_ms)

    def _at_least(self, entry: int) -> int | None:
        return max((age for known, age in self._known.items() if age is not None and known >= entry), default=None)

    def _is_younger(self, entry: int, limit_ms: int) -> bool:
        """Return True if an older entry is known to be young enough."""
        return any(age is not None and age <= limit_ms and known < entry for known, age in self._known.items())


_Item = TypeVar("_Item")


def _middle_first(items: Sequence[_Item]) -> Iterator[_Item]:
    """Yield all items; what is known of one in the middle often answers for all on one side of it."""
    if items:
        middle = len(items) // 2
        yield items[middle]
        yield from _middle_first(items[:middle])
        yield from _middle_first(items[middle + 1 :])


class EntryTimes:
    """When the store took the entries of a log, as far as they are asked for."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._first: int | None = None

    def written_ms(self, entry: int) -> int | None:
        """Return when the store took the entry, or the first one that is left where that has been deleted.

        None if a vacuum deletes it at this moment.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        found_ms = modified_ms(self._objects, names.entry(entry))
        if found_ms is None:
            if self._first is None:
                self._first = read_horizon(self._objects)
            found_ms = modified_ms(self._objects, names.entry(max(entry, self._first)))
        return found_ms


def listed_signs(objects: ObjectStore, group_id: str, member_ids: Iterable[str]) -> dict[str, Sign]:
    """List the objects of a group's members, by member id.

    Raises:
        StoreUnavailable: the store did not answer.
    """
    by_name = {names.member_sign(group_id, member_id): member_id for member_id in member_ids}
    return {
        by_name[info.name]: Sign(info.modified_ms, info.size_bytes)
        for info in objects.list(names.group_folder(group_id))
        if info.name in by_name
    }


def overdue_members(
    log: Log, group_id: str, now_ms: int, written_ms: Callable[[int], int | None] | None = None
) -> list[OverdueMember]:
    """Return which members of a group, as last known, are overdue by the store's clock.

    Args:
        log: the log.
        group_id: the group.
        now_ms: the store's time, measured before this call.
        written_ms: as for `overdue_by_store_clock`; None: by the store.

    Raises:
        StoreUnavailable: the store did not answer.
    """
    members = [watched(member) for member in log.group_members(group_id)]
    if not members:
        return []
    signs = listed_signs(log.objects, group_id, [member.member_id for member in members])
    return overdue_by_store_clock(members, signs, written_ms or EntryTimes(log.objects).written_ms, now_ms)


# What becomes of them


def expire_overdue(log: Log, group_ids: Collection[str]) -> bool:
    """Take the overdue members out of groups before a call that meets members; return False if that did not work.

    It costs nothing for groups without members, if the log has been read in the last second. It never fails: a process
    that may not write, or that meets a store without times, sees the members that the log has.
    """
    try:
        with log.within(_READ_TIMEOUT_S):
            log.refresh(max_age_s=_FRESH_S)
            with_members = [group_id for group_id in group_ids if log.group(group_id) is not None]
            if not with_members:
                return True
            now_ms = store_now_ms(log.objects, log.clock, log.ids)
            for group_id in with_members:
                propose_expiry(log, group_id, overdue_members(log, group_id, now_ms))
    except KafkaException as error:
        log_event("members_not_read", group_ids=group_ids, error=error)
        return False
    return True


def propose_expiry(log: Log, group_id: str, overdue: Sequence[OverdueMember]) -> list[OverdueMember]:
    """Propose that members expire, again for those whose epoch an expiry has raised; return those that are out.

    Raises:
        KafkaException: the store did not answer in time; some may have expired.
    """
    gone: list[OverdueMember] = []
    left = list(overdue)
    while left:
        gone += _send(log, group_id, left)
        again = []
        for late in left:
            member = log.member(group_id, late.member.member_id)
            if member is not None and watched(member).proof(late.reason) == late.proof:
                again.append(late._replace(member=watched(member)))
        if len(again) == len(left):
            break
        left = again
    if gone:
        with suppress(KafkaException):
            log.objects.delete([names.member_sign(group_id, late.member.member_id) for late in gone])
    return gone


def _send(log: Log, group_id: str, overdue: Sequence[OverdueMember]) -> list[OverdueMember]:
    """Propose once, in as few entries as possible; return those that are not members any more."""
    proposals = [(late, log.send([_expiry(group_id, late)])) for late in overdue]
    gone = []
    try:
        for late, ticket in proposals:
            with suppress(CommandRefused):
                ticket.wait()
            if log.member(group_id, late.member.member_id) is None:
                gone.append(late)
                log_event(
                    "member_expired",
                    member_id=late.member.member_id,
                    group_id=group_id,
                    after_ms=late.after_ms,
                    reason=late.reason,
                )
    finally:
        # What was not answered by now is not to travel with another client's later call.
        for _, ticket in proposals:
            ticket.let_go()
    return gone


def _expiry(group_id: str, late: OverdueMember) -> ExpireMember:
    return ExpireMember(
        group_id=group_id,
        member_id=late.member.member_id,
        member_epoch=late.member.member_epoch,
        last_entry=late.proof,
        reason=late.reason,
        after_ms=late.after_ms,
    )


# Joins of groups. A group's members divide its work themselves, as those of Kafka Streams do, or the log divides it.
#
# The first kind has its members under another name, `members_name`. A list that joins a group has a commit of no
# offsets to the group of the other kind, too. The commit names no member, so the log refuses the list while that
# group has any. So no group gets both kinds, whichever processes join at the same moment.

_PREFIX: Final = "__members_of."
_REFUSALS_BY_MEMBERS: Final = frozenset(
    {ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.UNKNOWN_MEMBER_ID}
)
"""Refusals of a join that end with the session of another member; the last is that of the group of the other kind."""


def members_name(group_id: str) -> str:
    """Return the name under which the log has the members of a group that divide their work themselves."""
    return _PREFIX + group_id


def is_members_name(group_id: str) -> bool:
    """Return True for a name that `members_name` has made."""
    return group_id.startswith(_PREFIX)


def group_of_members(name: str) -> str:
    """Return the group that `members_name` has made a name of."""
    return name.removeprefix(_PREFIX)


def reserved_because(group_id: str) -> str | None:
    """Return why no client may use a group of this name; None if it may."""
    if not is_members_name(group_id):
        return None
    return (
        f"group.id {group_id!r}: names that begin with {_PREFIX!r} are those of members whose leader divides the work "
        f"of another group: use another name"
    )


def submit_join(log: Log, join: JoinGroup) -> None:
    """Join; where other members are in the way, take out those that are overdue, and join again.

    Raises:
        CommandRefused: INCONSISTENT_GROUP_PROTOCOL, the group has members of the other kind; what the log refuses.
        StoreError: call again.
    """
    is_led = is_members_name(join.group_id)
    other = group_of_members(join.group_id) if is_led else members_name(join.group_id)
    try:
        _submit(log, other, join)
    except CommandRefused as refused:
        if refused.error.code() not in _REFUSALS_BY_MEMBERS:
            raise
    else:
        return
    expire_overdue(log, [join.group_id, other])
    try:
        _submit(log, other, join)
    except CommandRefused as refused:
        if refused.error.code() != ErrorCode.UNKNOWN_MEMBER_ID:
            raise
        reason = (
            f"group {other!r} has members whose partitions the log divides: this one needs a group of its own"
            if is_led
            else f"group {join.group_id!r} has members that divide its work themselves, such as those of Kafka Streams "
            "or Kafka Connect: use another group.id"
        )
        raise CommandRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, reason) from refused


def _submit(log: Log, other: str, join: JoinGroup) -> None:
    log.submit([OffsetCommit(log.ids.token(), other, ()), join])
