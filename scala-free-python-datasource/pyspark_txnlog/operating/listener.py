"""What a running query is worth to an operator: one log line per progress, and gauges for whatever collects them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_txnlog.options.sparkevents import log_event
from sparktxn import metrics
from sparktxn.metrics.families import STREAM_FAMILIES, STREAM_PREFIX
from sparktxn.store.options import arguments

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

_TOPICS_SHOWN: Final = 3

Gauges = dict[str, float]

GAUGES: Final = {name.removeprefix(STREAM_PREFIX): family.meaning for name, family in STREAM_FAMILIES.items()}
"""What each gauge says of a query."""

_SUMMED: Final = ("batch_entries", "batch_transactions", "backlog_rows", "backlog_transactions")


class ProgressListener(StreamingQueryListener):
    """Logs one line per progress of a query that reads ``txnlog``, and keeps its gauges::

        spark.streams.addListener(ProgressListener(prometheus_file="/var/lib/node_exporter/spark.prom"))

    The line is of level INFO, of the logger ``sparktxn.spark``. Queries with other sources alone are left out.

    Args:
        export: called with `gauges()` after each change, on Spark's thread: it must not wait long. An error that it
            raises is logged.
        prometheus_file: a file that is replaced after each change, in Prometheus' text format: for node_exporter's
            textfile collector, or a web server. One file is for one driver. It has the figures of this process, too,
            which `sparktxn.metrics` counts.

    Raises:
        TypeError: an argument has a wrong type.
    """

    def __init__(
        self,
        *,
        export: Callable[[dict[str, Gauges]], object] | None = None,
        prometheus_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._export = arguments.function("export", export)
        self._file = None if prometheus_file is None else Path(arguments.path("file", prometheus_file))
        self._lock = threading.Lock()
        self._gauges: dict[str, Gauges] = {}
        self._names: dict[str, str] = {}

    def gauges(self) -> dict[str, Gauges]:
        """Return the gauges of every query, by its id: see GAUGES. They are copies."""
        with self._lock:
            return {query_id: dict(gauges) for query_id, gauges in self._gauges.items()}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Note the name, and that a query which had ended runs again. Gauges begin with the first progress."""
        query_id = str(event.id)
        with self._lock:
            self._names[query_id] = event.name or ""
            gauges = self._gauges.get(query_id)
            if gauges is None:
                return
            gauges.update(running=1, failed=0)
        self._publish()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Log the progress, and replace the query's gauges."""
        progress = event.progress
        found = gauges_of(progress)
        if found is None:
            return
        query_id = str(progress.id)
        with self._lock:
            self._names[query_id] = progress.name or ""
            self._gauges[query_id] = found
        name, topics = progress.name or query_id, _topics(progress)
        line = _line(name, topics, found, _counts_transactions(progress))
        log_event("spark_progress", line=line, query=name, topics=topics, **found)
        self._publish()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: the gauges stay as the last progress left them."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Keep the last gauges, and that the query runs no more."""
        query_id, failed = str(event.id), event.exception is not None
        with self._lock:
            gauges = self._gauges.get(query_id)
            name = self._names.pop(query_id, "") if gauges is None else self._names[query_id]
            if gauges is None:
                return
            gauges.update(running=0, failed=int(failed))
        log_event("spark_query_ended", query=name or query_id, how=" with an error" if failed else "")
        self._publish()

    def _publish(self) -> None:
        gauges = self.gauges()
        with self._lock:
            names = dict(self._names)
        try:
            if self._export is not None:
                self._export(gauges)
        except Exception:  # noqa: BLE001 - a collector's failure must not reach the query's thread
            log_event("spark_gauges_not_exported", exc_info=True)
        if self._file is not None:
            self._write(self._file, _prometheus_text(gauges, names))

    def _write(self, file: Path, text: str) -> None:
        """Replace the file: a reader sees the old text or the new one."""
        try:
            partial = file.with_name(f"{file.name}.{os.getpid()}.tmp")
            partial.write_text(text)
            partial.replace(file)
        except OSError as error:
            log_event("spark_gauges_not_written", file=file, error=error)


def gauges_of(progress: StreamingQueryProgress) -> Gauges | None:
    """Return the gauges of a progress; None if no source of the query is ``txnlog``."""
    sources = [found for found in map(_source_gauges, progress.sources) if found is not None]
    if not sources:
        return None
    gauges: Gauges = {
        "running": 1,
        "failed": 0,
        "batch_id": progress.batchId,
        "batch_rows": progress.numInputRows,
        "batch_duration_seconds": progress.batchDuration / 1000,
        "processed_rows_per_second": progress.processedRowsPerSecond or 0.0,
        "entry": min(found["entry"] for found in sources),
    }
    for name in _SUMMED:
        gauges[name] = sum(found[name] for found in sources)
    gauges["backlog_seconds"] = max(found["backlog_seconds"] for found in sources)
    return {name: gauges[name] for name in GAUGES}


def _counts_transactions(progress: StreamingQueryProgress) -> bool:
    """Return whether a source of the query reads in commit order: in offset order none is counted."""
    reports = [_json(source.latestOffset) for source in progress.sources]
    return any(isinstance(report, dict) and "batchTransactions" in report for report in reports)


def _source_gauges(source: Any) -> Gauges | None:
    start, end, latest = (_json(text) for text in (source.startOffset, source.endOffset, source.latestOffset))
    if not isinstance(end, dict) or "topicIds" not in end or "entry" not in end:
        return None
    first = start["entry"] if isinstance(start, dict) else 0
    report = latest if isinstance(latest, dict) else {}
    return {
        "entry": end["entry"],
        "batch_entries": end["entry"] - first,
        "batch_transactions": report.get("batchTransactions", 0),
        "backlog_rows": report.get("backlogRows", 0),
        "backlog_transactions": report.get("backlogTransactions", 0),
        "backlog_seconds": report.get("backlogMs", 0) / 1000,
    }


def _json(text: object) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _topics(progress: StreamingQueryProgress) -> str:
    """Return the topics that the query's sources read, the first of them by name."""
    ends = [_json(source.endOffset) for source in progress.sources]
    found = sorted({topic for end in ends if isinstance(end, dict) for topic in end.get("topicIds", ())})
    more = f" and {len(found) - _TOPICS_SHOWN} more" if len(found) > _TOPICS_SHOWN else ""
    return ", ".join(found[:_TOPICS_SHOWN]) + more


def _line(name: str, topics: str, gauges: Mapping[str, float], counts_transactions: bool) -> str:
    transactions = f", {gauges['batch_transactions']:.0f} transactions" if counts_transactions else ""
    return (
        f"query {name!r} micro-batch {gauges['batch_id']:.0f} of {topics}: "
        f"{gauges['batch_rows']:.0f} rows{transactions}, "
        f"to entry {gauges['entry']:.0f}, in "
        f"{gauges['batch_duration_seconds']:.3f} s; backlog {gauges['backlog_rows']:.0f} rows, "
        f"{gauges['backlog_seconds']:.1f} s"
    )


def _prometheus_text(gauges: Mapping[str, Gauges], names: Mapping[str, str]) -> str:
    """Return the gauges of all queries and the figures of this process, the driver."""
    queries: dict[str, dict[tuple[str, ...], float]] = {
        name: {(query_id, names.get(query_id, "")): values[gauge] for query_id, values in sorted(gauges.items())}
        for name, gauge in zip(STREAM_FAMILIES, GAUGES, strict=True)
    }
    lines = [*_metric_lines(STREAM_FAMILIES, queries), *_metric_lines(metrics.FAMILIES, metrics.figures())]
    return "".join(lines)


def _metric_lines(
    families: Mapping[str, metrics.Family], figures: Mapping[str, Mapping[tuple[str, ...], float]]
) -> Iterable[str]:
    for name, family in families.items():
        yield f"# HELP {name} {family.meaning}\n# TYPE {name} {family.kind}\n"
        ends = {"_bucket": (*family.labels, "le"), "_sum": family.labels, "_count": family.labels}
        for end, labels in ends.items() if family.kind == "histogram" else [("", family.labels)]:
            for values, figure in figures[name + end].items():
                shown = ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(labels, values, strict=True))
                yield f"{name}{end}{{{shown}}} {_number(figure)}\n" if shown else f"{name}{end} {_number(figure)}\n"


def _number(value: float) -> str:
    """Return a number with at most three decimals, and all digits before them."""
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
