"""How a gateway serves: where it listens, what it says of itself, and its limits."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from sparktxn._foundation.process.listening import Endpoint

REQUEST_BYTES_MAX: Final = 100 * 1024 * 1024
"""The size of one request."""
CONSUMER_SESSION_MS: Final = 45_000
"""How long a member of Kafka's newer protocol may be silent; others say it themselves."""
CONSUMER_HEARTBEAT_MS: Final = 5_000
"""How often such a member shows that it lives."""


class GatewayLimits(Struct, frozen=True, kw_only=True):
    """The limits of one gateway, which no start of it changes.

    Args:
        requests_bytes_max: the size of all requests of known clients that are in memory at a time; others wait on
            their connections. One that is larger than its part is alone in it.
        decompressed_bytes_max: the bytes of all batches that are decompressed at a time, until they are stored.
        transactions_bytes_max: the records of open transactions in memory, before they are uploaded early.
        request_s: how long the bytes of one request may take to come, with a second more for each megabyte.
        answer_s: how long a client may leave an answer unread, with a second more for each megabyte. A broker leaves
            a connection as long on which nothing moves (``connections.max.idle.ms``).
        unknown_max: how many clients may be unknown: not logged in, or where no login is asked for, silent so far.
        workers: how many calls of the store are under way at a time.
        timeout_s: how long one call of the store may take.
    """

    requests_bytes_max: int = 64 * 1024 * 1024
    decompressed_bytes_max: int = 64 * 1024 * 1024
    transactions_bytes_max: int = 128 * 1024 * 1024
    request_s: float = 30.0
    answer_s: float = 600.0
    unknown_max: int = 500
    workers: int = 64
    timeout_s: float = 30.0


class GatewaySettings(GatewayLimits, frozen=True, kw_only=True):
    """The settings of one gateway, each of which has an option of ``txnlog gateway``.

    Args:
        advertised: where clients reach this gateway; None is where it listens.
        peers: all gateways of the store, this one among them or not.
        linger_ms: how far entries with records outside transactions are apart, at least; meanwhile records gather.
        creates_topics: whether a client that names a topic creates it, as a broker does.
        partition_count: how many partitions such a topic gets.
        stores_transactions: whether records of open transactions are stored at once, as at a broker, or are in memory
            until their commit.
        connections_max: how many clients may be connected.
    """

    advertised: Endpoint | None = None
    peers: tuple[Endpoint, ...] = ()
    linger_ms: int = 5
    creates_topics: bool = True
    partition_count: int = 1
    stores_transactions: bool = False
    connections_max: int = 10_000
