"""Where tests take their seeds from: fixed ones in `make test`, new ones each night.

`make test` draws nothing at random, so the same source gives the same result. `make nightly` draws one seed, prints it,
and sets it as the variable SPARKTXN_SEED for all its groups. The same variable replays a failure of the night.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from random import Random
from typing import TypeVar

__all__ = ["SEED_VARIABLE", "examples", "night_seed", "seed_of", "share"]

Item = TypeVar("Item")

SEED_VARIABLE = "SPARKTXN_SEED"


def night_seed() -> int | None:
    """Return the seed of this night, or of the run to replay; None in `make test`."""
    given = os.environ.get(SEED_VARIABLE)
    return None if not given else int(given)


def examples(daily: int, nightly: int) -> int:
    """Return how many examples a slow property draws: `daily` in `make test`, `nightly` in the night's groups."""
    return daily if night_seed() is None else nightly


def share(items: Iterable[Item], turn: int, parts: int = 12, nightly_parts: int = 1) -> list[Item]:
    """Return one of so many parts of `items` by day, another one in the next turn; at night one of `nightly_parts`.

    For tests that try each kind of fault, a turn each, at each point: by day each point meets a twelfth of the faults.
    The night's seed says which part it takes.
    """
    night = night_seed()
    taken = parts if night is None else nightly_parts
    return list(items)[(turn + (night or 0)) % taken :: taken]


def seed_of(test: str, fixed: int = 1) -> int:
    """Return the seed that `test` draws its history from: `fixed`, or at night one of its own; pytest prints it.

    The night's seed in the variable replays a test that failed at night. A pinned test takes the number printed here.
    """
    night = night_seed()
    seed = fixed if night is None else Random(f"{night}/{test}").randrange(1_000_000_000)
    print(f"{test}: seed {seed}" + ("" if night is None else f", of the night {SEED_VARIABLE}={night}"))
    return seed
