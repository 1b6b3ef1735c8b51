"""The command `txnlog`: its verbs, and how a run of it ends."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import typer

from sparktxn.cli.failures import INTERRUPTED, report
from sparktxn.cli.session import RunTasks
from sparktxn.cli.verb import root_options
from sparktxn.cli.verbs import (
    bench,
    consume,
    copy,
    doctor,
    dump,
    export,
    files,
    groups,
    half,
    importing,
    jobs,
    log,
    offsets,
    produce,
    producers,
    settings,
    tables,
    topics,
    transactions,
    verify,
)

__all__ = ["APP", "run"]

APP: Final = typer.Typer(
    name="txnlog",
    help="Show what is in a store, read and write it, and keep it small.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
)
APP.callback()(root_options)
APP.add_typer(topics.app, name="topics", help="List, create, describe, alter and delete topics.")
APP.add_typer(settings.app)
APP.add_typer(consume.app)
APP.add_typer(produce.app)
APP.add_typer(groups.app, name="groups", help="List, describe, delete and reset consumer groups.")
APP.add_typer(transactions.app, name="transactions", help="List, describe, abort, fence and find transactions.")
APP.add_typer(producers.app)
APP.add_typer(tables.app, name="tables", help="List and publish the tables that topics are for other engines.")
APP.add_typer(half.app, name="half", help="List, discard, resume and delete half messages.")
APP.add_typer(offsets.app)
APP.add_typer(log.app)
APP.add_typer(dump.app)
APP.add_typer(files.app)
APP.add_typer(jobs.app)
APP.add_typer(verify.app)
APP.add_typer(copy.app)
APP.add_typer(export.app)
APP.add_typer(importing.app)
APP.add_typer(doctor.app)
APP.add_typer(bench.app)


def run(arguments: Sequence[str], run_tasks: RunTasks | None = None) -> int:
    """Run one command line; return its exit code: 0, 1 for failures, 2 for wrong usage, 130 after Ctrl-C.

    `run_tasks` does the tasks of jobs in other processes.
    """
    debug = "--debug" in arguments
    try:
        code = _command().main(args=list(arguments), prog_name="txnlog", standalone_mode=False, obj=run_tasks)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - every error becomes one line
        return report(error, debug=debug)
    return code if isinstance(code, int) else 0


@cache
def _command() -> Any:
    """Return the command that Typer makes of all verbs, which takes longer than most of them."""
    return typer.main.get_command(APP)
