"""Group offsets, in transactions and outside (K104 to K108, K110, K111)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sparktxn._engine.format.commands import Command, DeleteGroup, OffsetCommit, OffsetToCommit, TxnOffsetCommit
from sparktxn._engine.state.limits import METADATA_BYTES_MAX
from sparktxn._foundation.values.structs import CommittedOffset, PendingOffset, PendingOffsets
from sparktxn.errors import CommandRefused, ErrorCode
from tests.producercommands import ProducerCommands
from tests.purelog import PureLog

HERE = (1, 0)
KEY = ("offset", "group", *HERE)
PENDING = ("pending_offsets", "group", *HERE)


def plain(log: PureLog, offset: int) -> OffsetCommit:
    return OffsetCommit(f"at {log.entry}", "group", (OffsetToCommit(*HERE, offset),))


def committed(log: PureLog) -> int | None:
    record = log.records.get(KEY)
    return record.offset if record is not None else None


@pytest.mark.kafka("K104")
@pytest.mark.parametrize("commits", [True, False])
def test_k104_offsets_take_effect_with_the_commit_and_vanish_with_an_abort(log: PureLog, commits: bool) -> None:
    producer = log.initialise("id")
    log.submit(producer.offset(1, "group", HERE, 7))
    assert committed(log) is None
    assert [pending.producer_id for pending in log.records[PENDING].offsets] == [producer.producer_id]
    log.submit(producer.end(1, committed=commits))
    assert committed(log) == (7 if commits else None)
    assert PENDING not in log.records


@pytest.mark.kafka("K105")
def test_k105_a_pending_offset_can_be_told_from_a_stable_one(log: PureLog) -> None:
    log.submit(plain(log, 3))
    producer = log.initialise("id")
    log.submit(producer.offset(1, "group", HERE, 7))
    assert committed(log) == 3
    assert PENDING in log.records


@pytest.mark.kafka("K106")
@pytest.mark.parametrize(
    ("generation_id", "member_id", "code"),
    [(0, "", ErrorCode.ILLEGAL_GENERATION), (-1, "member", ErrorCode.UNKNOWN_MEMBER_ID)],
)
def test_k106_generations_and_members_are_checked(log: PureLog, generation_id: int, member_id: str, code: int) -> None:
    producer = log.initialise("id")
    offsets = (OffsetToCommit(*HERE, 1),)
    inside = TxnOffsetCommit("id", producer.producer_id, 0, 1, "group", offsets, generation_id, member_id)
    assert log.refusal(inside) == code
    assert log.refusal(OffsetCommit("r", "group", offsets, generation_id, member_id)) == code


@pytest.mark.kafka("K107")
def test_k107_no_generation_and_no_member_is_accepted(log: PureLog) -> None:
    log.submit(plain(log, 1))
    assert committed(log) == 1


@pytest.mark.kafka("K108")
def test_k108_the_offset_that_was_sent_later_stands(log: PureLog) -> None:
    producer = log.initialise("id")
    log.submit(producer.offset(1, "group", HERE, 7))
    log.submit(plain(log, 3))
    log.submit(producer.end(1))
    assert committed(log) == 3
    log.submit(producer.offset(2, "group", HERE, 8))
    log.submit(producer.end(2))
    assert committed(log) == 8


@pytest.mark.kafka("K70", "K110")
def test_k110_a_stale_epoch_is_fenced(log: PureLog) -> None:
    old = log.initialise("id")
    log.initialise("id")
    assert log.refusal(old.offset(1, "group", HERE, 1)) == ErrorCode.PRODUCER_FENCED


@pytest.mark.kafka("K111")
@pytest.mark.parametrize(("size", "accepted"), [(METADATA_BYTES_MAX, True), (METADATA_BYTES_MAX + 1, False)])
def test_k111_long_metadata_is_refused(log: PureLog, size: int, accepted: bool) -> None:
    command = OffsetCommit("r", "group", (OffsetToCommit(*HERE, 1, "m" * size),))
    if accepted:
        log.submit(command)
    else:
        assert log.refusal(command) == ErrorCode.OFFSET_METADATA_TOO_LARGE


@pytest.mark.kafka("K111")
def test_the_longest_metadata_is_kafkas() -> None:
    assert METADATA_BYTES_MAX == 4_096, "offset.metadata.max.bytes"


@pytest.mark.kafka("K104")
def test_offset_0_counts_and_a_logical_one_is_refused(log: PureLog) -> None:
    producer = log.initialise("id")
    for offset in (-1, -2, -1_001):
        assert log.refusal(producer.offset(1, "group", HERE, offset)) == ErrorCode.OFFSET_OUT_OF_RANGE
    log.submit(producer.offset(1, "group", HERE, 0), producer.end(1))
    assert committed(log) == 0


@pytest.mark.kafka("K33", "K104")
def test_a_list_that_committed_offsets_may_come_again(log: PureLog) -> None:
    producer = log.initialise("id")
    commands: list[Command] = [producer.offset(1, "group", HERE, 7), producer.end(1)]
    log.submit(*commands)
    log.submit(plain(log, 9))
    entry = log.entry
    assert [result.duplicate for result in log.submit(*commands)] == [True, True]
    assert (log.entry, committed(log)) == (entry, 9)


@pytest.mark.kafka("K112")
def test_k112_metadata_and_leader_epoch_are_kept(log: PureLog) -> None:
    log.submit(OffsetCommit("r", "group", (OffsetToCommit(*HERE, 1, "note", 4),)))
    record = log.records[KEY]
    assert (record.metadata, record.leader_epoch, record.commit_timestamp_ms) == ("note", 4, 1_000)


def test_the_same_request_commits_once(log: PureLog) -> None:
    command = plain(log, 1)
    log.submit(command)
    log.submit(plain(log, 2))
    assert log.submit(command)[0].duplicate
    assert committed(log) == 2


@pytest.mark.kafka("K109")
def test_k109_deleting_a_group_takes_its_pending_offsets_along(log: PureLog) -> None:
    producer = log.initialise("id")
    log.submit(plain(log, 3))
    log.submit(producer.offset(1, "group", HERE, 7), producer.append(HERE, 0, transaction=1))
    (pending,) = log.records[PENDING].offsets
    seen = log.records[KEY]
    delete = DeleteGroup("d", "group", ((*HERE, seen.entry),), ((*HERE, producer.producer_id, pending.entry),))
    log.submit(delete)
    assert log.submit(delete)[0].duplicate
    assert not [key for key in log.records if key in (KEY, PENDING)]
    log.submit(producer.end(1))
    assert KEY not in log.records


@pytest.mark.kafka("K109")
def test_offsets_that_are_committed_after_the_proposer_looked_stay(log: PureLog) -> None:
    log.submit(plain(log, 3))
    seen = log.records[KEY].entry
    log.submit(plain(log, 4))
    log.submit(DeleteGroup("d", "group", ((*HERE, seen),), ((*HERE, 9, seen),)))
    assert committed(log) == 4


class TestOwners:
    """Offsets that another consumer of the group has moved are not committed by one that started before."""

    @pytest.fixture
    def first(self, log: PureLog) -> int:
        """The entry of what both consumers have started from."""
        log.submit(plain(log, 3))
        return log.entry

    def commit(
        self, log: PureLog, owner: str, started_from: int, offset: int = 5, *, request_id: str = ""
    ) -> OffsetCommit:
        offsets = (OffsetToCommit(*HERE, offset, started_from=started_from),)
        return OffsetCommit(request_id or f"{owner} at {log.entry}", "group", offsets, owner=owner)

    def inside(
        self, producer: ProducerCommands, owner: str, started_from: int, offset: int = 5, transaction: int = 1
    ) -> TxnOffsetCommit:
        command = producer.offset(transaction, "group", HERE, offset)
        return replace(command, offsets=(OffsetToCommit(*HERE, offset, started_from=started_from),), owner=owner)

    @pytest.mark.kafka("K106")
    def test_the_first_that_commits_keeps_the_partition(self, log: PureLog, first: int) -> None:
        log.submit(self.commit(log, "a", first))
        with pytest.raises(CommandRefused, match=r"another consumer of group 'group'.*seek\(\)") as refused:
            log.submit(self.commit(log, "b", first))
        assert refused.value.error.code() == ErrorCode.ILLEGAL_GENERATION
        producer = log.initialise("b")
        assert log.refusal(self.inside(producer, "b", first), producer.end(1)) == ErrorCode.ILLEGAL_GENERATION
        assert committed(log) == 5
        log.submit(self.commit(log, "b", log.records[KEY].effective_entry, 7))
        assert log.refusal(self.commit(log, "a", first)) == ErrorCode.ILLEGAL_GENERATION

    def test_it_holds_where_nothing_was_committed(self, log: PureLog) -> None:
        log.submit(self.commit(log, "a", 0))
        assert log.refusal(self.commit(log, "b", 0)) == ErrorCode.ILLEGAL_GENERATION

    def test_the_same_offset_again_is_another_commit(self, log: PureLog, first: int) -> None:
        log.submit(self.commit(log, "a", first, 9))
        log.submit(self.commit(log, "a", first, 3))
        assert log.refusal(self.commit(log, "b", first)) == ErrorCode.ILLEGAL_GENERATION

    def test_several_commits_of_one_entry_follow_each_other(self, log: PureLog, first: int) -> None:
        log.submit(*[self.commit(log, "a", first, offset, request_id=f"r{offset}") for offset in (5, 6, 4)])
        assert committed(log) == 4
        assert (
            log.refusal(self.commit(log, "a", first, 9, request_id="r9"), self.commit(log, "b", first))
            == ErrorCode.ILLEGAL_GENERATION
        )

    def test_its_own_transactions_and_aborts_and_repetitions_move_the_owner_along(
        self, log: PureLog, first: int
    ) -> None:
        producer = log.initialise("a")
        log.submit(self.inside(producer, "a", first))
        log.submit(producer.end(1, committed=False))
        fused: list[Command] = [self.inside(producer, "a", first, 6, 2), producer.end(2)]
        log.submit(*fused)
        assert [result.duplicate for result in log.submit(*fused)] == [True, True]
        log.submit(self.commit(log, "a", first, 4))
        assert committed(log) == 4

    def test_offsets_in_another_consumers_open_transaction_are_in_the_way(self, log: PureLog, first: int) -> None:
        one, other = log.initialise("a"), log.initialise("b")
        log.submit(self.inside(one, "a", first))
        with pytest.raises(CommandRefused, match="the open transaction of 'a' holds offset 5"):
            log.submit(self.inside(other, "b", first), other.end(1))
        assert log.refusal(self.commit(log, "b", first)) == ErrorCode.ILLEGAL_GENERATION
        log.submit(self.inside(one, "a", first, 6))
        log.submit(one.end(1, committed=False))
        log.submit(self.inside(other, "b", first), other.end(1))
        assert committed(log) == 5

    def test_a_prepared_transaction_keeps_its_offsets(self, log: PureLog, first: int) -> None:
        producer = log.initialise("a")
        log.submit(self.inside(producer, "a", first), producer.prepare(1))
        assert log.refusal(self.commit(log, "b", first)) == ErrorCode.ILLEGAL_GENERATION
        log.submit(producer.end(1))
        assert (committed(log), log.records[KEY].owner) == (5, "a")
        assert log.refusal(self.commit(log, "b", first)) == ErrorCode.ILLEGAL_GENERATION

    def test_what_an_administrator_sets_is_another_consumers(self, log: PureLog, first: int) -> None:
        log.submit(self.commit(log, "a", first))
        log.submit(plain(log, 1))
        with pytest.raises(CommandRefused, match="an administrator") as refused:
            log.submit(self.commit(log, "a", first))
        assert refused.value.error.code() == ErrorCode.ILLEGAL_GENERATION

    def test_a_deleted_group_belongs_to_the_first_that_commits(self, log: PureLog, first: int) -> None:
        log.submit(DeleteGroup("d", "group", ((*HERE, first),)))
        log.submit(self.commit(log, "a", first))
        assert log.refusal(self.commit(log, "b", first)) == ErrorCode.ILLEGAL_GENERATION

    def test_who_has_started_from_nothing_is_compared_with_nothing(self, log: PureLog, first: int) -> None:
        log.submit(self.commit(log, "a", first))
        log.submit(self.commit(log, "b", -1, 8))
        assert committed(log) == 8

    def test_an_offset_is_known_by_the_entry_that_made_it_take_effect(self, log: PureLog, first: int) -> None:
        """A transaction that was sent before an administrator's commit of the same entry ends after it."""
        producer = log.initialise("a")
        log.submit(self.inside(producer, "a", first), plain(log, 7))
        seen = log.records[KEY].effective_entry
        log.submit(producer.end(1))
        assert log.records[KEY].entry == seen
        assert log.refusal(self.commit(log, "b", seen)) == ErrorCode.ILLEGAL_GENERATION

    def test_each_offset_of_a_command_is_compared(self, log: PureLog, first: int) -> None:
        """One without a start, or with an offset that was not moved, says nothing of those after it."""
        log.submit(self.commit(log, "a", first))
        before = (OffsetToCommit(1, 1, 4), OffsetToCommit(1, 1, 4, started_from=0))
        for offset in before:
            offsets = (offset, OffsetToCommit(*HERE, 5, started_from=first))
            with pytest.raises(CommandRefused, match="for partition 0 of topic id 1 in entry"):
                log.submit(OffsetCommit(f"b {offset.started_from}", "group", offsets, owner="b"))
        assert ("offset", "group", 1, 1) not in log.records

    def test_a_producer_replaces_its_own_offsets_whoever_owns_them(self, log: PureLog, first: int) -> None:
        producer = log.initialise("a")
        for owner in ("", "a", "b"):
            log.submit(self.inside(producer, owner, first))
        assert [pending.owner for pending in log.records[PENDING].offsets] == ["b"]

    @pytest.mark.parametrize("start", [0, 1])
    def test_a_refusal_says_what_the_consumer_has_started_from(self, log: PureLog, first: int, start: int) -> None:
        log.submit(self.commit(log, "a", first))
        started = f"the one of entry {first}" if start else "none"
        match = rf"partition 0 of topic id 1 in entry {log.entry}; this consumer has started from {started}\."
        with pytest.raises(CommandRefused, match=match):
            log.submit(self.commit(log, "b", first * start))


class TestRecords:
    """The records of a group, whole, as PROTOCOL.md has them."""

    def test_a_commit_outside_transactions(self, log: PureLog) -> None:
        log.timestamp_ms = 70
        offsets = (OffsetToCommit(*HERE, 5, "note", 4, -1), OffsetToCommit(1, 1, 6))
        log.submit(OffsetCommit("r", "group", offsets, owner="me"))
        assert log.records[KEY] == CommittedOffset("group", 1, 0, 5, "note", 4, 70, log.entry, log.entry, "me")
        second = log.records["offset", "group", 1, 1]
        assert second == CommittedOffset("group", 1, 1, 6, None, -1, 70, log.entry, log.entry, "me")

    @pytest.mark.kafka("K104")
    def test_a_commit_in_a_transaction(self, log: PureLog) -> None:
        producer, other = log.initialise("id"), log.initialise("other")
        noted = replace(
            producer.offset(1, "group", HERE, 5), offsets=(OffsetToCommit(*HERE, 5, "note", 4),), owner="me"
        )
        log.submit(other.offset(1, "group", HERE, 9))
        log.submit(producer.offset(1, "group", HERE, 3))
        log.submit(noted)
        sent = log.entry
        mine = PendingOffset("id", 0, 5, "note", 4, sent, "me")
        others = PendingOffset("other", 1, 9, None, -1, sent - 2)
        assert log.records[PENDING] == PendingOffsets("group", 1, 0, (mine, others))
        log.submit(producer.offset(1, "a group", HERE, 1))
        assert log.transaction("id").offsets == (("a group", *HERE), ("group", *HERE))
        log.timestamp_ms = 70
        log.submit(producer.end(1))
        assert log.records[KEY] == CommittedOffset("group", 1, 0, 5, "note", 4, 70, sent, log.entry, "me")
        assert log.records[PENDING] == PendingOffsets("group", 1, 0, (others,))
        log.submit(producer.offset(2, "group", HERE, 6))
        assert [pending.producer_id for pending in log.records[PENDING].offsets] == [0, 1]
        log.submit(producer.end(2, committed=False), other.end(1, committed=False))
        assert PENDING not in log.records

    @pytest.mark.kafka("K108")
    def test_of_two_in_one_entry_the_transactions_stands(self, log: PureLog) -> None:
        """Its commit was not sent in a later entry than the offset that it replaces."""
        producer = log.initialise("id")
        log.submit(producer.offset(1, "group", HERE, 7), plain(log, 3))
        log.submit(producer.end(1))
        assert committed(log) == 7

    @pytest.mark.kafka("K109")
    def test_only_what_the_proposer_saw_is_deleted(self, log: PureLog) -> None:
        producer, other = log.initialise("id"), log.initialise("other")
        log.submit(OffsetCommit("both", "group", (OffsetToCommit(*HERE, 1), OffsetToCommit(1, 1, 2))))
        seen = log.entry
        log.submit(producer.offset(1, "group", HERE, 5), other.offset(1, "group", HERE, 6))
        log.submit(producer.offset(1, "group", (1, 1), 7))
        for number, pending in enumerate(((0, 0, seen), (0, 1, seen), (0, 9, log.entry), (1, 1, log.entry))):
            log.submit(DeleteGroup(f"none {number}", "group", ((*HERE, seen + 1),), ((1, *pending),)))
        assert len(log.records[PENDING].offsets) == 2
        assert committed(log) == 1
        log.submit(DeleteGroup("some", "group", ((*HERE, seen), (1, 5, seen)), ((*HERE, 1, seen + 1),)))
        assert committed(log) is None
        assert log.records["offset", "group", 1, 1].offset == 2
        assert [pending.producer_id for pending in log.records[PENDING].offsets] == [0]
        log.submit(producer.end(1), other.end(1))
        assert (committed(log), log.records["offset", "group", 1, 1].offset) == (5, 7)

    @pytest.mark.kafka("K109")
    def test_a_transaction_ends_without_what_was_deleted_and_with_the_rest(self, log: PureLog) -> None:
        producer = log.initialise("id")
        log.submit(producer.offset(1, "a group", HERE, 1), producer.offset(1, "group", HERE, 2))
        log.submit(DeleteGroup("d", "a group", (), ((*HERE, 0, log.entry),)))
        log.submit(producer.end(1))
        assert committed(log) == 2
        assert ("offset", "a group", *HERE) not in log.records


@pytest.mark.kafka("K106", "K111")
def test_a_group_without_a_name_and_partitions_that_do_not_exist_are_refused(log: PureLog) -> None:
    producer = log.initialise("id")
    refused = {
        ("", *HERE): ErrorCode.INVALID_REQUEST,
        ("group", 1, 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("group", 2, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("group", -2, 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("group", -7, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    for (group_id, *where), code in refused.items():
        topic_id, partition = where
        offsets = (OffsetToCommit(topic_id, partition, 1),)
        with pytest.raises(
            CommandRefused, match=f"partition {partition} of topic id {topic_id} does|is empty"
        ) as raised:
            log.submit(OffsetCommit("r", group_id, offsets))
        assert raised.value.error.code() == code
        assert log.refusal(producer.offset(1, group_id, (topic_id, partition), 1)) == code
    for topic_id in (-2, -3):
        log.submit(OffsetCommit(f"of {topic_id}", "group", (OffsetToCommit(topic_id, 0, 1),)))
        log.submit(producer.offset(1, "group", (topic_id, 0), 2))


@pytest.mark.kafka("K129")
@pytest.mark.parametrize("changes", [{"offset": 6}, {"metadata": "other"}, {"metadata": None}, {"leader_epoch": 5}])
def test_a_prepared_transaction_repeats_only_the_same_offsets(log: PureLog, changes: dict[str, Any]) -> None:
    producer = log.initialise("id")
    noted = OffsetToCommit(*HERE, 5, "note", 4)
    command = replace(producer.offset(1, "group", HERE, 5), offsets=(noted,))
    log.submit(command, producer.prepare(1))
    assert log.submit(command)[0].duplicate
    assert log.refusal(replace(command, offsets=(replace(noted, **changes),))) == ErrorCode.INVALID_TXN_STATE
    assert log.refusal(replace(command, offsets=(noted, OffsetToCommit(1, 1, 5)))) == ErrorCode.INVALID_TXN_STATE
    assert log.refusal(replace(command, group_id="other")) == ErrorCode.INVALID_TXN_STATE
