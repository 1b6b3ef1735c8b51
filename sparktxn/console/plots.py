"""Geometry of plots: values to the coordinates of an SVG that a template draws, with no script."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from sparktxn.console.entryfacts import EntryFacts
from sparktxn.console.timeline import Bar, Lane
from sparktxn.values.fieldtypes import TopicIdPartition

__all__ = ["Buckets", "Curve", "DrawnLane", "Plot", "Timeline", "draw_timeline", "lag_plot", "plot", "rates"]

WIDTH: Final = 600
HEIGHT: Final = 120
_BUCKETS: Final = 60
_CURVES_MAX: Final = 5
_OTHER: Final = "other topics"
_TICKS: Final = 4
_NICE: Final = (1, 2, 2.5, 5, 10)


class Curve(Struct, frozen=True):
    """One line of a plot: its name, its number (which chooses the colour), and its values in their order."""

    name: str
    number: int
    values: tuple[float, ...]
    points: str
    area: str
    newest: float


class Plot(Struct, frozen=True):
    """A plot of `curves` from one time to another; `top` is the value of its upper edge."""

    title: str
    unit: str
    start_ms: int
    end_ms: int
    top: float
    curves: tuple[Curve, ...]
    ticks: tuple[tuple[float, int], ...]


class Buckets(Struct, frozen=True):
    """Sums of entries in equal spans of time, by what they count."""

    start_ms: int
    end_ms: int
    records: dict[str, list[float]]
    size_bytes: dict[str, list[float]]
    endings: dict[str, list[float]]


def rates(facts: Sequence[EntryFacts], start_ms: int, end_ms: int) -> Buckets:
    """Return records and bytes per second by topic, and ends of transactions per second, between two times."""
    end_ms = max(end_ms, start_ms + _BUCKETS)
    width_ms = (end_ms - start_ms) / _BUCKETS
    found = Buckets(start_ms, end_ms, {}, {}, {"commits": [0.0] * _BUCKETS, "aborts": [0.0] * _BUCKETS})
    for one in facts:
        if not start_ms <= one.timestamp_ms <= end_ms:
            continue
        place = min(_BUCKETS - 1, int((one.timestamp_ms - start_ms) / width_ms))
        for sums, counted in ((found.records, one.records), (found.size_bytes, one.size_bytes)):
            for topic, count in counted.items():
                sums.setdefault(topic, [0.0] * _BUCKETS)[place] += count * 1000 / width_ms
        for change in one.transactions:
            if change.committed is not None:
                found.endings["commits" if change.committed else "aborts"][place] += 1000 / width_ms
    return found


def plot(
    title: str, unit: str, buckets: Buckets, series: Mapping[str, Sequence[float]], names: Sequence[str] = ()
) -> Plot:
    """Return a plot of some series; of many, the greatest ones and the sum of the others.

    A series has the colour of its place in `names`, so that it has the same one in several plots.
    """
    ordered = sorted(series.items(), key=lambda item: (-sum(item[1]), item[0]))
    if len(ordered) > _CURVES_MAX:
        others = [sum(values) for values in zip(*(values for _, values in ordered[_CURVES_MAX - 1 :]), strict=True)]
        ordered = [*ordered[: _CURVES_MAX - 1], (_OTHER, others)]
    free = [name for name, _ in ordered if name not in names]
    colours = {name: number % _CURVES_MAX for number, name in enumerate([*names, *free])}
    top = nice(max((max(values, default=0.0) for _, values in ordered), default=0.0))
    curves = tuple(_curve(name, colours.get(name, 0), values, top) for name, values in ordered)
    return Plot(title, unit, buckets.start_ms, buckets.end_ms, top, curves, _ticks(buckets.start_ms, buckets.end_ms))


def nice(value: float) -> float:
    """Return the round number at or above a value, for the edge of a plot.

    >>> nice(0), nice(7), nice(230)
    (1.0, 10.0, 250.0)
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(float(step * power) for step in _NICE if step * power >= value * 0.999999)


def _curve(name: str, number: int, values: Sequence[float], top: float) -> Curve:
    step = WIDTH / max(1, len(values) - 1)
    places = [f"{index * step:.1f},{HEIGHT - value / top * HEIGHT:.1f}" for index, value in enumerate(values)]
    area = " ".join([f"0,{HEIGHT}", *places, f"{WIDTH},{HEIGHT}"])
    return Curve(name, number, tuple(values), " ".join(places), area, values[-1] if values else 0.0)


def _ticks(start_ms: int, end_ms: int) -> tuple[tuple[float, int], ...]:
    span = end_ms - start_ms
    return tuple((WIDTH * part / _TICKS, start_ms + span * part // _TICKS) for part in range(_TICKS + 1))


class DrawnBar(Struct, frozen=True):
    """A transaction and where it is drawn."""

    bar: Bar
    left: float
    width: float


class DrawnLane(Struct, frozen=True):
    """A lane and where its bars and marks are drawn."""

    lane: Lane
    top: int
    bars: tuple[DrawnBar, ...]
    marks: tuple[float, ...]


class Timeline(Struct, frozen=True):
    """The lanes of a timeline, drawn between two times."""

    start_ms: int
    end_ms: int
    height: int
    lanes: tuple[DrawnLane, ...]
    ticks: tuple[tuple[float, int], ...]


_LANE: Final = 22
_NARROWEST: Final = 3.0


def draw_timeline(lanes: Iterable[Lane], start_ms: int, end_ms: int) -> Timeline:
    """Return where the bars of lanes are drawn; a transaction that began earlier begins at the edge."""
    span = max(1, end_ms - start_ms)

    def across(timestamp_ms: int) -> float:
        return min(float(WIDTH), max(0.0, (timestamp_ms - start_ms) / span * WIDTH))

    drawn = []
    for number, lane in enumerate(lanes):
        bars = []
        for bar in lane.bars:
            left = min(across(bar.began_ms), WIDTH - _NARROWEST)
            right = across(end_ms if bar.ended_ms is None else bar.ended_ms)
            bars.append(DrawnBar(bar, round(left, 1), round(max(_NARROWEST, right - left), 1)))
        marks = tuple(round(across(mark.timestamp_ms), 1) for mark in lane.marks)
        drawn.append(DrawnLane(lane, number * _LANE, tuple(bars), marks))
    return Timeline(start_ms, end_ms, max(1, len(drawn)) * _LANE, tuple(drawn), _ticks(start_ms, end_ms))


def lag_plot(facts: Sequence[EntryFacts], group_id: str, now_ms: int) -> Plot | None:
    """Return how far a group was behind the ends of its partitions, over time; None if the facts do not name it.

    A partition counts from the first entry on that names both its end and the group's offset.
    """
    ends: dict[TopicIdPartition, int] = {}
    offsets: dict[TopicIdPartition, int] = {}
    steps: list[tuple[int, float]] = []
    for one in facts:
        ends.update(one.ends)
        offsets.update({key[1:]: offset for key, offset in one.offsets.items() if key[0] == group_id})
        if offsets:
            lag = sum(max(0, ends[place] - offset) for place, offset in offsets.items() if place in ends)
            steps.append((one.timestamp_ms, float(lag)))
    if not steps:
        return None
    start_ms, end_ms = steps[0][0], max(now_ms, steps[-1][0] + 1)
    values, place = [], 0
    for bucket in range(_BUCKETS):
        until_ms = start_ms + (end_ms - start_ms) * (bucket + 1) / _BUCKETS
        while place + 1 < len(steps) and steps[place + 1][0] <= until_ms:
            place += 1
        values.append(steps[place][1])
    top = nice(max(values))
    curve = _curve("lag", 0, values, top)
    return Plot("Lag to the log end", "records", start_ms, end_ms, top, (curve,), _ticks(start_ms, end_ms))
