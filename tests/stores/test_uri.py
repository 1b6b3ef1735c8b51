"""Addresses and settings of stores: what is taken, what is refused, and that no secret is shown."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparktxn._engine.objectstore
from sparktxn import Consumer, Producer, Store, read_arrow
from sparktxn._engine.objectstore.uri import parse_uri
from sparktxn._foundation.config.settings import read_properties
from sparktxn.admin import AdminClient, NewTopic
from sparktxn.errors import ConfigurationError
from sparktxn.maintenance import copy_store
from sparktxn.store.registry import read_object
from sparktxn.testing.objectstore_tests import Opening
from sparktxn.transfer import export_topic, import_files
from tests.each import each


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
        "file://host/data", "file:///data/%2", "file:///data/%zz", "file:///data/%00", "file:///data/%ff",
        '"/data/pa55word@x"', "s3:key:pa55word@bucket/a",
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
    program = (
        "import sys, sparktxn._engine.objectstore;"
        " print([m for m in ('fsspec', 's3fs', 'asyncio') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"


def test_a_handle_of_before_a_fork_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Opening("s3://bucket/a").open()
    monkeypatch.setattr("sparktxn._foundation.process.handles._generation", 1)
    with pytest.raises(RuntimeError, match="opened before a fork: open it again"):
        store.get("x")


def concrete_stores() -> list[str]:
    """The classes of the package that hold to the contract, by the names of their methods."""
    found = set()
    for module in pkgutil.iter_modules(sparktxn._engine.objectstore.__path__, "sparktxn._engine.objectstore."):
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


MISTAKES = {
    '"/data/shop"': "holds a quote",
    "'/data/shop'": "holds a quote",
    "/data/'shop'/x": "holds a quote",
    "`pwd`/shop": "holds a quote",
    "\u201c/data/shop\u201d": "holds a quote",
    's3://"bucket"/shop': "holds a quote",
    "$HOME/shop": "holds '$HOME', a variable of a shell",
    "/data/${USER}/shop": "holds '${USER}', a variable",
    "${STORE": "holds '${STORE', a variable",
    "$(pwd)/shop": "holds '$(pwd)', a variable",
    "file:///data/$USER": "holds '$USER', a variable",
    "s3://bucket/$ENV/shop": "holds '$ENV', a variable",
    "memory://$NAME": "holds '$NAME', a variable",
    "%TEMP%/shop": "holds '%TEMP%', a variable",
    "%TEMP%\\shop": "holds '%TEMP%', a variable",
    "C:\\data\\shop": "holds a backslash",
    "data\\shop": "holds a backslash",
    "C:/data/shop": "begins with 'C:', a drive of Windows",
    "d:shop": "begins with 'd:', a drive of Windows",
    "file:shop": "begins with 'file:', which is a scheme only as file://…, and a folder only as ./file:…",
    "s3:bucket/shop": "begins with 's3:', which is a scheme only",
    "shop:v1": "begins with 'shop:', which is a scheme only",
    " /data/shop": "begins or ends with white space",
    "/data/shop\n": "begins or ends with white space",
    "\u00a0/data": "begins or ends with white space",
    "s3://bucket/shop\n": "begins or ends with white space",
    "/data/a\nb": "holds a control character",
    "/data/\x1b[31mb": "holds a control character",
    "\ufeff/data": "begins or ends with white space",
}


@each(MISTAKES)
def test_what_a_shell_or_another_system_reads_otherwise_is_refused_by_name(address: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(MISTAKES[address])) as raised:
        parse_uri(address)
    if "://" not in address:
        assert repr(address) in str(raised.value)
    assert "expected a path such as /data/log" in str(raised.value)


@each(
    [
        "/data/cost$5",
        "/data/a$",
        "/data/100%",
        "/data/o'brien",
        "/data/a~b",
        "./shop:v1",
        "a~b",
        "/a b/ü/☃",
        "/data/x:y",
    ]
)
def test_other_characters_are_part_of_a_folder(address: str) -> None:
    assert parse_uri(address).location == os.path.abspath(address)
    assert str(parse_uri(address)) == os.path.abspath(address)


@pytest.mark.parametrize(
    ("address", "expected"),
    [("~", ""), ("~/", ""), ("~/shop", "/shop"), (Path("~/shop"), "/shop"), ("~/../x", "/../x"), ("~root/x", None)],
)
def test_a_tilde_is_the_folder_of_a_user(
    address: str | Path, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    root = os.path.expanduser("~root") + "/x" if expected is None else f"{tmp_path}/home{expected}"
    assert parse_uri(address).location == os.path.abspath(root)


def test_a_tilde_of_no_user_is_refused_and_a_folder_of_this_name_has_a_way() -> None:
    with pytest.raises(ConfigurationError, match=r"~nouser is the folder of no user: .* called so is \./~nouser/shop"):
        parse_uri("~nouser/shop")
    with pytest.raises(ConfigurationError, match="names no host: write ~/shop without file://"):
        parse_uri("file://~/shop")
    assert parse_uri("./~/shop").location == os.path.abspath("./~/shop")
    assert parse_uri("/data/~").location == "/data/~"
    assert parse_uri("file:///~/shop").location == "/~/shop"


@given(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0/"), min_size=1, max_size=30))
def test_every_folder_has_an_address_that_leads_to_it_and_one_spelling(name: str) -> None:
    folder = os.path.abspath(f"/data/{name}")
    found = parse_uri(Path(folder).as_uri())
    assert found.location == folder
    assert parse_uri(str(found)) == found
    for text in (name, f"/data/{name}", f"s3://bucket/{name}", f"memory://{name}"):
        try:
            other = parse_uri(text)
        except ConfigurationError:
            continue
        assert parse_uri(str(other)) == other


def test_a_store_in_a_folder_with_an_odd_name_works(tmp_path: Path) -> None:
    folder = tmp_path / '"$HOME" 100%41'
    address = folder.as_uri()
    with Store.open(address, create=True, options={"store.fsync": False}) as store:
        store.create_topic("orders")
    with Producer({"bootstrap.servers": address}) as producer:
        producer.produce("orders", "v")
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    with Store.open(address) as store:
        assert read_arrow(store, "orders").read_all()["value"].to_pylist() == [b"v"]
        copy_store(store, (tmp_path / "$COPY").as_uri())
    with Store.open((tmp_path / "$COPY").as_uri()) as store:
        assert read_arrow(store, "orders").read_all().num_rows == 1


@pytest.mark.parametrize("client", [Producer, Consumer, AdminClient])
def test_a_client_refuses_a_wrong_address_when_it_is_made(client: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"holds '\$HOME', a variable"):
        client({"bootstrap.servers": "$HOME/shop", **({"group.id": "g"} if client is Consumer else {})})


def test_every_door_takes_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "rows.csv").write_text("value\na\n")
    (tmp_path / "home" / "settings").write_text("store.fsync=false\n")
    with AdminClient({"bootstrap.servers": "~/shop", **read_properties("~/settings")}) as admin:
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(10)
    with Producer({"bootstrap.servers": "~/shop"}) as producer:
        producer.produce("orders", "b")
    with Store.open("~/shop") as store:
        assert store.uri == str(tmp_path / "home" / "shop")
        import_files(store, "orders", ["~/rows.csv"])
        copy_store(store, "~/copy")
        export_topic(store, "orders", "~/out")
    assert read_object("~/shop", "_txnlog.json")
    with Consumer({"bootstrap.servers": "~/copy", "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["orders"])
        assert {message.value() for message in consumer.consume(2, 10)} == {b"a", b"b"}
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == [
        "copy",
        "out",
        "rows.csv",
        "settings",
        "shop",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
