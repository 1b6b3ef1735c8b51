"""The demo's picture: the topics as they grew through two kills, and what the flights say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from flights.job import LATE_MINUTES
from flights.watch import Event, Sample

__all__ = ["draw"]

COLORS = {"flights": "#4c72b0", "delays": "#55a868", "late": "#c44e52"}


def draw(path: Path, samples: Sequence[Sample], kills: Sequence[Event], flights: pa.Table) -> None:
    """Write the PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (growth, hours) = plt.subplots(2, 1, figsize=(10, 8), constrained_layout=True)
    for topic, color in COLORS.items():
        times, rows = [sample.at_s for sample in samples], [sample.rows[topic] for sample in samples]
        growth.step(times, rows, where="post", label=topic, color=color)
    for kill in kills:
        growth.axvline(kill.at_s, color="black", linestyle="--", linewidth=1)
        # Above the axes, so that it hides no line.
        above = (kill.at_s, 1.02)
        growth.annotate(kill.what, above, xycoords=growth.get_xaxis_transform(), ha="center", size="small")
    growth.set_title("Records that a reader sees, through two kills", pad=22)
    growth.set(xlabel="seconds", ylabel="records")
    growth.yaxis.set_major_formatter("{x:,.0f}")
    growth.grid(axis="y", alpha=0.3)
    growth.legend(loc="upper left")

    late = flights.append_column("late", pc.fill_null(pc.greater(flights.column("dep_delay"), LATE_MINUTES), False))
    by_hour = late.group_by("hour").aggregate([("late", "mean"), ("late", "count")]).sort_by("hour")
    by_hour = by_hour.filter(pc.greater(by_hour.column("late_count"), 100))
    hours.bar(
        by_hour.column("hour").to_pylist(),
        [100 * part for part in by_hour.column("late_mean").to_pylist()],
        color=COLORS["late"],
    )
    hours.set(
        title=f"Flights that left more than {LATE_MINUTES} minutes late",
        xlabel="scheduled hour",
        ylabel="percent",
        xticks=by_hour.column("hour").to_pylist(),
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)
