"""What the processes do that test_real_processes.py kills and pauses; each gets all of it in one `Task`.

Every process notes what it is about to do, and the answer, in a journal of its own. Each step is one JSON line, written
with one append, so a killed process leaves all lines but perhaps a part of the last. Nothing here decides whether the
store is right: `journal_checker.py` compares the journals with the store.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, cast

from sparktxn import Consumer, KafkaException, Producer, Store, TopicPartition, ViewExpired
from sparktxn._engine.log.log import Log
from sparktxn._foundation.config.maintenance import RewriteSettings
from sparktxn.maintenance import Sweeper, vacuum
from sparktxn.maintenance.publishing import background
from sparktxn.maintenance.publishing.background import Folder
from sparktxn.store import read_task

__all__ = ["FENCED", "GROUP", "INPUTS", "OUTPUT", "PROGRESS", "ROLES", "STARTS_AGAIN"]
__all__ += ["Journal", "Task", "progress_of", "run"]

INPUTS = {"orders": 3, "payments": 2}
"""The topics that writers write together, with their partitions."""
OUTPUT = "audit"
"""What the transformer makes of the topic `orders`, partition by partition."""
PROGRESS = "progress"
"""Holds no records: a writer's position in its own work is a committed offset of this topic."""
GROUP = "audit-of-orders"

# Hours in earnest: here whatever may go goes while others are at work.
VACUUM = {"vacuum.retention.ms": 200, "vacuum.segment.age.ms": 200, "vacuum.temporary.age.ms": 60_000}

FENCED, STARTS_AGAIN = 3, 4
"""Exit codes: another producer or a time-out has ended this one; an error left nothing to do but to begin again."""

CALL_S = 5.0
GIVES_UP_S = 60.0


class Task(NamedTuple):
    """One process: the `incarnation`-th of the worker `name`, whose work `role` is."""

    role: str
    name: str
    incarnation: int
    uri: str
    options: dict[str, Any]
    folder: str
    seed: int
    timeout_ms: int

    @property
    def settings(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.uri, **self.options}

    @property
    def breath_s(self) -> float:
        """How long those who only look wait in between: a small S3 server has to answer the others too."""
        return 0.2 if "://" in self.uri else 0.025

    @property
    def call_s(self) -> float:
        """How long a call may take: on a local disk nothing fails but the machine's other work makes calls slow."""
        return CALL_S if "://" in self.uri else GIVES_UP_S

    def random(self) -> Random:
        return Random(f"{self.seed}/{self.name}/{self.incarnation}")

    def last(self) -> bool:
        """True once this worker is to end after one more round."""
        return Path(self.folder, f"stop-{self.role}").exists()


class Journal:
    """The notes of one process."""

    def __init__(self, task: Task) -> None:
        path = Path(task.folder, f"{task.name}.{task.incarnation}.journal")
        self.call_s = task.call_s
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, what: str, **members: Any) -> None:
        line = {"what": what, "ns": time.monotonic_ns(), **members}
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")


def progress_of(name: str) -> str:
    """The group in which a writer commits how many of its batches are done."""
    return f"progress-of-{name}"


def until_known(journal: Journal, call: Callable[[float], object]) -> None:
    """Calls again for as long as the answer is to call again."""
    gives_up_s = time.monotonic() + GIVES_UP_S
    while True:
        try:
            call(journal.call_s)
            return
        except KafkaException as error:
            told = error.args[0]
            if told.fatal() or told.txn_requires_abort() or not told.retriable() or time.monotonic() > gives_up_s:
                raise
            journal.note("calls again", code=told.name(), reason=told.str())


def transactional_producer(task: Task, journal: Journal) -> Producer:
    settings = {**task.settings, "transactional.id": task.name, "transaction.timeout.ms": task.timeout_ms}
    producer = Producer(settings)
    until_known(journal, producer.init_transactions)
    journal.note("initialised", producer_id=producer.producer_id, epoch=producer.producer_epoch)
    return producer


def committed_position(task: Task, journal: Journal, group: str, partition: TopicPartition) -> int:
    found: list[int] = []
    with Consumer({**task.settings, "group.id": group}) as consumer:
        until_known(journal, lambda wait_s: found.append(consumer.committed([partition], wait_s)[0].offset))
    return max(found[0], 0)


def write_batches(task: Task, journal: Journal) -> int:
    """Writes batch after batch, each of several topics and partitions, exactly once through all its incarnations.

    How many are done is an offset that each transaction commits with its records; a new process asks for it.
    """
    random = task.random()
    producer = transactional_producer(task, journal)
    group, progress = progress_of(task.name), TopicPartition(PROGRESS, int(task.name.rsplit("-", 1)[1]))
    batch = committed_position(task, journal, group, progress)
    journal.note("resumes", batch=batch)
    with Consumer({**task.settings, "group.id": group}) as consumer:
        metadata = consumer.consumer_group_metadata()
    places = [(topic, number) for topic, count in INPUTS.items() for number in range(count)]
    attempts = 0
    while True:
        last = task.last()
        attempt = f"{task.name}/{batch}/{task.incarnation}.{attempts}"
        attempts += 1
        chosen = random.sample(places, random.randint(1, len(places)))
        rows = [random.choice(chosen) for _ in range(random.randint(len(chosen), 12))]
        flushes = {random.randrange(len(rows)) for _ in range(random.choice((0, 0, 1, 2)))}
        aborts = not last and random.random() < 0.15
        identity = [producer.producer_id, producer.producer_epoch]
        journal.note("begins", attempt=attempt, batch=batch, rows=len(rows), early=bool(flushes))
        try:
            producer.begin_transaction()
            for number, (topic, partition) in enumerate(rows):
                value = {"attempt": attempt, "batch": batch, "number": number, "of": len(rows), "by": identity}
                producer.produce(topic, json.dumps(value), partition=partition)
                if number in flushes:
                    producer.flush(task.call_s)
                    journal.note("published", attempt=attempt)
                    time.sleep(0.002)
            position = TopicPartition(PROGRESS, progress.partition, batch + 1)
            producer.send_offsets_to_transaction([position], metadata)
            if aborts:
                journal.note("aborts", attempt=attempt)
                until_known(journal, producer.abort_transaction)
                journal.note("aborted", attempt=attempt)
            else:
                journal.note("commits", attempt=attempt)
                until_known(journal, producer.commit_transaction)
                journal.note("committed", attempt=attempt)
                batch += 1
        except KafkaException as error:
            told = error.args[0]
            journal.note("failed", attempt=attempt, code=told.name(), fatal=told.fatal(), reason=told.str())
            if told.fatal():
                return FENCED
            if not told.txn_requires_abort():
                return STARTS_AGAIN
            until_known(journal, producer.abort_transaction)
            journal.note("aborted", attempt=attempt)
            continue
        if last and not aborts:
            producer.close()
            return 0


def transform(task: Task, journal: Journal) -> int:
    """Copies `orders` to OUTPUT, each record once: the group's offsets travel in the transaction with the copies."""
    random = task.random()
    producer = transactional_producer(task, journal)
    settings = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with Consumer({**task.settings, **settings}) as consumer:
        consumer.assign([TopicPartition("orders", number) for number in range(INPUTS["orders"])])
        while True:
            last = task.last()
            messages = consumer.consume(random.randint(1, 60), 0.2)
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
            if not messages:
                if last:
                    producer.close()
                    return 0
                continue
            attempt = f"{task.name}/{task.incarnation}/{messages[0].partition()}:{messages[0].offset()}"
            journal.note("begins", attempt=attempt, rows=len(messages))
            producer.begin_transaction()
            for message in messages:
                source = {"partition": message.partition(), "offset": message.offset()}
                value = {
                    "source": source,
                    "copy": json.loads(message.value() or b""),
                    "attempt": attempt,
                    "of": len(messages),
                }
                producer.produce(OUTPUT, json.dumps(value), partition=cast(int, message.partition()))
            if random.random() < 0.3:
                producer.flush(task.call_s)
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
            journal.note("commits", attempt=attempt)
            until_known(journal, producer.commit_transaction)
            journal.note("committed", attempt=attempt)


def view(task: Task, journal: Journal) -> int:
    """Reads on from where it is, as micro-batches do: a view, and what entries up to its own have committed."""
    kept = Path(task.folder, f"{task.name}.position")
    after = int(kept.read_text()) if kept.exists() else 0
    with Store.open(task.uri, options=task.options) as store:
        while True:
            last = task.last()
            began_ns = time.monotonic_ns()
            rows = []
            try:
                view = store.view([*INPUTS, OUTPUT])
                for part in store.plan_commits(view, after, columns=["topic", "partition", "offset", "value"]):
                    for batch in read_task(part, task.options):
                        rows += [[*row.values()] for row in batch.to_pylist()]
            except ViewExpired as expired:
                journal.note("expired", reason=str(expired))
                continue
            rows = [[topic, partition, offset, value.decode()] for topic, partition, offset, value in rows]
            journal.note("saw", entry=view.entry, after=after, began_ns=began_ns, rows=rows)
            after = view.entry
            new = kept.with_suffix(".new")
            new.write_text(str(after))
            new.replace(kept)
            if last:
                return 0
            time.sleep(task.breath_s)


def sweep(task: Task, journal: Journal) -> int:
    """Ends what has timed out, again and again."""
    with Store.open(task.uri, options=task.options) as store:
        sweeper = Sweeper(store)
        while not task.last():
            journal.note("sweeps")
            report = sweeper.sweep(task.call_s)
            journal.note("swept", timed_out=[str(found) for found in report.timed_out], unresolved=report.unresolved)
            for _ in report.timed_out:
                journal.note("timed out")
            time.sleep(4 * task.breath_s)
    return 0


def clean(task: Task, journal: Journal) -> int:
    """Deletes what no process needs any more, again and again."""
    with Store.open(task.uri, options=task.options) as store:
        while not task.last():
            journal.note("vacuums")
            report = vacuum(store, VACUUM, timeout_s=task.call_s)
            journal.note("vacuumed", horizon=report.horizon, report=str(report))
            time.sleep(10 * task.breath_s)
    return 0


ROLES: dict[str, Callable[[Task, Journal], int]] = {
    "writer": write_batches,
    "transformer": transform,
    "viewer": view,
    "sweeper": sweep,
    "vacuumer": clean,
}


def _fold_at_once(journal: Journal) -> None:
    """Have this process fold segments after each of its checkpoints, however few they are."""

    def start_folding(log: Log) -> None:
        folder = Folder(log, 1 << 30, RewriteSettings(target_bytes=8_192, min_segments=3), pause_s=0.05)

        def after_checkpoint() -> None:
            journal.note("folds")
            folder.after_checkpoint()

        log.on_checkpoint = after_checkpoint
        after_checkpoint()

    background.start_folding = start_folding


def run(task: Task) -> int:
    """The process's whole life; its exit code."""
    journal = Journal(task)
    journal.note("starts", pid=os.getpid())
    _fold_at_once(journal)
    try:
        code = ROLES[task.role](task, journal)
    except KafkaException as error:
        told = error.args[0]
        journal.note("failed", code=told.name(), fatal=told.fatal(), reason=told.str())
        if told.fatal():
            code = FENCED
        elif told.retriable() or told.txn_requires_abort():
            code = STARTS_AGAIN
        else:
            raise
    journal.note("ends", code=code)
    return code
