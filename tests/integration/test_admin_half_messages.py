"""An administrator's view of half messages, and what he decides about discarded ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparktxn.admin import HalfMessageCounts, HalfMessageId, HalfMessageState
from sparktxn.errors import ConfigurationError, ErrorCode, KafkaException
from tests.halfworld import COMMIT, ROLLBACK, UNKNOWN, HalfWorld


@pytest.fixture
def world() -> Iterator[HalfWorld]:
    made = HalfWorld()
    yield made
    made.close()


@pytest.mark.rocketmq("R20")
def test_r20_half_messages_are_counted_by_topic(world: HalfWorld) -> None:
    shop = world.shop(transaction_check_max=1, transaction_check_interval_ms=1_000)
    with world.admin() as admin:

        def counts() -> dict[str, HalfMessageCounts]:
            return admin.count_half_messages().result()

        assert counts() == {}
        shop.send("a", UNKNOWN)
        shop.send("b", UNKNOWN, topic="audit")
        assert counts() == {"audit": HalfMessageCounts(1), "orders": HalfMessageCounts(1)}
        shop.send("c", COMMIT)
        shop.send("d", ROLLBACK)
        assert counts()["orders"] == HalfMessageCounts(1)
        shop.listener.checked[b"b"] = COMMIT
        world.pass_s(20)
        assert counts() == {"orders": HalfMessageCounts(0, 1)}


@pytest.mark.rocketmq("R20", "R18")
def test_half_messages_are_listed_by_group_and_state(world: HalfWorld) -> None:
    shop, other = world.shop(transaction_check_max=1, transaction_check_interval_ms=1_000), world.shop("other")
    first = shop.send("a", UNKNOWN).transaction_id
    sent_ms = world.clock.wall_ms()
    world.pass_s(20)
    second = other.send("b", UNKNOWN, topic="audit").transaction_id
    with world.admin() as admin:
        found = admin.list_half_messages().result()
        assert [listing.id for listing in found] == [HalfMessageId("shop", first), HalfMessageId("other", second)]
        assert [listing.state for listing in found] == [HalfMessageState.DISCARDED, HalfMessageState.PENDING]
        assert [listing.messages for listing in found] == [{"orders": 1}, {"audit": 1}]
        assert (found[0].checks, found[0].prepared_timestamp_ms) == (1, sent_ms)
        assert admin.list_half_messages(group_ids=["other"]).result() == found[1:]
        assert admin.list_half_messages(states=["Discarded"]).result() == found[:1]
        assert admin.list_half_messages(states=[]).result() == []
        with pytest.raises(ConfigurationError, match="Pending"):
            admin.list_half_messages(states=["Open"])


@pytest.mark.rocketmq("R18", "#8158-4")
def test_a_discarded_half_message_is_resumed_and_asked_for_again(world: HalfWorld) -> None:
    shop = world.shop(transaction_check_max=2, transaction_check_interval_ms=1_000)
    sent = HalfMessageId("shop", shop.send("a", UNKNOWN).transaction_id)
    world.pass_s(20)
    assert world.discarded() == 1
    shop.listener.checked[b"a"] = [UNKNOWN, COMMIT]
    with world.admin() as admin:
        admin.resume_half_messages([sent])[sent].result()
    assert world.discarded() == 0
    world.pass_s(3)
    assert [shown.check_times for shown in shop.listener.shown] == [1, 2, 1, 2]
    assert world.visible() == ["a"]


@pytest.mark.rocketmq("R1", "R11", "R18")
def test_rocketmqs_own_topics_show_what_the_log_says(world: HalfWorld) -> None:
    shop = world.shop(transaction_check_max=1, transaction_check_interval_ms=1_000)
    kept = shop.send("a", UNKNOWN).transaction_id
    settled = {
        shop.send("b", COMMIT).transaction_id: "Committed",
        shop.send("c", ROLLBACK).transaction_id: "RolledBack",
    }
    world.pass_s(20)
    halves = world.rows("RMQ_SYS_TRANS_HALF_TOPIC")
    states = [(row["state"], row["checks"]) for row in halves if row["transaction_id"] == kept]
    assert states == [("Pending", 0), ("Pending", 1), ("Discarded", 1)]
    assert {row["topics"][0] for row in halves if row["state"]} == {"orders"}
    ended = [row["state"] for row in halves if row["transaction_id"] in settled]
    assert ended == ["Pending", None, "Pending", None]
    shown = world.rows("RMQ_SYS_TRANS_OP_HALF_TOPIC")
    assert {row["transaction_id"]: row["outcome"] for row in shown} == settled
    assert {row["source"] for row in shown} == {"client"}
    discarded = world.rows("TRANS_CHECK_MAX_TIME_TOPIC")
    assert [(row["transaction_id"], row["checks"], row["message_count"]) for row in discarded] == [(kept, 1, 1)]
    named = HalfMessageId("shop", kept)
    with world.admin() as admin:
        admin.resume_half_messages([named])[named].result()
    assert [row["checks"] for row in world.rows("TRANS_CHECK_MAX_TIME_TOPIC")] == [1, None]
    for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"):
        with pytest.raises(KafkaException, match="internal"):
            shop.send("d", COMMIT, topic=topic)


@pytest.mark.rocketmq("R18")
def test_discarding_and_deleting(world: HalfWorld) -> None:
    shop = world.shop()
    sent = HalfMessageId("shop", shop.send("a", UNKNOWN).transaction_id)
    settled = HalfMessageId("shop", shop.send("b", COMMIT).transaction_id)
    unknown = HalfMessageId("shop", "none")
    with world.admin() as admin:

        def code_of(call: str, named: HalfMessageId) -> int:
            with pytest.raises(KafkaException) as refused:
                getattr(admin, call)([named])[named].result()
            return refused.value.error.code()

        for call in ("discard_half_messages", "resume_half_messages", "delete_half_messages"):
            assert code_of(call, settled) == ErrorCode.INVALID_TXN_STATE
            assert code_of(call, unknown) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert code_of("delete_half_messages", sent) == ErrorCode.INVALID_TXN_STATE
        for _ in range(2):
            admin.discard_half_messages([sent])[sent].result()
        world.pass_s(60)
        assert shop.listener.asked == []
        for _ in range(2):
            admin.delete_half_messages([sent])[sent].result()
        assert code_of("resume_half_messages", sent) == ErrorCode.INVALID_TXN_STATE
    assert not world.halves()
    assert world.visible() == ["b"]
