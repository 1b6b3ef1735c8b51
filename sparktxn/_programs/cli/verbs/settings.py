"""`txnlog settings`: the settings of the store, of which some are defaults of its topics."""

from __future__ import annotations

from typing import Annotated

import typer

from sparktxn._foundation.config.topic import STORE_WIDE_SETTINGS
from sparktxn._programs.cli.address import settings_of
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verb import set_option, unset_option, verb
from sparktxn.admin import ConfigResource
from sparktxn.admin.configs import setting_changes

app = typer.Typer()


@verb(
    app,
    "settings",
    examples=["txnlog settings", "txnlog settings --set reject.transaction.message=true"],
)
def settings(
    session: Session,
    changes: Annotated[list[str] | None, set_option("the store", STORE_WIDE_SETTINGS)] = None,
    unset: Annotated[list[str] | None, unset_option(STORE_WIDE_SETTINGS)] = None,
) -> None:
    """List or alter the settings of the store. Those of topics are defaults of topics that do not set them."""
    admin, timeout_s = session.admin(), session.timeout_s
    entries = setting_changes(settings_of(changes), unset or ())
    store = ConfigResource(ConfigResource.Type.BROKER, "0", incremental_configs=entries)
    if entries:
        admin.incremental_alter_configs([store], request_timeout=timeout_s)[store].result()
    found = admin.describe_configs([store], request_timeout=timeout_s)[store].result()
    rows = [{"setting": one.name, "value": one.value, "is_default": one.is_default} for one in found.values()]
    session.out.rows(rows, none="")
