"""One client's connection: frames in, answers out in the order of the requests; and which function serves a request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sparktxn._foundation.process.events import log_event
from sparktxn._programs.gateway.broker import Broker
from sparktxn._programs.gateway.gatewaysettings import REQUEST_BYTES_MAX
from sparktxn._programs.gateway.handlers import (
    cluster,
    fetches,
    groupadmin,
    groupmembership,
    notserved,
    offsetrequests,
    producing,
    topicadmin,
    transactionadmin,
    transactionrequests,
)
from sparktxn._programs.gateway.requestmemory import SMALL_BYTES, Loan
from sparktxn._programs.gateway.security.access import Access
from sparktxn._programs.gateway.security.authentication import (
    AUTHENTICATING_BYTES_MAX,
    AUTHENTICATING_S,
    Authentication,
)
from sparktxn._programs.gateway.wire.wiremessages import (
    Answer,
    MalformedRequest,
    Request,
    bare_token,
    decode_request,
    encode_response,
)
from sparktxn.errors import StoreError

# Which requests this gateway serves, in which versions, and what answers them.

API_VERSIONS: Final = 18
_UNSUPPORTED_VERSION: Final = 35
_TRANSACTIONS: Final = "transaction.version"
_TRANSACTIONS_VERSION: Final = 2
_FEATURES_EPOCH: Final = 1
"""Which of two gateways' answers a client goes by: that with the greater number, once another version is added."""

Handler = Callable[[Broker, Request], Awaitable[Any]]


class Served(NamedTuple):
    """A request that is served: `handler` returns the answer. With `is_queued` it returns what gives it later.

    Then the connection's next request is begun before.
    """

    lowest: int
    highest: int
    handler: Handler
    is_queued: bool = False


async def api_versions(broker: Broker, request: Request) -> Answer:
    """Return which versions of which requests are served, and which transactions clients may use.

    A version of this request that is too high gets them, too.
    """
    broker.placement.note_asked_by(request.client_id)
    return {
        "error_code": 0 if request.body is not None else _UNSUPPORTED_VERSION,
        "api_keys": [
            {"api_key": key, "min_version": served.lowest, "max_version": served.highest}
            for key, served in sorted(SERVED.items())
        ],
        "supported_features": [{"name": _TRANSACTIONS, "min_version": 0, "max_version": _TRANSACTIONS_VERSION}],
        "finalized_features_epoch": _FEATURES_EPOCH,
        "finalized_features": [
            {
                "name": _TRANSACTIONS,
                "max_version_level": _TRANSACTIONS_VERSION,
                "min_version_level": _TRANSACTIONS_VERSION,
            }
        ],
    }


# None is below Kafka 4.0's: a client that knows a broker's age by one request takes the versions of all others from it.
SERVED: Final[Mapping[int, Served]] = MappingProxyType(
    {
        0: Served(0, 13, producing.produce, is_queued=True),  # 0 to 2 are announced, and not served, as by Kafka 4
        1: Served(4, 18, fetches.fetch),
        2: Served(1, 10, fetches.list_offsets),
        3: Served(0, 13, cluster.metadata),
        8: Served(2, 10, offsetrequests.offset_commit),
        9: Served(1, 10, offsetrequests.offset_fetch),
        10: Served(0, 6, cluster.find_coordinator),
        11: Served(0, 9, groupmembership.join_group),
        12: Served(0, 4, groupmembership.heartbeat),
        13: Served(0, 5, groupmembership.leave_group),
        14: Served(0, 5, groupmembership.sync_group),
        15: Served(0, 6, groupadmin.describe_groups),
        16: Served(0, 5, groupadmin.list_groups),
        17: Served(0, 1, cluster.handshake),
        API_VERSIONS: Served(0, 4, api_versions),
        19: Served(2, 7, topicadmin.create_topics),
        20: Served(1, 6, topicadmin.delete_topics),
        21: Served(0, 2, topicadmin.delete_records),
        22: Served(0, 5, transactionrequests.init_producer_id),
        23: Served(2, 4, fetches.offset_for_leader_epoch),
        24: Served(0, 5, transactionrequests.add_partitions_to_txn),
        25: Served(0, 4, transactionrequests.add_offsets_to_txn),
        26: Served(0, 5, transactionrequests.end_txn),
        27: Served(1, 1, transactionadmin.write_txn_markers),
        28: Served(0, 5, transactionrequests.txn_offset_commit),
        29: Served(1, 3, cluster.describe_acls),
        30: Served(1, 3, cluster.create_acls),
        31: Served(1, 3, cluster.delete_acls),
        32: Served(1, 4, topicadmin.describe_configs),
        33: Served(0, 2, topicadmin.alter_configs),
        35: Served(1, 4, cluster.describe_log_dirs),
        36: Served(0, 2, cluster.authenticate),
        37: Served(0, 3, topicadmin.create_partitions),
        42: Served(0, 2, groupadmin.delete_groups),
        44: Served(0, 1, topicadmin.incremental_alter_configs),
        47: Served(0, 0, groupadmin.offset_delete),
        48: Served(0, 1, notserved.describe_client_quotas),
        49: Served(0, 1, notserved.alter_client_quotas),
        50: Served(0, 0, notserved.describe_scram_credentials),
        51: Served(0, 0, notserved.alter_scram_credentials),
        60: Served(0, 2, cluster.describe_cluster),
        61: Served(0, 0, transactionadmin.describe_producers),
        65: Served(0, 0, transactionadmin.describe_transactions),
        66: Served(0, 2, transactionadmin.list_transactions),
        68: Served(0, 1, groupmembership.consumer_group_heartbeat),
        69: Served(0, 1, groupmembership.consumer_group_describe),
        74: Served(0, 1, topicadmin.list_config_resources),
        75: Served(0, 0, topicadmin.describe_topic_partitions),
        76: Served(1, 1, notserved.share_group_heartbeat),
        77: Served(1, 1, notserved.share_group_describe),
        88: Served(0, 0, notserved.streams_group_heartbeat),
        89: Served(0, 0, notserved.streams_group_describe),
        90: Served(0, 0, notserved.describe_share_group_offsets),
        91: Served(0, 0, notserved.alter_share_group_offsets),
        92: Served(0, 0, notserved.delete_share_group_offsets),
    }
)


def highest_version(key: int) -> int:
    """Return the highest version of a request that is served; -1 if none is."""
    served = SERVED.get(key)
    return -1 if served is None else served.highest


_IN_FLIGHT_MAX: Final = 16
"""How many answers of a connection wait; Kafka's producers send at most 5 requests before the first is answered."""

_BYTES_PER_S_MIN: Final = 1_000_000
_READ_BYTES_MAX: Final = 1 << 18
_TLS_HANDSHAKE: Final = 0x1603
"""How TLS begins. As the size of a request it would have 352 MiB."""


class _Begun(NamedTuple):
    """A request that has arrived at `began_s`, and what gives its answer: None if it wants none.

    Its `size_bytes` are in memory until then, and the `loan` says so.
    """

    request: Request
    size_bytes: int
    loan: Loan
    began_s: float
    later: Coroutine[Any, Any, Answer | None]


class Connection:
    """Serves one client until it leaves, or sends what is not a request."""

    def __init__(
        self,
        broker: Broker,
        access: Access,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._broker = broker
        self._reader = reader
        self._writer = writer
        peer = writer.get_extra_info("peername")
        self._host = str(peer[0]) if peer else ""
        self._authentication = Authentication(access, broker.log.ids, broker.calls, broker.failed_logins, self._host)
        self._has_asked = False
        self._is_draining = False
        self._answers: asyncio.Queue[_Begun | None] = asyncio.Queue(_IN_FLIGHT_MAX)
        self._answering: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Answer requests until the client leaves; what it has sent is still answered."""
        answering = self._answering = asyncio.create_task(self._answer())
        try:
            async with asyncio.timeout(AUTHENTICATING_S):
                while self._authentication.is_pending and not (answering.done() or self._authentication.has_failed):
                    await self._receive(AUTHENTICATING_BYTES_MAX)
                    await self._answers.join()
            while not (answering.done() or self._authentication.has_failed):
                await self._receive(REQUEST_BYTES_MAX)
        except (asyncio.IncompleteReadError, ConnectionError):
            self._note_unknown("it has left without saying who it is")
        except TimeoutError:
            self._note_unknown(f"it has not said who it is within {AUTHENTICATING_S:.0f} s")
        except MalformedRequest as error:
            self._note_malformed(error)
        except StoreError as error:
            self._note_unanswered(error)
        except Exception:  # noqa: BLE001 - logged with its trace; no other client is to suffer
            log_event("gateway_request_failed", peer=self._writer.get_extra_info("peername"), exc_info=True)
        finally:
            if self._authentication.has_failed:
                self._broker.figures.note_refused("authentication")
            with suppress(asyncio.CancelledError):
                await self._answers.put(None)
                await answering
            self._drop_unanswered()
            self._writer.close()

    def _note_unknown(self, cause: str) -> None:
        """Note that it ends with a client that is not known. A probe has not tried to be."""
        if self._has_asked and not self._is_draining:
            self._authentication.end_unknown(cause)

    def _note_malformed(self, error: MalformedRequest) -> None:
        if self._authentication.is_pending:
            self._authentication.fail(str(error))
            return
        self._broker.figures.note_refused("malformed")
        log_event("gateway_request_malformed", peer=self._writer.get_extra_info("peername"), error=error)

    def _note_unanswered(self, error: StoreError) -> None:
        """Note a request whose answer has no place for a code: its client is left, connects again, and asks again."""
        log_event("gateway_request_unanswered", peer=self._writer.get_extra_info("peername"), error=error)

    def drain(self) -> None:
        """Take no more than what has arrived, and end once that is answered."""
        self._is_draining = True
        transport = self._writer.transport
        transport.set_protocol(_Deaf(transport.get_protocol()))
        self._reader.feed_eof()

    def abort(self) -> None:
        """Leave the client, whatever it has not been answered, or has not taken."""
        self._writer.transport.abort()
        if self._answering is not None:
            self._answering.cancel()
        self._drop_unanswered()

    def _drop_unanswered(self) -> None:
        while not self._answers.empty():
            begun = self._answers.get_nowait()
            if begun is not None:
                self._drop(begun)

    def _drop(self, begun: _Begun) -> None:
        """Give back what a request has that is not answered; what it has begun goes on."""
        begun.loan.end()
        begun.later.close()

    async def _receive(self, bytes_max: int) -> None:
        size_bytes = int.from_bytes(await self._reader.readexactly(4), signed=True)
        if size_bytes >> 16 == _TLS_HANDSHAKE:
            raise MalformedRequest("it begins TLS, and this gateway has no --tls-certificate")
        if not 0 < size_bytes <= bytes_max:
            raise MalformedRequest(f"a frame says that it has {size_bytes} bytes")
        loan = self._broker.memory.loan(size_bytes)
        try:
            frame = await self._frame(size_bytes, loan)
            began_s = self._broker.log.clock.monotonic_s()
            bare = self._authentication.takes_bare_tokens
            request = bare_token(frame) if bare else decode_request(frame, highest_version)
            self._broker.clients.note_request(self)
            later = await self._begun(request._replace(client_host=self._host))
            # Other gateways, which look whether this one answers, ask for the versions by their names.
            is_probe = request.key == API_VERSIONS and self._broker.placement.is_gateway(request.client_id)
            self._has_asked = self._has_asked or not is_probe
        except BaseException:
            loan.end()
            raise
        if not self._authentication.is_pending:
            self._broker.clients.note_known(self)
        begun = _Begun(request, size_bytes, loan, began_s, later)
        try:
            await self._answers.put(begun)
        except BaseException:
            self._drop(begun)
            raise

    async def _frame(self, size_bytes: int, loan: Loan) -> bytes:
        """Return what follows a frame's size, in memory that is lent.

        A large frame has its memory first, and all of it: frames that had a part of theirs would wait for each other.
        A small one has it once it has come, so that one which never comes takes nothing from others. A client that is
        not known yet has one frame at a time, and takes nothing for it either.
        """
        if size_bytes > SMALL_BYTES:
            await loan.take(size_bytes)
        parts: list[bytes] = []
        come_bytes = 0
        clock = asyncio.get_running_loop()
        limit_s = clock.time() + self._broker.settings.request_s
        while come_bytes < size_bytes:
            async with asyncio.timeout_at(limit_s + come_bytes / _BYTES_PER_S_MIN):
                part = await self._reader.read(min(size_bytes - come_bytes, _READ_BYTES_MAX))
            if not part:
                raise asyncio.IncompleteReadError(b"", size_bytes)
            parts.append(part)
            come_bytes += len(part)
        if size_bytes <= SMALL_BYTES and not self._authentication.is_pending:
            await loan.take(size_bytes)
        return b"".join(parts)

    async def _begun(self, request: Request) -> Coroutine[Any, Any, Answer | None]:
        if self._authentication.is_pending and request.key != API_VERSIONS:
            return _given(await self._authentication.answer(request))
        served = SERVED.get(request.key)
        if served is None or (request.body is None and request.key != API_VERSIONS):
            raise MalformedRequest(f"request {request.key} of version {request.version} is not served")
        if served.is_queued:
            later: Coroutine[Any, Any, Answer | None] = await served.handler(self._broker, request)
            return later  # awaited in its turn: what it waits for goes on without a task of its own
        return _given(await served.handler(self._broker, request))

    async def _answer(self) -> None:
        is_connected = True
        while (begun := await self._answers.get()) is not None:
            request = begun.request
            frame = b""
            try:
                answer = await begun.later
                if answer is not None and is_connected:
                    version = request.version if request.body is not None else 0
                    frame = encode_response(request.key, version, request.correlation_id, answer)
            except StoreError as error:
                self._note_unanswered(error)
                is_connected = False
                self._writer.close()
            except Exception:  # noqa: BLE001 - as above; the answers behind it would be taken for others
                log_event("gateway_request_failed", peer=self._writer.get_extra_info("peername"), exc_info=True)
                is_connected = False
                self._writer.close()
            finally:
                begun.loan.end()
            elapsed_s = self._broker.log.clock.monotonic_s() - begun.began_s
            self._broker.figures.note(request.key, elapsed_s, begun.size_bytes, len(frame))
            if frame:
                self._writer.write(frame)
                # A client that has left takes no answer; what it has sent is carried out all the same.
                is_connected = await self._is_taken(len(frame)) and is_connected
            self._broker.clients.note_answered(self, self._broker.log.clock.monotonic_s())
            self._answers.task_done()

    async def _is_taken(self, size_bytes: int) -> bool:
        """Return whether the client takes its answers; one that has taken too little for too long is left."""
        limit_s = self._broker.settings.answer_s + size_bytes / _BYTES_PER_S_MIN
        try:
            async with asyncio.timeout(limit_s):
                await self._writer.drain()
        except ConnectionError:
            return False
        except TimeoutError:
            self._broker.figures.note_refused("unread")
            self._writer.transport.abort()
            return False
        return True


async def _given(answer: Answer | None) -> Answer | None:
    return answer


class _Deaf(asyncio.Protocol):
    """Drops what a client sends: a reader at its end would raise an error for it. Answers go out as before."""

    def __init__(self, answering: asyncio.BaseProtocol) -> None:
        self.pause_writing = answering.pause_writing  # type: ignore[method-assign]
        self.resume_writing = answering.resume_writing  # type: ignore[method-assign]
        self.connection_lost = answering.connection_lost  # type: ignore[method-assign]
