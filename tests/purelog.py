"""A log without a store: the state machine over a dict, one list of commands to an entry."""

from __future__ import annotations

from typing import Any

import msgspec

from sparktxn._engine.format.commands import Command, CommandResult, CreateTopic, InitProducerId
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.machine import Applied, apply_list
from sparktxn._foundation.values.structs import (
    PartitionSegments,
    PartitionState,
    StateKey,
    StateRecord,
    TransactionState,
)
from sparktxn.errors import CommandRefused, ErrorCode
from tests.producercommands import ProducerCommands

__all__ = ["PureLog"]

_encode = msgspec.json.Encoder().encode
_decode_results = msgspec.json.Decoder(list[CommandResult]).decode
_decode_records = msgspec.json.Decoder(list[StateRecord]).decode


class PureLog:
    """The state as records by key. `timestamp_ms` is the next entry's: a test moves it."""

    def __init__(self) -> None:
        self.records: dict[StateKey, Any] = {}  # StateRecord: its key says which
        self.entries: list[tuple[Context, list[Command]]] = []
        self.timestamp_ms = 1_000

    @property
    def entry(self) -> int:
        """The newest entry's number."""
        return len(self.entries)

    def submit(self, *commands: Command) -> list[CommandResult]:
        """Applies a list, all or nothing; one that changes nothing is not an entry.

        Each record and result is checked to be one that can be stored or sent as it is.

        Raises:
            CommandRefused: the state refuses a command.
            AssertionError: a refusal has no code or reason, or a key is not that of its record.
            msgspec.ValidationError: a member of a record or result has a type or value that it must not have.
        """
        context = Context(self.entry + 1, self.timestamp_ms)
        delta = Delta(self.records.get)
        applied = apply_list(delta, commands, context)
        if isinstance(applied, Refusal):
            assert ErrorCode(applied.code)
            assert isinstance(applied.reason, str)
            assert applied.reason
            raise CommandRefused(applied.code, applied.reason)
        _check(applied, delta)
        if applied.to_write:
            self.entries.append((context, applied.to_write))
            for key, record in delta.changes.items():
                if record is None:
                    self.records.pop(key, None)
                else:
                    self.records[key] = record
        return applied.results

    def refusal(self, *commands: Command) -> int:
        """The code with which the state refuses the list.

        Raises:
            AssertionError: it does not.
        """
        try:
            self.submit(*commands)
        except CommandRefused as refused:
            return refused.error.code()
        raise AssertionError(f"{commands} were not refused")

    def create_topic(self, name: str = "topic", partition_count: int = 1) -> int:
        """The new topic's id."""
        return self.submit(CreateTopic(f"create {name} at {self.entry}", name, partition_count))[0].topic_id

    def initialise(self, transactional_id: str | None, **expected: Any) -> ProducerCommands:
        """A producer of the id, with the identity that it is given."""
        command = InitProducerId(f"init {transactional_id} at {self.entry}", transactional_id, **expected)
        return ProducerCommands.of(transactional_id, self.submit(command)[0])

    def transaction(self, transactional_id: str) -> TransactionState:
        """The transactional id's record."""
        record: TransactionState = self.records["transaction", transactional_id]
        return record

    def partition(self, topic_id: int = 1, partition: int = 0) -> PartitionState:
        """The partition's record."""
        record: PartitionState = self.records["partition", topic_id, partition]
        return record

    def segments(self, topic_id: int = 1, partition: int = 0) -> PartitionSegments:
        """Where the partition's records are."""
        record: PartitionSegments = self.records["segments", topic_id, partition]
        return record


def _check(applied: Applied, delta: Delta) -> None:
    """Read what was applied as a checkpoint and a caller would."""
    _decode_results(_encode(applied.results))
    changed = {key: record for key, record in delta.changes.items() if record is not None}
    decoded = _decode_records(_encode(list(changed.values())))
    assert {record.key: record for record in decoded} == changed
