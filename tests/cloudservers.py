"""Emulators of clouds on loopback: fake-gcs-server and Azurite. `.ci/ensure-clouds` installs them, or says how.

What they do otherwise than the real services is worked around here and in the tests, never in the product.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import shutil
import urllib.parse
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, ClassVar, Final

from tests.servers import HOST, ObjectServer, free_ports

__all__ = ["AzuriteServer", "FakeGcsServer", "installed"]

ROOT: Final = Path(__file__).parents[1]
_FOLDERS: Final = (ROOT / ".clouds", ROOT / ".clouds" / "node_modules" / ".bin", Path.home() / "go" / "bin")


def installed(command: str) -> str | None:
    """Return where a command is: on the path, where `.ci/ensure-clouds` puts it, or where Go does."""
    return shutil.which(command) or shutil.which(command, path=os.pathsep.join(map(str, _FOLDERS)))


def _found(command: str) -> str:
    found = installed(command)
    if found is None:
        raise RuntimeError(f"the command {command!r} is not installed: .ci/ensure-clouds installs it, or says how")
    return found


class FakeGcsServer(ObjectServer):
    """fake-gcs-server (Go), in memory.

    Its answer to a read in an absent bucket does not name the bucket, as the real service's does.
    """

    scheme = "gs"
    secret = "a-secret"
    create_method = "POST"

    def command(self) -> list[str]:
        """The server on a free port."""
        (self.port,) = free_ports(1)
        flags = {"scheme": "http", "host": HOST, "port": self.port, "backend": "memory", "log-level": "warn"}
        return [_found("fake-gcs-server"), *(f"-{name}={value}" for name, value in flags.items())]

    def storage_by(self, endpoint_url: str) -> dict[str, Any]:
        """The endpoint, and no credentials: it checks none."""
        return {"token": "anon", "endpoint_url": endpoint_url}

    def create_bucket(self, bucket: str) -> None:
        """POST of the bucket."""
        status, answer = self.request("POST", "/storage/v1/b", json.dumps({"name": bucket}).encode())
        if status not in (200, 409):
            raise RuntimeError(f"bucket {bucket!r} was not created: HTTP {status}, {answer[:300]!r}")

    def read(self, bucket: str, key: str) -> bytes | None:
        """GET of the media."""
        path = f"/storage/v1/b/{bucket}/o/{urllib.parse.quote(key, safe='')}"
        status, body = self.request("GET", f"{path}?alt=media")
        assert status in (200, 404), body
        return body if status == 200 else None

    def write(self, bucket: str, key: str, data: bytes) -> None:
        """An upload in one request."""
        query = urllib.parse.urlencode({"uploadType": "media", "name": key})
        status, body = self.request("POST", f"/upload/storage/v1/b/{bucket}/o?{query}", data)
        assert status == 200, body

    def keys(self, bucket: str, prefix: str) -> list[str]:
        """A listing without limit."""
        status, body = self.request("GET", f"/storage/v1/b/{bucket}/o?{urllib.parse.urlencode({'prefix': prefix})}")
        assert status == 200, body
        return [item["name"] for item in json.loads(body).get("items", ())]


# Of Azure's own documentation: every emulator has this account.
_ACCOUNT: Final = "devstoreaccount1"
_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

_AZURITE_SMALL_PAGES: Final = """
const folder = require("path").join(process.argv[1], "dist", "src", "blob");
require(folder + "/utils/constants").DEFAULT_LIST_BLOBS_MAX_RESULTS = Number(process.argv[2]);
process.argv.splice(1, 2, "azurite-blob");
require(folder + "/main");
"""


class AzuriteServer(ObjectServer):
    """Azurite's blobs (npm ``azurite``), in memory.

    Versions before 3.37 know neither ``startFrom`` nor the batches of Python's client. A page of its listings has a
    fiftieth of the objects that one of the real service has, so that short tests meet several pages.
    """

    scheme = "abfs"
    secret = _KEY
    path = f"/{_ACCOUNT}"
    page_size: ClassVar[int] = 100
    headers: ClassVar[dict[str, str]] = {"x-ms-version": "2020-10-02"}

    def command(self) -> list[str]:
        """The server of blobs on a free port, which takes clients that are newer than it."""
        (self.port,) = free_ports(1)
        package = Path(_found("azurite-blob")).resolve().parents[3]
        node = shutil.which("node") or "node"
        flags = ["--blobHost", HOST, "--blobPort", str(self.port), "--silent", "--inMemoryPersistence"]
        flags += ["--skipApiVersionCheck", "--disableTelemetry"]
        return [node, "-e", _AZURITE_SMALL_PAGES, str(package), str(self.page_size), *flags]

    def storage_by(self, endpoint_url: str) -> dict[str, Any]:
        """A connection string."""
        endpoint = endpoint_url if endpoint_url.endswith(self.path) else endpoint_url + self.path
        parts = {
            "DefaultEndpointsProtocol": "http",
            "AccountName": _ACCOUNT,
            "AccountKey": _KEY,
            "BlobEndpoint": endpoint,
        }
        return {"connection_string": ";".join(f"{name}={value}" for name, value in parts.items())}

    def create_bucket(self, bucket: str) -> None:
        """PUT of the container."""
        status, answer = self._signed("PUT", bucket, {"restype": "container"})
        if status not in (201, 409):
            raise RuntimeError(f"container {bucket!r} was not created: HTTP {status}, {answer[:300]!r}")

    def read(self, bucket: str, key: str) -> bytes | None:
        """GET of the blob."""
        status, body = self._signed("GET", f"{bucket}/{urllib.parse.quote(key)}", {})
        assert status in (200, 404), body
        return body if status == 200 else None

    def write(self, bucket: str, key: str, data: bytes) -> None:
        """PUT of the blob."""
        kind = {"x-ms-blob-type": "BlockBlob"}
        status, body = self._signed("PUT", f"{bucket}/{urllib.parse.quote(key)}", {}, data, **kind)
        assert status == 201, body

    def keys(self, bucket: str, prefix: str) -> list[str]:
        """All pages of a listing."""
        keys: list[str] = []
        query = {"restype": "container", "comp": "list", "prefix": prefix}
        while True:
            status, body = self._signed("GET", bucket, query)
            assert status == 200, body
            listing = ET.fromstring(body)
            keys += [element.text or "" for element in listing.iterfind("Blobs/Blob/Name")]
            query["marker"] = listing.findtext("NextMarker") or ""
            if not query["marker"]:
                return keys

    def _signed(
        self, method: str, path: str, query: dict[str, str], body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes]:
        """A bare request with a signature of the account for all that there is, until the year 2100."""
        grant = {"sp": "rwdlac", "ss": "b", "srt": "sco", "st": "", "se": "2100-01-01", "sip": "", "spr": "http,https"}
        grant["sv"] = "2020-10-02"
        text = "\n".join([_ACCOUNT, *grant.values(), ""])
        digest = hmac.new(base64.b64decode(_KEY), text.encode(), hashlib.sha256).digest()
        signed = query | {name: value for name, value in grant.items() if value}
        signed["sig"] = base64.b64encode(digest).decode()
        return self.request(method, f"{self.path}/{path}?{urllib.parse.urlencode(signed)}", body, **headers)
