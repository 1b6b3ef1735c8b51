"""Gather the pages of the documentation site in a folder: `python site/stage.py FOLDER`; see `make site`.

The pages stay where they are in the repository, so that their links work there, too. Links to files that are not pages
of the site become text, and pages of the reference are made of the names below.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = ("*.md", "docs/*.md", "docs/adr/*.md", "bench/*.md")

REFERENCE: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "clients": (
        "Clients",
        {"sparktxn": "Producer Consumer SerializingProducer DeserializingConsumer Message TopicPartition "
                     "ConsumerGroupMetadata PreparedTransaction"},
    ),
    "aio": ("Clients for asyncio", {"sparktxn.aio": "AIOProducer AIOConsumer"}),
    "admin": (
        "Administration",
        {"sparktxn.admin": "AdminClient NewTopic NewPartitions ConfigResource ConfigEntry OffsetSpec "
                           "TransactionListing TransactionDescription HangingTransaction AbortTransactionSpec"},
    ),
    "stores": (
        "Stores and tables",
        {"sparktxn": "Store ReadView PartitionView CommitResult SinkCommit StagePlan CommittedFile",
         "sparktxn.tables": "read_arrow to_pandas to_polars to_duckdb open_table Table"},
    ),
    "transfer": (
        "Records in and out",
        {"sparktxn.transfer": "export_topic ExportReport import_files ImportReport FileImport import_topic "
                              "TopicImportReport import_from_store StoreImportReport"},
    ),
    "maintenance": (
        "Maintenance",
        {"sparktxn.maintenance": "maintain sweep apply_retention compact rewrite vacuum publish_tables list_tables "
                                 "verify repair copy_store"},
    ),
    "spark": (
        "Spark",
        {"pyspark_txnlog.connecting.sessions": "session", "pyspark_txnlog.reading.streams": "read_stream",
         "pyspark_txnlog.writing.foreach": "write_stream",
         "pyspark_txnlog.native.native_scan": "scan count max_offset",
         "pyspark_txnlog.native.native_stream": "scan_stream", "pyspark_txnlog.native.native_write": "write",
         "pyspark_txnlog.operating.browsing": "history register_views",
         "pyspark_txnlog.operating.listener": "ProgressListener", "pyspark_txnlog.maintenance": "run_on"},
    ),
    "errors": ("Errors", {"sparktxn.errors": ""}),
}  # fmt: skip
"""The pages of the reference: title, and the names of each module; none: all that it exports."""

BEHAVIOURS: Final = {"tests/kafka_behaviours.py": "docs/conformance.md"}
"""A table in the tests, and the page that site/conformance.py makes of it."""

OVERVIEW: Final = "overview.md"
"""The name of the repository's README.md in the site: the start page has the name of the site's root."""

_LINK: Final = re.compile(r"(?<!!)\[(?P<text>[^\]\n]*(?:\n[^\]\n]*)?)\]\((?P<target>[^)\s:]+)\)")
_FENCE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LIST: Final = re.compile(r"^(?P<before>(?![*\d|#\s>]|- ).+)\n(?=(?:\* |1\. |\|))", re.MULTILINE)


def staged(folder: Path) -> None:
    """Write all pages into `folder`, which is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = sorted(path for pattern in PAGES for path in ROOT.glob(pattern))
    names = {path.relative_to(ROOT).as_posix() for path in pages}
    for path in pages:
        name = path.relative_to(ROOT)
        text = _outside_of_blocks(path.read_text(), partial(_linked, page=name, names=names))
        _write(folder / (OVERVIEW if name.as_posix() == "README.md" else name), text)
    for image in (ROOT / "docs" / "images").glob("*"):
        _write_bytes(folder / image.relative_to(ROOT), image.read_bytes())
    _write(folder / "docs/adr/README.md", _decisions())
    for page in BEHAVIOURS.values():
        _write(folder / page, _behaviours())
    _write(folder / "assets/site.css", (ROOT / "site" / "site.css").read_text())
    _write(folder / "index.md", (ROOT / "site" / "index.md").read_text())
    for name, (title, modules) in REFERENCE.items():
        shown = [
            f"::: {module}.{one}" if one else f"::: {module}\n    options:\n      show_root_heading: false"
            for module, listed in modules.items()
            for one in listed.split() or [""]
        ]
        _write(folder / "api" / f"{name}.md", "\n\n".join([f"# {title}", *shown]) + "\n")


def _outside_of_blocks(text: str, change: Callable[[str], str]) -> str:
    """Return `text` with what is not in a block of code changed."""
    parts = []
    at = 0
    for fence in _FENCE.finditer(text):
        parts += [change(text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, change(text[at:])])


def _linked(text: str, page: Path, names: set[str]) -> str:
    """Return prose with links to pages alone, and with the empty line before lists that GitHub does not need."""

    def link(found: re.Match[str]) -> str:
        target, hash_, anchor = found["target"].partition("#")
        if not target:
            return found[0]
        path = (ROOT / page.parent / target).resolve()
        if not path.exists():
            raise ValueError(f"{page}: no file {target!r}")
        name = path.relative_to(ROOT).as_posix()
        name = BEHAVIOURS.get(name, f"{name}/README.md" if name == "docs/adr" else name)
        if name not in names | {"docs/adr/README.md", *BEHAVIOURS.values()}:
            return found["text"]
        name = OVERVIEW if name == "README.md" else name
        up = "../" * (len(page.parts) - 1)
        return f"[{found['text']}]({up}{name}{hash_}{anchor})"

    return _LIST.sub(r"\g<before>\n\n", _LINK.sub(link, text))


def _decisions() -> str:
    """Return a page that lists the decisions."""
    pages = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    titles = [(page.name, page.read_text().splitlines()[0].removeprefix("# ")) for page in pages]
    return "\n".join(["# Decisions", "", *(f"* [{title}]({name})" for name, title in titles), ""])


def _behaviours() -> str:
    """Return a page of Kafka's and RocketMQ's behaviours, with the tests whose marks name each."""
    sys.path.insert(0, str(ROOT))
    spec = importlib.util.spec_from_file_location("conformance", Path(__file__).with_name("conformance.py"))
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return str(made.document(made.marks()))


def _write(path: Path, text: str) -> None:
    _write_bytes(path, text.encode())


def _write_bytes(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


if __name__ == "__main__":
    staged(Path(sys.argv[1]))
