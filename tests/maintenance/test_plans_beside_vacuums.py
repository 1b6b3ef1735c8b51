"""Jobs that plan from a read view continue with a newer one when a vacuum passes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparktxn import Producer
from sparktxn._engine.log.keep.sealedruns import ManifestCache
from sparktxn._engine.log.log import Log
from sparktxn._rows.scan import plan
from sparktxn.errors import ViewExpired
from sparktxn.maintenance import apply_retention, plan_rewrite, rewrite, vacuum
from sparktxn.store import Store
from tests.world import next_number

OPTIONS = {"checkpoint.entries": "4", "checkpoint.seal.segments": "2"}
EVERYTHING = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0}
SMALL = {"rewrite.min.segments": 2}


def produce(store: Store, count: int) -> None:
    with Producer({"bootstrap.servers": store.uri, **OPTIONS}) as producer:
        for _ in range(count):
            producer.produce("t", b"x", timestamp=1_000)
            producer.flush()
            # A checkpoint that is being made is not a second one, and a vacuum deletes what later ones have merged.
            assert store.log.background.wait(60)  # type: ignore[attr-defined]
    store.log.refresh()
    store.log.checkpoint()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr("sparktxn._foundation.config.store.MERGE_RUNS", 2)
    uri = f"memory://planned-{next_number()}"
    with Store.open(uri, options=OPTIONS, create=True) as store:
        store.create_topic("t", 1, settings={"retention.bytes": "1500"})
        produce(store, 9)
        yield store


def pass_views(store: Store, monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Let a vacuum pass each of the next `times` views, before what they name is read; return their entries."""
    original, passed = Log.view, list[int]()

    def view(self: Log, *args: Any, **kwargs: Any) -> Any:
        found = original(self, *args, **kwargs)
        if self is store.log and len(passed) < times:
            passed.append(found.entry)
            for _ in range(4):
                produce(store, 6)
            assert vacuum(store, EVERYTHING).horizon > found.entry
            # Another process has read none of them before.
            monkeypatch.setattr(plan, "_manifests", ManifestCache())
        return found

    monkeypatch.setattr(Log, "view", view)
    return passed


JOBS: dict[str, Callable[[Store], Any]] = {
    "rewrite": lambda store: rewrite(store, SMALL).ranges,
    "rewrite, dry run": lambda store: rewrite(store, SMALL, dry_run=True).ranges,
    "plan_rewrite": lambda store: len(plan_rewrite(store, SMALL)),
    "retention": lambda store: len(apply_retention(store).shortened),
    "retention, dry run": lambda store: len(apply_retention(store, dry_run=True).shortened),
}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("times", [1, 2])
def test_a_newer_view_is_planned(store: Store, monkeypatch: pytest.MonkeyPatch, job: str, times: int) -> None:
    passed = pass_views(store, monkeypatch, times)
    assert JOBS[job](store) >= 1
    assert len(passed) == times


@pytest.mark.parametrize("job", ["rewrite, dry run", "plan_rewrite", "retention"])
def test_vacuums_that_pass_every_view_end_the_job(store: Store, monkeypatch: pytest.MonkeyPatch, job: str) -> None:
    before = store.log.entry
    passed = pass_views(store, monkeypatch, 100)
    with pytest.raises(ViewExpired):
        JOBS[job](store)
    assert len(passed) == 3
    assert before < store.log.entry


def test_a_rewrite_reports_what_was_lost_to_vacuums(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    pass_views(store, monkeypatch, 100)
    report = rewrite(store, SMALL)
    assert [lost.about for lost in report.lost] == ["what is left of the plan"]
    assert report.ranges == 0
