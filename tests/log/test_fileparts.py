"""Parts of merged files: those that the columns of a manifest give are those that its segments give."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn._engine.format.manifest import encode_manifest, manifest_rows
from sparktxn._engine.log.keep.sealedruns import joined, joined_rows
from sparktxn._foundation.values.structs import CompactedSegment, FilePart, RewrittenSegment, SegmentRef


class Next(NamedTuple):
    """A segment after another one: the file that it is in, and what it leaves out before it."""

    extension: str
    is_in_next_file: bool
    skipped_rows: int
    skipped_offsets: int
    offsets: int
    rows: int
    entry: int
    waited: int
    timestamp_ms: int


FILES = ("offsets.parquet", "offsets.parquet", "parquet")
NEXT = st.builds(
    Next,
    st.sampled_from(FILES),
    st.integers(0, 4).map(lambda number: not number),
    st.sampled_from([0, 0, 0, 1]),
    st.integers(0, 2),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 2**40),
    st.integers(0, 5),
    st.integers(-(2**60), 2**60),
)


def named(found: list[Next]) -> list[SegmentRef]:
    """Return the segments that `found` describe, as a manifest names them."""
    segments: list[SegmentRef] = []
    offset = row = number = 0
    extension = found[0].extension
    for each in found:
        if each.is_in_next_file:
            number, row, extension = number + 1, 0, each.extension
        offset, row = offset + each.skipped_offsets, row + each.skipped_rows
        rows = min(each.rows, each.offsets)
        base = SegmentRef(
            f"{number:020d}-{'0f' * 10}.{extension}", offset, each.offsets, 1_000 + number, f"{number:08x}", each.entry,
            number, 0, 5, 7, each.timestamp_ms, each.timestamp_ms + each.waited, each.entry + each.waited,
        )  # fmt: skip
        fields = [getattr(base, field) for field in SegmentRef.__struct_fields__]
        if rows < each.offsets:
            segments.append(CompactedSegment(*fields, first_row=row, file_records=1_000, row_count=rows))
        elif each.waited or row:
            segments.append(RewrittenSegment(*fields, first_row=row, file_records=1_000))
        else:
            segments.append(base)
        offset, row = offset + each.offsets, row + rows
    return segments


@settings(max_examples=100)
@given(st.lists(NEXT, min_size=1, max_size=12))
def test_columns_give_the_parts_that_segments_give(found: list[Next]) -> None:
    segments = named(found)
    parts = joined_rows(manifest_rows(encode_manifest(segments), "m"))
    assert parts == tuple(joined(segments))
    assert [type(part) for part in parts] == [type(part) for part in joined(segments)]


def test_what_follows_in_a_file_is_one_part() -> None:
    first = Next("offsets.parquet", False, 0, 0, 3, 2, 4, 1, 100)
    segments = named([first, first._replace(skipped_offsets=2, entry=3, waited=9, timestamp_ms=50)])
    (part,) = joined_rows(manifest_rows(encode_manifest(segments), "m"))
    assert isinstance(part, FilePart)
    assert (part.base_offset, part.end_offset, part.first_row, part.row_count) == (0, 8, 0, 4)
    assert (part.entry, part.committed_entry_min, part.committed_entry) == (3, 5, 12)
    assert (part.timestamp_min_ms, part.timestamp_max_ms) == (50, 101)
    apart = named([first, first._replace(skipped_rows=1)])
    assert joined_rows(manifest_rows(encode_manifest(apart), "m")) == tuple(apart)
