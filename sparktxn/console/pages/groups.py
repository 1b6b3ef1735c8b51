"""Consumer groups: how far they are behind, their members, and what has happened to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sparktxn.admin.groups import describe_group, member_row
from sparktxn.console.pages.history import history_rows, shown_span
from sparktxn.console.plots import lag_plot
from sparktxn.console.requestparameters import NotFound, RequestParameters
from sparktxn.console.sentences import sentence
from sparktxn.console.shownstore import Page, Source
from sparktxn.kafka.groups import ConsumerGroupState
from sparktxn.log.views.entrysummary import read_entries
from sparktxn.log.views.readview import ReadView

__all__ = ["group", "group_rows", "groups"]

_ROWS: Final = 100
_EVENTS: Final = 50
_ENTRIES: Final = 256
_REBALANCES: Final = frozenset(("join_group", "update_member", "release_partitions", "leave_group", "expire_member"))


def groups(source: Source, asked: RequestParameters) -> Page:
    """Return a page of the groups by id; `q` is a part of their ids, `start` the first one."""
    view = source.view()
    part, start = asked.text("q").lower(), asked.text("start")
    found = [name for name in source.groups.ids() if part in name.lower() and name >= start]
    content = {
        "entry": view.entry,
        "q": asked.text("q"),
        "groups": group_rows(source, view, found[:_ROWS]),
        "next": found[_ROWS] if len(found) > _ROWS else None,
    }
    return Page("groups.html", "Groups", content)


def group_rows(source: Source, view: ReadView, group_ids: Iterable[str]) -> list[dict[str, Any]]:
    """Return groups with their state and their lag to the last stable offsets, which read_committed reaches."""
    names = {topic.topic_id: topic.name for topic in view.topics.values()}
    rows = []
    for group_id in group_ids:
        state, members = "Empty", 0
        if source.log.group(group_id) is not None:
            described = describe_group(source.log, source.uri, group_id, operations=False)
            state, members = described.state.name.capitalize(), len(described.members)
        lag, topics, partitions = 0, set(), 0
        for (topic_id, partition), offset in source.groups.of(group_id).items():
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


def _lag(view: ReadView, topic: str, partition: int, offset: int) -> int | None:
    found = view.partitions.get((topic, partition))
    return None if found is None else max(0, found.last_stable_offset - offset)


def group(source: Source, asked: RequestParameters) -> Page:
    """Return one group, by its `id`; `start` is the first row of its partitions."""
    group_id, start = asked.text("id"), asked.number("start", 0) or 0
    view = source.view()
    described = describe_group(source.log, source.uri, group_id, operations=False)
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
        "state": described.state.name.capitalize(),
        "type": described.type.name.capitalize(),
        "assignor": described.partition_assignor or None,
        "epoch": described.group_epoch,
        "entry": view.entry,
        "lag": sum(row["lag"] or 0 for row in rows),
        "members": [member_row(member) for member in described.members],
        "partitions": rows[start : start + _ROWS],
        "next": start + _ROWS if len(rows) > start + _ROWS else None,
        "history": history_rows(known, chosen),
        "plot": lag_plot(chosen.tallies[0], group_id, chosen.start_ms, chosen.end_ms, committed, ends),
        "events": _events(source, group_id, view.entry),
    }
    return Page("group.html", group_id, content, None if known.is_complete else source.past.read_on)


def _events(source: Source, group_id: str, newest: int) -> list[dict[str, Any]]:
    """Return what the newest entries say of a group's members: why it was rebalanced."""
    facts = [one for one in source.chronicle.up_to(newest) if not _REBALANCES.isdisjoint(one.operations)]
    names = source.log.topic_names()
    found: list[dict[str, Any]] = []
    for one in reversed(facts[-_ENTRIES:]):
        (entry,) = read_entries(source.log.objects, one.entry, one.entry)
        found += [
            {"entry": entry.entry, "timestamp_ms": entry.timestamp_ms, "sentence": sentence(command, names)}
            for command in entry.commands
            if getattr(command, "group_id", None) == group_id and type(command).__struct_config__.tag in _REBALANCES
        ]
        if len(found) >= _EVENTS:
            break
    return found[:_EVENTS]
