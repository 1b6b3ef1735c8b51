"""Forgetting what is idle (K46 to K49, K62, K69): only if it is still as the proposer saw it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sparktxn._engine.format.checkpoint import part_of
from sparktxn._engine.format.commands import (
    AddPartitionsToTxn,
    Command,
    CommandResult,
    DeleteTopic,
    ExpireOffsets,
    ExpireProducers,
    ExpireTransactionalId,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetToCommit,
    TxnOffsetCommit,
)
from sparktxn._engine.state.rules import parts_touched_by
from sparktxn._engine.state.transactions import transactions
from sparktxn._engine.state.transactions.partitions import last_stable_offset
from sparktxn._foundation.values.structs import ProducerState, TransactionStatus
from sparktxn.errors import ErrorCode
from tests.purelog import PureLog

HERE, THERE = (1, 0), (1, 1)


def expiry(log: PureLog, name: str = "id", **changes: object) -> ExpireTransactionalId:
    record = log.transaction(name)
    seen = ExpireTransactionalId(name, record.producer_id, record.producer_epoch, record.transaction)
    return replace(seen, **changes)


def seen(log: PureLog, producer_id: int, where: tuple[int, int] = HERE) -> tuple[int, int, int, int]:
    known = log.records["producer", *where, producer_id]
    assert isinstance(known, ProducerState)
    return (producer_id, known.producer_epoch, known.last_sequence, known.coordinator_epoch)


@pytest.mark.kafka("K46")
@pytest.mark.parametrize("committed", [None, True, False])
def test_an_idle_id_is_forgotten_and_passes_dead(
    log: PureLog, monkeypatch: pytest.MonkeyPatch, committed: bool | None
) -> None:
    producer = log.initialise("id")
    if committed is not None:
        log.submit(producer.append(HERE, 0, transaction=1), producer.end(1, committed=committed))
    passed = []
    allowed = transactions.is_valid_transition

    def noting(previous: TransactionStatus, status: TransactionStatus) -> bool:
        passed.append(status)
        return allowed(previous, status)

    monkeypatch.setattr(transactions, "is_valid_transition", noting)
    assert not log.submit(expiry(log))[0].duplicate
    assert TransactionStatus.DEAD in passed
    assert ("transaction", "id") not in log.records


@pytest.mark.kafka("K46")
def test_an_ongoing_transaction_never_expires(log: PureLog) -> None:
    producer = log.initialise("id")
    log.submit(producer.append(HERE, 0, transaction=1))
    assert log.refusal(expiry(log)) == ErrorCode.INVALID_TXN_STATE
    log.submit(producer.end(1))


@pytest.mark.kafka("K47")
@pytest.mark.parametrize("changes", [{"producer_id": 5}, {"producer_epoch": 1}, {"transaction": 1}])
def test_an_id_that_was_used_since_stays(log: PureLog, changes: dict[str, Any]) -> None:
    log.initialise("id")
    before = dict(log.records)
    assert log.refusal(expiry(log, **changes)) == ErrorCode.INVALID_TXN_STATE
    assert log.records == before


def test_an_id_that_is_gone_expires_once(log: PureLog) -> None:
    log.initialise("id")
    command = expiry(log)
    log.submit(command)
    entry = log.entry
    assert log.submit(command)[0].duplicate
    assert log.entry == entry


@pytest.mark.kafka("K48", "K19", "K30")
def test_a_producer_of_a_forgotten_id_is_not_known_and_its_next_one_has_another_producer_id(log: PureLog) -> None:
    old = log.initialise("id")
    log.submit(expiry(log))
    assert log.refusal(old.append(HERE, 0, transaction=1)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert log.refusal(old.end(1)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    new = log.initialise("id", producer_id=old.producer_id, producer_epoch=old.producer_epoch)
    assert (new.producer_id, new.producer_epoch) == (old.producer_id + 1, 0)
    assert log.refusal(old.append(HERE, 0, transaction=1)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    log.submit(new.append(HERE, 0, transaction=1), new.end(1))


@pytest.mark.kafka("K69", "K62")
def test_an_idle_producer_is_forgotten_and_may_go_on_at_any_sequence(log: PureLog) -> None:
    producer = log.initialise(None)
    log.submit(producer.append(HERE, 0, 3))
    log.submit(ExpireProducers(*HERE, (seen(log, producer.producer_id),)))
    assert ("producer", *HERE, producer.producer_id) not in log.records
    log.submit(producer.append(HERE, 3))


@pytest.mark.kafka("K69")
def test_a_producer_with_an_open_transaction_does_not_expire(log: PureLog) -> None:
    producer = log.initialise("id")
    log.submit(producer.append(HERE, 0, transaction=1))
    entry = log.entry
    assert log.submit(ExpireProducers(*HERE, (seen(log, producer.producer_id),)))[0].duplicate
    assert log.entry == entry
    log.submit(producer.end(1))
    assert last_stable_offset(log.partition()) == log.partition().log_end_offset


def test_a_producer_that_has_appended_or_ended_since_stays(log: PureLog) -> None:
    plain, other = log.initialise(None), log.initialise("id")
    log.submit(plain.append(HERE, 0), other.append(HERE, 0, transaction=1), other.end(1))
    command = ExpireProducers(*HERE, (seen(log, plain.producer_id), seen(log, other.producer_id)))
    log.submit(plain.append(HERE, 1))
    log.submit(other.append(HERE, 1, transaction=2), other.end(2, committed=False))
    assert log.submit(command)[0].duplicate
    # The records' times are all the same: they show nothing.
    assert log.submit(plain.append(HERE, 1))[0].duplicate


def test_those_that_are_idle_are_forgotten_though_others_are_not(log: PureLog) -> None:
    idle, busy = log.initialise(None), log.initialise(None)
    log.submit(idle.append(HERE, 0), busy.append(HERE, 0))
    command = ExpireProducers(*HERE, (seen(log, idle.producer_id), seen(log, busy.producer_id)))
    log.submit(busy.append(HERE, 1))
    assert not log.submit(command)[0].duplicate
    assert ("producer", *HERE, idle.producer_id) not in log.records
    assert log.refusal(busy.append(HERE, 7)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.kafka("K49")
def test_an_id_outlives_its_producer_in_a_partition(log: PureLog) -> None:
    first = log.initialise("id")
    log.submit(first.append(HERE, 0, transaction=1), first.end(1))
    log.submit(ExpireProducers(*HERE, (seen(log, first.producer_id),)))
    second = log.initialise("id")
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, first.producer_epoch + 1)
    log.submit(second.append(HERE, 0, transaction=2), second.end(2))
    assert log.refusal(first.append(HERE, 1, transaction=3)) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.kafka("K55")
def test_what_a_deleted_topic_has_left_behind_is_forgotten_even_inside_its_transaction(log: PureLog) -> None:
    log.create_topic("other")
    producer = log.initialise("id")
    log.submit(producer.append((2, 0), 0, transaction=1), producer.append(HERE, 0, transaction=1))
    commit = OffsetCommit("o", "group", (OffsetToCommit(2, 0, 1), OffsetToCommit(*HERE, 1)))
    log.submit(commit)
    log.submit(DeleteTopic("d", "other", 2))
    log.submit(ExpireProducers(2, 0, (seen(log, producer.producer_id, (2, 0)),)))
    log.submit(ExpireOffsets("group", ((2, 0), HERE)))
    assert not [key for key in log.records if key[0] == "producer" and key[1] == 2]
    assert [key for key in log.records if key[0] == "offset"] == [("offset", "group", *HERE)]
    assert log.submit(ExpireOffsets("group", ((2, 0), HERE)))[0].duplicate
    log.submit(producer.end(1))
    assert log.transaction("id").status is TransactionStatus.COMPLETE_COMMIT


def idle_offsets(log: PureLog, **changes: object) -> ExpireOffsets:
    """The expiry of a group's two offsets as they are now."""
    found = [record for key, record in sorted(log.records.items()) if key[0] == "offset" and key[1] == "group"]
    empty = log.records.get(("empty_group", "group"))
    seen_ = tuple((one.topic_id, one.partition, one.effective_entry) for one in found)
    return replace(ExpireOffsets("group", (), seen_, empty.entry if empty is not None else 0), **changes)


def join(log: PureLog, name: str = "m") -> None:
    log.submit(JoinGroup(f"join-{name}", "group", name, ("topic",), 1, 1, ("uniform",)))


def leave(log: PureLog, name: str = "m") -> None:
    log.submit(LeaveGroup(f"leave-{name}", "group", name))


def committed(log: PureLog) -> list[tuple[str | int, ...]]:
    return sorted(key[2:] for key in log.records if key[0] == "offset" and key[1] == "group")


class TestIdleOffsets:
    """KIP-211: offsets of a group without members."""

    @pytest.fixture
    def log(self, log: PureLog) -> PureLog:
        offsets = tuple(OffsetToCommit(*where, 1) for where in (HERE, THERE))
        log.submit(OffsetCommit("o", "group", offsets))
        return log

    @pytest.mark.parametrize("where", [HERE, THERE])
    def test_those_that_are_as_they_were_seen_are_forgotten(self, log: PureLog, where: tuple[int, int]) -> None:
        command = idle_offsets(log)
        log.submit(OffsetCommit("later", "group", (OffsetToCommit(*where, 2),)))
        log.submit(command)
        assert committed(log) == [where]
        assert log.submit(command)[0].duplicate

    def test_none_while_the_group_has_members(self, log: PureLog) -> None:
        join(log)
        for empty_entry in (0, log.entry):
            assert log.submit(idle_offsets(log, empty_entry=empty_entry))[0].duplicate
        assert committed(log) == [HERE, THERE]

    def test_none_if_members_have_come_and_gone_since(self, log: PureLog) -> None:
        before = idle_offsets(log)
        join(log)
        leave(log)
        assert log.submit(before)[0].duplicate
        between = idle_offsets(log)
        join(log, "other")
        leave(log, "other")
        assert log.submit(between)[0].duplicate
        assert committed(log) == [HERE, THERE]
        log.submit(idle_offsets(log))
        assert committed(log) == []

    def test_none_that_an_open_transaction_is_about_to_replace(self, log: PureLog) -> None:
        producer = log.initialise("id")
        log.submit(TxnOffsetCommit("id", producer.producer_id, 0, 1, "group", (OffsetToCommit(*HERE, 5),)))
        command = idle_offsets(log)
        log.submit(command)
        assert committed(log) == [HERE]
        log.submit(producer.end(1))
        assert log.submit(command)[0].duplicate
        log.submit(idle_offsets(log))
        assert committed(log) == []

    def test_what_is_left_of_the_group_goes_by_itself(self, log: PureLog) -> None:
        join(log)
        leave(log)
        log.submit(idle_offsets(log))
        empty = log.records["empty_group", "group"].entry
        for other in (0, empty - 1, empty + 1):
            assert log.submit(ExpireOffsets("group", empty_entry=other))[0].duplicate
        assert log.submit(ExpireOffsets("group", ((9, 9),), empty_entry=empty))[0].duplicate
        log.submit(ExpireOffsets("group", empty_entry=empty))
        assert not [key for key in log.records if "group" in key]
        assert log.submit(ExpireOffsets("group"))[0].duplicate


@pytest.mark.kafka("K64")
def test_a_fence_without_records_leaves_no_producer_and_fences_all_the_same(log: PureLog) -> None:
    producer = log.initialise("id")
    log.submit(AddPartitionsToTxn("id", producer.producer_id, 0, 1, (HERE,)))
    log.submit(producer.end(1, committed=False, timed_out_after_ms=1))
    assert ("producer", *HERE, producer.producer_id) not in log.records
    assert log.segments().aborted == ()
    assert log.partition().log_end_offset == 0
    assert log.refusal(producer.append(HERE, 0, transaction=2)) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    "command",
    [
        ExpireTransactionalId("id", 0, 0, 0),
        ExpireProducers(7, 70, ((17, 0, 0, 0), (33, 0, 0, 0), (2, 0, 0, 0))),
        ExpireOffsets("group", ((7, 0), (8, 128))),
        ExpireOffsets("group", (), ((7, 0, 1), (8, 128, 2))),
    ],
)
def test_every_part_that_is_read_is_named(command: Command) -> None:
    asked: set[str] = set()
    log = PureLog()

    class Asked(dict):
        def get(self, key, default=None):
            asked.add(part_of(key))
            return super().get(key, default)

    log.records = Asked()
    log.submit(command)
    assert asked <= {*parts_touched_by(command, 1), "store"}


def test_one_producer_that_stays_does_not_keep_the_others(log: PureLog) -> None:
    """The first has sent since it was seen, the second has an open transaction, and the third is idle."""
    busy, idle = log.initialise(None), log.initialise(None)
    open_ = log.initialise("id")
    for producer in (busy, idle):
        log.submit(producer.append(HERE, 0))
    log.submit(open_.append(HERE, 0, transaction=1))
    proposed = tuple(seen(log, producer.producer_id) for producer in (busy, open_, idle))
    log.submit(busy.append(HERE, 1))
    assert log.submit(ExpireProducers(*HERE, proposed)) == [CommandResult()]
    kept = [key[3] for key in log.records if key[0] == "producer"]
    assert sorted(kept) == sorted([busy.producer_id, open_.producer_id])
