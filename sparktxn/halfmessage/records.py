"""Messages as RocketMQ's programs know them, and as records of this store keep them.

The body is the record's value. Tags, keys and the message's id are headers, under the names of RocketMQ's properties,
and so are the program's own properties. The record's key is the sharding key, else the first of the keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from msgspec import Struct

from sparktxn._engine.format.segment import record_columns
from sparktxn._foundation.values import arguments
from sparktxn.errors import ConfigurationError

KEYS_PROPERTY: Final = "KEYS"
TAGS_PROPERTY: Final = "TAGS"
UNIQUE_KEY_PROPERTY: Final = "UNIQ_KEY"
SHARDING_PROPERTY: Final = "__SHARDINGKEY"
IMMUNITY_PROPERTY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
_SECONDS: Final = re.compile("-1|[0-9]{1,12}")
DELAY_PROPERTIES: Final = ("DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS")

RESERVED_PROPERTIES: Final = frozenset(
    {
        KEYS_PROPERTY,
        TAGS_PROPERTY,
        UNIQUE_KEY_PROPERTY,
        *("PGROUP", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"),
    }
)
"""Names that a program's own properties cannot have: the message's attributes are stored under them, or RocketMQ uses
them itself."""


class MessageRecord(Struct, frozen=True):
    """One message. `message_id` is made by the client before it is sent; `born_ms` is when."""

    topic: str
    body: bytes
    message_id: str
    born_ms: int
    tags: str = ""
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = {}

    @property
    def key(self) -> bytes | None:
        """The record's key."""
        chosen = self.properties.get(SHARDING_PROPERTY) or (self.keys[0] if self.keys else "")
        return chosen.encode() if chosen else None

    def size_bytes(self) -> int:
        """Return the bytes of the record: key, value and headers."""
        headers = sum(len(name.encode()) + len(value) for name, value in self.headers())
        return len(self.body) + len(self.key or b"") + headers

    def headers(self) -> list[tuple[str, bytes]]:
        """Return the record's headers."""
        found = [(UNIQUE_KEY_PROPERTY, self.message_id.encode())]
        if self.tags:
            found.append((TAGS_PROPERTY, self.tags.encode()))
        if self.keys:
            found.append((KEYS_PROPERTY, " ".join(self.keys).encode()))
        found += [(name, value.encode()) for name, value in self.properties.items()]
        return found


def given_properties(value: object) -> dict[str, str]:
    """Return the properties that a program has given a message.

    Raises:
        TypeError: `value` is not a mapping of text to text.
        ConfigurationError: a name is empty, RocketMQ's own, or asks for a delayed delivery.
    """
    given = arguments.mapping("properties", value)
    return {_checked_name(name): arguments.text(f"properties[{name!r}]", text) for name, text in given.items()}


def given_keys(value: object) -> tuple[str, ...]:
    """Return the keys that a program has given a message: a text is one of them, or several parted by spaces.

    Raises:
        TypeError: `value` is neither text nor some texts.
    """
    if isinstance(value, str):
        return (arguments.text("keys", value),) if value else ()
    items = arguments.items("keys", value, str)
    return tuple(arguments.text(f"keys[{place}]", key) for place, key in enumerate(items))


def _checked_name(name: str) -> str:
    if not name or name in RESERVED_PROPERTIES:
        raise ConfigurationError(f"the name {name!r} in properties is used by RocketMQ itself: use another name")
    if name in DELAY_PROPERTIES:
        raise ConfigurationError(
            f"the name {name!r} in properties asks for a delayed delivery: transactional messages do not support it"
        )
    return name


def immunity_ms_of(properties: Mapping[str, str], default_ms: int) -> int:
    """Return how long a message is not checked: its own property in seconds, -1 or none for the default.

    Raises:
        ConfigurationError: the property is not a number of seconds.
    """
    given = properties.get(IMMUNITY_PROPERTY)
    if given is None:
        return default_ms
    # int() takes more than RocketMQ does: digits of other scripts, underscores, spaces.
    seconds = int(given) if _SECONDS.fullmatch(given) else None
    if seconds is None:
        raise ConfigurationError(
            f"the property {IMMUNITY_PROPERTY} is {given!r}: expected a whole number of seconds, or -1 for the default"
        )
    return default_ms if seconds == -1 else 1000 * seconds


def record_table(records: Sequence[MessageRecord]) -> pa.Table:
    """Return messages as Kafka's records."""
    rows = [(record.key, record.body, record.headers(), record.born_ms) for record in records]
    return record_columns(*zip(*rows, strict=True))


def records_of(topic: str, rows: pa.Table) -> Iterator[MessageRecord]:
    """Yield the messages that `record_table` has made rows of."""
    columns = ("value", "headers", "timestamp")
    born = rows.column("timestamp").cast(pa.int64()).to_pylist()
    for value, headers, born_ms in zip(*(rows.column(name).to_pylist() for name in columns[:2]), born, strict=True):
        named = {header["key"]: (header["value"] or b"").decode(errors="replace") for header in headers or ()}
        message_id = named.pop(UNIQUE_KEY_PROPERTY, "")
        tags = named.pop(TAGS_PROPERTY, "")
        keys = tuple(named.pop(KEYS_PROPERTY, "").split())
        yield MessageRecord(topic, value or b"", message_id, born_ms, tags, keys, named)
