"""What a producer reports of a store that says no: each kind of answer, to each kind of put; and then work goes on.

What was reported as failed for certain is in no log, then or later. What is "possibly persisted" is there at most once.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final

import pytest

from sparktxn import Consumer, KafkaError, KafkaException, Producer, Store
from sparktxn._engine.format import names
from sparktxn._foundation.process.background import ThreadBackground
from sparktxn._foundation.process.clock import RandomIds
from sparktxn._rows.stage.buffers import Buffers
from sparktxn.errors import StoreUnavailable
from sparktxn.producer.reports import Reports
from sparktxn.store.registry import objects_of
from sparktxn.testing.faultystore import Fault, FaultyStore, Operation
from tests.lending import close_lent, lend_log, take_log_back
from tests.world import open_log

TIMEOUT_MS: Final = 1_500
SMALL, LARGE = b"small", Random(1).randbytes(300_000)
"""A record that its entry carries, and one that becomes a segment."""
CERTAIN, NOT_IN_TIME, NOT_KNOWN = "KAFKA_STORAGE_ERROR", "_MSG_TIMED_OUT", "possibly persisted"

# put: which puts of a producer's record fail. answers: the first ones, the last of them without end.
# report: what the callback gets. count: how often the record is in the log once the store is well.
TABLE = """
put      answers                   report       count
segment  DENIED                    CERTAIN      0
segment  REFUSED,DENIED            CERTAIN      0
segment  LATE,DENIED               CERTAIN      0
segment  RESPONSE_LOST,DENIED      stored       1
segment  UNAVAILABLE,DENIED        CERTAIN      0
segment  UNAVAILABLE               NOT_IN_TIME  0
segment  REFUSED                   NOT_IN_TIME  0
segment  CONFLICT                  NOT_IN_TIME  0
segment  LATE                      NOT_IN_TIME  0
segment  UNAVAILABLE,NONE          stored       1
segment  RESPONSE_LOST             stored       1
segment  CONFLICT_APPLIED          stored       1
segment  TWICE                     stored       1
entry    DENIED                    CERTAIN      0
entry    UNAVAILABLE,DENIED        CERTAIN      0
entry    UNAVAILABLE               NOT_IN_TIME  0
entry    REFUSED,DENIED            NOT_KNOWN    0-1
entry    REFUSED                   NOT_KNOWN    0-1
entry    LATE,DENIED               NOT_KNOWN    0-1
entry    LATE                      NOT_KNOWN    0-1
entry    CONFLICT,DENIED           NOT_KNOWN    0-1
entry    CONFLICT                  NOT_KNOWN    0-1
entry    REFUSED,DENIED,NONE       stored       1
entry    RESPONSE_LOST,DENIED      stored       1
entry    CONFLICT_APPLIED,DENIED   stored       1
entry    RESPONSE_LOST             stored       1
entry    TWICE                     stored       1
"""
COLUMNS, *ROWS = [line.split() for line in TABLE.split("\n") if line]


class Failing:
    """A store in memory whose puts of one kind get the answers that a test says, until it is well."""

    def __init__(self) -> None:
        self.kind = ""
        self.answers: Iterator[Fault] = itertools.repeat(Fault.NONE)
        self.late: list[Callable[[], object]] = []
        self.other = f"memory://{RandomIds().token()}"
        self.uri = f"{self.other}-failing"
        with Store.open(self.other, create=True) as store:
            store.create_topic("t")
        objects = FaultyStore(objects_of(self.other, {}), self._fate, later=self.late.append)
        self.log = open_log(objects, background=ThreadBackground("test", 2), create=False)
        lend_log(self.uri, self.log)

    def fail(self, kind: str, answers: str) -> None:
        *first, last = [Fault[answer] for answer in answers.split(",")]
        self.kind, self.answers = kind, itertools.chain(first, itertools.repeat(last))

    def _fate(self, operation: Operation) -> Fault:
        if operation.verb != "put_if_absent":
            return Fault.NONE
        is_entry, is_segment = names.parse_entry(operation.name) is not None, operation.name.startswith("topics/")
        return next(self.answers) if {"entry": is_entry, "segment": is_segment}.get(self.kind) else Fault.NONE

    def get_well(self) -> None:
        """Take every put from here on; those that are late arrive."""
        self.kind = ""
        for put in self.late:
            put()

    def values(self, isolation: str = "read_committed") -> list[bytes | None]:
        """All records, as another process sees them."""
        settings = {"bootstrap.servers": self.other, "group.id": "g", "isolation.level": isolation}
        with Consumer({**settings, "auto.offset.reset": "earliest", "enable.partition.eof": True}) as consumer:
            consumer.subscribe(["t"])
            found: list[bytes | None] = []
            while True:
                message = consumer.poll(10)
                assert message is not None
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF
                    return found
                found.append(message.value())


@pytest.fixture
def failing() -> Iterator[Failing]:
    world = Failing()
    yield world
    world.get_well()
    take_log_back(world.uri)
    close_lent(world.log)


def steps_of_records(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note when reports are queued, and when records wait no more."""
    steps: list[str] = []

    def noting(step: str, of: Callable[..., None]) -> Callable[..., None]:
        def noted(self: object, some: Sequence[object]) -> None:
            of(self, some)
            if some:
                steps.append(step)

        return noted

    monkeypatch.setattr(Reports, "add", noting("reported", Reports.add))
    monkeypatch.setattr(Buffers, "settle", noting("settled", Buffers.settle))
    return steps


@pytest.mark.parametrize(COLUMNS, ROWS)
def test_what_is_reported_of_each_answer_to_each_put(
    failing: Failing, put: str, answers: str, report: str, count: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[Any] = []
    errors: list[str] = []
    settings = {"bootstrap.servers": failing.uri, "message.timeout.ms": TIMEOUT_MS}
    producer = Producer({**settings, "error_cb": lambda error: errors.append(error.str())})
    producer.produce("t", b"before")
    assert producer.flush(10) == 0
    failing.fail(put, answers)
    steps = steps_of_records(monkeypatch)
    value = LARGE if put == "segment" else SMALL
    began_s = time.monotonic()
    producer.produce("t", value, on_delivery=lambda error, _: reports.append(error))
    assert producer.flush(30) == 0
    took_s = time.monotonic() - began_s
    (error,) = reports
    assert steps == ["reported", "settled"], "flush() would not wait for a record that is in neither count"
    if report == "stored":
        assert error is None
    else:
        last = Fault[answers.rpartition(",")[2]].value
        assert error.str().endswith(last), "the store's last words"
        assert error.name() == ("KAFKA_STORAGE_ERROR" if report == "CERTAIN" else "_MSG_TIMED_OUT")
        assert (NOT_KNOWN in error.str()) is (report == "NOT_KNOWN")
        assert "goes on" not in error.str()
        assert (took_s >= TIMEOUT_MS / 1000) is (report != "CERTAIN")
        assert errors == [error.str()], "error_cb has the same text"
    failing.get_well()
    producer.produce("t", b"after", on_delivery=lambda error, _: reports.append(error))
    assert producer.flush(30) == 0
    assert reports[1:] == [None], "work goes on, and nothing is reported twice"
    producer.close()
    found = failing.values()
    least, _, most = count.partition("-")
    assert int(least) <= found.count(value) <= int(most or least)
    assert [one for one in found if one != value] == [b"before", b"after"]


def test_records_behind_one_whose_outcome_is_not_known_are_reported_as_not_stored(failing: Failing) -> None:
    reports: dict[bytes, Any] = {}
    producer = Producer({"bootstrap.servers": failing.uri, "message.timeout.ms": TIMEOUT_MS})

    def produce(value: bytes) -> None:
        producer.produce("t", value, on_delivery=lambda error, _: reports.update({value: error and error.str()}))

    produce(b"0")
    assert producer.flush(10) == 0
    failing.fail("entry", "REFUSED")
    for value in (b"1", b"2", b"3"):
        produce(value)
        assert producer.flush(30) == 0
    assert reports[b"0"] is None
    assert NOT_KNOWN in reports[b"1"]
    for value in (b"2", b"3"):
        assert reports[value].startswith("not stored within delivery.timeout.ms: ")
    failing.get_well()
    produce(b"4")
    assert producer.flush(30) == 0
    producer.close()
    assert reports[b"4"] is None
    assert [value for value in failing.values() if value != b"1"] == [b"0", b"4"]


@pytest.mark.parametrize("put", ["segment", "entry"])
def test_a_transaction_is_refused_at_once_in_the_same_words_and_can_be_committed_later(
    failing: Failing, put: str
) -> None:
    errors: list[str] = []
    settings = {"bootstrap.servers": failing.uri, "transactional.id": "job"}
    producer = Producer({**settings, "error_cb": lambda error: errors.append(error.str())})
    producer.init_transactions(10)
    producer.begin_transaction()
    value = LARGE if put == "segment" else SMALL
    producer.produce("t", value)
    failing.fail(put, "DENIED")
    began_s = time.monotonic()
    producer.flush(60)
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(60)
    assert time.monotonic() - began_s < 30
    assert isinstance(refused.value, StoreUnavailable)
    assert refused.value.error.retriable()
    producer.poll(0)
    for text in (refused.value.error.str(), *errors):
        assert text.endswith("denied")
    assert errors
    failing.get_well()
    producer.commit_transaction(10)
    producer.close()
    assert failing.values() == [value]
