"""Confirming: what the horizon, read afterwards, leaves of an answer."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import encode_marker
from sparktxn._engine.log.follow.checkpointheads import newest_head
from sparktxn._engine.log.follow.confirm import (
    Passed,
    Premise,
    attempt,
    confirm,
    head_past,
    judge,
    names_of,
    usable_heads,
)
from sparktxn._engine.log.views.entryhistory import find_entry
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn.errors import DamagedObject, FormatVersionError
from sparktxn.testing.faultystore import Fault, Operation
from tests.log.conftest import Client, Shared

PACKAGE = Path(__file__).parent.parent.parent / "sparktxn"


@pytest.fixture
def objects() -> MemoryStore:
    return Shared().objects


def raise_horizon(objects: ObjectStore, number: int, *checkpoints: str) -> None:
    objects.put_if_absent(names.horizon(number), encode_marker(checkpoints))


@pytest.mark.parametrize(
    ("premise", "entries", "names"),
    [
        (Premise(), False, False),
        (Premise(5), False, False),
        (Premise(4), True, False),
        (Premise(base=5), False, False),
        (Premise(base=4), False, True),
        (Premise(4, 4), True, True),
        (Premise(5, 4, "kept"), False, False),
        (Premise(5, 4, "other"), False, True),
        (Premise(5, 4, ""), False, True),
        (Premise(5).with_slot(4), True, False),
        (Premise(4).with_slot(5), True, False),
        (Premise(base=5).with_slot(4), True, False),
    ],
)
def test_a_premise_is_passed_by_a_horizon_above_it(
    objects: MemoryStore, premise: Premise, entries: bool, names: bool
) -> None:
    raise_horizon(objects, 5, "kept")
    raise_horizon(objects, 3)
    expected = Passed(5, entries, names) if entries or names else None
    assert judge(objects, premise) == expected


def test_a_store_without_a_horizon_has_passed_nothing(objects: MemoryStore) -> None:
    assert judge(objects, Premise(0, 0)) is None
    assert judge(objects, Premise(1, 1, "any")) is None


def test_a_marker_that_cannot_be_decoded_names_every_checkpoint(objects: MemoryStore) -> None:
    objects.put_if_absent(names.horizon(5), b"horizon")
    assert judge(objects, Premise(5, 4, "any")) is None
    assert judge(objects, Premise(5, 4, "")) is None
    assert judge(objects, Premise(5, 4)) == Passed(5, entries=False, names=True)


def test_a_marker_that_is_deleted_has_a_greater_successor(shared: Shared) -> None:
    reader = shared.client()
    raise_horizon(shared.objects, 5)

    def fate(operation: Operation) -> Fault:
        if operation.verb == "get" and operation.name == names.horizon(5):
            raise_horizon(shared.objects, 6, "kept")
            shared.objects.delete([names.horizon(5)])
        return Fault.NONE

    reader.fate = fate
    assert judge(reader.objects, Premise(base=4, checkpoint="kept")) is None
    assert judge(reader.objects, Premise(base=4, checkpoint="other")) == Passed(6, entries=False, names=True)


@pytest.mark.parametrize("error", [DamagedObject("name", "damaged"), FormatVersionError("name", "newer")])
def test_damage_counts_only_if_no_vacuum_has_passed_the_premise(
    objects: MemoryStore, error: DamagedObject | FormatVersionError
) -> None:
    def work() -> None:
        raise error

    for do in (attempt, confirm):
        with pytest.raises(type(error)):
            do(objects, lambda: Premise(4), work)
    raise_horizon(objects, 5)
    for do in (attempt, confirm):
        assert do(objects, lambda: Premise(4), work) == Passed(5, entries=True, names=False)
        with pytest.raises(type(error)):
            do(objects, lambda: Premise(5), work)


def test_a_result_is_final_only_if_the_horizon_is_read_after_the_work(objects: MemoryStore) -> None:
    def work() -> str:
        raise_horizon(objects, 5)
        return "result"

    assert confirm(objects, lambda: Premise(4), work) == Passed(5, entries=True, names=False)
    assert confirm(objects, lambda: Premise(5), work) == "result"
    assert attempt(objects, lambda: Premise(4), work) == "result"


def test_usable_heads_are_those_that_the_horizon_has_not_passed(shared: Shared, client: Client) -> None:
    client.log.checkpoint()
    client.initialise("tx", "init")
    client.log.checkpoint()
    head = newest_head(shared.objects)
    assert head is not None
    assert (head.base, head.entry) == (1, 2)
    assert usable_heads(shared.objects, [head]) == [head]
    raise_horizon(shared.objects, 2)
    assert usable_heads(shared.objects, [head]) == []
    assert judge(shared.objects, names_of(head)) == Passed(2, entries=False, names=True)
    raise_horizon(shared.objects, 3, head.checkpoint)
    assert usable_heads(shared.objects, [head]) == [head]


def test_a_later_checkpoint_replaces_one_that_a_vacuum_has_passed(shared: Shared, client: Client) -> None:
    client.log.checkpoint()
    client.initialise("tx", "init")
    client.log.checkpoint()
    head = newest_head(shared.objects)
    assert head is not None
    assert head_past(shared.objects, 1, at_most=2, excluded=frozenset()) is None
    raise_horizon(shared.objects, 2, head.checkpoint)
    assert head_past(shared.objects, 1, at_most=2, excluded=frozenset()) == head
    assert head_past(shared.objects, 1, at_most=1, excluded=frozenset()) is None
    raise_horizon(shared.objects, 3, head.checkpoint)
    assert head_past(shared.objects, 1, at_most=2, excluded=frozenset()) is None


def test_an_entry_by_time_is_final_only_if_the_horizon_has_not_passed_the_first_one(
    shared: Shared, client: Client
) -> None:
    client.initialise("tx", "init")
    for number in range(6):
        client.submit(*client.fused(number + 1, number))
    client.log.checkpoint()
    reader = shared.client()

    def fate(operation: Operation) -> Fault:
        if operation.verb == "get" and operation.name == names.entry(5):
            raise_horizon(shared.objects, 6)
        return Fault.NONE

    reader.fate = fate
    assert find_entry(reader.objects, 0, 1, 8) == Passed(6, entries=True, names=False)
    assert find_entry(reader.objects, 0, 6, 8) == 6


def test_few_modules_read_the_horizon_themselves() -> None:
    """All others ask `judge`, `attempt` or `confirm`: the comparison is written once."""
    readers = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "read_horizon"
    }
    # Those after the first need the number itself: where the log begins, and from where on a vacuum goes further.
    assert {reader for reader in readers if not reader.startswith("testing/")} == {
        "_engine/log/follow/confirm.py",
        "_engine/log/views/viewing.py",
        "maintenance/sweeping/sweep.py",
        "maintenance/checking/repair.py",
        "maintenance/copying/storecopy.py",
        "maintenance/vacuuming/vacuum.py",
        "maintenance/checking/verify.py",
        "store/memberexpiry.py",
    }
