"""A database as coordinator: processes die, pause, wake or repeat, and table and log hold the same orders."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec import Struct
from msgspec.structs import replace

from sparktxn._engine.format.commands import AddPartitionsToTxn, Command, CommandResult, InitProducerId
from sparktxn._engine.state.transactions.partitions import last_stable_offset
from sparktxn._engine.state.transactions.producerfencing import PRODUCER_EPOCH_MAX
from sparktxn.errors import CommandRefused
from tests.producercommands import ProducerCommands
from tests.purelog import PureLog

pytestmark = pytest.mark.kafka("K130", "K132")

NAME = "shop"
PLACES = [(1, 0), (1, 1)]
Token = tuple[int, int]


class Process(Struct):
    """A process of the coordinator, which goes on from where it stands whenever it is let."""

    commands: ProducerCommands
    owner: int
    transaction: int
    sequence: int = 0
    segments: tuple[str, ...] = ()
    prepared: Token | None = None
    stored: bool = False
    recovered: bool = False


class NotTheOwner(Exception):
    """The database's refusal: another process has taken over there, be it an older one that woke up late."""


def told(result: CommandResult) -> Token:
    return result.prepared_producer_id, result.prepared_producer_epoch


class Coordinator(RuleBasedStateMachine):
    """`rows` are the segments of committed orders, `decided` the token that the last of them has stored."""

    def __init__(self) -> None:
        super().__init__()
        self.log = PureLog()
        self.log.create_topic("topic", len(PLACES))
        self.processes: list[Process] = []
        self.rows: set[str] = set()
        self.decided: Token | None = None
        self.owner = -1
        self.tokens: list[Token] = []
        self.sent: list[list[Command]] = []
        self.requests = count()

    @initialize(epoch=st.sampled_from([0, PRODUCER_EPOCH_MAX - 4]))
    def begin(self, epoch: int) -> None:
        self.log.initialise(NAME)
        record = replace(self.log.transaction(NAME), producer_epoch=epoch)
        self.log.records[record.key] = record
        self.start(takes_over=True)

    def submit(self, *commands: Command) -> list[CommandResult]:
        self.sent.append(list(commands))
        return self.log.submit(*commands)

    @rule(takes_over=st.booleans())
    def start(self, takes_over: bool) -> None:
        """A new process initialises the id, and takes the database over at once or when it is let again."""
        (result,) = self.submit(InitProducerId(f"init-{next(self.requests)}", NAME, keep_prepared=True))
        prepared = told(result) if result.prepared_producer_id >= 0 else None
        number = result.transaction - (prepared is not None)
        owner = len(self.processes)
        self.processes.append(Process(ProducerCommands.of(NAME, result), owner, number, prepared=prepared))
        if takes_over:
            self.recover(self.processes[-1])

    def pick(self, age: int) -> Process:
        return self.processes[max(-len(self.processes), -1 - age)]

    @rule(age=st.sampled_from([0, 0, 0, 0, 1, 2]), steps=st.integers(1, 3), kind=st.integers(0, 3))
    def go_on(self, age: int, steps: int, kind: int) -> None:
        process = self.pick(age)
        for _ in range(steps):
            try:
                self.step(process, kind)
            except NotTheOwner:
                return
            except CommandRefused:
                # Only who has been fenced is refused; it stops, as its client does.
                assert process is not self.processes[-1]
                return

    def step(self, process: Process, kind: int) -> None:
        if not process.recovered:
            self.recover(process)
        elif process.prepared is None:
            self.prepare(process, kind)
        elif not process.stored:
            self.store(process)
        else:
            self.complete(process, committed=True)

    def recover(self, process: Process) -> None:
        self.owner = process.owner
        if process.prepared is not None:
            self.complete(process, committed=process.prepared == self.decided)
        process.recovered = True

    def prepare(self, process: Process, kind: int) -> None:
        """An order of two records, of one that is published before, of none at all, or of an offset alone."""
        producer, number = process.commands, process.transaction + 1
        appends = [producer.append(place, process.sequence, transaction=number) for place in PLACES]
        if kind == 1:
            self.submit(appends[0])
        names = (NAME, producer.producer_id, producer.producer_epoch, number)
        work: list[Command] = [*appends] if kind < 2 else [AddPartitionsToTxn(*names, ())]
        if kind == 3:
            work = [producer.offset(number, "group", PLACES[0], number)]
        results = self.submit(*work, producer.prepare(number))
        process.prepared = told(results[-1])
        process.segments = tuple(append.segment for append in appends) if kind < 2 else ()
        process.stored = False
        assert process.prepared not in self.tokens
        self.tokens.append(process.prepared)

    def store(self, process: Process) -> None:
        """The database's transaction: it commits for its owner alone."""
        if process.owner != self.owner:
            raise NotTheOwner
        self.rows.update(process.segments)
        self.decided = process.prepared
        process.stored = True

    def complete(self, process: Process, *, committed: bool) -> None:
        (result,) = self.submit(process.commands.end(process.transaction + 1, committed=committed))
        process.commands = ProducerCommands.of(NAME, result)
        process.transaction += 1
        process.sequence = 0
        process.prepared = None

    @precondition(lambda self: bool(self.sent))
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """A list arrives once more, late: it may be refused, and changes nothing in any case."""
        list_ = data.draw(st.sampled_from(self.sent[-6:]))
        before = dict(self.log.records)
        try:
            results = self.log.submit(*list_)
        except CommandRefused:
            pass
        else:
            assert all(result.duplicate for result in results)
        assert self.log.records == before

    @rule()
    def everybody_dies(self) -> None:
        """A new process comes up and recovers: both sides agree, and nothing is left open."""
        self.start(takes_over=True)
        assert self.committed() == self.rows
        for place in PLACES:
            partition = self.log.partition(*place)
            assert last_stable_offset(partition) == partition.log_end_offset
        assert not [key for key in self.log.records if key[0] == "pending_offsets"]

    def committed(self) -> set[str]:
        """The segments that read_committed returns."""
        found = set()
        for place in PLACES:
            located, stable = self.log.segments(*place), last_stable_offset(self.log.partition(*place))
            for segment in located.segments:
                aborted = any(
                    range_.producer_id == segment.producer_id
                    and range_.first_offset <= segment.base_offset <= range_.last_offset
                    for range_ in located.aborted
                )
                if segment.base_offset < stable and not aborted:
                    found.add(segment.name)
        return found

    @invariant()
    def a_reader_sees_nothing_that_the_database_has_not(self) -> None:
        assert self.committed() <= self.rows

    def teardown(self) -> None:
        if self.processes:
            self.everybody_dies()


class Unfenced(Coordinator):
    """The same with a database that takes an order from any process: what the check of the owner is for."""

    def store(self, process: Process) -> None:
        self.owner = process.owner
        super().store(process)


def run(machine: type[Coordinator], examples: int = 100, **more: Any) -> None:
    chosen = settings(max_examples=examples, stateful_step_count=40, **more)
    run_state_machine_as_test(machine, settings=settings(chosen, suppress_health_check=list(HealthCheck)))


def test_both_sides_agree() -> None:
    run(Coordinator)


@pytest.mark.nightly
def test_without_a_fence_in_the_database_they_do_not() -> None:
    with pytest.raises(AssertionError):
        run(Unfenced, examples=2_000, print_blob=False, report_multiple_bugs=False, phases=[Phase.generate])
