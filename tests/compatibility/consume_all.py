"""All that a consumer hands out: its calls return what has arrived, so that one without anything says nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from sparktxn.consumer import Consumer

__all__ = ["consume_all"]

Found = TypeVar("Found")


def consume_all(consumer: Consumer, call: Callable[[float], Found | None]) -> Iterator[Found]:
    """Yield what `call(timeout)` returns until each assigned partition is read to where it ends at this moment."""
    partitions = consumer.assignment()
    ends = [consumer.get_watermark_offsets(partition)[1] for partition in partitions]
    while any(found.offset < end for found, end in zip(consumer.position(partitions), ends, strict=True)):
        found = call(0.1)
        if found is not None:
            yield found
