"""Superseded offsets of rows: those of a dict, whatever the types of the key, its hashes, memory and batches."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import chain
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparktxn._rows.scan import superseded
from sparktxn._rows.scan.superseded import KeyRows, hashes_of, hidden_offsets, superseded_by
from tests.seeds import examples, seed_of

VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): [-128, -1, 0, 5, 127],
    pa.int16(): [-300, 0, 300],
    pa.int32(): [-(2**31), 0, 7],
    pa.int64(): [-(2**63), 0, 2**63 - 1, 2**24, 2**24 + 1],
    pa.string(): ["", "a", "a\0", "\0a", "12345678", "123456789", "Zoë 🚲", "x" * 40, "x" * 41],
    pa.binary(): [b"", b"\0", b"\0\0", b"\xff" * 8, b"\xff" * 16, b"\xff" * 17],
    pa.date32(): [date(1, 1, 1), date(1970, 1, 1), date(2026, 2, 28)],
    pa.timestamp("us"): [datetime(1969, 12, 31, 23, 59, 59, 1), datetime(2026, 1, 1)],
    pa.timestamp("us", tz="UTC"): [datetime(1969, 12, 31, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)],
    pa.decimal128(20, 2): [Decimal("-1.00"), Decimal("0.00"), Decimal("1.00"), Decimal("123456789012345678.00")],
}


def batches_of(random: Random, types: list[pa.DataType], count: int) -> Iterator[pa.RecordBatch]:
    """Rows at some offsets, in batches that are slices of longer ones, perhaps with none."""
    offset = 0
    while count > 0:
        size, skipped = random.randint(0, 9), random.randint(0, 3)
        columns = {
            f"k{place}": pa.array(random.choices(VALUES[kind], k=size + skipped), kind)
            for place, kind in enumerate(types)
        }
        more = {
            "_deleted": pa.array(random.choices([True, False, None], k=size + skipped), pa.bool_()),
            "_offset": pa.array(range(offset, offset + 2 * (size + skipped), 2), pa.int64()),
        }
        offset += 2 * (size + skipped)
        count -= size
        yield pa.record_batch(columns | more).slice(skipped)


def hidden(rows: list[dict[str, Any]], key: list[str]) -> tuple[list[int], list[int]]:
    """Superseded offsets and deletes, by a dict."""
    newest = {tuple(row[name] for name in key): row for row in rows}
    latest = {row["_offset"] for row in newest.values()}
    return (
        [row["_offset"] for row in rows if row["_offset"] not in latest],
        [row["_offset"] for row in rows if row["_offset"] in latest and row["_deleted"]],
    )


@pytest.mark.parametrize("collide", [False, True])
@pytest.mark.parametrize("memory_bytes", [1 << 30, 700, 40])
def test_they_are_those_of_a_dict(memory_bytes: int, collide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if collide:
        monkeypatch.setattr(superseded, "hashes_of", lambda columns: hashes_of(columns) % np.uint64(5) << np.uint64(61))
        monkeypatch.setattr(superseded, "_SHARES_MAX", 4)
    monkeypatch.setattr(superseded, "_COMPARED_ROWS", 3)
    monkeypatch.setattr(superseded, "_JOINED_ROWS_MIN", 4)
    monkeypatch.setattr(superseded, "_JOINED_ROWS_MAX", 7)
    random = Random(seed_of(f"superseded {memory_bytes} {collide}"))
    # The less memory there is, the more often the keys are read.
    for number in range(examples(30 if memory_bytes > 40 else 8, 300)):
        types = random.choices([*VALUES], k=random.choice([1, 1, 2, 3]))
        key = [f"k{place}" for place in range(len(types))]
        found = list(batches_of(random, types, random.choice([1, 12, 90])))
        rows = list(chain.from_iterable(batch.to_pylist() for batch in found))
        if not rows:
            continue
        expected = hidden(rows, key)
        shares = random.choice([1, 1, 3])
        superseded_offsets, deletes = hidden_offsets(lambda found=found: found, key, memory_bytes, shares)  # type: ignore[misc]
        assert (superseded_offsets.tolist(), deletes.tolist()) == expected, (number, types)
        tail = KeyRows(key)
        for batch in found[len(found) // 2 :]:
            tail.add(batch)
        if tail.count:
            base = found[: len(found) // 2]
            keys = {tuple(row[name] for name in key) for row in tail.keys().to_pylist()}
            joined = superseded_by(tail, (batch.select([*key, "_offset"]) for batch in base))
            assert sorted(offset for some in joined for offset in some["_offset"].to_pylist()) == [
                row["_offset"]
                for batch in base
                for row in batch.to_pylist()
                if tuple(row[name] for name in key) in keys
            ]


@pytest.mark.parametrize("kind", [*VALUES], ids=str)
def test_keys_that_differ_have_other_hashes(kind: pa.DataType) -> None:
    """Of these values, also at another place in a longer array; equal ones have the same."""
    values = pa.array(VALUES[kind], kind)
    hashes = hashes_of([values]).tolist()
    assert len(set(hashes)) == len(values)
    longer = pa.concat_arrays([values, values, values])
    assert hashes_of([longer]).tolist() == hashes * 3
    assert hashes_of([longer.slice(1)]).tolist() == (hashes * 3)[1:]
    assert len(hashes_of([values.slice(0, 0)])) == 0
    pairs = hashes_of([pa.concat_arrays([values, values]), pa.array([0] * len(values) + [1] * len(values))])
    assert len(set(pairs.tolist())) == 2 * len(values)
