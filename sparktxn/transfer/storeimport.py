"""Importing a topic of another store: what its entries have committed, exactly once.

A transactional id keeps how far the source is imported: the source's entry is the sink's run. Each import is the batch
after the last one. It reads what the source's later entries have committed, up to one view, and commits all of it with
one entry. Of two imports at once the second finds its number taken, and reads again from where the first one ended.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from sparktxn._engine.format.schema import stored_schema
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._engine.state.keyed import FIXED_SETTINGS, PRIMARY_KEY, declared_columns, key_columns
from sparktxn._foundation.config.topic import topic_values
from sparktxn._foundation.process.clock import in_time
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.structs import TopicState
from sparktxn._rows.scan.content import lacks_deletes
from sparktxn._rows.stage.stagedsegment import StagedSegment, StageTopic
from sparktxn._rows.stage.stager import SegmentStager
from sparktxn.errors import BatchRefused, CommandRefused, ConfigurationError, ViewExpired
from sparktxn.store import SinkCommit, Store, read_task
from sparktxn.transfer.topicimport import sink_of

# Whether a topic can hold what another one has, with nothing lost; and the command that makes such a topic.

_LOG_APPEND: Final = "LogAppendTime"
_CREATE: Final = "CreateTime"
_TIMESTAMP_TYPE: Final = "message.timestamp.type"


def check_same_topic(uri: str, topic: TopicState, source_uri: str, source: TopicState) -> None:
    """Check that `topic` of the store `uri` has the columns, key, partitions and type of timestamps that `source` has.

    Raises:
        ConfigurationError: it differs; the text names both, and the command that helps.
    """
    here, there = f"topic {topic.name!r} of {uri!r}", f"topic {source.name!r} of the source {source_uri!r}"
    another = f"import into another topic: {command_to_create('NAME', source)}"
    mine, theirs = key_columns(topic.settings), key_columns(source.settings)
    if mine != theirs:
        raise ConfigurationError(
            f"{here} has {_key(mine)}, and {there} has {_key(theirs)}: expected the same key; {another}"
        )
    if declared_columns(topic) != declared_columns(source):
        raise ConfigurationError(
            f"{here} has {_columns(topic)}, and {there} has {_columns(source)}: expected the same columns; "
            f"{_columns_to_add(topic, source) or another}"
        )
    if topic.partition_count != source.partition_count:
        more = f"txnlog topics alter {topic.name} --partitions {source.partition_count}"
        may_grow = topic.partition_count < source.partition_count and not mine
        raise ConfigurationError(
            f"the number of partitions of {here} is {topic.partition_count}, and that of {there} is "
            f"{source.partition_count}: expected the same number; "
            f"{more if may_grow else another}"
        )
    if _timestamp_type(topic) != _timestamp_type(source):
        raise ConfigurationError(
            f"{here} has {_TIMESTAMP_TYPE}={_timestamp_type(topic)}, and {there} has {_timestamp_type(source)}: its "
            f"timestamps would not be kept; txnlog topics alter {topic.name} --set "
            f"{_TIMESTAMP_TYPE}={_timestamp_type(source)}"
        )


def command_to_create(name: str, source: TopicState) -> str:
    """Return the command that creates a topic `name` with the columns, partitions and settings of `source`."""
    words = ["txnlog", "topics", "create", name, "--partitions", str(source.partition_count)]
    for column in declared_columns(source):
        words += ["--column", _column(column)]
    for setting, value in sorted(source.settings.items()):
        # Of a keyed topic the log makes the others of these from its columns.
        if setting == PRIMARY_KEY or setting not in FIXED_SETTINGS:
            words += ["--set", f"{setting}={value}"]
    return shlex.join(words)


def _key(columns: tuple[str, ...]) -> str:
    return f"the key {','.join(columns)} (primary.key)" if columns else "no key (primary.key)"


def _timestamp_type(topic: TopicState) -> str:
    return _LOG_APPEND if StageTopic.of(topic).has_times_of_entries else _CREATE


def _columns(topic: TopicState) -> str:
    if topic.schema is None:
        return "Kafka's record"
    return f"the columns {', '.join(map(_column, declared_columns(topic)))}"


def _column(column: tuple[str, str, bool]) -> str:
    name, type_, nullable = column
    return f"{name} {type_}" if nullable else f"{name} {type_} not null"


def _columns_to_add(topic: TopicState, source: TopicState) -> str:
    """Return the command that gives `topic` the columns that it lacks; empty if there is none."""
    mine, theirs = declared_columns(topic), declared_columns(source)
    more = theirs[len(mine) :]
    if not mine or theirs[: len(mine)] != mine or not all(nullable for _, _, nullable in more):
        return ""
    words = [word for column in more for word in ("--column", _column(column))]
    return shlex.join(["txnlog", "topics", "alter", topic.name, *words])


OnProgress = Callable[[int], None]
"""Gets how many records are staged."""

_ATTEMPTS: Final = 8
_ROWS_PER_BATCH: Final = 65_536


class StoreImportReport(Struct, frozen=True, kw_only=True):
    """What was imported into `topic`, or with `dry_run` would be.

    That is what entries `after_entry` + 1 to `to_entry` of the store `source` have committed to its `source_topic`.
    They are `records`, and entry `entry` has committed them here; None where there are none, and for a dry run. Of a
    compacted topic a dry run counts at most so many.
    """

    dry_run: bool
    topic: str
    source: str
    source_topic: str
    after_entry: int
    to_entry: int
    records: int = 0
    entry: int | None = None


class _Position(NamedTuple):
    """Up to which of the source's entries its topic is imported, and the number of the last import."""

    entry: int
    batch_id: int


@in_time("timeout_s", lambda store: store.log.clock)
def import_from_store(
    store: Store,
    topic: str,
    source: Store,
    source_topic: str,
    *,
    entry: int | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    timeout_s: float | None = None,
) -> StoreImportReport:
    """Append the committed records of a topic of another store, as one view of it has them, in one transaction.

    Partitions, keys, values, headers, timestamps and columns are kept exactly. Offsets are new, and transactions
    become one. Of a keyed topic all rows are imported, upserts and deletes. Each record takes effect once. After a
    crash, or for what has been added since, call it again: what was imported before is left out. The source is known
    by its id and the topic's, whatever its address.

    Args:
        store: an open store.
        topic: the topic, with the same columns, key, number of partitions and ``message.timestamp.type`` as the
            source's.
        source: the other store, open. It may be the same one, and the topic another one.
        source_topic: the name of its topic.
        entry: import what the source has at this entry; None: now.
        dry_run: only return how much there is to import.
        on_progress: called now and then.
        timeout_s: how long all of it may take.

    Raises:
        ConfigurationError: an argument is wrong, or the topics are one, or do not fit each other. Or the source ends
            before what was imported of it, or may have lost deletes since.
        CommandRefused: the source has no such topic or entry, or a record is too large for the topic.
        KafkaException: a topic is internal (INVALID_TOPIC).
        ViewExpired: a vacuum of the source has passed the view: call again, or give a later entry.
        SegmentExpired: a vacuum has passed what was staged: call again.
        BatchRefused, ProducerFenced: another process imports the same: nothing is imported twice.
        StoreUnavailable, OutcomeUnknown: call again: a record takes effect once.
    """
    arguments.instance("store", store, Store)
    topic = arguments.identifier("topic", topic)
    arguments.instance("source", source, Store)
    source_topic = arguments.identifier("source_topic", source_topic)
    entry = arguments.integer_or_none("entry", entry, 1)
    dry_run = arguments.boolean("dry_run", dry_run)
    arguments.function("on_progress", on_progress)
    for each, name in ((store, topic), (source, source_topic)):
        each.log.changeable_topic(name)
    view = _view_of(source, source_topic, entry)
    theirs = view.topics[source_topic]
    importing = _Importing(store, _target(store, topic, theirs), source, theirs, view, on_progress)
    return importing.run(dry_run=dry_run)


def _view_of(source: Store, topic: str, entry: int | None) -> ReadView:
    try:
        return source.view([topic], entry=entry)
    except CommandRefused as refused:
        reason = f"the source {source.uri!r}: {refused.error.str()}"
        raise CommandRefused(refused.error.code(), reason) from None


def _target(store: Store, name: str, source: TopicState) -> TopicState:
    """Return the topic to import into.

    Raises:
        ConfigurationError: it does not exist.
    """
    found = next((topic for topic in store.topics() if topic.name == name), None)
    if found is None:
        raise ConfigurationError(
            f"topic {name!r} does not exist in {store.uri!r}: expected one like the source's; create it with "
            f"{command_to_create(name, source)}"
        )
    return found


class _Importing:
    """One call."""

    def __init__(
        self,
        store: Store,
        topic: TopicState,
        source: Store,
        source_topic: TopicState,
        view: ReadView,
        on_progress: OnProgress | None,
    ) -> None:
        if (store.store_id, topic.topic_id) == (source.store_id, source_topic.topic_id):
            raise ConfigurationError(
                f"topic {topic.name!r} of {store.uri!r} is both the source and the target: expected two topics"
            )
        check_same_topic(store.uri, topic, source.uri, source_topic)
        self._store = store
        self._topic = topic
        self._source = source
        self._source_topic = source_topic
        self._view = view
        self._on_progress = on_progress
        self._writer_id = f"import of topic {source_topic.topic_id} of store {source.store_id}"
        digest = hashlib.sha256(f"{topic.topic_id}\0{self._writer_id}".encode()).hexdigest()
        self._transactional_id = f"import-{digest[:40]}"

    def run(self, *, dry_run: bool) -> StoreImportReport:
        """Import what the view has and the topic lacks.

        Raises:
            BatchRefused: other imports of this source came first each time.
            ConfigurationError, StoreError: see `import_from_store`.
        """
        for attempt in range(_ATTEMPTS):
            position = self._position()
            if position.entry >= self._view.entry:
                self._check_not_behind(position)
                break
            self._check_deletes_kept(position)
            if dry_run:
                found = self._source.commit_cut(self._view, position.entry)
                return self._report(position, dry_run=True, records=found.rows)
            staged = self._staged(position.entry)
            if not staged:
                break
            try:
                done = self._store.commit(
                    staged,
                    transactional_id=self._transactional_id,
                    sink=SinkCommit(self._writer_id, str(self._view.entry), position.batch_id + 1),
                )
            except BatchRefused:
                # Another import has taken the number: what it has committed is not staged again.
                if attempt + 1 == _ATTEMPTS:
                    raise
                continue
            if not done.replayed:
                records = sum(segment.record_count for segment in staged)
                return self._report(position, dry_run=False, records=records, entry=done.entry)
        return self._report(position, dry_run=dry_run)

    def _position(self) -> _Position:
        """Return how far the source is imported, as the store says now."""
        sink = sink_of(self._store, self._transactional_id)
        return _Position(0, -1) if sink is None else _Position(int(sink.run_id), sink.batches[-1].batch_id)

    def _check_not_behind(self, position: _Position) -> None:
        # Read now: since the view was taken another import may have had a later one.
        end = self._source.view([]).entry
        if position.entry > end:
            raise ConfigurationError(
                f"the source {self._source.uri!r} ends at entry {end}, and its topic "
                f"{self._source_topic.name!r} was imported up to entry {position.entry}: it is an older state of that "
                "store; expected one that has gone on"
            )

    def _check_deletes_kept(self, position: _Position) -> None:
        """Refuse to go on where compactions of a keyed source have removed deletes that may not have been imported."""
        name = self._source_topic.name
        own = [view for (topic, _), view in self._view.partitions.items() if topic == name]
        # The first offset is the least that may have been imported.
        if not position.entry or not any(lacks_deletes(view, 1, position.entry) for view in own):
            return
        try:
            then = self._source.view([name], entry=position.entry).partitions
        except ViewExpired:
            then = {}  # how far each partition was imported is not known any more
        for view in own:
            imported = then.get((name, view.partition))
            if lacks_deletes(view, 1 if imported is None else imported.log_end_offset, position.entry):
                (retention_ms,) = topic_values(self._source_topic.settings, "delete.retention.ms")
                raise ConfigurationError(
                    f"topic {name!r} of the source {self._source.uri!r} was imported up to entry {position.entry}, and "
                    f"after its delete.retention.ms ({retention_ms}) a compaction has removed deletes that follow: "
                    "their rows would stay; import it into a new topic: "
                    f"{command_to_create('NAME', self._source_topic)}"
                )

    def _staged(self, after_entry: int) -> list[StagedSegment]:
        """Upload what the source's entries from `after_entry` + 1 on have committed; nothing of it is visible yet."""
        plan = self._store.stage_plan([self._topic.name])
        is_by_time = StageTopic.of(self._topic).has_times_of_entries
        staged: list[StagedSegment] = []
        stager: SegmentStager | None = None
        records, time_ms = 0, -1
        for partition, rows in self._rows(after_entry):
            for part, part_ms in _of_one_time(rows) if is_by_time else [(rows, time_ms)]:
                if stager is not None and part_ms != time_ms:
                    staged += _dated(stager.finish(), time_ms)
                    stager = None
                time_ms = part_ms
                stager = stager or plan.open(seed=0, default_topic=self._topic.name, digests=False)
                stager.write(part, partition=partition)
            records += rows.num_rows
            if self._on_progress is not None:
                self._on_progress(records)
        return staged if stager is None else [*staged, *_dated(stager.finish(), time_ms)]

    def _rows(self, after_entry: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield rows as the topic stores them, with their partition, in the order of their offsets."""
        columns = stored_schema(self._source_topic.schema).names
        for task in self._source.plan_commits(self._view, after_entry, columns=columns, rows="all"):
            for rows in read_task(task, self._source.options, batch_rows=_ROWS_PER_BATCH):
                if rows.num_rows:
                    yield task.partition, rows

    def _report(
        self, position: _Position, *, dry_run: bool, records: int = 0, entry: int | None = None
    ) -> StoreImportReport:
        return StoreImportReport(
            dry_run=dry_run,
            topic=self._topic.name,
            source=self._source.log.objects.uri,
            source_topic=self._source_topic.name,
            after_entry=position.entry,
            to_entry=self._view.entry,
            records=records,
            entry=entry,
        )


def _of_one_time(rows: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield rows in pieces of one timestamp, with it: under LogAppendTime a segment has a single one."""
    times = rows.column(rows.num_columns - 1).cast(pa.int64())
    start = 0
    for run in pc.run_end_encode(times).run_ends.to_pylist():
        yield rows.slice(start, run - start), times[start].as_py()
        start = run


def _dated(staged: list[StagedSegment], time_ms: int) -> list[StagedSegment]:
    """Return segments with the time of their records, where the log would give them that of the import."""
    if time_ms < 0:
        return staged
    times = {"timestamp_min_ms": time_ms, "timestamp_max_ms": time_ms, "keeps_times": True}
    return [replace(segment, **times) for segment in staged]
