"""Scenarios of clients: which ones take part, and how everything comes to rest before it is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from sparktxn._engine.format.commands import InitProducerId
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.process.clock import RandomIds
from sparktxn._foundation.values.structs import CommittedOffset, TransactionState, TransactionStatus
from sparktxn.maintenance import verify
from sparktxn.store import Store
from sparktxn.testing.clocks import ManualClock, StrictBackground
from tests.lending import lend_log, take_log_back
from tests.simulation.clienthistory import ClientHistory, Committed
from tests.simulation.clientprograms import (
    COMPACTED,
    SETTINGS,
    ClientWorld,
    consuming,
    copying,
    deciding,
    following,
    read_view,
    writing,
)
from tests.simulation.halfprograms import selling, settle_halves
from tests.simulation.impatientprograms import (
    Client,
    SinkJob,
    Work,
    committing_offsets,
    impatient,
    initialising,
    producing,
    sinking,
    slipping,
    storing,
)
from tests.simulation.maintenanceprograms import (
    administering,
    backing_up,
    compacting,
    preparing,
    rewriting,
    sweeping,
    vacuuming,
)
from tests.simulation.offers import note_offers
from tests.simulation.simulator import Offer, Simulator
from tests.simulation.truth import records_of

__all__ = [
    "abandoned",
    "administered",
    "clients",
    "come_to_rest",
    "conditional",
    "halfmessages",
    "keyed",
    "maintained",
    "prepared",
    "shared",
    "unnamed",
]

_PARQUET_EVERY: Final = 100
_AT_REST: Final = replace(SETTINGS, checkpoint_entries=40)
_CHECKPOINTS: Final = ((6, 3), (2, 2), (12, 2))


def world_of(simulator: Simulator, history: ClientHistory, topics: dict[str, int]) -> ClientWorld:
    """The world of a history: in one of a hundred segments are Parquet, compressed, as they are by default.

    Checkpoints and sealed runs are few or many, and records are inline up to some size, by the seed.
    """
    world = ClientWorld(history, topics)
    entries, segments = _CHECKPOINTS[simulator.seed // 2 % len(_CHECKPOINTS)]
    world.store = replace(SETTINGS, checkpoint_entries=entries, checkpoint_seal_segments=segments)
    if simulator.seed % _PARQUET_EVERY == _PARQUET_EVERY - 1:
        world.settings = {}
    world.settings["append.inline.bytes"] = str(simulator.inline_bytes)
    return world


def clients(simulator: Simulator, history: ClientHistory) -> None:
    """Producers, one of them twice, a group that copies from one topic to another, often twice too, and readers.

    Not all of them in every history: short ones find as much, and more of them fit into a second.
    """
    _clients(simulator, history)


def _clients(simulator: Simulator, history: ClientHistory) -> ClientWorld:
    world = world_of(simulator, history, {"in": 2, "left": 1, "out": 2})
    writers = {"writer": "first", "zombie": "first"} | ({"other": "second"} if simulator.seed % 3 == 0 else {})
    for name, transactional_id in writers.items():
        world.begin(name, writes=True)
        simulator.add(name, writing(world, transactional_id, 2))
    for name in ("copier", "copier's zombie")[: 1 + simulator.seed % 2]:
        world.begin(name, writes=False)
        simulator.add(name, copying(world, "copies"))
    simulator.add("follower", following(world))
    if simulator.seed % 2 == 0:
        simulator.add("dirty reader", consuming(world, committed=False))
    return world


def maintained(simulator: Simulator, history: ClientHistory) -> None:
    """The same with short time-outs, two sweeps, and two vacuums that leave nothing that is not needed.

    A rewrite, a compaction and a backup take part in some.
    """
    world = _clients(simulator, history)
    world.timeout_ms = 4_000
    for number in range(2):
        simulator.add(f"sweep {number}", sweeping(world))
        simulator.add(f"vacuum {number}", vacuuming(world))
    if simulator.seed % 2:
        simulator.add("rewrite", rewriting(world))
    if simulator.seed % 3 == 1:
        world.settings |= COMPACTED
        simulator.add("compaction", compacting(world))
    if simulator.seed % 4 == 2:
        simulator.add("backup", backing_up(world))


def administered(simulator: Simulator, history: ClientHistory) -> None:
    """Writers, whose topics are deleted, made again, widened and trimmed, and whose transactions are aborted."""
    world = world_of(simulator, history, {"in": 2, "left": 2, "out": 2, "gone": 2})
    for name, transactional_id in {"writer": "first", "other": "second", "third": "third"}.items():
        world.begin(name, writes=True)
        simulator.add(name, writing(world, transactional_id, 3))
    world.begin("copier", writes=False)
    simulator.add("copier", copying(world, "copies"))
    simulator.add("administrator", administering(world))
    simulator.add("follower", following(world))
    simulator.add("vacuum", vacuuming(world))
    if simulator.seed % 2:
        simulator.add("rewrite", rewriting(world))
    if simulator.seed % 3 == 1:
        world.settings |= COMPACTED
        simulator.add("compaction", compacting(world))


def prepared(simulator: Simulator, history: ClientHistory) -> None:
    """Transactions that a database decides, by two processes that take each other over, alongside writers and a
    sweep."""
    world = world_of(simulator, history, {"in": 1, "left": 1, "out": 1})
    world.timeout_ms = 4_000
    for name in ("coordinator", "coordinator's zombie"):
        world.begin(name, writes=True)
    program = preparing(world, "prepared", 8)
    simulator.add("coordinator", program)
    simulator.add("coordinator's zombie", program)
    world.begin("writer", writes=True)
    simulator.add("writer", writing(world, "first", 3))
    simulator.add("sweep", sweeping(world))
    simulator.add("vacuum", vacuuming(world))
    simulator.add("follower", following(world))


def abandoned(simulator: Simulator, history: ClientHistory) -> None:
    """Clients that do not wait, several in each process, on a store that falls silent; one query with two drivers."""
    world = world_of(simulator, history, {"in": 2, "left": 1, "out": 1})
    simulator.silences = (0.0, 0.002, 0.01)[simulator.seed % 3]
    job = SinkJob("query", 3)
    works = {
        "store": storing("stored"),
        "offsets": committing_offsets,
        "initialising": initialising("shared"),
        "producing": producing,
        "driver": sinking(job),
        "slip": slipping,
    }
    _add_impatient_processes(simulator, world, works)
    simulator.add("follower", following(world))


def unnamed(simulator: Simulator, history: ClientHistory) -> None:
    """Commits without a transactional id, from several clients of each process, alongside others and a vacuum."""
    world = world_of(simulator, history, {"in": 2, "left": 1, "out": 1})
    simulator.silences = (0.0, 0.002, 0.01)[simulator.seed % 3]
    job = SinkJob("query", 3)
    works = {"unnamed": storing(None), "unnamed too": storing(None), "store": storing("stored"), "driver": sinking(job)}
    _add_impatient_processes(simulator, world, works)
    simulator.add("vacuum", vacuuming(world))
    simulator.add("follower", following(world))


def _add_impatient_processes(simulator: Simulator, world: ClientWorld, works: Mapping[str, Work]) -> None:
    """Three processes of one to three clients each, whose works the seed draws."""
    draw = Random(f"{simulator.seed} clients")
    for name in ("first", "second", "third"):
        chosen = draw.choices(sorted(works), k=draw.randint(1, 3))
        world.begin(name, writes=True)
        clients_ = [Client(f"{work} {number}", works[work], draw.randint(4, 8)) for number, work in enumerate(chosen)]
        simulator.add(name, impatient(world, clients_), threaded=True)


def shared(simulator: Simulator, history: ClientHistory) -> None:
    """Two or three instances of one service, each with a transactional id of its own, and no sweep."""
    world = world_of(simulator, history, {"in": 2, "left": 1, "out": 2})
    world.timeout_ms = 4_000
    history.draining["copies"] = "in"
    world.begin("writer", writes=True)
    simulator.add("writer", writing(world, "first", 3))
    for name in ("instance", "other instance", "third instance")[: 2 + simulator.seed % 2]:
        world.begin(name, writes=False)
        simulator.add(name, copying(world, "copies", alone=False))
    simulator.add("follower", following(world))


def conditional(simulator: Simulator, history: ClientHistory) -> None:
    """Three deciders, two of them with one transactional id, alongside a writer that expects nothing."""
    world = world_of(simulator, history, {"in": 1, "left": 1, "out": 1})
    for name, transactional_id in {"decider": "first", "zombie": "first", "other": "second"}.items():
        world.begin(name, writes=True)
        simulator.add(name, deciding(world, transactional_id, 5))
    world.begin("writer", writes=True)
    simulator.add("writer", writing(world, "third", 1))
    simulator.add("follower", following(world))


def keyed(simulator: Simulator, history: ClientHistory) -> None:
    """Writers and a decider, two of them with one transactional id, whose transactions are about keyed topics too.

    In some the writers are clients that do not wait, of jobs that share an id, and a query with several drivers.
    """
    world = world_of(simulator, history, {"in": 2, "left": 1, "out": 1})
    world.keyed = history.keyed_topics = frozenset(("left", "in")[: 1 + simulator.seed % 2])
    if simulator.seed % 4 == 3:
        simulator.silences = (0.0, 0.002, 0.01)[simulator.seed // 4 % 3]
        works = {"unnamed": storing(None), "store": storing("stored"), "driver": sinking(SinkJob("query", 3))}
        _add_impatient_processes(simulator, world, works)
    else:
        for name, transactional_id in {"writer": "first", "zombie": "first", "other": "second"}.items():
            world.begin(name, writes=True)
            simulator.add(name, writing(world, transactional_id, 3))
        world.begin("decider", writes=True)
        simulator.add("decider", deciding(world, "third", 3))
    simulator.add("vacuum", vacuuming(world))
    if simulator.seed % 3 == 1:
        simulator.add("rewrite", rewriting(world))
    if simulator.seed % 3 == 2:
        world.own_keys = True
        simulator.add("compaction", compacting(world))
    simulator.add("follower", following(world))


def halfmessages(simulator: Simulator, history: ClientHistory) -> None:
    """Two or three processes of one producer group, alongside a transactional writer and a vacuum."""
    world = world_of(simulator, history, {"in": 2, "left": 1, "out": 1})
    for name in ("seller", "other seller", "third seller")[: 2 + simulator.seed % 2]:
        world.begin(name, writes=True)
        simulator.add(name, selling(world, 4))
    world.begin("writer", writes=True)
    simulator.add("writer", writing(world, "first", 2))
    simulator.add("vacuum", vacuuming(world))
    simulator.add("follower", following(world))


def come_to_rest(
    objects: ObjectStore,
    history: ClientHistory,
    offered: Sequence[Offer] = (),
    drawn: dict[str, int] | None = None,
) -> None:
    """Ends what was left open, as the next producer of each id would, and reads and verifies everything once more."""
    clock = ManualClock()
    log = Log.open(objects, settings=_AT_REST, clock=clock, ids=RandomIds(), background=StrictBackground(), create=True)
    tail = log._follower.tail
    known = [record for record in records_of(tail, "transactions/") if isinstance(record, TransactionState)]
    open_ = [record.transactional_id for record in known if record.status is TransactionStatus.ONGOING]
    for transactional_id in sorted(open_):
        log.submit([InitProducerId(log.ids.token(), transactional_id)])
    settle_halves(log, history)
    uri = f"{objects.uri}-at-rest"
    lend_log(uri, log)
    try:
        with Store.open(uri) as store:
            for isolation in ("read_committed", "read_uncommitted"):
                view = store.view()
                ranges = store.ranges(view, isolation=isolation)
                batch = read_view(
                    store,
                    view,
                    ranges,
                    reader="the final reader",
                    whole=True,
                    began=2**62,
                    ended=lambda: 2**62,
                    isolation=isolation,
                )
                history.final.append(batch)
            problems = verify(store).problems
            assert problems == (), problems
            if history.requests:
                note_offers(history, objects, objects, offered, drawn or {}, view)  # type: ignore[arg-type]
    finally:
        take_log_back(uri)
    names = {topic.topic_id: topic.name for topic in log.topics()}
    history.offsets = [
        Committed(record.group_id, names[record.topic_id], record.partition, record.offset)
        for record in records_of(tail, "groups/")
        if isinstance(record, CommittedOffset)
        and record.topic_id in names
        and record.group_id not in history.plain_groups
    ]
