"""Simulated processes alongside the writers: sweeps, vacuums, administrators, and databases that decide
transactions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msgspec import Struct

from sparktxn._engine.log.log import Log
from sparktxn._foundation.config.maintenance import RewriteSettings
from sparktxn._foundation.config.store import StoreOptions
from sparktxn._foundation.process.clock import RandomIds
from sparktxn._kafka.message import TopicPartition
from sparktxn.admin import AbortTransactionSpec, AdminClient, NewPartitions, NewTopic
from sparktxn.errors import ConfigurationError, KafkaException
from sparktxn.maintenance import (
    Sweeper,
    apply_compact,
    apply_rewrite,
    compact,
    plan_compact,
    plan_rewrite,
    rewrite,
    sweep,
    vacuum,
    verify,
)
from sparktxn.maintenance.copying.storecopy import Copying, Work
from sparktxn.maintenance.publishing.background import Folder
from sparktxn.maintenance.rewriting.compactfiles import copy_newest
from sparktxn.maintenance.rewriting.rewritefiles import copy_records
from sparktxn.producer import Producer
from sparktxn.producer.transactionstates import PreparedTransaction
from sparktxn.store import Store
from sparktxn.testing.clocks import ManualClock, StrictBackground
from tests.simulation.clienthistory import Transaction
from tests.simulation.clientprograms import ClientWorld, Program, connect, read_commits
from tests.simulation.history import Outcome
from tests.simulation.sharedobjects import SharedObjects
from tests.simulation.simulator import Process

__all__ = [
    "Database",
    "Patience",
    "administering",
    "backing_up",
    "compacting",
    "preparing",
    "repeating",
    "rewriting",
    "sweeping",
    "vacuuming",
]

_CALL_S: Final = 5.0
_ADMINISTRATIONS: Final = 12
_NOTHING_DECIDED: Final = PreparedTransaction(2**63 - 1, 0)
"""What no producer has prepared: a transaction that waits is then aborted."""
_TARGETS: Final = (1_024, 4_096, 2**20)
_VACUUM: Final = {"vacuum.retention.ms": 500, "vacuum.segment.age.ms": 0}
_COPY_S: Final = 60.0
_SWEEP: Final = {"transactional.id.expiration.ms": 7_200_000, "producer.id.expiration.ms": 7_200_000}


class Patience:
    """How long a process waits before it looks again: the longer, the longer the log has stood still."""

    def __init__(self, process: Process, log: Log, wait_s: float) -> None:
        self._process = process
        self._log = log
        self._wait_s = wait_s
        self._entry = log.entry
        self.idle = 0

    def wait(self) -> None:
        """Waits; an entry of its own, or two, do not count."""
        self.idle = self.idle + 1 if self._log.entry <= self._entry + 2 else 0
        self._entry = self._log.entry
        self._process.sleep(self._process.random.random() * self._wait_s * (1 + min(self.idle, 5) ** 3))


def repeating(
    world: ClientWorld, wait_s: float, begin: Callable[[Process, Log, Store, Patience], Callable[[], object]]
) -> Program:
    """Does the work that `begin` returns, again and again, as long as another process works."""

    def program(process: Process) -> None:
        uri, log = connect(process, world)
        patience = Patience(process, log, wait_s)
        with Store.open(uri) as store:
            work = begin(process, log, store, patience)
            while world.working:
                with suppress(KafkaException):
                    work()
                    world.history.operations += 1
                patience.wait()

    return program


def sweeping(world: ClientWorld) -> Program:
    """Sweeps by what it has itself seen, and now and then by the store's clock, as long as another process works."""

    def begin(process: Process, _log: Log, store: Store, _patience: Patience) -> Callable[[], object]:
        sweeper = Sweeper(store, _SWEEP)

        def work() -> object:
            if process.random.random() < 0.7:
                return sweeper.sweep(_CALL_S)
            return sweep(store, _SWEEP, timeout_s=_CALL_S)

        return work

    return repeating(world, 2 * world.timeout_ms / 1000, begin)


def vacuuming(world: ClientWorld) -> Program:
    """Vacuums with hardly any retention, as long as another process works."""

    def begin(process: Process, log: Log, store: Store, patience: Patience) -> Callable[[], object]:
        def work() -> object:
            if process.random.random() < 0.5 and not patience.idle:
                log.checkpoint()
            return vacuum(store, _VACUUM, timeout_s=_CALL_S)

        return work

    return repeating(world, 20.0, begin)


def rewriting(world: ClientWorld) -> Program:
    """Rewrites by targets of all sizes, whole or task by task, as long as another process works; in some, folds."""

    def begin(process: Process, log: Log, store: Store, _patience: Patience) -> Callable[[], object]:
        settings = RewriteSettings(target_bytes=process.random.choice(_TARGETS), min_segments=2)
        folder = Folder(log, 60 * process.random.choice(_TARGETS), settings, pause_s=1)

        def fold() -> object:
            # The view is that of the process's last write: others have written since.
            folder.after_checkpoint()
            process.sleep(1)
            return folder.step()

        def work() -> object:
            target = process.random.choice(_TARGETS)
            given = {"rewrite.min.segments": 2, "rewrite.target.bytes": target}
            if process.random.random() < 0.5:
                return rewrite(store, given, timeout_s=_CALL_S)
            tasks = plan_rewrite(store, given, timeout_s=_CALL_S)
            process.random.shuffle(tasks)
            files = [copy_records(log.objects, log.ids, log.clock, task) for task in tasks[:3]]
            process.sleep(process.random.random() * 5)
            return apply_rewrite(store, files, timeout_s=_CALL_S)

        return fold if process.random.random() < 0.5 else work

    return repeating(world, 10.0, begin)


def compacting(world: ClientWorld) -> Program:
    """Compacts, whole or task by task, as long as another process works; each record has a key of its own."""

    def begin(process: Process, log: Log, store: Store, _patience: Patience) -> Callable[[], object]:
        def work() -> object:
            given = {"compact.target.bytes": process.random.choice(_TARGETS)}
            if process.random.random() < 0.5:
                return compact(store, given, timeout_s=_CALL_S)
            tasks = plan_compact(store, given, timeout_s=_CALL_S)
            process.random.shuffle(tasks)
            files = [copy_newest(log.objects, log.ids, log.clock, task) for task in tasks[:3]]
            process.sleep(process.random.random() * 5)
            return apply_compact(store, files, timeout_s=_CALL_S)

        return work

    return repeating(world, 10.0, begin)


def backing_up(
    world: ClientWorld, look: Callable[[Process, ClientWorld, SharedObjects], None] | None = None
) -> Program:
    """Copies the store and brings the copy forward, as long as another process works; readers read each copy.

    The copy outlives the process. `look` is called in place of the readers.
    """
    target = SharedObjects()
    read = look or _read_copy

    def begin(process: Process, log: Log, store: Store, _patience: Patience) -> Callable[[], object]:
        def work() -> None:
            nonlocal target
            try:
                Copying(log, target, Work(store, StoreOptions(), 1, None), None, None).run()
            except ConfigurationError:
                # The vacuum has deleted entries that the copy lacks.
                target = SharedObjects()
                return
            read(process, world, target)

        return work

    return repeating(world, 10.0, begin)


def _read_copy(process: Process, world: ClientWorld, target: SharedObjects) -> None:
    """Open a complete copy, as another machine does, on a store that does not fail."""
    settings = world.store
    log = Log.open(target, settings=settings, clock=ManualClock(), ids=RandomIds(), background=StrictBackground())
    copy = Store(target.uri, {}, log)
    assert verify(copy).problems == ()
    view = copy.view()
    reader = f"a reader of copy {target.uri}"
    now = process.simulator.steps
    # It is as old as its source was when it was planned.
    batch = read_commits(copy, view, 0, reader=reader, began=-1, ended=lambda: now)
    world.history.batches.append(batch)


def administering(world: ClientWorld) -> Program:
    """Deletes and makes topics, adds partitions, trims logs, aborts and fences, as long as another process writes."""

    def program(process: Process) -> None:
        uri, log = connect(process, world)
        done = 0
        with AdminClient({"bootstrap.servers": uri}) as admin:
            # Not without end: a writer may sleep for an hour.
            while world.writing and done < _ADMINISTRATIONS:
                done += 1
                with suppress(KafkaException):
                    process.random.choice(_ADMINISTRATION)(process, world, admin, log)
                    world.history.operations += 1
                process.sleep(process.random.random() * 5)

    return program


def _delete_topic(process: Process, world: ClientWorld, admin: AdminClient, log: Log) -> None:
    # Noted first: whatever becomes of the call, the topic may be gone from now on.
    world.history.deleted_topics.add("gone")
    admin.delete_topics(["gone"], request_timeout=_CALL_S)["gone"].result()


def _create_topic(process: Process, world: ClientWorld, admin: AdminClient, log: Log) -> None:
    new = NewTopic("gone", world.topics["gone"], config=world.settings)
    admin.create_topics([new], request_timeout=_CALL_S)["gone"].result()


def _add_partition(process: Process, world: ClientWorld, admin: AdminClient, log: Log) -> None:
    known = log.topic("left")
    if known is not None and known.partition_count < 4:
        admin.create_partitions([NewPartitions("left", known.partition_count + 1)])["left"].result()


def _trim(process: Process, world: ClientWorld, admin: AdminClient, log: Log) -> None:
    world.history.trimmed_topics.add("left")
    with log.within(_CALL_S):
        view = log.view(["left"]).partitions["left", 0]
    offset = process.random.randint(view.log_start_offset, view.last_stable_offset)
    asked = TopicPartition("left", 0, offset)
    admin.delete_records([asked], request_timeout=_CALL_S)[asked].result()


def _abort(process: Process, world: ClientWorld, admin: AdminClient, log: Log) -> None:
    topic = process.random.choice([*world.topics])
    found = admin.find_hanging_transactions(topic=topic, max_transaction_timeout_ms=0, request_timeout=_CALL_S)
    for hanging in found.result():
        spec = AbortTransactionSpec(hanging.topic_partition, hanging.producer_id, hanging.producer_epoch)
        admin.abort_transaction(spec, request_timeout=_CALL_S).result()


def _fence(process: Process, world: ClientWorld, admin: AdminClient, log: Log) -> None:
    admin.fence_producers(["second"], request_timeout=_CALL_S)["second"].result()


_ADMINISTRATION: Final[tuple[Callable[[Process, ClientWorld, AdminClient, Log], None], ...]] = (
    _delete_topic,
    _create_topic,
    _create_topic,
    _add_partition,
    _trim,
    _abort,
    _fence,
)


class Database(Struct):
    """A database that decides a transactional id's transactions: each step of it is atomic, and durable at once.

    `owner` is the process that has started last: a write of an older one is refused, as by a lock.
    """

    owner: str = ""
    decided: str = ""


def preparing(world: ClientWorld, transactional_id: str, transactions: int) -> Program:
    """Transactions that a database decides: prepared here, committed there, then completed (KIP-939)."""
    database = Database()
    tried: list[Transaction] = []

    def program(process: Process) -> None:
        uri, _ = connect(process, world)
        while True:
            try:
                me = f"{process.name} {process.ids.token()}"
                producer = _taken_over(process, world, uri, me, transactional_id, database, tried)
                while len(tried) < transactions:
                    _decide(process, world, producer, me, database, tried)
                break
            except (KafkaException, _NotOwner):
                process.sleep(process.random.random())
        world.end(process.name)

    return program


class _NotOwner(Exception):
    """Another process has taken the database over."""


def _taken_over(
    process: Process,
    world: ClientWorld,
    uri: str,
    me: str,
    transactional_id: str,
    database: Database,
    tried: list[Transaction],
) -> Producer:
    """A producer for which nothing is open any more: what the database has decided is completed first.

    The transactional id is taken over before the database. The other way round a process that pauses in between could
    fence a newer owner, and abort what that one then still decides.
    """
    producer = Producer(
        {
            "bootstrap.servers": uri,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": world.timeout_ms,
            "client.id": me,
        }
    )
    _insist(process, world, lambda: producer.init_transactions(_CALL_S, keep_prepared=True))
    process.operation("database: take over")
    database.owner = me
    before = [noted for noted in tried if noted.outcome is Outcome.UNKNOWN]
    decided = PreparedTransaction.parse(database.decided) if database.decided else _NOTHING_DECIDED
    _insist(process, world, lambda: producer.complete_transaction(decided, _CALL_S))
    for noted in before:
        # Those that the database had not decided when it was taken over never will be.
        if noted.outcome is Outcome.UNKNOWN:
            noted.outcome = Outcome.ABORTED
    return producer


def _decide(
    process: Process,
    world: ClientWorld,
    producer: Producer,
    me: str,
    database: Database,
    tried: list[Transaction],
) -> None:
    random = process.random
    noted = world.history.begin(process.name, "prepared")
    noted.fused = False
    tried.append(noted)
    producer.begin_transaction()
    for number in range(random.randint(1, 3)):
        topic = random.choice(("in", "left"))
        value = f"{noted.name}.{number}<"
        producer.produce(topic, value, f"{process.simulator.steps} {value}", partition=0)
        noted.sent.append((topic, 0, value))
    world.history.operations += 1 + len(noted.sent)
    found: list[PreparedTransaction] = []
    _insist(process, world, lambda: found.append(producer.prepare_transaction(_CALL_S)))
    if random.random() < 0.2:
        _insist(process, world, lambda: producer.abort_transaction(_CALL_S))
        noted.outcome = Outcome.ABORTED
        return
    process.operation("database: decide")
    if database.owner != me:
        raise _NotOwner
    noted.ending = process.simulator.steps
    database.decided = str(found[0])
    noted.outcome = Outcome.COMMITTED
    _insist(process, world, lambda: producer.complete_transaction(found[0], _CALL_S))


def _insist(process: Process, world: ClientWorld, call: Callable[[], object]) -> None:
    """Calls again as long as the error says so."""
    while True:
        world.history.operations += 1
        try:
            call()
        except KafkaException as error:
            if not error.error.retriable() or error.error.txn_requires_abort():
                raise
            process.sleep(0.1)
        else:
            return
