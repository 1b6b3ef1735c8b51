"""Taking the place of confluent-kafka in a process: a finder that is asked before all others."""

from __future__ import annotations

import contextvars
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

import sparktxn
from sparktxn import admin
from sparktxn.compat import clients
from sparktxn.compat.clients import Stores, use_stores

# The modules of confluent-kafka that this library takes the place of, made from its own names.

_MODEL: Final = (
    "AcknowledgeType ConsumerGroupState ConsumerGroupTopicPartitions ConsumerGroupType ElectionType "
    "IsolationLevel Messages Node TopicCollection TopicPartitionInfo"
)
_COMPILED: Final = (
    "OFFSET_BEGINNING OFFSET_END OFFSET_INVALID OFFSET_STORED TIMESTAMP_CREATE_TIME TIMESTAMP_LOG_APPEND_TIME "
    "TIMESTAMP_NOT_AVAILABLE ConcurrentModificationException IllegalStateException KafkaError KafkaException "
    "Message ShareConsumer TopicPartition Uuid consistent fnv1a libversion murmur2 version"
)
_ERRORS: Final = (
    "ConsumeError KafkaError KafkaException KeyDeserializationError KeySerializationError Message ProduceError "
    "SerializationError ValueDeserializationError ValueSerializationError"
)
_ENUMERATIONS: Final[dict[str, type[Enum]]] = {
    "ACL_OPERATION": admin.AclOperation,
    "ACL_PERMISSION_TYPE": admin.AclPermissionType,
    "ALTER_CONFIG_OP_TYPE": admin.AlterConfigOpType,
    "CONFIG_SOURCE": admin.ConfigSource,
    "CONSUMER_GROUP_STATE": admin.ConsumerGroupState,
    "CONSUMER_GROUP_TYPE": admin.ConsumerGroupType,
    "ELECTION_TYPE": admin.ElectionType,
    "ISOLATION_LEVEL": admin.IsolationLevel,
    "RESOURCE": admin.ResourceType,
    "RESOURCE_PATTERN": admin.ResourcePatternType,
    "SCRAM_MECHANISM": admin.ScramMechanism,
    "SHARE_ACKNOWLEDGE_TYPE": sparktxn.AcknowledgeType,
}
_OFFSET_SPECS: Final = {"OFFSET_SPEC_EARLIEST": -2, "OFFSET_SPEC_LATEST": -1, "OFFSET_SPEC_MAX_TIMESTAMP": -3}


def _constants() -> dict[str, int]:
    """Return the numbers of enumerations, under the names that librdkafka has for them."""
    found = dict(_OFFSET_SPECS)
    for prefix, kind in _ENUMERATIONS.items():
        for member in kind.__members__:
            name = f"{prefix}_{member}".replace("_REBALANCING", "_REBALANCE").replace("SCRAM_SHA", "SHA")
            found[name] = kind[member].value
    return found


def _own(names: str) -> dict[str, Any]:
    return {name: getattr(sparktxn, name) for name in names.split()}


def _compiled() -> dict[str, Any]:
    return {
        **_own(_COMPILED),
        **_constants(),
        "Consumer": clients.Consumer,
        "Producer": clients.Producer,
        "NewPartitions": admin.NewPartitions,
        "NewTopic": admin.NewTopic,
        "_AdminClientImpl": clients.AdminClient,
        # confluent_kafka.aio names by it the call that a callback belongs to.
        "_reentry_identity_var": contextvars.ContextVar("reentry_identity", default=0),
    }


def _model() -> dict[str, Any]:
    return _own(_MODEL)


def _admin() -> dict[str, Any]:
    names = {name: getattr(admin, name) for name in admin.__all__}
    return {**names, "AdminClient": clients.AdminClient, "_AdminClientImpl": clients.AdminClient}


def _error() -> dict[str, Any]:
    return _own(_ERRORS)


def _package() -> dict[str, Any]:
    return {
        **_model(),
        **_compiled(),
        "ThrottleEvent": sparktxn.ThrottleEvent,
        "SerializingProducer": clients.SerializingProducer,
        "DeserializingConsumer": clients.DeserializingConsumer,
        "DeserializingShareConsumer": sparktxn.DeserializingShareConsumer,
        "__version__": sparktxn.version(),
    }


def _aio() -> dict[str, Any]:
    # Programs without asyncio do not pay for it.
    from sparktxn.compat import aioclients

    return {name: getattr(aioclients, name) for name in aioclients.__all__}


REPLACED: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "confluent_kafka.cimpl": _compiled,
    "confluent_kafka._model": _model,
    "confluent_kafka.admin": _admin,
}
"""The modules that are replaced always: what they hold."""

WITHOUT_PACKAGE: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "confluent_kafka": _package,
    "confluent_kafka.aio": _aio,
    "confluent_kafka.error": _error,
    # Where version 2.12 has them.
    "confluent_kafka.experimental": dict,
    "confluent_kafka.experimental.aio": _aio,
}
"""Those that are replaced where confluent-kafka is not installed."""


_PACKAGE: Final = "confluent_kafka"
_ADVICE: Final = "it is a part of the package itself: pip install confluent-kafka"


class _Names(Loader):
    """Makes a module from this library's names."""

    def __init__(self, names: Callable[[], dict[str, Any]]) -> None:
        self._names = names

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(self._names())


class _Finder(MetaPathFinder):
    """Finds the modules that this library replaces; leaves the others to the package, if it is installed."""

    def __init__(self, *, is_installed: bool) -> None:
        self._is_installed = is_installed
        self._replaced = REPLACED if is_installed else REPLACED | WITHOUT_PACKAGE

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in self._replaced:
            is_package = any(name.startswith(fullname + ".") for name in self._replaced)
            return ModuleSpec(fullname, _Names(self._replaced[fullname]), is_package=is_package)
        if not self._is_installed and fullname.startswith(_PACKAGE + "."):
            raise ModuleNotFoundError(f"No module named {fullname!r}: {_ADVICE}", name=fullname)
        return None


def install(stores: str | Mapping[str, str] | None = None) -> None:
    """Make ``import confluent_kafka`` give this library's clients, in this process from now on.

    Args:
        stores: the store of each broker's address, as a dict or as text: ``localhost:9092=/data/log,…``. One store's
            address alone is that of all brokers. None: the environment variable ``SPARKTXN_STORES``. Programs that have
            a store's address in ``bootstrap.servers`` need none of it.

    A second call changes the stores of clients that are made after it.

    Raises:
        RuntimeError: confluent_kafka has been imported already: call this before.
        TypeError, ConfigurationError: `stores` is wrong.
    """
    chosen = Stores(stores)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        if _PACKAGE in sys.modules:
            raise RuntimeError(
                f"{_PACKAGE} is imported already: call sparktxn.compat.install() before its first import"
            )
        importlib.invalidate_caches()
        is_installed = PathFinder.find_spec(_PACKAGE) is not None
        sys.meta_path.insert(0, _Finder(is_installed=is_installed))
    use_stores(chosen)
