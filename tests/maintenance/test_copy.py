"""A copy of a store reads as its source does, and is refused where it would not."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparktxn import ConfigurationError, Consumer, Producer, TopicPartition, read_task
from sparktxn._engine.format import names
from sparktxn._engine.format.commands import EndHalf
from sparktxn._engine.format.entry import seal_document
from sparktxn._engine.log.follow.checkpointheads import newest_copy
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._kafka.settings.halfmessage import HalfMessageSettings
from sparktxn.admin import AdminClient
from sparktxn.errors import DamagedObject, StoreNotFound, StoreUnavailable
from sparktxn.halfmessage.engine import HalfEngine
from sparktxn.halfmessage.records import MessageRecord
from sparktxn.maintenance import CopiedObjects, CopyTask, compact, copy_store, rewrite, run_copy_task, vacuum, verify
from sparktxn.maintenance.copying import storecopy
from sparktxn.maintenance.copying.storecopy import Copying, CopyPlan, plan_copy
from sparktxn.store import Store
from sparktxn.store.registry import objects_of
from tests.compatibility.make_golden import contents
from tests.compatibility.workload import written
from tests.world import next_number

OPTIONS = {"store.fsync": "false", "checkpoint.entries": "4", "checkpoint.seal.segments": "2"}
FILES = {"store.append.inline.bytes": "0"}
EVERYTHING = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.temporary.age.ms": 3_600_000}


def trade(store: Store, transactions: int, **settings: Any) -> None:
    """Transactions over two partitions, of which every third is aborted after it was published."""
    given = {"bootstrap.servers": store.uri, **store.options, "transactional.id": "shop"}
    with Producer(given | settings) as producer:
        producer.init_transactions()
        for number in range(transactions):
            producer.begin_transaction()
            for partition in range(2):
                producer.produce("orders", b"%d" % number, partition=partition)
            if number % 3 == 2:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()


def settle(store: Store) -> None:
    store.log.refresh()
    store.log.checkpoint()
    assert store.log.background.wait(60)  # type: ignore[attr-defined]  # checkpoints that are being made


@pytest.fixture
def shop() -> Iterator[Store]:
    with Store.open(f"memory://copied-{next_number()}", options=OPTIONS, create=True) as store:
        store.create_topic("orders", 2)
        trade(store, 6, **FILES)
        trade(store, 6)
        settle(store)
        yield store


@pytest.fixture
def target() -> str:
    return f"memory://target-{next_number()}"


def objects(uri: str) -> dict[str, bytes | None]:
    store = objects_of(uri, {})
    return {info.name: store.get(info.name) for info in store.list("")}


def records(uri: str, **options: Any) -> list[tuple[int, int, bytes]]:
    """(partition, offset, value) of the committed records."""
    with Store.open(uri, options=options) as store:
        view = store.view(["orders"])
        tasks = store.plan(view, store.ranges(view))
        rows = [row for task in tasks for batch in read_task(task, store.options) for row in batch.to_pylist()]
    return [(row["partition"], row["offset"], row["value"]) for row in rows]


def test_a_store_with_every_command_is_copied_whole(target: str) -> None:
    source = f"memory://copied-{next_number()}"
    with written(source, {"checkpoint.entries": 16, "checkpoint.seal.segments": 4}, 6):
        with Store.open(source) as store:
            report = copy_store(store, target)
        assert contents(target) == contents(source)
        with Store.open(target) as copy:
            assert verify(copy).problems == ()
            assert (copy.store_id, report.entry) == (report.store_id, copy.view().entry)


def test_a_copy_is_complete_though_the_store_refuses_its_hint(
    shop: Store, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: MemoryStore, name: str, data: bytes) -> None:
        raise StoreUnavailable("rateLimitExceeded (HTTP 429)")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "put", refuse)
        report = copy_store(shop, target)
    assert objects_of(target, {}).get(names.LAST_CHECKPOINT) is None
    assert records(target) == records(shop.uri)
    assert copy_store(shop, target).entry == report.entry
    assert objects_of(target, {}).get(names.LAST_CHECKPOINT) is not None, "the next copy writes it"


def test_on_real_stores_to_and_fro(shop: Store, root: tuple[str, dict[str, Any]], target: str) -> None:
    uri, options = root
    first = copy_store(shop, uri, target_options=options)
    trade(shop, 3)
    second = copy_store(shop, uri, target_options=options)
    assert first.entry < second.entry
    assert 0 < second.objects < first.objects
    with Store.open(uri, options=options) as copy:
        assert verify(copy).problems == ()
        copy_store(copy, target)
    assert records(target) == records(uri, **options) == records(shop.uri)


def test_tasks_run_in_other_processes(shop: Store, target: str) -> None:
    done: list[int] = []

    def run(work: Callable[[Any], Any], tasks: Any) -> Any:
        assert "secret" not in repr(work)
        assert "secret" not in repr(tasks)
        for task in pickle.loads(pickle.dumps(list(tasks))):
            done.append(len(task.objects) + len(task.existing))
            yield pickle.loads(pickle.dumps(work(task)))

    progress: list[tuple[int, int]] = []
    report = copy_store(shop, target, run=run, on_progress=lambda *at: progress.append(at))
    assert report.objects == sum(done)
    assert progress[-1] == (report.objects, report.objects)
    assert records(target) == records(shop.uri)
    wrong: Any = [1]
    with pytest.raises(TypeError, match="what run returns"):
        copy_store(shop, f"{target}-2", run=lambda work, tasks: wrong)


def test_what_is_there_is_read_back_and_not_copied_again(
    shop: Store, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(storecopy.CopyTarget, "hint", lambda *_: (_ for _ in ()).throw(StoreUnavailable("killed")))
        with pytest.raises(StoreUnavailable, match="killed"):
            copy_store(shop, target)
    with pytest.raises(StoreNotFound, match="unfinished copy"):
        Store.open(target, create=True)
    found = objects(target)
    trade(shop, 1)
    report = copy_store(shop, target)
    assert report.existing == len([name for name in found if not name.startswith((names.COPIES, names.STORE))])
    assert {name: objects(target)[name] for name in found} == found
    assert records(target) == records(shop.uri)


def test_damage_in_the_target_is_found_when_a_copy_goes_on(
    shop: Store, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(storecopy.CopyTarget, "hint", lambda *_: (_ for _ in ()).throw(StoreUnavailable("killed")))
        with pytest.raises(StoreUnavailable):
            copy_store(shop, target)
    inner = objects_of(target, {})
    for prefix in (names.TOPICS, names.CHECKPOINTS, names.ENTRIES):
        name = inner.list(prefix)[0].name
        data = inner.get(name)
        assert data is not None
        inner.put(name, data[:-3] + b"!" + data[-2:])
        with pytest.raises(DamagedObject, match="delete it there, and copy again") as damaged:
            copy_store(shop, target)
        assert damaged.value.object_name == name
        with pytest.raises(StoreNotFound, match="unfinished copy"):
            Store.open(target)
        inner.delete([name])
    copy_store(shop, target)
    assert records(target) == records(shop.uri)


@pytest.mark.parametrize("kind", ["segment", "manifest", "entry", "snapshot"])
@pytest.mark.parametrize("damage", ["altered", "cut off", "missing"])
def test_damage_in_the_source_stops_a_copy_and_is_named(shop: Store, target: str, kind: str, damage: str) -> None:
    source = shop.log.objects
    (name, *_) = [info.name for info in source.list("") if _kind(info.name) == kind]
    data = source.get(name)
    assert data is not None
    source.delete([name])
    if damage != "missing":
        source.put(name, data[:-3] if damage == "cut off" else data[:8] + bytes([data[8] ^ 1]) + data[9:])
    if kind == "manifest":
        # Only checkpoints name it, and readers skip one that is damaged.
        copy_store(shop, target)
        with Store.open(target) as copy:
            assert verify(copy).problems == ()
        return
    with pytest.raises(DamagedObject) as found:
        copy_store(shop, target)
    assert found.value.object_name == name
    if objects_of(target, {}).get(names.STORE) is None:
        assert kind == "entry", "nothing is written before the log is replayed"
        return
    with pytest.raises(StoreNotFound, match="unfinished copy"):
        Store.open(target)
    source.delete([name])
    source.put(name, data)
    copy_store(shop, target)
    assert records(target) == records(shop.uri)


def _kind(name: str) -> str:
    if name.endswith(".snapshot"):
        return "snapshot"
    if names.parse_entry(name):
        return "entry"
    if name.endswith("/manifest"):
        return "manifest"
    return "segment" if name.endswith(".parquet") and name.startswith(names.TOPICS) else ""


def test_a_vacuum_that_passes_makes_it_begin_again(shop: Store, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt keeps what the one before has copied; a view that is passed each time is not damage."""
    original, passed = plan_copy, list[int]()
    times = 1

    def plan(objects: ObjectStore, horizon: int, entry: int) -> Any:
        found = original(objects, horizon, entry)
        if len(passed) < times:
            passed.append(entry)
            for _ in range(3):
                trade(shop, 6)
                settle(shop)
            assert vacuum(shop, EVERYTHING).horizon > entry
        return found

    monkeypatch.setattr(storecopy, "plan_copy", plan)
    report = copy_store(shop, target)
    assert len(passed) == 1
    assert report.horizon > passed[0]
    assert records(target) == records(shop.uri)
    with Store.open(target) as copy:
        assert verify(copy).problems == ()
    times, target = 9, f"{target}-2"
    with pytest.raises(StoreUnavailable, match="came first"):
        copy_store(shop, target)


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
    report = copy_store(shop, target, threads=1)
    assert not [name for name in objects(target) if name == calls[0]]
    assert report.is_complete
    assert records(target) == records(shop.uri)
    with Store.open(target) as copy:
        assert verify(copy).problems == ()


def test_while_others_write_rewrite_and_vacuum(tmp_path: Path) -> None:
    uri, ended = str(tmp_path / "shop"), threading.Event()
    with Store.open(uri, options=OPTIONS, create=True) as store:
        store.create_topic("orders", 2)
        trade(store, 12)

        def work() -> None:
            with Store.open(uri, options=OPTIONS | {"checkpoint.entries": "5"}) as other:
                while not ended.is_set():
                    trade(other, 6)
                    settle(other)
                    rewrite(other, {"rewrite.min.segments": 2})
                    vacuum(other, EVERYTHING)

        worker = threading.Thread(target=work)
        worker.start()
        copies = []
        try:
            for number in range(6):
                target = str(tmp_path / f"copy-{number}")
                try:
                    report = copy_store(store, target, target_options={"store.fsync": "false"}, threads=4)
                except StoreUnavailable as busy:
                    assert "came first" in str(busy)  # noqa: PT017
                    continue
                copies.append((target, report.entry))
        finally:
            ended.set()
            worker.join()
        assert copies
        newest = records(uri, **OPTIONS)
        for target, entry in copies:
            with Store.open(target) as copy:
                assert copy.view().entry == entry
                assert verify(copy).problems == ()
            found = records(target)
            assert found == [row for row in newest if row in found]


def test_two_copies_to_one_root(shop: Store, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that begins last finishes; the other finds that, and brings the copy forward."""
    original, others = storecopy.CopyTarget.hint, list[Any]()

    def hint(self: storecopy.CopyTarget, head: Any) -> None:
        if not others:
            others.append(None)
            trade(shop, 3)
            others[0] = copy_store(shop, target)
            trade(shop, 3)
        original(self, head)

    monkeypatch.setattr(storecopy.CopyTarget, "hint", hint)
    report = copy_store(shop, target)
    assert report.store_id == others[0].store_id
    assert report.entry > others[0].entry
    assert records(target) == records(shop.uri)
    newest = newest_copy(objects_of(target, {}))
    assert newest is not None
    assert (newest.complete, newest.entry) == (True, report.entry)


def test_an_entry_of_its_own_between_check_and_put_is_never_replaced(
    shop: Store, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_store(shop, target)
    trade(shop, 3)
    original, written = storecopy.Copying._put_next, list[int]()

    def put_next(self: storecopy.Copying, each: Any) -> None:
        if len(written) < 2:
            written.append(each.entry)
            if len(written) == 2:
                with Producer({"bootstrap.servers": target}) as producer:
                    producer.produce("orders", b"of the copy", partition=0)
                    producer.flush()
        original(self, each)

    monkeypatch.setattr(storecopy.Copying, "_put_next", put_next)
    with pytest.raises(ConfigurationError, match="was written to"):
        copy_store(shop, target)
    assert b"of the copy" in [value for _, _, value in records(target)]
    with Store.open(target) as copy:
        assert verify(copy).problems == ()


def test_a_vacuum_of_what_the_copy_has_lets_it_go_on(shop: Store, target: str) -> None:
    """The source's log begins later than the copy's then."""
    copied = copy_store(shop, target)
    assert vacuum(shop, EVERYTHING).horizon > copied.horizon
    trade(shop, 6)
    assert copy_store(shop, target).entry > copied.entry
    assert records(target) == records(shop.uri)
    with Store.open(target) as copy:
        assert verify(copy).problems == ()


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_copy_that_is_left_behind_while_it_is_brought_forward_is_refused(
    shop: Store, target: str, monkeypatch: pytest.MonkeyPatch, *, dry_run: bool
) -> None:
    """The vacuum passes after the copy's end was checked. The copy had a gap, and was reported as whole."""
    copy_store(shop, target)
    before = objects(target)
    checked_end = Copying._checked_end

    def then_vacuumed(*arguments: Any) -> int:
        end = checked_end(*arguments)
        for _ in range(3):
            trade(shop, 6)
            settle(shop)
        vacuum(shop, EVERYTHING)
        return end

    monkeypatch.setattr(Copying, "_checked_end", then_vacuumed)
    with pytest.raises(ConfigurationError, match="has deleted the entries before"):
        copy_store(shop, target, dry_run=dry_run)
    assert objects(target) == before


def test_a_copy_that_was_left_behind_is_refused(shop: Store, target: str) -> None:
    copy_store(shop, target)
    for _ in range(3):
        trade(shop, 6)
        settle(shop)
    vacuum(shop, EVERYTHING)
    before = objects(target)
    with pytest.raises(ConfigurationError, match="has deleted the entries before"):
        copy_store(shop, target)
    assert objects(target) == before


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_vacuum_that_passes_a_plan_makes_it_anew(
    shop: Store, target: str, monkeypatch: pytest.MonkeyPatch, *, dry_run: bool
) -> None:
    plans = []

    def then_vacuumed(*arguments: Any) -> CopyPlan:
        plans.append(plan_copy(*arguments))
        if len(plans) == 1:
            trade(shop, 6)
            settle(shop)
            vacuum(shop, EVERYTHING)
        return plans[-1]

    monkeypatch.setattr(storecopy, "plan_copy", then_vacuumed)
    report = copy_store(shop, target, dry_run=dry_run)
    assert [plan.horizon < plans[1].horizon for plan in plans] == [True, False]
    assert (report.horizon, report.entry) == (plans[1].horizon, plans[1].entry)


def test_other_targets_are_refused_and_left_as_they_are(shop: Store, target: str) -> None:
    with Store.open(f"{target}-own", create=True):
        pass
    copy_store(shop, f"{target}-copy")
    with Store.open(f"{target}-copy") as copy:
        copy_store(copy, f"{target}-second")
    objects_of(f"{target}-rest", {}).put_if_absent(names.entry(1), b"{}")
    for uri, reason in {
        shop.uri: "is the store",
        f"{target}-own": "is a store of its own",
        f"{target}-second": "is a copy of the store with the id",
        f"{target}-rest": "no document of one",
    }.items():
        before = objects(uri)
        for dry_run in (True, False):
            with pytest.raises(ConfigurationError, match=reason):
                copy_store(shop, uri, dry_run=dry_run)
        assert objects(uri) == before


def test_a_dry_run_writes_nothing(shop: Store, target: str) -> None:
    report = copy_store(shop, target, dry_run=True)
    assert objects(target) == {}
    done = copy_store(shop, target)
    assert (done.objects, done.size_bytes) == (report.objects, report.size_bytes)
    copied = {name: data for name, data in objects(target).items() if not name.startswith((names.COPIES, names.STORE))}
    copied.pop(names.LAST_CHECKPOINT)
    assert done.size_bytes == sum(len(data or b"") for data in copied.values())


def test_a_compacted_topic_at_every_entry(target: str) -> None:
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    seen: dict[int, list[tuple[int, int, bytes]]] = {}
    with Store.open(f"memory://copied-{next_number()}", options=OPTIONS, create=True) as store:
        store.create_topic("orders", 1, settings=settings)
        for number in range(5):
            with Producer({"bootstrap.servers": store.uri, **OPTIONS}) as producer:
                for key in range(number, number + 4):
                    producer.produce("orders", b"%d" % number, b"%d" % key)
                    producer.flush()
            compact(store)
            if number == 2:
                settle(store)
                rewrite(store, {"rewrite.min.segments": 2})
                copy_store(store, target)
            seen[store.view().entry] = records(store.uri)
        settle(store)
        report = copy_store(store, target)
    assert len({len(rows) for rows in seen.values()}) > 1
    with Store.open(target) as copy:
        assert verify(copy).problems == ()
        assert report.entry == copy.view().entry
        for entry, rows in seen.items():
            view = copy.view(["orders"], entry=entry)
            tasks = copy.plan(view, copy.ranges(view))
            found = [row for task in tasks for batch in read_task(task) for row in batch.to_pylist()]
            assert [(row["partition"], row["offset"], row["value"]) for row in found] == rows


def test_signs_of_life_and_intents_stay_with_the_source(shop: Store, target: str) -> None:
    source = shop.log.objects
    source.put(names.member_sign("group", "member"), b"x")
    source.put(names.intent(1, "0" * 20), b"x")
    copy_store(shop, target)
    assert not [name for name in objects(target) if name.startswith((names.GROUPS, names.INTENTS, names.CLOCKS))]


def test_half_messages_that_entries_below_the_horizon_carry_are_copied(shop: Store, target: str) -> None:
    """Also that of a half transaction which is committed in the copy only."""
    engine = HalfEngine(HalfMessageSettings.parse({"bootstrap.servers": shop.uri, **shop.options}))
    for name in ("committed", "pending"):
        staged = engine.stage([MessageRecord("orders", name.encode(), "id", 1)])
        assert staged.records
        engine.prepare("shop", name, staged, 6_000)
    engine.end("shop", "committed", committed=True)
    engine.close()
    horizon = 0
    for _ in range(4):
        trade(shop, 3)
        settle(shop)
        horizon = vacuum(shop, EVERYTHING).horizon
    (pending,) = shop.log.halves()
    assert 0 < (names.parse_carrier(pending.segments[0].segment) or 0) < horizon
    copy_store(shop, target)
    with Store.open(target, options=OPTIONS) as copied:
        assert verify(copied).problems == ()
        copied.log.submit([EndHalf("shop", "pending", True)])
        values = [value for _, _, value in records(target)]
    assert [values.count(name) for name in (b"committed", b"pending")] == [1, 1]


def test_one_task_is_done_in_any_process(shop: Store, target: str) -> None:
    tasks: list[CopyTask] = []

    def lose(work: Any, some: Sequence[CopyTask]) -> list[CopiedObjects]:
        tasks.extend(some)
        return []

    with pytest.raises(ConfigurationError, match="results for 0 objects: expected"):
        copy_store(shop, target, run=lose)
    with pytest.raises(StoreNotFound):
        Store.open(target)
    done = [run_copy_task(task, shop.options, {}) for task in tasks]
    assert sum(each.objects for each in done) > 10


def test_a_copy_of_some_topics_of_an_earlier_version_is_a_store_and_no_older_copy(shop: Store, target: str) -> None:
    """Its log begins with a checkpoint of its own: with the source's entries it would be no state of anything."""
    copy_store(shop, target)
    objects = objects_of(target, {})
    newest = newest_copy(objects)
    assert newest is not None
    some = {name: getattr(newest, name) for name in newest.__struct_fields__ if name != "checksum"}
    document = msgspec.json.encode(some | {"copy": newest.copy + 1, "topics": {"orders": 1}})
    objects.put_if_absent(names.copy(newest.copy + 1), seal_document(document)[0])
    before = _objects_in(objects)
    for dry_run in (True, False):
        with pytest.raises(ConfigurationError, match="a copy of 'orders' alone, which an earlier version has made"):
            copy_store(shop, target, dry_run=dry_run)
    assert _objects_in(objects) == before
    with Store.open(target) as copied:
        assert _records(copied, "orders") == _records(shop, "orders")


def _objects_in(objects: ObjectStore) -> dict[str, bytes | None]:
    return {info.name: objects.get(info.name) for folder in (names.LOG, names.TOPICS) for info in objects.list(folder)}


def test_a_copy_of_some_topics_is_a_copy_without_the_others(tmp_path: Path) -> None:
    """As docs/operations.md says: offsets, producers and groups of what stays are those of the source."""
    with Store.open(str(tmp_path / "source"), options=OPTIONS, create=True) as source:
        source.create_topic("orders", 2)
        source.create_topic("trips", 2)
        trade(source, 12, **FILES)
        given = {"bootstrap.servers": source.uri, **OPTIONS, **FILES, "transactional.id": "both"}
        with Producer(given) as producer, Consumer({**given, "group.id": "readers"}) as consumer:
            producer.init_transactions()
            with producer.transaction():
                producer.produce("orders", "of both", partition=0)
                producer.produce("trips", "of both", partition=0)
                positions = [TopicPartition("orders", 0, 3)]
                producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
        expected = _records(source, "orders")
        copy_store(source, str(tmp_path / "copy"))
    with Store.open(str(tmp_path / "copy"), options=OPTIONS) as copied:
        with AdminClient({"bootstrap.servers": copied.uri, **OPTIONS}) as admin:
            admin.delete_topics(["trips"])["trips"].result()
        for number in range(12):
            copied.create_topic(f"later-{number}", 1)
            settle(copied)  # the horizon comes after the deletion only if a checkpoint does
        vacuum(copied, {**EVERYTHING, "vacuum.temporary.age.ms": 0})
        assert _records(copied, "orders") == expected
        report = verify(copied)
        assert report.problems == ()
        assert report.unreferenced, "the vacuum deletes the other topics' segments at their age"
        with Consumer({"bootstrap.servers": copied.uri, **OPTIONS, "group.id": "readers"}) as consumer:
            assert consumer.committed([TopicPartition("orders", 0)], 10)[0].offset == 3
        trade(copied, 1)
        assert len(_records(copied, "orders")) == len(expected) + 2, "its producer goes on"


def _records(store: Store, topic: str) -> list[tuple[int, int, bytes]]:
    view = store.view([topic])
    tasks = store.plan(view, store.ranges(view), columns=["partition", "offset", "value"])
    rows = [row for task in tasks for batch in read_task(task, store.options) for row in batch.to_pylist()]
    return sorted((row["partition"], row["offset"], row["value"]) for row in rows)
