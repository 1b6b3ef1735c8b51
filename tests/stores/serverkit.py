"""The conformance kit against a server of objects: what all servers have in common."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing

import pytest

from sparktxn._foundation.config.store import StoreSettings
from sparktxn.errors import StoreUnavailable
from sparktxn.testing.faultproxy import FaultProxy
from sparktxn.testing.objectstore_tests import ENTRY, Opening, RemoteObjectStoreTests
from tests.servers import ObjectServer

__all__ = ["BUCKET", "ServerTests", "ServerTruth"]

BUCKET = "conformance"

_prefixes = itertools.count()


class ServerTruth:
    """Objects by bare HTTP requests."""

    def __init__(self, server: ObjectServer, prefix: str) -> None:
        self._server = server
        self._prefix = f"{prefix}/"

    def read(self, name: str) -> bytes | None:
        return self._server.read(BUCKET, self._prefix + name)

    def write(self, name: str, data: bytes) -> None:
        self._server.write(BUCKET, self._prefix + name, data)


class ServerTests(RemoteObjectStoreTests):
    """The kit against the server of the fixture `server`; each test has a prefix of its own."""

    @pytest.fixture
    def store_prefix(self) -> str:
        return f"store-{next(_prefixes)}"

    @pytest.fixture
    def opening(self, server: ObjectServer, store_prefix: str) -> Opening:
        return Opening(server.uri(BUCKET, store_prefix), server.storage)

    @pytest.fixture
    def truth(self, server: ObjectServer, store_prefix: str) -> ServerTruth:
        return ServerTruth(server, store_prefix)

    @pytest.fixture
    def proxy(self, server: ObjectServer) -> Iterator[FaultProxy]:
        with FaultProxy(server.endpoint_url) as proxy:
            yield proxy

    @pytest.fixture
    def faulty_opening(self, server: ObjectServer, store_prefix: str, proxy: FaultProxy) -> Opening:
        settings = StoreSettings(request_timeout_ms=int(self.request_timeout_s * 1000))
        return Opening(server.uri(BUCKET, store_prefix), server.storage_by(proxy.endpoint_url), settings)

    def test_a_missing_bucket_is_an_error_that_names_it_and_no_secret(self, server: ObjectServer) -> None:
        opening = Opening(server.uri("no-such-bucket", "store"), server.storage)
        with closing(opening.open()) as store:
            for use in (lambda: store.list("_log/"), lambda: store.put(ENTRY, b"x")):
                with pytest.raises(StoreUnavailable, match=r"no-such-bucket.*create it first") as raised:
                    use()
                assert server.secret not in str(raised.value)

    def test_an_object_may_hold_any_bytes(self, opening: Opening, truth: ServerTruth) -> None:
        # Clients that put several things into one request have a text that parts them.
        data = b"".join(b"\r\n--==0==--\r\n\n--==0==\n" + bytes(range(256)) for _ in range(10))
        with closing(opening.open()) as store:
            store.put_if_absent("a/created", data)
            store.put("a/written", data)
            assert store.get("a/created") == truth.read("a/created") == data
            assert store.get("a/written") == truth.read("a/written") == data
