"""RocketMQ 4's transactional messages: what is sent, settled, checked and seen (tests/rocketmq_behaviours.py)."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sparktxn import TopicPartition
from sparktxn._engine.state.halfmessages import settled_half
from sparktxn._foundation.values.structs import HalfOutcome
from sparktxn.errors import (
    ConfigurationError,
    ErrorCode,
    KafkaException,
    OutcomeUnknown,
    StoreUnavailable,
)
from sparktxn.halfmessage import (
    LocalTransactionState,
    Message,
    MessageExt,
    SendStatus,
    TransactionListener,
    TransactionMQProducer,
    engine,
)
from sparktxn.testing.faultystore import Fault, FaultyStore, Operation
from tests.halfworld import COMMIT, POLL_NEVER, ROLLBACK, UNKNOWN, HalfWorld, Process, Scripted, message
from tests.world import World as PlainWorld
from tests.world import error_of, messages


@pytest.fixture
def world() -> Iterator[HalfWorld]:
    made = HalfWorld()
    yield made
    made.close()


def outcome_of(world: HalfWorld, transaction_id: str, group: str = "shop") -> HalfOutcome | None:
    log = world.reader.log
    log.refresh()
    settled = settled_half(log._follower.tail.parts.get, group, transaction_id)
    return None if settled is None else settled.outcome


# --- sending and settling --------------------------------------------------------------------------------------------


@pytest.mark.rocketmq("R1", "R12")
def test_r1_a_half_message_is_stored_and_seen_by_no_consumer(world: HalfWorld) -> None:
    shop = world.shop()
    sent = shop.send("a", UNKNOWN)
    assert sent.local_transaction_state is UNKNOWN
    assert list(world.halves()) == [sent.transaction_id]
    assert world.visible() == []
    view = world.reader.view(["orders"])
    assert {(end.last_stable_offset, end.log_end_offset) for end in view.partitions.values()} == {(0, 0)}
    assert world.reader.plan(view, world.reader.ranges(view, isolation="read_uncommitted")) == []


@pytest.mark.rocketmq("R1")
def test_r1_it_holds_no_other_record_up(world: HalfWorld) -> None:
    shop = world.shop()
    half = shop.send("a", UNKNOWN, topic="audit")
    for body in ("b", "c"):
        shop.send(body, COMMIT, topic="audit")
    assert [row["value"] for row in world.rows("audit")] == [b"b", b"c"]
    shop.producer._settle(shop.producer._started(), half.transaction_id, COMMIT, 5)
    # Its place is that of its commit.
    assert [row["value"] for row in world.rows("audit")] == [b"b", b"c", b"a"]


@pytest.mark.rocketmq("R2")
def test_r2_without_a_listener_nothing_is_sent(world: HalfWorld) -> None:
    log = world.process()
    producer = TransactionMQProducer("shop", {"bootstrap.servers": world.lend("mute", log), **POLL_NEVER})
    producer.start()
    before = world.entry()
    error = error_of(lambda: producer.send_message_in_transaction(message("a")))
    assert (error.code(), "TransactionListener is null" in error.str()) == (ErrorCode.LOCAL_STATE, True)
    assert world.entry() == before
    producer.shutdown()


@pytest.mark.rocketmq("R3")
def test_r3_a_delay_is_refused(world: HalfWorld) -> None:
    shop = world.shop()
    late = message("a")
    late.delay_time_level = 3
    with pytest.raises(ConfigurationError, match="delay_time_level is 3"):
        shop.producer.send_message_in_transaction(late)
    for name in ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"):
        with pytest.raises(ConfigurationError, match="delayed delivery"):
            message("a").put_user_property(name, "5")
    assert shop.listener.executed == []
    assert not world.halves()


@pytest.mark.rocketmq("R4")
@pytest.mark.parametrize("prefix", ["topics/", "_log/0"])
def test_r4_a_half_send_that_fails_runs_no_local_transaction(world: HalfWorld, prefix: str) -> None:
    down = False

    def fate(operation: Operation) -> Fault:
        return Fault.REFUSED if down and operation.name.startswith(prefix) else Fault.NONE

    shop = world.shop(objects=FaultyStore(world.objects, fate), send_message_timeout_ms=500)
    down = True
    # Of a message that its entry does not carry, a file is uploaded first.
    body = "a" * (20_000 if prefix == "topics/" else 1)
    with pytest.raises((StoreUnavailable, OutcomeUnknown)):
        shop.send(body, COMMIT)
    down = False
    assert shop.listener.executed == []
    assert world.visible() == []
    assert not world.halves()


@pytest.mark.rocketmq("R4")
def test_r4_an_unknown_topic_is_named_with_the_nearest_one(world: HalfWorld) -> None:
    shop = world.shop()
    error = error_of(lambda: shop.send("a", COMMIT, topic="order"))
    assert error.code() == ErrorCode.LOCAL_UNKNOWN_TOPIC
    assert "did you mean 'orders'" in error.str()
    assert shop.listener.executed == []


@pytest.mark.rocketmq("R5")
def test_r5_a_send_in_doubt_raises_and_is_asked_for(world: HalfWorld) -> None:
    losing = False
    stored: list[str] = []

    def fate(operation: Operation) -> Fault:
        is_entry = operation.verb == "put_if_absent" and operation.name.startswith("_log/0")
        if losing and is_entry:
            stored.append(operation.name)
            return Fault.LATE
        return Fault.REFUSED if losing and stored else Fault.NONE

    late: list[Any] = []
    shop = world.shop(objects=FaultyStore(world.objects, fate, later=late.append), send_message_timeout_ms=500)
    shop.send("warm up", COMMIT)
    shop.listener.executed.clear()
    engine = shop.producer._started()
    original = engine.prepare

    def prepare(*arguments: Any) -> None:
        nonlocal losing
        losing = True
        original(*arguments)

    engine.prepare = prepare  # type: ignore[method-assign, assignment]
    with pytest.raises(OutcomeUnknown):
        shop.send("a", COMMIT)
    losing = False
    for put in late:
        put()
    assert shop.listener.executed == []
    assert stored
    assert world.visible() == ["warm up"]
    other = world.shop()
    other.listener.checked[b"a"] = ROLLBACK
    world.kill(shop)
    world.pass_s(7)
    assert other.listener.asked == [b"a"]
    assert not world.halves()
    assert world.visible() == ["warm up"]


@pytest.mark.rocketmq("R6")
def test_r6_the_local_transaction_runs_once_on_this_thread_after_the_half_is_stored(world: HalfWorld) -> None:
    shop = world.shop()
    seen: list[Any] = []

    def local() -> LocalTransactionState:
        seen.append((threading.current_thread(), len(world.halves()), world.visible()))
        return COMMIT

    sent = shop.send("a", local, arg="order 17")
    assert seen == [(threading.current_thread(), 1, [])]
    assert shop.listener.executed == [(b"a", "order 17")]
    assert sent.send_status is SendStatus.SEND_OK
    assert (sent.local_transaction_state, sent.queue_offset) == (COMMIT, -1)
    assert sent.message_queue.topic == "orders"
    assert world.visible() == ["a"]


@pytest.mark.rocketmq("R7", "R12")
@pytest.mark.parametrize("answer", [ValueError("broken"), None, "COMMIT_MESSAGE", True])
def test_r7_a_listener_that_fails_or_gives_no_state_is_unknown(world: HalfWorld, answer: Any) -> None:
    shop = world.shop()
    assert shop.send("a", answer).local_transaction_state is UNKNOWN
    assert len(world.halves()) == 1
    assert world.visible() == []


def test_unknown_may_be_spelt_as_rocketmq_does() -> None:
    assert LocalTransactionState["UNKNOW"] is LocalTransactionState.UNKNOWN


@pytest.mark.rocketmq("R8")
def test_r8_a_settlement_that_does_not_arrive_is_made_up_for_by_a_check(world: HalfWorld) -> None:
    down = False

    def fate(operation: Operation) -> Fault:
        return Fault.REFUSED if down else Fault.NONE

    shop = world.shop(objects=FaultyStore(world.objects, fate), send_message_timeout_ms=500)

    def local() -> LocalTransactionState:
        nonlocal down
        down = True
        return COMMIT

    assert shop.send("a", local).local_transaction_state is COMMIT
    down = False
    assert world.visible() == []
    shop.listener.checked[b"a"] = COMMIT
    world.pass_s(7)
    assert shop.listener.asked == [b"a"]
    assert world.visible() == ["a"]


@pytest.mark.rocketmq("R9")
@pytest.mark.parametrize("inline_bytes", [0, 16_384])
def test_r9_a_commit_keeps_body_keys_tags_properties_and_born_time_and_copies_nothing(
    world: HalfWorld, inline_bytes: int
) -> None:
    world.reader.create_topic("sized", 2, settings={"append.inline.bytes": inline_bytes})
    shop = world.shop()
    born_ms = world.clock.wall_ms()
    given = message("2 apples", "sized", tags="fruit", keys=["o-17", "c-4"], properties={"region": "eu"})
    shop.listener.local[b"2 apples"] = lambda: world.clock.sleep(5) or COMMIT
    sent = shop.producer.send_message_in_transaction(given)
    (row,) = world.rows("sized")
    assert (row["value"], row["key"]) == (b"2 apples", b"o-17")
    headers = {header["key"]: header["value"].decode() for header in row["headers"]}
    assert headers == {"UNIQ_KEY": sent.message_id, "TAGS": "fruit", "KEYS": "o-17 c-4", "region": "eu"}
    assert int(row["timestamp"].timestamp() * 1000) == born_ms
    segments = [name for name in world.objects._shelf.folders if name.startswith("topics/sized")]
    stored = sum(len(world.objects._shelf.folders[folder]) for folder in segments)
    carrying = [name for name in world.objects.list_names("_log/") if b'"data":{"' in (world.objects.get(name) or b"")]
    assert (stored, len(carrying)) == ((0, 1) if inline_bytes else (1, 0))


@pytest.mark.rocketmq("R9")
def test_r9_the_sharding_key_chooses_the_partition(world: HalfWorld) -> None:
    shop = world.shop()
    queues = {
        shop.send(f"{number}", COMMIT, keys=f"k{number}", properties={"__SHARDINGKEY": "same"}).message_queue
        for number in range(6)
    }
    assert len(queues) == 1
    assert {row["key"] for row in world.rows()} == {b"same"}
    spread = {shop.send(f"n{number}", COMMIT).message_queue for number in range(6)}
    assert len(spread) == 2


@pytest.mark.rocketmq("R10", "#1517")
def test_r10_what_is_settled_is_delivered_once_and_asked_for_by_none_after_any_restart(world: HalfWorld) -> None:
    """Twenty commits and twenty rollbacks right before a kill: there, all are asked again and delivered twice."""
    shop = world.shop()
    for number in range(20):
        shop.send(f"c{number}", COMMIT)
        shop.send(f"r{number}", ROLLBACK)
    world.kill(shop)
    later = world.shop()
    for number in range(20):
        later.listener.checked[b"c%d" % number] = later.listener.checked[b"r%d" % number] = COMMIT
    world.pass_s(80)
    assert later.listener.asked == []
    assert world.visible() == sorted(f"c{number}" for number in range(20))


@pytest.mark.rocketmq("R10", "R8")
def test_r10_a_commit_whose_answer_was_lost_is_delivered_once(world: HalfWorld) -> None:
    losing = False

    def fate(operation: Operation) -> Fault:
        is_entry = operation.verb == "put_if_absent" and operation.name.startswith("_log/0")
        return Fault.RESPONSE_LOST if losing and is_entry else Fault.NONE

    shop = world.shop(objects=FaultyStore(world.objects, fate))

    def local() -> LocalTransactionState:
        nonlocal losing
        losing = True
        return COMMIT

    shop.listener.checked[b"a"] = COMMIT
    shop.send("a", local)
    losing = False
    world.pass_s(40)
    assert shop.listener.asked == []
    assert world.visible() == ["a"]


@pytest.mark.rocketmq("R11")
def test_r11_a_message_that_was_rolled_back_is_never_seen(world: HalfWorld) -> None:
    shop = world.shop()
    shop.listener.checked[b"a"] = COMMIT
    sent = shop.send("a", ROLLBACK)
    world.pass_s(70)
    assert outcome_of(world, sent.transaction_id) is HalfOutcome.ROLLED_BACK
    assert world.visible() == []
    assert shop.listener.asked == []


@pytest.mark.rocketmq("R13")
def test_r13_a_settlement_under_another_group_or_of_an_unknown_message_is_refused(world: HalfWorld) -> None:
    shop, other = world.shop(), world.shop("other")
    sent = shop.send("a", UNKNOWN)
    engine = other.producer._started()
    for group, transaction_id in (("other", sent.transaction_id), ("shop", "made up")):
        with pytest.raises(KafkaException) as refused:
            engine.end(group, transaction_id, committed=True)
        assert refused.value.error.code() == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert world.visible() == []
    assert len(world.halves()) == 1


@pytest.mark.rocketmq("R14")
@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
def test_r14_a_late_settlement_of_what_is_undecided_is_accepted(world: HalfWorld, state: LocalTransactionState) -> None:
    shop = world.shop()

    def local() -> LocalTransactionState:
        world.pass_s(25)
        return state

    shop.send("a", local, properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "10"})
    assert shop.listener.asked == [b"a"]
    assert world.visible() == (["a"] if state is COMMIT else [])
    assert not world.halves()


# --- checks ----------------------------------------------------------------------------------------------------------


@pytest.mark.rocketmq("R15", "R17", "R19")
def test_r15_the_first_check_is_after_the_immunity_and_the_next_ones_after_each_interval(world: HalfWorld) -> None:
    shop = world.shop()
    sent = shop.send("a", UNKNOWN)
    asked_at: list[float] = []
    started_s = world.clock.now_s
    shop.listener.checked[b"a"] = lambda: asked_at.append(world.clock.now_s - started_s) or UNKNOWN
    world.pass_s(70)
    assert asked_at == [6, 36, 66]
    assert [shown.check_times for shown in shop.listener.shown] == [1, 2, 3]
    assert {shown.transaction_id for shown in shop.listener.shown} == {sent.transaction_id}
    assert world.halves()[sent.transaction_id].checks == 3


@pytest.mark.rocketmq("R15", "#544")
@pytest.mark.parametrize(("immunity", "first"), [("20", 20), ("0", 0), ("-1", 6)])
def test_r15_a_message_has_its_own_immunity(world: HalfWorld, immunity: str, first: int) -> None:
    shop = world.shop()
    shop.send("a", UNKNOWN, properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": immunity})
    if first:
        world.pass_s(first - 1)
        assert shop.listener.asked == []
        world.clock.sleep(1)
    world.rounds()
    assert shop.listener.asked == [b"a"]


@pytest.mark.parametrize("immunity", ["soon", "-2", "1.5", "1_0", " 5", "٣"])
def test_an_immunity_that_is_no_number_is_refused(world: HalfWorld, immunity: str) -> None:
    shop = world.shop()
    with pytest.raises(ConfigurationError, match="CHECK_IMMUNITY_TIME_IN_SECONDS"):
        shop.send("a", UNKNOWN, properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": immunity})
    assert not world.halves()


@pytest.mark.rocketmq("R15", "R18")
def test_r15_a_long_immunity_uses_up_no_checks(world: HalfWorld) -> None:
    """There an immunity of 20 s with three checks at intervals of 2 s is discarded without a question."""
    shop = world.shop(transaction_check_max=3, transaction_check_interval_ms=2_000)
    shop.listener.checked[b"a"] = COMMIT
    shop.send("a", UNKNOWN, properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "20"})
    world.pass_s(21)
    assert [shown.check_times for shown in shop.listener.shown] == [1]
    assert world.visible() == ["a"]


@pytest.mark.rocketmq("R16")
def test_r16_another_process_of_the_group_is_asked_once_it_has_started(world: HalfWorld) -> None:
    """It has sent nothing: start() is enough."""
    dead = world.shop()
    sent = dead.send("a", UNKNOWN, tags="t", keys="k", properties={"p": "q"})
    born_ms = world.clock.wall_ms()
    world.kill(dead)
    world.clock.sleep(100)
    other, stranger = world.shop(), world.shop("other group")
    other.listener.checked[b"a"] = COMMIT
    world.pass_s(7)
    assert (other.listener.asked, stranger.listener.asked) == ([b"a"], [])
    (shown,) = other.listener.shown
    assert (shown.message_id, shown.transaction_id) == (sent.message_id, sent.transaction_id)
    assert (shown.topic, shown.tags, shown.keys, shown.properties) == ("orders", "t", "k", {"p": "q"})
    assert shown.born_timestamp == born_ms
    assert world.visible() == ["a"]


@pytest.mark.rocketmq("R16")
def test_r16_of_several_processes_one_is_asked(world: HalfWorld) -> None:
    shops = [world.shop() for _ in range(3)]
    for number in range(4):
        shops[number % 3].send(f"m{number}", UNKNOWN)
    world.pass_s(100)
    asked = [body for shop in shops for body in shop.listener.asked]
    assert sorted(asked) == sorted(4 * [b"m0", b"m1", b"m2", b"m3"])
    assert {half.checks for half in world.halves().values()} == {4}


@pytest.mark.rocketmq("R16", "R18")
def test_r16_while_none_is_alive_no_check_is_used_up(world: HalfWorld) -> None:
    shop = world.shop(transaction_check_max=3)
    sent = shop.send("a", UNKNOWN)
    world.kill(shop)
    mute = world.shop()
    mute.producer._listener = None
    world.pass_s(600)
    assert world.halves()[sent.transaction_id].checks == 0
    other = world.shop(transaction_check_max=3)
    other.listener.checked[b"a"] = COMMIT
    world.pass_s(7)
    assert other.listener.asked == [b"a"]
    assert world.visible() == ["a"]


@pytest.mark.rocketmq("R17")
def test_r17_two_claims_of_one_check_ask_once(world: HalfWorld) -> None:
    """Both processes have seen the half message as due; the one that loses the claim asks nothing."""
    one, other = world.shop(), world.shop()
    one.send("a", UNKNOWN)
    world.rounds()
    world.clock.sleep(6)
    engine = other.producer._started()
    real = engine.messages_of

    def meanwhile(half: Any) -> Any:
        assert one.checks.round() == 1
        return real(half)

    engine.messages_of = meanwhile  # type: ignore[method-assign]
    assert other.checks.round() == 0
    assert (one.listener.asked, other.listener.asked) == ([b"a"], [])


@pytest.mark.rocketmq("R18")
def test_r18_after_the_last_check_it_is_discarded_kept_and_never_delivered(world: HalfWorld) -> None:
    shop = world.shop(transaction_check_max=3, transaction_check_interval_ms=10_000)
    sent = shop.send("a", UNKNOWN)
    world.pass_s(26)
    assert (shop.listener.asked, world.discarded()) == (3 * [b"a"], 0)
    world.pass_s(100)
    assert (shop.listener.asked, world.discarded()) == (3 * [b"a"], 1)
    assert world.halves()[sent.transaction_id].segments
    assert world.visible() == []


@pytest.mark.rocketmq("R18")
def test_r18_fifteen_checks_are_the_default(world: HalfWorld) -> None:
    shop = world.shop()
    shop.send("a", UNKNOWN)
    world.pass_s(6 + 15 * 30 + 5)
    assert len(shop.listener.asked) == 15
    assert world.discarded() == 1


@pytest.mark.rocketmq("R19")
def test_r19_a_checker_that_raises_leaves_it_pending(world: HalfWorld, caplog: pytest.LogCaptureFixture) -> None:
    shop = world.shop()
    shop.listener.checked[b"a"] = [ValueError("database is down"), None, "COMMIT", UNKNOWN, COMMIT]
    shop.send("a", UNKNOWN)
    shop.send("b", UNKNOWN)
    shop.listener.checked[b"b"] = COMMIT
    with caplog.at_level(logging.ERROR, "sparktxn"):
        world.pass_s(100)
    assert "database is down" in caplog.text
    assert world.visible() == ["b"]
    world.pass_s(60)
    assert world.visible() == ["a", "b"]


@pytest.mark.rocketmq("R21")
def test_r21_a_settlement_is_in_the_log_when_the_call_returns(world: HalfWorld) -> None:
    shop = world.shop()
    for number in range(3):
        shop.send(f"m{number}", COMMIT)
        assert f"m{number}" in world.visible()
        assert not world.halves()


@pytest.mark.rocketmq("R22", "R16")
def test_r22_after_a_restart_checks_go_on_where_they_stood(world: HalfWorld) -> None:
    shop = world.shop()
    sent = [shop.send(f"m{number}", UNKNOWN).transaction_id for number in range(3)]
    world.pass_s(40)
    assert {half.checks for half in world.halves().values()} == {2}
    world.kill(shop)
    again = world.shop()
    again.listener.checked = {b"m0": COMMIT, b"m1": ROLLBACK}
    world.pass_s(31)
    assert sorted(again.listener.asked) == [b"m0", b"m1", b"m2"]
    assert {shown.check_times for shown in again.listener.shown} == {3}
    assert list(world.halves()) == [sent[2]]
    assert world.visible() == ["m0"]


def test_a_wrong_clock_makes_a_check_late_and_never_early(world: HalfWorld) -> None:
    """The other process's clock is five minutes ahead: it waits by its own monotonic clock all the same."""
    from sparktxn.testing.clocks import ManualClock

    shop = world.shop()
    shop.send("a", UNKNOWN)
    world.kill(shop)
    ahead = ManualClock(world.clock.now_s + 300)
    other = Process.__new__(Process)
    other.log = world.process(clock=ahead)
    other.listener = Scripted()
    other.producer = TransactionMQProducer("shop", {"bootstrap.servers": world.lend("ahead", other.log), **POLL_NEVER})
    other.producer.set_transaction_listener(other.listener)
    other.producer.start()
    for _ in range(6):
        other.checks.round()
        assert other.listener.asked == []
        ahead.sleep(1)
    other.checks.round()
    assert other.listener.asked == [b"a"]
    other.close()


# --- issues ----------------------------------------------------------------------------------------------------------


@pytest.mark.rocketmq("#1517", "R10")
def test_1517_only_what_is_unknown_is_asked_for(world: HalfWorld) -> None:
    shop = world.shop()
    states = {0: COMMIT, 1: ROLLBACK, 2: UNKNOWN}
    for number in range(30):
        shop.send(f"m{number}", states[number % 3])
    world.pass_s(7)
    assert sorted(shop.listener.asked) == sorted(b"m%d" % number for number in range(2, 30, 3))


def late(world: HalfWorld, state: LocalTransactionState, seconds: int = 8) -> Any:
    """A local transaction that takes so long that a check comes first."""

    def local() -> LocalTransactionState:
        world.pass_s(seconds)
        return state

    return local


@pytest.mark.rocketmq("#2694")
@pytest.mark.parametrize(
    ("checked", "local", "seen"), [(ROLLBACK, COMMIT, []), (COMMIT, ROLLBACK, ["a"])], ids=["rolled back", "committed"]
)
def test_2694_what_a_check_has_settled_the_producer_does_not_change(
    world: HalfWorld, checked: LocalTransactionState, local: LocalTransactionState, seen: list[str]
) -> None:
    shop = world.shop()
    shop.listener.checked[b"a"] = checked
    word = "rolled back" if checked is ROLLBACK else "committed"
    with pytest.raises(KafkaException, match=word) as refused:
        shop.send("a", late(world, local))
    assert refused.value.error.code() == ErrorCode.INVALID_TXN_STATE
    assert "by: check" in str(refused.value)
    assert world.visible() == seen
    world.pass_s(60)
    assert shop.listener.asked == [b"a"]
    assert world.visible() == seen


@pytest.mark.rocketmq("#2694", "R10")
@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
def test_2694_both_sides_that_agree_settle_once(world: HalfWorld, state: LocalTransactionState) -> None:
    shop = world.shop()
    shop.listener.checked[b"a"] = state
    assert shop.send("a", late(world, state)).local_transaction_state is state
    assert world.visible() == (["a"] if state is COMMIT else [])


@pytest.mark.rocketmq("#8158-1")
def test_8158_1_a_second_settlement_by_the_producer_changes_nothing(world: HalfWorld) -> None:
    shop = world.shop()
    engine = shop.producer._started()

    def end(transaction_id: str, committed: bool) -> None:
        engine.end("shop", transaction_id, committed=committed)

    committed = shop.send("cc", COMMIT).transaction_id
    end(committed, True)
    with pytest.raises(KafkaException, match="committed"):
        end(committed, False)
    rolled_back = shop.send("rc", ROLLBACK).transaction_id
    end(rolled_back, False)
    with pytest.raises(KafkaException, match="rolled back"):
        end(rolled_back, True)
    assert world.visible() == ["cc"]


@pytest.mark.rocketmq("#8158-2", "R10")
def test_8158_2_committed_while_its_check_runs_it_is_delivered_once(world: HalfWorld) -> None:
    shop, other = world.shop(), world.shop()
    sent = shop.send("a", UNKNOWN)

    def meanwhile() -> LocalTransactionState:
        engine = shop.producer._started()
        engine.end("shop", sent.transaction_id, committed=True)
        return COMMIT

    other.listener.checked[b"a"] = meanwhile
    shop.producer._listener = None
    world.pass_s(70)
    assert other.listener.asked == [b"a"]
    assert world.visible() == ["a"]


@pytest.mark.rocketmq("#8158-2")
def test_8158_2_a_check_that_comes_second_does_not_change_the_outcome(
    world: HalfWorld, caplog: pytest.LogCaptureFixture
) -> None:
    shop, other = world.shop(), world.shop()
    sent = shop.send("a", UNKNOWN)

    def meanwhile() -> LocalTransactionState:
        engine = shop.producer._started()
        engine.end("shop", sent.transaction_id, committed=True)
        return ROLLBACK

    other.listener.checked[b"a"] = meanwhile
    shop.producer._listener = None
    world.pass_s(7)
    assert world.visible() == ["a"]
    assert "was checked and not settled" in caplog.text
    assert "committed" in caplog.text


@pytest.mark.rocketmq("#8158-3")
def test_8158_3_committed_after_a_check_it_is_not_asked_again(world: HalfWorld) -> None:
    shop = world.shop()
    shop.send("a", late(world, COMMIT, 40))
    assert len(shop.listener.asked) == 2
    world.pass_s(600)
    assert len(shop.listener.asked) == 2
    assert world.visible() == ["a"]
    assert world.discarded() == 0


@pytest.mark.rocketmq("#8158-4", "R18")
@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
def test_8158_4_after_the_discard_the_producers_settlement_is_refused(
    world: HalfWorld, state: LocalTransactionState
) -> None:
    shop = world.shop(transaction_check_max=1, transaction_check_interval_ms=1_000)
    with pytest.raises(KafkaException, match="was discarded after 1 check:") as refused:
        shop.send("a", late(world, state, 20))
    assert refused.value.error.code() == ErrorCode.INVALID_TXN_STATE
    assert world.discarded() == 1
    assert world.visible() == []


@pytest.mark.rocketmq("IT", "R1", "R11", "R12", "R18")
def test_the_matrix_of_transactionalmsgit(world: HalfWorld) -> None:
    """120 messages: committed or rolled back at once, or by a check, or never known."""
    shop = world.shop(transaction_check_max=3, transaction_check_interval_ms=5_000)
    expected = []
    for number in range(120):
        body = f"m{number:03}"
        local = {0: COMMIT, 1: ROLLBACK}.get(number % 5, UNKNOWN)
        checked = {2: [UNKNOWN, COMMIT], 3: [UNKNOWN, ROLLBACK]}.get(number % 5, UNKNOWN)
        shop.listener.checked[body.encode()] = checked
        shop.send(body, local)
        if number % 5 in (0, 2):
            expected.append(body)
    assert world.visible() == [body for body in expected if int(body[1:]) % 5 == 0]
    world.pass_s(60)
    assert world.visible() == expected
    assert world.discarded() == len(world.halves()) == 24
    assert len(shop.listener.asked) == 24 * 2 + 24 * 2 + 24 * 3


# --- the handle, the topic, and what else is in the store ------------------------------------------------------------


def test_a_plain_send_is_visible_at_once(world: HalfWorld) -> None:
    shop = world.shop()
    before = world.entry()
    sent = shop.producer.send(message("plain", tags="t"))
    assert sent.message_queue.topic == "orders"
    assert world.visible() == ["plain"]
    assert world.entry() == before + 1


def test_a_topic_may_refuse_half_messages(world: HalfWorld) -> None:
    world.reader.create_topic("plain", settings={"message.type": "normal"})
    shop = world.shop()
    error = error_of(lambda: shop.send("a", COMMIT, topic="plain"))
    assert "message.type=normal" in error.str()
    assert shop.listener.executed == []
    shop.producer.send(message("b", "plain"))
    assert world.visible("plain") == ["b"]


def test_an_administrator_rejects_half_messages_of_a_topic_or_of_the_store(world: HalfWorld) -> None:
    shop = world.shop()
    before = shop.send("before", UNKNOWN)
    for topic, whose in (("orders", "topic 'orders'"), (None, "the store")):
        world.reject("true", topic=topic)
        error = error_of(lambda: shop.send("a", COMMIT))
        assert error.code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert "sending transaction message to topic 'orders' is forbidden" in error.str()
        assert f"setting 'reject.transaction.message' of {whose} is true" in error.str()
        assert [body for body, _ in shop.listener.executed] == [b"before"]
        shop.producer.send(message("plain " + whose))
        world.reject(None, topic=topic)
    shop.send("b", COMMIT)
    world.reject("true")
    world.reject("false", topic="mail")
    shop.send("c", COMMIT, topic="mail")
    assert world.visible("mail") == ["c"]
    shop.listener.checked[b"before"] = COMMIT
    world.pass_s(10)
    assert before.transaction_id not in world.halves()
    assert sorted(world.visible()) == ["b", "before", "plain the store", "plain topic 'orders'"]


def test_the_entry_decides_whether_half_messages_are_rejected(
    world: HalfWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = world.shop()
    world.reject("true", topic="orders")
    monkeypatch.setattr(engine, "half_rejection", lambda *_: None)
    error = error_of(lambda: shop.send("a", COMMIT))
    assert error.code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (shop.listener.executed, world.halves()) == ([], {})


def test_a_refusal_that_a_producer_knows_is_read_anew(world: HalfWorld) -> None:
    world.reject("true")
    shop = world.shop()
    world.reject("false")
    shop.send("a", COMMIT)
    assert world.visible() == ["a"]


def test_the_setting_is_none_of_a_producer(world: HalfWorld) -> None:
    with pytest.raises(KafkaException, match=r"reject\.transaction\.message"):
        world.shop(reject_transaction_message=True)


def test_a_body_that_is_too_large_is_refused(world: HalfWorld) -> None:
    shop = world.shop(max_message_size=10)
    error = error_of(lambda: shop.send("x" * 11, COMMIT))
    assert error.code() == ErrorCode.MESSAGE_TOO_LARGE
    world.reader.create_topic("small", settings={"max.message.bytes": 100})
    error = error_of(lambda: world.shop().send("x" * 100, COMMIT, topic="small"))
    assert error.code() == ErrorCode.MESSAGE_TOO_LARGE


def test_of_a_deleted_topic_a_commit_is_refused_and_a_rollback_accepted(world: HalfWorld) -> None:
    shop = world.shop()
    one, other = shop.send("a", UNKNOWN, topic="mail"), shop.send("b", UNKNOWN, topic="mail")
    with world.admin() as admin:
        admin.delete_topics(["mail"])["mail"].result(5)
    engine = shop.producer._started()
    with pytest.raises(KafkaException, match="roll it back") as refused:
        engine.end("shop", one.transaction_id, committed=True)
    assert refused.value.error.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    shop.listener.checked = {b"a": ROLLBACK, b"b": COMMIT}
    world.pass_s(7)
    # The checker sees the messages though their topic is gone.
    assert sorted(shop.listener.asked) == [b"a", b"b"]
    assert list(world.halves()) == [other.transaction_id]


def test_a_segment_that_is_lost_uses_up_no_check(world: HalfWorld, caplog: pytest.LogCaptureFixture) -> None:
    world.reader.create_topic("files", settings={"append.inline.bytes": 0})
    shop = world.shop()
    sent = shop.send("a", UNKNOWN, topic="files")
    folder = next(name for name in world.objects._shelf.folders if name.startswith("topics/files"))
    world.objects._shelf.folders[folder].clear()
    world.pass_s(40)
    assert "cannot be checked" in caplog.text
    assert world.halves()[sent.transaction_id].checks == 0
    assert shop.listener.asked == []


def test_a_producer_that_is_not_started_says_so(world: HalfWorld) -> None:
    producer = TransactionMQProducer("shop", world.lend("idle", world.process()))
    producer.set_transaction_listener(Scripted())
    for call in (
        lambda: producer.send_message_in_transaction(message("a")),
        lambda: producer.send(message("a")),
    ):
        assert error_of(call).code() == ErrorCode.LOCAL_STATE
    producer.shutdown()
    producer.start()
    producer.start()
    producer.shutdown()
    producer.shutdown()
    assert error_of(lambda: producer.send(message("a"))).code() == ErrorCode.LOCAL_STATE


def test_a_half_message_takes_part_in_reads_by_commit_order_and_offsets(world: HalfWorld) -> None:
    """Kafka's transactions and half messages in one partition: each record once, in the order of commits."""
    from sparktxn.producer import Producer

    shop = world.shop()
    with Producer({"bootstrap.servers": shop.uri, "transactional.id": "kafka"}) as kafka:
        kafka.init_transactions()
        kafka.begin_transaction()
        kafka.produce("audit", b"k1")
        kafka.flush(5)
        shop.send("h1", COMMIT, topic="audit")
        half = shop.send("h2", UNKNOWN, topic="audit")
        assert world.visible("audit") == []
        kafka.commit_transaction()
        assert [row["value"] for row in world.rows("audit")] == [b"k1", b"h1"]
        shop.producer._settle(shop.producer._started(), half.transaction_id, COMMIT, 5)
        kafka.begin_transaction()
        kafka.produce("audit", b"k2")
        kafka.abort_transaction()
        shop.send("h3", COMMIT, topic="audit")
    assert [row["value"] for row in world.rows("audit")] == [b"k1", b"h1", b"h2", b"h3"]


# --- on the machine's clock ------------------------------------------------------------------------------------------


class Quick(TransactionListener):
    """Leaves everything to the check, which commits."""

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, str]] = []

    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
        return UNKNOWN

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        self.asked.append((message.body, threading.current_thread().name))
        return COMMIT


@pytest.mark.rocketmq("R16", "V7", "V12")
def test_the_thread_of_a_started_producer_asks_and_ends_with_it() -> None:
    world = PlainWorld()
    settings = {"bootstrap.servers": world.uri, "transaction.timeout.ms": 50, "transaction.check.poll.ms": 10}
    listener = Quick()
    producer = TransactionMQProducer("shop", settings)
    producer.set_transaction_listener(listener)
    with producer:
        producer.send_message_in_transaction(Message("t", b"a"))
        deadline_s = time.monotonic() + 60
        while not world.texts() and time.monotonic() < deadline_s:
            time.sleep(0.01)
    assert world.texts() == ["a"]
    assert [(body, name.startswith("sparktxn-checks")) for body, name in listener.asked] == [(b"a", True)]
    consumer = world.consumer("t")
    assert [found.value() for found in messages(consumer)] == [b"a"]
    world.close()


def test_a_producer_that_is_dropped_gives_its_thread_and_log_back() -> None:
    world = PlainWorld()
    producer = TransactionMQProducer("shop", {"bootstrap.servers": world.uri, "transaction.check.poll.ms": 10})
    producer.set_transaction_listener(Quick())
    producer.start()
    checks = producer._checks
    assert checks is not None
    bell = checks._bell
    del producer, checks
    gc.collect()
    assert bell.closed.wait(60)
    world.close()


def test_a_program_with_kafka_transactions_over_three_topics_offsets_and_half_messages() -> None:
    """Each order is copied to three topics with its offset in one Kafka transaction; a half message asks for payment.

    The Kafka transaction is the half message's local transaction: both take effect, or neither.
    """
    world = PlainWorld({"orders": 2, "stock": 1, "mail": 1, "audit": 2, "payments": 1})
    world.produce(*(f"o{number}" for number in range(6)), topic="orders")
    kafka = world.transactional("copies")
    consumer = world.consumer("orders", group_id="copies", enable_auto_commit=False)

    class Copies(TransactionListener):
        """Copies an order in a Kafka transaction; every third one fails."""

        def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
            kafka.begin_transaction()
            for topic in ("stock", "mail", "audit"):
                kafka.produce(topic, arg.value())
            offset = TopicPartition("orders", arg.partition(), arg.offset() + 1)
            kafka.send_offsets_to_transaction([offset], consumer.consumer_group_metadata())
            if arg.value() in (b"o2", b"o5"):
                kafka.abort_transaction()
                return ROLLBACK
            kafka.commit_transaction()
            return COMMIT

        def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
            return UNKNOWN

    with TransactionMQProducer("payers", world.uri) as payers:
        payers.set_transaction_listener(Copies())
        for found in messages(consumer):
            value = found.value()
            assert value is not None
            payers.send_message_in_transaction(Message("payments", b"pay " + value), found)
    expected = ["o0", "o1", "o3", "o4"]
    for topic in ("stock", "mail", "audit"):
        assert sorted(world.texts(topic)) == expected
    assert sorted(world.texts("payments")) == [f"pay {value}" for value in expected]
    assert world.committed("copies", "orders") == 5
    world.close()


def test_a_message_without_a_key_for_a_compacted_topic_is_refused(world: HalfWorld) -> None:
    world.reader.create_topic("prices", settings={"cleanup.policy": "compact"})
    shop = world.shop()
    before = set(world.objects.list_names("topics/"))
    error = error_of(lambda: shop.send("1", COMMIT, topic="prices"))
    assert error.code() == ErrorCode.INVALID_RECORD
    assert shop.listener.executed == []
    error = error_of(lambda: shop.producer.send(message("1", "prices")))
    assert error.code() == ErrorCode.INVALID_RECORD
    assert set(world.objects.list_names("topics/")) == before
    assert world.halves() == {}
    shop.send("2", COMMIT, topic="prices", keys="article")
    assert world.visible("prices") == ["2"]
