"""`txnlog sweep`: end transactions and memberships that have timed out, and forget what is idle."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from sparktxn.cli.address import settings_of
from sparktxn.cli.session import Session
from sparktxn.cli.verb import Apply, set_option, verb
from sparktxn.maintenance import sweep as run_sweep

__all__ = ["app"]

app = typer.Typer()


@verb(
    app,
    "sweep",
    examples=[
        "txnlog sweep",
        "txnlog sweep --apply",
        "txnlog sweep --set transactional.id.expiration.ms=86400000 --json",
    ],
)
def sweep(
    session: Session,
    settings: Annotated[list[str] | None, set_option("the sweep")] = None,
    apply: Apply = False,
) -> None:
    """End transactions and memberships of groups that have timed out; forget what is idle.

    Idle are transactional ids, producers, offsets of groups without members, and those for deleted topics.

    Without --apply it prints what would be done. It may run alongside all other processes, and other sweeps.
    """
    given = settings_of(settings)
    store = session.store()
    with session.out.progress("sweep: reading the state …"):
        report = run_sweep(store, given, dry_run=not apply, timeout_s=session.job_timeout_s)
    session.out.row(msgspec.to_builtins(report))
    if not apply:
        session.out.remark("nothing was changed: add --apply to do it")
