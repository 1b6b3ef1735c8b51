"""Consumer groups: how far they are behind, their members, and what has happened to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sparktxn import ConsumerGroupState, ReadView
from sparktxn._engine.log.views.entrysummary import read_entries
from sparktxn._programs.console.commandsentences import sentence
from sparktxn._programs.console.pages.history import history_rows, shown_span
from sparktxn._programs.console.pagesource import Page, Source
from sparktxn._programs.console.plots import lag_plot
from sparktxn._programs.console.requestparameters import NotFound, RequestParameters, asked_sort
from sparktxn.admin import MemberDescription
from sparktxn.admin.groups import Overdue, describe_group, member_row
from sparktxn.store.memberexpiry import group_of_members, members_name
from sparktxn.store.memberwatch import SeenMember, seen_members
from sparktxn.store.options import TopicIdPartition

GroupOffsets = Mapping[str, Mapping[TopicIdPartition, int]]
"""The committed offsets of groups, by the groups' ids in their order."""

_ROWS: Final = 100
_EVENTS: Final = 50
_ASSIGNED: Final = 100
_SORTED: Final = ("group_id", "state", "members", "partitions", "lag")
_SORTED_PARTITIONS: Final = ("topic", "partition", "lag", "offset", "end_offset", "commit_timestamp_ms")
_ENTRIES: Final = 256
_REBALANCES: Final = frozenset(("join_group", "update_member", "release_partitions", "leave_group", "expire_member"))


def known_groups(source: Source) -> GroupOffsets:
    """Return all groups at the newest entry, with their offsets: none of groups that only have members."""
    with source.log.known() as state:
        committed, ids = state.committed_offsets(), state.group_ids()
    # The log has the members of some groups under other names.
    found: dict[str, dict[TopicIdPartition, int]] = {name: {} for name in sorted(set(map(group_of_members, ids)))}
    for one in committed:
        found[group_of_members(one.group_id)][one.topic_id, one.partition] = one.offset
    return found


def groups(source: Source, asked: RequestParameters) -> Page:
    """Return a page of the groups; `q` is a part of their ids, `start` the first id, or with `sort` `skip` rows."""
    view = source.view()
    part, start, skip = asked.text("q").lower(), asked.text("start"), asked.number("skip", 0) or 0
    sort = asked_sort(asked, _SORTED, "group_id", "/groups", {"q": asked.text("q")})
    known = known_groups(source)
    found = [name for name in known if part in name.lower() and name >= start]
    by_id = sort.text == "group_id"
    shown = found[skip : skip + _ROWS]
    rows = group_rows(source, view, {name: known[name] for name in (shown if by_id else found)})
    content = {
        "entry": view.entry,
        "q": asked.text("q"),
        "sort": sort,
        "groups": rows if by_id else sort.of(rows)[skip : skip + _ROWS],
        "next": found[_ROWS] if by_id and not skip and len(found) > _ROWS else None,
        "next_skip": skip + _ROWS if (skip or not by_id) and len(found) > skip + _ROWS else None,
    }
    return Page("groups.html", "Groups", content)


def group_rows(source: Source, view: ReadView, known: GroupOffsets) -> list[dict[str, Any]]:
    """Return groups with their state and their lag to the last stable offsets, which read_committed reaches.

    Members whose sessions have passed do not count.
    """
    names = {topic.topic_id: topic.name for topic in view.topics.values()}
    overdue = _overdue(seen_members(source.log))
    rows = []
    for group_id, offsets in known.items():
        state, members = _state(source, group_id, overdue)
        lag, topics, partitions = 0, set(), 0
        for (topic_id, partition), offset in offsets.items():
            name = names.get(topic_id)
            behind = None if name is None else _lag(view, name, partition, offset)
            if behind is not None:
                topics.add(name)
                partitions += 1
                lag += behind
        rows.append(
            {
                "group_id": group_id,
                "state": state,
                "members": members,
                "topics": sorted(filter(None, topics)),
                "partitions": partitions,
                "lag": lag,
            }
        )
    return rows


def topic_groups(source: Source, view: ReadView, name: str) -> list[dict[str, Any]]:
    """Return the groups that have offsets of a topic or hold its partitions, those with the greatest lag first."""
    topic_id = view.topics[name].topic_id
    seen = seen_members(source.log)
    overdue = _overdue(seen)
    holding = {
        group_id
        for group_id, members in seen.items()
        for one in members
        if any(held.topic_id == topic_id for held in one.state.assigned)
    }
    rows = []
    for group_id, committed in known_groups(source).items():
        offsets = {number: offset for (one, number), offset in committed.items() if one == topic_id}
        if not offsets and group_id not in holding:
            continue
        state, members = _state(source, group_id, overdue)
        lag = sum(_lag(view, name, number, offset) or 0 for number, offset in offsets.items())
        rows.append({"group_id": group_id, "state": state, "members": members, "partitions": len(offsets), "lag": lag})
    return sorted(rows, key=lambda row: -row["lag"])


def _state(source: Source, group_id: str, overdue: Overdue) -> tuple[str, int]:
    """Return the state of a group, and how many members it has."""
    log = source.log
    if log.group(group_id) is None and log.group(members_name(group_id)) is None:
        return "Empty", 0
    described = describe_group(log, source.uri, group_id, operations=False, overdue=overdue)
    return described.state.name.capitalize(), len(described.members)


def _overdue(seen: Mapping[str, Sequence[SeenMember]]) -> Overdue:
    return {(one.group_id, one.state.member_id) for members in seen.values() for one in members if one.is_overdue}


def _lag(view: ReadView, topic: str, partition: int, offset: int) -> int | None:
    found = view.partitions.get((topic, partition))
    return None if found is None else max(0, found.last_stable_offset - offset)


def group(source: Source, asked: RequestParameters) -> Page:
    """Return one group, by its `id`; `start` and `member` are the first rows of its partitions and of its members."""
    group_id, start = group_of_members(asked.text("id")), asked.number("start", 0) or 0
    view = source.view()
    seen = seen_members(source.log, [group_id])
    described = describe_group(source.log, source.uri, group_id, operations=False)
    living = describe_group(source.log, source.uri, group_id, operations=False, overdue=_overdue(seen))
    if described.state is ConsumerGroupState.DEAD:
        raise NotFound(f"group {group_id!r} has neither members nor offsets in this store")
    names = {topic.topic_id: topic.name for topic in view.topics.values()}
    offsets = {
        (names[one.topic_id], one.partition): one for one in source.log.group_offsets(group_id) if one.topic_id in names
    }
    holders = {
        (where.topic, where.partition): member.member_id
        for member in described.members
        for where in member.assignment.topic_partitions
    }
    rows: list[dict[str, Any]] = []
    for place in sorted(offsets.keys() | holders.keys()):
        offset = offsets.get(place)
        partition = view.partitions.get(place)
        rows.append(
            {
                "topic": place[0],
                "partition": place[1],
                "offset": offset.offset if offset is not None else None,
                "end_offset": partition.last_stable_offset if partition is not None else None,
                "lag": _lag(view, *place, offset.offset) if offset is not None else None,
                "commit_timestamp_ms": offset.commit_timestamp_ms if offset is not None else None,
                "entry": offset.effective_entry if offset is not None else None,
                "member_id": holders.get(place),
            }
        )
    sort = asked_sort(asked, _SORTED_PARTITIONS, "topic", "/group", {"id": group_id})
    members = asked.number("member", 0) or 0
    known = source.past.up_to(view.entry)
    chosen = shown_span(asked, known, max(source.now_ms(), view.timestamp_ms), view.timestamp_ms, entries_only=True)
    committed = {(one.topic_id, one.partition): one.offset for one in source.log.group_offsets(group_id)}
    ends = {
        (one.topic.topic_id, one.partition): one.log_end_offset
        for place in offsets
        if (one := view.partitions.get(place)) is not None
    }
    content: dict[str, Any] = {
        "group_id": group_id,
        "state": ("Empty" if not living.members else living.state.name.capitalize()),
        "type": described.type.name.capitalize(),
        "assignor": described.partition_assignor or None,
        "member_count": len(living.members),
        "overdue_count": len(described.members) - len(living.members),
        "epoch": described.group_epoch,
        "entry": view.entry,
        "lag": sum(row["lag"] or 0 for row in rows),
        "members": _member_rows(described.members[members : members + _ROWS], seen.get(group_id, ())),
        "next_member": members + _ROWS if len(described.members) > members + _ROWS else None,
        "sort": sort,
        "partitions": sort.of(rows)[start : start + _ROWS],
        "next": start + _ROWS if len(rows) > start + _ROWS else None,
        "history": history_rows(known, chosen),
        "plot": lag_plot(chosen.tallies[0], group_id, chosen.start_ms, chosen.end_ms, committed, ends),
        "events": _events(source, group_id, view.entry),
    }
    return Page("group.html", group_id, content, None if known.is_complete else source.past.read_on)


def _member_rows(members: Iterable[MemberDescription], seen: Iterable[SeenMember]) -> list[dict[str, Any]]:
    """Return members as the command has them, and when they were last seen."""
    known = {one.state.member_id: one for one in seen}
    rows = []
    for member in members:
        found = known.get(member.member_id)
        row = member_row(member)
        rows.append(
            {
                **row,
                "assignment": row["assignment"][:_ASSIGNED],
                "assigned": len(row["assignment"]),
                "is_overdue": found is not None and found.is_overdue,
                "last_seen_timestamp_ms": None if found is None else found.last_seen_ms,
            }
        )
    return rows


def _events(source: Source, group_id: str, newest: int) -> list[dict[str, Any]]:
    """Return what the newest entries say of a group's members: why it was rebalanced."""
    facts = [one for one in source.chronicle.up_to(newest) if not _REBALANCES.isdisjoint(one.operations)]
    names = source.log.topic_names()
    own = (group_id, members_name(group_id))
    found: list[dict[str, Any]] = []
    for one in reversed(facts[-_ENTRIES:]):
        (entry,) = read_entries(source.log.objects, one.entry, one.entry)
        found += [
            {"entry": entry.entry, "timestamp_ms": entry.timestamp_ms, "sentence": sentence(command, names)}
            for command in entry.commands
            if getattr(command, "group_id", None) in own and type(command).__struct_config__.tag in _REBALANCES
        ]
        if len(found) >= _EVENTS:
            break
    return found[:_EVENTS]
