"""Putting under a name that no other writer races for: until the store shows the object, with pauses in between."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sparktxn._engine.objectstore import PutOutcome
from sparktxn._engine.objectstore.puts import put_each_until_stored, put_until_stored
from sparktxn._foundation.process.clock import Deadline
from sparktxn.errors import StoreUnavailable
from sparktxn.testing.clocks import ManualClock
from tests.unit.stage.stores import ScriptedStore


def put(objects: ScriptedStore, clock: ManualClock, timeout_s: float | None = None) -> bytes:
    return put_until_stored(objects, "_log/object", b"data", clock, timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("script", "puts", "waited"),
    [
        ([], 1, False),
        (["lost"], 1, False),
        (["exists"], 1, False),
        (["dropped"], 2, True),
        (["dropped", "lost"], 2, True),
    ],
)
def test_the_object_is_put_until_the_store_shows_it(script: list[str], puts: int, waited: bool) -> None:
    objects, clock = ScriptedStore(list(script)), ManualClock()
    before_s = clock.monotonic_s()
    assert put(objects, clock) == b"data"
    assert len(objects.puts) == puts
    assert (clock.monotonic_s() > before_s) == waited


def test_what_another_writer_has_put_is_returned_durable() -> None:
    objects = ScriptedStore(["taken"])
    assert put(objects, ManualClock()) == b"other"
    assert objects.made_durable == ["_log/object"]


class BatchingStore(ScriptedStore):
    """One whose answer to the second of several objects is lost."""

    def put_each_if_absent(self, objects: Sequence[tuple[str, bytes]]) -> list[PutOutcome]:
        outcomes = [self.put_if_absent(name, data) for name, data in objects]
        return [PutOutcome.UNKNOWN if place == 1 else outcome for place, outcome in enumerate(outcomes)]


@pytest.mark.parametrize("kind", [ScriptedStore, BatchingStore])
def test_each_of_several_objects_is_stored_and_durable(kind: type[ScriptedStore]) -> None:
    objects = kind([])
    each = [("_log/1", b"one"), ("_log/2", b"two"), ("_log/3", b"three")]
    put_each_until_stored(objects, each, ManualClock())
    assert [objects.get(name) for name, _ in each] == [data for _, data in each]
    # What is not known to be stored is put again, and then made durable.
    assert objects.made_durable == (["_log/2"] if kind is BatchingStore else [])


def test_attempts_end_though_no_deadline_is_set_and_their_pauses_grow() -> None:
    objects, clock = ScriptedStore(["dropped"] * 100), ManualClock()
    before_s = clock.monotonic_s()
    with pytest.raises(StoreUnavailable, match="was not stored"):
        put(objects, clock)
    assert 1 < len(objects.puts) < 20
    assert clock.monotonic_s() - before_s > 0.05 * len(objects.puts)


@pytest.mark.parametrize("is_governed", [False, True])
def test_no_pause_outlives_the_deadline(is_governed: bool) -> None:
    objects, clock = ScriptedStore(["dropped"] * 100), ManualClock()
    before_s = clock.monotonic_s()
    governing = Deadline(clock, 0.2 if is_governed else None)
    with governing.governs(), pytest.raises(StoreUnavailable):
        put(objects, clock, timeout_s=None if is_governed else 0.2)
    assert clock.monotonic_s() - before_s <= 0.2 + 1e-6
