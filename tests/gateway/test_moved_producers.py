"""Producers that move between gateways with and without `--store-transactions`: they go on, and nothing comes twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from sparktxn._engine.format.commands import ExpireProducers
from sparktxn.errors import ErrorCode
from sparktxn.store import Store
from tests.gateway.movedproducers import TOPIC, TX, Manner, MovingProducer, Sent, Site, random_history, sites
from tests.gateway.requests import batch, end, init_producer, produce, produce_members, read_all
from tests.seeds import examples, night_seed

OPTIONS = [pytest.param(False, id="memory"), pytest.param(True, id="stored")]

Case = Callable[[MovingProducer, Site, Site], Coroutine[Any, Any, None]]


async def committed(producer: MovingProducer, site: Site, *sizes: int) -> list[Sent]:
    """Commit a transaction with batches of these sizes."""
    assert await producer.begin(site, 0)
    batches = []
    for size in sizes:
        batches.append(producer.make(0, size))
        assert await producer.send(site, batches[-1])
        producer.acknowledged(batches[-1])
    assert await producer.commit(site)
    return batches


async def aborted(producer: MovingProducer, site: Site, *sizes: int) -> None:
    """Abort a transaction with batches of these sizes."""
    assert await producer.begin(site, 0)
    for size in sizes:
        sent = producer.make(0, size)
        assert await producer.send(site, sent)
        producer.acknowledged(sent)
    await producer.abort(site)


async def after_a_commit(producer: MovingProducer, first: Site, second: Site) -> None:
    await committed(producer, first, 2, 1)
    await committed(producer, second, 1)


async def after_an_abort(producer: MovingProducer, first: Site, second: Site) -> None:
    await committed(producer, first, 3)
    await aborted(producer, first, 3)
    await committed(producer, second, 1)


async def after_nothing_but_an_abort(producer: MovingProducer, first: Site, second: Site) -> None:
    await aborted(producer, first, 3)
    await committed(producer, second, 1)
    await aborted(producer, second, 2)
    await committed(producer, second, 1)


async def and_an_abort_at_each(producer: MovingProducer, first: Site, second: Site) -> None:
    for site in (first, second):
        await aborted(producer, site, 2)
        await committed(producer, site, 1, 1)
        await aborted(producer, site, 1)


async def within_a_transaction(producer: MovingProducer, first: Site, second: Site) -> None:
    await committed(producer, first, 1)
    assert await producer.begin(first, 0)
    sent = producer.make(0, 2)
    assert await producer.send(first, sent)
    producer.acknowledged(sent)
    later = producer.make(0, 1)
    assert not await producer.send(second, later)
    producer.failed(later)
    await producer.abort(second, failed=True)
    await committed(producer, second, 1, 1)


async def with_a_batch_in_flight(producer: MovingProducer, first: Site, second: Site) -> None:
    """The first gateway has taken it, and its answer never came."""
    await committed(producer, first, 1)
    assert await producer.begin(first, 0)
    sent = producer.make(0, 2)
    assert await producer.send(first, sent)
    assert not await producer.send(second, sent)
    producer.failed(sent)
    await producer.abort(second, failed=True)
    await committed(producer, second, 1)


async def with_a_batch_that_never_came(producer: MovingProducer, first: Site, second: Site) -> None:
    await committed(producer, first, 1)
    assert await producer.begin(first, 0)
    sent = producer.make(0, 2)
    assert not await producer.send(second, sent)
    producer.failed(sent)
    await producer.abort(second, failed=True)
    await committed(producer, second, 1)


async def with_a_commit_in_flight(producer: MovingProducer, first: Site, second: Site) -> None:
    await committed(producer, first, 2)
    assert await end(second.client, TX, producer.identity, committed=True) == 0
    await committed(producer, second, 1)


MOVES = [
    after_a_commit,
    after_an_abort,
    after_nothing_but_an_abort,
    and_an_abort_at_each,
    within_a_transaction,
    with_a_batch_in_flight,
    with_a_batch_that_never_came,
    with_a_commit_in_flight,
]


def run(folder: Path, case: Case, manner: Manner, *stores: bool) -> None:
    """Run a case at two gateways; a reader then finds what was committed, once."""

    async def at_both() -> None:
        async with sites(folder, *stores) as (first, second):
            producer = MovingProducer(manner)
            await producer.init(first)
            await case(producer, first, second)
            await producer.check(first)
            await producer.check(second)

    asyncio.run(at_both())


@pytest.mark.parametrize("first", OPTIONS)
@pytest.mark.parametrize("second", OPTIONS)
@pytest.mark.parametrize("manner", Manner)
def test_a_transactional_producer_goes_on_at_another_gateway(tmp_path, manner, first, second):
    """Each way to move, one after the other, so that each comes after all kinds of transactions."""

    async def case(producer: MovingProducer, one: Site, other: Site) -> None:
        for move in MOVES:
            await move(producer, one, other)

    run(tmp_path, case, manner, first, second)


@pytest.mark.parametrize("first", OPTIONS)
@pytest.mark.parametrize("second", OPTIONS)
@pytest.mark.parametrize("move", [after_a_commit, after_an_abort, after_nothing_but_an_abort, and_an_abort_at_each])
def test_it_goes_on_where_the_only_gateway_is_restarted(tmp_path, move, first, second):
    async def at_one() -> None:
        async with sites(tmp_path, first) as (site,):
            producer = MovingProducer(Manner.GOES_ON)
            await producer.init(site)
            await committed(producer, site, 1)
            await aborted(producer, site, 2)
            for stores in (second, first, second):
                await site.stop()
                await site.start(stores=stores)
                await move(producer, site, site)
            await producer.check(site)

    asyncio.run(at_one())


@pytest.mark.parametrize("first", OPTIONS)
@pytest.mark.parametrize("second", OPTIONS)
@pytest.mark.parametrize("aborts", [0, 1])
def test_what_the_first_gateway_has_committed_is_not_stored_again(tmp_path, first, second, aborts):
    """It comes from a connection that was left, in the next transaction, whose first batch it would be."""

    async def case(producer: MovingProducer, one: Site, other: Site) -> None:
        await committed(producer, one, 3)
        for _ in range(aborts):
            await aborted(producer, one, 2)
        batches = await committed(producer, one, 1, 2)
        for _ in range(aborts):
            await aborted(producer, one, 2)
        assert await producer.begin(other, 0)
        for sent in batches:
            assert await producer.send_again(other, sent) == 0
        new = producer.make(0, 1)
        assert await producer.send(other, new)
        producer.acknowledged(new)
        for sent in batches:
            assert await producer.send_again(other, sent) in (0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        assert await producer.commit(other)

    run(tmp_path, case, Manner.GOES_ON, first, second)


@pytest.mark.parametrize("stores", OPTIONS)
def test_the_offset_of_what_was_committed_before_is_answered(tmp_path, stores):
    async def case(producer: MovingProducer, one: Site, other: Site) -> None:
        _, second = await committed(producer, one, 3, 2)
        assert await producer.begin(other, 0)
        answer = await produce(other.client, TOPIC, 0, second.records, transactional_id=TX)
        assert (answer.error_code.value, answer.base_offset) == (0, 3)

    run(tmp_path, case, Manner.GOES_ON, stores, stores)


@pytest.mark.parametrize("stores", OPTIONS)
def test_a_batch_is_missing_where_a_later_one_comes_first(tmp_path, stores):
    """Only the first batch after a move may have any sequence."""

    async def case(producer: MovingProducer, one: Site, other: Site) -> None:
        await committed(producer, one, 1)
        await aborted(producer, one, 2)
        assert await producer.begin(other, 0)
        first = producer.make(0, 1)
        assert await producer.send(other, first)
        producer.acknowledged(first)
        second = producer.make(0, 1)
        producer.acknowledged(second)
        third = producer.make(0, 1)
        assert await producer.send_again(other, third) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await producer.send(other, second)
        assert await producer.send(other, third)
        producer.acknowledged(third)
        assert await producer.commit(other)

    run(tmp_path, case, Manner.GOES_ON, stores, stores)


@pytest.mark.parametrize("stores", OPTIONS)
def test_a_gateway_finds_that_another_one_has_ended_its_transaction(tmp_path, stores):
    """The client continues with the same epoch. It adds the same partition, or aborts what the other one has begun."""

    async def case(producer: MovingProducer, one: Site, other: Site) -> None:
        assert await producer.begin(one, 0)
        await producer.abort(other)
        await committed(producer, one, 1)
        assert await producer.begin(one, 0)
        await producer.abort(other)
        assert await producer.begin(other, 0)
        await producer.abort(one)
        await committed(producer, other, 1)

    run(tmp_path, case, Manner.GOES_ON, stores, stores)


@pytest.mark.parametrize("first", OPTIONS)
@pytest.mark.parametrize("second", OPTIONS)
def test_an_idempotent_producer_goes_on_at_another_gateway(tmp_path, first, second):
    async def case(_: MovingProducer, one: Site, other: Site) -> None:
        identity = await init_producer(one.client)
        made = [batch([b"%d" % number], identity, number) for number in range(4)]
        assert [await sent(one, records) for records in made[:2]] == [(0, 0), (0, 1)]
        assert [await sent(other, records) for records in made[:3]] == [(0, 0), (0, 1), (0, 2)]
        # In flight at both: neither answer has come.
        for site in (one, other):
            await site.client.send(0, 9, **produce_members(TOPIC, 0, made[3]))
        for site in (one, other):
            answer = (await site.client.receive(0, 9)).responses[0].partition_responses[0]
            assert (answer.error_code.value, answer.base_offset) == (0, 3)
        assert await read_all(one.client, TOPIC) == [b"0", b"1", b"2", b"3"]

    async def at_both() -> None:
        async with sites(tmp_path, first, second) as (one, other):
            await case(MovingProducer(Manner.REUSES), one, other)

    asyncio.run(at_both())


async def sent(site: Site, records: bytes) -> tuple[int, int]:
    answer = await produce(site.client, TOPIC, 0, records)
    return answer.error_code.value, answer.base_offset


@pytest.mark.parametrize("first", OPTIONS)
@pytest.mark.parametrize("second", OPTIONS)
def test_a_producer_whose_state_was_forgotten_goes_on(tmp_path, first, second):
    """A sweep forgets idle producers of a partition: KIP-360 has a broker take any sequence then."""

    async def case() -> None:
        async with sites(tmp_path, first, second) as (one, other):
            producer = MovingProducer(Manner.GOES_ON)
            await producer.init(one)
            await committed(producer, one, 2)
            idempotent = await init_producer(one.client)
            assert await sent(one, batch([b"a"], idempotent, 0)) == (0, 3)
            with Store.open(str(tmp_path / "store")) as store:
                for known in store.log.producers(1, 0):
                    seen = (known.producer_id, known.producer_epoch, known.last_sequence, known.coordinator_epoch)
                    store.log.submit([ExpireProducers(1, 0, (seen,))])
            assert await sent(other, batch([b"b"], idempotent, 1)) == (0, 4)
            producer.committed[0] += [b"a", b"b"]
            await committed(producer, other, 1)
            await producer.check(one)

    asyncio.run(case())


@pytest.mark.parametrize("number", range(examples(3, 100)))
def test_random_moves(tmp_path, number):
    seed = number + 1_000 * (night_seed() or 0)
    asyncio.run(random_history(tmp_path, seed, steps=12))
