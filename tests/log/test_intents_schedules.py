"""Random schedules of processes that lose, leave, take up, cancel, die and get no answer, on one log.

Every list takes effect at most once, and its owner's answer is what the log says.
"""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec import Struct
from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Append, CancelIntent, Command, CommandResult, CreateTopic, SettleIntent
from sparktxn._engine.format.commands import InitProducerId as Init
from sparktxn._engine.format.entry import decode_entry
from sparktxn._engine.log.follow.tail import Tail
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.write.queue import Ticket
from sparktxn._foundation.config.store import StoreSettings
from sparktxn.errors import CommandRefused, KafkaException, OutcomeUnknown, StoreUnavailable
from tests.producercommands import ProducerCommands
from tests.seeds import examples
from tests.simulation.simulator import Process, Simulator
from tests.simulation.truth import replay

SETTINGS = StoreSettings(checkpoint_entries=7, request_timeout_ms=2_000)
WRITERS, LISTS, SEEDS = 7, 6, examples(25, 500)


class Told(Struct):
    """An append of one segment, with the commit of its transaction, and the answers to its owner."""

    append: Append
    results: list[CommandResult] | None = None
    never: bool = False


class Writer:
    """One instance of a process that commits one list after the other, whatever becomes of the one before."""

    def __init__(self, process: Process, log: Log, told: list[Told]) -> None:
        self._process = process
        self._log = log
        self._told = told

    def run(self, transactional_id: str, home: tuple[int, int]) -> None:
        initialised = self._outcome(self._log.send([Init(self._process.ids.token(), transactional_id)]), cancels=False)
        assert initialised is not None
        producer = ProducerCommands.of(transactional_id, initialised[0])
        transaction, sequences = initialised[0].transaction, Counter[tuple[int, int]]()
        for _ in range(LISTS):
            # Topic 2 comes into being some time later: until then what goes there is refused, and stays refused.
            where = (2, 0) if self._process.random.random() < 0.5 else home
            append = producer.append(where, sequences[where], transaction=transaction + 1)
            append = replace(append, segment=names.segment_file(0, self._process.ids.token(), "arrow"))
            one = Told(append)
            self._told.append(one)
            try:
                ticket = self._log.send([append, producer.end(transaction + 1)])
                one.results = self._outcome(ticket, cancels=self._process.random.random() < 0.5)
            except CommandRefused:
                one.results = None
            one.never = one.results is None
            if one.results is not None:
                transaction += 1
                sequences[where] += 1

    def _outcome(self, ticket: Ticket, *, cancels: bool) -> list[CommandResult] | None:
        """The results; None if the list was cancelled instead."""
        while True:
            try:
                if cancels and self._process.random.random() < 0.3 and ticket.cancel():
                    return None
                with self._log.within(self._process.random.choice((0.0, 0.0, 0.05, 2.0))):
                    return ticket.wait()
            except (OutcomeUnknown, StoreUnavailable):
                assert ticket.error is None, "nothing is vacuumed here, so nothing stays unknown"
            except CommandRefused:
                raise
            except KafkaException:
                return None  # it was cancelled
            self._process.sleep(0.02)


def simulated(seed: int) -> tuple[Simulator, list[Told]]:
    simulator = Simulator(seed, calm_after=400, steps_max=60_000)
    simulator.shared.probe_is_cheap = seed % 2 == 0  # the others wait for their turn, as on S3
    told: list[Told] = []

    def write(process: Process, number: int) -> None:
        Writer(process, process.open_log(SETTINGS), told).run(f"job {number}", (1, number % 2))

    def create(process: Process) -> None:
        log = process.open_log(SETTINGS)
        for topic_id, pause_s in ((1, 0.0), (2, 12 * process.random.random())):
            process.sleep(pause_s)
            while log.topic(f"topic-{topic_id}") is None:
                try:
                    log.submit([CreateTopic(f"create {topic_id}", f"topic-{topic_id}", 2)])
                except (OutcomeUnknown, StoreUnavailable):
                    process.sleep(0.05)

    simulator.add("creator", create)
    for number in range(WRITERS):
        simulator.add(f"writer {number}", lambda process, number=number: write(process, number))  # type: ignore[misc]
    simulator.run()
    return simulator, told


def commands_of(simulator: Simulator) -> list[Command]:
    found: list[Command] = []
    number = 1
    while (data := simulator.shared.history.get(names.entry(number))) is not None:
        found += decode_entry(data, names.entry(number), number).commands
        number += 1
    return found


def check(simulator: Simulator, told: list[Told]) -> Counter[str]:
    """Compares the answers to owners with the log; counts what happened, so that a test can ask for all of it."""
    commands = commands_of(simulator)
    replay(simulator.shared)  # raises if an entry holds what the state refuses: an id that is settled again, too
    times = Counter(command.segment for command in commands if isinstance(command, Append))
    assert not times or max(times.values()) == 1
    tail = Tail(simulator.shared, None)
    tail.advance()
    for one in told:
        if one.results is not None:
            assert times[one.append.segment] == 1, "acknowledged, and not in the log"
            located = tail.parts.get(("segments", one.append.topic_id, one.append.partition))
            offsets = {segment.name: segment.base_offset for segment in located.segments}
            assert offsets.get(one.append.segment, one.results[0].base_offset) == one.results[0].base_offset
        if one.never:
            assert times[one.append.segment] == 0, "told that it never takes effect, and in the log"
    settled = [command for command in commands if isinstance(command, SettleIntent | CancelIntent)]
    ids = [command.intent_id for command in settled]
    assert len(ids) == len(set(ids))
    kinds = Counter[str]()
    for command in settled:
        kinds[
            "cancelled" if isinstance(command, CancelIntent) else "refused" if command.refused_code else "applied"
        ] += 1
    kinds["left"] = sum(name.startswith(names.INTENTS) for name in simulator.shared.objects)
    kinds["acknowledged"] = sum(one.results is not None for one in told)
    return kinds


@pytest.mark.holes(15, 16, 17, 18, 19, 20)
def test_every_list_takes_effect_at_most_once_and_its_owner_is_told_the_truth() -> None:
    total = Counter[str]()
    for seed in range(SEEDS):
        print(f"seed {seed}")
        total += check(*simulated(seed))
    print(total)
    assert min(total[kind] for kind in ("applied", "refused", "cancelled", "acknowledged")) > 0
