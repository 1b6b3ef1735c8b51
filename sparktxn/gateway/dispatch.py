"""Which requests this gateway serves, in which versions, and what answers them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sparktxn.gateway.broker import Broker
from sparktxn.gateway.handlers import (
    acls,
    cluster,
    configadmin,
    consumergrouprequests,
    fetches,
    groupadmin,
    groupmembership,
    logdirs,
    notserved,
    offsetrequests,
    producing,
    sasl,
    topicadmin,
    transactionadmin,
    transactionrequests,
)
from sparktxn.gateway.wire.wiremessages import Answer, Request

__all__ = ["API_VERSIONS", "SERVED", "Served", "api_versions", "highest_version"]

API_VERSIONS: Final = 18
_UNSUPPORTED_VERSION: Final = 35
_TRANSACTIONS: Final = "transaction.version"
_TRANSACTIONS_VERSION: Final = 2
_FEATURES_EPOCH: Final = 1
"""Which of two gateways' answers a client goes by: that with the greater number, once another version is added."""

Handler = Callable[[Broker, Request], Awaitable[Any]]


class Served(NamedTuple):
    """A request that is served: `handler` returns the answer. With `is_queued` it returns what gives it later.

    Then the connection's next request is begun before.
    """

    lowest: int
    highest: int
    handler: Handler
    is_queued: bool = False


async def api_versions(broker: Broker, request: Request) -> Answer:
    """Return which versions of which requests are served, and which transactions clients may use.

    A version of this request that is too high gets them, too.
    """
    broker.placement.note_asked_by(request.client_id)
    return {
        "error_code": 0 if request.body is not None else _UNSUPPORTED_VERSION,
        "api_keys": [
            {"api_key": key, "min_version": served.lowest, "max_version": served.highest}
            for key, served in sorted(SERVED.items())
        ],
        "supported_features": [{"name": _TRANSACTIONS, "min_version": 0, "max_version": _TRANSACTIONS_VERSION}],
        "finalized_features_epoch": _FEATURES_EPOCH,
        "finalized_features": [
            {
                "name": _TRANSACTIONS,
                "max_version_level": _TRANSACTIONS_VERSION,
                "min_version_level": _TRANSACTIONS_VERSION,
            }
        ],
    }


# None is below Kafka 4.0's: a client that knows a broker's age by one request takes the versions of all others from it.
SERVED: Final[Mapping[int, Served]] = MappingProxyType(
    {
        0: Served(0, 13, producing.produce, is_queued=True),  # 0 to 2 are announced, and not served, as by Kafka 4
        1: Served(4, 18, fetches.fetch),
        2: Served(1, 10, fetches.list_offsets),
        3: Served(0, 13, cluster.metadata),
        8: Served(2, 10, offsetrequests.offset_commit),
        9: Served(1, 10, offsetrequests.offset_fetch),
        10: Served(0, 6, cluster.find_coordinator),
        11: Served(0, 9, groupmembership.join_group),
        12: Served(0, 4, groupmembership.heartbeat),
        13: Served(0, 5, groupmembership.leave_group),
        14: Served(0, 5, groupmembership.sync_group),
        15: Served(0, 6, groupadmin.describe_groups),
        16: Served(0, 5, groupadmin.list_groups),
        17: Served(0, 1, sasl.handshake),
        API_VERSIONS: Served(0, 4, api_versions),
        19: Served(2, 7, topicadmin.create_topics),
        20: Served(1, 6, topicadmin.delete_topics),
        21: Served(0, 2, topicadmin.delete_records),
        22: Served(0, 5, transactionrequests.init_producer_id),
        23: Served(2, 4, fetches.offset_for_leader_epoch),
        24: Served(0, 5, transactionrequests.add_partitions_to_txn),
        25: Served(0, 4, transactionrequests.add_offsets_to_txn),
        26: Served(0, 5, transactionrequests.end_txn),
        27: Served(1, 1, transactionadmin.write_txn_markers),
        28: Served(0, 5, transactionrequests.txn_offset_commit),
        29: Served(1, 3, acls.describe_acls),
        30: Served(1, 3, acls.create_acls),
        31: Served(1, 3, acls.delete_acls),
        32: Served(1, 4, configadmin.describe_configs),
        33: Served(0, 2, configadmin.alter_configs),
        35: Served(1, 4, logdirs.describe_log_dirs),
        36: Served(0, 2, sasl.authenticate),
        37: Served(0, 3, topicadmin.create_partitions),
        42: Served(0, 2, groupadmin.delete_groups),
        44: Served(0, 1, configadmin.incremental_alter_configs),
        47: Served(0, 0, groupadmin.offset_delete),
        48: Served(0, 1, notserved.describe_client_quotas),
        49: Served(0, 1, notserved.alter_client_quotas),
        50: Served(0, 0, notserved.describe_scram_credentials),
        51: Served(0, 0, notserved.alter_scram_credentials),
        60: Served(0, 2, cluster.describe_cluster),
        61: Served(0, 0, transactionadmin.describe_producers),
        65: Served(0, 0, transactionadmin.describe_transactions),
        66: Served(0, 2, transactionadmin.list_transactions),
        68: Served(0, 1, consumergrouprequests.consumer_group_heartbeat),
        69: Served(0, 1, consumergrouprequests.consumer_group_describe),
        74: Served(0, 1, configadmin.list_config_resources),
        75: Served(0, 0, topicadmin.describe_topic_partitions),
        76: Served(1, 1, notserved.share_group_heartbeat),
        77: Served(1, 1, notserved.share_group_describe),
        88: Served(0, 0, notserved.streams_group_heartbeat),
        89: Served(0, 0, notserved.streams_group_describe),
        90: Served(0, 0, notserved.describe_share_group_offsets),
        91: Served(0, 0, notserved.alter_share_group_offsets),
        92: Served(0, 0, notserved.delete_share_group_offsets),
    }
)


def highest_version(key: int) -> int:
    """Return the highest version of a request that is served; -1 if none is."""
    served = SERVED.get(key)
    return -1 if served is None else served.highest
