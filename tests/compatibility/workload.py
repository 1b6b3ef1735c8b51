"""A store with every kind of command and object in it, written through the product's public calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pyarrow as pa

from sparktxn import Consumer, ConsumerGroupMetadata, PreparedTransaction, Producer, TopicPartition
from sparktxn._engine.format.commands import (
    CancelIntent,
    CheckHalf,
    DeleteHalf,
    DiscardHalf,
    EndHalf,
    ExpireMember,
    ExpireOffsets,
    ExpireProducers,
    ExpireTransactionalId,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetToCommit,
    PrepareHalf,
    ReleasePartitions,
    ResumeHalf,
    SettleIntent,
    TxnOffsetCommit,
    UpdateMember,
    Vacuum,
)
from sparktxn._engine.log.write.transactiontimeouts import Overdue, timeout_abort
from sparktxn._foundation.values.structs import HalfSegment, ProducerState
from sparktxn._kafka.settings.halfmessage import HalfMessageSettings
from sparktxn.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic
from sparktxn.errors import ErrorCode, ProducerFenced
from sparktxn.halfmessage.engine import HalfEngine
from sparktxn.halfmessage.records import MessageRecord
from sparktxn.maintenance import compact, rewrite, sweep
from sparktxn.store import SinkCommit, Store

TYPED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("never", pa.float64()),
        ("day", pa.date32()),
        ("price", pa.decimal128(9, 2)),
        ("local", pa.timestamp("us")),
        ("prices", pa.map_(pa.string(), pa.int64())),
        ("tags", pa.list_(pa.string())),
    ]
)
TOPICS = ("orders", "audit.log", "typed", "again", "prices")
ARROW = {"segment.format": "arrow", "message.timestamp.type": "LogAppendTime"}
COMPACTED = {"cleanup.policy": "compact", "delete.retention.ms": "0", "min.cleanable.dirty.ratio": "0"}
GROUP = "billing"


def _inline_up_to(size_bytes: int) -> dict[str, str]:
    """So few that a topic has files too."""
    return {"append.inline.bytes": str(size_bytes)}


class _Abort(Exception):
    """Ends a transaction."""


def done_partitions(producers: list[ProducerState], producer_id: int) -> list[tuple[int, int]]:
    return [(known.topic_id, known.partition) for known in producers if known.producer_id == producer_id]


class Workload:
    """Writes rounds of transactions; `settings` go to every handle."""

    def __init__(self, uri: str, settings: dict[str, Any]) -> None:
        self.settings = {"bootstrap.servers": uri, **settings}
        self.uri, self.options = uri, settings
        self.admin = AdminClient(self.settings)
        self.producers: list[Producer] = []
        self.rows = 0

    def close(self) -> None:
        for producer in self.producers:
            producer.close()
        self.admin.close()

    def producer(self, transactional_id: str | None = None, **more: Any) -> Producer:
        # Nothing times out while a slow machine reads what the workload has left open.
        named = (
            {}
            if transactional_id is None
            else {"transactional.id": transactional_id, "transaction.timeout.ms": 900_000}
        )
        producer = Producer({**self.settings, **named, **more})
        self.producers.append(producer)
        if transactional_id is not None:
            producer.init_transactions(10)
        return producer

    def settle(self, futures: dict[Any, Any]) -> None:
        for future in futures.values():
            future.result(60)

    def create_topics(self) -> None:
        topics = [
            NewTopic("orders", 3, config=_inline_up_to(30)),
            NewTopic("carried", 1),
            NewTopic("audit.log", 2, config=_inline_up_to(20) | ARROW),
            NewTopic("typed", 2, schema=TYPED, config=_inline_up_to(100) | {"partition.key": "id"}),
            NewTopic("again", 1),
            NewTopic("prices", 2, config=_inline_up_to(40) | COMPACTED),
        ]
        self.settle(self.admin.create_topics(topics))

    def produce(self, producer: Producer, count: int, topic: str = "orders") -> None:
        for _ in range(count):
            self.rows += 1
            headers = [("trace", b"%d" % self.rows), ("none", None)] if self.rows % 3 == 0 else None
            value = None if self.rows % 7 == 0 else f"value {self.rows}"
            key = None if topic == "audit.log" else f"key {self.rows % 11}"
            timestamp = 1_700_000_000_000 + self.rows
            producer.produce(topic, value, key=key, headers=headers, timestamp=timestamp)

    def produce_typed(self, producer: Producer, count: int) -> None:
        numbers = range(self.rows, self.rows + count)
        self.rows += count
        rows: list[dict[str, Any]] = [
            {"id": n, "name": f"n{n}" if n % 4 else None, "tags": ["a", None] if n % 2 else []} for n in numbers
        ]
        for row in rows[::2]:
            row |= {"local": 1_700_000_000_000_000 + self.rows, "prices": [("a", self.rows), ("b", None)]}
        producer.produce_arrow("typed", pa.Table.from_pylist(rows, schema=TYPED))

    def round(self, producer: Producer, *, publish: bool, commit: bool) -> None:
        """One transaction over three topics, published in two steps if `publish`."""
        producer.begin_transaction()
        self.produce(producer, 3)
        if publish:
            producer.flush(10)
        self.produce(producer, 2, "audit.log")
        self.produce_typed(producer, 2)
        if commit:
            producer.commit_transaction(10)
        else:
            producer.abort_transaction(10)

    def interleave(self, one: Producer, other: Producer, plain: Producer) -> None:
        """Two published transactions and loose records side by side in one partition: one commits, one aborts."""
        for producer in (one, other):
            producer.begin_transaction()
        for _ in range(2):
            for producer in (one, other, plain):
                self.produce(producer, 2)
                producer.flush(10)
        other.abort_transaction(10)
        self.produce(plain, 1)
        plain.flush(10)
        one.commit_transaction(10)

    def fence(self, transactional_id: str) -> Producer:
        """A newer producer ends what the older one has published; the older one can change nothing any more."""
        older = self.producer(transactional_id)
        older.begin_transaction()
        self.produce(older, 2)
        older.flush(10)
        newer = self.producer(transactional_id)
        try:
            older.commit_transaction(10)
        except ProducerFenced:
            return newer
        raise AssertionError("the older producer was not fenced")

    def prepare(self, transactional_id: str, *, commit: bool, keep: bool) -> Producer:
        """A prepared transaction, ended by the next producer: kept and completed, or aborted by its init."""
        older = self.producer(transactional_id)
        older.begin_transaction()
        self.produce(older, 2)
        older.flush(10)
        self.produce(older, 1)
        older.send_offsets_to_transaction([TopicPartition("orders", 0, self.rows)], ConsumerGroupMetadata(GROUP), 10)
        prepared = older.prepare_transaction(10)
        newer = Producer({**self.settings, "transactional.id": transactional_id})
        self.producers.append(newer)
        newer.init_transactions(10, keep_prepared=keep)
        if keep:
            newer.complete_transaction(prepared if commit else PreparedTransaction(prepared.producer_id, 9_999), 10)
        with newer.transaction():
            self.produce(newer, 1)
        return newer

    def offsets(self, producer: Producer, offset: int, *, commit: bool) -> None:
        with Consumer({**self.settings, "group.id": GROUP}) as consumer:
            metadata = consumer.consumer_group_metadata()
        producer.begin_transaction()
        self.produce(producer, 1)
        positions = [TopicPartition("orders", 0, offset), TopicPartition("orders", 1, offset + 1)]
        producer.send_offsets_to_transaction(positions, metadata, 10)
        producer.flush(10)
        if commit:
            producer.commit_transaction(10)
        else:
            producer.abort_transaction(10)

    def plain_offsets(self, offset: int) -> None:
        with Consumer({**self.settings, "group.id": GROUP, "enable.auto.commit": False}) as consumer:
            consumer.commit(offsets=[TopicPartition("orders", 2, offset, metadata="by hand")], asynchronous=False)

    def batch(self, writer_id: str, run_id: str, batch_id: int) -> None:
        """One micro-batch of an exactly-once sink."""
        with Store.open(self.uri, options=self.options) as store:
            stager = store.stage_plan(["orders"]).open(seed=batch_id, default_topic="orders")
            stager.write(pa.record_batch({"key": [b"b", b"c"], "value": [b"%d" % batch_id, None]}))
            staged = stager.finish()
            store.commit(staged, transactional_id="sink", sink=SinkCommit(writer_id, run_id, batch_id))

    def halves(self) -> None:
        """Half transactions: committed by their producer and by a check, rolled back, pending, discarded, deleted."""
        with Store.open(self.uri, options=self.options) as store:
            log = store.log
            for name in ("committed", "checked", "rolled back", "pending", "discarded", "deleted", "resumed"):
                stager = store.stage_plan(["orders", "audit.log"]).open(seed=1)
                rows = {"topic": ["orders", "audit.log"], "key": [b"k", None], "value": [name.encode(), b"2"]}
                stager.write(pa.table(rows))
                segments = tuple(
                    HalfSegment(
                        *(
                            staged.topic,
                            staged.topic_id,
                            staged.partition,
                            staged.segment,
                            staged.record_count,
                            staged.size_bytes,
                        ),
                        *(staged.checksum, staged.timestamp_min_ms, staged.timestamp_max_ms),
                    )
                    for staged in stager.finish()
                )
                log.submit([PrepareHalf("shop", name, segments[:1], 6_000)])
                log.submit([PrepareHalf("shop", name, segments, 7_000)])
            log.submit([EndHalf("shop", "committed", True), EndHalf("shop", "rolled back", False)])
            log.submit([CheckHalf("shop", "checked", 0, "checker", 30_000)])
            log.submit([EndHalf("shop", "checked", True, True)])
            discards = [DiscardHalf("shop", name, 0) for name in ("discarded", "deleted", "resumed")]
            log.submit([*discards, DeleteHalf("shop", "deleted"), ResumeHalf("shop", "resumed", 1_000)])
        self._carried_halves()

    def _carried_halves(self) -> None:
        """Half transactions whose entries carry their messages: committed later, in two steps, and pending."""
        engine = HalfEngine(HalfMessageSettings.parse({"bootstrap.servers": self.uri, **self.options}))
        for name in ("carried", "carried and pending"):
            first, second = (engine.stage([MessageRecord(topic, b"c", "id", 1)]) for topic in ("carried", "orders"))
            assert first.records
            engine.prepare("shop", name, first, 6_000)
            engine.prepare("shop", name, second, 6_000, after=first.segments)
        engine.end("shop", "carried", committed=True)
        engine.close()

    def change_settings(self) -> None:
        resource = ConfigResource(ConfigResource.Type.TOPIC, "orders")
        entry = ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
        resource.add_incremental_config(entry)
        store = ConfigResource(ConfigResource.Type.BROKER, "0")
        rejects = ConfigEntry("reject.transaction.message", "false", incremental_operation=AlterConfigOpType.SET)
        store.add_incremental_config(rejects)
        self.settle(self.admin.incremental_alter_configs([resource, store]))

    def change_topics(self) -> None:
        self.change_settings()
        self.settle(self.admin.create_partitions([NewPartitions("orders", 4)]))
        self.settle(self.admin.delete_topics(["again"]))
        self.settle(self.admin.create_topics([NewTopic("again", 2)]))

    def sweep(self) -> None:
        """Transactions that time out, ids and producers that are idle, and what a deleted topic has left behind."""
        late, idle = self.producer("late"), self.producer("idle")
        for producer in (late, idle):
            producer.begin_transaction()
            self.produce(producer, 1)
            producer.flush(10)
        idle.commit_transaction(10)
        with Store.open(self.uri, options=self.options) as store:
            log = store.log
            hung, done = log.transaction("late"), log.transaction("idle")
            assert hung is not None
            assert done is not None
            log.submit([timeout_abort(Overdue(hung, 60_001))])
            log.submit([ExpireTransactionalId("idle", done.producer_id, done.producer_epoch, 1)])
            for topic_id, partition in done_partitions(log.all_producers(), done.producer_id):
                known = log.producer(topic_id, partition, done.producer_id)
                assert known is not None
                seen = (done.producer_id, known.producer_epoch, known.last_sequence, known.coordinator_epoch)
                log.submit([ExpireProducers(topic_id, partition, (seen,))])
            report = sweep(store)
        assert report.expired_producers > 0, "the topic that was deleted has left no producer behind"

    def intents(self) -> None:
        """An intent of another process, one that the state refuses, and one that its owner cancels."""
        with Store.open(self.uri, options=self.options) as store:
            log, topic = store.log, store.log.topic("orders")
            assert topic is not None
            ids = [f"{log.ids.token()}-{index}" for index in range(3)]
            commit = OffsetCommit(log.ids.token(), GROUP, (OffsetToCommit(topic.topic_id, 1, 1),))
            with log.within(10):
                log.submit([SettleIntent(ids[0], log.entry, 1), commit])
            refused = SettleIntent(
                ids[1], log.entry - 1, refused_code=ErrorCode.INVALID_TXN_STATE, reason="out of turn"
            )
            with log.within(10):
                log.submit([refused, CancelIntent(ids[2], log.entry)])

    def join(
        self, store: Store, group_id: str, member_id: str, topics: tuple[str, ...], *, instance_id: str = ""
    ) -> None:
        """A consumer becomes a member of a group."""
        token = store.log.ids.token()
        timeouts_ms = (60_000, 60_000)  # no job of this workload takes one out
        assignors = ("uniform",)
        command = JoinGroup(
            token, group_id, member_id, topics, *timeouts_ms, assignors, True, instance_id, "client", "host"
        )
        with store.log.within(10):
            store.log.submit([command])

    def members(self) -> None:
        """A group with members that come, commit, give back, go and expire; two of them stay."""
        with Store.open(self.uri, options=self.options) as store:
            log, group_id = store.log, "members"

            def submit(*commands: Any) -> None:
                with log.within(10):
                    log.submit(commands)

            join = partial(self.join, store, group_id)

            def epoch(member_id: str) -> int:
                member = log.member(group_id, member_id)
                assert member is not None
                return member.member_epoch

            def release(member_id: str) -> None:
                member = log.member(group_id, member_id)
                assert member is not None
                owed = tuple((held.topic_id, held.partition) for held in member.revoking)
                known = (member.member_epoch, member.changed_entry)
                submit(ReleasePartitions(log.ids.token(), group_id, member_id, *known, owed))

            join("m1", ("again", "orders"), instance_id="static")
            join("m2", ("orders",))
            release("m1")
            topic = log.topic("orders")
            assert topic is not None
            owned = [held for member in log.group_members(group_id) for held in member.assigned]
            offsets = (OffsetToCommit(owned[0].topic_id, owned[0].partition, 0),)
            submit(OffsetCommit(log.ids.token(), group_id, offsets, epoch("m1"), "m1"))
            submit(UpdateMember(log.ids.token(), group_id, "m2", epoch("m2"), ("audit.log", "missing", "orders")))
            submit(LeaveGroup(log.ids.token(), group_id, "m1", keeps_place=True))
            join("m3", ("again", "orders"), instance_id="static")
            join("m4", ("__consumer_offsets", "orders"))
            for member_id in ("m2", "m3", "m4"):
                release(member_id)
            m3 = log.member(group_id, "m3")
            assert m3 is not None
            held = m3.assigned[0]
            producer = self.producer("of a member")
            identity = log.transaction("of a member")
            assert identity is not None
            begun = ("of a member", identity.producer_id, identity.producer_epoch, 1)
            offsets = (OffsetToCommit(held.topic_id, held.partition, 1),)
            submit(TxnOffsetCommit(*begun, group_id, offsets, m3.member_epoch, "m3", instance_id="static"))
            producer.close()
            m4 = log.member(group_id, "m4")
            assert m4 is not None
            submit(ExpireMember(group_id, "m4", m4.member_epoch, m4.last_entry, "session", 60_001))
            self.settle(self.admin.create_topics([NewTopic("missing", 2)]))
            submit(LeaveGroup(log.ids.token(), group_id, "m2"))
            join("m5", ("missing", "orders"))
            self._empty_groups(store, topic.topic_id)

    def _empty_groups(self, store: Store, topic_id: int) -> None:
        """Groups whose members are gone: one keeps its offset, one has a member again, the offsets of two are idle."""
        log = store.log

        def submit(*commands: Any) -> None:
            with log.within(10):
                log.submit(commands)

        offsets = (OffsetToCommit(topic_id, 0, 1), OffsetToCommit(topic_id, 1, 1))
        for group_id in ("empty", "again", "idle", "forgotten"):
            self.join(store, group_id, "gone", ("orders",))
            submit(LeaveGroup(log.ids.token(), group_id, "gone"))
            submit(OffsetCommit(log.ids.token(), group_id, offsets))
        self.join(store, "again", "here", ("orders",))
        since = {group.group_id: group.entry for group in log.empty_groups()}
        for group_id, number in (("idle", 1), ("forgotten", 2), ("again", 2)):
            entry = max(found.effective_entry for found in log.group_offsets(group_id))
            idle = tuple((topic_id, partition, entry) for partition in range(number))
            submit(ExpireOffsets(group_id, idle=idle, empty_entry=since.get(group_id, 0)))
        submit(ExpireOffsets("forgotten", empty_entry=since["forgotten"]))
        assert {group.group_id for group in log.empty_groups()} == {"empty", "idle"}
        assert [len(log.group_offsets(group_id)) for group_id in ("again", "idle", "forgotten")] == [2, 1, 0]

    def raise_floor(self) -> None:
        """A vacuum that is not followed by any deletion: all entries stay, to be replayed."""
        with Store.open(self.uri, options=self.options) as store, store.log.within(10):
            store.log.submit([Vacuum(1, 1)])

    def rewrite(self, topics: str = "", target_bytes: int = 4_096) -> None:
        """A rewrite, after which readers find the same records in fewer files."""
        with Store.open(self.uri, options=self.options) as store:
            given = {"rewrite.topics": topics, "rewrite.target.bytes": target_bytes, "rewrite.min.segments": 2}
            assert rewrite(store, given).ranges > 0

    def prices(self, producer: Producer, topic: str = "prices") -> None:
        """Transactions, one of them aborted; compacted twice, so that tombstones go, merged, and written on."""
        for number in range(9):
            with suppress(_Abort), producer.transaction():
                self.produce(producer, 4, topic)
                if number == 5:
                    raise _Abort
            if number in (3, 7):
                with Store.open(self.uri, options=self.options) as store:
                    report = compact(store, {"compact.topics": topic, "compact.target.bytes": 1_024})
                    assert report.removed_records > 0
        self.rewrite(topic)

    def delete_records(self, offset: int) -> None:
        self.settle(self.admin.delete_records([TopicPartition("orders", 0, offset)]))

    def log_end_offset(self, topic: str, partition: int) -> int:
        """Where the partition ends."""
        with Store.open(self.uri, options=self.options) as store:
            return store.view([topic]).partitions[topic, partition].log_end_offset

    def write(self, rounds: int) -> Producer:
        """The whole workload; returns a producer whose published transaction is still open."""
        self.create_topics()
        one, other, plain = self.producer("shop-1"), self.producer("shop-2"), self.producer()
        self.produce(one_off := self.producer("old"), 0)
        with one_off.transaction():
            self.produce(one_off, 2, "again")
        for number in range(rounds):
            self.round(one, publish=number % 3 == 0, commit=number % 4 != 1)
            self.interleave(one, other, plain)
            self.batch(f"query {number // 4}", f"run {number // 2}", number)
            if number % 5 == 2:
                one = self.fence("shop-1")
            self.offsets(other, number, commit=number % 3 != 2)
            if number == rounds // 2:
                self.rewrite()
        for commit, keep in ((True, True), (False, True), (False, False)):
            self.prepare("two-phase", commit=commit, keep=keep)
        self.change_topics()
        self.sweep()
        self.plain_offsets(rounds)
        self.intents()
        self.halves()
        self.members()
        self.prices(one)
        self.raise_floor()
        self.delete_records(2 * rounds)
        self.rewrite("orders,typed", 65_536)
        with one.transaction():
            one.expect("orders", 0, self.log_end_offset("orders", 0))
            self.produce(one, 4, "again")
            self.produce(one, 9)
        prepared = self.producer("prepared")
        prepared.begin_transaction()
        self.produce(prepared, 1, "audit.log")
        prepared.prepare_transaction(10)
        last = self.producer("open")
        last.begin_transaction()
        self.produce(last, 5)
        last.flush(10)
        self.produce(plain, 6)
        plain.flush(10)
        return last


@contextmanager
def written(uri: str, settings: dict[str, Any], rounds: int) -> Iterator[Workload]:
    workload = Workload(uri, settings)
    try:
        workload.write(rounds)
        yield workload
    finally:
        workload.close()
