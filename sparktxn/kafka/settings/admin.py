"""Settings of an admin client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparktxn.config.settings import settings_of
from sparktxn.kafka.settings.client import ClientSettings

__all__ = ["ADMIN_SETTINGS", "AdminSettings"]


@dataclass(frozen=True, kw_only=True)
class AdminSettings(ClientSettings):
    """The settings of an admin client."""

    client = "admin client"


ADMIN_SETTINGS: Final = settings_of(AdminSettings)
