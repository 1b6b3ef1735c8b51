"""The command `txnlog` in a process of its own, which need not import what the command imports."""

from __future__ import annotations

import atexit
from functools import cache

from tests.forkserver import ForkServer

__all__ = ["txnlog"]


@cache
def txnlog() -> list[str]:
    """Return a command line, for all tests that this process runs."""
    server = ForkServer("sparktxn._programs.cli.app", "sparktxn._programs.gateway.gatewayserver").__enter__()
    atexit.register(server.__exit__)
    return [*server.python, "-m", "sparktxn"]
