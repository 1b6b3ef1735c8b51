"""`txnlog copy`: copy a store to another root, or bring an earlier copy forward."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from sparktxn._foundation.config.store import StoreOptions
from sparktxn._foundation.values.quantities import counted
from sparktxn._programs.cli.address import find_address, is_same_kind
from sparktxn._programs.cli.failures import WrongUsage
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verb import Apply, argument, option, verb
from sparktxn.maintenance import copy_store

app = typer.Typer()

_ADDRESSES_MAX = 2


@verb(
    app,
    "copy",
    examples=[
        "txnlog copy backup",
        "txnlog copy backup --apply",
        "txnlog copy store backup --apply --threads 2 --json",
    ],
)
def copy(
    session: Session,
    addresses: Annotated[
        list[str], argument(metavar="[SOURCE] TARGET", help="Where to copy to, after the store if not --store.")
    ],
    target_option: Annotated[
        list[str] | None, option("--target-option", metavar="NAME=VALUE", help="A setting of the target.")
    ] = None,
    target_config: Annotated[
        list[Path] | None, option("--target-config", metavar="FILE", help="Settings of the target.")
    ] = None,
    target_profile: Annotated[
        str | None, option("--target-profile", metavar="NAME", help="The target's profile.")
    ] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="How many objects are copied at once.")] = 8,
    apply: Apply = False,
) -> None:
    """Copy a store with its offsets, transactions, groups and settings, or bring an earlier copy forward.

    Without --apply it prints how much would be copied. It may run alongside everything else. If it is killed, run it
    again: what was copied stays. The target opens as a store once the copy is complete.

    A target of the same kind as the source (s3 and s3) gets the settings of the source, where it has none of its own.
    """
    if len(addresses) > _ADDRESSES_MAX:
        given = counted(len(addresses), "address")
        raise WrongUsage(f"{given} given: expected the target, or the source and the target")
    target = addresses[-1]
    if len(addresses) == _ADDRESSES_MAX:
        session.given = session.given.joined(type(session.given)(store=addresses[0]))
    store = session.store()
    own = find_address(target, target_option or (), target_config or (), target_profile).settings
    same_kind = is_same_kind(store.uri, target)
    options = StoreOptions({**(session.store_settings() if same_kind else {}), **own})
    copied = partial(
        copy_store,
        store,
        target,
        target_options=options,
        threads=threads,
        run=session.run,
        timeout_s=session.job_timeout_s,
    )
    report = session.measured("copy: replaying the log", store, copied, apply=apply)
    session.out.row(msgspec.to_builtins(report))
    if not apply:
        session.out.remark("nothing was copied: add --apply to copy these objects")
