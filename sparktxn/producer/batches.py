"""Records that are given many at a time, as dictionaries of produce()'s arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparktxn.errors import ErrorCode, KafkaError, KafkaException
from sparktxn.producer.reports import DeliveryCallback

__all__ = ["produce_each"]


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
