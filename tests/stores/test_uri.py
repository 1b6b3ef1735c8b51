"""Addresses and settings of stores: what is taken, what is refused, and that no secret is shown."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

import sparktxn.objectstore
from sparktxn.errors import ConfigurationError
from sparktxn.objectstore.uri import parse_uri
from sparktxn.testing.objectstore_tests import Opening


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("/data/store", "/data/store"),
        ("/data/store/", "/data/store"),
        ("/data/x/../store", "/data/store"),
        ("file:/data/store", "/data/store"),
        ("file:///data/store/", "/data/store"),
        ("file://localhost/data/store", "/data/store"),
        ("/odd?name#with:all@things", "/odd?name#with:all@things"),
        (Path("/data/store"), "/data/store"),
        ("relative", os.path.abspath("relative")),
        ("memory://name", "memory://name"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3a://bucket/a", "s3://bucket/a"),
        ("S3A://bucket/a", "s3://bucket/a"),
        ("gcs://bucket/a", "gs://bucket/a"),
        ("az://container/a", "abfs://container/a"),
        ("abfss://container/a", "abfs://container/a"),
    ],
)
def test_an_address_has_one_spelling(uri: str | Path, expected: str) -> None:
    assert str(parse_uri(uri)) == expected


@pytest.mark.parametrize(
    "uri",
    [
        "", "  ", "a\0b", "s3://", "s3:/bucket", "s3:///key", "s3://b//a", "s3://b/../c", "s3://b/a b", "memory://",
        "s3://key:pa55word@bucket/a", "s3://bucket/a?secret=pa55word", "s3://bucket/a#pa55word", "s3://bucket/%70a55word",
        "file://host/data", "file:///data/%20x",
    ],
)  # fmt: skip
def test_a_bad_address_is_refused_and_a_password_in_it_not_repeated(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="store URI") as raised:
        parse_uri(uri)
    assert "pa55word" not in str(raised.value)


@pytest.mark.parametrize(
    ("uri", "storage", "message"),
    [
        ("s3n://bucket/a", {}, "scheme 's3n' is unknown.*did you mean 's3"),
        ("hdfs://host/a", {}, "scheme 'hdfs': fsspec knows it, but it is not known to create"),
        ("http://host/a", {}, "scheme 'http': fsspec knows it, but"),
        ("/data", {"key": "pa55word"}, r"storage\.key given, but the store '/data' takes no storage"),
        ("memory://x", {"secret": "pa55word"}, r"storage\.secret given, but"),
        ("s3://bucket", {"secrett": "pa55word"}, r"unknown setting 'storage\.secrett'; did you mean 'storage\.secret'"),
        ("s3://bucket", {"use_listings_cache": "true"}, r"unknown setting 'storage\.use_listings_cache'"),
        ("s3://bucket", {"anon": "maybe"}, r"'storage\.anon' is not a boolean: expected true or false"),
        ("s3://bucket", {"client_kwargs": "pa55word"}, r"'storage\.client_kwargs' is not a JSON object"),
        ("s3://bucket", {"anon": 1.5}, r"'storage\.anon' is of the type float: expected true or false"),
        ("s3://bucket", {"anon": numpy.bool_(True)}, r"'storage\.anon' is of the type bool\w*: expected true or false"),
        ("s3://bucket", {"anon": "\udc80pa55word"}, r"'storage\.anon' has half of a surrogate pair: expected text"),
        *(
            ("s3://bucket", {name: value}, rf"'storage\.{name}' is of the type {type(value).__name__}: expected text")
            for name in ("key", "secret", "token", "endpoint_url", "profile")
            for value in (1.5, True, numpy.int64(7), b"\xffpa55word")
        ),
        (
            "s3://bucket",
            {"client_kwargs": b"pa55word"},
            r"'storage\.client_kwargs' is of the type bytes: expected text",
        ),
    ],
)
def test_a_wrong_scheme_or_setting_is_named(uri: str, storage: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as raised:
        Opening(uri, storage).open()
    assert "pa55word" not in str(raised.value)


def test_opening_a_remote_store_sends_nothing_and_tells_no_secret() -> None:
    storage = {"key": "pa55word1", "secret": "pa55word2", "client_kwargs": '{"aws_session_token": "pa55word3"}'}
    store = Opening("s3://bucket/a", storage).open()
    assert "pa55word" not in repr(store) + str(store) + store.uri


def test_the_core_is_imported_without_fsspec() -> None:
    program = "import sys, sparktxn.objectstore; print([m for m in ('fsspec', 's3fs', 'asyncio') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"


def test_a_handle_of_before_a_fork_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Opening("s3://bucket/a").open()
    monkeypatch.setattr("sparktxn.process.fork._generation", 1)
    with pytest.raises(RuntimeError, match="opened before a fork: open it again"):
        store.get("x")


def concrete_stores() -> list[str]:
    """The classes of the package that hold to the contract, by the names of their methods."""
    found = set()
    for module in pkgutil.iter_modules(sparktxn.objectstore.__path__, "sparktxn.objectstore."):
        for name, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if hasattr(kind, "put_if_absent") and not getattr(kind, "_is_protocol", False):
                found.add(name)
    return sorted(found)


STORE_OF_TEST = {
    "TestLocal": "LocalStore",
    "TestLocalWithoutFsync": "LocalStore",
    "TestMemory": "MemoryStore",
    "TestMoto": "RemoteStore",
    "TestSeaweedFS": "RemoteStore",
    "TestGcs": "RemoteStore",
    "TestFakeGcs": "RemoteStore",
    "TestAzure": "RemoteStore",
    "TestAzurite": "RemoteStore",
}


def test_every_store_is_held_to_the_kit() -> None:
    source = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    kits = {name: store for name, store in STORE_OF_TEST.items() if f"class {name}(" in source}
    assert kits == STORE_OF_TEST
    assert concrete_stores() == sorted(set(STORE_OF_TEST.values())), "give each new store a subclass of the kit"
