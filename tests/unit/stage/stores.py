"""Stores for the tests of staging: objects in memory, with failures on demand, and a clock that does not wait."""

from __future__ import annotations

import pyarrow as pa

from sparktxn._engine.format import names
from sparktxn._engine.format.segment import checksum, decode_segment, stored_schema
from sparktxn._engine.objectstore.contract import PutOutcome
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.process.clock import SystemClock
from sparktxn._foundation.values.structs import TopicState
from sparktxn._rows.stage.stagedsegment import StagedSegment, StageTopic
from sparktxn.errors import StoreUnavailable


class CountingIds:
    """Tokens that count."""

    def __init__(self) -> None:
        self.count = 0

    def token(self) -> str:
        self.count += 1
        return f"{self.count:020x}"


_names = CountingIds()


class ScriptedStore(MemoryStore):
    """Does what `script` says for each put in turn, then stores as usual.

    ``lost``: stores, and does not say so. ``dropped``: does not store, and does not say so. ``exists``: stores, and
    says that the name was taken, as a client that retries on its own does. ``taken``: others' bytes are there.
    """

    def __init__(self, script: list[str] | None = None, *, unreadable: int = 0) -> None:
        super().__init__(f"stage-{_names.token()}", SystemClock())
        self.script = script or []
        self.unreadable = unreadable
        self.puts: list[tuple[str, bytes]] = []
        self.made_durable: list[str] = []

    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        self.puts.append((name, data))
        step = self.script.pop(0) if self.script else "created"
        if step == "dropped":
            return PutOutcome.UNKNOWN
        outcome = super().put_if_absent(name, b"other" if step == "taken" else data)
        return {"lost": PutOutcome.UNKNOWN, "exists": PutOutcome.EXISTS, "taken": PutOutcome.EXISTS}.get(step, outcome)

    def get(self, name: str) -> bytes | None:
        if self.unreadable:
            self.unreadable -= 1
            raise StoreUnavailable("no answer")
        return super().get(name)

    def make_durable(self, name: str) -> None:
        self.made_durable.append(name)


def stage_topic(
    name: str = "t",
    partition_count: int = 1,
    *,
    schema: tuple[tuple[str, str, bool], ...] | None = None,
    **settings: str,
) -> StageTopic:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return StageTopic.of(TopicState(name, 7, partition_count, given, schema, created_entry=1))


def stored(objects: MemoryStore, topic: StageTopic, staged: StagedSegment) -> pa.Table:
    """The records of a staged segment, checked against all that it says of itself."""
    name = names.segment(topic.name, topic.topic_id, staged.partition, staged.segment)
    data = objects.get(name)
    assert data is not None
    assert (len(data), checksum(data)) == (staged.size_bytes, staged.checksum)
    return decode_segment(data, name, schema=stored_schema(topic.schema), record_count=staged.record_count)
