"""Joins of groups. A group's members divide its work themselves, as those of Kafka Streams do, or the log divides it.

The first kind has its members under another name, `members_name`. A list that joins a group has a commit of no offsets
to the group of the other kind, too. The commit names no member, so the log refuses the list while that group has any.
So no group gets both kinds, whichever processes join at the same moment.
"""

from __future__ import annotations

from typing import Final

from sparktxn.errors import CommandRefused, ErrorCode
from sparktxn.format.commands import JoinGroup, OffsetCommit
from sparktxn.log.log import Log
from sparktxn.store.memberexpiry import expire_overdue

__all__ = ["group_of_members", "is_members_name", "members_name", "reserved_because", "submit_join"]

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
