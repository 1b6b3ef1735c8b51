"""The command `txnlog`: its verbs, and how a run of it ends.

A run imports the module of its own verb only: all of them together import most of this package.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

import typer
from typer.core import TyperCommand, TyperGroup

from sparktxn._programs.cli.failures import INTERRUPTED, report, warnings_in_lines
from sparktxn._programs.cli.verb import GuessingGroup, root_options

if TYPE_CHECKING:
    from sparktxn.maintenance.taskrunning import RunTasks

VERBS: Final = {
    "topics": "List, create, describe, alter and delete topics.",
    "settings": "List or alter the settings of the store. Those of topics are defaults of topics that do not set them.",
    "consume": "Print records of topics, and wait for more.",
    "produce": "Write a record for each line of standard input, or for each file.",
    "groups": "List, describe, delete and reset consumer groups.",
    "transactions": "List, describe, abort, fence and find transactions.",
    "producers": "List the producers of partitions: epochs, last sequences, and where their open transactions begin.",
    "tables": "List and publish the tables that topics are for other engines.",
    "half": "List, discard, resume and delete half messages.",
    "offsets": "Print offsets of partitions; none where no record belongs to the time.",
    "log": "Print entries of the log: what each one committed, appended and changed.",
    "dump": "Decode one object: an entry, a checkpoint, a manifest, an index, a producer snapshot or a segment.",
    "files": "List the committed files of a read view, in the order of offsets.",
    "maintain": "Run all jobs, as the settings of topics say: sweep, retention, compact, rewrite, tables, vacuum.",
    "retention": "Remove the oldest records of topics, as their settings retention.ms and retention.bytes say.",
    "compact": "Leave only the newest record of each key in topics whose cleanup.policy has compact.",
    "rewrite": "Merge small segments into large Parquet files, without aborted records.",
    "vacuum": "Delete entries, checkpoints, segments and left-overs that retention does not keep.",
    "verify": "Read a store, and print what is not as the protocol says. Without --repair --apply it writes nothing.",
    "copy": "Copy a store with its offsets, transactions, groups and settings, or bring an earlier copy forward.",
    "export": "Write the committed records of a read view to files of a local folder, one folder for each partition.",
    "import": "Append files, or what a topic of Kafka or of another store has, to a topic; each record takes effect "
    "once.",
    "doctor": "Prove on your store and machine that conditional puts are honoured; check permissions, clocks and "
    "versions.",
    "console": "Show the store in the browser: topics and records, transactions, groups, the log and files.",
    "exporter": "Serve the figures of a store to Prometheus, until it is ended.",
    "gateway": "Serve Kafka's clients from a store, until it is ended.",
    "sweep": "End transactions and memberships of groups that have timed out; forget what is idle.",
}
"""What the command's help says of each verb, in its order. A verb's own help begins with the same words."""

_JOBS: Final = ("maintain", "retention", "compact", "rewrite", "vacuum", "sweep")
MODULES: Final = {"import": "importing", **dict.fromkeys(_JOBS, "jobs")}
"""The modules of verbs that have other names."""


def run(arguments: Sequence[str], run_tasks: RunTasks[Any, Any] | None = None) -> int:
    """Run one command line; return its exit code: 0, 1 for failures, 2 for wrong usage, 130 after Ctrl-C.

    `run_tasks` does the tasks of jobs in other processes.
    """
    debug = "--debug" in arguments
    try:
        with warnings_in_lines(debug=debug):
            code = _command().main(args=list(arguments), prog_name="txnlog", standalone_mode=False, obj=run_tasks)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - every error becomes one line
        return report(error, debug=debug)
    return code if isinstance(code, int) else 0


class _Verbs(GuessingGroup):
    """The verbs: their names and help by a table, and each of them from its module once it is given."""

    def __init__(self, **settings: Any) -> None:
        named = {name: TyperCommand(name=name, help=help) for name, help in VERBS.items()}
        super().__init__(**(settings | {"commands": named}))

    def resolve_command(self, context: Any, arguments: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the verb that the arguments begin with, and the arguments after it."""
        name, _, rest = super().resolve_command(context, arguments)
        return name, None if name is None else load(name), rest


@cache
def load(name: str) -> Any:
    """Return verb `name` as Typer makes it of its module: a command, or a group of commands."""
    verbs = importlib.import_module(f"sparktxn._programs.cli.verbs.{MODULES.get(name, name)}").app
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    app.callback()(lambda: None)
    if any(command.name == name for command in verbs.registered_commands):
        app.add_typer(verbs)
    else:
        app.add_typer(verbs, name=name, help=VERBS[name], cls=GuessingGroup)
    return cast(TyperGroup, typer.main.get_command(app)).commands[name]


@cache
def _command() -> Any:
    """Return the command without its verbs."""
    app = typer.Typer(
        name="txnlog",
        cls=_Verbs,
        help="Show what is in a store, read and write it, and keep it small.",
        no_args_is_help=True,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback()(root_options)
    return typer.main.get_command(app)
