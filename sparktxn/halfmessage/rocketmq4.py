"""RocketMQ 4's transactional producer: a listener that runs the local transaction, and is asked for its outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, ClassVar, NamedTuple

from sparktxn._foundation.process.clock import callers_own_time, in_time
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.arguments import Checked
from sparktxn._foundation.values.quantities import counted
from sparktxn._foundation.values.structs import HalfState
from sparktxn._kafka.settings.halfmessage import HalfMessageSettings
from sparktxn.errors import ConfigurationError, ErrorCode, KafkaError, KafkaException, StoreError
from sparktxn.halfmessage.engine import HalfEngine
from sparktxn.halfmessage.halfproducer import HalfProducer, MessageQueue, clock_of, filled
from sparktxn.halfmessage.records import MessageRecord, given_keys, given_properties, immunity_ms_of

__all__ = [
    "LocalTransactionState",
    "Message",
    "MessageExt",
    "MessageQueue",
    "SendResult",
    "SendStatus",
    "TransactionListener",
    "TransactionMQProducer",
    "TransactionSendResult",
]


class LocalTransactionState(Enum):
    """What a listener says of the local transaction; UNKNOWN asks for a later check. RocketMQ spells it UNKNOW too."""

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOWN"
    UNKNOW = UNKNOWN


class SendStatus(Enum):
    """How a send has ended; a send that is not stored raises instead."""

    SEND_OK = "SEND_OK"


class SendResult(NamedTuple):
    """What a send of an ordinary message has given it."""

    send_status: SendStatus
    message_id: str
    message_queue: MessageQueue


class TransactionSendResult(NamedTuple):
    """What a send in a transaction has given: `queue_offset` is -1, for an offset is given by the commit."""

    send_status: SendStatus
    message_id: str
    transaction_id: str
    message_queue: MessageQueue
    queue_offset: int
    local_transaction_state: LocalTransactionState


class Message(Checked):
    """A message: `keys` is text, keys parted by spaces. It may be changed until it is sent.

    Raises:
        TypeError, ConfigurationError: a value is of a wrong type, or a property's name is RocketMQ's own.
    """

    __slots__ = ("body", "delay_time_level", "keys", "properties", "tags", "topic")
    _checks: ClassVar[Mapping[str, Any]] = {
        "topic": partial(arguments.text, "topic"),
        "body": partial(arguments.bytes_like, "body"),
        "tags": partial(arguments.text, "tags"),
        "keys": lambda value: " ".join(given_keys(value)),
        "properties": given_properties,
        "delay_time_level": partial(arguments.integer, "delay_time_level", minimum=0),
    }
    topic: str
    body: bytes
    tags: str
    keys: str
    properties: dict[str, str]
    delay_time_level: int

    def __init__(
        self,
        topic: str,
        body: bytes | str = b"",
        *,
        tags: str = "",
        keys: str | Iterable[str] = "",
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.topic = topic
        self.body = body  # type: ignore[assignment]  # checked and converted
        self.tags = tags
        self.keys = keys  # type: ignore[assignment]
        self.properties = properties if properties is not None else {}  # type: ignore[assignment]
        self.delay_time_level = 0

    def put_user_property(self, name: str, value: str) -> None:
        """Set a property of the program's own."""
        name, value = arguments.text("name", name), arguments.text("value", value)
        self.properties = {**self.properties, name: value}

    def get_property(self, name: str) -> str | None:
        """Return a property of the program's own, or None."""
        return self.properties.get(arguments.text("name", name))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(topic={self.topic!r}, keys={self.keys!r}, {counted(len(self.body), 'byte')})"


class MessageExt(Message):
    """A message as a check shows it. `messages` are all of its transaction, of which this is the first one."""

    __slots__ = ("born_timestamp", "check_times", "message_id", "messages", "transaction_id")
    message_id: str
    transaction_id: str
    born_timestamp: int
    check_times: int
    messages: tuple[MessageExt, ...]


def _shown(record: MessageRecord, transaction_id: str, check_times: int) -> MessageExt:
    """Return a message as the listener gets it: one that is sent, or one that was read back."""
    return filled(
        MessageExt.__new__(MessageExt),
        record,
        tags=record.tags,
        keys=" ".join(record.keys),
        delay_time_level=0,
        transaction_id=transaction_id,
        check_times=check_times,
    )


class TransactionListener(ABC):
    """What a program says of its local transactions."""

    @abstractmethod
    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
        """Run the local transaction of a message that is stored as half; called once, on the sender's thread."""

    @abstractmethod
    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        """Return what has become of a local transaction, perhaps of another process; called on the checks' thread."""


class TransactionMQProducer(HalfProducer):
    """Sends half messages, and is asked for their outcomes: those of its whole producer group, from `start()` on.

    Any number of threads may send at a time.

    Args:
        group: the producer group; every process of it may be asked for every message of it.
        store: the store's address, or settings by name with ``bootstrap.servers``.

    Raises:
        ConfigurationError: the group is empty, or a setting is wrong.
    """

    def __init__(self, group: str, store: str | Mapping[str, Any]) -> None:
        super().__init__()
        self._group = arguments.identifier("group", group)
        given: dict[str, Any]
        if isinstance(store, str):
            given = {"bootstrap.servers": arguments.text("store", store)}
        else:
            given = arguments.mapping("store", store)
        self._settings = HalfMessageSettings.parse(given)
        self._listener: TransactionListener | None = None

    def set_transaction_listener(self, listener: TransactionListener) -> None:
        """Set what runs and checks local transactions."""
        expected = "a TransactionListener"
        self._listener = arguments.instance("listener", listener, TransactionListener, expected)

    def start(self) -> None:
        """Open the store, and begin to ask the listener for what is due; calling it again changes nothing.

        Raises:
            StoreNotFound, StoreUnavailable: the store cannot be opened.
            KafkaException: ``_CRIT_SYS_RESOURCE``: no thread can be started.
        """
        if self._engine is None:
            self._open(self._settings, sends_ends=not self._settings.end_waits, checks=True)
        else:
            self._engine.check_process()

    @in_time("timeout", clock_of)
    def shutdown(self, timeout: float = -1) -> None:
        """Stop the checks, store the outcomes that were sent, and give the store back; again it changes nothing.

        What takes longer than the time-out, or half a minute, is given up, and reported in the log. A half message that
        is not settled stays pending: another process of the group is asked for it.
        """
        self._close()

    def send(self, message: Message, timeout: float = -1) -> SendResult:
        """Store an ordinary message: it is visible when this returns.

        Raises:
            KafkaException: _STATE before start(); else see `send_message_in_transaction`.
        """
        engine = self._started()
        timeout_s = _seconds(timeout)
        record = self._record(message, engine)
        with engine.within(timeout_s):
            staged = engine.stage([record], half=False)
            engine.send_at_once(self._group, record.message_id, staged)
        return SendResult(SendStatus.SEND_OK, record.message_id, MessageQueue(record.topic, staged.partitions[0]))

    def send_message_in_transaction(
        self, message: Message, arg: Any = None, timeout: float = -1
    ) -> TransactionSendResult:
        """Store a half message, run the local transaction, and send its outcome one way, as RocketMQ does.

        The listener runs once, on this thread, after the half message is stored. If it raises, or returns no state, the
        state is UNKNOWN: the message waits for a check. Otherwise the outcome is stored within milliseconds after this
        returns, by this process's next log entry or one of its own. An outcome that cannot be stored is not an error:
        the log reports it, and a check makes up for it. With the setting ``transaction.end.wait`` this returns once the
        outcome is stored. `timeout`, in seconds, is that of the store's part before the listener runs, and of that
        after it.

        Raises:
            KafkaException: _STATE, no listener is set, or start() was not called; _UNKNOWN_TOPIC. INVALID_TOPIC, the
                topic takes no half messages; TOPIC_AUTHORIZATION_FAILED, it or the store rejects them.
                INVALID_TXN_STATE, with ``transaction.end.wait``: a check has settled it otherwise meanwhile; the error
                names the outcome.
            ConfigurationError: the message has a delay.
            OutcomeUnknown: it may be stored, and the listener has not run: a check asks for it.
            StoreUnavailable: it is not stored, and the listener has not run.
        """
        engine = self._started()
        listener = self._listener
        if listener is None:
            raise _state_error("TransactionListener is null: call set_transaction_listener() before sending")
        timeout_s = _seconds(timeout)
        record = self._record(message, engine)
        immunity_ms = immunity_ms_of(record.properties, self._settings.immunity_ms)
        named = (self._group, record.message_id)
        with engine.within(timeout_s), engine.ends.carrier():
            staged = engine.stage([record])
            engine.prepare(*named, staged, immunity_ms)
        shown = _shown(record, record.message_id, 0)
        state = _executed(listener, shown, arg)
        if state is not LocalTransactionState.UNKNOWN:
            self._settle(engine, record.message_id, state, timeout_s)
        queue = MessageQueue(record.topic, staged.partitions[0])
        return TransactionSendResult(SendStatus.SEND_OK, record.message_id, record.message_id, queue, -1, state)

    def __enter__(self) -> TransactionMQProducer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"TransactionMQProducer(group={self._group!r})"

    def _not_started(self) -> KafkaException:
        return _state_error(f"the producer of group {self._group!r} is not started: call start()")

    def _groups(self) -> Sequence[str]:
        return () if self._listener is None else (self._group,)

    def _shown(self, record: MessageRecord, half: HalfState) -> MessageExt:
        return _shown(record, half.transaction_id, half.checks + 1)

    def _resolved(self, message: MessageExt) -> bool | None:
        state = None if self._listener is None else self._listener.check_local_transaction(message)
        if state is LocalTransactionState.COMMIT_MESSAGE:
            return True
        return False if state is LocalTransactionState.ROLLBACK_MESSAGE else None

    def _record(self, message: object, engine: HalfEngine) -> MessageRecord:
        given = arguments.instance("message", message, Message)
        if given.delay_time_level:
            raise ConfigurationError(
                f"delay_time_level is {given.delay_time_level}: messages with a delay are not supported, and "
                "transactional ones never are"
            )
        log = engine.log
        keys = tuple(given.keys.split())
        return MessageRecord(
            given.topic, given.body, log.ids.token(), log.clock.wall_ms(), given.tags, keys, dict(given.properties)
        )

    def _settle(self, engine: HalfEngine, transaction_id: str, state: LocalTransactionState, timeout_s: float) -> None:
        named, committed = (self._group, transaction_id), state is LocalTransactionState.COMMIT_MESSAGE
        if not self._settings.end_waits:
            with engine.within(timeout_s):
                engine.send_end(*named, committed=committed)
            return
        try:
            with engine.within(timeout_s):
                engine.end(*named, committed=committed)
        except StoreError as error:
            log_event("half_not_settled", transaction_id=transaction_id, error=error)


def _seconds(timeout: object) -> float:
    found = arguments.timeout_s("timeout", timeout)
    return -1.0 if found is None else found


def _state_error(reason: str) -> KafkaException:
    return KafkaException(KafkaError(ErrorCode.LOCAL_STATE, reason))


def _executed(listener: TransactionListener, message: MessageExt, arg: Any) -> LocalTransactionState:
    """Return the state that a listener gives; UNKNOWN if it raises or gives none."""
    try:
        with callers_own_time():
            state = listener.execute_local_transaction(message, arg)
    except Exception:  # noqa: BLE001 - logged with its trace
        log_event("half_local_transaction_failed", message=message, exc_info=True)
        return LocalTransactionState.UNKNOWN
    return state if isinstance(state, LocalTransactionState) else LocalTransactionState.UNKNOWN
