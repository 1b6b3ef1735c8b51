"""A gateway in a process of its own for the suites of Kafka's clients, which want topics of several partitions.

python -m tests.interop.gateway.serving STORE '{"partition_count": 4}'
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Self

from sparktxn._programs.gateway.gatewayserver import serve
from sparktxn._programs.gateway.gatewaysettings import GatewaySettings
from sparktxn.store import Store
from tests.interop.peers import ROOT

__all__ = ["Gateway"]

_END_S: Final = 60
_READY: Final = "serving"


class Gateway:
    """One that serves a store in `folder`, with the members of `GatewaySettings` that are given."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        words = [str(folder / "store"), json.dumps(settings)]
        command = [sys.executable, "-m", "tests.interop.gateway.serving", *words]
        self._log = (folder / "gateway.log").open("w+")
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=self._log, text=True)
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        assert words[:1] == [_READY], self.errors()
        self.address = words[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(_END_S)
        self._log.close()

    def errors(self) -> str:
        """Return what it has written to standard error."""
        self._log.seek(0)
        return self._log.read()


def _main(store_uri: str, settings: str) -> None:
    def started(address: str, _: str | None) -> None:
        print(_READY, address, flush=True)

    with Store.open(store_uri, create=True) as store:
        serve(store, "127.0.0.1:0", settings=GatewaySettings(**json.loads(settings)), on_start=started)


if __name__ == "__main__":
    _main(*sys.argv[1:])
