"""The internal topics, computed from the log (PROTOCOL.md): Kafka's two, and RocketMQ's three for half messages.

Nothing is stored for them. Each has one partition; entry N's rows have the offsets from ``N << 20`` on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from sparktxn._engine.state.delta import Delta, ReadState
from sparktxn._foundation.values.structs import (
    CommittedOffset,
    HalfOutcomes,
    HalfState,
    MemberState,
    PartitionState,
    SettledHalf,
    StateKey,
    StateRecord,
    TopicName,
    TopicState,
    TransactionState,
    TransactionStatus,
)
from sparktxn.errors import ErrorCode, KafkaError, KafkaException

_OFFSET_BITS: Final = 20
_TIMESTAMP: Final = "timestamp[us, tz=UTC]"
_PARTITIONS: Final = "list<struct<topic: string, partition: int32>>"


def _topic(topic_id: int, name: str, keys: dict[str, str], columns: dict[str, str]) -> TopicState:
    """Return a topic with one partition, whose rows have these columns and their entry; only keys are never null."""
    schema = [(column, kind, False) for column, kind in keys.items()]
    schema += [(column, kind, True) for column, kind in columns.items()]
    return TopicState(name, topic_id, 1, {}, (*schema, ("entry", "int64", False)), 0)


TRANSACTION_STATE: Final = _topic(
    -2,
    "__transaction_state",
    {"transactional_id": "string"},
    {
        "state": "string",
        "producer_id": "int64",
        "producer_epoch": "int32",
        "transaction": "int64",
        "timeout_ms": "int64",
        "partitions": _PARTITIONS,
        "groups": "list<string>",
        "start_timestamp": _TIMESTAMP,
        "last_update_timestamp": _TIMESTAMP,
        "last_producer_epoch": "int32",
        "previous_producer_id": "int64",
        "prepared": "bool",
        "fence_reason": "string",
    },
)
"""Kafka's transaction log: a row for every state that a transactional id passes; null but for its key if it expires."""

CONSUMER_OFFSETS: Final = _topic(
    -3,
    "__consumer_offsets",
    {"group_id": "string"},
    {
        "topic": "string",
        "topic_id": "int64",
        "partition": "int32",
        "offset": "int64",
        "metadata": "string",
        "leader_epoch": "int32",
        "commit_timestamp": _TIMESTAMP,
        "transactional_id": "string",
        "producer_id": "int64",
        "member_id": "string",
        "group_instance_id": "string",
        "client_id": "string",
        "host": "string",
        "member_epoch": "int64",
        "topics": "list<string>",
        "assigned": _PARTITIONS,
        "revoking": _PARTITIONS,
        "is_away": "bool",
    },
)
"""Kafka's groups: a row for every offset that takes effect, and for every member that changes; null but for its key if
it is forgotten."""

_HALF_KEYS: Final = {"group_id": "string", "transaction_id": "string"}
_HALF: Final = {"checks": "int64", "topics": "list<string>", "message_count": "int64", "prepared_timestamp": _TIMESTAMP}

HALF_MESSAGES: Final = _topic(
    -4, "RMQ_SYS_TRANS_HALF_TOPIC", _HALF_KEYS, {"state": "string", "due_timestamp": _TIMESTAMP, **_HALF}
)
"""RocketMQ's half messages: a row for each change of one; null but for its key once it is settled."""

HALF_SETTLED: Final = _topic(-5, "RMQ_SYS_TRANS_OP_HALF_TOPIC", _HALF_KEYS, {"outcome": "string", "source": "string"})
"""RocketMQ's op topic: a row for each half message that is settled."""

HALF_DISCARDED: Final = _topic(-6, "TRANS_CHECK_MAX_TIME_TOPIC", _HALF_KEYS, _HALF)
"""RocketMQ's discarded half messages: a row for each; null but for its key once it is resumed or deleted."""

HISTORY_TABLES: Final = {
    TRANSACTION_STATE.topic_id: ("transaction",),
    CONSUMER_OFFSETS.topic_id: ("offset", "member"),
    HALF_MESSAGES.topic_id: ("half",),
    HALF_SETTLED.topic_id: ("half_settled",),
    HALF_DISCARDED.topic_id: ("half_discarded",),
}
"""Which histories (`state/internal.py`) each topic shows, by its id; in an entry one after the other."""

INTERNAL_TOPICS: Final = {
    topic.name: topic for topic in (TRANSACTION_STATE, CONSUMER_OFFSETS, HALF_MESSAGES, HALF_SETTLED, HALF_DISCARDED)
}
INTERNAL_TOPIC_IDS: Final = {topic.topic_id: topic for topic in INTERNAL_TOPICS.values()}


def topic_named(read: ReadState, name: str) -> TopicState | None:
    """Return the topic with this name, stored or internal."""
    topic: TopicState | None = INTERNAL_TOPICS.get(name) or read(("topic", name))
    return topic


def partition_at(read: ReadState, entry: int, topic_id: int, partition: int) -> PartitionState | None:
    """Return where a partition, stored or internal, begins and ends at `entry`."""
    if topic_id in INTERNAL_TOPIC_IDS and partition == 0:
        return PartitionState(topic_id, 0, 0, first_offset(entry + 1))
    found: PartitionState | None = read(("partition", topic_id, partition))
    return found


def colliding_name(read: ReadState, name: str) -> str | None:
    """Return the name of the topic, stored or internal, for which none named `name` can be created; None if it can."""
    key = collision_key(name)
    stored: TopicName | None = read(("topic_name", key))
    if stored is not None:
        return stored.name
    return next((each for each in INTERNAL_TOPICS if collision_key(each) == key), None)


def collision_key(name: str) -> str:
    """Return what is equal for names that collide: Kafka's metrics take ``.`` for ``_``."""
    return name.replace(".", "_")


def topic_names(topics: Iterable[TopicState]) -> dict[int, str]:
    """Return the names of `topics`, and of the internal ones, by their ids."""
    return {topic.topic_id: topic.name for topic in (*topics, *INTERNAL_TOPICS.values())}


def partition_exists(read: ReadState, topic_id: int, partition: int) -> bool:
    """Return True for a partition that offsets may be committed for, an internal topic's too."""
    if topic_id in INTERNAL_TOPIC_IDS:
        return partition == 0
    return read(("partition", topic_id, partition)) is not None


def refuse_change(name: str) -> None:
    """Raise for an internal topic.

    Raises:
        KafkaException: ``INVALID_TOPIC``: the topic is internal.
    """
    if name in INTERNAL_TOPICS:
        reason = (
            f"topic {name!r} is internal: it shows what the log says and can only be read, "
            "not created, written to, imported, changed or deleted"
        )
        raise KafkaException(KafkaError(ErrorCode.INVALID_TOPIC, reason))


def first_offset(entry: int) -> int:
    """Return the offset of an entry's first row in an internal topic."""
    return entry << _OFFSET_BITS


def entry_of(offset: int) -> int:
    """Return the entry that a row at `offset` of an internal topic comes from."""
    return offset >> _OFFSET_BITS


# What the rows of the internal topics are made of: the records that an entry leaves, and those that it passes.
#
# A transactional id gives one row for each of Kafka's states that an entry brings it through, PREPARE_COMMIT and
# PREPARE_ABORT among them. The row has the record as it was when the state was left. A record that an entry changes
# within one state gives one row. An offset gives one row for each time that it takes effect, a member one row for
# each entry that changes it. A half transaction gives one row for each change, one when it is settled, and one when
# it is discarded. Rows are in the order of their keys.

_TABLES: Final = ("transaction", "offset", "member", "half")
_HALF_SETTLED: Final = "half_settled"
_HALF_DISCARDED: Final = "half_discarded"


class HistoryChange(NamedTuple):
    """One change of a record that a topic shows: the record as it was left, None if removed.

    `ending` is the transaction whose commit made an offset take effect, None for an offset outside transactions.
    """

    key: StateKey
    record: TransactionState | CommittedOffset | MemberState | HalfState | SettledHalf | None
    ending: TransactionState | None = None


class RecordingDelta(Delta):
    """A delta that remembers what each record of the histories has passed."""

    __slots__ = ("_before", "_ending", "_passed")

    def __init__(self, read: ReadState) -> None:
        super().__init__(read)
        self._before = read
        self._passed: dict[StateKey, list[HistoryChange]] = {}
        self._ending: TransactionState | None = None

    def put(self, record: StateRecord) -> None:
        """Set a record."""
        if isinstance(record, HalfState):
            self._pass_discard(record.key, record)
        super().put(record)
        if isinstance(record, TransactionState):
            self._ending = record if record.status is TransactionStatus.PREPARE_COMMIT else None
            self._pass(HistoryChange(record.key, record))
        elif isinstance(record, CommittedOffset):
            self._pass(HistoryChange(record.key, record, self._ending))
        elif isinstance(record, HalfState):
            self._pass(HistoryChange(record.key, record))
        elif isinstance(record, HalfOutcomes):
            settled = record.settled[-1]
            self._pass(HistoryChange((_HALF_SETTLED, settled.group_id, settled.transaction_id), settled))
        elif isinstance(record, MemberState):
            self._pass(HistoryChange(record.key, record))

    def remove(self, key: StateKey) -> None:
        """Remove a record."""
        if key[0] == "half":
            self._pass_discard(key, None)
        super().remove(key)
        if key[0] in _TABLES:
            self._pass(HistoryChange(key, None))

    def _pass_discard(self, key: StateKey, record: HalfState | None) -> None:
        """Note that a half transaction is discarded, or is not any more."""
        before = _discarded(self.get(key))
        after = _discarded(record)
        if before != after:
            self._pass(HistoryChange((_HALF_DISCARDED, *key[1:]), after))

    def _state_before(self, key: StateKey) -> Any:
        if key[0] == _HALF_SETTLED:
            return None
        if key[0] == _HALF_DISCARDED:
            return _discarded(self._before(("half", *key[1:])))
        return self._before(key)

    def _pass(self, change: HistoryChange) -> None:
        passed = self._passed.setdefault(change.key, [])
        if passed and _same_state(passed[-1].record, change.record):
            passed[-1] = change
        else:
            passed.append(change)

    def before(self, key: StateKey) -> Any:
        """Return a record as it was before the entry; None if there was none."""
        return self._before(key)

    def history(self, table: str) -> list[HistoryChange]:
        """Return the changes of one table of `state.internal.HISTORY_TABLES`, in the order of their keys.

        A member has one, from before the entry to its end; that it gave a sign of life is not a change.
        """
        found = []
        for key in sorted(key for key in self._passed if key[0] == table):
            if table == "offset" and key[2] in INTERNAL_TOPIC_IDS:
                # A consumer that commits would otherwise read its own commits without end.
                continue
            current = self._state_before(key)
            if table == "member":
                if _without_sign(current) != _without_sign(self._passed[key][-1].record):
                    found.append(self._passed[key][-1])
                continue
            for change in self._passed[key]:
                if change.record != current:
                    found.append(change)
                current = change.record
        return found


def _discarded(half: HalfState | None) -> HalfState | None:
    return half if half is not None and half.discarded_entry else None


def _same_state(one: object, other: object) -> bool:
    """Return True for two records of one transactional id in one state of one transaction."""
    if not isinstance(one, TransactionState) or not isinstance(other, TransactionState):
        return False
    return (
        one.status is other.status
        and (one.producer_id, one.producer_epoch) == (other.producer_id, other.producer_epoch)
        and (one.transaction, one.prepared) == (other.transaction, other.prepared)
    )


def _without_sign(record: object) -> MemberState | None:
    """Return the record of a member, as if it had given no sign of life."""
    return replace(record, last_entry=0) if isinstance(record, MemberState) else None
