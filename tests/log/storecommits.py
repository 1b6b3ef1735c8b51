"""Records of topic `t` as a caller of `Store.commit` stages them, and as a reader finds them."""

from __future__ import annotations

import pyarrow as pa

from sparktxn import Store, read_task
from sparktxn._rows.stage.stagedsegment import StagedSegment


def staged(store: Store, *values: bytes) -> list[StagedSegment]:
    stager = store.stage_plan(["t"]).open(seed=0, default_topic="t")
    stager.write(pa.record_batch({"value": pa.array(values, pa.binary())}))
    return stager.finish()


def values_of(store: Store) -> list[bytes]:
    view = store.view(["t"])
    batches = [batch for task in store.plan(view, store.ranges(view)) for batch in read_task(task)]
    return sorted(value.as_py() for batch in batches for value in batch.column("value"))
