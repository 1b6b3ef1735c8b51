"""A log that has lost an entry is damaged, and no writer fills the gap."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparktxn import Producer, Store
from sparktxn._engine.format import names
from sparktxn._engine.format.commands import CreateTopic
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn.errors import DamagedObject, KafkaException
from sparktxn.testing.faultystore import Fault, Operation
from tests.log.conftest import Shared


def lose(objects: ObjectStore, number: int) -> Callable[[], None]:
    """Deletes an entry, and returns what restores it."""
    data = objects.get(names.entry(number))
    assert data is not None
    objects.delete([names.entry(number)])
    return lambda: objects.put(names.entry(number), data)


def grow(shared: Shared, count: int) -> None:
    client = shared.client()
    for number in range(count):
        client.submit(CreateTopic(f"t{number}", f"t{number}", 1))


@pytest.mark.parametrize("missing", [1, 2, 5])
def test_who_opens_a_log_with_a_hole_is_told(shared: Shared, missing: int) -> None:
    grow(shared, 5)
    restore = lose(shared.objects, missing)
    reason = f"entry {missing} is missing and entry {missing + 1} exists: restore entry {missing}"
    for _ in range(2):
        with pytest.raises(DamagedObject, match=reason):
            shared.client()
    assert missing not in shared.names_of_entries()
    restore()
    assert shared.client().log.entry == 6


def test_a_hole_of_many_entries_names_the_first_and_the_next_that_exists(shared: Shared) -> None:
    grow(shared, 8)
    for number in (4, 5, 6):
        lose(shared.objects, number)
    with pytest.raises(DamagedObject, match="entry 4 is missing and entry 7 exists"):
        shared.client()


def test_a_hole_after_a_checkpoint(shared: Shared) -> None:
    grow(shared, 3)
    shared.client().log.checkpoint()
    grow_more = shared.client()
    for number in range(3):
        grow_more.submit(CreateTopic(f"more{number}", f"more{number}", 1))
    lose(shared.objects, 5)
    with pytest.raises(DamagedObject, match="entry 5 is missing and entry 6 exists"):
        shared.client()


def test_the_last_entry_is_no_hole(shared: Shared) -> None:
    """A log that ends earlier is a log: nothing says that there was more."""
    grow(shared, 3)
    lose(shared.objects, 4)
    assert shared.client().log.entry == 3


def test_a_process_that_followed_looks_again_before_its_first_put(shared: Shared) -> None:
    reader = shared.client()
    grow(shared, 2)
    with reader.log.within(1):
        reader.log.refresh()
    grow_more = shared.client()
    grow_more.submit(CreateTopic("a", "a", 1))
    grow_more.submit(CreateTopic("b", "b", 1))
    restore = lose(shared.objects, 4)
    with pytest.raises(DamagedObject, match="entry 4 is missing and entry 5 exists: restore entry 4"):
        reader.submit(CreateTopic("c", "c", 1))
    assert shared.names_of_entries() == [1, 2, 3, 5]
    restore()
    reader.submit(CreateTopic("d", "d", 1))
    assert shared.names_of_entries() == [1, 2, 3, 4, 5, 6]


def test_entries_that_others_add_while_one_opens_are_followed(shared: Shared) -> None:
    """Another process adds two entries after the end was found, and before the listing answers."""
    writer = shared.client()
    added: list[int] = []

    def fate(operation: Operation) -> Fault:
        if operation.verb == "list_names" and operation.name == names.ENTRIES and not added:
            for number in range(2):
                writer.submit(CreateTopic(f"n{number}", f"n{number}", 1))
                added.append(number)
        return Fault.NONE

    opening = shared.client()
    opening.fate = fate
    opening.log._follower.reopen()
    assert added == [0, 1]
    assert opening.log.entry == 3


def test_a_vacuum_while_one_opens_makes_no_hole(shared: Shared) -> None:
    """Entries after the end that was found are listed, and are deleted below the horizon before they are read."""
    grow(shared, 3)
    opening = shared.client()
    writer = shared.client()
    ran: list[int] = []

    def fate(operation: Operation) -> Fault:
        if operation.verb == "get" and operation.name == names.entry(5) and ran == [1]:
            ran.append(2)
            writer.log.checkpoint()
            shared.vacuum(writer.log.entry)
        if operation.verb == "list_names" and operation.name == names.ENTRIES and not ran:
            ran.append(1)
            for number in range(3):
                writer.submit(CreateTopic(f"n{number}", f"n{number}", 1))
        return Fault.NONE

    opening.fate = fate
    opening.log._follower.reopen()
    assert ran == [1, 2]
    assert opening.log.entry == 7


STORES = ["local", "memory", "s3"]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    options: dict[str, object] = {}
    if request.param == "local":
        uri = str(tmp_path / "store")
    elif request.param == "memory":
        uri = f"memory://holes-{uuid.uuid4().hex}"
    else:
        server = request.getfixturevalue("moto_server")
        bucket = f"holes-{uuid.uuid4().hex[:8]}"
        server.create_bucket(bucket)
        uri, options = f"s3://{bucket}/store", dict(server.options)
    with Store.open(uri, create=True, options=options) as opened:
        yield opened


def test_every_store_tells_of_a_hole_and_no_producer_fills_it(store: Store) -> None:
    for number in range(4):
        store.create_topic(f"t{number}", 1)
    objects, uri, options = store.log.objects, store.uri, store.options
    restore = lose(objects, 3)
    entries = sorted(objects.list_names(names.ENTRIES))
    store.close()
    settings = {"bootstrap.servers": uri, "transactional.id": "t", **options}
    with pytest.raises(DamagedObject, match="entry 3 is missing and entry 4 exists: restore entry 3"):
        Store.open(uri, options=options)
    with pytest.raises(KafkaException, match="entry 3 is missing and entry 4 exists: restore entry 3"):
        Producer(settings).init_transactions(30)
    assert sorted(objects.list_names(names.ENTRIES)) == entries
    restore()
    with Store.open(uri, options=options) as again:
        assert len(again.topics()) == 4


def test_a_process_that_is_killed_leaves_no_hole(tmp_path: Path) -> None:
    """A process that writes is killed at any time: the next one to open finds the log whole."""
    uri = str(tmp_path / "store")
    Store.open(uri, create=True).close()
    program = (
        "import sys; from sparktxn import Store\n"
        f"store = Store.open({uri!r})\n"
        "for number in range(10_000):\n"
        "    store.create_topic(f'{sys.argv[1]}-{number}', 1)\n"
        "    print(number, flush=True)\n"
    )
    for attempt in range(3):
        process = subprocess.Popen([sys.executable, "-c", program, f"a{attempt}"], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(5 + 7 * attempt):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        with Store.open(uri) as store:
            assert len(store.topics()) >= 5 + 7 * attempt
