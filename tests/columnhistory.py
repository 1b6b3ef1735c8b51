"""Random histories of typed topics that gain columns, with a plain model of what each of their views holds."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sparktxn import SinkCommit, Store
from sparktxn.admin import AdminClient
from sparktxn.maintenance import rewrite

__all__ = ["OPTIONS", "TYPES", "ColumnHistory", "Snapshot", "expected"]

OPTIONS: Final = {"store.fsync": False, "checkpoint.seal.segments": 2, "checkpoint.fold.bytes.per.minute": 0}
"""Nothing is done in the background: the newest entry after a step is the step's."""

TYPES: Final[dict[str, pa.DataType]] = {
    "a": pa.int64(),
    "b": pa.string(),
    "c": pa.bool_(),
    "d": pa.list_(pa.int64()),
    "e": pa.float64(),
    "f": pa.struct([("x", pa.int32())]),
    "g": pa.binary(),
}
"""A column has the same type in all topics, also in one that was deleted and created again with others."""

Row = dict[str, Any]


class Snapshot(NamedTuple):
    """What the view at an entry holds: the columns and rows of each topic, and the transaction that ended there."""

    entry: int
    columns: dict[str, tuple[str, ...]]
    rows: dict[str, tuple[Row, ...]]
    transaction: str | None


class ColumnHistory:
    """Topics of one partition, whose rows are written, merged, and deleted with their topic, by a seed.

    All begin with the column ``a``. `names` are those of the topics. Without `deletes` no topic is deleted.
    """

    def __init__(
        self, store: Store, random: Random, names: tuple[str, ...] = ("t", "u"), *, deletes: bool = True
    ) -> None:
        self._deletes = deletes
        self.store = store
        self.random = random
        self.names = names
        self.snapshots: list[Snapshot] = []
        self._columns: dict[str, tuple[str, ...]] = {}
        self._rows: dict[str, tuple[Row, ...]] = {}
        self._batch = 0
        for name in names:
            self._create(name)
        self._note()

    @property
    def newest(self) -> Snapshot:
        return self.snapshots[-1]

    def step(self) -> None:
        """Do one thing, most often a write, and note what the store holds then."""
        name = self.random.choice(self.names)
        steps: list[Callable[[str], str | None]] = [self.write, self.add, self._merge, self._create_again]
        (chosen,) = self.random.choices(steps, [8, 5, 1, int(self._deletes)])
        transaction = chosen(name)
        if transaction is not None:
            self._note(transaction or None)

    def add(self, name: str, column: str | None = None) -> str | None:
        """Add a column that the topic does not have."""
        free = [one for one in TYPES if one not in self._columns[name]]
        if not free:
            return None
        column = column or self.random.choice(free)
        self.store.add_columns(name, pa.schema([(column, TYPES[column])]))
        self._columns[name] += (column,)
        return ""

    def write(self, name: str, columns: tuple[str, ...] | None = None) -> str:
        """Write a few rows with some of the topic's columns, in one transaction."""
        own = self._columns[name]
        chosen = columns or tuple(self.random.sample(own, self.random.randint(1, len(own))))
        rows = [{column: self._value(column) for column in chosen} for _ in range(self.random.randint(1, 3))]
        stager = self.store.stage_plan([name]).open(seed=0, default_topic=name, inline=self.random.random() < 0.5)
        stager.write(pa.Table.from_pylist(rows, pa.schema([(column, TYPES[column]) for column in chosen])))
        self._batch += 1
        self.store.commit(stager.finish(), transactional_id="w", sink=SinkCommit("w", "", self._batch))
        self._rows[name] += tuple(rows)
        return f"w:{self._batch}"

    def note(self) -> None:
        """Note what the store holds, after `add` or `write` was called."""
        self._note()

    def _value(self, column: str) -> Any:
        if self.random.random() < 0.3:
            return None
        number = self.random.randrange(1_000)
        return {
            "a": number,
            "b": f"é{number}",
            "c": bool(number % 2),
            "d": [number, None],
            "e": number / 2,
            "f": {"x": number},
            "g": bytes([number % 256]),
        }[column]

    def _merge(self, _: str) -> str:
        rewrite(self.store, {"rewrite.min.segments": 2})
        return ""

    def _create_again(self, name: str) -> str:
        AdminClient({"bootstrap.servers": self.store.uri}).delete_topics([name])[name].result()
        self._create(name)
        return ""

    def _create(self, name: str) -> None:
        more = self.random.sample([column for column in TYPES if column != "a"], self.random.randrange(2))
        self._columns[name] = ("a", *more)
        self._rows[name] = ()
        self.store.create_topic(name, schema=pa.schema([(column, TYPES[column]) for column in self._columns[name]]))

    def _note(self, transaction: str | None = None) -> None:
        entry = self.store.view().entry
        self.snapshots.append(Snapshot(entry, dict(self._columns), dict(self._rows), transaction))


def expected(
    snapshot: Snapshot, newest: Snapshot, topics: tuple[str, ...], names: tuple[str, ...] | None
) -> tuple[tuple[str, ...], list[Row]] | None:
    """Return the columns and rows of a read at a snapshot; None if a column that it names exists nowhere.

    Args:
        snapshot: what is read.
        newest: what the store holds now.
        topics: the topics that are read, one after the other.
        names: the columns that the read names; None: those that the topics have.
    """
    own = tuple(dict.fromkeys(name for topic in topics for name in snapshot.columns[topic]))
    known = {*own, *(name for topic in topics for name in newest.columns[topic])}
    if names is not None and not known.issuperset(names):
        return None
    asked = own if names is None else names
    return asked, [{name: row.get(name) for name in asked} for topic in topics for row in snapshot.rows[topic]]
