"""The producer, in confluent-kafka's shape."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol
from zlib import crc32

from sparktxn._engine.log.log import CLOSE_TIMEOUT_S
from sparktxn._foundation.process.background import after_threads
from sparktxn._foundation.process.clock import (
    Clock,
    Deadline,
    SystemClock,
    acquired_in_time,
    in_time,
    is_time_up,
    time_left_s,
)
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.process.handles import ForkGuard, give_back_later, made_before, weakly
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.quantities import html_table
from sparktxn._kafka.clustermetadata import ClusterMetadata, cluster_metadata
from sparktxn._kafka.message import ConsumerGroupMetadata, Headers, TopicPartition, topic_partitions
from sparktxn._kafka.settings.client import settings_of_keywords
from sparktxn._kafka.settings.producer import ProducerSettings
from sparktxn._kafka.statscallback import Statistics, by_topic
from sparktxn._kafka.unsupported import WithoutCredentials
from sparktxn._rows.stage.buffers import Buffers, TopicBuffer
from sparktxn._rows.stage.columnconversion import tables_of
from sparktxn._rows.stage.pendingsegment import purged
from sparktxn._rows.stage.rowpartitions import row_partitions, split
from sparktxn._rows.stage.transactionwriter import NO_IDENTITY
from sparktxn.errors import ErrorCode, KafkaError, KafkaException, StoreError, StoreUnavailable
from sparktxn.metrics.process import PROCESS, Call
from sparktxn.producer.linger import Linger, checked_columns, produce_each
from sparktxn.producer.outbox import Outbox, buffers_of
from sparktxn.producer.recordvalues import (
    Positioned,
    batch_messages,
    delivery_callback,
    no_clock,
    record_bytes,
    record_headers,
    record_timestamp,
    seconds,
)
from sparktxn.producer.reports import DeliveryCallback, Reports
from sparktxn.producer.topics import PartitionChoice, Topics
from sparktxn.producer.transactionalcalls import Transactions
from sparktxn.producer.transactionstates import PreparedTransaction, TransactionPhase
from sparktxn.store.registry import acquire_log, release_dropped, release_log

if TYPE_CHECKING:
    from sparktxn._engine.log.log import Log


# What a producer answers about its store and itself.

clock_of: Final = attrgetter("_clock")
"""Returns the clock of a producer's store."""

own_time_s: Final = attrgetter("_own_time_s")
"""Returns how long a call without a time-out may take: a transaction's own time; None outside of transactions."""

closing_time_s: Final = attrgetter("_closing_time_s")
"""Returns how long close() without a time-out may take."""


class ProducerLookups(WithoutCredentials):
    """The calls of a producer that write nothing, and how it shows itself."""

    _clock: Clock
    _own_time_s: float | None
    _settings: ProducerSettings
    _unusable: str | None

    def __repr__(self) -> str:
        transactional_id, state = self._settings.transactional_id, self.transaction_state.value
        parts = [repr(self._settings.uri)]
        if transactional_id is not None:
            parts += [f"transactional id {transactional_id!r}", state]
        if self._unusable is not None:
            parts.append("closed")
        return f"{type(self).__name__}({', '.join(parts)})"

    def _repr_html_(self) -> str:
        settings = self._settings
        row = (settings.uri, settings.transactional_id, self.transaction_state.value, len(self))
        return html_table("Producer", ("store", "transactional id", "transaction state", "waiting"), [row])

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def transaction_state(self) -> TransactionPhase:
        """Where the producer is in its transactions."""
        raise NotImplementedError

    @in_time("timeout", clock_of)
    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return all topics, or `topic` alone, which carries an error if it does not exist."""
        self._check()
        topic = arguments.text_or_none("topic", topic)
        log, _ = self._connect()
        log.refresh()
        return cluster_metadata(log.objects.uri, log.listed_topics(topic), topic)

    @in_time("timeout", clock_of)
    def cluster_id(self, timeout: float = -1) -> str:
        """Return the id that the store was created with; `timeout` is in seconds."""
        self._check()
        return self._connect()[0].store_id

    def _connect(self) -> tuple[Log, Any]:
        raise NotImplementedError


# `with producer.transaction(…)`: commit at the block's end, abort after an exception, and take the consumer along.

_OPEN: Final = frozenset({TransactionPhase.IN_TRANSACTION, TransactionPhase.ABORTABLE_ERROR})
_MAY_COMMIT: Final = frozenset(
    {
        TransactionPhase.COMMITTING_TRANSACTION,
        TransactionPhase.PREPARING_TRANSACTION,
        TransactionPhase.PREPARED_TRANSACTION,
    }
)
_FATAL: Final = (
    "this producer can only be closed. Its consumer is back where the block began: unless another instance has taken "
    "over, begin again with a new producer"
)
_UNKNOWN: Final = (
    "it is not known whether the transaction was committed. Close the producer and the consumer, and make new ones: "
    "they start from the offsets that are committed"
)


class _Producer(Protocol):
    """What a block needs of a producer."""

    @property
    def transaction_state(self) -> TransactionPhase: ...

    def begin_transaction(self) -> None: ...

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: ConsumerGroupMetadata
    ) -> None: ...

    def commit_transaction(self) -> None: ...

    def abort_transaction(self) -> None: ...


class _Source:
    """The consumer whose positions the block commits: it returns to where the block began if that fails.

    Another object with a consumer's `assignment`, `position` and `consumer_group_metadata` stays where it is.
    """

    def __init__(self, consumer: Positioned | None) -> None:
        self._consumer = consumer
        self._end: Any = getattr(consumer, "end_block", None)
        self._began: Any = consumer.begin_block() if self._end is not None else None  # type: ignore[union-attr]

    def send_offsets(self, producer: _Producer) -> None:
        """Add the positions to the transaction."""
        consumer = self._consumer
        if consumer is not None:
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())

    def end(self, *, committed: bool) -> None:
        """Go on after the transaction."""
        if self._end is not None:
            self._end(self._began, committed)

    def fail(self, producer: _Producer, error: BaseException, *, commits: bool) -> None:
        """Go back to where the block began, unless the transaction may still have been committed."""
        state = producer.transaction_state
        if state is TransactionPhase.FATAL_ERROR:
            # A refusal has written nothing. After another error of a commit, the log may hold the transaction.
            unknown = commits and isinstance(error.__cause__, StoreError)
            if self._end is not None:
                error.add_note(_UNKNOWN if unknown else _FATAL)
            if unknown:
                return
        if state not in _MAY_COMMIT:
            self.end(committed=False)


@contextmanager
def transaction_block(producer: _Producer, offsets_from: Positioned | None) -> Iterator[None]:
    """Begin a transaction; commit it when the block ends, abort it after an exception."""
    producer.begin_transaction()
    source = _Source(None)
    try:
        source = _Source(offsets_from)
        yield
        source.send_offsets(producer)
    except BaseException as error:
        _abort_after(producer, error)
        source.fail(producer, error, commits=False)
        raise
    try:
        producer.commit_transaction()
    except KafkaException as error:
        if error.error.txn_requires_abort():
            _abort_after(producer, error)
        source.fail(producer, error, commits=True)
        raise
    source.end(committed=True)


def _abort_after(producer: _Producer, error: BaseException) -> None:
    """Abort the open transaction, if it can be; `error` is what the caller will see, whatever the abort says."""
    if producer.transaction_state in _OPEN:
        try:
            producer.abort_transaction()
        except KafkaException as abort_error:
            error.add_note(f"the abort that followed failed: {abort_error}")


# What a producer holds of its process: a share of a log, a lingering thread, and records that wait.

_finishing: set[Holdings] = set()


class Holdings:
    """What is left when a producer is dropped without `close()`, or the interpreter ends before it is closed."""

    def __init__(self, client_id: str, log: Log, outbox: Outbox, buffers: Buffers, linger: Linger | None) -> None:
        self._client_id = client_id
        self._log = log
        self._outbox = outbox
        self._buffers = buffers
        self._linger = linger
        self._fork = ForkGuard()
        self._dropped_before = 0

    def give_back(self) -> None:
        """Store what the lingering thread has not sent yet, warn of records that are lost, and give the log back.

        For a producer that is gone. Does not wait for the thread.
        """
        self._dropped_before = self._outbox.dropped_records
        _finishing.add(self)
        if self._linger is None or not self._linger.finish(self._end):
            self._end()

    def warn_at_exit(self) -> None:
        """Log how many records the end of the interpreter loses, if it loses any."""
        lost = self._buffers.not_stored()
        if lost:
            log_event("records_lost_at_exit", records=lost, client_id=self._client_id)

    def _end(self) -> None:
        lost = self._buffers.not_stored() + self._outbox.dropped_records - self._dropped_before
        if lost:
            log_event("records_lost_by_drop", client_id=self._client_id, records=lost)
        _finishing.discard(self)
        release_dropped(self._log, self._fork)


class _Holder(Protocol):
    """What this module knows of a producer."""

    _holdings: Holdings | None
    _unusable: str | None
    _accepting: dict[Any, Any]


_producers: weakref.WeakSet[_Holder] = weakref.WeakSet()


def watch(producer: _Holder) -> None:
    """Take part in what becomes of `producer` after a fork, and at the end of the interpreter."""
    _producers.add(producer)


def _after_fork_in_child() -> None:
    for producer in _producers:
        producer._unusable = producer._unusable or made_before("producer")
        producer._accepting.clear()  # produce() then takes the way that checks the handle
        producer._holdings = None  # what it holds is the parent's to give back


def _at_exit() -> None:
    """Warn about all records that wait: the threads that would have stored them have ended."""
    for producer in list(_producers):
        holdings, producer._holdings = producer._holdings, None
        if holdings is not None:
            holdings.warn_at_exit()
    for holdings in list(_finishing):
        holdings.warn_at_exit()


after_threads(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


# What a producer says in its statistics, with librdkafka's names.

_S: Final = TransactionPhase

_TXN_STATES: Final = {
    _S.UNINITIALIZED: "Init",
    _S.INITIALIZING: "WaitPID",
    _S.READY: "Ready",
    _S.IN_TRANSACTION: "InTransaction",
    _S.PREPARING_TRANSACTION: "BeginCommit",
    _S.PREPARED_TRANSACTION: "BeginCommit",
    _S.COMMITTING_TRANSACTION: "CommittingTransaction",
    _S.ABORTING_TRANSACTION: "AbortingTransaction",
    _S.ABORTABLE_ERROR: "AbortableError",
    _S.FATAL_ERROR: "FatalError",
}


def producer_statistics(
    settings: ProducerSettings, buffers: Buffers | None, outbox: Outbox | None, state: TransactionPhase
) -> dict[str, Any]:
    """Return the fields of a producer; `state` is that of its transactions, if it has any.

    Before the producer has opened its store, `buffers` and `outbox` are None, and nothing waits.
    """
    identity = NO_IDENTITY if outbox is None else outbox.identity
    stored = {} if outbox is None else dict(outbox.stored_records)
    eos = {
        "idemp_state": "Init" if identity == NO_IDENTITY else "Assigned",
        "producer_id": identity.producer_id,
        "producer_epoch": identity.producer_epoch,
    }
    if settings.transactional_id is not None:
        eos |= {"txn_state": _TXN_STATES[state], "txn_may_enq": state is _S.IN_TRANSACTION}
    return {
        "msg_cnt": 0 if buffers is None else len(buffers),
        "msg_size": 0 if buffers is None else buffers.buffered_bytes(),
        "msg_max": settings.queue_messages_max,
        "msg_size_max": settings.queue_bytes_max,
        "txmsgs": sum(stored.values()),
        "topics": by_topic({place: {"txmsgs": records} for place, records in stored.items()}),
        "eos": eos,
    }


_CALLBACKS: Final = ("on_delivery", "error_cb", "stats_cb", "throttle_cb", "log_cb", "oauth_cb", "dr_cb")
_PAUSE_S: Final = 0.05
_FULL_QUEUE_S: Final = 1.0  # how long poll(0) works on a transaction's queue that is full: it would stay so without


class Producer(ProducerLookups):
    """Writes records to topics, each stored once; with ``transactional.id`` in transactions.

    Safe for several threads. Callbacks are called only inside poll(), flush(), commit_transaction() and
    abort_transaction(), on the thread that calls them. `timeout` bounds a call, in seconds; below 0 it is
    ``transaction.timeout.ms``, and without ``transactional.id`` there is no limit.

    Args:
        config: settings under librdkafka's dotted names; as keywords, ``_`` means ``.``.

    Raises:
        ConfigurationError: a setting is unknown or wrong.
    """

    _holdings: Holdings | None = None

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        given = arguments.mapping("config", config) | settings_of_keywords(settings, _CALLBACKS)
        self._settings = ProducerSettings.parse(given)
        self._unusable: str | None = None  # why no call may use it any more
        self._connecting = threading.Lock()
        self._log: Log | None = None
        self._outbox: Outbox | None = None
        self._linger: Linger | None = None
        self._buffers: Buffers | None = None
        self._reports = Reports(only_errors=self._settings.reports_only_errors, error_cb=self._settings.error_cb)
        self._on_delivery = self._settings.on_delivery
        # A record's topic is found here in one step; while none may be produced it is empty.
        self._accepting: dict[Any, TopicBuffer] = {}
        self._choice = PartitionChoice(self._settings.partitioner)
        self._topics = Topics(self._settings, self._choice)
        self._by_crc32 = self._settings.partitioner == "consistent_random"
        self._now_ms: Callable[[], int] = no_clock
        self._clock: Clock = SystemClock()
        self._own_time_s = None
        self._closing_time_s = self._settings.delivery_timeout_s
        self._transactions: Transactions | None = None
        if self._settings.transactional_id is not None:
            self._own_time_s = self._settings.transaction_timeout_ms / 1000
            self._closing_time_s = CLOSE_TIMEOUT_S
            self._transactions = Transactions(
                self._settings.transactional_id,
                self._settings.transaction_timeout_ms,
                delivery_timeout_s=self._settings.delivery_timeout_s,
                on_error=self._reports.add_error,
                refuse_records=self._accepting.clear,
            )
        self._reports.statistics = Statistics.wanted(self._settings, self._clock, self._said_in_statistics)
        watch(self)

    # --- records ---------------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]] | None = None,
    ) -> None:
        """Queue one record of `topic`; text in `value`, `key` and `headers` is stored as UTF-8.

        `partition` below 0: the partitioner chooses by `key`. `callback` or `on_delivery` gets its delivery report.
        `timestamp` is in milliseconds since 1970, 0 is now.

        Raises:
            BufferError: the queue is full: call poll(), then produce again.
            KafkaException: _STATE outside a transaction, _UNKNOWN_TOPIC, _UNKNOWN_PARTITION, MSG_SIZE_TOO_LARGE, or the
                error that the transaction must be aborted for.
            TypeError: the key, the value or a header is neither text nor bytes, or another argument has a wrong type.
            ConfigurationError: a number is out of range, or text holds half of a surrogate pair.
            RuntimeError: the producer is closed, or was made before a fork.
        """
        # Each step here costs every record: what is rare is done elsewhere. See buffers.py for why there is no lock.
        try:
            target = self._accepting[topic]
        except (KeyError, TypeError):
            target = self._record_topic(topic)
        size = 0
        if value is not None:
            if type(value) is not bytes:
                value = record_bytes("value", value)
            size = len(value)
        if key is not None:
            if type(key) is not bytes:
                key = record_bytes("key", key)
            size += len(key)
        elif target.requires_key:
            target = self._record_topic(topic, has_key=False)
        pairs: Headers | None = None
        if headers is not None:
            pairs, header_bytes = record_headers(headers)
            size += header_bytes
        if size > target.size_max:
            target = self._record_topic(topic, has_key=key is not None, size=size)
        if type(partition) is not int:
            partition = arguments.integer("partition", partition)
        if partition < 0:
            if key and self._by_crc32:
                partition = crc32(key) % target.partition_count
            else:
                partition = self._choice.partition(target, key)
        elif partition >= target.partition_count:
            target = self._record_topic(topic, has_key=key is not None, size=size, partition=partition)
        if callback is None and on_delivery is None:
            callback = self._on_delivery
        else:
            callback = delivery_callback(callback, on_delivery)
        now_ms = self._now_ms()
        report = None if callback is None else (callback, now_ms)
        buffer = target.partitions[partition]
        rows = buffer.rows
        time_ms = now_ms if type(timestamp) is int and not timestamp else record_timestamp(timestamp) or now_ms
        row = (key, value, time_ms, pairs, report)
        if len(rows) >= buffer.rows_max or buffer.size_bytes + size > buffer.bytes_max:
            self._opened_buffers().add(buffer, row, size)
        else:
            rows.append(row)
        buffer.size_bytes += size

    def produce_batch(
        self,
        topic: str,
        messages: Sequence[dict[str, Any]],
        partition: int = -1,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> int:
        """Queue many records of `topic`, each a dictionary of produce()'s arguments; return how many were queued.

        `partition`, `callback` and `on_delivery` are for those that have none of their own. A record that is refused
        gets its KafkaError as ``_error``; the others go on.

        Raises:
            TypeError: `messages` is not a list of dictionaries, or one has an unknown name: nothing is queued.
        """
        common = delivery_callback(callback, on_delivery)
        return produce_each(self.produce, topic, batch_messages(messages), partition, common)

    def produce_arrow(self, topic: str, batch: object, partition: int = -1, *, delete: bool = False) -> None:
        """Queue the rows of a record batch or table for `topic`, or one `partition` of it; without delivery reports.

        `batch` may be any object with ``__arrow_c_stream__``, such as a data frame: all its rows are read first.
        For Kafka's record the columns are key, value, headers, timestamp and partition, of which value is required. For
        a typed topic they are the declared ones, and ``_timestamp``. What consume_arrow() returns can be given as it
        is: the columns that the log assigns are left out. Waits while too much is being uploaded, so memory stays
        bounded.

        For a keyed topic each row is an upsert, with all declared columns. With `delete`, or where a column
        ``_deleted`` is true, it deletes its key: the columns of the key are enough, and no others are stored.

        Raises:
            TypeError: `batch` is something else.
            ConfigurationError: a column is unknown, missing or of another type: no row of the call is queued.
            KafkaException: as produce(); INVALID_RECORD, a key is too long, or belongs to another partition.
        """
        partition = arguments.integer("partition", partition)
        delete = arguments.boolean("delete", delete)
        place = self._open_for(topic, "produce_arrow")
        tables = [*tables_of("batch", batch)]
        check = partial(checked_columns, tables=tables, now_ms=self._now_ms(), partition=partition, delete=delete)
        target, checked = self._topics.decide(*place, check)
        buffers = self._opened_buffers()
        for rows, given in checked:
            if not rows.num_rows:
                continue
            if partition >= 0:
                buffers.add_table(target.partitions[partition], rows)
                continue
            chosen = row_partitions(rows, given, target.key_column, partial(self._choice.column, target))
            for number, some in split(rows, chosen):
                buffers.add_table(target.partitions[number], some)

    def __len__(self) -> int:
        """Records that wait, and delivery reports not yet delivered."""
        return (len(self._buffers) if self._buffers is not None else 0) + len(self._reports)

    def __bool__(self) -> bool:
        """Always True."""
        return True

    # --- waiting ---------------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None = -1) -> int:
        """Deliver delivery reports, after waiting up to `timeout` seconds for the first; how many.

        Below 0 the wait has no limit. Where only the open transaction's own records could bring one, it acts as
        flush().
        """
        self._check()
        timeout_s = seconds(timeout)
        served = self._reports.serve_with_statistics()
        if served or not self._may_wait(timeout_s):
            return served
        if self._transactions is not None and self._transactions.state is TransactionPhase.IN_TRANSACTION and len(self):
            with Deadline(self._clock, timeout_s or _FULL_QUEUE_S if timeout_s >= 0 else self._own_time_s).governs():
                self._flush_transaction(self._transactions)
        else:
            self._reports.wait(None if timeout_s < 0 else timeout_s)
            self._check()
        return self._reports.serve_with_statistics()

    @in_time("timeout", clock_of, own_time_s)
    def flush(self, timeout: float | None = -1) -> int:
        """Store what waits, and deliver the reports; how many records and reports are left.

        Inside a transaction it publishes the records and the offsets, uncommitted, or with transaction.publish=commit
        only makes the records durable. What fails is reported by delivery reports and by the commit.
        """
        self._check()
        if self._transactions is not None:
            self._flush_transaction(self._transactions)
            self._reports.serve_with_statistics()
        elif self._log is not None:
            self._flush_linger()
        return len(self)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Drop records that no list of commands names yet; their reports carry _PURGE_QUEUE.

        Without `in_queue` it drops none. It waits for a publication under way unless both `blocking` and
        `in_flight` are False.

        A transaction that has lost records cannot commit: the commit raises _INCONSISTENT, and it must be aborted.
        """
        self._check()
        in_queue = arguments.boolean("in_queue", in_queue)
        in_flight = arguments.boolean("in_flight", in_flight)
        blocking = arguments.boolean("blocking", blocking)
        if not in_queue or self._outbox is None or self._log is None:
            return
        with self._log.within(-1.0 if blocking or in_flight else 0.0), self._outbox.exclusive():
            self._outbox.discard(purged("the record was purged"))

    # --- transactions ----------------------------------------------------------------------------------------------

    @in_time("timeout", clock_of, own_time_s)
    def init_transactions(self, timeout: float = -1, *, keep_prepared: bool = False) -> None:
        """Take the transactional id over, once: fence an older producer and abort what it left open.

        With `keep_prepared` a prepared transaction is not aborted. If there is one, the state is PREPARED_TRANSACTION:
        complete_transaction(), commit_transaction() or abort_transaction() must follow (KIP-939).

        Raises:
            KafkaException: _NOT_CONFIGURED without transactional.id, _STATE if it was done; see the flags for the rest.
            StoreNotFound: there is no store at the address.
        """
        keep_prepared = arguments.boolean("keep_prepared", keep_prepared)
        self._transactional("init_transactions").init(self._connect, keep_prepared=keep_prepared)

    def begin_transaction(self) -> None:
        """Open a transaction; nothing is written before it publishes."""
        self._transactional("begin_transaction").begin(self._accept_records)

    @in_time("timeout", clock_of, own_time_s)
    def send_offsets_to_transaction(
        self, positions: Sequence[TopicPartition], group_metadata: ConsumerGroupMetadata, timeout: float = -1
    ) -> None:
        """Commit `positions` of the consumer group of `group_metadata` with the transaction.

        Logical and invalid offsets are left out.
        """
        transactions = self._transactional("send_offsets_to_transaction")
        expected = "what Consumer.consumer_group_metadata() gives"
        group = arguments.instance("group_metadata", group_metadata, ConsumerGroupMetadata, expected)
        transactions.add_offsets(topic_partitions("positions", positions), group)

    @in_time("timeout", clock_of, own_time_s)
    def expect(self, topic: str, partition: int, log_end_offset: int, timeout: float = -1) -> None:
        """Make commit_transaction() raise ExpectationFailed if `partition` of `topic` has another record from there on.

        `log_end_offset` is up to where the caller has read. The partition need not be written to. Records of this
        transaction do not count, those of an aborted one do. The entry that commits or prepares the transaction
        decides, and nothing is locked until then.

        Raises:
            TransactionAborted: UNKNOWN_TOPIC_OR_PARTITION.
            KafkaException: INVALID_TOPIC, the topic is internal; _STATE, no transaction is open; _NOT_CONFIGURED.
            ConfigurationError: a number is out of range, or another offset is expected of the partition already.
        """
        self._transactional("expect").expect(topic, partition, log_end_offset)

    @in_time("timeout", clock_of, own_time_s)
    def prepare_transaction(self, timeout: float = -1) -> PreparedTransaction:
        """Store all of the transaction, and leave its end to the keeper of what this returns (KIP-939).

        The transaction takes nothing more, never times out, and outlives this producer: store the value in the database
        transaction that decides, then call complete_transaction(). Delivery reports have their offsets.

        Raises:
            ProducerFenced, TransactionAborted, KafkaException: as commit_transaction().
        """
        try:
            return self._transactional("prepare_transaction").prepare()
        finally:
            self._reports.serve()

    @in_time("timeout", clock_of, own_time_s)
    def complete_transaction(self, prepared: PreparedTransaction, timeout: float = -1) -> None:
        """End the prepared transaction: commit it if it is `prepared`, else abort it.

        With none open it does nothing, so a coordinator may repeat it after every start: `prepared` was committed
        before, or is older than what was.

        Raises:
            KafkaException: INVALID_TXN_STATE: `prepared` has been aborted; else as commit_transaction().
        """
        expected = "what prepare_transaction() gives, or PreparedTransaction.parse(text)"
        arguments.instance("prepared", prepared, PreparedTransaction, expected)
        try:
            self._transactional("complete_transaction").complete(prepared)
        finally:
            self._reports.serve()

    @in_time("timeout", clock_of, own_time_s)
    def commit_transaction(self, timeout: float = -1) -> None:
        """Commit: when it returns, the transaction is durable and every new reader sees all of it.

        Raises:
            ProducerFenced: fatal; another producer, or a time-out, has ended this one.
            TransactionAborted: the transaction must be aborted.
            KafkaException: test fatal(), txn_requires_abort(), retriable() in this order; retriable: call it again.
        """
        try:
            with Call(PROCESS.commit_transaction, self._clock):
                self._transactional("commit_transaction").commit()
        finally:
            self._reports.serve()

    @in_time("timeout", clock_of, own_time_s)
    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort: read_committed never sees any of it. The reports of records that wait carry _PURGE_QUEUE."""
        try:
            with Call(PROCESS.abort_transaction, self._clock):
                self._transactional("abort_transaction").abort()
        finally:
            self._reports.serve()

    @contextmanager
    def transaction(self, *, offsets_from: Positioned | None = None) -> Iterator[Producer]:
        """Begin a transaction, and commit it at the end of the block; an exception in the block aborts it.

        One that the block has prepared is not aborted by an exception: its coordinator may have decided.

        With `offsets_from`, a consumer, its positions are committed with the transaction. If the block or its commit
        fails, the consumer returns to where the block began, so the next block reads the same input. Consume inside of
        the block. Automatic offset commits of the consumer wait for the block's end.

        A commit whose outcome is not known (retriable) moves the consumer nowhere: call commit_transaction() again.
        After a fatal error close the producer; a note of the exception says what becomes of the consumer.
        """
        if offsets_from is not None:
            arguments.instance("offsets_from", offsets_from, Positioned, "a Consumer, or None")
        with transaction_block(self, offsets_from):
            yield self

    @property
    def producer_id(self) -> int:
        """The producer id, -1 before there is one."""
        return self._outbox.identity.producer_id if self._outbox is not None else -1

    @property
    def producer_epoch(self) -> int:
        """The producer epoch, -1 before there is one."""
        return self._outbox.identity.producer_epoch if self._outbox is not None else -1

    @property
    def transaction_state(self) -> TransactionPhase:
        """Where the producer is between init_transactions() and close(); UNINITIALIZED if it is not transactional."""
        return self._transactions.state if self._transactions is not None else TransactionPhase.UNINITIALIZED

    # --- the handle ------------------------------------------------------------------------------------------------

    @in_time("timeout", clock_of, closing_time_s)
    def close(self, timeout: float = -1) -> bool:
        """Store what waits, or abort the open transaction, and free the handle; calling twice is harmless.

        Without a time-out records have delivery.timeout.ms, an open transaction half a minute. What is not stored by
        then is dropped, with a warning; an open transaction is left to its time-out, or to the next init.

        Returns:
            True.
        """
        if self._unusable is not None:
            return True
        try:
            self._finish()
        finally:
            self._release()
        self._unusable = "this producer is closed: make a new one"
        self._accepting.clear()
        self._reports.wake()
        return True

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- steps -----------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._unusable is not None:
            raise RuntimeError(self._unusable)

    def _transactional(self, call: str) -> Transactions:
        self._check()
        if self._transactions is None:
            reason = f"{call}() needs the setting transactional.id, and this producer has none"
            raise KafkaException(KafkaError(ErrorCode.LOCAL_NOT_CONFIGURED, reason))
        return self._transactions

    def _connect(self) -> tuple[Log, Outbox]:
        """Open the store at the first time."""
        if not acquired_in_time(self._connecting):
            raise StoreUnavailable("another thread of this producer was opening the store until the deadline")
        try:
            if self._log is None or self._outbox is None:
                log = acquire_log(self._settings.uri, self._settings.store_options, create=False)
                buffers = buffers_of(log, self._settings, on_waiting=weakly(self._notice), served=self._reports.__len__)
                self._outbox = Outbox(log, buffers, self._reports)
                self._buffers = buffers
                self._topics.on_replaced = buffers.close_topic
                self._clock, self._now_ms = log.clock, log.clock.wall_ms
                self._choice.seed(log.ids)
                if self._transactions is None:
                    on_round, on_error = weakly(self._after_round), self._reports.add_error
                    self._linger = Linger(
                        log, self._outbox, buffers, self._settings, on_round=on_round, on_error=on_error
                    )
                self._log = log
                self._holdings = Holdings(self._settings.client_id, log, self._outbox, buffers, self._linger)
            return self._log, self._outbox
        finally:
            self._connecting.release()

    def _opened_buffers(self) -> Buffers:
        if self._buffers is None:
            raise AssertionError("a record passed the topic check before the store was opened")
        return self._buffers

    def _said_in_statistics(self) -> dict[str, Any]:
        return producer_statistics(self._settings, self._buffers, self._outbox, self.transaction_state)

    def _notice(self) -> None:
        if self._linger is not None:
            self._linger.notice()

    def _after_round(self) -> None:
        try:
            self._accept_records()
        finally:
            self._reports.wake()

    def _accept_records(self) -> None:
        """Open the way of produce() to the topics that have not changed since they were looked up."""
        if self._log is not None and self._unusable is None:
            self._topics.forget_changed(self._log)
            self._accept_known()

    def _accept_known(self) -> None:
        self._accepting.clear()
        self._accepting.update(self._topics.of_records())

    def _open_for(self, name: object, call: str) -> tuple[Log, str]:
        """Return the log and the topic's name, if `call` may write now, and a thread sends what it writes."""
        self._check()
        topic = arguments.text("topic", name)
        if self._transactions is not None:
            self._transactions.require_open(call)
        log, _ = self._connect()
        if self._linger is not None:
            self._linger.start()
        return log, topic

    def _record_topic(self, name: object, *, has_key: bool = True, size: int = 0, partition: int = -1) -> TopicBuffer:
        """Return the topic, which takes such a record by what the log says now; one that has changed is another one."""
        try:
            arguments.integer("partition", partition, -1, arguments.INT32_MAX)
            place = self._open_for(name, "produce")
            topic = self._topics.find(*place, has_key=has_key, size=size, partition=partition)
        except Exception as error:
            # produce() has looked the topic up by then: that it was not found is not part of the error.
            error.__suppress_context__ = True
            raise
        self._accept_known()
        return topic

    def _may_wait(self, timeout_s: float) -> bool:
        """Return True if poll() may do more than check: also without a timeout while the queue is full."""
        return timeout_s != 0 or len(self) >= self._settings.queue_messages_max

    def _flush_transaction(self, transactions: Transactions) -> None:
        (transactions.publish if self._settings.publish_on_flush else transactions.upload)()

    def _flush_linger(self) -> None:
        self._connect()
        while True:
            self._reports.serve()
            if not len(self) or self._linger is None or is_time_up():
                return
            self._linger.hurry()
            self._reports.wait(_PAUSE_S if (left_s := time_left_s()) is None else min(_PAUSE_S, left_s))

    def _finish(self) -> None:
        """Leave nothing open. A fenced producer has nothing to abort, and closing must not fail for it."""
        if self._transactions is None:
            if self._log is not None:
                self._flush_linger()
        elif self.transaction_state in (TransactionPhase.IN_TRANSACTION, TransactionPhase.ABORTABLE_ERROR):
            try:
                self._transactions.abort()
            except KafkaException as error:
                log_event("transaction_left_open_by_close", client_id=self._settings.client_id, error=error)
        self._reports.serve()
        if len(self):
            log_event("records_dropped_by_close", client_id=self._settings.client_id, records=len(self))

    def _release(self) -> None:
        held, self._holdings = self._holdings, None
        if self._linger is not None:
            self._linger.close()
        if self._outbox is not None:
            self._outbox.let_go()
        if self._log is not None and held is not None:
            release_log(self._log)

    def __del__(self) -> None:
        # Without close(). This may run anywhere, also where a lock is held: another thread gives back what is held.
        if self._holdings is not None:
            give_back_later(self._holdings.give_back)
