"""The sweep: ends what has timed out, transactions and members, and forgets what is idle (PROTOCOL.md, "Time-outs").

Every proposal is a list of its own, so one that comes too late stops no other. The state at that moment decides in
which entry it is. Any number of sweeps may run at once, and any of them may die at any moment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Command, EndTxn, ExpireOffsets, ExpireProducers, ExpireTransactionalId
from sparktxn._engine.format.entry import decode_entry
from sparktxn._engine.log.follow.confirm import Premise, judge, read_horizon
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.write.storeclock import modified_ms, rounding_ms, store_now_ms
from sparktxn._engine.log.write.transactiontimeouts import Observations, Overdue, overdue, timeout_abort
from sparktxn._foundation.config.maintenance import SweepSettings
from sparktxn._foundation.config.topic import offsets_retention_ms
from sparktxn._foundation.process.clock import in_time, is_time_up
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import TopicIdPartition
from sparktxn._foundation.values.structs import (
    CommittedOffset,
    PartitionSegments,
    ProducerState,
    TransactionState,
    TransactionStatus,
)
from sparktxn.errors import DamagedObject, OutcomeUnknown, StoreUnavailable
from sparktxn.maintenance.proposals import LostRace, Proposals, named
from sparktxn.store import Store
from sparktxn.store.memberexpiry import OverdueMember, overdue_members, propose_expiry

# Since when something is idle, by the object store's clock alone (PROTOCOL.md, "Expiry").
#
# The log says in which entry something was last used. Or it says by that entry's timestamp, which never falls from
# one entry to the next, whether it is older than another entry. Only the store can say how old an entry is: its
# timestamp is its writer's clock.

_NEVER: Final = -(2**63)
_ALWAYS: Final = 2**63 - 1


class IdleFrom(Struct, frozen=True):
    """What has been idle for a time: all that was last used in `entry` or before it.

    Entries before `first_entry` have been deleted. Where `entry` is not among those that are left, the store does not
    show what was used before them. Then the timestamp of that use must be at or below `timestamp_ms_max`.
    """

    entry: int
    timestamp_ms: int
    first_entry: int
    timestamp_ms_max: int

    def holds_since(self, timestamp_ms: int) -> bool:
        """Return True for what was last used in an entry with this timestamp."""
        return timestamp_ms < self.timestamp_ms and timestamp_ms <= self.timestamp_ms_max

    def holds_since_entry(self, entry: int, timestamp_ms: int) -> bool:
        """Return True for what was last used in `entry`, or before it, and bears this timestamp."""
        return entry <= self.entry and timestamp_ms <= self.timestamp_ms_max


class Ages:
    """How old the log's entries are, at the store's time `now_ms`. Entries that come later are not looked at."""

    def __init__(self, log: Log, now_ms: int) -> None:
        self._objects = log.objects
        self._now_ms = now_ms
        self._skew_ms_max = log.settings.clock_skew_ms_max
        self._first = read_horizon(log.objects)
        self._last = log.entry
        self._written_ms: dict[int, int | None] = {}

    def idle_for(self, duration_ms: int) -> IdleFrom:
        """Return what has not been used for `duration_ms`.

        Raises:
            StoreUnavailable: the store did not answer.
            DamagedObject: an entry cannot be read.
        """
        if self._last < self._first or not self._is_old(self._first, duration_ms):
            # Every writer has compared its clock with the store's before: so far may a timestamp be wrong.
            latest_ms = self._now_ms - duration_ms - self._skew_ms_max
            return IdleFrom(self._first - 1, self._timestamp_ms(self._first), self._first, latest_ms)
        low, high = self._first, self._last + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self._is_old(middle, duration_ms):
                low = middle
            else:
                high = middle
        return IdleFrom(low, self._timestamp_ms(low + 1), self._first, _ALWAYS)

    def written_ms(self, entry: int) -> int | None:
        """Return when the store took the entry, or the first one that is left where that has been deleted.

        None if a vacuum deletes it at this moment.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        return self._written(max(entry, self._first))

    def _written(self, entry: int) -> int | None:
        if entry not in self._written_ms:
            self._written_ms[entry] = modified_ms(self._objects, names.entry(entry))
        return self._written_ms[entry]

    def _is_old(self, entry: int, duration_ms: int) -> bool:
        """Return True if the store shows that it has held the entry for `duration_ms`.

        It does not for one that a vacuum deletes at this moment: vacuums may keep less than that. A later sweep knows.
        """
        written_ms = self._written(entry)
        # That a store rounds its times to whole seconds is nothing to an expiration.
        return written_ms is not None and self._now_ms - written_ms >= duration_ms

    def _timestamp_ms(self, entry: int) -> int:
        """Return the entry's timestamp; the greatest number after the last one, the least for a deleted one."""
        if entry > self._last:
            return _ALWAYS
        name = names.entry(entry)
        data = self._objects.get(name)
        if data is not None:
            return decode_entry(data, name, entry).timestamp_ms
        if judge(self._objects, Premise(entry)) is not None:
            return _NEVER
        raise DamagedObject(name, f"it is missing, and the log goes on to entry {self._last}")


_IDLE: Final = (TransactionStatus.EMPTY, TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)
_NAMED_PER_COMMAND: Final = 100


class TimedOutTransaction(Struct, frozen=True):
    """A transaction that the sweep has aborted; its producer is fenced and gets the time in its error."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction: int
    timed_out_after_ms: int


class ExpiredMember(Struct, frozen=True):
    """A member of a group that the sweep has taken out, and why.

    With the reason ``session`` it was silent for `after_ms`, with ``rebalance`` it owed partitions for so long.
    """

    group_id: str
    member_id: str
    reason: str
    after_ms: int


class SweepReport(Struct, frozen=True, kw_only=True):
    """What a sweep has done, or with `dry_run` would do.

    Producers and offsets are counted as they were proposed; some of them may have been used in that instant, and stay.
    `unresolved` proposals had no known outcome at the deadline, or were not made any more: the next sweep looks again.
    """

    timed_out: tuple[TimedOutTransaction, ...] = ()
    expired_members: tuple[ExpiredMember, ...] = ()
    expired_transactional_ids: tuple[str, ...] = ()
    expired_producers: int = 0
    expired_offsets: int = 0
    lost: tuple[LostRace, ...] = ()
    unresolved: int = 0
    dry_run: bool = False


class Sweeper:
    """Sweeps one store now and then, and remembers in between when it first saw each open transaction.

    Their time-outs are measured by this process's monotonic clock: the first `sweep` aborts nothing. Those of members
    are measured by the store's. For one thread at a time.

    Args:
        store: the store.
        settings: names of the configuration's table "Maintenance".

    Raises:
        ConfigurationError: a setting is unknown or wrong.
    """

    def __init__(self, store: Store, settings: Mapping[str, Any] | None = None) -> None:
        self._store = arguments.instance("store", store, Store)
        self._settings = SweepSettings.parse(arguments.mapping("settings", settings))
        self._observations = Observations()

    def __repr__(self) -> str:
        return f"Sweeper({self._store!r})"

    @in_time("timeout_s", lambda sweeper: sweeper._store.log.clock)
    def sweep(self, timeout_s: float | None = None) -> SweepReport:
        """Propose what is due, and return what was done. Lost races are values in the report, not errors.

        Raises:
            StoreUnavailable, DamagedObject, OutcomeUnknown: the state could not be read.
        """
        log = self._store.log
        log.refresh()
        transactions = log.transactions()
        overdue = self._observations.overdue(transactions, log.clock.monotonic_s())
        return _Round(self._store, self._settings).sweep(transactions, overdue)


@in_time("timeout_s", lambda store: store.log.clock)
def sweep(
    store: Store,
    settings: Mapping[str, Any] | None = None,
    *,
    dry_run: bool = False,
    timeout_s: float | None = None,
) -> SweepReport:
    """Sweep once: time-outs are measured by the object store's clock, from the entry that began each transaction.

    Those of a group's members count from their last sign of life.

    Lost races are values in the report, not errors. Safe alongside every other process, and to repeat after a crash.
    With `dry_run` no entry is written: the report has what is due.

    Raises:
        ConfigurationError: a setting is unknown or wrong.
        StoreUnavailable, DamagedObject, OutcomeUnknown: the state, or the store's time, could not be read.
    """
    arguments.instance("store", store, Store)
    parsed = SweepSettings.parse(arguments.mapping("settings", settings))
    dry_run = arguments.boolean("dry_run", dry_run)
    store.log.refresh()
    transactions = store.log.transactions()
    round_ = _Round(store, parsed, dry_run=dry_run)
    return round_.sweep(transactions, round_.overdue(transactions))


class _Round:
    """One sweep, at one time of the store."""

    def __init__(self, store: Store, settings: SweepSettings, *, dry_run: bool = False) -> None:
        self._log = store.log
        self._dry_run = dry_run
        self._settings = settings
        self._proposals = Proposals(store.log)
        self._now_ms = store_now_ms(self._log.objects, self._log.clock, self._log.ids)
        self._ages = Ages(self._log, self._now_ms)

    def overdue(self, transactions: Iterable[TransactionState]) -> list[Overdue]:
        """Return the transactions whose first entry is older than their time-out, by the store's clock alone.

        Where that entry has been vacuumed, the first one that is left is younger, which only delays an abort.
        """
        return overdue(transactions, self._open_ms)

    def _open_ms(self, transaction: TransactionState) -> tuple[int, int] | None:
        began_ms = self._ages.written_ms(transaction.start_entry) if transaction.start_entry >= 0 else None
        return None if began_ms is None else (self._now_ms - began_ms, rounding_ms(self._now_ms, began_ms))

    def sweep(self, transactions: Sequence[TransactionState], overdue: Sequence[Overdue]) -> SweepReport:
        """Propose everything, and report."""
        timed_out = tuple(
            TimedOutTransaction(
                command.transactional_id,
                command.producer_id,
                command.producer_epoch,
                command.transaction,
                command.timed_out_after_ms,
            )
            for command in self._proposed([timeout_abort(found) for found in overdue])
            if isinstance(command, EndTxn)
        )
        expired_members = tuple(self._expired_members())
        expired_ids = tuple(
            command.transactional_id
            for command in self._proposed([_expire(idle) for idle in self._idle_ids(transactions)])
            if isinstance(command, ExpireTransactionalId)
        )
        producers = self._proposed(self._idle_producers())
        offsets = self._proposed([*self._offsets_left_behind(), *self._idle_offsets()])
        return SweepReport(
            timed_out=timed_out,
            expired_members=expired_members,
            expired_transactional_ids=expired_ids,
            expired_producers=sum(named(command) for command in producers),
            expired_offsets=sum(
                len(command.partitions) + len(command.idle) for command in offsets if isinstance(command, ExpireOffsets)
            ),
            lost=tuple(self._proposals.lost),
            unresolved=self._proposals.unresolved,
            dry_run=self._dry_run,
        )

    def _proposed(self, commands: Sequence[Command]) -> list[Command]:
        """Return the commands that this sweep has put into effect; all of them for a dry run."""
        if self._dry_run:
            return list(commands)
        done = []
        for command, result in self._proposals.accepted(commands, _about):
            if result.duplicate:
                self._proposals.lost.append(LostRace(_about(command), "another sweep has done it"))
            else:
                done.append(command)
        return done

    # members of groups

    def _expired_members(self) -> Iterator[ExpiredMember]:
        """Take out the overdue members of all groups; all that are due for a dry run."""
        for group in self._log.groups():
            overdue = overdue_members(self._log, group.group_id, self._now_ms, self._ages.written_ms)
            for late in overdue if self._dry_run else self._taken_out(group.group_id, overdue):
                yield ExpiredMember(group.group_id, late.member.member_id, late.reason, late.after_ms)

    def _taken_out(self, group_id: str, overdue: Sequence[OverdueMember]) -> Sequence[OverdueMember]:
        if not overdue:
            return ()
        if is_time_up():
            self._proposals.unresolved += len(overdue)
            return ()
        try:
            return propose_expiry(self._log, group_id, overdue)
        except (OutcomeUnknown, StoreUnavailable):
            self._proposals.unresolved += len(overdue)
            return ()

    # what is idle

    def _idle_ids(self, transactions: Iterable[TransactionState]) -> list[TransactionState]:
        """Return transactional ids that are between transactions and were unused for long (K46).

        What others outside rely on, a sink's batches and how a prepared transaction ended, only if a setting says so.
        """
        by_expiration: dict[int, list[TransactionState]] = defaultdict(list)
        for transaction in transactions:
            expiration_ms: int | None = self._settings.transactional_id_expiration_ms
            if transaction.sink is not None or transaction.last_prepared is not None:
                expiration_ms = self._settings.sink_expiration_ms
            if transaction.status in _IDLE and expiration_ms is not None:
                by_expiration[expiration_ms].append(transaction)
        found = []
        for expiration_ms, candidates in by_expiration.items():
            idle = self._ages.idle_for(expiration_ms)
            found += [known for known in candidates if idle.holds_since(known.last_update_timestamp_ms)]
        return found

    def _idle_producers(self) -> list[Command]:
        """Return commands that forget idle producers, by the age of the entry of the last record or marker (K69).

        Times of records are the application's, and say nothing. Producers of partitions that do not exist any more are
        of no use.
        """
        by_partition: dict[TopicIdPartition, list[ProducerState]] = defaultdict(list)
        for producer in self._log.all_producers():
            by_partition[producer.topic_id, producer.partition].append(producer)
        idle: IdleFrom | None = None
        commands: list[Command] = []
        for where, producers in sorted(by_partition.items()):
            found = self._log.partition(*where)
            if found is not None:
                idle = idle or self._ages.idle_for(self._settings.producer_id_expiration_ms)
                producers = [
                    producer
                    for producer in producers
                    if producer.current_transaction_first_offset < 0
                    and idle.holds_since_entry(_last_entry(producer, found[1]), producer.timestamp_ms)
                ]
            seen = [
                (known.producer_id, known.producer_epoch, known.last_sequence, known.coordinator_epoch)
                for known in producers
            ]
            commands += [ExpireProducers(*where, tuple(some)) for some in _chunks(seen)]
        return commands

    def _offsets_left_behind(self) -> list[Command]:
        """Return committed offsets in partitions that do not exist any more."""
        exists: dict[TopicIdPartition, bool] = {}
        by_group: dict[str, list[TopicIdPartition]] = defaultdict(list)
        for offset in self._log.committed_offsets():
            where = (offset.topic_id, offset.partition)
            if where not in exists:
                exists[where] = self._log.partition_state(*where) is not None
            if not exists[where]:
                by_group[offset.group_id].append(where)
        return [
            ExpireOffsets(group_id, tuple(some))
            for group_id, wheres in sorted(by_group.items())
            for some in _chunks(sorted(wheres))
        ]

    def _idle_offsets(self) -> Iterator[Command]:
        """Yield offsets of groups long without members, and what is left of groups without any (KIP-211).

        An offset that was committed since counts from then on. One with a newer one in an open transaction stays. So do
        those of a group whose name is a transactional id with a sink's batches: they are where an import goes on.
        """
        empty = {group.group_id: group for group in self._log.empty_groups()}
        members = {group.group_id for group in self._log.groups()}
        by_group: dict[str, list[CommittedOffset]] = defaultdict(list)
        for offset in self._log.committed_offsets():
            by_group[offset.group_id].append(offset)
        unused: IdleFrom | None = None
        for group_id, offsets in sorted(by_group.items()):
            if group_id in members:
                continue
            unused = unused or self._ages.idle_for(offsets_retention_ms(self._log.store_state().topic_defaults))
            since = empty.get(group_id)
            empty_entry, emptied_ms = (since.entry, since.timestamp_ms) if since is not None else (0, 0)
            idle = [
                (offset.topic_id, offset.partition, offset.effective_entry)
                for offset in offsets
                if unused.holds_since_entry(
                    max(offset.effective_entry, empty_entry), max(offset.commit_timestamp_ms, emptied_ms)
                )
                and not self._log.pending_offsets(group_id, offset.topic_id, offset.partition)
            ]
            if idle and not self._is_sink(group_id):
                for some in _chunks(sorted(idle)):
                    yield ExpireOffsets(group_id, (), tuple(some), empty_entry)
        for group_id in sorted(empty.keys() - by_group.keys()):
            if not self._log.group_pending_offsets(group_id):
                yield ExpireOffsets(group_id, empty_entry=empty[group_id].entry)

    def _is_sink(self, transactional_id: str) -> bool:
        transaction = self._log.transaction(transactional_id)
        return transaction is not None and transaction.sink is not None


def _expire(idle: TransactionState) -> Command:
    return ExpireTransactionalId(idle.transactional_id, idle.producer_id, idle.producer_epoch, idle.transaction)


def _last_entry(producer: ProducerState, located: PartitionSegments) -> int:
    """Return an entry not before the producer's last one in the partition; 0 if its records have been deleted."""
    marked = max(producer.coordinator_epoch, 0)
    if not producer.batches:
        return marked
    offset = producer.batches[-1].base_offset
    index = bisect_right(located.segments, offset, key=lambda segment: segment.base_offset) - 1
    if index >= 0:
        return max(marked, located.segments[index].entry)
    return max((run.entry_max for run in located.sealed if run.base_offset <= offset < run.end_offset), default=marked)


def _chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (values[start : start + _NAMED_PER_COMMAND] for start in range(0, len(values), _NAMED_PER_COMMAND))


def _about(command: Command) -> str:
    if isinstance(command, EndTxn):
        return f"transaction {command.transaction} of {command.transactional_id!r}"
    if isinstance(command, ExpireTransactionalId):
        return f"transactional id {command.transactional_id!r}"
    if isinstance(command, ExpireProducers):
        return f"producers of partition {command.partition} of topic id {command.topic_id}"
    return f"offsets of group {getattr(command, 'group_id', '')!r}"
