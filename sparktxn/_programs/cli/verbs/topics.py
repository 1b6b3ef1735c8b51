"""`txnlog topics`: list, create, describe, alter and delete topics."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import typer

from sparktxn import ReadView, TopicState
from sparktxn._foundation.config.maintenance import VacuumSettings
from sparktxn._foundation.config.topic import TOPIC_SETTINGS
from sparktxn._foundation.process.clock import SystemClock
from sparktxn._kafka.admin import NewTopic
from sparktxn._programs.cli import completion
from sparktxn._programs.cli.address import settings_of
from sparktxn._programs.cli.failures import WrongUsage
from sparktxn._programs.cli.output import Row
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verb import Apply, argument, option, set_option, unset_option, verb
from sparktxn.errors import ErrorCode, KafkaException
from sparktxn.store import Store, read_task
from sparktxn.store.reading import declared_columns, key_columns, keyed_figures, keyed_rows

app = typer.Typer(no_args_is_help=True)

_Names = Annotated[list[str], argument(metavar="TOPIC…", help="Names of topics.", autocompletion=completion.topics)]
_Name = Annotated[str, argument(metavar="TOPIC", help="The topic's name.", autocompletion=completion.topics)]
_Settings = Annotated[list[str] | None, set_option("the topic", TOPIC_SETTINGS)]
_Columns = Annotated[
    list[str] | None,
    option(
        "--column",
        metavar="'NAME TYPE'",
        help="A column of a typed topic, such as 'id int64 not null'. Without any: Kafka's key, value and headers.",
    ),
]


@verb(app, "list", examples=["txnlog topics list", "txnlog topics list --internal --json"])
def list_topics(
    session: Session,
    internal: Annotated[bool, typer.Option("--internal", help="Show internal topics, too.")] = False,
) -> None:
    """List the topics with their partitions and settings."""
    store = session.store()
    with store.log.within(session.timeout_s):
        view = store.view(None)
        with store.log.known() as state:
            topics = {name: state.topic(name) for name in state.topic_names().values()} if internal else view.topics
    shown = sorted(topics.items(), key=lambda item: (item[0] not in view.topics, item[0]))
    rows = (_summary(topic, view) for _, topic in shown if topic is not None)
    session.out.rows(rows, none="no topics: txnlog topics create NAME makes one")


@verb(
    app,
    "create",
    examples=[
        "txnlog topics create payments --partitions 6",
        "txnlog topics create audit --set segment.format=arrow --if-not-exists",
        "txnlog topics create rides --column 'id int64 not null' --column 'fare double'",
        "txnlog topics create customers --column 'id int64 not null' --column 'city string' --set primary.key=id",
    ],
)
def create(
    session: Session,
    names: _Names,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="How many partitions.")] = 1,
    settings: _Settings = None,
    columns: _Columns = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Leave topics alone that exist.")] = False,
) -> None:
    """Create topics, and the store if there is none at the address."""
    # Imported here, as below: listing topics needs no administrator.
    from sparktxn.admin.configs import parse_column

    config = settings_of(settings)
    schema = [parse_column("--column", text) for text in columns] if columns else None
    new = [NewTopic(name, partitions, config=config, schema=schema) for name in names]
    made = []
    for name, future in session.admin().create_topics(new, request_timeout=session.timeout_s).items():
        error = future.exception()
        exists = isinstance(error, KafkaException) and error.error.code() == ErrorCode.TOPIC_ALREADY_EXISTS
        if error is not None and not (exists and if_not_exists):
            raise error
        made.append({"topic": name, "partition_count": partitions, "created": error is None})
    for row in made:
        session.out.remark(f"{'created' if row['created'] else 'exists already:'} topic {row['topic']}")
    if session.out.json:
        session.out.rows(made, none="")


@verb(
    app,
    "describe",
    examples=[
        "txnlog topics describe orders",
        "txnlog topics describe orders --json",
        "txnlog topics describe customers --superseded",
    ],
)
def describe(
    session: Session,
    names: _Names,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Read the keys of topics with a key, and count superseded rows.")
    ] = False,
) -> None:
    """Describe topics: settings, columns, and the offsets of each partition.

    Consumers with read_committed see records below the last stable offset. A topic with a key has rows that no
    compaction has taken yet. It also has the day by which a row that is deleted now is in no object any more, if
    maintenance runs once a day with the defaults of its vacuum.
    """
    store = session.store()
    view = store.view(names, timeout_s=session.timeout_s)
    for name in names:
        topic = view.topics[name]
        partitions = [
            {
                "partition": number,
                "log_start_offset": found.log_start_offset,
                "last_stable_offset": found.last_stable_offset,
                "log_end_offset": found.log_end_offset,
            }
            for (of, number), found in view.partitions.items()
            if of == name
        ]
        session.out.row(
            {**_summary(topic, view), "topic_id": topic.topic_id, "columns": _columns(topic)}
            | (_keyed(store, view, topic, counts=superseded) if key_columns(topic.settings) else {})
            | {"partitions": partitions}
        )


def _keyed(store: Store, view: ReadView, topic: TopicState, *, counts: bool) -> dict[str, Any]:
    """Return what a topic with a key is as a table."""
    found = keyed_figures(view, topic, VacuumSettings().retention_ms)
    gone_ms = None if found.gone_after_ms is None else SystemClock().wall_ms() + found.gone_after_ms
    row: dict[str, Any] = {
        "key": list(found.key),
        "not_compacted_rows": found.tail_rows,
        "deleted_rows_gone_by": None if gone_ms is None else str(datetime.fromtimestamp(gone_ms / 1000, UTC).date()),
    }
    if not counts:
        return row
    tasks = store.plan_latest(store.view([topic.name], entry=view.entry), columns=list(found.key))
    rows = keyed_rows(tasks, partial(read_task, options=store.options))
    counted: dict[str, Any] = {"latest_rows": rows.latest, "superseded_rows": rows.superseded, "deletes": rows.deletes}
    return row | counted


@verb(
    app,
    "alter",
    examples=[
        "txnlog topics alter orders --partitions 12",
        "txnlog topics alter orders --set compression.type=lz4 --unset segment.rows",
        "txnlog topics alter trips --column 'tip double'",
    ],
)
def alter(
    session: Session,
    name: _Name,
    partitions: Annotated[int | None, option("--partitions", "-p", min=1, help="The new count; it only grows.")] = None,
    settings: _Settings = None,
    unset: Annotated[list[str] | None, unset_option(TOPIC_SETTINGS)] = None,
    columns: _Columns = None,
) -> None:
    """Alter a topic: its settings, more partitions, more columns.

    New columns may be null: earlier records have null there.
    """
    from sparktxn.admin.configs import TopicChange, alter_topic, parse_column

    if not (partitions or settings or unset or columns):
        raise WrongUsage("nothing to alter is given: add --set, --unset, --partitions or --column")
    change = TopicChange(
        topic=name,
        settings=settings_of(settings),
        unset=tuple(unset or ()),
        columns=tuple(parse_column("--column", text) for text in columns or ()),
        partition_count=partitions,
    )
    log = session.store().log
    with log.within(session.timeout_s):
        alter_topic(log, change)
    session.out.remark(f"altered topic {name}")


@verb(app, "delete", examples=["txnlog topics delete orders", "txnlog topics delete orders trips --apply"])
def delete(session: Session, names: _Names, apply: Apply = False) -> None:
    """Delete topics with all their records.

    Without --apply it prints what would be deleted.
    """
    view = session.store().view(names, timeout_s=session.timeout_s)
    if apply:
        for future in session.admin().delete_topics(names, request_timeout=session.timeout_s).values():
            future.result()
    session.out.rows([_summary(view.topics[name], view) | {"deleted": apply} for name in names], none="")
    if not apply:
        session.out.remark("nothing was deleted: add --apply to delete these topics with all their records")


def _summary(topic: TopicState, view: ReadView) -> dict[str, Any]:
    """Return a topic's row; `offset_count` counts all offsets, those of open and aborted records and of ends too."""
    found = [view.partitions.get((topic.name, number)) for number in range(topic.partition_count)]
    known = [partition for partition in found if partition is not None]
    return {
        "topic": topic.name,
        "partition_count": topic.partition_count,
        "offset_count": sum(max(0, one.log_end_offset - one.log_start_offset) for one in known) if known else None,
        "typed": topic.schema is not None,
        "settings": dict(topic.settings),
    }


def _columns(topic: TopicState) -> list[Row]:
    return [{"column": name, "type": type_, "nullable": nullable} for name, type_, nullable in declared_columns(topic)]
