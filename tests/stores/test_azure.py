"""Azure Blob Storage without it: its client's calls over a dictionary, behind a stub of adlfs."""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from fsspec.asyn import AsyncFileSystem
from hypothesis import given
from hypothesis import strategies as st

from sparktxn._engine.objectstore import PutOutcome
from sparktxn._engine.objectstore.azure import listed_from
from sparktxn.errors import ConfigurationError, StoreUnavailable
from sparktxn.testing.objectstore_tests import ENTRY, ObjectStoreTests, Opening

_containers = itertools.count()


class HttpResponseError(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{code} for account-key")
        self.status_code, self.error_code = status, SimpleNamespace(value=code)


class Account:
    """What the adapter asks of a service client, for blobs and for containers. `failures` are raised first."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.failures: list[BaseException] = []
        self.after_carrying_out = False
        self.calls = 0
        self.listings: list[dict[str, Any]] = []
        self.lock = threading.Lock()

    def get_blob_client(self, container: str, blob: str) -> Blob:
        return Blob(self, f"{container}/{blob}")

    def get_container_client(self, container: str) -> Container:
        return Container(self, container)

    def begin(self) -> None:
        self.calls += 1
        if self.failures and not self.after_carrying_out:
            raise self.failures.pop(0)

    def end(self) -> None:
        if self.failures and self.after_carrying_out:
            raise self.failures.pop(0)


class Blob:
    def __init__(self, account: Account, key: str) -> None:
        self._account, self._key = account, key

    async def upload_blob(self, data: bytes, *, overwrite: bool, retry_total: int) -> None:
        assert retry_total == 0
        await asyncio.sleep(0)
        self._account.begin()
        with self._account.lock:
            if not overwrite and self._key in self._account.objects:
                raise HttpResponseError(409, "BlobAlreadyExists")
            self._account.objects[self._key] = (data, datetime.now(UTC).replace(microsecond=0))
        self._account.end()

    async def download_blob(self, offset: int = 0, length: int | None = None, *, retry_total: int) -> Any:
        assert retry_total == 0
        await asyncio.sleep(0)
        self._account.begin()
        if self._key.startswith("absent/"):
            raise HttpResponseError(404, "ContainerNotFound")
        if self._key not in self._account.objects:
            raise HttpResponseError(404, "BlobNotFound")
        data = self._account.objects[self._key][0]
        part = data[offset : None if length is None else offset + length]
        if not part:
            raise HttpResponseError(416, "InvalidRange")

        async def readall() -> bytes:
            return part

        return SimpleNamespace(readall=readall)


class Container:
    def __init__(self, account: Account, name: str) -> None:
        self._account, self._name = account, name

    async def delete_blobs(self, *names: str, raise_on_any_failure: bool) -> AsyncIterator[Any]:
        assert len(names) <= 256
        assert not raise_on_any_failure
        self._account.begin()

        async def answers() -> AsyncIterator[Any]:
            for name in names:
                gone = self._account.objects.pop(f"{self._name}/{name}", None)
                yield SimpleNamespace(status_code=202 if gone else 404, headers={})

        return answers()

    def list_blobs(self, **options: Any) -> SimpleNamespace:
        return SimpleNamespace(by_page=lambda token: Pages(self._listed(deep=True, **options), token))

    def walk_blobs(self, **options: Any) -> SimpleNamespace:
        return SimpleNamespace(by_page=lambda token: Pages(self._listed(deep=False, **options), token))

    def _listed(self, *, deep: bool, name_starts_with: str, start_from: str = "", retry_total: int) -> Iterator[Any]:
        assert retry_total == 0
        self._account.begin()
        self._account.listings.append({"name_starts_with": name_starts_with, "start_from": start_from})
        prefixes = set()
        for key, (data, modified) in sorted(self._account.objects.items()):
            name = key.removeprefix(f"{self._name}/")
            if name == key or not name.startswith(name_starts_with) or name < start_from:
                continue
            folder, below, _ = name[len(name_starts_with) :].partition("/")
            if deep or not below:
                yield SimpleNamespace(name=name, size=len(data), last_modified=modified)
            elif folder not in prefixes:
                prefixes.add(folder)
                yield SimpleNamespace(name=f"{name_starts_with}{folder}/")


class Pages:
    """The pages of a listing from `token` on, which says how many objects the pages before it have."""

    def __init__(self, listed: Iterator[Any], token: str | None) -> None:
        self._listed = listed
        self.continuation_token = token

    async def __anext__(self) -> AsyncIterator[Any]:
        first, objects = int(self.continuation_token or 0), list(self._listed)
        end = first + TestAzure.page_size
        self.continuation_token = str(end) if objects[end:] else None
        return self._page(objects[first:end])

    async def _page(self, objects: list[Any]) -> AsyncIterator[Any]:
        for each in objects:
            yield each


class Files(AsyncFileSystem):
    account: ClassVar[Account] = Account()
    made: ClassVar[list[dict[str, Any]]] = []

    def __init__(
        self,
        account_name: str | None = None,
        account_key: str | None = None,
        anon: bool = cast(bool, None),  # as adlfs has it
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if account_name is None:
            raise ValueError("must provide an account_name")
        self.made.append({"account_name": account_name, "anon": anon})
        self.service_client = self.account


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    account = Account()
    monkeypatch.setitem(sys.modules, "adlfs", SimpleNamespace(AzureBlobFileSystem=Files))
    monkeypatch.setattr(Files, "account", account)
    monkeypatch.setattr("sparktxn._engine.objectstore.azure._services._made", {})
    return account


STORAGE = {"account_name": "shop", "account_key": "account-key"}


@pytest.fixture
def opening() -> Opening:
    return Opening(f"az://container-{next(_containers)}/store", STORAGE)


class DictionaryTruth:
    def __init__(self, account: Account, base: str) -> None:
        self._account, self._base = account, base

    def read(self, name: str) -> bytes | None:
        return self._account.objects.get(self._base + name, (None, None))[0]

    def write(self, name: str, data: bytes) -> None:
        self._account.objects[self._base + name] = (data, datetime.now(UTC))


class TestAzure(ObjectStoreTests):
    race_in_threads = True

    @pytest.fixture
    def opening(self) -> Opening:
        return Opening(f"abfs://container-{next(_containers)}/store", STORAGE)

    @pytest.fixture
    def truth(self, account: Account, opening: Opening) -> DictionaryTruth:
        return DictionaryTruth(account, opening.uri.removeprefix("abfs://") + "/")


class ServiceResponseError(Exception):
    """Azure's error of a connection that was cut."""


BUSY = HttpResponseError(503, "ServerBusy")


@pytest.mark.parametrize("failure", [BUSY, ServiceResponseError("cut"), HttpResponseError(500, "OperationTimedOut")])
def test_a_create_is_sent_again_and_may_meet_its_own_object(
    account: Account, opening: Opening, failure: BaseException
) -> None:
    store = opening.open()
    account.failures = [failure, failure]
    assert store.put_if_absent("a/1", b"x") is PutOutcome.CREATED
    account.failures, account.after_carrying_out = [failure], True
    assert store.put_if_absent("a/2", b"x") is PutOutcome.EXISTS, "not created: the caller reads whose it is"


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (HttpResponseError(412, "ConditionNotMet"), PutOutcome.EXISTS),
        (HttpResponseError(409, "ContainerBeingDeleted"), PutOutcome.UNKNOWN),
        (HttpResponseError(404, "ContainerNotFound"), PutOutcome.UNKNOWN),
        (RuntimeError("whatever"), PutOutcome.UNKNOWN),
    ],
)
def test_only_a_taken_name_is_exists(
    account: Account, opening: Opening, failure: BaseException, expected: PutOutcome
) -> None:
    account.failures = [failure]
    assert opening.open().put_if_absent(ENTRY, b"x") is expected
    assert account.objects == {}


def test_what_is_replaced_is_left_for_later_where_the_store_says_too_many(account: Account, opening: Opening) -> None:
    account.failures = [HttpResponseError(429, "TooManyRequests")]
    with pytest.raises(StoreUnavailable, match="TooManyRequests"):
        opening.open().put("_log/_last_checkpoint.json", b"x")
    assert account.calls == 1


def test_a_missing_container_is_named(account: Account) -> None:
    with pytest.raises(StoreUnavailable, match=r"abfs://absent/.*ContainerNotFound \(HTTP 404\): create it first"):
        Opening("az://absent/store", STORAGE).open().get("a")


def test_missing_rights_and_credentials_are_named(account: Account, opening: Opening) -> None:
    account.failures = [HttpResponseError(403, "AuthorizationPermissionMismatch")]
    with pytest.raises(StoreUnavailable, match=r"AuthorizationPermissionMismatch \(HTTP 403\): check the credentials"):
        opening.open().get("a")
    with pytest.raises(StoreUnavailable, match=r"account_name: give storage\.account_name with"):
        Opening("az://container/store").open().get("a")


def test_an_error_tells_no_secret(account: Account, opening: Opening, caplog: pytest.LogCaptureFixture) -> None:
    part = "AccountName=shop;AccountKey=account-key;BlobEndpoint=http://x"
    account.failures = [RuntimeError("signed with account-key"), RuntimeError("signed with account-key")]
    opening.open().put_if_absent(ENTRY, b"x")
    opening._replace(storage={**STORAGE, "account_key": part}).open().put_if_absent(ENTRY, b"x")
    assert "account-key" not in caplog.text
    assert caplog.text.count("signed with ***") == 2


def test_what_was_tried_for_credentials_is_no_warning(
    account: Account, opening: Opening, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """azure.identity logs a dozen lines before it raises, which programs without logging print."""
    theirs = logging.getLogger("azure.identity.aio._credentials.chained")

    class ClientAuthenticationError(Exception):
        pass

    def refuse() -> None:
        theirs.info("DefaultAzureCredential acquired nothing")
        theirs.warning("no token.\nAttempted credentials:\n\tAzureCliCredential: not found")
        raise ClientAuthenticationError("no token.\nAttempted credentials:\n\tAzureCliCredential: not found")

    monkeypatch.setattr(account, "begin", refuse)
    caplog.set_level(logging.INFO)
    store = opening.open()
    for use in (lambda: store.get("a"), lambda: store.list("a/"), lambda: store.put("a", b"x")):
        with pytest.raises(StoreUnavailable, match=r"ClientAuthenticationError: no token: give storage\.account_name"):
            use()
    theirs.warning("of a program's own")
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [each for each in warnings if "takes no writes" not in each] == ["of a program's own"]
    assert caplog.text.count("DefaultAzureCredential acquired nothing") == 3
    assert caplog.text.count("AzureCliCredential: not found") == 3


def test_folders_of_a_hierarchical_namespace_are_no_objects(account: Account, opening: Opening) -> None:
    store = opening.open()
    store.put_if_absent("_log/1", b"x")
    base = opening.uri.removeprefix("az://")
    for folder in (base, f"{base}/_log", f"{base}/_log/_checkpoints"):
        account.objects[folder] = (b"", datetime.now(UTC))
    assert [info.name for info in store.list("")] == ["_log/1"]
    assert list(store.list_names("_log/")) == ["_log/1"]


def test_handles_of_equal_settings_share_a_client(opening: Opening) -> None:
    Files.made.clear()
    for storage in (STORAGE, dict(STORAGE), {**STORAGE, "account_key": "other"}):
        store = opening._replace(storage=storage).open()
        store.get("a")
        store.close()
    assert len(Files.made) == 2


_NAMES = st.text("ab-./", min_size=1, max_size=8).filter(lambda name: "//" not in name and name[0] + name[-1] != "/")


@given(names=st.sets(_NAMES, max_size=20), after=_NAMES, prefix=st.sampled_from(["", "a/", "a/b/", "a"]))
def test_a_listing_in_the_order_of_folders_lacks_no_name(names: set[str], after: str, prefix: str) -> None:
    if not after.startswith(prefix):
        return

    def by_parts(name: str) -> list[str]:
        return name.split("/")

    begin = listed_from(prefix, after)
    listed = {name for name in names if by_parts(name) >= by_parts(begin)}
    assert {name for name in names if name > after and name.startswith(prefix)} <= listed


def test_a_listing_after_an_entry_begins_there(account: Account, opening: Opening) -> None:
    opening.open().list_names("_log/", "_log/00000000000000000012.json")
    assert account.listings[0]["start_from"] == "store/_log/00000000000000000012"


def test_a_boolean_may_come_as_text(opening: Opening) -> None:
    Files.made.clear()
    opening._replace(storage={**STORAGE, "anon": "false"}).open().get("a")
    assert Files.made == [{"account_name": "shop", "anon": False}]


@pytest.mark.parametrize("name", ["account_name", "account_key"])
def test_a_setting_of_another_type_is_refused(name: str) -> None:
    """adlfs says that a float has no attribute rstrip."""
    with pytest.raises(ConfigurationError, match=rf"'storage\.{name}' is of the type float: expected text"):
        Opening("abfs://container/store", {name: 1.5}).open()
