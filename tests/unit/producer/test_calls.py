from __future__ import annotations

import threading

import pytest

from sparktxn.errors import KafkaError, KafkaException
from sparktxn.producer.transactionstates import ProducerStates, TransactionPhase


def failing(calls: ProducerStates, name: str, *, retriable: bool) -> None:
    with pytest.raises(KafkaException), calls.call(name, TransactionPhase.UNINITIALIZED):
        raise KafkaException(KafkaError(-185, "timed out", retriable=retriable))


def raised_by(calls: ProducerStates, name: str) -> KafkaError:
    with pytest.raises(KafkaException) as raised, calls.call(name, TransactionPhase.UNINITIALIZED):
        pass
    return raised.value.error


@pytest.mark.kafka("K118")
def test_after_a_retriable_error_only_the_same_call_goes_on() -> None:
    calls = ProducerStates()
    failing(calls, "commit_transaction", retriable=True)
    error = raised_by(calls, "abort_transaction")
    assert error == KafkaError._CONFLICT
    assert error.retriable()
    assert "commit_transaction() again" in error.str()
    with calls.call("commit_transaction", TransactionPhase.UNINITIALIZED):
        pass
    with calls.call("abort_transaction", TransactionPhase.UNINITIALIZED):
        pass


def test_after_another_error_every_call_may_follow() -> None:
    calls = ProducerStates()
    failing(calls, "commit_transaction", retriable=False)
    with calls.call("abort_transaction", TransactionPhase.UNINITIALIZED):
        pass


@pytest.mark.kafka("K118")
@pytest.mark.parametrize(
    ("second", "code"),
    [("commit_transaction", KafkaError._PREV_IN_PROGRESS), ("abort_transaction", KafkaError._CONFLICT)],
)
def test_a_call_beside_another_thread_is_told_so(second: str, code: int) -> None:
    calls = ProducerStates()
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with calls.call("commit_transaction", TransactionPhase.UNINITIALIZED):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(10)
    error = raised_by(calls, second)
    leave.set()
    thread.join()
    assert error == code
    assert error.retriable()
