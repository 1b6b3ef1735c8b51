"""`txnlog groups`: list, describe, delete and reset consumer groups, with kafka-consumer-groups.sh's words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from sparktxn.admin import AdminClient, ConsumerGroupDescription, ConsumerGroupTopicPartitions, OffsetSpec
from sparktxn.cli import completion
from sparktxn.cli.failures import WrongUsage, time_ms
from sparktxn.cli.session import Session
from sparktxn.cli.verb import Apply, argument, option, verb
from sparktxn.errors import ErrorCode, KafkaError, KafkaException
from sparktxn.kafka.groups import ConsumerGroupState, MemberDescription
from sparktxn.kafka.message import IsolationLevel, TopicPartition
from sparktxn.process.clock import SystemClock
from sparktxn.values.fieldtypes import TopicPartitionKey

__all__ = ["app"]

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
                "members": [_member(member) for member in group.members],
                "partitions": partitions,
            }
        )


def _existing(group: ConsumerGroupDescription) -> ConsumerGroupDescription:
    if group.state is ConsumerGroupState.DEAD:
        reason = f"group {group.group_id!r} has neither members nor offsets"
        raise KafkaException(KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, reason))
    return group


def _member(member: MemberDescription) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "is_away": member.is_away,
        "assignment": [f"{one.topic}-{one.partition}" for one in member.assignment.topic_partitions],
    }


@verb(app, "delete", examples=["txnlog groups delete accounts", "txnlog groups delete accounts --apply"])
def delete(session: Session, groups: _Groups, apply: Apply = False) -> None:
    """Forget groups without members, with all their offsets.

    Without --apply it prints which groups would be deleted.
    """
    admin, timeout_s = session.admin(), session.timeout_s
    described = admin.describe_consumer_groups(groups, request_timeout=timeout_s)
    rows = []
    for name in groups:
        _check_empty(_existing(described[name].result()))
        rows.append({"group_id": name, "deleted": apply})
    if apply:
        for future in admin.delete_consumer_groups(groups, request_timeout=timeout_s).values():
            future.result()
    session.out.rows(rows, none="")
    if not apply:
        session.out.remark("nothing was deleted: add --apply to delete these groups with all their offsets")


def _check_empty(group: ConsumerGroupDescription) -> None:
    if group.members:
        reason = f"group {group.group_id!r} has {len(group.members)} members"
        raise KafkaException(KafkaError(ErrorCode.NON_EMPTY_GROUP, reason))


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
    targets = {"earliest": to_earliest, "latest": to_latest, "offset": to_offset, "shift": shift_by, "time": to_time}
    given = [name for name, value in targets.items() if value is not None and value is not False]
    if len(given) != 1:
        raise WrongUsage("expected one of --to-earliest, --to-latest, --to-offset, --shift-by and --to-time")
    if bool(topics) == all_topics:
        raise WrongUsage("expected --topic or --all-topics")
    admin, timeout_s = session.admin(), session.timeout_s
    if to_time is not None:
        targets["time"] = time_ms("--to-time", to_time, SystemClock().wall_ms())
    _check_empty(admin.describe_consumer_groups([group], request_timeout=timeout_s)[group].result())
    asked = ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked], request_timeout=timeout_s)[group].result().topic_partitions or []
    current = {(one.topic, one.partition): one.offset for one in found}
    places = sorted(current) if all_topics else [place for text in topics or () for place in _places(session, text)]
    if not places:
        reason = f"group {group!r} has no offsets"
        raise KafkaException(KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, reason))
    rows = list(_moves(admin, places, current, given[0], targets[given[0]], timeout_s))
    if apply:
        wanted = [TopicPartition(row["topic"], row["partition"], row["new_offset"]) for row in rows]
        changes = [ConsumerGroupTopicPartitions(group, wanted)]
        admin.alter_consumer_group_offsets(changes, request_timeout=timeout_s)[group].result()
    session.out.rows(({"group_id": group, **row, "applied": apply} for row in rows), none="")
    if not apply:
        session.out.remark("nothing was changed: add --apply to set these offsets")


def _places(session: Session, text: str) -> list[TopicPartitionKey]:
    """Return the partitions that ``topic`` or ``topic:0,2`` names."""
    topic, colon, numbers = text.partition(":")
    count = session.store().view([topic], timeout_s=session.timeout_s).topics[topic].partition_count
    if not colon:
        return [(topic, number) for number in range(count)]
    named = numbers.split(",")
    if not all(number.isascii() and number.isdigit() for number in named):
        raise WrongUsage(f"--topic {text!r} is malformed: expected TOPIC or TOPIC:0,1")
    wrong = [number for number in named if int(number) >= count]
    if wrong:
        raise WrongUsage(f"topic {topic!r} has partitions 0 to {count - 1}, not {wrong[0]}")
    return [(topic, int(number)) for number in named]


def _moves(
    admin: AdminClient,
    places: Iterable[TopicPartitionKey],
    current: dict[TopicPartitionKey, int],
    target: str,
    value: Any,
    timeout_s: float,
) -> Iterable[dict[str, Any]]:
    def offsets(spec: OffsetSpec) -> dict[TopicPartitionKey, int]:
        asked = {TopicPartition(*place): spec for place in places}
        answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=timeout_s)
        return {(key.topic, key.partition): future.result().offset for key, future in answers.items()}

    starts, ends = offsets(OffsetSpec.earliest()), offsets(OffsetSpec.latest())
    by_time = offsets(OffsetSpec.for_timestamp(value)) if target == "time" else {}
    for place in places:
        start, end, now = starts[place], ends[place], current.get(place)
        if target == "shift":
            if now is None:
                raise WrongUsage(f"--shift-by: the group has no offset for {place[0]}-{place[1]}: use --to-offset")
            wanted = now + value
        else:
            found = by_time.get(place, -1)
            wanted = {"earliest": start, "latest": end, "offset": value, "time": end if found < 0 else found}[target]
        yield {
            "topic": place[0],
            "partition": place[1],
            "offset": now,
            "new_offset": min(max(wanted, start), end),
        }
