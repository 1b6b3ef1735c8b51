"""The install lines of pages, and the blocks that run in an environment that has exactly what such a line brings."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.packaging.environments import Environment
from tests.pages.blocks import PAGES, Block, blocks, moved
from tests.pages.worlds import PAGE_WORLDS, WORLDS, World

__all__ = ["INSTALLS", "Install", "run_blocks"]

RUNNER: Final = Path(__file__).with_name("runner.py")
_PIP: Final = re.compile(r"^(?:\$ )?(?:\S*/)?(pip install .*)$", re.MULTILINE)
_SHELLS: Final = ("bash", "sh", "console")
_BLOCKS_S: Final = 900

_SERVERS: Final = {
    ("docs/console.md", 0),
    ("docs/console.md", 1),
    ("docs/console.md", 5),
    ("docs/gateway.md", 0),
    ("docs/tables.md", 14),
}
"""Blocks that serve until they are ended, by their number in the page; they are ended as soon as they listen."""

_NOT_HERE: Final = {
    ("docs/clouds.md", 0): "an account of the cloud",
    ("docs/clouds.md", 1): "an account of the cloud",
    ("docs/spark.md", 1): "a cluster",
    ("docs/spark.md", 2): "tests/spark/test_pipelines.py runs the example",
    ("docs/upgrading.md", 1): "tests/compatibility/test_upgrading_page.py runs it with that version",
    ("README.md", 2): "the same as from a checkout",
}
"""Install lines, by their number in a page, whose blocks do not run here, and why. The lines are installed, too."""

_END_OF_SPARK: Final = """
for query in spark.streams.active:
    query.processAllAvailable()
    query.stop()
spark.stop()
"""


class Install(NamedTuple):
    """An install line of a page, and the blocks that a reader of it runs."""

    page: str
    line: str
    numbers: tuple[int, ...]
    """Of the blocks, in the page; () if none runs here."""

    def __str__(self) -> str:
        return f"{self.page}: {self.line.partition('#')[0].strip()}"


def _installs(page: str) -> list[Install]:
    lines = [line for block in blocks(page) if block.kind in _SHELLS for line in _PIP.findall(block.text)]
    numbers = tuple(number for number, block in enumerate(blocks(page)) if _kind(page, number, block))
    if page == "README.md":
        # The core is for the first program, which comes before Spark's.
        core = tuple(number for number in numbers if "pyspark" not in blocks(page)[number].text)
        return [Install(page, lines[0], core), Install(page, lines[1], numbers), Install(page, lines[2], ())]
    return [
        Install(page, line, numbers if number == 0 and (page, number) not in _NOT_HERE else ())
        for number, line in enumerate(lines)
    ]


def _kind(page: str, number: int, block: Block) -> str:
    """Return how the runner runs a block; "" if it does not."""
    if (page, number) in _SERVERS:
        return "server"
    return "" if block.reason else block.kind


INSTALLS: Final = [install for page in PAGES for install in _installs(page) if "confluent-kafka" not in install.line]


def _between(page: str, numbers: Sequence[int]) -> dict[int, str]:
    """Return the programs between blocks by their place in `numbers`; a world counts the blocks that have no reason."""
    run = [number for number in numbers if not blocks(page)[number].reason]
    return {numbers.index(run[place]): text for place, text in _world(page).between.items() if place < len(run)}


def _world(page: str) -> World:
    return PAGE_WORLDS.get(page) or WORLDS.get(page, World())


def run_blocks(
    install: Install, environment: Environment, folder: Path, variables: Mapping[str, str], *, is_first: bool
) -> tuple[list[str], str]:
    """Run the blocks of an install line in a folder; return what each has printed, and the first error."""
    world = _world(install.page)
    taken = [(number, blocks(install.page)[number]) for number in install.numbers]
    is_whole = any("pyspark" in block.text for _, block in taken) or not world.spark
    after = "" if not is_whole else world.after if is_first else _END_OF_SPARK if world.spark else ""
    page = {
        "before": moved(world.before, folder),
        "after": moved(after, folder),
        "between": {place: moved(text, folder) for place, text in _between(install.page, install.numbers).items()},
        "blocks": [(_kind(install.page, number, block), moved(block.text, folder)) for number, block in taken],
    }
    file = folder / "page.json"
    file.write_text(json.dumps(page))
    # `pip` has nothing left to do.
    (folder / "commands").mkdir(exist_ok=True)
    (folder / "commands" / "pip").write_text("#!/bin/sh\n")
    (folder / "commands" / "pip").chmod(0o755)
    environment_variables = environment.variables()
    environment_variables |= {
        "HOME": str(folder), "PATH": f"{folder}/commands:{environment_variables['PATH']}", **variables,
    }  # fmt: skip
    done = subprocess.run(
        [environment.python, RUNNER, file],
        cwd=folder,
        env=environment_variables,
        capture_output=True,
        text=True,
        timeout=_BLOCKS_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(file.with_suffix(".out").read_text())
    return result["printed"], result["error"]
