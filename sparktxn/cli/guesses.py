"""Verbs as users guess them: what the command does for `help` and `version`, and which verb it names for a word."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

import typer
from typer.core import TyperGroup

import sparktxn
from sparktxn.cli.failures import WrongUsage

__all__ = ["OF_COMMAND", "OF_GROUP", "GuessingGroup", "print_version"]

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
