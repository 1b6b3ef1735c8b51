"""`txnlog groups`: list, describe, delete and reset consumer groups, with kafka-consumer-groups.sh's words."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from sparktxn import ConsumerGroupState, IsolationLevel
from sparktxn._programs.cli import completion
from sparktxn._programs.cli.failures import WrongUsage, time_ms
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verb import Apply, argument, option, verb
from sparktxn.admin import ConsumerGroupDescription
from sparktxn.admin.groups import (
    OffsetReset,
    ResetTarget,
    apply_reset,
    check_without_members,
    member_row,
    planned_reset,
)
from sparktxn.errors import ErrorCode, KafkaError, KafkaException
from sparktxn.store.options import SystemClock

app = typer.Typer(no_args_is_help=True)

_Groups = Annotated[list[str], argument(metavar="GROUP…", help="Ids of groups.", autocompletion=completion.groups)]
_State = Annotated[
    list[str] | None, option("--state", metavar="STATE", help="Only groups that are Stable, Reconciling or Empty.")
]


@verb(app, "list", examples=["txnlog groups list", "txnlog groups list --state Empty --json"])
def list_groups(session: Session, state: _State = None) -> None:
    """List the groups that have members or committed offsets."""
    wanted = {_group_state(text) for text in state} if state else None
    found = session.admin().list_consumer_groups(states=wanted, request_timeout=session.timeout_s).result().valid
    rows = [
        {"group_id": group.group_id, "state": group.state.name.capitalize(), "type": group.type.name.capitalize()}
        for group in found
    ]
    session.out.rows(rows, none="no groups: txnlog consume -t TOPIC -G GROUP makes one")


def _group_state(text: str) -> ConsumerGroupState:
    try:
        return ConsumerGroupState[text.upper()]
    except KeyError:
        expected = ", ".join(state.name.capitalize() for state in ConsumerGroupState)
        raise WrongUsage(f"--state {text!r} is unknown: expected one of {expected}") from None


@verb(app, "describe", examples=["txnlog groups describe accounts", "txnlog groups describe accounts --json"])
def describe(
    session: Session,
    groups: _Groups,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Measure the lag to the log end, with open transactions.")
    ] = False,
) -> None:
    """Describe groups: members, offsets, and how far they are behind.

    The end of a partition is its last stable offset: what a reader with read_committed can read.
    """
    admin, timeout_s = session.admin(), session.timeout_s
    level = IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED
    described = admin.describe_consumer_groups(groups, request_timeout=timeout_s)
    lags = admin.describe_consumer_group_lag(groups, isolation_level=level, request_timeout=timeout_s)
    for name in groups:
        group = _existing(described[name].result())
        partitions = [
            {
                "topic": one.topic,
                "partition": one.partition,
                "offset": one.offset,
                "end_offset": one.end_offset,
                "lag": one.lag,
                "member_id": one.member_id,
            }
            for one in lags[name].result()
        ]
        session.out.row(
            {
                "group_id": group.group_id,
                "state": group.state.name.capitalize(),
                "type": group.type.name.capitalize(),
                "assignor": group.partition_assignor or None,
                "lag": sum(row["lag"] or 0 for row in partitions),
                "members": [member_row(member) for member in group.members],
                "partitions": partitions,
            }
        )


def _existing(group: ConsumerGroupDescription) -> ConsumerGroupDescription:
    if group.state is ConsumerGroupState.DEAD:
        reason = f"group {group.group_id!r} has neither members nor offsets"
        raise KafkaException(KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, reason))
    return group


@verb(app, "delete", examples=["txnlog groups delete accounts", "txnlog groups delete accounts --apply"])
def delete(session: Session, groups: _Groups, apply: Apply = False) -> None:
    """Forget groups without members, with all their offsets.

    Without --apply it prints which groups would be deleted.
    """
    admin, timeout_s = session.admin(), session.timeout_s
    described = admin.describe_consumer_groups(groups, request_timeout=timeout_s)
    rows = []
    for name in groups:
        check_without_members(name, len(_existing(described[name].result()).members))
        rows.append({"group_id": name, "deleted": apply})
    if apply:
        for future in admin.delete_consumer_groups(groups, request_timeout=timeout_s).values():
            future.result()
    session.out.rows(rows, none="")
    if not apply:
        session.out.remark("nothing was deleted: add --apply to delete these groups with all their offsets")


@verb(
    app,
    "reset",
    examples=[
        "txnlog groups reset accounts --topic orders --to-earliest",
        "txnlog groups reset accounts --topic orders:0,2 --to-offset 3 --apply",
        "txnlog groups reset accounts --all-topics --shift-by -10 --json",
        "txnlog groups reset accounts --all-topics --to-time 2026-05-01T12:00:00Z",
    ],
)
def reset(
    session: Session,
    group: Annotated[str, argument(metavar="GROUP", help="The group's id.", autocompletion=completion.groups)],
    topics: Annotated[
        list[str] | None,
        option(
            "--topic",
            "-t",
            metavar="TOPIC[:N,…]",
            help="A topic, or some of its partitions.",
            autocompletion=completion.topics,
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions that the group has offsets for.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the log start.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the last stable offset.")] = False,
    to_offset: Annotated[int | None, option("--to-offset", min=0, help="To this offset.")] = None,
    shift_by: Annotated[int | None, option("--shift-by", help="By so many offsets, back if below 0.")] = None,
    to_time: Annotated[
        str | None, option("--to-time", metavar="TIME", help="To the first record that is not older.")
    ] = None,
    apply: Apply = False,
) -> None:
    """Move the offsets of a group without members.

    Without --apply it prints the new offsets. An offset outside of the partition becomes its start or its end.
    """
    targets: dict[ResetTarget, Any] = {
        "earliest": to_earliest,
        "latest": to_latest,
        "offset": to_offset,
        "shift": shift_by,
        "time": to_time,
    }
    given = [name for name, value in targets.items() if value is not None and value is not False]
    if len(given) != 1:
        raise WrongUsage("expected one of --to-earliest, --to-latest, --to-offset, --shift-by and --to-time")
    if bool(topics) == all_topics:
        raise WrongUsage("expected --topic or --all-topics")
    if to_time is not None:
        targets["time"] = time_ms("--to-time", to_time, SystemClock().wall_ms())
    value = targets[given[0]]
    asked = OffsetReset(group, tuple(topics or ()), given[0], 0 if isinstance(value, bool) else value)
    store = session.store()
    with store.log.within(session.timeout_s):
        moves = planned_reset(store.log, asked, store.view)
        if apply:
            apply_reset(store.log, group, moves)
    rows = ({"group_id": group, **msgspec.to_builtins(move), "applied": apply} for move in moves)
    session.out.rows(rows, none="")
    if not apply:
        session.out.remark("nothing was changed: add --apply to set these offsets")
