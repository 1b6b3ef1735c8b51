"""The points at which processes of a run are killed: methods of the product, wrapped from outside as it is imported."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tests.kills.blows import Blow, Blows

__all__ = ["Injected", "arm"]

_STOPPED_AT_MOST_S: Final = 180


class Injected(Exception):
    """The error of a blow."""


def arm() -> None:
    """Wrap the product's modules in this process when they are imported."""
    points = _Points(Blows(Path(os.environ["KILLS_FOLDER"])))
    wrappers: dict[str, list[Callable[[ModuleType], None]]] = {
        "sparktxn._engine.objectstore.local": [functools.partial(points.wrap_store, "LocalStore")],
        "sparktxn._engine.objectstore.remote": [functools.partial(points.wrap_store, "RemoteStore")],
        "pyspark_txnlog.writing.stream_writer": [points.wrap_commit],
        "pyspark_txnlog.writing.foreach": [points.wrap_commit],
    }
    broken = os.environ.get("KILLS_BROKEN")
    if broken:
        from tests.kills.broken import BUILDS

        for module, wrapper in BUILDS[broken].items():
            wrappers.setdefault(module, []).insert(0, wrapper)
    sys.meta_path.insert(0, _Finder(wrappers))


class _Points:
    def __init__(self, blows: Blows) -> None:
        self._blows = blows

    def wrap_store(self, name: str, module: ModuleType) -> None:
        """Make uploads of segments and puts of a micro-batch's entry points."""
        store = getattr(module, name)
        put = store.put_if_absent

        @functools.wraps(put)
        def put_if_absent(store: Any, name: str, data: bytes, **named: Any) -> Any:
            point = _point_of(name, data)
            if point is None:
                return put(store, name, data, **named)
            self._reach(f"{point}-before")
            outcome = put(store, name, data, **named)
            self._reach(f"{point}-after")
            return outcome

        store.put_if_absent = put_if_absent

    def wrap_commit(self, module: ModuleType) -> None:
        """Make the start and the end of a micro-batch's commit points."""
        commit = module.commit_batch

        @functools.wraps(commit)
        def commit_batch(*arguments: Any, **named: Any) -> Any:
            self._reach("commit-start")
            result = commit(*arguments, **named)
            self._reach("commit-end")
            return result

        module.commit_batch = commit_batch  # type: ignore[attr-defined]

    def _reach(self, point: str) -> None:
        found = self._blows.next_at(point)
        if found is not None and self._blows.take(found[0]):
            self._deal(*found)

    def _deal(self, number: int, blow: Blow) -> None:
        if blow.action == "raise":
            raise Injected(f"at {blow.point}, blow {number}")
        if blow.action == "stop":
            deadline_s = time.monotonic() + _STOPPED_AT_MOST_S
            while not self._blows.resumed(number).exists() and time.monotonic() < deadline_s:
                time.sleep(0.02)
            return
        if blow.action == "executor" and (executor := _executor(os.getpid())) is not None:
            os.kill(executor, signal.SIGKILL)
        if blow.action in ("driver", "orphan"):
            # The driver leads the session; its JVM is in its group, Python's workers are in one of their own.
            os.killpg(os.getsid(0), signal.SIGKILL)
        if blow.action != "orphan":
            os.kill(os.getpid(), signal.SIGKILL)


def _point_of(name: str, data: bytes) -> str | None:
    if name.startswith("topics/"):
        return "upload"
    return "entry" if name.startswith("_log/0") and b'"sink_batch_commit"' in data else None


def _executor(pid: int) -> int | None:
    """Return the nearest JVM above a process: its executor, or the driver's JVM where that runs the tasks.

    There is none above the driver, which has started its JVM, and stages rows of `foreach_batch` itself.
    """
    while pid > 1:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        if name == "java":
            return pid
        pid = int(rest.split()[1])
    return None


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules to wrap as Python would, and wraps each after it has run."""

    def __init__(self, wrappers: dict[str, list[Callable[[ModuleType], None]]]) -> None:
        self._wrappers = wrappers

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        wrappers = self._wrappers.get(fullname)
        if wrappers is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                for wrap in wrappers:
                    wrap(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
