"""A replica that defers entries shows, at every entry and in every part, what one shows that applies each at once."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktxn._engine.format import commands as c
from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import CheckpointHead, PartRef, digest, encode_part, part_of, state_digest
from sparktxn._engine.format.entry import NO_CHECKSUM, LogEntry, decode_entry, encode_entry
from sparktxn._engine.format.names import segment_file
from sparktxn._engine.log.follow import stateparts as deferred_entries
from sparktxn._engine.log.follow.tail import Tail
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._engine.state.intents import INTENT_WINDOW
from sparktxn._engine.state.rules import RULES, Scope, parts_touched_by
from sparktxn._foundation.values.structs import (
    HalfSegment,
    MemberState,
    PartitionState,
    ProducerIdAndEpoch,
    StateKey,
    StateRecord,
    TransactionState,
    TransactionStatus,
)
from sparktxn.errors import CommandRefused, DamagedObject
from sparktxn.testing.clocks import ManualClock
from tests.producercommands import ProducerCommands
from tests.purelog import PureLog
from tests.seeds import examples

IDS = ["x", "y", "z"]
GROUPS = ["g", "h"]
SHARED = "shared"
MEMBERS = {"m0": "", "m1": "", "m2": "", "s0": "one", "s1": "one"}
"""Members of the group `SHARED`, and their instance ids."""
stores = count()

Parts = dict[str, dict[StateKey, StateRecord]]


def by_part(records: dict[StateKey, StateRecord]) -> Parts:
    parts: Parts = {}
    for key, record in records.items():
        parts.setdefault(part_of(key), {})[key] = record
    return parts


class Program:
    """Writes entries with commands of every kind, mostly in order, and remembers the state after each."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.log = PureLog()
        self.requests = count()
        self.snapshots: list[Parts] = [{}]
        for name in ("a", "b", "c"):
            self.write(c.CreateTopic(f"create {name}", name, 2))
        for name in IDS:
            self.write(c.InitProducerId(f"init {name}", name))
        self.write(c.InitProducerId("init", None))

    def write(self, *list_: c.Command) -> bool:
        before = self.log.entry
        try:
            self.log.submit(*list_)
        except CommandRefused:
            return False
        if self.log.entry > before:
            self.snapshots.append(by_part(self.log.records))
        return True

    def step(self) -> None:
        """Write an entry of one list, or of two."""
        first = self.a_list()
        if self.rng.random() < 0.2 and self.write(*first, *self.a_list()):
            return
        self.write(*first)

    def a_list(self) -> list[c.Command]:
        kinds = (
            [self.in_transaction] * 8 + [self.group] * 3 + [self.member] * 4 + [self.plain] * 2 + [self.administrative]
        )
        made = self.rng.choice(kinds)()
        if self.rng.random() < 0.1:
            base = self.log.entry - self.rng.choice([0, 0, 1, 3])
            return [c.SettleIntent(f"intent-{next(self.requests)}", max(0, base), len(made)), *made]
        return made

    def place(self) -> tuple[int, int]:
        known = sorted(key[1:] for key in self.log.records if key[0] == "partition")
        return self.rng.choice(known)  # type: ignore[return-value]

    def append(self, producer: ProducerCommands, transaction: int, place: tuple[int, int]) -> c.Append:
        known = self.log.records.get(("producer", *place, producer.producer_id))
        sequence = 0
        if known is not None and known.producer_epoch == producer.producer_epoch and known.batches:
            sequence = known.last_sequence + 1
        return producer.append(place, sequence, transaction=transaction, born=max(0, self.log.entry - 2))

    def in_transaction(self) -> list[c.Command]:
        record = self.log.records[("transaction", self.rng.choice(IDS))]
        producer = ProducerCommands(record.transactional_id, record.producer_id, record.producer_epoch)
        ongoing = record.status is TransactionStatus.ONGOING
        number = record.transaction if ongoing else record.transaction + 1
        if record.prepared is not None:
            return [producer.end(number, committed=self.rng.random() < 0.5)]
        made: list[c.Command] = []
        identity = (record.transactional_id, record.producer_id, record.producer_epoch, number)
        if self.rng.random() < 0.2:
            made.append(c.AddPartitionsToTxn(*identity, (self.place(), self.place())))
        if self.rng.random() < 0.2:
            place = self.place()
            made.append(producer.expect(number, place, self.log.partition(*place).log_end_offset))
        places = {self.place() for _ in range(self.rng.choice([0, 1, 1, 2]))}
        made += [self.append(producer, number, place) for place in sorted(places)]
        if self.rng.random() < 0.3:
            group_id = self.rng.choice(GROUPS)
            made += [
                c.AddOffsetsToTxn(*identity, group_id),
                producer.offset(number, group_id, self.place(), self.rng.randrange(9)),
            ]
        if self.rng.random() < 0.2 and (found := self.holder()) is not None:
            member, place = found
            offset = producer.offset(number, SHARED, place, self.rng.randrange(9))
            made += [
                c.AddOffsetsToTxn(*identity, SHARED),
                replace(offset, member_id=member.member_id, generation_id=member.member_epoch),
            ]
        if self.rng.random() < 0.1:
            made.append(producer.batch(number, next(self.requests)))
        if not made and not ongoing:
            return self.plain()
        ending = self.rng.random()
        if ending < 0.05:
            made.append(producer.prepare(number))
        elif ending < 0.5:
            made.append(producer.end(number, committed=ending < 0.35))
        elif ending < 0.55:
            made.append(producer.end(number, committed=False, timed_out_after_ms=7))
        return made or [producer.end(number)]

    def plain(self) -> list[c.Command]:
        return [self.append(ProducerCommands(None, len(IDS), 0), -1, self.place())]

    def group(self) -> list[c.Command]:
        offset = c.OffsetToCommit(*self.place(), self.rng.randrange(9))
        return [c.OffsetCommit(f"request {next(self.requests)}", self.rng.choice(GROUPS), (offset,))]

    def holder(self) -> tuple[MemberState, tuple[int, int]] | None:
        """A member, and a partition that it holds or is to give back."""
        members = [record for key, record in self.log.records.items() if key[:2] == ("member", SHARED)]
        held = [(one, (h.topic_id, h.partition)) for one in members for h in (*one.assigned, *one.revoking)]
        return self.rng.choice(held) if held else None

    def member(self) -> list[c.Command]:
        """What a member of the group sends, or an observer of one that is silent."""
        request, member_id = f"request {next(self.requests)}", self.rng.choice(sorted(MEMBERS))
        topics = sorted(record.name for key, record in self.log.records.items() if key[0] == "topic")
        topics = sorted({*self.rng.sample(topics, 2), self.rng.choice([*topics, "missing"])})
        member: MemberState | None = self.log.records.get(("member", SHARED, member_id))
        if member is None or self.rng.random() < 0.1:
            assignors = self.rng.choice([("uniform",), ("uniform",), ("range", "uniform")])
            return [
                c.JoinGroup(
                    request, SHARED, member_id, tuple(topics), 1_000, 5_000, assignors, True, MEMBERS[member_id]
                )
            ]
        epoch, action = member.member_epoch, self.rng.random()
        if member.revoking and action < 0.6:
            owed = tuple((held.topic_id, held.partition) for held in member.revoking)
            offsets = tuple(c.OffsetToCommit(*place, 5) for place in owed)
            commit = c.OffsetCommit(f"offsets of {request}", SHARED, offsets, epoch, member_id)
            release = c.ReleasePartitions(request, SHARED, member_id, epoch, member.changed_entry, owed)
            return [commit, release] if self.rng.random() < 0.5 else [release]
        if member.assigned and action < 0.8:
            held = self.rng.choice(member.assigned)
            offset = c.OffsetToCommit(held.topic_id, held.partition, self.rng.randrange(9))
            return [c.OffsetCommit(request, SHARED, (offset,), epoch, member_id)]
        if action < 0.85:
            return [c.UpdateMember(request, SHARED, member_id, epoch, tuple(topics))]
        if action < 0.93:
            return [c.LeaveGroup(request, SHARED, member_id, self.rng.random() < 0.5)]
        reason, seen = ("rebalance", member.changed_entry) if member.revoking else ("session", member.last_entry)
        return [c.ExpireMember(SHARED, member_id, epoch, seen - self.rng.choice([0, 0, 1]), reason, 5_000)]

    def an_expiry_of_offsets(self) -> c.Command:
        """A group's offsets as they are now, or what is left of it: members and open transactions may be in the way."""
        group_id = self.rng.choice([*GROUPS, SHARED])
        empty = self.log.records.get(("empty_group", group_id))
        found = [record for key, record in self.log.records.items() if key[:2] == ("offset", group_id)]
        idle = tuple(sorted((one.topic_id, one.partition, one.effective_entry) for one in found))
        return c.ExpireOffsets(group_id, (), idle[: self.rng.randrange(4)], 0 if empty is None else empty.entry)

    def a_half(self) -> c.Command:
        """A command for a half transaction that exists, or a new one."""
        known = sorted(key[1:] for key in self.log.records if key[0] == "half")
        if not known or self.rng.random() < 0.4:
            token = f"{next(self.requests):020}"
            segment = segment_file(max(0, self.log.entry - 2), token, "arrow")
            topics = {r.topic_id: r.name for key, r in self.log.records.items() if key[0] == "topic"}
            place = self.place()
            made = HalfSegment(topics[place[0]], *place, segment, 2, 100, "00000000", 1, 2)
            return c.PrepareHalf(self.rng.choice(GROUPS), token, (made,), self.rng.choice([0, 6_000]))
        named: tuple[Any, Any] = self.rng.choice(known)  # type: ignore[assignment]
        checks = self.log.records[("half", *named)].checks
        choices: list[c.Command] = [
            c.CheckHalf(*named, checks, f"checker-{next(self.requests)}", 30_000),
            c.EndHalf(*named, committed=True),
            c.EndHalf(*named, committed=False, by_check=True),
            c.DiscardHalf(*named, checks),
            c.ResumeHalf(*named, 6_000),
            c.DeleteHalf(*named),
        ]
        return self.rng.choice(choices)

    def administrative(self) -> list[c.Command]:
        topics = sorted(record.name for key, record in self.log.records.items() if key[0] == "topic")
        request, name = f"request {next(self.requests)}", self.rng.choice(topics)
        topic_id = self.log.records[("topic", name)].topic_id
        transaction = self.log.records[("transaction", self.rng.choice(IDS))]
        choices: list[c.Command] = [
            c.CreateTopic(request, f"topic-{next(self.requests)}", 2),
            c.AlterTopic(request, name, topic_id, {"segment.format": "arrow"}),
            c.AlterStore(request, {"reject.transaction.message": self.rng.choice(("true", "false", None))}),
            c.CreatePartitions(request, name, topic_id, self.rng.randrange(3, 6)),
            c.DeleteRecords(request, *self.place(), -1),
            c.InitProducerId(request, transaction.transactional_id, keep_prepared=self.rng.random() < 0.5),
            c.DeleteGroup(request, self.rng.choice(GROUPS), ()),
            c.ExpireOffsets(self.rng.choice(GROUPS), ((1, 0), (2, 1))),
            self.an_expiry_of_offsets(),
            c.ExpireProducers(*self.place(), ((transaction.producer_id, transaction.producer_epoch, 0, -1),)),
            c.Vacuum(0, max(0, self.log.entry - 3)),
            c.RequireFeatures(),
            c.CancelIntent(f"intent-{next(self.requests)}", self.log.entry),
        ]
        if len(topics) > 2:
            choices.append(c.DeleteTopic(request, name, topic_id))
        return [self.a_half() if self.rng.random() < 0.3 else self.rng.choice(choices)]


def stored(program: Program) -> tuple[MemoryStore, list[LogEntry]]:
    """The program's entries in a store."""
    objects = MemoryStore(f"deferred-{next(stores)}", ManualClock())
    previous, entries = NO_CHECKSUM, []
    for context, commands in program.log.entries:
        entry = LogEntry(
            format=1,
            entry=context.entry,
            token="0" * 20,
            previous=previous,
            timestamp_ms=context.timestamp_ms,
            commands=tuple(commands),
        )
        data, previous = encode_entry(entry)
        objects.put_if_absent(names.entry(entry.entry), data)
        entries.append(decode_entry(data, names.entry(entry.entry), entry.entry))
    return objects, entries


def checkpoint(objects: MemoryStore, program: Program, entries: list[LogEntry], number: int) -> CheckpointHead:
    """A checkpoint of the state after entry `number`."""
    token = f"{number:020d}"
    refs = {}
    for index, (part, records) in enumerate(sorted(program.snapshots[number].items())):
        data = encode_part(records.values())
        refs[part] = PartRef(names.checkpoint_part(number, token, index), len(data), digest(data))
        objects.put(refs[part].name, data)
    entry = entries[number - 1]
    return CheckpointHead(
        format=1,
        checkpoint=token,
        entry=number,
        token=entry.token,
        entry_checksum=entry.checksum,
        timestamp_ms=entry.timestamp_ms,
        digest=state_digest(refs),
        parts=refs,
        base=number,
    )


class Follower:
    """A replica that is advanced, read and given checkpoints at random, and compared with the program's states."""

    def __init__(self, program: Program, rng: Random) -> None:
        self.program, self.rng = program, rng
        self.objects, self.entries = stored(program)
        start = rng.choice([0, 0, rng.randrange(1, len(self.entries))])
        head = checkpoint(self.objects, program, self.entries, start) if start else None
        self.tail = Tail(self.objects, head)
        self.base = start

    def run(self) -> None:
        while self.tail.entry < len(self.entries):
            steps = [self.advance] * 3 + [self.read, self.read, self.read_record, self.adopt, self.look]
            self.rng.choice(steps)()
        self.check_changed()
        for part in self.tail.parts.names(""):
            self.check(part)

    def advance(self) -> None:
        entries = self.rng.choice([1, 1, 2, 5, 20])
        self.tail.advance(at_most=self.tail.entry + entries, window=self.rng.choice([1, 3]))

    def check(self, part: str) -> None:
        expected = self.program.snapshots[self.tail.entry].get(part, {})
        assert self.tail.parts.part(part) == expected, f"part {part!r} after entry {self.tail.entry}"

    def read(self) -> None:
        snapshot = self.program.snapshots[self.tail.entry]
        if snapshot:
            self.check(self.rng.choice(sorted(snapshot)))

    def read_record(self) -> None:
        records = [record for part in self.program.snapshots[self.tail.entry].values() for record in part.values()]
        if records:
            record = self.rng.choice(sorted(records, key=lambda record: str(record.key)))
            assert self.tail.parts.get(record.key) == record

    def look(self) -> None:
        """Apply what is open; the transactions that hold partitions are then those that the records name."""
        parts = self.tail.parts
        parts.catch_up_open()
        for part in parts.loaded("partitions/"):
            records = [record for record in parts.part_applied(part).values() if isinstance(record, PartitionState)]
            held = [open_ for record in records for open_ in record.open_transactions]
            for open_ in held:
                key = ("transaction", open_.transactional_id)
                expected = self.program.snapshots[self.tail.entry][part_of(key)][key]
                assert parts.get_following(key) == expected
        for key in [("transaction", name) for name in IDS]:
            record = self.program.snapshots[self.tail.entry].get(part_of(key), {}).get(key)
            if not isinstance(record, TransactionState):
                continue
            if record.status is TransactionStatus.ONGOING and record.partitions:
                assert part_of(key) not in self.behind()

    def behind(self) -> set[str]:
        return set(self.tail.parts._behind)

    def adopt(self) -> None:
        """Stand on a checkpoint, with the records that are needed, or with all that are held."""
        if self.base >= self.tail.entry:
            return
        self.base = self.rng.randrange(self.base + 1, self.tail.entry + 1)
        head = checkpoint(self.objects, self.program, self.entries, self.base)
        parts = self.tail.parts
        wanted = parts.named_otherwise(head) if self.rng.random() < 0.5 else parts.lacking(head, {})
        snapshot = self.program.snapshots[self.base]
        self.tail.rebase(head, {part: list(snapshot.get(part, {}).values()) for part in wanted})
        assert all(entry.entry > self.base for waiting in parts._behind.values() for entry in waiting)

    def check_changed(self) -> None:
        """A checkpoint would write every part that differs from the one that the replica stands on."""
        self.tail.parts.catch_up()
        parts, base = self.tail.parts, self.program.snapshots[self.base]
        for part, records in self.program.snapshots[self.tail.entry].items():
            if records != base.get(part, {}):
                assert part in parts.changed
        assert all(entry > self.base for entry in parts.changed.values())


def run(rng: Random, steps: int) -> None:
    program = Program(rng)
    for _ in range(steps):
        program.step()
    for _ in range(3):
        Follower(program, rng).run()


@settings(max_examples=examples(25, 300), suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_every_read_shows_what_an_eager_replay_shows(seed: int) -> None:
    print(f"seed {seed}")
    run(Random(seed), 80)


def test_nothing_is_deferred_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred_entries, "DEFERRED_ENTRIES_MAX", 5)
    for seed in range(10):
        print(f"seed {seed}")
        run(Random(seed), 60)


@pytest.mark.parametrize("seed", [3])
def test_a_build_whose_end_of_a_transaction_touches_its_own_record_alone_is_found(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(deferred_entries, "touched_by_end", lambda transaction: frozenset())
    monkeypatch.setattr(deferred_entries, "EndTxn", type(None))
    with pytest.raises(AssertionError, match=r"its commands do not say so|is read by a command"):
        run_many(range(seed, seed + 20))


def run_many(seeds: range) -> None:
    for seed in seeds:
        print(f"seed {seed}")
        run(Random(seed), 80)


def test_the_programs_write_every_confined_command_and_defer_most() -> None:
    program = Program(Random(0))
    for _ in range(400):
        program.step()
    written = {type(command) for _, commands in program.log.entries for command in commands}
    confined = {kind for kind, rule in RULES.items() if rule.scope is not Scope.OPEN}
    assert written >= confined | {c.JoinGroup, c.UpdateMember, c.ReleasePartitions, c.LeaveGroup, c.ExpireMember}
    by_members = {
        type(command)
        for _, commands in program.log.entries
        for command in commands
        if isinstance(command, c.OffsetCommit | c.TxnOffsetCommit) and command.member_id
    }
    assert by_members == {c.OffsetCommit, c.TxnOffsetCommit}
    tail = Tail(stored(program)[0], None)
    most = 0
    for entry in range(1, program.log.entry + 1):
        tail.advance(at_most=entry)
        most = max(most, len({entry.entry for waiting in tail.parts._behind.values() for entry in waiting}))
    assert most > 10


def with_entry(objects: MemoryStore, entries: list[LogEntry], *commands: c.Command) -> int:
    """Add an entry to the store; return its number."""
    number = len(entries) + 1
    entry = LogEntry(
        format=1,
        entry=number,
        token="0" * 20,
        previous=entries[-1].checksum,
        timestamp_ms=1_000,
        commands=commands,
    )
    objects.put_if_absent(names.entry(number), encode_entry(entry)[0])
    return number


def test_an_entry_that_the_state_refuses_is_an_error_where_it_is_read() -> None:
    objects, entries = stored(Program(Random(1)))
    number = with_entry(objects, entries, ProducerCommands("x", 0, 0).append((1, 0), 5, transaction=9))
    tail = Tail(objects, None)
    tail.advance()
    assert tail.entry == number
    assert tail.parts.get(("partition", 2, 0)).log_end_offset == 0
    for _ in range(2):
        with pytest.raises(DamagedObject, match=f"{number:020d}.*refuses"):
            tail.parts.get(("partition", 1, 0))
    with pytest.raises(DamagedObject):
        tail.parts.catch_up()


def test_the_end_of_a_prepared_transaction_may_take_a_producer_id_and_is_applied_at_once() -> None:
    program = Program(Random(1))
    objects, entries = stored(program)
    number = len(entries)
    last = TransactionState(
        "x", 0, 32_766, -1, -1, 60_000, TransactionStatus.ONGOING, 1, False, prepared=ProducerIdAndEpoch(0, 32_766)
    )
    program.snapshots[number][part_of(last.key)][last.key] = last
    tail = Tail(objects, checkpoint(objects, program, entries, number))
    before = tail.store().next_producer_id
    with_entry(objects, entries, ProducerCommands("x", 0, 32_766).end(1))
    tail.advance()
    assert tail.store().next_producer_id == before + 1
    assert tail.parts.get(last.key).producer_id == before


def test_an_intent_that_names_any_base_is_bounded() -> None:
    for base in (-(2**63), -1, 0, 5, 2**63 - 1):
        parts = parts_touched_by(c.SettleIntent("intent", base), 2_000)
        assert 1 <= len(parts) <= INTENT_WINDOW // 64 + 1
