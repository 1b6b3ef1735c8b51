"""Transactions of version 2 (KIP-890): nothing is added beforehand, and each end gives the producer its next epoch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from sparktxn._engine.state.transactions import producerfencing
from sparktxn._foundation.process.clock import acquired_in_time
from sparktxn._foundation.values.structs import ProducerIdAndEpoch
from sparktxn._programs.gateway import clienttransactions
from sparktxn._programs.gateway.clienttransactions import HeldTransactions
from sparktxn._programs.gateway.gatewaysettings import GatewaySettings
from sparktxn._rows.stage.transactionwriter import NO_IDENTITY
from sparktxn.errors import CommandRefused, ErrorCode, OutcomeLost
from sparktxn.producer.outbox import Outbox
from sparktxn.store import Store
from tests.gateway.gateways import Gateway, RawClient, at_a_gateway
from tests.gateway.requests import add_partition, batch, init_producer, read_all
from tests.gateway.requests import end as end_of_version_1
from tests.gateway.test_transactions import LOST, LOST_OFFSETS, TX, at_two_gateways

ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
Case = Callable[[RawClient, RawClient], Coroutine[Any, Any, None]]


@pytest.fixture(params=[False, True], ids=["memory", "stored"])
def at_two(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Case], None]:
    return lambda case: at_two_gateways(tmp_path, case, stores_transactions=request.param)


async def sent(
    client: RawClient,
    identity: ProducerIdAndEpoch,
    sequence: int,
    *values: bytes,
    partition: int = 0,
    version: int = 12,
) -> int:
    records = batch(values, identity, sequence, transactional=True)
    data = [{"name": "t", "partition_data": [{"index": partition, "records": records}]}]
    answer = await client.call(0, version, transactional_id=TX, acks=-1, timeout=1000, topic_data=data)
    return int(answer.responses[0].partition_responses[0].error_code.value)


async def ended(
    client: RawClient, identity: ProducerIdAndEpoch, *, committed: bool, version: int = 5
) -> tuple[int, ProducerIdAndEpoch]:
    """Return the code, and the identity that follows."""
    named = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
    answer = await client.call(26, version, transactional_id=TX, **named, committed=committed)
    return int(answer.error_code.value), ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)


async def offset_sent(
    client: RawClient, identity: ProducerIdAndEpoch, offset: int, version: int = 5, group: str = "g"
) -> int:
    part = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": 0, "committed_metadata": ""}
    named = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch, "member_id": ""}
    answer = await client.call(
        28, version, transactional_id=TX, group_id=group, **named, generation_id=-1, group_instance_id=None,
        topics=[{"name": "t", "partitions": [part]}],
    )  # fmt: skip
    return int(answer.topics[0].partitions[0].error_code.value)


async def committed_offset(client: RawClient) -> int:
    answer = await client.call(9, 5, group_id="g", topics=[{"name": "t", "partition_indexes": [0]}])
    return int(answer.topics[0].partitions[0].committed_offset)


def after(identity: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(identity.producer_id, identity.producer_epoch + 1)


@pytest.mark.parametrize("version", [3, 4])
def test_clients_learn_which_transactions_they_may_use(tmp_path, version):
    async def case(_: Gateway, client: RawClient) -> None:
        answer = await client.call(18, version, client_software_name="test", client_software_version="1")
        (supported,), (finalized,) = answer.supported_features, answer.finalized_features
        assert (supported.name, supported.min_version, supported.max_version) == ("transaction.version", 0, 2)
        assert (finalized.name, finalized.max_version_level) == ("transaction.version", 2)
        assert answer.finalized_features_epoch >= 0

    at_a_gateway(tmp_path, case)


def test_a_batch_adds_its_partition_and_each_end_gives_the_next_epoch(at_two):
    async def case(first: RawClient, second: RawClient) -> None:
        identity = await init_producer(first, TX)
        for number, committed in enumerate([True, False, True]):
            assert await sent(first, identity, 0, b"%d" % number) == 0
            assert await sent(first, identity, 1, b"%d more" % number) == 0
            assert await sent(first, identity, 0, b"other", partition=1) == 0
            code, renewed = await ended(first, identity, committed=committed)
            assert (code, renewed) == (0, after(identity))
            identity = renewed
        assert await read_all(second, "t") == [b"0", b"0 more", b"2", b"2 more"]
        assert await read_all(second, "t", 1) == [b"other"] * 2

    at_two(case)


@pytest.mark.parametrize("committed", [True, False])
def test_an_end_that_is_asked_for_again_gets_the_same_epoch_at_every_gateway(at_two, committed):
    async def case(first: RawClient, second: RawClient) -> None:
        identity = await init_producer(first, TX)
        assert await sent(first, identity, 0, b"1") == 0
        for client in (first, second, first, second):
            assert await ended(client, identity, committed=committed) == (0, after(identity))
        # It has not ended the other way, and a second end would be of nothing that this epoch has begun.
        for client in (first, second):
            assert (await ended(client, identity, committed=not committed))[0] == ErrorCode.PRODUCER_FENCED
        assert await sent(second, after(identity), 0, b"2") == 0
        assert (await ended(first, identity, committed=committed))[0] == ErrorCode.PRODUCER_FENCED
        assert (await ended(second, after(identity), committed=True))[0] == 0
        assert await read_all(first, "t") == ([b"1"] if committed else []) + [b"2"]

    at_two(case)


def test_what_is_late_of_a_transaction_that_has_ended_is_fenced_at_every_gateway(at_two):
    """With one epoch for all transactions it would begin the next one, or belong to it."""

    async def case(first: RawClient, second: RawClient) -> None:
        identity = await init_producer(first, TX)
        assert await sent(first, identity, 0, b"1") == 0
        assert (await ended(first, identity, committed=True))[0] == 0
        for _ in range(2):
            for client in (first, second):
                for partition in (0, 1):
                    code = await sent(client, identity, 1, b"late", partition=partition)
                    assert code == ErrorCode.INVALID_PRODUCER_EPOCH
                assert await offset_sent(client, identity, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
            assert await sent(second, after(identity), 0, b"2") == 0  # with the next one open, too
        assert (await ended(second, after(identity), committed=True))[0] == 0
        assert await read_all(first, "t") == [b"1", b"2"]

    at_two(case)


def test_what_another_gateway_has_begun_asks_for_an_abort_and_goes_on_with_the_next_epoch(at_two):
    """As after the loss of the gateway that has begun it."""

    async def case(first: RawClient, second: RawClient) -> None:
        identity = await init_producer(first, TX)
        assert await sent(first, identity, 0, b"lost") == 0
        assert await sent(second, identity, 1, b"more") == ABORTABLE
        assert await sent(second, identity, 1, b"more", version=10) == LOST
        assert await offset_sent(second, identity, 1) == ABORTABLE
        assert await offset_sent(second, identity, 1, version=3) == LOST_OFFSETS
        assert (await ended(second, identity, committed=True))[0] == ABORTABLE
        code, renewed = await ended(second, identity, committed=False)
        assert (code, renewed) == (0, after(identity))
        assert await sent(second, renewed, 0, b"kept") == 0
        # The gateway that was left may have what is aborted in its memory still; it commits nothing of it.
        assert await sent(first, identity, 1, b"late") in (0, ErrorCode.INVALID_PRODUCER_EPOCH)
        assert (await ended(first, identity, committed=True))[0] == ErrorCode.PRODUCER_FENCED
        assert (await ended(second, renewed, committed=True))[0] == 0
        assert await read_all(first, "t") == [b"kept"]

    at_two(case)


def test_a_commit_that_is_refused_elsewhere_has_aborted_the_transaction(at_two):
    """Otherwise the gateway that has begun it might still commit it, and the client be fenced where it aborts it."""

    async def case(first: RawClient, second: RawClient) -> None:
        identity = await init_producer(first, TX)
        assert await sent(first, identity, 0, b"1") == 0
        assert (await ended(second, identity, committed=True))[0] == ABORTABLE
        # A commit that was sent to the first one before, and was answered too late.
        assert (await ended(first, identity, committed=True))[0] == ErrorCode.PRODUCER_FENCED
        for client in (second, first):
            assert await ended(client, identity, committed=False) == (0, after(identity))
        assert await read_all(first, "t") == []

    at_two(case)


def test_a_commit_that_another_gateway_has_just_stored_is_answered_as_one(tmp_path, monkeypatch):
    async def case(first: RawClient, second: RawClient) -> None:
        identity = await init_producer(first, TX)
        assert await sent(first, identity, 0, b"1") == 0
        abort = HeldTransactions._abort_and_renew
        loop = asyncio.get_running_loop()

        def committed_before(*arguments: Any) -> ProducerIdAndEpoch:
            ending = ended(first, identity, committed=True)
            assert asyncio.run_coroutine_threadsafe(ending, loop).result(60) == (0, after(identity))
            return abort(*arguments)

        monkeypatch.setattr(HeldTransactions, "_abort_and_renew", committed_before)
        assert await ended(second, identity, committed=True) == (0, after(identity))
        assert await read_all(second, "t") == [b"1"]

    at_two_gateways(tmp_path, case)


def test_a_client_may_change_gateways_at_each_transaction(at_two):
    async def case(first: RawClient, second: RawClient) -> None:
        identity = await init_producer(first, TX)
        for number in range(6):
            client, other = (first, second) if number % 2 else (second, first)
            assert await sent(client, identity, 0, b"%d" % number) == 0
            code, renewed = await ended(client, identity, committed=True)
            assert await ended(other, identity, committed=True) == (code, renewed) == (0, after(identity))
            identity = renewed
        assert await read_all(first, "t") == [b"%d" % number for number in range(6)]

    at_two(case)


def test_an_abort_of_nothing_gives_the_next_epoch_and_a_commit_of_nothing_is_refused(at_two):
    async def case(first: RawClient, second: RawClient) -> None:
        identity = await init_producer(first, TX)
        assert await sent(first, identity, 0, b"1") == 0
        _, identity = await ended(first, identity, committed=True)
        assert (await ended(first, identity, committed=True))[0] == ErrorCode.INVALID_TXN_STATE
        for client in (first, second, first):
            assert await ended(client, identity, committed=False) == (0, after(identity))
        assert await sent(second, after(identity), 0, b"2") == 0
        assert (await ended(second, after(identity), committed=True))[0] == 0
        assert await read_all(first, "t") == [b"1", b"2"]

    at_two(case)


@pytest.mark.parametrize("committed", [True, False])
def test_at_the_last_epoch_an_end_gives_another_producer_id(at_two, monkeypatch, committed):
    async def case(first: RawClient, second: RawClient) -> None:
        identity = await init_producer(first, TX)
        while identity.producer_epoch < 3:
            assert await sent(first, identity, 0, b"%d" % identity.producer_epoch) == 0
            _, identity = await ended(first, identity, committed=True)
        assert await sent(first, identity, 0, b"last") == 0
        code, renewed = await ended(first, identity, committed=committed)
        assert (code, renewed.producer_epoch) == (0, 0)
        assert renewed.producer_id != identity.producer_id
        for client in (second, first):
            assert await ended(client, identity, committed=committed) == (0, renewed)
            assert await sent(client, identity, 1, b"late") in (LOST, ErrorCode.INVALID_PRODUCER_EPOCH)
        assert await sent(second, renewed, 0, b"next") == 0
        assert (await ended(second, renewed, committed=True))[0] == 0
        assert await read_all(first, "t") == [b"0", b"1", b"2"] + ([b"last"] if committed else []) + [b"next"]

    monkeypatch.setattr(producerfencing, "PRODUCER_EPOCH_MAX", 4)
    at_two(case)


def test_offsets_add_their_group_and_may_begin_the_transaction(at_two):
    async def case(first: RawClient, second: RawClient) -> None:
        identity = await init_producer(first, TX)
        assert await offset_sent(first, identity, 3) == 0
        assert await committed_offset(second) == -1
        _, identity = await ended(first, identity, committed=True)
        assert await committed_offset(second) == 3
        assert await sent(first, identity, 0, b"1") == 0
        assert await offset_sent(first, identity, 5) == 0
        _, identity = await ended(first, identity, committed=False)
        assert await committed_offset(second) == 3
        assert await read_all(second, "t") == []
        assert await offset_sent(first, identity, 7, version=4) == ErrorCode.INVALID_TXN_STATE  # it adds nothing

    at_two(case)


def test_a_transaction_of_version_1_keeps_its_epoch(at_two):
    """A client may do without: its older requests mean what they meant."""

    async def case(client: RawClient, other: RawClient) -> None:
        identity = await init_producer(client, TX)
        assert await sent(client, identity, 0, b"x", version=11) == ErrorCode.INVALID_TXN_STATE
        for number in range(2):
            assert await add_partition(client, TX, identity, "t") == 0
            assert await sent(client, identity, number, b"%d" % number, version=11) == 0
            assert await end_of_version_1(client, TX, identity, committed=True) == 0
        assert await read_all(other, "t") == [b"0", b"1"]

    at_two(case)


def test_all_partitions_of_a_request_are_added_by_one_entry(tmp_path):
    async def case(served: Gateway, client: RawClient) -> None:
        identity = await init_producer(client, TX)
        before = served.broker.log.refresh()
        records = batch([b"x"], identity, 0, transactional=True)
        parts = [{"index": partition, "records": records} for partition in (0, 1)]
        for _ in range(2):
            answer = await client.call(
                0, 12, transactional_id=TX, acks=-1, timeout=1000, topic_data=[{"name": "t", "partition_data": parts}]
            )
            assert [part.error_code.value for part in answer.responses[0].partition_responses] == [0, 0]
        assert served.broker.log.refresh() == before + 1
        assert (await ended(client, identity, committed=True))[0] == 0
        assert served.broker.log.refresh() == before + 2

    at_a_gateway(tmp_path, case)


@pytest.fixture
def transactions(tmp_path):
    with Store.open(str(tmp_path / "store"), create=True) as store:
        store.create_topic("t", 2)
        yield HeldTransactions(store.log, GatewaySettings())


def place(transactions: HeldTransactions, partition: int = 0) -> tuple[int, int]:
    topic = transactions._log.topic("t")
    assert topic is not None
    return topic.topic_id, partition


@pytest.mark.parametrize("committed", [True, False])
def test_a_request_that_has_waited_for_the_end_begins_no_transaction(transactions, monkeypatch, committed):
    identity = transactions.initialise(TX, 60_000, NO_IDENTITY)
    transactions.register(TX, identity, {place(transactions)})

    def ended_meanwhile(lock: Any) -> bool:
        monkeypatch.setattr(clienttransactions, "acquired_in_time", acquired_in_time)
        transactions.end_and_renew(TX, identity, committed=committed)
        return acquired_in_time(lock)

    monkeypatch.setattr(clienttransactions, "acquired_in_time", ended_meanwhile)
    with pytest.raises(CommandRefused) as refused:
        transactions.register(TX, identity, {place(transactions, 1)})
    assert refused.value.error.code() == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("renews", [True, False])
def test_a_commit_whose_outcome_is_lost_is_answered_by_the_log_when_it_is_asked_for_again(
    transactions, monkeypatch, renews
):
    """Otherwise it would be taken for one that has failed, and an abort would be answered though it was committed."""
    identity = transactions.initialise(TX, 60_000, NO_IDENTITY)
    transactions.register(TX, identity, {place(transactions)})
    resolve = Outbox.resolve

    def lost(outbox: Outbox, **how: Any) -> Any:
        results = resolve(outbox, **how)
        if results:
            outbox.take_identity(NO_IDENTITY)
            raise OutcomeLost("it will never be known")
        return results

    end = transactions.end_and_renew if renews else transactions.end
    with monkeypatch.context() as patched:
        patched.setattr(Outbox, "resolve", lost)
        with pytest.raises(OutcomeLost):
            end(TX, identity, committed=True)
    assert end(TX, identity, committed=True) == (after(identity) if renews else None)


def test_requests_of_one_producer_at_two_gateways_at_once_end_it_once(tmp_path):
    async def case(first: RawClient, second: RawClient) -> None:
        identity = await init_producer(first, TX)
        for number in range(5):
            assert await sent(first, identity, 0, b"%d" % number) == 0
            outcomes = await asyncio.gather(
                ended(first, identity, committed=True), ended(second, identity, committed=False)
            )
            renewed = [found for code, found in outcomes if code == 0]
            assert renewed == [after(identity)], outcomes
            (identity,) = renewed
        values = await read_all(second, "t")
        assert len(values) == len(set(values))

    at_two_gateways(tmp_path, case)


def test_after_an_abort_from_outside_the_old_epoch_begins_nothing(at_two):
    """The transaction that it begins would be without the records that the client has sent before."""

    async def case(first: RawClient, second: RawClient) -> None:
        identity = await init_producer(first, TX)
        assert await add_partition(first, TX, identity, "t") == 0
        assert await sent(first, identity, 0, b"before") == 0
        described = (await second.call(61, 0, topics=[{"name": "t", "partition_indexes": [0]}])).topics[0].partitions[0]
        (opened,) = described.active_producers
        marker = {
            "producer_id": opened.producer_id,
            "producer_epoch": opened.producer_epoch,
            "transaction_result": False,
            "topics": [{"name": "t", "partition_indexes": [0]}],
            "coordinator_epoch": max(0, opened.coordinator_epoch),
        }
        (aborted,) = (await second.call(27, 1, markers=[marker])).markers
        assert aborted.topics[0].partitions[0].error_code.value == 0
        for client in (first, second):
            assert await add_partition(client, TX, identity, "t", 1) == ErrorCode.PRODUCER_FENCED
            assert await sent(client, identity, 0, b"after", partition=1) == ErrorCode.INVALID_PRODUCER_EPOCH
            assert await offset_sent(client, identity, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
            assert (await ended(client, identity, committed=True))[0] == ErrorCode.PRODUCER_FENCED
            assert await end_of_version_1(client, TX, identity, committed=True) == ErrorCode.PRODUCER_FENCED
        for partition in (0, 1):
            assert await read_all(first, "t", partition) == []

    at_two(case)


@pytest.mark.parametrize("version", [4, 5])
def test_partitions_of_several_transactions_are_added_by_one_request(tmp_path, version):
    async def case(_: Gateway, client: RawClient) -> None:
        identity = await init_producer(client, TX)

        async def added(*partitions: int, name: str = TX, only_checks: bool = False) -> list[int]:
            asked = {
                "transactional_id": name,
                "producer_id": identity.producer_id,
                "producer_epoch": identity.producer_epoch,
                "verify_only": only_checks,
                "topics": [{"name": "t", "partitions": list(partitions)}],
            }
            answer = await client.call(24, version, transactions=[asked])
            (result,) = answer.results_by_transaction
            assert result.transactional_id == name
            return [int(part.partition_error_code.value) for part in result.topic_results[0].results_by_partition]

        abortable = ABORTABLE if version == 5 else LOST
        assert await added(0, only_checks=True) == [abortable]
        assert await added(0, 7) == [55, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await added(0) == [0]
        assert await added(0, only_checks=True) == [0]
        assert await added(0, 1, only_checks=True) == [abortable] * 2
        assert await added(0, name="other") == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        assert await sent(client, identity, 0, b"1", version=11) == 0
        assert (await ended(client, identity, committed=True))[0] == 0
        assert await read_all(client, "t") == [b"1"]

    at_a_gateway(tmp_path, case)
