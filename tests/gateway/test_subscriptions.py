"""What members send with their joins is their own: it is read as far as it can be, and no group depends on it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktxn._programs.gateway.wire.consumerprotocol import subscription_of
from tests.gateway.groupclients import LedMember, Member, subscription, two_gateways
from tests.gateway.test_led_groups import INCONSISTENT_GROUP_PROTOCOL


class Protocol(NamedTuple):
    """One strategy of a member, with what it sends for it."""

    name: str
    metadata: bytes


def ended_early(version: int) -> bytes:
    """Return a subscription of a version that ends after the fields of version 0."""
    return version.to_bytes(2) + subscription(["t"], version=0)[2:]


@pytest.mark.parametrize("version", [1, 2, 3, 4, 17])
@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky"])
def test_a_subscription_without_its_last_fields_is_read(version: int, name: str) -> None:
    """kafka-go and @platformatic/kafka say version 1, and send no list of owned partitions."""
    found = subscription_of([Protocol(name, ended_early(version))])
    assert found is not None
    assert (found.topics, found.owned) == (("t",), frozenset())


def test_a_cooperative_member_whose_partitions_cannot_be_read_is_divided_by_its_leader() -> None:
    """It reads them while it joins: the log must not take them for given back."""
    assert subscription_of([Protocol("cooperative-sticky", ended_early(1))]) is None


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\xff\xff", b"\0\0", b"\0\1\0\0\0\1\0\4t", b"{}", b"\0" * 5])
def test_a_subscription_that_cannot_be_read_is_none(metadata: bytes) -> None:
    assert subscription_of([Protocol("range", metadata)]) is None


@given(st.binary(max_size=60), st.sampled_from(["range", "cooperative-sticky", "of-its-own"]))
def test_no_bytes_of_a_member_are_an_error(metadata: bytes, name: str) -> None:
    subscription_of([Protocol(name, metadata)])


@given(st.integers(0, 3), st.data())
def test_a_subscription_that_is_cut_is_read_whole_in_its_topics_or_not_at_all(version: int, data: Any) -> None:
    whole = subscription(["t", "u"], {"t": [0, 1]}, version)
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    found = subscription_of([Protocol("range", cut)])
    assert found is None or found.topics == ("t", "u")
    found = subscription_of([Protocol("cooperative-sticky", cut)])
    assert found is None or (found.topics == ("t", "u") and bool(found.owned) == (version > 0))


def test_a_group_whose_members_send_bytes_of_their_own_works(tmp_path: Path) -> None:
    """One of its members divides the partitions, as in a group of a type that the gateway does not know."""

    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            one, other = (LedMember(client, b"\xff", protocol_type="consumer") for client in (first, second))
            for member in (one, other):
                member.strategies = ("range",)
            await one.works()
            working = asyncio.create_task(other.works())
            while await one.heartbeat() == 0:
                await asyncio.sleep(0.01)
            await asyncio.gather(one.works(), working)
            assert one.generation == other.generation
            assert one.is_leader != other.is_leader

    asyncio.run(run())


def test_a_group_that_the_log_divides_refuses_a_member_that_it_cannot_read(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            assert await Member(first).joined() == [0, 1, 2, 3]
            other = LedMember(second, b"\xff", protocol_type="consumer")
            other.strategies = ("range",)
            assert await other.join() == INCONSISTENT_GROUP_PROTOCOL

    asyncio.run(run())
