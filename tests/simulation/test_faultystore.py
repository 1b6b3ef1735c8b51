"""Each fault does what its name says, to each verb for which it means something."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparktxn._engine.objectstore.contract import PutOutcome
from sparktxn.errors import StoreUnavailable
from sparktxn.testing.faultystore import Died, Fault, FaultyStore, at_operation
from tests.simulation.sharedobjects import SharedObjects

pytestmark = pytest.mark.simulation

READS: dict[str, Callable[[FaultyStore], object]] = {
    "get": lambda store: store.get("there"),
    "get_range": lambda store: store.get_range("there", 0, 2),
    "list": lambda store: [info.name for info in store.list("")],
    "list_names": lambda store: list(store.list_names("")),
}
WRITES: dict[str, Callable[[FaultyStore], object]] = {
    "put_if_absent": lambda store: store.put_if_absent("new", b"mine"),
    "put": lambda store: store.put("new", b"mine"),
    "delete": lambda store: store.delete(["there"]),
}
ANSWERS = {"get": b"bytes", "get_range": b"by", "list": ["there"], "list_names": ["there"]}
APPLIED = {Fault.DIE_AFTER, Fault.RESPONSE_LOST, Fault.CONFLICT_APPLIED, Fault.TWICE, Fault.COPY_LATER, Fault.SLOW}
UNKNOWN = {Fault.REFUSED, Fault.RESPONSE_LOST, Fault.CONFLICT, Fault.CONFLICT_APPLIED, Fault.LATE}
FAULTS = [fault for fault in Fault if fault is not Fault.NONE]


class Faulty:
    """A store with one object, whose first operation meets a fault."""

    def __init__(self, fault: Fault) -> None:
        self.shared = SharedObjects()
        self.shared.put("there", b"bytes")
        self.late: list[Callable[[], object]] = []
        self.pauses = 0
        self.store = FaultyStore(self.shared, at_operation(1, fault), later=self.late.append, pause=self._pause)

    def _pause(self) -> None:
        self.pauses += 1

    def is_applied(self, verb: str) -> bool:
        """Whether the write has taken effect."""
        if verb == "delete":
            return "there" not in self.shared.objects
        return self.shared.objects.get("new") == b"mine"


def outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except (Died, StoreUnavailable) as error:
        return type(error)


@pytest.mark.parametrize("verb", READS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_reads(verb: str, fault: Fault) -> None:
    faulty = Faulty(fault)
    told = outcome(lambda: READS[verb](faulty.store))
    if fault in (Fault.DIE_BEFORE, Fault.DIE_AFTER):
        assert told is Died
        with pytest.raises(Died):
            READS[verb](faulty.store)
    elif fault in (Fault.UNAVAILABLE, Fault.REFUSED, Fault.RESPONSE_LOST):
        assert told is StoreUnavailable
    else:
        assert told == ANSWERS[verb]
    assert faulty.pauses == (fault is Fault.SLOW)
    assert not faulty.late


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_writes(verb: str, fault: Fault) -> None:
    faulty = Faulty(fault)
    told = outcome(lambda: WRITES[verb](faulty.store))
    means_something = fault.means_something_for(verb)
    assert means_something or fault in (Fault.CONFLICT, Fault.CONFLICT_APPLIED)
    assert faulty.is_applied(verb) is (fault in APPLIED or not means_something)
    if fault in (Fault.DIE_BEFORE, Fault.DIE_AFTER):
        assert told is Died
    elif fault in (Fault.UNAVAILABLE, Fault.DENIED) or (
        verb != "put_if_absent" and means_something and fault in UNKNOWN
    ):
        assert told is StoreUnavailable
    elif verb == "put_if_absent":
        expected = PutOutcome.EXISTS if fault is Fault.TWICE else PutOutcome.CREATED
        assert told is (PutOutcome.UNKNOWN if fault in UNKNOWN else expected)
    else:
        assert told is None
    assert faulty.pauses == (fault is Fault.SLOW)
    assert len(faulty.late) == (fault in (Fault.LATE, Fault.COPY_LATER))


@pytest.mark.parametrize("fault", [Fault.LATE, Fault.COPY_LATER], ids=lambda fault: fault.value)
@pytest.mark.parametrize("verb", WRITES)
def test_a_late_write_is_applied_when_it_arrives(verb: str, fault: Fault) -> None:
    faulty = Faulty(fault)
    outcome(lambda: WRITES[verb](faulty.store))
    faulty.shared.delete(["new"])
    faulty.shared.put("there", b"again")
    faulty.late[0]()
    assert faulty.is_applied(verb)


def test_a_late_put_if_absent_does_not_overwrite() -> None:
    faulty = Faulty(Fault.LATE)
    faulty.store.put_if_absent("new", b"mine")
    faulty.shared.put_if_absent("new", b"theirs")
    faulty.late[0]()
    assert faulty.shared.objects["new"] == b"theirs"
