"""The text form of keys and their partitions: as PROTOCOL.md says, and as the standard library writes values."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparktxn._engine.format.keytext import hashes, key_texts, partitions_of_texts, unwritable
from sparktxn._engine.format.schema import parse_type
from sparktxn._rows.stage.partitioner import murmur2
from tests.seeds import examples, seed_of

PROTOCOL = (Path(__file__).parents[3] / "docs" / "PROTOCOL.md").read_text()
TEXT = ["", "a", "bob", "é", "🚲", '"', "\\", "/", "\x00", "\n", "\x1f", "\x7f", " ", "null", "0", "e\u0301", "\u2028"]


def vectors() -> Iterator[dict[str, Any]]:
    """The examples of the document, one object after the other."""
    (block,) = re.findall(r"^```json\n(\{\"types\".*?)^```", PROTOCOL, re.MULTILINE | re.DOTALL)
    decoder, position = json.JSONDecoder(), 0
    while position < len(block):
        found, position = decoder.raw_decode(block, position)
        yield found
        position += len(re.match(r"\s*", block[position:]).group())  # type: ignore[union-attr]


def value_of(kind: str, text: str) -> Any:
    """A value from its text in the document."""
    found = parse_type(kind)
    if pa.types.is_integer(found):
        return int(text)
    if pa.types.is_boolean(found):
        return text == "true"
    if pa.types.is_binary(found):
        return base64.b64decode(text)
    if pa.types.is_date32(found):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(found):
        return datetime.fromisoformat(text)
    return Decimal(text) if pa.types.is_decimal(found) else text


@pytest.mark.parametrize("vector", list(vectors()), ids=lambda vector: " ".join(vector["types"]))
def test_the_examples_of_the_document(vector: dict[str, Any]) -> None:
    columns = [
        pa.array([value_of(kind, text)], parse_type(kind))
        for kind, text in zip(vector["types"], vector["values"], strict=True)
    ]
    texts = key_texts(columns)
    expected = base64.b64decode(vector["base64"]) if "base64" in vector else vector["text"].encode()
    assert texts.to_pylist() == [expected]
    assert int(hashes(texts)[0].view(np.int32)) == murmur2(expected) == vector["murmur2"]


def test_the_document_has_every_type_that_a_key_may_have() -> None:
    shown = {kind.partition("(")[0] for vector in vectors() for kind in vector["types"]}
    known = {"bool", "int8", "int32", "int64", "string", "binary", "date32", "decimal128"}
    assert known | {"timestamp[us, tz=UTC]", "timestamp[us]"} == shown


def random_value(random: Random, kind: str) -> Any:
    """A value of a type, often an extreme one."""
    if kind.startswith("int"):
        bits = int(kind[3:])
        return random.choice([0, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), random.randrange(2 ** (bits - 1))])
    if kind == "bool":
        return random.random() < 0.5
    if kind == "string":
        return "".join(random.choice(TEXT) for _ in range(random.randrange(8)))
    if kind == "binary":
        return random.randbytes(random.randrange(12))
    if kind == "date32":
        return date.fromordinal(random.choice([1, date.max.toordinal(), random.randrange(1, date.max.toordinal())]))
    if kind.startswith("timestamp"):
        most = (datetime.max - datetime.min) // timedelta(microseconds=1)
        moment = datetime.min + timedelta(microseconds=random.choice([0, most, random.randrange(most)]))
        return moment.replace(tzinfo=UTC) if "UTC" in kind else moment
    precision, scale = map(int, re.findall(r"\d+", kind[len("decimal128") :]))
    digits = random.choice([0, 1, 10**precision - 1, random.randrange(10**precision)])
    sign = random.choice([0, 1]) if digits else 0
    return Decimal((sign, tuple(map(int, str(digits))), -scale))


def slow_text(value: Any) -> str:
    """A value's text, by the standard library."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return text + ("Z" if value.tzinfo else "")
    if isinstance(value, Decimal):
        return format(value, "f")
    return value.isoformat() if isinstance(value, date) else str(value)


def slow_key(values: list[Any]) -> bytes:
    """The text form of a key, by the standard library."""
    if len(values) == 1:
        return values[0] if isinstance(values[0], bytes) else slow_text(values[0]).encode()
    members = [
        base64.b64encode(value).decode()
        if isinstance(value, bytes)
        else value
        if isinstance(value, int | str)
        else slow_text(value)
        for value in values
    ]
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()


KINDS = (
    *("bool", "int8", "int16", "int32", "int64", "string", "binary", "date32", "timestamp[us, tz=UTC]"),
    *("timestamp[us]", "decimal128(38, 38)", "decimal128(38, 10)", "decimal128(5, 2)", "decimal128(7, 0)"),
)


@pytest.mark.parametrize("number", range(examples(60, 2_000)))
def test_keys_are_as_the_standard_library_writes_them(number: int) -> None:
    random = Random(seed_of(f"keytext {number}", number))
    kinds = [KINDS[number % len(KINDS)]] if number % 2 else random.choices(KINDS, k=random.randint(2, 4))
    rows = [[random_value(random, kind) for kind in kinds] for _ in range(40)]
    columns = [pa.array([row[place] for row in rows], parse_type(kind)) for place, kind in enumerate(kinds)]
    assert [unwritable(column) for column in columns] == [None] * len(columns)
    expected = [slow_key(row) for row in rows]
    first, count = random.randrange(20), random.randrange(1, 20)
    # A slice of an array has the buffers of the whole.
    for start, some in ((0, 40), (first, count)):
        texts = key_texts([column.slice(start, some) for column in columns])
        assert texts.to_pylist() == expected[start : start + some]
        assert [int(found.view(np.int32)) for found in hashes(texts)] == list(map(murmur2, texts.to_pylist()))
        partitions = partitions_of_texts(texts, 7).to_pylist()
        assert partitions == [(murmur2(text) & 0x7FFFFFFF) % 7 for text in texts.to_pylist()]


def test_hashes_of_every_length_and_of_no_text() -> None:
    random = Random(4)
    texts = [random.randbytes(length) for length in (*range(70), 4_095, 4_096, 0, 1)]
    random.shuffle(texts)
    assert [int(found.view(np.int32)) for found in hashes(pa.array(texts, pa.binary()))] == list(map(murmur2, texts))
    assert len(hashes(pa.array([], pa.binary()))) == 0
    assert partitions_of_texts(pa.array([], pa.binary()), 3).to_pylist() == []


@pytest.mark.parametrize(
    ("kind", "day"),
    [("date32", -719_163), ("date32", 2_932_897), ("timestamp[us]", -719_163), ("timestamp[us, tz=UTC]", 2_932_897)],
)
def test_years_without_four_digits_have_no_text(kind: str, day: int) -> None:
    number = day if kind == "date32" else day * 86_400_000_000
    assert unwritable(pa.array([0, number], parse_type(kind))) == number
    assert unwritable(pa.array([0, None], parse_type(kind))) is None
