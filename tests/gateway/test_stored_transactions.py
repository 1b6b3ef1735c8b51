"""Transactions whose records a gateway stores at once: their offsets are known, and the log has them before the end."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sparktxn.errors import ErrorCode
from tests.gateway.gateways import RawClient
from tests.gateway.requests import add_partition, batch, end, fetch, init_producer, produce, read_all
from tests.gateway.test_transactions import LOST, TX, at_two_gateways

Case = Callable[[RawClient, RawClient], Coroutine[Any, Any, None]]


def at_two(folder: Path, case: Case) -> None:
    at_two_gateways(folder, case, stores_transactions=True)


async def begun(client: RawClient) -> Any:
    identity = await init_producer(client, TX)
    assert await add_partition(client, TX, identity, "t") == 0
    return identity


async def sent(client: RawClient, identity: Any, sequence: int, *values: bytes, partition: int = 0) -> tuple[int, int]:
    """Return the code and the base offset of the answer."""
    records = batch(values, identity, sequence, transactional=True)
    answer = await produce(client, "t", partition, records, transactional_id=TX)
    return answer.error_code.value, answer.base_offset


def test_records_have_offsets_and_are_seen_before_they_are_committed(tmp_path):
    async def case(client: RawClient, other: RawClient) -> None:
        identity = await begun(client)
        assert await sent(client, identity, 0, b"1", b"2") == (0, 0)
        assert await sent(client, identity, 2, b"3") == (0, 2)
        assert await read_all(other, "t", committed=False) == [b"1", b"2", b"3"]
        assert await read_all(other, "t") == []
        found = await fetch(other, "t", 0, 0)
        assert (found.last_stable_offset, found.high_watermark) == (0, 3)
        assert await end(client, TX, identity, committed=True) == 0
        assert await read_all(other, "t") == [b"1", b"2", b"3"]

    at_two(tmp_path, case)


def test_an_aborted_transaction_leaves_its_offsets_and_no_record(tmp_path):
    async def case(client: RawClient, other: RawClient) -> None:
        identity = await begun(client)
        assert await sent(client, identity, 0, b"1", b"2") == (0, 0)
        assert await end(client, TX, identity, committed=False) == 0
        assert await add_partition(client, TX, identity, "t") == 0
        _, offset = await sent(client, identity, 2, b"3")
        assert offset >= 2
        assert await end(client, TX, identity, committed=True) == 0
        assert await read_all(other, "t") == [b"3"]

    at_two(tmp_path, case)


def test_a_batch_that_is_sent_twice_keeps_its_offset(tmp_path):
    async def case(client: RawClient, _: RawClient) -> None:
        identity = await begun(client)
        assert await sent(client, identity, 0, b"1", b"2") == (0, 0)
        assert await sent(client, identity, 2, b"3") == (0, 2)
        assert await sent(client, identity, 0, b"1", b"2") == (0, 0)
        assert await sent(client, identity, 2, b"3") == (0, 2)
        assert (await sent(client, identity, 4, b"5"))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await sent(client, identity, 3, b"4") == (0, 3)
        assert await end(client, TX, identity, committed=True) == 0
        assert await read_all(client, "t") == [b"1", b"2", b"3", b"4"]

    at_two(tmp_path, case)


def test_other_records_under_the_sequence_of_a_batch_that_was_refused_are_read(tmp_path):
    """Both are uploaded before the log sees them: their files must have names of their own."""

    async def case(client: RawClient, other: RawClient) -> None:
        identity = await begun(client)
        refused, *values = (Random(number).randbytes(300_000) for number in range(4))
        assert await sent(client, identity, 0, values[0]) == (0, 0)
        assert (await sent(client, identity, 2, refused))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await sent(client, identity, 1, values[1]) == (0, 1)
        assert await sent(client, identity, 2, values[2]) == (0, 2)
        assert await end(client, TX, identity, committed=True) == 0
        assert await read_all(other, "t") == values

    at_two(tmp_path, case)


@pytest.mark.parametrize("committed", [True, False])
def test_a_batch_that_comes_after_the_end_is_refused(tmp_path, committed):
    async def case(client: RawClient, _: RawClient) -> None:
        identity = await begun(client)
        assert await sent(client, identity, 0, b"1") == (0, 0)
        assert await end(client, TX, identity, committed=committed) == 0
        assert (await sent(client, identity, 1, b"late"))[0] == ErrorCode.INVALID_TXN_STATE
        assert await read_all(client, "t", committed=False) == [b"1"]

    at_two(tmp_path, case)


def test_a_partition_that_was_not_added_takes_no_records(tmp_path):
    async def case(client: RawClient, _: RawClient) -> None:
        identity = await begun(client)
        assert await sent(client, identity, 0, b"x", partition=1) == (ErrorCode.INVALID_TXN_STATE, -1)

    at_two(tmp_path, case)


def test_another_gateway_aborts_it_and_commits_nothing_of_it(tmp_path):
    """It cannot know whether the first one has stored all of it: that one may keep records in memory."""

    async def case(first: RawClient, second: RawClient) -> None:
        identity = await begun(first)
        assert await sent(first, identity, 0, b"1") == (0, 0)
        assert (await sent(second, identity, 1, b"2"))[0] == LOST
        assert await end(second, TX, identity, committed=True) == LOST
        assert await end(second, TX, identity, committed=False) == 0
        assert await end(first, TX, identity, committed=True) != 0
        assert await read_all(second, "t") == []

    at_two(tmp_path, case)


def test_a_newer_producer_fences_the_older_one(tmp_path):
    async def case(first: RawClient, second: RawClient) -> None:
        old = await begun(first)
        assert await sent(first, old, 0, b"old") == (0, 0)
        new = await begun(second)
        for client in (first, second):
            assert (await sent(client, old, 1, b"late"))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await sent(second, new, 0, b"new"))[0] == 0
        assert await end(second, TX, new, committed=True) == 0
        assert await read_all(first, "t") == [b"new"]

    at_two(tmp_path, case)
