"""The clients as programs for confluent-kafka make them: a broker's address is a store, by a list of addresses."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from sparktxn import admin, consumer, producer
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore.uri import broker_addresses
from sparktxn._foundation.values import arguments
from sparktxn.errors import ConfigurationError

# Which store a program means by the address of a broker.

STORES_VARIABLE: Final = "SPARKTXN_STORES"
"""The environment variable that names stores: ``localhost:9092=/data/log,…``, or one store for all addresses."""

ADDRESS_SETTINGS: Final = ("bootstrap.servers", "metadata.broker.list", "store.uri")

_EXPECTED: Final = "expected host:port=/data/log,… or one store's address for all brokers"


class Stores:
    """The stores of brokers' addresses: `given` by the caller, else by the environment variable.

    Raises:
        TypeError: `given` is neither text nor a dict of text.
        ConfigurationError: an address is not one of a broker, or has no store.
    """

    def __init__(self, given: str | Mapping[str, str] | None = None) -> None:
        self._for_all: str | None = None
        self._by_address: dict[str, str] = {}
        if isinstance(given, str):
            self._parse("stores", given)
        elif given is not None:
            for address, store in arguments.mapping("stores", given).items():
                self._add("stores", address, arguments.text(f"stores[{address!r}]", store))
        else:
            self._parse(STORES_VARIABLE, os.environ.get(STORES_VARIABLE, ""))

    def _parse(self, name: str, text: str) -> None:
        for item in filter(None, map(str.strip, text.split(","))):
            address, separator, store = item.partition("=")
            if separator and broker_addresses(address):
                self._add(name, address, store)
            elif broker_addresses(item) or self._for_all is not None:
                raise ConfigurationError(f"{name} has {item!r}: {_EXPECTED}")
            else:
                self._for_all = item

    def _add(self, name: str, address: str, store: str) -> None:
        if not broker_addresses(address) or not store.strip():
            raise ConfigurationError(f"{name} has {address}={store}: {_EXPECTED}")
        self._by_address[address] = store

    def of(self, address: str) -> str:
        """Return the store that `address` means: itself, if it is a store's address.

        Raises:
            ConfigurationError: it is a broker's, and no store, or more than one, is known for it.
        """
        brokers = broker_addresses(address)
        if not brokers:
            return address
        found = {self._by_address[broker] for broker in (address, *brokers) if broker in self._by_address}
        if not found and self._for_all is not None:
            return self._for_all
        if len(found) == 1:
            return found.pop()
        problem = "these brokers have different stores" if found else "no store is known for it"
        advice = f"set {STORES_VARIABLE}={brokers[0]}=/data/log, or run python -m sparktxn.compat --stores /data/log"
        raise ConfigurationError(f"bootstrap.servers is {address!r}, and {problem}: {advice}")

    def applied(self, config: object, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the configuration with a store's address in place of a broker's, and the other keyword arguments.

        `settings` are keyword arguments, whose names have ``_`` for ``.``.
        """
        given = arguments.mapping("config", config)
        dotted = {name.replace("_", "."): name for name in settings}
        for name in ADDRESS_SETTINGS:
            if name in dotted:
                given[name] = settings[dotted[name]]
            if isinstance(given.get(name), str):
                given[name] = self.of(given[name])
        others = {name: value for name, value in settings.items() if name.replace("_", ".") not in ADDRESS_SETTINGS}
        return given, others


class _Chosen:
    stores: ClassVar[Stores | None] = None


def use_stores(stores: Stores) -> None:
    """Make all clients from now on use `stores`."""
    _Chosen.stores = stores


def applied(config: object, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a client, positional and named, with the store of the broker's address that they name."""
    stores = _Chosen.stores or Stores()
    return stores.applied(config, settings)


class Producer(producer.Producer):
    """confluent-kafka's Producer on a store."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        given, others = applied(config, settings)
        super().__init__(given, **others)


class Consumer(consumer.Consumer):
    """confluent-kafka's Consumer on a store."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        given, others = applied(config, settings)
        super().__init__(given, **others)


class SerializingProducer(producer.SerializingProducer):
    """confluent-kafka's SerializingProducer on a store, where the package is not installed."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        given, others = applied(config, settings)
        super().__init__(given, **others)


class DeserializingConsumer(consumer.DeserializingConsumer):
    """confluent-kafka's DeserializingConsumer on a store, where the package is not installed."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        given, others = applied(config, settings)
        super().__init__(given, **others)


class AdminClient(admin.AdminClient):
    """confluent-kafka's AdminClient on a store, which it makes if it is missing, as brokers exist before topics."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        given, others = applied(config, settings)
        super().__init__(given, **others)

    def _log(self, *, create: bool = False) -> Log:
        return super()._log(create=True)
