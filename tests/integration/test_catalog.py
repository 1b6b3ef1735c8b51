"""The read-only Iceberg catalog over HTTP: which tables there are, their newest metadata, and what is refused."""

from __future__ import annotations

import http.client
import json
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn

from sparktxn import Producer, Store
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.process.background import ThreadBackground
from sparktxn._foundation.process.clock import SystemClock
from sparktxn._foundation.process.listening import listening
from sparktxn._programs.catalog.application import application
from sparktxn.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from sparktxn.errors import ConfigurationError
from sparktxn.maintenance import copy_store, list_tables, publish_tables
from sparktxn.store.registry import objects_of
from sparktxn.testing.faultystore import Fault, FaultyStore, Operation
from tests.lending import close_lent, lend_log, take_log_back
from tests.world import World, next_number, open_log

ICEBERG = {"table.formats": "iceberg"}
READ_ONLY = (
    "this catalog is read-only: records come in by the log, through producers of the topic, and txnlog tables publish "
    "shows them here"
)
WAIT_S = 30.0


class Answer(NamedTuple):
    code: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        assert int(self.headers["content-length"]) == len(self.data)
        return json.loads(self.data)

    @property
    def error(self) -> tuple[int, str, str]:
        """The error, which says the code that the answer has."""
        (error,) = self.json.values()
        assert error.keys() == {"message", "type", "code"}
        assert error["code"] == self.code
        return self.code, error["type"], error["message"]


class Client:
    def __init__(self, port: int) -> None:
        self._port = port

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def ask(self, method: str, path: str, headers: Mapping[str, str] | None = None, body: str | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=WAIT_S)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, {name.replace("_", "-"): value for name, value in headers.items()})

    def tables(self) -> list[str]:
        found = self.get("/v1/namespaces/topics/tables").json
        assert found["next-page-token"] is None
        assert {tuple(each["namespace"]) for each in found["identifiers"]} <= {("topics",)}
        return [each["name"] for each in found["identifiers"]]

    def load(self, table: str) -> Any:
        return self.get(f"/v1/namespaces/topics/tables/{table}").json

    def snapshot(self, table: str) -> int:
        return int(self.load(table)["metadata"]["current-snapshot-id"])


@contextmanager
def served(store: Store, timeout_s: float | None = WAIT_S) -> Iterator[Client]:
    """Serve a store by a thread."""
    listener = listening("127.0.0.1", 0, "--host")
    server = uvicorn.Server(uvicorn.Config(application(store, timeout_s), lifespan="off", log_config=None))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield Client(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(WAIT_S)
        assert not thread.is_alive()


@pytest.fixture
def world() -> Iterator[World]:
    made = World({"plain": 1})
    made.store.create_topic("rides", 2, settings={"table.formats": "delta,iceberg"})
    yield made
    made.close()


@pytest.fixture
def client(world: World) -> Iterator[Client]:
    with served(world.store) as found:
        yield found


def commit(world: World, topic: str = "rides", records: int = 2) -> None:
    producer = world.transactional("job")
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic, b"%d" % number)
    producer.commit_transaction()


def publish(world: World, *topics: str) -> None:
    for topic in topics or ("rides",):
        commit(world, topic)
    publish_tables(world.store, topics or ("rides",))


def set_formats(world: World, topic: str, formats: str) -> None:
    admin = AdminClient({"bootstrap.servers": world.uri})
    entry = ConfigEntry("table.formats", formats, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    admin.close()


def folder(world: World, topic: str = "rides") -> str:
    (found,) = [each for each in world.store.topics() if each.name == topic]
    return f"topics/{topic}-{found.topic_id}/metadata/"


def test_clients_are_configured_with_the_endpoints_that_there_are(client: Client) -> None:
    config = client.get("/v1/config?warehouse=shop").json
    assert config == {
        "defaults": {},
        "overrides": {},
        "endpoints": [
            "GET /v1/{prefix}/namespaces",
            "GET /v1/{prefix}/namespaces/{namespace}",
            "HEAD /v1/{prefix}/namespaces/{namespace}",
            "GET /v1/{prefix}/namespaces/{namespace}/tables",
            "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
            "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
        ],
    }


def test_there_is_one_namespace_with_none_below_it(client: Client) -> None:
    for query in ("", "?parent=", "?pageToken=", "?pageToken=&pageSize=1"):
        assert client.get(f"/v1/namespaces{query}").json == {"namespaces": [["topics"]], "next-page-token": None}
    assert client.get("/v1/namespaces?parent=topics").json == {"namespaces": [], "next-page-token": None}
    assert client.get("/v1/namespaces/topics").json == {"namespace": ["topics"], "properties": {}}
    found = client.ask("HEAD", "/v1/namespaces/topics")
    assert (found.code, found.data) == (204, b"")
    missing = "namespace 'other.one' does not exist: the only one is 'topics'"
    for path in ("?parent=other%1Fone", "/other%1Fone", "/other%1Fone/tables"):
        assert client.get(f"/v1/namespaces{path}").error == (404, "NoSuchNamespaceException", missing)
    assert client.ask("HEAD", "/v1/namespaces/other").code == 404


def test_published_topics_of_iceberg_are_the_tables(world: World, client: Client) -> None:
    assert client.tables() == []
    for topic in ("eu.rides-2", "eu_rides", "later"):
        world.store.create_topic(topic, settings=ICEBERG)
    world.store.create_topic("delta", settings={"table.formats": "delta"})
    publish(world, "rides", "eu.rides-2", "eu_rides", "delta")
    assert client.tables() == ["eu.rides-2", "eu_rides", "rides"]
    assert client.load("eu.rides-2")["metadata"]["location"] == f"{world.uri}/topics/eu.rides-2-3"
    set_formats(world, "delta", "delta,iceberg")
    set_formats(world, "rides", "delta")
    assert client.tables() == ["eu.rides-2", "eu_rides"]
    publish(world, "delta")
    world.store.log.refresh()
    AdminClient({"bootstrap.servers": world.uri}).delete_topics(["eu_rides"])["eu_rides"].result()
    assert client.tables() == ["delta", "eu.rides-2"]
    for missing in ("plain", "later", "rides", "eu_rides", "nothing", "__transaction_state"):
        code, kind, text = client.get(f"/v1/namespaces/topics/tables/{missing}").error
        assert (code, kind) == (404, "NoSuchTableException")
        assert f"table 'topics.{missing}' does not exist" in text
        assert client.ask("HEAD", f"/v1/namespaces/topics/tables/{missing}").code == 404
    found = client.ask("HEAD", "/v1/namespaces/topics/tables/delta")
    assert (found.code, found.data) == (204, b"")


def test_a_topic_that_is_created_again_is_a_table_once_it_is_published(world: World, client: Client) -> None:
    publish(world)
    old = client.load("rides")["metadata"]["table-uuid"]
    AdminClient({"bootstrap.servers": world.uri}).delete_topics(["rides"])["rides"].result()
    world.store.create_topic("rides", settings=ICEBERG)
    assert client.tables() == []
    publish(world)
    assert client.tables() == ["rides"]
    assert client.load("rides")["metadata"]["table-uuid"] != old


def test_a_table_of_a_namespace_that_does_not_exist_is_a_table_that_does_not_exist(client: Client) -> None:
    """Engines ask for `topics.rides.snapshots` so, and go on by this error to what it is: a table of metadata."""
    code, kind, text = client.get("/v1/namespaces/topics%1Frides/tables/snapshots").error
    assert (code, kind) == (404, "NoSuchTableException")
    assert "table 'topics.rides.snapshots' does not exist" in text


def test_each_request_has_the_newest_version(world: World, client: Client) -> None:
    for version in range(3):
        publish(world)
        loaded = client.load("rides")
        name = f"{folder(world)}v{version + 1}.metadata.json"
        assert loaded == {
            "metadata-location": f"{world.uri}/{name}",
            "metadata": json.loads(world.store.log.objects.get(name) or b""),
            "config": {},
        }
        assert loaded["metadata"]["current-snapshot-id"] == version + 1
    assert [each["snapshot-id"] for each in client.load("rides")["metadata"]["snapshots"]] == [1, 2, 3]


def test_another_process_s_publication_is_found(world: World) -> None:
    publish(world)
    log = open_log(objects_of(world.uri, {}), background=ThreadBackground("catalog", 1), create=False)
    with served(Store(world.uri, {}, log)) as client:
        assert client.snapshot("rides") == 1
        publish(world)
        assert client.snapshot("rides") == 2
    log.close()


def test_engines_that_want_no_history_get_the_current_snapshot(world: World, client: Client) -> None:
    for _ in range(3):
        publish(world)
    whole = client.load("rides")["metadata"]
    some = client.get("/v1/namespaces/topics/tables/rides?snapshots=refs").json["metadata"]
    assert some == whole | {"snapshots": whole["snapshots"][-1:]}
    assert client.get("/v1/namespaces/topics/tables/rides?snapshots=all").json["metadata"] == whole


def test_what_the_client_has_already_is_not_sent_again(world: World, client: Client) -> None:
    path = "/v1/namespaces/topics/tables/rides"
    publish(world)
    tag = client.get(path).headers["etag"]
    for known in (tag, f"W/{tag}", f'"x", {tag}'):
        again = client.get(path, If_None_Match=known)
        assert (again.code, again.data, again.headers["etag"]) == (304, b"", tag)
    assert client.get(f"{path}?snapshots=refs", If_None_Match=tag).code == 200
    publish(world)
    newer = client.get(path, If_None_Match=tag)
    assert newer.json["metadata"]["current-snapshot-id"] == 2
    assert newer.headers["etag"] != tag


def test_lists_come_in_pages(world: World, client: Client) -> None:
    names = [f"t{number}" for number in range(5)]
    for name in names:
        world.store.create_topic(name, settings=ICEBERG)
    publish_tables(world.store)
    path = "/v1/namespaces/topics/tables"
    assert client.tables() == ["rides", *names]
    assert len(client.get(f"{path}?pageSize=2").json["identifiers"]) == 6, "without a token, the answer has all"
    assert client.get(f"{path}?pageToken=").json["next-page-token"] is None
    pages, token = [], ""
    while token is not None:
        found = client.get(f"{path}?pageToken={token}&pageSize=2").json
        pages.append([each["name"] for each in found["identifiers"]])
        token = found["next-page-token"]
        if len(pages) == 1:
            AdminClient({"bootstrap.servers": world.uri}).delete_topics(["t0"])["t0"].result()
    assert pages == [["rides", "t0"], ["t1", "t2"], ["t3", "t4"]]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/v1/namespaces?pageToken=&pageSize=0", "pageSize is '0': expected a whole number from 1 on"),
        ("/v1/namespaces/topics/tables?pageSize=two", "pageSize is 'two': expected a whole number from 1 on"),
        ("/v1/namespaces/topics/tables?pageSize=-1", "pageSize is '-1': expected a whole number from 1 on"),
        ("/v1/namespaces/topics/tables/rides?snapshots=some", "snapshots is 'some': expected all or refs"),
    ],
)
def test_wrong_values_are_refused(client: Client, path: str, text: str) -> None:
    assert client.get(path).error == (400, "BadRequestException", text)


def test_paths_that_there_are_not(client: Client) -> None:
    missing = "there is nothing at"
    for path in ("/", "/v1", "/v1/nothing", "/v2/config", "/v1/namespaces/topics/views"):
        assert client.get(path).error == (404, "NotFoundException", f"{missing} '{path}'")
    path = "/v1/shop/namespaces/topics/tables"
    hint = "this catalog has no prefix, leave it out"
    assert client.get(path).error == (404, "NotFoundException", f"{missing} '{path}': {hint}")


def test_nothing_can_be_written(world: World, client: Client) -> None:
    publish(world)
    objects = world.store.log.objects
    before = world.store.log.refresh(), sorted(info.name for info in objects.list(""))
    table = "/v1/namespaces/topics/tables/rides"
    for method, path in (
        ("POST", "/v1/namespaces"),
        ("DELETE", "/v1/namespaces/topics"),
        ("POST", "/v1/namespaces/topics/properties"),
        ("POST", "/v1/namespaces/topics/tables"),
        ("POST", "/v1/namespaces/topics/register"),
        ("POST", table),
        ("DELETE", f"{table}?purgeRequested=true"),
        ("POST", f"{table}/metrics"),
        ("POST", "/v1/tables/rename"),
        ("POST", "/v1/transactions/commit"),
        ("POST", "/v1/shop/namespaces/topics/tables/rides"),
        ("PUT", table),
        ("PATCH", table),
        ("OPTIONS", table),
    ):
        answer = client.ask(method, path, body="{}")
        assert answer.error == (405, "UnsupportedOperationException", READ_ONLY), path
        assert answer.headers["allow"] == "GET, HEAD"
    assert (world.store.log.refresh(), sorted(info.name for info in objects.list(""))) == before


def test_a_client_with_credentials_is_told_that_there_is_no_authentication(client: Client) -> None:
    """The error has the model of OAuth."""
    answer = client.ask("POST", "/v1/oauth/tokens", body="grant_type=client_credentials&client_secret=s")
    assert answer.code == 400
    assert answer.json == {
        "error": "unsupported_grant_type",
        "error_description": (
            "this catalog has no authentication: leave credential and token out of the client's settings"
        ),
    }


def test_while_a_version_is_being_written_the_one_before_is_the_newest(world: World, client: Client) -> None:
    publish(world)
    publish(world)
    objects = world.store.log.objects
    objects.delete([f"{folder(world)}v2.metadata.json"])
    assert client.snapshot("rides") == 1
    assert client.load("rides")["metadata-location"].endswith("/v1.metadata.json")
    publish_tables(world.store)
    assert client.snapshot("rides") == 2
    objects.delete([f"{folder(world)}v{number}.metadata.json" for number in (1, 2)])
    assert client.get("/v1/namespaces/topics/tables/rides").code == 404


def test_older_versions_of_iceberg_are_not_shown_as_the_newest(world: World, client: Client) -> None:
    publish(world)
    publish(world)
    set_formats(world, "rides", "delta")
    publish(world)
    set_formats(world, "rides", "iceberg")
    assert client.tables() == []
    assert client.get("/v1/namespaces/topics/tables/rides").code == 404, "its newest version is none of Iceberg's"
    publish(world)
    assert client.snapshot("rides") == 4


def test_damaged_metadata_is_an_error_that_names_nothing(
    world: World, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    publish(world)
    publish(world)
    objects, name = world.store.log.objects, f"{folder(world)}v2.metadata.json"
    good = objects.get(name) or b""
    older = objects.get(f"{folder(world)}v1.metadata.json") or b""
    elsewhere = good.replace(world.uri.encode(), b"memory://elsewhere")
    for data in (good[:-20], b"{", b"[]", b"\xff" + good, older, elsewhere):
        objects.put(name, data)
        with caplog.at_level(logging.WARNING, "sparktxn"):
            answer = client.get("/v1/namespaces/topics/tables/rides")
        text = "the store cannot be read. The log of this catalog says more"
        assert answer.error == (500, "InternalServerError", text), data
        assert name in caplog.messages[-1]
    objects.put(name, good)
    assert client.snapshot("rides") == 2


class Failing:
    """A store in memory whose reads fail while `fails`, and are counted. Its topic is a table with one version."""

    def __init__(self) -> None:
        self.fails = False
        name = f"failing-{next_number()}"
        self.uri = f"memory://{name}"
        self.objects = FaultyStore(MemoryStore(name, SystemClock()), self._fate)
        self.log = open_log(self.objects, background=ThreadBackground("catalog", 1))
        lend_log(self.uri, self.log)
        self.store = Store(self.uri, {}, self.log)
        self.store.create_topic("rides", settings=ICEBERG)
        publish_tables(self.store)

    def _fate(self, operation: Operation) -> Fault:
        return Fault.UNAVAILABLE if self.fails else Fault.NONE


@pytest.fixture
def failing() -> Iterator[Failing]:
    made = Failing()
    yield made
    take_log_back(made.uri)
    close_lent(made.log)


@pytest.mark.parametrize("path", ["", "/rides"])
def test_a_store_that_fails_is_an_error_until_it_is_well(
    failing: Failing, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    with served(failing.store, 2.0) as client:
        path = f"/v1/namespaces/topics/tables{path}"
        whole = client.get(path).json
        failing.fails = True
        answer = client.get(path)
        text = "the store did not answer in time: try again. The log of this catalog says more"
        assert answer.error == (503, "ServiceUnavailableException", text)
        assert client.ask("HEAD", "/v1/namespaces/topics/tables/rides").code == 503
        assert client.get("/v1/config").code == 200
        failing.fails = False
        assert client.get(path).json == whole
    assert any("the catalog cannot answer GET" in message for message in caplog.messages)


def test_a_request_costs_the_same_however_far_the_table_is_behind(failing: Failing) -> None:
    def cost(client: Client) -> list[str]:
        client.snapshot("rides")
        before = len(failing.objects.operations)
        client.snapshot("rides")
        return [operation.verb for operation in failing.objects.operations[before:]]

    with served(failing.store) as client:
        few = cost(client)
        with Producer({"bootstrap.servers": failing.uri}) as producer:
            for number in range(40):
                producer.produce("rides", b"%d" % number)
                producer.flush()
        assert list_tables(failing.store)[0].waiting_records == 40
        assert cost(client) == few == ["get", "list_names", "get"]


def test_answers_are_whole_while_versions_are_published(world: World, client: Client) -> None:
    publish(world)
    seen: dict[int, list[int]] = {number: [] for number in range(4)}
    done = threading.Event()

    def read(number: int) -> None:
        while not done.is_set():
            loaded = client.load("rides")
            snapshots = [each["snapshot-id"] for each in loaded["metadata"]["snapshots"]]
            assert snapshots == list(range(1, snapshots[-1] + 1))
            seen[number].append(snapshots[-1])

    threads = [threading.Thread(target=read, args=(number,)) for number in seen]
    for thread in threads:
        thread.start()
    for version in range(2, 8):
        publish(world)
        assert client.snapshot("rides") == version
    done.set()
    for thread in threads:
        thread.join(WAIT_S)
    for found in seen.values():
        assert found
        assert found == sorted(found)


def test_a_copy_has_the_tables_that_were_published_in_it(tmp_path: Path) -> None:
    with Store.open(tmp_path / "shop", create=True, options={"store.fsync": False}) as store:
        store.create_topic("rides", settings=ICEBERG)
        publish_tables(store)
        copy_store(store, str(tmp_path / "copy"))
    with Store.open(tmp_path / "copy") as store, served(store) as client:
        assert client.tables() == []
        assert client.get("/v1/namespaces/topics/tables/rides").code == 404
        publish_tables(store)
        assert client.tables() == ["rides"]
        assert client.load("rides")["metadata"]["location"] == f"file://{tmp_path}/copy/topics/rides-1"


def test_a_port_that_is_in_use_is_refused() -> None:
    with listening("127.0.0.1", 0, "--host") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"cannot listen at port {port} of '127.0.0.1': Address already"):
            listening("127.0.0.1", port, "--host")
