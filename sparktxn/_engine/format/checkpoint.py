"""Checkpoints: the whole state after an entry, as a head and parts; and horizon markers (PROTOCOL.md, "Checkpoints").

A part is a JSON array of records, sorted by key, so that equal parts have equal bytes. The head names every part with
its SHA-256 and is written last: a checkpoint exists once its head does.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, Generic, TypeVar

import msgspec
import pyarrow as pa
from msgspec import Struct

from sparktxn._engine.format.decodeguard import PACKED_HEADS, READER_FEATURES, check_features, undecodable
from sparktxn._engine.format.entry import check_format, is_sealed, open_document, seal_document
from sparktxn._engine.format.names import check_names, checked_name
from sparktxn._foundation.values.structs import (
    Int64,
    ManifestRef,
    PartitionSegments,
    PartitionState,
    SegmentRef,
    StateKey,
    StateRecord,
)
from sparktxn.errors import DamagedObject

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


PACKED_PARTS_MIN: Final = 400
"""A head with fewer parts, of 64 KiB, is not packed: all versions can read it, and it costs little."""

PACKED_PART_BYTES: Final = 45
"""What a part takes in a packed head: its SHA-256, 32 bytes in base64, and what differs in names."""

_UNPACKED_PART_BYTES_MAX: Final = 256
"""A part takes some 30 bytes of the columns: more than this would be another document, or one made to take memory."""

_SHA256_BYTES: Final = 32


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


class PackedParts(Struct, frozen=True, forbid_unknown_fields=True):
    """The names of a head's parts in columns, one place for each part, in the order of parts' names.

    Part i is the object `folders[in_folder[i]]/<numbers[i]>.json`.
    """

    parts: list[str]
    folders: list[str]
    in_folder: list[Int64]
    numbers: list[Int64]
    sizes_bytes: list[Int64]


class _StoredHead(CheckpointHead, frozen=True, kw_only=True):
    """A head as it is stored. If it is packed, `parts` is empty.

    `packed` is then the JSON of `PackedParts`, compressed by zstd, and `packed_digests` their SHA-256, 32 bytes each.
    """

    packed: bytes = b""
    packed_digests: bytes = b""


class _OpenedHead(_StoredHead, frozen=True, kw_only=True):
    parts: Mapping[str, msgspec.Raw]  # type: ignore[assignment]


AnyHead = TypeVar("AnyHead", bound=_StoredHead)
Stored = TypeVar("Stored")


class _PartsAtUse(Mapping[str, PartRef], Generic[Stored]):
    """The parts that a stored head names. A reference is made and its name checked when it is asked for.

    Raises, when a reference is asked for:
        FormatVersionError: it is of a newer format.
        DamagedObject: it is not a reference, or its name is not one inside the store.
    """

    def __init__(
        self,
        stored: Mapping[str, Stored],
        make: Callable[[Stored], PartRef],
        name: str,
        head: Callable[[], CheckpointHead],
    ) -> None:
        """`make` makes a reference of what is stored of it; `head` returns what `decode_head` returns, or raises."""
        self._stored = stored
        self._make = make
        self._name = name
        self.head = head

    def __getitem__(self, part: str) -> PartRef:
        ref = self._make(self._stored[part])
        checked_name(ref.name, self._name)
        return ref

    def __contains__(self, part: object) -> bool:
        return part in self._stored

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


class CheckpointHint(Struct, frozen=True):
    """Which checkpoint was the newest when the hint was written; never trusted."""

    entry: Int64
    checkpoint: str


_encoder: Final = msgspec.json.Encoder()
_head_decoder: Final = msgspec.json.Decoder(_StoredHead)
_opened_head_decoder: Final = msgspec.json.Decoder(_OpenedHead)
_packed_decoder: Final = msgspec.json.Decoder(PackedParts)
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
    fields["parts"] = parts = dict(sorted(head.parts.items()))
    if len(parts) >= PACKED_PARTS_MIN:
        fields |= {
            "parts": {},
            "packed": pa.Codec("zstd").compress(_encoder.encode(_columns(parts)), asbytes=True),
            "packed_digests": b"".join([bytes.fromhex(ref.digest) for ref in parts.values()]),
            "reader_features": sorted({*head.reader_features, PACKED_HEADS}),
        }
    return seal_document(_encoder.encode(fields))[0]


def _columns(parts: Mapping[str, PartRef]) -> PackedParts:
    named = [ref.name.removesuffix(".json").rpartition("/") for ref in parts.values()]
    folders = {folder: index for index, folder in enumerate(sorted({folder for folder, _, _ in named}))}
    return PackedParts(
        [*parts],
        [*folders],
        [folders[folder] for folder, _, _ in named],
        [int(number) for _, _, number in named],
        [ref.size_bytes for ref in parts.values()],
    )


def decode_head(data: bytes, name: str, entry: int) -> CheckpointHead:
    """Return the head in `data`, its parts' names checked.

    Raises:
        FormatVersionError: it is of a newer format, or requires a feature that this version cannot read.
        DamagedObject: it is damaged, or is not of entry `entry`.
    """
    stored = _stored_head(_head_decoder, data, name, entry)
    parts = stored.parts
    if stored.packed:
        places, make = _packed_parts(stored, name)
        parts = {part: make(place) for part, place in places.items()}
    head = _with_parts(stored, parts)
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

    def decoded(part: msgspec.Raw) -> PartRef:
        try:
            return _ref_decoder.decode(part)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise undecodable(bytes(part), name, PartRef, "a part's reference", error) from None

    def whole() -> CheckpointHead:
        return decode_head(data, name, entry)

    stored = _stored_head(_opened_head_decoder, data, name, entry)
    if stored.packed:
        return _with_parts(stored, _PartsAtUse(*_packed_parts(stored, name), name, whole))
    return _with_parts(stored, _PartsAtUse(stored.parts, decoded, name, whole))


def checked_head(head: CheckpointHead) -> CheckpointHead:
    """Return a head with all that it names checked: itself, unless it comes from `decode_opened_head`.

    Raises:
        FormatVersionError, DamagedObject: as `decode_head`.
    """
    return head.parts.head() if isinstance(head.parts, _PartsAtUse) else head


def _stored_head(decoder: msgspec.json.Decoder[AnyHead], data: bytes, name: str, entry: int) -> AnyHead:
    if not is_sealed(data):
        open_document(data, name)
    try:
        head = decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        open_document(data, name)
        raise undecodable(data, name, _StoredHead, "a checkpoint's head", error) from None
    check_format(head.format, name)
    check_features(head.reader_features, READER_FEATURES, name, "read")
    if head.entry != entry:
        raise DamagedObject(name, f"it holds the state after entry {head.entry}")
    if head.packed and (head.parts or PACKED_HEADS not in head.reader_features):
        raise DamagedObject(name, f"it is packed, and also names parts unpacked or lacks the feature {PACKED_HEADS!r}")
    return head


def _packed_parts(stored: _StoredHead, name: str) -> tuple[dict[str, int], Callable[[int], PartRef]]:
    """Return the places of a packed head's parts, and what makes the reference of a place; its name is not checked.

    Raises:
        FormatVersionError: they have a member that is not known.
        DamagedObject: they are not what a writer packs.
    """
    digests = stored.packed_digests
    count = len(digests) // _SHA256_BYTES
    try:
        with pa.CompressedInputStream(pa.py_buffer(stored.packed), "zstd") as stream:
            data = stream.read(count * _UNPACKED_PART_BYTES_MAX + 1)
    except (OSError, pa.ArrowException) as error:
        raise DamagedObject(name, f"what it has packed cannot be decompressed ({error})") from None
    if len(data) > count * _UNPACKED_PART_BYTES_MAX:
        raise DamagedObject(name, f"what it has packed has more than {_UNPACKED_PART_BYTES_MAX} bytes a part")
    try:
        packed = _packed_decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(data, name, PackedParts, "a head's packed parts", error) from None
    parts, folders, in_folder, numbers, sizes_bytes = msgspec.structs.astuple(packed)
    places = {part: place for place, part in enumerate(parts)}
    lengths = {*map(len, (places, parts, in_folder, numbers, sizes_bytes)), len(digests) / _SHA256_BYTES}
    if lengths != {count} or not 0 <= min(in_folder) <= max(in_folder) < len(folders):
        raise DamagedObject(name, "the columns of its packed parts do not belong together")

    def made(place: int) -> PartRef:
        digest_ = digests[place * _SHA256_BYTES : (place + 1) * _SHA256_BYTES].hex()
        return PartRef(f"{folders[in_folder[place]]}/{numbers[place]}.json", sizes_bytes[place], digest_)

    return places, made


def _with_parts(stored: _StoredHead, parts: Mapping[str, PartRef]) -> CheckpointHead:
    """Return the head that a stored one says, with all of its parts: how they are stored says nothing of the state."""
    fields = {field: getattr(stored, field) for field in CheckpointHead.__struct_fields__}
    features = tuple(feature for feature in stored.reader_features if feature != PACKED_HEADS)
    return CheckpointHead(**fields | {"parts": parts, "reader_features": features})


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
