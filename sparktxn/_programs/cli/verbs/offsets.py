"""`txnlog offsets`: offsets of partitions by time, with kafka-get-offsets.sh's words."""

from __future__ import annotations

from typing import Annotated

import typer

from sparktxn import IsolationLevel, TopicPartition
from sparktxn._programs.cli import completion
from sparktxn._programs.cli.failures import WrongUsage, time_ms
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verb import argument, option, verb
from sparktxn.admin import OffsetSpec
from sparktxn.store.options import SystemClock

app = typer.Typer()


@verb(
    app,
    "offsets",
    examples=[
        "txnlog offsets orders",
        "txnlog offsets orders -p 0 --time earliest",
        "txnlog offsets orders --time 2026-05-01T12:00:00Z",
        "txnlog offsets orders --time max-timestamp --json",
    ],
)
def offsets(
    session: Session,
    topics: Annotated[list[str], argument(metavar="TOPIC…", help="Names of topics.", autocompletion=completion.topics)],
    partition: Annotated[int | None, option("--partition", "-p", min=0, help="Only this partition.")] = None,
    time: Annotated[
        str,
        typer.Option(
            "--time",
            metavar="TIME",
            help="earliest, stable (the last stable offset), latest (the log end), max-timestamp, "
            "or the first record that is not older than ISO 8601, milliseconds or an age.",
        ),
    ] = "stable",
) -> None:
    """Print offsets of partitions; none where no record belongs to the time."""
    level = IsolationLevel.READ_UNCOMMITTED if time == "latest" else IsolationLevel.READ_COMMITTED
    spec = _spec(time)
    view = session.store().view(topics, timeout_s=session.timeout_s)
    asked = {
        TopicPartition(topic, number): spec
        for topic in topics
        for number in (range(view.topics[topic].partition_count) if partition is None else (partition,))
    }
    answers = session.admin().list_offsets(asked, isolation_level=level, request_timeout=session.timeout_s)
    rows = []
    for where, future in answers.items():
        found = future.result()
        rows.append(
            {
                "topic": where.topic,
                "partition": where.partition,
                "offset": found.offset if found.offset >= 0 else None,
                "timestamp_ms": found.timestamp if found.timestamp >= 0 else None,
            }
        )
    session.out.rows(rows, none="no partitions")


def _spec(time: str) -> OffsetSpec:
    named = {
        "earliest": OffsetSpec.earliest(),
        "stable": OffsetSpec.latest(),
        "latest": OffsetSpec.latest(),
        "max-timestamp": OffsetSpec.max_timestamp(),
    }
    if time in named:
        return named[time]
    try:
        return OffsetSpec.for_timestamp(time_ms("--time", time, SystemClock().wall_ms()))
    except WrongUsage as error:
        raise WrongUsage(f"{error}; or {', '.join(named)}") from None
