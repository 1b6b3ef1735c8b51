"""PROTOCOL.md states every refusal of the state machine: by command and code, as the code can give it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import sparktxn._engine.state
from sparktxn._engine.state.rules import RULES
from sparktxn.errors import ErrorCode

ROOT = Path(__file__).parents[3]
# What commands touch has functions of the handlers' names, which refuse nothing.
MODULES = [
    ast.parse(path.read_text())
    for path in sorted(Path(sparktxn._engine.state.__path__[0]).rglob("*.py"))
    if path.stem != "touchedparts"
]
FUNCTIONS = {node.name: node for module in MODULES for node in module.body if isinstance(node, ast.FunctionDef)}
# Codes that `apply_list` refuses with, after the handlers: a list is not a repetition, or leaves a half message
# pending.
OF_LISTS = {
    ("append", int(ErrorCode.INVALID_TXN_STATE)),
    ("prepare_half", int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)),
}


def codes_in(node: ast.AST) -> set[str]:
    return {
        found.attr
        for found in ast.walk(node)
        if isinstance(found, ast.Attribute) and isinstance(found.value, ast.Name) and found.value.id == "ErrorCode"
    }


def fenced_code_of(function: ast.FunctionDef) -> tuple[int, str] | None:
    """(position, default) of the parameter by which a caller chooses the code of a fence; None without one."""
    names = [argument.arg for argument in function.args.args]
    if "fenced_code" not in names:
        return None
    place = names.index("fenced_code")
    (default,) = codes_in(function.args.defaults[place - len(names)])
    return place, default


def codes(name: str, fenced: str, seen: frozenset[tuple[str, str]] = frozenset()) -> Iterator[str]:
    """The codes that a function of the state machine can refuse with, by itself or by what it calls."""
    if (name, fenced) in seen:
        return
    function = FUNCTIONS[name]
    seen |= {(name, fenced)}
    for call in ast.walk(function):
        if not isinstance(call, ast.Call):
            continue
        called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if called == "Refusal":
            yield from refused_with(call.args[0], function, fenced)
        elif called in FUNCTIONS and called != name:
            parameter = fenced_code_of(FUNCTIONS[called])
            chosen = fenced
            if parameter is not None:
                place, chosen = parameter
                if len(call.args) > place:
                    argument = call.args[place]
                    chosen = fenced if isinstance(argument, ast.Name) else argument.attr  # type: ignore[attr-defined]
            yield from codes(called, chosen, seen)


def refused_with(argument: ast.expr, function: ast.FunctionDef, fenced: str) -> set[str]:
    if not isinstance(argument, ast.Name):
        return codes_in(argument)
    if argument.id == "fenced_code":
        return {fenced}
    assigned = [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == argument.id
    ]
    assert assigned, f"{function.name} refuses with {argument.id}"
    return set().union(*map(codes_in, assigned))


def refusals_of_the_code() -> set[tuple[str, int]]:
    return OF_LISTS | {
        (str(cast(Any, command).__struct_config__.tag), int(ErrorCode[code]))
        for command, rule in RULES.items()
        for code in codes(rule.handler.__name__, "PRODUCER_FENCED")
    }


def refusals_of_the_document() -> set[tuple[str, int]]:
    section = (ROOT / "docs" / "PROTOCOL.md").read_text().split("### Refusals\n")[1].split("\n## ")[0]
    found = set()
    for names, code in re.findall(r"^\| (`[^|]+`) \| (\d+) \|", section, re.MULTILINE):
        found |= {(name, int(code)) for name in re.findall(r"`(\w+)`", names)}
    return found


def test_the_document_states_every_refusal_and_no_other() -> None:
    code, document = refusals_of_the_code(), refusals_of_the_document()
    assert sorted(code - document) == [], "the document does not state these"
    assert sorted(document - code) == [], "the code does not refuse these"


def test_every_code_that_the_document_uses_has_its_name() -> None:
    section = (ROOT / "docs" / "PROTOCOL.md").read_text().split("### Refusals\n")[1].split("\n## ")[0]
    named = {int(code): name for code, name in re.findall(r"^\| (\d+) \| `([A-Z_]+)` \|", section, re.MULTILINE)}
    assert named == {code: ErrorCode(code).name for _, code in refusals_of_the_code()}


def test_every_refusal_of_the_state_machine_belongs_to_a_command() -> None:
    """A function that refuses and that no handler calls would be missing in the document."""
    reached = {name for rule in RULES.values() for name in reach(rule.handler.__name__, set())}
    refusing = {
        name
        for name, function in FUNCTIONS.items()
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Refusal"
    }
    by_proposers = {"is_fixed", "times_changed"}  # _engine/state/settings.py
    assert refusing - reached == {"_refusal_of_whole", "half_rejection"} | by_proposers


def reach(name: str, seen: set[str]) -> set[str]:
    if name not in seen:
        seen.add(name)
        for call in ast.walk(FUNCTIONS[name]):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", getattr(call.func, "id", "")) in FUNCTIONS:
                reach(getattr(call.func, "attr", getattr(call.func, "id", "")), seen)
    return seen
