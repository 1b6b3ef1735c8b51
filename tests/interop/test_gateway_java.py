"""Kafka's own tools and Kafka Streams, unchanged, on a gateway."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparktxn import Consumer, Producer
from tests.interop.gateway.javajars import STREAMS
from tests.interop.gateway.serving import Gateway
from tests.interop.kafkatools import fetch_jars, java

pytestmark = pytest.mark.interop

TOOL_S = 120
JVM = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
TOOLS = "org.apache.kafka.tools"
WORDS = "all streams lead to kafka\nhello kafka streams\n"
COUNTS = {"all": 1, "streams": 2, "lead": 1, "to": 1, "kafka": 2, "hello": 1}

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def command() -> list[str]:
    try:
        return [java(), *JVM, "-cp", os.pathsep.join(map(str, fetch_jars(STREAMS)))]
    except (OSError, AssertionError) as error:
        pytest.skip(f"Kafka's jars cannot be had here: {error}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("java")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Gateway]:
    with Gateway(folder) as started:
        yield started


@pytest.fixture(scope="module")
def tool(command: list[str], served: Gateway) -> Tool:
    """Run a tool with these words, which must succeed; return what it prints."""

    def run(name: str, *words: str, given: str = "", address: str = "--bootstrap-server") -> str:
        located = [address, served.address] if address else []
        done = subprocess.run(
            [*command, f"{TOOLS}.{name}", *located, *words],
            input=given,
            capture_output=True,
            text=True,
            timeout=TOOL_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        return done.stdout

    return run


def made(tool: Tool, topic: str, partitions: int = 1) -> str:
    tool("TopicCommand", "--create", "--topic", topic, "--partitions", str(partitions), "--replication-factor", "1")
    return topic


def test_the_console_reads_what_it_has_written_and_its_group_has_no_lag(
    tool: Tool, served: Gateway, folder: Path
) -> None:
    topic = made(tool, "console", 2)
    tool("ConsoleProducer", "--topic", topic, given="a\nb\nc\n")
    words = ("--topic", topic, "--from-beginning", "--max-messages", "3", "--group", "console-group")
    assert sorted(tool("consumer.ConsoleConsumer", *words).split()) == ["a", "b", "c"]
    groups = tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", "console-group")
    rows = [line.split() for line in groups.splitlines() if line.startswith("console-group")]
    assert sum(int(row[3]) for row in rows) == 3
    assert {row[5] for row in rows} == {"0"}
    # The store's own reader sees the same.
    with Consumer(
        {"bootstrap.servers": str(folder / "store"), "group.id": "own", "auto.offset.reset": "earliest"}
    ) as own:
        own.subscribe([topic])
        found: set[object] = set()
        while len(found) < 3:
            found |= {message.value() for message in own.consume(3, timeout=10)}
    assert found == {b"a", b"b", b"c"}


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_what_a_topic_compresses_is_read(tool: Tool, served: Gateway, folder: Path, compression: str) -> None:
    """Java's client reads no frame of LZ4 whose blocks refer to each other; so there are several blocks."""
    topic = f"compressed-{compression}"
    words = ("--create", "--topic", topic, "--partitions", "1", "--replication-factor", "1")
    tool("TopicCommand", *words, "--config", f"compression.type={compression}")
    lines = [f"{number} " + "x" * 200 for number in range(2_000)]
    with Producer({"bootstrap.servers": str(folder / "store")}) as producer:
        for line in lines:
            producer.produce(topic, line)
    read = ("--topic", topic, "--from-beginning", "--max-messages", str(len(lines)))
    assert tool("consumer.ConsoleConsumer", *read).splitlines() == lines


def test_verifiable_clients_agree(tool: Tool) -> None:
    topic = made(tool, "verified", 2)
    sent = tool("VerifiableProducer", "--topic", topic, "--max-messages", "200", "--acks", "-1")
    assert re.search(r'"sent":200,"acked":200', sent)
    words = ("--topic", topic, "--group-id", "verified", "--max-messages", "200", "--reset-policy", "earliest")
    read = tool("VerifiableConsumer", *words)
    assert sum(map(int, re.findall(r'"name":"records_consumed","count":(\d+)', read))) >= 200


def test_transactions_of_the_performance_tool_are_listed(tool: Tool, served: Gateway) -> None:
    topic = made(tool, "performance")
    words = ("--topic", topic, "--num-records", "2000", "--record-size", "100", "--throughput", "-1")
    transactional = ("--transactional-id", "perf", "--transaction-duration-ms", "300")
    properties = ("--command-property", f"bootstrap.servers={served.address}")
    printed = tool("ProducerPerformance", *words, *transactional, *properties, address="")
    assert "2000 records sent" in printed
    listed = tool("TransactionsCommand", "list")
    # Not CompleteCommit: each end of a transaction of version 2 has given the producer its next epoch.
    assert re.search(r"^perf\s+0\s+\d+\s+Empty", listed, re.MULTILINE), listed


def test_streams_counts_words_exactly_once(command: list[str], tool: Tool, served: Gateway, folder: Path) -> None:
    """The example itself, with `exactly_once_v2` by its file of properties."""
    made(tool, "streams-plaintext-input")
    output = made(tool, "streams-wordcount-output")
    tool("ConsoleProducer", "--topic", "streams-plaintext-input", given=WORDS)
    properties = folder / "streams.properties"
    properties.write_text(
        f"bootstrap.servers={served.address}\nprocessing.guarantee=exactly_once_v2\n"
        f"state.dir={folder}/state\ncommit.interval.ms=200\n"
    )
    example = [*command, "org.apache.kafka.streams.examples.wordcount.WordCountDemo", str(properties)]
    log = (folder / "streams.log").open("wb")
    process = subprocess.Popen(example, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    try:
        counts: dict[str, int] = {}
        settings = {"bootstrap.servers": str(folder / "store"), "group.id": "words", "auto.offset.reset": "earliest"}
        with Consumer(settings) as own:
            own.subscribe([output])
            end = time.monotonic() + TOOL_S
            while counts != COUNTS and time.monotonic() < end:
                for message in own.consume(10, timeout=1):
                    key, value = message.key(), message.value()
                    assert isinstance(key, bytes)
                    assert isinstance(value, bytes)
                    counts[key.decode()] = int.from_bytes(value)
        assert counts == COUNTS, (folder / "streams.log").read_text()[-3000:]
    finally:
        process.kill()
        process.wait()
        log.close()
