"""Keyed topics: which settings and columns they have, and what is refused because of their key (PROTOCOL.md, "Keys").

In a keyed partition offset order is commit order (rule K): no transaction is ever open there. The flag in the
`partition` record says that it is keyed, since an append reads nothing of its topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sparktxn._engine.format.commands import CreateTopic
from sparktxn._engine.format.decodeguard import KEYED_TOPICS
from sparktxn._engine.format.schema import DELETED_COLUMN, check_columns
from sparktxn._engine.state.delta import Refusal
from sparktxn._engine.state.settings import TABLE_FORMATS
from sparktxn._foundation.values.fieldtypes import Columns
from sparktxn._foundation.values.quantities import counted
from sparktxn._foundation.values.structs import PartitionState, StoreState, TopicState
from sparktxn.errors import ConfigurationError, ErrorCode, did_you_mean

PRIMARY_KEY: Final = "primary.key"
"""The setting that names the columns of a key."""
_NOT_NULL: Final = "upsert.not.null"
_CLEANUP_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"

FIXED_SETTINGS: Final = (PRIMARY_KEY, _NOT_NULL)
"""Settings that a topic has from its creation on, and that never change."""

_WEEK_MS: Final = str(7 * 24 * 3_600_000)
_DEFAULTS: Final = {_CLEANUP_POLICY: _COMPACT, "delete.retention.ms": _WEEK_MS, "max.compaction.lag.ms": _WEEK_MS}
"""What a keyed topic has of settings that its creator does not give: nothing superseded stays without end."""

_UNSET: Final = {"retention.ms": "-1", "retention.bytes": "-1", "partition.key": ""}
"""Settings that a keyed topic does not have, with the values that say as much."""

_DELETED: Final = (DELETED_COLUMN, "bool", True)
_KEY_TYPES: Final = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "string", "binary", "date32", "timestamp[us, tz=UTC]", "timestamp[us]")
)
_EXPECTED: Final = "a whole number, bool, string, binary, date32, timestamp or decimal128"


def key_columns(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of the key of a topic with these settings, in their order; none if it has no key."""
    key = settings.get(PRIMARY_KEY)
    return tuple(key.split(",")) if key else ()


def required_columns(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns outside the key that an upsert must not leave null."""
    names = settings.get(_NOT_NULL)
    return tuple(names.split(",")) if names else ()


def has_key(settings: Mapping[str, str]) -> bool:
    """Return whether a topic with these settings has a key."""
    return bool(settings.get(PRIMARY_KEY))


def is_keyed(topic: TopicState) -> bool:
    """Return whether a topic has a key."""
    return bool(topic.settings.get(PRIMARY_KEY))


def declared_columns(topic: TopicState) -> Columns:
    """Return the columns that the topic's creator has declared, as declared: without the one that says "deleted"."""
    required = required_columns(topic.settings)
    return tuple(
        (name, kind, nullable and name not in required)
        for name, kind, nullable in topic.schema or ()
        if name != DELETED_COLUMN
    )


def feature_missing(store: StoreState, command: CreateTopic) -> bool:
    """Return whether an entry must require the feature of keyed topics before one that has the command."""
    return has_key(command.settings) and KEYED_TOPICS not in store.reader_features


def as_keyed(settings: Mapping[str, str], columns: Columns | None) -> tuple[dict[str, str], Columns | None]:
    """Return the settings and columns of a new topic as the log keeps them; those without a key as they are.

    A keyed topic gets the column that says "deleted", and its columns outside the key become nullable in the store:
    the setting ``upsert.not.null`` keeps which of them an upsert must have.

    Raises:
        ConfigurationError: the key, or a setting, is not one that a keyed topic can have.
    """
    key = key_columns(settings)
    if not key:
        return dict(settings), columns
    given = columns or ()
    required = [name for name, _, nullable in given if not nullable and name not in key]
    if any("," in name for name in required):
        raise ConfigurationError(f"column {required!r} of a keyed topic is not null: expected no comma in its name")
    kept = _DEFAULTS | dict(settings) | ({_NOT_NULL: ",".join(required)} if required else {})
    stored = (*((name, kind, nullable or name not in key) for name, kind, nullable in given), _DELETED)
    problem = _settings_problem(kept) or table_problem(kept) or _columns_problem(key, stored if columns else None)
    if problem is not None:
        raise ConfigurationError(problem)
    return kept, stored


def table_problem(settings: Mapping[str, str | None]) -> str | None:
    """Return why a keyed topic cannot be a table of other engines, if its settings say that it is one; None if not.

    Clients refuse it, and not the log: nothing stored depends on it.
    """
    formats = settings.get(TABLE_FORMATS)
    if not formats:
        return None
    return (
        f"setting {TABLE_FORMATS!r} is {formats!r}: tables of other engines would show the superseded rows of a topic "
        "with primary.key; leave it out, and read the latest rows with read_arrow() and its kin"
    )


def refuse_created(command: CreateTopic, store: StoreState) -> Refusal | None:
    """Return why a topic with these settings and columns is refused; None if it is not, or its columns are wrong."""
    if not has_key(command.settings):
        return None
    if feature_missing(store, command):
        reason = f"topic {command.name!r} has a key, and the store does not require the feature {KEYED_TOPICS!r} yet"
        return Refusal(ErrorCode.INVALID_REQUEST, reason)
    key = key_columns(command.settings)
    problem = _settings_problem(command.settings) or _columns_problem(key, command.schema)
    return None if problem is None else Refusal(ErrorCode.INVALID_CONFIG, f"topic {command.name!r}: {problem}")


def refuse_altered(topic: TopicState, settings: Mapping[str, str]) -> Refusal | None:
    """Return why a topic must not get `settings` in place of its own; None if it may."""
    for name in FIXED_SETTINGS:
        before, after = topic.settings.get(name, ""), settings.get(name, "")
        if before != after:
            return Refusal(
                ErrorCode.INVALID_CONFIG,
                f"setting {name!r} of topic {topic.name!r} is {before!r} and cannot become {after!r}: the key of a "
                "topic is given when it is created; create another topic and copy the rows",
            )
    problem = _settings_problem(settings) if is_keyed(topic) else None
    return None if problem is None else Refusal(ErrorCode.INVALID_CONFIG, f"topic {topic.name!r}: {problem}")


def refuse_partitions(topic: TopicState) -> Refusal | None:
    """Return why a topic keeps the number of its partitions; None if it may grow."""
    if not is_keyed(topic):
        return None
    return Refusal(
        ErrorCode.INVALID_PARTITIONS,
        f"topic {topic.name!r} has a key (primary.key), which chooses the partition: it keeps its "
        f"{counted(topic.partition_count, 'partition')}; create another topic and copy the rows",
    )


def refuse_deleted_records(partition: PartitionState) -> Refusal | None:
    """Return why the log start of a partition must not move; None if it may."""
    if partition.keyed is not True:
        return None
    return Refusal(
        ErrorCode.POLICY_VIOLATION,
        f"partition {partition.partition} of topic id {partition.topic_id} is keyed (primary.key): its log start never "
        "moves, since rows that vanish without an offset are seen by no follower; delete the rows by their keys",
    )


def _settings_problem(settings: Mapping[str, str]) -> str | None:
    policy = settings.get(_CLEANUP_POLICY)
    if policy != _COMPACT:
        return (
            f"setting {_CLEANUP_POLICY!r} is {policy!r}: a topic with primary.key has {_COMPACT!r}; rows that should "
            "expire are deleted by their keys"
        )
    for name, unset in _UNSET.items():
        value = settings.get(name, unset)
        if value != unset:
            why = "its key chooses the partition" if name == "partition.key" else "its log start never moves"
            return f"setting {name!r} is {value!r}: a topic with primary.key does not have it, because {why}"
    return None


def _columns_problem(key: Sequence[str], columns: Columns | None) -> str | None:
    """Return what is wrong with a key and the stored columns of a topic; None if nothing is, or not with the key."""
    if columns is None:
        return f"setting {PRIMARY_KEY!r} is {','.join(key)!r}: expected a topic with declared columns"
    known = {name: (kind, nullable) for name, kind, nullable in columns}
    for place, name in enumerate(key):
        if name in key[:place]:
            return f"setting {PRIMARY_KEY!r} names column {name!r} twice"
        if name not in known or name == DELETED_COLUMN:
            others = [column for column in known if column != DELETED_COLUMN]
            expected = f"expected some of {', '.join(others)}{did_you_mean(name, others)}"
            return f"setting {PRIMARY_KEY!r} names {name!r}, which is not a declared column: {expected}"
        kind, nullable = known[name]
        if kind not in _KEY_TYPES and not kind.startswith("decimal128("):
            return f"column {name!r} of the key has type {kind}: expected {_EXPECTED}"
        if nullable:
            return f"column {name!r} of the key may be null: declare it not null"
    if [column for column in columns if column[0] == DELETED_COLUMN] != [_DELETED]:
        return f"the columns have no {DELETED_COLUMN!r}: expected it once, as a bool that may be null"
    for name, (_, nullable) in known.items():
        if not nullable and name not in key:
            return f"column {name!r} is stored as not null: of a topic with primary.key only the key's columns are"
    return None


def check_stored_columns(columns: Columns, settings: Mapping[str, str]) -> None:
    """Check the columns of a new topic as the log is to keep them (`schema.check_columns`).

    Raises:
        ConfigurationError: as there.
    """
    keyed = has_key(settings)
    check_columns(tuple(column for column in columns if not (keyed and column == _DELETED)))
