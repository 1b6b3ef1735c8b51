"""Every public name of confluent-kafka can be imported here, with its keywords, numbers and texts.

The table is written from the real package (tests/interop/confluentnames.py); `make interop` compares the two.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pickle
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import sparktxn
import sparktxn.admin
from sparktxn import KafkaError, KafkaException, Message, ShareConsumer, ThrottleEvent, TopicPartition, Uuid
from sparktxn._kafka.unsupported import UnsupportedCalls
from sparktxn.admin import AdminClient, ConfigResource, NewPartitions, NewTopic
from tests.each import each

TABLE = json.loads((Path(__file__).parents[1] / "interop/confluent_kafka_2_16.json").read_text())

HOMES = {
    "confluent_kafka": "sparktxn",
    "confluent_kafka.admin": "sparktxn.admin",
    "confluent_kafka.error": "sparktxn",
}
NAMES = [(module, name, kind) for module, names in TABLE["modules"].items() for name, kind in names.items()]
METHODS = [(kind, method, keywords) for kind, all_ in TABLE["methods"].items() for method, keywords in all_.items()]

# Where the names of arguments are others, with the reason. The rest is the same.
OTHER_KEYWORDS = {
    "Producer.__init__": "config is positional only, as in the real one's stub",
    "Consumer.__init__": "config is positional only, as in the real one's stub",
    "KafkaError.__init__": "the real one's keyword is error, not code as its stub says",
    "OffsetSpec": "made by its class methods",
    "SerializingProducer": "config is positional only",
    "DeserializingConsumer": "config is positional only",
    "ListConsumerGroupsResult": "an answer",
    "ConsumerGroupDescription": "an answer",
    "DescribeClusterResult": "an answer",
}

# What a store has not, with the reason that the error gives.
REFUSED = {
    **dict.fromkeys(("AclBinding", "AclBindingFilter"), "the object store's own permissions"),
    **dict.fromkeys(("ScramCredentialInfo", "UserScramCredentialsDescription"), "a store has no users"),
    **dict.fromkeys(
        (f"UserScramCredential{change}" for change in ("Alteration", "Deletion", "Upsertion")), "a store has no users"
    ),
    **dict.fromkeys(("Messages", "DeserializingShareConsumer"), "a store has consumer groups and no share groups"),
}


@each(NAMES)
def test_the_name_exists_and_is_what_it_is_there(module: str, name: str, kind: Any) -> None:
    found = getattr(importlib.import_module(HOMES[module]), name)
    if isinstance(kind, dict):
        assert issubclass(found, Enum)
        assert {member: found[member].value for member in kind} == kind
    elif kind == "class":
        assert inspect.isclass(found)
    elif kind == "function":
        assert callable(found)
    else:
        assert found == kind


def keywords_of(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self"}


@each(METHODS)
def test_the_method_exists_with_its_keywords(kind: str, method: str, keywords: list[str]) -> None:
    home = getattr(sparktxn, kind, None) or getattr(sparktxn.admin, kind)
    if kind == "Message" and method == "__init__":
        assert set(keywords) <= keywords_of(type(Message).__call__)
        return
    function = inspect.getattr_static(home, method)
    if method in vars(UnsupportedCalls):
        with pytest.raises(KafkaException, match=rf"{method}\(\) does not exist here: "):
            function(None, **dict.fromkeys(keywords))
    elif f"{kind}.{method}" not in OTHER_KEYWORDS:
        assert set(keywords) <= keywords_of(function)


@each(TABLE["values"].items())
def test_the_value_is_made_with_its_keywords(kind: str, keywords: list[str]) -> None:
    home = getattr(sparktxn.admin, kind, None) or getattr(sparktxn, kind)
    if kind in REFUSED:
        with pytest.raises(KafkaException, match=rf"^.*{kind}\(\) does not exist here: {REFUSED[kind]}") as raised:
            home(**dict.fromkeys(keywords))
        assert raised.value.args[0] == KafkaError._NOT_IMPLEMENTED
    elif kind not in OTHER_KEYWORDS:
        assert set(keywords) <= keywords_of(home)


@each(TABLE["codes"].items())
def test_the_code_has_its_number_and_its_text(name: str, code_and_text: tuple[int, str]) -> None:
    code, text = code_and_text
    assert getattr(KafkaError, name) == code
    assert KafkaError(code).str() == text
    assert KafkaError(code).name() == name
    assert name in dir(KafkaError)


def test_a_kafka_error_is_raised_and_caught() -> None:
    with pytest.raises(KafkaError) as raised:
        raise KafkaError(KafkaError._FENCED, fatal=True)
    assert str(raised.value).startswith("KafkaError{FATAL,code=_FENCED,val=-144,")
    assert KafkaError(error=3) <= 3 <= KafkaError(3)
    assert KafkaError(4) >= KafkaError(3)
    with pytest.raises(TypeError, match="not supported"):
        _ = KafkaError(3) < "3"
    copied = pickle.loads(pickle.dumps(KafkaError(3, "why", True, True, True)))
    assert (copied.code(), copied.str(), copied.fatal(), copied.retriable(), copied.txn_requires_abort()) == (
        3, "why", True, True, True,
    )  # fmt: skip


def test_a_message_is_made_with_keywords_and_changed() -> None:
    message: Any = Message(topic="t", value=b"x", error=KafkaError(3), timestamp=(1, 5), headers=[("a", b"b")])
    assert isinstance(message, Message)
    assert (message.topic(), message.value(), message.timestamp(), len(message)) == ("t", b"x", (1, 5), 1)
    assert (message.offset(), message.partition(), message.delivery_count()) == (None, None, None)
    message.set_topic("u")
    message.set_error(None)
    message.set_value({"a": 1})
    assert (message.topic(), message.error(), message.deserialized_value()) == ("u", None, {"a": 1})
    assert pickle.loads(pickle.dumps(message)) == message
    generic: Any = Message
    assert generic[str, str] is Message
    with pytest.raises(TypeError, match="expected a tuple"):
        Message(timestamp=5)  # type: ignore[arg-type]


def test_a_partition_prints_as_there() -> None:
    shown = "TopicPartition{topic=a,partition=1,offset=-1001,leader_epoch=None,error=None}"
    assert str(TopicPartition("a", 1)) == repr(TopicPartition("a", 1)) == shown
    assert TopicPartition("a", 1) <= TopicPartition("a", 1) >= TopicPartition("a", 0)


def test_values_are_equal_by_their_content() -> None:
    assert NewTopic("a", 3) == NewTopic("a", 3) != NewTopic("a", 4)
    assert NewPartitions("a", 3) == NewPartitions("a", 3)
    assert hash(NewTopic("a", 3)) == hash(NewTopic("a", 3))
    assert ConfigResource("topic", "a") < ConfigResource("TOPIC", "b")
    assert Uuid(1, 2) == Uuid(1, 2)
    assert str(Uuid(1, 2)) == "AAAAAAAAAAEAAAAAAAAAAg"
    assert Uuid(-1, -2).get_least_significant_bits() == -2
    assert str(ThrottleEvent("b", 1, 0.5)) == "b/1 throttled for 500 ms"
    with pytest.raises(ValueError, match="expected one of UNKNOWN, ANY, TOPIC"):
        ConfigResource("topics", "a")


def test_partitions_by_key_are_librdkafkas() -> None:
    keys = (b"", b"abc", b"\xff\x00zz")
    assert [sparktxn.murmur2(key, 7) for key in keys] == [2, 4, 4]
    assert [sparktxn.consistent(key, 7) for key in keys] == [0, 5, 0]
    assert [sparktxn.fnv1a(key, 7) for key in keys] == [2, 5, 2]
    with pytest.raises(ValueError, match="partition_count is 0"):
        sparktxn.murmur2(b"a", 0)


def test_versions_are_those_of_the_names() -> None:
    assert sparktxn.version() == TABLE["version"]
    assert sparktxn.libversion() == ("2.16.0", 0x021000FF)


@each(
    [
        ("create_acls", [[]]),
        ("describe_acls", [None]),
        ("delete_acls", [[]]),
        ("describe_user_scram_credentials", []),
        ("alter_user_scram_credentials", [[]]),
        ("elect_leaders", [sparktxn.ElectionType.PREFERRED]),
    ]
)
def test_what_has_no_meaning_here_is_refused_with_a_sentence(call: str, arguments: list[Any]) -> None:
    admin = AdminClient({"bootstrap.servers": "memory://unsupported"})
    with pytest.raises(KafkaException, match="does not exist here: ") as raised:
        getattr(admin, call)(*arguments)
    assert raised.value.args[0] == KafkaError._NOT_IMPLEMENTED
    assert (len(admin), bool(admin)) == (0, True)


@pytest.mark.parametrize("kind", [ShareConsumer, sparktxn.DeserializingShareConsumer])
def test_a_share_consumer_is_refused_when_it_is_made(kind: type[ShareConsumer]) -> None:
    with pytest.raises(KafkaException, match="no share groups: use Consumer") as raised:
        kind({"bootstrap.servers": "memory://unsupported", "group.id": "g"})
    assert raised.value.args[0] == KafkaError._NOT_IMPLEMENTED
