"""Checkpoints: the whole state after an entry, as a head and parts; and horizon markers (PROTOCOL.md, "Checkpoints").

A part is a JSON array of records, sorted by key, so that equal parts have equal bytes. The head names every part with
its SHA-256 and is written last: a checkpoint exists once its head does.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from sparktxn.errors import DamagedObject
from sparktxn.format.decodeguard import READER_FEATURES, check_features, undecodable
from sparktxn.format.entry import check_format, is_sealed, open_document, seal_document
from sparktxn.format.names import check_names, checked_name
from sparktxn.values.structs import (
    Int64,
    ManifestRef,
    PartitionSegments,
    PartitionState,
    SegmentRef,
    StateKey,
    StateRecord,
)

__all__ = [
    "HALVES_PREFIX",
    "PUBLISHED_PREFIX",
    "SEGMENTS_PREFIX",
    "TABLES_PREFIX",
    "CheckpointHead",
    "CheckpointHint",
    "HorizonMarker",
    "PartRef",
    "checked_head",
    "decode_head",
    "decode_hint",
    "decode_marker",
    "decode_opened_head",
    "decode_part",
    "digest",
    "encode_head",
    "encode_hint",
    "encode_marker",
    "encode_part",
    "half_due_prefix",
    "part_of",
    "producer_parts",
    "state_digest",
]


SEGMENTS_PREFIX: Final = "segments/"
"""Parts that say where records are; how they are sealed differs between processes, so the state's digest skips them."""

HALVES_PREFIX: Final = "halves/"
"""Parts with the half transactions that are not settled."""

TABLES_PREFIX: Final = "tables/"
"""Parts with the newest versions of tables."""

PUBLISHED_PREFIX: Final = "published/"
"""Parts that say where the records of published tables are."""

_TABLES_PER_PART: Final = 64
_PARTITIONS_PER_PART: Final = 64
_TOPIC_BUCKETS: Final = 64
_TRANSACTION_BUCKETS: Final = 256
_GROUP_BUCKETS: Final = 64
_PRODUCER_BUCKETS: Final = 16
_INTENT_SLOTS_PER_PART: Final = 64
_HALF_BUCKETS: Final = 256
_HALF_GROUP_BUCKETS: Final = 16
_HALF_OUTCOMES_PER_PART: Final = 64


class PartRef(Struct, frozen=True, gc=False, array_like=True):
    """A part as a head names it."""

    name: str
    size_bytes: Int64
    digest: str


class CheckpointHead(Struct, frozen=True, kw_only=True):
    """The head. `token`, `entry_checksum` and `timestamp_ms` are those of the entry; `checkpoint` is in its name.

    `base` is the entry of the checkpoint from which it has the names that it did not write itself. It is its own entry
    if it has written all of them. The features are those of the store, named where a reader sees them before any part.
    """

    format: Int64
    checkpoint: str
    entry: Int64
    token: str
    entry_checksum: str
    timestamp_ms: Int64
    digest: str
    parts: Mapping[str, PartRef]
    base: Int64 = 0
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()
    checksum: str = ""


class _PartsAtUse(Mapping[str, PartRef]):
    """The parts that a stored head names. A reference is decoded and its name checked when it is asked for.

    Raises, when a reference is asked for:
        FormatVersionError: it is of a newer format.
        DamagedObject: it is not a reference, or its name is not one inside the store.
    """

    def __init__(self, stored: Mapping[str, msgspec.Raw], data: bytes, name: str, entry: int) -> None:
        self._stored = stored
        self._data = data
        self._name = name
        self._entry = entry

    def __getitem__(self, part: str) -> PartRef:
        stored = self._stored[part]
        try:
            ref = _ref_decoder.decode(stored)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise undecodable(bytes(stored), self._name, PartRef, "a part's reference", error) from None
        checked_name(ref.name, self._name)
        return ref

    def __contains__(self, part: object) -> bool:
        return part in self._stored

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def head(self) -> CheckpointHead:
        """Return the head that `decode_head` returns, and raise what it raises."""
        return decode_head(self._data, self._name, self._entry)


class _OpenedHead(CheckpointHead, frozen=True, kw_only=True):
    parts: Mapping[str, msgspec.Raw]  # type: ignore[assignment]


class CheckpointHint(Struct, frozen=True):
    """Which checkpoint was the newest when the hint was written; never trusted."""

    entry: Int64
    checkpoint: str


AnyHead = TypeVar("AnyHead", bound=CheckpointHead)

_encoder: Final = msgspec.json.Encoder()
_head_decoder: Final = msgspec.json.Decoder(CheckpointHead)
_opened_head_decoder: Final = msgspec.json.Decoder(_OpenedHead)
_ref_decoder: Final = msgspec.json.Decoder(PartRef)
_hint_decoder: Final = msgspec.json.Decoder(CheckpointHint)
_part_decoder: Final = msgspec.json.Decoder(list[StateRecord])


def _bucket(text: str, buckets: int) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass")) % buckets


@lru_cache(maxsize=65_536)
def part_of(key: StateKey) -> str:
    """Return the part that holds the record of `key`. Which part it is belongs to the format."""
    table = key[0]
    if table in ("partition", "segments"):
        folder = "partitions/" if table == "partition" else SEGMENTS_PREFIX
        return f"{folder}{key[1]}/{int(key[2]) // _PARTITIONS_PER_PART}"
    if table == "producer":
        return f"producers/{key[1]}/{int(key[2]) // _PARTITIONS_PER_PART}/{int(key[3]) % _PRODUCER_BUCKETS}"
    if table == "transaction":
        return f"transactions/{_bucket(str(key[1]), _TRANSACTION_BUCKETS)}"
    if table in ("offset", "pending_offsets", "group", "member", "empty_group"):
        return f"groups/{_bucket(str(key[1]), _GROUP_BUCKETS)}"
    if table in ("topic", "topic_name", "subscribers"):
        return f"topics/{_bucket(str(key[1]).replace('.', '_'), _TOPIC_BUCKETS)}"
    if table == "intents":
        return f"intents/{int(key[1]) // _INTENT_SLOTS_PER_PART}"
    if table == "half":
        return f"{HALVES_PREFIX}{_bucket(str(key[2]), _HALF_BUCKETS)}"
    if table == "half_due":
        return f"{half_due_prefix(str(key[1]))}{key[2]}"
    if table == "table":
        return f"{TABLES_PREFIX}{int(key[1]) // _TABLES_PER_PART}"
    if table == "published":
        return f"{PUBLISHED_PREFIX}{key[1]}/{int(key[2]) // _PARTITIONS_PER_PART}"
    if table == "half_outcomes":
        return f"half_outcomes/{int(key[1]) // _HALF_OUTCOMES_PER_PART}"
    return str(table)


def half_due_prefix(group_id: str) -> str:
    """Return what the names of the parts start with that say when half transactions of a group are due.

    The slot of the due time follows. Groups may share a prefix.
    """
    return f"halves_due/{_bucket(group_id, _HALF_GROUP_BUCKETS)}/"


def producer_parts(topic_id: int, partition: int) -> list[str]:
    """Return the parts that together hold all producers of a partition, and of its neighbours."""
    return [part_of(("producer", topic_id, partition, bucket)) for bucket in range(_PRODUCER_BUCKETS)]


def digest(data: bytes) -> str:
    """Return SHA-256 as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def state_digest(parts: Mapping[str, PartRef]) -> str:
    """Return the digest of a state: of the names and digests of its parts, except those of segments."""
    lines = [f"{key} {ref.digest}\n" for key, ref in sorted(parts.items()) if not key.startswith(SEGMENTS_PREFIX)]
    return digest("".join(lines).encode())


def encode_part(records: Iterable[StateRecord]) -> bytes:
    """Return the bytes of a part; equal records give equal bytes, whatever their order."""
    return _encoder.encode(sorted(records, key=lambda record: record.key))


def decode_part(data: bytes, name: str, ref: PartRef) -> list[StateRecord]:
    """Return the records of a part.

    Raises:
        FormatVersionError: it holds a record or member that is not known.
        DamagedObject: its bytes are not those that the head names, or they are not records.
    """
    if digest(data) != ref.digest:
        raise DamagedObject(name, f"its SHA-256 is not {ref.digest}, which the checkpoint's head names")
    try:
        records = _part_decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(data, name, list[StateRecord], "a checkpoint's part", error) from None
    for record in records:
        if problem := _problem(record):
            raise DamagedObject(name, problem)
    return records


def _problem(record: StateRecord) -> str | None:
    """Return what decoding one number at a time does not see: offsets that contradict each other."""
    if isinstance(record, PartitionState):
        ends_before = record.log_end_offset < record.log_start_offset
        if ends_before or any(open_.first_offset >= record.log_end_offset for open_ in record.open_transactions):
            return f"the offsets of partition {record.partition} of topic id {record.topic_id} contradict each other"
    elif isinstance(record, PartitionSegments):
        end = 0
        parts: tuple[ManifestRef | SegmentRef, ...] = (*record.sealed, *record.segments)
        for part in parts:
            if part.base_offset < end or part.end_offset <= part.base_offset:
                where = f"partition {record.partition} of topic id {record.topic_id}"
                return f"records of {where} begin at {part.base_offset}, before the end of those before them, {end}"
            end = part.end_offset
        return _rewritten_problem(record)
    return None


def _rewritten_problem(record: PartitionSegments) -> str | None:
    end = 0
    for rewritten in record.rewritten:
        if rewritten.base_offset < end or rewritten.end_offset <= rewritten.base_offset:
            where = f"partition {record.partition} of topic id {record.topic_id}"
            return f"a rewritten range of {where} begins at {rewritten.base_offset}, before the end of the last, {end}"
        end = rewritten.end_offset
    return None


def encode_head(head: CheckpointHead) -> bytes:
    """Return the bytes of a head; `head.checksum` is not looked at."""
    fields = msgspec.structs.asdict(head)
    del fields["checksum"]
    # A reader then need not sort them for the digest.
    fields["parts"] = dict(sorted(head.parts.items()))
    return seal_document(_encoder.encode(fields))[0]


def decode_head(data: bytes, name: str, entry: int) -> CheckpointHead:
    """Return the head in `data`, its parts' names checked.

    Raises:
        FormatVersionError: it is of a newer format, or requires a feature that this version cannot read.
        DamagedObject: it is damaged, or is not of entry `entry`.
    """
    head = _decoded_head(_head_decoder, data, name, entry)
    check_names([ref.name for ref in head.parts.values()], name)
    if state_digest(head.parts) != head.digest:
        raise DamagedObject(name, "its digest is not that of its parts")
    return head


def decode_opened_head(data: bytes, name: str, entry: int) -> CheckpointHead:
    """Return the head in `data`, by which a log is opened: it checks the name of a part when that is asked for.

    With 10,000 topics a head has 20,000 names, and opening needs a few. `checked_head` checks all of them.

    Raises:
        FormatVersionError, DamagedObject: as `decode_head`, but for what its parts are.
    """
    head = _decoded_head(_opened_head_decoder, data, name, entry)
    fields = {field: getattr(head, field) for field in CheckpointHead.__struct_fields__}
    return CheckpointHead(**fields | {"parts": _PartsAtUse(head.parts, data, name, entry)})


def checked_head(head: CheckpointHead) -> CheckpointHead:
    """Return a head with all that it names checked: itself, unless it comes from `decode_opened_head`.

    Raises:
        FormatVersionError, DamagedObject: as `decode_head`.
    """
    return head.parts.head() if isinstance(head.parts, _PartsAtUse) else head


def _decoded_head(decoder: msgspec.json.Decoder[AnyHead], data: bytes, name: str, entry: int) -> AnyHead:
    if not is_sealed(data):
        open_document(data, name)
    try:
        head = decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        open_document(data, name)
        raise undecodable(data, name, CheckpointHead, "a checkpoint's head", error) from None
    check_format(head.format, name)
    check_features(head.reader_features, READER_FEATURES, name, "read")
    if head.entry != entry:
        raise DamagedObject(name, f"it holds the state after entry {head.entry}")
    return head


def encode_hint(hint: CheckpointHint) -> bytes:
    """Return the bytes of the hint."""
    return _encoder.encode(hint)


def decode_hint(data: bytes) -> CheckpointHint | None:
    """Return the hint, or None if it cannot be read: a reader that follows it checks everything anyway."""
    try:
        return _hint_decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


# Horizon markers: which entries may be gone, and which checkpoints are kept (PROTOCOL.md, "Horizon markers").
#
# The number is in the marker's name. The body names the checkpoints that count although they stand on one below it.


class HorizonMarker(Struct, frozen=True):
    """The body. `checkpoints` are the tokens of heads at or above the horizon whose `base` is below it."""

    checkpoints: tuple[str, ...]


_decoder: Final = msgspec.json.Decoder(HorizonMarker)


def encode_marker(checkpoints: Iterable[str]) -> bytes:
    """Return the bytes of a marker."""
    return _encoder.encode(HorizonMarker(tuple(sorted(checkpoints))))


def decode_marker(data: bytes) -> HorizonMarker | None:
    """Return the body, or None if it cannot be read: then every head that is whole counts."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
