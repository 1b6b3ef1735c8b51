"""Start the demo's own modules as processes of this Python."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

__all__ = ["start_module"]


def _environment() -> dict[str, str]:
    # The examples' folder is for Python's workers too, which import the sink that kills.
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def start_module(module: str, arguments: Sequence[str], log: IO[str]) -> subprocess.Popen[bytes]:
    """Start a module at the head of a session, so that it can be killed with all that it starts."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=log,
        stderr=log,
        stdin=subprocess.PIPE,
        env=_environment(),
        start_new_session=True,
    )
