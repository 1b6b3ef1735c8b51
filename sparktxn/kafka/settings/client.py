"""Sorting a client's dictionary of settings: its own, the store's, and librdkafka's that mean nothing here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple, Self

from sparktxn.config.settings import Setting, setting, settings_of, values_by_field
from sparktxn.config.store import STORE_SETTINGS, StoreOptions, is_store_setting
from sparktxn.config.values import MILLISECONDS, function, integer, path, text
from sparktxn.errors import ConfigurationError, nearest_name
from sparktxn.kafka.settings.ignored import IGNORED_SETTINGS, report_ignored
from sparktxn.objectstore.uri import parse_uri

__all__ = [
    "ClientSettings",
    "PolledSettings",
    "SortedSettings",
    "none_if_empty",
    "settings_of_keywords",
    "sort_settings",
]

_ADDRESS: Final = "bootstrap.servers"
_EXPECTED_ADDRESS: Final = "the store's address, such as /data/log or s3://bucket/prefix"


def none_if_empty(value: str) -> str | None:
    """Return None for a setting that is empty text."""
    return value or None


def settings_of_keywords(keywords: Mapping[str, Any], callbacks: Collection[str] = ()) -> dict[str, Any]:
    """Return keyword arguments as settings: ``_`` means ``.``, but in the names of callbacks."""
    return {name if name in callbacks else name.replace("_", "."): value for name, value in keywords.items()}


class SortedSettings(NamedTuple):
    """A client's settings by dotted name, with defaults; the names that were given; the settings of the store."""

    values: dict[str, Any]
    given: set[str]
    store_options: StoreOptions


def sort_settings(
    settings: Sequence[Setting], given: Mapping[str, Any], client: str, required: Mapping[str, str] | None = None
) -> SortedSettings:
    """Parse the settings in `given`, whose names are dotted.

    Names of librdkafka's that have no meaning here are accepted and change nothing. `required` are names that must have
    a value, in addition to the address, with what is expected.

    Raises:
        ConfigurationError: a name is unknown, a value is wrong, or a required one is missing.
    """
    by_name = {name: known for known in settings for name in (known.name, *known.aliases)}
    values: dict[str, Any] = {known.name: known.default for known in settings}
    named: set[str] = set()
    store_options = StoreOptions()
    ignored: list[str] = []
    for name, value in given.items():
        if (known := by_name.get(name)) is not None:
            if value is None:
                continue  # as in librdkafka: not given
            values[known.name] = known.parsed(value, name)
            named.add(known.name)
        elif is_store_setting(name):
            store_options[name] = value
        elif name in IGNORED_SETTINGS:
            ignored.append(name)
        else:
            nearest = nearest_name(name, [*by_name, *(row.name for row in STORE_SETTINGS)])
            raise ConfigurationError(f'No such configuration property: "{name}"{nearest}')
    report_ignored(ignored, client)
    if values[_ADDRESS]:
        # Refused by name when the client is made, not when it opens the store.
        parse_uri(values[_ADDRESS])
    for name, expected in {**(required or {}), _ADDRESS: _EXPECTED_ADDRESS}.items():
        if not values[name]:
            raise ConfigurationError(f'Failed to create {client}: "{name}" must be configured: {expected}')
    return SortedSettings(values, named, store_options)


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """The settings that all clients share. `store_options` are for Store.open.

    `client` names the client in errors, and `required` are settings that must have a value, with what is expected.
    """

    client: ClassVar[str]
    required: ClassVar[Mapping[str, str]] = {}

    uri: str = setting(
        _ADDRESS,
        "",
        path,
        "The store's address: a path, file://, s3://bucket/prefix or memory://name (alias store.uri).",
        aliases=("store.uri", "metadata.broker.list"),
    )
    store_options: dict[str, Any] = field(default_factory=StoreOptions)

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Return the settings of `given`, whose names are dotted.

        Names of librdkafka's that have no meaning here are accepted and change nothing.

        Raises:
            ConfigurationError: a name is unknown, a value is wrong or contradicts another, or one that is required is
                missing, such as the store's address.
        """
        values, explicit, store_options = sort_settings(settings_of(cls), given, cls.client, cls.required)
        cls.check(values, explicit)
        return cls(**values_by_field(cls, values), store_options=store_options)

    @classmethod
    def check(cls, values: Mapping[str, Any], explicit: Set[str]) -> None:
        """Refuse `values` that contradict each other; `explicit` are those that were given.

        Raises:
            ConfigurationError: they do.
        """


def _seconds(milliseconds: int) -> float:
    return milliseconds / 1000


@dataclass(frozen=True, kw_only=True)
class PolledSettings(ClientSettings):
    """The settings that clients with `poll()` share, where its callbacks are called."""

    client_id: str = setting(
        "client.id", "", text, "The client's name in its log lines; of a consumer also in describe_consumer_groups."
    )
    statistics_interval_s: float = setting(
        "statistics.interval.ms",
        0,
        integer(0, 86_400_000, MILLISECONDS),
        "How often stats_cb is called; 0 is never.",
        convert=_seconds,
    )
    stats_cb: Callable[[str], Any] | None = setting(
        "stats_cb",
        None,
        function,
        "Called inside poll() with librdkafka's JSON of statistics, every statistics.interval.ms.",
    )
    error_cb: Callable[[Any], None] | None = setting(
        "error_cb",
        None,
        function,
        "Called with a KafkaError inside poll(), and flush(): the store does not answer a consumer, or a producer can only be closed.",
    )
