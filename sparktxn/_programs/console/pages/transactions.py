"""Transactions: the timeline, those that are open, all transactional ids, and everything that one of them did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from operator import attrgetter
from typing import Any, Final

from sparktxn._engine.format import commands as c
from sparktxn._engine.log.follow.tail import commands_of
from sparktxn._engine.log.views.entryhistory import first_entry
from sparktxn._engine.log.views.entrysummary import read_entries
from sparktxn._engine.log.write.transactiontimeouts import overdue
from sparktxn._foundation.values.structs import TransactionState, TransactionStatus
from sparktxn._programs.console.commandsentences import sentence
from sparktxn._programs.console.history.timeline import Bar, Lane, lanes_of
from sparktxn._programs.console.pagesource import Page, Source
from sparktxn._programs.console.pagetext import duration
from sparktxn._programs.console.plots import draw_timeline
from sparktxn._programs.console.requestparameters import NotFound, RequestParameters, asked_sort
from sparktxn.admin.transactions import describe_transaction
from sparktxn.errors import KafkaException

_LANES: Final = 30
_BARS: Final = 300
_BARS_DRAWN: Final = 1_500
_WINDOW: Final = 200
_WINDOW_MAX: Final = 2_000
_OPEN: Final = 100
_IDS: Final = 100
_STEPS: Final = 200
_SORTED: Final = (
    *("transactional_id", "outcome", "began_timestamp_ms", "took_ms", "ended_entry", "producer_id", "partitions"),
)
_SORTED_OPEN: Final = ("transactional_id", "outcome", "age_ms", "timeout_ms", "began_entry", "partitions")
_ENTRIES_AT_ONCE: Final = 16
_ENTRIES_MAX: Final = 1_024


def transactions(source: Source, asked: RequestParameters) -> Page:
    """Return the timeline of `count` entries up to entry `to`, and what is open now."""
    newest = source.log.refresh()
    last = min(newest, asked.number("to", newest) or newest)
    count = asked.count("count", _WINDOW, most=_WINDOW_MAX)
    facts = source.chronicle.window(last, count)
    wanted = asked.text("id")
    found = [lane for lane in lanes_of(facts) if wanted.lower() in lane.transactional_id.lower()]
    lanes = _drawable(found)
    start_ms = facts[0].timestamp_ms if facts else 0
    # To the last entry, and not to now: a transaction that was left open would leave no place for the others.
    end_ms = facts[-1].timestamp_ms if facts else 0
    known = source.transactions()
    opened = open_rows(source, known)
    bars = sorted((bar for lane in found for bar in lane.bars), key=lambda bar: -(bar.ended_entry or newest + 1))
    given = {"id": wanted, "to": asked.number("to"), "count": asked.number("count")}
    open_sort = asked_sort(asked, _SORTED_OPEN, "-age_ms", "/transactions", given, "open")
    sort = asked_sort(asked, _SORTED, "-ended_entry", "/transactions", given)
    rows = [_bar_row(bar) for bar in bars]
    content: dict[str, Any] = {
        "entry": newest,
        "first_entry": facts[0].entry if facts else None,
        "last_entry": last,
        "count": count,
        "id": wanted,
        "timeline": draw_timeline(lanes, start_ms, end_ms),
        "lanes_left_out": len(found) - len(lanes),
        "open_sort": open_sort,
        "open": open_sort.of(opened)[:_OPEN],
        "open_count": len(opened),
        "sort": sort,
        "transactions": (sort.of(rows) if asked.has("sort") else rows)[:_BARS],
        "transactions_left_out": max(0, len(rows) - _BARS),
        "transactional_ids": len(known),
        "earlier": facts[0].entry - 1 if facts and facts[0].entry > 1 else None,
        "later": min(newest, last + count) if last < newest else None,
    }
    return Page("transactions.html", "Transactions", content)


def _drawable(lanes: Sequence[Lane]) -> list[Lane]:
    """Return the first lanes, as many as have so many bars together, for a page has an end.

    The first one is always there, with its newest bars.
    """
    found: list[Lane] = []
    left = _BARS_DRAWN
    for lane in lanes[:_LANES]:
        if found and len(lane.bars) > left:
            break
        found.append(Lane(lane.transactional_id, lane.bars[-_BARS_DRAWN:], lane.marks[-_BARS_DRAWN:]))
        left -= len(lane.bars)
    return found


def _bar_row(bar: Bar) -> dict[str, Any]:
    return {
        "transactional_id": bar.transactional_id,
        "producer_id": bar.producer_id,
        "producer_epoch": bar.producer_epoch,
        "transaction": bar.transaction,
        "outcome": bar.outcome,
        "began_entry": bar.began_entry,
        "began_timestamp_ms": bar.began_ms,
        "ended_entry": bar.ended_entry,
        "ended_timestamp_ms": bar.ended_ms,
        "took_ms": None if bar.ended_ms is None else bar.ended_ms - bar.began_ms,
        "partitions": bar.partition_count,
        "reason": bar.reason or None,
    }


def open_rows(source: Source, known: Sequence[TransactionState]) -> list[dict[str, Any]]:
    """Return the open transactions, the oldest first."""
    now_ms = source.now_ms()
    ongoing = TransactionStatus.ONGOING
    rows = [
        {
            "transactional_id": record.transactional_id,
            "producer_id": record.producer_id,
            "producer_epoch": record.producer_epoch,
            "transaction": record.transaction,
            "began_entry": record.start_entry,
            "began_timestamp_ms": record.start_timestamp_ms,
            "age_ms": max(0, now_ms - record.start_timestamp_ms),
            "timeout_ms": None if record.prepared is not None else record.timeout_ms,
            "overdue": bool(overdue([record], lambda one: (now_ms - one.start_timestamp_ms, 0))),
            "prepared": record.prepared is not None,
            "partitions": len(record.partitions),
            "groups": sorted({group_id for group_id, _, _ in record.offsets}),
            "outcome": "prepared" if record.prepared is not None else "open",
        }
        for record in known
        if record.status is ongoing
    ]
    return sorted(rows, key=lambda row: (row["began_timestamp_ms"], row["transactional_id"]))


def transactional_ids(source: Source, asked: RequestParameters) -> Page:
    """Return a page of all transactional ids in their order, those that begin with `prefix`."""
    prefix = asked.text("prefix")
    records, first = source.transactions(), max(asked.text("start"), prefix)
    found = nsmallest(
        _IDS + 1,
        (one for one in records if one.transactional_id >= first and one.transactional_id.startswith(prefix)),
        key=attrgetter("transactional_id"),
    )
    rows = [
        {
            "transactional_id": record.transactional_id,
            "state": "PREPARED" if record.prepared is not None else record.status.name,
            "producer_id": record.producer_id,
            "producer_epoch": record.producer_epoch,
            "transaction": record.transaction,
            "began_entry": record.start_entry if record.start_entry >= 0 else None,
            "began_timestamp_ms": record.start_timestamp_ms,
            "updated_timestamp_ms": record.last_update_timestamp_ms,
            "timeout_ms": None if record.prepared is not None else record.timeout_ms,
        }
        for record in found[:_IDS]
    ]
    following = found[_IDS].transactional_id if len(found) > _IDS else None
    content = {"prefix": prefix, "total": len(records), "ids": rows, "next": following}
    return Page("transactional_ids.html", "Transactional ids", content)


def transaction(source: Source, asked: RequestParameters) -> Page:
    """Return what one transaction did: `id` with `producer` and `number`, or without them the last one of the id.

    `from` is an entry at or before its beginning; without it the entries that are kept in memory are searched.
    """
    transactional_id = asked.text("id")
    newest = source.log.refresh()
    record = source.log.transaction(transactional_id)
    producer_id = asked.number("producer", record.producer_id if record is not None else None)
    number = asked.number("number", record.transaction if record is not None else None)
    bar = _known_bar(source, newest, transactional_id, producer_id, number)
    is_last = record is not None and (record.producer_id, record.transaction) == (producer_id, number)
    first = asked.number("from", bar.began_entry if bar is not None else None, least=1)
    if first is None and record is not None and is_last and record.start_entry > 0:
        first = record.start_entry
    if producer_id is None or number is None or (record is None and bar is None and first is None):
        raise NotFound(
            f"transactional id {transactional_id!r} is not known: it never was, or it was idle and is forgotten"
        )
    found = _Steps(transactional_id, producer_id, number)
    is_open = record is not None and is_last and record.status is TransactionStatus.ONGOING
    if first is not None:
        first = max(first, first_entry(source.log.objects))
        last = min(newest, (bar.ended_entry if bar is not None and bar.ended_entry else first + _ENTRIES_MAX))
        found.read(source, first, last)
    content: dict[str, Any] = {
        "transactional_id": transactional_id,
        "producer_id": producer_id,
        "transaction": number,
        "is_last": is_last,
        "outcome": found.outcome(bar, is_open=is_open),
        "reason": found.reason or (bar.reason if bar is not None else "") or None,
        "began_timestamp_ms": found.first_ms if found.first_ms is not None else (bar.began_ms if bar else None),
        "ended_timestamp_ms": found.ended_ms,
        "searched_from": first,
        "entries": found.entries,
        "records": found.records,
        "size_bytes": found.size_bytes,
        "topics": [{"topic": name, **counts} for name, counts in sorted(found.topics.items())],
        "offsets": found.offsets,
        "offsets_left_out": found.offset_count - len(found.offsets),
        "micro_batch": found.micro_batch,
        "steps": found.steps,
        "steps_left_out": found.step_count - len(found.steps),
        "state": None if record is None else _state(source, record),
        "now_ms": source.now_ms(),
    }
    return Page("transaction.html", f"{transactional_id} {number}", content)


def _known_bar(
    source: Source, newest: int, transactional_id: str, producer_id: int | None, number: int | None
) -> Bar | None:
    for lane in lanes_of(source.chronicle.up_to(newest)):
        if lane.transactional_id == transactional_id:
            return next((bar for bar in lane.bars if (bar.producer_id, bar.transaction) == (producer_id, number)), None)
    return None


def _state(source: Source, record: TransactionState) -> dict[str, Any] | None:
    try:
        described = describe_transaction(source.log, record.transactional_id)
    except KafkaException:
        return None
    is_prepared = record.prepared is not None
    return {
        "state": str(described.state),
        "prepared": is_prepared,
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "transaction": described.transaction,
        "timeout_ms": None if is_prepared else described.transaction_timeout_ms,
    }


class _Steps:
    """What the entries say of one transaction."""

    def __init__(self, transactional_id: str, producer_id: int, number: int) -> None:
        self._key = (transactional_id, producer_id, number)
        self.steps: list[dict[str, Any]] = []
        self.step_count = self.offset_count = 0
        self.entries: list[int] = []
        self.topics: dict[str, dict[str, Any]] = {}
        self.offsets: list[dict[str, Any]] = []
        self.records = self.size_bytes = 0
        self.micro_batch: dict[str, Any] | None = None
        self.first_ms: int | None = None
        self.ended_ms: int | None = None
        self.reason = ""
        self._committed: bool | None = None

    def outcome(self, bar: Bar | None, *, is_open: bool) -> str:
        """Return how it has ended, as the entries or the timeline say."""
        if self._committed is not None:
            return "committed" if self._committed else "aborted"
        if bar is not None:
            return bar.outcome
        return "open" if is_open else "unknown"

    def read(self, source: Source, first: int, last: int) -> None:
        """Read entries until one ends the transaction."""
        names = source.log.topic_names()
        for low in range(first, last + 1, _ENTRIES_AT_ONCE):
            for entry in read_entries(source.log.objects, low, min(last, low + _ENTRIES_AT_ONCE - 1)):
                own = list(self._own(commands_of(source.log.objects, entry)))
                if not own:
                    continue
                self.entries.append(entry.entry)
                if self.first_ms is None:
                    self.first_ms = entry.timestamp_ms
                for command in own:
                    self._add(command, names, entry.entry, entry.timestamp_ms)
                if self.ended_ms is not None:
                    return

    def _own(self, commands: Sequence[c.Command]) -> Iterator[c.Command]:
        transactional_id, producer_id, number = self._key
        for command in commands:
            if getattr(command, "transactional_id", None) != transactional_id:
                continue
            if isinstance(command, c.InitProducerId):
                if self.entries:
                    yield command
            elif (
                getattr(command, "transaction", None) == number and getattr(command, "producer_id", None) == producer_id
            ):
                yield command

    def _add(self, command: c.Command, names: Mapping[int, str], entry: int, timestamp_ms: int) -> None:
        self.step_count += 1
        if len(self.steps) < _STEPS or isinstance(command, c.EndTxn):
            step = {"entry": entry, "timestamp_ms": timestamp_ms, "sentence": sentence(command, names, self._key[:1])}
            # How it has ended is always shown.
            self.steps = [*self.steps[: _STEPS - 1], step]
        if isinstance(command, c.Append):
            topic = names.get(command.topic_id, f"deleted topic {command.topic_id}")
            counts = self.topics.setdefault(topic, {"records": 0, "size_bytes": 0, "segments": 0, "partitions": []})
            counts["records"] += command.record_count
            counts["size_bytes"] += command.size_bytes
            counts["segments"] += 1
            if command.partition not in counts["partitions"]:
                counts["partitions"].append(command.partition)
            self.records += command.record_count
            self.size_bytes += command.size_bytes
        elif isinstance(command, c.TxnOffsetCommit):
            self.offset_count += len(command.offsets)
            self.offsets += [
                {
                    "group_id": command.group_id,
                    "topic": names.get(one.topic_id, f"deleted topic {one.topic_id}"),
                    "partition": one.partition,
                    "offset": one.offset,
                }
                for one in command.offsets[: max(0, _STEPS - len(self.offsets))]
            ]
        elif isinstance(command, c.SinkBatchCommit):
            self.micro_batch = {
                "query_id": command.writer_id,
                "run_id": command.run_id or None,
                "batch_id": command.batch_id,
            }
        elif isinstance(command, c.EndTxn):
            self._committed, self.ended_ms = command.committed, timestamp_ms
            if command.timed_out_after_ms:
                self.reason = f"it timed out after {duration(command.timed_out_after_ms)}"
            else:
                self.reason = command.fence_reason
        elif isinstance(command, c.InitProducerId):
            # A newer producer has aborted what was open.
            self._committed, self.ended_ms = False, timestamp_ms
            self.reason = command.fence_reason or "a newer producer has initialised the transactional id"
