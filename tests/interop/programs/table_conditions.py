"""Read random topics' tables by a condition on each column, in the ways of the engines that the argument names."""

from __future__ import annotations

import pickle
import sys
from base64 import b64decode

from tests.interop.programs.requests_loop import serve
from tests.tableways import DEV_WAYS, DUCKDB_WAYS, FRAME_WAYS, differences

WAYS = {"duckdb": DUCKDB_WAYS, "frames": FRAME_WAYS, "dev": DEV_WAYS}


def conditions(request: dict) -> list:
    """What differs from the log's own reader, and how many answers were compared."""
    return list(differences(pickle.loads(b64decode(request["table"])), WAYS[sys.argv[1]]))


if __name__ == "__main__":
    serve(lambda: {"conditions": conditions})
