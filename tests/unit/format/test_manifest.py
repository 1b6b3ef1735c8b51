from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktxn._engine.format import manifest
from sparktxn._engine.format.manifest import MANIFEST_SCHEMA, decode_manifest, encode_manifest
from sparktxn._foundation.values.structs import SegmentRef
from sparktxn.errors import DamagedObject
from tests.each import each


def segment(index: int) -> SegmentRef:
    return SegmentRef(
        name=f"{index:020d}-{'a' * 20}.parquet",
        base_offset=11 * index,
        record_count=10,
        size_bytes=100,
        checksum="0123abcd",
        entry=index + 1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        transaction=-1,
        timestamp_min_ms=index,
        timestamp_max_ms=index + 5,
    )


SEGMENTS = [segment(index) for index in range(20)]


def test_many_segments_have_what_is_equal_in_memory_once() -> None:
    """Those of a merged file have its name: a store of a million segments has them in memory."""
    name = f"{7:020d}-{'a' * 20}.parquet"
    many = [replace(segment(index), name=name, entry=index + 1, committed_entry=index + 1) for index in range(5_000)]
    decoded = decode_manifest(encode_manifest(many), "m")
    assert list(decoded) == many
    assert len({id(one.name) for one in decoded}) <= 2
    assert all(one.entry is one.committed_entry for one in decoded)


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 2**40),
            st.integers(0, 1000),
            st.integers(-1, 2**63 - 1),
            st.integers(-(2**60), 2**60),
            st.booleans(),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_segments_come_back_as_they_were(rows: list[Any]) -> None:
    segments, offset = [], 0
    for count, gap, producer_id, timestamp, is_arrow in rows:
        name = f"{count:020d}-{'0f' * 10}.{'arrow' if is_arrow else 'parquet'}"
        segments.append(
            replace(segment(1), name=name, base_offset=offset + gap, record_count=count, producer_id=producer_id,
                    timestamp_min_ms=timestamp, timestamp_max_ms=timestamp + gap)
        )  # fmt: skip
        offset += gap + count
    assert decode_manifest(encode_manifest(segments), "m") == tuple(segments)


def test_any_parquet_reader_can_skip_by_statistics() -> None:
    metadata = pq.ParquetFile(pa.BufferReader(encode_manifest(SEGMENTS))).metadata
    columns = map(metadata.row_group(0).column, range(metadata.num_columns))
    found = {column.path_in_schema: column.statistics for column in columns}
    assert list(found) == list(SegmentRef.__struct_fields__)
    assert (found["base_offset"].min, found["base_offset"].max) == (0, 11 * 19)
    assert (found["timestamp_max_ms"].min, found["timestamp_max_ms"].max) == (5, 24)


WRONG = [
    ({"name": "x.parquet"}, "not the name of a segment"),
    ({"name": SEGMENTS[0].name.replace(".", ".undated.")}, "not the name of a segment"),
    ({"name": "../" + SEGMENTS[0].name}, "not the name of a segment"),
    ({"name": ""}, "not the name of a segment"),
    ({"record_count": 0}, "record_count is 0"),
    ({"size_bytes": 0}, "size_bytes is 0"),
    ({"base_offset": -1}, "base_offset is -1"),
    ({"base_offset": 5}, "before the end of the one before it"),
    ({"entry": 0}, "entry is 0"),
    ({"producer_id": -2}, "producer_id is -2"),
    ({"producer_epoch": -2}, "producer_epoch is -2"),
    ({"base_sequence": -2}, "base_sequence is -2"),
    ({"transaction": -2}, "transaction is -2"),
    ({"checksum": "0123ABCD"}, "checksum is '0123ABCD'"),
    ({"checksum": "0123"}, "checksum is '0123'"),
    ({"timestamp_min_ms": 50}, "run from 50 down to 7"),
]


@each(WRONG)
def test_what_cannot_be_is_neither_written_nor_believed(changes: dict[str, Any], reason: str) -> None:
    segments = [segment(1), replace(segment(2), **changes)]
    for many in (2, 3):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(manifest, "_MANY_SEGMENTS", many)
            with pytest.raises(ValueError, match=reason):
                encode_manifest(segments)
    rows = [{field: getattr(one, field) for field in SegmentRef.__struct_fields__} for one in segments]
    with pytest.raises(DamagedObject, match=reason) as caught:
        decode_manifest(parquet(pa.Table.from_pylist(rows, schema=MANIFEST_SCHEMA)), "folder/manifest")
    assert caught.value.object_name == "folder/manifest"


LIMITS = st.sampled_from([-(2**63), -2, -1, 0, 1, 2, 5, 9, 10, 11, 2**62, 2**63 - 1])
TEXTS = {
    "name": st.sampled_from([SEGMENTS[0].name, f"{'0' * 20}.inline", "", "x.parquet", f"{SEGMENTS[0].name}\n", "\n"]),
    "checksum": st.sampled_from(["01234567", "0123456", "0123456A", "01234567\n", "0123456\u0660"]),
}
row_changes = st.dictionaries(st.sampled_from(manifest._INTEGERS), LIMITS, max_size=2)


@settings(max_examples=150)
@given(
    st.integers(0, 2),
    st.lists(st.tuples(row_changes, st.fixed_dictionaries({}, optional=TEXTS)), min_size=1, max_size=3),
)
def test_checks_of_columns_agree_with_those_of_segments(schema: int, changes: list[tuple[dict[str, Any], Any]]) -> None:
    rows = []
    for number, (integers, texts) in enumerate(changes):
        one = segment(number)
        rewritten = {"first_row": 0, "file_records": one.record_count, "row_count": one.record_count}
        fields = {field: getattr(one, field) for field in SegmentRef.__struct_fields__} | rewritten
        rows.append(fields | integers | texts)
    data = parquet(pa.Table.from_pylist(rows, schema=manifest._SCHEMAS[schema]))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(manifest, "_is_sound", lambda _: False)
        slowly = decoded_or_problem(data)
    assert decoded_or_problem(data) == slowly
    # Sums that are not 64-bit integers are left to the checks of segments.
    is_large = not isinstance(slowly, str) and any(one.end_offset > 2**63 - 1 for one in slowly)
    assert manifest._is_sound(pq.read_table(pa.BufferReader(data))) == (not isinstance(slowly, str) and not is_large)


def decoded_or_problem(data: bytes) -> tuple[SegmentRef, ...] | str:
    try:
        return decode_manifest(data, "m")
    except DamagedObject as damaged:
        return str(damaged)


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, store_schema=False)
    return sink.getvalue()


def test_a_null_is_damage() -> None:
    rows = [{field: getattr(segment(1), field) for field in SegmentRef.__struct_fields__} | {"timestamp_min_ms": None}]
    nullable = pa.schema([(field.name, field.type) for field in MANIFEST_SCHEMA])
    with pytest.raises(DamagedObject, match="no timestamps"):
        decode_manifest(parquet(pa.Table.from_pylist(rows, schema=nullable)), "m")


@pytest.mark.parametrize("table", [pa.table({"a": [1]}), MANIFEST_SCHEMA.empty_table()], ids=["columns", "empty"])
def test_another_parquet_file_is_damage(table: pa.Table) -> None:
    with pytest.raises(DamagedObject):
        decode_manifest(parquet(table), "m")


def test_an_empty_manifest_is_not_written() -> None:
    with pytest.raises(ValueError, match="at least one segment"):
        encode_manifest([])


def test_every_truncation_is_damage() -> None:
    data = encode_manifest(SEGMENTS)
    for length in range(len(data)):
        with pytest.raises(DamagedObject):
            decode_manifest(data[:length], "m")


@settings(max_examples=300)
@given(place=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_flipped_bits_are_damage_or_harmless(place: int, flip: int) -> None:
    data = bytearray(encode_manifest(SEGMENTS))
    data[place % len(data)] ^= flip
    try:
        decode_manifest(bytes(data), "m")
    except DamagedObject:
        return
