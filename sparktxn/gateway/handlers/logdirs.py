"""DescribeLogDirs: how many bytes partitions have, in the one place where they all are: the store."""

from __future__ import annotations

from typing import Any, Final

from sparktxn.errors import KafkaException
from sparktxn.format.checkpoint import SEGMENTS_PREFIX
from sparktxn.gateway.broker import Broker
from sparktxn.gateway.wire.wirecodes import code_of
from sparktxn.gateway.wire.wiremessages import Answer, Request
from sparktxn.log.keep.runs import sizes_of
from sparktxn.values.fieldtypes import TopicPartitionKey
from sparktxn.values.structs import PartitionSegments

__all__ = ["describe_log_dirs"]

_PARTS: Final = ("store", "topics/", SEGMENTS_PREFIX)


async def describe_log_dirs(broker: Broker, request: Request) -> Answer:
    """Return the bytes of the segments of partitions, of all topics or of those that are asked for."""
    asked = request.body.topics
    wanted = None if asked is None else {(each.topic, number) for each in asked for number in each.partitions}
    try:
        sizes = await broker.calls.run(_sizes, broker)
    except KafkaException as error:
        return {"error_code": code_of(error), "results": []}
    topics: dict[str, list[dict[str, Any]]] = {}
    for (name, number), size_bytes in sorted(sizes.items()):
        if wanted is None or (name, number) in wanted:
            partition = {"partition_index": number, "partition_size": size_bytes, "offset_lag": 0}
            topics.setdefault(name, []).append({**partition, "is_future_key": False})
    result = {
        "error_code": 0,
        "log_dir": broker.store.store_id,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "total_bytes": -1,
        "usable_bytes": -1,
    }
    return {"error_code": 0, "results": [result]}


def _sizes(broker: Broker) -> dict[TopicPartitionKey, int]:
    """Return the bytes of each partition's segments; what an entry itself carries counts with its share."""
    broker.log.refresh()
    snapshot = broker.log.snapshot(_PARTS)
    sizes = {(topic.name, number): 0 for topic in broker.log.topics() for number in range(topic.partition_count)}
    for record in snapshot.records:
        if isinstance(record, PartitionSegments) and record.topic_id in snapshot.topics:
            segments = sizes_of(record.sealed, record.segments, record.rewritten)
            place = (snapshot.topics[record.topic_id].name, record.partition)
            sizes[place] = sum(size_bytes for _, size_bytes, _ in segments)
    return sizes
