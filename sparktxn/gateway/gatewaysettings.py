"""How a gateway serves: where it listens, what it says of itself, and its limits."""

from __future__ import annotations

from msgspec import Struct

from sparktxn.process.listening import Endpoint

__all__ = ["GatewaySettings"]


class GatewaySettings(Struct, frozen=True, kw_only=True):
    """The settings of one gateway.

    Args:
        advertised: where clients reach this gateway; None is where it listens.
        peers: all gateways of the store, this one among them or not.
        linger_ms: how far entries with records outside transactions are apart, at least; meanwhile records gather.
        creates_topics: whether a client that names a topic creates it, as a broker does.
        partition_count: how many partitions such a topic gets.
        request_bytes_max: the size of one request.
        requests_bytes_max: the size of all requests of known clients that are in memory at a time; others wait on
            their connections. One that is larger than its part is alone in it.
        decompressed_bytes_max: the bytes of all batches that are decompressed at a time, until they are stored.
        stores_transactions: whether records of open transactions are stored at once, as at a broker, or are in memory
            until their commit.
        transactions_bytes_max: the records of open transactions in memory, before they are uploaded early.
        request_s: how long the bytes of one request may take to come, with a second more for each megabyte.
        answer_s: how long a client may leave an answer unread, with a second more for each megabyte. A broker leaves
            a connection as long on which nothing moves (``connections.max.idle.ms``).
        connections_max: how many clients may be connected.
        unknown_max: how many of them may be unknown: not logged in, or where no login is asked for, silent so far.
        workers: how many calls of the store are under way at a time.
        timeout_s: how long one call of the store may take.
        consumer_session_ms: how long a member of Kafka's newer protocol may be silent; others say it themselves.
        consumer_heartbeat_ms: how often such a member shows that it lives.
        transaction_timeout_ms_max: the longest time-out that a transaction may have.
    """

    advertised: Endpoint | None = None
    peers: tuple[Endpoint, ...] = ()
    linger_ms: int = 5
    creates_topics: bool = True
    partition_count: int = 1
    request_bytes_max: int = 100 * 1024 * 1024
    requests_bytes_max: int = 64 * 1024 * 1024
    decompressed_bytes_max: int = 64 * 1024 * 1024
    stores_transactions: bool = False
    transactions_bytes_max: int = 128 * 1024 * 1024
    request_s: float = 30.0
    answer_s: float = 600.0
    connections_max: int = 10_000
    unknown_max: int = 500
    workers: int = 64
    timeout_s: float = 30.0
    consumer_session_ms: int = 45_000
    consumer_heartbeat_ms: int = 5_000
    transaction_timeout_ms_max: int = 900_000
