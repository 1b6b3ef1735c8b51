"""Every object name of a store, built and parsed in one place (PROTOCOL.md, "Objects").

Numbers are padded to 20 digits so that the order of names is the order of numbers. A name that was read from an object
is used only after `checked_name` has shown that it stays inside the store's root.
"""

from __future__ import annotations

import re
import string
import zlib
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from sparktxn._foundation.values.fieldtypes import TopicIdPartition
from sparktxn.errors import ConfigurationError, DamagedObject, ErrorCode

STORE: Final = "_txnlog.json"
LOG: Final = "_log/"
ENTRIES: Final = LOG
CHECKPOINTS: Final = "_log/_checkpoints/"
APPENDS: Final = "_log/_appends/"
HORIZONS: Final = "_log/_horizon/"
CLOCKS: Final = "_log/_clock/"
INTENTS: Final = "_log/_intents/"
COPIES: Final = "_log/_copies/"
LAST_CHECKPOINT: Final = "_log/_last_checkpoint.json"
LAST_VACUUM: Final = "_log/_last_vacuum.json"
TOPICS: Final = "topics/"
GROUPS: Final = "_groups/"

PARTITION_COLUMN: Final = "kafka_partition"
"""The column that Arrow, Spark, DuckDB and Polars find in the names of partitions' folders; no topic declares it."""

_SEALED_RUNS: Final = "_sealed/"

_DIGITS: Final = 20
_ENTRY = re.compile(r"_log/([0-9]{20})\.json")
_CHECKPOINT = re.compile(r"_log/_checkpoints/([0-9]{20})-([0-9a-v]{20})\.json")
_CHECKPOINT_PART = re.compile(r"_log/_checkpoints/([0-9]{20})-[0-9a-v]{20}/[0-9]+\.json")
_APPENDS = re.compile(r"_log/_appends/([0-9]{20})-[0-9a-v]{20}\.parquet")
_HORIZON = re.compile(r"_log/_horizon/([0-9]{20})")
_COPY = re.compile(r"_log/_copies/([0-9]{20})\.json")
_INTENT = re.compile(r"_log/_intents/([0-9]{20})-([0-9a-v]{20})\.json")
_MERGED: Final = "offsets.parquet"
_SEGMENT = re.compile(r"([0-9]{20})-([0-9a-v]{20})\.((?:offsets\.)?parquet|arrow)")
_INLINE_END = ".inline"
_INLINE = re.compile(rf"(?:([0-9]{{20}})-)?[0-9a-v]{{20}}{re.escape(_INLINE_END)}")
SEGMENT_FILES: Final = f"{_SEGMENT.pattern}|{_INLINE.pattern}"
"""The names that `is_segment` takes, as a regular expression."""

_PARTITION_OBJECT = re.compile(rf"topics/[A-Za-z0-9._-]+-([0-9]{{1,19}})/{PARTITION_COLUMN}=([0-9]{{1,19}})/(.+)")
_SEALED = re.compile(r"[0-9]{20}-([0-9]{20})-[0-9a-v]{20}")
_MEMBER_SIGN = re.compile(r"_groups/(0|[1-9][0-9]{0,3})/[A-Za-z0-9._=-]+/[A-Za-z0-9._=-]+")
_ESCAPED = re.compile(r"[^A-Za-z0-9_-]")
_SAFE_NAME = re.compile(r"[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*")
_PLAIN_BYTES: Final = (string.ascii_letters + string.digits + "._=/-").encode()
"""What no list of names has, one a line, in which no part is empty or begins with a dot."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_TOPIC_LENGTH_MAX: Final = 249
_NAME_LENGTH_MAX: Final = 512
_GROUP_FOLDERS: Final = 4096
_ESCAPED_LENGTH_MAX: Final = 160
_DIGEST_DIGITS: Final = 40


def _padded(number: int) -> str:
    return str(number).zfill(_DIGITS)


def entry(number: int) -> str:
    """Return the name of log entry `number`."""
    return f"_log/{number:020d}.json"


def parse_entry(name: str) -> int | None:
    """Return the number in an entry's name; None for any other name."""
    match = _ENTRY.fullmatch(name)
    return int(match[1]) if match else None


def checkpoint_head(number: int, token: str) -> str:
    """Return the name of the head of a checkpoint after entry `number`."""
    return f"{CHECKPOINTS}{_padded(number)}-{token}.json"


def parse_checkpoint_head(name: str) -> tuple[int, str] | None:
    """Return (entry, token) of a checkpoint head's name; None for any other name, its parts' names too."""
    match = _CHECKPOINT.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def checkpoint_part(number: int, token: str, index: int) -> str:
    """Return the name of the `index`-th part that the checkpoint after entry `number` has written."""
    return f"{CHECKPOINTS}{_padded(number)}-{token}/{index}.json"


def parse_checkpoint_part(name: str) -> int | None:
    """Return the entry of the checkpoint that has written a part, from the part's name; None for any other name."""
    match = _CHECKPOINT_PART.fullmatch(name)
    return int(match[1]) if match else None


def appends(number: int, token: str) -> str:
    """Return the name of the object with the append commands of entry `number`."""
    return f"{APPENDS}{_padded(number)}-{token}.parquet"


def parse_appends(name: str) -> int | None:
    """Return the entry in the name of an object with append commands; None for any other name."""
    match = _APPENDS.fullmatch(name)
    return int(match[1]) if match else None


def horizon(number: int) -> str:
    """Return the name of the marker that says: entries below `number` may be gone."""
    return f"{HORIZONS}{_padded(number)}"


def parse_horizon(name: str) -> int | None:
    """Return the number in a horizon marker's name; None for any other name."""
    match = _HORIZON.fullmatch(name)
    return int(match[1]) if match else None


def intent(base_entry: int, token: str) -> str:
    """Return the name of an intent that was written at the state after entry `base_entry`."""
    return f"{INTENTS}{_padded(base_entry)}-{token}.json"


def parse_intent(name: str) -> tuple[int, str] | None:
    """Return (base entry, token) of an intent's name; None for any other name."""
    match = _INTENT.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def copy(number: int) -> str:
    """Return the name of the `number`-th document that says how far a copy of a store is; 1 is the first."""
    return f"{COPIES}{_padded(number)}.json"


def parse_copy(name: str) -> int | None:
    """Return the number in the name of a copy's document; None for any other name."""
    match = _COPY.fullmatch(name)
    return int(match[1]) if match else None


def clock(token: str) -> str:
    """Return the name of an object that is written to see the store's time."""
    return f"{CLOCKS}{token}"


def group_folder(group_id: str) -> str:
    """Return the folder of the signs of life of a group's members; folders of many groups spread over 4096 prefixes."""
    return f"{GROUPS}{zlib.crc32(group_id.encode()) % _GROUP_FOLDERS}/{_escaped(group_id)}/"


def member_sign(group_id: str, member_id: str) -> str:
    """Return the name of a member's sign of life."""
    return group_folder(group_id) + _escaped(member_id)


def is_member_sign(name: str) -> bool:
    """Return True if `name` is built as a sign of life is."""
    return _MEMBER_SIGN.fullmatch(name) is not None


def _escaped(text: str) -> str:
    """Return `text` as one part of a name: bytes except letters, digits, ``_``, ``-`` as ``=XX``; shortened if long.

    What a long one loses its SHA-256 replaces, so that no two texts have one name.
    """
    whole = _ESCAPED.sub(lambda found: "".join(f"={byte:02X}" for byte in found[0].encode()), text)
    if len(whole) <= _ESCAPED_LENGTH_MAX:
        return whole
    digest = sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"{whole[: _ESCAPED_LENGTH_MAX - _DIGEST_DIGITS - 1]}.{digest}"


def topic_folder(topic: str, topic_id: int) -> str:
    """Return the folder of a topic's partitions, and of the metadata of its tables."""
    return f"topics/{topic}-{topic_id}/"


def partition_folder(topic: str, topic_id: int, partition: int) -> str:
    """Return the folder of a partition's objects."""
    return f"topics/{topic}-{topic_id}/{PARTITION_COLUMN}={partition}/"


def parse_partition_object(name: str) -> tuple[int, int, str] | None:
    """Return (topic id, partition, name in its folder) of an object of a partition; None for any other name."""
    match = _PARTITION_OBJECT.fullmatch(name)
    return (int(match[1]), int(match[2]), match[3]) if match else None


def parse_partition_folder(folder: str) -> TopicIdPartition | None:
    """Return the (topic id, partition) of a partition's folder; None if it is built otherwise."""
    found = parse_partition_object(folder + "x") if len(folder) <= _NAME_LENGTH_MAX else None
    return found[:2] if found is not None and found[2] == "x" else None


def segment_file(born: int, token: str, extension: str) -> str:
    """Return a segment's file name: the newest entry that its writer knew when the upload began, and a unique token."""
    return f"{_padded(born)}-{token}.{extension}"


def merged_segment_file(born: int, token: str) -> str:
    """Return the name of a Parquet file that a rewrite has made: it has a column of its records' offsets."""
    return segment_file(born, token, _MERGED)


def has_offsets(file_name: str) -> bool:
    """Return True if the file has a column of its records' offsets, whether or not they have gaps."""
    return file_name.endswith(f".{_MERGED}")


def segment(topic: str, topic_id: int, partition: int, file_name: str) -> str:
    """Return the object name of a segment."""
    return partition_folder(topic, topic_id, partition) + file_name


def segment_object(folder: str, file_name: str, entry_number: int) -> str:
    """Return the name of the object that holds a segment's records: of an inline one the entry that carries it.

    `folder` is the partition's, `entry_number` the entry that appended the segment.
    """
    carried_by = carrier(file_name, entry_number)
    return folder + file_name if carried_by is None else entry(carried_by)


def segments_born_from(folder: str, born: int) -> str:
    """Return the text after which a partition's runs, and its segments born at `born` or later, sort by name."""
    return folder + _padded(born)


def parse_segment_born(file_name: str) -> int | None:
    """Return the born number in a segment's file name; None if it is not one."""
    match = _SEGMENT.fullmatch(file_name)
    return int(match[1]) if match else None


def inline_segment(token: str) -> str:
    """Return the name of a segment whose records its log entry carries: no object has it."""
    return f"{token}{_INLINE_END}"


def carried_segment(file_name: str, entry_number: int) -> str:
    """Return the segment's name as the state stores it once another entry has carried it."""
    return f"{_padded(entry_number)}-{file_name}"


def is_inline(file_name: str) -> bool:
    """Return True if a log entry carries the segment's records."""
    # Most are not, and are found out by how they end.
    return file_name.endswith(_INLINE_END) and _INLINE.fullmatch(file_name) is not None


def parse_carrier(file_name: str) -> int | None:
    """Return the number of the carrying entry in an inline segment's name; None if the name has none."""
    match = _INLINE.fullmatch(file_name)
    return int(match[1]) if match and match[1] else None


def carrier(file_name: str, entry_number: int) -> int | None:
    """Return the entry that carries the records of a segment; None if an object of their own has them.

    `entry_number` is the entry that placed the segment: it carries them, unless the name says another one.
    """
    # Most are objects, and are found out by how they end.
    if not file_name.endswith(_INLINE_END) or (match := _INLINE.fullmatch(file_name)) is None:
        return None
    return int(match[1]) if match[1] else entry_number


def inline_file_name(file_name: str) -> str:
    """Return the name under which an entry carries the records of inline segment `file_name`."""
    return file_name if parse_carrier(file_name) is None else file_name[_DIGITS + 1 :]


def is_segment(file_name: str) -> bool:
    """Return True if a segment may have the name, be it that of an object or not."""
    return (_SEGMENT.fullmatch(file_name) or _INLINE.fullmatch(file_name)) is not None


def segment_token(file_name: str) -> str:
    """Return the token in a segment's file name, which no other segment has."""
    return file_name.rpartition("-")[2].partition(".")[0]


def sealed_folder(first_offset: int, entry_number: int, token: str) -> str:
    """Return the name of a sealed run's folder, which lies in the folder ``_sealed`` of its partition."""
    return f"{_padded(first_offset)}-{_padded(entry_number)}-{token}"


def parse_sealed_folder(name: str) -> str | None:
    """Return the sealed run's folder of a file, from its name in the partition's folder; None for any other name."""
    run, separator, _ = name.removeprefix(_SEALED_RUNS).partition("/")
    return run if separator and name.startswith(_SEALED_RUNS) else None


def parse_sealed_entry(folder: str) -> int | None:
    """Return the entry in the name of a sealed run's folder; None for any other name."""
    match = _SEALED.fullmatch(folder)
    return int(match[1]) if match else None


def manifest(partition: str, folder: str) -> str:
    """Return the object name of a sealed run's manifest; `partition` is the partition's folder."""
    return f"{partition}{_SEALED_RUNS}{folder}/manifest"


def transaction_index(partition: str, folder: str, base_offset: int) -> str:
    """Return the object name of a sealed run's index of aborted transactions, named as Kafka names it."""
    return f"{partition}{_SEALED_RUNS}{folder}/{_padded(base_offset)}.txnindex"


def snapshot(partition: str, folder: str, end_offset: int) -> str:
    """Return the object name of the producer snapshot at the end of a sealed run, named as Kafka names it."""
    return f"{partition}{_SEALED_RUNS}{folder}/{_padded(end_offset)}.snapshot"


def checked_name(name: str, found_in: str) -> str:
    """Return `name`, if it stays inside the store's root.

    Raises:
        DamagedObject: `found_in` holds a name that is absolute, climbs, is longer than ours, or has other characters.
    """
    parts = name.split("/")
    if len(name) > _NAME_LENGTH_MAX or not _SAFE_NAME.fullmatch(name) or not {".", ".."}.isdisjoint(parts):
        shown = name[:_NAME_LENGTH_MAX]
        raise DamagedObject(found_in, f"it holds the object name {shown!r}, which is not a name inside the store")
    return name


def check_names(object_names: Sequence[str], found_in: str) -> None:
    """Check names as `checked_name` does, many at once.

    Raises:
        DamagedObject: as for `checked_name`.
    """
    joined = "/".join(("", *object_names, ""))
    is_plain = joined.isascii() and not joined.encode().translate(None, _PLAIN_BYTES)
    # Then these two find each folder that is empty, or begins with a dot.
    if not is_plain or "//" in joined or "/." in joined or max(map(len, object_names), default=0) > _NAME_LENGTH_MAX:
        for name in object_names:
            checked_name(name, found_in)


def check_topic_name(name: str) -> str:
    """Return `name`, if Kafka would take it as a topic's name (org.apache.kafka.common.internals.Topic).

    Raises:
        ConfigurationError: the name is empty, longer than 249, ``.``, ``..``, or has other characters.
    """
    expected = "1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', and neither '.' nor '..'"
    if not isinstance(name, str) or not _TOPIC.fullmatch(name) or name in (".", "..") or len(name) > _TOPIC_LENGTH_MAX:
        raise ConfigurationError(f"topic name {name!r} is not valid: expected {expected}", ErrorCode.INVALID_TOPIC)
    return name
