"""Objects in a remote store, through fsspec and its clients, with secrets hidden. What differs by cloud is a `Cloud`.

Three layers of client below us on S3 retry on their own, and no setting stops it. Measured: one create on a black-holed
connection was 50 requests in 40 s. So a create's outcome is read from the response under the exception, never from its
Python type, and "exists" may be our own earlier attempt. Each request has a hard deadline here: the request time-out,
or the deadline of the public call that makes it. A request that is given up is cancelled, which closes its connection.
"""

from __future__ import annotations

import asyncio
import base64
import html
import inspect
import json
import re
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

import fsspec

from sparktxn._engine.objectstore.azure import AZURE
from sparktxn._engine.objectstore.cloud import Cloud, CloudRequests, ErrorResponse, ListingPage, causes
from sparktxn._engine.objectstore.contract import (
    ObjectInfo,
    PutAnswer,
    PutOutcome,
    check_time,
    checked_data,
    checked_object_name,
    checked_prefix,
    meaning_of,
    no_time,
)
from sparktxn._engine.objectstore.gcs import GCS
from sparktxn._engine.objectstore.s3 import CONNECTIONS, S3
from sparktxn._engine.objectstore.uri import EXTRAS, StoreUri
from sparktxn._engine.objectstore.writehealth import SENDS, Sends, Writes
from sparktxn._foundation.config.values import boolean
from sparktxn._foundation.process.clock import Clock, Deadline, acquired_in_time, governing_deadline
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.process.handles import ForkGuard
from sparktxn.errors import ConfigurationError, StoreUnavailable, did_you_mean, extra_to_install
from sparktxn.metrics.process import PROCESS

# Texts of clients and servers without the secrets of a store's settings, in whichever form they hold them.

SECRET_CHARACTERS_MIN: Final = 4
"""Shorter values are not secrets: they are in too many words."""

_ANYWHERE: Final = 16
"""From so many characters on a secret is hidden inside a longer word, too: no other text has it by chance."""

_NAME: Final = re.compile(r"key|secret|token|password|credential|sas|connection_string", re.IGNORECASE)
_PART: Final = re.compile(r"(?:AccountKey|SharedAccessSignature|sig)=([^;&]+)", re.IGNORECASE)
_ENCODED: Final = 6
"""Base64 of fewer bytes is too short to be known again."""

# A name such as latest-events or test.example is one word; a full stop at its end is none of it. What an escape
# before a word ends with is not part of the word.
_BEFORE: Final = r"(?:(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrt])|(?<![\w-])(?<!\w\.))"
_AFTER: Final = r"(?![\w-])(?!\.\w)"
_HIDDEN: Final = "***"


class SecretMask:
    """Hides the secrets of ``storage.*`` settings; `shown` are names that a text has to keep, such as a bucket's."""

    def __init__(self, storage: Mapping[str, Any], shown: Iterable[str] = ()) -> None:
        self._secrets = {
            one for found in _secrets(storage) for one in _forms(found) if len(one) >= SECRET_CHARACTERS_MIN
        }
        self._kept = {name for name in (*shown, *_endpoints(storage)) if name}

    def hidden(self, text: str) -> str:
        """Return `text` with ``***`` in place of each secret."""
        if not self._secrets:
            return text
        return self._pattern.sub(lambda found: found[0] if found.lastgroup else _HIDDEN, text)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """What finds secrets, and names in groups; made for the first error, as a long key takes a while."""
        rows = [(len(one), 1, _pattern(one)) for one in self._secrets]
        rows += [
            (len(one), 2, f"(?P<kept{number}>{_BEFORE}{re.escape(one)}{_AFTER})")
            for number, one in enumerate(self._kept)
        ]
        # At one place the longer one is meant, and of two that are equal the name.
        ordered = [pattern for _, _, pattern in sorted(rows, reverse=True)]
        ordered += [pattern for one in self._secrets for pattern in _base64_patterns(one)]
        return re.compile("|".join(ordered))


def _secrets(storage: Mapping[str, Any], *, inside_secret: bool = False) -> Iterator[str]:
    """Yield the values that must not be shown."""
    for name, value in storage.items():
        secret = inside_secret or _NAME.search(str(name)) is not None
        if isinstance(value, str) and value:
            if secret:
                yield value
                yield from _PART.findall(value)
            if "://" in value:
                user, separator, _ = value.partition("://")[2].partition("/")[0].rpartition("@")
                yield from (unquote(one) for one in user.split(":") if separator)
        elif isinstance(value, Mapping):
            yield from _secrets(value, inside_secret=secret)
        elif secret and isinstance(value, list | tuple):
            yield from _secrets({str(at): one for at, one in enumerate(value)}, inside_secret=True)


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret, and its long lines: a text may hold one of them alone."""
    yield secret
    yield secret.strip()
    yield from (line.strip() for line in secret.splitlines() if len(line.strip()) >= _ANYWHERE)


def _endpoints(storage: Mapping[str, Any]) -> Iterator[str]:
    """Yield the addresses of servers in the settings, which are not secrets, without users and passwords."""
    for name, value in storage.items():
        if isinstance(value, Mapping):
            yield from _endpoints(value)
        elif isinstance(value, str) and _NAME.search(str(name)) is None and "://" in value:
            yield value if "@" not in value else ""
            try:
                parts = urlsplit(value)
                yield parts.netloc.rpartition("@")[2]
                yield parts.hostname or ""
            except ValueError:
                continue


def _pattern(secret: str) -> str:
    """Return what finds a secret as it is, and with characters as escapes of URLs, of Python, JSON and XML."""
    found = "".join(map(_character, secret))
    if len(secret) >= _ANYWHERE:
        return found
    before, after = (
        one if secret[at].isalnum() or secret[at] in "_-" else "" for at, one in ((0, _BEFORE), (-1, _AFTER))
    )
    return f"{before}{found}{after}"


def _character(one: str) -> str:
    data = one.encode("utf-8", "surrogatepass")
    spellings = {one, html.escape(one), repr(one)[1:-1], one.encode("unicode_escape").decode()}
    if one in '"\\/':
        spellings.add(f"\\{one}")
    if one == " ":
        spellings.add("+")
    escapes = "".join(f"%(?:25)*(?i:{byte:02x})" for byte in data)
    unicode_escape = "" if len(one.encode("utf-16-be", "surrogatepass")) != 2 else rf"|\\u(?i:{ord(one):04x})"
    return f"(?:{'|'.join(sorted(map(re.escape, spellings), key=len, reverse=True))}|{escapes}{unicode_escape})"


def _base64_patterns(secret: str) -> Iterator[str]:
    """Yield what finds words of base64 that hold a secret, wherever it begins in their bytes."""
    data = secret.encode("utf-8", "surrogatepass")
    if len(data) < _ENCODED:
        return
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        # What shares its bits with the bytes around it is left out.
        core = encoded[-(-before * 8 // 6) : len(encoded) - (1 if (before + len(data)) % 3 else 0)]
        for spelling in {core, core.replace("+", "-").replace("/", "_")}:
            yield rf"[\w+/-]*{re.escape(spelling)}[\w+/=-]*"


Answer = TypeVar("Answer")

_CLOUDS: Final[Mapping[str, Cloud]] = {"s3": S3, "gs": GCS, "abfs": AZURE}
_OURS: Final = frozenset({"asynchronous", "loop", "skip_instance_cache", "use_listings_cache", "self", "kwargs"})
_NO_CREDENTIALS: Final = frozenset(
    {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"}  # AWS
    | {"NoCredentials", "DefaultCredentialsError", "RefreshError"}  # Google
    | {"ClientAuthenticationError"}  # Azure
)
_NO_BUCKET: Final = frozenset({"NoSuchBucket", "ContainerNotFound"})
_RIGHTS: Final = "check the credentials and their rights: readers get and list, writers put, maintenance deletes"
_TOO_MANY: Final = 429
_TRANSIENT_STATUS: Final = frozenset({408, _TOO_MANY, 500, 502, 503, 504})
_TRANSIENT_ERRORS: Final = frozenset(
    {"HTTPClientError", "ClientConnectionError", "ClientPayloadError", "IncompleteRead"}
    | {"ServiceRequestError", "ServiceResponseError"}  # Azure
)
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
        self._cloud = _CLOUDS[address.scheme]
        self._scheme = address.scheme
        self._storage = parsed_storage(address.scheme, storage)
        bucket = address.location.partition("/")[0]
        self._mask = SecretMask(self._storage, (self.uri, address.location, bucket))
        self._base = address.location + "/"
        self._timeout_s = request_timeout_s
        self._clock = clock
        self._lock = threading.Lock()
        self._fork = ForkGuard()
        self._requests: CloudRequests | None = None
        self.writes = Writes(self.uri, clock)

    def __repr__(self) -> str:
        return f"RemoteStore({self.uri!r})"

    def get(self, name: str) -> bytes | None:
        """Return the object's bytes, or None; one request."""
        return self.get_many([name])[0]

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        """Return `get` of each name, in parallel."""
        requests, keys = self._connected(), [self._key(name) for name in names]
        found = [*self._ask("read", keys, requests.get)]
        PROCESS.get.note(sum(len(data) for data in found if data is not None), count=len(found))
        return found

    def get_range(self, name: str, start: int, end: int) -> bytes | None:
        """Return bytes `start` to `end`, or None."""
        requests = self._connected()
        (data,) = self._ask("read", [self._key(name)], lambda key: requests.get(key, start, max(end, start + 1)))
        PROCESS.get.note(0 if data is None else len(data))
        return data if data is None or end > start else b""

    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        """Create the object if the name is free; answers within `timeout_s`, and the store's request timeout.

        Raises:
            StoreUnavailable: nothing was sent, or the one request that was has been refused: nothing was written.
        """
        requests, key = self._connected(), self._key(name)
        checked_data(name, data)
        check_time("create", f"{self._scheme}://{key}")
        patience = _Patience(self._clock, self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s))
        PROCESS.put.note(len(data))
        sends, tries = Sends(self.writes, self._mask.hidden), 0

        async def once() -> None:
            nonlocal tries
            tries += 1
            await requests.create(key, data)

        async def create() -> None:
            SENDS.set(sends)
            await self._repeated(once, patience, self._may_be_sent_again)

        try:
            self._wait(create, patience.request_s())
        except Exception as error:  # noqa: BLE001 - whatever a client raises, the object may be there
            reason = f"cannot create {self._scheme}://{key}: {self._reason(error, patience)}"
            if isinstance(error, TimeoutError) and sends.said:
                reason = f"{reason}: {sends.said}"
            return self._failed_create(error, reason, len(data), is_only_one=sends.count == tries == 1)
        self.writes.succeeded(len(data))
        return PutOutcome.CREATED

    def _failed_create(self, error: Exception, reason: str, size_bytes: int, *, is_only_one: bool) -> PutOutcome:
        """Return what a failed create says; another 409 says "not written, try again", as clients have done.

        Raises:
            StoreUnavailable: it was refused, and `is_only_one`: no other request of this put is without an answer.
        """
        answer = _meaning(self._cloud.refusal(error), error)
        if answer is PutAnswer.TAKEN:
            return PutOutcome.EXISTS
        self.writes.failed(reason, size_bytes, is_refused=answer is PutAnswer.REFUSED)
        if is_only_one and answer is not PutAnswer.UNANSWERED:
            raise StoreUnavailable(reason, transient=answer is not PutAnswer.REFUSED) from error
        log_event("create_unknown", reason=reason)
        return PutOutcome.UNKNOWN

    def put(self, name: str, data: bytes) -> None:
        """Write the object, over an older one; a store that says that this is too often is not asked again."""
        requests, key = self._connected(), self._key(name)
        checked_data(name, data)
        PROCESS.put.note(len(data))
        try:
            self._ask("write", [key], lambda key: requests.write(key, data))
        except StoreUnavailable as error:
            # Of hints that are written too often, and of a group's signs of life, the next one is as good.
            self.writes.raised(error, len(data))
            raise
        self.writes.succeeded(len(data))

    def list_names(self, folder: str, after: str = "") -> list[str]:
        """List the names of the objects directly in `folder` that sort after `after`."""
        return [info.name for info in self._list(folder, deep=False, after=after) if info.name > after]

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        """Return all objects whose name starts with `prefix`, by name."""
        return sorted(info for info in self._list(prefix, deep=True, after=after) if info.name > after)

    def delete(self, names: Iterable[str]) -> None:
        """Delete the objects, many with one request where the store can."""
        requests, keys = self._connected(), [self._key(name) for name in names]
        for first in range(0, len(keys), self._cloud.delete_batch):
            batch = keys[first : first + self._cloud.delete_batch]
            PROCESS.delete.note()
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

    def _list(self, prefix: str, *, deep: bool, after: str = "") -> Iterator[ObjectInfo]:
        """Yield objects as the store lists them. Each page has the request time-out: it is what a store answers."""
        requests, key = self._connected(), self._base + checked_prefix(prefix)
        start = self._base + checked_object_name(after) if after else ""
        PROCESS.list.note()
        page: ListingPage | None = None
        while page is None or page.token:
            token = "" if page is None else page.token
            (page,) = self._ask("list", [key], partial(requests.list, deep=deep, after=start, token=token))
            for info in page.objects:
                if info.name.startswith(key) and not info.name.endswith("/"):
                    yield info._replace(name=info.name[len(self._base) :])

    def _connected(self) -> CloudRequests:
        """Return the requests of this process, made at the first use.

        Raises:
            RuntimeError: the handle was opened before a fork: its connections and its event loop are the parent's.
            StoreUnavailable: the settings do not say how to connect.
        """
        if self._fork.forked():
            raise RuntimeError(f"the store {self.uri!r} was opened before a fork: open it again in this process")
        if not acquired_in_time(self._lock, self._timeout_s):
            raise StoreUnavailable(f"cannot connect to {self.uri!r}: another thread was connecting until the deadline")
        try:
            if self._requests is None:
                try:
                    self._requests = self._cloud.connect(self._storage, self._timeout_s)
                except ValueError as error:
                    reason = f"{self._mask.hidden(str(error))}: {self._cloud.credentials}"
                    raise StoreUnavailable(f"cannot connect to {self.uri!r}: {reason}") from error
            return self._requests
        finally:
            self._lock.release()

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
        room = asyncio.Semaphore(CONNECTIONS)

        async def answer(key: str) -> Answer:
            async with room:
                return await self._answer(verb, key, request, patience)

        async def answers() -> Sequence[Answer]:
            return await asyncio.gather(*map(answer, keys))

        try:
            return self._wait(answers, patience.all_s(-(-len(keys) // CONNECTIONS)))
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

        def may_pass(error: BaseException) -> bool:
            refusal = self._cloud.refusal(error)
            # What is overwritten in place decides nothing: it is left for later where the store asks for that.
            return _is_transient(refusal, error) and not (verb == "write" and refusal.status == _TOO_MANY)

        try:
            return await self._repeated(lambda: request(key), patience, may_pass)
        except Exception as error:
            reason = self._reason(error, patience)
            is_refused = _meaning(self._cloud.refusal(error), error) is PutAnswer.REFUSED
            raise StoreUnavailable(
                f"cannot {verb} {self._scheme}://{key}: {reason}", transient=not is_refused
            ) from error

    async def _repeated(
        self, request: Callable[[], Awaitable[Answer]], patience: _Patience, may_pass: Callable[[BaseException], bool]
    ) -> Answer:
        """Return the answer to a request, which is sent again while its failure may pass and time is left."""
        deadline = Deadline(self._clock, patience.request_s())
        pause_s = 0.05
        while True:
            try:
                return await asyncio.wait_for(request(), deadline.remaining_s())
            except Exception as error:
                remaining_s = deadline.remaining_s() or 0.0
                if remaining_s <= pause_s or not may_pass(error):
                    raise
            PROCESS.request_retries.add()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 2.0)

    def _may_be_sent_again(self, error: BaseException) -> bool:
        """Return whether a create that failed is sent again here: an own object then answers that it exists."""
        return not self._cloud.resends and _is_transient(self._cloud.refusal(error), error)

    def _reason(self, error: BaseException, patience: _Patience) -> str:
        """Return what went wrong, in words that hold no secret."""
        if isinstance(error, TimeoutError | asyncio.TimeoutError):
            return patience.no_answer()
        refusal = self._cloud.refusal(error)
        if refusal.status:
            parts = [f"{refusal.code} (HTTP {refusal.status})".lstrip(), refusal.text]
        else:
            # Some clients say in more lines what they have tried.
            said = self._mask.hidden(str(error))
            parts = [f"{type(error).__name__}: {said.partition(chr(10))[0].rstrip('.')}"]
        kinds = {type(cause).__name__ for cause in causes(error)}
        if refusal.status == 401 or (not refusal.status and not kinds.isdisjoint(_NO_CREDENTIALS)):
            parts.append(self._cloud.credentials)
        elif refusal.status == 403:
            parts.append(_RIGHTS)
        elif refusal.code in _NO_BUCKET:
            parts.append("create it first")
        return self._mask.hidden(": ".join(part for part in parts if part))


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


def _meaning(refusal: ErrorResponse, error: BaseException) -> PutAnswer:
    """Return what a failed request says of its object."""
    if not refusal.status and isinstance(error, FileExistsError):
        return PutAnswer.TAKEN
    return meaning_of(refusal.status, refusal.code)


def _is_transient(refusal: ErrorResponse, error: BaseException) -> bool:
    if refusal.status:
        return refusal.status in _TRANSIENT_STATUS
    return any(
        isinstance(cause, ConnectionError | TimeoutError)
        or any(kind.__name__ in _TRANSIENT_ERRORS for kind in type(cause).__mro__)
        for cause in causes(error)
    )


def parsed_storage(scheme: str, storage: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``storage.*`` settings in the types that the cloud takes; from Spark and files they come as text.

    Raises:
        ConfigurationError: its package is missing. Or its cloud takes no such setting, or the text is not of its type.
    """
    cloud = _CLOUDS[scheme]
    try:
        file_system = cloud.file_system()
    except ImportError as error:
        raise ConfigurationError(
            f"{scheme}:// stores need a package that is not installed ({error}): {extra_to_install(EXTRAS[scheme])}"
        ) from None
    takes = {
        cloud.names.get(name, name): isinstance(parameter.default, bool) or parameter.annotation in (bool, "bool")
        for kind in file_system.__mro__
        for name, parameter in inspect.signature(kind.__init__).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD and name not in _OURS
    }
    for name in storage:
        if name not in takes:
            nearest = did_you_mean(f"storage.{name}", [f"storage.{taken}" for taken in takes])
            raise ConfigurationError(f"unknown setting 'storage.{name}'{nearest}")
    for name, value in storage.items():
        _check_type(f"storage.{name}", value, bool if takes[name] else str if name in cloud.texts else object)
    return {name: _parsed_value(f"storage.{name}", value, takes[name]) for name, value in storage.items()}


def _check_type(name: str, value: Any, kind: type) -> None:
    """Refuse a value of another type; text is of every type. An error never shows the value: it may be a secret."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            reason = f"setting {name!r} has half of a surrogate pair: expected text that UTF-8 can hold"
            raise ConfigurationError(reason) from None
    elif value is not None and (not isinstance(value, kind) or isinstance(value, bytes | bytearray | memoryview)):
        expected = "true or false" if kind is bool else "text"
        raise ConfigurationError(f"setting {name!r} is of the type {type(value).__name__}: expected {expected}")


def _parsed_value(name: str, value: Any, is_boolean: bool) -> Any:
    if not isinstance(value, str):
        return value
    if is_boolean:
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
