"""Published topics: publishers, one of which dies again and again, alongside all that changes files and log starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Final

import pyarrow as pa

from sparktxn._engine.format.names import parse_entry
from sparktxn._engine.log.follow.checkpointheads import copied_entry
from sparktxn._engine.log.log import Log
from sparktxn._foundation.process.clock import RandomIds
from sparktxn.errors import DamagedObject
from sparktxn.maintenance import PublishReport, apply_retention, list_tables, publish_tables, verify
from sparktxn.maintenance.publishing.publish import PublishJob
from sparktxn.store import Store
from sparktxn.testing.clocks import ManualClock, StrictBackground
from sparktxn.testing.faultystore import Died, Operation
from tests.lending import lend_log, take_log_back
from tests.simulation.clienthistory import ClientHistory
from tests.simulation.clientprograms import COMPACTED, SETTINGS, ClientWorld, Program, read_commits, writing
from tests.simulation.clientscenarios import world_of
from tests.simulation.maintenanceprograms import (
    Patience,
    administering,
    backing_up,
    compacting,
    repeating,
    rewriting,
    sweeping,
    vacuuming,
)
from tests.simulation.sharedobjects import SharedObjects
from tests.simulation.simulator import Process, Simulator
from tests.simulation.tablecheckers import Engine, check_newest_rows

__all__ = ["publish_at_rest", "published"]

_PUBLISH_S: Final = 120.0
_RETENTION_S: Final = 5.0
_LOOK_S: Final = 3.0
_LOOK_S_MAX: Final = 600.0
_OPERATIONS: Final = 40
"""Before one of so many operations a publisher pauses, or dies."""
_PAUSE_S: Final = 20.0
_PUBLICATIONS: Final = 25
_BEGINS_S: Final = 0.01
_REST_S: Final = 2.0
"""A publisher in the background rests so long at most: it then begins no other file in the same step."""
_LOCATION: Final = "s3a://tables"
"""Not the store's own address, which differs from one process of tests to another."""
_HISTORIES_MS: Final = (1_000, 5_000, 30_000)


def published(simulator: Simulator, history: ClientHistory) -> Engine:
    """Writers of topics that are tables, three publishers and an engine, with rewrites and two vacuums.

    By the seed a compaction, retention, or an administrator takes part, who deletes, widens and trims. In a quarter
    one process publishes piece by piece, as in the background, in place of two. The store is copied there, and a topic
    has declared columns.
    """
    engine = Engine(simulator.shared)
    topics = {"in": 2, "left": 1} | ({"gone": 1} if simulator.seed % 3 == 0 else {})
    world = world_of(simulator, history, topics)
    draw = Random(f"{simulator.seed} tables")
    world.settings |= {"table.formats": "delta,iceberg", "table.history.ms": str(draw.choice(_HISTORIES_MS))}
    world.timeout_ms = 4_000
    in_background = simulator.seed % 4 == 0
    if in_background:
        # A topic with declared columns has no key that a compaction could go by.
        world.typed = frozenset({"left"}) if simulator.seed % 3 != 1 else frozenset()
        simulator.add("background publisher", publishing_in_pieces(world, engine))
        simulator.add("backup", backing_up(world, partial(publish_copy, engine)))
    for name, transactional_id in {"writer": "first", "other": "second"}.items():
        world.begin(name, writes=True)
        simulator.add(name, writing(world, transactional_id, 8))
    if not in_background:
        simulator.add("publisher", publishing(world, engine))
        simulator.add("other publisher", publishing(world, engine))
    simulator.add("dying publisher", publishing(world, engine, dies=True))
    simulator.add("engine", looking(world, engine))
    simulator.add("rewrite", rewriting(world))
    simulator.add("sweep", sweeping(world))
    for number in range(2):
        simulator.add(f"vacuum {number}", vacuuming(world))
    if simulator.seed % 3 == 0:
        simulator.add("administrator", administering(world))
    elif simulator.seed % 3 == 1:
        world.settings |= COMPACTED
        simulator.add("compaction", compacting(world))
    else:
        world.settings |= {"retention.ms": "10000"}
        history.trimmed_topics |= {*topics}
        simulator.add("retention", retaining(world))
    return engine


def publishing(world: ClientWorld, engine: Engine, *, dies: bool = False) -> Program:
    """Publishes tables as long as another process works, but not without end.

    Before any operation of a publication it pauses, so that others come first; one that `dies` dies there.
    """
    done = 0

    def begin(process: Process, _log: Log, store: Store, _patience: Patience) -> Callable[[], object]:
        def work() -> None:
            nonlocal done
            if done == _PUBLICATIONS:
                return
            done += 1
            topics = process.random.choice((None, None, None, ["in"], ["left", "in"]))
            if world.typed and process.random.random() < 0.1:
                store.add_columns("left", ((f"column{done}", "int64", True),), timeout_s=_PUBLISH_S)
                engine.met["a new column"] += 1
            with _stopping(process, dies=dies):
                report = _published(store, topics)
            engine.check_complete(report)
            engine.look(process.simulator.steps)

        return work

    return repeating(world, 4.0, begin)


def publishing_in_pieces(world: ClientWorld, engine: Engine) -> Program:
    """Publishes one file after the other, as a process does in the background: others come in between.

    After an error it chooses another entry.
    """
    done = 0

    def begin(process: Process, log: Log, _store: Store, _patience: Patience) -> Callable[[], object]:
        job: PublishJob | None = None

        def rest() -> None:
            process.sleep(process.random.random() * _REST_S)

        def work() -> None:
            nonlocal done, job
            if done == _PUBLICATIONS:
                return
            done += 1
            known = job or PublishJob(
                log, base=_LOCATION, rest=lambda: process.sleep(process.random.random() * _REST_S)
            )
            job = None
            try:
                with log.within(_PUBLISH_S):
                    report = known.go_on(_BEGINS_S)
            except DamagedObject as damaged:
                raise AssertionError(f"a publisher calls the store damaged: {damaged}") from damaged
            if report is None:
                engine.met["a publication in pieces"] += known._chosen is not None
                job = known
            else:
                engine.check_complete(report)
                engine.look(process.simulator.steps)

        return work

    return repeating(world, 4.0, begin)


def publish_copy(original: Engine, _process: Process, world: ClientWorld, copied: SharedObjects) -> None:
    """Go on in a copy of the store as its owner does: publish its tables there, write, and publish again."""
    objects = copied.cloned()
    log = Log.open(objects, settings=world.store, clock=ManualClock(), ids=RandomIds(), background=StrictBackground())
    store = Store(objects.uri, {}, log)
    engine = Engine(objects, copied_entry(objects))
    for moment in range(3):
        for topic in store.view().topics.values() if moment else ():
            stager = store.stage_plan([topic.name]).open(seed=moment, default_topic=topic.name)
            columns = {"value": [b"written to the copy"]} | ({} if topic.schema else {"key": [b"copy"]})
            stager.write(pa.table(columns))
            store.commit(stager.finish(), transactional_id="owner of the copy")
        publish_tables(store, location=f"{_LOCATION}-copied")
        engine.look(moment)
        original.met["a copy with versions of the store"] += any(table.version for table in engine.newest())
        view = store.view()
        batch = read_commits(store, view, 0, reader="", began=-1, ended=lambda: 0)
        check_newest_rows(engine, batch.records)
        assert verify(store).problems == ()
    engine.check_hints()


def _published(store: Store, topics: Sequence[str] | None) -> PublishReport:
    """Publish; fail if something is called damaged, for nothing is."""
    try:
        return publish_tables(store, topics, location=_LOCATION, timeout_s=_PUBLISH_S)
    except DamagedObject as damaged:
        raise AssertionError(f"a publisher calls the store damaged: {damaged}") from damaged


@contextmanager
def _stopping(process: Process, *, dies: bool) -> Iterator[None]:
    """Let a process pause once before an operation, or die there: any one, or the one before or after an entry."""
    random = process.random
    pause_s = random.random() * _PAUSE_S
    by_entries = random.random() < 0.7
    left = random.randint(1, 3 if by_entries else _OPERATIONS)
    has_put = False

    def before(operation: Operation) -> None:
        nonlocal left, has_put
        puts = operation.verb == "put_if_absent" and parse_entry(operation.name) is not None
        left -= puts or has_put if by_entries else 1
        has_put = puts
        if dies and left <= 0:
            raise Died
        if left == 0:
            left = -1
            process.sleep(pause_s)

    process.before = before
    try:
        yield
    finally:
        process.before = None


def looking(world: ClientWorld, engine: Engine) -> Program:
    """Reads what is published, as long as another process works."""

    def program(process: Process) -> None:
        pause_s = _LOOK_S
        while world.working:
            pause_s = _LOOK_S if engine.look(process.simulator.steps) else min(2 * pause_s, _LOOK_S_MAX)
            process.sleep(process.random.random() * pause_s)

    return program


def retaining(world: ClientWorld) -> Program:
    """Applies retention as long as another process works."""

    def begin(_process: Process, _log: Log, store: Store, _patience: Patience) -> Callable[[], object]:
        return lambda: apply_retention(store, timeout_s=_RETENTION_S)

    return repeating(world, 10.0, begin)


def publish_at_rest(objects: SharedObjects, engine: Engine) -> None:
    """Publish what is left, in a process that nothing disturbs: the tables then show all."""
    log = Log.open(objects, settings=SETTINGS, clock=ManualClock(), ids=RandomIds(), background=StrictBackground())
    uri = f"{objects.uri}-published"
    lend_log(uri, log)
    try:
        with Store.open(uri) as store:
            report = publish_tables(store, location=_LOCATION)
            assert not report.overtaken
            assert publish_tables(store).tables == (), "it is published again though nothing has changed"
            assert not any(table.waiting_records for table in list_tables(store)), "a table does not show all"
    finally:
        take_log_back(uri)
    engine.look(2**62)
    engine.check_hints()
