"""RocketMQ 5's producer, under the names of its Python client: transactions whose outcome a checker knows.

The topic's name is the producer group. A producer that declares a topic is asked for the transactions whose first
message is of that topic. Beyond RocketMQ a transaction may have several messages, of several topics; with
`strict_rocketmq` it has one.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from enum import IntEnum
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

from sparktxn._engine.log.log import CLOSE_TIMEOUT_S
from sparktxn._foundation.process.background import Background
from sparktxn._foundation.process.clock import in_time, time_left_s
from sparktxn._foundation.process.handles import NoCopies
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.arguments import Checked
from sparktxn._foundation.values.quantities import counted
from sparktxn._foundation.values.structs import HalfSegment, HalfState
from sparktxn._kafka.settings.halfmessage import HalfMessageSettings
from sparktxn.errors import (
    ConfigurationError,
    ErrorCode,
    KafkaError,
    KafkaException,
    OutcomeUnknown,
    StoreNotFound,
    StoreUnavailable,
)
from sparktxn.halfmessage.engine import HalfEngine, StagedMessages
from sparktxn.halfmessage.halfproducer import HalfProducer, MessageQueue, clock_of, filled
from sparktxn.halfmessage.records import MessageRecord, given_keys, given_properties, immunity_ms_of

__all__ = [
    "BadRequestException",
    "ClientConfiguration",
    "ClientException",
    "Credentials",
    "ForbiddenException",
    "IllegalArgumentException",
    "IllegalStateException",
    "InternalErrorException",
    "Message",
    "MessageQueue",
    "NotFoundException",
    "PayloadEmptyException",
    "PayloadTooLargeException",
    "Producer",
    "ProxyTimeoutException",
    "SendReceipt",
    "Transaction",
    "TransactionChecker",
    "TransactionResolution",
    "UnsupportedException",
]


# RocketMQ 5's exceptions, and which of them an error of the store becomes.


class ClientException(KafkaException):
    """RocketMQ 5's base of all errors: a message, and RocketMQ's code."""

    _default_code: ClassVar[int] = 50_001
    _kafka_code: ClassVar[int] = ErrorCode.LOCAL_FAIL

    def __init_subclass__(cls, *, code: int | None = None, kafka: int | None = None) -> None:
        """Give a kind of error RocketMQ's code for it, and Kafka's; else it has its base's."""
        super().__init_subclass__()
        cls._default_code = cls._default_code if code is None else code
        cls._kafka_code = cls._kafka_code if kafka is None else kafka

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(KafkaError(self._kafka_code, message))
        self.code = self._default_code if code is None else code

    @property
    def message(self) -> str:
        """What was wrong."""
        return self.error.str()

    def __str__(self) -> str:
        return f"{self.code}, {self.error.str()}"

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.error.str(), self.code))


class BadRequestException(ClientException, code=40_000, kafka=ErrorCode.INVALID_REQUEST):
    """The store refuses the request: of a settlement, the half message was settled otherwise."""


class ForbiddenException(ClientException, code=40_300, kafka=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
    """The topic, or the client's settings, take no half messages."""


class NotFoundException(ClientException, code=40_400, kafka=ErrorCode.LOCAL_UNKNOWN_TOPIC):
    """The topic, or the half message, does not exist."""


class PayloadTooLargeException(ClientException, code=41_300, kafka=ErrorCode.MESSAGE_TOO_LARGE):
    """The body is too large."""


class PayloadEmptyException(ClientException, code=40_012, kafka=ErrorCode.LOCAL_INVALID_ARG):
    """The message has no body."""


class InternalErrorException(ClientException, code=50_001, kafka=ErrorCode.LOCAL_FAIL):
    """The store cannot be read or written."""


class ProxyTimeoutException(ClientException, code=50_400, kafka=ErrorCode.LOCAL_TIMED_OUT):
    """The store did not answer in time: the request may have taken effect; make it again."""


class UnsupportedException(ClientException, code=50_501, kafka=ErrorCode.UNSUPPORTED_VERSION):
    """This version cannot do what was asked for."""


class IllegalArgumentException(ClientException, ValueError, code=40_010, kafka=ErrorCode.LOCAL_INVALID_ARG):
    """An argument, or the order of calls, is wrong; nothing was written."""


class IllegalStateException(ClientException, code=40_011, kafka=ErrorCode.LOCAL_STATE):
    """The client is not started, or is shut down."""


_BY_CODE: Final[dict[int, type[ClientException]]] = {
    ErrorCode.MESSAGE_TOO_LARGE: PayloadTooLargeException,
    ErrorCode.LOCAL_UNKNOWN_TOPIC: NotFoundException,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: NotFoundException,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: NotFoundException,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ForbiddenException,
    ErrorCode.INVALID_TOPIC: IllegalArgumentException,
    ErrorCode.INVALID_REQUEST: BadRequestException,
    ErrorCode.INVALID_TXN_STATE: BadRequestException,
}


@contextmanager
def as_client_errors() -> Iterator[None]:
    """Turn the store's errors into RocketMQ's; the store's own error is the cause.

    Raises:
        ClientException: the body has raised an error of the store.
    """
    try:
        yield
    except ClientException:
        raise
    except (OutcomeUnknown, StoreUnavailable) as error:
        raise ProxyTimeoutException(error.error.str()) from error
    except StoreNotFound as error:
        raise NotFoundException(error.error.str()) from error
    except ConfigurationError as error:
        raise IllegalArgumentException(error.error.str()) from error
    except KafkaException as error:
        kind = _BY_CODE.get(error.error.code(), InternalErrorException)
        raise kind(error.error.str()) from error


def __dir__() -> list[str]:
    return sorted(__all__)


_NOT_RUNNING: Final = "producer is not running: call startup()"
_IMMUNITY_UNSET_S: Final = -1
_SENDS_AT_ONCE: Final = 16
"""How many messages of send_async() are stored side by side; they share entries."""


class TransactionResolution(IntEnum):
    """What a checker says of a transaction; UNSPECIFIED asks for a later check."""

    TRANSACTION_RESOLUTION_UNSPECIFIED = 0
    COMMIT = 1
    ROLLBACK = 2


class Credentials:
    """An access key and a secret: those of the object store, if they are not empty."""

    def __init__(self, ak: str = "", sk: str = "") -> None:
        self.ak = arguments.text("ak", ak)
        self.sk = arguments.text("sk", sk, secret=True)

    def __repr__(self) -> str:
        return "Credentials(…)"


class ClientConfiguration:
    """Where the store is, and how long a request may take.

    Args:
        endpoints: the store's address.
        credentials: None, or those of the object store.
        namespace: must be empty: a store is its own namespace.
        request_timeout: seconds of one call.
        settings: further settings, under the names in docs/configuration.md.

    Raises:
        IllegalArgumentException: a setting is wrong, or there is a namespace.
    """

    def __init__(
        self,
        endpoints: str,
        credentials: Credentials | None = None,
        namespace: str = "",
        request_timeout: float = 3,
        *,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if not arguments.text("endpoints", endpoints):
            raise IllegalArgumentException("endpoints is empty: expected the store's address, such as /data/log")
        given = arguments.mapping("settings", settings)
        if arguments.text("namespace", namespace):
            raise IllegalArgumentException(
                f"the namespace is {namespace!r}: expected none, a store is its own namespace"
            )
        if credentials is not None:
            arguments.instance("credentials", credentials, Credentials)
        found_s = arguments.timeout_s("request_timeout", request_timeout)
        self.request_timeout_s = -1.0 if found_s is None else found_s
        if credentials is not None and credentials.ak:
            given = {"storage.key": credentials.ak, "storage.secret": credentials.sk, **given}
        with as_client_errors():
            self.settings = HalfMessageSettings.parse({"bootstrap.servers": endpoints, **given})

    def __repr__(self) -> str:
        return f"ClientConfiguration(endpoints={self.settings.uri!r})"


class SendReceipt(NamedTuple):
    """What a send has given. `transaction_id` is empty outside transactions, and `offset` is -1 until the commit."""

    message_id: str
    transaction_id: str
    message_queue: MessageQueue
    offset: int = -1
    recall_handle: str | None = None


def _whole_number(name: str, value: object) -> int | None:
    return arguments.integer_or_none(name, value)


class Message(Checked):
    """A message, by its attributes: `topic` and `body` before it is sent, `message_id` and `born_timestamp` afterwards.

    As a check shows it, `transaction_id` says which transaction is asked for, and `delivery_attempt` counts the checks
    from 1. `messages` are then all messages of that transaction, of which this is the first one.
    """

    __slots__ = (
        *("body", "born_timestamp", "delivery_attempt", "delivery_timestamp", "keys", "lite_topic", "message_group"),
        *("message_id", "messages", "orphaned_transaction_recovery_duration", "priority", "properties", "tag", "topic"),
        "transaction_id",
    )
    _checks: ClassVar[Mapping[str, Any]] = {
        "topic": partial(arguments.text, "topic"),
        "body": partial(arguments.bytes_like, "body"),
        "tag": partial(arguments.text, "tag"),
        "keys": given_keys,
        "properties": given_properties,
        "message_group": partial(arguments.text_or_none, "message_group"),
        "lite_topic": partial(arguments.text_or_none, "lite_topic"),
        "delivery_timestamp": partial(_whole_number, "delivery_timestamp"),
        "priority": partial(_whole_number, "priority"),
        "orphaned_transaction_recovery_duration": partial(
            arguments.integer, "orphaned_transaction_recovery_duration", minimum=-1
        ),
    }

    def __init__(self) -> None:
        self.topic: str = ""
        self.body: bytes = b""
        self.tag: str = ""
        self.keys: tuple[str, ...] = ()
        self.properties: dict[str, str] = {}
        self.message_group: str | None = None
        self.lite_topic: str | None = None
        self.delivery_timestamp: int | None = None
        self.priority: int | None = None
        self.orphaned_transaction_recovery_duration: int = _IMMUNITY_UNSET_S
        self.message_id: str = ""
        self.born_timestamp: int = -1
        self.delivery_attempt: int = 0
        self.transaction_id: str = ""
        self.messages: tuple[Message, ...] = ()

    def add_property(self, name: str, value: str) -> None:
        """Set a property of the program's own."""
        name, value = arguments.text("name", name), arguments.text("value", value)
        self.properties = {**self.properties, name: value}

    def __repr__(self) -> str:
        return f"Message(topic={self.topic!r}, message_id={self.message_id!r}, {counted(len(self.body), 'byte')})"


class TransactionChecker(ABC):
    """Says what has become of transactions, perhaps of another process."""

    @abstractmethod
    def check(self, message: Message) -> TransactionResolution:
        """Return what has become of the transaction of a message; called on the checks' thread."""


class Transaction(NoCopies):
    """A transaction that `Producer.begin_transaction` has begun. One thread at a time uses it."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._records: list[MessageRecord] = []
        self._segments: tuple[HalfSegment, ...] = ()
        self._attempt: tuple[Message, MessageRecord, StagedMessages] | None = None
        self._outcome: bool | None = None
        self._lock = threading.Lock()

    @property
    def message_id(self) -> str:
        """The id of the first message, which is the transaction's id; empty before a message was sent."""
        return self._records[0].message_id if self._records else ""

    def __repr__(self) -> str:
        outcomes = {None: "open", True: "committed", False: "rolled back"}
        return f"Transaction({self.message_id!r}, {counted(len(self._records), 'message')}, {outcomes[self._outcome]})"

    def commit(self) -> None:
        """Commit: when this returns, every reader sees all messages. Calling it again changes nothing.

        Raises:
            IllegalArgumentException: no message was sent, or what has become of a send is not known.
            BadRequestException: the transaction was settled otherwise, by a check, or discarded; the error names it.
            ProxyTimeoutException: the outcome is not known: call again, or leave it to the checker.
        """
        self._end(committed=True)

    def rollback(self) -> None:
        """Roll back: no reader ever sees a message of it. Calling it again changes nothing.

        Raises:
            IllegalArgumentException, BadRequestException, ProxyTimeoutException: as commit().
        """
        self._end(committed=False)

    def _end(self, *, committed: bool) -> None:
        with self._lock:
            unsure = self._attempt
            if unsure is not None and committed:
                known = f"whether message {unsure[1].message_id!r} is stored is not known"
                raise IllegalArgumentException(f"{known}: send it again, or roll back")
            records = [*self._records, *([unsure[1]] if unsure is not None else [])]
            if not records:
                raise IllegalArgumentException("Transactional message has not been sent yet: send one before the end")
            try:
                self._producer._end(records[0].topic, records[0].message_id, committed=committed)
            except NotFoundException:
                # Of a first message that was not stored there is nothing to roll back.
                if self._records:
                    raise
            self._outcome = committed

    def _send(self, message: Message) -> SendReceipt:
        """Store one more message: a half message that no reader sees."""
        producer = self._producer
        with self._lock:
            if self._outcome is not None:
                raise IllegalArgumentException("the transaction has ended: begin another one")
            known = self._attempt
            if known is not None and known[0] is not message:
                raise IllegalArgumentException(
                    f"whether message {known[1].message_id!r} is stored is not known: send it again, or roll back"
                )
            if known is None and self._records and producer.strict_rocketmq:
                raise IllegalArgumentException("Message in transaction has exceeded the threshold=1")
            if known is None:
                record = producer._record(message)
                staged = producer._stage(record)
            else:
                _, record, staged = known
            first = self._records[0] if self._records else record
            self._attempt = (message, record, staged)
            try:
                producer._prepare(first.topic, first.message_id, self._segments, staged, record)
            except (BadRequestException, NotFoundException, ForbiddenException):
                self._attempt = None
                raise
            self._attempt = None
            self._records.append(record)
            self._segments += staged.segments
        queue = MessageQueue(record.topic, staged.partitions[0])
        return SendReceipt(record.message_id, first.message_id, queue)


class Producer(HalfProducer):
    """Sends messages, in transactions or alone, and has its checker asked for transactions of its topics.

    Args:
        client_configuration: where the store is.
        topics: those that it sends to. From startup() on its checker is asked for every transaction that began with a
            message of one of them, also of other processes. A topic that it sends to later is added.
        checker: says what has become of transactions; None for a producer without them.
        tls_enable: accepted, without meaning: the address says how the store is reached.
        strict_rocketmq: allow one message in a transaction, as RocketMQ does.

    Raises:
        TypeError, IllegalArgumentException: an argument is wrong.
    """

    def __init__(
        self,
        client_configuration: ClientConfiguration,
        topics: Iterable[str] | None = None,
        checker: TransactionChecker | None = None,
        tls_enable: bool = False,
        *,
        strict_rocketmq: bool = False,
    ) -> None:
        super().__init__()
        self._configuration = arguments.instance("client_configuration", client_configuration, ClientConfiguration)
        self._topics = dict.fromkeys(arguments.identifiers("topics", () if topics is None else topics))
        self._checker = checker
        if checker is not None:
            arguments.instance("checker", checker, TransactionChecker)
        arguments.boolean("tls_enable", tls_enable)
        self.strict_rocketmq = arguments.boolean("strict_rocketmq", strict_rocketmq)
        self._sends: Background | None = None

    @property
    def is_running(self) -> bool:
        """True between startup() and shutdown()."""
        return self._engine is not None

    def startup(self) -> None:
        """Open the store, and begin to have the checker asked; calling it again changes nothing.

        Raises:
            ClientException: the store cannot be opened, or no thread can be started.
        """
        if self._engine is not None:
            self._engine.check_process()
            return
        with as_client_errors():
            engine = self._open(self._configuration.settings, sends_ends=False, checks=self._checker is not None)
        self._sends = engine.log.background.sibling("sparktxn-sends", _SENDS_AT_ONCE)

    @in_time("timeout", clock_of)
    def shutdown(self, timeout: float = -1) -> None:
        """Stop the checks, wait for sends under way, and give the store back; calling it again changes nothing.

        A send that has not begun by the time-out, or half a minute, is cancelled: its message is never stored.
        """
        sends, self._sends = self._sends, None
        if sends is not None:
            self._close(before=lambda: sends.close(time_left_s(CLOSE_TIMEOUT_S)))

    def begin_transaction(self) -> Transaction:
        """Begin a transaction; nothing is written before its first message.

        Raises:
            IllegalStateException: the producer is not started.
            IllegalArgumentException: it has no checker.
        """
        self._started()
        if self._checker is None:
            raise IllegalArgumentException("Transaction checker should not be null.")
        return Transaction(self)

    def send(self, message: Message, transaction: Transaction | None = None) -> SendReceipt:
        """Store a message: visible when this returns, or a half message in a transaction.

        In a transaction, a send whose outcome is not known may be repeated with the same message: it is stored once.

        Raises:
            IllegalStateException: the producer is not started.
            IllegalArgumentException: the topic or an attribute does not suit; nothing was written.
            PayloadEmptyException, PayloadTooLargeException: the body is empty, or too large.
            NotFoundException: there is no such topic.
            BadRequestException: a check has settled the transaction.
            ProxyTimeoutException: it may be stored.
        """
        arguments.instance("message", message, Message)
        self._started()
        if transaction is not None:
            return arguments.instance("transaction", transaction, Transaction)._send(message)
        return self._send_at_once(self._started(), self._record(message, is_half=False))

    def send_async(self, message: Message) -> Future[SendReceipt]:
        """Begin to store a message outside transactions; the future has its receipt, or the error of `send`.

        Messages that are under way at the same time may be stored in any order. What the message holds is taken
        before this returns.

        Raises:
            IllegalStateException: the producer is not started.
            IllegalArgumentException, PayloadEmptyException: as `send`.
        """
        arguments.instance("message", message, Message)
        engine = self._started()
        record = self._record(message, is_half=False)
        sends = self._sends
        if sends is not None:
            with suppress(RuntimeError):  # another thread is shutting this producer down
                return sends.submit(partial(self._send_at_once, engine, record))
        raise IllegalStateException(_NOT_RUNNING)

    def recall_message(self, topic: str, recall_handle: str) -> str:
        """Refuse: only a message with a delivery time can be recalled, and those are refused when they are sent.

        Raises:
            UnsupportedException: always.
        """
        arguments.text("topic", topic)
        arguments.text("recall_handle", recall_handle)
        raise UnsupportedException(
            "a message cannot be recalled: delivery_timestamp is refused, so no receipt has a recall_handle; "
            "send it in a transaction, and roll it back"
        )

    def recall_message_async(self, topic: str, recall_handle: str) -> Future[str]:
        """Refuse as `recall_message`, in a future.

        Raises:
            TypeError: an argument has a wrong type.
        """
        future: Future[str] = Future()
        try:
            future.set_result(self.recall_message(topic, recall_handle))
        except UnsupportedException as error:
            future.set_exception(error)
        return future

    def __enter__(self) -> Producer:
        self.startup()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"Producer(topics={list(self._topics)})"

    # --- steps -----------------------------------------------------------------------------------------------------

    def _not_started(self) -> IllegalStateException:
        return IllegalStateException(_NOT_RUNNING)

    def _groups(self) -> Sequence[str]:
        return () if self._checker is None else list(self._topics)

    def _shown(self, record: MessageRecord, half: HalfState) -> Message:
        shown = {"transaction_id": half.transaction_id, "delivery_attempt": half.checks + 1}
        return filled(Message(), record, tag=record.tags, keys=record.keys, **shown)

    def _resolved(self, message: Message) -> bool | None:
        resolution = None if self._checker is None else self._checker.check(message)
        if resolution == TransactionResolution.COMMIT:
            return True
        return False if resolution == TransactionResolution.ROLLBACK else None

    def _in_time(self) -> AbstractContextManager[object]:
        return self._started().within(self._configuration.request_timeout_s)

    def _record(self, message: Message, *, is_half: bool = True) -> MessageRecord:
        """Return what is stored of a message, and give it its id."""
        engine = self._started()
        for name in ("delivery_timestamp", "lite_topic", "priority", *(("message_group",) if is_half else ())):
            if getattr(message, name) is not None:
                what = "a transactional message" if is_half else "a message"
                raise IllegalArgumentException(f"{what} must not have {name}: expected None")
        if not message.topic:
            raise IllegalArgumentException("the message has no topic")
        if not message.body:
            raise PayloadEmptyException(f"the message for topic {message.topic!r} has no body: expected 1 byte or more")
        log = engine.log
        properties = dict(message.properties)
        if message.message_group is not None:
            properties["__SHARDINGKEY"] = message.message_group
        message.message_id, message.born_timestamp = log.ids.token(), log.clock.wall_ms()
        found = (message.topic, message.body, message.message_id, message.born_timestamp, message.tag, message.keys)
        if is_half and message.orphaned_transaction_recovery_duration != _IMMUNITY_UNSET_S:
            properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(message.orphaned_transaction_recovery_duration)
        return MessageRecord(*found, properties)

    def _stage(self, record: MessageRecord) -> StagedMessages:
        engine = self._started()
        with as_client_errors(), self._in_time():
            return engine.stage([record])

    def _send_at_once(self, engine: HalfEngine, record: MessageRecord) -> SendReceipt:
        """Store a message that is visible when this returns. Called by any thread, until the store is given back."""
        with as_client_errors(), engine.within(self._configuration.request_timeout_s):
            staged = engine.stage([record], half=False)
            engine.send_at_once(record.topic, record.message_id, staged)
        return SendReceipt(record.message_id, "", MessageQueue(record.topic, staged.partitions[0]))

    def _prepare(
        self,
        group_id: str,
        transaction_id: str,
        before: tuple[HalfSegment, ...],
        staged: StagedMessages,
        record: MessageRecord,
    ) -> None:
        engine = self._started()
        self._topics.setdefault(group_id)
        with as_client_errors(), self._in_time():
            immunity_ms = immunity_ms_of(record.properties, self._configuration.settings.immunity_ms)
            engine.prepare(group_id, transaction_id, staged, immunity_ms, after=before)

    def _end(self, group_id: str, transaction_id: str, *, committed: bool) -> None:
        engine = self._started()
        with as_client_errors(), self._in_time():
            engine.end(group_id, transaction_id, committed=committed)
