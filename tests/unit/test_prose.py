"""The check of prose finds what it is for; `make check` runs it on this repository."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from tests.each import each

ROOT = Path(__file__).parents[2]


def load_check() -> Any:
    spec = importlib.util.spec_from_file_location("check_prose", ROOT / "docs" / "check_prose.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHECK = load_check()

LONG = " ".join(["a"] * 36) + "."
FOUND = [
    ("a.md", "The reader is told.\n", [(1, "'told': write returns, reports, raises, says")]),
    ("a.md", "One.\n\nIt waits\nfor ever.\n", [(4, "'for ever': write permanently, without end")]),
    ("a.md", f"Short.\n\n* {LONG}\n", [(3, "a sentence of 36 words: at most 35")]),
    ("a.md", f"{'x' * 121}\n", [(1, "121 columns: at most 120")]),
    ("a.md", "| One. Two. Three. |\n", [(1, "a cell of 3 sentences: at most 2")]),
    ("a.py", '"""Return\n\nwhat whoever asks for."""\n', [(3, f"'whoever': write {CHECK.ACTOR}")]),
    ("a.py", f'def f():\n    """Return.\n\n    {LONG}\n    """\n', [(4, "a sentence of 36 words: at most 35")]),
    ("a.py", '"""Return::\n\n    nobody\n\nnobody\n"""\n', [(5, f"'nobody': write {CHECK.ACTOR}")]),
    ("a.py", "x = 1  # mends the store\n", [(1, "'mends': write fix")]),
    ("sparktxn/a.py", 'raise ValueError(f"{x} was told")\n', [(1, "'told': write returns, reports, raises, says")]),
]
FOUND += [
    ("a.md", "It waits. Else it fails.\n", [(1, "'. Else': write the condition, or Otherwise")]),
    ("a.py", "# So it does if it waits.\n", [(1, "'So it does': write the condition, or Otherwise")]),
    ("a.md", "A file is no\nobject.\n", [(1, "'is no\\nobject': write is not a")]),
    ("sparktxn/a.py", 'raise ValueError(f"{x} is no topic")\n', [(1, "'is no topic': write is not a")]),
]
FOUND += [
    ("sparktxn/a.py", text, [(1 + text.startswith(("try", "match")), f"{name!r}: a name without {word!r}")])
    for text, name, word in (
        ("def look_again(): ...\n", "look_again", "look"),
        ("class ToldEnds: ...\n", "ToldEnds", "told"),
        ("_LOOK_S = 1\n", "_LOOK_S", "look"),
        ("self.eof_told_at = 1\n", "eof_told_at", "told"),
        ("f = lambda beside: 1\n", "beside", "beside"),
        ("try: ...\nexcept E as told: ...\n", "told", "told"),
        ("import ast as stand\n", "stand", "stand"),
        ("from ast import parse as looks\n", "looks", "looks"),
        ("match x:\n    case [*stood]: ...\n", "stood", "stood"),
        ("match x:\n    case {1: 2, **house}: ...\n", "house", "house"),
        ("match x:\n    case int() as mending: ...\n", "mending", "mending"),
        ("f(looked_at=1)\n", "looked_at", "looked"),
    )
]
FOUND.append(
    ("sparktxn/_engine/log/look/a.py", "x = 1\n", [(1, "'sparktxn/_engine/log/look/a.py': a name without 'look'")])
)
NOT_FOUND = [
    ("tests/look.py", "x = 1\n"),
    ("a.md", "```\nnobody tells\n```\n"),
    ("a.md", "`nobody` is a name, and [this](https://x/whoever) is a link.\n"),
    ("a.md", f"| `{'x' * 130}` | one cell. Two sentences. |\n"),
    ("a.md", f"* {'word ' * 20}\n* {'word ' * 20}\n"),
    ("a.md", "Who reads this?\n"),
    ("a.py", 'whoever = "told"\n'),
    ("a.py", f'"""Return.\n\nRaises:\n    ValueError: {"word " * 10}\n"""\n'),
    ("a.py", f'"""Return:\n\nA table::\n\n    {"word " * 30}\n\n    nobody\n\nThe end."""\n'),
    ("tests/a.py", 'text = "a row that nobody wrote"\n'),
    ("tests/a.py", 'def look():\n    """The rows."""\n'),
    ("sparktxn/a.py", 'def f():\n    """The rows."""\n'),
    ("a.md", "There is no row, and it is no longer there, or someElse.\n"),
    ("sparktxn/a.py", "class Lookups: ...\nsize = file.tell()\nstandalone = outlook = 1\n"),
]


@each(FOUND)
def test_the_check_finds(name: str, text: str, findings: list[tuple[int, str]]) -> None:
    assert CHECK.findings(name, text) == findings


@each(NOT_FOUND)
def test_the_check_leaves_alone(name: str, text: str) -> None:
    assert CHECK.findings(name, text) == []
