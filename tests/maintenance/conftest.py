"""What tests of maintenance share: roots of every kind of store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

BUCKET = "copying"


@pytest.fixture(
    params=[
        "local",
        pytest.param("moto_server", marks=[pytest.mark.moto, pytest.mark.nightly]),
        pytest.param("seaweed_server", marks=[pytest.mark.seaweedfs, pytest.mark.nightly]),
        pytest.param("fake_gcs_server", marks=pytest.mark.clouds),
        pytest.param("azurite_server", marks=pytest.mark.clouds),
    ]
)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """An empty root to copy to, and the options to open it with."""
    if request.param == "local":
        return str(tmp_path / "root"), {"store.fsync": "false"}
    server: Any = request.getfixturevalue(request.param)
    server.create_bucket(BUCKET)
    return server.uri(BUCKET, tmp_path.name), server.options
