"""Processes that are members of one group: they join, commit, give back, die, pause past their expiry and wake up.

Each commits with what it has read of the state, however old that is. Any of them takes out members that it has seen
silent, by its own clock. Sweeps and vacuums run alongside. When nothing fails any more, they go on until every
partition has its owner: a history that does not get there has no end.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from sparktxn._engine.format.commands import (
    Command,
    CommandResult,
    CreatePartitions,
    CreateTopic,
    ExpireMember,
    InitProducerId,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetToCommit,
    ReleasePartitions,
    UpdateMember,
)
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.write.queue import Ticket
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.values.structs import MemberState
from sparktxn.errors import CommandRefused, ErrorCode, OutcomeLost, OutcomeUnknown, StoreUnavailable
from sparktxn.maintenance import sweep
from sparktxn.store import Store
from tests.groupcommands import Place, holdings, places
from tests.producercommands import ProducerCommands
from tests.simulation.commandprograms import delete_behind_checkpoints
from tests.simulation.simulator import FaultRates, Process, Simulator

__all__ = [
    "GROUP",
    "TOPIC",
    "GroupCommit",
    "GroupHistory",
    "GroupTransaction",
    "TransactionKey",
    "group_rates_of",
    "groups",
]

GROUP: Final = "group"
TOPIC: Final = "t"
_OTHER_TOPIC: Final = "u"
_SETTINGS: Final = StoreSettings(checkpoint_entries=12, checkpoint_seal_segments=3, request_timeout_ms=2_000)
_CALL_S: Final = 5.0
_SESSION_S: Final = 12.0
_REBALANCE_S: Final = 8.0
_SIGN_S: Final = 3.0
_ROUNDS: Final = 14
_TRANSACTION_MS: Final = 20_000
_PRODUCER_FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE}
)
"""Codes for a transaction that a sweep has aborted."""
_MISSED: Final = (StoreUnavailable, OutcomeUnknown)


class GroupCommit(Struct):
    """A commit of one partition's offset: what its member knew, and what became of it.

    `known_entry` is the newest entry that it had read. `accepted` is None as long as it has no answer;
    `answered_entry` is the newest entry that its process knew then.
    """

    member_id: str
    known_entry: int
    place: Place
    accepted: bool | None = None
    answered_entry: int = 0


class GroupTransaction(GroupCommit, kw_only=True):
    """A transaction that consumes a partition from `begins` up to `ends`. `committed` is None without an answer."""

    begins: int
    ends: int
    committed: bool | None = None


TransactionKey = tuple[str, int, int]
"""Transactional id, producer epoch and number."""


class GroupHistory(Struct):
    """What the members of a group did: their commits by request id, their transactions, and who is still there."""

    commits: dict[str, GroupCommit] = field(default_factory=dict)
    transactions: dict[TransactionKey, GroupTransaction] = field(default_factory=dict)
    refused: list[GroupTransaction] = field(default_factory=list)
    working: set[str] = field(default_factory=set)
    live: dict[str, str] = field(default_factory=dict)
    operations: int = 0


class _Fenced(Exception):
    """Another process has the instance id."""


class _Member:
    """One life of a process as a member of the group."""

    def __init__(self, process: Process, history: GroupHistory, instance_id: str) -> None:
        self._process = process
        self._history = history
        self._log = process.open_log(_SETTINGS)
        self._instance_id = instance_id
        self._topics: tuple[str, ...] = (TOPIC,)
        self._joined = False
        self._known_entry = 0
        self._signed_s = -1e9
        self._seen: dict[tuple[str, str], tuple[tuple[int, int], float]] = {}
        self._positions: dict[Place, tuple[int, int]] = {}
        self._producer: ProducerCommands | None = None
        self._transaction = 0
        self.member_id = process.ids.token()

    # What it knows

    def member(self) -> MemberState | None:
        return self._log.member(GROUP, self.member_id)

    def refresh(self) -> None:
        with self._log.within(_CALL_S):
            self._known_entry = self._log.refresh()

    def is_at_rest(self) -> bool:
        """True if the members are the live processes, and each has what it is to have."""
        members = self._log.group_members(GROUP)
        return sorted(member.member_id for member in members) == sorted(self._history.live.values()) and all(
            not member.revoking and places(member.assigned) == member.target for member in members
        )

    # What it does

    def submit(self, *commands: Command) -> list[CommandResult]:
        """Send commands until their outcome is known, and return their results.

        Raises:
            CommandRefused: they are refused.
        """
        while True:
            self._history.operations += 1
            try:
                with self._log.within(_CALL_S):
                    return self._log.submit(list(commands))
            except _MISSED:
                self._process.sleep(0.5)

    def _wait(self, ticket: Ticket) -> bool:
        """Wait until the outcome of a list is known. Return False if it never will be.

        Raises:
            CommandRefused: it is refused.
        """
        while True:
            self._history.operations += 1
            try:
                with self._log.within(_CALL_S):
                    ticket.wait()
            except OutcomeLost:
                return False
            except _MISSED:
                self._process.sleep(0.5)
            else:
                return True

    def create_topics(self) -> None:
        for name, partitions in ((TOPIC, 4), (_OTHER_TOPIC, 2)):
            with suppress(CommandRefused):
                self.submit(CreateTopic(self._process.ids.token(), name, partitions))

    def follow(self) -> MemberState | None:
        """Read the state, join if this is not a member, give back what is asked for; the record then.

        Raises:
            _Fenced: another process has taken the place.
        """
        self.refresh()
        member = self.member()
        if member is None or not self._joined:
            others = {other.instance_id for other in self._log.group_members(GROUP)}
            if self._joined and self._instance_id and self._instance_id in others:
                raise _Fenced
            self._join()
            self.refresh()
            member = self.member()
        elif member.revoking:
            self._give_back(member)
            self.refresh()
            member = self.member()
        return member

    def _join(self) -> None:
        random = self._process.random
        timeouts_ms = (int(_SESSION_S * 1000), int(_REBALANCE_S * 1000))
        assignors = ("uniform",) if random.random() < 0.9 else ("uniform", "range")
        whose = (self._process.ids.token(), GROUP, self.member_id, self._topics)
        self.submit(JoinGroup(*whose, *timeouts_ms, assignors, bool(self._instance_id), self._instance_id))
        self._joined = True
        self._sign()

    def _sign(self) -> None:
        self._signed_s = self._process.simulator.now_s

    def _give_back(self, member: MemberState) -> None:
        owed = places(member.revoking)
        for place in owed:
            # If it comes back, it is read from where it was committed.
            self._positions.pop(place, None)
        known = (member.member_epoch, member.changed_entry)
        commands: list[Command] = [ReleasePartitions(self._process.ids.token(), GROUP, self.member_id, *known, owed)]
        commit: GroupCommit | None = None
        if self._process.random.random() < 0.7 and not self._log.pending_offsets(GROUP, *owed[0]):
            commit, command = self._commit_of(member, owed[0])
            commands.insert(0, command)
        try:
            self.submit(*commands)
        except CommandRefused as refused:
            self._settle(commit, refused)
        else:
            self._settle(commit, None)
            self._sign()

    def _commit_of(self, member: MemberState, place: Place) -> tuple[GroupCommit, OffsetCommit]:
        token = self._process.ids.token()
        commit = self._history.commits[token] = GroupCommit(self.member_id, self._known_entry, place)
        offsets = (OffsetToCommit(*place, len(self._history.commits)),)
        command = OffsetCommit(token, GROUP, offsets, member.member_epoch, self.member_id, "", self._instance_id)
        return commit, command

    def _settle(self, commit: GroupCommit | None, refused: CommandRefused | None) -> None:
        if refused is not None:
            fenced = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION}
            fenced |= {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_MEMBER_EPOCH}
            assert refused.error.code() in fenced, f"{commit} is refused with {refused}"
        if commit is not None:
            commit.accepted, commit.answered_entry = refused is None, self._log.entry

    def commit(self, member: MemberState) -> None:
        """Commit an offset of a partition that `member` holds, with what it knows."""
        held = holdings(member)
        place = self._process.random.choice(sorted(held))
        if self._log.pending_offsets(GROUP, *place):
            # A transaction of the owner before is open: it is not known where to begin.
            return
        commit, command = self._commit_of(member, place)
        if self._process.random.random() < 0.4:
            # It is on its way while other members go on.
            self._process.sleep(self._process.random.choice((0.5, 4.0, 2 * _SESSION_S)))
        try:
            self.submit(command)
        except CommandRefused as refused:
            self._settle(commit, refused)
        else:
            self._settle(commit, None)
            self._positions[commit.place] = (held[commit.place], command.offsets[0].offset)
            self._sign()

    # In transactions

    def transact(self, member: MemberState) -> None:
        """Consume some of a partition that `member` holds, in a transaction of one entry, or of two.

        It begins where the partition was committed when this member got it, once no transaction has offsets for it.
        """
        held = holdings(member)
        place = self._process.random.choice(sorted(held))
        if self._log.pending_offsets(GROUP, *place):
            return
        since, begins = self._positions.get(place, (0, 0))
        if since != held[place]:
            known = self._log.committed_offset(GROUP, *place)
            begins = 0 if known is None else known.offset
        producer = self._producer or self._initialise()
        number = self._transaction + 1
        made = GroupTransaction(self.member_id, self._known_entry, place, begins=begins, ends=begins + 1)
        key = (producer.transactional_id or "", producer.producer_epoch, number)
        self._history.transactions[key] = made
        offset = replace(
            producer.offset(number, GROUP, place, made.ends),
            member_id=self.member_id,
            generation_id=member.member_epoch,
            instance_id=self._instance_id,
        )
        is_one_entry = self._process.random.random() < 0.5
        if self._process.random.random() < 0.3:
            # It is on its way while other members go on.
            self._process.sleep(self._process.random.choice((0.5, 4.0, 2 * _SESSION_S)))
        self._positions.pop(place, None)
        try:
            # Not sent anew where it is unknown: a transaction has no request id.
            with self._log.send([offset, *([producer.end(number)] if is_one_entry else [])]) as ticket:
                is_known = self._wait(ticket)
        except CommandRefused as refused:
            if refused.error.code() in _PRODUCER_FENCED:
                self._producer = None
            else:
                self._settle(made, refused)
                # The next transaction has its number.
                self._history.refused.append(self._history.transactions.pop(key))
            return
        if not is_known:
            self._producer = None
            return
        self._settle(made, None)
        self._sign()
        self._transaction = number
        made.committed = True if is_one_entry else self._end(producer, number)
        if made.committed is not None:
            self._positions[place] = (held[place], made.ends if made.committed else begins)

    def _initialise(self) -> ProducerCommands:
        name = f"producer of {self._process.name}"
        (answer,) = self.submit(InitProducerId(self._process.ids.token(), name, _TRANSACTION_MS))
        self._producer, self._transaction = ProducerCommands.of(name, answer), answer.transaction
        return self._producer

    def _end(self, producer: ProducerCommands, number: int) -> bool | None:
        """Commit after a pause, or abort, and return which. Return None if a sweep may have aborted meanwhile."""
        self._process.sleep(self._process.random.choice((0.1, 2.0, 2 * _SESSION_S)))
        committed = self._process.random.random() < 0.8
        try:
            self.submit(producer.end(number, committed=committed))
        except CommandRefused as refused:
            if refused.error.code() not in _PRODUCER_FENCED:
                raise
            self._producer = None
            return None
        return committed

    def give_a_sign_of_life(self, member: MemberState) -> None:
        if self._process.simulator.now_s - self._signed_s >= _SIGN_S:
            with suppress(CommandRefused):
                token = self._process.ids.token()
                self.submit(OffsetCommit(token, GROUP, (), member.member_epoch, self.member_id, "", self._instance_id))
                self._sign()

    def leave(self) -> None:
        keeps_place = self._process.random.random() < 0.7
        self.submit(LeaveGroup(self._process.ids.token(), GROUP, self.member_id, keeps_place))
        self._joined = False
        if self._process.random.random() < 0.5:
            self.member_id = self._history.live[self._process.name] = self._process.ids.token()

    def change_something(self) -> None:
        random = self._process.random
        member = self.member()
        with suppress(CommandRefused):
            if random.random() < 0.5 and member is not None:
                self._topics = random.choice(((TOPIC,), (TOPIC, _OTHER_TOPIC)))
                token = self._process.ids.token()
                self.submit(UpdateMember(token, GROUP, self.member_id, member.member_epoch, self._topics))
                self._sign()
            else:
                topic = self._log.topic(TOPIC)
                if topic is not None and topic.partition_count < 7:
                    count = topic.partition_count + 1
                    self.submit(CreatePartitions(self._process.ids.token(), TOPIC, topic.topic_id, count))

    def expire_others(self) -> None:
        """Take out members of which nothing has changed for their time-outs, since this process first saw it so."""
        now_s = self._process.clock.monotonic_s()
        seen: dict[tuple[str, str], tuple[tuple[int, int], float]] = {}
        for other in self._log.group_members(GROUP):
            for reason, sign, timeout_s in (
                ("session", other.last_entry, _SESSION_S),
                ("rebalance", other.changed_entry, _REBALANCE_S),
            ):
                if other.member_id == self.member_id or not sign:
                    continue
                mark = (other.member_epoch, sign)
                before = self._seen.get((other.member_id, reason))
                since_s = before[1] if before is not None and before[0] == mark else now_s
                seen[other.member_id, reason] = (mark, since_s)
                if now_s - since_s > timeout_s:
                    after_ms = int((now_s - since_s) * 1000)
                    self.submit(ExpireMember(GROUP, other.member_id, *mark, reason, after_ms))
        self._seen = seen


def _being_a_member(history: GroupHistory, instance_id: str) -> Callable[[Process], None]:
    def program(process: Process) -> None:
        member = _Member(process, history, instance_id)
        history.working.add(process.name)
        history.live[process.name] = member.member_id
        member.create_topics()
        rounds = 0
        while history.working or not member.is_at_rest():
            try:
                state = member.follow()
                member.expire_others()
                if state is not None:
                    _act(process, member, state, rounds)
            except _Fenced:
                history.working.discard(process.name)
                del history.live[process.name]
                return
            except _MISSED:
                pass
            rounds += 1
            if rounds > _ROUNDS and process.simulator.is_calm():
                history.working.discard(process.name)
            process.sleep(process.random.random() * 3)
            with suppress(*_MISSED):
                member.refresh()

    return program


def _act(process: Process, member: _Member, state: MemberState, rounds: int) -> None:
    drawn = process.random.random()
    if rounds > _ROUNDS or drawn >= 0.75:
        member.give_a_sign_of_life(state)
    elif drawn < 0.6:
        if holdings(state):
            (member.commit if drawn < 0.3 else member.transact)(state)
    elif drawn < 0.68:
        member.leave()
    else:
        member.change_something()


def _vacuuming(history: GroupHistory) -> Callable[[Process], None]:
    def program(process: Process) -> None:
        log: Log = process.open_log(_SETTINGS)
        while history.working:
            with suppress(*_MISSED):
                with log.within(_CALL_S):
                    log.refresh()
                delete_behind_checkpoints(log)
            process.sleep(process.random.random() * 20)

    return program


def _sweeping(history: GroupHistory) -> Callable[[Process], None]:
    def program(process: Process) -> None:
        store = Store(process.simulator.shared.uri, {}, process.open_log(_SETTINGS))
        while history.working:
            with suppress(*_MISSED, CommandRefused):
                sweep(store, {}, timeout_s=_CALL_S)
            process.sleep(process.random.random() * 60)

    return program


def group_rates_of(seed: int) -> FaultRates:
    """Return the faults of a history. Pauses are a few sessions long: the others go on all the while."""
    drawn = FaultRates.drawn(Random(f"{seed} groups"))
    return replace(drawn, pauses_s=(0.5, 5.0, 3 * _SESSION_S))


def groups(simulator: Simulator, history: GroupHistory) -> None:
    """Two members, a static one, two processes with one instance id, a vacuum and a sweep."""
    for name, instance_id in (("m0", ""), ("m1", ""), ("s0", "alone"), ("s1", "twin"), ("s2", "twin")):
        history.working.add(name)
        simulator.add(name, _being_a_member(history, instance_id))
    simulator.add("vacuum", _vacuuming(history))
    simulator.add("sweep", _sweeping(history))
