"""Changes of settings, as `--set` and `--unset` give them."""

from __future__ import annotations

from collections.abc import Sequence

from sparktxn.cli.address import settings_of
from sparktxn.kafka.admin import AlterConfigOpType, ConfigEntry

__all__ = ["changes_of"]


def changes_of(given: Sequence[str] | None, unset: Sequence[str] | None) -> list[ConfigEntry]:
    """Return the changes of settings that were given with ``--set`` and ``--unset``.

    Raises:
        WrongUsage: as `settings_of`.
    """
    set_, delete = AlterConfigOpType.SET, AlterConfigOpType.DELETE
    changes = [ConfigEntry(name, to, incremental_operation=set_) for name, to in settings_of(given).items()]
    return changes + [ConfigEntry(name, None, incremental_operation=delete) for name in unset or ()]
