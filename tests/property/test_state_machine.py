"""The engine against a plain model: any commands, right or wrong, get the same answers and leave the same records."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import (
    AlterStore,
    AlterTopic,
    CheckHalf,
    Command,
    CommandResult,
    CreateTopic,
    DeleteHalf,
    DiscardHalf,
    EndHalf,
    ExpireProducers,
    ExpireTransactionalId,
    InitProducerId,
    OffsetCommit,
    OffsetToCommit,
    PrepareHalf,
    ResumeHalf,
)
from sparktxn._engine.format.manifest import decode_manifest
from sparktxn._engine.format.txnindex import decode_transaction_index
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.readview import PartitionView
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._engine.state.transactions.partitions import last_stable_offset
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.values.structs import AbortedTransaction, HalfSegment, SegmentRef
from sparktxn.errors import CommandRefused, ErrorCode
from sparktxn.testing.clocks import ManualClock, SeededIds, StrictBackground
from tests.producercommands import ProducerCommands
from tests.purelog import PureLog
from tests.referencemodel import STORE, ReferenceModel

pytestmark = pytest.mark.kafka(
    "K30",
    "K31",
    "K33",
    "K34",
    "K44",
    "K46",
    "K56",
    "K57",
    "K58",
    "K59",
    "K60",
    "K62",
    "K69",
    "K72",
    "K86",
    "K104",
    "K108",
)

TOPICS = {1: "topic", 2: "other"}
PLACES = [(1, 0), (1, 1)]
HALF_PLACES = [*PLACES, (2, 0)]
"""Half messages also go to a topic that has settings of its own."""
REJECTS = "reject.transaction.message"
NAMES = ["a", "b", "c"]
numbers = count()

names_ = st.sampled_from(NAMES)
places = st.sampled_from(PLACES)
half_places = st.sampled_from(HALF_PLACES)
# Mostly what a sound client sends; sometimes what a late, doubled or paused one does.
shifts = st.sampled_from([0, 0, 0, 0, 0, 0, -1, 1, -2])


def visible(segments: list[SegmentRef], aborted: list[AbortedTransaction], end: int) -> list[tuple[int, str]]:
    """read_committed by PROTOCOL.md: below `end`, without the aborted ranges of each record's own producer."""
    return [
        (offset, segment.name)
        for segment in segments
        for offset in range(segment.base_offset, min(segment.end_offset, end))
        if not any(
            range_.producer_id == segment.producer_id and range_.first_offset <= offset <= range_.last_offset
            for range_ in aborted
        )
    ]


def identity_of(producer: ProducerCommands) -> tuple[int, int]:
    return producer.producer_id, producer.producer_epoch


class StateMachine(RuleBasedStateMachine):
    """Applies to a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.model = ReferenceModel(HALF_PLACES)
        self.identities: dict[str, list[ProducerCommands]] = {name: [] for name in NAMES}
        self.sequences: dict[tuple[int, int, tuple[int, int]], int] = {}
        self.sent: list[tuple[Any, ...]] = []
        self.requests = count()

    @initialize()
    def start(self) -> None:
        self.open()
        for topic_id, name in TOPICS.items():
            count = sum(place[0] == topic_id for place in HALF_PLACES)
            assert self.submit(CreateTopic(f"create {name}", name, count))[0].topic_id == topic_id

    def open(self) -> None:
        self.log: Any = PureLog()

    def submit(self, *commands: Command) -> list[CommandResult]:
        return self.log.submit(*commands)

    def answer(self, *commands: Command) -> CommandResult | ErrorCode:
        try:
            return self.submit(*commands)[-1]
        except CommandRefused as refused:
            return ErrorCode(refused.error.code())

    @rule(name=names_)
    def initialise(self, name: str) -> None:
        told = self.submit(InitProducerId(f"init-{next(self.requests)}", name))[0]
        assert (told.producer_id, told.producer_epoch) == self.model.initialise(name)
        self.identities[name].append(ProducerCommands.of(name, told))

    def record(self, table: str, topic_id: int, partition: int, producer_id: int) -> Any:
        return self.log.records.get((table, topic_id, partition, producer_id))

    def has_producers(self) -> bool:
        return any(self.identities.values())

    def pick(self, name: str, age: int) -> ProducerCommands | None:
        """An identity of the name, the newest or one that has been superseded."""
        known = self.identities[name]
        return known[max(-len(known), -1 - age)] if known else None

    @precondition(has_producers)
    @rule(
        name=names_, age=st.sampled_from([0, 0, 0, 1]), place=places, shift=shifts, jump=shifts, count=st.integers(1, 3)
    )
    def append(self, name: str, age: int, place: tuple[int, int], shift: int, jump: int, count: int) -> None:
        producer = self.pick(name, age)
        if producer is None:
            return
        transaction = max(0, self.current(name) + shift)
        where = (*identity_of(producer), place)
        self.send(producer, transaction, place, max(0, self.sequences.get(where, 0) + jump), count)

    def send(
        self,
        producer: ProducerCommands,
        transaction: int,
        place: tuple[int, int],
        sequence: int,
        count: int,
        segment: str = "",
    ) -> None:
        name = producer.transactional_id
        assert name is not None
        segment = segment or names.segment_file(0, f"{next(self.requests):020x}", "arrow")
        command = producer.append(place, sequence, count, transaction=transaction, segment=segment)
        expected = self.model.append(name, identity_of(producer), transaction, place, sequence, count, command.segment)
        answer = self.answer(command)
        if isinstance(expected, ErrorCode):
            assert answer == expected
        else:
            assert isinstance(answer, CommandResult)
            assert answer.base_offset == expected
            self.sequences[(*identity_of(producer), place)] = max(
                sequence + count, self.sequences.get((*identity_of(producer), place), 0)
            )
            self.sent.append((producer, transaction, place, sequence, count, segment))

    @precondition(lambda self: bool(self.sent))
    @rule(data=st.data())
    def append_again(self, data: st.DataObject) -> None:
        self.send(*data.draw(st.sampled_from(self.sent[-8:])))

    @precondition(lambda self: bool(self.sent))
    @rule(data=st.data())
    def append_again_in_the_current_transaction(self, data: st.DataObject) -> None:
        producer, _, place, sequence, count, segment = data.draw(st.sampled_from(self.sent[-4:]))
        self.send(producer, self.current(producer.transactional_id), place, sequence, count, segment)

    @precondition(lambda self: bool(self.sent))
    @rule(data=st.data())
    def append_another_segment_under_the_same_sequences(self, data: st.DataObject) -> None:
        producer, transaction, place, sequence, count, _ = data.draw(st.sampled_from(self.sent[-8:]))
        self.send(producer, transaction, place, sequence, count)

    @precondition(has_producers)
    @rule(name=names_, place=places, back=st.integers(4, 6))
    def append_many_and_one_of_them_again(self, name: str, place: tuple[int, int], back: int) -> None:
        producer = self.pick(name, 0)
        if producer is None:
            return
        where = (*identity_of(producer), place)
        for _ in range(7):
            self.send(producer, self.current(name), place, self.sequences.get(where, 0), 1)
        if back <= len(self.sent):  # the id may have been forgotten: then nothing was stored
            self.send(*self.sent[-back])

    def current(self, name: str) -> int:
        """The number of the ongoing or next transaction."""
        last = self.last(name)
        return last if self.model.is_open(name) else last + 1

    def last(self, name: str) -> int:
        known = self.model.producers.get(name)
        return known.transaction if known is not None else 0

    @precondition(has_producers)
    @rule(name=names_, age=st.sampled_from([0, 0, 0, 1]), shift=shifts, committed=st.booleans())
    def end(self, name: str, age: int, shift: int, committed: bool) -> None:
        producer = self.pick(name, age)
        if producer is None:
            return
        transaction = max(0, self.last(name) + shift)
        expected = self.model.end(name, identity_of(producer), transaction, committed=committed)
        answer = self.answer(producer.end(transaction, committed=committed))
        assert answer == expected if expected is not None else isinstance(answer, CommandResult)

    @precondition(has_producers)
    @rule(name=names_, age=st.sampled_from([0, 0, 0, 1]), shift=shifts, timed_out=st.booleans())
    def end_by_others(self, name: str, age: int, shift: int, timed_out: bool) -> None:
        producer = self.pick(name, age)
        if producer is None:
            return
        transaction = max(0, self.last(name) + shift)
        expected = self.model.end(name, identity_of(producer), transaction, committed=False, fences=True)
        command = producer.end(transaction, committed=False, timed_out_after_ms=7 if timed_out else 0)
        answer = self.answer(command if timed_out else replace(command, fence_reason="somebody has"))
        assert answer == expected if expected is not None else isinstance(answer, CommandResult)

    @precondition(has_producers)
    @rule(name=names_, age=st.sampled_from([0, 0, 0, 1]), shift=shifts)
    def forget(self, name: str, age: int, shift: int) -> None:
        producer = self.pick(name, age)
        if producer is None:
            return
        transaction = max(0, self.last(name) + shift)
        expected = self.model.forget(name, identity_of(producer), transaction)
        answer = self.answer(ExpireTransactionalId(name, *identity_of(producer), transaction))
        assert answer == expected if expected is not None else isinstance(answer, CommandResult)

    @precondition(has_producers)
    @rule(name=names_, place=places)
    def forget_producer(self, name: str, place: tuple[int, int]) -> None:
        producer = self.pick(name, 0)
        known = self.record("producer", *place, producer.producer_id) if producer is not None else None
        if producer is None or known is None:
            return
        seen = (producer.producer_id, known.producer_epoch, known.last_sequence, known.coordinator_epoch)
        self.submit(ExpireProducers(*place, (seen,)))
        self.model.forget_producer(place, producer.producer_id)

    @precondition(has_producers)
    @rule(name=names_, place=places, shift=shifts, offset=st.integers(0, 99))
    def send_offset(self, name: str, place: tuple[int, int], shift: int, offset: int) -> None:
        producer = self.pick(name, 0)
        if producer is None:
            return
        transaction = max(0, self.current(name) + shift)
        expected = self.model.send_offset(name, identity_of(producer), transaction, "group", place, offset)
        answer = self.answer(producer.offset(transaction, "group", place, offset))
        assert answer == expected if expected is not None else isinstance(answer, CommandResult)

    @precondition(has_producers)
    @rule(name=names_, age=st.sampled_from([0, 0, 0, 1]), place=places, shift=shifts, moved=st.sampled_from([0, 0, 1]))
    def expect(self, name: str, age: int, place: tuple[int, int], shift: int, moved: int) -> None:
        producer = self.pick(name, age)
        if producer is None:
            return
        transaction = max(0, self.current(name) + shift)
        log_end_offset = len(self.model.partitions[place].offsets) - moved
        expected = self.model.expect(name, identity_of(producer), transaction, place, log_end_offset)
        answer = self.answer(producer.expect(transaction, place, log_end_offset))
        assert answer == expected if expected is not None else isinstance(answer, CommandResult)

    @rule(
        owner=st.sampled_from([STORE, STORE, *TOPICS]),
        value=st.sampled_from(["true", "true", "true", "false", None, "True"]),
    )
    def reject_half_messages(self, owner: int, value: str | None) -> None:
        request, changes = f"settings-{next(self.requests)}", {REJECTS: value}
        by_store, by_topic = AlterStore(request, changes), AlterTopic(request, TOPICS.get(owner, ""), owner, changes)
        self.same(self.model.reject_half_messages(owner, value), by_store if owner == STORE else by_topic)

    @rule(
        name=names_,
        place=half_places,
        also=half_places,
        again=st.booleans(),
        count=st.integers(1, 2),
        end=st.sampled_from([None, None, None, True, False]),
    )
    def prepare_half(
        self, name: str, place: tuple[int, int], also: tuple[int, int], again: bool, count: int, end: bool | None
    ) -> None:
        known = self.model.halves.get(name)
        if known is not None and again:
            more = [(place, names.segment_file(0, f"{next(self.requests):020x}", "arrow"), count)]
            segments = [known.segments, known.segments[:1], known.segments + more, more][next(self.requests) % 4]
        else:
            made = (names.segment_file(0, f"{next(self.requests):020x}", "arrow") for _ in range(2))
            segments = [(where, segment, count) for where, segment in zip((place, also), made, strict=True)]
        half = tuple(
            HalfSegment(TOPICS[where[0]], *where, segment, n, 100, "00000000", 1, 2) for where, segment, n in segments
        )
        prepare = PrepareHalf("half", name, half, 6_000)
        if end is None:
            self.same(self.model.prepare_half(name, segments), prepare)
        else:
            expected = self.model.send_half(name, segments, committed=end)
            self.same(expected, prepare, EndHalf("half", name, end, False))

    def same(self, expected: ErrorCode | None, *commands: Command) -> None:
        answer = self.answer(*commands)
        assert answer == expected if expected is not None else isinstance(answer, CommandResult)

    @rule(name=names_, shift=shifts, checker=names_)
    def check_half(self, name: str, shift: int, checker: str) -> None:
        checks = max(0, self.model.halves[name].checks + shift) if name in self.model.halves else 0
        expected = self.model.check_half(name, checks, checker)
        self.same(expected, CheckHalf("half", name, checks, checker, 30_000))

    @rule(name=names_, committed=st.booleans(), by_check=st.booleans())
    def end_half(self, name: str, committed: bool, by_check: bool) -> None:
        self.same(self.model.end_half(name, committed=committed), EndHalf("half", name, committed, by_check))

    @rule(name=names_, shift=shifts)
    def discard_half(self, name: str, shift: int) -> None:
        checks = max(0, self.model.halves[name].checks + shift) if name in self.model.halves else 0
        self.same(self.model.discard_half(name, checks), DiscardHalf("half", name, checks))

    @rule(name=names_)
    def resume_half(self, name: str) -> None:
        self.same(self.model.resume_half(name), ResumeHalf("half", name, 6_000))

    @rule(name=names_)
    def delete_half(self, name: str) -> None:
        self.same(self.model.delete_half(name), DeleteHalf("half", name))

    @rule(place=places, offset=st.integers(0, 99))
    def commit_offset(self, place: tuple[int, int], offset: int) -> None:
        self.submit(OffsetCommit(f"offset-{next(self.requests)}", "group", (OffsetToCommit(*place, offset),)))
        self.model.commit_offset("group", place, offset)

    def settings(self) -> dict[int, dict[str, str]]:
        """The settings of the store and of the topics."""
        topics = {topic_id: self.log.records["topic", name].settings for topic_id, name in TOPICS.items()}
        return {STORE: self.log.records["store",].topic_defaults, **topics}

    @invariant()
    def the_store_and_its_topics_have_the_same_settings(self) -> None:
        if not hasattr(self, "log"):
            return
        wanted = {owner: {} if value is None else {REJECTS: value} for owner, value in self.model.rejecting.items()}
        assert self.settings() == {owner: wanted.get(owner, {}) for owner in (STORE, *TOPICS)}

    @invariant()
    def everybody_reads_the_same(self) -> None:
        for place in HALF_PLACES if hasattr(self, "log") else ():
            partition, located = self.log.partition(*place), self.log.segments(*place)
            assert last_stable_offset(partition) == self.model.last_stable_offset(place)
            assert partition.log_end_offset == len(self.model.partitions[place].offsets)
            seen = visible(list(located.segments), list(located.aborted), last_stable_offset(partition))
            assert seen == self.model.visible(place)

    @invariant()
    def groups_have_the_same_offsets(self) -> None:
        for place in PLACES if hasattr(self, "log") else ():
            record = self.log.records.get(("offset", "group", *place))
            expected = self.model.committed_offsets.get(("group", place))
            assert (record.offset if record else None) == (expected[1] if expected else None)


class LogMachine(StateMachine):
    """The same through a log in a store: checkpoints, sealed runs, other processes, and views of the past."""

    def open(self) -> None:
        self.store = MemoryStore(f"property-{next(numbers)}", ManualClock())
        self.past: dict[int, dict[tuple[int, int], list[tuple[int, str]]]] = {}
        self.seeds = count()
        self.reopen()

    @rule()
    def reopen(self) -> None:
        if not hasattr(self, "store"):
            return
        self.log = Log.open(
            self.store,
            settings=StoreSettings(checkpoint_entries=3, checkpoint_seal_segments=2),
            clock=ManualClock(),
            ids=SeededIds(next(self.seeds) + 1_000_000 * next(numbers)),
            background=StrictBackground(),
            create=True,
        )

    def submit(self, *commands: Command) -> list[CommandResult]:
        return self.log.submit(list(commands))

    def record(self, table: str, topic_id: int, partition: int, producer_id: int) -> Any:
        return self.log.producer(topic_id, partition, producer_id)

    def settings(self) -> dict[int, dict[str, str]]:
        topics = {topic_id: self.log.topic(name).settings for topic_id, name in TOPICS.items()}
        return {STORE: self.log.store_state().topic_defaults, **topics}

    def read(self, entry: int | None = None) -> tuple[int, dict[tuple[int, int], PartitionView]]:
        view = self.log.view(list(TOPICS.values()), entry=entry)
        return view.entry, {place: view.partitions[TOPICS[place[0]], place[1]] for place in HALF_PLACES}

    def visible(self, topic_id: int, view: PartitionView) -> list[tuple[int, str]]:
        folder = names.partition_folder(TOPICS[topic_id], topic_id, view.partition)
        segments: list[SegmentRef] = []
        aborted: list[AbortedTransaction] = []
        for run in view.sealed:
            name = names.manifest(folder, run.folder)
            segments += decode_manifest(self.store.get(name) or b"", name)
            if run.aborted_count:
                name = names.transaction_index(folder, run.folder, run.base_offset)
                aborted += decode_transaction_index(self.store.get(name) or b"", name)
        return visible([*segments, *view.segments], [*aborted, *view.aborted], view.last_stable_offset)

    @invariant()
    def everybody_reads_the_same(self) -> None:
        if not hasattr(self, "log") or self.log.topic("topic") is None:
            return
        entry, views = self.read()
        for place, view in views.items():
            assert view.last_stable_offset == self.model.last_stable_offset(place)
            assert view.log_end_offset == len(self.model.partitions[place].offsets)
            assert self.visible(place[0], view) == self.model.visible(place)
        self.past[entry] = {place: self.model.visible(place) for place in HALF_PLACES}

    @invariant()
    def groups_have_the_same_offsets(self) -> None:
        for place in PLACES if hasattr(self, "log") else ():
            record = self.log.committed_offset("group", *place)
            expected = self.model.committed_offsets.get(("group", place))
            assert (record.offset if record else None) == (expected[1] if expected else None)

    @precondition(lambda self: bool(getattr(self, "past", None)))
    @rule(data=st.data())
    def time_travel(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(sorted(self.past)))
        found, views = self.read(entry)
        assert found == entry
        assert {place: self.visible(place[0], view) for place, view in views.items()} == self.past[entry]


TestStateMachine = StateMachine.TestCase
TestStateMachine.settings = settings(max_examples=150, stateful_step_count=40, suppress_health_check=list(HealthCheck))
TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=25, stateful_step_count=30, suppress_health_check=list(HealthCheck))
