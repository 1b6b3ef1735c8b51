"""Write the example in docs/PROTOCOL.md: a store of one topic and one transaction of one record, byte for byte.

The clients write it over a store in memory, with a fixed clock and fixed tokens. Run by ``make docs``; a test compares
the document with what this makes.
"""

from __future__ import annotations

import base64
import re
import textwrap
from itertools import count
from pathlib import Path

from sparktxn import Producer
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.background import ThreadBackground
from sparktxn.admin import AdminClient, NewTopic
from tests.lending import close_lent, lend_log, take_log_back

TARGET = Path(__file__).with_name("PROTOCOL.md")
BEGIN, END = "<!-- example: made by `make docs` -->\n", "<!-- end of the example -->\n"
COLUMNS = 116
_NUMBERS = count()


class FixedClock:
    """A clock that stands at one time."""

    def wall_ms(self) -> int:
        """Return one time in 2025."""
        return 1_760_000_000_000

    def monotonic_s(self) -> float:
        """Return zero."""
        return 0.0

    def sleep(self, seconds: float) -> None:
        """Return at once."""


class CountedIds:
    """Tokens that count: they show where each one comes from."""

    def __init__(self) -> None:
        self._count = 0

    def token(self) -> str:
        """Return the next of ``token000000000000001``, ``token000000000000002``, …"""
        self._count += 1
        return f"token{self._count:015}"


def example() -> dict[str, bytes]:
    """Return the objects of the store, by name: its document, its entries and its segment."""
    clock = FixedClock()
    name = f"example-{next(_NUMBERS)}"
    uri = f"memory://{name}"
    objects = MemoryStore(name, clock)
    background = ThreadBackground("example", 1)
    log = Log.open(objects, settings=StoreSettings(), clock=clock, ids=CountedIds(), background=background, create=True)
    # The clients use a log with this clock and these tokens.
    lend_log(uri, log)
    try:
        admin = AdminClient({"bootstrap.servers": uri})
        topic = NewTopic("orders", 1, config={"segment.format": "arrow", "append.inline.bytes": "0"})
        for created in admin.create_topics([topic]).values():
            created.result()
        with Producer({"bootstrap.servers": uri, "transactional.id": "shop-1"}) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.produce("orders", key="o-17", value="2 apples", timestamp=clock.wall_ms())
    finally:
        take_log_back(uri)
        close_lent(log)
        background.close()
    return {info.name: objects.get(info.name) or b"" for info in objects.list("")}


def shown(data: bytes) -> str:
    """Return JSON in lines that end after a comma, and other bytes in base64, so that both can be joined again."""
    text = data.decode() if data.startswith(b"{") else base64.b64encode(data).decode()
    if not data.startswith(b"{"):
        return "\n".join(textwrap.wrap(text, COLUMNS))
    lines = [""]
    for piece in re.split(r"(?<=,)", text):
        if len(lines[-1]) + len(piece) > COLUMNS:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def section() -> str:
    """Return the objects as Markdown, in the order in which they were written."""
    objects = example()
    parts = []
    for name in sorted(objects, key=lambda name: (name.startswith("topics/"), name != "_txnlog.json", name)):
        data = objects[name]
        parts.append(f"`{name}`, {len(data)} bytes:\n\n```\n{shown(data)}\n```\n")
    return "\n".join(parts)


def document() -> str:
    """Return PROTOCOL.md with the example made again."""
    before, rest = TARGET.read_text().split(BEGIN)
    return f"{before}{BEGIN}\n{section()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    TARGET.write_text(document())
    print(f"wrote {TARGET.name}")
