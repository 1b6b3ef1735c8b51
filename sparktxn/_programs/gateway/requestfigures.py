"""What a gateway counts of its clients: their requests by kind, and what was refused."""

from __future__ import annotations

import threading
from typing import Final, Literal

from sparktxn._programs.gateway.wire.wiremessages import request_name
from sparktxn.metrics.families import Family
from sparktxn.metrics.process import BUCKETS_S, Calls, Counter, Requests

Samples = dict[str, dict[tuple[str, ...], float]]
"""The figures of each name, by the values of its labels; of a histogram the samples of Prometheus."""

Refusal = Literal["authentication", "connection", "malformed", "unread"]

FAMILIES: Final[dict[str, Family]] = {
    "txnlog_gateway_request_seconds": Family(
        "Time from a request's arrival to its answer, with what a fetch waits for records", ("request",), "histogram"
    ),
    "txnlog_gateway_request_bytes_total": Family("Bytes of requests", ("request",)),
    "txnlog_gateway_answer_bytes_total": Family("Bytes of answers", ("request",)),
    "txnlog_gateway_refused_total": Family(
        "Connections that were ended: of unknown clients, above the limit, with what is not a request, or with answers "
        "that are not read",
        ("reason",),
    ),
    "txnlog_gateway_connections": Family("Clients that are connected", kind="gauge"),
    "txnlog_gateway_request_memory_bytes": Family("Bytes of requests that are in memory", kind="gauge"),
    "txnlog_gateway_decompressed_memory_bytes": Family(
        "Bytes of batches that are decompressed, until they are stored", kind="gauge"
    ),
    "txnlog_gateway_open_transactions": Family("Transactions that clients have open here", kind="gauge"),
    "txnlog_gateway_transaction_memory_bytes": Family(
        "Bytes of records of open transactions that are in memory", kind="gauge"
    ),
    "txnlog_gateway_log_entry": Family("The newest entry of the log", kind="gauge"),
    "txnlog_gateway_log_lag_entries": Family(
        "Entries that this gateway had not read when it was asked for its figures", kind="gauge"
    ),
}
"""All names, in the order of the page."""


class _Kind:
    """Requests of one kind."""

    def __init__(self, name: str) -> None:
        self.calls = Calls(name)
        self.asked = Requests()
        self.answered = Requests()


class GatewayFigures:
    """Counts requests. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: dict[int, _Kind] = {}
        self._refused: dict[Refusal, Counter] = {
            "authentication": Counter(),
            "connection": Counter(),
            "malformed": Counter(),
            "unread": Counter(),
        }

    def note(self, key: int, seconds: float, request_bytes: int, answer_bytes: int) -> None:
        """Note a request that was answered; `key` is Kafka's number of its kind."""
        kind = self._kinds.get(key)
        if kind is None:
            with self._lock:
                kind = self._kinds.setdefault(key, _Kind(request_name(key)))
        kind.calls.note(seconds, False)
        kind.asked.note(request_bytes)
        kind.answered.note(answer_bytes)

    def note_refused(self, reason: Refusal) -> None:
        """Note a connection that was ended."""
        self._refused[reason].add()

    def samples(self) -> Samples:
        """Return what was counted until now."""
        found: Samples = {}
        found["txnlog_gateway_refused_total"] = {(reason,): count.value for reason, count in self._refused.items()}
        timed = "txnlog_gateway_request_seconds"
        with self._lock:
            kinds = list(self._kinds.values())
        for kind in kinds:
            name = kind.calls.name
            buckets, seconds, _ = kind.calls.cumulated()
            for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), buckets, strict=True):
                found.setdefault(f"{timed}_bucket", {})[name, bound] = count
            found.setdefault(f"{timed}_sum", {})[name,] = seconds
            found.setdefault(f"{timed}_count", {})[name,] = buckets[-1]
            found.setdefault("txnlog_gateway_request_bytes_total", {})[name,] = kind.asked.size_bytes
            found.setdefault("txnlog_gateway_answer_bytes_total", {})[name,] = kind.answered.size_bytes
        return found
