"""Builds of the sink without one of its rules: the checker must see each of them fail."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

__all__ = ["BUILDS"]


def _ignore_identity(module: ModuleType) -> None:
    """Commit each micro-batch under a new transactional id: the log cannot know that it was there before."""
    commit = module.commit_batch

    def commit_batch(*arguments: Any, **named: Any) -> Any:
        return commit(*arguments, **named | {"transactional_id": f"broken-{uuid.uuid4()}"})

    module.commit_batch = commit_batch  # type: ignore[attr-defined]


def _commit_topic_by_topic(module: ModuleType) -> None:
    """Commit the rows of each topic in a transaction of its own, each known to the log by its own identity."""
    commit = module.commit_batch

    def commit_batch(options: Any, staged: Any, *, transactional_id: str, sink: Any) -> None:
        for topic in sorted({segment.topic for segment in staged}):
            some = [segment for segment in staged if segment.topic == topic]
            commit(options, some, transactional_id=f"{transactional_id}-{topic}", sink=sink)

    module.commit_batch = commit_batch  # type: ignore[attr-defined]


def _lose_a_segment(module: ModuleType) -> None:
    """Commit all segments of a micro-batch but the last one."""
    commit = module.commit_batch

    def commit_batch(options: Any, staged: Any, **named: Any) -> None:
        commit(options, staged[:-1], **named)

    module.commit_batch = commit_batch  # type: ignore[attr-defined]


_Wrapper = Callable[[ModuleType], None]


def _sinks(wrapper: _Wrapper) -> dict[str, _Wrapper]:
    return {"pyspark_txnlog.writing.stream_writer": wrapper, "pyspark_txnlog.writing.foreach": wrapper}


BUILDS: Final[dict[str, dict[str, _Wrapper]]] = {
    "identity-ignored": _sinks(_ignore_identity),
    "topic-by-topic": _sinks(_commit_topic_by_topic),
    "segment-lost": _sinks(_lose_a_segment),
}
"""By name, the modules that a build changes."""
