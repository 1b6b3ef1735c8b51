"""Heads of many parts are packed: what they name is the same, and what no writer packs is refused."""

from __future__ import annotations

import base64
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktxn._engine.format import checkpoint, names
from sparktxn._engine.format.checkpoint import (
    PACKED_PART_BYTES,
    PACKED_PARTS_MIN,
    CheckpointHead,
    PartRef,
    checked_head,
    decode_head,
    decode_opened_head,
    digest,
    encode_head,
    state_digest,
)
from sparktxn._engine.format.entry import seal_document
from sparktxn.errors import DamagedObject, FormatVersionError

TOKENS = ("3d0f1r8k2m5s7t9v0a2c", "b6a5c4d3e2f1g0h9i8j7")
NAME = names.checkpoint_head(128, TOKENS[0])
Columns = dict[str, Any]


def head_of(parts: dict[str, PartRef], features: tuple[str, ...] = ()) -> CheckpointHead:
    return CheckpointHead(
        format=1,
        checkpoint=TOKENS[0],
        entry=128,
        token=TOKENS[1],
        entry_checksum="0c7e11fa",
        timestamp_ms=7,
        digest=state_digest(parts),
        parts=parts,
        base=64,
        reader_features=features,
    )


def many(count: int) -> dict[str, PartRef]:
    """Parts of two checkpoints."""
    found = {}
    for number in range(count):
        entry, token = (64, TOKENS[1]) if number % 3 else (128, TOKENS[0])
        name = names.checkpoint_part(entry, token, number)
        found[f"segments/{number}/0"] = PartRef(name, 100 + number, digest(name.encode()))
    return found


REFS = st.builds(
    lambda entry, number, size_bytes, content: PartRef(
        names.checkpoint_part(entry, TOKENS[entry % 2], number), size_bytes, digest(content)
    ),
    st.integers(1, 2**63 - 1),
    st.integers(0, 10**9),
    st.integers(0, 2**63 - 1),
    st.binary(max_size=4),
)
PARTS = st.dictionaries(st.from_regex(r"[a-z_]{1,12}(/[0-9]{1,19}){0,3}", fullmatch=True), REFS, min_size=1)


@pytest.fixture
def packs_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "PACKED_PARTS_MIN", 1)


@given(PARTS, st.sets(st.sampled_from(["tables", "a_later_one"])))
def test_a_packed_head_names_what_it_named(parts: dict[str, PartRef], features: set[str]) -> None:
    known = tuple(sorted(features & {"tables"}))
    head = head_of(parts, known)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(checkpoint, "PACKED_PARTS_MIN", 1)
        data = encode_head(head)
    stored = json.loads(data)
    assert (stored["parts"], stored["reader_features"]) == ({}, sorted({*known, "packed_heads"}))
    found, opened = decode_head(data, NAME, 128), decode_opened_head(data, NAME, 128)
    assert (found.parts, found.reader_features, found.digest) == (parts, known, head.digest)
    assert [*found.parts] == sorted(parts)
    assert dict(opened.parts) == parts
    assert len(opened.parts) == len(parts)
    assert checked_head(opened) == found


def test_heads_of_few_parts_are_as_they_were() -> None:
    assert "packed" not in json.loads(encode_head(head_of(many(PACKED_PARTS_MIN - 1))))


def test_a_packed_head_is_small() -> None:
    """By what a part takes in it, a writer decides when a checkpoint is worth its head."""
    data = encode_head(head_of(many(20_000)))
    assert 0.9 * PACKED_PART_BYTES <= len(data) / 20_000 <= 1.1 * PACKED_PART_BYTES


def repacked(change: Callable[[Columns], None], **members: Any) -> bytes:
    """A packed head whose columns, or other members, are not what a writer writes."""
    document = json.loads(encode_head(head_of(many(PACKED_PARTS_MIN))))
    del document["checksum"]
    columns = json.loads(pa.CompressedInputStream(pa.py_buffer(base64.b64decode(document["packed"])), "zstd").read())
    change(columns)
    packed = pa.Codec("zstd").compress(json.dumps(columns).encode(), asbytes=True)
    document |= {"packed": base64.b64encode(packed).decode()} | members
    return seal_document(json.dumps(document).encode())[0]


def unchanged(columns: Columns) -> None:
    """The columns as they are."""


def test_what_is_only_written_anew_is_read() -> None:
    assert decode_head(repacked(unchanged), NAME, 128).parts == many(PACKED_PARTS_MIN)


@pytest.mark.parametrize("decode", [decode_head, decode_opened_head])
@pytest.mark.parametrize(
    ("change", "members", "problem"),
    [
        (unchanged, {"parts": {"store": ["_log/_checkpoints/x/0.json", 1, "00"]}}, "also names parts unpacked"),
        (unchanged, {"reader_features": []}, "lacks the feature 'packed_heads'"),
        (unchanged, {"packed": "AAAA"}, "cannot be decompressed"),
        (unchanged, {"packed_digests": ""}, "more than 256 bytes a part"),
        (unchanged, {"packed_digests": "AAAA" * 4_000}, "do not belong together"),
        (lambda columns: columns.update(more=[]), {}, None),
        (lambda columns: columns.pop("numbers"), {}, "not a head's packed parts"),
        (lambda columns: columns["numbers"].pop(), {}, "do not belong together"),
        (lambda columns: columns["numbers"].append("7"), {}, "not a head's packed parts"),
        (lambda columns: columns["sizes_bytes"].append(7), {}, "do not belong together"),
        (lambda columns: columns["in_folder"].append(0), {}, "do not belong together"),
        (lambda columns: columns["in_folder"].__setitem__(3, 2), {}, "do not belong together"),
        (lambda columns: columns["in_folder"].__setitem__(3, -1), {}, "do not belong together"),
        (lambda columns: columns["parts"].append("store"), {}, "do not belong together"),
        (lambda columns: columns["parts"].__setitem__(1, columns["parts"][0]), {}, "do not belong together"),
        (lambda columns: columns["parts"].__setitem__(1, "x" * 200_000), {}, "more than 256 bytes a part"),
    ],
)
def test_what_no_writer_packs_is_refused(
    change: Callable[[Columns], None], members: Columns, problem: str | None, decode: Callable[..., Any]
) -> None:
    """`problem` None: what this version does not know is of a newer one."""
    with pytest.raises(FormatVersionError if problem is None else DamagedObject) as raised:
        decode(repacked(change, **members), NAME, 128)
    assert NAME in str(raised.value)
    assert (problem or "'more'") in str(raised.value)


def test_a_name_out_of_the_store_is_refused_when_it_is_asked_for() -> None:
    data = repacked(lambda columns: columns["folders"].__setitem__(0, "../elsewhere"))
    with pytest.raises(DamagedObject):
        decode_head(data, NAME, 128)
    opened = decode_opened_head(data, NAME, 128)
    with pytest.raises(DamagedObject):
        dict(opened.parts)
    with pytest.raises(DamagedObject):
        checked_head(opened)


def test_columns_that_expand_without_end_take_no_memory() -> None:
    data = repacked(lambda columns: columns["parts"].__setitem__(0, "x" * 100_000_000))
    assert len(data) < 100_000
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    with pytest.raises(DamagedObject, match="more than 256 bytes a part"):
        decode_head(data, NAME, 128)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
    assert pa.total_allocated_bytes() == before
