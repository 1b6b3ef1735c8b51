"""S3 and the servers that speak it, through s3fs: its own calls where its file-like ones would ask twice or cache."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sparktxn._engine.objectstore.cloud import Cloud, ErrorResponse, ListingPage, causes
from sparktxn._engine.objectstore.contract import ObjectInfo
from sparktxn._engine.objectstore.writehealth import SENDS
from sparktxn.errors import ConfigurationError

CONNECTIONS: Final = 32
"""How many requests a handle has under way at once."""
_DIRECTORY_BUCKET: Final = "--x-s3"
"""How the names of S3 Express's buckets end, whose listings have no order."""


class _S3Requests:
    def __init__(self, s3: Any) -> None:
        self._s3 = s3

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        bucket, _, path = key.partition("/")
        ranged = {} if end is None else {"Range": f"bytes={start}-{end - 1}"}
        try:
            answer = await self._s3._call_s3("get_object", Bucket=bucket, Key=path, **ranged)
        except Exception as error:
            refusal = _refusal(error)
            if refusal.status == 416:
                return b""
            if refusal.code != "NoSuchBucket" and (refusal.status == 404 or isinstance(error, FileNotFoundError)):
                return None
            raise
        async with answer["Body"] as body:
            data: bytes = await body.read()
        if len(data) != answer["ContentLength"]:
            raise ConnectionError(f"{len(data)} of {answer['ContentLength']} bytes arrived")
        return data

    async def create(self, key: str, data: bytes) -> None:
        await self._s3._pipe_file(key, data, mode="create")

    async def write(self, key: str, data: bytes) -> None:
        await self._s3._pipe_file(key, data)

    async def delete(self, keys: Sequence[str]) -> None:
        bucket = keys[0].partition("/")[0]
        objects = [{"Key": key.partition("/")[2]} for key in keys]
        answer = await self._s3._call_s3("delete_objects", Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
        for refused in answer.get("Errors", ()):
            raise OSError(f"{refused['Code']} for {refused['Key']!r}")

    async def list(self, prefix: str, deep: bool, after: str, token: str) -> ListingPage:
        bucket, _, path = prefix.partition("/")
        if bucket.endswith(_DIRECTORY_BUCKET):
            # They begin at no name, and their prefixes end with a slash: the caller takes what it asked for.
            after, path = "", path[: path.rfind("/") + 1]
        request = {"Bucket": bucket, "Prefix": path} | ({} if deep else {"Delimiter": "/"})
        if after:
            request["StartAfter"] = after.partition("/")[2]
        if token:
            request["ContinuationToken"] = token
        page = await self._s3._call_s3("list_objects_v2", **request)
        found = [
            ObjectInfo(f"{bucket}/{item['Key']}", item["Size"], int(item["LastModified"].timestamp() * 1000))
            for item in page.get("Contents", ())
        ]
        return ListingPage(found, page["NextContinuationToken"] if page.get("IsTruncated") else "")


def _file_system() -> Any:
    from s3fs import S3FileSystem

    return S3FileSystem


def _connect(storage: Mapping[str, Any], timeout_s: float) -> _S3Requests:
    options = dict(storage)
    config = {
        "connect_timeout": min(5.0, timeout_s),
        "read_timeout": min(20.0, timeout_s),
        "max_pool_connections": CONNECTIONS,
        "http_session_cls": _counting_session(),
        "retries": {"mode": "standard", "total_max_attempts": 3},
    }
    options["config_kwargs"] = config | options.get("config_kwargs", {})
    options["session"] = _aws_session(options.pop("profile", None))
    return _S3Requests(_file_system()(**options, skip_instance_cache=True, use_listings_cache=False))


@functools.cache
def _counting_session() -> type:
    """Return aiobotocore's session over one that counts each request into `SENDS`.

    It counts below the three layers that send a request again: s3fs, botocore, and aiohttp, which does so where a
    connection was lost. Should another version not use that session, nothing is counted. Each refusal then is one that
    may hide an earlier request without an answer.
    """
    from aiobotocore.httpsession import AIOHTTPSession
    from aiohttp import TraceConfig

    async def count(_: Any, __: Any, ___: Any) -> None:
        if (sends := SENDS.get()) is not None:
            sends.count += 1

    async def note(_: Any, __: Any, failed: Any) -> None:
        if (sends := SENDS.get()) is not None:
            sends.failed(failed.exception)

    trace = TraceConfig()
    trace.on_request_headers_sent.append(count)
    trace.on_request_exception.append(note)
    trace.freeze()

    class CountingSession(AIOHTTPSession):  # type: ignore[misc, unused-ignore]
        async def _get_session(self, proxy_url: str | None) -> Any:
            session = await super()._get_session(proxy_url)
            if trace not in session.trace_configs:
                session.trace_configs.append(trace)
            return session

    return CountingSession


@functools.cache
def _aws_session(profile: str | None) -> Any:
    """Return AWS's own chain of credentials. Shared: reading the service's description takes a tenth of a second."""
    from aiobotocore.session import AioSession

    session = AioSession(profile=profile)
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_timestamp)
    return session


def _timestamp(value: Any) -> datetime:
    """Return the time that an answer says, as botocore does, whose parser takes two thirds of the time of a listing."""
    from botocore.utils import parse_timestamp

    if isinstance(value, str) and value.endswith("Z"):
        return datetime.fromisoformat(value)
    parsed: datetime = parse_timestamp(value)
    return parsed


def found_credentials(profile: str | None) -> tuple[str | None, str | None, str | None]:
    """Return key, secret and token of a profile, or those that AWS's clients find without one; None if they find none.

    Raises:
        ConfigurationError: the profile does not exist, or its credentials cannot be had.
    """
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    try:
        found = Session(profile=profile).get_credentials()
        frozen = found.get_frozen_credentials() if found is not None else None
    except BotoCoreError as error:
        raise ConfigurationError(f"no credentials for S3 can be had: {error}") from None
    return (frozen.access_key, frozen.secret_key, frozen.token) if frozen is not None else (None, None, None)


def _refusal(error: BaseException) -> ErrorResponse:
    for cause in causes(error):
        answer = getattr(cause, "response", None)
        if isinstance(answer, Mapping):
            status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            said = answer.get("Error", {})
            code, text = str(said.get("Code", "")), str(said.get("Message", ""))
            return ErrorResponse(int(status), code, "" if text == code else text)
    return ErrorResponse()


S3: Final = Cloud(
    file_system=_file_system,
    connect=_connect,
    refusal=_refusal,
    credentials=(
        "give storage.key and storage.secret, a profile of ~/.aws/credentials as storage.profile or AWS_PROFILE, the "
        "environment's AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where the machine has a role"
    ),
    delete_batch=1000,
    resends=True,
    texts=frozenset({"key", "secret", "token", "endpoint_url", "profile"}),
    names={"session": "profile"},  # s3fs gets a session of ours, with the profile of this name
)
