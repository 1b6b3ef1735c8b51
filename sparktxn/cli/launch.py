"""The entry point of the command, which needs the extra ``cli``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command with this process's arguments; return its exit code."""
    try:
        # Imported late: without the extra, the packages of the command line are missing.
        from sparktxn.cli.app import run
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in ("typer", "rich"):
            raise
        sys.stderr.write("txnlog: the command needs Typer and Rich: pip install 'sparktxn[cli]'\n")
        return 1
    return run(sys.argv[1:])
