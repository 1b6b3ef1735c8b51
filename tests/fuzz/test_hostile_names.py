"""Nothing that a user or an object says leads out of the store's root: a folder next to it stays as it was."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparktxn import Consumer, KafkaException, Producer, Store, TopicPartition
from sparktxn._engine.format.checkpoint import CheckpointHead, CheckpointHint
from sparktxn._engine.format.commands import Command
from sparktxn._engine.format.entry import Intent, LogEntry, StoreDocument
from sparktxn._engine.objectstore.contract import checked_object_name, checked_prefix
from sparktxn._engine.objectstore.uri import parse_uri
from sparktxn._foundation.values.structs import StateRecord
from sparktxn.admin import AdminClient, NewTopic
from sparktxn.errors import ConfigurationError, DamagedObject
from sparktxn.store import read_task
from sparktxn.store.registry import objects_of
from tests.fuzz.decoders import sealed

SECRET = b"the canary's secret"
HOSTILE = (
    *(
        "..",
        ".",
        "",
        "../canary",
        "../../canary",
        "/etc",
        "a/../../canary",
        "a/b",
        "a\\..\\b",
        "..\\canary",
        "C:\\x",
        "C:x",
    ),
    *(
        "a\0b",
        "canary\0",
        "a\nb",
        " ",
        "a ",
        "․․/canary",
        "．．/canary",
        "‥/canary",
        "a∕b",
        "%2e%2e/canary",
        "%2e%2e%2fcanary",
    ),
    *(
        "..%2fcanary",
        "..;/canary",
        "~",
        "~root",
        "$HOME",
        "`id`",
        "-rf",
        "*",
        "con",
        "nul",
        "a" * 250,
        "é",
        "ａ",
        "x" * 100_000,
    ),
    *(
        "_log",
        "_txnlog.json",
        "topics",
        ".lock",
        "....",
        "a.",
        "s3://x/y",
        "file:///etc",
        "\u202e",
        "\U0001f600",
        "half \ud800",
    ),
)
CANARY = "../canary"
names = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=40), st.from_regex(r"(\.\./|/|\\|%2e|[a-z.]){1,6}"))
PROPERTY = settings(max_examples=40, suppress_health_check=list(HealthCheck))  # each example opens clients


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A store's root with a canary next to it, which must stay as it is."""
    canary = tmp_path / "canary"
    canary.mkdir()
    (canary / "secret.json").write_bytes(SECRET)
    before = outside(tmp_path)
    yield tmp_path / "root"
    assert outside(tmp_path) == before


def outside(folder: Path) -> dict[str, bytes | None]:
    """All that is next to the root."""
    found = [path for path in folder.rglob("*") if "root" not in path.relative_to(folder).parts]
    return {str(path): path.read_bytes() if path.is_file() else None for path in found}


def settings_of(root: Path) -> dict[str, Any]:
    return {"bootstrap.servers": str(root), "store.fsync": False}


def refused_or_done(call: Callable[[], object]) -> bool:
    """True if it was refused with the store's own errors; anything else that is raised fails the test."""
    try:
        call()
    except (KafkaException, UnicodeEncodeError):
        return True
    return False


def test_topic_names_stay_inside(root: Path) -> None:
    @PROPERTY
    @given(names)
    def check(name: str) -> None:
        with AdminClient(settings_of(root)) as admin:
            refused_or_done(lambda: [made.result(10) for made in admin.create_topics([NewTopic(name, 1)]).values()])
            with Producer(settings_of(root)) as producer:
                refused_or_done(lambda: (producer.produce(name, b"v"), producer.flush(10)))
            with Consumer({**settings_of(root), "group.id": "g"}) as consumer:
                refused_or_done(lambda: (consumer.assign([TopicPartition(name, 0)]), consumer.poll(0)))
        for topic in (root / "topics").iterdir() if (root / "topics").exists() else ():
            assert topic.name.rsplit("-", 1)[0] == name or topic.is_dir()

    with AdminClient(settings_of(root)) as admin:
        admin.create_topics([NewTopic("good", 1)])["good"].result(10)
    check()


def test_group_and_transactional_ids_are_only_texts(root: Path) -> None:
    with AdminClient(settings_of(root)) as admin:
        admin.create_topics([NewTopic("good", 1)])["good"].result(10)

    @PROPERTY
    @given(names, names)
    def check(group: str, transactional_id: str) -> None:
        def transact() -> None:
            with (
                Producer({**settings_of(root), "transactional.id": transactional_id}) as producer,
                Consumer({**settings_of(root), "group.id": group}) as consumer,
            ):
                producer.init_transactions(10)
                producer.begin_transaction()
                producer.produce("good", b"v")
                position = TopicPartition("good", 0, 1, metadata=group[:100])
                producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata())
                producer.commit_transaction(10)
                assert consumer.committed([TopicPartition("good", 0)], 10)[0].offset == 1

        refused_or_done(transact)

    check()
    with Store.open(str(root), options={"store.fsync": False}) as store:
        store.view()


@PROPERTY
@given(names)
def test_no_object_name_leaves_the_root(name: str) -> None:
    for check in (checked_object_name, checked_prefix):
        try:
            checked = check(name)
        except ValueError:
            continue
        assert os.path.normpath(f"/root/{checked}").startswith("/root/") or checked == ""
        assert not set(checked) & set("\\%\0:~ ")
        assert checked.isascii()


@PROPERTY
@given(names)
def test_an_address_says_plainly_where_it_leads(text: str) -> None:
    for address in (f"s3://bucket/{text}", f"file://{text}", f"memory://{text}", f"s3://{text}/x"):
        try:
            found = parse_uri(address)
        except ConfigurationError:
            continue
        assert ".." not in found.location.split("/")
        assert str(parse_uri(str(found))) == str(found)
        assert "\0" not in found.location


# Names inside objects that another program has written, with checksums that are right


def a_store(root: Path) -> tuple[Path, dict[str, Any]]:
    """A store with one committed record; the path and the members of its newest entry, which holds its append.

    The record is in a file, whose name is to be changed.
    """
    with AdminClient(settings_of(root)) as admin:
        admin.create_topics([NewTopic("good", 1, config={"append.inline.bytes": "0"})])["good"].result(10)
    with Producer({**settings_of(root), "transactional.id": "t"}) as producer:
        producer.init_transactions(10)
        with producer.transaction():
            producer.produce("good", b"v")
    newest = max((root / "_log").glob("*.json"))
    return newest, json.loads(newest.read_bytes())


def rewrite(path: Path, document: dict[str, Any]) -> None:
    document.pop("checksum", None)
    path.write_bytes(sealed(json.dumps(document, separators=(",", ":")).encode()))


def read_all(root: Path) -> None:
    with Store.open(str(root), options={"store.fsync": False}) as store:
        view = store.view()
        for task in store.plan(view, store.ranges(view)):
            list(read_task(task, {"store.fsync": False}))


@pytest.mark.parametrize("name", [CANARY + "/secret.json", "/etc/passwd", "..\\canary", "a\0", "x" * 5_000, "%2e%2e/x"])
@pytest.mark.parametrize("member", ["segment", "object", "name"])
def test_names_in_entries(root: Path, member: str, name: str) -> None:
    path, entry = a_store(root)
    command = next(command for command in entry["commands"] if command["type"] == "append")
    if member == "segment":
        command["segment"] = name
    elif member == "object":
        entry["commands"] = [{"type": "appends", "object": name, "crc": "0" * 8, "start": 0, "count": 1}]
    else:
        entry["commands"] = [{"type": "create_topic", "request": "r", "name": name, "partition_count": 1}]
    rewrite(path, entry)
    with pytest.raises(DamagedObject):
        read_all(root)


@pytest.mark.parametrize("name", [CANARY + "/secret.json", "/etc/passwd", "..", "a//b", ""])
def test_names_in_a_checkpoints_head(root: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    a_store(root)
    with Store.open(str(root), options={"store.fsync": False}) as store:
        store.log.checkpoint()
    head = max((root / "_log" / "_checkpoints").glob("*.json"))
    document = json.loads(head.read_bytes())
    for ref in document["parts"].values():
        ref[0] = name
    rewrite(head, document)
    read_all(root)
    assert "which is not a name inside the store" in caplog.text, "the checkpoint is skipped, loudly"


def test_names_in_a_checkpoints_parts(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The digests are made right again; what a part says is still not believed."""
    a_store(root)
    with Store.open(str(root), options={"store.fsync": False}) as store:
        store.log.checkpoint()
    head = max((root / "_log" / "_checkpoints").glob("*.json"))
    document = json.loads(head.read_bytes())
    for ref in document["parts"].values():
        data = (root / ref[0]).read_bytes().replace(b'"good"', b'"../../canary/g"')
        (root / ref[0]).write_bytes(data)
        ref[1:] = [len(data), hashlib.sha256(data).hexdigest()]
    lines = (
        f"{part} {ref[2]}\n" for part, ref in sorted(document["parts"].items()) if not part.startswith("segments/")
    )
    document["digest"] = hashlib.sha256("".join(lines).encode()).hexdigest()
    rewrite(head, document)
    read_all(root)
    assert "it is not a checkpoint's part" in caplog.text


def test_every_number_and_name_in_a_stored_document_has_bounds() -> None:
    """A new member has one of the bounded types of structs.py: `Int64`, `Natural` and their like."""
    seen: set[Any] = set()
    unbounded: list[str] = []

    def visit(found: Any, where: str) -> None:
        if isinstance(found, msgspec.inspect.IntType) and found.le is None:
            unbounded.append(where)
        for field in getattr(found, "fields", ()):
            if (found.cls, field.name) not in seen:
                seen.add((found.cls, field.name))
                visit(field.type, f"{found.cls.__name__}.{field.name}")
        for inner in (*getattr(found, "types", ()), *getattr(found, "item_types", ())):
            visit(inner, where)
        for attribute in ("item_type", "key_type", "value_type"):
            if hasattr(found, attribute):
                visit(getattr(found, attribute), where)

    for root_type in (Command, StateRecord, LogEntry, StoreDocument, Intent, CheckpointHead, CheckpointHint):
        visit(msgspec.inspect.type_info(root_type), str(root_type))
    assert len(seen) > 100
    assert unbounded == []


# Symbolic links in a local store's folder


def test_a_linked_folder_is_neither_written_nor_read_nor_listed(root: Path) -> None:
    a_store(root)
    for link in ("topics", "_log/_checkpoints"):
        path = root / link
        if path.exists():
            path.rename(path.with_name("was-" + path.name))
        path.symlink_to(root.parent / "canary")
    objects = objects_of(str(root), {"store.fsync": False})
    for name in ("topics/secret.json", "_log/_checkpoints/secret.json"):
        for call in (
            lambda name=name: objects.get(name),
            lambda name=name: objects.get_range(name, 0, 5),
            lambda name=name: objects.put_if_absent(name + "x", b"x"),
            lambda name=name: objects.put(name, b"x"),
            lambda name=name: objects.delete([name]),
            lambda name=name: objects.list_names(name.rpartition("/")[0] + "/"),
        ):
            with pytest.raises(ConfigurationError, match="symbolic link"):
                call()
    assert not [info for info in objects.list("") if "secret" in info.name]


def test_a_linked_file_is_no_object(root: Path) -> None:
    a_store(root)
    (root / "topics" / "x.json").symlink_to(root.parent / "canary" / "secret.json")
    objects = objects_of(str(root), {"store.fsync": False})
    with pytest.raises(KafkaException):
        objects.get("topics/x.json")
    assert not [info for info in objects.list("topics/") if info.name == "topics/x.json"]
    objects.delete(["topics/x.json"])
    assert (root.parent / "canary" / "secret.json").read_bytes() == SECRET


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    real, root = tmp_path / "elsewhere", tmp_path / "root"
    real.mkdir()
    root.symlink_to(real)
    a_store(root)
    read_all(root)
    assert (real / "_txnlog.json").exists()
