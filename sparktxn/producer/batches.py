"""Records that are given many at a time: dictionaries of produce()'s arguments, and columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from sparktxn.errors import ErrorCode, KafkaError, KafkaException
from sparktxn.producer.buffers import TopicBuffer
from sparktxn.producer.columns import key_column, partition_slices
from sparktxn.producer.partitions import PartitionChoice
from sparktxn.producer.reports import DeliveryCallback

__all__ = ["produce_each", "tables_by_partition"]


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


def tables_by_partition(
    target: TopicBuffer, table: pa.Table, partition: int, chosen: pa.Array | None, choice: PartitionChoice
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of `table` with the partition they go to: `partition`, those `chosen`, or by their keys."""
    if partition < 0 and chosen is None and target.partition_count > 1:
        chosen = choice.column(target, key_column(target.state, table), table.num_rows)
    if partition >= 0 or chosen is None:
        yield max(partition, 0), table
    else:
        yield from partition_slices(target.state, table, chosen)
