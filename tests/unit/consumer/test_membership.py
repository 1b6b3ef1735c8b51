"""The states of a membership, whole, against a literal matrix; and the names of signs of life."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.process.clock import SystemClock
from sparktxn._kafka.settings.consumer import ConsumerSettings
from sparktxn.consumer.member import TRANSITIONS, MemberEvent, Membership, Status
from tests.each import each
from tests.seeds import seed_of
from tests.world import open_log

# Rows: from; columns: the event. A dot is a defect.
EVENTS = ["SUBSCRIBED", "UNSUBSCRIBED", "SEEN", "GONE", "REPORTED", "REFUSED"]
MATRIX = """
OUT      JOINING  OUT  .       .        .        .
JOINING  JOINING  OUT  MEMBER  JOINING  .        FAILED
MEMBER   MEMBER   OUT  MEMBER  LOST     .        .
LOST     LOST     OUT  .       .        JOINING  FAILED
FAILED   JOINING  OUT  .       .        .        .
"""
ROWS = {row.split()[0]: row.split()[1:] for row in MATRIX.split("\n") if row}
ALLOWED = {
    (Status[status], MemberEvent[event]): None if to == "." else Status[to]
    for status, row in ROWS.items()
    for event, to in zip(EVENTS, row, strict=True)
}


@pytest.fixture
def membership() -> Iterator[Membership]:
    log = open_log(MemoryStore("membership", SystemClock()))
    membership = Membership(log, ConsumerSettings.parse({"bootstrap.servers": "memory://x", "group.id": "g"}))
    yield membership
    membership.let_go()


def test_the_matrix_is_whole() -> None:
    assert set(ALLOWED) == {(status, event) for status in Status for event in MemberEvent}
    assert {pair: to for pair, to in ALLOWED.items() if to is not None} == TRANSITIONS


@pytest.mark.parametrize(("status", "event"), ALLOWED, ids=lambda value: value.name)
def test_transition(membership: Membership, status: Status, event: MemberEvent) -> None:
    membership.status = status
    if (to := ALLOWED[status, event]) is None:
        with pytest.raises(AssertionError, match=event.value):
            membership.move(event)
    else:
        membership.move(event)
        assert membership.status is to


def test_each_life_has_a_member_id_of_its_own(membership: Membership) -> None:
    membership.move(MemberEvent.SUBSCRIBED)
    first = membership.speaker()
    membership.generation_id = 7
    membership.begin_anew()
    second = membership.speaker()
    assert first.member_id != second.member_id
    assert second.generation_id == 0
    assert first.life is not None
    assert first.life.left


class TestNames:
    def test_a_group_has_one_folder_and_each_member_a_name_in_it(self) -> None:
        assert names.group_folder("orders") == "_groups/3566/orders/"
        assert names.member_sign("orders", "0abc") == "_groups/3566/orders/0abc"

    @each(["..", ".", "a/b", "a.b", "é", "a=b", "x" * 32_767, "x" * 161, "é" * 60, " ", "_groups", "\n", "\U0001f600"])
    def test_any_group_makes_a_name_inside_the_store(self, group: str) -> None:
        name = names.member_sign(group, "0123456789abcdefghij")
        assert names.checked_name(name, "a test") == name
        assert names.is_member_sign(name)
        assert all(len(part) <= 160 for part in name.split("/"))

    def test_no_two_groups_share_a_name(self) -> None:
        seed = seed_of("names of groups")
        random_ = random.Random(seed)
        texts = {"".join(random_.choices("a.=/2EFé", k=random_.randint(1, 5))) for _ in range(2_000)}
        texts |= {"x" * length for length in range(1, 400)}
        assert len({names.group_folder(text) for text in texts}) == len(texts), f"seed {seed}"

    @each(["_groups/1/g", "_groups/1/g/m/x", "_groups/x/g/m", "_groups/01/g/m", "topics/1/g/m", "_groups/1/g/é"])
    def test_other_names_are_no_signs(self, name: str) -> None:
        assert not names.is_member_sign(name)
