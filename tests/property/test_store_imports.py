"""An imported topic reads as the topic in its source: random histories, imported at random entries, and again."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparktxn import Store, read_arrow
from sparktxn.transfer import import_from_store
from tests.property.test_commit_order import ACTIONS, PARTITIONS, PRODUCERS, Row, Step, inline_bytes_
from tests.property.test_rewrites import Rewriting
from tests.seeds import examples
from tests.world import next_number

IMPORTS = ["import", "import at an entry", "rewrite"]

steps = st.lists(
    st.tuples(st.sampled_from([*ACTIONS, *IMPORTS]), st.integers(0, PRODUCERS - 1), st.integers(0, PARTITIONS - 1)),
    min_size=5,
    max_size=40,
)


class Importing(Rewriting):
    """A history that is imported now and then; each record that was committed and kept at that time arrives once."""

    def __init__(self, inline_bytes: int, target: Store) -> None:
        super().__init__(inline_bytes)
        self.target = target
        self.position = 0
        self.expected: list[Row] = []
        self.log_starts_by_entry: list[tuple[int, list[int]]] = []

    def step(self, action: str, number: int, partition: int) -> None:
        if action.startswith("import"):
            back = number if action == "import at an entry" else 0
            self.bring_forward(max(self.position, self.entry - back, 1))
        else:
            super().step(action, number, partition)
        self.log_starts_by_entry.append((self.entry, [*self.log_starts]))

    def bring_forward(self, entry: int) -> None:
        """Import what the view of an entry has; a vacuum may have passed one that is not the newest."""
        report = import_from_store(self.target, "t", self.store, "t", entry=None if entry == self.entry else entry)
        expected = self.seen_between(self.position, entry)
        assert report.records == len(expected)
        self.expected += expected
        if expected:
            self.position = entry
        assert read(self.target) == Counter((row.partition, row.value) for row in self.expected)

    def seen_between(self, after_entry: int, entry: int) -> list[Row]:
        """Return what the view of an entry has: what was deleted later is still in it."""
        log_starts = next(
            (starts for at, starts in reversed(self.log_starts_by_entry) if at <= entry), [0] * PARTITIONS
        )
        return [
            row for row in self.rows if after_entry < row.entry <= entry and row.offset >= log_starts[row.partition]
        ]


def read(store: Store) -> Counter[Any]:
    found = read_arrow(store, "t", columns=["partition", "value"]).read_all().to_pylist()
    return Counter((row["partition"], row["value"]) for row in found)


@settings(max_examples=examples(15, 600))
@example(
    taken=[
        ("produce", 0, 0),
        ("commit", 0, 0),
        ("delete", 0, 0),
        ("import at an entry", 1, 0),
    ],
    inline_bytes=0,
).via("an import at an entry before a deletion has what was deleted")
@given(steps, inline_bytes_)
def test_an_import_has_what_the_source_has_committed(taken: list[Step], inline_bytes: int) -> None:
    with Store.open(f"memory://target-{next_number()}", create=True) as target:
        target.create_topic("t", PARTITIONS)
        history = Importing(inline_bytes, target)
        try:
            for step in [*taken, ("import", 0, 0)]:
                history.step(*step)
        finally:
            history.world.close()
