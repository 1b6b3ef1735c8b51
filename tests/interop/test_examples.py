"""What confluent-kafka's examples do prints the same on a Kafka broker and on a store (`make interop`).

The package that is installed has no examples in it. The programs here are named after them, and written anew. Left out
are those whose service is missing: Confluent Cloud, OAuth, SASL, and encryption with a key service. Share consumers
have no meaning here (docs/porting.md).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.broker import Broker
from tests.interop.peers import run

pytestmark = pytest.mark.interop

EXAMPLES = sorted((Path(__file__).parent / "programs" / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_the_same(example: Path, confluent: Path, broker: Broker, tmp_path: Path) -> None:
    there = run(confluent, [str(example), broker.address])
    store = ["-m", "sparktxn.compat", "--stores", str(tmp_path / "log")]
    here = run(confluent, [*store, str(example), broker.address])
    assert here == there
    assert there
