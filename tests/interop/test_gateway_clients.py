"""Kafka's clients at a gateway with users: each logs in and does what it can, by one program and one table."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from collections.abc import Iterator
from typing import Final

import pytest

from sparktxn import Consumer
from sparktxn._foundation.process.clock import RandomIds
from sparktxn._programs.gateway.connection import SERVED
from sparktxn._programs.gateway.security.users import user_lines
from sparktxn._programs.gateway.wire.wiremessages import request_name
from tests.gateway.processes import Gateway, gateway, new_store
from tests.gateway.test_announced_versions import LOWEST_IN_KAFKA
from tests.interop.brokerjars import JARS
from tests.interop.gateway.clients import CLIENTS, COMMITTED, Client, expected, plan, topic_of
from tests.interop.kafkatools import fetch_jars
from tests.interop.peers import CannotInstallError

pytestmark = pytest.mark.interop

USER: Final = "alice"
PASSWORD: Final = "the secret of alice"
PROGRAM_S: Final = 600


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("clients")
    users = folder / "users"
    users.write_text("\n".join(user_lines(USER, PASSWORD, RandomIds())) + "\n")
    users.chmod(0o600)
    with gateway(new_store(folder), "--sasl-users", str(users), "--partitions", "2") as found:
        yield found
        code, err = found.end()
        assert code == 0
        assert PASSWORD not in err
        assert "has failed at a request" not in err, err


def stored(store: str, topic: str) -> list[str]:
    """Return the committed values of a topic, sorted."""
    found: list[str] = []
    settings = {"bootstrap.servers": store, "group.id": "checker", "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        while messages := consumer.consume(len(COMMITTED) + 1, timeout=2 if found else 20):
            found += [bytes(message.value() or b"").decode() for message in messages]
    return sorted(found)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: f"{client.name} {client.version}")
def test_a_client_does_what_it_can(client: Client, served: Gateway) -> None:
    try:
        command = client.command(client)
    except CannotInstallError as error:
        pytest.skip(f"{client.name} {client.version} cannot be had here: {error}")
    given = plan(client, served.address, USER, PASSWORD)
    done = subprocess.run([*command, json.dumps(given)], capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == expected(client), done.stderr[-4000:]
    if "transaction" in client.parts:
        # The store's own reader sees the same.
        assert stored(served.store, f"{topic_of(client)}-transaction") == COMMITTED


def test_the_lowest_versions_are_those_that_kafka_has() -> None:
    try:
        (jar,) = fetch_jars([each for each in JARS if each.artifact == "kafka-clients"])
    except OSError as error:
        pytest.skip(f"Kafka's jar cannot be had here: {error}")
    lowest = {}
    with zipfile.ZipFile(jar) as opened:
        for name in opened.namelist():
            if name.startswith("common/message/") and name.endswith("Request.json"):
                text = re.sub(r"(?m)//.*$", "", opened.read(name).decode())
                message = json.loads(text)
                lowest[message["apiKey"]] = message["validVersions"].partition("-")[0]
    names = {key: request_name(key) for key in SERVED}
    assert {names[key]: int(lowest[key]) for key in SERVED if names[key] != "produce"} == {
        name: LOWEST_IN_KAFKA.get(name, 0) for name in names.values() if name != "produce"
    }
