"""Handles of stores: one per process and address, for Spark makes new reader and writer objects for every step."""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark_txnlog.options.groups import offsets_of_batch
from pyspark_txnlog.options.sparkevents import log_event
from sparktxn import BatchRefused, ProducerFenced

if TYPE_CHECKING:
    from pyspark_txnlog.options.options import WriteOptions
    from sparktxn import (
        CommitResult,
        ConsumerGroupTopicPartitions,
        ReplayMismatch,
        SinkCommit,
        StagedSegment,
        Store,
    )

_Address = tuple[str, tuple[tuple[str, str], ...]]

_STORES_MAX: Final = 16
"""How many stores a process keeps open: a Python worker of a long session may meet any number of them."""

_stores: OrderedDict[_Address, Store] = OrderedDict()
_choosing = threading.Lock()


def open_store(path: str, options: Mapping[str, str], *, create: bool = False) -> Store:
    """Return this process's handle of the store, kept for the next step of Spark; close nothing that it returns.

    Python workers live on between Spark's steps. Beyond `_STORES_MAX` stores, the handle that was asked for the longest
    ago is let go. A reader that still uses it keeps it open; its log is closed after that.

    Raises:
        StoreNotFound: there is no store, and `create` is False.
    """
    address = _address(path, options)
    with _choosing:
        store = _stores.get(address)
        if store is not None:
            _stores.move_to_end(address)
            return store
    return _keep(address, _open(path, options, create=create))


def _open(path: str, options: Mapping[str, str], *, create: bool = False) -> Store:
    from sparktxn import Store  # tasks go without a log, and import no part of one

    return Store.open(path, options=options, create=create)


def _keep(address: _Address, store: Store) -> Store:
    """Return `store`, after making it the handle for `address`; the one before it stays open for those who use it."""
    with _choosing:
        _stores[address] = store
        _stores.move_to_end(address)
        if len(_stores) > _STORES_MAX:
            _stores.popitem(last=False)
    return store


def _start_anew_in_child() -> None:
    """Forget the parent's handles, which a forked child must not use, and a lock that another thread may have held."""
    global _choosing
    _choosing = threading.Lock()
    _stores.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew_in_child)


def _address(path: str, options: Mapping[str, str]) -> _Address:
    return path, tuple(sorted(options.items()))


def commit_batch(
    options: WriteOptions, staged: Sequence[StagedSegment], *, transactional_id: str, sink: SinkCommit
) -> None:
    """Commit a batch that the log knows by `sink`, or skip one that was committed before.

    Spark may commit from one worker process, then from another, then from the first again, which is fenced by then.
    That is not a conflict: the run and the batch id decide what may be committed, so a new handle takes the fenced
    handle's place. A superseded run gains nothing by it: the log refuses its batches under any epoch, before it
    initialises.

    Raises:
        BatchRefused: the run is superseded, or the batch was committed with other rows and `onReplayMismatch` does not
            let it be skipped.
        ConfigurationError: the option `commitGroup` names a group, and the query's progress cannot be read.
        ProducerFenced: others took the transactional id over again and again.
        OutcomeUnknown: the store did not answer in time.
    """
    store = open_store(options.path, options.store)
    offsets = _offsets_to_commit(store, options, sink.batch_id)
    asked: dict[str, Any] = {"transactional_id": transactional_id, "sink": sink, "offsets": offsets}
    try:
        result = store.commit(staged, on_replay_mismatch="skip", **asked)
    except ProducerFenced:
        store = _keep(_address(options.path, options.store), _open(options.path, options.store))
        result = store.commit(staged, on_replay_mismatch="skip", **asked)
    if result.mismatch is not None:
        _judge_mismatch(options, sink, result)


def _offsets_to_commit(store: Store, options: WriteOptions, batch_id: int) -> ConsumerGroupTopicPartitions | None:
    """Return the offsets that go with a micro-batch: those of the option `commitGroup`."""
    if options.commit_group is None or options.checkpoint is None:
        return None
    return offsets_of_batch(store, options.checkpoint, batch_id, options.commit_group, options.store)


def _judge_mismatch(options: WriteOptions, sink: SinkCommit, result: CommitResult) -> None:
    """Refuse a batch that is committed with other rows, or say that its rows are left out, as the options say.

    A version of an application that is merely old is passed over, as in Delta.

    Raises:
        BatchRefused: it is refused; nothing was written.
    """
    mismatch, way = result.mismatch, options.on_replay_mismatch
    if mismatch is None:
        return
    is_stream = options.application_id is None
    named = f"micro-batch {sink.batch_id} of query" if is_stream else f"version {sink.batch_id} of application"
    if mismatch.committed is None and not is_stream and way != "fail":
        log_event("spark_batch_passed_over", batch=named, writer_id=sink.writer_id)
        return
    has_other_count = mismatch.committed_rows is None or _total(mismatch.rows) != _total(mismatch.committed_rows)
    if way == "fail" or (way == "count" and has_other_count):
        raise BatchRefused(
            f"{mismatch.reason}. {_counted(mismatch, result.entry)}, and nothing was written. "
            f"{_advice(mismatch, is_stream=is_stream)}"
        )
    committed = mismatch.committed or "that the log no longer remembers"
    left_out = (
        "The checkpoint folder was reset, restored from a copy, or is shared: rows that no micro-batch has written are "
        "missing from the log"
        if is_stream and (has_other_count or not mismatch.is_last)
        else "The rows depend on when they are computed; those of the first time stay, and no other is missing"
    )
    warn(
        f"{named} {sink.writer_id!r} is skipped: it is committed with other rows (fingerprint {committed}, now "
        f"{mismatch.fingerprint}). {_counted(mismatch, result.entry)}. {left_out}. Set onReplayMismatch to fail to get "
        "an error instead"
    )


def _counted(mismatch: ReplayMismatch, entry: int) -> str:
    """Return how many rows a batch has committed, and how many it has now."""
    if mismatch.committed_rows is None:
        return f"It has {_rows(mismatch.rows)} now, and how many are committed is no longer known"
    return f"It has committed {_rows(mismatch.committed_rows)} in entry {entry}, and has {_rows(mismatch.rows)} now"


def _total(by_topic: Mapping[str, int]) -> int:
    """Return how many rows there are. A topic that is computed anew moves a row, and loses none."""
    return sum(by_topic.values())


def _rows(by_topic: Mapping[str, int]) -> str:
    if len(by_topic) <= 1:
        return f"{sum(by_topic.values())} rows"
    return f"{sum(by_topic.values())} rows ({', '.join(f'{name}: {rows}' for name, rows in sorted(by_topic.items()))})"


def _advice(mismatch: ReplayMismatch, *, is_stream: bool) -> str:
    if not is_stream:
        return "Write other rows under a txnVersion that is new, or set onReplayMismatch to skip to leave them out"
    if mismatch.rows == mismatch.committed_rows:
        return (
            "The query computes other values when it runs again, or its source has others: set onReplayMismatch to "
            "skip to keep the rows of the first time"
        )
    return (
        "The checkpoint folder was restored from an older copy, reset, or is shared, or the query reads other rows "
        "when it runs again. To write the rows that are missing, start the query with a new checkpoint folder from "
        "where the committed rows end (startingOffsets or startingEntry). To leave them out, set onReplayMismatch to "
        "skip"
    )


def warn(message: str) -> None:
    """Show a warning on the driver's stderr, and log it where logging is configured."""
    if logging.getLogger("sparktxn.spark").hasHandlers():
        log_event("spark_rows_left_out", message=message)
    # No line of source code: it would say nothing to the user.
    warnings.warn_explicit(message, UserWarning, "txnlog", 1)
