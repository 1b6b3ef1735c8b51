"""A keyed topic through a gateway, for a client over librdkafka: its partitioner decides whether rows are taken."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from sparktxn import Store, read_arrow
from tests.interop.gateway.serving import Gateway
from tests.interop.peers import ROOT, run

pytestmark = pytest.mark.interop

PROGRAM = str(ROOT / "tests" / "interop" / "programs" / "keyed_rows.py")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


def test_librdkafka_writes_and_reads_a_keyed_topic_with_murmur2(confluent: Path, tmp_path: Path) -> None:
    with Gateway(tmp_path) as served, Store.open(str(tmp_path / "store")) as store:
        store.create_topic("keyed", 4, settings={"primary.key": "id"}, schema=SCHEMA)
        refused = json.loads(run(confluent, [PROGRAM, served.address, "keyed", "consistent"]))
        assert refused["failed"] > 0
        done = json.loads(run(confluent, [PROGRAM, served.address, "keyed", "murmur2"]))
        found = read_arrow(store, "keyed", columns=["id", "name"]).read_all().to_pylist()
    assert done["table"] == {str(row["id"]): row["name"] for row in found}
    assert len(found) == 30
