"""Kafka's clients, and what each does at a gateway: its program of `programs/clients`, and what that is to say.

The table is the page's (docs/gateway.md). Each client is fetched once, in a folder of its own in the cache.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.interop import debian
from tests.interop.brokerjars import JARS as _BROKER
from tests.interop.kafkatools import Jar, cache_folder, fetch_jars, java
from tests.interop.peers import ROOT, CannotInstallError

__all__ = ["ADMIN", "CLIENTS", "CODECS", "COMMITTED", "GROUP", "GROUPS", "MECHANISMS", "Client", "expected", "plan"]

_PROGRAMS: Final = ROOT / "tests" / "interop" / "programs" / "clients"
_INSTALL_S: Final = 900

MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
GROUPS: Final = ("group", "newer_group")
"""Of the classic protocol, and of Kafka's newer one."""
GROUP: Final = ([f"first {number}" for number in range(6)], [f"second {number}" for number in range(4)])
"""What the first member of a group reads, and then the second one, which goes on behind that commit."""
COMMITTED: Final = [f"kept {number}" for number in range(4)]
_ABORTED: Final = ["left 0", "left 1"]
ADMIN: Final = {"partitions": 2, "retention.ms": "86400000", "is_deleted": True}
"""A topic is created, altered, described and deleted."""
_WAIT_S: Final = 60


class Client(NamedTuple):
    """A client in a version, as it says it itself; `parts` and `codecs` are all that it has.

    `fetched` are the packages that it is made of, and `command` makes the words that start its program of them.
    """

    name: str
    version: str
    program: str
    command: Callable[[Client], list[str]]
    fetched: tuple[Any, ...]
    parts: tuple[str, ...]
    codecs: tuple[str, ...] = CODECS

    def folder(self) -> Path:
        """Return where its packages are; made anew when they, or the program, have changed."""
        program = (_PROGRAMS / self.program).read_text()
        key = hashlib.sha256("\n".join([sys.version, program, *map(str, self.fetched)]).encode()).hexdigest()[:12]
        return cache_folder() / f"client-{self.program.partition('.')[0]}-{self.version}-{key}"


def plan(client: Client, address: str, user: str, password: str) -> Mapping[str, Any]:
    """Return what a program is given."""
    return {
        "address": address,
        "user": user,
        "password": password,
        "mechanisms": MECHANISMS,
        "topic": topic_of(client),
        "parts": client.parts,
        "codecs": _values_of(client),
        "group": GROUP,
        "committed": COMMITTED,
        "aborted": _ABORTED,
        "wait_s": _WAIT_S,
    }


def expected(client: Client) -> Mapping[str, Any]:
    """Return what a program prints: what it has read, and that each mechanism lets it in, and no wrong password."""
    found: dict[str, Any] = {"version": client.version, "logins": [*MECHANISMS], "is_refused": True}
    parts: dict[str, Any] = {"codecs": _values_of(client), "transaction": COMMITTED, "admin": ADMIN}
    return found | {part: [*GROUP] if part in GROUPS else parts[part] for part in client.parts}


def topic_of(client: Client) -> str:
    """Return how the names of its topics begin."""
    return re.sub(r"[^a-z0-9.]+", "-", f"{client.name} {client.version}".lower()).strip("-")


def _values_of(client: Client) -> dict[str, list[str]]:
    return {codec: [f"{codec} {number}" for number in range(6)] for codec in client.codecs}


def _run(command: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run([*command], cwd=folder, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotInstallError(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        raise CannotInstallError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-500:]}")


def _made(client: Client, make: Callable[[Path], None]) -> Path:
    folder = client.folder()
    if not (folder / "installed").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copy(_PROGRAMS / client.program, folder)
        make(folder)
        (folder / "installed").touch()
    return folder


def _python(client: Client) -> list[str]:
    def make(folder: Path) -> None:
        venv.create(folder / "python", with_pip=True)
        pip = [str(folder / "python" / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "install", *client.fetched], folder)

    folder = _made(client, make)
    return [str(folder / "python" / "bin" / "python"), str(folder / client.program)]


def _node(client: Client) -> list[str]:
    def make(folder: Path) -> None:
        (folder / "package.json").write_text("{}")
        _run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *client.fetched], folder)

    return ["node", str(_made(client, make) / client.program)]


def _go(client: Client) -> list[str]:
    def make(folder: Path) -> None:
        _run(["go", "mod", "init", "client"], folder)
        _run(["go", "get", *client.fetched], folder)
        _run(["go", "mod", "tidy"], folder)
        _run(["go", "build", "-o", "client", "."], folder)

    return [str(_made(client, make) / "client")]


def _java(client: Client) -> list[str]:
    try:
        path = os.pathsep.join(map(str, fetch_jars(client.fetched)))
    except (OSError, AssertionError) as error:
        raise CannotInstallError(f"the jars of {client.name}: {error}") from error

    def make(folder: Path) -> None:
        compiler = shutil.which("javac", path=str(Path(java()).resolve().parent)) or "javac"
        _run([compiler, "-cp", path, client.program], folder)

    jvm = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    return [java(), *jvm, "-cp", f"{_made(client, make)}{os.pathsep}{path}", Path(client.program).stem]


def _kcat(client: Client) -> list[str]:
    try:
        path = debian.program(*client.fetched)
    except debian.CannotFetchError as error:
        raise CannotInstallError(str(error)) from error
    return [sys.executable, str(_PROGRAMS / client.program), path]


_COMPRESSION: Final = ("lz4==4.4.5", "python-snappy==0.7.3", "zstandard==0.25.0")
_EVERYTHING: Final = ("codecs", "group", "transaction", "admin")
_K: Final = "org.apache.kafka"
_JAVA: Final = (
    Jar(_K, "kafka-clients", "4.4.0", "1ab07317eb6633241392449d329dbdc5d9251e6ffc4926860f42dd966e88bdf9"),
    Jar("at.yawk.lz4", "lz4-java", "1.11.2", "8a7458657938e9b692224db83aac458c13abd7a59ab75c3d3b08bd2233a646a2"),
    Jar("com.github.luben", "zstd-jni", "1.5.7-17", "c9043e2da8a16c13b6cd7661a5cb56685a573c3546ef4bd0ead67b0b67c2e107"),
    *(jar for jar in _BROKER if jar.artifact.startswith(("jackson-annotations", "jackson-core", "jackson-databind"))),
    *(jar for jar in _BROKER if jar.artifact in ("slf4j-api", "snappy-java")),
)

_LIBRDKAFKA: Final = "librdkafka (confluent-kafka)"
_CONFLUENT: Final = "with_confluent_kafka.py"
_AIO: Final = "with_aiokafka.py"
_KAFKA_PYTHON: Final = "with_kafka_python.py"
_PLATFORMATIC: Final = "@platformatic/kafka"
_NEWER: Final = (*_EVERYTHING, "newer_group")
CLIENTS: Final = (
    Client("Java", "4.4.0", "WithJava.java", _java, _JAVA, _NEWER),
    Client(_LIBRDKAFKA, "2.16.0", _CONFLUENT, _python, ("confluent-kafka==2.16.1",), _NEWER),
    Client(_LIBRDKAFKA, "2.8.0", _CONFLUENT, _python, ("confluent-kafka==2.8.0",), _NEWER),
    Client(_LIBRDKAFKA, "2.4.0", _CONFLUENT, _python, ("confluent-kafka==2.4.0",), _EVERYTHING),
    Client(_LIBRDKAFKA, "2.0.2", _CONFLUENT, _python, ("confluent-kafka==2.0.2",), _EVERYTHING),
    Client("kcat", "1.7.1", "with_kcat.py", _kcat, ("kcat", "kcat", "librdkafka1", "libyajl2"), ("codecs", "group")),
    Client("kafka-python", "3.0.12", _KAFKA_PYTHON, _python, ("kafka-python==3.0.12", *_COMPRESSION), _EVERYTHING),
    Client(
        *("kafka-python", "2.0.2", _KAFKA_PYTHON, _python),
        *(("kafka-python==2.0.2", *_COMPRESSION), ("codecs", "group", "admin")),
    ),
    Client("aiokafka", "0.14.0", _AIO, _python, ("aiokafka==0.14.0", "cramjam==2.14.0"), _EVERYTHING),
    Client(
        *("aiokafka", "0.8.1", _AIO, _python),
        *(("aiokafka==0.8.1", "kafka-python==2.0.2", *_COMPRESSION), ("codecs", "group", "transaction")),
    ),
    Client(
        *("kafka-go", "v0.4.51", "with_kafka_go.go", _go),
        *(("github.com/segmentio/kafka-go@v0.4.51",), ("codecs", "group", "admin")),
    ),
    Client(
        *("kafkajs", "2.2.4", "with_kafkajs.js", _node, ("kafkajs@2.2.4", "kafkajs-snappy@1.1.0"), _EVERYTHING),
        *(("none", "gzip", "snappy"),),
    ),
    Client(
        *(_PLATFORMATIC, "1.35.0", "with_platformatic.mjs", _node, (f"{_PLATFORMATIC}@1.35.0",), _NEWER),
        *(("none", "gzip", "snappy", "lz4"),),
    ),
)
"""Codecs of kafkajs are those that need no compiler; Node.js has zstd, which @platformatic/kafka takes, from 22 on."""
