"""Where results go: tables for people, one JSON object on a line for programs.

A result is a row, or rows: dictionaries whose names are the names in JSON. They never change. Times are
``…timestamp_ms``, durations ``…_ms``, sizes ``…_bytes``. A table shows the same names with spaces.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from sparktxn._foundation.process.clock import Clock
from sparktxn._programs.cli.failures import progress_text, value_text
from sparktxn._programs.cli.standardstreams import has_reader, write_bytes

Row = Mapping[str, Any]

_FILE_COLUMNS: Final = 10_000
"""The width of a table that no terminal shows: each row is one line, for grep and awk."""


class Meter:
    """Shows how far a job is, in bytes."""

    def __init__(self, shown: Callable[[str], None], job: str, clock: Clock) -> None:
        self._shown = shown
        self._job = job
        self._clock = clock
        self._total_bytes = 0
        self._began_s = 0.0

    def begin(self, total_bytes: int) -> None:
        """Begin to measure a job of so many bytes."""
        self._total_bytes, self._began_s = total_bytes, self._clock.monotonic_s()

    def at(self, done_bytes: int, more: str = "") -> None:
        """Show that so many bytes are done, and `more`."""
        passed_s = self._clock.monotonic_s() - self._began_s
        self._shown(f"{self._job}: {progress_text(done_bytes, self._total_bytes, passed_s)}{more} …")


class Output:
    """What a verb prints. Results go to standard output, remarks and progress to standard error."""

    def __init__(self, *, json: bool) -> None:
        self.json = json

    def rows(self, rows: Iterable[Row], *, none: str) -> None:
        """Print rows: as a table, or each as a JSON object on a line. `none` is the remark if there are none."""
        if self.json:
            for row in rows:
                self._json(row)
                if not has_reader():
                    break
        elif found := list(rows):
            self._table(found)
        else:
            self.remark(none)
        # A verb that goes on may be killed, or be followed by a program.
        sys.stdout.flush()

    def row(self, row: Row) -> None:
        """Print one result: its members in a line each, and lists of rows below as tables; or one JSON object."""
        if self.json:
            self._json(row)
        else:
            self._grid(row)
        sys.stdout.flush()

    def _grid(self, row: Row) -> None:
        grid = Table.grid(padding=(0, 2))
        below = {name: value for name, value in row.items() if _is_rows(value)}
        for name, value in row.items():
            if name not in below:
                grid.add_row(Text(_heading(name), style="bold"), Text(value_text(name, value)))
        self._show(grid)
        for name, value in below.items():
            self._show("", Text(_heading(name), style="bold"))
            self._table(value)

    def done(self, text: str, row: Row) -> None:
        """Report that something was done: as a remark for people, or as a JSON object."""
        if self.json:
            self._json(row)
        else:
            self.remark(text)

    def document(self, row: Row) -> None:
        """Print nested values as indented JSON, for people who read them whole."""
        data = msgspec.json.format(msgspec.json.encode(row, enc_hook=str), indent=2)
        write_bytes(data + b"\n")

    def line(self, text: str) -> None:
        """Print one line of a result for people; `text` must be printable."""
        sys.stdout.write(f"{text}\n")

    def remark(self, text: str) -> None:
        """Print a line on standard error; none with ``--json``."""
        if not self.json:
            sys.stderr.write(f"{text}\n")

    @contextmanager
    def progress(self, doing: str) -> Iterator[Callable[[str], None]]:
        """Show on a terminal what is under way; the block gets a function that shows another text."""
        console = Console(stderr=True, highlight=False)
        if self.json or not console.is_terminal:
            yield lambda text: None
            return
        with console.status(Text(doing)) as status:
            yield lambda text: status.update(Text(text))

    @property
    def is_watched(self) -> bool:
        """Whether progress is shown: on a terminal, without ``--json``."""
        return not self.json and Console(stderr=True).is_terminal

    @contextmanager
    def measured(self, doing: str, clock: Clock) -> Iterator[Meter]:
        """Show what is under way; the block gets what shows how many bytes are done, their rate and the time left."""
        with self.progress(f"{doing} …") as shown:
            yield Meter(shown, doing.partition(":")[0], clock)

    def _json(self, row: Row) -> None:
        # JSON is UTF-8, whatever the terminal's encoding is.
        write_bytes(msgspec.json.encode(row, enc_hook=str) + b"\n")

    def _show(self, *renderables: RenderableType) -> None:
        """Print without the spaces that fill a table's last column."""
        console = self._console()
        with console.capture() as captured:
            for renderable in renderables:
                console.print(renderable)
        sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))

    def _console(self) -> Console:
        console = Console(highlight=False, markup=False, emoji=False, soft_wrap=False)
        if not console.is_terminal:
            console = Console(highlight=False, markup=False, emoji=False, width=_FILE_COLUMNS, color_system=None)
        return console

    def _table(self, rows: list[Row]) -> None:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        names = list(dict.fromkeys(name for row in rows for name in row))
        for name in names:
            numbers = all(_is_number(name, row.get(name)) for row in rows)
            table.add_column(Text(_heading(name)), justify="right" if numbers else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(value_text(name, row.get(name))) for name in names))
        self._show(table)


def _heading(name: str) -> str:
    return name.removesuffix("_ms").replace("_", " ")


def _is_number(name: str, value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and not name.endswith("_ms"))


def _is_rows(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)
