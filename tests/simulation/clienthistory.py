"""What clients sent, were answered, and read: facts that any user could have written down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from tests.simulation.history import Outcome

__all__ = ["Batch", "ClientHistory", "Committed", "Delivery", "Place", "Range", "Record", "Request", "Transaction"]

Place = tuple[str, int, int]
"""A partition: (topic, topic id, partition)."""


class Record(Struct, frozen=True):
    """A record that was read."""

    place: Place
    offset: int
    value: str


class Range(Struct, frozen=True):
    """A partition's offsets from `start` to `end` as read in one view, with what the view says of the partition."""

    start: int
    end: int
    log_start_offset: int
    last_stable_offset: int
    log_end_offset: int


class Batch(Struct, frozen=True):
    """What one call of a reader gave.

    `entry` is the view's, -1 where the reader gives none. `whole` says that the reader promises whole transactions.
    `to_entry` is the last one that a read in commit order has passed, -1 for a read in offset order, and
    `from_the_beginning` that it has begun anew. `began` and `ended` are moments of the simulation, which order the
    calls of all processes.
    """

    reader: str
    entry: int
    committed: bool
    whole: bool
    began: int
    ended: int
    ranges: dict[Place, Range]
    records: tuple[Record, ...]
    to_entry: int = -1
    from_the_beginning: bool = False

    @property
    def is_of_commits(self) -> bool:
        """True for a read in commit order: its ranges are all that the view has."""
        return self.to_entry >= 0


class Transaction(Struct):
    """One attempt at a transaction. `sent` are (topic, partition, value) in the order in which they were produced.

    `fused` says that nothing was published before its end. `inputs` are the values that it was computed from.
    `offsets` are the group's next offsets that it commits. `ending` is the moment at which the commit was first asked
    for, -1 before. `entry` is the newest that its process knew when it learnt of the commit. `let_go` is the moment
    from which its client holds it no longer, -1 while it does.
    """

    name: str
    transactional_id: str
    process: str
    sent: list[tuple[str, int, str]] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    fused: bool = True
    ending: int = -1
    told: int = -1
    entry: int = -1
    outcome: Outcome = Outcome.UNKNOWN
    let_go: int = -1
    expected: dict[tuple[str, int], int] = field(default_factory=dict)


class Request(Struct):
    """A call that asks for one command of the log. `mark` is what this command carries and no other one.

    `outcome` is REFUSED if the call was reported as failed, in words that leave nothing open. `let_go` is the moment
    from which its client holds it no longer, -1 while it does.
    """

    what: str
    mark: str
    client: str
    outcome: Outcome = Outcome.UNKNOWN
    let_go: int = -1


class Delivery(Struct, frozen=True):
    """A delivery report without an error."""

    value: str
    topic: str
    partition: int
    offset: int


class Committed(Struct, frozen=True):
    """A group's committed offset at the end."""

    group: str
    topic: str
    partition: int
    offset: int


class ClientHistory(Struct):
    """All of it. `final` are one reader's whole views after everything has come to rest, one of each isolation.

    `marks` are those that the log holds at the end, with their entries. `offered` says when each mark, and each value
    that is stored, was last offered to the log by each process. `plain_groups` commit offsets without any output;
    `draining` are groups that have read a topic to its end. `halves` are the ids of half transactions, `decisions` what
    a database has decided for them, and `asked` is how often a checker was asked for each.
    """

    transactions: list[Transaction] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    final: list[Batch] = field(default_factory=list)
    offsets: list[Committed] = field(default_factory=list)
    deleted_topics: set[str] = field(default_factory=set)
    trimmed_topics: set[str] = field(default_factory=set)
    requests: list[Request] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    offered: dict[str, dict[str, int]] = field(default_factory=dict)
    plain_groups: set[str] = field(default_factory=set)
    draining: dict[str, str] = field(default_factory=dict)
    operations: int = 0
    halves: set[str] = field(default_factory=set)
    decisions: dict[str, bool] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    keyed_topics: frozenset[str] = frozenset()

    def begin(self, process: str, transactional_id: str) -> Transaction:
        """A new attempt."""
        name = f"{process}.{len(self.transactions)}"
        self.transactions.append(Transaction(name, transactional_id, process))
        return self.transactions[-1]

    def ask(self, what: str, client: str) -> Request:
        """A new request, with a mark of its own."""
        self.requests.append(Request(what, f"mark {len(self.requests)};", client))
        return self.requests[-1]

    def reads(self) -> Iterator[Batch]:
        """What all readers were given, and the final views."""
        yield from self.batches
        yield from self.final

    def final_view(self, *, committed: bool) -> Batch:
        """The final view of one isolation."""
        return next(batch for batch in self.final if batch.committed is committed)

    def by_value(self) -> dict[str, Transaction]:
        """Which transaction has sent a value."""
        return {value: transaction for transaction in self.transactions for _, _, value in transaction.sent}

    def places(self) -> dict[str, tuple[Place, int]]:
        """Where each value was first seen, by whom ever."""
        found: dict[str, tuple[Place, int]] = {}
        for record in self._records():
            found.setdefault(record.value, (record.place, record.offset))
        return found

    def _records(self) -> Iterable[Record]:
        for batch in self.reads():
            yield from batch.records

    def may_be_gone(self, topic: str, partition: int, value: str, batch: Batch) -> bool:
        """True if a value may rightly be missing: its topic was deleted, or the log's start has passed it."""
        if topic in self.deleted_topics:
            return True
        if topic not in self.trimmed_topics:
            return False
        seen = self.places().get(value)
        starts = [range_.log_start_offset for place, range_ in batch.ranges.items() if place[::2] == (topic, partition)]
        return any(start > 0 and (seen is None or seen[1] < start) for start in starts)
