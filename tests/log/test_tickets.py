"""What an owner learns that does not come back, whatever the writer has met."""

from __future__ import annotations

import pytest

from sparktxn._engine.format.commands import InitProducerId
from sparktxn._engine.log.write.queue import QueuedList, Ticket, checked_list
from sparktxn._engine.state.delta import Refusal
from sparktxn.errors import ClockSkewError, ErrorCode, OutcomeUnknown, StoreUnavailable
from tests.each import each


class FailingWriter:
    """Fails with one error, and has put nothing: each list can be withdrawn."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls = 0

    def work_for(self, list_: QueuedList) -> None:
        self.calls += 1
        raise self.error

    def withdraw(self, list_: QueuedList) -> bool:
        return not list_.is_done()


def queued() -> QueuedList:
    return QueuedList(checked_list([InitProducerId("request", "job")]), 1)


@each(
    [
        (StoreUnavailable("the store is slow"), True),
        (StoreUnavailable("the disk is full", transient=False), False),
        (OutcomeUnknown("the deadline passed"), True),
    ]
)
def test_whether_a_failure_is_transient_is_what_the_store_has_said(error: Exception, transient: bool) -> None:
    with pytest.raises(StoreUnavailable, match=f"{error}.*: nothing was written, and nothing will be") as caught:
        Ticket(FailingWriter(error), queued()).wait_once()
    assert caught.value.transient is transient


def test_a_clock_that_is_wrong_stays_the_reason() -> None:
    with pytest.raises(ClockSkewError, match="an hour: nothing was written, and nothing will be"):
        Ticket(FailingWriter(ClockSkewError("it differs by an hour")), queued()).wait_once()


def test_no_work_is_done_to_cancel_what_is_over() -> None:
    writer, list_ = FailingWriter(OutcomeUnknown("the deadline passed")), queued()
    list_.end(Refusal(ErrorCode.INVALID_TXN_STATE, "refused"))
    assert not Ticket(writer, list_).cancel()
    assert writer.calls == 0
