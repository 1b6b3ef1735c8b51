"""What `make mutate` reports: each survivor by what it changes, whatever number mutmut gives it."""

from __future__ import annotations

import ast
import importlib
import json
from pathlib import Path

import pytest

import sparktxn.state
from tests.mutation.engine import sample
from tests.mutation.survivors import EXPLAINED, difference, explained, survivors

STATE = sparktxn.state.__path__[0]
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
    assert (found.run, found.not_run) == (4, 0)
    assert found.names == {
        "apply: if delta > 0: => if delta >= 0:": "sparktxn.module.x_apply__mutmut_1",
        f"apply: {REFUSAL.format('ErrorCode.A')} => {REFUSAL.format(None)}": "sparktxn.module.x_apply__mutmut_3",
    }


def test_a_mutant_that_was_not_run_is_counted(tmp_path: Path) -> None:
    mutated = tmp_path / "module.py"
    mutated.write_text(MUTATED)
    (tmp_path / "module.py.meta").write_text(json.dumps({"exit_code_by_key": {"m.x_apply__mutmut_1": None}}))
    assert survivors(mutated)[1:] == (1, 1)


def test_only_the_chosen_mutants_count(tmp_path: Path) -> None:
    mutated = tmp_path / "module.py"
    mutated.write_text(MUTATED)
    codes = {f"m.x_apply__mutmut_{number}": code for number, code in enumerate((0, None, None), 1)}
    (tmp_path / "module.py.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    assert survivors(mutated, {"m.x_apply__mutmut_1"})[1:] == (1, 0)


def test_one_seed_draws_one_sample() -> None:
    mutants = [str(number) for number in range(100)]
    drawn = sample(mutants, 10, seed=1)
    assert len(set(drawn)) == 10
    assert drawn == sample(mutants[::-1], 10, seed=1) != sample(mutants, 10, seed=2)
    assert sample(mutants, 1_000, seed=1) == sorted(mutants)


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
        names = vars(importlib.import_module(f"sparktxn.state.{module.replace('/', '.')}"))
        for change, reason in changes.items():
            assert change.partition(":")[0].partition(".")[0] in names, change
            assert reason, f"{change} is not explained"


def test_every_module_that_has_functions_is_named() -> None:
    """`make mutate` runs those that are, and only those."""
    modules = {
        path.relative_to(STATE).with_suffix("").as_posix(): ast.walk(ast.parse(path.read_text()))
        for path in Path(STATE).rglob("*.py")
    }
    mutable = {name for name, nodes in modules.items() if any(isinstance(node, ast.FunctionDef) for node in nodes)}
    assert set(explained(EXPLAINED.read_text())) == mutable
