"""Runs mutmut on a choice of modules and tests: mutmut reads its own choice from pyproject.toml only.

mutmut runs all tests once and notes which of them reach which function. For each mutant it forks a process in which no
test has run. That one runs the tests that reach the mutant's function, and stops at the first that fails.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections import defaultdict
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

__all__ = ["MUTANT", "OUTCOMES", "sample"]

OUTCOMES: Final = Path("mutants/outcomes.json")
"""Where the names of the mutants that were run are written."""
LIMITS: Final = {"timeout_multiplier": 4.0, "timeout_constant": 30.0}
"""A mutant may take so many times as long as its tests and so many seconds: to collect thousands takes some of them."""
MUTANT: Final = "MUTANT_UNDER_TEST"
"""The variable that names the mutant in its process."""
RECORDED: Final = "stats"
"""What mutmut's variable holds while it notes which tests reach which function."""


def sample(mutants: list[str], size: int, seed: int) -> list[str]:
    """Return `size` of a module's mutants, or all if there are no more; the same seed draws the same."""
    ordered = sorted(mutants)
    return sorted(Random(seed).sample(ordered, min(size, len(ordered))))


def main(modules: list[str], tests: list[str], options: list[str], size: int, seed: int) -> None:
    """Mutate `modules`, such as ``_rows/scan/plan``; without `tests` by those of pyproject.toml, without `size` all."""
    # Imported here, for pytest loads this module without it; by name, for its types are not installed everywhere.
    mutmut: Any = import_module("mutmut.__main__")
    configuration: Any = import_module("mutmut.configuration")
    given = configuration.config()
    chosen = replace(
        given,
        only_mutate=[f"sparktxn/{module}.py" for module in modules],
        pytest_add_cli_args=[*given.pytest_add_cli_args, "-p", "tests.mutation.engine", *options],
    )
    if tests:
        chosen = replace(chosen, pytest_add_cli_args_test_selection=tests, **LIMITS)
    configuration._config = chosen
    # pytest collects all garbage ten times as a mutant's process ends, among all that this one has imported.
    os.register_at_fork(after_in_child=gc.freeze)
    children = os.cpu_count() or 1
    names = [f"sparktxn.{module.replace('/', '.')}.*" for module in modules]
    if size:
        os.makedirs("mutants", exist_ok=True)
        mutmut.set_mutant_under_test("mutant_generation")
        mutmut.copy_src_dir()
        mutmut.create_mutants(children)
        names = [name for module in modules for name in sample(_mutants(module), size, seed)]
        OUTCOMES.write_text(json.dumps(names))
    mutmut._run(names, children)


def _mutants(module: str) -> list[str]:
    meta = Path(f"mutants/sparktxn/{module}.py.meta")
    return list(json.loads(meta.read_text())["exit_code_by_key"])


def pytest_configure() -> None:
    """Record functions that this process reaches: another one, which a test starts, has no place for the record.

    A process that a mutant's test starts inherits the mutant.
    """
    if os.environ.get(MUTANT) == RECORDED:
        del os.environ[MUTANT]  # mutmut has its own copy
        _record_no_callers()


def _record_no_callers() -> None:
    """Take mutmut's stack of calls out, which only a later run of it would use.

    It is a context variable that each call sets and resets: in the simulator's greenlets, and in finalizers, which run
    in the middle of anything. With it, a `set` of the product's own variable has failed with a MemoryError.
    """
    calls: Any = import_module("mutmut.core").MutmutCallStack
    calls.get = staticmethod(lambda: (None, 0))
    calls.set = calls.reset = staticmethod(lambda _: None)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]):
    """Run the quick modules first, once mutmut knows how long each test takes; it loads this one as a plugin of pytest.

    A module stays whole: others check what it has left open.
    """
    result = yield
    stats = Path("mutmut-stats.json")
    if stats.exists():
        durations = json.loads(stats.read_text())["duration_by_test"]
        seconds: dict[Path, float] = defaultdict(float)
        for item in items:
            seconds[item.path] += durations.get(item.nodeid, 0.0)
        items.sort(key=lambda item: (seconds[item.path], item.path))
    return result


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
