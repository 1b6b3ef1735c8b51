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

_CHANGING: Final = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "TIME"),
    (re.compile(r"\b\d{20}-[0-9a-v]{20}\b"), "NAME"),
    (re.compile(r"\b[0-9a-f]{8}\b"), "CHECKSUM"),
    (re.compile(r"^size bytes +[1-9]\d*$", re.MULTILINE), "size bytes SIZE"),
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


def moved(text: str, folder: Path) -> str:
    """`text` with the folders /tmp, /data and /var/lib inside `folder`."""
    return re.sub(r"(?<![\w/:.])/(tmp|data|var/lib)/", rf"{folder}/\1/", text)


def same_each_time(text: str) -> str:
    """`text` without what differs from run to run; the columns of a table are as wide as in the page."""
    for pattern, word in _CHANGING:
        text = pattern.sub(word, text)
    return "\n".join(re.sub(r" +", " ", line.rstrip()) for line in text.splitlines())
