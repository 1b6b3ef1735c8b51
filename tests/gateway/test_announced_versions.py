"""Which versions are announced: those from Kafka 4.3's lowest on, which older clients need, each of them readable.

A client that knows a broker's abilities by a low version finds it, although it sends a higher one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from kio.schema.index import api_key_map

from sparktxn._programs.gateway.connection import SERVED
from sparktxn._programs.gateway.wire.wiremessages import _payload, request_name

KEYS = {name: key for key, name in api_key_map.items()}
LOWEST_IN_KAFKA: Mapping[str, int] = {
    "produce": 0,
    "fetch": 4,
    "list_offsets": 1,
    "offset_commit": 2,
    "offset_fetch": 1,
    "sasl_handshake": 0,
    "create_topics": 2,
    "delete_topics": 1,
    "offset_for_leader_epoch": 2,
    "write_txn_markers": 1,
    "describe_acls": 1,
    "create_acls": 1,
    "delete_acls": 1,
    "describe_configs": 1,
    "describe_log_dirs": 1,
    "share_group_heartbeat": 1,
    "share_group_describe": 1,
}
"""Of what a broker of 4.3 announces; 0 for all others. It does not serve 0 to 2 of Produce, which it announces."""

LIBRDKAFKA_FEATURES: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "MsgVer2": {"produce": (3, 3), "fetch": (4, 4)},
    "ApiVersion": {"api_versions": (0, 0)},
    "BrokerGroupCoordinator": {"find_coordinator": (0, 0)},
    "BrokerBalancedConsumer": {
        "find_coordinator": (0, 0),
        "offset_commit": (1, 2),
        "offset_fetch": (1, 1),
        "join_group": (0, 0),
        "sync_group": (0, 0),
        "heartbeat": (0, 0),
        "leave_group": (0, 0),
    },
    "Sasl": {"join_group": (0, 0)},
    "SaslHandshake": {"sasl_handshake": (0, 0)},
    "LZ4": {"find_coordinator": (0, 0)},
    "OffsetTime": {"list_offsets": (1, 1)},
    "IdempotentProducer": {"init_producer_id": (0, 0)},
    "ZSTD": {"produce": (7, 7), "fetch": (10, 10)},
    "SaslAuthReq": {"sasl_handshake": (1, 1), "sasl_authenticate": (0, 0)},
}
"""What librdkafka 2.0 to 2.8 looks for in the announced versions before it does a thing at all.

Two more of its features need versions of Fetch that Kafka 4 has dropped, too: MsgVer1 and ThrottleTime.
"""

LIBRDKAFKA_2_0 = {
    "add_offsets_to_txn": (0, 0),
    "add_partitions_to_txn": (0, 0),
    "alter_configs": (0, 0),
    "create_acls": (0, 1),
    "create_partitions": (0, 0),
    "create_topics": (0, 4),
    "delete_acls": (0, 1),
    "delete_groups": (0, 1),
    "delete_records": (0, 1),
    "delete_topics": (0, 1),
    "describe_acls": (0, 1),
    "describe_configs": (0, 1),
    "end_txn": (0, 1),
    "fetch": (0, 11),
    "find_coordinator": (0, 2),
    "heartbeat": (0, 3),
    "init_producer_id": (3, 4),
    "join_group": (0, 5),
    "leave_group": (0, 1),
    "list_offsets": (0, 2),
    "metadata": (0, 4),
    "offset_commit": (0, 7),
    "offset_delete": (0, 0),
    "offset_fetch": (0, 7),
    "produce": (0, 7),
    "sasl_authenticate": (0, 0),
    "sasl_handshake": (0, 1),
    "sync_group": (0, 3),
    "txn_offset_commit": (0, 3),
}
LIBRDKAFKA_2_4 = {
    **LIBRDKAFKA_2_0,
    "alter_configs": (0, 2),
    "consumer_group_heartbeat": (0, 0),
    "incremental_alter_configs": (0, 1),
    "list_offsets": (0, 7),
    "metadata": (0, 12),
    "offset_commit": (0, 9),
    "offset_fetch": (0, 9),
    "offset_for_leader_epoch": (2, 2),
    "produce": (0, 8),
    "sasl_authenticate": (0, 1),
}
LIBRDKAFKA_2_8 = {**LIBRDKAFKA_2_4, "fetch": (0, 16), "produce": (0, 10)}
AIOKAFKA_0_8 = {
    "add_offsets_to_txn": (0, 0),
    "add_partitions_to_txn": (0, 0),
    "api_versions": (0, 0),
    "end_txn": (0, 0),
    "fetch": (4, 4),
    "find_coordinator": (0, 1),
    "init_producer_id": (0, 0),
    "join_group": (2, 2),
    "leave_group": (1, 1),
    "list_offsets": (1, 1),
    "metadata": (0, 1),
    "offset_commit": (2, 2),
    "offset_fetch": (1, 1),
    "produce": (7, 7),
    "sasl_authenticate": (1, 1),
    "sasl_handshake": (0, 1),
    "sync_group": (1, 1),
    "txn_offset_commit": (0, 0),
}
KAFKA_PYTHON_2_0 = {
    "alter_configs": (1, 1),
    "api_versions": (0, 0),
    "create_topics": (3, 3),
    "delete_topics": (3, 3),
    "describe_configs": (2, 2),
    "fetch": (4, 4),
    "find_coordinator": (0, 0),
    "join_group": (2, 2),
    "leave_group": (1, 1),
    "list_offsets": (1, 1),
    "metadata": (0, 5),
    "offset_commit": (2, 2),
    "offset_fetch": (1, 1),
    "produce": (7, 7),
    "sasl_handshake": (0, 0),
    "sync_group": (1, 1),
}
CLIENTS: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "librdkafka 2.0": LIBRDKAFKA_2_0,
    "librdkafka 2.4": LIBRDKAFKA_2_4,
    "librdkafka 2.8": LIBRDKAFKA_2_8,
    "aiokafka 0.8": AIOKAFKA_0_8,
    "kafka-python 2.0": KAFKA_PYTHON_2_0,
}
"""The versions of requests that older clients know; of aiokafka and kafka-python, which they were seen to send."""

WITHOUT_A_CHOICE = ("aiokafka 0.8", "kafka-python 2.0")
"""Clients that send these versions to every broker as new, whatever it announces: all of them have to be served."""


def common(name: str, versions: tuple[int, int]) -> range:
    served = SERVED[KEYS[name]]
    return range(max(served.lowest, versions[0]), min(served.highest, versions[1]) + 1)


def test_the_lowest_versions_are_those_of_a_broker() -> None:
    announced = {request_name(key): served.lowest for key, served in SERVED.items()}
    assert announced == {name: LOWEST_IN_KAFKA.get(name, 0) for name in announced}
    assert announced.keys() >= LOWEST_IN_KAFKA.keys()


@pytest.mark.parametrize("feature", LIBRDKAFKA_FEATURES)
def test_librdkafka_finds_what_it_goes_by(feature: str) -> None:
    missing = [name for name, versions in LIBRDKAFKA_FEATURES[feature].items() if not common(name, versions)]
    assert not missing


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_finds_a_version_of_each_request(client: str) -> None:
    def wanted(name: str, versions: tuple[int, int]) -> Iterable[int]:
        if client in WITHOUT_A_CHOICE:
            return range(versions[0], versions[1] + 1)
        return (max(common(name, versions), default=-1),)

    for name, versions in CLIENTS[client].items():
        assert common(name, versions), f"{client} knows {versions} of {name}"
        for version in wanted(name, versions):
            assert version in common(name, versions)
            assert is_readable(KEYS[name], version), f"{client} sends {name} of version {version}"


def is_readable(key: int, version: int) -> bool:
    return all(_payload(kind, key, version) is not None for kind in ("request", "response"))


def test_each_version_that_is_announced_can_be_read() -> None:
    for key, served in SERVED.items():
        lowest = 3 if request_name(key) == "produce" else served.lowest
        for version in range(lowest, served.highest + 1):
            assert is_readable(key, version)
