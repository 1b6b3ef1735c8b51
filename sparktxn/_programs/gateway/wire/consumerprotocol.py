"""What consumers of Kafka's classic protocol send through their coordinator: subscriptions and assignments."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kio.schema.consumer_protocol_assignment.v1 import data as assignments
from kio.serial import entity_reader, entity_writer

from sparktxn.store.options import TopicPartitionKey

CONSUMER: Final = "consumer"
"""The type of groups whose members say what they subscribe to in a form that the coordinator can read."""

_COOPERATIVE: Final = "cooperative-sticky"
_ASSIGNORS: Final = MappingProxyType(
    {"range": "range", "roundrobin": "uniform", "sticky": "uniform", _COOPERATIVE: "uniform"}
)
"""The group's assignor for each strategy of clients."""
_VERSION_MAX: Final = 3
_VERSION_WRITTEN: Final = 1


class MemberSubscription(NamedTuple):
    """What a member wants: `protocol` is the strategy of the answer: the first of its own that is known.

    `owned` is what it reads at this moment. A member that is not cooperative has given up everything before it joins.
    """

    protocol: str
    assignors: tuple[str, ...]
    topics: tuple[str, ...]
    owned: frozenset[TopicPartitionKey]


def subscription_of(protocols: Sequence[Any]) -> MemberSubscription | None:
    """Return what a member says of itself; None if this gateway cannot divide partitions for it.

    It cannot if it knows none of the member's strategies, or cannot read what the member sends with its join. A broker
    does not read these bytes: they are the client's own, and the members' leader reads them.
    """
    known = [protocol for protocol in protocols if protocol.name in _ASSIGNORS]
    if not known:
        return None
    is_cooperative = all(protocol.name == _COOPERATIVE for protocol in protocols)
    found = _subscription(known[0].metadata, names_owned=is_cooperative)
    if found is None:
        return None
    owned = getattr(found, "owned_partitions", ()) if is_cooperative else ()
    return MemberSubscription(
        known[0].name,
        tuple(dict.fromkeys(_ASSIGNORS[protocol.name] for protocol in known)),
        tuple(sorted(set(found.topics))),
        frozenset((each.topic, number) for each in owned for number in each.partitions),
    )


def _subscription(metadata: bytes, *, names_owned: bool) -> Any | None:
    """Return a subscription by the newest version that its bytes have all fields of, up to their own; None if by none.

    Clients such as kafka-go send version 1 without its last field. With `names_owned` it must be of their own version:
    a member that is cooperative goes on reading the partitions that it names there.
    """
    version = min(int.from_bytes(metadata[:2], signed=True), _VERSION_MAX) if len(metadata) >= 2 else -1
    for candidate in range(version, version - 1 if names_owned else -1, -1):
        try:
            return _reader(candidate)(metadata, 2)[0]
        except Exception:  # noqa: BLE001 - the bytes are a client's: kio raises what it meets in them
            continue
    return None


@cache
def _reader(version: int) -> Any:
    schema = import_module(f"kio.schema.consumer_protocol_subscription.v{version}.data")
    return entity_reader(schema.ConsumerProtocolSubscription)


def assignment_bytes(partitions: Iterable[TopicPartitionKey]) -> bytes:
    """Return partitions as consumers read them in the answer to SyncGroup."""
    schema: Any = assignments
    assigned = tuple(
        schema.TopicPartition(topic=topic, partitions=tuple(numbers)) for topic, numbers in by_topic(partitions).items()
    )
    buffer = io.BytesIO()
    buffer.write(_VERSION_WRITTEN.to_bytes(2))
    entity_writer(schema.ConsumerProtocolAssignment)(
        buffer, schema.ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=None)
    )
    return buffer.getvalue()


def by_topic(partitions: Iterable[TopicPartitionKey]) -> dict[str, list[int]]:
    """Return the numbers of partitions by their topics, in order."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found
