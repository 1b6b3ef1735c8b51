"""Looks for changes of modules that no test rejects, by mutmut.

`make mutate` changes the whole state machine and runs its own tests, `make mutate ARGS='groups topics'` some of its
modules. A mutant that no test rejects is a missing test, or the same program in other words. `survivors.txt` explains
those of the second kind. A survivor that it does not explain fails the run, as does an explanation that is no longer
needed.

`make mutate ARGS='--modules _rows/scan/plan _engine/log/write/queue --tests all --sample 20'` changes other modules, in
20 places of each, and runs the tests of `make test` that reach the change.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.mutation.engine import OUTCOMES
from tests.mutation.survivors import EXPLAINED, Survivors, explained, survivors
from tests.seeds import SEED_VARIABLE

ROOT: Final = Path(__file__).parents[2]
MUTANTS: Final = ROOT / "mutants"
STATE: Final = "_engine/state/"
"""The folder of the modules that run without a choice."""
ALL: Final = tuple(
    f"tests/{folder}"
    for folder in ("unit", "property", "log", "integration", "maintenance", "transfer", "compatibility", "simulation")
)
"""The folders of `make test` that run in the process of a mutant; other tests start Spark, servers or processes."""
OTHER_PROCESSES: Final = (
    "not nightly and not interop and not spark and not moto and not seaweedfs and not clouds and not crash"
)
READ_THE_SOURCE: Final = (
    "tests/unit/state/test_refusals.py::test_every_refusal_of_the_state_machine_belongs_to_a_command",
    "tests/unit/test_setting_names.py",
    "tests/unit/test_settings_are_read.py",
    "tests/unit/test_prose.py",
    "tests/log/test_confirm.py",
    "tests/compatibility",
)


def main(arguments: Sequence[str]) -> int:
    """Return 0 if nothing is left to work on."""
    known = explained(EXPLAINED.read_text())
    state = sorted(module.removeprefix(STATE) for module in known if module.startswith(STATE))
    given = _options(arguments, state)
    modules = given.modules or [f"{STATE}{module}" for module in given.state or state]
    choice: dict[str, Any] = {"modules": modules, "tests": [], "options": [], "size": given.sample, "seed": given.seed}
    if given.tests:
        choice["tests"] = [part for test in given.tests for part in (ALL if test == "all" else [test])]
        choice["options"] = ["-m", OTHER_PROCESSES, *(f"--deselect={test}" for test in READ_THE_SOURCE)]
    shutil.rmtree(MUTANTS, ignore_errors=True)
    # The mutants see what `make test` shows them, also at night.
    environment = {name: value for name, value in os.environ.items() if name != SEED_VARIABLE}
    command = [sys.executable, "-m", "tests.mutation.engine", json.dumps(choice)]
    run = subprocess.run(
        command, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    if run.returncode:
        print(run.stdout[-4_000:])
        return 1
    chosen = frozenset(json.loads((ROOT / OUTCOMES).read_text())) if given.sample else None
    found = {module: survivors(MUTANTS / "sparktxn" / f"{module}.py", chosen) for module in modules}
    # Other tests, or some of the mutants only, do not show that an explanation is no longer needed.
    is_whole = not given.tests and not given.sample
    return sum(report(module, found[module], known, is_whole) for module in modules) and 1


def report(module: str, found: Survivors, explanations: dict[str, dict[str, str]], is_whole: bool) -> int:
    """Print what a module's run has found, and return how many findings are left to work on."""
    known = explanations.get(module, {})
    new = [change for change in found.names if change not in known]
    old = [change for change in known if change not in found.names] if is_whole else []
    print(f"{module}: {found.run} mutants, {len(found.names)} survive, {len(new)} of them without an explanation")
    for change in new:
        print(f"  {change}\n      mutmut show {found.names[change]}")
    for change in old:
        print(f"  rejected by now, remove its explanation: {change}")
    if found.timed_out:
        print(f"  {found.timed_out} of the others ran out of time")
    if found.not_run:
        print(f"  {found.not_run} mutants were not run")
    return len(new) + len(old) + found.not_run


def _options(arguments: Sequence[str], state: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("state", nargs="*", metavar="MODULE", help=f"of the state machine: {', '.join(state)}")
    parser.add_argument("--modules", nargs="+", metavar="PATH", help="below sparktxn/, without .py, instead")
    parser.add_argument("--tests", nargs="+", metavar="TEST", help="files and folders, or `all` of `make test`")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="so many mutants of each module only")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
