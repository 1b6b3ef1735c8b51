"""`txnlog bench`: measure commits, uploads and reads where the store is."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from hashlib import shake_128
from typing import Annotated, Any, Final

import pyarrow as pa
import typer

from sparktxn.cli.failures import quantity
from sparktxn.cli.session import Session
from sparktxn.cli.verb import verb
from sparktxn.config.values import BYTES, MILLISECONDS
from sparktxn.objectstore.uri import FILE, MEMORY, parse_uri
from sparktxn.process.background import ThreadBackground
from sparktxn.process.clock import Clock, RandomIds, SystemClock
from sparktxn.producer import Producer
from sparktxn.store import Store, read_task
from sparktxn.store.registry import objects_of

__all__ = ["app"]

app = typer.Typer()

_TOPIC: Final = "bench"
_RECORD_BYTES: Final = 1_024
_ROWS: Final = 8_192
_WRITERS: Final = 8
_MB: Final = 1_000_000

_Duration = Annotated[
    str, typer.Option("--duration", metavar="DURATION", help="How long each kind of commit is measured.")
]
_Size = Annotated[str, typer.Option("--size", metavar="SIZE", help="How much is uploaded, and read back.")]


@verb(app, "bench", examples=["txnlog bench --duration 500ms --size 8MiB", "txnlog bench --size 2MiB --json"])
def bench(session: Session, duration: _Duration = "5s", size: _Size = "64MiB") -> None:
    """Measure commits per second, their latency, and megabytes per second of uploads and reads.

    It makes a store of its own, and deletes it in the end. Its address is that of yours, with "-bench-" and a random
    name behind it. The credentials must be allowed to write and delete there. Your store need not exist.
    """
    seconds = quantity("--duration", duration, MILLISECONDS, 100) / 1000
    size_bytes = quantity("--size", size, BYTES, 1)
    own = _own_address(session.address.store)
    options = dict(session.store_settings())
    with session.out.progress("bench: creating a store …") as shown:
        try:
            session.out.rows(_measured(own, options, seconds, size_bytes, shown), none="")
        finally:
            shown(f"bench: deleting {own} …")
            _delete(own, options)


def _own_address(store: str) -> str:
    """Return an address next to the store's, with the same scheme and bucket."""
    parsed, name = parse_uri(store), f"bench-{RandomIds().token()}"
    is_bucket = parsed.scheme not in (FILE, MEMORY) and "/" not in parsed.location
    return f"{parsed}/{name}" if is_bucket else f"{parsed}-{name}"


def _measured(
    uri: str, options: Mapping[str, Any], seconds: float, size_bytes: int, shown: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    clock = SystemClock()
    with Store.open(uri, options=options, create=True) as store:
        store.create_topic(_TOPIC, _WRITERS)
        for writers in (1, _WRITERS):
            shown(f"bench: committing, {writers} writers …")
            yield _commits(uri, options, writers, seconds, clock)
        shown("bench: uploading …")
        yield _upload(uri, options, size_bytes, clock)
        shown("bench: reading …")
        yield _read(store, clock)


def _commits(uri: str, options: Mapping[str, Any], writers: int, seconds: float, clock: Clock) -> dict[str, Any]:
    """Let writers commit transactions of one record at once, and return what a commit takes."""
    workers = ThreadBackground("txnlog-bench", writers)
    together = threading.Barrier(writers)
    try:
        work = partial(_commit_for, uri, options, seconds, clock, together)
        running = [workers.submit(partial(work, number)) for number in range(writers)]
        taken_ms = sorted(ms for one in running for ms in one.result())
    finally:
        workers.close(1.0)
    return {
        "measured": f"commits, {writers} writer{'s' if writers > 1 else ''}",
        "per_second": round(len(taken_ms) / seconds, 1),
        "p50_ms": round(taken_ms[len(taken_ms) // 2], 2),
        "p99_ms": round(taken_ms[len(taken_ms) * 99 // 100], 2),
    }


def _commit_for(
    uri: str, options: Mapping[str, Any], seconds: float, clock: Clock, together: threading.Barrier, number: int
) -> list[float]:
    """Commit one transaction after the other; return how many milliseconds each has taken."""
    settings = {**options, "bootstrap.servers": uri, "transactional.id": f"bench-{number}"}
    taken_ms: list[float] = []
    with Producer(settings) as producer:
        producer.init_transactions()
        together.wait(60)
        until_s = clock.monotonic_s() + seconds
        while not taken_ms or clock.monotonic_s() < until_s:
            producer.begin_transaction()
            producer.produce(_TOPIC, shake_128(b"%d" % len(taken_ms)).digest(100), partition=number)
            began_s = clock.monotonic_s()
            producer.commit_transaction()
            taken_ms.append((clock.monotonic_s() - began_s) * 1_000)
    return taken_ms


def _upload(uri: str, options: Mapping[str, Any], size_bytes: int, clock: Clock) -> dict[str, Any]:
    """Write records that do not compress in one transaction over all partitions, and commit it."""
    data = pa.py_buffer(shake_128(b"bench").digest(_ROWS * _RECORD_BYTES))
    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(_RECORD_BYTES), _ROWS, [None, data])
    rows = pa.table({"value": values.cast(pa.binary())})
    count = max(1, size_bytes // rows.nbytes)
    settings = {**options, "bootstrap.servers": uri, "transactional.id": "bench-upload"}
    with Producer(settings) as producer:
        producer.init_transactions()
        began_s = clock.monotonic_s()
        producer.begin_transaction()
        for number in range(count):
            producer.produce_arrow(_TOPIC, rows, partition=number % _WRITERS)
        producer.commit_transaction()
        taken_s = clock.monotonic_s() - began_s
    return _throughput("upload", count * _ROWS * _RECORD_BYTES, taken_s)


def _read(store: Store, clock: Clock) -> dict[str, Any]:
    """Read all records of a new view, one task after the other."""
    began_s = clock.monotonic_s()
    view = store.view([_TOPIC])
    tasks = store.plan_view(view, columns=["value"])
    size_bytes = sum(batch.nbytes for task in tasks for batch in read_task(task, store.options))
    return _throughput("read", size_bytes, clock.monotonic_s() - began_s)


def _throughput(what: str, size_bytes: int, taken_s: float) -> dict[str, Any]:
    return {"measured": what, "mb_per_second": round(size_bytes / _MB / taken_s, 1), "size_bytes": size_bytes}


def _delete(uri: str, options: Mapping[str, Any]) -> None:
    """Delete the store that was measured."""
    objects, parsed = objects_of(uri, options), parse_uri(uri)
    objects.delete([info.name for info in objects.list("")])
    if parsed.scheme == FILE:
        shutil.rmtree(parsed.location, ignore_errors=True)
