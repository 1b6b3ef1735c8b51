"""`txnlog transactions`: list, describe, abort, fence and find hanging ones, with kafka-transactions.sh's words."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sparktxn import TopicPartition
from sparktxn._engine.state.limits import TRANSACTION_TIMEOUT_MS_MAX
from sparktxn._programs.cli import completion
from sparktxn._programs.cli.failures import WrongUsage, quantity
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verb import argument, option, verb
from sparktxn.admin import AbortTransactionSpec, TransactionState
from sparktxn.errors import ErrorCode, KafkaError, KafkaException, did_you_mean
from sparktxn.store.options import MILLISECONDS

app = typer.Typer(no_args_is_help=True)

_Ids = Annotated[
    list[str], argument(metavar="ID…", help="Transactional ids.", autocompletion=completion.transactional_ids)
]


@verb(
    app,
    "list",
    examples=[
        "txnlog transactions list",
        "txnlog transactions list --state Ongoing --longer-than 10m",
        "txnlog transactions list --id 'shop-.*' --json",
    ],
)
def list_transactions(
    session: Session,
    state: Annotated[
        list[str] | None, option("--state", metavar="STATE", help="Only those in a state, such as Ongoing.")
    ] = None,
    producer_id: Annotated[list[int] | None, option("--producer-id", help="Only those of a producer id.")] = None,
    longer_than: Annotated[
        str | None, option("--longer-than", metavar="AGE", help="Only those that began longer ago, such as 10m.")
    ] = None,
    pattern: Annotated[str | None, option("--id", metavar="REGEX", help="Only transactional ids that match.")] = None,
) -> None:
    """List the transactional ids with their states."""
    found = (
        session.admin()
        .list_transactions(
            states=[_state(text) for text in state] if state else None,
            producer_ids=producer_id or None,
            duration_filter_ms=-1 if longer_than is None else quantity("--longer-than", longer_than, MILLISECONDS),
            transactional_id_pattern=pattern,
            request_timeout=session.timeout_s,
        )
        .result()
    )
    rows = [
        {"transactional_id": one.transactional_id, "producer_id": one.producer_id, "state": str(one.state)}
        for one in found
    ]
    session.out.rows(rows, none="no transactional ids")


def _state(text: str) -> TransactionState:
    known = {str(state).lower(): state for state in TransactionState}
    if text.lower() not in known:
        expected = ", ".join(TransactionState)
        nearest = did_you_mean(text, map(str, TransactionState))
        raise WrongUsage(f"--state {text!r} is unknown: expected one of {expected}{nearest}")
    return known[text.lower()]


@verb(app, "describe", examples=["txnlog transactions describe shop-1"])
def describe(session: Session, ids: _Ids) -> None:
    """Describe transactional ids: producer, state, time-out, and the partitions of the open transaction."""
    futures = session.admin().describe_transactions(ids, request_timeout=session.timeout_s)
    for name, future in futures.items():
        one = future.result()
        session.out.row(
            {
                "transactional_id": name,
                "state": str(one.state),
                "producer_id": one.producer_id,
                "producer_epoch": one.producer_epoch,
                "transaction": one.transaction,
                "timeout_ms": one.transaction_timeout_ms,
                "start_timestamp_ms": one.transaction_start_time_ms,
                "prepared": one.prepared is not None,
                "partitions": [f"{where.topic}-{where.partition}" for where in one.topic_partitions],
            }
        )


@verb(
    app,
    "abort",
    examples=["txnlog transactions abort --topic orders --partition 0 --start-offset 5"],
)
def abort(
    session: Session,
    topic: Annotated[
        str, option("--topic", "-t", metavar="TOPIC", help="The topic.", autocompletion=completion.topics)
    ],
    partition: Annotated[int, option("--partition", "-p", min=0, help="The partition.")],
    start_offset: Annotated[
        int | None, option("--start-offset", min=0, help="Where the transaction begins there.")
    ] = None,
    producer_id: Annotated[int | None, option("--producer-id", min=0, help="Its producer id.")] = None,
) -> None:
    """Abort an open transaction in all its partitions, and fence its producer.

    It is named by a partition, and by where it begins there, or by its producer id. The verbs find-hanging and
    producers show them.
    """
    if (start_offset is None) == (producer_id is None):
        raise WrongUsage("expected --start-offset or --producer-id: txnlog producers TOPIC shows both")
    admin, where = session.admin(), TopicPartition(topic, partition)
    found = admin.describe_producers([where], request_timeout=session.timeout_s)[where].result().active_producers
    for producer in found:
        began = producer.current_transaction_start_offset
        if began is not None and (began == start_offset or producer.producer_id == producer_id):
            spec = AbortTransactionSpec(where, producer.producer_id, producer.producer_epoch)
            admin.abort_transaction(spec, request_timeout=session.timeout_s).result()
            session.out.done(
                f"aborted the transaction of producer {producer.producer_id}",
                {"topic": topic, "partition": partition, "start_offset": began, "producer_id": producer.producer_id}
                | {"producer_epoch": producer.producer_epoch, "aborted": True},
            )
            return
    named = f"begins at offset {start_offset}" if producer_id is None else f"is of producer {producer_id}"
    reason = f"no open transaction in {topic}-{partition} {named}: txnlog producers {topic} shows them"
    raise KafkaException(KafkaError(ErrorCode.INVALID_TXN_STATE, reason))


@verb(app, "fence", examples=["txnlog transactions fence shop-1"])
def fence(session: Session, ids: _Ids) -> None:
    """Fence the producers of transactional ids, and abort what they left open or prepared."""
    admin, timeout_s = session.admin(), session.timeout_s
    # A wrong name must not become a new transactional id.
    for future in admin.describe_transactions(ids, request_timeout=timeout_s).values():
        future.result()
    for name, fenced in admin.fence_producers(ids, request_timeout=timeout_s).items():
        identity = fenced.result()
        row: dict[str, Any] = {
            "transactional_id": name,
            "producer_id": identity.producer_id,
            "producer_epoch": identity.producer_epoch,
            "fenced": True,
        }
        session.out.done(f"fenced the producers of {name}", row)


@verb(
    app,
    "find-hanging",
    examples=["txnlog transactions find-hanging", "txnlog transactions find-hanging -t orders --longer-than 20m"],
)
def find_hanging(
    session: Session,
    topic: Annotated[
        str | None,
        option("--topic", "-t", metavar="TOPIC", help="Only in this topic.", autocompletion=completion.topics),
    ] = None,
    partition: Annotated[int | None, option("--partition", "-p", min=0, help="Only in this partition.")] = None,
    longer_than: Annotated[
        str, typer.Option("--longer-than", metavar="AGE", help="Those that are open for longer.")
    ] = f"{TRANSACTION_TIMEOUT_MS_MAX // 60_000}m",
) -> None:
    """Find transactions that hold up partitions for longer than any transaction may take.

    Prepared ones are not among them: a database decides those.
    """
    if partition is not None and topic is None:
        raise WrongUsage(f"--partition {partition} of which topic? add --topic")
    found = (
        session.admin()
        .find_hanging_transactions(
            topic=topic,
            partition=partition,
            max_transaction_timeout_ms=quantity("--longer-than", longer_than, MILLISECONDS),
            request_timeout=session.timeout_s,
        )
        .result()
    )
    rows = [
        {
            "topic": one.topic_partition.topic,
            "partition": one.topic_partition.partition,
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "start_offset": one.start_offset,
            "last_timestamp_ms": one.last_timestamp,
            "duration_ms": one.duration_ms,
            "transactional_id": one.transactional_id,
        }
        for one in found
    ]
    session.out.rows(rows, none="no hanging transactions")
