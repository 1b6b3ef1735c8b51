"""The one writer of lists of records: an identity, its sequences, and the list that is under way.

While that list's outcome is not known nothing else is sent. The same list is waited for again, so that a lost answer
never becomes a second append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from sparktxn._engine.format.commands import (
    AddPartitionsToTxn,
    Append,
    Command,
    CommandResult,
    EndTxn,
    ExpireProducers,
    InitProducerId,
)
from sparktxn._engine.state.settings import Condition, has_times_of_entries, times_changed
from sparktxn._engine.state.transactions.producerfencing import next_sequence
from sparktxn._foundation.values.fieldtypes import TopicIdPartition
from sparktxn._foundation.values.structs import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TRANSACTION,
    PartitionState,
    ProducerIdAndEpoch,
    TopicState,
)
from sparktxn._rows.stage.stagedsegment import StagedSegment
from sparktxn.errors import CommandRefused, OutcomeLost

if TYPE_CHECKING:
    from sparktxn._engine.log.log import Log
    from sparktxn._engine.log.write.queue import Ticket


# Whose times records get, as the log says when a list with them is sent: they may have been staged long before.

TIME_OF_ENTRY: Final = (-1, -1)
"""In place of the range of timestamps: the records get the time of the entry that names them."""


class TimesUsed(NamedTuple):
    """By topic id, whether records get the time of their entry; and what must hold where that is not fixed yet."""

    by_entry: dict[int, bool]
    condition: Condition | None


def times_used(log: Log, staged: Sequence[StagedSegment], fixed: dict[int, bool]) -> TimesUsed:
    """Return whose times the records of segments get, as last known here: nothing is waited for.

    Args:
        log: says which settings topics have, and whether they have records.
        staged: the segments.
        fixed: what is known for topics with records; others that have some are added.
    """
    by_entry = dict(fixed)
    may_change: dict[str, tuple[int, bool]] = {}
    for segment in staged:
        topic_id = segment.topic_id
        if topic_id in fixed:
            continue
        topic = log.at_hand(("topic", segment.topic))
        if not isinstance(topic, TopicState) or topic.topic_id != topic_id:  # not read yet, or deleted
            by_entry[topic_id], may_change[segment.topic] = False, (topic_id, False)
            continue
        by_entry[topic_id] = has_times_of_entries(topic.settings)
        partition = log.at_hand(("partition", topic_id, segment.partition))
        if isinstance(partition, PartitionState) and partition.log_end_offset > 0:
            fixed[topic_id] = by_entry[topic_id]
            may_change.pop(segment.topic, None)
        else:
            may_change[segment.topic] = (topic_id, by_entry[topic_id])
    return TimesUsed(by_entry, partial(times_changed, by_entry=may_change) if may_change else None)


NO_IDENTITY: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

_Sequences = dict[TopicIdPartition, int]
_Forgets = dict[TopicIdPartition, ExpireProducers]


class TransactionIdentity(Struct, frozen=True):
    """What every command of a transaction names."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction: int

    def names(self) -> tuple[str, int, int, int]:
        """Return the members, in the order in which commands begin with them."""
        return (self.transactional_id, self.producer_id, self.producer_epoch, self.transaction)

    def end(self, *, committed: bool) -> EndTxn:
        """Return the command that ends the transaction."""
        return EndTxn(*self.names(), committed=committed)

    def next_epoch(self, request_id: str, timeout_ms: int) -> InitProducerId:
        """Return the command that gives the same producer its next epoch."""
        return InitProducerId(request_id, self.transactional_id, timeout_ms, self.producer_id, self.producer_epoch)


def begun_by(
    identity: TransactionIdentity, keyed: Iterable[bool], others: Iterable[Command]
) -> list[AddPartitionsToTxn]:
    """Return the command that begins a transaction which no other one of its list begins; none if one does.

    Args:
        identity: what commands of the transaction name.
        keyed: of each segment of the list, whether its topic has a key: its rows are appended outside of it.
        others: the other commands before the one that ends it.
    """
    if all(keyed) and not any(getattr(command, "transactional_id", None) is not None for command in others):
        return [AddPartitionsToTxn(*identity.names(), partitions=())]
    return []


class _UnderWay(Struct):
    """A list that was sent, and the sequences that follow once it is stored.

    After `before_count` commands it has those of `forgets`, whose results its sender does not get. `by_entry` are the
    topics whose records get its time. `again` sends it anew, where the settings of topics may have changed meanwhile.
    """

    ticket: Ticket
    sequences: _Sequences
    before_count: int
    forgets: _Forgets
    by_entry: dict[int, bool]
    again: Callable[[], bool] | None


class TransactionWriter:
    """Own a producer's identity, its sequences and the list that is under way.

    One thread at a time uses it; `let_go` may be called by any.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._sequences: _Sequences = {}
        self._forgets: _Forgets = {}
        self._by_entry: dict[int, bool] = {}
        self._under_way: _UnderWay | None = None
        self._given_up = False
        self._request: tuple[tuple[object, ...], str] | None = None
        self.identity = NO_IDENTITY

    def take_identity(
        self, identity: ProducerIdAndEpoch, sequences: Mapping[TopicIdPartition, int] = MappingProxyType({})
    ) -> None:
        """Go on under another producer id or epoch, at the next sequences by (topic id, partition); 0 where none is."""
        self.identity = identity
        self._sequences = dict(sequences)
        self._forgets = {}

    def continue_at(self, where: TopicIdPartition, sequence: int, forgets: ExpireProducers | None = None) -> None:
        """Go on at `sequence` in a partition. The list that does first has the log forget what would refuse it."""
        self._sequences[where] = sequence
        self._forgets.pop(where, None)
        if forgets is not None:
            self._forgets[where] = forgets

    def initialise(
        self,
        *,
        transactional_id: str | None = None,
        timeout_ms: int = InitProducerId("").timeout_ms,
        previous: ProducerIdAndEpoch = NO_IDENTITY,
        keep_prepared: bool = False,
    ) -> CommandResult:
        """Allocate or bump the identity, and take it. The same request is repeated until it is answered: it bumps once.

        Raises:
            CommandRefused: the state refuses it.
            OutcomeUnknown, StoreUnavailable: not known by the deadline: call again.
        """
        asked = (transactional_id, timeout_ms, previous.producer_id, previous.producer_epoch, keep_prepared)
        if self._request is None or self._request[0] != asked:
            self._request = (asked, self._log.ids.token())
        result = self._log.submit([InitProducerId(self._request[1], *asked)])[0]
        self._request = None
        self.take_identity(ProducerIdAndEpoch(result.producer_id, result.producer_epoch))
        return result

    @property
    def is_busy(self) -> bool:
        """True while there is a list whose outcome is not known."""
        return self._under_way is not None

    def send(
        self,
        staged: Sequence[StagedSegment],
        *,
        before: Sequence[Command] = (),
        after: Sequence[Command] = (),
        transaction: TransactionIdentity | None = None,
    ) -> None:
        """Send one list, all or nothing: `before`, an append for each segment, `after`. `resolve` returns its outcome.

        Raises:
            CommandRefused: no entry can hold the list.
        """
        sequences = dict(self._sequences)
        by_entry, condition = self._by_entry, None
        for segment in staged:
            if segment.topic_id not in by_entry:
                by_entry, condition = times_used(self._log, staged, self._by_entry)
                break
        appends = [self._append(segment, sequences, by_entry[segment.topic_id], transaction) for segment in staged]
        forgets = self._forgets
        if forgets:
            named = {(segment.topic_id, segment.partition) for segment in staged}
            forgets = {where: forgotten for where, forgotten in forgets.items() if where in named}
        ticket = self._log.send([*before, *forgets.values(), *appends, *after], condition)
        again = None
        if condition is not None:
            again = partial(self._send_again, by_entry, staged, before=before, after=after, transaction=transaction)
        self._under_way = _UnderWay(ticket, sequences, len(before), forgets, by_entry, again)
        # Either let_go() has seen the list, or this sees that nothing waits for it any more.
        if self._given_up:
            ticket.let_go()

    def resolve(self, *, cancel: bool = False) -> list[CommandResult]:
        """Return the results of the list that is under way, in the order of its commands; empty if there is no list.

        With `cancel` the list is cancelled unless it has taken effect: then it never will.

        Raises:
            CommandRefused: nothing of it was written.
            OutcomeUnknown, StoreUnavailable: not known by the deadline: call again.
            OutcomeLost: it will never be known. Nothing may follow under this identity, which is forgotten: a sequence
                that is repeated could be taken for a batch that was stored.
        """
        sent = self._under_way
        if sent is None:
            return []
        try:
            if cancel:
                sent.ticket.cancel()
            results = sent.ticket.wait()
        except CommandRefused:
            self._under_way = None
            if sent.again is None or not sent.again():
                raise
            return TransactionWriter.resolve(self, cancel=cancel)
        except OutcomeLost:
            self._under_way = None
            self.take_identity(NO_IDENTITY)
            raise
        self._under_way = None
        self._by_entry = sent.by_entry  # these topics have records now
        self._sequences = sent.sequences
        if sent.forgets:
            self._forgets = {where: each for where, each in self._forgets.items() if where not in sent.forgets}
            results = [*results[: sent.before_count], *results[sent.before_count + len(sent.forgets) :]]
        self._stored(results)
        return results

    def _send_again(self, by_entry: dict[int, bool], staged: Sequence[StagedSegment], **parts: Any) -> bool:
        """Send what was refused anew, if the log now says that the records get other times; else return False."""
        if times_used(self._log, staged, self._by_entry).by_entry == by_entry:
            return False
        self.send(staged, **parts)
        return True

    def _stored(self, results: Sequence[CommandResult]) -> None:
        """Note that the list under way has taken effect: for a writer that keeps more of it than its sequences."""

    def withdraw(self) -> bool:
        """Return True if nothing is under way any more: the list, if there was one, will never be written."""
        if self._under_way is not None and self._under_way.ticket.withdraw():
            self._under_way = None
        return self._under_way is None

    def let_go(self) -> None:
        """Give up the list that is under way: this process puts it no more. For an owner that does not come back."""
        self._given_up = True
        sent = self._under_way
        if sent is not None:
            sent.ticket.let_go()

    def _append(
        self,
        staged: StagedSegment,
        sequences: _Sequences,
        by_entry: bool,
        transaction: TransactionIdentity | None,
    ) -> Append:
        if staged.is_keyed:
            # Outside of the transaction, in the list that ends it (rule K).
            transaction = None
        times_ms = (staged.timestamp_min_ms, staged.timestamp_max_ms)
        if by_entry and not staged.keeps_times:
            times_ms = TIME_OF_ENTRY
        where = (staged.topic_id, staged.partition)
        base_sequence = sequences.get(where, 0)
        sequences[where] = next_sequence(base_sequence, staged.record_count)
        return Append(
            topic_id=staged.topic_id,
            partition=staged.partition,
            segment=staged.segment,
            record_count=staged.record_count,
            size_bytes=staged.size_bytes,
            checksum=staged.checksum,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            base_sequence=base_sequence,
            timestamp_min_ms=times_ms[0],
            timestamp_max_ms=times_ms[1],
            transactional_id=None if transaction is None else transaction.transactional_id,
            transaction=NO_TRANSACTION if transaction is None else transaction.transaction,
            data=staged.data,
        )
