"""The code blocks of a page, each with the output that the page shows below it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").rglob("*.md"))
)
RUNNABLE: Final = ("python", "bash", "sh", "sql", "console", "diff")

_BLOCK: Final = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]*) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


class Block(NamedTuple):
    """A block that a reader can paste; `shown` is the output below it, or "". `reason` says why no test runs it."""

    kind: str
    text: str
    shown: str
    reason: str


def blocks(page: str) -> list[Block]:
    """Return the runnable blocks of a page, in order. A block without a language shows the output of the one before."""
    found: list[Block] = []
    for match in _BLOCK.finditer((ROOT / page).read_text()):
        reason = match["reason"] or ""
        if match["kind"] in RUNNABLE:
            found.append(Block(match["kind"], match["text"], "", reason))
        elif not match["kind"] and not reason and found and found[-1].kind != "console" and not found[-1].shown:
            found[-1] = found[-1]._replace(shown=match["text"])
    return found
