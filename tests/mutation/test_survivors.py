"""What `make mutate` reports: each survivor by what it changes, whatever number mutmut gives it."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import tomllib
from pathlib import Path

import pytest

import sparktxn
from tests.mutation import engine
from tests.mutation.__main__ import ROOT, STATE
from tests.mutation.engine import sample
from tests.mutation.survivors import EXPLAINED, difference, explained, survivors

PACKAGE = Path(sparktxn.__path__[0])
MUTATED = """
def x_apply__mutmut_orig(delta):
    if delta > 0:
        return Refusal(ErrorCode.A, f"{delta} is too large")
    return delta


def x_apply__mutmut_1(delta):
    if delta >= 0:
        return Refusal(ErrorCode.A, f"{delta} is too large")
    return delta


def x_apply__mutmut_2(delta):
    if delta > 0:
        return Refusal(ErrorCode.A, f"{delta} XXis too largeXX")
    return delta


def x_apply__mutmut_3(delta):
    if delta > 0:
        return Refusal(None, f"{delta} is too large")
    return delta


def x_apply__mutmut_4(delta):
    if delta > 0:
        return Refusal(ErrorCode.A, f"{delta} is too large")
    return None
"""


REFUSAL = "return Refusal({}, f'{{delta}} is too large')"


def test_survivors_are_known_by_what_they_change(tmp_path: Path) -> None:
    mutated = tmp_path / "module.py"
    mutated.write_text(MUTATED)
    codes = {f"sparktxn.module.x_apply__mutmut_{number}": code for number, code in enumerate((0, 0, 33, 1), 1)}
    (tmp_path / "module.py.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    found = survivors(mutated)
    assert (found.run, found.not_run, found.timed_out) == (4, 0, 0)
    assert found.names == {
        "apply: if delta > 0: => if delta >= 0:": "sparktxn.module.x_apply__mutmut_1",
        f"apply: {REFUSAL.format('ErrorCode.A')} => {REFUSAL.format(None)}": "sparktxn.module.x_apply__mutmut_3",
    }


def test_mutants_that_were_not_run_or_ran_out_of_time_are_counted(tmp_path: Path) -> None:
    mutated = tmp_path / "module.py"
    mutated.write_text(MUTATED)
    codes = {"m.x_apply__mutmut_1": None, "m.x_apply__mutmut_2": -24}
    (tmp_path / "module.py.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    assert survivors(mutated)[1:] == (2, 1, 1)


def test_only_the_chosen_mutants_count(tmp_path: Path) -> None:
    mutated = tmp_path / "module.py"
    mutated.write_text(MUTATED)
    codes = {f"m.x_apply__mutmut_{number}": code for number, code in enumerate((0, None, None), 1)}
    (tmp_path / "module.py.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    assert survivors(mutated, {"m.x_apply__mutmut_1"})[1:] == (1, 0, 0)


def test_one_seed_draws_one_sample() -> None:
    mutants = [str(number) for number in range(100)]
    drawn = sample(mutants, 10, seed=1)
    assert len(set(drawn)) == 10
    assert drawn == sample(mutants[::-1], 10, seed=1) != sample(mutants, 10, seed=2)
    assert sample(mutants, 1_000, seed=1) == sorted(mutants)


@pytest.mark.parametrize("mutant", ["stats", "sparktxn._rows.scan.plan.x_end_of__mutmut_1"])
def test_a_process_that_a_test_starts_has_the_mutant_and_keeps_no_record(
    monkeypatch: pytest.MonkeyPatch, mutant: str
) -> None:
    monkeypatch.setattr(engine, "_record_no_callers", lambda: None)  # mutmut is not installed everywhere
    monkeypatch.setenv(engine.MUTANT, mutant)
    engine.pytest_configure()
    assert os.environ.get(engine.MUTANT) == (None if mutant == engine.RECORDED else mutant)


def test_a_difference_shows_a_little_of_what_is_around_it() -> None:
    before, after = (
        ast.parse(f"def f():\n    return call({'a' * 50}, {value}, {'b' * 50})").body[0] for value in ("1", "None")
    )
    assert isinstance(before, ast.FunctionDef)
    assert isinstance(after, ast.FunctionDef)
    shown = difference(before, after)
    assert shown == f"...{'a' * 28}, 1, {'b' * 28}... => ...{'a' * 28}, None, {'b' * 28}..."


@pytest.mark.parametrize("text", ["a change\n", "[module]\n  a reason\n"])
def test_a_line_out_of_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="before the first"):
        explained(text)


def test_every_explanation_is_of_a_function_that_exists() -> None:
    known = explained(EXPLAINED.read_text())
    assert known
    for module, changes in known.items():
        names = vars(importlib.import_module(f"sparktxn.{module.replace('/', '.')}"))
        for change, reason in changes.items():
            assert change.partition(":")[0].partition(".")[0] in names, change
            assert reason, f"{change} is not explained"


def test_every_module_that_has_functions_is_named() -> None:
    """`make mutate` runs those of the state machine that are, and only those."""
    modules = {
        path.relative_to(PACKAGE).with_suffix("").as_posix(): ast.walk(ast.parse(path.read_text()))
        for path in (PACKAGE / STATE).rglob("*.py")
    }
    mutable = {name for name, nodes in modules.items() if any(isinstance(node, ast.FunctionDef) for node in nodes)}
    assert {name for name in explained(EXPLAINED.read_text()) if name.startswith(STATE)} == mutable


def test_the_copy_that_is_mutated_has_each_folder_that_tests_import() -> None:
    """Without one of them, `--tests all` fails before the first mutant."""
    imported = {
        name
        for path in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(), re.MULTILINE)
    }
    given = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
    copied = {"tests", *given["source_paths"], *given["also_copy"]}
    assert {name for name in imported if (ROOT / name).is_dir()} <= copied
