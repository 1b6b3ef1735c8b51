"""Google Cloud Storage: its JSON API, with the credentials, the session and the endpoint of gcsfs.

gcsfs's own calls are not used. Its uploads are parted by a fixed text: data that holds it, as records may, is refused
or cut. Its errors are the same for an absent bucket and an absent object, and it repeats requests for half a minute.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from sparktxn._engine.objectstore.cloud import Cloud, ErrorResponse, ListingPage, causes
from sparktxn._engine.objectstore.contract import ObjectInfo
from sparktxn._engine.objectstore.writehealth import SENDS

_REFRESH_S: Final = 300
"""gcsfs renews a token that is valid for less than this, and waits for it."""
_BOUNDARY: Final = "txnlog-batch"
_STATUS: Final = re.compile(rb"^HTTP/\d\S* (\d{3})", re.MULTILINE)
_PAGE: Final = {"fields": "items(name,size,timeCreated),nextPageToken", "maxResults": "1000"}


class _RefusedRequest(Exception):
    def __init__(self, refusal: ErrorResponse) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


class NoCredentials(Exception):
    """gcsfs has found none, and would ask without any."""


class _GcsRequests:
    def __init__(self, storage: Mapping[str, Any]) -> None:
        self._storage = storage
        self._making: asyncio.Future[Any] | None = None

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        headers = {} if end is None else {"Range": f"bytes={start}-{end - 1}"}
        try:
            return await self._send("GET", f"/storage/v1/{_path(key)}", {"alt": "media"}, headers=headers)
        except _RefusedRequest as error:
            if error.refusal.status == 416:
                return b""
            if error.refusal.status == 404 and error.refusal.code != "NoSuchBucket":
                return None
            raise

    async def create(self, key: str, data: bytes) -> None:
        await self._upload(key, data, {"ifGenerationMatch": "0"})

    async def write(self, key: str, data: bytes) -> None:
        await self._upload(key, data, {})

    async def delete(self, keys: Sequence[str]) -> None:
        part = (
            f"--{_BOUNDARY}\r\nContent-Type: application/http\r\nContent-ID: <{{}}>\r\n\r\n"
            "DELETE /storage/v1/{} HTTP/1.1\r\n\r\n\r\n"
        )
        body = "".join(part.format(number, _path(key)) for number, key in enumerate(keys, 1)) + f"--{_BOUNDARY}--\r\n"
        headers = {"Content-Type": f"multipart/mixed; boundary={_BOUNDARY}"}
        answer = await self._send("POST", "/batch/storage/v1", {}, body.encode(), headers)
        statuses = [int(status) for status in _STATUS.findall(answer)]
        if len(statuses) != len(keys):
            raise ConnectionError(f"{len(statuses)} of {len(keys)} answers arrived")
        for key, status in zip(keys, statuses, strict=True):
            if status >= 400 and status != 404:
                raise _RefusedRequest(ErrorResponse(status, "", f"{key!r} was not deleted"))

    async def list(self, prefix: str, deep: bool, after: str, token: str) -> ListingPage:
        bucket, _, path = prefix.partition("/")
        params = {"prefix": path, **_PAGE} | ({} if deep else {"delimiter": "/"})
        if after:
            params["startOffset"] = after.partition("/")[2]
        if token:
            params["pageToken"] = token
        page = json.loads(await self._send("GET", f"/storage/v1/b/{quote(bucket)}/o", params))
        found = []
        for item in page.get("items", ()):
            modified_ms = int(datetime.fromisoformat(item["timeCreated"]).timestamp() * 1000)
            found.append(ObjectInfo(f"{bucket}/{item['name']}", int(item["size"]), modified_ms))
        return ListingPage(found, page.get("nextPageToken", ""))

    async def _upload(self, key: str, data: bytes, condition: Mapping[str, str]) -> None:
        bucket, _, path = key.partition("/")
        params = {"uploadType": "media", "name": path, **condition}
        headers = {"Content-Type": "application/octet-stream"}
        await self._send("POST", f"/upload/storage/v1/b/{quote(bucket)}/o", params, data, headers)

    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        files = await self._connected()
        session = await files._set_session()
        if files.credentials.credentials is None or files.credentials._credentials_valid(_REFRESH_S):
            signed = files._get_headers(headers)
        else:  # it asks for a token, and waits for it
            signed = await asyncio.to_thread(files._get_headers, headers)
        # As a file, which aiohttp sends in pieces: other requests go on meanwhile.
        content = io.BytesIO(data) if data is not None else None
        request = session.request(
            method, files._location + path, params=files._get_params(params), headers=signed, data=content
        )
        if (sends := SENDS.get()) is not None:
            sends.count += 1  # a POST is sent once: neither gcsfs's session nor aiohttp sends it again
        async with request as answer:
            body: bytes = await answer.read()
        if answer.status < 400:
            return body
        refusal = _read_refusal(answer.status, body)
        # Only a request for an object's bytes meets an absent object.
        if answer.status == 404 and ("alt" not in params or "bucket does not exist" in refusal.text):
            refusal = ErrorResponse(404, "NoSuchBucket")
        raise _RefusedRequest(refusal)

    async def _connected(self) -> Any:
        """Return gcsfs's file system, made at the first request: on a thread, as it looks for credentials for seconds.

        Requests that are given up meanwhile leave it to those that follow.
        """
        if self._making is None:
            self._making = asyncio.ensure_future(asyncio.to_thread(_make, self._storage))
        making = self._making
        try:
            return await asyncio.shield(making)
        finally:
            if self._making is making and making.done() and (making.cancelled() or making.exception() is not None):
                self._making = None


def _path(key: str) -> str:
    bucket, _, path = key.partition("/")
    return f"b/{quote(bucket)}/o/{quote(path, safe='')}"


def _file_system() -> Any:
    # The classic file system: the other one asks for each bucket's kind, by a second client.
    from gcsfs.core import GCSFileSystem

    return GCSFileSystem


def _connect(storage: Mapping[str, Any], timeout_s: float) -> _GcsRequests:
    return _GcsRequests(storage)


def _make(storage: Mapping[str, Any]) -> Any:
    """Return gcsfs's file system.

    Raises:
        NoCredentials: there are none, or a file of them does not exist.
    """
    options = dict(storage)
    token = options.get("token")
    if isinstance(token, str) and token.lstrip().startswith("{"):
        options["token"] = json.loads(token)
    elif isinstance(token, str) and ("/" in token or token.endswith(".json")) and not os.path.exists(token):
        raise NoCredentials("storage.token names a file that does not exist")
    files = _file_system()(**options, skip_instance_cache=True, use_listings_cache=False)
    if token is None and files.credentials.credentials is None and files.on_google:
        raise NoCredentials("no credentials were found")
    return files


def _read_refusal(status: int, body: bytes) -> ErrorResponse:
    """Read an answer's reason and words: JSON, or plain text where the object's bytes were asked for."""
    text = body.decode(errors="replace").strip()
    try:
        error = json.loads(text)["error"]
        reasons = [str(one.get("reason", "")) for one in error.get("errors", ())]
        return ErrorResponse(status, (reasons or [""])[0], str(error.get("message", "")))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ErrorResponse(status, "", "" if text.startswith("<") else text[:300])


def _refusal(error: BaseException) -> ErrorResponse:
    return next((cause.refusal for cause in causes(error) if isinstance(cause, _RefusedRequest)), ErrorResponse())


GCS: Final = Cloud(
    file_system=_file_system,
    connect=_connect,
    refusal=_refusal,
    credentials=(
        "give the path of a service account's key file as storage.token or GOOGLE_APPLICATION_CREDENTIALS, log in by "
        "gcloud auth application-default login, or run where the machine has a service account"
    ),
    delete_batch=100,
    resends=False,
    texts=frozenset({"project", "endpoint_url"}),
)
