"""What a handle's commit has sent and does not know the outcome of.

The same call asks for the outcome again; a call with other contents cancels what has not taken effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import force_setattr

from sparktxn.errors import (
    CommandRefused,
    ErrorCode,
    ExpectationFailed,
    KafkaError,
    KafkaException,
    OutcomeLost,
    OutcomeUnknown,
    ProducerFenced,
    SegmentExpired,
    StoreError,
    StoreUnavailable,
)
from sparktxn.format.commands import Command, ExpectEndOffset, OffsetToCommit
from sparktxn.stage.merging import gathered
from sparktxn.stage.stagedsegment import StagedSegment
from sparktxn.stage.transaction import TransactionIdentity, TransactionWriter
from sparktxn.values import arguments

if TYPE_CHECKING:
    from sparktxn.log.log import Log

__all__ = ["Contents", "Expectations", "PendingCommit", "SinkCommit", "TransactionOffsets", "prescriptive"]


class SinkCommit(Struct, frozen=True):
    """A micro-batch's identity: `writer_id` is a query or an application, `run_id` is empty where there are no runs.

    Raises:
        TypeError: an id is not a str, or `batch_id` is not a whole number.
        ConfigurationError: an id is too long or not UTF-8, or `batch_id` is not from 0 to 2**63 - 1.
    """

    writer_id: str
    run_id: str
    batch_id: int

    def __post_init__(self) -> None:
        force_setattr(self, "writer_id", arguments.identifier("writer_id", self.writer_id))
        force_setattr(self, "run_id", arguments.identifier("run_id", self.run_id, may_be_empty=True))
        force_setattr(self, "batch_id", arguments.integer("batch_id", self.batch_id, 0))


Expectations = tuple[tuple[int, int, int], ...]
"""Where partitions must end for a commit to pass: (topic id, partition, log end offset) of each."""


class TransactionOffsets(Struct, frozen=True):
    """The offsets that a transaction commits for a consumer group."""

    group_id: str
    offsets: tuple[OffsetToCommit, ...]


class Contents(Struct, frozen=True):
    """What a commit asks for: a segment is named by one transaction only."""

    segments: tuple[str, ...]
    sink: SinkCommit | None
    group: TransactionOffsets | None = None
    expected: Expectations = ()

    @classmethod
    def of(
        cls,
        staged: Sequence[StagedSegment],
        sink: SinkCommit | None = None,
        group: TransactionOffsets | None = None,
        expected: Expectations = (),
    ) -> Contents:
        """Return the contents of a commit of these segments, in whatever order."""
        return cls(tuple(sorted(segment.segment for segment in staged)), sink, group, expected)

    def is_empty(self) -> bool:
        """Return True if the commit would change and check nothing."""
        return self == Contents((), None)


class PendingCommit:
    """Own a writer of transactions and at most one list of it; one thread at a time uses it."""

    def __init__(self, log: Log) -> None:
        self.transactions = TransactionWriter(log)
        self._log = log
        self._sent: Contents | None = None
        self._stored: tuple[Contents, int] | None = None
        self._lost: tuple[Contents, OutcomeLost] | None = None

    def stored_entry(self, contents: Contents) -> int | None:
        """Return an entry from which on the contents are visible, if a caller got an error and they were stored."""
        return self._stored[1] if self._stored is not None and self._stored[0] == contents else None

    def send(
        self,
        contents: Contents,
        staged: Sequence[StagedSegment],
        identity: TransactionIdentity,
        *,
        before: Sequence[Command],
        after: Sequence[Command],
    ) -> None:
        """Send a transaction and wait; while its outcome is unknown this handle keeps it, and begins no other.

        Raises:
            CommandRefused: nothing was written.
            OutcomeUnknown, StoreUnavailable: not known by the deadline.
        """
        expectations = [ExpectEndOffset(*identity.names(), *expected) for expected in contents.expected]
        named = gathered(self._log, staged)
        self.transactions.send(named, before=[*expectations, *before], after=after, transaction=identity)
        self._sent = contents
        try:
            self.transactions.resolve()
        except OutcomeLost as lost:
            self._lost = (contents, lost)
            raise
        except StoreUnavailable as error:
            raise self._if_withdrawn(error) from None
        finally:
            self.transactions.withdraw()

    def settle(self, contents: Contents) -> None:
        """Learn what has become of the list whose outcome is unknown; one with other contents is cancelled.

        Two transactions would have one number and the same sequences: the second could be taken for the first.

        Raises:
            OutcomeLost: it never will be known whether these contents are stored. A sink's batch is looked up instead.
            OutcomeUnknown, StoreUnavailable: it is not known by the deadline, and nothing else has begun.
        """
        self._raise_if_lost(contents)
        sent = self._sent
        if not self.transactions.is_busy or sent is None:
            return
        try:
            self.transactions.resolve(cancel=sent != contents)
        except (OutcomeUnknown, StoreUnavailable) as error:
            if isinstance(error, OutcomeLost):
                self._lost = (sent, error)
                self._raise_if_lost(contents)
            if not self.transactions.is_busy:
                return
            if sent == contents and isinstance(error, StoreUnavailable):
                raise self._if_withdrawn(error) from None
            if sent == contents:
                raise
            raise StoreUnavailable(
                f"nothing was written: what became of the commit before is not known by the deadline ({error}); call "
                "again"
            ) from error
        except CommandRefused:
            return
        self._stored = (sent, self._log.entry)

    def _if_withdrawn(self, error: StoreUnavailable) -> StoreError:
        """Return the error for a list that was not sent by the deadline: another thread may be about to send it."""
        if self.transactions.withdraw():
            return error
        return OutcomeUnknown(f"{error}: another call of this process may send it; call again, which resolves it")

    def _raise_if_lost(self, contents: Contents) -> None:
        if self._lost is not None and self._lost[0] == contents and contents.sink is None:
            raise self._lost[1]


def prescriptive(refused: CommandRefused) -> KafkaException:
    """Return a refusal as the class that says what to do about it."""
    code, reason = refused.error.code(), refused.error.str()
    if code == ErrorCode.KAFKA_STORAGE_ERROR:
        return SegmentExpired(reason)
    if code == ErrorCode.UNEXPECTED_END_OFFSET:
        return ExpectationFailed(KafkaError(code, reason))
    if code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
        return ProducerFenced(KafkaError(ErrorCode.PRODUCER_FENCED, reason, fatal=True))
    return refused
