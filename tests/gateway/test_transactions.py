"""Transactions through gateways: what one acknowledges from memory is committed whole, or never."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from sparktxn._foundation.values.structs import ProducerIdAndEpoch
from sparktxn.admin import AdminClient
from sparktxn.errors import ErrorCode
from sparktxn.store import Store
from tests.gateway.gateways import Gateway, RawClient, at_a_gateway, gateway, raw_client
from tests.gateway.requests import (
    add_partition,
    batch,
    end,
    fetch,
    init_producer,
    produce,
    read_all,
)

LOST = ErrorCode.INVALID_PRODUCER_ID_MAPPING
LOST_OFFSETS = ErrorCode.ILLEGAL_GENERATION
"""What asks a client to abort in an answer to TxnOffsetCommit: librdkafka takes the other one for a fatal error."""
TX = "tx"

Case = Callable[[RawClient, RawClient], Coroutine[Any, Any, None]]


def at_two_gateways(folder: Path, case: Case, **settings: Any) -> None:
    """Run a case with a client at each of two gateways, in different processes as far as the store knows."""

    async def run() -> None:
        uri = folder / "store"
        with Store.open(str(uri), create=True) as store:
            store.create_topic("t", 2)
        # Other options make another log of the same store: what this gateway knows, the other one reads from the store.
        async with (
            gateway(uri, **settings) as one,
            gateway(uri.with_name("same"), **settings) as other,
            raw_client(one) as first,
            raw_client(other) as second,
        ):
            await case(first, second)

    (folder / "same").symlink_to(folder / "store", target_is_directory=True)
    asyncio.run(run())


async def begun(client: RawClient, *values: bytes, sequence: int = 0, identity: Any = None) -> Any:
    identity = identity or await init_producer(client, TX)
    assert await add_partition(client, TX, identity, "t") == 0
    if values:
        sent = batch(values, identity, sequence, transactional=True)
        assert (await produce(client, "t", 0, sent, transactional_id=TX)).error_code.value == 0
    return identity


def test_a_commit_shows_all_of_a_transaction_and_an_abort_none(tmp_path):
    async def case(client: RawClient, other: RawClient) -> None:
        identity = await begun(client, b"1", b"2")
        assert await read_all(other, "t", committed=False) == []  # they are in the gateway's memory
        assert await end(client, TX, identity, committed=True) == 0
        await begun(client, b"3", sequence=2, identity=identity)
        assert await end(client, TX, identity, committed=False) == 0
        await begun(client, b"4", sequence=3, identity=identity)
        assert await end(client, TX, identity, committed=True) == 0
        assert await read_all(client, "t") == await read_all(other, "t") == [b"1", b"2", b"4"]

    at_two_gateways(tmp_path, case)


def test_what_a_gateway_has_in_memory_no_other_one_commits(tmp_path):
    async def case(first: RawClient, second: RawClient) -> None:
        identity = await begun(first, b"lost")
        assert await end(second, TX, identity, committed=True) == LOST
        assert await end(second, TX, identity, committed=False) == 0
        await begun(second, b"kept", sequence=1, identity=identity)
        assert await end(second, TX, identity, committed=True) == 0
        assert await read_all(first, "t") == [b"kept"]

    at_two_gateways(tmp_path, case)


def test_a_commit_after_a_committed_one_does_not_pass_where_its_records_are_not(tmp_path):
    """A client's epoch is the same in both: only the entries that open them differ."""

    async def case(first: RawClient, second: RawClient) -> None:
        identity = await begun(first, b"1")
        assert await end(first, TX, identity, committed=True) == 0
        await begun(first, b"2", sequence=1, identity=identity)
        assert await end(second, TX, identity, committed=True) == LOST
        assert await read_all(second, "t") == [b"1"]

    at_two_gateways(tmp_path, case)


def test_a_transaction_that_another_gateway_has_begun_is_not_taken_for_the_next_one(tmp_path):
    """The second one has committed the transaction before it, and so knows the producer."""

    async def case(first: RawClient, second: RawClient) -> None:
        identity = await begun(second, b"before")
        assert await end(second, TX, identity, committed=True) == 0
        await begun(first, b"lost", sequence=1, identity=identity)
        assert await add_partition(second, TX, identity, "t", 1) == LOST
        assert await add_partition(second, TX, identity, "t", 1) == LOST
        assert await end(second, TX, identity, committed=True) == LOST
        assert await end(second, TX, identity, committed=False) == 0
        assert await end(first, TX, identity, committed=True) == LOST
        await begun(second, b"again", sequence=2, identity=identity)
        assert await end(second, TX, identity, committed=True) == 0
        assert await read_all(first, "t") == [b"before", b"again"]

    at_two_gateways(tmp_path, case)


def test_what_belongs_to_a_transaction_at_another_gateway_asks_for_an_abort(tmp_path):
    """The second one knows the producer; a state that is not valid would end the client."""

    async def case(first: RawClient, second: RawClient) -> None:
        identity = await begun(second, b"before")
        assert await end(second, TX, identity, committed=True) == 0
        await begun(first, b"lost", sequence=1, identity=identity)
        sent = batch([b"more"], identity, 2, transactional=True)
        assert (await produce(second, "t", 0, sent, transactional_id=TX)).error_code.value == LOST
        assert await offset_sent(second, identity) == LOST_OFFSETS
        assert await end(second, TX, identity, committed=True) == LOST
        assert await end(second, TX, identity, committed=False) == 0
        assert await read_all(first, "t") == [b"before"]

    at_two_gateways(tmp_path, case)


def test_an_offset_in_a_topic_that_was_made_at_another_gateway_is_in_no_unknown_one(tmp_path):
    async def case(first: RawClient, second: RawClient) -> None:
        identity = await begun(first, b"lost")
        made = {"name": "u", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        (answer,) = (await first.call(19, 5, topics=[made], timeout=1000, validate_only=False)).topics
        assert answer.error_code.value == 0
        assert await offset_sent(second, identity, "u") == LOST_OFFSETS

    at_two_gateways(tmp_path, case)


async def offset_sent(client: RawClient, identity: Any, topic: str = "t") -> int:
    """Send an offset of a group in the transaction; return the code."""
    part = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": 0, "committed_metadata": ""}
    named = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch, "member_id": ""}
    answer = await client.call(
        28, 3, transactional_id=TX, group_id="g", **named, generation_id=-1, group_instance_id=None,
        topics=[{"name": topic, "partitions": [part]}],
    )  # fmt: skip
    return int(answer.topics[0].partitions[0].error_code.value)


def test_offsets_of_a_transaction_that_another_gateway_has_begun_are_not_taken(tmp_path):
    async def case(first: RawClient, second: RawClient) -> None:
        identity = await begun(second, b"before")
        assert await end(second, TX, identity, committed=True) == 0
        await begun(first, b"lost", sequence=1, identity=identity)
        named = {"transactional_id": TX, "producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
        assert (await second.call(25, 3, **named, group_id="g")).error_code.value == LOST
        assert await end(second, TX, identity, committed=False) == 0
        assert await read_all(first, "t") == [b"before"]

    at_two_gateways(tmp_path, case)


def test_a_commit_that_is_asked_for_twice_is_answered_by_every_gateway(tmp_path):
    async def case(first: RawClient, second: RawClient) -> None:
        identity = await begun(first, b"1")
        for client in (first, first, second):
            assert await end(client, TX, identity, committed=True) == 0
        assert await end(second, TX, identity, committed=False) == ErrorCode.INVALID_TXN_STATE
        assert await read_all(second, "t") == [b"1"]

    at_two_gateways(tmp_path, case)


def test_a_gateway_that_was_left_commits_nothing_of_an_aborted_transaction(tmp_path):
    async def case(first: RawClient, second: RawClient) -> None:
        identity = await begun(first, b"old")
        assert await end(second, TX, identity, committed=False) == 0
        await begun(second, b"new", sequence=1, identity=identity)
        # The client's request that waited at the first gateway: it means the transaction that is aborted.
        assert await end(first, TX, identity, committed=True) != 0
        assert await end(second, TX, identity, committed=True) == 0
        assert await read_all(first, "t") == [b"new"]

    at_two_gateways(tmp_path, case)


def test_a_client_may_change_gateways_between_transactions(tmp_path):
    async def case(first: RawClient, second: RawClient) -> None:
        identity = await init_producer(first, TX)
        for number in range(6):
            client = (first, second)[number // 2 % 2]
            await begun(client, b"%d" % number, sequence=number, identity=identity)
            assert await end(client, TX, identity, committed=number != 2) == 0
        assert await read_all(first, "t") == [b"0", b"1", b"3", b"4", b"5"]

    at_two_gateways(tmp_path, case)


def test_a_newer_producer_fences_the_older_one_at_every_gateway(tmp_path):
    async def case(first: RawClient, second: RawClient) -> None:
        old = await begun(first, b"old")
        new = await begun(second, b"new")
        assert new.producer_epoch > old.producer_epoch
        assert await end(first, TX, old, committed=True) == ErrorCode.PRODUCER_FENCED
        refused = await produce(second, "t", 0, batch([b"late"], old, 1, transactional=True), transactional_id=TX)
        assert refused.error_code.value == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await end(second, TX, new, committed=True) == 0
        assert await read_all(first, "t") == [b"new"]

    at_two_gateways(tmp_path, case)


def test_a_batch_that_is_sent_twice_is_taken_once_and_none_is_left_out(tmp_path):
    async def case(client: RawClient, _: RawClient) -> None:
        identity = await begun(client, b"1", b"2")
        for values, sequence, code in [
            ((b"1", b"2"), 0, 0),
            ((b"4",), 3, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
            ((b"3",), 2, 0),
            ((b"3",), 2, 0),
        ]:
            sent = batch(values, identity, sequence, transactional=True)
            assert (await produce(client, "t", 0, sent, transactional_id=TX)).error_code.value == code
        assert await end(client, TX, identity, committed=True) == 0
        assert await read_all(client, "t") == [b"1", b"2", b"3"]

    at_two_gateways(tmp_path, case)


def test_a_partition_that_was_not_added_takes_no_records(tmp_path):
    async def case(client: RawClient, _: RawClient) -> None:
        identity = await begun(client, b"1")
        refused = await produce(client, "t", 1, batch([b"x"], identity, 0, transactional=True), transactional_id=TX)
        assert refused.error_code.value == ErrorCode.INVALID_TXN_STATE

    at_two_gateways(tmp_path, case)


def test_an_open_transaction_holds_back_readers_of_committed_records_only_once_it_has_records(tmp_path):
    async def case(client: RawClient, other: RawClient) -> None:
        identity = await begun(client, b"1")
        plain = batch([b"plain"])
        assert (await produce(other, "t", 0, plain)).error_code.value == 0
        assert await read_all(other, "t") == [b"plain"]
        assert await end(client, TX, identity, committed=True) == 0
        assert await read_all(other, "t") == [b"plain", b"1"]

    at_two_gateways(tmp_path, case)


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_without_records_ends(tmp_path, committed):
    async def case(client: RawClient, _: RawClient) -> None:
        identity = await begun(client)
        assert await end(client, TX, identity, committed=committed) == 0
        assert (await fetch(client, "t", 0, 0)).high_watermark in (0, 1)

    at_two_gateways(tmp_path, case)


@pytest.mark.parametrize("how", ["commit", "abort", "again", "fenced"])
def test_the_memory_of_a_transaction_is_given_back_however_it_ends(tmp_path, how):
    async def case(served: Gateway, client: RawClient) -> None:
        with Store.open(str(tmp_path / "store")) as store:
            store.create_topic("held")
        held = served.broker.transactions
        one, other = await init_producer(client, TX), await init_producer(client, "other")
        for name, identity in ((TX, one), ("other", other)):
            assert await add_partition(client, name, identity, "held") == 0
            sent = batch([b"x" * 1_000], identity, 0, transactional=True)
            assert (await produce(client, "held", 0, sent, transactional_id=name)).error_code.value == 0
        both_bytes = held.memory_bytes
        assert both_bytes > 2_000
        if how in ("commit", "abort"):
            assert await end(client, TX, one, committed=how == "commit") == 0
        elif how == "again":
            await init_producer(client, TX)
        else:
            with AdminClient({"bootstrap.servers": str(tmp_path / "store")}) as admin:
                fenced = admin.fence_producers([TX])[TX].result()
            fencing = ProducerIdAndEpoch(fenced.producer_id, fenced.producer_epoch)
            assert await add_partition(client, TX, fencing, "held") == 0
        assert held.memory_bytes == both_bytes / 2
        assert await end(client, "other", other, committed=True) == 0
        assert held.memory_bytes == 0

    at_a_gateway(tmp_path, case)


def test_records_of_many_open_transactions_leave_the_memory_early(tmp_path):
    async def case(client: RawClient, _: RawClient) -> None:
        identities = {name: await init_producer(client, name) for name in ("a", "b")}
        for sequence in range(4):
            for name, identity in identities.items():
                assert await add_partition(client, name, identity, "t") == 0
                sent = batch([b"x" * 40_000, b"%d" % sequence], identity, 2 * sequence, transactional=True)
                assert (await produce(client, "t", 0, sent, transactional_id=name)).error_code.value == 0
        uploaded = list(tmp_path.glob("store/**/*.parquet"))
        assert uploaded
        for name, identity in identities.items():
            assert await end(client, name, identity, committed=True) == 0
        values = await read_all(client, "t")
        assert [value for value in values if value and len(value) == 1] == [b"0", b"1", b"2", b"3"] * 2

    at_two_gateways(tmp_path, case, transactions_bytes_max=100_000)


def test_records_of_a_transaction_that_ended_without_its_client_leave_the_memory(tmp_path):
    """Otherwise they would count without end, and the batches of all others be uploaded one by one."""

    async def case(first: RawClient, second: RawClient) -> None:
        await begun(first, b"x" * 60_000)
        await init_producer(second, TX)  # it fences the client, which never comes back, and aborts what it had open
        for name, count in (("a", 1), ("b", 2)):
            identity = await init_producer(first, name)
            assert await add_partition(first, name, identity, "t", 1) == 0
            for sequence in range(count):
                sent = batch([b"y" * 20_000], identity, sequence, transactional=True)
                assert (await produce(first, "t", 1, sent, transactional_id=name)).error_code.value == 0
        assert not list(tmp_path.glob("store/**/*.parquet"))
        assert await end(first, "b", identity, committed=True) == 0
        assert await read_all(second, "t", 1) == [b"y" * 20_000] * 2

    at_two_gateways(tmp_path, case, transactions_bytes_max=100_000)
