"""Kafka's own command line tools against a gateway: what they ask for, change and print."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from sparktxn import Producer
from sparktxn._foundation.process.clock import RandomIds
from sparktxn._programs.gateway.security.users import user_lines
from tests.gateway.certificates import Authority
from tests.gateway.processes import Gateway, gateway, new_store
from tests.gateway.test_admin_transactions import begun
from tests.gateway.wire import Wire
from tests.interop import brokerjars
from tests.interop.kafkatools import Jar, fetch_jars, java

pytestmark = pytest.mark.interop

JARS: Final = (
    *brokerjars.JARS,
    Jar(
        "org.apache.kafka",
        "kafka-tools",
        brokerjars.KAFKA,
        "62f3c5dd7aa3442d4c5bc6a95f86e2502178ea09de8e27f74d9563bf955e253c",
    ),
)
TOOLS: Final = "org.apache.kafka.tools."
TOPICS: Final = TOOLS + "TopicCommand"
TRANSACTIONS: Final = TOOLS + "TransactionsCommand"
GROUPS: Final = TOOLS + "consumer.group.ConsumerGroupCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
WAIT_S: Final = 120
CLIENT: Final = ("--entity-type", "clients", "--entity-name", "x")
USER: Final = ("--entity-type", "users", "--entity-name", "x")

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def classpath() -> str:
    try:
        java()
        return os.pathsep.join(map(str, fetch_jars(JARS)))
    except (OSError, urllib.error.URLError, AssertionError) as error:
        pytest.skip(f"Kafka's tools cannot be had here: {error}")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(new_store(tmp_path_factory.mktemp("tools"))) as found:
        yield found


def run(classpath: str, address: str, tool: str, *words: str) -> str:
    command = [java(), "-XX:TieredStopAtLevel=1", "-cp", classpath, tool, "--bootstrap-server", address, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Exception" not in done.stdout, done.stdout
    return done.stdout


@pytest.fixture
def tool(classpath: str, served: Gateway) -> Tool:
    return lambda name, *words: run(classpath, served.address, name, *words)


def test_topics_are_created_described_grown_and_deleted(tool: Tool) -> None:
    new = ("--create", "--topic", "new", "--partitions", "3", "--replication-factor", "3")
    assert "Created topic new." in tool(TOPICS, *new, "--config", "cleanup.policy=compact")
    shown = tool(TOPICS, "--describe", "--topic", "new")
    assert "PartitionCount: 3\tReplicationFactor: 1\tConfigs: cleanup.policy=compact" in shown
    tool(TOPICS, "--alter", "--topic", "new", "--partitions", "4")
    assert "Partition: 3\tLeader: 0" in tool(TOPICS, "--describe", "--topic", "new")
    assert {"new", "orders"} <= set(tool(TOPICS, "--list").split())
    tool(TOPICS, "--delete", "--topic", "new")
    assert "new" not in tool(TOPICS, "--list").split()


def test_settings_are_changed_and_described(tool: Tool) -> None:
    topic = ("--entity-type", "topics", "--entity-name", "orders")
    changed = tool(CONFIGS, "--alter", *topic, "--add-config", "retention.ms=60000,cleanup.policy=[compact,delete]")
    assert "Completed updating config for topic orders." in changed
    shown = tool(CONFIGS, "--describe", *topic)
    assert "retention.ms=60000 sensitive=false" in shown
    assert "cleanup.policy=compact,delete" in shown
    tool(CONFIGS, "--alter", *topic, "--delete-config", "retention.ms,cleanup.policy")
    assert "retention.ms" not in tool(CONFIGS, "--describe", *topic)
    node = tool(CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "0", "--all")
    assert "auto.create.topics.enable=true" in node


def test_records_are_deleted_and_offsets_shown(tool: Tool, served: Gateway, tmp_path: Path) -> None:
    with Producer({"bootstrap.servers": served.store}) as producer:
        for number in range(5):
            producer.produce("orders", str(number), partition=1)
        producer.flush()
    wanted = tmp_path / "offsets.json"
    before = {"topic": "orders", "partition": 1, "offset": 2}
    wanted.write_text(json.dumps({"version": 1, "partitions": [before]}))
    deleted = tool(TOOLS + "DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert "partition: orders-1\tlow_watermark: 2" in deleted
    earliest = tool(TOOLS + "GetOffsetShell", "--topic", "orders", "--time", "-2")
    assert "orders:1:2" in earliest
    assert "orders:1:5" in tool(TOOLS + "GetOffsetShell", "--topic", "orders")


def test_an_open_transaction_is_found_and_aborted(tool: Tool, served: Gateway) -> None:
    producer = Producer({"bootstrap.servers": served.store, "transactional.id": "shop"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", "open", partition=0)
    producer.flush()
    assert "Ongoing" in tool(TRANSACTIONS, "list")
    assert "orders-0" in tool(TRANSACTIONS, "describe", "--transactional-id", "shop")
    where = ("--topic", "orders", "--partition", "0")
    (row,) = tool(TRANSACTIONS, "describe-producers", *where).splitlines()[1:]
    start_offset = row.split()[-1]
    tool(TRANSACTIONS, "abort", *where, "--start-offset", start_offset)
    assert "CompleteAbort" in tool(TRANSACTIONS, "list")
    producer.close()


def test_a_transaction_in_a_gateways_memory_is_found_and_aborted(tool: Tool, served: Gateway) -> None:
    with Wire(served.address) as wire:
        begun(wire, "unstored")
        where = ("--topic", "orders", "--partition", "1")
        rows = [line.split() for line in tool(TRANSACTIONS, "describe-producers", *where).splitlines()[1:]]
        (start_offset,) = [row[-1] for row in rows if row[-1] != "None"]
        tool(TRANSACTIONS, "abort", *where, "--start-offset", start_offset)
        assert "CompleteAbort" in tool(TRANSACTIONS, "describe", "--transactional-id", "unstored")
        assert "unstored" not in tool(TRANSACTIONS, "find-hanging", *where)


def test_a_transaction_is_terminated_by_its_id(tool: Tool, served: Gateway) -> None:
    producer = Producer({"bootstrap.servers": served.store, "transactional.id": "terminated"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", "open", partition=0)
    producer.flush()
    tool(TRANSACTIONS, "forceTerminateTransaction", "--transactionalId", "terminated")
    assert "Ongoing" not in tool(TRANSACTIONS, "describe", "--transactional-id", "terminated")
    producer.close()


def test_sizes_are_described(tool: Tool) -> None:
    assert '"partition":"orders-0"' in tool(TOOLS + "LogDirsCommand", "--describe")


def test_groups_are_listed(tool: Tool) -> None:
    tool(GROUPS, "--list", "--state")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((CONFIGS, "--describe", *CLIENT), "no client quotas"),
        (
            (
                CONFIGS,
                "--alter",
                "--entity-type",
                "clients",
                "--entity-name",
                "x",
                "--add-config",
                "request_percentage=1",
            ),
            "no client quotas",
        ),
        ((CONFIGS, "--describe", *USER), "no client quotas"),
        (
            (
                CONFIGS,
                "--alter",
                "--entity-type",
                "users",
                "--entity-name",
                "x",
                "--add-config",
                "SCRAM-SHA-256=[password=x]",
            ),
            "--sasl-users",
        ),
        ((TOOLS + "consumer.group.ShareGroupCommand", "--describe", "--group", "g"), "no share groups"),
        ((TOOLS + "streams.StreamsGroupCommand", "--describe", "--group", "g"), "group.protocol=classic"),
        ((GROUPS, "--describe", "--group", "none"), "group 'none' does not exist"),
        ((GROUPS, "--delete", "--group", "none"), "The group id does not exist"),
        ((GROUPS, "--delete-offsets", "--group", "none", "--topic", "orders"), "The group id does not exist"),
        (
            (TOPICS, "--create", "--topic", "placed", "--replica-assignment", "0:1"),
            "the replica assignment of partition 0 names broker 1, which does not exist",
        ),
    ],
)
def test_tools_print_why_they_are_refused(classpath: str, served: Gateway, words: tuple[str, ...], reason: str) -> None:
    name, *options = words
    command = [java(), "-XX:TieredStopAtLevel=1", "-cp", classpath, name, "--bootstrap-server", served.address]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert reason in done.stdout + done.stderr


def test_a_tool_is_known_by_scram_over_tls(classpath: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.certificate("gateway")
    users = tmp_path / "users"
    users.write_text("\n".join(user_lines("alice", "secret", RandomIds())))
    users.chmod(0o600)
    settings = tmp_path / "client.properties"
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    settings.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={login} required username="alice" password="secret";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority.file}\n"
    )
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key), "--sasl-users", str(users))
    with gateway(new_store(tmp_path), *options, listen="127.0.0.1:0") as found:
        shown = run(classpath, found.address, TOPICS, "--command-config", str(settings), "--list")
    assert shown.split() == ["orders"]
