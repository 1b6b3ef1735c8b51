"""How much of the private rooms the programs behind the command know."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.test_architecture import ROOT, name_of, trees

ROOMS = ("sparktxn._foundation.", "sparktxn._engine.", "sparktxn._rows.", "sparktxn._kafka.")
KNOWN = {"cli": 26, "gateway": 28, "console": 21, "exporter": 1, "catalog": 7}
"""By program: of how many modules of private rooms it imports. The fewer, the better; `sparktxn.store` has doors."""


def is_module(dotted: str) -> bool:
    return Path(ROOT, *dotted.split(".")).with_suffix(".py").exists()


def imported(tree: ast.AST) -> set[str]:
    """Return the modules that a module imports, or names of."""
    found = {
        (node.module or "", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return {f"{module}.{name}" if is_module(f"{module}.{name}") else module for module, name in found}


def test_programs_import_few_modules_of_private_rooms() -> None:
    programs = ROOT / "sparktxn" / "_programs"
    known: dict[str, set[str]] = {path.stem: set() for path in programs.iterdir() if path.stem[0] != "_"}
    for module, tree in trees().items():
        inside = module.removeprefix(name_of(programs) + "/")
        if inside != module and not inside.startswith("_"):
            program = inside.partition("/")[0].removesuffix(".py")
            known[program] |= {name for name in imported(tree) if name.startswith(ROOMS)}
    assert {program: len(modules) for program, modules in known.items()} == KNOWN
