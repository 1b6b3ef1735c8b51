"""The blows of a run, in a folder that all its processes share.

Blows are dealt one after another: a blow is next once all before it have left their mark, a file with their number. The
process that creates the mark deals the blow, so each is dealt once, by whichever process reaches its point first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["ACTIONS", "AT_RANDOM", "COMMIT_POINTS", "POINTS", "TASK_POINTS", "Blow", "Blows"]

TASK_POINTS: Final = ("upload-before", "upload-after")
COMMIT_POINTS: Final = ("commit-start", "entry-before", "entry-after", "commit-end")
"""``commit-end``: the sink has returned, and Spark has no record of the micro-batch yet."""
POINTS: Final = (*TASK_POINTS, *COMMIT_POINTS)

AT_RANDOM: Final = "at-random"
"""The point of a blow that the supervisor deals from outside, at any time."""

ACTIONS: Final = {
    "raise": "an error is raised, so that Spark runs the task again, or calls abort and ends the query",
    "worker": "the process at the point is killed",
    "executor": "the executor of the process is killed, and the process with it",
    "driver": "driver, JVM and the process are killed",
    "orphan": "driver and JVM are killed; the process at the point goes on without them",
    "stop": "all processes are stopped until a second driver has run on the same checkpoint, and then go on",
}


class Blow(NamedTuple):
    """What is done (`action`) at which point, once Spark has recorded `after` micro-batches."""

    point: str
    action: str
    after: int


class Blows:
    """The shared folder, as one process sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._script = folder / "blows.json"
        self._done = folder / "done"
        self._planned: list[Blow] = []

    def plan(self, blows: Sequence[Blow]) -> None:
        """Write the script of a run, before its first driver starts."""
        self._done.mkdir(parents=True)
        self._script.write_text(json.dumps(blows))

    @property
    def planned(self) -> list[Blow]:
        """All blows, in order."""
        if not self._planned:
            self._planned = [Blow(*blow) for blow in json.loads(self._script.read_text())]
        return self._planned

    def dealt(self) -> int:
        """Return how many blows have been dealt."""
        return len(os.listdir(self._done))

    def recorded(self) -> int:
        """Return how many inputs Spark has recorded as committed: one each micro-batch, but see `ends`."""
        committed = _committed(self.folder)
        return _end_of(self.folder, max(committed)) if committed else 0

    def next_at(self, point: str) -> tuple[int, Blow] | None:
        """Return the next blow with its number, if it is for `point` and its time has come."""
        number = self.dealt()
        if number >= len(self.planned):
            return None
        blow = self.planned[number]
        return (number, blow) if blow.point == point and self.recorded() >= blow.after else None

    def take(self, number: int) -> bool:
        """Return True in the one process that may deal blow `number`."""
        try:
            (self._done / str(number)).open("x").close()
        except FileExistsError:
            return False
        return True

    def ends(self) -> list[int]:
        """Return after how many inputs each of the micro-batches ends that Spark has recorded as committed.

        Mostly each has one. The file source notes its next file in a log of its own, and then Spark notes the
        micro-batch. A driver that dies in between leaves a micro-batch of two files to the next one.
        """
        return [_end_of(self.folder, batch) for batch in sorted(_committed(self.folder))]

    def resumed(self, number: int) -> Path:
        """Return the file whose existence lets the processes that blow `number` stopped go on."""
        return self.folder / f"resumed-{number}"


def _committed(folder: Path) -> list[int]:
    try:
        names = os.listdir(folder / "checkpoint" / "commits")
    except FileNotFoundError:
        return []
    return [int(name) for name in names if name.isdigit()]


def _end_of(folder: Path, batch: int) -> int:
    """Return the inputs up to the end of a micro-batch: the file source counts its files, others give one at a time."""
    offset = json.loads((folder / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()[-1])
    return 1 + int(offset.get("logOffset", batch))
