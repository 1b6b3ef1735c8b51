"""Every store operation of a call about half messages is once the last one before death, and once ambiguous.

Afterwards another process of the group is asked, and the program's database answers. Every message whose local
transaction has committed is then delivered exactly once, and no other one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from sparktxn.admin import AdminClient, HalfMessageId
from sparktxn.errors import KafkaException
from sparktxn.halfmessage import LocalTransactionState, engine
from sparktxn.halfmessage.rocketmq5 import Message, TransactionResolution
from sparktxn.testing.faultystore import Died, Fault, FaultyStore, Operation
from tests.halfworld import COMMIT, ROLLBACK, UNKNOWN, HalfWorld, Process, Process5
from tests.seeds import share

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quiet")]

READ_FAULTS = (Fault.DIE_AFTER, Fault.UNAVAILABLE)
WRITE_FAULTS = (*READ_FAULTS, Fault.REFUSED, Fault.RESPONSE_LOST, Fault.LATE, Fault.COPY_LATER, Fault.TWICE)
WRITES = ("put_if_absent", "put", "delete")
SHORT: dict[str, Any] = {"send_message_timeout_ms": 1_000}


class Trial:
    """A store with two settled messages, a process that is about to meet a fault, and the program's database."""

    def __init__(self, fault_at: int, fault: Fault) -> None:
        self.world = HalfWorld(seed=1_000, checkpoint_entries=5)
        self.fault_at, self.fault = fault_at, fault
        self.begun: int | None = None
        self.late: list[Callable[[], object]] = []
        self.committed: set[str] = {"before"}
        self.bodies: set[str] = {"before", "a", "b"}
        before = self.world.shop()
        before.send("before", COMMIT)
        before.send("gone", ROLLBACK)
        self.end(before)
        self.faulty = FaultyStore(self.world.objects, self.fate, later=self.late.append)

    def fate(self, operation: Operation) -> Fault:
        if self.begun is None or operation.number - self.begun != self.fault_at:
            return Fault.NONE
        return self.fault

    def begin(self) -> None:
        """From here on the operations count."""
        self.begun = len(self.faulty.operations)

    def local(self, body: str, state: LocalTransactionState) -> Callable[[], LocalTransactionState]:
        """A local transaction, which the database remembers if it commits."""

        def run() -> LocalTransactionState:
            if state is COMMIT:
                self.committed.add(body)
            return state

        return run

    def end(self, process: Process | Process5) -> None:
        """The process is no more; its thread ends, and nothing else is done for it."""
        self.world.kill(process)
        process.checks.stopper()()
        if isinstance(process, Process):
            process.ends._give_up()
            process.ends._finish()

    def answers(self, process: Process | Process5) -> None:
        """Has the checker of a process ask the database."""
        for body in self.bodies:
            if isinstance(process, Process):
                process.listener.checked[body.encode()] = lambda body=body: (
                    COMMIT if body in self.committed else ROLLBACK
                )
            else:
                process.checker.checked[body.encode()] = lambda body=body: (
                    TransactionResolution.COMMIT if body in self.committed else TransactionResolution.ROLLBACK
                )

    def check(self) -> None:
        """Another process takes over; every message is delivered once if its local transaction has committed."""
        for group in ("shop", "orders"):
            heir = self.world.shop(group)
            self.answers(heir)
        for _ in range(8):  # longer than an interval, after a claim whose answer was lost
            self.world.rounds()
            self.world.clock.sleep(5)
        for half in self.world.halves().values():
            assert half.discarded_entry, f"{half} is not settled"
            named = HalfMessageId(half.group_id, half.transaction_id)
            with self.world.admin() as admin:
                admin.resume_half_messages([named])[named].result()
        self.world.pass_s(1)
        assert not self.world.halves()
        found = self.world.visible() + self.world.visible("audit")
        assert sorted(found) == sorted(self.committed)


def send_and_commit(trial: Trial) -> None:
    shop = trial.world.shop(objects=trial.faulty, **SHORT)
    trial.begin()
    with suppress_store_errors():
        shop.send("a", trial.local("a", COMMIT))
    with suppress_store_errors():
        shop.send("b", trial.local("b", COMMIT))


def send_one_way(trial: Trial) -> None:
    """Each end but the last is in the next message's entry; the last one goes alone."""
    shop = trial.world.shop(objects=trial.faulty, transaction_end_wait=False, **SHORT)
    trial.begin()
    for body in ("a", "b"):
        with suppress_store_errors():
            shop.send(body, trial.local(body, COMMIT))
    shop.ends.settle()


def send_and_roll_back(trial: Trial) -> None:
    shop = trial.world.shop(objects=trial.faulty, **SHORT)
    trial.begin()
    with suppress_store_errors():
        shop.send("a", trial.local("a", ROLLBACK))


def check(trial: Trial) -> None:
    """The half messages of a process that has died are asked for."""
    dead = trial.world.shop()
    for body, state in (("a", COMMIT), ("b", ROLLBACK)):
        trial.local(body, state)()
        dead.send(body, UNKNOWN)
    trial.end(dead)
    shop = trial.world.shop(objects=trial.faulty, **SHORT)
    trial.answers(shop)
    with suppress_store_errors():
        shop.checks.round()
    trial.world.clock.sleep(6)
    trial.begin()
    for _ in range(2):
        with suppress_store_errors():
            shop.checks.round()
    assert trial.fault is not Fault.NONE or sorted(shop.listener.asked) == [b"a", b"b"]


def discard(trial: Trial) -> None:
    """Its only check has been used up: it is discarded, and an administrator resumes it later."""
    dead = trial.world.shop()
    trial.local("a", COMMIT)()
    dead.send("a", UNKNOWN)
    trial.end(dead)
    shop = trial.world.shop(objects=trial.faulty, transaction_check_max=1, transaction_check_interval_ms=1_000, **SHORT)
    trial.begin()
    for _ in range(12):
        with suppress_store_errors():
            shop.checks.round()
        trial.world.clock.sleep(1)
    assert trial.fault is not Fault.NONE or trial.world.discarded() == 1


def several_messages(trial: Trial) -> None:
    """RocketMQ 5's shape, over two topics; the local transaction runs before the commit."""
    shop = trial.world.shop5("orders", objects=trial.faulty)
    trial.begin()
    with suppress_store_errors():
        transaction = shop.producer.begin_transaction()
        for body, topic in (("a", "orders"), ("b", "audit")):
            message = Message()
            message.topic, message.body = topic, body.encode()
            shop.producer.send(message, transaction)
        trial.local("a", COMMIT)()
        trial.local("b", COMMIT)()
        transaction.commit()


def roll_back_several(trial: Trial) -> None:
    shop = trial.world.shop5("orders", objects=trial.faulty)
    trial.begin()
    with suppress_store_errors():
        transaction = shop.producer.begin_transaction()
        for body, topic in (("a", "orders"), ("b", "audit")):
            message = Message()
            message.topic, message.body = topic, body.encode()
            shop.producer.send(message, transaction)
        transaction.rollback()


def administer(trial: Trial) -> None:
    """Discarded, resumed, discarded again, and deleted: a deleted one counts as not committed."""
    dead = trial.world.shop()
    kept, deleted = (HalfMessageId("shop", dead.send(body, UNKNOWN).transaction_id) for body in ("a", "b"))
    trial.local("a", COMMIT)()
    trial.end(dead)
    uri = trial.world.lend("faulty-admin", trial.world.process(trial.faulty))
    with AdminClient({"bootstrap.servers": uri}) as admin:
        admin.list_half_messages().result()
        trial.begin()
        for _ in range(2):
            with suppress_store_errors():
                for future in admin.discard_half_messages([kept, deleted], request_timeout=1.0).values():
                    future.result()
                admin.resume_half_messages([kept], request_timeout=1.0)[kept].result()
                admin.delete_half_messages([deleted], request_timeout=1.0)[deleted].result()


def suppress_store_errors() -> Any:
    return suppress(KafkaException)


CASES = {
    "send and commit": send_and_commit,
    "send one way": send_one_way,
    "send and roll back": send_and_roll_back,
    "check": check,
    "discard": discard,
    "several messages": several_messages,
    "roll several messages back": roll_back_several,
    "administer": administer,
}


def attempt(case: str, fault_at: int, fault: Fault) -> list[Operation]:
    """Run a case with a fault, then everything that must come right; return the operations that count."""
    trial = Trial(fault_at, fault)
    try:
        CASES[case](trial)
    except Died:
        assert fault is Fault.DIE_AFTER
    assert trial.begun is not None
    operations = trial.faulty.operations[trial.begun :]
    assert fault is Fault.NONE or len(operations) >= fault_at, "the operation was not reached"
    for process in list(trial.world.processes):
        trial.end(process)
    if fault_at % 2:
        for put in trial.late:
            put()
        trial.late.clear()
    trial.check()
    if trial.late:
        for put in trial.late:
            put()
        trial.check()
    for process in list(trial.world.processes):
        trial.end(process)
    trial.world.close()
    return operations


@pytest.mark.rocketmq("R4", "R8", "R10")
@pytest.mark.parametrize("case", CASES)
def test_every_operation_may_be_the_last_and_every_answer_ambiguous(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Ends that go alone are stored by the case, not by a thread.
    monkeypatch.setattr(engine, "LINGER_S", 3_600.0)
    operations = attempt(case, 0, Fault.NONE)
    assert len(operations) > 3
    points = [
        (place, operation, fault)
        for place, operation in enumerate(operations, 1)
        for fault in (WRITE_FAULTS if operation.verb in WRITES else READ_FAULTS)
        if fault.means_something_for(operation.verb)
    ]
    for place, operation, fault in share(points, list(CASES).index(case)):
        try:
            attempt(case, place, fault)
        except Exception as error:
            error.add_note(f"{case}: {fault.value} at {operation}")
            raise
