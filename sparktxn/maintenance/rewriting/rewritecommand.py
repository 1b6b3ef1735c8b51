"""The run of a job that replaces segments, a rewrite or a compaction: tasks, attempts, commands, and their outcome.

It has three steps. A plan says which segments are copied, as tasks. Any processes do the tasks: they upload files that
nothing names. Then an entry for each range, or for ranges that belong together, puts these in the place of the old
segments. In each view before that entry readers read the old ones. A vacuum deletes them once no view that is kept
names them.

A run may die between any two steps. Files that no entry names are left, and a vacuum deletes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Final, Generic, TypeVar

from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Rewrite
from sparktxn._engine.format.manifest import encode_manifest
from sparktxn._engine.format.segment import checksum
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._engine.objectstore.puts import put_until_stored
from sparktxn._foundation.process.clock import is_time_up
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.structs import Compaction, ManifestRef, SegmentRef
from sparktxn.errors import CommandRefused, OutcomeUnknown, StoreUnavailable, ViewExpired
from sparktxn.maintenance.attempts import in_attempts, on_a_view
from sparktxn.maintenance.proposals import LostRace
from sparktxn.maintenance.rewriting.rewritefiles import NewFiles
from sparktxn.maintenance.rewriting.rewriteplan import SegmentsTask
from sparktxn.maintenance.taskrunning import RunTasks, all_results, waves

_PLACE: Final = attrgetter("topic_id", "partition", "base_offset")

Task = TypeVar("Task", bound=SegmentsTask)
Made = TypeVar("Made", bound=NewFiles)
Report = TypeVar("Report", bound=Any)
"""A `RewriteReport` or a `CompactReport`."""


class ReplacingJob(ABC, Generic[Task, Made, Report]):
    """A run of a job. A subclass says what its kind of job plans, does and puts into effect.

    Args:
        log: the store.
        topics: the topics that are planned; none: all.
    """

    made: type[Made]
    report: type[Report]
    counts: ClassVar[str]
    """What the report counts for each entry, and for each task of a dry run."""
    segments_per_entry = 0
    """What is done takes effect once it has so many segments, even if what is next may join it."""

    def __init__(self, log: Log, topics: Sequence[str] = ()) -> None:
        self._log = log
        self._topics = topics or None

    @abstractmethod
    def plan(self, view: ReadView) -> Iterable[Task]:
        """Return the tasks, in the order of partitions and offsets."""

    @abstractmethod
    def do(self, task: Task) -> Made:
        """Do a task here."""

    @abstractmethod
    def commands(self, made: Sequence[Made]) -> Sequence[Rewrite]:
        """Write manifests, and return the commands that name them, which take effect together or not at all."""

    def may_join(self, made: Sequence[Made], following: Made) -> bool:
        """Return whether one entry may name `made` and what follows."""
        return False

    def counted(self, made: Sequence[Made]) -> Mapping[str, int]:
        """Return what the report counts more, once this has taken effect."""
        return {}

    def run(
        self, work: Callable[..., Made], run: RunTasks[Task, Made] | None, options: Mapping[str, Any], *, dry_run: bool
    ) -> Report:
        """Plan and do what there is, up to three times while others come first, and return the report of all.

        What is left of a plan whose view a vacuum passes is lost too: it is planned again.

        Args:
            work: does a task in another process, with the options of the store.
            run: runs `work` for tasks, if they are not done here.
            options: the store's.
            dry_run: only return what would be done.
        """
        if dry_run:
            return on_a_view(self._log, self._topics, lambda view: self._foreseen(self.plan(view)))
        done: Report = self.report(dry_run=False)

        def once() -> Report:
            nonlocal done
            tasks = self.plan(self._log.view(self._topics))
            made = self._here(tasks) if run is None else self._elsewhere(run, partial(work, options=options), tasks)
            done = self._take_effect(made, replace(done, lost=(), unresolved=0))
            return done

        in_attempts(once, again=lambda found: found.lost and not found.unresolved)
        return done

    def planned(self) -> list[Task]:
        """Return the tasks of a view that no vacuum has passed meanwhile."""
        return on_a_view(self._log, self._topics, lambda view: list(self.plan(view)))

    def do_here(self, tasks: Iterable[Task]) -> Report:
        """Do tasks here, one after the other, and put what they make into effect."""
        return self._take_effect(self._here(tasks), self.report(dry_run=False))

    def apply(self, name: str, given: Iterable[Made]) -> Report:
        """Put into effect what tasks have made, in any order; `name` is that of the caller's argument.

        Raises:
            TypeError: an item was not made by a task of this job.
        """
        items = sorted(arguments.items(name, given, self.made), key=_PLACE)
        made = ((None if is_time_up() else item, self.segments_per_entry == 0) for item in items)
        return self._take_effect(made, self.report(dry_run=False))

    def _here(self, tasks: Iterable[Task]) -> Iterator[tuple[Made | None, bool]]:
        """Do tasks, and yield what came of each (None: it was not begun), and whether no other may join it.

        Raises:
            ViewExpired: a vacuum has passed the view of this plan.
        """
        segments = 0
        for task in tasks:
            made = None if is_time_up() else self.do(task)
            segments += 0 if made is None else len(made.segments)
            yield made, segments >= self.segments_per_entry
            segments = 0 if segments >= self.segments_per_entry else segments

    def _elsewhere(
        self, run: RunTasks[Task, Made], work: Callable[[Task], Made], tasks: Iterable[Task]
    ) -> Iterator[tuple[Made | None, bool]]:
        """Let `run` do tasks, some at a time: what they have made takes effect before the next ones begin.

        What is done is kept if a later task fails. Tasks that are not begun by the caller's deadline are not done.

        Raises:
            TypeError, ConfigurationError: `run` has returned something else than one result for each task.
        """
        for some in waves(tasks, lambda task: len(task.read.segments)):
            if is_time_up():
                yield from ((None, False) for _ in some)
                continue
            made = sorted(all_results(run(work, some), self.made, len(some)), key=_PLACE)
            for number, each in enumerate(made, 1):
                yield each, number == len(made)

    def _take_effect(self, results: Iterable[tuple[Made | None, bool]], report: Report) -> Report:
        """Put what tasks have made into effect, and return the report of that, too."""
        try:
            for made in self._joined(results):
                report = _added(report, unresolved=1) if made is None else self._replaced(made, report)
        except ViewExpired as expired:
            # Tasks are planned one after the other: what is left of this plan is planned again.
            report = _added(report, lost=(LostRace("what is left of the plan", str(expired)),))
        return report

    def _joined(self, results: Iterable[tuple[Made | None, bool]]) -> Iterator[list[Made] | None]:
        """Yield the results that may join each other together: one entry names them all."""
        waiting: list[Made] = []
        try:
            for made, ends_here in results:
                if made is None:
                    yield None
                    continue
                if waiting and not self.may_join(waiting, made):
                    yield waiting
                    waiting = []
                waiting.append(made)
                if ends_here:
                    yield waiting
                    waiting = []
        except ViewExpired:
            if waiting:
                yield waiting
            raise
        if waiting:
            yield waiting

    def _replaced(self, made: Sequence[Made], report: Report) -> Report:
        """Replace ranges, and return the report with what came of it.

        Raises:
            StoreUnavailable: the store did not take the commands, or a manifest, before the deadline.
        """
        first = made[0]
        about = f"partition {first.partition} of topic {first.topic!r} from offset {first.base_offset}"
        try:
            self._log.submit(self.commands(made))
        except CommandRefused as refused:
            return _added(report, lost=(LostRace(about, refused.error.str()),))
        except OutcomeUnknown:
            return _added(report, unresolved=1)
        except StoreUnavailable:
            if not is_time_up():
                raise
            return _added(report, unresolved=1)
        sizes = {segment.name: segment.size_bytes for each in made for segment in each.segments}
        return _added(
            report,
            segment_files=sum(each.replaced_files for each in made),
            size_bytes=sum(each.replaced_bytes for each in made),
            new_files=len(sizes),
            new_size_bytes=sum(sizes.values()),
            aborted_records=sum(each.aborted_records for each in made),
            **{self.counts: 1},
            **self.counted(made),
        )

    def _replacement(
        self,
        first: Made,
        offsets: tuple[int, int],
        segments: Sequence[SegmentRef],
        compaction: Compaction | None = None,
    ) -> Rewrite:
        """Write the manifest of a range, and return the command that names it.

        Args:
            first: what says which partition, and the view that it was made from.
            offsets: where the range begins, and the offset after its last one.
            segments: what the range has from then on, at least one, in offset order.
            compaction: what was compacted, if that is what was done.

        Raises:
            StoreUnavailable: the store did not take the manifest.
        """
        log = self._log
        # A folder's name bears a known entry, not the newest: the log's lock is not held for a request.
        entry = log.born()
        run = names.sealed_folder(segments[0].base_offset, entry, log.ids.token())
        data = encode_manifest(segments)
        put_until_stored(log.objects, names.manifest(self._folder(first), run), data, log.clock)
        return Rewrite(
            request_id=log.ids.token(),
            topic_id=first.topic_id,
            partition=first.partition,
            base_offset=offsets[0],
            end_offset=offsets[1],
            planned_entry=first.planned_entry,
            segments=tuple(dict.fromkeys(segment.name for segment in segments)),
            run=ManifestRef(
                folder=run,
                base_offset=segments[0].base_offset,
                end_offset=segments[-1].end_offset,
                segment_count=len(segments),
                level=0,
                entry_min=min(segment.entry for segment in segments),
                entry_max=max(segment.entry for segment in segments),
                timestamp_min_ms=min(segment.timestamp_min_ms for segment in segments),
                timestamp_max_ms=max(segment.timestamp_max_ms for segment in segments),
                size_bytes=sum(segment.file_share_bytes for segment in segments),
                checksum=checksum(data),
                committed_entry_max=max(segment.committed_entry for segment in segments),
            ),
            compaction=compaction,
        )

    def _folder(self, made: Made) -> str:
        return names.partition_folder(made.topic, made.topic_id, made.partition)

    def _foreseen(self, tasks: Iterable[Task]) -> Report:
        report: Report = self.report(dry_run=True)
        for task in tasks:
            files = {"segment_files": task.files, "size_bytes": task.size_bytes}
            report = _added(report, **files, aborted_records=task.aborted_records, **{self.counts: 1})
        return report


def _added(report: Report, **more: Any) -> Report:
    """Return the report with more of what it counts, or lists."""
    return replace(report, **{name: getattr(report, name) + each for name, each in more.items()})
