"""Publishing: what entries up to one have committed becomes the next version of the tables of topics.

It has four steps. Committed records that are in no merged file are written into such files, as by a rewrite, with
nothing younger. The files are checked. One entry publishes the versions of all topics. Then their metadata is
written: it follows from the log, so that what a process leaves is finished by the next one, before it publishes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import PublishTables, RequireFeatures, TableToPublish
from sparktxn._engine.format.decodeguard import TABLES
from sparktxn._engine.log.follow.checkpointheads import copied_entry
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.knownstate import KnownState
from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.objectstore.uri import path_of
from sparktxn._engine.state.keyed import is_keyed
from sparktxn._foundation.config.maintenance import RewriteSettings
from sparktxn._foundation.config.topic import table_formats, topic_setting
from sparktxn._foundation.process.clock import Clock, in_time
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import Columns, TopicIdPartition, TopicPartitionKey
from sparktxn._foundation.values.structs import PublishedPartition, PublishedPlaces, SegmentRef, TableState, TopicState
from sparktxn._rows.scan.commitorder import committed_between
from sparktxn._rows.scan.tablefiles import cut_files, new_ranges, without_offsets
from sparktxn._rows.tableformats.icebergschema import ambiguous_name
from sparktxn.errors import CommandRefused, ConfigurationError, DamagedObject, ErrorCode, StoreUnavailable
from sparktxn.maintenance.publishing.tablemetadata import write_metadata
from sparktxn.maintenance.publishing.tableobjects import check_tables, iceberg, is_written
from sparktxn.maintenance.rewriting.rewrite import RewriteTask, do_tasks
from sparktxn.maintenance.rewriting.rewriteplan import plan_tasks
from sparktxn.store import Store

# What a version of a table needs first: files that have all committed records of a view, and nothing younger.


def places_of(view: PartitionView) -> PublishedPlaces:
    """Return where a table of the view would have the records of a partition."""
    return PublishedPlaces(view.log_start_offset, view.rewritten)


def plan_unpublished(
    objects: ObjectStore,
    view: ReadView,
    after: Mapping[int, int],
    published: Mapping[TopicIdPartition, PublishedPlaces],
    settings: RewriteSettings,
) -> Iterator[RewriteTask]:
    """Yield the tasks that write what a version of the view lacks: committed records in no merged file, and cut files.

    Args:
        objects: the store.
        view: the topics.
        after: the entries that the tables show by now, by topic id.
        published: the places of the versions until now, by topic id and partition.
        settings: how large files become.

    Raises:
        DamagedObject: a manifest or an index is missing or altered.
        ViewExpired: it is missing because the vacuum has passed the view.
    """
    starts: dict[TopicPartitionKey, int] = {}
    cut: dict[TopicPartitionKey, Mapping[str, int]] = {}
    for key, partition in view.partitions.items():
        topic, number, places = partition.topic, partition.partition, places_of(partition)
        new = new_ranges(places, published.get((topic.topic_id, number), _NOWHERE))
        cut[key] = cut_files(objects, topic, number, places, new)
        found = committed_between(objects, partition, after.get(topic.topic_id, 0), view.entry, with_rewritten=False)
        bases = [segment.base_offset for _, segment in found if segment.end_offset > partition.log_start_offset]
        bases += without_offsets(objects, topic, number, places, new)
        if bases or cut[key]:
            starts[key] = min([*bases, *cut[key].values()])

    def is_wanted(key: TopicPartitionKey, segment: SegmentRef) -> bool:
        return not segment.has_offset_column or segment.name in cut[key]

    yield from plan_tasks(objects, view, settings, starts, is_wanted)


def cut_since(objects: ObjectStore, view: PartitionView, known: PublishedPlaces) -> dict[str, int]:
    """Return the files of a partition that are cut, apart from what the table has; see `cut_files`."""
    places = places_of(view)
    return cut_files(objects, view.topic, view.partition, places, new_ranges(places, known))


_ATTEMPTS: Final = 5
_FILE_BYTES: Final = 33_554_432
_SEGMENTS_PER_ENTRY: Final = 20_000
"""What is merged takes effect by so many: what a publisher has done before an error, the next one has not to do."""
_NOWHERE: Final = PublishedPlaces()
_Newest = tuple[TableState, Sequence[PublishedPartition]]
_PLAIN_PATH: Final = re.compile(r"/[A-Za-z0-9/._~=:@,+&';*\[\]()!$-]*")


class PublishedTable(Struct, frozen=True, kw_only=True):
    """A table's version: what it shows, and how many files it has added and removed."""

    topic: str
    version: int
    entry: int
    added_files: int = 0
    removed_files: int = 0
    added_records: int = 0


class RefusedTable(Struct, frozen=True):
    """A topic that this process cannot publish, and why."""

    topic: str
    reason: str


class PublishReport(Struct, frozen=True, kw_only=True):
    """What was published, or with `dry_run` would be; a dry run does not know the files.

    `unchanged` are the topics whose tables show all that is committed. `refused` are topics that this process cannot
    publish, such as for a package that is not installed: another process may. `overtaken` is True if others have
    changed the topics each time: call again.
    """

    dry_run: bool
    entry: int
    tables: tuple[PublishedTable, ...] = ()
    unchanged: tuple[str, ...] = ()
    refused: tuple[RefusedTable, ...] = ()
    overtaken: bool = False


@in_time("timeout_s", lambda store: store.log.clock)
def publish_tables(
    store: Store,
    topics: Iterable[str] | None = None,
    *,
    location: str | None = None,
    dry_run: bool = False,
    timeout_s: float | None = None,
) -> PublishReport:
    """Publish what is committed by now as versions of the topics' tables, all with one entry.

    Safe alongside every other process, and to repeat after a crash. A table that shows all of it gets no version.

    Args:
        store: an open store.
        topics: names of topics with the setting ``table.formats``; None for all that have it.
        location: the address of the store for other engines, such as ``s3a://bucket/store``. It is for tables that
            are published for the first time. None: the address that this store was opened with.
        dry_run: only return what would be published; nothing is written.
        timeout_s: how long all of it may take.

    Raises:
        ConfigurationError: a topic that is named is not a table, or this process cannot publish it; or it can publish
            none of all. Nothing was published. Or `location` is not a whole address.
        CommandRefused: a topic does not exist (UNKNOWN_TOPIC_OR_PARTITION).
        OutcomeUnknown: it is not known whether the versions were published; call again.
        StoreUnavailable: the store did not answer; what was published is finished by the next call.
        DamagedObject: the log, a segment, or the metadata of a table cannot be read.
    """
    log = arguments.instance("store", store, Store).log
    wanted = None if topics is None else arguments.identifiers("topics", topics)
    base = None if location is None else _checked(arguments.identifier("location", location))
    job = PublishJob(log, wanted, base)
    if arguments.boolean("dry_run", dry_run):
        return job.foreseen()
    while True:
        if (report := job.go_on()) is not None:
            return report


def _checked(location: str) -> str:
    """Return a location that engines can go by.

    Raises:
        ConfigurationError: it is not a whole address.
    """
    if not location.startswith("/") and "://" not in location:
        raise ConfigurationError(
            f"location {location!r} is not a whole address: expected one as s3a://bucket/store, or a path from / on"
        )
    return location


def _address(base: str) -> str:
    """Return the address of a store as engines take it, without a slash at the end.

    A path gets its scheme only if it means the same with it. Some engines decode an escape behind ``file://``, others
    take it for a name, but all of them take a path from / on as it is.
    """
    return (f"file://{base}" if _PLAIN_PATH.fullmatch(base) else base).rstrip("/")


class _Known(Struct):
    """The tables as the log has them, with the topics that are to have one."""

    topics: dict[int, TopicState]
    tables: dict[int, TableState]
    places: dict[TopicIdPartition, PublishedPlaces]
    features: Sequence[str]
    copied_entry: int
    """Entries up to it are those of the store that this one is a copy of; 0 if it is none."""
    finished: dict[int, TableState]
    """Tables of topics that are none any more: their newest version is finished, and none follows."""
    refused: dict[str, str]
    """Topics that this process cannot publish, with the reasons."""

    def refuse(self, topic_id: int, name: str, reason: str) -> None:
        """Leave a table alone that this process cannot publish: others go on."""
        self.topics = {id_: topic for id_, topic in self.topics.items() if id_ != topic_id}
        self.tables = {id_: table for id_, table in self.tables.items() if id_ != topic_id}
        self.refused[name] = f"topic {name!r}: {reason}"

    @property
    def names(self) -> list[str]:
        """The names of the topics."""
        return [topic.name for topic in self.topics.values()]

    @property
    def refusals(self) -> tuple[RefusedTable, ...]:
        """The topics that this process cannot publish, by their names."""
        return tuple(RefusedTable(name, reason) for name, reason in sorted(self.refused.items()))

    def is_own(self, table: TableState) -> bool:
        """Return whether a table's newest version was published in this store: else its location is elsewhere."""
        return table.published_entry > self.copied_entry


class _Begun:
    """The tasks that are begun in the first `begins_s` seconds; `is_complete` says whether those were all.

    Those that are left stay in `tasks`.
    """

    def __init__(self, tasks: Iterator[RewriteTask], clock: Clock, begins_s: float) -> None:
        self._tasks = tasks
        self._clock = clock
        self._until_s = clock.monotonic_s() + begins_s
        self.is_complete = False

    def __iter__(self) -> Iterator[RewriteTask]:
        while self._clock.monotonic_s() < self._until_s:
            task = next(self._tasks, None)
            if task is None:
                self.is_complete = True
                return
            yield task


class _Chosen(NamedTuple):
    """The entry that versions are to show, and what is left to write for it: a long job is done piece by piece.

    `view` is that of the topics at the entry, None if there are none; `tasks` are planned one after the other.
    """

    known: _Known
    view: ReadView | None
    entry: int
    tasks: Iterator[RewriteTask]


class PublishJob:
    """A publication that may be left and continued; one that others overtake is followed by another.

    What it has rewritten is in the log piece by piece, so that a later job has less to do. For one thread at a time.
    See `publish_tables` for the arguments and the errors; after an error the next step chooses an entry anew.

    Args:
        log: the store, as this process has opened it.
        topics: names of topics; None for all that are tables.
        base: the address for other engines; None for that of the log.
        rest: is called again and again while records are copied.
    """

    def __init__(
        self,
        log: Log,
        topics: Sequence[str] | None = None,
        base: str | None = None,
        rest: Callable[[], None] | None = None,
    ) -> None:
        self._rest = rest
        self._log = log
        self._topics = topics
        self._base = _address(base or path_of(log.objects.uri))
        self._chosen: _Chosen | None = None
        self._attempts = 0

    def go_on(self, begins_s: float = math.inf) -> PublishReport | None:
        """Publish, and return what was; None if that has not ended: call again.

        No file is begun that comes more than `begins_s` seconds after the call; the next call begins it.
        """
        chosen, self._chosen = self._chosen, None
        try:
            chosen = chosen or self._choose()
            begun = _Begun(chosen.tasks, self._log.clock, begins_s)
            is_taken = self._write_files(begun)
            if is_taken and not begun.is_complete:
                self._chosen = chosen
                return None
            report = self._concluded(chosen) if is_taken else None
        except CommandRefused as refused:
            self._check_deleted(refused)
            report = None
        self._attempts += 1
        if report is None and self._attempts >= _ATTEMPTS:
            return PublishReport(dry_run=False, entry=self._log.entry, overtaken=True)
        return report

    def _check_deleted(self, refused: CommandRefused) -> None:
        """Raise what no attempt that follows can help: it does where a topic was deleted meanwhile."""
        if refused.error.code() != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or self._attempts >= _ATTEMPTS - 1:
            raise refused

    def _choose(self) -> _Chosen:
        """Choose the newest entry, once what an earlier publisher has left is written."""
        known = self._known()
        self._finish(known)
        if not known.topics:
            return _Chosen(known, None, self._log.refresh(), iter(()))
        # As `known` is: what others do meanwhile is for the next version.
        view = self._log.known_view(known.names)
        return _Chosen(known, view, view.entry, self._planned(known, view))

    def _planned(self, known: _Known, view: ReadView) -> Iterator[RewriteTask]:
        return plan_unpublished(self._log.objects, view, _shown(known), known.places, _settings())

    def _concluded(self, chosen: _Chosen) -> PublishReport | None:
        """Publish the entry, of which all files are written; None if others have changed the topics meanwhile."""
        known, entry = chosen.known, chosen.entry
        # What others have done meanwhile the state refuses, by the entry up to which this process has looked.
        checked = self._log.known_view(chosen.view.topics) if chosen.view is not None else None
        changed = self._changed(known, checked) if checked is not None else []
        if changed is None or (checked is not None and not self._is_sound(known, checked, entry)):
            return None
        publication = [*changed, *(self._last(table) for table in self._deleted(known))]
        published = {wanted.topic_id for wanted in publication}
        unchanged = tuple(topic.name for id_, topic in known.topics.items() if id_ not in published)
        refused = known.refusals
        if not publication:
            return PublishReport(dry_run=False, entry=entry, unchanged=unchanged, refused=refused)
        if not self._submit(known, entry, checked.entry if checked is not None else entry, publication):
            return None
        tables = self._written(published)
        return PublishReport(dry_run=False, entry=entry, tables=tables, unchanged=unchanged, refused=refused)

    def _deleted(self, known: _Known) -> list[TableState]:
        """Return the tables of deleted topics that need one more version."""
        gone = [table for id_, table in known.tables.items() if id_ not in known.topics]
        return [table for table in gone if not table.is_deleted or self._is_held(table, None)]

    def _known(self) -> _Known:
        with self._log.known() as state:
            existing = {topic.topic_id: topic for topic in state.topics()}
            topics = {id_: topic for id_, topic in existing.items() if table_formats(topic.settings)}
            tables = {table.topic_id: table for table in state.tables()}
            places = {(id_, each.partition): each.current for id_ in tables for each in state.published(id_)}
            features = state.store_state().reader_features
        if self._topics is not None:
            gone = {table.name for id_, table in tables.items() if id_ not in existing}
            check_tables(self._log, self._topics, gone.union(topic.name for topic in topics.values()))
            topics = {id_: topic for id_, topic in topics.items() if topic.name in self._topics}
            tables = {id_: table for id_, table in tables.items() if id_ in topics or table.name in self._topics}
        finished = {id_: table for id_, table in tables.items() if id_ in existing and id_ not in topics}
        copied = copied_entry(self._log.objects) if tables else 0
        tables = {id_: table for id_, table in tables.items() if id_ not in finished}
        known = _Known(topics, tables, places, features, copied, finished, {})
        for id_, topic in topics.items():
            if is_keyed(topic):
                known.refuse(id_, topic.name, _KEYED)
            elif (reason := _refusal(table_formats(topic.settings), topic.schema)) is not None:
                known.refuse(id_, topic.name, reason)
        for id_, table in tables.items():
            is_last = id_ not in existing and not table.is_deleted
            if is_last and (reason := _refusal(table.formats, None)) is not None:
                known.refuse(id_, table.name, reason)
        return known

    def _finish(self, known: _Known) -> None:
        """Write what an earlier publisher has left of the newest versions.

        Raises:
            ConfigurationError: a topic that is named cannot be published by this process, or none of all can.
        """
        for id_, table in (known.tables | known.finished).items():
            if known.is_own(table) and not is_written(self._log.objects, table):
                try:
                    self._write(id_)
                except ConfigurationError as missing:
                    known.refuse(id_, table.name, str(missing))
        self._check_refused(known)

    def _check_refused(self, known: _Known) -> None:
        if known.refused and (self._topics is not None or not (known.topics or known.tables)):
            raise ConfigurationError(known.refusals[0].reason)

    def _write(self, topic_id: int) -> PublishedTable | None:
        """Write the newest version of a table; return what it is.

        Others may publish meanwhile, and a vacuum then deletes what this version is made from, and what its hints name:
        the version that is the newest by now is written after it.
        """
        with self._log.last_known() as state:
            found = _newest(state, topic_id)
        while found is not None:
            written, damaged = None, None
            try:
                written = self._described(*found)
            except DamagedObject as error:
                damaged = error
            before = found
            with self._log.known() as state:
                found = _newest(state, topic_id, before)
            if found is None or found is before:
                if damaged is not None:
                    raise damaged
                return written
        return None

    def _described(self, table: TableState, published: Sequence[PublishedPartition]) -> PublishedTable:
        version = write_metadata(self._log, table, published)
        return PublishedTable(
            topic=table.name,
            version=table.version,
            entry=table.entry,
            added_files=len(version.added),
            removed_files=len(version.removed),
            added_records=sum(file.record_count for file in version.added if file.changes_data),
        )

    def _written(self, topic_ids: Iterable[int]) -> tuple[PublishedTable, ...]:
        found = [self._write(topic_id) for topic_id in sorted(topic_ids)]
        return tuple(table for table in found if table is not None)

    def foreseen(self) -> PublishReport:
        """Return what would be published by now; nothing is written."""
        while True:
            try:
                return self._foreseen()
            except CommandRefused as refused:
                self._check_deleted(refused)
                self._attempts += 1

    def _foreseen(self) -> PublishReport:
        known = self._known()
        self._check_refused(known)
        view = self._log.view(known.names) if known.topics else None
        behind: dict[int, int] = {}
        for task in self._planned(known, view) if view is not None else ():
            records = sum(segment.row_count for segment in task.read.segments)
            behind[task.read.topic_id] = behind.get(task.read.topic_id, 0) + records
        changed = {wanted.topic_id for wanted in self._changed(known, view) or ()} if view is not None else set()
        entry = view.entry if view is not None else self._log.refresh()
        tables = [
            PublishedTable(topic=topic.name, version=_next(known, id_), entry=entry, added_records=behind.get(id_, 0))
            for id_, topic in known.topics.items()
            if id_ in behind or id_ in changed
        ]
        tables += [
            PublishedTable(topic=table.name, version=table.version + 1, entry=entry) for table in self._deleted(known)
        ]
        unchanged = tuple(topic.name for id_, topic in known.topics.items() if id_ not in behind and id_ not in changed)
        refused = known.refusals
        return PublishReport(dry_run=True, entry=entry, tables=tuple(tables), unchanged=unchanged, refused=refused)

    def _write_files(self, tasks: Iterable[RewriteTask]) -> bool:
        """Write merged files of what a view has committed; return False if others came first."""
        report = do_tasks(self._log, tasks, self._rest, _SEGMENTS_PER_ENTRY)
        if report.unresolved:
            raise StoreUnavailable(f"{self._log.objects.uri!r} did not take the files of tables in time: call again")
        return not report.lost

    def _is_sound(self, known: _Known, view: ReadView, entry: int) -> bool:
        """Return whether the files of a view have whole rows in it, and none that entries after `entry` committed."""
        for partition in view.partitions.values():
            where = partition.topic.topic_id, partition.partition
            if any(each.run.committed_entry_max > entry for each in partition.rewritten):
                return False
            if cut_since(self._log.objects, partition, known.places.get(where, _NOWHERE)):
                return False
        return True

    def _changed(self, known: _Known, view: ReadView) -> list[TableToPublish] | None:
        """Return the tables of which a version would have other files than the newest one, columns or formats.

        None if a topic has been deleted or created again since they were planned.
        """
        found = []
        for id_, topic in known.topics.items():
            if view.topics[topic.name].topic_id != id_:
                return None
            topic = view.topics[topic.name]
            places = [places_of(view.partitions[topic.name, number]) for number in range(topic.partition_count)]
            table = known.tables.get(id_)
            before = [known.places.get((id_, number), _NOWHERE) for number in range(topic.partition_count)]
            own = table if table is not None and known.is_own(table) else None
            is_shown = (
                own is not None
                and own.columns == topic.schema
                and places == before
                and {*own.formats}.issuperset(table_formats(topic.settings))
            )
            if not is_shown or self._is_held(table, topic):
                found.append(
                    TableToPublish(
                        topic.name,
                        id_,
                        _next(known, id_),
                        own.location if own is not None else self._location(topic),
                        self._first(topic, table),
                        len(topic.schema or ()),
                        tuple(each.log_start_offset for each in places),
                    )
                )
        return found

    def _location(self, topic: TopicState) -> str:
        return f"{self._base}/{names.topic_folder(topic.name, topic.topic_id)}".rstrip("/")

    def _last(self, table: TableState) -> TableToPublish:
        first = table.version + 1 if table.is_deleted else self._first(None, table)
        return TableToPublish(table.name, table.topic_id, table.version + 1, table.location, first)

    def _first(self, topic: TopicState | None, table: TableState | None) -> int:
        """Return the oldest version that stays: that of the time that is a table's history ago, or one before it."""
        if table is None:
            return 0
        history_ms = topic_setting(topic.settings if topic is not None else {}, "table.history.ms")
        old_ms = self._log.clock.wall_ms() - history_ms
        old = [each.version for each in table.kept if each.timestamp_ms <= old_ms]
        return old[-1] if old else table.kept[0].version

    def _is_held(self, table: TableState | None, topic: TopicState | None) -> bool:
        """Return whether a table's newest version is that of long ago, and the log is kept for older ones."""
        return table is not None and table.needs_entry is not None and self._first(topic, table) == table.version

    def _submit(self, known: _Known, entry: int, checked: int, publication: Sequence[TableToPublish]) -> bool:
        """Put the entry; return False if the state refuses it because others came first."""
        if TABLES not in known.features:
            self._log.submit([RequireFeatures((TABLES,))])
        try:
            self._log.submit([PublishTables(self._log.ids.token(), entry, checked, tuple(publication))])
        except CommandRefused as refused:
            if refused.error.code() != ErrorCode.TABLE_CHANGED:
                raise
            return False
        return True


def _newest(state: KnownState, topic_id: int, known: _Newest | None = None) -> _Newest | None:
    """Return the newest version of a table, with its partitions: `known`, if it is that; None if there is no table."""
    table = state.get(("table", topic_id))
    if not isinstance(table, TableState):
        return None
    return known if known is not None and known[0].version == table.version else (table, state.published(topic_id))


_KEYED: Final = (
    "it has a key (primary.key), and tables of other engines would show its superseded rows: unset table.formats"
)


def _refusal(formats: Container[str], columns: Columns | None) -> str | None:
    """Return why this process cannot publish a topic in its formats; None if it can.

    A package is missing, or columns have names that a format takes for one. Iceberg takes a column ``a.b`` for the
    field ``b`` of a column ``a``.
    """
    if "iceberg" not in formats:
        return None
    if (name := ambiguous_name(columns)) is not None:
        return f"it cannot be an Iceberg table: two columns or fields are called {name!r} there"
    try:
        iceberg()
    except ConfigurationError as missing:
        return str(missing)
    return None


def _shown(known: _Known) -> dict[int, int]:
    return {id_: table.entry for id_, table in known.tables.items()}


def _next(known: _Known, topic_id: int) -> int:
    table = known.tables.get(topic_id)
    return 0 if table is None else table.version + 1


def _settings() -> RewriteSettings:
    return RewriteSettings(target_bytes=_FILE_BYTES, min_segments=1)
