"""Importing a topic of another store: all of a record but its offset, each record once, whatever dies in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from sparktxn import ConfigurationError, Consumer, Producer, Store, TopicPartition, ViewExpired, read_arrow
from sparktxn._rows.stage.stager import SegmentStager
from sparktxn.admin import AdminClient
from sparktxn.errors import CommandRefused, ErrorCode, KafkaException, OutcomeUnknown, StoreUnavailable
from sparktxn.maintenance import compact, copy_store, rewrite, vacuum, verify
from sparktxn.transfer import StoreImportReport, import_from_store, storeimport
from tests.transfer.test_exporting import TYPED, shop
from tests.world import next_number

__all__ = ["shop"]

RECORD = ["partition", "key", "value", "headers", "timestamp", "timestampType"]
ROWS = ["_partition", "id", "name", "price", "tags", "_timestamp"]
EVERYTHING = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.temporary.age.ms": 0}


@pytest.fixture
def target() -> Iterator[Store]:
    with Store.open(f"memory://imported-{next_number()}", create=True) as store:
        store.create_topic("other")
        store.create_topic("orders", 3)
        store.create_topic("typed", 1, schema=TYPED)
        yield store


def rows(store: Store, topic: str = "orders", entry: int | None = None) -> list[tuple[Any, ...]]:
    """All but the offsets of what a view has, partition by partition."""
    names = RECORD if store.view([topic]).topics[topic].schema is None else ROWS
    found = read_arrow(store, topic, columns=names, as_of=entry).read_all().to_pylist()
    return [tuple(row.values()) for row in found]


def values(store: Store, topic: str = "orders") -> list[Any]:
    return read_arrow(store, topic, columns=["value"]).read_all()["value"].to_pylist()


def newest(store: Store) -> int:
    return store.view().entry


def send(store: Store, *texts: str, topic: str = "orders", partition: int = 0, **settings: Any) -> None:
    with Producer({"bootstrap.servers": store.uri, **settings}) as producer:
        for text in texts:
            producer.produce(topic, text, key=text[:1], partition=partition)


@pytest.mark.parametrize("topic", ["orders", "typed"])
def test_all_but_offsets_is_kept_and_one_entry_has_it(shop: Store, target: Store, topic: str) -> None:
    before = newest(target)
    foreseen = import_from_store(target, topic, shop, topic, dry_run=True)
    assert (foreseen.dry_run, foreseen.records, foreseen.entry) == (True, 11, None)
    assert newest(target) == before
    report = import_from_store(target, topic, shop, topic)
    assert report == StoreImportReport(
        dry_run=False,
        topic=topic,
        source=shop.uri,
        source_topic=topic,
        after_entry=0,
        to_entry=newest(shop),
        records=11,
        entry=newest(target),
    )
    assert rows(target, topic) == rows(shop, topic)
    assert rows(target, topic, newest(target) - 1) == []
    assert verify(target).problems == ()
    again = import_from_store(target, topic, shop, topic)
    assert (again.records, again.entry, again.after_entry) == (0, None, report.to_entry)
    assert import_from_store(target, topic, shop, topic, dry_run=True).records == 0
    assert newest(target) == report.entry


def test_partitions_of_a_typed_topic_are_kept_whatever_its_key(shop: Store, target: Store) -> None:
    for store, settings in (
        (shop, {"partition.key": "name"}),
        (target, {"partition.key": "id", "segment.format": "arrow"}),
    ):
        store.create_topic("wide", 5, schema=TYPED, settings=settings)
    table = pa.Table.from_pylist([{"id": number, "name": f"n{number}"} for number in range(50)], schema=TYPED)
    with Producer({"bootstrap.servers": shop.uri}) as producer:
        producer.produce_arrow("wide", table)
    import_from_store(target, "wide", shop, "wide")
    found = rows(shop, "wide")
    assert len({row[0] for row in found}) > 1
    assert rows(target, "wide") == found


def test_each_record_of_a_topic_with_log_append_time_keeps_its_time(target: Store) -> None:
    settings = {"message.timestamp.type": "LogAppendTime"}
    with Store.open(f"memory://appended-{next_number()}", create=True) as source:
        for store in (source, target):
            store.create_topic("appended", 2, settings=settings)
        for number in range(6):
            send(source, f"{number}a", f"{number}b", topic="appended", partition=number % 2)
        rewrite(source)
        send(source, "late", topic="appended")
        target.create_topic("plain", 2)
        with pytest.raises(
            ConfigurationError,
            match=r"would not be kept; txnlog topics alter plain --set message\.timestamp\.type=LogAppendTime",
        ):
            import_from_store(target, "plain", source, "appended")
        import_from_store(target, "appended", source, "appended")
        found = rows(source, "appended")
        assert {row[-1] for row in found} == {1}
        assert len({row[-2] for row in found}) > 1
        assert rows(target, "appended") == found
    assert verify(target).problems == ()


def test_later_entries_are_added_and_nothing_twice(shop: Store, target: Store) -> None:
    first = import_from_store(target, "orders", shop, "orders")
    with Producer({"bootstrap.servers": shop.uri, "transactional.id": "late", "transaction.publish": "flush"}) as late:
        late.init_transactions()
        late.begin_transaction()
        late.produce("orders", "begun early", partition=0)
        late.flush()
        send(shop, "x1", partition=0)
        second = import_from_store(target, "orders", shop, "orders")
        assert (second.after_entry, second.records) == (first.to_entry, 1)
        late.commit_transaction()
    older = import_from_store(target, "orders", shop, "orders", entry=first.to_entry)
    assert (older.records, older.after_entry) == (0, second.to_entry)
    third = import_from_store(target, "orders", shop, "orders")
    assert third.records == 1
    assert sorted(rows(target), key=repr) == sorted(rows(shop), key=repr)
    in_one = [row[2] for row in rows(target) if row[0] == 0]
    assert in_one[-2:] == [b"x1", b"begun early"], "the order is that of commits"


def test_a_view_at_an_entry(shop: Store, target: Store) -> None:
    entry = newest(shop) // 2
    report = import_from_store(target, "orders", shop, "orders", entry=entry)
    assert report.to_entry == entry
    found = rows(shop, entry=entry)
    assert 0 < len(found) < 11
    assert rows(target) == found
    import_from_store(target, "orders", shop, "orders")
    assert rows(target) == rows(shop)


def test_what_the_source_has_rewritten_compacted_and_deleted(target: Store) -> None:
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    with Store.open(f"memory://compacted-{next_number()}", create=True) as source:
        for store in (source, target):
            store.create_topic("keys", 1, settings=settings)
        send(source, "a1", "b1", "a2", topic="keys")
        import_from_store(target, "keys", source, "keys")
        send(source, "a3", "c1", "c2", topic="keys")
        rewrite(source)
        compact(source)
        left = values(source, "keys")
        assert len(left) < 6
        foreseen = import_from_store(target, "keys", source, "keys", dry_run=True)
        assert import_from_store(target, "keys", source, "keys").records <= foreseen.records
        assert values(target, "keys") == [b"a1", b"b1", b"a2", *[value for value in left if value in (b"a3", b"c2")]]
        with AdminClient({"bootstrap.servers": source.uri}) as admin:
            send(source, "d1", "d2", topic="keys")
            end = source.view(["keys"]).partitions["keys", 0].log_end_offset
            for future in admin.delete_records([TopicPartition("keys", 0, end - 1)]).values():
                future.result()
        import_from_store(target, "keys", source, "keys")
        assert values(target, "keys")[-1:] == [b"d2"]


def test_nothing_but_records_is_taken(shop: Store, target: Store) -> None:
    with Consumer({"bootstrap.servers": shop.uri, "group.id": "readers", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["orders"])
        assert consumer.poll(20) is not None
    import_from_store(target, "orders", shop, "orders")
    assert target.committed_offsets("readers").topic_partitions in (None, [])
    ids = read_arrow(target, "orders", columns=["transactional_id"]).read_all()["transactional_id"].unique().to_pylist()
    assert len(ids) == 1
    assert "shop" not in ids


@pytest.mark.parametrize("error", [StoreUnavailable("down"), OutcomeUnknown("no answer"), KeyboardInterrupt()])
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_the_commit(
    shop: Store, target: Store, monkeypatch: pytest.MonkeyPatch, error: BaseException, *, after: bool
) -> None:
    original = Store.commit

    def commit(self: Store, *args: Any, **kwargs: Any) -> Any:
        if after:
            original(self, *args, **kwargs)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit", commit)
        with pytest.raises(type(error)):
            import_from_store(target, "orders", shop, "orders")
    assert len(rows(target)) == (11 if after else 0)
    send(shop, "later", partition=2)
    with Store.open(target.uri, options={"checkpoint.entries": 5}) as other:
        assert import_from_store(other, "orders", shop, "orders").records == (1 if after else 12)
    assert rows(target) == rows(shop)


@pytest.mark.parametrize("source_goes_on", ["before the other", "after the other", "never"])
def test_two_imports_at_once(shop: Store, target: Store, monkeypatch: pytest.MonkeyPatch, source_goes_on: str) -> None:
    """The other import commits between the reading and the commit of the first one."""
    original, done = SegmentStager.finish, list[StoreImportReport]()

    def finish(self: SegmentStager) -> Any:
        staged = original(self)
        if not done:
            done.append(
                StoreImportReport(dry_run=False, topic="", source="", source_topic="", after_entry=0, to_entry=0)
            )
            if source_goes_on == "before the other":
                send(shop, "later", partition=2)
            with Store.open(target.uri, options={"checkpoint.entries": 7}) as other:
                done[0] = import_from_store(other, "orders", shop, "orders")
            if source_goes_on == "after the other":
                send(shop, "later", partition=2)
        return staged

    with monkeypatch.context() as patch:
        patch.setattr(SegmentStager, "finish", finish)
        first = import_from_store(target, "orders", shop, "orders")
    assert (first.records, done[0].records) == (0, 12 if source_goes_on == "before the other" else 11)
    import_from_store(target, "orders", shop, "orders")
    assert rows(target) == rows(shop)


def test_an_older_import_commits_first(shop: Store, target: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The later view's batch is taken: it is read again, without what the older one has committed."""
    entry = newest(shop) // 2
    original, done = SegmentStager.finish, list[StoreImportReport]()

    def finish(self: SegmentStager) -> Any:
        staged = original(self)
        if not done:
            done.append(None)  # type: ignore[arg-type]
            with Store.open(target.uri, options={"checkpoint.entries": 7}) as other:
                done[0] = import_from_store(other, "orders", shop, "orders", entry=entry)
        return staged

    monkeypatch.setattr(SegmentStager, "finish", finish)
    report = import_from_store(target, "orders", shop, "orders")
    assert (report.after_entry, report.records + done[0].records) == (entry, 11)
    assert rows(target) == rows(shop)


def test_another_topic_store_or_life_of_a_topic_is_another_source(shop: Store, target: Store) -> None:
    backup = f"memory://backup-{next_number()}"
    copy_store(shop, backup)
    import_from_store(target, "orders", shop, "orders")
    with Store.open(backup) as copied:
        assert import_from_store(target, "orders", copied, "orders").records == 11
    with AdminClient({"bootstrap.servers": target.uri}) as admin:
        admin.delete_topics(["orders"])["orders"].result()
    target.create_topic("orders", 3)
    assert import_from_store(target, "orders", shop, "orders").records == 11
    with AdminClient({"bootstrap.servers": shop.uri}) as admin:
        admin.delete_topics(["orders"])["orders"].result()
    shop.create_topic("orders", 3)
    send(shop, "new")
    assert import_from_store(target, "orders", shop, "orders").records == 1


def test_a_topic_of_the_same_store(shop: Store) -> None:
    shop.create_topic("again", 3)
    assert import_from_store(shop, "again", shop, "orders").records == 11
    assert rows(shop, "again") == rows(shop)
    with pytest.raises(ConfigurationError, match="both the source and the target"):
        import_from_store(shop, "orders", shop, "orders")


def test_what_does_not_fit_is_named_before_anything_is_written(shop: Store, target: Store) -> None:
    shop.create_topic("new", 2, settings={"cleanup.policy": "compact"})
    columns = pa.schema([*TYPED, ("tip", pa.float64())])
    shop.create_topic("more", 1, schema=columns)
    target.create_topic("renamed", 1, schema=pa.schema([("id", pa.int64())]))
    target.create_topic("one", 1)
    target.create_topic("many", 4)
    target.create_topic("small", 3, settings={"max.message.bytes": "10"})
    target.create_topic("keyed", 3, settings={"cleanup.policy": "compact"})
    send(shop, "no key", topic="new")
    before = newest(target)
    refusals: dict[tuple[str, str], str] = {
        ("none", "new"): "create none --partitions 2 --set cleanup.policy=compact",
        ("none", "more"): "--partitions 1 --column 'id int64 not null' --column 'name string' --column 'price decimal",
        ("typed", "orders"): "has the columns id int64 not null, name .* has Kafka's record: expected the same columns",
        ("orders", "typed"): "has Kafka's record, .* txnlog topics create NAME --partitions 1 --column 'id int64 not",
        ("typed", "more"): "expected the same columns; txnlog topics alter typed --column 'tip double'",
        ("renamed", "typed"): "expected the same columns; import into another topic: txnlog topics create NAME",
        ("one", "orders"): "'one' of .* is 1, and that of .* is 3: .* txnlog topics alter one --partitions 3",
        ("many", "orders"): "is 4, .* is 3: expected the same number; import into another topic",
    }
    for (topic, source_topic), reason in refusals.items():
        with pytest.raises(ConfigurationError, match=reason) as refused:
            import_from_store(target, topic, shop, source_topic)
        assert target.uri in str(refused.value)
    with pytest.raises(CommandRefused, match=r"record for topic 'small' has .* max\.message\.bytes allows 10"):
        import_from_store(target, "small", shop, "orders")
    with pytest.raises(CommandRefused, match=f"the source '{shop.uri}': .*'order'"):
        import_from_store(target, "orders", shop, "order")
    for topics in (("__consumer_offsets", "orders"), ("orders", "__consumer_offsets")):
        with pytest.raises(KafkaException, match="is internal") as internal:
            import_from_store(target, topics[0], shop, topics[1])
        assert internal.value.error.code() == ErrorCode.INVALID_TOPIC
    with pytest.raises(KafkaException, match="is internal"):
        import_from_store(target, "orders", shop, "__consumer_offsets", entry=newest(shop) + 5)
    with pytest.raises(CommandRefused, match=f"the source '{shop.uri}': .*{newest(shop) + 5}"):
        import_from_store(target, "orders", shop, "orders", entry=newest(shop) + 5)
    assert newest(target) == before


def test_a_view_that_a_vacuum_has_passed(shop: Store, target: Store) -> None:
    for number in range(3):
        send(shop, f"x{number}")
        shop.log.checkpoint()
    first = import_from_store(target, "orders", shop, "orders", entry=newest(shop) // 2)
    vacuum(shop, EVERYTHING)
    with pytest.raises(ViewExpired):
        import_from_store(target, "orders", shop, "orders", entry=5)
    report = import_from_store(target, "orders", shop, "orders")
    assert report.after_entry == first.to_entry, "an import goes on from an entry that is gone"
    assert sorted(rows(target), key=repr) == sorted(rows(shop), key=repr)


def test_a_source_that_was_put_back_is_refused(shop: Store, target: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that was restored from an older state has the store's id, and may get other entries."""
    import_from_store(target, "orders", shop, "orders")
    entry = newest(shop)
    original = Store.view
    monkeypatch.setattr(Store, "view", lambda store, topics: original(store, topics, entry=entry - 1))
    monkeypatch.setattr(storeimport, "_view_of", lambda store, topic, _: store.view([topic]))
    with pytest.raises(ConfigurationError, match=f"ends at entry {entry - 1}, .* up to entry {entry}: .*older state"):
        import_from_store(target, "orders", shop, "orders")


def test_memory_does_not_grow_with_the_topic(target: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are uploaded while the source is read: at most a few wait."""
    with Store.open(f"memory://large-{next_number()}", create=True) as source:
        source.create_topic("large", 1)
        target.create_topic("large", 1, settings={"segment.rows": "10"})
        table = pa.table({"value": [b"%d" % number for number in range(400)]})
        with Producer({"bootstrap.servers": source.uri}) as producer:
            producer.produce_arrow("large", table)
        stored: list[int] = []

        def segments() -> int:
            return sum(1 for info in target.log.objects.list("topics/large") if info.name.endswith(".parquet"))

        reported: list[int] = []

        def note(records: int) -> None:
            reported.append(records)
            stored.append(segments())

        monkeypatch.setattr(storeimport, "_ROWS_PER_BATCH", 20)
        import_from_store(target, "large", source, "large", on_progress=note)
        assert reported == list(range(20, 401, 20))
        assert stored[-1] >= 40 - 6
        assert values(target, "large") == values(source, "large")
