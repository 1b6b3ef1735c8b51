"""Reading a store's figures: one snapshot of its state, a few listings, and the entries that are new.

Nothing is written, and no transaction is timed out. The work of a scrape grows with topics, partitions and groups. It
does not grow with records, segments that are sealed, or entries: of these a scrape reads a bounded number.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import SEGMENTS_PREFIX
from sparktxn._engine.log.keep.sealedruns import sizes_of, small_files
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.entrysummary import summaries
from sparktxn._engine.log.views.viewing import Snapshot
from sparktxn._engine.log.write.storeclock import modified_ms
from sparktxn._engine.state.transactions.partitions import last_stable_offset
from sparktxn._foundation.config.maintenance import RewriteSettings
from sparktxn._foundation.values.structs import (
    CommittedOffset,
    MemberState,
    PartitionSegments,
    StoreState,
    TopicState,
    TransactionState,
    TransactionStatus,
)
from sparktxn.errors import ViewExpired
from sparktxn.store import Store
from sparktxn.store.memberwatch import SeenMember, seen_members

Figures = dict[str, list[tuple[tuple[str, ...], float]]]
"""The samples of each name: the values of its labels, and the figure."""

_PARTS: Final = ("store", "topics/", "transactions/", "groups/", SEGMENTS_PREFIX)
_OLDEST_SHOWN: Final = 100
_ABORTING_SHOWN: Final = 100
_ABORTING_COUNTED: Final = 1_000
_ENTRIES_PER_SCRAPE: Final = 2_000
_ENTRIES_PER_REPLAY: Final = 10_000
"""After so many entries the replay that counts them begins anew, as it holds each segment that they name."""
_GROUP_PARTITIONS_SHOWN: Final = 20_000
"""Of so many partitions of groups the offset and the lag are shown, by group; the sums are of all."""
_SMALL_BYTES: Final = RewriteSettings().target_bytes // 2
_SMALL_FILES_MERGED: Final = RewriteSettings().min_segments


class StoreFigures:
    """Reads the figures of an open store, for one scrape at a time."""

    def __init__(self, store: Store) -> None:
        self._log = store.log
        self._endings = _Endings(store.log)
        self._lock = threading.Lock()
        self._created_ms = 0

    def read(self) -> Figures:
        """Return the figures as they are now.

        Raises:
            StoreUnavailable, OutcomeUnknown: the store did not answer by the caller's deadline.
            DamagedObject: it cannot be read.
        """
        with self._lock:
            # Adopts checkpoints of writers: a process that only follows would hold each new segment by itself.
            self._log.refresh()
            snapshot = self._log.snapshot(_PARTS)
            now_ms = self._log.clock.wall_ms()
            figures: Figures = defaultdict(list)
            _read_partitions(snapshot, figures)
            members = [record for record in snapshot.records if isinstance(record, MemberState)]
            _read_members(seen_members(self._log, members=members), now_ms, figures)
            _read_groups(snapshot, figures)
            _read_files(snapshot, figures)
            _read_transactions(snapshot, now_ms, figures)
            self._endings.follow(snapshot.entry, figures)
            self._read_log(snapshot, now_ms, figures)
            return figures

    def _read_log(self, snapshot: Snapshot, now_ms: int, figures: Figures) -> None:
        state = next((record for record in snapshot.records if isinstance(record, StoreState)), StoreState())
        figures["txnlog_entries_total"].append(((), snapshot.entry))
        figures["txnlog_horizon_entry"].append(((), state.horizon))
        if snapshot.entry:
            figures["txnlog_last_entry_age_seconds"].append(((), _age_s(snapshot.timestamp_ms, now_ms)))
        vacuumed_ms = _vacuumed_ms(self._log)
        if vacuumed_ms:
            figures["txnlog_last_vacuum_age_seconds"].append(((), _age_s(vacuumed_ms, now_ms)))
        elif snapshot.entry:
            self._created_ms = self._created_ms or modified_ms(self._log.objects, names.entry(1)) or 0
            if self._created_ms:
                figures["txnlog_never_vacuumed_age_seconds"].append(((), _age_s(self._created_ms, now_ms)))


class _Endings:
    """Counts the transactions that entries end, from the first scrape on."""

    def __init__(self, log: Log) -> None:
        self._objects = log.objects
        self._replay = summaries(log.objects)
        self._replayed = 0
        self._counted: int | None = None
        self._uncounted = 0
        self._ended = {"committed": 0, "aborted": 0}
        self._ended_by_id: dict[str, dict[str, int]] = {}

    def follow(self, newest: int, figures: Figures) -> None:
        """Count the entries up to `newest`, or as many as one scrape may read; the next one continues there."""
        if self._counted is None:
            self._counted = newest
        last = min(newest, self._counted + _ENTRIES_PER_SCRAPE)
        if self._counted < last:
            self._count(self._counted + 1, last)
            self._counted = last
        for outcome, count in self._ended.items():
            figures["txnlog_transactions_total"].append(((outcome,), count))
        most = sorted(self._ended_by_id.items(), key=lambda one: (-one[1]["aborted"], one[0]))[:_ABORTING_SHOWN]
        figures["txnlog_transactional_id_transactions_total"] += [
            ((transactional_id, outcome), count) for transactional_id, ended in most for outcome, count in ended.items()
        ]
        figures["txnlog_entries_uncounted_total"].append(((), self._uncounted))
        figures["txnlog_entries_to_count"].append(((), newest - last))

    def _count(self, first: int, last: int) -> None:
        if self._replayed >= _ENTRIES_PER_REPLAY:
            self._replay, self._replayed = summaries(self._objects), 0
        self._replayed += last - first + 1
        try:
            # All or none: an error in between leaves them to the next scrape.
            ended = [one for summary in self._replay.entries(first, last) for one in summary.transactions]
        except ViewExpired:
            self._uncounted += last - first + 1
            return
        for one in ended:
            outcome = "committed" if one.committed else "aborted"
            self._ended[outcome] += 1
            self._count_by_id(one.record.transactional_id, outcome)

    def _count_by_id(self, transactional_id: str, outcome: str) -> None:
        """Count for ids that have aborted a transaction: a store's sums hide an id that aborts all it begins."""
        counts = self._ended_by_id.get(transactional_id)
        if counts is None:
            if outcome == "committed":
                return
            if len(self._ended_by_id) >= _ABORTING_COUNTED:
                del self._ended_by_id[min(self._ended_by_id, key=lambda known: self._ended_by_id[known]["aborted"])]
            counts = self._ended_by_id[transactional_id] = {"committed": 0, "aborted": 0}
        counts[outcome] += 1


def _read_partitions(snapshot: Snapshot, figures: Figures) -> None:
    for topic in _topics(snapshot):
        figures["kafka_topic_partitions"].append(((topic.name,), topic.partition_count))
        for number in range(topic.partition_count):
            state = snapshot.partitions.get((topic.topic_id, number))
            if state is not None:
                labels = (topic.name, str(number))
                figures["kafka_topic_partition_oldest_offset"].append((labels, state.log_start_offset))
                figures["kafka_topic_partition_current_offset"].append((labels, state.log_end_offset))
                figures["txnlog_topic_partition_last_stable_offset"].append((labels, last_stable_offset(state)))


def _topics(snapshot: Snapshot) -> Iterable[TopicState]:
    """Return the topics that have records of their own, by name."""
    found = (record for record in snapshot.records if isinstance(record, TopicState))
    return sorted(found, key=lambda topic: topic.name)


def _read_members(members: Mapping[str, Sequence[SeenMember]], now_ms: int, figures: Figures) -> None:
    """Count the members of groups: those whose sessions have passed are not members, though the log has them yet."""
    for group_id, seen in sorted(members.items()):
        overdue = [member for member in seen if member.is_overdue]
        figures["kafka_consumergroup_members"].append(((group_id,), len(seen) - len(overdue)))
        figures["txnlog_group_overdue_members"].append(((group_id,), len(overdue)))
        last_seen_ms = max((member.last_seen_ms or 0 for member in overdue), default=0)
        if last_seen_ms:
            figures["txnlog_group_overdue_member_age_seconds"].append(((group_id,), _age_s(last_seen_ms, now_ms)))


def _read_groups(snapshot: Snapshot, figures: Figures) -> None:
    with_members = {group_id for (group_id,), _ in figures["kafka_consumergroup_members"]}
    empty: set[str] = set()
    offsets: list[tuple[tuple[str, str, int], int, int]] = []
    for record in snapshot.records:
        if isinstance(record, CommittedOffset):
            empty.add(record.group_id)
            state = snapshot.partitions.get((record.topic_id, record.partition))
            if state is None:
                continue  # The topic was deleted: its offsets mean nothing, and a sweep forgets them.
            topic = snapshot.topics[record.topic_id].name
            lag = max(0, last_stable_offset(state) - record.offset)
            offsets.append(((record.group_id, topic, record.partition), record.offset, lag))
    figures["kafka_consumergroup_members"] += [((group_id,), 0) for group_id in sorted(empty - with_members)]
    offsets.sort()
    sums: dict[tuple[str, str], list[int]] = {}
    for (group_id, topic, _), offset, lag in offsets:
        total = sums.setdefault((group_id, topic), [0, 0])
        total[0] += offset
        total[1] += lag
    for (group_id, topic, number), offset, lag in offsets[:_GROUP_PARTITIONS_SHOWN]:
        labels = (group_id, topic, str(number))
        figures["kafka_consumergroup_current_offset"].append((labels, offset))
        figures["kafka_consumergroup_lag"].append((labels, lag))
    for group_topic, (summed, lags) in sums.items():
        figures["kafka_consumergroup_current_offset_sum"].append((group_topic, summed))
        figures["kafka_consumergroup_lag_sum"].append((group_topic, lags))
    figures["txnlog_group_partitions_left_out"].append(((), max(0, len(offsets) - _GROUP_PARTITIONS_SHOWN)))


def _read_files(snapshot: Snapshot, figures: Figures) -> None:
    found: dict[int, list[int]] = {}
    for record in snapshot.records:
        if isinstance(record, PartitionSegments):
            total = found.setdefault(record.topic_id, [0, 0])
            size_bytes, small = _files_of(record)
            total[0] += size_bytes
            total[1] += small
    for topic in _topics(snapshot):
        size_bytes, small = found.get(topic.topic_id, (0, 0))
        figures["txnlog_topic_size_bytes"].append(((topic.name,), size_bytes))
        figures["txnlog_topic_small_files"].append(((topic.name,), small))


def _files_of(located: PartitionSegments) -> tuple[int, int]:
    """Return about how many bytes a partition's segments have, and how many small files a rewrite could merge."""
    places = located.sealed, located.segments, located.rewritten
    size_bytes = sum(bytes_ for _, bytes_, _ in sizes_of(*places))
    return size_bytes, small_files(*places, below_bytes=_SMALL_BYTES, at_least=_SMALL_FILES_MERGED)


def _read_transactions(snapshot: Snapshot, now_ms: int, figures: Figures) -> None:
    records = [record for record in snapshot.records if isinstance(record, TransactionState)]
    opened = [record for record in records if record.status is TransactionStatus.ONGOING]
    # Apart: a prepared one waits by right, and must not hide one that hangs, nor the other way round.
    begun_ms = {one.transactional_id: one.start_timestamp_ms for one in opened if one.prepared is None}
    prepared_ms = {one.transactional_id: one.last_update_timestamp_ms for one in opened if one.prepared is not None}
    figures["txnlog_open_transactions"].append(((), len(opened)))
    figures["txnlog_prepared_transactions"].append(((), len(prepared_ms)))
    for kind, since_ms in (("open", begun_ms), ("prepared", prepared_ms)):
        oldest = sorted(since_ms.items(), key=lambda one: one[1])[:_OLDEST_SHOWN]
        ages = [((transactional_id,), _age_s(at_ms, now_ms)) for transactional_id, at_ms in oldest]
        figures[f"txnlog_{kind}_transaction_age_seconds_max"].append(((), ages[0][1] if ages else 0.0))
        figures[f"txnlog_{kind}_transaction_age_seconds"] += ages
    figures["txnlog_transactional_ids"].append(((), len(records)))


def _age_s(timestamp_ms: int, now_ms: int) -> float:
    """Return an age; none below 0, as another machine's clock may be ahead."""
    return max(0, now_ms - timestamp_ms) / 1000


def _vacuumed_ms(log: Log) -> int:
    """Return when the store shows that a vacuum last worked, by its own clock; 0 if it never has."""
    found = [*log.objects.list(names.HORIZONS), *log.objects.list(names.LAST_VACUUM)]
    return max((info.modified_ms for info in found), default=0)
