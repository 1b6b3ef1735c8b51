"""What simulated processes do below the clients: writers of batches that take effect once, readers, and a vacuum.

A writer behaves as PROTOCOL.md requires. It waits again on what is unknown. After a death it initialises its
transactional id, and the answer shows how its last transaction ended.

Segments are only names here, or a few bytes in an entry: the log never reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import (
    Append,
    Command,
    CommandResult,
    CreateTopic,
    EndTxn,
    InitProducerId,
    OffsetCommit,
    OffsetToCommit,
    TxnOffsetCommit,
)
from sparktxn._engine.format.names import parse_checkpoint_head, parse_entry
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.write.queue import Ticket
from sparktxn._engine.objectstore.puts import put_until_stored
from sparktxn._foundation.config.store import StoreSettings
from sparktxn.errors import CommandRefused, ErrorCode, OutcomeUnknown, StoreUnavailable, ViewExpired
from tests.producercommands import ProducerCommands
from tests.simulation.history import Attempt, History, Job, Outcome
from tests.simulation.inlineappends import inlined
from tests.simulation.simulator import Process, Simulator
from tests.simulation.truth import entry_and_digest

__all__ = ["commit", "commit_and_vacuum", "delete_behind_checkpoints"]

TOPICS: Final = {"left": 2, "right": 1}
_SETTINGS: Final = StoreSettings(checkpoint_entries=5, checkpoint_seal_segments=3, request_timeout_ms=2_000)
_WAIT_S: Final = 5.0


class _Lost(Exception):
    """This process cannot go on as it is: it must initialise its transactional id again."""


class _Writer:
    """One process's instance of a job."""

    def __init__(self, process: Process, log: Log, job: Job, history: History) -> None:
        self._process = process
        self._log = log
        self.job = job
        self._history = history
        self._producer_id = -1
        self._producer_epoch = -1
        self._transaction = 0
        self._sequences: dict[tuple[int, int], int] = {}
        self.done = 0

    def initialise(self) -> None:
        """Takes the transactional id over, and learns how its last transaction ended."""
        self._history.operations += 1
        told = _settle(self._process, self._log, [InitProducerId(self._process.ids.token(), self.job.name)])[0]
        self._producer_id, self._producer_epoch = told.producer_id, told.producer_epoch
        self._transaction = told.transaction
        self._sequences = {}
        if told.committed:
            self._history.acknowledge(self.job, told.transaction)
        self.done = self.job.done_at(told.transaction)

    def begin(self, *, fused: bool) -> tuple[Attempt, list[Append], list[Command]]:
        """The next attempt with its appends, and its other commands but the last."""
        random = self._process.random
        batch = self.done
        self._transaction += 1
        places = [(topic, number) for topic, partitions in TOPICS.items() for number in range(partitions)]
        appends = [self._append(topic, partition) for topic, partition in random.sample(places, random.randint(1, 3))]
        segments = tuple((append.topic_id, append.partition, append.segment) for append in appends)
        offset = batch + 1 if random.random() < 0.5 else None
        self.job.attempts[self._transaction] = batch
        attempt = Attempt(self.job.name, batch, self._transaction, segments, offset, fused)
        self._history.attempts.append(attempt)
        return attempt, appends, [self._offsets(offset)] if offset is not None else []

    def end(self, *, committed: bool) -> EndTxn:
        """The command that ends the attempt."""
        return EndTxn(self.job.name, self._producer_id, self._producer_epoch, self._transaction, committed)

    def settled(self, attempt: Attempt, ticket: Ticket, outcome: Outcome) -> None:
        """Waits for the attempt's last list, and notes the answer.

        Raises:
            _Lost: the outcome can only be learnt by initialising again.
        """
        try:
            self._history.operations += 1
            if _wait(self._process, self._log, ticket) is None:
                attempt.outcome = Outcome.WITHDRAWN
                raise _Lost
        except CommandRefused:
            if attempt.fused:
                attempt.outcome = Outcome.REFUSED
            raise _Lost from None
        except OutcomeUnknown:
            raise _Lost from None
        attempt.outcome = outcome
        if outcome is Outcome.COMMITTED:
            self._history.acknowledge(self.job, attempt.transaction)
            self.done = attempt.batch + 1

    def publish(self, attempt: Attempt, appends: list[Append]) -> None:
        """Publishes records of the open transaction."""
        try:
            self._history.operations += 1
            if _wait(self._process, self._log, self._log.send(appends)) is None:
                raise _Lost
        except (CommandRefused, OutcomeUnknown):
            raise _Lost from None

    def _append(self, topic: str, partition: int) -> Append:
        known = self._log.topic(topic)
        if known is None:
            raise _Lost
        where = (known.topic_id, partition)
        count = self._process.random.randint(1, 4)
        with self._log.within(_WAIT_S):
            born = self._log.born()
        sequence = self._sequences.get(where, 0)
        self._sequences[where] = sequence + count
        append = Append(
            topic_id=known.topic_id,
            partition=partition,
            segment=names.segment_file(born, self._process.ids.token(), "arrow"),
            record_count=count,
            size_bytes=100,
            checksum="00000000",
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=sequence,
            timestamp_min_ms=0,
            timestamp_max_ms=1,
            transactional_id=self.job.name,
            transaction=self._transaction,
        )
        return inlined(append, self._process.simulator.inline_bytes)

    def _offsets(self, offset: int) -> TxnOffsetCommit:
        identity = (self.job.name, self._producer_id, self._producer_epoch, self._transaction)
        topic = self._log.topic("right")
        if topic is None:
            raise _Lost
        return TxnOffsetCommit(*identity, self.job.name, (OffsetToCommit(topic.topic_id, 0, offset),))


def _wait(process: Process, log: Log, ticket: Ticket) -> list[CommandResult] | None:
    """The results, waiting again while the outcome is open; None if the list could be withdrawn instead.

    Raises:
        CommandRefused, OutcomeUnknown: the final outcome.
    """
    while True:
        try:
            with log.within(_WAIT_S):
                return ticket.wait()
        except (OutcomeUnknown, StoreUnavailable):
            if ticket.is_done():
                raise
            if process.random.random() < 0.3 and ticket.withdraw():
                return None
            process.sleep(0.5)


def _settle(process: Process, log: Log, commands: list[Command]) -> list[CommandResult]:
    """The results of commands with request ids, which may be sent again whatever happened.

    Raises:
        CommandRefused: they are refused.
    """
    while True:
        try:
            results = _wait(process, log, log.send(commands))
        except OutcomeUnknown:
            continue
        if results is not None:
            return results


def _create_topics(process: Process, log: Log) -> None:
    for name, partitions in TOPICS.items():
        try:
            _settle(process, log, [CreateTopic(process.ids.token(), name, partitions)])
        except CommandRefused as refused:
            if refused.error.code() != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


def _write_together(process: Process, log: Log, writers: list[_Writer]) -> None:
    """One fused transaction of each writer, all waiting for the same entry."""
    sent = []
    for writer in writers:
        attempt, appends, others = writer.begin(fused=True)
        sent.append((writer, attempt, log.send([*appends, *others, writer.end(committed=True)])))
    lost = False
    for writer, attempt, ticket in sent:
        try:
            writer.settled(attempt, ticket, Outcome.COMMITTED)
        except _Lost:
            lost = True
    if lost:
        raise _Lost


def _write_early(process: Process, log: Log, writer: _Writer) -> None:
    """One transaction that publishes before it ends, and sometimes aborts."""
    attempt, appends, others = writer.begin(fused=False)
    writer.publish(attempt, appends[:1])
    process.sleep(process.random.random())
    committed = process.random.random() < 0.6
    rest = [*appends[1:], *others] if committed else []
    ticket = log.send([*rest, writer.end(committed=committed)])
    writer.settled(attempt, ticket, Outcome.COMMITTED if committed else Outcome.ABORTED)


class _IdempotentWriter:
    """A producer without transactions: what it is not sure of it sends again, under the same sequences."""

    def __init__(self, process: Process, log: Log, history: History) -> None:
        self._process = process
        self._log = log
        self._history = history
        self._producer: ProducerCommands | None = None
        self._sequence = 0

    def append(self) -> None:
        """One batch, sent until it is known to be stored, or until the outcome is lost.

        Raises:
            _Lost: the topic is not there yet.
        """
        topic = self._log.topic("right")
        if topic is None:
            raise _Lost
        self._history.operations += 1
        if self._producer is None:
            told = _settle(self._process, self._log, [InitProducerId(self._process.ids.token())])[0]
            self._producer, self._sequence = ProducerCommands.of(None, told), 0
        count = self._process.random.randint(1, 4)
        with self._log.within(_WAIT_S):
            born = self._log.born()
        segment = names.segment_file(born, self._process.ids.token(), "arrow")
        append = self._producer.append((topic.topic_id, 0), self._sequence, count, segment=segment)
        append = inlined(append, self._process.simulator.inline_bytes)
        attempt = Attempt(append.segment, 0, -1, ((topic.topic_id, 0, append.segment),), None, False)
        self._history.attempts.append(attempt)
        try:
            while _wait_a_while(self._process, self._log, self._log.send([append])) is None:
                self._history.operations += 1
        except (CommandRefused, OutcomeUnknown):
            # Under another identity nothing can be taken for what this one has stored.
            self._producer = None
            return
        attempt.outcome = Outcome.COMMITTED
        self._sequence += count


def _wait_a_while(process: Process, log: Log, ticket: Ticket) -> list[CommandResult] | None:
    """The results; None once the caller has lost patience: it will send the same again, alongside what is under way.

    Raises:
        CommandRefused, OutcomeUnknown: the final outcome.
    """
    while True:
        try:
            with log.within(_WAIT_S):
                return ticket.wait()
        except (OutcomeUnknown, StoreUnavailable):
            if ticket.is_done():
                raise
            if process.random.random() < 0.5:
                return None


def _commit_plain_offset(process: Process, log: Log) -> None:
    topic = log.topic("right")
    if topic is not None:
        offsets = (OffsetToCommit(topic.topic_id, 0, process.random.randint(0, 9)),)
        _settle(process, log, [OffsetCommit(process.ids.token(), f"plain-{process.name}", offsets)])


def _writing(jobs: list[Job], history: History) -> Callable[[Process], None]:
    def program(process: Process) -> None:
        log = process.open_log(_SETTINGS)
        _create_topics(process, log)
        writers = [_Writer(process, log, job, history) for job in jobs]
        idempotent = _IdempotentWriter(process, log, history)
        lost = True
        while not all(job.finished for job in jobs):
            try:
                if lost:
                    for writer in writers:
                        writer.initialise()
                    lost = False
                open_ = [writer for writer in writers if writer.done < writer.job.batches]
                if open_:
                    _act(process, log, open_, idempotent, history)
                else:
                    process.sleep(0.5)  # a step: a job that never ends is then found by the limit on steps
            except _Lost:
                lost = True
            except StoreUnavailable:
                lost = True
                process.sleep(0.5)
        _end(process, log, history)

    return program


def _act(process: Process, log: Log, writers: list[_Writer], idempotent: _IdempotentWriter, history: History) -> None:
    drawn = process.random.random()
    if drawn < 0.5:
        _write_together(process, log, writers)
    elif drawn < 0.8:
        _write_early(process, log, process.random.choice(writers))
    elif drawn < 0.92:
        idempotent.append()
    elif drawn < 0.96:
        history.operations += 1
        _commit_plain_offset(process, log)
    else:
        history.operations += 1
        log.checkpoint()


def _end(process: Process, log: Log, history: History) -> None:
    while True:
        try:
            with log.within(_WAIT_S):
                log.refresh()
            history.ends.append((process.name, *entry_and_digest(log)))
            return
        except StoreUnavailable:
            process.sleep(0.5)


def _reading(jobs: list[Job], history: History) -> Callable[[Process], None]:
    def program(process: Process) -> None:
        log = process.open_log(_SETTINGS)
        idle_s = 1.0
        while not all(job.finished for job in jobs):
            last = log.entry
            try:
                entry = process.random.randint(0, log.entry) if process.random.random() < 0.3 else None
                history.operations += 1
                with log.within(_WAIT_S):
                    view = log.view(None, entry=entry)
                history.see(process.name, process.simulator.shared, view)
            except (StoreUnavailable, OutcomeUnknown, ViewExpired):
                pass
            idle_s = min(2 * idle_s, 300.0) if log.entry == last else 1.0
            process.sleep(process.random.random() * idle_s)
        _end(process, log, history)

    return program


def _vacuuming(jobs: list[Job], history: History) -> Callable[[Process], None]:
    """Deletes log entries behind the older of the two newest checkpoints, marker first (protocol, section 10)."""

    def program(process: Process) -> None:
        log = process.open_log(_SETTINGS)
        idle_s = 1.0
        while not all(job.finished for job in jobs):
            last = log.entry
            try:
                with log.within(_WAIT_S):
                    log.refresh()
                delete_behind_checkpoints(log)
            except (StoreUnavailable, OutcomeUnknown):
                pass
            idle_s = min(2 * idle_s, 300.0) if log.entry == last else 1.0
            process.sleep(process.random.random() * idle_s)
        _end(process, log, history)

    return program


def delete_behind_checkpoints(log: Log) -> None:
    heads = sorted(
        {head[0] for name in log.objects.list_names(names.CHECKPOINTS) if (head := parse_checkpoint_head(name))}
    )
    # The horizon is an entry that exists and is known to: the process that put its slot has lost it.
    if len(heads) < 2 or heads[-1] > log.entry:
        return
    marker = names.horizon(heads[-2])
    put_until_stored(log.objects, marker, b"horizon", log.clock)
    entries = {name: parse_entry(name) for name in log.objects.list_names(names.ENTRIES)}
    log.objects.delete(sorted(name for name, number in entries.items() if number is not None and number < heads[-2]))
    log.objects.delete(
        name
        for name in sorted(log.objects.list_names(names.CHECKPOINTS))
        if (head := parse_checkpoint_head(name)) and head[0] < heads[-2]
    )


def commit(simulator: Simulator, history: History) -> None:
    """Writers, one of them with two jobs on one log, a second instance of the first job, and a reader."""
    history.jobs = [Job(f"job-{number}", 3) for number in range(4)]
    first, second, third, fourth = history.jobs
    for name, jobs in {"w0": [first], "w1": [second, third], "w2": [fourth], "zombie": [first]}.items():
        simulator.add(name, _writing(jobs, history))
    simulator.add("reader", _reading(history.jobs, history))


def commit_and_vacuum(simulator: Simulator, history: History) -> None:
    """The same, with two vacuums that delete log entries and checkpoints that are in use."""
    commit(simulator, history)
    for number in range(2):
        simulator.add(f"vacuum-{number}", _vacuuming(history.jobs, history))
