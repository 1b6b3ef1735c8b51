"""CSV: the reader agrees with one that goes from character to character, wherever pieces end."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from sparktxn.transfer import csvrows
from sparktxn.transfer.csvrows import csv_rows
from sparktxn.transfer.exactvalues import WrongLine
from tests.seeds import examples, seed_of

VALUES = [
    "",
    '""',
    "x",
    '"a\nb"',
    '"a\r\nb"',
    '"\r"',
    '""""',
    '"a""b"',
    '","',
    " ",
    "é",
    "\u2028",
    "\ufeff",
    '"\ufeff"',
    '"\n"',
    '" "',
    "NA",
]
WRONG = ['a"', '"a"b', "\r", '"', 'a"b"']
CHARACTERS = ['"', '""', '"""', ",", "\n", "\r\n", "\r", "x", "é", " "]


def ignore(read_bytes: int) -> None:
    """How much was read is of no account here."""


def records_of(text: str) -> list[list[str | None]] | None:
    """Return the records of RFC 4180, with None for nothing between commas; None if a record is none."""
    records: list[list[str | None]] = []
    record: list[str | None] = []
    at = 0
    while at < len(text):
        begin = at
        value: str | None
        if text[at] == '"':
            at += 1
            while text[at : at + 2] == '""' or text[at : at + 1] not in ('"', ""):
                at += 2 if text[at] == '"' else 1
            if at >= len(text):
                return None
            value = text[begin + 1 : at].replace('""', '"')
            at += 1
        else:
            while at < len(text) and text[at] not in '",\r\n':
                at += 1
            value = text[begin:at] or None
        record.append(value)
        end = "\r\n" if text.startswith("\r\n", at) else text[at : at + 1]
        if end not in (",", "\n", "\r\n", ""):
            return None
        at += len(end)
        if end == "," and at == len(text):
            record.append(None)
        if end != "," or at == len(text):
            records.append(record)
            record = []
    return records


def expected(text: str, width: int) -> list[list[str | None]] | None:
    """Return the records after the first line; None if one has another number of values, or might be none."""
    records = records_of(text)
    if records is None or (width == 1 and [None] in records[1:]):
        return None
    rows = [row for row in records[1:] if row != [None]]
    return rows if all(len(row) == width for row in rows) else None


def text_of(random: Random, width: int) -> str:
    """Return hostile records, or hostile characters."""
    if random.random() < 0.4:
        return "".join(random.choices(CHARACTERS, k=random.randrange(14)))
    values = [*VALUES * 10, *WRONG]
    rows = (",".join(random.choices(values, k=width)) for _ in range(random.randrange(6)))
    text = "".join(row + random.choice(["\n", "\r\n"]) for row in rows)
    return text[: len(text) - random.randrange(2)]


def test_pieces_of_any_size_hold_the_same_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed_of("csv pieces"))
    file = tmp_path / "a.csv"
    refused = 0
    for _ in range(examples(1_500, 20_000)):
        monkeypatch.setattr(csvrows, "_PIECE_BYTES", random.choice([1, 2, 3, 5, 8, 13, 1_000]))
        names = random.choice([["a"], ["a", "b"]])
        text = ",".join(names) + "\n" + text_of(random, len(names))
        file.write_text(text, newline="")
        wanted = expected(text, len(names))
        try:
            found: Any = [list(row.values()) for rows in csv_rows(file, ignore) for row in rows.table.to_pylist()]
        except WrongLine:
            found = None
            refused += 1
        assert found == wanted, repr(text)
    assert refused


@pytest.mark.parametrize(
    ("data", "line", "reason"),
    [
        (b"", 1, "the file is empty"),
        (b"a,a\n1,2\n", 1, "column 'a' is there 2 times"),
        (b"\xff\xfea\n", 1, "not UTF-8"),
        (b'a,b\n"x\ny",z\n1,2,3\n', 4, "has 3 values, and the first line 2"),
        (b'a,b\n"x\ny",z\n1,\xff\n', 4, "column 'b' is not UTF-8"),
        (b'a,b\n"x\ny",z\n1,5" nail\n', 4, "value 2, '5\" nail', has a quote where readers of CSV differ"),
        (b"a,b\n1,x\ry\n", 2, r"value 2, 'x\\ry', has \\r without \\n"),
        (b'a,b\n1,2\n1,"x\n2,3\n', 3, "quote"),
    ],
)
def test_what_is_no_csv_is_named_with_its_line(tmp_path: Path, data: bytes, line: int, reason: str) -> None:
    (tmp_path / "a.csv").write_bytes(data)
    with pytest.raises(WrongLine, match=reason) as caught:
        list(csv_rows(tmp_path / "a.csv", ignore))
    assert caught.value.line == line


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbf"a",b\r\n\xef\xbb\xbf,2')
    rows = [row for some in csv_rows(tmp_path / "a.csv", ignore) for row in some.table.to_pylist()]
    assert rows == [{"a": "\ufeff", "b": "2"}]


def test_a_quote_that_is_never_closed_is_not_read_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csvrows, "_RECORD_BYTES_MAX", 1_000)
    monkeypatch.setattr(csvrows, "_PIECE_BYTES", 100)
    (tmp_path / "a.csv").write_text('a\n1\n"' + "x\n" * 2_000)
    with pytest.raises(WrongLine, match="is a quote not closed") as caught:
        list(csv_rows(tmp_path / "a.csv", ignore))
    assert caught.value.line == 3
