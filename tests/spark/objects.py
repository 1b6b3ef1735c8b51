"""A store's objects by bare HTTP requests: no client of S3, and nothing of the product, has a word in it."""

from __future__ import annotations

import urllib.parse
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.servers import S3Server


def copy_objects(server: S3Server, bucket: str, prefix: str, folder: Path) -> Path:
    """Copies the objects below `prefix` into `folder`, which then is a store on a local disk."""
    for key in _keys(server, bucket, f"{prefix}/"):
        status, data = server.request("GET", f"/{bucket}/{urllib.parse.quote(key)}")
        assert status == 200, (key, data)
        path = folder / key[len(prefix) + 1 :]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def _keys(server: S3Server, bucket: str, prefix: str) -> list[str]:
    keys: list[str] = []
    token = None
    while True:
        query = {"list-type": "2", "prefix": prefix} | ({"continuation-token": token} if token else {})
        status, body = server.request("GET", f"/{bucket}?{urllib.parse.urlencode(query)}")
        assert status == 200, body
        listing = ET.fromstring(body)
        keys += [element.text or "" for element in listing.iterfind("{*}Contents/{*}Key")]
        token = listing.findtext("{*}NextContinuationToken")
        if listing.findtext("{*}IsTruncated") != "true":
            return keys
