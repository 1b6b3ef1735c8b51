"""What each error means in each operation: the classes of Kafka's TransactionManager and librdkafka's rdkafka_txnmgr.

The engine is made to answer with the error; then everything that a caller may do is tried.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Append, Command, EndTxn, InitProducerId, PrepareTxn
from sparktxn._engine.format.entry import decode_entry
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._kafka.message import ConsumerGroupMetadata, TopicPartition
from sparktxn._rows.stage import pendingsegment
from sparktxn.errors import (
    CommandRefused,
    ErrorCode,
    KafkaError,
    KafkaException,
    OutcomeLost,
    OutcomeUnknown,
    ProducerFenced,
    StoreUnavailable,
    TransactionAborted,
)
from sparktxn.producer import Producer, TransactionPhase
from tests.world import World, error_of, flags

E = ErrorCode
READERS = ConsumerGroupMetadata("readers")

# R: the same call again. A: abort; A+: and the abort takes a fresh epoch. F: fatal. X: fatal, and reported as _FENCED.
# S+: the call itself succeeds, with a fresh epoch. -: not an answer of this operation.
#
# Columns: init_transactions (InitProducerId); commit_transaction, whose one list replaces Kafka's AddPartitions,
# Produce, AddOffsets, TxnOffsetCommit and EndTxn; flush (all of these but EndTxn); abort_transaction (EndTxn).
TABLE = """
                                        init  commit  flush  abort
COORDINATOR_NOT_AVAILABLE               R     R       R      R
NOT_COORDINATOR                         R     R       R      R
COORDINATOR_LOAD_IN_PROGRESS            R     R       R      R
CONCURRENT_TRANSACTIONS                 R     R       R      R
REQUEST_TIMED_OUT                       R     R       R      R
LOCAL_TRANSPORT                         R     R       R      R
LOCAL_TIMED_OUT                         R     R       R      R
UNKNOWN_TOPIC_OR_PARTITION              -     A       A      -
INVALID_PRODUCER_EPOCH                  X     X       X      X
PRODUCER_FENCED                         X     X       X      X
TRANSACTION_COORDINATOR_FENCED          X     X       X      X
INVALID_TXN_STATE                       F     F       A      F
INVALID_PRODUCER_ID_MAPPING             -     A+      A+     S+
UNKNOWN_PRODUCER_ID                     -     A+      A+     S+
TRANSACTION_ABORTABLE                   A     A       A      A
ILLEGAL_GENERATION                      -     A       A      -
UNKNOWN_MEMBER_ID                       -     A       A      -
FENCED_INSTANCE_ID                      -     A       A      -
REBALANCE_IN_PROGRESS                   -     A       A      -
TOPIC_AUTHORIZATION_FAILED              -     A       A      A
GROUP_AUTHORIZATION_FAILED              -     A       A      A
TRANSACTIONAL_ID_AUTHORIZATION_FAILED   F     F       F      F
CLUSTER_AUTHORIZATION_FAILED            F     F       F      F
INVALID_TRANSACTION_TIMEOUT             F     F       F      F
UNSUPPORTED_VERSION                     F     F       F      F
INVALID_REQUEST                         F     F       F      F
OUT_OF_ORDER_SEQUENCE_NUMBER            -     A+      A+     -
KAFKA_STORAGE_ERROR                     -     A       A      -
MESSAGE_TOO_LARGE                       -     A       A      -
OFFSET_METADATA_TOO_LARGE               -     A       A      -
UNKNOWN                                 F     A       A      A
"""
OPERATIONS, *ROWS = [line.split() for line in TABLE.split("\n") if line]


def answers(operation: str) -> list[Any]:
    column = OPERATIONS.index(operation) + 1
    return [pytest.param(ErrorCode[row[0]], row[column], id=row[0]) for row in ROWS if row[column] != "-"]


def answer(code: ErrorCode) -> KafkaException:
    """The error as the log raises it."""
    if code is E.LOCAL_TRANSPORT:
        return StoreUnavailable("why")
    if code is E.LOCAL_TIMED_OUT:
        return OutcomeUnknown("why")
    return CommandRefused(code, "why")


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def begin(producer: Producer, value: str = "first") -> None:
    producer.begin_transaction()
    producer.produce("t", value)
    producer.send_offsets_to_transaction([TopicPartition("six", 1, 5)], READERS)


def every_call(producer: Producer) -> dict[str, Callable[[], object]]:
    """All but the abort."""
    return {
        "init": producer.init_transactions,
        "begin": producer.begin_transaction,
        "produce": lambda: producer.produce("t", "x"),
        "send offsets": lambda: producer.send_offsets_to_transaction([TopicPartition("t", 0, 1)], READERS),
        "prepare": producer.prepare_transaction,
        "commit": producer.commit_transaction,
    }


def check_class(error: KafkaError, code: ErrorCode, expected: str) -> None:
    """The code, the name and the one flag that say what to do."""
    told = E.LOCAL_FENCED if expected == "X" else code
    assert (error.code(), error.name()) == (told, told.kafka_name)
    assert flags(error) == (expected in "FX", expected[0] == "A", expected == "R")
    assert error.str() == "why"


def check_fatal(producer: Producer, error: KafkaError) -> None:
    assert producer.transaction_state is TransactionPhase.FATAL_ERROR
    for name, call in {**every_call(producer), "abort": producer.abort_transaction}.items():
        again = error_of(call)
        assert (again.code(), flags(again)) == (error.code(), (True, False, False)), name
    producer.close()


def check_abortable(world: World, producer: Producer, error: KafkaError, *, bumped: bool) -> None:
    """Everything but the abort raises it; the abort works, and so does the next transaction."""
    assert producer.transaction_state is TransactionPhase.ABORTABLE_ERROR
    epoch = producer.producer_epoch
    for name, call in every_call(producer).items():
        again = error_of(call)
        assert (again.code(), flags(again)) == (error.code(), (False, True, False)), name
    producer.abort_transaction()
    check_next(world, producer, "next")
    assert (producer.producer_epoch > epoch) == bumped


def check_next(world: World, producer: Producer, *values: str) -> None:
    assert producer.transaction_state is TransactionPhase.READY
    with producer.transaction():
        producer.produce("t", values[-1])
    assert world.values("t") == [value.encode() for value in values]
    assert all(stable == end for stable, end in world.ends("t").values()), "no transaction is left open"


def check_retried(producer: Producer, call: Callable[[], object], other: Callable[[], object]) -> None:
    """Another call is a conflict, the same one goes on."""
    conflict = error_of(other)
    assert (conflict, flags(conflict)) == (KafkaError._CONFLICT, (False, False, True))
    call()


@pytest.mark.kafka("K06", "K07", "K16", "K18", "K120")
@pytest.mark.parametrize(("code", "expected"), answers("init"))
def test_init(world: World, code: ErrorCode, expected: str) -> None:
    producer = world.producer("orders")
    with world.answering(answer(code), kind=InitProducerId) as answered:
        error = error_of(lambda: producer.init_transactions(0))
        check_class(error, code, expected)
        assert len(answered) == 1
    if expected == "R":
        assert producer.transaction_state is TransactionPhase.INITIALIZING
        check_retried(producer, producer.init_transactions, producer.begin_transaction)
        assert producer.producer_epoch == 0
        check_next(world, producer, "next")
    elif expected == "A":
        assert producer.producer_id == -1
        check_abortable(world, producer, error, bumped=True)
    else:
        check_fatal(producer, error)


@pytest.mark.kafka("K114", "K115", "K116", "K117", "K120")
@pytest.mark.parametrize(("code", "expected"), answers("commit"))
def test_commit(world: World, code: ErrorCode, expected: str) -> None:
    told: list[KafkaError | None] = []
    producer = world.transactional()
    begin(producer)
    producer.produce("t", "second", callback=lambda error, message: told.append(error))
    with world.answering(answer(code), kind=EndTxn) as answered:
        error = error_of(producer.commit_transaction)
    check_class(error, code, expected)
    assert [type(command).__name__ for command in answered[0]] == ["Append", "TxnOffsetCommit", "EndTxn"]
    assert world.values("t") == []
    if expected == "R":
        assert told == []
        check_retried(producer, producer.commit_transaction, producer.abort_transaction)
        assert world.committed("readers", "six", 1) == 5
        assert told == [None]
        check_next(world, producer, "first", "second", "next")
        return
    assert told == [error.code()]
    if expected in "FX":
        check_fatal(producer, error)
    else:
        check_abortable(world, producer, error, bumped=expected == "A+")
    assert world.committed("readers", "six", 1) is None


@pytest.mark.kafka("K63", "K114", "K115", "K116", "K117", "K120")
@pytest.mark.parametrize("published", [False, True], ids=["first flush", "second flush"])
@pytest.mark.parametrize(("code", "expected"), answers("flush"))
def test_flush(world: World, code: ErrorCode, expected: str, published: bool) -> None:
    """A flush raises nothing: the next call reports what it has met."""
    producer = world.transactional()
    begin(producer)
    if published:
        assert producer.flush() == 0
        producer.produce("t", "second")
    with world.answering(answer(code), kind=Append) as answered:
        producer.flush()
    names = [type(command).__name__ for command in answered[0]]
    assert names == (["Append"] if published else ["Append", "TxnOffsetCommit"])
    if expected == "R":
        assert producer.transaction_state is TransactionPhase.IN_TRANSACTION
        assert producer.flush() == 0
        producer.commit_transaction()
        check_next(world, producer, *(["first", "second"] if published else ["first"]), "next")
        return
    error = error_of(producer.commit_transaction, ProducerFenced if expected == "X" else KafkaException)
    check_class(error, code, expected)
    if expected in "FX":
        check_fatal(producer, error)
    else:
        check_abortable(world, producer, error, bumped=expected == "A+")


@pytest.mark.kafka("K59", "K115", "K120")
def test_a_fence_that_a_flush_meets_is_fatal_at_once(world: World) -> None:
    """As librdkafka reports it: error_cb, the reports and every later call carry _FENCED; an abort comes too late."""
    told: list[KafkaError | None] = []
    fatal: list[KafkaError] = []
    older = Producer({"bootstrap.servers": world.uri, "transactional.id": "orders", "error_cb": fatal.append})
    world.clients.append(older)
    older.init_transactions()
    older.begin_transaction()
    world.transactional()
    older.produce("t", "late", callback=lambda error, message: told.append(error))
    assert older.flush() == 0
    assert told == [KafkaError._FENCED]
    assert [(error, error.fatal()) for error in fatal] == [(KafkaError._FENCED, True)]
    check_fatal(older, fatal[0])


@pytest.mark.kafka("K114", "K115", "K118", "K120", "K129")
@pytest.mark.parametrize(("code", "expected"), answers("commit"))
def test_prepare(world: World, code: ErrorCode, expected: str) -> None:
    """Its list is the commit's, but for the end: so are the meanings."""
    producer = world.transactional()
    begin(producer)
    with world.answering(answer(code), kind=PrepareTxn) as answered:
        error = error_of(producer.prepare_transaction)
    check_class(error, code, expected)
    assert [type(command).__name__ for command in answered[0]] == ["Append", "TxnOffsetCommit", "PrepareTxn"]
    if expected == "R":
        check_retried(producer, producer.prepare_transaction, producer.abort_transaction)
        assert producer.transaction_state is TransactionPhase.PREPARED_TRANSACTION
        producer.commit_transaction()
        check_next(world, producer, "first", "next")
    elif expected in "FX":
        check_fatal(producer, error)
    else:
        check_abortable(world, producer, error, bumped=expected == "A+")


@pytest.mark.kafka("K115", "K118", "K120")
@pytest.mark.parametrize(("code", "expected"), answers("abort"))
def test_abort(world: World, code: ErrorCode, expected: str) -> None:
    producer = world.transactional()
    begin(producer)
    assert producer.flush() == 0
    epoch = producer.producer_epoch
    with world.answering(answer(code), kind=EndTxn):
        if expected == "S+":
            producer.abort_transaction()
            check_next(world, producer, "next")
            assert producer.producer_epoch > epoch
            return
        error = error_of(producer.abort_transaction, TransactionAborted if expected == "A" else KafkaException)
    check_class(error, code, expected)
    if expected == "R":
        check_retried(producer, producer.abort_transaction, producer.commit_transaction)
        check_next(world, producer, "next")
    elif expected == "A":
        assert error_of(producer.commit_transaction) == KafkaError._STATE
        producer.abort_transaction()
        check_next(world, producer, "next")
    else:
        check_fatal(producer, error)


@pytest.mark.kafka("K07", "K16")
def test_an_init_asks_again_while_another_end_is_under_way(world: World) -> None:
    with world.answering(CommandRefused(E.CONCURRENT_TRANSACTIONS, "busy"), times=3, kind=InitProducerId) as answered:
        producer = world.transactional()
    assert len(answered) == 3
    assert len({commands[0].request_id for commands in answered}) == 1
    assert producer.producer_epoch == 0


@pytest.mark.kafka("K120")
def test_a_code_that_is_not_known_is_abortable(world: World) -> None:
    producer = world.transactional()
    begin(producer)
    with world.answering(CommandRefused(9_999, "of a later version")):
        error = error_of(producer.commit_transaction, TransactionAborted)
    assert (error.code(), error.name(), flags(error)) == (9_999, "ERR_9999?", (False, True, False))
    producer.abort_transaction()
    check_next(world, producer, "next")


@pytest.mark.kafka("K120")
def test_a_duplicate_is_a_success_without_its_offset(world: World) -> None:
    """A list comes again when its batch is no longer remembered, but the commit of its transaction is."""
    producer = world.transactional()
    producer.begin_transaction()
    for number in range(7):
        producer.produce("t", str(number))
        producer.flush()
    producer.commit_transaction()
    appends = [command for command in log_commands(world) if isinstance(command, Append)]
    forgotten, remembered, end = world.submit(appends[0], appends[-1], log_commands(world)[-1])
    assert [result.duplicate for result in (forgotten, remembered, end)] == [True, True, True]
    assert (forgotten.base_offset, remembered.base_offset) == (-1, 6)
    assert world.values("t") == [b"%d" % number for number in range(7)]


def log_commands(world: World) -> list[Any]:
    """All commands in the log, in order."""
    found: list[Command] = []
    for name in sorted(world.store.log.objects.list_names(names.ENTRIES)):
        number = names.parse_entry(name)
        if number is not None:
            found += decode_entry(world.store.log.objects.get(name) or b"", name, number).commands
    return found


@pytest.mark.kafka("K63", "K121")
@pytest.mark.parametrize("code", [E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.UNKNOWN_PRODUCER_ID, E.INVALID_PRODUCER_EPOCH])
def test_outside_transactions_a_doubtful_sequence_renews_the_identity(world: World, code: ErrorCode) -> None:
    told: list[tuple[KafkaError | None, int | None]] = []
    producer = world.producer(linger_ms=1)
    producer.produce("t", "a")
    assert producer.flush(30) == 0
    before = producer.producer_id
    with world.answering(CommandRefused(code, "why"), kind=Append) as answered:
        producer.produce("t", "b", callback=lambda error, message: told.append((error, message.offset())))
        assert producer.flush(30) == 0
    assert answered[0][0].base_sequence == 1
    assert told == [(None, 1)]
    assert producer.producer_id > before
    (again,) = [command for command in log_commands(world) if getattr(command, "producer_id", -1) > before]
    assert (again.base_sequence, again.producer_epoch) == (0, 0)
    assert world.values("t") == [b"a", b"b"]


@pytest.mark.kafka("K116", "K118", "K136")
@pytest.mark.parametrize("written", [False, True], ids=["request lost", "answer lost"])
def test_an_abort_whose_init_timed_out_is_called_again_and_bumps_once(world: World, written: bool) -> None:
    """librdkafka's do_test_txn_slow_reinit."""
    producer = world.transactional()
    begin(producer)
    with world.answering(CommandRefused(E.OUT_OF_ORDER_SEQUENCE_NUMBER, "why"), kind=EndTxn):
        assert error_of(producer.commit_transaction).txn_requires_abort()
    with world.answering(OutcomeUnknown("slow"), kind=InitProducerId) as answered:
        error = error_of(producer.abort_transaction)
    assert (error, flags(error)) == (KafkaError._TIMED_OUT, (False, False, True))
    if written:
        world.submit(*answered[0])
    conflict = error_of(producer.begin_transaction)
    assert (conflict, flags(conflict)) == (KafkaError._CONFLICT, (False, False, True))
    producer.abort_transaction()
    assert producer.producer_epoch == 1
    check_next(world, producer, "next")


@pytest.mark.kafka("K115", "K116", "K134")
def test_an_abort_whose_init_finds_a_newer_producer_is_fenced(world: World) -> None:
    """librdkafka's do_test_txn_fenced_reinit."""
    producer = world.transactional()
    begin(producer)
    with world.answering(CommandRefused(E.OUT_OF_ORDER_SEQUENCE_NUMBER, "why"), kind=EndTxn):
        assert error_of(producer.commit_transaction).txn_requires_abort()
    newer = world.transactional()
    error = error_of(producer.abort_transaction, ProducerFenced)
    assert (error, flags(error)) == (KafkaError._FENCED, (True, False, False))
    check_fatal(producer, error)
    check_next(world, newer, "next")


@pytest.mark.kafka("K57", "K116")
@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_after_a_flush_that_must_be_aborted_nothing_of_it_is_left(world: World, end: str) -> None:
    """What an earlier flush had published is aborted with it, and none of its sequences is taken for that of a later
    one."""
    producer = world.transactional()
    for _ in range(2):
        begin(producer, "lost")
        assert producer.flush() == 0
        producer.produce("t", "lost, too")
        with world.answering(CommandRefused(E.OUT_OF_ORDER_SEQUENCE_NUMBER, "why"), kind=Append):
            producer.flush()
        if end == "commit_transaction":
            assert error_of(producer.commit_transaction) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
        producer.abort_transaction()
    check_next(world, producer, "next")
    assert world.values("t", "read_uncommitted") == [b"lost", b"lost", b"next"]
    assert world.committed("readers", "six", 1) is None


@pytest.mark.kafka("K57", "K118")
@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_flushes_whose_answers_are_lost_are_each_sent_once(world: World, end: str) -> None:
    told: list[tuple[KafkaError | None, int | None]] = []
    producer = world.transactional()
    producer.begin_transaction()
    with world.losing_answers(times=3) as lost:
        for number in range(3):
            producer.produce("t", str(number), callback=lambda error, message: told.append((error, message.offset())))
            producer.flush()
    assert [[command.base_sequence for command in commands] for commands in lost] == [[0], [1], [2]]
    getattr(producer, end)()
    assert told == [(None, 0), (None, 1), (None, 2)]
    assert world.values("t", "read_uncommitted") == [b"0", b"1", b"2"]
    assert world.values("t") == ([b"0", b"1", b"2"] if end == "commit_transaction" else [])
    appends = [command for command in log_commands(world) if isinstance(command, Append)]
    assert [append.base_sequence for append in appends] == [0, 1, 2]
    check_next(world, producer, *(["0", "1", "2"] if end == "commit_transaction" else []), "next")


@pytest.mark.kafka("K116", "K136")
@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize(("code", "bumped"), [(E.INVALID_PRODUCER_ID_MAPPING, True), (E.KAFKA_STORAGE_ERROR, False)])
def test_an_abort_learns_first_what_became_of_a_flush(
    world: World, code: ErrorCode, bumped: bool, published: bool
) -> None:
    """Its answer was late, and it is a refusal: that hinders no abort, and says whether the sequences are in doubt."""
    producer = world.transactional()
    begin(producer)
    if published:
        producer.flush()
        producer.produce("t", "second")
    with world.answering(OutcomeUnknown("late"), CommandRefused(code, "why"), kind=Append):
        producer.flush()
        assert producer.transaction_state is TransactionPhase.IN_TRANSACTION
        producer.abort_transaction()
    assert (producer.producer_epoch > 0) == bumped
    check_next(world, producer, "next")


# --- what is not stored in time --------------------------------------------------------------------------------------


class Slow:
    """No segment and no entry can be put, and time passes by a clock that the test holds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, world: World) -> None:
        self.fails = True
        self.ahead_s = 0.0
        clock = world.store.log.clock
        upload, monotonic_s = vars(pendingsegment)["upload_segment"], clock.monotonic_s

        def uploading(*arguments: Any, **settings: Any) -> Any:
            if self.fails:
                raise StoreUnavailable("no answer")
            return upload(*arguments, **settings)

        put_if_absent = MemoryStore.put_if_absent

        def putting(objects: MemoryStore, name: str, data: bytes, **settings: Any) -> Any:
            if self.fails and names.parse_entry(name) is not None and b'"append"' in data:
                raise StoreUnavailable("no answer")
            return put_if_absent(objects, name, data, **settings)

        monkeypatch.setattr(pendingsegment, "upload_segment", uploading)
        monkeypatch.setattr(MemoryStore, "put_if_absent", putting)
        monkeypatch.setattr(type(clock), "monotonic_s", lambda _: monotonic_s() + self.ahead_s)


@pytest.mark.kafka("K116", "K117", "K120", "K136")
@pytest.mark.parametrize("inline", [{"store_append_inline_bytes": 0}, {}], ids=["file", "inline"])
@pytest.mark.parametrize("flushed", [False, True], ids=["commit", "flush"])
def test_records_that_cannot_be_stored_by_the_delivery_timeout_must_be_aborted(
    world: World, monkeypatch: pytest.MonkeyPatch, flushed: bool, inline: dict[str, Any]
) -> None:
    told: list[KafkaError | None] = []
    slow = Slow(monkeypatch, world)
    producer = world.transactional(delivery_timeout_ms=20_000, **inline)
    producer.begin_transaction()
    producer.produce("t", "late", callback=lambda error, message: told.append(error))
    if flushed:
        producer.flush(0.3)
        assert producer.transaction_state is TransactionPhase.IN_TRANSACTION
        slow.ahead_s = 21
        producer.flush(0.3)
        error = error_of(lambda: producer.commit_transaction(0.3), TransactionAborted)
    else:
        assert flags(error_of(lambda: producer.commit_transaction(0.3))) == (False, False, True)
        slow.ahead_s = 21
        error = error_of(lambda: producer.commit_transaction(0.3), TransactionAborted)
    assert (error.code(), flags(error)) == (KafkaError._MSG_TIMED_OUT, (False, True, False))
    assert "not stored within 20 s, the smaller of delivery.timeout.ms and transaction.timeout.ms" in error.str()
    assert told == [KafkaError._MSG_TIMED_OUT]
    slow.fails = False
    producer.abort_transaction()
    check_next(world, producer, "next")


@pytest.mark.kafka("K118", "K137")
@pytest.mark.parametrize("call", ["init_transactions", "commit_transaction", "abort_transaction"])
def test_while_the_store_is_down_a_call_ends_by_its_timeout_and_goes_on_later(world: World, call: str) -> None:
    producer = world.producer("orders")
    if call != "init_transactions":
        producer.init_transactions()
        begin(producer)
        assert producer.flush() == 0
    with world.answering(OutcomeUnknown("the store does not answer")):
        error = error_of(lambda: getattr(producer, call)(0.01))
    assert (error, flags(error)) == (KafkaError._TIMED_OUT, (False, False, True))
    getattr(producer, call)()
    check_next(world, producer, *(["first", "next"] if call == "commit_transaction" else ["next"]))


@pytest.mark.kafka("K115", "K120")
@pytest.mark.parametrize("call", ["commit_transaction", "abort_transaction", "flush"])
def test_an_outcome_that_nobody_can_tell_any_more_is_fatal(world: World, call: str) -> None:
    """Neither the same call nor an abort could fix it; the next producer of the id takes over whatever was done."""
    producer = world.transactional()
    begin(producer)
    if call == "abort_transaction":
        producer.flush()
    with world.answering(OutcomeLost("why")):
        if call == "flush":
            producer.flush()
        error = error_of(producer.commit_transaction if call == "flush" else getattr(producer, call))
    assert (error, flags(error)) == (KafkaError._FAIL, (True, False, False))
    check_fatal(producer, error)
    check_next(world, world.transactional(), "next")


@pytest.mark.kafka("K120")
def test_an_init_whose_outcome_nobody_can_tell_takes_over_from_it(world: World) -> None:
    with world.answering(OutcomeLost("why"), kind=InitProducerId) as answered:
        producer = world.transactional()
    assert len(answered) == 1
    check_next(world, producer, "next")


# --- librdkafka's local errors ---------------------------------------------------------------------------------------


def test_not_configured_without_a_transactional_id(world: World) -> None:
    producer = world.producer()
    for name in ("init_transactions", "begin_transaction", "commit_transaction", "abort_transaction"):
        error = error_of(getattr(producer, name))
        assert (error, flags(error)) == (KafkaError._NOT_CONFIGURED, (False, False, False))
        assert name in error.str()
    offsets = lambda: producer.send_offsets_to_transaction([], READERS)  # noqa: E731
    assert error_of(offsets) == KafkaError._NOT_CONFIGURED


@pytest.mark.kafka("K113")
def test_a_call_out_of_order_carries_no_flag_and_changes_nothing(world: World) -> None:
    producer = world.producer("orders")
    for name, call in every_call(producer).items():
        if name != "init":
            assert (error_of(call), flags(error_of(call))) == (KafkaError._STATE, (False, False, False)), name
    producer.init_transactions()
    for name, call in {**every_call(producer), "abort": producer.abort_transaction}.items():
        if name != "begin":
            assert error_of(call) == KafkaError._STATE, name
    producer.begin_transaction()
    for name in ("init", "begin"):
        assert error_of(every_call(producer)[name]) == KafkaError._STATE, name
    producer.produce("t", "kept")
    producer.commit_transaction()
    assert world.values("t") == [b"kept"]


@pytest.mark.kafka("K118")
@pytest.mark.parametrize("call", ["init_transactions", "commit_transaction", "abort_transaction"])
def test_a_call_beside_another_thread_is_busy(world: World, call: str) -> None:
    producer = world.producer("orders")
    if call != "init_transactions":
        producer.init_transactions()
        begin(producer)
        producer.flush()
    reached, go = threading.Event(), threading.Event()
    send = world.store.log.send

    def holding(*given: Any) -> Any:
        reached.set()
        go.wait(60)
        return send(*given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(world.store.log, "send", holding)
        thread = threading.Thread(target=getattr(producer, call))
        thread.start()
        assert reached.wait(60)
        same, other = error_of(getattr(producer, call)), error_of(producer.begin_transaction)
        go.set()
        thread.join()
    assert (same, flags(same)) == (KafkaError._PREV_IN_PROGRESS, (False, False, True))
    assert (other, flags(other)) == (KafkaError._CONFLICT, (False, False, True))
    assert producer.transaction_state is TransactionPhase.READY


def test_purged_records_are_reported_as_such(world: World) -> None:
    told: list[tuple[KafkaError | None, bytes | None]] = []
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("t", "published", callback=lambda error, message: told.append((error, message.value())))
    producer.flush()
    producer.produce("t", "queued", callback=lambda error, message: told.append((error, message.value())))
    producer.abort_transaction()
    assert told == [(None, b"published"), (KafkaError._PURGE_QUEUE, b"queued")]
    assert flags(told[1][0] or KafkaError(0)) == (False, False, False)


@pytest.mark.kafka("K117")
@pytest.mark.parametrize("call", ["commit_transaction", "prepare_transaction"])
@pytest.mark.parametrize("before", ["nothing", "published", "offsets", "later records", "arrow"])
def test_a_transaction_that_has_lost_records_by_a_purge_cannot_commit(world: World, call: str, before: str) -> None:
    """As in librdkafka: records that were not delivered make the commit fail, whatever else it holds."""
    told: list[KafkaError | None] = []
    producer = world.transactional()
    producer.begin_transaction()
    if before == "published":
        producer.produce("t", "published")
        assert producer.flush() == 0
    if before == "offsets":
        producer.send_offsets_to_transaction([TopicPartition("six", 1, 5)], READERS)
    if before == "arrow":
        producer.produce_arrow("t", pa.table({"value": [b"row"]}))
    producer.produce("t", "purged", callback=lambda error, message: told.append(error))
    producer.purge()
    if before == "later records":
        producer.produce("t", "later")
    error = error_of(getattr(producer, call), TransactionAborted)
    assert (error, flags(error)) == (KafkaError._INCONSISTENT, (False, True, False))
    assert ("2 records" if before == "arrow" else "1 record,") in error.str()
    assert told == [KafkaError._PURGE_QUEUE]
    check_abortable(world, producer, error, bumped=False)
    assert world.committed("readers", "six", 1) is None


def test_a_purge_between_two_tries_of_a_commit_makes_it_fail(world: World) -> None:
    """Nothing was sent by the first try, so what it would have sent is purged, and its end must not be sent alone."""
    producer = world.transactional(store_append_inline_bytes=0)
    producer.begin_transaction()
    producer.produce("t", "first")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pendingsegment.PendingSegment, "finish", _unavailable)
        assert error_of(producer.commit_transaction).retriable()
    producer.purge()
    error = error_of(producer.commit_transaction, TransactionAborted)
    assert (error, flags(error)) == (KafkaError._INCONSISTENT, (False, True, False))
    check_abortable(world, producer, error, bumped=False)


def test_a_purge_while_the_commit_is_under_way_drops_nothing(world: World) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("t", "first")
    with world.losing_answers():
        assert error_of(producer.commit_transaction).retriable()
    producer.purge()
    producer.commit_transaction()
    assert world.values("t") == [b"first"]


def _unavailable(*_: object) -> None:
    raise StoreUnavailable("the store does not answer")


def test_a_purge_that_found_nothing_and_one_of_an_earlier_transaction_hinder_no_commit(world: World) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("t", "dropped")
    producer.purge()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.purge()
    producer.produce("t", "kept")
    producer.commit_transaction()
    assert world.values("t") == [b"kept"]
