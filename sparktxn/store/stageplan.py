"""What a process needs to stage records for a transaction that another one commits."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from sparktxn._foundation.process.background import ThreadBackground
from sparktxn._foundation.process.clock import RandomIds, SystemClock
from sparktxn._foundation.values import arguments
from sparktxn._rows.stage.stager import STAGING_THREADS, SegmentStager, StageTopic
from sparktxn.store.registry import objects_of


class StagePlan(Struct, frozen=True):
    """All that a process needs to stage records: picklable, no secrets in its `repr`."""

    store_uri: str
    options: dict[str, Any]
    born: int
    topics: dict[str, StageTopic]
    inline_bytes: int = 0

    def open(
        self,
        *,
        seed: int,
        default_topic: str | None = None,
        partitioner: str = "consistent_random",
        inline: bool = False,
        digests: bool = True,
    ) -> SegmentStager:
        """Return a stager in this process; equal rows under an equal `seed` go to equal partitions.

        Without `digests` a commit with a `sink` recognises a batch by the number of its rows and bytes only.

        With `inline` it does not upload what is small: the staged segments hold it, for the entry that names them.
        """
        seed = arguments.integer("seed", seed)
        default_topic = arguments.text_or_none("default_topic", default_topic)
        partitioner = arguments.text("partitioner", partitioner)
        inline = arguments.boolean("inline", inline)
        digests = arguments.boolean("digests", digests)
        objects = objects_of(self.store_uri, self.options)
        return SegmentStager(
            objects,
            RandomIds(),
            self.born,
            self.topics,
            seed=seed,
            default_topic=default_topic,
            partitioner=partitioner,
            clock=SystemClock(),
            background=ThreadBackground("sparktxn-stage", STAGING_THREADS),
            digests=digests,
            inline_bytes=self.inline_bytes if inline else 0,
        )

    def __repr__(self) -> str:
        return f"StagePlan(store_uri={self.store_uri!r}, born={self.born}, topics={sorted(self.topics)})"
