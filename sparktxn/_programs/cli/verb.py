"""How a function becomes a verb: options that all share, examples in its help, its session, words that are meant.

A file of a verb has functions whose first parameter is the `Session`, and adds them to its Typer application::

    app = typer.Typer(no_args_is_help=True)

    @verb(app, "list", examples=["txnlog topics list"])
    def list_topics(session: Session) -> None: ...

A verb that deletes, or moves offsets, takes `Apply`: without ``--apply`` it prints what it would do.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from msgspec.structs import replace
from rich.markup import escape
from typer.core import TyperGroup

import sparktxn
from sparktxn._foundation.config.settings import Setting
from sparktxn._foundation.config.values import MILLISECONDS
from sparktxn._foundation.values import arguments
from sparktxn._programs.cli import completion
from sparktxn._programs.cli.failures import WrongUsage, quantity
from sparktxn._programs.cli.session import TIMEOUT_S, Given, Session

# Verbs as users guess them: what the command does for `help` and `version`, and which verb it names for a word.

OF_COMMAND: Final[Mapping[str, str]] = {
    **dict.fromkeys(("ls", "list", "show", "describe", "status", "info", "stats"), "topics list"),
    **dict.fromkeys(("create", "create-topic", "new", "init", "mb", "mk"), "topics create"),
    **dict.fromkeys(("alter", "set"), "topics alter"),
    **dict.fromkeys(("delete", "rm", "remove", "drop"), "topics delete"),
    **dict.fromkeys(("read", "cat", "tail", "head", "get", "subscribe", "records", "messages"), "consume"),
    **dict.fromkeys(("write", "append", "send", "put", "publish", "insert"), "produce"),
    **dict.fromkeys(("consumers", "consumer-group", "consumer-groups", "members"), "groups list"),
    **dict.fromkeys(("lag", "lags"), "groups describe"),
    **dict.fromkeys(("tx", "txn", "txns", "transactional"), "transactions list"),
    **dict.fromkeys(("config", "configs", "configure", "setting"), "settings"),
    **dict.fromkeys(("gc", "clean", "cleanup", "prune", "purge"), "vacuum"),
    **dict.fromkeys(("optimize", "merge", "optimise"), "rewrite"),
    **dict.fromkeys(("fsck", "check", "repair", "validate", "scrub"), "verify"),
    **dict.fromkeys(("backup", "clone", "mirror", "sync", "cp"), "copy"),
    **dict.fromkeys(("load", "ingest", "restore"), "import"),
    **dict.fromkeys(("download", "unload", "save"), "export"),
    **dict.fromkeys(("ui", "web", "browse", "dashboard"), "console"),
    **dict.fromkeys(("kafka", "broker", "server", "serve", "start", "run"), "gateway"),
    **dict.fromkeys(("metrics", "prometheus"), "exporter"),
    **dict.fromkeys(("entries", "history", "journal"), "log"),
    **dict.fromkeys(("bench", "benchmark", "latency", "perf"), "doctor"),
    **dict.fromkeys(("watermarks", "offset"), "offsets"),
}
"""What other tools call it, or their users would."""

OF_GROUP: Final[Mapping[str, str]] = {
    **dict.fromkeys(("ls", "all"), "list"),
    **dict.fromkeys(("info", "show", "get", "desc", "inspect", "cat"), "describe"),
    **dict.fromkeys(("rm", "remove", "drop", "del"), "delete"),
    **dict.fromkeys(("add", "new", "make", "mk", "init"), "create"),
    **dict.fromkeys(("set", "update", "change", "edit", "configure"), "alter"),
    **dict.fromkeys(("rollback", "cancel", "kill"), "abort"),
    **dict.fromkeys(("seek", "rewind"), "reset"),
}


def print_version() -> None:
    """Print the version of this package, and end."""
    sys.stdout.write(f"txnlog {sparktxn.__version__}\n")
    raise typer.Exit(0)


class GuessingGroup(TyperGroup):
    """A group of verbs, which also takes ``help``, and names the verb that an unknown word may mean."""

    def resolve_command(self, context: Any, arguments: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the verb that the arguments begin with, and the arguments after it.

        Raises:
            WrongUsage: there is no such verb.
        """
        word, *rest = arguments
        if self.get_command(context, word) is not None or word.startswith("-"):
            return super().resolve_command(context, arguments)
        is_root = context.parent is None
        if word == "help":
            if rest and not rest[0].startswith("-"):
                return self.resolve_command(context, [*rest, "--help"])
            sys.stdout.write(f"{context.get_help()}\n")
            raise typer.Exit(0)
        if word == "version" and is_root:
            print_version()
        table, own = (OF_COMMAND, ("version", "help")) if is_root else (OF_GROUP, ())
        meant = _meant(word.lower(), [*self.list_commands(context), *own], table)
        asked = "" if meant is None else f" Did you mean '{context.command_path} {meant}'?"
        raise WrongUsage(f"there is no verb {word!r}.{asked} {context.command_path} --help lists all verbs")


def _meant(word: str, verbs: Iterable[str], table: Mapping[str, str]) -> str | None:
    """Return the verb that a word may mean: by its case, as others call it, or by its letters."""
    known = list(verbs)
    if word in known:
        return word
    if table.get(word, "").partition(" ")[0] in known:
        return table[word]
    return next(iter(get_close_matches(word, known, 1)), None)


EXAMPLES: Final[dict[str, list[str]]] = {}
"""The examples of each verb's help, by the function's name with its module."""

_SHARED: Final = "Options of all verbs"


class Order(StrEnum):
    """What decides where a read of committed records ends."""

    COMMIT = "commit"
    OFFSET = "offset"


OrderOption = Annotated[
    Order,
    typer.Option(
        "--order",
        help="commit: all that is committed in the view. offset: up to the last stable offsets, as consumers read.",
    ),
]


def option(*flags: str, help: str, panel: str | None = None, **more: Any) -> Any:
    """Return an option of which the help shows no default; `panel` is the heading that it stands below."""
    return typer.Option(*flags, help=help, rich_help_panel=panel, show_default=False, **more)


def argument(*, metavar: str, help: str, **more: Any) -> Any:
    """Return an argument of which the help shows no default."""
    return typer.Argument(metavar=metavar, help=help, show_default=False, **more)


_Store = Annotated[
    str | None,
    option(
        "--store",
        "-b",
        metavar="ADDRESS",
        help="The store: a folder, s3://bucket/prefix, … Else TXNLOG_STORE, else a profile.",
        panel=_SHARED,
    ),
]
_Option = Annotated[
    list[str] | None,
    option(
        "--option",
        "-X",
        metavar="NAME=VALUE",
        help="A setting, such as storage.endpoint_url=http://localhost:8333. Secrets belong into a file.",
        autocompletion=completion.store_settings,
        panel=_SHARED,
    ),
]
_Config = Annotated[
    list[Path] | None,
    option("--config", "-F", metavar="FILE", help="A file of settings, name=value in each line.", panel=_SHARED),
]
_Profile = Annotated[
    str | None,
    option(
        "--profile",
        metavar="NAME",
        help="A table of ~/.config/txnlog/profiles.toml. Otherwise TXNLOG_PROFILE, else default.",
        autocompletion=completion.profile_names,
        panel=_SHARED,
    ),
]
_Timeout = Annotated[
    str | None,
    option(
        "--timeout",
        metavar="DURATION",
        help=f"How long the store may take, such as 500ms or 2m. Default: {TIMEOUT_S:g}s; jobs have no limit.",
        panel=_SHARED,
    ),
]
_Json = Annotated[
    bool, typer.Option("--json", "-J", help="Print each row as a JSON object on a line.", rich_help_panel=_SHARED)
]
_Debug = Annotated[bool, option("--debug", help="Print the trace of an error.", panel=_SHARED)]
Apply = Annotated[
    bool, typer.Option("--apply/--dry-run", help="Do it; else only print what would be done.", show_default="--dry-run")
]


def set_option(what: str, *tables: Sequence[Setting]) -> Any:
    """Return the option ``--set``, for settings of `what`: a job or a topic. The tables are what a shell completes."""
    return option(
        "--set", metavar="NAME=VALUE", help=f"A setting of {what}.", autocompletion=completion.settings(*tables)
    )


def unset_option(*tables: Sequence[Setting]) -> Any:
    """Return the option ``--unset``, for settings of some tables."""
    return option(
        "--unset",
        metavar="NAME",
        help="A setting to give its default again.",
        autocompletion=completion.setting_names(*tables),
    )


def _shared(
    store: _Store = None,
    option: _Option = None,
    config: _Config = None,
    profile: _Profile = None,
    timeout: _Timeout = None,
    json: _Json = False,
    debug: _Debug = False,
) -> Given:
    return Given(
        store=store,
        option=tuple(option or ()),
        config=tuple(config or ()),
        profile=profile,
        timeout_s=None if timeout is None else quantity("--timeout", timeout, MILLISECONDS, 1) / 1000,
        json=json,
    )


_SHARED_PARAMETERS: Final = tuple(
    parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    for parameter in inspect.signature(_shared, eval_str=True).parameters.values()
)


def _version(asked: bool) -> None:
    if asked:
        print_version()


_VERSION: Final = inspect.Parameter(
    "version",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, option("--version", "-V", help="Print the version of this package.", is_eager=True, callback=_version)
    ],
)


def root_options(context: typer.Context, version: bool = False, **given: Any) -> None:
    """Keep the shared options that stand before the verb's name, and what runs the tasks of jobs."""
    context.obj = replace(_shared(**given), run=context.obj)


_CONTEXT: Final = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
_OF_ROOT: Final = [_CONTEXT, _VERSION, *_SHARED_PARAMETERS]
root_options.__signature__ = inspect.Signature(_OF_ROOT)  # type: ignore[attr-defined]
root_options.__annotations__ = {one.name: one.annotation for one in _OF_ROOT}


def verb(
    app: typer.Typer, name: str, *, examples: Sequence[str]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return what adds a function to `app` under `name`.

    The function's docstring is the help, and `examples` are shown below it.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

        def command(context: typer.Context, **given: Any) -> None:
            given = {name: _with_home(name, value) for name, value in given.items()}
            after = _shared(**{one.name: given.pop(one.name) for one in _SHARED_PARAMETERS})
            before = context.find_root().obj or Given()
            with Session(before.joined(after)) as session:
                function(session, **given)
                sys.stdout.flush()

        keyword = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
        command.__signature__ = inspect.Signature([_CONTEXT, *keyword, *_SHARED_PARAMETERS])  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in [_CONTEXT, *keyword, *_SHARED_PARAMETERS]}
        command.__name__, command.__module__ = function.__name__, function.__module__
        EXAMPLES[f"{function.__module__}.{function.__name__}"] = list(examples)
        shown = "\n\n".join(["[bold]Examples[/]", *(f"  {escape(example)}" for example in examples)])
        app.command(name, help=_help(function), epilog=shown, no_args_is_help=False)(command)
        return function

    return add


def _with_home(name: str, value: Any) -> Any:
    """Return the value of an option; paths with ``~`` as a shell would have given them: it leaves ``--file=~/x``."""
    if isinstance(value, list):
        return [_with_home(name, one) for one in value]
    return Path(arguments.path(f"--{name.replace('_', '-')}", value)) if isinstance(value, Path) else value


def _help(function: Callable[..., None]) -> str:
    """Return the docstring with each paragraph on one line, as a terminal of any width needs it."""
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    return "\n\n".join(escape(" ".join(paragraph.split())) for paragraph in paragraphs)
