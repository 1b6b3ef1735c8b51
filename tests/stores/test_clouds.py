"""Stores on emulators of Google Cloud Storage and Azure: `make clouds`. The real services were not tried."""

from __future__ import annotations

import logging
import os
from contextlib import closing
from pathlib import Path

import pytest

from sparktxn._engine.objectstore import PutOutcome, open_store
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.clock import RandomIds, SystemClock
from sparktxn._programs.cli.doctorstore import FAILED, examine
from sparktxn.errors import StoreUnavailable
from sparktxn.testing.faultproxy import FaultProxy
from sparktxn.testing.objectstore_tests import ENTRY, Opening
from tests.cloudservers import AzuriteServer, FakeGcsServer
from tests.servers import ObjectServer
from tests.stores.serverkit import BUCKET, ServerTests, ServerTruth

pytestmark = pytest.mark.clouds


class CloudTests(ServerTests):
    """What the two clouds have in common."""

    other_address = ""

    def test_another_spelling_of_the_address_reaches_the_same_store(
        self, server: ObjectServer, store_prefix: str, truth: ServerTruth
    ) -> None:
        uri = f"{self.other_address}://{BUCKET}/{store_prefix}/"
        with closing(open_store(uri, settings=StoreSettings(), storage=server.storage, clock=SystemClock())) as store:
            assert store.uri == server.uri(BUCKET, store_prefix)
            assert store.put_if_absent(ENTRY, b"x") is PutOutcome.CREATED
        assert truth.read(ENTRY) == b"x"

    def test_many_objects_are_deleted_by_few_requests(
        self, faulty_opening: Opening, proxy: FaultProxy, truth: ServerTruth
    ) -> None:
        names = [f"topics/t/0/{number:04}" for number in range(300)]
        patient = faulty_opening._replace(settings=StoreSettings())
        with closing(patient.open()) as store:
            for name in names:
                truth.write(name, b"x")
            store.delete(names)
            assert store.list("topics/") == []
        deletes = [method for method, _ in proxy.requests if method in ("POST", "DELETE")]
        assert len(deletes) <= 3

    def test_doctor_refuses_nothing_and_prices_requests(self, opening: Opening) -> None:
        with closing(opening.open()) as store:
            checks = {check.check: check for check in examine(store, SystemClock(), RandomIds())}
        assert [check for check in checks.values() if check.result == FAILED] == []
        assert {"write", "list", "list after a name", "racing puts", "clock", "latency", "delete"} <= checks.keys()
        assert "USD" in checks["requests"].found


class TestFakeGcs(CloudTests):
    create_method = FakeGcsServer.create_method
    other_address = "gcs"

    @pytest.fixture
    def server(self, fake_gcs_server: FakeGcsServer) -> FakeGcsServer:
        fake_gcs_server.create_bucket(BUCKET)
        return fake_gcs_server

    def test_credentials_that_are_not_there_are_named(self, server: FakeGcsServer) -> None:
        opening = Opening(f"gs://{BUCKET}/x", {**server.storage, "token": "/no/such/key.json"})
        with (
            closing(opening.open()) as store,
            pytest.raises(StoreUnavailable, match=r"storage\.token names a file that does not exist: give the path of"),
        ):
            store.get(ENTRY)


class TestAzurite(CloudTests):
    page_size = AzuriteServer.page_size
    other_address = "az"

    @pytest.fixture
    def server(self, azurite_server: AzuriteServer) -> AzuriteServer:
        azurite_server.create_bucket(BUCKET)
        return azurite_server

    def test_a_read_in_a_missing_container_is_an_error_that_names_it(self, server: AzuriteServer) -> None:
        opening = Opening("abfs://no-such-container/store", server.storage)
        with closing(opening.open()) as store, pytest.raises(StoreUnavailable, match="no-such-container"):
            store.get(ENTRY)

    def test_wrong_credentials_are_named_and_not_shown(self, server: AzuriteServer) -> None:
        wrong = "d3Jvbmcta2V5"
        storage = {"connection_string": server.storage["connection_string"].replace(server.secret, wrong)}
        with (
            closing(Opening(f"abfs://{BUCKET}/x", storage).open()) as store,
            pytest.raises(
                StoreUnavailable, match=r"AuthorizationFailure \(HTTP 403\): check the credentials"
            ) as raised,
        ):
            store.get(ENTRY)
        assert wrong not in str(raised.value)

    def test_no_credentials_are_one_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        for name in [name for name in os.environ if name.startswith("AZURE_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("PATH", str(tmp_path))
        with (
            closing(Opening(f"abfs://{BUCKET}/x", {"account_name": "no-such-account"}).open()) as store,
            pytest.raises(
                StoreUnavailable, match=r"ClientAuthenticationError: .* credentials: give storage\.account_name with"
            ) as raised,
        ):
            store.get(ENTRY)
        assert "\n" not in str(raised.value)
        assert [record.name for record in caplog.records if record.levelno >= logging.WARNING] == []

    def test_no_account_is_an_error_that_says_what_to_give(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_CONNECTION_STRING"):
            monkeypatch.delenv(name, raising=False)
        with (
            closing(Opening(f"abfs://{BUCKET}/x").open()) as store,
            pytest.raises(StoreUnavailable, match=r"account_name.*: give storage\.account_name with"),
        ):
            store.get(ENTRY)
