"""The memory of requests, and of open transactions: no more is held than is allowed, and each one gets its turn."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn.gateway.requestmemory import RequestMemory
from sparktxn.gateway.transactionmemory import TransactionMemory


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(1, 150), st.integers(0, 3), st.booleans()), min_size=1, max_size=20))
def test_what_is_held_never_exceeds_the_limit_but_for_one_large_request(asked):
    async def run() -> None:
        memory = RequestMemory(100)
        held: list[int] = []

        async def hold(size: int, steps: int) -> None:
            await memory.acquire(size)
            held.append(size)
            try:
                assert sum(held) <= memory.held_bytes
                assert memory.held_bytes <= 100 or len(held) == 1
                for _ in range(steps):
                    await asyncio.sleep(0)
            finally:
                held.remove(size)
                memory.release(size)

        tasks = [asyncio.create_task(hold(size, steps)) for size, steps, _ in asked]
        await asyncio.sleep(0)
        for task, (_, _, cancelled) in zip(tasks, asked, strict=True):
            if cancelled:
                task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert ended is None or isinstance(ended, asyncio.CancelledError), ended
        assert memory.held_bytes == 0
        await memory.acquire(1)
        assert memory.held_bytes == 1

    asyncio.run(run())


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from(["add", "clear", "close"]), st.integers(0, 3), st.integers(1, 60)), max_size=30)
)
def test_the_total_of_transactions_is_the_sum_of_those_that_are_held(steps):
    memory = TransactionMemory(100)
    shares = [memory.share() for _ in range(4)]
    held, closed = [0] * 4, set()
    for step, place, size_bytes in steps:
        if step == "add":
            shares[place].add(size_bytes)
            held[place] += 0 if place in closed else size_bytes
        else:
            shares[place].clear() if step == "clear" else shares[place].close()
            held[place] = 0
            closed |= {place} if step == "close" else set()
        assert memory.held_bytes == sum(held)
        assert memory.is_above == (sum(held) > 100)
