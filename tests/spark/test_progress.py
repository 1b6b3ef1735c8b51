"""What a stream's progress says, under every trigger, and the listener that logs and exports it."""

from __future__ import annotations

import json
import logging
import re
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from prometheus_client import CollectorRegistry, generate_latest

from pyspark_txnlog import ProgressListener
from pyspark_txnlog.operating.listener import GAUGES
from sparktxn import Producer, Store, metrics
from sparktxn.testing.clocks import ManualClock
from tests.spark.readers import Query, commit, stream_reader

T0_MS = 1_700_000_000_000


@pytest.fixture
def topic(store: Store) -> Store:
    store.create_topic("t", 2)
    return store


def reported(query: Query) -> dict[str, Any]:
    """What the query's progress says of the source's newest state."""
    found = query.reader.reportLatestOffset()
    assert found is not None
    return json.loads(json.dumps(found))


class TestBacklog:
    def test_in_commit_order_it_is_of_rows_transactions_and_time(self, topic: Store) -> None:
        for number in range(3):
            commit(topic, range(10 * number, 10 * number + 10), timestamp_ms=T0_MS + 1000 * number)
        clock = ManualClock(T0_MS / 1000 + 60)
        query = Query(stream_reader(topic, clock, startingOffsets="earliest", maxOffsetsPerTrigger="10"))
        seen = []
        for _ in range(4):
            query.run()
            names = ("batchTransactions", "backlogRows", "backlogTransactions", "backlogMs")
            seen.append([reported(query)[name] for name in names])
        assert seen == [[1, 20, 2, 59_000], [1, 10, 1, 58_000], [1, 0, 0, 0], [0, 0, 0, 0]]

    def test_what_is_open_or_aborted_is_no_backlog_in_commit_order(self, topic: Store) -> None:
        query = Query(stream_reader(topic, startingOffsets="earliest"))
        with Producer({"bootstrap.servers": topic.uri, "transactional.id": "open"}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.produce("t", b"5")
            producer.flush()
            query.run()
            assert reported(query)["backlogRows"] == 0
            producer.abort_transaction()
        query.run()
        assert reported(query)["backlogRows"] == 0

    def test_records_outside_transactions_are_rows_and_no_transaction(self, topic: Store) -> None:
        with Producer({"bootstrap.servers": topic.uri}) as producer:
            producer.produce("t", b"5")
            producer.flush()
        query = Query(stream_reader(topic, startingOffsets="earliest"))
        assert query.run() == [5]
        assert reported(query)["batchTransactions"] == 0

    def test_a_micro_batch_that_waits_leaves_all_as_backlog(self, topic: Store) -> None:
        query = Query(stream_reader(topic, startingOffsets="earliest", minOffsetsPerTrigger="10"))
        query.run()  # the first is let through
        commit(topic, range(5))
        assert query.run() == []
        assert [reported(query)[name] for name in ("batchTransactions", "backlogRows")] == [0, 5]

    def test_in_offset_order_it_is_of_offsets_and_time(self, topic: Store) -> None:
        for number in range(2):
            commit(topic, range(10 * number, 10 * number + 10), partition=0, timestamp_ms=T0_MS + 1000 * number)
        clock = ManualClock(T0_MS / 1000 + 60)
        options = {"startingOffsets": "earliest", "order": "offset", "maxOffsetsPerTrigger": "11"}
        query = Query(stream_reader(topic, clock, **options))
        query.run()
        assert (reported(query)["backlogRows"], reported(query)["backlogMs"]) == (10, 59_000)
        query.run()
        assert (reported(query)["backlogRows"], reported(query)["backlogMs"]) == (0, 0)


def progress(latest: dict[str, Any] | None = None, **values: Any) -> Any:
    """An event of a query that reads a topic, as Spark makes it."""
    end = {"order": "commit", "storeId": "s", "entry": 14, "topicIds": {"t": 1}, "topics": {"t": {"0": 9}}}
    source = SimpleNamespace(
        startOffset=json.dumps({**end, "entry": 10}), endOffset=json.dumps(end), latestOffset=json.dumps(latest or {})
    )
    given = {
        "id": uuid.UUID(int=1),
        "name": 'the "query"',
        "batchId": 3,
        "batchDuration": 1234,
        "numInputRows": 150,
        "processedRowsPerSecond": 121.5,
        "sources": [source],
        **values,
    }
    return SimpleNamespace(progress=SimpleNamespace(**given))


LATEST = {"batchTransactions": 2, "backlogRows": 1_234_567, "backlogTransactions": 4, "backlogMs": 2500}


def test_a_progress_is_one_line_and_a_set_of_gauges(caplog: pytest.LogCaptureFixture) -> None:
    exported: list[dict[str, dict[str, float]]] = []
    listener = ProgressListener(export=exported.append)
    with caplog.at_level(logging.INFO, "sparktxn.spark"):
        listener.onQueryProgress(progress(LATEST))
    assert caplog.messages == [
        "query 'the \"query\"' micro-batch 3 of t: 150 rows, 2 transactions, to entry 14, in 1.234 s; "
        "backlog 1234567 rows, 2.5 s"
    ]
    (gauges,) = listener.gauges().values()
    assert exported == [listener.gauges()]
    assert list(gauges) == list(GAUGES)
    assert (gauges["batch_entries"], gauges["backlog_seconds"], gauges["running"]) == (4, 2.5, 1)


def test_the_line_of_a_query_in_offset_order_counts_no_transactions(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sparktxn.spark"):
        ProgressListener().onQueryProgress(progress({"backlogRows": 5, "backlogMs": 1000}))
    assert caplog.messages == [
        "query 'the \"query\"' micro-batch 3 of t: 150 rows, to entry 14, in 1.234 s; backlog 5 rows, 1.0 s"
    ]


def test_the_line_names_the_first_topics(caplog: pytest.LogCaptureFixture) -> None:
    event = progress(LATEST, name=None)
    ends = [{"entry": 1, "topicIds": {"b": 1, "c": 2}}, {"entry": 1, "topicIds": {"d": 3, "a": 4, "b": 1}}]
    event.progress.sources = [
        SimpleNamespace(startOffset='{"entry": 0}', endOffset=json.dumps(end), latestOffset=None) for end in ends
    ]
    with caplog.at_level(logging.INFO, "sparktxn.spark"):
        ProgressListener().onQueryProgress(event)
    assert caplog.messages[0].startswith(f"query '{uuid.UUID(int=1)}' micro-batch 3 of a, b, c and 1 more: 150 rows,")


def names_of(text: str) -> set[str]:
    """The samples of a page, with their labels."""
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


def test_the_prometheus_file_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "spark.prom"
    listener = ProgressListener(prometheus_file=file)
    listener.onQueryProgress(progress(LATEST))
    listener.onQueryProgress(progress(LATEST, id=uuid.UUID(int=2), name=None))
    text = file.read_text()
    labels = f'query_id="{uuid.UUID(int=1)}",query="the \\"query\\""'
    assert f"txnlog_stream_backlog_rows{{{labels}}} 1234567\n" in text
    assert f"txnlog_stream_batch_duration_seconds{{{labels}}} 1.234\n" in text
    assert "# TYPE txnlog_stream_backlog_rows gauge\n" in text
    sample = re.compile(r'[a-z_]+(?:\{(?:[a-z_]+="(?:[^"\\]|\\.)*",?)+\})? -?[0-9]+(?:\.[0-9]+)?')
    assert all(line.startswith("# ") or sample.fullmatch(line) for line in text.splitlines())
    assert len([line for line in text.splitlines() if line.startswith("txnlog_stream_")]) == 2 * len(GAUGES)
    # The driver's own figures are there under the names that prometheus_client gives them.
    registry = CollectorRegistry()
    metrics.register(registry)
    own, ours = generate_latest(registry).decode(), text[text.index("# HELP txnlog_client_") :]
    assert names_of(ours) == names_of(own)
    assert [line for line in ours.splitlines() if line.startswith("#")] == [
        line for line in own.splitlines() if line.startswith("#")
    ]
    listener.onQueryTerminated(SimpleNamespace(id=uuid.UUID(int=1), exception="it broke"))  # type: ignore[arg-type]
    text = file.read_text()
    assert f"txnlog_stream_running{{{labels}}} 0\n" in text
    assert f"txnlog_stream_failed{{{labels}}} 1\n" in text
    assert [path.name for path in tmp_path.iterdir()] == ["spark.prom"]


def test_a_query_that_is_started_again_runs_before_it_has_read_anything(tmp_path: Path) -> None:
    listener = ProgressListener(prometheus_file=tmp_path / "spark.prom")
    listener.onQueryProgress(progress(LATEST))
    ended: Any = SimpleNamespace(id=uuid.UUID(int=1), exception="it broke")
    listener.onQueryTerminated(ended)
    started: Any = SimpleNamespace(id=uuid.UUID(int=1), name="again")
    listener.onQueryStarted(started)
    (gauges,) = listener.gauges().values()
    assert (gauges["running"], gauges["failed"], gauges["batch_rows"]) == (1, 0, 150)
    assert (
        f'txnlog_stream_running{{query_id="{uuid.UUID(int=1)}",query="again"}} 1'
        in (tmp_path / "spark.prom").read_text()
    )


def test_a_query_without_the_source_has_no_gauges(caplog: pytest.LogCaptureFixture) -> None:
    listener = ProgressListener()
    rate = SimpleNamespace(startOffset="0", endOffset="5", latestOffset="5")
    none = SimpleNamespace(startOffset="null", endOffset=None, latestOffset="{")
    with caplog.at_level(logging.INFO, "sparktxn.spark"):
        listener.onQueryProgress(progress(sources=[rate, none]))
        listener.onQueryTerminated(SimpleNamespace(id=uuid.UUID(int=1), exception=None))  # type: ignore[arg-type]
    assert (listener.gauges(), caplog.messages) == ({}, [])


def test_two_sources_add_up_and_the_later_of_them_counts() -> None:
    listener = ProgressListener()
    first, second = (progress({"backlogRows": rows, "backlogMs": rows}).progress.sources[0] for rows in (5, 7000))
    listener.onQueryProgress(progress(sources=[first, second]))
    (gauges,) = listener.gauges().values()
    assert (gauges["backlog_rows"], gauges["backlog_seconds"]) == (7005, 7.0)


def test_a_failure_to_export_is_logged_and_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: object) -> None:
        raise ValueError("the collector is gone")

    listener = ProgressListener(export=fail, prometheus_file=tmp_path / "missing" / "file.prom")
    listener.onQueryProgress(progress())
    assert "the gauges of Spark's queries are not exported" in caplog.text
    assert "are not written to" in caplog.text


@pytest.mark.parametrize("wrong", [{"export": 5}, {"prometheus_file": 5}])
def test_wrong_arguments_of_the_listener(wrong: Any) -> None:
    with pytest.raises(TypeError):
        ProgressListener(**wrong)
