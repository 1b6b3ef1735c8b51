"""Gateways as processes of their own, as the command starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sparktxn.admin import AdminClient, NewTopic
from tests.commandline import txnlog
from tests.gateway.wire import WAIT_S


class Gateway(NamedTuple):
    address: str
    store: str
    process: subprocess.Popen[bytes]
    row: dict[str, str]

    def end(self) -> tuple[int, str]:
        """Ask it to end; return its exit code and what it has written to standard error."""
        self.process.terminate()
        _, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, err.decode()


def new_store(folder: Path, *topics: str) -> str:
    store = str(folder / "store")
    with AdminClient({"bootstrap.servers": store}) as admin:
        for future in admin.create_topics([NewTopic(name, 2) for name in topics or ("orders",)]).values():
            future.result()
    return store


@contextmanager
def gateway(store: str, *options: str, listen: str = "127.0.0.1:0", own_python: bool = False) -> Iterator[Gateway]:
    """Start a gateway, and kill it at the end. A test whose subject is a signal needs one with a Python of its own."""
    words = ("gateway", "--store", store, "--listen", listen, "--json", *options)
    pipe = subprocess.PIPE
    command = [*([sys.executable, "-m", "sparktxn"] if own_python else txnlog()), *words]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=os.environ)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            _, err = process.communicate(timeout=WAIT_S)
            raise AssertionError(err.decode())
        row = json.loads(line)
        yield Gateway(row["address"], store, process, row)
    finally:
        process.kill()
        process.communicate()
