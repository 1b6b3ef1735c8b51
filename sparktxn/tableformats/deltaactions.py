"""The actions of a Delta table's commits: lines of JSON, whose keys have one order (Delta's PROTOCOL.md, "Actions").

What Delta lets a writer leave out is left out here unless a reader needs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

__all__ = ["Action", "Add", "CommitInfo", "Format", "MetaData", "Protocol", "Remove", "decode", "encode"]


class CommitInfo(Struct, frozen=True, rename="camel"):
    """What made a version. No reader needs it; Spark shows the operation and its parameters, which are texts.

    `txnlog_bounded` are the columns that the table's property says have bounds; earlier versions had no such property.
    """

    timestamp: int
    operation: str
    operation_parameters: dict[str, str]
    engine_info: str
    txnlog_entry: int
    txnlog_published_entry: int
    txnlog_bounded: tuple[str, ...] | UnsetType = UNSET


class Protocol(Struct, frozen=True, rename="camel"):
    """What an engine must know to read the table, and to write it."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | UnsetType = UNSET
    writer_features: tuple[str, ...] | UnsetType = UNSET


class Format(Struct, frozen=True):
    """The encoding of the table's files."""

    provider: str
    options: dict[str, str]


class MetaData(Struct, frozen=True, rename="camel"):
    """What the table is."""

    id: str
    name: str
    format: Format
    schema_string: str
    partition_columns: tuple[str, ...]
    configuration: dict[str, str]


class Remove(Struct, frozen=True, rename="camel"):
    """A file that is not in the table any more."""

    path: str
    deletion_timestamp: int
    data_change: bool
    extended_file_metadata: bool
    partition_values: dict[str, str]
    size: int


class Add(Struct, frozen=True, rename="camel"):
    """A file of the table. `stats` is JSON, as text."""

    path: str
    partition_values: dict[str, str]
    size: int
    modification_time: int
    data_change: bool
    stats: str


class Action(Struct, frozen=True, rename="camel"):
    """One line of a commit: one field is set."""

    commit_info: CommitInfo | UnsetType = UNSET
    protocol: Protocol | UnsetType = UNSET
    meta_data: MetaData | UnsetType = UNSET
    remove: Remove | UnsetType = UNSET
    add: Add | UnsetType = UNSET


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Action)


def encode(actions: Iterable[Action]) -> bytes:
    """Return the bytes of a commit: these follow from the actions alone."""
    return _encoder.encode_lines(actions)


def decode(commit: bytes) -> list[Action]:
    """Return the actions of a commit.

    Raises:
        ValueError: the bytes are not a commit of a topic's table.
    """
    return _decoder.decode_lines(commit)
