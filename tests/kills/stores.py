"""The stores of runs under kills: a folder, or a bucket of a server that is copied to a folder to be checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.cloudservers import AzuriteServer, FakeGcsServer
from tests.kills.blows import Blow
from tests.kills.queries import Query
from tests.kills.supervisor import Report, run
from tests.servers import MotoServer, ObjectServer, SeaweedServer
from tests.spark.objects import copy_objects

__all__ = ["Place", "under_kills"]

_SERVERS: Final[Mapping[str, type[ObjectServer]]] = {
    "moto": MotoServer,
    "seaweedfs": SeaweedServer,
    "fake-gcs": FakeGcsServer,
    "azurite": AzuriteServer,
}
_BUCKET: Final = "kills"


class Place(NamedTuple):
    """Where a run keeps its store."""

    uri: str
    options: Mapping[str, str]
    folder: Path
    server: ObjectServer | None

    def run(self, query: Query, blows: Sequence[Blow], seed: int, broken: str = "") -> Report:
        """Run the query through the blows, and check what the store holds."""
        return run(query, blows, seed, self._copy if self.server is not None else None, broken)

    def _copy(self) -> Path:
        assert self.server is not None
        return copy_objects(self.server, _BUCKET, self.folder.name, self.folder / "copy")


@contextmanager
def under_kills(store: str, folder: Path) -> Iterator[Place]:
    """Make a place for a store, on a server that is started for it unless `store` is ``local``."""
    folder.mkdir(parents=True, exist_ok=True)
    if store == "local":
        yield Place(str(folder / "store"), {}, folder, None)
        return
    with _SERVERS[store](folder / "server") as server:
        server.create_bucket(_BUCKET)
        yield Place(server.uri(_BUCKET, folder.name), server.options, folder, server)
