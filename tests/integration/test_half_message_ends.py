"""Ends of half messages that are sent one way: when they are stored, in which order, and what becomes of lost ones."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparktxn import Store
from sparktxn.admin import HalfMessageId
from sparktxn.halfmessage import LocalTransactionState, Message, TransactionListener, TransactionMQProducer
from sparktxn.halfmessage import engine as ends
from sparktxn.testing.faultystore import Fault, FaultyStore, Operation
from tests.halfworld import COMMIT, ROLLBACK, UNKNOWN, HalfWorld, Process
from tests.world import World as PlainWorld

pytestmark = pytest.mark.rocketmq("R8")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[HalfWorld]:
    """A world in which an end that no other entry carries is stored by `settle()` or `shutdown()` alone."""
    monkeypatch.setattr(ends, "LINGER_S", 3_600.0)
    made = HalfWorld()
    yield made
    made.close()


def one_way(world: HalfWorld, **more: Any) -> Process:
    return world.shop(transaction_end_wait=False, **more)


class Storage:
    """A store that does for each put of an entry what `fault` says, once that is set."""

    def __init__(self, world: HalfWorld) -> None:
        self.fault = Fault.NONE
        self.late: list[Any] = []
        self.objects = FaultyStore(world.objects, self._fate, later=self.late.append)

    def _fate(self, operation: Operation) -> Fault:
        if self.fault is Fault.LATE and operation.verb != "put_if_absent":
            return Fault.REFUSED if self.late else Fault.NONE
        return self.fault


@pytest.mark.rocketmq("R21")
def test_the_call_returns_before_the_end_is_stored_and_the_next_entry_carries_it(world: HalfWorld) -> None:
    shop = one_way(world)
    before = world.entry()
    assert shop.send("a", COMMIT).local_transaction_state is COMMIT
    assert (world.visible(), len(world.halves()), world.entry()) == ([], 1, before + 1)
    shop.send("b", ROLLBACK)
    assert (world.visible(), len(world.halves()), world.entry()) == (["a"], 1, before + 2)
    shop.producer.send(Message("audit", b"plain"))
    assert (world.visible(), world.halves(), world.entry()) == (["a"], {}, before + 3)


def test_no_end_goes_alone_while_an_entry_is_made_that_carries_it(world: HalfWorld) -> None:
    shop = one_way(world)
    shop.send("a", COMMIT)
    before = world.entry()
    with shop.ends.carrier():
        shop.ends.settle_if_alone()
        assert (world.entry(), len(shop.ends._sent)) == (before, 1)
    shop.ends.settle_if_alone()
    assert (world.entry(), world.visible(), shop.ends._sent) == (before + 1, ["a"], {})
    carried: list[int] = []
    shop.send("b", lambda: carried.append(len(shop.ends._carriers)) or COMMIT)
    assert carried == [0], "the listener takes its own time"
    with shop.ends.carrier():
        shop.producer.send(Message("audit", b"plain"))
        shop.ends.settle_if_alone()
    assert (world.visible(), shop.ends._sent) == (["a", "b"], {})


def test_ends_take_effect_in_the_order_in_which_they_were_sent(world: HalfWorld) -> None:
    shop = one_way(world)
    halves = {body: shop.send(body, UNKNOWN, topic="audit").transaction_id for body in "abcd"}
    before = world.entry()
    engine = shop.producer._started()
    for body, committed in (("c", True), ("a", True), ("d", False), ("b", True)):
        with engine.within():
            engine.send_end("shop", halves[body], committed=committed)
    shop.ends.settle()
    assert [row["value"] for row in world.rows("audit")] == [b"c", b"a", b"b"]
    assert world.entry() == before + 1
    assert not shop.ends._sent


@pytest.mark.rocketmq("R10")
@pytest.mark.parametrize("decided", [COMMIT, ROLLBACK])
def test_an_end_that_is_lost_by_a_kill_is_settled_by_a_check_once(
    world: HalfWorld, decided: LocalTransactionState, caplog: pytest.LogCaptureFixture
) -> None:
    shop = one_way(world)
    shop.send("a", COMMIT)
    world.kill(shop)
    heir = world.shop()
    heir.listener.checked[b"a"] = decided
    world.pass_s(7)
    assert heir.listener.asked == [b"a"]
    expected = ["a"] if decided is COMMIT else []
    assert (world.visible(), world.halves()) == (expected, {})
    # The process was only slow: its end comes after the check's.
    shop.close()
    world.pass_s(40)
    assert (world.visible(), heir.listener.asked) == (expected, [b"a"])
    assert ("was refused" in caplog.text) is (decided is ROLLBACK)


def test_shutdown_stores_the_ends(world: HalfWorld) -> None:
    shop = one_way(world)
    for number in range(3):
        shop.send(f"m{number}", COMMIT)
    world.kill(shop)
    shop.close()
    assert (world.visible(), world.halves()) == (["m0", "m1", "m2"], {})


@pytest.mark.parametrize("settled", ["shutdown", "deadline"])
def test_an_end_that_is_reported_as_given_up_is_not_stored_later(
    world: HalfWorld, settled: str, caplog: pytest.LogCaptureFixture
) -> None:
    storage = Storage(world)
    shop = one_way(world, objects=storage.objects, send_message_timeout_ms=500)
    sent = shop.send("a", COMMIT)
    storage.fault = Fault.UNAVAILABLE
    world.kill(shop)
    if settled == "shutdown":
        shop.close()
    else:
        shop.ends.settle()
    assert f"{sent.transaction_id!r} of group 'shop' is not settled yet, a check will ask for it" in caplog.text
    storage.fault = Fault.NONE
    # Another client of that process writes: the end is in no entry of it.
    Store(world.objects.uri, {}, shop.log).create_topic("other")
    assert (world.visible(), list(world.halves())) == ([], [sent.transaction_id])
    heir = world.shop()
    heir.listener.checked[b"a"] = COMMIT
    world.pass_s(7)
    assert world.visible() == ["a"]
    assert caplog.text.count("not settled yet") == 1


def test_an_end_in_doubt_is_reported_and_has_one_outcome(world: HalfWorld, caplog: pytest.LogCaptureFixture) -> None:
    storage = Storage(world)
    shop = one_way(world, objects=storage.objects, send_message_timeout_ms=500)
    shop.send("a", COMMIT)
    storage.fault = Fault.LATE
    shop.ends.settle()
    assert "is not settled yet, a check will ask for it" in caplog.text
    assert storage.late
    assert world.visible() == []
    storage.fault = Fault.NONE
    storage.late.pop(0)()
    assert world.visible() == ["a"]
    heir = world.shop()
    heir.listener.checked[b"a"] = ROLLBACK
    world.pass_s(40)
    assert (world.visible(), world.halves(), heir.listener.asked) == (["a"], {}, [])


@pytest.mark.rocketmq("#8158-4")
def test_an_end_of_a_half_message_that_was_discarded_meanwhile_is_reported(
    world: HalfWorld, caplog: pytest.LogCaptureFixture
) -> None:
    shop = one_way(world)
    sent, other = shop.send("a", COMMIT), shop.send("b", UNKNOWN)
    for _ in range(2):
        shop.ends.settle()
    named = HalfMessageId("shop", other.transaction_id)
    with world.admin() as admin:
        admin.discard_half_messages([named])[named].result()
    engine = shop.producer._started()
    for end in (other, shop.send("c", UNKNOWN)):
        with engine.within():
            engine.send_end("shop", end.transaction_id, committed=True)
    shop.ends.settle()
    assert f"the end of half message {other.transaction_id!r} of group 'shop' was refused" in caplog.text
    assert "was discarded" in caplog.text
    assert sent.transaction_id not in caplog.text
    assert world.visible() == ["a", "c"]
    assert list(world.halves()) == [other.transaction_id]


def test_with_the_setting_the_call_returns_once_the_end_is_stored(world: HalfWorld) -> None:
    shop = world.shop(transaction_end_wait=True)
    shop.send("a", COMMIT)
    assert world.visible() == ["a"]
    assert not shop.ends._sent
    assert shop.ends._thread is None


# --- on the machine's clock ------------------------------------------------------------------------------------------


class AtOnce(TransactionListener):
    """Commits each message."""

    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
        return COMMIT

    check_local_transaction = None  # type: ignore[assignment]  # it is not asked


def wait_until(condition: Any) -> None:
    gives_up_at_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < gives_up_at_s
        time.sleep(0.01)


def test_an_end_goes_alone_where_no_other_entry_is_written() -> None:
    world = PlainWorld()
    with TransactionMQProducer("shop", world.uri) as producer:
        producer.set_transaction_listener(AtOnce())
        for number in range(3):
            producer.send_message_in_transaction(Message("t", b"%d" % number))
            wait_until(lambda number=number: len(world.texts()) == number + 1)
    world.close()


def test_a_producer_that_is_dropped_stores_its_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "LINGER_S", 3_600.0)
    world = PlainWorld()
    producer = TransactionMQProducer("shop", world.uri)
    producer.set_transaction_listener(AtOnce())
    producer.start()
    producer.send_message_in_transaction(Message("t", b"a"))
    thread = producer._started().ends._thread
    assert thread is not None
    assert world.texts() == []
    del producer
    gc.collect()
    wait_until(lambda: world.texts() == ["a"])
    wait_until(lambda: not thread.is_alive())
    world.close()


_PROGRAM = """
import os, sys
from sparktxn.halfmessage import LocalTransactionState, Message, TransactionListener, TransactionMQProducer
from sparktxn.halfmessage import engine as ends

class AtOnce(TransactionListener):
    def execute_local_transaction(self, message, arg):
        return LocalTransactionState.COMMIT_MESSAGE

    check_local_transaction = None

ends.LINGER_S = 3600.0
producer = TransactionMQProducer("shop", {"bootstrap.servers": sys.argv[1], "store.fsync": "false"})
producer.set_transaction_listener(AtOnce())
producer.start()
for number in range(3):
    producer.send_message_in_transaction(Message("t", b"%d" % number))
if sys.argv[2] == "fork" and os.fork() == 0:
    try:
        producer.send_message_in_transaction(Message("t", b"child"))
    except RuntimeError:
        producer.shutdown()
        sys.exit(0)
    os._exit(1)
if sys.argv[2] == "fork":
    assert os.wait()[1] == 0
    assert len(os.listdir(sys.argv[1] + "/_log")) == int(sys.argv[3])
if sys.argv[2] == "os._exit":
    os._exit(0)
"""


@pytest.mark.parametrize(("ending", "visible"), [("fork", 3), ("os._exit", 2)])
def test_the_end_of_a_process_stores_its_ends_and_a_forked_child_none(
    tmp_path: Path, ending: str, visible: int
) -> None:
    """Two ends were in the entries of the next messages; the third is stored at the interpreter's exit."""
    uri = str(tmp_path / "store")
    with Store.open(uri, create=True, options={"store.fsync": "false"}) as store:
        store.create_topic("t")
    files = len(os.listdir(f"{uri}/_log"))
    arguments = [sys.executable, "-c", _PROGRAM, uri, ending, str(files + 3)]
    run = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    with Store.open(uri, options={"store.fsync": "false"}) as store:
        (partition,) = store.view(["t"]).partitions.values()
        assert partition.last_stable_offset == visible
        assert len(store.log.halves()) == 3 - visible
