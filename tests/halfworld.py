"""A store whose half messages are sent, checked and read on a clock that the test moves: no thread, no wall time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.values.structs import HalfState
from sparktxn.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from sparktxn.halfmessage import (
    LocalTransactionState,
    Message,
    MessageExt,
    TransactionListener,
    TransactionMQProducer,
    TransactionSendResult,
    rocketmq5,
)
from sparktxn.halfmessage.checks import Checks
from sparktxn.halfmessage.engine import Ends
from sparktxn.store import Store, read_task
from tests.world import ClockedWorld

__all__ = [
    "COMMIT",
    "ROLLBACK",
    "UNKNOWN",
    "HalfWorld",
    "Process",
    "Process5",
    "Scripted",
    "Scripted5",
    "configuration5",
    "message",
]

COMMIT = LocalTransactionState.COMMIT_MESSAGE
ROLLBACK = LocalTransactionState.ROLLBACK_MESSAGE
UNKNOWN = LocalTransactionState.UNKNOWN
POLL_NEVER = {"transaction.check.poll.ms": 3_600_000}
WAIT = {"transaction.end.wait": True}

Answer = LocalTransactionState | BaseException | Callable[[], Any] | None


class Scripted(TransactionListener):
    """Answers by the body of a message: `local` when it is sent, `checked` when it is asked for, else UNKNOWN.

    An answer may be a list, of which each question takes the first; the last one stays.
    """

    def __init__(self) -> None:
        self.local: dict[bytes, Any] = {}
        self.checked: dict[bytes, Any] = {}
        self.executed: list[tuple[bytes, Any]] = []
        self.asked: list[bytes] = []
        self.shown: list[MessageExt] = []

    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
        self.executed.append((message.body, arg))
        return _given(self.local.get(message.body, UNKNOWN))

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        self.asked.append(message.body)
        self.shown.append(message)
        return _given(self.checked.get(message.body, UNKNOWN))


class Scripted5(rocketmq5.TransactionChecker):
    """The same for RocketMQ 5's checker."""

    def __init__(self) -> None:
        self.checked: dict[bytes, Any] = {}
        self.asked: list[bytes] = []
        self.shown: list[rocketmq5.Message] = []

    def check(self, message: rocketmq5.Message) -> rocketmq5.TransactionResolution:
        self.asked.append(message.body)
        self.shown.append(message)
        unspecified = rocketmq5.TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED
        found: rocketmq5.TransactionResolution = _given(self.checked.get(message.body, unspecified))
        return found


def _given(answer: Any) -> Any:
    if isinstance(answer, list):
        answer = answer.pop(0) if len(answer) > 1 else answer[0]
    if isinstance(answer, BaseException):
        raise answer
    return answer() if callable(answer) else answer


def message(body: str, topic: str = "orders", **more: Any) -> Message:
    return Message(topic, body.encode(), **more)


class Process:
    """One process with a transactional producer of a group, which waits for the ends of its half messages.

    A test of ends that are sent one way says ``transaction_end_wait=False``, and uses the fixture `parked`.
    """

    def __init__(self, world: HalfWorld, group: str, objects: ObjectStore | None, settings: dict[str, Any]) -> None:
        self.log: Log = world.process(objects)
        self.uri = world.lend(f"process-{len(world.processes)}", self.log)
        self.listener = Scripted()
        self.producer = TransactionMQProducer(group, {"bootstrap.servers": self.uri, **POLL_NEVER, **WAIT, **settings})
        self.producer.set_transaction_listener(self.listener)
        self.producer.start()

    @property
    def checks(self) -> Checks:
        """What the thread would do."""
        assert self.producer._checks is not None
        return self.producer._checks

    @property
    def ends(self) -> Ends:
        """The ends that it has sent one way."""
        return self.producer._started().ends

    def send(self, body: str, local: Answer = UNKNOWN, arg: Any = None, **more: Any) -> TransactionSendResult:
        """Send a half message whose local transaction answers `local`."""
        self.listener.local[body.encode()] = local
        return self.producer.send_message_in_transaction(message(body, **more), arg)

    def close(self) -> None:
        """End the process in order."""
        self.producer.shutdown()


def configuration5(uri: str, **settings: Any) -> rocketmq5.ClientConfiguration:
    """Return one whose requests may take a minute: a loaded machine exceeds RocketMQ's default of three seconds."""
    return rocketmq5.ClientConfiguration(uri, request_timeout=60, settings=settings)


class Process5:
    """One process with a producer of RocketMQ 5's."""

    def __init__(
        self, world: HalfWorld, topics: tuple[str, ...], objects: ObjectStore | None, strict: bool, settings: Any
    ) -> None:
        self.log: Log = world.process(objects)
        self.uri = world.lend(f"process-{len(world.processes)}", self.log)
        self.checker = Scripted5()
        self.configuration = configuration5(self.uri, **{**POLL_NEVER, **settings})
        self.producer = rocketmq5.Producer(self.configuration, topics, self.checker, strict_rocketmq=strict)
        self.producer.startup()

    @property
    def checks(self) -> Checks:
        """What the thread would do."""
        assert self.producer._checks is not None
        return self.producer._checks

    def close(self) -> None:
        """End the process in order."""
        self.producer.shutdown()


class HalfWorld(ClockedWorld):
    """A store with the topics `orders`, of two partitions, `audit` and `mail`, and processes that come and go."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.processes: list[Process | Process5] = []
        self.reader = Store(self.objects.uri, {}, self.process())
        for name, partitions in (("orders", 2), ("audit", 1), ("mail", 1)):
            self.reader.create_topic(name, partitions)

    def shop(self, group: str = "shop", objects: ObjectStore | None = None, **settings: Any) -> Process:
        """A new process of RocketMQ 4's; settings by name, with ``_`` for ``.``."""
        given = {name.replace("_", "."): value for name, value in settings.items()}
        made = Process(self, group, objects, given)
        self.processes.append(made)
        return made

    def shop5(
        self, *topics: str, objects: ObjectStore | None = None, strict: bool = False, **settings: Any
    ) -> Process5:
        """A new process of RocketMQ 5's, which declares `topics`."""
        given = {name.replace("_", "."): value for name, value in settings.items()}
        made = Process5(self, topics or ("orders",), objects, strict, given)
        self.processes.append(made)
        return made

    def kill(self, process: Process | Process5) -> None:
        """No call is made for it any more."""
        self.processes.remove(process)

    def rounds(self) -> int:
        """Each process that is alive checks once; return how many checks were claimed."""
        return sum(process.checks.round() for process in self.processes)

    def pass_s(self, seconds: float) -> int:
        """Let time pass, with rounds of checks; return how many checks were claimed."""
        claimed = self.rounds()
        for _ in range(int(seconds)):
            self.clock.sleep(1)
            claimed += self.rounds()
        return claimed

    def rows(self, topic: str = "orders") -> list[dict[str, Any]]:
        """The records of a topic that read_committed shows."""
        view = self.reader.view([topic])
        tasks = self.reader.plan(view, self.reader.ranges(view))
        return [row for task in tasks for batch in _read(self, task) for row in batch.to_pylist()]

    def visible(self, topic: str = "orders") -> list[str]:
        """The bodies that read_committed shows, sorted."""
        return sorted(row["value"].decode() for row in self.rows(topic))

    def halves(self) -> dict[str, HalfState]:
        """The half transactions that are not settled, by transaction id."""
        log = self.reader.log
        with log.within(10):
            log.refresh()
        return {half.transaction_id: half for half in log.halves()}

    def discarded(self) -> int:
        """How many of them are discarded."""
        return sum(half.discarded_entry > 0 for half in self.halves().values())

    @contextmanager
    def admin(self) -> Iterator[AdminClient]:
        """An administrator of the store."""
        uri = self.lend(f"admin-{self.entry()}", self.process())
        with AdminClient({"bootstrap.servers": uri}) as admin:
            yield admin

    def reject(self, value: str | None, *, topic: str | None = None) -> None:
        """An administrator sets whether a topic, or the store, rejects half messages; None unsets it."""
        how = AlterConfigOpType.SET if value else AlterConfigOpType.DELETE
        entry = ConfigEntry("reject.transaction.message", value, incremental_operation=how)
        resource = ConfigResource("TOPIC" if topic else "BROKER", topic or "0", incremental_configs=[entry])
        with self.admin() as admin:
            admin.incremental_alter_configs([resource])[resource].result(5)

    def entry(self) -> int:
        """The newest entry."""
        with self.reader.log.within(10):
            return self.reader.log.refresh()

    def close(self) -> None:
        for process in self.processes:
            process.close()
        super().close()


def _read(world: HalfWorld, task: Any) -> Any:
    from sparktxn._rows.scan.reader import read

    return read(world.objects, task)


assert read_task is not None
