"""Geometry of plots: values to the coordinates of an SVG that a template draws, with no script."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from sparktxn._programs.console.history.entryfigures import Passage, Tally
from sparktxn._programs.console.history.timeline import Bar, Lane
from sparktxn.store.options import TopicIdPartition

# Which colour means what: one thing has one colour on all pages. `static/console.css` has their values.
#
# Transactions are `committed`, `aborted`, `open` or `prepared`: in tables, on the timeline and in plots. Topics have
# `topic-0` to `topic-4` by their ids. The sum of topics without a curve is `other`. `figure` is the colour of what is
# alone in its plot, such as a lag or sizes of files.

FIGURE: Final = "figure"
OTHER: Final = "other"
OUTCOMES: Final = {"commits": "committed", "aborts": "aborted"}
_TOPICS: Final = 5


def topic_colours(names: Collection[str], ids: Mapping[str, int]) -> dict[str, str]:
    """Return the colours of some topics: that of its id, or the next one that none of the others has.

    >>> topic_colours(["a", "b", "c"], {"a": 1, "b": 6, "c": 2})
    {'a': 'topic-0', 'b': 'topic-2', 'c': 'topic-1'}
    """
    found: dict[str, int] = {}
    known = sorted((name for name in names if name in ids), key=lambda name: ids[name])
    for name in [*known, *sorted(name for name in names if name not in ids)]:
        wanted = (ids[name] - 1) % _TOPICS if name in ids else 0
        free = [
            number % _TOPICS for number in range(wanted, wanted + _TOPICS) if number % _TOPICS not in found.values()
        ]
        found[name] = free[0] if free else wanted
    return {name: f"topic-{found[name]}" for name in names}


WIDTH: Final = 600
HEIGHT: Final = 120
_BUCKETS: Final = 60
CURVES_MAX: Final = 5
_OTHER: Final = "other topics"
_TICKS: Final = 4
_NICE: Final = (1, 2, 2.5, 5, 10)


class Curve(Struct, frozen=True):
    """One line of a plot: its name, its colour, and its values in their order."""

    name: str
    colour: str
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


class _Grid(NamedTuple):
    """Equal spans of time, `width_ms` wide, whose edges are edges of the buckets of all tallies."""

    start_ms: int
    width_ms: int
    spans: int

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.width_ms * self.spans

    def place(self, timestamp_ms: int) -> int | None:
        """Return the number of the span of a time; None if it is in none."""
        found = (timestamp_ms - self.start_ms) // self.width_ms
        return found if 0 <= found < self.spans else None


def _grid(tallies: Sequence[Tally], start_ms: int, end_ms: int) -> _Grid:
    finest = max(tally.width_ms for tally in tallies)
    last = end_ms // finest
    fine = max(2, last - min(start_ms, end_ms) // finest + 1)
    each = -(-fine // _BUCKETS)
    count = -(-fine // each)
    return _Grid((last + 1 - count * each) * finest, each * finest, count)


def rates(tallies: Sequence[Tally], start_ms: int, end_ms: int) -> Buckets:
    """Return records and bytes per second by topic, and ends of transactions per second, between two times.

    Begins up to one of its buckets earlier, for a bucket that was summed is not divided.
    """
    grid = _grid(tallies, start_ms, end_ms)
    each = 1000 / grid.width_ms
    found = Buckets(grid.start_ms, grid.end_ms, {}, {}, {"commits": [0.0] * grid.spans, "aborts": [0.0] * grid.spans})
    for tally in tallies:
        for number, bucket in tally.buckets.items():
            place = grid.place(number * tally.width_ms)
            if place is None:
                continue
            for sums, counted in ((found.records, bucket.records), (found.size_bytes, bucket.size_bytes)):
                for topic, count in counted.items():
                    sums.setdefault(topic, [0.0] * grid.spans)[place] += count * each
            found.endings["commits"][place] += bucket.commits * each
            found.endings["aborts"][place] += bucket.aborts * each
    return found


def plot(
    title: str, unit: str, buckets: Buckets, series: Mapping[str, Sequence[float]], colours: Mapping[str, str]
) -> Plot:
    """Return a plot of some series; of many, the greatest ones and the sum of the others.

    `colours` has the colour of each series.
    """
    ordered = sorted(series.items(), key=lambda item: (-sum(item[1]), item[0]))
    if len(ordered) > CURVES_MAX:
        others = [sum(values) for values in zip(*(values for _, values in ordered[CURVES_MAX - 1 :]), strict=True)]
        ordered = [*ordered[: CURVES_MAX - 1], (_OTHER, others)]
    top = nice(max((max(values, default=0.0) for _, values in ordered), default=0.0))
    curves = tuple(_curve(name, OTHER if name == _OTHER else colours[name], values, top) for name, values in ordered)
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


def _curve(name: str, colour: str, values: Sequence[float], top: float) -> Curve:
    step = WIDTH / max(1, len(values) - 1)
    places = [f"{index * step:.1f},{HEIGHT - value / top * HEIGHT:.1f}" for index, value in enumerate(values)]
    area = " ".join([f"0,{HEIGHT}", *places, f"{WIDTH},{HEIGHT}"])
    return Curve(name, colour, tuple(values), " ".join(places), area, values[-1] if values else 0.0)


def _ticks(start_ms: int, end_ms: int) -> tuple[tuple[float, int], ...]:
    span = end_ms - start_ms
    return tuple((WIDTH * part / _TICKS, start_ms + span * part // _TICKS) for part in range(_TICKS + 1))


class Column(Struct, frozen=True):
    """One column of a histogram: what it counts, the number, and where it is drawn."""

    name: str
    count: int
    left: float
    top: float
    width: float


class Histogram(Struct, frozen=True):
    """Columns side by side; `most` is the count of the highest one."""

    title: str
    most: int
    columns: tuple[Column, ...]


_SPACE: Final = 0.12


def histogram(title: str, names: Sequence[str], counts: Sequence[int]) -> Histogram:
    """Return columns of counts, drawn from the bottom to the height of a plot."""
    most, step = max(counts, default=0), WIDTH / max(1, len(counts))
    columns = tuple(
        Column(
            name,
            count,
            round((number + _SPACE) * step, 1),
            round(HEIGHT - HEIGHT * count / max(1, most), 1),
            round(step * (1 - 2 * _SPACE), 1),
        )
        for number, (name, count) in enumerate(zip(names, counts, strict=True))
    )
    return Histogram(title, most, columns)


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


def lag_plot(
    tally: Tally,
    group_id: str,
    start_ms: int,
    end_ms: int,
    offsets: Mapping[TopicIdPartition, int],
    ends: Mapping[TopicIdPartition, int],
) -> Plot:
    """Return how far a group was behind the ends of its partitions, at the end of each bucket of time.

    `offsets` are those that it has committed and `ends` the log end offsets, both as they are now: what no bucket names
    has not moved.
    """
    grid = _grid([tally], start_ms, end_ms)
    moved_ends: list[dict[TopicIdPartition, int | None]] = [{} for _ in range(grid.spans)]
    moved_offsets: list[dict[TopicIdPartition, int | None]] = [{} for _ in range(grid.spans)]
    end_at: dict[TopicIdPartition, int | None] = {}
    offset_at: dict[TopicIdPartition, int | None] = {}
    for number, bucket in sorted(tally.buckets.items()):
        place = grid.place(number * tally.width_ms)
        if place is not None:
            _note(bucket.ends, end_at, moved_ends[place])
            _note(bucket.offsets.get(group_id, {}), offset_at, moved_offsets[place])
    end_at, offset_at = {**ends, **end_at}, {**offsets, **offset_at}
    lags = {where: _behind(end_at.get(where), offset) for where, offset in offset_at.items()}
    total, values = sum(lags.values()), []
    for new_ends, new_offsets in zip(moved_ends, moved_offsets, strict=True):
        end_at |= new_ends
        offset_at |= new_offsets
        for where in new_ends.keys() | new_offsets.keys():
            if where in lags:
                total -= lags[where]
                lags[where] = _behind(end_at.get(where), offset_at[where])
                total += lags[where]
        values.append(float(total))
    top = nice(max(values))
    curve = _curve("lag", FIGURE, values, top)
    title, ticks = "Lag to the log end", _ticks(grid.start_ms, grid.end_ms)
    return Plot(title, "records", grid.start_ms, grid.end_ms, top, (curve,), ticks)


def _note(
    passages: Mapping[TopicIdPartition, Passage],
    first: dict[TopicIdPartition, int | None],
    moved: dict[TopicIdPartition, int | None],
) -> None:
    """Note where offsets were before the first passage of each, and where this one has left them."""
    for where, passage in passages.items():
        first.setdefault(where, passage.before)
        moved[where] = passage.after


def _behind(end: int | None, offset: int | None) -> int:
    return 0 if end is None or offset is None else max(0, end - offset)
