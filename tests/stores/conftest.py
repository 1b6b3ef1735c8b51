"""The S3 servers that the conformance tests of object stores share, started once a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparktxn.testing.servers import MotoServer, S3Server, SeaweedServer

pytest.register_assert_rewrite("sparktxn.testing.objectstore_tests")


@pytest.fixture(scope="session", autouse=True)
def seaweed_early(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[S3Server | None]:
    """SeaweedFS, started before the first test if one will ask for it: it may take a minute to be ready."""
    if not any(item.get_closest_marker("seaweedfs") for item in request.session.items):
        yield None
        return
    server = SeaweedServer(tmp_path_factory.mktemp("seaweedfs")).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def seaweed_server(seaweed_early: S3Server | None) -> S3Server:
    assert seaweed_early is not None, "mark the test with `seaweedfs`"
    return seaweed_early.wait_ready()


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with MotoServer(tmp_path_factory.mktemp("moto")) as server:
        yield server
