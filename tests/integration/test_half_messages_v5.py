"""RocketMQ 5's transactions: what is begun, sent, settled and checked (tests/rocketmq_behaviours.py)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparktxn import read_task
from sparktxn.errors import KafkaException
from sparktxn.halfmessage.rocketmq5 import (
    BadRequestException,
    ClientConfiguration,
    ClientException,
    Credentials,
    ForbiddenException,
    IllegalArgumentException,
    IllegalStateException,
    Message,
    NotFoundException,
    PayloadEmptyException,
    PayloadTooLargeException,
    Producer,
    ProxyTimeoutException,
    Transaction,
    TransactionResolution,
)
from sparktxn.testing.faultystore import Fault, FaultyStore, Operation
from tests.halfworld import COMMIT, POLL_NEVER, UNKNOWN, HalfWorld, Process5, Scripted5, configuration5

V_COMMIT, V_ROLLBACK = TransactionResolution.COMMIT, TransactionResolution.ROLLBACK
UNSPECIFIED = TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED


@pytest.fixture
def world() -> Iterator[HalfWorld]:
    made = HalfWorld()
    yield made
    made.close()


def message(body: str = "a", topic: str = "orders", **attributes: Any) -> Message:
    made = Message()
    made.topic, made.body = topic, body.encode()
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def begun(shop: Process5, *messages: Message) -> Transaction:
    transaction = shop.producer.begin_transaction()
    for one in messages:
        shop.producer.send(one, transaction)
    return transaction


def test_the_example_of_the_python_client(world: HalfWorld) -> None:
    """python/example/transaction_producer_example.py, but for its imports."""
    log = world.process()
    checker = Scripted5()
    producer = Producer(ClientConfiguration(world.lend("example", log), Credentials()), ("orders",), checker=checker)
    producer.startup()
    msg = Message()
    msg.topic = "orders"
    msg.body = b"hello, rocketmq."
    msg.tag = "rocketmq-send-transaction-message"
    msg.keys = "send_transaction"  # type: ignore[assignment]
    msg.add_property("send", "transaction")
    transaction = producer.begin_transaction()
    res = producer.send(msg, transaction)
    assert res.message_id == transaction.message_id == msg.message_id
    transaction.commit()
    producer.shutdown()
    (row,) = world.rows()
    assert row["value"] == b"hello, rocketmq."
    headers = {header["key"]: header["value"] for header in row["headers"]}
    assert headers["TAGS"] == b"rocketmq-send-transaction-message"
    assert (headers["KEYS"], headers["send"]) == (b"send_transaction", b"transaction")


@pytest.mark.rocketmq("V1")
def test_v1_a_transaction_needs_a_checker_and_a_started_producer(world: HalfWorld) -> None:
    configuration = ClientConfiguration(world.lend("one", world.process()), settings=POLL_NEVER)
    without = Producer(configuration, ("orders",))
    with pytest.raises(IllegalStateException, match="not running"):
        without.begin_transaction()
    with without:
        assert without.is_running
        with pytest.raises(IllegalArgumentException, match=r"Transaction checker should not be null\."):
            without.begin_transaction()
        assert without.send(message("plain")).transaction_id == ""
    assert world.visible() == ["plain"]
    assert not without.is_running
    with pytest.raises(IllegalStateException):
        without.send(message())


@pytest.mark.rocketmq("V2")
def test_v2_several_messages_over_several_topics_are_one_transaction(world: HalfWorld) -> None:
    shop = world.shop5("orders")
    transaction = begun(shop, message("a"), message("b", "audit"), message("c", "mail"), message("d"))
    assert len(world.halves()) == 1
    assert [world.visible(topic) for topic in ("orders", "audit", "mail")] == [[], [], []]
    before = world.entry()
    transaction.commit()
    assert world.entry() == before + 1
    assert [world.visible(topic) for topic in ("orders", "audit", "mail")] == [["a", "d"], ["b"], ["c"]]


@pytest.mark.rocketmq("V2")
def test_v2_no_read_in_commit_order_shows_one_topic_of_a_transaction_without_the_other(world: HalfWorld) -> None:
    """An open transaction of Kafka's lies before one of the records: it holds up neither."""
    from sparktxn.producer import Producer as KafkaProducer

    shop = world.shop5("orders")
    with KafkaProducer({"bootstrap.servers": shop.uri, "transactional.id": "kafka"}) as kafka:
        kafka.init_transactions()
        kafka.begin_transaction()
        kafka.produce("audit", b"open")
        kafka.flush(5)
        begun(shop, message("a", "orders"), message("b", "audit")).commit()

        def read(after_entry: int) -> list[tuple[str, bytes]]:
            view = world.reader.view(["orders", "audit"])
            tasks = world.reader.plan_commits(view, after_entry)
            rows = [row for task in tasks for batch in read_task(task) for row in batch.to_pylist()]
            return sorted((row["topic"], row["value"]) for row in rows)

        assert read(0) == [("audit", b"b"), ("orders", b"a")]
        before = world.entry()
        kafka.commit_transaction()
        assert read(before) == [("audit", b"open")]


@pytest.mark.rocketmq("V2")
def test_v2_strict_rocketmq_allows_one(world: HalfWorld) -> None:
    shop = world.shop5(strict=True)
    transaction = begun(shop, message("a"))
    with pytest.raises(IllegalArgumentException, match="threshold"):
        shop.producer.send(message("b"), transaction)
    transaction.commit()
    assert world.visible() == ["a"]


@pytest.mark.rocketmq("V3")
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_v3_without_a_message_there_is_nothing_to_end(world: HalfWorld, end: str) -> None:
    shop = world.shop5()
    with pytest.raises(IllegalArgumentException, match="has not been sent yet"):
        getattr(shop.producer.begin_transaction(), end)()


@pytest.mark.rocketmq("V4", "R3")
@pytest.mark.parametrize(
    ("name", "value"), [("message_group", "g"), ("delivery_timestamp", 5), ("lite_topic", "l"), ("priority", 1)]
)
def test_v4_what_a_transactional_message_must_not_have(world: HalfWorld, name: str, value: Any) -> None:
    shop = world.shop5()
    with pytest.raises(IllegalArgumentException, match=name):
        begun(shop, message(**{name: value}))
    assert not world.halves()
    if name == "message_group":
        shop.producer.send(message("b", message_group="g"))
        assert world.rows()[0]["key"] == b"g"
    else:
        with pytest.raises(IllegalArgumentException, match=name):
            shop.producer.send(message(**{name: value}))


@pytest.mark.rocketmq("V5")
def test_v5_the_topic_must_take_transactional_messages(world: HalfWorld) -> None:
    for kind in ("normal", "transaction", "mixed"):
        world.reader.create_topic(kind, settings={"message.type": kind})
    shop = world.shop5()
    with pytest.raises(IllegalArgumentException, match=r"message\.type=normal"):
        begun(shop, message(topic="normal"))
    for kind in ("transaction", "mixed"):
        begun(shop, message(topic=kind)).commit()
        assert world.visible(kind) == ["a"]


def test_what_an_administrator_rejects_is_forbidden(world: HalfWorld) -> None:
    shop = world.shop5()
    world.reject("true")
    with pytest.raises(ForbiddenException, match=r"^40300, sending transaction message to topic 'orders' is forbidden"):
        begun(shop, message())
    assert world.halves() == {}


@pytest.mark.rocketmq("V6", "#8158-1")
def test_v6_the_opposite_end_raises_and_names_the_outcome(world: HalfWorld) -> None:
    shop = world.shop5()
    committed, rolled_back = begun(shop, message("c")), begun(shop, message("r"))
    committed.commit()
    rolled_back.rollback()
    committed.commit()
    rolled_back.rollback()
    with pytest.raises(BadRequestException, match="committed"):
        committed.rollback()
    with pytest.raises(BadRequestException, match="rolled back"):
        rolled_back.commit()
    assert world.visible() == ["c"]
    with pytest.raises(IllegalArgumentException, match="has ended"):
        shop.producer.send(message("more"), committed)


@pytest.mark.rocketmq("V6", "#2694", "R10")
def test_v6_after_a_restart_an_end_is_still_known(world: HalfWorld) -> None:
    shop = world.shop5()
    transaction = begun(shop, message("a"))
    world.kill(shop)
    other = world.shop5()
    other.checker.checked[b"a"] = V_ROLLBACK
    world.pass_s(7)
    assert other.checker.asked == [b"a"]
    with pytest.raises(BadRequestException, match="rolled back in entry") as refused:
        transaction.commit()
    assert refused.value.code == 40_000
    assert isinstance(refused.value, KafkaException)
    assert world.visible() == []


@pytest.mark.rocketmq("V6", "V11")
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_v6_an_end_whose_answer_is_lost_is_known_by_the_same_call(world: HalfWorld, end: str) -> None:
    down = False

    def fate(operation: Operation) -> Fault:
        return Fault.UNAVAILABLE if down else Fault.NONE

    shop = world.shop5(objects=FaultyStore(world.objects, fate))
    transaction = begun(shop, message("a"))
    down = True
    with pytest.raises(ProxyTimeoutException):
        getattr(transaction, end)()
    down = False
    getattr(transaction, end)()
    assert world.visible() == (["a"] if end == "commit" else [])
    assert not world.halves()


@pytest.mark.rocketmq("V7", "R19")
@pytest.mark.parametrize("answer", [ValueError("broken"), UNSPECIFIED, None, "COMMIT"])
def test_v7_an_exception_or_unspecified_leaves_it_pending(world: HalfWorld, answer: Any) -> None:
    shop = world.shop5()
    shop.checker.checked[b"a"] = [answer, V_COMMIT]
    begun(shop, message("a"))
    world.pass_s(7)
    assert (len(world.halves()), world.visible()) == (1, [])
    world.pass_s(30)
    assert [shown.delivery_attempt for shown in shop.checker.shown] == [1, 2]
    assert world.visible() == ["a"]


@pytest.mark.rocketmq("V7")
def test_v7_a_check_shows_the_message_and_all_others_of_its_transaction(world: HalfWorld) -> None:
    shop = world.shop5()
    first = message("a", tag="t", keys=["k1", "k2"], properties={"p": "q"})
    transaction = begun(shop, first, message("b", "audit"))
    world.pass_s(7)
    (shown,) = shop.checker.shown
    assert (shown.message_id, shown.transaction_id) == (first.message_id, transaction.message_id)
    assert (shown.topic, shown.body, shown.tag, shown.keys) == ("orders", b"a", "t", ("k1", "k2"))
    assert (shown.properties, shown.born_timestamp) == ({"p": "q"}, first.born_timestamp)
    assert [(one.topic, one.body) for one in shown.messages] == [("orders", b"a"), ("audit", b"b")]


@pytest.mark.rocketmq("V8", "R15")
@pytest.mark.parametrize("seconds", [0, 20])
def test_v8_a_message_says_itself_when_it_is_checked_first(world: HalfWorld, seconds: int) -> None:
    shop = world.shop5()
    begun(shop, message("a", orphaned_transaction_recovery_duration=seconds))
    if seconds:
        world.pass_s(seconds - 1)
        assert shop.checker.asked == []
        world.clock.sleep(1)
    world.rounds()
    assert shop.checker.asked == [b"a"]


@pytest.mark.rocketmq("V9")
def test_v9_message_id_and_transaction_id_are_one(world: HalfWorld) -> None:
    shop = world.shop5()
    transaction = shop.producer.begin_transaction()
    assert transaction.message_id == ""
    first = shop.producer.send(message("a"), transaction)
    second = shop.producer.send(message("b", "audit"), transaction)
    assert first.message_id == first.transaction_id == second.transaction_id == transaction.message_id
    assert second.message_id != first.message_id
    assert (first.offset, first.recall_handle, first.message_queue.topic) == (-1, None, "orders")
    transaction.commit()
    ids = {header["value"].decode() for row in world.rows("audit") for header in row["headers"]}
    assert ids == {second.message_id}


@pytest.mark.rocketmq("V10")
def test_v10_a_body_has_one_byte_to_four_mebibytes(world: HalfWorld) -> None:
    world.reader.create_topic("large", settings={"max.message.bytes": 2**24})
    shop = world.shop5()
    with pytest.raises(PayloadEmptyException):
        begun(shop, message(""))
    with pytest.raises(PayloadTooLargeException):
        begun(shop, message("x" * (2**22 + 1), "large"))
    begun(shop, message("x" * 2**22, "large")).commit()
    begun(shop, message("x")).commit()
    assert [len(row["value"]) for row in world.rows("large")] == [2**22]
    with pytest.raises(IllegalArgumentException, match="no topic"):
        begun(shop, message(topic=""))
    with pytest.raises(NotFoundException, match="did you mean 'orders'"):
        begun(shop, message(topic="order"))


@pytest.mark.rocketmq("V11")
@pytest.mark.parametrize("verb", ["LATE", "RESPONSE_LOST"])
def test_v11_a_send_that_is_repeated_leaves_one_half_message(world: HalfWorld, verb: str) -> None:
    late: list[Callable[[], object]] = []
    sent: list[str] = []
    arming = False

    def fate(operation: Operation) -> Fault:
        if not arming:
            return Fault.NONE
        if operation.verb == "put_if_absent" and operation.name.startswith("_log/0"):
            sent.append(operation.name)
            return Fault[verb]
        return Fault.UNAVAILABLE if sent else Fault.NONE

    shop = world.shop5(objects=FaultyStore(world.objects, fate, later=late.append))
    begun(shop, message("warm up")).commit()
    transaction, one = shop.producer.begin_transaction(), message("a")
    arming = True
    with pytest.raises(ProxyTimeoutException):
        shop.producer.send(one, transaction)
    arming = False
    for put in late:
        put()
    with pytest.raises(IllegalArgumentException, match="send it again"):
        transaction.commit()
    with pytest.raises(IllegalArgumentException, match="send it again"):
        shop.producer.send(message("other"), transaction)
    receipt = shop.producer.send(one, transaction)
    assert list(world.halves()) == [receipt.transaction_id]
    transaction.commit()
    assert world.visible() == ["a", "warm up"]


@pytest.mark.rocketmq("V11")
def test_v11_a_send_in_doubt_may_be_rolled_back(world: HalfWorld) -> None:
    down = False

    def fate(operation: Operation) -> Fault:
        return Fault.UNAVAILABLE if down and operation.name.startswith("_log/0") else Fault.NONE

    shop = world.shop5(objects=FaultyStore(world.objects, fate))
    begun(shop, message("warm up")).commit()
    transaction = shop.producer.begin_transaction()
    down = True
    with pytest.raises(ProxyTimeoutException):
        shop.producer.send(message("a"), transaction)
    down = False
    transaction.rollback()
    assert not world.halves()
    assert world.visible() == ["warm up"]


@pytest.mark.rocketmq("V12")
def test_v12_shutdown_waits_for_the_check_under_way_and_begins_no_other(world: HalfWorld) -> None:
    from sparktxn._foundation.process.clock import SystemClock
    from tests.world import World as PlainWorld

    plain = PlainWorld()
    running, go_on = threading.Event(), threading.Event()
    checker = Scripted5()

    def slow() -> TransactionResolution:
        running.set()
        assert go_on.wait(60)
        return V_COMMIT

    checker.checked = {b"a": slow, b"b": slow}
    settings = {"transaction.timeout.ms": 20, "transaction.check.poll.ms": 10}
    producer = Producer(configuration5(plain.uri, **settings), ("t",), checker)
    producer.startup()
    for body in ("a", "b"):
        producer.send(message(body, "t"), producer.begin_transaction())
    assert running.wait(60)
    closing = threading.Thread(target=producer.shutdown)
    closing.start()
    while producer.is_running:
        SystemClock().sleep(0.001)
    go_on.set()
    closing.join(60)
    assert not closing.is_alive()
    assert len(checker.asked) == 1
    assert plain.texts() == [checker.asked[0].decode()]
    plain.close()


@pytest.mark.rocketmq("V13", "R16")
def test_v13_who_declares_the_first_messages_topic_is_asked(world: HalfWorld) -> None:
    dead = world.shop5("orders")
    begun(dead, message("a", "audit"), message("b", "orders"))
    world.kill(dead)
    orders, audit = world.shop5("orders"), world.shop5("mail", "audit")
    audit.checker.checked[b"a"] = V_COMMIT
    world.pass_s(7)
    assert (orders.checker.asked, audit.checker.asked) == ([], [b"a"])
    assert [world.visible("audit"), world.visible("orders")] == [["a"], ["b"]]


@pytest.mark.rocketmq("V13")
def test_v13_a_topic_that_it_sends_to_is_declared_by_it(world: HalfWorld) -> None:
    shop = world.shop5("mail")
    begun(shop, message("a", "audit"))
    world.pass_s(7)
    assert shop.checker.asked == [b"a"]


@pytest.mark.rocketmq("V13")
def test_v13_version_4_serves_a_group_of_the_topics_name(world: HalfWorld) -> None:
    shop, four = world.shop5("orders"), world.shop("orders")
    begun(shop, message("a"))
    world.kill(shop)
    four.listener.checked[b"a"] = COMMIT
    world.pass_s(7)
    assert world.visible() == ["a"]
    four.send("b", UNKNOWN)


@pytest.mark.rocketmq("V6", "#8158-2")
def test_a_message_may_join_until_a_check_has_settled(world: HalfWorld) -> None:
    """A slow program: its transaction is rolled back by a check between two of its messages."""
    shop = world.shop5()
    transaction = begun(shop, message("a"))
    shop.checker.checked[b"a"] = V_ROLLBACK
    world.pass_s(7)
    with pytest.raises(BadRequestException, match="rolled back"):
        shop.producer.send(message("b"), transaction)
    with pytest.raises(BadRequestException, match="rolled back"):
        transaction.commit()
    assert world.visible() == []


def test_each_message_begins_the_immunity_anew(world: HalfWorld) -> None:
    shop = world.shop5()
    transaction = begun(shop, message("a"))
    for number in range(4):
        world.pass_s(5)
        shop.producer.send(message(f"b{number}"), transaction)
    assert shop.checker.asked == []
    world.pass_s(7)
    assert shop.checker.asked == [b"a"]


def test_errors_are_client_exceptions_with_a_code(world: HalfWorld) -> None:
    with pytest.raises(NotFoundException) as missing:
        Producer(ClientConfiguration("memory://no-such-store-at-all")).startup()
    assert (missing.value.code, isinstance(missing.value, ClientException)) == (40_400, True)
    assert str(missing.value).startswith("40400, there is no store")
    with pytest.raises(IllegalArgumentException, match="namespace"):
        ClientConfiguration("/s", namespace="n")
    with pytest.raises(IllegalArgumentException, match=r"transaction\.check\.max"):
        ClientConfiguration("/s", settings={"transaction.check.max": 0})


def test_credentials_are_shown_nowhere() -> None:
    credentials = Credentials("key", "very secret")
    configuration = ClientConfiguration("s3://bucket/log", credentials)
    for shown in (repr(credentials), repr(configuration), repr(configuration.settings), str(vars(configuration))):
        assert "secret" not in shown.replace("storage.secret", "")
    assert configuration.settings.store_options == {"storage.key": "key", "storage.secret": "very secret"}
