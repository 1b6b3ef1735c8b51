"""Processes that checkpoints and vacuums overtake: old ones that adopt and idle, and vacuums that pause anywhere.

Windows are small: a checkpoint after 3 to 6 entries, runs of 2 segments, merged 2 at a time. The first entry exists
before any process. So each opens a store without checkpoints, and stands on none until it adopts one or makes one.

Processes wait for what overtakes them. One that idles continues when a vacuum has passed it. One that reads or writes a
checkpoint stops now and then until another process's vacuum has ended. A vacuum begins when it has work to do.

Segments are inline, or objects of one byte: what is checked is which objects exist, and who names them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from random import Random
from typing import Final

import msgspec
from msgspec import Struct

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import decode_part
from sparktxn._engine.format.commands import CommandResult, CreateTopic, InitProducerId
from sparktxn._engine.format.entry import decode_entry
from sparktxn._engine.log.follow import checkpointheads as checkpoints
from sparktxn._engine.log.follow import tail
from sparktxn._engine.log.follow.confirm import read_horizon
from sparktxn._engine.log.keep import sealedruns, sealing
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.write import slotrace
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.values.structs import SegmentRef
from sparktxn.errors import CommandRefused, OutcomeUnknown, StoreUnavailable, ViewExpired
from sparktxn.maintenance import vacuum
from sparktxn.store import Store
from sparktxn.testing.clocks import ManualClock, SeededIds, StrictBackground
from sparktxn.testing.faultystore import Fault, Operation
from tests.producercommands import ProducerCommands
from tests.simulation import history as history_module
from tests.simulation.checkers import check_checkpoints, check_order, check_same_end, check_views, usable_heads
from tests.simulation.history import History
from tests.simulation.inlineappends import check_carried, check_kept, inlined
from tests.simulation.sharedobjects import SharedObjects
from tests.simulation.simulator import FaultRates, Process, Simulator
from tests.simulation.truth import entry_and_digest, replay

__all__ = ["check_overtaken", "overtaken", "rates_of", "small_objects"]

# The package exports a function of the same name.
_vacuum_module: Final = sys.modules["sparktxn.maintenance.vacuuming.vacuum"]
_TOPIC: Final = "topic"
_PARTITIONS: Final = 2
_ENTRIES: Final = 12
_VACUUMS: Final = 3
_VACUUM_S: Final = 60.0
_WAIT_S: Final = 5.0
_PAUSES_S: Final = (0.1, 0.5, 2.0)
_NAPS_S: Final = (0.0, 0.05, 0.05, 0.3, 1.0)
_IDLES_S: Final = (1.0, 4.0, 12.0)
_GLANCE_S: Final = 0.2
_LINGERS: Final = 0.06
"""How often an operation on a checkpoint is waited with until a vacuum has gone further."""
_ROUNDS: Final = 2
"""How often a process idles that is not a writer: one that looks on for long finds no more."""
_VACUUM: Final = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.temporary.age.ms": 0}
_SETTINGS: Final = tuple(
    StoreSettings(
        checkpoint_entries=entries,
        checkpoint_seal_segments=2,
        checkpoint_merge_runs=2,
        request_timeout_ms=2_000,
        timeout_check_interval_ms=10**15,
    )
    for entries in (3, 4, 4, 6, 40)
)
_Action = Callable[[Process, Log, "_World"], None]


class _World(Struct):
    """What the processes of one history share."""

    history: History
    topic_id: int
    vacuums: int = 0
    """How many have ended."""


@contextmanager
def small_objects() -> Iterator[None]:
    """Let manifests be JSON, objects be decoded once for all processes, and entries be fetched a few at a time.

    Parquet takes two thirds of the time of such a history otherwise, and names of entries that do not exist a tenth.
    """
    manifest, entry, part = (_once(decode) for decode in (_decode_manifest, decode_entry, decode_part))
    places = {
        (module, name): value
        for module, name, value in (
            (sealing, "encode_manifest", _encode_manifest),
            (sealedruns, "decode_manifest", manifest),
            (history_module, "decode_manifest", manifest),
            (tail, "decode_entry", entry),
            (slotrace, "decode_entry", entry),
            (checkpoints, "decode_part", part),
            (_vacuum_module, "_WINDOW", 8),
        )
    }
    before = {(module, name): getattr(module, name) for module, name in places}
    for (module, name), value in places.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name), value in before.items():
            setattr(module, name, value)


def _once(decode: Callable[..., object]) -> Callable[..., object]:
    """Return `decode` with a memory: what it returns is not changed by the processes that share it."""
    return lru_cache(maxsize=256)(decode)


def _encode_manifest(segments: Sequence[SegmentRef]) -> bytes:
    return msgspec.json.encode(tuple(segments))


def _decode_manifest(data: bytes, name: str) -> tuple[SegmentRef, ...]:
    return msgspec.json.decode(data, type=tuple[SegmentRef, ...])


def rates_of(seed: int) -> FaultRates:
    """Return the faults of a history: pauses above all; processes that die are young again, so few do."""
    random = Random(f"{seed} overtaken")
    # Seeds keep their histories, as in simulator.py.
    kinds: list[Fault] = [fault for fault in Fault if fault not in (Fault.NONE, Fault.DENIED)]
    rates = {fault: random.choice((0.0, 0.0, 0.002)) for fault in kinds}
    return FaultRates(rates, random.choice((0.01, 0.03, 0.08)), pauses_s=_PAUSES_S, reads_at_once=True)


def overtaken(simulator: Simulator, history: History) -> None:
    """Two writers, two processes that idle, two vacuums, and readers that open the store anew."""
    log = Log.open(
        simulator.shared,
        settings=_SETTINGS[-1],
        clock=ManualClock(),
        ids=SeededIds(simulator.seed),
        background=StrictBackground(),
        create=True,
    )
    told = log.submit([CreateTopic("topic", _TOPIC, _PARTITIONS)])
    world = _World(history, told[0].topic_id)
    threaded = simulator.seed % 3 == 0
    for number in range(2):
        simulator.add(f"writer {number}", _writing(world), threaded=threaded)
    for number in range(2):
        simulator.add(f"idler {number}", _idling(world), threaded=threaded)
        simulator.add(f"vacuum {number}", _vacuuming(world), threaded=threaded)
    simulator.add("reader", _opening(world))


def check_overtaken(simulator: Simulator, history: History) -> None:
    """Every usable checkpoint, and every view that was given, shows the log as it truly was, and all of it exists.

    Raises:
        AssertionError, DamagedObject: something else is shown, or something that is named is gone.
    """
    shared = simulator.shared
    heads = usable_heads(shared)
    truths = replay(shared, {entry for _, entry, _ in history.ends} | {head.entry for head in heads})
    check_order(truths)
    check_views(history, truths)
    check_checkpoints(shared, truths, heads)
    check_same_end(history, truths)
    horizon = read_horizon(shared)
    named = {
        names.segment(topic, seen.topic_id, partition, segment)
        for truth in truths[horizon:]
        for (topic, partition), seen in truth.partitions.items()
        for segment, offset in seen.segments
        if offset >= seen.log_start_offset and not names.is_inline(segment)
    }
    gone = sorted(name for name in named if name not in shared.objects)
    assert not gone, f"{gone} are named from entry {horizon} on and do not exist"
    check_carried(truths)
    check_kept(shared, truths, horizon)


def _writing(world: _World) -> Callable[[Process], None]:
    """Batches of one partition or two, until enough are stored, whatever becomes of the process."""
    done: list[int] = []

    def program(process: Process) -> None:
        process.before = _lingering(process, world)
        log = process.open_log(process.random.choice(_SETTINGS[:-1]))
        producer: ProducerCommands | None = None
        sequences: dict[int, int] = {}
        while len(done) < _ENTRIES:
            if producer is None:
                told = _settled(process, log, InitProducerId(process.ids.token()))
                producer = ProducerCommands.of(None, told) if told is not None else None
                sequences = {}
                continue
            if _append(process, log, world, producer, sequences):
                done.append(1)
            else:
                producer = None
            process.sleep(process.random.choice(_NAPS_S[:3]))
        _end(process, log, world)

    return program


def _append(process: Process, log: Log, world: _World, producer: ProducerCommands, sequences: dict[int, int]) -> bool:
    """Upload and append a batch; False if its producer cannot know what became of it."""
    partition = process.random.randrange(_PARTITIONS)
    sequence = sequences.get(partition, 0)
    while True:
        world.history.operations += 1
        segment = names.segment_file(log.entry, process.ids.token(), "arrow")
        append = producer.append((world.topic_id, partition), sequence, segment=segment)
        simulator = process.simulator
        # Of a size of its own: a draw of the process would be another schedule.
        append = inlined(append, simulator.inline_bytes if Random(segment).random() < 0.7 else 0)
        if not append.data:
            simulator.shared.put_if_absent(names.segment(_TOPIC, world.topic_id, partition, segment), b"s")
        ticket = log.send([append])
        try:
            while not ticket.is_done():
                with suppress(OutcomeUnknown, StoreUnavailable), log.within(_WAIT_S):
                    ticket.wait()
            with log.within(_WAIT_S):
                ticket.wait()
        except CommandRefused:
            # Its segment has expired: a vacuum has raised the floor above the entry that it was born at.
            continue
        except OutcomeUnknown:
            return False
        sequences[partition] = sequence + 1
        return True


def _settled(process: Process, log: Log, command: InitProducerId) -> CommandResult | None:
    """Return a command's result, or None if it is lost."""
    ticket = log.send([command])
    while not ticket.is_done():
        with suppress(OutcomeUnknown, StoreUnavailable), log.within(_WAIT_S):
            ticket.wait()
    return ticket.results[0] if ticket.results is not None else None


def _idling(world: _World) -> Callable[[Process], None]:
    """Stand on another process's checkpoint, idle until a vacuum has passed it, and then go on, twice."""

    def program(process: Process) -> None:
        shared = process.simulator.shared
        process.before = _lingering(process, world)
        log = process.open_log(process.random.choice(_SETTINGS))
        for _ in range(_ROUNDS):
            entry = log.entry
            _idle_until(process, lambda entry=entry: _newest_checkpoint(shared) > entry)  # type: ignore[misc]
            _act(process, log, world, _ADOPTIONS)
            entry = log.entry
            _idle_until(process, lambda entry=entry: read_horizon(shared) > entry)  # type: ignore[misc]
            _act(process, log, world, _ACTIONS)
        _end(process, log, world)

    return program


def _act(process: Process, log: Log, world: _World, actions: Sequence[_Action]) -> None:
    with suppress(StoreUnavailable, OutcomeUnknown, ViewExpired):
        world.history.operations += 1
        process.random.choice(actions)(process, log, world)


def _idle_until(process: Process, has_happened: Callable[[], bool]) -> None:
    """Sleep until something has happened, but not for long: it may never happen."""
    until_s = process.simulator.now_s + process.random.choice(_IDLES_S)
    while process.simulator.now_s < until_s and not has_happened():
        process.sleep(_GLANCE_S)
    process.sleep(process.random.choice(_NAPS_S))


def _lingering(process: Process, world: _World) -> Callable[[Operation], None]:
    """Pause now and then before an operation on a checkpoint, until a vacuum has gone further and has ended."""
    shared = process.simulator.shared

    def linger(operation: Operation) -> None:
        if process.random.random() >= _LINGERS or not _is_of_a_checkpoint(operation):
            return
        process.simulator.injected["linger"] += 1
        horizon, vacuums = read_horizon(shared), world.vacuums
        _idle_until(process, lambda: world.vacuums > vacuums and read_horizon(shared) > horizon)

    return linger


def _is_of_a_checkpoint(operation: Operation) -> bool:
    return operation.name.startswith((names.CHECKPOINTS, names.TOPICS)) and operation.verb != "delete"


def _newest_checkpoint(shared: SharedObjects) -> int:
    found = (names.parse_checkpoint_head(name) for name in shared.list_names(names.CHECKPOINTS))
    return max((head[0] for head in found if head is not None), default=0)


def _look(process: Process, log: Log, world: _World) -> None:
    shared = process.simulator.shared
    with log.within(_WAIT_S):
        view = log.view(None)
    oldest = min([view.entry, *(seen.base_entry for seen in view.partitions.values() if seen.base_entry is not None)])
    if read_horizon(shared) <= oldest:
        # Otherwise it has expired since: a reader that misses an object says so.
        world.history.see(process.name, shared, view)


def _refresh(process: Process, log: Log, world: _World) -> None:
    with log.within(_WAIT_S):
        log.refresh()


def _write(process: Process, log: Log, world: _World) -> None:
    _settled(process, log, InitProducerId(process.ids.token()))


def _checkpoint(process: Process, log: Log, world: _World) -> None:
    log.checkpoint()


_ADOPTIONS: Final[tuple[_Action, ...]] = (_look, _refresh, _refresh, _write)
_ACTIONS: Final[tuple[_Action, ...]] = (_look, _refresh, _write, _checkpoint, _checkpoint)


def _vacuuming(world: _World) -> Callable[[Process], None]:
    """Vacuum whenever there are two more checkpoints."""

    def program(process: Process) -> None:
        shared = process.simulator.shared
        process.before = _lingering(process, world)
        log = process.open_log(_SETTINGS[-1])
        store = Store(shared.uri, {}, log)
        for _ in range(_VACUUMS):
            _idle_until(process, lambda: _checkpoints_since(shared) >= 2)
            with suppress(StoreUnavailable, OutcomeUnknown):
                world.history.operations += 1
                vacuum(store, _VACUUM, timeout_s=_VACUUM_S)
                world.vacuums += 1
        _end(process, log, world)

    return program


def _checkpoints_since(shared: SharedObjects) -> int:
    """Return how many entries above the horizon have a checkpoint."""
    horizon = read_horizon(shared)
    found = (names.parse_checkpoint_head(name) for name in shared.list_names(names.CHECKPOINTS))
    return len({head[0] for head in found if head is not None and head[0] > horizon})


def _opening(world: _World) -> Callable[[Process], None]:
    """Opens the store anew each time, and reads all of it."""

    def program(process: Process) -> None:
        for _ in range(2):
            process.sleep(4 * process.random.choice(_NAPS_S))
            with suppress(StoreUnavailable, OutcomeUnknown, ViewExpired):
                _look(process, process.open_log(_SETTINGS[-1]), world)
        while True:
            with suppress(StoreUnavailable, OutcomeUnknown, ViewExpired):
                log = process.open_log(_SETTINGS[-1])
                _look(process, log, world)
                world.history.ends.append((process.name, *entry_and_digest(log)))
                return

    return program


def _end(process: Process, log: Log, world: _World) -> None:
    while True:
        try:
            with log.within(_WAIT_S):
                log.refresh()
            world.history.ends.append((process.name, *entry_and_digest(log)))
            return
        except (StoreUnavailable, OutcomeUnknown):
            # The store did not answer, or another thread of the process paused while it held the log.
            process.sleep(0.5)
