"""Replaying for history: nothing is given that the horizon may have falsified, and nothing is left out."""

from __future__ import annotations

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import CreateTopic
from sparktxn._engine.log.views.entryhistory import EntryHistory, History, entry_not_before, first_entry
from sparktxn._foundation.values.structs import TransactionState
from sparktxn.errors import DamagedObject, ViewExpired
from sparktxn.testing.faultystore import Fault, Operation
from tests.log.conftest import Client, Shared


def passed(found: list[EntryHistory]) -> list[tuple[int, str]]:
    return [
        (entry.entry, change.record.status.name)
        for entry in found
        for change in entry.changes
        if isinstance(change.record, TransactionState)
    ]


def transact(client: Client, count: int) -> None:
    """`count` transactions, one entry each; the first entry after the topic's is the initialisation's."""
    client.initialise("tx", "init")
    for number in range(count):
        client.submit(*client.fused(number + 1, number))


def test_a_history_goes_on_where_it_stands_and_starts_again_for_what_is_older(shared: Shared, client: Client) -> None:
    transact(client, 6)
    whole = passed(list(History(shared.objects, "transaction").entries(1, 8)))
    assert whole == [
        (2, "EMPTY"),
        *[(n, state) for n in range(3, 9) for state in ("ONGOING", "PREPARE_COMMIT", "COMPLETE_COMMIT")],
    ]
    reader = shared.client()
    history = History(reader.objects, "transaction")
    assert passed(list(history.entries(1, 5))) == [row for row in whole if row[0] <= 5]
    reader.objects.operations.clear()
    assert passed(list(history.entries(7, 8))) == [row for row in whole if row[0] >= 7]
    read = [names.parse_entry(operation.name) for operation in reader.objects.operations]
    assert [number for number in read if number is not None] == [6, 7, 8]
    assert passed(list(history.entries(3, 3))) == [row for row in whole if row[0] == 3]


def test_an_entry_that_the_horizon_passes_while_it_is_read_is_not_believed(shared: Shared, client: Client) -> None:
    transact(client, 4)
    client.log.checkpoint()
    for number in (5, 6):
        client.submit(*client.fused(number, number - 1))
    reader = shared.client()

    def fate(operation: Operation) -> Fault:
        if operation.name == names.entry(8):
            shared.vacuum(9)
        return Fault.NONE

    reader.fate = fate
    with pytest.raises(ViewExpired, match="history of entry"):
        next(History(reader.objects, "transaction").entries(7, 8))


def test_history_begins_after_the_oldest_checkpoint_that_is_left(shared: Shared, client: Client) -> None:
    transact(client, 3)
    assert first_entry(shared.objects) == 1
    old = client.log.checkpoint()
    client.submit(*client.fused(4, 3))
    new = client.log.checkpoint()
    assert (old, new) == (5, 6)
    shared.vacuum(5)
    assert first_entry(shared.objects) == 6
    assert passed(list(History(shared.objects, "transaction").entries(6, 6)))[0] == (6, "ONGOING")
    with pytest.raises(ViewExpired):
        list(History(shared.objects, "transaction").entries(5, 6))
    shared.vacuum(6)
    shared.vacuum(7)
    assert first_entry(shared.objects) == 7


def test_no_checkpoint_at_the_horizon_is_damage(shared: Shared, client: Client) -> None:
    transact(client, 3)
    shared.vacuum(4)
    with pytest.raises(DamagedObject, match="entries below 4 may be gone"):
        first_entry(shared.objects)


def test_a_missing_entry_is_damage(shared: Shared, client: Client) -> None:
    transact(client, 3)
    shared.objects.delete([names.entry(4)])
    with pytest.raises(DamagedObject, match="missing"):
        list(History(shared.objects, "transaction").entries(1, 5))


def test_the_first_entry_that_is_not_older(shared: Shared, client: Client) -> None:
    stamps = []
    for number in range(5):
        shared.clock.sleep(0.01)
        client.initialise("tx", f"init-{number}")
        stamps.append(client.log.view(None).timestamp_ms)
    objects = shared.objects
    assert [entry_not_before(objects, stamp, 1, 6) for stamp in stamps] == [2, 3, 4, 5, 6]
    assert entry_not_before(objects, stamps[-1] + 1, 1, 6) == 7
    assert entry_not_before(objects, 0, 3, 6) == 3
    shared.vacuum(4)
    with pytest.raises(ViewExpired):
        entry_not_before(objects, stamps[0], 1, 6)


def test_clients_of_one_process_share_the_view_of_a_state(shared: Shared, client: Client) -> None:
    """A hundred consumers of a thousand partitions would capture each of them a hundred times."""
    client.submit(CreateTopic("create", "wide", 2))
    view = client.log.view(["wide"])
    assert client.log.view(["wide"]) is view
    assert client.log.view([]).topics == {}
    client.submit(CreateTopic("create more", "more", 1))
    newer = client.log.view(["wide"])
    assert newer.entry == view.entry + 1
    client.log.checkpoint()
    client.log._follower.reopen()
    opened = client.log.view(["wide"])
    assert opened is not newer, "its base may be another checkpoint"
    assert opened.partitions["wide", 0].base_entry == newer.entry
