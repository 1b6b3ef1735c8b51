"""Figures: what was measured, with what it must reach."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Figure", "alternate", "median", "print_figure", "rate", "save"]

_NAME_WIDTH = 64


@dataclass(frozen=True)
class Figure:
    """One measured value; `target` is what it must reach, None where the value is only stated."""

    name: str
    value: float
    unit: str
    target: float | None = None
    at_most: bool = False
    note: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None without a target."""
        if self.target is None:
            return None
        return self.value <= self.target if self.at_most else self.value >= self.target


def rate(work: Callable[[], object], count: int) -> float:
    """Calls per second of `work`, called `count` times."""
    started = time.perf_counter()
    for _ in range(count):
        work()
    return count / (time.perf_counter() - started)


def median(values: list[float]) -> float:
    """The median."""
    return statistics.median(values)


def alternate(ours: Callable[[], float], peer: Callable[[], float], rounds: int) -> tuple[float, float, float]:
    """Both in turn, so that the machine's moods hit both: (median of ours, median of the peer's, median ratio)."""
    pairs = [(ours(), peer()) for _ in range(rounds)]
    ratios = [mine / theirs for mine, theirs in pairs]
    return median([mine for mine, _ in pairs]), median([theirs for _, theirs in pairs]), median(ratios)


def print_figure(figure: Figure) -> None:
    """Print a line at once, in columns."""
    target = ""
    if figure.target is not None:
        sign, verdict = ("≤" if figure.at_most else "≥"), ("reached" if figure.reached else "MISSED")
        target = f"{sign} {figure.target:,.6g}  {verdict}"
    value = f"{figure.value:,.0f}" if figure.value >= 1_000 else f"{figure.value:,.4g}"
    line = f"  {figure.name:<{_NAME_WIDTH}}  {value:>12} {figure.unit:<12} {target:<22} {figure.note}"
    print(line.rstrip(), flush=True)


def save(figures: list[Figure], folder: Path) -> Path:
    """Writes the figures as JSON, with the machine's kind."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    machine = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    path.write_text(json.dumps({"machine": machine, "figures": [asdict(figure) for figure in figures]}, indent=1))
    return path
