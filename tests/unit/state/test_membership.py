"""Members of consumer groups: joining, giving back, leaving and expiring, as Kafka's tests of KIP-848 have it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktxn._engine.format.commands import CreatePartitions, CreateTopic, DeleteGroup, DeleteTopic, JoinGroup
from sparktxn._engine.state import limits
from sparktxn._foundation.values.structs import EmptyGroup, GroupState, HeldPartition, MemberState, SubscribedTopic
from sparktxn.errors import CommandRefused, ErrorCode
from tests.groupcommands import GroupLog, Place, check_group, places

EVEN: list[Place] = [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (1, 5)]


@pytest.fixture
def log() -> GroupLog:
    """A state with topic `a` of six partitions, id 1, and topic `b` of three, id 2."""
    log = GroupLog()
    log.create_topic("a", 6)
    log.create_topic("b", 3)
    return log


def held(log: GroupLog) -> dict[str, tuple[tuple[Place, ...], tuple[Place, ...]]]:
    """What each member has, and what it owes."""
    check_group(log.records, log.group_id)
    return {id_: (places(member.assigned), places(member.revoking)) for id_, member in log.members().items()}


def epochs(log: GroupLog) -> dict[str, int]:
    return {id_: member.member_epoch for id_, member in log.members().items()}


class TestJoining:
    @pytest.mark.kafka("G01")
    def test_the_first_member_gets_all_in_its_entry(self, log: GroupLog) -> None:
        joined = log.join("m", "a", "b", client_id="client", host="host", instance_id="i", classic=True)
        since = log.entry
        assert log.group() == GroupState("group", since, "uniform", ("m",))
        target = (*EVEN, (2, 0), (2, 1), (2, 2))
        assert joined == MemberState(
            group_id="group",
            member_id="m",
            instance_id="i",
            client_id="client",
            host="host",
            topics=("a", "b"),
            session_timeout_ms=1_000,
            rebalance_timeout_ms=5_000,
            assignors=("uniform",),
            classic=True,
            member_epoch=since,
            target=target,
            assigned=tuple(HeldPartition(*place, since) for place in target),
            last_entry=since,
        )
        assert log.records["subscribers", "a"] == SubscribedTopic("a", ("group",))

    @pytest.mark.kafka("G02", "G07", "G08")
    def test_a_second_member_waits_for_what_the_first_gives_back(self, log: GroupLog) -> None:
        log.join("m1", "a")
        first = log.entry
        log.join("m2", "a")
        second = log.entry
        assert held(log) == {"m1": (tuple(EVEN[:3]), tuple(EVEN[3:])), "m2": ((), ())}
        assert epochs(log) == {"m1": first, "m2": second}
        assert log.member("m1").changed_entry == second
        log.release("m1")
        assert held(log) == {"m1": (tuple(EVEN[:3]), ()), "m2": (tuple(EVEN[3:]), ())}
        assert epochs(log) == {"m1": second, "m2": second}
        assert {one.since_epoch for one in log.member("m1").assigned} == {first}
        assert {one.since_epoch for one in log.member("m2").assigned} == {second}
        assert log.member("m1").changed_entry == 0
        assert log.member("m1").last_entry == log.entry
        assert log.member("m2").last_entry == second

    def test_a_join_that_is_repeated_takes_effect_once(self, log: GroupLog) -> None:
        command = log.joining("m", "a")
        log.submit(command)
        before = dict(log.records)
        assert log.submit(command)[0].duplicate
        assert log.records == before

    @pytest.mark.kafka("G05")
    def test_a_member_that_joins_again_keeps_its_partitions_and_owes_nothing(self, log: GroupLog) -> None:
        log.join("m1", "a")
        first = log.entry
        log.join("m2", "a")
        second = log.entry
        log.join("m1", "a", session_timeout_ms=9)
        assert held(log) == {"m1": (tuple(EVEN[:3]), ()), "m2": (tuple(EVEN[3:]), ())}
        group = log.group()
        assert group is not None
        assert group.epoch == second
        assert {one.since_epoch for one in log.member("m1").assigned} == {first}
        assert (log.member("m1").session_timeout_ms, log.member("m1").last_entry) == (9, log.entry)

    def test_a_member_that_joins_again_with_another_subscription_or_assignor_begins_an_epoch(
        self, log: GroupLog
    ) -> None:
        log.join("m1", "a")
        log.join("m1", "a", "b")
        assert epochs(log) == {"m1": log.entry}
        assert len(log.member("m1").assigned) == 9
        log.join("m1", "a", "b", assignors=("range", "uniform"))
        group = log.group()
        assert group is not None
        assert (group.epoch, group.assignor) == (log.entry, "range")

    def test_topics_need_not_exist(self, log: GroupLog) -> None:
        log.join("m", "missing")
        assert held(log) == {"m": ((), ())}
        assert epochs(log) == {"m": log.entry}

    def test_an_internal_topic_has_one_partition(self, log: GroupLog) -> None:
        log.join("m", "__consumer_offsets")
        assert held(log) == {"m": (((-3, 0),), ())}

    @pytest.mark.kafka("G17")
    def test_a_full_group_takes_no_member(self, log: GroupLog, monkeypatch: pytest.MonkeyPatch) -> None:
        assert limits.GROUP_MEMBERS_MAX == 10_000
        monkeypatch.setattr(limits, "GROUP_MEMBERS_MAX", 2)
        log.join("m1", "a", instance_id="i")
        log.join("m2", "a")
        with pytest.raises(CommandRefused, match="group 'group' has 2 members, and takes no more") as refused:
            log.submit(log.joining("m3", "a"))
        assert refused.value.error.code() == ErrorCode.GROUP_MAX_SIZE_REACHED
        log.join("m2", "a")
        log.join("m4", "a", instance_id="i", classic=True)
        assert sorted(log.members()) == ["m2", "m4"]

    def test_what_a_join_must_say(self, log: GroupLog) -> None:
        good = log.joining("m", "a", "b")
        wrong: list[tuple[JoinGroup, ErrorCode]] = [
            (replace(good, group_id=""), ErrorCode.INVALID_REQUEST),
            (replace(good, member_id=""), ErrorCode.INVALID_REQUEST),
            (replace(good, topics=("b", "a")), ErrorCode.INVALID_REQUEST),
            (replace(good, topics=("a", "a")), ErrorCode.INVALID_REQUEST),
            (replace(good, topics=("no topic!",)), ErrorCode.INVALID_TOPIC),
            (replace(good, assignors=()), ErrorCode.UNSUPPORTED_ASSIGNOR),
            (replace(good, assignors=("uniform", "sticky")), ErrorCode.UNSUPPORTED_ASSIGNOR),
            (replace(good, session_timeout_ms=0), ErrorCode.INVALID_SESSION_TIMEOUT),
            (replace(good, rebalance_timeout_ms=0), ErrorCode.INVALID_SESSION_TIMEOUT),
            (replace(good, session_timeout_ms=2**31), ErrorCode.INVALID_SESSION_TIMEOUT),
            (replace(good, rebalance_timeout_ms=2**31), ErrorCode.INVALID_SESSION_TIMEOUT),
        ]
        for command, code in wrong:
            assert log.refusal(command) == code, command
        with pytest.raises(CommandRefused, match="no topic!"):
            log.submit(replace(good, topics=("no topic!",)))
        log.submit(replace(good, session_timeout_ms=1, rebalance_timeout_ms=2**31 - 1))


class TestSubscriptions:
    @pytest.mark.kafka("G03")
    def test_a_changed_subscription_begins_an_epoch(self, log: GroupLog) -> None:
        log.join("m1", "a")
        log.submit(log.updating("m1", "b"))
        assert held(log) == {"m1": ((), tuple(EVEN))}
        log.release("m1")
        assert held(log) == {"m1": (((2, 0), (2, 1), (2, 2)), ())}
        assert ("subscribers", "a") not in log.records

    def test_an_equal_subscription_is_a_sign_of_life_alone(self, log: GroupLog) -> None:
        log.join("m1", "a")
        first = log.entry
        command = log.updating("m1", "a")
        log.submit(command)
        assert epochs(log) == {"m1": first}
        assert log.member("m1").last_entry == log.entry
        assert log.submit(command)[0].duplicate

    @pytest.mark.kafka("G05")
    def test_an_epoch_above_the_members_is_fenced_and_a_lower_one_is_not(self, log: GroupLog) -> None:
        log.join("m1", "a")
        known = log.member("m1").member_epoch
        assert log.refusal(log.updating("m1", "b", epoch=known + 1)) == ErrorCode.FENCED_MEMBER_EPOCH
        assert log.refusal(log.releasing("m1", (), epoch=known + 1)) == ErrorCode.FENCED_MEMBER_EPOCH
        assert log.refusal(replace(log.updating("m1", "b"), member_id="m2")) == ErrorCode.UNKNOWN_MEMBER_ID
        assert log.refusal(replace(log.releasing("m1"), member_id="m2")) == ErrorCode.UNKNOWN_MEMBER_ID
        assert log.refusal(replace(log.updating("m1", "b"), topics=("b", "a"))) == ErrorCode.INVALID_REQUEST
        assert log.refusal(replace(log.updating("m1", "b"), topics=("!",))) == ErrorCode.INVALID_TOPIC
        log.submit(log.updating("m1", "b", epoch=known - 1))

    @pytest.mark.kafka("G18")
    def test_a_topic_that_is_created_grows_or_is_deleted_changes_targets(self, log: GroupLog) -> None:
        log.join("m1", "new")
        log.submit(CreateTopic("create", "new", 2))
        assert held(log) == {"m1": (((3, 0), (3, 1)), ())}
        log.submit(CreatePartitions("grow", "new", 3, 3))
        assert held(log) == {"m1": (((3, 0), (3, 1), (3, 2)), ())}
        log.submit(DeleteTopic("delete", "new", 3))
        assert held(log) == {"m1": ((), ())}
        assert epochs(log) == {"m1": log.entry}
        log.submit(CreateTopic("again", "new", 1))
        assert held(log) == {"m1": (((4, 0),), ())}

    @pytest.mark.kafka("G18")
    def test_partitions_of_a_deleted_topic_are_owed_by_no_member(self, log: GroupLog) -> None:
        log.join("m1", "a", "b")
        log.join("m2", "a", "b")
        assert held(log)["m1"][1]
        log.submit(DeleteTopic("delete", "b", 2))
        owed = {place for _, revoking in held(log).values() for place in revoking}
        assert {topic_id for topic_id, _ in owed} <= {1}

    def test_topics_that_no_member_wants_change_nothing(self, log: GroupLog) -> None:
        log.join("m1", "a")
        first = log.entry
        log.submit(CreatePartitions("grow", "b", 2, 9))
        assert epochs(log) == {"m1": first}

    def test_a_topic_command_reaches_all_groups_that_subscribe(self, log: GroupLog) -> None:
        log.join("m1", "a")
        log.group_id = "another"
        log.join("m1", "a", "b")
        assert log.records["subscribers", "a"] == SubscribedTopic("a", ("another", "group"))
        log.submit(CreatePartitions("grow", "a", 1, 7))
        for group_id in ("another", "group"):
            log.group_id = group_id
            assert (1, 6) in places(log.member("m1").assigned)
        log.submit(log.leaving("m1"))
        assert log.records["subscribers", "a"] == SubscribedTopic("a", ("another",))


class TestReconciling:
    @pytest.mark.kafka("G06")
    def test_three_members_from_start_to_stable(self, log: GroupLog) -> None:
        log.join("m1", "a")
        log.join("m2", "a")
        log.release("m1")
        log.join("m3", "a")
        third = log.entry
        assert held(log) == {
            "m1": ((EVEN[0], EVEN[1]), (EVEN[2],)),
            "m2": ((EVEN[3], EVEN[4]), (EVEN[5],)),
            "m3": ((), ()),
        }
        log.release("m1")
        assert held(log)["m3"] == ((EVEN[2],), ())
        assert epochs(log) == {"m1": third, "m2": third - 2, "m3": third}
        log.release("m2")
        assert held(log)["m3"] == ((EVEN[2], EVEN[5]), ())
        assert set(epochs(log).values()) == {third}

    @pytest.mark.kafka("G07")
    def test_what_is_wanted_again_before_it_was_given_back_stays(self, log: GroupLog) -> None:
        log.join("m1", "a")
        first = log.entry
        log.join("m2", "a")
        log.submit(log.leaving("m2"))
        assert held(log) == {"m1": (tuple(EVEN), ())}
        assert {one.since_epoch for one in log.member("m1").assigned} == {first}
        assert log.member("m1").changed_entry == 0

    @pytest.mark.kafka("G07")
    def test_what_was_not_given_back_is_not_given_to_another_member(self, log: GroupLog) -> None:
        """Dealt by turns, the first free partitions would go to the member that comes first."""
        log.join("z", "a")
        log.join("b", "a")
        log.join("c", "a")
        log.submit(log.releasing("z", [EVEN[2], EVEN[4], EVEN[5]]))
        assert held(log)["z"] == ((EVEN[0], EVEN[1]), (EVEN[3],))
        log.submit(log.leaving("b"))
        assert held(log) == {"c": ((EVEN[2], EVEN[4], EVEN[5]), ()), "z": ((EVEN[0], EVEN[1], EVEN[3]), ())}

    @pytest.mark.kafka("G07")
    def test_what_is_owed_may_grow_and_shrink(self, log: GroupLog) -> None:
        log.join("m1", "a")
        log.join("m2", "a")
        second = log.entry
        assert log.member("m1").changed_entry == second
        log.join("m3", "a")
        assert len(held(log)["m1"][1]) == 4
        assert log.member("m1").changed_entry == log.entry
        log.submit(log.releasing("m1", [EVEN[5]]))
        assert len(held(log)["m1"][1]) == 3
        assert log.member("m1").changed_entry == log.entry
        changed = log.entry
        log.submit(log.updating("m1", "a"))
        assert log.member("m1").changed_entry == changed

    def test_a_member_keeps_of_its_target_what_it_does_not_hold_yet(self, log: GroupLog) -> None:
        log.join("m1", "a")
        waiting = log.join("m2", "a")
        assert (waiting.target, waiting.assigned) == (tuple(EVEN[3:]), ())
        log.join("m3", "a")
        assert log.member("m2").target == (EVEN[3], EVEN[4])

    @pytest.mark.kafka("G09")
    def test_a_member_that_owes_partitions_gets_no_others(self, log: GroupLog) -> None:
        log.join("m1", "a")
        log.submit(log.updating("m1", "b"))
        log.join("m2", "a")
        assert held(log) == {"m1": ((), tuple(EVEN)), "m2": ((), ())}
        log.submit(log.releasing("m1", EVEN[:5]))
        assert held(log) == {"m1": ((), (EVEN[5],)), "m2": (tuple(EVEN[:5]), ())}
        log.release("m1")
        assert held(log) == {"m1": (((2, 0), (2, 1), (2, 2)), ()), "m2": (tuple(EVEN), ())}

    @pytest.mark.kafka("G10")
    def test_a_partition_goes_to_the_last_that_is_to_have_it(self, log: GroupLog) -> None:
        log.join("m1", "a")
        log.join("m2", "a")
        log.submit(log.leaving("m2"), log.joining("m3", "a"))
        third = log.entry
        log.release("m1")
        assert held(log) == {"m1": (tuple(EVEN[:3]), ()), "m3": (tuple(EVEN[3:]), ())}
        assert {one.since_epoch for one in log.member("m3").assigned} == {third}

    def test_a_partition_that_moves_twice_in_an_entry_is_given_to_the_last_member(self, log: GroupLog) -> None:
        log.submit(log.joining("m1", "a"), log.joining("m2", "a"))
        assert held(log) == {"m1": (tuple(EVEN[:3]), ()), "m2": (tuple(EVEN[3:]), ())}
        assert {one.since_epoch for one in log.member("m2").assigned} == {log.entry}

    def test_partitions_that_were_not_asked_for_are_not_given_back(self, log: GroupLog) -> None:
        log.join("m1", "a")
        log.join("m2", "a")
        log.submit(log.releasing("m1", [EVEN[0], EVEN[5], (9, 9)]))
        assert held(log) == {"m1": (tuple(EVEN[:3]), (EVEN[3], EVEN[4])), "m2": ((EVEN[5],), ())}

    def test_a_release_of_an_earlier_life_gives_nothing_back(self, log: GroupLog) -> None:
        log.join("m1", "a")
        log.join("m2", "a")
        late = log.releasing("m1")
        log.submit(log.leaving("m1"))
        log.submit(log.leaving("m2"))
        log.join("m1", "a")
        log.join("m2", "a")
        log.submit(late)
        assert held(log)["m1"] == (tuple(EVEN[:3]), tuple(EVEN[3:]))
        assert log.submit(late)[0].duplicate

    def test_a_late_release_takes_nothing_that_was_given_again_since(self, log: GroupLog) -> None:
        log.join("m1", "a")
        log.join("m2", "a")
        late = log.releasing("m1")
        log.submit(log.leaving("m2"))
        assert held(log) == {"m1": (tuple(EVEN), ())}
        log.join("m3", "a")
        log.submit(late)
        assert held(log)["m1"] == (tuple(EVEN[:3]), tuple(EVEN[3:]))
        assert log.member("m1").last_entry == log.entry
        log.release("m1")
        assert held(log)["m3"] == (tuple(EVEN[3:]), ())


class TestLeaving:
    @pytest.mark.kafka("G04")
    def test_what_a_member_leaves_behind_is_given_to_the_others_at_once(self, log: GroupLog) -> None:
        log.join("m1", "a")
        log.join("m2", "a")
        log.release("m1")
        command = log.leaving("m1")
        log.submit(command)
        assert held(log) == {"m2": (tuple(EVEN), ())}
        assert epochs(log) == {"m2": log.entry}
        assert log.submit(command)[0].duplicate

    def test_a_consumer_that_is_no_member_has_left(self, log: GroupLog) -> None:
        entry = log.entry
        assert log.submit(log.leaving("m1"))[0].duplicate
        assert log.entry == entry

    def test_of_a_group_without_members_is_left_since_when(self, log: GroupLog) -> None:
        before = {key for key in log.records if key[0] != "requests"}
        log.join("m1", "a", "missing")
        assert ("empty_group", "group") not in log.records
        log.submit(log.leaving("m1"))
        left = log.entry
        assert {key for key in log.records if key[0] != "requests"} == {*before, ("empty_group", "group")}
        assert log.records["empty_group", "group"] == EmptyGroup("group", left, log.timestamp_ms)
        log.join("m2", "a")
        assert ("empty_group", "group") not in log.records
        log.submit(log.expiring("m2"))
        assert log.records["empty_group", "group"].entry == log.entry > left

    def test_a_group_with_members_is_not_deleted(self, log: GroupLog) -> None:
        log.join("m1", "a")
        log.submit(log.committing("m1", log.entry, EVEN[0]))
        delete = DeleteGroup("delete", "group", ((*EVEN[0], log.entry),))
        assert log.refusal(delete) == ErrorCode.NON_EMPTY_GROUP
        log.submit(log.leaving("m1"))
        assert ("offset", "group", *EVEN[0]) in log.records
        log.submit(delete)
        assert ("offset", "group", *EVEN[0]) not in log.records

    def test_epochs_do_not_come_back_when_a_group_begins_anew(self, log: GroupLog) -> None:
        log.join("m1", "a")
        old = log.member("m1").member_epoch
        log.submit(log.leaving("m1"))
        log.submit(DeleteGroup("delete", "group", ()))
        log.join("m1", "a")
        assert log.refusal(log.committing("m1", old, EVEN[0])) == ErrorCode.STALE_MEMBER_EPOCH


class TestExpiry:
    @pytest.mark.kafka("G11")
    def test_a_silent_member_is_taken_out(self, log: GroupLog) -> None:
        log.join("m1", "a")
        log.join("m2", "a")
        log.submit(log.expiring("m1"))
        assert held(log) == {"m2": (tuple(EVEN), ())}

    @pytest.mark.kafka("G11")
    def test_a_member_that_has_lived_since_stays(self, log: GroupLog) -> None:
        log.join("m1", "a")
        for sign in (
            log.committing("m1", log.member("m1").member_epoch, EVEN[0]),
            log.updating("m1", "a"),
            log.releasing("m1"),
            log.joining("m1", "a"),
        ):
            late = log.expiring("m1")
            log.submit(sign)
            assert log.submit(late)[0].duplicate
            assert "m1" in log.members()
        assert log.submit(log.expiring("m1", member_epoch=log.entry + 1))[0].duplicate
        gone = log.expiring("m1")
        log.submit(gone)
        assert log.submit(gone)[0].duplicate, "it is gone already"

    @pytest.mark.kafka("G11")
    def test_a_member_that_came_back_is_not_taken_out_for_its_earlier_life(self, log: GroupLog) -> None:
        log.join("m1", "a")
        late = log.expiring("m1")
        log.submit(log.leaving("m1"))
        log.join("m1", "a")
        assert log.submit(late)[0].duplicate

    @pytest.mark.kafka("G11")
    def test_one_entry_takes_out_all_that_are_silent(self, log: GroupLog) -> None:
        for member_id in ("m1", "m2", "m3"):
            log.join(member_id, "a")
        before = log.member("m3").member_epoch
        log.submit(*[log.expiring(member_id) for member_id in ("m1", "m2")])
        assert held(log) == {"m3": (tuple(EVEN), ())}
        assert log.member("m3").member_epoch > before

    @pytest.mark.kafka("G12")
    def test_a_static_member_that_is_away_expires(self, log: GroupLog) -> None:
        log.join("m1", "a", instance_id="i")
        log.submit(log.leaving("m1", keeps_place=True))
        log.join("m2", "a")
        log.submit(log.expiring("m1"))
        assert held(log) == {"m2": (tuple(EVEN), ())}

    @pytest.mark.kafka("G13")
    def test_a_member_that_gives_nothing_back_is_taken_out(self, log: GroupLog) -> None:
        log.join("m1", "a")
        log.join("m2", "a")
        early = log.expiring("m1", "rebalance")
        log.submit(log.committing("m1", log.member("m1").member_epoch, EVEN[0]))
        log.join("m3", "a")
        assert log.submit(early)[0].duplicate, "it owes other partitions by now"
        late = log.expiring("m1", "rebalance")
        log.submit(log.committing("m1", log.member("m1").member_epoch, EVEN[0]))
        log.submit(late)
        assert sorted(log.members()) == ["m2", "m3"]
        assert log.submit(log.expiring("m2", "rebalance", last_entry=0))[0].duplicate, "it owes nothing"

    @pytest.mark.parametrize(("reason", "timeout_ms"), [("session", 1_000), ("rebalance", 5_000)])
    def test_nothing_expires_before_its_time(self, log: GroupLog, reason: str, timeout_ms: int) -> None:
        log.join("m1", "a")
        log.join("m2", "a")
        assert log.refusal(log.expiring("m1", reason, after_ms=timeout_ms - 1)) == ErrorCode.INVALID_REQUEST
        log.submit(log.expiring("m1", reason, after_ms=timeout_ms))
        assert sorted(log.members()) == ["m2"]

    def test_there_are_two_reasons(self, log: GroupLog) -> None:
        log.join("m1", "a")
        other = replace(log.expiring("m1"), reason="boredom")
        assert log.refusal(other) == ErrorCode.INVALID_REQUEST


class TestStaticMembers:
    @pytest.mark.kafka("G14")
    def test_one_that_is_away_keeps_its_partitions(self, log: GroupLog) -> None:
        log.join("m1", "a", instance_id="i")
        log.join("m2", "a")
        log.release("m1")
        before = (held(log), log.group())
        log.submit(log.leaving("m1", keeps_place=True))
        assert (held(log), log.group()) == before
        assert (log.member("m1").left, log.member("m1").last_entry) == (True, log.entry)

    @pytest.mark.kafka("G14")
    def test_one_that_returns_gets_them_back_and_fences_the_one_before(self, log: GroupLog) -> None:
        log.join("m1", "a", instance_id="i")
        log.join("m2", "a")
        log.release("m1")
        old = log.member("m1").member_epoch
        log.submit(log.leaving("m1", keeps_place=True))
        log.join("m3", "a", instance_id="i")
        assert held(log) == {"m3": (tuple(EVEN[:3]), ()), "m2": (tuple(EVEN[3:]), ())}
        assert {one.since_epoch for one in log.member("m3").assigned} == {log.entry}
        assert {one.since_epoch for one in log.member("m2").assigned} == {old}
        assert log.member("m3").left is False
        assert log.refusal(log.committing("m1", old, EVEN[0])) == ErrorCode.UNKNOWN_MEMBER_ID
        fenced = log.committing("m1", old, EVEN[0], instance_id="i")
        assert log.refusal(fenced) == ErrorCode.FENCED_INSTANCE_ID
        log.submit(log.committing("m2", old, EVEN[3]))
        log.submit(log.committing("m3", log.entry - 1, EVEN[0], instance_id="i"))

    @pytest.mark.kafka("G14")
    def test_one_that_returns_under_its_member_id_goes_on(self, log: GroupLog) -> None:
        log.join("m1", "a", instance_id="i")
        first = log.entry
        log.submit(log.leaving("m1", keeps_place=True))
        log.join("m1", "a", instance_id="i")
        assert held(log) == {"m1": (tuple(EVEN), ())}
        assert epochs(log) == {"m1": first}
        assert log.member("m1").left is False

    @pytest.mark.kafka("G15")
    def test_one_that_returns_with_other_topics_gets_another_target(self, log: GroupLog) -> None:
        log.join("m1", "a", instance_id="i")
        log.submit(log.leaving("m1", keeps_place=True))
        log.join("m2", "b", instance_id="i")
        assert held(log) == {"m2": (((2, 0), (2, 1), (2, 2)), ())}

    def test_one_that_joins_again_with_other_topics_gives_back(self, log: GroupLog) -> None:
        log.join("m1", "a", instance_id="i")
        log.join("m1", "b", instance_id="i")
        assert held(log) == {"m1": ((), tuple(EVEN))}

    @pytest.mark.kafka("G16")
    def test_a_newcomer_with_an_instance_id_in_use_is_refused(self, log: GroupLog) -> None:
        log.join("m1", "a", instance_id="i")
        assert log.refusal(log.joining("m2", "a", instance_id="i")) == ErrorCode.UNRELEASED_INSTANCE_ID
        assert log.refusal(log.joining("m1", "a", instance_id="j")) == ErrorCode.INVALID_REQUEST
        assert log.refusal(log.joining("m1", "a")) == ErrorCode.INVALID_REQUEST

    @pytest.mark.kafka("G16")
    def test_one_of_the_classic_protocol_takes_the_place_at_once(self, log: GroupLog) -> None:
        log.join("m1", "a", instance_id="i", classic=True)
        old = log.member("m1").member_epoch
        log.join("m2", "a", instance_id="i", classic=True)
        assert held(log) == {"m2": (tuple(EVEN), ())}
        fenced = log.committing("m1", old, EVEN[0], instance_id="i")
        assert log.refusal(fenced) == ErrorCode.FENCED_INSTANCE_ID

    def test_what_it_owed_is_free_when_another_takes_its_place(self, log: GroupLog) -> None:
        log.join("m1", "a", instance_id="i", classic=True)
        log.join("m2", "a")
        log.join("m3", "a", instance_id="i", classic=True)
        assert held(log) == {"m3": (tuple(EVEN[:3]), ()), "m2": (tuple(EVEN[3:]), ())}

    def test_what_it_owes_is_free_while_it_is_away(self, log: GroupLog) -> None:
        log.join("m1", "a", instance_id="i")
        log.join("m2", "a")
        log.submit(log.leaving("m1", keeps_place=True))
        assert held(log) == {"m1": (tuple(EVEN[:3]), ()), "m2": (tuple(EVEN[3:]), ())}
        log.join("m3", "a")
        assert held(log)["m1"] == (tuple(EVEN[:2]), ())
        assert held(log)["m3"] == ((EVEN[2],), ())

    def test_without_an_instance_id_no_place_is_kept(self, log: GroupLog) -> None:
        log.join("m1", "a")
        log.submit(log.leaving("m1", keeps_place=True))
        assert log.members() == {}


class TestAssignorOfAGroup:
    @pytest.mark.parametrize(
        ("preferences", "chosen"),
        [
            ([("uniform",)], "uniform"),
            ([("range",)], "range"),
            ([("range", "uniform"), ("uniform",)], "uniform"),
            ([("range", "uniform"), ("range",)], "range"),
            ([("range", "uniform"), ("uniform", "range")], "uniform"),
            ([("range", "uniform"), ("range", "uniform"), ("uniform", "range")], "range"),
            ([("range",), ("uniform",)], "uniform"),
            ([("range",), ("uniform",), ("range", "uniform")], "range"),
        ],
    )
    def test_most_members_choose_it(self, log: GroupLog, preferences: list[tuple[str, ...]], chosen: str) -> None:
        for number, names in enumerate(preferences):
            log.join(f"m{number}", "a", assignors=names)
        group = log.group()
        assert group is not None
        assert group.assignor == chosen

    def test_static_members_come_first_by_their_instance_ids(self, log: GroupLog) -> None:
        for member_id, instance_id in (("m1", ""), ("m2", "z"), ("m3", "y"), ("m0", "")):
            log.join(member_id, "a", instance_id=instance_id, assignors=("range",))
        targets = {id_: member.target for id_, member in log.members().items()}
        assert [targets[id_][0] for id_ in ("m3", "m2", "m0", "m1")] == [EVEN[0], EVEN[2], EVEN[4], EVEN[5]]
