"""Of the rows of each key in a batch the last one: any batch, cut and divided in any way, against a dict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark_txnlog.writing import lastrows
from pyspark_txnlog.writing.lastrows import ROW_HASH, LastRows
from sparktxn import ConfigurationError
from sparktxn.store.digests import key_words
from sparktxn.store.repeatedkeys import repeated_words
from sparktxn.store.staging import StageTopic

TOPIC = StageTopic(
    name="t",
    topic_id=1,
    partition_count=3,
    schema=(
        ("a", "string", False),
        ("b", "int64", False),
        ("size", "float", True),
        ("parts", "list<int64>", True),
        ("_deleted", "bool", True),
    ),
    segment_format="parquet",
    compression="none",
    segment_rows=10,
    segment_bytes=1000,
    message_bytes_max=1000,
    inline_bytes=0,
    partition_key="",
    has_times_of_entries=False,
    is_compacted=True,
    primary_key=("a", "b"),
)
COLUMNS = pa.schema(
    [
        ("a", pa.string()),
        ("b", pa.int32()),
        ("size", pa.float32()),
        ("parts", pa.list_(pa.int64())),
        ("_deleted", pa.bool_()),
        ("seq", pa.int16()),
        ("more", pa.string()),
        ("_offset", pa.int64()),
    ]
)

rows = st.tuples(
    st.sampled_from(["", "x", "ä"]),
    st.sampled_from([0, 1, -1]),
    st.sampled_from([None, 0.0, -0.0, 1.5, float("nan")]),
    st.sampled_from([None, [], [1], [None]]),
    st.sampled_from([None, False, True]),
    st.sampled_from([None, *range(6)]),
    st.sampled_from(["k", "l", "m"]),
    st.integers(0, 9),
)


def as_stored(row: tuple[Any, ...]) -> Any:
    """The row as a topic keeps it, in a form that can be compared: of a delete the key alone."""
    a, b, size, parts, deleted, *_ = row
    if deleted:
        return (a, b, True)
    return (a, b, None if size is None else repr(size + 0.0), repr(parts), False)


def last_of(batch: Sequence[tuple[Any, ...]]) -> dict[Any, Any] | None:
    """The last row of each key by `seq` and `more`; None if there is none for one of the keys."""
    if any(row[5] is None for row in batch):
        return None
    by_key: dict[Any, dict[Any, set[Any]]] = defaultdict(lambda: defaultdict(set))
    for row in batch:
        by_key[row[:2]][row[5], row[6]].add(as_stored(row))
    if any(len(found) > 1 for places in by_key.values() for found in places.values()):
        return None
    return {key: next(iter(places[max(places)])) for key, places in by_key.items()}


@given(st.lists(rows, max_size=24), st.integers(1, 9), st.sampled_from([1, 400, 10**9]), st.booleans())
def test_each_key_has_its_last_row_or_the_batch_is_refused(
    batch: list[tuple[Any, ...]], size: int, memory: int, hashed: bool
) -> None:
    whole = pa.table([list(column) for column in zip(*batch, strict=True)] or [[] for _ in COLUMNS], schema=COLUMNS)
    if hashed:
        whole = whole.append_column(ROW_HASH, pa.array(range(len(batch)), pa.int64()))
    expected = last_of(batch)
    event("refused" if expected is None else "divided" if memory < 10**9 else "at once")
    with patch.object(lastrows, "_BYTES_AT_ONCE", memory):
        resolved = LastRows(TOPIC, ("seq", "more")).of(whole.to_batches(max_chunksize=size))
        if expected is None:
            with pytest.raises(ConfigurationError, match="lastBy"):
                list(resolved)
            return
        found = [row for rows_of in resolved for row in rows_of.to_pylist()]
    for row in found:
        assert row.keys() == {*COLUMNS.names, *([ROW_HASH] if hashed else [])} - {"seq", "more"}
    assert {(row["a"], row["b"]): as_stored(tuple(row.values())) for row in found} == expected
    assert len(found) == len(expected), "each key once"


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(-3, 3)), max_size=30), st.integers(1, 7))
def test_keys_that_are_there_twice_have_words_that_are(keys: list[tuple[str, int]], size: int) -> None:
    """Whatever batches they are in, and in the width that the topic has or a narrower one."""
    given_rows = pa.table(
        {"a": [key[0] for key in keys], "b": pa.array([key[1] for key in keys], pa.int8())}
    ).to_batches(max_chunksize=size)
    stored = pa.table({"a": [key[0] for key in keys], "b": pa.array([key[1] for key in keys], pa.int64())})
    words = np.concatenate([np.zeros(0, np.uint64), *(key_words(TOPIC, batch) for batch in given_rows)])
    assert words.tolist() == key_words(TOPIC, stored).tolist()
    twice = {key for key in keys if keys.count(key) > 1}
    by_word = dict(zip(words.tolist(), keys, strict=True))
    assert {by_word[word] for word in repeated_words(words).tolist()} == twice
