"""A writer's rate while a console follows the store, against the same writer alone: many short rounds, in turns.

The console is another process. It shows the page that follows a topic's records every two seconds, as a browser asks
for it, and the overview as often. On a shared machine one round says little. So the figure is the median of many pairs,
with the interval in which it lies in 95 of 100 runs. The writer's processor time depends less on what else runs.
"""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from typing import NamedTuple

from bench.commits import producing
from bench.figures import Figure, median
from bench.records import temporary_folder, topic_store
from sparktxn._programs.console.pages.overview import overview
from sparktxn._programs.console.pages.records import records
from sparktxn._programs.console.pagesource import Page, Source
from sparktxn._programs.console.requestparameters import RequestParameters
from sparktxn._programs.console.templating import render
from sparktxn.store import Store

__all__ = ["measure"]

_PAIRS = 100
_ROUND_S = 2.0
_FOLLOW_S = 2.0
_TARGET = 0.97


class _Round(NamedTuple):
    rate: float
    processor_ms: float


def _watch(folder: str, ready: Event, watched: Event, ended: Event) -> None:
    """Show pages while `watched` is set, until `ended` is."""
    with Store.open(folder) as store:
        source = Source(store)

        def show() -> None:
            for page in (
                records(source, RequestParameters({"follow": "1"}), name="t"),
                overview(source, RequestParameters({})),
            ):
                _shown(source, page)

        show()  # The first pages import what they need, and read the whole state.
        ready.set()
        while not ended.is_set():
            if watched.wait(0.1):
                show()
                ended.wait(_FOLLOW_S)


def _shown(source: Source, page: Page) -> None:
    render(page, "/", source.uri, source.now_ms(), may_change=False)
    if page.read_on is not None:
        page.read_on(_FOLLOW_S)


def _rounds(folder: str) -> Iterator[tuple[_Round, _Round]]:
    """Yield pairs of a watched round and one alone, which are first in turns."""
    context = multiprocessing.get_context("spawn")
    ready, watched, ended = context.Event(), context.Event(), context.Event()
    console = context.Process(target=_watch, args=(folder, ready, watched, ended))
    commit = producing(folder, 1, "true")
    commit()
    console.start()
    try:
        ready.wait()
        for number in range(_PAIRS):
            pair = {}
            for is_watched in (number % 2 == 0, number % 2 == 1):
                if is_watched:
                    watched.set()
                pair[is_watched] = _round(commit)
                watched.clear()
            yield pair[True], pair[False]
    finally:
        ended.set()
        console.join()


def _round(commit: object) -> _Round:
    assert callable(commit)
    began, processor_s, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() < began + _ROUND_S:
        commit()
        count += 1
    rate = count / (time.perf_counter() - began)
    return _Round(rate, (time.process_time() - processor_s) / count * 1_000)


def interval(values: list[float]) -> tuple[float, float]:
    """The interval in which the median lies with 95 of 100: by the ranks of a binomial distribution."""
    ordered, reach = sorted(values), 0.98 * math.sqrt(len(values))
    low, high = int(len(values) / 2 - reach), math.ceil(len(values) / 2 + reach)
    return ordered[max(0, low)], ordered[min(len(values) - 1, high)]


def measure() -> Iterator[Figure]:
    """Yields the figures."""
    with temporary_folder() as folder:
        topic_store(folder, 1).close()
        pairs = list(_rounds(folder))
    for what, ratios, target in (
        ("rate of commits", [one.rate / alone.rate for one, alone in pairs], _TARGET),
        (
            "commits for each second of its processor",
            [alone.processor_ms / one.processor_ms for one, alone in pairs],
            _TARGET,
        ),
    ):
        low, high = interval(ratios)
        note = f"median of {len(ratios)} pairs, 95 %: {low:.3f} to {high:.3f}"
        yield Figure(f"a writer that a console watches, against alone: {what}", median(ratios), "x", target, note=note)
    yield Figure("the writer alone", median([alone.rate for _, alone in pairs]), "/s")
