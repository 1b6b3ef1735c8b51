"""What the command and the console print counts things as people do: `1 topic`, and not `1 topics`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparktxn._foundation.values.quantities import counted

ROOT = Path(__file__).parents[2] / "sparktxn"
PRINTED = [path for folder in ("cli", "console", "exporter") for path in sorted((ROOT / folder).rglob("*.py"))]
NOUN = re.compile(r" (?!was|has|is|as|this|its|minus|plus|less|bytes)[a-z]+s\b(?! of )")
CONSTANT = re.compile(r"[A-Z_]+")


def counts_in(path: Path) -> Iterator[str]:
    """Yield texts of f-strings in which a number that varies stands before a noun in the plural."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, after in zip(node.values, node.values[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(after, ast.Constant):
                continue
            is_length = isinstance(value.value, ast.Call) and ast.unparse(value.value).startswith(("len(", "number("))
            is_count = isinstance(value.value, ast.Name | ast.Attribute) and "count" in ast.unparse(value.value)
            if (is_length or is_count) and NOUN.match(str(after.value)):
                yield f"{path.name}:{node.lineno}: {ast.unparse(node)}"


def test_counts_with_nouns_come_from_one_function() -> None:
    assert [found for path in PRINTED for found in counts_in(path)] == []


def test_the_check_finds_a_count_with_a_noun(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text('text = f"it has {len(found)} topics"\n')
    assert len(list(counts_in(tmp_path / "wrong.py"))) == 1


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "topic", "1 topic"),
        (0, "topic", "0 topics"),
        (2, "entry", "2 entries"),
        (2, "day", "2 days"),
        (1, "address", "1 address"),
        (3, "address", "3 addresses"),
        (2, "batch", "2 batches"),
    ],
)
def test_a_noun_is_in_the_plural_unless_there_is_one(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text
