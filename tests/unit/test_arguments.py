"""The checks of public arguments: plain values out, clear errors otherwise."""

import pickle
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Any

import numpy
import pytest

from sparktxn import ConfigurationError, ConsumerGroupMetadata, KafkaException, TopicPartition
from sparktxn._foundation.values import arguments
from sparktxn._kafka.message import topic_partitions
from tests.each import each

ONE: Any = numpy.int32(1)
FIVE: Any = numpy.int64(5)
TWO: Any = numpy.int16(2)


class Five(IntEnum):
    FIVE = 5


class Name(StrEnum):
    NAME = "name"


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@each([5, numpy.int8(5), numpy.uint64(5), numpy.array(5), Five.FIVE])
def test_whole_numbers_become_plain(value: object) -> None:
    found = arguments.integer("offset", value, 0)
    assert found == 5
    assert type(found) is int


@each([5.0, 5.5, float("nan"), float("inf"), True, numpy.bool_(True), Decimal(5), Fraction(5), "5", None, b"5", [5]])
def test_what_is_no_whole_number_is_a_type_error_that_names_argument_value_and_expectation(value: object) -> None:
    with pytest.raises(TypeError, match=r"^offset is .*: expected a whole number from 0 to 9223372036854775807$"):
        arguments.integer("offset", value, 0)


@each([-1, 2**63, -(2**63) - 1, 10**5000, numpy.uint64(2**63)])
def test_a_number_out_of_range_is_a_value_error_and_an_invalid_argument(value: int) -> None:
    with pytest.raises(ConfigurationError, match=r"^offset is .* \(int\): expected a whole number from 0 to") as caught:
        arguments.integer("offset", value, 0)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, KafkaException)
    assert caught.value.error.name() == "_INVALID_ARG"
    assert len(str(caught.value)) < 200


def test_text_becomes_plain_and_has_no_surrogates() -> None:
    found = arguments.text("topic", Name.NAME)
    assert found == "name"
    assert type(found) is str
    with pytest.raises(ConfigurationError, match="topic has half of a surrogate pair at position 1"):
        arguments.text("topic", "a\ud800")
    for value in (b"name", 5, None, ["name"]):
        with pytest.raises(TypeError, match=r"topic is .*: expected a str"):
            arguments.text("topic", value)


def test_secret_text_is_not_shown() -> None:
    for value in ("hidden\ud800", b"hidden"):
        with pytest.raises((TypeError, ConfigurationError)) as caught:
            arguments.text("storage.secret", value, secret=True)
        assert "hidden" not in str(caught.value)
    for other, shown in ((b"hidden", "bytes"), (1.5, "float"), (None, "NoneType")):
        with pytest.raises(TypeError, match=f"^storage.secret is of type {shown}: expected a str$"):
            arguments.text("storage.secret", other, secret=True)


def test_identifiers_fit_into_kafkas_protocol() -> None:
    assert arguments.identifier("group_id", "é" * 16_383)
    for value, reason in (("", "is empty"), ("é" * 16_384, "has 32768 bytes: expected at most 32767")):
        with pytest.raises(ConfigurationError, match=f"group_id {reason}"):
            arguments.identifier("group_id", value)


def test_bytes_are_bytes_or_text() -> None:
    for value in (b"a", bytearray(b"a"), memoryview(b"a"), "a"):
        assert arguments.bytes_like("key", value) == b"a"
    with pytest.raises(TypeError, match="key is int: expected str or bytes"):
        arguments.bytes_like("key", 5)
    with pytest.raises(ConfigurationError, match="key has half of a surrogate pair at position 6") as caught:
        arguments.bytes_like("key", "hidden\ud800")
    assert "hidden" not in str(caught.value)


def test_flags_are_true_or_false() -> None:
    assert arguments.boolean("dry_run", numpy.bool_(True)) is True
    assert arguments.boolean("dry_run", 0) is False
    values: tuple[object, ...] = ("false", 2, None, 0.0, [], numpy.array([True]))
    for value in values:
        with pytest.raises(TypeError, match=r"dry_run is .*: expected True or False"):
            arguments.boolean("dry_run", value)


@each(
    [(0, 0.0), (1.5, 1.5), (numpy.float32(1.5), 1.5), (Fraction(1, 2), 0.5), (None, None), (-1, None)]
    + [(value, None) for value in (float("inf"), 10**400, 1e300, float("-inf"))]
)
def test_timeouts_are_seconds_or_without_limit(value: object, seconds: float | None) -> None:
    assert arguments.timeout_s("timeout", value) == seconds


@each([float("nan"), "1", True, Decimal(1), 1j, [1]])
def test_other_timeouts_are_refused(value: object) -> None:
    with pytest.raises((TypeError, ConfigurationError), match=r"timeout is .*: expected seconds as a number, or None"):
        arguments.timeout_s("timeout", value)


def test_lists_are_iterables_of_one_kind() -> None:
    assert arguments.items("topics", ("a", "b"), str) == ["a", "b"]
    assert arguments.items("topics", (name for name in "ab"), str) == ["a", "b"]
    for value in ("ab", b"ab", {"a": 1}, None, 5):
        with pytest.raises(TypeError, match=r"topics is .*: expected a list of str"):
            arguments.items("topics", value, str)
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(TypeError, match=r"topics\[0\] is list of length 1: expected a str"):
        arguments.items("topics", endless, str)


def test_an_object_whose_repr_fails_is_described_by_its_type() -> None:
    with pytest.raises(TypeError, match="topic is a Unprintable: expected a str"):
        arguments.text("topic", Unprintable())


def test_a_partition_is_checked_when_it_is_made_and_whenever_it_is_changed() -> None:
    partition = TopicPartition(Name.NAME, ONE, FIVE, Name.NAME, TWO)
    plain = [partition.topic, partition.partition, partition.offset, partition.metadata, partition.leader_epoch]
    assert [type(value) for value in plain] == [str, int, int, str, int]
    wrong = {"topic": b"t", "partition": 1.0, "offset": 5.0, "metadata": 5, "leader_epoch": True}
    for name, value in wrong.items():
        with pytest.raises(TypeError, match=f"^{name} is "):
            setattr(partition, name, value)
        with pytest.raises(TypeError, match=f"^{name} is "):
            TopicPartition(**{"topic": "t", name: value})  # type: ignore[arg-type]
    far = {"topic": "\ud800", "partition": 2**31, "offset": 2**63, "metadata": "\ud800", "leader_epoch": -2}
    for name, value in far.items():
        with pytest.raises(ConfigurationError, match=f"^{name} "):
            setattr(partition, name, value)
    assert [partition.topic, partition.partition, partition.offset] == ["name", 1, 5]
    copy = pickle.loads(pickle.dumps(partition))
    assert (copy, copy.offset, copy.metadata) == (partition, 5, "name")


def test_partitions_are_ordered_by_topic_and_number() -> None:
    assert TopicPartition("a", 1) <= TopicPartition("a", 1)
    assert TopicPartition("b", 0) >= TopicPartition("a", 1)
    with pytest.raises(TypeError, match="not supported between"):
        assert TopicPartition("a") < 3  # type: ignore[operator]


def test_lists_of_partitions() -> None:
    assert topic_partitions("offsets", [TopicPartition("t", 0)]) == [TopicPartition("t", 0)]
    for wrong in ([("t", 0)], {TopicPartition("t", 0): 5}, TopicPartition("t", 0), "t", None):
        with pytest.raises(TypeError, match=r"^offsets(\[0\])? is .*: expected a (list of )?TopicPartition$"):
            topic_partitions("offsets", wrong)


def test_group_metadata_is_checked() -> None:
    metadata = ConsumerGroupMetadata(Name.NAME, ONE)
    assert (type(metadata.group_id), type(metadata.generation_id)) == (str, int)
    assert pickle.loads(pickle.dumps(metadata)) == metadata
    for name, value in {"group_id": 5, "generation_id": 1.0, "member_id": b"", "group_instance_id": 5}.items():
        with pytest.raises(TypeError, match=f"^{name} is "):
            ConsumerGroupMetadata(**{"group_id": "g", name: value})  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"^generation_id is "):
        ConsumerGroupMetadata("g", 2**31)
