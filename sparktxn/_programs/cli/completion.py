"""What a shell completes: names in the store, profiles, and settings.

A shell waits for each answer, so a name in the store has two seconds, and errors give no name. It inserts a name as it
is, so only names that no shell takes for more than a word are returned.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import typer

from sparktxn._foundation.config.settings import Setting
from sparktxn._foundation.config.store import STORE_SETTINGS
from sparktxn._foundation.process.clock import Deadline, SystemClock
from sparktxn._programs.cli.address import profiles
from sparktxn._programs.cli.failures import WrongUsage
from sparktxn._programs.cli.session import Given, Session

Names = list[str | tuple[str, str]]
"""Words, or words with their help."""

_LIMIT_S: Final = 2.0


def topics(ctx: typer.Context) -> Names:
    """Return the names of the store's topics."""
    return _named(ctx, lambda session: session.store().view(None).topics)


def groups(ctx: typer.Context) -> Names:
    """Return the ids of the store's consumer groups."""
    return _named(ctx, lambda session: [one.group_id for one in session.admin().list_consumer_groups().result().valid])


def transactional_ids(ctx: typer.Context) -> Names:
    """Return the transactional ids of the store."""
    return _named(ctx, lambda session: [one.transactional_id for one in session.admin().list_transactions().result()])


def profile_names() -> Names:
    """Return the names of the user's profiles."""
    try:
        return _words(profiles(os.environ))
    except WrongUsage:
        return []


def store_settings() -> Names:
    """Return the settings of a store's handle, for ``--option``."""
    return _pairs(STORE_SETTINGS)


def settings(*tables: Sequence[Setting]) -> Callable[[], Names]:
    """Return what completes ``--set``, for the settings of some tables."""
    return lambda: _pairs(one for table in tables for one in table)


def setting_names(*tables: Sequence[Setting]) -> Callable[[], Names]:
    """Return what completes ``--unset``."""
    return lambda: [(one.name, one.meaning) for table in tables for one in table]


def _pairs(rows: Iterable[Setting]) -> Names:
    return [(f"{one.name}=", one.meaning) for one in rows]


def _words(names: Iterable[str]) -> Names:
    return [name for name in sorted(names) if name and shlex.quote(name) == name]


def _named(context: typer.Context, ask: Callable[[Session], Iterable[str]]) -> Names:
    """Return what `ask` finds in the store that the command line names so far; nothing after an error."""
    given = Given()
    for one in (context.find_root().params, context.params):
        given = given.joined(
            Given(
                store=one.get("store"),
                option=tuple(one.get("option") or ()),
                config=tuple(map(Path, one.get("config") or ())),
                profile=one.get("profile"),
            )
        )
    try:
        with Deadline(SystemClock(), _LIMIT_S).governs(), Session(given) as session:
            return _words(ask(session))
    except Exception:  # noqa: BLE001 - a shell would show it in the middle of the line that the user types
        return []
