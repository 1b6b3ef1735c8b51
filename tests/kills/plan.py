"""What a seed chooses: the query, and the blows that it gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Final

from tests.kills.blows import AT_RANDOM, COMMIT_POINTS, POINTS, TASK_POINTS, Blow
from tests.kills.queries import SOURCES, Query

__all__ = ["CLOUDS", "MASTERS", "STORES", "choose_blows", "choose_query", "every_point"]

STORES: Final = ("local", "moto", "seaweedfs")
CLOUDS: Final = ("fake-gcs", "azurite")
MASTERS: Final = ("local[2,4]", "local-cluster[2,1,1024]")
"""Threads of the driver, each task tried up to four times; and two executors, processes of their own."""

_SINKS: Final = ("sink", "foreach", "sink", "foreach-outputs", "sink")
_FIRST_AFTER: Final = 1


def choose_query(seed: int, batches: int, store: str, uri: str, options: Mapping[str, str], folder: Path) -> Query:
    """Return the query of a seed; five seeds on three stores have all sources, sinks and kinds of content."""
    place = seed - 1 + 5 * (*STORES, *CLOUDS).index(store)
    return Query(
        uri=uri,
        options=options,
        folder=str(folder),
        source=SOURCES[place % 3],
        sink=_SINKS[place % 5],
        shuffle=place % 2 == 1,
        random=place // 2 % 2 == 0,
        batches=batches,
        master=MASTERS[seed % 5 == 3],
    )


def choose_blows(query: Query, seed: int) -> list[Blow]:
    """Return every blow at every point, and some at random, in an order of the seed, spread over the micro-batches."""
    random = Random(f"blows/{seed}")
    pairs = [*product(POINTS, ("raise", "worker", "driver", "orphan")), *product(COMMIT_POINTS, ("stop",))]
    pairs += [(AT_RANDOM, action) for action in ("driver", "driver", "driver", "worker", "worker", "worker")]
    if query.master.startswith("local-cluster"):
        pairs += [*product(TASK_POINTS, ("executor",)), (AT_RANDOM, "executor"), (AT_RANDOM, "executor")]
    random.shuffle(pairs)
    return _spread(pairs[: query.batches - 2], query.batches)


def every_point(query: Query) -> list[Blow]:
    """Return an error and a kill at every point, with few new drivers: for a short run."""
    pairs = [(point, action) for action in ("raise", "worker") for point in POINTS]
    return _spread([*pairs, ("entry-after", "driver")], query.batches)


def _spread(pairs: Sequence[tuple[str, str]], batches: int) -> list[Blow]:
    step = (batches - _FIRST_AFTER - 1) / len(pairs)
    return [Blow(point, action, _FIRST_AFTER + int(place * step)) for place, (point, action) in enumerate(pairs)]
