"""Records that are given many at a time: as dictionaries of produce()'s arguments, or as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from sparktxn.errors import ErrorCode, KafkaError, KafkaException
from sparktxn.log.views.refusals import reading_once
from sparktxn.producer.reports import DeliveryCallback
from sparktxn.producer.topics import check_partition, too_large
from sparktxn.stage.buffers import TopicBuffer
from sparktxn.stage.columnconversion import conformed, slices
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
    with reading_once():
        return sum(_is_queued(produce, topic, message, partition, callback) for message in messages)


def _is_queued(
    produce: Callable[..., None],
    topic: str,
    message: dict[str, Any],
    partition: int,
    callback: DeliveryCallback | None,
) -> bool:
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
        return True
    return False


def checked_columns(
    target: TopicBuffer, *, tables: Sequence[pa.Table], now_ms: int, partition: int
) -> tuple[TopicBuffer, list[tuple[pa.Table, pa.Array | None]]]:
    """Return `target`, and all rows as it stores them; if `partition` is below 0, also those that the rows name.

    All are checked before the caller queues any: a call that fails has queued nothing.

    Raises:
        ConfigurationError: a column is unknown, missing or of another type.
        KafkaException: _UNKNOWN_PARTITION; MSG_SIZE_TOO_LARGE, a record is above what the topic takes.
    """
    check_partition(target, partition)
    checked = []
    for table in tables:
        for rows in slices(table):
            records = conformed(target.stage, rows, now_ms)
            if (largest := row_above(records, target.size_max)) is not None:
                raise too_large(target, largest)
            checked.append((records, given_partitions(target.stage, rows) if partition < 0 else None))
    return target, checked
