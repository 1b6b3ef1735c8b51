"""The log: its entries as sentences, and one entry with its commands decoded and raw."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sparktxn._engine.format import commands as c
from sparktxn._engine.format import names
from sparktxn._engine.format.entry import LogEntry
from sparktxn._engine.log.views.entryhistory import first_entry
from sparktxn._engine.log.views.entrysummary import read_entries
from sparktxn._foundation.values.quantities import counted
from sparktxn._programs.console.commandsentences import sentence, sentences
from sparktxn._programs.console.pagesource import Page, Source
from sparktxn._programs.console.pagetext import shortened
from sparktxn._programs.console.requestparameters import NotFound, RequestParameters

_ENTRIES: Final = 50
_ENTRIES_AT_ONCE: Final = 10
"""So many entries are in memory at a time: each may have some MiB."""
_SENTENCES: Final = 6
_SAID_COMMANDS: Final = 64
"""So many commands of an entry are made sentences of, of which appends may share one."""
_COMMANDS: Final = 200
_RAW_CHARACTERS: Final = 65_536
_MEMBER_CHARACTERS: Final = 8_192


def log(source: Source, asked: RequestParameters) -> Page:
    """Return a page of entries, the newest first, up to entry `to`."""
    newest = source.log.refresh()
    last = min(newest, asked.number("to", newest, least=1) or newest)
    oldest = first_entry(source.log.objects)
    first = max(oldest, last - _ENTRIES + 1)
    topic_names = source.log.topic_names()
    rows: list[dict[str, Any]] = []
    for high in range(last, first - 1, -_ENTRIES_AT_ONCE):
        found = read_entries(source.log.objects, max(first, high - _ENTRIES_AT_ONCE + 1), high)
        replaced = _replaced(source, found)
        rows += [_row(one, topic_names, replaced[one.entry]) for one in reversed(found)]
    content = {
        "entry": newest,
        "first_entry": oldest,
        "last_entry": last,
        "entries": rows,
        "older": first - 1 if first > oldest else None,
        "newer": min(newest, last + _ENTRIES) if last < newest else None,
    }
    return Page("log.html", "Log", content)


def _replaced(source: Source, entries: Sequence[LogEntry]) -> dict[int, Collection[str]]:
    """Return the transactional ids of which each entry has fenced a producer; only entries with a new one are asked."""
    return {
        one.entry: source.chronicle.replaced([one.entry])
        if any(isinstance(command, c.InitProducerId) and command.transactional_id for command in one.commands)
        else ()
        for one in entries
    }


def _row(one: LogEntry, topic_names: Mapping[int, str], replaced: Collection[str]) -> dict[str, Any]:
    said = sentences(one.commands[:_SAID_COMMANDS], topic_names, replaced)
    return {
        "entry": one.entry,
        "timestamp_ms": one.timestamp_ms,
        "commands": len(one.commands),
        "sentences": said[:_SENTENCES],
        "has_more": len(said) > _SENTENCES or len(one.commands) > _SAID_COMMANDS,
    }


def entry(source: Source, asked: RequestParameters, number: int) -> Page:
    """Return one entry: its commands from `start` on, as sentences and decoded, and its raw JSON."""
    found = _read(source, number)
    topic_names = source.log.topic_names()
    start = asked.number("start", 0) or 0
    replaced = _replaced(source, [found])[number]
    shown = found.commands[start : start + _COMMANDS]
    raw, is_cut = _formatted(source, found)
    content: dict[str, Any] = {
        "entry": number,
        "object": names.entry(number),
        "timestamp_ms": found.timestamp_ms,
        "previous": found.previous,
        "checksum": found.checksum,
        "token": found.token,
        "commands": [
            {
                "number": start + place,
                "type": type(command).__struct_config__.tag,
                "sentence": sentence(command, topic_names, replaced),
                "object": _object(command, topic_names, number),
                "members": _members(source, command),
            }
            for place, command in enumerate(shown)
        ],
        "command_count": len(found.commands),
        "next": start + _COMMANDS if start + _COMMANDS < len(found.commands) else None,
        "newest_entry": source.log.refresh(),
        "first_entry": first_entry(source.log.objects),
        "raw": raw,
        "raw_is_cut": is_cut,
    }
    return Page("entry.html", f"Entry {number}", content)


def raw_entry(source: Source, number: int) -> bytes:
    """Return an entry's JSON, without the records that it carries if values are hidden."""
    return _raw(source, _read(source, number))


def _formatted(source: Source, found: LogEntry) -> tuple[str, bool]:
    """Return the beginning of an entry's JSON, and whether more of it follows. Commands that are not shown are left."""
    left, shown = _RAW_CHARACTERS, 0
    while shown < len(found.commands) and left > 0:
        left -= len(msgspec.json.encode(found.commands[shown]))
        shown += 1
    part = replace(found, commands=found.commands[:shown])
    text = msgspec.json.format(_raw(source, part), indent=2).decode()
    return text[:_RAW_CHARACTERS], shown < len(found.commands) or len(text) > _RAW_CHARACTERS


def _read(source: Source, number: int) -> Any:
    newest = source.log.refresh()
    if not 1 <= number <= newest:
        raise NotFound(f"there is no entry {number}: the log has entries up to {newest}")
    return read_entries(source.log.objects, number, number)[0]


def _raw(source: Source, found: Any) -> bytes:
    document = msgspec.to_builtins(found)
    if source.hide_values:
        for command in document["commands"]:
            if "data" in command:
                command["data"] = "hidden"
    return msgspec.json.encode(document)


def _object(command: c.Command, topic_names: dict[int, str], number: int) -> str | None:
    """Return the object that holds the records of a command; None if it has none."""
    if isinstance(command, c.Append) and command.topic_id in topic_names:
        folder = names.partition_folder(topic_names[command.topic_id], command.topic_id, command.partition)
        return names.segment_object(folder, command.segment, number)
    return command.object if isinstance(command, c.Appends) else None


def _members(source: Source, command: c.Command) -> dict[str, Any]:
    """Return the members of a command by their long names; records that it carries are counted, not shown."""
    found: dict[str, Any] = {}
    for name in command.__struct_fields__:
        value = getattr(command, name)
        if name == "data":
            value = _carried(value)
            if value is None:
                continue
        found[name] = shortened(msgspec.to_builtins(value), _MEMBER_CHARACTERS)
    return found


def _carried(data: Any) -> str | None:
    if not data:
        return None
    if isinstance(data, bytes):
        return f"the records, {counted(len(data), 'byte')}"
    return f"{counted(len(data), 'segment')} in {counted(sum(map(len, data.values())), 'byte')}"
