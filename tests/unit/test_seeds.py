"""`make test` draws nothing at random: what it draws follows from seeds in the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis.internal.conjecture import engine

from tests import seeds

TESTS = Path(seeds.__file__).parent

ALLOWED = {
    "compatibility/independent_writer.py": "unique names of objects, as any writer needs",
    "edge/test_large_records.py": "bytes that do not compress, of which the test looks at the number only",
    "nightly/__main__.py": "the seed of the night",
    "servers.py": "free ports",
}
"""What a test's result does not depend on. Names from `uuid4` are allowed everywhere."""


def test_a_seed_is_fixed_by_day_and_follows_from_the_nights(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(seeds.SEED_VARIABLE, raising=False)
    assert seeds.seed_of("kills", fixed=7) == 7
    monkeypatch.setenv(seeds.SEED_VARIABLE, "11")
    drawn = seeds.seed_of("kills", fixed=7)
    assert drawn == seeds.seed_of("kills", fixed=8) != seeds.seed_of("members")
    assert f"seed {drawn}, of the night {seeds.SEED_VARIABLE}=11" in capsys.readouterr().out


def test_properties_draw_the_same_examples_each_time() -> None:
    chosen = hypothesis.settings.default
    assert chosen is not None
    assert chosen.derandomize == (seeds.night_seed() is None)
    assert (chosen.database, chosen.deadline) == (None, None)
    assert engine.MAX_SHRINKING_SECONDS < 60, "a failing property prints its case within a minute"


def test_no_test_draws_from_another_source() -> None:
    files = {file.relative_to(TESTS).as_posix(): file for file in sorted(TESTS.rglob("*.py"))}
    found = [f"{name}:{line}: {what}" for name in files.keys() - ALLOWED for line, what in drawn_in(files[name])]
    assert not found, "use tests/seeds.py"


def test_what_draws_is_found(tmp_path: Path) -> None:
    file = tmp_path / "drawing.py"
    file.write_text(
        "import random, os, secrets\nfrom random import SystemRandom\nrandom.choice([1])\nrandom.Random()\n"
        "os.urandom(3)\nsecrets.token_hex()\nsettings(derandomize=False)\nrandom.Random(3).choice([1])\nchosen.random()\n"
    )
    assert [line for line, _ in drawn_in(file)] == [2, 3, 4, 5, 6, 7]


def drawn_in(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of `file` that draw from a source without a seed, with what they use."""
    tree = ast.parse(file.read_text())
    modules = {alias.asname or alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="random", names=names) if any(alias.name != "Random" for alias in names):
                yield node.lineno, "from random import …"
            case ast.Call(func=ast.Name(id="Random") | ast.Attribute(attr="Random"), args=[]):
                yield node.lineno, "Random()"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="random"), attr=name)) if "random" in modules:
                if name != "Random":  # of a seed: without one the case above has found it
                    yield node.lineno, f"random.{name}()"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="secrets" | "os" as module), attr=name)):
                if module == "secrets" or name == "urandom":
                    yield node.lineno, f"{module}.{name}()"
            case ast.keyword(arg="derandomize" | "database") if file.name not in ("conftest.py", "test_seeds.py"):
                yield node.value.lineno, f"{node.arg}="
