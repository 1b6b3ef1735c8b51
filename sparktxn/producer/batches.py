"""Records that are given many at a time: as dictionaries of produce()'s arguments, or as columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from sparktxn.errors import ErrorCode, KafkaError, KafkaException
from sparktxn.producer.reports import DeliveryCallback
from sparktxn.producer.topics import too_large
from sparktxn.stage.buffers import TopicBuffer
from sparktxn.stage.columnconversion import conformed, slices, tables_of
from sparktxn.stage.recordsizes import row_above
from sparktxn.stage.rowpartitions import given_partitions

__all__ = ["checked_columns", "produce_each"]


def produce_each(
    produce: Callable[..., None],
    topic: str,
    messages: list[dict[str, Any]],
    partition: int,
    callback: DeliveryCallback | None,
) -> int:
    """Call `produce` for each of `messages` and return how many it took; a refused one gets its error as ``_error``.

    Raises:
        KafkaException: _STATE: no record may be produced.
    """
    queued = 0
    for message in messages:
        given = {name: value for name, value in message.items() if name != "_error"}
        given.setdefault("partition", partition)
        if "callback" not in given and "on_delivery" not in given:
            given["callback"] = callback
        try:
            produce(topic, **given)
        except TypeError as error:
            message["_error"] = KafkaError(ErrorCode.LOCAL_INVALID_ARG, str(error))
        except BufferError as error:
            message["_error"] = KafkaError(ErrorCode.LOCAL_QUEUE_FULL, str(error), retriable=True)
        except KafkaException as error:
            if error.error.code() == ErrorCode.LOCAL_STATE:
                raise
            message["_error"] = error.error
        else:
            queued += 1
    return queued


def checked_columns(
    target: TopicBuffer, batch: object, now_ms: int, *, by_row: bool
) -> list[tuple[pa.Table, pa.Array | None]]:
    """Return all rows of `batch` as `target` stores them; with `by_row`, also the partitions that the rows name.

    All are checked before the caller queues any: a call that fails has queued nothing.

    Raises:
        TypeError: `batch` gives no rows.
        ConfigurationError: a column is unknown, missing or of another type.
        KafkaException: MSG_SIZE_TOO_LARGE, a record is above what the topic takes.
    """
    checked = []
    for table in tables_of("batch", batch):
        for rows in slices(table):
            records = conformed(target.stage, rows, now_ms)
            if (largest := row_above(records, target.size_max)) is not None:
                raise too_large(target, largest)
            checked.append((records, given_partitions(target.stage, rows) if by_row else None))
    return checked
