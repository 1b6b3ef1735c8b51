"""Batches that are made ahead: while Spark takes some, a thread fetches and decodes the next ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa

from sparktxn.process.background import ThreadBackground

__all__ = ["made_ahead"]

_BLOCK_BYTES: Final = 4 * 1024 * 1024
"""What is made at a time. So much may be in memory next to the row group that is decoded."""


class _Block(NamedTuple):
    """Some batches, and the error that came instead of the next one."""

    batches: list[pa.RecordBatch]
    error: Exception | None = None


def made_ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield `batches`, and raise what they raise at the same place; a thread makes those after the first block.

    Spark's JVM and its worker wait for each other: without the thread a core is idle while a batch is decoded. A read
    of one block starts no thread. A read that is given up does not wait for it: it ends after its block.
    """
    size_bytes = 0
    while size_bytes < _BLOCK_BYTES:
        batch = next(batches, None)
        if batch is None:
            return
        yield batch
        size_bytes += batch.nbytes
    background = ThreadBackground("txnlog-read", 1)
    try:
        following = background.submit(partial(_next_block, batches))
        while (made := following.result()).batches:
            if made.error is None:
                following = background.submit(partial(_next_block, batches))
            yield from made.batches
            if made.error is not None:
                break
        if made.error is not None:
            raise made.error
    finally:
        background.close(0)


def _next_block(batches: Iterator[pa.RecordBatch]) -> _Block:
    made: list[pa.RecordBatch] = []
    size_bytes = 0
    try:
        while size_bytes < _BLOCK_BYTES and (batch := next(batches, None)) is not None:
            made.append(batch)
            size_bytes += batch.nbytes
    except Exception as error:  # noqa: BLE001 - raised once the batches before it are taken
        return _Block(made, error)
    return _Block(made)
