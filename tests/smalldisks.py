"""Programs that have a small disk of their own, which they may fill or make read-only."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

__all__ = ["with_mounts"]


def with_mounts(
    command: Sequence[str],
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command that may mount file systems for itself. The test is skipped where nothing may be mounted."""
    for prefix in (["unshare", "-m"], ["unshare", "-Urm"]):
        try:
            if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
                break
        except OSError:
            continue
    else:
        pytest.skip("nothing may be mounted here")
    return subprocess.run(
        [*prefix, *command],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=environment,
        cwd=folder,
        check=False,
    )
