"""`txnlog producers`: the producers of partitions, as the log knows them."""

from __future__ import annotations

from typing import Annotated

import typer

from sparktxn import TopicPartition
from sparktxn._programs.cli import completion
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verb import argument, option, verb

app = typer.Typer()


@verb(app, "producers", examples=["txnlog producers orders", "txnlog producers orders -p 0 --json"])
def producers(
    session: Session,
    topics: Annotated[list[str], argument(metavar="TOPIC…", help="Names of topics.", autocompletion=completion.topics)],
    partition: Annotated[int | None, option("--partition", "-p", min=0, help="Only this partition.")] = None,
) -> None:
    """List the producers of partitions: epochs, last sequences, and where their open transactions begin."""
    view = session.store().view(topics, timeout_s=session.timeout_s)
    wanted = [
        TopicPartition(topic, number)
        for topic in topics
        for number in (range(view.topics[topic].partition_count) if partition is None else (partition,))
    ]
    answers = session.admin().describe_producers(wanted, request_timeout=session.timeout_s)
    rows = [
        {
            "topic": where.topic,
            "partition": where.partition,
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "last_sequence": one.last_sequence,
            "last_timestamp_ms": one.last_timestamp,
            "coordinator_epoch": one.coordinator_epoch,
            "transaction_start_offset": one.current_transaction_start_offset,
        }
        for where, future in answers.items()
        for one in future.result().active_producers
    ]
    session.out.rows(rows, none="no producers")
