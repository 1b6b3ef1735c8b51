"""A copy of some topics has what one view shows of them, and is refused where it would not."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from sparktxn import ConfigurationError, Consumer, Producer, TopicPartition, ViewExpired, read_task
from sparktxn.admin import AdminClient
from sparktxn.clock import Deadline, SystemClock
from sparktxn.config.store import StoreOptions
from sparktxn.errors import CommandRefused, DamagedObject, ErrorCode, StoreNotFound, StoreUnavailable
from sparktxn.format import names
from sparktxn.format.commands import AlterStore, EndTxn
from sparktxn.format.entry import decode_entry
from sparktxn.halfmessage.engine import HalfEngine
from sparktxn.halfmessage.records import MessageRecord
from sparktxn.kafka.settings.halfmessage import HalfMessageSettings
from sparktxn.maintenance import (
    compact,
    copy_store,
    copy_topics,
    copytarget,
    rewrite,
    topiccopy,
    vacuum,
    verify,
)
from sparktxn.maintenance.copywork import Work
from sparktxn.maintenance.topiccopy import TopicCopying
from sparktxn.maintenance.topiccopyplan import plan_topic_copy
from sparktxn.maintenance.topicstate import parts_of_topics, records_of_topics
from sparktxn.objectstore.memory import MemoryStore
from sparktxn.registry import objects_of
from sparktxn.store import Store
from sparktxn.structs import TransactionStatus
from sparktxn.testing.faultystore import Died, Fault, FaultyStore, at_operation
from tests.maintenance.test_copy import EVERYTHING, FILES, OPTIONS, objects, settle, trade
from tests.world import next_number

OTHER = b"not to be copied"


def trade_both(store: Store, transactions: int, **settings: Any) -> None:
    """Transactions over `orders` and `trips`, with a committed offset for both; every third is aborted."""
    given = {"bootstrap.servers": store.uri, **OPTIONS, **settings, "transactional.id": "both", "group.id": "readers"}
    with Producer(given) as producer, Consumer(given) as consumer:
        producer.init_transactions()
        for number in range(transactions):
            producer.begin_transaction()
            producer.produce("orders", b"%d of both" % number, partition=0)
            producer.produce("trips", OTHER, partition=0)
            positions = [TopicPartition("orders", 0, number + 1), TopicPartition("trips", 0, number + 1)]
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
            if number % 3 == 2:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()


@pytest.fixture
def shop() -> Iterator[Store]:
    with Store.open(f"memory://shop-{next_number()}", options=OPTIONS, create=True) as store:
        store.create_topic("orders", 2, settings={"retention.bytes": "1000000"})
        store.create_topic("trips", 1)
        trade(store, 4, **FILES)
        trade_both(store, 5)
        trade_both(store, 3, **FILES)
        settle(store)
        yield store


@pytest.fixture
def target() -> str:
    return f"memory://topics-{next_number()}"


def rows(store: Store, topic: str, entry: int | None = None) -> list[tuple[Any, ...]]:
    view = store.view([topic], entry=entry)
    tasks = store.plan(view, store.ranges(view))
    found = [row for task in tasks for batch in read_task(task, store.options) for row in batch.to_pylist()]
    return [(row.get("partition"), row.get("offset"), row.get("value"), row.get("key", row.get("id"))) for row in found]


def committed(store: Store, topic: str, group: str = "readers", **options: Any) -> list[int]:
    given = {"bootstrap.servers": store.uri, **OPTIONS, **options, "group.id": group}
    with Consumer(given) as consumer:
        return [found.offset for found in consumer.committed([TopicPartition(topic, 0)], 10)]


def test_a_topic_with_its_settings_ids_offsets_and_nothing_of_the_others(shop: Store, target: str) -> None:
    progress: list[tuple[int, int]] = []
    foreseen = copy_topics(shop, target, ["orders"], dry_run=True)
    assert objects(target) == {}
    report = copy_topics(shop, target, ["orders"], on_progress=lambda *at: progress.append(at))
    assert (report.is_complete, report.horizon, report.entry) == (True, report.entry, shop.view().entry)
    assert progress[-1] == (report.objects, report.objects)
    assert (foreseen.objects, foreseen.entry) == (report.objects, report.entry)
    assert foreseen.size_bytes >= report.size_bytes, "entries that carry records of others are copied in part"
    with Store.open(target, options=OPTIONS) as copy:
        assert verify(copy).problems == ()
        assert copy.store_id == report.store_id != shop.store_id
        (state,) = copy.log.snapshot(["store"], copy.log.deadline(10)).records
        assert getattr(state, "horizon", None) == report.horizon
        assert copy.view().topics == shop.view(["orders"]).topics
        assert rows(copy, "orders") == rows(shop, "orders")
        assert committed(copy, "orders") == committed(shop, "orders") == [2]
        with AdminClient({"bootstrap.servers": target, **OPTIONS}) as admin:
            assert list(admin.list_topics().topics) == ["orders"]
    for name, data in objects(target).items():
        assert "trips" not in name
        assert b"trips" not in (data or b"")
        assert OTHER not in (data or b"")


def test_indexes_and_snapshots_of_runs_are_those_of_the_source(shop: Store, target: str) -> None:
    copy_topics(shop, target, ["orders"])
    source, copied = objects(shop.uri), objects(target)
    kinds = {name.rpartition(".")[2]: name for name in copied if "/_sealed/" in name}
    assert {"txnindex", "snapshot"} <= kinds.keys()
    for name, data in copied.items():
        if name.startswith(names.TOPICS):
            assert source[name] == data


def test_settings_of_the_store_go_along(shop: Store, target: str) -> None:
    shop.log.submit([AlterStore("settings", {"reject.transaction.message": "true"})], shop.log.deadline(10))
    copy_topics(shop, target, ["orders"])
    with Store.open(target, options=OPTIONS) as copy:
        (state,) = copy.log.snapshot(["store"], copy.log.deadline(10)).records
        assert getattr(state, "settings", None) == {"reject.transaction.message": "true"}


def test_several_topics_share_transactions(shop: Store, target: str) -> None:
    copy_topics(shop, target, ["trips", "orders", "trips"])
    with Store.open(target, options=OPTIONS) as copy:
        assert verify(copy).problems == ()
        for topic in ("orders", "trips"):
            assert rows(copy, topic) == rows(shop, topic)
        assert copy.log.transaction("both") == shop.log.transaction("both")


def test_an_older_view(shop: Store, target: str) -> None:
    entry, before = shop.view().entry, rows(shop, "orders")
    trade(shop, 3)
    report = copy_topics(shop, target, ["orders"], entry=entry)
    assert report.entry == entry
    with Store.open(target, options=OPTIONS) as copy:
        assert rows(copy, "orders") == before != rows(shop, "orders")
        assert verify(copy).problems == ()


def test_an_open_transaction_is_open_in_the_copy_and_its_producer_may_end_it(shop: Store, target: str) -> None:
    """It holds the last stable offset in both, and each of them ends it for itself."""
    given = {"bootstrap.servers": shop.uri, **OPTIONS, "transactional.id": "slow", "group.id": "readers"}
    with Producer(given) as producer, Consumer(given) as consumer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("orders", b"open", partition=1)
        producer.produce("trips", OTHER, partition=0)
        positions = [TopicPartition("orders", 0, 77), TopicPartition("trips", 0, 78)]
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
        producer.flush()
        copy_topics(shop, target, ["orders"])
        producer.abort_transaction()
    with Store.open(target, options=OPTIONS) as copy:
        assert verify(copy).problems == ()
        partition = copy.view().partitions["orders", 1]
        assert partition.last_stable_offset == partition.log_end_offset - 1
        found = copy.log.transaction("slow")
        assert found is not None
        topic_id = copy.view().topics["orders"].topic_id
        assert (found.status, found.partitions) == (TransactionStatus.ONGOING, ((topic_id, 1),))
        assert found.offsets == (("readers", topic_id, 0),)
        end = EndTxn("slow", found.producer_id, found.producer_epoch, found.transaction, committed=True)
        copy.log.submit([end], copy.log.deadline(10))
        assert (1, partition.last_stable_offset, b"open", None) in rows(copy, "orders")
        assert committed(copy, "orders") == [77]
    assert b"open" not in [value for _, _, value, _ in rows(shop, "orders")]
    assert committed(shop, "orders") == [2]


def test_a_producer_that_takes_over_in_the_copy_fences_its_older_self(shop: Store, target: str) -> None:
    copy_topics(shop, target, ["orders"])
    with Store.open(target, options=OPTIONS) as copy:
        known, before = copy.log.transaction("both"), rows(copy, "orders")
        assert known is not None
        trade_both_alone = {"bootstrap.servers": target, **OPTIONS, "transactional.id": "both"}
        with Producer(trade_both_alone) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.produce("orders", b"later", partition=1)
        copy.log.refresh(copy.log.deadline(10))
        found = copy.log.transaction("both")
        assert found is not None
        assert (found.producer_id, found.producer_epoch) == (known.producer_id, known.producer_epoch + 1)
        assert [value for *at, value, key in rows(copy, "orders") if (*at, value, key) not in before] == [b"later"]
        with Producer({"bootstrap.servers": target, **OPTIONS, "transactional.id": "new"}) as producer:
            producer.init_transactions()
        new, elsewhere = copy.log.transaction("new"), shop.log.transaction("both")
        assert new is not None
        assert elsewhere == known
        assert new.producer_id > max(known.producer_id, *(each.producer_id for each in shop.log.transactions()))


def test_a_transactional_id_that_wrote_to_other_topics_alone_is_left_out(shop: Store, target: str) -> None:
    given = {"bootstrap.servers": shop.uri, **OPTIONS, "transactional.id": "trips-only"}
    with Producer(given) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("trips", OTHER, partition=0)
    copy_topics(shop, target, ["orders"])
    with Store.open(target, options=OPTIONS) as copy:
        assert sorted(each.transactional_id for each in copy.log.transactions()) == ["both", "shop"]


def test_an_open_transaction_that_only_sends_offsets_of_the_topic(shop: Store, target: str) -> None:
    given = {"bootstrap.servers": shop.uri, **OPTIONS, "transactional.id": "reader", "group.id": "readers"}
    with Producer(given) as producer, Consumer(given) as consumer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("trips", OTHER, partition=0)
        positions = [TopicPartition("orders", 0, 9)]
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
        producer.flush()
        copy_topics(shop, target, ["orders"])
        producer.commit_transaction()
    with Store.open(target, options=OPTIONS) as copy:
        found = copy.log.transaction("reader")
        assert found is not None
        assert found.partitions == ()
        end = EndTxn("reader", found.producer_id, found.producer_epoch, found.transaction, committed=False)
        copy.log.submit([end], copy.log.deadline(10))
        assert (committed(copy, "orders"), committed(shop, "orders")) == ([2], [9])
        assert verify(copy).problems == ()


def test_a_transactional_id_whose_producer_id_was_exhausted_keeps_its_last_batches(shop: Store, target: str) -> None:
    """Its record also says which micro-batches a sink has committed: they must not be written again in the copy."""
    known = shop.log.transaction("shop")
    assert known is not None
    topics = tuple(shop.view(["orders"]).topics.values())
    records = list(shop.log.snapshot(parts_of_topics([1]), shop.log.deadline(10)).records)
    rotated = replace(known, producer_id=9_999, previous_producer_id=known.producer_id)
    found = records_of_topics([rotated if each.key == known.key else each for each in records], topics, 1)
    assert replace(rotated, partitions=()) in list(found)


def test_files_of_records_that_were_deleted_are_not_copied(shop: Store, target: str) -> None:
    """Also where the sealed run that names them has others, and stays."""
    copy_topics(shop, f"{target}-before", ["orders"])
    folder = names.partition_folder("orders", 1, 1)
    (first, *others) = [name for name in objects(f"{target}-before") if _kind(name) == "segment" and folder in name]
    with AdminClient({"bootstrap.servers": shop.uri, **OPTIONS}) as admin:
        for future in admin.delete_records([TopicPartition("orders", 1, 2)]).values():
            future.result()
    assert shop.view(["orders"]).partitions["orders", 1].sealed[0].base_offset == 0
    copy_topics(shop, target, ["orders"])
    assert [name for name in objects(target) if _kind(name) == "segment" and folder in name] == others
    assert first in objects(shop.uri)
    with Store.open(target, options=OPTIONS) as copy:
        assert rows(copy, "orders") == rows(shop, "orders")
        assert verify(copy).problems == ()


def test_members_of_groups_are_left_out_and_their_offsets_are_not(shop: Store, target: str) -> None:
    given = {"bootstrap.servers": shop.uri, **OPTIONS, "group.id": "members"}
    with Consumer(given | {"auto.offset.reset": "earliest", "enable.auto.commit": False}) as consumer:
        consumer.subscribe(["orders", "trips"])
        assert consumer.poll(20) is not None
        consumer.commit(offsets=[TopicPartition("orders", 0, 3)], asynchronous=False)
        copy_topics(shop, target, ["orders"])
    with Store.open(target, options=OPTIONS) as copy:
        assert verify(copy).problems == ()
        assert committed(copy, "orders", "members") == [3]
        with Consumer(given | {"bootstrap.servers": target}) as consumer:
            consumer.subscribe(["orders"])
            message = consumer.poll(20)
            assert message is not None
            assert (message.topic(), message.error()) == ("orders", None)


def test_what_was_copied_stays_and_the_next_call_goes_on(
    shop: Store, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(copytarget.CopyTarget, "hint", lambda *_: (_ for _ in ()).throw(StoreUnavailable("killed")))
        with pytest.raises(StoreUnavailable, match="killed"):
            copy_topics(shop, target, ["orders"])
    with pytest.raises(StoreNotFound, match="unfinished copy"):
        Store.open(target, create=True)
    found, entry = objects(target), shop.view().entry
    with pytest.raises(ConfigurationError, match="is a copy of topics 'orders'"):
        copy_topics(shop, target, ["orders", "trips"])
    with pytest.raises(ConfigurationError, match="this one is of all topics"):
        copy_store(shop, target)
    assert objects(target) == found
    trade(shop, 1)
    foreseen = copy_topics(shop, target, ["orders"], dry_run=True)
    report = copy_topics(shop, target, ["orders"])
    assert report.existing == foreseen.existing == len([name for name in found if _is_copied(name, entry)])
    assert {name: objects(target)[name] for name in found if name != names.LAST_CHECKPOINT} == found
    with Store.open(target, options=OPTIONS) as copy:
        assert rows(copy, "orders") == rows(shop, "orders")
        assert verify(copy).problems == ()


def _is_copied(name: str, entry: int) -> bool:
    """Whether an object is one of the source's; the last entry of the view carries no records of the topic."""
    return name.startswith(names.TOPICS) or names.parse_entry(name) not in (None, entry)


def test_a_complete_copy_is_found_and_is_of_one_view(shop: Store, target: str) -> None:
    first = copy_topics(shop, target, ["orders"])
    found = objects(target)
    for again in (copy_topics(shop, target, ["orders"]), copy_topics(shop, target, ["orders"], entry=first.entry)):
        assert (again.objects, again.is_complete, again.store_id) == (0, True, first.store_id)
    trade(shop, 1)
    for dry_run in (True, False):
        with pytest.raises(ConfigurationError, match=f"complete copy of these topics at entry {first.entry}"):
            copy_topics(shop, target, ["orders"], dry_run=dry_run)
        with pytest.raises(ConfigurationError, match="is a copy of topics 'orders'"):
            copy_store(shop, target, dry_run=dry_run)
    assert objects(target) == found
    assert copy_topics(shop, target, ["orders"], entry=first.entry).is_complete


def test_an_older_entry_than_an_unfinished_copy_has_is_refused(
    shop: Store, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoint may be in the root already: a process would open it as the newest."""
    entry = shop.view().entry
    trade(shop, 1)
    with monkeypatch.context() as patch:
        patch.setattr(copytarget.CopyTarget, "put", lambda *_: (_ for _ in ()).throw(StoreUnavailable("killed")))
        with pytest.raises(StoreUnavailable, match="killed"):
            copy_topics(shop, target, ["orders"])
    with pytest.raises(
        ConfigurationError, match=f"unfinished copy of entry {entry + 2}, and this one is of entry {entry}"
    ):
        copy_topics(shop, target, ["orders"], entry=entry)


def test_whole_copies_and_others_are_left_as_they_are(shop: Store, target: str) -> None:
    with Store.open(f"{target}-own", create=True):
        pass
    copy_store(shop, f"{target}-whole")
    objects_of(f"{target}-rest", {}).put_if_absent(names.entry(1), b"{}")
    for uri, reason in {
        shop.uri: "is the store",
        f"{target}-own": "is a store of its own",
        f"{target}-whole": "is a copy of all topics",
        f"{target}-rest": "no document of one",
    }.items():
        before = objects(uri)
        for dry_run in (True, False):
            with pytest.raises(ConfigurationError, match=reason):
                copy_topics(shop, uri, ["orders"], dry_run=dry_run)
        assert objects(uri) == before


def test_wrong_topics_and_entries_are_named_and_nothing_is_written(shop: Store, target: str) -> None:
    with pytest.raises(ConfigurationError, match="topics is empty"):
        copy_topics(shop, target, [])
    with pytest.raises(ConfigurationError, match="'__consumer_offsets' is internal"):
        copy_topics(shop, target, ["orders", "__consumer_offsets"])
    with pytest.raises(CommandRefused, match="did you mean 'orders'") as refused:
        copy_topics(shop, target, ["order"])
    assert refused.value.error.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(CommandRefused, match="there is no entry 9999"):
        copy_topics(shop, target, ["orders"], entry=9999)
    for _ in range(3):
        trade(shop, 6)
        settle(shop)
    assert vacuum(shop, EVERYTHING).horizon > 5
    with pytest.raises(ViewExpired):
        copy_topics(shop, target, ["orders"], entry=5)
    assert objects(target) == {}


def test_a_topic_that_was_created_again_is_another_one(
    shop: Store, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(copytarget.CopyTarget, "hint", lambda *_: (_ for _ in ()).throw(StoreUnavailable("killed")))
        with pytest.raises(StoreUnavailable, match="killed"):
            copy_topics(shop, target, ["orders"])
    with AdminClient({"bootstrap.servers": shop.uri, **OPTIONS}) as admin:
        admin.delete_topics(["orders"])["orders"].result()
    shop.create_topic("orders", 2)
    with pytest.raises(ConfigurationError, match=r"'orders' \(id 1\), and this one is of topics 'orders' \(id 3\)"):
        copy_topics(shop, target, ["orders"])


def test_a_topic_of_which_nothing_was_written(target: str) -> None:
    """The log has one entry: the copy begins with entry 2, as a log from entry 1 on is replayed from there."""
    with Store.open(f"memory://shop-{next_number()}", options=OPTIONS, create=True) as store:
        store.create_topic("orders", 2)
        assert store.view().entry == 1
        for dry_run in (True, False):
            report = copy_topics(store, target, ["orders"], dry_run=dry_run)
        assert (report.horizon, report.entry) == (2, 2)
        assert copy_topics(store, target, ["orders"]).objects == 0
    with Store.open(target, options=OPTIONS) as copy:
        assert verify(copy).problems == ()
        trade(copy, 4)
        assert len(rows(copy, "orders")) == 6
        settle(copy)
        vacuum(copy, EVERYTHING)
        assert verify(copy).problems == ()


def test_tasks_run_in_other_processes(shop: Store, target: str) -> None:
    done: list[int] = []

    def run(work: Any, tasks: Any) -> Any:
        for task in pickle.loads(pickle.dumps(list(tasks))):
            done.append(len(task.objects) + len(task.existing))
            yield pickle.loads(pickle.dumps(work(task)))

    report = copy_topics(shop, target, ["orders"], run=run)
    assert 0 < sum(done) < report.objects
    with Store.open(target, options=OPTIONS) as copy:
        assert rows(copy, "orders") == rows(shop, "orders")


def test_a_vacuum_that_passes_makes_it_begin_again(shop: Store, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original, passed = plan_topic_copy, list[int]()
    times = 1

    def plan(*arguments: Any) -> Any:
        found = original(*arguments)
        if len(passed) < times:
            passed.append(found.entry)
            for _ in range(3):
                trade(shop, 6)
                settle(shop)
            assert vacuum(shop, EVERYTHING).horizon > found.entry
        return found

    monkeypatch.setattr(topiccopy, "plan_topic_copy", plan)
    report = copy_topics(shop, target, ["orders"])
    assert len(passed) == 1
    assert report.horizon > passed[0]
    with Store.open(target, options=OPTIONS) as copy:
        assert rows(copy, "orders") == rows(shop, "orders")
        assert verify(copy).problems == ()
    times = 9
    with pytest.raises(StoreUnavailable, match="came first"):
        copy_topics(shop, f"{target}-2", ["orders"])


def test_a_vacuum_that_deletes_what_is_being_copied(shop: Store, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = MemoryStore.get, list[str]()

    def get(self: MemoryStore, name: str) -> bytes | None:
        if self.uri == shop.uri and name.endswith(".parquet") and not calls:
            calls.append(name)
            with AdminClient({"bootstrap.servers": shop.uri, **OPTIONS}) as admin:
                for future in admin.delete_records([TopicPartition("orders", 0, -1)]).values():
                    future.result()
            for _ in range(2):
                for _ in range(3):
                    trade(shop, 6)
                    settle(shop)
                vacuum(shop, EVERYTHING)
            # As a vacuum deletes it once no upload can be as old.
            self.delete([name])
        return original(self, name)

    monkeypatch.setattr(MemoryStore, "get", get)
    report = copy_topics(shop, target, ["orders"], threads=1)
    assert not [name for name in objects(target) if name == calls[0]]
    assert report.is_complete
    with Store.open(target, options=OPTIONS) as copy:
        assert rows(copy, "orders") == rows(shop, "orders")
        assert verify(copy).problems == ()


@pytest.mark.parametrize("kind", ["segment", "manifest", "txnindex", "carrier"])
@pytest.mark.parametrize("damage", ["altered", "missing"])
def test_damage_in_the_source_stops_a_copy_and_is_named(shop: Store, target: str, kind: str, damage: str) -> None:
    copy_topics(shop, f"{target}-whole", ["orders"])
    source, of = shop.log.objects, objects(f"{target}-whole")
    newest = shop.view().entry
    (name, *_) = [name for name in of if _kind(name) == kind and names.parse_entry(name) != newest]
    data = source.get(name)
    assert data is not None
    source.delete([name])
    if damage == "altered":
        source.put(name, data[:-2] + bytes([data[-2] ^ 1]) if kind == "txnindex" else data[:8] + b"\xff" + data[9:])
    with pytest.raises(DamagedObject) as found:
        copy_topics(shop, target, ["orders"])
    assert found.value.object_name == name
    with pytest.raises(StoreNotFound):
        Store.open(target)
    source.delete([name])
    source.put(name, data)
    assert copy_topics(shop, target, ["orders"]).is_complete
    with Store.open(target, options=OPTIONS) as copy:
        assert rows(copy, "orders") == rows(shop, "orders")


def _kind(name: str) -> str:
    if names.parse_entry(name):
        return "carrier"
    if name.endswith("/manifest"):
        return "manifest"
    if name.endswith(".txnindex"):
        return "txnindex"
    return "segment" if name.endswith(".parquet") and name.startswith(names.TOPICS) else ""


def test_half_messages_that_were_committed_are_records_and_others_are_left_out(shop: Store, target: str) -> None:
    engine = HalfEngine(HalfMessageSettings.parse({"bootstrap.servers": shop.uri, **shop.options}))
    deadline = engine.deadline()
    for name in ("committed", "pending"):
        messages = [MessageRecord(topic, name.encode(), "id", 1) for topic in ("orders", "trips")]
        staged = engine.stage(messages, deadline)
        assert staged.records
        engine.prepare("shop", name, staged, 6_000, deadline)
    engine.end("shop", "committed", deadline, committed=True)
    engine.close()
    horizon = 0
    for _ in range(4):
        trade(shop, 3)
        settle(shop)
        horizon = vacuum(shop, EVERYTHING).horizon
    copy_topics(shop, target, ["orders"])
    with Store.open(target, options=OPTIONS) as copy:
        assert verify(copy).problems == ()
        assert list(copy.log.halves()) == []
        values = [value for _, _, value, _ in rows(copy, "orders")]
        carriers = [names.parse_entry(name) for name in objects(target)]
    assert [values.count(name) for name in (b"committed", b"pending")] == [1, 0]
    assert [number for number in carriers if number is not None and number < horizon]


def test_a_rewritten_and_compacted_topic_and_a_typed_one(target: str) -> None:
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    with Store.open(f"memory://shop-{next_number()}", options=OPTIONS, create=True) as store:
        store.create_topic("orders", 1, settings=settings)
        store.create_topic("typed", 1, schema=schema)
        for number in range(6):
            with Producer({"bootstrap.servers": store.uri, **OPTIONS}) as producer:
                for key in range(number, number + 4):
                    producer.produce("orders", b"%d" % number, b"%d" % key)
                    producer.flush()
            plan = store.stage_plan(["typed"])
            stager = plan.open(seed=number, default_topic="typed")
            stager.write(pa.record_batch([pa.array([number], pa.int64())], schema=schema))
            store.commit(stager.finish())
            compact(store)
            if number % 2:
                settle(store)
                rewrite(store, {"rewrite.min.segments": 2})
        copy_topics(store, target, ["orders", "typed"])
        with Store.open(target, options=OPTIONS) as copy:
            assert verify(copy).problems == ()
            assert copy.view().topics == store.view().topics
            for topic in ("orders", "typed"):
                assert rows(copy, topic) == rows(store, topic)
            trade_one = {"bootstrap.servers": target, **OPTIONS}
            with Producer(trade_one) as producer:
                producer.produce("orders", b"last", b"3")
            compact(copy)
            assert [value for _, _, value, key in rows(copy, "orders") if key == b"3"] == [b"last"]
            assert verify(copy).problems == ()


def test_a_copy_of_topics_is_copied_on(shop: Store, target: str) -> None:
    copy_topics(shop, target, ["orders", "trips"])
    with Store.open(target, options=OPTIONS) as copy:
        trade(copy, 3)
        settle(copy)
        copy_store(copy, f"{target}-whole")
        copy_topics(copy, f"{target}-one", ["orders"])
        trade(copy, 1)
        copy_store(copy, f"{target}-whole")
        expected = rows(copy, "orders")
    with Store.open(f"{target}-whole", options=OPTIONS) as whole:
        assert rows(whole, "orders") == expected
        assert verify(whole).problems == ()
    with Store.open(f"{target}-one", options=OPTIONS) as one:
        assert rows(one, "orders") == expected[: len(rows(one, "orders"))] or set(rows(one, "orders")) < set(expected)
        assert verify(one).problems == ()


def test_on_real_stores_to_and_fro(shop: Store, root: tuple[str, dict[str, Any]], target: str) -> None:
    uri, options = root
    expected, entry = rows(shop, "orders"), shop.view().entry
    report = copy_topics(shop, uri, ["orders"], target_options=options)
    assert (report.is_complete, report.entry) == (True, entry)
    trade_both(shop, 2)
    again = copy_topics(shop, uri, ["orders"], entry=entry, target_options=options)
    assert (again.is_complete, again.objects) == (True, 0)
    with Store.open(uri, options=options) as copy:
        assert verify(copy).problems == ()
        assert rows(copy, "orders") == expected
        copy_topics(copy, target, ["orders"])
    with Store.open(target, options=OPTIONS) as back:
        assert verify(back).problems == ()
        assert rows(back, "orders") == expected


@pytest.mark.parametrize("part", [0.0, 0.3, pytest.param(0.7, marks=pytest.mark.nightly), 1.0])
# To die before an operation is to die after the one before it.
@pytest.mark.parametrize("fault", [pytest.param(Fault.DIE_BEFORE, marks=pytest.mark.nightly), Fault.DIE_AFTER])
def test_a_copy_to_a_real_store_that_was_killed_is_finished_by_the_next(
    shop: Store, root: tuple[str, dict[str, Any]], fault: Fault, part: float
) -> None:
    """It is no store until then. The next call is of a newer view, for the source has gone on."""
    uri, options = root
    deadline = Deadline(SystemClock(), 60)
    work = Work(shop, StoreOptions(options), 1, None, deadline)

    def copied(to: str, at: int) -> FaultyStore:
        objects = FaultyStore(objects_of(to, options), at_operation(at, fault))
        TopicCopying(shop.log, objects, ("orders",), None, deadline, work, None).run()
        return objects

    last = copied(f"{uri}-whole", 0).operations[-1].number
    with pytest.raises(Died):
        copied(uri, max(1, round(last * part)))
    if fault is Fault.DIE_BEFORE or part < 1:
        with pytest.raises((StoreNotFound, DamagedObject, ConfigurationError)):
            Store.open(uri, options=options)
        trade_both(shop, 2)
    report = copy_topics(shop, uri, ["orders"], target_options=options)
    assert (report.is_complete, report.entry) == (True, shop.view().entry)
    with Store.open(uri, options=options) as copy:
        assert verify(copy).problems == ()
        assert rows(copy, "orders") == rows(shop, "orders")
        assert committed(copy, "orders", **options) == committed(shop, "orders")


def test_on_a_disk(shop: Store, tmp_path: Path) -> None:
    copy_topics(shop, str(tmp_path / "copy"), ["orders"], target_options={"store.fsync": "false"}, threads=3)
    with Store.open(str(tmp_path / "copy"), options=OPTIONS) as copy:
        assert rows(copy, "orders") == rows(shop, "orders")
        assert verify(copy).problems == ()


def test_an_entry_that_carries_records_has_no_others(shop: Store, target: str) -> None:
    copy_topics(shop, target, ["orders"])
    topic_id = shop.view(["orders"]).topics["orders"].topic_id
    carried = 0
    for name, data in objects(target).items():
        if (number := names.parse_entry(name)) is not None and data is not None:
            entry = decode_entry(data, name, number)
            assert {getattr(command, "topic_id", topic_id) for command in entry.commands} == {topic_id}
            carried += len(entry.commands)
    assert carried > 3
