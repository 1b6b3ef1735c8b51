"""Which mutants have survived a run of mutmut, and which of them `survivors.txt` explains."""

from __future__ import annotations

import ast
import json
from collections.abc import Collection
from difflib import unified_diff
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["EXPLAINED", "Survivors", "difference", "explained", "survivors"]

EXPLAINED: Final = Path(__file__).with_name("survivors.txt")
_SURVIVED: Final = frozenset({0, 5, 33})
"""mutmut's codes for a mutant that passes its tests, and for one that no test reaches."""
_TIMED_OUT: Final = frozenset({24, -24, 36, 152, 255, -9})
_CONTEXT: Final = 30

Function = ast.FunctionDef | ast.AsyncFunctionDef
Explained = dict[str, dict[str, str]]


class Survivors(NamedTuple):
    """What a run has found in one module."""

    names: dict[str, str]
    """The mutants that no test rejects: what each changes, and mutmut's name for it."""
    run: int
    not_run: int
    timed_out: int
    """They count as rejected; where the machine has much other work, they may have been slow only."""


def explained(text: str) -> Explained:
    """Return the reasons in `survivors.txt`, by module and by what the mutant changes.

    Raises:
        ValueError: a line has no place in the format.
    """
    found: Explained = {}
    changes: dict[str, str] | None = None
    change = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#") or not line.strip():
            continue
        if line.startswith("[") and line.endswith("]"):
            changes = found.setdefault(line[1:-1], {})
        elif changes is not None and not line.startswith(" "):
            change = line
            changes[change] = ""
        elif changes and change in changes:
            changes[change] = f"{changes[change]} {line.strip()}".strip()
        else:
            raise ValueError(f"line {number} is before the first [module] or change: {line!r}")
    return found


def survivors(mutated: Path, chosen: Collection[str] | None = None) -> Survivors:
    """Return the survivors of `mutated`, a module as mutmut has written it, with its results alongside.

    `chosen` names the mutants that were to be run; all of them if it is None.
    """
    codes: dict[str, int | None] = json.loads(Path(f"{mutated}.meta").read_text())["exit_code_by_key"]
    codes = {key: code for key, code in codes.items() if chosen is None or key in chosen}
    functions = {node.name: node for node in ast.walk(ast.parse(mutated.read_text())) if isinstance(node, Function)}
    names = {}
    for key, code in codes.items():
        mutant = key.rpartition(".")[2]
        function = mutant.partition("__mutmut_")[0]
        before, after = functions[f"{function}__mutmut_orig"], functions[mutant]
        if code in _SURVIVED and _without_texts(before) != _without_texts(after):
            names[f"{_plain(function)}: {difference(before, after)}"] = key
    not_run, timed_out = (sum(code in which for code in codes.values()) for which in ({None}, _TIMED_OUT))
    return Survivors(names, len(codes), not_run, timed_out)


def difference(before: Function, after: Function) -> str:
    """Return what differs between two versions of a function, with a little of what is around it."""
    old, new = (ast.unparse(function).splitlines()[1:] for function in (before, after))
    changed = [line for line in unified_diff(old, new, lineterm="", n=0) if line[:2] not in ("--", "++", "@@")]
    gone = " ".join(line[1:].strip() for line in changed if line[0] == "-")
    come = " ".join(line[1:].strip() for line in changed if line[0] == "+")
    first = _common(gone, come)
    last = _common(gone[first:][::-1], come[first:][::-1])
    return f"{_around(gone, first, last)} => {_around(come, first, last)}"


def _common(one: str, other: str) -> int:
    """How many characters both begin with."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _around(line: str, first: int, last: int) -> str:
    start, end = max(0, first - _CONTEXT), min(len(line), len(line) - last + _CONTEXT)
    return ("..." if start else "") + line[start:end].strip() + ("..." if end < len(line) else "")


def _without_texts(function: Function) -> str:
    """The function without its name, and without the words of its refusals, which no test has to pin."""
    return "\n".join(ast.unparse(_Wordless().visit(ast.parse(ast.unparse(function)))).splitlines()[1:])


class _Wordless(ast.NodeTransformer):
    """Takes the words out of refusals, and of any text that has more than one."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant("words") if isinstance(node.value, str) and " " in node.value else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "Refusal":
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    part.value = "words"
        return self.generic_visit(node)


def _plain(function: str) -> str:
    """`delta.xǁDeltaǁget` is mutmut's name for Delta.get, and `x_apply` for apply."""
    return function.removeprefix("xǁ").removeprefix("x_").replace("ǁ", ".")
