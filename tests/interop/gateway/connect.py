"""A worker of Kafka Connect with Debezium, and a PostgreSQL for it: each a process that may be killed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.interop.gateway.connectjars import CONNECT, DEBEZIUM
from tests.interop.kafkatools import cache_folder, fetch_jars, java
from tests.servers import HOST, free_ports

__all__ = ["CannotStartError", "Postgres", "Worker"]

_START_S: Final = 180
_ANSWER_S: Final = 30
_TRIED_EACH_S: Final = 0.5
_USER: Final = "postgres"
_SERVER: Final = ("initdb", "pg_isready", "postgres", "psql")
_LOGGED: Final = "-Dorg.slf4j.simpleLogger.showDateTime=true"
_JVM: Final = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", _LOGGED)
_WORKER: Final = {
    "group.id": "connect",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "offset.storage.partitions": "2",
    "status.storage.partitions": "1",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "exactly.once.source.support": "enabled",
    "session.timeout.ms": "10000",
    "heartbeat.interval.ms": "3000",
}


class CannotStartError(Exception):
    """The programs, the jars or Java cannot be had here."""


class Postgres:
    """A server with logical decoding, in a folder of its own: it runs as another user, who sees no folder of a test."""

    def __init__(self) -> None:
        on_path = [Path(found).parent for found in [shutil.which("initdb")] if found]
        folders = [*on_path, *Path("/usr/lib/postgresql").glob("*/bin")]
        found = [each for each in folders if all((each / name).exists() for name in _SERVER)]
        if not found:
            raise CannotStartError("PostgreSQL is not installed")
        self._programs = found[-1]
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._as: dict[str, Any] = {"user": _USER, "group": _USER, "extra_groups": []} if os.geteuid() == 0 else {}
        if self._as:
            try:
                shutil.chown(self._folder, _USER, _USER)
            except LookupError as error:
                raise CannotStartError(f"PostgreSQL does not run as root, and there is no user {_USER}") from error
        data = str(self._folder / "data")
        (self.port,) = free_ports(1)
        self._run("initdb", "-D", data, "-U", _USER, "-A", "trust", "--no-sync")
        options = {"wal_level": "logical", "listen_addresses": HOST, "fsync": "off", "port": self.port}
        named = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        command = [str(self._programs / "postgres"), "-D", data, "-k", str(self._folder), *named]
        log = (self._folder / "log").open("wb")
        self._process = subprocess.Popen(command, cwd="/", stdout=log, stderr=subprocess.STDOUT, **self._as)
        end_s = time.monotonic() + _START_S
        while self._ready().returncode:
            if time.monotonic() > end_s or self._process.poll() is not None:
                raise CannotStartError((self._folder / "log").read_text()[-1000:])
            time.sleep(_TRIED_EACH_S)

    def _run(self, name: str, *words: str) -> None:
        done = subprocess.run(
            [str(self._programs / name), *words], cwd="/", capture_output=True, text=True, check=False, **self._as
        )
        if done.returncode:
            raise CannotStartError(done.stderr[-1000:])

    def _ready(self) -> subprocess.CompletedProcess[bytes]:
        command = [str(self._programs / "pg_isready"), "-h", HOST, "-p", str(self.port)]
        return subprocess.run(command, capture_output=True, check=False)

    def sql(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        words = [word for statement in statements for word in ("-c", statement)]
        command = [str(self._programs / "psql"), "-h", HOST, "-p", str(self.port), "-U", _USER, "-qX"]
        subprocess.run([*command, "-v", "ON_ERROR_STOP=1", *words], check=True, capture_output=True)

    def close(self) -> None:
        """End it, and delete what it has stored."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


class Worker:
    """A worker of Connect, with `settings` for all of its clients; what it knows is in its topics."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        try:
            jars, (archive,) = fetch_jars(CONNECT), fetch_jars([DEBEZIUM])
            path = os.pathsep.join(map(str, jars))
            self._command = [java(), *_JVM, "-cp", path, "org.apache.kafka.connect.cli.ConnectDistributed"]
        except (OSError, AssertionError) as error:
            raise CannotStartError(f"Kafka Connect and Debezium: {error}") from error
        plugins = cache_folder() / f"debezium-{DEBEZIUM.version}"
        if not plugins.exists():
            with tarfile.open(archive) as opened:
                opened.extractall(plugins, filter="data")
        (port,) = free_ports(1)
        self._address = f"http://{HOST}:{port}"
        clients = {f"{kind}{name}": text for kind in ("", *_CLIENTS) for name, text in settings.items()}
        own = {"listeners": self._address, "plugin.path": str(plugins), "plugin.discovery": "service_load"}
        properties = folder / "worker.properties"
        properties.write_text("".join(f"{name}={text}\n" for name, text in (_WORKER | own | clients).items()))
        self._command.append(str(properties))
        self._log = folder / "worker.log"
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        """Kill it with SIGKILL, and start it again."""
        self._process.kill()
        self._process.wait()
        self._process = self._started()

    def put(self, name: str, settings: Mapping[str, str]) -> None:
        """Create a connector, once the worker answers."""
        body = json.dumps(settings).encode()
        url = f"{self._address}/connectors/{name}/config"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="PUT")
        end_s = time.monotonic() + _START_S
        while True:
            try:
                urllib.request.urlopen(request, timeout=_START_S).close()
            except urllib.error.HTTPError as error:
                reason = error.read().decode()
                if error.code < 500 and error.code not in (404, 409):
                    raise AssertionError(reason) from error
            except OSError as error:
                reason = str(error)
            else:
                return
            assert self._process.poll() is None, self.said()
            assert time.monotonic() < end_s, reason + self.said()
            time.sleep(_TRIED_EACH_S)

    def failed_tasks(self, name: str) -> list[str]:
        """Return why tasks of a connector have failed; empty also while the worker does not answer."""
        try:
            with urllib.request.urlopen(f"{self._address}/connectors/{name}/status", timeout=_ANSWER_S) as answer:
                tasks = json.load(answer)["tasks"]
        except OSError:
            return []
        return [task["trace"] for task in tasks if task["state"] == "FAILED"]

    def restart_failed_tasks(self, name: str) -> None:
        """Start tasks again that have failed, as an operator does."""
        url = f"{self._address}/connectors/{name}/restart?includeTasks=true&onlyFailed=true"
        request = urllib.request.Request(url, b"", {"Content-Type": "application/json"}, method="POST")
        with suppress(OSError):
            urllib.request.urlopen(request, timeout=_ANSWER_S).close()

    def said(self) -> str:
        """Return the end of what it has printed."""
        return self._log.read_text()[-3000:]

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


_CLIENTS: Final = ("producer.", "consumer.", "admin.")
"""What the settings of a connector's own clients begin with: they need the log-in of the worker, too."""
