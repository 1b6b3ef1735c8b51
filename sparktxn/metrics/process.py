"""The one owner of this process's figures.

Modules count into members of `PROCESS`: a request of an object store, a timed call, an entry. Each member has a lock of
its own, which is held for a few additions.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

from sparktxn._foundation.process.clock import Clock

BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""The upper bounds of the buckets of times, in seconds; the last bucket has none."""


class Counter:
    """A number that grows."""

    __slots__ = ("_lock", "value")

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Begin at 0, with a lock that no other thread holds."""
        self._lock = threading.Lock()
        self.value = 0

    def add(self, amount: int = 1) -> None:
        """Add to it."""
        with self._lock:
            self.value += amount


class Requests:
    """Requests of one kind, and the bytes of the objects in them."""

    __slots__ = ("_lock", "count", "size_bytes")

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Begin at 0, with a lock that no other thread holds."""
        self._lock = threading.Lock()
        self.count = 0
        self.size_bytes = 0

    def note(self, size_bytes: int = 0, count: int = 1) -> None:
        """Note requests that were sent."""
        with self._lock:
            self.count += count
            self.size_bytes += size_bytes


class Calls:
    """How often something was called, how long that took, and how often it failed."""

    __slots__ = ("_lock", "buckets", "failures", "name", "seconds")

    def __init__(self, name: str) -> None:
        self.name = name
        self.begin_anew()

    def begin_anew(self) -> None:
        """Begin at 0, with a lock that no other thread holds."""
        self._lock = threading.Lock()
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.failures = 0
        self.seconds = 0.0

    def note(self, seconds: float, failed: bool) -> None:
        """Note a call that has ended."""
        bucket = bisect_left(BUCKETS_S, seconds)
        with self._lock:
            self.buckets[bucket] += 1
            self.seconds += seconds
            self.failures += failed

    def cumulated(self) -> tuple[list[int], float, int]:
        """Return how many calls took at most each bound and in all, the sum of their seconds, and the failures."""
        with self._lock:
            buckets, seconds, failures = list(self.buckets), self.seconds, self.failures
        for index in range(1, len(buckets)):
            buckets[index] += buckets[index - 1]
        return buckets, seconds, failures


class ProcessFigures:
    """All figures of this process, and the tracer that timed calls make spans with, None if spans are off."""

    def __init__(self) -> None:
        self.tracer: Any = None
        self.commit_transaction = Calls("commit_transaction")
        self.abort_transaction = Calls("abort_transaction")
        self.store_commit = Calls("store_commit")
        self.log_write = Calls("log_write")
        self.fold = Calls("fold")
        self.entries_won = Counter()
        self.entries_lost = Counter()
        self.write_retries = Counter()
        self.get = Requests()
        self.put = Requests()
        self.list = Requests()
        self.delete = Requests()
        self.request_retries = Counter()
        self.writes_refused = Counter()
        self.writes_unanswered = Counter()

    def begin_anew(self) -> None:
        """Begin at 0, as in a forked child: what was counted is the parent's, and its threads may hold the locks."""
        for member in vars(self).values():
            if isinstance(member, Calls | Counter | Requests):
                member.begin_anew()

    def figures(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Return what `sparktxn.metrics.figures` returns."""
        found: dict[str, dict[tuple[str, ...], float]] = {}
        timed, failed = "txnlog_client_call_seconds", "txnlog_client_call_failures_total"
        for calls in (self.commit_transaction, self.abort_transaction, self.store_commit, self.log_write, self.fold):
            buckets, seconds, failures = calls.cumulated()
            for bound, count in zip(_BOUNDS, buckets, strict=True):
                found.setdefault(f"{timed}_bucket", {})[calls.name, bound] = count
            found.setdefault(f"{timed}_sum", {})[calls.name,] = seconds
            found.setdefault(f"{timed}_count", {})[calls.name,] = buckets[-1]
            found.setdefault(failed, {})[calls.name,] = failures
        for name, counter in (
            ("txnlog_client_entries_won_total", self.entries_won),
            ("txnlog_client_entries_lost_total", self.entries_lost),
            ("txnlog_client_write_retries_total", self.write_retries),
            ("txnlog_client_request_retries_total", self.request_retries),
        ):
            found[name] = {(): counter.value}
        kinds = {"get": self.get, "put": self.put, "list": self.list, "delete": self.delete}
        found["txnlog_client_requests_total"] = {(kind,): each.count for kind, each in kinds.items()}
        failed_writes = {("refused",): self.writes_refused.value, ("unanswered",): self.writes_unanswered.value}
        found["txnlog_client_write_failures_total"] = failed_writes  # type: ignore[assignment]
        moved = ("get", "put")
        found["txnlog_client_request_bytes_total"] = {(kind,): kinds[kind].size_bytes for kind in moved}
        return found


_BOUNDS: Final[Sequence[str]] = (*map(str, BUCKETS_S), "+Inf")

PROCESS: Final = ProcessFigures()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PROCESS.begin_anew)


class Call:
    """A call under way, as a context: its time is noted at the end, and it is a span if spans are on."""

    __slots__ = ("_began_s", "_calls", "_clock", "_span")

    def __init__(self, calls: Calls, clock: Clock) -> None:
        self._calls = calls
        self._clock = clock
        self._span: Any = None

    def __enter__(self) -> None:
        if PROCESS.tracer is not None:
            self._span = PROCESS.tracer.start_as_current_span(f"txnlog.{self._calls.name}")
            self._span.__enter__()
        self._began_s = self._clock.monotonic_s()

    def __exit__(self, *raised: Any) -> None:
        self._calls.note(self._clock.monotonic_s() - self._began_s, raised[0] is not None)
        if self._span is not None:
            self._span.__exit__(*raised)
