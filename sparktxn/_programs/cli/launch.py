"""The entry point of the command, which needs the extra ``cli``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import sparktxn
from sparktxn._programs.cli.standardstreams import ended, make_usable

if TYPE_CHECKING:
    from sparktxn.maintenance.taskrunning import RunTasks


def main(run_tasks: RunTasks[Any, Any] | None = None) -> int:
    """Run the command with this process's arguments; return its exit code.

    `run_tasks` does the tasks of jobs in other processes, as `run` of `sparktxn.maintenance.rewrite` does.
    """
    make_usable()
    return ended(_run(run_tasks))


def _run(run_tasks: RunTasks[Any, Any] | None) -> int:
    if sys.argv[1:] in (["--version"], ["-V"], ["version"]):
        # Typer would take longer to start than this takes, and need not be installed.
        sys.stdout.write(f"txnlog {sparktxn.__version__}\n")
        return 0
    try:
        # Imported late: without the extra, the packages of the command line are missing.
        from sparktxn._programs.cli.app import run
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in ("typer", "rich"):
            raise
        from sparktxn.errors import extra_to_install

        sys.stderr.write(f"txnlog: the command needs Typer and Rich: {extra_to_install('cli')}\n")
        return 1
    return run(sys.argv[1:], run_tasks)
