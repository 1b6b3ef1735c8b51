"""What administrators pass: equality and identifiers as in confluent-kafka."""

from __future__ import annotations

from sparktxn.admin import AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType
from tests.each import each


def test_resources_are_equal_by_type_and_name() -> None:
    resource = ConfigResource("topic", "t", incremental_configs=[ConfigEntry("a", "1")])
    assert resource == ConfigResource(ResourceType.TOPIC, "t")
    assert hash(resource) == hash(ConfigResource(2, "t"))
    assert resource != ConfigResource("broker", "t")
    assert resource != ConfigResource("topic", "u")


@each([("SET", 0), ("DELETE", 1), ("APPEND", 2), ("SUBTRACT", 3)])
def test_operations_have_kafkas_ids(member: str, identifier: int) -> None:
    assert AlterConfigOpType[member] == identifier


def test_specifications_differ() -> None:
    specs = {OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp(), OffsetSpec.for_timestamp(0)}
    assert len(specs) == 4
