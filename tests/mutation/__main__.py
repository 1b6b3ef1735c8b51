"""Runs mutmut on the state machine: `make mutate`, or `make mutate ARGS='groups topics'` for some of its modules.

A mutant that no test rejects is a missing test, or the same program in other words. `survivors.txt` explains those of
the second kind. A survivor that it does not explain fails the run, as does an explanation that is no longer needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.mutation.survivors import EXPLAINED, explained, survivors

ROOT: Final = Path(__file__).parents[2]
MUTANTS: Final = ROOT / "mutants"


def main(modules: list[str]) -> int:
    known = explained(EXPLAINED.read_text())
    chosen = modules or sorted(known)
    shutil.rmtree(MUTANTS, ignore_errors=True)
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(os.cpu_count() or 1)]
    command += [f"sparktxn.state.{module}.*" for module in chosen]
    run = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if run.returncode:
        print(run.stdout[-4_000:])
        return 1
    return sum(report(module, known.get(module, {})) for module in chosen) and 1


def report(module: str, known: dict[str, str]) -> int:
    """Print what a module's run has found, and return how many findings are left to work on."""
    found = survivors(MUTANTS / "sparktxn" / "state" / f"{module}.py")
    new = [change for change in found.names if change not in known]
    old = [change for change in known if change not in found.names]
    print(f"{module}: {found.run} mutants, {len(found.names)} survive, {len(new)} of them without an explanation")
    for change in new:
        print(f"  {change}\n      mutmut show {found.names[change]}")
    for change in old:
        print(f"  rejected by now, remove its explanation: {change}")
    if found.not_run:
        print(f"  {found.not_run} mutants were not run")
    return len(new) + len(old) + found.not_run


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
