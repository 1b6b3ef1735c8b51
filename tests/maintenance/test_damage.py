"""Each object that a view may read is damaged in each way, one at a time: verifying finds it, and names it."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from sparktxn._engine.format.names import HORIZONS
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn.maintenance import verify
from sparktxn.store import Store
from tests.maintenance.longlife import DAMAGES, DECIDES_NOTHING, SETTINGS, LongLife, deleted, names_in
from tests.seeds import examples, night_seed, seed_of

Case = tuple[str, Callable[..., Any]]


@pytest.fixture(scope="module")
def lived() -> Iterator[Store]:
    """A store after all jobs, with open and prepared transactions; nothing is wrong with it."""
    uri, seed = "memory://long-life", seed_of("long life")
    Store.open(uri, options=SETTINGS, create=True).close()
    life = LongLife(uri, seed)
    life.live(examples(daily=6, nightly=18))
    with Store.open(uri, options=SETTINGS) as store:
        yield store
    life.close()


def kind_of(name: str) -> str:
    """Return an object's name without the parts that differ within a kind."""
    return re.sub(r"\d+", "N", re.sub(r"\d{20}-[0-9a-v]{20}", "NAME", re.sub(r"topics/[^/]+", "TOPIC", name)))


def cases(objects: ObjectStore) -> list[Case]:
    """Return what is damaged, and how: by day one object of each kind in one way, at night all in all ways.

    The way follows from the kind alone: which other kinds there are depends on what was folded in the meantime.
    """
    kinds = defaultdict(list)
    for name in names_in(objects):
        if not name.startswith(DECIDES_NOTHING):
            kinds[kind_of(name)].append(name)
    found = []
    for kind, names in sorted(kinds.items()):
        if night_seed() is not None:
            found += [(name, damage) for name in names for damage in DAMAGES]
        else:
            found.append((Random(kind).choice(names), Random(kind).choice(DAMAGES)))
    return found


def is_head(name: str) -> bool:
    return re.fullmatch(r"_log/_checkpoints/[^/]+\.json", name) is not None


def test_each_damage_is_found_and_named(lived: Store, caplog: pytest.LogCaptureFixture) -> None:
    objects, random = lived.log.objects, Random(seed_of("damages"))
    caplog.set_level(logging.CRITICAL, "sparktxn")
    assert verify(lived).problems == ()

    def is_found(name: str, damage: Callable[..., Any]) -> bool:
        data = objects.get(name)
        assert data is not None
        damaged = damage(data, random)
        if damaged is None:
            objects.delete([name])
        else:
            objects.put(name, damaged)
        told = verify(lived).problems
        objects.put(name, data)
        is_named = any(
            name in (problem.object_name, problem.problem) or _token(name) in problem.problem for problem in told
        )
        # Without the mark of the horizon nothing excuses the entries before it: each of them is named as missing.
        return is_named or bool(told and name.startswith(HORIZONS) and damage is deleted)

    missed = [case for case in cases(objects) if not is_found(*case)]
    # A checkpoint that was being written in the background is complete now, and names what it did not at first.
    missed = [case for case in missed if not is_found(*case)]
    # A checkpoint without its head is none, and no view needs it. All else that is missed is named by nothing.
    left = {name for name, damage in missed if not (is_head(name) and damage is deleted)}
    assert all(name.startswith("topics/") for name in left), left
    healthy = verify(lived)
    objects.delete(left)
    without = verify(lived)
    assert (healthy.problems, without.problems) == ((), ())
    assert without.unreferenced == healthy.unreferenced - len(left)


def _token(name: str) -> str:
    """Return what names an object wherever a problem speaks of it: a checkpoint's token, or else the name."""
    head = re.fullmatch(r"_log/_checkpoints/\d+-([0-9a-v]+)\.json", name)
    return head[1] if head else name
