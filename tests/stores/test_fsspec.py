"""Stores that fsspec reaches by other means than S3: file systems with an atomic create, as gcsfs and adlfs."""

from __future__ import annotations

import asyncio
import itertools
import time
from datetime import UTC, datetime
from typing import Any

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem

from sparktxn.errors import ConfigurationError
from sparktxn.objectstore import PutOutcome
from sparktxn.testing.objectstore_tests import ENTRY, ObjectStoreTests, Opening

_buckets = itertools.count()
_objects: dict[str, tuple[bytes, float]] = {}


class CreatingFileSystem(AsyncFileSystem):
    """Objects in a dictionary, behind the asynchronous calls and exceptions of gcsfs and adlfs."""

    protocol = "gs"
    failure: BaseException | None = None

    def __init__(self, token: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        await asyncio.sleep(0)
        stored = (value, time.time())
        if mode != "create":
            _objects[path] = stored
        elif _objects.setdefault(path, stored) is not stored:
            raise FileExistsError(path)
        if self.failure:
            raise self.failure

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        if path not in _objects:
            raise FileNotFoundError(path)
        return _objects[path][0][start:end]

    async def _rm_file(self, path: str, **_: Any) -> None:
        if _objects.pop(path, None) is None:
            raise FileNotFoundError(path)

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        children: dict[str, dict[str, Any]] = {}
        for name, (data, at_s) in list(_objects.items()):
            if not name.startswith(path + "/"):
                continue
            child, below, _rest = name[len(path) + 1 :].partition("/")
            info = {"name": f"{path}/{child}", "size": len(data), "mtime": datetime.fromtimestamp(at_s, UTC)}
            children[child] = info | {"type": "directory" if below else "file"}
        if not children:
            raise FileNotFoundError(path)
        return list(children.values()) if detail else [info["name"] for info in children.values()]

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": 0, "type": "directory"}


class DictionaryTruth:
    def __init__(self, base: str) -> None:
        self._base = base

    def read(self, name: str) -> bytes | None:
        return _objects.get(self._base + name, (None, 0.0))[0]

    def write(self, name: str, data: bytes) -> None:
        _objects[self._base + name] = (data, time.time())


@pytest.fixture(autouse=True)
def file_system(monkeypatch: pytest.MonkeyPatch) -> type[CreatingFileSystem]:
    monkeypatch.setattr(fsspec, "get_filesystem_class", {"gs": CreatingFileSystem}.__getitem__)
    return CreatingFileSystem


class TestFsspec(ObjectStoreTests):
    race_in_threads = True

    @pytest.fixture
    def opening(self) -> Opening:
        return Opening(f"gcs://bucket-{next(_buckets)}/store", {"token": "a-secret"})

    @pytest.fixture
    def truth(self, opening: Opening) -> DictionaryTruth:
        return DictionaryTruth(opening.uri.removeprefix("gcs://") + "/")


@pytest.mark.parametrize("failure", [OSError(5, "broken"), TimeoutError(), RuntimeError("whatever a client raises")])
def test_a_failure_after_the_put_is_unknown(
    monkeypatch: pytest.MonkeyPatch, file_system: type[CreatingFileSystem], failure: BaseException
) -> None:
    monkeypatch.setattr(file_system, "failure", failure)
    store = Opening(f"gs://bucket-{next(_buckets)}/store").open()
    assert store.put_if_absent(ENTRY, b"x") is PutOutcome.UNKNOWN
    assert store.get(ENTRY) == b"x"


def test_an_error_tells_no_secret(
    monkeypatch: pytest.MonkeyPatch, file_system: type[CreatingFileSystem], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(file_system, "failure", OSError("refused for token=a-secret"))
    store = Opening(f"gs://bucket-{next(_buckets)}/store", {"token": "a-secret"}).open()
    store.put_if_absent(ENTRY, b"x")
    assert "token=***" in caplog.text
    assert "a-secret" not in caplog.text


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(scheme: str) -> None:
        raise ImportError(f"Install s3fs to access {scheme}")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    with pytest.raises(ConfigurationError, match=r"pip install 'sparktxn\[s3\]'"):
        Opening("s3://bucket/store").open()
