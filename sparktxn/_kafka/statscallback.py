"""Statistics of a client as librdkafka's JSON (its STATISTICS.md): when they are due, and what all clients say.

A field has librdkafka's name and meaning, or is left out. The one "broker" is the store: its requests and bytes are
those of this process, whose clients share them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final, Self

import msgspec

from sparktxn._foundation.process.clock import Clock
from sparktxn._foundation.values.fieldtypes import TopicPartitionKey
from sparktxn._kafka.settings.client import PolledSettings
from sparktxn.metrics.process import PROCESS

NO_OFFSET: Final = -1001
"""librdkafka's number for an offset that is not known."""

_instances: Final = count(1)


class Statistics:
    """When the statistics of one client are due, by the monotonic clock, and its callback.

    Args:
        callback: the client's, called with the JSON.
        settings: the client's.
        clock: the store's handle's.
        own: a method that returns the client's own fields; the client may be dropped before.
    """

    def __init__(
        self,
        callback: Callable[[str], Any],
        settings: PolledSettings,
        clock: Clock,
        own: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._callback = callback
        self._interval_s = settings.statistics_interval_s
        self._client_id = settings.client_id
        self._kind = settings.client
        self._uri = settings.uri
        self._clock = clock
        self._own = weakref.WeakMethod(own)
        self._name = f"{self._client_id}#{self._kind}-{next(_instances)}"
        self._born_s = clock.monotonic_s()
        self.due_at_s = self._born_s + self._interval_s

    @classmethod
    def wanted(cls, settings: PolledSettings, clock: Clock, own: Callable[[], Mapping[str, Any]]) -> Self | None:
        """Return the statistics that the settings ask for; None without a callback or an interval."""
        if settings.stats_cb is None or not settings.statistics_interval_s:
            return None
        return cls(settings.stats_cb, settings, clock, own)

    def take(self) -> Callable[[], Any] | None:
        """Return the call of the callback that is due, None if none is; the next one is due an interval later."""
        now_s = self._clock.monotonic_s()
        own = self._own()
        if now_s < self.due_at_s or own is None:
            return None
        self.due_at_s = now_s + self._interval_s
        callback, text = self._callback, msgspec.json.encode({**self._common(now_s), **own()}).decode()
        return lambda: callback(text)

    def limit_s(self, timeout_s: float | None) -> float | None:
        """Return how long a wait of `timeout_s` (None: no limit) may take until statistics are due."""
        left_s = max(0.0, self.due_at_s - self._clock.monotonic_s())
        return left_s if timeout_s is None else min(timeout_s, left_s)

    def _common(self, now_s: float) -> dict[str, Any]:
        sent, received = PROCESS.put, PROCESS.get
        requests = sum(each.count for each in (sent, received, PROCESS.list, PROCESS.delete))
        return {
            "name": self._name,
            "client_id": self._client_id,
            "type": self._kind,
            "ts": int(now_s * 1_000_000),
            "time": self._clock.wall_ms() // 1000,
            "age": int((now_s - self._born_s) * 1_000_000),
            "tx": requests,
            "tx_bytes": sent.size_bytes,
            "rx": requests,
            "rx_bytes": received.size_bytes,
            "brokers": {
                self._uri: {
                    "name": self._uri,
                    "nodeid": 0,
                    "nodename": self._uri,
                    "source": "configured",
                    "state": "UP",
                    "tx": requests,
                    "txbytes": sent.size_bytes,
                    "txretries": PROCESS.request_retries.value,
                    "rx": requests,
                    "rxbytes": received.size_bytes,
                }
            },
            "topics": {},
        }


def by_topic(partitions: Mapping[TopicPartitionKey, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the field `topics` of what is said of partitions."""
    topics: dict[str, Any] = {}
    for (topic, number), fields in sorted(partitions.items()):
        entry = topics.setdefault(topic, {"topic": topic, "partitions": {}})
        entry["partitions"][str(number)] = {"partition": number, "broker": 0, "leader": 0, **fields}
    return topics
