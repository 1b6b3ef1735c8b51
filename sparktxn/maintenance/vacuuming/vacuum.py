"""The vacuum: deletes what no reader may ask for any more, and nothing else (PROTOCOL.md, "Deleting").

The order is what makes it safe. (1) The checkpoint that is to replace the deleted entries is read whole and compared
with a replay of the log. (2) An entry raises the horizon and the segment floor; it is won and confirmed, or all stops.
(3) The horizon's marker is durable. (4) Only now is marked what to keep, from a state that contains that entry. (5)
Only then is anything deleted: what is unmarked, and was named below the horizon, or born below the floor.

While no checkpoint has come of age the horizon stays, and so does all that was kept for it. Then only files are judged
that are older than the segment floor now, and no entry has named.

Before step 5 the horizon is read again. If another vacuum has gone further, parts that it has deleted were not marked
from, so nothing is deleted here: it is overtaken. If none has, every usable checkpoint from the horizon on must be
readable from what is kept, or nothing is deleted either.

It may die between any two steps, and go on in any process; several may run at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final, Literal, NamedTuple
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import CheckpointHead
from sparktxn._engine.format.commands import Command, OffsetCommit, Vacuum
from sparktxn._engine.format.entry import decode_entry
from sparktxn._engine.format.vacuumhint import VacuumHint
from sparktxn._engine.log.follow.confirm import Passed, Premise, attempt, read_horizon, usable_heads, write_horizon
from sparktxn._engine.log.follow.tail import commands_of
from sparktxn._engine.log.keep.replay import NamedFile, Replay
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.write.storeclock import store_now_ms
from sparktxn._engine.objectstore.contract import ObjectInfo, ObjectStore
from sparktxn._engine.state.rules import files_named_by
from sparktxn._foundation.config.maintenance import VacuumSettings
from sparktxn._foundation.config.topic import topic_setting
from sparktxn._foundation.process.clock import in_time
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import TopicIdPartition
from sparktxn._foundation.values.quantities import counted, duration_text, size_text
from sparktxn._foundation.values.structs import MemberState, StoreState, TableState, TransactionState, TransactionStatus
from sparktxn.errors import CommandRefused, DamagedObject, OutcomeUnknown, StoreUnavailable
from sparktxn.maintenance.attempts import Overtaken, check_not_overtaken, in_attempts
from sparktxn.maintenance.publishing.tableobjects import left_by_others, needed_entries, past_metadata
from sparktxn.maintenance.reachable import Head, Marks, heads_in, mark, open_heads, read_heads
from sparktxn.maintenance.vacuuming.garbage import Garbage, add_silent_signs, delete_garbage, find_garbage
from sparktxn.maintenance.vacuuming.incrementallisting import Placed, list_aged, list_placed, read_hint, write_hint
from sparktxn.store import Store
from sparktxn.store.memberexpiry import members_name

# Which of some files entries have named: read from the entries alone, without a replica of the state.
#
# While the horizon stays, a vacuum need not know what else is kept. A file is named by an entry after the one that it
# was born at, or never.


def named_since(
    objects: ObjectStore, infos: Iterable[ObjectInfo], last: int
) -> dict[TopicIdPartition, dict[str, NamedFile]]:
    """Return those of the files in a listing that entries up to `last` name, by partition and name.

    Entries are read from the first that may name one of them, until all are named.

    Raises:
        DamagedObject: an entry, or an object that it names, is missing or damaged.
        FormatVersionError: a newer version has written one.
    """
    left: dict[TopicIdPartition, set[str]] = {}
    count, first = 0, last
    for info in infos:
        parsed = names.parse_partition_object(info.name)
        born = None if parsed is None else names.parse_segment_born(parsed[2])
        if parsed is not None and born is not None:
            left.setdefault(parsed[:2], set()).add(parsed[2])
            count += 1
            first = min(first, born)
    found: dict[TopicIdPartition, dict[str, NamedFile]] = {}
    previous = None
    for start in range(first + 1, last + 1, _WINDOW):
        if not count:
            break
        numbers = range(start, min(start + _WINDOW, last + 1))
        for number, data in zip(numbers, objects.get_many([*map(names.entry, numbers)]), strict=True):
            if data is None:
                raise DamagedObject(names.entry(number), f"it is missing, and the log has had entry {last}")
            entry = decode_entry(data, names.entry(number), number)
            if previous not in (None, entry.previous):
                raise DamagedObject(names.entry(number), f"it does not follow entry {number - 1}")
            previous = entry.checksum
            for where, name, size_bytes, checksum in files_named_by(commands_of(objects, entry)):
                if name in left.get(where, ()):
                    left[where].remove(name)
                    count -= 1
                    found.setdefault(where, {})[name] = NamedFile(number, size_bytes, checksum)
    return found


# Why a vacuum goes no further: what keeps entries, views and files, and until when. It decides nothing.

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


_NEWEST: Final = 3
_WINDOW: Final = 64
_CANDIDATES: Final = 2
_VACUUMED_ENTRIES_MAX: Final = 4
"""How many entries above its horizon vacuums leave in a store in which nothing happens: their own."""
_NO_GROUP: Final = members_name("")
"""Clients may not use this name, so that the group has no members, and never commits an offset."""


class VacuumReport(Struct, frozen=True, kw_only=True):
    """What a vacuum has done, or with `dry_run` would do.

    `horizon` and `segment_floor` are those now in force; the counts are of objects that were deleted, `size_bytes` is
    what they held as far as listings say. `names` lists them for a dry run. `limits` says what stays that the newest
    entry may not need, why, and until when. `overtaken` is True if other vacuums were ahead of this one each time: it
    has deleted nothing.
    """

    dry_run: bool
    horizon: int
    segment_floor: int
    entries: int = 0
    checkpoints: int = 0
    checkpoint_parts: int = 0
    segments: int = 0
    sealed_files: int = 0
    table_metadata: int = 0
    other: int = 0
    temporary_files: int = 0
    size_bytes: int = 0
    overtaken: bool = False
    names: tuple[str, ...] = ()
    limits: tuple[VacuumLimit, ...] = ()


class _Complete(NamedTuple):
    """A vacuum that has deleted all that it could, with the log's end at `entry`, and these checkpoints.

    Nothing else comes of age before `until_s`, by the process's monotonic clock.
    """

    entry: int
    heads: Sequence[Head]
    settings: VacuumSettings
    until_s: float
    report: VacuumReport


_complete: WeakKeyDictionary[Log, _Complete] = WeakKeyDictionary()
"""The last one of this process in each log."""


@in_time("timeout_s", lambda store: store.log.clock)
def vacuum(
    store: Store,
    settings: Mapping[str, Any] | None = None,
    *,
    dry_run: bool = False,
    now: bool = False,
    timeout_s: float | None = None,
) -> VacuumReport:
    """Delete entries, checkpoints, segments and left-overs that retention no longer holds; see VACUUM_SETTINGS.

    Safe alongside every other process, other vacuums too. After a crash at any moment nothing that a reader needs is
    gone, and the next vacuum finishes. A read view below the new horizon has expired, also one that is in use.

    Args:
        store: an open store.
        settings: ``vacuum.*`` settings.
        dry_run: only return what would be deleted: no entry is written, nothing is deleted.
        now: first write the two checkpoints that the horizon goes by, if entries have changed something since the last
            ones. What `vacuum.retention.ms` allows is then deleted at once. The times that settings ask for still hold.
        timeout_s: how long all of it may take; what is not deleted by then is deleted by the next call.

    Raises:
        ConfigurationError: a setting is unknown or wrong.
        OutcomeUnknown: it is not known whether the entry was won: nothing was deleted; call again.
        StoreUnavailable: the store did not answer; what was not deleted yet is deleted by the next call.
        DamagedObject: the log, or a checkpoint from the horizon on, cannot be read; nothing was deleted.
        FormatVersionError: a checkpoint from the horizon on is of a newer format; nothing was deleted.
    """
    log = arguments.instance("store", store, Store).log
    parsed = VacuumSettings.parse(arguments.mapping("settings", settings))
    dry_run = arguments.boolean("dry_run", dry_run)
    if arguments.boolean("now", now) and not dry_run:
        _checkpoint_twice(log)
    try:
        return in_attempts(lambda: _Round(log, parsed, dry_run=dry_run).run())
    except Overtaken:
        state = log.store_state()
        return VacuumReport(dry_run=dry_run, horizon=state.horizon, segment_floor=state.segment_floor, overtaken=True)


def still_complete(log: Log, settings: Mapping[str, Any]) -> VacuumReport | None:
    """Return what a vacuum would report that deletes nothing; None if it might delete something, or that is not known.

    Nothing can have come of age since the last complete vacuum of this process if log, checkpoints and settings are the
    same. That holds until the first object or view comes of age.
    """
    last = _complete.get(log)
    if last is None or last.settings != VacuumSettings.parse(settings) or log.clock.monotonic_s() >= last.until_s:
        return None
    if log.refresh() != last.entry or heads_in(log.objects.list(names.CHECKPOINTS)) != last.heads:
        return None
    return last.report


def _checkpoint_twice(log: Log) -> None:
    """Write two checkpoints after the newest entry that has changed something: the horizon may rise to the older one.

    Before each is an entry that changes nothing: runs that dead processes have made at the newest one are below the
    horizon then. A crash leaves checkpoints, which later vacuums go by.
    """
    entry = log.refresh()
    if changes_nothing(log, log.store_state().horizon + 1, entry):
        return
    for _ in range(2):
        log.submit([OffsetCommit(log.ids.token(), _NO_GROUP, ())])
        log.checkpoint()


def changes_nothing(log: Log, first: int, last: int) -> bool:
    """Return whether these entries hold nothing but what vacuums write in a store in which nothing else happens."""
    if last - first >= _VACUUMED_ENTRIES_MAX:
        return False
    for entry in range(first, last + 1):
        name = names.entry(entry)
        data = log.objects.get(name)
        # One that is missing was vacuumed meanwhile, so that the horizon is another.
        if data is None or not all(map(_is_vacuums, decode_entry(data, name, entry).commands)):
            return False
    return True


def _is_vacuums(command: Command) -> bool:
    return isinstance(command, Vacuum) or (isinstance(command, OffsetCommit) and command.group_id == _NO_GROUP)


class _Round:
    """One attempt."""

    def __init__(self, log: Log, settings: VacuumSettings, *, dry_run: bool) -> None:
        self._log = log
        self._objects = log.objects
        self._settings = settings
        self._dry_run = dry_run
        self._horizon = 1
        self._hint: VacuumHint | None = None
        self._base_head: CheckpointHead | None = None
        self._verified_entries: frozenset[int] = frozenset()
        self._judged_entry = 0

    def run(self) -> VacuumReport:
        """Take all steps, in their order.

        Raises:
            Overtaken: another vacuum has gone further; what it has deleted is not damage.
        """
        report = attempt(self._objects, lambda: Premise(self._horizon), self._steps)
        if isinstance(report, Passed):
            raise Overtaken
        return report

    def _check_not_overtaken(self) -> None:
        check_not_overtaken(self._objects, Premise(self._horizon))

    def _steps(self) -> VacuumReport:
        self._horizon = read_horizon(self._objects)
        with self._log.known() as known:
            entry, state, tables = known.entry, known.store_state(), known.tables()
            settings_of = {topic.topic_id: topic.settings for topic in known.topics()} if tables else {}
            transactions, halves = known.transactions(), len(known.halves())
        needs = needed_entries(self._objects, tables)
        needed = min((needed for _, needed in needs if needed is not None), default=None)
        now_s = self._log.clock.monotonic_s()
        now_ms = store_now_ms(self._objects, self._log.clock, self._log.ids)
        self._hint = read_hint(self._objects, self._horizon, now_ms, self._settings.list_all_ms)
        listed = heads_in(self._objects.list(names.CHECKPOINTS))
        heads = [head for head in listed if head.entry <= entry]
        candidates = self._candidates(heads, now_ms, inf if needed is None else needed)
        floor = self._floor(state, heads, now_ms, transactions)
        if not candidates and self._is_judged():
            horizon = self._horizon
            if not self._dry_run:
                self._win(max(horizon, state.horizon), floor)
            garbage, placed = self._aged(floor, now_ms, tables)
        else:
            replay, horizon = self._verified(heads, candidates)
            if not self._dry_run:
                # An entry that was won by a vacuum which has died, or has not written its marker yet, stays in force.
                self._win(max(horizon, state.horizon), floor)
                self._write_marker(horizon)
            self._horizon = horizon
            garbage, placed = self._garbage(replay, horizon, floor, now_ms, tables)
        for past in (info for table in tables for info in past_metadata(self._objects, table)):
            garbage.table_metadata.append(past.name)
            garbage.size_bytes += past.size_bytes
        limits = file_limits(
            floor, heads, transactions, self._settings, garbage.young, garbage.young_bytes, garbage.intents
        )
        if not changes_nothing(self._log, horizon + 1, entry):
            history = [(table, at, _history_ms(settings_of.get(table.topic_id))) for table, at in needs]
            verified = self._verified_entries
            limits[:0] = horizon_limits(entry, horizon, heads, verified, history, self._settings, now_ms)
        if not self._dry_run:
            delete_garbage(self._objects, garbage)
            kept, folders = garbage.kept, garbage.kept_folders
            write_hint(self._objects, placed, horizon, floor, now_ms, kept, folders, self._hint)
        report = VacuumReport(
            dry_run=self._dry_run,
            horizon=horizon,
            segment_floor=floor,
            limits=(*limits, *transaction_limits(transactions, halves)),
        )
        if not self._dry_run and needed != 0:
            # While metadata of a table is missing, writing it changes no entry, and lets the horizon move.
            left_ms = self._next_ms(garbage, heads, horizon, floor, now_ms, transactions) - now_ms
            until_s, left = now_s + left_ms / 1000, [head for head in listed if head.entry >= horizon]
            _complete[self._log] = _Complete(self._judged_entry, left, self._settings, until_s, report)
        return replace(
            report,
            entries=len(garbage.entries),
            checkpoints=len(garbage.checkpoints),
            checkpoint_parts=len(garbage.checkpoint_parts),
            segments=len(garbage.segments),
            sealed_files=len(garbage.sealed_files),
            table_metadata=len(garbage.table_metadata),
            other=len(garbage.other),
            temporary_files=len(garbage.temporary_files),
            size_bytes=garbage.size_bytes,
            names=tuple(garbage.names()) if self._dry_run else (),
        )

    def _next_ms(
        self,
        garbage: Garbage,
        heads: Iterable[Head],
        horizon: int,
        floor: int,
        now_ms: int,
        transactions: Iterable[TransactionState],
    ) -> float:
        """Return before when nothing comes of age, by the store's clock, while the log has no new entry.

        That is an object which was too young or is put from now on, or a checkpoint, which moves horizon or floor.
        """
        retention_ms, floor_ms = self._settings.retention_ms, self._floor_age_ms(transactions)
        young_ms = min(self._settings.segment_age_ms, self._settings.temporary_age_ms)
        views = [head.modified_ms for head in heads if head.entry > horizon]
        files = [head.modified_ms for head in heads if head.entry > floor]
        return min(
            now_ms + young_ms,
            garbage.oldest_young_ms + young_ms,
            *(at_ms + retention_ms for at_ms in views if at_ms > now_ms - retention_ms),
            *(at_ms + floor_ms for at_ms in files if at_ms > now_ms - floor_ms),
        )

    def _is_judged(self) -> bool:
        """Return whether an earlier vacuum has judged all that is below the present horizon, or was born below it."""
        return self._horizon == 1 or (self._hint is not None and self._hint.segment_floor >= self._horizon)

    def _candidates(self, heads: Sequence[Head], now_ms: int, needed: float) -> list[int]:
        """Return the entries above the present horizon that are old enough to be the next, oldest first.

        Versions of tables need the entry `needed`.
        """
        old_ms = now_ms - self._settings.retention_ms
        return sorted(
            {head.entry for head in heads if self._horizon < head.entry <= needed and head.modified_ms <= old_ms}
        )

    def _verified(self, heads: Sequence[Head], candidates: Sequence[int]) -> tuple[Replay, int]:
        """Return a replay at the newest checkpoint that it has verified, and the horizon to propose.

        The horizon is a verified checkpoint's entry, one of `candidates`, and not above the older of the two newest
        ones. The present horizon is that of the greatest marker. An entry may have raised it to a checkpoint that is no
        longer usable. Another vacuum's marker, which does not know that checkpoint, was then written later.
        """
        present = self._horizon
        newest = sorted({head.entry for head in heads if head.entry > present})[-_NEWEST:]
        wanted = sorted({*candidates[-_CANDIDATES:], *newest}) if candidates else []
        self._base_head = self._base(heads)
        replay = Replay(self._objects, self._base_head)
        verified = [present]
        for entry in wanted:
            replay.advance(at_most=entry, window=_WINDOW)
            if replay.entry != entry:
                raise Overtaken
            if self._is_whole(replay, [head for head in heads if head.entry == entry]):
                verified.append(entry)
        self._confirm(replay)
        self._verified_entries = frozenset(verified)
        limit = verified[-2] if len(verified) > 1 else present
        return replay, max(entry for entry in verified if entry <= limit and entry in {present, *candidates})

    def _base(self, heads: Sequence[Head]) -> CheckpointHead | None:
        """Return what the replay begins with: the checkpoint at the horizon, which an earlier vacuum has verified."""
        if self._horizon <= 1:
            return None
        listed = [head for head in heads if head.entry == self._horizon]
        for head in usable_heads(self._objects, read_heads(self._objects, listed)):
            return head
        raise DamagedObject(names.horizon(self._horizon), "there is no checkpoint of that entry that is whole")

    def _is_whole(self, replay: Replay, listed: Sequence[Head]) -> bool:
        found = False
        for head in usable_heads(self._objects, read_heads(self._objects, listed)):
            problem = replay.problem(head)
            if problem is None:
                found = True
            else:
                self._check_not_overtaken()
                log_event("checkpoint_contradicts_log", entry=head.entry, problem=problem)
        return found

    def _confirm(self, replay: Replay) -> None:
        """Note that what the replay has read is final.

        Raises:
            Overtaken: another vacuum may have deleted some of it, and slow writers created it again.
        """
        check_not_overtaken(self._objects, replay.slots)
        replay.confirmed_entry = replay.entry

    def _floor(
        self, state: StoreState, heads: Sequence[Head], now_ms: int, transactions: Iterable[TransactionState]
    ) -> int:
        """Return the newest checkpoint's entry that is older than any upload may take, by the store's clock."""
        old_ms = now_ms - self._floor_age_ms(transactions)
        return max([state.segment_floor, *(head.entry for head in heads if head.modified_ms <= old_ms)])

    def _floor_age_ms(self, transactions: Iterable[TransactionState]) -> int:
        longest_ms = max((transaction.timeout_ms for transaction in transactions), default=0)
        return max(self._settings.segment_age_ms, FLOOR_PER_TIMEOUT * longest_ms)

    def _win(self, horizon: int, floor: int) -> None:
        """Commit the new horizon and floor; succeed if they are already in force."""
        try:
            self._log.submit([Vacuum(horizon, floor)])
        except CommandRefused:
            raise Overtaken from None
        except OutcomeUnknown as unknown:
            # Whether it was won is of no account once another vacuum has gone further.
            try:
                check_not_overtaken(self._objects, Premise(horizon))
            except StoreUnavailable:
                raise unknown from None
            raise

    def _write_marker(self, horizon: int) -> None:
        """Write the horizon's marker, which leaves a usable checkpoint of its entry.

        Raises:
            DamagedObject: there is none, such as when another vacuum's marker was written since it was verified.
        """
        if horizon <= 1:
            return
        heads = [head for head in heads_in(self._objects.list(names.CHECKPOINTS)) if head.entry >= horizon]
        usable = usable_heads(self._objects, read_heads(self._objects, heads))
        if not any(head.entry == horizon for head in usable):
            raise DamagedObject(names.horizon(horizon), "no checkpoint of that entry is whole")
        kept = [head.checkpoint for head in usable if head.base < horizon]
        write_horizon(self._objects, self._log.clock, horizon, kept)

    def _aged(self, floor: int, now_ms: int, tables: Sequence[TableState]) -> tuple[Garbage, Placed]:
        """Return what may be deleted while the horizon stays, and what was judged.

        What an earlier vacuum has kept for the horizon is kept. A state younger than the floor's entry says what is
        named: no later entry names a file that was born below it.
        """
        entry = self._judged_entry = self._log.refresh()
        with self._log.known() as known:
            state, topics = known.store_state(), known.topics()
        if not self._dry_run and state.segment_floor < floor:
            raise AssertionError(f"entry {entry} does not hold the vacuum that was won")
        folders = frozenset(
            names.partition_folder(topic.name, topic.topic_id, number)
            for topic in topics
            for number in range(topic.partition_count)
            if not topic.is_internal
        )
        placed = list_aged(self._objects, self._hint, folders)
        infos = list(placed.objects)
        marks = Marks(segments=named_since(self._objects, infos, entry))
        before_ms = now_ms - self._settings.temporary_age_ms
        # With the horizon of a new store nothing is below it.
        aged_ms = now_ms - self._settings.segment_age_ms
        is_left = left_by_others(tables, aged_ms)
        garbage = find_garbage(self._objects, (), marks, infos, 1, floor, entry, before_ms, aged_ms, is_left)

        def members() -> Iterable[MemberState]:
            with self._log.known() as known:
                return known.members()

        add_silent_signs(garbage, self._objects, members, before_ms)
        self._check_not_overtaken()
        return garbage, placed

    def _garbage(
        self, replay: Replay, horizon: int, floor: int, now_ms: int, tables: Sequence[TableState]
    ) -> tuple[Garbage, Placed]:
        """Return what may be deleted, and what was judged: from listings and a state younger than the marker."""
        listing = self._objects.list(names.CHECKPOINTS)
        heads = open_heads(self._objects, [head for head in heads_in(listing) if head.entry >= horizon])
        # The log is known to go as far as this: asking for entries after it would be requests that find nothing.
        replay.advance_to(self._log.refresh(), _WINDOW)
        self._judged_entry = replay.entry
        self._confirm(replay)
        state: StoreState = replay.parts.get(("store",)) or StoreState()
        if not self._dry_run and (state.horizon < horizon or state.segment_floor < floor):
            raise AssertionError(f"entry {replay.entry} does not hold the vacuum that was won")
        marks = mark(self._objects, heads, horizon, replay)
        before_ms = now_ms - self._settings.temporary_age_ms
        # Marking has found a usable head at the horizon, if that is not 1.
        new = next((head for head in usable_heads(self._objects, heads) if head.entry == horizon), None)
        new = new if horizon > 1 else None
        placed = list_placed(self._objects, replay, self._hint, self._base_head, new, marks.segments)
        aged_ms = now_ms - self._settings.segment_age_ms
        is_left = left_by_others(tables, aged_ms)
        garbage = find_garbage(
            self._objects, listing, marks, placed.objects, horizon, floor, replay.entry, before_ms, aged_ms, is_left
        )
        add_silent_signs(garbage, self._objects, lambda: _members(replay), before_ms)
        self._check_not_overtaken()
        for name, entry in marks.needed.items():
            raise DamagedObject(
                name,
                f"the checkpoint after entry {entry} names it and it does not exist, and "
                f"{counted(len(marks.needed) - 1, 'other')} "
                "like it: nothing was deleted; restore them from a copy of the store",
            )
        return garbage, placed


def _members(replay: Replay) -> Iterable[MemberState]:
    """Return the members of all groups at a replay's entry."""
    for part in replay.parts.names("groups/"):
        yield from (record for record in replay.parts.part(part).values() if isinstance(record, MemberState))


def _history_ms(settings: Mapping[str, str] | None) -> int:
    """Return the table.history.ms of a topic; None: of a deleted one."""
    return int(topic_setting(settings or {}, "table.history.ms"))
