"""Objects in a remote store, through fsspec: the only module that knows it.

Three layers of client below us retry on their own, and no setting stops it. Measured: one create on a black-holed
connection was 50 requests in 40 s. So a create's outcome is read from the response under the exception, never from its
Python type, and "exists" may be our own earlier attempt. Each request has a hard deadline here: the request time-out,
or the deadline of the public call that makes it. A request that is given up is cancelled, which closes its connection.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import logging
import re
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

import fsspec
from fsspec.asyn import AsyncFileSystem

from sparktxn.config.values import boolean
from sparktxn.errors import ConfigurationError, StoreUnavailable, did_you_mean
from sparktxn.objectstore.contract import (
    ObjectInfo,
    PutOutcome,
    check_time,
    checked_data,
    checked_object_name,
    checked_prefix,
    no_time,
)
from sparktxn.objectstore.uri import StoreUri
from sparktxn.process.clock import Clock, Deadline, acquired_in_time, governing_deadline
from sparktxn.process.fork import ForkGuard

__all__ = ["RemoteStore"]

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

# Schemes whose fsspec file system sends the store a condition with a create, and what installs it. The others look
# first and then write (two writers both win), or are not known to us to do better.
_ATOMIC_CREATE: Final = {
    "s3": "pip install 'sparktxn[s3]'",
    "gs": "pip install gcsfs",
    "abfs": "pip install adlfs",
    "az": "pip install adlfs",
}
_OURS: Final = frozenset({"asynchronous", "loop", "skip_instance_cache", "use_listings_cache", "self", "kwargs"})
_NO_CREDENTIALS: Final = {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"}
_WHERE_CREDENTIALS: Final = (
    "give storage.key and storage.secret, a profile of ~/.aws/credentials as storage.profile or AWS_PROFILE, the "
    "environment's AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where the machine has a role"
)
_SECRET: Final = re.compile(r"key|secret|token|password|credential|sas|connection_string", re.IGNORECASE)
_TRANSIENT_STATUS: Final = frozenset({408, 429, 500, 502, 503, 504})
_TRANSIENT_ERRORS: Final = frozenset(
    {"HTTPClientError", "ClientConnectionError", "ClientPayloadError", "IncompleteRead"}
)
_CONNECTIONS: Final = 32
_DELETE_BATCH: Final = 1000
_LOOP_GRACE_S: Final = 1.0
"""How long a caller waits after its time for the event loop, which ends the request itself, before it gives that up."""


class RemoteStore:
    """Objects below ``scheme://bucket/prefix``. Connects at the first request.

    Raises:
        ConfigurationError: the scheme is unknown or has no atomic create, or its package is missing. Or its file system
            does not take a ``storage.*`` setting.
    """

    probe_is_cheap = False

    def __init__(
        self, address: StoreUri, storage: Mapping[str, Any], *, request_timeout_s: float, clock: Clock
    ) -> None:
        self.uri = str(address)
        file_system = _file_system_class(address.scheme)
        self._scheme = address.scheme
        self._storage = _parsed_storage(file_system, storage)
        self._secrets = sorted(_secrets(storage), key=len, reverse=True)
        self._make = file_system
        self._base = address.location + "/"
        self._timeout_s = request_timeout_s
        self._clock = clock
        self._lock = threading.Lock()
        self._fork = ForkGuard()
        self._requests: _Requests | None = None

    def __repr__(self) -> str:
        return f"RemoteStore({self.uri!r})"

    def get(self, name: str) -> bytes | None:
        """Return the object's bytes, or None; one request."""
        return self.get_many([name])[0]

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        """Return `get` of each name, in parallel."""
        requests, keys = self._connected(), [self._key(name) for name in names]
        return [*self._ask("read", keys, requests.get)]

    def get_range(self, name: str, start: int, end: int) -> bytes | None:
        """Return bytes `start` to `end`, or None."""
        requests = self._connected()
        (data,) = self._ask("read", [self._key(name)], lambda key: requests.get(key, start, max(end, start + 1)))
        return data if data is None or end > start else b""

    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        """Create the object if the name is free; answers within `timeout_s`, and the store's request timeout."""
        requests, key = self._connected(), self._key(name)
        checked_data(name, data)
        check_time("create", f"{self._scheme}://{key}")
        patience = _Patience(self._clock, self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s))

        async def create() -> None:
            await asyncio.wait_for(requests.create(key, data), patience.request_s())

        try:
            self._wait(create, patience.request_s())
        except Exception as error:  # noqa: BLE001 - whatever a client raises, the object may be there
            outcome = _outcome(error)
            if outcome is PutOutcome.UNKNOWN:
                logger.warning("creating %s: %s; reading it back decides", key, self._reason(error, patience))
            return outcome
        return PutOutcome.CREATED

    def put(self, name: str, data: bytes) -> None:
        """Write the object, over an older one."""
        requests, key = self._connected(), self._key(name)
        checked_data(name, data)
        self._ask("write", [key], lambda key: requests.write(key, data))

    def list_names(self, folder: str, after: str = "") -> list[str]:
        """List the names of the objects directly in `folder` that sort after `after`."""
        return [info.name for info in self._list(folder, deep=False, after=after) if info.name > after]

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        """Return all objects whose name starts with `prefix`, by name."""
        return sorted(info for info in self._list(prefix, deep=True, after=after) if info.name > after)

    def delete(self, names: Iterable[str]) -> None:
        """Delete the objects, many with one request where the store can."""
        requests, keys = self._connected(), [self._key(name) for name in names]
        for first in range(0, len(keys), _DELETE_BATCH):
            batch = keys[first : first + _DELETE_BATCH]
            self._ask("delete", batch[:1], lambda _, batch=batch: requests.delete(batch))  # type: ignore[misc]

    def make_durable(self, name: str) -> None:
        """Do nothing: what a remote store has answered is durable."""

    def contention_lock(self, while_waiting: Callable[[], None] | None = None) -> AbstractContextManager[None]:
        """Do nothing: writers may be on other machines."""
        return nullcontext()

    def close(self) -> None:
        """Free the connections."""
        self._requests = None

    def _key(self, name: str) -> str:
        return self._base + checked_object_name(name)

    def _list(self, prefix: str, *, deep: bool, after: str = "") -> Iterable[ObjectInfo]:
        requests, key = self._connected(), self._base + checked_prefix(prefix)
        start = self._base + checked_object_name(after) if after else ""
        (found,) = self._ask("list", [key], lambda key: requests.list(key, deep, start))
        return (info._replace(name=info.name[len(self._base) :]) for info in found if not info.name.endswith("/"))

    def _connected(self) -> _Requests:
        """Return the file system of this process, made at the first use.

        Raises:
            RuntimeError: the handle was opened before a fork: its connections and its event loop are the parent's.
        """
        if self._fork.forked():
            raise RuntimeError(f"the store {self.uri!r} was opened before a fork: open it again in this process")
        if not acquired_in_time(self._lock, self._timeout_s):
            raise StoreUnavailable(f"cannot connect to {self.uri!r}: another thread was connecting until the deadline")
        try:
            if self._requests is None:
                options = dict(self._storage)
                if self._scheme == "s3":
                    options["config_kwargs"] = self._s3_config() | options.get("config_kwargs", {})
                    options["session"] = _aws_session(options.pop("profile", None))
                made = self._make(**options, skip_instance_cache=True, use_listings_cache=False)
                self._requests = _S3Requests(made) if self._scheme == "s3" else _FsspecRequests(made)
            return self._requests
        finally:
            self._lock.release()

    def _s3_config(self) -> dict[str, Any]:
        return {
            "connect_timeout": min(5.0, self._timeout_s),
            "read_timeout": min(20.0, self._timeout_s),
            "max_pool_connections": _CONNECTIONS,
            "retries": {"mode": "standard", "total_max_attempts": 3},
        }

    def _ask(self, verb: str, keys: Sequence[str], request: Callable[[str], Awaitable[Answer]]) -> Sequence[Answer]:
        """Return the answers to requests that may be repeated, one for each key, side by side.

        Raises:
            StoreUnavailable: one failed for good, or time is up.
        """
        if not keys:
            return []
        what = f"{self._scheme}://{keys[0]}"
        check_time(verb, what)
        patience = _Patience(self._clock, self._timeout_s)
        room = asyncio.Semaphore(_CONNECTIONS)

        async def answer(key: str) -> Answer:
            async with room:
                return await self._answer(verb, key, request, patience)

        async def answers() -> Sequence[Answer]:
            return await asyncio.gather(*map(answer, keys))

        try:
            return self._wait(answers, patience.all_s(-(-len(keys) // _CONNECTIONS)))
        except TimeoutError as error:
            raise StoreUnavailable(f"cannot {verb} {what}: {self._reason(error, patience)}") from error

    def _wait(self, work: Callable[[], Coroutine[Any, Any, Answer]], limit_s: float) -> Answer:
        """Run `work`, which keeps `limit_s` by itself, on fsspec's event loop and wait for it.

        Raises:
            TimeoutError: the event loop did not get to it in time.
        """
        future: Future[Answer] = asyncio.run_coroutine_threadsafe(work(), fsspec.asyn.get_loop())
        try:
            return future.result(limit_s + _LOOP_GRACE_S)
        except BaseException:
            future.cancel()
            raise

    async def _answer(
        self, verb: str, key: str, request: Callable[[str], Awaitable[Answer]], patience: _Patience
    ) -> Answer:
        """Return the answer to a request that may be repeated: tried again while the failure may pass and time is left.

        Raises:
            StoreUnavailable: it failed for good, or time is up.
        """
        deadline = Deadline(self._clock, patience.request_s())
        pause_s = 0.05
        while True:
            try:
                return await asyncio.wait_for(request(key), deadline.remaining_s())
            except Exception as error:
                remaining_s = deadline.remaining_s() or 0.0
                if not _is_transient(error) or remaining_s <= pause_s:
                    reason = self._reason(error, patience)
                    raise StoreUnavailable(f"cannot {verb} {self._scheme}://{key}: {reason}") from error
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 2.0)

    def _reason(self, error: BaseException, patience: _Patience) -> str:
        """Return what went wrong, in words that hold no secret."""
        if isinstance(error, TimeoutError | asyncio.TimeoutError):
            return patience.no_answer()
        code, status = _response(error)
        text = f"{code} (HTTP {status})" if status else f"{type(error).__name__}: {error}"
        if any(type(cause).__name__ in _NO_CREDENTIALS for cause in _chain(error)):
            text += f": {_WHERE_CREDENTIALS}"
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


class _Patience:
    """How long one call of a store may wait: the request time-out, or less if a deadline governs the caller's thread.

    Made on the caller's thread; the event loop asks it.
    """

    __slots__ = ("_clock", "_deadline", "_started_s", "_timeout_s")

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._deadline = governing_deadline()
        self._started_s = clock.monotonic_s()

    def request_s(self) -> float:
        """Return seconds for a request that begins at this moment."""
        remaining_s = self._deadline.remaining_s() if self._deadline is not None else None
        return self._timeout_s if remaining_s is None else min(self._timeout_s, remaining_s)

    def all_s(self, rounds: int) -> float:
        """Return seconds for requests in `rounds` that follow each other."""
        remaining_s = self._deadline.remaining_s() if self._deadline is not None else None
        return rounds * self._timeout_s if remaining_s is None else min(rounds * self._timeout_s, remaining_s)

    def no_answer(self) -> str:
        """Say for how long an answer was waited for, and whose limit that was."""
        waited_s = self._clock.monotonic_s() - self._started_s
        if self._deadline is not None and self._deadline.passed():
            return f"no answer in {waited_s:.1f} s, and {no_time(self._deadline.seconds)}"
        return f"no answer in {self._timeout_s:g} s"


class _Requests(Protocol):
    """Single requests to a store; keys are ``bucket/prefix/name``. Failures are the client's own exceptions."""

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        """Return the object's bytes, or those from `start` to `end`, or None if it does not exist."""

    async def create(self, key: str, data: bytes) -> None:
        """Send a create with the condition that the key is free."""

    async def write(self, key: str, data: bytes) -> None:
        """Write over whatever is there."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete; absent keys are no error."""

    async def list(self, prefix: str, deep: bool, after: str = "") -> Sequence[ObjectInfo]:
        """Return all objects (by key) that begin with `prefix`; unless `deep`, not those in folders below it.

        Those up to key `after` may be left out, where the store can.
        """


class _S3Requests:
    """S3, through s3fs: its own calls where its file-like ones would ask twice or cache."""

    def __init__(self, s3: Any) -> None:
        self._s3 = s3

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        bucket, _, path = key.partition("/")
        ranged = {} if end is None else {"Range": f"bytes={start}-{end - 1}"}
        try:
            answer = await self._s3._call_s3("get_object", Bucket=bucket, Key=path, **ranged)
        except Exception as error:
            code, status = _response(error)
            if status == 416:
                return b""
            if code != "NoSuchBucket" and (status == 404 or isinstance(error, FileNotFoundError)):
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

    async def list(self, prefix: str, deep: bool, after: str = "") -> Sequence[ObjectInfo]:
        bucket, _, path = prefix.partition("/")
        request = {"Bucket": bucket, "Prefix": path} | ({} if deep else {"Delimiter": "/"})
        if after:
            request["StartAfter"] = after.partition("/")[2]
        found: list[ObjectInfo] = []
        while True:
            page = await self._s3._call_s3("list_objects_v2", **request)
            for item in page.get("Contents", ()):
                modified_ms = int(item["LastModified"].timestamp() * 1000)
                found.append(ObjectInfo(f"{bucket}/{item['Key']}", item["Size"], modified_ms))
            if not page.get("IsTruncated"):
                return found
            request["ContinuationToken"] = page["NextContinuationToken"]


class _FsspecRequests:
    """Any other asynchronous fsspec file system whose create is atomic."""

    def __init__(self, file_system: AsyncFileSystem) -> None:
        self._files = file_system

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        try:
            data: bytes = await self._files._cat_file(key, start=start or None, end=end)
        except FileNotFoundError:
            return None
        return data

    async def create(self, key: str, data: bytes) -> None:
        await self._files._pipe_file(key, data, mode="create")

    async def write(self, key: str, data: bytes) -> None:
        await self._files._pipe_file(key, data)

    async def delete(self, keys: Sequence[str]) -> None:
        done = await asyncio.gather(*(self._files._rm_file(key) for key in keys), return_exceptions=True)
        for error in done:
            if isinstance(error, BaseException) and not isinstance(error, FileNotFoundError):
                raise error

    async def list(self, prefix: str, deep: bool, after: str = "") -> Sequence[ObjectInfo]:
        self._files.invalidate_cache()
        folder = prefix[: prefix.rfind("/")]
        depth = None if deep else 1
        try:
            found = await self._files._find(folder, maxdepth=depth, detail=True)
        except FileNotFoundError:
            return []
        infos = ((path.lstrip("/"), info) for path, info in found.items() if info["type"] == "file")
        return [ObjectInfo(path, info["size"], _modified_ms(info)) for path, info in infos if path.startswith(prefix)]


@functools.cache
def _aws_session(profile: str | None) -> Any:
    """Return AWS's own chain of credentials. Shared: reading the service's description takes a tenth of a second."""
    from aiobotocore.session import AioSession

    return AioSession(profile=profile)


def _modified_ms(info: Mapping[str, Any]) -> int:
    for field in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value = info.get(field)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1000)
    return 0


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and what it was raised from."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__


def _response(error: BaseException) -> tuple[str, int]:
    """Return (code, HTTP status) that the store has answered, ("", 0) if it has not."""
    for cause in _chain(error):
        answer = getattr(cause, "response", None)
        if isinstance(answer, Mapping):
            status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            return str(answer.get("Error", {}).get("Code", "")), int(status)
    return "", 0


def _outcome(error: BaseException) -> PutOutcome:
    """Return what a failed create says; 409 says "not written, try again", which the clients below have done."""
    code, status = _response(error)
    if status == 412 or code == "PreconditionFailed" or (not status and isinstance(error, FileExistsError)):
        return PutOutcome.EXISTS
    return PutOutcome.UNKNOWN


def _is_transient(error: BaseException) -> bool:
    _, status = _response(error)
    if status:
        return status in _TRANSIENT_STATUS
    return any(
        isinstance(cause, ConnectionError | TimeoutError)
        or any(kind.__name__ in _TRANSIENT_ERRORS for kind in type(cause).__mro__)
        for cause in _chain(error)
    )


def _file_system_class(scheme: str) -> Any:
    """Return fsspec's class for `scheme`.

    Raises:
        ConfigurationError: it is unknown, has no atomic create that we know of, or its package is missing.
    """
    known = {"file", "memory", "s3a", "gcs", *_ATOMIC_CREATE}
    if scheme not in _ATOMIC_CREATE:
        if scheme in fsspec.available_protocols():
            raise ConfigurationError(
                f"store URI scheme {scheme!r}: fsspec knows it, but it is not known to create an object only if it is "
                f"absent, and commits rest on that: expected one of {', '.join(sorted(known))}, or a path"
            )
        suggestion = did_you_mean(scheme, known)
        raise ConfigurationError(
            f"store URI scheme {scheme!r} is unknown: expected one of {', '.join(sorted(known))}, or a path"
            f"{suggestion}. S3 needs the extra: {_ATOMIC_CREATE['s3']}"
        )
    try:
        return fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        raise ConfigurationError(
            f"{scheme}:// stores need a package that is not installed ({error}): {_ATOMIC_CREATE[scheme]}"
        ) from None


def _parsed_storage(file_system: Any, storage: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``storage.*`` settings in the types that `file_system` takes; from Spark and files they come as text.

    Raises:
        ConfigurationError: it takes no such setting, or the text is not of its type.
    """
    takes = {
        name: parameter.default
        for kind in file_system.__mro__
        for name, parameter in inspect.signature(kind.__init__).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD and name not in _OURS
    }
    if "session" in takes:  # s3fs: it gets one of ours, with the profile of this name
        takes["profile"] = takes.pop("session")
    for name in storage:
        if name not in takes:
            nearest = did_you_mean(f"storage.{name}", [f"storage.{taken}" for taken in takes])
            raise ConfigurationError(f"unknown setting 'storage.{name}'{nearest}")
    return {name: _parsed_value(f"storage.{name}", value, takes[name]) for name, value in storage.items()}


def _parsed_value(name: str, value: Any, default: Any) -> Any:
    if not isinstance(value, str):
        return value
    if isinstance(default, bool):
        try:
            return boolean(name, value)
        except ConfigurationError:
            raise ConfigurationError(f"setting {name!r} is not a boolean: expected true or false") from None
    if name.endswith("_kwargs"):
        # The value is never repeated in the error: there may be a secret in it.
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            raise ConfigurationError(f'setting {name!r} is not a JSON object: expected one such as {{"a": 1}}')
        return parsed
    return value


def _secrets(storage: Mapping[str, Any], *, inside_secret: bool = False) -> Iterator[str]:
    """Yield the values that must not be shown."""
    for name, value in storage.items():
        secret = inside_secret or _SECRET.search(str(name)) is not None
        if isinstance(value, str) and value and secret:
            yield value
        elif isinstance(value, Mapping):
            yield from _secrets(value, inside_secret=secret)
