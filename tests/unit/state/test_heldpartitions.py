"""Offsets are committed by the member that holds the partition, and by no other (KIP-1251)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktxn._engine.format.commands import Command, OffsetCommit, OffsetToCommit
from sparktxn.errors import CommandRefused, ErrorCode
from tests.groupcommands import GroupLog, Place
from tests.producercommands import ProducerCommands

HERE, THERE = (1, 0), (1, 1)


@pytest.fixture
def log() -> GroupLog:
    """Topic `a` of two partitions."""
    log = GroupLog()
    log.create_topic("a", 2)
    return log


def inside(log: GroupLog, producer: ProducerCommands, member_id: str, epoch: int, place: Place) -> Command:
    command = producer.offset(1, log.group_id, place, 7)
    return replace(command, member_id=member_id, generation_id=epoch)


@pytest.mark.kafka("G19", "K106")
@pytest.mark.parametrize("classic", [True, False])
def test_a_partition_that_moved_is_refused_and_one_that_stayed_is_not(log: GroupLog, classic: bool) -> None:
    log.join("m1", "a", classic=classic)
    old = log.entry
    log.join("m2", "a")
    log.submit(log.committing("m1", old, HERE, THERE), log.releasing("m1"))
    new = log.member("m1").member_epoch
    assert new > old
    code = ErrorCode.ILLEGAL_GENERATION if classic else ErrorCode.STALE_MEMBER_EPOCH
    for epoch in (old, new):
        assert log.refusal(log.committing("m1", epoch, THERE)) == code
        assert log.refusal(log.committing("m1", epoch, HERE, THERE)) == code
        log.submit(log.committing("m1", epoch, HERE))
    log.submit(log.committing("m2", new, THERE))
    assert log.refusal(log.committing("m2", old, THERE)) == ErrorCode.STALE_MEMBER_EPOCH
    assert log.refusal(log.committing("m1", new + 1, HERE)) == code
    assert log.refusal(log.committing("m1", -1, HERE)) == code


@pytest.mark.kafka("G19")
def test_a_refusal_names_the_member_and_the_partition(log: GroupLog) -> None:
    log.join("m1", "a")
    known = log.entry
    with pytest.raises(CommandRefused, match=rf"'m1' of group 'group' has epoch {known}, and .* names {known + 1}"):
        log.submit(log.committing("m1", known + 1, HERE))
    log.join("m2", "a")
    log.release("m1")
    match = rf"'m1' of group 'group' does not hold partition 1 of topic id 1 in epoch {known}"
    with pytest.raises(CommandRefused, match=match):
        log.submit(log.committing("m1", known, THERE))


@pytest.mark.kafka("G19")
def test_a_member_commits_what_it_is_to_give_back(log: GroupLog) -> None:
    log.join("m1", "a")
    old = log.entry
    log.join("m2", "a")
    log.submit(log.committing("m1", old, THERE, offset=4))
    assert log.records["offset", "group", *THERE].offset == 4
    assert log.refusal(log.committing("m2", log.entry - 1, THERE)) == ErrorCode.STALE_MEMBER_EPOCH


@pytest.mark.kafka("G20", "K106")
@pytest.mark.parametrize("classic", [True, False])
def test_in_a_transaction_it_is_an_illegal_generation(log: GroupLog, classic: bool) -> None:
    log.join("m1", "a", classic=classic)
    old = log.entry
    producer = log.initialise("id")
    log.join("m2", "a")
    log.release("m1")
    new = log.member("m1").member_epoch
    for epoch in (old, new):
        assert log.refusal(inside(log, producer, "m1", epoch, THERE)) == ErrorCode.ILLEGAL_GENERATION
    assert log.refusal(inside(log, producer, "m3", new, HERE)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert log.refusal(inside(log, producer, "", -1, HERE)) == ErrorCode.UNKNOWN_MEMBER_ID
    before = log.member("m1").last_entry
    log.submit(inside(log, producer, "m1", old, HERE), producer.end(1))
    assert log.records["offset", "group", *HERE].offset == 7
    assert log.member("m1").last_entry == log.entry > before


@pytest.mark.kafka("G20")
def test_a_commit_that_was_accepted_may_be_repeated_when_the_partition_has_moved(log: GroupLog) -> None:
    log.join("m1", "a")
    producer = log.initialise("id")
    list_: list[Command] = [inside(log, producer, "m1", log.entry - 1, HERE), producer.end(1)]
    log.submit(*list_)
    log.submit(log.leaving("m1"))
    assert [result.duplicate for result in log.submit(*list_)] == [True, True]


@pytest.mark.kafka("G19", "K107")
def test_without_a_member_only_a_group_without_members_is_committed(log: GroupLog) -> None:
    offsets = (OffsetToCommit(*HERE, 3),)
    log.submit(OffsetCommit("before", "group", offsets))
    log.join("m1", "a")
    assert log.refusal(OffsetCommit("r", "group", offsets)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert log.refusal(OffsetCommit("r", "group", offsets, 5)) == ErrorCode.UNKNOWN_MEMBER_ID
    log.submit(OffsetCommit("another", "another group", offsets))
    log.submit(log.leaving("m1"))
    log.submit(OffsetCommit("after", "group", offsets))
    assert log.refusal(OffsetCommit("r", "group", offsets, 5)) == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.kafka("G16", "G19")
def test_the_wrong_instance_id_is_fenced(log: GroupLog) -> None:
    log.join("m1", "a", instance_id="i")
    log.join("m2", "a", instance_id="j")
    log.release("m1")
    epoch = log.member("m1").member_epoch
    log.submit(log.committing("m1", epoch, HERE, instance_id="i"))
    log.submit(log.committing("m1", epoch, HERE))
    assert log.refusal(log.committing("m1", epoch, HERE, instance_id="j")) == ErrorCode.FENCED_INSTANCE_ID
    assert log.refusal(log.committing("m1", epoch, HERE, instance_id="k")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert log.refusal(log.committing("m3", epoch, HERE, instance_id="j")) == ErrorCode.FENCED_INSTANCE_ID
    assert log.refusal(log.committing("m3", epoch, HERE)) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.kafka("G19")
def test_a_partition_that_came_back_is_held_since_then(log: GroupLog) -> None:
    """What the member has sent in its earlier time with it is refused."""
    log.join("m1", "a")
    log.join("m2", "a")
    log.release("m1")
    old = log.member("m2").member_epoch
    log.submit(log.updating("m2"))
    log.release("m2")
    log.submit(log.updating("m2", "a"))
    log.release("m1")
    assert log.member("m2").assigned[0].since_epoch > old
    assert log.refusal(log.committing("m2", old, THERE)) == ErrorCode.STALE_MEMBER_EPOCH
    log.submit(log.committing("m2", log.member("m2").member_epoch, THERE))


def test_a_commit_without_offsets_is_a_sign_of_life(log: GroupLog) -> None:
    log.join("m1", "a")
    log.submit(log.committing("m1", log.entry))
    assert log.member("m1").last_entry == log.entry
    assert log.member("m1") == replace(log.member("m1"), last_entry=log.entry)
