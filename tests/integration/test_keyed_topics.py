"""Keyed topics as a user meets them: what each writer may do, where rows go, what a transaction does with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparktxn import ConfigurationError, Consumer, Producer, SinkCommit, Store, TopicPartition, read_arrow, to_pandas
from sparktxn._engine.format.commands import AlterTopic
from sparktxn._kafka.groups import ConsumerGroupTopicPartitions
from sparktxn._rows.scan.latestrows import LatestPlan
from sparktxn._rows.stage.partitioner import murmur2
from sparktxn.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from sparktxn.errors import CommandRefused, ErrorCode, ExpectationFailed, KafkaException
from sparktxn.maintenance import apply_retention, compact, maintain, publish_tables, rewrite

CALM = {"store.fsync": False, "checkpoint.fold.bytes.per.minute": 0}
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string()), ("size", pa.float64())])
SETTINGS = {"primary.key": "id"}
PARTITIONS = 4


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with the keyed topic ``keyed`` and the topic ``plain``."""
    with Store.open(str(tmp_path / "store"), create=True, options=CALM) as found:
        found.create_topic("keyed", PARTITIONS, settings=SETTINGS, schema=SCHEMA)
        found.create_topic("plain")
        yield found


@contextmanager
def producer_of(store: Store, transactional_id: str | None = "shop") -> Iterator[Producer]:
    """A producer that takes rows."""
    own: dict[str, Any] = {} if transactional_id is None else {"transactional.id": transactional_id}
    with Producer({"bootstrap.servers": store.uri, "linger.ms": 0} | own | CALM) as found:
        if transactional_id is not None:
            found.init_transactions(30)
        yield found


def rows(*ids: int, name: str = "n", **more: Any) -> pa.Table:
    """An upsert of each id."""
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [name] * len(ids), "size": [1.5] * len(ids), **more})


def ends(store: Store, topic: str = "keyed") -> list[int]:
    """The log ends of the topic's partitions."""
    view = store.view([topic])
    return [view.partitions[topic, number].log_end_offset for number in range(view.topics[topic].partition_count)]


def latest(store: Store, **asked: Any) -> dict[int, Any]:
    """The names of the latest rows, by id."""
    table = read_arrow(store, "keyed", columns=["id", "name"], **asked).read_all()
    return {row["id"]: row["name"] for row in table.to_pylist()}


def settled(futures: dict[Any, Any]) -> None:
    """Wait for an administrator's calls."""
    for future in futures.values():
        future.result()


# What a keyed topic is.


def test_the_key_chooses_the_partition_for_every_writer(store: Store) -> None:
    ids = list(range(200))
    with producer_of(store) as producer, producer.transaction():
        producer.produce_arrow("keyed", rows(*ids[:100]))
    stager = store.stage_plan(["keyed"]).open(seed=3, default_topic="keyed", partitioner="fnv1a")
    stager.write(rows(*ids[100:]))
    store.commit(stager.finish())
    table = read_arrow(store, "keyed", columns=["id", "_partition"]).read_all()
    expected = {number: (murmur2(str(number).encode()) & 0x7FFFFFFF) % PARTITIONS for number in ids}
    assert dict(zip(table["id"].to_pylist(), table["_partition"].to_pylist(), strict=True)) == expected


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (pa.table({"id": [1]}), "'name'"),
        (pa.table({"id": [1], "name": ["a"]}), "'size'"),
        (pa.table({"name": ["a"], "size": [1.0]}), "'id'"),
        (rows(1).set_column(0, "id", pa.array([None], pa.int64())), "'id'"),
        (rows(1).set_column(0, "id", pa.array([1.0])), "'id'"),
        (rows(1, _deleted=pa.array(["yes"])), "'_deleted'"),
        (rows(1, other=pa.array([1])), "'other'"),
    ],
)
def test_rows_that_are_no_upserts_are_refused_before_anything_is_written(
    store: Store, given: pa.Table, named: str
) -> None:
    entry = store.view().entry
    for writer in (_produced, _staged):
        with pytest.raises(ConfigurationError, match=named):
            writer(store, given)
    assert ends(store) == [0] * PARTITIONS
    assert store.view().entry <= entry + 2  # the producer's identity alone


def _produced(store: Store, table: pa.Table, **more: Any) -> None:
    with producer_of(store) as producer, producer.transaction():
        producer.produce_arrow("keyed", table, **more)


def _staged(store: Store, table: pa.Table, **more: Any) -> None:
    stager = store.stage_plan(["keyed"]).open(seed=0, default_topic="keyed")
    stager.write(table, **more)
    store.commit(stager.finish())


def test_a_setting_lets_upserts_lack_columns(store: Store) -> None:
    with producer_of(store) as producer:
        with pytest.raises(ConfigurationError, match=r"upsert\.missing"), producer.transaction():
            producer.produce_arrow("keyed", pa.table({"id": [1]}))
        with AdminClient({"bootstrap.servers": store.uri} | CALM) as admin:
            setting = ConfigEntry("upsert.missing", "null", incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.TOPIC, "keyed", incremental_configs=[setting])
            settled(admin.incremental_alter_configs([resource]))
        with producer.transaction():
            producer.produce_arrow("keyed", pa.table({"id": [1], "name": ["a"]}))
    assert read_arrow(store, "keyed", columns=["id", "name", "size"]).read_all().to_pylist() == [
        {"id": 1, "name": "a", "size": None}
    ]


def test_columns_that_are_not_null_are_those_of_upserts(store: Store) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string(), nullable=False)])
    store.create_topic("strict", settings=SETTINGS | {"upsert.missing": "null"}, schema=schema)
    with producer_of(store, None) as producer:
        for wrong in (pa.table({"id": [1]}), pa.table({"id": [1], "name": pa.array([None], pa.string())})):
            with pytest.raises(ConfigurationError, match="'name'"):
                producer.produce_arrow("strict", wrong)
        both = pa.table({"id": [1, 2], "name": ["a", None], "_deleted": [None, True]})
        producer.produce_arrow("strict", both)
        producer.flush(30)
    found = read_arrow(store, "strict", columns=["id", "name", "_deleted"], rows="all").read_all().to_pylist()
    assert found == [{"id": 1, "name": "a", "_deleted": False}, {"id": 2, "name": None, "_deleted": True}]


@pytest.mark.parametrize("segment_format", ["parquet", "arrow"])
@pytest.mark.parametrize("inline", ["0", "16384"])
def test_of_a_delete_only_the_key_is_stored(tmp_path: Path, segment_format: str, inline: str) -> None:
    settings = SETTINGS | {"segment.format": segment_format, "append.inline.bytes": inline}
    with Store.open(str(tmp_path), create=True, options=CALM) as store:
        store.create_topic("keyed", settings=settings, schema=SCHEMA)
        for table, more in ((rows(1, _deleted=pa.array([True])), {}), (rows(2), {"delete": True})):
            _produced(store, table, **more)
        _staged(store, pa.table({"id": [3]}), delete=True)
        _staged(store, pa.table({"id": [4], "_deleted": [True]}))
        found = read_arrow(store, "keyed", columns=["id", "name", "size", "_deleted"], rows="all").read_all()
        nothing = {"name": None, "size": None, "_deleted": True}
        assert found.to_pylist() == [{"id": number} | nothing for number in range(1, 5)]
        assert read_arrow(store, "keyed").read_all().num_rows == 0


def test_rows_of_another_partition_are_refused_with_the_right_one(store: Store) -> None:
    own = (murmur2(b"7") & 0x7FFFFFFF) % PARTITIONS
    for number in set(range(PARTITIONS)) - {own}:
        for writer in (_produced, _staged):
            with pytest.raises(CommandRefused, match=f"partition {own}") as raised:
                writer(store, rows(7), partition=number)
            assert raised.value.error.code() == ErrorCode.INVALID_RECORD
    assert ends(store) == [0] * PARTITIONS
    _produced(store, rows(7), partition=own)
    _staged(store, rows(7), partition=own)
    assert ends(store)[own] == 2
    with pytest.raises(KafkaException, match=f"0 to {PARTITIONS - 1}"):
        _produced(store, rows(7), partition=PARTITIONS)


def test_keys_that_are_too_long_or_have_no_text_are_refused(store: Store) -> None:
    schema = pa.schema([pa.field("day", pa.date32(), nullable=False), pa.field("name", pa.string(), nullable=False)])
    store.create_topic("dated", 2, settings={"primary.key": "name,day"}, schema=schema)
    for wrong, named in (
        (pa.table({"day": pa.array([0], pa.date32()), "name": ["x" * 4_096]}), "4096"),
        (pa.table({"day": pa.array([-719_163], pa.date32()), "name": ["x"]}), "'day'"),
    ):
        with producer_of(store, None) as producer, pytest.raises(CommandRefused, match=named):
            producer.produce_arrow("dated", wrong)
    assert ends(store, "dated") == [0, 0]


def test_what_administrators_may_not_do(store: Store) -> None:
    _produced(store, rows(1, 2, 3))
    with AdminClient({"bootstrap.servers": store.uri} | CALM) as admin:
        for wanted, code in (
            (lambda: admin.create_partitions([NewPartitions("keyed", 9)]), ErrorCode.INVALID_PARTITIONS),
            (lambda: admin.delete_records([TopicPartition("keyed", 0, 1)]), ErrorCode.POLICY_VIOLATION),
            (lambda: _altered(admin, "primary.key", "name"), ErrorCode.INVALID_CONFIG),
            (lambda: _altered(admin, "cleanup.policy", "compact,delete"), ErrorCode.INVALID_CONFIG),
            (lambda: _altered(admin, "retention.ms", "1000"), ErrorCode.INVALID_CONFIG),
            (lambda: _altered(admin, "partition.key", "name"), ErrorCode.INVALID_CONFIG),
            (lambda: _altered(admin, "table.formats", "delta,iceberg"), ErrorCode.INVALID_CONFIG),
            (lambda: admin.create_topics([_new("floats", pa.float64())]), ErrorCode.INVALID_CONFIG),
            (lambda: admin.create_topics([_new("lists", pa.list_(pa.int64()))]), ErrorCode.INVALID_CONFIG),
            (lambda: admin.create_topics([NewTopic("bare", 1, config=SETTINGS)]), ErrorCode.INVALID_CONFIG),
        ):
            with pytest.raises(KafkaException) as raised:
                settled(wanted())
            assert raised.value.error.code() == code, raised.value
        # The settings that a call does not name return to their defaults, and the key stays.
        wanted_settings = {"cleanup.policy": "compact", "upsert.missing": "null"}
        settled(admin.alter_configs([ConfigResource(ConfigResource.Type.TOPIC, "keyed", set_config=wanted_settings)]))
        settled(admin.create_topics([_new("dates", pa.date32())]))
    assert store.view(["keyed"]).topics["keyed"].settings == SETTINGS | wanted_settings
    assert latest(store) == {1: "n", 2: "n", 3: "n"}


def _altered(admin: AdminClient, name: str, value: str) -> dict[Any, Any]:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    return admin.incremental_alter_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, "keyed", incremental_configs=[entry])]
    )


def _new(name: str, kind: pa.DataType) -> NewTopic:
    return NewTopic(name, 1, config=SETTINGS, schema=pa.schema([pa.field("id", kind, nullable=False)]))


# Rule K, for each way to write.


def test_flush_in_a_transaction_publishes_no_keyed_row(store: Store) -> None:
    reports: list[Any] = []
    with producer_of(store) as producer:
        producer.begin_transaction()
        producer.produce("plain", b"x", on_delivery=lambda error, message: reports.append((error, message.offset())))
        producer.produce_arrow("keyed", rows(*range(50)))
        assert producer.flush(30) == 0
        assert (ends(store), ends(store, "plain"), reports) == ([0] * PARTITIONS, [1], [(None, 0)])
        # Uploaded: what an entry carries would be lost with the process.
        assert len(list(Path(store.uri).rglob("*.parquet"))) == PARTITIONS
        producer.commit_transaction(30)
        assert (sum(ends(store)), ends(store, "plain")) == (50, [2])
        assert store.view().partitions["keyed", 0].last_stable_offset == ends(store)[0]


@pytest.mark.parametrize("flushes", [False, True])
@pytest.mark.parametrize("others", ["none", "rows", "offsets", "an expectation"])
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_is_visible_whole_or_not_at_all(
    store: Store, flushes: bool, others: str, committed: bool
) -> None:
    with producer_of(store) as producer, Consumer({"bootstrap.servers": store.uri, "group.id": "g"} | CALM) as consumer:
        for number in (1, 2):
            before = store.view().entry
            producer.begin_transaction()
            producer.produce_arrow("keyed", rows(*range(20), name=f"first {number}"))
            if others == "rows":
                producer.produce("plain", b"x")
            elif others == "offsets":
                at = [TopicPartition("plain", 0, number)]
                producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata())
            elif others == "an expectation":
                producer.expect("keyed", 0, ends(store)[0])
            if flushes:
                producer.flush(30)
            producer.produce_arrow("keyed", rows(*range(10), name=f"second {number}"))
            producer.produce_arrow("keyed", pa.table({"id": [19]}), delete=True)
            assert latest(store) == ({} if number == 1 or not committed else _after(1))
            if committed:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
            assert latest(store) == (_after(number) if committed else {})
            assert sum(ends(store)) == (31 * number if committed else 0)
            assert latest(store, as_of=before) == ({} if number == 1 or not committed else _after(1))


def _after(number: int) -> dict[int, str]:
    return {key: f"{'second' if key < 10 else 'first'} {number}" for key in range(19)}


def test_rows_are_their_producers_and_the_order_is_that_of_the_commits(store: Store) -> None:
    """The rows of a transaction that began earlier, and ends later, are the newest ones."""
    with producer_of(store, "early") as early, producer_of(store, "late") as late:
        early.begin_transaction()
        early.produce_arrow("keyed", rows(1, name="early"))
        early.flush(30)
        with late.transaction():
            late.produce_arrow("keyed", rows(1, name="late"))
        between = store.view().entry
        early.commit_transaction(30)
    assert (latest(store, as_of=between), latest(store)) == ({1: "late"}, {1: "early"})
    columns = ["name", "_transactional_id", "_entry"]
    found = read_arrow(store, "keyed", columns=columns, rows="all").read_all().to_pylist()
    entries = [between, store.view().entry]
    assert [tuple(row.values()) for row in found] == [("late", "late", entries[0]), ("early", "early", entries[1])]


def test_a_transaction_with_keyed_rows_is_not_prepared(store: Store) -> None:
    with producer_of(store) as producer:
        producer.begin_transaction()
        for flushes in (False, True):
            producer.produce_arrow("keyed", rows(1))
            if flushes:
                producer.flush(30)
            with pytest.raises(KafkaException, match="keyed") as raised:
                producer.prepare_transaction(30)
            assert raised.value.error.code() == ErrorCode.INVALID_TXN_STATE
            assert not raised.value.error.fatal()
        producer.commit_transaction(30)
        producer.begin_transaction()
        producer.produce("plain", b"x")
        producer.complete_transaction(producer.prepare_transaction(30), 30)
    assert latest(store) == {1: "n"}


def test_a_fenced_producers_rows_are_never_appended(store: Store) -> None:
    with producer_of(store) as old:
        old.begin_transaction()
        old.produce_arrow("keyed", rows(1, name="old"))
        old.flush(30)
        with producer_of(store) as new, new.transaction():
            new.produce_arrow("keyed", rows(1, name="new"))
        with pytest.raises(KafkaException) as raised:
            old.commit_transaction(30)
        assert raised.value.error.fatal()
    assert latest(store, rows="all") == {1: "new"}


def test_an_expectation_is_sound_for_keyed_partitions(store: Store) -> None:
    """What lies below the log end is what was read: nothing of an open transaction."""
    with producer_of(store, "a") as writer, producer_of(store, "b") as merger:
        writer.begin_transaction()
        writer.produce_arrow("keyed", rows(*range(30)))
        writer.flush(30)
        merger.begin_transaction()
        for number, end in enumerate(ends(store)):
            merger.expect("keyed", number, end)
        merger.produce_arrow("keyed", rows(1, name="merged"))
        writer.commit_transaction(30)
        with pytest.raises(ExpectationFailed):
            merger.commit_transaction(30)
        merger.abort_transaction(30)
    stager = store.stage_plan(["keyed"]).open(seed=0, default_topic="keyed")
    stager.write(rows(1, name="stale"))
    with pytest.raises(ExpectationFailed):
        store.commit(stager.finish(), expect={("keyed", 0): 0})
    assert latest(store)[1] == "n"


def _commit(store: Store, table: pa.Table, **more: Any) -> Any:
    stager = store.stage_plan(["keyed"]).open(seed=0, default_topic="keyed", inline=True)
    stager.write(table)
    return store.commit(stager.finish(), **more)


def test_commits_of_staged_rows(store: Store) -> None:
    """With and without an id, with a batch that is repeated, and with offsets of a group."""
    group = ConsumerGroupTopicPartitions("g", [TopicPartition("plain", 0, 0)])
    for number in range(2):
        _commit(store, rows(1, name=f"shared {number}"))
        _commit(store, rows(1, name=f"own {number}"), transactional_id="job")
        sink = SinkCommit("query", "run", number)
        first = _commit(store, rows(1, name=f"batch {number}"), transactional_id="stream", sink=sink, offsets=group)
        again = _commit(store, rows(1, name=f"batch {number}"), transactional_id="stream", sink=sink, offsets=group)
        assert (first.replayed, again.replayed, again.mismatch) == (False, True, None)
        skipped = _commit(
            store, rows(1, 2, 3), transactional_id="stream", sink=sink, offsets=group, on_replay_mismatch="skip"
        )
        assert skipped.mismatch is not None
        assert (skipped.mismatch.rows, skipped.mismatch.committed_rows) == ({"keyed": 3}, {"keyed": 1})
    names = read_arrow(store, "keyed", columns=["name"], rows="all").read_all()["name"].to_pylist()
    assert names == ["shared 0", "own 0", "batch 0", "shared 1", "own 1", "batch 1"]
    assert latest(store) == {1: "batch 1"}


def test_many_handles_commit_at_once_to_different_partitions(store: Store) -> None:
    """They share one transactional id: keyed rows lie outside of the transaction whose number another has taken."""
    with Store.open(store.uri, options=CALM) as other:
        for number in range(40):
            _commit(store if number % 2 else other, rows(number))
    assert sorted(latest(store)) == list(range(40))
    assert sum(ends(store)) == 40


def test_many_segments_of_one_transaction(store: Store) -> None:
    """More appends than the log remembers of a producer in a partition."""
    store.create_topic("small", 1, settings=SETTINGS | {"segment.rows": 1, "append.inline.bytes": 0}, schema=SCHEMA)
    with producer_of(store) as producer:
        for number in range(2):
            with producer.transaction():
                producer.produce_arrow("small", rows(*range(12), name=str(number)))
    assert ends(store, "small") == [24]
    assert set(read_arrow(store, "small").read_all()["name"].to_pylist()) == {"1"}


# Readers.


def test_readers_of_tables_have_latest_rows_and_all(store: Store) -> None:
    _produced(store, rows(1, 2, 3, name="a"))
    before = store.view().entry
    _produced(store, rows(2, name="b"))
    _produced(store, pa.table({"id": [3]}), delete=True)
    assert latest(store) == {1: "a", 2: "b"}
    assert latest(store, as_of=before) == {1: "a", 2: "a", 3: "a"}
    assert latest(store, rows="latest", isolation="read_uncommitted") == {1: "a", 2: "b"}
    assert latest(store, where=[("name", "=", "a")]) == {1: "a"}
    assert read_arrow(store, "keyed").schema.names[:4] == ["id", "name", "size", "_topic"]
    assert sorted(to_pandas(store, "keyed", rows="all")["_deleted"]) == [False] * 4 + [True]
    with pytest.raises(ConfigurationError, match="'keyed'"):
        read_arrow(store, ["keyed", "plain"])
    with pytest.raises(ConfigurationError, match="'plain'"):
        read_arrow(store, "plain", rows="latest")
    with pytest.raises(ConfigurationError, match="rows"):
        read_arrow(store, "keyed", rows="newest")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "read",
    [
        lambda store, view: store.plan_view(view),
        lambda store, view: store.plan_view(view, rows="latest"),
        lambda store, view: store.plan(view, {("keyed", 0): (0, 1)}),
        lambda store, view: store.plan_commits(view, 0),
        lambda store, view: store.files("keyed"),
    ],
)
def test_what_has_no_latest_rows_yet_refuses_the_topic_by_name(
    store: Store, read: Callable[[Store, Any], object]
) -> None:
    _produced(store, rows(1))
    with pytest.raises(ConfigurationError, match=r"keyed.*primary\.key"):
        read(store, store.view(["keyed"]))


def test_maintenance_takes_keyed_topics(store: Store) -> None:
    for number in range(3):
        _produced(store, rows(1, name=str(number)))
    before = ends(store)
    assert rewrite(store, {"rewrite.min.segments": 2}).ranges
    assert compact(store).removed_records == 2
    apply_retention(store)
    maintain(store)
    assert (ends(store), latest(store)) == (before, {1: "2"})
    # Clients refuse it when it is set. Where one has not, the topics that can be tables are published.
    topic_id = store.view(["keyed"]).topics["keyed"].topic_id
    store.log.submit([AlterTopic("x" * 20, "keyed", topic_id, {"table.formats": "delta"})])
    with pytest.raises(ConfigurationError, match=r"primary\.key"):
        publish_tables(store)
    store.create_topic("shown", settings={"table.formats": "delta"}, schema=SCHEMA)
    assert "shown" in str(maintain(store))


def test_a_keyed_topic_is_no_table_of_other_engines(store: Store) -> None:
    """It is refused when it is set, by name, and never once a day by maintenance."""
    wanted = SETTINGS | {"table.formats": "delta"}
    with pytest.raises(ConfigurationError, match=r"'table\.formats' is 'delta'.*primary\.key"):
        store.create_topic("shown", settings=wanted, schema=SCHEMA)
    with AdminClient({"bootstrap.servers": store.uri} | CALM) as admin:
        replaced = ConfigResource(ConfigResource.Type.TOPIC, "keyed", set_config={"table.formats": "iceberg"})
        for call in (
            lambda only: admin.create_topics([NewTopic("new", 1, config=wanted, schema=SCHEMA)], validate_only=only),
            lambda only: admin.alter_configs([replaced], validate_only=only),
        ):
            for validate_only in (True, False):
                with pytest.raises(KafkaException, match=r"table\.formats.*primary\.key") as raised:
                    settled(call(validate_only))
                assert raised.value.error.code() == ErrorCode.INVALID_CONFIG
        settled(_altered(admin, "table.formats", ""))
        settled(_altered(admin, "upsert.missing", "null"))
    assert {topic.name for topic in store.log.topics()} >= {"keyed", "plain"}
    maintain(store)


def test_a_plan_leaves_out_what_is_hidden_whatever_a_batch_has() -> None:
    plan = LatestPlan(np.array([1, 4, 5]), np.array([9]))
    for offsets, kept in (([0, 1, 2], [0, 2]), ([2, 3], [2, 3]), ([5, 7, 9, 10], [7, 10]), ([4, 5], []), ([6], [6])):
        batch = pa.record_batch({"_offset": pa.array(offsets, pa.int64())})
        assert plan.of(batch).column(0).to_pylist() == kept
