from __future__ import annotations

import zlib
from itertools import count

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktxn._rows.stage.partitioner import PARTITIONERS, fnv1a, murmur2, partitioner, partitions_of_keys
from sparktxn.errors import ConfigurationError
from tests.each import each


def refuse(partition_count: int) -> int:
    raise AssertionError("a record with a key draws no partition")


@each(
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
        (bytes([12, 42, 56, 24, 109, 111]), 274204207),
    ]
)
def test_murmur2_is_javas(key: bytes, expected: int) -> None:
    """Kafka's own vectors (UtilsTest.testMurmur2)."""
    assert murmur2(key) == expected
    assert partitioner("murmur2")(key, 1_000, refuse) == (expected & 0x7FFFFFFF) % 1_000


@pytest.mark.parametrize(("key", "expected"), [(b"kafka", 0xD33C4E1), (b"giberish123456789", 0x77A58295)])
def test_fnv1a_is_saramas(key: bytes, expected: int) -> None:
    """librdkafka's own vectors (unittest_fnv1a)."""
    assert fnv1a(key) == expected
    assert partitioner("fnv1a_random")(key, 1_000, refuse) == expected % 1_000


@pytest.mark.parametrize("name", ["consistent", "consistent_random"])
def test_consistent_is_the_crc32_of_the_key(name: str) -> None:
    assert partitioner(name)(b"123456789", 1_000, refuse) == 0xCBF43926 % 1_000


@each(
    [
        ("consistent_random", None, "pick"),
        ("consistent_random", b"", "pick"),  # an empty key is none, here only
        ("consistent", None, 0),
        ("consistent", b"", 0),
        ("random", None, "pick"),
        ("random", b"key", "pick"),
        ("murmur2", None, 275646681 % 7),
        ("murmur2_random", None, "pick"),
        ("murmur2_random", b"", 275646681 % 7),
        ("fnv1a", None, fnv1a(b"") % 7),
        ("fnv1a_random", None, "pick"),
        ("fnv1a_random", b"", fnv1a(b"") % 7),
    ]
)
def test_records_without_a_key(name: str, key: bytes | None, expected: int | str) -> None:
    asked = []

    def pick(partition_count: int) -> int:
        asked.append(partition_count)
        return 6

    assert partitioner(name)(key, 7, pick) == (6 if expected == "pick" else expected)
    assert asked == ([7] if expected == "pick" else [])


@given(st.sampled_from(list(PARTITIONERS)), st.lists(st.none() | st.binary(max_size=40)), st.integers(1, 100))
def test_a_column_of_keys_goes_where_each_key_goes(name: str, keys: list[bytes | None], partition_count: int) -> None:
    scalar, vector = count(), count()
    expected = [partitioner(name)(key, partition_count, lambda n: next(scalar) % n) for key in keys]
    column = pa.array([b"before", *keys], pa.binary()).slice(1)
    found = partitions_of_keys(name, column, partition_count, lambda n: next(vector) % n)
    assert found.to_pylist() == expected
    assert found.type == pa.int32()
    assert all(0 <= partition < partition_count for partition in expected)


def test_an_unknown_partitioner_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"'partitioner' is 'murmur': .*did you mean 'murmur2'"):
        partitioner("murmur")


def test_the_default_comes_first() -> None:
    assert next(iter(PARTITIONERS)) == "consistent_random"
    assert zlib.crc32(b"") == 0  # why `consistent` sends records without a key to partition 0
