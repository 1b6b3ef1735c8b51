"""Other engines as processes that answer requests, each in an environment with its packages."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pyarrow as pa

from tests.interop.peers import ROOT
from tests.livedhistory import LivedHistory, Version, lived, place_of, wrong_versions

__all__ = ["Engine", "EngineError", "not_refused"]

_ANSWER_S: Final = 180.0


class EngineError(Exception):
    """What an engine raised."""


class Engine:
    """A program of `programs`, whose answers and what it prints lie in `folder`."""

    def __init__(self, python: Path, program: str, folder: Path, *arguments: str) -> None:
        self._log, self._answer = folder / "log", folder / "answer"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, "-m", f"tests.interop.programs.{program}", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python)},
            )

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def ask(self, what: str, **request: Any) -> Any:
        """What it answers: rows in the order of their places, or what JSON has.

        Raises:
            EngineError: the engine raised an error.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        clock = threading.Timer(_ANSWER_S, self._process.kill)
        clock.start()
        try:
            self._process.stdin.write(json.dumps({"what": what, "answer": str(self._answer), **request}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            clock.cancel()
        assert line, self._log.read_text()[-4000:]
        if "error" in (said := json.loads(line)):
            raise EngineError(said["error"])
        return _read(self._answer)

    def ask_all(self, requests: Sequence[dict[str, Any]]) -> list[Any]:
        return [self.ask(**request) for request in requests]


def _read(path: Path) -> Any:
    data = path.read_bytes()
    if not data.startswith(b"ARROW1"):
        return json.loads(data)
    return sorted(pa.ipc.open_file(data).read_all().to_pylist(), key=place_of)


def not_refused(engine: Engine, requests: dict[str, dict[str, Any]], *reasons: str) -> dict[str, str]:
    """The requests, by their names, that are not refused for one of the reasons, with what came of them."""
    found = {name: _outcome(engine, request) for name, request in requests.items()}
    return {name: said for name, said in found.items() if not any(reason in said for reason in reasons)}


def _outcome(engine: Engine, request: dict[str, Any]) -> str:
    try:
        return f"done: {engine.ask(**request)}"
    except EngineError as error:
        return str(error)[:1000]


def version_reader(engine: Engine, history: LivedHistory, format_name: str) -> Callable[[Version], Any]:
    """What reads a version of a history's table by an engine, in a format."""

    def read(version: Version) -> Any:
        return engine.ask(format_name, location=history.location(version.topic), version=version.number)

    return read


def check_every_version(engine: Engine, folder: Path, format_name: str) -> None:
    """Check that an engine reads all versions of a store that has lived, also after a vacuum, and the newest ones."""
    with lived(folder / "store", 1) as history:
        read = version_reader(engine, history, format_name)
        assert wrong_versions(history.versions, read) == []
        history.forget()
        assert wrong_versions(history.versions, read) == []
        for topic in history.topics:
            newest = engine.ask(format_name, location=history.location(topic), version=None)
            assert newest == history.newest(topic).rows
