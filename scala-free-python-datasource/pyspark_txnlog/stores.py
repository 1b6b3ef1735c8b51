"""Handles of stores: one per process and address, for Spark makes new reader and writer objects for every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sparktxn import ProducerFenced, SinkCommit, Store

if TYPE_CHECKING:
    from sparktxn import StagedSegment

__all__ = ["commit_batch", "open_store"]

_Address = tuple[str, tuple[tuple[str, str], ...]]

_stores: dict[_Address, Store] = {}


def open_store(path: str, options: Mapping[str, str], *, create: bool = False) -> Store:
    """This process's handle of the store; Python workers live on between Spark's steps.

    Raises:
        StoreNotFound: there is no store, and `create` is False.
    """
    address = _address(path, options)
    if address not in _stores:
        _stores[address] = Store.open(path, options=options, create=create)
    return _stores[address]


def _address(path: str, options: Mapping[str, str]) -> _Address:
    return path, tuple(sorted(options.items()))


def commit_batch(
    path: str, options: Mapping[str, str], staged: Sequence[StagedSegment], *, transactional_id: str, sink: SinkCommit
) -> None:
    """Commits a batch that the log knows by `sink`.

    Spark may commit from one worker process, then from another, then from the first again, which is fenced by then.
    That is no conflict: the run and the batch id decide what may be committed, so a new handle takes the fenced
    handle's place. A superseded run gains nothing by it: the log refuses its batches under any epoch, before it
    initialises.

    Raises:
        BatchRefused: the run is superseded, or the batch was committed with other rows.
        ProducerFenced: others took the transactional id over again and again.
        OutcomeUnknown: the store did not answer in time.
    """
    try:
        open_store(path, options).commit(staged, transactional_id=transactional_id, sink=sink)
    except ProducerFenced:
        # The old handle stays open: a reader of this process may be using it.
        store = _stores[_address(path, options)] = Store.open(path, options=options)
        store.commit(staged, transactional_id=transactional_id, sink=sink)
