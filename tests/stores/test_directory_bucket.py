"""A directory bucket of S3 Express without it: by its documented rules, behind a stub of s3fs.

Listings have no order and begin at no name, and prefixes end with a slash. The service itself was not tried.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime
from types import SimpleNamespace, TracebackType
from typing import Any, ClassVar, Self

import pytest
from fsspec.asyn import AsyncFileSystem

from sparktxn import Consumer, Producer, TopicPartition
from sparktxn._foundation.process.clock import RandomIds, SystemClock
from sparktxn._programs.cli.doctorstore import OK, examine
from sparktxn.maintenance import vacuum, verify
from sparktxn.store import Store
from sparktxn.testing.objectstore_tests import ObjectStoreTests, Opening

STORAGE = {"key": "local", "secret": "local-secret"}
_buckets = itertools.count()


class ClientError(Exception):
    """As botocore raises it."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": code}}


class Body:
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    async def read(self) -> bytes:
        return self._data


def place(key: str) -> str:
    """Where a key is in listings: anywhere."""
    return hashlib.md5(key.encode()).hexdigest()


class Files(AsyncFileSystem):
    """What the adapter asks of s3fs's file system."""

    objects: ClassVar[dict[str, tuple[bytes, datetime]]] = {}
    lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, key: str, secret: str, session: Any = None, config_kwargs: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    async def _pipe_file(self, key: str, data: bytes, mode: str = "overwrite") -> None:
        with self.lock:
            if mode == "create" and key in self.objects:
                raise ClientError(412, "PreconditionFailed")
            self.objects[key] = (data, datetime.now(UTC))

    async def _call_s3(self, method: str, *, Bucket: str, **request: Any) -> Any:
        return getattr(self, f"_{method}")(Bucket, **request)

    def _get_object(self, bucket: str, Key: str, Range: str = "") -> Any:
        if f"{bucket}/{Key}" not in self.objects:
            raise ClientError(404, "NoSuchKey")
        data, _ = self.objects[f"{bucket}/{Key}"]
        if Range:
            start, end = map(int, Range.removeprefix("bytes=").split("-"))
            if start >= len(data):
                raise ClientError(416, "InvalidRange")
            data = data[start : end + 1]
        return {"Body": Body(data), "ContentLength": len(data)}

    def _delete_objects(self, bucket: str, Delete: Any) -> Any:
        for each in Delete["Objects"]:
            self.objects.pop(f"{bucket}/{each['Key']}", None)
        return {}

    def _list_objects_v2(self, bucket: str, Prefix: str, Delimiter: str = "", ContinuationToken: str = "") -> Any:
        assert Prefix == "" or Prefix.endswith("/")
        keys = [key.partition("/")[2] for key in list(self.objects) if key.startswith(f"{bucket}/{Prefix}")]
        if Delimiter:
            keys = [key for key in keys if Delimiter not in key[len(Prefix) :]]
        keys = sorted((key for key in keys if place(key) > ContinuationToken), key=place)
        page = keys[: TestDirectoryBucket.page_size]
        contents = []
        for key in page:
            data, written = self.objects[f"{bucket}/{key}"]
            contents.append({"Key": key, "Size": len(data), "LastModified": written})
        truncated = {"IsTruncated": True, "NextContinuationToken": place(page[-1])} if keys[len(page) :] else {}
        return {"Contents": contents, "IsTruncated": False, **truncated}


@pytest.fixture(autouse=True)
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", SimpleNamespace(S3FileSystem=Files))
    monkeypatch.setattr(Files, "objects", {})


@pytest.fixture
def opening() -> Opening:
    return Opening(f"s3://logs-{next(_buckets)}--use1-az4--x-s3/shop", STORAGE)


class DictionaryTruth:
    def __init__(self, base: str) -> None:
        self._base = base

    def read(self, name: str) -> bytes | None:
        return Files.objects.get(self._base + name, (None, None))[0]

    def write(self, name: str, data: bytes) -> None:
        Files.objects[self._base + name] = (data, datetime.now(UTC))


class TestDirectoryBucket(ObjectStoreTests):
    race_in_threads = True
    page_size = 100

    @pytest.fixture
    def opening(self) -> Opening:
        return Opening(f"s3://logs-{next(_buckets)}--use1-az4--x-s3/shop", STORAGE)

    @pytest.fixture
    def truth(self, opening: Opening) -> DictionaryTruth:
        return DictionaryTruth(opening.uri.removeprefix("s3://") + "/")


def test_a_listing_has_what_it_is_asked_for_and_no_more(opening: Opening) -> None:
    names = ["_log/12", "_log/10", "_log/_checkpoints/1", "_log/2", "_log/11", "_logs/1", "other"]
    with closing(opening.open()) as store:
        for name in names:
            store.put(name, b"x")
        assert [info.name for info in store.list("_log/1")] == ["_log/10", "_log/11", "_log/12"]
        assert [info.name for info in store.list("_log/", "_log/11")] == ["_log/12", "_log/2", "_log/_checkpoints/1"]
        assert sorted(store.list_names("_log/", "_log/11")) == ["_log/12", "_log/2"]
        assert sorted(info.name for info in store.list("")) == sorted(names)


def test_doctor_refuses_nothing(opening: Opening) -> None:
    with closing(opening.open()) as store:
        assert {check.check: check for check in examine(store, SystemClock(), RandomIds()) if check.result != OK} == {}


def test_transactions_groups_checkpoints_and_vacuums_work_on_it(opening: Opening) -> None:
    options = {f"storage.{name}": value for name, value in STORAGE.items()}
    options |= {"checkpoint.entries": "4", "checkpoint.seal.segments": "2", "store.append.inline.bytes": "0"}
    settings = {"bootstrap.servers": opening.uri, **options}
    everything = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0}
    with (
        Store.open(opening.uri, options=options, create=True) as store,
        Producer({**settings, "transactional.id": "shop"}) as producer,
    ):
        store.create_topic("orders", 2)
        producer.init_transactions()
        expected: list[bytes] = []
        with Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TopicPartition("orders", 0, 0)])
            found: list[bytes | None] = []
            for number in range(24):
                producer.begin_transaction()
                producer.produce("orders", b"%d" % number, partition=0)
                producer.flush()
                if number % 3 == 2:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
                    expected.append(b"%d" % number)
                if number % 8 == 7:
                    store.log.checkpoint()
                    assert vacuum(store, everything).horizon > 1
                    found += [message.value() for message in consumer.consume(len(expected) - len(found), 20.0)]
        assert found == expected
        assert verify(store).problems == ()


def test_a_page_that_fails_is_asked_for_again_and_no_other(opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page has the request time-out: all of a million objects take longer than an answer may."""
    asked = []
    answered = Files._list_objects_v2

    def second_fails(files: Files, bucket: str, **request: Any) -> Any:
        asked.append(request.get("ContinuationToken"))
        if len(asked) == 2:
            raise ClientError(503, "SlowDown")
        return answered(files, bucket, **request)

    monkeypatch.setattr(Files, "_list_objects_v2", second_fails)
    names = [f"_log/{number:03d}" for number in range(250)]
    with closing(opening.open()) as store:
        for name in names:
            store.put(name, b"x")
        assert [info.name for info in store.list("_log/")] == names
    assert asked == [None, asked[1], asked[1], asked[3]]
    assert len({*asked}) == 3
