"""Settings of an admin client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sparktxn.config.settings import settings_of, values_by_field
from sparktxn.config.store import StoreOptions
from sparktxn.kafka.settings.client import address_setting, sort_settings

__all__ = ["ADMIN_SETTINGS", "AdminSettings"]


@dataclass(frozen=True, kw_only=True)
class AdminSettings:
    """The settings of an admin client. `store_options` are for Store.open."""

    uri: str = address_setting()
    store_options: dict[str, Any] = field(default_factory=StoreOptions)

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> AdminSettings:
        """Return the settings of `given`, whose names are dotted.

        Names of librdkafka's that have no meaning here are accepted and change nothing.

        Raises:
            ConfigurationError: a name is unknown, a value is wrong, or the store's address is missing.
        """
        values, _, store_options = sort_settings(ADMIN_SETTINGS, given, "admin client")
        return cls(**values_by_field(cls, values), store_options=store_options)


ADMIN_SETTINGS: Final = settings_of(AdminSettings)
