"""Stores on S3 servers: moto's, which is quick, and at night SeaweedFS, a real one with another dialect of errors."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import closing

import pytest
from botocore.session import Session
from botocore.utils import parse_timestamp

from sparktxn._engine.objectstore import PutOutcome, open_store
from sparktxn._engine.objectstore.s3 import _aws_session, _timestamp
from sparktxn._engine.objectstore.writehealth import failure_of
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.clock import SystemClock
from sparktxn.errors import StoreUnavailable
from sparktxn.testing.faultproxy import FaultProxy, RequestFault
from sparktxn.testing.objectstore_tests import ENTRY, Opening
from tests.seeds import examples, night_seed
from tests.servers import MotoServer, S3Server
from tests.stores.serverkit import BUCKET, ServerTests, ServerTruth


class S3Tests(ServerTests):
    """The kit against a server that speaks S3."""

    def test_s3a_and_text_options_reach_the_same_store(
        self, server: S3Server, store_prefix: str, truth: ServerTruth
    ) -> None:
        storage = {
            "key": server.access_key,
            "secret": server.secret_key,
            "anon": "false",
            "client_kwargs": f'{{"endpoint_url": "{server.endpoint_url}"}}',
        }
        uri = f"s3a://{BUCKET}/{store_prefix}/"
        with closing(open_store(uri, settings=StoreSettings(), storage=storage, clock=SystemClock())) as store:
            assert store.uri == f"s3://{BUCKET}/{store_prefix}"
            assert store.put_if_absent(ENTRY, b"x") is PutOutcome.CREATED
        assert truth.read(ENTRY) == b"x"

    def test_a_read_in_a_missing_bucket_is_an_error_that_names_it(self, server: S3Server) -> None:
        opening = Opening("s3://no-such-bucket/store", server.storage)
        with closing(opening.open()) as store, pytest.raises(StoreUnavailable, match="no-such-bucket"):
            store.get(ENTRY)


@pytest.mark.moto
class TestMoto(S3Tests):
    race_rounds = examples(6, 200)
    # Requests race at the server. By day it is enough that they have handles of their own, not processes too.
    race_in_threads = night_seed() is None
    page_size = MotoServer.page_size

    @pytest.fixture
    def server(self, moto_server: S3Server) -> S3Server:
        moto_server.create_bucket(BUCKET)
        return moto_server

    def test_a_client_that_stops_in_the_middle_of_a_request_stops_no_other(self, server: S3Server) -> None:
        # The tests that pause processes rest on this.
        heads = {"Host": "moto", "Content-Length": "100", **server.headers}
        lines = [f"PUT /{BUCKET}/half HTTP/1.1", *(f"{name}: {value}" for name, value in heads.items()), "", ""]
        with socket.create_connection(("127.0.0.1", server.port)) as stopped:
            stopped.sendall("\r\n".join(lines).encode())
            time.sleep(0.2)
            assert server.request("PUT", f"/{BUCKET}/whole", b"x")[0] == 200

    def test_the_proxy_carries_out_before_it_hangs(
        self, proxy: FaultProxy, truth: ServerTruth, faulty_opening: Opening
    ) -> None:
        # The faults of the other tests rest on this: AFTER is after.
        with closing(faulty_opening.open()) as store:
            proxy.inject(RequestFault.HANG_AFTER, method="PUT", times=1)
            assert store.put_if_absent(ENTRY, b"x", timeout_s=3) is PutOutcome.UNKNOWN
        # A slow machine may carry it out later than the caller waits.
        deadline = time.monotonic() + 60
        while truth.read(ENTRY) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert truth.read(ENTRY) == b"x"
        assert ("PUT", f"/{BUCKET}/{faulty_opening.uri.rsplit('/', 1)[1]}/{ENTRY}") in proxy.requests

    @pytest.mark.parametrize(
        ("fault", "code", "transient"),
        [(RequestFault.DENIED_BEFORE, "AccessDenied", False), (RequestFault.EXPIRED_BEFORE, "ExpiredToken", True)],
    )
    def test_a_refused_create_has_written_nothing_and_says_why(
        self,
        faulty_opening: Opening,
        proxy: FaultProxy,
        truth: ServerTruth,
        fault: RequestFault,
        code: str,
        transient: bool,
    ) -> None:
        with closing(faulty_opening.open()) as store:
            proxy.inject(fault, method="PUT", times=1)
            with pytest.raises(StoreUnavailable, match=f"{code}.*: injected") as refused:
                store.put_if_absent(ENTRY, b"x")
            assert refused.value.transient is transient
            assert truth.read(ENTRY) is None
            assert store.put_if_absent(ENTRY, b"x") is PutOutcome.CREATED

    @pytest.mark.parametrize("lost", [RequestFault.DROP_AFTER, RequestFault.UNAVAILABLE_AFTER])
    @pytest.mark.parametrize("refused", [RequestFault.DENIED_BEFORE, RequestFault.EXPIRED_BEFORE])
    @pytest.mark.parametrize("has_connection", [True, False])
    def test_a_refusal_of_what_a_client_below_has_sent_again_says_nothing_of_the_first_request(
        self,
        faulty_opening: Opening,
        proxy: FaultProxy,
        truth: ServerTruth,
        lost: RequestFault,
        refused: RequestFault,
        has_connection: bool,
    ) -> None:
        """Aiohttp sends a put again that has lost its connection, botocore one that was answered by 503."""
        with closing(faulty_opening.open()) as store:
            if has_connection:
                store.get(ENTRY)
            proxy.inject(lost, method="PUT", times=1)
            proxy.inject(refused, method="PUT", times=100)
            assert store.put_if_absent(ENTRY, b"x") is PutOutcome.UNKNOWN
            assert truth.read(ENTRY) == b"x"

    def test_what_a_store_without_a_network_has_said_last_is_known_before_its_clients_give_up(
        self, faulty_opening: Opening, proxy: FaultProxy
    ) -> None:
        with closing(faulty_opening.open()) as store:
            store.get(ENTRY)
            proxy.inject(RequestFault.DROP_AFTER, method="PUT", times=1000)
            assert store.put_if_absent(ENTRY, b"x", timeout_s=4) is PutOutcome.UNKNOWN
            failure = failure_of(store)
            assert failure is not None
            assert "Server disconnected" in failure.reason


@pytest.mark.nightly
@pytest.mark.seaweedfs
class TestSeaweedFS(S3Tests):
    # Losers of a contended name wait for it a second or two, so many names are raced for side by side.
    race_width = 50

    @pytest.fixture
    def server(self, seaweed_server: S3Server) -> S3Server:
        seaweed_server.create_bucket(BUCKET)
        return seaweed_server


@pytest.mark.parametrize(
    "value", ["2026-11-28T01:02:03.456Z", "2026-11-28T01:02:03Z", "Sat, 28 Nov 2026 01:02:03 GMT", 1]
)
def test_times_are_those_that_botocore_reads(value: str | int) -> None:
    assert _timestamp(value) == parse_timestamp(value)
    factory = _aws_session(None).get_component("response_parser_factory")
    answer = f"<ListBucketResult><Contents><LastModified>{value}</LastModified></Contents></ListBucketResult>"
    shape = Session().get_service_model("s3").operation_model("ListObjectsV2").output_shape
    response = {"body": answer.encode(), "headers": {}, "status_code": 200}
    parsed = asyncio.run(factory.create_parser("rest-xml").parse(response, shape))
    assert parsed["Contents"][0]["LastModified"] == parse_timestamp(value)
