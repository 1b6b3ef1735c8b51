"""Azure Blob Storage: its own client, as adlfs makes it from the settings and the environment.

adlfs's own calls are not used: they take every conflict for an object that exists, and read folders in many requests.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final

from sparktxn._engine.objectstore.cloud import Cloud, ErrorResponse, ListingPage, causes
from sparktxn._engine.objectstore.contract import ObjectInfo
from sparktxn._foundation.process.events import log_event

_ONCE: Final = {"retry_total": 0}
"""Azure's client would wait 15 s before it sends a request again. `RemoteStore` does so sooner, in its time."""
_FOLDS_LOWER: Final = re.compile(r"[-.]")
"""What sorts before a slash, of the characters of names."""
_CREDENTIALS_LOGGER: Final = "azure.identity.aio._credentials.chained"
_asks: Final = ContextVar("a request of a store is under way", default=False)


class _AzureRequests:
    def __init__(self, service: Any) -> None:
        self._client = service

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        ranged = {} if end is None else {"offset": start, "length": end - start}
        try:
            stream = await self._blob(key).download_blob(**ranged, **_ONCE)
            data: bytes = await stream.readall()
        except Exception as error:
            refusal = _refusal(error)
            if refusal.status == 416:
                return b""
            if refusal.status == 404 and refusal.code != "ContainerNotFound":
                return None
            raise
        return data

    async def create(self, key: str, data: bytes) -> None:
        await self._blob(key).upload_blob(data, overwrite=False, **_ONCE)

    async def write(self, key: str, data: bytes) -> None:
        await self._blob(key).upload_blob(data, overwrite=True, **_ONCE)

    async def delete(self, keys: Sequence[str]) -> None:
        container = self._service().get_container_client(keys[0].partition("/")[0])
        names = [key.partition("/")[2] for key in keys]
        async for answer in await container.delete_blobs(*names, raise_on_any_failure=False):
            if answer.status_code >= 400 and answer.status_code != 404:
                code = answer.headers.get("x-ms-error-code", "")
                raise _RefusedDelete(ErrorResponse(answer.status_code, code, "an object was not deleted"))

    async def list(self, prefix: str, deep: bool, after: str, token: str) -> ListingPage:
        bucket, _, path = prefix.partition("/")
        container = self._service().get_container_client(bucket)
        options: dict[str, Any] = {"name_starts_with": path, **_ONCE}
        if after:
            options["start_from"] = listed_from(path, after.partition("/")[2])
        found: list[ObjectInfo] = []
        listing = container.list_blobs(**options) if deep else container.walk_blobs(**options)
        pages = listing.by_page(token or None)
        async for item in await anext(pages):
            # Folders of accounts with a hierarchical namespace are listed as empty objects; no object of ours is empty.
            if size_bytes := getattr(item, "size", 0):
                modified_ms = int(item.last_modified.timestamp() * 1000)
                found.append(ObjectInfo(f"{bucket}/{item.name}", size_bytes, modified_ms))
        return ListingPage(found, pages.continuation_token or "")

    def _blob(self, key: str) -> Any:
        bucket, _, path = key.partition("/")
        return self._service().get_blob_client(bucket, path)

    def _service(self) -> Any:
        _asks.set(True)  # for the task of this request
        return self._client


def _passes(record: logging.LogRecord) -> bool:
    """Return False for what azure.identity warns of during a request of ours: an error with one line says it.

    Its dozen lines on all that it has tried are ours to log, as information.
    """
    if not _asks.get() or record.levelno < logging.WARNING:
        return True
    log_event("azure_credentials_missing", text=record.getMessage())
    return False


class _RefusedDelete(Exception):
    def __init__(self, refusal: ErrorResponse) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


def listed_from(prefix: str, after: str) -> str:
    """Return where a listing begins that must have all names of `prefix` after `after`.

    A hierarchical namespace sorts by the parts of names, and so a slash before all else. There ``a/b`` comes before
    ``a.b``, and a listing from ``a.b`` on would lack it.
    """
    lower = _FOLDS_LOWER.search(after, len(prefix))
    return after[: lower.start()] if lower else after


def _file_system() -> Any:
    from adlfs import AzureBlobFileSystem

    return AzureBlobFileSystem


def _connect(storage: Mapping[str, Any], timeout_s: float) -> _AzureRequests:
    return _AzureRequests(_services.get(storage))


class _Services:
    """One client for each set of settings of a process, as adlfs never lets go of one that it has made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[tuple[int, str], Any] = {}

    def get(self, storage: Mapping[str, Any]) -> Any:
        # A forked child has connections and an event loop of its own.
        which = (os.getpid(), repr(sorted(storage.items())))
        with self._lock:
            if which not in self._made:
                logging.getLogger(_CREDENTIALS_LOGGER).addFilter(_passes)
                files = _file_system()(**storage, skip_instance_cache=True, use_listings_cache=False)
                self._made[which] = files.service_client
            return self._made[which]


_services: Final = _Services()


def _refusal(error: BaseException) -> ErrorResponse:
    for cause in causes(error):
        if isinstance(cause, _RefusedDelete):
            return cause.refusal
        status = getattr(cause, "status_code", None)
        if isinstance(status, int):
            code = getattr(cause, "error_code", None)
            return ErrorResponse(status, str(getattr(code, "value", code or "")))
    return ErrorResponse()


AZURE: Final = Cloud(
    file_system=_file_system,
    connect=_connect,
    refusal=_refusal,
    credentials=(
        "give storage.account_name with storage.account_key or storage.sas_token, or storage.connection_string, or set "
        "AZURE_STORAGE_ACCOUNT_NAME and log in by az login, or run where the machine has a managed identity"
    ),
    delete_batch=256,
    resends=False,
    texts=frozenset(
        {
            *("account_name", "account_key", "sas_token", "connection_string"),
            *("client_id", "client_secret", "tenant_id"),
        }
    ),
)
