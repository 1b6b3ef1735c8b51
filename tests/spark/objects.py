"""A store's objects by bare HTTP requests: no client of the cloud, and nothing of the product, has a word in it."""

from __future__ import annotations

from pathlib import Path

from tests.servers import ObjectServer


def copy_objects(server: ObjectServer, bucket: str, prefix: str, folder: Path) -> Path:
    """Copies the objects below `prefix` into `folder`, which then is a store on a local disk."""
    for key in server.keys(bucket, f"{prefix}/"):
        data = server.read(bucket, key)
        assert data is not None, key
        path = folder / key[len(prefix) + 1 :]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder
