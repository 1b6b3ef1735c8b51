"""Whether staged rows of keyed topics have a key twice: an engine whose rows have no order asks before it commits.

The columns of the key are read back from what is staged, partition by partition. Eight bytes are kept of each row, of a
bounded number of rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparktxn._engine.format import names
from sparktxn._engine.format.keytext import key_texts
from sparktxn._engine.format.schema import stored_schema
from sparktxn._engine.format.segment import decode_segment
from sparktxn._rows.stage.rowdigest import key_words
from sparktxn._rows.stage.stagedsegment import StagedSegment, StageTopic
from sparktxn.errors import SegmentExpired
from sparktxn.store.registry import objects_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sparktxn._engine.objectstore.contract import ObjectStore
    from sparktxn.store.stageplan import StagePlan

    Words = NDArray[np.uint64]

_ROWS_AT_ONCE: Final = 4_194_304
"""Rows whose words are compared at a time: 32 MiB. A partition with more is read again for each further part."""

_SUSPECTS_AT_ONCE: Final = 4_096
"""Words whose keys are compared at a time. Two keys of one word are so rare that the first part has a key twice."""


def repeated_words(words: Words) -> Words:
    """Return the words that are there more than once, each once, in their order."""
    ordered = np.sort(words)
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def repeated_key(plan: StagePlan, staged: Sequence[StagedSegment], suspects: Words | None = None) -> str | None:
    """Return the text of a key that two staged rows of its topic have; None if each key is there once.

    Args:
        plan: the plan by which the rows were staged.
        staged: the segments; those of topics without a key are not looked at.
        suspects: the `key_words`, each once and in their order, of the only keys that may be there twice. None: of all
            keys.

    Raises:
        SegmentExpired, DamagedObject: a staged segment is missing, or altered.
        StoreUnavailable: the store does not answer.
    """
    objects = objects_of(plan.store_uri, plan.options)
    keyed = sorted((segment for segment in staged if segment.is_keyed), key=_place)
    for (topic, _), segments in groupby(keyed, key=_place):
        found = _Partition(objects, plan.topics[topic], tuple(segments)).repeated(suspects)
        if found is not None:
            return found
    return None


_place: Final = attrgetter("topic", "partition")


class _Partition:
    """The staged rows of one partition."""

    def __init__(self, objects: ObjectStore, topic: StageTopic, segments: Sequence[StagedSegment]) -> None:
        self._objects = objects
        self._topic = topic
        self._segments = segments

    def repeated(self, suspects: Words | None) -> str | None:
        """Return the text of a key that is there twice; None if none is."""
        if suspects is not None:
            return self._repeated_of(suspects)
        turns = -(-sum(segment.record_count for segment in self._segments) // _ROWS_AT_ONCE)
        for turn in range(turns):
            parts = (words[words % turns == turn] for _, words in self._keys())
            found = self._repeated_of(repeated_words(np.concatenate(list(parts))))
            if found is not None:
                return found
        return None

    def _repeated_of(self, suspects: Words) -> str | None:
        """Return the text of a key that is there twice, of those that have some of the words."""
        for first in range(0, len(suspects), _SUSPECTS_AT_ONCE):
            some = suspects[first : first + _SUSPECTS_AT_ONCE]
            seen: set[bytes] = set()
            for rows, words in self._keys():
                places = np.minimum(np.searchsorted(some, words), len(some) - 1)
                suspected = rows.filter(pa.array(some[places] == words)).combine_chunks()
                if not suspected.num_rows:
                    continue
                counted = key_texts([column.chunk(0) for column in suspected.columns]).value_counts()
                texts = counted.field("values").to_pylist()
                twice = counted.filter(pc.greater(counted.field("counts"), 1)).field("values").to_pylist()
                twice += seen.intersection(texts)
                if twice:
                    return str(min(twice).decode(errors="backslashreplace"))
                seen.update(texts)
        return None

    def _keys(self) -> Iterator[tuple[pa.Table, Words]]:
        """Yield the columns of the key, and the words of the keys, segment by segment."""
        topic = self._topic
        for segment in self._segments:
            name = names.segment(topic.name, segment.topic_id, segment.partition, segment.segment)
            data = segment.data or self._objects.get(name)
            if data is None:
                raise SegmentExpired(f"segment {name!r} was staged, and is gone from the store: write the rows again")
            rows = decode_segment(
                data,
                name,
                schema=stored_schema(topic.schema),
                columns=topic.primary_key,
                record_count=segment.record_count,
            )
            yield rows, key_words(topic, rows)
