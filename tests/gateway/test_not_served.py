"""What a gateway does not have is refused in words that name it, and so is what does not exist."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.gateway.processes import Gateway
from tests.gateway.wire import Wire

WITHOUT = {"include_authorized_operations": False}
SHARE = {"subscribed_topic_names": ["orders"], "rack_id": None, "member_id": "m", "member_epoch": 0, "group_id": "g"}
STREAMS = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 0,
    "endpoint_information_epoch": 0,
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout": -1,
    "topology": None,
    "active_tasks": None,
    "standby_tasks": None,
    "warmup_tasks": None,
    "process_id": None,
    "user_endpoint": None,
    "client_tags": None,
    "task_offsets": None,
    "task_end_offsets": None,
    "shutdown_application": False,
}
QUOTA = {
    "entity": [{"entity_type": "client-id", "entity_name": "x"}],
    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
}
REQUESTS: list[tuple[str, int, dict[str, Any], str]] = [
    ("describe_client_quotas", 0, {"components": [], "strict": False}, "no client quotas"),
    ("describe_client_quotas", 1, {"components": [], "strict": False}, "no client quotas"),
    ("alter_client_quotas", 1, {"entries": [QUOTA], "validate_only": False}, "no client quotas"),
    ("describe_user_scram_credentials", 0, {"users": None}, "--sasl-users"),
    (
        "alter_user_scram_credentials",
        0,
        {"deletions": [{"name": "a", "mechanism": 1}], "upsertions": []},
        "--sasl-line",
    ),
    ("share_group_heartbeat", 1, SHARE, "no share groups"),
    ("share_group_describe", 1, {"group_ids": ["g"], **WITHOUT}, "no share groups"),
    ("describe_share_group_offsets", 0, {"groups": [{"group_id": "g", "topics": None}]}, "no share groups"),
    ("alter_share_group_offsets", 0, {"group_id": "g", "topics": []}, "no share groups"),
    ("delete_share_group_offsets", 0, {"group_id": "g", "topics": []}, "no share groups"),
    ("streams_group_heartbeat", 0, STREAMS, "group.protocol=classic"),
    ("streams_group_describe", 0, {"group_ids": ["g"], **WITHOUT}, "'streams'"),
]


def refusals_of(answer: Any) -> list[Any]:
    """Return the parts of an answer that have a code: the answer itself, or each of its groups, users or quotas."""
    if hasattr(answer, "error_code"):
        return [answer]
    return [*(getattr(answer, "groups", None) or getattr(answer, "entries", None) or answer.results)]


@pytest.mark.parametrize(("name", "version", "members", "words"), REQUESTS)
def test_what_a_gateway_does_not_have_is_refused_in_words(
    wire: Wire, name: str, version: int, members: dict[str, Any], words: str
) -> None:
    refusals = refusals_of(wire.ask(name, version, **members))
    assert refusals
    for refused in refusals:
        assert refused.error_code is ErrorCode.unsupported_version
        assert words in refused.error_message
    assert wire.ask("list_groups", 5).error_code is ErrorCode.none, "the connection goes on"


def test_a_group_that_does_not_exist_is_named_so(wire: Wire) -> None:
    (described,) = wire.ask("consumer_group_describe", 1, group_ids=["none"], **WITHOUT).groups
    assert (described.error_code, described.error_message) == (
        ErrorCode.group_id_not_found,
        "group 'none' does not exist",
    )
    (classic,) = wire.ask("describe_groups", 6, groups=["none"], **WITHOUT).groups
    assert (classic.error_code, classic.error_message) == (ErrorCode.group_id_not_found, "group 'none' does not exist")
    (deleted,) = wire.ask("delete_groups", 2, groups_names=["none"]).results
    assert deleted.error_code is ErrorCode.group_id_not_found
    for topic in ("orders", "missing"):
        topics = [{"name": topic, "partitions": [{"partition_index": 0}]}]
        forgotten = wire.ask("offset_delete", 0, group_id="none", topics=topics)
        assert forgotten.error_code is ErrorCode.group_id_not_found, topic


def test_a_group_without_members_of_the_protocol_is_named_so(wire: Wire) -> None:
    part = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": None}
    topics = [{"name": "orders", "partitions": [part]}]
    named = {"group_id": "offsets", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    assert wire.ask("offset_commit", 8, **named, topics=topics).topics[0].partitions[0].error_code is ErrorCode.none
    (described,) = wire.ask("consumer_group_describe", 1, group_ids=["offsets"], **WITHOUT).groups
    assert described.error_message == "group 'offsets' has no members of this protocol"


@pytest.mark.parametrize(
    ("brokers", "words"),
    [
        ([0, 1], "the replica assignment of partition 1 names broker 1, which does not exist: expected broker 0"),
        ([-1], "partition 1 names broker -1, which does not exist"),
        ([], "the replica assignment of partition 1 names no broker: expected broker 0"),
    ],
)
def test_an_assignment_to_a_broker_that_does_not_exist_names_it(
    wire: Wire, served: Gateway, brokers: list[int], words: str
) -> None:
    assignments = [{"partition_index": 0, "broker_ids": [0]}, {"partition_index": 1, "broker_ids": brokers}]
    new = {"name": "new", "num_partitions": -1, "replication_factor": -1, "assignments": assignments, "configs": []}
    (made,) = wire.ask("create_topics", 7, topics=[new]).topics
    assert made.error_code is ErrorCode.invalid_replica_assignment
    assert words in made.error_message
    grown = {"name": "orders", "count": 3, "assignments": [{"broker_ids": brokers}]}
    (refused,) = wire.ask("create_partitions", 3, topics=[grown], timeout=1000, validate_only=False).results
    assert refused.error_code is ErrorCode.invalid_replica_assignment
    assert words.replace("partition 1", "partition 2") in refused.error_message
