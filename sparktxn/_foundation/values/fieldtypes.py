"""The types of members of stored values: what decoding refuses, whichever writer a value comes from."""

from __future__ import annotations

from typing import Annotated, TypeVar

from msgspec import Meta

Result = TypeVar("Result")
"""What a function returns that was given to another one to call."""

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""A number as stored objects hold it: decoding refuses what no reader of another language could hold."""

Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**63 - 1)]
NaturalOrNone = Annotated[int, Meta(ge=-1, le=2**63 - 1)]
"""A number from 0 on, or -1 for none."""

# Names lead to objects: one that was read must not lead anywhere else, whichever writer it comes from.
TopicNameText = Annotated[str, Meta(pattern=r"^(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}\Z")]
SegmentFile = Annotated[
    str, Meta(pattern=r"^(?:[0-9]{20}-[0-9a-v]{20}\.(?:(?:offsets\.)?parquet|arrow|inline)|[0-9a-v]{20}\.inline)\Z")
]
SealedFolder = Annotated[str, Meta(pattern=r"^[0-9]{20}-[0-9]{20}-[0-9a-v]{20}\Z")]
Checksum = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}\Z")]

TopicPartitionKey = tuple[str, int]
"""A partition by its topic's name."""

TopicIdPartition = tuple[int, int]
"""A partition by its topic's id, which no other topic gets (kafka TopicIdPartition)."""

StoredTopicIdPartition = tuple[Int64, Int64]
"""A `TopicIdPartition` in a stored object: decoding refuses what `Int64` cannot hold."""

Columns = tuple[tuple[str, str, bool], ...]
"""Declared columns: name, type, and whether null is allowed."""

StateKey = tuple[str | int, ...]
"""A record's key: its table, then what identifies it there."""
