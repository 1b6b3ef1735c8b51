"""Google Cloud Storage without it: its JSON API in a dictionary, behind a stub of gcsfs. `make clouds` has a server."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sys
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace, TracebackType
from typing import Any, Self
from urllib.parse import unquote

import pytest
from fsspec.asyn import AsyncFileSystem

from sparktxn._engine.objectstore import PutOutcome
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.clock import Deadline, SystemClock
from sparktxn.errors import ConfigurationError, StoreUnavailable
from sparktxn.testing.objectstore_tests import ENTRY, ObjectStoreTests, Opening

_buckets = itertools.count()


class Api:
    """The requests that the adapter makes, answered as the service documents them; `failures` are answered first."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.failures: list[tuple[int, bytes] | BaseException] = []
        self.after_carrying_out = False
        self.requests: list[tuple[str, str]] = []
        self.lock = threading.Lock()

    def answer(self, method: str, path: str, params: Mapping[str, str], headers: Any, data: bytes) -> tuple[int, bytes]:
        self.requests.append((method, path))
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None and not self.after_carrying_out:
            return self._failed(failure)
        answered = self._carried_out(method, path, params, headers, data)
        return self._failed(failure) if failure is not None else answered

    def _failed(self, failure: tuple[int, bytes] | BaseException) -> tuple[int, bytes]:
        if isinstance(failure, BaseException):
            raise failure
        return failure

    def _carried_out(
        self, method: str, path: str, params: Mapping[str, str], headers: Any, data: bytes
    ) -> tuple[int, bytes]:
        if path == "/batch/storage/v1":
            return 200, self._batch(data, headers["Content-Type"].split("boundary=")[1])
        match = re.fullmatch(r"(?:/upload)?/storage/v1/b/([^/]+)/o(?:/(.+))?", path)
        assert match is not None, path
        bucket, name = match[1], unquote(match[2] or params.get("name", ""))
        if bucket == "absent":
            return 404, b"The specified bucket does not exist." if "alt" in params else refusal(404, "notFound", "x")
        if method == "POST":
            return self._upload(f"{bucket}/{name}", data, params)
        return self._get(f"{bucket}/{name}", headers) if name else (200, self._list(bucket, params))

    def _upload(self, key: str, data: bytes, params: Mapping[str, str]) -> tuple[int, bytes]:
        assert params["uploadType"] == "media"
        with self.lock:
            if params.get("ifGenerationMatch") == "0" and key in self.objects:
                return 412, refusal(412, "conditionNotMet", "At least one of the pre-conditions did not hold.")
            self.objects[key] = (data, datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"))
        return 200, b"{}"

    def _get(self, key: str, headers: Any) -> tuple[int, bytes]:
        if key not in self.objects:
            return 404, f"No such object: {key}".encode()
        data, ranged = self.objects[key][0], re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("Range", ""))
        if ranged is None:
            return 200, data
        part = data[int(ranged[1]) : int(ranged[2]) + 1]
        return (206, part) if part else (416, b"")

    def _list(self, bucket: str, params: Mapping[str, str]) -> bytes:
        prefix, begin = params["prefix"], params.get("pageToken") or params.get("startOffset", "")
        names = sorted(key.removeprefix(f"{bucket}/") for key in list(self.objects) if key.startswith(f"{bucket}/"))
        names = [name for name in names if name.startswith(prefix) and name >= begin]
        if "delimiter" in params:
            names = [name for name in names if "/" not in name[len(prefix) :]]
        page = {"items": [self._item(bucket, name) for name in names[: TestGcs.page_size]]}
        return json.dumps(
            page | ({"nextPageToken": names[TestGcs.page_size]} if names[TestGcs.page_size :] else {})
        ).encode()

    def _item(self, bucket: str, name: str) -> dict[str, str]:
        data, created = self.objects[f"{bucket}/{name}"]
        return {"name": name, "size": str(len(data)), "timeCreated": created}

    def _batch(self, data: bytes, boundary: str) -> bytes:
        asked = re.findall(rb"DELETE /storage/v1/b/([^/]+)/o/(\S+) HTTP/1.1", data)
        assert data.count(f"--{boundary}\r\n".encode()) == len(asked) <= 100
        gone = [self.objects.pop(f"{bucket.decode()}/{unquote(name.decode())}", None) for bucket, name in asked]
        parts = [b"HTTP/1.1 %s x\r\n\r\n" % (b"404" if one is None else b"204") for one in gone]
        return b"".join(b"--answer\r\nContent-Type: application/http\r\n\r\n" + part for part in parts)


def refusal(status: int, reason: str, message: str) -> bytes:
    return json.dumps({"error": {"code": status, "message": message, "errors": [{"reason": reason}]}}).encode()


class Answer:
    def __init__(self, make: Any) -> None:
        self._make = make

    async def __aenter__(self) -> Self:
        await asyncio.sleep(0)
        self.status, self._body = self._make()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    async def read(self) -> bytes:
        return self._body


class Files(AsyncFileSystem):
    """What the adapter asks of gcsfs's file system."""

    api = Api()
    seconds_to_find_credentials = 0.0
    made = 0
    _location = "https://storage.googleapis.com"
    on_google = True

    def __init__(self, token: Any = None, requester_pays: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        type(self).made += 1
        time.sleep(self.seconds_to_find_credentials)
        held = None if token in (None, "anon") else SimpleNamespace(token=token)
        self.credentials = SimpleNamespace(credentials=held, _credentials_valid=lambda seconds: True)

    async def _set_session(self) -> Any:
        return self

    def _get_params(self, params: dict[str, str]) -> dict[str, str]:
        return params

    def _get_headers(self, headers: dict[str, str] | None) -> dict[str, str]:
        return dict(headers or {})

    def request(self, method: str, url: str, *, params: Any, headers: Any, data: Any) -> Answer:
        body = data.read() if data is not None else b""
        return Answer(lambda: self.api.answer(method, url.removeprefix(self._location), params, headers, body))


@pytest.fixture(autouse=True)
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    api = Api()
    monkeypatch.setitem(sys.modules, "gcsfs", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "gcsfs.core", SimpleNamespace(GCSFileSystem=Files))
    monkeypatch.setattr(Files, "api", api)
    monkeypatch.setattr(Files, "made", 0)
    return api


@pytest.fixture
def opening() -> Opening:
    return Opening(f"gs://bucket-{next(_buckets)}/store", {"token": "a-secret"})


class DictionaryTruth:
    def __init__(self, api: Api, base: str) -> None:
        self._api, self._base = api, base

    def read(self, name: str) -> bytes | None:
        return self._api.objects.get(self._base + name, (None, ""))[0]

    def write(self, name: str, data: bytes) -> None:
        self._api.objects[self._base + name] = (data, "2026-01-01T00:00:00.000Z")


class TestGcs(ObjectStoreTests):
    race_in_threads = True
    page_size = 100

    @pytest.fixture
    def opening(self) -> Opening:
        return Opening(f"gcs://bucket-{next(_buckets)}/store", {"token": "a-secret"})

    @pytest.fixture
    def truth(self, api: Api, opening: Opening) -> DictionaryTruth:
        return DictionaryTruth(api, opening.uri.removeprefix("gcs://") + "/")


BUSY = (503, refusal(503, "backendError", "Backend Error"))
TOO_MANY = (
    429,
    refusal(429, "rateLimitExceeded", "The object exceeded the rate limit for object mutation operations."),
)


@pytest.mark.parametrize("failure", [BUSY, TOO_MANY, (408, b""), ConnectionResetError("gone")])
def test_a_create_is_sent_again_and_may_meet_its_own_object(api: Api, opening: Opening, failure: Any) -> None:
    store = opening.open()
    api.failures = [failure, failure]
    assert store.put_if_absent("a/1", b"x") is PutOutcome.CREATED
    api.failures, api.after_carrying_out = [failure], True
    assert store.put_if_absent("a/2", b"x") is PutOutcome.EXISTS, "not created: the caller reads whose it is"
    assert store.get("a/2") == b"x"


@pytest.mark.parametrize("failure", [OSError(5, "broken"), RuntimeError("x"), (409, b""), (403, b""), (400, b"bad")])
def test_a_failure_that_says_nothing_is_unknown(api: Api, opening: Opening, failure: Any) -> None:
    api.failures, api.after_carrying_out = [failure], True
    store = opening.open()
    assert store.put_if_absent(ENTRY, b"x") is PutOutcome.UNKNOWN
    assert store.get(ENTRY) == b"x"


def test_what_is_replaced_is_left_for_later_where_the_store_says_too_many(api: Api, opening: Opening) -> None:
    store = opening.open()
    api.failures = [TOO_MANY]
    with pytest.raises(StoreUnavailable, match=r"rateLimitExceeded \(HTTP 429\): The object exceeded"):
        store.put("_log/_last_checkpoint.json", b"x")
    assert len(api.requests) == 1
    api.failures = [BUSY]
    store.put("_log/_last_checkpoint.json", b"x")
    assert len(api.requests) == 3


def test_a_missing_bucket_is_named_and_an_absent_object_is_none(api: Api) -> None:
    store = Opening("gs://absent/store", {"token": "anon"}).open()
    uses = (
        lambda: store.get("a"),
        lambda: store.list("a/"),
        lambda: store.put("a", b"x"),
        lambda: store.put_if_absent("a", b"x"),
    )
    for use in uses:
        with pytest.raises(StoreUnavailable, match=r"gs://absent/store/.*NoSuchBucket \(HTTP 404\): create it first"):
            use()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, "authError (HTTP 401): bot lacks storage.objects.get: give the path of a service account's key file"),
        (403, "authError (HTTP 403): bot lacks storage.objects.get: check the credentials and their rights"),
    ],
)
def test_missing_rights_are_named_in_the_words_of_the_store(
    api: Api, opening: Opening, status: int, expected: str
) -> None:
    api.failures = [(status, refusal(status, "authError", "bot lacks storage.objects.get"))]
    with pytest.raises(StoreUnavailable, match=re.escape(expected)):
        opening.open().get("a")


def test_missing_credentials_are_named(api: Api) -> None:
    with pytest.raises(StoreUnavailable, match="no credentials were found: give the path of a service account's key"):
        Opening("gs://bucket/store").open().get("a")
    with pytest.raises(StoreUnavailable, match=r"storage\.token names a file that does not exist: give the path"):
        Opening("gs://bucket/store", {"token": "/no/such/key.json"}).open().get("a")
    assert api.requests == []


def test_bytes_are_refused_before_any_request_and_not_shown(api: Api) -> None:
    with pytest.raises(ConfigurationError, match=r"'storage\.token' is of the type bytes: expected text") as raised:
        Opening("gs://bucket/store", {"token": b"pa55word"}).open()
    assert "pa55word" not in str(raised.value)
    assert api.requests == []


def test_an_error_has_one_line_however_much_a_client_says(api: Api, opening: Opening) -> None:
    api.failures = [OSError("nothing was found\nAttempted:\n  one\n  two")]
    with pytest.raises(StoreUnavailable, match="nothing was found") as raised:
        opening.open().put("a", b"x")
    assert "\n" not in str(raised.value)


def test_an_error_tells_no_secret(api: Api, opening: Opening, caplog: pytest.LogCaptureFixture) -> None:
    api.failures = [OSError("refused for token=a-secret")]
    opening.open().put_if_absent(ENTRY, b"x")
    assert "token=***" in caplog.text
    assert "a-secret" not in caplog.text


def test_credentials_that_are_looked_for_keep_the_callers_deadline(
    monkeypatch: pytest.MonkeyPatch, opening: Opening
) -> None:
    monkeypatch.setattr(Files, "seconds_to_find_credentials", 1.0)
    store = opening._replace(settings=StoreSettings(request_timeout_ms=60_000)).open()
    with Deadline(SystemClock(), 0.2).governs(), pytest.raises(StoreUnavailable, match=r"time-out of 0\.2 s"):
        store.get("a")
    assert store.get("a") is None
    assert Files.made == 1, "the search goes on for the call that follows"


def test_a_key_may_be_given_as_json(opening: Opening) -> None:
    keys: list[Any] = []
    original = Files.__init__

    def noted(self: Files, token: Any = None, **kwargs: Any) -> None:
        keys.append(token)
        original(self, token, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Files, "__init__", noted)
        opening._replace(storage={"token": '{"type": "service_account"}'}).open().get("a")
    assert keys == [{"type": "service_account"}]


def test_a_delete_that_is_refused_is_an_error(api: Api, opening: Opening) -> None:
    api.failures = [(200, b"--answer\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n--answer\r\n\r\nHTTP/1.1 403 Forbidden\r\n")]
    with pytest.raises(StoreUnavailable, match=r"\(HTTP 403\): .*store/a/2' was not deleted: check the credentials"):
        opening.open().delete(["a/1", "a/2"])
    api.failures = [(200, b"--answer\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n")]
    opening.open().delete(["a/1", "a/2"])
    assert len(api.requests) == 3, "an answer that lacks a part is asked for again"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, uri, extra in (("gcsfs.core", "gs", "gcs"), ("adlfs", "abfs", "azure"), ("s3fs", "s3", "s3")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ConfigurationError, match=rf"pip install '\.\[{extra}\]'"):
            Opening(f"{uri}://bucket/store").open()
