"""Why a vacuum goes no further: what keeps entries, views and files, and until when. It decides nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, Literal

from msgspec import Struct

from sparktxn.config.maintenance import VacuumSettings
from sparktxn.maintenance.keptobjects import Head
from sparktxn.values.counted import counted
from sparktxn.values.quantities import duration_text, size_text
from sparktxn.values.structs import TableState, TransactionState, TransactionStatus

__all__ = ["FLOOR_PER_TIMEOUT", "LimitReason", "VacuumLimit", "file_limits", "horizon_limits", "transaction_limits"]

FLOOR_PER_TIMEOUT: Final = 2
"""How many transaction time-outs old a segment must be that nothing names."""

LimitReason = Literal[
    "retention",
    "checkpoints",
    "damaged checkpoint",
    "table versions",
    "table metadata",
    "segment age",
    "transaction time-out",
    "open transactions",
    "prepared transactions",
    "half messages",
    "intents",
]


class VacuumLimit(Struct, frozen=True, kw_only=True):
    """One reason why something stays that the newest entry may not need.

    `entry` is the first entry that stays, and whose view can be read; None where the reason is not about entries.
    `until_ms` is the store's time from which on the reason no longer holds; None if no time ends it. `text` says both
    for people, and what ends it.
    """

    reason: LimitReason
    text: str
    entry: int | None = None
    until_ms: int | None = None


def horizon_limits(
    entry: int,
    horizon: int,
    heads: Sequence[Head],
    verified: Collection[int],
    tables: Iterable[tuple[TableState, int | None, int]],
    settings: VacuumSettings,
    now_ms: int,
) -> list[VacuumLimit]:
    """Return what keeps the horizon from the newest entry.

    Args:
        entry: the newest entry.
        horizon: the horizon that this vacuum has chosen.
        heads: the heads of all checkpoints.
        verified: the entries of those that this vacuum has verified.
        tables: tables with the entry that each needs, 0 while metadata is missing, and its table.history.ms.
        settings: the vacuum's.
        now_ms: the store's time.
    """
    found: list[VacuumLimit] = []
    keeps = f"entries from {horizon} on, and what only they name"
    above = sorted({head.entry for head in heads if head.entry > horizon})
    for table, needed, history_ms in tables:
        if needed is not None and needed < entry and (not above or above[0] > needed):
            found.append(_table_limit(table, needed, history_ms, horizon))
    if horizon >= entry:
        return found
    if above:
        next_ms = min(head.modified_ms for head in heads if head.entry == above[0])
        until_ms = next_ms + settings.retention_ms
        if until_ms > now_ms:
            age = duration_text(settings.retention_ms)
            text = f"{keeps}: the checkpoint after entry {above[0]} is younger than vacuum.retention.ms, {age}"
            found.append(VacuumLimit(reason="retention", text=text, entry=horizon, until_ms=until_ms))
        elif above[0] not in verified:
            text = f"{keeps}: the checkpoint after entry {above[0]} contradicts the log, as an error in the log says"
            found.append(VacuumLimit(reason="damaged checkpoint", text=text, entry=horizon))
    if len(above) < 2:
        has = "no checkpoint is newer" if not above else f"only the checkpoint of entry {above[0]} is newer"
        text = f"{keeps}: {has}, and --now (now=True) writes two"
        found.append(VacuumLimit(reason="checkpoints", text=text, entry=horizon))
    return found


def _table_limit(table: TableState, needed: int, history_ms: int, horizon: int) -> VacuumLimit:
    if not needed:
        text = (
            f"all entries from {horizon} on: the metadata of version {table.version} of table {table.name!r} is not "
            "complete, and engines may read the version before. The next publication completes it"
        )
        return VacuumLimit(reason="table metadata", text=text, entry=horizon)
    until_ms = table.kept[1].timestamp_ms + history_ms if len(table.kept) > 1 else None
    text = (
        f"entries from {needed} on: versions of table {table.name!r} from {table.kept[0].version} on are promised for "
        f"table.history.ms, {duration_text(history_ms)}. The first publication after that gives them up"
    )
    return VacuumLimit(reason="table versions", text=text, entry=needed, until_ms=until_ms)


def file_limits(
    floor: int,
    heads: Sequence[Head],
    transactions: Iterable[TransactionState],
    settings: VacuumSettings,
    files: int,
    size_bytes: int,
    intents: int,
) -> list[VacuumLimit]:
    """Return what keeps `files` that no view from the horizon on names, and intents."""
    found: list[VacuumLimit] = []
    if files:
        longest = max(transactions, key=lambda one: one.timeout_ms, default=None)
        timeout_ms = FLOOR_PER_TIMEOUT * longest.timeout_ms if longest is not None else 0
        age_ms = max(settings.segment_age_ms, timeout_ms)
        newest = max((head for head in heads if head.entry > floor), key=lambda head: head.entry, default=None)
        kept = (
            f"{counted(files, 'file')} ({size_text(size_bytes)}) that no view needs, uploaded at entry {floor} or later"
        )
        reason: LimitReason = "segment age"
        why = f"may be of an upload that is under way, for vacuum.segment.age.ms, {duration_text(age_ms)}"
        if longest is not None and timeout_ms > settings.segment_age_ms:
            reason = "transaction time-out"
            why = (
                f"may be of a transaction that is under way, for twice the longest transaction time-out, that of "
                f"{longest.transactional_id!r}, {duration_text(age_ms)}"
            )
        if newest is None:
            why += ", counted from a checkpoint that is still to be made: --now (now=True) makes it"
        until_ms = None if newest is None else newest.modified_ms + age_ms
        found.append(VacuumLimit(reason=reason, text=f"{kept}: they {why}", until_ms=until_ms))
    if intents:
        text = (
            f"{counted(intents, 'intent')} of lists that were not written at once, until the log has 1,000 more entries"
        )
        found.append(VacuumLimit(reason="intents", text=text))
    return found


def transaction_limits(transactions: Iterable[TransactionState], halves: int) -> list[VacuumLimit]:
    """Return what keeps records of transactions that have not ended."""
    found: list[VacuumLimit] = []
    ongoing = [one for one in transactions if one.status is TransactionStatus.ONGOING]
    for is_prepared, reason, ends in (
        (False, "open transactions", "until they end, or time out"),
        (True, "prepared transactions", "until their coordinators end them: no time does"),
    ):
        named = sorted(one.transactional_id for one in ongoing if (one.prepared is not None) == is_prepared)
        if named:
            ids = ", ".join(map(repr, named[:3])) + (" and others" if len(named) > 3 else "")
            text = f"records of {counted(len(named), reason[:-1])} ({ids}), {ends}"
            found.append(VacuumLimit(reason=reason, text=text))  # type: ignore[arg-type]
    if halves:
        text = f"records of {counted(halves, 'half message')} that are not settled, until they are"
        found.append(VacuumLimit(reason="half messages", text=text))
    return found
