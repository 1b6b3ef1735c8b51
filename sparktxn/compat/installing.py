"""Taking the place of confluent-kafka in a process: a finder that is asked before all others."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

from sparktxn.compat.addresses import Stores
from sparktxn.compat.clients import use_stores
from sparktxn.compat.modules import REPLACED, WITHOUT_PACKAGE

__all__ = ["install"]

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
